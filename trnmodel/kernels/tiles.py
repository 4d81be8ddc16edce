"""Matrix products on one logical NeuronCore: tiles, traffic with blocks in SBUF, transposes, dequantisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, chosen, refuse, together
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.declared import CHIP, Checked, Integer, Named, Numbers, Word, declare
from trnmodel.formulas import memory, neuroncore
from trnmodel.kernels.engines import OVERLAP, Array, Device, KernelStack, KernelTime, Numeric, device, finish, operator

TRANSPOSE = ("none", "tensor", "background", "dma")
GATHER = ("none", "dereference", "rows", "permute")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MatmulTime(KernelTime):
    """A matrix product of `m` x `k` by `k` x `n`, `groups` times."""

    m: NDArray
    n: NDArray
    k: NDArray
    groups: NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExpertsTime(KernelTime):
    """A layer of `experts` gated experts, each of which takes `tokens_per_expert` tokens."""

    tokens_per_expert: NDArray
    hidden_size: NDArray
    intermediate_size: NDArray
    experts: NDArray


@dataclass(frozen=True, slots=True)
class _Product:
    """A product on a device: busy times of its engines, FLOP, the cycles of its tiles alone, and its HBM traffic."""

    busy: dict[str, NDArray]
    flop: NDArray
    tile_cycles: NDArray
    least_bytes: NDArray
    read: NDArray
    written: NDArray


@dataclass(frozen=True, slots=True)
class _Traffic:
    """HBM traffic of a product: bytes, the least that they could be, and busy times of the DMA engines."""

    read: NDArray
    written: NDArray
    least: NDArray
    busy: dict[str, NDArray]


def _blocks(
    where: Device, m: NDArray, n: NDArray, smaller_bytes: NDArray, rows: NDArray | None, columns: NDArray | None
) -> tuple:
    """Sides of the output block: as asked for, else the whole product where SBUF holds an operand, else a square."""
    if rows is not None:
        return rows, columns
    sbuf, tile = where.lnc * where.core.sbuf_bytes, where.core.tensor.max_stationary_cols
    side = memory.output_block_side(sbuf, load.dtypes()["fp32"], where.stack.sbuf_block_share, tile)
    height = np.where(np.less(n, side), side**2 / np.minimum(n, side), np.minimum(m, side))
    fits = np.less_equal(smaller_bytes, sbuf * where.stack.sbuf_block_share)
    return np.where(fits, m, height), np.where(fits, n, side**2 / height)


def _gather_share(where: Device, gather: str, row_bytes: NDArray) -> NDArray | float:
    """Share of the DMA rate at which token rows are found.

    "none": they lie beside each other. "dereference": the engines index them where they lie. "rows" and "permute": DMA
    fetches each token's row; "permute" writes them sorted to HBM first and reads them back.
    """
    if gather == "dereference" and not np.all(where.core.indirect_access):
        refuse("gather", gather, f"{where.core.id} has no indirect access; use 'rows' or 'permute'")
    if gather in ("none", "dereference"):
        return 1.0
    return memory.dma_share(row_bytes, where.core.dma_linear_bytes)


def _traffic(
    where: Device,
    m: NDArray,
    n: NDArray,
    k: NDArray,
    groups: NDArray,
    stored: tuple,
    gather: str,
    blocks: tuple,
    keep: float,
) -> _Traffic:
    """Traffic with blocks in SBUF; `keep` is the share of the DMA rate that a transpose on the way leaves."""
    left_size, weight_size, out_size = stored
    choice("gather", gather, GATHER)
    left, out, weights = np.multiply(m, k) * left_size, np.multiply(m, n) * out_size, np.multiply(k, n) * weight_size
    left_row, weight_row, out_row = np.multiply(k, left_size), np.multiply(n, weight_size), np.multiply(n, out_size)
    passes = 2.0 if gather == "permute" else 1.0
    block = _blocks(where, m, n, np.minimum(left, weights), *blocks)
    left_again = memory.blocked_read_bytes(m, n, k, left_size, 0.0, *block) - left
    weights_again = memory.blocked_read_bytes(m, n, k, 0.0, weight_size, *block) - weights
    gathered, stack_ = _gather_share(where, gather, left_row), where.stack
    sorted_ = left * (passes - 1.0)

    def dma(part: NDArray, row: NDArray, share: NDArray | float) -> NDArray:
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


def turned(where: Device, array: Array, transpose: str, rows: Numeric, columns: Numeric, cycles: NDArray) -> tuple:
    """TensorE cycles with an operand's transpose, and the share of the DMA rate that loads keep."""
    if choice("transpose", transpose, TRANSPOSE) == "none":
        return cycles, 1.0
    if transpose == "dma":
        if "hbm-sbuf" not in where.core.dma_transpose_share:
            refuse("transpose", transpose, f"no dma_transpose_share[hbm-sbuf] is known of {where.core.id}")
        return cycles, where.core.dma_transpose_share["hbm-sbuf"]
    engine, height = array.engine, np.ceil(np.divide(rows, where.lnc))
    tile = (engine.max_stationary_cols, engine.min_initiation_cycle, array.cost_ratio)
    extra = neuroncore.transpose_cycles(height, columns, *tile)
    if transpose == "tensor":
        return cycles + extra, 1.0
    if not np.all(where.core.background_transpose):
        refuse("transpose", transpose, f"{where.core.id} has none; use 'tensor' or 'dma'")
    return np.maximum(cycles, extra), 1.0


def _dequantise_s(where: Device, k: Numeric, n: Numeric, weight_dtype: str, dtype: str) -> NDArray:
    """VectorE time to turn stored weights into the compute dtype where TensorE does not take them as they are."""
    if weight_dtype in (dtype, *where.core.native_weight_dtypes.get(dtype, ())):
        return np.asarray(0.0)
    passes = chosen("weight_dtype", weight_dtype, operator("dequantise").vector_passes)
    return where.lanes_s("vector", k, n, passes, dtype)


def _evict_s(where: Device, m: Numeric, n: Numeric) -> NDArray:
    """VectorE time to copy the product from PSUM to SBUF, its longer side along the partitions if that is cheaper."""
    return np.minimum(where.lanes_s("vector", m, n, 1, "fp32"), where.lanes_s("vector", n, m, 1, "fp32"))


def _waits(where: Device, array: Array, m: Numeric, n: Numeric, k: Numeric, buffering: str) -> Numeric:
    """Return how many waits for a semaphore nothing hides."""
    moving, count = array.engine.max_moving_cols, neuroncore.tile_count
    tiles = np.minimum(*(count(a, array.columns) * count(b, moving) for a, b in ((m, n), (n, m)))) / where.lnc
    waits = {"double": 0.0, "tile": tiles, "none": tiles * count(k, array.rows)}
    return chosen("buffering", buffering, waits)


@declare(
    chip=CHIP,
    m=Numbers(1),
    n=Numbers(1),
    k=Numbers(1),
    dtype=Checked("a dtype that TensorE has a peak for", {"type": "string"}),
    stack=Named("the way in which a kernel is written"),
    lnc=Integer(),
    busy_cores=Numbers(1),
    groups=Numbers(1),
    weight_dtype=Word(load.dtypes),
    output_dtype=Word(load.dtypes),
    compression=Numbers(1),
    split=Numbers(1),
    transpose=Word(TRANSPOSE),
    gather=Word(GATHER),
    buffering=Checked("double, tile or none", {"type": "string"}),
    block_rows=Numbers(1),
    block_columns=Numbers(1),
    collective_bytes_per_s=Numbers(),
    overlap=OVERLAP,
)
def matmul(
    chip: str | Chip,
    m: Numeric,
    n: Numeric,
    k: Numeric,
    dtype: str = "bf16",
    *,
    stack: str | KernelStack = "stack-nki",
    lnc: int | None = 1,
    busy_cores: Numeric | None = None,
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
    busy_cores : numeric, optional
        Physical cores of the chip at work, those of this kernel among them. Default: those of this kernel alone. [-]
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
        Overlap with TensorE by pair, from 0 to 1: "load", "store", "vector", "scalar", "gpsimd", "evict". [-]

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
    sizes: dict[str, Any] = {"m": m, "n": n, "k": k, "groups": groups, "compression": compression, "split": split}
    blocks = _block_sides(block_rows, block_columns)
    where = device(chip, stack, lnc, busy_cores, collective_bytes_per_s, overlap)
    together(**sizes, **blocks, **where.shapes)
    m, n, k, groups, compression, _ = sizes.values()
    array = where.array(dtype, compression, split)
    storage = (weight_dtype, output_dtype)
    one = _product(where, array, m, n, k, groups, dtype, storage, compression, transpose, gather, blocks)
    waits = groups * np.asarray(_waits(where, array, m, n, k, buffering))
    busy = one.busy | {"fixed": where.fixed_s(waits) + where.core.fill_s}
    traffic = {"flop": one.flop, "hbm_read_bytes": one.read, "hbm_write_bytes": one.written}
    bounds = _bounds(where, array, dtype, [one], compression)
    return finish(MatmulTime, where, "matmul", dtype, busy, **bounds, **traffic, m=m, n=n, k=k, groups=groups)


@declare(
    chip=CHIP,
    tokens_per_expert=Numbers(1),
    hidden_size=Numbers(1),
    intermediate_size=Numbers(1),
    experts=Numbers(1),
    dtype=Checked("a dtype that TensorE has a peak for", {"type": "string"}),
    stack=Named("the way in which a kernel is written"),
    lnc=Integer(),
    busy_cores=Numbers(1),
    weight_dtype=Word(load.dtypes),
    collective_bytes_per_s=Numbers(),
    overlap=OVERLAP,
)
def experts(
    chip: str | Chip,
    tokens_per_expert: Numeric,
    hidden_size: Numeric,
    intermediate_size: Numeric,
    experts: Numeric = 1,
    dtype: str = "bf16",
    *,
    stack: str | KernelStack = "stack-nki",
    lnc: int | None = 1,
    busy_cores: Numeric | None = None,
    weight_dtype: str | None = None,
    collective_bytes_per_s: Numeric = 0.0,
    overlap: Mapping[str, float] | None = None,
) -> ExpertsTime:
    """Time of a layer of gated experts on one logical NeuronCore: gate and up, activation, down.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores. [-]
    tokens_per_expert : numeric
        Tokens that each expert takes; all of them where every expert runs on every token. [-]
    hidden_size : numeric
        Width of the layer's inputs and outputs. [-]
    intermediate_size : numeric
        Width between the products, on this logical core. [-]
    experts : numeric
        Experts of this logical core. [-]
    dtype : str
        Compute dtype, one that TensorE has a printed peak for. [-]
    stack : str or KernelStack
        How the kernel is written. [-]
    lnc : int, optional
        Physical cores that share the layer; None takes the chip's default. [-]
    busy_cores : numeric, optional
        Physical cores of the chip at work, those of this kernel among them. Default: those of this kernel alone. [-]
    weight_dtype : str, optional
        How weights lie in HBM, as in `matmul`. Default: the compute dtype. [-]
    collective_bytes_per_s : numeric
        What collectives move through the same DMA engines meanwhile. [B/s]
    overlap : mapping, optional
        Overlap with TensorE by pair, as in `matmul`. [-]

    Returns
    -------
    time : ExpertsTime
        Times by engine, bounds, the binding engine and what to change.

    Raises
    ------
    ValueError
        Unknown names, sizes below 1, a dtype that the core has not.

    Notes
    -----
    Assumes: the gate and the other projection are one product of twice the width; what lies between the products goes
    to HBM and back; one launch. Router and exchange of tokens are no part of it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> alone, beside = (tm.kernel.experts("trainium2", 4096, 4096, 14336, 8, lnc=2, busy_cores=n) for n in (2, 8))
    >>> alone.bound, bool(alone.time_s < beside.time_s)
    ('TensorE', True)
    """
    sizes = {
        "tokens_per_expert": tokens_per_expert,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "experts": experts,
    }
    where = device(chip, stack, lnc, busy_cores, collective_bytes_per_s, overlap)
    together(**sizes, **where.shapes)
    array, storage = where.array(dtype), (weight_dtype, None)
    shapes = [(2.0 * np.asarray(intermediate_size), hidden_size), (hidden_size, intermediate_size)]
    alike: tuple[Any, ...] = (experts, dtype, storage, 1.0, "none", "none", {})
    products = [_product(where, array, tokens_per_expert, n, k, *alike) for n, k in shapes]
    busy = {name: sum(one.busy[name] for one in products) for name in products[0].busy}
    gate = operator("swiglu")
    for engine, passes in (("vector", gate.vector_passes[""]), ("scalar", gate.scalar_passes[""])):
        width = dtype if engine == "vector" else "other"  # ScalarE's wide mode copies and scales only
        one_s = where.lanes_s(engine, tokens_per_expert, intermediate_size, passes, width)
        busy[engine] = busy.get(engine, 0.0) + experts * one_s
    busy["fixed"] = where.fixed_s() + where.core.fill_s
    traffic = {
        "flop": sum(one.flop for one in products),
        "hbm_read_bytes": sum(one.read for one in products),
        "hbm_write_bytes": sum(one.written for one in products),
    }
    bounds = _bounds(where, array, dtype, products)
    return finish(ExpertsTime, where, "experts", dtype, busy, **bounds, **traffic, **sizes)


def _product(
    where: Device,
    array: Array,
    m: Numeric,
    n: Numeric,
    k: Numeric,
    groups: Numeric,
    dtype: str,
    storage: tuple[str | None, str | None],
    compression: Numeric,
    transpose: str,
    gather: str,
    blocks: Mapping[str, NDArray],
) -> _Product:
    """Return the work of a product whose weights and result are stored as `storage` says, None as by default."""
    weight_dtype = dtype if storage[0] is None else storage[0]
    output_dtype = ("fp32" if dtype == "fp32" else "bf16") if storage[1] is None else storage[1]
    stored = {"dtype": dtype, "weight_dtype": weight_dtype, "output_dtype": output_dtype}
    left_size, weight_size, out_size = (chosen(name, dtype_, load.dtypes()) for name, dtype_ in stored.items())
    element_bytes = (left_size, weight_size / compression, out_size)
    cycles, least = array.cheapest(m, n, k, where.lnc)
    cycles, keep = turned(where, array, transpose, m, k, cycles)
    moved = _traffic(where, m, n, k, groups, element_bytes, gather, tuple(blocks.values()) or (None, None), keep)
    flop = 2.0 * np.multiply(m, n) * k * groups
    busy = moved.busy | {
        "tensor": where.tensor_s(cycles * groups),
        "vector": groups * _dequantise_s(where, k, n, weight_dtype, dtype),
        "evict": groups * _evict_s(where, m, n),
    }
    return _Product(busy, flop, groups * least, moved.least, moved.read, moved.written)


def _bounds(
    where: Device, array: Array, dtype: str, products: list[_Product], compression: Numeric = 1.0
) -> dict[str, NDArray]:
    """Return what peak and HBM, and what whole tiles and HBM, allow for products one after another."""
    flop = sum(one.flop for one in products)
    least, cycles = sum(one.least_bytes for one in products), sum(one.tile_cycles for one in products)
    return {
        "roofline_s": where.roofline_s(dtype, flop, least, compression),
        "tile_s": np.maximum(cycles / array.engine.clock_hz, where.floor_s(least)),
    }


def _block_sides(block_rows: Numeric | None, block_columns: Numeric | None) -> dict[str, NDArray]:
    """Both sides of an output block, or neither."""
    sides = {"block_rows": block_rows, "block_columns": block_columns}
    absent = [name for name, side in sides.items() if side is None]
    if len(absent) == 1:
        other = next(name for name in sides if name != absent[0])
        refuse(absent[0], None, f"must be set where {other} is, the other side of the block")
    return {} if absent else {name: np.asarray(side) for name, side in sides.items()}


@declare(
    chip=CHIP,
    dtype=Checked("a dtype that TensorE has a peak for", {"type": "string"}),
    engine=Word(("vector", "scalar")),
)
def smallest_contraction(chip: str | Chip, dtype: str = "bf16", engine: str = "vector") -> NDArray:
    """Contraction from which TensorE, not the copy of results out of PSUM, bounds a product of full tiles.

    Parameters
    ----------
    chip : str or Chip
        Id, name or object. [-]
    dtype : str
        Dtype of the product. [-]
    engine : str
        "vector" or "scalar", which copies results out of PSUM. [-]

    Returns
    -------
    contraction : numeric
        Length of the contraction, k. [-]

    Raises
    ------
    ValueError
        An unknown chip, dtype or engine, or a chip whose figures of the engine are not published.

    Examples
    --------
    >>> float(smallest_contraction("trainium1"))
    384.0
    """
    where = device(chip, "stack-nki", 1, None, 0.0, None)
    array, clock_hz = where.array(dtype), getattr(where.core, engine).clock_hz
    moving = array.engine.max_moving_cols
    copy_cycles = where.lanes_s(engine, array.columns, moving, 1, "fp32") * clock_hz
    instruction = moving + array.overhead_cycle
    contraction = neuroncore.hiding_contraction(copy_cycles, clock_hz, instruction, array.engine.clock_hz, array.rows)
    if np.any(np.isnan(contraction)):
        refuse("chip", where.chip.id, f"the figures of its {engine} engine are not published")
    return contraction[()]
