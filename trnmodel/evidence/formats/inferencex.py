"""InferenceX: one flat JSON object for each run, or a list of them, with times in seconds and rates for each GPU.

Where prefill and decode run apart, the rate of generated tokens is shared out over the GPUs of decode alone, and that
of prompt tokens over those of prefill.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trnmodel.evidence.formats.documents import Document, Located
from trnmodel.evidence.formats.runs import Figure, Refusal, Run, amount, figures_of, number_of, run_of, stated_in
from trnmodel.evidence.formats.vllm_bench import SERVED, load

TOOL = "inferencex"
TIMED = re.compile(r"(mean|median|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el|intvty)")
RATES = ("tput_per_gpu", "output_tput_per_gpu", "input_tput_per_gpu")
POWER = "avg_total_gpu_power_w"
APART = "prefill and decode run on machines of their own, and the network between them has no question here"
TRUE = ("true", "1", "yes")


def recognises(of: Document) -> bool:
    """Return whether a text holds aggregates of this tool."""
    return any(_is_aggregate(one) for one in of.objects)


def _is_aggregate(values: Mapping[str, Any]) -> bool:
    return {"hw", "conc"} <= values.keys() and any(name in values for name in RATES)


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the aggregates of a text."""
    yield from of.broken
    for one in of.objects:
        if _is_aggregate(one):
            yield _run(of, one)
        else:
            yield Refusal(of.line(one.at), TOOL, "no aggregate of InferenceX: it has no hw, conc and rates per GPU")


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() in TRUE


def _gpus(values: Mapping[str, Any]) -> dict[str, float]:
    """Return over how many GPUs each rate is shared out; NaN where the file does not say it."""
    if _is_true(values.get("is_multinode")) or _is_true(values.get("disagg")):
        prefill, decode = (amount(values.get(f"num_{name}_gpu")) for name in ("prefill", "decode"))
        every = prefill + decode
        return {"tput_per_gpu": every, "output_tput_per_gpu": decode or every, "input_tput_per_gpu": prefill}
    degrees = (amount(values.get(name, one)) for name, one in (("tp", None), ("pp", 1), ("pcp_size", 1)))
    gpus = 1.0
    for degree in degrees:
        gpus *= degree
    return dict.fromkeys(RATES, gpus)


def _run(of: Document, values: Located) -> Run:
    cells = stated_in(TOOL, values) | SERVED
    clients = number_of(cells.pop("clients", None))
    cells |= load(float("inf"), clients, 0.0)
    if _is_true(values.get("disagg")):
        cells |= {"apart": "yes", "unasked": APART}
    if str(values.get("spec_decoding", "none")).lower() not in ("none", "", "false"):
        cells["draft_tokens"] = 1
    if _is_true(values.get("dp_attention")) and number_of(values.get("tp")) > 1:
        cells["attention_replicas"] = number_of(values.get("tp"))
    gpus = _gpus(values)
    if gpus["tput_per_gpu"] > 0:
        cells["n_chips"] = gpus["tput_per_gpu"]
    figures = [one for key, x in values.items() for one in _figures(of.line_of(values, key), key, x, gpus)]
    return run_of(TOOL, of.line(values.at), cells, figures)


def _slowest(name: str) -> str:
    """Return the percentile of speeds that one over a percentile of times is: one over the 99th is the first.

    Examples
    --------
    >>> _slowest("p99"), _slowest("mean"), _slowest("p99.9")
    ('p1', 'mean', 'p0.1')
    """
    percentile = number_of(name.removeprefix("p"))
    return f"p{100 - percentile:.4g}" if percentile > 0 else name


def _figures(line: int, key: str, value: Any, gpus: Mapping[str, float]) -> Iterator[Figure | Refusal]:
    if hit := TIMED.fullmatch(key):
        yield from figures_of(TOOL, hit[2], {_slowest(hit[1]) if hit[2] == "intvty" else hit[1]: value}, line)
    elif key == POWER:
        yield from figures_of(TOOL, key, {"": value}, line)
    elif key in RATES and gpus[key] > 0:
        yield from figures_of(TOOL, key, {"": value}, line, scale=gpus[key])
    elif key in RATES:
        yield Refusal(line, key, "the rate is one per GPU, and the file does not state how many GPUs there are")
