"""Kinds of layers in words: what software must have an implementation of before it runs a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from trnmodel.models.blocks import Attention, Layer
from trnmodel.models.transformer import Transformer, model, model_ids

ATTENTION = {
    "causal": "causal attention",
    "sliding": "sliding-window attention",
    "chunked": "chunked attention",
    "sparse": "sparse attention with an indexer",
    "cross": "cross-attention to an encoder",
    "bidirectional": "attention of an encoder",
}
LATENT = "latent attention (MLA)"
RECURRENCE = {
    "mamba": "Mamba layers",
    "mamba2": "Mamba-2 layers",
    "gated-delta": "linear attention (gated delta rule)",
}
GROUPS = {"experts": "mixture of experts with a router"}
PARTS = {
    "shared_up": "shared experts",
    "latent_in": "experts on a latent",
    "gate": "a gate on the attention's output",
}


def _attention(a: Attention) -> Iterator[str]:
    if a.latent_dim:
        yield LATENT
    if not a.latent_dim or a.kind != "causal":
        yield ATTENTION[a.kind]


def _of_layer(layer: Layer) -> Iterator[str]:
    """Names of what a layer is made of."""
    for attention in layer.attentions:
        yield from _attention(attention)
    if layer.recurrence:
        yield RECURRENCE[layer.recurrence.kind]
    for part in layer.parts:
        yield from (name for key, name in GROUPS.items() if part.group == key)
        yield from (name for key, name in PARTS.items() if part.name == key)


@lru_cache(maxsize=512)
def layer_kinds(of: Transformer) -> frozenset[str]:
    """Return the kinds of layers and parts of a model, prediction layers aside.

    Examples
    --------
    >>> sorted(layer_kinds(model("deepseek-v3")))
    ['latent attention (MLA)', 'mixture of experts with a router', 'shared experts']
    """
    return frozenset(name for layer in of.layers for name in _of_layer(layer))


@cache
def kinds_by_architecture() -> Mapping[str, frozenset[frozenset[str]]]:
    """Return the kinds of layers of the shipped models of each architecture, a set for each different model."""
    kinds: dict[str, set[frozenset[str]]] = defaultdict(set)
    for name in model_ids():
        shipped = model(name)
        kinds[shipped.architecture].add(layer_kinds(shipped))
    return {architecture: frozenset(several) for architecture, several in kinds.items()}
