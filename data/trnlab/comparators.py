"""Measured inference on chips of others beside what the model gives for them: what is asked, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.catalog.load import DATA
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.evidence.cells import UnreadableRowError, measure
from trnmodel.evidence.fit import Case, cases, fitted_errors, labels, log_errors
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COLLECTIVES, COMPARATORS, read_rows, save
from trnmodel.evidence.search import left_out

if TYPE_CHECKING:
    import pandas as pd

ANALYTIC, GROUP, ALL_REDUCE = "analytic", "comparator", "gpu-all-reduce"
RESIDUALS = DATA / "evidence" / "residuals_comparators.csv"
LEFT_OUT: Mapping[str, Callable[[Case], str]] = {
    "model_left_out_error": lambda case: case.model,
    "chip_left_out_error": lambda case: case.reading.where,
}


def comparators(stack: str | Efficiencies | None = "ideal") -> pd.DataFrame:
    """Every measured row of other chips with its prediction, or the reason for none.

    Parameters
    ----------
    stack : str, Efficiencies or None
        "ideal" (nothing is lost: a bound), a stack fitted to such rows, or None for the public one of each chip;
        printed arithmetic is always ideal. [-]

    Returns
    -------
    table : pandas.DataFrame
        id, hardware, model, question, measured and predicted in the row's unit, error (predicted over measured,
        minus 1), analytic (the printed value is somebody's arithmetic) and reason. [-]
    """
    import pandas as pd

    lines = []
    for row in read_rows(COMPARATORS):
        line: dict[str, Any] = {"id": row["id"], "source": row["source"], "hardware": row["instance"]}
        line |= {"metric": row["metric"], "unit": row["unit"], "model": row["workload"], "question": ""}
        line |= {"predicted": np.nan, "error": np.nan, "reason": "", "measured": measure(row), "analytic": False}
        try:
            r = reading(row)
            line["analytic"] = r.use == ANALYTIC
            value = predict(r if line["analytic"] else replace(r, stack=stack)) / r.scale
            line |= {"question": r.meaning, "predicted": value, "error": value / line["measured"] - 1}
        except UnreadableRowError as reason:
            line["reason"] = str(reason)
        lines.append(line)
    return pd.DataFrame(lines)


def residuals() -> pd.DataFrame:
    """Errors of the GPU stack by configuration: ideal, as shipped, and fitted without the case's model or its chip.

    Fits without a model or a chip take some minutes, so they are rows of `data/evidence/residuals_comparators.csv`.
    """
    import pandas as pd

    tables = []
    for group, rows in ((ALL_REDUCE, COLLECTIVES), (GROUP, COMPARATORS)):
        of = cases(rows, group)
        ideal = [replace(case, reading=replace(case.reading, stack="ideal")) for case in of]
        found = {"error": np.expm1(log_errors(of)), "ideal_error": np.expm1(log_errors(ideal))}
        for column, name in LEFT_OUT.items():
            alone = group == ALL_REDUCE and column == "model_left_out_error"  # a message has no model
            found[column] = np.full(len(of), np.nan) if alone else left_out(of, name, fitted_errors(group))
        tables.append(pd.DataFrame({"group": group, **labels(of), **found}))
    return pd.concat(tables, ignore_index=True)


def shipped(group: str = GROUP) -> pd.DataFrame:
    """Return the rows of `data/evidence/residuals_comparators.csv` of one group.

    Examples
    --------
    >>> shipped("gpu-all-reduce")["where"].unique().tolist()
    ['hgx-a100', 'hgx-b200', 'gb200-nvl72', 'hgx-h100']
    """
    import pandas as pd

    rows = pd.read_csv(RESIDUALS)
    return rows[rows.group == group].reset_index(drop=True)


def write() -> None:
    """Compute the residuals anew and write them, six significant digits each."""
    save(residuals(), RESIDUALS)


def others(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of `comparators()` by question and chip: cases, and predicted over measured, median and quartiles.

    Rates are turned over, so that a machine that loses nothing stays below 1 throughout.
    """
    rows = table[(table.reason == "") & ~table.analytic].copy()
    ratio = 1 + rows.error
    rows["predicted_over_measured"] = ratio.where(rows.unit != "Gelement/s", 1 / ratio)
    grouped = rows.groupby(["question", "hardware"], sort=False).predicted_over_measured
    found = grouped.quantile([0.5, 0.25, 0.75]).unstack().set_axis(["median", "quartile_low", "quartile_high"], axis=1)
    return found.assign(cases=grouped.size()).reset_index()


def others_fitted(by: str = "meaning", group: str = GROUP) -> pd.DataFrame:
    """Median absolute error of the GPU stack by question, model or chip: ideal, fitted, its model or chip left out."""
    names = {"ideal_error": "ideal_median", "error": "median_error"}
    names |= {column: column.replace("error", "median") for column in LEFT_OUT}
    table = shipped(group).dropna(axis="columns", how="all")
    known = [column for column in names if column in table]
    errors = table.set_index(by)[known].abs().rename(columns=names)
    together = errors.groupby(level=0, sort=False)
    found = together.median().assign(cases=together.size()).reset_index()
    found.loc[len(found)] = errors.median().to_dict() | {by: "all", "cases": len(errors)}
    return found[[by, "cases", *errors.columns]]


if __name__ == "__main__":
    write()
