"""Many points in bounded memory: a question is asked in pieces that fit a cache, and gives the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import together
from trnmodel.result import blank
from trnmodel.steps.mapping import CUTS, Mapping
from trnmodel.steps.setting import Setting

if TYPE_CHECKING:
    from trnmodel.steps.training_rank import Rank

POINTS = 40_000  # of a piece: its arrays stay in a core's cache
Arrays = dict[str, NDArray]
S = TypeVar("S", Setting, "Rank")  # resolved once for each mapping; `index` says which of them each point has


class Answer(NamedTuple):
    """Numbers that a point has only where it can exist, and what every point has, its `reason_mask` among it."""

    numbers: Arrays
    kept: Arrays


def fitting(mapping: Mapping, spec_shapes: Arrays, **given: NDArray | None) -> Arrays:
    """What was given, as numbers; ValueError for arrays that do not broadcast, of mapping and machine among them."""
    found = {name: value for name, value in given.items() if value is not None}
    if spec_shapes or any(value.ndim for value in found.values()):
        together(**{f"mapping.{name}": getattr(mapping, name) for name in CUTS}, **found, **spec_shapes)
    return {name: value[()] for name, value in found.items()}


def in_pieces(work: Callable[[S, Arrays], Answer], s: S, given: Arrays) -> Arrays:
    """What `work` finds for all points, NaN for those that cannot exist, a piece of the longest axis at a time."""
    shape = np.broadcast_shapes(*{x.shape for x in (*s.places, *given.values())})
    points = math.prod(shape)
    if points <= POINTS or s.spec_shapes:
        answer = work(s.everywhere, given)
        mask = answer.kept["reason_mask"]
        return answer.kept | (blank(mask, **answer.numbers) if mask.any() else answer.numbers)
    axis = int(np.argmax(shape)) - len(shape)
    return _joined(work, s, given, axis, shape[axis], max(POINTS * shape[axis] // points, 2))


def _joined(work: Callable[[S, Arrays], Answer], s: S, given: Arrays, axis: int, length: int, size: int) -> Arrays:
    """The answers of all pieces, written side by side where they differ along the axis."""
    found: Arrays = {}
    moves = any(_along(x, axis) > 1 for x in s.places)
    whole = s if moves else s.everywhere
    blanked = False
    for start in range(0, length, size):
        part = partial(_part, axis=axis, here=slice(start, start + size))
        answer = work(s.cut(part) if moves else whole, {name: part(x) for name, x in given.items()})
        if not found:
            found = {name: _room(x, axis, length, size) for name, x in (answer.kept | answer.numbers).items()}
        bad = answer.kept["reason_mask"] != 0
        blanked = blanked or bool(bad.any())
        _write(part, found, answer, np.where(bad, np.nan, 0.0) if bad.any() else np.zeros(()))
    mask = found["reason_mask"]
    partial_ = {name: found[name] for name in answer.numbers if np.shape(found[name]) != mask.shape} if blanked else {}
    return found | blank(mask, **partial_)


def _along(x: NDArray | float, axis: int) -> int:
    return np.shape(x)[axis] if np.ndim(x) >= -axis else 1


def _part(x: Any, axis: int, here: slice) -> Any:
    """A piece of an array along an axis; the whole of one that does not vary along it."""
    return x[(..., here, *[slice(None)] * (-axis - 1))] if _along(x, axis) > 1 else x


def _room(x: NDArray, axis: int, length: int, size: int) -> NDArray:
    """Room for an answer along the whole axis, or the answer where it does not vary along it."""
    if _along(x, axis) != size:
        return x
    shape = list(np.shape(x))
    shape[axis] = length
    return np.empty(shape, np.asarray(x).dtype)


def _write(part: Callable[[NDArray], NDArray], found: Arrays, answer: Answer, poison: NDArray) -> None:
    """Write a piece's answer into its room, NaN where the poison has it; what does not vary is there already."""
    for name, x in answer.kept.items():
        if found[name] is not x and (room := part(found[name])) is not found[name]:
            np.copyto(room, x)
    for name, x in answer.numbers.items():
        if (room := part(found[name])) is not found[name]:
            if room.shape == poison.shape:
                np.add(x, poison, out=room)
            else:
                np.copyto(room, x)
