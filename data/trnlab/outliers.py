"""Measured rows that lie outside the band of their own configuration: an answer there may not be called measured.

`python -m trnlab.outliers` writes `data/evidence/outliers.csv`, after `trnlab.accuracy` has
written the bands and before `trnlab.ratchet` writes the judged rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnlab.coverage import ROUNDING
from trnmodel.catalog.bands import AXES, LABELS, OUTLIERS
from trnmodel.evidence.cells import texts
from trnmodel.evidence.grounds import place, rows_basis_of, where
from trnmodel.evidence.readings import TRAINING, is_rate, reading
from trnmodel.evidence.rows import save
from trnmodel.evidence.score import validation

if TYPE_CHECKING:
    import pandas as pd

FIRM = ("measured", "interpolated")


def outliers(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that vote and lie outside the band that the rows of their configuration give.

    Parameters
    ----------
    judged : DataFrame
        Published rows as `tm.validation()` judges them; their words are not read. [-]

    Returns
    -------
    table : pandas.DataFrame
        The columns of `data/evidence/outliers.csv`. [-]
    """
    import pandas as pd

    voting, lines = judged[(judged.skipped == "") & (judged.weight > 0)], []
    for cells, error in zip(texts(voting), voting.error, strict=True):
        r = reading(cells)
        about = where(r)
        if about["part"] == TRAINING:
            continue  # whose steps have a basis of their own
        found = rows_basis_of(r)
        below, above = found.sides[::-1] if is_rate(r.meaning) else found.sides
        off = -np.log1p(error)  # of the measured value from the predicted one
        if found.word in FIRM and not -below - ROUNDING <= off <= above + ROUNDING:
            labels = dict(zip(LABELS[1:], about.values(), strict=True))
            lines.append({"id": cells["id"]} | labels | {axis: place(r).get(axis, np.nan) for axis in AXES})
    columns = ["id", *LABELS[1:], *AXES]
    return pd.DataFrame(lines, columns=columns).sort_values([*columns[1:], "id"], kind="stable", ignore_index=True)


if __name__ == "__main__":
    save(outliers(validation()), OUTLIERS)
