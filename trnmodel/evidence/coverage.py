"""Intervals from errors that were left out, and how often they hold: the files that `catalog.bands` reads.

Widths are hierarchical split conformal (`formulas.bands`): a group's own quantile of left-out errors, drawn towards
that of its pool. `python -m trnmodel.evidence.accuracy` writes both files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.catalog.bands import BANDS, HULLS, Row, Rows, Width, judged, lacks
from trnmodel.formulas.bands import conformal_width, interval_score, shrunk_width

if TYPE_CHECKING:
    import pandas as pd

POOLS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel",),
    "collectives": ("collective",),
}  # by part; other chips are a pool, and so is all else
OTHERS, MODELS = "other chips", "models"
PLACE = {"ranks": "ranks", "batch": "sequences", "length": "length", "size": "size"}
TELLING = ["group", "part", "kind", "chip", "on", *PLACE.values()]


def pool_of(group: str, part: str) -> str:
    """Groups whose widths are drawn towards one another: of models, of other chips, of kernels, of collectives."""
    found = next((name for name, parts in POOLS.items() if part in parts), MODELS)
    return OTHERS if group == "comparator" else found


def widths(rows: pd.DataFrame) -> list[Width]:
    """The width of each group of left-out errors (a column `log_error`), in the order of its rows."""
    pools = [pool_of(group, part) for group, part in zip(rows.group, rows.part, strict=True)]
    together = {
        pool: float(conformal_width(some.log_error)) for pool, some in rows.groupby(np.array(pools, dtype=object))
    }
    found = []
    for (group, pool), some in rows.groupby([rows.group, np.array(pools, dtype=object)], sort=False):
        own, q0 = float(conformal_width(some.log_error)), together[pool]
        found.append(Width(group, pool, len(some), own, q0, float(shrunk_width(own, len(some), q0))))
    return found


def hulls(rows: pd.DataFrame) -> pd.DataFrame:
    """What was measured, each configuration once."""
    table = rows[TELLING].drop_duplicates().sort_values(TELLING, kind="stable", ignore_index=True)
    return table.rename(columns={"on": "stack"} | {column: axis for axis, column in PLACE.items()})


def known(rows: pd.DataFrame) -> Rows:
    """Rows and widths as `catalog.bands` has them, of a table of left-out errors."""
    cells = hulls(rows).astype(object).where(lambda table: table.notna(), "")
    return Rows([Row(*map(str, row)) for row in cells.itertuples(index=False)], widths(rows))


def write(rows: pd.DataFrame, bands: Path = BANDS, measured: Path = HULLS) -> None:
    """Write widths and measured configurations, four and six significant digits."""
    import pandas as pd

    columns = [*Width.__struct_fields__]
    table = pd.DataFrame([[getattr(one, name) for name in columns] for one in widths(rows)], columns=columns)
    table.to_csv(bands, index=False, float_format="%.4g", lineterminator="\n")
    hulls(rows).to_csv(measured, index=False, float_format="%.6g", lineterminator="\n")


def held(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Left-out errors with the width that the rows of all other names give them, and that of a constant band.

    Parameters
    ----------
    rows : DataFrame
        Left-out errors (`log_error`) with what was asked of each. [-]
    by : str
        The column whose names are left out: "model", "chip" or "source". [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows with width, inside, score (Winkler's) and constant_width, constant_inside, constant_score. [-]
    """
    found = rows.assign(width=np.nan, constant_width=np.nan)
    pools = np.array([pool_of(group, part) for group, part in zip(rows.group, rows.part, strict=True)], dtype=object)
    for name, some in rows.groupby(by, sort=False):
        others = rows[by] != name
        base = known(rows[others])
        found.loc[some.index, "width"] = [_width(base, row) for row in some.to_dict("records")]
        for pool in set(pools[~others]):
            rest = rows.log_error[others & (pools == pool)]
            found.loc[some.index[pools[~others] == pool], "constant_width"] = conformal_width(rest)
    for prefix in ("", "constant_"):
        width = found[f"{prefix}width"]
        found[f"{prefix}inside"] = found.log_error.abs() <= width
        found[f"{prefix}score"] = interval_score(found.log_error, width)
    return found.assign(pool=pools)


def _width(base: Rows, row: Mapping) -> float:
    """The half-width that a row would have been given."""
    asked = row["part"], row["kind"], row["chip"], row["on"]
    here = base.near(*asked)
    points = {axis: row[column] for axis, column in PLACE.items() if np.isfinite(row[column])}
    return float(judged(here, points, (), lacks(here, *asked)).width)
