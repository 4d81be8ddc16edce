"""Tables of this project's own columns: CSV, with commas, semicolons or tabs, and YAML.

A YAML file is a list of rows, or an object with the rows under `rows` and columns that all rows share beside them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import shown
from trnmodel.catalog import plain_yaml
from trnmodel.evidence.cells import COLUMNS, text, too_long
from trnmodel.evidence.columns import runs as training_table
from trnmodel.evidence.columns import watts as watts_table
from trnmodel.evidence.formats.documents import MAX_YAML_BYTES, Document, csv_header
from trnmodel.evidence.formats.runs import Figure, Refusal, Run, run_of, statistic
from trnmodel.evidence.rows import MAX_COLUMNS, MAX_ROWS, NEEDED, column_name, products, separator

if TYPE_CHECKING:
    import pandas as pd

TOOL, YAML = "own", (".yaml", ".yml")
LINE = "line of the file"  # a column beside those of a row, which no file has
OF_FIGURE = ("metric", "value", "unit", "statistic", "id", "phase", LINE)  # what differs between figures of one run
STATISTIC = re.compile(r"[\s_]*\b(p\d{1,2}(?:\.\d+)?|mean|median|avg|average|min|max)\b[\s_]*", re.IGNORECASE)
KNOWN_TABLES = (
    {"instance", "time_us", "m", "n", "k"},
    {"system", "model", "global_batch", "metric"},
    {"chip", "power_w"},
)


def recognises(of: Document) -> bool:
    """Return whether a text is a table of these columns."""
    if of.suffix in YAML:
        return not re.search(r"^benchmarks\s*:", of.text, re.MULTILINE)
    names = {column_name(name) for name in csv_header(of.text, separator(of.text))}
    return {*NEEDED} <= names or any(table <= names for table in KNOWN_TABLES) or len(names & {*NEEDED}) > 2


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the rows of a table, those of one run together."""
    import pandas as pd

    rows, refused = _of_yaml(of) if of.suffix in YAML else _of_csv(of)
    yield from refused
    if not rows:
        return
    table = watts_table(training_table(products(pd.DataFrame(rows))))
    if missing := [name for name in NEEDED if name not in table.columns]:
        yield Refusal(1, "columns", f"{', '.join(missing)} are missing; the format has {', '.join(COLUMNS)}")
        return
    yield from _runs(table)


def _of_csv(of: Document) -> tuple[list[dict[str, Any]], list[Refusal]]:
    """Return the rows of a CSV text with their lines; what is no row is refused."""
    reader = csv.reader(io.StringIO(of.text, newline=""), strict=True, delimiter=separator(of.text))
    rows, refused, header = list[dict[str, Any]](), list[Refusal](), list[str]()
    try:
        header = [column_name(name) for name in next(reader, [])]
        if odd := [name for name in dict.fromkeys(header) if header.count(name) > 1 and name]:
            return [], [Refusal(1, "columns", f"{shown(odd)} are given more than once")]
        if len(header) > MAX_COLUMNS:
            return [], [Refusal(1, "columns", f"{len(header)} columns; allowed are at most {MAX_COLUMNS}")]
        for cells in reader:
            if len(cells) > len(header):
                refused.append(Refusal(reader.line_num, "row", f"{len(cells)} cells for {len(header)} columns"))
            elif any(map(str.strip, cells)):
                rows.append({**dict(zip(header, cells, strict=False)), LINE: reader.line_num})
            if len(rows) > MAX_ROWS:
                raise ValueError(f"paths={of.path.name}: more than {MAX_ROWS} rows; allowed are at most {MAX_ROWS}")
    except csv.Error as error:
        refused.append(Refusal(reader.line_num, "CSV", f"not a readable CSV file from here on: {error}"))
    return rows, refused


def _of_yaml(of: Document) -> tuple[list[dict[str, Any]], list[Refusal]]:
    """Return the rows of a YAML text with their lines."""
    if len(of.text) > MAX_YAML_BYTES:
        return [], [Refusal(1, "YAML", f"{len(of.text)} characters; allowed are at most {MAX_YAML_BYTES}, in CSV more")]
    try:
        value, places = plain_yaml.read(of.text), plain_yaml.lines_of_items(of.text)
    except plain_yaml.YamlError as error:
        line = re.search(r"at line (\d+)", str(error))
        return [], [Refusal(int(line[1]) if line else 1, "YAML", str(error))]
    listed = value.get("rows") if isinstance(value, Mapping) else value
    if not isinstance(listed, list):
        return [], [Refusal(1, "YAML", "allowed is a list of rows, or an object with a list under the key rows")]
    shared = {key: one for key, one in value.items() if key != "rows"} if isinstance(value, Mapping) else {}
    rows, refused = list[dict[str, Any]](), list[Refusal]()
    for place, one in zip(places, listed, strict=True):
        if not isinstance(one, Mapping):
            refused.append(Refusal(place, "row", f"{shown(one)} is no row: allowed are columns with values"))
            continue
        cells = {str(key): cell for key, cell in {**shared, **one}.items()}
        if odd := next((key for key, cell in cells.items() if isinstance(cell, list | dict)), ""):
            refused.append(Refusal(place, odd[:80], "it holds several values; allowed is one"))
            continue
        rows.append({column_name(key): cell for key, cell in cells.items()} | {LINE: place})
    return rows, refused


def _runs(table: pd.DataFrame) -> Iterator[Run | Refusal]:
    """Return rows that differ in their figure alone as one run."""
    several: dict[tuple[str, ...], list[tuple[int, dict[str, Any]]]] = {}
    for row in table.to_dict("records"):
        cells = {str(name): cell for name, cell in row.items() if text(cell) and name != LINE}
        line = int(row[LINE])
        if long := next((why for name, cell in cells.items() if (why := too_long(name, text(cell)))), ""):
            yield Refusal(line, str(cells.get("metric", ""))[:80], long)
            continue
        key = tuple(f"{name}={text(cell)}" for name, cell in cells.items() if name not in OF_FIGURE)
        several.setdefault(key, []).append((line, cells))
    for rows in several.values():
        line, first = rows[0]
        shared = {name: cell for name, cell in first.items() if name not in OF_FIGURE}
        yield run_of(TOOL, line, shared, (_figure(at, cells) for at, cells in rows))


def _figure(line: int, cells: Mapping[str, Any]) -> Figure:
    own = {name: cell for name, cell in cells.items() if name in OF_FIGURE}
    metric = text(cells.get("metric", ""))
    named = STATISTIC.search(metric)
    of = statistic(text(cells.get("statistic", "")).lower() or (named[1].lower() if named else ""))
    plain = STATISTIC.sub(" ", metric).strip().lower()
    return Figure(own, line, f"{plain} {text(cells.get('unit', ''))} {text(cells.get('phase', ''))}", of)
