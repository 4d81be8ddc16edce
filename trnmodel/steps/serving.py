"""Steady serving: requests that arrive at a rate, the batch they form, and when their tokens come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, choice, flag, instance, numbers, refuse, share, together
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Chip, Precision, published
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.systems import System
from trnmodel.fabric.groups import chip_links
from trnmodel.formulas import latency, memory
from trnmodel.formulas.step import compiled_tokens
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Judged, alike, blank, reason_mask, tidy
from trnmodel.steps.ground import joint_basis, joint_spread
from trnmodel.steps.inference import Step, decode_step, prefill
from trnmodel.steps.legal import of_lengths
from trnmodel.steps.mapping import CUTS, Mapping
from trnmodel.steps.rank import Site, site
from trnmodel.units import Numeric

BATCHING = ("continuous", "static")
NORMAL_99 = 2.3263478740408408  # 99th percentile of the standard normal distribution
SEARCH_STEPS = 40
SERVE_REASONS = (
    "prompts arrive faster than they are prefilled",
    "more requests in flight than the largest batch",
    *Step.REASONS,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Serving(Judged):
    """Steady serving of one mapping, all replicas together; times are of one request.

    `batch` is the mean number of requests that decode at once in a replica. TPOT holds the stalls by prefills of other
    requests; ITL (`step_s` over the tokens of a step) does not.
    """

    REASONS: ClassVar[tuple[str, ...]] = SERVE_REASONS
    FIGURE: ClassVar[str] = "tpot_mean_s"

    system: System | Chip
    stack: Efficiencies
    requests_per_s: NDArray
    batch: NDArray
    step_s: NDArray
    prefill_s: NDArray
    tokens_per_step: NDArray
    prefill_utilisation: NDArray
    ttft_p50_s: NDArray
    ttft_p99_s: NDArray
    tpot_mean_s: NDArray
    tpot_p99_s: NDArray
    request_s: NDArray
    tokens_per_s: NDArray
    tokens_per_s_per_user: NDArray
    tokens_per_s_per_chip: NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Disaggregated(Judged):
    """Prefill and decode on machines of their own, and the ratio of replicas at which neither waits.

    `stack` is that of decode; the basis is that of the weaker side.
    """

    REASONS: ClassVar[tuple[str, ...]] = ("prefill cannot exist", "decode cannot exist")
    FIGURE: ClassVar[str] = "tokens_per_s_per_chip"
    UNBANDED: ClassVar[tuple[str, ...]] = ("batch", "transfer_bytes")

    prefill_system: System | Chip
    prefill_stack: Efficiencies
    decode_system: System | Chip
    stack: Efficiencies
    batch: NDArray
    prefill_s: NDArray
    transfer_s: NDArray
    transfer_bytes: NDArray
    step_s: NDArray
    ttft_s: NDArray
    prefill_replicas_per_decode_replica: NDArray
    prefill_chips_per_decode_chip: NDArray
    requests_per_s_per_decode_replica: NDArray
    tokens_per_s_per_chip: NDArray

    @property
    def stack_kind(self) -> str:
        """That of both sides; "mixed" where they differ."""
        return self.stack.kind if self.stack.kind == self.prefill_stack.kind else "mixed"


def tokens_per_step(draft_tokens: Numeric, acceptance: Numeric) -> NDArray:
    """Tokens that a verified draft yields in one step, as `formulas.latency` has them.

    Examples
    --------
    >>> float(tokens_per_step(0, 0.7)), round(float(tokens_per_step(3, 0.5)), 3), float(tokens_per_step(4, 1.0))
    (1.0, 1.875, 5.0)
    """
    d, a = numbers("draft_tokens", draft_tokens, whole=True), share("acceptance", acceptance)
    together(draft_tokens=d, acceptance=a)
    return latency.tokens_per_step(d, a)


def _in_flight(held: Callable[[NDArray], NDArray], top: NDArray, policy: str) -> NDArray:
    """Requests that decode at once, where those that steps of a batch hold (by Little) depend on how many run."""
    if policy == "maximum":
        return held(np.ones(()))
    low, high = np.zeros(np.shape(top)), top.astype(float)
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        more_wanted = held(middle) > middle
        low, high = np.where(more_wanted, middle, low), np.where(more_wanted, high, middle)
    return np.where(held(np.asarray(top, dtype=float)) > top, np.inf, high)


def _runs(batch: NDArray, policy: str, top: NDArray) -> NDArray:
    """The batch that a step runs for the requests in flight, at least one and at most the largest."""
    active = np.clip(np.nan_to_num(batch, nan=1.0, posinf=1.0), 1.0, top)
    return compiled_tokens(active, top, 1.0, policy)


def serve(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    requests_per_s: Numeric,
    input_tokens: Numeric,
    output_tokens: Numeric,
    max_batch: Numeric,
    max_context: Numeric | None = None,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
    batching: str = "continuous",
    compiled: bool | None = None,
    chunk_tokens: Numeric | None = None,
    prefix_share: Numeric = 0.0,
    draft_tokens: Numeric = 0,
    acceptance: Numeric = 0.0,
    draft_step_s: Numeric = 0.0,
) -> Serving:
    r"""Steady serving under a request rate.

    .. math:: \tau = \frac{t_{step}(B)}{E\,(1 - \lambda P)}, \qquad n = \lambda\, o\, \tau

    A replica prefills one prompt after another and decodes in the time that is left (continuous batching); n requests
    decode at once.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies
        As in `decode_step`; `dp` replicas share the requests evenly. [-]
    requests_per_s : numeric
        Requests that arrive at all replicas together. [1/s]
    input_tokens, output_tokens : numeric
        Of one request. [token]
    max_batch : numeric
        Largest batch of a replica; the compiled one where batches are compiled. [-]
    max_context : numeric, optional
        Longest context that the graphs are compiled for; default input and output. [token]
    batching : str
        "continuous", or "static": a batch starts when it is full and ends together. [-]
    compiled : bool, optional
        Whether a step runs the largest batch whatever is active; default the stack's way (`batch_bucket`): Neuron's
        graphs do, serving stacks of GPUs and the ideal one run what is active. [-]
    chunk_tokens : numeric, optional
        Prefill in chunks of so many tokens, one before each decode step. [token]
    prefix_share : numeric
        Share of the prompt whose cache is there already. [-]
    draft_tokens, acceptance, draft_step_s : numeric
        Speculation: tokens of a draft, chance that each is accepted, and the time of one draft step. [-, -, s]

    Returns
    -------
    serving : Serving
        Arrays of the broadcast shape. [-]

    Notes
    -----
    Assumes Poisson arrivals; prompts queue for the prefill with fixed service times (M/D/1, exponential tail).
    """
    mapping = Mapping() if mapping is None else _mapping("mapping", mapping)
    asked = {
        "requests_per_s": numbers("requests_per_s", requests_per_s, TINY),
        **{
            name: numbers(name, value, 1)
            for name, value in (("input_tokens", input_tokens), ("output_tokens", output_tokens))
        },
        "max_batch": numbers("max_batch", max_batch, 1, whole=True),
        "prefix_share": share("prefix_share", prefix_share),
    }
    draft = (
        numbers("draft_tokens", draft_tokens, whole=True),
        share("acceptance", acceptance),
        numbers("draft_step_s", draft_step_s),
    )
    chunk = None if chunk_tokens is None else numbers("chunk_tokens", chunk_tokens, 1, whole=True)
    ends = asked["input_tokens"], asked["output_tokens"]
    longest = None if max_context is None else numbers("max_context", max_context, 1)
    optional = {name: x for name, x in (("chunk_tokens", chunk), ("max_context", longest)) if x is not None}
    degrees = {f"mapping.{name}": getattr(mapping, name) for name in CUTS}
    together(**degrees, draft_tokens=draft[0], acceptance=draft[1], draft_step_s=draft[2], **asked, **optional)
    if longest is not None and np.any(longest < np.add(*ends)):
        refuse("max_context", max_context, "allowed are at least input_tokens and output_tokens together")
    if np.any(draft[0] >= np.minimum(*ends)):
        refuse("draft_tokens", draft_tokens, "allowed are fewer than input_tokens and output_tokens")
    e = find(site(system, mapping.lnc).chip, efficiencies, "efficiencies")
    ask: dict[str, Any] = {
        "model": model,
        "system": system,
        "mapping": mapping,
        "precision": precision,
        "efficiencies": e,
    }
    ask["max_context"] = np.add(*ends) if longest is None else longest
    rate, given, output, top, cached = np.broadcast_arrays(*asked.values())
    rate = rate / mapping.dp
    policy = e.batch_bucket if compiled is None else "maximum" if flag("compiled", compiled) else "exact"
    if choice("batching", batching, BATCHING) == "static":
        return _static(ask, rate, given, output, top)
    return _continuous(ask, rate, given * cached, given * (1 - cached), output, top, chunk, draft, policy)


def _mapping(name: str, value: Mapping) -> Mapping:
    return instance(name, value, Mapping, "a Mapping, such as Mapping(tp=8)")


def _continuous(
    ask: dict,
    rate: NDArray,
    past: NDArray,
    new: NDArray,
    output: NDArray,
    top: NDArray,
    chunk: NDArray | None,
    draft: tuple[NDArray, NDArray, NDArray],
    policy: str,
) -> Serving:
    """Prompts one after another, decode steps in the time that they leave."""
    draft_tokens, acceptance, draft_step_s = draft
    new = np.maximum(new, 1.0)
    yielded, context = tokens_per_step(draft_tokens, acceptance), past + new + output / 2
    more: dict[str, Any] = {"new_tokens": draft_tokens + 1}
    length = new if chunk is None else np.minimum(chunk, new)
    pieces = np.ceil(new / length)
    piece = prefill(input_tokens=length, past=past + (new - length) / 2, **ask)
    prompt_s = piece.time_s * pieces
    busy = latency.utilisation(rate, prompt_s)
    worth = latency.free_yield(busy, yielded)

    def decoded(batch: NDArray) -> Step:
        return decode_step(batch=_runs(batch, policy, top), context=context, **more, **ask)

    def held(batch: NDArray) -> NDArray:
        return latency.in_flight(rate, output, decoded(batch).time_s + draft_tokens * draft_step_s, worth)

    batch = _in_flight(held, top, policy)
    step = decoded(batch)
    step_s = step.time_s + draft_tokens * draft_step_s
    tpot = latency.tpot_s(step_s, worth)
    mask = reason_mask(busy >= 1, ~(batch <= top) & (busy < 1)) | _of_steps(ask, piece, step, past + new + output)
    times = {"step_s": step_s, "prefill_s": prompt_s, "tpot_mean_s": tpot, "prefill_utilisation": busy}
    times["tpot_p99_s"] = latency.late_tpot_s(tpot, prompt_s, rate, output, NORMAL_99)
    first = latency.first_token_s(prompt_s, pieces, step_s)
    times |= _first_tokens(first, first, busy, prompt_s)
    return _serving(ask, (piece, step), rate, output, mask, batch=batch, tokens_per_step=yielded, **times)


def _of_steps(ask: dict, first: Step, step: Step, tokens: NDArray) -> NDArray:
    """Why the steps of requests of so many tokens cannot exist, as bits of a serving's reasons."""
    masks = first.reason_mask | step.reason_mask | of_lengths(step.model, ask["mapping"].cp, tokens)
    return masks << SERVE_REASONS.index(Step.REASONS[0])


def _first_tokens(median_s: NDArray, late_s: NDArray, busy: NDArray, service_s: NDArray) -> dict[str, NDArray]:
    """Median and 99th percentile of TTFT: what every request takes, plus the wait in the queue."""
    return {
        "ttft_p50_s": median_s + latency.waiting_s(busy, service_s, 0.5),
        "ttft_p99_s": late_s + latency.waiting_s(busy, service_s, 0.99),
    }


def _serving(
    ask: dict, parts: tuple[Step, Step], rate: NDArray, output: NDArray, mask: NDArray, **times: NDArray
) -> Serving:
    """Rates of all replicas and the time of a request, beside the times given."""
    first, step = parts
    made = rate * ask["mapping"].dp * output
    times |= {
        "request_s": latency.request_s(times["ttft_p50_s"], times["tpot_mean_s"], output),
        "tokens_per_s": made,
        "tokens_per_s_per_user": 1 / times["tpot_mean_s"],
        "tokens_per_s_per_chip": made / step.occupied_chips,
    }
    judged = {"judge": partial(joint_basis, first, step), "spread": partial(joint_spread, first, step, True)}
    found: dict[str, Any] = judged | {"system": step.system, "stack": step.stack} | blank(mask, **times)
    return Serving(requests_per_s=rate * ask["mapping"].dp, **found, reason_mask=mask)


def _static(ask: dict, rate: NDArray, given: NDArray, output: NDArray, top: NDArray) -> Serving:
    """Batches that fill up, start together and end together."""
    first = prefill(batch=top, input_tokens=given, **ask)
    step = decode_step(batch=top, context=given + output / 2, **ask)
    run_s = latency.request_s(first.time_s, step.time_s, output)
    busy, filling_s = latency.utilisation(rate, run_s, top), latency.filling_s(top, rate)
    times = {"step_s": step.time_s, "prefill_s": first.time_s, "tpot_mean_s": step.time_s, "tpot_p99_s": step.time_s}
    times |= _first_tokens(first.time_s + filling_s * 0.5, first.time_s + filling_s * 0.99, busy, run_s)
    mask = reason_mask(busy >= 1) | _of_steps(ask, first, step, given + output)
    more = {"batch": top, "tokens_per_step": np.ones(()), "prefill_utilisation": busy}
    return _serving(ask, (first, step), rate, output, mask, **more, **times)


def disaggregate(
    model: str | Transformer,
    prefill_system: str | System | Chip,
    prefill_mapping: Mapping,
    decode_system: str | System | Chip,
    decode_mapping: Mapping,
    *,
    batch: Numeric,
    input_tokens: Numeric,
    output_tokens: Numeric,
    precision: str | Precision = "bf16",
    prefill_efficiencies: str | Efficiencies | None = None,
    decode_efficiencies: str | Efficiencies | None = None,
    transfer_share: Numeric = 1.0,
    mixed: bool = False,
) -> Disaggregated:
    r"""Prefill on one machine, decode on another, the cache sent over the scale-out network.

    .. math:: \frac{n_P}{n_D} = \frac{P\,B}{o\,t_{step}(B)}

    Parameters
    ----------
    model, precision
        As in `decode_step`. [-]
    prefill_system, prefill_mapping, decode_system, decode_mapping
        One replica of each; the chips may differ. [-]
    batch : numeric
        Sequences of a decode replica. [-]
    input_tokens, output_tokens : numeric
        Of one request. [token]
    prefill_efficiencies, decode_efficiencies : str or Efficiencies, optional
        Stack of each. [-]
    transfer_share : numeric
        Share of the network's rate that the transfer reaches; the slower of the two sides counts. [-]
    mixed : bool
        Whether the two sides may be on different kinds of stack, such as an ideal and a public one. [-]

    Returns
    -------
    disaggregated : Disaggregated
        Times, and the ratio of replicas at which neither side waits. [-]
    """
    batch, given = numbers("batch", batch, 1), numbers("input_tokens", input_tokens, 1)
    output, reached = numbers("output_tokens", output_tokens, 1), share("transfer_share", transfer_share, TINY)
    together(batch=batch, input_tokens=given, output_tokens=output, transfer_share=reached)
    chosen, mixed = read_model(model), flag("mixed", mixed)
    (before, fast), (after, slow) = (
        _side("prefill", prefill_system, prefill_mapping, prefill_efficiencies),
        _side("decode", decode_system, decode_mapping, decode_efficiencies),
    )
    sides = {"prefill": fast, "decode": slow}
    alike(tidy({"system": side, "stack_kind": e.kind} for side, e in sides.items()), mixed)
    first = prefill(chosen, before.where, prefill_mapping, input_tokens=given, precision=precision, efficiencies=fast)
    ask = {"precision": precision, "efficiencies": slow, "max_context": given + output}
    step = decode_step(chosen, after.where, decode_mapping, batch=batch, context=given + output / 2, **ask)
    chips, network = zip(_replica(before, prefill_mapping), _replica(after, decode_mapping), strict=True)
    sent = chosen.kv_bytes(given, read_precision(precision).kv) + chosen.state_bytes()
    ratio = latency.replicas_ratio(first.time_s, batch, output, step.time_s)
    rate = batch / (output * step.time_s)
    mask = reason_mask(~np.asarray(first.valid), ~np.asarray(step.valid))
    transfer_s = memory.transfer_s(sent, np.minimum(*network) * reached)
    times = {
        "prefill_s": first.time_s,
        "transfer_s": transfer_s,
        "transfer_bytes": sent,
        "step_s": step.time_s,
        "ttft_s": first.time_s + transfer_s + step.time_s,
        "prefill_replicas_per_decode_replica": ratio,
        "prefill_chips_per_decode_chip": ratio * chips[0] / chips[1],
        "requests_per_s_per_decode_replica": rate,
        "tokens_per_s_per_chip": rate * output / (chips[1] + ratio * chips[0]),
    }
    found: dict[str, Any] = {"prefill_system": first.system, "decode_system": step.system} | blank(mask, **times)
    judge, spread = partial(joint_basis, first, step), partial(joint_spread, first, step, False)
    grounds: dict[str, Any] = {"judge": judge, "spread": spread}
    return Disaggregated(prefill_stack=fast, stack=slow, **grounds, batch=batch, **found, reason_mask=mask)


def _side(
    name: str, where: str | System | Chip, mapping: Mapping, stack: str | Efficiencies | None
) -> tuple[Site, Efficiencies]:
    """The rank and the stack of one of the two machines, its arguments named as the call names them."""
    at = site(where, _mapping(f"{name}_mapping", mapping).lnc, f"{name}_system")
    return at, find(at.chip, stack, f"{name}_efficiencies")


def _replica(at: Site, mapping: Mapping) -> tuple[NDArray, NDArray]:
    """Chips of one replica, and the scale-out bandwidth of them all."""
    chips = np.ceil(mapping.replica_ranks / at.ranks_per_chip)
    beyond = at.where.scaleout_bytes_per_s_per_dir
    return chips, chips * published(beyond, chip_links(at.where))
