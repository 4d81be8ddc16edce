"""Many points in bounded memory: a question is answered in pieces that fit a cache, with the same numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import together
from trnmodel.result import blank
from trnmodel.steps.mapping import CUTS, Mapping

POINTS = 40_000  # of a piece: its arrays stay in a core's cache
Arrays = dict[str, NDArray]


class Answer(NamedTuple):
    """Numbers that a point has only where it can exist, and what every point has, its `reason_mask` among it."""

    numbers: Arrays
    always: Arrays


class Piece(NamedTuple):
    """A range of places along one axis, which is counted from the last."""

    axis: int
    places: slice

    def of(self, x: Any) -> Any:
        """Return the piece of an array along the axis; the whole of one that does not vary along it."""
        return x[(..., self.places, *[slice(None)] * (-self.axis - 1))] if _length(x, self.axis) > 1 else x


class Question(Protocol):
    """Question of any number of points, which a piece of them can be asked too."""

    @property
    def spec_shapes(self) -> Arrays:
        """Return the shapes of arrays in the specs."""

    @property
    def sizes(self) -> Arrays:
        """Return the numbers of the question by name."""

    @property
    def places(self) -> tuple[Any, ...]:
        """Return the arrays that say which mapping each point has."""

    @property
    def everywhere(self) -> Self:
        """Return the question with what its mappings resolve to at every point."""

    def piece(self, piece: Piece, mappings: bool) -> Self:
        """Return the question of a piece of its points; `mappings` says whether these vary along the axis."""

    def solve(self) -> Answer:
        """Return the numbers of all points."""


def fitting(mapping: Mapping, spec_shapes: Arrays, **sizes: NDArray | None) -> Arrays:
    """Return the sizes that are not None; ValueError where they do not broadcast with the mapping and the machine."""
    present = {name: value for name, value in sizes.items() if value is not None}
    if spec_shapes or any(value.ndim for value in present.values()):
        together(**{f"mapping.{name}": getattr(mapping, name) for name in CUTS}, **present, **spec_shapes)
    return {name: value[()] for name, value in present.items()}


def in_pieces(question: Question) -> Arrays:
    """Return the numbers of all points, NaN for those that cannot exist, solved a piece of the longest axis at a time.

    Points that are few are solved at once.
    """
    shape = np.broadcast_shapes(*{x.shape for x in (*question.places, *question.sizes.values())})
    points = math.prod(shape)
    if points <= POINTS or question.spec_shapes:
        answer = question.everywhere.solve()
        mask = answer.always["reason_mask"]
        return answer.always | (blank(mask, **answer.numbers) if mask.any() else answer.numbers)
    axis = int(np.argmax(shape)) - len(shape)
    return _joined(question, axis, shape[axis], max(POINTS * shape[axis] // points, 2))


def _joined(question: Question, axis: int, length: int, size: int) -> Arrays:
    """Return the answers of all pieces, written side by side where they differ along the axis."""
    joined: Arrays = {}
    mappings = any(_length(x, axis) > 1 for x in question.places)
    whole = question if mappings else question.everywhere
    blanked = False
    for start in range(0, length, size):
        piece = Piece(axis, slice(start, start + size))
        answer = whole.piece(piece, mappings).solve()
        if not joined:
            joined = {name: _room(x, axis, length, size) for name, x in (answer.always | answer.numbers).items()}
        bad = answer.always["reason_mask"] != 0
        blanked = blanked or bool(bad.any())
        _write(piece, joined, answer, np.where(bad, np.nan, 0.0) if bad.any() else np.zeros(()))
    mask = joined["reason_mask"]
    smaller = {name: joined[name] for name in answer.numbers if np.shape(joined[name]) != mask.shape} if blanked else {}
    return joined | blank(mask, **smaller)


def _length(x: NDArray | float, axis: int) -> int:
    """Length of an array along an axis, 1 where it has none."""
    return np.shape(x)[axis] if np.ndim(x) >= -axis else 1


def _room(x: NDArray, axis: int, length: int, size: int) -> NDArray:
    """Return room for an answer along the whole axis, or the answer where it does not vary along it."""
    if _length(x, axis) != size:
        return x
    shape = list(np.shape(x))
    shape[axis] = length
    return np.empty(shape, np.asarray(x).dtype)


def _write(piece: Piece, joined: Arrays, answer: Answer, poison: NDArray) -> None:
    """Write a piece's answer into its room, NaN where the poison has it; what does not vary is there already."""
    for name, x in answer.always.items():
        if joined[name] is not x and (room := piece.of(joined[name])) is not joined[name]:
            np.copyto(room, x)
    for name, x in answer.numbers.items():
        if (room := piece.of(joined[name])) is not joined[name]:
            if room.shape == poison.shape:
                np.add(x, poison, out=room)
            else:
                np.copyto(room, x)
