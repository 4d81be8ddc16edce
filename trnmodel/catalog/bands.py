"""The files of intervals: widths of left-out errors by group, and every configuration that was measured.

`python -m trnlab.accuracy` writes `data/evidence/bands.csv`, a line for each group, and
`data/evidence/hulls.csv`, a line for each configuration; `trnmodel.bands` judges questions by them. `python -m
trnlab.outliers` writes `data/evidence/outliers.csv`, the measured rows that lie outside the band of their
own configuration.
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
    """A group of measured configurations: its own quantile, that of its pool, and the width between them.

    `below` and `above` are those of a time of the group where its chip has rows: errors of one sign can be larger.
    """

    group: str
    pool: str
    cases: int
    quantile: float
    pooled: float
    width: float
    below: float
    above: float


class Row(msgspec.Struct, frozen=True):
    """What was measured: part of the model that is asked, kind of model, chip, stack, and a value on each axis."""

    group: str
    part: str
    kind: str
    chip: str
    stack: str
    ranks: str
    batch: str
    length: str
    size: str


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


def read() -> tuple[dict[str, NDArray], NDArray, dict[str, Width]]:
    """Return the configurations side by side, by label and by axis, and the widths of groups."""
    rows = read_csv(HULLS, Row)
    labels = {name: np.array([getattr(row, name) for row in rows], dtype=object) for name in LABELS}
    values = np.array([[float(getattr(row, axis) or nan) for row in rows] for axis in AXES])
    return labels, values, {one.group: one for one in read_csv(BANDS, Width)}
