"""What a typed record asks: its measure, load and shape -> the question of a measured number, or why it has none.

A reason for none says which of three is missing: the meaning, the model or the machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replaced

from trnmodel.arguments import shown
from trnmodel.evidence.names import model_of
from trnmodel.evidence.records import Record, document, is_known, patterns, words
from trnmodel.evidence.records import read as read_record
from trnmodel.evidence.rows import WIDE, UnreadableRowError, number
from trnmodel.evidence.words import contradiction, filled
from trnmodel.models.transformer import model as read_model
from trnmodel.units import KIB

ASIDE, PLAIN = "set-aside", "as asked"
PERCENTILES = ("p75", "p90", "p95", "p99", "max")
# of a language model: the question of a measure by how its requests come
QUESTIONS: Mapping[str, Mapping[str, str]] = {
    "token_interval": {"static": "decode-step", "single": "decode-step", "loaded": "loaded-step"},
    "first_token": {"static": "prefill", "single": "one-prefill", "loaded": "queued-prefill", "burst": "burst-prefill"},
    "request": {"static": "request-latency", "single": "request-latency", "loaded": "loaded-request"},
    "generated_rate": {"static": "generated-throughput", "loaded": "served-throughput", "single": "served-throughput"},
    "total_rate": {"static": "total-throughput", "loaded": "served-total-throughput"},
    "prompt_rate": {"static": "prefill-throughput", "single": "prefill-throughput"},
    "input_rate": {
        "static": "prefill-throughput",
        "loaded": "served-input-throughput",
        "single": "served-input-throughput",
    },
    "request_rate": {"static": "served-requests", "loaded": "served-requests", "single": "served-requests"},
    "user_rate": {"static": "decode-speed", "single": "decode-speed", "loaded": "loaded-speed"},
    "run_interval": {"static": "run-per-token"},
    "run_output_interval": {"static": "run-per-output-token"},
    "reprefill_rate": {"static": "reprefill-throughput"},
}
BY_PHASE = {
    ("mfu", "prefill"): "prefill-mfu",
    ("mbu", "decode"): "decode-mbu",
    ("read_bytes", "decode"): "decode-read-bytes",
    ("device_time", "decode"): "decode-step",
    ("device_time", "prefill"): "one-prefill",
    ("generated_rate", "decode"): "decode-throughput",
}  # of a run without load
KERNELS = {
    "kernel_time": "kernel-time",
    "kernel_read_bytes": "kernel-read-bytes",
    "kernel_write_bytes": "kernel-write-bytes",
    "flop_rate": "kernel-flop-rate",
    "byte_rate": "kernel-byte-rate",
    "mfu": "kernel-mfu",
}
COLLECTIVES = {"collective_time": "collective-time", "busbw": "collective-busbw", "algbw": "collective-algbw"}
TRAINING = {
    "step": "train-step",
    "sequence_rate": "train-sequences",
    "train_token_rate": "train-tokens",
    "mfu": "train-mfu",
    "run": "train-run",
    "work_rate": "train-flop-rate-chip",
    "executed_rate": "train-executed-flop-rate-chip",
}
ENCODERS = {"forward": "forward", "forward_rate": "forward-throughput"}
USES = {
    "prefill-mfu": "prefill, profiled MFU",
    "prefill-throughput": "prefill, throughput",
    "forward-throughput": "encoders, throughput",
    "decode-read-bytes": "decode, bytes read",
    "decode-mbu": "decode, share of HBM",
    "generated-throughput": "whole static runs",
    "generated-throughput-batch": "whole static runs",
    "total-throughput": "whole static runs",
    "request-latency": "whole static runs",
    "run-per-output-token": "whole static runs",
    "run-per-token": "model",
    "burst-prefill": "TTFT of a burst",
    "served-throughput": "serving, throughput",
    "served-total-throughput": "serving, throughput",
    "served-requests": "serving, throughput",
    "served-input-throughput": "serving, throughput",
    "loaded-request": "serving, latency of a request",
    "queued-prefill": "serving, TTFT in a queue",
    "waiting-prefill": "serving, waiting in a queue",
    "waiting-step": "serving, waiting in a queue",
}  # what a question's rows are used for; those of other questions of a model are for its constants
WAITING = {"queued-prefill": "waiting-prefill", "loaded-step": "waiting-step"}  # more clients than slots
TWINS: Mapping[str, tuple[str, ...]] = {
    "decode-throughput": ("decode-step",),
    "all-decode-throughput": ("decode-step",),
    "decode-speed": ("decode-step",),
    "prefill-throughput": ("prefill", "one-prefill"),
    "generated-throughput": ("request-latency",),
    "total-throughput": ("request-latency", "generated-throughput"),
    "kernel-flop-rate": ("kernel-time",),
    "kernel-mfu": ("kernel-time", "kernel-flop-rate"),
    "collective-busbw": ("collective-time",),
    "collective-algbw": ("collective-time", "collective-busbw"),
    "train-mfu": ("train-step", "train-sequences", "train-tokens"),
    "forward-throughput": ("forward",),
}  # what a rate repeats where the page prints both
RUN = "instance workload batch input_len output_len seq_len tp pp dp n_cores_used lnc precision".split()
CODE = {"torch-trace": "stack-torch-trace", "torch-compile": "stack-torch-compile-beta2"}
GPUS_OF_A_SERVER = 8  # of H100: ranks of TP beyond them lie in another
OPTIONAL = ("groups", "kv_heads", "sequences", "causal", "engines", "queued")  # sizes of a kernel with a default
PARTITIONS = 128  # of SBUF
FP32_BYTES = 4
SIZED = ("message_bytes", "message_kib", "message_mib", "message_gib")
SIDES = ("m", "k", "n")
OPERATORS = {"Q_K_V": "q|kv", "Wo_proj": "o", "W1_proj": "up", "W2_proj": "down"}
MANY = "1000000"  # rounds of a closed loop, where nobody says how many
UNKNOWN_INPUT = 300  # tokens of a chat or a question, where output alone is printed: an assumption (D)
MEANING, MODEL, MACHINE = "meaning", "model", "machine"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a row asks: a question with arguments and a use, or the reason why it has none."""

    question: str
    arguments: Mapping[str, str]
    use: str
    weight: float
    reason: str
    rules: tuple[str, ...]
    record: Record = field(default_factory=Record)
    unknown: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether it has no question."""
        return not self.question or self.question == ASIDE


def decide(row: Mapping[str, str], statements: bool = True) -> Decision:
    """Return what a row asks; no value is read.

    Parameters
    ----------
    row : mapping of str to str
        The cells of a row, as `trnmodel.evidence.rows.texts` has them. [-]
    statements : bool
        Whether what the row's page states beyond its cells counts. [-]

    Returns
    -------
    decision : Decision
        Question, arguments, use, weight, and the columns that are unknown. [-]

    Examples
    --------
    >>> row = {"kind": "inference-LLM-serving", "metric": "TPOT mean", "note": "concurrency 1", "workload": ""}
    >>> decide(row).question, decide(row | {"note": "concurrency=4"}).question
    ('decode-step', 'loaded-step')
    """
    row = filled(row)
    record, used = read_record(row, statements)
    try:
        question, say, use, unknown = _asked(row, record, used)
    except UnreadableRowError as reason:
        return Decision(ASIDE, {}, "", 0.0, str(reason), used, record)
    return Decision(question, say, use or PLAIN, float(question != ASIDE), "", used, record, unknown)


def decisions(rows: Sequence[Mapping[str, str]], statements: bool = True) -> list[Decision]:
    """Return what the rows of a table ask; where two of a page are one run printed twice, one of them votes.

    A rate that stands beside the time of the same step, prompt or kernel says the same, whatever its value.

    Examples
    --------
    >>> row = {"kind": "inference-LLM", "phase": "decode", "metric": "TPOT", "source": "page", "workload": "m"}
    >>> [one.weight for one in decisions([row, row | {"metric": "throughput"}])]
    [1.0, 0.0]
    """
    found = [decide(row, statements) for row in rows]
    runs = [_run(filled(row), one) for row, one in zip(rows, found, strict=True)]
    middles = {
        (run, one.question)
        for run, one in zip(runs, found, strict=True)
        if one.weight and one.record.statistic not in PERCENTILES
    }
    return [_voting(one, run, middles) for one, run in zip(found, runs, strict=True)]


def _run(row: Mapping[str, str], one: Decision) -> tuple:
    """Return what the rows of one run share: page, machine, work, shapes and software."""
    record = one.record
    cells = (document(row.get("source", "")), *(row.get(name, "") for name in RUN))
    return (*cells, record.engine, record.kernels, record.clients, record.code, record.version)


def _voting(one: Decision, run: tuple, middles: set[tuple[tuple, str]]) -> Decision:
    """Return a decision, without a vote where the page prints the same run's time or middle beside it."""
    if not one.weight or one.record.series:
        return one
    if one.record.statistic in PERCENTILES and (run, one.question) in middles:
        return replace(one, use="", weight=0.0, reason=f"{one.record.statistic} of a run whose middle counts")
    twins = [twin for twin in TWINS.get(one.question, ()) if (run, twin) in middles]
    if not twins:
        return one
    return replace(one, use="", weight=0.0, reason=f"the same run as its {twins[0]}, which the page prints beside it")


Asked = tuple[str, dict[str, str], str, tuple[str, ...]]


def _asked(row: Mapping[str, str], record: Record, used: Sequence[str]) -> Asked:
    """Return question, arguments, use and unknown columns of a record; raises UnreadableRowError for none."""
    cells = words(row)
    kind = cells["kind"]
    row = {**row, "kind": kind, "phase": cells["phase"]}
    if record.measure == "part":
        raise UnreadableRowError(f"{MEANING}: {shown(row.get('metric', ''))}: {_why_part(used)}")
    if record.measure == "other_model":
        raise UnreadableRowError(f"{MODEL}: {shown(row.get('workload', ''))} is not a language model")
    if odd := contradiction(row):
        raise UnreadableRowError(odd)
    if kind in FAMILIES:
        return FAMILIES[kind](row, record)
    raise UnreadableRowError(
        f"{MEANING}: no pattern gives a meaning to metric {shown(row.get('metric', ''))} of kind {shown(kind)}"
    )


def _why_part(used: Sequence[str]) -> str:
    """Return why a number is a part of what a user meets: what the last pattern says that found it so."""
    notes = {one.name: one.note for one, *_, fills in patterns() if fills.get("measure") == "part"}
    return next((notes[name] for name in reversed(used) if name in notes), "one line of a listing, which says no more")


def _refused(row: Mapping[str, str]) -> UnreadableRowError:
    return UnreadableRowError(f"{MEANING}: no pattern gives a meaning to metric {shown(row.get('metric', ''))}")


def load(record: Record, replicas: float) -> str:
    """Return how the requests of a record come: "static", "single", "loaded" or "burst".

    Examples
    --------
    >>> load(Record(clients="2", served="yes"), 3), load(Record(scheduling="closed"), 1), load(Record(), 1)
    ('single', 'loaded', 'static')
    """
    clients = number(record.clients)
    if record.scheduling in ("static", "single"):
        return record.scheduling
    if clients <= max(replicas, 1.0):
        return "single"
    if record.scheduling == "burst":
        return "burst"
    served = record.served == "yes" or record.scheduling in ("closed", "open") or not math.isnan(clients)
    return "loaded" if served else "static"


def _answerable(row: Mapping[str, str], record: Record) -> None:
    """Refuse a row of a language model whose number holds what the model has no question for."""
    reasons = {
        f"{MEANING}: the host calls operators one by one, which has no stack here": record.kernels == "eager",
        f"{MEANING}: a draft proposes tokens, and how many are accepted is not asked here": record.draft_tokens > 0
        and record.measure not in ("first_token", "mfu"),
        f"{MEANING}: prompts are partly cached, and which part is not stated": bool(record.cached),
        f"{MEANING}: the lengths are not printed": record.lengths == "unknown",
        f"{MACHINE}: prefill and decode run on machines of their own, joined by a network": record.apart == "yes"
        and is_known(record.prefill_machines),
    }
    if not record.measure:
        raise _refused(row)
    for reason, holds in reasons.items():
        if holds:
            raise UnreadableRowError(reason)


def _stalled_share(row: Mapping[str, str], record: Record, replicas: float) -> float:
    """Return the calls of a prefill in a step of a server: those of a prompt, for each request, over its output."""
    if record.bound == "prefill":
        return 1.0
    in_flight = number(record.clients) if is_known(number(record.clients)) else _number(row, "batch", 0.0)
    shared = record.attention_replicas if is_known(record.attention_replicas) else 1.0
    calls = _number(row, "input_len", 0.0) / (record.prefill_chunk / shared) if record.prefill_chunk > 0 else 1.0
    return in_flight / replicas * max(calls, 1.0) / max(_number(row, "output_len", math.inf), 1.0)


def _embedding(record: Record, how: str) -> str:
    """Return the question of a model that embeds: a request is one pass over its prompt."""
    if how != "single" or record.measure not in ("request", "first_token"):
        raise UnreadableRowError(f"{MEANING}: a server that embeds has no queue here")
    return "one-prefill"


def _language(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of a language model asks."""
    _answerable(row, record)
    replicas = max(_number(row, "dp", 1.0), 1.0)
    if record.clients == "batch":
        record = replaced(record, clients=row.get("batch", ""))
    if record.interval_of == "bare" and record.clients:
        record = replaced(record, measure="request")
    how, phase = load(record, replicas), row["phase"].lower()
    question = _question(record, how, phase, _stalled_share(row, record, replicas))
    if record.generates == "no":
        question = _embedding(record, how)
    clients = number(record.clients) / max(replicas, 1.0)
    slots = record.slots if is_known(record.slots) else _number(row, "batch", math.nan)
    if clients > slots * (1 + 1e-9) and question in WAITING:
        question = WAITING[question]
    use = USES.get(question, "model")
    if record.maker == "gpu":
        use = "GPUs in tables of Trainium"
    elif record.launches > 1 and use == "model":
        use = "steps cut into graphs"
    return question, _arguments(row, record, how), use, _unknown(row, record, how)


def _question(record: Record, how: str, phase: str, prefills_per_step: float = 0.0) -> str:
    """Return the question of a language model's measure under a load; raises UnreadableRowError for none."""
    quiet = how in ("static", "single")
    if quiet and (record.measure, phase) in BY_PHASE:
        found = BY_PHASE[record.measure, phase]
        return "all-decode-throughput" if found == "decode-throughput" and record.rate_of == "replicas" else found
    if record.measure in ("mfu", "mbu", "read_bytes", "device_time"):
        raise UnreadableRowError(f"{MEANING}: {record.measure} of a {phase or 'run without a phase'} has no question")
    if record.measure == "first_token" and record.first_of == "batch":
        return "batch-prefill"
    if is_known(record.call_rows):
        return "prefill"
    if record.measure == "first_token" and how == "static" and is_known(record.slots):
        return "one-prefill"
    if record.measure == "generated_rate" and record.first_of == "batch":
        return "generated-throughput-batch"
    if record.measure == "token_interval" and record.interval_of == "gap" and record.statistic in ("p50", "p25"):
        return "decode-step" if prefills_per_step < 0.5 else "loaded-step"
    questions = QUESTIONS.get(record.measure, {})
    found = questions.get(how, questions.get("loaded", "") if how == "burst" else questions.get("static", ""))
    if not found:
        raise UnreadableRowError(f"{MEANING}: {record.measure} of requests that come {how} has no question")
    return found


def _number(row: Mapping[str, str], name: str, otherwise: float) -> float:
    value = number(row.get(name, ""))
    return otherwise if math.isnan(value) else value


def _whole(value: float) -> str:
    return f"{value:.15g}" if is_known(value) else ""


def _bucket(text: str) -> str:
    return "seq" if text == "length" else text


def _arguments(row: Mapping[str, str], record: Record, how: str) -> dict[str, str]:
    """Return what says how a row of a language model is asked: lengths, batches, ranks."""
    say = _lengths(row, record) | _ranks(row, record)
    slots = _whole(record.slots)
    total = f"total:{slots}".rstrip(":") if record.batch_of == "replicas" else ""
    say["batch"] = say.get("batch", "") or total or slots
    say["clients"] = say.get("clients", "") or record.clients or ("1" if how == "single" else "")
    if how == "loaded":
        in_flight = number(say["clients"]) if is_known(number(say["clients"])) else _number(row, "batch", math.nan)
        waves = record.requests / in_flight if in_flight > 0 else math.nan
        say["waves"] = _whole(max(waves, 1.0)) if is_known(waves) else MANY if record.scheduling == "closed" else ""
    if is_known(record.new_tokens):
        say["new_tokens"] = _whole(record.new_tokens)
    return _filled(say) | _read_as(record)


def _lengths(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return the lengths that a row of a language model is asked at, each with the bucket that is stated for it."""
    one = "seq" if record.buckets == "one" else ""
    lengths = is_known(_number(row, "input_len", math.nan)) and is_known(_number(row, "output_len", math.nan))
    middle = "median" if lengths and record.measure in ("token_interval", "generated_rate", "user_rate") else ""
    context = _bucket(record.context_bucket) or one or _whole(record.pages * record.page_tokens) or middle
    prompt = _bucket(record.prompt_bucket) or one or ("seq" if record.measure == "reprefill_rate" else "")
    if record.measure in ("device_time", "read_bytes", "mbu", "mfu"):
        context, prompt = context or "seq", prompt or "seq"
    longest, given = _whole(record.longest), _whole(record.input_tokens)
    return {"context": context, "prompt": prompt, "longest": longest, "input": given}


def _ranks(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return how experts and attention share out the ranks of a row, and one call of a prefill over them."""
    if is_known(record.attention_tp):
        return {"tp": _whole(record.attention_tp), "moe_ep": _whole(record.attention_tp)}
    say = {"moe_ep": _whole(record.expert_ranks)} if record.expert_ranks > 1 else {}
    if not record.attention_replicas > 1:
        return say
    replicas = _whole(record.attention_replicas)
    say |= {"tp": _whole(_number(row, "tp", math.nan) / record.attention_replicas), "ep": replicas}
    if is_known(record.call_rows):
        prompt = _whole(record.call_rows / record.attention_replicas)
        return say | {"prompt": prompt, "batch": replicas, "clients": replicas}
    return say


def _read_as(record: Record) -> dict[str, str]:
    """Return what says how the number itself is read: its rounding, its unit, its percentile, its format."""
    say = {"where": record.system or record.core_of, "precision": record.format, "rounding": record.rounding}
    say["unit"] = "MB=MiB" if record.megabyte == "binary" else ""
    say["percentile"] = record.statistic[1:] if record.statistic in ("p99", "p90", "p25") else ""
    say["hbm_bytes_per_s"] = _whole(record.hbm_bytes_per_s)
    return _filled(say)


def _unknown(row: Mapping[str, str], record: Record, how: str) -> tuple[str, ...]:
    """Return the columns that matter for a row of a language model and that nothing states."""
    found = [] if record.engine else ["engine"]
    if not row.get("input_len") and not is_known(record.input_tokens) and not row.get("seq_len"):
        found.append("input_tokens")
    if how in ("loaded", "burst"):
        found += [] if record.clients else ["clients"]
        found += [] if is_known(record.slots) or row.get("batch") else ["slots"]
        if record.measure == "first_token" and not is_known(record.requests):
            found.append("requests")
    return tuple(found)


def _encoder(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of an encoder asks."""
    if record.scheduling == "closed":
        raise UnreadableRowError(f"{MEANING}: a server with many clients, whose queue is not described")
    if record.measure not in ENCODERS:
        raise _refused(row)
    if not (row.get("seq_len") or row.get("input_len") or record.prompt_bucket):
        raise UnreadableRowError("no input length, nor a compiled length")
    question = ENCODERS[record.measure]
    say = {
        "stack": "" if record.engine else "torch-neuronx",
        "replicas": record.replicas,
        "prompt": _bucket(record.prompt_bucket),
    } | _read_as(record)
    unknown = () if record.engine else ("engine",)
    return question, _filled(say), USES.get(question, "model"), unknown


def _memory(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of a footprint asks."""
    part = record.measure.removeprefix("memory_")
    if part in ("", "part"):
        raise UnreadableRowError(f"{MEANING}: {shown(row.get('metric', ''))} is no part that the model stores")
    question = f"memory:{'first' if record.rank == 'first' and part == 'total' else part}"
    say = _read_as(record) | ({"moe_ep": _whole(record.expert_ranks)} if record.expert_ranks > 1 else {})
    return question, say, "memory footprint", ()


def _training(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of training asks."""
    if record.measure not in TRAINING:
        raise _refused(row)
    say = _read_as(record) | ({"micro_batch": _whole(record.micro_batch)} if is_known(record.micro_batch) else {})
    if record.adapters == "yes":
        say["trainable_share"] = "0.01"
    return TRAINING[record.measure], say, "training", ()


def _energy(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of watts or joules asks."""
    if record.measure != "watts":
        raise _refused(row)
    return "energy-watts", _read_as(record), "energy", ()


def _kernel(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of a kernel asks."""
    if record.op in ("", "several"):
        raise UnreadableRowError(
            f"{MEANING}: workload {shown(row.get('workload', ''))}: names no kernel with a shape that is known"
        )
    if "launch" in record.inside:
        raise UnreadableRowError(f"{MEANING}: the time holds a launch by a path of unknown cost")
    if record.measure not in KERNELS:
        raise _refused(row)
    shape = _shape(record)
    if missing := [name for name, text in shape.items() if not text and name not in OPTIONAL]:
        raise UnreadableRowError(f"{MEANING}: the row does not state {', '.join(missing)} of its {record.op}")
    say = shape | _read_as(record)
    say |= {"stack": CODE.get(record.code, "stack-nki"), "peak_flop_per_s": _whole(record.peak_flop_per_s)}
    if record.dtype and record.op != "vectors":
        say["dtype"] = record.dtype
    say |= {"transpose": record.transpose or ("tensor" if record.code == "compiler" and record.op == "matmul" else "")}
    say |= {"buffering": record.buffering}
    return KERNELS[record.measure], _filled(say), _kernel_use(record), ()


def _shape(record: Record) -> dict[str, str]:
    """Return the call of a kernel with its sizes."""
    if record.op == "matmul":
        sides = {name: record.m if record.square else getattr(record, name) for name in SIDES}
        return {"kernel": "matmul", "groups": record.groups} | {name: _whole(x) for name, x in sides.items()}
    if record.op == "convolution":
        rows, columns = record.height - record.window + 1, record.width - record.window + 1
        sides = {"m": record.filters, "n": rows * columns, "k": record.channels * record.window**2}
        return {"kernel": "matmul"} | {name: _whole(x) for name, x in sides.items()}
    if record.op == "elementwise":
        name = record.function.lower().replace("_", "")
        return {"kernel": "elementwise", "op": name, "rows": _whole(record.rows), "columns": _whole(record.columns)}
    if record.op == "attention":
        sizes = ("heads", "kv_heads", "head_size", "sequences", "queries", "causal")
        found = {name: _whole(getattr(record, name)) for name in sizes}
        return {"kernel": "attention", **found, "keys": _whole(record.keys) or found["queries"]}
    if record.op == "vectors":
        by_row = record.axis == "row"
        rows = record.elements / record.chunk / (1 if by_row else PARTITIONS)
        row_bytes = FP32_BYTES * (1 if by_row else record.chunk)
        moved = 3 * record.elements * FP32_BYTES
        return _dma(moved, row_bytes, rows, queued="0")
    return _dma(record.transfer_kib * KIB, record.row_bytes, record.transfers, engines=_whole(record.engines))


def _dma(moved_bytes: float, row_bytes: float, transfers: float, **more: str) -> dict[str, str]:
    numbers = {"moved_bytes": moved_bytes, "row_bytes": row_bytes, "transfers": transfers}
    return {"kernel": "dma", **{name: _whole(x) for name, x in numbers.items()}, **more}


def _kernel_use(record: Record) -> str:
    """Return what a kernel's row is used for, by how it was written and what it is."""
    by_code = {"torch-trace": "framework-trace", "torch-compile": "framework-compile", "compiler": "compiler"}
    if record.code in by_code:
        return by_code[record.code]
    if record.version == "baseline":
        return "kernels before tuning"
    if record.measure.endswith("_bytes"):
        return "bytes"
    if record.version == "sweep":
        return "tuned-gemm"
    if record.buffering:
        return "nki-schedule"
    if record.op in ("dma", "vectors"):
        return "dma"
    if record.op == "attention":
        return "framework-attention" if record.causal else "attention"
    if record.op == "elementwise" or record.groups:
        return "memory"
    return "fp32" if record.dtype == "fp32" else "tuned-nki"


def _collective(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of a collective asks."""
    if record.series:
        mean = record.measure == "collective_time" and record.statistic in ("", "mean")
        use = "fit" if mean else "rate" if record.measure in ("busbw", "algbw") else ""
        if not use:
            raise UnreadableRowError(f"{MEANING}: a percentile of the run whose mean is used")
    else:
        use = _collective_use(row, record)
    if record.network == "cards" or record.graph == "null":
        return ASIDE, {}, "network" if record.network == "cards" else "null", ()
    if record.measure not in COLLECTIVES:
        raise _refused(row)
    sized = any(is_known(getattr(record, name)) for name in (*SIZED, "rows"))
    missing = {"kind_of_call": record.kind_of_call, "ranks": is_known(record.ranks), "message_bytes": sized}
    if names := [name for name, there in missing.items() if not there]:
        raise UnreadableRowError(
            f"{MEANING}: the row names no {', '.join(names)} of a collective (its size, ranks and kind)"
        )
    size = (*SIZED, "rows", "columns", "ranks", "count")
    say = {name: _whole(getattr(record, name)) for name in size} | {"kind": record.kind_of_call}
    say |= {"where": ""} | _read_as(record)
    say["series"] = record.series or (row.get("instance", "")[:4] if record.graph == "yes" else "")
    say |= {"algorithm": _algorithm(record), "where": f"hgx-{record.gpu.lower()}" if record.server_of else say["where"]}
    if record.graph == "step":
        return "collective-in-step", _filled(say | {"stack": "gpu-serving"}), use, ()
    question = "graph-time" if record.graph == "yes" else COLLECTIVES[record.measure]
    if not record.series and ("launch" in record.inside or "host" in record.inside):
        raise UnreadableRowError(
            f"{MEANING}: the time holds launches by the host, and the model has none"
        )
    return question, _filled(say), use, ()


def _algorithm(record: Record) -> str:
    """Return the algorithm that a library takes, where it is known: a ring, or one step to all others."""
    if record.engine != "nccl":
        return ""
    return "phased" if re.fullmatch(r"all[_-]?to[_-]?all", record.kind_of_call, re.IGNORECASE) else "ring"


def _collective_use(row: Mapping[str, str], record: Record) -> str:
    if record.graph == "yes":
        return "groups" if record.groups else {1.0: "one", 12.0: "twelve"}.get(record.count, "")
    if record.each:
        return "each"
    if row.get("kind", "").startswith("gpu"):
        return "library" if record.engine == "nccl" else "gpu-all-reduce"
    return "platform not stated" if "not stated" in row.get("instance", "") else ""


def _other(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a row of another chip asks."""
    say = _read_as(record) | {"stack": "ideal" if record.analytic else "gpu-serving"}
    say |= {"percentile": "", "precision": {"fp4": "mxfp4"}.get(row.get("precision", ""), say.get("precision", ""))}
    shape = {name: _whole(getattr(record, name)) for name in (*SIDES, "ranks", "message_bytes")} | {
        "kind": record.kind_of_call
    }
    by_shape = {"chip_matmul": "chip-matmul", "chip_elements": "chip-elements", "step_collective": "collective-in-step"}
    if record.measure in by_shape:
        return by_shape[record.measure], _filled(say | shape), "", ()
    if record.measure == "critical_batch":
        return "critical-batch", _filled(say), "analytic", ()
    if record.layers == "one":
        return _layer(row, record, say)
    if record.lengths == "unknown":
        raise UnreadableRowError(f"{MEANING}: inputs are long, and their lengths are not printed")
    question = _of_other(row, record)
    say |= {"context": "middle", "batch": "total" if question == "loaded-step" else ""}
    unknown = () if row.get("input_len") else ("input_tokens",)
    if question == "decode-step":
        say |= {"input": "" if row.get("input_len") else str(UNKNOWN_INPUT)}
        say |= {"tp": "", "clients": ""}
    if record.attention_replicas > 1:
        say["ep"] = _whole(record.attention_replicas)
    if record.apart == "yes" and question == "loaded-step":
        say["prefill"] = "apart"
    say["engine"] = record.engine.lower() if question == "loaded-step" else ""
    use = "analytic" if record.analytic else "comparator"
    if question == "queued-prefill":
        use, say["clients"] = "GPUs, first token", record.clients
    if record.day.startswith("2024") and use == "comparator":
        use = "GPUs, engines of 2024"
    return question, _filled(say), use, unknown


def _of_other(row: Mapping[str, str], record: Record) -> str:
    """Return the question of a language model on another chip; raises UnreadableRowError for none."""
    if record.measure == "token_interval":
        alone = record.interval_of == "gap" or row.get("metric", "").startswith("decode")
        return "decode-step" if alone else "loaded-step"
    if record.measure == "first_token":
        served = row.get("metric", "").lower().startswith("ttft")
        return "queued-prefill" if served else "prefill"
    if record.measure == "request":
        return "run-of-steps"
    raise _refused(row)


def _layer(row: Mapping[str, str], record: Record, say: Mapping[str, str]) -> Asked:
    """Return what a row of one layer of a model asks, and of an operator in it."""
    say = {**say, "one_layer": "yes", "phase": row["phase"]}
    if record.measure == "layer":
        return "layer-step" if row["phase"] == "decode" else "layer-prefill", _filled(say), "comparator", ()
    if "allreduce" in record.operator.lower():
        return "layer-all-reduce", _filled(say), "library", ()
    if parts := OPERATORS.get(record.operator):
        return "layer-operators", _filled(say | {"parts": parts}), "comparator", ()
    raise UnreadableRowError(f"{MEANING}: {shown(record.operator)} is a part that the model does not time apart")


def _filled(say: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in say.items() if text}


def _wide(row: Mapping[str, str], record: Record) -> Asked:
    """Return what a run of wide expert parallelism asks of the hand-tuned scenario: steps of workers that are apart."""
    if record.apart != "yes" or record.measure not in ("token_interval", "first_token"):
        raise UnreadableRowError(f"{MEANING}: no run with workers apart")
    if read_model(model_of(row["workload"])).kind != "expert":
        raise UnreadableRowError(f"{MEANING}: no model of experts")
    say = {"stack": "hand-tuned", "context": "middle", **_read_as(record)}
    say["precision"] = "w4fp8" if row.get("precision") == "fp4" else ""
    decode = record.measure == "token_interval"
    replicas = record.attention_replicas if decode else record.prefill_replicas
    if replicas > 1:
        say["ep"] = _whole(replicas)
    if decode:
        say["batch"] = "total"
        if record.decode_tp > GPUS_OF_A_SERVER and "h100" in row.get("instance", "").lower():
            say["node_crossings"] = "2"
    return "decode-step" if decode else "prefill", _filled(say | {"percentile": ""}), WIDE, ()


FAMILIES = {
    "inference-LLM": _language,
    "inference-LLM-serving": _language,
    "inference-LLM-profile": _language,
    "inference-LLM-forward": _language,
    "inference-encoder": _encoder,
    "memory-footprint": _memory,
    "training": _training,
    "energy": _energy,
    "kernel": _kernel,
    "collective": _collective,
    "gpu-collective": _collective,
    "other-chip": _other,
    WIDE: _wide,
}
