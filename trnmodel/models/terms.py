"""One account of a model's work: a tuple of terms, each one operator of one kind of layer.

Totals of a model, what a rank holds, the load of a step, its breakdown and memory by kind read this tuple and nothing
else. A term counts all its layers; a row is one token of one sequence. Terms that are alike to every rank can be summed
(`alike`): the sums cost less, the terms tell more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from numpy.typing import NDArray

from trnmodel.arguments import choice, numbers
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import ExpertRead
from trnmodel.formulas.moe import experts_read
from trnmodel.formulas.step import read_bytes
from trnmodel.models.blocks import FARTHEST, Attention, Layer, Part, Phase

EXPERT_READS: tuple[str, ...] = get_args(ExpertRead)

Kind = Literal["matrix", "experts", "attention", "state"]


@dataclass(frozen=True, slots=True)
class Cut:
    """How parallelism cuts a term: by nothing, columns, heads, KV heads, experts or the cache's heads."""

    shard: str
    heads: int = 1
    kv_heads: int = 1
    experts: int = 0
    active: int = 0
    inner: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """An operator over all its layers: work a row (or a query-key pair), bytes stored, read, looked up and cached.

    `row_flop` and `row_bytes` (of tables) are paid by each row, `logit_flop` by each row of logits, `pair_flop` by
    each query with each key; `read_bytes` once a pass, of experts in the share that the pass reads; `cached_bytes` lie
    in the cache for each token, `state_bytes` for each sequence. `activation_bytes` are a row's inputs and outputs.
    """

    layer: str
    name: str
    kind: Kind
    cut: Cut
    part: Part | None = None
    attention: Attention | None = None
    layers: int = 0
    row_flop: float = 0.0
    logit_flop: float = 0.0
    pair_flop: float = 0.0
    stored_bytes: float = 0.0
    read_bytes: float = 0.0
    row_bytes: float = 0.0
    cached_bytes: float = 0.0
    state_bytes: float = 0.0
    activation_bytes: float = 0.0

    @property
    def label(self) -> str:
        """Its name with that of its kind of layer."""
        return f"{self.layer}: {self.name}" if self.layer else self.name

    def weights_read(self, tokens: NDArray, expert_read: str) -> NDArray:
        """Return the weights that a pass over `tokens` tokens reads, with a row of a table for each of them [B]."""
        tokens = numbers("tokens", tokens, high=FARTHEST)
        weights: NDArray | float = self.read_bytes
        choice("expert_read", expert_read, EXPERT_READS)
        c = self.cut
        if self.kind == "experts":
            weights = weights * experts_read(c.experts, c.active, tokens, expert_read) / c.experts
        return read_bytes(weights, self.row_bytes, tokens)


SUMMED = tuple(f.name for f in fields(Term) if f.name == "layers" or f.name.endswith(("_flop", "_bytes")))


def cut_of(part: Part, layer: Layer | None) -> Cut:
    """Return how tensor and expert parallelism cut a part of a layer."""
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


def _matrix(part: Part, layer: Layer | None, runs: int, stored: int, precision: Precision) -> Term:
    """Return the term of a matrix or of a table that runs in `runs` layers and is stored for `stored`."""
    wide = precision.storage_bytes("activations")
    width = wide if part.store == "wide" else precision.storage_bytes(part.store)
    loose = part.copies * part.extra * wide
    flop = runs * float(part.flop_per_token)
    head = part.group == "head"
    return Term(
        layer=layer.name if layer else "",
        name=part.name,
        kind="experts" if part.group == "experts" else "matrix",
        cut=cut_of(part, layer),
        part=part,
        layers=runs,
        row_flop=0.0 if head else flop,
        logit_flop=flop if head else 0.0,
        stored_bytes=stored * (part.matrix_params * width + loose),
        read_bytes=0.0 if part.lookup else runs * (part.copies * part.rows * part.cols * width + loose),
        row_bytes=runs * part.cols * wide if part.lookup else 0.0,
        activation_bytes=0.0 if part.lookup else runs * part.active * (part.rows + part.cols) * wide,
    )


def _core(a: Attention, layer: Layer, absorbed: bool, precision: Precision) -> Term:
    """Return the term of scores and weighted values."""
    return Term(
        layer=layer.name,
        name=f"{a.kind} attention",
        kind="attention",
        cut=Cut("latent" if a.latent_dim else "cache", a.heads, a.kv_heads),
        attention=a,
        layers=layer.count,
        pair_flop=float(layer.count * a.flop_per_pair(absorbed)),
        cached_bytes=layer.count * a.cached_elements * precision.storage_bytes("kv"),
        activation_bytes=layer.count * a.heads * (a.qk_dim + a.v_dim) * precision.storage_bytes("activations"),
    )


def _scan(layer: Layer, precision: Precision) -> Term:
    """Return the term of a recurrent state in FP32, which a pass reads and writes once."""
    r = layer.recurrence
    assert r is not None
    state = r.state_elements * read_precision("fp32").storage_bytes("kv")
    return Term(
        layer=layer.name,
        name=f"{r.kind} scan",
        kind="state",
        cut=Cut("heads", r.heads),
        layers=layer.count,
        row_flop=float(layer.count * r.flop_per_token),
        state_bytes=layer.count * (state + r.conv_elements * precision.storage_bytes("activations")),
    )


def account(layers: Iterable[Layer], outer: Iterable[Part], precision: Precision, phase: Phase) -> Iterator[Term]:
    """Yield the terms of layers and of parts outside of them; what does not run in the phase is stored too."""
    for layer in layers:
        for part in layer.parts:
            runs = layer.count if phase in part.phases and phase in layer.phases else 0
            yield _matrix(part, layer, runs, layer.stored or layer.count, precision)
    yield from (_matrix(part, None, int(phase in part.phases), 1, precision) for part in outer)
    running = [layer for layer in layers if phase in layer.phases]
    yield from (_core(a, layer, phase == "decode", precision) for layer in running for a in layer.attentions)
    yield from (_scan(layer, precision) for layer in running if layer.recurrence)


def alike(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Return the sums of the terms that every rank cuts and runs alike."""
    sums: dict[tuple, Term] = {}
    for term in terms:
        key = (term.kind, term.cut, term.attention)
        if key in sums:
            sums[key] = replace(sums[key], **{name: getattr(sums[key], name) + getattr(term, name) for name in SUMMED})
        else:
            sums[key] = replace(term, layer="", name=term.kind, part=None)
    return tuple(sums.values())


@dataclass(frozen=True, slots=True)
class Outline:
    """What a step needs of a model besides its terms."""

    all_reduces: int
    expert_layers: int
    layers: int
    hidden: int
    vocabulary: int
    widest: int
    experts: int
    top_k: int
    recurrent_layers: int


def _row_cut_groups(layer: Layer) -> int:
    """Return the all-reduces that a layer needs: one behind its mixer, one behind its feed-forward part."""
    groups = {"mixer" if part.group == "mixer" else "ffn" for part in layer.parts if part.shard in ("rows", "experts")}
    return len(groups)


def outline(layers: Iterable[Layer], hidden: int, vocabulary: int, phase: Phase) -> Outline:
    """Return the layers, widths and experts of a model in a phase."""
    running = [layer for layer in layers if phase in layer.phases]
    moe = [(layer, part) for layer in running for part in layer.parts if part.group == "experts"]
    return Outline(
        all_reduces=sum(layer.count * _row_cut_groups(layer) for layer in running),
        expert_layers=sum({layer.name: layer.count for layer, _ in moe}.values()),
        layers=sum(layer.count for layer in running),
        hidden=hidden,
        vocabulary=vocabulary,
        widest=max((part.cols for layer in running for part in layer.parts), default=0),
        experts=max((part.copies for _, part in moe), default=0),
        top_k=max((part.active for _, part in moe), default=0),
        recurrent_layers=sum(layer.count for layer in running if layer.recurrence),
    )
