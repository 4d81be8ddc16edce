# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 7
#     part: Understand
# ---

# %% [markdown]
# # How fast do bytes reach a NeuronCore?

# %% tags=["parameters"]
chip: str = "trainium3"
model: str = "llama-3.1-8b"
precision: str = "bf16"
row_bytes: float = 512.0
storage_bytes_per_s: float = 4e9

# %% tags=["hide-input"]
from dataclasses import replace

import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import memory as tables
from trnbook.drawings import chip as drawings
from trnbook.shared import case

spec, m = tm.chip(chip), tm.model(model)
guard.neuroncore(chip=spec)
guard.above_zero(row_bytes=row_bytes, storage_bytes_per_s=storage_bytes_per_s)

# %% tags=["hide-input"]
CHIPS = ["trainium1", "trainium2", "trainium3"]
software, plans = {name: tm.efficiencies(name) for name in dict.fromkeys([*CHIPS, spec.id])}, []
share = float(software[spec.id].weight_stream_share)
read = {name: float(it.weight_stream_share) * tm.chip(name).hbm_bytes_per_s for name, it in software.items()}
for name in [name for name in case.SYSTEMS if tm.system(name).chip.id == spec.id][:1]:
    own = tm.system(name)  # as it is, and with a memory from which weights come at the limit of this chapter
    slow = replace(spec, hbm_bytes_per_s=min(spec.hbm_bytes_per_s, tables.limits(spec).lower / share))
    asked = case.request("llama-3.3-70b")
    plans = [tm.plan("llama-3.3-70b", asked, systems=one).best for one in (own, replace(own, chip=slow))]
profiles = tables.profiles("decode")
reached = tables.share_of_limit(profiles)
Markdown(
    common.card(
        tables.band(spec, share, software[spec.id].range("weight_stream_share")),
        tables.most(spec, share),
        mark="",
        rival=tables.compared(spec, read),
        rank="Compared with",
        proof="Check: bytes that a profiler counted",
        more=tables.sureness(spec, share, reached, plans),
    )
)

# %% tags=["hide-input"]
charts.bars(
    tables.ceilings(CHIPS, reached),
    x="chip",
    y="bandwidth_bytes_per_s",
    color="level",
    caption="By AWS's guide only Trainium2's DMA engines keep HBM busy",
    under="per chip; decoding: the share that models reached on Trainium1, elsewhere carried over",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book. The last line of the table is this chapter's.

# %% tags=["hide-input"]
case.table("memory")

# %% [markdown]
# ## Why bandwidth decides
#
# When a model generates text, each step reads the weights that it needs from HBM, the stacked memory next to the chip, and uses each of
# them once per token. With few tokens in a batch the compute engines have little to do between two reads. The step then takes as long as
# its reads or longer:
#
# $$t \ge \frac{V}{B}$$
#
# $V$ is what a step reads on one chip, in bytes, and $B$ is the rate at which these bytes arrive.
#
# ## Two rates that every byte must pass
#
# A NeuronCore computes only on data in its own two memories. The larger one, SBUF, holds operands; the smaller one, PSUM, collects the
# sums of TensorE, the matrix engine. Neither is a cache: nothing arrives unless the program asks for it. The program asks a DMA engine
# (direct memory access), which copies rows from HBM to SBUF while the compute engines work on the rows before.

# %% tags=["hide-input"]
drawings.ways_to_hbm(chip)

# %% [markdown]
# The pins of the memory give one rate, the DMA engines another, and the lower one is the limit:
#
# $$B_\mathrm{HBM} = r\,w\,n \qquad B_\mathrm{DMA} = c\,e\,b_e \qquad B = \min(B_\mathrm{HBM},\; B_\mathrm{DMA})$$
#
# $r$ is the rate of one data pin, $w$ the number of pins of a stack of memory, and $n$ the number of stacks. $c$ is the number of cores of the
# chip, $e$ the number of DMA engines of a core, and $b_e$ what one engine copies per second.
#
# **By hand.** For Trainium3 the two products are:
#
# | | factors | rate |
# |---|---|---|
# | HBM | 9.6 Gb/s per pin x 1,024 pins x 4 stacks / 8 bits | 4.92 TB/s |
# | DMA engines | 8 cores x 16 engines x 33 GB/s | 4.22 TB/s |
#
# SemiAnalysis prints this pin rate. AWS prints no pin rate, but the bandwidth and the rate of an engine. Its pages disagree on the memory,
# 4.9 TB/s on one and 4.7 TB/s on another. We infer that these are two grades of the same memory
# ([Where do the sources disagree, and what did we decide?](contradictions.ipynb)). The engines are slower than either.


# %%
def limit_bytes_per_s(spec):
    """Return the rate at which a chip can read its HBM."""
    core = spec.core
    return min(spec.hbm_bytes_per_s, spec.cores * core.dma_engines * core.dma_engine_bytes_per_s)


assert round(9.6e9 / 8 * 1024 * 4 / 1e12, 2) == 4.92
assert limit_bytes_per_s(tm.chip("trainium3")) == 8 * 16 * 33e9
assert limit_bytes_per_s(spec) == tables.limits(spec).lower

# %% [markdown]
# ## A row must be long
#
# A transfer is a list of rows. A row is a stretch of bytes that lie together in HBM and go to one partition of SBUF. An engine needs the same
# time to start a short row as to start a long one, so short rows waste it:
#
# $$t = \alpha + \frac{V}{\min(1,\; x/x_0)\; e\, b_e}$$
#
# $\alpha$ is the time before the first byte arrives, $V$ the bytes of the transfer, and $x$ the length of a row. $x_0$ is the length at which an
# engine copies a row in the time that it takes to start the next one.
#
# **By hand.** One engine of Trainium2 copies 23 GB/s, and its $x_0$ is 2,485 B. It therefore starts a row every 108 ns, whether the row is full or
# not. Sixteen engines with rows of 512 B then copy 76 GB/s. At this rate 1 MiB takes 13.8 µs.

# %% tags=["hide-input"]
start_s = 2485 / 23e9
move = tm.kernel.dma("trainium2", 2**20, 512)
assert round(start_s * 1e9) == 108
assert round(16 * 512 / start_s / 1e9) == 76
assert round(move.load_s * 1e6, 1) == 13.8

# %%
rows = np.union1d(2.0 ** np.arange(5, 16), np.append(np.geomspace(32, 4096, 57), spec.core.dma_linear_bytes))
transfer = tm.kernel.dma(chip, 2**30, rows)
own = tm.kernel.dma(chip, 2**20, row_bytes)

# %% tags=["hide-input"]
charts.lines(
    tables.with_aws_figure(transfer),
    x="row_bytes",
    y="bandwidth_bytes_per_s",
    color="level",
    log_x=True,
    caption=f"Rows below {spec.core.dma_linear_bytes / 1024:.1f} KiB waste the DMA engines",
    under=f"one core of {spec.name}; 1 MiB in rows of {row_bytes:,.0f} B takes {own.time_s * 1e6:,.3g} µs",
).properties(height=200)

# %% [markdown]
# On the left the rate rises in proportion to the row; on the right the engines are busy copying, and longer rows gain nothing. AWS's figure
# gives shares of the highest rate. The model takes $x_0$ from one of its points, and the others check the shape.

# %% [markdown]
#

# %% [markdown]
# ## The line of the running case
#
# A rank is the share of the machine that runs one part of the model, here two physical cores that work as one (LNC 2). It reads weights and the
# cache of keys and values at different shares of its bandwidth:
#
# $$t = \frac{V_w}{\eta_w B_r} + \frac{V_c}{\eta_c B_r}$$
#
# $V_w$ and $V_c$ are the bytes of weights and of cache that the rank reads. $B_r$ is the rank's part of the printed HBM bandwidth. The share $\eta_c$ is
# fitted to measured steps of the public software. These steps cannot tell the share $\eta_w$, so we assume the middle of
# 90 and 100%. This is more than the bar *decoding* of the first chart shows. That bar carries the share of profiles of Trainium1,
# an older chip, to the others.
#
# **By hand.** Llama-3.3-70B runs in FP8 on trn2.48xlarge. Four ranks share a chip, so each has a quarter of 2.9 TB/s:
#
# | read by a rank | bytes | rate | time |
# |---|---|---|---|
# | weights | 17.64 GB | 95% of 725 GB/s | 25.6 ms |
# | cache of 4 sequences | 1.51 GB | 44.5% of 725 GB/s | 4.7 ms |
#
# The sum is 30.3 ms, the first entry of this chapter's line. The cell below gets the same number from the plan. The step is that of the
# model itself; a small draft model runs next to it, and its reads are not in this line.

# %%
step = tm.plan("llama-3.3-70b", case.request("llama-3.3-70b"), systems="trn2.48xlarge").best.step
line = next(one for one in case.LINES if one.chapter == "memory")
by_hand_s = 17.64e9 / (0.95 * 725e9) + 1.51e9 / (0.445 * 725e9)
assert round(by_hand_s * 1e3, 1) == round(step.memory_s * 1e3, 1) == 30.3
assert step.memory_s == case.value(line, "llama-3.3-70b", "trn2.48xlarge")

# %%
pairs = [(name, system) for name in case.PROMISES for system in case.SYSTEMS]
plans = {(name, system): tm.plan(name, case.request(name), systems=system).best for name, system in pairs}
steps = {pair: plan.step for pair, plan in plans.items()}
assert all(step.memory_s == case.value(line, *pair) for pair, step in steps.items())

# %% tags=["hide-input"]
charts.stacks(
    tables.reads(steps.values()),
    x="case",
    y="time_of_reads_s",
    color="read",
    caption="Weights are most of what a step reads",
    under="running case, one decode step, reads of a rank by themselves",
)

# %% [markdown]
# Each bar is an entry of the line, and *cache* is the part that each sequence adds. Both racks of Trainium3 have the same bar, because a rank reads its own
# memory and not the rack's.
#
# **The step model ignores this limit of the DMA engines.** On Trainium3 it reads weights at 4.66 TB/s, which is 10% more than the limit of this
# chapter. Perhaps the engines copy faster than AWS's guide says, as the higher total on AWS's page of the chip suggests. If not, the weights
# of Trainium3 take that much longer, and the top of this page says what this does to the running case.

# %% tags=["hide-input"]
on_trainium3 = plans["llama-3.3-70b", "trn3-nl32x2-pcie160"]
spec3, share = on_trainium3.system.chip, on_trainium3.stack.weight_stream_share
assert round(share * spec3.hbm_bytes_per_s / 1e12, 2) == 4.66
assert round(share * spec3.hbm_bytes_per_s / limit_bytes_per_s(spec3), 2) == 1.10

# %% [markdown]
# ## Check: bytes that a profiler counted
#
# The tool `neuron-profile` counts what one core reads from HBM. AWS's repository of NxD Inference prints its counts for contributed models, which
# decoded on Trainium1. Our bytes come from the shapes of a model alone: weights without the input embedding, plus the cache of the compiled
# length, divided by the cores. Nothing was fitted.

# %% tags=["hide-input"]
chart = charts.scatter(
    tables.decode_bytes(profiles),
    x="predicted_bytes",
    y="measured_bytes",
    color="error",
    label="model",
    caption="Shapes predict the bytes of all but two models",
    under="bytes read by one core of Trainium1 per decode step; the line is equality",
)
tables.within(chart, (0.6, 10), (0.6, 10)).properties(width=260, height=260)

# %% [markdown]
# The two models above the line read more than their shapes ask for, and we do not know why. A table after the problems
# adds the bandwidth of the same models, and published kernels.

# %% [markdown]
# ## What moves the answer
#
# Take the step of Llama-3.3-70B on trn2.48xlarge again and change something. Twice the ranks should halve the reads of each, because
# the weights are cut. Twice the sequences should add little, because they share the weights. Change a line of the cell and look:

# %%
ask = {"model": "llama-3.3-70b", "system": "trn2.48xlarge", "precision": "fp8", "mapping": tm.Mapping(tp=4)}
ask |= {"batch": 4, "context": 4352, "max_context": 4608, "new_tokens": 8}
trainium3 = {"system": "trn3-nl32x2-pcie160", "precision": "mxfp8"}
changes = {
    "as in the case": {},
    "twice the sequences": {"batch": 8},
    "twice the context": {"context": 8704, "max_context": 9216},
    "twice the ranks": {"mapping": tm.Mapping(tp=8)},
    "on Trainium3": trainium3,
    "on Trainium3, weights of 4 bits": trainium3 | {"precision": "w4a8"},
}
moved = {name: tm.decode_step(**ask | change).memory_s for name, change in changes.items()}

# %% tags=["hide-input"]
chart = charts.bars(
    tables.changed(moved),
    x="change",
    y="time_of_reads_s",
    color="what",
    caption="Ranks, memory and width of weights move the reads",
    under="Llama-3.3-70B, reads of HBM in a decode step by themselves",
)
tables.within(chart, (0, 1.1e3 * max(map(float, moved.values()))))

# %% [markdown]
# ## What is left out
#
# * Refresh and bank conflicts of HBM. They are part of the share that profiles reach.
# * Compression on the way through a DMA engine. AWS counts it in its totals for a chip; nobody has measured it.
# * Profiles of later chips. All of them are of Trainium1, and their share of the limit is carried over.
# * Exchanges between chips, which share the DMA engines. A section after the problems has them.
#
# ```{admonition} Takeaway
# :class: tip
# Divide the bytes of a step by the lower rate of HBM and DMA engines. The step model of this book still divides by the rate of HBM alone, so
# it may be too fast on Trainium3. Make every row at least 2.5 KiB long.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Which share of its HBM bandwidth do the DMA engines of one core of Trainium1 reach, by the rate that AWS's guide prints?
#
# ```{admonition} Answer
# :class: dropdown
# The engines copy $16 \times 17 = 272$ GB/s. A core's half of the memory is $820/2 = 410$ GB/s, so they pass 66% of it.
# ```
#
# **2.** A core of Trainium2 gathers one MiB in rows of 256 B while the other cores work. How long does this take?
#
# ```{admonition} Answer
# :class: dropdown
# The engines copy 368 GB/s in long rows. Rows of 256 B reach $256/2{,}485 = 10.3\%$ of it, 38 GB/s, which is far below the core's part
# of HBM. One MiB takes 28 µs, and the start another 1.3 µs.
# ```
#
# **3.** By what factor does W4A8 speed up a decode step that reads nothing but weights, compared with MXFP8?
#
# ```{admonition} Answer
# :class: dropdown
# It reads $8.25/4.25 = 1.94$ times as many, because the block scales do not shrink.
# ```

# %% [markdown]
# ## Further: tiles, exchanges and loading

# %%
drawings.product_by_tile(chip)

# %% [markdown]
# Collectives, the exchanges between chips, use the same DMA engines and the same memory. A kernel that runs at the same time has the rest:
#
# $$B_\mathrm{left} = \max(0,\; B_c - B_x)$$
#
# $B_x$ is the rate of the exchanges. The product below reads its weights while they take nothing, a quarter and a half of the engines.

# %%
engines = spec.core.dma_engines * spec.core.dma_engine_bytes_per_s
taken = np.array([0.0, 0.25, 0.5]) * engines
product = tm.kernel.matmul(chip, 16, 4096, 4096, collective_bytes_per_s=taken)
charts.table(
    product.to_frame().assign(collective_share=taken / engines)[["collective_share", "time_s"]],
    caption="A product while exchanges take a share of DMA",
    download="contention",
)

# %% [markdown]
# Before the first step, weights come from a disk or the network through the host to HBM. Stages that stream at the same time take as long
# as the slowest of them; stages that wait for each other take the sum:
#
# $$t_\mathrm{streamed} = \max_i \frac{V}{B_i} \qquad t_\mathrm{in\ turn} = \sum_i \frac{V}{B_i}$$
#
# $B_i$ is the rate of stage $i$. The rate of the host is an illustrative figure of AWS; that of the storage stands in the parameter cell, because no
# source prints it.

# %%
weights = float(m.weight_bytes_read(1, precision))
stages = [storage_bytes_per_s, tables.host_bytes_per_s()]
load_s = {
    "Load, streamed": tm.kernel.host(weights, stages, overlap=1),
    "Load, stage by stage": tm.kernel.host(weights, stages, overlap=0),
}
charts.table(
    tables.start_up(weights, load_s, spec), caption=f"Weights of {m.id}: loaded, and read once", download="loading"
)

# %% [markdown]
# **What a tile costs to move.** A matrix product is cut into tiles. TensorE holds a tile of one operand and streams a tile of the other through it, and PSUM adds up what
# comes out. A tile that lies in SBUF can be used again without a transfer. Keep a block of the result on the chip, and each operand is read once for
# every block of the other one. Such a product reads $V$ bytes, and reading takes as long as multiplying when the side of the block is $b^*$:
#
# $$V = s\,m\,n\,k \left(\frac{1}{b_m} + \frac{1}{b_n}\right) \qquad b^* = \frac{s\,P}{B_c}$$
#
# $s$ is the bytes of an element, $m$ and $n$ are the sides of the result, $k$ is the length of the sums, and $b_m$ and $b_n$ are the sides of the block.
# $P$ is the peak of a core and $B_c$ the rate of its DMA engines. A smaller block waits for memory.
#
# **By hand.** A core of Trainium3 has an eighth of 671 TFLOP/s in BF16, and its DMA engines copy 528 GB/s. With 2 bytes per element the side is
# 318. A block of 256 should wait for memory, a block of 384 should not.

# %% tags=["hide-input"]
balanced = 2 * (671e12 / 8) / 528e9
sides = np.array([256.0, 384.0])
square = tm.kernel.matmul("trainium3", 8192, 8192, 8192, block_rows=sides, block_columns=sides)
assert round(balanced) == 318
assert (square.load_s > square.tensor_s).tolist() == [True, False]

# %%
sides = 128.0 * np.arange(1, 33)
product = tm.kernel.matmul(chip, 8192, 8192, 8192, "bf16", block_rows=sides, block_columns=sides)

# %% tags=["hide-input"]
charts.lines(
    tables.by_engine(sides, product),
    x="block_side",
    y="busy_s",
    color="engine",
    log_x=True,
    log_y=True,
    caption="Larger blocks move fewer bytes until TensorE limits",
    under=f"one core of {spec.name}, a BF16 product of side 8,192, by the side of the block in SBUF",
).properties(height=180)

# %% [markdown]
# To the right of the crossing the DMA engines have time to spare. A decode step cannot go there. Its result has one row per token in the
# batch, so a small batch makes a flat block. That is why reads take longer than multiplications in every column of the running case.

# %% [markdown]
# ## Evidence
#
# Each line is a table to download.

# %% tags=["hide-input"]
kernels = tables.kernels()
charts.table(
    tables.checks(profiles, kernels), caption="Errors of what this chapter predicts", download="checks", file_only=True
)

# %% tags=["hide-input"]
charts.table(
    tables.pins(CHIPS), caption="Pins, engines and printed rates of each chip", download="pins", file_only=True
)

# %% tags=["hide-input"]
charts.table(profiles, caption="Profiles of decoding, model by model", download="decode", file_only=True)

# %% tags=["hide-input"]
prefill = tables.profiles("prefill")
charts.table(prefill, caption="Profiles of prefill, model by model", download="prefill", file_only=True)

# %% tags=["hide-input"]
charts.table(kernels, caption="Kernels that move data, run by run", download="kernels", file_only=True)

# %% tags=["hide-input"]
cores = common.logical_cores(CHIPS[1:])
charts.table(cores, caption="Memory and rates of one logical core", download="logical-cores", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
shown = used.quantity.str.contains("dma|hbm|sbuf|host_bytes") & used.entity.str.startswith(("neuron", "trainium"))
sources = common.bibliography(used[shown].source)
charts.table(sources, caption="Sources of the figures in this chapter", download="sources")
