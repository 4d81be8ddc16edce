"""One NeuronCore: cycles of its engines, from tiles and instructions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.units import Numeric


def tile_count(size: Numeric, tile: Numeric) -> NDArray:
    r"""Tiles that cover a dimension, the last one perhaps partial.

    .. math:: T = \lceil x / x_0 \rceil

    Parameters
    ----------
    size : numeric
        Elements along the dimension, x. [-]
    tile : numeric
        Elements of a full tile, x0. [-]

    Returns
    -------
    tiles : numeric
        Number of tiles, T. [-]

    Examples
    --------
    >>> float(tile_count(1590, 128)), float(tile_count(1536, 128))
    (13.0, 12.0)
    """
    return np.ceil(np.divide(size, tile))


def matmul_instructions(
    stationary: Numeric,
    moving: Numeric,
    contraction: Numeric,
    array_rows: Numeric,
    max_stationary: Numeric,
    max_moving: Numeric,
) -> NDArray:
    r"""Matrix-multiply instructions of a product.

    .. math:: n = T(K, R)\, T(S, S_0)\, T(V, V_0)

    Parameters
    ----------
    stationary : numeric
        Free dimension of the stationary operand, S. [-]
    moving : numeric
        Free dimension of the moving operand, V. [-]
    contraction : numeric
        Dimension that is summed over, K. [-]
    array_rows : numeric
        Contraction that one instruction covers, R: 128 in BF16, 512 in MXFP8. [-]
    max_stationary : numeric
        Columns of the array, S0. [-]
    max_moving : numeric
        Largest moving tile, one PSUM bank, V0. [-]

    Returns
    -------
    instructions : numeric
        Number of instructions, n. [-]

    References
    ----------
    .. [1] AWS Neuron, NKI guide, Trainium/Inferentia2 architecture, section Tensor Engine, tile size.

    Examples
    --------
    >>> float(matmul_instructions(2048, 2048, 2048, 128, 128, 512))
    1024.0
    """
    steps = tile_count(contraction, array_rows)
    return steps * tile_count(stationary, max_stationary) * tile_count(moving, max_moving)


def matmul_cycles(
    stationary: Numeric,
    moving: Numeric,
    contraction: Numeric,
    array_rows: Numeric,
    max_stationary: Numeric,
    max_moving: Numeric,
    min_initiation_cycle: Numeric,
    cost_ratio: Numeric = 1.0,
) -> NDArray:
    r"""TensorE cycles of a product as the sum over its tiles, partial ones included.

    .. math:: C = r\,T(K, R) \sum_{s}\sum_{v} \max\bigl(\min(c_0, s),\, v\bigr)

    Parameters
    ----------
    stationary : numeric
        Free dimension of the stationary operand, cut into tiles s. [-]
    moving : numeric
        Free dimension of the moving operand, cut into tiles v. [-]
    contraction : numeric
        Dimension that is summed over, K. [-]
    array_rows : numeric
        Contraction that one instruction covers, R. [-]
    max_stationary : numeric
        Largest stationary tile. [-]
    max_moving : numeric
        Largest moving tile. [-]
    min_initiation_cycle : numeric
        Shortest interval between two instructions, c0. [-]
    cost_ratio : numeric
        Passes of the dtype relative to BF16, r: 4 for FP32. [-]

    Returns
    -------
    cycles : numeric
        Cycles, C. [-]

    Notes
    -----
    Assumes: instructions pipelined, the next stationary tile loaded in the background.
    Limits: full tiles give V0 cycles for 2 R S0 V0 FLOP, the documented peak; a product never takes fewer cycles than
    its multiply-accumulates divided by R S0.

    References
    ----------
    .. [1] AWS Neuron, NKI ISA reference, nc_matmul cost: max(min(64, N_stationary), N_moving), 4x for FP32.

    Examples
    --------
    >>> float(matmul_cycles(128, 512, 128, 128, 128, 512, 64))
    512.0
    >>> float(matmul_cycles(128, 1, 128, 128, 128, 512, 64))
    64.0
    """
    full_s, rest_s = np.divmod(stationary, max_stationary)
    full_v, rest_v = np.divmod(moving, max_moving)

    def row_cycles(tile: Numeric) -> NDArray:
        floor = np.minimum(min_initiation_cycle, tile)
        return full_v * np.maximum(floor, max_moving) + np.where(rest_v > 0, np.maximum(floor, rest_v), 0.0)

    rows = full_s * row_cycles(max_stationary) + np.where(rest_s > 0, row_cycles(rest_s), 0.0)
    return cost_ratio * tile_count(contraction, array_rows) * rows


def lane_cycles(
    rows: Numeric,
    columns: Numeric,
    elements_per_cycle: Numeric,
    partitions: Numeric,
    passes: Numeric,
    instruction_columns: Numeric,
    min_initiation_cycle: Numeric,
    overhead_cycle: Numeric,
) -> NDArray:
    r"""Cycles of VectorE, ScalarE or GPSIMD over a matrix with one row per partition.

    .. math:: C = p\,T(M, P)\,\bigl[\max(N P / e,\; i\,c_0) + i\,c_1\bigr], \quad i = T(N, N_0)

    Parameters
    ----------
    rows : numeric
        Rows, spread over the partitions, M. [-]
    columns : numeric
        Elements of a row, N. [-]
    elements_per_cycle : numeric
        Elements over all partitions, e. [-]
    partitions : numeric
        Partitions, P. [-]
    passes : numeric
        Times that the engine reads the matrix, p. [-]
    instruction_columns : numeric
        Row elements that one instruction covers, N0. [-]
    min_initiation_cycle : numeric
        Shortest instruction, c0. [-]
    overhead_cycle : numeric
        Cycles of an instruction that nothing hides, c1. [-]

    Returns
    -------
    cycles : numeric
        Cycles, C. [-]

    Notes
    -----
    Limits: fewer rows than partitions cost as much as all partitions.

    References
    ----------
    .. [1] AWS Neuron, NKI guide, Trainium/Inferentia2 architecture, section Vector Engine, cost model.

    Examples
    --------
    >>> float(lane_cycles(128, 512, 128, 128, 1, 512, 64, 0))
    512.0
    """
    instructions = tile_count(columns, instruction_columns)
    stream = np.multiply(columns, partitions) / np.asarray(elements_per_cycle)
    busy = np.maximum(stream, instructions * min_initiation_cycle) + instructions * overhead_cycle
    return passes * tile_count(rows, partitions) * busy


def ramped_s(busy_s: Numeric, start_share: Numeric, ramp_s: Numeric) -> NDArray:
    r"""Time of TensorE work that starts throttled and ramps linearly to full rate.

    .. math:: t = \begin{cases} w + \tfrac{1 - s}{2} R & w \ge \tfrac{1 + s}{2} R \\
       \frac{2 w}{s + \sqrt{s^2 + 2 (1 - s) w / R}} & \text{else} \end{cases}

    Parameters
    ----------
    busy_s : numeric
        Time at full rate, w. [s]
    start_share : numeric
        Share of the full rate at the start, s; 1 for a chip without the ramp. [-]
    ramp_s : numeric
        Time until the full rate, R. [s]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Notes
    -----
    Assumes: a linear ramp (the documents give its ends) and no re-engagement; a kernel that falls below half
    utilisation for the length of the ramp pays it again.
    Limits: s = 1 gives w; w -> 0 gives w / s; w -> infinity adds (1 - s) R / 2.

    References
    ----------
    .. [1] AWS Neuron, Neuron Explorer glossary, dI/dt throttling.

    Examples
    --------
    >>> float(ramped_s(10.0, 0.5, 2.0)), float(ramped_s(10.0, 1.0, 0.0))
    (10.5, 10.0)
    """
    busy_s, start_share, ramp_s = np.broadcast_arrays(busy_s, start_share, ramp_s)
    ratio = np.divide(busy_s, ramp_s, out=np.full(busy_s.shape, np.inf), where=np.asarray(ramp_s) > 0)
    full = busy_s + (1 - start_share) / 2 * ramp_s
    within = 2 * busy_s / (start_share + np.sqrt(start_share**2 + 2 * (1 - start_share) * np.minimum(ratio, 1.0)))
    return np.where(ratio >= (1 + start_share) / 2, full, within)


def overlapped_s(busy_s: Numeric, overlap: Numeric) -> NDArray:
    r"""Time of engines that run side by side, each hidden behind the others by its own share.

    .. math:: t = \max_i(o_i t_i) + \sum_i (1 - o_i)\, t_i

    Parameters
    ----------
    busy_s : numeric
        Busy time of each engine, engines on the last axis, t_i. [s]
    overlap : numeric
        Share of each engine's time that runs beside the others, o_i, from 0 to 1. [-]

    Returns
    -------
    time_s : numeric
        Time, t; shape without the engine axis. [s]

    Notes
    -----
    Limits: all o = 1 gives the largest, the lower bound; all o = 0 gives the sum, the upper bound.

    Examples
    --------
    >>> float(overlapped_s([3.0, 2.0], [1.0, 1.0])), float(overlapped_s([3.0, 2.0], [1.0, 0.0]))
    (3.0, 5.0)
    """
    busy_s, overlap = np.asarray(busy_s), np.asarray(overlap)
    return (overlap * busy_s).max(axis=-1) + ((1 - overlap) * busy_s).sum(axis=-1)


def transpose_cycles(
    rows: Numeric, columns: Numeric, max_stationary: Numeric, min_initiation_cycle: Numeric, cost_ratio: Numeric = 1.0
) -> NDArray:
    r"""TensorE cycles that turn a matrix, as products with the identity.

    .. math:: C = r\,T(N, S_0) \sum_{m} \max(c_0, m)

    Parameters
    ----------
    rows : numeric
        Rows, cut into tiles m of at most S0. [-]
    columns : numeric
        Columns, N. [-]
    max_stationary : numeric
        Columns of the array, S0. [-]
    min_initiation_cycle : numeric
        Shortest interval between two instructions, c0. [-]
    cost_ratio : numeric
        Passes relative to BF16, r. [-]

    Returns
    -------
    cycles : numeric
        Cycles, C. [-]

    Notes
    -----
    A DMA transpose takes no TensorE cycles, and NeuronCore-v4 runs transposes in the background of other products
    ("zero cost"): the caller decides who pays.

    References
    ----------
    .. [1] AWS Neuron, NKI ISA reference, nc_transpose on TensorE: max(P, min(64, F)).

    Examples
    --------
    >>> float(transpose_cycles(2048, 2048, 128, 64))
    32768.0
    """
    full, rest = np.divmod(rows, max_stationary)
    cycles = full * max_stationary + np.where(rest > 0, np.maximum(rest, min_initiation_cycle), 0.0)
    return np.multiply(cost_ratio, tile_count(columns, max_stationary)) * cycles


def hiding_contraction(
    evict_cycles: Numeric, evict_clock_hz: Numeric, moving: Numeric, tensor_clock_hz: Numeric, array_rows: Numeric
) -> NDArray:
    r"""Smallest contraction at which TensorE works on an output tile for as long as its eviction from PSUM takes.

    .. math:: K^* = R \left\lceil \frac{C_e / f_e}{V / f_t} \right\rceil

    Parameters
    ----------
    evict_cycles : numeric
        Cycles to copy one output tile from PSUM to SBUF, Ce. [-]
    evict_clock_hz : numeric
        Clock of the copying engine, fe. [Hz]
    moving : numeric
        Moving tile in TensorE cycles, V. [-]
    tensor_clock_hz : numeric
        TensorE clock, ft. [Hz]
    array_rows : numeric
        Contraction of one instruction, R. [-]

    Returns
    -------
    contraction : numeric
        Smallest useful contraction, K*. [-]

    Examples
    --------
    >>> float(hiding_contraction(512.0, 1.12e9, 512.0, 2.8e9, 128.0))
    384.0
    """
    instruction_s = np.divide(moving, tensor_clock_hz)
    return np.multiply(array_rows, np.ceil(np.divide(evict_cycles, evict_clock_hz) / instruction_s))
