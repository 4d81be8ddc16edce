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

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
OutDir = Annotated[Path, typer.Option("-o", "--out-dir", help="Folder for what is made.")]


@contextmanager
def _plain_errors() -> Iterator[None]:
    """One line and status 2 for input that cannot be used, 1 for a failing chapter, 130 for an interrupt."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except report.ChapterError as error:
        status, text = 1, str(error)
    except (report.InputError, OSError) as error:
        status, text = 2, " ".join(str(error).split())
    except KeyboardInterrupt:
        status, text = 130, "interrupted; the same command goes on from here"
    else:
        return
    finally:
        signal.signal(signal.SIGTERM, former)
    typer.echo(text, err=True)
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
    out_dir: OutDir = Path("reports"),
    page: Annotated[bool, typer.Option(help="Make an HTML page of it too.")] = True,
) -> None:
    """Execute a chapter with your parameters into a report of your own."""
    with _plain_errors():
        given = (report.read_parameters(file) if file else {}) | _pairs(parameter)
        for outcome in report.run([chapter], given, out_dir):
            typer.echo(f"{outcome.path}{'' if outcome.ran else ' (up to date)'}")
            html = report.build_page(outcome.path) if page else None
            if html:
                typer.echo(html)


@app.command("list")
def list_chapters() -> None:
    """List the chapters and their parameters with types and defaults."""
    with _plain_errors():
        for slug in report.chapters():
            typer.echo(slug)
            for name, declared in report.parameters(slug).items():
                typer.echo(f"    {name + ': ' + declared.type_name:<40} = {declared.default!r}")


@app.command()
def book(
    out_dir: OutDir = Path("build"),
    pdf: Annotated[bool, typer.Option("--pdf", help="Print the book to one PDF instead.")] = False,
) -> None:
    """Execute the chapters that changed and build the book into OUT_DIR/html."""
    with _plain_errors():
        typer.echo(report.build_book(out_dir, pdf=pdf))


@app.command()
def notebooks(out_dir: OutDir = Path("build")) -> None:
    """Execute the chapters with their defaults and refresh the committed notebooks."""
    with _plain_errors():
        for path in report.write_reference_notebooks(out_dir):
            typer.echo(path)


if __name__ == "__main__":
    app()
