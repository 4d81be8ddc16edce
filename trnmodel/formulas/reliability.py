"""Failures of many parts: how often they stop a job, what checkpoints save of it, and what spares keep going.

A rate of failures may be 0, where nothing fails; times between failures are then infinite. Failures are independent of
each other and of how long a part has run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from trnmodel.arguments import choice, numbers, share

Numeric = ArrayLike
ORDERS = ("first", "higher")
SERIES_BELOW = 1e-2  # of p: there the series of W is exact to 1e-15, and 1 + W loses digits


def _over(one: Numeric, other: Numeric) -> NDArray:
    """A quotient that is infinite where the divisor is 0."""
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
    r"""Useful time between checkpoints by Young.

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
    r"""Useful time between checkpoints by Daly.

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
    r"""Useful time between checkpoints at which a job takes least time.

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
        found = np.where(p < SERIES_BELOW, near, 1 + special.lambertw(-np.exp(-1 - x)).real) * _over(1.0, rate)
    return np.where(rate > 0, found, np.where(write > 0, np.inf, 0.0))[()]


def time_shares(interval_s: Numeric, write_s: Numeric, restart_s: Numeric, failures_per_s: Numeric) -> tuple:
    r"""What the time of a job goes to that writes checkpoints and begins again at the last one after a failure.

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
    .. [1] J. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006, eq. 13.

    Examples
    --------
    >>> [round(float(part), 4) for part in time_shares(900.0, 100.0, 100.0, 1e-4)]
    [0.8472, 0.0941, 0.01, 0.0487]
    """
    interval, write = numbers("interval_s", interval_s, high=np.inf), numbers("write_s", write_s)
    rate = numbers("failures_per_s", failures_per_s)
    up = np.exp(-rate * numbers("restart_s", restart_s))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        x = np.where(rate > 0, rate * (interval + write), 0.0)
        kept = np.where(x > 0, np.where(np.isinf(x), 0.0, x / np.expm1(x)), 1.0)
        writes = np.where(write > 0, 1 / (1 + interval / write), 0.0)
    return tuple(part[()] for part in (up * kept * (1 - writes), up * kept * writes, 1 - up, up * (1 - kept)))


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


def out_share(failures_per_s: Numeric, repair_s: Numeric) -> NDArray:
    r"""Share of time that a part is out for repair.

    .. math:: q = \frac{\lambda T}{1 + \lambda T}

    Parameters
    ----------
    failures_per_s : numeric
        Failures while it works, lambda. [1/s]
    repair_s : numeric
        Time from a failure until it works again, T. [s]

    Returns
    -------
    out : numeric
        Share of time, q. [-]

    Notes
    -----
    1 - q is MTBF / (MTBF + MTTR).

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 8.

    Examples
    --------
    >>> float(out_share(1e-4, 2500.0))
    0.2
    """
    expected = numbers("failures_per_s", failures_per_s) * numbers("repair_s", repair_s)
    return expected / (1 + expected)


def more_out(parts: Numeric, spares: Numeric, out: Numeric) -> NDArray:
    r"""Probability that more parts are out than there are spares: what is left of k of n.

    .. math:: P = \sum_{i=s+1}^{n} \binom{n}{i} q^i (1-q)^{n-i}

    Parameters
    ----------
    parts : numeric
        Parts, spares included, n. [-]
    spares : numeric
        Parts that may be out, s. [-]
    out : numeric
        Share of time that each part is out, q. [-]

    Returns
    -------
    probability : numeric
        P; 1 - P is the availability of n - s of n. [-]

    Notes
    -----
    Assumes: parts fail and are repaired independently.

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 3.

    Examples
    --------
    >>> round(float(more_out(3, 1, 0.1)), 6)  # 3 x 0.1^2 x 0.9 + 0.1^3
    0.028
    """
    n, s = numbers("parts", parts, whole=True), numbers("spares", spares, whole=True)
    q = share("out", out)
    return np.where(s >= n, 0.0, special.betainc(s + 1, np.maximum(n - s, 1), q))[()]


def worn_per_s(parts: Numeric, spares: Numeric, failures_per_s: Numeric, repair_s: Numeric) -> NDArray:
    r"""How often a failure finds no spare: the rate at which more parts come to be out than there are spares.

    .. math:: \nu = n \lambda (1-q) \binom{n-1}{s} q^s (1-q)^{n-1-s},\quad q = \frac{\lambda T}{1 + \lambda T}

    Parameters
    ----------
    parts : numeric
        Parts, spares included, n. [-]
    spares : numeric
        Parts that may be out, s. [-]
    failures_per_s : numeric
        Failures of a part while it works, lambda. [1/s]
    repair_s : numeric
        Time from a failure until the part works again, T. [s]

    Returns
    -------
    worn_per_s : numeric
        Times that spares run out, nu. [1/s]

    Notes
    -----
    Limits: without spares and with short repairs n lambda.

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 8.

    Examples
    --------
    >>> round(float(worn_per_s(3, 1, 1e-4, 2500.0) / 1e-4), 4)  # 3 x 0.8 x 2 x 0.2 x 0.8
    0.768
    """
    n, s = numbers("parts", parts, whole=True), numbers("spares", spares, whole=True)
    rate = numbers("failures_per_s", failures_per_s)
    q, others = out_share(rate, repair_s), np.maximum(n - 1, 0)
    at_least = np.where(s > 0, more_out(others, np.maximum(s - 1, 0), q), 1.0)
    return n * rate * (1 - q) * np.where(s < n, at_least - more_out(others, s, q), 0.0)


def any_of(groups: Numeric, probability: Numeric) -> NDArray:
    r"""Probability that something holds of at least one of many.

    .. math:: P = 1 - (1 - p)^g

    Parameters
    ----------
    groups : numeric
        How many, g. [-]
    probability : numeric
        That it holds of one, p. [-]

    Returns
    -------
    probability : numeric
        P. [-]

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 3.

    Examples
    --------
    >>> float(any_of(2, 0.5)), float(any_of(0, 1.0))
    (0.75, 0.0)
    """
    g, p = numbers("groups", groups), share("probability", probability)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(g > 0, -np.expm1(g * np.log1p(-p)), 0.0)[()]


def ready_share(expected_out: Numeric, spares: Numeric) -> NDArray:
    r"""Share of time in which no more units are out than there are spares.

    .. math:: A = e^{-\mu} \sum_{i=0}^{s} \mu^i / i!

    Parameters
    ----------
    expected_out : numeric
        Units out at a time, mu: units x failures of each x time of a repair. [-]
    spares : numeric
        Spare units, s. [-]

    Returns
    -------
    ready : numeric
        Share of time, A. [-]

    Notes
    -----
    Assumes: any number is repaired at once; the law of the time of a repair does not matter.

    References
    ----------
    .. [1] C. Palm, Analysis of the Erlang traffic formulae for busy-signal arrangements, Ericsson Technics 6, 1938.

    Examples
    --------
    >>> round(float(ready_share(1.0, 2)), 4)  # (1 + 1 + 1/2) / e
    0.9197
    """
    return special.pdtr(numbers("spares", spares, whole=True), numbers("expected_out", expected_out))


def spares_needed(expected_out: Numeric, ready: Numeric) -> NDArray:
    r"""The fewest spare units with which enough work for a share of time: the quantile of Poisson's law.

    .. math:: s = \min \{ s : e^{-\mu} \sum_{i=0}^{s} \mu^i / i! \ge A \}

    Parameters
    ----------
    expected_out : numeric
        Units out at a time, mu. [-]
    ready : numeric
        Share of time wanted, A, below 1. [-]

    Returns
    -------
    spares : numeric
        Spare units, s. [-]

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 8.

    Examples
    --------
    >>> spares_needed([0.0, 1.0, 15.0], 0.99).tolist()
    [0.0, 4.0, 25.0]
    """
    mu, wanted = numbers("expected_out", expected_out), numbers("ready", ready, high=1 - 1e-12)
    guess = mu + special.ndtri(wanted) * np.sqrt(mu) if np.size(mu) else mu
    s = np.maximum(np.ceil(np.where(np.isfinite(guess), guess, 0.0)), 0.0)
    while np.any(short := special.pdtr(s, mu) < wanted):
        s = s + short
    while np.any(more := (s > 0) & (special.pdtr(np.maximum(s - 1, 0), mu) >= wanted)):
        s = s - more
    return s


def slowest_of(n: Numeric, spread: Numeric) -> NDArray:
    r"""Time of the slowest of many that wait for each other, over the mean of one.

    .. math:: f = 1 + c\, \Phi^{-1}\left(\frac{n - 0.375}{n + 0.25}\right)

    Parameters
    ----------
    n : numeric
        How many wait for each other, n. [-]
    spread : numeric
        Standard deviation of the time of one over its mean, c. [-]

    Returns
    -------
    factor : numeric
        Time of a step over that without spread, f. [-]

    Notes
    -----
    Assumes: times follow a normal law and are drawn anew; Blom's approximation of the largest of n, within 5 %.
    Limits: 1 for one, or without spread.

    References
    ----------
    .. [1] G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958.

    Examples
    --------
    >>> round(float(slowest_of(1000, 0.01)), 4)  # the largest of 1,000 is 3.241 on average
    1.0323
    """
    count = numbers("n", n, 1)
    return 1 + numbers("spread", spread) * special.ndtri((count - 0.375) / (count + 0.25))


def slowed_speed(left: Numeric, exposed: Numeric) -> NDArray:
    r"""Speed of a job whose links have lost some of their rate, over that with all.

    .. math:: v = \frac{1}{1 - e + e / l}

    Parameters
    ----------
    left : numeric
        Rate that is left over the whole rate, l; 0 stops the job. [-]
    exposed : numeric
        Share of a step that waits for the links, e. [-]

    Returns
    -------
    speed : numeric
        v. [-]

    References
    ----------
    .. [1] G. Amdahl, Validity of the single processor approach, AFIPS 1967.

    Examples
    --------
    >>> float(slowed_speed(0.75, 1.0)), float(slowed_speed(0.5, 0.0))
    (0.75, 1.0)
    """
    l, e = share("left", left), share("exposed", exposed)  # noqa: E741
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 / (1 - e + np.where(e > 0, e / l, 0.0))


def goodput(spare: Numeric, ready: Numeric, useful: Numeric, speed: Numeric) -> NDArray:
    r"""Useful share of the time of all chips, those that stand by too.

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
    kept = (1 - share("spare", spare)) * share("ready", ready)
    return kept * share("useful", useful) * share("speed", speed)
