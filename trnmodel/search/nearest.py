"""What would hold where no system keeps the promises that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.search.grid import Question, grid
from trnmodel.serving.account import Times, edge
from trnmodel.steps.request import Request
from trnmodel.units import format_digits

MARGIN = 1e-3  # by which the named promise is easier than the hardest that holds


def _speeds(times: Times, request: Request) -> NDArray:
    """Return the highest speed at which the limit of the first token holds; NaN where it never does [token/s]."""
    tpot_s, ttft_s = edge(times, request)
    limit = np.inf if request.ttft_s is None else request.ttft_s
    return np.where(ttft_s <= limit, 1 / tpot_s, np.nan)


def _waits(times: Times, request: Request) -> NDArray:
    """Return minus the shortest time to the first token at which the speed holds; NaN where it never does [s]."""
    tpot_s, ttft_s = edge(times, request)
    return np.where(tpot_s < request.most_tpot_s, -ttft_s, np.nan)


def _most(questions: Iterable[Question], what: Callable[[Times, Request], NDArray], request: Request) -> Any:
    """Return the largest value of all grids with the id of its system; None where there is none."""
    most: Any = None
    for q in questions:
        g = grid(q)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.where(g.fits, what(g.times, request), np.nan)
        if np.any(np.isfinite(values)) and (most is None or np.nanmax(values) > most[0]):
            most = float(np.nanmax(values)), q.system.id
    return most


def _rounded(value: float, up: bool) -> str:
    """Return a number with three digits, rounded so that the promise gets easier."""
    digit = 10.0 ** (np.floor(np.log10(value)) - 2)
    easier = value * (1 + MARGIN) if up else value * (1 - MARGIN)
    return format_digits(float(np.ceil(easier / digit) if up else np.floor(easier / digit)) * digit, 3)


def nearest(questions: Iterable[Question], request: Request) -> str:
    """Return the nearest promises that hold, in words: another speed, another first token, or each by itself."""
    several = tuple(questions)
    alone = replace(request, ttft_s=None)
    speed = _most(several, _speeds, request)
    wait = _most(several, _waits, request) if request.ttft_s is not None else None
    without = ""
    if speed is None and wait is None:
        speed, without = _most(several, _speeds, alone), " without a limit of the first token"
    texts = [f"{_rounded(speed[0], up=False)} tokens/s per user{without} on {speed[1]}"] if speed else []
    texts += [f"the first token within {_rounded(-wait[0], up=True)} s on {wait[1]}"] if wait else []
    return ", or ".join(texts)
