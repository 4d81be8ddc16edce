"""Tables and a drawing of what a model needs: parts of a step, its operators, and the experts that a batch reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from trnbook.drawings.svg import Accent, Drawing, rect, text
from trnmodel.arguments import integer, listed, refuse
from trnmodel.catalog.systems import system as read_system
from trnmodel.models import describe
from trnmodel.models.describe import attention_kind as attention_kind
from trnmodel.models.operators import Operator
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.units import GIB

KINDS = ("codellama-13b", "llama-3.3-70b", "deepseek-v3", "gpt-oss-120b", "nemotron-h-56b")  # of attention, one each
SHARED, EXPERTS, CACHE = "shared weights", "routed experts", "caches"
COLUMNS, CELL, TOP, MOST = 16, 15.0, 84.0, 64  # of the drawn experts; and the most sequences drawn


def models_compared(model: Transformer, others: Iterable[str] = KINDS) -> list[str | Transformer]:
    """Return some models and the chapter's, which stands in the place of the one whose id it has.

    Examples
    --------
    >>> models_compared(read_model("llama-3.1-8b"), ["deepseek-v3"])[0]
    'deepseek-v3'
    """
    return list(dict.fromkeys(model if name == model.id else name for name in [*others, model.id]))


def by_part(operators: Iterable[Operator]) -> pd.DataFrame:
    """Return the bytes that a step reads by what is read, without parts that read nothing.

    Examples
    --------
    >>> step = read_model("llama-3.1-70b").operators("decode", batch=4, past=4351)
    >>> by_part(step).read_bytes.round(-6).tolist()
    [139006000000.0, 5704000000.0]
    """
    read = dict.fromkeys((SHARED, EXPERTS, CACHE), 0.0)
    for one in operators:
        read[EXPERTS if one.part and one.part.group == "experts" else SHARED] += float(one.weight_bytes)
        read[CACHE] += float(one.cache_read_bytes)
    rows = [(part, size) for part, size in read.items() if size]
    return pd.DataFrame(rows, columns=["part", "read_bytes"])


def by_operator(operators: Iterable[Operator]) -> pd.DataFrame:
    """Return work, bytes and FLOP per byte of a step's operators, equal ones of different layers added up.

    Examples
    --------
    >>> step = read_model("llama-3.1-8b").operators("decode", batch=32, past=99)
    >>> float(by_operator(step).set_index("operator").intensity_flop_per_byte["o"])
    32.0
    """
    rows = [
        {
            "operator": one.name,
            "layers": one.count,
            "flop": float(one.flop),
            "weight_bytes": float(one.weight_bytes),
            "cache_bytes": float(one.cache_read_bytes + one.cache_write_bytes),
        }
        for one in operators
    ]
    table = pd.DataFrame(rows).groupby("operator", sort=False).sum().reset_index()
    moved = table.weight_bytes + table.cache_bytes
    return table.assign(intensity_flop_per_byte=table.flop.where(table.flop > 0) / moved.where(moved > 0))


def breakdown(
    model: str, system: str, weights: float, cache: float, padding: float, unused: float, read: float
) -> pd.DataFrame:
    """Return what a step reads as the parts that the model needs, and those that software and mapping add.

    Examples
    --------
    >>> breakdown("m", "trn2.48xlarge", 5.0, 1.0, 0.0, 2.0, 9.0).read_bytes.tolist()
    [5.0, 1.0, 2.0, 0.0, 1.0]
    """
    parts = {"weights needed": weights, "caches needed": cache, "unused experts": unused, "padding": padding}
    parts["copies"] = read - sum(parts.values())
    where = f"{model}, {read_system(system).name.removesuffix(' Switched')}"
    return pd.DataFrame({"case": where, "part": list(parts), "read_bytes": [float(size) for size in parts.values()]})


def with_counts(agreement: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of other programs by kind, below a row for the parameters that publishers state.

    Examples
    --------
    >>> published = pd.DataFrame({"model": ["a", "b"], "difference": [0, 0]})
    >>> with_counts(pd.DataFrame({"figure": ["FLOP"], "rows": [9]}), published).rows.tolist()
    [2, 9]
    """
    row = {"figure": "parameters, by publishers", "rows": len(published), "models": published.model.nunique()}
    row |= {"exact": int((published.difference == 0).sum()), "worst_error": 0.0}
    table = pd.concat([pd.DataFrame([row]), agreement], ignore_index=True)
    return (
        table.assign(worst_error=[_share(size) for size in table.worst_error]) if "worst_error" in agreement else table
    )


def _share(error: float) -> str:
    """Return a small error as text: none, or with two places of a percent."""
    return "none" if error == 0 else "below 0.01%" if error < 1e-4 else f"{error:.2%}"


def step_of_experts(
    model: str | Transformer = "deepseek-v3",
    batches: Sequence[int] = (1, 4, 16, 64),
    *,
    context: float = 4352,
    precision: str = "fp8",
) -> Drawing:
    """Return the drawing of what a decode step reads: shared weights, the experts of a layer that it meets, caches.

    Parameters
    ----------
    model : str or Transformer
        Model with routed experts, by id or object. [-]
    batches : sequence of int
        Sequences that share a step, one frame for each. [-]
    context : float
        Tokens of each sequence. [token]
    precision : str
        Storage dtypes of weights and cache. [-]

    Returns
    -------
    drawing : Drawing
        A square for each expert of one layer, in one draw of a router without favourites. [-]

    Examples
    --------
    >>> list(step_of_experts().frames)
    ['1 sequence', '4 sequences', '16 sequences', '64 sequences']
    """
    chosen = read_model(model)
    routed = [part for _, part, _ in describe.parts(chosen) if part.group == "experts"]
    if not routed:
        refuse("model", chosen.id, "only models with routed experts have a choice of them")
    experts, each = routed[0].copies, routed[0].active
    batches = [integer("batches", batch, 1, MOST) for batch in listed("batches", batches, int)]
    draws = np.random.default_rng(3)
    drawn = [draws.choice(experts, each, replace=False) for _ in range(max(batches))]
    rows, side, left = -(-experts // COLUMNS), CELL - 3, (16.0, 196.0, 540.0)
    tall = max(rows, 16) * CELL - 3

    def square(i: int, x: float, columns: int, pitch: float, accent: Accent = "") -> str:
        size = pitch - CELL + side
        return rect(x + i % columns * pitch, TOP + i // columns * pitch, size, size, accent=accent, radius=1)

    def frame(batch: int) -> list[str]:
        step = chosen.operators("decode", batch=batch, past=context - 1, precision=precision)
        size = by_part(step).set_index("part").read_bytes / GIB
        met = np.unique(drawn[:batch])
        said = (
            f"{size[SHARED]:.0f} GiB, read once",
            f"{len(met)} of {experts}: {size[EXPERTS]:.0f} GiB in all layers",
            f"{batch} x {size[CACHE] / batch:.2f} GiB",
        )
        marks = [text(x, 62, one, anchor="start", size=17) for x, one in zip(left, said, strict=True)]
        marks += [square(int(expert), left[1], COLUMNS, CELL, "b") for expert in met]
        return marks + [square(i, left[2], 8, 26.0, "a") for i in range(batch)]

    heads: tuple[tuple[str, Accent], ...] = (("Shared weights", "c"), ("Experts of a layer", "b"), ("Caches", "a"))
    marks = [
        text(x, 34, head, anchor="start", size=18, bold=True, accent=accent)
        for x, (head, accent) in zip(left, heads, strict=True)
    ]
    marks.append(rect(left[0], TOP, 130, tall, accent="c", radius=2))
    marks += [square(i, left[1], COLUMNS, CELL) for i in range(experts)]
    return Drawing(
        "step-of-experts",
        "A batch shares weights and some experts, but no cache",
        TOP + tall + 14,
        marks,
        {f"{batch} sequence{'s' * (batch > 1)}": frame(batch) for batch in batches},
        note=f"One decode step of {chosen.id}. Coloured squares are experts that the batch meets, in one draw.",
        alt=f"A decode step reads the weights that all tokens use once, the experts that some sequence chose, and the "
        f"cache of each sequence; of {experts} experts one sequence meets {each}.",
    )
