"""Logs of training: lines of NeMo and of NxD Training (a bar, or names with values), and of Megatron-LM.

A bar is printed again and again for one step: a figure counts once for each place of the bar. Its seconds for each step
are the mean since the start. Settings stand above the steps, one on a line. The first step compiles, and so it is not
read, nor is a mean over the last ten steps as long as it holds the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trnmodel.evidence.formats.documents import Document
from trnmodel.evidence.formats.runs import Figure, Refusal, Run, figures_of, number_of, run_of

NEMO, MEGATRON, NXD = "nemo", "megatron", "nxd"
TRAINING = "training"
NEEDS = "workload instance|system tp global_batch|batch seq|seq_len"
NUMBER = r"([-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf))"
STEP = re.compile(rf"\biteration\s+(\d+)\s*/\s*\d+\s*\|.*?elapsed time per iteration \(ms\):\s*{NUMBER}", re.I)
WATTS = re.compile(rf"power per GPU \(W/GPU\):\s*{NUMBER}", re.I)
FLOPS = re.compile(rf"throughput per GPU \(TFLOP/s/GPU\):\s*{NUMBER}", re.I)
BATCH = re.compile(r"global batch size:\s*(\d+)")
SETTING = re.compile(r"^\s*(?:\d+:\s*)?([a-z][a-z0-9_]*) \.{3,} (\S+)\s*$")
WORLD = re.compile(
    r"using world size: (\d+), data-parallel[- ]size: (\d+)|"
    r"(context|tensor-model|pipeline-model|expert-model)-parallel[- ]size: (\d+)"
)
BAR = re.compile(r"(?:Epoch|Training)\b.*?\b(\d+)/(\d+|\?) \[[^\]]*?" + rf"{NUMBER}\s*(s/it|it/s)")
TIMING = re.compile(rf"\btrain_step_timing in s\s*[=:]\s*{NUMBER}")
RATE = re.compile(rf"[\s,|]throughput\s*[=:]\s*{NUMBER}")
NEMO_FLOPS = re.compile(rf"\b(?:tflops_per_sec_per_gpu|TFLOPS_per_GPU)\s*[=:]\s*{NUMBER}")
NXD_STEP = re.compile(rf"^\s*step (\d+) step_time {NUMBER}\s*s\b(?: throughput {NUMBER} seq/s)?")
NXD_LOG = re.compile(rf"\bLOG\b.{{0,60}}- \((\d+), ?(\d+)\) step_loss\s*:.{{0,80}}?throughput\s*:\s*{NUMBER}")
ARGUMENT = re.compile(r"\b([a-z_0-9]+)=([\w.'-]+)")
NAMESPACE = {  # arguments of the scripts of NxD
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "context_parallel_size": "context_ranks",
    "expert_parallel_size": "expert_ranks",
    "seq_len": "seq",
    "use_sequence_parallel": "sequence_parallel",
    "use_zero1_optimizer": "zero",
}
PLACE = re.compile(r"\bglobal_step\s*[=:]\s*(\d+)|\biteration (\d+)/|\b(\d+)/(?:\d+|\?) \[")
WINDOW = 10  # steps that a running mean of NxD is over
FIRST = "the first step of a run, which holds compiling and start-up, and is no step time"
HOLDS_FIRST = "a mean over the last steps that holds the first one, with its compiling and start-up"
ASKED = re.compile(r"^\s+([a-z][a-z0-9_]*): (\d{1,9})\s*$")  # a setting of NxD Training
INTERVAL = re.compile(r"\blogging_interval=(\d{1,6})\b")
SAMPLES = re.compile(r"\bglobal_batch_size\s*[=:]\s*(\d+)")
COLUMNS = {  # settings of Megatron-LM
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "data_parallel_size": "dp",
    "context_parallel_size": "context_ranks",
    "expert_model_parallel_size": "expert_ranks",
    "global_batch_size": "global_batch",
    "micro_batch_size": "micro_batch",
    "seq_length": "seq",
    "world_size": "n_cores_used",
}
DEGREES = {"tensor-model": "tp", "pipeline-model": "pp", "context": "context_ranks", "expert-model": "expert_ranks"}
RECOMPUTES = {"selective": "selective", "full": "full", "None": "none"}
LONGEST_LINE = 5_000  # characters of a line that is looked at
HEAD_LINES = 20_000  # of a log in which its first step is looked for


def recognises(of: Document) -> bool:
    """Return whether a text is a log of training."""
    lines = [one for one in of.text[: 2**22].splitlines()[:HEAD_LINES] if len(one) <= LONGEST_LINE]
    several = (STEP, TIMING, NXD_STEP, NXD_LOG)
    return any(any(step.search(one) for step in several) or (BAR.search(one) and "loss" in one) for one in lines)


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the steps of a log, each a run of its own under the settings above it."""
    cells, printed, interval, begun = dict[str, Any](), set[tuple[str, str, float]](), 1, math.inf
    for number, line in enumerate(of.text.split("\n"), start=1):
        for text in (one for one in line.split("\r") if len(one) <= LONGEST_LINE):
            if hit := STEP.search(text):
                yield _megatron(number, text, hit, cells)
            elif (hit := NXD_STEP.search(text)) or (hit := NXD_LOG.search(text)):
                yield _nxd(number, hit, cells, interval)
            elif TIMING.search(text) or BAR.search(text):
                begun = min(begun, _bar_place(text))
                run = _nemo(number, text, cells, begun)
                key = (run.name, *((run.figures[0].name, run.figures[0].cells["value"]) if run.figures else ("", 0.0)))
                if key not in printed:
                    printed.add(key)
                    yield run
            else:
                cells |= _settings(text)
                hit = INTERVAL.search(text)
                interval = max(int(hit[1]), 1) if hit else interval


def _settings(text: str) -> dict[str, Any]:
    """Return the columns that a line of settings fills: of Megatron-LM, its ranks, NxD Training, or a script of NxD."""
    if hit := SETTING.match(text) or ASKED.match(text):
        return _setting(*hit.groups())
    if text.startswith("Namespace("):
        named = {NAMESPACE[name]: number_of(x) for name, x in ARGUMENT.findall(text) if name in NAMESPACE}
        return {name: x for name, x in named.items() if x == x}
    columns: dict[str, Any] = {}
    for hit in WORLD.finditer(text):
        columns |= {"n_cores_used": float(hit[1]), "dp": float(hit[2])} if hit[1] else {DEGREES[hit[3]]: float(hit[4])}
    return columns


def _setting(name: str, value: str) -> dict[str, Any]:
    """Return the column that a setting of Megatron-LM or NxD Training fills.

    Examples
    --------
    >>> _setting("seq_length", "4096"), _setting("use_distributed_optimizer", "True"), _setting("lr", "1e-4")
    ({'seq': 4096.0}, {'zero': 1}, {})
    """
    if name in COLUMNS and value.isdigit():
        return {COLUMNS[name]: float(value)}
    if name == "recompute_granularity" and value in RECOMPUTES:
        return {"recompute": RECOMPUTES[value]}
    if value not in ("True", "False"):
        return {}
    flags = {"sequence_parallel": ("sequence_parallel", "1", "0"), "use_distributed_optimizer": ("zero", 1, 0)}
    if name in flags:
        column, yes, no = flags[name]
        return {column: yes if value == "True" else no}
    return {"precision": name} if name in ("bf16", "fp16") and value == "True" else {}


def _megatron(number: int, text: str, hit: re.Match[str], cells: dict[str, Any]) -> Run:
    def read() -> Iterator[Figure | Refusal]:
        if int(hit[1]) == 1:
            yield Refusal(number, "step time", FIRST)
            return
        yield from figures_of(MEGATRON, "step_time", {"": hit[2]}, number)
        if flops := FLOPS.search(text):
            yield from figures_of(MEGATRON, "tflops", {"": flops[1]}, number)
        if watts := WATTS.search(text):
            yield from figures_of(MEGATRON, "watts", {"": watts[1]}, number)

    batch = BATCH.search(text)
    shared = {**cells, "kind": TRAINING, "phase": "train", "needs": NEEDS}
    shared |= {"global_batch": float(batch[1])} if batch else {}
    return run_of(MEGATRON, number, shared, read(), f"iteration {hit[1]}")


def _nxd(number: int, hit: re.Match[str], cells: dict[str, Any], interval: int) -> Run:
    """Return the run of a line of the scripts of NxD: the time of a step where it has one, and the mean rate.

    A step counts from 0, and the steps of a line of a log, one for each `interval`, from 1. The mean is over the lines
    that hold the last ten steps (`Throughput` in examples/training/llama/training_utils.py).
    """
    done = (int(hit[1]) + 1) if hit.re is NXD_STEP else int(hit[2])

    def read() -> Iterator[Figure | Refusal]:
        if hit.re is NXD_STEP and done == 1:
            yield Refusal(number, "step time", FIRST)
        elif hit.re is NXD_STEP:
            yield from figures_of(NXD, "step_time", {"": hit[2]}, number)
        if hit[3] and done <= interval * math.ceil(WINDOW / interval):
            yield Refusal(number, "throughput (running mean)", HOLDS_FIRST)
        elif hit[3]:
            yield from figures_of(NXD, "throughput", {"": hit[3]}, number)

    name = f"step {hit[1] if hit.re is NXD_STEP else f'{hit[1]}, {hit[2]}'}"
    return run_of(NXD, number, {**cells, "kind": TRAINING, "phase": "train", "needs": NEEDS}, read(), name)


def _bar_place(text: str) -> float:
    """Return the step that a bar stands at; infinity where a line has none."""
    bar = BAR.search(text)
    return float(bar[1]) if bar else math.inf


def _rate(number: int, rate: str, batch: float, behind_first: float) -> Iterator[Figure | Refusal]:
    """Return the mean rate of the last ten steps and the mean time of one, once the first step is not among them."""
    if behind_first < WINDOW:
        yield Refusal(number, "throughput (running mean)", HOLDS_FIRST)
        return
    yield from figures_of(NEMO, "throughput", {"": rate}, number)
    if batch > 0 and number_of(rate) > 0:
        yield from figures_of(NEMO, "step_time", {"": batch / number_of(rate)}, number)


def _nemo(number: int, text: str, cells: dict[str, Any], begun: float) -> Run:
    """Return the run of a line of NeMo or NxD Training, whose bar began at a step of the log."""
    bar, timing, place = BAR.search(text), TIMING.search(text), PLACE.search(text)
    at = next(x for x in place.groups() if x) if place else ""
    batch = SAMPLES.search(text)
    shared = {**cells, "kind": TRAINING, "phase": "train", "needs": NEEDS}
    shared |= {"global_batch": float(batch[1])} if batch else {}

    def read() -> Iterator[Figure | Refusal]:
        if timing and at == "0":
            yield Refusal(number, "step time", FIRST)
        elif timing:
            yield from figures_of(NEMO, "train_step_timing", {"": timing[1]}, number)
        elif bar:
            yield from _of_bar(bar, number)
        if rate := RATE.search(text):
            behind_first = float(bar[1]) - begun if bar else math.inf
            yield from _rate(number, rate[1], number_of(shared.get("global_batch")), behind_first)
        if flops := NEMO_FLOPS.search(text):
            yield from figures_of(NEMO, "tflops", {"": flops[1]}, number)

    name = f"step {bar[1]}" if bar and not timing else f"step {at}" if at else ""
    return run_of(NEMO, number, shared, read(), name)


def _of_bar(bar: re.Match[str], number: int) -> Iterator[Figure | Refusal]:
    """Return the mean time of the steps of a bar: seconds for each, or steps a second, whose last digit is coarse."""
    if bar[4] == "s/it":
        yield from figures_of(NEMO, "bar", {"": bar[3]}, number)
        return
    rate = number_of(bar[3])
    digits = len(bar[3].partition(".")[2])
    if not rate > 0:
        yield Refusal(number, "step time", f"value: {bar[3]} it/s is no rate above 0")
        return
    for one in figures_of(NEMO, "bar", {"": 1 / rate}, number):
        if isinstance(one, Figure):
            one = replace(one, cells={**one.cells, "rounding": f"{10.0**-digits / rate**2:.6g}"})
        yield one
