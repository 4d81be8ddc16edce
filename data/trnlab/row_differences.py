"""How far the errors of two rows of one page lie apart, by what the rows have in common.

A page is one cluster of one person, so that the distance says how well a measurement there tells another one there.
Errors are those of constants that have not seen the page; a repeat is the same question measured twice on a page.
`python -m trnlab.row_differences` writes `data/evidence/row_differences.csv`, after `trnlab.pages` and
`trnlab.ratchet` have written the rows that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from trnlab.pages import CELLS, RESIDUALS
from trnmodel.catalog.row_differences import PARTS, ROW_DIFFERENCES, SAME
from trnmodel.evidence import tables
from trnmodel.evidence.rows import save

if TYPE_CHECKING:
    import pandas as pd

SAME_VALUE = 1e-4  # of two values that lie no farther apart one is a copy
USES = ("model", "serving, throughput")


def row_differences() -> pd.DataFrame:
    """Return the columns of `data/evidence/row_differences.csv`."""
    import pandas as pd

    rows = pd.read_csv(RESIDUALS)
    rows = rows[rows.reading.eq(CELLS) & rows.use.isin(USES) & rows.part.isin(PARTS) & rows.error.notna()]
    parts = dict(zip(rows.meaning, rows.part, strict=True))
    pairs = pd.concat([_pairs(rows), _repeats(parts)], ignore_index=True)
    lines = [
        {"part": part, "same": same, "pairs": len(some), "pages": some.source.nunique()}
        | {"median_difference": float(f"{_median_by_page(some):.4g}")}
        for (part, same), some in pairs.groupby(["part", "same"])
    ]
    order = {name: place for place, name in enumerate((*PARTS, *SAME))}
    return pd.DataFrame(lines).sort_values(
        ["part", "same"], key=lambda names: names.map(order), ignore_index=True, kind="stable"
    )


def _pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of rows of one page that measure one part, with the most that they have in common."""
    import pandas as pd

    table = rows.reset_index(drop=True).assign(log_error=np.log1p(rows.error.to_numpy()), tp=rows.tp.fillna(0).array)
    both = table.reset_index().merge(table.reset_index(), on=["source", "part", "chip", "on"], suffixes=("", "_2"))
    both = both[both["index"] < both.index_2]
    one_model = both.model.eq(both.model_2)
    one_mapping = one_model & both["where"].eq(both.where_2) & both.tp.eq(both.tp_2)
    same = np.where(one_mapping, "mapping", np.where(one_model, "model", "chip"))
    return pd.DataFrame(
        {"part": both.part, "same": same, "source": both.source, "apart": (both.log_error - both.log_error_2).abs()}
    )


def _repeats(parts: Mapping[str, str]) -> pd.DataFrame:
    """Return how far the rows of one page apart lie that ask the same question, without copies."""
    judged = tables.judged()
    rows = judged[(judged.skipped == "") & (judged.weight > 0) & judged.meaning.isin(parts)]
    rows = rows.assign(log_error=np.log1p(rows.error), part=rows.meaning.map(parts), same="point")
    errors = rows.groupby(["part", "same", "source", "configuration"]).log_error
    apart = (errors.max() - errors.min()).rename("apart").reset_index()
    return apart[apart.apart > SAME_VALUE].drop(columns="configuration")


def _median_by_page(pairs: pd.DataFrame) -> float:
    """Return the median distance of pairs, to which each page contributes the same weight."""
    ordered = pairs.sort_values("apart", kind="stable")
    weights = (1 / ordered.groupby("source").source.transform("size")).cumsum().to_numpy()
    return float(ordered.apart.to_numpy()[np.searchsorted(weights, weights[-1] / 2)])


if __name__ == "__main__":
    save(row_differences(), ROW_DIFFERENCES)
