"""How a model is cut over ranks: degrees, what one rank holds, and how they lie on the fabric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, integer, numbers, refuse, together
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Precision
from trnmodel.workloads.blocks import Attention, Layer, Part
from trnmodel.workloads.transformer import Transformer

Numeric = ArrayLike
KvHeadPolicy = Literal["even", "replicate", "multi-head"]
DEGREES = ("tp", "pp", "dp", "ep", "cp")
KV_POLICIES = ("even", "replicate", "multi-head")


@dataclass(frozen=True, slots=True, eq=False)
class Mapping:
    """Degrees of parallelism and the order in which they fill the fabric, innermost tier first.

    A rank is one logical NeuronCore of `lnc` physical ones, or one GPU. Degrees multiply to ranks. `dp` makes replicas.
    Inside a replica `ep` ranks share out experts, and sequences between them; `cp` cuts a sequence; `tp` cuts heads,
    columns, experts and the vocabulary; `pp` cuts the layers.

    Examples
    --------
    >>> mapping = Mapping(tp=[8, 16], pp=2)
    >>> mapping.ranks.tolist()
    [16.0, 32.0]
    """

    tp: Any = 1
    pp: Any = 1
    dp: Any = 1
    ep: Any = 1
    cp: Any = 1
    lnc: int | None = None
    placement: tuple[str, ...] = ("tp", "cp", "ep", "pp", "dp")

    def __post_init__(self) -> None:
        for name in DEGREES:
            object.__setattr__(self, name, numbers(name, getattr(self, name), 1, whole=True))
        together(**{name: getattr(self, name) for name in DEGREES})
        order = self.placement
        words = isinstance(order, tuple | list) and all(isinstance(name, str) for name in order)
        if not words or sorted(order) != sorted(DEGREES):
            refuse("placement", order, f"allowed are orders of {DEGREES}")
        object.__setattr__(self, "placement", tuple(order))
        if self.lnc is not None:
            object.__setattr__(self, "lnc", integer("lnc", self.lnc))

    @property
    def replica_ranks(self) -> NDArray:
        """Ranks that hold one copy of the model."""
        return self.tp * self.pp * self.ep * self.cp

    @property
    def ranks(self) -> NDArray:
        """Product of all degrees."""
        return self.replica_ranks * self.dp

    def extent(self, name: str) -> tuple[NDArray, NDArray]:
        """Stride between neighbours of a group and the ranks that the group spans, in order of placement."""
        stride = np.ones(())
        for inner in self.placement[: self.placement.index(choice("name", name, DEGREES))]:
            stride = stride * getattr(self, inner)
        return stride, stride * getattr(self, name)


def kv_heads_per_rank(heads: Numeric, kv_heads: Numeric, tp: Numeric, policy: str) -> NDArray:
    """KV heads that one of `tp` ranks stores.

    "replicate": all ranks alike where tp divides the KV heads, one head a rank where tp is a multiple of them, else the
    model is turned into multi-head attention with as many KV heads as padded query heads. "multi-head" turns it so
    wherever tp does not divide the KV heads (older software). "even" cuts without waste, even through a head.

    Examples
    --------
    >>> [float(kv_heads_per_rank(64, 8, tp, "replicate")) for tp in (4, 8, 24, 32, 12)]
    [2.0, 1.0, 1.0, 1.0, 6.0]
    >>> [float(kv_heads_per_rank(64, 8, tp, "multi-head")) for tp in (8, 32)]
    [1.0, 2.0]
    """
    choice("kv_head_policy", policy, KV_POLICIES)
    heads, kv_heads, tp = (np.asarray(value, dtype=float) for value in (heads, kv_heads, tp))
    if policy == "even":
        return kv_heads / tp
    divided = np.ceil(kv_heads / tp)
    copied = divided if policy == "replicate" else np.ceil(heads / tp)
    return np.where(kv_heads % tp == 0, divided, np.where(tp % kv_heads == 0, copied, np.ceil(heads / tp)))


def _held(whole: Numeric, ranks: Numeric, policy: str) -> NDArray:
    """Share of `whole` units that the fullest of `ranks` holds; "even" cuts through units."""
    return 1 / np.asarray(ranks) if policy == "even" else np.ceil(np.divide(whole, ranks)) / whole


@dataclass(frozen=True, slots=True)
class Cut:
    """How tensor parallelism cuts a group of parts: its kind, and the heads or experts that it counts in."""

    shard: str
    heads: int = 1
    kv_heads: int = 1
    experts: int = 0
    active: int = 0
    inner: int = 0

    def padding(self, tp: NDArray, tile: float) -> NDArray:
        """Columns that a matrix engine of `tile` columns works on over those that an expert's shard has."""
        width = self.inner / tp
        return np.ceil(width / tile) * tile / width if self.inner and tile else np.ones_like(tp)

    def share(self, tp: NDArray, ep: NDArray, policy: str) -> NDArray:
        """Share of the parts that one rank holds."""
        if self.experts:
            return _held(self.experts, ep, policy) / tp
        if self.shard == "none":
            return 1 / tp if policy == "even" else np.ones_like(tp)
        if self.shard == "heads":
            return _held(self.heads, tp, policy)
        if self.shard == "kv_heads":
            return kv_heads_per_rank(self.heads, self.kv_heads, tp, policy) / self.kv_heads
        return 1 / tp


@dataclass(frozen=True, slots=True)
class Bulk:
    """Parts that are cut alike, summed over the model."""

    cut: Cut
    stored_bytes: float
    read_bytes: float
    lookup_bytes_per_token: float
    flop_per_token: float
    flop_per_logit: float


@dataclass(frozen=True, slots=True)
class Core:
    """Attention layers that are alike, with their cache per token."""

    attention: Attention
    count: int
    cache_bytes_per_token: float


@dataclass(frozen=True, slots=True)
class Census:
    """A model in one precision and phase, as few sums: what every timing needs and no degree changes."""

    bulks: tuple[Bulk, ...]
    cores: tuple[Core, ...]
    state_bytes: tuple[tuple[int, float, float], ...]
    all_reduces: int
    expert_layers: int
    n_layers: int
    hidden: int
    vocabulary: int
    widest: int
    top_k: int
    experts: int


def cut_of(part: Part, layer: Layer | None) -> Cut:
    """How tensor parallelism cuts a part of a layer."""
    if part.group == "experts":
        inner = part.rows if "down" in part.name else part.cols
        return Cut("experts", experts=part.copies, active=part.active, inner=inner)
    heads, kv_heads = 1, 1
    if layer and layer.attentions:
        heads, kv_heads = layer.attentions[0].heads, layer.attentions[0].kv_heads
    elif layer and layer.recurrence:
        heads = layer.recurrence.heads
    if part.shard in ("heads", "kv_heads") or (part.shard == "rows" and part.group == "mixer"):
        return Cut("kv_heads" if part.shard == "kv_heads" else "heads", heads, kv_heads)
    return Cut("none" if part.shard == "none" else "columns")


def _parts(model: Transformer, phase: str) -> Iterator[tuple[int, int, Layer | None, Part]]:
    """Parts with the layers that run in the phase and the layers that are stored."""
    for layer in model.layers:
        for part in layer.parts:
            runs = layer.count if phase in part.phases and phase in layer.phases else 0
            yield runs, layer.stored or layer.count, layer, part
    yield from ((int(phase in part.phases), 1, None, part) for part in model.outer)


def _sums(runs: int, stored: int, part: Part, precision: Precision) -> NDArray:
    wide = precision.storage_bytes("activations")
    width = wide if part.store == "wide" else precision.storage_bytes(part.store)
    loose = part.copies * part.extra * wide
    read = 0.0 if part.lookup else part.copies * part.rows * part.cols * width + loose
    flop = float(part.flop_per_token)
    is_head = part.group == "head"
    return np.array(
        [
            stored * (part.matrix_params * width + loose),
            runs * read,
            runs * part.cols * wide if part.lookup else 0.0,
            0.0 if is_head else runs * flop,
            runs * flop if is_head else 0.0,
        ]
    )


def _row_cut_groups(layer: Layer) -> int:
    """All-reduces that a layer needs: one behind its mixer, one behind its feed-forward part."""
    groups = {"mixer" if part.group == "mixer" else "ffn" for part in layer.parts if part.shard in ("rows", "experts")}
    return len(groups)


@lru_cache(maxsize=256)
def _census(model: Transformer, precision: Precision, phase: str) -> Census:
    totals: dict[Cut, NDArray] = {}
    for runs, stored, layer, part in _parts(model, phase):
        cut = cut_of(part, layer)
        totals[cut] = totals.get(cut, np.zeros(5)) + _sums(runs, stored, part, precision)
    running = [layer for layer in model.layers if phase in layer.phases]
    kv = precision.storage_bytes("kv")
    moe = [(layer, part) for layer in running for part in layer.parts if part.group == "experts"]
    wide = precision.storage_bytes("activations")
    fp32 = read_precision("fp32").storage_bytes("kv")
    return Census(
        bulks=tuple(Bulk(cut, *map(float, sums)) for cut, sums in totals.items()),
        cores=tuple(
            Core(a, layer.count, layer.count * a.cached_elements * kv) for layer in running for a in layer.attentions
        ),
        state_bytes=tuple(
            (r.heads, layer.count * (r.state_elements * fp32 + r.conv_elements * wide), layer.count * r.flop_per_token)
            for layer in running
            if (r := layer.recurrence)
        ),
        all_reduces=sum(layer.count * _row_cut_groups(layer) for layer in running),
        expert_layers=sum({layer.name: layer.count for layer, _ in moe}.values()),
        n_layers=sum(layer.count for layer in running),
        hidden=model.hidden_size,
        vocabulary=model.vocab_size,
        widest=max((part.cols for layer in running for part in layer.parts), default=0),
        top_k=max((part.active for _, part in moe), default=0),
        experts=max((part.copies for _, part in moe), default=0),
    )


def census(model: Transformer, precision: str | Precision, phase: str) -> Census:
    """The sums of a model in a precision and phase; computed once."""
    return _census(model, read_precision(precision), phase)


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """What the fullest rank stores and reads, and what it computes, for the arrays of degrees that it was cut by."""

    weight_bytes: NDArray
    read_bytes: NDArray
    expert_read_bytes: NDArray
    lookup_bytes_per_token: NDArray
    flop_per_token: NDArray
    expert_flop_per_token: NDArray
    flop_per_logit: NDArray
    cores: tuple[tuple[Core, NDArray, NDArray], ...]
    state_bytes: NDArray
    state_flop: NDArray


def core_shares(a: Attention, tp: NDArray, policy: str) -> tuple[NDArray, NDArray]:
    """Shares of cache and of query heads on one rank; TP cannot cut a latent, which all heads read."""
    cache = np.ones_like(tp)
    if not a.latent_dim:
        cache = kv_heads_per_rank(a.heads, a.kv_heads, tp, policy) / a.kv_heads
    elif policy == "even":
        cache = 1 / tp
    return cache, _held(a.heads, tp, policy)


def shard(
    model: Transformer,
    mapping: Mapping,
    precision: str | Precision,
    phase: str,
    policy: str = "even",
    tile: float = 0.0,
) -> Shard:
    """Cut a model over `tp` and `ep` ranks, layers over `pp`.

    The whole model is on one pipeline of `pp` stages, so all bytes and FLOP are of the fullest stage times `pp`, except
    the stored bytes, which are of one stage. A part that nobody may cut is whole on every rank. With a `tile`, the
    shards of experts are computed in whole tiles of a matrix engine.
    """
    c = census(model, precision, phase)
    tp, ep = np.broadcast_arrays(mapping.tp, mapping.ep)
    stage = np.ceil(c.n_layers / mapping.pp) / c.n_layers
    sums = dict.fromkeys(f.name for f in fields(Shard) if f.name != "cores")
    sums = {name: np.zeros(np.broadcast_shapes(tp.shape, stage.shape)) for name in sums}
    for bulk in c.bulks:
        share = bulk.cut.share(tp, ep, policy)
        is_expert = bool(bulk.cut.experts)
        sums["weight_bytes"] = sums["weight_bytes"] + bulk.stored_bytes * share * stage
        read, flop = ("expert_read_bytes", "expert_flop_per_token") if is_expert else ("read_bytes", "flop_per_token")
        work = bulk.cut.padding(tp, tile) / (tp * ep) if is_expert else share
        sums[read] = sums[read] + bulk.read_bytes * share
        sums[flop] = sums[flop] + bulk.flop_per_token * work
        sums["lookup_bytes_per_token"] = sums["lookup_bytes_per_token"] + bulk.lookup_bytes_per_token * share
        sums["flop_per_logit"] = sums["flop_per_logit"] + bulk.flop_per_logit * share
    for heads, state, flop in c.state_bytes:
        held = _held(heads, tp, policy)
        sums["state_bytes"] = sums["state_bytes"] + state * held
        sums["state_flop"] = sums["state_flop"] + flop * held
    return Shard(cores=tuple((core, *core_shares(core.attention, tp, policy)) for core in c.cores), **sums)
