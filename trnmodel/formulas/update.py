"""Linear-Gaussian updates: what measurements say of quantities that are known within ranges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import refuse

OUTLYING = 2.5  # standard deviations from which on a measurement loses weight, as in Huber's estimate


class Update(NamedTuple):
    """Mean and covariance of quantities after measurements, and what those look like from each other.

    `left_out` is the error of each measurement as the others predict it, `left_out_sd` the standard deviation that it
    was expected to have; `weights` are 1 for a measurement in line with the others, and less for one that is not.
    `misfit` is the square of all residuals over what they were expected to be, one for each measurement on average.
    """

    mean: NDArray
    covariance: NDArray
    left_out: NDArray
    left_out_sd: NDArray
    weights: NDArray
    misfit: float


def gaussian_update(covariance: ArrayLike, slopes: ArrayLike, residuals: ArrayLike, variances: ArrayLike) -> Update:
    r"""Return what measurements say of quantities with a normal prior about zero, on which they depend linearly.

    .. math:: S = H C H^T + R, \qquad \hat x = C H^T S^{-1} y, \qquad C' = C - C H^T S^{-1} H C

    A measurement that the others contradict by more than 2.5 standard deviations gets the variance that takes it there.

    Parameters
    ----------
    covariance : array
        Covariance of the quantities before, C: n by n. [-]
    slopes : array
        Change of each measurement with each quantity, H: m by n. [-]
    residuals : array
        Measurement minus what the prior's mean predicts, y: m. [-]
    variances : array
        Variance of what a measurement holds beside the quantities, R: m, each independent of the others. [-]

    Returns
    -------
    update : Update
        Mean and covariance after, with the left-out error of each measurement. [-]

    Raises
    ------
    ValueError
        Shapes that do not belong together.

    Notes
    -----
    Limits: without slopes the covariance stays; a measurement without variance is met exactly.

    References
    ----------
    .. [1] C. E. Rasmussen, C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.11, 2.12 and 5.12;
       P. J. Huber, Robust Statistics, 1981, section 7.8.

    Examples
    --------
    >>> one = gaussian_update([[4.0]], [[1.0]], [1.0], [1.0])
    >>> one.mean.tolist(), one.covariance.tolist()
    ([0.8], [[0.8]])
    """
    c, h, y = (np.asarray(values, dtype=float) for values in (covariance, slopes, residuals))
    r = np.asarray(variances, dtype=float)
    if c.shape != (h.shape[-1],) * 2 or h.shape != (y.size, len(c)) or r.shape != y.shape:
        refuse("slopes", h.shape, f"allowed is {y.size} by {len(c)}, with as many variances as residuals")
    weights = np.ones(y.size)
    for _ in range(8):
        inverse = np.linalg.inv(h @ c @ h.T + np.diag(r / weights))
        off, sd = inverse @ y / np.diag(inverse), 1 / np.sqrt(np.diag(inverse))
        before = weights
        expected = np.sqrt(np.maximum(sd**2 - r / weights + r, 0.0))
        weights = np.minimum(1.0, (OUTLYING * expected / np.maximum(np.abs(off), np.finfo(float).tiny)) ** 2)
        weights = np.maximum(weights, 1e-6)
        if np.allclose(weights, before, rtol=1e-3):
            break
    gain = c @ h.T @ inverse
    return Update(gain @ y, c - gain @ h @ c, off, expected, weights, float(y @ inverse @ y))


def scale_after(scale: float, freedom: float, misfit: float, measurements: int) -> tuple[float, float]:
    r"""Return the scale of a variance, and its degrees of freedom, after measurements: those of Student's t.

    .. math:: \nu' = \nu + m, \qquad s' = \frac{\nu s + y^T S^{-1} y}{\nu + m}

    Parameters
    ----------
    scale, freedom : float
        Scale s of all variances before, and its degrees of freedom, nu. [-]
    misfit : float
        Square of the residuals over what they were expected to be at a scale of one. [-]
    measurements : int
        How many there are, m. [-]

    Returns
    -------
    scale, freedom : float
        Those after. [-]

    Notes
    -----
    Assumes: prior and scatter have one unknown scale, so that a cluster far from all others is uncertain in everything.

    References
    ----------
    .. [1] A. Shah, A. G. Wilson, Z. Ghahramani, Student-t Processes as Alternatives to Gaussian Processes, AISTATS
       2014, eq. 9.

    Examples
    --------
    >>> scale_after(1.0, 2.0, 0.5, 8)
    (0.25, 10.0)
    """
    return (freedom * scale + misfit) / (freedom + measurements), freedom + measurements


def tail(freedom: float) -> float:
    """Return the half-width of the 90 % interval of Student's t, in that of a normal distribution.

    Examples
    --------
    >>> round(tail(3.0), 3), round(tail(1e6), 3)
    (1.431, 1.0)
    """
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(freedom, 0.95) / ndtri(0.95))
