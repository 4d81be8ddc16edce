"""Cost per token for an owner of chips: the hours of `tco` times the chip-seconds of `token_cost`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, refuse
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import BREAK_EVENS, Cost, tco
from trnmodel.search.chip_seconds import uncertain
from trnmodel.search.sensitivity import Sensitivity, sensitivity
from trnmodel.search.token_cost import TokenCosts

DRAWS = 4000
Hours = Mapping[str, Cost]


def hours(systems: Iterable[str | System], **question: Any) -> dict[str, Cost]:
    """Return an owner's cost per chip-hour of each system, by id; `question` goes to `tco`, the same for all.

    Examples
    --------
    >>> list(hours(["hgx-h100", "trn3-nl72x2-pcie160"]))
    ['hgx-h100', 'trn3-nl72x2-pcie160']
    """
    return {spec.id: tco(spec, **question) for spec in map(read_system, systems)}


def cheaper(draws: Sensitivity, one: str, other: str) -> float:
    """Return the share of draws in which one answer is below another; a missing answer never is."""
    mine, theirs = draws.values[one], draws.values[other]
    return float(np.mean(np.isfinite(mine) & (~np.isfinite(theirs) | (mine < theirs))))


def drawn_ties(
    costs: TokenCosts, system: str, which: str, software: str, against: Iterable[str] = (), seed: int = 0
) -> Sensitivity:
    """Draw what one input of a system must be for its token to cost what another system's does.

    Parameters
    ----------
    costs : TokenCosts
        At their owners' costs. [-]
    system : str
        The system that has the input. [-]
    which : str
        "chip_usd", "tdp_w" or "switch_usd_per_lane". [-]
    against : iterable of str
        Systems with which it ties; default all others. [-]

    Returns
    -------
    sensitivity : Sensitivity
        An answer for each other system, in the unit of the input; below 0 even a value of 0 is too much for a tie.

    Raises
    ------
    ValueError
        The system, or all others, are too slow or have no cost.
    """
    choice("which", which, BREAK_EVENS)
    lines = {one.system.id: (one, one.owned) for one in costs.of(software) if one.owned and np.all(one.valid)}
    mine, cost = lines[choice("system", system, lines)]
    rest = [lines[name] for name in (list(against) or lines) if name != system and name in lines]
    if not rest:
        refuse("against", list(against), f"none of them is as fast with {software} software and has a cost")

    def inputs_at_tie(**drawn: Any) -> dict[str, NDArray]:
        own, ties = mine.drawn_chip_s(drawn), dict[str, NDArray]()
        for one, hour in rest:
            with np.errstate(invalid="ignore"):
                wanted = hour.drawn_usd_per_h(drawn) * one.drawn_chip_s(drawn) / own
            ties[one.system.id] = cost.drawn_break_even(which, drawn, wanted)
        return ties

    inputs, even = uncertain([mine, *(one for one, _ in rest)])
    return sensitivity(inputs_at_tie, inputs, DRAWS, seed, even)


def as_line(cost: Cost) -> tuple[float, float, float]:
    """Return an owner's useful hour as a line: its cost at zero, per USD of chip price and per watt, in USD/h.

    The hour of a system that is bought as a server does not depend on the two.

    Examples
    --------
    >>> base, per_usd, per_w = as_line(tco("trn3-nl72x2-pcie160"))
    >>> cost = tco("trn3-nl72x2-pcie160", chip_usd=5000.0, tdp_w=800.0)
    >>> abs(base + 5000 * per_usd + 800 * per_w - float(cost.usd_per_h)) < 1e-9
    True
    """
    if not np.isnan(cost.system.chip.all_in_w):
        return float(cost.useful_usd_per_h), 0.0, 0.0
    points = (1e3, 1e2), (1.1e4, 1e2), (1e3, 1.1e3)
    hours = [cost.recompute(chip_usd=usd, tdp_w=w)["useful_usd_per_h"] for usd, w in points]
    near, dear, hot = map(float, hours)
    per_usd, per_w = (dear - near) / 1e4, (hot - near) / 1e3
    return near - 1e3 * per_usd - 1e2 * per_w, per_usd, per_w
