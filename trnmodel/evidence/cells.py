"""Cells of a measured row as text: numbers and lengths as tables print them, the measured value, and an id."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import HUGE, TINY, shown
from trnmodel.units import KIB, parse_number

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "source date_or_sdk instance n_chips n_cores_used lnc workload phase batch input_len output_len seq_len tp pp dp "
    "precision metric value unit note kind tier"
).split()
LONGEST_CELL = 2000  # characters
MOST = 2**40  # tokens, sequences or ranks of a row
DECIMAL_COMMA = re.compile(r"\bcommas? (?:is|are) (?:the )?decimal|\bdecimal commas?\b", re.IGNORECASE)


class UnreadableRowError(ValueError):
    """A row that cannot become a prediction, and why."""


def too_long(name: str, cell: str) -> str:
    """Return why a cell is not read that is longer than any of a table; nothing for others.

    Examples
    --------
    >>> too_long("note", "x" * 2001), too_long("note", "TP 8")
    ('note: a cell of 2001 characters; allowed are 2000', '')
    """
    return f"{name}: a cell of {len(cell)} characters; allowed are {LONGEST_CELL}" if len(cell) > LONGEST_CELL else ""


def number(text: Any) -> float:
    """Return a number as the tables print it: "~200", "1500±150", "4k (~4096)", "17-19" (its midpoint); NaN for none.

    Commas part thousands; what is no such number, runs backwards or is beyond 1e30 is NaN too.

    Examples
    --------
    >>> number("1500±150"), number("4k (~4096)"), number("100-1024 (random)"), number("~900"), number("")
    (1500.0, 4096.0, 562.0, 900.0, nan)
    >>> number("1,024"), number("1,5"), number("1-1e999")
    (1024.0, nan, nan)
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text) if abs(text) <= HUGE else math.nan
    return _printed(text.strip()) if isinstance(text, str) else math.nan


@lru_cache(maxsize=2**12)
def _printed(printed: str) -> float:
    value = _bounded(re.sub(r"±.*|\(.*", "", printed, flags=re.DOTALL))
    inner = re.search(r"\(~?(\d+)\)", printed)
    return _bounded(inner[1]) if inner and math.isnan(value) else value


def tokens(cell: str) -> float:
    """Return a length as the tables print it: a number, a bucket, or thousands of 1,024 ("4k"); NaN for none.

    Examples
    --------
    >>> tokens("16K"), tokens("8K (264 pages of 32)"), tokens("bucket 128"), tokens("4k (~4000)")
    (16384.0, 8192.0, 128.0, 4000.0)
    """
    plain = cell.strip().removeprefix("bucket ")
    thousands = re.fullmatch(r"~?(\d{1,6})k(?:\s*\((?!~?\d+\)).*)?", plain, re.IGNORECASE | re.DOTALL)
    return float(thousands[1]) * KIB if thousands else number(plain)


def _bounded(printed: str) -> float:
    """Return the middle of a printed number or range; NaN where either end is none, or none that a row can have."""
    value, low, high = parse_number(printed)
    odd_commas = re.search(r",(?!\d{3}(?!\d))", printed)
    return value if -HUGE <= low <= high <= HUGE and not odd_commas else math.nan


def text(cell: Any) -> str:
    """Return a cell as patterns read it: whole numbers without a point, nothing for a blank, "<list>" for a list.

    Examples
    --------
    >>> text(64.0), text(None), text(float("nan")), text([64]), text(" BF16")
    ('64', '', '', '<list>', 'BF16')
    """
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, bool | np.bool_ | datetime.date | decimal.Decimal | np.datetime64):
        return str(cell)
    if isinstance(cell, int | float | np.integer | np.floating):
        value = int(cell) if isinstance(cell, int | np.integer) else float(cell)
        return "" if value != value else f"{value:.15g}" if abs(value) <= HUGE else "beyond 1e30"
    return "" if cell is None or type(cell).__name__ in ("NAType", "NaTType") else f"<{type(cell).__name__}>"


def row_id(row: Mapping[str, str]) -> str:
    """Return an id that follows from what a row is: from all its cells but the value.

    Examples
    --------
    >>> row_id(dict.fromkeys(COLUMNS, "")) == row_id(dict.fromkeys(COLUMNS, "") | {"value": "7"})
    True
    """
    return hashlib.sha1("\x1f".join(row[name] for name in COLUMNS if name != "value").encode()).hexdigest()[:10]


def texts(table: pd.DataFrame) -> list[dict[str, str]]:
    """Return the rows of a table as texts by column, each with its id; a missing column of the format is blank.

    Examples
    --------
    >>> import pandas as pd
    >>> row = texts(pd.DataFrame([{"batch": 4.0, "unit": " ms"}]))[0]
    >>> row["batch"], row["unit"], row["note"], len(row["id"])
    ('4', 'ms', '', 10)
    """
    others = (name for name in table.columns if isinstance(name, str) and name not in ("id", *COLUMNS))
    names = ("id", *COLUMNS, *others)
    blank = [""] * len(table)
    cells = [[*map(text, table[name].tolist())] if name in table.columns else blank for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
    for row in rows:
        row["id"] = row["id"] or row_id(row)
    return rows


def measure(row: Mapping[str, str]) -> float:
    """Return the measured value of a row, in the row's unit; raises UnreadableRowError for none.

    Commas part thousands unless the note says that they are decimal.

    Examples
    --------
    >>> measure({"value": "1,024"}), measure({"value": "7,85", "note": "the comma is the decimal sign"})
    (1024.0, 7.85)
    """
    cell = row["value"]
    if "," in cell and DECIMAL_COMMA.search(row.get("note", "")):
        cell = cell.replace(".", "").replace(",", ".")
    measured = number(cell)
    if not measured >= TINY:
        raise UnreadableRowError(f"value {shown(row['value'])} is no positive number")
    return measured
