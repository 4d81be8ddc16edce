# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 5
#     part: Understand
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
from trnbook.drawings import chip as drawings
from trnbook.shared import case

GENERATIONS = ["trainium1", "trainium2", "trainium3"]
guard.within(1e-6, 1e12, intensity_flop_per_byte=intensity_flop_per_byte)
guard.some(comparators=comparators)
spec, dtype, stored_bytes = tables.subject(chip)

# %% tags=["hide-input"]
ridge = float(tm.roofline.ridge_point_flop_per_byte(spec.peak(dtype), spec.hbm_bytes_per_s))
Markdown(tables.answer(spec, dtype, ridge, comparators))

# %% tags=["hide-input"]
charts.roofline(
    common.peaks([*GENERATIONS, spec, *comparators], tables.FORMATS).drop_duplicates(["chip", "dtype"]),
    {"chip": spec.name, "dtype": dtype},
    marker=intensity_flop_per_byte,
    highlight=[tm.chip(name).name for name in dict.fromkeys([*GENERATIONS, spec.id])],
    caption="Memory limits left of the ridge, arithmetic right of it",
    under="dotted: the ridge of the chosen chip; choose a chip and move the slider",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Most
# chapters of this part add a line, which they explain, and the last lines are those of the first page.

# %% tags=["hide-input"]
case.table("chip-roofline")

# %% [markdown]
# ## Why the question matters
#
# A data sheet leads with the peak, the number of operations that a chip can do in a second. Few programs come near it, because every
# operand has to arrive before it can be multiplied. The weights of a model live in HBM, the stacks of memory beside the chip, and HBM
# delivers them far more slowly than the chip can multiply them.
#
# When a language model writes its answer token by token (*decode*), it reads all its weights for every token and does little with each, so
# memory sets the pace. When it reads a long prompt (*prefill*), it uses each weight for thousands of tokens, so arithmetic sets the pace. A
# buyer who compares peaks for decode compares the wrong number.
#
# ## The idea: how often is a byte used?
#
# Think of one weight. It takes the same time to arrive whether it is used once or a thousand times. Each sequence of the batch uses it for
# one multiplication and one addition, which count as two floating-point operations (FLOP). Step through the drawing: the bar of
# reading never changes, and the bar of multiplying grows with the batch.

# %% tags=["hide-input"]
tables.reuse(spec, stored_bytes, ridge * stored_bytes / 2)

# %% [markdown]
# The work done per byte is called the **arithmetic intensity** $I$. It belongs to the program, not to the chip:
#
# $$I = \frac{W}{Q}.$$
#
# $W$ is the work in FLOP, and $Q$ is the traffic in bytes between HBM and the cores. In decode, a batch of $B$ sequences does $2B$ operations
# with each weight of $w$ bytes:
#
# $$I_\text{decode} = \frac{2B}{w}.$$
#
# In BF16 a weight takes two bytes, so the intensity of decode is simply the batch. A product of two square matrices of side $N$ does $2N^3$ operations and moves three matrices of $N^2$ elements. Its intensity grows with
# its side, which is why prefill and training can come near the peak:
#
# $$I_\text{square} = \frac{2N^3}{3N^2 w} = \frac{2N}{3w}.$$
#
# ## The roofline
#
# Now bring in the chip. It computes at most at its peak $P_0$, in FLOP per second, and HBM delivers at most $b$ bytes per second. If
# reading and computing overlap, the longer of the two times counts:
#
# $$t = \max\left(\frac{W}{P_0},\; \frac{Q}{b}\right).$$
#
# Divide the work by this time, and the rate $P$ depends on the intensity alone. This is the **roofline** of Williams, Waterman and
# Patterson. Its corner is the **ridge point** $I^*$, the intensity at which memory and arithmetic take equally long:
#
# $$P(I) = \min(P_0,\; I\,b), \qquad I^* = \frac{P_0}{b}.$$

# %% [markdown]
# ## An estimate by hand
#
# Take Trainium2 in BF16, for which AWS prints 667 TFLOP/s and 2.9 TB/s. A square weight matrix with 8,192 rows holds 67 million weights.
# At two bytes each that is 134 MB, and reading it takes 46 µs. Multiplying one token's vector by it takes 134 million
# operations, which the peak does in 0.2 µs. So reading takes 230 times as long as multiplying. With 230 tokens in the batch, both take
# the same time. The ridge point is 230 FLOP per byte.

# %% tags=["hide-input"]
matrix_bytes, token_flop = 2 * 8192**2, 2 * 8192**2  # two bytes, and two operations, per weight
read_s, multiply_s = matrix_bytes / 2.9e12, token_flop / 667e12
assert f"{matrix_bytes / 1e6:.0f} MB, {read_s * 1e6:.0f} µs, {multiply_s * 1e6:.1f} µs" == "134 MB, 46 µs, 0.2 µs"
assert round(read_s / multiply_s) == round(float(tm.roofline.ridge_point_flop_per_byte(667e12, 2.9e12))) == 230

# %% [markdown]
# ## A whole decode step
#
# A decode step does not read weights alone. It also reads each sequence's *KV cache*, the stored keys and values of all earlier tokens.
# No other sequence uses these bytes, so a larger batch does not raise their intensity. We ask `tm.decode_step` for Llama-3.3-70B
# on one Trainium3 chip, and double the batch as long as the cache still fits in its memory.

# %%
batch = 2.0 ** np.arange(11)
step = tm.decode_step(
    "llama-3.3-70b",
    "trn3-nl32x2-pcie160",
    tm.Mapping(tp=4, lnc=2),  # the four logical cores of one chip
    batch=batch,
    context=np.array([[128], [1024], [4096]]),
    precision="mxfp8",
)
steps = step.to_frame().query("valid").assign(line=lambda s: s.tokens.map("{:,.0f} tokens of context".format))
steps["intensity_flop_per_byte"] = steps.work_flop_per_rank / steps.moved_bytes_per_rank

# %% tags=["hide-input"]
trainium3 = tm.chip("trainium3")
corner = tm.roofline.ridge_point_flop_per_byte(trainium3.peak("mxfp8"), trainium3.hbm_bytes_per_s)
lone = pd.DataFrame({"batch": batch, "intensity_flop_per_byte": 2 * batch / tables.stored_bytes("mxfp8")})
ridge_line = lone.assign(intensity_flop_per_byte=float(corner), line="ridge point of Trainium3")
charts.lines(
    pd.concat([ridge_line, lone.assign(line="weights alone"), steps]).drop(columns="basis"),
    x="batch",
    y="intensity_flop_per_byte",
    color="line",
    log_x=True,
    log_y=True,
    caption="A long context keeps decode below the ridge",
    under="Llama-3.3-70B in MXFP8 on one chip; batches double until memory is full",
)

# %% [markdown]
# With a short context the line follows $2B/w$ and crosses the ridge. With a longer one it bends away and ends below the ridge, because
# the cache fills the memory first. Long contexts need bandwidth and capacity more than peak.

# %% [markdown]
# ## Our line of the running case
#
# The case serves each model with an 8-bit format, so its line in this chapter is the chip's peak in that format. `tm.plan` finds the
# deployment, and its decode step says how far below that peak it works.

# %%
rows = []
for model in case.PROMISES:
    for system in case.SYSTEMS:
        best = tm.plan(model, case.request(model), systems=system).best
        rows.append(tables.on_the_roofline(best))
        assert rows[-1]["peak_flop_per_s"] == case.value(case.LINES[0], model, system)
placed = pd.DataFrame(rows)
bandwidths = placed.pop("hbm_bytes_per_s")
placed["ridge_flop_per_byte"] = tm.roofline.ridge_point_flop_per_byte(placed.peak_flop_per_s, bandwidths)
assert (placed.intensity_flop_per_byte < placed.ridge_flop_per_byte).all()
charts.table(placed, caption="Each decode step of the case lies left of the ridge", download="case-on-the-roofline")

# %% [markdown]
# The dense model serves few sequences, yet its intensity is far above the $2B/w$ of its batch. It uses *speculative decoding*: a small model drafts
# tokens, and the large one checks all drafts of a sequence in one step, so it uses each weight several times. The mixture of experts
# needs a far larger batch, because each expert sees only the tokens that are routed to it.
#
# ## How do chips compare?
#
# The ridge point is a demand on software: each byte must be reused that much before the peak counts.

# %% tags=["hide-input"]
ridges = common.peaks([*GENERATIONS, *comparators], ["bf16"])
by_division = tm.roofline.ridge_point_flop_per_byte(ridges.peak_flop_per_s, ridges.hbm_bytes_per_s)
assert np.allclose(ridges.ridge_flop_per_byte, by_division)
charts.bars(
    ridges,
    "chip",
    "ridge_flop_per_byte",
    highlight=["Trainium3"],
    caption="In BF16 Trainium3 needs less reuse than Trainium2",
    under="the whisker spans what sources leave open",
)

# %% [markdown]
# In BF16 Trainium3 has almost the peak of Trainium2 and much more bandwidth, so its ridge moved left. In MXFP8, an 8-bit format whose
# blocks of 32 values share a scale, its matrix engine takes four values in the place of one, and the ridge lies far to the right.

# %% [markdown]
# ## Check against numbers that are not ours
#
# **Measured kernels.** If the roofline is a true bound, no kernel runs in less time than it allows. These are all
# kernels we found whose time, work and bytes were published. Matrix products on two cores of Trainium3 test the flat part of the roof.
# NKIBench on one core of Trainium1 tests both parts. We give each core its part of the chip's peak and bandwidth.

# %%
kernels = printed.measured_kernels()
rates = kernels.peak_flop_per_s, kernels.hbm_bytes_per_s
kernels["roofline_s"] = tm.roofline.time_s(kernels.work_flop, kernels.moved_bytes, *rates, overlap=1)
assert (kernels.measured_s > kernels.roofline_s).all()
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
# Every point lies above the line, so the bound holds on Trainium1 and Trainium3. None of these kernels ran on Trainium2. Large tuned products
# on Trainium3 come close to the line. Kernels on Trainium1 mix products with other work, and some take more than three times as long as the
# roofline. A core that runs alone may get more than its part of the chip's bandwidth. Its own roofline then allows a shorter time than the
# chart does, and the kernel lies further above it. The roofline is a limit and not a prediction. The next chapter predicts.

# %% [markdown]
# ## What moves the answer, and what is left out
#
# * **Reuse** is the one axis that software chooses: a larger batch, speculative decoding, larger tiles.
# * **Bandwidth** moves every time left of the ridge. Where AWS prints two values, as for Trainium3, we carry both.
# * **Formats**: the bytes of a weight count left of the ridge, and the peak counts right of it.
# * **Sparsity** is never assumed. AWS prints higher peaks for weights with a fixed pattern of zeros; `chip.peak("bf16", sparse=True)`
#   returns them.
#
# The roofline leaves out how well a core is used: tiles that do not fill the array, its other engines, and the clock's ramp ([What can one NeuronCore do?](neuroncore.ipynb)).
# It leaves out the bandwidth that is reached in practice ([How fast do bytes reach a NeuronCore?](memory.ipynb)) and the links between chips ([What is in a rack?](rack.ipynb)). The matrix of our
# example also reads inputs and writes outputs, which are small while the batch is much smaller than its side.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Count how often your program uses each byte before you compare peaks. Left of the ridge only bytes count, and most decode is there.
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
# ## Further: full pipes, overlap, and smaller formats
#
# **How full is the pipe?** Step through the drawing. On the left of the ridge the pipe from HBM is full and the engines wait; on the right the engines
# are busy and the pipe has room.

# %% tags=["hide-input"]
drawings.roofline_idea(spec, dtype) if spec.core else drawings.roofline_idea()

# %% [markdown]
# The model is short enough to write down, and the library's function gives the same values. The code of the table below defines it; in
# JupyterLab, change `peak` or `bandwidth` and watch the ridge move. If reading and computing did not overlap at all, their times
# would add up. The sum is at most twice the roofline, and real programs lie between the two.


# %%
def attainable(intensity, peak, bandwidth):
    return np.minimum(peak, intensity * bandwidth)


peak, bandwidth = spec.peak(dtype), spec.hbm_bytes_per_s  # yours to change
batch = np.array([1, 16, 64, 256, 1024])
work, moved = 2.0 * batch * 8192**2, stored_bytes * 8192**2 * np.ones(5)
rate = attainable(work / moved, peak, bandwidth)
assert np.allclose(rate, tm.roofline.attainable_flop_per_s(work / moved, peak, bandwidth))
columns = {"batch": batch, "intensity_flop_per_byte": work / moved, "attainable_flop_per_s": rate}
bounds = tm.roofline.time_s(work, moved, peak, bandwidth, overlap=np.array([[1], [0]]))
columns |= {"lower_s": bounds[0], "upper_s": bounds[1]}
charts.table(pd.DataFrame(columns), caption="A larger batch costs no time until the ridge", download="batches")

# %% [markdown]
# **Where does prefill lie?** It uses each weight for all tokens of the prompt at once.

# %%
prompt = tm.prefill(
    "llama-3.3-70b", "trn3-nl32x2-pcie160", tm.Mapping(tp=4, lnc=2), input_tokens=4096, precision="mxfp8"
)
reached = float(prompt.work_flop_per_rank / prompt.moved_bytes_per_rank)
Markdown(
    f"The prefill of a prompt of 4,096 tokens reaches {reached:,.0f} FLOP per byte, far to the right of the ridge."
)

# %% [markdown]
# **Does a smaller format help?** Fewer bytes per weight speed up everything left of the ridge. A higher peak helps only right of it. Counted in sequences, the batch at
# which decode reaches the ridge is
#
# $$B^* = \frac{w}{2}\, I^* = \frac{w\,P_0}{2\,b}.$$
#
# W4A8 stores weights in MXFP4, a format of four bits, and multiplies them in MXFP8. It reads almost twice as many weights per
# second as MXFP8 does, and it needs about half the batch.

# %%
formats = tables.weight_formats(chip, ["bf16", "fp8", "mxfp8", "w4a8"])
at_ridge = tm.roofline.ridge_point_flop_per_byte(formats.peak_flop_per_s, spec.hbm_bytes_per_s)
formats["batch_at_ridge"] = at_ridge * formats.bytes_per_weight / 2
charts.table(formats, caption="Weights read per second, and the batch at the ridge", download="formats")

# %% [markdown]
# ## Evidence
#
# ```{admonition} Which peaks and bandwidths are disputed?
# :class: dropdown
# * **Trainium3, HBM bandwidth.** [AWS's architecture
#   page](https://github.com/aws-neuron/aws-neuron-sdk/blob/81ce03ae261e12925e53437a0f690478e6366155/about-neuron/arch/neuron-hardware/trainium3.rst)
#   prints 4.9 TB/s, and AWS's guide for kernels prints 4.7 TB/s. A profile taken on the hardware implies 4.715 TB/s. We use the larger value,
#   which the printed totals of the UltraServers also give, and carry the smaller one as the low end.
# * **Trainium1, BF16.** An older page of AWS prints 210 TFLOP/s, the newer ones print 190. We use the newer value.
# * **Trainium1, INT8.** AWS prints a rate, but no documented instruction of its cores multiplies INT8. It is kept as printed and is no peak here.
# * **Trainium3, plain FP8.** AWS prints the MXFP8 rate in a row headed FP8. Its page of the core and its kernel guide give that rate to the MX
#   formats alone, and the one instruction for plain FP8 doubles BF16. So plain FP8 counts as twice BF16, and it is marked as our estimate.
# * **Chip or core.** The peak that AWS prints for a chip is a few percent more than its cores times the peak that AWS prints for a core. This
#   chapter uses the chip's value; array times clock gives the core's value.
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
columns = ["kernel", "chip", "cores", "roofline_s", "measured_s", "source"]
charts.table(kernels[columns], caption="Measured kernels and their roofline", download="kernels", file_only=True)

# %% [markdown]
# **Printed totals.** AWS also prints peaks, memory and bandwidth for whole instances. The number of chips times our value per chip must
# give the same. Where they do not, it is one disagreement: for the first generation, AWS prints the bandwidth of instances in GiB/s and that
# of chips in GB/s, with the same digits. We use the smaller reading.

# %%
totals = printed.printed_totals()
agree = totals.difference.abs() < 0.01
Markdown(f"{agree.sum()} of {len(totals)} printed totals agree with ours within one percent.")

# %% tags=["hide-input"]
charts.table(tables.with_units(totals), caption="Every printed total", download="totals", file_only=True)

# %% tags=["hide-input"]
arrays = tables.arrays(GENERATIONS)
assert (arrays.difference.abs() < 0.01).all()
charts.table(arrays, caption="Array times clock, and the printed peak", download="arrays", file_only=True)

# %% tags=["hide-input"]
shares = printed.measured_share_of_peak()
charts.table(shares, caption="Published shares of the peak", download="published-shares", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
used = used[used.quantity.isin(about) & used.entity.isin(shown)]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
