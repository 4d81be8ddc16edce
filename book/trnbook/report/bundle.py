"""A report on scenarios: notebooks, one page that needs nothing else, a PDF, tables, a workbook and a summary.

Each scenario is answered in a notebook of its own by papermill, and the answers that the notebooks hold are one frame:
page, CSV, Parquet, workbook, JSON and limits read it and compute nothing. All files are made in a hidden folder and
then put in place, each whole. A notebook whose scenario, library and data are as they were is not executed again, so
that an interrupted report goes on where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import trnmodel
from trnbook.report import answers, book, scenarios
from trnbook.report.answers import Answer
from trnbook.report.execute import execute, inputs, templated
from trnbook.report.folders import claimed, scratch, temporary
from trnbook.report.limits import Checked, Limit, check
from trnmodel.arguments import choice
from trnmodel.cli.errors import InputError, printable
from trnmodel.files.layout import REQUEST, SYSTEMS, TRAINING
from trnmodel.files.scenarios import Scenario, needed

if TYPE_CHECKING:
    import pandas as pd

TEMPLATES = Path(__file__).parent / "templates"
KINDS = {"serving": (REQUEST,), "training": (TRAINING, SYSTEMS)}  # of reports, with what a scenario must state
SUFFIXES = (".yaml", ".yml")
FORMULAS = tuple("=+-@")  # signs by which a spreadsheet takes a text for a formula
ALL, SIDES = "", "-sides"  # endings of the tables: of all systems, and of the sides of the verdict
NARROW = (
    "mapping",
    "status",
    "tokens_per_s",
    "tokens_per_s_per_user",
)  # figures that the table of several scenarios leaves to their sections
NO_PARQUET = 'no Parquet files: they need the extra "parquet": pip install "trnmodel[parquet]"'


class Answered(NamedTuple):
    """A scenario with its answer: its name in the tables, its file, its notebook, and its limits."""

    name: str
    file: str
    notebook: Path
    answer: Answer
    limits: list[Checked]


class Bundle(NamedTuple):
    """A report: the answers, the files that were made, and a line for each kind of file that was not."""

    answered: list[Answered]
    files: list[Path]
    missing: list[str]


def kind_of(text: str) -> str:
    """Return a kind of report; InputError names those that there are."""
    try:
        return choice("KIND", text, tuple(KINDS))
    except ValueError as error:
        raise InputError(str(error)) from None


def files_of(places: Iterable[str]) -> list[str]:
    """Return the scenario files of a command: files as they are, of a folder those that end in .yaml or .yml.

    Raises InputError where a folder has none, or where two would share a notebook.
    """
    files = list[str]()
    for place in places:
        try:
            folder = Path(place).is_dir()
        except ValueError:
            raise InputError(f"{printable(place)} is no path") from None
        inside = sorted(str(path) for path in Path(place).iterdir() if path.suffix in SUFFIXES) if folder else []
        if folder and not inside:
            raise InputError(f"{printable(place)}: no scenario in this folder; a scenario file ends in .yaml or .yml")
        files += inside if folder else [place]
    files = list(dict.fromkeys(files))
    names = [answers.stem(file) for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two scenario files are called {twice}; each report has a notebook of this name")
    return files


def read(file: str, kind: str) -> Scenario:
    """Return the scenario of a file, which states what its kind of report needs; InputError in one line otherwise."""
    try:
        one = scenarios.read(file)
        for name in KINDS[kind]:
            needed(one, name)
    except ValueError as error:
        raise InputError(printable(str(error).removeprefix("source="))) from None
    return one


def make(
    kind: str, files: Sequence[str], folder: str | Path, limits: Sequence[Limit] = (), *, pdf: bool = True
) -> Bundle:
    """Make the report on scenario files in a folder, and return its answers and files.

    Raises InputError where a scenario cannot be used, ChapterError where a notebook fails.
    """
    cases = [read(file, kind) for file in files]
    place, notebooks = Path(folder), Path(folder) / f"{kind}-notebooks"
    with claimed(place), claimed(notebooks):
        _require_places(kind, place)
        shared = inputs()
        jobs = [
            templated(
                *(kind, TEMPLATES / f"{kind}.py", file),
                *([one.model.path] if one.model.path else [], notebooks / f"{answers.stem(file)}.ipynb", shared),
            )
            for file, one in zip(files, cases, strict=True)
        ]
        outcomes = execute(jobs, what="scenarios" if len(jobs) > 1 else "scenario")
        every = list[Answered]()
        for file, outcome in zip(files, outcomes, strict=True):
            answer = answers.read(outcome.path)
            checked = check(limits, printable(file), answer)
            every.append(Answered(answers.stem(file), printable(file), outcome.path, answer, checked))
        with scratch(place) as own:
            missing = _write(kind, every, own, pdf)
            made = [path.replace(place / path.name) for path in sorted(own.glob(f"{kind}*.*"))]
    return Bundle(every, [*made, *(one.notebook for one in every)], missing)


def _require_places(kind: str, folder: Path) -> None:
    """Refuse to put a file in the place of a folder."""
    for ending in (".html", ".pdf", ".json", ".xlsx", *(f"{t}{e}" for t in (ALL, SIDES) for e in (".csv", ".parquet"))):
        if (folder / f"{kind}{ending}").is_dir():
            raise InputError(f"{printable(folder / f'{kind}{ending}')} is in the way: it is a folder")


def _write(kind: str, every: Sequence[Answered], folder: Path, pdf: bool) -> list[str]:
    """Write all files of a report into a folder; return why some are not made."""
    import pandas as pd

    table = frame(every)
    tables = {ALL: table, SIDES: table[table.side != ""].reset_index(drop=True)}
    missing = [] if find_spec("fastparquet") else [NO_PARQUET]
    with pd.ExcelWriter(folder / f"{kind}.xlsx", engine="openpyxl") as workbook:
        for name, rows in tables.items():
            safe = inert(rows)
            safe.to_csv(folder / f"{kind}{name}.csv", index=False, lineterminator="\n")
            safe.to_excel(workbook, sheet_name="side by side" if name else "all systems", index=False)
            if not missing:
                _write_parquet(rows, folder / f"{kind}{name}.parquet")
    (folder / f"{kind}.json").write_text(summary(kind, every), encoding="utf-8")
    text = page(kind, every)
    (folder / f"{kind}.html").write_text(text, encoding="utf-8")
    if pdf:
        missing += _print(kind, text, folder)
    return missing


def _write_parquet(rows: pd.DataFrame, path: Path) -> None:
    """Write rows as Parquet; fastparquet is called by itself, since pandas is about to forget it."""
    import fastparquet

    fastparquet.write(str(path), rows, compression="SNAPPY", write_index=False)


def _print(kind: str, text: str, folder: Path) -> list[str]:
    """Print a page to PDF with its folds open; return why not where no browser is installed."""
    try:
        browser = book.find_browser()
    except InputError as error:
        return [f"no PDF: {error}; --no-pdf leaves it out"]
    source = folder / "print.html"
    source.write_text(text.replace("<details>", "<details open>"), encoding="utf-8")
    with temporary() as home:
        book.print_page(browser, source, folder / f"{kind}.pdf", home)
    return []


def frame(every: Iterable[Answered]) -> pd.DataFrame:
    """Return the rows of all answers below each other, the name of the scenario in front.

    Text that there is not is empty, a number NaN. A scenario that nothing satisfies has a row with the reason.
    """
    import pandas as pd

    rows = list[dict[str, Any]]()
    for one in every:
        none = {"side": "", "system": "", "valid": False, "reason": one.answer.verdict[0]}
        first = {"scenario": one.name, "question": one.answer.question}
        rows += [first | row for row in one.answer.rows or [none]]
    table = pd.DataFrame(rows)
    texts = [name for name in table if any(isinstance(value, str) for value in table[name])]
    numbers = [name for name in table if name not in (*texts, "valid")]
    return table.assign(
        **{name: table[name].where(table[name].notna(), "").astype(object) for name in texts},
        **{name: pd.to_numeric(table[name]).astype(float) for name in numbers},
        valid=table.valid.astype(bool),
    )


def inert(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which no text is a formula to a spreadsheet, and no control sign is left.

    Examples
    --------
    >>> import pandas as pd
    >>> inert(pd.DataFrame({"name": ["=cmd()", " @x", "a"], "x": [-1.0, 0.0, 1.0]})).values.tolist()
    [["'=cmd()", -1.0], ["' @x", 0.0], ['a', 1.0]]
    """
    return table.map(lambda value: _inert(value) if isinstance(value, str) else value)


def _inert(text: str) -> str:
    line = printable(text)
    return f"'{line}" if line.lstrip().startswith(FORMULAS) else line


def summary(kind: str, every: Iterable[Answered]) -> str:
    """Return the report as JSON: the verdict, the rows and the limits of each scenario; what is unknown is null."""
    reports = [
        {
            "scenario": one.name,
            "file": one.file,
            "question": one.answer.question,
            "possible": one.answer.possible,
            "verdict": one.answer.verdict,
            "systems": one.answer.rows,
            "limits": [
                {"limit": x.limit.text, "system": x.system, "value": x.value, "exceeded": x.exceeded, "why": x.why}
                for x in one.limits
            ],
        }
        for one in every
    ]
    whole = {"kind": kind, "trnmodel": trnmodel.__version__, "scenarios": reports}
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def page(kind: str, every: Sequence[Answered]) -> str:
    """Return the page as HTML that holds all that it needs: of several scenarios first a table side by side."""
    parts = list[str]()
    if len(every) > 1:
        parts.append(_together(kind, every))
    for one in every:
        name = f"{one.name}: {one.answer.question}" if len(every) > 1 else one.answer.question
        parts.append(
            f'<section id="{one.name}"><h2>{escape(name)}</h2>\n{_limits(one)}{answers.html(one.answer)}</section>'
        )
    title = f"{kind.capitalize()} report" + (f" on {len(every)} scenarios" if len(every) > 1 else f": {every[0].name}")
    made = f"Made by trnmodel {trnmodel.__version__} from {', '.join(one.file for one in every)}."
    blank = Template((TEMPLATES / "page.html").read_text(encoding="utf-8"))
    return blank.substitute(title=escape(title), body="\n".join(parts), made=escape(made))


def _together(kind: str, every: Sequence[Answered]) -> str:
    """Return the table of all scenarios, a row for each side of each verdict."""
    columns = [one for one in answers.figures(kind) if one.name not in NARROW]
    columns = [one for one in columns if any(one in answers.shown(scenario.answer) for scenario in every)]
    lines = list[list[str]]()
    for scenario in every:
        for row in answers.sides(scenario.answer):
            lines.append(
                [scenario.name, row["side"], row["name"], *(answers.cell(row, one, grounded=False) for one in columns)]
            )
        if not answers.sides(scenario.answer):
            lines.append([scenario.name, answers.NONE, "nothing satisfies it", *[answers.NONE] * len(columns)])
    head = ["Scenario", "Side", "System", *(one.title for one in columns)]
    return answers.grid(head, lines, "The scenarios side by side, each figure with its range")


def _limits(one: Answered) -> str:
    """Return the limits that a scenario exceeds, or that cannot be checked, as HTML."""
    lines = [x.line() for x in one.limits if x.exceeded is not False]
    return "".join(f'<p class="limit">{escape(line)}</p>\n' for line in lines)
