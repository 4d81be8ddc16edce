"""How well serving is predicted: errors by group and split, and by regime.

Fits without a model take some ten minutes, so their errors are rows of `data/evidence/residuals.csv`. `python -m
trnmodel.evidence.accuracy` writes them anew; a test checks that they are those of the shipped efficiencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.catalog.load import DATA
from trnmodel.evidence import comparators, coverage, forms
from trnmodel.evidence.fit import (
    MEANINGS,
    Case,
    accuracy,
    cases,
    family_split,
    fitted_errors,
    labels,
    left_out,
)
from trnmodel.evidence.grounds import document
from trnmodel.evidence.readings import is_rate, reading
from trnmodel.evidence.rows import (
    COLLECTIVES,
    COMPARATORS,
    LATER,
    MEASURED,
    PRODUCTS,
    SIDES,
    number,
    published,
    read_rows,
    save,
    texts,
    wide_rows,
)
from trnmodel.evidence.rules import PLAIN, check
from trnmodel.evidence.score import counted, validation

if TYPE_CHECKING:
    import pandas as pd

KERNELS = ("framework-compile", "framework-trace")  # groups of kernels that have fitted constants
RESIDUALS, KERNEL_RESIDUALS, OTHER_RESIDUALS = (
    DATA / "evidence" / f"residuals{of}.csv" for of in ("", "_kernels", "_outside")
)
FILES: Mapping[Path, tuple[str, ...]] = {RESIDUALS: tuple(MEANINGS), KERNEL_RESIDUALS: KERNELS}
FITTED, LEFT_OUT, FAMILY = "as fitted", "model left out", "Trn2 from Trn1 and Inf2"
CHIP, SOURCE = "chip left out", "source left out"
INSIDE = "model left out, form chosen inside"  # of the rows that the tried forms move
LEAVING: Mapping[str, Callable[[Case], str]] = {
    CHIP: lambda case: case.family,
    SOURCE: lambda case: case.source,
}  # splits beside that by model
SPLITS: Mapping[str, tuple[str, str]] = {
    FITTED: ("error", "naive_error"),
    LEFT_OUT: ("left_out_error", "naive_left_out_error"),
}
GROUPS: Mapping[str, str] = {
    "decode": "dense decode",
    "expert-decode": "MoE and hybrid decode",
    "prefill": "TTFT",
    "expert-prefill": "TTFT of MoE and hybrids",
    "encoder": "encoders, latency",
    "server": "TPOT under load",
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
    "memory footprint",
)  # uses that rules give rows, in the order of the table
OUTSIDE, SAME = "outside the fits", "constants from these rows"
UNSTATED, PRODUCTS_USE = "platform not stated", "tuned-gemm"


def ran_on_both(of: Iterable[Case]) -> set[str]:
    """Stacks of which some case ran on Trn1 or Inf2 and some on Trn2."""
    of = [case for case in of if isinstance(case.reading.stack, str)]
    before, after = (
        {case.reading.stack for case in of if case.family in names} for names in (("trn1", "inf2"), ("trn2",))
    )
    return before & after


def residuals(groups: Iterable[str] = MEANINGS) -> pd.DataFrame:
    """Errors of every unique configuration as fitted, with its model left out, and of Trn2 from Trn1 and Inf2.

    Returns
    -------
    table : pandas.DataFrame
        split, group, meaning, model, where, stack, shapes, measured (in s, or 1/s), error, naive_error. [-]
    """
    import pandas as pd

    frames = []
    rows, groups = published(), list(groups)
    for group in groups:
        table, of = accuracy(rows, group), cases(rows, group)
        asked = table.drop(columns=[name for pair in SPLITS.values() for name in pair])
        for split, (own, naive) in SPLITS.items():
            frames.append(asked.assign(split=split, group=group, error=table[own], naive_error=table[naive]))
        for split, name in LEAVING.items():
            if group in MEANINGS and len(set(map(name, of))) > 1:
                frames.append(asked.assign(split=split, group=group, error=left_out(of, name, fitted_errors(group))))
        if group in forms.FORMS:
            inside = asked.assign(split=INSIDE, group=group, error=forms.chosen_inside(of, group)[0])
            frames.append(inside.dropna(subset="error"))
        if group in MEANINGS and ran_on_both(of):
            frames.append(family_split(rows, group).assign(split=FAMILY, group=group))
    table = pd.concat(frames, ignore_index=True)
    last = ["error", "naive_error"]
    return table[["split", "group", *(name for name in table if name not in ("split", "group", *last)), *last]]


def outside(judged: pd.DataFrame | None = None) -> pd.DataFrame:
    """Errors of configurations that no constant is fitted to, by what they are used for.

    Products of Trainium3 have constants of their own, so that theirs are the errors with their file left out. Rows
    whose platform is not stated say nothing of one.
    """
    import pandas as pd

    rows = counted(validation() if judged is None else judged)
    rows = rows[~rows.use.isin([PLAIN, "model", UNSTATED, *KERNELS])]
    readings = [reading(cells) for cells in texts(rows)]
    measured = [number(row["value"]) * r.scale for row, r in zip(rows.to_dict("records"), readings, strict=True)]
    of = [Case(r, x, r.weight, document(source)) for r, x, source in zip(readings, measured, rows.source, strict=True)]
    table = pd.DataFrame({**labels(of), "use": rows.use.to_numpy(), "error": rows.error.to_numpy()})
    left = _left_products()
    shapes = [tuple(float(dict(case.reading.asked).get(name, 0)) for name in SIDES) for case in of]
    found = [left.get(shape, float(error)) for shape, error in zip(shapes, table.error, strict=True)]
    table["error"] = np.where(table.use == PRODUCTS_USE, found, table.error)
    named = table.part.isin(["kernel", "collective"])
    by_stack = (table.part + ", " + table["on"]).str.removesuffix(", ")
    return table.assign(split=OUTSIDE, group=by_stack.where(named, rows.use.to_numpy()))


def _left_products() -> dict[tuple[float, ...], float]:
    """Error of each product of Trainium3, by its sides, under constants fitted to the other files."""
    from trnmodel.evidence.kernels import product_accuracy

    table = product_accuracy()
    return dict(zip(zip(*(table[name] for name in SIDES), strict=True), table.left_out_error, strict=True))


def shipped(path: Path = RESIDUALS) -> pd.DataFrame:
    """The rows of `data/evidence/residuals.csv`, or of that of kernels."""
    import pandas as pd

    return pd.read_csv(path)


def write() -> None:
    """Compute all residuals anew and write them, six significant digits each; rules that match nothing are refused."""
    check(
        [row for path in (MEASURED, LATER, COMPARATORS, COLLECTIVES, PRODUCTS) for row in read_rows(path)] + wide_rows()
    )
    for path, groups in FILES.items():
        save(residuals(groups), path)
    write_bands()


def write_bands() -> None:
    """Write what follows from the errors as they are shipped: those outside the fits, widths, what was measured."""
    save(outside(), OTHER_RESIDUALS)
    coverage.write(left_out_rows())


def left_out_rows(split: str = LEFT_OUT) -> pd.DataFrame:
    """Errors of configurations under a fit without them, where there is one, as logarithms of times.

    Ours and other chips'; of a rate the sign is turned.

    Parameters
    ----------
    split : str
        "model left out", "chip left out" or "source left out". [-]
    """
    import pandas as pd

    column = "chip_left_out_error" if split == CHIP else "model_left_out_error"
    others = comparators.both()
    others = others.assign(error=others[column].fillna(others.chip_left_out_error))
    own = [rows[rows.split.isin([split, LEFT_OUT] if path == KERNEL_RESIDUALS else [split])]
           for path, rows in ((path, shipped(path)) for path in FILES)]  # fmt: skip
    table = pd.concat([*own, shipped(OTHER_RESIDUALS), others], ignore_index=True)
    table = table[np.isfinite(table.error) & (table.error > -1)]
    sign = np.where([is_rate(meaning) for meaning in table.meaning], -1.0, 1.0)
    table = table.assign(log_error=sign * np.log1p(table.error)).reset_index(drop=True)
    pools = list(map(coverage.pool_of, table.group, table.part))
    return table.assign(pool=pools, octaves=coverage.away(table, "model"))


BY: Mapping[str, str] = {LEFT_OUT: "model", CHIP: "chip", SOURCE: "source"}  # what a split leaves out


def held(split: str = LEFT_OUT) -> pd.DataFrame:
    """Left-out errors of a split with the interval that all others give each, and a constant one: `coverage.held`."""
    return coverage.held(left_out_rows(split), BY[split])


if __name__ == "__main__":
    write()
