"""The command that says whether measured numbers are right, and what explains the gap to what they could be."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from trnmodel.cli.questions import question
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import Status

Items = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="CSV files of measured rows; behind --row further cells, KEY=VALUE."),
]
Cells = Annotated[
    list[str],
    typer.Option("--row", metavar="KEY=VALUE", help="A cell of one measured row, such as instance=trn2.48xlarge."),
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]


def doctor(ctx: typer.Context, item: Items = [], row: Cells = [], as_json: Json = False) -> None:  # noqa: B006
    """Say whether a measured number is right, what it should be, and which causes can explain the gap.

    A row has the cells instance, workload, metric, value and unit, and as many of tp, batch, input_len, output_len,
    precision, engine, sdk, kernels, slots, clients and note as are known.
    """
    import trnmodel

    with plain_errors(ctx, rows="item"):
        each = [_cells([*row, *item])] if row else _files(item)
        results = [trnmodel.doctor(rows) for rows in each]
        if as_json:
            tables = [_data(one) for result in results for one in result.rows]
            typer.echo(json.dumps(tables, indent=2))
        else:
            say("\n".join(line for result in results for line in result.card()))
        if not any(one.expected for result in results for one in result.rows):
            raise typer.Exit(Status.IMPOSSIBLE)


def _files(items: list[str]) -> list[Any]:
    """Return the files that are named, at least one."""
    from trnmodel.arguments import refuse

    return items or refuse("rows", "", "allowed are files of measured rows, or the cells of one behind --row")


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
