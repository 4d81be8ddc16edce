# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 6
#     part: Understand
# ---

# %% [markdown]
# # What can one NeuronCore do?

# %% tags=["parameters"]
chip: str = "trainium2"
m: int = 4096
n: int = 7168
k: int = 8192
dtype: str = "bf16"

# %% tags=["hide-input"]
from dataclasses import replace

import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import neuroncore as tables
from trnbook.drawings import chip as drawings
from trnbook.shared import case, ledger

spec = tm.chip(chip)
guard.neuroncore(chip=spec)
guard.one_of(spec.core.tensor.peak_flop_per_s, dtype=dtype)
guard.within(1, 1e12, m=m, n=n, k=k)
known = tm.facts().query("quantity == 'busy_core_share'").entity
guard.need(spec.id in set(known), f"chip = {spec.id!r}: nobody says how fast its cores are all at once")
peak = tables.peak_flop_per_s(spec, dtype)

# %% tags=["hide-input"]
large = [tm.kernel.matmul(chip, *[16384] * 3, dtype, stack=name) for name in ("stack-nki", "stack-torch-compile-beta2")]
together = tm.kernel.matmul(chip, *[16384] * 3, dtype, busy_cores=spec.cores)
Markdown(tables.answer(*large, together, dtype) + "\n\n" + ledger.rests_on("stack-nki", "stack-torch-compile-beta2"))

# %% tags=["hide-input"]
side = np.round(np.geomspace(64, 16384, 65))
square = tm.kernel.matmul(chip, side, side, side, dtype)
called = tm.kernel.matmul(chip, side, side, side, dtype, stack="stack-torch-compile-beta2")
rates = {"roofline": square.flop / square.roofline_s, "tuned kernel": square.flop_per_s}
charts.lines(
    tables.curves("side", side, rates | {"torch.compile": called.flop_per_s}),
    x="side",
    y="rate_flop_per_s",
    color="line",
    highlight=["tuned kernel", "torch.compile"],
    log_x=True,
    caption="Only large products come near the peak of a core",
    under=f"square matrices in {dtype.upper()}, one core of {spec.name} at work alone",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book. The last line of the table is this chapter's.

# %% tags=["hide-input"]
case.table("neuroncore")

# %% [markdown]
# ## The idea: engines around one memory
#
# The peak of a core assumes full matrix instructions without a gap. [The roofline](chip-roofline.ipynb) says what no program can beat. This chapter
# predicts what a program reaches, from the shape of its matrices.
#
# Four engines work side by side, each with its own list of instructions. The *Tensor engine* multiplies matrices. The *Vector engine* adds,
# scales and copies along rows. The *Scalar engine* evaluates functions such as the exponential. The *GpSimd engine* runs small programs for
# the rest. They share the *SBUF*, a memory that software fills, not a cache. *DMA engines* (direct memory access) copy between the SBUF and
# HBM. Products collect in the *PSUM*, a second memory that adds to what it holds.

# %% tags=["hide-input"]
drawings.neuroncore(spec)

# %% [markdown]
# ## A product, tile by tile
#
# The Tensor engine is a *systolic array*, a grid of multipliers. It holds one tile of the first matrix, the *stationary* one. Columns of
# the second matrix, the *moving* one, stream past it. In each cycle one column enters, and one column of sums leaves. Step through it:

# %% tags=["hide-input"]
drawings.product_by_tile(spec, dtype)

# %% [markdown]
# The sizes follow from the memories. The SBUF has 128 partitions, each of which feeds a row of the array, so a tile covers $R = 128$ steps of
# the sum over $K$. A bank of PSUM holds 512 sums of four bytes per partition, so at most $V_0 = 512$ columns stream. With $C = 128$ columns
# of multipliers and a clock $f$, the peak is
#
# $$ P_0 = 2\,R\,C\,f . $$
#
# This is the peak in BF16. Eight-bit formats put two or four values in the place of one, so $R$ is 256 or 512.
# An instruction streams $v$ columns past $s$ stationary ones. The next stationary tile is loaded while the current one works, which takes
# $\min(c_0, s)$ cycles, with $c_0 = 64$. Two instructions start at least that far apart. If fewer columns stream, the array
# waits. A further $c_1$ cycles are what a tuned kernel cannot hide: 60 on Trainium1, about 12 on later cores. Together an instruction takes
#
# $$ \tau = \frac{\max\bigl(v,\ \min(c_0, s)\bigr) + c_1}{f} . $$
#
# A product of $M \times K$ by $K \times N$ adds up all its instructions, and a tile at the edge costs nearly as much as a full one. The
# *utilisation* $u$ is what is left of the peak:
#
# $$ t_T = \Bigl\lceil\frac{K}{R}\Bigr\rceil \sum_{s}\sum_{v} \tau , \qquad u = \frac{2\,M N K}{P_0\, t_T} . $$
#
# ## An estimate by hand
#
# Multiply two square BF16 matrices of side 2,048 on a core of Trainium2, with $16 \times 16 \times 4 = 1{,}024$ instructions:
#
# | term | µs | where it comes from |
# |---|---|---|
# | instructions of $512 + 12$ cycles at 2.4 GHz | 224 | sizes and clock by AWS, the 12 cycles by counters of Trainium3 |
# | waiting for copies out of the PSUM, 48% of 21 µs | 10 | share fitted to counters of Trainium3 |
# | ramp of the clock, a quarter of 3 µs | 0.75 | AWS |
# | filling | 15.5 | fitted to the two kernels below |
# | two starts of DMA, 1.3 µs each | 2.6 | AWS |
# | **sum** | **253** | two tuned kernels took 244 and 261 µs |
#
# The Vector engine makes 64 copies of $128 \times 512$ sums. Each takes $512/2 + 60$ cycles at 0.96 GHz, so all of them take 21 µs.
# To spare the power supply, the clock rises evenly from half to full rate in 3 µs, so it loses a quarter of that time. During *filling* the
# first tiles come in, or the last one leaves, and the Tensor engine has nothing to do.

# %%
cube = tm.kernel.matmul("trainium2", 2048, 2048, 2048)
instructions_us = 1024 * (512 + 12) / 2400
by_hand_us = instructions_us + 0.48 * 21 + 0.5 / 2 * 3 + 15.5 + 2 * 1.3
assert round(64 * (512 / 2 + 60) / 960) == 21
assert f"{instructions_us:.0f} {cube.vector_s * 1e6:.0f} {by_hand_us:.0f} {cube.time_s * 1e6:.0f}" == "224 21 253 253"

# %% [markdown]
# ## Which engine sets the time?
#
# A good kernel keeps two buffers for everything, so that engines need not wait for each other. Then the engine $i$ with the longest work $t_i$
# sets the time. What does not overlap is added. This is $t_0$, which is launch, filling and waits for signals, and the share $1 - o$ of the
# copies $t_E$ for which the Tensor engine waits.
#
# $$ t = t_0 + \max\bigl[\,t_T + (1 - o)\,t_E,\ t_V,\ t_S,\ t_G,\ t_\text{DMA}\bigr] $$
#
# Each kind of work loads the engines differently. Attention takes one exponential per score, which the Scalar engine evaluates on Trainium2.
# On Trainium3, says AWS's guide, the Vector engine does it four times as fast. Change a line and run the cell again:

# %%
prompt = {"m": m, "n": n, "k": k, "dtype": dtype}
changes = {"the product of this page": {}, "513 rows": {"m": 513}, "32 rows, as in decode": {"m": 32}}
changes |= {"a wait per instruction": {"buffering": "none"}, "all cores at work": {"busy_cores": spec.cores}}
changes |= {"called through torch.compile": {"stack": "stack-torch-compile-beta2"}}
work = {name: tm.kernel.matmul(chip, **(prompt | change)) for name, change in changes.items()}
for name in ("trainium2", "trainium3"):
    attention = tm.kernel.attention(name, 4096, 4096, heads=16, kv_heads=2)
    work[f"attention of a prompt on {name}"] = attention
charts.table(tables.kernels(work), caption="The engine with the most work sets the time", download="work")

# %% [markdown]
# "Launch and waits" means that $t_0$ is longer than the work of any engine. By default the product of this page is one of
# Llama-3.3-70B, for a prompt on one of four ranks. A kernel with a single buffer waits for a signal at
# every instruction. A framework adds a launch from the host, and copies that nothing hides. With **all cores at work**, two sources measured on
# Trainium2, a core reaches 67 to 82% of what it reaches alone. No source says why; a limit of power would explain it.
#
# **How much must the SBUF hold?** A block of $b_m$ rows and $b_n$ columns of the output stays in it while the sum over $K$ runs. Each left
# operand is read once per column of blocks, and each right one once per row of blocks. With $w$ bytes per value the traffic and the intensity are
#
# $$ Q = w\,K\Bigl(M\Bigl\lceil\frac{N}{b_n}\Bigr\rceil + N\Bigl\lceil\frac{M}{b_m}\Bigr\rceil\Bigr) + w\,M N , \qquad
# I_\text{block} \approx \frac{2}{w}\,\frac{b_m\,b_n}{b_m + b_n} . $$
#
# **By hand.** With square blocks and two bytes, $I$ is half of the block's side. A core of Trainium2 needs $79{,}000 / 368 = 215$ operations per byte,
# its peak over the rate of its DMA engines. A block of 256 is too small, and one of 512 is large enough. Its sums take 1 of the 28 MiB.

# %%
blocked = tm.kernel.matmul("trainium2", *[8192] * 3, block_rows=[256, 512], block_columns=[256, 512])
assert blocked.bound.tolist() == ["DMA", "TensorE"]

# %% [markdown]
# ## Our line of the running case
#
# The step model adds up the work $W_j$ of all products. It divides by the peak $P_j$ of a product's format and by the share $\eta$ of it that the
# software reaches:
#
# $$ t_\text{compute} = \sum_j \frac{W_j}{\eta\,P_j} $$
#
# **By hand.** A step of Llama takes 32 rows: four sequences with eight tokens each, seven of them drafted. On Trainium2 each of four ranks does
# $139.0 \times 32 / 4 = 1{,}112$ GFLOP of matrices in FP8, and $12.1 \times 32 / 4 = 97$ GFLOP of attention in BF16. Its peak is a quarter of the
# chip's 1,299 or 667 TFLOP/s, and we assume $\eta = 0.8$. The matrices take 4.3 ms, and attention adds 0.7 ms. The attention
# is more than the 11.4 GFLOP of [What does a model need of a machine?](model-needs.ipynb), because the compiled graph always attends to 4,608 tokens.

# %% tags=["hide-input"]
line = next(one for one in case.LINES if one.chapter == "neuroncore")
for model in case.PROMISES:
    for system in case.SYSTEMS:
        step = tm.plan(model, case.request(model), systems=system).best.step
        assert step.compute_s == case.value(line, model, system)
by_hand_s = 1112e9 / (0.8 * 1299e12 / 4) + 97e9 / (0.8 * 667e12 / 4)
assert abs(by_hand_s / case.value(line, "llama-3.3-70b", "trn2.48xlarge") - 1) < 5e-3

# %% [markdown]
# Is one share for all shapes optimistic? Add up the tiles of the four products of each of the 80 layers:

# %%
plan = case.choice("llama-3.3-70b", "trn2.48xlarge")
wide, deep = [2560, 8192, 14336, 8192], [8192, 2048, 8192, 7168]  # qkv, output, gate and up, down
tiles = tm.kernel.matmul("trainium2", 32, wide, deep, "fp8", lnc=2)
matrices_s = 1112e9 / (0.8 * 1299e12 / 4)
slower = replace(plan.stack, decode_matmul_share=0.8 * float(matrices_s / (80 * tiles.tensor_s.sum())))
ask = {"batch": plan.batch, "context": 4352, "max_context": 4608, "new_tokens": 8, "precision": plan.precision}
again = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", plan.degrees, **ask, efficiencies=slower)
tables.compared(80 * tiles.tensor_s.sum(), matrices_s, plan.step, again)

# %% [markdown]
# An instruction with 32 rows streams for 32 cycles and then waits as long for the next tile. Our one share for all shapes ignores this wait.
# It costs little where the core multiplies while it reads its weights ([How fast do bytes reach a NeuronCore?](memory.ipynb)). A long prompt fills the tiles, and
# there arithmetic counts.
#
# ## Check: kernels that others measured
#
# `tm.validate` predicts every kernel with a published time. A point above the line took longer than predicted.

# %% tags=["hide-input"]
judged = tables.timed(tm.validate(tables.measured()))
errors = tables.by_kind(judged)

# %% tags=["hide-input"]
charts.scatter(
    judged[judged.measured_s > 1e-5],
    x="predicted_s",
    y="measured_s",
    color="kind",
    label="kernel",
    caption="Tuned products run as predicted, other kernels slower",
    under=tables.off(errors),
).properties(height=150)

# %% tags=["hide-input"]
assert (judged.measured_s <= 1e-5).sum() == 1
Markdown(tables.unseen())

# %% [markdown]
# The chart is not blind: overhead, filling and the wait for copies come from counters of Trainium3's products, and each framework has a
# launch cost fitted to its calls. **Left out** of the model
# are conflicts of banks in SBUF and PSUM, the port that GpSimd shares with the Vector engine, spills to HBM, and the compiler's choice of tiles.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Cut a product into instructions of $128 \times 128 \times 512$ and count them. A full one takes $512 + c_1$ cycles, and a remainder takes at
# least $\min(64, s) + c_1$. This holds for a tuned product. For any other kernel, find the engine with the most work, and check whether the
# software lets the engines overlap.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How long does a BF16 product of side 4,096 take on one core of Trainium3, tuned?
#
# ```{admonition} Answer
# :class: dropdown
# It has $32 \times 32 \times 8 = 8{,}192$ instructions of 524 cycles. At 2.4 GHz they take 1.79 ms. Waits for copies, the ramp and filling add
# about 0.05 ms.
# ```
#
# **2.** A decode step multiplies one row by a square weight of side 4,096 on Trainium2. Which operand should be stationary?
#
# ```{admonition} Answer
# :class: dropdown
# The weight. Its $32 \times 32$ tiles take $64 + 12$ cycles each, which is 32 µs. With the row stationary, each of $32 \times 8$ instructions takes
# $512 + 12$ cycles, which is 56 µs. DMA needs 91 µs to bring the weight in either case, so it sets the time.
# ```
#
# **3.** Why does Trainium3's faster exponential not speed up attention with a head size of 256?
#
# ```{admonition} Answer
# :class: dropdown
# The work of the Tensor engine grows with the head size, and the number of exponentials does not. At 256 the Tensor engine has more to do
# than the engine of the exponentials, even with the slower unit.
# ```

# %% tags=["hide-input"]
one, row = (tm.kernel.matmul(*ask, *[4096] * 2) for ask in (("trainium3", 4096), ("trainium2", 1)))
assert f"{8192 * 524 / 2.4e6:.2f} {one.time_s * 1e3 - 8192 * 524 / 2.4e6:.2f}" == "1.79 0.05"
assert f"{row.load_s * 1e6:.0f} {1024 * 76 / 2400:.0f} {256 * 524 / 2400:.0f}" == "91 32 56"
at_256 = [
    tm.kernel.attention("trainium3", 4096, 4096, head_size=256, exponential=unit) for unit in ("vector", "scalar")
]
assert [t.bound for t in at_256] == ["TensorE"] * 2

# %% [markdown]
# ## Evidence
#
# ```{admonition} Which constants are assumed or disputed?
# :class: dropdown
# * **Overhead per instruction.** AWS prints about 60 cycles for Trainium1 and nothing for later cores. The 12 cycles come from counters of
#   Trainium3, and we carry them over to Trainium2.
# * **Shortest interval.** AWS prints 64 cycles for the first two generations. For Trainium3 we carry them over.
# * **Exponentials.** AWS's guide gives Trainium3's Vector engine four times the rate of the Scalar engine. SemiAnalysis's deep dive says four
#   times Trainium2's rate and names no engine. `exponential="fast-scalar"` computes the other reading.
# * **All cores at work.** The range of 67 to 82% rests on two sources, both about Trainium2. For the other generations we assume a range from its
#   low end to no loss.
# * **MXFP8.** Its 91 cycles of overhead come from one profile of one kernel.
# ```

# %% tags=["hide-input"]
columns = ["kind", "chip", "kernel", "predicted_s", "measured_s", "error", "source"]
charts.table(
    judged[columns],
    caption="Every kernel with a published time, also one too short for the chart",
    download="kernel-times",
    file_only=True,
)

# %% tags=["hide-input"]
charts.table(errors, caption="Errors by kind of kernel", download="errors", file_only=True)

# %% tags=["hide-input"]
swept = tables.counted()
at = [swept[side].to_numpy(float) for side in "mnk"]
held = tm.kernel.matmul("trainium3", *at, lnc=2, block_rows=at[0], block_columns=1024.0)
swept["predicted_bytes"] = held.hbm_read_bytes
charts.table(
    swept, caption="Products on Trainium3 with counters, and errors left out", download="products", file_only=True
)

# %% tags=["hide-input"]
charts.table(tables.left_out(), caption="Calls of a framework, each left out", download="left-out", file_only=True)

# %% tags=["hide-input"]
charts.table(
    tables.counted_bytes(), caption="Kernels with counted bytes of HBM", download="kernel-bytes", file_only=True
)

# %% tags=["hide-input"]
charts.table(
    tables.set_aside(), caption="Kernel rows that are not used, by reason", download="excluded", file_only=True
)

# %% tags=["hide-input"]
constants = common.notation(common.of_spec(spec.core, tables.CONSTANTS))
charts.table(constants, caption=f"Constants of a core of {spec.name}", download="constants", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
parts = [tm.chip(name).core.id for name in ("trainium1", "trainium2", "trainium3")]
shown = used.entity.str.split(".").str[0].isin(parts) | used.entity.str.startswith(("stack-", "op-", "neuron-dma"))
charts.table(
    common.bibliography(used[shown].source), caption="Sources of the figures in this chapter", download="sources"
)
