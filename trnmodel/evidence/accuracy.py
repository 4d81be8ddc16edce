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
    parameters,
)
from trnmodel.evidence.grounds import document
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import (
    COLLECTIVES,
    COMPARATORS,
    LATER,
    MEASURED,
    PRODUCTS,
    number,
    published,
    read_rows,
    texts,
    wide_rows,
)
from trnmodel.evidence.rules import PLAIN, check
from trnmodel.evidence.score import counted, errors_of, validation

if TYPE_CHECKING:
    import pandas as pd

TARGETS = DATA / "evidence" / "targets.csv"
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


def outside() -> pd.DataFrame:
    """Errors of configurations that no constant is fitted to, by what they are used for."""
    import pandas as pd

    rows = counted(validation())
    rows = rows[~rows.use.isin([PLAIN, "model", *KERNELS])]
    readings = [reading(cells) for cells in texts(rows)]
    measured = [number(row["value"]) * r.scale for row, r in zip(rows.to_dict("records"), readings, strict=True)]
    of = [Case(r, x, r.weight, document(source)) for r, x, source in zip(readings, measured, rows.source, strict=True)]
    table = pd.DataFrame({**labels(of), "error": rows.error.to_numpy()})
    named = table.part.isin(["kernel", "collective"])
    by_stack = (table.part + ", " + table["on"]).str.removesuffix(", ")
    return table.assign(split=OUTSIDE, group=by_stack.where(named, rows.use.to_numpy()))


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
        residuals(groups).to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    write_bands()


def write_bands() -> None:
    """Write what follows from the errors as they are shipped: those outside the fits, widths, what was measured."""
    outside().to_csv(OTHER_RESIDUALS, index=False, float_format="%.6g", lineterminator="\n")
    coverage.write(left_out_rows())


def left_out_rows(split: str = LEFT_OUT) -> pd.DataFrame:
    """Errors of configurations under a fit without them, where there is one, as logarithms: ours and other chips'.

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
    table = table.assign(log_error=np.log1p(table.error)).reset_index(drop=True)
    pools = list(map(coverage.pool_of, table.group, table.part))
    return table.assign(pool=pools, octaves=coverage.away(table, "model"))


COLUMNS = "group split cases median_error mean_error p90_error bias coverage width score constant_score".split()
COLUMNS += "aside_share noise naive_median naive_mean target_median target_mean target_p90 worst_error models".split()
COLUMNS += "constants forms".split()
EXCUSED = r"one run|same run|rounded|^GPU"  # copies, percentiles, rounding; chips of others
BY: Mapping[str, str] = {LEFT_OUT: "model", CHIP: "chip", SOURCE: "source"}  # what a split leaves out


def _line(group: str, split: str, rows: pd.DataFrame) -> dict:
    naive = rows.naive_error.abs() if "naive_error" in rows else np.array([np.nan])
    line = {
        "group": group,
        "split": split,
        **errors_of(rows),
        "p90_error": rows.error.abs().quantile(0.9),
        "naive_median": np.nan if np.all(np.isnan(naive)) else np.nanmedian(naive),
        "naive_mean": np.nan if np.all(np.isnan(naive)) else np.nanmean(naive),
        "models": rows.model.nunique(),
    }
    if "inside" in rows:
        line |= {"coverage": rows.inside.mean(), "width": rows.width.median()}
        line |= {"score": rows.score.mean(), "constant_score": rows.constant_score.mean()}
    return line


def held(split: str = LEFT_OUT) -> pd.DataFrame:
    """Left-out errors of a split with the interval that all others give each, and a constant one: `coverage.held`."""
    return coverage.held(left_out_rows(split), BY[split])


def targets() -> dict[str, tuple[float, float, float]]:
    """Median, mean and 90th percentile that a group is to reach; NaN where none is named."""
    import pandas as pd

    table = pd.read_csv(TARGETS).set_index("group")
    return {group: tuple(row) for group, row in table[["median", "mean", "p90"]].iterrows()}


def _also(rows: pd.DataFrame) -> pd.DataFrame:
    """By use of a row: the share of predicted rows that is set aside, and how far repeats of a configuration differ."""
    predicted = rows[(rows.skipped == "") & ~rows.set_aside.str.contains(EXCUSED)]
    aside = predicted.weight.eq(0).groupby(predicted.label).mean()
    repeats = predicted[predicted.weight > 0].groupby(["label", "configuration"]).error
    apart = ((1 + repeats.max()) / (1 + repeats.min()) - 1)[repeats.size() > 1]
    return aside.to_frame("aside_share").join(apart.groupby("label").median().rename("noise"))


def _labels(rows: pd.DataFrame) -> list[str]:
    """The line of the table that each predicted row belongs to: of a fitted group, or its use."""
    fitted = dict(zip(shipped()[["meaning", "model"]].itertuples(index=False), shipped().group, strict=True))
    found = zip(rows.use, rows.meaning, rows.model, strict=True)
    return [
        use if use in UNFITTED else GROUPS.get(fitted.get((meaning, model), ""), "") for use, meaning, model in found
    ]


def accuracy_table(table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Absolute errors by group and split, one vote a configuration, with intervals, rivals and targets beside.

    Returns
    -------
    table : pandas.DataFrame
        group, split, cases, median_error, mean_error, p90_error, bias; coverage of the 90 % interval that all other
        models, chips or sources give, its width (half of it, in logarithms) and Winkler's score, with that of a
        constant width; aside_share (of predicted rows), noise (median of how far repeats of a configuration differ),
        naive_median, naive_mean, target_median, target_mean, target_p90, worst_error, models;
        constants that the group's rows fit (at most one for ten cases), and forms of its law that were tried. [-]
    """
    import pandas as pd

    every = validation() if table is None else table
    rows, fits = counted(every), shipped()
    lines = [
        _line(GROUPS[group], split, some)
        for (group, split), some in fits[~fits.split.isin(BY)].groupby(["group", "split"], sort=False)
    ]
    for split in BY.keys() & set(fits.split):
        kept = held(split)
        for group, some in kept[kept.group.isin([*GROUPS, *(UNFITTED if split == LEFT_OUT else ())])].groupby("group"):
            lines.append(_line(GROUPS.get(group, group), split if group in GROUPS else OUTSIDE, some))
    footprints = rows[rows.use == UNFITTED[-1]]
    lines += [_line(UNFITTED[-1], SAME, footprints)] if len(footprints) else []
    found = pd.DataFrame(lines).merge(
        _also(every.assign(label=_labels(every))), how="left", left_on="group", right_index=True
    )
    for place, name in enumerate(("target_median", "target_mean", "target_p90")):
        found[name] = found.group.map({group: values[place] for group, values in targets().items()})
    ids = {label: group for group, label in GROUPS.items()}
    found["constants"] = [len(parameters(ids[label])) if label in ids else 0 for label in found.group]
    found["forms"] = [len(forms.FORMS.get(ids.get(label, ""), ())) or 1 for label in found.group]
    found = found.reindex(columns=COLUMNS)
    order = [*GROUPS.values(), *UNFITTED]
    return found.sort_values("group", key=lambda column: column.map(order.index), kind="stable", ignore_index=True)


TIMES = ("decode-step", "decode-throughput", "prefill", "one-prefill", "batch-prefill", "forward", "loaded-step")


def points(table: pd.DataFrame) -> pd.DataFrame:
    """Times of one step, prefill or forward pass: measured and predicted, each with its range where one is known.

    Returns
    -------
    table : pandas.DataFrame
        group, label, measured_s (range: rounding as printed), predicted_s (range: that of the efficiencies). [-]
    """
    import pandas as pd

    experts = set(shipped().query("group.str.startswith('expert')").model)
    rows = counted(table).query("meaning in @TIMES")
    lines = []
    for row, cells in zip(rows.to_dict("records"), texts(rows), strict=True):
        group, r = _group(row, experts), reading(cells)
        ends = [row["predicted"], row["low"], row["high"]]
        measured = [number(row["value"]) + sign * r.rounding for sign in (0, -1, 1)]
        if row["meaning"] == "decode-throughput":
            ends, measured = [r.batch / end for end in ends], [r.batch / end for end in measured]
        label = f"{row['model']}, {row['instance']}, TP {r.mapping[0]}, batch {r.batch:g}"
        names = [name + end for name in ("predicted_s", "measured_s") for end in ("", "_low", "_high")]
        lines.append(
            {"group": group, "label": label, **dict(zip(names, np.multiply([*ends, *measured], r.scale), strict=True))}
        )
    found = pd.DataFrame(lines)
    for name in ("predicted_s", "measured_s"):
        both = found[[f"{name}_low", f"{name}_high"]].to_numpy()
        found[f"{name}_low"], found[f"{name}_high"] = both.min(axis=1), both.max(axis=1)
    return found


def _group(row: Mapping, experts: set[str]) -> str:
    """The group of a row: by its meaning, and by its model where it prefills or decodes."""
    found = next(group for group in ("decode", "prefill", "encoder", "server") if row["meaning"] in MEANINGS[group])
    return GROUPS[f"expert-{found}" if row["model"] in experts and f"expert-{found}" in GROUPS else found]


REGIMES: Mapping[str, list[float]] = {
    "batch": [0, 1, 8, 64, np.inf],
    "context": [0, 2048, 8192, np.inf],
    "tp": [0, 8, 16, 32, np.inf],
}


def by_regime(group: str, split: str = LEFT_OUT) -> pd.DataFrame:
    """Signed error of a group by system family, batch, context and TP: median and quartiles.

    Returns
    -------
    table : pandas.DataFrame
        regime, configurations, error (median) with error_low and error_high (quartiles). [-]
    """
    import pandas as pd

    rows = shipped().query("group == @group and split == @split")
    labels = [("system", rows["where"].str.extract(r"^([a-z]+[0-9])", expand=False))]
    for name, edges in REGIMES.items():
        labels.append((name, pd.cut(rows[name].fillna(rows.prompt), edges).map(_span)))
    lines = [
        {
            "regime": f"{name} {value}",
            "configurations": len(part),
            "error": part.error.median(),
            "error_low": part.error.quantile(0.25),
            "error_high": part.error.quantile(0.75),
        }
        for name, label in labels
        for value, part in rows.groupby(label, observed=True)
    ]
    return pd.DataFrame(lines)


def _span(interval: pd.Interval) -> str:
    low, high = interval.left, interval.right
    return f"above {low:g}" if np.isinf(high) else f"up to {high:g}"


if __name__ == "__main__":
    write()
