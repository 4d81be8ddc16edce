# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 21
#     part: Evidence
# ---

# %% [markdown]
# # Where do the sources disagree, and what did we decide?

# %% tags=["parameters"]
entity: str = "trainium3"
quantity: str = "hbm_bytes_per_s"

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import contradictions as tables
from trnbook.chapters import guard
from trnbook.shared import case, ledger

facts = tm.facts()
why = tables.undisputed(facts, entity, quantity)
guard.need(not why, why)
rack = tm.system("trn3-nl72x2-pcie160")

# %% tags=["hide-input"]
Markdown(tables.answer(facts, entity, quantity))

# %%
rows = tables.followed(tm.facts(), entity, quantity)
charts.table(rows, caption="What each source prints or implies, and what we do with it", download="figure")

# %% [markdown]
# A figure that nobody contradicts is simply used. Where sources disagree, we decide once, write down why, and keep what the others print. If
# nothing decides, the figure stays *open*: one value leads, and the others become the ends of the band of every answer that uses it.
#
# Words are disputed too. An online encyclopedia says that the racks of Trainium3 can be rented, but EC2 lists none of them. So this book says *announced*.
#
# ## Find a disagreement
#
# Type words, such as a chip and a quantity. Below stands every figure on which sources disagree, Trainium first.

# %%
disputed = tables.disputed(tm.facts())
charts.table(disputed, caption="Which source says what, and what we use", download="disputed", find=True)

# %% [markdown]
# ## The bandwidth of Trainium3's memory
#
# Two pages of AWS disagree. The architecture page prints 4.9 TB/s, and AWS's totals of both UltraServers agree with it. They are no independent
# proof, because somebody may have computed them from it. The guide for kernels prints 4.7 TB/s. A profile that was taken on hardware implies about
# as much. With $n$ stacks of $k$ pins, the rate $r$ of a pin gives
#
# $$ b = \frac{n\,k\,r}{8} . $$
#
# **By hand.** Trainium3 has four stacks of 1,024 pins. A pin rate of 9.6 Gb/s gives $4.915$ TB/s, and 9.2 Gb/s gives $4.710$. They look
# like two grades of the same memory, which is our inference, since AWS prints no pin rate. We use the larger figure and carry the smaller one. Ask the running case at each:

# %%
assert (round(4 * 1024 * 9.6 / 8 / 1000, 3), round(4 * 1024 * 9.2 / 8 / 1000, 3)) == (4.915, 4.710)
lines = []
for model in case.PROMISES:
    for rate in tables.printed_values(tm.facts(), "trainium3", "hbm_bytes_per_s"):
        system = tables.with_chip(rack, hbm_bytes_per_s=rate)
        lines.append(tables.line(rate, tm.plan(model, case.request(model), systems=system).best))
charts.table(pd.DataFrame(lines), caption="The running case at each of these bandwidths", download="hbm")

# %% [markdown]
# A step moves less than the bandwidth, since part of it is exchange and software. Throughput can move more, since less time is left for prompts.
#
# ## Ten disagreements that touch the running case
#
# A disagreement matters if an answer moves with it. So we build each system with the other figure, plan again, and divide. Eight of them can
# move the throughput per chip:

# %%
moves = []
for model in case.PROMISES:
    for dispute in tables.RATES:
        systems = tables.both(dispute)  # the system as we have it, and with the other figure
        ours, other = (tm.plan(model, case.request(model), systems=one).best for one in systems)
        moves += tables.move(dispute, ours, other)

# %% [markdown]
# The other two are watts, and move the energy per token.

# %%
unknown = []
for model in case.PROMISES:
    ask = case.request(model)
    for dispute in tables.WATTS:
        plans = [tm.plan(model, ask, systems=one).best for one in tables.both(dispute)]
        moves += tables.move(dispute, *plans, of=lambda plan: float(plan.energy().server_j_per_token))
for model, where in ((model, where) for where in case.SYSTEMS[::2] for model in case.PROMISES):
    unknown += tables.software(tm.plan(model, case.request(model), systems=where).best)
moved = tables.largest_first(tables.changes(moves))
said = "Watts, lanes and one placeholder move the case most"
chart = charts.bars(moved, "group", "change_in_percent", "model", caption=said, under=tables.MOVED)
ten = charts.table(tables.ten(moved), caption="What others print, and how far the case moves", download="ten")
display(chart, Markdown(tables.unsure(unknown)), ten)

# %% [markdown]
# Most of the ten would move Llama by a few percent or not at all, apart from watts. Half of them would move DeepSeek-V3 by seven percent or more. The
# memory of Trainium2 moves it most, but that figure is a placeholder: no program can use so much. Of the others, watts and lanes move it most.
#
# An eleventh disagreement is missing from the table: how fast the DMA engines of Trainium3 copy. AWS's guide for kernels prints 4.22 TB/s at most,
# but the step model reads weights at 4.66 TB/s: [How fast do bytes reach a NeuronCore?](memory.ipynb) shows why.
#
# ## How many lanes has a chip in NL72x2?
#
# A *lane* is a pair of wires in each direction. SemiAnalysis counts 144 active lanes, by circuit board, backplane and cable between racks. AWS's
# architecture page lists links that add up to 88. Ask both for the exchange that experts need, an *all-to-all*, in which each core sends a
# different piece to every other one:

# %%
sizes = 2.0 ** np.arange(10, 29)
readings = {"144 lanes (SemiAnalysis)": rack, "88 lanes (AWS)": tm.system("trn3-nl72x2-aws-lanes")}
ask = {"ranks": 64, "stride": 2, "lnc": 2, "efficiencies": "vllm-neuron-2026-async"}
exchanges = [
    tm.collective("all_to_all", sizes, system, **ask).to_frame().assign(lanes=name) for name, system in readings.items()
]
charts.lines(
    pd.concat(exchanges)[["lanes", "message_bytes", "time_s"]],
    x="message_bytes",
    y="time_s",
    color="lanes",
    log_x=True,
    log_y=True,
    caption="Fewer lanes slow large exchanges, and small ones hardly",
    under="all-to-all among the experts of DeepSeek-V3 in the case, by the bytes that a core sends",
)

# %% [markdown]
# A small message waits for switches, and a large one for lanes. The messages of a prompt are large, and that is where the case loses. The two
# readings are two systems of this book, and the chapters on racks and switches show both.
#
# ## Why do sources disagree?
#
# Few of the disagreements are errors. Six causes explain nearly all of them:
#
# 1. **Rounding.** A press text prints two digits where the data sheet prints four.
# 2. **Units.** GB stands for GiB, and GiB/s for GB/s. What a device lists decides.
# 3. **One way or both.** A link rate may add both directions. We count lanes, and keep one direction.
# 4. **Old editions.** A first page is replaced, and its figures live on elsewhere.
# 5. **Another thing by the same name.** An online encyclopedia, listed in the sources, calls the sum of all memory bandwidth the bandwidth of the fabric.
# 6. **Nobody publishes it.** Watts, prices and failure rates of a chip are inferred, and stay open.
#
# ## Which rules decide, and where do we seem to break them?
#
# The first rule that applies decides. *One:* a figure must give the totals that are printed for whole instances. *Two:* what hardware lists beats what
# is printed. *Three:* a vendor's page of today beats its older pages and all others. *Four:* what nothing decides stays open.
#
# Three rulings look as if they broke a rule. The table of ten says how far each moves the running case.
#
# - **The lanes of NL72x2.** The links on AWS's page of today add up to 88 lanes, yet we follow SemiAnalysis. The total that AWS prints for a chip
#   needs 128 lanes. SemiAnalysis counts these, and 16 more between the racks. So the first rule decides, and it favours Trainium3.
# - **The bandwidth of Trainium3.** A profile on hardware implies the smaller figure. But it prints a share of the bandwidth and not the bandwidth.
#   So the totals lead, which favours Trainium3 too, and the smaller figure stays in the band.
# - **Plain FP8 of Trainium3.** AWS's comparison table prints the larger figure, and AWS's page of the core gives it to MX formats alone. Two pages of
#   today contradict each other. The FP8 instruction doubles BF16, so we use twice BF16. This works against Trainium3.
#
# ## Check: printed totals
#
# Totals show a misprint or a wrong unit, but they are no independent proof of a figure. If our figures are those of the source, so are these:

# %%
printed = {"trn2.48xlarge": 46.4, "trn2-ultraserver": 185.6, "trn3-nl32x2-pcie160": 313.6, "trn3-nl72x2-pcie160": 705.6}
for name, terabytes_per_s in printed.items():
    assert abs(tm.system(name).hbm_bytes_per_s / 1e12 - terabytes_per_s) < 0.05
for name, gib in {"trn3-nl32x2-pcie160": 9_216, "trn3-nl72x2-pcie160": 20_736}.items():
    assert tm.system(name).hbm_bytes == gib * 2**30

# %% [markdown]
# All four printed bandwidths and both capacities follow from the figures in use. With 4.7 TB/s per chip, AWS's own totals would be wrong.
#
# ## What is left out
#
# Sources that contradict themselves within one text stand in Evidence, with the arithmetic, and [among all claims](claims.ipynb) with their readings. A figure that only one source prints cannot be disputed,
# which does not make it right: [Where does each number come from?](data.ipynb) marks what rests on a single source or on us.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Sources disagree often, and mostly by little. In the running case few disputed figures matter: the lanes between experts, the watts, and the bandwidth of
# Trainium3's memory. What nobody knows of the software can move the case more than tenfold, up or down.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A page prints 384 GB/s for a chip with four links, and an older page prints 1,536 GB/s. Which is the older page's likely error?
#
# ```{admonition} Answer
# :class: dropdown
# $1536 = 4 \times 384$. It multiplied by the four links a figure that already added them.
# ```
#
# **2.** A rack of 144 chips has 20,736 GiB of memory. A press text says 20.7 TB, and another 20.7 TiB. What is it in each unit?
#
# ```{admonition} Answer
# :class: dropdown
# It is $20736 \times 2^{30} = 22.27 \times 10^{12}$ bytes, so 22.27 TB or 20.25 TiB. Both texts divided by 1,000 and kept the letters.
# ```
#
# **3.** A step spends half of its time on reads of HBM and half on software that does not depend on it. By how much does it grow if the bandwidth is
# 4% lower?
#
# ```{admonition} Answer
# :class: dropdown
# The reads take $1/0.96 = 1.042$ times as long, so that the step grows by $2.1\%$.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
files = {
    "Every disputed fact, row by row, with its place and reason": (tables.every_fact(facts), "disputed-facts"),
    "Where one source contradicts itself, with the arithmetic": (ledger.contradictions(), "within-a-source"),
    "The sources of all disputed facts": (tables.sources(facts), "sources"),
}
display(*(charts.table(frame, caption=said, download=stem, file_only=True) for said, (frame, stem) in files.items()))
