"""Terms of a step, of the memory of a rank, and of a collective."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from trnmodel.explained.trees import Branch, Part, Written, made, quotient, single, summed
from trnmodel.fabric.collectives import Collective
from trnmodel.steps.answers import MemoryFit, Step
from trnmodel.steps.assemble import Load, Message, load, message_s, ranks_of
from trnmodel.steps.questions import StepQuestion
from trnmodel.steps.setting import Setting
from trnmodel.units import format_digits, format_quantity

STEP = "time of the step"
PRODUCTS, WEIGHTS = "matrix products", "reads of weights"
SCORES, CACHE = "attention products", "reads of the cache"
OWN, EXCHANGES, COSTS = "own work of a rank", "exchanges between ranks", "fixed costs"
COST_FORMULAS = {  # of a line of costs, in words
    "expert routing": "layers with experts x what a core takes to route the tokens",
    "logits to the host": "bytes of logits / rate to the host",
    "weights to another format": "elements x passes / rate of the vector engines",
    "layers": "layers x fixed cost of a layer",
    "layers without experts": "layers without experts x fixed cost of such a layer",
    "graphs": "graphs x doublings of the ranks x what each doubling adds",
    "sequences": "sequences x fixed cost of a sequence",
    "experts one after another": "layers with experts x fixed cost of their experts",
    "step": "fixed cost of a step and of the server",
    "expert blocks": "blocks x fixed cost of a block",
    "scores": "bytes of scores / rate of HBM",
    "spills": "bytes that SBUF does not hold / rate of spills",
    "recurrence": "recurrent layers x tokens x fixed cost of a token",
}
KIND_FORMULAS = {  # of a kind of bytes that a rank stores
    "weight_bytes": "parameters of the fullest rank x bytes of each",
    "cache_bytes": "sequences x tokens x bytes of a token in the cache of a rank",
    "scratchpad_bytes": "activations of the largest execution, in whole pages",
    "collective_buffer_bytes": "buffers of the library of collectives",
    "ring_bytes": "layers x bytes of the DMA rings of a layer",
    "code_bytes": "layers x bytes of code of a layer + cores x microcode",
    "runtime_bytes": "what the process of a rank and its library keep",
}


class Overlap(NamedTuple):
    """Two times of which a share of the shorter hides behind the longer: how fast their joint time follows each."""

    first: float
    second: float
    share: float

    @property
    def slopes(self) -> tuple[float, float]:
        """Derivatives of the joint time with respect to the first and the second."""
        return (1.0, 1 - self.share) if self.first >= self.second else (1 - self.share, 1.0)

    @property
    def value(self) -> float:
        """The joint time."""
        return max(self.first, self.second) + (1 - self.share) * min(self.first, self.second)


def overlapping(first: str, second: str, share: float) -> str:
    """Return the formula of two times that overlap; one of them may be missing.

    Examples
    --------
    >>> overlapping("a", "b", 1.0), overlapping("a", "b", 0.0), overlapping("a", "b", 0.75), overlapping("", "b", 1.0)
    ('max(a, b)', 'a + b', 'max(a, b) + 0.25 x min(a, b)', 'b')
    """
    if not (first and second):
        return first or second
    if share == 0:
        return f"{first} + {second}"
    rest = f" + {format_digits(1 - share, 3)} x min({first}, {second})" if share < 1 else ""
    return f"max({first}, {second}){rest}"


def step_tree(step: Step) -> Branch:
    """Return the time of a step as a tree: own work, exchanges and fixed costs, down to amounts and rates.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 1, "context": 2048, "efficiencies": "ideal"}
    >>> tree = step_tree(tm.decode_step("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=2), **ask))
    >>> [part.branch.name for part in tree.parts]
    ['own work of a rank', 'exchanges between ranks']
    """
    q: StepQuestion = step.question.everywhere
    s, work = q.setting, q.step_work().work
    inner, outer = (single(share) for share in q.overlaps)
    level = single(s.level)
    own = _own_work(s, work, inner)
    sent = summed(EXCHANGES, "s", _distinct(_message_branch(s, one) for one in q.messages()))
    costs = summed(COSTS, "s", [_cost_branch(name, seconds) for name, (_, seconds) in work.costs.items()])
    own_slope, sent_slope = Overlap(own.value, sent.value, outer).slopes
    parts = [Part(own, own_slope * level), Part(sent, sent_slope * level), Part(costs, level)]

    def write(of: Written) -> str:
        own_text, sent_text, costs_text = (of(part.branch) if part.branch.value else "" for part in parts)
        whole = " + ".join(filter(None, [overlapping(own_text, sent_text, outer), costs_text]))
        return whole if level == 1 else f"{format_digits(level, 3)} x ({whole})"

    return made(STEP, "s", single(step.time_s), [part for part in parts if part.branch.value], write)


def _distinct(terms: Iterable[Branch]) -> list[Branch]:
    """Return terms by name, those of one name added up: kinds of layers may share one."""
    by_name: dict[str, Branch] = {}
    for term in terms:
        before = by_name.get(term.name)
        by_name[term.name] = term._replace(value=term.value + before.value) if before else term
    return list(by_name.values())


def _own_work(s: Setting, work: Any, overlap: float) -> Branch:
    """Return what a rank does by itself: products and reads, of weights and of the cache."""
    loads, r = [(b.name, load(b, s, work)) for b in s.listed.burdens], s.rates
    gathered = [(name, moved) for name, (moved, _) in work.costs.items()]
    linear = _amounts(loads, lambda one: one.linear_s, r.linear_flop_per_s)
    weights = _amounts(loads, lambda one: one.weights_s, r.weight_bytes_per_s, gathered)
    scores = _amounts(loads, lambda one: one.attend_s, r.pair_flop_per_s)
    terms = [
        _over_rate(PRODUCTS, "FLOP", linear, _linear(s)),
        _over_rate(WEIGHTS, "B", weights, _rate(s, f"rate of {WEIGHTS}", r.weight_bytes_per_s)),
        _over_rate(SCORES, "FLOP", scores, _pair(s)),
        _cache(s, work),
    ]
    return _overlapped(terms, overlap, single(s.e.phase_overlap) if s.phases_wait else 1.0)


def _overlapped(terms: list[Branch], overlap: float, together: float) -> Branch:
    """Return the time of products and reads; in a share of the step linear layers and attention hide each other's."""
    linear, weights, scores, cache = (one.value for one in terms)
    joined = Overlap(linear + scores, weights + cache, overlap)
    layers, attention = Overlap(linear, weights, overlap), Overlap(scores, cache, overlap)
    apart = (*layers.slopes, *attention.slopes)
    slopes = [together * a + (1 - together) * b for a, b in zip((*joined.slopes, *joined.slopes), apart, strict=True)]
    value = together * joined.value + (1 - together) * (layers.value + attention.value)
    parts = [Part(term, slope) for term, slope in zip(terms, slopes, strict=True) if term.value]
    return made(OWN, "s", value, parts, lambda of: _own_text(terms, of, overlap, together))


def _own_text(terms: list[Branch], of: Written, overlap: float, together: float) -> str:
    """Return the formula of a rank's own work."""
    linear, weights, scores, cache = (of(one) if one.value else "" for one in terms)
    products, reads = (" + ".join(filter(None, some)) for some in ((linear, scores), (weights, cache)))
    joined = overlapping(products, reads, overlap)
    apart = " + ".join(filter(None, (overlapping(linear, weights, overlap), overlapping(scores, cache, overlap))))
    if together in (0.0, 1.0):
        return joined if together else apart
    return f"{format_digits(together, 3)} x ({joined}) + {format_digits(1 - together, 3)} x ({apart})"


def _amounts(
    loads: list[tuple[str, Load]], time_s: Callable[[Load], Any], rate: Any, more: Iterable[tuple[str, Any]] = ()
) -> list[tuple[str, float]]:
    """Return the amounts behind a time of each operator: FLOP, or bytes; `more` are amounts that no operator has."""
    own = [(name, single(time_s(one) * rate)) for name, one in loads]
    return own + [(name, single(amount)) for name, amount in more]


def _over_rate(name: str, unit: str, amounts: list[tuple[str, float]], rate: Branch) -> Branch:
    """Return the time of amounts of several operators at one rate."""
    word = "work" if unit == "FLOP" else "bytes"
    terms = _distinct(Branch(f"{word} of {one}", "", "", value, unit) for one, value in amounts)
    return quotient(name, "s", summed(f"{word} of {name.removeprefix('reads of ')}", unit, terms), rate)


def _cache(s: Setting, work: Any) -> Branch:
    """Return the reads of the cache and, at a rate of their own, those of states."""
    loads = [(b.kind, b.name, load(b, s, work)) for b in s.listed.burdens]
    attention = [(name, one) for kind, name, one in loads if kind != "state"]
    states = [(name, one) for kind, name, one in loads if kind == "state"]
    rates = s.rates.cache_bytes_per_s, s.rates.state_bytes_per_s
    terms = [
        _over_rate(name, "B", _amounts(some, lambda one: one.cache_s, rate), _rate(s, f"rate of {name}", rate))
        for name, some, rate in ((CACHE, attention, rates[0]), ("reads of states", states, rates[1]))
        if some
    ]
    return terms[0] if len(terms) == 1 else summed("reads of cache and states", "s", terms)


def _peak_branch(s: Setting, name: str, dtype: str, rate: Any, sparse: bool = False) -> Branch:
    """Return a rate of products: the peak of the chip over its ranks, and the share that the software reaches."""
    return _of_chip(s, name, f"peak of the chip in {dtype}", s.at.chip.peak(dtype, sparse), rate, "FLOP/s")


def _of_chip(s: Setting, name: str, what: str, whole: Any, rate: Any, unit: str) -> Branch:
    """Return a rate of a rank: that of the chip over its ranks, times the share that the software reaches."""
    value, peak, ranks = (single(x) for x in (rate, whole, s.at.ranks_per_chip))
    share = format_digits(value * ranks / peak, 4)
    formula = f"{what} / ranks of the chip x share that the software reaches"
    return Branch(name, formula, f"{format_quantity(peak, unit)} / {ranks:g} x {share}", value, unit)


def _linear(s: Setting) -> Branch:
    return _peak_branch(s, f"rate of {PRODUCTS}", s.precision.compute, s.rates.linear_flop_per_s, s.precision.sparse)


def _pair(s: Setting) -> Branch:
    return _peak_branch(s, f"rate of {SCORES}", s.precision.attention, s.rates.pair_flop_per_s)


def _rate(s: Setting, name: str, rate: Any) -> Branch:
    return _of_chip(s, name, "HBM bandwidth of the chip", s.at.chip.hbm_bytes_per_s, rate, "B/s")


def _message_branch(s: Setting, message: Message) -> Branch:
    """Return all collectives of one kind in a step."""
    value, many, size, ranks = (
        single(x)
        for x in (
            message_s(s, message),
            message.count,
            message.message_bytes,
            ranks_of(message, s.teams[message.group].ranks),
        )
    )
    kind = message.kind.replace("_", "-")
    each = format_quantity(value / many, "s", 3) if many else "0 s"
    values = f"{format_digits(many, 4)} x {each}, of {format_quantity(size, 'B', 3)} over {ranks:g} ranks"
    return Branch(message.name, f"number x time of one {kind}", values, value, "s")


def _cost_branch(name: str, seconds: Any) -> Branch:
    return Branch(f"cost of {name}", COST_FORMULAS.get(name, ""), "", single(seconds), "s")


def memory_tree(fit: MemoryFit) -> Branch:
    """Return the bytes that an ordinary rank stores as the sum of their kinds.

    Examples
    --------
    >>> import trnmodel as tm
    >>> fit = tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=8192)
    >>> memory_tree(fit).value == float(fit.total_bytes)
    True
    """
    sizes = {name: single(getattr(fit, name)) for name in KIND_FORMULAS}
    kinds = [
        Branch(f"{name.removesuffix('_bytes').replace('_', ' ')} bytes", text, "", sizes[name], "B")
        for name, text in KIND_FORMULAS.items()
    ]
    return summed("bytes of a rank", "B", kinds)


def collective_tree(one: Collective) -> Branch:
    """Return the time of a collective: its exchange, and the launch by the host where one is counted.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tree = collective_tree(tm.collective("all_reduce", 2**20, "trn2.48xlarge"))
    >>> [part.branch.name for part in tree.parts]
    ['exchange', 'launch by the host']
    """
    launch, size, ranks = (single(x) for x in (one.question.launch_s, one.message_bytes, one.ranks))
    value = single(one.time_s)
    algorithm = str(np.ravel(one.algorithm)[0]).replace("_", " ")
    values = f"{format_quantity(size, 'B', 3)} over {ranks:g} ranks"
    exchange = Branch("exchange", f"{algorithm} on the tiers that the ranks span", values, value - launch, "s")
    return summed("time of the collective", "s", [exchange, Branch("launch by the host", "", "", launch, "s")])
