"""The command line: run a chapter with parameters, list the chapters, build the book."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import trnmodel
from trnmodel import report

MAX_ERROR = 1000

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
OutDir = Annotated[str, typer.Option("-o", "--out-dir", metavar="FOLDER", help="Folder for what is made.")]


def _folder(text: str) -> Path:
    if not text.strip():
        raise report.InputError("-o: an empty name is no folder; the one you are in is .")
    return Path(text)


def _say(text: object, *, error: bool = False) -> None:
    """Print lines of which a terminal obeys nothing but their ends; those of errors up to 1,000 letters long."""
    lines = (report.printable(line) for line in str(text).split("\n"))
    typer.echo("\n".join(line[:MAX_ERROR] if error else line for line in lines), err=error)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """One line and status 2 for input that cannot be used, 1 for a failing chapter, 130 for an interrupt."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except report.ChapterError as error:
        status, text = 1, str(error)
    except BrokenPipeError:
        raise  # the reader has left; typer ends quietly
    except (report.InputError, OSError) as error:
        status, text = 2, " ".join(str(error).split())
    except KeyboardInterrupt:
        status, text = 130, "interrupted; the same command goes on from here"
    else:
        return
    finally:
        signal.signal(signal.SIGTERM, former)
    _say(text, error=True)
    raise typer.Exit(status)


def _pairs(assignments: list[str]) -> dict[str, str]:
    """`name=value` texts as a dict."""
    for text in assignments:
        if "=" not in text:
            raise report.InputError(f"-p {text}: expected name=value")
    return {name.strip(): value for name, _, value in (text.partition("=") for text in assignments)}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trnmodel {trnmodel.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Trainium from first principles: performance, energy and cost, with a source behind every number."""


@app.command()
def run(
    chapter: Annotated[str, typer.Argument(help="A chapter as `trnmodel list` prints it.")],
    parameter: Annotated[list[str], typer.Option("-p", "--parameter", metavar="NAME=VALUE")] = [],  # noqa: B006
    file: Annotated[Path | None, typer.Option("-f", "--file", help="YAML mapping of parameters; -p wins.")] = None,
    out_dir: OutDir = "reports",
    page: Annotated[bool, typer.Option(help="Make an HTML page of it too.")] = True,
) -> None:
    """Execute a chapter with your parameters into a report of your own.

    The report is FOLDER/CHAPTER.ipynb, with a page in FOLDER/CHAPTER/. It is made again only when something that it
    is made from has changed. One with other parameters in its place is replaced, which is said; name another folder to
    keep both. One run at a time may write into a folder.
    """
    with _plain_errors():
        folder = _folder(out_dir)
        given = (report.read_parameters(file) if file else {}) | _pairs(parameter)
        report.check_parameters(chapter, given)
        with report.claimed(folder):
            if page:
                report.require_place(folder / chapter)
            for outcome in report.run([chapter], given, folder):
                _say(f"{outcome.path}{'' if outcome.ran else ' (up to date)'}")
                if outcome.replaced:
                    former = ", ".join(f"{name} = {value!r}" for name, value in outcome.replaced.items())
                    _say(f"it replaces a report with {former}; -o FOLDER keeps both", error=True)
                html = report.build_page(outcome.path) if page else None
                if html:
                    _say(html)


@app.command("list")
def list_chapters() -> None:
    """List the chapters and their parameters with types and defaults."""
    with _plain_errors():
        for slug in report.chapters():
            _say(slug)
            for name, declared in report.parameters(slug).items():
                _say(f"    {name + ': ' + declared.type_name:<40} = {declared.default!r}")


@app.command()
def book(
    out_dir: OutDir = "build",
    pdf: Annotated[bool, typer.Option("--pdf", help="Print the book to one PDF instead.")] = False,
) -> None:
    """Execute the chapters that changed and build the book into FOLDER/html; the old one stays until it is whole."""
    with _plain_errors():
        _say(report.build_book(_folder(out_dir), pdf=pdf))


@app.command()
def notebooks(out_dir: OutDir = "build") -> None:
    """Execute the chapters with their defaults and refresh the committed notebooks."""
    with _plain_errors():
        for path in report.write_reference_notebooks(_folder(out_dir)):
            _say(path)


if __name__ == "__main__":
    app()
