"""LLMPerf: a summary of a run as one flat JSON object, in seconds.

The first token is among the gaps of its "inter-token latency", so that this is the time of a whole request over its
tokens and no TPOT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trnmodel.arguments import shown
from trnmodel.evidence.formats.documents import Document, Located
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
)
from trnmodel.evidence.formats.vllm_bench import SERVED, load

TOOL = "llmperf"
VERSION = "2023-08-31"  # of a summary
ONE_REQUEST = {"ttft_s", "end_to_end_latency_s", "error_code"}  # of the file of single requests beside a summary
LENGTHS = {"number_input_tokens": "input_len", "number_output_tokens": "output_len"}
RATES = ("mean_output_throughput_token_per_s", "num_completed_requests_per_min")
STATISTIC = re.compile(r"_(?:quantiles_)?(mean|min|max|p\d+)")


def recognises(of: Document) -> bool:
    """Return whether a text holds a summary of this tool."""
    return any(_is_summary(one) or one.keys() >= ONE_REQUEST for one in of.objects)


def _is_summary(values: Mapping[str, Any]) -> bool:
    return any(
        key.startswith("results_") and key.removeprefix("results_").startswith(tuple(meanings(TOOL))) for key in values
    )


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the summaries of a text."""
    yield from of.broken
    if any(one.keys() >= ONE_REQUEST for one in of.objects):
        yield Refusal(1, TOOL, "single requests and no statistics; the file ..._summary.json beside it is read")
        return
    for one in of.objects:
        if not _is_summary(one):
            yield Refusal(of.line(one.at), TOOL, "no summary of LLMPerf: it has no key results_...")
        elif one.get("version", VERSION) != VERSION:
            yield Refusal(of.line(one.at), TOOL, f"version {shown(one['version'])} is unknown; read is {VERSION}")
        else:
            yield _run(of, one)


def _run(of: Document, values: Located) -> Run:
    cells = stated_in(TOOL, values) | SERVED
    cells |= load(float("inf"), number_of(cells.pop("clients", None)), 0.0)
    if cells["scheduling"] == "burst":
        del cells["scheduling"]  # it always runs a number of clients, which the file does not state
    for key, column in LENGTHS.items():
        setting = f"mean_{column.partition('_')[0]}_tokens"
        length = amount(values.get(f"results_{key}_mean", values.get(setting)))
        cells |= {column: length} if length >= 1 else {}
    figures = [
        one
        for key, value in values.items()
        for one in _figures(key.removeprefix("results_"), value, of.line_of(values, key))
    ]
    totals = {"requests": amount(values.get("results_num_completed_requests"))}
    return run_of(TOOL, of.line(values.at), cells, figures, str(values.get("timestamp", "")), totals)


def _figures(name: str, value: Any, line: int) -> Iterator[Figure | Refusal]:
    for key in meanings(TOOL):
        hit = STATISTIC.fullmatch(name.removeprefix(key)) if name.startswith(key) else None
        if key in RATES and name == key:
            yield from figures_of(TOOL, key, {"": value}, line)
        elif key not in RATES and hit:
            yield from figures_of(TOOL, key, {hit[1]: value}, line)
