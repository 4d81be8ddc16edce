"""Scenario files at the terminal: what a file states stands in for flags, and several files make a table."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import _click

from trnmodel.cli import terminal
from trnmodel.cli.errors import InputError
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import ARGUMENTS, Status

CALLS = {  # what a command asks; the first call decides what a file states of its arguments
    "plan": ("plan",),
    "compare": ("compare",),
    "train": ("train_run",),
    "cost": ("token_cost", "tco"),
    "power": ("decode_step", "energy"),
    "goodput": ("goodput",),
}
SECTIONS = {  # of a scenario, that hold arguments of these commands
    "plan": ("request", "load", "settings"),
    "compare": ("request", "settings"),
    "train": ("training", "settings"),
    "cost": ("request", "settings"),
    "power": ("step", "settings"),
    "goodput": ("job",),
}
SCALES = {"mw": 1e6}  # flags in another unit than the argument behind them
TYPED_AS = {"pricing": ("price",), "site_w": ("mw",)}  # other flags that give an argument
LOADS = ("users", "requests", "chips", "mw", "usd_per_month")  # flags of a plan, of which one says how much there is
COLUMNS = (  # of the table of several files, those that the command has
    "promised_tokens_per_s_per_user",
    "system",
    "precision",
    "tp",
    "ep",
    "batch",
    "chips",
    "instances",
    "spare_instances",
    "software",
    "tokens_per_s_per_user",
    "tokens_per_s_per_chip",
    "generated_usd_per_mtoken",
    "usd_per_month",
    "owned_usd_per_month",
    "mean_site_w",
    "server_j_per_token",
    "chip_w",
    "goodput",
    "calendar_days",
    "renter_usd",
    "owner_usd",
    "days",
    "low",
    "high",
    "chance",
    "basis",
    "reason",
)
SAVED = "plan"  # the command whose answer can be saved
ROWS, ARGS, ROW, AGAIN, SAVE = (f"trnmodel.{name}" for name in ("rows", "args", "row", "again", "save"))  # in a context
COMMANDLINE = _click.core.ParameterSource.COMMANDLINE


class Row(NamedTuple):
    """A question of a file: the file, the scenario, and the one of its systems that the command is asked about."""

    path: str
    scenario: Any
    system: str | None


def options(command: str) -> list[Any]:
    """Return the options that a command takes a scenario by: none where no scenario states its arguments."""
    if command not in CALLS:
        return []
    single = typer.Typer(add_completion=False, rich_markup_mode=None)

    @single.command()
    def _(
        scenario: Annotated[
            list[str],
            typer.Option(
                "--scenario",
                metavar="FILE",
                is_eager=True,
                expose_value=False,
                callback=_read,
                help="YAML file that states model, request, load, systems and own prices; what stands on the command "
                "line wins over it. Several times for a table. Its schema: trnmodel schema scenario.",
            ),
        ] = [],  # noqa: B006
        save: Annotated[
            str | None,
            typer.Option(
                metavar="FILE.json",
                expose_value=False,
                callback=_keep,
                help="Write the answer with the facts that it stands on, for trnmodel check, and beside it "
                "FILE-rejected.csv: why each other candidate lost.",
            ),
        ] = None,
    ) -> None: ...

    every = typer.main.get_command(single).params
    return [one for one in every if one.name != "save" or command == SAVED]


def _keep(ctx: typer.Context, value: str | None) -> str | None:
    """Keep where an answer is to be saved; a table of several answers is no plan."""
    if value is not None and not ctx.resilient_parsing:
        if len(ctx.meta.get(ROWS, [])) > 1:
            with plain_errors():
                raise InputError(f"--save={value}: several scenarios make a table; allowed with one scenario")
        ctx.meta[SAVE] = value
    return value


def save(ctx: typer.Context, answer: Any, **arguments: Any) -> None:
    """Save the answer of a plan where `--save` names a file; `arguments` are those of `tm.plan`."""
    if SAVE not in ctx.meta:
        return
    from trnmodel.calls import arguments_of
    from trnmodel.files.layout import LOADS
    from trnmodel.files.saved import save_plan
    from trnmodel.files.scenarios import scenario

    defaults = {name: one.default for name, one in arguments_of("plan").items()}
    given = {name: value for name, value in arguments.items() if value is not None and value != defaults.get(name)}
    stated = {name: value for name, value in given.items() if name not in LOADS}
    load = {name: value for name, value in given.items() if name in LOADS}
    prices = {i: dict(own) for i, own in ctx.meta[ROW].scenario.prices.items()} if ROW in ctx.meta else {}
    try:
        save_plan(scenario({**stated, "load": load, "prices": prices}), ctx.meta[SAVE], answer)
    except ValueError as error:
        raise ValueError(re.sub("^path=", "save=", str(error))) from None


def _read(ctx: typer.Context, value: list[str]) -> list[str]:
    """Read the files, and let the first one stand in for what is not typed."""
    if not value or ctx.resilient_parsing or ctx.default_map is not None:
        return value
    from trnmodel.files.scenarios import scenario

    with plain_errors():
        try:
            rows = [row for path in value for row in _rows(ctx.command, path, scenario(path))]
        except ValueError as error:  # of a key in a file, and of no flag
            raise InputError(re.sub("^source=", "--scenario=", " ".join(str(error).split()))) from None
    ctx.meta[ROWS] = rows
    _take(ctx, rows[0])
    return value


def _rows(command: Any, path: str, scenario: Any) -> list[Row]:
    """Return a row for the file, or for each of its systems where the command is asked about one."""
    one = any(parameter.name == "system" and not _several(parameter) for parameter in command.params)
    if command.name == "power" and not scenario.step:
        raise ValueError(f"{path}: step is missing, which this question needs")
    systems = [spec.id for spec in scenario.systems] if one else []
    return [Row(path, scenario, name) for name in systems or [None]]


def before(ctx: Any, args: list[str]) -> None:
    """Keep what was typed, to ask it again for each further scenario; the scenario that is asked again comes first."""
    row = ctx.meta.pop(AGAIN, None)
    if row is None:
        ctx.meta[ARGS] = list(args)
    else:
        _take(ctx, row)


def _take(ctx: Any, row: Row) -> None:
    """Make what a scenario states the defaults of a command's parameters; `also` gives the rest to the call."""
    ctx.meta[ROW], ctx.default_map = row, {}
    for name, value in _stated(ctx, row).items():
        parameter = _parameter(ctx.command, name, value)
        if parameter is not None:
            scaled = value / SCALES[parameter.name] if parameter.name in SCALES else value
            ctx.default_map[parameter.name] = _listed(scaled) if _several(parameter) else scaled


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _several(parameter: Any) -> bool:
    return parameter.nargs == -1 or bool(getattr(parameter, "multiple", False))


def _parameter(command: Any, name: str, value: Any) -> Any:
    """Return the parameter of a command that takes a value of an argument; None where no flag does."""
    if isinstance(value, Mapping) or (name == "pricing" and not isinstance(value, str)):
        return None
    takers = (one for one in command.params if one.name in (name, ARGUMENTS.get(name)))
    return next((one for one in takers if _several(one) or not isinstance(value, list)), None)


def _typed_load(ctx: Any) -> bool:
    """Return whether a flag says how much there is, which then stands in for all that the file says of it."""
    loads = {flag for one in ctx.command.params if one.name in LOADS for flag in one.opts}
    return ctx.command.name == "plan" and any(text.partition("=")[0] in loads for text in ctx.meta[ARGS])


def _stated(ctx: Any, row: Row) -> dict[str, Any]:
    """Return what a scenario states of the arguments of a command, by name."""
    from trnmodel.files import layout
    from trnmodel.files.scenarios import named_arguments

    command = str(ctx.command.name)
    scenario, system = row.scenario, row.system
    plain = scenario.stated()
    held = {name: plain[name] for name in ("model", "name") if name in plain}
    held |= {"system": system} if system else {"systems": plain["systems"]} if "systems" in plain else {}
    for section in SECTIONS[command]:
        if section == "request":
            held |= plain.get("request", {})
        elif section == "settings":
            for call in CALLS[command]:
                held |= named_arguments(scenario, call)
        else:
            held |= getattr(scenario, section)
    loads = (*layout.LOADS, layout.RATE) if _typed_load(ctx) else ()
    return {name: value for name, value in held.items() if name not in loads}


def also(ctx: typer.Context, call: str, system: str = "") -> dict[str, Any]:
    """Return what the scenario states of a call's arguments that no flag gives, such as own prices by system.

    What is typed wins. With a `system`, these are its own prices of parts.
    """
    from trnmodel.calls import arguments_of
    from trnmodel.files.layout import STEP, sections

    if ROW not in ctx.meta:
        return {}
    row: Row = ctx.meta[ROW]
    names: Iterable[str] = sections()[STEP] if call == "Mapping" else arguments_of(call)
    stated = row.scenario.prices.get(system, {}) if system else _stated(ctx, row)
    typed = {one.name for one in ctx.command.params if ctx.get_parameter_source(str(one.name)) == COMMANDLINE}
    return {
        name: value
        for name, value in stated.items()
        if name in names
        and not (call == "Mapping" and name in arguments_of("decode_step"))
        and not typed & {name, ARGUMENTS.get(name), *TYPED_AS.get(name, ())}
        and _parameter(ctx.command, name, value) is None
    }


def each(command: Any, ctx: Any, invoke: Callable[[Any], Any]) -> Any:
    """Invoke a command for each scenario: for one as if it was typed, for several as rows of a table."""
    rows: list[Row] = ctx.meta.get(ROWS, [])
    if len(rows) < 2:
        return invoke(ctx)
    as_json, answers, worst = bool(ctx.params.get("as_json")), list[dict[str, Any]](), Status.ANSWERED
    if ctx.params.get("explain") and not as_json:
        say(
            "--explain: a table of several scenarios has no room for it; allowed are one scenario, or --json",
            error=True,
        )
        raise typer.Exit(Status.REFUSED)
    for row in rows:
        status, answer = _answer(command, ctx, row, invoke)
        worst = max(worst, status)
        answers.append({"scenario": row.path, "answer": answer})
    if as_json:
        typer.echo(json.dumps(answers, indent=2))
    else:
        say(terminal.columns(_table(answers)))
    raise typer.Exit(worst)


def _answer(command: Any, ctx: Any, row: Row, invoke: Callable[[Any], Any]) -> tuple[Status, Any]:
    """Return status and answer of one row; end with its error where the question is refused."""
    out, errors, status = io.StringIO(), io.StringIO(), Status.ANSWERED
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            ctx.meta[AGAIN] = row
            again = command.make_context(ctx.info_name, [*ctx.meta[ARGS]], parent=ctx.parent)
            again.params["as_json"] = True
            invoke(again)
        except typer.Exit as end:
            status = Status(end.exit_code)
    if status not in (Status.ANSWERED, Status.IMPOSSIBLE):
        say(f"{row.path}: {errors.getvalue().strip()}", error=True)
        raise typer.Exit(status)
    text = out.getvalue()
    return status, json.loads(text) if text else {"valid": False, "reason": errors.getvalue().strip()}


def _table(answers: Iterable[Mapping[str, Any]]) -> Any:
    """Return a row for each file with the figures of the answer that its command puts first."""
    import pandas as pd

    from trnmodel.units import format_digits

    def cell(value: Any) -> str:
        if value is None or value == "":
            return "-"
        if not isinstance(value, float | int):
            return str(value)
        return f"{value:,.0f}" if value % 1 == 0 else format_digits(float(value), 3)

    firsts = [{**row, "scenario": one["scenario"]} for one in answers for row in _firsts(one["answer"])]
    shown = [name for name in ("scenario", *COLUMNS) if any(one.get(name) not in (None, "") for one in firsts)]
    return pd.DataFrame([{name: cell(one.get(name)) for name in shown} for one in firsts])


def _firsts(answer: Any) -> list[dict[str, Any]]:
    """Return the figures that an answer puts first: its first row, of a comparison that of each speed.

    Of a plan they are those of its best choice and its instances.
    """
    if isinstance(answer, list):
        return answer[:1]
    if "lines" in answer:
        rows = answer["lines"]
        speeds = dict.fromkeys(row["promised_tokens_per_s_per_user"] for row in rows)
        return [next(row for row in rows if row["promised_tokens_per_s_per_user"] == speed) for speed in speeds]
    parts = [answer.get("best"), answer.get("capacity")] if "best" in answer else [answer]
    return [{name: value for part in parts if part for name, value in part.items()}]
