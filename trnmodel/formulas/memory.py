"""Bytes and their time: HBM, DMA, blocking in SBUF, host and storage, and what a rank stores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.units import Numeric


def hbm_bytes_per_s(pin_bytes_per_s: Numeric, stack_pins: Numeric, stacks: Numeric) -> NDArray:
    r"""HBM bandwidth of a package from its pins.

    .. math:: b = r\,w\,n

    Parameters
    ----------
    pin_bytes_per_s : numeric
        Rate of one data pin, r. [B/s]
    stack_pins : numeric
        Data pins of a stack, w. [-]
    stacks : numeric
        Stacks, n. [-]

    Returns
    -------
    bandwidth_bytes_per_s : numeric
        Peak bandwidth, b. [B/s]

    References
    ----------
    .. [1] JEDEC JESD238, HBM3: 1,024 data pins a stack.

    Examples
    --------
    >>> round(float(hbm_bytes_per_s(9.6e9 / 8, 1024, 4)) / 1e12, 3)
    4.915
    """
    return np.multiply(pin_bytes_per_s, stack_pins) * stacks


def share_per_logical_core(total: Numeric, cores: Numeric, lnc: Numeric) -> NDArray:
    r"""Return the share of one logical NeuronCore in a chip's capacity or bandwidth.

    .. math:: x_l = x\,l / n

    Parameters
    ----------
    total : numeric
        Capacity or bandwidth of the chip, x; the result has its unit. [B]
    cores : numeric
        Physical cores of the chip, n. [-]
    lnc : numeric
        Physical cores of a logical one, l. [-]

    Returns
    -------
    share : numeric
        Share of the logical core. [B]

    Examples
    --------
    >>> float(share_per_logical_core(144.0, 8, [1, 2, 8])[1])
    36.0
    """
    return np.multiply(total, lnc) / np.asarray(cores)


def drawn_bytes_per_s(
    hbm_bytes_per_s: Numeric, cores: Numeric, lnc: Numeric, busy_cores: Numeric, dma_bytes_per_s: Numeric
) -> NDArray:
    r"""Return the HBM bandwidth that one logical NeuronCore can draw while some of the chip's cores work.

    .. math:: b = \min\bigl(B\,l / n_b,\; \max(B\,l / n,\; d)\bigr)

    Parameters
    ----------
    hbm_bytes_per_s : numeric
        HBM bandwidth of the chip, B. [B/s]
    cores : numeric
        Physical cores of the chip, n. [-]
    lnc : numeric
        Physical cores of the logical one, l. [-]
    busy_cores : numeric
        Physical cores at work, those of the logical one among them, nb. [-]
    dma_bytes_per_s : numeric
        Rate of the DMA engines of the logical core, d; NaN where it is not published. [B/s]

    Returns
    -------
    bandwidth : numeric
        Bandwidth that HBM gives the logical core, b. [B/s]

    Notes
    -----
    Assumes: HBM divides its bandwidth equally among the cores at work, and a core may read every stack.
    Limits: with all cores at work each has its equal part; a core alone is bounded by its own DMA engines where they
    move more than that part, and by the part where they do not.

    Examples
    --------
    >>> drawn_bytes_per_s(2.9e12, 8, 1, [1, 4, 8], 368e9).tolist()
    [368000000000.0, 368000000000.0, 362500000000.0]
    """
    equal = share_per_logical_core(hbm_bytes_per_s, cores, lnc)
    drawn = share_per_logical_core(hbm_bytes_per_s, busy_cores, lnc)
    return np.minimum(drawn, np.fmax(equal, dma_bytes_per_s))


def dma_share(row_bytes: Numeric, saturating_bytes: Numeric) -> NDArray:
    r"""Share of the DMA engines' rate that contiguous rows of a size reach.

    .. math:: \eta = \min(1,\; x / x_0)

    Parameters
    ----------
    row_bytes : numeric
        Contiguous bytes that go to one partition, x. [B]
    saturating_bytes : numeric
        Row at which an engine moves bytes as fast as it starts rows, x0. [B]

    Returns
    -------
    share : numeric
        Share of the peak rate. [-]

    Notes
    -----
    Assumes: one row costs a fixed time or its bytes, whichever is longer (its packet's start overlaps the row before).
    Limits: x -> 0 gives 0, x >= x0 gives 1.

    References
    ----------
    .. [1] AWS Neuron, NKI DMA bandwidth guide, bandwidth against payload size; NKI DMA overview, first figure.

    Examples
    --------
    >>> float(dma_share(512.0, 2048.0)), float(dma_share(65536.0, 2048.0))
    (0.25, 1.0)
    """
    return np.minimum(1.0, np.divide(row_bytes, saturating_bytes))


def bandwidth_left_bytes_per_s(
    dma_bytes_per_s: Numeric, hbm_bytes_per_s: Numeric, collective_bytes_per_s: Numeric
) -> NDArray:
    r"""Bandwidth that a kernel has beside collectives on the same DMA engines and the same HBM.

    .. math:: b = \max\bigl(0,\; \min(b_d, b_h) - b_c\bigr)

    Parameters
    ----------
    dma_bytes_per_s : numeric
        Rate of the DMA engines, b_d. [B/s]
    hbm_bytes_per_s : numeric
        Achieved HBM bandwidth of the same cores, b_h. [B/s]
    collective_bytes_per_s : numeric
        Rate at which collectives move bytes through the same engines meanwhile, b_c. [B/s]

    Returns
    -------
    bandwidth_bytes_per_s : numeric
        What is left, b. [B/s]

    Notes
    -----
    The collective cores take no time from the compute engines; their transfers do take DMA engines and HBM.

    References
    ----------
    .. [1] AWS Neuron, NKI guide, Trainium2 architecture; compute-communication overlap guide.

    Examples
    --------
    >>> float(bandwidth_left_bytes_per_s(368e9, 360e9, 60e9)) / 1e9
    300.0
    """
    return np.maximum(0.0, np.minimum(dma_bytes_per_s, hbm_bytes_per_s) - collective_bytes_per_s)


def transfer_s(moved_bytes: Numeric, bandwidth_bytes_per_s: Numeric, start_s: Numeric = 0.0) -> NDArray:
    r"""Time of one transfer: a fixed start and a stream.

    .. math:: t = \alpha + m / b

    Parameters
    ----------
    moved_bytes : numeric
        Bytes, m. [B]
    bandwidth_bytes_per_s : numeric
        Bandwidth, b. [B/s]
    start_s : numeric
        Time before the first byte arrives, alpha. [s]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Examples
    --------
    >>> float(transfer_s(1e9, 1e9, 0.5))
    1.5
    """
    return start_s + np.divide(moved_bytes, bandwidth_bytes_per_s)


def staged_s(moved_bytes: Numeric, stage_bytes_per_s: Numeric, overlap: Numeric) -> NDArray:
    r"""Time through stages in a row, such as storage, host and PCIe.

    .. math:: t = o\,\max_i \frac{m}{b_i} + (1 - o) \sum_i \frac{m}{b_i}

    Parameters
    ----------
    moved_bytes : numeric
        Bytes, m. [B]
    stage_bytes_per_s : numeric
        Bandwidth of each stage on the last axis, b_i. [B/s]
    overlap : numeric
        1 where the stages stream at the same time, 0 where each waits for the one before, o. [-]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Examples
    --------
    >>> float(staged_s(8.0, [4.0, 2.0], 1.0)), float(staged_s(8.0, [4.0, 2.0], 0.0))
    (4.0, 6.0)
    """
    stages = np.asarray(moved_bytes)[..., None] / np.asarray(stage_bytes_per_s)
    return overlap * stages.max(axis=-1) + np.subtract(1, overlap) * stages.sum(axis=-1)


def output_block_side(sbuf_bytes: Numeric, accumulator_bytes: Numeric, usable_share: Numeric, tile: Numeric) -> NDArray:
    r"""Side of the square output block that SBUF can accumulate while panels stream past it.

    .. math:: s = s_0 \max\Bigl(1, \Bigl\lfloor \frac{\sqrt{u S / a}}{s_0} \Bigr\rfloor\Bigr)

    Parameters
    ----------
    sbuf_bytes : numeric
        SBUF of a core, S. [B]
    accumulator_bytes : numeric
        Bytes of an accumulated element, a. [B]
    usable_share : numeric
        Share of SBUF given to the block, u; the rest holds panels, twice. [-]
    tile : numeric
        The block is whole tiles of this side, s0. [-]

    Returns
    -------
    side : numeric
        Elements along a side of the block, s. [-]

    References
    ----------
    .. [1] J.-W. Hong, H. T. Kung, I/O complexity: the red-blue pebble game, STOC 1981: traffic falls with the root of
       the fast memory.

    Examples
    --------
    >>> float(output_block_side(24 * 2**20, 4, 0.5, 512))
    1536.0
    """
    side = np.sqrt(np.multiply(sbuf_bytes, usable_share) / accumulator_bytes)
    return np.multiply(tile, np.maximum(1.0, np.floor(side / tile)))


def blocked_read_bytes(
    m: Numeric,
    n: Numeric,
    k: Numeric,
    left_element_bytes: Numeric,
    right_element_bytes: Numeric,
    block_rows: Numeric,
    block_columns: Numeric,
) -> NDArray:
    r"""HBM bytes that a blocked product reads: each operand once for every block of the other one.

    .. math:: Q = M K a\,\lceil N / n_b \rceil + K N b\,\lceil M / m_b \rceil

    Parameters
    ----------
    m : numeric
        Rows of the product, M. [-]
    n : numeric
        Columns of the product, N. [-]
    k : numeric
        Contraction, K. [-]
    left_element_bytes : numeric
        Bytes of an element of the left operand, a. [B]
    right_element_bytes : numeric
        Bytes of an element of the right operand, b. [B]
    block_rows : numeric
        Rows of the output block, m_b. [-]
    block_columns : numeric
        Columns of the output block, n_b. [-]

    Returns
    -------
    read_bytes : numeric
        Bytes read, Q. [B]

    Notes
    -----
    Limits: a block as large as the product reads each operand once.

    Examples
    --------
    >>> float(blocked_read_bytes(2048, 2048, 2048, 2, 2, 1024, 1024)) / 2**20
    32.0
    """
    left = np.multiply(m, k) * left_element_bytes * np.ceil(np.divide(n, block_columns))
    right = np.multiply(k, n) * right_element_bytes * np.ceil(np.divide(m, block_rows))
    return left + right


def stream_bytes_per_s(bandwidth_bytes_per_s: Numeric, reached: Numeric, limit_bytes_per_s: Numeric) -> NDArray:
    r"""Rate at which software streams, where something else may bound it too.

    .. math:: b' = \min(\eta\,b,\; b_0)

    Parameters
    ----------
    bandwidth_bytes_per_s : numeric
        Printed bandwidth, b. [B/s]
    reached : numeric
        Share of it that the software reaches, eta. [-]
    limit_bytes_per_s : numeric
        What its kernels stream at most, b0. [B/s]

    Returns
    -------
    rate_bytes_per_s : numeric
        Rate, b'. [B/s]

    Examples
    --------
    >>> float(stream_bytes_per_s(8.0, 0.5, 3.0)), float(stream_bytes_per_s(8.0, 0.5, 6.0))
    (3.0, 4.0)
    """
    return np.minimum(np.multiply(bandwidth_bytes_per_s, reached), limit_bytes_per_s)


def cached_bytes(token_bytes: Numeric, tokens: Numeric, state_bytes: Numeric, sequences: Numeric) -> NDArray:
    r"""Cache of some sequences: keys and values of their tokens, and states of fixed size.

    .. math:: Q = S\,(q\,T + q_s)

    Parameters
    ----------
    token_bytes : numeric
        Cache of one token, q. [B]
    tokens : numeric
        Tokens kept of a sequence, T. [-]
    state_bytes : numeric
        State of one sequence, q_s. [B]
    sequences : numeric
        Sequences, S. [-]

    Returns
    -------
    cache_bytes : numeric
        Cache, Q. [B]

    Examples
    --------
    >>> float(cached_bytes(2.0, 100, 50.0, 3))
    750.0
    """
    return sequences * (token_bytes * tokens + state_bytes)


def activation_bytes(
    tokens: Numeric, routed: Numeric, inner: Numeric, hidden: Numeric, element_bytes: Numeric, tp: Numeric
) -> NDArray:
    r"""Activations that a rank holds at once: the widest inner one, cut over ranks, and two of the hidden size.

    .. math:: Q = s\,(T\,i / n + 2\,T'\,h)

    Parameters
    ----------
    tokens : numeric
        Tokens of the rank's attention group, T. [-]
    routed : numeric
        Tokens of all attention groups, which its experts take in and give back, T'; T where there is one group. [-]
    inner : numeric
        Elements of the widest layer, i. [-]
    hidden : numeric
        Elements of the hidden size, h. [-]
    element_bytes : numeric
        Bytes of an element, s. [B]
    tp : numeric
        Tensor-parallel ranks, n. [-]

    Returns
    -------
    held_bytes : numeric
        Activations, Q. [B]

    Notes
    -----
    Assumes: layers run one after another and reuse the same memory; buffers of an exchange have room for any routing,
    since compiled graphs have one shape and software that gathers tokens holds all of them. What lies between the two
    matrices of an expert comes in blocks, which are no larger than the widest inner activation.

    References
    ----------
    .. [1] AWS Neuron, vLLM Neuron, expert parallelism (tokens are gathered from all data-parallel groups).

    Examples
    --------
    >>> float(activation_bytes(4, 4, 16, 2, 2.0, 8)), float(activation_bytes(4, 12, 16, 2, 2.0, 8))
    (48.0, 112.0)
    """
    return tokens * inner * element_bytes / tp + 2 * routed * hidden * element_bytes


def paged_bytes(needed_bytes: Numeric, page_bytes: Numeric) -> NDArray:
    r"""Memory that comes in whole pages.

    .. math:: Q' = p\,\lceil Q / p \rceil

    Parameters
    ----------
    needed_bytes : numeric
        What is needed, Q. [B]
    page_bytes : numeric
        Page, p; 0 where memory comes by the byte. [B]

    Returns
    -------
    held_bytes : numeric
        What is held, Q'. [B]

    Examples
    --------
    >>> float(paged_bytes(100.0, 64.0)), float(paged_bytes(100.0, 0.0))
    (128.0, 100.0)
    """
    loose = page_bytes == 0
    paged = np.ceil(needed_bytes / (page_bytes + loose)) * page_bytes
    return paged + loose * needed_bytes


def spill_s(
    layers: Numeric, prompts: Numeric, held_bytes: Numeric, sbuf_bytes: Numeric, spill_bytes_per_s: Numeric
) -> NDArray:
    r"""Return the time of moving a batch that exceeds SBUF once in each layer for each further prompt.

    .. math:: t = L\,(B - 1)\,\max(Q - S, 0) / b

    Parameters
    ----------
    layers : numeric
        Layers, L. [-]
    prompts : numeric
        Prompts of the batch, B. [-]
    held_bytes : numeric
        Activations of the batch, Q. [B]
    sbuf_bytes : numeric
        SBUF of the rank, S. [B]
    spill_bytes_per_s : numeric
        Rate at which it moves them, b; infinite where it need not. [B/s]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Notes
    -----
    Fitted to prefills of several prompts; limits: one prompt or a batch within SBUF pays nothing.

    Examples
    --------
    >>> float(spill_s(2, 3, 10.0, 4.0, 8.0))
    3.0
    """
    beyond = np.maximum(np.subtract(held_bytes, sbuf_bytes), 0)
    return np.multiply(layers, np.subtract(prompts, 1)) * beyond / np.asarray(spill_bytes_per_s)
