"""The command that corrects a software stack by measurements of one's own, and writes it to a file."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from trnmodel.cli import terminal
from trnmodel.cli.questions import question
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import Status
from trnmodel.cli.validate import Also, refusals, stated_by

MOST_SKIPPED = 10  # rows whose reason is printed

Files = Annotated[
    list[str], typer.Argument(metavar="FILES...", help="Files of benchmark tools, or of our own columns.")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE.yaml", help="Stack file to write, for --stack of other commands."),
]
Software = Annotated[
    str | None,
    typer.Option(
        "--stack",
        help="Software that the rows ran on: an id, or a stack file to calibrate further; default what they state.",
        callback=terminal.identifier("stack"),
        autocompletion=terminal.complete("stack"),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]


def calibrate(
    ctx: typer.Context,
    files: Files,
    output: Output = None,
    stack: Software = None,
    also: Also = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Correct the constants of a software stack by your own measurements, and write the stack to a file.

    It reads the files that `validate` reads; --set states what they do not. Every command takes the stack by --stack.
    """
    import trnmodel

    with plain_errors(ctx, paths="files", rows="files", stated="also", path="output"):
        if output is not None:
            from trnmodel.evidence.calibration import stack_path

            stack_path(output)
        measured = trnmodel.read_measurements(files, stated_by(also))
        if not len(measured.rows):
            say("\n".join(refusals(measured)), error=True)
            raise typer.Exit(Status.REFUSED)
        result = trnmodel.calibrate(measured.rows, stack)
        if output is not None:
            result.save(output)
        for sentence in terminal.read_as(ctx):
            say(sentence, error=as_json)
        for line in refusals(measured):
            say(line, error=True)
        say(json.dumps(_data(result), indent=2) if as_json else "\n".join(_lines(result, output)))


def _data(result: Any) -> dict[str, Any]:
    """Return a calibration for JSON."""
    tables = {"constants": result.constants, "rows": result.rows}
    data = {name: json.loads(table.to_json(orient="records", double_precision=12)) for name, table in tables.items()}
    return {"release": result.release, "basis": result.stack.posterior.word, **data}


def _lines(result: Any, output: str | None) -> list[str]:
    """Return the gain, the table of constants, what no row determines, and the rows that were not used."""
    import pandas as pd

    head, gain, *_ = result.card()
    moved = result.constants[~result.constants.constant.isin(result.undetermined)]
    shown = {
        "constant": moved.constant,
        "before": [f"{x:.4g}" for x in moved.prior],
        "after": [f"{x:.4g}" for x in moved.value],
        "90 % range": [f"{low:.4g} to {high:.4g}" for low, high in zip(moved.low, moved.high, strict=True)],
        "origin": moved.origin,
    }
    lines = [head, gain, "", terminal.columns(pd.DataFrame(shown)), ""]
    if result.undetermined:
        lines.append(f"No row depends on these, which keep their prior: {', '.join(result.undetermined)}.")
    skipped = result.rows[result.rows.skipped != ""]
    lines += [f"Row {place + 1} was not used: {why}" for place, why in list(skipped.skipped.items())[:MOST_SKIPPED]]
    if len(skipped) > MOST_SKIPPED:
        lines.append(f"{len(skipped) - MOST_SKIPPED} more rows were not used; --json has their reasons.")
    return lines + [f"Written: {output}"] * (output is not None)


def register(app: typer.Typer) -> None:
    """Add the command to the terminal."""
    app.command(cls=question("calibrate"))(calibrate)
