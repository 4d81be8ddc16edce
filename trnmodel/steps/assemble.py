"""Resource times of a forward step on one rank: terms x share / rate, plus messages."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Lines
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, instance
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.systems import System
from trnmodel.fabric.groups import Same
from trnmodel.formulas.moe import expert_blocks, experts_read
from trnmodel.models.blocks import Attention, Phase
from trnmodel.models.terms import Cut, Outline
from trnmodel.models.transformer import Transformer, model
from trnmodel.steps.mapping import Held, Mapping, hold, shard
from trnmodel.steps.messages import Message, message_s, messages
from trnmodel.steps.rank import Site, site

Numeric = ArrayLike
SETTINGS = 512  # that are kept, with their machines
FIRST_BUCKET = 128
LOGIT_BYTES = 4
BUCKETS = ("exact", "power-of-two", "maximum")
EXPERT_READS = ("distinct", "per_token", "all")
PREFILL_EXPERTS = ("routed", "all", "blocks")
BLOCK_PASSES = 3  # a block of tokens gathers its inputs, reads the sums so far and writes them back


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Everything that a step depends on besides batch and lengths, resolved once."""

    model: Transformer
    system: System | Chip
    mapping: Mapping
    precision: Precision
    wide_bytes: float
    phase: Phase
    at: Site
    e: Efficiencies
    outline: Outline
    held: tuple[Held, ...]


def setting(
    model_: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None,
    precision: str | Precision,
    stack: str | Efficiencies | None,
    phase: Phase,
) -> Setting:
    """Model, rank, stack and shares of a question, from ids or objects."""
    mapping = Mapping() if mapping is None else mapping
    instance("mapping", mapping, Mapping, "a Mapping, such as Mapping(tp=8)")
    at = site(system, mapping.lnc)
    given = model(model_), at, read_precision(precision), Same(find(at.chip, stack, "efficiencies")), phase
    return _kept(*given, mapping.key) if mapping.key else _resolved(*given, mapping)


@lru_cache(maxsize=SETTINGS)
def _kept(
    chosen: Transformer, at: Site, dtypes: Precision, stack: Same[Efficiencies], phase: Phase, key: tuple
) -> Setting:
    """The setting of scalar degrees, resolved once."""
    (tp, pp, dp, ep, cp), order = key
    return _resolved(chosen, at, dtypes, stack, phase, Mapping(tp, pp, dp, ep, cp, at.lnc, order))


def _resolved(
    chosen: Transformer, at: Site, dtypes: Precision, stack: Same[Efficiencies], phase: Phase, mapping: Mapping
) -> Setting:
    e = stack.it
    return Setting(
        model=chosen,
        system=at.where,
        mapping=mapping,
        precision=dtypes,
        wide_bytes=dtypes.storage_bytes("activations"),
        phase=phase,
        at=at,
        e=e,
        outline=chosen.outline(phase),
        held=shard(chosen, mapping, dtypes, phase, e.kv_head_policy, e.expert_tile_columns),
    )


def bucket(tokens: Numeric, policy: str, maximum: Numeric | None = None) -> NDArray:
    """Length that the compiled graph runs for `tokens` tokens.

    "exact" pads nothing, "power-of-two" pads to the next power of two from 128 on but not beyond the maximum,
    "maximum" always runs the maximum.

    Examples
    --------
    >>> bucket([100, 1500, 4096], "power-of-two", 4096).tolist()
    [128.0, 2048.0, 4096.0]
    """
    choice("bucket", policy, BUCKETS)
    tokens = np.asarray(tokens, dtype=float)
    if policy == "exact" or (policy == "maximum" and maximum is None):
        return tokens
    top = np.inf if maximum is None else np.asarray(maximum, dtype=float)
    if policy == "maximum":
        return np.maximum(tokens, top)
    return np.maximum(tokens, np.minimum(np.exp2(np.ceil(np.log2(np.maximum(tokens, FIRST_BUCKET)))), top))


def overlapped(first: NDArray, second: NDArray, overlap: Numeric) -> NDArray:
    """Two times of which the share `overlap` of the shorter hides behind the longer."""
    return np.maximum(first, second) + np.minimum(first, second) * np.subtract(1, overlap)


def own_sequences(batch: NDArray, ranks: NDArray) -> NDArray:
    """Sequences of one of `ranks` that share them out evenly, but cut none: expert-parallel ranks, stages in turn.

    Examples
    --------
    >>> own_sequences(np.array([1.0, 96.0]), np.array(64.0)).tolist()
    [1.0, 1.5]
    """
    return np.maximum(batch / ranks, np.minimum(batch, 1))


class Seen(NamedTuple):
    """What one kind of attention meets in a step on a rank, its share of heads aside."""

    pairs: NDArray
    cached_tokens: NDArray
    keys: NDArray | float


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What a step asks of a rank: rows of its own, rows for its experts, rows of logits, sequences, attention.

    `seen` gives pairs, cached tokens read and written, and keys that softmax runs over; `experts` the work on a kind of
    experts over that of the routed rows, and the share of them that is read. `spent` are costs that no term has, by
    name: bytes and seconds.
    """

    rows: NDArray
    routed: NDArray
    logits: NDArray
    sequences: NDArray
    imbalance: NDArray
    seen: Callable[[Attention], Seen]
    experts: Callable[[Cut], tuple[NDArray, NDArray]]
    spent: Lines[str, tuple[NDArray, NDArray]]


def _routing_s(s: Setting, tokens: NDArray) -> NDArray:
    """What layers with experts add to a decode step: the longer, the more ranks wait and the more tokens are routed.

    Tokens are routed one after another, which overlaps in part, until all experts run on all of them.
    """
    c = s.outline
    if not c.experts or not np.any(s.e.expert_layer_s):
        return np.zeros(())
    routed = np.minimum(tokens, c.experts / c.top_k)
    return c.expert_layers * s.e.expert_layer_s * np.log2(s.mapping.tp * s.mapping.ep) * np.sqrt(routed)


def decode_ask(
    s: Setting, batch: NDArray, context: NDArray, new_tokens: NDArray, expert_read: str | None, imbalance: NDArray
) -> Ask:
    """What a decode step over `batch` sequences with `context` cached tokens asks of one rank.

    A pipeline is kept full by as many micro-batches as it has stages, none of less than a sequence.
    """
    m = s.mapping
    replica = own_sequences(batch, m.pp)
    sequences = own_sequences(replica, m.ep)
    rows, routed = sequences * new_tokens, replica * new_tokens

    def seen(a: Attention) -> Seen:
        keys = a.visible(context / m.cp)
        return Seen(rows * keys, sequences * keys + rows, keys)

    @cache
    def experts(cut: Cut) -> tuple[NDArray, NDArray]:
        return np.ones(()), experts_read(cut.experts, cut.active, routed, expert_read or s.e.expert_read) / cut.experts

    spent = {
        "expert routing": (np.zeros(()), _routing_s(s, routed)),
        "logits to the host": (np.zeros(()), rows * s.outline.vocabulary * LOGIT_BYTES / s.e.host_logit_bytes_per_s),
        "step": (np.zeros(()), np.asarray(s.e.step_overhead_s + s.e.server_step_s)),
    }
    return Ask(rows, routed, rows, sequences, imbalance, seen, experts, spent)


def _expert_blocks(s: Setting, cut: Cut, tokens: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """How a rank prefills its experts: work over that of the routed tokens, passes over its experts, blocks a layer.

    Blocks of a static graph run full whether tokens fill them or not, each with the weights of its expert; tokens too
    few for one block go through all experts, or fill one up where that is less. Expert-parallel ranks share out the
    tokens evenly.
    """
    e, experts, top_k = s.e, cut.experts, cut.active
    if choice("prefill_experts", e.prefill_experts, PREFILL_EXPERTS) == "routed":
        return np.ones(()), experts_read(experts, top_k, tokens, "distinct") / experts, np.zeros(())
    if e.prefill_experts == "all":
        return np.asarray(experts / top_k), np.ones(()), np.zeros(())
    local, routed = np.ceil(experts / s.mapping.ep), tokens / s.mapping.ep * top_k
    blocks = expert_blocks(local, top_k, np.maximum(routed, e.expert_block_tokens) / top_k, e.expert_block_tokens)
    work = blocks * e.expert_block_tokens / routed
    fills = (routed >= e.expert_block_tokens) | (work < experts / top_k)
    return np.where(fills, work, experts / top_k), np.where(fills, blocks / local, 1.0), np.where(fills, blocks, 0)


def _spill_s(s: Setting, prompts: NDArray, tokens: NDArray) -> NDArray:
    """What a stack pays that moves a batch beyond SBUF once in each layer for each further prompt."""
    if s.at.chip.core is None or np.all(np.isinf(s.e.prefill_spill_bytes_per_s)):
        return np.zeros(())
    held = tokens * s.outline.hidden * s.wide_bytes
    beyond = np.maximum(held - s.at.chip.core.sbuf_bytes * s.at.lnc, 0)
    return s.outline.layers * (prompts - 1) * beyond / s.e.prefill_spill_bytes_per_s


def prefill_ask(s: Setting, batch: NDArray, tokens: NDArray, past: NDArray, imbalance: NDArray) -> Ask:
    """What a prefill of `batch` prompts of `tokens` tokens after `past` cached ones asks of one rank."""
    m, c = s.mapping, s.outline
    sequences = own_sequences(batch, m.ep)
    rows, routed = sequences * tokens / m.cp, batch * tokens / m.cp

    def seen(a: Attention) -> Seen:
        pairs = sequences * a.pairs(tokens, past, True) / m.cp
        return Seen(pairs, sequences * (a.visible(past) + a.kept(tokens)) / m.cp, 0.0)

    @cache
    def experts(cut: Cut) -> tuple[NDArray, NDArray]:
        return _expert_blocks(s, cut, routed)[:2]

    blocks = np.zeros(())
    if c.experts:
        blocks = _expert_blocks(s, Cut("experts", experts=c.experts, active=c.top_k), routed)[2] * c.expert_layers
    moved = blocks * s.e.expert_block_tokens * c.hidden * s.wide_bytes
    spent = {
        "expert blocks": (BLOCK_PASSES * moved, blocks * s.e.expert_block_s),
        "spills": (np.zeros(()), _spill_s(s, sequences, rows)),
        "step": (np.zeros(()), np.asarray(s.e.prefill_overhead_s + s.e.server_step_s)),
    }
    return Ask(rows, routed, sequences, sequences, imbalance, seen, experts, spent)


class Rates(NamedTuple):
    """What a rank does in a second: FLOP of matrices and of attention, bytes of weights and of cache."""

    linear_flop_per_s: NDArray | float
    pair_flop_per_s: NDArray | float
    weight_bytes_per_s: NDArray | float
    cache_bytes_per_s: NDArray | float


def rates(s: Setting) -> Rates:
    """Printed peaks and bandwidth of a rank, times the shares that the stack reaches in this phase.

    In prefill attention reaches no larger share of the peak than linear layers do.
    """
    e, at = s.e, s.at
    linear = pair = e.decode_matmul_share
    if s.phase == "prefill":
        linear = e.prefill_matmul_share / e.prefill_slowdown
        pair = np.minimum(e.prefill_attention_share / e.prefill_slowdown, linear)
    return Rates(
        at.peak(s.precision.compute) * linear,
        at.peak(s.precision.attention) * pair,
        at.hbm_bytes_per_s * e.weight_stream_share,
        np.minimum(at.hbm_bytes_per_s * e.kv_stream_share, e.kv_stream_bytes_per_s),
    )


class Load(NamedTuple):
    """Times that a term takes by resource, matrices and attention apart, and its work and traffic on one rank."""

    linear_s: NDArray | float
    weights_s: NDArray | float
    attend_s: NDArray | float
    cache_s: NDArray | float
    flop: NDArray | float
    moved_bytes: NDArray | float


def _attention_load(h: Held, s: Setting, ask: Ask, r: Rates) -> Load:
    """Scores and weighted values, or the softmax between them where that takes longer, beside the cache."""
    a = h.term.attention
    assert a is not None
    seen = ask.seen(a)
    flop, moved = h.term.pair_flop * h.work * seen.pairs, h.term.cached_bytes * h.cached * seen.cached_tokens
    attend_s = flop / r.pair_flop_per_s
    if s.phase == "decode" and np.any(s.e.softmax_cycle_per_element):
        passes = np.ceil(ask.rows * a.heads * h.work / s.at.rows_side_by_side)
        cycles = h.term.layers * seen.keys * passes * s.e.softmax_cycle_per_element
        attend_s = np.maximum(attend_s, cycles / s.at.vector_clock_hz)
    return Load(0.0, 0.0, attend_s, moved / r.cache_bytes_per_s, flop, moved)


def load(h: Held, s: Setting, ask: Ask, r: Rates) -> Load:
    """What a term costs one rank: its work and bytes, times the rank's share, over the rank's rates."""
    t = h.term
    if t.kind == "attention":
        return _attention_load(h, s, ask, r)
    if t.kind == "experts":
        work, read = ask.experts(t.cut)
        flop = t.row_flop * h.work * ask.routed * ask.imbalance * work
        moved = t.read_bytes * h.read * read * ask.imbalance
    else:
        flop = (t.row_flop * ask.rows + t.logit_flop * ask.logits) * h.work
        moved = (t.read_bytes + t.row_bytes * ask.rows) * h.read
    linear_s, weights_s = flop / r.linear_flop_per_s, moved / r.weight_bytes_per_s
    if t.kind != "state":
        return Load(linear_s, weights_s, 0.0, 0.0, flop, moved)
    state = 2 * t.state_bytes * h.cached * ask.sequences  # read and written
    return Load(linear_s, weights_s, 0.0, state / r.cache_bytes_per_s, flop, moved + state)


def _sent(s: Setting, ask: Ask) -> tuple[Message, ...]:
    given = s.mapping, s.held, s.outline, s.wide_bytes, s.phase, s.e
    return messages(*given, ask.rows, ask.logits, ask.imbalance)


def assemble(s: Setting, ask: Ask, overlaps: tuple[Numeric, Numeric]) -> tuple[dict[str, NDArray], tuple[Message, ...]]:
    """Resource times of a step, the step time between its bounds, and the messages of its network time."""
    inner, outer = overlaps
    r = rates(s)
    loads = [load(h, s, ask, r) for h in s.held]
    linear_s, weights_s, attend_s, cache_s, flop, moved = (np.asarray(sum(part)) for part in zip(*loads, strict=True))
    gathered = sum(moved_bytes for moved_bytes, _ in ask.spent.values())
    weights_s, moved = weights_s + gathered / r.weight_bytes_per_s, moved + gathered
    overhead = np.asarray(sum(seconds for _, seconds in ask.spent.values()))
    sent = _sent(s, ask)
    network = sum((message_s(s.at, s.mapping, s.e, message) for message in sent), start=np.zeros(()))
    apart = overlapped(linear_s, weights_s, inner) + overlapped(attend_s, cache_s, inner)
    joined = overlapped(linear_s + attend_s, weights_s + cache_s, inner)
    device_s = joined * s.e.phase_overlap + apart * (1 - s.e.phase_overlap)
    compute, memory = linear_s + attend_s, weights_s + cache_s
    times = {
        "time_s": overlapped(device_s, network, outer) + overhead,
        "compute_s": compute,
        "memory_s": memory,
        "network_s": network,
        "overhead_s": overhead,
        "lower_s": np.maximum(np.maximum(compute, memory), network) + overhead,
        "upper_s": compute + memory + network + overhead,
        "work_flop_per_rank": flop,
        "moved_bytes_per_rank": moved,
    }
    return times, sent


class Line(NamedTuple):
    """A line of a step's breakdown: what one operator, one exchange or one cost takes of each resource, in s."""

    compute_s: NDArray | float
    memory_s: NDArray | float
    network_s: NDArray | float
    overhead_s: NDArray | float


def breakdown(s: Setting, ask: Ask) -> dict[str, Line]:
    """Every line of a step; by resource the lines add up to the step's times, which then overlap."""
    r = rates(s)
    found: dict[str, Line] = {}

    def add(name: str, line: Line) -> None:  # kinds of layers may share a name
        before = found.get(name, Line(0.0, 0.0, 0.0, 0.0))
        found[name] = Line(*(one + more for one, more in zip(before, line, strict=True)))

    for term in s.model.terms(s.precision, s.phase):
        if term.layers:
            one = load(hold(term, s.mapping, s.e.kv_head_policy, s.e.expert_tile_columns), s, ask, r)
            add(term.label, Line(one.linear_s + one.attend_s, one.weights_s + one.cache_s, 0.0, 0.0))
    for name, (moved, seconds) in ask.spent.items():
        add(name, Line(0.0, moved / r.weight_bytes_per_s, 0.0, seconds))
    for message in _sent(s, ask):
        add(message.name, Line(0.0, 0.0, message_s(s.at, s.mapping, s.e, message), 0.0))
    return found
