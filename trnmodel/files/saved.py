"""A plan as a file: the answer with the facts that it stands on, and what has moved since it was saved."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isclose, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

import trnmodel
from trnmodel.arguments import instance, refuse
from trnmodel.catalog import load, untrusted
from trnmodel.catalog.fleets import fleet
from trnmodel.catalog.rents import PRICINGS, Rent, own, rent
from trnmodel.catalog.tables import Key
from trnmodel.declared import Checked, declare
from trnmodel.files import grounds
from trnmodel.files.grounds import FactRow
from trnmodel.files.layout import MEASUREMENTS, MODEL, RENT
from trnmodel.files.rejected import questions, rejected
from trnmodel.files.scenarios import Scenario, scenario
from trnmodel.quantities import quantity
from trnmodel.result import Card, in_sentence, tidy
from trnmodel.search.capacity import Capacity
from trnmodel.search.chip_seconds import TokenCost, TokenCostQuestion, cost_line
from trnmodel.search.pairs import Pair
from trnmodel.search.plan import Plan
from trnmodel.units import MIB, format_digits

if TYPE_CHECKING:
    import pandas as pd

KIND, FORMAT = "trnmodel plan", 1  # what a file says that it is, and the version of its form
MAX_FILE_BYTES, MAX_DEPTH = 8 * MIB, 16
SAME = 1e-6  # relative difference up to which two figures are the same: another CPU may round otherwise
ONE_BY_ONE = 24  # moved facts whose share is asked one by one; the rest together
SHOWN, FIGURES_SHOWN = 12, 3  # moved facts on a card, and figures of each
COST = TokenCost.FIGURE


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of an answer, with the ends of its band where it has one."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan says of its best choice: where, how, whether the promises hold, and every figure."""

    best: str
    mapping: str
    valid: bool
    figures: dict[str, Figure]


class Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file of a saved plan holds."""

    kind: str
    format: int
    trnmodel: str
    question: dict[str, Any]
    model_digest: str
    answer: Answer
    card: list[str]
    table: list[dict[str, Any]]
    facts: list[FactRow]
    data: dict[str, str]


class Change(NamedTuple):
    """A figure of an answer that differs, or the best choice itself: before and after."""

    figure: str
    before: Any
    after: Any

    @property
    def share(self) -> float | None:
        """The change over what was before; None for what is no number, or was 0."""
        numbers = isinstance(self.before, float | int) and isinstance(self.after, float | int)
        return self.after / self.before - 1 if numbers and self.before else None

    def describe(self) -> str:
        """Return the change in words."""
        name, _, of = self.figure.removesuffix("]").partition("[")
        called = quantity(name, "Choice", "TokenCost", "Capacity")
        title = " ".join([in_sentence(called.title or name.replace("_", " ")), *([f"({of})"] if of else [])])
        before, after = (_digits(one) for one in (self.before, self.after))
        unit = f" {called.unit}" if called.unit and self.share is not None else ""
        percent = "" if self.share is None else f" ({100 * self.share:+.2g} %)"
        return f"{title} {before} -> {after}{unit}{percent}"


def _digits(value: Any) -> str:
    return format_digits(float(value), 4) if isinstance(value, float | int) else str(value or "none")


class Moved(NamedTuple):
    """A fact that an answer stands on and that is no longer what it was; `now` is None where it has vanished.

    `effect` is what of the answer it moves by itself: before is the answer of today with the old fact in force, after
    is that of today. `why_unknown` says why that cannot be asked.
    """

    was: FactRow
    now: FactRow | None
    effect: tuple[Change, ...]
    why_unknown: str = ""

    @property
    def fact(self) -> str:
        """What the fact is about."""
        return self.was.fact

    def describe(self) -> str:
        """Return the fact, its old and new value with their sources, and what it moves."""
        now = f"{self.now.printed} ({_source(self.now)})" if self.now else "no longer there"
        moves = "; ".join(change.describe() for change in self.effect[:FIGURES_SHOWN]) or "nothing of the answer"
        moves = f"what it moves cannot be asked: {self.why_unknown}" if self.why_unknown else f"it moves {moves}"
        return f"Fact {self.fact}: {self.was.printed} ({_source(self.was)}) -> {now}; {moves}."


def _source(row: FactRow) -> str:
    return f"{row.source}, {row.locator}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Check(Card):
    """A saved plan asked again: what of its answer moved, which facts moved it, and whether a law did.

    `answer` lists the figures that differ. `moved` are facts that the plan stands on and that changed or vanished, each
    with what it moves by itself. `law` lists the figures that still differ with every fact as it was: the formulas
    changed, or data that is no fact, whose files `data` names. `new` are facts that the answer stands on now and did
    not then, `model_changed` says whether the configuration of an own model is another one, and `possible` whether the
    promises can be kept today.
    """

    path: str
    version: str
    question: str
    answer: tuple[Change, ...]
    moved: tuple[Moved, ...]
    law: tuple[Change, ...]
    new: tuple[FactRow, ...]
    data: tuple[str, ...]
    model_changed: bool
    possible: bool

    @property
    def differs(self) -> bool:
        """Whether the answer, a fact that it stands on, or the configuration of its model is no longer the same."""
        return bool(self.answer or self.moved or self.law or self.model_changed)

    def card(self) -> list[str]:
        """Return what moved on a few lines: the answer, the facts, the law, and what is new."""
        head = "nothing moved" if not self.differs else "the answer moved" if self.answer else "the answer stands"
        lines = [f"{self.path} of trnmodel {self.version}, {self.question}: {head}."]
        lines += [f"Answer: {'; '.join(one.describe() for one in self.answer)}."] if self.answer else []
        lines += [one.describe() for one in self.moved[:SHOWN]]
        more = len(self.moved) - SHOWN
        lines += [f"{more} more facts moved; --json has them."] if more > 0 else []
        lines += ["Model: its configuration is no longer the same."] if self.model_changed else []
        if self.law:
            changes = "; ".join(one.describe() for one in self.law)
            files = f"; changed files of data/ that hold no facts: {', '.join(self.data)}" if self.data else ""
            lines.append(f"Law: with every fact as it was, the code gives another answer: {changes}{files}.")
        if self.new:
            entities = dict.fromkeys(one.entity for one in self.new)
            lines.append(f"New: {len(self.new)} facts that the plan did not stand on, of {', '.join(entities)}.")
        if not self.possible:
            lines.append("No system keeps the promises today.")
        return lines

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each figure that the answer, a fact or a law moves, and one for each fact that moves none.

        Columns: cause ("answer", "fact", "law"), fact, was, now, source_was, source_now, figure, before, after, change.
        """
        rows = [_cells("answer", one) for one in self.answer] + [_cells("law", one) for one in self.law]
        for moved in self.moved:
            about: dict[str, Any] = {"fact": moved.fact, "was": moved.was.printed, "source_was": _source(moved.was)}
            about |= {"now": moved.now.printed, "source_now": _source(moved.now)} if moved.now else {}
            rows += [_cells("fact", one) | about for one in moved.effect or (Change("", None, None),)]
        columns = ["cause", "fact", "was", "now", "source_was", "source_now", "figure", "before", "after", "change"]
        return tidy(rows).reindex(columns=columns)


def _cells(cause: str, change: Change) -> dict[str, Any]:
    texts = {name: value if value is not None else "" for name, value in change._asdict().items()}
    share = change.share
    return {"cause": cause} | texts | {"change": float("nan") if share is None else share}


@declare(
    source=Checked("a Scenario, the path of its file, or a mapping of the same keys", {"type": "string"}),
    path=Checked("the path of a file that ends in .json", {"type": "string"}),
    answer=Checked("the Plan that the scenario has, where it was asked already"),
)
def save_plan(source: str | Path | Mapping[str, Any] | Scenario, path: str | Path, answer: Plan | None = None) -> Plan:
    """Ask for the plan of a scenario and write it to a file, with the facts that it stands on.

    Beside `plan.json`, `plan-rejected.csv` says why each other candidate lost. Both are written whole or not at all.

    Parameters
    ----------
    source : Scenario, str, Path or Mapping
        The question, as of `tm.scenario`. [-]
    path : str or Path
        File that is written, or replaced; it ends in .json. [-]
    answer : Plan, optional
        What the scenario's `plan()` returned, so that it is not asked again. [-]

    Returns
    -------
    answer : Plan
        The plan that was written.

    Raises
    ------
    ValueError
        The scenario or the path cannot be used, or the scenario holds objects of one's own that no file can hold.

    Examples
    --------
    >>> import tempfile
    >>> import trnmodel as tm
    >>> request = {"input_tokens": 512, "output_tokens": 64}
    >>> asked = {"model": "llama-3.1-8b", "systems": "trn2.3xlarge", "request": request}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plan = tm.save_plan(asked, f"{folder}/plan.json")
    ...     tm.check(f"{folder}/plan.json").differs
    False
    """
    target = untrusted.as_path("path", path)
    if target.suffix != ".json" or not target.name.removesuffix(".json"):
        refuse("path", str(target), "allowed is the path of a file that ends in .json")
    _writable(target)
    case = scenario(source)
    plan = case.plan() if answer is None else _answers(case, instance("answer", answer, Plan, "a Plan"))
    content = _signed(msgspec.to_builtins(_saved(case, plan, target)))
    reasons = target.with_name(f"{target.name.removesuffix('.json')}-rejected.csv")
    _write({reasons: rejected(case, plan).to_csv(index=False), target: content})
    return plan


def _answers(case: Scenario, answer: Plan) -> Plan:
    """Return a plan that answers a scenario; refuse that of another model, or of systems that it does not name."""
    named = {one.id for one in case.systems}
    others = [c.system.id for c in answer.choices if named and c.system.id not in named]
    if answer.model.id != case.model.id or others:
        what = f"Plan of {answer.model.id} on {', '.join(others or [c.system.id for c in answer.choices])}"
        refuse("answer", what, f"allowed is the plan of {case.model.id} that the scenario asks for")
    return answer


def _writable(path: Path) -> None:
    """Refuse a path at which no file can be written."""
    with suppress(OSError, ValueError):
        if path.is_dir():
            refuse("path", str(path), "this is a folder; allowed is the path of a file that ends in .json")
        if path.parent.is_dir():
            return
    refuse("path", str(path), "there is no such folder")


def _saved(case: Scenario, plan: Plan, target: Path) -> Saved:
    """Return what is written of a plan."""
    answer, priced = _answer(case, plan)
    stated = {name: value for name, value in case.stated().items() if name != MEASUREMENTS}
    if case.model.path:
        stated[MODEL] = os.path.relpath(case.model.path, target.parent)
    return Saved(
        kind=KIND,
        format=FORMAT,
        trnmodel=trnmodel.__version__,
        question=stated,
        model_digest=_model_digest(case),
        answer=answer,
        card=plan.card(),
        table=json.loads(plan.to_frame(bands=True).to_json(orient="records", double_precision=15)),
        facts=_facts(case, plan, priced),
        data=grounds.digests(),
    )


def _facts(case: Scenario, plan: Plan, priced: Iterable[Rent]) -> list[FactRow]:
    """Return the facts that an answer stands on: those of every candidate of the search, of prices and of failures."""
    size = plan.capacity
    sized = [] if size is None or not size.valid else [size.owned, size.energy, fleet()]
    return grounds.facts_of(grounds.specs_in(plan, questions(case, plan), list(priced), sized))


def _model_digest(case: Scenario) -> str:
    """Return a digest of the configuration of an own model; empty for a shipped one."""
    if not case.model.path:
        return ""
    path = Path(case.model.path)
    return grounds.digest((path / "config.json" if path.is_dir() else path).read_bytes())


def _answer(case: Scenario, plan: Plan) -> tuple[Answer, list[Rent]]:
    """Return the best choice with its figures, those of the plan's table and the cost of a token, and its prices."""
    c = plan.best
    if c is None:
        return Answer("", "", valid=False, figures={}), []
    first = plan.to_frame(bands=True).iloc[0]
    figures = {str(name): Figure(float(x)) for name, x in first.items() if isinstance(x, float | int) and x == x}
    figures = {name: one for name, one in figures.items() if name not in ("low", "high", "valid")}
    figures |= {name: _figure(c, name) for name in c.figures()}
    figures |= _sized(plan.capacity)
    lines = {} if isinstance(c, Pair) or not c.valid else _priced(case, plan)
    for pricing, line in lines.items():
        figures |= {f"{name}[{pricing}]": _figure(line, name) for name in ("usd_per_chip_h", COST)}
    return Answer(c.place, c.mapping, bool(c.valid), figures), [line.rent for line in lines.values()]


def _figure(result: Any, name: str) -> Figure:
    """Return a figure of a result with the ends of its band."""
    return _numbers(result.figure(name), *result.ends(name))


def _numbers(*numbers: Any) -> Figure:
    """Return a figure of numbers; what is unknown or endless is None."""
    return Figure(*(float(x) if isfinite(float(x)) else None for x in numbers))


def _sized(size: Capacity | None) -> dict[str, Figure]:
    """Return the figures of the deployment: instances and spares, watts, lost hours, and the lines of its bill."""
    if size is None or not size.valid:
        return {}
    figures = {f"{name}[deployment]": _figure(size, name) for name in size.figures()}
    figures |= {f"{name}[deployment]": _numbers(getattr(size, name)) for name in size.UNBANDED}
    lines = [line for line in size.bill_lines() if line.kind != "hosted" and not line.why]
    bill = {line.pricing: (line.usd_per_month, line.usd_per_month_low, line.usd_per_month_high) for line in lines}
    return figures | {f"usd_per_month[{pricing}]": _numbers(*numbers) for pricing, numbers in bill.items()}


def _priced(case: Scenario, plan: Plan) -> dict[str, TokenCost]:
    """Return the cost of a token on the best choice under each published pricing, and at a price of one's own."""
    c = plan.choices[0]
    q = TokenCostQuestion(model=plan.model, request=plan.request, precision=None, duty=1.0, spare_instances=0)
    rents = {pricing: rent(c.system, pricing) for pricing in PRICINGS}
    stated = case.prices.get(c.system.id, {})
    rents |= {"own price": own(c.system, stated[RENT])} if RENT in stated else {}
    return {name: cost_line(q, c.system, one, None, c.stack, c) for name, one in rents.items() if not one.why}


def _signed(content: dict[str, Any]) -> str:
    """Return the text of a file, with a digest of its content by which an edit is noticed."""
    return json.dumps({"digest": _digest(content), **content}, indent=1, allow_nan=False) + "\n"


def _digest(content: Mapping[str, Any]) -> str:
    return grounds.digest(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def _write(texts: Mapping[Path, str]) -> None:
    """Write files whole: each to a draft beside it, then all drafts are renamed."""
    drafts = {path: path.with_name(f".{path.name}.{os.getpid()}.draft") for path in texts}
    try:
        for path, draft in drafts.items():
            with draft.open("w", encoding="utf-8", newline="") as stream:
                stream.write(texts[path])
                stream.flush()
                os.fsync(stream.fileno())
        for path, draft in drafts.items():
            draft.replace(path)
    except OSError as error:
        refuse("path", str(next(reversed(drafts))), f"cannot be written: {error.strerror}")
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _no_number(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a number of JSON")


def _read(path: Path) -> Saved:
    """Return a saved plan; raise one ValueError that says why a file is none."""
    origin = f"path={untrusted.printed(path)}"
    content = untrusted.content("path", path, MAX_FILE_BYTES)
    try:
        values = untrusted.json_object(content, origin, "a saved plan", MAX_DEPTH, parse_constant=_no_number)
    except ValueError as error:
        raise ValueError(str(error) if origin in str(error) else f"{origin}: {error}") from None
    if values.get("kind") != KIND:
        raise ValueError(f"{origin}: this is no saved plan; trnmodel plan --save writes one")
    if values.get("format") != FORMAT:
        refuse(f"{origin}: format", values.get("format"), f"it was made by another version; allowed is {FORMAT}")
    digest = values.pop("digest", None)
    if digest != _digest(values):
        raise ValueError(f"{origin}: it was edited since it was saved, so that nothing in it can be trusted; save anew")
    try:
        return msgspec.convert(values, Saved)
    except msgspec.ValidationError as error:
        raise ValueError(f"{origin}: no saved plan: {error}") from None


class Again(NamedTuple):
    """A saved plan that was asked again: what the file holds, its question with the model's path, and the answer."""

    saved: Saved
    question: dict[str, Any]
    case: Scenario
    plan: Plan


def answer_again(where: Path) -> Again:
    """Return a saved plan with today's answer to its question.

    Raises ValueError where the file is no saved plan, or its question can no longer be asked.
    """
    saved = _read(where)
    question = dict(saved.question)
    if saved.model_digest:
        question[MODEL] = str(where.parent / str(question.get(MODEL, "")))
    try:
        case = scenario(question)
        return Again(saved, question, case, case.plan())
    except ValueError as error:
        raise ValueError(f"{untrusted.printed(where)}: its question can no longer be asked: {error}") from None


@declare(path=Checked("the path of a file that save_plan wrote", {"type": "string"}))
def check(path: str | Path) -> Check:
    """Ask the question of a saved plan again: what of the answer moved since, by which facts, and whether by a law.

    Parameters
    ----------
    path : str or Path
        A file that `tm.save_plan` or `trnmodel plan --save` wrote. [-]

    Returns
    -------
    check : Check
        `.differs`, `.answer`, `.moved`, `.law`, `.new`, `.possible`; `.to_frame()` has a row for each change.

    Raises
    ------
    ValueError
        There is no such file, it was edited or made by another version of the format, or its question can no longer be
        asked.

    Notes
    -----
    The share of a fact is asked for: the old value is put in force in place of today's, all else as it is today. Up to
    24 facts are asked one by one, and the rest together. With all of them as they were, what still differs is a law.
    Meanwhile nothing else may be asked in the same process.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tm.check("no-such.json")
    Traceback (most recent call last):
    ValueError: path=no-such.json: no such file
    """
    where = untrusted.as_path("path", path)
    saved, question, case, plan = answer_again(where)
    now, priced = _answer(case, plan)
    was = {row.key: row for row in saved.facts}
    groups = _groups(was)
    moved, as_it_was = _effects(question, groups, now)
    return Check(
        path=untrusted.printed(where),
        version=saved.trnmodel,
        question=f"{case.model.id}, {plan.request.describe()}",
        answer=_changes(saved.answer, now),
        moved=tuple(moved),
        law=_changes(saved.answer, as_it_was),
        new=tuple(row for row in _facts(case, plan, priced) if row.key not in was),
        data=_changed_files(saved),
        model_changed=_model_digest(case) != saved.model_digest,
        possible=now.valid,
    )


def _changed_files(saved: Saved) -> tuple[str, ...]:
    now = grounds.digests()
    return tuple(name for name in sorted({*now, *saved.data}) if now.get(name) != saved.data.get(name))


def _groups(was: Mapping[Key, FactRow]) -> list[list[tuple[FactRow, FactRow | None]]]:
    """Return the facts that moved or vanished, those of one row of `data/` together, with what is in force now."""
    groups: dict[tuple[str, str], list[tuple[FactRow, FactRow | None]]] = {}
    for key, row in was.items():
        now = grounds.current(key)
        if now is None or now.stated != row.stated:
            groups.setdefault((row.id, now.id if now else ""), []).append((row, now))
    return list(groups.values())


def _effects(
    question: Mapping[str, Any], groups: list[list[tuple[FactRow, FactRow | None]]], now: Answer
) -> tuple[list[Moved], Answer]:
    """Return each moved fact with what it moves by itself, and the answer with all facts as they were."""
    if not groups:
        return [], now
    as_it_was, _ = _answer_with(question, (row for group in groups for row, _ in group))
    moved = list[Moved]()
    for place, group in enumerate(groups):
        if place >= ONE_BY_ONE:
            answer, why = None, f"only {ONE_BY_ONE} facts are asked one by one"
        else:
            alone = len(groups) == 1
            answer, why = (as_it_was, "") if alone else _answer_with(question, (row for row, _ in group))
        effect = () if answer is None else _changes(answer, now)
        moved.append(Moved(*group[0], effect, why))
    return moved, now if as_it_was is None else as_it_was


def _answer_with(question: Mapping[str, Any], rows: Iterable[FactRow]) -> tuple[Answer | None, str]:
    """Return the answer of today's code with facts as they were; None and the reason where it cannot be asked."""
    try:
        with load.with_facts({row.key: row.ruled() for row in rows}):
            case = scenario(question)
            return _answer(case, case.plan())[0], ""
    except (ValueError, KeyError) as error:
        return None, " ".join(str(error).split())


def _changes(before: Answer, after: Answer) -> tuple[Change, ...]:
    """Return what differs between two answers: the best, its mapping, then figures, the largest change first."""
    texts = [Change(name, getattr(before, name), getattr(after, name)) for name in ("best", "mapping")]
    changes = [one for one in texts if one.before != one.after]
    numbers = list[Change]()
    for name in before.figures.keys() | after.figures.keys():
        old, new = (one.figures.get(name, Figure(None)) for one in (before, after))
        for end in ("value", "low", "high"):
            change = Change(name if end == "value" else f"{name}_{end}", getattr(old, end), getattr(new, end))
            if not _equal(change.before, change.after):
                numbers.append(change)
                break  # the band moves with its figure
    return (*changes, *sorted(numbers, key=_order))


def _order(change: Change) -> tuple[bool, float, str]:
    """Return what orders changes: throughput of a paid chip and cost of a token first, then the size of the change."""
    first = change.figure.startswith(("tokens_per_s_per_chip", COST, "usd_per_month["))
    return not first, -abs(change.share or 0.0), change.figure


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=SAME, abs_tol=1e-300)
