"""The book's commands: run a chapter, report on scenarios, list the chapters, build the book, refresh the notebooks."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from trnbook import report
from trnmodel.cli.shell import plain_errors, say
from trnmodel.cli.terminal import Status

OutDir = Annotated[str, typer.Option("-o", "--out-dir", metavar="FOLDER", help="Folder for what is made.")]


def _folder(text: str) -> Path:
    if not text.strip():
        raise report.InputError("-o: an empty name is no folder; the one you are in is .")
    return Path(text)


def _pairs(assignments: list[str]) -> dict[str, str]:
    """`name=value` texts as a dict."""
    for text in assignments:
        if "=" not in text:
            raise report.InputError(f"-p {text}: expected name=value")
    return {name.strip(): value for name, _, value in (text.partition("=") for text in assignments)}


def _complete(incomplete: str) -> list[str]:
    """Complete the name of a chapter."""
    return [slug for slug in report.notebooks() if slug.startswith(incomplete)]


def run(
    chapter: Annotated[
        str,
        typer.Argument(
            metavar="CHAPTER",
            help="A chapter as `trnmodel list` prints it.",
            autocompletion=_complete,
        ),
    ],
    parameter: Annotated[list[str], typer.Option("-p", "--parameter", metavar="NAME=VALUE")] = [],  # noqa: B006
    file: Annotated[Path | None, typer.Option("-f", "--file", help="YAML mapping of parameters; -p wins.")] = None,
    scenario: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="Scenario whose model, systems, request and prices the parameters take; -f and -p win. Several times "
            "for several reports, each in a folder named after its file.",
        ),
    ] = [],  # noqa: B006
    stack: Annotated[
        str | None,
        typer.Option(metavar="FILE.yaml", help="Stack file of trnmodel calibrate, as -p stack=FILE.yaml."),
    ] = None,
    out_dir: OutDir = "reports",
    page: Annotated[bool, typer.Option(help="Make an HTML page of it too.")] = True,
) -> None:
    """Execute a chapter with your parameters into a report of your own.

    The report is FOLDER/CHAPTER.ipynb, with a page in FOLDER/CHAPTER/. It is made again only when something that it
    is made from has changed. One with other parameters in its place is replaced, which is said; name another folder to
    keep both. One run at a time may write into a folder.
    """
    with plain_errors():
        folder = _folder(out_dir)
        typed = (report.read_parameters(file) if file else {}) | _pairs(parameter)
        typed |= {} if stack is None else {"stack": stack}
        by_folder = {place: values | typed for place, values in _stated(chapter, scenario, folder, typed).items()}
        for values in by_folder.values():
            checked = report.check_parameters(chapter, values)
            if len(by_folder) > 1:
                report.check_answers(chapter, checked)
        for place, values in by_folder.items():
            _report(chapter, values, place, page)


def _stated(chapter: str, files: list[str], folder: Path, typed: Collection[str]) -> dict[Path, dict[str, object]]:
    """Return what scenarios state of the parameters of a chapter, by the folder of each report; say what it takes.

    `typed` are parameters that the command line gives.
    """
    if not files:
        return {folder: {}}
    from trnbook.report import scenarios  # which loads the library

    stated: dict[Path, dict[str, object]] = {}
    for path, place in scenarios.folders(files, folder).items():
        taken = scenarios.parameters_of(scenarios.read(path), chapter)
        unused = f"; the chapter does not use {', '.join(taken.unused)}" if taken.unused else ""
        own = {name: value for name, value in taken.parameters.items() if name not in typed}
        say(f"{path}: the chapter takes {', '.join(own) or 'nothing'}{unused}", error=True)
        stated[place] = own
    return stated


def _report(chapter: str, parameters: dict[str, object], folder: Path, page: bool) -> None:
    """Execute a chapter into a folder, and say where the report lies."""
    with report.claimed(folder):
        if page:
            report.require_place(folder / chapter)
        for outcome in report.run([chapter], parameters, folder):
            say(f"{outcome.path}{'' if outcome.ran else ' (up to date)'}")
            if outcome.replaced:
                former = ", ".join(f"{name} = {value!r}" for name, value in outcome.replaced.items())
                say(f"it replaces a report with {former}; -o FOLDER keeps both", error=True)
            html = report.build_page(outcome.path) if page else None
            if html:
                say(html)


def report_scenarios(
    kind: Annotated[str, typer.Argument(metavar="serving|training", help="What is asked of the scenarios.")],
    scenario: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENARIO.yaml",
            help="Scenario files, or folders of them; several stand side by side. Schema: trnmodel schema scenario.",
        ),
    ],
    out_dir: OutDir = "reports",
    fail_if: Annotated[
        list[str],
        typer.Option(
            metavar="'NAME OP NUMBER'",
            help="Limit that ends the command with status 4 where it holds, such as 'usd_per_mtoken > 1.2'; several "
            "times for several limits. A name is a figure of the best Trainium system for rent, else of the best "
            "Trainium system; with best_ or gpu_ before it of the best Trainium system or GPU; with _low or _high "
            "after it an end of its range. Shares are from 0 to 1. A wrong name is answered with all that there are.",
        ),
    ] = [],  # noqa: B006
    pdf: Annotated[bool, typer.Option(help="Print the page to a PDF too.")] = True,
) -> None:
    """Report on scenarios: who is best, side by side, as a page, PDF, tables, workbook, JSON and notebooks.

    FOLDER has serving.html, which needs no other file, serving.pdf, serving.xlsx and serving.json, all systems in
    serving.csv, the sides of the verdict in serving-sides.csv, both as .parquet too, and the executed notebook of each
    scenario in serving-notebooks; or the same of training.
    """
    with plain_errors():
        folder = _folder(out_dir)
        from trnbook.report import bundle, limits  # which load the library

        chosen = bundle.kind_of(kind)
        typed = [limits.parse(text, chosen) for text in fail_if]
        made = bundle.make(chosen, bundle.files_of(scenario), folder, typed, pdf=pdf)
        for one in made.answered:
            say(f"{one.file}: {one.answer.verdict[0]}")
        for path in made.files:
            say(path)
        for line in [
            *made.missing,
            *(x.line() for one in made.answered for x in one.limits if x.exceeded is not False),
        ]:
            say(line, error=True)
        exceeded = {x.exceeded for one in made.answered for x in one.limits}
        possible = all(one.answer.possible for one in made.answered)
    if True in exceeded:
        raise typer.Exit(Status.LIMIT)
    if None in exceeded or not possible:
        raise typer.Exit(Status.IMPOSSIBLE)


def list_chapters() -> None:
    """List the chapters and their parameters with types and defaults."""
    with plain_errors():
        for slug in report.notebooks():
            say(slug)
            for name, declared in report.parameters(slug).items():
                say(f"    {name + ': ' + declared.type_name:<40} = {declared.default!r}")


def book(
    out_dir: OutDir = "build",
    pdf: Annotated[bool, typer.Option("--pdf", help="Print the book to one PDF instead.")] = False,
) -> None:
    """Execute the chapters that changed and build the book into FOLDER/html; the old one stays until it is whole."""
    with plain_errors():
        say(report.build_book(_folder(out_dir), pdf=pdf))


def notebooks(out_dir: OutDir = "build") -> None:
    """Execute the chapters with their defaults and refresh the committed notebooks."""
    with plain_errors():
        for path in report.write_reference_notebooks(_folder(out_dir)):
            say(path)
