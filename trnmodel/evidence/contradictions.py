"""Where the deep dive disagrees with itself, with the arithmetic."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING

import msgspec

from trnmodel.catalog import load

if TYPE_CHECKING:
    import pandas as pd


class Contradiction(msgspec.Struct, frozen=True):
    """A line of `data/evidence/contradictions.csv`: two statements of one text, and the arithmetic between them."""

    id: str
    about: str
    says: str
    locator: str
    also: str
    also_locator: str
    arithmetic: str
    unit: str
    ruling: str


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _worked_out(expression: ast.expr) -> float:
    if isinstance(expression, ast.BinOp):
        return _OPERATORS[type(expression.op)](_worked_out(expression.left), _worked_out(expression.right))
    return float(ast.literal_eval(expression))


def contradictions() -> pd.DataFrame:
    """Where the deep dive disagrees with itself, each with its arithmetic.

    Returns
    -------
    table : pandas.DataFrame
        about, says (with its line), also (with its line), arithmetic, gives, ruling.

    Examples
    --------
    >>> table = contradictions().set_index("about")
    >>> table.gives["chips of an NL72x2 rack"]
    '72 chips'
    """
    import pandas as pd

    rows = load.read_csv(load.DATA / "evidence" / "contradictions.csv", Contradiction)
    return pd.DataFrame([_contradiction(row) for row in rows])


def _contradiction(row: Contradiction) -> dict:
    gives = f"{_worked_out(ast.parse(row.arithmetic, mode='eval').body):.4g} {row.unit}" if row.arithmetic else ""
    return {
        "about": row.about,
        "says": f"{row.says} ({row.locator})",
        "also": f"{row.also} ({row.also_locator})",
        "arithmetic": row.arithmetic,
        "gives": gives,
        "ruling": row.ruling,
    }
