"""How far a prediction may be off: intervals from the errors of rows nearby, and what they are scored by.

Widths are half-widths of the natural logarithm of a time: a width w puts the ends at exp(-w) and exp(w) times it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, numbers, share, together
from trnmodel.units import Numeric

NOMINAL = 0.9  # share of measurements that an interval is to hold
PRIOR_CASES = 8.0  # cases of its own at which a group's quantile has as much say as the pooled one
FEWEST = 3  # cases of a group that has a say at all
GROWTH = 0.1  # of the variance, for each octave away from the rows
PAGE_SHARE = 0.5  # of the variance of errors that the rows of one page share; 0.57 to 0.96 were met on new pages
PRIOR_ROWS = 1.0  # rows at the point at which they have as much say as the scale of their group
SMALLEST = 0.01  # error below which sizes are one: what three printed digits may be off by


def conformal_width(log_errors: Numeric, nominal: Numeric = NOMINAL, weights: Numeric = 1.0) -> NDArray:
    r"""Half-width that holds a share of errors that were left out: their conformal quantile.

    .. math:: q = |e|_{(k)},\quad \sum_{i \le k} w_i \ge p\,\Big(1 + \sum_i w_i\Big)

    Parameters
    ----------
    log_errors : array
        Logarithms of predicted over measured of cases that the prediction has not seen, e: one dimension. [-]
    nominal : numeric
        Share to be held, p; one number. [-]
    weights : numeric
        Independent cases that each error is worth, w: less than one where cases have much in common. [-]

    Returns
    -------
    width : numeric
        Half-width, q; the largest error where cases are too few for p, NaN without cases. [-]

    Raises
    ------
    ValueError
        More than one dimension, or a share outside 0 to 1.

    Notes
    -----
    Assumes: cases that can be exchanged with the one that is predicted.

    References
    ----------
    .. [1] J. Lei et al., Distribution-free predictive inference for regression, JASA 113(523), 2018, Algorithm 2;
       R. Tibshirani et al., Conformal prediction under covariate shift, NeurIPS 2019, eq. 7, of weights.

    Examples
    --------
    >>> float(conformal_width([0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8, 0.9], 0.5))
    0.5
    """
    p, errors, each = float(share("nominal", nominal)), *_weighted(np.abs(np.asarray(log_errors)), weights)
    return np.append(errors, np.nan)[min(_rank(p, each), errors.size - 1) if errors.size else 0]


def _weighted(errors: NDArray, weights: Numeric) -> tuple[NDArray, NDArray]:
    """Return errors from the least to the largest, each with its weight; refused are those of several dimensions."""
    errors = np.asarray(errors, dtype=float)
    if errors.ndim != 1:
        raise ValueError(f"log_errors: {errors.ndim} dimensions; allowed is one")
    each = np.broadcast_to(numbers("weights", weights, TINY) if errors.size else 1.0, errors.shape)
    order = np.argsort(errors, kind="stable")
    return errors[order], each[order]


def _rank(p: float, weights: NDArray) -> int:
    """Return the place of the first error up to which a share of the weights lies, with one more case at the end."""
    return int(np.searchsorted(np.cumsum(weights), p * (weights.sum() + 1) - 1e-9))


def tail_widths(log_errors: Numeric, nominal: Numeric = NOMINAL, weights: Numeric = 1.0) -> tuple[NDArray, NDArray]:
    r"""Half-widths below and above a prediction, each of which leaves out half of what the interval leaves out.

    .. math:: q_- = e_{(k)},\; q_+ = (-e)_{(k)},\; \sum_{i \le k} w_i \ge \tfrac{1 + p}{2}\,\Big(1 + \sum_i w_i\Big)

    Parameters
    ----------
    log_errors : array
        Logarithms of predicted over measured times, e: one dimension, with their signs. [-]
    nominal : numeric
        Share to be held, p; one number. [-]
    weights : numeric
        Independent cases that each error is worth, w. [-]

    Returns
    -------
    widths : tuple
        Half-widths below and above, none of them less than zero; NaN where cases are so few that a tail would end at
        the largest error of all (38 at p = 0.9). [-]

    Raises
    ------
    ValueError
        More than one dimension, or a share outside 0 to 1.

    Notes
    -----
    Assumes: cases that can be exchanged with the one that is predicted.

    References
    ----------
    .. [1] J. Lei et al., Distribution-free predictive inference for regression, JASA 113(523), 2018, Algorithm 2:
       either side by itself.

    Examples
    --------
    >>> below, above = tail_widths([*[0.1] * 36, -0.9, -0.9, -0.9, -1.0])
    >>> float(below), float(above)
    (0.1, 0.9)
    """
    p, of = float(share("nominal", nominal)), np.asarray(log_errors, dtype=float)
    below, above = (_tail(*_weighted(sign * of, weights), (1 + p) / 2) for sign in (1, -1))
    return (below, above) if np.isfinite([below, above]).all() else (np.asarray(np.nan), np.asarray(np.nan))


def _tail(errors: NDArray, weights: NDArray, p: float) -> NDArray:
    """Return the end of a tail; NaN where that would be the largest error of all."""
    rank = _rank(p, weights)
    return np.asarray(np.nan) if rank >= errors.size - 1 else np.maximum(errors[rank], 0.0)


def shrunk_width(own: Numeric, cases: Numeric, pooled: Numeric, prior_cases: Numeric = PRIOR_CASES) -> NDArray:
    r"""Width of a group between its own and that of all groups, by how many cases it has.

    .. math:: w_g = \exp\frac{n \ln q_g + k \ln q_0}{n + k}

    Parameters
    ----------
    own : numeric
        Half-width of the group's cases, q_g. [-]
    cases : numeric
        Cases of the group, n; below three the pooled width holds. [-]
    pooled : numeric
        Half-width of all groups' cases, q_0. [-]
    prior_cases : numeric
        Weight of the pooled width in cases, k. [-]

    Returns
    -------
    width : numeric
        Half-width, w_g; broadcast shape of the arguments. [-]

    Notes
    -----
    Limits: many cases give the group's own; few give the pooled one. A group without width of its own (NaN) has few.

    Examples
    --------
    >>> round(float(shrunk_width(0.1, 8, 0.4)), 3), float(shrunk_width(0.1, 2, 0.4))
    (0.2, 0.4)
    """
    n, k = numbers("cases", cases), numbers("prior_cases", prior_cases, TINY)
    q, q0 = numbers("own", own, unknown=True), numbers("pooled", pooled, unknown=True)
    together(own=q, cases=n, pooled=q0, prior_cases=k)
    n = np.where((n < FEWEST) | np.isnan(q), 0.0, n)
    logs = np.log(np.maximum(np.where(n > 0, q, 1.0), TINY)), np.log(np.maximum(q0, TINY))
    return np.exp((n * logs[0] + k * logs[1]) / (n + k))[()]


def effective_rows(rows: Numeric, correlation: Numeric = PAGE_SHARE) -> NDArray:
    r"""Return how many independent rows the rows of one page are worth: Kish's design effect.

    .. math:: n' = \frac{n}{1 + \rho \max(0,\; n - 1)}

    Parameters
    ----------
    rows : numeric
        Rows of the page, n; a sum of weights, so that it may be any number. [-]
    correlation : numeric
        Share of the variance that the rows of a page have in common, rho. [-]

    Returns
    -------
    rows : numeric
        Independent rows, n'; broadcast shape of the arguments. [-]

    Notes
    -----
    Limits: one row counts as one; however many rows a page has, they count as no more than 1/rho.

    References
    ----------
    .. [1] L. Kish, Survey Sampling, Wiley, 1965, section 5.4.

    Examples
    --------
    >>> effective_rows([0.5, 1, 3], 0.5).tolist()
    [0.5, 1.0, 1.5]
    """
    n, rho = numbers("rows", rows), share("correlation", correlation)
    together(rows=n, correlation=rho)
    return n / (1 + rho * np.maximum(n - 1, 0.0))


def local_scale(rows: Numeric, logs: Numeric, prior: Numeric, prior_rows: Numeric = PRIOR_ROWS) -> NDArray:
    r"""Typical size of errors at a point: the geometric mean of those nearby, by page, drawn towards a prior.

    .. math:: \ln s = \frac{\sum_p n'_p\, L_p / n_p + k \ln s_0}{\sum_p n'_p + k}

    Parameters
    ----------
    rows : array
        Rows of each page, weighted by how near they are, n; pages are the last axis. [-]
    logs : array
        Sum over a page's rows of weight times the logarithm of the error's size, L; the shape of `rows`. [-]
    prior : numeric
        Scale where no row is near, s_0; the shape of `rows` without its last axis. [-]
    prior_rows : numeric
        Weight of the prior in rows, k. [-]

    Returns
    -------
    scale : numeric
        Scale, s; the shape of `rows` without its last axis. [-]

    Notes
    -----
    Assumes: a page's rows share half of their variance, so that they count as `effective_rows` of them. One error that
    is ten times too large moves a mean of logarithms little.
    Limits: without rows nearby the scale is the prior.

    Examples
    --------
    >>> logs = np.log([0.1, 0.4])
    >>> round(float(local_scale([1.0, 2.0], [logs[0], 2 * logs[1]], 0.2, 0.0)), 4)  # 1 row and 4/3 rows
    0.2208
    """
    n, sums, s0 = np.asarray(rows, dtype=float), np.asarray(logs, dtype=float), np.asarray(prior, dtype=float)
    votes = effective_rows(n)
    means = np.divide(sums, n, out=np.zeros(n.shape), where=n > 0)
    drawn = (votes * means).sum(axis=-1) + prior_rows * np.log(s0)
    return np.exp(drawn / (votes.sum(axis=-1) + prior_rows))[()]


def grown_width(width: Numeric, octaves: Numeric, growth: Numeric = GROWTH) -> NDArray:
    r"""Width at a distance from the rows that it was found on.

    .. math:: w(d) = w_g \sqrt{1 + g d}

    Parameters
    ----------
    width : numeric
        Half-width at the rows, w_g. [-]
    octaves : numeric
        Doublings away from what was measured, summed over the axes, d. [-]
    growth : numeric
        Growth of the variance an octave, g. [-]

    Returns
    -------
    width : numeric
        Half-width, w(d); broadcast shape of the arguments. [-]

    Notes
    -----
    Assumes: what an octave adds is independent of what the others add. Fitted to short contexts and small batches
    alone, dense decode is off by 0.24 to 0.26 (rms) one to three octaves beyond, by 0.185 inside: 0.2 to 0.3 an octave.
    Errors with the page left out, nine tenths of which lie within six octaves of the rest, do not grow: 0.1 is between
    the two. Without growth their interval score is 1 % better, with 0.2 it is 1 % worse.

    Examples
    --------
    >>> float(grown_width(0.2, 30)), float(grown_width(0.2, 0))
    (0.4, 0.2)
    """
    w, d, g = numbers("width", width, unknown=True), numbers("octaves", octaves), numbers("growth", growth)
    together(width=w, octaves=d, growth=g)
    return w * np.sqrt(1 + g * d)


def joint_width(*widths: Numeric) -> NDArray:
    r"""Width of errors of several independent causes.

    .. math:: w = \sqrt{\sum_i w_i^2}

    Parameters
    ----------
    widths : arrays
        Half-widths, w_i. [-]

    Returns
    -------
    width : numeric
        Half-width, w; broadcast shape of the arguments. [-]

    Examples
    --------
    >>> float(joint_width(0.3, 0.4))
    0.5
    """
    terms = [numbers(f"widths[{i}]", w, unknown=True) for i, w in enumerate(widths)]
    together(**{f"widths[{i}]": w for i, w in enumerate(terms)})
    return np.sqrt(np.sum([w**2 for w in np.broadcast_arrays(*terms)], axis=0))[()]


def interval_score(
    log_error: Numeric, below: Numeric, above: Numeric | None = None, nominal: Numeric = NOMINAL
) -> NDArray:
    r"""Winkler's score of an interval of the logarithm: its width and a fine for what lies outside; less is better.

    .. math:: S = w_- + w_+ + \frac{2}{1 - p} \left(\max(0, e - w_-) + \max(0, -e - w_+)\right)

    Parameters
    ----------
    log_error : numeric
        Logarithm of predicted over measured, e. [-]
    below, above : numeric
        Half-widths below and above the prediction; where no second one is given both are the first. [-]
    nominal : numeric
        Share that the interval is to hold, p. [-]

    Returns
    -------
    score : numeric
        Score, S; broadcast shape of the arguments. [-]

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery, Strictly proper scoring rules, JASA 102(477), 2007, eq. 43.

    Examples
    --------
    >>> [round(float(interval_score(e, 0.2)), 6) for e in (0.1, -0.3)]
    [0.4, 2.4]
    """
    e, p = np.asarray(log_error, dtype=float), share("nominal", nominal)
    down = numbers("below", below, unknown=True)
    up = down if above is None else numbers("above", above, unknown=True)
    together(log_error=e, below=down, above=up, nominal=p)
    return down + up + 2 / (1 - p) * (np.maximum(e - down, 0.0) + np.maximum(-e - up, 0.0))
