"""Rows near a question: how far each lies on all axes together, and what the errors of those nearby say of it.

A row is a neighbour if it lies within a factor of two on every axis at once: a row near on one axis and another row
near on the next make no neighbour. Comparisons are exact. Scales and distances are those of coordinates rounded to an
eighth of an octave, so that few of a million points differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from trnmodel.catalog.bands import AXES, Width
from trnmodel.formulas.bands import SMALLEST, grown_width, local_scale
from trnmodel.result import Texts
from trnmodel.units import BILLION, format_digits

NAMES: Mapping[str, tuple[str, ...]] = {
    "kernel": ("lnc", "batch", "length", "bytes"),
    "collective": ("ranks", "batch", "length", "bytes"),
}  # as a reason calls the axes, by part
STEPS = ("ranks", "batch", "length", "active parameters")
STEP, NEIGHBOUR = 1.01, 2.0  # ratios up to which two values of an axis are one, and up to which they are neighbours
GRID = 8.0  # coordinates of scales and distances, an octave
FARTHEST = 90.0  # octaves from which on a row has as good as no say
FREE = 1.0  # octaves that widen nothing: those of a neighbour
MOST = 2 * 10**6  # comparisons of points with rows at a time
COUNTED = 2**24  # largest key up to which all keys are counted: quicker than a sort of the points
POWERS = 40  # more than the powers of ten that a ratio may have
UNKNOWN = Width("", "", 0, 0, nan, nan, nan, nan, nan)  # of a group without errors
# Which labels may have no rows, the nearest case first. Each counts as two octaves, the step from one generation to
# the next: Trainium1 to Trainium2 is 1.8 in the rate of HBM (0.82 to 2.9 TB/s) and 1.8 in the peak (190 to 667 TFLOP/s
# of BF16); a stack or a kind of model without rows is taken to be as far, which is an assumption. With
# one to eight octaves the interval score of left-out errors is the same within 2 %.
ABSENT_OCTAVES = 2.0
# By a column that nobody stated an error grows by so much: 335 rows were read with what their pages state of one
# column and without it, and the mean of the logarithms of their errors differs by that of 1.38.
UNSTATED_GROWTH = 1.38
ABSENT = ((), ("chip",), ("stack",), ("chip", "stack"), ("kind",), ("kind", "chip"), ("kind", "chip", "stack"))


def coordinates(values: Any) -> NDArray:
    """Logarithms to base two of values from 1 to 1e30, rounded to an eighth of an octave; 0 for what is no number.

    Examples
    --------
    >>> coordinates([1000.0, 1024.0, 0.0]).tolist()
    [10.0, 10.0, 0.0]
    """
    return np.rint(np.log2(_bounded(values)) * GRID) / GRID


def _bounded(values: Any) -> NDArray:
    return np.fmin(np.fmax(np.asarray(values, dtype=float), 1.0), 1e30)


def places_of(values: NDArray) -> NDArray:
    """Return the coordinates of rows; NaN where a row has no value."""
    return np.where(np.isnan(values), nan, coordinates(values))


def sizes_of(log_errors: NDArray, unknown: NDArray) -> NDArray:
    """Logarithms of the sizes of errors, as they would be with every column stated.

    Examples
    --------
    >>> np.exp(sizes_of(np.array([-0.2, 0.001]), np.array([0, 0]))).round(3).tolist()
    [0.2, 0.01]
    """
    return np.log(np.maximum(np.abs(log_errors) / UNSTATED_GROWTH**unknown, SMALLEST))


class Cells(NamedTuple):
    """Values of points by axis, which of them each cell has, and the cell of each point.

    No two cells have alike values on all axes, so that a question about many points is one about few cells.
    """

    values: dict[str, NDArray]
    which: tuple[NDArray, ...]
    places: NDArray

    def evaluate(
        self, ask: Callable[[Mapping[str, NDArray], tuple[NDArray, ...]], tuple[NDArray, ...]], rows: int
    ) -> Any:
        """Return what `ask` gives of all cells, in pieces that are compared with all rows at a time."""
        size = len(self.which[0]) if self.which else 1
        ends = np.array_split(np.arange(size), int(np.ceil(size * max(rows, 1) / MOST)))
        pieces = [ask(self.values, tuple(at[some] for at in self.which)) for some in ends]
        return tuple(np.concatenate(some) for some in zip(*pieces, strict=True))


def _ranked(keys: NDArray) -> tuple[NDArray, NDArray]:
    """Return the keys that occur, from 0 on, and the place of each key among them."""
    if keys.max(initial=0) > COUNTED:
        occurring, places = np.unique(keys, return_inverse=True)
        return occurring, places.reshape(keys.shape)
    counts = np.bincount(keys.ravel())
    occurring = np.flatnonzero(counts)
    counts[occurring] = np.arange(len(occurring))
    return occurring, counts[keys]


def cells(points: Mapping[str, NDArray], keys: Callable[[str, NDArray], NDArray]) -> Cells:
    """Return the cells of points: those that no key tells apart on any axis; keys of an axis count from 0 on.

    Examples
    --------
    >>> grouped = cells({"batch": np.array([1.0, 2.0, 9.0])}, lambda axis, x: (x > 5).astype(int))
    >>> grouped.values["batch"].tolist(), grouped.places.tolist()
    ([2.0, 9.0], [0, 0, 1])
    """
    values, sizes, joint = dict[str, NDArray](), list[int](), np.zeros((), dtype=np.int64)
    for axis, x in points.items():
        occurring, places = _ranked(keys(axis, x))
        values[axis] = np.empty(len(occurring))
        values[axis][places.ravel()] = x.ravel()
        sizes.append(len(occurring))
        joint = joint * len(occurring) + places
    every = np.prod(sizes, dtype=float)
    if every <= joint.size:
        cell, at = np.arange(int(every)), joint
    else:
        cell, at = _ranked(joint)
    return Cells(values, np.unravel_index(cell, sizes) if sizes else (), at)


class Errors(NamedTuple):
    """Rows whose errors say something of a question, page by page.

    Their places by axis, the octaves of labels that differ, the logarithms of the sizes of their errors, and where each
    page begins.
    """

    places: NDArray
    away: NDArray
    logs: NDArray
    begins: NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """The rows nearest to a question: their group and its width, what they lack, their values, and errors around."""

    group: str
    width: Width
    absent: tuple[str, ...]
    values: NDArray
    errors: Errors
    names: tuple[str, ...] = STEPS

    @property
    def tailed(self) -> bool:
        """Whether the two sides have widths of their own: a chip or a kind of model without rows may err to either."""
        return not {"kind", "chip"} & {*self.absent}

    def _axes(self, points: Mapping[str, Any]) -> dict[str, NDArray]:
        """Return the points on the axes of rows."""
        return {axis: np.asarray(points[axis], dtype=float) for axis in AXES if axis in points}

    def grounds(self, points: Mapping[str, Any]) -> NDArray:
        """Return the place among `BASES` of each point: a row lies at it, a neighbour does, or none."""

        def ask(values: Mapping[str, NDArray], which: tuple[NDArray, ...]) -> tuple[NDArray]:
            at, by = (self._compared(values, which, ratio) for ratio in (STEP, NEIGHBOUR))
            return (np.where(at, 0, np.where(by, 1, 2)).astype(np.int8),)

        grouped = cells(self._axes(points), self._classes)
        return grouped.evaluate(ask, self.values.shape[1])[0][grouped.places]

    def _classes(self, axis: str, x: NDArray) -> NDArray:
        """Return a key of values: values with one key lie alike to all rows, at them, by them and beyond them."""
        return np.searchsorted(_ends(self, axis), x, "right")

    def _compared(self, values: Mapping[str, NDArray], which: tuple[NDArray, ...], ratio: float) -> NDArray:
        """Return whether a row is within a ratio of points on every axis; a row without a value on an axis is."""
        near: Any = np.ones((1, self.values.shape[1]), dtype=bool)
        for (axis, x), places in zip(values.items(), which, strict=True):
            at, here = self.values[AXES.index(axis)], x[:, None]
            near = near & (np.isnan(at) | ((at / ratio <= here) & (here <= at * ratio)))[places]
        return np.asarray(near.any(axis=1))

    def nearest(self, points: Mapping[str, Any]) -> NDArray:
        """Return which row is jointly nearest to each point: the fewest octaves, summed over the axes."""
        rows = places_of(self.values)

        def ask(values: Mapping[str, NDArray], which: tuple[NDArray, ...]) -> tuple[NDArray]:
            return (_octaves(values, which, rows).argmin(axis=1),)

        grouped = cells(self._axes(points), _grid)
        return np.asarray(grouped.evaluate(ask, rows.shape[1])[0][grouped.places])

    def spread(self, points: Mapping[str, Any], away: float = 0.0) -> tuple[NDArray, NDArray]:
        """Return the scale of errors at points, and its growth with the octaves to the nearest row.

        `away` are octaves that count beside these, for what no row has.
        """
        errors = self.errors

        def ask(values: Mapping[str, NDArray], which: tuple[NDArray, ...]) -> tuple[NDArray, NDArray]:
            return scale_at(errors, _octaves(values, which, errors.places) + errors.away, self.width.scale)

        grouped = cells(self._axes(points), _grid)
        scale, octaves = grouped.evaluate(ask, len(errors.logs))
        return scale[grouped.places], growth(octaves, away)[grouped.places]

    def beyond(self, points: Mapping[str, Any], which: NDArray) -> Texts:
        """Return the axes on which some points lie beyond a factor of two of the jointly nearest row, and how far."""
        axes = self._axes(points)
        shape = np.broadcast_shapes(which.shape, *(x.shape for x in axes.values()))
        which = np.broadcast_to(which, shape)
        if not which.any() or not self.values.shape[1]:
            return Texts(np.broadcast_to(np.int64(0), shape), ("",))
        some = {axis: np.broadcast_to(x, shape)[which] for axis, x in axes.items()}
        rows = self.nearest(some)
        joint, parts = np.zeros(rows.shape, dtype=np.int64), list[tuple[NDArray, list[str]]]()
        for axis, x in some.items():
            values, of_row = np.unique(self.values[AXES.index(axis)], return_inverse=True)
            at = values[of_row][rows]
            far = (x > at * NEIGHBOUR) | (x < at / NEIGHBOUR)
            digits, power = _two_digits(_bounded(x) / np.where(far, at, _bounded(x)))
            ratios, places = _ranked(np.where(far, (of_row[rows] * 2 * POWERS + power + POWERS) * 100 + digits, 0))
            name = self.names[AXES.index(axis)]
            parts.append((places, [_ratio_text(name, values, int(key)) for key in ratios]))
            _, joint = _ranked(joint * len(ratios) + places)
        first = np.empty(joint.max() + 1, dtype=int)
        first[joint] = np.arange(len(joint))
        columns = [[texts[i] for i in places[first]] for places, texts in parts]
        every = np.zeros(shape, dtype=np.int64)
        every[which] = joint + 1
        return Texts(every, ("", *("; ".join(filter(None, texts)) for texts in zip(*columns, strict=True))))


@lru_cache(maxsize=4096)
def _ends(here: Near, axis: str) -> NDArray:
    """Return where values of an axis begin and cease to be at a row, or a neighbour of one, in order."""
    at = here.values[AXES.index(axis)]
    at = np.unique(at[np.isfinite(at)])
    first = [at / ratio for ratio in (STEP, NEIGHBOUR)]
    beyond = [np.nextafter(at * ratio, np.inf) for ratio in (STEP, NEIGHBOUR)]
    return np.unique(np.concatenate([*first, *beyond]))


def growth(octaves: Any, away: float = 0.0) -> NDArray:
    """Return the growth of a width with the octaves to the nearest row, the first of which is free, and with others."""
    return np.asarray(grown_width(1.0, np.maximum(octaves - FREE, 0.0) + away))


def scale_at(of: Errors, octaves: NDArray, prior: Any) -> tuple[NDArray, NDArray]:
    """Return the scale of errors and the octaves to the nearest row, by the octaves from each question to each row.

    A row counts half for each octave: a neighbour, a factor of two away, has half the say of a row at the point.
    """
    if not len(of.logs):
        shape = octaves.shape[:1]
        return np.broadcast_to(prior, shape), np.full(shape, ABSENT_OCTAVES * 3)
    weights = np.exp2(-np.minimum(octaves, FARTHEST))
    rows, logs = (np.add.reduceat(x, of.begins, axis=1) for x in (weights, weights * of.logs))
    return local_scale(rows, logs, prior), octaves.min(axis=1)


def _grid(axis: str, x: NDArray) -> NDArray:
    return np.asarray(np.rint(np.log2(_bounded(x)) * GRID), dtype=np.int64)


def _octaves(values: Mapping[str, NDArray], which: tuple[NDArray, ...], rows: NDArray) -> NDArray:
    """Return the octaves from each point to each row, summed over the axes on which a row has a value."""
    octaves: Any = np.zeros((1, rows.shape[1]))
    for (axis, x), places in zip(values.items(), which, strict=True):
        octaves = octaves + np.nan_to_num(np.abs(coordinates(x)[:, None] - rows[AXES.index(axis)]), nan=0.0)[places]
    return np.asarray(octaves)


def _two_digits(ratios: NDArray) -> tuple[NDArray, NDArray]:
    """Return two significant digits of ratios, from 10 to 99, and the power of ten of the first."""
    power = np.floor(np.log10(ratios)).astype(int)
    digits = np.rint(ratios / 10.0 ** (power - 1)).astype(int)
    return np.where(digits == 100, 10, digits), np.where(digits == 100, power + 1, power)


def _ratio_text(name: str, values: NDArray, key: int) -> str:
    """Return a reason: how many times the value of the nearest row a value is; nothing for 0."""
    if not key:
        return ""
    which, power, digits = key // (200 * POWERS), key // 100 % (2 * POWERS) - POWERS, key % 100
    at, times = float(values[which]), f"{digits * 10.0 ** (power - 1):,.{max(1 - power, 0)}f}"
    printed = f"{at / BILLION:.3g} billion" if at >= BILLION else format_digits(at, 4)
    return f"{name}: {times} times the nearest row's {printed}"


class Rows:
    """Rows side by side, with their errors and the widths of their groups."""

    def __init__(
        self,
        labels: Mapping[str, NDArray],
        values: NDArray,
        errors: Mapping[str, NDArray],
        widths: Mapping[str, Width],
    ) -> None:
        order = np.argsort(errors["source"], kind="stable")  # a page's rows lie together
        self.labels, self.values = {name: x[order] for name, x in labels.items()}, values[:, order]
        self.pages = np.asarray(errors["source"])[order]
        self.log_errors, unknown = (np.asarray(errors[name], dtype=float)[order] for name in ("log_error", "unknown"))
        self.logs = sizes_of(self.log_errors, unknown)
        self.places = places_of(self.values)
        self.widths, self._near = widths, dict[tuple[str, ...], Near]()
        pools = {name: one.pool for name, one in widths.items()}
        self.pools = np.array([pools.get(name, "") for name in self.labels["group"]], dtype=object)

    def near(self, part: str, kind: str, chip: str, stack: str) -> Near:
        """Return the rows of the same kind, chip and stack as a question, or the nearest ones where it has none."""
        key = (part, kind, chip, stack)
        if key not in self._near:
            self._near[key] = self._nearest(*key)
        return self._near[key]

    def _nearest(self, part: str, kind: str, chip: str, stack: str) -> Near:
        question = {"kind": kind, "chip": chip, "stack": stack}
        same = {name: self.labels[name] == value for name, value in question.items()}
        of_part = self.labels["part"] == part
        for absent in ABSENT:
            here = np.logical_and.reduce([of_part, *(same[name] for name in same if name not in absent)])
            if here.any():
                names, counts = np.unique(self.labels["group"][here].astype(str), return_counts=True)
                group = str(names[counts.argmax()])
                width = self.widths.get(group, UNKNOWN)
                if "kind" in absent and width.pooled > width.scale:
                    width = replace(width, scale=width.pooled)
                around = of_part & (self.pools == width.pool)
                away = ABSENT_OCTAVES * np.sum([~one[around] for one in same.values()], axis=0)
                errors = Errors(self.places[:, around], away, self.logs[around], _begins(self.pages[around]))
                return Near(group, width, absent, self.values[:, here], errors, NAMES.get(part, STEPS))
        none = Errors(np.empty((len(AXES), 0)), np.empty(0), np.empty(0), np.empty(0, dtype=int))
        widest = max(self.widths.values(), key=lambda one: one.pooled * one.width, default=None)
        width = UNKNOWN if widest is None else replace(widest, scale=widest.pooled)
        return Near("", width, ("kind", "chip", "stack"), np.empty((len(AXES), 0)), none)


def _begins(pages: NDArray) -> NDArray:
    """Return where each page begins."""
    return np.flatnonzero(np.concatenate([[True], pages[1:] != pages[:-1]])[: len(pages)])
