"""Errors of a rank's whole memory, from every row of a footprint.

Rows of a footprint measure all bytes of a rank, or those of one kind. The error of one kind is many times that of the
whole: buffers for exchanges that are off by half are 2 % of what a rank stores. For the band of a whole each row counts
with the bytes by which it was off, as a share of all bytes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.bands import MEMORY as FOOTPRINT
from trnmodel.bands import STORED as WHOLE
from trnmodel.evidence.fit import readable
from trnmodel.evidence.questions import stored_bytes
from trnmodel.evidence.rows import LATER, MEASURED, THIRD, read_rows

if TYPE_CHECKING:
    import pandas as pd

SUMS = ("memory:total", "memory:first")
KEY = ["model", "where", "tp", "batch", "context"]


@cache
def _stored() -> dict[tuple, float]:
    """Return all bytes of an ordinary rank as they are predicted, by configuration that was measured."""
    rows = (row for path in (MEASURED, LATER, THIRD) for row in read_rows(path) if row["kind"] == "memory-footprint")
    of = [case.reading for case in readable(rows)]
    return {
        (r.model_id, r.where, float(r.mapping[0]), float(r.batch), float(r.max_context)): float(
            stored_bytes(r, r.batch, r.max_context).total_bytes
        )
        for r in of
    }


def whole(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of memory as rows of a rank's whole memory: none is left out.

    Parameters
    ----------
    rows : pandas.DataFrame
        Left-out errors with what was asked of each; rows of other parts are left out. [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows of memory, group and part renamed, with `log_error` of all bytes. [-]
    """
    table = rows[rows.part == FOOTPRINT]
    stored = np.array([_stored()[tuple(key)] for key in table[KEY].itertuples(index=False)])
    missing = table.measured * (1 - np.exp(table.log_error))
    shares = np.log(stored / (stored + missing))
    return table.assign(group=WHOLE, part=WHOLE, log_error=np.where(table.meaning.isin(SUMS), table.log_error, shares))
