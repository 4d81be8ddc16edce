"""Tables of one NeuronCore: the card, rates by size, kernels by the engine that sets their time, measured kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from IPython.display import Markdown
from numpy.typing import ArrayLike, NDArray

from trnbook.chapters import common
from trnbook.shared.errors import ANY, by_chip
from trnbook.shared.errors import left_out as left_out_rows
from trnbook.shared.kernels import side_by_side
from trnmodel.catalog.specs import Chip
from trnmodel.evidence import score
from trnmodel.evidence import tables as evidence
from trnmodel.evidence.rows import published
from trnmodel.kernels.engines import KernelTime
from trnmodel.result import tidy
from trnmodel.steps.answers import Step
from trnmodel.units import US, format_quantity

TUNED = "tuned products"
KINDS = {  # groups of measured kernels, by what a reader calls them
    **dict.fromkeys(("tuned-nki", "tuned-gemm"), TUNED),
    **dict.fromkeys(("framework-trace", "framework-compile", "framework-attention", ""), "calls of a framework"),
    "expert layer": "expert layers",
    **dict.fromkeys(("kernels before tuning", "kernels not kept"), "kernels not tuned"),
}
CONSTANTS = {  # of a core, by the symbols of the chapter
    "tensor.clock_hz": "f",
    "tensor.array_rows": "R",
    "tensor.max_stationary_cols": "C",
    "tensor.max_moving_cols": "V0",
    "tensor.min_initiation_cycle": "c0",
    "tensor.access_overhead_cycle": "c1",
    "fill_s": "filling",
    "vector.clock_hz": "f of the Vector engine",
    "scalar.clock_hz": "f of the Scalar engine",
    "sbuf_bytes": "SBUF",
    "dma_engines": "DMA engines",
    "dma_engine_bytes_per_s": "rate of one of them",
    "dma_start_s": "semaphore",
}
TIMES = ("s", "ms", "us", "ns")  # units of rows that state a time; the others state a rate


def answer(large: KernelTime, called: KernelTime, together: KernelTime, dtype: str) -> str:
    """Return the card that opens the chapter: a large product, tuned and through torch.compile, and how sure it is.

    Parameters
    ----------
    large, called, together : KernelTime
        A large product, tuned, through torch.compile, and tuned while all cores of the chip work. [-]
    dtype : str
        Number format of the product. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> one = tm.kernel.matmul("trainium2", 16384, 16384, 16384)
    >>> print(answer(one, one, one, "bf16").splitlines()[0])
    > **76 TFLOP/s** (14 to 79; interpolated): a tuned kernel multiplies large BF16 matrices on one core of Trainium2.
    """
    peak = peak_flop_per_s(large.chip, dtype)
    other, shared, most = (
        format_quantity(float(rate), "FLOP/s", 2) for rate in (called.flop_per_s, together.flop_per_s, peak)
    )
    rate, low = float(large.flop_per_s), float(large.ends("flop_per_s")[0])
    sure = ""
    if large.chip.id == "trainium3":
        error = evidence.table("product_errors").blind_error.abs().median()
        sure = (
            f"Before their rows were read, half of the tuned products on this chip were predicted within {error:.0%}. "
        )
    elif len(rows := _tuned_on(large.chip)):
        error = rows.error.abs().median()
        sure = (
            f"Half of the {len(rows)} tuned kernels measured on this chip were predicted within {error:.0%}, "
            "though some of them set its constants. "
        )
    sure += f"{unseen(large.chip.name)} "
    return common.card(
        (rate, low, max(rate, peak)),
        f"a tuned kernel multiplies large {dtype.upper()} matrices on one core of {large.chip.name}",
        unit="FLOP/s",
        mark=str(large.basis),
        rival=f"a printed peak of {most}, and {other} through PyTorch's torch.compile",
        rank="Compared with",
        proof="Check: kernels that others measured",
        more=f"That core works alone. With all {large.chip.cores:.0f} cores at work, each core reaches {shared}, "
        f"{float(together.flop_per_s) / peak:.0%} of its peak.\n\n"
        f"**How sure?** {sure}The range comes from the errors of all those kernels and ends at the peak. "
        "Its low end is for a kernel that nobody has tuned.",
    )


def unseen(chip_name: str = ANY) -> str:
    """Return the median error of all kernels of a chip whose page is left out of the fit, as a sentence.

    Examples
    --------
    >>> unseen("Trainium2").startswith("Over all kinds of kernels on Trainium2, with their page left out of the fit")
    True
    """
    errors = by_chip(left_out_rows())
    row = errors[(errors.question == "kernel") & (errors.chip == chip_name)].iloc[0]
    where = " on all chips together" if chip_name == ANY else f" on {chip_name}"
    return (
        f"Over all kinds of kernels{where}, with their page left out of the fit, the "
        f"[median error](accuracy.ipynb) is {row.median_error:.0%}."
    )


def _tuned_on(chip: Chip) -> pd.DataFrame:
    """Return the tuned kernels with a published time on a chip."""
    times = evidence.table("kernels", quantity="time")
    return times[(times.chip == chip.id) & (times.group.map(KINDS) == TUNED)]


def peak_flop_per_s(chip: Chip, dtype: str) -> float:
    """Return the printed peak of one core in a format [FLOP/s]."""
    assert chip.core is not None  # the chapter's guard refuses others
    return float(chip.core.tensor.peak_flop_per_s[dtype])


def curves(x: str, values: ArrayLike, rates_flop_per_s: Mapping[str, NDArray]) -> pd.DataFrame:
    """Return rates over a size as lines of a chart, a row for each point.

    Examples
    --------
    >>> curves("side", [64, 128], {"tuned": np.array([1.0, 2.0])}).rate_flop_per_s.tolist()
    [1.0, 2.0]
    """
    each = [pd.DataFrame({x: values, "line": name, "rate_flop_per_s": rate}) for name, rate in rates_flop_per_s.items()]
    return pd.concat(each, ignore_index=True)


def kernels(work: Mapping[str, KernelTime]) -> pd.DataFrame:
    """Return kernels with their time, their share of the core's printed peak, and the engine with the most work.

    Examples
    --------
    >>> import trnmodel as tm
    >>> kernels({"product": tm.kernel.matmul("trainium2", 4096, 4096, 4096)}).bound.tolist()
    ['TensorE']
    """
    return tidy(
        {
            "kernel": name,
            "time_s": float(one.time_s),
            "share_of_peak": float(one.flop_per_s) / peak_flop_per_s(one.chip, one.dtype),
            "bound": str(one.bound).replace("fixed cost", "launch and waits"),
        }
        for name, one in work.items()
    )


def compared(by_tile_s: float, counted_s: float, step: Step, slower: Step) -> Markdown:
    """Return what the tiles of a step's products take, what the step counts for them, and what a step makes of it.

    Parameters
    ----------
    by_tile_s, counted_s : float
        Time of the products tile by tile, and as the step counts it. [s]
    step, slower : Step
        The step, and the same step with the time by tile. [-]

    Examples
    --------
    >>> from trnbook.shared import case
    >>> step = case.choice("llama-3.3-70b", "trn2.48xlarge").step
    >>> said = compared(0.0085, 0.0043, step, step).data
    >>> said.partition(". ")[0]
    '**Our line is optimistic:** tile by tile these products take 8.5 ms, and the line counts 4.3 ms for them'
    """
    assert by_tile_s > counted_s
    tiles, counts = (format_quantity(float(time_s), "s", 2) for time_s in (by_tile_s, counted_s))
    whole, longer = (format_quantity(float(one.time_s), "s", 3) for one in (step, slower))
    return Markdown(
        f"**Our line is optimistic:** tile by tile these products take {tiles}, and the line counts {counts} for them. "
        f"The step takes {whole} with our line and {'the same' if longer == whole else longer} with the longer time."
    )


def measured() -> pd.DataFrame:
    """Return the rows of all kernels with a published time, for `tm.validate`; `measured_s` is that time.

    Examples
    --------
    >>> bool((measured().measured_s > 0).all())
    True
    """
    times = evidence.table("kernels", quantity="time").set_index("id")
    rows = published().set_index("id").loc[times.index]
    kinds = [KINDS.get(group, "other kernels") for group in times.group]
    return rows.assign(measured_s=times.measured, called=times.kernel, kind_of_kernel=kinds).reset_index()


def timed(judged: pd.DataFrame) -> pd.DataFrame:
    """Return judged kernels with measured and predicted times; a row that states a rate is turned into its time.

    Examples
    --------
    >>> row = {"kind_of_kernel": "x", "chip": "trainium2", "called": "y", "unit": "%", "error": 1.0, "source": "z"}
    >>> timed(pd.DataFrame([row | {"measured_s": 2.0}])).predicted_s.tolist()
    [1.0]
    """
    slower = np.where(judged.unit.isin(TIMES), 1 + judged.error, 1 / (1 + judged.error))
    names = {"kind_of_kernel": "kind", "called": "kernel", "chip": "chip", "measured_s": "measured_s"}
    table = judged[[*names]].rename(columns=names)
    return table.assign(predicted_s=judged.measured_s * slower, error=slower - 1, source=judged.source)


def by_kind(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of timed kernels by kind, the best first: cases, median, nine of ten, and the worst.

    Examples
    --------
    >>> by_kind(pd.DataFrame({"kind": ["a", "a"], "error": [-0.1, 0.3]})).worst_error.tolist()
    [0.3]
    """
    rows = []
    for kind, errors in kernels.groupby("kind", sort=False).error:
        size = errors.abs()
        columns = {"median_error": size.median(), "p90_error": size.quantile(0.9), "bias": errors.median()}
        rows.append({"kind": kind, "cases": len(errors)} | columns | {"worst_error": errors.loc[size.idxmax()]})
    return tidy(rows).sort_values("median_error", kind="stable", ignore_index=True)


def off(errors: pd.DataFrame) -> str:
    """Return what a chart says of the errors by kind: the median of tuned products, and the largest median.

    Examples
    --------
    >>> off(pd.DataFrame({"kind": [TUNED, "others"], "median_error": [0.014, 0.16]}))
    'fitted: median error 1.4% for tuned products, at most 16% for another kind'
    """
    median = errors.set_index("kind").median_error
    return f"fitted: median error {median[TUNED]:.1%} for {TUNED}, at most {median.max():.0%} for another kind"


def counted() -> pd.DataFrame:
    """Return the products on Trainium3 whose counters were published, with errors before and after the constants.

    Examples
    --------
    >>> set("mnk") <= set(counted())
    True
    """
    swept = evidence.table("products")
    left = evidence.table("product_errors").set_index([*"mnk"]).left_out_error
    keys = pd.MultiIndex.from_frame(swept[[*"mnk"]])
    seconds = {f"{name}_s": swept[f"{name}_us"] * US for name in ("time", "tensor_engine_active", "gap", "evict")}
    errors = {"error": swept.error, "blind_error": swept.blind_error, "left_out_error": left.reindex(keys).to_numpy()}
    return swept[[*"mnk"]].assign(**seconds, cycles=swept.cycles, hbm_read_bytes=swept.hbm_read_bytes, **errors)


def left_out() -> pd.DataFrame:
    """Return calls of a framework with the error of a fit that has not seen the call.

    Examples
    --------
    >>> left_out().columns.tolist()
    ['kernel', 'error', 'group']
    """
    return evidence.table("kernels_left_out")


def counted_bytes() -> pd.DataFrame:
    """Return kernels whose bytes of HBM were counted, with the bytes that the model predicts.

    Examples
    --------
    >>> {"measured_bytes", "predicted_bytes"} <= set(counted_bytes())
    True
    """
    return side_by_side(evidence.table("kernels"), "bytes")


def set_aside() -> pd.DataFrame:
    """Return the reasons why published rows of kernels do not count, each with its number of rows.

    Examples
    --------
    >>> set_aside().columns.tolist()
    ['reason', 'rows']
    """
    return score.reasons(score.excluded(score.shipped("kernel")))[["reason", "rows"]]
