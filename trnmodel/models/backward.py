"""Activations that layers save for the backward pass: elements per token, by how tensor parallelism cuts them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from trnmodel.models.blocks import Attention, Part
from trnmodel.models.transformer import Transformer

GROUPS = 2  # halves of a layer, each with a norm and its input


class Saved(NamedTuple):
    """Elements that a token leaves in all layers, and score heads by their attention.

    `whole` are inputs of norms and of matrices and small latents, `cut` what heads and columns cut, `routed` the same
    of experts (of all that the token goes to), `masked` outputs that a dropout mask covers. `scores` are pairs of an
    attention and the layers times heads in which it has scores.
    """

    whole: int
    cut: int
    routed: int
    masked: int
    scores: tuple[tuple[Attention, int], ...]


def _elements(part: Part) -> int:
    """Return what a part saves: its output, or its input where rows are cut, whose output goes on whole."""
    if not part.rows or not part.cols:
        return 0
    inner = part.shard == "rows" or (part.group == "experts" and "down" in part.name)
    return part.active * (part.rows if inner else part.cols)


@lru_cache(maxsize=256)
def saved(model: Transformer) -> Saved:
    """Return what one token saves in all layers of a model.

    Examples
    --------
    >>> import trnmodel as tm
    >>> one = saved(tm.model("llama-3.1-8b"))
    >>> (one.whole + one.cut) / 32
    69632.0
    """
    elements = dict.fromkeys(("whole", "cut", "routed", "masked"), 0)
    scores: list[tuple[Attention, int]] = []
    for layer in (layer for layer in model.layers if "prefill" in layer.phases):
        elements["whole"] += 2 * layer.count * GROUPS * model.hidden_size
        elements["masked"] += layer.count * GROUPS * model.hidden_size
        for part in layer.parts:
            name = "routed" if part.group == "experts" else "whole" if part.shard == "none" else "cut"
            elements[name] += layer.count * _elements(part)
        scores += [(a, layer.count * a.heads) for a in layer.attentions]
    return Saved(**elements, scores=tuple(scores))
