"""Tables of a NeuronCore's memory: limits of a read, rows of the DMA engines, reads of a step, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters.common import neuron_chips
from trnmodel.arguments import number
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.evidence import score
from trnmodel.evidence.tables import table as committed
from trnmodel.formulas import memory
from trnmodel.kernels.engines import KernelTime
from trnmodel.kernels.kernel import TransferTime
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.steps.answers import Step
from trnmodel.units import format_quantity

PROFILED = "trainium1"  # the chip of the profiles
KINDS = {  # of kernels, by the group that compares them
    "memory": "Time of kernels that only move data",
    "bytes": "Bytes of kernels",
    "dma": "Time of single transfers",
}


def profiles(phase: str) -> pd.DataFrame:
    """Return the profiles that AWS prints of one phase, "decode" or "prefill".

    Examples
    --------
    >>> {"model", "read_bytes"} <= set(profiles("decode"))
    True
    """
    return committed("profiles", phase=phase)


def kernels() -> pd.DataFrame:
    """Return published kernels that move data, with what the model predicts of them."""
    return committed("kernels").query("group in @KINDS")


class Limits(NamedTuple):
    """Rates at which a chip can read its HBM [B/s]."""

    hbm: float
    engines: float

    @property
    def lower(self) -> float:
        """The lower of the two, which limits a read [B/s]."""
        return min(self)


def limits(chip: str | Chip) -> Limits:
    """Return what HBM gives and what the DMA engines of all cores pass, both by printed rates.

    Examples
    --------
    >>> limits("trainium3").lower
    4224000000000.0
    """
    (chip,) = neuron_chips([chip])
    assert chip.core is not None  # `neuron_chips` refuses others
    return Limits(chip.hbm_bytes_per_s, chip.cores * chip.core.dma_engines * chip.core.dma_engine_bytes_per_s)


def share_of_limit(profiles: pd.DataFrame) -> float:
    """Return the share of the lower rate that the median profiled model reached while it decoded, on Trainium1.

    Examples
    --------
    >>> from trnmodel.evidence import tables
    >>> round(share_of_limit(tables.table("profiles", phase="decode")), 2)
    0.83
    """
    of_chip = limits(PROFILED)
    return float(profiles.mbu.median()) * of_chip.hbm / of_chip.lower


def band(chip: str | Chip, weight_share: float, shares: tuple[float, float]) -> str:
    """Return the rate at which this book reads weights, with its ends: those of the share, and the limit if lower.

    Examples
    --------
    >>> band("trainium3", 0.95, (0.9, 1.0))
    '4.66 TB/s (4.22 to 4.9)'
    """
    (chip,) = neuron_chips([chip])
    rates = limits(chip)
    ends = weight_share * rates.hbm, min(shares[0] * rates.hbm, rates.lower), shares[1] * rates.hbm
    rate, low, high = (format_quantity(end, "B/s", 3) for end in ends)
    return f"{rate} ({low.partition(' ')[0]} to {high.partition(' ')[0]})"


def most(chip: str | Chip, weight_share: float) -> str:
    """Return what the book's rate for weights is, and that it is too fast where a printed limit is lower.

    Examples
    --------
    >>> "too fast" in most("trainium3", 0.95), "too fast" in most("trainium2", 0.95)
    (True, False)
    """
    (chip,) = neuron_chips([chip])
    rates = limits(chip)
    said = f"the rate at which this book reads weights from the memory (HBM) of {chip.name}"
    if weight_share * rates.hbm > rates.lower * 1.001:
        lower = format_quantity(rates.lower, "B/s", 3)
        said += f". It is too fast if AWS's guide for kernels is right, by which the DMA engines copy {lower}"
    return said


def sureness(chip: str | Chip, weight_share: float, reached: float, plans: Sequence[Choice] = ()) -> str:
    """Return how sure the limit of a chip is: what AWS prints beside it, and whether the step model keeps to it.

    Parameters
    ----------
    chip : str or Chip
        The chip. [-]
    weight_share : float
        Share of the printed HBM bandwidth at which the step model reads weights. [-]
    reached : float
        Share of the limit that half of the profiled models reached. [-]
    plans : sequence of Choice
        A plan of the running case as it is, and with weights that arrive at the limit; empty without such a system. [-]

    Examples
    --------
    >>> "The step model" in sureness("trainium3", 0.95, 0.8), "The step model" in sureness("trainium2", 0.95, 0.8)
    (True, False)
    """
    (chip,) = neuron_chips([chip])
    rates = limits(chip)
    total, streamed = chip.dma_bytes_per_s, weight_share * rates.hbm
    hbm = format_quantity(rates.hbm, "B/s", 3)
    said = [f"**How sure?** AWS prints {hbm}, and we count with {weight_share:.0%} of it on public software."]
    if total > rates.engines:
        said.append(f"AWS's page of the chip allows its DMA engines {format_quantity(total, 'B/s', 3)}.")
    if streamed > rates.lower * 1.001:
        said.append("The step model of this book ignores the lower limit of the guide.")
        if plans:
            said.append(_if_it_holds(*plans))
    said.append(f"Half of the models profiled on Trainium1 reached at least {reached:.0%} of its limit.")
    return " ".join(said)


def _if_it_holds(own: Choice, slow: Choice) -> str:
    """Return what the running case makes if weights arrive at the limit, and whether its band covers that."""
    rates = [float(plan.tokens_per_s_per_chip) for plan in (own, slow)]
    inside = "inside" if own.ends("tokens_per_s_per_chip")[0] <= rates[1] else "below"
    return (
        f"If the limit holds, Llama-3.3-70B of the running case makes {rates[1]:.0f} tokens/s per chip instead of "
        f"{rates[0]:.0f}, which lies {inside} its band."
    )


def ceilings(chips: Iterable[str | Chip], reached: float) -> pd.DataFrame:
    """Return the rates of HBM and DMA engines, and the share of the lower one that decoding reached on Trainium1.

    Returns
    -------
    table : pandas.DataFrame
        chip, level, bandwidth_bytes_per_s and `estimate`, which is True where the share is carried to another chip.

    Examples
    --------
    >>> ceilings(["trainium2"], 0.5).bandwidth_bytes_per_s.div(1e12).tolist()
    [2.9, 2.944, 1.45]
    """
    reached = number("reached", reached, 0.0, 1.0)
    rows = []
    for chip in neuron_chips(chips):
        rates = limits(chip)
        levels = {"HBM": rates.hbm, "DMA engines": rates.engines, "decoding": reached * rates.lower}
        rows += [
            {
                "chip": chip.name,
                "level": level,
                "bandwidth_bytes_per_s": rate,
                "estimate": level == "decoding" and chip.id != PROFILED,
            }
            for level, rate in levels.items()
        ]
    return tidy(rows)


def compared(chip: str | Chip, read_bytes_per_s: Mapping[str, float]) -> str:
    """Return the fastest other chip with the rate at which this book reads its weights, as the card says it.

    Examples
    --------
    >>> compared("trainium2", {"trainium1": 0.5e12, "trainium2": 2.8e12, "trainium3": 4.66e12})
    '4.66 TB/s from the memory of Trainium3'
    """
    (own,) = neuron_chips([chip])
    best = max((name for name in read_bytes_per_s if name != own.id), key=lambda name: read_bytes_per_s[name])
    return f"{format_quantity(read_bytes_per_s[best], 'B/s', 3)} from the memory of {load.chip(best).name}"


def within(chart: alt.LayerChart, x: tuple[float, float], y: tuple[float, float] | None = None) -> alt.LayerChart:
    """Return a chart whose axes, in the unit that they show, have these ends."""
    for layer in chart.layer:
        for channel, ends in ((layer.encoding.x, x), (layer.encoding.y, y)):
            if ends and isinstance(channel, alt.X | alt.Y):
                scale = channel.to_dict().get("scale") or {}
                channel["scale"] = scale | {"domain": list(ends), "nice": False}
    return chart


def pins(chips: Iterable[str | Chip]) -> pd.DataFrame:
    """Compare HBM bandwidth from pins with the printed one, and with the DMA engines that its bytes pass.

    Returns
    -------
    table : pandas.DataFrame
        chip, pin_bytes_per_s, pins, stacks, product_bytes_per_s, printed_bytes_per_s with `_low` and `_high`, error (of
        the product), dma_bytes_per_s (all engines at the rate of the guide), printed_dma_bytes_per_s (AWS's figure per
        chip), and limit_bytes_per_s (the lower of HBM and engines) with limit_share (of HBM).

    Examples
    --------
    >>> pins(["trainium1", "trainium3"]).limit_share.round(2).tolist()
    [0.66, 0.86]
    """
    rows = []
    for chip in neuron_chips(chips):
        width, rates = load.value(chip.id, "hbm_stack_pins"), limits(chip)
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
                "dma_bytes_per_s": rates.engines,
                "printed_dma_bytes_per_s": chip.dma_bytes_per_s,
                "limit_bytes_per_s": rates.lower,
                "limit_share": rates.lower / chip.hbm_bytes_per_s,
            }
        )
    return tidy(rows)


def with_aws_figure(transfer: TransferTime) -> pd.DataFrame:
    """Return the rate of a transfer over the length of its rows, and the curve of AWS's figure at the same rows.

    The figure gives shares of its highest rate, which stands here for the highest rate of the transfer. It has points
    at powers of two.
    """
    rows = np.atleast_1d(transfer.row_bytes)
    rate = np.broadcast_to(transfer.moved_bytes / transfer.load_s, rows.shape)
    read = rows[np.log2(rows) % 1 == 0]
    share_ = np.array([load.value("neuron-dma", "dma_relative_throughput", f"{row:.0f}") for row in read])
    curves = {"model": (rows, rate), "AWS's figure, scaled to the same end": (read, share_ * rate.max())}
    return tidy(
        {"row_bytes": at, "level": name, "bandwidth_bytes_per_s": curve} for name, (at, curve) in curves.items()
    )


def by_engine(side: ArrayLike, product: KernelTime) -> pd.DataFrame:
    """Return the busy times of DMA and TensorE over the side of the output block that stays in SBUF."""
    busy = {"DMA engines": product.load_s + product.store_s, "TensorE": product.tensor_s}
    return tidy({"block_side": np.asarray(side), "engine": engine, "busy_s": busy_s} for engine, busy_s in busy.items())


def reads(steps: Iterable[Step]) -> pd.DataFrame:
    """Return the time that reading takes in each step, by what is read; steps of one model and chip count once.

    Returns
    -------
    table : pandas.DataFrame
        case, read ("feed-forward and experts", "attention weights", "output head, norms", "cache"), time_of_reads_s.
    """
    cases = dict[str, dict[str, float]]()
    for step in steps:
        parts = dict.fromkeys(("feed-forward and experts", "attention weights", "output head, norms", "cache"), 0.0)
        for line, times in step.breakdown().items():
            parts[_read(line.rpartition(": ")[2])] += float(times.memory_s)
        cases[f"{step.model.id}, {step.question.setting.at.chip.name}"] = parts
    return tidy(
        {"case": case, "read": read, "time_of_reads_s": read_s}
        for case, parts in cases.items()
        for read, read_s in parts.items()
    )


def _read(operator: str) -> str:
    """Return what an operator of a step's breakdown reads."""
    if operator.endswith("attention"):
        return "cache"
    if operator in ("q", "kv", "o", "q_down", "q_up", "kv_down", "kv_up"):
        return "attention weights"
    if operator.startswith(("up", "down", "router", "expert", "shared")):
        return "feed-forward and experts"
    return "output head, norms"


def changed(times_s: Mapping[str, float]) -> pd.DataFrame:
    """Return times of reading by what was changed, with the first one, which is the reference, marked as such.

    Examples
    --------
    >>> changed({"as it is": 2.0, "twice": 4.0}).what.tolist()
    ['reference', 'changed']
    """
    kinds = ["reference", *["changed"] * (len(times_s) - 1)]
    rows = zip(times_s.items(), kinds, strict=True)
    return tidy({"change": name, "time_of_reads_s": float(time_s), "what": kind} for (name, time_s), kind in rows)


def decode_bytes(profiles: pd.DataFrame) -> pd.DataFrame:
    """Return measured and predicted bytes that one core reads while it decodes, and which models read more."""
    aside = np.where(profiles.read_bytes_error.abs() > 0.05, "off by over 5%", "within 5%")
    columns = {"read_bytes_predicted": "predicted_bytes", "read_bytes": "measured_bytes"}
    return profiles[["model", *columns]].rename(columns=columns).assign(error=aside)


def checks(profiles: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of everything that this chapter predicts: of decoding, and of kernels by their group.

    Returns
    -------
    table : pandas.DataFrame
        predicted, cases, median_error (without its sign) and worst_error, which is predicted over measured less one.
    """
    errors = {
        "Bytes that decoding reads": profiles.read_bytes_error,
        "Bandwidth that decoding reaches": profiles.mbu_predicted / profiles.mbu - 1,
    }
    rows = [
        {
            "predicted": name,
            "cases": len(error),
            "median_error": error.abs().median(),
            "worst_error": error[error.abs().idxmax()],
        }
        for name, error in errors.items()
    ]
    groups = score.summary(kernels, "group").set_index("group")
    columns = ["cases", "median_error", "worst_error"]
    return tidy([*rows, *({"predicted": name} | groups.loc[kind, columns].to_dict() for kind, name in KINDS.items())])


def host_bytes_per_s() -> float:
    """Return the rate at which a host feeds its chips, an illustrative figure of AWS [B/s].

    Examples
    --------
    >>> host_bytes_per_s()
    16000000000.0
    """
    return load.value("neuroncore-v2", "host_bytes_per_s")


def start_up(weight_bytes: float, load_s: Mapping[str, float], chip: str | Chip) -> pd.DataFrame:
    """Return the time to load weights by each way of loading, and to read them once from HBM at its limit, as printed.

    Examples
    --------
    >>> start_up(42.24e9, {"Load": 10.0}, "trainium3").time.tolist()
    ['10 s', '10 ms']
    """
    times = {**load_s, "Read once from HBM": weight_bytes / limits(chip).lower}
    return tidy({"action": action, "time": format_quantity(float(time_s), "s", 3)} for action, time_s in times.items())
