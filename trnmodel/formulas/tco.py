"""What an hour of a chip and a token cost: capital over a life, building or colocation, electricity, useful output.

Money is of one place and date, which the rows of data carry. Capital is over periods (months, say) with a rate for
each; costs by the hour add up.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from trnmodel.units import HOUR, MILLION, Numeric

DECADE = np.log(10.0)
HOURS_PER_YEAR = 8766.0


def _factors(rate: Numeric, periods: Numeric) -> tuple[NDArray, NDArray]:
    """Payments that pay back 1, and that gather 1 by the last period; both are 1/n at a rate of 0."""
    force = np.log1p(rate)
    with np.errstate(over="ignore"):
        shape = scipy.special.exprel(force)
        return (
            np.asarray(shape / (periods * scipy.special.exprel(-force * periods))),
            np.asarray(shape / (periods * scipy.special.exprel(force * periods))),
        )


def capital_recovery_usd(capex_usd: Numeric, rate: Numeric, periods: Numeric, residual_usd: Numeric = 0.0) -> NDArray:
    r"""Equal payments at the end of each period that pay for something, with interest, less what it is sold for.

    .. math:: A = \frac{P\,r}{1 - (1 + r)^{-n}} - \frac{S\,r}{(1 + r)^n - 1}

    Parameters
    ----------
    capex_usd : numeric
        Price, P. [USD]
    rate : numeric
        Cost of capital of a period, r. [-]
    periods : numeric
        Life, n. [-]
    residual_usd : numeric
        What is left of its worth at the end, S. [USD]

    Returns
    -------
    payment_usd : numeric
        Payment of a period, A. [USD]

    Notes
    -----
    Limits: r = 0 gives (P - S)/n, a straight line; n -> inf gives P r. Exact to rounding near r = 0, where the equation
    as it stands loses its digits.

    References
    ----------
    .. [1] Datacenter as a Computer (Barroso, Clidaras, Hoelzle), ch. 6, as ASIC Clouds' evalTCO has it.

    Examples
    --------
    >>> round(float(capital_recovery_usd(8000.0, 0.08 / 12, 18)), 4), float(capital_recovery_usd(10.0, 0.0, 144))
    (473.1224, 0.06944444444444445)
    """
    back, gathered = _factors(rate, periods)
    return np.asarray(capex_usd * back - residual_usd * gathered)


def present_usd(payment_usd: Numeric, rate: Numeric, periods: Numeric, residual_share: Numeric = 0.0) -> NDArray:
    r"""Price that equal payments pay for: capital recovery the other way round, with the residual as a share of it.

    .. math:: P = A \Big/ \left(\frac{r}{1 - (1 + r)^{-n}} - \frac{s\,r}{(1 + r)^n - 1}\right)

    Parameters
    ----------
    payment_usd : numeric
        Payment of a period, A; below zero where even a gift costs too much. [USD]
    rate : numeric
        Cost of capital of a period, r. [-]
    periods : numeric
        Life, n. [-]
    residual_share : numeric
        What is left of its worth at the end, as a share of the price, s. [-]

    Returns
    -------
    price_usd : numeric
        Price, P. [USD]

    Examples
    --------
    >>> round(float(present_usd(capital_recovery_usd(3e4, 0.01, 60, 3e3), 0.01, 60, 0.1)), 6)
    30000.0
    """
    back, gathered = _factors(rate, periods)
    return np.asarray(payment_usd / (back - residual_share * gathered))


def owned_usd_per_h(
    capex_usd: Numeric, rate: Numeric, periods: Numeric, period_h: Numeric, residual_share: Numeric = 0.0
) -> NDArray:
    r"""Cost of an hour of something that is owned.

    .. math:: c = A(P, r, n, s P) / h

    Parameters
    ----------
    capex_usd : numeric
        Price, P; of a building, its dollars a watt times the watts that are provisioned. [USD]
    rate : numeric
        Cost of capital of a period, r. [-]
    periods : numeric
        Life, n. [-]
    period_h : numeric
        Hours of a period, h. [h]
    residual_share : numeric
        What is left of its worth at the end, as a share of the price, s. [-]

    Returns
    -------
    usd_per_h : numeric
        Cost of an hour. [USD/h]

    Examples
    --------
    >>> round(float(owned_usd_per_h(69_444.0, 0.0, 3, 8766.0) * 1.2), 2)  # a fifth more for operations
    3.17
    """
    left = np.multiply(residual_share, capex_usd)
    return capital_recovery_usd(capex_usd, rate, periods, left) / period_h


def facility_usd_per_h(
    power_w: Numeric, build_usd_per_w: Numeric, rate: Numeric, periods: Numeric, period_h: Numeric
) -> NDArray:
    r"""Cost of an hour of a building that is owned, by the watts that it holds for some equipment.

    .. math:: c = A(C\,P_{IT}, r, n) / h

    Parameters
    ----------
    power_w : numeric
        Power that is provisioned, P_IT. [W]
    build_usd_per_w : numeric
        Price of a building for each watt of it, C. [USD/W]
    rate : numeric
        Cost of capital of a period, r. [-]
    periods : numeric
        Life of the building, n. [-]
    period_h : numeric
        Hours of a period, h. [h]

    Returns
    -------
    usd_per_h : numeric
        Cost of an hour. [USD/h]

    Examples
    --------
    >>> round(float(facility_usd_per_h(1.0, 10.0, 0.08 / 12, 144, 1.0)), 5)  # a watt and a month
    0.10825
    """
    return owned_usd_per_h(np.multiply(power_w, build_usd_per_w), rate, periods, period_h)


def colocation_usd_per_h(power_w: Numeric, colocation_usd_per_w_h: Numeric) -> NDArray:
    r"""Cost of an hour of a building that is rented by the watt: in place of its capital, never beside it.

    .. math:: c = k\,P

    Parameters
    ----------
    power_w : numeric
        Power that is provisioned, P. [W]
    colocation_usd_per_w_h : numeric
        Rent, k: that of a kilowatt and a month over 1,000 and the hours of a month. [USD/W/h]

    Returns
    -------
    usd_per_h : numeric
        Cost of an hour. [USD/h]

    Examples
    --------
    >>> round(float(colocation_usd_per_h(1730.0, 184.06 / 1e3 / 730.5)), 3)
    0.436
    """
    return np.multiply(power_w, colocation_usd_per_w_h)


def energy_usd_per_h(power_w: Numeric, pue: Numeric, electricity_usd_per_j: Numeric) -> NDArray:
    r"""Cost of an hour's electricity.

    .. math:: c = P\,\mathrm{PUE}\,e

    Parameters
    ----------
    power_w : numeric
        Mean power of IT equipment, P. [W]
    pue : numeric
        Annual power usage effectiveness. [-]
    electricity_usd_per_j : numeric
        Price of electricity, e; of a kilowatt-hour over 3.6 million. [USD/J]

    Returns
    -------
    usd_per_h : numeric
        Cost of an hour. [USD/h]

    Examples
    --------
    >>> round(float(energy_usd_per_h(1730.0, 1.0, 0.0826 / 3.6e6)), 3)
    0.143
    """
    return np.multiply(power_w, pue) * electricity_usd_per_j * HOUR


def useful_usd_per_h(usd_per_h: Numeric, shares: tuple[Numeric, ...]) -> NDArray:
    r"""Cost of an hour of use, where only shares of the time are of use.

    .. math:: c_u = c / \prod_i s_i

    Parameters
    ----------
    usd_per_h : numeric
        Cost of an hour, c. [USD/h]
    shares : tuple of numeric
        Availability, utilisation, goodput, s_i. [-]

    Returns
    -------
    usd_per_h : numeric
        Cost of an hour that is of use. [USD/h]

    Examples
    --------
    >>> float(useful_usd_per_h(1.5, (0.8, 0.75)))
    2.5
    """
    cost = np.asarray(usd_per_h, dtype=float)
    for share in shares:
        cost = cost / share
    return np.asarray(cost)


def usd_per_mtoken(usd_per_h: Numeric, tokens_per_s: Numeric) -> NDArray:
    r"""Cost of a million tokens.

    .. math:: C = 10^6\, c / (3600\, r)

    Parameters
    ----------
    usd_per_h : numeric
        Cost of an hour of some chips, c. [USD/h]
    tokens_per_s : numeric
        Tokens a second of the same chips, r. [token/s]

    Returns
    -------
    usd_per_mtoken : numeric
        Cost of a million tokens. [USD/Mtoken]

    Examples
    --------
    >>> round(float(usd_per_mtoken(2.0, 85.0)), 2)
    6.54
    """
    return np.divide(usd_per_h, tokens_per_s) * (MILLION / HOUR)


def flop_per_s_per_usd_per_h(flop_per_s: Numeric, usd_per_h: Numeric) -> NDArray:
    r"""Rate that a dollar an hour pays for; what a text prints as "FLOPs / $" is often this, 3,600 times too small.

    .. math:: f = R / c

    Parameters
    ----------
    flop_per_s : numeric
        Rate of a chip, R; or bytes a second. [FLOP/s]
    usd_per_h : numeric
        Cost of an hour of it, c. [USD/h]

    Returns
    -------
    flop_per_s_per_usd_per_h : numeric
        Rate for each dollar an hour. [FLOP*h/s/USD]

    Examples
    --------
    >>> f"{float(flop_per_s_per_usd_per_h(459e12, 4.2)):.3g}"
    '1.09e+14'
    """
    return np.divide(flop_per_s, usd_per_h)


def grossed_up_usd(part_usd: Numeric, share: Numeric) -> NDArray:
    r"""Cost of something that is a share of a whole of which the rest is known.

    .. math:: X = P\, s / (1 - s)

    Parameters
    ----------
    part_usd : numeric
        Cost of the rest, P. [USD]
    share : numeric
        Share of the whole, s; of a network in a cluster, say. [-]

    Returns
    -------
    cost_usd : numeric
        Cost, X. [USD]

    References
    ----------
    .. [1] Cottier et al., The rising costs of training frontier AI models, arXiv 2405.21015, app. A.

    Examples
    --------
    >>> float(grossed_up_usd(81.0, 0.19)).__round__(9)
    19.0
    """
    return np.asarray(np.multiply(part_usd, share) / np.subtract(1.0, share))


def aged_usd(price_usd: Numeric, decades_per_year: Numeric, years: Numeric) -> NDArray:
    r"""Return the price of the same performance some years later.

    .. math:: P(t) = P\, 10^{-g t}

    Parameters
    ----------
    price_usd : numeric
        Price at first, P. [USD]
    decades_per_year : numeric
        Powers of ten that hardware becomes cheaper in a year, g. [1/year]
    years : numeric
        Time, t. [year]

    Returns
    -------
    price_usd : numeric
        Price then. [USD]

    References
    ----------
    .. [1] Cottier et al., The rising costs of training frontier AI models, arXiv 2405.21015, app. A: g = 0.14.

    Examples
    --------
    >>> round(float(aged_usd(44_489.88, 0.14, 432 / 365.25)), 2)
    30386.17
    """
    return np.asarray(price_usd * np.exp(-DECADE * np.multiply(decades_per_year, years)))


def replacement_usd_per_h(price_usd: Numeric, decades_per_year: Numeric) -> NDArray:
    r"""Return the value that a chip loses in its first hour, as new chips become cheaper.

    .. math:: c = P\, g \ln 10 / 8766

    Parameters
    ----------
    price_usd : numeric
        Price when it starts to work, P. [USD]
    decades_per_year : numeric
        Powers of ten that hardware becomes cheaper in a year, g. [1/year]

    Returns
    -------
    usd_per_h : numeric
        Loss of an hour; a year of 365.25 days has 8,766. [USD/h]

    References
    ----------
    .. [1] Cottier et al., The rising costs of training frontier AI models, arXiv 2405.21015, app. A.

    Examples
    --------
    >>> round(float(replacement_usd_per_h(30_386.17, 0.14)), 3)
    1.117
    """
    return np.asarray(np.multiply(price_usd, decades_per_year) * DECADE / HOURS_PER_YEAR)


def late_share(decades_per_year: Numeric, interest_per_year: Numeric, years: Numeric) -> NDArray:
    r"""Share of the worth of a machine's output that is lost when it comes later.

    .. math:: \ell = 1 - 10^{-g t}\, e^{-\rho t}

    Parameters
    ----------
    decades_per_year : numeric
        Powers of ten that the worth of its output falls in a year, g. [1/year]
    interest_per_year : numeric
        Cost of capital, compounded all the time, rho = ln(1 + i). [1/year]
    years : numeric
        How much later, t; below 0 for earlier, which gains. [year]

    Returns
    -------
    late_share : numeric
        Share lost; the machine has the same life, only later. [-]

    Notes
    -----
    Assumes that output is worth what the newest machine makes it for, so that its worth falls as hardware becomes
    cheaper.

    Examples
    --------
    >>> round(float(late_share(0.14, np.log(1.08), 1 / 12)), 4), float(late_share(0.14, 0.08, 0.0))
    (0.0327, 0.0)
    """
    return np.asarray(-np.expm1(-(np.multiply(decades_per_year, DECADE) + interest_per_year) * years))


def rebate_share(warrants: Numeric, share_usd: Numeric, strike_usd: Numeric, spend_usd: Numeric) -> NDArray:
    r"""Discount on what is bought that warrants on the seller's stock come to.

    .. math:: d = \max\bigl(0,\, N (P - K)\bigr) / S

    Parameters
    ----------
    warrants : numeric
        Shares that vest with the purchases, N. [-]
    share_usd : numeric
        Price of a share, P. [USD]
    strike_usd : numeric
        Price at which the warrants buy one, K. [USD]
    spend_usd : numeric
        Purchases, S. [USD]

    Returns
    -------
    rebate_share : numeric
        Discount, of intrinsic value alone; above 1 the seller pays the buyer. [-]

    Examples
    --------
    >>> round(float(rebate_share(3_262_299, 200.0, 142.82, 6.5e9)), 5)
    0.0287
    """
    return np.maximum(0.0, np.multiply(warrants, np.subtract(share_usd, strike_usd))) / spend_usd
