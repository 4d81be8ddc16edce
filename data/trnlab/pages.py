"""Errors that a stranger meets: each page of measurements asked with constants and readings made without that page.

A page is read from the cells of its rows alone: what its text or its scripts state beyond them is known to whoever
wrote the page, and not to whoever brings another one. Beside that stands the error with what the page states. The
constants of each group are fitted to the rows of all other pages. `python -m trnlab.pages` writes
`data/evidence/residuals_pages.csv`; it takes some five minutes on two cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.catalog.load import DATA
from trnmodel.evidence.cells import UnreadableRowError, texts
from trnmodel.evidence.columns import ENERGY, TRAINING
from trnmodel.evidence.fit import MEANINGS, USES, Case, Parameter, cases, fit, group_of, labels, readable, tuned, unique
from trnmodel.evidence.grounds import PLAIN
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import MODELLESS
from trnmodel.evidence.rows import SIDES, published, save

if TYPE_CHECKING:
    import pandas as pd

RESIDUALS = DATA / "evidence" / "residuals_pages.csv"
APART = (TRAINING, ENERGY)  # judged by `trnlab.residuals`
OTHER = "percentiles and totals"  # of steps and prompts, to which no constant is fitted
CELLS, STATED = "cells", "stated"  # what a page is read from
APART_USES = ("training", "energy")
PRODUCTS_USE = "tuned-gemm"
FITTED = (*MEANINGS, *(use for use in USES if use.startswith("framework")))  # groups with rows of Trainium


def _without(page: str, group: str, of: Sequence[Case]) -> dict[Parameter, float]:
    """Return the constants of a group fitted to the rows of all pages but one."""
    return fit([case for case in of if case.source != page], group)


def by_page(groups: Sequence[str] = FITTED) -> dict[str, dict[Parameter, float]]:
    """Return the constants of all groups without a page, by page; others stay as they are shipped.

    Parameters
    ----------
    groups : sequence of str
        Groups whose constants are fitted anew, all those with rows of Trainium by default. [-]

    Returns
    -------
    constants : dict
        Page to constants, fitted to the rows of all other pages. [base units]
    """
    rows, constants = published(), defaultdict[str, dict[Parameter, float]](dict)
    with ProcessPoolExecutor() as workers:
        for group in groups:
            of = cases(rows, group)
            pages = [*dict.fromkeys(case.source for case in of)]
            for page, values in zip(pages, workers.map(partial(_without, group=group, of=of), pages), strict=True):
                constants[page] |= values
    return constants


def configurations(statements: bool) -> list[Case]:
    """Return the configurations of all rows but those of training and watts.

    Parameters
    ----------
    statements : bool
        Whether rows are read with what their pages state beyond their cells, or from their cells alone. [-]

    Returns
    -------
    cases : list of Case
        One for each configuration, with the median of what was measured. [base units]
    """
    rows = readable(texts(published()), statements)
    return unique(case for case in rows if not case.reading.meaning.startswith(APART))


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

    table = pd.DataFrame(labels(of)).assign(use=[case.reading.use for case in of])
    lines = zip(of, table.use, table.part, table["on"], strict=True)
    table["group"] = [group_of(case.reading) or named(use, part, on) for case, use, part, on in lines]
    pairs = [_pair(case, without.get(case.source, {})) for case in of]
    columns = dict(zip(("error", "default_error"), np.array(pairs).T, strict=True))
    return table.assign(**columns | {"error": with_products(of, table.use, columns["error"])})


def with_products(of: Sequence[Case], uses: Iterable[str], errors: Iterable[float]) -> list[float]:
    """Return errors, those of products of Trainium3 under constants fitted to the other files of their shapes.

    Parameters
    ----------
    of : sequence of Case
        What is asked. [-]
    uses : iterable of str
        What each of them is used for. [-]
    errors : iterable of float
        Predicted over measured - 1 under the constants in force. [-]

    Returns
    -------
    errors : list of float
        The same, but for products of Trainium3. [-]
    """
    from trnlab.kernels import product_accuracy

    table = product_accuracy()
    left = dict(zip(zip(*(table[name] for name in SIDES), strict=True), table.left_out_error, strict=True))
    shapes = [tuple(float(dict(case.reading.arguments).get(name, 0)) for name in SIDES) for case in of]
    lines = zip(shapes, uses, errors, strict=True)
    return [left.get(shape, error) if use == PRODUCTS_USE else error for shape, use, error in lines]


def named(use: str, part: str, on: str) -> str:
    """Return the group of rows that no constant is fitted to: kernels by how they are written, others by their use.

    Examples
    --------
    >>> named("tuned-nki", "kernel", "stack-nki"), named("one", "collective", ""), named("dma", "memory", "")
    ('kernel, stack-nki', 'collective', 'dma')
    """
    if part in PLAIN:
        return f"{part}, {on}".removesuffix(", ")
    return OTHER if use == "model" else use


def _pair(case: Case, values: Mapping[Parameter, float]) -> tuple[float, float]:
    """Return the error of a case with its own software and with the chip's, under some constants."""
    tune, r, none = tuned(values) if values else None, case.reading, float("nan")
    own = predict(r, tune) / case.measured - 1
    if r.meaning.startswith(MODELLESS) or not r.stack:
        return own, none if r.stack else own
    with suppress(UnreadableRowError):
        return own, predict(replace(r, stack=""), tune) / case.measured - 1
    return own, none


def write() -> None:
    """Compute the errors by page anew, of both readings, and write them, six significant digits each."""
    import pandas as pd

    without = by_page()
    tables = [errors(configurations(name == STATED), without).assign(reading=name) for name in (CELLS, STATED)]
    save(pd.concat(tables, ignore_index=True), RESIDUALS)


if __name__ == "__main__":
    write()
