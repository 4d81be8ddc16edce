"""How far a prediction may be off: which rows a question has, how far it lies from them, and the width that this gives.

`catalog.bands` reads the rows and the widths of their groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from math import log2, nan
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.bands import AXES, Width, outliers, read
from trnmodel.catalog.specs import Chip, Spec
from trnmodel.catalog.stacks import Efficiencies, Part, basis
from trnmodel.formulas.bands import grown_width
from trnmodel.result import BASES, Basis, Texts, texts_of
from trnmodel.units import BILLION, format_digits

NAMES: Mapping[str, tuple[str, ...]] = {
    "kernel": ("lnc", "batch", "length", "bytes"),
    "collective": ("ranks", "batch", "length", "bytes"),
}  # as a reason calls the axes, by part
STEPS = ("ranks", "batch", "length", "active parameters")
# Octaves beyond the rows that widen nothing: fitted to rows of at most two ranks, or of small models, alone, dense
# decode beyond them is off by no more than inside. For how many octaves that holds is a judgement.
FREE = {"ranks": 3.0, "size": 3.0}
CROSSED = 64  # points for each value of an axis from which on values that lie alike to all rows are compared once
MOST = 2 * 10**6  # comparisons of points with rows at a time
FEW = 20_000  # answers of stacks with a value at an end each, up to which they are computed at once
MARK = np.int16  # of the ends of the axes, two bits each
STEP = 1.01  # ratio up to which two values of an axis are one
# Which of them may have no rows, the nearest case first. Each counts as two octaves, the step from one generation to
# the next: Trainium1 to Trainium2 is 1.8 in the rate of HBM (0.82 to 2.9 TB/s) and 1.8 in the peak (190 to 667 TFLOP/s
# of BF16); a stack or a kind of model without rows is taken to be as far, which is an assumption.
ABSENT_OCTAVES = 2.0
ABSENT = ((), ("chip",), ("stack",), ("chip", "stack"), ("kind",), ("kind", "chip"), ("kind", "chip", "stack"))


Moved = TypeVar("Moved", bound=Spec)


class Beyond(NamedTuple):
    """An axis of rows with its ends, the values of points on it, and the octaves by which these leave it, if any do."""

    name: str
    low: float
    high: float
    x: Any
    outside: Any
    octaves: Any
    free: float


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """The rows nearest to a question: their group, its width, what they lack, and their values on each axis."""

    group: str
    width: float
    absent: tuple[str, ...]
    values: NDArray
    names: tuple[str, ...] = STEPS
    tails: tuple[float, float] | None = None  # below and above, where the chip has rows

    @property
    def away(self) -> float:
        """Octaves that count for a kind, chip or stack without rows."""
        return ABSENT_OCTAVES * len(self.absent)

    def beyond(self, points: Mapping[str, Any]) -> Iterator[Beyond]:
        """Yield how many octaves points lie outside of the rows, axis by axis."""
        for axis, name, low, high in _ends(self):
            if axis in points:
                x = np.minimum(np.maximum(points[axis], 1.0), 1e30)
                ratio = np.maximum(low / STEP / x, x / (high * STEP))
                outside = ratio > 1
                octaves = np.log2(np.where(outside, ratio, 1.0)) + outside * log2(STEP) if outside.any() else None
                yield Beyond(name, low, high, x, outside, octaves, FREE.get(axis, 0.0))

    def distance(self, points: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the octaves from the rows to points that widen a band, and whether an axis leaves the rows."""
        distance: Any = 0.0
        leaves: Any = np.False_
        for one in self.beyond(points):
            if one.octaves is not None:
                leaves = leaves | one.outside
                distance = distance + np.maximum(one.octaves - one.free, 0.0)
        return distance, leaves

    def leaves(self, points: Mapping[str, Any]) -> tuple[NDArray, list[str]]:
        """Return a mask of the axes along which points leave the rows, and a reason for each of its bits."""
        mask, reasons = np.zeros((), dtype=MARK), list[str]()
        for one in self.beyond(points):
            here: Any = MARK(0)
            for end, side in ((one.high, one.x > one.high), (one.low, one.x < one.low)):
                here = here | (side & one.outside) * MARK(2 ** len(reasons))
                at = f"{end / BILLION:.3g} billion" if end >= BILLION else format_digits(end, 4)
                reasons.append(f"{one.name}: its rows {'end' if end is one.high else 'begin'} at {at}")
            mask = mask | here
        return mask, reasons

    def measured(self, points: Mapping[str, Any]) -> NDArray:
        """Return whether rows lie at a point, or on both sides of it along one axis alone."""
        axes = {axis: np.asarray(points[axis], dtype=float) for axis in AXES if axis in points}
        if not axes:
            return np.ones((), dtype=bool)
        shape = np.broadcast_shapes(*(x.shape for x in axes.values()))
        above, below = ([np.zeros(shape, dtype=bool) for _ in axes] for _ in range(2))
        rows = _places(self, tuple(axes))
        for some in np.array_split(rows, np.ceil(len(rows) * np.prod(shape) / MOST)):
            columns = [at.reshape(-1, *[1] * len(shape)) for at in some.T]
            near = [_near(x, at) for x, at in zip(axes.values(), columns, strict=True)]
            for i, (x, at) in enumerate(zip(axes.values(), columns, strict=True)):
                others = reduce(np.logical_and, [*near[:i], *near[i + 1 :]], np.True_)
                if np.any(others):
                    above[i] |= np.any(others & (near[i] | (x < at)), axis=0)
                    below[i] |= np.any(others & (near[i] | (x > at)), axis=0)
        return np.logical_or.reduce([a & b for a, b in zip(above, below, strict=True)])

    def different(self, points: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[NDArray, ...] | None]:
        """Return points of which no two lie alike to all rows along all axes, and the place of each point among them.

        Without a place for points that are as many as those which they stand for, or nearly.
        """
        columns = dict(zip(AXES, self.values, strict=True))
        values = {axis: np.asarray(points[axis], dtype=float) for axis in columns if axis in points}
        size = np.prod(np.broadcast_shapes(*(x.shape for x in values.values())))
        if sum(x.size for x in values.values()) * CROSSED > size:
            return points, None
        firsts, places = list[NDArray](), list[NDArray]()
        for axis, x in values.items():
            flat, at = x.ravel(), columns[axis][:, None]
            near, leaves = _near(flat, at), np.broadcast_to(self.leaves({axis: flat})[0], (1, flat.size))
            sides = [near | (flat < at), near | (flat > at), leaves & 1 > 0, leaves & 2 > 0]
            marks = np.ascontiguousarray(np.packbits(np.concatenate(sides), axis=0).T)
            _, first, place = np.unique(
                marks.view(f"V{marks.shape[1]}").ravel(), return_index=True, return_inverse=True
            )
            firsts.append(flat[first])
            places.append(place.reshape(x.shape))
        return dict(zip(values, np.ix_(*firsts), strict=True)), tuple(places)


def _near(x: Any, at: Any) -> Any:
    """Return whether values are within a step of those of rows; of a row without a value all are."""
    return ~(np.abs(x - at) > (STEP - 1) * x)


@lru_cache(maxsize=2048)
def _ends(here: Near) -> tuple[tuple[str, str, float, float], ...]:
    """Return the axes on which some rows have values, with their names and their lowest and highest values."""
    columns = ((axis, name, x[np.isfinite(x)]) for axis, name, x in zip(AXES, here.names, here.values, strict=True))
    return tuple((axis, name, known.min(), known.max()) for axis, name, known in columns if known.size)


@lru_cache(maxsize=2048)
def _places(here: Near, axes: tuple[str, ...]) -> NDArray:
    """Return the values that rows have together on some axes, each once, side by side."""
    return np.unique(np.stack([here.values[AXES.index(axis)] for axis in axes], axis=-1), axis=0)


class Rows:
    """Rows side by side, with the widths of their groups."""

    def __init__(self, labels: Mapping[str, NDArray], values: NDArray, widths: Mapping[str, Width]) -> None:
        self.labels, self.values = labels, values
        self.widths, self._near = widths, dict[tuple[str, ...], Near]()

    def near(self, part: str, kind: str, chip: str, stack: str) -> Near:
        """Return the rows of the same kind, chip and stack as a question, or the nearest ones where it has none."""
        key = (part, kind, chip, stack)
        if key not in self._near:
            self._near[key] = self._nearest(*key)
        return self._near[key]

    def _nearest(self, part: str, kind: str, chip: str, stack: str) -> Near:
        question = {"kind": kind, "chip": chip, "stack": stack}
        of_part = self.labels["part"] == part
        for absent in ABSENT:
            same = [self.labels[name] == value for name, value in question.items() if name not in absent]
            here = np.logical_and.reduce([of_part, *same])
            if here.any():
                names, counts = np.unique(self.labels["group"][here].astype(str), return_counts=True)
                group = str(names[counts.argmax()])
                width = self.widths.get(group, Width(group, "", 0, nan, nan, nan, nan, nan))
                wide = max(width.width, width.pooled) if "kind" in absent else width.width
                tails = None if {"kind", "chip"} & set(absent) else (width.below, width.above)
                return Near(group, wide, absent, self.values[:, here], NAMES.get(part, STEPS), tails)
        widest = max((one.pooled for one in self.widths.values()), default=nan)
        return Near("", widest, ("kind", "chip", "stack"), np.empty((len(AXES), 0)))


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


def judged(here: Near, points: Mapping[str, Any], before: Iterable[str] = (), lacks: Iterable[str] = ()) -> Basis:
    """Word, reason and half-width of points by the rows near them; `before` are reasons that hold for all points.

    A reason begins with what it is about ("chip: ..."): of two reasons about one thing the first is used.

    Examples
    --------
    >>> rows = Near("mine", 0.2, (), np.array([[8.0, 8.0], [1.0, 16.0], [1024.0, 1024.0], [8e9, 8e9]]))
    >>> at = {"ranks": 8, "batch": [4, 16, 64], "length": 1024, "size": 8e9}
    >>> judged(rows, at).word.tolist(), judged(rows, at).reason[2]
    (['measured', 'measured', 'extrapolated'], 'batch: its rows end at 16')
    """
    reasons = _reasons(before, lacks)
    return _basis(_judgement(here, points, reasons), *_widths_at(here, points, reasons))


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
    found = [np.unique(text, return_inverse=True) for text in texts]
    return Judgement(*(Texts(at.reshape(text.shape), tuple(few)) for text, (few, at) in zip(texts, found, strict=True)))


def _judgement(here: Near, points: Mapping[str, Any], reasons: list[str]) -> Judgement:
    """Return what the rows near points say of them, `reasons` being those that hold for all points."""
    few, places = here.different(points)
    mask, axis_reasons = here.leaves(few)
    inside = np.zeros((), dtype=np.int8) if reasons else np.where(here.measured(few), np.int8(0), np.int8(1))
    shape = np.broadcast_shapes(*map(np.shape, few.values()))
    word = np.where(np.equal(mask, 0) & (not reasons), inside, np.int8(2))
    beyond = texts_of(mask, tuple(axis_reasons))
    if places is not None:
        word = np.broadcast_to(word, shape)[places]
        beyond = beyond._replace(places=np.broadcast_to(beyond.places, shape)[places])
    texts = tuple("; ".join(filter(None, (*reasons, text))) for text in beyond.texts)
    return Judgement(Texts(word, BASES), beyond._replace(texts=texts))


def _widths_at(here: Near, points: Mapping[str, Any], reasons: list[str]) -> tuple[Any, tuple[Any, Any] | None]:
    """Return the half-width at each point, and its tails where the chip has rows."""
    shape = np.broadcast_shapes(*(np.shape(points[axis]) for axis, *_ in _ends(here) if axis in points))
    width, tails = _wide(here, reasons, here.distance(points)[0])
    width = np.broadcast_to(width, shape)[()]
    return width, tails and (np.broadcast_to(tails[0], shape)[()], np.broadcast_to(tails[1], shape)[()])


def _reasons(before: Iterable[str], lacks: Iterable[str]) -> list[str]:
    """Return the reasons that hold for all points; of two about one thing the first."""
    reasons = list(before)
    about = {reason.partition(":")[0] for reason in reasons}
    return reasons + [reason for reason in lacks if reason.partition(":")[0] not in about]


def _wide(here: Near, reasons: Iterable[str], distance: Any) -> tuple[Any, tuple[Any, Any] | None]:
    """Return the half-width at a distance from rows, and the tails where the chip has rows."""
    about = {reason.partition(":")[0] for reason in reasons}
    growth = grown_width(1.0, distance + ABSENT_OCTAVES * len(about))
    tails = None if here.tails is None or "chip" in about else (here.tails[0] * growth, here.tails[1] * growth)
    return here.width * growth, tails


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
    found = _contradicted(_judgement_of(basis), (part, kind, chip, stack), points)
    return basis._replace(word=found.word.each, reason=found.reason.each)


def _contradicted(judgement: Judgement, key: tuple[str, str, str, str], points: Mapping[str, Any]) -> Judgement:
    """Return a judgement that is extrapolated where a measured row contradicts the band."""
    word, reason = judgement
    firm = np.array([text != "extrapolated" for text in word.texts])[word.places]
    for row, here in _contradicting(key, points):
        hit = here & firm
        if np.any(hit):
            word = Texts(np.where(hit, len(word.texts), word.places), (*word.texts, "extrapolated"))
            more = tuple("; ".join(filter(None, (f"contradicted by row {row}", text))) for text in reason.texts)
            places = np.where(hit, reason.places + len(reason.texts), reason.places)
            reason = Texts(places, (*reason.texts, *more))
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
    if here is None and first.word == "ideal":
        return _judgement_of(first)
    found = _judgement(here, points, _reasons(before, lacking)) if here else _judgement_of(first)
    return _contradicted(found, (part, kind, chip.id, e.id), points)


def rows_basis(e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any]) -> Basis:
    """Return what the rows of a stack on a chip say of an answer at each point, with the half-width of these rows.

    The ideal stack has none, and neither has a hand-tuned one: of its parts the ranges count, and no row is of it.
    """
    first, here, before, lacking = _ground(Same(e), Same(chip), lnc, part, kind)
    return judged(here, points, before, lacking) if here else first


def stack_reach(e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any]) -> Reach:
    """Return what a band needs of `stack_basis`, without a word or a reason."""
    first, here, before, lacking = _ground(Same(e), Same(chip), lnc, part, kind)
    if here is None:
        return reach_of(first)
    reasons = _reasons(before, lacking)
    distance, outside = here.distance(points)
    width, tails = _wide(here, reasons, distance)
    shape = np.broadcast_shapes(*map(np.shape, points.values()))
    if reasons:
        return Reach(np.broadcast_to(True, shape), *(tails or (width, width)))
    for _, there in _contradicting((part, kind, chip.id, e.id), points):
        outside = outside | there
    return Reach(np.broadcast_to(outside, shape), *(tails or (width, width)))


@lru_cache(maxsize=256)
def _ground(
    e: Same[Efficiencies], chip: Same[Chip], lnc: int, part: str, kind: str
) -> tuple[Basis, Near | None, tuple[str, ...], tuple[str, ...]]:
    """Return what no point changes: the basis of the stack, the rows near it, its reasons, and what the rows lack."""
    own: Part = "prefill" if part == "prefill" else "memory" if part == "memory" else "decode"
    first = basis(e.it, chip.it, lnc, own)
    if first.word == "ideal" or e.it.kind == "hand-tuned":
        return first, None, (), ()
    on = e.it.rows_of
    here = near(part, kind, chip.it.id, on)
    before = tuple(str(first.reason).split("; ")) if first.reason else ()
    return first, here, before, tuple(lacks(here, part, kind, chip.it.id, on))


def plain_basis(part: str, chip: str, stack: str, points: Mapping[str, Any]) -> Basis:
    """Return what a kernel or a collective rests on: rows of its chip and stack, and those that contradict it."""
    here = near(part, part, chip, stack)
    reasons = _reasons((), lacks(here, part, part, chip, stack))
    found = _contradicted(_judgement(here, points, reasons), (part, part, chip, stack), points)
    return _basis(found, *_widths_at(here, points, reasons))


def plain_rows_basis(part: str, chip: str, stack: str, points: Mapping[str, Any]) -> Basis:
    """Return what the rows of a chip, and of how a kernel was written, say of a kernel or a collective."""
    here = near(part, part, chip, stack)
    return judged(here, points, (), lacks(here, part, part, chip, stack))


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
    ranges = {name: ends for name, ends in e.open_ranges.items() if name not in without}
    shape = (len(ranges), 2, *middle.shape)
    if at_once and 0 < np.prod(shape) <= FEW:
        moves = tuple(((name, end),) for name, ends in ranges.items() for end in ends)
        every = np.asarray(ask(variants(e, moves, middle.ndim)))
        answers: Iterable = np.broadcast_to(every, (2 * len(ranges), *middle.shape)).reshape(shape)
    else:
        answers = ([ask(end_of(e, name, end)) for end in ends] for name, ends in ranges.items())
    return widths_of(middle, answers)


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


def _joint(one: Any, other: Any) -> Any:
    """Joint width of two, as `joint_width` has it, of widths that need no check."""
    return np.sqrt(one * one + other * other)[()]
