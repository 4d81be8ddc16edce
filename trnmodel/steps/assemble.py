"""Resource times of a forward step on one rank: terms x share / rate, plus messages."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Costs
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice
from trnmodel.catalog.load import dtypes
from trnmodel.catalog.stacks import Efficiencies, PrefillExperts
from trnmodel.fabric.collectives import times_s
from trnmodel.formulas import memory, moe, step
from trnmodel.formulas.moe import dispatched_bytes
from trnmodel.formulas.step import buffer_bytes
from trnmodel.models.blocks import Attention
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


# How a step runs its experts: from it a reader learns why a point takes longer than its neighbour.
EXPERT_EXECUTIONS = ("", "needed", "selected", "all", "blocks", "blocks, more work than all")
NEEDED, SELECTED, ALL, BLOCKS, FORCED = range(1, len(EXPERT_EXECUTIONS))
ExpertKind = tuple[int, int]  # experts, and how many of them a token takes


class Attended(NamedTuple):
    """Query-key pairs of one kind of attention in a step on a rank, and cached tokens that it reads and writes.

    The rank's share of heads is not in them.
    """

    pairs: NDArray
    cached_tokens: NDArray


class ExpertUse(NamedTuple):
    """Work on a kind of experts over that of the routed rows, and the share of the rank's experts that is read."""

    work: Numeric
    read: NDArray


class RankWork(NamedTuple):
    """Work of a step on one rank: its rows, rows for its experts, rows of logits, and its sequences.

    `attended` is by kind of attention, `experts` by kind of experts. `expert_execution` is how experts run, a place in
    `EXPERT_EXECUTIONS`. `costs` are bytes and seconds that no term has, by name.
    """

    rows: NDArray
    routed: NDArray
    logits: NDArray
    sequences: NDArray
    expert_imbalance: Numeric
    attended: dict[Attention, Attended]
    experts: dict[ExpertKind, ExpertUse]
    expert_execution: Numeric
    costs: Costs[str, tuple[Numeric, Numeric]]


def _attentions(s: Setting) -> dict[Attention, None]:
    """Return the kinds of attention of a model, in order."""
    return dict.fromkeys(b.attention for b in s.burdens if b.attention)


def _expert_kinds(s: Setting) -> dict[ExpertKind, None]:
    """Return the kinds of experts of a model, in order."""
    return dict.fromkeys((b.cut.experts, b.cut.active) for b in s.burdens if b.kind == "experts")


def _decode_experts(s: Setting, kind: ExpertKind, routed: NDArray, expert_read: str, selects: Numeric) -> ExpertUse:
    """Return work and reads of a kind of experts in a decode step.

    It reads each expert that is needed once ("distinct"); or selects each token's experts ("per_token"), gathering
    their weights, at most all of them, as long as these are fewer than all and no ranks hold whole experts; else, and
    where it selects none ("all"), all experts of a rank run on all tokens, which is E/k times the work.
    """
    experts, active = kind
    read = moe.experts_read(experts, active, routed, expert_read) / experts
    if expert_read == "distinct":
        return ExpertUse(1.0, read)
    gathers, reads = selects & (read < 1), np.minimum(read * s.e.expert_gather_reads, 1.0)
    return ExpertUse(np.where(gathers, 1.0, experts / active), np.where(gathers, reads, 1.0))


def _decode_execution(s: Setting, routed: NDArray, expert_read: str, selects: Any) -> Numeric:
    """Return how a decode step runs its experts, a place in `EXPERT_EXECUTIONS`."""
    if expert_read == "distinct" or not s.outline.experts:
        return NEEDED * bool(s.outline.experts)
    few = selects & (moe.experts_read(s.outline.experts, s.outline.top_k, routed, expert_read) < s.outline.experts)
    return np.where(few, SELECTED, ALL)


def _imbalance(s: Setting, asked: Numeric | None, routed: NDArray, follows: bool) -> Numeric:
    """Return the load of the fullest rank of experts over the mean: as asked, else the stack's, where work follows it.

    A rank whose experts all run on all tokens, or whose graph holds the worst case, has the same work whatever it gets.
    """
    if asked is not None:
        return asked
    if not (follows and s.outline.experts and np.any(s.e.expert_spread)):
        return 1.0
    groups = s.degrees.expert_groups
    return moe.load_imbalance(groups, routed * s.outline.top_k / groups, s.e.expert_spread)


def decode_work(
    s: Setting,
    batch: NDArray,
    context: NDArray,
    new_tokens: NDArray,
    expert_read: str | None,
    expert_imbalance: Numeric | None,
) -> RankWork:
    """Return the work on one rank of a decode step over `batch` sequences with `context` cached tokens.

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
    attended: dict[Attention, Attended] = {}
    for a in _attentions(s):
        keys = step.visible_tokens(local, a.window, a.kind)
        attended[a] = Attended(rows * keys, passes * sequences * keys + rows)
    read = expert_read or e.expert_read
    selects = (read == "per_token") & np.equal(d.expert_groups, 1)
    experts = {kind: _decode_experts(s, kind, routed, read, selects) for kind in _expert_kinds(s)}
    execution = _decode_execution(s, routed, read, selects)
    routing_s: Numeric = 0.0
    if c.experts:
        cores = d.tp * d.ep * s.at.lnc
        routing_s = moe.routing_s(c.expert_layers, e.expert_core_s, cores, routed, c.experts, c.top_k, selects)
    costs: dict[str, tuple[Numeric, Numeric]] = {
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
    uneven = _imbalance(s, expert_imbalance, routed, read == "distinct")
    return RankWork(rows, routed, rows, sequences, uneven, attended, experts, execution, costs)


def _converted_s(s: Setting, experts: dict[ExpertKind, ExpertUse]) -> Numeric:
    """Time in which a rank takes weights from their stored format to another in a step [s].

    Experts that are stored narrower than activations are widened, other weights that are stored wider than products
    take them are cast.
    """
    passes: Numeric = s.e.dequantise_passes
    if not np.any(passes):
        return 0.0
    narrow, wide = (s.precision.storage_bytes(part) for part in ("experts", "weights"))
    elements: list[Numeric] = []
    for b in s.burdens:
        if b.kind == "experts" and narrow < s.wide_bytes:
            elements.append(b.read_bytes * experts[b.cut.experts, b.cut.active].read / narrow)
        elif b.kind != "experts" and wide > dtypes()[s.precision.compute]:
            elements.append(b.read_bytes / wide)
    return total(elements) * passes / s.rates.elements_per_s


class ExpertBlocks(NamedTuple):
    """How a rank prefills a kind of experts: use of them, blocks of tokens, and a place in `EXPERT_EXECUTIONS`."""

    use: ExpertUse
    blocks: Numeric
    execution: Numeric


def _expert_blocks(s: Setting, kind: ExpertKind, tokens: NDArray) -> ExpertBlocks:
    """Return how a rank prefills a kind of experts: work over that of the routed tokens, passes, and blocks.

    Blocks of a static graph run full whether tokens fill them or not, each with the weights of its expert; tokens too
    few for one block go through all experts, or fill one up where that is less. Expert-parallel ranks share out the
    tokens evenly.
    """
    e, (experts, top_k) = s.e, kind
    if choice("prefill_experts", e.prefill_experts, PREFILL_EXPERTS) == "routed":
        needed = moe.experts_read(experts, top_k, tokens, "distinct")
        return ExpertBlocks(ExpertUse(1.0, needed / experts), 0.0, NEEDED)
    if e.prefill_experts == "all":
        return ExpertBlocks(ExpertUse(experts / top_k, np.ones(())), 0.0, ALL)
    d = s.degrees
    local, own = np.ceil(experts / d.expert_groups), tokens / d.ep
    routed = own * top_k
    needed = moe.expert_blocks(local, top_k, np.maximum(own, e.expert_block_tokens / top_k), e.expert_block_tokens)
    less = needed * e.expert_block_tokens < own * experts / d.moe_ep
    blocks = np.where((routed >= e.expert_block_tokens) | less, needed, 0)
    work = moe.block_work_ratio(blocks, e.expert_block_tokens, routed / d.moe_ep, experts, top_k)
    execution = np.where(blocks > 0, np.where(less, BLOCKS, FORCED), ALL)
    return ExpertBlocks(ExpertUse(work, moe.block_read_share(blocks, local)), blocks, execution)


def prefill_work(
    s: Setting, batch: NDArray, input_tokens: NDArray, past: NDArray, expert_imbalance: Numeric | None
) -> RankWork:
    """Return the work on one rank of a prefill of `batch` prompts of `input_tokens` tokens after `past` cached ones."""
    c, d, e = s.outline, s.degrees, s.e
    sequences = step.own_sequences(batch, d.ep)
    rows, routed = sequences * input_tokens / d.cp, batch * input_tokens / d.cp
    attended: dict[Attention, Attended] = {}
    for a in _attentions(s):
        pairs = sequences * step.attended_pairs(input_tokens, past, a.window, a.kind, True) / d.cp
        attended[a] = Attended(pairs, sequences * (a.visible(past) + a.cached_tokens(input_tokens)) / d.cp)
    blocks_of = {kind: _expert_blocks(s, kind, routed) for kind in _expert_kinds(s)}
    experts = {kind: some.use for kind, some in blocks_of.items()}
    blocks: Numeric = 0.0
    spill_s: Numeric = 0.0
    execution: Numeric = 0
    if c.experts:
        kind = (c.experts, c.top_k)
        some = blocks_of[kind] if kind in blocks_of else _expert_blocks(s, kind, routed)
        execution, blocks = some.execution, some.blocks * c.expert_layers
    held = step.buffer_bytes(rows, c.hidden, s.wide_bytes)
    if s.at.chip.core is not None and not np.all(np.isinf(e.prefill_spill_bytes_per_s)):
        sbuf = s.at.chip.core.sbuf_bytes * s.at.lnc
        spill_s = memory.spill_s(c.layers, sequences, held, sbuf, e.prefill_spill_bytes_per_s)
    scores: Numeric = 0.0
    if np.any(e.score_passes):
        heads = total([b.layers * b.attention.heads * b.head_share for b in s.burdens if b.attention])
        scores = e.score_passes * SCORE_BYTES * heads * rows * (past + input_tokens)
    moved = step.buffer_bytes(blocks * e.expert_block_tokens, c.hidden, s.wide_bytes)
    costs: dict[str, tuple[Numeric, Numeric]] = {
        "expert blocks": (BLOCK_PASSES * moved, blocks * e.expert_block_s),
        "weights to another format": (0.0, _converted_s(s, experts)),
        "scores": (0.0, scores / s.rates.weight_bytes_per_s),  # between two products, which wait for them
        "spills": (0.0, spill_s),
        "layers": (0.0, c.layers * (e.layer_s + e.prefill_layer_s)),
        "recurrence": (0.0, c.recurrent_layers * input_tokens / d.cp * e.recurrent_token_s),
        "step": (0.0, e.prefill_overhead_s + e.server_step_s),
    }
    uneven = _imbalance(s, expert_imbalance, routed, e.prefill_experts == "routed")
    return RankWork(rows, routed, sequences, sequences, uneven, attended, experts, execution, costs)


class Message(NamedTuple):
    """Collectives of one kind in one step: the full buffer of each, how many, and the group that runs them.

    Where a group falls into `parts`, each part runs its own.
    """

    name: str
    kind: str
    group: str
    message_bytes: NDArray
    count: Numeric
    parts: int = 1


def ranks_of(message: Message, degree: Numeric) -> Numeric:
    """Return the ranks that run one of the collectives of a message, from the degree of its group."""
    return degree if message.parts == 1 else np.ceil(degree / message.parts)


def _context(s: Setting, b: Burden, rows: NDArray) -> Message:
    """Return the exchange of context parallelism for one kind of attention.

    Decode sums up partial outputs of all heads. Prefill passes keys and values round ("ring"), or exchanges sequences
    for heads of queries, keys, values and outputs ("ulysses").
    """
    a, layers = b.attention, float(b.layers)
    assert a is not None
    if s.phase == "decode":
        partial = buffer_bytes(rows, a.heads * b.head_share * (a.latent_value_dim or a.v_dim), s.wide_bytes)
        return Message(f"partial outputs of {b.name}", "all_reduce", "cp", partial, layers)
    if s.e.context_exchange == "ulysses":
        heads = a.heads * b.head_share + a.kv_heads * b.kv_share
        around = buffer_bytes(rows, heads * (a.qk_dim + a.v_dim), s.wide_bytes)
        return Message(f"heads of {b.name}", "all_to_all", "cp", around, layers)
    passed = buffer_bytes(rows, a.cached_elements * b.kv_share, s.wide_bytes)
    return Message(f"keys and values of {b.name}", "p2p", "cp", passed, layers * (s.degrees.cp - 1))


def _split_cache(s: Setting, b: Burden, rows: NDArray) -> list[Message]:
    """Return the exchange of one kind of attention whose cache TP cuts further than its KV heads, in a decode step.

    Ranks that have a KV head between them, each a part of its tokens, gather the queries of all their heads, and sum up
    partial outputs, of which each keeps its own heads. A prefill computes the keys and values of its tokens on each
    rank and exchanges none.
    """
    a, layers = b.attention, float(b.layers)
    assert a is not None
    if s.phase != "decode" or not s.splits_cache:
        return []
    parts = 1 if a.latent_dim else a.kv_heads
    heads = np.ceil(s.degrees.tp / parts) * a.heads * b.head_share
    widths = (a.latent_dim, a.latent_value_dim) if a.latent_dim else (a.qk_dim, a.v_dim)
    queries, outputs = (buffer_bytes(rows, heads * width, s.wide_bytes) for width in widths)
    return [
        Message(f"queries of {b.name}", "all_gather", "tp", queries, layers, parts),
        Message(f"parts of outputs of {b.name}", "reduce_scatter", "tp", outputs, layers, parts),
    ]


def _sent_imbalance(s: Setting, work: RankWork) -> Numeric:
    """Return what the busiest rank of an exchange of experts sends or gets, over the rows of a rank with rows.

    A rank sends all of its rows. The fullest one gets more than the mean of all ranks, of which some have no rows where
    there are fewer sequences than groups of ranks.
    """
    return np.maximum(work.expert_imbalance * work.routed / (s.degrees.ep * work.rows), 1.0)


def messages(s: Setting, work: RankWork) -> tuple[Message, ...]:
    """Return what a rank sends in a forward step over the rows of its work, some of them with logits.

    The all-reduces of TP, two a layer (sequence parallelism moves the same bytes); the exchange of a cache that TP cuts
    by tokens; the logits, where a stack gathers them; the boundaries of PP; dispatch and combine of experts, of which
    each TP rank carries its share of the width; the exchange of CP.
    """
    c, d, rows, logits = s.outline, s.degrees, work.rows, work.logits
    buffer = buffer_bytes(rows, c.hidden, s.wide_bytes)
    exchanges = []
    if "tp" in s.parted:
        exchanges.append(Message("row-parallel outputs", "all_reduce", "tp", buffer, float(c.all_reduces)))
        exchanges += [m for b in s.burdens if b.attention for m in _split_cache(s, b, rows)]
        if s.gathers_logits:
            gathered = buffer_bytes(logits, c.vocabulary, s.wide_bytes)
            exchanges.append(Message("logits", "all_gather", "tp", gathered, s.e.logit_gathers))
    if "pp" in s.parted:
        exchanges.append(Message("stage boundary", "p2p", "pp", buffer, d.pp - 1))
    if "ep" in s.parted and c.experts:
        sent = dispatched_bytes(buffer, c.top_k, d.tp, _sent_imbalance(s, work)) * s.e.dispatch_traffic_ratio
        exchanges.append(Message("expert dispatch and combine", "all_to_all", "ep", sent, 2.0 * c.expert_layers))
    if "cp" in s.parted:
        exchanges += [_context(s, b, rows) for b in s.burdens if b.attention]
    return tuple(exchanges)


def message_s(s: Setting, message: Message, e: Efficiencies | None = None) -> NDArray:
    """Time of all collectives of a message, each as `tm.collective` has it, of the setting's stack or another [s]."""
    team, sizes = s.teams[message.group], message.message_bytes
    ranks, stride = ranks_of(message, team.ranks), team.stride
    return message.count * times_s(message.kind, sizes, s.at.where, ranks, stride, s.at.lnc, e or s.e, s.index)


def network_s(s: Setting, messages: Iterable[Message], e: Efficiencies | None = None) -> NDArray:
    """Time of all messages [s]."""
    return total([message_s(s, message, e) for message in messages])


class Load(NamedTuple):
    """Times that a term takes by resource, matrices and attention apart, and its work and traffic on one rank."""

    linear_s: Numeric
    weights_s: Numeric
    attend_s: Numeric
    cache_s: Numeric
    flop: Numeric
    moved_bytes: Numeric


def _attention_load(b: Burden, s: Setting, work: RankWork) -> Load:
    """Return what scores and weighted values cost, and the traffic of the cache."""
    assert b.attention is not None
    r, attended = s.rates, work.attended[b.attention]
    flop, moved = b.pair_flop * attended.pairs, b.cached_bytes * attended.cached_tokens
    return Load(0.0, 0.0, flop / r.pair_flop_per_s, moved / r.cache_bytes_per_s, flop, moved)


def load(b: Burden, s: Setting, work: RankWork) -> Load:
    """Return what a rank's share of a term costs it: work and bytes over the rank's rates."""
    r = s.rates
    if b.kind == "attention":
        return _attention_load(b, s, work)
    if b.kind == "experts":
        use = work.experts[b.cut.experts, b.cut.active]
        flop = b.row_flop * work.routed * work.expert_imbalance * use.work
        more = np.minimum(use.read * work.expert_imbalance, 1.0)  # a rank has no more experts than all of its own
        moved = b.read_bytes * np.maximum(use.read, more)
        return Load(flop / r.linear_flop_per_s, moved / r.weight_bytes_per_s, 0.0, 0.0, flop, moved)
    flop = step.work_flop(b.row_flop, work.rows, b.logit_flop, work.logits)
    moved = step.read_bytes(b.read_bytes, b.row_bytes, work.rows)
    linear_s, weights_s = flop / r.linear_flop_per_s, moved / r.weight_bytes_per_s
    if b.kind == "matrix":
        return Load(linear_s, weights_s, 0.0, 0.0, flop, moved)
    state = 2 * b.state_bytes * work.sequences  # read and written
    return Load(linear_s, weights_s, 0.0, state / r.state_bytes_per_s, flop, moved + state)


def total(parts: Iterable[Numeric]) -> NDArray:
    """Return the sum of some parts, without those that are nothing."""
    whole: Any = None
    for part in parts:
        if type(part) is not float or part:
            whole = part if whole is None else whole + part
    return np.zeros(())[()] if whole is None else whole


class Parts(NamedTuple):
    """Times of a step by what takes them: matrices and attention apart, each with its traffic [s]."""

    linear_s: Numeric
    weights_s: Numeric
    attend_s: Numeric
    cache_s: Numeric
    network_s: Numeric
    overhead_s: Numeric


def parts_of(s: Setting, work: RankWork, sent: Iterable[Message]) -> tuple[Parts, NDArray, NDArray]:
    """Return the parts of a step, the work on a rank [FLOP] and its traffic [B]."""
    loads = [load(b, s, work) for b in s.burdens]
    linear_s, weights_s, attend_s, cache_s, flop, moved = map(total, zip(*loads, strict=True))
    gathered, overhead = map(total, zip(*work.costs.values(), strict=True))
    weights_s, moved = total((weights_s, gathered / s.rates.weight_bytes_per_s)), total((moved, gathered))
    return Parts(linear_s, weights_s, attend_s, cache_s, network_s(s, sent), overhead), flop, moved


def joined_s(s: Setting, parts: Parts, compute_memory_overlap: Numeric, network_overlap: Numeric) -> NDArray:
    """Time that the parts of a step overlap to, at the level of its phase [s]."""
    linear_s, weights_s, attend_s, cache_s, network, overhead = parts
    device_s = step.overlapped_s(linear_s + attend_s, weights_s + cache_s, compute_memory_overlap)
    if s.phases_wait:
        linear = step.overlapped_s(linear_s, weights_s, compute_memory_overlap)
        apart_s = linear + step.overlapped_s(attend_s, cache_s, compute_memory_overlap)
        device_s = step.phased_s(device_s, apart_s, s.e.phase_overlap)
    return (step.overlapped_s(device_s, network, network_overlap) + overhead) * s.level


def assemble(
    s: Setting, work: RankWork, compute_memory_overlap: Numeric, network_overlap: Numeric
) -> dict[str, NDArray]:
    """Resource times of a step, and the step time that they overlap to."""
    parts, flop, moved = parts_of(s, work, messages(s, work))
    return {
        "time_s": joined_s(s, parts, compute_memory_overlap, network_overlap),
        "compute_s": (parts.linear_s + parts.attend_s) * s.level,
        "memory_s": (parts.weights_s + parts.cache_s) * s.level,
        "network_s": parts.network_s * s.level,
        "overhead_s": parts.overhead_s * s.level,
        "work_flop_per_rank": flop,
        "moved_bytes_per_rank": moved,
    }


class Line(NamedTuple):
    """Line of a step's breakdown: the time of one operator, one exchange or one cost by resource, in s."""

    compute_s: Numeric
    memory_s: Numeric
    network_s: Numeric
    overhead_s: Numeric


def lines_of(s: Setting, work: RankWork) -> dict[str, Line]:
    """Return every line of a step; by resource the lines add up to the step's times, which then overlap."""
    lines: dict[str, Line] = {}

    def add(name: str, line: Line) -> None:  # kinds of layers may share a name
        before = lines.get(name, Line(0.0, 0.0, 0.0, 0.0))
        lines[name] = Line(*(one + more * s.level for one, more in zip(before, line, strict=True)))

    for b in s.listed.burdens:
        one = load(b, s, work)
        add(b.name, Line(one.linear_s + one.attend_s, one.weights_s + one.cache_s, 0.0, 0.0))
    for name, (moved, seconds) in work.costs.items():
        add(name, Line(0.0, moved / s.rates.weight_bytes_per_s, 0.0, seconds))
    for message in messages(s, work):
        add(message.name, Line(0.0, 0.0, message_s(s, message), 0.0))
    return lines


def prefilled_tokens(s: Setting, prompts: NDArray, input_tokens: NDArray) -> tuple[NDArray, NDArray]:
    """Return the tokens of an execution that prefills so many prompts: those of a rank's attention group, and all.

    Attention groups share out the prompts but cut none.
    """
    return step.own_sequences(prompts, s.degrees.ep) * input_tokens, prompts * input_tokens


def stored_kinds(
    s: Setting, batch: NDArray, context: NDArray, own_tokens: NDArray, all_tokens: NDArray
) -> dict[str, NDArray]:
    """Return stored bytes of an ordinary rank, by kind: the fullest stage's weights, an even part of the cache.

    Its largest execution takes in `own_tokens` of the rank's attention group, and `all_tokens` of all groups.
    """
    c, d, stored = s.outline, s.degrees, s.stored
    sequences, local = step.own_sequences(batch, d.ep), context / d.cp
    cached: Numeric = 0.0
    for b in s.burdens:
        tokens = step.cached_tokens(local, b.attention.window, b.attention.kind) if b.attention else 0.0
        if b.kind in ("attention", "state"):
            cached = cached + memory.cached_bytes(b.cached_bytes, tokens, b.state_bytes, sequences)
    activations = memory.activation_bytes(own_tokens / d.cp, all_tokens / d.cp, c.widest, c.hidden, s.wide_bytes, d.tp)
    return {
        "weight_bytes": stored.weight_bytes,
        "cache_bytes": np.divide(cached, d.pp),
        "scratchpad_bytes": memory.paged_bytes(activations, s.e.scratchpad_page_bytes),
        "collective_buffer_bytes": stored.collective_buffer_bytes,
        "ring_bytes": stored.ring_bytes,
        "code_bytes": stored.code_bytes,
        "runtime_bytes": stored.runtime_bytes,
    }
