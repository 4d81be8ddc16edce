"""Which formula runs on which tier of a group: the algorithms that a collective can be given, by kind and name."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.specs import published
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.fabric import build
from trnmodel.fabric.groups import Group, fabric, farthest_s
from trnmodel.formulas import collectives, exchanges, tiers
from trnmodel.units import Numeric

Algorithm = Callable[[str, NDArray, Group], NDArray]
Rates = Callable[[Group], tuple[NDArray, ...]]
IN_PAIRS: Rates = attrgetter("exchange_rates")
TO_ALL: Rates = attrgetter("direct_rates")
SWITCHED = {"tray", "rack", "pair", "domain"}
FORMULAS: dict[str, Rates] = {  # of tiers one after the other, each by one step of these kinds
    "ring": attrgetter("rates"),
    "halving_doubling": IN_PAIRS,
    "one_shot": TO_ALL,
}


def _tiered(name: str) -> Algorithm:
    """Return the algorithm that runs the same steps on every tier, one tier after the other."""

    def time_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
        steps = (name,) * len(p.levels)
        return tiers.hierarchical_s(kind, steps, message_bytes, p.counts, p.alphas, FORMULAS[name](p))

    return time_s


def _multiport_bucket(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time over all axes of a whole torus at once, after an exchange on the chip."""
    axes = [place for place, level in enumerate(p.levels) if level.name in build.AXES]
    if not axes or axes[-1] + 1 != len(p.levels):
        return np.full(p.ranks.shape, np.nan)
    whole = np.all([p.counts[place] == p.levels[place].size for place in axes], axis=0)
    sizes = tuple(p.levels[place].size for place in axes)
    links = tuple(p.levels[place].open_bytes_per_s_per_dir for place in axes)
    outside = tiers.multiport_bucket_s(kind, message_bytes * p.groups, sizes, p.alphas[-1], links)
    return np.where(whole, outside + _inside_s(kind, message_bytes, p), np.nan)


def _inside_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time in which the ranks of a chip exchange before and after anything leaves the chip."""
    if not p.on_chip:
        return np.zeros(())
    inside = tiers.hierarchical_s(kind, ("one_shot",), message_bytes, (p.local,), (p.alphas[0],), (p.rates[0],))
    return np.where(p.local > 1, inside, 0.0)


def _tiers_at_once(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time of parts of the buffer in all orders over the tiers of switched racks, all of which work at once.

    On a part of a torus the parts go round its axes in rings; a whole torus has its `multiport_bucket`.
    """
    axes = [level.name in build.AXES for level in p.levels]
    outer = [place for place, level in enumerate(p.levels) if axes[place] or level.name in SWITCHED]
    if len(outer) < 2 or outer[-1] + 1 != len(p.levels):
        return np.full(p.ranks.shape, np.nan)
    counts, rates = (tuple(values[place] for place in outer) for values in (p.counts, p.rates))
    alphas = tuple(p.alphas[j] * (np.maximum(p.counts[j] - 1, 1) if axes[j] else 1) for j in outer)
    outside = tiers.tiers_at_once_s(kind, message_bytes / p.local, counts, alphas, rates)
    whole = np.all([axes[j] & np.equal(p.counts[j], p.levels[j].size) for j in outer], axis=0)
    return np.where(whole, np.nan, outside + _inside_s(kind, message_bytes, p))


def _phased(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    return tiers.phased_all_to_all_s(message_bytes, p.counts, p.alphas, p.direct_rates)


def _direct(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time of every pair of chips at the fabric's all-to-all capacity.

    It holds for ranks on all chips of a rack or of the domain.
    """
    if not isinstance(p.where, System) or p.where.fabric == "single":
        return np.full(p.ranks.shape, np.nan)
    alpha = np.zeros(p.ranks.shape)
    for scope, here in _whole_scopes(p):
        farthest = farthest_s(Same(p.where), scope)
        alpha = np.where(here, farthest if p.alpha_s is None else published(p.alpha_s, farthest), alpha)
    between = between_chips_s(message_bytes, p)
    inside = collectives.one_shot_s("all_to_all", message_bytes * p.local / p.ranks, p.local, 0.0, p.rates[0])
    return np.where(p.chips == 1, p.alphas[0] + inside, alpha + between + inside)


def _whole_scopes(p: Group) -> list[tuple[str, NDArray]]:
    """Return the scopes "rack" and "world" of more than one chip, with where ranks and groups fill all chips of it."""
    where = p.where
    assert isinstance(where, System)
    sizes = {"rack": where.domain_chips / max(where.racks, 1), "world": where.domain_chips}
    whole = [(scope, (p.chips == size) & (p.stride == p.groups)) for scope, size in sizes.items() if size > 1]
    return [(scope, here) for scope, here in whole if np.any(here)]


def between_chips_s(message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time of an all-to-all's bytes between chips at the capacity that a flow finds.

    It is NaN where the ranks do not fill a whole rack or domain. Traffic of a rack stays in the rack.
    """
    pair = np.full(p.ranks.shape, np.nan)
    if isinstance(p.where, System) and p.where.fabric != "single":
        for scope, here in _whole_scopes(p):
            pair = np.where(here, _pair_bytes_per_s(Same(p.where), scope), pair)
    return p.groups * p.local**2 * message_bytes / p.ranks / pair


def _pair_bytes_per_s(key: Same, scope: str) -> Numeric:
    return fabric(key).all_to_all_bytes_per_s_per_pair(scope)


def _one_by_one(formula: Callable[..., NDArray]) -> Algorithm:
    """Return the algorithm that runs a formula on one tier after the other, outermost first.

    A chip's link serves the one rank that sends.
    """

    def time_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
        total = np.zeros(())
        for level, count, rate, alpha in zip(p.levels, p.counts, p.rates, p.alphas, strict=True):
            alone = rate * (1 if level.name == "chip" else p.local)
            total = total + formula(message_bytes, count, alpha, alone)
        return total

    return time_s


def _p2p(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time to the farthest rank: one hop of every tier that the ranks span, at the slowest tier's rate."""
    hops, slowest = np.zeros(()), np.full(p.ranks.shape, np.inf)
    for level, count, rate, alpha in zip(p.levels, p.counts, p.rates, p.alphas, strict=True):
        alone = rate * (1 if level.name == "chip" else p.local)
        hops = hops + np.where(count > 1, alpha, 0.0)
        slowest = np.where(count > 1, np.minimum(slowest, alone), slowest)
    apart = np.sign(p.ranks - 1)
    return collectives.p2p_s(message_bytes, apart, hops, np.where(apart, slowest, 1.0))


def _alone(formula: Callable[..., NDArray], rates: Rates, takes_kind: bool = False) -> Algorithm:
    """Return the algorithm of equal ranks on a fabric of one tier; its time is NaN where ranks span more tiers."""

    def time_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
        spans = sum(np.asarray(count > 1, dtype=int) for count in p.counts)
        total = np.where(spans > 1, np.nan, 0.0)
        for count, rate, alpha in zip(p.counts, rates(p), p.alphas, strict=True):
            kinds = (kind,) if takes_kind else ()
            total = total + formula(*kinds, message_bytes, count, alpha, rate)
        return total

    return time_s


def _neuron(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time of what the collectives library picks by message.

    It picks mesh, recursive doubling and halving, or KangaRing (here: rings).
    """
    limits = [p.chip.algorithm_max_bytes.get(name, np.inf) for name in ("mesh", "rdh")]
    small, middle, large = (REDUCING[name](kind, message_bytes, p) for name in ("one_shot", "halving_doubling", "ring"))
    middle = np.where(np.isnan(middle), large, middle)
    return np.where(message_bytes < limits[0], small, np.where(message_bytes <= limits[1], middle, large))


IN_GRAPH = {
    "mesh": (exchanges.in_graph_mesh_s, "mesh_traffic_ratio"),
    "doubling": (exchanges.in_graph_doubling_s, "rdh_traffic_ratio"),
    "ring": (exchanges.in_graph_ring_s, "ring_traffic_ratio"),
}


def _one_shot_buffers(n: NDArray) -> NDArray:
    """Return how many buffers a rank of n sends where each rank sends its buffer to all others."""
    return n - 1


def _two_shot_buffers(n: NDArray) -> NDArray:
    """Return how many buffers a rank of n sends in a reduce-scatter and an all-gather."""
    return 2 * (n - 1) / n


SHOTS: dict[str, Callable[[NDArray], NDArray]] = {  # kernels that read each other's memory
    "one_shot": _one_shot_buffers,
    "two_shot": _two_shot_buffers,
}


def in_graph(e: Efficiencies) -> dict[str, Algorithm]:
    """Return the all-reduces that a software stack has in its graphs, with the constants that were fitted to it.

    Each runs at any size, and the fastest is taken, so that no more bytes take less time. Kernels that read each
    other's memory end at the scale-up domain: beyond it a library runs tier by tier, each step in the stack's `hop_s`.
    """
    names = e.in_graph.split()
    timed = {f"in_graph_{name}": _shot(e, name) if name in SHOTS else _fitted(e, name) for name in names}
    library = {name: _where(True, REDUCING[name]) for name in FORMULAS}
    return timed | library if SHOTS.keys() & set(names) else timed


def _shot(e: Efficiencies, name: str) -> Algorithm:
    """Return the all-reduce of a kernel whose ranks read each other's memory, within the scale-up domain."""
    start, rate, buffers = getattr(e, f"{name}_s"), getattr(e, f"{name}_rate_share"), SHOTS[name]

    def time_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
        sent = buffers(p.ranks)
        return exchanges.kernel_all_reduce_s(
            message_bytes, p.ranks, sent, start, e.shot_rank_s, e.shot_copies, rate * p.links
        )

    return _where(False, time_s)


def _fitted(e: Efficiencies, name: str) -> Algorithm:
    """Return an all-reduce in the graph whose step and traffic were fitted to the stack."""
    formula, ratio = IN_GRAPH[name][0], getattr(e, IN_GRAPH[name][1])

    def time_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
        inside = exchanges.within_chip_s(message_bytes, p.local, p.chip.intra_chip_bytes_per_s)
        return formula(message_bytes, p.ranks, p.local, e.hop_s, p.links, ratio) + inside

    return time_s


def _where(beyond: bool, algorithm: Algorithm) -> Algorithm:
    """Return the algorithm that runs only in groups that do, or do not, reach beyond the scale-up domain."""

    def time_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
        leaves = [count > 1 for level, count in zip(p.levels, p.counts, strict=True) if level.name == "scale-out"]
        here = np.any(leaves, axis=0) if leaves else np.zeros_like(p.ranks, dtype=bool)
        return np.where(here == beyond, algorithm(kind, message_bytes, p), np.nan)

    return time_s


REDUCING: dict[str, Algorithm] = {name: _tiered(name) for name in FORMULAS}
REDUCING |= {"multiport_bucket": _multiport_bucket, "tiers_at_once": _tiers_at_once, "neuron": _neuron}
ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all_reduce": REDUCING
    | {
        "mesh": _alone(collectives.one_shot_s, TO_ALL, True),
        "recursive_doubling": _alone(collectives.recursive_doubling_all_reduce_s, IN_PAIRS),
        "double_binary_tree": _alone(collectives.double_binary_tree_s, IN_PAIRS, True),
    },
    "all_gather": REDUCING,
    "reduce_scatter": REDUCING,
    "all_to_all": {
        "phased": _phased,
        "direct": _direct,
        "pairwise": _alone(collectives.pairwise_all_to_all_s, TO_ALL),
        "bruck": _alone(collectives.bruck_all_to_all_s, TO_ALL),
    },
    "broadcast": {
        "mesh": _alone(collectives.one_shot_s, TO_ALL, True),
        "double_binary_tree": _alone(collectives.double_binary_tree_s, IN_PAIRS, True),
        "binomial": _one_by_one(collectives.binomial_broadcast_s),
        "scatter_all_gather": _one_by_one(collectives.scatter_all_gather_broadcast_s),
        "chain": _one_by_one(collectives.chain_broadcast_s),
    },
    "p2p": {"p2p": _p2p},
}
POLICIES = {"neuron"}  # what a library does, not a candidate for the best
CURVED = {"multiport_bucket", "neuron", "chain"}  # others are lines in the message
CONVEX = {"multiport_bucket"}  # the largest of some lines, of one where all axes are alike
RINGS = {"ring", "multiport_bucket", "neuron"}  # what AWS runs as KangaRing
