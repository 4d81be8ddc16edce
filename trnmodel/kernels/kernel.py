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

from trnmodel.arguments import HUGE, TINY, choice, chosen, numbers, refuse, shown, together
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.declared import CHIP, Checked, Integer, Named, Numbers, Word, declare
from trnmodel.formulas import memory, step
from trnmodel.kernels.engines import (
    OVERLAP,
    Array,
    Device,
    KernelStack,
    KernelTime,
    Numeric,
    Operator,
    device,
    elements_per_cycle,
    finish,
    operator,
    operators,
    stack,
)
from trnmodel.kernels.tiles import TRANSPOSE, experts, matmul, smallest_contraction, turned

__all__ = [
    "attention",
    "dma",
    "elementwise",
    "experts",
    "host",
    "matmul",
    "operator",
    "operators",
    "smallest_contraction",
    "stack",
]

EXPONENTIAL = ("vector", "scalar", "fast-scalar")


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


def _exponential(where: Device, exponential: str | None) -> tuple[str, float]:
    """Engine that evaluates exponentials, and its elements a cycle over all partitions."""
    ratio = where.core.vector.exponential_ratio
    own = "scalar" if np.any(np.isnan(ratio)) else "vector"
    engine = own if exponential is None else choice("exponential", exponential, EXPONENTIAL)
    plain = elements_per_cycle(where.core.scalar, "other")
    if engine == "scalar":
        return "scalar", plain
    if own == "scalar":
        refuse("exponential", exponential, f"{where.core.id} has no fast exponential; use 'scalar'")
    return engine.removeprefix("fast-"), plain * ratio


@declare(
    chip=CHIP,
    queries=Numbers(1),
    keys=Numbers(1),
    heads=Numbers(1),
    kv_heads=Numbers(1),
    head_size=Numbers(1),
    dtype=Word(load.dtypes),
    causal=Numbers(0, 1),
    kv_dtype=Word(load.dtypes),
    exponential=Word(EXPONENTIAL),
    transpose=Word(TRANSPOSE[:3]),
    stack=Named("the way in which a kernel is written"),
    lnc=Integer(),
    busy_cores=Numbers(1),
    collective_bytes_per_s=Numbers(),
    overlap=OVERLAP,
)
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
    busy_cores: Numeric | None = None,
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
    busy_cores : numeric, optional
        Physical cores of the chip at work, those of this kernel among them. Default: those of this kernel alone. [-]
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
    sizes = _score_sizes(queries, keys, heads, heads if kv_heads is None else kv_heads, head_size, causal)
    where = device(chip, stack, lnc, busy_cores, collective_bytes_per_s, overlap)
    together(**sizes, **where.shapes)
    queries, keys, heads, kv_heads, head_size, causal = sizes.values()
    choice("transpose", transpose, TRANSPOSE[:3])
    array, engine = where.array(dtype), where.core.tensor
    rows = np.multiply(queries, heads) / np.asarray(kv_heads)  # query rows that share a KV head
    needed = step.score_elements(queries, keys, causal)
    everything = np.multiply(queries, keys)
    share = np.minimum(everything, needed + causal * np.multiply(queries, engine.max_moving_cols) / 2) / everything
    work = share * np.ceil(np.divide(kv_heads, where.lnc))
    busy_cycles, least = _attention_cycles(where, array, transpose, rows, keys, head_size)
    kv_dtype = dtype if kv_dtype is None else kv_dtype
    out_size, kv_size = chosen("dtype", dtype, load.dtypes()), chosen("kv_dtype", kv_dtype, load.dtypes())
    out = rows * head_size * kv_heads * out_size
    kv = np.multiply(keys, head_size) * kv_heads * kv_size
    flop, moved = 4.0 * needed * np.multiply(heads, head_size), 2 * (out + kv)
    row_bytes = np.multiply(head_size, kv_size) * np.minimum(keys, engine.array_rows)
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


def _score_sizes(*arguments: Numeric) -> dict[str, NDArray]:
    """Return checked sizes of attention by name; causal queries are the last keys, and groups of heads are whole."""
    names = ("queries", "keys", "heads", "kv_heads", "head_size", "causal")
    bounds = [(1, HUGE)] * 5 + [(0, 1)]
    sizes = {name: numbers(name, value, *ends) for name, value, ends in zip(names, arguments, bounds, strict=True)}
    together(**sizes)
    if np.any((sizes["causal"] > 0) & (sizes["queries"] > sizes["keys"])):
        refuse("queries", arguments[0], f"allowed are at most as many as keys={shown(arguments[1])} where causal")
    if np.any(sizes["heads"] % sizes["kv_heads"]):
        refuse("kv_heads", arguments[3], f"must divide heads={shown(arguments[2])}")
    return sizes


def _attention_cycles(
    where: Device, array: Array, transpose: str, rows: NDArray, keys: NDArray, head_size: NDArray
) -> tuple[NDArray, NDArray]:
    """TensorE cycles of one KV head with all tiles computed: with overhead and transposes, and without."""
    scores, least_scores = array.cheapest(rows, keys, head_size)
    values, least_values = array.cheapest(rows, head_size, keys)
    busy, _ = turned(replace(where, lnc=1), array, transpose, keys, rows, scores + values)
    return busy, least_scores + least_values


def _attention_lanes(
    where: Device, rows: NDArray, keys: NDArray, head_size: NDArray, dtype: str, exponential: str | None
) -> dict[str, NDArray]:
    """Busy times of VectorE and ScalarE: row maximum, exponential, copies, rescaled accumulator."""
    own = operator("attention")
    updates = np.multiply(head_size, np.ceil(np.divide(keys, where.core.tensor.max_moving_cols)))
    busy = {
        "vector": where.lanes_s("vector", rows, keys, own.vector_passes["scores"], "fp32")
        + where.lanes_s("vector", rows, updates, own.vector_passes["outputs"], "fp32"),
        "scalar": where.lanes_s("scalar", rows, keys, own.scalar_passes["scores"], dtype),
    }
    engine, per_cycle = _exponential(where, exponential)
    return busy | {engine: busy[engine] + where.lanes_s(engine, rows, keys, 1, dtype, per_cycle)}


def _passes(op: Operator, engine: str) -> Numeric:
    return getattr(op, f"{engine}_passes").get("", 0.0)


@declare(
    chip=CHIP,
    op=Checked("the name of an operator, or an Operator", {"type": "string"}),
    rows=Numbers(1),
    columns=Numbers(1),
    dtype=Word(load.dtypes),
    hbm=Numbers(0, 1),
    exponential=Word(EXPONENTIAL),
    stack=Named("the way in which a kernel is written"),
    lnc=Integer(),
    busy_cores=Numbers(1),
    collective_bytes_per_s=Numbers(),
    overlap=OVERLAP,
)
def elementwise(
    chip: str | Chip,
    op: str | Operator,
    rows: Numeric,
    columns: Numeric,
    dtype: str = "bf16",
    *,
    hbm: Numeric = 1.0,
    exponential: str | None = None,
    stack: str | KernelStack = "stack-nki",
    lnc: int | None = 1,
    busy_cores: Numeric | None = None,
    collective_bytes_per_s: Numeric = 0.0,
    overlap: Mapping[str, float] | None = None,
) -> ElementwiseTime:
    """Time of a norm, softmax, activation, RoPE, quantisation, residual add or copy of a rows x columns matrix.

    Parameters
    ----------
    chip : str or Chip
        Chip with NeuronCores. [-]
    op : str or Operator
        An operator of `operators()`, whose passes by engine are rows of `data/`, or one of your own. [-]
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
    busy_cores : numeric, optional
        Physical cores of the chip at work, those of this kernel among them. Default: those of this kernel alone. [-]
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
    own = op if isinstance(op, Operator) else operator(choice("op", op, operators()))
    element_bytes = chosen("dtype", dtype, load.dtypes())
    where = device(chip, stack, lnc, busy_cores, collective_bytes_per_s, overlap)
    together(rows=rows, columns=columns, hbm=hbm, **where.shapes)
    widths = {"vector": dtype, "scalar": "other", "gpsimd": dtype}  # ScalarE's wide mode copies and scales only
    busy = {e: where.lanes_s(e, rows, columns, _passes(own, e), width) for e, width in widths.items()}
    _exponential(where, exponential)  # refuses what the chip has not, also where the operator needs none
    if np.any(exponentials := _passes(own, "exponential")):
        engine, per_cycle = _exponential(where, exponential)
        busy[engine] = busy[engine] + where.lanes_s(engine, rows, columns, exponentials, dtype, per_cycle)
    row_bytes = np.multiply(columns, element_bytes)
    operand = rows * row_bytes * hbm
    read, written = operand * own.hbm_reads, operand * own.hbm_writes
    busy |= {
        "load": where.dma_s(read, row_bytes, where.stack.load_share),
        "store": where.dma_s(written, row_bytes, where.stack.store_share),
        "fixed": where.fixed_s(),
    }
    floor = where.floor_s(read + written)
    moved = {"flop": 0.0 * operand, "hbm_read_bytes": read, "hbm_write_bytes": written}
    return finish(
        ElementwiseTime,
        where,
        own.id.removeprefix("op-"),
        dtype,
        busy,
        roofline_s=floor,
        tile_s=floor,
        **moved,
        rows=rows,
        columns=columns,
    )


@declare(
    chip=CHIP,
    moved_bytes=Numbers(),
    row_bytes=Numbers(TINY),
    transfers=Numbers(),
    queued=Numbers(0, 1),
    engines=Checked("numbers from 1 to the DMA engines of a core", Numbers(1).schema()),
    stack=Named("the way in which a kernel is written"),
    lnc=Integer(),
    busy_cores=Numbers(1),
    collective_bytes_per_s=Numbers(),
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
    busy_cores: Numeric | None = None,
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
    busy_cores : numeric, optional
        Physical cores of the chip at work, those of this kernel among them. Default: those of this kernel alone. [-]
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
    where = device(chip, stack, lnc, busy_cores, collective_bytes_per_s, None)
    core = where.core
    most = HUGE if np.any(np.isnan(core.dma_engines)) else float(np.min(core.dma_engines))
    used = np.asarray(core.dma_engines) if engines is None else numbers("engines", engines, 1, most)
    together(
        moved_bytes=moved_bytes, row_bytes=row_bytes, transfers=transfers, queued=queued, engines=used, **where.shapes
    )
    alone = memory.dma_share(row_bytes, core.dma_linear_bytes) * core.dma_engine_bytes_per_s
    streams = memory.transfer_s(moved_bytes, alone * used * where.lnc)
    busy = np.maximum(streams, where.dma_s(moved_bytes, row_bytes, where.stack.load_share))
    waits = queued * np.minimum(transfers, 1.0) + np.subtract(1.0, queued) * transfers
    floor = where.floor_s(moved_bytes)
    moved = {"flop": 0.0 * floor, "hbm_read_bytes": moved_bytes, "hbm_write_bytes": 0.0 * floor}
    transfer = {"moved_bytes": moved_bytes, "row_bytes": row_bytes, "transfers": transfers}
    parts = {"load": busy, "fixed": waits * core.dma_start_s}
    return finish(TransferTime, where, "dma", "-", parts, roofline_s=floor, tile_s=floor, **moved, **transfer)


@declare(
    moved_bytes=Numbers(),
    stage_bytes_per_s=Checked("a list of bandwidths, above 0", {"type": "array", "minItems": 1}),
    overlap=Numbers(0, 1),
)
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
    listed = stage_bytes_per_s.tolist() if isinstance(stage_bytes_per_s, np.ndarray) else stage_bytes_per_s
    if not isinstance(listed, list | tuple) or not listed:
        refuse("stage_bytes_per_s", stage_bytes_per_s, "allowed is a list of bandwidths")
    rates = {f"stage_bytes_per_s[{i}]": numbers(f"stage_bytes_per_s[{i}]", rate, TINY) for i, rate in enumerate(listed)}
    together(moved_bytes=moved_bytes, overlap=overlap, **rates)
    return memory.staged_s(moved_bytes, np.stack(np.broadcast_arrays(*rates.values()), axis=-1), overlap)[()]
