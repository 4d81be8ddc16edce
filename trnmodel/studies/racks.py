"""Racks: what is in them, how they are drawn, and how their fabrics compare."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric import audit
from trnmodel.fabric.graph import Topology, topology

if TYPE_CHECKING:
    import pandas as pd


def fabrics(systems: Iterable[str | System]) -> pd.DataFrame:
    """Fabrics side by side: chips, switches, hops, injection, bisection and all-to-all capacity.

    Returns
    -------
    table : pandas.DataFrame
        One row a system; rates one way, all-to-all per ordered pair of chips, hops counted between the chips.

    Examples
    --------
    >>> fabrics(["trn3-nl72x2-pcie160"]).set_index("system").switches.to_dict()
    {'trn3-nl72x2-pcie160': 368}
    """
    import pandas as pd

    rows = []
    for net in map(topology, systems):
        hops = net.hop_histogram("intermediate")
        rows.append(
            {
                "system": net.system.id,
                "chips": net.system.domain_chips,
                "racks": net.system.racks,
                "switches": sum(net.switch_counts.values()),
                "most_between": max(hops, default=0),
                "mean_between": sum(h * n for h, n in hops.items()) / max(sum(hops.values()), 1),
                "injection_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
                "bisection_bytes_per_s_per_dir": net.bisection_bytes_per_s_per_dir,
                "all_to_all_bytes_per_s": net.all_to_all_bytes_per_s_per_pair(),
            }
        )
    return pd.DataFrame(rows)


def hops(systems: Iterable[str | System]) -> pd.DataFrame:
    """Share of chip pairs by what lies between them: system, between (switches and forwarding chips), share.

    Examples
    --------
    >>> hops(["trn3-nl32x2-pcie160"]).between.tolist()
    [0, 1, 2, 3]
    """
    import pandas as pd

    frames = []
    for net in map(topology, systems):
        histogram = net.hop_histogram("intermediate")
        share = np.array(list(histogram.values())) / sum(histogram.values())
        frames.append(pd.DataFrame({"system": net.system.id, "between": list(histogram), "share": share}))
    return pd.concat(frames, ignore_index=True)


def verdicts(systems: Iterable[str | System]) -> pd.DataFrame:
    """Every part that the text counts, beside what the graph counts, over several systems.

    Examples
    --------
    >>> set(verdicts(["trn3-nl72x2-pcie160"]).verdict) <= {"agrees", "disagrees"}
    True
    """
    import pandas as pd

    tables = [audit.parts_table(name).assign(system=find_system(name).id) for name in systems]
    table = pd.concat(tables, ignore_index=True)
    shown = ["system", "part", "counted", "how", "printed", "verdict", "locator", "note"]
    printed = table[table.verdict != "not printed"][shown]
    return printed.drop_duplicates(["part", "counted", "printed", "locator"], ignore_index=True)


def failures(system: str | System) -> pd.DataFrame:
    """What one lost part leaves of each capacity: a row a failure, a column a capacity, 1 where nothing is lost.

    Examples
    --------
    >>> table = failures("trn3-nl72x2-pcie160").set_index("failure")
    >>> float(table.all_to_all["one cross-rack link"]) == 71 / 72
    True
    """
    table = audit.failure_effects(system)
    rates = table[table.metric.str.endswith(("_per_s", "_per_dir", "_per_pair"))]
    short = rates.metric.str.replace(r"_bytes_per_s.*", "", regex=True)
    wide = rates.assign(metric=short).pivot_table(index="failure", columns="metric", values="ratio", sort=False)
    return wide.reset_index().rename_axis(columns=None)


def readings(system: str | System) -> pd.DataFrame:
    """Other readings of the text, and which metrics they change by how much.

    Examples
    --------
    >>> readings("trn3-nl72x2-pcie160").columns.tolist()
    ['assumption', 'about', 'chosen', 'reason', 'changes']
    """
    table = audit.assumption_effects(system)
    ratio = (table.alternative / table.value).map("{:.3g}".format)
    words = table.metric.str.replace("_bytes_per_s", "").str.replace("_", " ") + " x " + ratio
    moved = table.assign(changes=words.where(table.depends, ""))
    grouped = moved.groupby(["assumption", "about", "chosen", "reason"], sort=False).changes
    return grouped.agg(lambda parts: "; ".join(filter(None, parts)) or "nothing").reset_index()


def drawing(system: str | System) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A fabric as nodes and links on a plane, for `charts.topology`.

    Switched racks stand side by side: trays are rows, chips to the left in their rows, the switches of each plane in
    a column. A torus shows one square for each place on its third axis; anything else is a circle around its switches.

    Returns
    -------
    nodes, links : pandas.DataFrame
        nodes: node, kind, x, y, where; links: one, other, x, y, x2, y2, medium, lanes, bytes_per_s_per_dir.

    Examples
    --------
    >>> nodes, links = drawing("trn2.48xlarge")
    >>> len(nodes), len(links)
    (16, 32)
    """
    import pandas as pd

    net = topology(system)
    places = _places(net)
    nodes = [
        {"node": node, "kind": data.get("medium", data["kind"]), "x": places[node][0], "y": places[node][1]}
        for node, data in net.graph.nodes(data=True)
    ]
    links = [
        {
            "one": one,
            "other": other,
            **dict(zip(("x", "y", "x2", "y2"), (*places[one], *places[other]), strict=True)),
            "medium": data["medium"],
            "lanes": data.get("lanes", math.nan),
            "bytes_per_s_per_dir": data["bytes_per_s_per_dir"],
        }
        for one, other, data in net.graph.edges(data=True)
    ]
    columns = ["one", "other", "x", "y", "x2", "y2", "medium", "lanes", "bytes_per_s_per_dir"]
    return pd.DataFrame(nodes), pd.DataFrame(links, columns=columns)


def _places(net: Topology) -> dict[str, tuple[float, float]]:
    nodes = dict(net.graph.nodes(data=True))
    if net.system.fabric == "torus" and len(net.system.torus_shape) > 1:
        return {name: _in_torus(net.system.torus_shape[0], data) for name, data in nodes.items()}
    if net.system.fabric == "planes":
        return {name: _in_rack(net.system, data) for name, data in nodes.items()}
    chips = [name for name, data in nodes.items() if data["kind"] == "chip"]
    angles = np.linspace(0, 2 * np.pi, len(chips), endpoint=False)
    circle = {name: (round(np.sin(a), 3), round(np.cos(a), 3)) for name, a in zip(chips, angles, strict=True)}
    return {name: circle.get(name, (0.0, 0.0)) for name in nodes}


def _in_torus(width: int, data: dict) -> tuple[float, float]:
    """A chip on its square, nudged along both axes so that the links that close a ring do not hide the others."""
    nudge = [0.0, 0.3, 0.15, 0.45]
    square = (width + 1.5) * data.get("z", 0)
    return (
        round(square + data["x"] + nudge[data["y"] % 4], 2),
        round(data["y"] + nudge[data["x"] % 4] + nudge[data.get("z", 0) % 4] / 3, 2),
    )


def _in_rack(system: System, data: dict) -> tuple[float, float]:
    """Chips in columns 0 to 3 of their tray's row, board switches beyond them, each plane's switches in a column."""
    left = 14.0 * data["rack"]
    if data["kind"] == "chip":
        return left + ord(data["position"]) - ord("A"), float(data["tray"])
    if data["medium"] == "pcb":
        return round(left + 4.2 + 0.2 * data["position"], 2), float(data["tray"])
    spread = system.compute_trays_per_rack / max(system.switches_per_plane, 1)
    return left + 7.5 + 1.5 * data["plane"], round(spread * (data["position"] + 0.5) - 0.5, 2)
