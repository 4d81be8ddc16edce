"""What a decision may cost too much, and how much of that a measurement saves, by regression over common draws.

Each draw holds the dollars of every option and a reading of every candidate. Where an option turns out dear, a buyer
stops: an option costs at most what was planned for it and, on top, the cheapest option of that draw. A decision after
some readings is the option whose regret is expected to be the least, by two small regressions: of each option's dollars
on the readings that say something of it, then of each option's regret on these. One half of the draws is judged by the
regressions of the other half, so that chance in the draws is not taken for knowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.draws import deviations

RIDGE = 1e-3  # of a regression on standardised columns, over the number of draws
FARTHEST = 3.0  # standard deviations up to which a reading is followed
DEAREST = 3.0  # of a regret that a regression follows, over the most that the best option may be regretted
SEEN = 4.0  # standard errors from which a reading is said to correlate with an option
SURE = 2.0  # standard errors by which a candidate has to save more than it costs


def regret_usd(dollars: NDArray, planned: NDArray) -> NDArray:
    """Return what each option costs more than the cheapest one of a draw, at most what was planned for it.

    Parameters
    ----------
    dollars : NDArray
        Dollars by option and draw; infinite where an option does not keep the promises. [USD]
    planned : NDArray
        Dollars of each option as predicted. [USD]

    Returns
    -------
    regret : NDArray
        By option and draw; 0 where no option keeps the promises, for then no choice helps. [USD]

    Examples
    --------
    >>> regret_usd(np.array([[1.0, 9.0, np.inf], [2.0, 3.0, np.inf]]), np.array([2.0, 2.5])).tolist()
    [[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]
    """
    least = dollars.min(axis=0)
    some = np.isfinite(least)
    return np.where(some, np.minimum(dollars - np.where(some, least, 0.0), planned[:, None]), 0.0)


def normal_scores(values: NDArray) -> NDArray:
    """Return the normal deviations of the ranks of draws along the last axis, so that no tail carries a regression.

    Examples
    --------
    >>> normal_scores(np.array([[1.0, np.inf, 10.0]])).round(2).tolist()
    [[-0.97, 0.97, 0.0]]
    """
    n = values.shape[-1]
    order = np.sort(deviations("ranks", n))
    places = np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1, kind="stable")
    return order[places]


def _columns(x: NDArray) -> NDArray:
    """Return the columns of a regression on standardised readings: powers up to the third, and products of two."""
    n, draws = x.shape
    columns = np.empty((1 + 3 * n + n * (n - 1) // 2, draws))
    columns[0] = 1.0
    line, square, cube, product = (columns[1 + k * n : 1 + (k + 1) * n if k < 3 else None] for k in range(4))
    np.clip(x, -FARTHEST, FARTHEST, out=line)
    np.multiply(line, line, out=square)
    np.multiply(square, line, out=cube)
    first, second = np.triu_indices(n, 1)
    np.multiply(line[first], line[second], out=product)
    return columns


def _solved(columns: NDArray, targets: NDArray) -> NDArray:
    """Return the coefficients of a ridge regression of each target on columns."""
    penalty = np.full(len(columns), RIDGE * columns.shape[1])
    penalty[0] = 0.0  # of the constant
    return np.linalg.solve(columns @ columns.T + np.diag(penalty), columns @ targets.T)


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule that chooses an option from readings, with the regressions behind it.

    `seen` says which readings each option's dollars correlate with; `first` are the coefficients of an option's dollars
    on these, `second` those of regrets on the dollars that are expected after the readings of the options that are
    `moved` by any, over their `scales`.
    """

    seen: tuple[NDArray, ...]
    first: tuple[NDArray, ...]
    moved: NDArray
    scales: NDArray
    second: NDArray

    def expected(self, readings: NDArray) -> NDArray:
        """Return the regret that is expected of each option in each draw of the readings [USD]."""
        scores = _expected_scores(self.seen, self.first, readings)[self.moved]
        return self.second.T @ _columns(scores / self.scales)

    def choose(self, readings: NDArray) -> NDArray:
        """Return the place of the option with the least expected regret in each draw of the readings."""
        return np.argmin(self.expected(readings), axis=0)


def _expected_scores(seen: Sequence[NDArray], first: Sequence[NDArray], readings: NDArray) -> NDArray:
    """Return what readings let expect of each option's dollars, as normal scores."""
    expected = np.zeros((len(seen), readings.shape[1]))
    for place, (which, coefficients) in enumerate(zip(seen, first, strict=True)):
        if which.size:
            expected[place] = coefficients @ _columns(readings[which])
    return expected


def rule(readings: NDArray, scores: NDArray, regret: NDArray) -> Rule:
    """Return the rule that draws of readings and options teach.

    Parameters
    ----------
    readings : NDArray
        Standardised readings by candidate and draw. [-]
    scores : NDArray
        Dollars of each option and draw as normal scores. [-]
    regret : NDArray
        Regret by option and draw. [USD]

    Returns
    -------
    rule : Rule
        `.choose(readings)` gives the place of an option for each draw.
    """
    n = scores.shape[1]
    correlation = np.abs(scores @ readings.T) / n
    seen = tuple(np.flatnonzero(row > SEEN / np.sqrt(n)) for row in correlation)
    first = tuple(
        _solved(_columns(readings[which]), score) if which.size else np.zeros(0)
        for which, score in zip(seen, scores, strict=True)
    )
    moved = np.array([which.size > 0 for which in seen])
    expected = _expected_scores(seen, first, readings)[moved]
    scales = expected.std(axis=1, keepdims=True)
    best = regret[np.argmin(regret.mean(axis=1))]
    followed = np.minimum(regret, DEAREST * best.max())  # else the dearest option's errors drown the others
    return Rule(seen, first, moved, scales, _solved(_columns(expected / scales), followed))


class Saving(NamedTuple):
    """Regret that is expected after some readings, and what they save with its standard error [USD]."""

    regret_usd: float
    saved_usd: float
    error_usd: float


class Draws(NamedTuple):
    """Common draws of a decision: readings by candidate (standardised), dollars by option (as scores), and regret."""

    readings: NDArray
    scores: NDArray
    regret: NDArray

    def at(self, draws: slice) -> Draws:
        """Return some of the draws."""
        return Draws(*(values[:, draws] for values in self))

    def of(self, candidates: Sequence[int]) -> Draws:
        """Return the draws with the readings of some candidates alone."""
        return self._replace(readings=self.readings[list(candidates)])


def after_usd(draws: Draws) -> NDArray:
    """Return the regret of each draw after its readings, by the rule of the other half of the draws [USD]."""
    after, halves = np.empty(draws.regret.shape[1]), (slice(0, None, 2), slice(1, None, 2))
    for here, there in (halves, halves[::-1]):
        place = rule(*draws.at(there)).choose(draws.readings[:, here])
        after[here] = np.take_along_axis(draws.regret[:, here], place[None], axis=0)[0]
    return after


def now_usd(regret: NDArray) -> NDArray:
    """Return the regret of each draw where nothing more is learnt: that of the option that has the least on average."""
    return np.asarray(regret[np.argmin(regret.mean(axis=1))])


def saved(before: NDArray, after: NDArray) -> Saving:
    """Return what is saved between two regrets of each draw, with its standard error."""
    gain = before - after
    return Saving(float(after.mean()), float(gain.mean()), float(gain.std() / np.sqrt(len(gain))))


def saving(draws: Draws) -> Saving:
    """Return what readings save of the regret that is expected without any.

    Examples
    --------
    >>> z = deviations("one", 2000)
    >>> dollars = np.stack([np.exp(0.5 * z), np.ones(2000)])
    >>> regret = regret_usd(dollars, np.ones(2))
    >>> one = saving(Draws(z[None], normal_scores(dollars), regret))
    >>> bool(one.saved_usd > 0.95 * regret.mean(axis=1).min())
    True
    """
    return saved(now_usd(draws.regret), after_usd(draws))


class Chain(NamedTuple):
    """Candidates in the order in which each adds most to those before it, and how many of them pay.

    `savings` are those of a candidate together with all before it.
    """

    places: list[int]
    savings: list[Saving]
    paying: int


def in_turn(draws: Draws, costs: NDArray, allowed: Callable[[list[int]], list[int]], most: int) -> Chain:
    """Return candidates in the order in which each adds most to those before it, costs taken off.

    Parameters
    ----------
    draws : Draws
        Of all candidates. [-, -, USD]
    costs : NDArray
        What each candidate costs. [USD]
    allowed : callable
        Takes the places of the candidates so far, and gives those of the candidates that may come next. [-]
    most : int
        Most candidates that are returned. [-]

    Returns
    -------
    chain : Chain
        Two candidates may save much together and nothing alone. So the chain goes on where nothing pays, and those at
        its end do not pay that add no more than their cost and two standard errors.
    """
    places, savings, adds = list[int](), list[Saving](), list[Saving]()
    now = before = now_usd(draws.regret)
    while len(places) < most and (rest := allowed(places)):
        afters = {place: after_usd(draws.of([*places, place])) for place in rest}
        best = min(rest, key=lambda place: float(afters[place].mean()) + costs[place])
        adds.append(saved(before, afters[best]))
        before = afters[best]
        places.append(best)
        savings.append(saved(now, before))
    paying = len(places)
    while paying and adds[paying - 1].saved_usd <= costs[places[paying - 1]] + SURE * adds[paying - 1].error_usd:
        paying -= 1
    return Chain(places, savings, paying)
