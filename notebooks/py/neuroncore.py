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
m: int = 1590
n: int = 8960
k: int = 1536
dtype: str = "bf16"

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import neuroncore as tables
from trnbook.shared import case, kernels, ledger
from trnmodel.evidence import score
from trnmodel.evidence import tables as evidence
from trnmodel.units import KIB, US, format_quantity, format_within

GENERATIONS = ["trainium1", "trainium2", "trainium3"]
spec = tm.chip(chip)
guard.neuroncore(chip=spec)
guard.one_of(spec.core.tensor.peak_flop_per_s, dtype=dtype)
guard.within(1, 1e12, m=m, n=n, k=k)
shares = tm.facts().query("quantity == 'busy_core_share'").entity
guard.need(spec.id in set(shares), f"chip = {spec.id!r}: nobody says how fast its cores are all at once")
peak = spec.core.tensor.peak_flop_per_s[dtype]
yours = tm.kernel.matmul(chip, m, n, k, dtype)
large = tm.kernel.matmul(chip, 16 * KIB, 16 * KIB, 16 * KIB, dtype)
logical = tm.kernel.matmul(chip, m, n, k, dtype, lnc=None)
compiled = tm.kernel.matmul(chip, m, n, k, dtype, lnc=None, stack="stack-torch-compile-beta2")


def reached_of(share):
    """A share in percent, of which one too small to print is said."""
    return charts.tables.percent(float(share), "") if share >= 5e-4 else "less than 0.1%"


eager = tm.kernel.matmul(chip, 16 * KIB, 16 * KIB, 16 * KIB, dtype, stack="stack-torch-compile-beta2")

# %% tags=["hide-input"]
Markdown(
    common.card(
        (large.flop_per_s, *large.ends("flop_per_s")),
        f"a tuned kernel multiplies large {dtype.upper()} matrices so fast on one core of {spec.name}, {large.flop_per_s / peak:.0%} of "
        f"the core's printed {format_quantity(peak, 'FLOP/s', 3)}",
        unit="FLOP/s",
        mark=large.basis,
        rival=f"torch.compile {format_within(eager.flop_per_s, *eager.ends('flop_per_s'), 'FLOP/s', eager.basis)}",
        proof="Check: kernels that others measured",
        more=f"Your {m:,} x {k:,} by {k:,} x {n:,} takes {format_within(yours.time_s, yours.low, yours.high, 's', yours.basis)}, bound by "
        f"{yours.bound}, and reaches {reached_of(yours.flop_per_s / peak)} of the peak; on a logical core of {logical.lnc} it takes "
        f"{format_within(logical.time_s, logical.low, logical.high, 's', logical.basis)} tuned and "
        f"{format_within(compiled.time_s, compiled.low, compiled.high, 's', compiled.basis)} through torch.compile, called from the "
        "host.\n\n" + ledger.rests_on(yours.stack, compiled.stack),
    )
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("neuroncore")

# %% [markdown]
# ## Notation
#
# A NeuronCore is four engines with instruction streams of their own: TensorE multiplies, VectorE and ScalarE work along 128
# lanes, GPSIMD runs programs, and sixteen DMA engines move bytes between HBM and the on-chip SBUF. Products collect in PSUM.

# %% tags=["hide-input"]
charts.table(
    common.notation(
        common.of_spec(
            spec.core,
            {
                "tensor.clock_hz": "f",
                "tensor.array_rows": "R, in BF16",
                "tensor.max_stationary_cols": "S0",
                "tensor.max_moving_cols": "V0",
                "tensor.min_initiation_cycle": "c0",
                "tensor.access_overhead_cycle": "c1",
                "fill_s": "tF",
                "vector.clock_hz": "f of VectorE",
                "scalar.clock_hz": "f of ScalarE",
                "sbuf_bytes": "S",
                "dma_engines": "engines",
                "dma_engine_bytes_per_s": "rate of one engine",
                "dma_start_s": "semaphore to start",
            },
        )
    ),
    caption=f"What this chapter calls things, for one core of {spec.name}",
    download="notation",
)

# %% [markdown]
# ## The model
#
# TensorE holds a stationary tile of at most $R \times S_0$ and streams a moving tile of at most $V_0$ columns past it. An
# instruction costs $\max(\min(c_0, s), v)$ cycles for $s$ stationary and $v$ moving columns; FP32 takes $r = 4$ passes.
#
# $$t_T = \frac{r}{f}\Bigl\lceil\frac{K}{R}\Bigr\rceil \sum_{s}\sum_{v} \bigl[\max(\min(c_0, s),\, v) + c_1\bigr]$$
#
# $c_1$ is what a tuned kernel cannot hide of an instruction: the documented cost of opening an access to SBUF or PSUM on
# Trainium1, and what counters show on Trainium3, far less. The other engines are busy beside TensorE: VectorE copies
# products out of PSUM for $t_E$, DMA loads operands and stores results. TensorE waits for the share $1 - o_E$ of the copies,
# and with the overlap $o_i$ of each other engine,
#
# $$t = t_0 + t_F + \max\bigl[t_T + (1 - o_E)\,t_E,\; \max_i(o_i\,t_i)\bigr] + \sum_i (1 - o_i)\,t_i ,$$
#
# so $o = 1$ gives the lower bound, all engines side by side, and $o = 0$ the upper, all in a row. $t_0$ holds launch, the
# first load, the last store, and waits for semaphores that nothing hides (about 1.3 µs each). In $t_F$ TensorE has nothing to
# multiply yet, or no more: the first panels come in, the last block goes out.

# %% tags=["hide-input"]
second, nki = tm.chip("trainium2").core, tm.kernel.stack()
cube = tm.kernel.matmul("trainium2", 2048, 2048, 2048)
tiles = 16 * 16 * 4
lone = tiles * second.tensor.max_moving_cols / second.tensor.clock_hz
busy = tiles * (second.tensor.max_moving_cols + second.tensor.access_overhead_cycle) / second.tensor.clock_hz
waits = (1 - nki.overlap_evict) * float(cube.vector_s)
runs = (
    evidence.table("kernels")
    .query("group == 'tuned-nki' and chip == 'trainium2' and kernel.str.contains('2048')")
    .measured
)
Markdown(
    f"**By hand.** A BF16 product of side 2,048 on Trainium2 is 16 x 16 x 4 = {tiles:,} instructions of "
    f"{second.tensor.max_moving_cols:.0f} + {second.tensor.access_overhead_cycle:.0f} cycles at "
    f"{format_quantity(second.tensor.clock_hz, 'Hz')}: {busy / US:.1f} µs. TensorE waits for {1 - nki.overlap_evict:.0%} of "
    f"the copies, {waits / US:.1f} µs; filling, two starts of DMA and the current ramp (TensorE starts a burst at half rate) "
    f"add {(float(cube.time_s) - busy - waits) / US:.1f} µs. That is {float(cube.time_s) / US:.1f} µs, from "
    f"{float(cube.low) / US:.0f} to {float(cube.high) / US:.0f} over the ranges of the constants; two tuned schedules measure "
    f"{runs.min() / US:.1f} and {runs.max() / US:.1f} µs. The documented peak alone would be {lone / US:.1f} µs."
)

# %% [markdown]
# ## Your shape

# %%
charts.bars(
    tables.engine_times(yours),
    x="engine",
    y="busy_s",
    caption=f"{str(yours.bound)[:1].upper()}{str(yours.bound)[1:]} takes longest",
    under=f"{m:,} x {k:,} x {n:,} in {dtype.upper()} on {spec.name}",
)

# %% tags=["hide-input"]
Markdown(
    f"Roofline {format_quantity(yours.roofline_s, 's', 3)}, whole tiles {format_quantity(yours.tile_s, 's', 3)}, a tuned kernel "
    f"{format_within(yours.time_s, yours.low, yours.high, 's')}, engines in a row {format_quantity(yours.upper_s, 's', 3)}.\n\n"
    f"**What to change:** {yours.hint}."
)

# %% [markdown]
# ## How large must a product be?

# %%
sides = tables.by_side(chip, [dtype], np.round(np.geomspace(64, 16 * KIB, 65)))
tuned = sides[sides.tier == "tuned kernel"].set_index("side").rate_flop_per_s
near = tuned.index[(tuned >= 0.9 * tuned.iloc[-1])][0]
charts.lines(
    sides,
    x="side",
    y="rate_flop_per_s",
    color="tier",
    log_x=True,
    log_y=True,
    caption=f"A tuned product nears its plateau from side {near:,.0f}",
    under=f"within a tenth, on one core of {spec.name}",
)

# %% [markdown]
# ## Why do some numbers of rows run slowly?
#
# A partial tile costs as much as a full one, so a size just above a whole number of tiles wastes most of one.

# %%
rows = tables.by_rows(chip, np.arange(64, 2049, 2), n, k, dtype)
charts.lines(
    rows,
    x="m",
    y="share",
    caption="Rows beyond whole tiles cost: a saw that flattens",
    under=f"share of the full-tile rate, {dtype.upper()} on one core of {spec.name}",
)

# %% tags=["hide-input"]
at = tables.by_rows(chip, [m], n, k, dtype).share[0]
tiles = int(np.ceil(m / 128))
measured = evidence.table("kernels").query("group == 'framework-compile'")
slow = measured[measured.kernel.str.contains("M=1590")]
padded = tiles * 128 / m
more = f"{padded - 1:.1%} more than" if padded < 2 else f"{padded:,.0f} times what"
Markdown(
    f"{tm.units.counted(m, 'row')} {'is' if m == 1 else 'are'} {f'{m / 128:.3g} tiles' if m > 128 else f'{m / 128:.1%} of a tile'} of 128: with the rows stationary the array "
    f"runs {tm.units.counted(tiles, 'tile')}, {more} it must. With the rows moving only the last, short instruction loses, and the tiles reach {reached_of(at)} of the "
    f"full-tile rate.{' Padding is not the reason, then.' if padded < 1.5 else ''} The measured products with M = 1,590 take "
    f"{(slow.measured / slow.tile_s).min():.1f} to {(slow.measured / slow.tile_s).max():.1f} times their tile bound because a "
    f"call costs {format_quantity(tm.kernel.stack('stack-torch-compile-beta2').launch_s, 's', 2)} and its transfers hide behind "
    "nothing, which weighs most on small products."
)

# %% [markdown]
# ## The smallest useful tile
#
# With a short contraction TensorE finishes an output tile before the last one has left PSUM. From these contractions on
# TensorE bounds:

# %%
smallest = tables.smallest_contractions(GENERATIONS)
charts.table(smallest, caption="Smallest useful contraction in BF16", download="contraction")

# %% [markdown]
# On Trainium3 the 512 x 128 MX array can run as four of 128 x 128, which helps a contraction shorter than 512:

# %%
short = {split: tm.kernel.matmul("trainium3", 4096, 4096, 128, "mxfp8", split=split) for split in (1, 4)}
Markdown(
    f"{format_quantity(short[1].tensor_s, 's', 3)} as one array, {format_quantity(short[4].tensor_s, 's', 3)} as four."
)

# %% [markdown]
# ## What waiting costs
#
# An engine that needs another's result waits for a semaphore, about 1.3 µs. A kernel that buffers twice hides it, one that
# waits once an output tile or once an instruction does not. Transposes on TensorE take its cycles; on Trainium3 they run in
# the background, and DMA can transpose on the way from HBM on Trainium2 and Trainium3.

# %%
charts.table(tables.schedules("trainium2", 2048.0), caption="Side 2,048 in BF16 on Trainium2", download="schedules")

# %% [markdown]
# ## All cores at once
#
# LNC=2 makes two physical cores one logical one; each core keeps its own tiles. A logical core is slower beside others than
# alone, and two at work are as slow as four. On Trainium2 the rate falls to 67 to 82 % of that of a core alone: two pages
# measured it, one with large products and one with an expert layer, whose runs start at 81 % and fall to 70 % within two
# seconds. That looks like a limit of power or clock, for these products hardly load HBM, but nobody has printed watts or
# clocks. For other generations the range reaches from the low end on Trainium2 to no loss at all. HBM bandwidth is divided
# among the cores at work; a core alone is bounded by its own DMA engines.

# %%
together = tables.cores(chip, 16384.0, dtype)
charts.table(together, caption=f"A 16,384 cube on one logical core of {spec.name}", download="cores")

# %% [markdown]
# ## Experts, four-bit weights, sparsity
#
# A grouped product pads each expert's tokens to tiles of its own. With few tokens an expert is bound by its weights, so the
# storage counts; NVFP4 has no hardware path to MXFP8, so VectorE unpacks it and becomes the bound.

# %%
grouped = tables.experts("trainium3", 2.0 ** np.arange(11), 5760, 2880, 16, ["mxfp8", "mxfp4", "nvfp4"])
charts.lines(
    grouped,
    x="tokens_per_expert",
    y="time_s",
    color="weights",
    log_x=True,
    log_y=True,
    caption="MXFP4 halves the time, NVFP4 in software loses it",
    under="sixteen experts on one core of Trainium3",
)

# %% [markdown]
# Tokens of one expert need not lie beside each other: `gather="dereference"` indexes them in place on Trainium3, `"rows"` has
# DMA fetch row by row, `"permute"` sorts them in HBM first. M:N structured sparsity (`compression=4`) runs up to four times
# as fast in BF16, twice in FP8, and is off everywhere unless asked for.

# %% [markdown]
# ## The other engines

# %%
shown = ["residual", "rmsnorm", "softmax", "silu", "rope", "quantise"]
lanes = tables.lane_operators(GENERATIONS, 4096.0, 4096.0, shown)
charts.bars(
    lanes,
    x="operator",
    y="time_s",
    color="chip",
    caption="Trainium2 widened VectorE, Trainium3 raised its clock",
    under="operators on a 4,096 square held in SBUF",
)

# %% [markdown]
# ## Where the exponential bounds
#
# Softmax needs one exponential a score; the two products need FLOP in proportion to the head size. So a small head is bound
# by the exponential. AWS's guide gives Trainium3's VectorE an instruction with four times ScalarE's rate; the deep dive says
# four times Trainium2's rate a cycle without naming the engine. Both readings are computed: the rate is the same, the engine
# that carries it is not.

# %%
heads = tables.attention_engines(GENERATIONS, 4096.0, [64, 128, 256], 8.0)
own = heads[~((heads.chip == "Trainium3") & (heads.exponential != "vector"))]
charts.bars(
    own[own.head_size == 128],
    x="engine",
    y="busy_s",
    color="chip",
    caption="The exponential bounds Trainium2 and no longer Trainium3",
    under="causal attention, head size 128, 8 heads of 4,096 tokens",
)

# %%
wide = heads.pivot_table(index=["chip", "exponential", "head_size"], columns="engine", values="busy_s").reset_index()
wide = wide.merge(heads.groupby(["chip", "exponential", "head_size"])[["bound", "time_s"]].first().reset_index())
charts.table(
    wide.rename(columns={e: f"{e}_s" for e in ("TensorE", "VectorE", "ScalarE", "DMA")}),
    caption="Busy time by engine, head size and reading of the exponential",
    download="attention",
)

# %% [markdown]
# ## Three tiers: roofline, tiles, what the path reaches

# %%
tiers = evidence.table("kernel_tiers").groupby(["group", "tier"], sort=False).share.median().reset_index()
charts.bars(
    tiers,
    x="group",
    y="share",
    color="tier",
    caption="Tiles cost little, the software path decides",
    under="median share of the roofline rate",
)

# %% [markdown]
# ## Check: products on Trainium3, counted
#
# A sweep of the NKI library's product on one logical core of Trainium3 comes with its counters: how long TensorE was active,
# how many instructions it took, what HBM read. Cycles an instruction come from the first two. The gap, the time in which
# TensorE was not active, grows with the output and not with the contraction: it is fill and waits for copies.

# %% tags=["hide-input"]
swept = evidence.table("products")
by_shape = evidence.table("product_errors")
named = {
    "blind_error": "before its rows were read",
    "error": "with their constants",
    "left_out_error": "its file left out",
}
parts_of = by_shape.assign(time_s=by_shape.time_us * US).rename(columns=named)
parts_of = parts_of.melt("time_s", list(named.values()), "prediction", "error")
middle = {name: by_shape[name].abs().median() for name in named}
charts.lines(
    parts_of.sort_values("time_s", kind="stable"),
    x="time_s",
    y="error",
    color="prediction",
    log_x=True,
    caption=f"Blind the median error was {middle['blind_error']:.1%}, left out {middle['left_out_error']:.1%}",
    under=f"{len(by_shape)} products on Trainium3: before their rows were read, and for shapes of a file that the constants have not seen",
)

# %% tags=["hide-input"]
counted = swept[
    [*"mnk", "time_us", "tensor_engine_active_us", "cycles", "gap_us", "evict_us", "hbm_read_bytes", "error"]
]
charts.table(
    counted.rename(columns={name: f"{name[:-3]}_s" for name in counted if name.endswith("_us")}).assign(
        **{f"{name[:-3]}_s": counted[name] * US for name in counted if name.endswith("_us")}
    ),
    caption="Counters of the sweep, the VectorE time of the copies, and the error of the time",
    download="products",
)

# %% tags=["hide-input"]
third, tails = tm.chip("trainium3").core, by_shape.abs().quantile(0.9)
blocked = tm.kernel.matmul(
    "trainium3", *(swept[side].to_numpy(float) for side in "mnk"), lnc=2,
    block_rows=swept.m.to_numpy(float), block_columns=1024.0,
)  # fmt: skip
as_read = np.isclose(blocked.hbm_read_bytes, swept.hbm_read_bytes, rtol=0.005)
Markdown(
    f"An instruction of {third.tensor.max_moving_cols:.0f} columns takes {swept.cycles.min():.0f} to "
    f"{swept.cycles.max():.0f} cycles with what TensorE waits for inside, {swept.cycles.median():.0f} in the middle; the "
    f"constants are {third.tensor.access_overhead_cycle:.0f} cycles, {third.fill_s / US:.1f} µs of filling and "
    f"{1 - nki.overlap_evict:.0%} of the copies. Left out file by file, nine of ten shapes are within "
    f"{tails['left_out_error']:.1%}, before within {tails['blind_error']:.1%}. With the block that the library keeps, all "
    f"rows and 1,024 columns, the bytes read agree with {as_read.sum()} of {len(swept)} counters; in the others it keeps "
    "the left operand in SBUF, which the model does not know."
)

# %% [markdown]
# ## Check: kernels that others measured

# %%
table = evidence.table("kernels")
timed = kernels.side_by_side(table, "time")
charts.table(
    timed, caption="Every kernel with a usable time, and the signed error", download="kernel-times", file_only=True
)

# %%
moved = kernels.side_by_side(table, "bytes")
charts.table(moved, caption="Every kernel with usable HBM bytes, and the signed error", download="kernel-bytes")

# %%
charts.table(score.summary(table, "group"), caption="Error by group", download="errors")

# %% tags=["hide-input"]
errors = score.summary(table, "group").set_index("group")
held_out = {group: evidence.table("kernels_left_out", group=group).error.abs().median() for group in evidence.KERNELS}
Markdown(
    f"Tuned NKI matrix multiplies in BF16, FP16, MXFP8 and FP32: median absolute error "
    f"**{errors.median_error['tuned-nki']:.1%}** over {errors.cases['tuned-nki']} rows, whose own times fitted none of the "
    "constants but the fill of Trainium2 and the cycles of MXFP8. "
    f"A convolution in FP32 apart: {errors.median_error['fp32']:.1%}. An expert layer on one, two and four logical cores of "
    f"Trainium2: {errors.median_error['expert layer']:.1%}. The framework paths have one launch cost and one share of bandwidth "
    f"each, fitted to their rows: torch.compile {errors.median_error['framework-compile']:.1%} "
    f"({held_out['framework-compile']:.1%} on rows left out of the fit), trace "
    f"{errors.median_error['framework-trace']:.1%} ({held_out['framework-trace']:.1%}). The worst row of each group is in "
    f"the table; attention rests on a single FP32 row, {errors.worst_error['attention']:+.0%}: a kernel that spills."
)

# %%
aside = score.reasons(score.excluded(score.shipped("kernel")))
charts.table(aside[["reason", "rows"]], caption="Kernel rows set aside, by reason", download="excluded")

# %% [markdown]
# ## What moves the answer
#
# * **The path.** A tuned kernel comes near the tile bound; a framework call of a small product loses most of it.
# * **The dtype**, by whole factors: MXFP8 four times BF16 on Trainium3, FP32 a quarter.
# * **How many cores work**: the share above, of two pages about Trainium2; for Trainium3 there is a range and no measurement.
#
# ## What is left out
#
# Re-engaging of the current ramp in kernels that fall below half utilisation; bank conflicts in SBUF and PSUM; the compiler's
# choice of tiles; the second port that GPSIMD shares with VectorE. The bytes of the Trainium3 kernel are three times what its
# SBUF demands: blocking is the kernel's choice (`block_rows`, `block_columns`), the default is what fits. What HBM and DMA give is chapter 3.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Count instructions of 128 x 128 x 512, pay 512 cycles and a dozen for each (60 on Trainium1), wait for half of the copies
# out of PSUM, and fill once: that is a tuned matrix multiply. Then ask which software path will run it.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How long does a BF16 product of side 4,096 take on one core of Trainium3, tuned?
#
# ```{admonition} Answer
# :class: dropdown
# 32 x 32 x 8 = 8,192 instructions of 524 cycles at 2.4 GHz: 1.79 ms. Waits for half of the copies, 67 µs of VectorE, and the
# fill add 0.05 ms.
# ```
#
# **2.** A decode step multiplies one row by a 4,096 x 4,096 weight on Trainium2. Which operand should be stationary?
#
# ```{admonition} Answer
# :class: dropdown
# The weight: 32 x 32 instructions of 64 cycles each, 27 µs before overhead. With the row stationary each of 32 x 8
# instructions streams 512 columns: 55 µs. DMA needs 93 µs for the weight either way and bounds.
# ```
#
# **3.** Why does Trainium3's faster exponential not speed up attention with a head size of 256?
#
# ```{admonition} Answer
# :class: dropdown
# TensorE's work grows with the head size, the exponential's does not: at 256 TensorE bounds with either unit.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
parts = [tm.chip(name).core.id for name in GENERATIONS]
shown = used.entity.str.split(".").str[0].isin(parts) | used.entity.str.startswith(("stack-", "op-", "neuron-dma"))
sources = common.bibliography(used[shown].source)
charts.table(sources, caption="Sources of the figures in this chapter", download="sources")
