"""Racks: what is in them, how they are drawn, and how their fabrics compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from trnmodel.arguments import listed
from trnmodel.catalog import load
from trnmodel.catalog.systems import System, systems
from trnmodel.catalog.systems import system as find_system
from trnmodel.chapters.common import LANE_MAP
from trnmodel.fabric import what_if
from trnmodel.fabric.graph import Topology, topology
from trnmodel.units import format_quantity


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
    rows = []
    for net in map(topology, listed("systems", systems)):
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


def by_medium(net: Topology) -> str:
    """What a chip sends into the fabric, and over which media, in words.

    Examples
    --------
    >>> by_medium(topology("trn3-nl72x2-aws-lanes"))
    '704 GB/s (320 GB/s backplane, 256 GB/s pcb, 128 GB/s cross-rack)'
    """
    media = [f"{format_quantity(rate, 'B/s')} {medium}" for medium, rate in net.injection_by_medium().items()]
    return f"{format_quantity(net.injection_bytes_per_s_per_dir, 'B/s')} ({', '.join(media) or 'it has no neighbour'})"


def mapped(system: str | System) -> list[System]:
    """The rack by AWS's own lane map, where it is one of the same chips and size that the deep dive counts otherwise.

    Examples
    --------
    >>> [spec.id for spec in mapped("trn3-nl72x2-pcie160")], mapped("trn3-nl32x2-pcie160")
    (['trn3-nl72x2-aws-lanes'], [])
    """
    spec, other = find_system(system), find_system(LANE_MAP)
    same = (spec.fabric, spec.chip.id, spec.domain_chips) == (other.fabric, other.chip.id, other.domain_chips)
    return [other] if same and spec.scaleup_lanes != other.scaleup_lanes else []


def names() -> pd.DataFrame:
    """What AWS, its suppliers and the runtime call each Trainium and Inferentia system: one row a system.

    Examples
    --------
    >>> names().set_index("system").codename["trn3-nl72x2-pcie160"]
    'Teton3 MAX'
    """
    known = load.names_table()
    known = known[known.id.isin(systems()) & known.id.str.startswith(("trn", "inf"))]
    wide = known.groupby(["id", "kind"], sort=False).alias.agg("; ".join).unstack(fill_value="")
    wide = wide.rename(columns={"aws": "AWS", "nl": "by topology"}).reset_index(names="system")
    return wide[["system", "AWS", "by topology", "codename", "instance"]].rename_axis(columns=None)


def verdicts(systems: Iterable[str | System]) -> pd.DataFrame:
    """Every part that the text counts, beside what the graph counts, over several systems.

    Examples
    --------
    >>> set(verdicts(["trn3-nl72x2-pcie160"]).verdict) <= {"agrees", "disagrees"}
    True
    """
    tables = [what_if.parts_table(name).assign(system=find_system(name).id) for name in listed("systems", systems)]
    table = pd.concat(tables, ignore_index=True)
    shown = ["system", "part", "counted", "how", "printed", "verdict", "locator", "note"]
    printed = table[table.verdict != "not printed"][shown]
    return printed.drop_duplicates(["part", "counted", "printed", "locator"], ignore_index=True)


def drawing(system: str | System) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A fabric as nodes and links on a plane, for `charts.topology`.

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
    net = topology(system)
    places = _places(net)
    nodes = [
        {"node": node, "kind": data.get("medium", data["kind"]), **places[node], "links": _links_in_words(net, node)}
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


def _links_in_words(net: Topology, node: str) -> str:
    """Links of a node by medium and width."""
    counted: Counter = Counter()
    for data in net.graph[node].values():
        width = "" if math.isnan(data["lanes"]) else f" x{data['lanes']:g}"
        counted[f"{data['medium']}{width}{'' if data['bytes_per_s_per_dir'] else ', spare'}"] += 1
    return "; ".join(f"{count} {words}" for words, count in counted.items()) or "none"


def _group(net: Topology, one: str, other: str, medium: str) -> str:
    switches = [net.graph.nodes[end] for end in (one, other) if net.graph.nodes[end]["kind"] == "switch"]
    if medium != "backplane" or not switches or net.system.fabric != "planes":
        return medium
    return f"backplane, plane {switches[0]['plane'] + 1}"


def _places(net: Topology) -> dict[str, dict[str, float]]:
    """Where each node is drawn."""
    nodes = dict(net.graph.nodes(data=True))
    if net.system.fabric == "torus" and len(net.system.torus_shape) > 1:
        found = {name: _in_torus(net.system.torus_shape[0], data) for name, data in nodes.items()}
    elif net.system.fabric == "planes":
        found = {name: _in_rack(net.system, data) for name, data in nodes.items()}
    else:
        chips = [name for name, data in nodes.items() if data["kind"] == "chip"]
        turns = np.linspace(0, 2 * np.pi, len(chips), endpoint=False)
        found = dict.fromkeys(nodes, (0.0, 0.0)) | {
            name: (np.sin(turn), np.cos(turn)) for name, turn in zip(chips, turns, strict=True)
        }
    return {name: {"x": round(float(x), 3), "y": round(float(y), 3)} for name, (x, y) in found.items()}


def _in_torus(width: int, data: dict) -> tuple[float, float]:
    """A chip on its square, nudged along both axes so that the links that close a ring do not hide the others."""
    nudge = [0.0, 0.3, 0.15, 0.45]
    square = (width + 1.5) * data.get("z", 0)
    x = square + data["x"] + nudge[data["y"] % 4]
    return x, data["y"] + nudge[data["x"] % 4] + nudge[data.get("z", 0) % 4] / 3


def _in_rack(system: System, data: dict) -> tuple[float, float]:
    """Rack switches outside, chips of a tray in a slanting row, board switches inside; the second rack is mirrored."""
    chips, trays = int(system.chips_per_tray), system.compute_trays_per_rack
    middle = 8.0 + 1.2 * chips + 0.3 * system.pcb_switches_per_tray + 2.0
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
    return (x if data["rack"] == 0 else 2 * middle - x), y
