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

from trnmodel.arguments import flag, instance, refuse, text
from trnmodel.charts.language import WORDS, called, named
from trnmodel.result import BASES
from trnmodel.units import BILLION, MILLION, TRILLION, format_quantity, format_within

if TYPE_CHECKING:
    import pandas as pd

_UNITS = {"flop": "FLOP", "bytes": "B", "byte": "B", "s": "s", "h": "h", "j": "J", "w": "W", "usd": "USD", "hz": "Hz"}
_UNITS["mtoken"] = "Mtoken"
_SUFFIX = re.compile(rf"^(?:(.*?)_)??((?:[a-z]+(?:_per_[a-z]+)+)|{'|'.join(_UNITS)})$")
_MANY = ((TRILLION, "trillion"), (BILLION, "billion"), (MILLION, "million"))
_END = re.compile(
    r"^(.*?)((?:_per_(?:core|chip|user|rank|dir|instance|system|ultraserver))*)(_predicted|_low|_high|)$", re.DOTALL
)
_LINK = re.compile(r"https://[^\s<>\"'`]+")
_EXACT = 10 * TRILLION  # beyond it too many floats are whole by chance
LONGEST_CAPTION, MOST_SHOWN, MOST_NAMED = 2000, 12, 4
LONGEST_NAME = 24  # that is not broken at its hyphens
MOST_ROWS, MOST_FOLDED = 12, 120  # rows of a table on a page, and with those behind its fold; the CSV has all
MARKS = {"estimate": "our estimate", "announced": "announced, not supported today"}
AS_TYPED = {"id", "code name", "command", "parameter", "name"}  # columns whose cells a reader types
_WIDE, _BOX = "overflow-x: auto", "max-height: 36em; overflow: auto"
_UPPER = set("cp dma dp e2e ep flop gpu gpus hbm itl kv lnc mbu mfu pp sbuf sdk tp tpot ttft".split())
_ERRORS, _SHARES, _SIZES = (
    {"error", "difference", "bias"},
    {"share", "mfu", "mbu", "padding", "tolerance"},
    {"median", "mean", "p90", "target", "coverage"},
)


def rounded(value: float) -> float:
    """A float at 6 significant digits, a whole one as it is, so that last bits, which differ by CPU, do not show.

    Examples
    --------
    >>> rounded(59.52279764077258), rounded(1048576.0), rounded(271999999999.99994), rounded(24127620136.023643)
    (59.5228, 1048576.0, 272000000000.0, 24127600000.0)
    """
    if abs(value) < _EXACT and abs(value - round(value)) <= 4 * math.ulp(value):
        return float(round(value))
    return float(f"{value:.6g}")


def rounded_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with every float in it as `rounded` gives it."""
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
    """A name as a file may have it: letters, digits, `.`, `_` and `-`, at most 80.

    Examples
    --------
    >>> file_stem('../<img src=x onerror="1">.csv'), file_stem("needs by place"), file_stem("...")
    ('img-src-x-onerror-1-.csv', 'needs-by-place', 'table')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80].strip(".-") or "table"


def on_ground(frame: pd.DataFrame, caption: str) -> str:
    """A caption that ends with what its data rest on where a column `basis` says that it is not measured.

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
    found = []
    for word, rows in loose.groupby("basis", sort=False):
        names = [rows[name].unique().tolist() for name in ("stack", "prefill_stack", who) if name in rows]
        words = " on ".join(f"{len(some)} {who}s" if len(some) > MOST_NAMED else ", ".join(some) for some in names)
        found.append(f"{word}: {words}" if words else str(word))
    return f"{caption} ({'; '.join(found)})" if found else caption


def is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers; a column of yes and no does not."""
    return column.dtype.kind in "iuf"


def _split(column: str) -> tuple[str, str]:
    """Words and base unit of a column's name.

    >>> _split("hbm_bytes_per_s"), _split("ridge_flop_per_byte_low"), _split("link_bytes_per_s_per_dir")
    (('HBM', 'B/s'), ('Ridge low', 'FLOP/B'), ('Link per dir', 'B/s'))
    >>> _split("weights_per_s"), _split("lnc")
    (('Weights', 'weights/s'), ('LNC', ''))
    """
    ends = _END.match(column)
    assert ends is not None  # it matches every text
    stem, scope, end = ends.groups()
    match = _SUFFIX.match(stem)
    name, suffix = (match[1] or match[2].partition("_per_")[0], match[2]) if match else (stem, "")
    unit = "/".join(_UNITS.get(part, part) for part in suffix.split("_per_"))
    words = " ".join(word.upper() if word in _UPPER else word for word in (name + scope + end).split("_"))
    return words[:1].upper() + words[1:], unit


def scale(frame: pd.DataFrame, column: str) -> tuple[float, str]:
    """Factor and title under which a column prints, its prefix chosen for the median; a range follows its middle."""
    words, unit = _split(column)
    stem = column.removesuffix("_low").removesuffix("_high")
    words = "Case" if stem in ("what", "which") else words
    words = f"{WORDS[stem]}{column[len(stem) :].replace('_', ' ')}" if WORDS.get(stem) else words
    words = str(called(column)) if called(column) != column else words  # a column for each system
    middle = frame[stem if stem in frame else column]
    if not is_number(middle):
        return 1.0, words
    values = np.abs(middle.to_numpy(dtype=float))
    values = values[np.isfinite(values) & (values > 0)]
    typical = rounded(float(np.median(values))) if values.size else 1.0
    number, _, unit = format_quantity(typical, unit, digits=17).partition(" ")
    many, name = next(((many, name) for many, name in _MANY if float(number) >= many), (1.0, ""))
    unit = f"{name} {unit}".strip()
    return float(number) / typical / many, f"{words} [{unit}]" if unit else words


def printed(frame: pd.DataFrame, *columns: str | None) -> tuple[pd.DataFrame, dict[str, str]]:
    """The named columns, with ranges and marks, in printed units and by human names; and the titles of the named."""
    named = [column for column in dict.fromkeys(columns) if column]
    ends = [column + end for column in named for end in ("_low", "_high")]
    kept = [name for name in dict.fromkeys([*named, *ends, *MARKS, "basis"]) if name in frame]
    scales = {name: scale(frame, name) for name in kept}
    numbers = {name: frame[name] * scales[name][0] for name in kept if is_number(frame[name])}
    words = {name: frame[name].map(called) for name in kept if frame[name].dtype.kind == "O" and name not in AS_TYPED}
    return frame[kept].assign(**numbers, **words), {name: scales[name][1] for name in named}


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
    """The caption with the basis of the data, once frame, caption and columns are what they should be."""
    import pandas as pd

    instance(name, frame, pd.DataFrame, "a DataFrame")
    text("caption", caption, LONGEST_CAPTION), text("under", under, LONGEST_CAPTION)
    known = [column for column in frame if isinstance(column, str)]
    if missing := sorted(set(needed) - set(known)):
        refuse(name, missing, "these columns are missing")
    given = columns | {argument: column for argument, column in (optional or {}).items() if column is not None}
    for argument, column in given.items():
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

    def _repr_html_(self) -> str:
        told = self.frame.drop(columns=[name for name in MARKS if name in self.frame and not self.frame[name].any()])
        shown, titles = printed(told, *told.columns)
        shown, right = _banded(rounded_frame(shown)), {name for name in told if is_number(shown[name])}
        names = list(shown)
        if {"title", "url"} <= set(names):  # a source is its title
            shown["title"] = [_Named(*pair) for pair in zip(shown["title"], shown["url"], strict=True)]
            names.remove("url")
        numeric = [name in right for name in names]
        head = "".join(_cell("th", titles[name], right) for name, right in zip(names, numeric, strict=True))
        rows = [
            "<tr>" + "".join(_cell("td", *cell) for cell in zip(row, numeric, map(_sign, names), strict=True)) + "</tr>"
            for row in shown[names].head(MOST_FOLDED).itertuples(index=False, name=None)
        ]
        csv = rounded_frame(self.frame).to_csv(index=False, lineterminator="\n")
        source = f"data:text/csv;base64,{base64.b64encode(csv.encode()).decode()}"
        stem = file_stem(self.download)
        link = f'<a class="trn-csv" download="{stem}.csv" href="{source}">{stem}.csv</a>'
        if self.file_only:
            return f'<div class="trn-table">{escape(self.caption)}: {link}</div>'
        first = _grid(head, rows[:MOST_ROWS], _WIDE, f"<caption>{escape(self.caption)}</caption>")
        return f'<div class="trn-table">{first}\n{self._rest(head, rows)}{link}</div>'

    def _rest(self, head: str, rows: list[str]) -> str:
        """What the first rows leave: behind a fold, or, of a long table, in the CSV alone."""
        n, more = len(self.frame), len(self.frame) - MOST_ROWS
        if more <= 0:
            return ""
        if n > MOST_FOLDED:
            return f"<small>The first {MOST_ROWS} of {n:,} rows; all of them:</small> "
        folded = _grid(head, rows[MOST_ROWS:], _BOX)
        return f"<details><summary>{more} more row{'s' * (more > 1)}</summary>{folded}</details>\n"

    def __repr__(self) -> str:
        more = len(self.frame) - MOST_ROWS
        end = f"\n... and {more:,} more row{'s' * (more > 1)}" if more > 0 else ""
        return plain_text(f"{self.caption}\n{rounded_frame(self.frame.head(MOST_ROWS)).to_string(index=False)}{end}")


def table(frame: pd.DataFrame, *, caption: str, download: str, file_only: bool = False) -> Table:
    """A table with units in its headings and a link to its CSV in base units, the same text on every run.

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

    Examples
    --------
    >>> import pandas as pd
    >>> html = table(pd.DataFrame({"hbm_bytes_per_s": [2.9e12]}), caption="Memory", download="m")._repr_html_()
    >>> "HBM bandwidth [TB/s]" in html, ">2.9<" in html, 'download="m.csv"' in html
    (True, True, True)
    """
    return Table(frame, check(frame, caption), text("download", download), flag("file_only", file_only))


def _grid(head: str, rows: list[str], box: str, caption: str = "") -> str:
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>"
    return f'<div style="{box}"><table class="dataframe">{caption}\n{body}</table></div>'


class _Named(NamedTuple):
    """A name that is a link, where its address is one."""

    name: object
    url: object


def _banded(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with each figure and its band in one cell, in as many digits as the band leaves; their columns go.

    >>> import pandas as pd
    >>> _banded(pd.DataFrame({"t_s": [1285.0, 3.0], "t_s_low": [707.0, 3.0], "t_s_high": [1952.0, 3.0]})).t_s.tolist()
    ['1,300 (710 to 2,000)', '3']
    """
    for name in list(frame):
        ends = [f"{name}_low", f"{name}_high"]
        if set(ends) <= set(frame) and is_number(frame[name]):
            rows = zip(*(frame[column].astype(float) for column in (name, *ends)), strict=True)
            told = [format_within(*row) if row[0] == row[0] and row[1] != row[2] else _text(row[0]) for row in rows]
            frame = frame.assign(**{name: told}).drop(columns=ends)
    return frame


def _sign(column: object) -> str | None:
    """How the numbers of a column of shares or errors print as percentages: a signed error with "+"; else None.

    >>> _sign("read_bytes_error"), _sign("median_error"), _sign("share_of_peak"), _sign("time_s")
    ('+', '', '', None)
    """
    words = set(str(column).split("_"))
    return None if not words & (_ERRORS | _SHARES) else "" if words & (_SHARES | _SIZES) else "+"


def percent(share: float, sign: str = "+") -> str:
    """A relative error as it prints, with its sign, or a share without; one digit behind the point below 10 %.

    >>> percent(-0.002713), percent(0.5), percent(-1e-9), percent(127.0), percent(0.0654, "")
    ('-0.3%', '+50%', '0.0%', '+12,700%', '6.5%')
    """
    short = f"{100 * share:{sign},.{1 if abs(share) < 0.0995 else 0}f}%"
    return short if short.strip("+-0.%") else "0%" if share == 0 else "0.0%"


def _cell(tag: str, value: object, right: bool, sign: str | None = None) -> str:
    """A cell; an address is a link, a share is in percent. Notebooks set cells right unless they are told."""
    if sign is not None and isinstance(value, float) and math.isfinite(value):
        value = percent(value, sign)
    name, url = (_text(part) for part in (value if isinstance(value, _Named) else (value, value)))
    text = f'<a href="{escape(url)}">{escape(name)}</a>' if _LINK.fullmatch(url) else escape(name)
    style = "text-align: left" + "; white-space: nowrap" * (
        tag == "td" and len(name) <= LONGEST_NAME and " " not in name
    )
    return f"<{tag}>{text}</{tag}>" if right else f'<{tag} style="{style}">{text}</{tag}>'


def _text(value: object) -> str:
    """A table cell: four significant digits, thousands grouped from 10,000 on.

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
