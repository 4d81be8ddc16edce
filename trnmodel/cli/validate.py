"""The command that reads files of benchmark tools and puts each measurement beside its prediction."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnmodel.cli import terminal
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import Status

if TYPE_CHECKING:
    import pandas as pd

    from trnmodel.evidence.formats.read import MeasuredRows
    from trnmodel.models.transformer import Transformer

FORMULA = ("=", "+", "@", "-", "\t", "\r")  # how a formula of a spreadsheet begins
FEW = 12  # predicted rows that are printed one by one; of more there is a table of groups
REASONS = 12  # reasons that are listed
NEAREST = 5


def _name(kind: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a parameter that takes the name of a catalogue entry."""
    return {"callback": terminal.identifier(kind), "autocompletion": terminal.complete(kind), **more}


def pairs(ctx: typer.Context, param: typer.CallbackParam, value: list[str]) -> list[str]:
    """Refuse what is no pair of a column and its value."""
    for text in [] if ctx.resilient_parsing else value:
        if "=" not in text:
            say(f"--set={text!r}: allowed is a column and its value, such as --set clients=8", error=True)
            raise typer.Exit(Status.REFUSED)
    return value


def table_file(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Refuse a name that is no CSV file's."""
    if value is not None and not ctx.resilient_parsing and not (value.isprintable() and value.endswith(".csv")):
        say(f"--output={value!r}: allowed is the name of a file that ends with .csv", error=True)
        raise typer.Exit(Status.REFUSED)
    return value


WHOLE: dict[str, Any] = {"parser": str, "callback": terminal.whole, "metavar": "NUMBER"}
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Files of benchmark tools, or of our own columns.")]
System = Annotated[str | None, typer.Option(help="Machine of all rows, such as trn2.48xlarge.", **_name("system"))]
Model = Annotated[
    str | None,
    typer.Option(help="Model of all rows: an id, a name, or the path of a config.json.", **_name("model")),
]
ModelName = Annotated[str | None, typer.Option("--name", help="Name of a model of your own, from a file.")]
Tp = Annotated[int | None, typer.Option(help="Tensor-parallel ranks.", **WHOLE)]
Dp = Annotated[int | None, typer.Option(help="Replicas that share out the requests.", **WHOLE)]
Lnc = Annotated[int | None, typer.Option(help="Physical cores of a logical one.", **WHOLE)]
Dtypes = Annotated[
    str | None,
    typer.Option("--precision", help="bf16, fp8, mxfp8, ...; default as printed, or bf16.", **_name("precision")),
]
Engine = Annotated[str | None, typer.Option(help="Serving engine, such as vllm-neuron.")]
Release = Annotated[str | None, typer.Option(help="Release of the software, such as 2.28 of the SDK.")]
Slots = Annotated[int | None, typer.Option(help="Sequences that the server decodes at once (max-num-seqs).", **WHOLE)]
Also = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="COLUMN=VALUE",
        callback=pairs,
        help="Any other column of all rows: phase, batch, seq, ranks, ...",
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE.csv", callback=table_file, help="Write every row as CSV."),
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]


def validate(
    ctx: typer.Context,
    files: Files,
    system: System = None,
    model: Model = None,
    tp: Tp = None,
    dp: Dp = None,
    lnc: Lnc = None,
    precision: Dtypes = None,
    engine: Engine = None,
    release: Release = None,
    slots: Slots = None,
    also: Also = [],  # noqa: B006
    output: Output = None,
    name: ModelName = None,
    as_json: Json = False,
) -> None:
    """Read measurements that benchmark tools wrote, and say for each what is predicted, how sure, and why not.

    Reads vllm bench serve, guidellm, AIPerf, genai-perf, LLMPerf, InferenceX, nccl-tests, nccom-test, neuron-profile,
    neuron-monitor, optimum-benchmark, training logs of NeMo, NxD and Megatron-LM, and CSV or YAML of our own columns.
    What a file does not state comes from the options; the first column that is missing is named.
    """
    import trnmodel
    from trnmodel.arguments import refuse
    from trnmodel.evidence.nearest import nearest

    flags: dict[str, Any] = {"system": system, "model": model, "tp": tp, "dp": dp, "lnc": lnc, "precision": precision}
    flags |= {"engine": engine, "release": release, "slots": slots}
    stated = {key: x for key, x in flags.items() if x is not None} | stated_by(also)
    with plain_errors(ctx, paths="files", stated="also"):
        if output is not None and os.path.realpath(output) in [os.path.realpath(one) for one in files]:
            refuse("output", output, "allowed is a file that is not read")
        models = _own_models(model, name)
        stated |= {"model": next(iter(models))} if models else {}
        measured = trnmodel.read_measurements(files, stated)
        if not len(measured.rows):
            say("\n".join(refusals(measured)), error=True)
            raise typer.Exit(Status.REFUSED)
        table = judged(trnmodel.validate(measured.rows, models))
        if output is not None:
            inert(table).to_csv(output, index=False, lineterminator="\n")
        for sentence in terminal.read_as(ctx):
            say(sentence, error=as_json)
        if as_json:
            near = nearest(measured.rows, NEAREST, models)
            typer.echo(json.dumps(_data(table, measured, near), indent=2, allow_nan=False))
        else:
            few = table[table.skipped == ""].head(FEW + 1)
            near = nearest(measured.rows.loc[few.index], NEAREST, models) if 0 < len(few) <= FEW else None
            notes = [*_unasked(table), *refusals(measured), *_formats(table), *_stated(measured, models)]
            say("\n".join([*_lines(table, near), *notes, _summary(table, measured)]))
        if not (table.skipped == "").any():
            raise typer.Exit(Status.IMPOSSIBLE)


def stated_by(also: list[str]) -> dict[str, Any]:
    """Return the columns that `--set` states, with their values.

    Examples
    --------
    >>> stated_by(["system=trn2.48xlarge", "tp=8"])
    {'system': 'trn2.48xlarge', 'tp': '8'}
    """
    return dict(text.split("=", 1) for text in also)


def _own_models(model: str | None, name: str | None) -> dict[str, Transformer]:
    """Return the model of a user's file by its id; nothing where the model is shipped or not stated."""
    import trnmodel
    from trnmodel.arguments import refuse

    if model is None:
        return {} if name is None else refuse("name", name, "allowed only with the --model that it names")
    own = trnmodel.model(model, name)
    return {own.id: own} if own.path else {}


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return validated rows with whether each measurement lies inside the band of its prediction."""
    import pandas as pd

    value = pd.to_numeric(table.value, errors="coerce")
    inside = (table.low <= value) & (value <= table.high)
    return table.assign(inside=inside.map({True: "yes", False: "no"}).where(table.skipped == "", ""))


def inert(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts no spreadsheet takes for a formula: an apostrophe stands before such a text."""

    def plain(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell

    return table.map(plain)


def figures(table: pd.DataFrame) -> dict[str, Any]:
    """Return how many rows were predicted, and of one row for each configuration the median error and the coverage.

    Of several rows that are one question the middle one counts; copies and percentiles of a run have no vote.
    """
    from trnmodel.evidence.score import counted

    votes = counted(table)
    shares = {"median_error": float(votes.error.abs().median()), "coverage": float((votes.inside == "yes").mean())}
    return {
        "rows": len(table),
        "predicted": int((table.skipped == "").sum()),
        "configurations": len(votes),
        **{key: x if x == x else None for key, x in shares.items()},
    }


def _data(table: pd.DataFrame, measured: MeasuredRows, near: pd.DataFrame) -> dict[str, Any]:
    """Return everything for JSON: rows with their nearest shipped rows, refusals, and the summary."""

    def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
        return json.loads(frame.to_json(orient="records", double_precision=12))

    rows = records(table)
    by_row: dict[Any, list[dict[str, Any]]] = {}
    for label, one in zip(near["row"], records(near.drop(columns="row").reset_index(drop=True)), strict=True):
        by_row.setdefault(label, []).append(one)
    for label, row in zip(table.index, rows, strict=True):
        row["nearest"] = by_row.get(label, [])
    summary = {**figures(table), "refused": len(measured.refused)}
    return {"rows": rows, "refused": records(measured.refused), "summary": summary}


def _lines(table: pd.DataFrame, near: pd.DataFrame | None) -> list[str]:
    """Return a line for each predicted row with its nearest rows, or a table of groups of many."""
    predicted_rows = table[table.skipped == ""]
    if near is None:
        return _groups(predicted_rows) if len(predicted_rows) else []
    return [line for label, row in predicted_rows.iterrows() for line in _row(row, near[near["row"] == label])]


def _row(row: Any, near: pd.DataFrame) -> list[str]:
    from trnmodel.units import format_digits, format_within

    value, unit = float(row["value"]), str(row["unit"])
    answer = format_within(float(row.predicted), float(row.low), float(row.high), unit, str(row.basis))
    where = "inside" if row.inside == "yes" else "outside"
    aside = f" Not counted: {row.set_aside}." if row.set_aside else ""
    head = f"{row.file} line {row.line}, {row.metric}: measured {format_digits(value, 4)} {unit}, predicted {answer}"
    lines = [f"{head}, {where} the band.{aside}"]
    if row.unknown:
        lines.append(f"  not stated, which widens the band: {', '.join(row.unknown.split())}")
    elif row.basis_reason:
        lines.append(f"  {row.basis}: {row.basis_reason}")
    return lines + [f"  {_neighbour(one)}" for one in near.itertuples(index=False)]


def _neighbour(one: Any) -> str:
    """Return a shipped measurement on a line: what it is, how far it lies, and its error."""
    sizes = {"TP": one.tp, "batch": one.batch, "context": one.context}
    shape = ", ".join(f"{name} {x:g}" for name, x in sizes.items() if x == x and x > 0)
    what = f"{one.meaning} of {one.model}" if one.model else one.meaning
    return (
        f"nearest {one.rank}, {one.octaves:.3g} octaves away: {what} on {one.where} ({shape}), error {one.error:+.0%}"
    )


def _groups(predicted_rows: pd.DataFrame) -> list[str]:
    """Return a table of many rows by file and metric: how many, the median error, and the share inside the band."""
    import pandas as pd

    grouped = predicted_rows.groupby(["file", "metric"], sort=False)
    rows = [
        {
            "file": file,
            "metric": metric,
            "rows": f"{len(some):,}",
            "median error": f"{some.error.median():+.0%}",
            "median size": f"{some.error.abs().median():.0%}",
            "inside": f"{(some.inside == 'yes').mean():.0%}",
            "basis": some.basis.mode()[0],
        }
        for (file, metric), some in grouped
    ]
    return terminal.columns(pd.DataFrame(rows)).split("\n")


def _unasked(table: pd.DataFrame) -> list[str]:
    """Return the reasons why rows have no prediction, the commonest first, with the column that is missing."""
    none = table[table.skipped != ""]
    counts = none.groupby(["skipped", "missing"], sort=False).agg(rows=("line", "size"), metric=("metric", "first"))
    ordered = counts.sort_values("rows", ascending=False, kind="stable").reset_index()
    lines = [
        f"No prediction of {_times(row.rows, row.metric)}: {row.skipped} (missing: {row.missing})."
        for row in ordered.head(REASONS).itertuples(index=False)
    ]
    return lines + _more(len(ordered) - REASONS, "reasons; --json has them")


def _times(rows: int, metric: str) -> str:
    return f"{metric}" if rows == 1 else f"{rows:,} rows such as {metric}"


def refusals(measured: MeasuredRows) -> list[str]:
    """Return a line for each of the first figures that were not read, and how many more there are."""
    rows = measured.refused
    lines = [
        f"Refused: {row.file} line {row.line}, {row.figure}: {row.reason}."
        for row in rows.head(REASONS).itertuples(index=False)
    ]
    return lines + _more(len(rows) - REASONS, "refusals; tm.read_measurements has them")


def _formats(table: pd.DataFrame) -> list[str]:
    """Return a note on rows whose number format nobody stated, which the prediction takes to be BF16."""
    silent = int(((table.skipped == "") & (table.precision == "") & (table.model != "")).sum())
    return [f"{silent:,} predicted rows state no number format and are taken as BF16; --precision states it."] * (
        silent > 0
    )


def _stated(measured: MeasuredRows, models: Mapping[str, Transformer]) -> list[str]:
    """Return a line for each row that answers a question of which we stated the answer on an earlier date."""
    import trnmodel
    from trnmodel.units import format_digits, format_within

    rows = measured.rows
    lines = []
    for one in trnmodel.frozen(rows, models).itertuples(index=False):
        where = f"{rows.file[one.row]} line {rows.line[one.row]}, {rows.metric[one.row]}"
        answer = format_within(one.stated, one.stated_low, one.stated_high, one.unit)
        side = "inside" if one.inside == "yes" else "outside"
        said = f"Stated on {one.date} of {where} ({one.id}, commit {one.commit}): {answer}"
        lines.append(f"{said}; measured {format_digits(one.measured, 4)} {one.unit}, {side} the band of that day.")
    return lines[:REASONS] + _more(len(lines) - REASONS, "such statements; tm.frozen has them")


def _more(count: int, what: str) -> list[str]:
    return [f"{count:,} more {what}."] if count > 0 else []


def _summary(table: pd.DataFrame, measured: MeasuredRows) -> str:
    """Return the sentence at the end: rows read and refused, the median error, and how often the band holds."""
    from trnmodel.units import counted

    known: Mapping[str, Any] = figures(table)
    read = f"{counted(known['rows'], 'row')} read, {len(measured.refused):,} refused, {known['predicted']:,} predicted"
    if not known["configurations"]:
        return f"{read}."
    error, coverage = (f"{known[name]:.0%}" for name in ("median_error", "coverage"))
    several = counted(known["configurations"], "configuration")
    return f"{read}: median error {error} and {coverage} inside the 90 % band, of {several}."


def register(app: typer.Typer) -> None:
    """Add the command to the terminal."""
    app.command()(validate)
