"""Drawing data of a fabric: positions of chips and switches, links, labels and the deep dive's paths."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.catalog.systems import System
from trnmodel.fabric.graph import Topology, topology
from trnmodel.fabric.what_if import paths

if TYPE_CHECKING:
    import pandas as pd


def drawing(system: str | System) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a fabric as nodes and links on a plane, for `charts.topology`.

    Two switched racks are mirrored: the switches of each plane outside, trays as rows, board switches inside, where the
    cables to the other rack run. A torus shows one square for each place on its third axis; anything else is a circle.

    Returns
    -------
    nodes, links : pandas.DataFrame
        nodes: node, kind, x, y, links (in words); links: one, other, x, y, x2, y2, group (the medium, and the plane).

    Examples
    --------
    >>> nodes, links = drawing("trn2.48xlarge")
    >>> len(nodes), len(links), nodes.links[0]
    (16, 32, '1 pcb x32; 3 backplane x32')
    """
    import pandas as pd

    net = topology(system)
    places = _places(net)
    nodes = [
        {"node": node, "kind": data.get("medium", data["kind"]), **places[node], "links": _describe_links(net, node)}
        for node, data in net.graph.nodes(data=True)
    ]
    links = [
        {
            "one": one,
            "other": other,
            **places[one],
            **{f"{axis}2": value for axis, value in places[other].items()},
            "group": _group(net, one, other, data["medium"]),
        }
        for one, other, data in net.graph.edges(data=True)
    ]
    columns = ["one", "other", "x", "y", "x2", "y2", "group"]
    return pd.DataFrame(nodes), pd.DataFrame(links, columns=columns).sort_values("group", kind="stable")


def labels(system: str | System) -> pd.DataFrame:
    """Return labels for racks, trays and planes of two switched racks; no rows for other fabrics.

    Returns
    -------
    table : pandas.DataFrame
        text, x, y, angle in degrees.

    Examples
    --------
    >>> labels("trn3-nl32x2-pcie160").text.tolist()[:3], len(labels("trn2.48xlarge"))
    (['Rack 1', 'Rack 2', 'tray 1'], 0)
    """
    import pandas as pd

    spec, rows = topology(system).system, list[tuple]()
    if spec.fabric == "planes":
        trays, middle, planes = int(spec.compute_trays_per_rack), _middle(spec), len(spec.plane_positions.split("|"))
        sides = range(int(spec.racks))
        mirrored = [0.0, 2 * middle]
        rows += [(f"Rack {side + 1}", abs(mirrored[side] - 0.4 * middle), trays + 0.3, 0) for side in sides]
        rows += [(f"tray {tray + 1}", middle, tray + 0.5, 0) for tray in range(trays)]
        rows += [
            (
                f"plane {plane + 1}",
                mirrored[side] + (1.2 if side else -1.2),
                (trays - 1) * (plane + 0.55) / planes,
                90 if side else 270,
            )
            for side in sides
            for plane in range(planes)
        ]
    return pd.DataFrame(rows, columns=["text", "x", "y", "angle"])


def paths_drawn(system: str | System) -> pd.DataFrame:
    """Return the links on the deep dive's paths A, B and C as `drawing` places them; none for a torus.

    Returns
    -------
    table : pandas.DataFrame
        path (its name, and the switches on it in words), x, y, x2, y2.

    Examples
    --------
    >>> paths_drawn("trn3-nl32x2-pcie160").path.unique().tolist()
    ['A: over 1 switch', 'B: over 2 switches and chips', 'C: over 3 switches and chips']
    """
    import pandas as pd

    net, rows = topology(system), list[dict]()
    places = _places(net)
    for name, nodes in paths(net).items():
        ends = [(places[one], places[other]) for one, other in pairwise(nodes)]
        between = len(nodes) - 2
        things = "switches and chips" if between > 1 else "switch"  # no link joins two switches
        label = f"{name}: over {between} {things}"
        rows += [{"path": label, **one, "x2": other["x"], "y2": other["y"]} for one, other in ends]
    return pd.DataFrame(rows, columns=["path", "x", "y", "x2", "y2"])


def _describe_links(net: Topology, node: str) -> str:
    """Describe the links of a node by medium and width."""
    counted: Counter = Counter()
    for data in net.graph[node].values():
        width = "" if math.isnan(data["lanes"]) else f" x{data['lanes']:g}"
        counted[f"{data['medium']}{width}{'' if data['bytes_per_s_per_dir'] else ', spare'}"] += 1
    return "; ".join(f"{count} {link}" for link, count in counted.items()) or "none"


def _group(net: Topology, one: str, other: str, medium: str) -> str:
    switches = [net.graph.nodes[end] for end in (one, other) if net.graph.nodes[end]["kind"] == "switch"]
    if medium != "backplane" or not switches:
        return medium
    return f"backplane, plane {switches[0]['plane'] + 1}"


def _places(net: Topology) -> dict[str, dict[str, float]]:
    """Return the position of each node."""
    nodes = dict(net.graph.nodes(data=True))
    if net.system.fabric == "torus" and len(net.system.torus_shape) > 1:
        places = {name: _in_torus(net.system.torus_shape[0], data) for name, data in nodes.items()}
    elif net.system.fabric == "planes":
        places = {name: _in_rack(net.system, data) for name, data in nodes.items()}
    else:
        chips = [name for name, data in nodes.items() if data["kind"] == "chip"]
        turns = np.linspace(0, 2 * np.pi, len(chips), endpoint=False)
        places = dict.fromkeys(nodes, (0.0, 0.0)) | {
            name: (np.sin(turn), np.cos(turn)) for name, turn in zip(chips, turns, strict=True)
        }
    return {name: {"x": round(float(x), 3), "y": round(float(y), 3)} for name, (x, y) in places.items()}


def _in_torus(width: int, data: dict) -> tuple[float, float]:
    """Place a chip on its square, shifted so that the links that close a ring do not hide the others."""
    nudge = [0.0, 0.3, 0.15, 0.45]
    square = (width + 1.5) * data.get("z", 0)
    x = square + data["x"] + nudge[data["y"] % 4]
    return x, data["y"] + nudge[data["x"] % 4] + nudge[data.get("z", 0) % 4] / 3


def _in_rack(system: System, data: dict) -> tuple[float, float]:
    """Place rack switches outside, a tray's chips in a slanting row, board switches inside; mirror rack 2."""
    chips, trays = int(system.chips_per_tray), system.compute_trays_per_rack
    if data["kind"] == "chip":
        number = ord(data["position"]) - ord("A")
        x, y = 8.0 + 1.2 * number, data["tray"] + 0.7 * (number + 0.5) / chips - 0.35
    elif data["medium"] == "pcb":
        x, y = 8.0 + 1.2 * chips + 0.3 * data["position"], data["tray"]
    else:
        planes = len(system.plane_positions.split("|"))
        slots = planes * (system.switches_per_plane + 1)
        slot = data["plane"] * (system.switches_per_plane + 1) + data["position"] + 1
        x, y = 0.0, (trays - 1) * slot / slots
    return (x if data["rack"] == 0 else 2 * _middle(system) - x), y


def _middle(system: System) -> float:
    """Return the position halfway between two racks."""
    return 8.0 + 1.2 * int(system.chips_per_tray) + 0.3 * system.pcb_switches_per_tray + 2.0
