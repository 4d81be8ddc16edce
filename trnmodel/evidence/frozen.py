"""What the package stated on a date, before it was measured: a fixed list of questions, and how the answers aged.

`data/evidence/frozen_questions.csv` holds questions in the columns of a measured row, without its value, and
`frozen_headlines.csv` headlines of the book, each with the formula that gives it. `frozen.csv` holds what was stated of
them, with commit and date. Lines are added to it and never changed: `python -m trnlab.freeze` adds one for each
question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from trnmodel.catalog.load import DATA
from trnmodel.catalog.tables import read_csv
from trnmodel.declared import Checked, declare
from trnmodel.evidence.cells import UnreadableRowError, measure
from trnmodel.evidence.claim_formulas import evaluate
from trnmodel.evidence.readings import Reading
from trnmodel.evidence.score import readable, validate

if TYPE_CHECKING:
    import pandas as pd

QUESTIONS, HEADLINES, STATEMENTS = (
    DATA / "evidence" / f"{name}.csv" for name in ("frozen_questions", "frozen_headlines", "frozen")
)
ANSWERS = ("stated", "stated_low", "stated_high", "now", "now_low", "now_high", "moved")
ROW = ("row", "measured", "error", "inside")
COLUMNS = ("id", "kind", "question", "unit", *ANSWERS, "basis", "commit", "date", *ROW)
SAME_SIZE = 0.05  # share by which lengths and batches of a row may differ from those of the question that it answers
UNASKED = ("id", "kind", "unit", "metric", "instance", "workload", "phase")  # columns that a question does not list


class Statement(msgspec.Struct, frozen=True):
    """A line of `data/evidence/frozen.csv`: what was stated of a question, in its unit, at a commit on a date."""

    id: str
    stated: float
    stated_low: float
    stated_high: float
    basis: str
    commit: str
    date: str


class Headline(msgspec.Struct, frozen=True):
    """A line of `data/evidence/frozen_headlines.csv`: a headline, the unit of its number, and its formula."""

    id: str
    question: str
    unit: str
    formula: str


class Today(NamedTuple):
    """What the package says of a question today: words, unit, value with its ends, and what it rests on."""

    kind: str
    question: str
    unit: str
    now: float
    now_low: float
    now_high: float
    basis: str


def headlines() -> dict[str, Headline]:
    """Return the headlines by id."""
    return {one.id: one for one in read_csv(HEADLINES, Headline)}


@cache
def _questions() -> pd.DataFrame:
    """Return the questions as measured rows without a value."""
    import pandas as pd

    return pd.read_csv(QUESTIONS, dtype=str, keep_default_na=False).assign(value="1")


def _sentence(row: Mapping[str, str]) -> str:
    """Return a question in words: the metric, the model, the machine, and what else it states.

    Examples
    --------
    >>> _sentence({"metric": "MFU", "workload": "llama-3.1-8b", "instance": "trn2.48xlarge", "tp": "8", "pp": ""})
    'MFU of llama-3.1-8b on trn2.48xlarge: tp 8'
    """
    more = [f"{name} {x}" for name, x in row.items() if x and name not in (*UNASKED, "value")]
    return f"{row['metric']} of {row['workload']} on {row['instance']}: {', '.join(more)}"


def today(names: Iterable[str] | None = None) -> dict[str, Today]:
    """Return what the package says today of questions and headlines, by id: of some, or of all."""
    questions, wanted = _questions(), None if names is None else frozenset(names)
    judged = validate(questions if wanted is None else questions[questions.id.isin(wanted)])
    answers = {}
    for row in judged.to_dict("records"):
        sentence = _sentence({name: str(row[name]) for name in questions.columns})
        now, low, high = (float(row[name]) for name in ("predicted", "low", "high"))
        answers[str(row["id"])] = Today("question", sentence, row["unit"], now, low, high, row["basis"])
    for one in headlines().values():
        if wanted is None or one.id in wanted:
            value, _ = evaluate(one.formula)
            answers[one.id] = Today("headline", one.question, one.unit, value, math.nan, math.nan, "")
    return answers


@declare(
    passes_on=True,
    rows=Checked(
        "a table of measurements, one row of it as a mapping, or the path of its CSV file", {"type": "object"}
    ),
    models=Checked("a mapping of names to models of your own", {"type": "object"}),
)
def frozen(
    rows: pd.DataFrame | Mapping[str, Any] | str | Path | None = None, models: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return what the package stated on a date before it was measured, and how far off it was for rows that came since.

    A measured row answers a question that asks for the same quantity of the same model on the same machine at the same
    mapping and precision, with lengths and batch within 5 %. The release of its software may be a later one.

    Parameters
    ----------
    rows : DataFrame, mapping or path, optional
        Measurements in the columns that `tm.validate` takes. Default none: every statement has a line. [-]
    models : mapping, optional
        Workload name to model, as for `tm.validate`. [-]

    Returns
    -------
    table : pandas.DataFrame
        A line for each statement, or with rows for each row that answers one: `id`, `kind` ("question" or "headline"),
        `question`, `unit`, `stated` with `stated_low` and `stated_high` as of `commit` and `date`, `now` with its ends
        as the package says today, `moved` (now / stated - 1), and of a row its label in `row`, `measured` in the unit
        of the statement, `error` (stated / measured - 1) and `inside` (whether it lies within the stated band).

    Raises
    ------
    ValueError
        What is given is no such table.

    Examples
    --------
    >>> import trnmodel as tm
    >>> row = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "engine": "vllm-neuron", "precision": "fp8"}
    >>> row |= {"lnc": 2, "tp": 8, "slots": 1, "clients": 1, "input_len": 1024, "output_len": 1024}
    >>> row |= {"kind": "inference-LLM-serving", "metric": "TPOT mean", "value": 7.2, "unit": "ms"}
    >>> tm.frozen(row).id.tolist()
    ['frozen-001']
    """
    import pandas as pd

    matches = None if rows is None else _answered(rows, models)
    answers = today() if matches is None else today(matches) if matches else {}
    lines = [_line(one, answers[one.id]) for one in read_csv(STATEMENTS, Statement) if one.id in answers]
    if matches is not None:
        lines = [_judged(line | one) for line in lines for one in matches[line["id"]]]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _line(one: Statement, known: Today) -> dict[str, Any]:
    """Return a statement beside what the package says today."""
    line = msgspec.structs.asdict(one) | {name: x for name, x in known._asdict().items() if name != "basis"}
    nothing: dict[str, Any] = dict.fromkeys(ROW, "") | {"measured": math.nan, "error": math.nan}
    return nothing | line | {"moved": known.now / one.stated - 1}


def _judged(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a statement beside the row that answers it, with its error."""
    inside = line["stated_low"] <= line["measured"] <= line["stated_high"]
    return dict(line) | {"error": line["stated"] / line["measured"] - 1, "inside": "yes" if inside else "no"}


def _answered(rows: Any, models: Mapping[str, Any] | None) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that answer a question, by its id: the label of each, and its value in the question's unit."""
    by_key, matches = _readings(), dict[str, list[dict[str, Any]]]()
    for label, row, r in readable(rows, models):
        for name, other in by_key.get(_key(r), []):
            value = _measured(row)
            if _same_sizes(r, other) and not math.isnan(value):
                matches.setdefault(name, []).append({"row": label, "measured": value * r.scale / other.scale})
    return matches


def _measured(row: Mapping[str, str]) -> float:
    """Return the value of a row; NaN where it is no number."""
    try:
        return measure(row)
    except UnreadableRowError:
        return math.nan


@cache
def _readings() -> dict[tuple[Any, ...], list[tuple[str, Reading]]]:
    """Return the readings of the questions by what has to be the same in a row that answers one."""
    questions, by_key = _questions(), dict[tuple[Any, ...], list[tuple[str, Reading]]]()
    for label, _, r in readable(questions, None):
        by_key.setdefault(_key(r), []).append((str(questions.id[label]), r))
    return by_key


def _key(r: Reading) -> tuple[Any, ...]:
    """Return what has to be the same: quantity, model, machine, mapping and precision, and no release of software."""
    texts_of_call = tuple(sorted((name, x) for name, x in r.arguments if isinstance(x, str)))
    return r.meaning, r.model_id, r.where, r.mapping, r.ep, r.precision, r.percentile, texts_of_call


def _same_sizes(one: Reading, other: Reading) -> bool:
    """Return whether lengths, batches, clients and sizes of two readings are the same within `SAME_SIZE`."""
    names = ("batch", "prompt", "input_tokens", "output_tokens", "context", "clients")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    first, second = ({name: x for name, x in r.arguments if not isinstance(x, str)} for r in (one, other))
    pairs += [(first.get(name, math.nan), second.get(name, math.nan)) for name in first.keys() | second.keys()]
    return all((a != a and b != b) or math.isclose(a, b, rel_tol=SAME_SIZE) for a, b in pairs)
