"""Feed-forward blocks layer by layer, where some or all of them are experts."""

from __future__ import annotations

from trnmodel.models.blocks import Part, expert_ffn
from trnmodel.models.config import EXPERTS, INNER, LAYERS, MAX_EXPERTS, MAX_LAYERS, TOP_K, Fields
from trnmodel.models.families import Decoder, dense_block, hidden_size

FIRST_DENSE = "first_k_dense_replace|num_dense_layers"


def expert_counts(f: Fields) -> tuple[int, int]:
    """Experts and how many of them a token uses."""
    experts, top_k = f.integer(EXPERTS, MAX_EXPERTS), f.integer(TOP_K, MAX_EXPERTS)
    if top_k > experts:
        f.refuse(f.name(TOP_K), f"more than the {experts} experts of {f.name(EXPERTS)}", top_k)
    return experts, top_k


def every_layer_experts(f: Fields, n: int, bias: bool = False) -> list[tuple[Part, ...]]:
    """Return experts in every layer, as wide as the file's feed-forward block."""
    experts, top_k = expert_counts(f)
    return [expert_ffn(hidden_size(f), f.integer(INNER), experts, top_k, bias=bias)] * n


def biased_experts(f: Fields, n: int) -> list[tuple[Part, ...]]:
    """Return experts in every layer whose matrices have biases."""
    return every_layer_experts(f, n, bias=True)


def qwen_experts(f: Fields, n: int) -> list[tuple[Part, ...]]:
    """Return experts in all layers but those that the file lists or steps over; a shared block has a gate."""
    experts, top_k = expert_counts(f)
    shared = f.optional("shared_expert_intermediate_size", low=0) or 0
    sparse = expert_ffn(
        hidden_size(f),
        f.integer("moe_intermediate_size"),
        experts,
        top_k,
        shared_inner=shared,
        shared_gate=bool(shared),
    )
    dense_only = f.layer_numbers("mlp_only_layers", n) or frozenset()
    step = f.optional("decoder_sparse_step", MAX_LAYERS) or 1
    chosen = [i not in dense_only and (i + 1) % step == 0 for i in range(n)]
    dense = () if all(chosen) else dense_block(f, Decoder())
    return [sparse if is_sparse else dense for is_sparse in chosen]


def leading_dense_experts(f: Fields, n: int, correction: bool = False) -> list[tuple[Part, ...]]:
    """Return dense layers first, then experts with a shared block."""
    experts, top_k = expert_counts(f)
    inner = f.integer("moe_intermediate_size")
    shared = inner * (f.optional("n_shared_experts|num_shared_experts", MAX_EXPERTS, 0) or 0)
    sparse = expert_ffn(hidden_size(f), inner, experts, top_k, correction=correction, shared_inner=shared)
    first = f.integer(FIRST_DENSE, MAX_LAYERS, 0)
    if first > n:
        f.refuse(f.name(FIRST_DENSE), f"more than the {n} layers of {f.name(LAYERS)}", first)
    step = f.optional("moe_layer_freq", MAX_LAYERS) or 1
    rule = ["sparse" if i >= first and i % step == 0 else "dense" for i in range(n)]
    types = f.texts("mlp_layer_types", ("dense", "sparse"), n) or rule
    dense = dense_block(f, Decoder(mlp_bias="mlp_bias")) if "dense" in types else ()
    return [sparse if kind == "sparse" else dense for kind in types]


def corrected_experts(f: Fields, n: int) -> list[tuple[Part, ...]]:
    """Return dense layers first, then experts whose router has a correction for each expert."""
    return leading_dense_experts(f, n, correction=True)


def llama4_experts(f: Fields, n: int) -> list[tuple[Part, ...]]:
    """Return experts in every n-th layer, with a shared block of their width, and wider dense blocks between."""
    experts, top_k = expert_counts(f)
    inner = f.integer("intermediate_size")
    sparse = expert_ffn(hidden_size(f), inner, experts, top_k, shared_inner=inner)
    step = f.integer("interleave_moe_layer_step", MAX_LAYERS)
    listed = f.layer_numbers("moe_layers", n)
    chosen = frozenset(range(step - 1, n, step)) if listed is None else listed
    dense = dense_block(f, Decoder(), "intermediate_size_mlp")
    return [sparse if i in chosen else dense for i in range(n)]
