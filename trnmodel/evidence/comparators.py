"""Measured inference on chips of others beside what the model gives for them: what is asked, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.catalog.stacks import Efficiencies
from trnmodel.evidence.fit import accuracy, cases, log_errors
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COMPARATORS, UnreadableRowError, measure, read_rows

if TYPE_CHECKING:
    import pandas as pd

ANALYTIC, GROUP = "analytic", "comparator"


def comparators(stack: str | Efficiencies = "ideal") -> pd.DataFrame:
    """Every measured row of other chips with its prediction, or the reason for none.

    Parameters
    ----------
    stack : str or Efficiencies
        "ideal" (nothing is lost: a bound) or a stack fitted to such rows; printed arithmetic is always ideal. [-]

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
        line |= {
            "metric": row["metric"],
            "unit": row["unit"],
            "model": row["workload"],
            "question": "",
            "predicted": np.nan,
            "error": np.nan,
        }
        line |= {"reason": "", "measured": measure(row), "analytic": False}
        try:
            r = reading(row)
            line["analytic"] = r.use == ANALYTIC
            value = predict(r if line["analytic"] else replace(r, stack=stack)) / r.scale
            line |= {"question": r.meaning, "predicted": value, "error": value / line["measured"] - 1}
        except UnreadableRowError as reason:
            line["reason"] = str(reason)
        lines.append(line)
    return pd.DataFrame(lines)


def left_out() -> pd.DataFrame:
    """Errors of the GPU stack by configuration: ideal, as shipped, and fitted without the configuration's model."""
    ideal = [replace(case, reading=replace(case.reading, stack="ideal")) for case in cases(COMPARATORS, GROUP)]
    return accuracy(COMPARATORS, GROUP).assign(ideal_error=np.expm1(log_errors(ideal)))


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


def others_fitted(table: pd.DataFrame) -> pd.DataFrame:
    """`left_out()` by question: median absolute error ideal, fitted, and with the model left out."""
    names = {"ideal_error": "ideal_median", "error": "median_error", "left_out_error": "left_out_median"}
    errors = table.set_index("meaning")[list(names)].abs().rename(columns=names).rename_axis("question")
    together = errors.groupby(level=0, sort=False)
    found = together.median().assign(cases=together.size()).reset_index()
    total = errors.median().to_dict() | {"question": "all", "cases": len(errors)}
    found.loc[len(found)] = total
    return found[["question", "cases", *names.values()]]
