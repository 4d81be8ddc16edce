"""A forward step on one rank: its rows, shares of heads, columns and memory, its work, and how its times overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice
from trnmodel.units import Numeric

KV_HEAD_POLICIES = ("even", "replicate", "multi-head")


def compiled_tokens(tokens: Numeric, longest: Numeric, smallest: Numeric, policy: str) -> NDArray:
    r"""Length that a compiled graph runs for some tokens.

    .. math:: T' = \max\bigl(T,\; \min(2^{\lceil \log_2 \max(T, T_0) \rceil},\; T_1)\bigr) \text{ (power of two)}

    Parameters
    ----------
    tokens : numeric
        Tokens, T. [token]
    longest : numeric
        Longest length that there is a graph for, T1; infinite where any may be. [token]
    smallest : numeric
        Smallest bucket, T0; a power of two. [token]
    policy : {"exact", "power-of-two", "maximum"}
        Pad nothing; pad to the next power of two, but not beyond the longest; always run the longest.

    Returns
    -------
    compiled : numeric
        Length that runs, T'. [token]

    Notes
    -----
    Limits: more tokens than the longest run as they are.

    References
    ----------
    .. [1] AWS Neuron SDK, NxD Inference features guide, bucketing.

    Examples
    --------
    >>> compiled_tokens([100.0, 1500.0, 4096.0], 4096.0, 128.0, "power-of-two").tolist()
    [128.0, 2048.0, 4096.0]
    """
    if policy == "exact":
        return np.asarray(tokens)
    if policy == "maximum":
        return np.maximum(tokens, longest)
    return np.maximum(tokens, np.minimum(np.exp2(np.ceil(np.log2(np.maximum(tokens, smallest)))), longest))


def graphs_s(expert_layers: Numeric, graph_layers: Numeric, ranks: Numeric, doubling_s: Numeric) -> NDArray:
    r"""Return the time that ranks wait for each other in a step of several compiled graphs, one after another.

    .. math:: t = \max(\lceil M / g \rceil,\, 1)\; t_0 \log_2 n

    Parameters
    ----------
    expert_layers : numeric
        Layers with experts, M. [-]
    graph_layers : numeric
        Layers with experts that one graph holds, g; infinite where one graph is the whole step. [-]
    ranks : numeric
        Ranks that start a graph together, n. [-]
    doubling_s : numeric
        Time that each doubling of the ranks adds to a graph, t0. [s]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    References
    ----------
    .. [1] foxl-ai/kiln docs/neuron-notes.md @fc21e10d: 1.04, 1.49, 1.98, 2.54 and 2.97 ms a graph with an all-reduce
       over 4 to 64 ranks of Trn2, 0.09 to 0.15 ms without one.

    Examples
    --------
    >>> float(graphs_s(47, 12, 32, 0.5e-3)), float(graphs_s(0, 12, 4, 0.5e-3))
    (0.01, 0.001)
    """
    graphs = np.maximum(np.ceil(np.divide(expert_layers, graph_layers)), 1.0)
    return graphs * doubling_s * np.log2(ranks)


def own_sequences(batch: Numeric, ranks: Numeric) -> NDArray:
    r"""Sequences of one of several ranks that share them out evenly, but cut none.

    .. math:: B' = \max\bigl(B / n,\; \min(B, 1)\bigr)

    Parameters
    ----------
    batch : numeric
        Sequences of them all, B. [-]
    ranks : numeric
        Expert-parallel ranks, or the stages of a pipeline in turn, n. [-]

    Returns
    -------
    sequences : numeric
        Sequences of one rank, B'. [-]

    Notes
    -----
    Limits: n = 1 gives B; n -> inf gives one sequence, which then only some ranks have.

    Examples
    --------
    >>> own_sequences(np.array([1.0, 96.0]), 64.0).tolist()
    [1.0, 1.5]
    """
    return np.maximum(batch / ranks, np.minimum(batch, 1.0))


def fullest_share(units: Numeric, ranks: Numeric) -> NDArray:
    r"""Share of whole units (heads, experts, layers) that the fullest of several ranks holds.

    .. math:: x = \lceil u / n \rceil / u

    Parameters
    ----------
    units : numeric
        Units, u. [-]
    ranks : numeric
        Ranks, n. [-]

    Returns
    -------
    share : numeric
        Share of the fullest rank, x. [-]

    Notes
    -----
    Limits: n = 1 gives 1; n -> inf gives 1/u, for a unit is not cut.

    Examples
    --------
    >>> fullest_share(40, np.array([8, 24])).tolist()
    [0.125, 0.05]
    """
    return np.ceil(units / ranks) / units


def kv_heads_per_rank(heads: Numeric, kv_heads: Numeric, tp: Numeric, policy: str) -> NDArray:
    r"""KV heads that one of several tensor-parallel ranks stores.

    .. math:: g' = \lceil g / n \rceil \;(n \mid g), \quad 1 \;(g \mid n), \quad \lceil h / n \rceil
       \text{ (else)} \qquad \text{(replicate)}

    Parameters
    ----------
    heads : numeric
        Query heads, h. [-]
    kv_heads : numeric
        KV heads, g. [-]
    tp : numeric
        Tensor-parallel ranks, n. [-]
    policy : {"even", "replicate", "multi-head"}
        "even" cuts without waste, even through a head. "replicate": all ranks alike where n divides the KV heads, one
        head a rank where n is a multiple of them, else the model is turned into multi-head attention with as many KV
        heads as padded query heads. "multi-head" turns it so wherever n does not divide the KV heads (older software).

    Returns
    -------
    held : numeric
        KV heads of a rank, g'. [-]

    References
    ----------
    .. [1] AWS Neuron SDK, NxD Inference, modules/attention/gqa.py (replicate to TP degree, convert to MHA).

    Examples
    --------
    >>> [float(kv_heads_per_rank(64, 8, tp, "replicate")) for tp in (4, 8, 24, 32, 12)]
    [2.0, 1.0, 1.0, 1.0, 6.0]
    >>> [float(kv_heads_per_rank(64, 8, tp, "multi-head")) for tp in (8, 32)]
    [1.0, 2.0]
    """
    choice("kv_head_policy", policy, KV_HEAD_POLICIES)
    if policy == "even":
        return kv_heads / tp
    divided, own = np.ceil(kv_heads / tp), np.ceil(heads / tp)
    copied = divided if policy == "replicate" else own
    whole, multiple = np.equal(np.mod(kv_heads, tp), 0), np.equal(np.mod(tp, kv_heads), 0)
    return np.where(whole, divided, np.where(multiple, copied, own))


def visible_tokens(context: Numeric, window: Numeric, kind: str) -> NDArray:
    r"""Return the cached tokens that a query at the end of a context needs.

    .. math:: v = C,\quad \min(C, w) \text{ (sliding, sparse)},\quad (C - 1) \bmod w + 1 \text{ (chunked)}

    Parameters
    ----------
    context : numeric
        Tokens of the context, C. [-]
    window : numeric
        Tokens of a window or of a chunk, w. [-]
    kind : {"causal", "sliding", "chunked", "sparse", "bidirectional", "cross"}
        Who sees whom.

    Returns
    -------
    tokens : numeric
        Tokens seen, v. [-]

    Examples
    --------
    >>> [float(visible_tokens(100, 32, kind)) for kind in ("causal", "sliding", "chunked")]
    [100.0, 32.0, 4.0]
    """
    if kind in ("sliding", "sparse"):
        return np.minimum(context, window)
    if kind == "chunked":
        seen = np.mod(np.subtract(context, 1), window) + 1
        return np.where(np.greater(context, 0), np.minimum(context, seen), 0)
    return np.asarray(context)[()]


def cached_tokens(context: Numeric, window: Numeric, kind: str) -> NDArray:
    r"""Return the most cached tokens that a sequence needs at once before it reaches a context.

    .. math:: v = C,\quad \min(C, w) \text{ (sliding, chunked)}

    Parameters
    ----------
    context : numeric
        Tokens of the context, C. [-]
    window : numeric
        Tokens of a window or of a chunk, w. [-]
    kind : {"causal", "sliding", "chunked", "sparse", "bidirectional", "cross"}
        Who sees whom.

    Returns
    -------
    tokens : numeric
        Tokens kept, v. [-]

    Examples
    --------
    >>> [float(cached_tokens(100, 32, kind)) for kind in ("causal", "sliding", "chunked")]
    [100.0, 32.0, 32.0]
    """
    return np.minimum(context, window) if kind in ("sliding", "chunked") else np.asarray(context)[()]


def score_elements(queries: Numeric, keys: Numeric, causal: Numeric) -> NDArray:
    r"""Score elements that attention needs: all, or those that a causal mask keeps.

    .. math:: s = Q K - c\,\frac{Q (Q - 1)}{2}, \quad K \ge Q

    Parameters
    ----------
    queries : numeric
        Query tokens, Q; they are the last of the keys. [-]
    keys : numeric
        Key tokens, K. [-]
    causal : numeric
        1 where the elements above the diagonal are skipped, 0 where all are computed, c. [-]

    Returns
    -------
    elements : numeric
        Elements of the score matrix, s. [-]

    Notes
    -----
    Limits: Q = 1 gives K whatever the mask.

    Examples
    --------
    >>> float(score_elements(4, 4, 1)), float(score_elements(4, 4, 0))
    (10.0, 16.0)
    """
    return np.multiply(queries, keys) - np.multiply(causal, np.multiply(queries, np.subtract(queries, 1))) / 2


def window_score_elements(queries: Numeric, keys: Numeric, window: Numeric) -> NDArray:
    r"""Score elements of causal attention that sees no farther back than a window.

    .. math:: s = s_c(g,\, K - Q + g) + (Q - g)\,w, \quad g = \min(\max(w - (K - Q), 0), Q)

    Parameters
    ----------
    queries : numeric
        Query tokens, Q; they are the last of the keys. [-]
    keys : numeric
        Key tokens, K. [-]
    window : numeric
        Keys that a query sees at most, itself among them, w. [-]

    Returns
    -------
    elements : numeric
        Elements of the score matrix, s; s_c are those of `score_elements`, causal. [-]

    Examples
    --------
    >>> float(window_score_elements(4, 6, 4)), float(window_score_elements(4, 4, 9))
    (15.0, 10.0)
    """
    past = np.subtract(keys, queries)
    growing = np.clip(np.subtract(window, past), 0, queries)
    return score_elements(growing, growing + past, 1) + np.subtract(queries, growing) * window


def chunk_score_elements(tokens: Numeric, chunk: Numeric) -> NDArray:
    r"""Score elements of causal attention within chunks, from the start of a chunk on.

    .. math:: s = \lfloor T / w \rfloor\,s_c(w, w) + s_c(T \bmod w,\, T \bmod w)

    Parameters
    ----------
    tokens : numeric
        Tokens, T. [-]
    chunk : numeric
        Tokens of a chunk, w. [-]

    Returns
    -------
    elements : numeric
        Elements of the score matrix, s; s_c are those of `score_elements`, causal. [-]

    Examples
    --------
    >>> float(chunk_score_elements(5, 4))
    11.0
    """
    whole, rest = np.divmod(tokens, chunk)
    return whole * score_elements(chunk, chunk, 1) + score_elements(rest, rest, 1)


def attended_pairs(tokens: Numeric, past: Numeric, window: Numeric, kind: str, causal: bool) -> NDArray:
    r"""Return the query-key pairs that new tokens have with each other and with cached ones.

    .. math:: s = s_c(T, P + T), \quad s_w(T, P + T) \text{ (sliding, sparse)}, \quad
              s_k(P \bmod w + T) - s_k(P \bmod w) \text{ (chunked)}, \quad T (P + T) \text{ (all)}

    Parameters
    ----------
    tokens : numeric
        New tokens, T. [-]
    past : numeric
        Cached tokens before them, P. [-]
    window : numeric
        Tokens of a window or of a chunk, w. [-]
    kind : {"causal", "sliding", "chunked", "sparse", "bidirectional", "cross"}
        Which keys a query attends to.
    causal : bool
        Whether masked pairs are left out; all pairs count where they are computed.

    Returns
    -------
    pairs : numeric
        Query-key pairs, s: those of `score_elements`, `window_score_elements` or `chunk_score_elements`. [-]

    Examples
    --------
    >>> [float(attended_pairs(4, 2, 3, kind, True)) for kind in ("causal", "sliding", "chunked", "bidirectional")]
    [18.0, 12.0, 9.0, 24.0]
    """
    keys = np.add(past, tokens)
    if not causal or kind in ("bidirectional", "cross"):
        return score_elements(tokens, keys, 0)
    if kind in ("sliding", "sparse"):
        return window_score_elements(tokens, keys, window)
    if kind == "chunked":
        before = np.mod(past, window)
        both = (chunk_score_elements(end, window) for end in (before + tokens, before))
        return np.subtract(*both)
    return score_elements(tokens, keys, 1)


def work_flop(row_flop: Numeric, rows: Numeric, logit_flop: Numeric, logits: Numeric) -> NDArray:
    r"""Work of matrices on the rows of a step.

    .. math:: W = w\,R + w_l\,L

    Parameters
    ----------
    row_flop : numeric
        Work of one row, w. [FLOP]
    rows : numeric
        Rows, one for each token of each sequence, R. [-]
    logit_flop : numeric
        Work of one row of logits, w_l. [FLOP]
    logits : numeric
        Rows that are turned into logits, L. [-]

    Returns
    -------
    flop : numeric
        Work, W. [FLOP]

    Examples
    --------
    >>> float(work_flop(4.0, 10, 3.0, 1))
    43.0
    """
    return row_flop * rows + logit_flop * logits


def read_bytes(weight_bytes: Numeric, row_bytes: Numeric, rows: Numeric) -> NDArray:
    r"""Bytes of weights and of table rows that a pass reads.

    .. math:: Q = q + q_r\,R

    Parameters
    ----------
    weight_bytes : numeric
        Weights, read once a pass, q. [B]
    row_bytes : numeric
        What one row looks up in tables, q_r. [B]
    rows : numeric
        Rows, R. [-]

    Returns
    -------
    read_bytes : numeric
        Bytes read, Q. [B]

    Examples
    --------
    >>> float(read_bytes(100.0, 2.0, 8))
    116.0
    """
    return weight_bytes + row_bytes * rows


def buffer_bytes(rows: Numeric, elements: Numeric, element_bytes: Numeric) -> NDArray:
    r"""Buffer of a message in which every row has its elements.

    .. math:: m = R\,n\,s

    Parameters
    ----------
    rows : numeric
        Rows, R. [-]
    elements : numeric
        Elements of a row: the hidden size, the vocabulary, a rank's heads, n. [-]
    element_bytes : numeric
        Bytes of an element, s. [B]

    Returns
    -------
    message_bytes : numeric
        Buffer, m. [B]

    Examples
    --------
    >>> float(buffer_bytes(8, 8192, 2.0))
    131072.0
    """
    return rows * elements * element_bytes


def phased_s(joined_s: Numeric, apart_s: Numeric, phase_overlap: Numeric) -> NDArray:
    r"""Time of a rank's own work, of which attention and linear layers hide each other's traffic in part.

    .. math:: t = p\,t_1 + (1 - p)\,t_2

    Parameters
    ----------
    joined_s : numeric
        Time where attention's traffic hides behind linear layers and the other way round, t1. [s]
    apart_s : numeric
        Time of linear layers and then of attention, each with its own traffic, t2. [s]
    phase_overlap : numeric
        Share of the step that is joined, p. [-]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Examples
    --------
    >>> float(phased_s(4.0, 5.0, 0.25))
    4.75
    """
    return joined_s * phase_overlap + apart_s * (1 - phase_overlap)


def overlapped_s(first_s: Numeric, second_s: Numeric, overlap: Numeric) -> NDArray:
    r"""Two times of which a share of the shorter hides behind the longer.

    .. math:: t = \max(t_1, t_2) + (1 - o) \min(t_1, t_2)

    Parameters
    ----------
    first_s : numeric
        One time, t1. [s]
    second_s : numeric
        The other, t2. [s]
    overlap : numeric
        Share that hides, o, from 0 to 1. [-]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Notes
    -----
    Limits: o = 1 gives the longer, the roofline; o = 0 the sum.

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52(4), 2009, sec. 3.

    Examples
    --------
    >>> float(overlapped_s(3.0, 2.0, 1.0)), float(overlapped_s(3.0, 2.0, 0.5))
    (3.0, 4.0)
    """
    return np.maximum(first_s, second_s) + np.minimum(first_s, second_s) * (1 - overlap)


def left_in_bank_bytes(bank_bytes: Numeric, sharing: Numeric, stored_bytes: Numeric) -> NDArray:
    r"""Return the memory that a bank has for one rank when the others that reach it store alike.

    .. math:: M_1 = M - (n - 1)\,m

    Parameters
    ----------
    bank_bytes : numeric
        Capacity of the bank, M. [B]
    sharing : numeric
        Ranks that store in it, n. [-]
    stored_bytes : numeric
        What each of the others stores, m. [B]

    Returns
    -------
    left_bytes : numeric
        What is left for the one, M1; below zero where the others alone do not fit. [B]

    Notes
    -----
    Limits: n = 1 leaves the whole bank; m = M/n leaves the share M/n.

    References
    ----------
    .. [1] AWS Neuron, Logical NeuronCore configuration: at LNC 1 both cores have access to the entire bank. (sdk-lnc)

    Examples
    --------
    >>> float(left_in_bank_bytes(24.0, 2, 13.0)), float(left_in_bank_bytes(24.0, 1, 13.0))
    (11.0, 24.0)
    """
    return bank_bytes - (sharing - 1) * stored_bytes
