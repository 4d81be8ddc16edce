"""How far a prediction may be off: which rows a question has, how far it lies from them, and the width that this gives.

`catalog.bands` reads the rows with their left-out errors and the widths of their groups, and `neighbours` compares them
with a question. A point is "measured" where a row lies at it that its band reaches, "interpolated" where one row is
within a factor of two on every axis, and else "extrapolated". Its half-width is the scale of the errors around it,
times what 90 % of all errors over their scale reach, times what the distance to the nearest row adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.bands import outliers, read
from trnmodel.catalog.posterior import TAIL, Posterior
from trnmodel.catalog.specs import Chip, Spec
from trnmodel.catalog.stacks import Efficiencies, Part, basis
from trnmodel.catalog.systems import System, chip_of
from trnmodel.neighbours import ABSENT_OCTAVES, STEP, UNSTATED_GROWTH, Near, Rows
from trnmodel.result import BASES, Basis, Texts

EXTRAPOLATED = BASES.index("extrapolated")
ABOUT = {"kind": "model", "chip": "chip", "stack": "stack"}  # how a reason calls a label that no row has
UNSTATED = "stated: columns that matter are not"
MEMORY, STORED = "memory", "stored bytes"  # parts of a footprint's rows: as printed, and as shares of all bytes
FEW = 20_000  # answers of stacks with a value at an end each, up to which they are computed at once
Moved = TypeVar("Moved", bound=Spec)


@cache
def _shipped() -> Rows:
    return Rows(*read())


@lru_cache(maxsize=2048)
def near(part: str, kind: str, chip: str, stack: str) -> Near:
    """Return the rows of `data/` that are nearest to a question.

    Examples
    --------
    >>> near("decode", "dense", "trainium3", "nxd-inference").absent
    ('chip',)
    """
    return _shipped().near(part, kind, chip, stack)


def lacks(here: Near, part: str, kind: str, chip: str, stack: str) -> list[str]:
    """Return the reasons why no measured row has the kind, chip or stack of a question."""
    reasons = {"kind": f"model: no {part} row" + ("" if kind == part else f" of {kind} models")}
    reasons["chip"] = f"chip: no {part} row" + ("" if "stack" in here.absent else f" of {stack}") + f" on {chip}"
    reasons["stack"] = f"stack: no {part} row of {stack}" + ("" if "chip" in here.absent else f" on {chip}")
    return [text for name, text in reasons.items() if name in here.absent]


def judged(
    here: Near, points: Mapping[str, Any], before: Iterable[str] = (), lacks: Iterable[str] = (), unknown: Any = 0
) -> Basis:
    """Word, reason and half-width of points by the rows near them; `before` are reasons that hold for all points.

    A reason begins with what it is about ("chip: ..."): of two reasons about one thing the first is used. `unknown`
    counts the columns of each point that matter and were not stated; each widens the band by a factor.

    Examples
    --------
    >>> from trnmodel.catalog.bands import Width
    >>> labels = {name: np.array(["mine"] * 2, dtype=object) for name in ("group", "part", "kind", "chip", "stack")}
    >>> values = np.array([[8.0, 8.0], [1.0, 16.0], [1024.0, 1024.0], [8e9, 8e9]])
    >>> errors = {"source": np.array(["a", "b"]), "log_error": np.array([0.1, -0.1]), "unknown": np.zeros(2)}
    >>> rows = Rows(labels, values, errors, {"mine": Width("mine", "mine", 2, 2, 0.1, 0.1, 2.0, 2.0, 2.0)})
    >>> at = {"ranks": 8, "batch": [1, 2, 64], "length": 1024, "size": 8e9}
    >>> found = judged(rows.near("mine", "mine", "mine", "mine"), at)
    >>> found.word.tolist(), found.reason[2], found.width[0].round(3)
    (['measured', 'interpolated', 'extrapolated'], "batch: 4.0 times the nearest row's 16", np.float64(0.2))
    """
    reasons = _reasons(before, lacks)
    judgement = _unstated(_judgement(here, points, reasons), np.asarray(unknown) > 0)
    return _basis(judgement, *_widths_at(here, points, reasons, unknown))


def _unstated(judgement: Judgement, which: NDArray) -> Judgement:
    """Return a judgement that is extrapolated where a column that matters is not stated: nobody knows the point."""
    if not which.any():
        return judgement
    word, reason = judgement
    shape = np.broadcast_shapes(np.shape(word.places), which.shape)
    places = np.where(which, EXTRAPOLATED, np.broadcast_to(word.places, shape))
    more = tuple("; ".join(filter(None, (UNSTATED, text))) for text in reason.texts)
    at = np.broadcast_to(reason.places, shape)
    return Judgement(
        Texts(places, word.texts), Texts(np.where(which, at + len(reason.texts), at), (*reason.texts, *more))
    )


class Judgement(NamedTuple):
    """Words and reasons of a basis as places in lists, so that those of a million points cost little."""

    word: Texts
    reason: Texts


def _basis(judgement: Judgement, width: Any, tails: Any) -> Basis:
    """Return a judgement with widths as a basis, a text at each point."""
    return Basis(judgement.word.each, judgement.reason.each, width, tails)


def _judgement_of(basis: Basis) -> Judgement:
    """Return words and reasons of a basis as places in lists."""
    texts = [np.asarray(text, dtype=object) for text in (basis.word, basis.reason)]
    unique = [np.unique(text, return_inverse=True) for text in texts]
    return Judgement(
        *(Texts(at.reshape(text.shape), tuple(few)) for text, (few, at) in zip(texts, unique, strict=True))
    )


def _judgement(here: Near, points: Mapping[str, Any], reasons: list[str]) -> Judgement:
    """Return what the rows near points say of them, `reasons` being those that hold for all points."""
    word = here.grounds(points)
    beyond = here.beyond(points, np.equal(word, EXTRAPOLATED))
    texts = tuple("; ".join(filter(None, (*reasons, text))) for text in beyond.texts)
    word = np.full(np.shape(word), EXTRAPOLATED) if reasons else word
    return Judgement(Texts(word, BASES), beyond._replace(texts=texts))


def _widths_at(
    here: Near, points: Mapping[str, Any], reasons: list[str], unknown: Any = 0
) -> tuple[Any, tuple[Any, Any] | None]:
    """Return the half-width at each point, and its tails where the chip has rows.

    What a reason is about and no row has counts as octaves to the rows; each column that nobody stated is a factor.
    """
    about = {reason.partition(":")[0] for reason in reasons}
    more = len(about.difference(ABOUT[name] for name in here.absent))
    scale, growth = here.spread(points, ABSENT_OCTAVES * more)
    local, of = scale * growth * UNSTATED_GROWTH ** np.asarray(unknown, dtype=float), here.width
    tails = (of.below * local, of.above * local) if here.tailed and "chip" not in about else None
    return of.width * local, tails


def _reasons(before: Iterable[str], lacks: Iterable[str]) -> list[str]:
    """Return the reasons that hold for all points; of two about one thing the first."""
    reasons = list(before)
    about = {reason.partition(":")[0] for reason in reasons}
    return reasons + [reason for reason in lacks if reason.partition(":")[0] not in about]


class Reach(NamedTuple):
    """What a band needs of a basis: which points are extrapolated, and the half-widths below and above of their rows.

    Of a million points it costs a part of the words and reasons.
    """

    outside: Any
    low: Any
    high: Any


def reach_of(basis: Basis) -> Reach:
    """Return what a band needs of a basis that is known."""
    return Reach(np.equal(basis.word, "extrapolated"), *basis.sides)


shipped_outliers = cache(outliers)


def _contradicting(key: tuple[str, str, str, str], points: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the rows that contradict their band and lie at some of the points, each with a mask of these."""
    few_first = sorted(points, key=lambda axis: np.size(points[axis]))
    for row, place in shipped_outliers().get(key, {}).items():
        here: Any = np.bool_(place.keys() == points.keys())
        for axis in few_first:
            if here.any():
                here = here & (np.abs(points[axis] - place[axis]) <= (STEP - 1) * place[axis])
        if here.any():
            yield row, here


def contradicted(basis: Basis, part: str, kind: str, chip: str, stack: str, points: Mapping[str, Any]) -> Basis:
    """Return a basis that is extrapolated where a measured row contradicts the band, with the id of the row.

    A row is at a point if it has a value within 1 % on each axis that is asked, and none on the others. The width of
    the band stays that of the rows. What is extrapolated anyway keeps its reasons alone.
    """
    judgement = _contradicted(_judgement_of(basis), (part, kind, chip, stack), points)
    return basis._replace(word=judgement.word.each, reason=judgement.reason.each)


def _contradicted(judgement: Judgement, key: tuple[str, str, str, str], points: Mapping[str, Any]) -> Judgement:
    """Return a judgement that is extrapolated where a measured row contradicts the band; one such row is named."""
    word, reason = judgement
    firm = np.array([text != "extrapolated" for text in word.texts])[word.places]
    known = len(reason.texts)
    for row, here in _contradicting(key, points):
        hit = here & firm
        if np.any(hit):
            word = Texts(np.where(hit, len(word.texts), word.places), (*word.texts, "extrapolated"))
            texts = reason.texts[:known]
            more = tuple("; ".join(filter(None, (f"contradicted by row {row}", text))) for text in texts)
            places = np.where(hit, reason.places + len(reason.texts), reason.places)
            reason, firm = Texts(places, (*reason.texts, *more)), firm & ~hit
    return Judgement(word, reason)


def stack_basis(e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any]) -> Basis:
    """Return what an answer of a stack on a chip rests on at each point: its rows, and those that contradict it."""
    first, here, before, lacking = _ground(Same(e), Same(chip), lnc, part, kind)
    widths = _widths_at(here, points, _reasons(before, lacking)) if here else (first.width, first.tails)
    return _basis(stack_judgement(e, chip, lnc, part, kind, points), *widths)


def stack_judgement(
    e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any]
) -> Judgement:
    """Return words and reasons of `stack_basis` alone, as places in lists."""
    first, here, before, lacking = _ground(Same(e), Same(chip), lnc, part, kind)
    if here is None and (first.word == "ideal" or e.posterior):
        return _judgement_of(first)
    judgement = _judgement(here, points, _reasons(before, lacking)) if here else _judgement_of(first)
    return _contradicted(judgement, (part, kind, chip.id, e.id), points)


def rows_basis(
    e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any], unknown: Any = 0
) -> Basis:
    """Return what the rows of a stack on a chip say of an answer at each point, with the half-width of these rows.

    The ideal stack has none, and neither has a hand-tuned one: of its parts the ranges count, and no row is of it.
    `unknown` is that of `judged`.
    """
    first, here, before, lacking = _ground(Same(e), Same(chip), lnc, part, kind)
    return judged(here, points, before, lacking, unknown) if here else first


def stack_reach(e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any]) -> Reach:
    """Return what a band needs of `stack_basis`, without a word or a reason."""
    first, here, before, lacking = _ground(Same(e), Same(chip), lnc, part, kind)
    if here is None:
        return reach_of(first)._replace(outside=np.True_) if e.posterior else reach_of(first)
    reasons = _reasons(before, lacking)
    width, tails = _widths_at(here, points, reasons)
    shape = np.broadcast_shapes(*map(np.shape, points.values()))
    if reasons:
        return Reach(np.broadcast_to(True, shape), *(tails or (width, width)))
    outside: Any = np.equal(here.grounds(points), EXTRAPOLATED)
    for _, there in _contradicting((part, kind, chip.id, e.id), points):
        outside = outside | there
    return Reach(np.broadcast_to(outside, shape), *(tails or (width, width)))


@lru_cache(maxsize=256)
def _ground(
    e: Same[Efficiencies], chip: Same[Chip], lnc: int, part: str, kind: str
) -> tuple[Basis, Near | None, tuple[str, ...], tuple[str, ...]]:
    """Return what no point changes: the basis of the stack, the rows near it, its reasons, and what the rows lack."""
    own: Part = "prefill" if part == "prefill" else "memory" if part in (MEMORY, STORED) else "decode"
    first = basis(e.it, chip.it, lnc, own)
    if first.word == "ideal" or e.it.kind == "hand-tuned":
        return first, None, (), ()
    if e.it.posterior and own != "memory":
        return e.it.posterior.wide(first, part), None, (), ()
    on = e.it.rows_of
    here = near(part, kind, chip.it.id, on)
    before = tuple(str(first.reason).split("; ")) if first.reason else ()
    return first, here, before, tuple(lacks(here, part, kind, chip.it.id, on))


def plain_basis(part: str, chip: str, stack: str, points: Mapping[str, Any]) -> Basis:
    """Return what a kernel or a collective rests on: rows of its chip and stack, and those that contradict it."""
    here = near(part, part, chip, stack)
    reasons = _reasons((), lacks(here, part, part, chip, stack))
    judgement = _contradicted(_judgement(here, points, reasons), (part, part, chip, stack), points)
    return _basis(judgement, *_widths_at(here, points, reasons))


def plain_rows_basis(part: str, chip: str, stack: str, points: Mapping[str, Any], unknown: Any = 0) -> Basis:
    """Return what the rows of a chip, and of how a kernel was written, say of a kernel or a collective.

    `unknown` is that of `judged`.
    """
    here = near(part, part, chip, stack)
    return judged(here, points, (), lacks(here, part, part, chip, stack), unknown)


@lru_cache(maxsize=4096)
def end_of(e: Moved, name: str, value: float) -> Moved:
    """Return a stack or fleet with one other value; the same object each time, as results are cached by object."""
    return e.moved({name: value})


@lru_cache(maxsize=256)
def variants(e: Spec, moves: tuple[tuple[tuple[str, float], ...], ...], dimensions: int) -> Any:
    """Return a spec whose values are arrays over `moves`, with that axis in front of `dimensions` others.

    Examples
    --------
    >>> e = variants(Efficiencies(id="mine"), ((), (("layer_s", 1e-6),)), 1)
    >>> e.shape, e.layer_s.ravel().tolist()
    ((2, 1), [0.0, 1e-06])
    """
    names = dict.fromkeys(name for move in moves for name, _ in move)
    values = {name: [dict(move).get(name, e.at(name)) for move in moves] for name in names}
    return e.moved({name: np.reshape(each, (-1, *[1] * dimensions)) for name, each in values.items()})


def ranged(
    e: Spec, ask: Callable[[Any], NDArray], at_once: bool = False, without: frozenset[str] = frozenset()
) -> tuple[NDArray, NDArray]:
    """Return the half-widths below and above that the ranges of a spec's values give an answer, each value moved alone.

    With `at_once`, a few answers are computed in one call, of a spec that holds arrays. Values `without` an effect on
    the answer are not moved.
    """
    middle = np.asarray(ask(e))
    known = getattr(e, "posterior", None)
    ranges = {name: ends for name, ends in e.open_ranges.items() if name not in without}
    shape = (len(ranges), 2, *middle.shape)
    if at_once and 0 < np.prod(shape) <= FEW:
        moves = tuple(((name, end),) for name, ends in ranges.items() for end in ends)
        every = np.asarray(ask(variants(e, moves, middle.ndim)))
        answers: Iterable = np.broadcast_to(every, (2 * len(ranges), *middle.shape)).reshape(shape)
    else:
        answers = ([ask(end_of(e, name, end)) for end in ends] for name, ends in ranges.items())
    return _posterior_widths(known, ranges, answers) if known else widths_of(middle, answers)


def _posterior_widths(
    known: Posterior, ranges: Mapping[str, tuple[float, float]], answers: Iterable[Iterable[Any]]
) -> tuple[NDArray, NDArray]:
    """Return the half-width, below and above, that constants give together whose logarithms vary with each other.

    The slope of an answer's logarithm with that of a constant is between the two ends of its range. Values that are in
    no calibration vary by themselves.
    """
    slopes = []
    for (low, high), (one, other) in zip(ranges.values(), answers, strict=True):
        slopes.append(np.log(np.asarray(other) / one) / np.log(high / low))
    places = {name: place for place, name in enumerate(known.names)}
    joint = np.array(
        [[known.matrix[places[a], places[b]] if {a, b} <= places.keys() else 0.0 for b in ranges] for a in ranges]
    )
    for at, (name, (low, high)) in enumerate(ranges.items()):
        if name not in places:
            joint[at, at] = (np.log(high / low) / 2 / TAIL) ** 2
    each = np.stack(slopes) if slopes else np.zeros((0, 1))
    variance = np.einsum("i...,ij,j...->...", each, joint, each)
    width = TAIL * np.sqrt(np.maximum(variance, 0.0))
    return width, width


def _log_excess(high: NDArray, low: NDArray) -> NDArray:
    """Return the logarithm of how many times one is the other, 0 where it is less."""
    ratio = np.asarray(high / low)
    np.maximum(ratio, 1.0, out=ratio)
    return np.asarray(np.log(ratio, out=ratio))


def _squared(x: NDArray) -> NDArray:
    """Return the squares of an array of its own, in its place."""
    return np.multiply(x, x, out=x)


def side_widths(middle: NDArray, times: NDArray) -> tuple[NDArray, NDArray]:
    """Return the half-widths below and above from answers along a first axis: the low and the high end of each value.

    Examples
    --------
    >>> below, above = side_widths(np.array(1.0), np.array([0.5, 2.0, 1.0, 1.0]))
    >>> round(float(below), 3), round(float(above), 3)
    (0.693, 0.693)
    """
    least, most = np.minimum(times[::2], times[1::2]), np.maximum(times[::2], times[1::2])
    below, above = _log_excess(middle, least), _log_excess(most, middle)
    return np.sqrt((below**2).sum(axis=0)), np.sqrt((above**2).sum(axis=0))


def widths_of(middle: NDArray, answers: Iterable[Iterable[Any]]) -> tuple[NDArray, NDArray]:
    """Return the half-widths below and above of answers, from those with each value at its low and at its high end."""
    below, above = np.zeros(middle.shape), np.zeros(middle.shape)
    for one, other in answers:
        below += _squared(_log_excess(middle, np.minimum(one, other)))
        above += _squared(_log_excess(np.maximum(one, other), middle))
    return np.sqrt(below)[()], np.sqrt(above)[()]


def spread(basis: Basis, e: Spec, ask: Callable[[Any], NDArray], at_once: bool = False) -> tuple[NDArray, NDArray]:
    """Return the half-widths below and above of answers, from their rows and, outside these, from the stack's ranges.

    Inside, what a range says is part of the errors that were left out. `at_once` is that of `ranged`.
    """
    return joined(reach_of(basis), lambda: ranged(e, ask, at_once))


def joined(reach: Reach, ranged: Callable[[], tuple[NDArray, NDArray]]) -> tuple[NDArray, NDArray]:
    """Return the half-widths below and above of answers, from a reach and, outside of the rows, from ranges."""
    outside, low, high = reach
    if not np.any(outside):
        shape = np.broadcast_shapes(np.shape(outside), np.shape(low))
        return np.broadcast_to(low, shape)[()], np.broadcast_to(high, shape)[()]
    below, above = ranged()
    return _joint(low, np.where(outside, below, 0.0)), _joint(high, np.where(outside, above, 0.0))


def with_assumed(
    widths: tuple[Any, Any], where: System | Chip, ask: Callable[[System | Chip], NDArray]
) -> tuple[Any, Any]:
    """Return half-widths joined with those that the assumed rates of a system on a roadmap give, each moved alone.

    A system whose chip is built has none: its half-widths are returned as they are.
    """
    if not chip_of(where).ratios_to:
        return widths
    ends = (map(ask, pair) for pair in _assumed_ends(Same(where)))
    below, above = widths_of(np.asarray(ask(where)), ends)
    return _joint(widths[0], below), _joint(widths[1], above)


@lru_cache(maxsize=256)
def _assumed_ends(where: Same[System | Chip]) -> tuple[tuple[System | Chip, System | Chip], ...]:
    """Return a system with each of its open rates, and of those of its chip, at the low and at the high end."""
    one, chip = where.it, chip_of(where.it)
    pairs = [tuple(moved if one is chip else replace(one, chip=moved) for moved in ends) for ends in _rate_ends(chip)]
    return tuple(pairs if one is chip else [*pairs, *_rate_ends(one)])


def _rate_ends(spec: Spec) -> Iterator[tuple[Any, Any]]:
    """Yield a spec with each open rate of bytes at its low and at its high end."""
    for name, (low, high) in spec.open_ranges.items():
        if "bytes_per_s" in name:
            yield spec.moved({name: low}), spec.moved({name: high})


def _joint(one: Any, other: Any) -> Any:
    """Joint width of two, as `joint_width` has it, of widths that need no check."""
    return np.sqrt(one * one + other * other)[()]
