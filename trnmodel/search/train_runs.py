"""Training runs of several systems side by side, in common draws: who is first, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import ImpossibleError, Same, one_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.draws import deviations, stretch
from trnmodel.models.transformer import Transformer
from trnmodel.result import Card
from trnmodel.search.chip_seconds import owner_draws, price_of
from trnmodel.search.compare import NAMED, Difference, Lead, difference_of, lead_of, percent
from trnmodel.search.plan import TIED, catalog_order
from trnmodel.search.sensitivity import common_draws
from trnmodel.search.train_size import TrainRunQuestion
from trnmodel.units import BILLION, MILLION, MWH, TRILLION, counted, format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

    from trnmodel.search.train_run import Spent, TrainRun

TWICE = 1.0  # difference from which on it is printed as a factor
SCALES = {"T": TRILLION, "B": BILLION, "M": MILLION}


def budget(tokens: float) -> str:
    """Return a number of tokens in short form.

    Examples
    --------
    >>> budget(15e12), budget(3e11)
    ('15T', '300B')
    """
    letter, scale = next(((letter, scale) for letter, scale in SCALES.items() if tokens >= scale), ("", 1.0))
    return f"{format_digits(tokens / scale, 3)}{letter}"


def paid_by(question: TrainRunQuestion) -> str:
    """Return who pays in the dollars that a question limits, in words."""
    return f"owned by a {question.owner_id}" if question.bill == "owned" else f"rented ({question.pricing_words})"


def sized_by(question: TrainRunQuestion) -> str:
    """Return what sizes and limits the run of a question, in words.

    Examples
    --------
    >>> import trnmodel as tm
    >>> sized_by(tm.train_run("llama-3.1-8b", "hgx-h100", tokens=1e12, chips=64).question)
    'on 64 chips or the next whole domains'
    """
    parts = [f"on {question.chips:,.0f} chips or the next whole domains"] if question.chips is not None else []
    parts += [f"within {format_digits(question.days, 3)} days"] if question.days is not None else []
    if question.usd is not None:
        parts.append(f"for at most ${format_digits(question.usd / MILLION, 3)} million, {paid_by(question)}")
    return ", ".join(parts)


def side_by_side(
    question: TrainRunQuestion, systems: Iterable[System], run: Callable[[TrainRunQuestion, System], TrainRun]
) -> TrainRuns:
    """Return the runs of a question on several systems, the best first; raise the error where no system has one."""
    runs: list[TrainRun] = []
    errors: dict[str, ValueError] = {}
    for system in sorted(systems, key=catalog_order):
        try:
            runs.append(run(question, system))
        except ValueError as error:
            errors[system.id] = error
    if not runs:
        kind = ImpossibleError if any(isinstance(one, ImpossibleError) for one in errors.values()) else ValueError
        first, *others = dict.fromkeys(map(str, errors.values()))
        raise kind("; ".join([first, *(text.removeprefix(_limit(first)) for text in others)]))
    refused = {name: " ".join(_plain(error).split()) for name, error in errors.items()}
    return TrainRuns(question, _ordered(question, runs), refused)


def _limit(text: str) -> str:
    """Return the argument and its value at the head of an error."""
    head, colon, _ = text.partition(": ")
    return head + colon


def _plain(error: ValueError) -> str:
    """Return why a system has no run; a limit that is not met is named by the question."""
    return str(error).removeprefix(_limit(str(error))) if isinstance(error, ImpossibleError) else str(error)


def ranked_by(question: TrainRunQuestion) -> str:
    """Return the figure that orders runs: days on the calendar, but dollars where all that counts is a day."""
    if question.chips is not None or question.days is None:
        return "calendar_days"
    return "owner_usd" if question.bill == "owned" else "renter_usd"


def _figure(question: TrainRunQuestion, run: TrainRun) -> Spent:
    """Return the figure of a run that orders it."""
    return run.calendar_days() if ranked_by(question) == "calendar_days" else run.bill_usd()


def _ordered(question: TrainRunQuestion, runs: list[TrainRun]) -> tuple[TrainRun, ...]:
    """Return the runs, the best first; those without the figure follow, those that end first before others."""

    def place(run: TrainRun) -> tuple[float, ...]:
        values = _figure(question, run).value, run.calendar_days().value
        return tuple(np.inf if value != value else value for value in values)

    return tuple(sorted(runs, key=place))


def _factors(run: TrainRun) -> NDArray:
    """Return the factor of the time of a run in each of the common draws of its software and of what fails."""
    where = "" if run.stack.kind == "hand-tuned" else f" on {run.system.chip.id}"
    useful = run.useful()
    low, high = (float(np.log(end / useful.goodput)) for end in useful.ends("goodput"))
    slower = stretch(deviations(f"training of {run.stack.id}{where}"), *map(float, run.widths("days")))
    return np.asarray(slower * stretch(deviations(f"failures of {useful.fleet.id}"), high, -low))


def _prices(run: TrainRun) -> NDArray:
    """Return the price of a useful chip-hour, over its value, in each of the common draws."""
    q = run.question
    if q.bill == "owned":
        hour = run.owned_hour()
        return owner_draws(Same(hour)) / float(hour.useful_usd_per_h)
    price = q.rent_of(run.system)
    ends = price.open_ranges.get("usd_per_chip_h")
    if not ends:
        return np.ones(1)
    value, name = price.usd_per_chip_h, price_of(run.system)
    return np.asarray(common_draws({name: (ends[0], value, ends[1])})[name]) / value


@dataclass(frozen=True, eq=False, repr=False)
class TrainRuns(Card):
    """Training runs side by side: `runs` has one for each system, the best first; `refused` says why others have none.

    The order is that of `ranked_by`: days on the calendar, or dollars where days size the jobs.
    """

    question: TrainRunQuestion
    runs: tuple[TrainRun, ...]
    refused: Mapping[str, str]

    @property
    def model(self) -> Transformer:
        """Model that is trained."""
        return self.question.model

    @property
    def ranked_by(self) -> str:
        """Name of the figure that orders the runs: "calendar_days", "renter_usd" or "owner_usd"."""
        return ranked_by(self.question)

    @property
    def best(self) -> TrainRun | None:
        """The run that is first; None where none has the figure that orders them."""
        first = self.runs[0]
        return None if np.isnan(self._value(first)) else first

    @property
    def ties(self) -> list[str]:
        """Systems whose run is within 1 % of the first one's."""
        least = self._value(self.runs[0])
        return [run.system.id for run in self.runs[1:] if self._value(run) <= least * (1 + TIED)]

    @cached_property
    def drawn(self) -> dict[str, NDArray]:
        """The figure that orders the runs in each of the common draws, by system; NaN where there is none."""
        return {run.system.id: self._drawn(run) for run in self.runs}

    @cached_property
    def leads(self) -> Lead:
        """Shares of the draws in which each system is first; those within 1 % share it."""
        return lead_of({name: 1 / drawn for name, drawn in self.drawn.items()})

    def __getitem__(self, system: str) -> TrainRun:
        """Return the run of one of the systems."""
        known = {run.system.id: run for run in self.runs}
        return known[self._id("system", system)]

    def difference(self, a: str | System, b: str | System) -> Difference:
        """Return how much more of the ordering figure the system `a` takes than `b`, as a share of what `b` takes."""
        names = self._id("a", a), self._id("b", b)
        first, second = ((self._value(self[name]), self.drawn[name]) for name in names)
        return difference_of(first, second)

    def card(self) -> list[str]:
        """Return who is first and by how much, with days, dollars, energy and mapping of each, and how sure that is."""
        q = self.question
        systems = counted(len(self.runs) + len(self.refused), "system")
        head = f"{q.model.id}, {budget(q.tokens)} tokens {sized_by(q)}: {systems} in common draws"
        lines = [head, *self._first(), *(line for run in self.runs[:NAMED] for line in self._described(run))]
        lines += [f"{len(self.runs) - NAMED} more systems"] * (len(self.runs) > NAMED)
        return [*lines, *(why if name in why else f"{name}: {why}" for name, why in self.refused.items())]

    def _first(self) -> list[str]:
        """Return who is first, how sure that is, and who ties."""
        if self.best is None or len(self.runs) < 2:
            return []
        name, by = self.best.system.id, f"by {_called(self.ranked_by)}"
        shares = [f"{one} in {percent(share)}" for one, share in self.leads.alone.items() if share]
        shares += [f"several tie in {percent(self.leads.tied)}"] * bool(self.leads.tied)
        ties = f"{name} ties {by} with {', '.join(self.ties)}" if self.ties else f"{name} is first {by}"
        return [f"{ties}; first in the draws: {', '.join(shares)}"]

    def _described(self, run: TrainRun) -> list[str]:
        """Return the lines of one run."""
        name, q = run.system.id, run.question
        if not run.valid:
            return [f"{name}: {run.reason}, on {run.chips:,.0f} chips"]
        spent, useful = run.spending(), run.useful()
        short = {key: one._replace(basis="", why=one.why.replace(f" of {name}", "")) for key, one in spent.items()}
        spares, busy = float(useful.spare_chips), percent(float(useful.goodput))
        rates = f"MFU {100 * float(run.mfu):.3g} %, {run.bound} takes most of a step"
        days = f"{spent['calendar_days'].describe('days')} with failures on {run.chips:,.0f} chips"
        days += f" and {counted(int(spares), 'spare')}" if spares else ""
        bills = f"rented ({q.rent_of(run.system).pricing}): {short['renter_usd'].usd_in_words()}"
        return [
            f"{name}: {days}{self._against_first(run)}",
            f"  {bills}; owned by a {q.owner_id}: {short['owner_usd'].usd_in_words()}",
            f"  {short['site_j'].describe('MWh', MWH)} at the site; {rates}; {busy} of the time is useful",
            f"  {run.configuration}; {run.stack.id} ({run.stack.kind})",
        ]

    def _against_first(self, run: TrainRun) -> str:
        """Return how much more a run takes than the first one, in words."""
        first = self.runs[0]
        if run is first or self.best is None or np.isnan(self._value(run)):
            return ""
        gap, dollars = self.difference(run.system.id, first.system.id), self.ranked_by != "calendar_days"
        if gap.value >= TWICE:
            more = f"times as {'many dollars' if dollars else 'long'} as {first.system.id}"
            return f"; {format_within(1 + gap.value, 1 + gap.low, 1 + gap.high, more)}"
        share, *ends = (percent(end, "+") for end in (gap.value, gap.low, gap.high))
        return f"; {share} {'dollars' if dollars else 'days'} against {first.system.id} ({ends[0]} to {ends[1]})"

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Return a row for each system, the best first, then systems that have no run.

        Columns are those of a `TrainRun` with its mapping in words, days with failures, dollars and joules at the site
        with low and high, `role` ("first", "tie", "system", "refused"), shares of the draws in which it is first, and
        how much more it takes than the first one.
        """
        import pandas as pd

        rows = [run.to_frame(bands).assign(**row_of(run), **self._compared(run)) for run in self.runs]
        none = [{"system": name, "why": why, "role": "refused"} for name, why in self.refused.items()]
        rows += [pd.DataFrame(none).assign(valid=False)] if none else []
        return pd.concat(rows, ignore_index=True)

    def _compared(self, run: TrainRun) -> dict[str, Any]:
        """Return what a row says of a run beside the others."""
        name, first = run.system.id, self.runs[0]
        gap = self.difference(name, first.system.id)
        role = "tie" if name in self.ties else "first" if run is self.best else "system"
        row: dict[str, Any] = {"role": role, "ranked_by": self.ranked_by, "why": str(run.reason)}
        row |= {"leads_alone": self.leads.alone[name], "leads_shared": self.leads.shared[name]}
        return row | {f"difference{end}": x for end, x in zip(("", "_low", "_high"), gap[:3], strict=True)}

    def _value(self, run: TrainRun) -> float:
        """Return the figure of a run that orders it; NaN where it has none."""
        return _figure(self.question, run).value

    def _drawn(self, run: TrainRun) -> NDArray:
        """Return the ordering figure of a run in each of the common draws."""
        value = self._value(run)
        if np.isnan(value):
            return np.full(deviations("").shape, np.nan)
        prices = 1.0 if self.ranked_by == "calendar_days" else _prices(run)
        return np.asarray(value * _factors(run) * prices)

    def _id(self, argument: str, system: str | System) -> str:
        """Return the id of a system that has a run, from any of its names."""
        ids = [run.system.id for run in self.runs]
        if isinstance(system, str) and system in ids:
            return system
        name = find_system(system, argument).id if isinstance(system, str | System) else system
        return one_of(argument, name, ids, "a system that has a run")


def _called(figure: str) -> str:
    """Return a figure that orders runs in words."""
    return {"calendar_days": "days", "renter_usd": "rented dollars", "owner_usd": "the owner's dollars"}[figure]


def row_of(run: TrainRun) -> dict[str, Any]:
    """Return columns of a run: its mapping in words, days with failures, dollars and joules, each with low and high."""
    ends = {"": "value", "_low": "low", "_high": "high", "_why": "why"}
    spent = {f"{name}{end}": getattr(one, field) for name, one in run.spending().items() for end, field in ends.items()}
    return {"mapping": run.configuration, "chip_peak": float(run.step.peak_flop_per_s), **spent}
