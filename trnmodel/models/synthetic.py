"""Mixtures of experts larger than the public ones, grown from them by rules of ours that are rows of `data/`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from trnmodel.arguments import chosen, listed, number, numbers, refuse
from trnmodel.catalog import load
from trnmodel.models.config import read_json
from trnmodel.models.shipped import MODELS, catalog, known
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.units import BILLION, TRILLION

if TYPE_CHECKING:
    import pandas as pd

SMALLEST, LARGEST = BILLION, 100 * TRILLION  # parameters of a synthetic model


class Growth(msgspec.Struct, frozen=True):
    """How a key of a configuration grows: with a power of the parameters, or by what is left to reach them."""

    rule: str
    key: str
    power: str
    solved: str
    multiple: int
    confidence: str
    locator: str
    note: str


@cache
def growth() -> Mapping[str, tuple[Growth, ...]]:
    """Return the rules of the synthetic family, which are our own; they rest on two public models."""
    rows = load.read_csv(load.DATA / "models" / "synthetic_models.csv", Growth)
    return {rule: tuple(row for row in rows if row.rule == rule) for rule in dict.fromkeys(row.rule for row in rows)}


def synthetic(total_params: float, rule: str = "together", base: str = "deepseek-v3") -> Transformer:
    """Return a mixture of experts of about `total_params`, grown from a public one by a rule of our own.

    Every key with a power is the base's times the growth of the parameters to that power; the solved key takes what is
    left, as parameters are linear in it.

    Examples
    --------
    >>> synthetic(671026404352, "width").total_params, synthetic(4e12, "experts").total_params
    (671026404352, 3999861588992)
    """
    if not isinstance(base, str) or not known(base):
        refuse("base", base, "allowed is the name of a model of the catalog")
    size, rows = number("total_params", total_params, SMALLEST, LARGEST), chosen("rule", rule, growth())
    return _grown(size, rule, rows, read_model(base))


@cache
def _grown(total_params: float, rule: str, rows: tuple[Growth, ...], start: Transformer) -> Transformer:
    values = dict(read_json(MODELS / catalog()[start.id].file))
    if missing := {row.key for row in rows} - set(values):
        refuse("base", start.id, f"its configuration has no {sorted(missing)}, which rule {rule!r} grows")
    ratio = total_params / start.total_params
    for row in rows:
        if row.power:
            values[row.key] = _rounded(values[row.key] * ratio ** float(row.power), row.multiple)
    (solved,) = (row for row in rows if row.solved)
    first = values[solved.key]
    small, large = (from_values(values | {solved.key: first * n}, "probe").total_params for n in (1, 2))
    values[solved.key] = _rounded(first * (1 + (total_params - small) / (large - small)), solved.multiple)
    return from_values(values, f"{start.id}-{rule}-{total_params / TRILLION:.3g}T")


def from_values(values: Mapping[str, Any], model_id: str) -> Transformer:
    """Return the model of a configuration, read as a file is."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{model_id}.json"
        path.write_text(json.dumps(values))
        return read_model(path)


def _rounded(value: float, multiple: int) -> int:
    return max(round(value / multiple), 1) * multiple


def family(rules: Iterable[str], sizes: Iterable[float], base: str = "deepseek-v3") -> pd.DataFrame:
    """Return the layers, widths and experts of the synthetic models.

    Returns
    -------
    table : pandas.DataFrame
        rule, total_params, active_params, layers, hidden, experts, top_k, expert_width.
    """
    import pandas as pd

    rows = []
    for rule, size in product(listed("rules", rules), np.ravel(numbers("sizes", sizes)).tolist()):
        grown = synthetic(size, rule, base)
        c = grown.outline()
        width = min(term.cut.inner for term in grown.terms() if term.kind == "experts")
        shape = (c.layers, c.hidden, c.experts, c.top_k, width)
        rows.append((rule, grown.total_params, grown.active_params(), *shape))
    columns = ["rule", "total_params", "active_params", "layers", "hidden", "experts", "top_k", "expert_width"]
    return pd.DataFrame(rows, columns=columns)


@cache
def bases() -> list[str]:
    """Return the shipped models that every rule can grow.

    Examples
    --------
    >>> "deepseek-v3" in bases(), "gpt2" in bases()
    (True, False)
    """
    keys = {row.key for rows in growth().values() for row in rows}
    return [name for name, row in catalog().items() if keys <= set(read_json(MODELS / row.file))]
