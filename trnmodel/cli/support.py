"""The command that says whether documented software runs a model, by the releases of serving engines."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from trnmodel.cli import terminal
from trnmodel.cli.questions import question
from trnmodel.cli.shell import plain_errors, say


def _name(kind: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a parameter that takes the name of a catalogue entry."""
    return {"callback": terminal.identifier(kind), "autocompletion": terminal.complete(kind), **more}


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Id or name of a model, or the path of a config.json.", **_name("model"))
]
ModelName = Annotated[str | None, typer.Option("--name", help="Name of a model of your own, from a file.")]
Systems = Annotated[
    list[str],
    typer.Argument(metavar="[SYSTEM]...", help="Default every chip that a release runs on.", **_name("system")),
]
Software = Annotated[
    str | None,
    typer.Option("--stack", help="Software on the systems: public (default), or an id.", **_name("software")),
]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]


def support(
    ctx: typer.Context,
    model: Model,
    system: Systems = [],  # noqa: B006
    stack: Software = None,
    name: ModelName = None,
    as_json: Json = False,
) -> None:
    """Say whether documented software runs a model, with which features, and what would have to be ported."""
    from trnmodel.arguments import refuse
    from trnmodel.models.transformer import model as read_model
    from trnmodel.result import tidy
    from trnmodel.steps.support import support as ask
    from trnmodel.steps.support import support_table

    with plain_errors(ctx, systems="system"):
        if stack is not None and not system:
            refuse("efficiencies", stack, "it needs a SYSTEM; without one every release is listed")
        chosen = read_model(model, name)
        if system:
            answers = [ask(chosen, one, stack) for one in system]
            lines = ["\n  ".join(answer.card()) for answer in answers]
            rows = tidy([answer.to_frame().iloc[0].to_dict() for answer in answers]) if as_json else None
        else:
            rows = support_table(chosen)
            lines = [_line(row) for row in rows.to_dict("records")]
        for sentence in terminal.read_as(ctx):
            say(sentence, error=as_json)
        if as_json:
            typer.echo(json.dumps(json.loads(rows.to_json(orient="records")), indent=2))  # type: ignore[union-attr]
        else:
            say("\n".join(lines))


def _line(row: dict[str, Any]) -> str:
    """Return what a release says of the model on a chip."""
    maturity = " (beta)" if row["maturity"] == "beta" else ""
    port = f"; contributed port: {row['port']}" if row["port"] else ""
    return f"{row['chip']}: {row['status']}{maturity} by {row['release']}{port}"


def register(app: typer.Typer) -> None:
    """Add the command to the terminal."""
    app.command(cls=question("support"))(support)
