"""The command that says which claims of the sources follow from the specifications, and shows their derivations."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from trnmodel.cli.questions import question
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import Status, columns
from trnmodel.cli.validate import Output, inert

Ids = Annotated[
    list[str], typer.Argument(metavar="[ID]...", help="Show the derivation of these claims, such as NC009.")
]
Topic = Annotated[str | None, typer.Option(help="Claims on one topic, such as memory; default all.")]
Verdict = Annotated[str | None, typer.Option(help="Claims of one verdict, such as disagrees; default all.")]
Source = Annotated[str | None, typer.Option(help="Claims of one source, such as trainium3-deep-dive; default all.")]
Json = Annotated[bool, typer.Option("--json", help="Print every figure, as JSON.")]


def claims(
    ctx: typer.Context,
    claim: Ids = [],  # noqa: B006
    topic: Topic = None,
    verdict: Verdict = None,
    source: Source = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Say which claims of the sources follow from the specifications, which do not, and under which reading they would.

    The verdicts are agrees, disagrees, input (the package reads this figure), not derivable, and stated (no number).
    """
    import trnmodel
    from trnmodel.evidence.claims import claims_by_id

    with plain_errors(ctx, claim_id="claim"):
        if claim and (topic, verdict, source) == (None, None, None):
            result = claims_by_id(claim)  # in a moment, since no other is computed
        else:
            result = trnmodel.claims(topic, verdict, source)
            result = trnmodel.Claims(rows=tuple(map(result.claim, dict.fromkeys(claim)))) if claim else result
        if output is not None:
            inert(result.to_frame()).to_csv(output, index=False, lineterminator="\n")
        if as_json:
            typer.echo(json.dumps(_data(result), indent=2, allow_nan=False))
        elif claim:
            say("\n".join(line for one in result.rows for line in one.card()))
        elif result.rows:
            say("\n".join([columns(_shown(result)), *result.card()]))
        else:
            say("There are no such claims.", error=True)
        if not result.rows:
            raise typer.Exit(Status.IMPOSSIBLE)


def _shown(result: Any) -> Any:
    """Return claims as the columns that a terminal shows."""
    from trnmodel.result import tidy

    return tidy(
        {
            "id": one.id,
            "verdict": one.verdict,
            "printed": one.printed,
            "computed": one.computed,
            "line": one.locator,
            "claim": one.claim,
        }
        for one in result.rows
    )


def _data(result: Any) -> list[dict[str, Any]]:
    """Return claims as JSON, with null for an open end and for a value that there is not."""
    return json.loads(result.to_frame().to_json(orient="records", double_precision=12))


def register(app: typer.Typer) -> None:
    """Add the command to the terminal."""
    app.command(cls=question("claims"))(claims)
