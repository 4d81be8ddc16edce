"""The one map from a question to the public call that answers it; the question of a row is a name in this map.

Readings that differ in their sizes alone are asked in one call: their sizes are then arrays of one reading.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.jobs import JOBS
from trnmodel.evidence.joules import WATTS
from trnmodel.evidence.primitives import PRIMITIVES, bare_chip, in_step_s
from trnmodel.evidence.readings import Reading, Tune, machine, stack_of
from trnmodel.formulas import roofline
from trnmodel.models.blocks import Phase
from trnmodel.models.transformer import Transformer, model
from trnmodel.serving import account
from trnmodel.serving.account import Load, Times
from trnmodel.steps.inference import MemoryFit, Step, decode_step, memory_fit, prefill
from trnmodel.steps.legal import reaching, running
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import Site, site

HALVINGS = 24  # of a context that is searched for: to a ten-millionth of it
MIDDLE = 50.0  # percentile of a first token of which nothing else is said
SIZES = ("batch", "compiled_batch", "prompt", "input_tokens", "output_tokens", "context", "max_context", "clients")


def _call(r: Reading, tune: Tune | None, longest: Any, phase: Phase) -> dict[str, Any]:
    """Return what every question of a reading is asked with: a run that was measured has been legal."""
    where, chosen, at = machine(r), reaching(model(r.model), float(np.max(longest))), r.degrees
    stack = _running(Same(chosen), Same(site(where, at.lnc)), Same(at), Same(stack_of(r, tune)), phase)
    return {"model": chosen, "system": where, "mapping": at, "precision": r.precision, "efficiencies": stack}


@lru_cache(maxsize=512)
def _running(
    model: Same[Transformer], at: Same[Site], mapping: Same[Degrees], stack: Same[Efficiencies], phase: Phase
) -> Efficiencies:
    """Return what `running` gives: the same object each time, as settings are saved by object."""
    return running(model.it, at.it, mapping.it, stack.it, phase)


def _decode(r: Reading, tune: Tune | None, breakdown: bool = False) -> Step:
    if np.any(np.isnan(r.context)):
        raise UnreadableRowError(
            "no context: neither lengths nor a compiled length; input_len and output_len, or seq_len, would help"
        )
    slots = None if np.any(np.mod(r.compiled_batch, 1)) else r.compiled_batch  # a mean in flight is no compiled shape
    context = _held_context(r, tune) if ("context_is", "assumed") in r.arguments else r.context
    step: dict[str, Any] = {"batch": r.batch, "compiled_batch": slots, "context": context}
    step |= {"new_tokens": r.new_tokens} if r.new_tokens != 1 else {}
    longest = context if context is not r.context else np.maximum(r.max_context, context)
    call = _call(r, tune, longest, "decode")
    return _possible(decode_step(**call, **step, max_context=longest, breakdown=breakdown))


def _held_context(r: Reading, tune: Tune | None) -> Any:
    """Return the mean context of a paged cache: an assumed one, or the longest that its sequences have room for.

    A server takes in no more sequences than its pages hold, so that those of a run that is printed without its inputs
    were together no longer than the cache.
    """
    assumed = np.asarray(r.context, dtype=float)

    def fits(context: NDArray) -> NDArray:
        return np.asarray(decode_step(**_call(r, tune, context, "decode"), batch=r.batch, context=context).valid)

    low, high, roomy = np.ones_like(assumed), assumed, fits(assumed)
    if roomy.all():
        return r.context
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        held = fits(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return np.where(roomy, assumed, low)[()]


def _prefill(r: Reading, tune: Tune | None, batch: Any = 1.0, breakdown: bool = False) -> Step:
    if np.any(np.isnan(r.prompt)):
        raise UnreadableRowError("no input length, nor a compiled length; input_len or seq_len would help")
    longest = np.maximum(r.max_context, r.prompt)
    step: dict[str, Any] = {"batch": batch, "input_tokens": r.prompt, "max_context": longest, "breakdown": breakdown}
    return _possible(prefill(**_call(r, tune, longest, "prefill"), **step))


def _possible(step: Step) -> Step:
    """Return a step, refused where its one point cannot exist; of many points these have no numbers."""
    return step if np.ndim(step.reason_mask) else step.require_valid()


def _step_s(r: Reading, tune: Tune | None) -> Any:
    return _decode(r, tune).time_s


def _prefill_s(r: Reading, tune: Tune | None) -> Any:
    return _prefill(r, tune, r.batch).time_s


def _one_prefill_s(r: Reading, tune: Tune | None) -> Any:
    return _prefill(r, tune).time_s


def _output(r: Reading) -> Any:
    if not np.all(np.greater(r.output_tokens, 0)):
        raise UnreadableRowError("no output length; output_len would help")
    return r.output_tokens


def _arrivals_per_s(r: Reading) -> Any:
    """Return the requests that come to a replica in an open loop, whatever it has answered; nothing for another run."""
    return dict(r.arguments).get("arrivals_per_s")


def _times(r: Reading, tune: Tune | None) -> Times:
    """Return the times of a replica as the account of a server takes them."""
    one, prompt_s = np.ones(()), _one_prefill_s(r, tune)
    return Times(
        batch=np.asarray(r.compiled_batch),
        step_s=_step_s(r, tune),
        tokens_per_step=one,
        alone_s=prompt_s,
        together_s=prompt_s,
        groups=one,
        chunks=one,
        host_s=np.asarray(_server_s(r, tune)),
        compiled=True,
    )


def _account(r: Reading, tune: Tune | None) -> tuple[Times, Load]:
    """Return the times of a replica and its load, from its arrivals, as `tm.serve` has them."""
    times, rate = _times(r, tune), _arrivals_per_s(r)
    if np.any(np.greater(rate, account.full_requests_per_s(times, _output(r)))):
        raise UnreadableRowError(
            f"note: {rate:g} requests/s are more than a replica makes: its queue grows as long as the run lasts; "
            "the throughput of the run can be asked"
        )
    return times, account.under(times, rate, _output(r))


def _stalled_step_s(r: Reading, tune: Tune | None) -> Any:
    """Return a decode step plus its part of the prefills of the other requests, one an output length, on one machine.

    In a closed loop of `waves` requests a slot, half of those that start together are not stalled by each other.
    """
    if _arrivals_per_s(r):
        return _account(r, tune)[1].tpot_s
    if ("prefill", "apart") in r.arguments:
        return _step_s(r, tune)
    share, steps = (1 - 1 / (2 * r.waves), np.maximum(_output(r) - 1, 1.0)) if r.waves else (1.0, _output(r))
    return _step_s(r, tune) + share * np.maximum(r.batch - 1, 0.0) * _one_prefill_s(r, tune) / steps


def _server_s(r: Reading, tune: Tune | None) -> Any:
    """Return what a server adds to a first token outside the chips; nothing where no server is stated."""
    return stack_of(r, tune).server_first_token_s if ("server", "yes") in r.arguments else 0.0


def _alone_s(r: Reading, tune: Tune | None) -> Any:
    """Return the time to a first token of a request that no other delays."""
    return _one_prefill_s(r, tune) + _server_s(r, tune)


def _first_token_s(r: Reading, tune: Tune | None) -> Any:
    """Return a prefill; in a closed loop also half the prefills of a first wave, and half a step.

    In an open loop it waits for the prefills of others, as `tm.serve` has it.
    """
    if _arrivals_per_s(r):
        times, load = _account(r, tune)
        return account.ttft_s(times, load.utilisation, float(r.percentile or MIDDLE) / 100)
    if not r.waves:
        return _alone_s(r, tune)
    waiting = 1 + np.maximum(r.batch - 1, 0.0) / 2 / r.waves
    return waiting * _one_prefill_s(r, tune) + _server_s(r, tune) + _step_s(r, tune) / 2


def _run_s(r: Reading, tune: Tune | None) -> Any:
    first_s = _prefill_s(r, tune) + _server_s(r, tune)
    return first_s + np.maximum(_output(r) - 1, 0) * _step_s(r, tune)


def _batch_run_s(r: Reading, tune: Tune | None) -> Any:
    return r.batch * _one_prefill_s(r, tune) + np.maximum(_output(r) - 1, 0) * _step_s(r, tune)


def _loaded_s(r: Reading, tune: Tune | None) -> Any:
    steps = _output(r) - 1 if r.waves or _arrivals_per_s(r) else _output(r)
    return _first_token_s(r, tune) + steps * _stalled_step_s(r, tune)


def _served(r: Reading, tune: Tune | None) -> Any:
    if arrivals := _arrivals_per_s(r):
        most = account.full_requests_per_s(_times(r, tune), _output(r))
        return r.mapping[2] * np.minimum(arrivals, most) * _output(r)
    in_flight = np.where(np.less(r.clients, 1), r.clients, r.batch)  # fewer clients than replicas
    return r.mapping[2] * in_flight * _output(r) / _loaded_s(r, tune)


def _waiting_s(r: Reading, tune: Tune | None) -> Any:
    """Return what a request waits for a slot in a closed loop of more clients than slots.

    By Little's law it stays clients / slots times as long as one that has a slot. Of the first wave, whose requests all
    come to an empty server, the mean wait is half of that.
    """
    rounds = np.nan_to_num(np.maximum(r.clients / r.compiled_batch - 1, 0.0))  # none where clients are unknown
    return rounds * (1 - 1 / (2 * r.waves) if r.waves else 0.5) * _loaded_s(r, tune)


def _waited_first_token_s(r: Reading, tune: Tune | None) -> Any:
    return _first_token_s(r, tune) + _waiting_s(r, tune)


def _waited_request_s(r: Reading, tune: Tune | None) -> Any:
    return _loaded_s(r, tune) + _waiting_s(r, tune)


def _total(r: Reading, tune: Tune | None) -> Any:
    tokens = r.input_tokens + _output(r)
    return r.batch * tokens / _run_s(r, tune)


def stored_bytes(r: Reading, batch: Any, context: Any, tune: Tune | None = None) -> MemoryFit:
    """Return what a rank of a reading stores, by kind."""
    phase: Phase = "decode" if model(r.model).generates else "prefill"
    return memory_fit(**_call(r, tune, context, phase), batch=batch, context=context)


def _memory(kind: str) -> Callable[[Reading, Tune | None], Any]:
    def stored(r: Reading, tune: Tune | None) -> Any:
        return getattr(stored_bytes(r, r.batch, r.max_context, tune), kind)

    return stored


def _mbu(r: Reading, tune: Tune | None) -> Any:
    step = _decode(r, tune)
    return step.moved_bytes_per_rank / step.time_s / site(machine(r), r.mapping[3]).hbm_bytes_per_s


def _mfu(r: Reading, tune: Tune | None) -> Any:
    step = _prefill(r, tune)
    return step.work_flop_per_rank / step.time_s / site(machine(r), r.mapping[3]).peak(r.precision.compute)


def _operators_s(r: Reading, tune: Tune | None) -> Any:
    """Operators of one layer, each at the slower of its compute and its memory."""
    step = _decode(r, tune, True) if _decodes(r) else _prefill(r, tune, r.batch, True)
    parts = str(dict(r.arguments)["parts"]).split("|")
    lines = [line for name, line in step.operators.items() if name.split(": ")[-1] in parts]
    return sum(np.maximum(line.compute_s, line.memory_s) for line in lines) / model(r.model).n_layers


def _decodes(r: Reading) -> bool:
    return dict(r.arguments)["phase"] == "decode"


def _layer_all_reduce_s(r: Reading, tune: Tune | None) -> Any:
    tokens = r.batch * (1 if _decodes(r) else r.prompt)
    size = tokens * model(r.model).hidden_size * r.precision.storage_bytes("activations")
    return in_step_s(r, tune, "all_reduce", size, r.mapping[0])


def _critical_batch(r: Reading, tune: Tune | None) -> float:
    """Tokens at which a matmul reads its weights as fast as it multiplies: FLOP a byte over 2 FLOP, times its bytes."""
    chip = bare_chip(r)
    ridge = roofline.ridge_point_flop_per_byte(chip.peak("bf16"), chip.hbm_bytes_per_s)
    return float(ridge) * r.precision.storage_bytes("weights") / 2


QUESTIONS: Mapping[str, Callable[[Reading, Tune | None], Any]] = {
    "decode-step": _step_s,
    "decode-throughput": lambda r, tune: r.batch / _step_s(r, tune),
    "decode-speed": lambda r, tune: 1 / _step_s(r, tune),
    "all-decode-throughput": lambda r, tune: r.mapping[2] * r.batch / _step_s(r, tune),
    "prefill": _prefill_s,
    "forward": _prefill_s,
    "forward-throughput": lambda r, tune: r.batch * r.mapping[2] / _prefill_s(r, tune),
    "batch-prefill": lambda r, tune: r.batch * _one_prefill_s(r, tune),
    "burst-prefill": lambda r, tune: (r.batch + 1) / 2 * _one_prefill_s(r, tune) + _server_s(r, tune),
    "prefill-throughput": lambda r, tune: r.batch * r.input_tokens / _prefill_s(r, tune),
    "reprefill-throughput": lambda r, tune: r.batch / _prefill_s(r, tune),
    "request-latency": _run_s,
    "run-per-token": lambda r, tune: _run_s(r, tune) / (r.input_tokens + _output(r)),
    "run-per-output-token": lambda r, tune: _run_s(r, tune) / _output(r),
    "run-of-steps": lambda r, tune: _one_prefill_s(r, tune) + _output(r) * _step_s(r, tune),
    "generated-throughput": lambda r, tune: r.batch * _output(r) / _run_s(r, tune),
    "generated-throughput-batch": lambda r, tune: r.batch * _output(r) / _batch_run_s(r, tune),
    "total-throughput": _total,
    "loaded-step": _stalled_step_s,
    "loaded-speed": lambda r, tune: 1 / _stalled_step_s(r, tune),
    "loaded-request": _loaded_s,
    "loaded-per-token": lambda r, tune: _loaded_s(r, tune) / _output(r),
    "served-throughput": _served,
    "served-total-throughput": lambda r, tune: _served(r, tune) * (r.input_tokens + _output(r)) / _output(r),
    "served-input-throughput": lambda r, tune: _served(r, tune) / _output(r) * r.input_tokens,
    "served-requests": lambda r, tune: _served(r, tune) / _output(r),
    "one-prefill": _alone_s,
    "queued-prefill": _first_token_s,
    "waiting-prefill": _waited_first_token_s,
    "waiting-step": _stalled_step_s,
    "waiting-request": _waited_request_s,
    "waiting-per-token": lambda r, tune: _waited_request_s(r, tune) / _output(r),
    "decode-read-bytes": lambda r, tune: _decode(r, tune).moved_bytes_per_rank,
    "decode-mbu": _mbu,
    "prefill-mfu": _mfu,
    "memory:total": _memory("total_bytes"),
    "memory:first": _memory("first_rank_total_bytes"),
    "memory:weights": _memory("weight_bytes"),
    "memory:cache": _memory("cache_bytes"),
    "memory:tensors": lambda r, tune: _memory("weight_bytes")(r, tune) + _memory("cache_bytes")(r, tune),
    "memory:scratchpad": _memory("scratchpad_bytes"),
    "memory:collective": _memory("collective_buffer_bytes"),
    "memory:ring": _memory("ring_bytes"),
    "memory:code": _memory("code_bytes"),
    "layer-step": lambda r, tune: _step_s(r, tune) / model(r.model).n_layers,
    "layer-prefill": lambda r, tune: _prefill_s(r, tune) / model(r.model).n_layers,
    "layer-operators": _operators_s,
    "layer-all-reduce": _layer_all_reduce_s,
    "critical-batch": _critical_batch,
    **JOBS,
    **WATTS,
    **PRIMITIVES,
}


def _answer(r: Reading, tune: Tune | None) -> Any:
    """Return what the model gives for a reading, or for each of its sizes where these are arrays."""
    value = QUESTIONS[r.meaning](r, tune)
    late = r.percentile == "99" and not _arrivals_per_s(r)  # the account of arrivals has its own percentiles
    if late and r.meaning.endswith(("step", "prefill", "token", "forward", "latency")):
        value = value * stack_of(r, tune).p99_over_p50
    return value


def predict(r: Reading, tune: Tune | None = None) -> float:
    """Return what the model gives for a reading, in base units; raises UnreadableRowError with the reason for none."""
    try:
        value = float(_answer(r, tune))
    except UnreadableRowError:
        raise
    except ValueError as error:
        raise UnreadableRowError(str(error)) from None
    if not math.isfinite(value):
        raise UnreadableRowError("the model has no figure for a part of this row")
    if not value > 0:
        raise UnreadableRowError("the model gives nothing for what this row measures")
    return value


def alike(r: Reading) -> Hashable:
    """Return what readings share that one call answers: all that a prediction depends on but sizes.

    Kernels, collectives, steps of training and watts are asked one by one.
    """
    if r.meaning in PRIMITIVES or r.meaning in JOBS or r.meaning in WATTS:
        return r
    machine_of = r.where, r.stack, r.mapping, r.ep, r.moe_ep, r.machines
    blank = tuple(math.isnan(getattr(r, name)) for name in SIZES)
    question = r.meaning, r.model, r.precision, r.percentile, r.arguments, r.waves, r.new_tokens
    return machine_of, question, blank, r.compiled_batch % 1 > 0


def grouped(of: Iterable[Reading], key: Callable[[Reading], Hashable] = alike) -> list[list[Reading]]:
    """Return readings in groups of one key, each in the order in which they stand."""
    groups: dict[Hashable, list[Reading]] = defaultdict(list)
    for r in of:
        groups[key(r)].append(r)
    return list(groups.values())


def together(group: Sequence[Reading], tune: Tune | None = None) -> NDArray:
    """Return what the model gives for readings that are `alike`; NaN where it has no figure, for whatever reason.

    Of a stack with arrays of values, which come before the readings, the answers have these dimensions too.
    """
    sizes: dict[str, Any] = {name: np.array([getattr(r, name) for r in group]) for name in SIZES}
    try:
        value = np.asarray(_answer(replace(group[0], **sizes), tune), dtype=float)
    except ValueError:
        return np.full(len(group), np.nan)
    shape = np.broadcast_shapes(value.shape, (len(group),))
    return np.broadcast_to(np.where(np.isfinite(value) & (value > 0), value, np.nan), shape)


def predicted(of: Iterable[Reading], tune: Tune | None = None) -> dict[Reading, float | UnreadableRowError]:
    """Return what `predict` gives for each reading, or the reason for none; those that are alike are asked together."""
    answers: dict[Reading, float | UnreadableRowError] = {}
    for group in grouped(of):
        values = together(group, tune).tolist() if len(group) > 1 else [math.nan]
        answers |= {r: _alone(r, tune) if math.isnan(x) else x for r, x in zip(group, values, strict=True)}
    return answers


def _alone(r: Reading, tune: Tune | None) -> float | UnreadableRowError:
    """Return what the model gives for a reading by itself, or the reason for none."""
    try:
        return predict(r, tune)
    except UnreadableRowError as reason:
        return UnreadableRowError(str(reason))  # without the frames that it was raised in
