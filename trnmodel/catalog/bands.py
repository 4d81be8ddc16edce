"""The files of intervals: the scale of left-out errors by group, and every configuration that was measured.

`python -m trnlab.accuracy` writes `data/evidence/bands.csv`, a line for each group, and `data/evidence/hulls.csv`, a
line for each configuration with its left-out error and its page; `trnmodel.bands` judges questions by them. `python -m
trnlab.outliers` writes `data/evidence/outliers.csv`, the measured rows that lie outside the band of their own
configuration.
"""

from __future__ import annotations

from math import nan

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.load import DATA, read_csv

BANDS, HULLS, OUTLIERS = (DATA / "evidence" / f"{name}.csv" for name in ("bands", "hulls", "outliers"))
LABELS = ("group", "part", "kind", "chip", "stack")
AXES = ("ranks", "batch", "length", "size")


class Width(msgspec.Struct, frozen=True):
    """A group of measured configurations: the typical size of its errors, and how many times that the 90 % band is.

    `scale` is a geometric mean over pages, `pooled` that of all groups of the pool. `width`, `below` and `above` are
    quantiles of errors over their local scale, on both sides together and on either side of a time.
    """

    group: str
    pool: str
    cases: int
    pages: int
    scale: float
    pooled: float
    width: float
    below: float
    above: float


class Row(msgspec.Struct, frozen=True):
    """What was measured: its labels, a value on each axis, and how far the prediction was off.

    `log_error` is the logarithm of predicted over measured time, of a prediction that has not seen the page (or, of
    what has no constants, the row); `unknown` counts the columns that matter and were not stated.
    """

    group: str
    part: str
    kind: str
    chip: str
    stack: str
    ranks: str
    batch: str
    length: str
    size: str
    source: str
    log_error: float
    unknown: int


class Outlier(msgspec.Struct, frozen=True):
    """A measured row outside the band of its own configuration: what it is a row of, and its place on the axes."""

    id: str
    part: str
    kind: str
    chip: str
    stack: str
    ranks: str
    batch: str
    length: str
    size: str


def outliers() -> dict[tuple[str, str, str, str], dict[str, dict[str, float]]]:
    """Read the outliers: by part, kind of model, chip and stack, the place of each row on the axes where it has one."""
    places: dict[tuple[str, str, str, str], dict[str, dict[str, float]]] = {}
    for row in read_csv(OUTLIERS, Outlier):
        place = {axis: float(getattr(row, axis)) for axis in AXES if getattr(row, axis)}
        places.setdefault((row.part, row.kind, row.chip, row.stack), {})[row.id] = place
    return places


def read() -> tuple[dict[str, NDArray], NDArray, dict[str, NDArray], dict[str, Width]]:
    """Return the configurations side by side: labels, values by axis, errors; and the widths of groups."""
    rows = read_csv(HULLS, Row)
    labels = {name: np.array([getattr(row, name) for row in rows], dtype=object) for name in LABELS}
    values = np.array([[float(getattr(row, axis) or nan) for row in rows] for axis in AXES])
    errors = {name: np.array([getattr(row, name) for row in rows]) for name in ("source", "log_error", "unknown")}
    return labels, values, errors, {one.group: one for one in read_csv(BANDS, Width)}
