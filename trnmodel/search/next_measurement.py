"""What to measure next before a decision: how much each measurement, quote or open fact saves, in expected dollars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import HUGE, TINY, instance, label, listed, number, one_of, refuse
from trnmodel.catalog.row_differences import PARTS, row_noise
from trnmodel.declared import Allowed, Checked, Integer, Number, Object, Text, Word, declare
from trnmodel.draws import deviations
from trnmodel.result import Card, tidy
from trnmodel.search.chip_seconds import TokenCost
from trnmodel.search.compare import Comparison, percent
from trnmodel.search.decision import (
    BILLS,
    READ,
    Decision,
    Drawn,
    decision_of,
    drawn_of,
    open_facts,
    price_readings,
    read_on,
    standard_deviation,
)
from trnmodel.search.plan import Plan
from trnmodel.search.regret import SEEN, Draws, in_turn, normal_scores, now_usd, regret_usd, saving
from trnmodel.search.token_cost import TokenCosts
from trnmodel.units import BILLION, format_digits

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 3000
MOST = 6  # candidates that are looked for one after another
SHOWN = 8  # lines of a card
MEASUREMENT, QUOTE, FACT = "measurement", "price quote", "open fact"
MOST_NOISE = 10.0  # standard deviation of a logarithm: nothing is learnt
WHERE = {  # what is measured, by what it has in common with the plan's own point
    "decode": {"mapping": "at another batch or length", "model": "at another mapping", "chip": "of another model"},
    "prefill": {"mapping": "of another length", "model": "at another mapping", "chip": "of another model"},
    "throughput": {"mapping": "at another concurrency", "model": "at another mapping", "chip": "of another model"},
}
CALLED = {"decode": "decode step", "prefill": "prefill", "throughput": "server under load"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that could be learnt before a decision: a measurement, a price quote, or the end of an open fact.

    Parameters
    ----------
    name : str
        Name of its own. [-]
    reads : str
        What of the decision it tells, as `NextMeasurement.readable` lists it: "decode step on trn2.48xlarge". [-]
    kind : str
        "measurement", "price quote" or "open fact". [-]
    noise : float
        Standard deviation of the logarithm by which it misses what it tells; 0.05 is 5 %. [-]
    cost_usd : float
        What it costs. [USD]
    system : str
        System that it is made on, or whose price it is; empty where it is of none. [-]

    Raises
    ------
    ValueError
        A text is none or too long, or a number is out of its range.

    Examples
    --------
    >>> Candidate(name="our quote", reads="hgx-b200: USD a chip-hour", kind="price quote").noise
    0.0
    """

    allowed: ClassVar[dict[str, Allowed]] = {
        **dict.fromkeys(("name", "reads", "kind", "system"), Text()),
        "noise": Number(0.0, MOST_NOISE),
        "cost_usd": Number(0.0, HUGE),
    }

    name: str
    reads: str
    kind: str = MEASUREMENT
    noise: float = 0.0
    cost_usd: float = 0.0
    system: str = ""

    def __post_init__(self) -> None:
        for field in ("name", "reads", "kind", "system"):
            if not label(field, getattr(self, field)).strip() and field != "system":
                refuse(field, getattr(self, field), "allowed is a text that is not blank")
        object.__setattr__(self, "noise", number("noise", self.noise, 0.0, MOST_NOISE))
        object.__setattr__(self, "cost_usd", number("cost_usd", self.cost_usd, 0.0, HUGE))


class Value(NamedTuple):
    """What a candidate saves by itself, and together with those before it (NaN beyond the first few).

    It is `suggested` where it pays to learn it after those before it.
    """

    candidate: Candidate
    saved_usd: float
    error_usd: float
    together_usd: float
    suggested: bool


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NextMeasurement(Card):
    """What to learn before a decision: the suggestions in their order, then the others by what they save.

    `best` is the option that is chosen now, and `regret_usd` what it is expected to cost more over the term than what
    is the best in each draw. `all_saved_usd` is what all candidates together would save of that. `readable` lists what
    a `Candidate` of one's own may tell, with the standard deviation of its logarithm.
    """

    decision: Decision
    best: str
    regret_usd: float
    all_saved_usd: float
    values: tuple[Value, ...]
    readable: Mapping[str, float]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates, in their order."""
        return tuple(one.candidate for one in self.values)

    @property
    def suggestions(self) -> tuple[Candidate, ...]:
        """Candidates that pay, in the order in which each adds most; none where it is best to decide now."""
        return tuple(one.candidate for one in self.values if one.suggested)

    @property
    def advice(self) -> str:
        """What to do, in a sentence."""
        bill = f"a bill of ${format_digits(self._planned, 2)}"
        regret = f"${format_digits(self.regret_usd, 2)}"
        if not self.suggestions:
            return (
                f"Decide now for {self.best}: no candidate saves more than it costs, "
                f"and the expected regret is {regret} of {bill}."
            )
        cost = sum(one.cost_usd for one in self.suggestions)
        after = self.regret_usd - max(one.together_usd for one in self.values if one.suggested)
        more = len(self.suggestions) - 1
        rest = f", then {more} more" if more else ""
        first, left = self.suggestions[0].name, format_digits(max(after, 0.0), 2)
        return (
            f"Before {bill} on {self.best}, learn this first: {first}{rest}. That takes the expected regret "
            f"from {regret} to ${left} and costs ${format_digits(cost, 2)}."
        )

    @property
    def _planned(self) -> float:
        """Bill of the best option over the term [USD]."""
        return float(self.decision.planned_usd[self.decision.systems.index(self.best)])

    def card(self) -> list[str]:
        """Return the advice, the options with their bills, and what the first candidates save."""
        d = self.decision
        bills = zip(d.systems, d.planned_usd, strict=True)
        options = ", ".join(f"{name} ${format_digits(float(usd), 2)}" for name, usd in bills)
        load = f"{format_digits(d.requests_per_s, 3)} requests/s for {d.months:g} months"
        lines = [self.advice, f"{d.model.id}, {d.request.describe()}, {load}: {options}"]
        lines += [self._described(one) for one in self.values[:SHOWN]]
        more = len(self.values) - SHOWN
        lines += [f"{more} more candidates"] if more > 0 else []
        share = f" ({percent(self.all_saved_usd / self.regret_usd)} of the regret)" if self.regret_usd else ""
        lines.append(f"all candidates together save ${format_digits(self.all_saved_usd, 2)}{share}")
        return lines + [f"{name}: {why}" for name, why in d.left_out.items()]

    def _described(self, one: Value) -> str:
        """Return what a candidate saves and costs, in words."""
        saved = f"saves ${format_digits(one.saved_usd, 2)}" if one.saved_usd > 0 else "saves nothing by itself"
        cost = f", costs ${format_digits(one.candidate.cost_usd, 2)}" if one.candidate.cost_usd else ""
        together = f"; with those above ${format_digits(one.together_usd, 2)}" if one.suggested else ""
        return f"{one.candidate.name}: {saved}{cost}{together}"

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each candidate, in their order.

        Returns
        -------
        table : pandas.DataFrame
            candidate, candidate_kind, system, reads, noise, measurement_usd, regret_now_usd, regret_after_usd and
            saved_usd with saved_error_usd (by itself), saved_share (of what all candidates together save),
            saved_together_usd (with those before it; NaN beyond the first few), suggested.
        """
        rows = []
        for one in self.values:
            c = one.candidate
            row: dict[str, Any] = {"candidate": c.name, "candidate_kind": c.kind, "system": c.system, "reads": c.reads}
            row |= {"noise": c.noise, "measurement_usd": c.cost_usd, "regret_now_usd": self.regret_usd}
            row |= {"regret_after_usd": self.regret_usd - one.saved_usd, "saved_usd": one.saved_usd}
            row |= {"saved_error_usd": one.error_usd, "saved_share": self._share(one.saved_usd)}
            rows.append(row | {"saved_together_usd": one.together_usd, "suggested": one.suggested})
        return tidy(rows)

    def _share(self, usd: float) -> float:
        """Return a saving as a share of what all candidates together save."""
        return usd / self.all_saved_usd if self.all_saved_usd > 0 else 0.0


@declare(
    decision=Object(Comparison | Plan | TokenCosts, "a Comparison, a Plan or TokenCosts"),
    candidates=Checked("a list of Candidates"),
    users=Number(TINY, BILLION),
    months=Number(TINY, 1200),
    speed=Number(TINY, HUGE),
    bill=Word(BILLS),
    hours=Number(0, 1e6),
    draws=Integer(200, 10**5),
)
def next_measurement(
    decision: Comparison | Plan | TokenCosts,
    candidates: Iterable[Candidate] | None = None,
    *,
    users: float | None = None,
    months: float = 12.0,
    speed: float | None = None,
    bill: str = "rented",
    hours: float = 2.0,
    draws: int = DRAWS,
) -> NextMeasurement:
    r"""Return what to measure or ask for before a decision, by how much it lowers the expected regret in dollars.

    .. math:: \min_o E[R_o] - E\Bigl[\min_o E[R_o \mid s]\Bigr]

    Parameters
    ----------
    decision : Comparison, Plan or TokenCosts
        Systems that serve one request; each that has a price and keeps the promises is an option. [-]
    candidates : list of Candidate, optional
        What could be learnt. Default: of each option its decode step, its prefill and a server under load, at the
        plan's own point and elsewhere; a quote of each open price; the open facts of its chip, and of its owner's cost
        where it is owned. [-]
    users : float, optional
        Users that decode at once at the promised speed, where the decision states no load. [-]
    months : float
        Term over which the bill is paid. [-]
    speed : float, optional
        Speed of a comparison of several. [token/s]
    bill : str
        Whose dollars they are: "rented" or "owned". [-]
    hours : float
        Hours for which an instance is taken for each default measurement; its price is that of the option. [-]
    draws : int
        Common draws. [-]

    Returns
    -------
    next : NextMeasurement
        `.advice`, `.suggestions`, `.regret_usd`, `.candidates`; `.to_frame()` has a row for each candidate.

    Raises
    ------
    ValueError
        The decision has fewer than two options or no load, or a candidate tells nothing of it.

    Notes
    -----
    The regret R of an option is what it costs more than the cheapest option of a draw. An option costs at most what was
    planned for it plus the cheapest option, since a buyer stops there; where nothing keeps the promises, no choice
    helps. A reading s is the logarithm of what a candidate tells, missed by its noise. The expectation after a reading
    is a regression over the draws, each half of which is judged by the regression of the other half. Measured rows say
    how far one measurement misses another: `data/evidence/row_differences.csv`. Of two candidates that tell the same,
    the noisier one adds nothing to the other. An open fact of a chip tells the part of a step's deviation that its two
    ends explain. A suggestion adds more than it costs and than two standard errors, alone or with those after it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> request = tm.Request(1024, 256, tokens_per_s_per_user=20)
    >>> both = tm.compare("llama-3.1-8b", request, ["trn2.48xlarge", "hgx-h100"])
    >>> result = tm.next_measurement(both, users=1000)
    >>> bool(0 <= result.all_saved_usd <= result.regret_usd), len(result.candidates) >= 20
    (True, True)
    """
    one = decision_of(decision, users, months, speed, bill)
    drawn = drawn_of(one, draws)
    some = default_candidates(one, drawn, hours) if candidates is None else _checked(candidates, drawn)
    common = draws_of(one, drawn, some)
    regret = now_usd(common.regret).mean()
    alone = [saving(common.of([place])) for place in range(len(some))]
    chain = in_turn(common, np.array([c.cost_usd for c in some]), lambda places: _next(some, places), MOST)
    together = {place: saved.saved_usd for place, saved in zip(chain.places, chain.savings, strict=True)}
    rest = sorted(
        (place for place in range(len(some)) if place not in together),
        key=lambda place: some[place].cost_usd - max(alone[place].saved_usd, 0.0),
    )
    paying = chain.places[: chain.paying]
    values = [
        Value(
            candidate=some[place],
            saved_usd=max(alone[place].saved_usd, 0.0),
            error_usd=alone[place].error_usd,
            together_usd=together.get(place, np.nan),
            suggested=place in paying,
        )
        for place in [*chain.places, *rest]
    ]
    return NextMeasurement(
        decision=one,
        best=one.systems[int(np.argmin(common.regret.mean(axis=1)))],
        regret_usd=float(regret),
        all_saved_usd=max(saving(common).saved_usd, max(together.values(), default=0.0), 0.0),
        values=tuple(values),
        readable={name: float(reading.std()) for name, reading in drawn.readings.items()},
    )


def _checked(candidates: Any, drawn: Drawn) -> list[Candidate]:
    """Return the candidates of a user, each of which tells something of the decision and has a name of its own."""
    some = [instance("candidates", one, Candidate, "a list of Candidates") for one in listed("candidates", candidates)]
    for one in some:
        one_of("reads", one.reads, drawn.readings, "something that the decision depends on")
    names = [one.name for one in some]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        refuse("candidates", twice, "each has a name of its own")
    return some


def _next(candidates: Sequence[Candidate], places: Sequence[int]) -> list[int]:
    """Return the places of the candidates that may come after some: those that another one does not hold.

    One that tells the same with no more noise, at no more cost or learnt already, holds it.
    """
    learnt = {place: candidates[place] for place in places}

    def held(place: int) -> bool:
        one = candidates[place]
        return any(
            rival.reads == one.reads
            and (rival.noise, other) < (one.noise, place)
            and (other in learnt or rival.cost_usd <= one.cost_usd)
            for other, rival in enumerate(candidates)
        )

    return [place for place in range(len(candidates)) if place not in learnt and not held(place)]


def draws_of(decision: Decision, drawn: Drawn, candidates: Sequence[Candidate], series: str = "") -> Draws:
    """Return the draws of a decision with the readings of candidates, each missed by its noise.

    Of two candidates that tell the same, the noisier one misses what the other one reads, so that it adds nothing.

    Parameters
    ----------
    decision, drawn : Decision, Drawn
        Options, and draws of them. [-]
    candidates : list of Candidate
        Whose readings are drawn. [-]
    series : str
        Name of the noise: another one is other noise. [-]
    """
    shape = len(candidates), drawn.dollars.shape[1]
    read, last = np.empty(shape), dict[str, tuple[NDArray, float]]()
    for place in sorted(range(len(candidates)), key=lambda place: candidates[place].noise):
        one = candidates[place]
        before, noise = last.get(one.reads, (drawn.readings[one.reads], 0.0))
        more = np.sqrt(one.noise**2 - noise**2)
        read[place] = before + more * deviations(f"{one.reads} missed by {one.noise:.6g}{series}", shape[1])
        last[one.reads] = read[place], one.noise
    known = np.ptp(read, axis=1, keepdims=True) > 0
    readings = np.where(known, normal_scores(read), 0.0)
    return Draws(readings, normal_scores(drawn.dollars), regret_usd(drawn.dollars, decision.planned_usd))


def default_candidates(decision: Decision, drawn: Drawn, hours: float) -> list[Candidate]:
    """Return what could be learnt of each option: measurements, quotes of open prices, and open facts.

    Inputs of an owner's cost on which no option depends are left out.
    """
    some = list[Candidate]()
    for one in decision.lines:
        some += _measurements(one, drawn, hours)
    prices = price_readings(decision.lines)
    for name, system in prices.items():
        some.append(Candidate(name=f"price quote for {system}", reads=name, kind=QUOTE, system=system))
    measured = {read_on(part, system) for part in PARTS for system in decision.systems}
    scores = normal_scores(drawn.dollars)
    for name, reading in drawn.readings.items():
        if name not in measured and name not in prices:
            seen = np.abs(scores @ normal_scores(reading[None])[0]) / len(reading)
            if seen.max() > SEEN / np.sqrt(len(reading)):
                some.append(Candidate(name=f"value of {name}", reads=name, kind=FACT))
    return list({one.name: one for one in some}.values())


def _measurements(one: TokenCost, drawn: Drawn, hours: float) -> list[Candidate]:
    """Return the measurements of an option, and the open facts of its chip, as far as its software is uncertain."""
    c, system = one.choice, one.system.id
    assert c is not None
    usd = hours * c.instances * one.system.chips * float(one.usd_per_chip_h)
    each: dict[str, Any] = {"kind": MEASUREMENT, "cost_usd": usd, "system": system}
    some = list[Candidate]()
    for part in PARTS:
        reads = read_on(part, system)
        if reads not in drawn.readings:
            continue
        for same, where in {"point": "at the plan's own point", **WHERE[part]}.items():
            name = f"{CALLED[part]} {where}, on {system}"
            some.append(Candidate(name=name, reads=reads, noise=row_noise(part, same), **each))
    for field, part, moved in ((name, part, moved) for name, _, part, moved in open_facts(one)):
        reads = read_on(part, system)
        if reads in drawn.readings:
            rest = standard_deviation(one, part) / moved
            noise = min(standard_deviation(one, part) * np.sqrt(max(rest**2 - 1, 0.0)), MOST_NOISE)
            name = f"{field} of {one.system.chip.id}, in its {READ[part]} on {system}"
            some.append(Candidate(name=name, reads=reads, kind=FACT, noise=noise, system=system))
    return some
