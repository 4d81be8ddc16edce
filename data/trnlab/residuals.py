"""Errors of runs of training and of watts, in the columns that errors of serving have: as shipped and left out.

`python -m trnlab.residuals` writes them into `data/evidence/residuals_runs.csv`. As shipped, a prediction is the one of
`tm.validate`; a left-out error is that of a fit that has not seen the row's model, or its page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnlab import energy, training
from trnmodel.catalog.load import DATA
from trnmodel.evidence.columns import ENERGY, TRAINING
from trnmodel.evidence.fit import log_errors
from trnmodel.evidence.grounds import grounds
from trnmodel.evidence.rows import save
from trnmodel.evidence.tables import FITTED, LEFT_OUT, OUTSIDE, SOURCE

if TYPE_CHECKING:
    import pandas as pd

RESIDUALS = DATA / "evidence" / "residuals_runs.csv"
WATTS = "watts of GPUs"


def as_shipped(of: Sequence[training.Case] | Sequence[energy.Case]) -> NDArray:
    """Errors of cases by the constants that are shipped: the one residual, as all other kinds of rows have it."""
    return np.expm1(log_errors([case.vote for case in of]))


def _training() -> Iterator[pd.DataFrame]:
    """Yield errors of the time of a step, by the group of its runs and by split."""
    fitted = {group: stack for stack, group in training.GROUPS.items()}
    for group in dict.fromkeys(case.row.group for case in training.cases()):
        of = training.cases(group)
        pages = {case.page for case in of}
        found: dict[str, NDArray] = {(FITTED if group in fitted else OUTSIDE): as_shipped(of)}
        if group in fitted:
            found[LEFT_OUT] = training.without_model(fitted[group])[:, 0]
            if len(pages) > 1:  # the constants of one page have no fit without it
                found[SOURCE] = training.without(fitted[group], lambda case: case.page)[:, 0]
        named = {"id": [case.row.id for case in of], "source": [case.page for case in of]}
        yield _table(of, f"{TRAINING}ing, {group}", found, named | {"measured": [case.measured_s for case in of]})


def _energy() -> Iterator[pd.DataFrame]:
    """Yield errors of the watts of a GPU at the printed rate, by split."""
    of = energy.cases()
    measured = np.array([case.measured_w for case in of])
    by_source = energy.left_out_watts(of, lambda case: case.page)
    left = {LEFT_OUT: energy.left_out_watts(of)[:, 0], SOURCE: by_source[:, 0]}
    named = {"id": [f"{ENERGY}-{i}" for i in range(len(of))], "source": [case.page for case in of]}
    errors = {FITTED: as_shipped(of)} | {split: found / measured - 1 for split, found in left.items()}
    yield _table(of, WATTS, errors, named | {"measured": measured})


def _table(of: Sequence[Any], group: str, errors: Mapping[str, NDArray], named: Mapping[str, Any]) -> pd.DataFrame:
    """Return errors of some cases by split, one split below the other, with what was asked of each."""
    import pandas as pd

    readings = [case.reading for case in of]
    asked = {
        "group": group,
        "meaning": [r.meaning for r in readings],
        "model": [r.model_id for r in readings],
        "where": [r.where for r in readings],
        "tp": [r.mapping[0] for r in readings],
        "batch": [r.batch for r in readings],
        **grounds(readings),
    }
    return pd.concat([pd.DataFrame({"split": split, **asked, **named, "error": e}) for split, e in errors.items()])


def residuals() -> pd.DataFrame:
    """Errors of every run of training and of every configuration with watts, as shipped and left out.

    Returns
    -------
    table : pandas.DataFrame
        split ("as fitted", or "outside the fits" where nothing was fitted to the group; "model left out"; "page left
        out", where a group has more than one page), group, meaning, model, where, sizes, id, source, measured (the time
        of a step, in s, or the watts of a GPU) and error (predicted over measured, minus 1). [-]
    """
    import pandas as pd

    return pd.concat([*_training(), *_energy()], ignore_index=True)


def shipped() -> pd.DataFrame:
    """Return the rows of `data/evidence/residuals_runs.csv`."""
    import pandas as pd

    return pd.read_csv(RESIDUALS)


def write() -> None:
    """Compute the errors anew and write them, six significant digits each."""
    save(residuals(), RESIDUALS)


if __name__ == "__main__":
    write()
