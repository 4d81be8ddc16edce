"""What every command of the terminal does: says lines, ends with one line and a status where input is refused."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from trnmodel.cli import terminal
from trnmodel.cli.errors import ChapterError, InputError, NoAnswerError, printable
from trnmodel.cli.terminal import Status

MAX_ERROR = 1000


def say(text: object, *, error: bool = False) -> None:
    """Print lines of which a terminal obeys nothing but their ends; those of errors up to 1,000 letters long."""
    lines = (printable(line) for line in str(text).split("\n"))
    typer.echo("\n".join(line[:MAX_ERROR] if error else line for line in lines), err=error)


class _Notes:
    """Prints warnings as notes on one line, each once."""

    def __init__(self) -> None:
        self.printed = set[str]()

    def __call__(self, message: Warning | str, *_: Any, **__: Any) -> None:
        """Print a warning that was not printed yet."""
        line = f"Note: {' '.join(str(message).split())}"
        if line not in self.printed:
            say(line, error=True)
        self.printed.add(line)


@contextmanager
def plain_errors(ctx: typer.Context | None = None, **renamed: str) -> Iterator[None]:
    """End with one line and a status of `terminal.Status` for input that is refused, a failure, or an interrupt.

    With the context of a question, what the library refuses is told by the flags of its command; `renamed` names the
    parameters behind arguments that only this command calls otherwise.
    """
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    refused = ValueError if ctx else InputError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _Notes()
            yield
    except ChapterError as error:
        status, text = Status.FAULT, str(error)
    except BrokenPipeError:
        raise  # the reader has left; typer ends quietly
    except (refused, OSError) as error:
        from trnmodel.arguments import ImpossibleError  # which loads NumPy

        text = " ".join(str(error).split())
        text = terminal.in_flags(text, ctx.command.params, renamed) if ctx else text
        status = Status.IMPOSSIBLE if isinstance(error, NoAnswerError | ImpossibleError) else Status.REFUSED
    except KeyboardInterrupt:
        status, text = Status.INTERRUPTED, "interrupted; the same command goes on from here"
    else:
        return
    finally:
        signal.signal(signal.SIGTERM, former)
    say(text, error=True)
    raise typer.Exit(status)
