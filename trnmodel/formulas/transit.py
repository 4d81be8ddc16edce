"""What a message meets on its way over a network: fibre, switches, bytes in flight, a cache sent while it is made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, numbers
from trnmodel.units import Numeric

LIGHT_M_PER_S = 299_792_458.0  # in vacuum; exact, it defines the metre


def fibre_delay_s(distance_m: Numeric, refractive_index: Numeric, light_m_per_s: Numeric = LIGHT_M_PER_S) -> NDArray:
    r"""One-way delay of a length of fibre.

    .. math:: t = n\,d/c

    Parameters
    ----------
    distance_m : numeric
        Length of the fibre, d. [m]
    refractive_index : numeric
        Group index of the fibre, n. [-]
    light_m_per_s : numeric
        Speed of light in vacuum, c. [m/s]

    Returns
    -------
    time_s : numeric
        Delay, t. [s]

    References
    ----------
    .. [1] B. Saleh, M. Teich, Fundamentals of Photonics, 2007, ch. 9.

    Examples
    --------
    >>> round(float(fibre_delay_s(299792.458, 1.5)), 9)
    0.0015
    """
    distance, index = numbers("distance_m", distance_m), numbers("refractive_index", refractive_index, 1)
    return distance * index / numbers("light_m_per_s", light_m_per_s, TINY)


def path_latency_s(switch_hops: Numeric, switch_s: Numeric, nic_s: Numeric, fibre_s: Numeric) -> NDArray:
    r"""One-way latency between two chips over the scale-out network.

    .. math:: t = 2\,t_{nic} + h\,t_{switch} + t_{fibre}

    Parameters
    ----------
    switch_hops : numeric
        Switches on the path, h: 1 within a rack, 3 within a pod, 5 across pods of three layers. [-]
    switch_s : numeric
        Latency of a switch with its link. [s]
    nic_s : numeric
        Latency of a NIC with its host side, once at each end. [s]
    fibre_s : numeric
        Delay of long fibre between buildings; see `fibre_delay_s`. [s]

    Returns
    -------
    time_s : numeric
        Latency of an empty network, t. [s]

    References
    ----------
    .. [1] W. Dally, B. Towles, Principles and Practices of Interconnection Networks, 2004, ch. 3.

    Examples
    --------
    >>> float(path_latency_s(5, 1.0, 2.0, 3.0))
    12.0
    """
    hops, each_s = numbers("switch_hops", switch_hops), numbers("switch_s", switch_s)
    return 2 * numbers("nic_s", nic_s) + hops * each_s + numbers("fibre_s", fibre_s)


def in_flight_bytes(bytes_per_s_per_dir: Numeric, latency_s: Numeric) -> NDArray:
    r"""Bytes that a sender must keep outstanding to fill a path: the bandwidth-delay product.

    .. math:: q = 2\,t\,b

    Parameters
    ----------
    bytes_per_s_per_dir : numeric
        Rate of the sender, b. [B/s]
    latency_s : numeric
        One-way latency, t. [s]

    Returns
    -------
    in_flight_bytes : numeric
        Bytes sent before the first acknowledgement is back, q. [B]

    Notes
    -----
    Without deep buffers in the switches, NICs hold this much.

    References
    ----------
    .. [1] V. Jacobson, R. Braden, TCP extensions for long-delay paths, RFC 1072, 1988.

    Examples
    --------
    >>> float(in_flight_bytes(25e9, 1e-3))
    50000000.0
    """
    return 2 * numbers("bytes_per_s_per_dir", bytes_per_s_per_dir) * numbers("latency_s", latency_s)


def kv_exposed_s(
    kv_bytes: Numeric, prefill_s: Numeric, pieces: Numeric, bytes_per_s_per_dir: Numeric, latency_s: Numeric
) -> NDArray:
    r"""Time that a KV cache's way from prefill to decode adds after prefill has ended.

    .. math:: t = \frac{p}{L} + (L-1)\,\frac{\max(p, q)}{L} + \frac{q}{L} + \tau - p,\quad q = V/b

    Parameters
    ----------
    kv_bytes : numeric
        KV cache of the prompt on the sending chips, V. [B]
    prefill_s : numeric
        Prefill time, p. [s]
    pieces : numeric
        Equal pieces that leave as soon as they are computed, L: layers, or 1 for no overlap. [-]
    bytes_per_s_per_dir : numeric
        Scale-out rate of the sending chips together, b. [B/s]
    latency_s : numeric
        One-way latency, tau. [s]

    Returns
    -------
    time_s : numeric
        Time t between the end of prefill and the arrival of the last byte. [s]

    Notes
    -----
    Assumes: prefill does not slow down while it sends; every piece takes the same time.
    Limits: L = 1 gives q + tau; L -> inf gives max(q - p, 0) + tau, so prefill hides all that fits beside it.

    References
    ----------
    .. [1] P. Patel et al., Splitwise: efficient generative LLM inference using phase splitting, ISCA 2024.

    Examples
    --------
    >>> float(kv_exposed_s(100e9, 8.0, 4, 25e9, 0.0)), float(kv_exposed_s(100e9, 2.0, 4, 25e9, 0.0))
    (1.0, 2.5)
    """
    send_s = numbers("kv_bytes", kv_bytes) / numbers("bytes_per_s_per_dir", bytes_per_s_per_dir, TINY)
    pieces, late_s = numbers("pieces", pieces, 1, whole=True), np.maximum(send_s - numbers("prefill_s", prefill_s), 0.0)
    return (send_s + (pieces - 1) * late_s) / pieces + numbers("latency_s", latency_s)
