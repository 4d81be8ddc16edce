"""What a token costs the one who owns the chips: the hours of `tco` over the chip-seconds of `token_cost`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, refuse
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.planner.cost import BREAK_EVENS, Cost, tco
from trnmodel.planner.rent import TokenCosts
from trnmodel.planner.sensitivity import Sensitivity, sensitivity

DRAWS = 4000
Hours = Mapping[str, Cost]


def hours(systems: Iterable[str | System], **question: Any) -> dict[str, Cost]:
    """An owner's hour of a chip of each system, by id; `question` is of `tco`, the same of all.

    Examples
    --------
    >>> list(hours(["hgx-h100", "trn3-nl72x2-pcie160"]))
    ['hgx-h100', 'trn3-nl72x2-pcie160']
    """
    return {spec.id: tco(spec, **question) for spec in map(read_system, systems)}


def cheaper(found: Sensitivity, one: str, other: str) -> float:
    """Share of the draws in which one answer is less than another; one without an answer is not."""
    mine, theirs = found.values[one], found.values[other]
    return float(np.mean(np.isfinite(mine) & (~np.isfinite(theirs) | (mine < theirs))))


def drawn_ties(
    found: TokenCosts, system: str, which: str, software: str, against: Iterable[str] = (), seed: int = 0
) -> Sensitivity:
    """What one input of a system has to be for its token to cost what another system's does, from common draws.

    Parameters
    ----------
    found : TokenCosts
        At their owners' costs. [-]
    system : str
        Whose input it is. [-]
    which : str
        "chip_usd", "tdp_w" or "switch_usd_per_lane". [-]
    against : iterable of str
        Systems with which it ties; default all others. [-]

    Returns
    -------
    sensitivity : Sensitivity
        An answer for each other system, in the unit of the input; below 0 not even nothing makes it tie.

    Raises
    ------
    ValueError
        The system, or all others, are too slow or have no cost.
    """
    low, high = BREAK_EVENS[choice("which", which, BREAK_EVENS)]
    lines = {one.system.id: (one, one.owned) for one in found.of(software) if one.owned and np.all(one.valid)}
    mine, cost = lines[choice("system", system, lines)]
    rest = [lines[name] for name in (list(against) or lines) if name != system and name in lines]
    if not rest:
        refuse("against", list(against), f"none of them is as fast with {software} software and has a cost")

    def ask(**drawn: Any) -> dict[str, NDArray]:
        own = mine.drawn_chip_s(drawn)
        at_low, at_high = (cost.drawn_usd_per_h(drawn, **{which: end}) for end in (low, high))
        found = dict[str, NDArray]()
        for one, hour in rest:
            with np.errstate(invalid="ignore"):
                wanted = hour.drawn_usd_per_h(drawn) * one.drawn_chip_s(drawn) / own
            found[one.system.id] = low + (wanted - at_low) / (at_high - at_low) * (high - low)
        return found

    inputs = dict(item for one in (mine, *(one for one, _ in rest)) for item in one.uncertain("blended").items())
    return sensitivity(ask, inputs, DRAWS, seed)


def as_line(cost: Cost) -> tuple[float, float, float]:
    """An owner's useful hour as a line: at no watts and no price of a chip, a dollar of its price, a watt. [USD/h]

    A system that is bought as a server does not depend on them.

    Examples
    --------
    >>> base, per_usd, per_w = as_line(tco("trn3-nl72x2-pcie160"))
    >>> found = tco("trn3-nl72x2-pcie160", chip_usd=5000.0, tdp_w=800.0)
    >>> abs(base + 5000 * per_usd + 800 * per_w - float(found.usd_per_h)) < 1e-9
    True
    """
    ask: Callable[..., float] = lambda **at: float(cost.ask(**at)["useful_usd_per_h"])  # noqa: E731
    if not np.isnan(cost.system.chip.all_in_w):
        return ask(), 0.0, 0.0
    near, dear, hot = (ask(chip_usd=usd, tdp_w=w) for usd, w in ((1e3, 1e2), (1.1e4, 1e2), (1e3, 1.1e3)))
    per_usd, per_w = (dear - near) / 1e4, (hot - near) / 1e3
    return near - 1e3 * per_usd - 1e2 * per_w, per_usd, per_w
