"""Intervals from errors that were left out, and how often they hold: the files that `catalog.bands` reads.

Widths are hierarchical split conformal (`formulas.bands`): a group's own quantile of left-out errors, drawn towards
that of its pool, and each side's own, drawn towards the group's. Errors are those of times: of a rate the sign turns.
`python -m trnlab.accuracy` writes both files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trnmodel.bands import Rows
from trnmodel.catalog.bands import BANDS, HULLS, LABELS, Width
from trnmodel.evidence.rows import save
from trnmodel.evidence.search import left_out
from trnmodel.formulas.bands import conformal_width, grown_width, interval_score, shrunk_width, tail_widths

if TYPE_CHECKING:
    import pandas as pd

POOLS = {"kernel": "kernels", "collective": "collectives"}  # by part; other chips are a pool, and so is all else
OTHERS, MODELS = "other chips", "models"
PLACE = {"ranks": "ranks", "batch": "sequences", "length": "length", "size": "size"}
TELLING = ["group", "part", "kind", "chip", "on", *PLACE.values()]


def pool_of(group: str, part: str) -> str:
    """Return groups whose widths are drawn together: of models, of other chips, of kernels, of collectives."""
    return OTHERS if group == "comparator" else POOLS.get(part, MODELS)


def away(rows: pd.DataFrame, by: str) -> NDArray:
    """Octaves from each row to the rows of all other names: what of another model is known about it."""

    def learned(train: list[int], test: list[int]) -> list[float]:
        base = known(rows.iloc[train], {})
        return [_octaves(base, row) for row in rows.iloc[test].to_dict("records")]

    return left_out(range(len(rows)), rows[by].to_list().__getitem__, learned)


def widths(rows: pd.DataFrame) -> dict[str, Width]:
    """Return the width of each group of left-out errors, at the rows: `log_error` over its growth with `octaves`."""
    at_rows = rows.log_error / grown_width(1.0, rows.octaves)
    together = {pool: float(conformal_width(some)) for pool, some in at_rows.groupby(rows.pool)}
    found = {}
    for (group, pool), some in at_rows.groupby([rows.group, rows.pool], sort=False):
        own, q0 = float(conformal_width(some)), together[pool]
        width = float(shrunk_width(own, len(some), q0))
        tails = (float(shrunk_width(tail, len(some), width)) for tail in tail_widths(some))
        found[group] = Width(group, pool, len(some), own, q0, width, *tails)
    return found


def hulls(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured, each configuration once."""
    table = rows[TELLING].drop_duplicates().sort_values(TELLING, kind="stable", ignore_index=True)
    return table.rename(columns={"on": "stack"} | {column: axis for axis, column in PLACE.items()})


def known(rows: pd.DataFrame, of: Mapping[str, Width]) -> Rows:
    """Rows and widths as `catalog.bands` has them."""
    labels = {name: rows[column].to_numpy(dtype=object) for name, column in zip(LABELS, TELLING, strict=False)}
    return Rows(labels, rows[[*PLACE.values()]].to_numpy(dtype=float).T, of)


def write(rows: pd.DataFrame, bands: Path = BANDS, measured: Path = HULLS) -> None:
    """Write widths and measured configurations, four and six significant digits."""
    import pandas as pd

    columns = [*Width.__struct_fields__]
    table = pd.DataFrame([[getattr(one, name) for name in columns] for one in widths(rows).values()], columns=columns)
    save(table, bands, "%.4g")
    save(hulls(rows), measured)


def held(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Left-out errors with the width that the rows of all other names give them, and that of a constant band.

    Parameters
    ----------
    rows : DataFrame
        Left-out errors (`log_error`, of a time) with what was asked of each. [-]
    by : str
        The column whose names are left out: "model", "chip" or "source". [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows with below, above, width (half of both), inside, score (Winkler's) and constant_width,
        constant_inside, constant_score. [-]
    """
    rows = rows[rows.part != "memory"]  # whose constants are of the same rows

    def learned(train: list[int], test: list[int]) -> list[tuple[float, float, float]]:
        others, some = rows.iloc[train], rows.iloc[test]
        base = known(others, widths(others))
        pools = {pool: float(conformal_width(others.log_error[others.pool == pool])) for pool in some.pool.unique()}
        return [(*_widths(base, row), pools[row["pool"]]) for row in some.to_dict("records")]

    left = left_out(range(len(rows)), rows[by].to_list().__getitem__, learned)
    found = rows.assign(**dict(zip(("below", "above", "constant_width"), left.T, strict=True)))
    found["width"] = (found.below + found.above) / 2
    for prefix, below, above in (("", found.below, found.above), ("constant_", *[found.constant_width] * 2)):
        found[f"{prefix}inside"] = (found.log_error <= below) & (-found.log_error <= above)
        found[f"{prefix}score"] = interval_score(found.log_error, below, above)
    return found


def _asked(row: Mapping) -> tuple[tuple[str, str, str, str], dict[str, float]]:
    points = {axis: row[column] for axis, column in PLACE.items() if np.isfinite(row[column])}
    return (row["part"], row["kind"], row["chip"], row["on"]), points


def _octaves(base: Rows, row: Mapping) -> float:
    asked, points = _asked(row)
    here = base.near(*asked)
    return float(here.distance(points)[0]) + here.away


def _widths(base: Rows, row: Mapping) -> tuple[float, float]:
    """Return the half-widths below and above that a row would have been given."""
    here, octaves = base.near(*_asked(row)[0]), _octaves(base, row)
    below, above = (float(grown_width(width, octaves)) for width in here.tails or (here.width, here.width))
    return below, above
