"""How far the errors of two measured rows of one page lie apart: how well one measurement tells another.

`python -m trnlab.row_differences` writes `data/evidence/row_differences.csv`.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import msgspec

from trnmodel.arguments import choice
from trnmodel.catalog.load import DATA, read_csv

ROW_DIFFERENCES = DATA / "evidence" / "row_differences.csv"
PARTS = ("decode", "prefill", "throughput")
SAME = ("point", "mapping", "model", "chip")  # what two rows share, the most first
MIDDLE = NormalDist().inv_cdf(0.75)  # standard deviations of the median of absolute values


class RowDifference(msgspec.Struct, frozen=True):
    """Pairs of rows of one page that measure one part and have something in common.

    `median_difference` is the median distance of the logarithms of their errors, one vote a page.
    """

    part: str
    same: str
    pairs: int
    pages: int
    median_difference: float


@cache
def _medians() -> dict[tuple[str, str], float]:
    """Return the median distances by part and by what the rows share."""
    return {(row.part, row.same): row.median_difference for row in read_csv(ROW_DIFFERENCES, RowDifference)}


def row_noise(part: str, same: str) -> float:
    """Return the standard deviation of the logarithm by which one row of a page misses another.

    Parameters
    ----------
    part : str
        "decode", "prefill" or "throughput". [-]
    same : str
        What both rows share: "point" (a repeat), "mapping", "model" or "chip". [-]

    Examples
    --------
    >>> row_noise("decode", "point") < row_noise("decode", "mapping")
    True
    """
    return _medians()[choice("part", part, PARTS), choice("same", same, SAME)] / MIDDLE
