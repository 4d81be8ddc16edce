"""guidellm: a report with a list of benchmarks, in JSON or YAML; of each figure the distribution over requests.

The status `successful` counts. Its "inter-token latency" is the mean of a request behind its first token, which other
tools call TPOT; its "time per output token" is the whole request over its tokens, first one included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
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
    statistic,
    value_at,
)
from trnmodel.evidence.formats.vllm_bench import SERVED, load

TOOL = "guidellm"
MODELS = ("config.backend.model", "spec.backend.model", "args.model", "config.spec.backend.model")
STRATEGIES = ("config.strategy", "args.strategy", "scheduler.strategy")
VERSIONS = (1, 2)  # of a report
WITH_FIRST = "time_per_output_token_ms"  # which up to 0.3 left the first token out, under the same name
RATES = ("requests_per_second", "output_tokens_per_second", "tokens_per_second", "prompt_tokens_per_second")
MEAN = ("mean",)  # of a rate: its percentiles are those of moments


def recognises(of: Document) -> bool:
    """Return whether a text holds a report of this tool."""
    return any(_is_report(one) for one in of.objects)


def _is_report(values: Mapping[str, Any]) -> bool:
    several = values.get("benchmarks")
    return isinstance(several, list) and any(isinstance(one, Mapping) and "metrics" in one for one in several)


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the benchmarks of a report."""
    yield from of.broken
    for report in of.objects:
        if odd := _unknown(report):
            yield Refusal(of.line(report.at), TOOL, odd)
            continue
        for number, one in enumerate(report["benchmarks"], start=1):
            if isinstance(one, Mapping) and isinstance(one.get("metrics"), Mapping):
                yield _run(of, report, one, f"benchmark {number}")
            else:
                at = getattr(one, "at", report.at)
                yield Refusal(of.line(at), f"benchmark {number}", "it has no metrics")


def _unknown(report: Mapping[str, Any]) -> str:
    """Return why a report is not read: it is none, or of a version whose meanings nobody has looked at here.

    Reports of before December 2025 (0.5.0) have no version; they hold `args`, which later ones do not.
    """
    if not _is_report(report):
        return "no report of guidellm: it has no list of benchmarks"
    version = value_at(report, "metadata.version")
    if version in VERSIONS and not isinstance(version, bool):
        return ""
    old = "args" in report or any(isinstance(one, Mapping) and "args" in one for one in report["benchmarks"])
    if version is None and old:
        return ""
    return f"metadata.version {shown(version)} of the report is unknown; read are {', '.join(map(str, VERSIONS))}"


def _run(of: Document, report: Mapping[str, Any], values: Mapping[str, Any], name: str) -> Run:
    metrics = values["metrics"]
    counts = (amount(value_at(place, "request_totals.successful")) for place in (metrics, values))
    requests = next((count for count in counts if count > 0), math.nan)
    lengths = {
        "input_len": _mean(metrics, "prompt_token_count"),
        "output_len": _mean(metrics, "output_token_count"),
    }
    cells: dict[str, Any] = {**SERVED}
    labels = value_at(report, "config.metadata.labels")
    cells |= stated_in(TOOL, labels) if isinstance(labels, Mapping) else {}
    cells |= stated_in(TOOL, values) | _model(report, values) | _load(values)
    cells |= {column: length for column, length in lengths.items() if length >= 1}
    cells |= {"requests": requests} if requests > 0 else {}
    line = of.line(getattr(values, "at", 0))
    keys = [key for key in meanings(TOOL) if not (key == WITH_FIRST and "args" in values)]
    figures = [one for key in keys for one in _figures(of, metrics, key)]
    none = Refusal(line, name, "no request succeeded: it has no figures of the status successful")
    return run_of(TOOL, line, cells, figures or [none], name, {"requests": requests})


def _figures(of: Document, metrics: Mapping[str, Any], key: str) -> Iterator[Figure | Refusal]:
    done = value_at(metrics, f"{key}.successful")
    if not isinstance(done, Mapping) or number_of(done.get("count", 1)) == 0:
        return
    flat = {**done, **(done["percentiles"] if isinstance(done.get("percentiles"), Mapping) else {})}
    for name, value in flat.items():
        of_name = _renamed(name)
        if key in RATES and of_name not in MEAN:
            continue
        if name == "median" and "p50" in flat:
            continue
        where = done.get("percentiles") if name not in done else done
        yield from figures_of(TOOL, key, {"" if key in RATES else of_name: value}, of.line_of(where, name))


def _renamed(name: str) -> str:
    """Return a percentile as others call it: "p01" is the first, "p001" and "p999" have a tenth.

    Examples
    --------
    >>> [_renamed(name) for name in ("p001", "p01", "p50", "p999", "mean")]
    ['p0.1', 'p1', 'p50', 'p99.9', 'mean']
    """
    digits = name.removeprefix("p")
    if name.startswith("p") and digits.isdigit() and len(digits) == 3:
        return f"p{int(digits) / 10:g}"
    return f"p{int(digits)}" if name.startswith("p") and digits.isdigit() and statistic(name) else name


def _mean(metrics: Mapping[str, Any], key: str) -> float:
    return amount(value_at(metrics, f"{key}.successful.mean"))


def _model(report: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the model by what the benchmark or the report was asked with."""
    places = (values, *(one for one in (report.get("config"), report.get("args"), report) if isinstance(one, Mapping)))
    names = (value_at(place, path) for place in places for path in (*MODELS, "model", "backend_model"))
    name = next((one for one in names if isinstance(one, str) and one), "")
    return {"workload": name} if name else {}


def _load(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the requests of a benchmark come, by its strategy."""
    strategy = next((one for path in STRATEGIES if isinstance(one := value_at(values, path), Mapping)), {})
    kind, limit = str(strategy.get("type_", strategy.get("kind", ""))), number_of(strategy.get("max_concurrency"))
    if kind == "synchronous":
        return {"scheduling": "single", "clients": 1}
    if kind == "concurrent":
        streams = strategy.get("streams", limit)
        return load(float("inf"), number_of(streams[0] if isinstance(streams, list) and streams else streams), 0.0)
    if kind in ("constant", "poisson", "async"):
        completed = _mean(values["metrics"], "requests_per_second")
        return load(number_of(strategy.get("rate")), limit, completed)
    if kind == "throughput":
        return {"scheduling": "closed"} | ({"clients": limit} if limit >= 1 else {})
    return {"unasked": f"the strategy {json.dumps(kind)[:60]} of guidellm has no question here"} if kind else {}
