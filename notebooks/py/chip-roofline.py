# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 1
#     part: Chip
# ---

# %% [markdown]
# # What bounds a chip?

# %% tags=["parameters"]
chip: str = "trainium3"
comparators: list[str] = ["h100", "b200", "mi300x", "tpu-v7"]
intensity_flop_per_byte: float = 300.0

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import chip_roofline as tables
from trnbook.chapters import chip_roofline_printed as printed
from trnbook.chapters import common, guard
from trnbook.shared import case, ledger
from trnmodel.catalog import load
from trnmodel.units import TB, TFLOP, format_quantity, format_within

GENERATIONS = ["trainium1", "trainium2", "trainium3"]
DTYPES = ["bf16", "cfp8", "mxfp8", "fp8"]
spec = tm.chip(chip)
guard.within(1e-6, 1e12, intensity_flop_per_byte=intensity_flop_per_byte)
guard.some(comparators=comparators)
guard.need(
    any(dtype in spec.peak_flop_per_s for dtype in [*DTYPES, "int8"]),
    f"chip = {spec.id!r} has no printed peak in {', '.join(DTYPES)} or int8",
)

# %% tags=["hide-input"]
ridges = common.peaks([chip], [*DTYPES, "int8"])
lowest, fastest = ridges.iloc[ridges.ridge_flop_per_byte.argmin()], ridges.iloc[ridges.peak_flop_per_s.argmax()]
guess = charts.ours([row["dtype"].upper() for row in (lowest, fastest) if row.estimate])
edges = ["ridge_flop_per_byte", "ridge_flop_per_byte_low", "ridge_flop_per_byte_high"]
known = [name for name in comparators if lowest["dtype"] in tm.chip(name).peak_flop_per_s]
others = common.peaks(known, [lowest["dtype"]]).sort_values("ridge_flop_per_byte", kind="stable") if known else []
rivals = [f"{row.chip} {format_within(*row[edges].round())}" for _, row in others.iterrows()] if known else []
Markdown(
    common.card(
        tuple(lowest[edges].round()),
        f"so often must {spec.name} use a byte from HBM, in {lowest['dtype'].upper()}, before compute bounds it and no longer memory"
        + (
            f"; in {fastest['dtype'].upper()} {format_within(*fastest[edges].round())}"
            if fastest["dtype"] != lowest["dtype"]
            else ""
        ),
        unit="FLOP a byte",
        mark="ideal",
        rival=f"{'; '.join(rivals)} in {lowest['dtype'].upper()}" if rivals else "",
        alone="" if rivals else f"no chip beside it has a printed peak in {lowest['dtype'].upper()}",
        proof="Check: numbers that are not ours",
        more=f"{spec.name} multiplies at {format_quantity(fastest.peak_flop_per_s, 'FLOP/s')} in {fastest['dtype'].upper()} and reads "
        f"{format_quantity(spec.hbm_bytes_per_s, 'B/s')}. A decode step uses a weight for two FLOP per sequence of the batch, far to the "
        f"left of that point; a long prefill is to the right of it{guess}.",
    )
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("chip-roofline")

# %% [markdown]
# ## Notation
#
# Every value is read from `data/`; where sources disagree and nothing decides, the table prints a pair.

# %% tags=["hide-input"]
dtype = fastest["dtype"]
charts.table(
    common.notation(
        common.of_spec(
            spec, {f"peak_flop_per_s[{dtype}]": "P0", "hbm_bytes_per_s": "b", "hbm_bytes": "C", "cores": "n"}
        )
    ),
    caption=f"What this chapter calls things, for {spec.name}",
    download="notation",
)

# %% [markdown]
# ## The model
#
# A piece of work of $W$ FLOP that moves $Q$ bytes has the arithmetic intensity $I = W/Q$. A chip with peak $P_0$ and
# bandwidth $b$ runs it at most at
#
# $$P(I) = \min(P_0,\; I\,b), \qquad I^* = P_0 / b .$$
#
# $I^*$ is the ridge point. If transfer and compute overlap fully the time is $\max(W/P_0, Q/b)$; if not at all it is their
# sum, at most twice as long. Everything real lies between the two.
#
# **By hand.** Take Trainium2 in BF16. It is printed at 667 TFLOPS and 2.9 TB/s: $667/2.9 = 230$ FLOP a byte. A BF16 weight
# is two bytes and is used for one multiply-accumulate, two FLOP, for each sequence of the batch: the intensity of decode is
# about the batch, and 230 sequences are needed before the TensorE matters at all.

# %%
by_hand = tm.roofline.ridge_point_flop_per_byte(667 * TFLOP, 2.9 * TB)
float(by_hand)

# %% [markdown]
# ## The roofline of each generation

# %%
intensity = intensity_flop_per_byte * 10 ** np.arange(-2.5, 1.5, 0.05)
rooflines = tables.rooflines(GENERATIONS, DTYPES, intensity)
peaks = common.peaks(GENERATIONS, ["bf16", "mxfp8", "fp8"])
guessed = (peaks.chip + " " + peaks["dtype"].str.upper())[peaks.estimate]
roofs = peaks.pivot(index="chip", columns="dtype", values="peak_flop_per_s").loc[list(dict.fromkeys(peaks.chip))]
before, last = roofs.index[-2:]
plain, blocks = roofs.loc[last] / roofs.loc[before], roofs.mxfp8[last] / roofs.fp8[before]
still = " and ".join(name.upper() for name in plain.index[(plain < 1.1).values])
charts.lines(
    rooflines,
    x="intensity_flop_per_byte",
    y="attainable_flop_per_s",
    color="chip",
    shape="dtype",
    log_x=True,
    log_y=True,
    caption=f"From {before} to {last} only MXFP8 lifts the roof",
    under=f"each generation lifts the slope{charts.ours(guessed)}",
)

# %% [markdown]
# The slanted part is HBM, the flat part is TensorE. cFP8 on Trainium1 runs at the BF16 rate, so those two lines coincide.
# Choose a chip and a number format, and move the slider to your kernel's intensity:

# %%
every = common.peaks([*GENERATIONS, spec, *comparators], [*DTYPES, "int8"]).drop_duplicates(["chip", "dtype"])
charts.roofline(
    every,
    {"chip": spec.name, "dtype": "bf16" if "bf16" in spec.peak_flop_per_s else dtype},
    marker=intensity_flop_per_byte,
    caption="Memory bounds left of the ridge, compute right of it",
    under="a roof for each chip that has a peak in the format chosen",
)

# %% [markdown]
# ## Why BF16 stood still while MXFP8 doubled
#
# The rate of a systolic array is rows x columns x 2 FLOP x clock. Trainium2 and Trainium3 have the same 128 x 128 BF16 array
# at the same clock; Trainium3's MX array has 512 rows, where Trainium2 feeds its 128 rows with two FP8 values at a time
# (`double_row`, a contraction of 256). Trainium3 has that mode too, and no other instruction for plain FP8.

# %%
arrays = tables.arrays(GENERATIONS)
charts.table(
    arrays, caption="TensorE from its array and clock, against the printed peak of one NeuronCore", download="arrays"
)

# %%
charts.bars(
    peaks,
    x="chip",
    y="peak_flop_per_s",
    color="dtype",
    caption=f"{still} stood still, MXFP8 grew {blocks:.1f} times",
    under=f"from {before} to {last}, MXFP8 over {before}'s FP8{charts.ours(guessed)}",
)

# %% tags=["hide-input"]
heads = load.facts_rows()["trainium3/peak_flop_per_s:fp8/ah-trainium3"]
Markdown(
    f"**Plain FP8 on {last} is {format_quantity(roofs.fp8[last], 'FLOP/s')}, twice BF16, by our reckoning.** AWS's page prints "
    f"{heads.value_printed} {heads.unit_printed} in a row headed FP8 ({ledger.cited(heads.source)}), to stand beside {before}'s. Its "
    f"page of the core and its kernel guide give that rate to MXFP8 and MXFP4 alone, and the one instruction for plain FP8 "
    f"doubles BF16. Code that multiplies plain FP8 without `double_row` runs at the rate of BF16."
)

# %% [markdown]
# ## Ridge points: how much reuse a chip demands

# %%
everyone = common.peaks([*GENERATIONS, *comparators], ["bf16", "mxfp8", "fp8"])
charts.ranges(
    everyone,
    x="ridge_flop_per_byte",
    y="chip",
    color="dtype",
    caption="Trainium3's MXFP8 demands more than twice its BF16's reuse",
    under="in BF16 it demands less than Trainium2; a bar is what sources leave open"
    + charts.ours((everyone.chip + " " + everyone["dtype"].str.upper())[everyone.estimate]),
)

# %% [markdown]
# A bar is the pair that remains where sources disagree on peak or bandwidth and nothing decides.

# %%
charts.table(everyone, caption="Peaks, bandwidths and ridge points", download="ridge-points")

# %% [markdown]
# ## Several ceilings at once
#
# HBM is not the only thing that a byte passes. A large matrix multiply reads each operand tile from HBM once per block, from
# SBUF once per tile, and moves it by DMA; a sharded one also sends part of its result over the links. Each level has an
# intensity of its own, and the lowest ceiling bounds. For a square matrix multiply of side $N$, blocked to fit SBUF:

# %%
ceilings = tables.matmul_ceilings(chip, dtype, np.geomspace(256, 32_768, 57))
levels = ceilings.pivot(index="side", columns="level", values="ceiling_flop_per_s")
narrow, full = levels.idxmin(axis=1), levels.index[levels.compute <= levels.min(axis=1)]
charts.lines(
    ceilings,
    x="side",
    y="ceiling_flop_per_s",
    color="level",
    log_x=True,
    log_y=True,
    caption=f"The array bounds from side {full[0]:,.0f} on"
    if len(full)
    else f"{narrow.iloc[-1]} bounds even a side of {levels.index[-1]:,.0f}",
    under=f"a square matrix multiply in {dtype.upper()} on {spec.name}; the smallest is bounded by {narrow.iloc[0]}",
)

# %% [markdown]
# ## W4A8: four bits in HBM, eight bits in TensorE
#
# MXFP4 storage with MXFP8 compute halves the bytes of a weight (4.25 against 8.25 bits, block scales included) without
# changing the peak, so a memory-bound decode runs nearly twice as fast, and its ridge, counted in sequences of the batch,
# moves to the left.

# %%
formats = tables.weight_formats(chip, ["bf16", "fp8", "mxfp8", "w4a8"])
charts.bars(
    formats.drop(columns="estimate"),  # the peak does not enter
    x="precision",
    y="speed_over_bf16",
    caption="Each halving of the storage doubles the weights streamed",
    under=f"from HBM by {spec.name}, over BF16",
) if len(formats) > 1 else Markdown(f"Of these formats {spec.name} computes in one alone, so that none streams faster.")

# %%
charts.table(
    formats,
    caption="Weight formats: bytes, rate, and the batch at which compute takes over"
    + charts.ours(formats["compute"].str.upper()[formats.estimate]),
    download="formats",
)

# %% [markdown]
# **Structured sparsity** is printed as a peak of its own. It holds for weights that have the 4:16 (or similar) pattern and is
# off in every figure of this book unless a caller asks for it: `chip.peak("bf16", sparse=True)`.

# %%
sparse = common.peaks(GENERATIONS[1:], ["bf16"], sparse=True)
charts.table(sparse, caption="Structured-sparse peaks as printed, never the default", download="sparse-peaks")

# %% [markdown]
# ## What one logical device sees
#
# PyTorch sees logical NeuronCores. At LNC=1 each of Trainium3's eight cores is a device, at LNC=2 two are one; a whole chip as
# one device (LNC=8) is announced, and no SDK of today allows it. Two cores reach one bank of HBM: at LNC=1 each device may take what
# the other leaves.

# %%
devices = common.logical_cores(["trainium3"]).set_index("lnc")
share = {lnc: format_quantity(devices.hbm_bytes[lnc], "B") for lnc in (1, 2)}
Markdown(f"So a device of Trainium3 has {share[2]} at LNC=2 and a share of {share[1]} at LNC=1; chapter 3 shows both.")

# %% [markdown]
# ## Where the sources disagree
#
# Nothing is averaged away: the older Trn1 page prints 210 BF16 TFLOPS, the newer pages 190; both rows stay in `tm.facts()`
# with the reason for the choice. What is left open is carried as a low/high pair.

# %%
shown = list(dict.fromkeys([*GENERATIONS, spec.id, *(tm.chip(name).id for name in comparators)]))
charts.table(tables.rulings(shown), caption="Peaks and memory on which sources disagree", download="rulings")

# %% tags=["hide-input"]
bare, unreached = tm.chip("trainium1"), load.fact_in_force("trainium1", "printed_peak_op_per_s", "int8")[0]
listed = [one for one in map(tm.chip, shown) if "hbm_bytes" not in one.estimates]
lists = [f"{one.name} {format_quantity(one.hbm_bytes, 'B', 4)}" for one in listed]
Markdown(
    f"**Memory is what the device lists**, for every chip of which a listing was found: {', '.join(lists)}. A GB on a data sheet "
    f"is a trade name, mostly of a GiB. **A peak is one that an instruction reaches**: the {unreached.value_printed} INT8 {unreached.unit_printed} "
    f"that AWS prints for {bare.name} ({ledger.cited(unreached.source)}) are kept as printed and are no peak of it here, for "
    f"no documented instruction of its cores multiplies INT8."
)

# %% tags=["hide-output"]
charts.table(
    tables.disagreements(shown, ["peak_flop_per_s", "printed_peak_op_per_s", "hbm_bytes_per_s", "hbm_bytes"]),
    caption="The same, row by row, as each source prints it",
    download="disagreements",
    file_only=True,
)

# %% [markdown]
# ## Check: numbers that are not ours
#
# **Printed totals.** AWS prints instance and UltraServer totals; chips x our chip value must give them.

# %%
totals = printed.printed_totals()
named = tables.with_units(totals)
charts.table(named, caption="Chips x per-chip value against the printed total", download="totals")

# %% tags=["hide-input"]
apart = named[totals.difference.abs() > 0.01]
by_size = [
    f"{quantity} {difference:+.1%} on {', '.join(dict.fromkeys(rows.system))} ({', '.join(dict.fromkeys(rows.source))})"
    for (quantity, difference), rows in apart.groupby(["quantity", apart.difference.round(3)])
]
Markdown(
    f"{len(totals) - len(apart)} of {len(totals)} printed totals agree within 1 %. The others: {'; '.join(by_size) or 'none'}. "
    "GiB for GB explains 7 %; the table of decisions above has the rest."
)

# %% [markdown]
# **Measured.** A roof that nobody reaches is a marketing figure. What large matrix multiplies reached, as a share of the peak:

# %%
reached = printed.measured_share_of_peak()
charts.table(reached, caption="Measured matrix multiplies against the peak of the same scope", download="measured")

# %% tags=["hide-input"]
Markdown(
    f"The best tuned kernels reach {reached.share_of_peak.max():.0%} of the peak, the median row "
    f"{reached.share_of_peak.median():.0%}: the roofline is a bound, not a prediction. Chapter 2 predicts."
)

# %% [markdown]
# ## What moves the answer
#
# * **Batch and reuse.** Intensity is the one axis that software chooses.
# * **The HBM figure.** Where AWS prints two bandwidths for one chip, as for Trainium3, every memory-bound time carries the
#   pair; the table of disagreements above says who printed which.
# * **The storage format**, by the ratio of bits; **the compute format** only right of the ridge.
#
# ## What is left out
#
# Tiles that do not fill the array, engines other than TensorE, DMA efficiency and start-up, the clock ramp, achieved (not
# peak) HBM bandwidth: chapters 2 and 3. Links and collectives: chapters 4 to 7.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Compare chips by ridge point and bandwidth before you compare peaks: decode lives left of every ridge, where only bytes
# count.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Which batch makes BF16 decode of a dense model compute-bound on Trainium1, if nothing but weights is read?
#
# ```{admonition} Answer
# :class: dropdown
# Intensity of decode is about the batch (two FLOP a weight and sequence, two bytes a weight), so the batch equals the ridge
# point: 190/0.82 = 232.
# ```
#
# **2.** Trainium3 has 3.8 times Trainium2's BF16 rate in MXFP8. How much faster is a decode step that is memory-bound in both,
# with BF16 weights on the one and MXFP8 on the other?
#
# ```{admonition} Answer
# :class: dropdown
# Bytes per weight fall from 2 to 8.25/8 = 1.03, bandwidth rises from 2.9 to 4.9 TB/s: 2/1.03 x 4.9/2.9 = 3.3 times. The peak
# does not enter.
# ```
#
# **3.** With no overlap at all, how far above the roofline can a time be, and where?
#
# ```{admonition} Answer
# :class: dropdown
# max <= sum <= 2 max, with equality on the right at the ridge point, where both times are the same.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
about = used.quantity.isin(["peak_flop_per_s", "printed_peak_op_per_s", "hbm_bytes_per_s", "hbm_bytes"])
used = used[about & used.entity.isin(shown)]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
