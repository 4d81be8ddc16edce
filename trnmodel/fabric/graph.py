"""A system's scale-up fabric as a graph of chips and switches, checked when it is built.

Nodes carry `kind` ("chip", "switch"), `rack`, `tray`, `plane`, `position` (and `x`, `y`, `z` on a torus); edges carry
`lanes` that are wired, `medium`, and `bytes_per_s_per_dir`, which is 0 on a redundant link that idles.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np

from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric import flow

LARGEST_LP = 512  # chips; beyond it an intact torus answers in closed form
AXES = "xyz"


def letter(position: int) -> str:
    """The deep dive's letter of a chip's place on its tray."""
    return chr(ord("A") + position)


def plane_of(system: System) -> dict[str, int]:
    """Plane of each tray position: "A C|B D" is two planes."""
    groups = system.plane_positions.split("|")
    return {position: plane for plane, group in enumerate(groups) for position in group.split()}


def link_rates(system: System) -> list[float]:
    """Rate of one link of each torus axis, one way. [B/s]

    The printed sum over all neighbours of a group is shared out by `link_sum_directions` and the number of links.
    """
    links = [1 if size == 2 else 2 for size in system.torus_shape]
    if not system.link_sum_bytes_per_s:
        return [system.chip.scaleup_bytes_per_s_per_dir / sum(links)] * len(links)
    groups = ["between-instances" if axis == 2 else "in-instance" for axis in range(len(links))]
    shares = Counter()
    for group, number in zip(groups, links, strict=True):
        shares[group] += number
    return [system.link_sum_bytes_per_s[g] / (system.link_sum_directions * shares[g]) for g in groups]


def _whole(number: float, default: int = 1) -> int:
    return default if math.isnan(number) else max(math.ceil(number), 1)


def _torus(graph, system: System) -> None:
    shape, rates = system.torus_shape, link_rates(system)
    per_tray, racks = _whole(system.chips_per_tray, shape[0]), _whole(system.racks)
    for place in product(*map(range, shape)):
        rack = place[-1] * racks // shape[-1] if len(shape) == 3 else 0
        column, position = divmod(place[0], per_tray)
        tray = column * math.prod(shape[1:]) + sum(c * math.prod(shape[a + 1 :]) for a, c in enumerate(place) if a)
        axes = dict(zip(AXES, place, strict=False))
        node = "chip" + ",".join(map(str, place))
        graph.add_node(node, kind="chip", rack=rack, tray=tray, plane=0, position=letter(position), **axes)
    for node, axis in product(list(graph), range(len(shape))):
        place = [graph.nodes[node][name] for name in AXES[: len(shape)]]
        place[axis] = (place[axis] + 1) % shape[axis]
        _link(graph, system, node, "chip" + ",".join(map(str, place)), rates[axis], axis)


def _link(graph, system: System, one: str, other: str, rate: float, axis: int) -> None:
    ends = graph.nodes[one], graph.nodes[other]
    wired = {0: "pcb" if ends[0]["tray"] == ends[1]["tray"] else "backplane", 1: "backplane", 2: "aec"}
    medium = "link" if math.isnan(system.chips_per_tray) else wired[axis]
    graph.add_edge(one, other, lanes=rate / system.lane_bytes_per_s_per_dir, medium=medium, bytes_per_s_per_dir=rate)


def _star(graph, system: System) -> None:
    graph.add_node("switch", kind="switch", rack=0, tray=0, plane=0, position="", medium="switch")
    for number in range(system.domain_chips):
        graph.add_node(f"chip{number}", kind="chip", rack=0, tray=0, plane=0, position=number)
        graph.add_edge(f"chip{number}", "switch", **_plain(system.chip.scaleup_bytes_per_s_per_dir))


def _mesh(graph, system: System) -> None:
    for number in range(system.domain_chips):
        graph.add_node(f"chip{number}", kind="chip", rack=0, tray=0, plane=0, position=number)
    rate = system.chip.scaleup_bytes_per_s_per_dir / max(system.domain_chips - 1, 1)
    graph.add_edges_from((u, v, _plain(rate)) for u, v in combinations(list(graph), 2))


def _plain(rate: float) -> dict:
    return {"lanes": math.nan, "medium": "link", "bytes_per_s_per_dir": rate}


def chip_name(rack: int, tray: int, position: str) -> str:
    """Name of a chip of a rack system: rack and tray from 0, position "A", "B", ..."""
    return f"rack{rack}/tray{tray}/{position}"


def _planes(graph, system: System) -> None:
    planes, racks, trays = plane_of(system), _whole(system.racks), int(system.compute_trays_per_rack)
    for rack, tray, position in product(range(racks), range(trays), planes):
        place = {"rack": rack, "tray": tray, "plane": planes[position], "position": position}
        graph.add_node(chip_name(rack, tray, position), kind="chip", **place)
    for rack in range(racks):
        _switch_trays(graph, system, rack)
        for tray in range(trays):
            _board(graph, system, [chip_name(rack, tray, position) for position in planes])
    if racks == 2:
        positions = list(planes)
        for tray, (number, position) in product(range(trays), enumerate(positions)):
            other = positions[(number + system.cross_rack_shift) % len(positions)]
            ends = chip_name(0, tray, position), chip_name(1, tray, other)
            _wire(graph, system, *ends, system.lanes_active["cross-rack"], "cross-rack")
    _activate(graph, system)


def _wire(graph, system: System, one: str, other: str, lanes: float, medium: str) -> None:
    rate = lanes * system.lane_bytes_per_s_per_dir
    graph.add_edge(one, other, lanes=lanes, medium=medium, bytes_per_s_per_dir=rate)


def _switch_trays(graph, system: System, rack: int) -> None:
    planes = max(plane_of(system).values()) + 1
    per_tray = planes * system.switches_per_plane / system.switch_trays_per_rack
    for number, plane in product(range(int(system.switches_per_plane)), range(planes)):
        tray = int((number * planes + plane) // per_tray)
        node = f"rack{rack}/plane{plane}/switch{number}"
        place = {"rack": rack, "tray": tray, "plane": plane, "position": number}
        graph.add_node(node, kind="switch", part=system.switch_id, medium="backplane", **place)
        for chip in [n for n, d in graph.nodes(data=True) if d["kind"] == "chip" and d["rack"] == rack]:
            if graph.nodes[chip]["plane"] == plane:
                _wire(graph, system, chip, node, system.port_lanes, "backplane")


def _board(graph, system: System, chips: list[str]) -> None:
    lanes, switches = system.lanes_active["pcb"], int(system.pcb_switches_per_tray)
    place = {key: graph.nodes[chips[0]][key] for key in ("rack", "tray")}
    for number in range(switches):
        node = f"rack{place['rack']}/tray{place['tray']}/switch{number}"
        graph.add_node(node, kind="switch", part=system.pcb_switch_id, medium="pcb", plane=None, position=number, **place)
        for chip in chips:
            _wire(graph, system, chip, node, lanes / switches, "pcb")
    for one, other in combinations(chips, 2) if not switches else ():
        _wire(graph, system, one, other, lanes / (len(chips) - 1), "pcb")


def _activate(graph, system: System) -> None:
    """Let each chip use its widest backplane links up to its active lanes; the rest idle as spares."""
    for chip in flow.chip_nodes(graph):
        links = [(node, d) for node, d in graph[chip].items() if d["medium"] == "backplane"]
        left = system.lanes_active["backplane"]
        for _, data in sorted(links, key=lambda link: (-link[1]["lanes"], graph.nodes[link[0]]["position"])):
            used = min(data["lanes"], left)
            data["bytes_per_s_per_dir"] = used * system.lane_bytes_per_s_per_dir
            left -= used


def check(system: System, graph) -> None:
    """Refuse a fabric that cannot be built.

    Raises
    ------
    ValueError
        A switch has more lanes or links than its data sheet, or a chip's lanes do not sum to the printed ones.
    """
    for node, data in graph.nodes(data=True):
        if data["kind"] == "switch" and "part" in data:
            _check_switch(system, graph, node)
        elif data["kind"] == "chip" and system.lanes_active:
            _check_chip(system, graph, node)


def _check_switch(system: System, graph, node: str) -> None:
    part = system.switch if graph.nodes[node]["medium"] == "backplane" else system.pcb_switch
    lanes = sum(data["lanes"] for data in graph[node].values())
    if lanes > part.switch_lanes or graph.degree(node) > part.switch_ports:
        raise ValueError(
            f"{system.id}: {node} carries {lanes:g} lanes on {graph.degree(node)} ports; "
            f"{part.id} has {part.switch_lanes:g} lanes, {part.switch_ports:g} ports"
        )


def _check_chip(system: System, graph, node: str) -> None:
    wired, used = Counter(), Counter()
    for data in graph[node].values():
        wired[data["medium"]] += data["lanes"]
        used[data["medium"]] += data["bytes_per_s_per_dir"] / system.lane_bytes_per_s_per_dir
    for medium, lanes in system.lanes_active.items():
        allowed = lanes + system.lanes_redundant.get(medium, 0)
        if (wired[medium] or medium != "cross-rack") and (used[medium] != lanes or wired[medium] > allowed):
            raise ValueError(
                f"{system.id}: {node} uses {used[medium]:g} of {wired[medium]:g} wired {medium} lanes; "
                f"the chip has {lanes:g} active and {allowed - lanes:g} redundant"
            )


@dataclass(frozen=True, eq=False)
class Topology:
    """The fabric of one scale-up domain and what follows from it."""

    system: System
    graph: object
    intact: bool = True

    @property
    def chips(self) -> list[str]:
        """Names of the chips."""
        return flow.chip_nodes(self.graph)

    def _scope(self, scope: str) -> list:
        if scope not in ("world", "rack"):
            raise ValueError(f"scope={scope!r}: expected 'world' or 'rack'")
        if scope == "world":
            return [self.graph]
        racks = dict(self.graph.nodes(data="rack"))
        return [self.graph.subgraph(n for n in self.graph if racks[n] == rack) for rack in sorted(set(racks.values()))]

    @cached_property
    def _large_torus(self) -> bool:
        return self.intact and self.system.fabric_kind == "torus" and self.system.domain_chips > LARGEST_LP

    @cached_property
    def _hops(self):
        return flow.hop_matrix(self.graph, self.chips[:1] if self._large_torus else None)

    def hop_histogram(self, metric: str = "edges", scope: str = "world") -> dict[int, int]:
        """Unordered pairs of chips by distance.

        Parameters
        ----------
        metric : str
            "edges" of the shortest path, or "intermediate" switches and forwarding chips, one fewer. [-]
        scope : str
            "world" for all pairs, "rack" for pairs in the same rack. [-]
        """
        if metric not in ("edges", "intermediate"):
            raise ValueError(f"metric={metric!r}: expected 'edges' or 'intermediate'")
        self._scope(scope)
        racks = np.array([self.graph.nodes[chip]["rack"] for chip in self.chips])
        sources = len(self._hops)
        counted = self._hops > 0
        if scope == "rack":
            counted &= racks[:sources, None] == racks
        hops, pairs = np.unique(self._hops[counted], return_counts=True)
        less = 1 if metric == "intermediate" else 0
        weight = len(racks) / sources / 2
        return {int(h) - less if h < math.inf else h: round(n * weight) for h, n in zip(hops, pairs, strict=True)}

    @property
    def diameter(self) -> float:
        """Edges between the two chips farthest apart; 0 for a single chip. [-]"""
        return max(self.hop_histogram(), default=0)

    @property
    def mean_hops(self) -> float:
        """Mean edges over all pairs. [-]"""
        histogram = self.hop_histogram()
        return sum(h * n for h, n in histogram.items()) / max(sum(histogram.values()), 1)

    def path(self, one: str, other: str) -> list[str]:
        """One of the shortest paths between two chips, both ends named."""
        import networkx as nx

        live = nx.subgraph_view(self.graph, filter_edge=lambda u, v: self.graph[u][v]["bytes_per_s_per_dir"] > 0)
        return nx.shortest_path(live, one, other)

    def injection_by_medium(self) -> dict[str, float]:
        """Rate at which the weakest chip can send over each medium. [B/s]"""
        rates = []
        for chip in self.chips:
            rates.append(Counter())
            for data in self.graph[chip].values():
                rates[-1][data["medium"]] += data["bytes_per_s_per_dir"]
        return {medium: min(rate[medium] for rate in rates) for medium in dict.fromkeys(m for r in rates for m in r)}

    @property
    def injection_bytes_per_s_per_dir(self) -> float:
        """Rate at which the weakest chip can send over all its links. [B/s]"""
        return min(sum(d["bytes_per_s_per_dir"] for d in self.graph[chip].values()) for chip in self.chips)

    @cached_property
    def _bisection(self):
        torus = self.system.fabric_kind == "torus"
        keys = tuple(AXES[: len(self.system.torus_shape)]) if torus else ("rack", "tray", "plane", "position")
        return flow.bisection(self.graph, keys)

    @property
    def bisection_bytes_per_s_per_dir(self) -> float:
        """Capacity between two halves of the chips, one way: the least over partitions along the build. [B/s]"""
        return self._bisection[0]

    @property
    def bisection_is_exact(self) -> bool:
        """Whether the all-to-all flow proves that no balanced partition cuts less."""
        half = len(self.chips) // 2
        needed = self.all_to_all_bytes_per_s_per_pair() * half * (len(self.chips) - half)
        return bool(np.isclose(needed, self.bisection_bytes_per_s_per_dir))

    @cached_property
    def _flows(self) -> dict[str, flow.Flow]:
        return {}

    def flow(self, scope: str = "world") -> flow.Flow:
        """Maximum concurrent uniform flow, with the media that bound it; of the slowest rack for scope "rack"."""
        graphs = self._scope(scope)
        if scope not in self._flows:
            self._flows[scope] = min(map(self._one_flow, graphs), key=lambda found: found.bytes_per_s_per_pair)
        return self._flows[scope]

    def _one_flow(self, graph) -> flow.Flow:
        if not self._large_torus:
            return flow.concurrent_flow(graph)
        return flow.Flow(flow.torus_bytes_per_s_per_pair(self.system.torus_shape, link_rates(self.system)), {}, 0)

    def all_to_all_bytes_per_s_per_pair(self, scope: str = "world") -> float:
        """Largest rate that all ordered pairs of chips sustain at once, chips forwarding for each other. [B/s]

        Parameters
        ----------
        scope : str
            "world" for all pairs; "rack" for all racks at once, each within itself. [-]
        """
        return self.flow(scope).bytes_per_s_per_pair

    def oversubscription(self, scope: str = "world") -> float:
        """What a chip can inject over what all-to-all lets it deliver; 1 on a non-blocking switch. [-]"""
        graph = self._scope(scope)[0]
        chips = flow.chip_nodes(graph)
        injection = min(sum(d["bytes_per_s_per_dir"] for d in graph[chip].values()) for chip in chips)
        return injection / (self.all_to_all_bytes_per_s_per_pair(scope) * (len(chips) - 1))

    @property
    def switch_counts(self) -> dict[str, int]:
        """Switch chips of the domain by the medium that they serve: "backplane" (switch trays) and "pcb"."""
        return dict(Counter(d["medium"] for _, d in self.graph.nodes(data=True) if d["kind"] == "switch"))

    def without(
        self,
        lanes: Mapping[tuple[str, str], int] | None = None,
        switches: Iterable[str] = (),
        switch_trays: Iterable[tuple[int, int]] = (),
    ) -> Topology:
        """The same fabric after failures; spare links take over where there are any.

        Parameters
        ----------
        lanes : mapping
            Lanes lost of each link, by its two ends. A port that lost lanes trains down to a power of two. [-]
        switches : iterable of str
            Failed switches. [-]
        switch_trays : iterable of (int, int)
            Switch trays pulled, by rack and tray. [-]
        """
        graph = self.graph.copy()
        pulled = set(switch_trays)
        trays = {n for n, d in graph.nodes(data=True) if d.get("medium") == "backplane" and (d["rack"], d["tray"]) in pulled}
        for node in {*switches, *trays}:
            if node not in graph or graph.nodes[node]["kind"] != "switch":
                raise ValueError(f"switches={node!r}: {self.system.id} has no such switch")
            graph.remove_node(node)
        for (one, other), lost in (lanes or {}).items():
            if not graph.has_edge(one, other):
                raise ValueError(f"lanes={one, other!r}: {self.system.id} has no such link")
            _narrow(graph[one][other], lost, self.system)
        if self.system.fabric_kind == "planes":
            _activate(graph, self.system)
        return Topology(self.system, graph, intact=False)


def _narrow(data: dict, lost: float, system: System) -> None:
    """Take lanes from a link: whole ports stay, the port that lost some keeps the next power of two."""
    port = data["lanes"] if math.isnan(system.port_lanes) else system.port_lanes
    ports, rest = divmod(data["lanes"] - lost, port)
    data["lanes"] = max(ports * port + (2 ** math.floor(math.log2(rest)) if rest >= 1 else 0), 0)
    data["bytes_per_s_per_dir"] = data["lanes"] * system.lane_bytes_per_s_per_dir


_BUILDERS = {"torus": _torus, "switch": _star, "mesh": _mesh, "planes": _planes}


def topology(system: str | System) -> Topology:
    """The scale-up fabric of one domain of a system, checked against its switches and lanes.

    Parameters
    ----------
    system : str or System
        "trn3-nl72x2-pcie160", "trn2-ultraserver", ... [-]

    Returns
    -------
    topology : Topology
        `.graph` and its metrics.

    Raises
    ------
    ValueError
        Unknown system, or a fabric that its switches and lanes do not allow.

    Examples
    --------
    >>> rack_pair = topology("trn3-nl72x2-pcie160")
    >>> sum(rack_pair.switch_counts.values()), max(rack_pair.hop_histogram("intermediate", "rack"))
    (368, 3)
    """
    import networkx as nx

    spec, graph = find_system(system), nx.Graph()
    if spec.fabric_kind == "single":
        graph.add_node("chip0", kind="chip", rack=0, tray=0, plane=0, position="A")
    else:
        _BUILDERS[spec.fabric_kind](graph, spec)
    check(spec, graph)
    return Topology(spec, graph)
