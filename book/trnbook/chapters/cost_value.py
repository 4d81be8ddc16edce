"""The value to an owner of time, of a supplier's warrants and of savings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import numbers, refuse, shown
from trnmodel.catalog import prices as priced
from trnmodel.catalog.prices import Warrant
from trnmodel.cost.tco import MONTHS, PERIOD_H, Cost
from trnmodel.evidence.claims import claims_of
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


def rebates(share_usd: Iterable[float]) -> pd.DataFrame:
    """Return what each known warrant gives back of the spend: as printed, and at prices of a share.

    Examples
    --------
    >>> rebates([200.0]).warrant.tolist()
    ['astera-2022', 'astera-2026', 'credo']
    """
    return tidy(
        {"warrant": name, "share_usd": usd, "rebate": float(rebate(name, usd)), "printed_rebate": one.printed_rebate}
        for name in ("astera-2022", "astera-2026", "credo")
        for one in [priced.warrant(name)]
        for usd in share_usd
    )


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
    >>> import trnmodel as tm
    >>> late = delay_usd(tm.tco("hgx-h100"), [0, 1, 3])
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
    >>> import trnmodel as tm
    >>> round(float(saving_usd(tm.tco("hgx-h100"), 0.1)), 2)
    3890.16
    """
    who, saved = cost.owner, numbers("usd_per_h", usd_per_h) * PERIOD_H
    months = who.life_years * MONTHS
    return np.asarray(page.present_usd(saved, who.rate_per_year / MONTHS, months, 1 - who.lost_share))


def stated() -> pd.DataFrame:
    """Return what sources state on costs, supply and customers without a number that a model gives.

    Returns
    -------
    table : pandas.DataFrame
        id, topic, claim, touches (the public call that it is about), source, locator. [-]

    Examples
    --------
    >>> sorted(set(stated().topic))
    ['cost', 'market']
    """
    table = claims_of("stated").to_frame()
    names = ["id", "topic", "claim", "touches", "source", "locator"]
    return table[table.topic.isin(("cost", "market"))][names].reset_index(drop=True)
