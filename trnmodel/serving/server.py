"""Steady serving: requests that arrive at a rate, the batch they form, and when their tokens come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, flag, instance, numbers, refuse, share, together
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.options import Option, options
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.systems import System
from trnmodel.declared import MACHINE, MODEL, PRECISION, STACK, Flag, Numbers, Object, Word, declare
from trnmodel.draws import cause, deviations
from trnmodel.formulas import latency, memory
from trnmodel.formulas.step import compiled_tokens
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Basis, Judged, alike, blank, reason_mask, tidy
from trnmodel.serving import account
from trnmodel.serving.account import PER_RANK, ROUNDING, TOO_LATE, TOO_SLOW, Column, Load, Times, draw_widths
from trnmodel.serving.apart import apart, replica_bytes_per_s, sent_bytes
from trnmodel.serving.drafts import drafting_s
from trnmodel.steps.ground import ARRIVALS, joint_basis, joint_spread
from trnmodel.steps.inference import Step, decode_step, memory_fit, prefill
from trnmodel.steps.legal import of_lengths
from trnmodel.steps.mapping import CUTS, MAPPING, Mapping
from trnmodel.steps.pieces import POINTS
from trnmodel.steps.rank import Site, site
from trnmodel.steps.request import Request
from trnmodel.units import Numeric

BATCHING = ("continuous", "static")
NORMAL_99 = 2.3263478740408408  # 99th percentile of the standard normal distribution
SEARCH_STEPS = 40
SETTLED = 1e-9  # share of the largest batch by which the sequences in flight may miss the batch that was searched
DRAWN_AT_ONCE = 8  # points of a server whose draws are computed at a time
PHASES = ("decode", "prefill")  # what is drawn of a stack: its steps, and its prompts
QUANTILES = {"ttft_p50_s": 0.5, "ttft_p99_s": 0.99}
DRAWN = (  # figures of a server without a rate that the draws move
    *(*ARRIVALS, "batch", "prefill_utilisation", "tpot_mean_s", "tpot_p99_s", "tokens_per_s_per_user"),
    *("ttft_s", *QUANTILES, "request_s"),
)
LOAD_REASONS = (
    "prompts arrive faster than they are prefilled",
    "more requests in flight than the largest batch",
    TOO_SLOW,
    TOO_LATE,
)
SERVE_REASONS = (*LOAD_REASONS, *Step.REASONS)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ServingQuestion:
    """What a call of `serve` asks, with names resolved, defaults filled in and numbers checked.

    `compiled` is whether a step runs the largest batch whatever is active; None is the policy of the stack.
    """

    model: Transformer
    system: System | Chip
    mapping: Mapping
    precision: Precision
    option: Option
    request: Request
    max_batch: NDArray
    max_context: NDArray
    batching: str
    compiled: bool | None
    chunk_tokens: NDArray | None
    draft_tokens: NDArray
    acceptance: NDArray
    draft_step_s: NDArray

    @property
    def efficiencies(self) -> Efficiencies:
        """Software stack of the option."""
        return self.option.efficiencies

    @property
    def of_steps(self) -> dict[str, Any]:
        """Arguments that the prefill and the decode steps of the server share, by name."""
        names = ("model", "system", "mapping", "precision", "efficiencies", "max_context")
        return {name: getattr(self, name) for name in names}

    @property
    def replica_request(self) -> Request:
        """The request as one replica sees it, with its share of the rate."""
        rate = self.request.requests_per_s
        return self.request if rate is None else replace(self.request, requests_per_s=rate / self.mapping.dp)

    @property
    def groups(self) -> NDArray:
        """Prompts that a replica prefills at once at saturation: one for each attention group and pipeline stage."""
        return self.mapping.ep * self.mapping.pp

    @property
    def batch_bucket(self) -> str:
        """Which batch a step runs for the requests that are active: "maximum", "exact" or "power-of-two"."""
        if self.compiled is None:
            return self.efficiencies.batch_bucket
        return "maximum" if self.compiled else "exact"


@dataclass(frozen=True, eq=False, kw_only=True)
class Serving(Judged):
    """Steady serving of one mapping, all replicas together; times are of one request.

    `batch` is the mean number of requests that decode at once in a replica; `ttft_s` is the TTFT at the percentile that
    the request names. TPOT holds the stalls by prefills of other requests; ITL (`step_s` over the tokens of a step)
    does not. Chips that a mapping leaves idle in a system count in `tokens_per_s_per_chip`.

    Without a rate, the band of what the load decides is that of a plan's `Choice`: a range over the common draws, in
    which the number of slots adapts, as it would be chosen anew if the software turned out faster or slower. A
    `max_batch` below the number that makes most is a limit in the draws too; with one above it the band reaches up to
    what fewer slots make. With a rate, load and replicas are stated: rates have no band, and times have that of their
    steps.
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
    ttft_s: NDArray
    tpot_mean_s: NDArray
    tpot_p99_s: NDArray
    request_s: NDArray
    tokens_per_s: NDArray
    tokens_per_s_per_user: NDArray
    tokens_per_s_per_chip: NDArray
    question: ServingQuestion
    prefill_step: Step
    full_prefill_step: Step
    decode_step: Step

    def judge(self) -> Basis:
        """Return what the times rest on: the weaker of the prefill and the decode step."""
        return self.question.option.basis(joint_basis(self.prefill_step, self.decode_step))

    @property
    def keeps_promise(self) -> NDArray:
        """Whether the mean speed and the first token are what the request promises."""
        limit = np.inf if self.question.request.ttft_s is None else self.question.request.ttft_s
        on_time = np.asarray(self.ttft_s) <= limit * (1 + ROUNDING)
        return on_time & (np.asarray(self.tpot_mean_s) <= self.question.request.most_tpot_s * (1 + ROUNDING))

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a figure: over the draws without a rate, else those of its steps under load."""
        if self.question.request.requests_per_s is None and name in DRAWN:
            return self._drawn_widths[name]
        return joint_spread(self.prefill_step, self.decode_step, True, name)

    @cached_property
    def _drawn_widths(self) -> dict[str, tuple[NDArray, NDArray]]:
        """Half-widths of the figures that the draws move, by name."""
        values = {name: np.asarray(getattr(self, name)) for name in DRAWN}
        values |= dict.fromkeys(ARRIVALS, self.requests_per_s / self.question.mapping.dp)
        return _drawn_widths(self.question, values)


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


def _in_flight(q: ServingQuestion, rate: Numeric, times_at: Callable[[NDArray], Times]) -> NDArray:
    """Return the sequences in flight of a replica at a rate, by Little's law; infinite beyond the largest batch.

    Where steps run what is active, the batch is the one that holds as many sequences as it has.
    """
    output = q.request.output_tokens
    if q.batch_bucket == "maximum":
        return account.under(times_at(q.max_batch), rate, output).in_flight

    def more_come(batch: NDArray) -> NDArray:
        return account.under(times_at(batch), rate, output).in_flight > batch * (1 + ROUNDING)

    return np.where(more_come(q.max_batch), np.inf, _largest(q, more_come))


def _full(q: ServingQuestion, times_at: Callable[[NDArray], Times]) -> NDArray:
    """Return the most sequences in flight, up to the largest batch, at which a full batch keeps the promises."""
    if q.batch_bucket == "maximum":
        return q.max_batch

    def holds(batch: NDArray) -> NDArray:
        return np.isfinite(account.planned_requests_per_s(times_at(batch), q.replica_request))

    full = holds(q.max_batch)
    if np.all(full):
        return np.broadcast_to(q.max_batch, full.shape) * 1.0
    least = np.minimum(1.0, q.max_batch)
    return np.where(full, q.max_batch, np.maximum(np.floor(_largest(q, holds)), least))


def _largest(q: ServingQuestion, holds: Callable[[NDArray], NDArray]) -> NDArray:
    """Return the largest batch up to which a condition holds that holds for small ones."""
    top = np.asarray(q.max_batch, dtype=float)
    low, high = np.zeros(top.shape), top
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        true = holds(middle)
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    return low


def _step_batch(q: ServingQuestion, batch: NDArray) -> NDArray:
    """Return the batch that a step runs for the requests in flight, at least one and at most the largest."""
    active = np.clip(np.nan_to_num(batch, nan=1.0, posinf=1.0), 1.0, q.max_batch)
    return compiled_tokens(active, q.max_batch, 1.0, q.batch_bucket)


@declare(
    model=MODEL,
    request=Object(Request, "a Request"),
    system=MACHINE,
    mapping=MAPPING,
    max_batch=Numbers(1, whole=True),
    max_context=Numbers(1),
    precision=PRECISION,
    efficiencies=STACK,
    batching=Word(BATCHING),
    compiled=Flag(),
    chunk_tokens=Numbers(1, whole=True),
    draft_tokens=Numbers(whole=True),
    acceptance=Numbers(0, 1),
    draft_step_s=Numbers(),
)
def serve(
    model: str | Transformer,
    request: Request,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    max_batch: Numeric,
    max_context: Numeric | None = None,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
    batching: str = "continuous",
    compiled: bool | None = None,
    chunk_tokens: Numeric | None = None,
    draft_tokens: Numeric = 0,
    acceptance: Numeric = 0.0,
    draft_step_s: Numeric = 0.0,
) -> Serving:
    r"""Steady serving of a request at its rate, or at the largest load at which its promises hold.

    .. math:: \tau = \frac{t_{step}(B)}{E\,(1 - \lambda P)}, \qquad n = \lambda\, o\, \tau

    A replica prefills prompts and decodes in the time that is left (continuous batching); n requests decode at once.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies : str or object
        As in `decode_step`; `dp` replicas share the requests evenly. `efficiencies` may name a documented option, such
        as "neuron-async". [-]
    request : Request
        Lengths, promises and rate, each a number or an array. Without a rate the load is the largest at which the
        promises hold and the batch is full at most. [-]
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
    draft_tokens, acceptance, draft_step_s : numeric
        Speculation: tokens of a draft, chance that each is accepted, and the time of one draft step. [-, -, s]

    Returns
    -------
    serving : Serving
        Arrays of the broadcast shape; `keeps_promise` says where the request's promises hold. [-]

    Raises
    ------
    ValueError
        An argument is out of its range, or the chip has no default stack and none is named.

    Notes
    -----
    A first token holds `server_first_token_s` of the stack, in which the chips work on other requests.
    Assumes Poisson arrivals; prompts queue for the prefill with fixed service times (M/D/1, exponential tail). Where
    attention is data-parallel, each group prefills a prompt of its own at saturation (`serving.account`).

    Examples
    --------
    >>> import trnmodel as tm
    >>> request = tm.Request(1024, 256, requests_per_s=1)
    >>> serving = tm.serve("llama-3.1-8b", request, "trn2.48xlarge", tm.Mapping(tp=8), max_batch=16)
    >>> bool(serving.valid), bool(serving.ttft_p99_s > serving.ttft_p50_s)
    (True, True)
    """
    mapping = Mapping() if mapping is None else mapping
    draft: dict[str, Any] = {
        "draft_tokens": draft_tokens,
        "acceptance": acceptance,
        "draft_step_s": draft_step_s,
    }
    named = {"chunk_tokens": chunk_tokens, "max_context": max_context}
    optional = {name: x for name, x in named.items() if x is not None}
    degrees = {f"mapping.{name}": getattr(mapping, name) for name in CUTS}
    together(**degrees, **draft, **_stated(request), max_batch=max_batch, **optional)
    if max_context is not None and np.any(np.less(max_context, request.longest_context)):
        refuse("max_context", max_context, "allowed are at least input_tokens and output_tokens together")
    if np.any(np.greater_equal(draft_tokens, np.minimum(request.input_tokens, request.output_tokens))):
        refuse("draft_tokens", draft_tokens, "allowed are fewer than input_tokens and output_tokens")
    at, chosen = site(system, mapping.lnc), read_model(model)
    question = ServingQuestion(
        system=at.where,
        mapping=mapping,
        option=_option(at.chip, chosen, efficiencies, draft_tokens),
        request=request,
        max_batch=np.asarray(max_batch),
        max_context=np.asarray(request.longest_context if max_context is None else max_context),
        compiled=compiled,
        batching=batching,
        chunk_tokens=None if chunk_tokens is None else np.asarray(chunk_tokens),
        model=chosen,
        precision=read_precision(precision),
        **draft,
    )
    if question.batching == "continuous":
        return _continuous(question)
    if request.requests_per_s is None:
        refuse("batching", batching, "allowed with a request that states requests_per_s: a static batch waits to fill")
    return _static(question)


def _option(chip: Chip, model: Transformer, efficiencies: Any, draft_tokens: Numeric) -> Option:
    """Return the software option that is asked for: one by id, or a stack as it is."""
    option = options(chip, model.id, efficiencies)[0]
    if option.speculates and np.any(draft_tokens):
        refuse("draft_tokens", draft_tokens, f"allowed is 0 with {option.id}, which has drafts of its own")
    return option


def _stated(request: Request) -> dict[str, Any]:
    """Return the numbers that a request states, by name."""
    return {one.name: getattr(request, one.name) for one in fields(request) if getattr(request, one.name) is not None}


def _mapping(name: str, value: Mapping) -> Mapping:
    return instance(name, value, Mapping, "a Mapping, such as Mapping(tp=8)")


def _continuous(q: ServingQuestion) -> Serving:
    """Return a server whose prompts stall the decode steps, at the rate of its requests or at the planned load."""
    request, replica = q.replica_request, _server(q)
    planned = request.requests_per_s is None
    batch = _full(q, replica.times_at) if planned else _in_flight(q, request.requests_per_s, replica.times_at)
    step = replica.step_at(batch)
    times = replica.times_of(step, batch)
    rate = account.planned_requests_per_s(times, request) if planned else np.asarray(request.requests_per_s)
    load = account.under(times, rate, request.output_tokens)
    mask = _of_load(q, times, load, rate, batch)
    mask = mask | _of_steps(q, replica.together, step, np.asarray(request.longest_context))
    more = {"step_s": times.step_s, "prefill_s": times.alone_s, "tokens_per_step": times.tokens_per_step}
    return _serving(q, (replica.alone, replica.together, step), mask, rate, **more, **_under_load(times, load, request))


def _under_load(times: Times, load: Load, request: Request) -> dict[str, NDArray]:
    """Return what requests see of a replica under a load, by name."""
    rate = load.requests_per_s
    figures = {"batch": load.in_flight, "prefill_utilisation": load.utilisation, "tpot_mean_s": load.tpot_s}
    figures["tpot_p99_s"] = latency.late_tpot_s(load.tpot_s, times.prompt_s, rate, request.output_tokens, NORMAL_99)
    quantiles = QUANTILES | {"ttft_s": request.ttft_quantile}
    return figures | {name: account.ttft_s(times, load.utilisation, at) for name, at in quantiles.items()}


def _whole_request(ttft_p50_s: NDArray, tpot_mean_s: NDArray, output_tokens: Numeric) -> dict[str, NDArray]:
    """Return the time of a whole request and the speed of its user, by name."""
    request_s = latency.request_s(ttft_p50_s, tpot_mean_s, output_tokens)
    return {"request_s": request_s, "tokens_per_s_per_user": 1 / tpot_mean_s}


class _Replica(NamedTuple):
    """A replica: a prompt by itself, one in each group, each in so many chunks, and its decode step by sequences."""

    question: ServingQuestion
    alone: Step
    together: Step
    chunks: NDArray

    def step_at(self, batch: NDArray) -> Step:
        """Return the decode step of so many sequences."""
        q = self.question
        new_tokens = q.option.draft_tokens + q.draft_tokens + 1
        ask: dict[str, Any] = {"context": q.request.mean_context, "new_tokens": new_tokens, **q.of_steps}
        return decode_step(batch=_step_batch(q, batch), **ask)

    def times_of(self, step: Step, batch: NDArray) -> Times:
        """Return the times of the replica with a decode step of so many sequences."""
        q = self.question
        drafts_s = drafting_s(q.option, step) + q.draft_tokens * q.draft_step_s
        yielded = tokens_per_step(q.draft_tokens, q.acceptance)
        return Times(
            batch=q.max_batch if q.batch_bucket == "maximum" else np.clip(batch, 0.0, q.max_batch),
            step_s=step.time_s + drafts_s,
            tokens_per_step=yielded * q.option.tokens_per_step,
            alone_s=self.alone.time_s * self.chunks,
            together_s=self.together.time_s * self.chunks,
            groups=q.groups,
            chunks=self.chunks,
            host_s=np.asarray(q.efficiencies.server_first_token_s),
            compiled=q.batch_bucket == "maximum",
        )

    def times_at(self, batch: NDArray) -> Times:
        """Return the times of the replica with so many sequences."""
        return self.times_of(self.step_at(batch), batch)

    def column(self, slots: NDArray) -> Column:
        """Return the replica with each number of slots in place of its own; see `column`."""
        q = replace(self.question, max_batch=slots)
        own = self._replace(question=q)
        step = own.step_at(slots)
        fit = memory_fit(
            q.model,
            q.system,
            q.mapping,
            batch=slots,
            context=q.max_context,
            input_tokens=_chunk(q),
            prompts=np.minimum(q.groups, slots),
            precision=q.precision,
            efficiencies=q.efficiencies,
        )
        runs = step.valid & fit.valid & self.alone.valid & self.together.valid & (slots <= q.option.most_sequences)
        widths = step.widths("time_s"), self.together.widths("time_s")
        return Column(q.replica_request, q.system, own.times_of(step, slots), runs, step.occupied_chips, *widths)


def _chunk(q: ServingQuestion) -> NDArray:
    """Return the new tokens of a prompt that are prefilled at once."""
    new = q.request.new_tokens
    return new if q.chunk_tokens is None else np.minimum(q.chunk_tokens, new)


def _server(q: ServingQuestion) -> _Replica:
    """Return a replica of a server."""
    new, past, length = q.request.new_tokens, q.request.past_tokens, _chunk(q)
    ask: dict[str, Any] = {"input_tokens": length, "past": past + (new - length) / 2, **q.of_steps}
    alone = prefill(**ask)
    together = alone if np.all(q.groups == 1) else prefill(batch=q.groups, **ask)
    return _Replica(q, alone, together, np.ceil(new / length))


def column(q: ServingQuestion, slots: NDArray) -> Column:
    """Return a replica with each of several numbers of slots (first axis), and what is uncertain of its times.

    Plans and servers draw from it. A number fits if the replica holds its weights, its cache and its own prompts, and
    no document names fewer.
    """
    return _server(q).column(slots)


def _flat(x: Any, shape: tuple[int, ...]) -> NDArray:
    """Return an array of slots (first axis) and points as one of two axes; it may have no axis of slots."""
    whole = np.shape(x)[:1] if np.ndim(x) > len(shape) else (1,)
    return np.broadcast_to(x, (*whole, *shape)).reshape(*whole, -1)


def _each(widths: tuple[Any, Any], change: Callable[[Any], NDArray]) -> tuple[Any, Any]:
    """Return a change of both half-widths."""
    return change(widths[0]), change(widths[1])


def _flat_column(some: Column, shape: tuple[int, ...]) -> Column:
    """Return a column of the points of a shape with one axis of slots and one of points."""
    request = some.request
    if shape:
        request = replace(request, **{name: np.broadcast_to(x, shape).ravel() for name, x in _stated(request).items()})
    times: dict[str, Any] = {name: _flat(x, shape) for name, x in some.times._asdict().items() if name != "compiled"}
    return some._replace(
        request=request,
        times=some.times._replace(**times),
        fits=_flat(some.fits, shape),
        chips=_flat(some.chips, shape),
        step_widths=_each(some.step_widths, lambda x: _flat(x, shape)),
        prompt_widths=_each(some.prompt_widths, lambda x: _flat(x, shape)),
    )


def _joined(parts: list[Column]) -> Column:
    """Return the column of the slots of several, which have the same points and prompts."""
    first = parts[0]
    if len(parts) == 1:
        return first

    def join(arrays: list[NDArray]) -> NDArray:
        rows = zip(arrays, parts, strict=True)
        return np.concatenate([np.broadcast_to(x, (len(one.fits), x.shape[1])) for x, one in rows])

    steps: dict[str, Any] = {name: join([getattr(one.times, name) for one in parts]) for name in ("batch", "step_s")}
    widths = join([one.step_widths[0] for one in parts]), join([one.step_widths[1] for one in parts])
    fits = join([one.fits for one in parts])
    return first._replace(times=first.times._replace(**steps), fits=fits, step_widths=widths)


def _own_column(q: ServingQuestion, shape: tuple[int, ...]) -> Column:
    """Return the column of a server's points: the slots that a plan tries, and its own (last).

    Where its own are fewer than the number that makes most, they are a limit.
    """
    replica, points = _server(q), prod(shape)
    tried = PER_RANK.reshape(-1, *(1,) * len(shape)) * q.mapping.ep
    slots = np.concatenate(
        [np.broadcast_to(x, (np.shape(x)[0], *shape)) for x in (tried, np.asarray(q.max_batch)[None])]
    )
    rows = max(POINTS // max(points, 1), 1)
    parts = [replica.column(slots[start : start + rows]) for start in range(0, len(slots), rows)]
    many = _joined([_flat_column(one, shape) for one in parts])
    fits, batch = many.fits.copy(), many.times.batch
    fits[-1] |= ~fits.any(axis=0)
    many = many._replace(fits=fits)
    made = np.nan_to_num(many.made(many.times)[1], nan=-1.0)
    most = np.where(made >= made.max(axis=0) * (1 - SETTLED), batch, np.inf).min(axis=0)
    return many._replace(fits=fits & ((batch <= batch[-1]) | (batch[-1] >= most)))


def _part(many: Column, places: slice) -> Column:
    """Return a column of some of the points."""
    request = many.request
    if request.shape:
        request = replace(request, **{name: x[places] for name, x in _stated(request).items()})
    times: dict[str, Any] = {name: x[:, places] for name, x in many.times._asdict().items() if name != "compiled"}
    return many._replace(
        request=request,
        times=many.times._replace(**times),
        fits=many.fits[:, places],
        chips=many.chips[:, places],
        step_widths=_each(many.step_widths, lambda x: x[:, places]),
        prompt_widths=_each(many.prompt_widths, lambda x: x[:, places]),
    )


def _drawn_widths(q: ServingQuestion, values: dict[str, NDArray]) -> dict[str, tuple[NDArray, NDArray]]:
    """Return the half-widths of figures around their values by name, drawn for a few points at a time."""
    shape = np.broadcast_shapes(*(x.shape for x in values.values()))
    flat = {name: np.broadcast_to(x, shape).ravel() for name, x in values.items()}
    many, zs = _own_column(q, shape), [deviations(cause(q.efficiencies, q.system, phase)) for phase in PHASES]
    widths = {name: np.empty((2, prod(shape))) for name in values}
    for start in range(0, prod(shape), DRAWN_AT_ONCE):
        drawn = _drawn(_part(many, slice(start, start + DRAWN_AT_ONCE)), zs)
        for name, x in drawn.items():
            for place, each in enumerate(x.T, start):
                widths[name][:, place] = draw_widths(name, flat[name][place], {name: each})
    return {name: (x[0].reshape(shape)[()], x[1].reshape(shape)[()]) for name, x in widths.items()}


def _drawn(some: Column, zs: list[NDArray]) -> dict[str, NDArray]:
    """Return the figures of points in each draw (first axis); NaN where no number of slots keeps the promises."""
    best, request = some.best(*zs), some.request
    with np.errstate(invalid="ignore", divide="ignore"):
        load = account.under(best.times, best.requests_per_s, request.output_tokens)
        figures = _under_load(best.times, load, request)
        figures |= _whole_request(figures["ttft_p50_s"], figures["tpot_mean_s"], request.output_tokens)
    return figures | dict.fromkeys(ARRIVALS, best.requests_per_s)


def _of_load(q: ServingQuestion, times: Times, load: Load, rate: NDArray, batch: NDArray) -> NDArray:
    """Return why a load cannot be, as bits of a serving's reasons."""
    if q.request.requests_per_s is None:
        none, slow = np.isnan(rate), times.decode_s > q.request.most_tpot_s
        return reason_mask(False, False, none & slow, none & ~slow)
    late = load.utilisation >= 1
    many = (batch > q.max_batch * (1 + ROUNDING)) | (load.in_flight > batch + q.max_batch * SETTLED)
    return reason_mask(late, many & ~late)


def _of_steps(q: ServingQuestion, first: Step, step: Step, tokens: NDArray) -> NDArray:
    """Return why the steps of requests of a length cannot exist, as bits of a serving's reasons."""
    masks = first.reason_mask | step.reason_mask | of_lengths(step.model, q.mapping.cp, tokens)
    return masks << SERVE_REASONS.index(Step.REASONS[0])


def _serving(
    q: ServingQuestion, steps: tuple[Step, Step, Step], mask: NDArray, rate: NDArray, **times: NDArray
) -> Serving:
    """Return a serving with the rates of all replicas and the time of a request, from the times of its parts."""
    first, full, step = steps
    output = q.request.output_tokens
    made = rate * q.mapping.dp * output
    paid = account.paid_chips(q.system, step.occupied_chips)
    times |= {
        "requests_per_s": rate * q.mapping.dp,
        "tokens_per_s": made,
        "tokens_per_s_per_chip": made / paid,
    } | _whole_request(times["ttft_p50_s"], times["tpot_mean_s"], output)
    fields: dict[str, Any] = {"system": step.system, "stack": step.stack} | blank(mask, **times)
    return Serving(**fields, question=q, prefill_step=first, full_prefill_step=full, decode_step=step, reason_mask=mask)


def _static(q: ServingQuestion) -> Serving:
    """Return a server whose batches fill up, start together and end together."""
    request, top = q.replica_request, q.max_batch
    rate, output = np.asarray(request.requests_per_s), request.output_tokens
    ask: dict[str, Any] = {"input_tokens": request.new_tokens, "past": request.past_tokens, **q.of_steps}
    first = prefill(batch=top, **ask)
    step = decode_step(batch=top, context=request.mean_context, **q.of_steps)
    run_s = latency.request_s(first.time_s, step.time_s, output)
    busy, filling_s = latency.utilisation(rate, run_s, top), latency.filling_s(top, rate)
    times = {"step_s": step.time_s, "prefill_s": first.time_s, "tpot_mean_s": step.time_s, "tpot_p99_s": step.time_s}
    for name, quantile in (QUANTILES | {"ttft_s": request.ttft_quantile}).items():
        waiting_s = filling_s * quantile + latency.waiting_s(busy, run_s, quantile)
        times[name] = first.time_s + q.efficiencies.server_first_token_s + waiting_s
    mask = reason_mask(busy >= 1) | _of_steps(q, first, step, np.asarray(request.longest_context))
    more = {"batch": top, "tokens_per_step": np.ones(()), "prefill_utilisation": busy}
    return _serving(q, (first, first, step), mask, rate, **more, **times)


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
    groups = q.prefill_mapping.ep * q.prefill_mapping.pp
    many = {"input_tokens": q.input_tokens, **ask}
    first = prefill(q.model, q.prefill_system, q.prefill_mapping, **many)
    together = first
    if np.any(groups > 1):
        together = prefill(q.model, q.prefill_system, q.prefill_mapping, batch=groups, **many)
    ask |= {"efficiencies": q.decode_efficiencies, "max_context": q.input_tokens + output}
    step = decode_step(
        q.model, q.decode_system, q.decode_mapping, batch=batch, context=q.input_tokens + output / 2, **ask
    )
    chips, network = zip(prefill_replica, decode_replica, strict=True)
    sent = sent_bytes(q.model, q.input_tokens, q.precision)
    mask = reason_mask(~np.asarray(first.valid), ~np.asarray(step.valid))
    transfer_s = memory.transfer_s(sent, np.minimum(*network) * q.transfer_share)
    one = np.ones(())
    host_s = np.asarray(q.prefill_efficiencies.server_first_token_s)
    times = Times(batch, step.time_s, one, first.time_s, together.time_s, groups, one, host_s, True)
    found = apart(times, times, Request(q.input_tokens, output), transfer_s)
    ratio, rate = found.prefill_replicas, found.requests_per_s
    figures = {
        "prefill_s": first.time_s,
        "transfer_s": transfer_s,
        "transfer_bytes": sent,
        "step_s": step.time_s,
        "ttft_s": found.ttft_s,
        "prefill_replicas_per_decode_replica": ratio,
        "prefill_chips_per_decode_chip": ratio * chips[0] / chips[1],
        "requests_per_s_per_decode_replica": rate,
        "tokens_per_s_per_chip": rate * output / (chips[1] + ratio * chips[0]),
    }
    fields: dict[str, Any] = {"prefill_system": first.system, "decode_system": step.system} | blank(mask, **figures)
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
    return chips, replica_bytes_per_s(at.where, chips)
