"""What no collective algorithm beats, and bus bandwidth, which measures how near one comes.

`message_bytes` is the full buffer on a rank, as in `collectives`. A cut is a number, the links that leave a unit of
ranks, which comes from the tiers of a system.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, chosen, numbers
from trnmodel.units import Numeric


def busbw_factor(collective: str, n_ranks: Numeric) -> NDArray:
    r"""Bytes that a rank must at least send, as a share of the message.

    .. math:: f = 2\frac{n-1}{n} \text{ (all-reduce)},\; 1 \text{ (broadcast, p2p)},\; \frac{n-1}{n} \text{ (others)}

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"}
        Kind of collective.
    n_ranks : numeric
        Ranks, n. [-]

    Returns
    -------
    factor : numeric
        Factor f from algorithm to bus bandwidth; 0 for one rank. [-]

    References
    ----------
    .. [1] NVIDIA, nccl-tests, doc/PERFORMANCE.md.

    Examples
    --------
    >>> float(busbw_factor("all_reduce", 64))
    1.96875
    """
    n = numbers("n_ranks", n_ranks, 1, whole=True)
    share = (n - 1) / n
    whole = np.sign(n - 1)
    factors = {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share, "all_to_all": share}
    return chosen("collective", collective, factors | {"broadcast": whole, "p2p": whole})


def busbw_bytes_per_s(collective: str, message_bytes: Numeric, n_ranks: Numeric, time_s: Numeric) -> NDArray:
    r"""Bus bandwidth: the link rate that a perfect algorithm would need for the same time.

    .. math:: B_{bus} = f\,m / t

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"}
        Kind of collective.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    time_s : numeric
        Completion time, t. [s]

    Returns
    -------
    busbw_bytes_per_s : numeric
        Bus bandwidth; f is `busbw_factor`. [B/s]

    References
    ----------
    .. [1] NVIDIA, nccl-tests, doc/PERFORMANCE.md.

    Examples
    --------
    >>> float(busbw_bytes_per_s("all_gather", 8e9, 4, 2.0))
    3000000000.0
    """
    m, t = numbers("message_bytes", message_bytes), numbers("time_s", time_s, TINY, np.inf, unknown=True)
    return busbw_factor(collective, n_ranks) * m / t


def cut_bound_s(
    collective: str,
    message_bytes: Numeric,
    n_ranks: Numeric,
    ranks_inside: Numeric,
    cut_bytes_per_s_per_dir: Numeric,
) -> NDArray:
    r"""Bandwidth lower bound from what a unit of ranks (a chip, a tray, a rack) must send through all its links.

    .. math:: t \ge \frac{f\,m}{B},\quad g = \lceil n/q \rceil,\quad f = 2\frac{g-1}{g} \text{ (all-reduce)},\;
        \frac{g-1}{g} \text{ (all-gather, reduce-scatter)},\; \max_u \frac{q_u (n - q_u)}{n} \text{ (all-to-all)},\;
        1 \text{ (broadcast, p2p)}

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"}
        Kind of collective.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    ranks_inside : numeric
        Ranks of a unit, q; the last of the g units holds what is left. 1 is the cut around a rank. [-]
    cut_bytes_per_s_per_dir : numeric
        Sum of the links that leave a unit, one way, B. [B/s]

    Returns
    -------
    time_s : numeric
        Lower bound; 0 where one unit holds all ranks. [s]

    Notes
    -----
    Assumes: ranks reduce, switches only forward (reduction inside a switch can halve the all-reduce). Units of half the
    ranks give the bound of the bisection.

    References
    ----------
    .. [1] P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms, J. Parallel Distrib. Comput. 69, 2009.
    .. [2] W. Dally, B. Towles, Principles and Practices of Interconnection Networks, 2004, ch. 3.

    Examples
    --------
    >>> round(float(cut_bound_s("all_gather", 16384, 16, 1, 512e9)) * 1e6, 12)
    0.03
    >>> round(float(cut_bound_s("all_to_all", 16384, 144, 72, 72 * 128e9)) * 1e6, 12)
    0.064
    """
    m, n = numbers("message_bytes", message_bytes), numbers("n_ranks", n_ranks, 1, whole=True)
    q = np.minimum(numbers("ranks_inside", ranks_inside, 1, whole=True), n)
    rate = numbers("cut_bytes_per_s_per_dir", cut_bytes_per_s_per_dir, TINY, np.inf)
    units = np.ceil(n / q)
    share = (units - 1) / units
    factors = {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}
    factors |= {"all_to_all": q * (n - q) / n}  # a last unit of fewer ranks sends no more
    whole = np.sign(units - 1)
    return chosen("collective", collective, factors | {"broadcast": whole, "p2p": whole}) * m / rate
