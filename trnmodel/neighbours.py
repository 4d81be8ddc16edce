"""Rows near a question: how far each lies on all axes together, and what the errors of those nearby say of it.

A row is a neighbour if it lies within a factor of two on every axis at once: a row near on one axis and another row
near on the next make no neighbour. Comparisons are exact. Scales and distances are those of coordinates rounded to an
eighth of an octave, so that few of a million points differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
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
FREE = 1.0  # octaves that widen nothing: those of a neighbour
MOST = 2 * 10**6  # comparisons of points with rows at a time
COUNTED = 2**24  # largest key up to which all keys are counted: quicker than a sort of the points
POWERS = 40  # more than the powers of ten that a ratio may have
UNKNOWN = Width("", "", 0, 0, nan, nan, nan, nan, nan)  # of a group without errors
# Which labels may have no rows, the nearest case first. Each counts as two octaves, the step from one generation to
# the next: Trainium1 to Trainium2 is 1.8 in the rate of HBM (0.82 to 2.9 TB/s) and 1.8 in the peak (190 to 667 TFLOP/s
# of BF16); a stack or a kind of model without rows is taken to be as far, which is an assumption, and so is a column
# that nobody stated. With one to eight octaves the interval score of left-out errors is the same within 1 %.
ABSENT_OCTAVES = 2.0
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
    return np.log(np.maximum(np.abs(log_errors) / grown_width(1.0, ABSENT_OCTAVES * unknown), SMALLEST))


class Cells(NamedTuple):
    """Points by axis of which no two are alike, and the place among them of each point that was asked."""

    points: dict[str, NDArray]
    places: NDArray


def _ranked(keys: NDArray) -> tuple[NDArray, NDArray]:
    """Return the keys that occur, from 0 on, and the place of each key among them."""
    if keys.max(initial=0) > COUNTED:
        found, places = np.unique(keys, return_inverse=True)
        return found, places.reshape(keys.shape)
    counts = np.bincount(keys.ravel())
    found = np.flatnonzero(counts)
    counts[found] = np.arange(len(found))
    return found, counts[keys]


def cells(points: Mapping[str, NDArray], keys: Mapping[str, NDArray]) -> Cells:
    """Return the points that differ in a key on some axis; each axis has keys from 0 on, of the shape of its values.

    Examples
    --------
    >>> found = cells({"batch": np.array([1.0, 2.0, 9.0])}, {"batch": np.array([0, 0, 5])})
    >>> found.points["batch"].tolist(), found.places.tolist()
    ([2.0, 9.0], [0, 0, 1])
    """
    ranked = {axis: _ranked(keys[axis]) for axis in points}
    sizes = [len(found) for found, _ in ranked.values()]
    joint: Any = np.zeros((), dtype=np.int64)
    for size, (_, places) in zip(sizes, ranked.values(), strict=True):
        joint = joint * size + places
    found, at = _ranked(joint)
    few = dict[str, NDArray]()
    for (axis, (own, places)), which in zip(ranked.items(), np.unravel_index(found, sizes or (1,)), strict=False):
        first = np.empty(len(own))
        first[places.ravel()] = points[axis].ravel()
        few[axis] = first[which]
    return Cells(few, at)


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

    def words(self, points: Mapping[str, Any]) -> NDArray:
        """Return the place among `BASES` of each point: a row lies at it, a neighbour does, or none."""
        axes = self._axes(points)
        few, places = cells(axes, {axis: self._classes(axis, x) for axis, x in axes.items()})
        words = [np.zeros(0, dtype=np.int8)]
        for some in _pieces(few, self.values.shape[1]):
            at, by = self._compared(some, STEP), self._compared(some, NEIGHBOUR)
            words.append(np.where(at, 0, np.where(by, 1, 2)).astype(np.int8))
        return np.concatenate(words)[places]

    def _classes(self, axis: str, x: NDArray) -> NDArray:
        """Return a key of values: values with one key lie alike to all rows, at them, by them and beyond them."""
        at = np.unique(self.values[AXES.index(axis)])
        at = at[np.isfinite(at)]
        ends = np.unique(np.concatenate([end for ratio in (STEP, NEIGHBOUR) for end in (at / ratio, at * ratio)]))
        x = np.nan_to_num(x)
        return np.searchsorted(ends, x, "left") + np.searchsorted(ends, x, "right")

    def _compared(self, points: Mapping[str, NDArray], ratio: float) -> NDArray:
        """Return whether a row is within a ratio of points on every axis; a row without a value on an axis is."""
        near: Any = np.ones((1, self.values.shape[1]), dtype=bool)
        for axis, x in points.items():
            at, here = self.values[AXES.index(axis)], x[:, None]
            near = near & (np.isnan(at) | ((at / ratio <= here) & (here <= at * ratio)))
        return near.any(axis=1)

    def nearest(self, points: Mapping[str, Any]) -> NDArray:
        """Return which row is jointly nearest to each point: the fewest octaves, summed over the axes."""
        axes, rows = self._axes(points), places_of(self.values)
        few, places = cells(axes, {axis: _grid(x) for axis, x in axes.items()})
        found = [_octaves(some, rows).argmin(axis=1) for some in _pieces(few, rows.shape[1])]
        return np.concatenate(found)[places]

    def spread(self, points: Mapping[str, Any], away: Any = 0.0) -> tuple[NDArray, NDArray]:
        """Return the scale of errors at points, and its growth with the octaves to the nearest row.

        `away` are octaves that count beside these, for what no row has and for columns that nobody stated.
        """
        axes = self._axes(points)
        few, places = cells(axes, {axis: _grid(x) for axis, x in axes.items()})
        scales, octaves = [np.zeros(0)], [np.zeros(0)]
        for some in _pieces(few, len(self.errors.logs)):
            one, other = scale_at(self.errors, _octaves(some, self.errors.places) + self.errors.away, self.width.scale)
            scales.append(one)
            octaves.append(other)
        return np.concatenate(scales)[places], growth(np.concatenate(octaves)[places], away)

    def beyond(self, points: Mapping[str, Any], which: NDArray) -> Texts:
        """Return the axes on which some points lie beyond a factor of two of the jointly nearest row, and how far."""
        axes = self._axes(points)
        shape = np.broadcast_shapes(which.shape, *(x.shape for x in axes.values()))
        which = np.broadcast_to(which, shape)
        if not which.any() or not self.values.shape[1]:
            return Texts(np.broadcast_to(np.int64(0), shape), ("",))
        some = {axis: np.broadcast_to(x, shape)[which] for axis, x in axes.items()}
        rows = self.nearest(some)
        joint, parts = np.zeros(rows.shape, dtype=np.int64), list[tuple[str, NDArray, NDArray, NDArray]]()
        for axis, x in some.items():
            at = self.values[AXES.index(axis)][rows]
            far = (x > at * NEIGHBOUR) | (x < at / NEIGHBOUR)
            digits, power = _two_digits(x / np.where(far, at, x))
            own, places = np.unique(np.where(far, at, 0.0), return_inverse=True)
            _, ratios = _ranked(np.where(far, (power + POWERS) * 100 + digits, 0))
            _, joint = _ranked((joint * len(own) + places) * (ratios.max() + 1) + ratios)
            parts.append((self.names[AXES.index(axis)], np.where(far, at, 0.0), digits, power))
        first = np.empty(joint.max() + 1, dtype=int)
        first[joint] = np.arange(len(joint))
        texts = ["; ".join(_ratio_text(name, at[i], digits[i], power[i]) for name, at, digits, power in parts if at[i])
                 for i in first]  # fmt: skip
        every = np.zeros(shape, dtype=np.int64)
        every[which] = joint + 1
        return Texts(every, ("", *texts))


def growth(octaves: Any, away: Any = 0.0) -> NDArray:
    """Return the growth of a width with the octaves to the nearest row, the first of which is free, and with others."""
    return np.asarray(grown_width(1.0, np.maximum(octaves - FREE, 0.0) + away))


def scale_at(of: Errors, octaves: NDArray, prior: Any) -> tuple[NDArray, NDArray]:
    """Return the scale of errors and the octaves to the nearest row, by the octaves from each question to each row.

    A row counts half for each octave: a neighbour, a factor of two away, has half the say of a row at the point.
    """
    if not len(of.logs):
        shape = octaves.shape[:1]
        return np.broadcast_to(prior, shape), np.full(shape, ABSENT_OCTAVES * 3)
    weights = np.exp2(-octaves)
    rows, logs = (np.add.reduceat(x, of.begins, axis=1) for x in (weights, weights * of.logs))
    return local_scale(rows, logs, prior), octaves.min(axis=1)


def _grid(x: NDArray) -> NDArray:
    return (coordinates(x) * GRID).astype(np.int64)


def _octaves(points: Mapping[str, NDArray], rows: NDArray) -> NDArray:
    """Return the octaves from each point to each row, summed over the axes on which a row has a value."""
    size = max((len(x) for x in points.values()), default=1)
    parts = [
        np.nan_to_num(np.abs(coordinates(x)[:, None] - rows[AXES.index(axis)]), nan=0.0) for axis, x in points.items()
    ]
    return reduce(np.add, parts, np.zeros((size, rows.shape[1])))


def _pieces(points: Mapping[str, NDArray], rows: int) -> list[dict[str, NDArray]]:
    """Return points in pieces, each of which is compared with all rows at a time."""
    size = max((len(x) for x in points.values()), default=1)
    ends = np.array_split(np.arange(size), int(np.ceil(size * max(rows, 1) / MOST)))
    return [{axis: x[some] for axis, x in points.items()} for some in ends]


def _two_digits(ratios: NDArray) -> tuple[NDArray, NDArray]:
    """Return two significant digits of ratios, from 10 to 99, and the power of ten of the first."""
    power = np.floor(np.log10(ratios)).astype(int)
    digits = np.rint(ratios / 10.0 ** (power - 1)).astype(int)
    return np.where(digits == 100, 10, digits), np.where(digits == 100, power + 1, power)


def _ratio_text(name: str, at: float, digits: int, power: int) -> str:
    """Return a reason: how many times the value of the nearest row a value is."""
    value = digits * 10.0 ** (power - 1)
    printed = f"{at / BILLION:.3g} billion" if at >= BILLION else format_digits(at, 4)
    return f"{name}: {value:,.{max(1 - power, 0)}f} times the nearest row's {printed}"


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
