"""The answer of a report for one scenario: sentences and one table, from which page, files and limits are made.

A report's notebook ends its search with an `Answer`. Shown in the notebook it is the verdict and its tables; stored in
the executed notebook it is the data that the command reads back, so that there is one frame behind every number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.cli.errors import InputError, printable
from trnmodel.units import format_within

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
MIME = "application/vnd.trnmodel.answer+json"
TRAINIUM, RENTED, GPU = "best Trainium", "best Trainium for rent", "best GPU"  # sides of a verdict
ENDS = ("_low", "_high")
NONE = "–"
COUNT = "count"  # unit of a figure of whole things
MOST_ROWS = 24  # systems that a page shows; the files have all


class Figure(NamedTuple):
    """A figure of a report: its column, what a page calls it, and its unit there."""

    name: str
    title: str
    unit: str = ""


class Answer(msgspec.Struct, frozen=True):
    """The answer for one scenario: the verdict, one row for each system, and the answer of the library in its words.

    A row has a figure with its ends under the figure's name, and as `NAME_why` the reason where there is none. `side`
    says which part of the verdict a row is. `possible` is False where nothing satisfies the scenario.
    """

    kind: str
    question: str
    verdict: list[str]
    rows: list[dict[str, Any]]
    card: list[str]
    possible: bool = True

    def frame(self) -> pd.DataFrame:
        """Return the table: a row for each system; a number that there is not is NaN."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def side(self, *names: str) -> dict[str, Any]:
        """Return the row of the first of these sides that the verdict has; an empty one where it has none."""
        by_side = {row["side"]: row for row in self.rows if row["side"]}
        return next((by_side[name] for name in names if name in by_side), {})

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Return the data of the answer, and how a notebook shows it."""
        text = "\n".join(map(printable, self.verdict))
        return {MIME: msgspec.to_builtins(self), "text/html": html(self), "text/plain": text}


def possible(ask: Callable[[], T]) -> tuple[T | None, str]:
    """Return what a call answers, or None and the reason where its question is valid and nothing satisfies it.

    Raises UnanswerableError where the question is refused.
    """
    try:
        return ask(), ""
    except ImpossibleError as error:
        return None, " ".join(str(error).split())
    except ValueError as error:
        raise UnanswerableError(" ".join(str(error).split())) from None


def row(**cells: Any) -> dict[str, Any]:
    """Return a row of plain values: numbers as floats, None for what is unknown or endless.

    Examples
    --------
    >>> import numpy as np
    >>> row(ttft_s=np.float64(2), usd=float("nan"), valid=np.True_, system="a")
    {'ttft_s': 2.0, 'usd': None, 'valid': True, 'system': 'a'}
    """
    return {name: _plain(value) for name, value in cells.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str | None):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    number = float(value)
    return number if math.isfinite(number) else None


def read(notebook: Path) -> Answer:
    """Return the answer that an executed notebook holds.

    Raises InputError where it holds none.
    """
    import nbformat

    for cell in reversed(nbformat.read(notebook, 4).cells):
        for output in cell.get("outputs", ()):
            if MIME in output.get("data", {}):
                return msgspec.convert(output["data"][MIME], Answer)
    raise InputError(f"{printable(notebook)}: this notebook holds no answer of a report")


def cell(row: Mapping[str, Any], figure: Figure, grounded: bool = True) -> str:
    """Return a figure of a row with its band and, where it is to be `grounded`, its basis; or why there is none.

    Examples
    --------
    >>> ttft = Figure("ttft_s", "First token", "s")
    >>> cell({"ttft_s": 2.0, "ttft_s_low": 1.0, "ttft_s_high": 5.0, "ttft_s_basis": "extrapolated"}, ttft)
    '2 s (1 to 5; extrapolated)'
    >>> cell({"ttft_s": None, "ttft_s_why": "no price"}, ttft), cell({}, ttft)
    ('no price', '–')
    >>> cell({"chips": 205.0, "chips_low": 170.0, "chips_high": 2700.0}, Figure("chips", "Chips", COUNT))
    '205 (170 to 2,700)'
    >>> cell({"chance": 0.953}, Figure("chance", "Chance", "%"))
    '95.3 %'
    """
    value, *ends = (row.get(f"{figure.name}{end}") for end in ("", *ENDS))
    if value is None or value != value:
        return str(row.get(f"{figure.name}_why") or NONE)
    if isinstance(value, str):
        return value or NONE
    scale = 100.0 if figure.unit == "%" else 1.0
    low, high = (float(value) if end is None or end != end else float(end) for end in ends)
    basis = str(row.get(f"{figure.name}_basis") or "") if grounded else ""
    if figure.unit == COUNT:
        return f"{value:,.0f}" + (f" ({low:,.0f} to {high:,.0f})" if low != high else "")
    return format_within(scale * float(value), scale * low, scale * high, figure.unit, basis)


def grid(head: Iterable[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """Return a table as HTML, whose first column heads its rows.

    Examples
    --------
    >>> "&lt;b&gt;" in grid(["", "a"], [["<b>", "1"]], "A table")
    True
    """
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "\n".join(
        "<tr>" + "".join(_headed(place, text) for place, text in enumerate(texts)) + "</tr>" for texts in rows
    )
    table = (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
    )
    return f'<div class="wide">{table}</div>'


def _headed(place: int, text: str) -> str:
    return f"<td>{escape(text)}</td>" if place else f'<th scope="row">{escape(text)}</th>'


def sides(answer: Answer) -> list[dict[str, Any]]:
    """Return the rows of the verdict's sides, in the order of the verdict."""
    by_side = {row["side"]: row for row in answer.rows if row["side"]}
    return [by_side[name] for name in (TRAINIUM, RENTED, GPU) if name in by_side]


def shown(answer: Answer) -> list[Figure]:
    """Return the figures of the report that the answer has a value of, or a reason why there is none."""
    return [
        figure
        for figure in figures(answer.kind)
        if any(row.get(figure.name) is not None or row.get(f"{figure.name}_why") for row in answer.rows)
    ]


def figures(kind: str) -> tuple[Figure, ...]:
    """Return the figures of a kind of report."""
    from importlib import import_module

    every: tuple[Figure, ...] = import_module(f"trnbook.report.{kind}").FIGURES
    return every


def html(answer: Answer) -> str:
    """Return the verdict, its sides beside each other, all systems, and the answer in words, as HTML."""
    first, *more = answer.verdict
    parts = [f'<p class="verdict">{escape(first)}</p>', *(f"<p>{escape(text)}</p>" for text in more)]
    some = sides(answer)
    if some:
        lines = [[one.title, *(cell(row, one) for row in some)] for one in shown(answer)]
        head = ["", *(f"{row['side']}: {row['name']}" for row in some)]
        parts.append(grid(head, lines, "Side by side, each figure with its range and what it rests on"))
    if len(answer.rows) > len(some):
        parts.append(_every(answer))
    words = "\n".join(map(escape, answer.card))
    parts.append(f"<details><summary>The whole answer in words</summary><pre>{words}</pre></details>" * bool(words))
    return "\n".join(parts)


def _every(answer: Answer) -> str:
    """Return the table of all systems, the best first."""
    columns = shown(answer)
    lines = [
        [row["name"], *(cell(row, one, grounded=False) for one in columns), row["reason"] or NONE]
        for row in answer.rows
    ]
    more = len(lines) - MOST_ROWS
    caption = f"The first {MOST_ROWS} of {len(lines)} systems; the files have all" if more > 0 else "All systems"
    table = grid(["System", *(one.title for one in columns), "Why not"], lines[:MOST_ROWS], caption)
    return f"<details><summary>{caption}</summary>{table}</details>"


def stem(path: str | Path) -> str:
    """Return the name of a scenario's notebook: that of its file in letters, digits, `_` and `-`.

    Examples
    --------
    >>> stem("runs/<b>big.error.yaml"), stem("...")
    ('b-big-error', 'scenario')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", Path(path).stem)[:80].strip("-") or "scenario"
