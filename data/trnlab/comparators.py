"""Measured inference on chips of others beside what the model gives for them: what is asked, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.load import DATA
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import chip_of
from trnmodel.evidence.cells import UnreadableRowError, measure
from trnmodel.evidence.fit import Case, Parameter, cases, fit, fitted_errors, labels, log_errors, tuned
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import machine, reading
from trnmodel.evidence.rows import COLLECTIVES, COMPARATORS, read_rows, save
from trnmodel.evidence.search import left_out

if TYPE_CHECKING:
    import pandas as pd

ANALYTIC, GROUP, ALL_REDUCE = "analytic", "comparator", "gpu-all-reduce"
RESIDUALS = DATA / "evidence" / "residuals_comparators.csv"


def _size(case: Case) -> float:
    return float(dict(case.reading.arguments).get("message_bytes", np.nan))


LEFT_OUT: Mapping[str, Callable[[Case], str]] = {
    "model_left_out_error": lambda case: case.model,
    "chip_left_out_error": lambda case: case.reading.where,
    "size_left_out_error": lambda case: f"{case.reading.where}, {_size(case):.0f} B",
}
LEAVES: Mapping[str, tuple[str, ...]] = {  # what is left out of a group: a message has no model
    GROUP: ("model_left_out_error", "chip_left_out_error"),
    ALL_REDUCE: ("chip_left_out_error", "size_left_out_error"),
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

    An all-reduce is also predicted by constants of its chip that were fitted to the chip's other sizes. Fits without a
    model, a chip or a size take some minutes, so they are rows of `data/evidence/residuals_comparators.csv`.
    """
    import pandas as pd

    tables = []
    for group, rows in ((ALL_REDUCE, COLLECTIVES), (GROUP, COMPARATORS)):
        of = cases(rows, group)
        ideal = [replace(case, reading=replace(case.reading, stack="ideal")) for case in of]
        found = {"error": np.expm1(log_errors(of)), "ideal_error": np.expm1(log_errors(ideal))}
        for column, name in LEFT_OUT.items():
            errors = ERRORS.get((group, column), fitted_errors(group))
            found[column] = left_out(of, name, errors) if column in LEAVES[group] else np.full(len(of), np.nan)
        tables.append(pd.DataFrame({"group": group, **labels(of), **found}))
    return pd.concat(tables, ignore_index=True)


def elsewhere_errors(train: list[Case], test: list[Case]) -> NDArray:
    """Errors of all-reduces of chips without rows: each constant is the middle of what other chips' rows give it."""
    values, seen = fit(train, ALL_REDUCE), {chip_of(machine(case.reading)).id for case in train}
    middles: dict[Parameter, float] = {}
    for p in values:
        field = p.fields[0]
        known = [x for q, x in values.items() if q.fields[0] == field and q.quantity.partition(":")[2] in seen]
        own = p.quantity.partition(":")[2] in seen
        middles[p] = values[p] if own else (min(known) + max(known)) / 2
    return np.expm1(log_errors(test, tuned(middles)))


def own_errors(train: list[Case], test: list[Case]) -> NDArray:
    """Errors of all-reduces by constants that were fitted to the other rows of their chips alone."""
    chips = {case.reading.where for case in test}
    return fitted_errors(ALL_REDUCE)([case for case in train if case.reading.where in chips], test)


ERRORS = {
    (ALL_REDUCE, "chip_left_out_error"): elsewhere_errors,
    (ALL_REDUCE, "size_left_out_error"): own_errors,
}


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
