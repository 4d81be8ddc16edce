"""Kernels that were measured beside what the model gives for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def side_by_side(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the times ("time") or the HBM bytes ("bytes") of a comparison, with the unit in the names of the columns.

    Examples
    --------
    >>> from trnmodel.evidence import tables
    >>> side_by_side(tables.table("kernels"), "time").columns.tolist()[4:7]
    ['measured_s', 'predicted_s', 'error']
    """
    unit = {"time": "s", "bytes": "bytes"}[quantity]
    rows = table[(table.quantity == "time") == (quantity == "time")]
    columns = [
        "group",
        "chip",
        "kernel",
        "dtype",
        "measured",
        "predicted",
        "error",
        "bound" if unit == "s" else "quantity",
    ]
    return rows[columns].rename(columns={name: f"{name}_{unit}" for name in ("measured", "predicted")})
