"""Tables that compare chips: rooflines, arrays, formats of weights, ceilings of a multiply, and disputed facts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters import common
from trnbook.shared.ledger import shortened
from trnmodel.arguments import chosen, listed, numbers
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip, Engine, Precision
from trnmodel.formulas import roofline
from trnmodel.result import tidy
from trnmodel.units import format_quantity

_PEAKS = ("peak_flop_per_s", "sparse_peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s")


def rooflines(chips: Iterable[str | Chip], dtypes: Iterable[str], intensity_flop_per_byte: ArrayLike) -> pd.DataFrame:
    """Return the attainable rate over arithmetic intensity, per chip and compute dtype with a printed peak.

    Returns
    -------
    table : pandas.DataFrame
        chip, dtype, intensity_flop_per_byte, attainable_flop_per_s, bound ("memory" or "compute"), estimate.

    Examples
    --------
    >>> rooflines(["trainium2"], ["bf16"], [1.0, 1000.0]).bound.tolist()
    ['memory', 'compute']
    """
    intensity, rows = np.atleast_1d(numbers("intensity_flop_per_byte", intensity_flop_per_byte)), []
    for chip, dtype in common.with_peak(chips, dtypes):
        rate = roofline.attainable_flop_per_s(intensity, chip.peak(dtype), chip.hbm_bytes_per_s)
        bound = np.where(rate < chip.peak(dtype), "memory", "compute")
        columns = {"intensity_flop_per_byte": intensity, "attainable_flop_per_s": rate, "bound": bound}
        estimate = f"peak_flop_per_s[{dtype}]" in chip.estimates
        rows.append({"chip": chip.name, "dtype": dtype, **columns, "estimate": estimate})
    return tidy(rows)


def arrays(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """Compare TensorE's BF16 rate from array and clock with the printed peak per core, and its share of the chip.

    Examples
    --------
    >>> arrays(["trainium2"]).array.tolist()
    ['128 x 128']
    """
    rows = []
    for chip in common.neuron_chips(chips):
        assert chip.core is not None  # `neuron_chips` refuses others
        tensor = chip.core.tensor
        computed = 2 * tensor.array_rows * tensor.array_cols * tensor.clock_hz
        printed = tensor.peak_flop_per_s["bf16"]
        rows.append(
            {
                "chip": chip.name,
                "array": f"{tensor.array_rows:.0f} x {tensor.array_cols:.0f}",
                "clock_hz": tensor.clock_hz,
                "computed_flop_per_s": computed,
                "printed_flop_per_s": printed,
                "difference": computed / printed - 1,
                "part_of_chip_flop_per_s": chip.peak("bf16") / chip.cores,
                "fastest_8_bit_over_bf16": max(tensor.peak_flop_per_s.values()) / printed,
            }
        )
    return tidy(rows)


def weight_formats(chip: str | Chip, precisions: Iterable[str | Precision]) -> pd.DataFrame:
    """Return what a weight format means for decode: bytes per weight, weights/s, batch at the ridge point.

    The batch at the ridge is where 2 FLOP per weight and sequence take as long as reading the weight once. A format
    whose compute dtype has no printed peak on the chip is left out.

    Examples
    --------
    >>> table = weight_formats("trainium3", ["mxfp8", "w4a8"]).set_index("precision")
    >>> round(float(table.weights_per_s["w4a8"] / table.weights_per_s["mxfp8"]), 3)
    1.941
    """
    chip, rows = load.chip(chip), []
    for precision in map(load.precision, listed("precisions", precisions)):
        if precision.compute not in chip.peak_flop_per_s:
            continue
        stored = precision.storage_bytes("weights")
        ridge = roofline.ridge_point_flop_per_byte(chip.peak(precision.compute), chip.hbm_bytes_per_s)
        rows.append(
            {
                "precision": precision.name,
                "storage": precision.weights,
                "compute": precision.compute,
                "bytes_per_weight": stored,
                "weights_per_s": chip.hbm_bytes_per_s / stored,
                "speed_over_bf16": load.dtypes()["bf16"] / stored,
                "batch_at_ridge": float(ridge) * stored / 2,
                "estimate": f"peak_flop_per_s[{precision.compute}]" in chip.estimates,
            }
        )
    return tidy(rows)


def matmul_ceilings(chip: str | Chip, dtype: str, side: ArrayLike) -> pd.DataFrame:
    """Return the ceilings of a square matrix multiply spread over the cores of a chip, level by level.

    Each core multiplies its share of the rows by the whole other operand. HBM and DMA carry the traffic of blocks of
    which three fill SBUF; SBUF feeds TensorE full tiles; the link brings one operand from the neighbours. A chip
    without NeuronCores shows its HBM at perfect reuse.

    Parameters
    ----------
    chip : str or Chip
        The chip.
    dtype : str
        Compute and storage dtype.
    side : array_like
        Rows, columns and depth of the multiply, N. [-]

    Returns
    -------
    table : pandas.DataFrame
        side, level ("compute", "HBM", "SBUF", "DMA", "link"), ceiling_flop_per_s.

    Examples
    --------
    >>> table = matmul_ceilings("trainium2", "bf16", [16384.0])
    >>> table.sort_values("ceiling_flop_per_s", kind="stable").level.iloc[0]
    'compute'
    """
    chip, n = load.chip(chip), np.atleast_1d(numbers("side", side, 1))
    work, element = 2 * n**3, chosen("dtype", dtype, load.dtypes())
    block = n
    ceilings = {"compute": np.full_like(n, chip.peak(dtype))}
    if chip.core:
        block = np.minimum(n / np.sqrt(chip.cores), np.sqrt(chip.core.sbuf_bytes / (3 * element)))
        ceilings["SBUF"] = np.full_like(n, chip.cores * _sbuf_ceiling(chip.core.tensor, dtype))
    intensity = work / ((work / block + n**2) * element)
    ceilings["HBM"] = intensity * chip.hbm_bytes_per_s
    if chip.core:
        ceilings["DMA"] = intensity * chip.cores * chip.core.dma_engines * chip.core.dma_engine_bytes_per_s
    ceilings["link"] = work / (n**2 * element) * chip.scaleup_bytes_per_s_per_dir
    return tidy({"side": n, "level": level, "ceiling_flop_per_s": rate} for level, rate in ceilings.items())


def _sbuf_ceiling(tensor: Engine, dtype: str) -> float:
    """Rate at which SBUF feeds TensorE full tiles, moving and stationary operand once each, in FLOP/s."""
    widths = tensor.elements_per_cycle
    width = next(widths[key] for key in (dtype, "bf16", "input") if key in widths)
    moving, stationary = tensor.max_moving_cols, tensor.max_stationary_cols
    return 2 * stationary * moving / (moving + stationary) * width * tensor.clock_hz


def with_units(totals: pd.DataFrame) -> pd.DataFrame:
    """Return printed totals as text with units, and the name of each quantity."""
    stems = totals.quantity.str.partition("[")[0]
    units = [load.quantities()[name].unit_si for name in stems]
    texts = {end: list(map(format_quantity, totals[end], units)) for end in ("per_chip", "computed", "printed")}
    named = stems.map({"hbm_bytes": "HBM", "hbm_bytes_per_s": "HBM bandwidth"}).fillna("peak")
    return totals.assign(**texts, quantity=named + totals.quantity.str.extract(r"\[(.*)\]")[0].radd(" ").fillna(""))


def disagreements(entities: Iterable[str], quantities: Iterable[str]) -> pd.DataFrame:
    """Return the facts about these entities on which sources disagree, with value, status and reason.

    Examples
    --------
    >>> rows = disagreements(["trainium1"], ["peak_flop_per_s"])
    >>> "210" in rows[rows.status == "rejected"].value_printed.tolist()
    True
    """
    facts = load.facts()
    named = facts.entity.isin(listed("entities", entities, str))
    disputed = facts[
        named
        & facts.quantity.isin(listed("quantities", quantities, str))
        & (facts.reason != "no source contradicts it")
    ]
    columns = "entity quantity qualifier value_printed unit_printed source locator status reason".split()
    return disputed[columns].sort_values(["entity", "quantity", "qualifier"], kind="stable", ignore_index=True)


def rulings(entities: Iterable[str]) -> pd.DataFrame:
    """Return decisions about peaks and memory: what is used, what is rejected or open, and why."""
    wanted, facts = set(listed("entities", entities, str)), load.facts_rows()
    rows = [
        {
            "about": ruling.about,
            "used": f"{facts[ruling.use].value_printed} {facts[ruling.use].unit_printed}",
            "set aside": ", ".join(dict.fromkeys(shortened(it, ruling.quantity) for it in ruling.reject.values())),
            "open": ", ".join(dict.fromkeys(ruling.open.values())),
            "why": ruling.reason,
        }
        for ruling in load.decisions()
        if ruling.use and ruling.entity in wanted and ruling.quantity in _PEAKS
    ]
    return pd.DataFrame(rows)
