"""Failures of many parts: how often they stop a job, and what checkpoints save of it.

A rate of failures may be 0, where nothing fails; times between failures are then infinite. Failures are independent of
each other and of how long a part has run.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from trnmodel.arguments import choice, flushed, numbers, share
from trnmodel.units import Numeric

ORDERS = ("first", "higher")
SERIES_BELOW = 1e-2  # of p: there the series of W is exact to 1e-15, and 1 + W loses digits


def _over(one: Numeric, other: Numeric) -> NDArray:
    """Return a quotient that is infinite where the divisor is 0."""
    with np.errstate(divide="ignore"):
        return np.divide(one, other)


def mtbf_s(counts: tuple[Numeric, ...], failures_per_s: tuple[Numeric, ...]) -> NDArray:
    r"""Mean time between failures of parts that all have to work.

    .. math:: M = 1 / \sum_i n_i \lambda_i

    Parameters
    ----------
    counts : tuple of numeric
        Parts of each kind, n_i. [-]
    failures_per_s : tuple of numeric
        Failures of one part of each kind, lambda_i. [1/s]

    Returns
    -------
    mtbf_s : numeric
        Mean time between failures, M; infinite where nothing fails. [s]

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 3.

    Examples
    --------
    >>> hours = 3600.0 * np.array([50_000, 150_000, 100_000])  # 8 GPUs, 2 NICs, 2 power supplies
    >>> round(float(mtbf_s((8, 2, 2), tuple(1 / hours))) / 3600, 2)
    5172.41
    """
    if len(counts) != len(failures_per_s):
        raise ValueError(f"counts: {len(counts)} kinds of part, failures_per_s has {len(failures_per_s)}")
    rates = (
        numbers("counts", n) * numbers("failures_per_s", rate) for n, rate in zip(counts, failures_per_s, strict=True)
    )
    return _over(1.0, sum(rates, np.zeros(())))


def young_interval_s(write_s: Numeric, failures_per_s: Numeric) -> NDArray:
    r"""Return the useful time between checkpoints by Young.

    .. math:: \tau = \sqrt{2 \delta / \lambda}

    Parameters
    ----------
    write_s : numeric
        Time that a checkpoint holds the job up, delta. [s]
    failures_per_s : numeric
        Failures that stop the job, lambda. [1/s]

    Returns
    -------
    interval_s : numeric
        Useful time between two checkpoints, tau. [s]

    Notes
    -----
    Assumes: a checkpoint takes much less than the time between failures.

    References
    ----------
    .. [1] J. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974.

    Examples
    --------
    >>> round(float(young_interval_s(20.0, 419 / (54 * 24 * 3600.0))), 2)  # 419 failures in 54 days
    667.39
    """
    return np.sqrt(2 * _over(numbers("write_s", write_s), numbers("failures_per_s", failures_per_s)))


def daly_interval_s(write_s: Numeric, failures_per_s: Numeric, order: str = "higher") -> NDArray:
    r"""Return the useful time between checkpoints by Daly.

    .. math::
        \tau_1 = \sqrt{2 \delta M} - \delta,\quad
        \tau = \sqrt{2 \delta M} \left[1 + \frac{1}{3} \sqrt{\frac{\delta}{2M}} + \frac{1}{9} \frac{\delta}{2M}\right]
        - \delta,\quad M = 1/\lambda

    Parameters
    ----------
    write_s : numeric
        Time that a checkpoint holds the job up, delta. [s]
    failures_per_s : numeric
        Failures that stop the job, lambda. [1/s]
    order : {"first", "higher"}
        Order of the approximation.

    Returns
    -------
    interval_s : numeric
        Useful time between two checkpoints, tau; 0 at the first order, M at the higher where the checkpoint takes 2 M
        or more. [s]

    Notes
    -----
    The write is taken off: the square root is the time from one checkpoint to the next.

    References
    ----------
    .. [1] J. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006.

    Examples
    --------
    >>> rate = 419 / (54 * 24 * 3600.0)
    >>> [round(float(daly_interval_s(20.0, rate, order)), 2) for order in ORDERS]
    [647.39, 654.12]
    """
    write, rate = numbers("write_s", write_s), numbers("failures_per_s", failures_per_s)
    first, half = young_interval_s(write, rate), write * rate / 2
    if choice("order", order, ORDERS) == "first":
        return np.maximum(first - write, 0.0)
    return np.where(half < 1, first * (1 + np.sqrt(half) / 3 + half / 9) - write, _over(1.0, rate))


def best_interval_s(write_s: Numeric, failures_per_s: Numeric) -> NDArray:
    r"""Return the useful time between checkpoints at which a job takes least time.

    .. math:: \tau = \frac{1}{\lambda} \left[1 + W_0\left(-e^{-1-\lambda\delta}\right)\right]

    Parameters
    ----------
    write_s : numeric
        Time that a checkpoint holds the job up, delta. [s]
    failures_per_s : numeric
        Failures that stop the job, lambda. [1/s]

    Returns
    -------
    interval_s : numeric
        Useful time between two checkpoints, tau; infinite where nothing fails. [s]

    Notes
    -----
    The minimum of `time_shares` over the interval, exact for failures that follow an exponential law; W is Lambert's
    function. Near its branch point 1 + W is taken from the series in p = sqrt(2 (1 - exp(-lambda delta))).
    Limits: short writes give Young's interval; long ones 1/lambda.

    References
    ----------
    .. [1] R. Corless et al., On the Lambert W function, Adv. Comput. Math. 5, 1996, eq. 4.22.

    Examples
    --------
    >>> round(float(best_interval_s(300.0, 419 / (54 * 24 * 3600.0))), 2)
    2388.76
    """
    write, rate = numbers("write_s", write_s), numbers("failures_per_s", failures_per_s)
    x = write * rate
    p = np.sqrt(-2 * np.expm1(-x))
    near = p * (1 - p * (1 / 3 - p * (11 / 72 - p * (43 / 540 - p * (769 / 17280 - p * 221 / 8505)))))
    with np.errstate(invalid="ignore"):
        interval_s = np.where(p < SERIES_BELOW, near, 1 + scipy.special.lambertw(-np.exp(-1 - x)).real) * _over(
            1.0, rate
        )
    return np.where(rate > 0, interval_s, np.where(write > 0, np.inf, 0.0))[()]


def time_shares(interval_s: Numeric, write_s: Numeric, restart_s: Numeric, failures_per_s: Numeric) -> tuple:
    r"""Return the shares of time of a job that writes checkpoints and restarts from the last one after a failure.

    .. math::
        u = e^{-\lambda R}\, \frac{\tau}{\tau + \delta}\, \frac{x}{e^x - 1},\quad
        w = u\, \frac{\delta}{\tau},\quad r = 1 - e^{-\lambda R},\quad
        b = e^{-\lambda R} \left(1 - \frac{x}{e^x - 1}\right),\quad x = \lambda (\tau + \delta)

    Parameters
    ----------
    interval_s : numeric
        Useful time between two checkpoints, tau; infinite for none. [s]
    write_s : numeric
        Time that a checkpoint holds the job up, delta. [s]
    restart_s : numeric
        Time from a failure to the first repeated step, R. [s]
    failures_per_s : numeric
        Failures that stop the job, lambda. [1/s]

    Returns
    -------
    useful, writing, restarting, redone : numeric
        Shares of time, u, w, r and b, which sum to 1: work that is kept, checkpoints that are kept, restarts, and what
        is done again. [-], [-], [-], [-]

    Notes
    -----
    Assumes: failures follow an exponential law and may hit checkpoints and restarts too; u is tau over
    M exp(R/M) (exp((tau + delta)/M) - 1), Daly's time of a segment.

    References
    ----------
    .. [1] J. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006.

    Examples
    --------
    >>> [round(float(part), 4) for part in time_shares(900.0, 100.0, 100.0, 1e-4)]
    [0.8472, 0.0941, 0.01, 0.0487]
    """
    interval, write = numbers("interval_s", interval_s, high=np.inf), numbers("write_s", write_s)
    rate = numbers("failures_per_s", failures_per_s)
    restart = numbers("restart_s", restart_s)
    up = np.exp(-rate * restart)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        x = np.where(rate > 0, rate * (interval + write), 0.0)
        saved_share = np.where(x > 0, np.where(np.isinf(x), 0.0, x / np.expm1(x)), 1.0)
        writes = np.where(write > 0, 1 / (1 + interval / write), 0.0)
    parts = (
        up * saved_share * (1 - writes),
        up * saved_share * writes,
        -np.expm1(-rate * restart),
        up * (1 - saved_share),
    )
    return tuple(map(flushed, parts))


def ettr(interval_s: Numeric, write_s: Numeric, restart_s: Numeric, failures_per_s: Numeric) -> NDArray:
    r"""Effective training time ratio by Meta's closed form, for small losses.

    .. math:: E = \max\left(0, \frac{1 - \lambda (u_0 + \tau/2)}{1 + w/\tau}\right)

    Parameters
    ----------
    interval_s : numeric
        Useful time between two checkpoints, tau. [s]
    write_s : numeric
        Time that a checkpoint holds the job up, w. [s]
    restart_s : numeric
        Time to start the job again, u_0. [s]
    failures_per_s : numeric
        Failures that stop the job, N r of nodes and their rate. [1/s]

    Returns
    -------
    ettr : numeric
        Share of time, E; 0 where the form has left its range. [-]

    Notes
    -----
    Assumes: losses are small, half an interval is lost each time, and failures are seen at once.

    References
    ----------
    .. [1] A. Kokolis et al., Revisiting reliability in large-scale machine learning research clusters, HPCA 2025.

    Examples
    --------
    >>> rate = 2048 * 6.5e-3 / 86_400  # of 2,048 nodes
    >>> round(float(ettr(15 * 60.0, 20.0, 5 * 60.0, rate)), 4), round(float(ettr(3600.0, 20.0, 300.0, rate)), 4)
    (0.8652, 0.6727)
    """
    interval, write = numbers("interval_s", interval_s), numbers("write_s", write_s)
    lost = numbers("failures_per_s", failures_per_s) * (numbers("restart_s", restart_s) + interval / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        writes = np.where(write > 0, write / interval, 0.0)
    return np.maximum(1 - lost, 0.0) / (1 + writes)


def goodput(spare: Numeric, ready: Numeric, useful: Numeric, speed: Numeric) -> NDArray:
    r"""Return the useful share of the time of all chips, those that stand by too.

    .. math:: G = (1 - s)\, A\, u\, v

    Parameters
    ----------
    spare : numeric
        Share of the chips that stand by, s. [-]
    ready : numeric
        Share of time in which enough chips work, A. [-]
    useful : numeric
        Share of a job's time whose work is kept, u. [-]
    speed : numeric
        Mean speed over that of a whole machine, v. [-]

    Returns
    -------
    goodput : numeric
        Share, G. [-]

    References
    ----------
    .. [1] A. Kokolis et al., Revisiting reliability in large-scale machine learning research clusters, HPCA 2025.

    Examples
    --------
    >>> round(float(goodput(0.02, 0.99, 0.95, 0.97)), 4)
    0.894
    """
    working = (1 - share("spare", spare)) * share("ready", ready)
    return working * share("useful", useful) * share("speed", speed)
