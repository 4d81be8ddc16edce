"""Time and memory of prefill and of a decode step, for any grid of batch, context and degrees at once."""

from __future__ import annotations

from collections.abc import Mapping as Lines
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, flag, numbers, refuse, share, together
from trnmodel.catalog.specs import Chip, Precision, shapes
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Result, blank, reason_mask
from trnmodel.steps.assemble import (
    EXPERT_READS,
    Ask,
    Line,
    Setting,
    assemble,
    bucket,
    decode_ask,
    own_sequences,
    prefill_ask,
    setting,
)
from trnmodel.steps.assemble import (
    breakdown as lines_of,
)
from trnmodel.steps.mapping import DEGREES, Mapping
from trnmodel.steps.messages import Message

Numeric = ArrayLike
RESOURCES = ("compute", "memory", "network", "overhead")
REASONS = (
    "more ranks than the system has",
    "more pipeline stages than layers",
    "more expert-parallel ranks than experts",
    "a figure of the chip that the answer needs is not published",
    "does not fit in memory",
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Step(Result):
    """A forward step: its time, the resources that it is made of, its bounds, and what one rank stores.

    `lower_s` lets everything overlap, `upper_s` nothing; `time_s` lies between them. `memory_s` and the others are the
    times that a resource takes by itself. Numbers of a point that cannot exist are NaN.
    """

    REASONS: ClassVar[tuple[str, ...]] = REASONS

    model: Transformer
    system: System | Chip
    stack: Efficiencies
    tp: NDArray
    pp: NDArray
    dp: NDArray
    ep: NDArray
    cp: NDArray
    batch: NDArray
    tokens: NDArray
    compiled_tokens: NDArray
    time_s: NDArray
    compute_s: NDArray
    memory_s: NDArray
    network_s: NDArray
    overhead_s: NDArray
    lower_s: NDArray
    upper_s: NDArray
    tokens_per_s: NDArray
    tokens_per_s_per_user: NDArray
    work_flop_per_rank: NDArray
    moved_bytes_per_rank: NDArray
    memory_bytes_per_rank: NDArray
    messages: tuple[Message, ...] = ()
    operators: Lines[str, Line] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def bound(self) -> NDArray | str:
        """The resource that takes longest by itself; empty for a point that cannot exist."""
        times = np.stack(np.broadcast_arrays(self.compute_s, self.memory_s, self.network_s, self.overhead_s))
        names = np.asarray([*RESOURCES, ""], dtype=object)
        return names[np.where(np.isnan(times).any(axis=0), len(RESOURCES), times.argmax(axis=0))]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryFit(Result):
    """Bytes of an ordinary rank by kind, what the first rank holds more, and whether both fit."""

    REASONS: ClassVar[tuple[str, ...]] = (*REASONS, "the first rank, which holds more, does not fit in memory")

    tp: NDArray
    batch: NDArray
    context: NDArray
    weight_bytes: NDArray
    cache_bytes: NDArray
    scratchpad_bytes: NDArray
    collective_buffer_bytes: NDArray
    ring_bytes: NDArray
    code_bytes: NDArray
    total_bytes: NDArray
    first_rank_total_bytes: NDArray
    capacity_bytes: NDArray


def _kinds(s: Setting, batch: NDArray, context: NDArray, prompt: NDArray) -> dict[str, NDArray]:
    """Stored bytes of an ordinary rank, by kind: the fullest stage's weights, an even part of the cache."""
    e, m, c = s.e, s.mapping, s.outline
    sequences = own_sequences(batch, m.ep)
    weights, cached = np.zeros(()), np.zeros(())
    for h in s.held:
        weights = weights + h.term.stored_bytes * h.stored
        cached = cached + h.term.state_bytes * h.cached * sequences
        if a := h.term.attention:
            cached = cached + h.term.cached_bytes * h.cached * sequences * a.kept(context / m.cp)
    layers = np.ceil(c.layers / m.pp)
    width = s.wide_bytes
    activations = prompt / m.cp * c.widest * width / m.tp + 2 * prompt / m.cp * c.hidden * width
    return {
        "weight_bytes": weights * layers / c.layers,
        "cache_bytes": cached / m.pp,
        "scratchpad_bytes": _paged(activations, e.scratchpad_page_bytes),
        "collective_buffer_bytes": np.where(m.tp > 1, e.collective_buffer_bytes, 0.0),
        "ring_bytes": layers * e.ring_bytes_per_layer,
        "code_bytes": layers * e.code_bytes_per_layer,
    }


def _paged(used: NDArray, page_bytes: Numeric) -> NDArray:
    """Bytes in whole pages; as they are where there are no pages."""
    if not np.any(page_bytes):
        return used
    page = np.where(np.equal(page_bytes, 0), 1.0, page_bytes)
    return np.where(np.equal(page_bytes, 0), used, np.ceil(used / page) * page)


def _impossible(s: Setting, figure: NDArray, *memory_bytes: NDArray) -> NDArray:
    m, c = s.mapping, s.outline
    return reason_mask(
        m.ranks > s.at.chips * s.at.ranks_per_chip,
        m.pp > c.layers,
        m.ep > max(c.experts, 1),
        np.isnan(figure),
        *(stored > s.at.hbm_bytes for stored in memory_bytes),
    )


def _step(
    s: Setting,
    batch: NDArray,
    tokens: NDArray,
    compiled: NDArray,
    ask: Ask,
    overlaps: tuple[Numeric, Numeric],
    memory: NDArray,
    made: NDArray,
    lines: bool,
) -> Step:
    """The result of a step that makes `made` tokens for each sequence of the batch."""
    times, sent = assemble(s, ask, overlaps)
    mask = _impossible(s, times["time_s"], memory)
    rate = made / times["time_s"]
    numbers = times | {
        "tokens_per_s": batch * s.mapping.dp * rate,
        "tokens_per_s_per_user": rate,
        "memory_bytes_per_rank": memory,
    }
    degrees = {name: getattr(s.mapping, name) for name in ("tp", "pp", "dp", "ep", "cp")}
    return Step(
        model=s.model,
        system=s.system,
        stack=s.e,
        batch=batch,
        tokens=tokens,
        compiled_tokens=compiled,
        messages=sent,
        operators=MappingProxyType(lines_of(s, ask) if lines else {}),
        reason_mask=mask,
        **degrees,
        **(blank(mask, **numbers) if np.any(mask) else numbers),
    )


def _overlaps(s: Setting, compute_memory: Numeric | None, network: Numeric | None) -> tuple[NDArray, NDArray]:
    inner = s.e.compute_memory_overlap if compute_memory is None else compute_memory
    outer = s.e.network_overlap if network is None else network
    return share("compute_memory_overlap", inner), share("network_overlap", outer)


def _optional(name: str, value: Numeric | None) -> NDArray | None:
    return None if value is None else numbers(name, value, 1)


def _fitting(s: Setting, **given: Numeric | None) -> None:
    """Refuse arrays that do not broadcast, those of the mapping among them."""
    degrees = {f"mapping.{name}": getattr(s.mapping, name) for name in DEGREES}
    given_ = {name: value for name, value in given.items() if value is not None}
    together(**degrees, **given_, **shapes(system=s.system, efficiencies=s.e))


def decode_step(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    batch: Numeric,
    context: Numeric,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
    max_context: Numeric | None = None,
    compiled_batch: Numeric | None = None,
    expert_read: str | None = None,
    expert_imbalance: Numeric = 1.0,
    compute_memory_overlap: Numeric | None = None,
    network_overlap: Numeric | None = None,
    new_tokens: Numeric = 1,
    breakdown: bool = False,
) -> Step:
    r"""Time of one decode step.

    .. math:: t = \max(t_c, t_w) + \max(t_s, t_{kv}) + t_{net} + t_0

    compute t_c against weights t_w, softmax t_s against the cache t_kv, where the stack overlaps each pair fully.

    Parameters
    ----------
    model : str or Transformer
        Id, name, path or object. [-]
    system : str or System or Chip
        Id, name or object; of a bare chip there are as many as wanted. [-]
    mapping : Mapping, optional
        Degrees; default one rank. [-]
    batch : numeric
        Active sequences of a replica; `dp` replicas make dp times as many. [-]
    context : numeric
        Tokens in the cache, the new one included. [token]
    precision : str or Precision
        Preset or object. [-]
    efficiencies : str or Efficiencies, optional
        Software stack: an id, "ideal", or a set; default the chip's own stack. [-]
    max_context : numeric, optional
        Longest context that the graphs are compiled for; it bounds the bucket and sizes the cache. [token]
    compiled_batch : numeric, optional
        Sequences that the graph is compiled for and that run whatever is active; default `batch`. [-]
    expert_read : str, optional
        "distinct", "per_token" or "all"; default the stack's. [-]
    expert_imbalance : numeric
        Tokens of the hottest expert rank over the mean. [-]
    compute_memory_overlap : numeric, optional
        Share of the shorter of compute and memory that hides behind the longer; default the stack's. [-]
    network_overlap : numeric, optional
        The same for collectives and everything else on the device; default the stack's. [-]
    new_tokens : numeric
        Tokens that the step takes in for each sequence; more than one verifies a draft. [token]
    breakdown : bool
        Whether `operators` lists each operator, exchange and cost with its time by resource; they add up. [-]

    Returns
    -------
    step : Step
        Arrays of the broadcast shape of batch, context and degrees. [-]

    Notes
    -----
    A pipeline is kept full by `pp` micro-batches of batch/pp. Expert-parallel ranks share out the sequences too.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 1, "context": 2048, "efficiencies": "ideal"}
    >>> step = tm.decode_step("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=2), **ask)
    >>> round(float(step.memory_s) * 1e3, 3), step.bound
    (18.632, 'memory')
    """
    batch, context = numbers("batch", batch, 1), numbers("context", context, 1)
    new_tokens, imbalance = numbers("new_tokens", new_tokens, 1), numbers("expert_imbalance", expert_imbalance, 1)
    longest, slots = _optional("max_context", max_context), _optional("compiled_batch", compiled_batch)
    if expert_read is not None:
        choice("expert_read", expert_read, EXPERT_READS)
    model = read_model(model)
    if not model.generates:
        refuse("model", model.id, "an encoder has no decode step")
    s = setting(model, system, mapping, precision, efficiencies, "decode")
    overlaps = _overlaps(s, compute_memory_overlap, network_overlap)
    _fitting(s, batch=batch, context=context, new_tokens=new_tokens, expert_imbalance=imbalance, max_context=longest,
             compiled_batch=slots, compute_memory_overlap=overlaps[0], network_overlap=overlaps[1])  # fmt: skip
    if np.any(context < new_tokens):
        refuse("new_tokens", new_tokens[()], "allowed are at most those of context, which counts them")
    compiled = bucket(context, s.e.context_bucket, longest)
    runs = batch if slots is None else np.maximum(batch, slots)
    ask = decode_ask(s, runs, compiled, new_tokens, expert_read, imbalance)
    longest = compiled if longest is None else np.maximum(compiled, longest)
    memory = sum(_kinds(s, runs, longest, runs * new_tokens).values(), start=np.zeros(()))
    lines = flag("breakdown", breakdown)
    return _step(s, batch, context, compiled, ask, overlaps, memory, np.ones(()), lines)


def prefill(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    batch: Numeric = 1,
    input_tokens: Numeric,
    past: Numeric = 0,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
    max_context: Numeric | None = None,
    expert_imbalance: Numeric = 1.0,
    compute_memory_overlap: Numeric | None = None,
    network_overlap: Numeric | None = None,
    breakdown: bool = False,
) -> Step:
    """Time until the first token of prompts that start together, without a queue.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies, max_context, expert_imbalance
        As in `decode_step`. [-]
    batch : numeric
        Prompts of a replica that run in one execution. [-]
    input_tokens : numeric
        New tokens of each prompt; the stack pads them to its bucket. [token]
    past : numeric
        Tokens of each prompt that are cached already: earlier chunks, or a shared prefix. [token]
    compute_memory_overlap, network_overlap, breakdown
        As in `decode_step`. [-]

    Returns
    -------
    step : Step
        `time_s` is the prefill; `tokens_per_s` counts input tokens. [-]

    Notes
    -----
    Attention reaches no larger share of the peak than linear layers do.

    Examples
    --------
    >>> import trnmodel as tm
    >>> step = tm.prefill("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=2), input_tokens=2048, efficiencies="ideal")
    >>> step.bound
    'compute'
    """
    batch, tokens, past = numbers("batch", batch, 1), numbers("input_tokens", input_tokens, 1), numbers("past", past)
    imbalance, longest = numbers("expert_imbalance", expert_imbalance, 1), _optional("max_context", max_context)
    s = setting(model, system, mapping, precision, efficiencies, "prefill")
    overlaps = _overlaps(s, compute_memory_overlap, network_overlap)
    _fitting(s, batch=batch, input_tokens=tokens, past=past, expert_imbalance=imbalance, max_context=longest,
             compute_memory_overlap=overlaps[0], network_overlap=overlaps[1])  # fmt: skip
    compiled = bucket(tokens, s.e.prompt_bucket, longest)
    ask = prefill_ask(s, batch, compiled, past, imbalance)
    memory = sum(_kinds(s, batch, compiled + past, batch * compiled).values(), start=np.zeros(()))
    return _step(s, batch, tokens, compiled, ask, overlaps, memory, tokens, flag("breakdown", breakdown))


def memory_fit(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    batch: Numeric,
    context: Numeric,
    prompt_tokens: Numeric | None = None,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
) -> MemoryFit:
    """Bytes that a rank stores to serve `batch` sequences of up to `context` tokens, by kind.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies
        As in `decode_step`. [-]
    batch : numeric
        Sequences that the cache is sized for. [-]
    context : numeric
        Longest context of a sequence. [token]
    prompt_tokens : numeric, optional
        Tokens of the largest prefill execution; default `context`. [token]

    Returns
    -------
    fit : MemoryFit
        Weights, cache, scratchpad (activations, in whole pages), collective buffers, DMA rings and code of one rank.

    Notes
    -----
    The first rank of a server holds more than the others, as measured with one library: `first_rank_total_bytes`.
    Steps are judged by the ordinary rank alone, so that a point can have a time and be refused here, with that reason.
    A point that does not fit keeps its numbers, so that one can see by how much.
    """
    batch, context, prompt = (
        numbers("batch", batch, 1),
        numbers("context", context, 1),
        _optional("prompt_tokens", prompt_tokens),
    )
    s = setting(model, system, mapping, precision, efficiencies, "decode" if read_model(model).generates else "prefill")
    _fitting(s, batch=batch, context=context, prompt_tokens=prompt)
    kinds = _kinds(s, batch, context, context if prompt is None else prompt)
    total = sum(kinds.values(), start=np.zeros(()))
    first = total + s.e.first_rank_bytes
    return MemoryFit(
        tp=s.mapping.tp,
        batch=batch,
        context=context,
        total_bytes=total,
        first_rank_total_bytes=first,
        capacity_bytes=np.asarray(s.at.hbm_bytes),
        reason_mask=_impossible(s, np.asarray(s.at.hbm_bytes), total, first),
        **kinds,
    )
