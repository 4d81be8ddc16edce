"""The one scoring: measured beside predicted for any file of rows, errors by group, and every row that does not count.

A row's own columns become a prediction, or a reason why not.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import NoteWarning, refuse, shown
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.declared import STACK, Checked, declare
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError, measure, text, texts
from trnmodel.evidence.columns import NAMES
from trnmodel.evidence.grounds import Judged, banded, where
from trnmodel.evidence.meanings import Decision, decisions
from trnmodel.evidence.readings import Reading, is_of_model, reading, with_stack
from trnmodel.evidence.records import TYPES
from trnmodel.evidence.rows import MEASURED, published, read_table
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model

if TYPE_CHECKING:
    import pandas as pd

JUDGED = ["predicted", "error", "low", "high", "basis", "basis_reason"]
JUDGED += "meaning model chip stack configuration weight set_aside skipped missing use unknown patterns".split()
LACKS = {
    "machine": r"^(machine|instance)|cannot exist",
    "model": r"^model",
    "output_len": r"^no output length",
    "input_len": r"^no input length",
    "seq_len": r"^no (context|length of a sequence)",
    "tokens": r"^no tokens",
}  # what a row lacks, by the reason why it has no prediction; else the column that the reason begins with
NOT_PREDICTED, NOT_COUNTED = "not predicted", "predicted, not counted"
LINES = ("fit", "rate", "null", "network")  # uses of rows that are no prediction of ours


def read_models(models: Mapping[str, Any] | None) -> dict[str, Transformer]:
    """Return the models that a caller gives by workload name, each read once."""
    known = {}
    for name, value in ({} if models is None else _named(models)).items():
        try:
            known[text(name)] = read_model(value)
        except ValueError as error:
            raise ValueError(f"models[{shown(name)}]: {error}") from None
    return known


def _named(models: Any) -> Mapping[str, Any]:
    if not isinstance(models, Mapping) or not all(isinstance(name, str) for name in models):
        refuse("models", models, "allowed is a mapping of workload names to models")
    return models


def configuration(r: Reading, predicted: float) -> str:
    """Return a key that rows of one question share: the same machine, stack, model, batch, meaning and answer."""
    question = (
        r.meaning,
        r.where,
        getattr(r.stack, "id", r.stack),
        r.mapping,
        r.model_id,
        r.compiled_batch,
        r.percentile,
        f"{predicted:.9g}",
        *r.arguments,
    )
    return hashlib.sha1(repr(question).encode()).hexdigest()[:12]


def _judge(
    rows: Sequence[dict[str, str]], models: Mapping[str, Any] | None, stack: str | Efficiencies | None
) -> list[dict[str, Any]]:
    """Each row's prediction beside its meaning, or the reason for none."""
    decided = decisions(rows)
    read = [_read(row, models, d) for row, d in zip(rows, decided, strict=True)]
    if stack is not None:
        read = _with_stack(read, stack)
    judged = iter(banded(r for r, _ in read if isinstance(r, Reading)))
    return [
        _line(d, *one, next(judged) if isinstance(one[0], Reading) else one[0])
        for d, one in zip(decided, read, strict=True)
    ]


def _with_stack(
    read: Sequence[tuple[Reading | UnreadableRowError, float]], stack: str | Efficiencies
) -> list[tuple[Reading | UnreadableRowError, float]]:
    """Return rows that are asked with a stack, with a note on those that state other software and keep it."""
    there, others = list[tuple[Reading | UnreadableRowError, float]](), set[str]()
    for r, measured in read:
        one = r if isinstance(r, UnreadableRowError) else with_stack(r, stack)
        if isinstance(one, Reading) and one is r and one.stack and is_of_model(one):
            others.add(str(one.stack))
        there.append((one, measured))
    if others:
        warnings.warn(f"efficiencies: rows that state {', '.join(sorted(others))} keep it", NoteWarning, stacklevel=5)
    return there


def _read(
    row: dict[str, str], models: Mapping[str, Any] | None, d: Decision
) -> tuple[Reading | UnreadableRowError, float]:
    """Return a row's reading and its measured value, or the reason why it has no reading."""
    try:
        return reading(row, models, d), measure(row)
    except UnreadableRowError as reason:
        return reason, math.nan


def readable(rows: Any, models: Mapping[str, Any] | None) -> Iterator[tuple[Any, dict[str, str], Reading]]:
    """Yield label, cells and reading of each row that can be read, of a table, of its CSV file, or of one mapping."""
    import pandas as pd

    table, known = read_table(pd.DataFrame([dict(rows)]) if isinstance(rows, Mapping) else rows), read_models(models)
    cells = texts(table)
    for label, row, decided in zip(table.index, cells, decisions(cells), strict=True):
        try:
            r = reading(row, known, decided)
        except UnreadableRowError:
            continue
        yield label, row, r


def missing(reason: str) -> str:
    """Return what a row lacks that has no prediction: its meaning, model or machine, or a column.

    Examples
    --------
    >>> missing("instance 'trn9' is unknown"), missing("no output length"), missing("unit 'GB': units are s")
    ('machine', 'output_len', 'unit')
    >>> missing("meaning: a share"), missing("")
    ('meaning', '')
    """
    named = next((name for name, pattern in LACKS.items() if re.search(pattern, reason)), "")
    first = re.match(r"\w+", reason)
    return named or (
        first[0]
        if first and first[0] in (*COLUMNS, *NAMES, *TYPES, "note") and first[0] != "metric"
        else "meaning"
        if reason
        else ""
    )


def _line(d: Decision, r: Reading | UnreadableRowError, measured: float, judged: Judged) -> dict[str, Any]:
    """Return what is written beside a row: its prediction and meaning, or the reason for none."""
    line: dict[str, Any] = dict.fromkeys(JUDGED, "") | {
        "use": d.use,
        "patterns": " > ".join(d.patterns),
        "unknown": " ".join(d.unknown),
        "weight": 0.0,
    }
    line |= dict.fromkeys(("predicted", "error", "low", "high"), math.nan)
    if isinstance(judged, UnreadableRowError) or isinstance(r, UnreadableRowError):
        return line | {"skipped": str(judged), "missing": missing(str(judged))}
    value, low, high = (end / r.scale for end in judged[:3])
    return line | {
        "predicted": value,
        "error": value / measured - 1,
        "low": low,
        "high": high,
        "basis": judged.word,
        "basis_reason": judged.reason,
        "meaning": r.meaning,
        "model": r.model_id,
        "chip": where(r)["chip"],
        "stack": getattr(r.stack, "id", r.stack),
        "configuration": configuration(r, value * r.scale),
        "weight": r.weight,
        "set_aside": r.reason,
        "skipped": "",
    }


@declare(
    passes_on=True,
    rows=Checked("a table of measurements, or the path of its CSV file", {"type": "string"}),
    models=Checked("a mapping of names to models of your own", {"type": "object"}),
    efficiencies=STACK,
)
def validate(
    rows: pd.DataFrame | str | Path,
    models: Mapping[str, Any] | None = None,
    efficiencies: str | Efficiencies | None = None,
) -> pd.DataFrame:
    """Predict measured rows from their own columns: steps of models, training, kernels, collectives, watts, footprints.

    A run of training may state more in columns by name: `micro_batch`, `interleave`, `recompute`, `zero`,
    `sequence_parallel`, `trainable_share`, `expert_ranks`, `context_ranks`, `network_gbit_per_s`, `system` and
    `machines`, `global_batch` and `seq` where the raw cells print others, `training_stack`, and `layers`, `hidden`,
    `heads` and `vocabulary` of a GPT. A run with watts (kind "energy") may state `tokens_per_s`, `limit_w`,
    `idles` (1 where its chips stood idle between steps), and `params_b` and `active_b` of a model that the catalog has
    not. What is not stated is as the public call has it.

    A row that cannot be read or predicted says why and spoils no other. Blank cells (nothing, None, NaN) are unknown;
    lengths, degrees, batch and cores are numbers from 1, as tables print them.

    Parameters
    ----------
    rows : DataFrame or path
        Measurements in the columns of `data/evidence/measured.csv`; of these instance, workload, metric, value and
        unit must be there. A file is a regular one, UTF-8, of at most 64 MiB; at most 100,000 rows. [-]
    models : mapping, optional
        Workload name to model (an id, the path of a config.json, or an object), asked before the alias table. [-]
    efficiencies : str or Efficiencies, optional
        Software stack of models' rows that state no other release, such as one that was calibrated. [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows with `predicted` (in the row's unit), `error` (predicted / measured - 1), `low` and `high` (the 90 %
        interval, from the errors of rows nearby and wider the further these are), `basis` and `basis_reason` (what it
        rests on, and how far it lies from the nearest row), `meaning`, `model`, `chip`, `stack`, `configuration` (a key
        that rows of one configuration share), `weight`, `set_aside` (why a predicted row does not count), `skipped`
        (why a row has no prediction), `missing` (what it lacks for one: "meaning", "model", "machine" or a column),
        `use` (what a row is used for), `unknown` (columns that matter and that nothing states) and `patterns` (those of
        `data/evidence/patterns.csv` that had a say, in order). A row without an `id` gets one that follows from its
        cells.

    Raises
    ------
    ValueError
        What is given is no such table, or one of the models is none.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"instance": "trn2.48xlarge", "workload": "nobody's model", "metric": "tpot", "value": 10, "unit": "ms"}
    >>> table = validate(pd.DataFrame([row]))
    >>> bool(table.skipped[0])
    True
    """
    import pandas as pd

    table, known = read_table(rows), read_models(models)
    cells = texts(table)
    judged = pd.DataFrame(_judge(cells, known, efficiencies), index=table.index, columns=JUDGED)
    others = table.drop(columns=[name for name in JUDGED if name in table.columns])
    if "id" not in table.columns:
        judged["id"] = [row["id"] for row in cells]
    return pd.concat([others, judged], axis=1)


def shipped(kind: str) -> pd.DataFrame:
    """Return the shipped measurements of one kind through `validate`.

    Examples
    --------
    >>> kernels = shipped("kernel")
    >>> len(kernels) == len(excluded(kernels)) + len(kernels[kernels.weight > 0])
    True
    """
    rows = read_table(MEASURED)
    return validate(rows[rows.kind == kind])


def validation() -> pd.DataFrame:
    """Return the shipped measurements through `validate`, with the group that a split keeps together.

    Returns
    -------
    table : pandas.DataFrame
        As `validate` gives it, with `group`: kind, model and system family. Splits are by group, never by row.

    Examples
    --------
    >>> import trnmodel as tm
    >>> table = tm.validation()
    >>> {"predicted", "error", "low", "high", "group"} <= set(table)
    True
    """
    return grouped(validate(published()))


def grouped(table: pd.DataFrame) -> pd.DataFrame:
    """Return a judged table with the group of each row: kind, model and system family."""
    family = table["instance"].str.extract(r"^([a-z]+[0-9]+)", expand=False).fillna("")
    names = table["model"].where(table["model"] != "", table["workload"])
    return table.assign(group=table["kind"] + "/" + names + "/" + family)


def counted(table: pd.DataFrame) -> pd.DataFrame:
    """Predicted rows of `tm.validation()` that count, one a configuration: the middle one by error."""
    rows = table[(table.skipped == "") & (table.weight > 0)].sort_values("error", kind="stable")
    same = rows.groupby("configuration")
    return rows[same.cumcount() == (same.error.transform("size") - 1) // 2]


def errors_of(rows: pd.DataFrame) -> dict[str, float]:
    """Size and sign of a group's errors: cases, median and mean absolute, bias (signed median), the worst."""
    return {
        "cases": len(rows),
        "median_error": rows.error.abs().median(),
        "mean_error": rows.error.abs().mean(),
        "bias": rows.error.median(),
        "worst_error": rows.error.loc[rows.error.abs().idxmax()],
    }


def summary(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Errors of a table by group, in the order in which the groups stand.

    Returns
    -------
    table : pandas.DataFrame
        The group, cases, median_error, mean_error, bias, worst_error. [-]
    """
    import pandas as pd

    return pd.DataFrame([{by: group, **errors_of(rows)} for group, rows in table.groupby(by, sort=False)])


def excluded(table: pd.DataFrame) -> pd.DataFrame:
    """Return the one table of exclusions: every row that does not count, where it is from, what it says, and why.

    A row that is no prediction but has a use of its own (a point of a run's line, a printed rate) is none of them.
    """
    rows = table[((table.skipped != "") | (table.weight == 0)) & ~table.use.isin(LINES)]
    reason = rows.skipped.where(rows.skipped != "", rows.set_aside)
    reason = reason.str.removeprefix("1 of 1 points cannot exist: ")
    how = np.where(rows.skipped != "", NOT_PREDICTED, NOT_COUNTED)
    shown = rows[["kind", "instance", "workload", "metric", "error", "source"]].assign(reason=reason, outcome=how)
    labels = {"TP": "tp", "batch": "batch", "in": "input_len", "out": "output_len", "length": "seq_len"}
    cells = zip(*(rows[column] for column in labels.values()), strict=True)
    shown["shape"] = [", ".join(f"{name} {x}" for name, x in zip(labels, row, strict=True) if x) for row in cells]
    shown["measured"] = rows.value + " " + rows.unit
    names = "kind reason outcome instance workload shape metric measured error source".split()
    return shown[names].sort_values(["kind", "reason"], kind="stable", ignore_index=True)


def reasons(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `excluded` by reason, with the median absolute error of those that have a prediction."""
    grouped = rows.assign(error=rows.error.abs()).groupby(["kind", "outcome", "reason"], sort=False)
    counts = grouped.agg(rows=("reason", "size"), median_error=("error", "median")).reset_index()
    return counts.sort_values(["kind", "rows"], ascending=[True, False], kind="stable", ignore_index=True)
