"""Memory of a NeuronCore: HBM pins, DMA by row length, collectives, blocking, and decoding level by level."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters.common import neuron_chips
from trnmodel.arguments import TINY, number, numbers
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.formulas import memory
from trnmodel.kernels import kernel
from trnmodel.result import tidy
from trnmodel.units import GIB, KIB, MIB

PROFILED = "trainium1"  # the chip of the profiles
ROWS = 2.0 ** np.arange(5, 16)
WIDTHS = (4, 64, 256, KIB, 2 * KIB, 4 * KIB)


def pins(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """Compare HBM bandwidth from pins with the printed one, and with the DMA engines that its bytes pass.

    Returns
    -------
    table : pandas.DataFrame
        chip, pin_bytes_per_s, pins, stacks, product_bytes_per_s, printed_bytes_per_s with `_low` and `_high`, error (of
        the product), dma_bytes_per_s (all engines at the rate of the guide), printed_dma_bytes_per_s (AWS's figure per
        chip), door_bytes_per_s (the lower of HBM and engines) and door_share (of HBM).

    Examples
    --------
    >>> pins(["trainium1", "trainium3"]).door_share.round(2).tolist()
    [0.66, 0.86]
    """
    rows = []
    for chip in neuron_chips(chips):
        width = load.value(chip.id, "hbm_stack_pins")
        low_high = chip.range("hbm_bytes_per_s")
        product = float(memory.hbm_bytes_per_s(chip.hbm_pin_bytes_per_s, width, chip.hbm_stacks))
        rows.append(
            {
                "chip": chip.name,
                "pin_bytes_per_s": chip.hbm_pin_bytes_per_s,
                "pins": width,
                "stacks": chip.hbm_stacks,
                "product_bytes_per_s": product,
                "printed_bytes_per_s": chip.hbm_bytes_per_s,
                **dict(zip(("printed_bytes_per_s_low", "printed_bytes_per_s_high"), low_high, strict=True)),
                "error": product / chip.hbm_bytes_per_s - 1,
                "dma_bytes_per_s": chip.cores * _dma_bytes_per_s(chip),
                "printed_dma_bytes_per_s": chip.dma_bytes_per_s,
                "door_bytes_per_s": _read_limit_bytes_per_s(chip),
                "door_share": _read_limit_bytes_per_s(chip) / chip.hbm_bytes_per_s,
            }
        )
    return tidy(rows)


def _dma_bytes_per_s(chip: Chip) -> float:
    """Rate of the DMA engines of one core, in B/s."""
    assert chip.core is not None  # `neuron_chips` refuses others
    return chip.core.dma_engines * chip.core.dma_engine_bytes_per_s


def _read_limit_bytes_per_s(chip: Chip) -> float:
    """Highest read rate of a chip by printed rates, in B/s: its HBM or the DMA engines of its cores."""
    return min(chip.cores * _dma_bytes_per_s(chip), chip.hbm_bytes_per_s)


def share_of_read_limit(profiles: pd.DataFrame) -> float:
    """Share of the lower of HBM and DMA rates that the median profiled decode reached, on Trainium1.

    Examples
    --------
    >>> from trnmodel.evidence import tables
    >>> round(share_of_read_limit(tables.table("profiles", phase="decode")), 2)
    0.83
    """
    (chip,) = neuron_chips([PROFILED])
    return float(profiles.mbu.median()) * chip.hbm_bytes_per_s / _read_limit_bytes_per_s(chip)


def dma_rows(chip: str | Chip) -> pd.DataFrame:
    """Return the DMA rate per core over the contiguous bytes of a partition, documented and modelled.

    Examples
    --------
    >>> bool((dma_rows("trainium2").bandwidth_bytes_per_s > 0).all())
    True
    """
    (chip,) = neuron_chips([chip])
    rate = GIB / kernel.dma(chip, GIB, ROWS).time_s
    share = np.array([load.value("neuron-dma", "dma_relative_throughput", f"{row:.0f}") for row in ROWS])
    curves = {"model": rate, "AWS's figure, scaled": share * rate.max()}
    return tidy({"row_bytes": ROWS, "from": name, "bandwidth_bytes_per_s": rate} for name, rate in curves.items())


def strided(chip: str | Chip, widths: ArrayLike = WIDTHS) -> pd.DataFrame:
    """Return the time to load one MiB in rows of some bytes.

    Examples
    --------
    >>> strided("trainium2").time_s.is_monotonic_decreasing
    True
    """
    row_bytes = np.atleast_1d(numbers("widths", widths, 1))
    answer = kernel.dma(chip, MIB, row_bytes)
    rate = MIB / answer.load_s
    return pd.DataFrame({"row_bytes": row_bytes, "time_s": answer.time_s, "bandwidth_bytes_per_s": rate})


def contention(chip: str | Chip, share: ArrayLike, n: float, k: float) -> pd.DataFrame:
    """Return the slowdown of a weight-streaming product while collectives use a share of the DMA engines.

    Examples
    --------
    >>> bool(contention("trainium2", [0.0, 0.5], 65536, 65536).slowdown.iloc[1] > 1.9)
    True
    """
    (chip,), share = neuron_chips([chip]), np.atleast_1d(numbers("share", share, 0.0, 1.0))
    left = min(_dma_bytes_per_s(chip), chip.hbm_bytes_per_s / chip.cores)
    answer = kernel.matmul(chip, 16, n, k, collective_bytes_per_s=np.multiply(share, left))
    return pd.DataFrame({"collective_share": share, "slowdown": answer.time_s / kernel.matmul(chip, 16, n, k).time_s})


def blocking(chip: str | Chip, m: float, n: float, k: float, dtype: str, side: ArrayLike) -> pd.DataFrame:
    """Return HBM bytes and busy times of DMA and TensorE over the side of the output block kept in SBUF.

    Examples
    --------
    >>> blocking("trainium2", 4096, 4096, 4096, "bf16", [512.0, 4096.0]).read_bytes.div(2**20).tolist()[:2]
    [512.0, 64.0]
    """
    side = numbers("side", side, 1)
    answer = kernel.matmul(chip, m, n, k, dtype, block_rows=side, block_columns=side)
    busy = {"DMA": answer.load_s + answer.store_s, "TensorE": answer.tensor_s}
    same = {"side": side, "read_bytes": answer.hbm_read_bytes}
    return tidy(same | {"engine": engine, "busy_s": busy_s} for engine, busy_s in busy.items())


def decode_levels(chip: str | Chip, weight_bytes: float, share: float) -> pd.DataFrame:
    """Return tokens/s per chip that a model's weights allow: by HBM, by DMA engines, and as decoding reaches it.

    Reads are bounded by the lower of the rates of HBM and DMA engines. The share of this bound that one generation
    reached is carried over to another (confidence D). A share of HBM is not, because the two rates differ by
    generation.

    Returns
    -------
    table : pandas.DataFrame
        level, estimate (the carried share), and bandwidth_bytes_per_s and tokens_per_s with the `_low` and `_high` of
        an HBM rate left open.

    Examples
    --------
    >>> decode_levels("trainium2", 16e9, 0.58).tokens_per_s.is_monotonic_decreasing
    True
    """
    weight_bytes, share = number("weight_bytes", weight_bytes, TINY), number("share", share, 0.0, 1.0)
    (chip,) = neuron_chips([chip])
    engines, (low, high) = chip.cores * _dma_bytes_per_s(chip), chip.range("hbm_bytes_per_s")
    carried = chip.id != PROFILED
    table = pd.DataFrame({"level": ["HBM", "DMA engines", "decoding"], "estimate": [False, False, carried]})
    for end, hbm in {"": chip.hbm_bytes_per_s, "_low": low, "_high": high}.items():
        rates = np.array([hbm, min(engines, hbm), share * min(engines, hbm)])
        table[f"bandwidth_bytes_per_s{end}"], table[f"tokens_per_s{end}"] = rates, rates / weight_bytes
    return table
