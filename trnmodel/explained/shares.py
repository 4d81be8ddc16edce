"""How far an answer follows each of its facts, and what it would be with another source's value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from trnmodel.catalog.tables import Fact
from trnmodel.explained.readings import (
    Place,
    Reading,
    factors_of,
    moved,
    readings,
    rivals,
    specs_within,
)
from trnmodel.explained.subjects import Subject
from trnmodel.explained.trees import Path, direct, values_of, walk

STEP = 1e-4  # relative step by which a fact is moved up and down
ENTERS = 1e-3  # share of a term's own value from which on a fact is said to enter it
UNEVEN = 0.37  # of a step, by which numbers that are moved together differ, so that no two cancel
NOTHING = 1e-9  # relative change up to which nothing moves
JUMP = 50.0  # of a share from which on the answer does not follow a value: it jumps


class RivalAnswer(NamedTuple):
    """What another source prints of a fact, and the answer with it; NaN, with the reason, where there is none then."""

    fact: Fact
    value: float
    status: str
    answer: float
    why: str


class Stand(NamedTuple):
    """A number that an answer stands on.

    `share` is the relative change of the answer over that of the number, NaN for a count. `through` has the part of it
    that passes through each term which the number enters.
    """

    reading: Reading
    share: float
    through: Mapping[Path, float]
    rivals: tuple[RivalAnswer, ...]


class Move(NamedTuple):
    """The terms of an answer after a change, or why there is no answer then."""

    values: dict[Path, float]
    answer: float
    why: str = ""


def stands(one: Subject) -> list[Stand]:
    """Return the numbers that an answer stands on, those that move it most first.

    Each is moved by one ten-thousandth, up and down, and the question is asked again. Numbers of one spec that move
    nothing when they are moved together, each by a step of its own, are not asked one by one.
    """
    own = _move(one, {})
    every = readings(one.specs)
    live = [reading for group in _groups(one, every) for reading in _moving(one, own, group)]
    every_stand = [_stand(one, own, reading) for reading in live]
    ids = {reading.id for reading in live}
    every_stand += [_still(one, own, reading) for reading in every if reading.id not in ids]
    return sorted((stand for stand in every_stand if stand.through or stand.rivals), key=_order)


def _still(one: Subject, own: Move, reading: Reading) -> Stand:
    """Return a number that has no small change, or whose small change moves nothing."""
    return Stand(reading, math.nan if reading.is_count else 0.0, {}, _rival_answers(one, own, reading))


def _order(stand: Stand) -> float:
    return -abs(stand.share) if stand.share == stand.share else 0.0


def _groups(one: Subject, every: Iterable[Reading]) -> Iterator[list[Reading]]:
    """Yield the numbers that have a small change by the innermost spec that holds them."""
    left = {reading.id: reading for reading in every if not reading.is_count}
    inner_first = [spec for spec in one.specs for spec in reversed([*specs_within(spec)])]
    for spec in inner_first:
        key = (type(spec), spec.id)
        names = [name for name, reading in left.items() if any(place[:2] == key for place in reading.places)]
        if names:
            yield [left.pop(name) for name in names]


def _moving(one: Subject, own: Move, group: list[Reading]) -> list[Reading]:
    """Return the numbers of a group; none where all of them together move nothing."""
    there = _move(one, factors_of(group, -STEP, UNEVEN))
    return group if there.why or _changed(own, there) else []


def _changed(own: Move, there: Move) -> bool:
    return own.values.keys() != there.values.keys() or any(
        not math.isclose(value, there.values[path], rel_tol=NOTHING) for path, value in own.values.items()
    )


def _move(one: Subject, factors: Mapping[Place, float]) -> Move:
    """Return the answer with some fields so many times what they are."""
    try:
        answer = one.again(*(moved(spec, factors) for spec in one.specs)) if factors else one.answer
    except ValueError as error:  # a share above 1, or figures that do not fit each other
        return Move({}, math.nan, " ".join(str(error).split()))
    if not np.all(answer.valid):
        return Move({}, math.nan, str(np.ravel(answer.reason)[0]))
    tree = one.tree(answer)
    return Move(values_of(tree), tree.value)


def _stand(one: Subject, own: Move, reading: Reading) -> Stand:
    """Return how far an answer follows a number, and through which terms."""
    sides = {side: _move(one, factors_of([reading], side * STEP)) for side in (1, -1)}
    there = {side: move for side, move in sides.items() if abs(_slope(own, move)) < JUMP}
    if not any(_changed(own, move) for move in there.values()):
        still = _still(one, own, reading)
        return still if there else still._replace(share=math.nan)
    changes = {path: sum(_change(own, move, path) / side for side, move in there.items()) for path in own.values}
    shares = {path: change / len(there) / STEP for path, change in changes.items()}
    tree = one.tree(one.answer)
    enters = direct(tree, shares)
    through = {
        node.path: node.weight * enters[node.path] / own.answer
        for node in walk(tree)
        if abs(enters[node.path]) > ENTERS * abs(node.branch.value)
    }
    return Stand(reading, shares[(tree.name,)] / own.answer, through, _rival_answers(one, own, reading))


def _slope(own: Move, move: Move) -> float:
    return (move.answer / own.answer - 1) / STEP


def _change(own: Move, move: Move, path: Path) -> float:
    return move.values.get(path, own.values[path]) - own.values[path]


def _rival_answers(one: Subject, own: Move, reading: Reading) -> tuple[RivalAnswer, ...]:
    """Return the answer with each value that another source prints; those that change nothing are left out."""
    answers = []
    for rival in rivals(reading, one.specs):
        there = _move(one, rival.factors)
        if there.why or not math.isclose(there.answer, own.answer, rel_tol=NOTHING):
            answers.append(RivalAnswer(rival.fact, rival.value, rival.status, there.answer, there.why))
    return tuple(answers)
