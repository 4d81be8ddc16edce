"""Tables of how wrong the predictions are: by kind of question and chip, blind, left out, missed, and set aside."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from trnbook.chapters import common
from trnbook.charts.tables import percent
from trnbook.shared.errors import (
    ANY,
    CHIPS,
    COVERAGE,
    OTHER,
    PAGES,
    QUESTIONS,
    RUNS,
    by_chip,
    question_of,
)
from trnmodel.catalog import load
from trnmodel.catalog.load import DATA
from trnmodel.evidence.grounds import part
from trnmodel.evidence.rows import LATER, read_rows
from trnmodel.evidence.score import NOT_COUNTED, counted, excluded, reasons
from trnmodel.evidence.tables import COPIES, EXCUSED, FITTED, LEFT_OUT, OUTSIDE, SOURCE, TARGETS, accuracy, aside_share
from trnmodel.evidence.tables import table as lab_table
from trnmodel.models.transformer import model
from trnmodel.steps.answers import Step
from trnmodel.units import MS
from trnmodel.units import counted as count_of

_FOLDER = DATA / "evidence"
BLIND, FITS = (_FOLDER / f"{name}.csv" for name in ("blind", "residuals"))
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
QUOTED = (
    *("time per output token", "first token", "time per output token under load", "first token in a queue"),
    *("throughput", "whole request", "step of training"),
)
MOVED = 0.05  # share from which on an answer counts as another one
DATE, METRIC = r"^(\d{4}-\d\d-\d\d)", r"^(.+?) of "
HEADLINES = "headlines of the running case"
ASKED_FOR = {
    "TPOT mean": "time per output token",
    "TTFT mean": "first token",
    "output throughput": "throughput of a server",
    "latency": "collectives and kernels",
    "throughput": "training",
    "MFU": "training",
    "power": "power",
}
AGED = {
    "date": "stated on",
    "what": "question",
    "wide": "half-width of the band [times]",
    "other": "answers that moved by more than 5%",
    "measured": "measured since",
}
FAR = 10.0  # times the 99th percentile of a question: a point beyond it would squeeze all others
KINDS = {"dense": "dense", "expert": "experts", "hybrid": "hybrids"}
_OF_GROUP = {  # of the intervals that were held to a page left out
    **dict.fromkeys(("decode", "expert-decode"), "time per output token"),
    **dict.fromkeys(("prefill", "expert-prefill"), "first token"),
    "server": "time per output token under load",
    **dict.fromkeys(("serving, TTFT in a queue", "TTFT of a burst"), "first token in a queue"),
    **dict.fromkeys(("serving, throughput", "whole static runs"), "throughput"),
    "serving, latency of a request": "whole request",
    "encoder": "pass of an encoder",
    **dict.fromkeys(("collective", "collective, host", "collective, slots"), "collective"),
    **dict.fromkeys(("kernel, stack-nki", "framework-trace", "framework-compile"), "kernel"),
}


def points(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn of `left_out`: measured beside predicted, in the unit of each question.

    A rate of steps or of prompts is turned into the time of one; a row in another unit than its question is left out.
    """
    made = rows.batch * np.where(rows.meaning.eq("reprefill-throughput"), rows.prompt, 1.0)
    turned = rows.meaning.isin(["decode-throughput", "reprefill-throughput"])
    predicted = rows.measured * (1 + rows.error)
    drawn = rows.assign(
        measured=np.where(turned, made / rows.measured, rows.measured),
        predicted=np.where(turned, made / predicted, predicted),
    )
    scale = np.where(rows.question.map(QUESTIONS).eq("ms"), 1 / MS, 1.0)
    drawn = drawn.assign(measured=drawn.measured * scale, predicted=drawn.predicted * scale)
    other_unit = r"^(?:kernel-(?!time)|collective-busbw|served-requests)"
    return drawn[~drawn.meaning.str.contains(other_unit) & (drawn.predicted > 0) & drawn.question.ne(OTHER)]


def matrix(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the median error and the number of configurations of each question on each chip, as text.

    Examples
    --------
    >>> rows = pd.DataFrame({"question": "kernel", "chip": "trainium2", "source": "a", "error": [0.1, -0.3]})
    >>> matrix(rows).Trainium2.tolist()
    ['20% of 2']
    """
    errors = by_chip(rows).set_index(["question", "chip"])
    names = CHIPS[1:]
    cells = {
        key: f"{row.median_error:.{0 if row.median_error >= 0.0995 else 1}%} of {int(row.configurations):,}"
        for key, row in errors.iterrows()
    }
    kinds = [kind for kind in QUESTIONS if any((kind, name) in cells for name in names)]
    return pd.DataFrame(
        [{"question": kind} | {n: cells.get((kind, n), "\N{EN DASH}") for n in names} for kind in kinds]
    )


def questions(validated: pd.DataFrame, left: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of each kind of question: as shipped, with the page left out, and of a naive rival.

    Parameters
    ----------
    validated : DataFrame
        What `tm.validation()` returns. [-]
    left : DataFrame
        What `left_out` returns. [-]

    Returns
    -------
    table : pandas.DataFrame
        question, configurations, pages; median errors as fitted, with the page left out (and their 90th percentile), of
        a naive rival, and between repeats of one configuration (noise); share inside the 90 % band. [-]
    """
    table = by_chip(left)
    table = table[table.chip == ANY].set_index("question")
    kinds = [question_of(use, meaning) for use, meaning in zip(validated.use, validated.meaning, strict=True)]
    rows = validated.assign(question=kinds)
    rows = rows[(rows.skipped == "") & (rows.weight > 0)]
    runs = pd.read_csv(RUNS)
    runs = runs[runs.split.isin([FITTED, OUTSIDE])]
    runs = runs.assign(question=[question_of("", meaning) for meaning in runs.meaning])
    own = counted(rows[~rows.question.isin(runs.question)])
    votes = pd.concat([own[["question", "error"]], runs[["question", "error"]]])
    fitted = votes.error.abs().groupby(votes.question).median()
    repeats = rows.groupby(["question", "configuration"]).error
    apart = (1 + repeats.max()) / (1 + repeats.min()) - 1
    columns = {
        "fitted_median_error": fitted,
        "share_inside_its_band": _held(),
        "median_error_of_a_simple_regression": _naive(),
        "spread of repeats": apart[apart > 1e-6].groupby("question").median().map(lambda x: percent(x, "")),
    }
    order = ["configurations", "pages", "fitted_median_error", "left_out_median_error", "p90_error", *list(columns)[1:]]
    named = table.rename(columns={"median_error": "left_out_median_error"}).assign(**columns)
    return named.reindex(list(QUESTIONS))[order].fillna({"spread of repeats": ""}).reset_index()


def _held() -> pd.Series:
    """Return the share of configurations inside their 90 % band by question, with the page left out."""
    held = pd.read_csv(COVERAGE)
    held = held[held.split.eq(SOURCE) & held.of.eq("group")]
    named = held.assign(question=held.name.map(_OF_GROUP), inside=held.inside * held.cases).dropna(subset="question")
    sums = named.groupby("question")[["inside", "cases"]].sum()
    steps = lab_table("training_errors")
    share = float(np.average(steps.inside.astype(float), weights=steps.cases.astype(float)))
    return pd.concat([sums.inside / sums.cases, pd.Series({"step of training": share})])


def _naive() -> pd.Series:
    """Return the median error of a rival: a fit to bytes, operations and layers, and three quarters of the TDP."""
    rows = pd.read_csv(FITS).dropna(subset="naive_error")
    rows = rows[rows.split == LEFT_OUT]
    rival = rows.naive_error.abs().groupby(rows.group.map(_OF_GROUP)).median()
    watts = lab_table("energy_errors").tdp_error.astype(float).abs().median()
    return pd.concat([rival, pd.Series({"power of a GPU": float(watts)})])


def by_group() -> pd.DataFrame:
    """Return errors by group and split, with the target of each and whether it is reached, as the lab wrote them."""
    return accuracy()


def throughputs(by_chip: pd.DataFrame) -> pd.DataFrame:
    """Return the sets of measured throughputs that pages of this book count, and the error of each.

    Parameters
    ----------
    by_chip : DataFrame
        What `by_chip` returns. [-]
    """
    table = by_chip[by_chip.question == "throughput"].set_index("chip")
    groups = accuracy().set_index(["group", "split"])
    outside, apart = (groups.loc[("serving, throughput", split)] for split in (OUTSIDE, SOURCE))
    rows = [
        ("all chips, static batches too, page left out", table.loc[ANY].configurations, table.loc[ANY].median_error),
        ("of these on Trainium2", table.loc["Trainium2"].configurations, table.loc["Trainium2"].median_error),
        ("servers with a queue, page left out", apart.cases, apart.median_error),
        ("servers with a queue, their throughputs in no fit", outside.cases, outside.median_error),
    ]
    return pd.DataFrame(
        [{"what is counted": what, "configurations": int(n), "median_error": float(x)} for what, n, x in rows]
    )


def missed(table: pd.DataFrame) -> pd.DataFrame:
    """Return the questions whose target is missed with the page left out, and what is missing to reach it.

    Parameters
    ----------
    table : DataFrame
        What `by_group` returns. [-]
    """
    rows = table[table.reached.eq("no") & table.split.eq(SOURCE)]
    known = pd.read_csv(TARGETS, keep_default_na=False)
    needed = {(row.group, row.split): row.missing for row in known.itertuples()}
    wanted = [needed.get((group, SOURCE)) or needed[group, ""] for group in rows.group]
    shown = rows[["group", "cases", "median_error", "target_median"]].assign(needed=wanted)
    named = {
        "group": "question",
        "cases": "configurations",
        "target_median": "target_error",
        "needed": "what would help",
    }
    return shown.rename(columns=named).reset_index(drop=True)


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


def pair(table: pd.DataFrame, most: int = 6) -> pd.DataFrame:
    """Return the largest groups of `blind` in long form: the blind error, then today's."""
    longest = table.dropna(subset="error").head(most)
    when = {"blind_error": "before the rows were read", "error": "today, with constants fitted to them"}
    tall = longest.melt(["group", "configurations"], list(when), "said", "median_error")
    return tall.assign(said=tall.said.map(when))


def measured_after(judged: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Return the published rows whose page has a date after that of the first statement."""
    dates = judged.date_or_sdk.str.extract(DATE, expand=False).fillna("")
    return judged[dates > stated.date.min()]


def aged(stated: pd.DataFrame, since: pd.DataFrame) -> pd.DataFrame:
    """Count what was stated on each date, what of it the package says otherwise today, and what was measured since.

    Parameters
    ----------
    stated, since : pandas.DataFrame
        Every statement, and those that rows of a later date answer, as of `tm.frozen`. [-]

    Returns
    -------
    table : pandas.DataFrame
        A row for each date and kind of question; what has no band, or was not measured, has a blank. [-]
    """
    kind = stated.question.str.extract(METRIC, expand=False).map(ASKED_FOR).where(stated.kind == "question", HEADLINES)
    wide = np.sqrt(stated.stated_high / stated.stated_low)
    rows = stated.assign(what=kind, wide=wide, other=stated.moved.abs() > MOVED, measured=stated.id.isin(since.id))
    groups = rows.groupby(["date", "what"], sort=False)
    counts = {name: (name, "sum") for name in ("other", "measured")}
    return groups.agg(statements=("id", "size"), wide=("wide", "median"), **counts).reset_index().rename(columns=AGED)


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


def products_sentence() -> str:
    """Return a sentence on the matrix products of Trainium3 that were predicted before they were read.

    Examples
    --------
    >>> products_sentence().partition(":")[0]
    'Matrix products on Trainium3 were predicted blind, too'
    """
    errors = products()
    return (
        "Matrix products on Trainium3 were predicted blind, too: half of them were within "
        f"{errors['blind_median']:.1%}, and the worst prediction missed by {abs(errors['blind_worst']):.0%}."
    )


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


def funnel(judged: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows are left after each step from a published row to a vote, and why the others are not.

    Returns
    -------
    table : pandas.DataFrame
        step, rows, others (why the others are left out). [-]
    """
    tally = counts(judged)
    steps = {
        "published rows": (tally["rows"], ""),
        "with a prediction": (
            tally["predicted"],
            "no machine, model or length is stated, or it is no time, rate or size",
        ),
        "of Neuron chips": (tally["counted"] + tally["copies"] + tally["aside"], "rows of GPUs in tables of Trainium"),
        "not another row again": (tally["counted"] + tally["aside"], "the same run, or a percentile beside its median"),
        "that count": (tally["counted"], "a time that is rounded to a quarter of itself or more"),
        "configurations": (tally["configurations"], "rows of one question vote once, with the middle error"),
    }
    return pd.DataFrame([{"step": step, "rows": int(n), "others": why} for step, (n, why) in steps.items()])


def answer(errors: pd.DataFrame, question: str, chip: str) -> str:
    """Return the card that opens the chapter: the error of a question on a chip, and the best and worst beside it.

    Parameters
    ----------
    errors : DataFrame
        What `by_chip` returns. [-]
    question : str
        A key of `QUESTIONS`. [-]
    chip : str
        One of `CHIPS`; where it has no such measurement, all chips answer. [-]
    """
    named = errors[errors.question != OTHER].set_index("question")
    rows = named[named.chip == chip]
    if question not in rows.index:
        rows = named[named.chip == ANY]
    own, best, worst = rows.loc[question], rows.median_error.idxmin(), rows.median_error.idxmax()
    held = _held().get(question, np.nan)
    sure = (
        f"Of all measured {_plural(question)}, over all chips, {held:.0%} lie inside the 90% band of their prediction. "
        if held == held
        else ""
    )
    return common.card(
        f"{own.median_error:.0%}",
        f"the median error of a predicted {question} on {own.chip}, on pages that the model had not seen. "
        f"Nine in ten are within {own.p90_error:.0%}",
        mark="measured",
        rival=f"{rows.median_error[best]:.0%} for a {best}, {rows.median_error[worst]:.0%} for a {worst}",
        proof="Check: the errors, question by question",
        more=f"**How sure?** {sure}The error on {own.chip} rests on {count_of(own.configurations, 'configuration')} of "
        f"{count_of(own.pages, 'page')}.",
    )


def _plural(question: str) -> str:
    """Return the plural of a question.

    >>> _plural("time per output token"), _plural("pass of an encoder"), _plural("first token")
    ('times per output token', 'passes of an encoder', 'first tokens')
    """
    first, _, rest = question.partition(" ")
    if first in ("first", "whole"):
        second, _, rest = rest.partition(" ")
        return f"{first} {second}s {rest}".strip()
    return f"{first}{'es' if first.endswith('s') else 's'} {rest}".strip()


def quoted(errors: pd.DataFrame, chip: str) -> pd.DataFrame:
    """Return what a buyer adds to a predicted figure of a chip: errors of the questions on servers and runs.

    Parameters
    ----------
    errors : DataFrame
        What `by_chip` returns. [-]
    chip : str
        One of `CHIPS`. [-]

    Returns
    -------
    table : pandas.DataFrame
        question, median_error, p90_error, configurations, pages. [-]
    """
    rows = errors[errors.chip.eq(chip) & errors.question.isin(QUOTED)].set_index("question")
    names = ["median_error", "p90_error", "configurations", "pages"]
    return rows.reindex([name for name in QUOTED if name in rows.index])[names].reset_index()


def near(drawn: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return points without those far beyond nearly all others of their question, and how many these are in words.

    >>> rows = pd.DataFrame({"question": "kernel", "measured": [1.0] * 200 + [50.0]})
    >>> near(rows)[1]
    'one point'
    """
    most = drawn.groupby("question").measured.transform(lambda size: FAR * size.quantile(0.99))
    beyond = int((drawn.measured > most).sum())
    number = {0: "no point", 1: "one point"}.get(beyond, f"{beyond} points")
    return drawn[drawn.measured <= most], number


def both_readings(chip: str, name: str) -> pd.DataFrame:
    """Return the first token of a model on a chip as its page's cells have it, and with what the page's words add."""
    pages = pd.read_csv(PAGES)
    rows = pages[pages.chip.eq(chip) & pages.model.eq(name) & pages.meaning.eq("prefill")]
    return rows.set_index("reading")[["prompt", "measured", "error"]]


def shown(judged: pd.DataFrame, rows: Iterable[str]) -> pd.DataFrame:
    """Return what `tm.validate` says of a few rows by their names, in the columns that a reader wants."""
    names = {"basis": "rests on", "skipped": "why no prediction"}
    columns = ["row", "value", "unit", "predicted", "low", "high", "error", *names]
    return judged.assign(row=list(rows))[columns].rename(columns=names)


def lines_of_page(page: pd.DataFrame, predicted: Step, ideal: Step) -> pd.DataFrame:
    """Return the times of a page of steps by batch: measured, predicted with their band, and on ideal software.

    Parameters
    ----------
    page : DataFrame
        Rows of `tm.validation()` in milliseconds, one for each batch. [-]
    predicted, ideal : Step
        Answers for the same batches. [-]
    """
    measured = pd.DataFrame({"batch": page.batch.astype(int), "time_s": page.value.astype(float) * MS})
    ours = predicted.to_frame(bands=True).rename(columns={"low": "time_s_low", "high": "time_s_high"})
    lines = {"measured": measured, "predicted": ours, "no loss at all": ideal.to_frame()}
    rows = pd.concat(frame.assign(line=name) for name, frame in lines.items())
    return rows[["batch", "time_s", "time_s_low", "time_s_high", "line"]]
