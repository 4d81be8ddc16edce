"""Tables of how wrong the predictions are: by question, blind, by left-out group, and what does not count."""

from __future__ import annotations

import numpy as np
import pandas as pd

from trnmodel.catalog import load
from trnmodel.catalog.load import DATA
from trnmodel.evidence.grounds import part
from trnmodel.evidence.rows import LATER, read_rows
from trnmodel.evidence.score import NOT_COUNTED, counted, excluded, reasons
from trnmodel.evidence.tables import (
    BY,
    CHIP,
    COPIES,
    EXCUSED,
    FAMILY,
    GROUPS,
    LEFT_OUT,
    OUTSIDE,
    SOURCE,
    TARGETS,
    aside_share,
)
from trnmodel.evidence.tables import table as lab_table
from trnmodel.models.transformer import model

BLIND, COVERAGE, RUNS = (DATA / "evidence" / f"{name}.csv" for name in ("blind", "coverage", "residuals_runs"))
SPLITS = tuple(BY)
MARKS = {"yes": "reached", "no": "missed", "": "no target"}
TITLES = {  # names of a model's parts in the table of blind errors
    "decode": "decode",
    "prefill": "time to first token",
    "load": "time between served tokens",
    "throughput": "served throughput",
    "queue": "first token under load",
    "run": "whole requests",
    "request": "whole requests",
    "share of HBM": "share of HBM",
    "bytes": "bytes read",
}
KINDS = {"dense": "dense", "expert": "experts", "hybrid": "hybrids"}
WANTED = ["target_median", "target_mean", "target_p90"]
ERRORS = ["median_error", "mean_error", "p90_error"]


def symbols() -> list[tuple[str, ...]]:
    """Return the chapter's notation: rows of `common.notation`.

    Examples
    --------
    >>> [row[0] for row in symbols()]
    ['e', 'w', 'S', 'n', 'k']
    """
    return [
        ("e", "error", "predicted over measured, less one; its size where no sign is said"),
        ("w", "width", "half the 90 % interval, as a logarithm, from the rows of all other names"),
        ("S", "score", "Winkler's score: the interval's whole width, and 20 times what a row lies beyond it"),
        ("n", "cases", "configurations; the rows of one vote once"),
        ("k", "constants", "constants fitted to a group, lines of data/evidence/calibration.csv"),
    ]


def _ended(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the error that a chart shows: the median, with the 90th percentile as its upper end."""
    return table.assign(error=table.median_error, error_low=table.median_error, error_high=table.p90_error)


def answers(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question: its error on pages that neither fit nor reading has seen, and whether it is met.

    Returns
    -------
    table : pandas.DataFrame
        question, configurations, error (median) with error_low (the same) and error_high (90th percentile), mean_error,
        target, coverage, mark ("reached", "missed", "no target"). [-]
    """
    rows = table[table.split.eq(SOURCE) & (table.group.isin(GROUPS.values()) | table.target_median.notna())]
    rows = rows.assign(**{name: rows.group.map(_rival(table)[name]) for name in ("naive_median",)})
    lines = _ended(rows).assign(mark=rows.reached.map(MARKS))
    lines = lines.rename(columns={"group": "question", "cases": "configurations", "target_median": "target"})
    names = "question configurations error error_low error_high mean_error target naive_median noise coverage mark"
    return lines[names.split()].reset_index(drop=True)


def _rival(table: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of the naive rival by group, which is fitted without a model."""
    return table[table.split == LEFT_OUT].set_index("group")


def strangers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the error of each group as a stranger meets it, beside that of an unseen model and of the chip's software.

    Returns
    -------
    table : pandas.DataFrame
        group, cases, pages, median_error, mean_error, p90_error; share_inside and score of the interval with the page
        left out; model_left_out_median_error; default_median_error: asked with the chip's own software. [-]
    """
    rows = table[table.split == SOURCE]
    models = table[table.split.isin([LEFT_OUT, OUTSIDE])].drop_duplicates("group").set_index("group").median_error
    named = {"default_median": "default_median_error"}
    shown = ["group", "cases", "pages", *ERRORS, "share_inside", "score", "constant_score"]
    joined = rows.assign(model_left_out_median_error=rows.group.map(models)).rename(
        columns=named | {"coverage": "share_inside"}
    )
    return joined[[*shown, "model_left_out_median_error", *named.values()]].reset_index(drop=True)


def coverage() -> pd.DataFrame:
    """Return how often intervals hold, as it was written: by split, and of all rows, by basis, pool and group."""
    return pd.read_csv(COVERAGE)


def bases(coverage: pd.DataFrame) -> pd.DataFrame:
    """Return how often intervals hold by what a prediction rests on, its share, median error and width."""
    rows = coverage[coverage.split.eq(SOURCE) & coverage.of.isin(["basis", "all"])]
    names = "share cases inside fast slow median_error width score constant_score".split()
    named = {"name": "basis", "inside": "share_inside", "fast": "share_fast", "slow": "share_slow"}
    return rows[["name", *names]].rename(columns=named).reset_index(drop=True)


def runs() -> pd.DataFrame:
    """Return the errors of steps of training and of watts: as fitted, with the model and with the page left out.

    Returns
    -------
    table : pandas.DataFrame
        group, split, cases, pages, median_error, mean_error, p90_error. [-]
    """
    rows = pd.read_csv(RUNS)
    groups = rows.assign(size=rows.error.abs())
    found = groups.groupby(["group", "split"], sort=False)
    errors = found["size"].agg(
        cases="size", median_error="median", mean_error="mean", p90_error=lambda x: x.quantile(0.9)
    )
    errors.insert(1, "pages", found.source.nunique())
    return errors.reset_index()


def missed(table: pd.DataFrame) -> pd.DataFrame:
    """Return every target that is missed, by how much at its worst, and what is missing to reach it."""
    rows = table[table.reached.eq("no")]
    known = pd.read_csv(TARGETS, keep_default_na=False)
    reasons_ = {(row.group, row.split): row.missing for row in known.itertuples()}
    over = np.nanmax(rows[ERRORS].to_numpy() / rows[WANTED].to_numpy(), axis=1) if len(rows) else []
    said = [reasons_.get((g, s)) or reasons_.get((g, ""), "") for g, s in zip(rows.group, rows.split, strict=True)]
    return rows[["group", "split", *ERRORS, *WANTED]].assign(times_target=over, missing=said).round({"times_target": 2})


def splits(table: pd.DataFrame) -> pd.DataFrame:
    """Return errors of fitted groups with their model, chip or source left out, and of the naive rival."""
    rows = table[table.split.isin(SPLITS) & table.group.isin(GROUPS.values())]
    names = ["group", "split", "error", "error_low", "error_high", "cases", "models"]
    return _ended(rows)[names].reset_index(drop=True)


def intervals(table: pd.DataFrame) -> pd.DataFrame:
    """Return coverage, width and score of the 90 % intervals by group and split, and the score of a constant width."""
    rows = table[table.coverage.notna() & table.split.isin([*SPLITS, OUTSIDE])]
    names = ["group", "split", "cases", "coverage", "width", "score", "constant_score"]
    return rows[names].reset_index(drop=True)


def constants(table: pd.DataFrame) -> pd.DataFrame:
    """Compare the number of constants fitted to each group with its configurations; one in ten is allowed."""
    rows = table[(table.constants > 0) & ~table.split.isin([CHIP, SOURCE, FAMILY])].drop_duplicates("group")
    groups = rows.assign(configurations=rows.cases, allowed=np.floor(rows.cases / 10).astype(int))
    groups["within"] = groups.constants <= groups.allowed
    return groups[["group", "constants", "configurations", "allowed", "within"]].reset_index(drop=True)


def _group(row: pd.Series) -> str:
    """Return the line of a row in the table of blind errors; an empty text for a kernel or a collective."""
    title = TITLES.get(part(row.meaning), "")
    if not title or not row.model:
        return ""
    return f"{title}, {KINDS.get(model(row.model).kind, '')}, {load.chip(row.chip).name}"


def blind(judged: pd.DataFrame) -> pd.DataFrame:
    """Compare errors of predictions made before the rows were read with those of today's constants on the same groups.

    Returns
    -------
    table : pandas.DataFrame
        group, configurations, blind_error, blind_mean, blind_p90, blind_coverage, error (now; NaN where the group has
        none). [-]
    """
    then = pd.read_csv(BLIND).sort_values("configurations", ascending=False, kind="stable")
    later = {row["id"] for row in read_rows(LATER)}
    rows = counted(judged[judged.id.isin(later)])
    now = rows.error.abs().groupby(rows.apply(_group, axis=1)).median()
    named = {"median_error": "blind_error", "mean_error": "blind_mean", "p90_error": "blind_p90"}
    table = then.rename(columns=named | {"coverage": "blind_coverage"})
    names = ["group", "configurations", *named.values(), "blind_coverage"]
    return table[names].assign(error=table.group.map(now)).reset_index(drop=True)


def pair(table: pd.DataFrame, most: int = 10) -> pd.DataFrame:
    """Return the largest groups of `blind` in long form: the blind error, then today's."""
    longest = table.dropna(subset="error").head(most)
    tall = longest.melt(["group", "configurations"], ["blind_error", "error"], "said", "size")
    when = {"blind_error": "before any was read", "error": "now, with what was fitted"}
    return tall.assign(said=tall.said.map(when), **dict.fromkeys(("error", "error_low", "error_high"), tall["size"]))


def products() -> dict[str, float]:
    """Return how many matrix products were measured on Trainium3, their blind errors, and the error left out."""
    table = lab_table("product_errors")
    error, worst = table.blind_error.abs(), table.blind_error.abs().idxmax()
    return {
        "shapes": len(table),
        "blind_median": float(error.median()),
        "blind_worst": float(table.blind_error[worst]),
        "left_out_median": float(table.left_out_error.abs().median()),
    }


def counts(judged: pd.DataFrame) -> dict[str, float]:
    """Count rows, predicted rows and configurations that count, and give the share and error of those set aside."""
    predicted = judged[judged.skipped == ""]
    own = predicted[~predicted.set_aside.str.contains("^GPU")]
    aside = own[(own.weight == 0) & ~own.set_aside.str.contains(COPIES)]
    return {
        "rows": len(judged),
        "predicted": len(predicted),
        "counted": int((predicted.weight > 0).sum()),
        "configurations": len(counted(judged)),
        "copies": int((own.weight == 0).sum()) - len(aside),
        "aside": len(aside),
        "aside_share": aside_share(judged),
        "aside_error": float(aside.error.abs().median()),
    }


def asides(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the reasons why predicted rows do not count, with rows and median error; copies excluded."""
    rows = reasons(excluded(judged))
    apart = rows.reason.str.contains(EXCUSED) | rows.outcome.ne(NOT_COUNTED)
    remaining = rows[~apart].sort_values("rows", ascending=False, kind="stable", ignore_index=True)
    return remaining[["kind", "reason", "rows", "median_error"]]


def sized(table: pd.DataFrame) -> pd.DataFrame:
    """Rename unsigned errors to medians, as a chart calls them.

    Examples
    --------
    >>> sized(pd.DataFrame({"error": [0.1], "error_high": [0.3]})).columns.tolist()
    ['median_error', 'median_error_high']
    """
    return table.rename(columns={name: f"median_{name}" for name in ("error", "error_low", "error_high")})
