"""Which layers an architecture has: one function for each way in which public model families are built.

What the code of an architecture fixes is written here; what a file says is read from the file; what a file leaves
out comes from `data/models/defaults.csv`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from trnmodel.workloads.blocks import (
    Attention,
    Layer,
    Mixer,
    Part,
    dense_ffn,
    expert_ffn,
    gated_delta,
    grouped_attention,
    latent_attention,
    mamba,
    mamba2,
    norms,
)
from trnmodel.workloads.config import (
    EXPERTS,
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    MAX_EXPERTS,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TABLE,
    MAX_TOKENS,
    POSITIONS,
    TOP_K,
    Fields,
)

LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")
GENERATES = ("", "ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
CLASSIFIES = ("ForSequenceClassification",)
BARE = ("Model", "TextModel")
SINGLE_BLOCKS = {
    "M": "linear_attention",
    "*": "full_attention",
    "-": "mlp",
    "E": "moe",
    "mamba": "linear_attention",
    "attention": "full_attention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A model as its file describes it: kinds of layers, and the parts outside of them."""

    hidden: int
    vocabulary: int
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


def _hidden(f: Fields) -> int:
    return f.integer(HIDDEN)


def _layer_count(f: Fields) -> int:
    return f.integer(LAYERS, MAX_LAYERS)


def _group(layers: Sequence[tuple[Mixer | None, tuple[Part, ...], Part]]) -> tuple[Layer, ...]:
    """Layers that are alike, counted."""
    kinds = Counter(layers)
    return tuple(
        Layer(
            name=" + ".join(filter(None, [mixer.name if mixer else "", _ffn_name(ffn)])),
            count=count,
            parts=(*(mixer.parts if mixer else ()), *ffn, norm),
            attentions=(mixer.attention,) if mixer and mixer.attention else (),
            recurrence=mixer.recurrence if mixer else None,
        )
        for (mixer, ffn, norm), count in kinds.items()
    )


def _ffn_name(ffn: tuple[Part, ...]) -> str:
    return "experts" if any(part.group == "experts" for part in ffn) else "dense" if ffn else ""


def _heads(f: Fields, width_key: str = "head_dim") -> tuple[int, int, int]:
    """Query heads, KV heads and head width; heads must divide."""
    heads = f.integer(HEADS, MAX_HEADS)
    kv_heads = f.optional("num_key_value_heads", MAX_HEADS) or heads
    if heads % kv_heads:
        f.refuse("num_key_value_heads", f"must divide num_attention_heads={heads}", kv_heads)
    head_dim = f.optional(width_key)
    if head_dim is None and _hidden(f) % heads:
        f.refuse("hidden_size", f"must be a multiple of num_attention_heads={heads} where head_dim is absent", _hidden(f))
    return heads, kv_heads, head_dim or _hidden(f) // heads


def _layer_types(f: Fields, window: str) -> tuple[str, ...]:
    """The attention of every layer: as listed, else by the architecture's rule."""
    n = _layer_count(f)
    listed = f.words("layer_types", LAYER_TYPES, n)
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


def _attention(f: Fields, layer_type: str, heads: int, kv_heads: int, head_dim: int) -> Attention:
    dims = {"heads": heads, "kv_heads": kv_heads, "qk_dim": head_dim, "v_dim": head_dim}
    if layer_type == "sliding_attention":
        return Attention(kind="sliding", window=f.integer("sliding_window", MAX_TOKENS), **dims)
    if layer_type == "chunked_attention":
        return Attention(kind="chunked", window=f.integer("attention_chunk_size", MAX_TOKENS), **dims)
    return Attention(kind="causal", **dims)


def _outer(f: Fields, norm: Part, *, head_bias: bool = False, width: int | None = None) -> tuple[Part, ...]:
    """Embedding, final norm and, where the class has one, the head."""
    vocabulary, width = f.integer("vocab_size", MAX_TABLE), width or _hidden(f)
    if f.task not in (*GENERATES, *CLASSIFIES, *BARE):
        f.refuse("architectures", f"allowed endings are {[*filter(None, GENERATES), *CLASSIFIES, *BARE]}")
    tied = f.task in GENERATES and f.flag("tie_word_embeddings")
    table = Part(
        name="embedding", group="embedding", rows=vocabulary, cols=width, store="wide", shard="vocabulary", shared=tied
    )
    head = Part(
        name="head",
        group="head",
        rows=width,
        cols=vocabulary,
        extra=vocabulary * head_bias,
        store="wide",
        shard="vocabulary",
    )
    if f.task in CLASSIFIES:
        head = Part(name="classifier", group="head", rows=width, cols=class_count(f), store="wide")
    return (table, norm) if f.task in BARE else (table, norm, head)


def class_count(f: Fields) -> int:
    """Classes of a classifier: as labelled, else as counted."""
    labels = f.raw("id2label")
    return len(labels) if isinstance(labels, dict) and labels else f.integer("num_labels", MAX_TABLE)


def _learned_positions(f: Fields, beyond: int, width: int) -> Part:
    rows = f.integer(POSITIONS, MAX_TABLE) + beyond
    return Part(name="positions", group="embedding", rows=rows, cols=width, store="wide")


def _qk_norm(kind: str, heads: int, kv_heads: int, head_dim: int) -> int:
    return {
        "": 0,
        "head": 2 * head_dim,
        "layer": 4 * head_dim,
        "heads": (heads + kv_heads) * head_dim,
        "width": (heads + kv_heads) * head_dim,
    }[kind]


def decoder(f: Fields, traits: Decoder) -> Plan:
    """A decoder with softmax attention in every layer."""
    hidden, n = _hidden(f), _layer_count(f)
    heads, kv_heads, head_dim = _heads(f)
    qk_norm = traits.qk_norm if not traits.qk_norm_if or f.flag(traits.qk_norm_if) else ""
    window = traits.window if not traits.window_if or f.flag(traits.window_if) else ""
    types = _layer_types(f, window)
    loose = _qk_norm(qk_norm, heads, kv_heads, head_dim) + heads * traits.sinks
    mixers = {
        kind: grouped_attention(
            hidden,
            _attention(f, kind, heads, kv_heads, head_dim),
            qkv_bias=_says(f, traits.qkv_bias),
            out_bias=_says(f, traits.out_bias),
            loose=loose,
            gated=traits.out_gate,
        )
        for kind in set(types)
    }
    norm = norms(traits.norms, hidden, traits.layer_norm)
    ffns = traits.ffn(f, n) if traits.ffn else [_dense(f, traits)] * n
    outer = _outer(f, norms(1, hidden, traits.layer_norm), head_bias=_says(f, traits.head_bias))
    if traits.positions is not None:
        outer = (_learned_positions(f, traits.positions, hidden), *outer)
    layers = _group([(mixers[kind], ffn, norm) for kind, ffn in zip(types, ffns, strict=True)])
    return _plan(f, layers, outer, _prediction(f, mixers, ffns[-1], norm))


def _plan(f: Fields, layers: tuple[Layer, ...], outer: tuple[Part, ...], prediction: tuple[Layer, ...] = ()) -> Plan:
    return Plan(
        hidden=_hidden(f),
        vocabulary=f.integer("vocab_size", MAX_TABLE),
        max_context=f.optional(POSITIONS, MAX_TOKENS) or 0,
        layers=layers,
        outer=outer,
        prediction=prediction,
    )


def _dense(f: Fields, traits: Decoder, keys: str = INNER) -> tuple[Part, ...]:
    inner = f.optional(keys) or 4 * _hidden(f)
    return dense_ffn(
        _hidden(f), inner, gated=traits.gated_mlp, bias=_says(f, traits.mlp_bias), loose=traits.mlp_loose
    )


def _prediction(f: Fields, mixers: dict[str, Mixer], ffn: tuple[Part, ...], norm: Part) -> tuple[Layer, ...]:
    """Multi-token-prediction layers of a checkpoint, with their own embedding and head; no part of the model proper."""
    depth = f.optional("num_nextn_predict_layers", MAX_LAYERS, 0) or 0
    if not depth:
        return ()
    hidden, vocabulary = _hidden(f), f.integer("vocab_size", MAX_TABLE)
    mixer = next(iter(mixers.values()))
    own = (
        Part(name="embedding", group="embedding", rows=vocabulary, cols=hidden, store="wide", shard="vocabulary"),
        Part(name="merge", group="ffn", rows=2 * hidden, cols=hidden, store="wide", shard="columns"),
        Part(name="head", group="head", rows=hidden, cols=vocabulary, store="wide", shard="vocabulary"),
        norms(3, hidden),
    )
    return (
        Layer(
            name="multi-token prediction",
            count=depth,
            parts=(*own, *mixer.parts, *ffn, norm),
            attentions=(mixer.attention,) if mixer.attention else (),
        ),
    )


def _experts(f: Fields) -> tuple[int, int]:
    """Experts and how many of them a token uses."""
    experts, top_k = f.integer(EXPERTS, MAX_EXPERTS), f.integer(TOP_K, MAX_EXPERTS)
    if top_k > experts:
        f.refuse("num_experts_per_tok", f"more than the {experts} experts there are", top_k)
    return experts, top_k


def _every_layer_experts(f: Fields, n: int, bias: bool = False) -> list[tuple[Part, ...]]:
    experts, top_k = _experts(f)
    return [expert_ffn(_hidden(f), f.integer(INNER), experts, top_k, bias=bias)] * n


def _qwen_experts(f: Fields, n: int) -> list[tuple[Part, ...]]:
    experts, top_k = _experts(f)
    shared = f.optional("shared_expert_intermediate_size", low=0) or 0
    sparse = expert_ffn(
        _hidden(f), f.integer("moe_intermediate_size"), experts, top_k, shared_inner=shared, shared_gate=bool(shared)
    )
    dense_only = f.layer_numbers("mlp_only_layers", n) or frozenset()
    step = f.optional("decoder_sparse_step", MAX_LAYERS) or 1
    chosen = [i not in dense_only and (i + 1) % step == 0 for i in range(n)]
    dense = () if all(chosen) else _dense(f, Decoder())
    return [sparse if is_sparse else dense for is_sparse in chosen]


def _leading_dense_experts(f: Fields, n: int, correction: bool = False) -> list[tuple[Part, ...]]:
    experts, top_k = _experts(f)
    inner = f.integer("moe_intermediate_size")
    shared = inner * (f.optional("n_shared_experts|num_shared_experts", MAX_EXPERTS, 0) or 0)
    sparse = expert_ffn(_hidden(f), inner, experts, top_k, correction=correction, shared_inner=shared)
    first = f.integer("first_k_dense_replace|num_dense_layers", MAX_LAYERS, 0)
    if first > n:
        f.refuse("first_k_dense_replace", f"more than the {n} layers there are", first)
    step = f.optional("moe_layer_freq", MAX_LAYERS) or 1
    rule = ["sparse" if i >= first and i % step == 0 else "dense" for i in range(n)]
    types = f.words("mlp_layer_types", ("dense", "sparse"), n) or rule
    dense = _dense(f, Decoder(mlp_bias="mlp_bias")) if "dense" in types else ()
    return [sparse if kind == "sparse" else dense for kind in types]


def _llama4_experts(f: Fields, n: int) -> list[tuple[Part, ...]]:
    experts, top_k = _experts(f)
    inner = f.integer("intermediate_size")
    sparse = expert_ffn(_hidden(f), inner, experts, top_k, shared_inner=inner)
    step = f.integer("interleave_moe_layer_step", MAX_LAYERS)
    listed = f.layer_numbers("moe_layers", n)
    chosen = frozenset(range(step - 1, n, step)) if listed is None else listed
    dense = _dense(f, Decoder(), "intermediate_size_mlp")
    return [sparse if i in chosen else dense for i in range(n)]


def llama4(f: Fields) -> Plan:
    """Llama 4: chunks with rotary positions, full attention without them."""
    n = _layer_count(f)
    heads, kv_heads, head_dim = _heads(f)
    rotary = f.raw("no_rope_layers") or []
    step = f.integer("no_rope_layer_interval", MAX_LAYERS)
    marks = rotary if isinstance(rotary, list) and len(rotary) == n else [int((i + 1) % step != 0) for i in range(n)]
    if rotary and marks is not rotary:
        f.refuse("no_rope_layers", f"allowed is a list of {n} marks")
    rule = tuple("chunked_attention" if mark else "full_attention" for mark in marks)
    types = f.words("layer_types", LAYER_TYPES, n) or rule
    bias = f.flag("attention_bias")
    mixers = {
        kind: grouped_attention(
            _hidden(f), _attention(f, kind, heads, kv_heads, head_dim), qkv_bias=bias, out_bias=bias
        )
        for kind in set(types)
    }
    norm = norms(2, _hidden(f))
    layers = _group([(mixers[kind], ffn, norm) for kind, ffn in zip(types, _llama4_experts(f, n), strict=True)])
    return _plan(f, layers, _outer(f, norms(1, _hidden(f))))


def deepseek(f: Fields) -> Plan:
    """DeepSeek V2, V3, R1 and Kimi-K2: latent attention, shared experts, dense layers first."""
    hidden, n = _hidden(f), _layer_count(f)
    mixer = latent_attention(
        hidden,
        f.integer(HEADS, MAX_HEADS),
        f.optional("q_lora_rank"),
        f.integer("kv_lora_rank"),
        f.integer("qk_nope_head_dim"),
        f.integer("qk_rope_head_dim"),
        f.integer("v_head_dim"),
        f.flag("attention_bias"),
    )
    norm = norms(2, hidden)
    ffns = _leading_dense_experts(f, n)
    layers = _group([(mixer, ffn, norm) for ffn in ffns])
    return _plan(f, layers, _outer(f, norms(1, hidden)), _prediction(f, {"": mixer}, ffns[-1], norm))


def linear_hybrid(f: Fields, ffn: Callable[[Fields, int], Sequence[tuple[Part, ...]]] | None = None) -> Plan:
    """Qwen3-Next and Qwen3.5: gated delta rule with gated attention every few layers."""
    hidden, n = _hidden(f), _layer_count(f)
    heads, kv_heads, head_dim = _heads(f)
    period = f.integer("full_attention_interval", MAX_LAYERS)
    rule = tuple("linear_attention" if (i + 1) % period else "full_attention" for i in range(n))
    types = f.words("layer_types", LAYER_TYPES, n) or rule
    bias = f.flag("attention_bias")
    softmax = grouped_attention(
        hidden,
        _attention(f, "full_attention", heads, kv_heads, head_dim),
        qkv_bias=bias,
        out_bias=bias,
        loose=_qk_norm("head", heads, kv_heads, head_dim),
        gated=True,
    )
    linear = gated_delta(
        hidden,
        f.integer("linear_num_key_heads", MAX_HEADS),
        f.integer("linear_key_head_dim"),
        f.integer("linear_num_value_heads", MAX_HEADS),
        f.integer("linear_value_head_dim"),
        f.integer("linear_conv_kernel_dim"),
    )
    norm = norms(2, hidden)
    ffns = ffn(f, n) if ffn else [_dense(f, Decoder())] * n
    mixers = [linear if kind == "linear_attention" else softmax for kind in types]
    return _plan(f, _group(list(zip(mixers, ffns, [norm] * n, strict=True))), _outer(f, norms(1, hidden)))


def _periodic(f: Fields, period_key: str, offset_key: str, n: int) -> list[bool]:
    period, offset = f.integer(period_key, MAX_LAYERS), f.integer(offset_key, MAX_LAYERS, 0)
    if offset >= period:
        f.refuse(offset_key, f"must be smaller than {period_key}={period}", offset)
    return [i % period == offset for i in range(n)]


def jamba(f: Fields) -> Plan:
    """Jamba: Mamba layers with attention and experts at periods of their own."""
    hidden, n = _hidden(f), _layer_count(f)
    softmax = grouped_attention(hidden, _attention(f, "full_attention", *_heads(f)))
    rank = -(-hidden // 16) if f.raw("mamba_dt_rank") == "auto" else f.integer("mamba_dt_rank")
    recurrent = mamba(
        hidden,
        f.integer("mamba_expand") * hidden,
        f.integer("mamba_d_state"),
        rank,
        f.integer("mamba_d_conv"),
        f.flag("mamba_conv_bias"),
        f.flag("mamba_proj_bias"),
    )
    experts, top_k = _experts(f)
    inner = f.integer(INNER)
    dense = dense_ffn(hidden, inner, gated=True)
    sparse = expert_ffn(hidden, inner, experts, top_k) if experts > 1 else dense
    norm = norms(2, hidden)
    attends = _periodic(f, "attn_layer_period", "attn_layer_offset", n)
    routes = _periodic(f, "expert_layer_period", "expert_layer_offset", n)
    layers = [
        (softmax if attend else recurrent, sparse if route else dense, norm)
        for attend, route in zip(attends, routes, strict=True)
    ]
    return _plan(f, _group(layers), _outer(f, norms(1, hidden)))


def _block_pattern(f: Fields) -> list[str]:
    """The single block of each layer, from a list of words or a pattern of letters."""
    n = f.optional(LAYERS, MAX_LAYERS)
    listed = f.raw("layers_block_type|layer_types")
    pattern = listed if listed is not None else f.raw("hybrid_override_pattern")
    key = "layers_block_type" if listed is not None else "hybrid_override_pattern"
    blocks = [SINGLE_BLOCKS.get(str(block), block) for block in pattern] if isinstance(pattern, (list, str)) else []
    if not blocks or not set(map(str, blocks)) <= set(SINGLE_BLOCKS.values()):
        f.refuse(key, f"allowed are {sorted(set(SINGLE_BLOCKS.values()))} or the letters M * - E", pattern)
    if len(blocks) > MAX_LAYERS or (n is not None and n != len(blocks)):
        f.refuse(key, f"has {len(blocks)} entries for num_hidden_layers={n}", pattern)
    return blocks


def nemotron_h(f: Fields) -> Plan:
    """Nemotron-H: one block a layer, Mamba-2 or attention or feed-forward or experts."""
    hidden = _hidden(f)
    blocks = _block_pattern(f)
    build: dict[str, Callable[[], tuple[Mixer | None, tuple[Part, ...], Part]]] = {
        "linear_attention": lambda: (_nemotron_mamba(f), (), norms(1, hidden)),
        "full_attention": lambda: (
            grouped_attention(hidden, _attention(f, "full_attention", *_heads(f, "head_dim|attention_head_dim"))),
            (),
            norms(1, hidden),
        ),
        "mlp": lambda: (None, _dense(f, Decoder(gated_mlp=False, mlp_bias="mlp_bias")), norms(1, hidden)),
        "moe": lambda: (None, _nemotron_experts(f), norms(1, hidden)),
    }
    made = {block: build[block]() for block in set(blocks)}
    return _plan(f, _group([made[block] for block in blocks]), _outer(f, norms(1, hidden)))


def _nemotron_mamba(f: Fields) -> Mixer:
    return mamba2(
        _hidden(f),
        f.integer("mamba_num_heads", MAX_HEADS),
        f.integer("mamba_head_dim"),
        f.integer("n_groups|mamba_n_groups"),
        f.integer("ssm_state_size"),
        f.integer("conv_kernel|mamba_d_conv"),
        f.flag("use_conv_bias|mamba_conv_bias"),
        f.flag("use_bias"),
    )


def _nemotron_experts(f: Fields) -> tuple[Part, ...]:
    experts, top_k = _experts(f)
    return expert_ffn(
        _hidden(f),
        f.integer("moe_intermediate_size"),
        experts,
        top_k,
        gated=False,
        shared_inner=f.integer("moe_shared_expert_intermediate_size"),
        latent=f.optional("moe_latent_size"),
        shared_bias=f.flag("mlp_bias"),
    )


def opt(f: Fields) -> Plan:
    """OPT: learned positions, projections where the embedding is narrower than the model."""
    hidden, n = _hidden(f), _layer_count(f)
    heads, _, head_dim = _heads(f)
    bias, affine = f.flag("enable_bias"), f.flag("layer_norm_elementwise_affine")
    mixer = grouped_attention(
        hidden, _attention(f, "full_attention", heads, heads, head_dim), qkv_bias=bias, out_bias=bias
    )
    ffn = dense_ffn(hidden, f.integer("ffn_dim"), gated=False, bias=bias)
    norm = norms(2 if affine else 0, hidden, True)
    final = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm") and affine
    width = f.optional("word_embed_proj_dim") or hidden
    outer = _outer(f, norms(1 if final else 0, hidden, True), width=width)
    if width != hidden:
        outer = (
            *outer,
            Part(name="project_in", group="ffn", rows=width, cols=hidden),
            Part(name="project_out", group="head", rows=hidden, cols=width),
        )
    outer = (_learned_positions(f, 2, hidden), *outer)
    return _plan(f, _group([(mixer, ffn, norm)] * n), outer)


def multi_query_gpt(f: Fields) -> Plan:
    """GPT-BigCode: GPT-2 with one KV head."""
    kv_heads = 1 if f.flag("multi_query") else f.integer(HEADS, MAX_HEADS)
    return decoder(replace(f, values={**f.values, "num_key_value_heads": kv_heads}), GPT2)


LLAMA = Decoder(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")
PLAIN = Decoder(window="all")
GPT2 = Decoder(
    qkv_bias=True, out_bias=True, mlp_bias=True, gated_mlp=False, layer_norm=True, positions=0
)
GEMMA = Decoder(qkv_bias="attention_bias", out_bias="attention_bias")
QWEN3 = Decoder(
    qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", window="tail", window_if="use_sliding_window"
)

FAMILIES: dict[str, Callable[[Fields], Plan]] = {
    **{kind: partial(decoder, traits=LLAMA) for kind in ("llama", "granite", "smollm3")},
    "internlm3": partial(
        decoder,
        traits=Decoder(qkv_bias="qkv_bias|attention_bias", out_bias="bias|mlp_bias", mlp_bias="bias|mlp_bias"),
    ),
    **{kind: partial(decoder, traits=PLAIN) for kind in ("mistral", "ministral3", "phi3")},
    "mixtral": partial(decoder, traits=Decoder(window="all", ffn=_every_layer_experts)),
    "phimoe": partial(
        decoder,
        traits=Decoder(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            head_bias="lm_head_bias",
            layer_norm=True,
            window="all",
            ffn=_every_layer_experts,
        ),
    ),
    "qwen2": partial(decoder, traits=Decoder(qkv_bias=True, window="tail", window_if="use_sliding_window")),
    "qwen3": partial(decoder, traits=QWEN3),
    "qwen3_moe": partial(
        decoder,
        traits=Decoder(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            window="all",
            window_if="use_sliding_window",
            ffn=_qwen_experts,
        ),
    ),
    "qwen3_next": partial(linear_hybrid, ffn=_qwen_experts),
    "qwen3_5_text": linear_hybrid,
    "qwen3_5_moe_text": partial(linear_hybrid, ffn=_qwen_experts),
    "llama4_text": llama4,
    **{kind: deepseek for kind in ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite")},
    "gpt_oss": partial(
        decoder,
        traits=Decoder(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            window="pattern",
            sinks=True,
            ffn=partial(_every_layer_experts, bias=True),
        ),
    ),
    **{
        kind: partial(
            decoder,
            traits=Decoder(
                qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm", ffn=_leading_dense_experts
            ),
        )
        for kind in ("glm4_moe", "glm4v_moe_text")
    },
    "glm": partial(decoder, traits=Decoder(qkv_bias="attention_bias")),
    "glm4": partial(decoder, traits=Decoder(qkv_bias="attention_bias", norms=4)),
    "gemma": partial(decoder, traits=GEMMA),
    "gemma2": partial(
        decoder, traits=Decoder(qkv_bias="attention_bias", out_bias="attention_bias", norms=4, window="pattern")
    ),
    "gemma3_text": partial(
        decoder,
        traits=Decoder(
            qkv_bias="attention_bias", out_bias="attention_bias", norms=4, qk_norm="head", window="pattern"
        ),
    ),
    "vaultgemma": partial(
        decoder, traits=Decoder(qkv_bias="attention_bias", out_bias="attention_bias", window="pattern")
    ),
    "seed_oss": partial(
        decoder, traits=Decoder(qkv_bias="attention_bias", out_bias="attention_out_bias", mlp_bias="mlp_bias")
    ),
    "opt": opt,
    "gpt2": partial(decoder, traits=GPT2),
    "gpt_bigcode": multi_query_gpt,
    "gpt_neox": partial(
        decoder,
        traits=Decoder(
            qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias=True, gated_mlp=False, layer_norm=True
        ),
    ),
    "biogpt": partial(decoder, traits=Decoder(
        qkv_bias=True, out_bias=True, mlp_bias=True, gated_mlp=False, layer_norm=True, positions=2
    )),
    "xglm": partial(decoder, traits=Decoder(
        qkv_bias=True, out_bias=True, mlp_bias=True, gated_mlp=False, layer_norm=True
    )),
    "phi": partial(decoder, traits=Decoder(
        qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True, gated_mlp=False, layer_norm=True, norms=1,
        qk_norm="layer", qk_norm_if="qk_layernorm",
    )),
    "starcoder2": partial(decoder, traits=Decoder(
        qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", gated_mlp=False, layer_norm=True, window="all"
    )),
    "stablelm": partial(decoder, traits=Decoder(
        qkv_bias="use_qkv_bias", layer_norm=True, qk_norm="heads", qk_norm_if="qk_layernorm"
    )),
    "helium": partial(decoder, traits=Decoder(qkv_bias="attention_bias", mlp_bias="mlp_bias")),
    "ernie4_5": partial(decoder, traits=Decoder(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias")),
    "exaone4": partial(decoder, traits=Decoder(qk_norm="head", window="pattern")),
    "hunyuan_v1_dense": partial(decoder, traits=Decoder(
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head"
    )),
    "apertus": partial(decoder, traits=Decoder(
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", gated_mlp=False, mlp_loose=2
    )),
    "olmo2": partial(decoder, traits=Decoder(
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="width"
    )),
    "olmo3": partial(decoder, traits=Decoder(
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="width", window="pattern"
    )),
    "afmoe": partial(decoder, traits=Decoder(
        norms=4, qk_norm="head", window="pattern", out_gate=True, ffn=partial(_leading_dense_experts, correction=True)
    )),
    "jamba": jamba,
    "nemotron_h": nemotron_h,
}
