"""The scale-up fabric of a system: its graph of chips and switches, and what follows from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, instance, integer, refuse, shown, text
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric import build, flow
from trnmodel.fabric.flow import Flow

if TYPE_CHECKING:
    import networkx as nx

LARGEST_LP = 256  # chips; beyond it an intact torus answers in closed form
METRICS, SCOPES = ("edges", "intermediate"), ("world", "rack")


@dataclass(frozen=True, eq=False)
class Topology:
    """The fabric of one scale-up domain and what follows from it."""

    system: System
    graph: nx.Graph
    intact: bool = True

    def __post_init__(self) -> None:
        import networkx as nx

        instance("system", self.system, System, "a System")
        instance("graph", self.graph, nx.Graph, "a graph as `topology` builds it")

    @property
    def chips(self) -> list[str]:
        """Names of the chips."""
        return flow.chip_nodes(self.graph)

    def _scope(self, scope: str) -> list:
        if choice("scope", scope, SCOPES) == "world":
            return [self.graph]
        racks = dict(self.graph.nodes(data="rack"))
        return [self.graph.subgraph(n for n in self.graph if racks[n] == rack) for rack in sorted(set(racks.values()))]

    @cached_property
    def _large_torus(self) -> bool:
        return self.intact and self.system.fabric == "torus" and self.system.domain_chips > LARGEST_LP

    @cached_property
    def _hops(self) -> NDArray:
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
        choice("metric", metric, METRICS), choice("scope", scope, SCOPES)
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
        """One of the shortest paths between two chips, both ends named.

        Raises ValueError where one of them is no chip, or where failures have cut them off from each other.
        """
        import networkx as nx

        for name, chip in (("one", one), ("other", other)):
            if text(name, chip) not in self.graph:
                refuse(name, chip, f"{self.system.id} has no such chip; the first is {self.chips[0]}")
        live = nx.subgraph_view(self.graph, filter_edge=lambda u, v: self.graph[u][v]["bytes_per_s_per_dir"] > 0)
        if not nx.has_path(live, one, other):
            refuse("other", other, f"nothing joins it to {one}")
        return nx.shortest_path(live, one, other)

    def injection_by_medium(self) -> dict[str, float]:
        """Rate at which the weakest chip can send over each medium. [B/s]"""
        rates: list[Counter] = []
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
    def _bisection(self) -> tuple[float, frozenset]:
        torus = self.system.fabric == "torus"
        keys = tuple(build.AXES[: len(self.system.torus_shape)]) if torus else ("rack", "tray", "plane", "position")
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
    def _flows(self) -> dict[str, Flow]:
        return {}

    def flow(self, scope: str = "world") -> Flow:
        """Maximum concurrent uniform flow, with the media that bound it; of the slowest rack for scope "rack"."""
        graphs = self._scope(scope)
        if scope not in self._flows:
            self._flows[scope] = min(map(self._one_flow, graphs), key=lambda found: found.bytes_per_s_per_pair)
        return self._flows[scope]

    def _one_flow(self, graph: nx.Graph) -> Flow:
        if not self._large_torus:
            return flow.concurrent_flow(graph)
        return Flow(flow.torus_bytes_per_s_per_pair(self.system.torus_shape, build.link_rates(self.system)), {}, 0)

    def all_to_all_bytes_per_s_per_pair(self, scope: str = "world") -> float:
        """Largest rate that all ordered pairs of chips sustain at once, chips forwarding for each other. [B/s]

        Parameters
        ----------
        scope : str
            "world" for all pairs; "rack" for all racks at once, each within itself. [-]
        """
        return self.flow(scope).bytes_per_s_per_pair

    def oversubscription(self, scope: str = "world") -> float:
        """What a chip can inject over what all-to-all lets it deliver; 1 on a non-blocking switch. [-]

        Infinite where failures have cut chips off; NaN for a single chip.
        """
        graph = self._scope(scope)[0]
        chips = flow.chip_nodes(graph)
        injection = min(sum(d["bytes_per_s_per_dir"] for d in graph[chip].values()) for chip in chips)
        delivered = self.all_to_all_bytes_per_s_per_pair(scope) * (len(chips) - 1)
        return math.inf if delivered == 0 else injection / delivered

    @property
    def switch_counts(self) -> dict[str, int]:
        """Switch chips of the domain by the medium that they serve: "backplane" (switch trays) and "pcb"."""
        return dict(Counter(d["medium"] for _, d in self.graph.nodes(data=True) if d["kind"] == "switch"))

    def without(
        self,
        lanes: Mapping[tuple[str, str], int] | None = None,
        links: Collection[tuple[str, str]] = (),
        switches: Collection[str] = (),
        switch_trays: Collection[tuple[int, int]] = (),
    ) -> Topology:
        """The same fabric after failures; spare links take over where there are any.

        Parameters
        ----------
        lanes : mapping
            Lanes lost of each link, by its two ends. A port that lost lanes trains down to a power of two. [-]
        links : collection of (str, str)
            Links lost whole, by their two ends. [-]
        switches : collection of str
            Failed switches. [-]
        switch_trays : collection of (int, int)
            Switch trays pulled, by rack and tray. [-]

        Raises
        ------
        ValueError
            There is no such link, switch or tray, the link has not as many lanes, or the fabric is so large that only
            the intact one has an answer.
        """
        if self._large_torus:
            raise ValueError(f"{self.system.id}: failures are answered for up to {LARGEST_LP} chips")
        lost = instance("lanes", {} if lanes is None else lanes, Mapping, "a mapping from links to lanes")
        graph = self.graph.copy()
        for link in lost:
            data = graph.edges[self._link("lanes", link)]
            if math.isnan(data["lanes"]):
                refuse("lanes", link, f"the lanes of links of {self.system.id} are not published; use links")
            build.narrow(data, integer(f"lanes[{shown(link)}]", lost[link], 1, int(data["lanes"])), self.system)
        graph.remove_edges_from([self._link("links", link) for link in _listed("links", links)])
        graph.remove_nodes_from([*map(self._switch, _listed("switches", switches)), *self._in_trays(switch_trays)])
        if self.system.fabric == "planes":
            build.activate(graph, self.system)
        return Topology(self.system, graph, intact=False)

    def _link(self, name: str, ends: Any) -> tuple[str, str]:
        if not isinstance(ends, tuple | list) or list(map(type, ends)) != [str, str] or not self.graph.has_edge(*ends):
            refuse(name, ends, f"{self.system.id} has no such link")
        return ends[0], ends[1]

    def _switch(self, node: str) -> str:
        if not isinstance(node, str) or node not in self.graph or self.graph.nodes[node]["kind"] != "switch":
            refuse("switches", node, f"{self.system.id} has no such switch")
        return node

    def _in_trays(self, trays: Collection[tuple[int, int]]) -> list[str]:
        found: dict[tuple[int, int], list[str]] = {}
        for tray in _listed("switch_trays", trays):
            if not isinstance(tray, tuple | list) or len(tray) != 2:
                refuse("switch_trays", tray, "allowed are pairs of a rack and a tray, from 0")
            found[integer("switch_trays", tray[0], 0), integer("switch_trays", tray[1], 0)] = []
        for node, data in self.graph.nodes(data=True):
            if data.get("medium") == "backplane" and (data["rack"], data["tray"]) in found:
                found[data["rack"], data["tray"]].append(node)
        if not all(found.values()):
            refuse("switch_trays", [*found], f"{self.system.id} has no such tray (rack, tray), from 0")
        return [node for nodes in found.values() for node in nodes]


def _listed(name: str, items: Any) -> Collection:
    """What was given as a list of things; a text, a mapping and an array of numbers are none."""
    if isinstance(items, str | bytes | Mapping | np.ndarray) or not isinstance(items, Collection):
        refuse(name, items, "allowed is a list")
    return items


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
    spec = find_system(system)
    return Topology(spec, build.build(spec))
