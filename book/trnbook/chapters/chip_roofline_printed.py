"""Compare chips with other people's figures: printed totals of instances, and measured shares of the peak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.catalog import load, systems
from trnmodel.evidence.rows import MEASURED, read_table

if TYPE_CHECKING:
    import pandas as pd

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
