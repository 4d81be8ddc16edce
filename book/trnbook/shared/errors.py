"""Errors of predictions that have not seen their page, by kind of question and by chip."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from trnmodel.catalog import load
from trnmodel.catalog.load import DATA
from trnmodel.evidence.tables import LEFT_OUT, OUTSIDE, SOURCE

_FOLDER = DATA / "evidence"
PAGES, RUNS, COVERAGE = (_FOLDER / f"{name}.csv" for name in ("residuals_pages", "residuals_runs", "coverage"))
QUESTIONS: Mapping[str, str] = {  # kinds of questions, with the unit in which they are drawn
    "time per output token": "ms",
    "first token": "s",
    "time per output token under load": "ms",
    "first token in a queue": "s",
    "throughput": "tokens/s",
    "whole request": "s",
    "pass of an encoder": "s",
    "step of training": "s",
    "power of a GPU": "W",
    "collective": "s",
    "kernel": "s",
    "profiles, memory and others": "",
}
OTHER = list(QUESTIONS)[-1]
_OF_MEANING = {
    **dict.fromkeys(("decode-step", "decode-throughput"), "time per output token"),
    **dict.fromkeys(("prefill", "one-prefill", "batch-prefill", "reprefill-throughput"), "first token"),
    "loaded-step": "time per output token under load",
    **dict.fromkeys(("queued-prefill", "burst-prefill"), "first token in a queue"),
    **dict.fromkeys(("served-throughput", "served-requests", "served-input-throughput"), "throughput"),
    **dict.fromkeys(("generated-throughput", "generated-throughput-batch", "total-throughput"), "throughput"),
    **dict.fromkeys(("request-latency", "run-per-output-token", "run-per-token"), "whole request"),
    **dict.fromkeys(("loaded-request", "loaded-per-token"), "whole request"),
    "forward": "pass of an encoder",
    "energy-watts": "power of a GPU",
}
_OTHER_USES = ("GPUs in tables of Trainium", "steps cut into graphs")
ANY, ELSEWHERE = "all chips", "GPUs and TPUs"
CHIPS = (ANY, "Trainium1", "Trainium2", "Trainium3", "Inferentia2", ELSEWHERE)


def question_of(use: str, meaning: str) -> str:
    """Return the kind of question that a row asks, by its use and its meaning.

    Examples
    --------
    >>> question_of("model", "decode-step"), question_of("tuned-gemm", "kernel-time"), question_of("memory", "")
    ('time per output token', 'kernel', 'profiles, memory and others')
    """
    if use in _OTHER_USES:
        return OTHER
    begins = {"train-": "step of training", "kernel-": "kernel", "collective-": "collective", "graph-": "collective"}
    named = next((kind for start, kind in begins.items() if meaning.startswith(start)), OTHER)
    return _OF_MEANING.get(meaning, named)


def left_out() -> pd.DataFrame:
    """Return every configuration with the error of a prediction that has not seen its page.

    A group of training runs that has one page alone leaves the model out instead, and one to which nothing was fitted
    leaves out nothing.

    Returns
    -------
    table : pandas.DataFrame
        question, chip, model, where, batch, context, source, measured and error (predicted over measured - 1). [-]
    """
    pages = pd.read_csv(PAGES)
    pages = pages[(pages.reading == "cells") & (pages.use != "platform not stated")]
    runs = pd.read_csv(RUNS)
    splits = {SOURCE: 0, OUTSIDE: 1, LEFT_OUT: 2}
    runs = runs[runs.split.isin(splits)].assign(order=lambda rows: rows.split.map(splits))
    runs = runs.sort_values("order", kind="stable").drop_duplicates("id")
    rows = pd.concat([pages, runs.assign(use="", context=np.nan, prompt=np.nan)], ignore_index=True)
    kinds = [question_of(use, meaning) for use, meaning in zip(rows.use, rows.meaning, strict=True)]
    names = ["question", "chip", "model", "where", "batch", "context", "prompt", "meaning", "source", "measured"]
    return rows.assign(question=kinds)[[*names, "error"]]


def chip_name(chip: str) -> str:
    """Return what a list of chips calls one: its name, or that of all chips without NeuronCores.

    Examples
    --------
    >>> chip_name("trainium2"), chip_name("h100")
    ('Trainium2', 'GPUs and TPUs')
    """
    known = load.chip(chip)
    return known.name if known.core else ELSEWHERE


def by_chip(rows: pd.DataFrame) -> pd.DataFrame:
    """Return counts and errors of `left_out` by question and chip, each question also on all chips together.

    Returns
    -------
    table : pandas.DataFrame
        question, chip, configurations, pages, median_error, p90_error, bias_error (signed median). [-]
    """
    named = rows.assign(chip=rows.chip.map(chip_name))
    both = pd.concat([named.assign(chip=ANY), named])
    groups = both.groupby(["question", "chip"], sort=False)
    table = groups.error.agg(
        configurations="size",
        median_error=lambda error: error.abs().median(),
        p90_error=lambda error: error.abs().quantile(0.9),
        bias_error="median",
    )
    table.insert(1, "pages", groups.source.nunique())
    return table.reset_index()
