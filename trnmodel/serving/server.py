"""Steady serving: requests that arrive at a rate, the batch they form, and when their tokens come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, flag, instance, numbers, refuse, share, together
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Chip, Precision, published
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.systems import System
from trnmodel.declared import MACHINE, MODEL, PRECISION, STACK, Flag, Numbers, Word, declare
from trnmodel.fabric.groups import chip_links
from trnmodel.formulas import latency, memory
from trnmodel.formulas.step import compiled_tokens
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Basis, Judged, alike, blank, reason_mask, tidy
from trnmodel.steps.ground import joint_basis, joint_spread
from trnmodel.steps.inference import Step, decode_step, prefill
from trnmodel.steps.legal import of_lengths
from trnmodel.steps.mapping import CUTS, MAPPING, Mapping
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
class ServingQuestion:
    """What a call of `serve` asks, with names resolved, defaults filled in and numbers checked.

    `compiled` is whether a step runs the largest batch whatever is active; None is the policy of the stack.
    """

    model: Transformer
    system: System | Chip
    mapping: Mapping
    precision: Precision
    efficiencies: Efficiencies
    requests_per_s: NDArray
    input_tokens: NDArray
    output_tokens: NDArray
    max_batch: NDArray
    max_context: NDArray
    prefix_share: NDArray
    batching: str
    compiled: bool | None
    chunk_tokens: NDArray | None
    draft_tokens: NDArray
    acceptance: NDArray
    draft_step_s: NDArray

    @property
    def of_steps(self) -> dict[str, Any]:
        """Arguments that the prefill and the decode steps of the server share, by name."""
        names = ("model", "system", "mapping", "precision", "efficiencies", "max_context")
        return {name: getattr(self, name) for name in names}

    @property
    def replica_requests_per_s(self) -> NDArray:
        """Requests that arrive at one replica [1/s]."""
        return self.requests_per_s / self.mapping.dp

    @property
    def batch_bucket(self) -> str:
        """Which batch a step runs for the requests that are active: "maximum", "exact" or "power-of-two"."""
        if self.compiled is None:
            return self.efficiencies.batch_bucket
        return "maximum" if self.compiled else "exact"


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
    question: ServingQuestion
    prefill_step: Step
    decode_step: Step

    def judge(self) -> Basis:
        """Return what the times rest on: the weaker of the prefill and the decode step."""
        return joint_basis(self.prefill_step, self.decode_step)

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a figure, those of measured servers under load included."""
        return joint_spread(self.prefill_step, self.decode_step, True, name)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DisaggregatedQuestion:
    """What a call of `disaggregate` asks; numbers are checked arrays."""

    model: Transformer
    prefill_system: System | Chip
    prefill_mapping: Mapping
    decode_system: System | Chip
    decode_mapping: Mapping
    batch: NDArray
    input_tokens: NDArray
    output_tokens: NDArray
    precision: Precision
    prefill_efficiencies: Efficiencies
    decode_efficiencies: Efficiencies
    transfer_share: NDArray
    mixed: bool


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
    question: DisaggregatedQuestion
    prefill_step: Step
    decode_step: Step

    def judge(self) -> Basis:
        """Return what the times rest on: the weaker of the prefill and the decode step."""
        return joint_basis(self.prefill_step, self.decode_step)

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a figure; no arrivals load these steps."""
        return joint_spread(self.prefill_step, self.decode_step, False, name)

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


def _in_flight(q: ServingQuestion, in_flight_at: Callable[[NDArray], NDArray]) -> NDArray:
    """Return the requests that decode at once in a replica, infinite where the largest batch does not serve them.

    `in_flight_at` is how many requests steps of a batch hold, by Little's law. Where steps run what is active, the
    batch is the one that holds as many requests as it has.
    """
    if q.batch_bucket == "maximum":
        return in_flight_at(np.ones(()))
    top = q.max_batch
    low, high = np.zeros(np.shape(top)), top.astype(float)
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        more_wanted = in_flight_at(middle) > middle
        low, high = np.where(more_wanted, middle, low), np.where(more_wanted, high, middle)
    return np.where(in_flight_at(np.asarray(top, dtype=float)) > top, np.inf, high)


def _step_batch(q: ServingQuestion, batch: NDArray) -> NDArray:
    """Return the batch that a step runs for the requests in flight, at least one and at most the largest."""
    active = np.clip(np.nan_to_num(batch, nan=1.0, posinf=1.0), 1.0, q.max_batch)
    return compiled_tokens(active, q.max_batch, 1.0, q.batch_bucket)


@declare(
    model=MODEL,
    system=MACHINE,
    mapping=MAPPING,
    requests_per_s=Numbers(TINY),
    input_tokens=Numbers(1),
    output_tokens=Numbers(1),
    max_batch=Numbers(1, whole=True),
    max_context=Numbers(1),
    precision=PRECISION,
    efficiencies=STACK,
    batching=Word(BATCHING),
    compiled=Flag(),
    chunk_tokens=Numbers(1, whole=True),
    prefix_share=Numbers(0, 1),
    draft_tokens=Numbers(whole=True),
    acceptance=Numbers(0, 1),
    draft_step_s=Numbers(),
)
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
    model, system, mapping, precision, efficiencies : str or object
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
        Whether a step runs the largest batch whatever is active; default the stack's policy (`batch_bucket`): Neuron's
        graphs do, serving stacks of GPUs and the ideal one run what is active. [-]
    chunk_tokens : numeric, optional
        Size of the chunks of a prefill, one before each decode step; default the whole prompt at once. [token]
    prefix_share : numeric
        Share of the prompt whose cache is there already. [-]
    draft_tokens, acceptance, draft_step_s : numeric
        Speculation: tokens of a draft, chance that each is accepted, and the time of one draft step. [-, -, s]

    Returns
    -------
    serving : Serving
        Arrays of the broadcast shape. [-]

    Raises
    ------
    ValueError
        An argument is out of its range, or the chip has no default stack and none is named.

    Notes
    -----
    Assumes Poisson arrivals; prompts queue for the prefill with fixed service times (M/D/1, exponential tail).

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"requests_per_s": 1, "input_tokens": 1024, "output_tokens": 256, "max_batch": 16}
    >>> serving = tm.serve("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), **ask)
    >>> bool(serving.valid), bool(serving.ttft_p99_s > serving.ttft_p50_s)
    (True, True)
    """
    mapping = Mapping() if mapping is None else mapping
    counts: dict[str, Any] = {
        "requests_per_s": requests_per_s,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "max_batch": max_batch,
        "prefix_share": prefix_share,
    }
    draft: dict[str, Any] = {
        "draft_tokens": draft_tokens,
        "acceptance": acceptance,
        "draft_step_s": draft_step_s,
    }
    ends = input_tokens, output_tokens
    named = {"chunk_tokens": chunk_tokens, "max_context": max_context}
    optional = {name: x for name, x in named.items() if x is not None}
    degrees = {f"mapping.{name}": getattr(mapping, name) for name in CUTS}
    together(**degrees, **draft, **counts, **optional)
    if max_context is not None and np.any(np.less(max_context, np.add(*ends))):
        refuse("max_context", max_context, "allowed are at least input_tokens and output_tokens together")
    if np.any(np.greater_equal(draft_tokens, np.minimum(*ends))):
        refuse("draft_tokens", draft_tokens, "allowed are fewer than input_tokens and output_tokens")
    at = site(system, mapping.lnc)
    asks: dict[str, Any] = dict(zip(counts, np.broadcast_arrays(*counts.values()), strict=True)) | draft
    question = ServingQuestion(
        system=at.where,
        mapping=mapping,
        efficiencies=find(at.chip, efficiencies, "efficiencies"),
        max_context=np.add(*ends) if max_context is None else np.asarray(max_context),
        compiled=compiled,
        batching=batching,
        chunk_tokens=None if chunk_tokens is None else np.asarray(chunk_tokens),
        model=read_model(model),
        precision=read_precision(precision),
        **asks,
    )
    return _static(question) if question.batching == "static" else _continuous(question)


def _mapping(name: str, value: Mapping) -> Mapping:
    return instance(name, value, Mapping, "a Mapping, such as Mapping(tp=8)")


def _continuous(q: ServingQuestion) -> Serving:
    """Return a server that takes prompts one after another and runs decode steps in the time that they leave."""
    rate, output = q.replica_requests_per_s, q.output_tokens
    past, new = q.input_tokens * q.prefix_share, np.maximum(q.input_tokens * (1 - q.prefix_share), 1.0)
    yielded, context = tokens_per_step(q.draft_tokens, q.acceptance), past + new + output / 2
    length = new if q.chunk_tokens is None else np.minimum(q.chunk_tokens, new)
    pieces = np.ceil(new / length)
    piece = prefill(input_tokens=length, past=past + (new - length) / 2, **q.of_steps)
    prompt_s = piece.time_s * pieces
    busy = latency.utilisation(rate, prompt_s)
    free_tokens = latency.free_yield(busy, yielded)

    def decode(batch: NDArray) -> Step:
        return decode_step(batch=_step_batch(q, batch), context=context, new_tokens=q.draft_tokens + 1, **q.of_steps)

    def in_flight_at(batch: NDArray) -> NDArray:
        return latency.in_flight(rate, output, decode(batch).time_s + q.draft_tokens * q.draft_step_s, free_tokens)

    batch = _in_flight(q, in_flight_at)
    step = decode(batch)
    step_s = step.time_s + q.draft_tokens * q.draft_step_s
    tpot = latency.tpot_s(step_s, free_tokens)
    mask = reason_mask(busy >= 1, ~(batch <= q.max_batch) & (busy < 1)) | _of_steps(q, piece, step, past + new + output)
    times = {"step_s": step_s, "prefill_s": prompt_s, "tpot_mean_s": tpot, "prefill_utilisation": busy}
    times["tpot_p99_s"] = latency.late_tpot_s(tpot, prompt_s, rate, output, NORMAL_99)
    first = latency.first_token_s(prompt_s, pieces, step_s)
    times |= _first_tokens(first, first, busy, prompt_s)
    return _serving(q, (piece, step), mask, batch=batch, tokens_per_step=yielded, **times)


def _of_steps(q: ServingQuestion, first: Step, step: Step, tokens: NDArray) -> NDArray:
    """Return why the steps of requests of a length cannot exist, as bits of a serving's reasons."""
    masks = first.reason_mask | step.reason_mask | of_lengths(step.model, q.mapping.cp, tokens)
    return masks << SERVE_REASONS.index(Step.REASONS[0])


def _first_tokens(median_s: NDArray, late_s: NDArray, busy: NDArray, service_s: NDArray) -> dict[str, NDArray]:
    """Median and 99th percentile of TTFT: what every request takes, plus the wait in the queue."""
    return {
        "ttft_p50_s": median_s + latency.waiting_s(busy, service_s, 0.5),
        "ttft_p99_s": late_s + latency.waiting_s(busy, service_s, 0.99),
    }


def _serving(q: ServingQuestion, steps: tuple[Step, Step], mask: NDArray, **times: NDArray) -> Serving:
    """Return a serving with the rates of all replicas and the time of a request, from the times of its parts."""
    first, step = steps
    rate, output = q.replica_requests_per_s, q.output_tokens
    made = rate * q.mapping.dp * output
    times |= {
        "request_s": latency.request_s(times["ttft_p50_s"], times["tpot_mean_s"], output),
        "tokens_per_s": made,
        "tokens_per_s_per_user": 1 / times["tpot_mean_s"],
        "tokens_per_s_per_chip": made / step.occupied_chips,
    }
    fields: dict[str, Any] = {"system": step.system, "stack": step.stack} | blank(mask, **times)
    return Serving(
        requests_per_s=rate * q.mapping.dp,
        **fields,
        question=q,
        prefill_step=first,
        decode_step=step,
        reason_mask=mask,
    )


def _static(q: ServingQuestion) -> Serving:
    """Return a server whose batches fill up, start together and end together."""
    rate, output, top = q.replica_requests_per_s, q.output_tokens, q.max_batch
    first = prefill(batch=top, input_tokens=q.input_tokens, **q.of_steps)
    step = decode_step(batch=top, context=q.input_tokens + output / 2, **q.of_steps)
    run_s = latency.request_s(first.time_s, step.time_s, output)
    busy, filling_s = latency.utilisation(rate, run_s, top), latency.filling_s(top, rate)
    times = {"step_s": step.time_s, "prefill_s": first.time_s, "tpot_mean_s": step.time_s, "tpot_p99_s": step.time_s}
    times |= _first_tokens(first.time_s + filling_s * 0.5, first.time_s + filling_s * 0.99, busy, run_s)
    mask = reason_mask(busy >= 1) | _of_steps(q, first, step, q.input_tokens + output)
    more = {"batch": top, "tokens_per_step": np.ones(()), "prefill_utilisation": busy}
    return _serving(q, (first, step), mask, **more, **times)


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
        Software stack of each side, as `efficiencies` of `decode_step`. [-]
    transfer_share : numeric
        Share of the network's rate that the transfer reaches; the slower of the two sides counts. [-]
    mixed : bool
        Whether the two sides may be on different kinds of stack, such as an ideal and a public one. [-]

    Returns
    -------
    disaggregated : Disaggregated
        Times, and the ratio of replicas at which neither side waits. [-]
    """
    sizes: dict[str, Any] = {
        "batch": numbers("batch", batch, 1),
        "input_tokens": numbers("input_tokens", input_tokens, 1),
        "output_tokens": numbers("output_tokens", output_tokens, 1),
        "transfer_share": share("transfer_share", transfer_share, TINY),
    }
    together(**sizes)
    chosen, mixed = read_model(model), flag("mixed", mixed)
    (before, fast), (after, slow) = (
        _side("prefill", prefill_system, prefill_mapping, prefill_efficiencies),
        _side("decode", decode_system, decode_mapping, decode_efficiencies),
    )
    sides = {"prefill": fast, "decode": slow}
    alike(tidy({"system": side, "stack_kind": e.kind} for side, e in sides.items()), mixed)
    q = DisaggregatedQuestion(
        model=chosen,
        prefill_system=before.where,
        prefill_mapping=prefill_mapping,
        decode_system=after.where,
        decode_mapping=decode_mapping,
        precision=read_precision(precision),
        prefill_efficiencies=fast,
        decode_efficiencies=slow,
        mixed=mixed,
        **sizes,
    )
    return _disaggregated(q, _replica(before, prefill_mapping), _replica(after, decode_mapping))


def _disaggregated(
    q: DisaggregatedQuestion, prefill_replica: tuple[NDArray, NDArray], decode_replica: tuple[NDArray, NDArray]
) -> Disaggregated:
    """Return the answer from the chips and the scale-out bandwidth of a replica of each side."""
    batch, output = q.batch, q.output_tokens
    ask: dict[str, Any] = {"precision": q.precision, "efficiencies": q.prefill_efficiencies}
    first = prefill(q.model, q.prefill_system, q.prefill_mapping, input_tokens=q.input_tokens, **ask)
    ask |= {"efficiencies": q.decode_efficiencies, "max_context": q.input_tokens + output}
    step = decode_step(
        q.model, q.decode_system, q.decode_mapping, batch=batch, context=q.input_tokens + output / 2, **ask
    )
    chips, network = zip(prefill_replica, decode_replica, strict=True)
    sent = q.model.kv_bytes(q.input_tokens, q.precision.kv) + q.model.state_bytes()
    ratio = latency.replicas_ratio(first.time_s, batch, output, step.time_s)
    rate = batch / (output * step.time_s)
    mask = reason_mask(~np.asarray(first.valid), ~np.asarray(step.valid))
    transfer_s = memory.transfer_s(sent, np.minimum(*network) * q.transfer_share)
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
    fields: dict[str, Any] = {"prefill_system": first.system, "decode_system": step.system} | blank(mask, **times)
    return Disaggregated(
        prefill_stack=q.prefill_efficiencies,
        stack=q.decode_efficiencies,
        batch=batch,
        **fields,
        question=q,
        prefill_step=first,
        decode_step=step,
        reason_mask=mask,
    )


def _side(
    name: str, where: str | System | Chip, mapping: Mapping, stack: str | Efficiencies | None
) -> tuple[Site, Efficiencies]:
    """Return the rank and the stack of one of the two machines, its arguments named as the call names them."""
    at = site(where, _mapping(f"{name}_mapping", mapping).lnc, f"{name}_system")
    return at, find(at.chip, stack, f"{name}_efficiencies")


def _replica(at: Site, mapping: Mapping) -> tuple[NDArray, NDArray]:
    """Return the chips of one replica, and the scale-out bandwidth of them all."""
    chips = np.ceil(mapping.replica_ranks / at.ranks_per_chip)
    beyond = at.where.scaleout_bytes_per_s_per_dir
    return chips, chips * published(beyond, chip_links(at.where))
