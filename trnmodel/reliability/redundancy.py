"""Effect of one failed part of a scale-up fabric, from its graph, and the spare parts that replace it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same, choice
from trnmodel.catalog.fleets import Fleet
from trnmodel.catalog.specs import published
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.fabric.graph import Topology, topology
from trnmodel.fabric.what_if import failures
from trnmodel.fabric.wiring import LARGEST_LP, Wiring
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd

SWAPS = ("hot", "drain")


class Guard(NamedTuple):
    """Parts of a domain's fabric that fail by themselves: in each of `groups`, `spares` of its `parts` may be out.

    A part is a lane, a link, or a switch with its links; `lanes` counts lanes of a backplane, `cables` the links that
    leave the rack or the instance. `left` is the rate left to the slowest chip with one more part out.
    """

    name: str
    groups: int
    parts: int
    spares: int
    lanes: float
    cables: int
    switches: int
    left: float

    def failures_per_s(self, fleet: Fleet) -> NDArray:
        """Failures of one part [1/s]."""
        wires = self.lanes * fleet.lane_failures_per_s + self.cables * fleet.cable_failures_per_s
        return np.asarray(wires + self.switches * fleet.switch_failures_per_s)


def rate_left(whole: Topology, broken: Topology) -> float:
    """Return the rate of the slowest chip after a failure, over that before it.

    Rates are injection, and all-to-all in rack and domain. Chips that both topologies have count; the rate is 0 where a
    failure cuts one off.

    Examples
    --------
    >>> net = topology("trn3-nl32x2-pcie160")  # four trays of two planes: no rack switch is to spare
    >>> rate_left(net, net.without(switch_trays=[(0, 0)]))
    0.75
    """

    def rates(net: Topology) -> list[Any]:
        sent = net.injection_bytes_per_s_per_dir
        return [sent, *(net.all_to_all_bytes_per_s_per_pair(scope) for scope in ("rack", "world"))]

    ratios = [np.ravel(after / before)[0] for before, after in zip(rates(whole), rates(broken), strict=True)]
    return float(np.clip(min(ratios), 0.0, 1.0).round(9))


def guards(system: str | System) -> tuple[Guard, ...]:
    """Return the parts of a scale-up fabric that fail by themselves: switches behind a backplane, its links, cables.

    They are read from the graph; of a rack that is drawn as one switch, from its links per chip, each of which goes to
    another switch. Every rack has the same rates of its links, cables and switches. Links on a board are left out,
    because those of the fleets that were counted are in the rate of a chip, and the deep dive (L281) puts their
    failures far below those of a backplane. Failures of links and switches of a server, and of a torus that is too
    large for a flow, are counted with its chips.

    Examples
    --------
    >>> for name in ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "gb200-nvl72", "trn3-nl32x2-torus"):
    ...     print([(g.name, g.groups, g.parts, g.spares, round(g.left, 3)) for g in guards(name)])
    [('rack switch', 4, 8, 0, 0.938), ('cross-rack link', 1, 32, 0, 0.889)]
    [('rack switch', 8, 10, 2, 0.944), ('cross-rack link', 1, 72, 0, 0.889)]
    [('rack switch', 1, 18, 0, 0.944)]
    [('backplane link', 1, 96, 0, 0.8), ('aec link', 1, 64, 0, 0.9)]
    """
    return _guards(Same(read_system(system)))


@lru_cache(maxsize=64)
def _guards(key: Same[System]) -> tuple[Guard, ...]:
    spec = key.it
    if spec.fabric == "switch" and spec.backplane_links_per_chip:
        return (_drawn_as_one(spec),)
    if spec.fabric not in ("planes", "torus") or spec.domain_chips > LARGEST_LP:
        return ()
    net = topology(spec)
    return tuple((_rack_switches(net) if spec.fabric == "planes" else []) + _cables(net))


def _drawn_as_one(spec: System) -> Guard:
    """Return the switches of a rack that is drawn as one: each chip has one link to each of them, and none is spare."""
    racks = int(published(spec.racks, 1.0))
    links = int(spec.backplane_links_per_chip)
    lanes = spec.domain_chips / racks * published(spec.backplane_lanes_per_link, 1.0)
    return Guard("rack switch", racks, links, 0, lanes, 0, 1, 1 - 1 / links)


def _rack_switches(net: Topology) -> list[Guard]:
    """Return the switches of a rack, of which those beyond the lanes in use are spares.

    Where redundant lanes end on the switches of the active ones, a lane of each link may fail and the switch stays.
    """
    spec, nodes = net.system, net.graph.nodes(data=True)
    inner = [n for n, d in nodes if d["kind"] == "switch" and d["medium"] == "backplane"]
    plane = [n for n in inner if (net.graph.nodes[n]["rack"], net.graph.nodes[n]["plane"]) == (0, 0)]
    spares = len(plane) - int(spec.scaleup_lanes["backplane"] // spec.port_lanes)
    left = rate_left(net, net.without(switches=plane[: spares + 1]))
    planes, links = len(inner) // len(plane), net.graph.degree(plane[0])
    if spec.redundant_lane_ends == "other switches":
        return [Guard("rack switch", planes, len(plane), spares, links * spec.port_lanes, 0, 1, left)]
    chip, more = next(iter(net.graph[plane[0]])), int(spec.redundant_lanes_per_link)
    one = rate_left(net, net.without(links=[(chip, plane[0])]))
    lanes = int(spec.port_lanes) + more
    return [
        Guard("rack switch", planes, len(plane), spares, 0, 0, 1, left),
        Guard("backplane lane", len(inner) * links, lanes, more, 1, 0, 0, one),
    ]


def _cables(net: Topology) -> list[Guard]:
    """Return the links between two chips that leave their board: each is the only one of its kind."""
    wires: dict[str, list[tuple[str, str]]] = {}
    for one, other, data in net.graph.edges(data=True):
        if data["medium"] not in ("pcb", "link") and {net.graph.nodes[end]["kind"] for end in (one, other)} == {"chip"}:
            wires.setdefault(data["medium"], []).append((one, other))
    rows = []
    for medium, links in wires.items():
        inside, left = medium == "backplane", rate_left(net, net.without(links=links[:1]))
        lanes = float(np.max(net.graph.edges[links[0]]["lanes"])) if inside else 0.0
        rows.append(Guard(f"{medium} link", 1, len(links), 0, lanes, int(not inside), 0, left))
    return rows


def rack_alternatives(system: str | System) -> dict[str, System]:
    """Return a switched rack as it is drawn and with its redundant lanes put to other uses, by name.

    A rack whose redundant lanes end nowhere may end them on the switches that it has, if these have the lanes, or on
    more switch trays. A rack that has switches for them may go without.

    Examples
    --------
    >>> list(rack_alternatives("trn3-nl32x2-pcie160"))
    ['as drawn', 'redundant lanes on its 4 switch trays', '5 switch trays']
    >>> list(rack_alternatives("trn3-nl72x2-pcie160")), list(rack_alternatives("gb200-nvl72"))
    (['as drawn', '8 switch trays'], ['as drawn'])
    """
    spec = read_system(system)
    found, pair = {"as drawn": spec}, lane_pair(spec)
    if pair is None:
        return found
    trays = int(spec.switch_trays_per_rack)
    if trays == pair[0].switch_trays_per_rack and spec.redundant_lane_ends == "other switches":
        try:
            ends = replace(spec, redundant_lane_ends="active switches")
        except ValueError:  # the switches have no lanes for them
            pass
        else:
            found[f"redundant lanes on its {trays} switch trays"] = ends
    for other in pair:
        if other.switch_trays_per_rack != trays:
            found[f"{other.switch_trays_per_rack:g} switch trays"] = other
    return found


def lane_pair(spec: System) -> tuple[System, System] | None:
    """Return a rack with switches for its active lanes alone, and with those for redundant lanes too.

    None where the rack has no redundant lanes.

    Examples
    --------
    >>> import trnmodel as tm
    >>> [one.switches_per_plane for one in lane_pair(tm.system("trn3-nl72x2-pcie160"))]
    [8.0, 10.0]
    """
    if spec.fabric != "planes" or not spec.scaleup_lanes_redundant or not spec.switch_trays_per_rack:
        return None
    lanes = spec.scaleup_lanes["backplane"]
    a_tray = spec.port_lanes * spec.switches_per_plane / spec.switch_trays_per_rack
    trays = [lanes / a_tray, (lanes + spec.scaleup_lanes_redundant) / a_tray]
    if trays != [int(n) for n in trays]:
        return None
    bare, spared = (spec if n == spec.switch_trays_per_rack else spec.with_switch_trays(int(n)) for n in trays)
    return bare, spared


def failure_domain_chips(system: str | System, swap: str = "hot") -> float:
    """Return the chips that are out together when one is repaired: its tray where trays are swapped, else its rack.

    On a torus the rings of an instance, along the first two axes, stand still without the chips of one tray.

    Examples
    --------
    >>> names = "trn3-nl32x2-torus", "trn3-nl72x2-pcie160"
    >>> [(failure_domain_chips(name), failure_domain_chips(name, "drain")) for name in names]
    [(16.0, 32.0), (4.0, 72.0)]
    """
    spec, racks = read_system(system), published(read_system(system).racks, 1.0)
    if choice("swap", swap, SWAPS) == "drain":
        return float(spec.domain_chips / racks)
    if spec.fabric == "torus":
        return float(np.prod(spec.torus_shape[:2]))
    return float(published(spec.chips_per_tray, spec.domain_chips / racks))


def idled(system: str | System) -> pd.DataFrame:
    """Return what one failed part of a domain takes out of use, from the graph.

    Returns
    -------
    table : pandas.DataFrame
        system, failure, left (rate of the slowest working chip over that before the failure), covered (spares take
        over and nothing is lost), chips (of a domain), idle_hot (chips that stand still while the part is swapped),
        idle_drain (while its rack is drained).

    Examples
    --------
    >>> table = idled("trn3-nl72x2-pcie160").set_index("failure")
    >>> table.loc[["one pcb switch", "one switch tray"], ["left", "idle_hot", "idle_drain"]].values.tolist()
    [[0.944444444, 4.0, 72.0], [1.0, 0.0, 72.0]]
    >>> round(float(table.left["one chip"]), 3)  # of its partner in the other rack: 128 of 144 lanes
    0.889
    """
    net = topology(system)
    graph, chips, spec = net.wiring.graph.copy(), len(net.chips), net.system
    graph.remove_node(net.chips[0])
    broken = {"one chip": Topology(spec, Wiring(graph), intact=False)} if graph else {}
    links = spec.backplane_links_per_chip if spec.fabric == "switch" else 0.0
    lefts = {name: rate_left(net, after) if chips > 1 else 0.0 for name, after in broken.items()}
    if links:  # a chip goes on with the others
        lefts |= dict.fromkeys(("one backplane link", "one backplane switch"), 1 - 1 / links)
    else:
        lefts |= {name: rate_left(net, after) if chips > 1 else 0.0 for name, after in failures(net).items()}
    rows = []
    for name, left in lefts.items():
        stops = name == "one chip" or left == 0
        idle = {f"idle_{swap}": failure_domain_chips(spec, swap) for swap in SWAPS}
        idle["idle_hot"] *= stops or name == "one pcb switch"  # it sits on the tray
        rows.append(
            {"system": spec.id, "failure": name, "left": left, "covered": left == 1 and not stops}
            | {"chips": chips}
            | idle
        )
    return tidy(rows)
