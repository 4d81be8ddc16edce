"""How long one logical NeuronCore takes for a kernel, by engine: `tm.kernel`.

Each call turns a chip, a shape and a software stack into busy times of TensorE, VectorE, ScalarE, GPSIMD and DMA, and
puts them together by the overlap that the stack is known for. Both bounds, all engines side by side and all in a row,
come with the answer. Every number broadcasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.formulas import memory, neuroncore
from trnmodel.result import require_choice, require_numbers
from trnmodel.workloads.engines import (
    Array,
    Device,
    KernelStack,
    KernelTime,
    Numeric,
    device,
    elements_per_cycle,
    finish,
    stack,
)

__all__ = ["attention", "dma", "elementwise", "host", "matmul", "operators", "smallest_contraction", "stack"]

BUFFERING = ("double", "tile", "none")
TRANSPOSE = ("none", "tensor", "background", "dma")
GATHER = ("none", "dereference", "rows", "permute")
EXPONENTIAL = ("vector", "scalar", "fast-scalar")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MatmulTime(KernelTime):
    """A matrix product of `m` x `k` by `k` x `n`, `groups` times."""

    m: NDArray
    n: NDArray
    k: NDArray
    groups: NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AttentionTime(KernelTime):
    """Attention of `queries` tokens to `keys` tokens."""

    queries: NDArray
    keys: NDArray
    heads: NDArray
    head_size: NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ElementwiseTime(KernelTime):
    """An operator on a matrix of `rows` x `columns`."""

    rows: NDArray
    columns: NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TransferTime(KernelTime):
    """A DMA transfer of `moved_bytes` in `transfers` pieces with contiguous rows of `row_bytes`."""

    moved_bytes: NDArray
    row_bytes: NDArray
    transfers: NDArray


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    require_choice(name, value, dict.fromkeys(allowed))


@dataclass(frozen=True, slots=True)
class _Traffic:
    """HBM traffic of a product: bytes, the least that they could be, and busy times of the DMA engines."""

    read: NDArray
    written: NDArray
    least: NDArray
    busy: dict[str, NDArray]


def _blocks(where: Device, m: Numeric, n: Numeric, smaller_bytes: Numeric, rows, columns) -> tuple:
    """Sides of the output block: as asked for, else the whole product where SBUF holds an operand, else a square."""
    if rows is not None and columns is not None:
        return rows, columns
    sbuf, tile = where.lnc * where.core.sbuf_bytes, where.core.tensor.max_stationary_cols
    side = memory.output_block_side(sbuf, load.dtypes()["fp32"], where.stack.sbuf_block_share, tile)
    height = np.where(np.less(n, side), side**2 / np.minimum(n, side), np.minimum(m, side))
    fits = np.less_equal(smaller_bytes, sbuf * where.stack.sbuf_block_share)
    return np.where(fits, m, height), np.where(fits, n, side**2 / height)


def _gather_share(where: Device, gather: str, row_bytes: Numeric) -> Numeric:
    """Share of the DMA rate at which token rows are found.

    "none": they lie beside each other. "dereference": the engines index them where they lie. "rows" and "permute": DMA
    fetches each token's row; "permute" writes them sorted to HBM first and reads them back.
    """
    _one_of("gather", gather, GATHER)
    if gather == "dereference" and not load.value(where.core.id, "indirect_access"):
        raise ValueError(f"gather='dereference': {where.core.id} has no indirect access; use 'rows' or 'permute'")
    if gather in ("none", "dereference"):
        return 1.0
    return memory.dma_share(row_bytes, load.value("neuron-dma", "dma_linear_bytes"))


def _traffic(where: Device, m, n, k, groups, sizes: tuple, gather: str, blocks: tuple, keep: Numeric) -> _Traffic:
    """Traffic with blocks in SBUF; `keep` is the share of the DMA rate that a transpose on the way leaves."""
    left_size, weight_size, out_size = sizes
    left, out, weights = np.multiply(m, k) * left_size, np.multiply(m, n) * out_size, np.multiply(k, n) * weight_size
    left_row, weight_row, out_row = np.multiply(k, left_size), np.multiply(n, weight_size), np.multiply(n, out_size)
    passes = 2.0 if gather == "permute" else 1.0
    block = _blocks(where, m, n, np.minimum(left, weights), *blocks)
    left_again = memory.blocked_read_bytes(m, n, k, left_size, 0.0, *block) - left
    weights_again = memory.blocked_read_bytes(m, n, k, 0.0, weight_size, *block) - weights
    gathered, stack_ = _gather_share(where, gather, left_row), where.stack
    sorted_ = left * (passes - 1.0)

    def dma(part: NDArray, row: NDArray, share: Numeric) -> NDArray:
        return where.dma_s(groups * part, row, share * keep)

    busy = {
        "load": dma(left * passes, left_row, stack_.load_share * gathered)
        + dma(weights, weight_row, stack_.load_share),
        "reload": dma(left_again, left_row, 1.0) + dma(weights_again, weight_row, 1.0),
        "store": where.dma_s(groups * out, out_row, stack_.store_share)
        + where.dma_s(groups * sorted_, left_row, stack_.store_share),
    }
    read = groups * (left * passes + weights + left_again + weights_again)
    return _Traffic(read, groups * (out + sorted_), groups * (left + weights + out), busy)


def _turned(where: Device, array: Array, transpose: str, rows: Numeric, columns: Numeric, cycles: NDArray) -> tuple:
    """TensorE cycles with an operand's transpose, and the share of the DMA rate that loads keep."""
    _one_of("transpose", transpose, TRANSPOSE)
    if transpose == "none":
        return cycles, 1.0
    if transpose == "dma":
        return cycles, load.value(where.core.id, "dma_transpose_share", "hbm-sbuf")
    engine, height = array.engine, np.ceil(np.divide(rows, where.lnc))
    tile = (engine.max_stationary_cols, engine.min_initiation_cycle, array.cost_ratio)
    extra = neuroncore.transpose_cycles(height, columns, *tile)
    if transpose == "tensor":
        return cycles + extra, 1.0
    if not load.value(where.core.id, "background_transpose"):
        raise ValueError(f"transpose='background': {where.core.id} has none; use 'tensor' or 'dma'")
    return np.maximum(cycles, extra), 1.0


def _dequantise_s(where: Device, k: Numeric, n: Numeric, weight_dtype: str, dtype: str) -> NDArray:
    """VectorE time to turn stored weights into the compute dtype where TensorE does not take them as they are."""
    native = load.fact_in_force(where.core.id, "native_weight_dtypes", dtype)[0].value_printed.split()
    if weight_dtype in (dtype, *native):
        return np.asarray(0.0)
    return where.lanes_s("vector", k, n, load.value("op-dequantise", "vector_passes", weight_dtype), dtype)


def _evict_s(where: Device, m: Numeric, n: Numeric) -> NDArray:
    """VectorE time to copy the product from PSUM to SBUF, its longer side along the partitions if that is cheaper."""
    return np.minimum(where.lanes_s("vector", m, n, 1, "fp32"), where.lanes_s("vector", n, m, 1, "fp32"))


def _waits(where: Device, array: Array, m: Numeric, n: Numeric, k: Numeric, buffering: str) -> Numeric:
    """Waits for a semaphore that nothing hides."""
    tile = (array.rows, array.columns, array.engine.max_moving_cols)
    tiles = np.minimum(*(neuroncore.matmul_instructions(a, b, 1, *tile) for a, b in ((m, n), (n, m)))) / where.lnc
    waits = {"double": 0.0, "tile": tiles, "none": tiles * neuroncore.tile_count(k, array.rows)}
    return require_choice("buffering", buffering, waits)


def matmul(
    chip: str | Chip,
    m: Numeric,
    n: Numeric,
    k: Numeric,
    dtype: str = "bf16",
    *,
    stack: str | KernelStack = "stack-nki",
    lnc: int | None = 1,
    cores: str = "one",
    groups: Numeric = 1,
    weight_dtype: str | None = None,
    output_dtype: str | None = None,
    compression: Numeric = 1,
    split: Numeric = 1,
    transpose: str = "none",
    gather: str = "none",
    buffering: str = "double",
    block_rows: Numeric | None = None,
    block_columns: Numeric | None = None,
    collective_bytes_per_s: Numeric = 0.0,
    overlap: Mapping[str, float] | None = None,
) -> MatmulTime:
    """Time of `groups` products of m x k activations by k x n weights on one logical NeuronCore.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores. [-]
    m : numeric
        Rows, the tokens of a linear layer. [-]
    n : numeric
        Columns, the layer's outputs. [-]
    k : numeric
        Contraction, the layer's inputs. [-]
    dtype : str
        Compute dtype, one that TensorE has a printed peak for. [-]
    stack : str or KernelStack
        How the kernel is written; its values are rows of `data/`. [-]
    lnc : int, optional
        Physical cores that share the product; None takes the chip's default. [-]
    cores : str
        "one": the other cores of the chip rest; "all": they multiply too, at the sustained peak. [-]
    groups : numeric
        Products of this shape, such as the experts of a layer. [-]
    weight_dtype : str, optional
        How weights lie in HBM; where TensorE cannot take it, VectorE dequantises. Default: the compute dtype. [-]
    output_dtype : str, optional
        How the result is stored. Default: BF16, or FP32 for FP32. [-]
    compression : numeric
        N/M of M:N structured sparsity of the weights, 1 for dense. [-]
    split : numeric
        1 for the whole array, 4 for the MX array as four of 128 rows. [-]
    transpose : str
        Who transposes the activations: nobody ("none"), TensorE, its background, or DMA. [-]
    gather : str
        How the tokens of a group are found: "none" (beside each other), "dereference", "rows", "permute". [-]
    buffering : str
        "double": no engine waits; "tile": one wait per output tile; "none": one per instruction. [-]
    block_rows : numeric, optional
        Rows of the output block kept in SBUF. Default: what SBUF holds. [-]
    block_columns : numeric, optional
        Columns of that block. [-]
    collective_bytes_per_s : numeric
        What collectives move through the same DMA engines meanwhile. [B/s]
    overlap : mapping, optional
        Overlap with TensorE by pair, from 0 to 1: "load", "store", "vector", "scalar", "gpsimd". [-]

    Returns
    -------
    time : MatmulTime
        Times by engine, bounds, the binding engine and what to change.

    Raises
    ------
    ValueError
        Unknown names, sizes below 1, a dtype or feature that the core has not.

    Examples
    --------
    >>> import trnmodel as tm
    >>> answer = tm.kernel.matmul("trainium2", 4096, 4096, 4096)
    >>> answer.bound, bool(answer.time_s > answer.roofline_s)
    ('TensorE', True)
    """
    require_numbers(1, m=m, n=n, k=k, groups=groups)
    where = device(chip, stack, lnc, cores, collective_bytes_per_s, overlap)
    array, weight_dtype = where.array(dtype, compression, split), weight_dtype or dtype
    stored = (dtype, weight_dtype, output_dtype or ("fp32" if dtype == "fp32" else "bf16"))
    left_size, weight_size, out_size = (_element_bytes(name) for name in stored)
    sizes = (left_size, weight_size / np.asarray(compression), out_size)
    cycles, least = array.cheapest(m, n, k, where.lnc)
    cycles, keep = _turned(where, array, transpose, m, k, cycles)
    moved = _traffic(where, m, n, k, groups, sizes, gather, (block_rows, block_columns), keep)
    flop = 2.0 * np.multiply(m, n) * k * groups
    busy = moved.busy | {
        "tensor": where.tensor_s(cycles * groups),
        "vector": groups * (_evict_s(where, m, n) + _dequantise_s(where, k, n, weight_dtype, dtype)),
        "fixed": where.fixed_s(groups * np.asarray(_waits(where, array, m, n, k, buffering))),
    }
    bounds = {
        "roofline_s": where.roofline_s(dtype, flop, moved.least, compression),
        "tile_s": np.maximum(groups * least / array.engine.clock_hz, where.floor_s(moved.least)),
    }
    traffic = {"flop": flop, "hbm_read_bytes": moved.read, "hbm_write_bytes": moved.written}
    return finish(MatmulTime, where, "matmul", dtype, busy, **bounds, **traffic, m=m, n=n, k=k, groups=groups)


def _element_bytes(dtype: str) -> float:
    return require_choice("dtype", dtype, load.dtypes())


def smallest_contraction(chip: str | Chip, dtype: str = "bf16", engine: str = "vector") -> float:
    """Contraction from which TensorE, not the copy of results out of PSUM, bounds a product of full tiles.

    Examples
    --------
    >>> smallest_contraction("trainium1")
    384.0
    """
    _one_of("engine", engine, ("vector", "scalar"))
    where = device(chip, "stack-nki", 1, "one", 0.0, None)
    array, clock_hz = where.array(dtype), getattr(where.core, engine).clock_hz
    moving = array.engine.max_moving_cols
    copy_cycles = where.lanes_s(engine, array.columns, moving, 1, "fp32") * clock_hz
    instruction = moving + array.engine.access_overhead_cycle
    return float(neuroncore.hiding_contraction(copy_cycles, clock_hz, instruction, array.engine.clock_hz, array.rows))


def _exponential(where: Device, exponential: str | None) -> tuple[str, float]:
    """Engine that evaluates exponentials, and its elements a cycle over all partitions."""
    ratio = where.core.vector.exponential_ratio
    choice = exponential or ("scalar" if np.isnan(ratio) else "vector")
    _one_of("exponential", choice, EXPONENTIAL)
    plain = elements_per_cycle(where.core.scalar, "other")
    if choice == "scalar":
        return "scalar", plain
    if np.isnan(ratio):
        raise ValueError(f"exponential={exponential!r}: {where.core.id} has no fast exponential; use 'scalar'")
    return choice.removeprefix("fast-"), plain * ratio


def _passes(op: str, engine: str, over: str = "") -> float:
    return load.value(f"op-{op}", f"{engine}_passes", over)


def attention(
    chip: str | Chip,
    queries: Numeric,
    keys: Numeric,
    heads: Numeric = 1,
    kv_heads: Numeric | None = None,
    head_size: Numeric = 128,
    dtype: str = "bf16",
    *,
    causal: Numeric = 1,
    kv_dtype: str | None = None,
    exponential: str | None = None,
    transpose: str = "tensor",
    stack: str | KernelStack = "stack-nki",
    lnc: int | None = 1,
    cores: str = "one",
    collective_bytes_per_s: Numeric = 0.0,
    overlap: Mapping[str, float] | None = None,
) -> AttentionTime:
    """Time of fused attention over tiles: scores, exponentials and the weighted sum, scores never in HBM.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores. [-]
    queries : numeric
        Query tokens, the last of the keys. [-]
    keys : numeric
        Key tokens; the context of a decode step. [-]
    heads : numeric
        Query heads. [-]
    kv_heads : numeric, optional
        KV heads; the queries of a group share its keys. Default: as many as query heads. [-]
    head_size : numeric
        Elements of a head. [-]
    dtype : str
        Compute dtype of both products. [-]
    causal : numeric
        1 where tiles above the diagonal are skipped. [-]
    kv_dtype : str, optional
        How keys and values lie in HBM. Default: the compute dtype. [-]
    exponential : str, optional
        "vector" (NKI guide: VectorE's instruction, 4x ScalarE), "fast-scalar" (the other reading of the deep dive's 4x:
        that rate on ScalarE), "scalar" (no fast unit). Default: the generation's own. [-]
    transpose : str
        Who transposes the probabilities for the second product: "tensor", "background" or "none". [-]
    stack : str or KernelStack
        How the kernel is written. [-]
    lnc : int, optional
        Physical cores that share the KV heads. [-]
    cores : str
        "one" or "all" cores of the chip at work. [-]
    collective_bytes_per_s : numeric
        What collectives move through the same DMA engines meanwhile. [B/s]
    overlap : mapping, optional
        Overlap with TensorE by pair, as in `matmul`. [-]

    Returns
    -------
    time : AttentionTime
        Times by engine, bounds, the binding engine and what to change.

    Notes
    -----
    Masked tiles: elements above the diagonal inside a tile are computed, half a moving tile a query on average.

    Examples
    --------
    >>> import trnmodel as tm
    >>> [tm.kernel.attention(chip, 4096, 4096, heads=8).bound for chip in ("trainium2", "trainium3")]
    ['ScalarE', 'TensorE']
    """
    kv_heads = heads if kv_heads is None else kv_heads
    require_numbers(1, queries=queries, keys=keys, heads=heads, kv_heads=kv_heads, head_size=head_size)
    where = device(chip, stack, lnc, cores, collective_bytes_per_s, overlap)
    _one_of("transpose", transpose, TRANSPOSE[:3])
    array, engine = where.array(dtype), where.core.tensor
    rows = np.multiply(queries, heads) / np.asarray(kv_heads)  # query rows that share a KV head
    needed = neuroncore.score_elements(queries, keys, causal)
    everything = np.multiply(queries, keys)
    share = np.minimum(everything, needed + causal * np.multiply(queries, engine.max_moving_cols) / 2) / everything
    work = share * np.ceil(np.divide(kv_heads, where.lnc))
    busy_cycles, least = _attention_cycles(where, array, transpose, rows, keys, head_size)
    out = rows * head_size * kv_heads * _element_bytes(dtype)
    kv = np.multiply(keys, head_size) * kv_heads * _element_bytes(kv_dtype or dtype)
    flop, moved = 4.0 * needed * np.multiply(heads, head_size), 2 * (out + kv)
    row_bytes = np.multiply(head_size, _element_bytes(kv_dtype or dtype)) * np.minimum(keys, engine.array_rows)
    busy = _attention_lanes(where, rows * kv_heads, keys * share, head_size, dtype, exponential) | {
        "tensor": where.tensor_s(busy_cycles * work),
        "load": where.dma_s(moved - out, row_bytes, where.stack.load_share),
        "store": where.dma_s(out, row_bytes, where.stack.store_share),
        "fixed": where.fixed_s(),
    }
    bounds = {
        "roofline_s": where.roofline_s(dtype, flop, moved),
        "tile_s": np.maximum(least * work / engine.clock_hz, where.floor_s(moved)),
    }
    columns = {"hbm_read_bytes": moved - out, "hbm_write_bytes": out, "queries": queries, "keys": keys}
    return finish(
        AttentionTime, where, "attention", dtype, busy, **bounds, **columns, flop=flop, heads=heads, head_size=head_size
    )


def _attention_cycles(where: Device, array: Array, transpose: str, rows, keys, head_size) -> tuple[NDArray, NDArray]:
    """TensorE cycles of one KV head with all tiles computed: with overhead and transposes, and without."""
    scores, least_scores = array.cheapest(rows, keys, head_size)
    values, least_values = array.cheapest(rows, head_size, keys)
    busy, _ = _turned(replace(where, lnc=1), array, transpose, keys, rows, scores + values)
    return busy, least_scores + least_values


def _attention_lanes(where: Device, rows, keys, head_size, dtype: str, exponential: str | None) -> dict[str, NDArray]:
    """Busy times of VectorE and ScalarE: row maximum, exponential, copies, rescaled accumulator."""
    updates = np.multiply(head_size, np.ceil(np.divide(keys, where.core.tensor.max_moving_cols)))
    busy = {
        "vector": where.lanes_s("vector", rows, keys, _passes("attention", "vector", "scores"), "fp32")
        + where.lanes_s("vector", rows, updates, _passes("attention", "vector", "outputs"), "fp32"),
        "scalar": where.lanes_s("scalar", rows, keys, _passes("attention", "scalar", "scores"), dtype),
    }
    engine, per_cycle = _exponential(where, exponential)
    return busy | {engine: busy[engine] + where.lanes_s(engine, rows, keys, 1, dtype, per_cycle)}


def operators() -> list[str]:
    """Operators that `elementwise` knows.

    Examples
    --------
    >>> "softmax" in operators()
    True
    """
    return sorted(f.entity.removeprefix("op-") for f in load.facts_rows().values() if f.quantity == "hbm_reads")


def elementwise(
    chip: str | Chip,
    op: str,
    rows: Numeric,
    columns: Numeric,
    dtype: str = "bf16",
    *,
    hbm: Numeric = 1.0,
    exponential: str | None = None,
    stack: str | KernelStack = "stack-nki",
    lnc: int | None = 1,
    collective_bytes_per_s: Numeric = 0.0,
    overlap: Mapping[str, float] | None = None,
) -> ElementwiseTime:
    """Time of a norm, softmax, activation, RoPE, quantisation, residual add or copy of a rows x columns matrix.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores. [-]
    op : str
        An operator of `operators()`; its passes by engine are rows of `data/`. [-]
    rows : numeric
        Rows, one a partition. [-]
    columns : numeric
        Elements of a row. [-]
    dtype : str
        Dtype in SBUF and HBM. [-]
    hbm : numeric
        1 where operands come from HBM and go back, 0 where the operator is fused with its neighbours. [-]
    exponential : str, optional
        Engine of the exponential, as in `attention`. [-]
    stack : str or KernelStack
        How the kernel is written. [-]
    lnc : int, optional
        Physical cores that share the rows. [-]
    collective_bytes_per_s : numeric
        What collectives move through the same DMA engines meanwhile. [B/s]
    overlap : mapping, optional
        Overlap by pair, as in `matmul`. [-]

    Returns
    -------
    time : ElementwiseTime
        Times by engine, bounds, the binding engine and what to change.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tm.kernel.elementwise("trainium3", "rmsnorm", 4096, 8192).bound
    'DMA'
    """
    require_numbers(1, rows=rows, columns=columns)
    _one_of("op", op, operators())
    where = device(chip, stack, lnc, "one", collective_bytes_per_s, overlap)
    widths = {"vector": dtype, "scalar": "other", "gpsimd": dtype}  # ScalarE's wide mode copies and scales only
    busy = {e: where.lanes_s(e, rows, columns, _passes(op, e), width) for e, width in widths.items()}
    if exponentials := _passes(op, "exponential"):
        engine, per_cycle = _exponential(where, exponential)
        busy[engine] = busy[engine] + where.lanes_s(engine, rows, columns, exponentials, dtype, per_cycle)
    row_bytes = np.multiply(columns, _element_bytes(dtype))
    operand = rows * row_bytes * hbm
    read, written = operand * load.value(f"op-{op}", "hbm_reads"), operand * load.value(f"op-{op}", "hbm_writes")
    busy |= {
        "load": where.dma_s(read, row_bytes, where.stack.load_share),
        "store": where.dma_s(written, row_bytes, where.stack.store_share),
        "fixed": where.fixed_s(),
    }
    floor = where.floor_s(read + written)
    moved = {"flop": 0.0 * operand, "hbm_read_bytes": read, "hbm_write_bytes": written}
    return finish(
        ElementwiseTime, where, op, dtype, busy, roofline_s=floor, tile_s=floor, **moved, rows=rows, columns=columns
    )


def dma(
    chip: str | Chip,
    moved_bytes: Numeric,
    row_bytes: Numeric,
    *,
    transfers: Numeric = 1,
    engines: Numeric | None = None,
    queued: Numeric = 1.0,
    stack: str | KernelStack = "stack-nki",
    lnc: int | None = 1,
    collective_bytes_per_s: Numeric = 0.0,
) -> TransferTime:
    """Time to move bytes between HBM and SBUF.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores. [-]
    moved_bytes : numeric
        Bytes altogether. [B]
    row_bytes : numeric
        Contiguous bytes that go to one partition. [B]
    transfers : numeric
        Pieces, each started by its own semaphore; 0 for the bare stream. [-]
    engines : numeric, optional
        DMA engines in use; eight partitions share one. Default: all of the core. [-]
    queued : numeric
        1 where starts hide behind the stream before, 0 where each piece waits for the one before. [-]
    stack : str or KernelStack
        How the kernel is written. [-]
    lnc : int, optional
        Physical cores whose engines work. [-]
    collective_bytes_per_s : numeric
        What collectives move through the same engines meanwhile. [B/s]

    Returns
    -------
    time : TransferTime
        Time with one start (`queued` = 1) or all of them.

    Examples
    --------
    >>> import trnmodel as tm
    >>> bool(tm.kernel.dma("trainium2", 2**20, 128).time_s > tm.kernel.dma("trainium2", 2**20, 8192).time_s)
    True
    """
    require_numbers(0, moved_bytes=moved_bytes, row_bytes=row_bytes, transfers=transfers)
    where = device(chip, stack, lnc, "one", collective_bytes_per_s, None)
    core = where.core
    used = np.asarray(core.dma_engines if engines is None else engines)
    alone = memory.dma_share(row_bytes, load.value("neuron-dma", "dma_linear_bytes")) * core.dma_engine_bytes_per_s
    streams = memory.transfer_s(moved_bytes, alone * used * where.lnc)
    busy = np.maximum(streams, where.dma_s(moved_bytes, row_bytes, where.stack.load_share))
    waits = queued * np.minimum(transfers, 1.0) + np.subtract(1.0, queued) * transfers
    floor = where.floor_s(moved_bytes)
    moved = {"flop": 0.0 * floor, "hbm_read_bytes": moved_bytes, "hbm_write_bytes": 0.0 * floor}
    asked = {"moved_bytes": moved_bytes, "row_bytes": row_bytes, "transfers": transfers}
    parts = {"load": busy, "fixed": waits * core.dma_start_s}
    return finish(TransferTime, where, "dma", "-", parts, roofline_s=floor, tile_s=floor, **moved, **asked)


def host(moved_bytes: Numeric, stage_bytes_per_s: Sequence[Numeric], overlap: Numeric = 1.0) -> NDArray:
    """Time to load weights from storage, or to write a checkpoint, through stages such as NVMe or ENA, host and PCIe.

    Parameters
    ----------
    moved_bytes : numeric
        Bytes. [B]
    stage_bytes_per_s : sequence of numeric
        Bandwidth of each stage, shared by all that use it. [B/s]
    overlap : numeric
        1 where stages stream at the same time, 0 where each waits for the one before. [-]

    Returns
    -------
    time_s : numeric
        Time. [s]

    Examples
    --------
    >>> import trnmodel as tm
    >>> float(tm.kernel.host(140e9, [7e9, 16e9]))
    20.0
    """
    require_numbers(0, moved_bytes=moved_bytes)
    stages = np.stack(np.broadcast_arrays(*stage_bytes_per_s), axis=-1)
    require_numbers(0, above=True, stage_bytes_per_s=stages)
    return memory.staged_s(moved_bytes, stages, overlap)[()]
