"""The collective engine: the time of a message on a group of ranks, by the fastest algorithm that may carry it.

A message's time is an algorithm on the tiers that its group spans. Most algorithms are lines in the message (a start-up
and a time per byte), which are stored for each group; the engine takes the least. `tm.collective` and the network time
of steps come from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import HUGE, TINY, Same, choice, numbers, refuse, share, together
from trnmodel.bands import plain_basis, plain_rows_basis, with_assumed
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip, shapes
from trnmodel.catalog.stacks import IDEAL, Efficiencies
from trnmodel.catalog.stacks import find as find_stack
from trnmodel.catalog.systems import System, chip_of
from trnmodel.catalog.systems import system as find_system
from trnmodel.declared import MACHINE, STACK, Checked, Flag, Integer, Named, Numbers, Word, declare
from trnmodel.fabric.algorithms import ALGORITHMS, CONVEX, CURVED, POLICIES, Algorithm, in_graph
from trnmodel.fabric.groups import SPECS, Group, hierarchy, place
from trnmodel.fabric.limits import hbm_s, lower_bound_s, passes_s
from trnmodel.formulas.bounds import busbw_bytes_per_s
from trnmodel.result import Basis, Grounded, blank, reason_mask
from trnmodel.units import Numeric

Value = NDArray | float
Placed = tuple[Value, Value, int]  # ranks, their stride and the logical core
WIRES = 4096  # of one fabric and stack that are stored
BUFFERS = ("sbuf", "hbm")
LAUNCHED = "host"  # what measured rows of NeuronCores that hold a launch are called
MOST_CHIPS_OF_A_GROUP = 1e27  # of up to a thousand ranks each, beyond which no number goes
NEVER = ((np.nan, np.nan),)  # the line of what cannot run
FAR_BYTES = 2.0**60  # where a line's slope is read off
MOST_BYTES = 1e24  # at which an algorithm is tried
TOUCHES = 1e-13  # share of a time, up to which a line touches a curve
TIED = 1e-12  # share of a time, up to which the first of two algorithms is named


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CollectiveQuestion:
    """What a call of `collective` asks, with names resolved, numbers checked and defaults filled in.

    No `efficiencies` are those of no software stack; an `alpha_s` of None is the documented latency of each tier. A
    `rate_share` of None is what the software of the chip reaches.
    """

    kind: str
    message_bytes: NDArray
    system: System | Chip
    ranks: NDArray
    algorithm: str
    alpha_s: Numeric | None
    lnc: int
    stride: NDArray
    launch_s: NDArray
    rate_share: NDArray | None
    buffers: str
    efficiencies: Efficiencies | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Collective(Grounded):
    """Time of a collective, with the algorithm that gave it and a bound from the graph."""

    REASONS: ClassVar[tuple[str, ...]] = (
        "more ranks than the system has",
        "the algorithm cannot run on this many ranks",
    )
    UNBANDED: ClassVar[tuple[str, ...]] = ("ranks", "message_bytes")

    kind: str
    system: System | Chip
    ranks: NDArray
    message_bytes: NDArray
    algorithm: NDArray | str
    time_s: NDArray
    lower_bound_s: NDArray
    question: CollectiveQuestion

    def judge(self) -> Basis:
        """Return what the times rest on: measured collectives of the chip."""
        points, chip = {"ranks": self.ranks, "size": np.maximum(self.message_bytes, 1.0)}, chip_of(self.system)
        launched = chip.core is not None and bool(np.any(self.question.launch_s))
        if launched:  # the launch, of which the rows hold several, is on no axis
            return plain_rows_basis("collective", chip.id, LAUNCHED, points, unknown=1)
        return plain_basis("collective", chip.id, "", points)

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of the rows, with those of assumed rates where the system is on a roadmap."""
        return with_assumed(
            self.judge().sides, self.system, lambda at: _timed(replace(self.question, system=at)).time_s
        )

    @property
    def busbw_bytes_per_s(self) -> NDArray:
        """Rate scaled to the wire as NCCL's and Neuron's tests print it; NaN for one rank, and where no time passes."""
        timeless = np.equal(self.ranks, 1) | np.equal(self.time_s, 0)
        time = np.where(timeless, np.nan, self.time_s)
        return busbw_bytes_per_s(self.kind, self.message_bytes, np.maximum(self.ranks, 2), time)


def candidates(kind: str, e: Efficiencies | None = None, algorithm: str = "best") -> dict[str, Algorithm]:
    """Return the algorithms of which the fastest is taken: one by name, a fitted stack's in-graph ones, or all."""
    if algorithm != "best":
        return {algorithm: ALGORITHMS[kind][algorithm]}
    free = {name: formula for name, formula in ALGORITHMS[kind].items() if name not in POLICIES}
    if e is None or not _runs_in_graph(kind, e, algorithm):
        return free
    if np.all(e.hop_s):
        return in_graph(e)
    fitted = np.not_equal(e.hop_s, 0)
    parts = (free, ~fitted), (in_graph(e), fitted)
    return {name: _only(formula, here) for formulas, here in parts for name, formula in formulas.items()}


def _runs_in_graph(kind: str, e: Efficiencies | None, algorithm: str) -> bool:
    """Whether in-graph algorithms of a fitted stack are candidates."""
    return algorithm == "best" and kind == "all_reduce" and e is not None and bool(np.any(e.hop_s))


def _only(algorithm: Algorithm, here: NDArray) -> Algorithm:
    """Return the algorithm where it is a candidate; elsewhere it cannot run."""

    def time_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
        return np.where(here, algorithm(kind, message_bytes, p), np.nan)

    return time_s


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """A group on the tiers of a fabric with its algorithms: lines by their start-up and time per byte, then curves.

    `least` are those that no other stays below everywhere. No fitted exchange beats its `floor`, which has no start-up.
    """

    group: Group
    names: tuple[str, ...]
    start_s: NDArray
    s_per_byte: NDArray
    curved: tuple[Algorithm, ...]
    least: tuple[tuple[Value, Value], ...]
    latency_is_unknown: bool
    floor: Wire | None = None

    def times_s(self, kind: str, message_bytes: NDArray) -> NDArray:
        """Return the time by the fastest algorithm that can run, in seconds; NaN where none can."""
        best: Any = np.nan
        for start, slope in self.least:
            best = np.fmin(best, start + slope * message_bytes)
        for algorithm in self.curved:
            best = np.fmin(best, algorithm(kind, message_bytes, self.group))
        return np.maximum(best, self.floor.times_s(kind, message_bytes)) if self.floor else best

    @property
    def apart(self) -> list[Wire]:
        """The wires of many groups that have no curves, one by one."""
        floors = self.floor.apart if self.floor else [None] * len(self.start_s)
        lines = zip(self.start_s, self.s_per_byte, floors, strict=True)
        return [replace(self, start_s=a, s_per_byte=b, least=_least(a, b), floor=floor) for a, b, floor in lines]

    def each_s(self, kind: str, m: NDArray) -> NDArray:
        """Return the times of all algorithms in seconds, on a last axis in the order of their names.

        A time is NaN where an algorithm cannot run.
        """
        lines = self.start_s + self.s_per_byte * m[..., None]
        lines = np.maximum(lines, self.floor.times_s(kind, m)[..., None]) if self.floor else lines
        if not self.curved:
            return lines
        curves = [algorithm(kind, m, self.group)[..., None] for algorithm in self.curved]
        shape = np.broadcast_shapes(*(each.shape[:-1] for each in (lines, *curves)))
        return np.concatenate([np.broadcast_to(each, (*shape, each.shape[-1])) for each in (lines, *curves)], -1)


def _wire(
    where: System | Chip,
    e: Efficiencies | None,
    kind: str,
    algorithm: str,
    placed: Placed,
    alpha_s: Numeric | None,
    ideal: Wire | None = None,
) -> Wire:
    """Lay the wire of ranks, their stride and the logical core; all but curves are read off at two messages.

    `ideal` is the wire of the same ranks without start-ups, where a cache holds it for all stacks.
    """
    ranks, stride, lnc = placed
    group = place(where, np.asarray(ranks), np.asarray(stride), lnc, alpha_s)
    if e is None and alpha_s is None and group.alpha_is_unknown:
        _refuse_unknown_latency(where)
    formulas, straight = candidates(kind, e, algorithm), {}
    alone = not any(np.asarray(x).shape for x in (ranks, stride, alpha_s)) and where.shape == () == (e or IDEAL).shape
    for name, formula in formulas.items():
        line = _line(formula, kind, group, alone)
        if name not in CURVED or (name in CONVEX and _touches(line, formula, kind, group)):
            straight[name] = line
    curved = tuple(formula for name, formula in formulas.items() if name not in straight)
    every = np.broadcast_arrays(*(x for line in straight.values() for x in line))
    start, slope = (np.stack(every[i::2], -1) if every else np.zeros((0,)) for i in (0, 1))
    names = (*straight, *(name for name in formulas if name not in straight))
    unknown = group.alpha_is_unknown and not names[0].startswith("in_graph")
    floor = None
    if _runs_in_graph(kind, e, algorithm):
        floor = ideal or _wire(where, IDEAL, kind, "best", placed, 0.0)
    return Wire(group, names, start, slope, curved, _least(start, slope), unknown, floor)


def _refuse_unknown_latency(where: System | Chip) -> NoReturn:
    """Raise ValueError with the row that is missing: the latency of a chip's hop, or of the scale-out network."""
    chip = chip_of(where)
    lacking = f"{chip.id},hop_s" if np.any(np.isnan(chip.hop_s)) else f"{where.id},scaleout_hop_s"
    why = f"no hop latency is published for {where.id}, data/facts has no row of {lacking}"
    refuse("alpha_s", None, f"{why}; allowed are the time of a step in s, or efficiencies='ideal' or a stack's")


def _line(formula: Algorithm, kind: str, group: Group, alone: bool) -> tuple[NDArray, NDArray]:
    """Return start-up in s and time per byte in s/B of a formula that is a line in the message.

    `alone` is whether there is one group, not an array of them.
    """
    m = np.array([0.0, FAR_BYTES])
    start, far = np.broadcast_to(formula(kind, m, group), 2) if alone else (formula(kind, x, group) for x in m)
    return start, (far - start) / FAR_BYTES


def _touches(line: tuple[NDArray, NDArray], formula: Algorithm, kind: str, group: Group) -> bool:
    """Tell whether a formula that is the largest of some lines is this one: then it touches it everywhere.

    It is tried where the start-up takes as long as the bytes, where no difference is lost.
    """
    start, slope = line
    between = np.where(start < slope * MOST_BYTES, start / np.maximum(slope, TINY), MOST_BYTES)
    times_s = formula(kind, between, group)
    return bool(np.all(np.isnan(times_s) | (np.abs(times_s - start - slope * between) <= TOUCHES * times_s)))


@lru_cache(maxsize=SPECS)
def _wires(where: Same, stack: Same) -> Callable[[str, str, float, float, int], Wire]:
    """Return the cache of wires of a fabric and a stack, by kind, algorithm, ranks, stride and logical core."""
    e = stack.it

    @lru_cache(maxsize=WIRES)
    def wire(kind: str, algorithm: str, ranks: float, stride: float, lnc: int) -> Wire:
        placed, ideal = (ranks, stride, lnc), None
        if _runs_in_graph(kind, e, algorithm):
            ideal = _wires(where, Same(IDEAL))(kind, "best", *placed)
        return _wire(where.it, e, kind, algorithm, placed, own_alpha_s(e, where.it), ideal)

    return wire


@lru_cache(maxsize=SPECS)
def _bounds(where: Same) -> Callable[[str, float, float, int], NDArray]:
    """Return the cache of bounds of a fabric's groups in s/B, by kind, ranks, stride and logical core."""

    @lru_cache(maxsize=WIRES)
    def bound(kind: str, ranks: float, stride: float, lnc: int) -> NDArray:
        return lower_bound_s(kind, np.ones(()), place(where.it, np.asarray(ranks), np.asarray(stride), lnc))

    return bound


def _least(start_s: NDArray, s_per_byte: NDArray) -> tuple[tuple[Value, Value], ...]:
    """Return the lines that no other line undercuts everywhere, or all lines of an array of specs.

    The only line is NaN where no algorithm can run.
    """
    if start_s.ndim > 1:
        return tuple(zip(np.moveaxis(start_s, -1, 0), np.moveaxis(s_per_byte, -1, 0), strict=True)) or NEVER
    lines = {pair for pair in zip(start_s.tolist(), s_per_byte.tolist(), strict=True) if not np.isnan(pair).any()}
    lowest = [a for a in lines if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in lines)]
    return tuple(sorted(lowest)) or NEVER


def own_alpha_s(e: Efficiencies | None, where: System | Chip) -> Numeric | None:
    """Return the latency that a stack brings, in seconds; None, or NaN for one of several, is the documented one.

    The ideal stack has no latency. Another stack has its own where none is documented for the fabric.
    """
    if e is None or (np.all(e.hop_s) and chip_of(where).core is not None):
        return None
    return e.hop_s if chip_of(where).core is None else np.where(np.equal(e.hop_s, 0), 0.0, np.nan)[()]


SPOKEN = """hop_s in_graph mesh_traffic_ratio rdh_traffic_ratio ring_traffic_ratio shot_rank_s shot_copies one_shot_s
    one_shot_rate_share two_shot_s two_shot_rate_share""".split()  # what an exchange takes from a stack


@lru_cache(maxsize=SPECS)
def _spoken(values: tuple[Any, ...]) -> Efficiencies:
    return Efficiencies(id="exchanges", **dict(zip(SPOKEN, values, strict=True)))


def _speaking(e: Efficiencies | None) -> Efficiencies | None:
    """One stack for all that send alike, so that their wires are laid once."""
    return e if e is None or e.shape else _spoken(tuple(getattr(e, name) for name in SPOKEN))


def times_s(
    kind: str,
    message_bytes: NDArray,
    where: System | Chip,
    ranks: Value,
    stride: Value,
    lnc: int,
    e: Efficiencies | None,
    index: NDArray | None = None,
) -> NDArray:
    """Return the time in seconds of one message in a group by the fastest algorithm of a stack; 0 for one rank.

    Groups of different sizes are few, however many points there are: each is placed on its tiers once. An `index` says
    which of the groups each message goes to.
    """
    e = _speaking(e)
    if np.ndim(ranks) == 0 and np.ndim(stride) == 0:
        alone = _wires(Same(where), Same(e))(kind, "best", float(ranks), float(stride), lnc) if ranks > 1 else None
        return alone.times_s(kind, message_bytes) if alone else 0.0 * message_bytes
    every, steps = np.broadcast_arrays(ranks, stride)
    plain = where.shape == () == (e or IDEAL).shape
    if plain and message_bytes.ndim == 0:
        of_groups_s = _at_once_s(kind, message_bytes, where, every + 1j * steps, lnc, e)
        return of_groups_s if index is None else of_groups_s[index]
    places: dict[tuple[float, float], int] = {}
    number = [places.setdefault(pair, len(places)) for pair in zip(every.flat, steps.flat, strict=True)]
    wires = _apart(kind, Same(where), Same(e), lnc, [*places])
    spread = _spread_s if plain else _spread_over_specs_s
    return spread(kind, wires, np.reshape(number, every.shape), message_bytes, index)


def _at_once_s(
    kind: str, message_bytes: NDArray, where: System | Chip, placed: NDArray, lnc: int, e: Efficiencies | None
) -> NDArray:
    """Return the times of one message in many groups of ranks + i stride; one wire is laid for all that differ."""
    pairs, index = np.unique(placed, return_inverse=True)
    times, several = np.zeros(pairs.size), pairs.real > 1
    wire = _wires_of_many(kind, Same(where), Same(e), lnc, pairs[several].tobytes())
    times[several] = wire.times_s(kind, message_bytes)
    return times[index].reshape(placed.shape)


@lru_cache(maxsize=SPECS)
def _wires_of_many(kind: str, where: Same, stack: Same, lnc: int, pairs: bytes) -> Wire:
    """Lay the wires of many groups at once; `pairs` are the bytes of their complex ranks + i stride."""
    ranks, stride = np.frombuffer(pairs).reshape(-1, 2).T
    ideal = _wires_of_many(kind, where, Same(IDEAL), lnc, pairs) if _runs_in_graph(kind, stack.it, "best") else None
    return _wire(where.it, stack.it, kind, "best", (ranks, stride, lnc), own_alpha_s(stack.it, where.it), ideal)


@lru_cache(maxsize=SPECS)
def _laid(kind: str, where: Same, stack: Same, lnc: int) -> dict[tuple[float, float], Wire | None]:
    """Return the wires of groups that have been placed so far, by ranks and stride; `_apart` adds to it."""
    return {}


def _apart(kind: str, where: Same, stack: Same, lnc: int, groups: list[tuple[float, float]]) -> list[Wire | None]:
    """Return the wires of groups by ranks and stride, None for one rank; a group is placed once for all questions."""
    laid = _laid(kind, where, stack, lnc)
    new = [group for group in groups if group not in laid]
    if not new:
        return [laid[group] for group in groups]
    placed = dict(zip(new, _placed(kind, where, stack, lnc, new), strict=True))
    if len(laid) + len(placed) <= WIRES:
        laid |= placed
    return [placed[group] if group in placed else laid[group] for group in groups]


def _placed(kind: str, where: Same, stack: Same, lnc: int, groups: list[tuple[float, float]]) -> list[Wire | None]:
    """Lay the wires of groups that differ, at once where all of them are lines of numbers."""
    several = [group for group in groups if group[0] > 1]
    if where.it.shape == () == (stack.it or IDEAL).shape and several:
        many = _wires_of_many(kind, where, stack, lnc, np.array(several, dtype=float).tobytes())
        if not (many.curved or (many.floor and many.floor.curved)):
            parts = iter(many.apart)
            return [next(parts) if n > 1 else None for n, _ in groups]
    one = _wires(where, stack)
    return [one(kind, "best", float(n), float(step), lnc) if n > 1 else None for n, step in groups]


def _spread_over_specs_s(
    kind: str, wires: list[Wire | None], which: NDArray, message_bytes: NDArray, index: NDArray | None
) -> NDArray:
    """Return the same times where a wire has a line for each of an array of specs."""
    which, best = which if index is None else which.take(index, mode="clip"), np.array(np.nan)
    for number, wire in enumerate(wires):
        own = wire.times_s(kind, message_bytes) if wire else 0.0 * message_bytes
        best = np.where(which == number, own, best)
    return best


def _spread_s(
    kind: str, wires: list[Wire | None], which: NDArray, message_bytes: NDArray, index: NDArray | None
) -> NDArray:
    """Return the times of messages of which each goes to one of some groups; a group of one rank has no wire."""

    def each(values: NDArray) -> NDArray:
        return values[which] if index is None else values[which].take(index, mode="clip")

    lines, best = [wire.least if wire else ((0.0, 0.0),) for wire in wires], np.array(np.nan)
    for turn in range(max(map(len, lines))):
        start, slope = np.array([own[min(turn, len(own) - 1)] for own in lines]).T
        best = np.fmin(best, each(start) + each(slope) * message_bytes)
    for number, wire in enumerate(wires):
        if wire and wire.curved:
            here = np.broadcast_to(each(np.arange(len(wires)) == number), best.shape)
            best[here] = wire.times_s(kind, np.broadcast_to(message_bytes, best.shape)[here])
    floors = [wire.floor if wire else None for wire in wires]
    return np.maximum(best, _spread_s(kind, floors, which, message_bytes, index)) if any(floors) else best


@declare(
    kind=Named("a kind of collective"),
    message_bytes=Numbers(),
    system=MACHINE,
    ranks=Numbers(1, whole=True),
    algorithm=Checked("best, or the name of an algorithm of the kind", {"type": "string"}),
    alpha_s=Numbers(),
    lnc=Integer(),
    stride=Numbers(1, whole=True),
    launch_s=Numbers(),
    rate_share=Numbers(TINY, 1),
    buffers=Word(BUFFERS),
    chips=Numbers(1, MOST_CHIPS_OF_A_GROUP, whole=True),
    efficiencies=STACK,
    in_graph=Flag(),
)
def collective(
    kind: str,
    message_bytes: Numeric,
    system: str | System | Chip,
    ranks: Numeric | None = None,
    algorithm: str = "best",
    alpha_s: Numeric | None = None,
    lnc: int | None = None,
    stride: Numeric = 1,
    launch_s: Numeric | None = None,
    rate_share: Numeric | None = None,
    buffers: str = "sbuf",
    chips: Numeric | None = None,
    efficiencies: str | Efficiencies | None = None,
    in_graph: bool | None = None,
) -> Collective:
    """Time of one collective on a system, tier by tier.

    Parameters
    ----------
    kind : str
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast" or "p2p", or a name that a source uses
        for it, such as "AllReduce" or "allr". [-]
    message_bytes : numeric
        Full buffer on a rank: gathered output, reduce-scatter input, all-to-all send buffer. [B]
    system : str, System or Chip
        Whose fabric; of a bare chip there are as many as wanted. [-]
    ranks : numeric, optional
        Logical NeuronCores (or GPUs) that take part; they fill chips first, then the fabric. Default: all. [-]
    algorithm : str
        "best" for the fastest at each point, one by name ("ring", "halving_doubling", "one_shot", "tiers_at_once",
        "multiport_bucket", "mesh", ...: see `fabric.algorithms`), or "neuron" for what AWS's library picks. [-]
    alpha_s : numeric, optional
        Start-up time of a step, on every tier. Default: documented latencies of a NeuronLink hop, of the switches on
        the way and of EFA. [s]
    lnc : int, optional
        Physical cores of a rank. Default: the chip's. [-]
    stride : numeric, optional
        Ranks from one member of the group to the next; the groups between them run at the same time. [-]
    launch_s : numeric, optional
        Time that the call by the host adds, once. Default: 0 in a graph, else that of the chip: of torch.distributed on
        NeuronCores (other software: `fabric.runtime.launch_s`), of NCCL on GPUs. [s]
    rate_share : numeric, optional
        Share of the fabric's rates that the software reaches, above 0, at most 1. Default: that of the chip, 1 within a
        software stack. On NeuronCores the default is all of the fabric's rates and, without a software stack, the
        chip's `collective_pass_bytes_per_s` beside them, which a given share replaces: 1 is the fabric alone. [-]
    buffers : {"sbuf", "hbm"}
        Where data waits between steps: "sbuf" leaves the links alone to bound, "hbm" adds the reads and writes of HBM
        that AWS documents for rings and KangaRing. [-]
    chips : numeric, optional
        Whole chips that take part with all their ranks, instead of `ranks`. [-]
    efficiencies : str or Efficiencies, optional
        Software stack whose steps send this message, with its in-graph all-reduces and its latency: "public" (the
        chip's own), "hand-tuned", "ideal" (no latency), an id, or an object. Default: none, with documented latencies
        and the rates that were measured outside a stack. [-]
    in_graph : bool, optional
        Whether the collective runs inside a graph, so that no launch is counted. Default: within a software stack it
        does, and without one it is a call from the host. [-]

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
    Assumes: full-duplex links, no congestion from other traffic. Ranks that do not fill their tiers evenly take the
    time of the next larger number that does. The fixed cost of a graph that holds a collective: `graph_barrier_s`.

    Examples
    --------
    >>> small, large = collective("all_reduce", [1024, 2**30], "trn2.48xlarge").algorithm
    >>> small, large
    ('one_shot', 'multiport_bucket')
    >>> host, graph = (collective("all_reduce", 1024, "trn2.48xlarge", in_graph=inside) for inside in (False, True))
    >>> bool(host.time_s == graph.time_s + __import__("trnmodel").chip("trainium2").collective_launch_s)
    True
    """
    kind = load.resolve("collective", kind, "kind")
    choice("algorithm", algorithm, ("best", *ALGORITHMS[kind]))
    where = system if isinstance(system, Chip) else find_system(system)
    chip = chip_of(where)
    e, lnc = None if efficiencies is None else find_stack(chip, efficiencies, "efficiencies"), chip.logical(lnc)
    sizes = _sizes(where, lnc, message_bytes, ranks, chips, stride)
    own_launch = 0.0 if (e is not None if in_graph is None else in_graph) else chip.collective_launch_s
    sizes["launch_s"] = numbers("launch_s", own_launch) if launch_s is None else np.asarray(launch_s)
    shared = np.ones(()) if rate_share is None else np.asarray(rate_share)
    alpha: Any = own_alpha_s(e, where) if alpha_s is None else alpha_s
    together(**sizes, rate_share=shared, alpha_s=np.zeros(np.shape(alpha)), **shapes(system=where, efficiencies=e))
    question = CollectiveQuestion(
        kind=kind,
        system=where,
        algorithm=algorithm,
        alpha_s=None if alpha_s is None else alpha,
        rate_share=None if rate_share is None else shared,
        lnc=lnc,
        buffers=buffers,
        efficiencies=e,
        **sizes,
    )
    return _timed(question)


def _rates(q: CollectiveQuestion) -> tuple[NDArray, NDArray]:
    """Return the share of the links that the software reaches, and the rate of a rank's DMA queues.

    A share that is given stands for both, and so does a software stack.
    """
    chip = chip_of(q.system)
    if q.rate_share is not None or q.efficiencies is not None:
        return np.asarray(1.0 if q.rate_share is None else q.rate_share), np.asarray(HUGE)
    passing = numbers("collective_pass_bytes_per_s", pass_bytes_per_s(chip, q.lnc), TINY)
    return share("rate_share", chip.collective_rate_share, TINY), passing


def pass_bytes_per_s(chip: Chip, lnc: int) -> Any:
    """Return the rate of a rank's DMA queues: of as many physical cores, or of the most below that were measured.

    Without a measured rate nothing but the links bounds.
    """
    sizes = [int(cores) for cores in chip.collective_pass_bytes_per_s]
    below = [cores for cores in sizes if cores <= lnc] or sizes
    return chip.collective_pass_bytes_per_s[str(max(below))] if below else HUGE


def _timed(q: CollectiveQuestion) -> Collective:
    """Return the answer to a checked question."""
    kind, where, e, lnc = q.kind, q.system, q.efficiencies, q.lnc
    alpha = own_alpha_s(e, where) if q.alpha_s is None else q.alpha_s
    given = q.message_bytes, q.ranks, q.stride, q.launch_s
    m, n, step, launch, reached, passing = np.broadcast_arrays(*given, *_rates(q))
    if q.alpha_s is None and not q.ranks.ndim and not q.stride.ndim:
        placed = float(q.ranks), float(q.stride), lnc
        wire, bound = _wires(Same(where), Same(e))(kind, q.algorithm, *placed), _bounds(Same(where))(kind, *placed) * m
    else:
        wire = _wire(where, e, kind, q.algorithm, (n, step, lnc), alpha)
        bound = lower_bound_s(kind, m, wire.group)
    group, names, times = wire.group, wire.names, wire.each_s(kind, m / reached)
    if alpha is None and wire.latency_is_unknown:
        _refuse_unknown_latency(where)
    if q.buffers == "hbm":
        bounds_s = np.broadcast_arrays(*(hbm_s(kind, name, m, group) for name in names))
        times = np.maximum(times, np.stack(bounds_s, -1))
    least = np.fmin.reduce(times, axis=-1)
    fastest = np.argmax(times <= least[..., None] * (1 + TIED), axis=-1)
    passed = passes_s(kind, m, group, passing) if np.any(passing < HUGE) else 0.0
    time = np.where(n > 1, np.maximum(least, passed) + launch, 0.0)
    mask = reason_mask(n * step > group.total, np.isnan(time))
    answered: dict[str, Any] = blank(mask, time_s=time, lower_bound_s=bound)
    return Collective(
        kind=kind,
        system=where,
        ranks=n,
        message_bytes=m,
        algorithm=np.asarray(names, dtype=object)[fastest],
        **answered,
        question=q,
        reason_mask=mask,
    )


def _sizes(
    where: System | Chip,
    lnc: int,
    message_bytes: Numeric,
    ranks: Numeric | None,
    chips: Numeric | None,
    stride: Numeric,
) -> dict[str, NDArray]:
    """Check the message, ranks and stride of a call; `chips` stand for all ranks on them, the default is all ranks."""
    levels = hierarchy(Same(where), lnc)
    step = np.asarray(stride)
    if ranks is not None and chips is not None:
        refuse("chips", chips, "allowed is one of ranks and chips")
    if chips is not None:
        per_chip = levels[0].size if levels and levels[0].name == "chip" else 1.0
        every = np.asarray(chips) * per_chip
    elif ranks is not None or isinstance(where, Chip):
        every = numbers("ranks", ranks, 1, whole=True)
    else:
        every = np.maximum(np.floor(np.prod([level.size for level in levels]) / step), 1)
    return {"message_bytes": np.asarray(message_bytes), "ranks": every, "stride": step}
