"""Tables of one NeuronCore: engines of a kernel, products by size and schedule, experts, lanes and attention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters.common import neuron_chips
from trnmodel.arguments import integers, listed, number, numbers
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.kernels import kernel
from trnmodel.kernels.engines import KernelTime
from trnmodel.result import tidy

ENGINES = {
    "TensorE": "tensor_s",
    "VectorE": "vector_s",
    "ScalarE": "scalar_s",
    "GPSIMD": "gpsimd_s",
    "DMA in": "load_s",
    "DMA out": "store_s",
    "fixed cost": "fixed_s",
}
TIERS = {"roofline": "roofline_s", "tile bound": "tile_s", "tuned kernel": "time_s", "engines in a row": "upper_s"}
COPIES = {"vector": "VectorE", "scalar": "ScalarE"}


def engine_times(answer: KernelTime) -> pd.DataFrame:
    """Return the busy time of each engine that a kernel uses, and its fixed cost.

    Examples
    --------
    >>> table = engine_times(kernel.matmul("trainium2", 2048, 2048, 2048))
    >>> table.engine[table.busy_s.idxmax()]
    'TensorE'
    """
    busy = {engine: float(getattr(answer, column)) for engine, column in ENGINES.items()}
    return tidy({"engine": engine, "busy_s": time} for engine, time in busy.items() if time > 0)


def by_side(chip: str | Chip, dtypes: Iterable[str], side: ArrayLike) -> pd.DataFrame:
    """Return the rate of square products per core: roofline, whole tiles, tuned kernel, engines in a row.

    Examples
    --------
    >>> sorted(by_side("trainium2", ["bf16"], [1024.0]).tier)
    ['engines in a row', 'roofline', 'tile bound', 'tuned kernel']
    """
    rows, side = [], numbers("side", side, 1)
    for dtype in listed("dtypes", dtypes, str):
        answer, same = kernel.matmul(chip, side, side, side, dtype), {"side": side, "dtype": dtype}
        rates = {tier: answer.flop / getattr(answer, column) for tier, column in TIERS.items()}
        rows += [same | {"tier": tier, "rate_flop_per_s": rate} for tier, rate in rates.items()]
    return tidy(rows)


def by_rows(chip: str | Chip, m: ArrayLike, n: float, k: float, dtype: str) -> pd.DataFrame:
    """Return the share of the tile peak that a product of some rows reaches.

    Examples
    --------
    >>> by_rows("trainium2", [1664], 1536, 1536, "bf16").share.round(3).tolist()
    [1.0]
    """
    answer = kernel.matmul(chip, m, n, k, dtype)
    full = kernel.matmul(chip, 16384, 16384, 16384, dtype)
    share = (answer.flop / answer.tile_s) / (full.flop / full.tile_s)
    return pd.DataFrame({"m": m, "share": share, "time_s": answer.time_s, "bound": answer.bound})


def schedules(chip: str | Chip, side: float) -> pd.DataFrame:
    """Return the time of one square product under each kind of buffering and of transposing.

    Examples
    --------
    >>> schedules("trainium2", 2048.0).time_s.is_monotonic_increasing
    True
    """
    side = number("side", side, 1)
    cases: dict[str, dict[str, Any]] = {
        "buffered twice": {},
        "transposed on TensorE": {"transpose": "tensor"},
        "waits for each output tile": {"buffering": "tile"},
        "waits for each instruction": {"buffering": "none"},
    }
    rows = []
    for schedule, options in cases.items():
        answer = kernel.matmul(chip, side, side, side, **options)
        rate = float(answer.flop_per_s)
        rows.append({"way": schedule, "time_s": float(answer.time_s), "rate_flop_per_s": rate, "bound": answer.bound})
    return tidy(rows)


def experts(
    chip: str | Chip, tokens: ArrayLike, n: float, k: float, n_experts: float, dtypes: Iterable[str]
) -> pd.DataFrame:
    """Return the time of a layer's experts over tokens per expert, by storage of the weights.

    Examples
    --------
    >>> experts("trainium3", [1, 128], 2048, 4096, 8, ["mxfp4"]).bound.tolist()
    ['DMA', 'DMA']
    """
    rows, tokens, n_experts = [], numbers("tokens", tokens, 1), number("n_experts", n_experts, 1)
    core = neuron_chips([chip])[0].core
    assert core is not None  # `neuron_chips` refuses others
    compute = "mxfp8" if "mxfp8" in core.tensor.peak_flop_per_s else "bf16"
    for dtype in listed("dtypes", dtypes, str):
        answer = kernel.matmul(chip, tokens, n, k, compute, groups=n_experts, weight_dtype=dtype)
        times = {"time_s": answer.time_s, "vector_s": answer.vector_s, "bound": answer.bound}
        rows.append({"tokens_per_expert": tokens, "weights": dtype, **times})
    return tidy(rows)


def cores(chip: str | Chip, side: float, dtype: str) -> pd.DataFrame:
    """Return the rate of a large product on one logical core by LNC and by how many physical cores work at once.

    `chip_flop_per_s` is the rate of all that work. Counts are one logical core, two of the default size, and all.

    Examples
    --------
    >>> cores("trainium2", 8192.0, "bf16").busy_cores.tolist()
    [1, 4, 8, 2, 4, 8]
    """
    chip, rows, side = load.chip(chip), [], number("side", side, 1)
    for lnc in chip.lnc_choices:
        for busy in sorted({int(lnc), min(2 * int(max(lnc, chip.lnc_default)), int(chip.cores)), int(chip.cores)}):
            rate = float(kernel.matmul(chip, side, side, side, dtype, lnc=lnc, busy_cores=busy).flop_per_s)
            counts = {"lnc": lnc, "busy_cores": busy}
            rows.append(counts | {"rate_flop_per_s": rate, "chip_flop_per_s": rate * busy / lnc})
    return tidy(rows)


def lane_operators(
    chips: Iterable[str | Chip], rows: float, columns: float, operators: Iterable[str] | None = None
) -> pd.DataFrame:
    """Return the time of norms, softmax, activations and the like, fused with neighbours, by generation.

    Examples
    --------
    >>> set(lane_operators(["trainium3"], 4096, 4096).bound) <= {"VectorE", "ScalarE", "GPSIMD", "fixed cost"}
    True
    """
    times = []
    for op in kernel.operators() if operators is None else listed("operators", operators, str):
        for chip in neuron_chips(chips):
            answer = kernel.elementwise(chip, op, rows, columns, hbm=0.0)
            times.append({"operator": op, "chip": chip.name, "time_s": float(answer.time_s), "bound": answer.bound})
    return tidy(row for row in times if np.isfinite(row["time_s"]))


def attention_engines(
    chips: Iterable[str | Chip], tokens: float, head_sizes: Iterable[float], heads: float
) -> pd.DataFrame:
    """Return attention by generation and head size: busy time per engine, by engine of the exponential.

    Examples
    --------
    >>> table = attention_engines(["trainium2", "trainium3"], 4096, [64], 8)
    >>> table.groupby("chip").bound.first().tolist()
    ['ScalarE', 'TensorE']
    """
    rows, tokens, sizes = [], number("tokens", tokens, 1), integers("head_sizes", head_sizes)
    for chip in neuron_chips(chips):
        assert chip.core is not None  # `neuron_chips` refuses others
        fast = not np.isnan(chip.core.vector.exponential_ratio)
        for choice in ("vector", "fast-scalar", "scalar") if fast else ("scalar",):
            for size in sizes:
                answer = kernel.attention(chip, tokens, tokens, heads, head_size=size, exponential=choice)
                busy = {"TensorE": answer.tensor_s, "VectorE": answer.vector_s, "ScalarE": answer.scalar_s}
                busy["DMA"] = answer.load_s + answer.store_s
                same: dict[str, Any] = {"chip": chip.name, "exponential": choice, "head_size": size}
                same |= {"bound": answer.bound, "time_s": float(answer.time_s), "upper_s": float(answer.upper_s)}
                rows += [same | {"engine": engine, "busy_s": float(value)} for engine, value in busy.items()]
    return pd.DataFrame(rows)


def smallest_contractions(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """Return the contraction from which TensorE, not the copy out of PSUM, bounds full tiles.

    Examples
    --------
    >>> smallest_contractions(["trainium1"]).contraction.tolist()
    [384.0, 256.0]
    """
    return tidy(
        {"chip": chip.name, "copied by": name, "contraction": kernel.smallest_contraction(chip, engine=engine)}
        for chip in neuron_chips(chips)
        for engine, name in COPIES.items()
    )
