"""Compare chips with other people's figures: printed totals of instances, measured kernels and shares of the peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.catalog import load, systems
from trnmodel.evidence.rows import MEASURED, PRODUCTS, read_table
from trnmodel.units import MS, US

if TYPE_CHECKING:
    import pandas as pd

_CHIPS = {"trn1": "trainium1", "trn2": "trainium2", "trn3": "trainium3"}
_TOTALS = ("peak_flop_per_s", "sparse_peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s")


def printed_totals() -> pd.DataFrame:
    """Compare printed totals of instances and UltraServers with chips x the value per chip in force.

    Returns
    -------
    table : pandas.DataFrame
        system, quantity (with its dtype), chips, per_chip, computed, printed, difference (signed fraction), source.

    Examples
    --------
    >>> table = printed_totals()
    >>> row = table[(table.system == "trn2.48xlarge") & (table.quantity == "hbm_bytes_per_s")].iloc[0]
    >>> float(row.printed), round(float(row.computed))
    (46400000000000.0, 46400000000000)
    """
    import pandas as pd

    facts = load.facts()
    facts = facts[(facts.status != "rejected") & facts.quantity.isin(_TOTALS) & facts.entity.isin(systems.systems())]
    rows = [_total(fact) for fact in facts.itertuples()]
    return pd.DataFrame(rows).dropna().drop_duplicates(["system", "quantity", "printed"], ignore_index=True)


def _total(fact: Any) -> dict:
    """Return one printed total; of several dtypes the first is taken for which the chip has a peak."""
    system = systems.system(fact.entity)
    per_chip, label = getattr(system.chip, fact.quantity), fact.quantity
    if isinstance(per_chip, Mapping):
        dtype = next((name for name in fact.qualifier.split("|") if name in per_chip), fact.qualifier)
        per_chip, label = per_chip.get(dtype, np.nan), f"{fact.quantity}[{dtype}]"
    computed = system.domain_chips * per_chip
    return {
        "system": fact.entity,
        "quantity": label,
        "chips": system.domain_chips,
        "per_chip": per_chip,
        "computed": computed,
        "printed": fact.value_si,
        "difference": computed / fact.value_si - 1,
        "source": fact.source,
    }


def measured_share_of_peak() -> pd.DataFrame:
    """Return matrix multiplies whose share of the peak was published: kernel, dtype, share, source.

    Examples
    --------
    >>> bool(measured_share_of_peak().share_of_peak.between(0, 1).all())
    True
    """
    import pandas as pd

    rows = read_table(MEASURED)
    is_matmul = rows.workload.str.contains("matmul|GEMM") & ~rows.workload.str.contains("rmsnorm")
    rows = rows[rows.kind.str.startswith("kernel") & rows.metric.str.startswith("MFU") & is_matmul]
    share = rows.value.astype(float) / 100
    columns = {"kernel": rows.workload, "instance": rows.instance, "dtype": rows.precision, "share_of_peak": share}
    return pd.DataFrame(columns | {"source": rows.source, "note": rows.note}).reset_index(drop=True)


def measured_kernels() -> pd.DataFrame:
    """Return all kernels whose time, work and HBM traffic others published, with the rates of the cores they ran on.

    Cores have their part of the chip. The FLOP are those that the profiler counted, or those of a matrix product.

    Returns
    -------
    table : pandas.DataFrame
        kernel, chip, cores, peak_flop_per_s, hbm_bytes_per_s, work_flop, moved_bytes, measured_s, source.

    Examples
    --------
    >>> measured_kernels().groupby("chip").size().to_dict()
    {'Trainium1': 8, 'Trainium3': 38}
    """
    import pandas as pd

    return pd.DataFrame([*_products(), *_profiled()])


def _on_cores(chip: str, cores: float, dtype: str) -> dict:
    """Return the part of a chip's peak and HBM bandwidth that some of its cores have."""
    spec = load.chip(chip)
    part = cores / spec.cores
    columns = {"chip": spec.name, "cores": int(cores)}
    return columns | {"peak_flop_per_s": spec.peak(dtype) * part, "hbm_bytes_per_s": spec.hbm_bytes_per_s * part}


def _products() -> Iterator[dict]:
    """Yield the matrix products on Trainium3 that SemiAnalysis measured."""
    for row in read_table(PRODUCTS).itertuples():
        m, k, n = int(row.m), int(row.k), int(row.n)
        yield {
            "kernel": f"{m:,} x {k:,} by {k:,} x {n:,}",
            **_on_cores("trainium3", float(row.lnc), row.dtype),
            "work_flop": 2.0 * m * k * n,
            "moved_bytes": float(row.hbm_read_bytes) + float(row.hbm_write_bytes),
            "measured_s": float(row.time_us) * US,
            "source": row.source,
        }


def _profiled() -> Iterator[dict]:
    """Yield kernels of the collected measurements for which a profile has bytes, FLOP and time."""
    rows = read_table(MEASURED)
    rows = rows[rows.kind.str.startswith("kernel")]
    for (source, kernel), one in rows.groupby(["source", "workload"], sort=False):
        values = dict(zip(one.metric, one.value, strict=True))
        if "silu" in kernel:
            values.setdefault("hardware_flops", "0")  # it multiplies no matrices
        time_ms = values.get("latency", values.get("total_time"))
        if {"hbm_read_bytes", "hbm_write_bytes", "hardware_flops"} <= values.keys() and time_ms:
            first = one.iloc[0]
            chip, dtype = _CHIPS[first.instance[:4]], "mxfp8" if first.precision.startswith("MXFP8") else "bf16"
            yield {
                "kernel": kernel,
                **_on_cores(chip, float(first.n_cores_used), dtype),
                "work_flop": float(values["hardware_flops"]),
                "moved_bytes": float(values["hbm_read_bytes"]) + float(values["hbm_write_bytes"]),
                "measured_s": float(time_ms) * MS,
                "source": source,
            }
