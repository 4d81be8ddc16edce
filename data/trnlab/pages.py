"""Errors that a stranger meets: each page of measurements asked with constants and readings made without that page.

A page is read from the cells of its rows alone: what its text or its scripts state beyond them is known to whoever
wrote the page, and not to whoever brings another one. The constants of each group are fitted to the rows of all other
pages. `python -m trnlab.pages` writes `data/evidence/residuals_pages.csv`; it takes some ten minutes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.catalog.load import DATA
from trnmodel.evidence.columns import TRAINING
from trnmodel.evidence.fit import MEANINGS, USES, Case, Parameter, cases, fit, group_of, labels, readable, tuned, unique
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import MODELLESS
from trnmodel.evidence.rows import UnreadableRowError, published, save, texts

if TYPE_CHECKING:
    import pandas as pd

RESIDUALS = DATA / "evidence" / "residuals_pages.csv"
FITTED = (*MEANINGS, *(use for use in USES if use.startswith("framework")))  # groups with rows of Trainium


def constants_without(group: str, of: Sequence[Case]) -> dict[str, dict[Parameter, float]]:
    """Return the constants of a group fitted to the rows of all pages but one, by that page."""
    pages = dict.fromkeys(case.source for case in of)
    return {page: fit([case for case in of if case.source != page], group) for page in pages}


def by_page(groups: Sequence[str] = FITTED) -> dict[str, dict[Parameter, float]]:
    """Return the constants of all groups without a page, by page; others stay as they are shipped."""
    rows, found = published(), defaultdict[str, dict[Parameter, float]](dict)
    for group in groups:
        for page, values in constants_without(group, cases(rows, group)).items():
            found[page] |= values
    return found


def strangers() -> list[Case]:
    """Return the configurations of all rows as a stranger has them, read from their cells alone."""
    return unique(readable(texts(published()), statements=False))


def errors(of: Sequence[Case], without: Mapping[str, Mapping[Parameter, float]]) -> pd.DataFrame:
    """Return the error of each case under constants without its page, and with the chip's own software.

    Parameters
    ----------
    of : sequence of Case
        What is asked. [-]
    without : mapping
        Constants by page, fitted without the page. [-]

    Returns
    -------
    table : pandas.DataFrame
        What was asked of each case (`labels`), use, group, error and default_error (predicted over measured - 1; NaN
        where the chip's own software has no figure, or the question knows no software). [-]
    """
    import pandas as pd

    table = pd.DataFrame(labels(of))
    uses = [case.reading.use for case in of]
    groups = [group_of(case.reading) for case in of]
    pairs = [_pair(case, without.get(case.source, {})) for case in of]
    columns = dict(zip(("error", "default_error"), np.array(pairs).T, strict=True))
    return table.assign(use=uses, group=groups, **columns)


def _pair(case: Case, values: Mapping[Parameter, float]) -> tuple[float, float]:
    """Return the error of a case with its own software and with the chip's, under some constants."""
    tune, r, none = tuned(values) if values else None, case.reading, float("nan")
    own = predict(r, tune) / case.measured - 1
    if r.meaning.startswith((*MODELLESS, TRAINING)) or not r.stack:
        return own, none if r.stack else own
    with suppress(UnreadableRowError):
        return own, predict(replace(r, stack=""), tune) / case.measured - 1
    return own, none


def write() -> None:
    """Compute the errors by page anew and write them, six significant digits each."""
    save(errors(strangers(), by_page()), RESIDUALS)


if __name__ == "__main__":
    write()
