"""What a token costs the one who owns the chips: the hours of `tco` over the chip-seconds of `token_cost`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, refuse
from trnmodel.catalog import facilities
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.planner.cost import BREAK_EVENS, Cost, tco
from trnmodel.planner.effort import TokenCost, drawn_chip_s, ground
from trnmodel.planner.rent import TokenCosts
from trnmodel.planner.sensitivity import Sensitivity, sensitivity
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd

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


def token_costs(found: TokenCosts) -> pd.DataFrame:
    """Costs of a token at capacity beside each other, at the prices that `found` has: rents, or an owner's hours.

    Returns
    -------
    table : pandas.DataFrame
        model, wanted_tokens_per_s_per_user, system, software, usd_per_mtoken with `_low` and `_high` (NaN where there
        is none), chip_s (of a mean token), usd_per_chip_h, basis, reason.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"tokens_per_s_per_user": 20, "input_tokens": 1024, "output_tokens": 256}
    >>> found = tm.token_cost("llama-3.1-8b", "trn2.48xlarge", **ask)
    >>> rent, own = (token_costs(one) for one in (found, found.priced(hours(["trn2.48xlarge"]))))
    >>> bool((own.usd_per_mtoken < rent.usd_per_mtoken).all())
    True
    """
    return tidy([_line(one) for one in found.lines])


def _line(one: TokenCost) -> dict[str, Any]:
    row: dict[str, Any] = {"model": one.model.id, "wanted_tokens_per_s_per_user": one.wanted_tokens_per_s_per_user}
    row |= {"system": one.system.id, "software": one.stack_kind}
    value = float(one.blended_usd_per_mtoken)
    ends = [float(end) for end in one.ends(one.FIGURE)] if np.isfinite(value) else [np.nan, np.nan]
    row |= dict(zip(("usd_per_mtoken", "usd_per_mtoken_low", "usd_per_mtoken_high"), (value, *ends), strict=True))
    row |= {"chip_s": one.chip_s_ends()[1], "usd_per_chip_h": float(one.usd_per_chip_h)}
    return row | {"basis": str(one.basis), "reason": str(one.reason)}


def _uncertain(lines: Iterable[TokenCost], owned: Hours) -> dict[str, Any]:
    """What is drawn, the same for all systems: prices, owner, what is provisioned, watts of chips, software."""
    some = list(lines)
    first = owned[some[0].system.id]
    inputs: dict[str, Any] = {"prices": first.prices, "owner": first.owner}
    for one in some:
        chip = one.system.chip
        ends = facilities.ends(chip, "tdp_w")
        if np.isnan(chip.all_in_w):
            watts = facilities.power(chip)
            inputs["power"] = replace(watts, ranges={"all_in_ratio": watts.range("all_in_ratio")})
            if ends[0] < ends[1]:
                inputs[f"TDP of {chip.id}"] = (ends[0], chip.tdp_w, ends[1])
        if np.ptp(one.chip_s()) != 0:
            inputs[ground(one)] = (0.0, 0.5, 1.0)
    return inputs


def _hour(one: TokenCost, cost: Cost, drawn: Mapping[str, Any], **moved: Any) -> NDArray:
    """An owner's useful hour in each draw."""
    names = {"prices": "p", "owner": "who"} | ({"power": "power"} if np.isnan(one.system.chip.all_in_w) else {})
    given = {short: drawn[name] for name, short in names.items() if name in drawn}
    watts = drawn.get(f"TDP of {one.system.chip.id}")
    return np.asarray(cost.ask(**({} if watts is None else {"tdp_w": watts}) | given | moved)["useful_usd_per_h"])


def _there(found: TokenCosts, owned: Hours, software: str) -> list[TokenCost]:
    return [one for one in found.of(software) if one.fast_enough and bool(np.all(owned[one.system.id].valid))]


def drawn_costs(found: TokenCosts, owned: Hours, software: str, draws: int = DRAWS, seed: int = 0) -> Sensitivity:
    """An owner's costs of a million tokens on one kind of software, from common draws of prices, rates and steps.

    Parameters
    ----------
    found : TokenCosts
        What each system makes of a chip. [-]
    owned : mapping of Cost
        `hours` of the same systems. [-]
    software : str
        Kind of software, the same of all. [-]
    draws, seed : int
        As of `tm.sensitivity`. [-]

    Returns
    -------
    sensitivity : Sensitivity
        `.wins(least=True)` is how often each system is the cheapest. A draw in which a system is too slow has no cost.
    """
    lines = _there(found, owned, software)

    def ask(**drawn: Any) -> dict[str, NDArray]:
        found = {}
        with np.errstate(invalid="ignore"):
            for one in lines:
                hour = _hour(one, owned[one.system.id], drawn)
                found[one.system.id] = usd_per_mtoken(hour, 1.0) * drawn_chip_s(one, drawn)
        return found

    return sensitivity(ask, _uncertain(lines, owned), draws, seed)


def cheaper(found: Sensitivity, one: str, other: str) -> float:
    """Share of the draws in which one answer is less than another; one without an answer is not."""
    mine, theirs = found.values[one], found.values[other]
    return float(np.mean(np.isfinite(mine) & (~np.isfinite(theirs) | (mine < theirs))))


def drawn_ties(
    found: TokenCosts, owned: Hours, system: str, which: str, software: str, against: Iterable[str] = (), seed: int = 0
) -> Sensitivity:
    """What one input of a system has to be for its token to cost what another system's does, from common draws.

    Parameters
    ----------
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
    lines = {one.system.id: one for one in _there(found, owned, software)}
    mine = lines[choice("system", system, lines)]
    rest = [lines[name] for name in (list(against) or lines) if name != system and name in lines]
    if not rest:
        refuse("against", list(against), f"none of them is as fast with {software} software and has a cost")
    kept = [mine, *rest]

    def ask(**drawn: Any) -> dict[str, NDArray]:
        own = drawn_chip_s(mine, drawn)
        at_low, at_high = (_hour(mine, owned[system], drawn, **{which: end}) for end in (low, high))
        found = dict[str, NDArray]()
        for one in rest:
            with np.errstate(invalid="ignore"):
                wanted = _hour(one, owned[one.system.id], drawn) * drawn_chip_s(one, drawn) / own
            found[one.system.id] = low + (wanted - at_low) / (at_high - at_low) * (high - low)
        return found

    return sensitivity(ask, _uncertain(kept, owned), DRAWS, seed)


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
