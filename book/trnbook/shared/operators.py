"""Operators of one step as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnmodel.arguments import number
from trnmodel.models.blocks import Phase
from trnmodel.models.operators import Operator
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model

if TYPE_CHECKING:
    import pandas as pd


def step_operators(
    model: str | Transformer, phase: Phase, batch: float, tokens: float, past: float, precision: str
) -> pd.DataFrame:
    """Return operators of one step, equal ones of different layers added up: work, bytes, intensity.

    Returns
    -------
    table : pandas.DataFrame
        phase, operator, layers, flop, weight_bytes, cache_bytes, activation_bytes, intensity_flop_per_byte (weights
        and cache, as a fused graph reads them) and unfused_flop_per_byte (with inputs and outputs too).

    Examples
    --------
    >>> table = step_operators("llama-3.1-8b", "decode", 1, 1, 8191, "bf16")
    >>> float(table.flop.sum())
    19304284160.0
    """
    import pandas as pd

    ask: dict[str, Any] = {
        "batch": number("batch", batch, 1),
        "tokens": number("tokens", tokens, 1),
        "past": number("past", past),
    }
    operators = read_model(model).operators(phase, **ask, precision=precision, logits="last")
    rows = [_operator(phase, operator) for operator in operators]
    table = pd.DataFrame(rows).groupby(["phase", "operator"], sort=False).sum().reset_index()
    stored_bytes = table.weight_bytes + table.cache_bytes
    work = table.flop.where(table.flop > 0)
    return table.assign(
        intensity_flop_per_byte=work / stored_bytes.where(stored_bytes > 0),
        unfused_flop_per_byte=work / (stored_bytes + table.activation_bytes),
    )


def _operator(phase: str, o: Operator) -> dict:
    return {
        "phase": phase,
        "operator": o.name,
        "layers": o.count,
        "flop": float(o.flop),
        "weight_bytes": float(o.weight_bytes),
        "cache_bytes": float(o.cache_read_bytes + o.cache_write_bytes),
        "activation_bytes": float(o.activation_bytes),
    }
