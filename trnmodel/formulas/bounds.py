"""What no collective algorithm beats, and bus bandwidth, which measures how near one comes.

`message_bytes` is the full buffer on a rank, as in `collectives`. The bounds take their cuts as numbers (links of a
rank, links between two halves), which come from the graph of a system or from a closed form such as those in `tiers`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, chosen, numbers

Numeric = ArrayLike


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


def node_cut_bound_s(
    collective: str, message_bytes: Numeric, n_ranks: Numeric, injection_bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Bandwidth lower bound from what one rank must send through all its links.

    .. math:: t \ge f\,m / b_{inj}

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"}
        Kind of collective.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    injection_bytes_per_s_per_dir : numeric
        Sum of a rank's links, one way, b_inj. [B/s]

    Returns
    -------
    time_s : numeric
        Lower bound; f is `busbw_factor`. [s]

    Notes
    -----
    Assumes: ranks reduce, switches only forward (reduction inside a switch can halve the all-reduce).

    References
    ----------
    .. [1] P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms, J. Parallel Distrib. Comput. 69, 2009.

    Examples
    --------
    >>> round(float(node_cut_bound_s("all_gather", 16384, 16, 512e9)) * 1e6, 12)
    0.03
    """
    rate = numbers("injection_bytes_per_s_per_dir", injection_bytes_per_s_per_dir, TINY, np.inf)
    return busbw_factor(collective, n_ranks) * numbers("message_bytes", message_bytes) / rate


def bisection_bound_s(
    collective: str, message_bytes: Numeric, n_ranks: Numeric, bisection_bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Bandwidth lower bound from what one half of the ranks must send to the other half.

    .. math:: t \ge \frac{m\,c}{B},\quad c = \lfloor n/2 \rfloor \lceil n/2 \rceil / n \text{ (all-to-all)},\;
        \lceil n/2 \rceil / n \text{ (all-gather, reduce-scatter)},\; 1 \text{ (all-reduce, broadcast)}

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}
        Kind of collective.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    bisection_bytes_per_s_per_dir : numeric
        Links between the two halves, one way, B. [B/s]

    Returns
    -------
    time_s : numeric
        Lower bound. [s]

    Notes
    -----
    Assumes: every cut of the ranks into halves (of n/2 and n/2 rounded) carries B or more, one of them B.

    References
    ----------
    .. [1] W. Dally, B. Towles, Principles and Practices of Interconnection Networks, 2004, ch. 3.

    Examples
    --------
    >>> round(float(bisection_bound_s("all_to_all", 16384, 144, 72 * 128e9)) * 1e6, 12)
    0.064
    """
    m, n = numbers("message_bytes", message_bytes), numbers("n_ranks", n_ranks, 1, whole=True)
    rate = numbers("bisection_bytes_per_s_per_dir", bisection_bytes_per_s_per_dir, TINY, np.inf)
    many, some = np.ceil(n / 2) * np.sign(n - 1), np.sign(n - 1)
    crossing = {"all_to_all": np.floor(n / 2) * many / n, "all_gather": many / n, "reduce_scatter": many / n}
    share = chosen("collective", collective, crossing | {"all_reduce": some, "broadcast": some})
    return share * m / rate


def latency_bound_s(n_ranks: Numeric, alpha_s: Numeric, ports: Numeric) -> NDArray:
    r"""Latency lower bound: steps until what one rank knows can reach every rank.

    .. math:: t \ge \lceil \log_{p+1} n \rceil\,\alpha

    Parameters
    ----------
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    ports : numeric
        Messages that a rank can send in one step, p; n - 1 where one step reaches all. [-]

    Returns
    -------
    time_s : numeric
        Lower bound. [s]

    References
    ----------
    .. [1] J. Bruck et al., Efficient algorithms for all-to-all communications in multiport message-passing systems,
       IEEE TPDS 8(11), 1997, sec. 2.

    Examples
    --------
    >>> float(latency_bound_s(144, 1.0, 1)), float(latency_bound_s(144, 1.0, 143))
    (8.0, 1.0)
    """
    n, p = numbers("n_ranks", n_ranks, 1, whole=True), numbers("ports", ports, 1, whole=True)
    return np.ceil(np.round(np.log2(n) / np.log2(p + 1), 9)) * numbers("alpha_s", alpha_s)
