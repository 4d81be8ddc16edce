"""Parts that stand in for others: how many are out at a time, how many spares that takes, and what the rest waits for.

Failures are independent of each other and of how long a part has run.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from trnmodel.arguments import flushed, numbers, share
from trnmodel.units import Numeric

MANY = 1e6  # units out at a time, from which on the normal law stands for Poisson's


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
    return flushed(expected / (1 + expected))


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
    return flushed(np.where(s >= n, 0.0, scipy.special.betainc(s + 1, np.maximum(n - s, 1), q)))


def unspared_per_s(parts: Numeric, spares: Numeric, failures_per_s: Numeric, repair_s: Numeric) -> NDArray:
    r"""Rate of the failures that find no spare, because as many other parts are out as there are spares, or more.

    .. math:: \nu = n \lambda \sum_{i=s}^{n-1} \binom{n-1}{i} q^i (1-q)^{n-1-i},\quad
        q = \frac{\lambda T}{1 + \lambda T}

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
    unspared_per_s : numeric
        Failures that find no spare, nu. [1/s]

    Notes
    -----
    Assumes: a part that is out is replaced by one that may fail, so that a longer repair never saves a failure.
    Limits: without spares n lambda; 0 where all parts may be out.

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 8.

    Examples
    --------
    >>> round(float(unspared_per_s(3, 1, 1e-4, 2500.0) / 1e-4), 4)  # 3 x (1 - 0.8^2)
    1.08
    """
    n, s = numbers("parts", parts, whole=True), numbers("spares", spares, whole=True)
    rate = numbers("failures_per_s", failures_per_s)
    others = np.maximum(n - 1, 0)
    at_least = np.where(s > 0, more_out(others, np.maximum(s - 1, 0), out_share(rate, repair_s)), 1.0)
    return n * rate * np.where(s < n, at_least, 0.0)


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
        return flushed(np.where(g > 0, -np.expm1(g * np.log1p(-p)), 0.0))


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
    return flushed(scipy.special.pdtr(numbers("spares", spares, whole=True), numbers("expected_out", expected_out)))


def spares_needed(expected_out: Numeric, ready: Numeric) -> NDArray:
    r"""Return the fewest spare units with which enough work for a share of time: the quantile of Poisson's law.

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

    Notes
    -----
    From `MANY` units out at a time on, s is the quantile of the normal law of the same mean and variance, which is
    within ten units of Poisson's there. A double does not tell whole numbers apart beyond 9e15.

    References
    ----------
    .. [1] K. Trivedi, Probability and Statistics with Reliability, Queuing and Computer Science Applications, ch. 8.

    Examples
    --------
    >>> spares_needed([0.0, 1.0, 15.0], 0.99).tolist()
    [0.0, 4.0, 25.0]
    """
    mu, wanted = numbers("expected_out", expected_out), numbers("ready", ready, high=1 - 1e-12)
    guess = mu + scipy.special.ndtri(wanted) * np.sqrt(mu) if np.size(mu) else mu
    s, few = np.maximum(np.ceil(np.where(np.isfinite(guess), guess, 0.0)), 0.0), mu < MANY
    while np.any(short := few & (scipy.special.pdtr(s, mu) < wanted)):
        s = s + short
    while np.any(more := few & (s > 0) & (scipy.special.pdtr(np.maximum(s - 1, 0), mu) >= wanted)):
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
    return 1 + numbers("spread", spread) * scipy.special.ndtri((count - 0.375) / (count + 0.25))


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
