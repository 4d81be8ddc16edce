"""`vllm bench serve`: one JSON object for each run, in a file of its own or appended line by line, or its terminal.

Its times are in milliseconds. A request rate of "inf" sends all requests at once, unless a limit on concurrency holds
them back. Degrees, machine and release are not among its keys; users add them by `--metadata`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

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
)

TOOL = "vllm-bench"
SERVED = {
    "kind": "inference-LLM-serving",
    "served": "yes",
    "server": "yes",
    "needs": "workload instance tp|n_cores_used",
}  # of every such tool
TIMED = re.compile(r"(mean|median|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el)_ms")
TOTALS = {
    "completed": "requests",
    "num_prompts": "sent",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
    "duration": "duration_s",
}
BLOCK = re.compile(r"^=+ Serving Benchmark Result =+\s*$", re.MULTILINE)  # what a terminal shows of a run
RULE = re.compile(r"={20,}")
PRINTED = re.compile(r"(?P<name>[A-Z][^:]{0,60}):\s+(?P<value>[\w.+-]+)")
PRINTED_TIME = re.compile(r"(Mean|Median|P\d+(?:\.\d+)?) (TTFT|TPOT|ITL|E2EL) \(ms\)")
PRINTED_KEYS = {
    "Successful requests": "completed",
    "Maximum request concurrency": "max_concurrency",
    "Request rate configured (RPS)": "request_rate",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Request throughput (req/s)": "request_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Total token throughput (tok/s)": "total_token_throughput",
    "Total Token throughput (tok/s)": "total_token_throughput",
    "Peak concurrent requests": "max_concurrent_requests",
    "Drafts": "spec_decode_num_drafts",
}
DRAFTS = ("spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_acceptance_rate")
BOUND = 0.9  # of the requests that arrive: a run that completed fewer of them was held back by its concurrency
RAMPED = "the rate of arrivals changes over the run"


def recognises(of: Document) -> bool:
    """Return whether a text holds runs of this tool."""
    return any(_is_run(one) for one in of.objects) or (not of.is_json and bool(BLOCK.search(of.text)))


def _is_run(values: Mapping[str, Any]) -> bool:
    return ({"completed", "duration"} <= values.keys() and any(map(TIMED.fullmatch, values))) or {
        "model_id",
        "request_throughput",
        "total_input_tokens",
    } <= values.keys()


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the runs of a text; an object that is none is refused."""
    if not of.is_json:
        yield from _printed_runs(of)
        return
    yield from of.broken
    for one in of.objects:
        if _is_run(one):
            yield _run(one, of.line(one.at), partial(of.line_of, one))
        else:
            yield Refusal(of.line(one.at), TOOL, "no run of vllm bench serve: it has no counts and no latencies")


def _printed_runs(of: Document) -> Iterator[Run]:
    """Return the runs whose results a terminal shows: a block for each, under a heading of its own."""
    starts = [hit.start() for hit in BLOCK.finditer(of.text)]
    for start, end in pairwise([*starts, len(of.text)]):
        values, lines, first = dict[str, Any](), dict[str, int](), of.line(start)
        for number, text in enumerate(of.text[start:end].split("\n"), start=first):
            if RULE.fullmatch(text.strip()):
                break
            if (hit := PRINTED.fullmatch(text.strip())) and (key := _key(hit["name"])):
                values.setdefault(key, hit["value"])
                lines.setdefault(key, number)
        yield _run(values, first, lines.__getitem__)


def _key(name: str) -> str:
    """Return the key in JSON of what a terminal calls a figure; nothing where it has none.

    Examples
    --------
    >>> _key("Successful requests"), _key("P99 TTFT (ms)"), _key("Peak concurrent requests"), _key("Drafts")
    ('completed', 'p99_ttft_ms', 'max_concurrent_requests', 'spec_decode_num_drafts')
    """
    if hit := PRINTED_TIME.fullmatch(name):
        return f"{hit[1]}_{hit[2]}_ms".lower()
    return PRINTED_KEYS.get(name, "")


def _run(values: Mapping[str, Any], line: int, line_of: Callable[[str], int]) -> Run:
    totals = {name: amount(values.get(key)) for key, name in TOTALS.items()}
    cells = stated_in(TOOL, values) | SERVED
    cells |= {"requests": totals["requests"]} if totals["requests"] > 0 else {}
    cells |= _lengths(totals) | load(
        number_of(values.get("request_rate")),
        number_of(values.get("max_concurrency")),
        _completed_per_s(values, totals),
        number_of(values.get("max_concurrent_requests")),
    )
    if any(values.get(name) for name in DRAFTS):
        cells["draft_tokens"] = 1
    if values.get("ramp_up_strategy"):
        cells["unasked"] = RAMPED
    name = str(values.get("date", ""))
    if day := re.match(r"(20\d\d)(\d\d)(\d\d)-", name):
        cells["date_or_sdk"] = "-".join(day.groups())
    if totals["requests"] > 0:
        return run_of(TOOL, line, cells, _figures(values, line_of), name, totals)
    none = Refusal(line, TOOL, "completed: no request was completed, or their number is not stated")
    return run_of(TOOL, line, cells, [none], name, totals)


def _figures(values: Mapping[str, Any], line_of: Callable[[str], int]) -> Iterator[Figure | Refusal]:
    for key, value in values.items():
        if hit := TIMED.fullmatch(key):
            yield from figures_of(TOOL, hit[2], {hit[1]: value}, line_of(key))
        elif key in meanings(TOOL):
            yield from figures_of(TOOL, key, {"": value}, line_of(key))


def _lengths(totals: Mapping[str, float]) -> dict[str, float]:
    """Return mean lengths of prompts and answers."""
    lengths = (
        {f"{name}_len": totals[f"{name}_tokens"] / totals["requests"] for name in ("input", "output")}
        if (totals["requests"] > 0)
        else {}
    )
    return {name: length for name, length in lengths.items() if length >= 1 and math.isfinite(length)}


def _completed_per_s(values: Mapping[str, Any], totals: Mapping[str, float]) -> float:
    rate = number_of(values.get("request_throughput"))
    return rate if rate > 0 else totals["requests"] / totals["duration_s"] if totals["duration_s"] > 0 else math.nan


def load(rate_per_s: float, concurrency: float, completed_per_s: float, peak: float = math.nan) -> dict[str, Any]:
    """Return how the requests of a run come, by their rate and the limit on those in flight.

    A limit that holds requests back makes a closed loop of as many clients; without one they come at their rate, or
    all at once. A limit that the run never reached held nothing back: a short run completes fewer requests than arrive
    because the last ones take their time.

    Parameters
    ----------
    rate_per_s : float
        Requests that are sent; infinity for all at once, NaN for a rate that is not stated. [1/s]
    concurrency : float
        Requests in flight at most; NaN for no limit. [-]
    completed_per_s : float
        Requests that were completed; NaN where that is not known. [1/s]
    peak : float
        Most requests that were in flight at one time; NaN where that is not known. [-]

    Examples
    --------
    >>> load(float("inf"), 32.0, 4.0), load(2.0, float("nan"), 1.99)
    ({'scheduling': 'closed', 'clients': 32.0}, {'scheduling': 'open', 'arrival_per_s': 2.0})
    >>> load(2.0, 32.0, 1.6)["scheduling"], load(2.0, 32.0, 1.6, peak=20.0)["scheduling"]
    ('closed', 'open')
    >>> load(float("inf"), float("nan"), 4.0)
    {'scheduling': 'burst'}
    """
    steady = 0 < rate_per_s < math.inf
    held = concurrency >= 1 and completed_per_s < BOUND * rate_per_s and not peak < concurrency
    if steady and not held:
        return {"scheduling": "open", "arrival_per_s": rate_per_s}
    if concurrency >= 1:
        return {"scheduling": "closed", "clients": concurrency}
    return {"scheduling": "burst"} if rate_per_s == math.inf else {}
