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
# # What limits a chip: memory or arithmetic?

# %% tags=["parameters"]
chip: str = "trainium3"
comparators: list[str] = ["h100", "b200", "mi300x", "tpu-v7"]
intensity_flop_per_byte: float = 300.0

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import chip_roofline as tables
from trnbook.chapters import chip_roofline_printed as printed
from trnbook.chapters import common, guard
from trnbook.shared import case

GENERATIONS, FORMATS = ["trainium1", "trainium2", "trainium3"], ["bf16", "cfp8", "mxfp8", "fp8", "int8"]
spec = tm.chip(chip)
guard.within(1e-6, 1e12, intensity_flop_per_byte=intensity_flop_per_byte)
guard.some(comparators=comparators)
dtype = next((name for name in FORMATS if name in spec.peak_flop_per_s), "")
guard.need(dtype != "", f"chip = {spec.id!r} has no printed peak in {', '.join(FORMATS)}")
everyone = common.peaks([*GENERATIONS, spec, *comparators], FORMATS).drop_duplicates(["chip", "dtype"])

# %% tags=["hide-input"]
peak, bandwidth = spec.peak(dtype), spec.hbm_bytes_per_s
ridge = float(tm.roofline.ridge_point_flop_per_byte(peak, bandwidth))
Markdown(tables.answer(spec, dtype, ridge, comparators))

# %% tags=["hide-input"]
charts.roofline(
    everyone,
    {"chip": spec.name, "dtype": dtype},
    marker=intensity_flop_per_byte,
    caption="Memory limits left of the ridge, arithmetic right of it",
    under="the thick line is the chip that you choose; move the slider to your kernel",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("chip-roofline")

# %% [markdown]
# ## Why the question matters
#
# A data sheet leads with the peak, the number of operations that a chip can do in a second. Few programs come near it, because
# every operand has to arrive before it can be multiplied. Model weights live in HBM, the stacks of memory beside the chip, and
# HBM delivers far fewer bytes per second than the chip could multiply.
#
# So a chip has two speeds, and a program meets only one of them. When a language model writes its answer token by token (*decode*),
# it reads all its weights for every token and does little with each: memory sets the pace. When it reads a long prompt (*prefill*), it
# uses each weight for thousands of tokens: arithmetic sets the pace. A buyer who compares peaks for decode compares the wrong
# number.
#
# ## The idea: how often is a byte used?
#
# Think of one weight. It takes the same time to arrive whether it is used once or a thousand times. Each sequence of the batch uses
# it for one multiplication and one addition, which count as two floating-point operations (FLOP). Step through the drawing:
# the bar of reading never changes, and the bar of multiplying grows with the batch.

# %% tags=["hide-input"]
stored_bytes = tables.stored_bytes(dtype)
tables.reuse(spec.name, stored_bytes, ridge * stored_bytes / 2)

# %% [markdown]
# The number of operations per byte is called the **arithmetic intensity**. It belongs to the program, not to the chip:
#
# $$I = \frac{W}{Q}$$
#
# $W$ is the work in FLOP, and $Q$ is the traffic in bytes between HBM and the cores. The matrix of a decode step has one weight of
# $w$ bytes for every $2B$ operations, where $B$ is the batch, so that
#
# $$I_\text{decode} = \frac{2B}{w}.$$
#
# In BF16 a weight takes two bytes, and the intensity is simply the batch. A product of two square matrices of side $N$ moves three
# matrices and does $2N^3$ operations. Its intensity grows with its side, which is why large matrix products can reach the peak:
#
# $$I_\text{square} = \frac{2N^3}{3N^2 w} = \frac{2N}{3w}.$$
#
# ## The roofline
#
# Now bring in the chip. It computes at most at its peak $P_0$, in FLOP per second, and HBM delivers at most $b$ bytes per second. If
# the chip reads and computes at the same time, the longer of the two times counts:
#
# $$t = \max(t_c,\, t_m), \qquad t_c = \frac{W}{P_0}, \qquad t_m = \frac{Q}{b}.$$
#
# $t_c$ is the time of the arithmetic and $t_m$ the time of the memory traffic. Divide the work by this time, and the rate $P$ depends on
# the intensity alone. This is the **roofline** of Williams, Waterman and Patterson (2009):
#
# $$P(I) = \min(P_0,\; I\,b).$$
#
# Left of the corner the rate rises with the intensity; right of it the rate is flat. The corner is the **ridge point**, the intensity
# at which memory and arithmetic take equally long:
#
# $$I^* = \frac{P_0}{b}.$$

# %% [markdown]
# ## An estimate by hand
#
# Take Trainium2 in BF16, for which AWS prints 667 TFLOP/s and 2.9 TB/s. One weight matrix with 8,192 rows and 8,192 columns holds 67
# million weights of two bytes. That is 134 MB, and reading it takes 46 µs. Multiplying one token's vector by it takes 134 million
# operations, which the peak does in 0.2 µs. The engines would wait 230 times as long as they work. With 230 tokens in the batch, both
# take the same time, and 230 FLOP per byte is the ridge point.

# %%
matrix_bytes, token_flop = 2 * 8192**2, 2 * 8192**2  # two bytes, and two operations, per weight
read_s, multiply_s = matrix_bytes / 2.9e12, token_flop / 667e12
assert f"{read_s * 1e6:.0f} µs, {multiply_s * 1e6:.1f} µs, {read_s / multiply_s:.0f}" == "46 µs, 0.2 µs, 230"
assert round(float(tm.roofline.ridge_point_flop_per_byte(667e12, 2.9e12))) == 230

# %% [markdown]
# ## The model: a larger batch is free until the ridge
#
# The roofline is short enough to write down here. The library's function gives the same values, and it also refuses impossible
# arguments. Change `peak` or `bandwidth` and run the cells below again.


# %%
def attainable(intensity, peak, bandwidth):
    """Rate that the roofline allows, in FLOP/s."""
    return np.minimum(peak, intensity * bandwidth)


batch = 2.0 ** np.arange(13)
intensity = 2 * batch / stored_bytes
assert np.allclose(
    attainable(intensity, peak, bandwidth), tm.roofline.attainable_flop_per_s(intensity, peak, bandwidth)
)

# %%
weights = 8192**2
work, moved = 2 * batch * weights, stored_bytes * weights * np.ones(13)
no_overlap_s = tm.roofline.time_s(work, moved, peak, bandwidth, overlap=0)
parts = {"reading": moved / bandwidth, "multiplying": work / peak, "one after the other": no_overlap_s}
times = pd.concat(pd.DataFrame({"batch": batch, "time_s": time_s, "part": part}) for part, time_s in parts.items())

# %% tags=["hide-input"]
charts.lines(
    times,
    x="batch",
    y="time_s",
    color="part",
    log_x=True,
    log_y=True,
    caption="Up to the ridge, a larger batch costs no time",
    under=f"one matrix of 8,192 x 8,192 weights in {dtype.upper()} on {spec.name}",
)

# %% [markdown]
# Read the chart from the left. Reading the matrix takes the same time for every batch, and it is longer than multiplying until the lines
# cross. The roofline follows the upper of the two lines. To the left of the crossing a server that adds a user pays nothing for it; to
# the right every user costs time.
#
# Real code overlaps reading and multiplying only in part. If it did not overlap them at all, the times would add up, and the sum is at
# most twice the roofline. Every time of this model lies between these two bounds, by an overlap $o$ from 0 to 1:
#
# $$t = o\,\max(t_c, t_m) + (1-o)\,(t_c + t_m).$$
#
# ## A whole decode step
#
# A decode step does not read weights alone. It also reads each sequence's *KV cache*, the stored keys and values of all earlier tokens.
# No other sequence uses these bytes, so a larger batch does not raise their intensity. The call below asks for the step of
# Llama-3.3-70B on one Trainium3 chip, from one sequence to as many as fit in its memory.

# %%
step = tm.decode_step(
    "llama-3.3-70b",
    "trn3-nl32x2-pcie160",
    tm.Mapping(tp=4, lnc=2),  # the four logical cores of one chip
    batch=2.0 ** np.arange(11),
    context=np.array([[128], [1024], [4096]]),
    precision="mxfp8",
)
steps = step.to_frame().query("valid")

# %%
steps["intensity_flop_per_byte"] = steps.work_flop_per_rank / steps.moved_bytes_per_rank
steps["line"] = steps.tokens.map("{:,.0f} tokens of context".format)
lone = pd.DataFrame({"batch": 2.0 ** np.arange(11), "line": "weights alone"})
lone["intensity_flop_per_byte"] = 2 * lone.batch / tables.stored_bytes("mxfp8")
trainium3 = tm.chip("trainium3")
corner = lone.assign(line="ridge point of Trainium3")
corner["intensity_flop_per_byte"] = float(
    tm.roofline.ridge_point_flop_per_byte(trainium3.peak("mxfp8"), trainium3.hbm_bytes_per_s)
)

# %% tags=["hide-input"]
charts.lines(
    pd.concat([corner, lone, steps]).drop(columns=["basis"]),
    x="batch",
    y="intensity_flop_per_byte",
    color="line",
    log_x=True,
    log_y=True,
    caption="Context keeps decode below the ridge",
    under="Llama-3.3-70B in MXFP8 on one chip; a line ends where its KV cache fills the memory",
)

# %% [markdown]
# With a short context the line follows $2B/w$ and crosses the ridge. With a longer one it bends away, and it ends before the ridge,
# because the cache has filled the chip's memory. This is why long contexts want bandwidth and capacity more than peak.
#
# ## Our line of the running case
#
# The case serves each model with an 8-bit format, so its line in this chapter is the chip's peak in that format. `tm.plan` finds the
# deployment, and its decode step says where it stands under that peak. The cell holds the peak against the strip above.

# %%
line = case.LINES[0]
rows = []
for model in case.PROMISES:
    for system in case.SYSTEMS:
        best = tm.plan(model, case.request(model), systems=system).best
        rows.append(tables.on_the_roofline(best))
        assert rows[-1]["peak_flop_per_s"] == case.value(line, model, system)

# %%
on_the_roofline = pd.DataFrame(rows)
on_the_roofline["ridge_flop_per_byte"] = tm.roofline.ridge_point_flop_per_byte(
    on_the_roofline.peak_flop_per_s, on_the_roofline.hbm_bytes_per_s
)
assert (on_the_roofline.intensity_flop_per_byte < on_the_roofline.ridge_flop_per_byte).all()
charts.table(
    on_the_roofline.drop(columns="hbm_bytes_per_s"),
    caption="Each decode step of the case lies left of the ridge",
    download="case-on-the-roofline",
)

# %% [markdown]
# The dense model serves few sequences per chip, yet its intensity is higher than its batch suggests. It uses *speculative decoding*: a
# small model drafts tokens, and the large one checks all drafts of a sequence in one step, so each weight is used several times. The
# mixture of experts needs a far larger batch, because each expert sees only the tokens that are routed to it.
#
# ## How do chips compare?
#
# The ridge point is a demand: it says how often software must reuse each byte before the peak counts. A high ridge is not a virtue. It
# means that a chip has much arithmetic for its bandwidth.

# %%
ridges = common.peaks([*GENERATIONS, *comparators], ["bf16", "mxfp8", "fp8"])
by_division = tm.roofline.ridge_point_flop_per_byte(ridges.peak_flop_per_s, ridges.hbm_bytes_per_s)
assert np.allclose(ridges.ridge_flop_per_byte, by_division)

# %% tags=["hide-input"]
charts.ranges(
    ridges,
    x="ridge_flop_per_byte",
    y="chip",
    color="dtype",
    caption="Trainium3 asks for least reuse in BF16",
    under="a bar spans what sources leave open; hollow is our estimate",
)

# %% [markdown]
# In BF16 Trainium3 has almost the peak of Trainium2 and much more bandwidth, so its ridge moved left. In MXFP8, an 8-bit format whose
# blocks of 32 values share a scale, its peak nearly doubled over Trainium2's FP8. The reason lies in the array. TensorE, the matrix engine of
# a core, multiplies with $r$ rows and $c$ columns at a clock of $f$, and a chip has $n$ cores:
#
# $$P_0 = 2\,r\,c\,f\,n.$$
#
# Array and clock for BF16 are the same on both chips. For MXFP8, Trainium3 feeds four values where BF16 feeds one. The table holds the
# formula against the peak that AWS prints for one core.

# %%
arrays = tables.arrays(GENERATIONS)
charts.table(arrays, caption="TensorE in BF16: array times clock, and the printed peak", download="arrays")

# %% [markdown]
# ## Does a smaller format help?
#
# A smaller format helps twice, in different places. Fewer bytes per weight speed up everything left of the ridge. A higher peak helps
# only right of it. Counted in sequences, the batch at which decode reaches the ridge is
#
# $$B^* = \frac{w}{2}\, I^* = \frac{w\,P_0}{2\,b}.$$
#
# W4A8 stores weights in four bits (MXFP4) and multiplies them in eight.

# %%
formats = tables.weight_formats(chip, ["bf16", "fp8", "mxfp8", "w4a8"])
at_ridge = tm.roofline.ridge_point_flop_per_byte(formats.peak_flop_per_s, spec.hbm_bytes_per_s)
formats["batch_at_ridge"] = at_ridge * formats.bytes_per_weight / 2
charts.table(formats, caption="Weights per second from HBM, and the batch at the ridge", download="formats")

# %% [markdown]
# ## Check against numbers that are not ours
#
# **Measured kernels.** If the roofline is a true bound, no kernel can run in less time than it allows. Two groups measured kernels together with
# the bytes that their profiler counted: SemiAnalysis ran matrix products on two cores of Trainium3, and the NKIBench of AccelOpt ran on one
# core of Trainium1. We give each core its part of the chip's peak and bandwidth.

# %%
kernels = printed.measured_kernels()
rates = kernels.peak_flop_per_s, kernels.hbm_bytes_per_s
kernels["roofline_s"] = tm.roofline.time_s(kernels.work_flop, kernels.moved_bytes, *rates, overlap=1)
kernels["time_over_roofline"] = kernels.measured_s / kernels.roofline_s
assert (kernels.time_over_roofline > 1).all()

# %% tags=["hide-input"]
charts.scatter(
    kernels,
    x="roofline_s",
    y="measured_s",
    color="chip",
    label="kernel",
    caption="No measured kernel beats its roofline",
    under="the line is the roofline; a point above it took longer",
)

# %% [markdown]
# Every point lies above the line, so the bound holds. The tuned products on Trainium3 come close to it. The kernels on Trainium1 mix
# matrix products with other work, and some take several times as long. The roofline is a limit, not a prediction; the next chapter predicts.
#
# **Printed totals.** AWS also prints peaks, memory and bandwidth for whole instances. Chips times our value per chip must give them.

# %%
totals = printed.printed_totals()
apart = tables.with_units(totals)[totals.difference.abs() > 0.01]
f"{len(totals) - len(apart)} of {len(totals)} printed totals agree within one percent"

# %%
charts.table(apart, caption="The totals that differ", download="totals-that-differ")

# %% [markdown]
# The differences are one disagreement, not several: AWS prints the bandwidth of the first generation's instances in GiB/s where other pages
# have GB/s for the same digits. We use the smaller reading.
#
# ## What moves the answer
#
# * **Reuse** is the one axis that software chooses: a larger batch, speculative decoding, larger tiles.
# * **Bandwidth** moves every time left of the ridge. Where AWS prints two values for a chip, we carry both.
# * **The format of the weights** moves time left of the ridge by the ratio of the bytes. The format of the arithmetic counts only right of it.
# * **Sparsity** is never assumed here. AWS prints higher peaks for weights with a fixed pattern of zeros, and `chip.peak("bf16", sparse=True)`
#   returns them.
#
# ## What is left out
#
# Tiles that do not fill the array, engines other than TensorE, and the clock's ramp: chapter 2. The bandwidth that DMA engines reach, and
# what one logical core sees of the memory: chapter 3. Links between chips: chapters 4 to 7. The inputs and outputs of the matrix in the first
# chart, which are small while the batch is much smaller than the matrix.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Count how often your program uses each byte before you compare peaks. Left of the ridge only bytes count, and decode lives there.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Which batch makes BF16 decode of a dense model compute-bound on Trainium1, if nothing but weights is read?
#
# ```{admonition} Answer
# :class: dropdown
# The intensity of BF16 decode is the batch, so the batch equals the ridge point: $190/0.82 = 232$.
# ```
#
# **2.** Trainium3 has 3.8 times Trainium2's BF16 rate in MXFP8. How much faster is a decode step that is memory-bound in both,
# with BF16 weights on the one and MXFP8 on the other?
#
# ```{admonition} Answer
# :class: dropdown
# A weight shrinks from 2 bytes to $8.25/8 = 1.03$ bytes, because 32 weights share a scale of eight bits. Bandwidth rises from 2.9 to
# 4.9 TB/s. Together that is $2/1.03 \times 4.9/2.9 = 3.3$ times. The peak does not enter.
# ```
#
# **3.** With no overlap at all, how far above the roofline can a time be, and where?
#
# ```{admonition} Answer
# :class: dropdown
# The sum of two times is at most twice the larger one, and exactly twice where they are equal. That is the ridge point.
# ```

# %% [markdown]
# ## Evidence
#
# ```{admonition} Which peaks and bandwidths are disputed?
# :class: dropdown
# * **Trainium1, BF16.** An older page of AWS prints 210 TFLOP/s, the newer ones print 190. We use the newer value.
# * **Trainium1, INT8.** AWS prints a rate, but no documented instruction of its cores multiplies INT8. It is kept as printed and is no peak here.
# * **Trainium3, plain FP8.** AWS prints the MXFP8 rate in a row headed FP8. Its page of the core and its kernel guide give that rate to the MX
#   formats alone, and the one instruction for plain FP8 doubles BF16. So plain FP8 counts as twice BF16, and it is marked as our estimate.
# * **GB or GiB.** Capacity is what the device lists, wherever a listing was found.
# ```

# %% tags=["hide-input"]
shown = list(dict.fromkeys([*GENERATIONS, spec.id, *(tm.chip(name).id for name in comparators)]))
charts.table(tables.rulings(shown), caption="Every ruling, with its reason", download="rulings", file_only=True)

# %% tags=["hide-input"]
about = ["peak_flop_per_s", "printed_peak_op_per_s", "hbm_bytes_per_s", "hbm_bytes"]
disputed = tables.disagreements(shown, about)
charts.table(disputed, caption="The same, row by row, as each source prints it", download="disputed", file_only=True)

# %% tags=["hide-input"]
columns = ["kernel", "chip", "cores", "roofline_s", "measured_s", "time_over_roofline", "source"]
charts.table(kernels[columns], caption="Measured kernels on their roofline", download="kernels", file_only=True)

# %% tags=["hide-input"]
shares = printed.measured_share_of_peak()
charts.table(shares, caption="Published shares of the peak", download="published-shares", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
used = used[used.quantity.isin(about) & used.entity.isin(shown)]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
