"""Collectives on a system: which formula runs on which tier of its fabric, and which is fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, choice, chosen, integer, numbers, refuse, share, together
from trnmodel.catalog import load
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric import build, flow, graph
from trnmodel.formulas import collective_bounds, collectives, tiers
from trnmodel.result import Result, blank, reason_mask

Numeric = ArrayLike
MEDIA = ("pcb", "backplane", "cross-rack")  # of a switched rack's tiers: tray, rack, pair
RUNTIMES = {"trn1": "neuron-runtime-trn1", "trn2": "neuron-runtime-trn2"}
PLACES = ("position", "tray", "rack")  # what tells the chips of such a tier apart


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of a system's hierarchy: how many of the level below it joins, and what a chip sends into it."""

    name: str
    size: float
    bytes_per_s_per_dir: float
    open_bytes_per_s_per_dir: float
    alpha_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Collective(Result):
    """Time of a collective, with the algorithm that gave it and a bound from the graph."""

    REASONS: ClassVar[tuple[str, ...]] = (
        "more ranks than the system has",
        "ranks do not fill the tiers evenly",
        "the algorithm cannot run on this many ranks",
    )
    kind: str
    system: System
    ranks: NDArray
    message_bytes: NDArray
    algorithm: NDArray | str
    time_s: NDArray
    lower_bound_s: NDArray

    @property
    def busbw_bytes_per_s(self) -> NDArray:
        """Rate scaled to the wire as NCCL's and Neuron's tests print it; NaN for one rank, and where no time passes."""
        timeless = np.equal(self.ranks, 1) | np.equal(self.time_s, 0)
        time = np.where(timeless, np.nan, self.time_s)
        return collective_bounds.busbw_bytes_per_s(self.kind, self.message_bytes, np.maximum(self.ranks, 2), time)


@cache
def _fabric(where: System) -> graph.Topology:
    return graph.topology(where)


@cache
def hierarchy(where: System, lnc: int) -> tuple[Tier, ...]:
    """Tiers of a system, innermost first: ranks of a chip, the scale-up fabric, scale-out.

    A torus axis is a ring that sends both ways while it is closed, one way while ranks fill only a part of it. The
    latency of a step is that of a NeuronLink hop as AWS documents it and of the switches on the way; of EFA beyond the
    domain; NaN for other vendors.
    """
    chip = where.chip
    neuron = chip.core is not None
    found = []
    if neuron:
        core_rate = chip.core.dma_engines * chip.core.dma_engine_bytes_per_s * chip.cores
        found.append(Tier("chip", chip.cores / lnc, core_rate, core_rate, hop_costs_s()[0]))
    found += _scaleup(where)
    far = where.scaleout_bytes_per_s_per_dir
    if where.count > 1:
        found.append(Tier("scale-out", where.count, far, far, load.value("efa-v3", "hop_s") if neuron else np.nan))
    return tuple(found)


def hop_costs_s() -> tuple[float, float]:
    """What one chip and one switch on the way cost: a NeuronLink hop, and a PCIe switch. [s]"""
    return load.value("neuron-stack", "hop_s"), load.value("pcie-switch", "switch_s")


@cache
def _latency_s(where: System) -> NDArray:
    """Least latency between all chips of the domain; NaN for other vendors."""
    if where.chip.core is None:
        return np.full((1, 1), np.nan)
    return flow.latency_matrix(_fabric(where).graph, *hop_costs_s())


def _scaleup(where: System) -> list[Tier]:
    """Scale-up tiers of a system: axes of a torus, or tray, rack and pair of switched racks."""
    if where.fabric == "single":
        return []
    hop = hop_costs_s()[0] if where.chip.core else np.nan
    if where.fabric == "torus":
        rates = zip(build.AXES, where.torus_shape, build.link_rates(where), strict=False)
        return [Tier(axis, size, rate * min(size - 1, 2), rate, hop) for axis, size, rate in rates]
    if where.fabric == "planes":
        media = _fabric(where).injection_by_medium()
        sizes = (where.chips_per_tray, where.compute_trays_per_rack, where.racks)
        found = zip(("tray", "rack", "pair"), sizes, MEDIA, _place_latencies_s(where), strict=True)
        return [Tier(name, size, media[over], media[over], alpha) for name, size, over, alpha in found if over in media]
    rate = _fabric(where).injection_bytes_per_s_per_dir
    return [Tier("domain", where.domain_chips, rate, rate, hop)]


def _place_latencies_s(where: System) -> list[float]:
    """Worst latency between chips that differ in one alone: position in a tray, tray, rack."""
    nodes = _fabric(where).graph.nodes
    place = np.array([[nodes[chip][key] for key in PLACES] for chip in _fabric(where).chips], dtype=object)
    differ = place[:, None] != place
    apart = [differ[..., axis] & (differ.sum(-1) == 1) for axis in range(len(PLACES))]
    return [float(np.max(_latency_s(where), where=pairs, initial=0.0)) for pairs in apart]


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """Ranks laid over the tiers, innermost first, with each tier's rate for one rank and whether they go all round."""

    where: System
    levels: tuple[Tier, ...]
    counts: tuple[NDArray, ...]
    full: tuple[NDArray, ...]
    rates: tuple[NDArray, ...]
    alphas: tuple[NDArray, ...]
    even: NDArray
    ranks: NDArray
    stride: NDArray
    alpha_s: Numeric | None

    @property
    def local(self) -> NDArray:
        """Ranks on one chip."""
        return self.counts[0] if self.levels[0].name == "chip" else np.ones_like(self.ranks)

    @property
    def chips(self) -> NDArray:
        """Chips that the ranks span."""
        return np.ceil(self.ranks / self.local)

    @property
    def groups(self) -> NDArray:
        """Groups of ranks that share a chip."""
        chip = self.levels[0]
        return np.minimum(self.stride, chip.size if chip.name == "chip" else 1)

    @property
    def direct_rates(self) -> tuple[NDArray, ...]:
        """Rates when every rank of a tier sends to every other at once; on a torus axis chips forward."""
        tiered = zip(self.levels, self.counts, self.full, self.rates, strict=True)
        return tuple(_forwarded(*tier) if tier[0].name in build.AXES else tier[-1] for tier in tiered)

    @property
    def exchange_rates(self) -> tuple[NDArray, ...]:
        """Rates when ranks swap halves in pairs: one link of a torus axis at a time."""
        tiered = zip(self.levels, self.rates, strict=True)
        one_link = lambda level: min(1.0, level.open_bytes_per_s_per_dir / level.bytes_per_s_per_dir)  # noqa: E731
        return tuple(rate * one_link(level) for level, rate in tiered)


def _forwarded(level: Tier, count: NDArray, full: NDArray, rate: NDArray) -> NDArray:
    """A rank's rate on a torus axis of which each link carries what its neighbours forward.

    The middle link of a line bears twice what each link of a closed ring does, whose ties go half each way round.
    """
    closed = full & (count > 2)
    one_way = rate * np.where(closed, level.open_bytes_per_s_per_dir / level.bytes_per_s_per_dir, 1.0)
    load = tiers.ring_link_load(np.maximum(count, 2)) * np.where(closed, 1, 2)
    return one_way * np.maximum(count - 1, 1) / (np.maximum(count, 2) * load)


def _place(
    where: System, levels: tuple[Tier, ...], ranks: NDArray, stride: NDArray, alpha_s: Numeric | None
) -> _Placed:
    """Every `stride`-th rank from the first on; the groups between run at the same time and share chips and links."""
    on_chip = np.minimum(ranks * stride, levels[0].size) if levels[0].name == "chip" else np.ones_like(ranks)
    left, skip, even, found = ranks, stride, np.ones(ranks.shape, dtype=bool), []
    for level in levels:
        inside = np.minimum(skip, level.size)
        room = np.floor(level.size / inside)
        count = np.minimum(left, room)
        even &= (left % count == 0) & (skip % inside == 0) & (level.size % inside == 0)
        full = count * inside == level.size
        rate = np.where(full, level.bytes_per_s_per_dir, level.open_bytes_per_s_per_dir)
        sharing = level.size if level.name == "chip" else on_chip * (inside if level.name in build.AXES else 1)
        found.append((count, full, rate / sharing, np.asarray(level.alpha_s if alpha_s is None else alpha_s, float)))
        left, skip = np.ceil(left / count), np.ceil(skip / inside)
    return _Placed(where, levels, *zip(*found, strict=True), even, ranks, stride, alpha_s)


def _tiered(name: str) -> Callable[[str, NDArray, _Placed], NDArray]:
    """The same algorithm on every tier, one tier after the other."""

    def time_s(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
        rates = {"ring": p.rates, "halving_doubling": p.exchange_rates, "one_shot": p.direct_rates}[name]
        return tiers.hierarchical_s(kind, (name,) * len(p.levels), message_bytes, p.counts, p.alphas, rates)

    return time_s


def _multiport_bucket(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
    """All axes of a whole torus at once, after an exchange on the chip."""
    axes = [place for place, level in enumerate(p.levels) if level.name in build.AXES]
    if not axes or axes[-1] + 1 != len(p.levels):
        return np.full(p.ranks.shape, np.nan)
    whole = np.all([p.counts[place] == p.levels[place].size for place in axes], axis=0)
    sizes = tuple(p.levels[place].size for place in axes)
    links = tuple(p.levels[place].open_bytes_per_s_per_dir for place in axes)
    outside = tiers.multiport_bucket_s(kind, message_bytes * p.groups, sizes, p.alphas[-1], links)
    inside = tiers.hierarchical_s(kind, ("one_shot",), message_bytes, (p.local,), (p.alphas[0],), (p.rates[0],))
    return np.where(whole, outside + np.where(p.local > 1, inside, 0.0), np.nan)


def _one_shot_phases(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
    return tiers.phased_all_to_all_s(message_bytes, p.counts, p.alphas, p.direct_rates)


def _direct(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
    """Every pair of chips at the fabric's all-to-all capacity; for ranks on all chips of a rack or of the domain."""
    fabric, rack_chips = _fabric(p.where), p.where.domain_chips / max(p.where.racks, 1)
    pair, alpha = np.full(p.ranks.shape, np.nan), np.zeros(p.ranks.shape)
    for scope, size in (("rack", rack_chips), ("world", p.where.domain_chips)):
        here = (p.chips == size) & (p.stride == p.groups)
        if size > 1 and np.any(here):
            pair = np.where(here, fabric.all_to_all_bytes_per_s_per_pair(scope), pair)
            alpha = np.where(here, _farthest_s(p.where, scope) if p.alpha_s is None else p.alpha_s, alpha)
    between = p.groups * p.local**2 * message_bytes / p.ranks
    inside = collectives.one_shot_s("all_to_all", message_bytes * p.local / p.ranks, p.local, 0.0, p.rates[0])
    return np.where(p.chips == 1, p.alphas[0] + inside, alpha + between / pair + inside)


@cache
def _farthest_s(where: System, scope: str) -> float:
    """Latency between the two chips of a rack, or of the domain, that are farthest apart."""
    latency = _latency_s(where)
    if scope == "world":
        return float(latency.max())
    racks = np.array([_fabric(where).graph.nodes[chip]["rack"] for chip in _fabric(where).chips])
    return float(latency[racks[:, None] == racks].max())


def _broadcast(formula: Callable[..., NDArray]) -> Callable[[str, NDArray, _Placed], NDArray]:
    """One tier after the other, outermost first; a chip's link serves the one rank that sends."""

    def time_s(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
        total = np.asarray(0.0)
        for level, count, rate, alpha in zip(p.levels, p.counts, p.rates, p.alphas, strict=True):
            alone = rate * (1 if level.name == "chip" else p.local)
            total = total + formula(message_bytes, count, alpha, alone)
        return total

    return time_s


def _p2p(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
    """To the farthest rank: one hop of every tier that the ranks span, at the rate of the slowest."""
    crossed = [np.where(count > 1, alpha, 0.0) for count, alpha in zip(p.counts, p.alphas, strict=True)]
    slowest = np.full(p.ranks.shape, np.inf)
    for level, count, rate in zip(p.levels, p.counts, p.rates, strict=True):
        alone = rate * (1 if level.name == "chip" else p.local)
        slowest = np.where(count > 1, np.minimum(slowest, alone), slowest)
    return sum(crossed) + message_bytes / slowest


def _neuron(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
    """As the collectives library picks by message: mesh, recursive doubling and halving, KangaRing (here: rings)."""
    limits = [load.value("neuronlink-v3", "algorithm_max_bytes", name) for name in ("mesh", "rdh")]
    small, middle, large = (_tiered(name)(kind, message_bytes, p) for name in ("one_shot", "halving_doubling", "ring"))
    middle = np.where(np.isnan(middle), large, middle)
    return np.where(message_bytes < limits[0], small, np.where(message_bytes <= limits[1], middle, large))


_REDUCING = {name: _tiered(name) for name in ("ring", "halving_doubling", "one_shot")}
_REDUCING |= {"multiport_bucket": _multiport_bucket, "neuron": _neuron}
ALGORITHMS: dict[str, dict[str, Callable[[str, NDArray, _Placed], NDArray]]] = {
    "all_reduce": _REDUCING,
    "all_gather": _REDUCING,
    "reduce_scatter": _REDUCING,
    "all_to_all": {"phased": _one_shot_phases, "direct": _direct},
    "broadcast": {
        "binomial": _broadcast(collectives.binomial_broadcast_s),
        "scatter_all_gather": _broadcast(collectives.scatter_all_gather_broadcast_s),
    },
    "p2p": {"p2p": _p2p},
}
RINGS = {"ring", "multiport_bucket", "neuron"}  # what AWS runs as KangaRing
BUFFERS = ("sbuf", "hbm")
POLICIES = {"neuron"}  # what a library does, not a candidate for the best


def collective(
    kind: str,
    message_bytes: Numeric,
    system: str | System,
    ranks: Numeric | None = None,
    algorithm: str = "best",
    alpha_s: Numeric | None = None,
    lnc: int | None = None,
    stride: Numeric = 1,
    floor_s: Numeric = 0.0,
    rate_share: Numeric = 1.0,
    buffers: str = "sbuf",
) -> Collective:
    """Time of one collective on a system, tier by tier.

    Parameters
    ----------
    kind : str
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast" or "p2p". [-]
    message_bytes : numeric
        Full buffer on a rank: gathered output, reduce-scatter input, all-to-all send buffer. [B]
    system : str or System
        Whose fabric. [-]
    ranks : numeric, optional
        Logical NeuronCores (or GPUs) that take part; they fill chips first, then the fabric. Default: all. [-]
    algorithm : str
        "best" for the fastest of the standard ones at each point, one of them by name ("ring", "halving_doubling",
        "one_shot", "multiport_bucket"; "phased", "direct"; "binomial", "scatter_all_gather"), or "neuron" for what
        AWS's library picks. [-]
    alpha_s : numeric, optional
        Start-up time of a step, on every tier. Default: documented latencies of a NeuronLink hop, of the switches on
        the way and of EFA. [s]
    lnc : int, optional
        Physical cores of a rank. Default: the chip's. [-]
    stride : numeric, optional
        Ranks from one member of the group to the next; the groups between them run at the same time. [-]
    floor_s : numeric, optional
        What a call costs besides, as `studies.collective_fits` finds it in published runs. Default: nothing. [s]
    rate_share : numeric, optional
        Share of the fabric's rates that the software reaches, above 0, at most 1. [-]
    buffers : {"sbuf", "hbm"}
        Where data waits between steps: "sbuf" leaves the links alone to bound, "hbm" adds the reads and writes of HBM
        that AWS documents for rings and KangaRing. [-]

    Returns
    -------
    collective : Collective
        `.time_s`, `.busbw_bytes_per_s`, `.algorithm`, `.lower_bound_s`; NaN with a reason where ranks do not fit.

    Raises
    ------
    ValueError
        Unknown kind, algorithm or system; negative sizes; no published latency and none given.

    Notes
    -----
    Assumes: full-duplex links, tiers one after the other, no congestion from other traffic. The fixed cost of a graph
    that holds a collective is apart: `graph_barrier_s`.

    Examples
    --------
    >>> small, large = collective("all_reduce", [1024, 2**30], "trn2.48xlarge").algorithm
    >>> small, large
    ('one_shot', 'multiport_bucket')
    """
    table = chosen("kind", kind, ALGORITHMS)
    choice("algorithm", algorithm, ("best", *table))
    names = [name for name in table if name not in POLICIES] if algorithm == "best" else [algorithm]
    formulas = [table[name] for name in names]
    where = find_system(system)
    levels = _levels(where, lnc, alpha_s)
    total = np.prod([level.size for level in levels])
    step = numbers("stride", stride, 1, whole=True)
    every = np.maximum(np.floor(total / step), 1) if ranks is None else numbers("ranks", ranks, 1, whole=True)
    given = {"message_bytes": numbers("message_bytes", message_bytes), "ranks": every, "stride": step}
    given |= {"floor_s": numbers("floor_s", floor_s), "rate_share": share("rate_share", rate_share, TINY)}
    together(**given, alpha_s=0.0 if alpha_s is None else alpha_s)
    m, n, step, floor, reached = np.broadcast_arrays(*given.values())
    placed = _place(where, levels, n, step, alpha_s)
    times = [np.where(n > 1, formula(kind, m / reached, placed), 0.0) for formula in formulas]
    if choice("buffers", buffers, BUFFERS) == "hbm":
        times = [np.maximum(time, _hbm_s(kind, name, m, placed)) for name, time in zip(names, times, strict=True)]
    times = np.stack(np.broadcast_arrays(*times))
    fastest = np.argmin(np.where(np.isnan(times), np.inf, times), axis=0)
    time = np.take_along_axis(times, fastest[None], axis=0)[0]
    mask = reason_mask(n * step > total, ~placed.even, np.isnan(time))
    return Collective(
        kind=kind,
        system=where,
        ranks=n,
        message_bytes=m,
        algorithm=np.asarray(names, dtype=object)[fastest],
        **blank(mask, time_s=np.where(n > 1, time + floor, 0.0), lower_bound_s=_lower_bound_s(kind, m, placed)),
        reason_mask=mask,
    )


def _hbm_s(kind: str, algorithm: str, message_bytes: NDArray, p: _Placed) -> NDArray:
    """Time in which a rank's share of HBM takes the reads and writes of a collective."""
    if p.levels[0].name != "chip":
        refuse("buffers", "hbm", f"accesses are documented for Neuron chips only, not for {p.where.chip_id}")
    passes = {"all_reduce": ("reduce_scatter", "all_gather"), "reduce_scatter": ("reduce_scatter",)}
    touches = {
        name: sum(load.value("neuron-runtime", "hbm_accesses_per_pair", f"{name}:{one}") for one in pair) / 2
        for pair in [passes.get(kind, ("all_gather",))]
        for name in ("ring", "kangaring")
    }
    paired = (p.counts[0] == p.levels[0].size) & (p.counts[0] > 1) & (algorithm in RINGS)
    share = p.where.chip.hbm_bytes_per_s / p.levels[0].size
    moved = message_bytes * (p.ranks - 1) / p.ranks
    return np.where(paired, touches["kangaring"], touches["ring"]) * moved / share


def exchange_s(
    kind: str,
    message_bytes: NDArray,
    where: System,
    ranks: NDArray,
    stride: NDArray,
    lnc: int | None = None,
    alpha_s: Numeric | None = None,
) -> NDArray:
    """Time by the best algorithm alone, as `collective` has it, for callers in a hurry; NaN where none can run."""
    n, step = np.broadcast_arrays(ranks, stride)
    placed = _place(where, _levels(where, lnc, alpha_s), n, step, alpha_s)
    times = [formula(kind, message_bytes, placed) for name, formula in ALGORITHMS[kind].items() if name not in POLICIES]
    return np.where(n > 1, reduce(np.fmin, times), 0.0)


def group_bytes_per_s(where: System, ranks: NDArray, stride: NDArray, lnc: int | None = None) -> NDArray:
    """What a chip sends into the tiers that a group spans, pieces of the buffer in all of them; inf on one chip."""
    n, step = np.broadcast_arrays(ranks, stride)
    placed = _place(where, _levels(where, lnc, 0.0), n, step, 0.0)
    tiered = zip(placed.levels, placed.counts, placed.rates, strict=True)
    used = [np.where(count > 1, rate * placed.local, 0.0) for level, count, rate in tiered if level.name != "chip"]
    return np.where(placed.chips > 1, sum(used), np.inf)


def _levels(where: System, lnc: int | None, alpha_s: Numeric | None) -> tuple[Tier, ...]:
    levels = hierarchy(where, _lnc(where, lnc))
    if alpha_s is None and any(np.isnan(level.alpha_s) for level in levels):
        refuse("alpha_s", None, f"no hop latency is published for {where.id}; give one")
    if alpha_s is not None:
        numbers("alpha_s", alpha_s)
    return levels


def _lnc(where: System, lnc: int | None) -> int:
    choices = where.chip.lnc_choices
    if lnc is None:
        return where.chip.lnc_default
    if integer("lnc", lnc) not in choices:
        refuse("lnc", lnc, f"{where.chip.id} allows {choices}")
    return integer("lnc", lnc)


def _lower_bound_s(kind: str, message_bytes: NDArray, p: _Placed) -> NDArray:
    """What must cross the cut around one chip, and around one rank of a chip, at all their links' rate."""
    outside = sum(level.bytes_per_s_per_dir for level in p.levels if level.name != "chip") or np.inf
    sent = message_bytes * p.local if kind == "all_to_all" else message_bytes
    bound = collective_bounds.node_cut_bound_s(kind, sent, p.chips, outside) if np.isfinite(outside) else 0.0
    if p.levels[0].name == "chip":
        links = outside if np.isfinite(outside) else 0.0
        inside = collective_bounds.node_cut_bound_s(kind, message_bytes, p.local, p.rates[0] + links)
        bound = np.maximum(bound, inside)
    return np.where(p.ranks > 1, bound, 0.0)


def graph_barrier_s(ranks: Numeric, runtime: str = "neuron-runtime-trn2") -> NDArray:
    r"""Fixed cost of executing a graph that holds a collective, however many it holds: the runtime's barrier.

    .. math:: t = t_0 + t_1\log_2 n \quad (n > 2)

    Parameters
    ----------
    ranks : numeric
        Ranks of the group, n. [-]
    runtime : str
        "neuron-runtime-trn2" or "neuron-runtime-trn1". [-]

    Returns
    -------
    barrier_s : numeric
        Time of a graph with one small collective. Groups of two pay none: what was measured for them, or nothing. [s]

    Raises
    ------
    ValueError
        Unknown runtime; ranks below one.

    Notes
    -----
    Base and step are fitted to 4-64 ranks of Trn2 (within 2 %) and 8-32 of Trn1; beyond them the line goes on.

    Examples
    --------
    >>> round(float(graph_barrier_s(64)) * 1e3, 2)
    2.99
    """
    ranks = numbers("ranks", ranks, 1)
    choice("runtime", runtime, tuple(RUNTIMES.values()))
    base, step, pair = (load.value(runtime, f"graph_barrier_{part}_s") for part in ("base", "step", "pair"))
    return np.where(np.greater(ranks, 2), base + step * np.log2(ranks), np.where(np.equal(ranks, 2), pair, 0.0))
