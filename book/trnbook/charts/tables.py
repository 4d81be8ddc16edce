"""Columns in printed units, and tables of them as HTML with a CSV to download."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trnbook.charts.language import called, named
from trnmodel.arguments import flag, instance, refuse, text
from trnmodel.models.transformer import model_ids
from trnmodel.quantities import quantity
from trnmodel.result import BASES
from trnmodel.units import BILLION, MILLION, TRILLION, format_quantity, format_within, title_of

if TYPE_CHECKING:
    import pandas as pd

_MANY = ((TRILLION, "trillion"), (BILLION, "billion"), (MILLION, "million"))
_LINK = re.compile(r"https://[^\s<>\"'`]+")
_EXACT = 10 * TRILLION  # beyond it too many floats are whole by chance
LONGEST_CAPTION, MOST_SHOWN, MOST_NAMED = 2000, 12, 4
LONGEST_NAME = 24  # that is not broken at its hyphens
MOST_ROWS, MOST_FOLDED = 12, 120  # rows of a table on a page, and with those behind its fold; the CSV has all
LEAST_FOLDED = 3  # rows that a fold hides: fewer are shown
MOST_FOUND = 600  # rows of a table in which a reader finds rows by words
MARKS = {"estimate": "our estimate", "announced": "announced, not supported today"}
AS_TYPED = {"id", "code name", "command", "parameter", "name"}  # columns whose cells a reader types
_WIDE, _BOX = "overflow-x: auto", "max-height: 36em; overflow: auto"
_ERRORS, _SHARES, _SIZES = (
    {"error", "difference", "bias"},
    {"share", "mfu", "mbu", "padding", "tolerance"},
    {"median", "mean", "p90", "target", "coverage"},
)


def rounded(value: float) -> float:
    """Return a float at 6 significant digits, a whole one as it is: last bits, which differ by CPU, do not show.

    Examples
    --------
    >>> rounded(59.52279764077258), rounded(1048576.0), rounded(271999999999.99994), rounded(24127620136.023643)
    (59.5228, 1048576.0, 272000000000.0, 24127600000.0)
    """
    if abs(value) < _EXACT and abs(value - round(value)) <= 4 * math.ulp(value):
        return float(round(value))
    return float(f"{value:.6g}")


def rounded_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with every float in it as `rounded` gives it."""
    return frame.apply(lambda column: column.map(_rounded_cell) if column.dtype.kind in "fO" else column)


def _rounded_cell(value: object) -> object:
    return rounded(float(value)) if isinstance(value, float | np.floating) else value


def plain_text(text: str) -> str:
    r"""Text without what a terminal would obey: control signs become spaces, lines stay.

    Examples
    --------
    >>> plain_text("a \x1b[31mname\nand a line")
    'a  [31mname\nand a line'
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in text)


def file_stem(name: str) -> str:
    """Return a name as a file may have it: letters, digits, `.`, `_` and `-`, at most 80.

    Examples
    --------
    >>> file_stem('../<img src=x onerror="1">.csv'), file_stem("needs by place"), file_stem("...")
    ('img-src-x-onerror-1-.csv', 'needs-by-place', 'table')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80].strip(".-") or "table"


def on_ground(frame: pd.DataFrame, caption: str) -> str:
    """Return a caption that ends with what its data rest on where a column `basis` says that it is not measured.

    Software beside which the ideal stands in one table (a column `software`) is told from it there.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = {"system": ["a", "b"], "stack": ["x", "y"], "basis": ["measured", "extrapolated"]}
    >>> on_ground(pd.DataFrame(columns), "As fast")
    'As fast (extrapolated: y on b)'
    """
    if "basis" not in frame:
        return caption
    loose = frame[frame.basis.isin(BASES[1:-1] if "software" in frame else BASES[1:])]
    who = next((name for name in frame if str(name).endswith("system")), "policy")
    notes = []
    for word, rows in loose.groupby("basis", sort=False):
        names = [rows[name].unique().tolist() for name in ("stack", "prefill_stack", who) if name in rows]
        rest = " on ".join(f"{len(some)} {who}s" if len(some) > MOST_NAMED else ", ".join(some) for some in names)
        notes.append(f"{word}: {rest}" if rest else str(word))
    return f"{caption} ({'; '.join(notes)})" if notes else caption


def is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers; a column of yes and no does not."""
    return column.dtype.kind in "iuf"


def titled(column: str) -> str:
    """Title of a column without its unit; a column for each chip, system or model goes by its name.

    Examples
    --------
    >>> titled("ridge_flop_per_byte_low"), titled("weights_per_s"), titled("what"), titled("trn3-nl32x2-torus")
    ('Ridge point low', 'Weights streamed', 'Case', 'Trainium3 NL32x2 3D Torus')
    >>> titled("deepseek-v3")
    'deepseek-v3'
    """
    if called(column) != column or column in model_ids():
        return str(called(column))
    stem = column.removesuffix("_low").removesuffix("_high")
    if stem in ("what", "which"):
        return "Case"
    title = quantity(stem).title
    return f"{title}{column[len(stem) :].replace('_', ' ')}" if title else title_of(column)


def axis_title(name: str, unit: str = "") -> str:
    """Title and unit of a quantity as an axis shows them; `unit` has a prefix where the axis has one.

    Examples
    --------
    >>> axis_title("tokens_per_s_per_user"), axis_title("attainable_flop_per_s", "TFLOP/s")
    ('Speed for a user [tokens/s]', 'Attainable rate [TFLOP/s]')
    """
    return f"{quantity(name).title} [{unit or quantity(name).base_unit}]"


def scale(frame: pd.DataFrame, column: str) -> tuple[float, str]:
    """Return the factor and the title under which a column prints.

    The prefix is chosen for the median; the ends of a range follow its middle.
    """
    title, unit = titled(column), quantity(column).base_unit
    stem = column.removesuffix("_low").removesuffix("_high")
    middle = frame[stem if stem in frame else column]
    if not is_number(middle):
        return 1.0, title
    values = np.abs(middle.to_numpy(dtype=float))
    values = values[np.isfinite(values) & (values > 0)]
    typical = rounded(float(np.median(values))) if values.size else 1.0
    number, _, unit = format_quantity(typical, unit, digits=17).partition(" ")
    many, name = next(((many, name) for many, name in _MANY if float(number) >= many), (1.0, ""))
    unit = f"{name} {unit}".strip()
    return float(number) / typical / many, f"{title} [{unit}]" if unit else title


def printed(frame: pd.DataFrame, *columns: str | None) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the named columns with ranges and marks, in printed units and by human names; and their titles."""
    named = [column for column in dict.fromkeys(columns) if column]
    ends = [column + end for column in named for end in ("_low", "_high")]
    shown = [name for name in dict.fromkeys([*named, *ends, *MARKS, "basis"]) if name in frame]
    scales = {name: scale(frame, name) for name in shown}
    numbers = {name: frame[name] * scales[name][0] for name in shown if is_number(frame[name])}
    texts = {name: frame[name].map(called) for name in shown if frame[name].dtype.kind == "O" and name not in AS_TYPED}
    return frame[shown].assign(**numbers, **texts), {name: scales[name][1] for name in named}


def check(
    frame: Any,
    caption: Any,
    *,
    under: Any = "",
    name: str = "frame",
    needed: Collection[str] = (),
    optional: Mapping[str, Any] | None = None,
    **columns: Any,
) -> str:
    """Return the caption with the basis of the data, once frame, caption and columns are what they should be."""
    import pandas as pd

    instance(name, frame, pd.DataFrame, "a DataFrame")
    text("caption", caption, LONGEST_CAPTION), text("under", under, LONGEST_CAPTION)
    known = [column for column in frame if isinstance(column, str)]
    if missing := sorted(set(needed) - set(known)):
        refuse(name, missing, "these columns are missing")
    used = columns | {argument: column for argument, column in (optional or {}).items() if column is not None}
    for argument, column in used.items():
        if not isinstance(column, str) or column not in known:
            refuse(argument, column, f"allowed are the columns of {name}: {', '.join(known[:MOST_SHOWN])}")
    return named(on_ground(frame, caption))


@dataclass(frozen=True, slots=True)
class Table:
    """A table for display: HTML with a CSV download, and plain text. Made by `table`."""

    frame: pd.DataFrame
    caption: str
    download: str
    file_only: bool = False
    find: bool = False

    def _repr_html_(self) -> str:
        frame = self.frame.drop(columns=[name for name in MARKS if name in self.frame and not self.frame[name].any()])
        shown, titles = printed(frame, *frame.columns)
        shown, right = _banded(rounded_frame(shown)), {name for name in frame if is_number(shown[name])}
        names = list(shown)
        if {"title", "url"} <= set(names):  # a source is its title
            shown["title"] = [_Named(*pair) for pair in zip(shown["title"], shown["url"], strict=True)]
            names.remove("url")
        numeric = [name in right for name in names]
        head = "".join(_cell("th", titles[name], right) for name, right in zip(names, numeric, strict=True))
        rows = [
            "<tr>" + "".join(_cell("td", *cell) for cell in zip(row, numeric, map(_sign, names), strict=True)) + "</tr>"
            for row in shown[names].head(MOST_FOUND if self.find else MOST_FOLDED).itertuples(index=False, name=None)
        ]
        csv = rounded_frame(self.frame).to_csv(index=False, lineterminator="\n")
        source = f"data:text/csv;base64,{base64.b64encode(csv.encode()).decode()}"
        stem = file_stem(self.download)
        link = f'<a class="trn-csv" download="{stem}.csv" href="{source}">{stem}.csv</a>'
        if self.file_only:
            return f'<div class="trn-table">{escape(self.caption)}: {link}</div>'
        if self.find:
            whole = _grid(head, rows, _BOX, f"<caption>{escape(self.caption)}</caption>")
            return f'<div class="trn-table trn-find">{whole}\n{link}</div>'
        first = _grid(head, rows[: self._n_shown], _WIDE, f"<caption>{escape(self.caption)}</caption>")
        return f'<div class="trn-table">{first}\n{self._rest(head, rows)}{link}</div>'

    def _rest(self, head: str, rows: list[str]) -> str:
        """Return what the first rows leave: behind a fold, or, of a long table, in the CSV alone."""
        n, shown = len(self.frame), self._n_shown
        if n == shown:
            return ""
        if n > MOST_FOLDED:
            return f"<small>The first {shown} of {n:,} rows; all of them:</small> "
        return f"<details><summary>{n - shown} more rows</summary>{_grid(head, rows[shown:], _BOX)}</details>\n"

    @property
    def _n_shown(self) -> int:
        """Rows before the fold, which hides at least three."""
        n = len(self.frame)
        return n if n < MOST_ROWS + LEAST_FOLDED else MOST_ROWS

    def __repr__(self) -> str:
        more = len(self.frame) - MOST_ROWS
        end = f"\n... and {more:,} more row{'s' * (more > 1)}" if more > 0 else ""
        return plain_text(f"{self.caption}\n{rounded_frame(self.frame.head(MOST_ROWS)).to_string(index=False)}{end}")


def table(frame: pd.DataFrame, *, caption: str, download: str, file_only: bool = False, find: bool = False) -> Table:
    """Return a table with units in its headings and a link to its CSV in base units, the same text on every run.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row a case.
    caption : str
        What the table shows.
    download : str
        File name of the CSV, without its ending.
    file_only : bool
        Show the caption and the link alone. [-]
    find : bool
        Show up to 600 rows, of which a page shows those with the words that a reader types. [-]

    Examples
    --------
    >>> import pandas as pd
    >>> html = table(pd.DataFrame({"hbm_bytes_per_s": [2.9e12]}), caption="Memory", download="m")._repr_html_()
    >>> "HBM bandwidth [TB/s]" in html, ">2.9<" in html, 'download="m.csv"' in html
    (True, True, True)
    """
    name, only, finds = text("download", download), flag("file_only", file_only), flag("find", find)
    return Table(frame, check(frame, caption), name, only, finds)


def _grid(head: str, rows: list[str], box: str, caption: str = "") -> str:
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>"
    return f'<div style="{box}"><table class="dataframe">{caption}\n{body}</table></div>'


class _Named(NamedTuple):
    """A name that is a link, where its address is one."""

    name: object
    url: object


def _banded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with each figure and its band in one cell, in as many digits as the band leaves.

    >>> import pandas as pd
    >>> _banded(pd.DataFrame({"t_s": [1285.0, 3.0], "t_s_low": [707.0, 3.0], "t_s_high": [1952.0, 3.0]})).t_s.tolist()
    ['1,300 (710 to 2,000)', '3']
    """
    for name in list(frame):
        ends = [f"{name}_low", f"{name}_high"]
        if set(ends) <= set(frame) and is_number(frame[name]):
            rows = zip(*(frame[column].astype(float) for column in (name, *ends)), strict=True)
            cells = [format_within(*row) if row[0] == row[0] and row[1] != row[2] else _text(row[0]) for row in rows]
            frame = frame.assign(**{name: cells}).drop(columns=ends)
    return frame


def _sign(column: object) -> str | None:
    """How the numbers of a column of shares or errors print as percentages: a signed error with "+"; else None.

    >>> _sign("read_bytes_error"), _sign("median_error"), _sign("share_of_peak"), _sign("time_s")
    ('+', '', '', None)
    """
    parts = set(str(column).split("_"))
    return None if not parts & (_ERRORS | _SHARES) else "" if parts & (_SHARES | _SIZES) else "+"


def percent(share: float, sign: str = "+") -> str:
    """Return a relative error as it prints, with its sign, or a share without; one digit behind the point below 10 %.

    >>> percent(-0.002713), percent(0.5), percent(-1e-9), percent(127.0), percent(0.0654, "")
    ('-0.3%', '+50%', '0.0%', '+12,700%', '6.5%')
    """
    short = f"{100 * share:{sign},.{1 if abs(share) < 0.0995 else 0}f}%"
    return short if short.strip("+-0.%") else "0%" if share == 0 else "0.0%"


def _cell(tag: str, value: object, right: bool, sign: str | None = None) -> str:
    """Return a cell; an address is a link, a share is in percent. Notebooks set cells right unless they are told."""
    if sign is not None and isinstance(value, float) and math.isfinite(value):
        value = percent(value, sign)
    name, url = (_text(part) for part in (value if isinstance(value, _Named) else (value, value)))
    text = f'<a href="{escape(url)}">{escape(name)}</a>' if _LINK.fullmatch(url) else escape(name)
    style = "text-align: left" + "; white-space: nowrap" * (
        tag == "td" and len(name) <= LONGEST_NAME and " " not in name
    )
    return f"<{tag}>{text}</{tag}>" if right else f'<{tag} style="{style}">{text}</{tag}>'


def _text(value: object) -> str:
    """Return a table cell: four significant digits, thousands grouped from 10,000 on.

    >>> _text(667.04), _text(10240.0), _text(2024), _text(float("nan")), _text(True)
    ('667', '10,240', '2024', '–', 'yes')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if not isinstance(value, int | float | np.integer | np.floating):
        return str(value)
    number = float(value)
    short = f"{number:.4g}"
    return f"{number:,.0f}" if "e+" in short and abs(number) < 1000 * TRILLION else short
