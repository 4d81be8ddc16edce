"""The update of a stack's constants by measured rows: linear and Gaussian in logarithms, linearised where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.bands import variants
from trnmodel.catalog.posterior import TAIL
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.questions import grouped, predict, together
from trnmodel.evidence.readings import Reading
from trnmodel.formulas.update import Update, gaussian_update, tail

ROUNDS = 4  # of linearisation; the answers settle after two
SETTLED = 1e-3  # largest change of a logarithm that ends them
FARTHEST = 1.5  # change of a constant's logarithm in all, that rows can tell
WIDEST = 0.3  # deviation of a logarithm over which a slope is taken, at most


@dataclass(frozen=True)
class Slopes:
    """Logarithms of the answers of some readings, and how they change with the logarithm of each constant."""

    answers: NDArray
    slopes: NDArray


def ends(name: str, value: float, deviation: float) -> tuple[float, float]:
    """Return a constant one deviation of its logarithm below and above; a share and an overlap end at 1.

    Examples
    --------
    >>> ends("weight_stream_share", 0.95, 0.1)[1], round(ends("layer_s", 1.0, 0.1)[0], 3)
    (1.0, 0.905)
    """
    low, high = value * math.exp(-deviation), value * math.exp(deviation)
    return low, min(high, 1.0) if name.endswith(("share", "overlap")) else high


def slopes(
    of: Sequence[Reading], e: Efficiencies, names: Sequence[str], deviations: Sequence[float] | NDArray
) -> Slopes:
    """Return the answers of readings with a stack, and their slopes over a deviation of each constant to both sides.

    Parameters
    ----------
    of : sequence of Reading
        What is asked. [-]
    e : Efficiencies
        Stack that answers. [-]
    names, deviations : sequence
        Constants, and the standard deviations of their logarithms. [-]

    Returns
    -------
    slopes : Slopes
        NaN for a reading without an answer. [-]
    """
    pairs = [ends(name, float(getattr(e, name)), min(d, WIDEST)) for name, d in zip(names, deviations, strict=True)]
    moves = ((), *(((name, end),) for name, pair in zip(names, pairs, strict=True) for end in pair))
    lengths = np.array([math.log(high / low) for low, high in pairs])
    every, place = np.full((len(moves), len(of)), np.nan), {id(r): i for i, r in enumerate(of)}
    for group in grouped(of):
        at = [place[id(r)] for r in group]
        every[:, at] = np.broadcast_to(together(group, lambda _: variants(e, moves, 1)), (len(moves), len(group)))
    for i in np.flatnonzero(np.isnan(every).any(axis=0)).tolist():
        every[:, i] = _alone(of[i], e, moves)
    logs = np.log(every)
    return Slopes(logs[0], ((logs[2::2] - logs[1::2]) / lengths[:, None]).T)


def _alone(r: Reading, e: Efficiencies, moves: Sequence[tuple[tuple[str, float], ...]]) -> NDArray:
    """Return the answers of a reading with each change of a stack, each asked by itself; NaN where one has none."""
    try:
        return np.array([predict(r, lambda _, move=move: e.moved(dict(move))) for move in moves])  # type: ignore[misc]
    except UnreadableRowError:
        return np.full(len(moves), np.nan)


@dataclass(frozen=True)
class Estimate:
    """A stack with the constants that rows gave it, and what they say of each other.

    `covariance` is that of the logarithms of the constants in a normal distribution of the same 90 % ranges: constants
    on which no row depends keep their value and their own variance, and `resolved` is the share of its variance that
    the rows take from each other one. `size` is the deviation of what has the rows' scale over one at a scale of one.
    `before` are logarithms of measured over predicted with the stack as it was, `after` with the
    stack as it is.
    """

    stack: Efficiencies
    names: tuple[str, ...]
    covariance: NDArray
    resolved: NDArray
    depends: NDArray
    scale: float
    freedom: float
    update: Update
    before: NDArray
    after: NDArray

    @property
    def size(self) -> float:
        """Standard deviation of a normal distribution of the same 90 % interval, over that at a scale of one."""
        return math.sqrt(self.scale) * tail(self.freedom)


def update(
    of: Sequence[Reading],
    measured: NDArray,
    e: Efficiencies,
    names: tuple[str, ...],
    covariance: NDArray,
    variances: NDArray,
    scale: float,
    freedom: float,
) -> Estimate:
    """Return the constants of a stack after some rows, by a Gaussian update that is linearised where it ends.

    Parameters
    ----------
    of : sequence of Reading
        What the rows ask, each with an answer. [-]
    measured : array
        What was measured. [base units]
    e : Efficiencies
        Stack before. [-]
    names, covariance : sequence and array
        Constants that may move, and the covariance of their logarithms before. [-]
    variances : array
        Variance of each row's logarithm beside the constants. [-]
    scale, freedom : float
        Scale of all variances before, and its degrees of freedom. [-]

    Returns
    -------
    estimate : Estimate
        Stack, covariance and errors after. [-]
    """
    first = np.array([float(getattr(e, name)) for name in names])
    deviations, moved = np.sqrt(np.diag(covariance)), np.zeros(len(names))
    most = np.array([ends(name, x, FARTHEST)[1] for name, x in zip(names, first, strict=True)]) / first
    y, here, most = np.log(measured), e, np.log(most)
    at = slopes(of, here, names, deviations)
    before = y - at.answers
    for _ in range(ROUNDS):
        linear = at.slopes, y - at.answers + at.slopes @ moved, variances, scale, freedom
        one = gaussian_update(covariance, *linear)
        step = _within(one.mean, most, covariance, linear) - moved
        moved = moved + step
        here = e.moved(dict(zip(names, (first * np.exp(moved)).tolist(), strict=True)))
        at = slopes(of, here, names, deviations)
        if np.abs(step).max(initial=0.0) < SETTLED:
            break
    scale, freedom = one.scale, one.freedom
    depends = tells(at.slopes, deviations)
    resolved = np.where(depends, 1 - np.diag(one.covariance) / np.diag(covariance), 0.0)
    joint = np.where(np.outer(depends, depends), one.covariance * scale * tail(freedom) ** 2, 0.0)
    joint[~depends, ~depends] = np.diag(covariance)[~depends]
    here = here.moved({name: float(x) for name, x, moves in zip(names, first, depends, strict=True) if not moves})
    return Estimate(here, names, joint, resolved, depends, scale, freedom, one, before, y - at.answers)


def _within(mean: NDArray, most: NDArray, covariance: NDArray, linear: tuple[Any, ...]) -> NDArray:
    """Return the mean of constants of which none passes the most that it can be; what has to stay there moves others.

    `linear` are slopes, residuals, variances, and the scale with its degrees of freedom, as `gaussian_update` has them.
    """
    slopes_of_rows, residuals, *more = linear
    over = np.zeros(mean.shape, dtype=bool)
    while np.any(mean > most):
        over = over | (mean > most)
        solved = np.linalg.solve(covariance[np.ix_(over, over)], covariance[over])
        shift, inner = most[over] @ solved, covariance - covariance[:, over] @ solved
        mean = shift + gaussian_update(inner, slopes_of_rows, residuals - slopes_of_rows @ shift, *more).mean
        mean[over] = most[over]
    return np.maximum(mean, -FARTHEST)


def ranges(stack: Efficiencies, names: Sequence[str], covariance: NDArray) -> Mapping[str, tuple[float, float]]:
    """Return the 90 % range of each constant; a share and an overlap end at 1."""
    spread = TAIL * np.sqrt(np.diag(covariance))
    return {name: ends(name, float(getattr(stack, name)), float(d)) for name, d in zip(names, spread, strict=True)}


def tells(slopes_of_rows: NDArray, deviations: NDArray) -> NDArray:
    """Return whether any row's answer depends on each constant: by a thousandth over a deviation of it."""
    return np.asarray((np.abs(slopes_of_rows) * deviations).max(axis=0, initial=0.0) > 1e-3)
