"""AIPerf and genai-perf: in JSON an object for each metric with its unit, beside the question that was asked.

Their CSV has two tables with an empty line between them: metrics by request with statistics, then single values. It
does not state the question. Their "inter token latency" is what others call TPOT. genai-perf adds power and utilisation
of each GPU, in CSV as tables with a column for the GPU.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trnmodel.arguments import shown
from trnmodel.evidence.formats.documents import Document
from trnmodel.evidence.formats.runs import (
    Figure,
    Refusal,
    Run,
    amount,
    figures_of,
    meanings,
    number_of,
    run_of,
    stated_in,
    value_at,
)
from trnmodel.evidence.formats.vllm_bench import SERVED, load

TOOL = "aiperf"
HEADER = re.compile(r"^\"?metric\"?,\"?(avg|min|value)\b", re.IGNORECASE)
NAMED = re.compile(r"(?P<name>.*?)\s*(?:\((?P<unit>[^()]*)\))?")
TIMES = {"ns": ("us", 1e-3), "us": ("us", 1.0), "ms": ("ms", 1.0), "s": ("s", 1.0), "sec": ("s", 1.0)}
UNITS: Mapping[str, Mapping[str, tuple[str, float]]] = {  # as they print them, by the unit of the table
    "ms": TIMES,
    "tokens/s": {"tokens/sec": ("tokens/s", 1.0), "tokens/s": ("tokens/s", 1.0)},
    "tokens/s/user": {"tokens/sec/user": ("tokens/s/user", 1.0), "tokens/s/user": ("tokens/s/user", 1.0)},
    "req/s": dict.fromkeys(("requests/sec", "req/sec", "per sec", "requests/s"), ("req/s", 1.0)),
    "W": {"W": ("W", 1.0)},
    "%": {"%": ("%", 1.0)},
}
DEVICES = "telemetry_stats"  # where they have the figures of each GPU
BLANK = ("", "N/A", "n/a")
TOTALS = {"request_count": "requests", "total_isl": "input_tokens", "total_osl": "output_tokens"}
LENGTHS = {"input_sequence_length": "input_len", "output_sequence_length": "output_len"}
LONGEST_LINE = 10_000  # cells of a line of CSV


def recognises(of: Document) -> bool:
    """Return whether a text holds results of these tools."""
    return bool(HEADER.match(of.text.lstrip())) or any(_is_result(one) for one in of.objects)


def _is_result(values: Mapping[str, Any]) -> bool:
    return any(isinstance(values.get(key), Mapping) and "unit" in values[key] for key in meanings(TOOL))


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the results of a text: of each object, or of the tables of a CSV file."""
    if HEADER.match(of.text.lstrip()):
        yield from _tables(of)
        return
    yield from of.broken
    for one in of.objects:
        if _is_result(one):
            yield _run(of.line(one.at), one, lambda key, name, one=one: of.line_of(value_at(one, key), name))
        else:
            yield Refusal(of.line(one.at), TOOL, "no result of AIPerf: none of its metrics has a unit")


def _run(line: int, values: Mapping[str, Any], line_of: Any) -> Run:
    """Return a run of metrics by name, each with its unit and its statistics."""
    totals = {name: _average(values, key) for key, name in TOTALS.items()}
    seconds = values.get("benchmark_duration")
    if isinstance(seconds, Mapping) and seconds.get("unit") in ("sec", "s", "seconds"):
        totals["duration_s"] = _average(values, "benchmark_duration")
    cells = stated_in(TOOL, values) | SERVED
    cells |= {column: x for key, column in LENGTHS.items() if (x := _average(values, key)) >= 1}
    cells |= {"requests": totals["requests"]} if totals["requests"] > 0 else {}
    completed = _average(values, "request_throughput")
    rate, clients = (number_of(cells.pop(name, None)) for name in ("arrival_per_s", "clients"))
    cells |= load(rate, clients, completed)
    figures = [
        one
        for key in meanings(TOOL)
        for one in _figures(key, values.get(key), lambda name, key=key: line_of(key, name))
    ]
    figures += _of_devices(values.get(DEVICES), line_of)
    if values.get("was_cancelled") is True:
        cells["note"] = "the run was cancelled before its end"
    name = str(values.get("start_time", ""))
    if day := re.match(r"20\d\d-\d\d-\d\d", name):
        cells["date_or_sdk"] = day[0]
    return run_of(TOOL, line, cells, figures, name, totals)


def _average(values: Mapping[str, Any], key: str) -> float:
    metric = values.get(key)
    return amount(metric.get("avg")) if isinstance(metric, Mapping) else math.nan


def _figures(key: str, metric: Any, line_of: Any) -> Iterator[Figure | Refusal]:
    """Return the figures of a metric; a rate is a mean alone, and a unit that cannot be its own is refused."""
    if not isinstance(metric, Mapping):
        return
    one, _ = meanings(TOOL)[key]
    known, printed = UNITS[one.unit], str(metric.get("unit", ""))
    if printed not in known:
        reason = f"unit {shown(printed)} of {key}: allowed are {', '.join(known)}"
        yield Refusal(line_of("unit"), one.metric, reason)
        return
    unit, scale = known[printed]
    for name, value in metric.items():
        is_rate = one.unit in ("tokens/s", "req/s")
        if name != "unit" and (not is_rate or name == "avg"):
            yield from figures_of(TOOL, key, {"" if is_rate else name: value}, line_of(name), unit, scale)


def _of_devices(metrics: Any, line_of: Any) -> Iterator[Figure | Refusal]:
    """Return the means of each GPU: its power and its utilisation."""
    for key, metric in metrics.items() if isinstance(metrics, Mapping) else ():
        if key not in meanings(TOOL) or not isinstance(metric, Mapping):
            continue
        for device, statistics in metric.items():
            if not isinstance(statistics, Mapping):
                continue
            mean = {"unit": metric.get("unit"), "avg": statistics.get("avg")}
            for one in _figures(key, mean, lambda _, key=key, device=device: line_of(f"{DEVICES}.{key}", device)):
                cells = {**one.cells, "note": device[:80]} if isinstance(one, Figure) else {}
                yield replace(one, cells=cells, key=f"{key} {device}") if isinstance(one, Figure) else one


def _tables(of: Document) -> Iterator[Run | Refusal]:
    """Return the run of the tables of a CSV file; a metric that is printed twice is refused."""
    metrics, lines, header = dict[str, Any]({DEVICES: {}}), dict[tuple[str, str], int](), list[str]()
    reader = csv.reader(io.StringIO(of.text, newline=""), strict=True)
    try:
        for cells in reader:
            if len(cells) > LONGEST_LINE or not cells:
                continue
            if cells[0].strip().lower() == "metric":
                header = [name.strip().lower() for name in cells]
                continue
            named = NAMED.fullmatch(cells[0].strip())
            if not header or not named:
                continue
            key = re.sub(r"[\s-]+", "_", named["name"].lower())
            pairs = zip(header[1:], cells[1:], strict=False)
            values = {("avg" if name == "value" else name): cell for name, cell in pairs if cell.strip() not in BLANK}
            device, unit = values.pop("gpu", ""), named["unit"] or ""
            place = metrics[DEVICES].setdefault(key, {"unit": unit}) if device else metrics
            if (device or key) in place:
                yield Refusal(reader.line_num, key, "the metric is given more than once")
                continue
            place[device or key] = values if device else {"unit": unit, **values}
            lines[f"{DEVICES}.{key}", device] = lines[key, ""] = reader.line_num
    except csv.Error as error:
        yield Refusal(reader.line_num, TOOL, f"no CSV: {error}")
    yield _run(1, metrics, lambda key, name: lines.get((key, name)) or lines[key, ""])
