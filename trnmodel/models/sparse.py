"""Attention to the tokens that an indexer selects (DeepSeek sparse attention), alone or between linear layers."""

from __future__ import annotations

from dataclasses import replace

from trnmodel.models.blocks import Attention, Mixer, Part, Recurrence, latent_attention, norms
from trnmodel.models.config import HEADS, MAX_HEADS, MAX_LAYERS, MAX_TOKENS, Fields
from trnmodel.models.experts import leading_dense_experts
from trnmodel.models.families import Plan, hidden_size, layer_count, plan_of

INDEXERS, SPARSE = ("full", "shared"), "deepseek_sparse_attention"


def latent(f: Fields) -> Mixer:
    """Multi-head latent attention with the widths of a file."""
    return latent_attention(
        hidden_size(f),
        f.integer(HEADS, MAX_HEADS),
        f.optional("q_lora_rank"),
        f.integer("kv_lora_rank"),
        f.integer("qk_nope_head_dim"),
        f.integer("qk_rope_head_dim", low=0),
        f.integer("v_head_dim"),
        f.flag("attention_bias"),
    )


def selected(f: Fields, indexes: bool) -> Mixer:
    """Return latent attention to the `index_topk` tokens that an indexer scores highest; a layer may share an index.

    The indexer scores every cached token: `index_n_heads` queries from the low rank of the queries against one key a
    token, which it caches with the latent; one key per token is counted also where a file pools them.
    """
    plain = latent(f)
    assert plain.attention
    attention = replace(plain.attention, kind="sparse", window=f.integer("index_topk", MAX_TOKENS))
    mixer = replace(plain, name="sparse attention", attention=attention)
    if not indexes:
        return replace(mixer, name="sparse attention, shared index")
    hidden, heads, width = hidden_size(f), f.integer("index_n_heads", MAX_HEADS), f.integer("index_head_dim")
    rank = f.optional("q_lora_rank") or hidden
    own = (
        Part(name="index_q", group="mixer", rows=rank, cols=heads * width),
        Part(name="index_k", group="mixer", rows=hidden, cols=width, extra=2 * width),
        Part(name="index_weights", group="mixer", rows=hidden, cols=heads),
    )
    index = Attention(kind="causal", heads=heads, kv_heads=1, qk_dim=width, v_dim=0)
    return replace(mixer, parts=(*mixer.parts, *own), indexer=index)


def _indexers(f: Fields, n: int) -> tuple[str, ...]:
    """Return which layers have their own indexer: as listed, else at regular distances after the first ones."""
    step = f.optional("index_topk_freq", MAX_LAYERS) or 1
    offset = f.optional("index_skip_topk_offset", MAX_LAYERS, 0)
    first = 2 if offset is None else offset
    rule = tuple("shared" if max(i - first + 1, 0) % step else "full" for i in range(n))
    return f.texts("indexer_types", INDEXERS, n) or rule


def deepseek_sparse(f: Fields) -> Plan:
    """DeepSeek V3.2 and GLM-5: DeepSeek V3 with sparse attention in every layer."""
    n = layer_count(f)
    kinds = _indexers(f, n)
    mixers = {kind: selected(f, kind == "full") for kind in set(kinds)}
    each, last = [mixers[kind] for kind in kinds], mixers.get("full", mixers[kinds[-1]])
    return plan_of(f, each, leading_dense_experts(f, n), norms(2, hidden_size(f)), predicts=last)


def kimi_delta(hidden: int, heads: int, width: int, kernel: int) -> Mixer:
    """Kimi's delta attention: a gated delta rule whose decay and gate come through a low rank of one head's width."""
    keys = heads * width
    parts = (
        Part(name="qkv", group="mixer", rows=hidden, cols=3 * keys, shard="columns"),
        Part(name="low", group="mixer", rows=hidden, cols=2 * width),
        Part(name="decay_and_gate", group="mixer", rows=width, cols=2 * keys, shard="columns"),
        Part(name="beta", group="mixer", rows=hidden, cols=heads, shard="columns"),
        Part(name="conv", group="mixer", rows=kernel, cols=3 * keys, store="wide", shard="heads"),
        Part(name="state", group="mixer", extra=heads + keys + width, store="wide", shard="heads"),
        Part(name="out", group="mixer", rows=keys, cols=hidden, shard="rows"),
    )
    tail = 3 * keys * (kernel - 1)
    recurrence = Recurrence(kind="gated-delta", heads=heads, state_elements=keys * width, conv_elements=tail)
    return Mixer("kimi delta attention", parts, None, recurrence)


def glm5_next(f: Fields) -> Plan:
    """GLM-5.3-Flash: Kimi's delta attention with sparse attention every few layers.

    Its hyper-connections (four residual streams) are left out: below 0.1 % of parameters and work.
    """
    hidden, n = hidden_size(f), layer_count(f)
    types = f.texts("layer_types", ("linear_attention", SPARSE), n)
    inner = f.raw("linear_attn_config")
    if types is None:
        f.refuse("layer_types", f"missing; needed is a list of {n} words", None)
    if not isinstance(inner, dict):
        f.refuse("linear_attn_config", "allowed is an object with num_heads, head_dim and short_conv_kernel_size")
    own = replace(f, values=inner)
    linear = kimi_delta(
        hidden, own.integer("num_heads", MAX_HEADS), own.integer("head_dim"), own.integer("short_conv_kernel_size")
    )
    sparse, norm = selected(f, True), norms(2, hidden)
    ffns = leading_dense_experts(f, n, correction=True)
    return plan_of(f, [sparse if kind == SPARSE else linear for kind in types], ffns, norm, predicts=sparse)
