"""Which shipped measurements lie nearest to a row of anybody, and how far the model was off for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.load import DATA
from trnmodel.declared import Checked, Integer, declare
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.grounds import sizes, where
from trnmodel.evidence.questions import predicted
from trnmodel.evidence.readings import Reading
from trnmodel.evidence.score import readable
from trnmodel.neighbours import ABSENT_OCTAVES, coordinates, places_of

if TYPE_CHECKING:
    import pandas as pd

AXES = ("ranks", "sequences", "length", "size")
LABELS = ("kind", "chip", "on")
TEXTS = ("meaning", "model", "where", "stack", "source")
NUMBERS = ("tp", "batch", "context", "prompt", "measured", "error")
# the errors of each configuration: those of a prediction that has not seen its page, where there are such
FILES = {
    "residuals_pages": ("reading", {"stated": "page left out"}),
    "residuals_runs": (
        "split",
        {name: name for name in ("page left out", "model left out", "as fitted", "outside the fits")},
    ),
    "residuals_comparators": ("", {"": "as fitted"}),
}
PIECE = 2**20  # distances at a time
COLUMNS = (
    "row",
    "rank",
    "octaves",
    *TEXTS[:4],
    "tp",
    "batch",
    "context",
    "prompt",
    "measured",
    "error",
    "split",
    "source",
)


class Shipped(NamedTuple):
    """The shipped configurations with their errors, and their places on the axes."""

    table: pd.DataFrame
    places: NDArray


@cache
def _shipped() -> Shipped:
    """Return every shipped configuration once, with the error that has seen least of it."""
    import pandas as pd

    parts = []
    for name, (column, splits) in FILES.items():
        rows = pd.read_csv(DATA / "evidence" / f"{name}.csv", dtype=str, keep_default_na=False)
        for order, (value, split) in enumerate(splits.items()):
            some = rows if not column else rows[rows[column] == value]
            parts.append(some.assign(split=split, order=order))
    table = pd.concat(parts, ignore_index=True).fillna("")
    same = [
        "meaning",
        "model",
        "where",
        "tp",
        "batch",
        "context",
        "prompt",
        "ranks",
        "length",
        "size",
        "source",
        "measured",
    ]
    table = table.sort_values("order", kind="stable").drop_duplicates(same).sort_index().reset_index(drop=True)
    for column in (*NUMBERS, *AXES):
        table[column] = pd.to_numeric(table[column], errors="coerce")
    return Shipped(table, places_of(table[[*AXES]].to_numpy(float).T))


@declare(
    passes_on=True,
    rows=Checked(
        "a table of measurements, one row of it as a mapping, or the path of its CSV file", {"type": "object"}
    ),
    count=Integer(1, 100),
    models=Checked("a mapping of names to models of your own", {"type": "object"}),
)
def nearest(
    rows: pd.DataFrame | Mapping[str, Any] | str | Path, count: int = 5, models: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return the shipped measurements that lie nearest to each row, with the error of the model for them.

    The distance is counted in octaves: the logarithms to base two of the ratios in ranks, sequences, length and active
    parameters, added up, and two octaves for each of kind of model, chip and software that differ. Only rows of one
    part are compared: decode steps with decode steps, first tokens with first tokens.

    Parameters
    ----------
    rows : DataFrame, mapping or path
        Measurements in the columns that `tm.validate` takes. [-]
    count : int
        Measurements for each row, at most. [-]
    models : mapping, optional
        Workload name to model, as for `tm.validate`. [-]

    Returns
    -------
    table : pandas.DataFrame
        `row` (the label of the row in `rows`), `rank` from 1 on, `octaves`, what was measured there (`meaning`,
        `model`, `where`, `stack`, `tp`, `batch`, `context`, `prompt`, `measured` in base units), `error` (predicted /
        measured - 1), `split` (what that prediction had not seen), and `source`. A row that cannot be asked has none.

    Raises
    ------
    ValueError
        What is given is no such table, or `count` is no whole number from 1 to 100.

    Examples
    --------
    >>> row = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 2048}
    >>> table = nearest(row | {"metric": "TPOT", "value": 9.5, "unit": "ms"}, count=2)
    >>> table["rank"].tolist(), bool(table.octaves.is_monotonic_increasing)
    ([1, 2], True)
    """
    import pandas as pd

    readings = {label: r for label, _, r in readable(rows, models)}
    answers = predicted(readings.values())
    possible = {label: r for label, r in readings.items() if not isinstance(answers[r], UnreadableRowError)}
    near = [_of_part(part, some, count) for part, some in _by_part(possible).items()]
    return pd.concat([pd.DataFrame(columns=list(COLUMNS)), *near]) if near else pd.DataFrame(columns=list(COLUMNS))


def _by_part(readings: Mapping[Any, Reading]) -> dict[str, list[tuple[Any, Reading]]]:
    parts: dict[str, list[tuple[Any, Reading]]] = {}
    for label, r in readings.items():
        parts.setdefault(where(r)["part"], []).append((label, r))
    return parts


def _of_part(part: str, readings: list[tuple[Any, Reading]], n: int) -> pd.DataFrame:
    """Return the nearest shipped rows of a part for each of some readings."""
    import pandas as pd

    shipped = _shipped()
    here = np.flatnonzero(shipped.table["part"].to_numpy() == part)
    labels = [shipped.table[name].to_numpy()[here] for name in LABELS]
    count, size = min(n, len(here)), max(1, PIECE // max(len(here), 1))
    pieces = []
    for first in range(0, len(readings) if count else 0, size):
        some = readings[first : first + size]
        octaves = _octaves([r for _, r in some], shipped.places[:, here], labels)
        order = np.argsort(octaves, axis=1, kind="stable")[:, :count]
        rows = shipped.table.iloc[here[order.ravel()]].reset_index(drop=True)
        pieces.append(
            rows.assign(
                row=[label for label, _ in some for _ in range(count)],
                rank=np.tile(np.arange(1, count + 1), len(some)),
                octaves=np.take_along_axis(octaves, order, axis=1).ravel(),
            )[[*COLUMNS]]
        )
    return pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=list(COLUMNS))


def _octaves(readings: list[Reading], places: NDArray, labels: list[NDArray]) -> NDArray:
    """Return the octaves from each reading to each shipped row: over the axes that both have, and for other labels."""
    octaves = np.zeros((len(readings), places.shape[1]))
    values = [sizes(r) for r in readings]
    for axis, at in zip(AXES, places, strict=True):
        own = np.array([one[axis] for one in values])
        here = np.where(np.isnan(own), math.nan, coordinates(own))
        octaves += np.nan_to_num(np.abs(here[:, None] - at), nan=0.0)
    for name, of_rows in zip(LABELS, labels, strict=True):
        own_labels = np.array([where(r)[name] for r in readings], dtype=object)
        octaves += ABSENT_OCTAVES * (own_labels[:, None] != of_rows)
    return octaves
