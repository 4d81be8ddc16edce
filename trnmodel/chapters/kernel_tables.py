"""Tidy tables of kernels for charts: engines, sizes, generations, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.arguments import TINY, integers, listed, number, numbers, refuse
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.chapters.chips import neuron_chips
from trnmodel.formulas import memory
from trnmodel.kernels import kernel
from trnmodel.kernels.engines import KernelTime
from trnmodel.units import KIB, format_quantity

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

ENGINES = {
    "TensorE": "tensor_s", "VectorE": "vector_s", "ScalarE": "scalar_s", "GPSIMD": "gpsimd_s", "DMA in": "load_s",
    "DMA out": "store_s", "fixed cost": "fixed_s",
}  # fmt: skip
TIERS = {"roofline": "roofline_s", "tile bound": "tile_s", "tuned kernel": "time_s", "engines in a row": "upper_s"}


def notation(chip: str | Chip, symbols: Mapping[str, str]) -> pd.DataFrame:
    """Symbol, code name, meaning, value and source of fields of a chip's core, such as "tensor.clock_hz".

    Examples
    --------
    >>> notation("trainium2", {"tensor.clock_hz": "f"}).value.tolist()
    ['2.4 GHz']
    """
    import pandas as pd

    core, rows = neuron_chips([chip])[0].core, []
    for name, symbol in symbols.items():
        part, _, field = name.rpartition(".")
        spec = getattr(core, part) if part else core
        quantity = load.quantities()[field]
        used = [load.facts_rows()[fact] for fact in spec.sources.get(field, ())]
        value = format_quantity(getattr(spec, field), quantity.unit_si.removesuffix("1"))
        source = "; ".join(f"{fact.source}, {fact.locator}" for fact in used)
        row = {"symbol": symbol, "code name": name, "meaning": quantity.description, "value": value, "source": source}
        rows.append(row)
    return pd.DataFrame(rows)


def engine_times(answer: KernelTime) -> pd.DataFrame:
    """Busy time of each engine that one kernel uses, and its fixed cost.

    Examples
    --------
    >>> table = engine_times(kernel.matmul("trainium2", 2048, 2048, 2048))
    >>> table.engine[table.busy_s.idxmax()]
    'TensorE'
    """
    import pandas as pd

    busy = {engine: float(getattr(answer, column)) for engine, column in ENGINES.items()}
    busy = {engine: time for engine, time in busy.items() if time > 0}
    return pd.DataFrame({"engine": list(busy), "busy_s": list(busy.values())})


def by_side(chip: str | Chip, dtypes: Iterable[str], side: ArrayLike) -> pd.DataFrame:
    """Rate of square products on one core: roofline, whole tiles, a tuned kernel, and its engines in a row.

    Examples
    --------
    >>> sorted(by_side("trainium2", ["bf16"], [1024.0]).tier)
    ['engines in a row', 'roofline', 'tile bound', 'tuned kernel']
    """
    import pandas as pd

    frames, side = [], numbers("side", side, 1)
    for dtype in listed("dtypes", dtypes, str):
        answer = kernel.matmul(chip, side, side, side, dtype)
        for tier, column in TIERS.items():
            rate = answer.flop / getattr(answer, column)
            frames.append(pd.DataFrame({"side": side, "dtype": dtype, "tier": tier, "rate_flop_per_s": rate}))
    return pd.concat(frames, ignore_index=True)


def by_rows(chip: str | Chip, m: ArrayLike, n: float, k: float, dtype: str) -> pd.DataFrame:
    """Share of the tile peak that the rows of a product leave, tile by tile.

    Examples
    --------
    >>> by_rows("trainium2", [1664], 1536, 1536, "bf16").share.round(3).tolist()
    [1.0]
    """
    import pandas as pd

    answer = kernel.matmul(chip, m, n, k, dtype)
    full = kernel.matmul(chip, 16384, 16384, 16384, dtype)
    share = (answer.flop / answer.tile_s) / (full.flop / full.tile_s)
    return pd.DataFrame({"m": m, "share": share, "time_s": answer.time_s, "bound": answer.bound})


def schedules(chip: str | Chip, side: float) -> pd.DataFrame:
    """One square product under each way of buffering and of transposing.

    Examples
    --------
    >>> schedules("trainium2", 2048.0).time_s.is_monotonic_increasing
    True
    """
    import pandas as pd

    side = number("side", side, 1)
    ways = [
        ("buffered twice", {}), ("transposed on TensorE", {"transpose": "tensor"}),
        ("waits for each output tile", {"buffering": "tile"}), ("waits for each instruction", {"buffering": "none"}),
    ]  # fmt: skip
    rows = [(way, kernel.matmul(chip, side, side, side, **given)) for way, given in ways]
    return pd.DataFrame(
        {
            "way": [way for way, _ in rows],
            "time_s": [float(answer.time_s) for _, answer in rows],
            "rate_flop_per_s": [float(answer.flop_per_s) for _, answer in rows],
            "bound": [answer.bound for _, answer in rows],
        }
    )


def experts(
    chip: str | Chip, tokens: ArrayLike, n: float, k: float, n_experts: float, dtypes: Iterable[str]
) -> pd.DataFrame:
    """A layer's experts at some tokens each: time by storage of the weights.

    Examples
    --------
    >>> experts("trainium3", [1, 128], 2048, 4096, 8, ["mxfp4"]).bound.tolist()
    ['DMA', 'DMA']
    """
    import pandas as pd

    frames, tokens = [], numbers("tokens", tokens, 1)
    n_experts = number("n_experts", n_experts, 1)
    compute = "mxfp8" if "mxfp8" in neuron_chips([chip])[0].core.tensor.peak_flop_per_s else "bf16"
    for dtype in listed("dtypes", dtypes, str):
        answer = kernel.matmul(chip, tokens, n, k, compute, groups=n_experts, weight_dtype=dtype)
        columns = {"time_s": answer.time_s, "vector_s": answer.vector_s, "bound": answer.bound}
        frames.append(pd.DataFrame({"tokens_per_expert": tokens, "weights": dtype, **columns}))
    return pd.concat(frames, ignore_index=True)


def cores(chip: str | Chip, side: float, dtype: str) -> pd.DataFrame:
    """A large product on one logical core: LNC by LNC, alone and with all cores of the chip at work.

    Examples
    --------
    >>> len(cores("trainium2", 8192.0, "bf16"))
    4
    """
    import pandas as pd

    chip, rows, side = load.chip(chip), [], number("side", side, 1)
    for lnc in (size for size in chip.lnc_choices if size <= 2):
        for others in ("one", "all"):
            answer = kernel.matmul(chip, side, side, side, dtype, lnc=lnc, cores=others)
            rate = float(answer.flop_per_s)
            on_chip = rate * chip.cores / lnc if others == "all" else np.nan
            rows.append({"lnc": lnc, "cores at work": others, "rate_flop_per_s": rate, "chip_flop_per_s": on_chip})
    return pd.DataFrame(rows)


def lane_operators(
    chips: Iterable[str | Chip], rows: float, columns: float, operators: Iterable[str] | None = None
) -> pd.DataFrame:
    """Norm, softmax, activation and the like, fused between neighbours, by generation.

    Examples
    --------
    >>> set(lane_operators(["trainium3"], 4096, 4096).bound) <= {"VectorE", "ScalarE", "GPSIMD", "fixed cost"}
    True
    """
    import pandas as pd

    frames = []
    for op in kernel.operators() if operators is None else listed("operators", operators, str):
        for chip in neuron_chips(chips):
            answer = kernel.elementwise(chip, op, rows, columns, hbm=0.0)
            if np.isfinite(answer.time_s):
                frames.append(
                    {"operator": op, "chip": chip.name, "time_s": float(answer.time_s), "bound": answer.bound}
                )
    return pd.DataFrame(frames)


def attention_engines(
    chips: Iterable[str | Chip], tokens: float, head_sizes: Iterable[float], heads: float
) -> pd.DataFrame:
    """Attention by generation and head size: busy time of the three engines, and the exponential read both ways.

    Examples
    --------
    >>> table = attention_engines(["trainium2", "trainium3"], 4096, [64], 8)
    >>> table.groupby("chip").bound.first().tolist()
    ['ScalarE', 'TensorE']
    """
    import pandas as pd

    rows, tokens, sizes = [], number("tokens", tokens, 1), integers("head_sizes", head_sizes)
    for chip in neuron_chips(chips):
        fast = not np.isnan(chip.core.vector.exponential_ratio)
        for choice in ("vector", "fast-scalar", "scalar") if fast else ("scalar",):
            for size in sizes:
                answer = kernel.attention(chip, tokens, tokens, heads, head_size=size, exponential=choice)
                busy = {"TensorE": answer.tensor_s, "VectorE": answer.vector_s, "ScalarE": answer.scalar_s}
                busy["DMA"] = answer.load_s + answer.store_s
                same = {"chip": chip.name, "exponential": choice, "head_size": size, "bound": answer.bound}
                same |= {"time_s": float(answer.time_s), "upper_s": float(answer.upper_s)}
                rows += [same | {"engine": engine, "busy_s": float(value)} for engine, value in busy.items()]
    return pd.DataFrame(rows)


def smallest_contractions(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """Contraction from which TensorE, not the copy out of PSUM, bounds full tiles, by copying engine.

    Examples
    --------
    >>> smallest_contractions(["trainium1"]).contraction.tolist()
    [384.0, 256.0]
    """
    import pandas as pd

    pairs = [(chip, engine) for chip in neuron_chips(chips) for engine in ("vector", "scalar")]
    names = {"vector": "VectorE", "scalar": "ScalarE"}
    found = [kernel.smallest_contraction(chip, engine=engine) for chip, engine in pairs]
    labels = {"chip": [c.name for c, _ in pairs], "copied by": [names[e] for _, e in pairs]}
    return pd.DataFrame({**labels, "contraction": found})


def dma_rows(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """DMA rate of one core over the contiguous bytes of a partition, with the documented curve beside the model's.

    Examples
    --------
    >>> table = dma_rows(["trainium2"])
    >>> bool((table.bandwidth_bytes_per_s > 0).all())
    True
    """
    import pandas as pd

    row_bytes = 2.0 ** np.arange(5, 16)
    frames = []
    for chip in neuron_chips(chips):
        moved = 2.0**30
        rate = moved / kernel.dma(chip, moved, row_bytes).time_s
        same = {"chip": chip.name, "row_bytes": row_bytes}
        frames.append(pd.DataFrame({**same, "from": "model", "bandwidth_bytes_per_s": rate}))
        share = [load.value("neuron-dma", "dma_relative_throughput", f"{row:.0f}") for row in row_bytes]
        printed = np.array(share) * rate.max()
        frames.append(pd.DataFrame({**same, "from": "AWS's figure, scaled", "bandwidth_bytes_per_s": printed}))
    return pd.concat(frames, ignore_index=True)


def pins(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """HBM bandwidth from pins, beside what is printed for the chip and for the DMA engines of its cores.

    Examples
    --------
    >>> bool(pins(["trainium3"]).error.abs().max() < 0.01)
    True
    """
    import pandas as pd

    rows = []
    for chip in neuron_chips(chips):
        width = load.value(chip.id, "hbm_stack_pins")
        product = float(memory.hbm_bytes_per_s(chip.hbm_pin_bytes_per_s, width, chip.hbm_stacks))
        engines = chip.cores * chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
        rows.append(
            {
                "chip": chip.name, "pin_bytes_per_s": chip.hbm_pin_bytes_per_s, "pins": width,
                "stacks": chip.hbm_stacks,
                "product_bytes_per_s": product, "printed_bytes_per_s": chip.hbm_bytes_per_s,
                "error": product / chip.hbm_bytes_per_s - 1, "dma_bytes_per_s": engines,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def decode_levels(chip: str | Chip, weight_bytes: float, mbu: float) -> pd.DataFrame:
    """Tokens a second and chip that weights of some bytes allow, from the pins down to what decoding reached.

    Examples
    --------
    >>> decode_levels("trainium2", 16e9, 0.58).tokens_per_s.is_monotonic_decreasing
    True
    """
    import pandas as pd

    weight_bytes, mbu = number("weight_bytes", weight_bytes, TINY), number("mbu", mbu, 0.0, 1.0)
    (chip,) = neuron_chips([chip])
    engines = chip.cores * chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
    bandwidth = {
        "HBM": chip.hbm_bytes_per_s,
        "DMA engines": min(engines, chip.hbm_bytes_per_s),
        "decoding": min(engines, chip.hbm_bytes_per_s, mbu * chip.hbm_bytes_per_s),
    }
    rates = np.array(list(bandwidth.values()))
    columns = {"level": list(bandwidth), "bandwidth_bytes_per_s": rates, "tokens_per_s": rates / weight_bytes}
    return pd.DataFrame(columns)


def blocking(chip: str | Chip, m: float, n: float, k: float, dtype: str, side: ArrayLike) -> pd.DataFrame:
    """HBM bytes, and busy times of DMA and TensorE, over the side of the output block that a product keeps in SBUF.

    Examples
    --------
    >>> blocking("trainium2", 4096, 4096, 4096, "bf16", [512.0, 4096.0]).read_bytes.div(2**20).tolist()[:2]
    [512.0, 64.0]
    """
    import pandas as pd

    side = numbers("side", side, 1)
    answer = kernel.matmul(chip, m, n, k, dtype, block_rows=side, block_columns=side)
    frames = [
        pd.DataFrame({"side": side, "engine": engine, "busy_s": busy, "read_bytes": answer.hbm_read_bytes})
        for engine, busy in (("DMA", answer.load_s + answer.store_s), ("TensorE", answer.tensor_s))
    ]
    return pd.concat(frames, ignore_index=True)


def contention(chips: Iterable[str | Chip], share: ArrayLike, n: float, k: float) -> pd.DataFrame:
    """A weight-streaming product while collectives take a share of the DMA engines.

    Examples
    --------
    >>> table = contention(["trainium2"], [0.0, 0.5], 4096, 4096)
    >>> bool(table.slowdown.iloc[1] > 1.9)
    True
    """
    import pandas as pd

    frames, share = [], np.atleast_1d(numbers("share", share, 0.0, 1.0))
    for chip in neuron_chips(chips):
        engines = chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
        left = min(engines, chip.hbm_bytes_per_s / chip.cores)
        answer = kernel.matmul(chip, 16, n, k, collective_bytes_per_s=np.multiply(share, left))
        slowdown = answer.time_s / kernel.matmul(chip, 16, n, k).time_s
        frames.append(pd.DataFrame({"chip": chip.name, "collective_share": share, "slowdown": slowdown}))
    return pd.concat(frames, ignore_index=True)


def logical_cores(chips: Iterable[str | Chip], choices: Iterable[int] = (1, 2, 8)) -> pd.DataFrame:
    """HBM capacity and bandwidth behind one logical NeuronCore.

    Examples
    --------
    >>> logical_cores(["trainium3"]).hbm_bytes.div(2**30).tolist()
    [18.0, 36.0, 144.0]
    """
    import pandas as pd

    rows = []
    wanted = integers("choices", choices)
    for chip in neuron_chips(chips):
        if max(wanted) > chip.cores:
            refuse("choices", wanted, f"{chip.id} has {chip.cores:g} cores")
        for lnc in wanted:
            size, rate = (
                float(memory.share_per_logical_core(total, chip.cores, lnc))
                for total in (chip.hbm_bytes, chip.hbm_bytes_per_s)
            )
            engines = lnc * chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
            row = {
                "chip": chip.name,
                "lnc": lnc,
                "hbm_bytes": size,
                "hbm_bytes_per_s": rate,
                "dma_bytes_per_s": engines,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def strided(chip: str | Chip, widths: Iterable[float] = (4, 64, 256, 1 * KIB, 2 * KIB, 4 * KIB)) -> pd.DataFrame:
    """Time to load one MiB by access pattern: rows of some bytes, and a hardware transpose on the way.

    Examples
    --------
    >>> strided("trainium2").time_s.is_monotonic_decreasing
    True
    """
    import pandas as pd

    row_bytes = np.atleast_1d(numbers("widths", widths, 1))
    answer = kernel.dma(chip, 2.0**20, row_bytes)
    rate = 2.0**20 / answer.load_s
    return pd.DataFrame({"row_bytes": row_bytes, "time_s": answer.time_s, "bandwidth_bytes_per_s": rate})
