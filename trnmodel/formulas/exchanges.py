"""All-reduces inside a compiled graph, as software runs them: formulas with ratios that are fitted to a stack."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.units import Numeric


def within_chip_s(message_bytes: Numeric, local_ranks: Numeric, bytes_per_s: Numeric) -> NDArray:
    r"""Time that an all-reduce inside a compiled graph takes among the ranks of each chip, beside that between chips.

    .. math:: t = \frac{2\,(r - 1)\,m}{B}

    Parameters
    ----------
    message_bytes : numeric
        Buffer on a rank, m. [B]
    local_ranks : numeric
        Ranks of the group on one chip, r. [-]
    bytes_per_s : numeric
        What the ranks of a chip send each other, all together, B; NaN where it was not measured. [B/s]

    Returns
    -------
    time_s : numeric
        Reduce-scatter and all-gather of the chip's ranks, t; 0 for one rank, and for a rate that nobody knows. [s]

    References
    ----------
    .. [1] NVIDIA, nccl-tests, doc/PERFORMANCE.md (bus bandwidth of an all-reduce: 2 (r - 1) / r).

    Examples
    --------
    >>> float(within_chip_s(1e9, 4, 400e9)), float(within_chip_s(1e9, 1, 400e9))
    (0.015, 0.0)
    """
    rate = np.where(np.isnan(bytes_per_s), np.inf, bytes_per_s)
    return np.multiply(2, np.subtract(local_ranks, 1)) * message_bytes / rate


def in_graph_mesh_s(
    message_bytes: Numeric,
    n_ranks: Numeric,
    local_ranks: Numeric,
    alpha_s: Numeric,
    bytes_per_s_per_dir: Numeric,
    traffic_ratio: Numeric,
) -> NDArray:
    r"""Time of an all-reduce inside a compiled graph in one step: every rank sends its buffer to all on other chips.

    .. math:: t = \kappa\,\frac{r\,(n - r)\,m}{b} + 2\alpha

    Parameters
    ----------
    message_bytes : numeric
        Buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    local_ranks : numeric
        Ranks of the group on one chip, r, which share its links. [-]
    alpha_s : numeric
        Start-up time, alpha. [s]
    bytes_per_s_per_dir : numeric
        What a chip sends for the group, b. [B/s]
    traffic_ratio : numeric
        Bytes that cross the links for each byte counted, kappa; fitted to a software stack. [-]

    Returns
    -------
    time_s : numeric
        Completion time, t; 0 for one rank. [s]

    References
    ----------
    .. [1] AWS Neuron SDK, neuron-runtime/explore/intranode-collective-comm.rst (single-step Mesh).

    Examples
    --------
    >>> float(in_graph_mesh_s(1e9, 4, 2, 0.0, 1e9, 0.5))
    2.0
    """
    sent = np.multiply(local_ranks, np.subtract(n_ranks, local_ranks)) * message_bytes / np.asarray(bytes_per_s_per_dir)
    return np.sign(np.subtract(n_ranks, 1)) * (traffic_ratio * sent + np.multiply(2, alpha_s))


def in_graph_doubling_s(
    message_bytes: Numeric,
    n_ranks: Numeric,
    local_ranks: Numeric,
    alpha_s: Numeric,
    bytes_per_s_per_dir: Numeric,
    traffic_ratio: Numeric,
) -> NDArray:
    r"""Time of an all-reduce inside a compiled graph by recursive halving and doubling.

    .. math:: t = \kappa\,\frac{2\,r\,m}{b} + 2\alpha\log_2 n

    Parameters
    ----------
    message_bytes : numeric
        Buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n; between powers of two the steps are not rounded. [-]
    local_ranks : numeric
        Ranks of the group on one chip, r; nothing crosses the links where that is all of them. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        What a chip sends for the group, b. [B/s]
    traffic_ratio : numeric
        Bytes that cross the links for each byte counted, kappa; fitted to a software stack. [-]

    Returns
    -------
    time_s : numeric
        Completion time, t; 0 for one rank. [s]

    References
    ----------
    .. [1] AWS Neuron SDK, neuron-runtime/explore/intranode-collective-comm.rst (recursive doubling and halving).

    Examples
    --------
    >>> float(in_graph_doubling_s(1e9, 4, 2, 1.0, 1e9, 0.5))
    6.0
    """
    crossing = np.greater(n_ranks, local_ranks) * np.multiply(2, local_ranks)
    sent = np.multiply(traffic_ratio, crossing) * message_bytes / np.asarray(bytes_per_s_per_dir)
    return sent + np.multiply(2, alpha_s) * np.log2(n_ranks)


def in_graph_ring_s(
    message_bytes: Numeric,
    n_ranks: Numeric,
    local_ranks: Numeric,
    alpha_s: Numeric,
    bytes_per_s_per_dir: Numeric,
    traffic_ratio: Numeric,
) -> NDArray:
    r"""Time of an all-reduce inside a compiled graph on a ring over chips, after an exchange on each chip.

    .. math:: t = \kappa\,\frac{2\,(c - 1)\,m}{c\,b} + c\,\alpha,\quad c = \lceil n / r \rceil

    Parameters
    ----------
    message_bytes : numeric
        Buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    local_ranks : numeric
        Ranks of the group on one chip, r. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : numeric
        What a chip sends for the group, b. [B/s]
    traffic_ratio : numeric
        Bytes that cross the links for each byte counted, kappa; fitted to a software stack. [-]

    Returns
    -------
    time_s : numeric
        Completion time, t; 0 for one rank. [s]

    References
    ----------
    .. [1] AWS Neuron SDK, neuron-runtime/explore/intranode-collective-comm.rst (ring and KangaRing).

    Examples
    --------
    >>> float(in_graph_ring_s(1e9, 4, 2, 1.0, 1e9, 1.0))
    3.0
    """
    chips = np.ceil(np.divide(n_ranks, local_ranks))
    shared = np.multiply(traffic_ratio, 2) * (1 - 1 / chips)
    sent = np.multiply(shared, message_bytes) / np.asarray(bytes_per_s_per_dir)
    return np.sign(np.subtract(n_ranks, 1)) * (sent + np.multiply(chips, alpha_s))


def kernel_all_reduce_s(
    message_bytes: Numeric,
    n_ranks: Numeric,
    sent_buffers: Numeric,
    start_s: Numeric,
    rank_s: Numeric,
    copies: Numeric,
    bytes_per_s_per_dir: Numeric,
) -> NDArray:
    r"""Time of an all-reduce by one kernel that reads from and writes to all other ranks behind a switch.

    .. math:: t = t_0 + t_1 (n - 1) + \frac{(q + c)\,m}{b}

    Parameters
    ----------
    message_bytes : numeric
        Buffer on a rank, m. [B]
    n_ranks : numeric
        Ranks, n. [-]
    sent_buffers : numeric
        Buffers that a rank sends, q: n - 1 in one shot (all of it to all), 2 (n - 1) / n in two (a part of it to each,
        then the sums). [-]
    start_s : numeric
        Launch and barriers, t0. [s]
    rank_s : numeric
        What each other rank adds, t1. [s]
    copies : numeric
        Buffers that a rank copies on its own, c: counted as if they crossed the link. [-]
    bytes_per_s_per_dir : numeric
        What a rank sends, b. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t; 0 for one rank. [s]

    Notes
    -----
    Assumes: sums in the ranks, not in the switch. Without c the rate would seem to grow with n.

    References
    ----------
    .. [1] vLLM, csrc/custom_all_reduce.cuh (one-stage and two-stage kernels).

    Examples
    --------
    >>> float(kernel_all_reduce_s(1e9, 4, 1.5, 0.25, 0.25, 0.5, 1e9))
    3.0
    """
    others = np.subtract(n_ranks, 1)
    moved = np.add(sent_buffers, copies) * message_bytes / np.asarray(bytes_per_s_per_dir)
    return np.sign(others) * (start_s + np.multiply(rank_s, others) + moved)
