"""A run of a tool as it stands in a file: what holds for all its figures, the figures, and what cannot be read.

`data/evidence/tool_figures.csv` says what a tool's name of a figure is here: metric, unit, and the typed columns that
it fills (`trnmodel.evidence.records`). `data/evidence/tool_settings.csv` says in which column a setting stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from trnmodel.arguments import HUGE, TINY, shown
from trnmodel.catalog.load import DATA, read_csv
from trnmodel.evidence.records import fills_of

ANY_TOOL = "*"
PERCENTILE = re.compile(r"p(\d{1,3}(?:\.\d+)?)")
VERSIONED = re.compile(r"([A-Za-z][\w-]*)[ =/]+v?(\d+(?:\.\w+)+)")  # an engine with its release
BLANK = ("", "none", "None", "null")
ODD = "odd setting"  # among the cells of a run: why a setting of it cannot be one
STATISTICS = {
    **dict.fromkeys(("mean", "avg", "average"), "mean"),
    **dict.fromkeys(("median", "p50"), "p50"),
    **dict.fromkeys(("min", "p0"), "min"),
    **dict.fromkeys(("max", "p100"), "max"),
}


class Meaning(msgspec.Struct, frozen=True):
    """What a tool's name of a figure is here, or why the figure has no question, and where the tool says so."""

    tool: str
    key: str
    metric: str
    unit: str
    fills: str
    unasked: str
    locator: str


class Setting(msgspec.Struct, frozen=True):
    """The column that a setting of a run fills."""

    tool: str
    key: str
    column: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number of a run: its cells, the line of the file that it stands on, and the statistic."""

    cells: Mapping[str, Any]
    line: int
    key: str = ""  # what figures of a run share that are statistics of one thing
    statistic: str = ""

    @property
    def name(self) -> str:
        """What the number is of, for a message."""
        return str(self.cells["metric"])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something in a file that is not read: its line, the figure or the run that it is, and why."""

    line: int
    figure: str
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """What a tool measured in one go: the cells that all figures share, the figures, and counts that they follow from.

    `totals` may hold `requests`, `input_tokens`, `output_tokens` and `duration_s`; `name` tells runs of a file apart.
    """

    tool: str
    line: int
    cells: Mapping[str, Any]
    figures: tuple[Figure, ...]
    name: str = ""
    totals: Mapping[str, float] = field(default_factory=dict)
    refused: tuple[Refusal, ...] = ()


class UnreadableFigureError(ValueError):
    """A number of a file that cannot be a measurement, and why."""


@cache
def meanings(tool: str) -> Mapping[str, tuple[Meaning, Mapping[str, str]]]:
    """Return what the figures of a tool mean, by their names in its files, with the typed columns that they fill.

    Examples
    --------
    >>> one, columns = meanings("guidellm")["inter_token_latency_ms"]
    >>> one.metric, one.unit, columns
    ('TPOT', 'ms', {'measure': 'token_interval'})
    """
    rows = read_csv(DATA / "evidence" / "tool_figures.csv", Meaning)
    return {one.key: (one, fills_of(one.fills)) for one in rows if one.tool == tool}


@cache
def settings(tool: str) -> tuple[Setting, ...]:
    """Return the settings of a tool's runs, its own before those that users add to any tool's files.

    Examples
    --------
    >>> [one.column for one in settings("inferencex")][:2]
    ['workload', 'instance']
    """
    rows = read_csv(DATA / "evidence" / "tool_settings.csv", Setting)
    return tuple(one for name in (tool, ANY_TOOL) for one in rows if one.tool == name)


def statistic(name: str) -> str:
    """Return a statistic by its name in a file: "mean", "p50", "min", "max" or a percentile; nothing for any other.

    Examples
    --------
    >>> [statistic(name) for name in ("avg", "median", "p99", "p99.9", "p0", "std_dev")]
    ['mean', 'p50', 'p99', 'p99.9', 'min', '']
    """
    known = STATISTICS.get(name)
    hit = PERCENTILE.fullmatch(name)
    return known or (f"p{float(hit[1]):g}" if hit and float(hit[1]) < 100 else "")


def measured(value: Any) -> float:
    """Return a measured number; raises UnreadableFigureError for what is no finite number above 0.

    Examples
    --------
    >>> measured(8.5), measured("1,234.5")
    (8.5, 1234.5)
    >>> measured(float("nan"))
    Traceback (most recent call last):
    trnmodel.evidence.formats.runs.UnreadableFigureError: nan is no finite number above 0
    """
    number = number_of(value)
    if not TINY <= number <= HUGE:
        raise UnreadableFigureError(f"{shown(value)} is no finite number above 0")
    return number


def number_of(value: Any) -> float:
    """Return a number of a file, or a text that is one, with commas between thousands; NaN for anything else.

    Examples
    --------
    >>> number_of("1,234"), number_of(True), number_of("1,5"), number_of(None)
    (1234.0, nan, nan, nan)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if not isinstance(value, int) or abs(value) <= HUGE else math.inf
    if not isinstance(value, str) or len(value) > 40 or not value.isascii():
        return math.nan
    plain = value.strip()
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", plain):
        plain = plain.replace(",", "")
    try:
        return math.nan if "_" in plain else float(plain)
    except ValueError:
        return math.nan


def amount(value: Any) -> float:
    """Return a number of a file that a count or a length can be; NaN for anything else, infinity too.

    Examples
    --------
    >>> amount("64"), amount(float("inf"))
    (64.0, nan)
    """
    number = number_of(value)
    return number if abs(number) <= HUGE else math.nan


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return what stands at a path of keys with dots between them, as one key or nested; None for nothing.

    Examples
    --------
    >>> value_at({"a": {"b": 1}, "c.d": 2}, "a.b"), value_at({"c.d": 2}, "c.d"), value_at({"a": 1}, "a.b")
    (1, 2, None)
    """
    if path in values:
        return values[path]
    here: Any = values
    for key in path.split("."):
        here = here.get(key) if isinstance(here, Mapping) else None
    return here


def stated_in(tool: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that the settings of a run fill: texts and numbers, and the item of a list of equal ones.

    Examples
    --------
    >>> stated_in("vllm-bench", {"model_id": "meta-llama/Llama-3.1-8B", "tp": "8", "label": None})
    {'workload': 'meta-llama/Llama-3.1-8B', 'tp': '8'}
    """
    columns: dict[str, Any] = {}
    for one in settings(tool):
        value = value_at(values, one.key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if isinstance(value, list | dict):
            columns[ODD] = f"{one.key}: {shown(value)} is no text and no number"
        elif isinstance(value, str | int | float) and not isinstance(value, bool) and value not in BLANK:
            columns.setdefault(one.column, value)
    for name in ("engine", "release"):
        if hit := VERSIONED.fullmatch(str(columns.get(name, ""))):
            columns |= {"engine": hit[1], "release": hit[2]}
    return columns


def figures_of(
    tool: str, key: str, values: Mapping[str, Any], line: int, unit: str = "", scale: float = 1.0
) -> Iterator[Figure | Refusal]:
    """Return the figures of one name of a tool, by statistic; a number that none can be is refused.

    Parameters
    ----------
    tool, key : str
        The tool, and its name of the figure, which `data/evidence/tool_figures.csv` has. [-]
    values : mapping of str to object
        Numbers by their statistic's name in the file; an empty name is a number without one. None is no number. [-]
    line : int
        Line of the file. [-]
    unit : str
        Unit that the file prints, where it is another than the table's. [-]
    scale : float
        What the numbers of the file are multiplied by, such as the GPUs that they are shared out over. [-]

    Examples
    --------
    >>> [figure.cells["value"] for figure in figures_of("vllm-bench", "ttft", {"mean": 51.0, "std": 3.0}, 1)]
    [51.0]
    """
    one, columns = meanings(tool)[key]
    for name, value in values.items():
        of = statistic(name)
        if value is None or (name and not of):
            continue
        metric = f"{one.metric} {of}".strip()
        try:
            number = measured(value) * scale
        except UnreadableFigureError as reason:
            yield Refusal(line, metric, f"value: {reason}")
            continue
        cells = {"metric": metric, "value": number, "unit": unit or one.unit, **columns}
        cells |= {"statistic": of, "unasked": one.unasked}
        yield Figure({name: cell for name, cell in cells.items() if cell != ""}, line, key, of)


def run_of(
    tool: str,
    line: int,
    cells: Mapping[str, Any],
    figures: Iterable[Figure | Refusal],
    name: str = "",
    totals: Mapping[str, float] | None = None,
) -> Run:
    """Return a run of what was read of it, figures and refusals.

    Examples
    --------
    >>> run = run_of("vllm-bench", 1, {}, figures_of("vllm-bench", "ttft", {"mean": 51.0, "p99": None}, 1))
    >>> len(run.figures), run.refused
    (1, ())
    """
    read = list(figures)
    measured_, refused = ([one for one in read if isinstance(one, kind)] for kind in (Figure, Refusal))
    return Run(tool, line, cells, tuple(measured_), name, totals or {}, tuple(refused))  # type: ignore[arg-type]
