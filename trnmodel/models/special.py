"""Architectures with a plan of their own: latent attention, chunks, recurrence, single-block layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trnmodel.models.blocks import (
    Attention,
    Mixer,
    Part,
    dense_ffn,
    expert_ffn,
    gated_delta,
    grouped_attention,
    mamba,
    mamba2,
    norms,
)
from trnmodel.models.config import HEADS, INNER, LAYERS, MAX_HEADS, MAX_LAYERS, MAX_TOKENS, Fields
from trnmodel.models.experts import expert_counts, leading_dense_experts, llama4_experts
from trnmodel.models.families import (
    Decoder,
    Plan,
    attention_of,
    decoder,
    dense_block,
    head_counts,
    hidden_size,
    layer_count,
    layer_types,
    learned_positions,
    outer_parts,
    plan_of,
    qk_norm_params,
)
from trnmodel.models.sparse import latent

BLOCKS = "layers_block_type|layer_types"
SINGLE_BLOCKS = {
    "M": "linear_attention",
    "*": "full_attention",
    "-": "mlp",
    "E": "moe",
    "mamba": "linear_attention",
    "attention": "full_attention",
}
GPT2 = Decoder(
    qkv_bias=True, out_bias=True, mlp_bias=True, gated_mlp=False, four_wide=True, layer_norm=True, positions=0
)


def _rotary_marks(f: Fields, n: int) -> list[int]:
    """1 for each layer with rotary positions, 0 for each without."""
    step = f.integer("no_rope_layer_interval", MAX_LAYERS)
    if f.raw("no_rope_layers") in (None, []):
        return [int((i + 1) % step != 0) for i in range(n)]
    return _marks(f, "no_rope_layers", n)


def llama4(f: Fields) -> Plan:
    """Llama 4: chunks with rotary positions, full attention without them."""
    n = layer_count(f)
    heads, kv_heads, head_dim = head_counts(f)
    rule = tuple("chunked_attention" if mark else "full_attention" for mark in _rotary_marks(f, n))
    types = f.texts("layer_types", ("chunked_attention", "full_attention"), n) or rule
    bias = f.flag("attention_bias")
    mixers = {
        kind: grouped_attention(
            hidden_size(f), attention_of(f, kind, heads, kv_heads, head_dim), qkv_bias=bias, out_bias=bias
        )
        for kind in set(types)
    }
    return plan_of(f, [mixers[kind] for kind in types], llama4_experts(f, n), norms(2, hidden_size(f)))


def deepseek(f: Fields) -> Plan:
    """DeepSeek V2, V3, R1 and Kimi-K2: latent attention, shared experts, dense layers first."""
    mixer, n = latent(f), layer_count(f)
    return plan_of(f, [mixer] * n, leading_dense_experts(f, n), norms(2, hidden_size(f)), predicts=mixer)


def _marks(f: Fields, key: str, n: int) -> list[int]:
    """Return a list of 0 or 1 for each layer, which the file must have."""
    listed = f.raw(key)
    whole = isinstance(listed, list) and len(listed) == n
    if not whole or not all(type(mark) is int and mark in (0, 1) for mark in listed):
        f.refuse(key, f"allowed is a list of {n} times 0 or 1", listed)
    return listed


def _mimo_attention(f: Fields, slides: bool) -> Mixer:
    """Return the attention of a layer; a windowed one has its own heads and sinks, and keys wider than values."""
    own = "swa_" if slides else ""
    attention = Attention(
        kind="sliding" if slides else "causal",
        heads=f.integer(f"{own}num_attention_heads", MAX_HEADS),
        kv_heads=f.integer(f"{own}num_key_value_heads", MAX_HEADS),
        qk_dim=f.integer(f"{own}head_dim"),
        v_dim=f.integer(f"{own}v_head_dim"),
        window=f.integer("sliding_window", MAX_TOKENS) if slides else 0,
    )
    sinks = f.flag("add_swa_attention_sink_bias" if slides else "add_full_attention_sink_bias")
    bias = f.flag("attention_bias")
    return grouped_attention(hidden_size(f), attention, qkv_bias=bias, out_bias=bias, loose=attention.heads * sinks)


def mimo_v2(f: Fields) -> Plan:
    """MiMo V2: windows with sinks between layers of full attention, experts where the file says so."""
    hidden, n = hidden_size(f), layer_count(f)
    experts, top_k = expert_counts(f)
    sparse = expert_ffn(hidden, f.integer("moe_intermediate_size"), experts, top_k, correction=True)
    dense, norm = dense_block(f, Decoder()), norms(2, hidden)
    slides, routes = _marks(f, "hybrid_layer_pattern", n), _marks(f, "moe_layer_freq", n)
    mixers = {mark: _mimo_attention(f, bool(mark)) for mark in set(slides)}
    ffns = [sparse if route else dense for route in routes]
    return plan_of(f, [mixers[slide] for slide in slides], ffns, norm)


def linear_hybrid(f: Fields, ffn: Callable[[Fields, int], Sequence[tuple[Part, ...]]] | None = None) -> Plan:
    """Qwen3-Next and Qwen3.5: gated delta rule with gated attention every few layers."""
    hidden, n = hidden_size(f), layer_count(f)
    heads, kv_heads, head_dim = head_counts(f)
    period = f.integer("full_attention_interval", MAX_LAYERS)
    rule = tuple("linear_attention" if (i + 1) % period else "full_attention" for i in range(n))
    types = f.texts("layer_types", ("full_attention", "linear_attention"), n) or rule
    bias = f.flag("attention_bias")
    softmax = grouped_attention(
        hidden,
        attention_of(f, "full_attention", heads, kv_heads, head_dim),
        qkv_bias=bias,
        out_bias=bias,
        loose=qk_norm_params("head", heads, kv_heads, head_dim),
        gated=True,
    )
    k_heads, v_heads = f.integer("linear_num_key_heads", MAX_HEADS), f.integer("linear_num_value_heads", MAX_HEADS)
    if v_heads % k_heads:
        f.refuse("linear_num_value_heads", f"must be a multiple of linear_num_key_heads={k_heads}", v_heads)
    linear = gated_delta(
        hidden,
        k_heads,
        f.integer("linear_key_head_dim"),
        v_heads,
        f.integer("linear_value_head_dim"),
        f.integer("linear_conv_kernel_dim"),
    )
    ffns = ffn(f, n) if ffn else [dense_block(f, Decoder())] * n
    mixers = [linear if kind == "linear_attention" else softmax for kind in types]
    return plan_of(f, mixers, ffns, norms(2, hidden))


def _gemma4_attention(f: Fields, layer_type: str) -> Mixer:
    """Full layers have wider heads than windowed ones, and may have fewer KV heads that make keys and values alike."""
    heads, kv_heads, head_dim = head_counts(f)
    full = layer_type == "full_attention"
    alike = full and f.flag("attention_k_eq_v")
    if full:
        head_dim = f.integer("global_head_dim")
    if alike:
        kv_heads = f.optional("num_global_key_value_heads", MAX_HEADS) or kv_heads
    bias = f.flag("attention_bias")
    return grouped_attention(
        hidden_size(f),
        attention_of(f, layer_type, heads, kv_heads, head_dim),
        qkv_bias=bias,
        out_bias=bias,
        loose=qk_norm_params("head", heads, kv_heads, head_dim),
        value_is_key=alike,
    )


def gemma4(f: Fields) -> Plan:
    """Gemma 4, dense: the variants with experts, inputs per layer or shared caches are refused by name."""
    for key in ("enable_moe_block", "use_double_wide_mlp"):
        if f.flag(key):
            f.refuse(key, "this variant of Gemma 4 is not known")
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if f.optional(key, low=0):
            f.refuse(key, "this variant of Gemma 4 is not known")
    types = layer_types(f, "pattern")
    mixers = {kind: _gemma4_attention(f, kind) for kind in set(types)}
    ffns = [dense_block(f, Decoder())] * len(types)
    return plan_of(f, [mixers[kind] for kind in types], ffns, norms(4, hidden_size(f)))


def _periodic(f: Fields, period_key: str, offset_key: str, n: int) -> list[bool]:
    period, offset = f.integer(period_key, MAX_LAYERS), f.integer(offset_key, MAX_LAYERS, 0)
    if offset >= period:
        f.refuse(offset_key, f"must be smaller than {period_key}={period}", offset)
    return [i % period == offset for i in range(n)]


def jamba(f: Fields) -> Plan:
    """Jamba: Mamba layers with attention and experts at periods of their own."""
    hidden, n = hidden_size(f), layer_count(f)
    softmax = grouped_attention(hidden, attention_of(f, "full_attention", *head_counts(f)))
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
    experts, top_k = expert_counts(f)
    inner = f.integer(INNER)
    dense = dense_ffn(hidden, inner, gated=True)
    sparse = expert_ffn(hidden, inner, experts, top_k) if experts > 1 else dense
    mixers = [softmax if yes else recurrent for yes in _periodic(f, "attn_layer_period", "attn_layer_offset", n)]
    ffns = [sparse if yes else dense for yes in _periodic(f, "expert_layer_period", "expert_layer_offset", n)]
    return plan_of(f, mixers, ffns, norms(2, hidden))


def _block_pattern(f: Fields) -> list[str]:
    """Return the single block of each layer, from a list of words or a pattern of letters."""
    n = f.optional(LAYERS, MAX_LAYERS)
    listed = f.raw(BLOCKS)
    pattern = listed if listed is not None else f.raw("hybrid_override_pattern")
    key = f.name(BLOCKS) if listed is not None else "hybrid_override_pattern"
    blocks = [SINGLE_BLOCKS.get(str(block), block) for block in pattern] if isinstance(pattern, (list, str)) else []
    if not blocks or not set(map(str, blocks)) <= set(SINGLE_BLOCKS.values()):
        f.refuse(key, f"allowed are {sorted(set(SINGLE_BLOCKS.values()))} or the letters M * - E", pattern)
    if len(blocks) > MAX_LAYERS or (n is not None and n != len(blocks)):
        f.refuse(key, f"has {len(blocks)} entries for {f.name(LAYERS)}={n}", pattern)
    return blocks


def nemotron_h(f: Fields) -> Plan:
    """Nemotron-H: one block a layer, Mamba-2 or attention or feed-forward or experts."""
    blocks = _block_pattern(f)
    made = {block: _nemotron_block(f, block) for block in set(blocks)}
    mixers, ffns = zip(*(made[block] for block in blocks), strict=True)
    return plan_of(f, mixers, ffns, norms(1, hidden_size(f)))


def _nemotron_block(f: Fields, block: str) -> tuple[Mixer | None, tuple[Part, ...]]:
    """Return the mixer or the feed-forward block of a layer that has one of them."""
    if block == "linear_attention":
        return _nemotron_mamba(f), ()
    if block == "full_attention":
        return _nemotron_attention(f), ()
    if block == "moe":
        return None, _nemotron_experts(f)
    return None, dense_block(f, Decoder(gated_mlp=False, mlp_bias="mlp_bias"))


def _nemotron_attention(f: Fields) -> Mixer:
    heads = head_counts(f, "head_dim|attention_head_dim")
    return grouped_attention(hidden_size(f), attention_of(f, "full_attention", *heads))


def _nemotron_mamba(f: Fields) -> Mixer:
    return mamba2(
        hidden_size(f),
        f.integer("mamba_num_heads", MAX_HEADS),
        f.integer("mamba_head_dim"),
        f.integer("n_groups|mamba_n_groups"),
        f.integer("ssm_state_size"),
        f.integer("conv_kernel|mamba_d_conv"),
        f.flag("use_conv_bias|mamba_conv_bias"),
        f.flag("use_bias"),
    )


def _nemotron_experts(f: Fields) -> tuple[Part, ...]:
    experts, top_k = expert_counts(f)
    return expert_ffn(
        hidden_size(f),
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
    hidden, n = hidden_size(f), layer_count(f)
    heads, _, head_dim = head_counts(f)
    bias, affine = f.flag("enable_bias"), f.flag("layer_norm_elementwise_affine")
    mixer = grouped_attention(
        hidden, attention_of(f, "full_attention", heads, heads, head_dim), qkv_bias=bias, out_bias=bias
    )
    ffn = dense_ffn(hidden, f.integer("ffn_dim"), gated=False, bias=bias)
    norm = norms(2 if affine else 0, hidden, True)
    final = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm") and affine
    width = f.optional("word_embed_proj_dim") or hidden
    outer = outer_parts(f, norms(1 if final else 0, hidden, True), width=width)
    if width != hidden:
        outer = (
            *outer,
            Part(name="project_in", group="ffn", rows=width, cols=hidden),
            Part(name="project_out", group="head", rows=hidden, cols=width),
        )
    outer = (learned_positions(f, 2, hidden), *outer)
    return plan_of(f, [mixer] * n, [ffn] * n, norm, outer=outer)


def multi_query_gpt(f: Fields) -> Plan:
    """GPT-BigCode: GPT-2 with one KV head."""
    kv_heads = 1 if f.flag("multi_query") else f.integer(HEADS, MAX_HEADS)
    return decoder(replace(f, values={**f.values, "num_key_value_heads": kv_heads}), GPT2)
