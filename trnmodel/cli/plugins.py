"""Commands that other packages bring: entry points of the group `trnmodel.commands`, loaded when they are used."""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from trnmodel.cli import terminal

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "trnmodel.commands"
ALLOCATIONS = 50_000  # objects made between two collections of garbage; Python's 700 cost a command a tenth of its time


@cache
def installed() -> dict[str, EntryPoint]:
    """Return the commands that installed packages bring, by name."""
    from importlib.metadata import entry_points  # which takes longer to import than most commands need it

    return {point.name: point for point in sorted(entry_points(group=GROUP))}


def loaded(point: EntryPoint) -> Any:
    """Return the command of an entry point, or None with a warning where its package cannot be imported."""
    try:
        function = point.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        typer.echo(f"The command {point.name!r} of {point.value} cannot be loaded: {error}", err=True)
        return None
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(point.name, epilog=terminal.EPILOG)(function)
    return typer.main.get_command(single)


class Commands(TyperGroup):
    """A group of commands of its own and of those that installed packages bring."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run a command, in a process that ends with it."""
        gc.set_threshold(ALLOCATIONS)
        return super().main(*args, **more)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, own ones first."""
        return [*super().list_commands(ctx), *(name for name in installed() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name; one of another package is imported now."""
        own = super().get_command(ctx, cmd_name)
        return loaded(installed()[cmd_name]) if own is None and cmd_name in installed() else own
