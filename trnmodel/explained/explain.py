"""Where a number comes from: its formula with values, the facts under it with their sources, and rival readings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from trnmodel.catalog import load
from trnmodel.declared import Checked, declare
from trnmodel.explained.readings import FROM_CALL
from trnmodel.explained.shares import RivalAnswer, Stand, stands
from trnmodel.explained.subjects import ALLOWED, subject_of
from trnmodel.explained.trees import Branch, Node, Path, printed, walk
from trnmodel.models.shipped import catalog as shipped_models
from trnmodel.models.transformer import Transformer
from trnmodel.result import Card, in_sentence, tidy
from trnmodel.units import counted, format_digits, format_quantity, title_of

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 0.01  # share of an answer from which on a card shows a term or a fact
SHOWN_AMOUNT = 0.1  # the same of an amount on which no fact and no part stands
FIRST = 5  # facts that a card names first
INDENT = "  "
LEGEND = "In brackets: at +50 %, a value that alone grows by 10 % makes the answer 5 % larger; at -50 %, 5 % smaller."
PROJECT = "project"  # the source of our own estimates
COLUMNS = (
    *("level", "name", "formula", "values", "value", "unit", "share", "fact", "source", "locator", "confidence"),
    *("rival_value", "rival_printed", "rival_source", "rival_locator", "rival_status", "answer_under_rival"),
)
EMPTY: dict[str, Any] = dict.fromkeys(("rival_printed", "rival_source", "rival_locator", "rival_status"), "")


class RivalReading(NamedTuple):
    """What another source prints of a fact, and what the answer would be with it.

    `status` is "rejected" or "open". The answer is NaN, with the reason in `why`, where there is none then.
    """

    fact: str
    value: float
    printed: str
    source: str
    locator: str
    confidence: str
    status: str
    answer: float
    why: str


class FactShare(NamedTuple):
    """A number that an answer stands on, its source, and the share of the answer that stands on it.

    `share` is by how many per cent the answer changes where the number alone grows by one per cent; NaN for a count,
    which has no small change. `through` has the parts of it by the term that the number enters. Where the number was
    given with the call, `source` says so.
    """

    fact: str
    quantity: str
    about: str
    qualifier: str
    value: float
    unit: str
    printed: str
    source: str
    locator: str
    confidence: str
    share: float
    through: dict[Path, float]
    rivals: tuple[RivalReading, ...]

    @property
    def rival(self) -> RivalReading | None:
        """The rival reading to know first: an open one, then the most trusted, then the farthest; None without any."""
        return min(self.rivals, key=self._order, default=None)

    def _order(self, one: RivalReading) -> tuple[bool, bool, str, float]:
        away = abs(one.value / self.value - 1)
        return math.isnan(one.answer), one.status != "open", one.confidence, -away


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Explanation(Card):
    """Where an answer comes from: its terms, down to amounts and rates, and the facts under them.

    `head` is the answer in words, `tree` is the tree of its terms and `facts` are the numbers that it stands on, those
    that move it most first. `model_source` and `model_locator` say where the configuration of the model was read.
    """

    head: str
    tree: Branch
    facts: tuple[FactShare, ...]
    model: str
    model_source: str
    model_locator: str

    @property
    def value(self) -> float:
        """The figure that is explained, in its base unit."""
        return self.tree.value

    @property
    def unit(self) -> str:
        """The unit of the figure."""
        return self.tree.unit

    def by_share(self) -> pd.DataFrame:
        """Return a row for each fact and each of its rival readings, the fact that moves the answer most first."""
        rows = []
        for one in self.facts:
            about = {name: getattr(one, name) for name in FactShare._fields if name not in ("through", "rivals")}
            rows += [EMPTY | {"name": _title(one)} | about | _rival(rival) for rival in one.rivals or (None,)]
        return tidy(rows)

    def to_frame(self) -> pd.DataFrame:
        """Return the tree as a table: a row for each term, and below it one for each fact that enters there.

        Columns: level, name, formula, values, value, unit, share, fact, source, locator, confidence, and of the rival
        reading to know first its value (as number and as printed), source, locator and status, with the answer under
        it. Where a fact enters several terms, its share in a row is the part that passes through the term above.
        """
        return tidy(dict.fromkeys(COLUMNS, "") | row for row in self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for node in walk(self.tree):
            branch = node.branch
            row = {"level": node.level, "share": self._share(node), "source": "", **_no_rival()}
            yield row | {name: getattr(branch, name) for name in ("name", "formula", "values", "value", "unit")}
            for one in self._entering(node):
                yield _row(one, node.level + 1, self._through(one, node))
        if self.model:
            about = {"name": f"configuration of {self.model}", "fact": self.model, "value": math.nan, "share": math.nan}
            about |= {"source": self.model_source, "locator": self.model_locator}
            yield {"level": 1} | about | _no_rival()

    def _entering(self, node: Node) -> list[FactShare]:
        """Return the facts that enter a term; those that move nothing but by a rival reading stand at the answer."""
        return [one for one in self.facts if node.path in one.through or (not one.through and node.level == 0)]

    def card(self) -> list[str]:
        """Return the tree on lines: the terms and facts with a share of at least one per cent, and rival readings."""
        lines = [self.head, LEGEND, *self._first_facts()]
        shown: set[str] = set()
        for node in walk(self.tree):
            entering = [one for one in self._entering(node) if abs(self._through(one, node)) >= SHOWN]
            share = abs(self._share(node))
            if share < SHOWN or (share < SHOWN_AMOUNT and not (node.branch.parts or entering)):
                continue
            lines += [f"{INDENT * node.level}{text}" for text in _branch_lines(node, self._share(node))]
            for one in entering:
                texts = self._fact_lines(one, self._through(one, node), one.fact not in shown)
                lines += [f"{INDENT * (node.level + 1)}{text}" for text in texts]
                shown.add(one.fact)
        return [*lines, *self._last_lines()]

    def _repr_html_(self) -> str:
        first, *more = self.card()
        return "".join([f"<div><b>{escape(first)}</b></div>", *map(_html_line, more)])

    def _share(self, node: Node) -> float:
        """Return by how many per cent the answer changes where a term alone grows by one per cent."""
        return node.weight * node.branch.value / self.value

    def _through(self, one: FactShare, node: Node) -> float:
        """Return the share of a fact that passes through a term."""
        return one.through.get(node.path, one.share)

    def _first_facts(self) -> list[str]:
        """Return the facts that move the answer most, each with its whole share."""
        some = [one for one in self.facts if abs(one.share) >= SHOWN][:FIRST]
        return [f"It stands most on: {'; '.join(f'{_title(one)} ({_percent(one.share)})' for one in some)}."] * bool(
            some
        )

    def _last_lines(self) -> list[str]:
        """Return how many facts are not shown, and where the configuration of the model was read."""
        small = sum(not abs(one.share) >= SHOWN for one in self.facts)
        lines = [f"Not shown: {counted(small, 'number')} with a share below 1 %, or without one."] if small else []
        if self.model:
            where = ", ".join(filter(None, (_source(self.model_source), self.model_locator)))
            lines.append(f"Configuration of {self.model}: {where}.")
        return lines

    def _fact_lines(self, one: FactShare, share: float, with_rival: bool) -> list[str]:
        """Return a fact with its source, and, once, its rival reading."""
        where = FROM_CALL if one.source == FROM_CALL else f"{_source(one.source)}, {one.locator}"
        lines = [f"- {_title(one)}: {one.printed} ({_percent(share)}). Source: {where}."]
        rival = one.rival
        if rival is not None and with_rival:
            then = f"the answer cannot be: {rival.why}" if rival.why else format_quantity(rival.answer, self.unit, 3)
            lines.append(f"  Rival reading, {rival.status}: {rival.printed} ({_source(rival.source)}) gives {then}.")
        return lines


def _html_line(text: str) -> str:
    """Return a line of a card as HTML, with its indent as a margin that its further rows have too.

    Examples
    --------
    >>> _html_line("  = a < b")
    '<div style="margin-left: 1.0em">= a &lt; b</div>'
    """
    line = text.lstrip()
    return f'<div style="margin-left: {(len(text) - len(line)) / len(INDENT)}em">{escape(line)}</div>'


def _branch_lines(node: Node, share: float) -> list[str]:
    """Return a term with its value and share, then its formula in words and with values, where it has more parts."""
    branch = node.branch
    lines = [f"{branch.name}: {printed(branch)}" + (f" ({_percent(share)})" if node.level else "")]
    one = branch.formula == branch.parts[0].branch.name if branch.parts else False
    return lines + [f"  = {text}" for text in (branch.formula, branch.values) if text and not one]


def _percent(share: float) -> str:
    """Return a share with its sign.

    Examples
    --------
    >>> _percent(-0.5419), _percent(0.008)
    ('-54 %', '+0.8 %')
    """
    text = format_digits(100 * abs(share), 2)
    return f"{'-' if share < 0 else '+'}{text} %"


def _title(one: FactShare) -> str:
    """Return what a fact says, and of what."""
    listed = load.quantities().get(one.quantity)
    said = listed.description.partition(";")[0].partition(". ")[0] if listed else title_of(one.quantity)
    return f"{in_sentence(said)} ({', '.join(filter(None, (one.about, one.qualifier)))})"


def _source(name: str) -> str:
    """Return a source by its publisher and title; our own estimates by the name of the project."""
    source = load.sources().get(name)
    if source is None or name == PROJECT:
        return "our own estimate" if name == PROJECT else name
    return f"{source.publisher}, {source.title}"


def _no_rival() -> dict[str, Any]:
    return {"rival_value": math.nan, "answer_under_rival": math.nan}


def _rival(rival: RivalReading | None) -> dict[str, Any]:
    """Return the columns of a rival reading."""
    if rival is None:
        return _no_rival()
    about: dict[str, Any] = {
        "rival_value": rival.value,
        "rival_printed": rival.printed,
        "rival_source": rival.source,
        "rival_locator": rival.locator,
    }
    return about | {"rival_status": rival.status, "answer_under_rival": rival.answer}


def _row(one: FactShare, level: int, share: float) -> dict[str, Any]:
    """Return a fact as a row of a table."""
    row = {"level": level, "name": _title(one), "values": one.printed, "share": share} | _rival(one.rival)
    return row | {name: getattr(one, name) for name in ("value", "unit", "fact", "source", "locator", "confidence")}


@declare(answer=Checked(ALLOWED))
def explain(answer: Any) -> Explanation:
    r"""Return where a number comes from: its terms, the facts under them with their sources, and rival readings.

    .. math:: s_x = \frac{\partial \ln y}{\partial \ln x}

    Parameters
    ----------
    answer : Step, MemoryFit, Collective, Energy, Choice, Plan, TokenCost, TrainStep or TrainRun
        Answer of one point that can exist. Of a plan the best choice is explained. A cost of a token is that of a
        renter. [-]

    Returns
    -------
    explanation : Explanation
        `.tree` is the tree, `.facts` are the numbers with their shares s_x; `.to_frame()` has a row for each term and
        each fact.

    Raises
    ------
    ValueError
        Another kind of result, an array of points, a point that cannot exist, or an answer of 0.

    Notes
    -----
    The share of a number is asked for: the number is moved by one ten-thousandth, up and down, and the question of the
    answer is asked again with everything else as it was. The mapping and the batch of a choice stay. A number that
    ends at 1 is moved down alone. Counts, such as the cores of a chip, and words have no share. A rival reading is
    what a decision of `data/decisions.yaml` sets aside or leaves open, put in the place of the fact in the same way.
    The share of a term is that of the time or size that it is a part of, so that the shares of times that add up or
    overlap sum to one.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 1, "context": 2048, "efficiencies": "ideal"}
    >>> why = tm.explain(tm.decode_step("llama-3.1-8b", "trn2.48xlarge", **ask))
    >>> first = why.facts[0]
    >>> first.quantity, round(first.share, 3), first.source, first.locator
    ('hbm_bytes_per_s', -1.0, 'ah-trainium2', 'L30 Device Memory')
    """
    one = subject_of(answer)
    facts = tuple(_fact_share(stand) for stand in stands(one))
    source, locator = _origin(one.model)
    return Explanation(
        head=f"{one.head}.",
        tree=one.tree(one.answer),
        facts=facts,
        model=one.model.id if one.model else "",
        model_source=source,
        model_locator=locator,
    )


def _origin(model: Transformer | None) -> tuple[str, str]:
    """Return the source and the locator of a model's configuration; those of an own one are the file."""
    if model is None:
        return "", ""
    row = shipped_models().get(model.id)
    if row is None or model.path:
        return FROM_CALL, model.path or model.id
    return row.source, row.locator


def _fact_share(stand: Stand) -> FactShare:
    """Return a number that an answer stands on, as an explanation shows it."""
    reading, fact = stand.reading, stand.reading.fact
    unit = "" if reading.unit in ("1", "text") else reading.unit
    return FactShare(
        fact=reading.id,
        quantity=reading.quantity,
        about=reading.about,
        qualifier=fact.qualifier.replace("|", "/") if fact else "",
        value=reading.value,
        unit=unit,
        printed=_printed(fact) if fact else format_quantity(reading.value, unit),
        source=fact.source if fact else FROM_CALL,
        locator=fact.locator if fact else reading.id,
        confidence=fact.confidence if fact else "",
        share=stand.share,
        through=dict(stand.through),
        rivals=tuple(_reading(rival) for rival in stand.rivals),
    )


def _printed(fact: Any) -> str:
    """Return a fact as its source prints it."""
    return f"{fact.value_printed} {'' if fact.unit_printed == '1' else fact.unit_printed}".strip()


def _reading(rival: RivalAnswer) -> RivalReading:
    fact = rival.fact
    about = rival.value, _printed(fact), fact.source, fact.locator, fact.confidence, rival.status
    return RivalReading(fact.id, *about, rival.answer, rival.why)
