"""The scale-up fabric of a system: its graph of chips and switches, and what follows from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric import build, flow

LARGEST_LP = 512  # chips; beyond it an intact torus answers in closed form


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
        return self.intact and self.system.fabric == "torus" and self.system.domain_chips > LARGEST_LP

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
        return flow.Flow(flow.torus_bytes_per_s_per_pair(self.system.torus_shape, build.link_rates(self.system)), {}, 0)

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
        links: Iterable[tuple[str, str]] = (),
        switches: Iterable[str] = (),
        switch_trays: Iterable[tuple[int, int]] = (),
    ) -> Topology:
        """The same fabric after failures; spare links take over where there are any.

        Parameters
        ----------
        lanes : mapping
            Lanes lost of each link, by its two ends. A port that lost lanes trains down to a power of two. [-]
        links : iterable of (str, str)
            Links lost whole, by their two ends. [-]
        switches : iterable of str
            Failed switches. [-]
        switch_trays : iterable of (int, int)
            Switch trays pulled, by rack and tray. [-]

        Raises
        ------
        ValueError
            There is no such link, switch or tray.
        """
        graph = self.graph.copy()
        for link in [*(lanes or {}), *links]:
            if not graph.has_edge(*link):
                raise ValueError(f"lanes or links={link!r}: {self.system.id} has no such link")
        for link, lost in (lanes or {}).items():
            build.narrow(graph.edges[link], lost, self.system)
        graph.remove_edges_from(links)
        graph.remove_nodes_from([*map(self._switch, switches), *self._in_trays(switch_trays)])
        if self.system.fabric == "planes":
            build.activate(graph, self.system)
        return Topology(self.system, graph, intact=False)

    def _switch(self, node: str) -> str:
        if node not in self.graph or self.graph.nodes[node]["kind"] != "switch":
            raise ValueError(f"switches={node!r}: {self.system.id} has no such switch")
        return node

    def _in_trays(self, trays: Iterable[tuple[int, int]]) -> list[str]:
        found = {tray: [] for tray in trays}
        for node, data in self.graph.nodes(data=True):
            if data.get("medium") == "backplane" and (data["rack"], data["tray"]) in found:
                found[data["rack"], data["tray"]].append(node)
        if not all(found.values()):
            raise ValueError(f"switch_trays={[*found]!r}: {self.system.id} has no such tray (rack, tray), from 0")
        return [node for nodes in found.values() for node in nodes]


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
