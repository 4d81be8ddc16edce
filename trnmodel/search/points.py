r"""Which runs of a server tell most of the constants of its software: the plan's own point, and a few others.

A run of a benchmark reads a decode step and a prompt. Each constant with a range moves both by so much a standard
deviation, which differs from point to point: a full batch tells of the cache, a long prompt of attention. With J as
the effects of one standard deviation on the logarithms, and s as the noise of a repeated measurement, the constants
are known to the covariance below, and the next point is the one that makes its determinant smallest.

.. math:: \Sigma = \Bigl(I + \sum \frac{J^T J}{s^2}\Bigr)^{-1}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.bands import end_of
from trnmodel.catalog.row_differences import row_noise
from trnmodel.draws import TAIL
from trnmodel.search.choice import Choice
from trnmodel.search.grid import Question
from trnmodel.serving.account import full_requests_per_s
from trnmodel.steps.inference import decode_step, prefill

PARTS = ("decode", "prefill")
SHARES = (1.0, 0.25)  # of the plan's batch and of its prompt that are tried, and a single sequence of each group
PROMPTS_PER_SLOT, FEWEST_PROMPTS = 8, 32  # of a run, so that its start and its end weigh little
MOST, NARROWED = 3, 0.9  # further points; what a standard deviation falls to where a point is said to narrow it


class Point(NamedTuple):
    """A run of a benchmark: slots of the server, requests in flight at most, their rate, lengths and number.

    `requests_per_s` is infinite where all are sent at once, and `duration_s` is predicted. `tells` are the constants
    that it narrows, each with the standard deviation of its logarithm before and after this run, the most first.
    """

    batch: int
    concurrency: int
    requests_per_s: float
    input_tokens: int
    output_tokens: int
    prompts: int
    duration_s: float
    tells: tuple[tuple[str, float, float], ...] = ()

    @property
    def narrowed(self) -> list[str]:
        """Constants whose standard deviation it lowers by a tenth or more, the most first."""
        return [name for name, before, after in self.tells if after <= NARROWED * before]


def points(c: Choice) -> list[Point]:
    """Return the run at a choice's own point, then those that tell most of its constants beside it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> request = tm.Request(2048, 256, tokens_per_s_per_user=20)
    >>> some = points(tm.plan("llama-3.1-8b", request, "hgx-h100").best)
    >>> len(some) > 1, some[0].input_tokens, some[0].tells[0][1] > some[0].tells[0][2]
    (True, 2048, True)
    """
    names, own = list(c.stack.open_ranges), _own(c)
    rivals = [point for point in _others(c) if point.duration_s > 0] if names else []
    effects = {point: _effects(c, point, names) for point in [own, *rivals]}
    known = np.eye(len(names))
    chosen = [_with_constants(own, known, effects[own], names)]
    known = known + effects[own]
    while len(chosen) <= MOST and rivals:
        best = rivals.pop(int(np.argmax([_information(known + effects[point]) for point in rivals])))
        chosen.append(_with_constants(best, known, effects[best], names))
        if not chosen[-1].narrowed:
            return chosen[:-1]
        known = known + effects[best]
    return chosen


def _with_constants(point: Point, known: NDArray, more: NDArray, names: Sequence[str]) -> Point:
    """Return a point with the constants that it narrows beyond what is known, the most first."""
    first, then = (np.sqrt(np.diag(np.linalg.inv(precision))) for precision in (known, known + more))
    order = np.argsort(then / first, kind="stable")
    return point._replace(tells=tuple((names[i], float(first[i]), float(then[i])) for i in order))


def _information(precision: NDArray) -> float:
    """Return half the logarithm of a determinant."""
    return float(np.linalg.slogdet(precision)[1]) / 2


def _own(c: Choice) -> Point:
    """Return the run at the planned load of a replica."""
    request, rate = c.question.request, float(c.requests_per_s_per_replica)
    slots = max(int(c.batch), 1)
    prompts = max(PROMPTS_PER_SLOT * slots, FEWEST_PROMPTS)
    lengths = int(request.input_tokens), int(request.output_tokens)
    return Point(slots, slots, rate, *lengths, prompts, prompts / rate)


def _others(c: Choice) -> list[Point]:
    """Return the runs that are tried: parts of the batch and of the prompt, all requests at once."""
    request, groups = c.question.request, int(c.ep)
    most = max(int(c.batch), groups)
    batches = dict.fromkeys([*(max(int(most * share) // groups, 1) * groups for share in SHARES), groups])
    prompts = dict.fromkeys(max(int(request.input_tokens * share), 1) for share in SHARES)
    own = most, int(request.input_tokens)
    return [_run(c, batch, tokens) for batch in batches for tokens in prompts if (batch, tokens) != own]


def _run(c: Choice, batch: int, input_tokens: int) -> Point:
    """Return a run that keeps a batch busy, with its predicted duration."""
    request = replace(c.question.request, input_tokens=float(input_tokens), requests_per_s=None)
    q = c.question._replace(request=request)
    steps = q.steps(c.degrees, np.asarray(float(batch)))
    rate = float(full_requests_per_s(q.times(steps), request.output_tokens)) if bool(np.all(steps.valid)) else np.nan
    prompts = max(PROMPTS_PER_SLOT * batch, FEWEST_PROMPTS)
    output = int(request.output_tokens)
    return Point(batch, batch, np.inf, input_tokens, output, prompts, prompts / rate if rate > 0 else np.nan)


def _effects(c: Choice, point: Point, names: Sequence[str]) -> NDArray:
    """Return what a run adds to the precision of the constants, in units of their standard deviations."""
    q, e = c.question, c.stack
    times = np.empty((len(names), 2, len(PARTS)))
    for place, name in enumerate(names):
        for end, value in enumerate(e.open_ranges[name]):
            option = replace(q.option, efficiencies=end_of(e, name, value))
            times[place, end] = _times_s(c, q._replace(option=option), point)
    with np.errstate(divide="ignore", invalid="ignore"):
        effects = np.nan_to_num(np.log(times[:, 1] / times[:, 0]) / 2 / TAIL)
    noise = np.array([row_noise(part, "point") for part in PARTS])
    return (effects / noise) @ (effects / noise).T


def _times_s(c: Choice, q: Question, point: Point) -> tuple[float, float]:
    """Return the decode step and the prompt of a point, on a server for the longest context of the plan [s]."""
    of_steps: dict[str, Any] = q.of_steps
    shared = q.request.prefix_share * point.input_tokens
    step = decode_step(
        q.model,
        q.system,
        c.degrees,
        batch=point.batch,
        context=point.input_tokens + point.output_tokens / 2,
        new_tokens=q.option.draft_tokens + 1,
        **of_steps,
    )
    first = prefill(
        q.model, q.system, c.degrees, batch=1, input_tokens=max(point.input_tokens - shared, 1), past=shared, **of_steps
    )
    return float(step.time_s), float(first.time_s)


def spreads(c: Choice, some: Sequence[Point]) -> dict[str, tuple[float, float]]:
    """Return half the range of each constant as a share of its value, before and after some runs.

    Constants that no run narrows by a tenth keep their range, and are left out.
    """
    shares = dict[str, tuple[float, float]]()
    for name, (low, high) in c.stack.open_ranges.items():
        last = min((after for point in some for constant, _, after in point.tells if constant == name), default=1.0)
        middle = float(c.stack.at(name))
        if last <= NARROWED and middle:
            half = (high - low) / 2 / abs(middle)
            shares[name] = half, half * last
    return shares
