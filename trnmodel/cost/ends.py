"""How far an hour may cost less or more: the hour at both ends of every open input, asked once for all of them.

No spec is made anew. The hour is asked of numbers that hold one row for each end, and it is linear in every price and
in the watts: where one of these is an array, two of its values give the line on which all of its points lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.specs import Spec

SPECS = 256  # prices, owners and powers whose open values are saved
PIECE = 4096  # points at a time, so that a row for each end stays in a core's cache
MOVED = ("prices", "owner", "power")  # the specs whose open values move
LINEAR = ("chip_usd", "server_usd", "switch_usd_per_lane", "tdp_w", "mean_w")  # what the hour is linear in
Rows = Callable[[Any], Mapping[str, Any]]  # the figures of an hour
Pair = tuple[Any, Any]


class Move(NamedTuple):
    """Low and high end of one open value: of a spec of the question, or of a number of it where `name` is empty."""

    owner: str
    name: str
    ends: Pair


class Lines(NamedTuple):
    """Figures of an hour: a row for the middle and for each end, a column at the base and one for each array.

    A figure has what it varies with of that `shape`. `away` is how far each array lies from its base, `steps` how far
    its column does.
    """

    figures: Mapping[str, NDArray]
    shape: tuple[int, int]
    away: tuple[NDArray, ...]
    steps: NDArray


def moves(question: Any, ends: Mapping[str, Pair]) -> list[Move]:
    """Return what may move: open values of prices, owner and power, and the numbers of `ends`.

    A price that is listed by system or by chip counts for the question's own alone.
    """
    own = frozenset({question.system.id, question.system.chip.id})
    of_specs = _of_specs(tuple(Same(getattr(question, owner)) for owner in MOVED), own)
    return [*of_specs] + [Move(name, "", pair) for name, pair in ends.items() if np.any(np.less(*pair))]


@lru_cache(maxsize=SPECS)
def _of_specs(specs: tuple[Same, ...], own: frozenset[str]) -> tuple[Move, ...]:
    """Return the open values of prices, owner and power, of those by system or by chip the ones of these ids alone."""
    return tuple(
        Move(owner, name, pair)
        for owner, spec in zip(MOVED, specs, strict=True)
        for name, pair in spec.it.open_ranges.items()
        if "[" not in name or name.removesuffix("]").partition("[")[2] in own
    )


def holds_arrays(question: Any, moved: Iterable[Move]) -> bool:
    """Return whether a spec holds arrays, or an open value is one that cannot be an array."""
    specs = [getattr(question, name) for name in ("system", "facility", *MOVED)]
    counted = (one for one in moved if one.name in getattr(getattr(question, one.owner), "COUNTS", ()))
    return any(spec.shape for spec in (*specs, question.system.chip)) or any(counted)


def with_values(spec: Spec, values: Mapping[str, Any]) -> Any:
    """Return the numbers of a spec with others in their place, unchecked: they are the ends of its own ranges."""
    numbers = dict(vars(spec))
    for which, value in values.items():
        name, _, key = which.removesuffix("]").partition("[")
        numbers[name] = {**numbers[name], key: value} if key else value
    return SimpleNamespace(**numbers)


def _column(middle: Any, places: Mapping[int, Any], rows: int) -> NDArray:
    """Return a value for each row: the middle, but for the places that have an end."""
    column = np.full((rows, 1), middle, dtype=float)
    for place, end in places.items():
        column[place] = end
    return column


def lines(question: Any, moved: list[Move], hour: Rows, known: Mapping[str, Any]) -> Lines:
    """Return the hour at every end, on lines along the arrays among `known`: the question's numbers, by name."""
    rows, every = 1 + 2 * len(moved), dict(known)
    varied = {name: x for name in LINEAR if (x := known.get(name)) is not None and (np.ndim(x) or name == "mean_w")}
    bases = {name: _base(x) for name, x in varied.items()}
    for column, (name, (base, step)) in enumerate(bases.items(), 1):
        every[name] = np.full(1 + len(bases), base)
        every[name][column] += step
    specs: dict[str, dict[str, NDArray]] = {owner: {} for owner in MOVED}
    middles = [getattr(question, owner).at(name) if name else np.nan for owner, name, _ in moved]
    columns = np.tile(np.array(middles, dtype=float), (rows, 1))
    for i, (owner, name, ends) in enumerate(moved):
        if name:
            columns[2 * i + 1 : 2 * i + 3, i] = ends
            specs[owner][name] = columns[:, i : i + 1]
        elif owner == "tdp_w":
            places = dict(zip((2 * i + 1, 2 * i + 2), ends, strict=True))
            every["tdp_w"] = _column(known["tdp_w"], places, rows)
            every["own_w"] = _column(known["own_w"], dict.fromkeys(places, np.nan), rows)
    asked = {owner: with_values(getattr(question, owner), values) for owner, values in specs.items()}
    figures = hour(SimpleNamespace(system=question.system, facility=question.facility, **asked, **every))
    away = tuple(np.asarray(varied[name]) - base for name, (base, _) in bases.items())
    return Lines(figures, (rows, 1 + len(bases)), away, np.array([step for _, step in bases.values()]))


def _base(x: Any) -> tuple[float, float]:
    """Return the least value of an array and the way to its largest, or to twice as much where all are one."""
    there = np.asarray(x)[np.isfinite(x)]
    low, high = (float(there.min()), float(there.max())) if there.size else (1.0, 2.0)
    return low, (high - low) or low or 1.0


class Sides(NamedTuple):
    """Rows of the ends that lie below the middle at every point, those above, and pairs that cross it."""

    below: NDArray
    above: NDArray
    crossing: NDArray


def _sides(rows: NDArray, steps: NDArray) -> Sides:
    """Sort the ends of lines by the side of the first row on which they lie over the whole box of the arrays."""
    apart = rows[1:] - rows[0]
    corners = apart[:, 1:] * steps
    least = apart[:, 0] + np.minimum(corners, 0.0).sum(axis=1)
    most = apart[:, 0] + np.maximum(corners, 0.0).sum(axis=1)
    under, over = (most <= 0) & (least < 0), (least >= 0) & (most > 0)
    known = under | over | ((least == 0) & (most == 0))
    plain = known.reshape(-1, 2).all(axis=1) & (under != over).reshape(-1, 2).any(axis=1)
    plain &= ~(under.reshape(-1, 2).all(axis=1) | over.reshape(-1, 2).all(axis=1))
    still = ((least == 0) & (most == 0)).reshape(-1, 2).all(axis=1)
    each = np.repeat(plain, 2)
    crossing = rows[1:].reshape(-1, 2, rows.shape[1])[~plain & ~still]
    return Sides(rows[1:][under & each], rows[1:][over & each], crossing)


def widths(of: Lines, name: str, more: Iterable[tuple[int, Pair]] = ()) -> tuple[NDArray, NDArray]:
    """Return the half-widths of a figure, from each end by itself.

    `more` are arrays that have ends at each point: the place among the arrays, and how far its ends lie from it.
    """
    figure = np.broadcast_to(of.figures[name], of.shape)
    slopes = np.nan_to_num((figure[:, 1:] - figure[:, :1]) / of.steps)  # of an unknown figure
    varies = [place for place in range(len(of.away)) if np.any(slopes[:, place] != 0)]
    rows = np.column_stack([figure[:, 0], slopes[:, varies]])
    sides = _sides(rows, of.steps[varies])
    extra = [(slopes[0, place], pair) for place, pair in more if place in varies]
    arrays = np.broadcast_arrays(*(of.away[place] for place in varies), *(end for _, pair in extra for end in pair))
    shape = arrays[0].shape if arrays else ()
    points = np.stack([np.ones(shape), *arrays]).reshape(1 + len(arrays), -1)
    below, above = np.empty((2, points.shape[1]))
    for start in range(0, below.size, PIECE):
        here = points[:, start : start + PIECE]
        x = here[: 1 + len(varies)]
        middle = rows[0] @ x
        own = [middle + slope * end for slope, _ in extra for end in here[1 + len(varies) :]]
        crossing = [*np.concatenate(sides.crossing) @ x, *own] if sides.crossing.size else own
        place = slice(start, start + PIECE)
        with np.errstate(invalid="ignore", divide="ignore"):
            x = x / middle
        for side, lines_of_side in ((below, sides.below), (above, sides.above)):
            side[place] = np.where(middle == 0, 0.0, _squares(lines_of_side, x))
        if crossing:
            low, high = joint(np.array(crossing), middle)
            below[place] += low**2
            above[place] += high**2
    below, above = np.sqrt(below), np.sqrt(above)
    return below.reshape(shape), above.reshape(shape)


def _squares(rows: NDArray, over_middle: NDArray) -> NDArray:
    """Return the sum of the squared logarithms of lines, of coordinates that are divided by the middle."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = rows @ over_middle
        np.log(logs, out=logs)
    return np.einsum("ij,ij->j", logs, logs)


def joint(ends: NDArray, middle: NDArray) -> tuple[NDArray, NDArray]:
    """Return the half-widths of ends in rows, a low and a high one in turn; a figure of 0 has none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = ends / middle
        low = np.log(np.minimum(np.minimum(ratio[::2], ratio[1::2]), 1.0))
        high = np.log(np.maximum(np.maximum(ratio[::2], ratio[1::2]), 1.0))
    below, above = (np.sqrt(np.sum(logs**2, axis=0)) for logs in (low, high))
    return np.where(middle == 0, 0.0, below), np.where(middle == 0, 0.0, above)
