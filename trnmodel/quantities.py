"""The table of quantities: name, title, unit, symbol and meaning of what results, axes, tables and cards show.

`data/lists/fields.csv` has a row for each field of a result and each number that a table or chart of the book shows;
a row `TrainRun.tokens` is that of one class alone. `data/lists/quantities.csv` is the closed list of what a fact may
state; the fields of a `Chip` or a `System` take their meaning from it. The title and the unit of any other name follow
from the name (`units.title_of`, `units.unit_of`).
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from trnmodel.units import split_name, title_of, unit_of

__all__ = ["Quantity", "quantities", "quantity"]

_PACKAGE = Path(__file__).resolve().parent
DATA = _PACKAGE / "data" if (_PACKAGE / "data").is_dir() else _PACKAGE.parent / "data"


class Quantity(NamedTuple):
    """What a field or a column is called.

    `unit` is a base unit ("s", "B/s per direction", "USD/Mtoken"), empty for counts, shares and text; `symbol` is that
    of the equations, empty where they have none.
    """

    name: str
    title: str
    unit: str = ""
    symbol: str = ""
    description: str = ""

    @property
    def base_unit(self) -> str:
        """The unit without what it is counted per, which the title names."""
        return self.unit.partition(" per ")[0]


@cache
def quantities() -> dict[str, Quantity]:
    """Return every quantity of the table by its name; that of one class alone by "Class.name".

    Examples
    --------
    >>> quantities()["tokens_per_s_per_chip"].title, quantities()["TrainRun.tokens"].title
    ('Throughput per chip', 'Tokens to train on')
    """
    with (DATA / "lists" / "fields.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    return {row["name"]: Quantity(**row) for row in rows}


@cache
def _stated() -> dict[str, str]:
    """Meaning of each quantity of a fact."""
    with (DATA / "lists" / "quantities.csv").open(newline="", encoding="utf-8") as stream:
        return {row["quantity"]: row["description"] for row in csv.DictReader(stream, strict=True)}


@cache
def quantity(name: str, *owners: str) -> Quantity:
    """Return what a field or a column is called; where the table has no row, as its name says.

    Parameters
    ----------
    name : str
        A field or a column; the ends of its band ("time_s_low") are called as it is.
    *owners : str
        Class that the field is of and its bases, the nearest first, for names that mean something else there.

    Examples
    --------
    >>> quantity("time_s").unit, quantity("time_s_low").title, quantity("tokens", "TrainRun").title
    ('s', 'Time low', 'Tokens to train on')
    >>> quantity("frobnicated_bytes_per_s")[:3]
    ('frobnicated_bytes_per_s', 'Frobnicated', 'B/s')
    """
    known = quantities()
    for key in (*(f"{owner}.{name}" for owner in owners), name):
        if key in known:
            return known[key]
    end = split_name(name).end
    stem = name.removesuffix(end)
    if end and stem in known:
        return known[stem]._replace(name=name, title=f"{known[stem].title}{end.replace('_', ' ')}")
    return Quantity(name, title_of(name), unit_of(name), description=_stated().get(name, ""))
