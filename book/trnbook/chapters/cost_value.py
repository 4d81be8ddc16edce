"""The value to an owner of time, warrants and savings, and an independent model's cost of the same GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import numbers, refuse, shown
from trnmodel.catalog import load
from trnmodel.catalog import prices as priced
from trnmodel.catalog.prices import Warrant
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import MONTHS, PERIOD_H, Cost, tco
from trnmodel.formulas import tco as page
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd


def rebate(warrant: str | Warrant, share_usd: ArrayLike) -> NDArray:
    """Discount on purchases that a supplier's warrant is worth at a share price.

    Parameters
    ----------
    warrant : str or Warrant
        "astera-2022", "astera-2026", "credo", or one with numbers of your own. [-]
    share_usd : numeric
        Price of a share. [USD]

    Returns
    -------
    rebate : numeric
        Share of the spend, of intrinsic value alone; NaN where number or spend are not published. [-]

    Examples
    --------
    >>> round(float(rebate("astera-2026", 200.0)), 4), float(rebate("astera-2026", 100.0))
    (0.0287, 0.0)
    """
    one = priced.warrant(warrant)
    return page.rebate_share(one.warrants, numbers("share_usd", share_usd), one.strike_usd, one.spend_usd)


def delay_usd(cost: Cost, months: ArrayLike) -> NDArray:
    """Value of a chip's output that is lost by a delivery some months later, as hardware prices fall.

    Parameters
    ----------
    cost : Cost
        The chip's cost. Its capital is taken as the value of its output over its life. [-]
    months : numeric
        Months of delay; negative for an earlier delivery, which gains. [-]

    Returns
    -------
    usd : numeric
        Loss per chip. [USD]

    Notes
    -----
    Hardware prices fall by `prices.decades_per_year`, and money has the owner's cost of capital.

    Examples
    --------
    >>> late = delay_usd(tco("hgx-h100"), [0, 1, 3])
    >>> bool(late[0] == 0 < late[1] < late[2])
    True
    """
    delays = np.asarray(months, dtype=float)
    if not np.all(np.isfinite(delays)):
        refuse("months", shown(months), "allowed are numbers of months")
    rate = np.log1p(cost.owner.rate_per_year)
    return np.asarray(cost.capital_usd * page.late_share(cost.prices.decades_per_year, rate, delays / MONTHS))


def saving_usd(cost: Cost, usd_per_h: ArrayLike) -> NDArray:
    """Price that a saving per hour pays for over the life of the servers.

    Parameters
    ----------
    cost : Cost
        A cost with the owner's cost of capital, years and loss of value. [-]
    usd_per_h : numeric
        Saving per chip-hour. [USD/h]

    Returns
    -------
    usd : numeric
        Price per chip. [USD]

    Examples
    --------
    >>> round(float(saving_usd(tco("hgx-h100"), 0.1)), 2)
    3890.16
    """
    who, saved = cost.owner, numbers("usd_per_h", usd_per_h) * PERIOD_H
    months = who.life_years * MONTHS
    return np.asarray(page.present_usd(saved, who.rate_per_year / MONTHS, months, 1 - who.lost_share))


def months_of_waiting(cost: Cost, ratio: ArrayLike) -> NDArray:
    """Months of waiting that a machine with cheaper output pays for, after which both choices are equal.

    Parameters
    ----------
    cost : Cost
        Cost of the machine that is available now. [-]
    ratio : numeric
        Its cost per token over that of the later machine. [-]

    Returns
    -------
    months : numeric
        Months; below 0 where the later machine is no cheaper. [-]

    Examples
    --------
    >>> months = months_of_waiting(tco("hgx-h100"), [1.0, 1.5])
    >>> bool(months[0] == 0 < months[1])
    True
    """
    falls = cost.prices.decades_per_year * page.DECADE + np.log1p(cost.owner.rate_per_year)
    return np.asarray(np.log(numbers("ratio", ratio, 1e-9)) / falls * MONTHS)


def against_printed(system: str | System) -> pd.DataFrame:
    """Compare our cost of a GPU-hour with that of SemiAnalysis for both kinds of owner.

    Returns
    -------
    table : pandas.DataFrame
        system, owner, usd_per_h, printed_usd_per_h, error (signed share of the printed figure). Prices are taken at
        the date of the printed figure.

    Examples
    --------
    >>> against_printed("hgx-h100").owner.tolist()
    ['hyperscaler', 'neocloud']
    """
    spec, rows = read_system(system), []
    for kind in ("hyperscaler", "neocloud"):
        fact, printed, _ = load.fact_in_force(spec.chip.id, "owner_usd_per_h", kind)
        year, month = map(int, priced.dated(fact).date.split("-"))
        then = replace(priced.prices(), money_year=year + (month - 0.5) / MONTHS)
        usd_per_h = float(tco(spec, owner=kind, prices=then).usd_per_h)
        rows.append(
            {
                "system": spec.id,
                "owner": kind,
                "usd_per_h": usd_per_h,
                "printed_usd_per_h": printed,
                "error": usd_per_h / printed - 1,
            }
        )
    return tidy(rows)
