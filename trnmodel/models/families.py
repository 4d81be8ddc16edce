"""Layers of the architectures: one function for each kind of public model family.

What the code of an architecture fixes is written here; what a file says is read from the file; what a file leaves
out comes from `data/models/defaults.csv`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trnmodel.models.blocks import (
    Attention,
    Layer,
    Mixer,
    Part,
    dense_ffn,
    grouped_attention,
    norms,
    token_table,
    vocabulary_head,
)
from trnmodel.models.config import (
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TABLE,
    MAX_TOKENS,
    POSITIONS,
    Fields,
)

SOFTMAX_TYPES = ("full_attention", "sliding_attention")
GENERATES = ("", "ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
CLASSIFIES = ("ForSequenceClassification",)
BARE = ("Model", "TextModel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A model as its file describes it, by the fields of a `Transformer`."""

    hidden_size: int
    vocab_size: int
    max_context: int
    layers: tuple[Layer, ...]
    outer: tuple[Part, ...]
    prediction: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Traits of a decoder that its files do not spell out; a text is the key that decides."""

    qkv_bias: bool | str = False
    out_bias: bool | str = False
    mlp_bias: bool | str = False
    head_bias: bool | str = False
    gated_mlp: bool = True
    four_wide: bool = False  # the feed-forward block where the file gives no width
    mlp_loose: int = 0
    layer_norm: bool = False
    norms: int = 2
    qk_norm: str = ""  # "head", "width", "layer" (LayerNorm of a head), "heads" (one norm for each head)
    qk_norm_if: str = ""
    window: str = ""  # "all", "tail" (from max_window_layers on), "pattern"
    window_if: str = ""
    sinks: bool = False
    out_gate: bool = False
    positions: int | None = None  # rows of learned positions beyond the longest context
    ffn: Callable[[Fields, int], Sequence[tuple[Part, ...]]] | None = None


def _says(f: Fields, trait: bool | str) -> bool:
    return f.flag(trait) if isinstance(trait, str) else trait


def hidden_size(f: Fields) -> int:
    """Width of the residual stream."""
    return f.integer(HIDDEN)


def layer_count(f: Fields) -> int:
    """Layers of the stack."""
    return f.integer(LAYERS, MAX_LAYERS)


def group_layers(layers: Sequence[tuple[Mixer | None, tuple[Part, ...], Part]]) -> tuple[Layer, ...]:
    """Layers that are alike, counted."""
    kinds = Counter(layers)
    return tuple(
        Layer(
            name=" + ".join(filter(None, [mixer.name if mixer else "", _ffn_name(ffn)])),
            count=count,
            parts=(*(mixer.parts if mixer else ()), *ffn, norm),
            attentions=mixer.attentions if mixer else (),
            recurrence=mixer.recurrence if mixer else None,
        )
        for (mixer, ffn, norm), count in kinds.items()
    )


def _ffn_name(ffn: tuple[Part, ...]) -> str:
    return "experts" if any(part.group == "experts" for part in ffn) else "dense" if ffn else ""


def head_counts(f: Fields, width_key: str = "head_dim") -> tuple[int, int, int]:
    """Query heads, KV heads and head width; heads must divide."""
    heads = f.integer(HEADS, MAX_HEADS)
    kv_heads = f.optional("num_key_value_heads", MAX_HEADS) or heads
    if heads % kv_heads:
        f.refuse("num_key_value_heads", f"must divide {f.name(HEADS)}={heads}", kv_heads)
    head_dim = f.optional(width_key)
    if head_dim is None and hidden_size(f) % heads:
        wanted = f"must be a multiple of {f.name(HEADS)}={heads} where {width_key.split('|')[0]} is absent"
        f.refuse(f.name(HIDDEN), wanted, hidden_size(f))
    return heads, kv_heads, head_dim or hidden_size(f) // heads


def layer_types(f: Fields, window: str) -> tuple[str, ...]:
    """Return the attention of every layer: as listed, else by the architecture's rule."""
    n = layer_count(f)
    listed = f.texts("layer_types", SOFTMAX_TYPES, n)
    if listed is not None:
        return listed
    sliding = f.optional("sliding_window", MAX_TOKENS) is not None
    if window == "all" and sliding:
        return ("sliding_attention",) * n
    if window == "tail" and sliding:
        first = f.integer("max_window_layers", MAX_LAYERS, 0)
        return tuple("sliding_attention" if i >= first else "full_attention" for i in range(n))
    if window == "pattern" and sliding:
        period = f.integer("sliding_window_pattern|global_attn_every_n_layers", MAX_LAYERS)
        return tuple("sliding_attention" if (i + 1) % period else "full_attention" for i in range(n))
    return ("full_attention",) * n


def attention_of(f: Fields, layer_type: str, heads: int, kv_heads: int, head_dim: int) -> Attention:
    """Attention of a layer type, with the window that the type asks for."""
    dims = {"heads": heads, "kv_heads": kv_heads, "qk_dim": head_dim, "v_dim": head_dim}
    if layer_type == "sliding_attention":
        return Attention(kind="sliding", window=f.integer("sliding_window", MAX_TOKENS), **dims)
    if layer_type == "chunked_attention":
        return Attention(kind="chunked", window=f.integer("attention_chunk_size", MAX_TOKENS), **dims)
    return Attention(kind="causal", **dims)


def outer_parts(f: Fields, norm: Part, *, head_bias: bool = False, width: int | None = None) -> tuple[Part, ...]:
    """Embedding, final norm and, where the class has one, the head."""
    vocabulary, width = f.integer("vocab_size", MAX_TABLE), width or hidden_size(f)
    if f.task not in (*GENERATES, *CLASSIFIES, *BARE):
        f.refuse("architectures", f"allowed endings are {[*filter(None, GENERATES), *CLASSIFIES, *BARE]}")
    tied = f.task in GENERATES and f.flag("tie_word_embeddings")
    table, head = token_table(vocabulary, width, tied), vocabulary_head(width, vocabulary, head_bias)
    if f.task in CLASSIFIES:
        head = Part(name="classifier", group="head", rows=width, cols=class_count(f), store="wide")
    return (table, norm) if f.task in BARE else (table, norm, head)


def class_count(f: Fields) -> int:
    """Classes of a classifier: as labelled, else as counted."""
    labels = f.raw("id2label")
    if labels is not None and not isinstance(labels, dict):
        f.refuse("id2label", "allowed is an object of labels")
    return len(labels) if labels else f.integer("num_labels", MAX_TABLE)


def learned_positions(f: Fields, beyond: int, width: int) -> Part:
    """Return a table of learned positions."""
    rows = f.integer(POSITIONS, MAX_TABLE) + beyond
    return Part(name="positions", group="embedding", rows=rows, cols=width, store="wide")


def qk_norm_params(kind: str, heads: int, kv_heads: int, head_dim: int) -> int:
    """Return the parameters of the norms on queries and keys of one layer."""
    return {
        "": 0,
        "head": 2 * head_dim,
        "layer": 4 * head_dim,
        "heads": (heads + kv_heads) * head_dim,
        "width": (heads + kv_heads) * head_dim,
    }[kind]


def decoder(f: Fields, traits: Decoder) -> Plan:
    """Return a decoder with softmax attention in every layer."""
    hidden, n = hidden_size(f), layer_count(f)
    heads, kv_heads, head_dim = head_counts(f)
    qk_norm = traits.qk_norm if not traits.qk_norm_if or f.flag(traits.qk_norm_if) else ""
    window = traits.window if not traits.window_if or f.flag(traits.window_if) else ""
    types = layer_types(f, window)
    loose = qk_norm_params(qk_norm, heads, kv_heads, head_dim) + heads * traits.sinks
    mixers = {
        kind: grouped_attention(
            hidden,
            attention_of(f, kind, heads, kv_heads, head_dim),
            qkv_bias=_says(f, traits.qkv_bias),
            out_bias=_says(f, traits.out_bias),
            loose=loose,
            gated=traits.out_gate,
        )
        for kind in set(types)
    }
    norm = norms(traits.norms, hidden, traits.layer_norm)
    ffns = traits.ffn(f, n) if traits.ffn else [dense_block(f, traits)] * n
    outer = outer_parts(f, norms(1, hidden, traits.layer_norm), head_bias=_says(f, traits.head_bias))
    if traits.positions is not None:
        outer = (learned_positions(f, traits.positions, hidden), *outer)
    return plan_of(f, [mixers[kind] for kind in types], ffns, norm, outer=outer, predicts=mixers[types[-1]])


def plan_of(
    f: Fields,
    mixers: Sequence[Mixer | None],
    ffns: Sequence[tuple[Part, ...]],
    norm: Part,
    *,
    outer: tuple[Part, ...] | None = None,
    predicts: Mixer | None = None,
) -> Plan:
    """Return a plan from the mixer and the feed-forward block of each layer.

    A checkpoint may have one more mixer, which `predicts` further tokens.
    """
    hidden = hidden_size(f)
    return Plan(
        hidden_size=hidden,
        vocab_size=f.integer("vocab_size", MAX_TABLE),
        max_context=f.optional(POSITIONS, MAX_TOKENS) or 0,
        layers=group_layers([(mixer, ffn, norm) for mixer, ffn in zip(mixers, ffns, strict=True)]),
        outer=outer_parts(f, norms(1, hidden)) if outer is None else outer,
        prediction=prediction_layers(f, predicts, ffns[-1], norm) if predicts else (),
    )


def dense_block(f: Fields, traits: Decoder, keys: str = INNER) -> tuple[Part, ...]:
    """Return the dense feed-forward block."""
    hidden = hidden_size(f)
    inner = f.optional(keys) if traits.four_wide else f.integer(keys)
    return dense_ffn(
        hidden, inner or 4 * hidden, gated=traits.gated_mlp, bias=_says(f, traits.mlp_bias), loose=traits.mlp_loose
    )


def prediction_layers(f: Fields, mixer: Mixer, ffn: tuple[Part, ...], norm: Part) -> tuple[Layer, ...]:
    """Return multi-token-prediction layers of a checkpoint, with their own embedding and head; the model is without."""
    depth = f.optional("num_nextn_predict_layers", MAX_LAYERS, 0) or 0
    if not depth:
        return ()
    hidden, vocabulary = hidden_size(f), f.integer("vocab_size", MAX_TABLE)
    own = (
        token_table(vocabulary, hidden),
        Part(name="merge", group="ffn", rows=2 * hidden, cols=hidden, store="wide", shard="columns"),
        vocabulary_head(hidden, vocabulary),
        norms(3, hidden),
    )
    return (
        Layer(
            name="multi-token prediction",
            count=depth,
            parts=(*own, *mixer.parts, *ffn, norm),
            attentions=mixer.attentions,
        ),
    )
