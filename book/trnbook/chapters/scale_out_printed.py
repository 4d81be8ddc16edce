"""Compare the scale-out network with other people's figures: sizes of clusters, measured transfers, fibre."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from trnmodel.catalog import load, systems
from trnmodel.evidence.rows import MEASURED, read_table
from trnmodel.fabric.scaleout import FIBRE, giga, tera
from trnmodel.formulas import clos as network
from trnmodel.formulas import transit

if TYPE_CHECKING:
    import pandas as pd


class PrintedNetwork(msgspec.Struct, frozen=True):
    """A line of `data/evidence/printed_networks.csv`: a size of a network, or its ratio to another's, as printed."""

    id: str
    quantity: str
    printed: str
    switch_bits_per_s: float
    tor_bits_per_s: float
    port_bits_per_s: float
    layers: int
    against_switch_bits_per_s: str
    against_port_bits_per_s: str
    source: str
    locator: str
    note: str


def printed_sizes() -> pd.DataFrame:
    """Compare every cluster size that the deep dive prints with that of `clos`.

    Returns
    -------
    table : pandas.DataFrame
        quantity, network, computed, printed, verdict, source, locator, note.

    Examples
    --------
    >>> set(printed_sizes().verdict)
    {'agrees'}
    """
    import pandas as pd

    rows = load.read_csv(load.DATA / "evidence" / "printed_networks.csv", PrintedNetwork)
    return pd.DataFrame([_printed_size(row) for row in rows])


def _printed_size(row: PrintedNetwork) -> dict:
    computed, label = _sized(row, row.switch_bits_per_s, row.port_bits_per_s)
    if row.against_switch_bits_per_s:
        other, more = _sized(row, float(row.against_switch_bits_per_s), float(row.against_port_bits_per_s))
        computed, label = computed / other, f"{label} over {more}"
    return {
        "quantity": row.quantity.replace("_", " ").removeprefix("max "),
        "network": label,
        "computed": computed,
        "printed": row.printed,
        "verdict": "agrees" if computed == load.parse_number(row.printed)[0] else "disagrees",
        "source": row.source,
        "locator": row.locator,
        "note": row.note,
    }


def _sized(row: PrintedNetwork, switch_bits_per_s: float, port_bits_per_s: float) -> tuple[float, str]:
    """Return a size of a network of such switches and ports, and the network's name."""
    ask: dict[str, Any] = {"layers": row.layers, "tor_bits_per_s": row.tor_bits_per_s}
    sized = network.clos(switch_bits_per_s=switch_bits_per_s, port_bits_per_s=port_bits_per_s, **ask)
    label = f"{tera(switch_bits_per_s)}, {giga(port_bits_per_s)}, {row.layers} layers"
    return float(getattr(sized, row.quantity)), label


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
