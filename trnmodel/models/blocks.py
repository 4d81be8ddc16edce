"""What a layer is made of: matrices with their parameters, attention over a cache, recurrence over a state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from numpy.typing import NDArray

from trnmodel.arguments import HUGE, flag, numbers, together
from trnmodel.formulas.step import attended_pairs, cached_tokens, visible_tokens
from trnmodel.units import Numeric

Group = Literal["embedding", "mixer", "ffn", "experts", "router", "norm", "head"]
Store = Literal["weights", "experts", "wide"]
Shard = Literal["heads", "kv_heads", "columns", "rows", "experts", "vocabulary", "none"]
Phase = Literal["prefill", "decode"]

FLOP_PER_MAC = 2
FARTHEST = HUGE**2  # tokens of a batch, of which each may have as many as an argument may say
STATE_MACS = {
    "mamba": 2,  # of each element: h = a h + b x, y = c h
    "mamba2": 2,
    "gated-delta": 3,  # S k, the rank-one update, S q
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A matrix that tokens are multiplied with (or rows that they look up), and its loose parameters.

    `copies` matrices are alike, of which a token uses `active` (experts). `extra` counts parameters per copy without
    a multiplication: biases, norms, positions. `store` says which dtype of a precision holds the matrix; loose
    parameters are always wide. `shard` says what tensor parallelism may cut. A `shared` matrix is stored elsewhere.
    """

    name: str
    group: Group
    rows: int = 0
    cols: int = 0
    copies: int = 1
    active: int = 1
    extra: int = 0
    store: Store = "weights"
    shard: Shard = "none"
    shared: bool = False
    phases: tuple[Phase, ...] = ("prefill", "decode")

    @property
    def lookup(self) -> bool:
        """Whether rows are read instead of multiplied."""
        return self.group == "embedding"

    @property
    def matrix_params(self) -> int:
        """Parameters of all copies that this part stores, loose ones aside."""
        return 0 if self.shared else self.copies * self.rows * self.cols

    @property
    def params(self) -> int:
        """Parameters of all copies that this part stores."""
        return self.matrix_params + self.copies * self.extra

    @property
    def active_params(self) -> int:
        """Parameters that one token uses."""
        return self.active * ((0 if self.shared else self.rows * self.cols) + self.extra)

    @property
    def flop_per_token(self) -> int:
        """Work of one token [FLOP]."""
        return 0 if self.lookup else FLOP_PER_MAC * self.active * self.rows * self.cols


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention of one layer: which tokens see which, by how many heads, and what stays in the cache.

    With a latent (MLA) the cache holds `latent_dim` elements a token, of which `latent_value_dim` are the value; decode
    works on them directly (absorbed), prefill expands them to heads. Sparse attention reads `window` selected tokens
    of a cache that keeps all.
    """

    kind: Literal["causal", "sliding", "chunked", "sparse", "bidirectional", "cross"]
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    window: int = 0
    latent_dim: int = 0
    latent_value_dim: int = 0

    @property
    def cached_elements(self) -> int:
        """Elements that one token leaves in the cache."""
        if self.kind == "bidirectional":
            return 0
        return self.latent_dim or self.kv_heads * (self.qk_dim + self.v_dim)

    def flop_per_pair(self, absorbed: bool) -> int:
        """Return the work of one query with one key and value, over all heads [FLOP]."""
        dims = (
            self.latent_dim + self.latent_value_dim
            if flag("absorbed", absorbed) and self.latent_dim
            else self.qk_dim + self.v_dim
        )
        return FLOP_PER_MAC * self.heads * dims

    def visible(self, context: Numeric) -> NDArray:
        """Return the cached tokens that a query at the end of `context` tokens needs."""
        return visible_tokens(numbers("context", context, high=FARTHEST), self.window, self.kind)

    def cached_tokens(self, context: Numeric) -> NDArray:
        """Return the most cached tokens that a sequence needs at once until it has `context` tokens."""
        return cached_tokens(numbers("context", context, high=FARTHEST), self.window, self.kind)

    def pairs(self, tokens: Numeric, past: Numeric, causal: bool) -> NDArray:
        """Return the query-key pairs of `tokens` new tokens after `past` cached ones; all of them where not causal."""
        tokens, past = numbers("tokens", tokens, high=FARTHEST), numbers("past", past)
        together(tokens=tokens, past=past)
        return attended_pairs(tokens, past, self.window, self.kind, flag("causal", causal))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A state of fixed size that every token updates and reads (Mamba, gated delta rule)."""

    kind: Literal["mamba", "mamba2", "gated-delta"]
    heads: int
    state_elements: int
    conv_elements: int

    @property
    def flop_per_token(self) -> int:
        """Multiply-accumulates on the state, step by step; decays and gates are elementwise and left out [FLOP]."""
        return FLOP_PER_MAC * STATE_MACS[self.kind] * self.state_elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A kind of layer and how often it runs; `stored` is smaller than `count` where layers share weights."""

    name: str
    count: int = 1
    stored: int = 0
    parts: tuple[Part, ...]
    attentions: tuple[Attention, ...] = ()
    recurrence: Recurrence | None = None
    phases: tuple[Phase, ...] = ("prefill", "decode")

    @property
    def params(self) -> int:
        """Parameters of all layers of this kind."""
        return (self.stored or self.count) * sum(part.params for part in self.parts)


@dataclass(frozen=True, slots=True)
class Mixer:
    """The first half of a layer: parts, and attention or recurrence; an indexer selects what attention sees."""

    name: str
    parts: tuple[Part, ...]
    attention: Attention | None = None
    recurrence: Recurrence | None = None
    indexer: Attention | None = None

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """What the layer keeps in caches."""
        return tuple(a for a in (self.attention, self.indexer) if a)


def token_table(vocabulary: int, width: int, shared: bool = False) -> Part:
    """Return the table of rows that tokens look up; it is `shared` where the head stores it."""
    table = Part(name="embedding", group="embedding", rows=vocabulary, cols=width, store="wide", shard="vocabulary")
    return replace(table, shared=shared)


def vocabulary_head(width: int, vocabulary: int, biases: int = 0) -> Part:
    """Return the matrix from a row to its logits, each of which has a number of `biases`."""
    head = Part(name="head", group="head", rows=width, cols=vocabulary, store="wide", shard="vocabulary")
    return replace(head, extra=vocabulary * biases)


def norms(count: int, width: int, bias: bool = False) -> Part:
    """`count` norms over a width; LayerNorm has a bias, RMSNorm none."""
    return Part(name="norms", group="norm", extra=count * width * (2 if bias else 1), store="wide")


def grouped_attention(
    hidden: int,
    attention: Attention,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    loose: int = 0,
    gated: bool = False,
    value_is_key: bool = False,
) -> Mixer:
    """Multi-head, grouped-query or multi-query attention; `loose` counts qk-norms, sinks and the like."""
    a = attention
    q_cols = a.heads * a.qk_dim
    kv_cols = a.kv_heads * (a.qk_dim + (0 if value_is_key else a.v_dim))
    out_rows = a.heads * a.v_dim
    parts = [
        Part(name="q", group="mixer", rows=hidden, cols=q_cols, extra=q_cols * qkv_bias + loose, shard="heads"),
        Part(name="kv", group="mixer", rows=hidden, cols=kv_cols, extra=kv_cols * qkv_bias, shard="kv_heads"),
        Part(name="o", group="mixer", rows=out_rows, cols=hidden, extra=hidden * out_bias, shard="rows"),
    ]
    if gated:
        parts.append(
            Part(name="gate", group="mixer", rows=hidden, cols=out_rows, extra=out_rows * qkv_bias, shard="heads")
        )
    window = f" {a.window}" if a.window else ""
    return Mixer(f"{a.kind}{window} attention", tuple(parts), a)


def latent_attention(
    hidden: int, heads: int, q_rank: int | None, kv_rank: int, nope_dim: int, rope_dim: int, v_dim: int, bias: bool
) -> Mixer:
    """Multi-head latent attention (MLA); its cache is one latent and one rotary key a token for all heads."""
    q_cols, kv_cols = heads * (nope_dim + rope_dim), heads * (nope_dim + v_dim)
    down = kv_rank + rope_dim
    query: tuple[Part, ...]
    if q_rank is None:
        query = (Part(name="q", group="mixer", rows=hidden, cols=q_cols, shard="heads"),)
    else:
        query = (
            Part(name="q_down", group="mixer", rows=hidden, cols=q_rank, extra=q_rank * (1 + bias)),
            Part(name="q_up", group="mixer", rows=q_rank, cols=q_cols, shard="heads"),
        )
    parts = (
        *query,
        Part(name="kv_down", group="mixer", rows=hidden, cols=down, extra=down * bias + kv_rank),
        Part(name="kv_up", group="mixer", rows=kv_rank, cols=kv_cols, shard="heads"),
        Part(name="o", group="mixer", rows=heads * v_dim, cols=hidden, extra=hidden * bias, shard="rows"),
    )
    attention = Attention(
        kind="causal",
        heads=heads,
        kv_heads=heads,
        qk_dim=nope_dim + rope_dim,
        v_dim=v_dim,
        latent_dim=down,
        latent_value_dim=kv_rank,
    )
    return Mixer("latent attention", parts, attention)


def _convolution(kernel: int, channels: int, bias: bool) -> Part:
    return Part(
        name="conv", group="mixer", rows=kernel, cols=channels, extra=channels * bias, store="wide", shard="heads"
    )


def mamba(hidden: int, inner: int, state: int, rank: int, kernel: int, conv_bias: bool, proj_bias: bool) -> Mixer:
    """Mamba's selective state space as Jamba has it, with norms on dt, B and C."""
    parts = (
        Part(name="in", group="mixer", rows=hidden, cols=2 * inner, extra=2 * inner * proj_bias, shard="columns"),
        _convolution(kernel, inner, conv_bias),
        Part(name="x", group="mixer", rows=inner, cols=rank + 2 * state, extra=rank + 2 * state, shard="rows"),
        Part(name="dt", group="mixer", rows=rank, cols=inner, extra=inner, shard="columns"),
        Part(name="state", group="mixer", extra=inner * state + inner, store="wide", shard="heads"),
        Part(name="out", group="mixer", rows=inner, cols=hidden, extra=hidden * proj_bias, shard="rows"),
    )
    recurrence = Recurrence(kind="mamba", heads=inner, state_elements=inner * state, conv_elements=inner * (kernel - 1))
    return Mixer("mamba", parts, None, recurrence)


def mamba2(
    hidden: int, heads: int, head_dim: int, groups: int, state: int, kernel: int, conv_bias: bool, bias: bool
) -> Mixer:
    """Mamba-2's state space with a gated norm."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    cols = inner + channels + heads
    parts = (
        Part(name="in", group="mixer", rows=hidden, cols=cols, extra=cols * bias, shard="columns"),
        _convolution(kernel, channels, conv_bias),
        Part(name="state", group="mixer", extra=3 * heads + inner, store="wide", shard="heads"),
        Part(name="out", group="mixer", rows=inner, cols=hidden, extra=hidden * bias, shard="rows"),
    )
    tail = channels * (kernel - 1)
    recurrence = Recurrence(kind="mamba2", heads=heads, state_elements=inner * state, conv_elements=tail)
    return Mixer("mamba2", parts, None, recurrence)


def gated_delta(hidden: int, k_heads: int, k_dim: int, v_heads: int, v_dim: int, kernel: int) -> Mixer:
    """Gated delta rule, the linear attention of Qwen3-Next."""
    keys, values = k_heads * k_dim, v_heads * v_dim
    channels = 2 * keys + values
    parts = (
        Part(name="qkvz", group="mixer", rows=hidden, cols=channels + values, shard="columns"),
        Part(name="ba", group="mixer", rows=hidden, cols=2 * v_heads, shard="columns"),
        _convolution(kernel, channels, False),
        Part(name="state", group="mixer", extra=2 * v_heads + v_dim, store="wide", shard="heads"),
        Part(name="out", group="mixer", rows=values, cols=hidden, shard="rows"),
    )
    tail = channels * (kernel - 1)
    recurrence = Recurrence(kind="gated-delta", heads=v_heads, state_elements=values * k_dim, conv_elements=tail)
    return Mixer("gated delta rule", parts, None, recurrence)


def dense_ffn(
    hidden: int, inner: int, *, gated: bool, bias: bool = False, loose: int = 0, name: str = ""
) -> tuple[Part, ...]:
    """Return a feed-forward block of two matrices, or of three where gated."""
    up_cols = inner * (2 if gated else 1)
    return (
        Part(name=f"{name}up", group="ffn", rows=hidden, cols=up_cols, extra=up_cols * bias + loose, shard="columns"),
        Part(name=f"{name}down", group="ffn", rows=inner, cols=hidden, extra=hidden * bias, shard="rows"),
    )


def expert_ffn(
    hidden: int,
    inner: int,
    experts: int,
    top_k: int,
    *,
    gated: bool = True,
    bias: bool = False,
    correction: bool = False,
    shared_inner: int = 0,
    shared_gate: bool = False,
    latent: int | None = None,
    shared_bias: bool = False,
) -> tuple[Part, ...]:
    """Return a router, `experts` feed-forward blocks of which a token uses `top_k`, and a shared block."""
    width = latent or hidden
    routed = [
        replace(part, name=f"expert_{part.name}", group="experts", copies=experts, active=top_k, store="experts")
        for part in dense_ffn(width, inner, gated=gated, bias=bias)
    ]
    router = Part(
        name="router", group="router", rows=hidden, cols=experts, extra=experts * (bias + correction), store="wide"
    )
    parts = [router, *(replace(part, shard="experts") for part in routed)]
    if latent:
        parts.append(Part(name="latent_in", group="ffn", rows=hidden, cols=latent, extra=latent * shared_bias))
        parts.append(Part(name="latent_out", group="ffn", rows=latent, cols=hidden, extra=hidden * shared_bias))
    if shared_inner:
        parts.extend(dense_ffn(hidden, shared_inner, gated=gated, bias=shared_bias, name="shared_"))
    if shared_gate:
        parts.append(Part(name="shared_gate", group="router", rows=hidden, cols=1, store="wide"))
    return tuple(parts)
