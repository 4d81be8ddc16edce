"""Whether a measured number is right: what it should be on three kinds of software, and what explains the gap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trnmodel.arguments import refuse
from trnmodel.catalog.options import options
from trnmodel.catalog.trainers import Trainer
from trnmodel.declared import Checked, declare
from trnmodel.evidence.before_after import closed
from trnmodel.evidence.cells import UnreadableRowError, measure, texts
from trnmodel.evidence.grounds import Banded, banded
from trnmodel.evidence.meanings import Decision, decisions
from trnmodel.evidence.primitives import bare_chip
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import Reading, is_rate, reading
from trnmodel.evidence.records import pattern_cells
from trnmodel.evidence.rows import read_table
from trnmodel.evidence.score import read_models
from trnmodel.evidence.slow_causes import (
    DRAFTS,
    MECHANISMS,
    Case,
    Mechanism,
    added_s,
    family_of,
    ideal_of,
    saved_s,
    time_s,
)
from trnmodel.evidence.spellings import filled
from trnmodel.result import Card, tidy
from trnmodel.units import format_digits, format_quantity

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["as predicted", "slower", "faster", "cannot be asked"]
Evidence = Literal["the row states it", "not stated"]
STATED: Evidence = "the row states it"
MOST_ROWS = 1000  # each takes some hundred predictions
SMALL = 0.05  # share of a measured time below which a cause explains less than repeated runs differ by
LEAST = 0.005  # share of a measured time below which a card leaves a cause out
SHOWN_CAUSES = 5
CHECK_FIRST = (
    "Check the unit, what the number is of (a token or an answer), and whether it holds a compilation or operators "
    "that the host calls one by one."
)


class Expected(NamedTuple):
    """What a row should measure on one kind of software, in the unit of the row, with its 90 % interval.

    `software` is "as stated" (the stack of the engine and release that the row names, or the chip's default),
    "documented" (the fastest documented option of the chip's public software that needs no draft) or "ideal".
    """

    software: str
    stack: str
    value: float
    low: float
    high: float
    basis: str
    basis_reason: str


class PossibleCause(NamedTuple):
    """A cause that may explain a part of a measured time, with what changes it and what the change gained elsewhere.

    `explained_s` is the time that it can hold on this row; of a rate, that of one of what the rate counts. `share` is
    the same over the measured time. Both are NaN where nothing can be computed. `pairs` are published pairs of before
    and after of that `cause`, and `median`, `least` and `greatest` their speedups [-].
    """

    mechanism: str
    cause: str
    evidence: Evidence
    explained_s: float
    share: float
    setting: str
    pairs: int
    median: float
    least: float
    greatest: float


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Diagnosis(Card):
    """Whether one measured number is right, and the causes that can explain it, the likeliest first.

    `measured` is in the `unit` of the row. `verdict` compares it with the band of the software that the row states.
    `reason` says why a row cannot be asked; its causes then follow from its typed columns alone. `unexplained` is the
    share of the measured time that neither ideal software nor all causes together take, and NaN where no time has a
    prediction. Causes overlap, so that more may be unexplained.
    """

    id: str
    workload: str
    instance: str
    metric: str
    measured: float
    unit: str
    meaning: str
    expected: tuple[Expected, ...]
    verdict: Verdict
    causes: tuple[PossibleCause, ...]
    unexplained: float = math.nan
    reason: str = ""

    @property
    def first(self) -> PossibleCause | None:
        """The likeliest cause; None where none is known."""
        return self.causes[0] if self.causes else None

    def to_frame(self) -> pd.DataFrame:
        """Return the causes as a table, the likeliest first, each with the id of the row."""
        return tidy({"id": self.id, "order": place, **one._asdict()} for place, one in enumerate(self.causes, start=1))

    def card(self) -> list[str]:
        """Return the diagnosis on lines: the number and its verdict, what it should be, and the likeliest causes."""
        what = f"{self.workload} on {self.instance}: {self.metric} of {_figure(self.measured, self.unit)}"
        lines = [f"{what} {_said(self)}."]
        lines += [f"{_software(one)}: {_band(one, self.unit)}" for one in self.expected]
        some = [one for one in self.causes if not one.share < LEAST or one.evidence == STATED][:SHOWN_CAUSES]
        for place, one in enumerate(some, start=1):
            lines += [f"{place}. {_named(one)}", f"   Change: {one.setting}.", *_gain(one)]
        if self.unexplained >= SMALL:
            lines += [f"No known cause explains {self.unexplained:.0%} of the time. {CHECK_FIRST}"]
        return lines


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Diagnoses(Card):
    """The diagnosis of each row of a table, in its order."""

    rows: tuple[Diagnosis, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each measured row: verdict, prediction with band, and the likeliest cause."""
        return tidy(map(_summary, self.rows))

    def causes(self) -> pd.DataFrame:
        """Return the causes of all rows as a table, those of a row by likelihood."""
        import pandas as pd

        return pd.concat([one.to_frame() for one in self.rows], ignore_index=True) if self.rows else pd.DataFrame()

    def card(self) -> list[str]:
        """Return the cards of all rows, one below the other."""
        return [line for one in self.rows for line in one.card()]


def _summary(one: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as one row of a table."""
    own = one.expected[0] if one.expected else Expected("", "", math.nan, math.nan, math.nan, "", "")
    ideal = next((each.value for each in one.expected if each.software == "ideal"), math.nan)
    first = one.first
    row: dict[str, Any] = {name: getattr(one, name) for name in ("id", "meaning", "measured", "unit", "verdict")}
    row |= {"stack": own.stack, "predicted": own.value, "low": own.low, "high": own.high, "basis": own.basis}
    row |= {"ideal": ideal, "unexplained": one.unexplained, "reason": one.reason}
    row |= {"mechanism": first.mechanism if first else "", "cause": first.cause if first else ""}
    return row | {"share": first.share if first else math.nan}


def _figure(value: float, unit: str) -> str:
    return f"{format_digits(value, 3)} {unit}".strip()


def _said(one: Diagnosis) -> str:
    """Return the verdict as the end of a sentence."""
    if one.verdict == "cannot be asked":
        return f"cannot be asked ({one.reason})"
    low, high = (_figure(end, one.unit) for end in (one.expected[0].low, one.expected[0].high))
    band = f"the 90 % band of its software, {low} to {high}"
    return f"lies inside {band}" if one.verdict == "as predicted" else f"is {one.verdict} than {band}"


def _software(one: Expected) -> str:
    """Return the software of an expected figure in words."""
    words = {"as stated": "On the software that it states", "documented": "On the fastest documented software"}
    return f"{words[one.software]} ({one.stack})" if one.software in words else "On ideal software"


def _band(one: Expected, unit: str) -> str:
    """Return an expected figure with its band and what it rests on."""
    value = _figure(one.value, unit)
    if one.low == one.high:
        return value
    return f"{value} ({format_digits(one.low, 2)} to {format_digits(one.high, 2)}; {one.basis})"


def _named(one: PossibleCause) -> str:
    """Return a cause with the evidence for it and what it can explain."""
    if math.isnan(one.share):
        return f"{one.mechanism} ({one.cause}; {one.evidence})"
    explained = f"up to {format_quantity(one.explained_s, 's', 2)}, {one.share:.0%} of the measured time"
    return f"{one.mechanism} ({one.cause}; {one.evidence}): {explained}"


def _gain(one: PossibleCause) -> list[str]:
    """Return the sentence on what changes of the same cause gained elsewhere; none where nobody published any."""
    if not one.pairs:
        return []
    range_ = f"{format_digits(one.least, 2)} to {format_digits(one.greatest, 2)}"
    median = f"a median of {format_digits(one.median, 2)} times as fast"
    return [f"   Others measured {median} after a change of {one.cause} ({range_}; {one.pairs} published pairs)."]


# --- one row ----------------------------------------------------------------------------------------------------------


def _case(row: Mapping[str, str], d: Decision, r: Reading | None, measured: float) -> Case:
    """Return a row as the rules see it."""
    family = family_of(pattern_cells(filled(row))["kind"])
    if r is None:
        return Case(family, d.record, precision=row["precision"])
    base = measured * r.scale
    return Case(family, d.record, r, 1 / base if is_rate(r.meaning) else base, row["precision"])


@lru_cache(maxsize=1)
def _gains() -> dict[str, dict[str, Any]]:
    """Return what published changes of each cause gained."""
    return {row["cause"]: row for row in closed().to_dict("records")}


def _possible(case: Case, mechanism: Mechanism) -> PossibleCause | None:
    """Return what a mechanism can explain of a row; None where it has no part in such a row."""
    if case.family not in mechanism.families or mechanism.is_absent(case):
        return None
    is_stated = bool(mechanism.is_stated(case))
    saved = saved_s(case, mechanism)
    share = math.nan
    if case.is_of_time:
        longer_s = max(case.measured_s, case.predicted_s)
        share = (0.0 if math.isnan(saved) else saved / longer_s) + min(
            case.excess_s, added_s(case, mechanism)
        ) / longer_s
        share = math.nan if math.isnan(saved) and not share > 0 else min(share, 1.0)
    if case.is_of_time and not is_stated and not share > 0:
        return None
    gain = _gains().get(mechanism.cause, {})
    return PossibleCause(
        mechanism=mechanism.name,
        cause=mechanism.cause,
        evidence=STATED if is_stated else "not stated",
        explained_s=share * case.measured_s,
        share=share,
        setting=mechanism.setting,
        pairs=int(gain.get("pairs", 0)),
        median=float(gain.get("median", math.nan)),
        least=float(gain.get("least", math.nan)),
        greatest=float(gain.get("greatest", math.nan)),
    )


def _order(one: PossibleCause) -> tuple[int, float]:
    """Return the place of a cause: what the row states, an old release, then by what each can explain, drafts last.

    A mechanism that the row states counts as stated only where it holds more than runs differ by, or where nobody can
    compute it. An old release follows, since it changes many mechanisms at once. A draft changes what is computed and
    is no fault.
    """
    is_stated = one.evidence == STATED and not one.share < SMALL
    level = 3 if one.cause == DRAFTS else 1 if one.cause == "release" else 0 if is_stated else 2
    return level, (math.inf if math.isnan(one.share) else -one.share)


def causes_of(case: Case) -> tuple[PossibleCause, ...]:
    """Return the causes that can explain a row, the likeliest first.

    Examples
    --------
    >>> from trnmodel.evidence.records import Record
    >>> [one.cause for one in causes_of(Case("kernel", Record(inside="launch")))][:2]
    ['launch', 'kernel']
    """
    some = (_possible(case, mechanism) for mechanism in MECHANISMS)
    return tuple(sorted((one for one in some if one is not None), key=_order))


def _documented(r: Reading, case: Case) -> Reading | None:
    """Return the question on the chip's fastest documented software that needs no draft; None where it has none."""
    chip = bare_chip(r)
    if isinstance(case.stack, Trainer):
        return replace(r, stack="") if chip.training_stack else None
    if case.stack is None or not chip.default_stack:
        return None
    today = replace(r, stack="")
    if case.family == "encoder":
        return today
    some = [today, *(replace(r, stack=one.efficiencies) for one in options(chip, r.model_id)[1:] if not one.speculates)]
    speeds = [(_speed(one), one) for one in some]
    return max((one for one in speeds if one[0] > 0), key=lambda one: one[0], default=(0.0, None))[1]


def _speed(r: Reading) -> float:
    """Return how fast a reading is, 0 where it has no prediction."""
    try:
        value = predict(r)
    except UnreadableRowError:
        return 0.0
    return value if is_rate(r.meaning) else 1 / value


def _expected(r: Reading, case: Case) -> Iterator[Expected]:
    """Yield what a row should measure as its software is stated, on documented and on ideal software."""
    own, label = banded([r])[0], getattr(case.stack, "id", "") or str(r.stack) or "the model of its chip"
    if isinstance(own, UnreadableRowError):
        raise own
    yield _in_unit("as stated", label, own, r)
    today = _documented(r, case)
    if today is not None:
        there = banded([today])[0]
        if isinstance(there, Banded):
            stack = replace(case, reading=today).stack
            yield _in_unit("documented", getattr(stack, "id", ""), there, r)
    if case.stack is None:
        return
    try:
        best = predict(r, lambda _: ideal_of(case))
    except UnreadableRowError:
        return
    yield _in_unit("ideal", "ideal", Banded(best, best, best, "ideal", ""), r)


def _in_unit(software: str, stack: str, one: Banded, r: Reading) -> Expected:
    """Return a prediction in the unit of its row."""
    value, low, high = (x / r.scale for x in one[:3])
    return Expected(software, stack, value, low, high, one.word, one.reason)


def _verdict(measured: float, own: Expected, r: Reading) -> Verdict:
    """Return how a measured figure compares with the band of its software."""
    if own.low <= measured <= own.high:
        return "as predicted"
    return "faster" if (measured > own.high) == is_rate(r.meaning) else "slower"


def _diagnosis(row: Mapping[str, str], d: Decision, models: Mapping[str, Any]) -> Diagnosis:
    """Return the diagnosis of one row."""
    about: dict[str, Any] = {name: row[name] for name in ("id", "workload", "instance", "metric", "unit")}
    try:
        about["measured"] = math.nan
        about["measured"] = measured = measure(row)
        r = reading(row, models, d)
        case = _case(row, d, r, measured)
        expected = tuple(_expected(r, case))
    except UnreadableRowError as reason:
        causes = causes_of(_case(row, d, None, math.nan))
        about |= {"verdict": "cannot be asked", "reason": str(reason), "meaning": "" if d.refused else d.question}
        return Diagnosis(**about, expected=(), causes=causes)
    about |= {"meaning": r.meaning, "expected": expected, "verdict": _verdict(measured, expected[0], r)}
    causes = causes_of(case)
    return Diagnosis(**about, causes=causes, unexplained=_unexplained(case, causes))


def _unexplained(case: Case, causes: Sequence[PossibleCause]) -> float:
    """Return the share of the measured time that neither ideal software nor all causes together take."""
    if not case.is_of_time:
        return math.nan
    least_s = time_s(case.r, lambda _: ideal_of(case)) if case.stack is not None else case.predicted_s
    shares = sum(one.share for one in causes if one.cause != DRAFTS and not math.isnan(one.share))
    return max(1 - least_s / case.measured_s - shares, 0.0)


def _table(rows: Any) -> pd.DataFrame:
    """Return a row, a table or a file of rows as a table."""
    import pandas as pd

    if isinstance(rows, pd.Series):
        rows = rows.to_dict()
    if isinstance(rows, Mapping):
        if not all(isinstance(name, str) for name in rows):
            refuse("rows", rows, "allowed is a mapping of the names of columns to cells")
        rows = pd.DataFrame([dict(rows)])
    elif not isinstance(rows, str | Path | pd.DataFrame):
        refuse("rows", rows, "allowed is a mapping, a row or a table of pandas, or the path of a CSV file")
    table = read_table(rows)
    if len(table) > MOST_ROWS:
        raise ValueError(f"rows: {len(table)} rows; allowed are at most {MOST_ROWS}, each of which is asked many times")
    return table


@declare(
    passes_on=True,
    rows=Checked("a measured row, a table of them, or the path of their CSV file", {"type": "string"}),
    models=Checked("a mapping of names to models of your own", {"type": "object"}),
)
def doctor(
    rows: Mapping[str, Any] | pd.Series | pd.DataFrame | str | Path, models: Mapping[str, Any] | None = None
) -> Diagnoses:
    r"""Say whether measured numbers are right, and which causes can explain the gap to what they could be.

    .. math:: t_c = (t_p - t_{p \setminus c}) + \min(t_m - t_p,\; t_{p,\,slowest\ c} - t_p)

    Parameters
    ----------
    rows : mapping, Series, DataFrame or path
        One measured row, or a table or file of at most 1,000, in the columns that `tm.validate` reads. Typed columns
        (`engine`, `sdk`, `kernels`, `steps`, `slots`, `clients`, ...) may stand among them by name. [-]
    models : mapping, optional
        Workload name to model (an id, the path of a config.json, or an object). [-]

    Returns
    -------
    diagnoses : Diagnoses
        `.rows` has a `Diagnosis` for each row: what it should be as its software is stated, on documented and on ideal
        software, each with its 90 % interval in the row's unit; the verdict; and the causes, the likeliest first, with
        the time that each can explain [s], the setting that changes it, and what others gained by such a change.

    Raises
    ------
    ValueError
        What is given is no such row, table or file, or one of the models is none.

    Notes
    -----
    What a cause can explain is the part of the predicted time that is gone without it, plus the part of the excess over
    the prediction that the slowest published software of the vendor would add. Each cause is asked by itself, so that
    the times overlap and do not add up to the gap. Causes that the row states come first; then an old release; then
    the others by what they can explain. A draft comes last, since it changes what is computed.

    A row that cannot be asked says why. Its causes follow from its typed columns alone, without a time.

    Examples
    --------
    >>> import trnmodel as tm
    >>> row = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 4096}
    >>> row |= {"metric": "TPOT", "value": 45.0, "unit": "ms", "slots": 16, "engine": "vllm-neuron"}
    >>> one = tm.doctor(row).rows[0]
    >>> one.verdict, one.first.mechanism
    ('slower', 'padding to the compiled batch')
    """
    cells, known = texts(_table(rows)), read_models(models)
    return Diagnoses(rows=tuple(_each(cells, decisions(cells), known)))


def _each(
    cells: Sequence[Mapping[str, str]], decided: Sequence[Decision], models: Mapping[str, Any]
) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each row."""
    for row, d in zip(cells, decided, strict=True):
        yield _diagnosis(row, d, models)
