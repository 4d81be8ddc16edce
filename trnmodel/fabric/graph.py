"""The scale-up fabric of a system: its graph of chips and switches, and what follows from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, instance, integer, refuse, shown, text
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as find_system
from trnmodel.declared import SYSTEM, declare
from trnmodel.fabric import build, flow
from trnmodel.fabric.flow import Flow
from trnmodel.fabric.wiring import LARGEST_LP, SCOPES, Wiring, cut, injection, pair, solved, wiring

METRICS = ("edges", "intermediate")
ROUTINGS = ("free", "even", "whole")


@dataclass(frozen=True, eq=False)
class Topology:
    """The fabric of one scale-up domain and what follows from it. Rates are arrays where those of the system are."""

    system: System
    wiring: Wiring
    intact: bool = True

    def __post_init__(self) -> None:
        instance("system", self.system, System, "a System")
        instance("wiring", self.wiring, Wiring, "what `topology` builds")
        build.unit_rates(self.system)

    @cached_property
    def graph(self) -> Any:
        """The networkx graph of chips and switches, with lanes, medium and rate of each link."""
        return build.dressed(self.wiring.graph, self.system)

    @property
    def chips(self) -> list[str]:
        """Names of the chips."""
        return self.wiring.chips

    @cached_property
    def _large_torus(self) -> bool:
        return self.intact and self.wiring.large

    @cached_property
    def _rates(self) -> tuple[NDArray, NDArray, NDArray]:
        """The first rate, the ratios of all to it (distinct ones as rows), and the row of each point."""
        rates = np.broadcast_arrays(*build.unit_rates(self.system))
        points = np.stack([rate / rates[0] for rate in rates], axis=-1).reshape(-1, len(rates))
        same = np.all(points == points[0])
        ratios, row = (points[:1], 0) if same else np.unique(points, axis=0, return_inverse=True)
        return rates[0], ratios, np.broadcast_to(np.reshape(row, () if same else rates[0].shape), rates[0].shape)

    def _scaled(self, answer: Callable[..., float], *more: Any) -> Any:
        """Scale an answer at unit rates to the system's: one answer for all rates that stand in one ratio."""
        unit, ratios, row = self._rates
        at_unit = np.array([answer(self.wiring, tuple(map(float, ratio)), *more) for ratio in ratios])
        scaled = at_unit[row] * unit
        return scaled if scaled.ndim else float(scaled)

    def hop_histogram(self, metric: str = "edges", scope: str = "world") -> dict[int, int]:
        """Return the unordered pairs of chips by distance.

        Parameters
        ----------
        metric : str
            "edges" of the shortest path, or "intermediate" switches and forwarding chips, one fewer. [-]
        scope : str
            "world" for all pairs, "rack" for pairs in the same rack. [-]
        """
        choice("metric", metric, METRICS), choice("scope", scope, SCOPES)
        racks, apart = self.wiring.racks, self.wiring.hops
        sources = len(apart)
        counted = apart > 0
        if scope == "rack":
            counted &= racks[:sources, None] == racks
        hops, pairs = np.unique(apart[counted], return_counts=True)
        less = 1 if metric == "intermediate" else 0
        weight = len(racks) / sources / 2
        return {int(h) - less if h < math.inf else h: round(n * weight) for h, n in zip(hops, pairs, strict=True)}

    @property
    def diameter(self) -> float:
        """Edges between the two chips farthest apart; 0 for a single chip."""
        return max(self.hop_histogram(), default=0)

    @property
    def mean_hops(self) -> float:
        """Mean edges over all pairs."""
        histogram = self.hop_histogram()
        return sum(h * n for h, n in histogram.items()) / max(sum(histogram.values()), 1)

    def path(self, one: str, other: str) -> list[str]:
        """Return one of the shortest paths between two chips, with both ends.

        Raises ValueError where one of them is no chip, or where failures have cut them off from each other.
        """
        import networkx as nx

        for name, chip in (("one", one), ("other", other)):
            if text(name, chip) not in self.graph:
                refuse(name, chip, f"{self.system.id} has no such chip; the first is {self.chips[0]}")
        live = nx.subgraph_view(self.graph, filter_edge=self._carries)
        if not nx.has_path(live, one, other):
            refuse("other", other, f"nothing joins it to {one}")
        return nx.shortest_path(live, one, other)

    def _carries(self, one: str, other: str) -> bool:
        """Tell whether a link carries anything; spare links that idle do not."""
        return self.graph[one][other]["bytes_per_s_per_dir"] > 0

    def injection_by_medium(self) -> dict[str, Any]:
        """Return the rate at which the weakest chip can send over each medium, in B/s."""
        return {medium: self._scaled(injection, "world", medium) for medium in self.wiring.media}

    @property
    def injection_bytes_per_s_per_dir(self) -> Any:
        """Rate at which the weakest chip can send over all its links [B/s]."""
        return self._scaled(injection, "world", "")

    @property
    def bisection_bytes_per_s_per_dir(self) -> Any:
        """Capacity between two halves of the chips, one way: the least over partitions along the build [B/s]."""
        torus = self.system.fabric == "torus"
        keys = tuple(build.AXES[: len(self.system.torus_shape)]) if torus else ("rack", "tray", "plane", "position")
        return self._scaled(cut, keys)

    @property
    def bisection_is_exact(self) -> bool:
        """Whether the all-to-all flow proves that no balanced partition cuts less."""
        half = len(self.chips) // 2
        needed = self.all_to_all_bytes_per_s_per_pair() * half * (len(self.chips) - half)
        return bool(np.all(np.isclose(needed, self.bisection_bytes_per_s_per_dir)))

    def flow(self, scope: str = "world") -> Flow:
        """Return the maximum concurrent uniform flow, with the media that bound it; of the slowest rack for "rack"."""
        choice("scope", scope, SCOPES)
        ratios = self._rates[1]
        if self._large_torus:
            return flow.Flow(self.all_to_all_bytes_per_s_per_pair(scope), {}, 0)
        if len(ratios) > 1:
            rates = dict(self.system.scaleup_bytes_per_s_per_dir)
            refuse(f"{self.system.id}: scaleup_bytes_per_s_per_dir", rates, "a flow has one ratio between its rates")
        at_unit = solved(self.wiring, tuple(map(float, ratios[0])), scope)
        return replace(at_unit, bytes_per_s_per_pair=self.all_to_all_bytes_per_s_per_pair(scope))

    def all_to_all_bytes_per_s_per_pair(self, scope: str = "world", routing: str = "free") -> Any:
        """Return the rate in B/s that all ordered pairs of chips sustain at once, chips forwarding for each other.

        Parameters
        ----------
        scope : str
            "world" for all pairs; "rack" for all racks at once, each within itself. [-]
        routing : str
            "free" splits pairs over any paths, the upper bound of every routing (`flow.concurrent_flow`); "even" over
            their shortest ones, hop by hop (`flow.even_split`), which is the bound itself on an intact torus; "whole"
            is the most that one path a pair may give (`flow.whole_paths`), and the bound on one of over 256 chips. [-]
        """
        choice("scope", scope, SCOPES), choice("routing", routing, ROUTINGS)
        whole_torus = self._whole_torus and scope == "world" and routing != "whole"
        if self._large_torus or whole_torus:
            rate = flow.torus_bytes_per_s_per_pair(self.system.torus_shape, build.link_rates(self.system))
            return rate if rate.ndim else float(rate)
        return self._scaled(pair, scope, routing)

    @property
    def _whole_torus(self) -> bool:
        return self.intact and self.system.fabric == "torus"

    def oversubscription(self, scope: str = "world") -> Any:
        """Return what a chip can inject over what all-to-all lets it deliver; 1 on a non-blocking switch.

        All lanes count, those too that reach one neighbour alone; `compare.tiers` takes each tier for itself. Infinite
        where failures have cut chips off; NaN for a single chip.
        """
        chips = len(flow.chip_nodes(self.wiring.scope(choice("scope", scope, SCOPES))[0]))
        delivered = self.all_to_all_bytes_per_s_per_pair(scope) * (chips - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.divide(self._scaled(injection, scope, ""), delivered)
        ratio = np.where(np.equal(delivered, 0), math.inf, ratio)
        return ratio if ratio.ndim else float(ratio)

    def __repr__(self) -> str:
        switches = ", ".join(f"{count:,} {medium} switches" for medium, count in sorted(self.switch_counts.items()))
        return f"Topology of {self.system.id}: {', '.join(filter(None, (f'{len(self.chips):,} chips', switches)))}"

    @property
    def switch_counts(self) -> Counter[str]:
        """Switch chips of the domain by the medium that they serve: "backplane" (switch trays) and "pcb"."""
        return Counter(d["medium"] for _, d in self.wiring.graph.nodes(data=True) if d["kind"] == "switch")

    def without(
        self,
        lanes: Mapping[tuple[str, str], int] | None = None,
        links: Collection[tuple[str, str]] = (),
        switches: Collection[str] = (),
        switch_trays: Collection[tuple[int, int]] = (),
    ) -> Topology:
        """Return the same fabric after failures; spare links take over where there are any.

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
        graph = self.wiring.graph.copy()
        for link in lost:
            ends = self._link("lanes", link)
            wired = self.graph.edges[ends]["lanes"]
            if np.ndim(wired) or math.isnan(wired):
                refuse("lanes", link, f"the lanes of links of {self.system.id} are not published; use links")
            count = integer(f"lanes[{shown(link)}]", lost[link], 1, int(wired))
            build.narrow(graph.edges[ends], float(wired), count, self.system)
        graph.remove_edges_from([self._link("links", link) for link in _listed("links", links)])
        graph.remove_nodes_from([*map(self._switch, _listed("switches", switches)), *self._in_trays(switch_trays)])
        if self.system.fabric == "planes":
            build.activate(graph, self.system)
        return Topology(self.system, Wiring(graph), intact=False)

    def _link(self, name: str, ends: Any) -> tuple[str, str]:
        if not isinstance(ends, tuple | list) or list(map(type, ends)) != [str, str] or not self.graph.has_edge(*ends):
            refuse(name, ends, f"{self.system.id} has no such link")
        return ends[0], ends[1]

    def _switch(self, node: str) -> str:
        if not isinstance(node, str) or node not in self.graph or self.graph.nodes[node]["kind"] != "switch":
            refuse("switches", node, f"{self.system.id} has no such switch")
        return node

    def _in_trays(self, trays: Collection[tuple[int, int]]) -> list[str]:
        """Return the switches in trays by rack and tray; raises ValueError for a tray that is not there."""
        switches: dict[tuple[int, int], list[str]] = {}
        for tray in _listed("switch_trays", trays):
            if not isinstance(tray, tuple | list) or len(tray) != 2:
                refuse("switch_trays", tray, "allowed are pairs of a rack and a tray, from 0")
            switches[integer("switch_trays", tray[0], 0), integer("switch_trays", tray[1], 0)] = []
        for node, data in self.graph.nodes(data=True):
            if data.get("medium") == "backplane" and (data["rack"], data["tray"]) in switches:
                switches[data["rack"], data["tray"]].append(node)
        if not all(switches.values()):
            refuse("switch_trays", [*switches], f"{self.system.id} has no such tray (rack, tray), from 0")
        return [node for nodes in switches.values() for node in nodes]


def _listed(name: str, items: Any) -> Collection:
    """Return a list of things as it is; a text, a mapping and an array of numbers are refused."""
    if isinstance(items, str | bytes | Mapping | np.ndarray) or not isinstance(items, Collection):
        refuse(name, items, "allowed is a list")
    return items


@declare(system=SYSTEM)
def topology(system: str | System) -> Topology:
    """Return the scale-up fabric of one domain of a system, checked against its switches and lanes.

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
    return Topology(spec, wiring(spec))
