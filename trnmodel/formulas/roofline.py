"""The roofline: what rate and what time a compute peak and several bandwidths allow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, numbers, share, together
from trnmodel.units import Numeric


def _rates(peak_flop_per_s: Numeric, bandwidth_bytes_per_s: Numeric) -> tuple[NDArray, NDArray]:
    """Return a peak and bandwidths, checked; a chip may lack either in print, and the answer with it."""
    peak = numbers("peak_flop_per_s", peak_flop_per_s, TINY, unknown=True)
    return peak, numbers("bandwidth_bytes_per_s", bandwidth_bytes_per_s, TINY, unknown=True)


def attainable_flop_per_s(
    intensity_flop_per_byte: Numeric, peak_flop_per_s: Numeric, bandwidth_bytes_per_s: Numeric
) -> NDArray:
    r"""Attainable rate under one compute peak and one bandwidth.

    .. math:: P(I) = \min(P_0,\; I\,b)

    Parameters
    ----------
    intensity_flop_per_byte : numeric
        Arithmetic intensity, I. [FLOP/B]
    peak_flop_per_s : numeric
        Dense peak of the compute dtype, P0. [FLOP/s]
    bandwidth_bytes_per_s : numeric
        Bandwidth of the memory or link that feeds it, b. [B/s]

    Returns
    -------
    rate_flop_per_s : numeric
        Attainable rate, P; broadcast shape of the arguments. [FLOP/s]

    Notes
    -----
    Assumes: full overlap of transfer and compute, steady state.
    Limits: I -> 0 gives 0; I >= ridge point gives the peak.

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009, eq. in sec. 3.

    Examples
    --------
    >>> float(attainable_flop_per_s(100.0, 667e12, 2.9e12))
    290000000000000.0
    """
    peak, bandwidth = _rates(peak_flop_per_s, bandwidth_bytes_per_s)
    intensity = numbers("intensity_flop_per_byte", intensity_flop_per_byte)
    together(intensity_flop_per_byte=intensity, peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth)
    return np.minimum(peak, intensity * bandwidth)


def ridge_point_flop_per_byte(peak_flop_per_s: Numeric, bandwidth_bytes_per_s: Numeric) -> NDArray:
    r"""Arithmetic intensity at which compute and bandwidth bound alike.

    .. math:: I^* = P_0 / b

    Parameters
    ----------
    peak_flop_per_s : numeric
        Dense peak of the compute dtype, P0. [FLOP/s]
    bandwidth_bytes_per_s : numeric
        Bandwidth, b. [B/s]

    Returns
    -------
    intensity_flop_per_byte : numeric
        Ridge point, I*. [FLOP/B]

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009, sec. 3.

    Examples
    --------
    >>> float(ridge_point_flop_per_byte(667e12, 2.9e12))
    230.0
    """
    peak, bandwidth = _rates(peak_flop_per_s, bandwidth_bytes_per_s)
    together(peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth)
    return np.divide(peak, bandwidth)


def time_s(
    work_flop: Numeric, moved_bytes: Numeric, peak_flop_per_s: Numeric, bandwidth_bytes_per_s: Numeric, overlap: Numeric
) -> NDArray:
    r"""Time of a piece of work between its two bounds.

    .. math:: t = o\,\max(t_c, t_m) + (1 - o)\,(t_c + t_m), \quad t_c = W / P_0,\; t_m = Q / b

    Parameters
    ----------
    work_flop : numeric
        Work, W. [FLOP]
    moved_bytes : numeric
        Traffic at the bandwidth's level, Q. [B]
    peak_flop_per_s : numeric
        Dense peak of the compute dtype, P0. [FLOP/s]
    bandwidth_bytes_per_s : numeric
        Bandwidth, b. [B/s]
    overlap : numeric
        Share of the smaller time that hides behind the larger, o, from 0 (none) to 1 (full). [-]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Notes
    -----
    Limits: o = 1 gives the roofline (lower bound), o = 0 the sum (upper bound, at most twice the lower).

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009, sec. 3.

    Examples
    --------
    >>> float(time_s(667e12, 2.9e12, 667e12, 2.9e12, overlap=1.0))
    1.0
    >>> float(time_s(667e12, 2.9e12, 667e12, 2.9e12, overlap=0.0))
    2.0
    """
    peak, bandwidth = _rates(peak_flop_per_s, bandwidth_bytes_per_s)
    work, moved = numbers("work_flop", work_flop), numbers("moved_bytes", moved_bytes)
    hidden = share("overlap", overlap)
    together(work_flop=work, moved_bytes=moved, peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth, overlap=hidden)
    compute_s, memory_s = work / peak, moved / bandwidth
    return compute_s + memory_s - np.minimum(compute_s, memory_s) * hidden


def ceilings_flop_per_s(
    intensity_flop_per_byte: Numeric, peak_flop_per_s: Numeric, bandwidth_bytes_per_s: Numeric
) -> NDArray:
    r"""Attainable rate under a stack of bandwidths, each with its own arithmetic intensity.

    .. math:: P = \min\bigl(P_0,\; \min_k I_k\,b_k\bigr)

    Parameters
    ----------
    intensity_flop_per_byte : numeric
        Intensity at each level (HBM, SBUF, DMA, link), levels on the last axis, I_k. [FLOP/B]
    peak_flop_per_s : numeric
        Dense peak, or the sparse one where the caller asks for it, P0; no level axis. [FLOP/s]
    bandwidth_bytes_per_s : numeric
        Bandwidth of each level on the last axis, b_k. [B/s]

    Returns
    -------
    rate_flop_per_s : numeric
        Attainable rate, P; shape without the level axis. [FLOP/s]

    Notes
    -----
    Assumes: all levels stream at the same time. A single level gives `attainable_flop_per_s`.

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009, sec. 4 (ceilings).

    Examples
    --------
    >>> float(ceilings_flop_per_s([100.0, 10.0], 667e12, [2.9e12, 10e12]))
    100000000000000.0
    """
    peak, bandwidth = _rates(peak_flop_per_s, bandwidth_bytes_per_s)
    intensity = numbers("intensity_flop_per_byte", intensity_flop_per_byte)
    together(intensity_flop_per_byte=intensity, bandwidth_bytes_per_s=bandwidth)
    levels = np.multiply(intensity, bandwidth)
    least = np.min(levels, axis=-1)
    together(intensity_flop_per_byte=least, peak_flop_per_s=peak)
    return np.minimum(peak, least)
