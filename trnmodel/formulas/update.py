"""Linear-Gaussian updates: what measurements say of quantities that are known within ranges."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, refuse

ROUNDS, SETTLED = 30, 1e-3  # of weights, and their relative change that ends them
# degrees of freedom of the scatter of a measurement: of 1, 2, 3, 5 and infinitely many those that gave rows of half of
# the pages of measurements the highest density, after 1, 3 and 10 others of their page
ROW_FREEDOM = 5.0


class Update(NamedTuple):
    """Mean and covariance of quantities after measurements, and what those look like from each other.

    `covariance` is that at a scale of one; the variances are `scale` times it, with `freedom` degrees of freedom.
    `left_out` is the error of each measurement as the others predict it; `weights` are 1.2 for a measurement that is
    met, and less the further it lies from the mean.
    """

    mean: NDArray
    covariance: NDArray
    scale: float
    freedom: float
    left_out: NDArray
    weights: NDArray


def gaussian_update(
    covariance: ArrayLike,
    slopes: ArrayLike,
    residuals: ArrayLike,
    variances: ArrayLike,
    scale: float = 1.0,
    freedom: float = inf,
) -> Update:
    r"""Return what measurements say of quantities with a normal prior about zero, on which they depend linearly.

    .. math:: S = H C H^T + R, \qquad \hat x = C H^T S^{-1} y, \qquad C' = C - C H^T S^{-1} H C, \qquad
       s' = \frac{\nu s + y^T S^{-1} y}{\nu + m}

    All variances have one scale, which is known with some degrees of freedom: what is far from all that was expected is
    uncertain in everything. The scatter of a measurement has Student's t with five degrees of freedom, so that one that
    the others contradict has little weight.

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
    scale, freedom : float
        Scale of all variances before, s, and its degrees of freedom, nu; infinitely many for a scale that is known. [-]

    Returns
    -------
    update : Update
        Mean, covariance and scale after, with the left-out error of each measurement. [-]

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
       A. Shah, A. G. Wilson, Z. Ghahramani, Student-t Processes as Alternatives to Gaussian Processes, AISTATS 2014,
       eq. 9; K. L. Lange, R. J. A. Little, J. M. G. Taylor, Robust Statistical Modeling Using the t Distribution,
       JASA 84(408), 1989, section 3.

    Examples
    --------
    >>> one = gaussian_update([[4.0]], [[1.0]], [1.0], [1.0])
    >>> one.mean.round(2).tolist(), one.covariance.round(2).tolist(), one.scale
    ([0.8], [[0.78]], 1.0)
    """
    c, h, y = (np.asarray(values, dtype=float) for values in (covariance, slopes, residuals))
    r, many = np.asarray(variances, dtype=float), y.size
    if c.shape != (h.shape[-1],) * 2 or h.shape != (many, len(c)) or r.shape != y.shape:
        refuse("slopes", h.shape, f"allowed is {many} by {len(c)}, with as many variances as residuals")
    weights, after = np.ones(many), scale
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(h @ c @ h.T + np.diag(r / weights))
        gain = c @ h.T @ inverse
        mean, left = gain @ y, c - gain @ h @ c
        if freedom < inf:
            after = (freedom * scale + float(y @ inverse @ y)) / (freedom + many)
        squares = ((y - h @ mean) ** 2 / after + np.einsum("ij,jk,ik->i", h, left, h)) / np.maximum(r, TINY)
        before, weights = weights, (ROW_FREEDOM + 1) / (ROW_FREEDOM + squares)
        if np.allclose(weights, before, rtol=SETTLED):
            break
    return Update(mean, left, after, freedom + many, inverse @ y / np.diag(inverse), before)


def tail(freedom: float) -> float:
    """Return the half-width of the 90 % interval of Student's t, in that of a normal distribution.

    Parameters
    ----------
    freedom : float
        Degrees of freedom. [-]

    Returns
    -------
    ratio : float
        Half-width over that of a normal distribution. [-]

    Examples
    --------
    >>> round(tail(3.0), 3), round(tail(1e6), 3)
    (1.431, 1.0)
    """
    return float(scipy.special.stdtrit(freedom, 0.95) / scipy.special.ndtri(0.95))
