"""What a measured row says about other questions: the part of a model that it asks, the chip, the stack, its sizes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import nan
from typing import Any, NamedTuple

import numpy as np

from trnmodel.arguments import Same
from trnmodel.bands import contradicted, plain_rows_basis, rows_basis, spread
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.columns import ENERGY, TRAINING
from trnmodel.evidence.jobs import software, training
from trnmodel.evidence.joules import basis as watts_rest_on
from trnmodel.evidence.primitives import bare_chip, kernel_answer, launched, message
from trnmodel.evidence.questions import grouped, predict, predicted, together
from trnmodel.evidence.readings import Reading, is_rate, stack_of
from trnmodel.kernels import kernel
from trnmodel.models.transformer import Transformer, model
from trnmodel.result import CALIBRATED, Basis
from trnmodel.steps.questions import ELSEWHERE

# the part that a meaning is about, by how it begins; another meaning is a part by itself
PARTS = (
    ("decode-read", "bytes"),
    ("decode-mbu", "share of HBM"),
    ("prefill-mfu", "share of peak"),
    ("queued-", "queue"),
    ("waiting-", "queue"),
    ("burst-", "queue"),
    ("decode", "decode"),
    ("layer-", "decode"),
    ("loaded-step", "load"),
    ("loaded-speed", "load"),
    ("loaded-", "request"),
    ("served", "throughput"),
    ("generated", "run"),
    ("total-", "run"),
    ("run", "run"),
    ("request", "run"),
    ("memory:", "memory"),
    ("kernel-", "kernel"),
    ("collective", "collective"),
    ("graph", "collective"),
    (TRAINING, TRAINING),
    (ENERGY, ENERGY),
)
PREFILL = ("prefill", "one-prefill", "batch-prefill", "reprefill", "forward")
PLAIN = ("kernel", "collective")  # parts whose rows alone say how far a prediction may be off
ALONE = ("one-prefill", "batch-prefill", "queued-prefill", "burst-prefill")  # prompts that run one by one


def part(meaning: str) -> str:
    """Return the part of a model that a meaning is about.

    Examples
    --------
    >>> part("decode-throughput"), part("reprefill-throughput"), part("served-requests")
    ('decode', 'prefill', 'throughput')
    """
    if meaning.startswith(PREFILL) and meaning != "prefill-mfu":
        return "prefill"
    return next((name for start, name in PARTS if meaning.startswith(start)), meaning)


@lru_cache(maxsize=65536)
def where(r: Reading) -> dict[str, str]:
    """Part, kind of model, chip and stack of a reading."""
    about = part(r.meaning)
    if about == "kernel":
        kind, on = "kernel", kernel.stack(r.stack).id
    elif about == "collective":
        kind, on = about, launched(r)
    elif about == TRAINING:
        kind, on = model(r.model).kind, software(r).id
    elif about == ENERGY:
        kind, on = (model(r.model).kind if r.model else "operator"), ""
    else:
        kind, on = (model(r.model).kind if r.model else "operator"), stack_of(r).rows_of
    return {"part": about, "kind": kind, "chip": bare_chip(r).id, "on": on}


@lru_cache(maxsize=65536)
def sizes(r: Reading) -> dict[str, float]:
    """Return a reading's place on the axes; NaN where it has none."""
    about = part(r.meaning)
    if about == "kernel":
        answer = kernel_answer(r)
        return _axes(ranks=answer.lnc, size=float(answer.hbm_read_bytes + answer.hbm_write_bytes))
    if about == "collective":
        try:
            _, ranks, size = message(r)
        except UnreadableRowError:
            return _axes()
        return _axes(ranks=ranks, size=size)
    prompt = about in ("prefill", "queue", "share of peak")
    batch = (1.0 if r.meaning in ALONE else r.batch) if prompt else max(r.batch, r.compiled_batch)
    size = _active_params(Same(model(r.model))) if r.model else nan
    return _axes(float(r.degrees.replica_ranks), batch, r.prompt if prompt else r.context, size)


@lru_cache(maxsize=512)
def _active_params(of: Same[Transformer]) -> float:
    return float(of.it.active_params())


def _axes(ranks: float = nan, batch: float = nan, length: float = nan, size: float = nan) -> dict[str, float]:
    return {"ranks": ranks, "sequences": batch, "length": length, "size": size}


def grounds(of: Sequence[Reading]) -> dict[str, list]:
    """Part, kind, chip, stack and sizes of readings, as columns of a table."""
    rows = [where(r) | sizes(r) for r in of]
    return {name: [one[name] for one in rows] for name in (rows[0] if rows else ())}


def place(r: Reading) -> dict[str, float]:
    """Return a reading's values on the axes of a question, those that it has."""
    return {"batch" if name == "sequences" else name: x for name, x in sizes(r).items() if math.isfinite(x)}


def rows_basis_of(r: Reading) -> Basis:
    """Return what the rows near a reading say of its prediction, with their half-width."""
    return _rows_basis(r, place(r), r.unknown)


def _rows_basis(r: Reading, points: Mapping[str, Any], unknown: Any) -> Basis:
    """Return what the rows near some points say of a prediction like a reading's; columns are `unknown` at each."""
    about, kind, chip, on = where(r).values()
    if about in PLAIN:
        return plain_rows_basis(about, chip, on, points, unknown)
    own = bare_chip(r)
    return rows_basis(stack_of(r), own, r.mapping[3] or own.lnc_default, about, kind, points, unknown)


def _basis(r: Reading, points: Mapping[str, Any], unknown: Any) -> Basis:
    """Return what a prediction like a reading's rests on at points: the rows near them, and those that contradict it.

    A rate is slow where the time is long.
    """
    basis, (about, kind, chip, on) = _rows_basis(r, points, unknown), where(r).values()
    if is_rate(r.meaning) and basis.tails is not None:
        basis = basis._replace(tails=basis.tails[::-1])
    own = np.all(basis.word == "ideal") or (about not in PLAIN and stack_of(r).posterior)
    return basis if own else contradicted(basis, about, kind, chip, on, points)


class Banded(NamedTuple):
    """What the model gives for a reading, the ends of its 90 % interval, and what these rest on."""

    value: float
    low: float
    high: float
    word: str
    reason: str


Judged = Banded | UnreadableRowError
Widths = tuple[float, float]  # below and above


@lru_cache(maxsize=65536)
def _room(r: Reading) -> list[Judged]:
    """Return the place of what is known of a reading, which is empty until somebody asks."""
    return []


def banded(of: Iterable[Reading]) -> list[Judged]:
    """Return the prediction of each reading with its interval and basis, or the reason why it has none.

    Readings that are alike are asked together, and each reading once.
    """
    of = list(of)
    rooms = {r: _room(r) for r in of}
    values = predicted(r for r, room in rooms.items() if not room)
    judged, others = dict[Reading, Judged](), dict[Reading, float]()
    for r, value in values.items():
        if isinstance(value, UnreadableRowError):
            judged[r] = value
        elif where(r)["part"] == TRAINING:
            judged[r] = _trained(r, value)
        elif where(r)["part"] == ENERGY:
            basis = watts_rest_on(r)
            below, above = map(float, basis.sides)
            judged[r] = _interval(value, basis, (below, above))
        else:
            others[r] = value
    for r, one in (judged | _banded(others)).items():
        rooms[r][:] = [one]
    return [rooms[r][0] for r in of]


def _trained(r: Reading, value: float) -> Banded:
    """Return the interval of a step of training, which knows its own."""
    step = training(r)
    ratio = float(step.high / step.time_s)
    return Banded(value, value / ratio, value * ratio, str(step.basis), str(step.basis_reason))


def _banded(values: Mapping[Reading, float]) -> dict[Reading, Judged]:
    """Return the intervals of predictions: by the rows near them and, outside of these, by their stacks' ranges."""
    bases = _bases(values)
    widths: dict[Reading, Any] = {r: basis.sides for r, basis in bases.items()}
    outside = [r for r, one in bases.items() if _loose(str(one.word)) and where(r)["part"] not in PLAIN]
    for group in grouped(outside):
        widths |= _ranged(group, values, bases)
    return {r: _interval(values[r], bases[r], widths[r]) for r in values}


def _loose(word: str) -> bool:
    """Return whether the ranges of a stack count in the band of a prediction that rests on this word."""
    return word == "extrapolated" or word.startswith(CALIBRATED)


def _interval(value: float, basis: Basis, widths: Widths | UnreadableRowError) -> Judged:
    """Return a prediction with the ends that its half-widths below and above give."""
    if isinstance(widths, UnreadableRowError):
        return widths
    below, above = widths
    return Banded(value, value * math.exp(-below), value * math.exp(above), str(basis.word), str(basis.reason))


def _bases(of: Iterable[Reading]) -> dict[Reading, Basis]:
    """Return what the prediction of each reading rests on; readings of one ground are judged together."""
    bases: dict[Reading, Basis] = {}
    for group in grouped(of, _ground):
        places = [place(r) for r in group]
        points = {axis: np.array([one[axis] for one in places]) for axis in places[0]}
        basis = _basis(group[0], points, np.array([r.unknown for r in group]))
        columns = [np.broadcast_to(x, len(group)) for x in (basis.word, basis.reason, basis.width, *basis.sides)]
        for r, word, reason, width, below, above in zip(group, *columns, strict=True):
            bases[r] = Basis(word, reason, width, (below, above))
    return bases


def _ground(r: Reading) -> Hashable:
    """Return what readings share that are judged by the same rows, on the same axes."""
    about = (*where(r).values(), is_rate(r.meaning), *place(r))
    return about if where(r)["part"] in PLAIN else (about, Same(stack_of(r)), Same(bare_chip(r)), r.mapping[3])


def _ranged(
    group: Sequence[Reading], values: Mapping[Reading, float], bases: Mapping[Reading, Basis]
) -> dict[Reading, Widths | UnreadableRowError]:
    """Return the half-widths of readings that are alike and outside of their rows; the reason where an end has none.

    All ends of the stack's ranges are asked in one call. Where that gives some of them no figure, each is asked alone.
    """
    stack, middle = _open_stack(group[0]), np.array([values[r] for r in group])
    sides = (np.array([bases[r].sides[side] for r in group]) for side in range(2))
    basis = Basis("extrapolated", "", 0.0, (next(sides), next(sides)))
    below, above = spread(basis, stack, lambda e: middle if e is stack else together(group, lambda _: e), at_once=True)
    widths = zip(below.tolist(), above.tolist(), strict=True)
    return {r: one if np.all(np.isfinite(one)) else _alone(r, bases[r]) for r, one in zip(group, widths, strict=True)}


def _open_stack(r: Reading) -> Efficiencies:
    """Return the stack of a reading without the ranges of memory, since a run that was measured has fitted."""
    e = stack_of(r)
    if r.meaning.startswith("memory:"):
        return e
    return replace(e, ranges={name: ends for name, ends in e.ranges.items() if name not in ELSEWHERE["memory"]})


def _alone(r: Reading, basis: Basis) -> Widths | UnreadableRowError:
    """Return the half-widths of one reading, each end asked by itself; the reason for an end without a figure."""
    try:
        below, above = spread(basis, _open_stack(r), lambda e: np.asarray(predict(r, lambda _: e)))
    except UnreadableRowError as reason:
        return UnreadableRowError(str(reason))
    return float(below), float(above)
