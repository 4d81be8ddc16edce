"""A fabric at unit rates: what follows from its graph alone, stored once for all machines of one layout.

Every link carries a number of lanes, or is one link of its torus axis or chip; what a lane or such a link carries is a
rate of the system, and may be an array. Flows, cuts and hops are solved here, at rates that are numbers, and scaled by
the caller: a changed rate solves nothing again.

What a step asks of the layouts of the catalog stands in `data/systems/wirings.csv`, which `python -m trnlab.wirings`
writes: their graphs are built where somebody asks for more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, number, refuse
from trnmodel.catalog import load
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.systems import System
from trnmodel.fabric import build, flow

LAYOUTS, SOLVED = 64, 256  # of which graphs and answers are stored
LARGEST_LP = 256  # chips; beyond it an intact torus answers in closed form
LAYOUT = """fabric domain_chips torus_shape racks compute_trays_per_rack chips_per_tray scaleup_lanes
    scaleup_lanes_redundant port_lanes plane_positions switch_trays_per_rack switches_per_plane switch
    pcb_switches_per_tray pcb_switch cross_rack_shift""".split()
SCOPES = ("world", "rack")
PLACES = ("position", "tray", "rack")  # what tells the chips of a switched rack apart
Route = tuple[int, int]  # chips that send on the way, and switches
Ratios = tuple[float, ...]
Question = tuple[str, str, str, Ratios]  # what is asked, its scope, a medium or a routing, and ratios of the rates


class Answer(msgspec.Struct, frozen=True):
    """A row of `data/systems/wirings.csv`: what the graph of a layout answers, as JSON."""

    layout: str
    systems: str
    question: str
    scope: str
    of: str
    ratios: str
    value: str


def table_path() -> Any:
    """Return the path of the table of answers."""
    return load.DATA / "systems" / "wirings.csv"


@cache
def answers() -> dict[str, dict[Question, Any]]:
    """Return the answers that `data/` has of each layout, by the layout's digest."""
    table: dict[str, dict[Question, Any]] = {}
    for row in load.read_csv(table_path(), Answer):
        question = row.question, row.scope, row.of, tuple(map(float, row.ratios.split()))
        table.setdefault(row.layout, {})[question] = _frozen(json.loads(row.value))
    return table


def _frozen(value: Any) -> Any:
    """Return lists in lists as tuples in tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True, eq=False)
class Wiring:
    """A graph at unit rates, and what is so whatever the rates are.

    The graph is given, or that of a system, which is built when it is needed; `known` are answers that `data/` has.
    """

    source: Any
    large: bool = False
    known: Mapping[Question, Any] = field(default_factory=dict)
    digest: str = ""

    @cached_property
    def graph(self) -> Any:
        """The networkx graph of chips and switches."""
        return build.build(self.source) if isinstance(self.source, System) else self.source

    @cached_property
    def media(self) -> tuple[str, ...]:
        """Media of the links of chips, in the order in which they are wired."""
        known: tuple[str, ...] | None = self.known.get(("media", "world", "", ()))
        return known or tuple(dict.fromkeys(d["medium"] for chip in self.chips for d in self.graph[chip].values()))

    @cached_property
    def chips(self) -> list[str]:
        """Names of the chips."""
        return flow.chip_nodes(self.graph)

    @cached_property
    def hops(self) -> NDArray:
        """Edges between chips; from the first alone on a large torus, of which all chips are alike."""
        return flow.hop_matrix(self.graph, self.chips[:1] if self.large else None)

    @cached_property
    def racks(self) -> NDArray:
        """Rack of each chip."""
        return np.array([self.graph.nodes[chip]["rack"] for chip in self.chips])

    @cached_property
    def path_switches(self) -> NDArray:
        """Fewest switches from chip to chip by how many chips send: `flow.path_switches`."""
        return flow.path_switches(self.graph)

    def _routes(self, pairs: NDArray) -> tuple[tuple[Route, ...], ...]:
        """Return the routes between these pairs of chips: of each kind of pair those that no other undercuts."""
        kinds = np.unique(self.path_switches[:, pairs], axis=1).T
        return tuple(tuple(_undercut(kind)) for kind in kinds)

    @cached_property
    def place_routes(self) -> tuple[tuple[tuple[Route, ...], ...], ...]:
        """Routes between chips that differ in one alone: position in a tray, tray, rack."""
        if known := self.known.get(("place_routes", "world", "", ())):
            return known
        nodes = self.graph.nodes
        place = np.array([[nodes[chip][name] for name in PLACES] for chip in self.chips], dtype=object)
        differ = place[:, None] != place
        alone = differ.sum(-1) == 1
        return tuple(self._routes(differ[..., axis] & alone) for axis in range(len(PLACES)))

    def farthest_routes(self, scope: str) -> tuple[tuple[Route, ...], ...]:
        """Return the routes between the chips of a rack, or of the domain."""
        choice("scope", scope, SCOPES)
        if known := self.known.get(("farthest_routes", scope, "", ())):
            return known
        if not any(kind == "switch" for _, kind in self.graph.nodes(data="kind")):
            within = self.hops[:, self.racks == self.racks[0]] if scope == "rack" else self.hops
            return (((int(within[0].max()), 0),),)
        apart = ~np.eye(len(self.racks), dtype=bool)
        return self._routes(apart & (self.racks[:, None] == self.racks) if scope == "rack" else apart)

    def scope(self, scope: str, ratios: Ratios = ()) -> list[Any]:
        """Return the graph, or those of its racks, with links in these ratios."""
        choice("scope", scope, SCOPES)
        if not isinstance(ratios, tuple):
            refuse("ratios", ratios, "allowed is a tuple of one ratio for each rate of the system")
        ratios = tuple(number("ratios", ratio) for ratio in ratios)
        rates = {data["rate"] for *_, data in self.graph.edges(data=True)}
        if ratios and len(ratios) <= max(rates, default=0):
            refuse("ratios", ratios, f"allowed are {max(rates) + 1}, one for each rate of the system")
        graph = self.graph if all(ratio == 1 for ratio in ratios) else _in_ratio(self.graph, ratios)
        if scope == "world":
            return [graph]
        racks = dict(graph.nodes(data="rack"))
        return [graph.subgraph(n for n in graph if racks[n] == rack) for rack in sorted(set(racks.values()))]


def _undercut(switches: NDArray) -> Iterator[Route]:
    """Yield the routes of one pair by the chips that send; a longer one only where it has fewer switches."""
    fewest = np.inf
    for hops, count in enumerate(switches, start=1):
        if count < fewest:
            fewest = count
            yield hops, int(count)


def _in_ratio(graph: Any, ratios: Ratios) -> Any:
    scaled = graph.copy()
    for *_, data in scaled.edges(data=True):
        data["bytes_per_s_per_dir"] *= ratios[data["rate"]]
    return scaled


def longest_s(routes: tuple[tuple[Route, ...], ...], hop_s: ArrayLike, switch_s: ArrayLike) -> NDArray:
    """Return the latency in s between the two farthest chips, by the fastest route; 0 for one chip."""
    hop, switch = np.asarray(hop_s, dtype=float), np.asarray(switch_s, dtype=float)
    longest = np.zeros(np.broadcast_shapes(hop.shape, switch.shape))
    for of_pair in routes:
        longest = np.maximum(longest, np.minimum.reduce([hops * hop + count * switch for hops, count in of_pair]))
    return longest


@dataclass(frozen=True)
class Layout:
    """What shapes the graph of a system, as a key."""

    key: tuple
    system: System = field(compare=False, repr=False)

    @property
    def digest(self) -> str:
        """Digest of all that shapes the graph."""
        shaping = {name: _printed(getattr(self.system, name)) for name in LAYOUT}
        return hashlib.sha256(json.dumps(shaping).encode()).hexdigest()[:16]


def _printed(value: Any) -> Any:
    """Return a value that shapes a graph as JSON has it: a part by its limits, numbers as floats."""
    if isinstance(value, Spec):
        return [value.id, *(_printed(getattr(value, name)) for name in ("switch_lanes", "switch_ports"))]
    if hasattr(value, "items"):
        return sorted((name, _printed(one)) for name, one in value.items())
    if isinstance(value, tuple):
        return [_printed(one) for one in value]
    return value if value is None or isinstance(value, str) else repr(float(value))


def wiring(system: System) -> Wiring:
    """Return the checked graph of a system at unit rates, built once for all systems of its layout."""
    shaping = (getattr(system, name) for name in LAYOUT)
    key = tuple(frozenset(value.items()) if hasattr(value, "items") else value for value in shaping)
    return _wired(Layout(key, system))


@lru_cache(maxsize=LAYOUTS)
def _wired(layout: Layout) -> Wiring:
    system, digest = layout.system, layout.digest
    large, known = system.fabric == "torus" and system.domain_chips > LARGEST_LP, answers().get(digest, {})
    return Wiring(system if known else build.build(system), large, known, digest)


@lru_cache(maxsize=SOLVED)
def solved(wired: Wiring, ratios: Ratios, scope: str) -> flow.Flow:
    """Return the maximum concurrent uniform flow at rates in these ratios; of the slowest rack for scope "rack"."""
    flows = map(flow.concurrent_flow, wired.scope(scope, ratios))
    return min(flows, key=attrgetter("bytes_per_s_per_pair"))


@lru_cache(maxsize=SOLVED)
def pair(wired: Wiring, ratios: Ratios, scope: str, routing: str) -> float:
    """Return the rate of every ordered pair of chips at once by `routing`; of the slowest rack for scope "rack"."""
    if known := wired.known.get(("pair", scope, routing, ratios)):
        return float(known)
    if routing == "even":
        return min(map(flow.even_split, wired.scope(scope, ratios)))
    bound = solved(wired, ratios, scope)
    return bound.bytes_per_s_per_pair if routing == "free" else flow.whole_paths(wired.scope("world", ratios)[0], bound)


@lru_cache(maxsize=SOLVED)
def cut(wired: Wiring, ratios: Ratios, keys: tuple[str, ...]) -> float:
    """Return the smallest balanced cut along the build."""
    return flow.bisection(wired.scope("world", ratios)[0], keys)[0]


@lru_cache(maxsize=SOLVED)
def injection(wired: Wiring, ratios: Ratios, scope: str, medium: str) -> float:
    """Return what the weakest chip of the domain or of the first rack can send over a medium; "" is all media."""
    if known := wired.known.get(("injection", scope, medium, ratios)):
        return float(known)
    graph = wired.scope(scope, ratios)[0]
    links = ([d for d in graph[chip].values() if medium in ("", d["medium"])] for chip in flow.chip_nodes(graph))
    return min(float(sum(data["bytes_per_s_per_dir"] for data in of_chip)) for of_chip in links)
