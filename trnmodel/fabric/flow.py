"""Hops, cuts and flows of a graph of chips and switches.

Functions take the networkx graph that `trnmodel.fabric.graph` builds (nodes: `kind`; edges: `bytes_per_s_per_dir`,
`medium`); edges without capacity are idle and count for nothing. A full-duplex link is two arcs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import networkx as nx
    from scipy.sparse import csr_array

NETS = 64  # of which flows are stored
LARGE, LARGEST = 10_000, 2**15  # unknowns: from where interior points are faster, and where it is no longer seconds


@dataclass(frozen=True, eq=False)
class Arcs:
    """Directed arcs of a graph, twin switches merged: equal links to the same chips carry equal shares.

    Two are equal where they have the same arcs, whatever the names of nodes: racks that are alike are solved once.
    """

    nodes: list
    chips: NDArray
    tail: NDArray
    head: NDArray
    capacity: NDArray
    medium: NDArray
    media: list[str]

    def _content(self) -> tuple:
        arrays = (self.chips, self.tail, self.head, self.capacity, self.medium)
        return (len(self.nodes), *self.media, *(array.tobytes() for array in arrays))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arcs) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())


@dataclass(frozen=True, eq=False)
class Flow:
    """A maximum concurrent uniform flow: the rate per ordered pair, and the share of each medium in its bound.

    The shares are those of one optimal dual solution; where media are alike, another would share out differently.
    """

    bytes_per_s_per_pair: Any
    bottleneck: dict[str, float]
    variables: int


def chip_nodes(graph: nx.Graph) -> list:
    """Return the chips of a graph, in order of insertion."""
    return [node for node, kind in graph.nodes(data="kind") if kind == "chip"]


def _live_edges(graph: nx.Graph) -> Iterator[tuple]:
    return ((u, v, data) for u, v, data in graph.edges(data=True) if data["bytes_per_s_per_dir"] > 0)


def arcs(graph: nx.Graph) -> Arcs:
    """Return the directed arcs of a graph with twin switches merged into one of the summed capacity.

    Switches with the same neighbours over the same links are interchangeable, so a flow through the merged switch
    splits evenly over them: the maximum concurrent flow is unchanged.
    """
    links, live = defaultdict(list), list(_live_edges(graph))
    for u, v, data in live:
        for near, far in ((u, v), (v, u)):
            links[near].append((far, data["bytes_per_s_per_dir"], data["medium"]))
    twins = {n: frozenset(links[n]) if kind == "switch" else n for n, kind in graph.nodes(data="kind")}
    first: dict = {}
    merged = {node: first.setdefault(key, node) for node, key in twins.items()}
    nodes = list(first.values())
    place = {node: number for number, node in enumerate(nodes)}
    index = {node: place[one] for node, one in merged.items()}
    total: dict = defaultdict(float)
    for u, v, data in live:
        total[index[u], index[v], data["medium"]] += data["bytes_per_s_per_dir"]
        total[index[v], index[u], data["medium"]] += data["bytes_per_s_per_dir"]
    media = sorted({medium for *_, medium in total})
    ends = np.array([(u, v, media.index(medium)) for u, v, medium in total], dtype=np.int64).reshape(-1, 3)
    tail, head, medium = np.ascontiguousarray(ends.T)
    chips = np.array([index[node] for node in chip_nodes(graph)])
    return Arcs(nodes, chips, tail, head, np.fromiter(total.values(), float), medium, media)


def hop_matrix(graph: nx.Graph, sources: list | None = None) -> NDArray:
    """Return the edges of the shortest path from each source chip to every chip; infinite where there is none."""
    from scipy.sparse import coo_array

    index = {node: number for number, node in enumerate(graph)}
    pairs = np.array([(index[u], index[v]) for u, v, _ in _live_edges(graph)], dtype=np.int64).reshape(-1, 2)
    adjacency = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(index),) * 2).tocsr()
    chips = chip_nodes(graph)
    starts = [index[node] for node in (chips if sources is None else sources)]
    return _hops(adjacency, starts)[:, [index[node] for node in chips]]


def _hops(adjacency: Any, starts: list[int]) -> NDArray:
    """Return the edges of the shortest paths from these nodes to all; infinite where there is none."""
    from scipy.sparse.csgraph import dijkstra

    return dijkstra(adjacency, directed=False, unweighted=True, indices=starts)


def even_split(graph: nx.Graph) -> float:
    r"""Return the rate in B/s of all ordered pairs of chips where every hop splits a pair over all that lead on (ECMP).

    .. math:: \lambda = \min_a c_a / \ell_a, \quad
              \ell_{uv} = \sum_t f_{ut} / n_{ut}, \quad f_{vt} = 1 + \sum_u f_{ut} / n_{ut}

    Load l of arc (u, v) for one unit a pair, over the chips t to which v is one hop nearer than u; n counts such
    neighbours of u, f is what stands at a node for t: a chip's own unit, and what it forwards.

    Assumes shortest paths by hops, shares that are equal whatever the links carry, and flows that can be split at will.
    Never above `concurrent_flow`; 0 where failures have cut chips off, NaN for one chip.

    References
    ----------
    .. [1] C. Hopps, Analysis of an Equal-Cost Multi-Path Algorithm, RFC 2992, 2000.
    """
    index = {node: number for number, node in enumerate(graph)}
    chips = [index[node] for node in chip_nodes(graph)]
    capacity = np.zeros((len(index),) * 2)
    for u, v, data in _live_edges(graph):
        capacity[index[u], index[v]] = capacity[index[v], index[u]] = data["bytes_per_s_per_dir"]
    joined, apart = (capacity > 0).astype(float), _hops(capacity, chips).T
    if len(chips) < 2 or not np.all(np.isfinite(apart[chips])):
        return math.nan if len(chips) < 2 else 0.0
    standing, load = np.zeros(apart.shape), np.zeros_like(capacity)
    standing[chips] = 1.0
    for distance in range(int(apart[np.isfinite(apart)].max()), 0, -1):
        nearer = (apart == distance - 1).astype(float)
        leaving = np.where(apart == distance, standing / np.maximum(joined @ nearer, 1.0), 0.0)
        standing += nearer * (joined @ leaving)
        load += joined * (leaving @ nearer.T)
    return float(np.min(capacity[load > 0] / load[load > 0]))


def whole_paths(graph: nx.Graph, bound: Flow) -> float:
    r"""Return the most, in B/s, that each ordered pair may have of a flow where it takes one path whole.

    .. math:: \lambda_1 \le \max_a \frac{c_a}{\lceil c_a / \lambda \rceil}

    over the links a that bound the flow: they carry c/lambda pairs on average, and one of them the next whole number.
    Where a hash picks the paths some links take more, and all pairs less.
    """
    pair = bound.bytes_per_s_per_pair
    links = {data["bytes_per_s_per_dir"] for *_, data in _live_edges(graph) if data["medium"] in bound.bottleneck}
    return max((rate / math.ceil(rate / pair - 1e-9) for rate in links if pair > 0), default=pair)


def path_switches(graph: nx.Graph) -> NDArray:
    """Return the fewest switches between chips where at most 1, 2, ... chips send; infinite where no path is.

    Switches join chips only: what a chip sends reaches the next one directly, or through one switch.
    """
    index = {chip: number for number, chip in enumerate(chip_nodes(graph))}
    step = np.full((len(index),) * 2, np.inf)
    behind = defaultdict(list)
    for u, v, _ in _live_edges(graph):
        for near, far in ((u, v), (v, u)):
            if near in index and far in index:
                step[index[near], index[far]] = 0.0
            elif near in index:
                behind[far].append(index[near])
    for chips in behind.values():
        step[np.ix_(chips, chips)] = np.minimum(step[np.ix_(chips, chips)], 1.0)
    np.fill_diagonal(step, 0.0)
    fewest = [step]
    while True:
        further = fewest[-1]
        for middle in range(len(index)):
            further = np.minimum(further, fewest[-1][:, [middle]] + step[middle])
        if np.array_equal(further, fewest[-1]):
            return np.stack(fewest)
        fewest.append(further)


def latency_matrix(switches: NDArray, chip_s: float, switch_s: float) -> NDArray:
    """Return the least latency of one direction between all chips, in seconds.

    The sender takes one start, and each chip that forwards takes one more.

    `switches` are the fewest on the way by how many chips send, as `path_switches` has them.
    """
    sending = np.arange(1, len(switches) + 1)[:, None, None]
    there = np.isfinite(switches)
    least_s = np.min(np.where(there, sending * chip_s + np.where(there, switches, 0.0) * switch_s, np.inf), axis=0)
    np.fill_diagonal(least_s, 0.0)
    return least_s


def cut_bytes_per_s_per_dir(graph: nx.Graph, inside: Set) -> float:
    """Return the capacity, one way, between a set of chips and the rest, in B/s.

    A switch may stand on either side, whichever cuts less; switches join chips only, so each chooses alone.
    """
    crossing, chips = 0.0, set(chip_nodes(graph))
    sides: dict[Any, list[float]] = {}
    for u, v, data in _live_edges(graph):
        chip, other = (u, v) if u in chips else (v, u)
        if other not in chips:
            sides.setdefault(other, [0.0, 0.0])[chip in inside] += data["bytes_per_s_per_dir"]
        elif (chip in inside) != (other in inside):
            crossing += data["bytes_per_s_per_dir"]
    return crossing + sum(min(pair) for pair in sides.values())


def bisection(graph: nx.Graph, keys: tuple[str, ...]) -> tuple[float, frozenset]:
    """Return the smallest cut among balanced partitions that follow the build: racks, trays, positions, planes, axes.

    Every order of the `keys` (node attributes) sorts the chips; the first half stands against the second. This is an
    upper bound of the true bisection; `Topology.bisection_is_exact` says where a flow proves it.
    """
    chips = chip_nodes(graph)
    places = {key: [graph.nodes[chip][key] for chip in chips] for key in keys}
    halves: dict[frozenset, None] = {}
    for order in permutations(places.values()):
        ranked = [chip for *_, chip in sorted(zip(*order, range(len(chips)), chips, strict=True))]
        halves.setdefault(frozenset(ranked[: len(chips) // 2]))
    cuts = [(cut_bytes_per_s_per_dir(graph, inside), inside) for inside in halves]
    return min(cuts, key=itemgetter(0))


def torus_bytes_per_s_per_pair(shape: tuple[int, ...], link_bytes_per_s_per_dir: Iterable[NDArray | float]) -> NDArray:
    r"""Return the maximum concurrent uniform flow per ordered pair on an intact torus, in B/s.

    .. math:: \lambda = \min_i \frac{n_i B_i}{N \bar d_i}, \quad \bar d_i = \lfloor k_i^2/4 \rfloor / k_i

    Every pair crosses a ring i at least its distance there, on average d_i over all pairs with themselves, and a chip
    has n_i arcs in it (2, or 1 where k = 2); minimal routing that splits ties evenly meets the bound in all rings.

    References
    ----------
    .. [1] W. Dally, B. Towles, Principles and Practices of Interconnection Networks, 2004, ch. 3 and 5.
    """
    rings = []
    for k, rate in zip(shape, link_bytes_per_s_per_dir, strict=True):
        distance, arcs_per_chip = (k**2 // 4) / k, 1 if k == 2 else 2
        if k > 1:
            rings.append(arcs_per_chip * rate / (math.prod(shape) * distance))
    return np.min(np.broadcast_arrays(*rings), axis=0)


def _rename(*colours: NDArray, rng: np.random.Generator) -> NDArray:
    """One colour for each distinct tuple of colours."""
    return _compact(np.asarray(sum(_weights(colour, rng) for colour in np.broadcast_arrays(*colours))))


def _compact(labels: NDArray) -> NDArray:
    """Places of labels in their order; pandas hashes them, where NumPy would sort them all."""
    import pandas as pd

    return pd.factorize(labels.ravel(), sort=True)[0].reshape(labels.shape)


def _weights(colour: NDArray, rng: np.random.Generator) -> NDArray:
    return rng.integers(2**64, size=int(colour.max(initial=0)) + 1, dtype=np.uint64)[colour]


def _refined(net: Arcs, rng: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
    """Colours of (node, source), (arc, source) and arc: unknowns and rows of the LP of one colour are alike."""
    from scipy.sparse import csr_array

    ones, number = np.ones(len(net.tail), dtype=np.uint64), np.arange(len(net.tail))
    shape = (len(net.nodes), len(net.tail))
    leaving, entering = (csr_array((ones, (end, number)), shape=shape) for end in (net.tail, net.head))
    place = np.arange(len(net.nodes))[:, None]
    node = _compact(1 * np.isin(place, net.chips) + (place == net.chips[None, :]))
    link = np.unique(np.stack([net.capacity, net.medium]), axis=1, return_inverse=True)[1].ravel()
    classes = 0
    while True:
        arc = _rename(node[net.tail], node[net.head], link[:, None], rng=rng)
        if classes == (classes := int(node.max()) + int(link.max()) + 2):
            return node, arc, link
        out_sum, in_sum = leaving @ _weights(arc, rng), entering @ _weights(arc, rng)
        node = _compact(_weights(node, rng) + out_sum + in_sum)
        link = _compact(_weights(link, rng) + _weights(arc, rng).sum(axis=1))


def concurrent_flow(graph: nx.Graph) -> Flow:
    r"""Maximum concurrent uniform flow: the largest equal rate of all ordered pairs of chips at once.

    .. math:: \max \lambda: \quad \sum_{a \in out(v)} f_{sa} - \sum_{a \in in(v)} f_{sa} = \lambda\,b_{sv}, \quad
              \sum_s f_{sa} \le c_a

    Flows f of source s are merged over destinations (b is n-1 at the source, -1 at other chips, 0 at switches).
    Rows and unknowns that colour refinement cannot tell apart are merged, which leaves the optimum unchanged.

    References
    ----------
    .. [1] F. Shahrokhi, D. Matula, The maximum concurrent flow problem, J. ACM 37(2), 1990.
    .. [2] M. Grohe, K. Kersting, M. Mladenov, E. Selman, Dimension reduction via colour refinement, ESA 2014.
    """
    return _optimum(arcs(graph))


@lru_cache(maxsize=NETS)
def _optimum(net: Arcs) -> Flow:
    if len(net.chips) < 2 or not len(net.tail):
        return Flow(math.nan if len(net.chips) < 2 else 0.0, {}, 0)
    node, arc, link = _refined(net, np.random.default_rng(0))
    if arc.max() >= LARGEST:
        raise ValueError(f"flow of {len(net.chips)} chips: {arc.max() + 1} unknowns; allowed are up to {LARGEST}")
    return _solve(net, node, arc, link)


def full_concurrent_flow(graph: nx.Graph) -> Flow:
    """Return the same optimum from the whole LP, with one unknown for each source and arc; for small graphs."""
    net = arcs(graph)
    sources = len(net.chips)
    node, arc = (np.arange(size * sources).reshape(size, sources) for size in (len(net.nodes), len(net.tail)))
    return _solve(net, node, arc, np.arange(len(net.tail)))


def _solve(net: Arcs, node: NDArray, arc: NDArray, link: NDArray) -> Flow:
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, hstack

    unknowns, scale = int(arc.max()) + 1, net.capacity.max()
    places = np.unique(node, return_index=True)[1]
    vertex, source = np.divmod(places, len(net.chips))
    leaving, entering = (_rows(net, end, vertex, source, arc) for end in (net.tail, net.head))
    at_source = vertex == net.chips[source]
    supply = np.where(at_source, len(net.chips) - 1.0, np.where(np.isin(vertex, net.chips), -1.0, 0.0))
    links = np.unique(link, return_index=True)[1]
    row = np.repeat(np.arange(len(links)), len(net.chips))
    load = coo_array((np.ones(row.size), (row, arc[links].ravel())), shape=(len(links), unknowns))
    result = linprog(
        np.append(np.zeros(unknowns), -1.0),
        A_eq=hstack([leaving - entering, coo_array(-supply[:, None])]).tocsr(),
        b_eq=np.zeros(len(places)),
        A_ub=hstack([load, coo_array((len(links), 1))]).tocsr(),
        b_ub=net.capacity[links] / scale,
        method="highs" if unknowns < LARGE else "highs-ipm",
    )
    if not result.success:
        raise RuntimeError(f"linear programme of {unknowns} unknowns: {result.message}")
    price = -result.ineqlin.marginals * net.capacity[links] / scale
    shares = np.bincount(net.medium[links], weights=price, minlength=len(net.media)) / max(price.sum(), 1e-300)
    bound = {net.media[number]: round(float(share), 9) for number, share in enumerate(shares) if share > 1e-9}
    return Flow(max(float(-result.fun * scale), 0.0), bound, unknowns)


def _rows(net: Arcs, end: NDArray, vertex: NDArray, source: NDArray, arc: NDArray) -> csr_array:
    """One row for each chosen (vertex, source): its arcs with that end, by the colour of their flow."""
    from scipy.sparse import coo_array, csr_array

    touching = csr_array((np.ones(len(end)), (end, np.arange(len(end)))), shape=(len(net.nodes), len(end)))
    chosen = touching[vertex].tocoo()
    row, number = chosen.coords
    columns = arc[number, source[row]]
    return coo_array((chosen.data, (row, columns)), shape=(len(vertex), int(arc.max()) + 1)).tocsr()
