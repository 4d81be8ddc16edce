"""How well serving is predicted: errors by group and split, and by regime.

Fits without a model take some ten minutes, so their errors are rows of `data/evidence/residuals.csv`. `python -m
trnlab.accuracy` writes them anew, `python -m trnlab.accuracy bands` only what follows from them; a test checks that
they are those of the shipped efficiencies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trnlab import comparators, coverage, forms, pages
from trnlab.naive import regression
from trnlab.pages import named
from trnmodel.catalog.load import DATA
from trnmodel.evidence.cells import texts
from trnmodel.evidence.fit import MEANINGS, Case, cases, fitted_errors, labels, log_errors, readable
from trnmodel.evidence.meanings import PLAIN
from trnmodel.evidence.readings import is_rate
from trnmodel.evidence.records import check
from trnmodel.evidence.rows import (
    COLLECTIVES,
    COMPARATORS,
    POWERS,
    RUNS,
    published,
    read_rows,
    save,
)
from trnmodel.evidence.score import counted, validation
from trnmodel.evidence.search import left_out
from trnmodel.evidence.tables import BY, CHIP, FAMILY, FITTED, KERNELS, LEFT_OUT, OUTSIDE, SOURCE

if TYPE_CHECKING:
    import pandas as pd

RESIDUALS, KERNEL_RESIDUALS, OTHER_RESIDUALS = (
    DATA / "evidence" / f"residuals{of}.csv" for of in ("", "_kernels", "_outside")
)
BESIDE = (COMPARATORS, COLLECTIVES, RUNS, POWERS)  # tables with pages, beside the published rows
FILES: Mapping[Path, tuple[str, ...]] = {RESIDUALS: tuple(MEANINGS), KERNEL_RESIDUALS: KERNELS}
INSIDE = "model left out, form chosen inside"  # of the rows that the tried forms move
LEAVING: Mapping[str, Callable[[Case], str]] = {
    LEFT_OUT: lambda case: case.model,
    CHIP: lambda case: case.family,
}
UNFITTED = (
    "prefill, profiled MFU",
    "prefill, throughput",
    "encoders, throughput",
    "decode, bytes read",
    "decode, share of HBM",
    "whole static runs",
    "TTFT of a burst",
    "serving, throughput",
    "serving, latency of a request",
    "serving, TTFT in a queue",
    "serving, waiting in a queue",
    "steps cut into graphs",
    "GPUs in tables of Trainium",
    pages.OTHER,
    "memory footprint",
)  # uses that rules give rows, in the order of the table
SAME = "constants from these rows"
EVERYWHERE = "page left out everywhere"
UNSTATED = "platform not stated"


def _errors(of: Sequence[Case], group: str) -> Iterator[tuple[str, NDArray, NDArray | float]]:
    """Errors of a group's cases by split, and those of the naive regression; NaN for cases that a split is not of."""
    errors, regressed = fitted_errors(group), group in MEANINGS
    yield FITTED, np.expm1(log_errors(of)), regression(of, of) if regressed else np.nan
    for split, name in LEAVING.items():
        if len(set(map(name, of))) > 1 and (regressed or split == LEFT_OUT):
            rival = left_out(of, name, regression) if regressed and split == LEFT_OUT else np.nan
            yield split, left_out(of, name, errors), rival
    if group in forms.FORMS:
        yield INSIDE, forms.chosen_inside(of, group), np.nan
    seen = [case for case in of if case.family in ("trn1", "inf2")]
    both = {case.reading.stack for case in seen}
    later = [i for i, case in enumerate(of) if case.family == "trn2" and case.reading.stack in both]
    if regressed and later:
        test, found = [of[i] for i in later], np.full((2, len(of)), np.nan)
        found[:, later] = errors(seen, test), regression(seen, test)
        yield FAMILY, *found


def residuals(groups: Iterable[str] = MEANINGS) -> pd.DataFrame:
    """Errors of every unique configuration as fitted, with its model left out, and of Trn2 from Trn1 and Inf2.

    Returns
    -------
    table : pandas.DataFrame
        split, group, meaning, model, where, stack, shapes, measured (in s, or 1/s), error, naive_error. [-]
    """
    import pandas as pd

    with ProcessPoolExecutor() as workers:
        return pd.concat(workers.map(_residuals, groups), ignore_index=True)


def _residuals(group: str) -> pd.DataFrame:
    """Return the errors of one group, one split below the other."""
    import pandas as pd

    of = cases(published(), group)
    asked = {"group": group, **labels(of)}
    tables = [
        pd.DataFrame({"split": split, **asked, "error": error, "naive_error": naive}).dropna(subset="error")
        for split, error, naive in _errors(of, group)
    ]
    return pd.concat(tables, ignore_index=True)


def outside() -> pd.DataFrame:
    """Errors of configurations that no constant is fitted to, by what they are used for.

    Products of Trainium3 have constants of their own, so that theirs are the errors with their file left out. Rows
    whose platform is not stated say nothing of one.
    """
    import pandas as pd

    rows = counted(validation())
    rows = rows[~rows.use.isin([PLAIN, "model", UNSTATED, *KERNELS, *pages.APART_USES])]
    of = list(readable(texts(rows)))
    table = pd.DataFrame({**labels(of), "use": rows.use.to_numpy(), "error": rows.error.to_numpy()})
    table["error"] = pages.with_products(of, table.use, table.error)
    groups = [named(*row) for row in zip(table.use, table.part, table["on"], strict=True)]
    return table.assign(split=OUTSIDE, group=groups)


def shipped(path: Path = RESIDUALS) -> pd.DataFrame:
    """Return the rows of `data/evidence/residuals.csv`, or of that of kernels."""
    import pandas as pd

    return pd.read_csv(path)


def write() -> None:
    """Compute all residuals anew and write them, six significant digits each; rules that match nothing are refused."""
    check(row for table in (published(), *BESIDE) for row in read_rows(table))
    for path, groups in FILES.items():
        save(residuals(groups), path)
    write_bands()


def write_bands() -> None:
    """Write what follows from the errors as they are shipped: those outside the fits, widths, what was measured."""
    save(outside(), OTHER_RESIDUALS)
    coverage.write(left_out_rows(SOURCE))
    save(how_often(), coverage.COVERAGE, "%.4g")


def how_often() -> pd.DataFrame:
    """How often intervals hold (`coverage.summary`) by what is left out: `split` is the first column.

    With the page left out, other chips have their model left out, as their constants have; with the page left out
    everywhere, no row of a page says anything of another row of it.
    """
    import pandas as pd

    rows = left_out_rows(SOURCE)
    found = {SOURCE: coverage.held(rows, "left"), EVERYWHERE: coverage.held(rows, "source"), LEFT_OUT: held(LEFT_OUT)}
    tables = [coverage.summary(table).assign(split=split) for split, table in found.items()]
    return pd.concat(tables, ignore_index=True)[["split", *tables[0].columns.drop("split")]]


def left_out_rows(split: str = LEFT_OUT) -> pd.DataFrame:
    """Errors of configurations under a fit without them, where there is one, as logarithms of times.

    Ours and other chips'; of a rate the sign is turned. `left` is what was left out with each: what the split says, or
    of other chips the model. By page each configuration stands twice: as its page states it, which `informs`, and as a
    stranger reads it, which `tests`.

    Parameters
    ----------
    split : str
        "model left out", "chip left out" or "page left out". [-]
    """
    import pandas as pd

    column = "chip_left_out_error" if split == CHIP else "model_left_out_error"
    others = shipped(comparators.RESIDUALS)
    others = others.assign(error=others[column].fillna(others.chip_left_out_error))
    table = pd.concat([*_own(split), others], ignore_index=True)
    flags = {name: table[name].fillna(True).astype(bool) if name in table else True for name in ("tests", "informs")}
    table = table.assign(**flags)[np.isfinite(table.error)]
    sign = np.where([is_rate(meaning) for meaning in table.meaning], -1.0, 1.0)
    table = table.assign(log_error=sign * np.log1p(table.error)).reset_index(drop=True)
    table["pool"] = list(map(coverage.pool_of, table.group, table.part))
    paged = (split == SOURCE) & (table.pool != coverage.OTHERS) & (table.group != comparators.ALL_REDUCE)
    by = table[BY[CHIP]] if split == CHIP else table.model
    return table.assign(left=table.source.where(paged, by))


def _own(split: str) -> list[pd.DataFrame]:
    """Return the tables of errors of Trainium and Inferentia by a split; by page all rows stand in one."""
    if split == SOURCE:
        rows = shipped(pages.RESIDUALS)
        cells = rows.reading == pages.CELLS
        return [rows.assign(split=SOURCE, tests=cells, informs=~cells)[rows.use != UNSTATED]]
    own = [
        rows[rows.split.isin([split, LEFT_OUT] if path == KERNEL_RESIDUALS else [split])]
        for path, rows in ((path, shipped(path)) for path in FILES)
    ]
    return [*own, shipped(OTHER_RESIDUALS)]


def held(split: str = LEFT_OUT) -> pd.DataFrame:
    """Left-out errors of a split with the interval that all others give each, and a constant one: `coverage.held`."""
    return coverage.held(left_out_rows(split), "left")


if __name__ == "__main__":
    write_bands() if sys.argv[1:] == ["bands"] else write()
