# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 4.7
#     part: Decide
# ---

# %% [markdown]
# # What would Trainium4 change?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
systems: list[str] = ["trn4-ualink-roadmap", "trn4-nvlink-roadmap"]
model: str = "llama-3.3-70b"
tokens_per_s_per_user: float = 50.0
experts_model: str = "deepseek-v3"
experts_tokens_per_s_per_user: float = 20.0
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
from dataclasses import replace

import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import guard
from trnbook.chapters import trainium4 as tables
from trnbook.shared import case

before, tracks = tm.system(system), [tm.system(name) for name in systems]
dense, experts = tm.model(model), tm.model(experts_model)
tables.check(before, tracks)
guard.generates(model=dense, experts_model=experts)
guard.need(dense.id != experts.id, f"model and experts_model are both {dense.id!r}: name two models")
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
guard.within(1e-3, 1e6, experts_tokens_per_s_per_user=experts_tokens_per_s_per_user)
guard.spans(input_tokens + output_tokens, model=dense, experts_model=experts)
everyone, first, now, to_come = [before, *tracks], tracks[0], before.chip, tracks[0].chip
speeds = {dense.id: tokens_per_s_per_user, experts.id: experts_tokens_per_s_per_user}
requests = {
    name: tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speed) for name, speed in speeds.items()
}

# %% tags=["hide-input"]
hours = {spec.id: tm.tco(spec) for spec in everyone}  # what a chip-hour costs its owner
terms = {tables.TODAY: ("no-speculation", "public"), tables.IDEAL: ("ideal", "ideal")}
rows, plans = [], []
for m in (dense, experts):
    for software, (named, kind) in terms.items():
        side = tm.compare(m, requests[m.id], everyone, baseline=before, efficiencies=named)
        at = {c.system.id: c.stack for c in side.at()}
        paid = {
            name: tm.token_cost(m, requests[m.id], name, pricing=hours, efficiencies=at[name])
            for name in hours
            if name in at
        }
        rows += tables.gains(m.id, software, side, paid, before.id, kind)
        plans += tables.planned(m.id, software, side, paid, kind)
gained = tables.table_of(rows)

# %% tags=["hide-input"]
card = tables.answer(gained, dense.id, before, first)
display(Markdown(card))
charts.ranges(
    tables.shown(gained, first.id),
    x=tables.TIMES,
    y="measure",
    color="model",
    log_x=True,
    caption="On ideal software dollars gain half of what chips do",
    under=f"{first.name} over {before.name}; bars hold nine of ten draws",
)

# %% [markdown]
# AWS has announced at least three times the arithmetic of Trainium3 in 8 bits and four times its memory bandwidth. *Ideal software* turns
# most of this into tokens. *Today's software* has the overheads that were measured on Trainium2, and its bars are wide, because
# nobody knows the software of a chip that will be delivered in 2027. *Drafts* of a small model, which a large one checks, are left out
# on both sides.
#
# ## The running case
#
# Two models on three systems run through the whole book. Trainium4 is not among them. This page adds it, and leaves out the drafts that
# the plans of the case use for Llama on Trainium.

# %% tags=["hide-input"]
case.table("trainium4")

# %% tags=["hide-input"]
charts.table(pd.DataFrame(plans), caption="The same requests on Trainium4, without drafts", download="plans")

# %% [markdown]
# ## What is announced?
#
# There is no data sheet of Trainium4. AWS gave ratios to Trainium3, and SemiAnalysis added the capacity of the memory and the links. A
# ratio $r$ makes a figure of Trainium4 from one of Trainium3:
#
# $$ x_4 = r\,x_3 . $$
#
# The reports say "FP8" and "at least". We read the first as MXFP8, because that is the 8-bit peak that AWS prints of Trainium3, and we
# compute with the lower bound.

# %%
chip = tm.chip("trainium4-roadmap")
chip

# %% tags=["hide-input"]
charts.table(tables.ratios(to_come), caption="What is announced of the chip", download="announced")

# %% [markdown]
# **No BF16 peak is published.** That is no small gap, because Trainium3 doubled its peak in 8 bits and kept that of Trainium2 in 16. So a
# question in BF16 is refused, and so is a preset whose attention multiplies in BF16. The preset `mxfp8-attn8` multiplies linear layers
# and attention in 8 bits. A search takes it by itself.

# %%
try:
    tm.decode_step("llama-3.3-70b", "trn4-ualink-roadmap", tm.Mapping(tp=8), batch=32, context=4352, precision="bf16")
except ValueError as refusal:
    refused = str(refusal)
Markdown(f"`tm.decode_step` says: {refused}.")

# %% [markdown]
# ## What is assumed?
#
# A system needs more than four ratios: links, a rack, watts and a price. Nobody announced these. We fill each gap with a range that
# begins with Trainium3's figure and ends where an announced ratio or a printed lane would take it:
#
# $$ x_4 \in \left[\,x_3^{\text{low}},\ r\,x_3^{\text{high}}\,\right] . $$
#
# Two tracks have been reported. One has UALink, an open standard, with lanes of 224 Gb/s. The other has NVLink Fusion, which lets AWS
# join its chip to NVIDIA's links. Its lanes send and receive at once on the same pair of wires.
#
# **By hand.** A Trainium3 has 144 active lanes of 64 Gb/s. At 224 Gb/s as many lanes carry $144 \times 224 / 8 = 4{,}032$ GB/s each
# way. A lane has two pairs of wires, and with NVLink both carry data both ways, which doubles the bound to 8,064 GB/s.

# %%
ualink, nvlink = tm.system("trn4-ualink-roadmap"), tm.system("trn4-nvlink-roadmap")
sums = [spec.range("scaleup_bytes_per_s_per_dir")[1] / 1e9 for spec in (ualink, nvlink)]
assert sums == [144 * 224 / 8, 2 * 144 * 224 / 8]
nvlink

# %% tags=["hide-input"]
charts.table(
    tables.assumed(to_come, *tracks).drop(columns="reason"), caption="Ranges that nobody announced", download="assumed"
)

# %% [markdown]
# Counts cannot be ranges. Both racks have the 144 chips of the largest Trainium3 system, and the chip has Trainium3's eight cores with
# their vector engines and DMA queues. The package is priced as Trainium3's, by the bytes of its memory.
#
# ## Where is the ridge?
#
# Below its *ridge point* a chip waits for memory, and above it for arithmetic. The ridge is the peak $P$ over the bandwidth $b$:
#
# $$ I^{*} = \frac{P}{b}, \qquad \frac{I^{*}_4}{I^{*}_3} = \frac{r_P}{r_b} . $$
#
# **By hand.** In 8 bits the peak grows three times and the bandwidth four times. The ridge falls to three quarters, from 514 to
# 385 FLOP/byte. In 4 bits the peak grows six times, and the ridge rises to 771.

# %%
corners = {}
for one, dtype in ((tm.chip("trainium3"), "mxfp8"), (chip, "mxfp8"), (chip, "mxfp4")):
    corner = tm.roofline.ridge_point_flop_per_byte(one.peak(dtype), one.hbm_bytes_per_s)
    corners[f"{one.name}, {dtype.upper()}"] = round(float(corner))
assert list(corners.values()) == [514, 385, 771]
corners

# %% tags=["hide-input"]
formats = {f"{now.name}, MXFP8": (now, "mxfp8")} | {
    f"{to_come.name}, {d.upper()}": (to_come, d) for d in ("mxfp8", "mxfp4")
}
charts.lines(
    tables.roofs(formats, np.geomspace(20, 5000, 60), tm.roofline.attainable_flop_per_s),
    x="intensity_flop_per_byte",
    y="attainable_flop_per_s",
    color="roof",
    log_x=True,
    log_y=True,
    caption="More bandwidth than arithmetic moves the ridge left",
    under="per chip, dense; the announced lower bounds",
)

# %% [markdown]
# A decode step lies far to the left of every ridge, so the bandwidth counts there. Prompts lie to the right, where the smaller ratio
# counts. A server does both, and its gain is between the two.
#
# ## What takes the time of a step?
#
# The next cell takes the best mapping of the first model on Trainium3 with today's software. Then it asks each rack for the same step, so
# that only the hardware differs.

# %%
best = tm.plan(dense, requests[dense.id], before, efficiencies="no-speculation").best
same = {"batch": best.batch, "context": input_tokens + output_tokens / 2, "precision": "mxfp8-attn8"}
steps = {
    spec.name: tm.decode_step(dense, spec, best.degrees, **same, efficiencies="vllm-neuron-2026-async")
    for spec in everyone
}

# %% tags=["hide-input"]
charts.stacks(
    tables.parts(steps),
    x="what",
    y="time_s",
    color="part",
    caption="Faster memory leaves the software's overhead",
    under=f"a decode step of {dense.id} at one mapping and batch; parts before they overlap",
)

# %% [markdown]
# Each layer of the model adds a constant time, which comes from the software, and which the chip does not shorten. Once the reads of the
# weights are short, this constant is most of the step. This is *Amdahl's law*: the part that does not shrink sets the limit. If the parts
# $t_i$ become $r_i$ times as fast, the step becomes
#
# $$ \frac{t_3}{t_4} = \frac{\sum_i t_i}{\sum_i t_i / r_i} $$
#
# times as fast. The best plan of the new chip gains more than that. It needs fewer chips for the same promise, and more sequences share
# each constant. Where Trainium3 hardly keeps the promise, the gain may even exceed every announced ratio.
#
# ## Does the link matter?
#
# A system takes arrays. The cell moves the rate of a lane from Trainium3's to the highest bound, at one mapping. Exchanges are not hidden
# here, so that the effect is the largest possible.

# %%
lanes = np.linspace(8e9, 56e9, 25)
moved = nvlink.moved({"lane_bytes_per_s_per_dir": lanes})
asks = {"batch": 512, "context": 4352, "precision": "mxfp8-attn8", "efficiencies": "ideal", "network_overlap": 0.0}
swept = {
    name: tm.decode_step(name, moved, tm.Mapping(**degrees), **asks)
    for name, degrees in {"llama-3.3-70b": {"tp": 32}, "deepseek-v3": {"tp": 4, "ep": 16}}.items()
}

# %% tags=["hide-input"]
curves = [
    pd.DataFrame({"model": name, "lane_bytes_per_s_per_dir": lanes, "time_s": step.time_s})
    for name, step in swept.items()
]
charts.lines(
    pd.concat(curves, ignore_index=True),
    x="lane_bytes_per_s_per_dir",
    y="time_s",
    color="model",
    caption="The first doubling of a lane gains the most",
    under="ideal software, exchanges not hidden; UALink ends at 28 GB/s, NVLink at 56",
)

# %% tags=["hide-input"]
charts.table(tables.per_chip(gained), caption="Tokens per chip on each rack, over Trainium3's", download="racks")

# %% [markdown]
# The racks differ by less than their ranges. What sets the tracks apart lies outside of these figures. NVLink Fusion needs another
# chiplet, which may delay it, and AWS has to agree on a price with NVIDIA.
#
# ## Watts and joules
#
# Nobody has announced the watts. From 700 W, where our estimate for Trainium3 begins, the range goes to three times its upper end, as
# if an operation took as much energy as before. The energy per token is the server's power $P$ per chip over the throughput $y$:
#
# $$ E = \frac{P(w)}{y} . $$

# %%
watts = np.array([700.0, 1000.0, 1500.0, 2000.0, 3000.0])
warm = replace(ualink, chip=ualink.chip.moved({"tdp_w": watts}))
step = tm.decode_step("llama-3.3-70b", warm, tm.Mapping(tp=8), batch=32, context=4352, precision="mxfp8-attn8")
energy = tm.energy(step)

# %% tags=["hide-input"]
charts.lines(
    pd.DataFrame({"tdp_w": watts, "server_j_per_token": energy.server_j_per_token}),
    x="tdp_w",
    y="server_j_per_token",
    caption="Energy per token follows the unknown power",
    under="Llama-3.3-70B, 32 sequences, today's software, at the server",
)

# %% [markdown]
# ## Dollars
#
# The cost per token falls if the throughput grows more than the price. An owner of Trainium4 pays as much per token as one of Trainium3
# where a chip-hour costs
#
# $$ p^{*} = p_3\,\frac{y_4}{y_3} . $$
#
# The cell asks what a chip-hour would cost its owner. More memory and more watts make it dearer, even if the margin stays.

# %%
now_and_then = [tm.system("trn3-nl72x2-pcie160"), ualink, nvlink]
each = pd.concat([tm.tco(spec).to_frame(bands=True) for spec in now_and_then])

# %% tags=["hide-input"]
each = each.rename(columns={"low": "usd_per_h_low", "high": "usd_per_h_high"})
columns = [f"usd_per_h{end}" for end in tables.ENDS]
charts.table(each[["system", "tdp_w", *columns]], caption="What a chip-hour costs its owner", download="hours")

# %%
tied = tm.token_cost(dense, requests[dense.id], everyone, pricing=hours, efficiencies="ideal").break_even(before.id)

# %% tags=["hide-input"]
columns = [
    "break_even_usd_per_chip_h",
    "break_even_usd_per_chip_h_low",
    "break_even_usd_per_chip_h_high",
    "usd_per_chip_h",
]
charts.table(
    tied[["system", *columns]],
    caption=f"Price of a chip-hour at which a token costs what it costs on {before.name}, ideal software",
    download="ties",
)

# %% [markdown]
# ## Check: what came of the announcement of Trainium3?
#
# How far can such ratios be trusted? At its conference of 2024 AWS said that Trainium3 would have "roughly four times the performance" of
# Trainium2 and be available late in 2025. It did not say of what. AWS declared the systems available in December 2025, and a list of
# instances that we read ten months later had none.

# %%
old, new = tm.system("trn2-ultraserver"), tm.system("trn3-nl72x2-pcie160")
per_chip = new.chip.peak("mxfp8") / old.chip.peak("fp8")
per_rack = per_chip * new.chips / old.chips
bf16 = new.chip.peak("bf16") / old.chip.peak("bf16")
assert [round(float(x), 2) for x in (per_chip, per_rack, bf16)] == [1.94, 4.36, 1.01]

# %% tags=["hide-input"]
came = tables.delivered(old, new)
charts.bars(
    came,
    x="figure",
    y=tables.TIMES,
    color="per",
    caption="Four times was true of the rack, not the chip",
    under="Trainium3 over Trainium2 by AWS's data sheets; announced: roughly 4 times",
)

# %% [markdown]
# **By hand.** A chip makes 2,517 TFLOP/s in MXFP8, and Trainium2 makes 1,299 in FP8. That is 1.94 times. The larger UltraServer has 144
# chips, and the older one 64. Together this gives 4.36 times, which AWS prints as 4.4.
#
# So the announcement held for a system with more than twice as many chips. Per chip about half of it came in 8 bits, and in BF16 nothing.
# Trainium4's ratios are said of the chip. If they turn out to be of a larger system, a chip gets less, as the last chart below shows.

# %% tags=["hide-input"]
charts.table(tables.claims(), caption="What was claimed of Trainium3 over Trainium2", download="claims")

# %% [markdown]
# ## What moves the answer
#
# The cell lets only a share $s$ of each announced gain arrive, so that a ratio becomes $1 + s\,(r - 1)$. At a share of 0 the chip is a
# Trainium3 with more memory. The batch and the mapping stay.

# %%
share = np.linspace(0, 1, 21)
base = tm.chip("trainium3")
labels = ["peak_flop_per_s[mxfp8]", "hbm_bytes_per_s"]
figures = {label: base.at(label) + share * (chip.at(label) - base.at(label)) for label in labels}
weaker = replace(ualink, chip=chip.moved(figures))
ask = {"batch": 32, "context": 4352, "precision": "mxfp8-attn8"}
ran = {
    name: tm.decode_step("llama-3.3-70b", weaker, tm.Mapping(tp=8), **ask, efficiencies=stack)
    for name, stack in {"today's software": None, "ideal software": "ideal"}.items()
}

# %% tags=["hide-input"]
speeds_by_share = [
    pd.DataFrame({"software": name, "arrived_share": share, "tokens_per_s_per_user": step.tokens_per_s_per_user})
    for name, step in ran.items()
]
charts.lines(
    pd.concat(speeds_by_share, ignore_index=True),
    x="arrived_share",
    y="tokens_per_s_per_user",
    color="software",
    caption="Overheads halve what the announced ratios give",
    under="Llama-3.3-70B at one mapping and 32 sequences",
)

# %% [markdown]
# Without any of the announced gains, ideal software gives a user more than today's software does with all of them.
#
# ## What is left out
#
# - **Drafts and other options of software.** No page documents one for this chip. [What does software cost?](software.ipynb) shows what
#   they gain on Trainium2.
# - **Training.** Most of it runs in BF16, whose peak nobody has published.
# - **Quality.** Attention in 8 bits may cost accuracy, of which we know no measurement on Trainium.
# - **Larger domains.** SemiAnalysis writes of more than 144 chips with NVLink. A mixture of experts could gain from that.
# - **Trainium3 in 2027.** Its software will have improved by then.
#
# ```{admonition} Takeaway
# :class: tip
# If all that is announced arrives, a Trainium4 gains about as much per chip as the ratios say, and less per dollar and per joule. Ask what a
# ratio is of before you believe it, because the last one was of a rack. And ask for software first. Constant overheads hide what a
# faster memory could give.
# ```
#
# ## Problems
#
# **1.** A step of Trainium3 takes 6 ms to read memory and 13 ms in overheads, one after the other. The memory becomes four times as
# fast. How many times as fast is the step?
#
# ```{admonition} Answer
# :class: dropdown
# Before, it takes $6 + 13 = 19$ ms. Then it takes $1.5 + 13 = 14.5$ ms, so it is 1.3 times as fast. Without the overheads it would
# be four times.
# ```
#
# **2.** A chip-hour of Trainium3 costs its owner \$1.05. A Trainium4 makes 3.7 times the tokens. At which price per hour does a token
# cost the same?
#
# ```{admonition} Answer
# :class: dropdown
# At $1.05 \times 3.7 = 3.89$ dollars.
# ```
#
# **3.** A ratio of 3 is announced of a system. Its successor has 144 chips, and the older one had 64. What is the ratio per chip?
#
# ```{admonition} Answer
# :class: dropdown
# It is $3 \times 64 / 144 = 1.33$.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
evidence = {
    "Gains of each rack with their ranges": (gained, "gains"),
    "Every range that we assume, with its reason": (tables.assumed(to_come, *tracks), "assumptions"),
    "Sources of the chip and the racks": (tables.sources(to_come, *tracks), "sources"),
}
display(*(charts.table(frame, caption=name, download=stem, file_only=True) for name, (frame, stem) in evidence.items()))

# %% [markdown]
# ## Sources
#
# The ratios are in AWS's announcement of December 2025, as an encyclopedia article and an analyst's summary report it. The memory and the two
# tracks of links are in SemiAnalysis's *AWS Trainium3 Deep Dive*. The figures of Trainium2 and Trainium3 are on AWS's pages.

# %% tags=["hide-input"]
charts.table(tables.sources(to_come, *tracks), caption="Pages behind the figures of Trainium4", download="pages")
