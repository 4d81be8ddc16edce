"""Compare the scale-out network with other people's figures: sizes of clusters, measured transfers, fibre."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnmodel.catalog import load, systems
from trnmodel.evidence.claims import claims_by_id
from trnmodel.evidence.rows import MEASURED, read_table
from trnmodel.fabric.scaleout import FIBRE
from trnmodel.formulas import transit

if TYPE_CHECKING:
    import pandas as pd


SIZES = (  # claims of sizes of networks, and of their ratios
    *("NC113", "NC114", "NC116", "NC117", "NC118"),
    *("NC119", "NC120", "NC122", "NC123", "NC124", "NC125"),
)


def printed_sizes() -> pd.DataFrame:
    """Return every claim of the deep dive on the size of a cluster, with what `clos` gives and the verdict.

    Returns
    -------
    table : pandas.DataFrame
        id, claim, computed, printed, verdict, source, locator, why.

    Examples
    --------
    >>> set(printed_sizes().verdict)
    {'agrees'}
    """
    table = (
        claims_by_id(SIZES).to_frame().rename(columns={"value_computed_low": "computed", "value_printed": "printed"})
    )
    return table[["id", "claim", "computed", "printed", "verdict", "source", "locator", "why"]]


def fibre_check() -> tuple[float, float]:
    """Return the delay in s of a kilometre of fibre: from the group index, and as printed."""
    kilometre = load.units()["km"].factor
    computed = float(transit.fibre_delay_s(kilometre, load.value(FIBRE, "group_index")))
    return computed, load.value(FIBRE, "fibre_delay_s_per_m") * kilometre


def measured_share() -> pd.DataFrame:
    """Compare measured transfers over EFA with the printed rate: what, rates in B/s, share, source.

    Examples
    --------
    >>> bool(measured_share().share.between(0, 1).all())
    True
    """
    import pandas as pd

    rows = read_table(MEASURED)
    rows = rows[(rows.phase == "network p2p") & (rows.metric == "bandwidth")]
    transfers = []
    for row in rows.itertuples():
        sending = float(row.n_chips)
        rate = load.parse_number(row.value)[0] * load.units()[row.unit].factor
        printed = sending * systems.system(row.instance).scaleout_bytes_per_s_per_dir
        transfers.append((row.workload, sending, rate, printed, rate / printed, row.source))
    columns = ["what", "chips", "measured_bytes_per_s", "printed_bytes_per_s", "share", "source"]
    return pd.DataFrame(transfers, columns=columns)
