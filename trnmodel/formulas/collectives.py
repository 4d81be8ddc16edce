"""Times of collectives among equal ranks: meshes, trees and chains.

The alpha-beta model: a step costs a start-up alpha, a byte costs 1/b. Every function takes the full buffer on a rank as
`message_bytes` m: all-reduce its buffer, all-gather the gathered output, reduce-scatter the input, all-to-all the send
buffer with a rank's own block, broadcast and point-to-point the message. One rank takes no time. A count of ranks that
an algorithm cannot run on gives NaN. Rings, halving and doubling, and dimensions of a torus are tiers: see `tiers`; for
lower bounds see `collective_bounds`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, chosen, numbers
from trnmodel.units import Numeric


def _checked(
    message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    m, n = numbers("message_bytes", message_bytes), numbers("n_ranks", n_ranks, 1, whole=True)
    alpha = numbers("alpha_s", alpha_s, unknown=True)
    rate = numbers("bytes_per_s_per_dir", bytes_per_s_per_dir, TINY, unknown=True)
    return m, n, alpha, rate


def _log2_ceil(n: NDArray) -> NDArray:
    return np.ceil(np.log2(n))


def _log2_whole(n: NDArray) -> NDArray:
    """log2 of a power of two, NaN for every other count."""
    bits = np.log2(n)
    return np.where(bits == np.round(bits), bits, np.nan)


def p2p_s(message_bytes: Numeric, hops: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric) -> NDArray:
    r"""Time of a message between two ranks, cut through on its way.

    .. math:: t = h\,\alpha + m/b

    Parameters
    ----------
    message_bytes : numeric
        Message, m. [B]
    hops : numeric
        Hops that each cost a start-up, h; 0 is the rank itself. [-]
    alpha_s : numeric
        Start-up time of a hop, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of the narrowest link on the way, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t; 0 for no hop. [s]

    References
    ----------
    .. [1] R. Hockney, The communication challenge for MPP, Parallel Computing 20, 1994.

    Examples
    --------
    >>> round(float(p2p_s(25e3, 2, 1e-6, 25e9)) * 1e6, 9)
    3.0
    """
    m, h = numbers("message_bytes", message_bytes), numbers("hops", hops)
    alpha = numbers("alpha_s", alpha_s, unknown=True)
    return h * alpha + np.sign(h) * m / numbers("bytes_per_s_per_dir", bytes_per_s_per_dir, TINY)


PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 2, "broadcast": 2, "p2p": 1}


def buffer_passes_s(kind: str, message_bytes: Numeric, pass_bytes_per_s: Numeric) -> NDArray:
    r"""Time in which the DMA queues of a rank pass its buffer, however many ranks there are.

    Each byte of the buffer on a rank is written once by a DMA queue of that rank, its own block too. An all-reduce is a
    reduce-scatter and an all-gather, and a broadcast a scatter and an all-gather: two passes. An all-to-all stages
    its blocks before it sends them.

    .. math:: t = \frac{p\,m}{r}

    Parameters
    ----------
    kind : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"}
        Kind of collective, of p passes. [-]
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    pass_bytes_per_s : numeric
        Rate of the queues of a rank, r. [B/s]

    Returns
    -------
    time_s : numeric
        Time of the passes, t. [s]

    Examples
    --------
    >>> float(buffer_passes_s("all_reduce", 1e9, 100e9))
    0.02
    """
    m, rate = numbers("message_bytes", message_bytes), numbers("pass_bytes_per_s", pass_bytes_per_s, TINY)
    return chosen("kind", kind, PASSES) * m / rate


def recursive_doubling_all_reduce_s(
    message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time of an all-reduce that exchanges the full vector in every step: fewest steps, most bytes.

    .. math:: t = \log_2 n\,(\alpha + m/b)

    Parameters
    ----------
    message_bytes : numeric
        Buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n; NaN results where it is no power of two. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of a rank to its partner, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005.

    Examples
    --------
    >>> round(float(recursive_doubling_all_reduce_s(16384, 64, 1e-6, 1152e9)) * 1e6, 9)
    6.085333333
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    return _log2_whole(n) * (alpha + m / b)


def double_binary_tree_s(
    collective: str, message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time on two complementary binary trees, pipelined in many small pieces.

    .. math:: t = p\left[\lceil\log_2 n\rceil\,\alpha + m/b\right]

    Parameters
    ----------
    collective : {"all_reduce", "broadcast"}
        Kind of collective: p = 2 for an all-reduce (reduce, then broadcast), else 1.
    message_bytes : numeric
        Buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of a rank, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    Notes
    -----
    Asymptotic: the start-ups of the pieces after the first are not counted.

    References
    ----------
    .. [1] P. Sanders, J. Speck, J. Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
       Parallel Computing 35, 2009.

    Examples
    --------
    >>> round(float(double_binary_tree_s("all_reduce", 16384, 64, 1e-6, 512e9)) * 1e6, 9)
    12.064
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    passes = chosen("collective", collective, {"all_reduce": 2, "broadcast": 1})
    return passes * (_log2_ceil(n) * alpha + np.sign(n - 1) * m / b)


def one_shot_s(
    collective: str, message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time on a switch when every rank sends to all others in one step (mesh, direct).

    .. math:: t = \alpha + (n-1)\,\frac{s}{b},\quad s = m \text{ (all-reduce, broadcast)},\; m/n \text{ (others)}

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}
        Kind of collective; "all_to_all" is the direct exchange.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of the step, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of a rank into the switch, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    Notes
    -----
    Assumes: unicast copies that share the rank's rate evenly; no congestion at the receiver.

    References
    ----------
    .. [1] AWS Neuron SDK, neuron-runtime/explore/intranode-collective-comm.rst (single-step Mesh).

    Examples
    --------
    >>> round(float(one_shot_s("all_gather", 16384, 64, 1e-6, 1152e9)) * 1e6, 9)
    1.014
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    whole = dict.fromkeys(("all_reduce", "broadcast"), np.ones_like(n))
    parts = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), n)
    return np.sign(n - 1) * alpha + (n - 1) * m / chosen("collective", collective, whole | parts) / b


def pairwise_all_to_all_s(
    message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time of an all-to-all on a switch that serves one partner after the other.

    .. math:: t = (n-1)\left(\alpha + \frac{m}{n\,b}\right)

    Parameters
    ----------
    message_bytes : numeric
        Send buffer with the rank's own block, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of a rank into the switch, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005.

    Examples
    --------
    >>> round(float(pairwise_all_to_all_s(16384, 64, 1e-6, 1152e9)) * 1e6, 9)
    63.014
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    return (n - 1) * (alpha + m / n / b)


def _ones_below(n: NDArray) -> NDArray:
    """Bits set in all of 0 .. n-1 together: blocks that Bruck's steps forward."""
    total = np.zeros_like(n)
    for step in range(int(np.nanmax(n, initial=1)).bit_length()):
        half = 2.0**step
        total += np.floor(n / (2 * half)) * half + np.maximum(n % (2 * half) - half, 0)
    return total


def bruck_all_to_all_s(
    message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time of Bruck's all-to-all: a start-up a bit of the rank number, blocks forwarded on the way.

    .. math:: t = \lceil\log_2 n\rceil\,\alpha + \frac{w(n)}{n}\,\frac{m}{b},\quad
        w(n) = \sum_{i<n} \mathrm{popcount}(i),\; w(2^q) = q\,2^{q-1}

    Parameters
    ----------
    message_bytes : numeric
        Send buffer with the rank's own block, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of a rank into the switch, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    Notes
    -----
    The local rotations before and after are not counted.

    References
    ----------
    .. [1] J. Bruck et al., Efficient algorithms for all-to-all communications in multiport message-passing systems,
       IEEE TPDS 8(11), 1997, sec. 3.

    Examples
    --------
    >>> round(float(bruck_all_to_all_s(16384, 64, 1e-6, 1152e9)) * 1e6, 9)
    6.042666667
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    return _log2_ceil(n) * alpha + _ones_below(n) / n * m / b


def binomial_broadcast_s(
    message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time of a broadcast in which every rank that has the message passes all of it on.

    .. math:: t = \lceil\log_2 n\rceil\,(\alpha + m/b)

    Parameters
    ----------
    message_bytes : numeric
        Message, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of a rank, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005.

    Examples
    --------
    >>> float(binomial_broadcast_s(1e9, 5, 1.0, 1e9))
    6.0
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    return _log2_ceil(n) * (alpha + m / b)


def scatter_all_gather_broadcast_s(
    message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time of a broadcast as a binomial scatter and a ring all-gather.

    .. math:: t = (\lceil\log_2 n\rceil + n - 1)\,\alpha + 2\,\frac{n-1}{n}\,\frac{m}{b}

    Parameters
    ----------
    message_bytes : numeric
        Message, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of a rank, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005
       (after van de Geijn).

    Examples
    --------
    >>> float(scatter_all_gather_broadcast_s(4e9, 4, 1.0, 1e9))
    11.0
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    return (_log2_ceil(n) + n - 1) * alpha + 2 * (n - 1) / n * m / b


def chain_broadcast_s(
    message_bytes: Numeric, n_ranks: Numeric, alpha_s: Numeric, bytes_per_s_per_dir: Numeric
) -> NDArray:
    r"""Time of a broadcast down a chain of ranks (a ring, opened) in the best number of pieces.

    .. math:: t = (n - 2 + s)\left(\alpha + \frac{m}{s\,b}\right),\quad s = \max\!\left(1,
        \sqrt{(n-2)\,m / (\alpha\,b)}\right)

    Parameters
    ----------
    message_bytes : numeric
        Message, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    alpha_s : numeric
        Start-up time of a piece on a link, alpha. [s]
    bytes_per_s_per_dir : numeric
        Rate of the narrowest link of the chain, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    Notes
    -----
    Assumes: pieces of any size, s not rounded. With s inserted, t is the square of sqrt((n-2)alpha) + sqrt(m/b).

    References
    ----------
    .. [1] P. Sanders, J. Speck, J. Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
       Parallel Computing 35, 2009, sec. 1.

    Examples
    --------
    >>> float(chain_broadcast_s(4e9, 3, 1.0, 1e9)), float(chain_broadcast_s(4e9, 2, 1.0, 1e9))
    (9.0, 5.0)
    """
    m, n, alpha, b = _checked(message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir)
    wire, fill = m / b, np.maximum(n - 2, 0) * alpha
    one_piece = (n - 1) * (alpha + wire)
    return np.where(np.maximum(n - 2, 0) * wire > alpha, (np.sqrt(fill) + np.sqrt(wire)) ** 2, one_piece)[()]
