"""neuron-profile and neuron-monitor: the summary of a profile, and reports of a running application line by line.

The summary is an object for each profile under a name, a list under "summary", or text with a name and a number on each
line; its times are in seconds, and what
it calls a percentage is a share from 0 to 1. Neither tool knows the model, its phase or its batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from trnmodel.evidence.formats.documents import Document
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

PROFILE, MONITOR = "neuron-profile", "neuron-monitor"
PROFILED = "inference-LLM-profile"
NEEDS = "workload instance phase batch tp|n_cores_used"
TENSOR = "tensor_engine_active_time"
SHARES = ("mfu_estimated_percent", "hfu_estimated_percent", "mbu_estimated_percent", f"{TENSOR}_percent")
FAR = 1.1  # times by which a time may differ from an engine's active time over its share
ALL_OF_IT = 1.0  # the largest share; a summary whose attainable share is larger prints per cent
PRINTED = re.compile(r"^([a-z][a-z0-9_]*)[ \t]+([-+\d.eE]+)[ \t\r]*$", re.MULTILINE)
LONGEST_SUMMARY = 100_000  # characters of a summary as text
CORE = "neuroncore_utilization"
LATENCIES = ("device_latency", "total_latency")


def recognises(of: Document) -> bool:
    """Return whether a text is one of these tools'."""
    return any(_is_report(one) or any(True for _ in _summaries(one)) for one in of.objects) or bool(_printed(of)[0])


def _is_report(values: Mapping[str, Any]) -> bool:
    return "neuron_runtime_data" in values


def _summaries(values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the summaries of profiles in an object, with their names."""
    listed = values.get("summary", values.get("Summary"))
    several = dict(enumerate(listed)) if isinstance(listed, list) else {"": values, **values}
    for name, one in several.items():
        if (
            isinstance(one, Mapping)
            and "total_time" in one
            and ({*SHARES, "hbm_read_bytes", "event_count"} & one.keys())
        ):
            yield str(name), one


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the profiles and reports of a text."""
    values, lines = _printed(of)
    if values:
        yield _profile("", values, 1, lines.__getitem__)
        return
    yield from of.broken
    for number, one in enumerate(of.objects, start=1):
        if _is_report(one):
            yield from _report(of, one, number)
            continue
        summaries = list(_summaries(one))
        for name, summary in summaries:
            at = of.line(getattr(summary, "at", 0))
            yield _profile(name, summary, at, partial(of.line_of, summary))
        if not summaries:
            yield Refusal(of.line(one.at), PROFILE, "no summary of a profile and no report")


def _printed(of: Document) -> tuple[dict[str, float], dict[str, int]]:
    """Return the numbers of a summary as text, a name and a number on each line, and their lines; none for another."""
    if of.is_json:
        return {}, {}
    several = list(PRINTED.finditer(of.text[:LONGEST_SUMMARY]))
    values = {hit[1]: number_of(hit[2]) for hit in several}
    of_profile = any(True for _ in _summaries(values)) and len(values) == len(several)
    return (values, {hit[1]: of.line(hit.start()) for hit in several}) if of_profile else ({}, {})


def _profile(name: str, values: Mapping[str, Any], line: int, line_of: Callable[[str], int]) -> Run:
    attainable = number_of(values.get("mfu_max_achievable_estimated_percent"))
    shares = [x for key in SHARES if (x := number_of(values.get(key))) > 0]
    per_cent = attainable > ALL_OF_IT or (bool(shares) and min(shares) > ALL_OF_IT)
    keys = [key for key in meanings(PROFILE) if key in values and not (key in SHARES and number_of(values[key]) == 0)]
    units = {key: "%" if per_cent and key in SHARES else "" for key in keys}
    figures = [
        Refusal(line_of(key), key, odd) if (odd := _odd(values, key, per_cent)) else one
        for key, unit in units.items()
        for one in figures_of(PROFILE, key, {"": values[key]}, line_of(key), unit)
    ]
    cells = stated_in(PROFILE, values) | {"kind": PROFILED, "needs": NEEDS}
    return run_of(PROFILE, line, cells, figures, name)


def _odd(values: Mapping[str, Any], key: str, per_cent: bool) -> str:
    """Return why a figure of a summary cannot be: a share above all of it, or a time that its own shares contradict."""
    value = number_of(values[key])
    if key in SHARES and value > (100 if per_cent else 1):
        return f"value: a share of {value:g}, and the other shares of the summary are at most {100 if per_cent else 1}"
    if key == "total_time":
        active, share = number_of(values.get(TENSOR)), number_of(values.get(f"{TENSOR}_percent"))
        total = active / share * (100 if per_cent else 1) if share > 0 else value
        if active > 0 and not 1 / FAR < value / total < FAR:
            return f"the run contradicts itself: total_time is {value:g}, and {TENSOR} over its share is {total:.4g}"
    return ""


def _report(of: Document, values: Mapping[str, Any], number: int) -> Iterator[Run | Refusal]:
    """Return what a report says of each application: latencies of its executions, and the memory that it holds."""
    shared = stated_in(MONITOR, values)
    line = of.line(getattr(values, "at", 0))
    several = values.get("neuron_runtime_data")
    for one in several if isinstance(several, list) else []:
        if not isinstance(one, Mapping):
            yield Refusal(line, MONITOR, "no report of an application")
            continue
        tag = str(one.get("neuron_runtime_tag", one.get("pid", "")))
        if error := str(one.get("error") or ""):
            yield Refusal(line, f"application {tag}"[:80], f"the tool reports an error: {error[:120]}")
            continue
        yield _application(of, one, {**shared}, f"report {number}, application {tag}")


def _application(of: Document, values: Mapping[str, Any], cells: dict[str, Any], name: str) -> Run:
    cores = value_at(values, "report.neuroncore_counters.neuroncores_in_use")
    cells |= {"kind": PROFILED, "needs": NEEDS}
    cores = cores if isinstance(cores, Mapping) else {}
    if cores:
        cells["n_cores_used"] = len(cores) * max(number_of(cells.get("lnc", 1)), 1)
    sources: dict[str, Any] = {
        key: value_at(values, f"report.execution_stats.latency_stats.{key}") for key in LATENCIES
    }
    sources["utilisation"] = _utilisation(cores)
    used = value_at(values, "report.memory_used.neuron_runtime_used_bytes")
    sources["neuron_device"] = (
        {"": used["neuron_device"]} if isinstance(used, Mapping) and used.get("neuron_device") else None
    )
    figures = [one for key, values_ in sources.items() for one in _of_source(of, key, values_, used)]
    figures += [one for core, values_ in cores.items() for one in _of_core(of, core, values_)] if cores else []
    return run_of(MONITOR, of.line(getattr(values, "at", 0)), cells, figures, name)


def _of_core(of: Document, core: str, values: Any) -> Iterator[Figure | Refusal]:
    """Return the utilisation of a core that did something; one that is busy for more than all of the time is refused.

    On Trainium2 the physical cores of a logical one stand below it, and are not read.
    """
    share = number_of(values.get(CORE)) if isinstance(values, Mapping) else 0.0
    if not share > 0:
        return
    line, name = of.line_of(values, CORE), f"core {core}"[:80]
    if share > 100:
        yield Refusal(line, meanings(MONITOR)[CORE][0].metric, f"value: {name} is busy for {share:g} % of the time")
        return
    for one in figures_of(MONITOR, CORE, {"": share}, line):
        yield replace(one, cells={**one.cells, "note": name}) if isinstance(one, Figure) else one


def _utilisation(cores: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the mean utilisation of the cores in use; infinity where one is busy for more than all of the time."""
    shares = [number_of(one.get(CORE)) for one in cores.values() if isinstance(one, Mapping)]
    if not shares or any(x != x for x in shares):
        return None
    return {"mean": sum(shares) / len(shares) if max(shares) <= 100 else float("inf")}


def _of_source(of: Document, key: str, statistics: Any, used: Any) -> Iterator[Figure | Refusal]:
    """Return the figures of one source of a report by their statistic; memory has none."""
    for statistic, value in statistics.items() if isinstance(statistics, Mapping) else ():
        if key == "utilisation" and value == 0:
            continue  # an idle application
        yield from figures_of(
            MONITOR, key, {statistic: value}, of.line_of(statistics if statistic else used, statistic or key)
        )
