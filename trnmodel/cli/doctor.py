"""The command that says whether measured numbers are right, and what explains the gap to what they could be."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from trnmodel.cli.questions import question
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import Status
from trnmodel.cli.validate import Also, refusals, stated_by

Items = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Files that validate reads; behind --row further cells, KEY=VALUE."),
]
Cells = Annotated[
    list[str],
    typer.Option("--row", metavar="KEY=VALUE", help="A cell of one measured row, such as instance=trn2.48xlarge."),
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]


def doctor(
    ctx: typer.Context,
    item: Items = [],  # noqa: B006
    row: Cells = [],  # noqa: B006
    also: Also = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Say whether a measured number is right, what it should be, and which causes can explain the gap.

    A row has the cells instance, workload, metric, value and unit, and as many of tp, batch, input_len, output_len,
    precision, engine, sdk, kernels, slots, clients and note as are known.
    """
    import trnmodel

    with plain_errors(ctx, rows="item", paths="item", stated="also"):
        each = _cells([*row, *item]) if row else _rows(item, also)
        results = [trnmodel.doctor(each)]
        if as_json:
            tables = [_data(one) for result in results for one in result.rows]
            typer.echo(json.dumps(tables, indent=2))
        else:
            say("\n".join(line for result in results for line in result.card()))
        if not any(one.expected for result in results for one in result.rows):
            raise typer.Exit(Status.IMPOSSIBLE)


def _rows(items: list[str], also: list[str]) -> Any:
    """Return the rows of the files that are named, at least one, and say what of them is not read."""
    from trnmodel.arguments import refuse
    from trnmodel.evidence.formats.read import read_measurements

    if not items:
        refuse("rows", "", "allowed are files of measured rows, or the cells of one behind --row")
    measured = read_measurements(items, stated_by(also))
    for line in refusals(measured):
        say(line, error=True)
    if not len(measured.rows):
        raise typer.Exit(Status.REFUSED)
    return measured.rows


def _cells(typed: list[str]) -> dict[str, str]:
    """Return typed cells by column, each once."""
    from trnmodel.arguments import refuse

    cells: dict[str, str] = {}
    for text in typed:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not (name and equals) or name in cells:
            why = "is typed twice" if name in cells else "is no cell"
            refuse("row", text, f"it {why}; allowed are cells such as tp=8, each column once")
        cells[name] = value
    return cells


def _data(one: Any) -> dict[str, Any]:
    """Return a diagnosis as JSON, in which nothing is NaN."""
    expected = [each._asdict() for each in one.expected]
    row = {
        name: getattr(one, name) for name in ("id", "meaning", "measured", "unit", "verdict", "unexplained", "reason")
    }
    row |= {"expected": expected, "causes": [each._asdict() for each in one.causes]}
    return _plain(row)


def _plain(value: Any) -> Any:
    """Return nested lists and mappings with None for NaN."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def register(app: typer.Typer) -> None:
    """Add the command to the terminal."""
    app.command(cls=question("doctor"))(doctor)
