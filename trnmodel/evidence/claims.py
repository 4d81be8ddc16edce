"""Whether the claims that sources print follow from the specifications: each claim, its formula and the verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from trnmodel.arguments import one_of
from trnmodel.catalog import load
from trnmodel.catalog.tables import DataError, by_id, check_listed, read_csv
from trnmodel.declared import Named, Word, declare
from trnmodel.evidence.claim_formulas import FormulaError, evaluate
from trnmodel.result import Card, card_of
from trnmodel.units import counted, format_digits

if TYPE_CHECKING:
    import pandas as pd

ROWS = load.DATA / "evidence" / "claims.csv"
Topic = Literal[
    "chip",
    "core",
    "memory",
    "scale-up",
    "scale-out",
    "rack",
    "power",
    "cost",
    "market",
    "software",
    "training",
    "serving",
    "roadmap",
]
Kind = Literal["computed", "input", "stated", "set"]
Verdict = Literal["agrees", "disagrees", "input", "not derivable", "stated"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
KINDS: tuple[Kind, ...] = get_args(Kind)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
JUDGED: tuple[Verdict, ...] = ("agrees", "disagrees")
ROUNDING = 1e-9  # share of a printed value by which floats may differ
MOST_NAMED = 12  # claims whose ids a card names
_SEVERAL = re.compile(r";|/|->|, | or ")  # what stands between the values of a claim with several
_COUNTS = "one|two|three|four|five|six|eight|nine|ten|half|single|dozens"
_COUNT = re.compile(rf"(?:^|[^A-Za-z\d.,])[\d.,]+\+?$|^(?:{_COUNTS})$")  # what a unit stands behind
_PLURAL = re.compile(r"^[^/]*[a-z](?<!bp)s$")
WHOLE = 1e8  # below it a whole number prints all of its digits


class ClaimRow(msgspec.Struct, frozen=True):
    """A line of `data/evidence/claims.csv`: what a source prints, and the formula that should give it.

    `also` is the other statement of a row of kind "set", with its source and line in brackets.
    """

    id: str
    topic: Topic
    kind: Kind
    source: str
    locator: str
    claim: str
    value_printed: str
    unit_printed: str
    printed_low: str
    printed_high: str
    formula: str
    tolerance: str
    reading: str
    also: str
    touches: str
    why: str


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Claim(Card):
    """One claim of a source, and what the package computes in its place.

    Printed and computed values are in `unit_printed`. They have two ends, which are equal for a single number. An end
    that the source leaves open ("at least 3") is infinite, and a value that does not exist is NaN. `reading` says how
    a claim that disagrees would agree, and `also` has the second statement of a set. `touches` names the public call
    or the chapter that a statement without a number is about.
    """

    id: str
    topic: Topic
    kind: Kind
    source: str
    locator: str
    claim: str
    value_printed: str
    unit_printed: str
    printed_low: float
    printed_high: float
    value_computed_low: float
    value_computed_high: float
    formula: str
    tolerance: float
    verdict: Verdict
    reading: str
    also: str
    touches: str
    why: str

    @property
    def printed(self) -> str:
        """The value as it is printed, with its unit behind a number."""
        return _with_unit(self.value_printed, self.unit_printed) if self.value_printed else ""

    @property
    def computed(self) -> str:
        """The computed value in words with its unit; empty where nothing derives it."""
        low, high = self.value_computed_low, self.value_computed_high
        if math.isnan(low):
            return ""
        between = " and " if _SEVERAL.search(self.value_printed) else " to "
        return _with_unit(between.join(dict.fromkeys(map(_figure, (low, high)))), self.unit_printed)

    def card(self) -> list[str]:
        """Return the claim on lines: what is printed, what is computed and how, the verdict, and why."""
        head = f"{self.id}: {self.claim} ({self.source}, {self.locator})"
        lines = [f"It stands beside: {self.also}"] if self.also else []
        lines += [f"Printed: {self.printed}"] if self.value_printed else []
        lines += [f"Computed: {self.computed}"] if self.computed else []
        lines += [f"Formula: {self.formula}"] if self.formula else []
        lines += [f"Verdict: {self.verdict}"]
        lines += [f"Another reading: {self.reading}"] if self.reading else []
        lines += [f"It touches: {self.touches}"] if self.touches else []
        return [head, *(f"  {line}" for line in [*lines, self.why] if line)]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Claims(Card):
    """Claims of sources with their verdicts, in the order of their ids."""

    rows: tuple[Claim, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each claim, in the columns of `Claim`."""
        import pandas as pd

        names = [field.name for field in fields(Claim)]
        return pd.DataFrame([{name: getattr(one, name) for name in names} for one in self.rows], columns=names)

    def of(self, verdict: str, kind: str | None = None) -> int:
        """Return how many claims have a verdict, of all kinds or of one.

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.claims(verdict="agrees").of("disagrees")
        0
        """
        one_of("verdict", verdict, VERDICTS, "a verdict on a claim")
        if kind is not None:
            one_of("kind", kind, KINDS, "a kind of claim")
        return sum(one.verdict == verdict and kind in (None, one.kind) for one in self.rows)

    def claim(self, claim_id: str) -> Claim:
        """Return the claim of an id.

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.claims().claim("NC008").printed
        '144 lanes'
        """
        known = {one.id: one for one in self.rows}
        return known[one_of("claim_id", claim_id, known, "the id of one of these claims")]

    def card(self) -> list[str]:
        """Return on a few lines how many claims agree, what the others are, and which disagree."""
        agree, differ = (self.of(verdict, "computed") for verdict in JUDGED)
        computed = counted(agree + differ, "claim")
        head = f"Claims: {agree:,} of {computed} that the package computes agree with what is printed."
        if not agree + differ:
            head = f"Claims: the package computes none of {counted(len(self.rows), 'claim')}."
        names = [one.id for one in self.rows if one.verdict == "disagrees"]
        more = [f"and {len(names) - MOST_NAMED:,} more"] if len(names) > MOST_NAMED else []
        return card_of(head, [self._others(), [f"disagree: {', '.join([*names[:MOST_NAMED], *more])}"] * bool(names)])

    def _others(self) -> list[str]:
        """Return how many claims the package reads, cannot derive or does not judge, and how many sets there are."""
        inputs = [one.verdict for one in self.rows if one.kind == "input"]
        sets = [one.verdict for one in self.rows if one.kind == "set"]
        counts = {
            f"{counted(len(inputs), 'input')} ({inputs.count('disagrees'):,} replaced by another fact)": len(inputs),
            f"{self.of('not derivable'):,} not derivable": self.of("not derivable"),
            f"{self.of('stated'):,} without a number": self.of("stated"),
            f"{counted(len(sets), 'set of statements')} ({sets.count('disagrees'):,} with a contradiction)": len(sets),
        }
        return [text for text, many in counts.items() if many]


def _with_unit(value: str, unit: str) -> str:
    """Return a value with its unit: one thing is no plural, and words that hold a unit already get none.

    >>> _with_unit("144", "lanes"), _with_unit("1", "switches"), _with_unit("four", "chips"), _with_unit("4x", "x")
    ('144 lanes', '1 switch', 'four chips', '4x')
    >>> _with_unit("less than 10", "%"), _with_unit("no oversubscription", "x"), _with_unit("1", "-")
    ('less than 10 %', 'no oversubscription', '1')
    """
    if unit in ("", "-", "1") or not _COUNT.search(value):
        return value
    if value in ("1", "one") and _PLURAL.search(unit):
        unit = re.sub(r"(?<=ch)es$|s$", "", unit)
    return f"{value} {unit}"


def _figure(value: float) -> str:
    """Return a value in four digits, and a whole number in all of its digits.

    >>> _figure(524288.0), _figure(1.152), _figure(2 / 3)
    ('524,288', '1.152', '0.6667')
    """
    return f"{value:,.0f}" if value == round(value) and abs(value) < WHOLE else format_digits(value, 4)


def _ends(row: ClaimRow) -> tuple[float, float]:
    """Return the printed value of a row as its ends; an open end is infinite, and NaN is no number at all."""
    low, high = (math.nan if not text else float(text) for text in (row.printed_low, row.printed_high))
    if math.isnan(low) and math.isnan(high):
        return low, high
    return (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)


def judge(
    kind: Kind,
    printed: tuple[float, float],
    computed: tuple[float, float],
    tolerance: float = 0.0,
    *,
    several: bool = False,
) -> Verdict:
    """Return the verdict on a claim: whether the computed range meets the printed one, widened by the tolerance.

    Parameters
    ----------
    kind : str
        "computed", "input", "set" or "stated". A statement has no number to judge. [-]
    printed, computed : tuple of float
        The lower and the upper end, in one unit; NaN where there is no number. [-]
    tolerance : float
        By how much the printed value was rounded, in the same unit. [-]
    several : bool
        Whether the ends are several values ("41 / 164"), each of which must agree, and no range. [-]

    Examples
    --------
    >>> judge("computed", (1.2, 1.2), (1.152, 1.152), 0.05), judge("computed", (1.2, 1.2), (1.152, 1.152))
    ('agrees', 'disagrees')
    >>> judge("input", (96.0, 96.0), (96.0, 96.0)), judge("computed", (3.0, 3.0), (math.nan, math.nan))
    ('input', 'not derivable')
    >>> judge("computed", (5.7, 9.6), (5.0, 12.0)), judge("computed", (5.7, 9.6), (5.0, 12.0), several=True)
    ('agrees', 'disagrees')
    """
    if kind == "stated":
        return "stated"
    if math.isnan(computed[0]) or math.isnan(printed[0]):
        return "not derivable"
    size = max((abs(end) for end in printed if math.isfinite(end)), default=0.0)
    room = tolerance + ROUNDING * size
    if several and computed[0] != computed[1]:
        agrees = all(abs(ours - theirs) <= room for ours, theirs in zip(computed, printed, strict=True))
    else:
        agrees = computed[1] >= printed[0] - room and computed[0] <= printed[1] + room
    if not agrees:
        return "disagrees"
    return "input" if kind == "input" else "agrees"


def _claim(row: ClaimRow) -> Claim:
    """Return a row with its computed value and its verdict."""
    printed, computed = _ends(row), (math.nan, math.nan)
    tolerance = float(row.tolerance or 0.0)
    try:
        computed = evaluate(row.formula) if row.formula else computed
    except FormulaError as error:
        raise DataError(f"{ROWS.name} ({row.id}): column formula: {error}") from None
    names = [name for name in ClaimRow.__struct_fields__ if name not in ("printed_low", "printed_high", "tolerance")]
    return Claim(
        **{name: getattr(row, name) for name in names},
        printed_low=printed[0],
        printed_high=printed[1],
        value_computed_low=computed[0],
        value_computed_high=computed[1],
        tolerance=tolerance,
        verdict=judge(row.kind, printed, computed, tolerance, several=bool(_SEVERAL.search(row.value_printed))),
    )


@cache
def claim_rows() -> tuple[ClaimRow, ...]:
    """Return every line of `data/evidence/claims.csv`, checked, without a verdict."""
    rows = read_csv(ROWS, ClaimRow)
    by_id(rows, "id", ROWS.name)
    for row in rows:
        check_listed(row, f"{ROWS.name} ({row.id})", {"source": load.sources()})
    return tuple(rows)


@cache
def _sources() -> frozenset[str]:
    """Return the ids of the sources that claims are printed in."""
    return frozenset(row.source for row in claim_rows())


def _of(rows: Iterable[ClaimRow], **wanted: Any) -> list[ClaimRow]:
    """Return the rows whose cells are as they are wanted; what is None is not asked for."""
    asked = {name: value for name, value in wanted.items() if value is not None}
    return [row for row in rows if all(getattr(row, name) == value for name, value in asked.items())]


def claims_by_id(ids: Iterable[str]) -> Claims:
    """Return the claims of some ids, each once; others are not computed.

    Examples
    --------
    >>> claims_by_id(["NC118", "NC009"]).rows[1].verdict
    'agrees'
    """
    known = {row.id: row for row in claim_rows()}
    names = [one_of("claim_id", one, known, "the id of a claim") for one in dict.fromkeys(ids)]
    return Claims(rows=tuple(_claim(known[name]) for name in names))


def claims_of(kind: Kind) -> Claims:
    """Return the claims of one kind; those of other kinds are not computed.

    Examples
    --------
    >>> {one.verdict for one in claims_of("stated").rows}
    {'stated'}
    """
    return Claims(rows=tuple(map(_claim, _of(claim_rows(), kind=kind))))


@declare(topic=Word(TOPICS), verdict=Word(VERDICTS), source=Named("a source of the claims"))
def claims(topic: str | None = None, verdict: str | None = None, source: str | None = None) -> Claims:
    r"""Say which claims of the sources follow from the specifications, and which do not.

    .. math:: v_{low} - t \le c_{high} \quad\text{and}\quad c_{low} \le v_{high} + t

    Parameters
    ----------
    topic : str, optional
        "chip", "core", "memory", "scale-up", "scale-out", "rack", "power", "cost", "market", "software", "training",
        "serving" or "roadmap"; all of them by default. [-]
    verdict : str, optional
        "agrees", "disagrees", "input", "not derivable" or "stated"; all of them by default. [-]
    source : str, optional
        Id of the source that prints the claim, such as "trainium3-deep-dive"; all of them by default. [-]

    Returns
    -------
    claims : Claims
        `.rows` has a `Claim` for each: the value as printed, the formula, the value computed, the verdict, the reading
        under which a claim that disagrees would agree, and why. `.to_frame()` is the table of them.

    Raises
    ------
    ValueError
        Unknown topic, verdict or source; the message lists what there is.

    Notes
    -----
    A claim agrees where the computed value c lies within the printed value v, widened by half a unit of its last digit
    (t), or by a whole unit where the source says "about". Where the models have a range, it agrees if the two ranges
    meet; of several values ("41 / 164") the smallest and the largest must agree. A formula reads the facts in force,
    so that a changed fact changes the verdict.

    "input" is a claim that is itself such a fact: that the package agrees with it proves nothing, and it is counted
    apart. If another fact is in force, it disagrees. "not derivable" is a claim that nothing in the package computes,
    and `why` says what is missing. "stated" is a statement without a number. A claim of kind "set" is a statement that
    another one contradicts, or holds with under one reading alone; its formula is the arithmetic of the other one.

    References
    ----------
    .. [1] `data/evidence/claims.csv`, with a source and a line for each claim.

    Examples
    --------
    >>> import trnmodel as tm
    >>> one = tm.claims(topic="scale-up").claim("NC009")
    >>> one.printed, one.computed, one.verdict
    ('1.2 TB/s', '1.152 TB/s', 'agrees')
    """
    if source is not None:
        one_of("source", source, _sources(), "a source of the claims")
    every = map(_claim, _of(claim_rows(), topic=topic, source=source))
    return Claims(rows=tuple(one for one in every if verdict is None or one.verdict == verdict))
