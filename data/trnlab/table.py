"""The accuracy table: errors, intervals and rivals by group and split, each target beside, reached or not.

Computing it takes half a minute, so `python -m trnlab.ratchet` writes it and every judged row to
`data/evidence`; a test holds both to what is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from trnlab.accuracy import INSIDE, SAME, UNFITTED, UNSTATED, held, shipped
from trnlab.comparators import ALL_REDUCE as GPU_COLLECTIVES
from trnlab.comparators import GROUP as GPUS
from trnlab.forms import FORMS
from trnlab.kernels import CONSTANTS, TUNED
from trnlab.pages import PRODUCTS_USE
from trnmodel.catalog import load
from trnmodel.evidence.cells import number, texts
from trnmodel.evidence.fit import MEANINGS, parameters
from trnmodel.evidence.grounds import PLAIN, part
from trnmodel.evidence.meanings_language import USES
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import save
from trnmodel.evidence.score import JUDGED, counted, errors_of
from trnmodel.evidence.tables import (
    BY,
    CHIP,
    EXCUSED,
    FAMILY,
    FITTED,
    GROUPS,
    KERNELS,
    LEFT_OUT,
    OUTSIDE,
    ROWS,
    SOURCE,
    TABLE,
    TARGETS,
)
from trnmodel.models.transformer import model

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = "group split cases median_error mean_error p90_error bias coverage width score constant_score".split()
COLUMNS += "aside_share aside_error noise naive_median naive_mean target_median target_mean target_p90 reached".split()
COLUMNS += "constants forms worst_error models pages default_cases default_median default_mean".split()
FILE = "file left out"
GROUP_OF = {line: group for group, line in GROUPS.items()}
SAME_VALUE = 1e-6  # by which two printed values are one
PATHS = dict(zip(KERNELS, ("products, torch.compile", "products, torch trace"), strict=True))
COLLECTIVES, NOWHERE, OTHERS = "collectives, machine stated", "collectives, platform not stated", "other kernels"
TUNED_ON = "tuned kernels, {}"
LEFT_ROOM = {LEFT_OUT: 1.0, OUTSIDE: 1.0, FILE: 1.0, SOURCE: 1.0, FAMILY: 1.0}  # of a target, by split


def _machine(use: str, about: str, chip: str) -> str:
    """Return the line of a kernel or a collective."""
    if about == "collective":
        return NOWHERE if use == UNSTATED else COLLECTIVES
    return TUNED_ON.format(load.chip(chip).name) if use in (TUNED, PRODUCTS_USE) else PATHS.get(use, OTHERS)


def _fitted(meaning: str, name: str) -> str:
    """Return the line of a fitted group, by what a row means and its model; nothing where none is fitted."""
    found = next((group for group in ("decode", "prefill", "encoder", "server") if meaning in MEANINGS[group]), "")
    expert = f"expert-{found}" if name and model(name).kind in ("expert", "hybrid") else ""
    return GROUPS.get(expert, GROUPS.get(found, ""))


def labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """Judged rows with the `line` of the table that each belongs to: by its use, or by what was asked."""
    uses = {question: use for question, use in USES.items() if use in UNFITTED}
    lines = []
    for row in rows.itertuples():
        about, use = part(row.meaning), row.use if row.use in UNFITTED else ""
        named = _machine(row.use, about, row.chip) if about in PLAIN and not row.skipped else ""
        lines.append(named or use or _fitted(row.meaning, row.model) or uses.get(row.meaning, ""))
    return rows.assign(line=lines)


def _line(group: str, split: str, rows: pd.DataFrame) -> dict:
    line = {"group": group, "split": split, **errors_of(rows), "models": rows.model.nunique()}
    line |= {"p90_error": rows.error.abs().quantile(0.9)}
    if "source" in rows:
        line |= {"pages": rows.source.nunique()}
    if "default_error" in rows and rows.default_error.notna().any():
        both = rows.default_error.dropna().abs()
        line |= {"default_cases": len(both), "default_median": both.median(), "default_mean": both.mean()}
    if "naive_error" in rows:
        line |= {"naive_median": rows.naive_error.abs().median(), "naive_mean": rows.naive_error.abs().mean()}
    if "constant_score" in rows:
        line |= {"coverage": rows.inside.mean(), "width": rows.width.median()}
        line |= {"score": rows.score.mean(), "constant_score": rows.constant_score.mean()}
    return line


def _held_lines(split: str) -> list[dict]:
    """Lines of a split with the intervals of all other names; what no constant is fitted to has one split alone."""
    kept, lines = held(split), []
    kept = kept[~kept.group.isin([GPUS, GPU_COLLECTIVES])]

    def line(group: str, use: str, about: str, chip: str) -> str:
        if group in GROUPS or split == CHIP:
            return GROUPS.get(group, "")
        return _machine(use, about, chip) if about in PLAIN else group if group in UNFITTED else ""

    columns = kept.group, kept.use.fillna(kept.group), kept.part, kept.chip
    kept = kept.assign(line=[line(*row) for row in zip(*columns, strict=True)])
    tuned = TUNED_ON.format(load.chip("trainium3").name)
    for name, some in kept[kept.line != ""].groupby("line"):
        own = name in GROUPS.values() or name in PATHS.values()
        lines.append(_line(name, split if own or split == SOURCE else FILE if name == tuned else OUTSIDE, some))
    return lines


def targets() -> dict[tuple[str, str], tuple[float, float, float]]:
    """Median, mean and 90th percentile that a group is to reach, by group and split (blank: every other one)."""
    import pandas as pd

    table = pd.read_csv(TARGETS, keep_default_na=False)
    ends = table[["median", "mean", "p90"]].apply(pd.to_numeric, errors="coerce")
    return dict(zip(zip(table.group, table.split, strict=True), ends.itertuples(index=False, name=None), strict=True))


def _judged_line(line: Mapping) -> dict[str, object]:
    """Return the targets of a line, and whether it reaches them all."""
    known = targets()
    group, split, none = line["group"], line["split"], (np.nan,) * 3
    wanted = known.get((group, split), none if split == FAMILY else known.get((group, ""), none))
    found = [line[f"{name}_error"] for name in ("median", "mean", "p90")]
    room = LEFT_ROOM.get(split)
    held_ = [error <= end * room for error, end in zip(found, wanted, strict=True) if room and np.isfinite(end)]
    names = ("target_median", "target_mean", "target_p90")
    return dict(zip(names, wanted, strict=True)) | {"reached": ("yes" if all(held_) else "no") if held_ else ""}


def _also(rows: pd.DataFrame) -> pd.DataFrame:
    """By line: the share of predicted rows that is set aside with its error, and how far repeats lie apart."""
    predicted = rows[(rows.skipped == "") & ~rows.set_aside.str.contains(EXCUSED)]
    out = predicted[predicted.weight == 0]
    found = predicted.weight.eq(0).groupby(predicted.line).mean().to_frame("aside_share")
    repeats = predicted[predicted.weight > 0].groupby(["line", "configuration"]).error
    apart = (1 + repeats.max()) / (1 + repeats.min()) - 1
    apart = apart[apart > SAME_VALUE]  # of two equal values one is a copy
    found = found.join(out.error.abs().groupby(out.line).median().rename("aside_error"))
    return found.join(apart.groupby("line").median().rename("noise"))


def constants() -> dict[str, int]:
    """How many fitted constants each line has."""
    fitted = {line: len(parameters(group)) for group, line in {**GROUPS, **PATHS}.items()}
    return fitted | {TUNED_ON.format(load.chip("trainium3").name): len(CONSTANTS)}


def accuracy_table(judged: pd.DataFrame) -> pd.DataFrame:
    """Absolute errors by group and split, one vote a configuration, with intervals, rivals and targets beside.

    Returns
    -------
    table : pandas.DataFrame
        group, split, cases, median_error, mean_error, p90_error, bias; coverage of the 90 % interval that all other
        models, chips or sources give, its width (half of it, in logarithms) and Winkler's score, with that of a
        constant width; aside_share (of predicted rows) and aside_error (their median), noise (median of how far
        repeats of a configuration lie apart that are not one value), naive_median, naive_mean, target_median,
        target_mean, target_p90, reached ("yes", "no", or nothing), constants (fitted ones of the group), forms of its
        law that were tried, worst_error, models. [-]
    """
    import pandas as pd

    every = labelled(judged)
    rows, fits = counted(every), shipped()
    lines = [
        _line(GROUPS[group], split, some)
        for (group, split), some in fits[~fits.split.isin(BY)].groupby(["group", "split"], sort=False)
    ]
    lines += [line for split in BY for line in _held_lines(split)]
    alone = ((UNFITTED[-1], rows.use == UNFITTED[-1], SAME), (NOWHERE, rows.use == UNSTATED, OUTSIDE))
    lines += [_line(group, split, rows[which]) for group, which, split in alone if which.any()]
    found = pd.DataFrame([line | _judged_line(line) for line in lines])
    found = found.merge(_also(every), how="left", left_on="group", right_index=True)
    found["constants"] = found.group.map(constants()).fillna(0).astype(int)
    found["forms"] = [len(FORMS.get(GROUP_OF.get(line, ""), ())) or 1 for line in found.group]
    tuned = sorted(name for name in set(found.group) if name.startswith("tuned"))
    order = [*GROUPS.values(), *tuned, *PATHS.values(), OTHERS, COLLECTIVES, NOWHERE, *UNFITTED]
    splits = [FITTED, LEFT_OUT, INSIDE, *list(BY)[1:], FAMILY, OUTSIDE, FILE, SAME]
    places = found.group.map(order.index) * len(splits) + found.split.map(splits.index)
    return found.reindex(columns=COLUMNS).iloc[np.argsort(places.to_numpy(), kind="stable")].reset_index(drop=True)


def write(judged: pd.DataFrame, table: pd.DataFrame) -> None:
    """Write the table and the judged rows, five significant digits each."""
    save(table, TABLE, "%.5g")
    save(judged[["id", *(name for name in JUDGED if name not in ("patterns", "basis_reason"))]], ROWS, "%.5g")


TIMES = ("decode-step", "decode-throughput", "prefill", "one-prefill", "batch-prefill", "forward", "loaded-step")


def points(table: pd.DataFrame) -> pd.DataFrame:
    """Return times of one step, prefill or forward pass, measured and predicted, with ranges where they are known.

    Returns
    -------
    table : pandas.DataFrame
        group, label, measured_s (range: rounding as printed), predicted_s (range: that of the efficiencies). [-]
    """
    import pandas as pd

    rows = counted(table).query("meaning in @TIMES")
    lines = []
    for row, cells in zip(rows.to_dict("records"), texts(rows), strict=True):
        group, r = _fitted(row["meaning"], row["model"]), reading(cells)
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


REGIMES: Mapping[str, list[float]] = {
    "batch": [0, 1, 8, 64, np.inf],
    "context": [0, 2048, 8192, np.inf],
    "tp": [0, 8, 16, 32, np.inf],
}


def _of(group: str) -> pd.DataFrame:
    """Return the shipped errors of a group, by its name in the table, with its model left out."""
    rows = shipped()
    return rows[(rows.group == GROUP_OF.get(group, group)) & (rows.split == LEFT_OUT)]


def by_regime(group: str) -> pd.DataFrame:
    """Signed error of a group, by its name in the table, by system family, batch, context and TP: median and quartiles.

    Returns
    -------
    table : pandas.DataFrame
        regime, configurations, error (median) with error_low and error_high (quartiles). [-]
    """
    import pandas as pd

    rows = _of(group)
    labels = [("system", rows["where"].str.extract(r"^([a-z]+[0-9])", expand=False))]
    for name, edges in REGIMES.items():
        labels.append((name, pd.cut(rows[name].fillna(rows.prompt), edges).map(_span)))
    lines = [
        {"regime": f"{name} {value}", "configurations": len(error), "error": error.median()}
        | {"error_low": error.quantile(0.25), "error_high": error.quantile(0.75)}
        for name, label in labels
        for value, error in rows.error.groupby(label, observed=True)
    ]
    return pd.DataFrame(lines)


def by_source(group: str, most: int = 8) -> pd.DataFrame:
    """Where the error of a group sits: its sources, each with its share of all of it, those beyond `most` as one.

    Returns
    -------
    table : pandas.DataFrame
        source, configurations, median_error, mean_error, share (of the summed absolute error). [-]
    """
    rows = _of(group).assign(error=lambda table: table.error.abs())
    first = rows.groupby("source").error.sum().sort_values(ascending=False, kind="stable").index[:most]
    named = rows.groupby(rows.source.where(rows.source.isin(first), "all others")).error
    found = named.agg(configurations="size", median_error="median", mean_error="mean", share="sum")
    found["share"] /= rows.error.sum()
    return found.reindex([*first, *found.index.difference(first)]).rename_axis("source").reset_index()


def _span(interval: pd.Interval) -> str:
    low, high = interval.left, interval.right
    return f"above {low:g}" if np.isinf(high) else f"up to {high:g}"
