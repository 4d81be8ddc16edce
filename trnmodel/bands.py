"""How far a prediction may be off: which rows a question has, how far it lies from them, and the width that this gives.

`catalog.bands` reads the rows and the widths of their groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import log2, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.bands import AXES, Width, outliers, read
from trnmodel.catalog.specs import Chip, Spec
from trnmodel.catalog.stacks import Efficiencies, Part, basis
from trnmodel.formulas.bands import grown_width, joint_width, octaves_outside
from trnmodel.result import Basis, text_of
from trnmodel.units import BILLION, format_digits

NAMES: Mapping[str, tuple[str, ...]] = {
    "kernel": ("lnc", "batch", "length", "bytes"),
    "collective": ("ranks", "batch", "length", "bytes"),
}  # as a reason calls the axes, by part
STEPS = ("ranks", "batch", "length", "active parameters")
# Octaves beyond the rows that widen nothing: fitted to rows of at most two ranks, or of small models, alone, dense
# decode beyond them is off by no more than inside. For how many octaves that holds is a judgement.
FREE = {"ranks": 3.0, "size": 3.0}
MOST = 2 * 10**6  # comparisons of points with rows at a time
FEW = 20_000  # answers of stacks with a value at an end each, up to which they are computed at once
STEP = 1.01  # ratio up to which two values of an axis are one
# Which of them may have no rows, the nearest case first. Each counts as two octaves, the step from one generation to
# the next: Trainium1 to Trainium2 is 1.8 in the rate of HBM (0.82 to 2.9 TB/s) and 1.8 in the peak (190 to 667 TFLOP/s
# of BF16); a stack or a kind of model without rows is taken to be as far, which is an assumption.
ABSENT_OCTAVES = 2.0
ABSENT = ((), ("chip",), ("stack",), ("chip", "stack"), ("kind",), ("kind", "chip"), ("kind", "chip", "stack"))


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

    def octaves(self, points: Mapping[str, Any]) -> tuple[NDArray, NDArray, list[str]]:
        """Return the octaves from the rows to points, a mask of the axes that leave the rows, and its reasons."""
        distance, mask, reasons = np.zeros(()), np.zeros((), dtype=int), list[str]()
        for axis, name, column in zip(AXES, self.names, self.values, strict=True):
            known = column[np.isfinite(column)]
            if axis not in points or not known.size:
                continue
            low, high, x = known.min(), known.max(), np.clip(points[axis], 1.0, 1e30)
            outside = octaves_outside(x, low / STEP, high * STEP)
            outside = np.where(outside > 0, outside + log2(STEP), 0.0)
            for end, beyond in ((high, x > high), (low, x < low)):
                mask = mask | (beyond & (outside > 0)) * 2 ** len(reasons)
                at = f"{end / BILLION:.3g} billion" if end >= BILLION else format_digits(end, 4)
                reasons.append(f"{name}: its rows {'end' if end is high else 'begin'} at {at}")
            distance = distance + np.maximum(outside - FREE.get(axis, 0.0), 0.0)
        return distance, mask, reasons

    def measured(self, points: Mapping[str, Any]) -> NDArray:
        """Return whether rows lie at a point, or on both sides of it along one axis alone."""
        axes = [
            (np.asarray(points[axis], dtype=float), column)
            for axis, column in zip(AXES, self.values, strict=True)
            if axis in points
        ]
        if not axes:
            return np.ones((), dtype=bool)
        shape = np.broadcast_shapes(*(x.shape for x, _ in axes))
        above, below = ([np.zeros(shape, dtype=bool) for _ in axes] for _ in range(2))
        rows = np.unique(np.stack([column for _, column in axes], axis=-1), axis=0)
        for some in np.array_split(rows, np.ceil(len(rows) * np.prod(shape) / MOST)):
            sides = [x - at.reshape(-1, *[1] * len(shape)) for (x, _), at in zip(axes, some.T, strict=True)]
            near = [
                ~(np.abs(side) > (STEP - 1) * x) for side, (x, _) in zip(sides, axes, strict=True)
            ]  # of a row without a value too
            for i, side in enumerate(sides):
                others = np.logical_and.reduce(np.broadcast_arrays(np.True_, *near[:i], *near[i + 1 :]))
                above[i] |= np.any(others & (near[i] | (side < 0)), axis=0)
                below[i] |= np.any(others & (near[i] | (side > 0)), axis=0)
        return np.logical_or.reduce([a & b for a, b in zip(above, below, strict=True)])


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
    reasons = list(before)
    about = {reason.partition(":")[0] for reason in reasons}
    reasons += [reason for reason in lacks if reason.partition(":")[0] not in about]
    distance, mask, axis_reasons = here.octaves(points)
    away = ABSENT_OCTAVES * len({reason.partition(":")[0] for reason in reasons})
    width = grown_width(here.width, distance + away)
    tails = None
    if here.tails is not None and not any(reason.startswith("chip:") for reason in reasons):
        tails = grown_width(here.tails[0], distance + away), grown_width(here.tails[1], distance + away)
    beyond = text_of(mask, tuple(axis_reasons))
    if reasons:
        before_text = "; ".join(reasons)
        beyond = np.frompyfunc(lambda text: f"{before_text}; {text}" if text else before_text, 1, 1)(beyond)
        return Basis(np.full(np.shape(mask), "extrapolated", dtype=object)[()], beyond, width, tails)
    inside = np.where(here.measured(points), "measured", "interpolated")
    return Basis(np.where(np.equal(mask, 0), inside, "extrapolated").astype(object)[()], beyond, width, tails)


shipped_outliers = cache(outliers)


def contradicted(basis: Basis, part: str, kind: str, chip: str, stack: str, points: Mapping[str, Any]) -> Basis:
    """Return a basis that is extrapolated where a measured row contradicts the band, with the id of the row.

    A row is at a point if it has a value within 1 % on each axis that is asked, and none on the others. The width of
    the band stays that of the rows. What is extrapolated anyway keeps its reasons alone.
    """
    firm = np.not_equal(basis.word, "extrapolated")
    word, reason = np.asarray(basis.word, dtype=object), np.asarray(basis.reason, dtype=object)
    for row, place in shipped_outliers().get((part, kind, chip, stack), {}).items():
        if place.keys() == points.keys():
            here = np.logical_and.reduce(
                np.broadcast_arrays(*(np.abs(points[axis] - x) <= (STEP - 1) * x for axis, x in place.items()))
            )
            if np.any(here & firm):
                more = np.where(reason == "", "", "; ") + reason
                word = np.where(here & firm, "extrapolated", word)
                reason = np.where(here & firm, f"contradicted by row {row}" + more, reason)
    return basis._replace(word=word[()], reason=reason[()])


def stack_basis(e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any]) -> Basis:
    """Return what an answer of a stack on a chip rests on at each point: its rows, and those that contradict it."""
    of_rows = rows_basis(e, chip, lnc, part, kind, points)
    return contradicted(of_rows, part, kind, chip.id, e.id, points) if np.any(of_rows.word != "ideal") else of_rows


def rows_basis(e: Efficiencies, chip: Chip, lnc: int, part: str, kind: str, points: Mapping[str, Any]) -> Basis:
    """Return what the rows of a stack on a chip say of an answer at each point, with the half-width of these rows.

    The ideal stack has none, and neither has a hand-tuned one: of its parts the ranges count, and no row is of it.
    """
    own: Part = "prefill" if part == "prefill" else "memory" if part == "memory" else "decode"
    first = basis(e, chip, lnc, own)
    if first.word == "ideal" or e.kind == "hand-tuned":
        return first
    on = e.rows_of
    here = near(part, kind, chip.id, on)
    before = str(first.reason).split("; ") if first.reason else []
    return judged(here, points, before, lacks(here, part, kind, chip.id, on))


def plain_basis(part: str, chip: str, stack: str, points: Mapping[str, Any]) -> Basis:
    """Return what a kernel or a collective rests on: rows of its chip and stack, and those that contradict it."""
    return contradicted(plain_rows_basis(part, chip, stack, points), part, part, chip, stack, points)


def plain_rows_basis(part: str, chip: str, stack: str, points: Mapping[str, Any]) -> Basis:
    """Return what the rows of a chip, and of how a kernel was written, say of a kernel or a collective."""
    here = near(part, part, chip, stack)
    return judged(here, points, (), lacks(here, part, part, chip, stack))


@lru_cache(maxsize=4096)
def _moved(e: Spec, name: str, value: float) -> Spec:
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
        answers = ([ask(_moved(e, name, end)) for end in ends] for name, ends in ranges.items())
    below, above = np.zeros(middle.shape), np.zeros(middle.shape)
    for ends in answers:
        moved = [np.log(np.asarray(end) / middle) for end in ends]
        below = joint_width(below, np.maximum(0.0, -np.minimum(*moved)))
        above = joint_width(above, np.maximum(0.0, np.maximum(*moved)))
    return below, above


def spread(
    basis: Basis,
    e: Spec,
    ask: Callable[[Any], NDArray],
    at_once: bool = False,
    without: frozenset[str] = frozenset(),
) -> tuple[NDArray, NDArray]:
    """Return the half-widths below and above of answers, from their rows and, outside these, from the stack's ranges.

    Inside, what a range says is part of the errors that were left out.
    """
    outside = np.equal(basis.word, "extrapolated")
    below, above = ranged(e, ask, at_once, without) if np.any(outside) else (np.zeros(()), np.zeros(()))
    low, high = basis.sides
    return joint_width(low, np.where(outside, below, 0.0)), joint_width(high, np.where(outside, above, 0.0))
