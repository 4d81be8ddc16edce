"""optimum-benchmark: a configuration and a report of phases, as JSON, flat JSON, or CSV with dotted columns.

A cell that holds a list is text here and is never run. A static batch starts and ends together: its prefill is a time
to the first token, and the decode throughput counts the tokens behind it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trnmodel.evidence.formats.documents import Document, csv_header
from trnmodel.evidence.formats.runs import (
    Figure,
    Refusal,
    Run,
    figures_of,
    meanings,
    number_of,
    run_of,
    stated_in,
    value_at,
)

TOOL = "optimum-benchmark"
PREFIXES = ("report.", "")
LANGUAGE, ENCODER, TRAINING = "inference-LLM", "inference-encoder", "training"
PHASES = {"decode.throughput": "decode", "per_token.latency": "decode", "prefill.latency": "prefill"}
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
MAX_COLUMNS = 5_000
BY_STEP, BY_RUN = "train.throughput", "generate.throughput"  # rates that the tool may fill with something else
BY_TOKEN = "a run that tracks single tokens fills it with tokens over the whole run, and its unit says samples"


def recognises(of: Document) -> bool:
    """Return whether a text holds reports of this tool."""
    if of.is_json:
        return any(_prefix(one) is not None for one in of.objects)
    return _prefix(dict.fromkeys(csv_header(of.text), "")) is not None


def _prefix(values: Mapping[str, Any]) -> str | None:
    """Return what stands in front of the phases of a report; None where there is no report."""
    for prefix in PREFIXES:
        for key in meanings(TOOL):
            if value_at(values, f"{prefix}{key}.unit") is not None or f"{prefix}{key}.mean" in values:
                return prefix
            if prefix and f"{prefix}{key}.value" in values:
                return prefix
    return None


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the reports of a text: of each object, or of each line of a CSV file."""
    if not of.is_json:
        yield from _lines(of)
        return
    yield from of.broken
    for one in of.objects:
        if _prefix(one) is None:
            yield Refusal(of.line(one.at), TOOL, "no report of optimum-benchmark: it has no phase with a unit")
        else:
            yield _run(one, lambda path, one=one: _line_of(of, one, path), of.line(one.at))


def _line_of(of: Document, values: Any, path: str) -> int:
    """Return the line of a key behind a path of keys."""
    *before, last = path.split(".")
    here = value_at(values, ".".join(before))
    return of.line_of(here if isinstance(here, Mapping) else values, last if isinstance(here, Mapping) else path)


def _lines(of: Document) -> Iterator[Run | Refusal]:
    reader = csv.reader(io.StringIO(of.text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if len(header) > MAX_COLUMNS:
            yield Refusal(1, TOOL, f"{len(header)} columns: allowed are at most {MAX_COLUMNS}")
            return
        for cells in reader:
            if len(cells) > len(header):
                yield Refusal(reader.line_num, TOOL, f"{len(cells)} cells for {len(header)} columns")
            elif any(cells):
                row = {name: cell for name, cell in zip(header, cells, strict=False) if cell.strip()}
                line = reader.line_num
                yield _run(row, lambda path, line=line: line, line)
    except csv.Error as error:
        yield Refusal(reader.line_num, TOOL, f"no CSV: {error}")


def _run(values: Mapping[str, Any], line_of: Any, line: int) -> Run:
    prefix = _prefix(values) or ""
    cells = stated_in(TOOL, values) | {"scheduling": "static", "needs": "workload instance tp|n_cores_used"}
    cells["kind"] = _kind(values, prefix)
    if cells["kind"] == TRAINING:
        cells.pop("batch", None)
    figures = [
        figure
        for key, (one, _) in meanings(TOOL).items()
        for figure in _figures(values, f"{prefix}{key}", key, one.unit, line_of)
    ]
    return run_of(TOOL, line, cells, figures, str(value_at(values, "config.name") or ""))


def _kind(values: Mapping[str, Any], prefix: str) -> str:
    """Return the kind of rows that a report has, by its phases."""
    has = {
        phase: any(value_at(values, f"{prefix}{phase}.latency.{name}") is not None for name in ("unit", "mean"))
        for phase in ("decode", "prefill", "train")
    }
    return TRAINING if has["train"] else LANGUAGE if has["decode"] or has["prefill"] else ENCODER


def _figures(values: Mapping[str, Any], path: str, key: str, unit: str, line_of: Any) -> Iterator[Figure | Refusal]:
    """Return the figures of a phase; a unit that the table does not have is refused."""
    printed = str(value_at(values, f"{path}.unit") or "")
    statistics = (
        {"": value_at(values, f"{path}.value")}
        if key.endswith("throughput")
        else {name: value_at(values, f"{path}.{name}") for name in STATISTICS}
    )
    known = {name: value for name, value in statistics.items() if value is not None}
    if not known:
        return
    by_token = value_at(values, f"{path.removesuffix(key)}per_token.latency.mean") is not None
    if key == BY_STEP or (key == BY_RUN and by_token):
        reason = BY_TOKEN if by_token else meanings(TOOL)[BY_STEP][0].unasked
        yield Refusal(line_of(f"{path}.value"), key, reason)
        return
    same = {"samples/s": "sequences/s"}.get(printed, printed)
    if same and same != unit:
        yield Refusal(line_of(f"{path}.unit"), key, f"unit {printed[:40]!r}: allowed is {unit}")
        return
    for name, value in known.items():
        if number_of(value) == 0 and key.endswith("throughput"):
            continue
        for one in figures_of(TOOL, key, {name: value}, line_of(f"{path}.{name or 'value'}")):
            if isinstance(one, Figure) and key in PHASES:
                one = replace(one, cells={**one.cells, "phase": PHASES[key]})
            yield one
