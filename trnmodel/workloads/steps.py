"""Resource times of a forward step on one rank: from a model's shard to compute, memory, network and overhead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, instance
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.systems import System
from trnmodel.formulas.moe import distinct_experts, expert_blocks
from trnmodel.workloads.efficiencies import Efficiencies, find
from trnmodel.workloads.parallelism import Census, Mapping, Shard, census, core_shares, cut_of, shard
from trnmodel.workloads.site import Site, all_reduce_s, group_s, site
from trnmodel.workloads.transformer import Transformer, model

Numeric = ArrayLike
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
    at: Site
    e: Efficiencies
    census: Census
    shard: Shard


def setting(
    model_: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None,
    precision: str | Precision,
    stack: str | Efficiencies | None,
    phase: str,
) -> Setting:
    """Model, rank, stack and shard of a question, from ids or objects."""
    mapping = Mapping() if mapping is None else mapping
    instance("mapping", mapping, Mapping, "a Mapping, such as Mapping(tp=8)")
    chosen, dtypes = model(model_), read_precision(precision)
    at = site(system, mapping.lnc)
    e = find(at.chip, stack, "efficiencies")
    return Setting(
        model=chosen,
        system=at.where,
        mapping=mapping,
        precision=dtypes,
        at=at,
        e=e,
        census=census(chosen, dtypes, phase),
        shard=shard(chosen, mapping, dtypes, phase, e.kv_head_policy, e.expert_tile_columns),
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
    return first + second - np.minimum(first, second) * overlap


def _expert_share(s: Setting, tokens: NDArray, policy: str) -> NDArray:
    """Share of the experts that a step over so many tokens reads."""
    choice("expert_read", policy, EXPERT_READS)
    c = s.census
    if not c.experts or policy == "all":
        return np.ones(())
    if policy == "per_token":
        return np.minimum(tokens * c.top_k / c.experts, 1.0)
    return distinct_experts(c.experts, c.top_k, tokens) / c.experts


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Work and traffic of one rank in a step."""

    linear_flop: NDArray
    attention_flop: NDArray
    weight_bytes: NDArray
    expert_bytes: NDArray
    cache_bytes: NDArray
    softmax_s: NDArray
    network_s: NDArray
    extra_s: NDArray


def _network_s(s: Setting, tokens: NDArray, imbalance: Numeric, decode: bool) -> NDArray:
    """Time of all collectives of a forward step over `tokens` tokens of the replica's rank.

    The all-reduces of TP; dispatch and combine of experts, of which each TP rank carries its share of the width; the
    exchange of CP; the boundaries of PP.
    """
    c, m = s.census, s.mapping
    width = s.precision.storage_bytes("activations")
    buffer = tokens * c.hidden * width
    total = c.all_reduces * all_reduce_s(s.at, m, buffer, s.e)
    if np.any(m.pp > 1):
        _, _, link = s.at.group(m, "pp")
        total = total + (m.pp - 1) * (buffer / link + s.e.hop_s)
    if np.any(m.ep > 1) and c.experts:
        sent = buffer * c.top_k / m.tp * imbalance
        total = total + 2 * c.expert_layers * group_s(s.at, m, "ep", "all_to_all", sent, s.e)
    if np.any(m.cp > 1):
        total = total + _context_s(s, tokens * width, decode)
    return total


def _context_s(s: Setting, row_bytes: NDArray, decode: bool) -> NDArray:
    """Time of context parallelism: decode sums up partial outputs of all heads, prefill passes keys and values round.

    `row_bytes` are the tokens of a rank times the bytes of an element.
    """
    total, m = np.zeros(()), s.mapping
    for core, cache_share, head_share in s.shard.cores:
        a = core.attention
        if decode:
            partial = row_bytes * a.heads * head_share * (a.latent_value_dim or a.v_dim)
            total = total + core.count * group_s(s.at, m, "cp", "all_reduce", partial, s.e)
        else:
            passed = row_bytes * a.cached_elements * cache_share
            total = total + core.count * (m.cp - 1) * group_s(s.at, m, "cp", "p2p", passed, s.e)
    return total


def _routing_s(s: Setting, tokens: NDArray) -> NDArray:
    """What layers with experts add to a decode step: the longer, the more ranks wait and the more tokens are routed.

    Tokens are routed one after another, which overlaps in part, until all experts run on all of them.
    """
    c = s.census
    if not c.experts or not s.e.expert_layer_s:
        return np.zeros(())
    routed = np.minimum(tokens, c.experts / c.top_k)
    return c.expert_layers * s.e.expert_layer_s * np.log2(s.mapping.tp * s.mapping.ep) * np.sqrt(routed)


def _expert_blocks(s: Setting, tokens: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """How a rank prefills its experts: work over that of the routed tokens, passes over its experts, blocks a layer.

    Blocks of a static graph run full whether tokens fill them or not, each with the weights of its expert; tokens too
    few for one block go through all experts. Expert-parallel ranks share out the tokens evenly.
    """
    c, e = s.census, s.e
    choice("prefill_experts", e.prefill_experts, PREFILL_EXPERTS)
    if not c.experts or e.prefill_experts == "routed":
        return np.ones(()), _expert_share(s, tokens, "distinct"), np.zeros(())
    if e.prefill_experts == "all":
        return np.asarray(c.experts / c.top_k), np.ones(()), np.zeros(())
    local, own = np.ceil(c.experts / s.mapping.ep), tokens / s.mapping.ep
    routed = own * c.top_k
    blocks = expert_blocks(local, c.top_k, own, e.expert_block_tokens)
    fills, work = routed >= e.expert_block_tokens, blocks * e.expert_block_tokens / routed
    return np.where(fills, work, c.experts / c.top_k), np.where(fills, blocks / local, 1.0), np.where(fills, blocks, 0)


def own_sequences(batch: NDArray, mapping: Mapping) -> NDArray:
    """Sequences of an expert-parallel rank: shared out evenly, but none is cut.

    Examples
    --------
    >>> own_sequences(np.array([1.0, 96.0]), Mapping(ep=64)).tolist()
    [1.0, 1.5]
    """
    return np.maximum(batch / mapping.ep, np.minimum(batch, 1))


def decode_load(
    s: Setting, batch: NDArray, context: NDArray, new_tokens: NDArray, expert_read: str | None, imbalance: Numeric
) -> Load:
    """What a decode step over `batch` sequences with `context` cached tokens asks of one rank."""
    d, e, m = s.shard, s.e, s.mapping
    replica = batch / m.pp
    local = own_sequences(replica, m)
    rows = local * new_tokens
    share = _expert_share(s, replica * new_tokens, expert_read or e.expert_read)
    cache, flop, softmax = np.zeros(()), np.zeros(()), np.zeros(())
    for core, cache_share, head_share in d.cores:
        a = core.attention
        seen = a.visible(context / m.cp)
        cache = cache + core.cache_bytes_per_token * cache_share * (local * seen + rows)
        flop = flop + core.count * a.flop_per_pair(absorbed=True) * head_share * rows * seen
        if e.softmax_cycle_per_element:
            softmax = softmax + core.count * seen * np.ceil(rows * a.heads * head_share / s.at.rows_side_by_side)
    logit_bytes = rows * s.census.vocabulary * LOGIT_BYTES
    dense = rows * (d.flop_per_token + d.flop_per_logit + d.state_flop)
    return Load(
        linear_flop=dense + replica * new_tokens * d.expert_flop_per_token * imbalance,
        attention_flop=flop,
        weight_bytes=d.read_bytes + d.lookup_bytes_per_token * rows,
        expert_bytes=d.expert_read_bytes * share * imbalance,
        cache_bytes=cache + 2 * d.state_bytes * local,
        softmax_s=softmax * e.softmax_cycle_per_element / s.at.vector_clock_hz,
        network_s=_network_s(s, rows, imbalance, decode=True),
        extra_s=_routing_s(s, replica * new_tokens) + logit_bytes / e.host_logit_bytes_per_s,
    )


def _spill_s(s: Setting, prompts: NDArray, tokens: NDArray) -> NDArray:
    """What a stack pays that moves a batch beyond SBUF once in each layer for each further prompt."""
    if s.at.chip.core is None or np.isinf(s.e.prefill_spill_bytes_per_s):
        return np.zeros(())
    held = tokens * s.census.hidden * s.precision.storage_bytes("activations")
    beyond = np.maximum(held - s.at.chip.core.sbuf_bytes * s.at.lnc, 0)
    return s.census.n_layers * (prompts - 1) * beyond / s.e.prefill_spill_bytes_per_s


def prefill_load(s: Setting, batch: NDArray, tokens: NDArray, past: NDArray, imbalance: Numeric) -> Load:
    """What a prefill of `batch` prompts of `tokens` tokens after `past` cached ones asks of one rank."""
    d, e, m = s.shard, s.e, s.mapping
    rows = own_sequences(batch, m)
    local = rows * tokens / m.cp
    routed = batch * tokens / m.cp
    work, reads, blocks = _expert_blocks(s, routed)
    in_blocks = blocks * s.census.expert_layers
    moved = in_blocks * e.expert_block_tokens * s.census.hidden * s.precision.storage_bytes("activations")
    cache, flop = np.zeros(()), np.zeros(())
    for core, cache_share, head_share in d.cores:
        a = core.attention
        kept = a.visible(past) + a.visible(tokens)
        cache = cache + core.cache_bytes_per_token * cache_share * rows * kept / m.cp
        pairs = a.pairs(tokens, past, True) / m.cp
        flop = flop + core.count * a.flop_per_pair(absorbed=False) * head_share * rows * pairs
    expert_flop = routed * d.expert_flop_per_token * imbalance * work
    return Load(
        linear_flop=local * (d.flop_per_token + d.state_flop) + rows * d.flop_per_logit + expert_flop,
        attention_flop=flop,
        weight_bytes=d.read_bytes + d.lookup_bytes_per_token * local,
        expert_bytes=d.expert_read_bytes * reads * imbalance + BLOCK_PASSES * moved,
        cache_bytes=cache + 2 * d.state_bytes * rows,
        softmax_s=np.zeros(()),
        network_s=_network_s(s, local, imbalance, decode=False),
        extra_s=in_blocks * e.expert_block_s + _spill_s(s, rows, local),
    )


def assemble(
    s: Setting, load: Load, matmul: float, attention: float, overhead_s: float, overlaps: tuple[Numeric, Numeric]
) -> dict[str, NDArray]:
    """Resource times of a step from its load, and the step time between its bounds."""
    e, at = s.e, s.at
    inner, outer = overlaps
    linear_s = load.linear_flop / (at.peak(s.precision.compute) * matmul)
    core_s = load.attention_flop / (at.peak(s.precision.attention) * attention)
    bandwidth = at.hbm_bytes_per_s
    weights_s = (load.weight_bytes + load.expert_bytes) / (bandwidth * e.weight_stream_share)
    cache_s = load.cache_bytes / min(bandwidth * e.kv_stream_share, e.kv_stream_bytes_per_s)
    attend_s = np.maximum(core_s, load.softmax_s)
    apart = overlapped(linear_s, weights_s, inner) + overlapped(attend_s, cache_s, inner)
    joined = overlapped(linear_s + attend_s, weights_s + cache_s, inner)
    device_s = joined * e.phase_overlap + apart * (1 - e.phase_overlap)
    overhead = overhead_s + load.extra_s
    compute, memory = linear_s + attend_s, weights_s + cache_s
    return {
        "time_s": overlapped(device_s, load.network_s, outer) + overhead,
        "compute_s": compute,
        "memory_s": memory,
        "network_s": load.network_s,
        "overhead_s": overhead,
        "lower_s": np.maximum(np.maximum(compute, memory), load.network_s) + overhead,
        "upper_s": compute + memory + load.network_s + overhead,
        "work_flop_per_rank": load.linear_flop + load.attention_flop,
        "moved_bytes_per_rank": load.weight_bytes + load.expert_bytes + load.cache_bytes,
    }


def operator_times(
    s: Setting, phase: str, batch: NDArray, tokens: NDArray, past: NDArray, matmul: float
) -> dict[str, tuple[NDArray, NDArray]]:
    """Compute and memory time of each operator of one rank, over its layers, without overlap or overhead.

    Experts meet the tokens of all expert-parallel ranks, everything else those of its own.
    """
    layers = {layer.name: layer for layer in s.model.layers}
    m, e, bandwidth = s.mapping, s.e, s.at.hbm_bytes_per_s
    times: dict[str, tuple[NDArray, NDArray]] = {}
    logits = "last" if phase == "prefill" else "all"
    ask = {"tokens": tokens, "past": past, "precision": s.precision, "logits": logits}
    own, all_ranks = (s.model.operators(phase, batch=rows, **ask) for rows in (own_sequences(batch, m), batch))
    for op in (
        b if b.part is not None and b.part.group == "experts" else a for a, b in zip(own, all_ranks, strict=True)
    ):
        dtype, cache, work = s.precision.compute, np.ones(()), 1 / m.tp
        if op.part is not None:
            work = cut_of(op.part, layers.get(op.layer)).share(m.tp, m.ep, e.kv_head_policy)
        elif op.attention is not None:
            dtype = s.precision.attention
            cache, work = core_shares(op.attention, m.tp, e.kv_head_policy)
        compute = op.flop * work / (s.at.peak(dtype) * matmul)
        stored = op.weight_bytes * work / (bandwidth * e.weight_stream_share)
        cached = (op.cache_read_bytes + op.cache_write_bytes) * cache / (bandwidth * e.kv_stream_share)
        times[f"{op.layer}: {op.name}" if op.layer else op.name] = compute, stored + cached
    return times
