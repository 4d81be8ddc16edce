"""Resource times of a forward step on one rank: terms x share / rate, plus messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Mapping as Lines
from functools import cache
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice
from trnmodel.catalog.load import dtypes
from trnmodel.catalog.stacks import PrefillExperts
from trnmodel.formulas import memory, moe, step
from trnmodel.models.blocks import Attention
from trnmodel.models.terms import Cut
from trnmodel.steps.messages import message_s, messages
from trnmodel.steps.setting import Burden, Setting
from trnmodel.units import Numeric

FIRST_BUCKET = 128
LOGIT_BYTES = SCORE_BYTES = 4
PREFILL_EXPERTS: tuple[str, ...] = get_args(PrefillExperts)
BLOCK_PASSES = 3  # a block of tokens gathers its inputs, reads the sums so far and writes them back


def bucket(tokens: NDArray, policy: str, maximum: Numeric | None = None) -> NDArray:
    """Length that the compiled graph runs for `tokens` tokens, with a graph for any length where there is no maximum.

    Examples
    --------
    >>> bucket(np.array([100.0, 1500.0, 4096.0]), "power-of-two", 4096).tolist()
    [128.0, 2048.0, 4096.0]
    """
    if maximum is None:
        maximum = tokens if policy == "maximum" else np.inf
    return step.compiled_tokens(tokens, maximum, FIRST_BUCKET, policy)


# how a step runs its experts: a planner reads here why a point costs more than its neighbour
WAYS = ("", "needed", "selected", "all", "blocks", "blocks, more work than all")
NEEDED, SELECTED, ALL, BLOCKS, FORCED = range(1, len(WAYS))


class Seen(NamedTuple):
    """What one kind of attention meets in a step on a rank, its share of heads aside."""

    pairs: NDArray
    cached_tokens: NDArray


class Ask(NamedTuple):
    """What a step asks of a rank: rows of its own, rows for its experts, rows of logits, sequences, attention.

    `seen` gives pairs, and cached tokens read and written; `experts` the work on a kind of experts over that of the
    routed rows, and the share of them that is read; `way` is how they run, a place in `WAYS`. `spent` are costs that no
    term has, by name: bytes and seconds.
    """

    rows: NDArray
    routed: NDArray
    logits: NDArray
    sequences: NDArray
    imbalance: Numeric
    seen: Callable[[Attention], Seen]
    experts: Callable[[Cut], tuple[Numeric, NDArray]]
    way: Numeric
    spent: Lines[str, tuple[Numeric, Numeric]]


def _run_experts(
    s: Setting, routed: NDArray, policy: str
) -> tuple[Callable[[Cut], tuple[Numeric, NDArray]], NDArray, Numeric]:
    """Work and reads of a kind of experts in a decode step, whether experts of each token are selected, and the way.

    It reads each expert that is needed once ("distinct"); or selects each token's experts ("per_token"), gathering
    their weights, at most all of them, as long as these are fewer than all and no ranks hold whole experts; else, and
    where it selects none ("all"), all experts of a rank run on all tokens, which is E/k times the work.
    """
    selects = (policy == "per_token") & np.equal(s.degrees.expert_groups, 1)

    def experts(cut: Cut) -> tuple[Numeric, NDArray]:
        read = moe.experts_read(cut.experts, cut.active, routed, policy) / cut.experts
        if policy == "distinct":
            return 1.0, read
        gathers, reads = selects & (read < 1), np.minimum(read * s.e.expert_gather_reads, 1.0)
        return np.where(gathers, 1.0, cut.experts / cut.active), np.where(gathers, reads, 1.0)

    if policy == "distinct" or not s.outline.experts:
        return experts, selects, NEEDED * bool(s.outline.experts)
    few = selects & (moe.experts_read(s.outline.experts, s.outline.top_k, routed, policy) < s.outline.experts)
    return experts, selects, np.where(few, SELECTED, ALL)


def decode_ask(
    s: Setting, batch: NDArray, context: NDArray, new_tokens: NDArray, expert_read: str | None, imbalance: Numeric
) -> Ask:
    """What a decode step over `batch` sequences with `context` cached tokens asks of one rank.

    A pipeline is kept full by as many micro-batches as it has stages, none of less than a sequence.
    """
    c, d, e = s.outline, s.degrees, s.e
    replica = step.own_sequences(batch, d.pp)
    sequences = step.own_sequences(replica, d.ep)
    rows, routed = sequences * new_tokens, replica * new_tokens
    local = context / d.cp
    passes: Numeric = 1.0
    if s.at.ranks_per_bank > 1:
        passes = np.where(replica > 1, e.lone_core_cache_passes, 1.0)

    def seen(a: Attention) -> Seen:
        keys = step.visible_tokens(local, a.window, a.kind)
        return Seen(rows * keys, passes * sequences * keys + rows)

    experts, selects, way = _run_experts(s, routed, expert_read or e.expert_read)
    routing_s: Numeric = 0.0
    if c.experts:
        cores = d.tp * d.ep * s.at.lnc
        routing_s = moe.routing_s(c.expert_layers, e.expert_core_s, cores, routed, c.experts, c.top_k, selects)
    spent: dict[str, tuple[Numeric, Numeric]] = {
        "expert routing": (0.0, routing_s),
        "logits to the host": (0.0, memory.transfer_s(rows * c.vocabulary * LOGIT_BYTES, e.host_logit_bytes_per_s)),
        "weights to another format": (0.0, _converted_s(s, experts)),
        "layers": (0.0, c.layers * e.layer_s),
        "layers without experts": (0.0, (c.layers - c.expert_layers) * e.dense_layer_s),
        "graphs": (0.0, step.graphs_s(c.expert_layers, e.graph_layers, d.tp * d.ep, e.graph_doubling_s)),
        "sequences": (0.0, sequences * e.sequence_s),
        "experts one after another": (0.0, c.expert_layers * e.expert_serial_s),
        "step": (0.0, e.step_overhead_s + e.server_step_s),
    }
    return Ask(rows, routed, rows, sequences, imbalance, seen, experts, way, spent)


def _converted_s(s: Setting, experts: Callable[[Cut], tuple[Numeric, NDArray]]) -> Numeric:
    """Passes over the weights that a rank takes from their stored format to another in a step.

    Experts that are stored narrower than activations are widened, other weights that are stored wider than products
    take them are cast.
    """
    passes: Numeric = s.e.dequantise_passes
    if not np.any(passes):
        return 0.0
    narrow, wide = (s.precision.storage_bytes(part) for part in ("experts", "weights"))
    found: list[Numeric] = []
    for b in s.burdens:
        if b.kind == "experts" and narrow < s.wide_bytes:
            found.append(b.read_bytes * experts(b.cut)[1] / narrow)
        elif b.kind != "experts" and wide > dtypes()[s.precision.compute]:
            found.append(b.read_bytes / wide)
    return total(found) * passes / s.rates.elements_per_s


def _expert_blocks(s: Setting, experts: int, top_k: int, tokens: NDArray) -> tuple[Numeric, NDArray, Numeric, Numeric]:
    """How a rank prefills its experts: work over that of the routed tokens, passes over its experts, blocks, the way.

    Blocks of a static graph run full whether tokens fill them or not, each with the weights of its expert; tokens too
    few for one block go through all experts, or fill one up where that is less. Expert-parallel ranks share out the
    tokens evenly.
    """
    e = s.e
    if choice("prefill_experts", e.prefill_experts, PREFILL_EXPERTS) == "routed":
        return 1.0, moe.experts_read(experts, top_k, tokens, "distinct") / experts, 0.0, NEEDED
    if e.prefill_experts == "all":
        return experts / top_k, np.ones(()), 0.0, ALL
    d = s.degrees
    local, own = np.ceil(experts / d.expert_groups), tokens / d.ep
    routed = own * top_k
    needed = moe.expert_blocks(local, top_k, np.maximum(own, e.expert_block_tokens / top_k), e.expert_block_tokens)
    less = needed * e.expert_block_tokens < own * experts / d.moe_ep
    blocks = np.where((routed >= e.expert_block_tokens) | less, needed, 0)
    work = moe.block_work_ratio(blocks, e.expert_block_tokens, routed / d.moe_ep, experts, top_k)
    way = np.where(blocks > 0, np.where(less, BLOCKS, FORCED), ALL)
    return work, moe.block_read_share(blocks, local), blocks, way


def prefill_ask(s: Setting, batch: NDArray, tokens: NDArray, past: NDArray, imbalance: Numeric) -> Ask:
    """What a prefill of `batch` prompts of `tokens` tokens after `past` cached ones asks of one rank."""
    c, d, e = s.outline, s.degrees, s.e
    sequences = step.own_sequences(batch, d.ep)
    rows, routed = sequences * tokens / d.cp, batch * tokens / d.cp

    def seen(a: Attention) -> Seen:
        pairs = sequences * a.pairs(tokens, past, True) / d.cp
        return Seen(pairs, sequences * (a.visible(past) + a.kept(tokens)) / d.cp)

    @cache
    def laid(experts: int, top_k: int) -> tuple[Numeric, NDArray, Numeric, Numeric]:
        return _expert_blocks(s, experts, top_k, routed)

    def experts(cut: Cut) -> tuple[Numeric, NDArray]:
        return laid(cut.experts, cut.active)[:2]

    blocks: Numeric = 0.0
    spill_s: Numeric = 0.0
    way: Numeric = 0
    if c.experts:
        blocks, way = laid(c.experts, c.top_k)[2:]
        blocks = blocks * c.expert_layers
    held = step.buffer_bytes(rows, c.hidden, s.wide_bytes)
    if s.at.chip.core is not None and not np.all(np.isinf(e.prefill_spill_bytes_per_s)):
        sbuf = s.at.chip.core.sbuf_bytes * s.at.lnc
        spill_s = memory.spill_s(c.layers, sequences, held, sbuf, e.prefill_spill_bytes_per_s)
    scores: Numeric = 0.0
    if np.any(e.score_passes):
        heads = total([b.layers * b.attention.heads * b.head_share for b in s.burdens if b.attention])
        scores = e.score_passes * SCORE_BYTES * heads * rows * (past + tokens)
    moved = step.buffer_bytes(blocks * e.expert_block_tokens, c.hidden, s.wide_bytes)
    spent: dict[str, tuple[Numeric, Numeric]] = {
        "expert blocks": (BLOCK_PASSES * moved, blocks * e.expert_block_s),
        "weights to another format": (0.0, _converted_s(s, experts)),
        "scores": (0.0, scores / s.rates.weight_bytes_per_s),  # between two products, which wait for them
        "spills": (0.0, spill_s),
        "layers": (0.0, c.layers * (e.layer_s + e.prefill_layer_s)),
        "recurrence": (0.0, c.recurrent_layers * tokens / d.cp * e.recurrent_token_s),
        "step": (0.0, e.prefill_overhead_s + e.server_step_s),
    }
    return Ask(rows, routed, sequences, sequences, imbalance, seen, experts, way, spent)


class Load(NamedTuple):
    """Times that a term takes by resource, matrices and attention apart, and its work and traffic on one rank."""

    linear_s: Numeric
    weights_s: Numeric
    attend_s: Numeric
    cache_s: Numeric
    flop: Numeric
    moved_bytes: Numeric


def _attention_load(b: Burden, s: Setting, ask: Ask) -> Load:
    """Scores and weighted values beside the cache."""
    assert b.attention is not None
    r, seen = s.rates, ask.seen(b.attention)
    flop, moved = b.pair_flop * seen.pairs, b.cached_bytes * seen.cached_tokens
    return Load(0.0, 0.0, flop / r.pair_flop_per_s, moved / r.cache_bytes_per_s, flop, moved)


def load(b: Burden, s: Setting, ask: Ask) -> Load:
    """What a rank's share of a term costs it: work and bytes over the rank's rates."""
    r = s.rates
    if b.kind == "attention":
        return _attention_load(b, s, ask)
    if b.kind == "experts":
        work, read = ask.experts(b.cut)
        flop = b.row_flop * ask.routed * ask.imbalance * work
        moved = b.read_bytes * read * ask.imbalance
        return Load(flop / r.linear_flop_per_s, moved / r.weight_bytes_per_s, 0.0, 0.0, flop, moved)
    flop = step.work_flop(b.row_flop, ask.rows, b.logit_flop, ask.logits)
    moved = step.read_bytes(b.read_bytes, b.row_bytes, ask.rows)
    linear_s, weights_s = flop / r.linear_flop_per_s, moved / r.weight_bytes_per_s
    if b.kind == "matrix":
        return Load(linear_s, weights_s, 0.0, 0.0, flop, moved)
    state = 2 * b.state_bytes * ask.sequences  # read and written
    return Load(linear_s, weights_s, 0.0, state / r.state_bytes_per_s, flop, moved + state)


def total(parts: Iterable[Numeric]) -> NDArray:
    """The sum of some parts, without those that are nothing."""
    whole: Any = None
    for part in parts:
        if type(part) is not float or part:
            whole = part if whole is None else whole + part
    return np.zeros(())[()] if whole is None else whole


def assemble(s: Setting, ask: Ask, overlaps: tuple[Numeric, Numeric]) -> dict[str, NDArray]:
    """Resource times of a step, and the step time that they overlap to."""
    inner, outer = overlaps
    loads = [load(b, s, ask) for b in s.burdens]
    linear_s, weights_s, attend_s, cache_s, flop, moved = map(total, zip(*loads, strict=True))
    gathered, overhead = map(total, zip(*ask.spent.values(), strict=True))
    weights_s, moved = total((weights_s, gathered / s.rates.weight_bytes_per_s)), total((moved, gathered))
    network = total([message_s(s, message) for message in messages(s, ask.rows, ask.logits, ask.imbalance)])
    compute, resident = linear_s + attend_s, weights_s + cache_s
    device_s = step.overlapped_s(compute, resident, inner)
    if s.phases_wait:
        apart_s = step.overlapped_s(linear_s, weights_s, inner) + step.overlapped_s(attend_s, cache_s, inner)
        device_s = step.phased_s(device_s, apart_s, s.e.phase_overlap)
    return {
        "time_s": step.overlapped_s(device_s, network, outer) + overhead,
        "compute_s": compute,
        "memory_s": resident,
        "network_s": network,
        "overhead_s": overhead,
        "work_flop_per_rank": flop,
        "moved_bytes_per_rank": moved,
    }


class Line(NamedTuple):
    """A line of a step's breakdown: what one operator, one exchange or one cost takes of each resource, in s."""

    compute_s: Numeric
    memory_s: Numeric
    network_s: Numeric
    overhead_s: Numeric


def breakdown(s: Setting, ask: Ask) -> dict[str, Line]:
    """Every line of a step; by resource the lines add up to the step's times, which then overlap."""
    found: dict[str, Line] = {}

    def add(name: str, line: Line) -> None:  # kinds of layers may share a name
        before = found.get(name, Line(0.0, 0.0, 0.0, 0.0))
        found[name] = Line(*(one + more for one, more in zip(before, line, strict=True)))

    for b in s.listed.burdens:
        one = load(b, s, ask)
        add(b.name, Line(one.linear_s + one.attend_s, one.weights_s + one.cache_s, 0.0, 0.0))
    for name, (moved, seconds) in ask.spent.items():
        add(name, Line(0.0, moved / s.rates.weight_bytes_per_s, 0.0, seconds))
    for message in messages(s, ask.rows, ask.logits, ask.imbalance):
        add(message.name, Line(0.0, 0.0, message_s(s, message), 0.0))
    return found


def stored_kinds(s: Setting, batch: NDArray, context: NDArray, prompt: NDArray) -> dict[str, NDArray]:
    """Stored bytes of an ordinary rank, by kind: the fullest stage's weights, an even part of the cache."""
    c, d, stored = s.outline, s.degrees, s.stored
    sequences, local = step.own_sequences(batch, d.ep), context / d.cp
    cached: Numeric = 0.0
    for b in s.burdens:
        kept = step.kept_tokens(local, b.attention.window, b.attention.kind) if b.attention else 0.0
        if b.kind in ("attention", "state"):
            cached = cached + memory.cached_bytes(b.cached_bytes, kept, b.state_bytes, sequences)
    activations = memory.activation_bytes(prompt / d.cp, c.widest, c.hidden, s.wide_bytes, d.tp)
    return {
        "weight_bytes": stored.weight_bytes,
        "cache_bytes": np.divide(cached, d.pp),
        "scratchpad_bytes": memory.paged_bytes(activations, s.e.scratchpad_page_bytes),
        "collective_buffer_bytes": stored.collective_buffer_bytes,
        "ring_bytes": stored.ring_bytes,
        "code_bytes": stored.code_bytes,
    }
