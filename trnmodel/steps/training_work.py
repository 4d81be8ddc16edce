"""The numbers of a training step for any points at once: parts of its time that add up, work, and memory by kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.formulas import training as page
from trnmodel.formulas.moe import dispatched_bytes
from trnmodel.formulas.step import buffer_bytes, fullest_share, overlapped_s
from trnmodel.steps.messages import Message
from trnmodel.steps.training_rank import ELEMENT_BYTES, Rank
from trnmodel.units import Numeric

Values = dict[str, Any]
LOGIT_BYTES = 4.0
FITTED_FORMAT = "bf16"  # of the rows on which shares of the peak are fitted
MOVES = 2.0  # what is kept is written once and read once
BACKWARD = 2.0  # gradients of inputs and of weights: two products for one, of which frozen weights need the first
HALVES = 2.0  # forward and backward
WORK = ("forward_s", "backward_s", "recompute_s")
EXCHANGES = ("tensor_s", "expert_s", "context_s", "pipeline_s", "data_s")
PARTS = (*WORK, *EXCHANGES, "bubble_s", "optimizer_s", "straggler_s", "overhead_s")
KINDS = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "buffer_bytes")


class Job(NamedTuple):
    """Categories of a training step, and what hides: as the stack has it, or all or none."""

    recompute: str
    zero: int
    sequence_parallel: bool
    hidden: float | None = None

    @property
    def again(self) -> bool:
        """Whether whole layers run again."""
        return self.recompute == "full"

    @property
    def turns(self) -> float:
        """Times that the exchanges of a layer take place: forward, backward, and again."""
        return HALVES + self.again


class Tokens(NamedTuple):
    """Tokens of a micro-batch on a rank, micro-batches of a step, shares of all layers and of those with experts.

    The shares are those of the fullest stage, which may have experts in every layer.
    """

    rows: Numeric
    microbatches: Numeric
    stage: Numeric
    expert_stage: Numeric
    outer_tp: Numeric


def tokens_of(r: Rank, g: Values, job: Job) -> Tokens:
    """How the batch is cut."""
    w, o = r.values, r.outline
    stage = fullest_share(o.layers, w["pp"] * g["interleave"]) * g["interleave"]
    return Tokens(
        g["micro_batch"] * g["seq"] / w["cp"],
        g["global_batch"] / (g["micro_batch"] * w["dp"] * w["ep"]),
        stage,
        np.minimum(stage * (o.layers / o.expert_layers), 1.0) if o.expert_layers else stage,
        w["tp"] if job.sequence_parallel else 1.0,
    )


def _pairs(r: Rank, g: Values) -> list[Numeric]:
    """Query-key pairs of a sequence that each attention computes; all, where masks save nothing."""
    return [a.pairs(g["seq"], 0, r.e.masked == "skipped") for a in r.attentions]


class Kept(NamedTuple):
    """What a token leaves for the backward pass over all layers: whole, cut, as scores, and the inputs of layers."""

    whole: Numeric
    cut: Numeric
    scores: Numeric
    entry: Numeric


def kept_of(r: Rank, g: Values) -> Kept:
    """Bytes of a token in all layers."""
    k, e = r.kept, r.e
    cut = ELEMENT_BYTES * (k.cut + k.routed * g["expert_imbalance"])
    scores: Numeric = 0.0
    for a, heads in k.scores:
        if e.scores == "fused":
            cut = cut + LOGIT_BYTES * heads  # the sum and the largest of each row
        else:
            keys = a.pairs(g["seq"], 0, False) / g["seq"]
            scores = scores + (2 * ELEMENT_BYTES + e.mask_bytes) * heads * keys
    whole = ELEMENT_BYTES * k.whole + e.mask_bytes * k.masked
    return Kept(whole, cut, scores, ELEMENT_BYTES * r.outline.hidden * r.outline.layers)


class Passes(NamedTuple):
    """Times of a micro-batch on the fullest stage: forward and backward, what is computed again, the head."""

    forward_s: Numeric
    backward_s: Numeric
    recompute_s: Numeric
    head_s: Numeric

    @property
    def work_s(self) -> Numeric:
        """All but the head."""
        return self.forward_s + self.backward_s + self.recompute_s


def passes_of(r: Rank, g: Values, job: Job, t: Tokens, k: Kept) -> Passes:
    """Work over rates, what is written and read over those of memory, and a fixed time a layer."""
    w, e, n, chip = r.values, r.e, t.rows, r.at
    stream = chip.hbm_bytes_per_s * e.stream_share
    wide, narrow = chip.peak(r.precision.attention), chip.peak(r.precision.compute)
    base = chip.peak(FITTED_FORMAT)
    flop = n * (w["row_flop"] + w["routed_flop"] * g["expert_imbalance"])
    layers_s = page.product_s(flop, narrow, e.matmul_share, base)
    sequences: Numeric = g["micro_batch"] / w["cp"]
    flop = sum(w[f"pair_flop_{i}"] * x for i, x in enumerate(_pairs(r, g))) * sequences
    attend_s = page.product_s(flop, wide, np.minimum(e.attention_share, e.matmul_share), base)
    moved_s = MOVES * page.kept_bytes(n, k.whole, k.cut, k.scores, k.entry, w["tp"], t.outer_tp, "none") / stream
    one = t.stage * overlapped_s(layers_s + attend_s, moved_s, e.stream_overlap)
    worked_s = g["backward"] * layers_s + BACKWARD * attend_s
    back = t.stage * overlapped_s(worked_s, BACKWARD * moved_s, e.stream_overlap)
    fixed = t.stage * r.outline.layers * e.layer_s
    again: Numeric = 0.0
    if job.again:
        again = one + fixed
    elif job.recompute == "selective" and e.scores == "kept":
        again = t.stage * overlapped_s(attend_s, MOVES * n * k.scores / w["tp"] / stream, e.stream_overlap)
    logits_s = MOVES * LOGIT_BYTES * n * r.outline.vocabulary / w["tp"] / stream
    head = overlapped_s(page.product_s(w["logit_flop"] * n, wide, e.matmul_share, base), logits_s, e.stream_overlap)
    return Passes(one + fixed, back + fixed, again, (1 + g["backward"]) * head)


def _tensor(r: Rank, job: Job, t: Tokens, buffer: NDArray) -> list[tuple[str, Message]]:
    """Sums behind matrices that are cut by rows, forward and backward; inputs kept cut are gathered once more."""
    kinds = ("all_gather", "reduce_scatter") if job.sequence_parallel else ("all_reduce",)
    layers = t.stage * r.outline.all_reduces
    edges = np.where(np.equal(r.values["pp"], 1), 2.0, 1.0)[()]
    found = []
    for kind in kinds:
        found.append(("tensor_s", Message("row-parallel outputs", kind, "tp", buffer, layers * job.turns)))
        found.append(("tensor_s", Message("embedding and logits", kind, "tp", buffer, edges)))
    if job.sequence_parallel and not job.again:
        found.append(("gathered_s", Message("inputs of gradients of weights", "all_gather", "tp", buffer, layers)))
    return found


def messages_of(r: Rank, g: Values, job: Job, t: Tokens) -> list[tuple[str, Message]]:
    """What a rank of the fullest stage sends for a micro-batch, with the part of the step that waits for it."""
    w, o, n = r.values, r.outline, t.rows
    buffer = buffer_bytes(n, o.hidden, ELEMENT_BYTES)
    found = _tensor(r, job, t, buffer) if "tp" in r.parted else []
    if "ep" in r.parted and o.experts:
        sent = dispatched_bytes(buffer, o.top_k, w["tp"], g["expert_imbalance"])
        count = t.stage * o.expert_layers * 2 * job.turns
        found.append(("expert_s", Message("expert dispatch and combine", "all_to_all", "ep", sent, count)))
    if "cp" in r.parted:
        for i, a in enumerate(r.attentions):
            layers = t.stage * sum(heads for b, heads in r.kept.scores if b is a) / a.heads
            passed = buffer_bytes(n, a.kv_heads * (a.qk_dim + a.v_dim) * w[f"head_share_{i}"], ELEMENT_BYTES)
            turns = layers * (w["cp"] - 1) * (job.turns + 1)  # backward passes gradients of both besides
            found.append(("context_s", Message(f"keys and values of {a.kind} attention", "p2p", "cp", passed, turns)))
    if "pp" in r.parted:
        passed, turns = buffer / w["tp"], np.where(np.greater(w["pp"], 1), 2.0 * g["interleave"], 0.0)[()]
        found.append(("pipeline_s", Message("stage boundary", "p2p", "pp", passed, turns)))
    return found


def exchanges_of(r: Rank, g: Values, job: Job, t: Tokens) -> Values:
    """Time of all exchanges of a micro-batch by themselves, on the fullest stage. [s]"""
    found: Values = dict.fromkeys(("tensor_s", "gathered_s", "expert_s", "context_s", "pipeline_s"), 0.0)
    for part, m in messages_of(r, g, job, t):
        found[part] = found[part] + m.count * m.message_bytes * r.values[f"{m.group}_{m.kind}"]
    return found


class Params(NamedTuple):
    """Parameters of the fullest stage on a rank, experts apart, and the ranks that hold the same."""

    dense: Numeric
    expert: Numeric
    dense_ranks: Numeric
    expert_ranks: Numeric

    def held(self, each_bytes: Numeric, sharded: bool) -> Numeric:
        """Bytes of a state of all of them."""
        cut = (self.dense_ranks, self.expert_ranks) if sharded else (1.0, 1.0)
        return page.state_bytes(self.dense, each_bytes, cut[0]) + page.state_bytes(self.expert, each_bytes, cut[1])


def params_of(r: Rank, t: Tokens) -> Params:
    """Layers of the fullest stage with the larger of the tables at the ends, or both where one stage has them."""
    w = r.values
    first, last = w["first_params"], w["last_params"]
    edge = np.where(np.equal(w["pp"], 1), first + last, np.maximum(first, last))[()]
    experts = w["dp"] * w["cp"]
    return Params(t.stage * w["dense_params"] + edge, t.expert_stage * w["expert_params"], experts * w["ep"], experts)


def _gradients(r: Rank, g: Values, job: Job, p: Params) -> tuple[Numeric, Numeric]:
    """Time of the exchanges of gradients and weights once a step, and in every micro-batch. [s]"""

    def sent(kind: str, each_bytes: Numeric) -> Numeric:
        return each_bytes * (p.dense * r.values[f"dense_{kind}"] + p.expert * r.values[f"expert_{kind}"])

    if job.zero == 0:
        return sent("all_reduce", g["gradient_bytes"]), 0.0
    scattered, gathered = sent("reduce_scatter", g["gradient_bytes"]), sent("all_gather", ELEMENT_BYTES)
    if job.zero == 3:
        return 0.0, scattered + 2 * gathered
    updated = gathered * (g["backward"] - 1)
    return (updated, scattered) if job.zero == 2 else (scattered + updated, 0.0)


def _hidden(r: Rank, job: Job, name: str) -> Numeric:
    return getattr(r.e, f"{name}_overlap") if job.hidden is None else job.hidden


def _exposed(r: Rank, job: Job, sent: Values, p: Passes, each_s: Numeric) -> Values:
    """What of a micro-batch's exchanges the work does not hide; what one has hidden behind hides no other."""
    found, left = {}, p.work_s
    waits = (("tensor_s", "tp"), ("expert_s", "ep"), ("context_s", "cp"), ("pipeline_s", "pp"))
    for name, pair in waits:
        found[name] = page.exposed_s(sent[name], left, _hidden(r, job, pair))
        left = left - (sent[name] - found[name])
    again = page.exposed_s(
        sent["gathered_s"], np.minimum(left, p.backward_s), 1.0 if job.hidden is None else job.hidden
    )
    left = left - (sent["gathered_s"] - again)
    every = page.exposed_s(each_s, left, _hidden(r, job, "dp"))
    return found | {"tensor_s": found["tensor_s"] + again, "each_s": every, "left_s": left - (each_s - every)}


def times_of(r: Rank, g: Values, job: Job, t: Tokens, k: Kept, params: Params) -> Values:
    """Parts of a step's time, that add up to it."""
    p, m = passes_of(r, g, job, t, k), t.microbatches
    once_s, each_s = _gradients(r, g, job, params)
    waits = _exposed(r, job, exchanges_of(r, g, job, t), p, each_s)
    each_s, left = waits.pop("each_s"), np.minimum(waits.pop("left_s"), p.backward_s + p.recompute_s)
    stage_s = p.work_s + sum(waits.values())
    updated = 2 * g["optimizer_bytes"] + g["gradient_bytes"] + ELEMENT_BYTES * (g["backward"] - 1)
    moved = params.held(updated, job.zero > 0)
    found = {name: m * x for name, x in waits.items()} | {
        "forward_s": m * (p.forward_s + p.head_s / (1 + g["backward"])),
        "backward_s": m * (p.backward_s + p.head_s * g["backward"] / (1 + g["backward"])),
        "recompute_s": m * p.recompute_s,
        "data_s": page.exposed_s(once_s, left, _hidden(r, job, "dp")) + m * each_s,
        "bubble_s": page.bubble_s(stage_s, r.values["pp"], g["interleave"]),
        "optimizer_s": moved / (r.at.hbm_bytes_per_s * r.e.stream_share),
        "straggler_s": g["straggler"] * m * (p.work_s + p.head_s),
        "overhead_s": r.e.step_s,
    }
    return {name: found[name] for name in PARTS}


def flop_of(r: Rank, g: Values, job: Job) -> tuple[Numeric, Numeric]:
    """Work of a step as MFU counts it, and with what is computed again, over all ranks. [FLOP]

    Attention counts as the stack computes it: the whole square, or what the mask leaves.
    """
    w = r.values
    pair = sum(w[f"pair_all_{i}"] * x for i, x in enumerate(_pairs(r, g)))
    rows = w["row_all"] * g["seq"]
    model = ((1 + g["backward"]) * (rows + w["logit_all"] * g["seq"]) + (1 + BACKWARD) * pair) * g["global_batch"]
    again: Numeric = 0.0
    if job.again:
        again = (rows + pair) * g["global_batch"]
    elif job.recompute == "selective" and r.e.scores == "kept":
        again = pair * g["global_batch"]
    return model, model + again


def memory_of(r: Rank, g: Values, job: Job, t: Tokens, k: Kept, p: Params) -> Values:
    """Bytes of the rank that stores most, by kind."""
    w, o, n = r.values, r.outline, t.rows
    ask = (k.whole, k.cut, k.scores, k.entry, w["tp"], t.outer_tp)
    layers = t.stage * page.in_flight(t.microbatches, w["pp"], g["interleave"])
    kept = layers * page.kept_bytes(n, *ask, job.recompute)
    edge = page.edge_bytes(n, o.hidden, o.vocabulary, w["tp"], w["pp"])
    buffer: Numeric = 0.0
    if job.again:  # the layer that runs again
        buffer = page.kept_bytes(n, *ask, "none") / o.layers
    if job.zero == 3:  # a layer's weights, and those that come next
        buffer = buffer + 2 * p.held(ELEMENT_BYTES, False) / (t.stage * o.layers)
    return {
        "weight_bytes": p.held(ELEMENT_BYTES, job.zero > 2),
        "gradient_bytes": p.held(g["gradient_bytes"], job.zero > 1),
        "optimizer_bytes": p.held(g["optimizer_bytes"], job.zero > 0),
        "activation_bytes": kept + edge,
        "buffer_bytes": buffer,
    }
