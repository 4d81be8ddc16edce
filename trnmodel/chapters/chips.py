"""Chips side by side: rooflines, ridge points, memory, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.arguments import chosen, listed, numbers, refuse
from trnmodel.catalog import load, systems
from trnmodel.catalog.specs import Chip, Engine, Precision
from trnmodel.formulas import roofline
from trnmodel.units import format_quantity

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

_TOTALS = {"peak_flop_per_s", "sparse_peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s"}


def rooflines(
    chips: Iterable[str | Chip], dtypes: Iterable[str], intensity_flop_per_byte: ArrayLike, sparse: bool = False
) -> pd.DataFrame:
    """Attainable rate over arithmetic intensity, for each chip and each compute dtype that it has a peak for.

    Parameters
    ----------
    chips : iterable of str or Chip
        Chips to compare.
    dtypes : iterable of str
        Compute dtypes; a pair without a printed peak is left out.
    intensity_flop_per_byte : array_like
        Arithmetic intensity. [FLOP/B]
    sparse : bool
        Use the structured-sparsity peaks in place of the dense ones.

    Returns
    -------
    table : pandas.DataFrame
        chip, dtype, intensity_flop_per_byte, attainable_flop_per_s, bound ("memory" or "compute").

    Examples
    --------
    >>> rooflines(["trainium2"], ["bf16"], [1.0, 1000.0]).bound.tolist()
    ['memory', 'compute']
    """
    import pandas as pd

    intensity = np.atleast_1d(numbers("intensity_flop_per_byte", intensity_flop_per_byte))
    frames = []
    for chip, dtype in _pairs(chips, dtypes, sparse):
        peak = chip.peak(dtype, sparse)
        rate = roofline.attainable_flop_per_s(intensity, peak, chip.hbm_bytes_per_s)
        bound = np.where(rate < peak, "memory", "compute")
        columns = {"intensity_flop_per_byte": intensity, "attainable_flop_per_s": rate, "bound": bound}
        frames.append(pd.DataFrame({"chip": chip.name, "dtype": dtype, **columns}))
    return pd.concat(frames, ignore_index=True)


def _pairs(chips: Iterable[str | Chip], dtypes: Iterable[str], sparse: bool) -> list[tuple[Chip, str]]:
    resolved = [load.chip(chip) for chip in listed("chips", chips)]
    wanted = listed("dtypes", dtypes, str)
    pairs = [
        (chip, dtype)
        for chip in resolved
        for dtype in wanted
        if dtype in (chip.sparse_peak_flop_per_s if sparse else chip.peak_flop_per_s)
    ]
    if not pairs:
        kind = "sparse" if sparse else "dense"
        refuse("dtypes", wanted, f"none of {[chip.id for chip in resolved]} has a {kind} peak for them")
    return pairs


def peaks(chips: Iterable[str | Chip], dtypes: Iterable[str], sparse: bool = False) -> pd.DataFrame:
    """Peak, HBM bandwidth and ridge point of each chip and dtype, with the pair that open disagreements leave.

    Returns
    -------
    table : pandas.DataFrame
        chip, dtype, year, peak_flop_per_s, hbm_bytes_per_s, ridge_flop_per_byte with `_low` and `_high`, and
        `estimate`, True where our own estimate enters.

    Examples
    --------
    >>> float(peaks(["trainium2"], ["bf16"]).ridge_flop_per_byte.iloc[0])
    230.0
    """
    import pandas as pd

    rows = []
    for chip, dtype in _pairs(chips, dtypes, sparse):
        label = f"{'sparse_' if sparse else ''}peak_flop_per_s[{dtype}]"
        peak, (peak_low, peak_high) = chip.peak(dtype, sparse), chip.range(label)
        hbm_low, hbm_high = chip.range("hbm_bytes_per_s")
        ridge = [
            float(roofline.ridge_point_flop_per_byte(p, b))
            for p, b in ((peak, chip.hbm_bytes_per_s), (peak_low, hbm_high), (peak_high, hbm_low))
        ]
        rows.append(
            {
                "chip": chip.name,
                "dtype": dtype,
                "year": chip.year,
                "peak_flop_per_s": peak,
                "hbm_bytes_per_s": chip.hbm_bytes_per_s,
                "ridge_flop_per_byte": ridge[0],
                "ridge_flop_per_byte_low": ridge[1],
                "ridge_flop_per_byte_high": ridge[2],
                "estimate": bool({label, "hbm_bytes_per_s"} & chip.estimates),
            }
        )
    return pd.DataFrame(rows)


def neuron_chips(chips: Iterable[str | Chip]) -> list[Chip]:
    """Chips of NeuronCores; raises ValueError naming one that has none.

    Examples
    --------
    >>> neuron_chips(["h100"])
    Traceback (most recent call last):
    ValueError: chips='h100': it has no NeuronCores
    """
    found = [load.chip(chip) for chip in listed("chips", chips)]
    for chip in found:
        if not chip.core:
            refuse("chips", chip.id, "it has no NeuronCores")
    return found


def logical_devices(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """HBM behind one logical device: a logical NeuronCore at each LNC that the chip allows, or the whole chip.

    Examples
    --------
    >>> logical_devices(["trainium3"]).set_index("lnc").hbm_bytes.div(2**30).to_dict()
    {1: 18.0, 2: 36.0, 8: 144.0}
    """
    import pandas as pd

    rows = []
    for chip in map(load.chip, listed("chips", chips)):
        for lnc in chip.lnc_choices:
            share = {"lnc": lnc, "devices_per_chip": int(chip.cores / lnc)}
            rows.append({"chip": chip.name, **share, "hbm_bytes": chip.hbm_bytes_per_logical_core(lnc)})
    return pd.DataFrame(rows)


def notation(chip: str | Chip, symbols: Mapping[str, str]) -> pd.DataFrame:
    """The notation table of a chapter: symbol, code name, meaning, value and source of each field, from data.

    Parameters
    ----------
    chip : str or Chip
        Whose fields.
    symbols : mapping
        Field ("hbm_bytes_per_s", "peak_flop_per_s[bf16]") to the symbol that the chapter uses.

    Examples
    --------
    >>> notation("trainium2", {"hbm_bytes_per_s": "b"})[["symbol", "value"]].to_dict("records")
    [{'symbol': 'b', 'value': '2.9 TB/s'}]
    """
    import pandas as pd

    chip = load.chip(chip)
    rows = []
    for field, symbol in symbols.items():
        quantity, low_high = load.quantities()[field.partition("[")[0]], chip.range(field)
        used = [load.facts_rows()[fact_id] for fact_id in chip.sources.get(field, ())]
        printed = [format_quantity(value, quantity.unit_si) for value in dict.fromkeys(low_high)]
        rows.append(
            {
                "symbol": symbol,
                "code name": field,
                "meaning": quantity.description,
                "value": " to ".join(printed),
                "source": "; ".join(f"{fact.source}, {fact.locator}" for fact in used),
            }
        )
    return pd.DataFrame(rows)


def disagreements(entities: Iterable[str], quantities: Iterable[str] | None = None) -> pd.DataFrame:
    """Facts about these entities on which sources disagree: what each prints, and what became of it.

    Examples
    --------
    >>> rows = disagreements(["trainium1"], ["peak_flop_per_s"])
    >>> "210" in rows[rows.status == "rejected"].value_printed.tolist()
    True
    """
    facts = load.facts()
    facts = facts[facts.entity.isin(listed("entities", entities, str))]
    if quantities is not None:
        facts = facts[facts.quantity.isin(listed("quantities", quantities, str))]
    disputed = facts[facts.reason != "no source contradicts it"]
    columns = "entity quantity qualifier value_printed unit_printed source locator status reason".split()
    return disputed[columns].sort_values(["entity", "quantity", "qualifier"], kind="stable", ignore_index=True)


def arrays(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """TensorE's BF16 rate from its array and clock, beside the printed peak of a core and its share of the chip.

    Examples
    --------
    >>> arrays(["trainium2"]).array.tolist()
    ['128 x 128']
    """
    import pandas as pd

    rows = []
    for chip in neuron_chips(chips):
        tensor = chip.core.tensor
        computed = 2 * tensor.array_rows * tensor.array_cols * tensor.clock_hz
        printed = tensor.peak_flop_per_s["bf16"]
        rows.append(
            {
                "chip": chip.name,
                "array": f"{tensor.array_rows:.0f} x {tensor.array_cols:.0f}",
                "clock_hz": tensor.clock_hz,
                "computed_flop_per_s": computed,
                "printed_flop_per_s": printed,
                "difference": computed / printed - 1,
                "chip_share_flop_per_s": chip.peak("bf16") / chip.cores,
                "fastest_8_bit_over_bf16": max(tensor.peak_flop_per_s.values()) / printed,
            }
        )
    return pd.DataFrame(rows)


def weight_formats(chip: str | Chip, precisions: Iterable[str | Precision]) -> pd.DataFrame:
    """What a storage and compute format does to decode: bytes a weight, weights a second, batch at the ridge.

    The batch at the ridge is where 2 FLOP per weight and sequence take as long as reading the weight once. A format
    whose compute dtype has no printed peak on the chip is left out.

    Examples
    --------
    >>> table = weight_formats("trainium3", ["mxfp8", "w4a8"]).set_index("precision")
    >>> round(float(table.weights_per_s["w4a8"] / table.weights_per_s["mxfp8"]), 3)
    1.941
    """
    import pandas as pd

    chip = load.chip(chip)
    rows = []
    for precision in map(load.precision, listed("precisions", precisions)):
        if precision.compute not in chip.peak_flop_per_s:
            continue
        stored = precision.storage_bytes("weights")
        ridge = roofline.ridge_point_flop_per_byte(chip.peak(precision.compute), chip.hbm_bytes_per_s)
        rows.append(
            {
                "precision": precision.name,
                "storage": precision.weights,
                "compute": precision.compute,
                "bytes_per_weight": stored,
                "weights_per_s": chip.hbm_bytes_per_s / stored,
                "speed_over_bf16": load.dtypes()["bf16"] / stored,
                "batch_at_ridge": float(ridge) * stored / 2,
            }
        )
    return pd.DataFrame(rows)


def bibliography(ids: Iterable[str]) -> pd.DataFrame:
    """The sources with these ids: publisher, title, date and address.

    Examples
    --------
    >>> bibliography(["trn1-arch", "trn1-arch"]).id.tolist()
    ['trn1-arch']
    """
    import pandas as pd

    known = load.sources()
    columns = ["id", "publisher", "title", "published", "url"]
    return pd.DataFrame([{c: getattr(known[i], c) for c in columns} for i in sorted(set(ids))], columns=columns)


def printed_totals() -> pd.DataFrame:
    """Totals of instances and UltraServers as printed, beside chips x our per-chip value in force.

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

    facts = load.facts().query("status != 'rejected' and quantity in @_TOTALS")
    facts = facts[facts.entity.isin(systems.systems())]
    rows = [_total(fact) for fact in facts.itertuples()]
    return pd.DataFrame(rows).dropna().drop_duplicates(["system", "quantity", "printed"], ignore_index=True)


def _total(fact) -> dict:
    """One printed total; a number printed for several dtypes is taken at the first that the chip has a peak for."""
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
    """Matrix multiplies whose measured share of the peak was published: source, kernel, dtype, share of peak.

    Examples
    --------
    >>> bool(measured_share_of_peak().share_of_peak.between(0, 1).all())
    True
    """
    import pandas as pd

    rows = pd.read_csv(load.DATA / "evidence" / "measured.csv", dtype=str, keep_default_na=False)
    is_matmul = rows.workload.str.contains("matmul|GEMM") & ~rows.workload.str.contains("rmsnorm")
    rows = rows[rows.kind.str.startswith("kernel") & rows.metric.str.startswith("MFU") & is_matmul]
    share = rows.value.astype(float) / 100
    columns = {"kernel": rows.workload, "instance": rows.instance, "dtype": rows.precision, "share_of_peak": share}
    return pd.DataFrame(columns | {"source": rows.source, "note": rows.note}).reset_index(drop=True)


def matmul_ceilings(chip: str | Chip, dtype: str, side: ArrayLike) -> pd.DataFrame:
    """Ceilings of a square matrix multiply spread over the cores of a chip, level by level.

    Each core multiplies its share of the rows by the whole other operand. HBM and DMA carry the traffic of blocks of
    which three fill SBUF; SBUF feeds TensorE full tiles; the link brings one operand from the neighbours. A chip
    without NeuronCores shows its HBM at perfect reuse.

    Parameters
    ----------
    chip : str or Chip
        The chip.
    dtype : str
        Compute and storage dtype.
    side : array_like
        Rows, columns and depth of the multiply, N. [-]

    Returns
    -------
    table : pandas.DataFrame
        side, level ("compute", "HBM", "SBUF", "DMA", "link"), ceiling_flop_per_s.

    Examples
    --------
    >>> table = matmul_ceilings("trainium2", "bf16", [16384.0])
    >>> table.sort_values("ceiling_flop_per_s", kind="stable").level.iloc[0]
    'compute'
    """
    import pandas as pd

    chip, n = load.chip(chip), np.atleast_1d(numbers("side", side, 1))
    work, element = 2 * n**3, chosen("dtype", dtype, load.dtypes())
    block = n
    ceilings = {"compute": np.full_like(n, chip.peak(dtype))}
    if chip.core:
        block = np.minimum(n / np.sqrt(chip.cores), np.sqrt(chip.core.sbuf_bytes / (3 * element)))
        ceilings["SBUF"] = np.full_like(n, chip.cores * _sbuf_ceiling(chip.core.tensor, dtype))
    intensity = work / ((work / block + n**2) * element)
    ceilings["HBM"] = intensity * chip.hbm_bytes_per_s
    if chip.core:
        ceilings["DMA"] = intensity * chip.cores * chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
    ceilings["link"] = work / (n**2 * element) * chip.scaleup_bytes_per_s_per_dir
    frames = [pd.DataFrame({"side": n, "level": k, "ceiling_flop_per_s": v}) for k, v in ceilings.items()]
    return pd.concat(frames, ignore_index=True)


def _sbuf_ceiling(tensor: Engine, dtype: str) -> float:
    """Rate at which SBUF's read width feeds TensorE full tiles, moving and stationary once each. [FLOP/s]"""
    widths = tensor.elements_per_cycle
    width = next(widths[key] for key in (dtype, "bf16", "input") if key in widths)
    moving, stationary = tensor.max_moving_cols, tensor.max_stationary_cols
    return 2 * stationary * moving / (moving + stationary) * width * tensor.clock_hz


def rulings(entities: Iterable[str]) -> pd.DataFrame:
    """Decisions about these entities: what is used, what is set aside or left open, and why."""
    import pandas as pd

    wanted = set(listed("entities", entities, str))
    facts = load.facts_rows()
    rows = [
        {
            "about": ruling.about,
            "used": f"{facts[ruling.use].value_printed} {facts[ruling.use].unit_printed}",
            "set aside": ", ".join(dict.fromkeys(ruling.reject.values())),
            "open": ", ".join(dict.fromkeys(ruling.open.values())),
            "why": ruling.reason,
        }
        for ruling in load.decisions()
        if ruling.use and ruling.entity in wanted and ruling.quantity in {*_TOTALS}
    ]
    return pd.DataFrame(rows)
