"""A model said in few words: the kinds of its attention, and where its parameters sit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trnmodel.models.blocks import Attention, Layer, Part
from trnmodel.models.shipped import catalog
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model

if TYPE_CHECKING:
    import pandas as pd

RECURRENT = "recurrent mixer"
PLACES: Mapping[str, str] = {
    "embedding": "embedding",
    "mixer": "attention",
    "ffn": "dense MLP",
    "experts": "routed experts",
    "router": "router",
    "norm": "norms",
    "head": "head",
}
ORDER = (*PLACES.values(), RECURRENT)
_WINDOWS = {"sliding": "window", "chunked": "chunks of", "sparse": "top"}


def attention_kind(model: str | Transformer) -> str:
    """Return the kinds of attention and recurrence of the layers that decode, in few words.

    Examples
    --------
    >>> [attention_kind(name) for name in ("llama-3.1-70b", "deepseek-v3", "gpt-oss-120b")]
    ['GQA 64/8', 'MLA 128', 'GQA 64/8, window 128 in 18 of 36']
    """
    layers = [layer for layer in read_model(model).layers if "decode" in layer.phases]
    kinds = [(a, layer.count) for layer in layers for a in layer.attentions if a.kind != "cross"]
    some: Counter[str] = Counter()
    for a, count in kinds:
        if a.window:
            some[f"{_WINDOWS[a.kind]} {a.window}"] += count
    for layer in layers:
        if layer.recurrence:
            some[layer.recurrence.kind] += layer.count
    main = next((a for a, _ in kinds if not a.window), kinds[0][0] if kinds else None)
    total = sum(layer.count for layer in layers)
    heads = [_heads(main)] if main else []
    return ", ".join(heads + [f"{what} in {count} of {total}" for what, count in some.items()])


def _heads(a: Attention) -> str:
    if a.latent_dim:
        return f"MLA {a.heads}"
    if a.kv_heads == a.heads:
        return f"MHA {a.heads}"
    return f"MQA {a.heads}/1" if a.kv_heads == 1 else f"GQA {a.heads}/{a.kv_heads}"


def parts(model: str | Transformer) -> list[tuple[Layer | None, Part, int]]:
    """Every kind of part: the layer that it stands in, if any, the part, and how often such a layer is stored."""
    chosen = read_model(model)
    inner: list[tuple[Layer | None, Part, int]] = [
        (layer, part, layer.stored or layer.count) for layer in chosen.layers for part in layer.parts
    ]
    return inner + [(None, part, 1) for part in chosen.outer]


def by_place(model: str | Transformer) -> dict[str, tuple[int, int]]:
    """Parameters by the places that a model has: all, and those that one token uses.

    A tied head counts nothing that is stored.

    Examples
    --------
    >>> by_place("llama-3.1-8b")["norms"]
    (266240, 266240)
    """
    held: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for layer, part, count in parts(model):
        recurrent = part.group == "mixer" and layer and layer.recurrence
        place = RECURRENT if recurrent else PLACES[part.group]
        held[place] += count * part.params
        used[place] += count * part.active_params
    return {place: (held[place], used[place]) for place in ORDER if place in held}


def wide_params(model: str | Transformer) -> int:
    """Parameters that no format narrows: head, tables, routers, norms and biases."""
    return sum(n * (p.params if p.store == "wide" else p.copies * p.extra) for _, p, n in parts(model))


def model_table() -> pd.DataFrame:
    """Return every shipped model with its size, its kinds of attention and what else it is called.

    Returns
    -------
    models : pandas.DataFrame
        id, publisher, total_params, active_params, max_context (tokens; 0 where none is stated), attention, names.

    Examples
    --------
    >>> table = model_table().set_index("id")
    >>> int(table.total_params["llama-3.3-70b"]), table.attention["deepseek-v3"]
    (70553706496, 'MLA 128')
    """
    import pandas as pd

    rows = []
    for row in catalog().values():
        one = read_model(row.id)
        rows.append(
            {
                "id": row.id,
                "publisher": row.publisher,
                "total_params": one.total_params,
                "active_params": one.active_params(),
                "max_context": one.max_context,
                "attention": attention_kind(one),
                "names": row.aliases.replace(";", "; "),
            }
        )
    return pd.DataFrame(rows)
