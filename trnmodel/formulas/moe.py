"""Mixture of experts: which experts a batch touches, and what expert parallelism sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from trnmodel.units import Numeric


def distinct_experts(n_experts: Numeric, top_k: Numeric, tokens: Numeric) -> NDArray:
    r"""Return the expected number of different experts that a batch of tokens routes to.

    .. math:: D = E\,\bigl(1 - (1 - k/E)^B\bigr)

    Parameters
    ----------
    n_experts : numeric
        Routed experts, E. [-]
    top_k : numeric
        Experts a token, k. [-]
    tokens : numeric
        Tokens in the batch, B. [-]

    Returns
    -------
    distinct : numeric
        Expected distinct experts, D. [-]

    Notes
    -----
    Assumes: uniform, independent routing. Limits: B = 1 gives k; B -> inf gives E.

    References
    ----------
    .. [1] Linearity of expectation: an expert is missed by one token with probability 1 - k/E.

    Examples
    --------
    >>> round(float(distinct_experts(256, 8, 1)), 9), float(distinct_experts(256, 8, 1e9))
    (8.0, 256.0)
    """
    missed = np.power(1 - np.divide(top_k, n_experts), tokens)
    return n_experts * (1 - missed)


def experts_read(n_experts: Numeric, top_k: Numeric, tokens: Numeric, expert_read: str) -> NDArray:
    r"""Experts of a layer whose weights a pass over some tokens reads.

    .. math:: R = D(E, k, B) \text{ (distinct)},\quad \min(k\,B,\, E) \text{ (per token)},\quad E \text{ (all)}

    Parameters
    ----------
    n_experts : numeric
        Routed experts, E. [-]
    top_k : numeric
        Experts a token, k. [-]
    tokens : numeric
        Tokens in the pass, B. [-]
    expert_read : {"distinct", "per_token", "all"}
        Each expert that is needed once; each token's own, until all of them are cheaper; all, whatever is needed.

    Returns
    -------
    read : numeric
        Experts read, R. [-]

    Notes
    -----
    D is `distinct_experts`: the ideal kernel. Limits: B = 1 gives k, k and E; B -> inf gives E.

    References
    ----------
    .. [1] NeuronX Distributed, modules/moe/expert_mlps_v2.py: selective loading of each token's experts, or all.

    Examples
    --------
    >>> [round(float(experts_read(256, 8, 16, policy)), 1) for policy in ("distinct", "per_token", "all")]
    [102.0, 128.0, 256.0]
    """
    if expert_read == "distinct":
        return distinct_experts(n_experts, top_k, tokens)
    each = np.minimum(np.multiply(tokens, top_k), n_experts)
    return each if expert_read == "per_token" else n_experts + 0 * each


def expert_blocks(n_experts: Numeric, top_k: Numeric, tokens: Numeric, block_tokens: Numeric) -> NDArray:
    r"""Blocks that hold the routed tokens of any distribution over experts, each block of one expert alone.

    .. math:: N = \min\Bigl(\Bigl\lceil \frac{\max(T k - (E - 1),\, 0)}{b} \Bigr\rceil + E - 1,\; T k\Bigr)

    Parameters
    ----------
    n_experts : numeric
        Routed experts, E. [-]
    top_k : numeric
        Experts a token, k. [-]
    tokens : numeric
        Tokens, T. [-]
    block_tokens : numeric
        Rows of a block, b. [-]

    Returns
    -------
    blocks : numeric
        Blocks of the compiled graph, N. [-]

    Notes
    -----
    Assumes: a graph of static shape that drops no token, so that it holds the worst case: E - 1 experts with one token
    each, the others all at one expert. Limits: b = 1 gives T k; b -> inf gives E or T k, the smaller.

    References
    ----------
    .. [1] NeuronX Distributed, modules/moe/expert_mlps_v2.py, forward_blockwise.

    Examples
    --------
    >>> float(expert_blocks(128, 8, 2048, 512)), float(expert_blocks(128, 8, 4, 512))
    (159.0, 32.0)
    """
    routed = np.multiply(tokens, top_k)
    others = np.subtract(n_experts, 1)
    return np.minimum(np.ceil(np.maximum(routed - others, 0) / block_tokens) + others, routed)


def distinct_destinations(n_experts: Numeric, top_k: Numeric, n_groups: Numeric) -> NDArray:
    r"""Return the expected number of groups (ranks, chips, racks) among which one token's experts lie.

    .. math:: d = G\,\Bigl(1 - \prod_{i=0}^{k-1} \frac{E - E/G - i}{E - i}\Bigr)

    Parameters
    ----------
    n_experts : numeric
        Routed experts, E, spread evenly. [-]
    top_k : numeric
        Different experts a token, k. [-]
    n_groups : numeric
        Groups, G. [-]

    Returns
    -------
    destinations : numeric
        Expected groups that hold at least one of the token's experts, d; at most min(k, G). [-]

    Notes
    -----
    Assumes: uniform routing without replacement (hypergeometric). Limits: G = 1 gives 1; G = E gives k.

    References
    ----------
    .. [1] Hypergeometric probability of drawing none of a group's E/G experts in k draws.

    Examples
    --------
    >>> float(distinct_destinations(256, 8, 1)), round(float(distinct_destinations(256, 8, 256)), 9)
    (1.0, 8.0)
    """
    experts, k, groups = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (n_experts, top_k, n_groups)))
    draw = np.arange(k.max(initial=0))
    left = (experts - experts / groups)[..., None] - draw
    missed = np.where(draw < k[..., None], np.maximum(left, 0) / (experts[..., None] - draw), 1.0)
    return groups * (1 - missed.prod(axis=-1))


def block_work_ratio(
    blocks: Numeric, block_tokens: Numeric, routed: Numeric, n_experts: Numeric, top_k: Numeric
) -> NDArray:
    r"""Work of blocks that run full whether tokens fill them or not, over that of the routed rows.

    .. math:: r = N b / (T k), \quad E / k \text{ without a block}

    Parameters
    ----------
    blocks : numeric
        Blocks, N; without one all tokens go through all experts. [-]
    block_tokens : numeric
        Rows of a block, b. [-]
    routed : numeric
        Routed rows, T k. [-]
    n_experts : numeric
        Routed experts, E. [-]
    top_k : numeric
        Experts a token, k. [-]

    Returns
    -------
    ratio : numeric
        Executed over routed work, r. [-]

    Examples
    --------
    >>> float(block_work_ratio(159, 512, 16384, 128, 8)), float(block_work_ratio(0, 512, 32, 128, 8))
    (4.96875, 16.0)
    """
    every = np.divide(n_experts, top_k)
    return np.where(np.greater(blocks, 0), np.multiply(blocks, block_tokens) / routed, every)


def block_read_share(blocks: Numeric, n_experts: Numeric) -> NDArray:
    r"""Weights that blocks read, each those of its expert, over those of all experts of a rank.

    .. math:: r = N / E, \quad 1 \text{ without a block}

    Parameters
    ----------
    blocks : numeric
        Blocks, N; without one all experts are read once. [-]
    n_experts : numeric
        Experts of the rank, E. [-]

    Returns
    -------
    share : numeric
        Passes over the experts, r. [-]

    Examples
    --------
    >>> float(block_read_share(64, 32)), float(block_read_share(0, 32))
    (2.0, 1.0)
    """
    return np.where(np.greater(blocks, 0), np.divide(blocks, n_experts), 1.0)


def routing_s(
    layers: Numeric, core_s: Numeric, cores: Numeric, tokens: Numeric, n_experts: Numeric, top_k: Numeric, selects: Any
) -> NDArray:
    r"""Return the time that routing, selection and waiting for the slowest core add to a decode step with experts.

    .. math:: t = M\,t_0 \log_2(2 n)\,g^{1/4}, \quad g = \min(B k,\, E) \text{ where experts are selected, else } k

    Parameters
    ----------
    layers : numeric
        Layers with experts, M. [-]
    core_s : numeric
        Time of a layer for one expert of one token on one core, t0; fitted to a software stack. [s]
    cores : numeric
        Physical cores that wait for each other, n. [-]
    tokens : numeric
        Tokens of the step, B. [-]
    n_experts : numeric
        Routed experts, E. [-]
    top_k : numeric
        Experts a token, k. [-]
    selects : bool
        Whether the experts of each token are selected one token after another; else all of a rank run on all tokens.

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Notes
    -----
    Routing in FP32, top-k and gathering take a core t0; each doubling of the cores waits as long again. Experts that
    are gathered overlap in part: the root and the cores are one form of those that `evidence/forms.py` lists, which
    also chooses among them without the rows that judge. From B k = E on a step takes as long as there.

    Examples
    --------
    >>> float(routing_s(2, 0.5, 4, 16, 128, 1, True)), float(routing_s(2, 0.5, 4, 16, 128, 1, False))
    (6.0, 3.0)
    """
    gathered = np.where(selects, np.minimum(np.multiply(tokens, top_k), n_experts), top_k)
    return layers * core_s * np.log2(np.multiply(2, cores)) * np.power(gathered, 0.25)


def load_imbalance(n_ranks: Numeric, routed_per_rank: Numeric, spread: Numeric) -> NDArray:
    r"""Load of the fullest of the ranks that share out experts, over the mean.

    .. math:: f = \min\left(n,\; 1 + \sqrt{c^2 + 1/m}\; \Phi^{-1}\left(\frac{n - 0.375}{n + 0.25}\right)\right)

    Parameters
    ----------
    n_ranks : numeric
        Ranks, or groups of ranks, that hold different experts, n. [-]
    routed_per_rank : numeric
        Tokens times their experts that a rank meets on average in one pass, m. [-]
    spread : numeric
        Standard deviation of the load that lasts from pass to pass over its mean, c: how unequal experts are once a
        balancer has placed them. 0 stands for loads that are even by construction. [-]

    Returns
    -------
    imbalance : numeric
        Load of the fullest rank over the mean, f. [-]

    Notes
    -----
    Assumes: loads of ranks are independent and normal, and each pass draws its tokens anew, which adds 1/m to the
    variance; Blom's approximation of the largest of n. At most one rank has all the load. Hot experts that nobody
    balances have a heavier tail than the normal law: there the spread is the one that gives the printed imbalance.
    Limits: 1 for one rank, or without spread.

    References
    ----------
    .. [1] G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958.
    .. [2] NVIDIA, Scaling Expert Parallelism in TensorRT-LLM, part 1, table 1 (trtllm-wide-ep).

    Examples
    --------
    >>> printed_std = np.array([52.0, 53.9]) / 1024  # with a balancer, of 32 and of 36 ranks; 1.109 and 1.115 printed
    >>> load_imbalance([32, 36], 1024, np.sqrt(printed_std**2 - 1 / 1024)).round(3).tolist()
    [1.105, 1.111]
    """
    n, m, c = (np.asarray(x, dtype=float) for x in (n_ranks, routed_per_rank, spread))
    largest = scipy.special.ndtri((n - 0.375) / (n + 0.25))
    with np.errstate(divide="ignore"):
        uneven = np.minimum(n, 1 + np.sqrt(c**2 + 1 / m) * largest)
    return np.where((c > 0) & (n > 1), uneven, 1.0)[()]


def dispatched_bytes(buffer_bytes: Numeric, top_k: Numeric, tp: Numeric, imbalance: Numeric) -> NDArray:
    r"""Return the bytes that a rank sends in one all-to-all to its tokens' experts, or back: once for each expert.

    .. math:: m = \phi\,k\,m_0 / n

    Parameters
    ----------
    buffer_bytes : numeric
        Activations of the rank's tokens, m0. [B]
    top_k : numeric
        Experts a token, k. [-]
    tp : numeric
        Tensor-parallel ranks, each of which carries its part of the width, n. [-]
    imbalance : numeric
        Tokens of the hottest rank over the mean, phi. [-]

    Returns
    -------
    message_bytes : numeric
        Send buffer, m, with what stays on the rank. [B]

    References
    ----------
    .. [1] DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, sec. 3.2.2 (dispatch and combine).

    Examples
    --------
    >>> float(dispatched_bytes(14336.0, 8, 4, 1.0))
    28672.0
    """
    return buffer_bytes * top_k / tp * imbalance


def dispatch_slot_rows(tokens: Numeric, top_k: Numeric, n_ranks: Numeric) -> NDArray:
    r"""Return the rows that a dispatch reserves in its send buffer, which is also the size of each receive slot.

    .. math:: s = T \min(k, n)

    Parameters
    ----------
    tokens : numeric
        Tokens of a rank, T. [-]
    top_k : numeric
        Experts per token, k. [-]
    n_ranks : numeric
        Ranks of the experts, n. [-]

    Returns
    -------
    rows : numeric
        Rows of a slot, s: a token goes to each rank once, and to no more ranks than it has experts. [-]

    References
    ----------
    .. [1] deepep-trn, docs/trn2-constraints.md, row 2 (M min(K, R) for dispatch).

    Examples
    --------
    >>> float(dispatch_slot_rows(16, 8, 4)), float(dispatch_slot_rows(16, 2, 4))
    (64.0, 32.0)
    """
    return np.multiply(tokens, np.minimum(top_k, n_ranks))


def combine_slot_rows(tokens: Numeric, n_ranks: Numeric, rows_per_token: Numeric = 1.0) -> NDArray:
    r"""Return the rows that a combine reserves in its send buffer, which is also the size of each receive slot.

    .. math:: s = n\,T\,c

    Parameters
    ----------
    tokens : numeric
        Tokens of a rank, T. [-]
    n_ranks : numeric
        Ranks of the experts, n, each of which may have sent all of its tokens here. [-]
    rows_per_token : numeric
        Rows that come back per token and rank, c: 1 where a rank sums its experts first, k where each comes back. [-]

    Returns
    -------
    rows : numeric
        Rows of a slot, s. [-]

    References
    ----------
    .. [1] deepep-trn, docs/trn2-constraints.md, row 2 (R M for combine).

    Examples
    --------
    >>> float(combine_slot_rows(16, 4)), float(combine_slot_rows(16, 4, 8))
    (64.0, 512.0)
    """
    return np.multiply(tokens, n_ranks) * rows_per_token


def slotted_exchange_s(
    payload_bytes: Numeric,
    slot_bytes: Numeric,
    n_ranks: Numeric,
    start_s: Numeric,
    rank_s: Numeric,
    wire_bytes_per_s: Numeric,
    copy_bytes_per_s: Numeric,
) -> NDArray:
    r"""Time of a dispatch or combine whose receive buffer has one slot of the send buffer's size for each rank.

    .. math:: t = t_0 + t_1 (n - 1) + \frac{m}{b} + \frac{2\,(1 + n)\,s}{B}

    Parameters
    ----------
    payload_bytes : numeric
        Rows that a rank sends, its own block included, m: the collective moves that block into its slot too. [B]
    slot_bytes : numeric
        Send buffer, whether rows fill it or not, s. [B]
    n_ranks : numeric
        Ranks, n. [-]
    start_s : numeric
        Start of a call, t0. [s]
    rank_s : numeric
        What each other rank adds, t1. [s]
    wire_bytes_per_s : numeric
        Rate at which rows reach their slots, b. [B/s]
    copy_bytes_per_s : numeric
        HBM traffic of the copies, B: the send buffer is copied before and the n slots after, each read and written.
        [B/s]

    Returns
    -------
    time_s : numeric
        Completion time, t; 0 for one rank. [s]

    Notes
    -----
    The bytes off the rank are (n - 1)/n of the payload. Time grows with n squared where the slots grow with n.

    References
    ----------
    .. [1] deepep-trn, deep_ep_trn/transport/nki_a2av.py (a copy in, all_to_all_v without displacements, a copy out).

    Examples
    --------
    >>> float(slotted_exchange_s(1e9, 1e9, 3, 0.25, 0.125, 1e9, 8e9)), float(slotted_exchange_s(1, 1, 1, 1, 1, 1, 1))
    (2.5, 0.0)
    """
    others = np.subtract(n_ranks, 1)
    copied = np.multiply(2, np.add(1, n_ranks)) * slot_bytes / np.asarray(copy_bytes_per_s)
    return np.sign(others) * (
        start_s + np.multiply(rank_s, others) + payload_bytes / np.asarray(wire_bytes_per_s) + copied
    )
