# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 3
# ---

# %% [markdown]
# # How fast is the memory?

# %% tags=["parameters"]
chip: str = "trainium3"
model: str = "llama-3.1-8b"
precision: str = "bf16"
row_bytes: float = 512.0
storage_bytes_per_s: float = 4e9

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import memory as tables
from trnbook.shared import case, kernels
from trnmodel.catalog import load
from trnmodel.evidence import score
from trnmodel.evidence import tables as evidence
from trnmodel.formulas import memory
from trnmodel.units import MIB, TB, format_digits, format_quantity, format_within

GENERATIONS = ["trainium1", "trainium2", "trainium3"]
spec, m = tm.chip(chip), tm.model(model)
guard.neuroncore(chip=spec)
guard.above_zero(row_bytes=row_bytes, storage_bytes_per_s=storage_bytes_per_s)
weights = float(m.weight_bytes_read(1, precision))
profiles = evidence.table("profiles", phase="decode")
reached = tables.share_of_read_limit(profiles)
levels = tables.decode_levels(spec, weights, reached)

# %% tags=["hide-input"]
hbm, limit, _ = (format_quantity(rate, "B/s", 3) for rate in levels.bandwidth_bytes_per_s)
low, high = (format_quantity(end, "B/s") for end in spec.range("hbm_bytes_per_s"))
narrow = levels.bandwidth_bytes_per_s[1] < levels.bandwidth_bytes_per_s[0]
band = np.array([1, *(profiles.mbu / profiles.mbu_predicted).quantile([0.05, 0.95]) / reached])
theirs = f"AWS prints {format_quantity(spec.dma_bytes_per_s, 'B/s')}" if spec.dma_bytes_per_s > 0 else "no rate printed"
others = [tm.chip(name) for name in GENERATIONS if name != spec.id]
rivals = {one.name: tables.decode_levels(one, weights, reached).bandwidth_bytes_per_s[2] for one in others}
fastest = max(rivals, key=rivals.get)
speeds = [format_digits(rate, 3) for rate in levels.tokens_per_s[:2]] + [format_within(*levels.tokens_per_s[2] * band)]
Markdown(
    common.card(
        tuple(levels.bandwidth_bytes_per_s[2] * band),
        f"{spec.name} reads so much while it decodes, {reached:.0%} of its narrower door"
        + (
            ", in the median of models"
            if spec.id == tables.PROFILED
            else f" as models do on {tm.chip(tables.PROFILED).name}"
        ),
        unit="B/s",
        mark="measured" if spec.id == tables.PROFILED else "extrapolated",
        rival=f"{fastest} {format_within(*rivals[fastest] * band, 'B/s')}",
        rank="Ahead of it" if rivals[fastest] > levels.bandwidth_bytes_per_s[2] else "Next best",
        proof="Check: bytes and bandwidth that a profiler counted",
        more=f"HBM gives {hbm} as printed{f' (sources leave {low} to {high} open)' if low != high else ''}, the DMA engines of the cores "
        f"{f'pass {limit}' if narrow else 'pass all of it'} ({theirs}). For {m.id} in {precision.upper()}, "
        f"{format_quantity(weights, 'B', 3)} a step, HBM, engines and decoding allow {', '.join(speeds[:2])} and {speeds[2]} tokens a second for one sequence.",
    )
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("memory")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(
        common.of_spec(
            spec.core,
            {
                "dma_engines": "engines",
                "dma_engine_bytes_per_s": "rate of one engine",
                "dma_start_s": "alpha",
                "dma_saturating_bytes": "row that saturates",
                "sbuf_bytes": "S",
                "psum_bytes": "PSUM",
            },
        )
    ),
    caption=f"What this chapter calls things, for one core of {spec.name}",
    download="notation",
)

# %% [markdown]
# ## From pins to bandwidth
#
# A stack has 1,024 data pins; its rate is theirs. $b = r\,w\,n$ for pin rate $r$, pins a stack $w$ and $n$ stacks.
#
# **By hand.** Trainium3: 9.6 Gb/s x 1,024 pins x 4 stacks / 8 = 4.92 TB/s; AWS prints 4.9. With 9.2 Gb/s, the grade of Micron's stacks
# of 36 GB, it is 4.71; AWS's kernel guide prints 4.7. No page of AWS prints the pin rate, and that the pair of figures is this pair of
# grades is our inference.

# %%
[float(memory.hbm_bytes_per_s(rate / 8, 1024, 4)) / TB for rate in (9.6e9, 9.2e9)]

# %%
pinned = tables.pins(GENERATIONS)
product = ["chip", "pin_bytes_per_s", "pins", "stacks", "product_bytes_per_s", "error"]
printed = ["printed_bytes_per_s", "printed_bytes_per_s_low", "printed_bytes_per_s_high"]
charts.table(
    pinned[[*product, *printed]],
    caption="Pins x rate x stacks against the printed bandwidth, with the pair that sources leave open",
    download="pins",
)

# %% [markdown]
# The pin rate is the deep dive's, the bandwidth AWS's, so the product is a check.
#
# ## The door after the pins
#
# What HBM delivers passes the DMA engines of the cores, sixteen each. Their guide says what an engine reaches; the chip's page prints one
# figure for all, in which inline compression or computation counts. The narrower of HBM and engines is the door.

# %%
limits = ["chip", "dma_bytes_per_s", "printed_dma_bytes_per_s", "printed_bytes_per_s", "door_bytes_per_s", "door_share"]
charts.table(
    pinned[limits],
    caption="DMA engines at the rate that they reach, as AWS prints them for the chip, and the share of HBM that passes",
    download="doors",
)

# %% tags=["hide-input"]
behind = pinned[pinned.dma_bytes_per_s < pinned.printed_bytes_per_s].chip
Markdown(
    f"On {' and '.join(behind)} the engines are narrower than HBM. Of what AWS prints for them they reach "
    + ", ".join(f"{row.dma_bytes_per_s / row.printed_dma_bytes_per_s:.0%} on {row.chip}" for row in pinned.itertuples())
    + ". A share of HBM that one generation reached therefore says nothing of another; a share of the door may be carried over."
)

# %% [markdown]
# ## One logical core's share

# %%
shares = common.logical_cores(["trainium2", "trainium3"])
named = shares.set_index(["chip", "lnc"])
alone, paired = (named.loc[tm.chip("trainium3").name].loc[lnc] for lnc in (1, 2))
charts.bars(
    shares,
    x="lnc",
    y="hbm_bytes",
    color="chip",
    caption=f"At LNC=2 a logical core of Trainium3 has {format_quantity(paired.hbm_bytes, 'B')}",
    under=f"at LNC=1 two share them, so {format_quantity(alone.hbm_bytes, 'B')} each is a share, and the whisker what one reaches",
)

# %%
charts.table(
    shares.drop(columns="hbm_bytes_low"),
    caption="Capacity (share, and what it reaches), bandwidth and DMA rate of one logical core",
    download="logical-cores",
)

# %% [markdown]
# ## DMA: rows must be long
#
# A DMA engine starts a row in a fixed time. Below about 2.4 KiB a row, throughput is proportional to the row; above, it is
# the engine's rate.
#
# $$b = \min\Bigl(1,\; \frac{x}{x_0}\Bigr)\; n\, b_e, \qquad t = \alpha + \frac{m}{b}$$

# %%
curve = tables.dma_rows(chip)
modelled = curve[curve["from"] == "model"]
short = modelled[modelled.row_bytes >= 64].iloc[0]
charts.lines(
    curve,
    x="row_bytes",
    y="bandwidth_bytes_per_s",
    color="from",
    log_x=True,
    log_y=True,
    caption=f"Rows of {format_quantity(spec.core.dma_saturating_bytes, 'B')} saturate the DMA engines",
    under=f"one core of {spec.name}; rows of {format_quantity(short.row_bytes, 'B')} reach {short.bandwidth_bytes_per_s / modelled.bandwidth_bytes_per_s.max():.0%}",
)

# %%
here = tm.kernel.dma(chip, MIB, row_bytes)
Markdown(
    f"One MiB in rows of {format_quantity(row_bytes, 'B', 3)} takes {format_quantity(here.time_s, 's', 3)}, "
    f"{format_quantity(MIB / here.load_s, 'B/s', 3)}; {here.bound} bounds it."
)

# %%
charts.table(tables.strided(chip), caption="One MiB from HBM by length of row", download="rows")

# %% [markdown]
# ## Collectives use the same engines
#
# The collective cores take no time from the compute engines, but their bytes pass through the same sixteen DMA engines and the
# same HBM. `collective_bytes_per_s` names what they take.

# %%
share = np.linspace(0, 0.9, 46)
charts.lines(
    tables.contention(chip, share, 4096.0, 4096.0),
    x="collective_share",
    y="slowdown",
    caption="Decode slows by what collectives take of the DMA",
    under=f"a decode product on {spec.name}",
)

# %% [markdown]
# ## Reuse: blocks in SBUF
#
# A product reads each operand once for every block of the other. A larger block in SBUF means fewer bytes, until TensorE
# bounds:

# %%
blocks = tables.blocking(chip, 8192.0, 8192.0, 8192.0, "bf16", 128.0 * np.arange(1, 33))
busy = blocks.pivot(index="side", columns="engine", values="busy_s")
enough = busy.index[busy.TensorE >= busy.DMA][0]
charts.lines(
    blocks,
    x="side",
    y="busy_s",
    color="engine",
    log_x=True,
    log_y=True,
    caption=f"From a block of {enough:.0f} on, TensorE bounds",
    under=f"a BF16 product of side 8,192 on {spec.name}",
)

# %% [markdown]
# ## From pins to tokens

# %%
charts.bars(
    levels,
    x="level",
    y="tokens_per_s",
    caption=f"From pins to decoding, {format_digits(levels.tokens_per_s[0], 3)} tokens/s become {format_digits(levels.tokens_per_s[2], 2)}",
    under=f"one sequence of {m.id} in {precision.upper()} on {spec.name}; decoding is {reached:.0%} of the door, profiled on "
    f"{tm.chip(tables.PROFILED).name}{charts.ours(levels.level[levels.estimate])}",
)

# %% [markdown]
# ## Loading weights and writing checkpoints
#
# Weights come from NVMe or the network (ENA) through host memory and PCIe. Stages that stream at once take as long as the
# slowest. The host's rate is AWS's illustrative figure of one core; that of the storage is a parameter of this chapter, for no
# source prints it.

# %%
host_rate = load.value("neuroncore-v2", "host_bytes_per_s")
both = {overlap: tm.kernel.host(weights, [storage_bytes_per_s, host_rate], overlap) for overlap in (1.0, 0.0)}
Markdown(
    f"{format_quantity(weights, 'B', 3)} of weights take {format_quantity(both[1.0], 's', 2)} streamed and "
    f"{format_quantity(both[0.0], 's', 2)} stage by stage."
)

# %% [markdown]
# ## Check: bytes and bandwidth that a profiler counted
#
# `neuron-profile` counted the HBM bytes of one core while whole models decoded on Trainium1. Our bytes come from the model's
# shapes alone: weights without the input embedding, and the keys and values of the compiled length, divided by the cores.

# %%
columns = ["model", "cores", "tokens", "read_bytes", "read_bytes_predicted", "read_bytes_error", "mbu", "mbu_predicted"]
charts.table(profiles[columns], caption="Decode: bytes read by one core, and share of HBM bandwidth", download="decode")

# %% tags=["hide-input"]
off = profiles[profiles.read_bytes_error.abs() > 0.05]
ceiling = profiles.mbu_predicted.median()
beyond = profiles[profiles.mbu > profiles.mbu_predicted]
Markdown(
    f"Bytes: median absolute error **{profiles.read_bytes_error.abs().median():.1%}** over {len(profiles)} models; "
    f"{', '.join(off.model)} read more than their shapes ask for. Bandwidth: the DMA engines would let a core read {ceiling:.0%} of "
    f"its HBM; the median model reaches {profiles.mbu.median():.0%}, which is {reached:.0%} of that door, and {len(profiles) - len(beyond)} of "
    f"{len(profiles)} stay below what is predicted for them"
    + (
        "; "
        + ", ".join(f"{row.model} reads {row.mbu:.0%} where {row.mbu_predicted:.0%} is" for row in beyond.itertuples())
        if len(beyond)
        else ""
    )
    + ". The distance holds collectives between the cores and what the kernels lose."
)

# %% [markdown]
# Prefill reads the same weights once and multiplies them with the compiled length. The tile bound is far above what the
# compiled graph reached:

# %%
prefill = evidence.table("profiles", phase="prefill")
charts.table(
    prefill[["model", "tokens", "read_bytes_error", "mfu", "mfu_predicted", "mbu", "mbu_predicted"]],
    caption="Prefill: error of the bytes, MFU and MBU measured, and what tuned kernels would reach",
    download="prefill",
)

# %%
transfers = evidence.table("kernels").query("group in ('dma', 'memory', 'bytes')")
moved = kernels.side_by_side(transfers, "bytes")
charts.table(moved, caption="HBM bytes of kernels: counted by the profiler, and by blocking", download="bytes")

# %%
timed = kernels.side_by_side(transfers, "time")
charts.table(timed, caption="Kernels that only move data, and single transfers", download="transfers")

# %% tags=["hide-input"]
errors = score.summary(transfers, "group").set_index("group")
judged = score.shipped("kernel")
Markdown(
    f"Bytes {errors.median_error['bytes']:.1%} (worst {errors.worst_error['bytes']:+.0%}: a Trainium3 kernel that reads "
    f"three times what SBUF demands), streaming kernels {errors.median_error['memory']:.1%}, single transfers "
    f"{errors.median_error['dma']:.1%} (worst {errors.worst_error['dma']:+.0%}: rows of 8 B, which start faster than the "
    f"curve says). {len(score.excluded(judged))} of {len(judged)} kernel rows are set aside; chapter 2 lists the reasons."
)

# %% [markdown]
# ## What moves the answer
#
# * **Length of the contiguous row**: a factor of a hundred between 32 B and 4 KiB.
# * **Which door is narrower**, HBM or the DMA engines, changes by generation.
# * **The HBM figure**: AWS prints two for Trainium2 and for Trainium3, a few percent apart; on Trainium3 both are wider than the door.
# * **Decoding on a later generation** carries the share of the door over from Trainium1, of which alone the profiles tell.
#
# ## What is left out
#
# Refresh and bank conflicts of HBM, which the profiled share holds; inline compression on the DMA path, printed for whole
# chips and never measured; traffic classes on Trainium3, not configurable yet; rates of NVMe and ENA, which no source prints. Whole steps are
# chapter 10.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Divide bytes by the DMA engines' rate, not by the HBM's, and make every row at least 2 KiB long.
# ```

# %% [markdown]
# ## Problems
#
# **1.** What share of its HBM bandwidth do the DMA engines of one core of Trainium1 reach by the guide's rate?
#
# ```{admonition} Answer
# :class: dropdown
# 16 engines x 17 GB/s = 272 GB/s of 820 / 2 = 410 GB/s: 66 %.
# ```
#
# **2.** A kernel gathers 4,096 rows of 256 B on one core of Trainium2. How long does the transfer take?
#
# ```{admonition} Answer
# :class: dropdown
# 1 MiB at 256/2,485 = 10.3 % of 362.5 GB/s (HBM's share of a core is the narrower door): 28 µs, and 1.3 µs to start.
# ```
#
# **3.** By what factor does W4A8 speed up a decode step that reads nothing but weights, over MXFP8?
#
# ```{admonition} Answer
# :class: dropdown
# 8.25 / 4.25 = 1.94: the block scales do not shrink.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
shown = used.quantity.str.contains("dma|hbm|sbuf|host_bytes") & used.entity.str.startswith(("neuron", "trainium"))
sources = common.bibliography(used[shown].source)
charts.table(sources, caption="Sources of the figures in this chapter", download="sources")
