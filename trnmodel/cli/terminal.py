"""What all commands share: exit statuses, names and numbers as people type them, flags in errors, completion."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NoReturn

import typer


class Status(IntEnum):
    """How a command ends, for a script to branch on."""

    ANSWERED = 0
    FAULT = 1
    REFUSED = 2
    IMPOSSIBLE = 3
    LIMIT = 4
    DIFFERS = 5
    INTERRUPTED = 130


MEANING = {
    Status.ANSWERED: "The question is answered.",
    Status.FAULT: "Our fault: the program or a chapter failed.",
    Status.REFUSED: "A bad question: a name, a number, a flag or a file that cannot be used.",
    Status.IMPOSSIBLE: "A valid question that nothing can satisfy: too large, too slow, or no figure is published.",
    Status.LIMIT: "A limit of --fail-if was exceeded.",
    Status.DIFFERS: "A plan that was checked differs: its answer moved, or a fact that it stands on.",
    Status.INTERRUPTED: "Interrupted.",
}
EPILOG = "\n".join(["\b", "Exit status:", *(f"{status:>5}  {text}" for status, text in MEANING.items())])

# Arguments of the library that have another name at the terminal: that of the command's own parameter.
ARGUMENTS = {
    "efficiencies": "stack",
    "global_batch": "batch",
    "input_tokens": "prompt",
    "intensity_flop_per_byte": "intensity",
    "facility": "site",
    "interval_s": "interval",
    "max_loss_percent": "quality",
    "message_bytes": "size",
    "output_tokens": "output",
    "prefix_share": "prefix",
    "requests_per_s": "requests",
    "site_w": "mw",
    "spare_chips": "spares",
    "speeds": "speed",
    "spare_instances": "spares",
    "systems": "system",
    "tokens_per_s_per_user": "speed",
    "ttft_percentile": "percentile",
    "ttft_s": "ttft",
}
STACK_KINDS = ("public", "hand-tuned", "ideal")
WITH_KINDS = ("stack", "software", "trainer")  # names that a kind of stack may stand for; software is a stack or option
NAMES = ["id", "name", "names"]  # columns of a table that hold names
READ_AS = "trnmodel.read_as"  # key of the context, for the names that were read as others, case aside


def flag(parameter: Any) -> str:
    """Return how a parameter of a command is typed: its long flag, or the name of the argument."""
    if parameter.param_type_name == "argument":
        return (parameter.metavar or parameter.name.upper()).rstrip(".")
    return next((one for one in parameter.opts if one.startswith("--")), parameter.opts[0])


def in_flags(message: str, parameters: Iterable[Any], renamed: dict[str, str]) -> str:
    """Return an error of the library with the flags of a command in place of the library's arguments.

    An item of a mapping, such as stated['tp'], is the flag of its key. `renamed` names the parameters behind arguments
    of this one command.
    """
    flags = {one.name: flag(one) for one in parameters}
    every = ARGUMENTS | renamed
    flags |= {argument: flags[name] for argument, name in every.items() if name in flags}

    def typed(match: re.Match) -> str:
        mapping, key, name = match.groups()
        return flags.get(key or name) or (f"{flags[mapping]} {key}" if mapping in flags else match[0])

    return re.sub(r"\b(?:(\w+)\['(\w+)'\]|(\w+))(?==| \+ \w+=)", typed, message)


def _end(error: ValueError) -> NoReturn:
    """Print why a typed value cannot be used, on one line, and end the command."""
    from trnmodel.cli.errors import printable

    typer.echo(printable(" ".join(str(error).split())), err=True)
    raise typer.Exit(Status.REFUSED)


def _read(parameter: Any, value: Any, read: Callable[[str, str], Any]) -> Any:
    """Return what the text of a flag means, or each text of a list of them."""
    try:
        texts = value if isinstance(value, list) else [value]
        values = [read(flag(parameter), text) for text in texts]
    except ValueError as error:
        _end(error)
    return values if isinstance(value, list) else values[0]


def number(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Read a number, with or without k, M, B or T."""
    from trnmodel.units import read_number

    return value if value is None or ctx.resilient_parsing else _read(param, value, read_number)


def numbers(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Read numbers that commas separate, from each text of a list."""
    from trnmodel.units import read_number

    def read(name: str, text: str) -> list[float]:
        return [read_number(name, one.strip()) for one in text.split(",")]

    return value if ctx.resilient_parsing else [x for some in _read(param, value, read) for x in some]


def whole(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Read a whole number, with or without k, M, B or T."""
    from trnmodel.arguments import refuse
    from trnmodel.units import read_number

    def read(name: str, text: str) -> int:
        value = read_number(name, text)
        return int(value) if value % 1 == 0 else refuse(name, text, "allowed are whole numbers, such as 8 or 2k")

    return value if value is None or ctx.resilient_parsing else _read(param, value, read)


def size(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Read a number of bytes, with or without a unit."""
    from trnmodel.units import read_number

    def read(name: str, text: str) -> float:
        return read_number(name, text, of_bytes=True)

    return value if value is None or ctx.resilient_parsing else _read(param, value, read)


def identifier(kind: str) -> Callable[..., Any]:
    """Return the callback of a name: the id that it means; what was read as another name is noted for the answer."""

    def callback(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        if value is None or ctx.resilient_parsing:
            return value

        def read(name: str, text: str) -> str:
            meant = _meant(kind, name, text)
            if meant not in (text, text.lower()):
                ctx.meta.setdefault(READ_AS, []).append(f"{text} was read as {meant}.")
            return meant

        return _read(param, value, read)

    return callback


def identifiers(kind: str) -> Callable[..., Any]:
    """Return the callback of names that commas separate, in each text of a list: the ids that they mean, each once."""
    one = identifier(kind)

    def callback(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        if value is None or ctx.resilient_parsing:
            return value
        return list(dict.fromkeys(one(ctx, param, [name.strip() for text in value for name in text.split(",")])))

    return callback


def word(kind: str) -> Callable[..., Any]:
    """Return the callback of a word of a closed list, which is checked before anything is computed."""

    def callback(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        from trnmodel.arguments import choice

        def read(name: str, text: str) -> str:
            return choice(name, text, tuple(_ids(kind)))

        return value if value is None or ctx.resilient_parsing else _read(param, value, read)

    return callback


def read_as(ctx: typer.Context) -> list[str]:
    """Return a sentence for each name of the command that was read as another."""
    return list(dict.fromkeys(ctx.meta.get(READ_AS, [])))


def _meant(kind: str, name: str, text: str) -> str:
    """Return the id that a typed name means. What is no shipped model is left to the call: it may be a file."""
    from trnmodel.catalog import load, names
    from trnmodel.catalog.posterior import is_file

    if kind in ("stack", "software") and is_file(text):
        return text
    if kind == "model":
        from trnmodel.models import shipped

        return shipped.known(text) or text
    if kind == "precision":
        return names.resolve(name, text, load.presets())
    kinds = {names.folded(one): one for one in _kinds(kind)}
    if kind == "software":
        return names.resolve(name, text, kinds | load.ids_by_name("stack") | load.ids_by_name("option"))
    return kinds.get(names.folded(text)) or load.resolve(kind, text, name)


def _kinds(kind: str) -> tuple[str, ...]:
    """Return the words for software that a name of a kind may be."""
    more = ("no-speculation",) if kind == "software" else ()  # of a search, which tries the options of a stack
    return (*STACK_KINDS, *more) if kind in WITH_KINDS else ()


def complete(kind: str) -> Callable[[str], list[str]]:
    """Return the completion of a name: the ids of its kind that begin as what is typed."""

    def completion(incomplete: str) -> list[str]:
        return [one for one in _ids(kind) if one.startswith(incomplete)]

    return completion


def complete_last(kind: str) -> Callable[[str], list[str]]:
    """Return the completion of names that commas separate: that of the last one, behind the others."""

    def completion(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{one}" for one in complete(kind)(last)]

    return completion


def _ids(kind: str) -> Iterable[str]:
    """Return the ids of a kind; reading them loads no pandas."""
    from trnmodel.catalog import load

    if kind == "model":
        from trnmodel.models import shipped

        return shipped.catalog()
    if kind == "system":
        from trnmodel.catalog.systems import systems

        return systems()
    if kind == "pricing":
        from trnmodel.catalog.rents import PRICINGS

        return PRICINGS
    tables: dict[str, Callable[[], Iterable[str]]] = {"precision": load.precisions, "dtype": load.dtypes}
    if kind in tables:
        return tables[kind]()
    those = ("stack", "option") if kind == "software" else (kind,)
    return [*_kinds(kind), *(one.id for one in load.entities().values() if one.kind in those)]


def holding(frame: Any, text: str, also: Iterable[str] = ()) -> Any:
    """Return the rows of a table whose id or other name holds a text, without regard to case and separators.

    Cells of the columns `also` count as names.
    """
    from trnmodel.catalog.names import folded

    part = folded(text)
    return frame[
        [
            any(part in folded(str(cell)) for cell in row)
            for row in frame.filter([*NAMES, *also]).itertuples(index=False)
        ]
    ]


def columns(frame: Any) -> str:
    """Return a table as lines of aligned columns, each as wide as its longest cell but the last."""
    cells = [list(map(str, frame.columns)), *([str(cell) for cell in row] for row in frame.itertuples(index=False))]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    rows = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(rows)
