"""Statements of sources, in our words, on supply, customers and time to market, which no model gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from trnmodel.catalog import load
from trnmodel.catalog.tables import check_listed

if TYPE_CHECKING:
    import pandas as pd

ROWS = load.DATA / "evidence" / "stated.csv"


class Stated(msgspec.Struct, frozen=True):
    """A line of `data/evidence/stated.csv`: what a source says, and of what."""

    topic: Literal["supply", "customers", "time to market"]
    about: str
    says: str
    source: str
    locator: str


def stated() -> pd.DataFrame:
    """Return every statement: topic, about, says (our words, the source's names and figures), source, locator.

    Examples
    --------
    >>> sorted(set(stated().topic))
    ['customers', 'supply', 'time to market']
    """
    import pandas as pd

    rows = load.read_csv(ROWS, Stated)
    for row in rows:
        check_listed(row, f"stated.csv ({row.about})", {"source": load.sources()})
    return pd.DataFrame([msgspec.structs.asdict(row) for row in rows])
