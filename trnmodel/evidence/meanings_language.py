"""What a row of a language model asks, by its measure and by how its requests come; and a row of an encoder."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec.structs import replace

from trnmodel.evidence.cells import UnreadableRowError, number
from trnmodel.evidence.meanings_common import (
    MACHINE,
    MEANING,
    Question,
    cell,
    no_meaning,
    read_as,
    whole,
    without_blanks,
)
from trnmodel.evidence.records import Record, is_known

# the question of a measure by how its requests come
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
PROFILED = ("mfu", "mbu", "read_bytes", "device_time")  # measures that say nothing without a phase
PHASED = ", ".join(f"{measure} of a {phase}" for measure, phase in BY_PHASE)
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
    "waiting-request": "serving, waiting in a queue",
    "waiting-per-token": "serving, waiting in a queue",
    "loaded-per-token": "serving, latency of a request",
}  # what a question's rows are used for; constants of the model are fitted to those of other questions
WAITING = {  # more clients than slots
    "queued-prefill": "waiting-prefill",
    "loaded-step": "waiting-step",
    "loaded-request": "waiting-request",
    "loaded-per-token": "waiting-per-token",
}
METRICS = "TTFT, TPOT, ITL, request latency, throughput, requests per second, MFU, MBU"
WAVES = "8"  # requests of a client of a closed loop, where nobody says how many: the middle of the runs that state it
HALF = 0.5  # a middle gap between tokens holds a prefill where at least half of the steps wait for one


def language(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of a language model asks.

    Parameters
    ----------
    row : mapping of str to str
        Its cells, with `kind` and `phase` as `trnmodel.evidence.spellings.spelt` has them. [-]
    record : Record
        Its typed columns. [-]

    Returns
    -------
    question : Question
        The question, how it is asked, what the row is used for, and the columns that matter and nobody states. [-]

    Examples
    --------
    >>> served = Record(measure="first_token", clients="8", served="yes", slots=4.0, requests=64.0, engine="kiln")
    >>> language({"phase": "", "input_len": "512"}, served)[::2]
    ('waiting-prefill', 'serving, waiting in a queue')
    """
    _require_answerable(row, record)
    record = _completed(row, record)
    replicas = max(cell(row, "dp", 1.0), 1.0)
    how, phase = load(record, replicas), row["phase"].lower()
    if record.generates == "no":
        name = _embedding(record, how)
    else:
        name = _question(record, how, phase, _prefills_per_step(row, record, replicas))
    slots = record.slots if is_known(record.slots) else cell(row, "batch")
    if number(record.clients) / replicas > slots * (1 + 1e-9):
        name = WAITING.get(name, name)
    return Question(name, _arguments(row, record, how, replicas), _use(record, name), _unknown(row, record, how))


def _require_answerable(row: Mapping[str, str], record: Record) -> None:
    """Refuse a row of a language model whose number holds what the model has no question for."""
    drafted = record.draft_tokens > 0 and record.measure not in ("first_token", "mfu")
    apart = record.apart == "yes" and is_known(record.prefill_machines)
    reasons = {
        f"{MEANING}: the host calls operators one by one, whose launches have no stack here; "
        "a run of a compiled graph can be asked": record.kernels == "eager",
        f"{MEANING}: a draft proposes tokens, and the share that is accepted has no question here; "
        "a run without a draft can be asked": drafted,
        f"{MEANING}: prompts are partly cached, and the page does not state which part; "
        "a run without a cache of prefixes can be asked": bool(record.cached),
        f"{MEANING}: the lengths are not printed; input_len and output_len would help": record.lengths == "unknown",
        f"{MACHINE}: prefill and decode run on machines of their own, and the network between them "
        "has no question here": apart,
    }
    if not record.measure:
        raise no_meaning(row, METRICS)
    for reason, holds in reasons.items():
        if holds:
            raise UnreadableRowError(reason)


def _completed(row: Mapping[str, str], record: Record) -> Record:
    """Return a record with the clients that its batch stands for; a bare latency with clients is that of a request."""
    if record.clients == "batch":
        record = replace(record, clients=row.get("batch", ""))
    if record.interval_of == "bare" and record.clients:
        record = replace(record, measure="request")
    return record


def load(record: Record, replicas: float) -> str:
    """Return how the requests of a record come: "static", "single", "loaded" or "burst".

    Parameters
    ----------
    record : Record
        Its scheduling, its clients, and whether it is served. [-]
    replicas : float
        Replicas that share out the clients. [-]

    Returns
    -------
    load : str
        "static": one batch starts and ends together; "single": no request waits for another; "loaded": requests
        share the machine as they come; "burst": all of them start at once. [-]

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


def _embedding(record: Record, how: str) -> str:
    """Return the question of a model that embeds: a request is one pass over its prompt."""
    if how != "single" or record.measure not in ("request", "first_token"):
        raise UnreadableRowError(
            f"{MEANING}: a server that embeds has no queue here; the latency of one request at a time can be asked"
        )
    return "one-prefill"


def _question(record: Record, how: str, phase: str, prefills_per_step: float) -> str:
    """Return the question of a language model's measure under a load; raises UnreadableRowError for none."""
    quiet = how in ("static", "single")
    if quiet and (record.measure, phase) in BY_PHASE:
        return _by_phase(record, phase)
    if record.measure in PROFILED:
        of = phase or "run without a phase"
        raise UnreadableRowError(f"{MEANING}: {record.measure} of a {of} has no question; those that have are {PHASED}")
    return _by_detail(record, how, prefills_per_step) or _by_load(record.measure, how)


def _by_phase(record: Record, phase: str) -> str:
    """Return the question of a measure in a phase; a rate is that of all replicas where the row says so."""
    name = BY_PHASE[record.measure, phase]
    return "all-decode-throughput" if name == "decode-throughput" and record.rate_of == "replicas" else name


def _by_detail(record: Record, how: str, prefills_per_step: float) -> str:
    """Return the question of a measure that a further column changes; nothing where none does."""
    if record.measure == "first_token" and record.first_of == "batch":
        return "batch-prefill"
    if is_known(record.call_rows):
        return "prefill"
    if record.measure == "first_token" and how == "static" and is_known(record.slots):
        return "one-prefill"
    if record.measure == "generated_rate" and record.first_of == "batch":
        return "generated-throughput-batch"
    if record.measure == "token_interval" and record.interval_of == "whole":
        return "run-per-output-token" if how in ("static", "single") else "loaded-per-token"
    if record.measure == "token_interval" and record.interval_of == "gap" and record.statistic in ("p50", "p25"):
        return "decode-step" if prefills_per_step < HALF else "loaded-step"
    return ""


def _by_load(measure: str, how: str) -> str:
    """Return the question of a measure by how its requests come; raises UnreadableRowError for none."""
    questions = QUESTIONS.get(measure, {})
    name = questions.get(how, questions.get("loaded" if how == "burst" else "static", ""))
    if not name:
        loads = ", ".join(questions) or "no load"
        raise UnreadableRowError(f"{MEANING}: {measure} of a {how} run has no question; it has one of {loads}")
    return name


def _prefills_per_step(row: Mapping[str, str], record: Record, replicas: float) -> float:
    """Return the calls of a prefill in a step of a server: those of a prompt, for each request, over its output."""
    if record.bound == "prefill":
        return 1.0
    in_flight = number(record.clients) if is_known(number(record.clients)) else cell(row, "batch", 0.0)
    replicas_of_attention = record.attention_replicas if is_known(record.attention_replicas) else 1.0
    chunk = record.prefill_chunk / replicas_of_attention
    calls = cell(row, "input_len", 0.0) / chunk if record.prefill_chunk > 0 else 1.0
    return in_flight / replicas * max(calls, 1.0) / max(cell(row, "output_len", math.inf), 1.0)


def _use(record: Record, name: str) -> str:
    """Return what a row of a question is used for."""
    use = USES.get(name, "model")
    if record.maker == "gpu":
        return "GPUs in tables of Trainium"
    return "steps cut into graphs" if record.launches > 1 and use == "model" else use


def _arguments(row: Mapping[str, str], record: Record, how: str, replicas: float) -> dict[str, str]:
    """Return the arguments that say how a row is asked: lengths, ranks, batches and clients."""
    arguments = _lengths(row, record) | _ranks(row, record)
    slots = whole(record.slots)
    total = f"total:{slots}".rstrip(":") if record.batch_of == "replicas" else ""
    clients = arguments.get("clients", "") or record.clients or ("1" if how == "single" else "")
    arguments |= {
        "batch": arguments.get("batch", "") or total or slots,
        "clients": clients,
        "waves": _waves(row, record, number(clients)) if how == "loaded" else "",
        "new_tokens": whole(record.new_tokens),
        "server": record.served,
        "active": whole(record.in_flight / replicas),
        "arrivals_per_s": whole(record.arrival_per_s / replicas) if how == "loaded" else "",
    }
    return without_blanks(arguments) | read_as(record)


def _waves(row: Mapping[str, str], record: Record, clients: float) -> str:
    """Return how many requests of a closed loop each client sends, one after another."""
    in_flight = clients if is_known(clients) else cell(row, "batch")
    waves = record.requests / in_flight if in_flight > 0 else math.nan
    if is_known(waves):
        return whole(max(waves, 1.0))
    return WAVES if record.scheduling == "closed" else ""


def _bucket(text: str) -> str:
    """Return the policy of a length: "seq" for the compiled length, or the tokens of a bucket."""
    return "seq" if text == "length" else text


def _lengths(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return the lengths that a row of a language model is asked at, each with the bucket that is stated for it."""
    one = "seq" if record.buckets == "one" else ""
    both = is_known(cell(row, "input_len")) and is_known(cell(row, "output_len"))
    middle = "median" if both and record.measure in ("token_interval", "generated_rate", "user_rate") else ""
    context = _bucket(record.context_bucket) or one or whole(record.pages * record.page_tokens) or middle
    prompt = _bucket(record.prompt_bucket) or one or ("seq" if record.measure == "reprefill_rate" else "")
    if record.measure in PROFILED:
        context, prompt = context or "seq", prompt or "seq"
    return {
        "context": context,
        "prompt": prompt,
        "longest": whole(record.longest),
        "input": whole(record.input_tokens),
    }


def _ranks(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return how experts and attention share out the ranks of a row, and one call of a prefill over them."""
    if is_known(record.attention_tp):
        return {"tp": whole(record.attention_tp), "moe_ep": whole(record.attention_tp)}
    arguments = {"moe_ep": whole(record.expert_ranks)} if record.expert_ranks > 1 else {}
    arguments |= {"ep": whole(record.expert_groups)} if record.expert_groups > 1 else {}
    if not record.attention_replicas > 1:
        return arguments
    replicas = whole(record.attention_replicas)
    arguments |= {"tp": whole(cell(row, "tp") / record.attention_replicas), "ep": replicas}
    if is_known(record.call_rows):
        prompt = whole(record.call_rows / record.attention_replicas)
        arguments |= {"prompt": prompt, "batch": replicas, "clients": replicas}
    return arguments


def _unknown(row: Mapping[str, str], record: Record, how: str) -> tuple[str, ...]:
    """Return the columns that matter for a row of a language model and that nothing states."""
    loaded = how in ("loaded", "burst")
    lengths = row.get("input_len") or row.get("seq_len") or is_known(record.input_tokens)
    missing = {
        "engine": not record.engine,
        "input_tokens": not lengths,
        "clients": loaded and not record.clients,
        "slots": loaded and not (is_known(record.slots) or row.get("batch")),
        "requests": loaded and record.measure == "first_token" and not is_known(record.requests),
    }
    return tuple(name for name, is_missing in missing.items() if is_missing)


def encoder(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of an encoder asks.

    Parameters
    ----------
    row : mapping of str to str
        Its cells. [-]
    record : Record
        Its typed columns. [-]

    Returns
    -------
    question : Question
        One pass of a batch, or sequences over time. [-]

    Examples
    --------
    >>> encoder({"seq_len": "128"}, Record(measure="forward_rate", engine="torch-neuronx")).name
    'forward-throughput'
    """
    if record.scheduling == "closed":
        raise UnreadableRowError(
            f"{MEANING}: a server with many clients, whose queue is not described; "
            "the latency of one batch can be asked"
        )
    if record.measure not in ENCODERS:
        raise no_meaning(row, "latency, throughput")
    if not (row.get("seq_len") or row.get("input_len") or record.prompt_bucket):
        raise UnreadableRowError("no input length, nor a compiled length; input_len or seq_len would help")
    name = ENCODERS[record.measure]
    arguments = {
        "stack": "" if record.engine else "torch-neuronx",
        "replicas": record.replicas,
        "prompt": _bucket(record.prompt_bucket),
    } | read_as(record)
    return Question(name, without_blanks(arguments), USES.get(name, "model"), () if record.engine else ("engine",))
