# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 8
#     part: Understand
# ---

# %% [markdown]
# # What is in a rack?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
compared_system: str = "trn2-ultraserver"

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import rack as tables
from trnbook.shared import case
from trnbook.shared.rack_power import rack_power

spec, other = tm.system(system), tm.system(compared_system)
guard.links(system=spec, compared_system=other)
guard.need(spec.domain_chips > 1, f"system = {spec.id!r} is a single chip, which no link joins to another")
unknown = np.any(np.isnan(spec.chip.hop_s))
far = None if unknown else tm.collective("all_to_all", 0, spec, in_graph=True, rate_share=1.0)
step = tm.decode_step("llama-3.1-8b", spec, tm.Mapping(), batch=1, context=1024)
budget = rack_power(spec) if spec.racks >= 1 else None
Markdown(tables.answer(tm.topology(spec), tm.topology(other), far, tm.energy(step), budget))

# %% tags=["hide-input"]
tables.front(spec)

# %% [markdown]
# Compute **trays** hold the chips, and switch trays hold the switches that join them. One rack has several names: AWS has announced *Trn3 Gen2
# UltraServers*, which SemiAnalysis calls *Trainium3 NL72x2 Switched*. The letters stand for NeuronLink, and the numbers for two racks of
# 72 chips that work as one machine.
#
# ## The running case
#
# Two models on three systems run through the whole book. The last line of the table is this chapter's.

# %% tags=["hide-input"]
case.table("rack")

# %% [markdown]
# ## Why does it matter what joins the chips?
#
# A large model is spread over several chips. They work on the same token, and they wait for each other many times in each step. How long
# they wait depends on what joins them. Within a rack, or a pair of racks, that is the **scale-up** network of this chapter. Beyond it lies
# [the **scale-out** network](scale-out.ipynb), which reaches further and is far slower.
#
# A **lane** is the smallest connection: a few wires that carry a fixed number of bytes per second each way. A chip has a fixed number of
# lanes, and the designer of the rack decides where they end. Lanes to the same chip or switch form a **link**.
#
# * On a **torus**, links end at a few neighbours. The chips in between forward a message to any other chip.
# * With **switches**, links end at switches, and a switch passes a message on to any of its other links.
#
# One switch has too few links for all chips of a large rack. So the chips are divided into **planes**. A plane's switches reach only
# that plane's chips. A message to a chip of another plane must change planes, and it does so on a tray, where neighbours are joined directly or by
# *board switches*. Choose a path to follow one:

# %% tags=["hide-input"]
tables.some_paths(spec)

# %% [markdown]
# ## What can one chip send?
#
# Count its lanes by where they end. With $n_i$ lanes of kind $i$, each of rate $r$, a chip sends at most its **injection bandwidth**
#
# $$ B = r \sum_i n_i . $$
#
# In NL72x2 each chip brings $n = 64$ lanes to the switches of its plane, and each switch gives it a port of
# $w = 8$ lanes. So the plane has $S$ switches. A switch has $L = 160$ lanes. It has $L/w$ ports and so serves at most that many chips $N_p$:
#
# $$ S = \frac{n}{w}, \qquad N_p \le \frac{L}{w} . $$
#
# **By hand.** Take NL72x2 as SemiAnalysis describes it. A chip has 64 lanes to the other chips of its tray, and as many to the switch
# trays. Another 16 go to its partner in the second rack. A lane of PCIe Gen6 carries 8 GB/s, so $B = 144 \times 8 = 1{,}152$ GB/s.
#
# A rack switch has $160/8 = 20$ ports. A plane takes one chip of each of the 18 trays and needs $64/8 = 8$ switches. Four planes with two
# spare switches each make $4 \times 10 = 40$. On a board, four chips bring $4 \times 64$ lanes to switches of 32 lanes, which are eight per
# tray and 144 per rack. Together that is 184.

# %%
nl72, lanes, lane_rate, chips = "trn3-nl72x2-pcie160", 64 + 64 + 16, 8e9, 144  # yours to change
gathered = tm.collective("all_gather", 1e12, nl72, efficiencies="ideal")  # bounded by injection
assert np.isclose(gathered.lower_bound_s, (chips - 1) / chips * 1e12 / (lanes * lane_rate))
switches = 4 * (64 // 8 + 2) + 18 * 4 * 64 // 32  # in the rack, and on the boards
assert tm.topology(nl72).switch_counts.total() == 2 * switches == 2 * 184

# %% [markdown]
# ## How far apart are two chips, and what do all share?
#
# A message passes $f$ chips that forward it and $s$ switches. Each chip that sends or forwards takes a *hop* $\alpha$, and each switch a
# shorter time $t_s$. Then $m$ bytes flow at the rate $b$ of the narrowest link:
#
# $$ t = (1 + f)\,\alpha + s\,t_s + \frac{m}{b} . $$
#
# On a torus whose axes are rings of $k_i$ chips, $N$ in all, the mean distance grows with the torus:
#
# $$ \bar d = \frac{N}{N-1} \sum_i \frac{\lfloor k_i^2/4 \rfloor}{k_i} . $$
#
# Now let all chips send at once. Cut the machine into halves where the fewest lanes cross. What they carry one way is the **bisection
# bandwidth**. On a torus, cut the longest axis. Every ring along it, of $k$ chips, is cut twice, through links of rate $b$. A pair of racks is cut through
# the $n_x$ lanes of each chip to its partner:
#
# $$ B_\text{torus} = 2\,\frac{N}{k}\,b, \qquad B_\text{racks} = \frac{N}{2}\,n_x\,r . $$
#
# In an **all-to-all**, every chip sends to every other one. The $(N/2)^2$ pairs across the cut share it, so no pair gets more than
#
# $$ \lambda \le \frac{B_\text{cut}}{(N/2)^2} . $$
#
# **By hand.** The farthest chips of NL72x2 lie in different racks, trays and planes. Three chips send or forward, at 1.5 µs each, and two
# switches take 0.115 µs each, so a message without bytes takes $4.73$ µs. Between the racks, $72^2$ pairs share
# $72 \times 128$ GB/s. Each pair gets 1.8 GB/s.

# %%
alone = {"in_graph": True, "rate_share": 1.0}  # the links alone: no launch from the host, no loss
empty = tm.collective("all_to_all", 0, nl72, **alone)
assert np.isclose(empty.time_s, 3 * 1.5e-6 + 2 * 0.115e-6)
full = tm.collective("all_to_all", 1e9, nl72, alpha_s=0.0, **alone)  # four ranks per chip
assert np.isclose(full.time_s, 4 * 1e9 / chips / (72 * 16 * lane_rate / 72**2), rtol=1e-3)

# %% [markdown]
# ## How do systems compare?
#
# Ask the same of each whole system, which is both racks where there are two. The latency is that of an all-to-all without bytes, which waits for the farthest chip.

# %%
rows = []
for name in tables.family(spec):
    far = tm.collective("all_to_all", 0, name, algorithm="direct", **alone)
    rows.append(tables.fabric(tm.topology(name), far))
fabrics = pd.DataFrame(rows)
charts.bars(
    fabrics,
    x="system",
    y="injection_bytes_per_s_per_dir",
    caption="The lanes of a chip set what it can send",
    under="in one direction, over all links of a chip to others of its domain",
)

# %% tags=["hide-input"]
charts.table(fabrics, caption="Switches cut latency, and lanes set the rates", download="fabrics")

# %% [markdown]
# A way through a switch counts as two links, but takes little longer than one. So compare the latencies, which switches shorten, and not
# the links. Over both racks, an all-to-all is no faster with switches than on the torus, because few lanes lead to the second rack.
# [Torus or switch?](torus-or-switch.ipynb) asks what either is worth.
#
# ## How many chips does a replica need?
#
# A **replica** is a group of chips that holds one copy of a model and serves requests with it. `tm.plan` finds the deployment with the
# most tokens per chip that keeps the promise to each user.

# %%
plans = {}
for model in ("deepseek-v3", "llama-3.3-70b"):
    for name in case.SYSTEMS:
        plans[model, name] = tm.plan(model, case.request(model), systems=name).best
        assert plans[model, name].chips == case.value(tables.LINE, model, name)
tables.replicas(plans)

# %% [markdown]
# The mixture of experts needs many chips for its weights, but its exchanges never leave the rack. The dense model fits into one chip and
# leaves the network idle.
#
# ## Check: our graph against printed counts
#
# SemiAnalysis prints how many parts a rack holds. We count the same parts on the graph, which is built from its lanes and ports alone. Most rows only
# test that our graph adds up, because SemiAnalysis gives both the parts and the sum. No other source counts them.

# %% tags=["hide-input"]
charts.table(tables.parts(spec), caption="Parts as counted, and as a source prints them", download="parts")

# %% [markdown]
# Where counts of NL72x2 disagree, SemiAnalysis contradicts itself: 18 trays of four chips are not 64 chips. It also prints how many chips
# and switches lie on three paths, and the graph finds the same numbers.
#
# ## What moves the answer, and what is left out
#
# **Lanes.** SemiAnalysis counts 144 lanes per chip, and AWS's page shows 88. The total that AWS prints for a chip needs 128 lanes.
# SemiAnalysis counts these, and 16 more between the racks. So this book counts with SemiAnalysis
# ([Where do the sources disagree, and what did we decide?](contradictions.ipynb)). AWS's reading is the system `trn3-nl72x2-aws-lanes`:

# %%
ask = {"message_bytes": 8e6, "chips": 72, **alone}  # in one rack
aws = tm.collective("all_to_all", system="trn3-nl72x2-aws-lanes", **ask)
longer = float(aws.time_s / tm.collective("all_to_all", system=nl72, **ask).time_s)
Markdown(f"With AWS's lanes an all-to-all of 8 MB in a rack takes {longer:.2f} times as long.")

# %% [markdown]
# **Hops.** AWS documents 1 to 2 µs for a hop of its rings. We assume the middle for every hop, because nobody has published a measurement on
# switches. **Failures.** A spare switch takes over in NL72x2. NL32x2 has no spare switch tray and loses a quarter of its all-to-all when a
# tray fails.
# **Left out** are power shelves, cooling and retimers. [Which switch tray?](switch-tray.ipynb) asks what newer switches would change.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Count lanes. How many a chip has sets what it can send, where they end sets how far a message travels, and the fewest that cross
# a cut set what all chips can exchange at once.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How many switches of 160 lanes would one plane of NL72x2 need if they used all of their lanes and none were spare?
#
# ```{admonition} Answer
# :class: dropdown
# The 18 chips bring 64 lanes each: $18 \times 64 / 160 = 7.2$, so eight. With eight, each switch uses 18 of its 20 ports.
# ```
#
# **2.** A 4x4 torus has links of 128 GB/s. How many links does a message travel on average, and what does each pair get of an all-to-all?
#
# ```{admonition} Answer
# :class: dropdown
# Each ring of four adds one link on average: $\bar d = \frac{16}{15}\,(1 + 1) = 2.1$. The bisection is $2 \times 4 \times 128 = 1{,}024$ GB/s,
# and $8^2$ pairs share it: 16 GB/s each.
# ```
#
# **3.** A pair of chips in one rack of NL32x2 gets 17 GB/s of an all-to-all. How many lanes to the second rack would each chip need for
# pairs across the racks to get as much?
#
# ```{admonition} Answer
# :class: dropdown
# $\lambda = 32\,n_x\,r / 32^2$, so $n_x = 32 \times 17 / 8 = 68$ lanes. It has 16.
# ```

# %% [markdown]
# ## Evidence
#
# ```{admonition} What do sources disagree on?
# :class: dropdown
# * **Chips per rack of NL72x2.** SemiAnalysis prints 64 in one place, and 18 trays of four chips in another. We use the trays.
# * **Lanes to the second rack.** SemiAnalysis calls them less than a tenth of the backplane's. By its own count of lanes they are a quarter.
# * **Ports of the backup switch.** SemiAnalysis exchanges the numbers of its wide and its narrow ports.
# * **Lanes per chip.** SemiAnalysis counts 144 in use, AWS's page 88. How many switches AWS's lanes need is our own estimate.
# ```

# %% tags=["hide-input"]
evidence = tables.evidence(spec)
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (name, rows) in evidence.items()))

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
used = used[used.entity.isin([spec.chip.id, other.id, "trn3-switched", "jbog-rack", *tables.family(spec)])]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
