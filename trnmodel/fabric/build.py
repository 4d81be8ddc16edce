"""Builds the graph of a scale-up fabric from a system's composition, and refuses what cannot be wired.

Nodes carry `kind` ("chip", "switch"), `rack`, `tray`, `plane`, `position` (and `x`, `y`, `z` on a torus); edges carry
`lanes` that are wired, `medium`, and `bytes_per_s_per_dir`, which is 0 on a redundant link that idles. Racks, trays and
planes count from 0, positions on a tray are the deep dive's letters.

`build` makes the graph at unit rates: its `bytes_per_s_per_dir` count lanes of switched racks, and links elsewhere, and
`rate` says which of the system's `unit_rates` they are multiples of. `dressed` gives them these rates.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import refuse
from trnmodel.catalog.systems import AXES, MEDIA, System

if TYPE_CHECKING:
    import networkx as nx

LINK = {"lanes": math.nan, "medium": "link", "rate": 0, "bytes_per_s_per_dir": 1.0}  # one, of lanes not counted
LARGEST_TORUS = 2**14  # chips; an intact torus answers in closed form
LARGEST_WORK = 2**21  # links times chips; what a flow between all pairs takes


def letter(position: int) -> str:
    """Return the deep dive's letter of a chip's place on its tray."""
    return chr(ord("A") + position)


def plane_of(system: System) -> dict[str, int]:
    """Return the plane of each tray position: "A C|B D" is two planes."""
    groups = system.plane_positions.split("|")
    return {position: plane for plane, group in enumerate(groups) for position in group.split()}


def link_rates(system: System) -> list[Any]:
    """Return the rate of one link of each torus axis, one way, in B/s.

    A chip's sum over its neighbours, of the instance and of the UltraServer apart, is shared out evenly.
    """
    links = [1 if size == 2 else 2 for size in system.torus_shape]
    sums = system.scaleup_bytes_per_s_per_dir
    groups = ["ultraserver" if axis == 2 else "instance" for axis in range(len(links))] if "instance" in sums else None
    groups = groups or [""] * len(links)
    shares: Counter[str] = Counter()
    for group, number in zip(groups, links, strict=True):
        shares[group] += number
    return [sums[group] / shares[group] for group in groups]


def unit_rates(system: System) -> list[Any]:
    """Return the rates of which links are multiples, one way, in B/s.

    They are those of a lane, of a link of each torus axis, or of a link of a chip. Raises ValueError where the rate is
    not published.
    """
    if system.fabric == "planes":
        rates: list[Any] = [system.lane_bytes_per_s_per_dir]
    elif system.fabric == "torus":
        rates = link_rates(system)
    else:
        links = max(system.domain_chips - 1, 1) if system.fabric == "mesh" else 1
        rates = [system.chip.scaleup_bytes_per_s_per_dir / links] if system.fabric != "single" else [1.0]
    if np.any([np.any(np.isnan(rate)) for rate in rates]):
        lacking = f"{system.chip.id},scaleup_bytes_per_s_per_dir"
        raise ValueError(f"{system.id}: no scale-up rate of its links is published, data/facts has no row of {lacking}")
    return rates


def dressed(graph: nx.Graph, system: System) -> nx.Graph:
    """Return the graph with the rates of a system on its links, and on a torus the lanes that make up the rate."""
    rates, rated = unit_rates(system), graph.copy()
    for *_, data in rated.edges(data=True):
        data["bytes_per_s_per_dir"] = data["bytes_per_s_per_dir"] * rates[data.pop("rate")]
        if system.fabric == "torus":
            data["lanes"] = data["bytes_per_s_per_dir"] / system.lane_bytes_per_s_per_dir
    return rated


def _whole(number: float, default: int) -> int:
    return default if math.isnan(number) else max(math.ceil(number), 1)


def _torus(graph: nx.Graph, system: System) -> None:
    shape = system.torus_shape
    per_tray, racks = _whole(system.chips_per_tray, shape[0]), _whole(system.racks, 1)
    for place in product(*map(range, shape)):
        rack = place[-1] * racks // shape[-1] if len(shape) == 3 else 0
        column, position = divmod(place[0], per_tray)
        tray = column * math.prod(shape[1:]) + sum(c * math.prod(shape[a + 1 :]) for a, c in enumerate(place) if a)
        axes = dict(zip(AXES, place, strict=False))
        node = "chip" + ",".join(map(str, place))
        graph.add_node(node, kind="chip", rack=rack, tray=tray, plane=0, position=letter(position), **axes)
    for node, axis in product(list(graph), range(len(shape))):
        far = [graph.nodes[node][name] for name in AXES[: len(shape)]]
        far[axis] = (far[axis] + 1) % shape[axis]
        _link(graph, system, node, "chip" + ",".join(map(str, far)), axis)


def _link(graph: nx.Graph, system: System, one: str, other: str, axis: int) -> None:
    ends = graph.nodes[one], graph.nodes[other]
    wired = {0: "pcb" if ends[0]["tray"] == ends[1]["tray"] else "backplane", 1: "backplane", 2: "aec"}
    medium = "link" if math.isnan(system.chips_per_tray) else wired[axis]
    graph.add_edge(one, other, **LINK | {"medium": medium, "rate": axis})


def _star(graph: nx.Graph, system: System) -> None:
    graph.add_node("switch", kind="switch", rack=0, tray=0, plane=0, position="", medium="switch")
    for number in range(system.domain_chips):
        graph.add_node(f"chip{number}", kind="chip", rack=0, tray=0, plane=0, position=number)
        graph.add_edge(f"chip{number}", "switch", **LINK)


def _mesh(graph: nx.Graph, system: System) -> None:
    for number in range(system.domain_chips):
        graph.add_node(f"chip{number}", kind="chip", rack=0, tray=0, plane=0, position=number)
    graph.add_edges_from(combinations(list(graph), 2), **LINK)


def chip_name(rack: int, tray: int, position: str) -> str:
    """Return the name of a chip of a rack system: rack and tray count from 0, positions are "A", "B", ... ."""
    return f"rack{rack}/tray{tray}/{position}"


def _planes(graph: nx.Graph, system: System) -> None:
    planes, racks, trays = plane_of(system), _whole(system.racks, 1), int(system.compute_trays_per_rack)
    for rack, tray, position in product(range(racks), range(trays), planes):
        place = {"rack": rack, "tray": tray, "plane": planes[position], "position": position}
        graph.add_node(chip_name(rack, tray, position), kind="chip", **place)
    for rack in range(racks):
        _switch_trays(graph, system, rack)
        for tray in range(trays):
            _board(graph, system, {"rack": rack, "tray": tray, "plane": 0}, list(planes))
    if racks == 2:
        positions = list(planes)
        for tray, (number, position) in product(range(trays), enumerate(positions)):
            other = positions[(number + system.cross_rack_shift) % len(positions)]
            ends = chip_name(0, tray, position), chip_name(1, tray, other)
            _wire(graph, system, *ends, system.scaleup_lanes["cross-rack"], "cross-rack")
    activate(graph, system)


def _wire(graph: nx.Graph, system: System, one: str, other: str, lanes: float, medium: str) -> None:
    graph.add_edge(one, other, lanes=lanes, medium=medium, rate=0, bytes_per_s_per_dir=lanes)


def _switch_trays(graph: nx.Graph, system: System, rack: int) -> None:
    assert system.switch is not None  # a fabric of planes has one
    planes = max(plane_of(system).values()) + 1
    per_tray = planes * system.switches_per_plane / system.switch_trays_per_rack
    chips = [(n, d["plane"]) for n, d in graph.nodes(data=True) if d["kind"] == "chip" and d["rack"] == rack]
    for number, plane in product(range(int(system.switches_per_plane)), range(planes)):
        tray = int((number * planes + plane) / per_tray)
        node = f"rack{rack}/plane{plane}/switch{number}"
        place = {"rack": rack, "tray": tray, "plane": plane, "position": number}
        graph.add_node(node, kind="switch", part=system.switch.id, medium="backplane", **place)
        for chip, own in chips:
            if own == plane:
                _wire(graph, system, chip, node, system.port_lanes, "backplane")


def _board(graph: nx.Graph, system: System, place: dict[str, int], positions: list[str]) -> None:
    lanes, switches = system.scaleup_lanes["pcb"], int(system.pcb_switches_per_tray)
    chips = [chip_name(place["rack"], place["tray"], position) for position in positions]
    for number in range(switches):
        node = f"rack{place['rack']}/tray{place['tray']}/switch{number}"
        assert system.pcb_switch is not None  # a board with switches has one
        graph.add_node(node, kind="switch", part=system.pcb_switch.id, medium="pcb", position=number, **place)
        for chip in chips:
            _wire(graph, system, chip, node, lanes / switches, "pcb")
    for one, other in combinations(chips, 2) if not switches else ():
        _wire(graph, system, one, other, lanes / (len(chips) - 1), "pcb")


def activate(graph: nx.Graph, system: System) -> None:
    """Let the best switches of each plane carry a chip's active backplane lanes; the others idle as spares.

    A plane changes over as one: a switch behind a broken link is retired for all chips while a whole one is to spare.
    """
    planes: dict = {}
    for node, data in graph.nodes(data=True):
        if data["kind"] == "switch" and data["medium"] == "backplane":
            planes.setdefault((data["rack"], data["plane"]), []).append(node)
    in_use = int(system.scaleup_lanes["backplane"] / system.port_lanes)
    for switches in planes.values():
        ranked = sorted((-graph.degree(node, "lanes"), graph.nodes[node]["position"], node) for node in switches)
        for number, (_, _, node) in enumerate(ranked):
            for data in graph[node].values():
                data["bytes_per_s_per_dir"] = data["lanes"] if number < in_use else 0.0


def check(system: System, graph: nx.Graph) -> None:
    """Refuse a fabric that cannot be built.

    Raises
    ------
    ValueError
        A switch has more lanes or links than its data sheet, a chip's lanes do not sum to the printed ones, or the
        chips are not as many as the domain has.
    """
    chips = sum(kind == "chip" for _, kind in graph.nodes(data="kind"))
    if chips != system.domain_chips:
        raise ValueError(f"{system.id}: {chips} chips in trays and planes, domain_chips={system.domain_chips}")
    for node, data in graph.nodes(data=True):
        if data["kind"] == "switch" and "part" in data:
            _check_switch(system, graph, node)
        elif data["kind"] == "chip" and system.fabric == "planes":
            _check_chip(system, graph, node)


def _check_switch(system: System, graph: nx.Graph, node: str) -> None:
    part = system.switch if graph.nodes[node]["medium"] == "backplane" else system.pcb_switch
    assert part is not None  # a node has a part where the system names one
    lanes = sum(data["lanes"] for data in graph[node].values())
    if lanes > part.switch_lanes or graph.degree(node) > part.switch_ports:
        raise ValueError(
            f"{system.id}: {node} carries {lanes:g} lanes on {graph.degree(node)} ports; "
            f"{part.id} has {part.switch_lanes:g} lanes, {part.switch_ports:g} ports"
        )


def _check_chip(system: System, graph: nx.Graph, node: str) -> None:
    wired: dict[str, float] = defaultdict(float)
    used: dict[str, float] = defaultdict(float)
    for data in graph[node].values():
        wired[data["medium"]] += data["lanes"]
        used[data["medium"]] += data["bytes_per_s_per_dir"]
    for medium in MEDIA:
        lanes = system.scaleup_lanes[medium]
        allowed = lanes + (system.scaleup_lanes_redundant if medium == "backplane" else 0)
        if (wired[medium] or medium != "cross-rack") and (used[medium] != lanes or wired[medium] > allowed):
            raise ValueError(
                f"{system.id}: {node} uses {used[medium]:g} of {wired[medium]:g} wired {medium} lanes; "
                f"the chip has {lanes:g} active and {allowed - lanes:g} redundant"
            )


def _check_size(system: System) -> None:
    """Refuse a fabric whose graph or flow would take minutes."""
    chips, board = system.domain_chips, max(system.pcb_switches_per_tray, len(plane_of(system)))
    if system.fabric == "torus":
        most = float(LARGEST_TORUS)
    else:
        links = {"mesh": (chips - 1) / 2, "planes": system.switches_per_plane + board + 1}.get(system.fabric, 1)
        most = math.sqrt(LARGEST_WORK / max(links, 1)) if system.fabric != "single" else 1
    if chips > most:
        refuse(f"{system.id}: domain_chips", chips, f"allowed are up to {most:.0f} for fabric={system.fabric!r}")


def narrow(data: dict, lanes: float, lost: float, system: System) -> None:
    """Take lanes from a link: whole ports stay, the port that lost some keeps the next power of two."""
    port = lanes if math.isnan(system.port_lanes) else system.port_lanes
    ports, rest = divmod(lanes - lost, port)
    left = ports * port + (2 ** math.floor(math.log2(rest)) if rest >= 1 else 0)
    data["lanes"], data["bytes_per_s_per_dir"] = left, data["bytes_per_s_per_dir"] * left / lanes


_BUILDERS = {"torus": _torus, "switch": _star, "mesh": _mesh, "planes": _planes}


def build(system: System) -> nx.Graph:
    """Build and check the graph of one scale-up domain at unit rates."""
    import networkx as nx

    _check_size(system)
    graph = nx.Graph()
    if system.fabric == "single":
        graph.add_node("chip0", kind="chip", rack=0, tray=0, plane=0, position="A")
    else:
        _BUILDERS[system.fabric](graph, system)
    check(system, graph)
    return graph
