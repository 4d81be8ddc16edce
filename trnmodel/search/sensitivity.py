"""What an answer depends on: draws of all uncertain inputs at once, and each of them moved by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import flag, instance, listed, number, numbers, one_of, refuse, shown, text
from trnmodel.catalog.fleets import distribution
from trnmodel.catalog.specs import Spec
from trnmodel.declared import Checked, Integer, Object, declare
from trnmodel.draws import DRAWS, shares, uniform_draws
from trnmodel.result import Grounded, Result, stacked, tidy

if TYPE_CHECKING:
    import pandas as pd

MOST_DRAWS = 10**7
ENDS = (0.05, 0.95)  # of a bar of the tornado, as quantiles of its input


class Uncertain(NamedTuple):
    """An input between two ends, with its value, and how it is drawn."""

    low: float
    value: float
    high: float
    distribution: str

    def at(self, u: ArrayLike) -> NDArray:
        """Quantiles of the input, of elementary functions alone, which machines agree on but for the last digit or two.

        Examples
        --------
        >>> Uncertain(1.0, 2.0, 100.0, "loguniform").at([0.0, 0.5, 1.0]).round(9).tolist()
        [1.0, 10.0, 100.0]
        >>> Uncertain(0.0, 1.0, 2.0, "triangular").at([0.0, 0.5, 1.0]).tolist()
        [0.0, 1.0, 2.0]
        """
        share, width = numbers("u", u, 0.0, 1.0), self.high - self.low
        if self.distribution == "loguniform":
            return np.clip(self.low * np.exp(share * np.log(self.high / self.low)), self.low, self.high)
        if self.distribution == "uniform" or not width:
            return self.low + share * width
        up, down = self.value - self.low, self.high - self.value
        rising = self.low + np.sqrt(share * width * up)
        return np.where(share * width < up, rising, self.high - np.sqrt((1 - share) * width * down))


def _uncertain(label: str, low: float, value: float, high: float, named: Mapping[str, str]) -> Uncertain:
    if not low <= value <= high:
        refuse(f"inputs: {label}", (low, value, high), "allowed are a low, a value and a high in this order")
    how = distribution(label, named)
    if how == "loguniform" and low <= 0:
        if label in named:
            refuse(f"distributions[{label!r}]", how, f"{label} may be {low:g}")
        how = "uniform"
    return Uncertain(low, value, high, how)


def spans(inputs: Mapping[str, Any], distributions: Mapping[str, str] | None = None) -> dict[str, Uncertain]:
    """Return the uncertain inputs by label: a field of a spec as "fleet.restart_s", a pair or triple by its name.

    Examples
    --------
    >>> import trnmodel as tm
    >>> spans({"chips": (1000, 4000)})["chips"]
    Uncertain(low=1000.0, value=2500.0, high=4000.0, distribution='triangular')
    >>> sorted(spans({"fleet": tm.fleet()}))[:2]
    ['fleet.cable_failures_per_s', 'fleet.checkpoint_bytes_per_param']
    """
    known = dict[str, Uncertain]()
    distributions = {} if distributions is None else distributions
    named = dict(instance("distributions", distributions, Mapping, "a mapping of labels to distributions"))
    for name, what in inputs.items():
        place = f"inputs[{shown(text('inputs', name))}]"
        if isinstance(what, Spec):
            for field, (low, high) in what.open_ranges.items():
                label = f"{name}.{field}"
                known[label] = _uncertain(label, low, what.at(field), high, named)
        else:
            ends = [number(place, end) for end in listed(place, what)]
            if len(ends) not in (2, 3):
                refuse(place, what, "allowed are a spec, a low and a high, or a low, a value and a high")
            known[name] = _uncertain(name, ends[0], ends[1] if len(ends) == 3 else sum(ends) / 2, ends[-1], named)
    for label in named:
        if label not in known:
            refuse("distributions", label, f"allowed are {', '.join(known)}")
    if not known:
        refuse("inputs", dict(inputs), "allowed is at least one input with a range")
    return known


def filled(inputs: Mapping[str, Any], values: Mapping[str, NDArray]) -> dict[str, Any]:
    """Return the inputs with arrays of draws in place of uncertain values."""
    filled: dict[str, Any] = {}
    for name, what in inputs.items():
        if isinstance(what, Spec):
            drawn = {field: values[f"{name}.{field}"] for field in what.open_ranges}
            filled[name] = replace(what.moved(drawn), ranges={}) if drawn else what
        else:
            filled[name] = values[name]
    return filled


def common_values(
    inputs: Mapping[str, Any], draws: int = DRAWS, distributions: Mapping[str, str] | None = None, series: str = ""
) -> dict[str, NDArray]:
    """Return common draws of each uncertain value of some inputs, by its label; another series has other draws."""
    return {label: one.at(shares(label + series, draws)) for label, one in spans(inputs, distributions).items()}


def common_draws(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs with their common draws in place of uncertain values: of these the bands of costs are made."""
    return filled(inputs, common_values(inputs))


def _answers(answer: Any, points: int) -> dict[str, NDArray]:
    """Return the answers of a function by name; a single one is "answer", and a result gives its main figure."""
    answers = answer if isinstance(answer, Mapping) else {"answer": answer}
    checked = {}
    for name, one in answers.items():
        value = np.asarray(getattr(one, one.FIGURE) if isinstance(one, Grounded) else one)
        if value.dtype.kind not in "iuf" or value.size not in (1, points):
            refuse("ask", shown(one), f"allowed are answers of {points} numbers, one for each draw")
        checked[str(name)] = np.broadcast_to(value.ravel(), points)
    return checked


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sensitivity(Result):
    """Draws of one answer or of several that are compared, all from the same draws of the inputs."""

    seed: int
    draws: int
    inputs: Mapping[str, Uncertain]
    values: Mapping[str, NDArray]
    bars: Mapping[str, NDArray]

    def percentiles(self, at: ArrayLike = (5.0, 50.0, 95.0)) -> pd.DataFrame:
        """Percentiles of each answer: answer, value (every input at its value), mean, p5, p50, p95, undefined.

        Draws that have no answer are left out; `undefined` is their share.
        """
        wanted = numbers("at", at, 0, 100).ravel().tolist()
        rows = []
        for name, drawn in self.values.items():
            there = drawn[np.isfinite(drawn)]
            row = {"answer": name, "value": self.bars[name][0], "mean": there.mean() if there.size else np.nan}
            cuts = np.percentile(there, wanted) if there.size else [np.nan] * len(wanted)
            row |= {f"p{each:g}": cut for each, cut in zip(wanted, cuts, strict=True)}
            rows.append(row | {"undefined": 1 - there.size / drawn.size})
        return tidy(rows)

    def tornado(self, answer: str = "") -> pd.DataFrame:
        """Each input moved by itself from its 5th to its 95th percentile, the others at their values; widest first.

        Returns
        -------
        table : pandas.DataFrame
            input, distribution, low and high (of the input), answer_low and answer_high (the answer there), swing (its
            size), variance_share (squared correlation of the input's draws with the answer's).
        """
        if not isinstance(answer, str) or (answer and answer not in self.values):
            one_of("answer", answer, self.values, "the name of an answer")
        name = answer or next(iter(self.values))
        ends = self.bars[name][1:].reshape(-1, 2)
        rows = []
        for (label, one), (low, high) in zip(self.inputs.items(), ends, strict=True):
            at = dict(zip(("low", "high"), one.at(ENDS), strict=True))
            row = {"input": label, "distribution": one.distribution, **at, "answer_low": low, "answer_high": high}
            drawn = one.at(uniform_draws(label, self.draws, self.seed))
            rows.append(row | {"swing": abs(high - low), "variance_share": _correlation(drawn, self.values[name]) ** 2})
        return tidy(rows).sort_values("swing", ascending=False, kind="stable", ignore_index=True)

    def wins(self, least: bool = False) -> pd.DataFrame:
        """Share of the draws in which each answer is the largest, or the `least`: answer, wins; the first of equals."""
        least = flag("least", least)
        names, drawn = [*self.values], np.stack([*self.values.values()])
        fair = np.where(np.isfinite(drawn), -drawn if least else drawn, -np.inf)
        counts = np.bincount(fair.argmax(axis=0), minlength=len(names)) / drawn.shape[1]
        return tidy([{"answer": name, "wins": share} for name, share in zip(names, counts, strict=True)])

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Percentiles and tornados as one table would not be tidy: the tornado of every answer, with its name."""
        flag("bands", bands)
        return stacked({name: self.tornado(name) for name in self.values}, "answer")

    def _answer(self) -> list[str]:
        rows = self.percentiles().itertuples(index=False)
        return [f"{row.answer} {row.p50:.3g} ({row.p5:.3g} to {row.p95:.3g})" for row in rows]

    def _described(self) -> tuple[list[str], list[str], list[str]]:
        said = [f"{self.draws} draws, seed {self.seed}"]
        for name in self.values:
            first = self.tornado(name).iloc[0]
            said.append(f"{name} moves most with {first.input} ({first.answer_low:.3g} to {first.answer_high:.3g})")
        return said, [], []


def _correlation(one: NDArray, other: NDArray) -> float:
    there = np.isfinite(other)
    x, y = one[there], other[there]
    if not x.size or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()))


@declare(
    passes_on=True,
    function=Checked("a function of the inputs", {}),
    inputs=Object(Mapping, "a mapping of names to inputs", {"type": "object"}),
    draws=Integer(2, MOST_DRAWS),
    seed=Integer(0, 2**32 - 1),
    distributions=Object(Mapping, "a mapping of labels to distributions", {"type": "object"}),
)
def sensitivity(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    draws: int = 10_000,
    seed: int = 0,
    distributions: Mapping[str, str] | None = None,
) -> Sensitivity:
    """Return how an answer depends on its inputs: from draws of all of them, and from moving each alone.

    Parameters
    ----------
    function : callable
        Takes the inputs by name and gives an answer for each draw, or a mapping of answers that are compared on the
        same draws: arrays, or results, of which the main figure counts. It is called once. [-]
    inputs : mapping
        By name: a spec, of which every field with an open range is drawn; or a low and a high, or a low, a value and a
        high. [-]
    draws : int
        How many. [-]
    seed : int
        The same seed gives the same draws of an input of the same name, whatever else is drawn. [-]
    distributions : mapping, optional
        By label ("fleet.restart_s"): "uniform", "triangular" or "loguniform", where data says another. [-]

    Returns
    -------
    sensitivity : Sensitivity
        `.percentiles()`, `.tornado(answer)`, `.wins()`, `.values`.

    Raises
    ------
    ValueError
        No input has a range, ends out of order, an unknown distribution, or answers that do not fit the draws.

    Notes
    -----
    Inputs are drawn independently of each other.

    Examples
    --------
    >>> import trnmodel as tm
    >>> job = {"chips": 16_384, "model": "llama-3.1-405b"}
    >>> def ask(fleet):
    ...     return {name: tm.goodput(f"trn3-{name}-pcie160", fleet=fleet, **job) for name in ("nl32x2", "nl72x2")}
    >>> found = tm.sensitivity(ask, {"fleet": tm.fleet()}, draws=2000)
    >>> found.wins().wins.tolist()
    [0.0, 1.0]
    """
    if not callable(function):
        refuse("function", function, "allowed is a function of the inputs")
    known = spans(inputs, distributions)
    lead = 2 * len(known) + 1  # every input at its value, then each at its ends
    values = {}
    for place, (label, one) in enumerate(known.items()):
        fixed = np.full(lead, one.value)
        fixed[2 * place + 1 : 2 * place + 3] = one.at(ENDS)
        values[label] = np.concatenate([fixed, one.at(uniform_draws(label, draws, seed))])
    answers = _answers(function(**filled(inputs, values)), lead + draws)
    made = {"values": {name: all_[lead:] for name, all_ in answers.items()}}
    bars = {name: all_[:lead] for name, all_ in answers.items()}
    return Sensitivity(seed=seed, draws=draws, inputs=known, bars=bars, reason_mask=np.zeros((), int), **made)
