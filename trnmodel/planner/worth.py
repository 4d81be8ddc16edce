"""What time, suppliers' shares and switches are worth to an owner, and what another model prints of the same GPUs."""

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
from trnmodel.formulas import tco as page
from trnmodel.planner.cost import MONTHS, PERIOD_H, Cost, tco
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd


def rebate(warrant: str | Warrant, share_usd: ArrayLike) -> NDArray:
    """Discount on its purchases that a supplier's warrant is worth at a price of its share.

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
    """Worth of a chip's output that is lost when it is delivered so many months later, by hardware's fall of price.

    Parameters
    ----------
    cost : Cost
        Whose capital is the worth of the output over its life, where output sells for what the newest chip costs. [-]
    months : numeric
        Months; a chip that comes earlier gains. [-]

    Returns
    -------
    usd : numeric
        Dollars of a chip. [USD]

    Notes
    -----
    Worth falls by `prices.decades_per_year`, and money has the owner's cost of capital.

    Examples
    --------
    >>> late = delay_usd(tco("hgx-h100"), [0, 1, 3])
    >>> bool(late[0] == 0 < late[1] < late[2])
    True
    """
    asked = np.asarray(months, dtype=float)
    if not np.all(np.isfinite(asked)):
        refuse("months", shown(months), "allowed are numbers of months")
    rate = np.log1p(cost.owner.rate_per_year)
    return np.asarray(cost.capital_usd * page.late_share(cost.prices.decades_per_year, rate, asked / MONTHS))


def saving_usd(cost: Cost, usd_per_h: ArrayLike) -> NDArray:
    """Price that a saving of each hour pays for over the life of the servers.

    Parameters
    ----------
    cost : Cost
        Whose owner's cost of capital, years and loss of worth count. [-]
    usd_per_h : numeric
        Saving of an hour of a chip. [USD/h]

    Returns
    -------
    usd : numeric
        Dollars of a chip. [USD]

    Examples
    --------
    >>> round(float(saving_usd(tco("hgx-h100"), 0.1)), 2)
    3890.16
    """
    who, saved = cost.owner, numbers("usd_per_h", usd_per_h) * PERIOD_H
    months = who.life_years * MONTHS
    return np.asarray(page.present_usd(saved, who.rate_per_year / MONTHS, months, 1 - who.lost_share))


def months_worth(cost: Cost, ratio: ArrayLike) -> NDArray:
    """Months of waiting that a machine whose output is so much cheaper pays for: where what waits is worth as much.

    Parameters
    ----------
    cost : Cost
        The machine that could be had now. [-]
    ratio : numeric
        Its cost of a token over the later machine's. [-]

    Returns
    -------
    months : numeric
        Months; below 0 where the later machine is no cheaper. [-]

    Examples
    --------
    >>> found = months_worth(tco("hgx-h100"), [1.0, 1.5])
    >>> bool(found[0] == 0 < found[1])
    True
    """
    falls = cost.prices.decades_per_year * page.DECADE + np.log1p(cost.owner.rate_per_year)
    return np.asarray(np.log(numbers("ratio", ratio, 1e-9)) / falls * MONTHS)


def against_printed(system: str | System) -> pd.DataFrame:
    """The middle cost of a GPU's hour beside what the published model prints for both kinds of owner.

    Returns
    -------
    table : pandas.DataFrame
        system, owner, usd_per_h, printed_usd_per_h, error (signed share of the printed figure), of prices taken to the
        date of the printed one.

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
        found = float(tco(spec, owner=kind, prices=then).usd_per_h)
        rows.append(
            {
                "system": spec.id,
                "owner": kind,
                "usd_per_h": found,
                "printed_usd_per_h": printed,
                "error": found / printed - 1,
            }
        )
    return tidy(rows)


def lane_usd(switched: Cost, torus: Cost, ratio: ArrayLike) -> NDArray:
    """What a lane of a switch may cost for a switched rack to give a token for what a torus gives it.

    Parameters
    ----------
    switched, torus : Cost
        Hours of a chip of both. [-]
    ratio : numeric
        Tokens a second of a chip on switches over those on the torus. [-]

    Returns
    -------
    lane_usd : numeric
        Dollars of a lane, all lanes of the switch chips counted, used or not; below 0 where not even free switches do
        it. [USD]

    Examples
    --------
    >>> racks = [tco(f"trn3-nl32x2-{fabric}") for fabric in ("pcie160", "torus")]
    >>> found = lane_usd(*racks, [1.0, 1.2])
    >>> bool(found[0] < found[1])
    True
    """
    at = torus.useful_usd_per_h * numbers("ratio", ratio, 1e-9)
    return switched.break_even("switch_usd_per_lane", useful_usd_per_h=at)
