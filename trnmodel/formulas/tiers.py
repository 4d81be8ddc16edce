"""Times of collectives over several dimensions or tiers: tori, and networks of unlike levels (tray, rack, pair).

`ranks`, `alpha_s` and `bytes_per_s_per_dir` of a function are tuples with one entry a dimension or tier, innermost
first; each entry may be an array. Bytes shrink from tier to tier, so the order matters: fast tiers belong first.
`message_bytes` is the full buffer on a rank, as in `collectives`. A torus has two links a dimension and chip, one each
way round; where a dimension of two has a single link, pass half its rate.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, chosen, numbers, refuse
from trnmodel.units import Numeric

Tuple = tuple[ArrayLike, ...]

PASSES = {
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_reduce": 2,
}  # all-reduce: reduce-scatter, then all-gather


def _checked(ranks: Tuple, **rates: Tuple) -> tuple[list[NDArray], ...]:
    for name, entries in {"ranks": ranks, **rates}.items():
        if not isinstance(entries, tuple) or len(entries) != len(ranks) or not ranks:
            refuse(name, entries, "allowed is a tuple with one entry a tier, as many as ranks has")
    checked = [[numbers("ranks", k, 1, whole=True) for k in ranks]]
    for name, entries in rates.items():
        checked.append([numbers(name, entry, 0.0 if name == "alpha_s" else TINY, unknown=True) for entry in entries])
    return tuple(checked)


def _log2_whole(k: NDArray) -> NDArray:
    bits = np.log2(k)
    return np.where(bits == np.round(bits), bits, np.nan)


STEPS = {"ring": lambda k: k - 1, "halving_doubling": _log2_whole, "one_shot": lambda k: np.sign(k - 1)}


def hierarchical_s(
    collective: str,
    algorithms: tuple[str, ...],
    message_bytes: Numeric,
    ranks: Tuple,
    alpha_s: Tuple,
    bytes_per_s_per_dir: Tuple,
) -> NDArray:
    r"""Time tier by tier: an all-reduce is reduce-scatters going out, then all-gathers coming back.

    .. math:: t = p\sum_j \left[s_j\alpha_j + \frac{m}{\prod_{i<j} k_i}\,\frac{k_j-1}{k_j}\,\frac{1}{b_j}\right],\quad
        s = k-1 \text{ (ring)},\; \log_2 k \text{ (halving-doubling)},\; 1 \text{ (one-shot)}

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter"}
        Kind of collective: p = 2 passes for an all-reduce, else 1.
    algorithms : tuple of {"ring", "halving_doubling", "one_shot"}
        Algorithm within each tier; one-shot needs a switch.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    ranks : tuple of numeric
        Ranks in each tier, k_j, innermost first; the product is all ranks. [-]
    alpha_s : tuple of numeric
        Start-up time of a step in each tier, alpha_j. [s]
    bytes_per_s_per_dir : tuple of numeric
        Rate of a rank into each tier, b_j. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t; NaN where halving-doubling meets no power of two. [s]

    Notes
    -----
    Assumes: tiers one after the other, never at the same time; with two tiers an all-reduce is intra-tier
    reduce-scatter, inter-tier all-reduce of the share that is left, intra-tier all-gather.

    References
    ----------
    .. [1] M. Cho et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy,
       MLSys 2019.
    .. [2] AWS Neuron SDK, neuron-runtime/explore/internode-collective-comm.rst (hierarchical).

    Examples
    --------
    >>> t = hierarchical_s("all_reduce", ("ring",) * 3, 16384, (4, 18, 2), (1e-6,) * 3, (512e9, 512e9, 128e9))
    >>> round(float(t) * 1e6, 8)
    42.06488889
    """
    k, alpha, b = _checked(ranks, alpha_s=alpha_s, bytes_per_s_per_dir=bytes_per_s_per_dir)
    share, total = numbers("message_bytes", message_bytes), np.zeros(())
    steps = [chosen("algorithms", name, STEPS) for name in algorithms]
    passes = chosen("collective", collective, PASSES)
    for step, k_j, alpha_j, b_j in zip(steps, k, alpha, b, strict=True):
        total = total + step(k_j) * alpha_j + share * (k_j - 1) / k_j / b_j
        share = share / k_j
    return passes * total


def phased_all_to_all_s(message_bytes: Numeric, ranks: Tuple, alpha_s: Tuple, bytes_per_s_per_dir: Tuple) -> NDArray:
    r"""Time of an all-to-all in one phase a tier; each phase forwards what leaves the rank's place in that tier.

    .. math:: t = \sum_j \left[(k_j > 1)\,\alpha_j + m\,\frac{k_j-1}{k_j}\,\frac{1}{b_j}\right]

    Parameters
    ----------
    message_bytes : numeric
        Send buffer with the rank's own block, m. [B]
    ranks : tuple of numeric
        Ranks in each tier, k_j. [-]
    alpha_s : tuple of numeric
        Start-up time of each phase, alpha_j. [s]
    bytes_per_s_per_dir : tuple of numeric
        Rate of a rank into each tier, b_j. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    Notes
    -----
    Assumes: phases one after the other; within a phase a direct exchange over a switch or a single link.

    References
    ----------
    .. [1] W. Dally, B. Towles, Principles and Practices of Interconnection Networks, 2004, ch. 3.

    Examples
    --------
    >>> t = phased_all_to_all_s(16384, (2, 16, 2), (1e-6,) * 3, (512e9, 512e9, 128e9))
    >>> round(float(t) * 1e6, 9)
    3.11
    """
    k, alpha, b = _checked(ranks, alpha_s=alpha_s, bytes_per_s_per_dir=bytes_per_s_per_dir)
    m = numbers("message_bytes", message_bytes)
    phases = [np.sign(k_j - 1) * a_j + (k_j - 1) / k_j * m / b_j for k_j, a_j, b_j in zip(k, alpha, b, strict=True)]
    return sum(phases)


def multiport_bucket_s(
    collective: str, message_bytes: Numeric, ranks: Tuple, alpha_s: Numeric, bytes_per_s_per_dir: Tuple
) -> NDArray:
    r"""Time of the bucket algorithm on a torus in rotated copies, so that all links work at the same time.

    .. math:: t = p\sum_{q=0}^{d-1} \max_c \left[(k_j-1)\alpha + \frac{m}{d\prod_{i \in P_{cq}} k_i}\,
        \frac{k_j-1}{k_j}\,\frac{1}{2b_j}\right]_{j = (c+q) \bmod d}

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter"}
        Kind of collective: p = 2 passes for an all-reduce, else 1.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    ranks : tuple of numeric
        Ranks along each of the d dimensions, k_j. [-]
    alpha_s : numeric
        Start-up time of a step, alpha. [s]
    bytes_per_s_per_dir : tuple of numeric
        Rate of one link of each dimension, b_j. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    Notes
    -----
    Copy c holds 1/d of the buffer and is in dimension c + q in phase q; P are the dimensions it has left behind. All
    copies wait for the slowest of a phase. Equal dimensions: p[d(k-1)alpha + (n-1)/n m/(2 d b)], the node cut.

    References
    ----------
    .. [1] P. Sack, W. Gropp, Collective algorithms for multiported torus networks, ACM TOPC 1(2), 2015.

    Examples
    --------
    >>> round(float(multiport_bucket_s("all_reduce", 16384, (4, 4, 4), 1e-6, (128e9,) * 3)) * 1e6, 9)
    18.042
    """
    k, b = _checked(ranks, bytes_per_s_per_dir=bytes_per_s_per_dir)
    alpha, d = numbers("alpha_s", alpha_s), len(k)
    shares = [numbers("message_bytes", message_bytes) / d] * d
    total = np.zeros(())
    for phase in range(d):
        times = []
        for copy in range(d):
            j = (copy + phase) % d
            times.append((k[j] - 1) * alpha + shares[copy] * (k[j] - 1) / k[j] / (2 * b[j]))
            shares[copy] = shares[copy] / k[j]
        total = total + np.max(np.broadcast_arrays(*times), axis=0)
    return chosen("collective", collective, PASSES) * total


def tiers_at_once_s(
    collective: str, message_bytes: Numeric, ranks: Tuple, alpha_s: Tuple, bytes_per_s_per_dir: Tuple
) -> NDArray:
    r"""Time over switched tiers when parts of the buffer take them in all orders, so that every tier works at once.

    .. math:: t = p\left[\sum_j (k_j > 1)\,\alpha_j + m\,\max_{S \subsetneq V}
        \frac{\prod_{i \in S} 1/k_i - 1/n}{\sum_{j \notin S} b_j}\right],\quad n = \prod_j k_j

    Parameters
    ----------
    collective : {"all_reduce", "all_gather", "reduce_scatter"}
        Kind of collective: p = 2 passes for an all-reduce, else 1.
    message_bytes : numeric
        Full buffer on a rank, m. [B]
    ranks : tuple of numeric
        Ranks in each tier, k_j. [-]
    alpha_s : tuple of numeric
        Start-up time of a step in each tier, alpha_j. [s]
    bytes_per_s_per_dir : tuple of numeric
        Rate of a rank into each tier, b_j. [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t. [s]

    Notes
    -----
    In any order of the tiers V a rank sends (1 - 1/n) m in all. What orders can put on the tiers S together is at most
    1 - prod 1/k over S, a submodular function, so that shares of the buffer exist for every load below it in all S: the
    time is that of the tightest cut around a group of ranks. Assumes: direct exchange in a tier; many pieces, so that
    orders overlap and the fill of the pipeline is left out. Limits: one tier gives the one-shot exchange.

    References
    ----------
    .. [1] J. Edmonds, Submodular functions, matroids, and certain polyhedra, 1970: a polymatroid's vertices are orders.
    .. [2] P. Sack, W. Gropp, Collective algorithms for multiported torus networks, ACM TOPC 1(2), 2015: rotated copies.

    Examples
    --------
    >>> t = tiers_at_once_s("all_gather", 144e9, (4, 18, 2), (0.0,) * 3, (512e9, 512e9, 128e9))
    >>> round(float(t), 6), round(143 / (512 + 512 + 128), 6)
    (0.124132, 0.124132)
    """
    k, alpha, b = _checked(ranks, alpha_s=alpha_s, bytes_per_s_per_dir=bytes_per_s_per_dir)
    n, slowest = math.prod(k), np.zeros(())
    for inside in itertools.product((False, True), repeat=len(k)):
        if not all(inside):
            group = math.prod(k_j for k_j, within in zip(k, inside, strict=True) if within)
            outside = zip(k, b, inside, strict=True)
            leaving = sum(np.where(k_j > 1, b_j, 0.0) for k_j, b_j, within in outside if not within)
            left = 1 / np.asarray(group) - 1 / n
            slowest = np.maximum(slowest, np.where(left > 0, left / np.where(leaving > 0, leaving, 1.0), 0.0))
    steps = sum(np.sign(k_j - 1) * alpha_j for k_j, alpha_j in zip(k, alpha, strict=True))
    return chosen("collective", collective, PASSES) * (steps + numbers("message_bytes", message_bytes) * slowest)


def ring_link_load(k: Numeric, ties: str = "split") -> NDArray:
    r"""Load of a directed ring link under uniform all-to-all traffic and shortest paths, as a share of a send buffer.

    .. math:: l = \frac{\lfloor k^2/4 \rfloor}{2k} \text{ (ties split)},\quad
        \frac{h(h+1)}{2k},\; h = \lfloor k/2 \rfloor \text{ (ties one way)}

    Parameters
    ----------
    k : numeric
        Ranks on the ring. [-]
    ties : {"split", "one_way"}
        Where the opposite rank's traffic goes: half each way round, or all of it one way.

    Returns
    -------
    load : numeric
        Share l of a rank's send buffer on the busier link; k/8 for even k with ties split. [-]

    Notes
    -----
    One way costs 1.5 times the split load on a ring of four; it is what careless routing gives.

    References
    ----------
    .. [1] W. Dally, B. Towles, Principles and Practices of Interconnection Networks, 2004, ch. 3.

    Examples
    --------
    >>> float(ring_link_load(4)), float(ring_link_load(4, ties="one_way"))
    (0.5, 0.75)
    """
    k = numbers("k", k, 1, whole=True)
    half = np.floor(k / 2)
    loads = {"split": np.floor(k**2 / 4) / (2 * k), "one_way": half * (half + 1) / (2 * k)}
    return chosen("ties", ties, loads)
