"""The numbers of a training step for any points at once: parts of its time that add up, work, and memory by kind."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.bands import spread
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.trainers import IDEAL, Trainer, shipped
from trnmodel.formulas import training as page
from trnmodel.formulas.bands import grown_width, joint_width
from trnmodel.formulas.moe import dispatched_bytes
from trnmodel.formulas.step import attended_pairs, buffer_bytes, fullest_share, overlapped_s
from trnmodel.models.transformer import Transformer
from trnmodel.neighbours import ABSENT_OCTAVES
from trnmodel.result import Basis
from trnmodel.steps.assemble import Message
from trnmodel.steps.legal import RULES, of_lengths
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.pieces import Answer, Piece, in_pieces
from trnmodel.training.rank import CHAINS, ELEMENT_BYTES, Rank, rank
from trnmodel.units import Numeric

HAND_TUNED = "stack: put together from parts that were measured elsewhere, on no chip as a whole"
Values = dict[str, Any]
LOGIT_BYTES = 4.0
MOVES = 2.0  # what is saved is written once and read once
BACKWARD = 2.0  # gradients of inputs and of weights: two products for one, of which frozen weights need the first
HALVES = 2.0  # forward and backward
WORK = ("forward_s", "backward_s", "recompute_s")
EXCHANGES = ("tensor_s", "expert_s", "context_s", "pipeline_s", "data_s")
PARTS = (*WORK, *EXCHANGES, "host_s", "bubble_s", "optimizer_s", "straggler_s", "overhead_s")
SHARES = ("mfu", "hfu")  # of the peak, low where the time is long
ENTIRE = ("time_s", "tokens_per_s", "tokens_per_s_per_chip", *SHARES)  # figures of a step, not of a part of it
KINDS = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "buffer_bytes")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainQuestion:
    """What was asked of a training step. Its `rank` is what the specs resolve to.

    `gradient_bytes` and `optimizer_bytes` are those of a parameter that is trained. `hidden` says which share of an
    exchange hides behind work, where it is not what the stack has.
    """

    SIZES: ClassVar[tuple[str, ...]] = (
        *("global_batch", "seq", "micro_batch", "interleave", "gradient_bytes", "optimizer_bytes"),
        *("expert_imbalance", "trainable_share", "straggler"),
    )

    rank: Rank = field(repr=False)
    mapping: Mapping
    global_batch: NDArray
    seq: NDArray
    micro_batch: NDArray
    interleave: NDArray
    recompute: str
    zero: int
    sequence_parallel: bool
    gradient_bytes: NDArray
    optimizer_bytes: NDArray
    expert_imbalance: NDArray
    trainable_share: NDArray
    straggler: NDArray
    hidden: float | None = None

    @property
    def model(self) -> Transformer:
        """The model."""
        return self.rank.model

    @property
    def system(self) -> Any:
        """The system, or the bare chip."""
        return self.rank.at.where

    @property
    def precision(self) -> Precision:
        """The precision."""
        return self.rank.precision

    @property
    def efficiencies(self) -> Trainer:
        """The training stack in force."""
        return self.rank.e

    @property
    def recomputes_layers(self) -> bool:
        """Whether whole layers run again."""
        return self.recompute == "full"

    @property
    def turns(self) -> float:
        """Times that the exchanges of a layer take place: forward, backward, and again."""
        return HALVES + self.recomputes_layers

    @property
    def backward(self) -> Any:
        """Backward products over forward ones: gradients of inputs, and of the weights that are trained."""
        return 1.0 + self.trainable_share

    @property
    def trained_gradient_bytes(self) -> Any:
        """Gradients of a parameter, where only a share of all parameters is trained [B]."""
        return self.gradient_bytes * self.trainable_share

    @property
    def trained_optimizer_bytes(self) -> Any:
        """State of a parameter, where only a share of all parameters is trained [B]."""
        return self.optimizer_bytes * self.trainable_share

    @property
    def sizes(self) -> dict[str, NDArray]:
        """The numbers that may be arrays, by name."""
        return {name: getattr(self, name) for name in self.SIZES}

    @property
    def spec_shapes(self) -> dict[str, NDArray]:
        """The shapes of arrays in system and stack."""
        return self.rank.spec_shapes

    @property
    def places(self) -> tuple[Any, ...]:
        """The arrays that say which mapping each point has."""
        return self.rank.places

    @property
    def everywhere(self) -> TrainQuestion:
        """The question with its rank at every point."""
        return self if self.rank.index is None else replace(self, rank=self.rank.everywhere)

    def piece(self, piece: Piece, mappings: bool) -> TrainQuestion:
        """Return the question of a piece of its points; `mappings` says whether these vary along the axis."""
        part: dict[str, Any] = {name: piece.of(x) for name, x in self.sizes.items()}
        return replace(self, rank=self.rank.cut(piece) if mappings else self.rank, **part)

    def solve(self) -> Answer:
        """Return the numbers that a point has only where it can exist, and what every point has."""
        return numbers_of(self)

    def time_s(self, e: Trainer) -> NDArray:
        """Return the time for a stack with other values [s]."""
        r = self.rank
        return answers_of(replace(self, rank=rank(r.model, r.at.where, self.mapping, r.precision, e)))["time_s"]

    def time_hiding_s(self, hidden: float) -> NDArray:
        """Return the time where work hides this share of every exchange [s]."""
        return answers_of(replace(self, hidden=hidden))["time_s"]

    def basis(self) -> Basis:
        """Return word, reason and width of each point, by the rows of the training stack."""
        return basis_of(self.rank)

    def widths(self, name: str) -> tuple[Any, Any]:
        """Half-widths of a figure: those of the rows, and outside of them the ranges of the stack's values too.

        No step takes less time than with ideal software, which loses nothing.
        """
        if name.endswith(("_bytes", "_flop")) or "bytes_per" in name:
            return np.zeros(()), np.zeros(())
        below, above = spread(self.basis(), self.rank.e, self.time_s)
        if name in ENTIRE and self.rank.e.kind != "ideal":
            ideal_s = replace(self, straggler=0.0 * self.straggler).time_s(IDEAL)
            lost = np.maximum(np.log(answers_of(self)["time_s"] / ideal_s), 0.0)
            below = np.fmin(below, lost)  # NaN where the ideal one is cut in another way
        return (above, below) if name in SHARES else (below, above)

    def messages(self) -> tuple[Message, ...]:
        """Return what a rank of the fullest stage sends for a micro-batch; what a step sends once counts as a part."""
        q = self.everywhere
        t = tokens_of(q.rank, q)
        layers = tuple(message for _, message in messages_of(q.rank, q, t))
        replicas = replicas_of(q.rank, q, t, params_of(q.rank, t))
        return layers + tuple(m if every else m._replace(count=m.count / t.microbatches) for every, m in replicas)


class Tokens(NamedTuple):
    """Tokens of a micro-batch on a rank, micro-batches of a step, shares of all layers and of those with experts.

    The shares are those of the fullest stage, which may have experts in every layer.
    """

    rows: Numeric
    microbatches: Numeric
    stage: Numeric
    expert_stage: Numeric
    outer_tp: Numeric


def tokens_of(r: Rank, q: TrainQuestion) -> Tokens:
    """Return how the batch is cut."""
    w, o = r.values, r.outline
    stage = fullest_share(o.layers, w["pp"] * q.interleave) * q.interleave
    return Tokens(
        q.micro_batch * q.seq / w["cp"],
        q.global_batch / (q.micro_batch * w["dp"] * w["ep"]),
        stage,
        np.minimum(stage * (o.layers / o.expert_layers), 1.0) if o.expert_layers else stage,
        w["tp"] if q.sequence_parallel else 1.0,
    )


def _pairs(r: Rank, q: TrainQuestion, skipped: bool) -> list[Numeric]:
    """Query-key pairs of a sequence in each attention: those that the mask leaves if others are skipped, else all."""
    return [attended_pairs(q.seq, 0.0, a.window, a.kind, skipped) for a in r.attentions]


def _computed(r: Rank, q: TrainQuestion) -> list[Numeric]:
    """Query-key pairs of a sequence that the stack computes in each attention."""
    return _pairs(r, q, r.e.masked == "skipped")


class Saved(NamedTuple):
    """Bytes that a token leaves for the backward pass in all layers: whole, cut, as scores, and inputs of layers."""

    whole: Numeric
    cut: Numeric
    scores: Numeric
    entry: Numeric


def saved_of(r: Rank, q: TrainQuestion) -> Saved:
    """Bytes of a token in all layers."""
    k, e = r.saved, r.e
    cut = ELEMENT_BYTES * (k.cut + k.routed * q.expert_imbalance)
    scores: Numeric = 0.0
    for a, heads in k.scores:
        if e.scores == "fused":
            cut = cut + LOGIT_BYTES * heads  # the sum and the largest of each row
        else:
            keys = attended_pairs(q.seq, 0.0, a.window, a.kind, False) / q.seq
            scores = scores + (2 * ELEMENT_BYTES + e.mask_bytes) * heads * keys
    whole = ELEMENT_BYTES * k.whole + e.mask_bytes * k.masked
    return Saved(whole, cut, scores, ELEMENT_BYTES * r.outline.hidden * r.outline.layers)


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


def passes_of(r: Rank, q: TrainQuestion, t: Tokens, k: Saved) -> Passes:
    """Return work over rates, what is written and read over those of memory, and a fixed time a layer."""
    w, e, n = r.values, r.e, t.rows
    narrow, wide, base = r.rates.compute_flop_per_s, r.rates.attention_flop_per_s, r.rates.fitted_flop_per_s
    stream = r.rates.hbm_bytes_per_s * e.stream_share
    flop = n * (w["row_flop"] + w["routed_flop"] * q.expert_imbalance)
    layers_s = page.product_s(flop, narrow, e.matmul_share, base)
    sequences: Numeric = q.micro_batch / w["cp"]
    flop = sum(w[f"pair_flop_{i}"] * x for i, x in enumerate(_computed(r, q))) * sequences
    attend_s = page.product_s(flop, wide, np.minimum(e.attention_share, e.matmul_share), base)
    moved_s = (
        MOVES * page.saved_activation_bytes(n, k.whole, k.cut, k.scores, k.entry, w["tp"], t.outer_tp, "none") / stream
    )
    one = t.stage * overlapped_s(layers_s + attend_s, moved_s, e.stream_overlap)
    worked_s = q.backward * layers_s + BACKWARD * attend_s
    back = t.stage * overlapped_s(worked_s, BACKWARD * moved_s, e.stream_overlap)
    fixed = t.stage * r.outline.layers * e.layer_s
    again: Numeric = 0.0
    if q.recomputes_layers:
        again = one + fixed
    elif q.recompute == "selective" and e.scores == "kept":
        again = t.stage * overlapped_s(attend_s, MOVES * n * k.scores / w["tp"] / stream, e.stream_overlap)
    logits_s = MOVES * LOGIT_BYTES * n * r.outline.vocabulary / w["tp"] / stream
    head = overlapped_s(page.product_s(w["logit_flop"] * n, wide, e.matmul_share, base), logits_s, e.stream_overlap)
    return Passes(one + fixed, back + fixed, again, (1 + q.backward) * head)


def _tensor(r: Rank, q: TrainQuestion, t: Tokens, buffer: NDArray) -> list[tuple[str, Message]]:
    """Return the sums behind matrices that are cut by rows, in both passes; inputs that stay cut are gathered again."""
    kinds = ("all_gather", "reduce_scatter") if q.sequence_parallel else ("all_reduce",)
    layers = t.stage * r.outline.all_reduces
    edges = np.where(np.equal(r.values["pp"], 1), 2.0, 1.0)[()]
    exchanges = []
    for kind in kinds:
        exchanges.append(("tensor_s", Message("row-parallel outputs", kind, "tp", buffer, layers * q.turns)))
        exchanges.append(("tensor_s", Message("embedding and logits", kind, "tp", buffer, edges)))
    if q.sequence_parallel and not q.recomputes_layers:
        exchanges.append(("gathered_s", Message("inputs of gradients of weights", "all_gather", "tp", buffer, layers)))
    return exchanges


def messages_of(r: Rank, q: TrainQuestion, t: Tokens) -> list[tuple[str, Message]]:
    """Return what a rank of the fullest stage sends for a micro-batch, with the part of the step that waits for it."""
    w, o, n = r.values, r.outline, t.rows
    buffer = buffer_bytes(n, o.hidden, ELEMENT_BYTES)
    exchanges = _tensor(r, q, t, buffer) if "tp" in r.parted else []
    if "ep" in r.parted and o.experts:
        sent = dispatched_bytes(buffer, o.top_k, w["tp"], q.expert_imbalance)
        count = t.stage * o.expert_layers * 2 * q.turns
        exchanges.append(("expert_s", Message("expert dispatch and combine", "all_to_all", "ep", sent, count)))
    if "cp" in r.parted:
        for i, a in enumerate(r.attentions):
            layers = t.stage * sum(heads for b, heads in r.saved.scores if b is a) / a.heads
            passed = buffer_bytes(n, a.kv_heads * (a.qk_dim + a.v_dim) * w[f"head_share_{i}"], ELEMENT_BYTES)
            turns = layers * (w["cp"] - 1) * (q.turns + 1)  # backward passes gradients of both besides
            exchanges.append(
                ("context_s", Message(f"keys and values of {a.kind} attention", "p2p", "cp", passed, turns))
            )
    if "pp" in r.parted:
        passed, turns = buffer / w["tp"], np.where(np.greater(w["pp"], 1), 2.0 * q.interleave, 0.0)[()]
        exchanges.append(("pipeline_s", Message("stage boundary", "p2p", "pp", passed, turns)))
    return exchanges


def exchanges_of(r: Rank, q: TrainQuestion, t: Tokens) -> Values:
    """Time of all exchanges of a micro-batch by themselves, on the fullest stage [s]."""
    times_s: Values = dict.fromkeys(("tensor_s", "gathered_s", "expert_s", "context_s", "pipeline_s"), 0.0)
    for part, m in messages_of(r, q, t):
        times_s[part] = times_s[part] + time_of(r, m)
    return times_s


def time_of(r: Rank, m: Message) -> Numeric:
    """Time of all messages of one kind [s]."""
    return m.count * r.values.exchanges.time_s(m.group, m.kind, m.message_bytes)


class Params(NamedTuple):
    """Parameters of the fullest stage on a rank, tables at the ends and experts apart, and ranks that hold the same."""

    layers: Numeric
    edge: Numeric
    expert: Numeric
    dense_ranks: Numeric
    expert_ranks: Numeric

    @property
    def dense(self) -> Numeric:
        """Parameters of layers and tables."""
        return self.layers + self.edge

    def held(self, each_bytes: Numeric, sharded: bool) -> Numeric:
        """Bytes of a state of all of them."""
        cut = (self.dense_ranks, self.expert_ranks) if sharded else (1.0, 1.0)
        return page.state_bytes(self.dense, each_bytes, cut[0]) + page.state_bytes(self.expert, each_bytes, cut[1])

    def of_others(self, each_bytes: Numeric) -> Numeric:
        """Bytes of a state of the parameters that a rank has only a part of where states are sharded."""
        return each_bytes * (self.dense * (self.dense_ranks > 1) + self.expert * (self.expert_ranks > 1))


def params_of(r: Rank, t: Tokens) -> Params:
    """Return parameters: layers of the fullest stage, and the larger table of the ends, or both in one stage."""
    w = r.values
    first, last = w["first_params"], w["last_params"]
    edge = np.where(np.equal(w["pp"], 1), first + last, np.maximum(first, last))[()]
    experts = w["dp"] * w["cp"]
    return Params(t.stage * w["dense_params"], edge, t.expert_stage * w["expert_params"], experts * w["ep"], experts)


def replicas_of(r: Rank, q: TrainQuestion, t: Tokens, p: Params) -> list[tuple[bool, Message]]:
    """Return the exchanges of gradients and weights, with whether they take place in every micro-batch, not in a step.

    In ZeRO-3 each layer gathers its weights when it runs, and the tables at the ends theirs; else all goes in buckets.
    """
    o, gradients = r.outline, q.trained_gradient_bytes
    again = q.backward - 1  # weights that were trained
    if q.zero == 0:
        plan = [("gradients", "all_reduce", gradients, 1.0, False)]
    elif q.zero == 3:
        plan = [
            ("weights", "all_gather", ELEMENT_BYTES, 2.0, True),
            ("gradients", "reduce_scatter", gradients, 1.0, True),
        ]
    else:
        plan = [
            ("gradients", "reduce_scatter", gradients, 1.0, q.zero == 2),
            ("updated weights", "all_gather", ELEMENT_BYTES * again, 1.0, False),
        ]
    held: list[tuple[str, str, Numeric, Numeric]] = [("all but experts", "dense", p.dense, 1.0)]
    if q.zero == 3:
        held = [("layers", "dense", p.layers, t.stage * o.layers), ("tables at the ends", "dense", p.edge, 1.0)]
    if o.expert_layers:
        held.append(("experts", "expert", p.expert, t.expert_stage * o.expert_layers if q.zero == 3 else 1.0))
    sent = []
    for what, kind, each_bytes, times, every in plan:
        for name, group, params, parts in held:
            if set(CHAINS[group]) & r.parted:
                all_bytes = np.asarray(each_bytes * params)
                count = parts if q.zero == 3 else np.maximum(all_bytes / _bucket_bytes(r, group), 1.0)
                sent.append((every, Message(f"{what} of {name}", kind, group, all_bytes / count, times * count)))
    return sent


def _bucket_bytes(r: Rank, group: str) -> Numeric:
    """Bytes of a message of gradients or updated weights: more where more ranks share them, who all start."""
    ranks = 1.0
    for degree in CHAINS[group]:
        ranks = ranks * r.values[degree]
    return np.maximum(r.e.bucket_bytes, r.e.bucket_rank_bytes * ranks)


def _gradients(r: Rank, q: TrainQuestion, t: Tokens, p: Params) -> tuple[Numeric, Numeric]:
    """Time of the exchanges of gradients and weights once a step, and in every micro-batch [s]."""
    times_s: dict[bool, Numeric] = {False: 0.0, True: 0.0}
    for every, m in replicas_of(r, q, t, p):
        times_s[every] = times_s[every] + time_of(r, m)
    return times_s[False], times_s[True]


def _hidden(r: Rank, q: TrainQuestion, name: str) -> Numeric:
    """Share of an exchange that hides behind work."""
    return getattr(r.e, f"{name}_overlap") if q.hidden is None else q.hidden


def _exposed(r: Rank, q: TrainQuestion, sent: Values, p: Passes, each_s: Numeric) -> Values:
    """Time of each exchange of a micro-batch that work does not hide [s].

    Work that hides one exchange hides no other.
    """
    exposed, left = {}, p.work_s
    waits = (("tensor_s", "tp"), ("expert_s", "ep"), ("context_s", "cp"), ("pipeline_s", "pp"))
    for name, pair in waits:
        exposed[name] = page.exposed_s(sent[name], left, _hidden(r, q, pair))
        left = left - (sent[name] - exposed[name])
    again = page.exposed_s(sent["gathered_s"], np.minimum(left, p.backward_s), 1.0 if q.hidden is None else q.hidden)
    left = left - (sent["gathered_s"] - again)
    every = page.exposed_s(each_s, left, _hidden(r, q, "dp"))
    return exposed | {"tensor_s": exposed["tensor_s"] + again, "each_s": every, "left_s": left - (each_s - every)}


def launches_s(r: Rank, q: TrainQuestion, t: Tokens) -> Numeric:
    """Time in which the host launches a micro-batch of the fullest stage: each pass over each layer [s]."""
    adapters = np.less(q.trainable_share, 1.0)
    return t.stage * r.outline.layers * q.turns * (r.e.host_layer_s + adapters * r.e.host_adapter_s)


def times_of(r: Rank, q: TrainQuestion, t: Tokens, k: Saved, params: Params) -> Values:
    """Parts of a step's time, that add up to it.

    Gradients are still under way while the chip waits for the host to launch the last micro-batch.
    """
    p, m = passes_of(r, q, t, k), t.microbatches
    once_s, each_s = _gradients(r, q, t, params)
    waits = _exposed(r, q, exchanges_of(r, q, t), p, each_s)
    each_s, left = waits.pop("each_s"), np.minimum(waits.pop("left_s"), p.backward_s + p.recompute_s)
    device_s = p.work_s + sum(waits.values())
    launched_s = launches_s(r, q, t)
    host_s = page.host_wait_s(device_s + p.head_s + each_s, launched_s)
    updated = 2 * q.trained_optimizer_bytes + q.trained_gradient_bytes + ELEMENT_BYTES * (q.backward - 1)
    moved = params.held(updated, q.zero > 0)
    times = {name: m * x for name, x in waits.items()} | {
        "forward_s": m * (p.forward_s + p.head_s / (1 + q.backward)),
        "backward_s": m * (p.backward_s + p.head_s * q.backward / (1 + q.backward)),
        "recompute_s": m * p.recompute_s,
        "data_s": page.exposed_s(once_s, left + host_s, _hidden(r, q, "dp")) + m * each_s,
        "host_s": m * host_s,
        "bubble_s": page.bubble_s(np.maximum(device_s, launched_s), r.values["pp"], q.interleave),
        "optimizer_s": moved / (r.rates.hbm_bytes_per_s * r.e.stream_share),
        "straggler_s": q.straggler * m * (p.work_s + p.head_s),
        "overhead_s": r.e.step_s,
    }
    return {name: times[name] for name in PARTS}


def flop_of(r: Rank, q: TrainQuestion) -> tuple[Numeric, Numeric]:
    """Work of a step as MFU counts it, and as the stack computes it with what runs again, over all ranks [FLOP].

    MFU counts the whole square of attention, whatever the software: as Megatron-LM and PaLM define it. What the stack
    computes leaves out the pairs that it skips.
    """
    w = r.values
    square, pair = (
        sum(w[f"pair_all_{i}"] * x for i, x in enumerate(pairs)) for pairs in (_pairs(r, q, False), _computed(r, q))
    )
    rows = w["row_all"] * q.seq
    products = (1 + q.backward) * (rows + w["logit_all"] * q.seq)
    model, computed = ((products + (1 + BACKWARD) * x) * q.global_batch for x in (square, pair))
    again: Numeric = 0.0
    if q.recomputes_layers:
        again = (rows + pair) * q.global_batch
    elif q.recompute == "selective" and r.e.scores == "kept":
        again = pair * q.global_batch
    return model, computed + again


def memory_of(r: Rank, q: TrainQuestion, t: Tokens, k: Saved, p: Params) -> Values:
    """Bytes of the rank that stores most, by kind."""
    w, o, n = r.values, r.outline, t.rows
    ask = (k.whole, k.cut, k.scores, k.entry, w["tp"], t.outer_tp)
    layers = t.stage * page.in_flight(t.microbatches, w["pp"], q.interleave)
    activations = layers * page.saved_activation_bytes(n, *ask, q.recompute)
    edge = page.edge_bytes(n, o.hidden, o.vocabulary, w["tp"], w["pp"])
    buffer: Numeric = 0.0
    if q.recomputes_layers:  # the layer that runs again
        buffer = page.saved_activation_bytes(n, *ask, "none") / o.layers
    if q.zero == 3:  # a layer's weights, and those that come next, where other ranks have parts of them
        buffer = buffer + 2 * p.of_others(ELEMENT_BYTES) / (t.stage * o.layers)
    return {
        "weight_bytes": p.held(ELEMENT_BYTES, q.zero > 2),
        "gradient_bytes": p.held(q.trained_gradient_bytes, q.zero > 1),
        "optimizer_bytes": p.held(q.trained_optimizer_bytes, q.zero > 0),
        "activation_bytes": activations + edge,
        "buffer_bytes": buffer,
    }


def numbers_of(q: TrainQuestion) -> Answer:
    """Return the numbers that a point has only where it can exist, and what every point has."""
    r = q.rank
    w, t = r.values, tokens_of(r, q)
    k, p = saved_of(r, q), params_of(r, t)
    parts = times_of(r, q, t, k, p)
    time_s: Any = sum(parts.values())
    model, hardware = flop_of(r, q)
    peak = r.rates.compute_flop_per_s
    kinds = memory_of(r, q, t, k, p)
    stored, room = sum(kinds.values()), r.rates.hbm_bytes / w["sharing"]
    m, v = t.microbatches, q.interleave
    woven = (v > 1) & ((w["pp"] * v > r.outline.layers) | (w["pp"] < 2) | (m % w["pp"] != 0))
    broken = (m % 1 != 0) | (m < 1), woven, time_s != time_s, stored > room
    illegal = w["illegal"] | of_lengths(r.model, w["cp"], q.seq, r.e.sequence_parts)
    mask = illegal + sum(np.multiply(bad, 2**bit) for bit, bad in enumerate(broken, len(RULES)))
    numbers = parts | {
        "time_s": time_s,
        "model_flop": model,
        "hardware_flop": hardware,
        "mfu": page.model_utilisation(model, time_s, w["ranks"], peak),
        "hfu": page.model_utilisation(hardware, time_s, w["ranks"], peak),
        "tokens_per_s": q.global_batch * q.seq / time_s,
    }
    room_of = {"memory_bytes_per_rank": stored, "capacity_bytes": room}
    return Answer(numbers, kinds | room_of | {"microbatches": m, "reason_mask": mask})


def answers_of(q: TrainQuestion) -> dict[str, Any]:
    """Return the numbers of all points, NaN for those that cannot exist."""
    answers = in_pieces(q)
    if q.rank.index is None:
        return answers
    return {name: np.broadcast_to(x, answers["reason_mask"].shape) for name, x in answers.items()}


def basis_of(r: Rank) -> Basis:
    """Return what a step rests on: rows of its chip and stack, or those of others."""
    if r.e.kind == "ideal":
        return Basis("ideal", "")
    on = sorted({chip for chips in r.e.fitted_on.values() for chip in chips})
    reasons = [] if shipped(r.e) else [f"stack: {r.e.id} is given with the call"]
    if r.e.kind == "hand-tuned":
        return Basis("extrapolated", "; ".join([HAND_TUNED, *reasons]))
    if r.at.chip.id not in on:
        reasons.append(f"chip: {r.e.id} was fitted on {', '.join(on) or 'no chip'}")
    if r.model.kind not in r.e.fitted_on:
        reasons.append(f"model: no training row of {r.model.kind} models")
    if r.precision.compute not in ("bf16", "fp16"):
        reasons.append(f"precision: no training row of {r.precision.compute}")
    chips = r.everywhere.values["ranks"] / r.at.ranks_per_chip
    further = np.log2(np.maximum(chips / r.e.fitted_chips, 1))
    texts = ["; ".join(reasons), "; ".join([*reasons, f"chips: rows reach to {r.e.fitted_chips:,.0f}"])]
    word = np.where(further > 0, "extrapolated", "extrapolated" if reasons else "interpolated")[()]
    near = grown_width(r.e.width, ABSENT_OCTAVES * len(reasons) + further)
    width = joint_width(near, r.e.octave_width * np.sqrt(further))
    return Basis(word, np.where(further > 0, texts[1], texts[0])[()], width)
