"""A logical NeuronCore with its software stack: busy times of its engines, and how they add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, chosen, instance, numbers, refuse, share
from trnmodel.bands import plain_basis
from trnmodel.catalog import load
from trnmodel.catalog.specs import NAN, Chip, Core, Engine, Spec, mapping_field, published, shapes
from trnmodel.declared import Checked, Named, Number, declare
from trnmodel.formulas import memory, neuroncore
from trnmodel.result import Basis, Grounded, blank, reason_mask, text_of
from trnmodel.units import Numeric

PAIRS = ("load", "store", "vector", "scalar", "gpsimd", "evict")
OVERLAP = Checked(
    "a mapping from pairs of resources to shares from 0 to 1",
    {"type": "object", "properties": dict.fromkeys(PAIRS, Number(0, 1).schema()), "additionalProperties": False},
)


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelStack(Spec):
    """What a style of writing kernels makes of the chip: fixed costs, shares of bandwidth, overlap with TensorE.

    `overlap_load` is the overlap assumed for the pair TensorE and DMA in, `overlap_store` for TensorE and DMA out,
    `overlap_vector`, `overlap_scalar` and `overlap_gpsimd` for TensorE and that engine, `overlap_evict` for TensorE and
    the copy of its products out of PSUM; 1 is side by side, 0 in a row. `overlap_load` concerns the first load of each
    operand; blocks that are read again run beside TensorE in any case.
    """

    launch_s: float = NAN
    load_share: float = NAN
    store_share: float = NAN
    overlap_load: float = NAN
    overlap_store: float = NAN
    overlap_vector: float = NAN
    overlap_scalar: float = NAN
    overlap_gpsimd: float = NAN
    overlap_evict: float = NAN
    sbuf_block_share: float = NAN


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator(Spec):
    """What an operator asks of the engines: passes over its elements by engine, and of HBM: reads and writes of them.

    A mapping's key tells passes apart: the stored dtype that is dequantised, scores and outputs of attention.
    """

    vector_passes: Mapping[str, float] = mapping_field()
    scalar_passes: Mapping[str, float] = mapping_field()
    gpsimd_passes: Mapping[str, float] = mapping_field()
    exponential_passes: Mapping[str, float] = mapping_field()
    hbm_reads: float = 0.0
    hbm_writes: float = 0.0


@cache
def _operators() -> dict[str, Operator]:
    listed = sorted(entity for entity in load.entities() if entity.startswith("op-"))
    return {op.removeprefix("op-"): Operator(**load.assemble(Operator, op)) for op in listed}


def operator(op: str) -> Operator:
    """Return an operator of `data/` by its name.

    Parameters
    ----------
    op : str
        Name of the operator, such as "rmsnorm". [-]

    Returns
    -------
    operator : Operator
        Passes of each engine over an element, and reads and writes of HBM. [-]

    Examples
    --------
    >>> dict(operator("rmsnorm").vector_passes), operator("quantise").hbm_writes
    ({'': 3.0}, 0.5)
    """
    return chosen("op", op, _operators())


def operators() -> list[str]:
    """Operators that read their operand from HBM: those that `tm.kernel.elementwise` times.

    Returns
    -------
    names : list of str
        Names that `op` may be. [-]

    Examples
    --------
    >>> "softmax" in operators()
    True
    """
    return [name for name, op in _operators().items() if op.hbm_reads]


@cache
def _stack(name: str) -> KernelStack:
    return KernelStack(**load.assemble(KernelStack, name))


def stacks() -> list[str]:
    """Ids of the stacks that say how kernels are written; the others are `tm.efficiencies`'."""
    listed = [entity.id for entity in load.entities().values() if entity.kind == "stack"]
    return [name for name in listed if _stack(name).sources]


@declare(name=Named("the way in which a kernel is written"), changes=Checked("values of the stack, by name"))
def stack(name: str | KernelStack = "stack-nki", **changes: Any) -> KernelStack:
    """Return a kernel stack by id, with any of its values replaced; a `KernelStack` is returned as it is.

    Parameters
    ----------
    name : str or KernelStack
        Id of the way in which kernels are written. [-]
    **changes : float
        Values in place of those of the stack, by their names. [-]

    Returns
    -------
    stack : KernelStack
        Overlaps, overheads and rates of kernels that are written so. [-]

    Raises
    ------
    ValueError
        An unknown stack, one that says nothing about kernels, or a change of no value of it.

    Examples
    --------
    >>> stack("stack-nki").overlap_load, stack("stack-nki", overlap_load=0.0).overlap_load
    (1.0, 0.0)
    """
    request = instance("stack", name, str | KernelStack, "an id or a KernelStack")
    result = request if isinstance(request, KernelStack) else _stack(load.resolve("stack", request))
    if isinstance(request, str) and not result.sources:
        refuse("stack", name, f"says nothing about kernels; allowed are {', '.join(stacks())}")
    values = {spec_field.name for spec_field in fields(KernelStack)} - {spec_field.name for spec_field in fields(Spec)}
    for change in changes:
        choice("change", change, values)
    return replace(result, **changes) if changes else result


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KernelTime(Grounded):
    """Time of a kernel on one logical NeuronCore.

    `lower_s` has all engines side by side, `upper_s` all in a row, `time_s` the stack's overlap; each holds `fixed_s`
    (launch, first load, last store, exposed synchronisation). `roofline_s` is what printed peak and HBM bandwidth
    allow, `tile_s` what whole instructions and HBM allow. `busy_cores` physical cores of the chip work at once: they
    share its HBM bandwidth, and beyond one logical core each of them multiplies more slowly than alone.
    """

    REASONS: ClassVar[tuple[str, ...]] = (
        "collectives take all of the DMA bandwidth",
        "a figure of the chip that this needs is not published",
    )
    BOUNDS: ClassVar[tuple[str, ...]] = ("TensorE", "VectorE", "ScalarE", "GPSIMD", "DMA", "fixed cost")
    HINTS: ClassVar[tuple[str, ...]] = (
        "TensorE: fill tiles of 128 x 128 x 512, use a narrower dtype, move transposes to DMA",
        "VectorE: raise the contraction, fuse element-wise work, move copies to ScalarE, keep BF16 in SBUF",
        "ScalarE: fuse the activation with its scale and bias, use VectorE's exponential where there is one",
        "GPSIMD: move the work to VectorE or ScalarE",
        "DMA: reuse more from SBUF (larger blocks, fusion), load rows of 4 KiB and more, store weights in fewer bits",
        "fixed cost: batch more work into a call, buffer twice so that no engine waits for a semaphore",
    )

    op: str
    chip: Chip
    dtype: str
    stack: str
    lnc: int
    busy_cores: NDArray
    flop: NDArray
    hbm_read_bytes: NDArray
    hbm_write_bytes: NDArray
    time_s: NDArray
    lower_s: NDArray
    upper_s: NDArray
    roofline_s: NDArray
    tile_s: NDArray
    tensor_s: NDArray
    vector_s: NDArray
    scalar_s: NDArray
    gpsimd_s: NDArray
    load_s: NDArray
    store_s: NDArray
    fixed_s: NDArray

    def judge(self) -> Basis:
        """Return what the time rests on: kernels of the chip that were written the same way."""
        points = {"ranks": self.lnc, "size": self.hbm_read_bytes + self.hbm_write_bytes}
        return plain_basis("kernel", self.chip.id, self.stack, points)

    @property
    def _binding(self) -> NDArray:
        parts = (self.tensor_s, self.vector_s, self.scalar_s, self.gpsimd_s, self.load_s + self.store_s, self.fixed_s)
        return 2 ** np.argmax(np.stack(np.broadcast_arrays(*parts)), axis=0)

    @property
    def bound(self) -> NDArray | str:
        """The engine that is busy longest, or the fixed cost where that is longer."""
        return text_of(self._binding, self.BOUNDS)

    @property
    def hint(self) -> NDArray | str:
        """What to change first."""
        return text_of(self._binding, self.HINTS)

    @property
    def flop_per_s(self) -> NDArray:
        """Rate that the kernel reaches [FLOP/s]."""
        return self.flop / np.where(np.equal(self.time_s, 0), 1.0, self.time_s)[()]


@dataclass(frozen=True, slots=True)
class Array:
    """TensorE as one dtype sees it."""

    engine: Engine
    rows: NDArray
    columns: NDArray
    cost_ratio: float
    overhead_cycle: NDArray | float

    def work(self, stationary: Numeric, moving: Numeric, contraction: Numeric) -> tuple[NDArray, NDArray]:
        """Cycles and instructions of a product with its operands in these places."""
        tile = (self.rows, self.columns, self.engine.max_moving_cols)
        cycles = neuroncore.matmul_cycles(
            stationary, moving, contraction, *tile, self.engine.min_initiation_cycle, self.cost_ratio
        )
        return cycles, self.cost_ratio * neuroncore.matmul_instructions(stationary, moving, contraction, *tile)

    def cheapest(self, m: Numeric, n: Numeric, k: Numeric, lnc: int = 1) -> tuple[NDArray, NDArray]:
        """Cycles with overhead and without, the better operand stationary, the better dimension cut by core."""
        cuts = [(m, n)] if lnc == 1 else [(np.ceil(np.divide(m, lnc)), n), (m, np.ceil(np.divide(n, lnc)))]
        busy = least = np.asarray(np.inf)
        for a, b in cuts:
            for stationary, moving in ((a, b), (b, a)):
                cycles, instructions = self.work(stationary, moving, k)
                least = np.minimum(least, cycles)
                busy = np.minimum(busy, cycles + self.overhead_cycle * instructions)
        return busy, least


@dataclass(frozen=True, slots=True)
class Device:
    """A logical core of a chip with its stack: what every operator needs."""

    chip: Chip
    core: Core
    stack: KernelStack
    lnc: int
    busy_cores: NDArray
    collective_bytes_per_s: NDArray

    @property
    def shapes(self) -> dict[str, Numeric]:
        """Other arguments and figures that may be arrays."""
        overlaps = {f"overlap_{pair}": getattr(self.stack, f"overlap_{pair}") for pair in PAIRS}
        specs = shapes(chip=self.chip, core=self.core, stack=self.stack)
        own = {"collective_bytes_per_s": self.collective_bytes_per_s, "busy_cores": self.busy_cores}
        return {**own, **overlaps, **specs}

    @property
    def dma_bytes_per_s(self) -> NDArray:
        """Rate of all DMA engines of the logical core."""
        return np.asarray(self.lnc * self.core.dma_engines * self.core.dma_engine_bytes_per_s)

    @property
    def hbm_bytes_per_s(self) -> NDArray:
        """Printed HBM bandwidth that the logical core can draw beside the other cores at work."""
        return memory.drawn_bytes_per_s(
            self.chip.hbm_bytes_per_s, self.chip.cores, self.lnc, self.busy_cores, self.dma_bytes_per_s
        )

    @property
    def bandwidth_bytes_per_s(self) -> NDArray:
        """Bandwidth that DMA engines and HBM leave to the kernel."""
        return memory.bandwidth_left_bytes_per_s(
            self.dma_bytes_per_s, self.hbm_bytes_per_s, self.collective_bytes_per_s
        )

    @property
    def rate_share(self) -> NDArray:
        """Share of TensorE's rate that is left where cores beyond those of one logical core work."""
        alone = self.busy_cores <= max(self.lnc, self.chip.lnc_default)
        return np.where(alone, 1.0, self.chip.busy_core_share)

    def array(self, dtype: str, compression: Numeric = 1, split: Numeric = 1) -> Array:
        """Return the systolic array for a dtype; ValueError for what it cannot do."""
        engine, peaks = self.core.tensor, self.core.tensor.peak_flop_per_s
        if not isinstance(dtype, str) or dtype not in peaks:
            refuse("dtype", dtype, f"{self.core.id} multiplies in {', '.join(sorted(peaks))}")
        ratio = np.fmax(1.0, np.round(peaks[dtype] / np.asarray(peaks.get("bf16", NAN))))
        sparse = np.fmax(1.0, np.round(engine.sparse_peak_flop_per_s.get(dtype, NAN) / np.asarray(peaks[dtype])))
        compression = numbers("compression", compression, 1, float(np.min(sparse)))
        split = numbers("split", split, 1, float(np.min(ratio)))
        cost_ratio = engine.fp32_cost_ratio if dtype == "fp32" else 1.0
        rows = engine.array_rows * ratio * np.divide(compression, split)
        overhead = engine.access_overhead_cycle
        if dtype.startswith("mx"):
            overhead = published(engine.mx_access_overhead_cycle, overhead)
        return Array(engine, rows, np.multiply(engine.max_stationary_cols, split), cost_ratio, overhead)

    def tensor_s(self, cycles: Numeric) -> NDArray:
        """TensorE time of these cycles with its ramp, at the rate that other cores at work leave."""
        engine = self.core.tensor
        busy_s = np.asarray(cycles) / engine.clock_hz / self.rate_share
        ramped_s = neuroncore.ramped_s(busy_s, engine.throttle_share, engine.throttle_ramp_s)
        return np.where(np.isfinite(engine.throttle_share), ramped_s, busy_s)

    def lanes_s(
        self, engine: str, rows: Numeric, columns: Numeric, passes: Numeric, dtype: str, per_cycle: float | None = None
    ) -> NDArray:
        """Busy time of VectorE, ScalarE or GPSIMD, the rows divided over the physical cores."""
        unit, share = getattr(self.core, engine), np.ceil(np.divide(rows, self.lnc))
        width = elements_per_cycle(unit, dtype) if per_cycle is None else per_cycle
        cycles = neuroncore.lane_cycles(
            share,
            columns,
            width,
            self.core.sbuf_partitions,
            passes,
            self.core.tensor.max_moving_cols,
            published(unit.min_initiation_cycle, 0.0),
            unit.access_overhead_cycle,
        )
        return np.where(np.equal(passes, 0), 0.0, cycles / unit.clock_hz)

    def dma_s(self, moved_bytes: Numeric, row_bytes: Numeric, share: Numeric) -> NDArray:
        """Time of a stream of rows at a share of the bandwidth; NaN where collectives leave nothing."""
        rate = self.bandwidth_bytes_per_s * share * memory.dma_share(row_bytes, self.core.dma_linear_bytes)
        return memory.transfer_s(moved_bytes, np.where(rate, rate, np.nan))

    def floor_s(self, moved_bytes: Numeric) -> NDArray:
        """Time that the printed HBM bandwidth needs."""
        return np.divide(moved_bytes, self.hbm_bytes_per_s)

    def roofline_s(self, dtype: str, flop: Numeric, moved_bytes: Numeric, compression: Numeric = 1) -> NDArray:
        """Return the larger of FLOP over the printed peak and bytes over the printed bandwidth."""
        peak = np.multiply(self.core.tensor.peak_flop_per_s[dtype] * self.lnc, compression)
        return np.maximum(np.divide(flop, peak), self.floor_s(moved_bytes))

    def fixed_s(self, waits: Numeric = 0.0) -> NDArray:
        """Launch, the first load and the last store, and every wait for a semaphore that nothing hides."""
        return self.stack.launch_s + (2 + np.asarray(waits)) * self.core.dma_start_s


def elements_per_cycle(engine: Engine, dtype: str) -> float:
    """Elements over all partitions that an engine takes a cycle."""
    table = engine.elements_per_cycle
    return table.get(dtype, table.get("other", NAN))


def device(
    chip: str | Chip,
    stack_: str | KernelStack,
    lnc: int | None,
    busy_cores: Numeric | None,
    collective_bytes_per_s: Numeric,
    overlap: Mapping[str, Numeric] | None,
) -> Device:
    """Return a logical core of `lnc` physical ones; ValueError where nobody knows its NeuronCore or that LNC."""
    chip = load.chip(chip)
    if chip.core is None:
        refuse("chip", chip.id, "kernel times need a NeuronCore, which it has not")
    if chip.ratios_to:
        refuse("chip", chip.id, "nothing is announced of its NeuronCore, on which kernel times rest")
    collective_bytes_per_s = numbers("collective_bytes_per_s", collective_bytes_per_s)
    ranks = chip.logical(lnc)
    busy = np.asarray(float(ranks)) if busy_cores is None else numbers("busy_cores", busy_cores, ranks, chip.cores)
    shares = instance("overlap", {} if overlap is None else overlap, Mapping, "a mapping from pairs to shares")
    changes = {f"overlap_{choice('overlap', pair, PAIRS)}": share(f"overlap[{pair}]", shares[pair]) for pair in shares}
    where = Device(chip, chip.core, stack(stack_, **changes), ranks, busy, collective_bytes_per_s)
    if np.any(np.isnan(where.rate_share)):
        refuse("busy_cores", busy_cores, f"no busy_core_share is known of {chip.id}")
    return where


Timed = TypeVar("Timed", bound=KernelTime)
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "load", "store", "fixed", "reload", "evict")


def finish(
    result: type[Timed], where: Device, op: str, dtype: str, busy: Mapping[str, Numeric], **columns: Numeric
) -> Timed:
    """Put busy times together: both bounds, the stack's overlap, a mark on points that cannot exist."""
    parts = where.stack
    arrays = np.broadcast_arrays(*(dict.fromkeys(ENGINES, 0.0) | dict(busy)).values())
    tensor, vector, scalar, gpsimd, first, store, fixed, again, evict = arrays
    lanes, load_ = (tensor, vector + evict, scalar, gpsimd), first + again
    hidden_dma = parts.overlap_load * first + again + parts.overlap_store * store
    hidden_vector, waiting = parts.overlap_vector * vector + evict, (1.0 - parts.overlap_evict) * evict
    overlap = np.broadcast_arrays(1.0, 1.0, parts.overlap_scalar, parts.overlap_gpsimd, 1.0)
    lanes_s = np.stack(np.broadcast_arrays(tensor + waiting, hidden_vector, scalar, gpsimd, hidden_dma), axis=-1)
    side_by_side = neuroncore.overlapped_s(lanes_s, np.stack(overlap, axis=-1))
    parts_s = dict(zip(ENGINES[:7], (*lanes, load_, store, fixed), strict=True))
    times: dict[str, ArrayLike] = {
        "time_s": fixed + side_by_side + (vector + evict - hidden_vector) + (load_ + store - hidden_dma),
        "lower_s": fixed + np.max([*lanes, load_ + store], axis=0),
        "upper_s": sum(parts_s.values()),
        **{name: columns.pop(name) for name in ("roofline_s", "tile_s")},
        **{f"{name}_s": value for name, value in parts_s.items()},
    }
    choked = np.broadcast_to(np.equal(where.bandwidth_bytes_per_s, 0), fixed.shape)
    mask = reason_mask(choked, np.isnan(sum(map(np.asarray, times.values()))) & ~choked)
    plain: dict[str, Any] = {name: np.asarray(value)[()] for name, value in columns.items()}
    own: dict[str, Any] = {
        "op": op,
        "chip": where.chip,
        "dtype": dtype,
        "stack": parts.id,
        "lnc": where.lnc,
        "busy_cores": where.busy_cores[()],
    }
    return result(**own, reason_mask=mask, **(blank(mask, **times) | plain))
