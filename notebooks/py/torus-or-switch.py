# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 9
#     part: Understand
# ---

# %% [markdown]
# # Torus or switch?

# %% tags=["parameters"]
system: str = "trn3-nl32x2-pcie160"
torus_system: str = "trn3-nl32x2-torus"
model: str = "deepseek-v3"
message_bytes: float = 8e6

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import torus_or_switch as tables
from trnbook.drawings import exchanges as drawings
from trnbook.shared import case

spec, torus, m = tm.system(system), tm.system(torus_system), tm.model(model)
guard.within(1.0, 1e12, message_bytes=message_bytes)
tables.check(spec, torus, m)

# %% tags=["hide-input"]
alone = {"in_graph": True, "rate_share": 1.0}  # the links alone: no launch, no loss of software
times = {}
for reading, kind, it in tables.questions(spec, torus):
    ask = {"message_bytes": message_bytes, **tables.in_rack(it), **alone}
    times[reading, kind, it.fabric] = tm.collective(kind, **ask)

# %% tags=["hide-input"]
ask = {"kind": "all_reduce", "message_bytes": message_bytes, "efficiencies": "public"}
public = [tm.collective(**ask, **tables.in_rack(it)).time_s for it in (spec, torus)]
Markdown(tables.answer(times, spec, torus, public))

# %% tags=["hide-input"]
bare = {}
for kind, it in ((kind, it) for kind in ("all_reduce", "all_to_all") for it in (torus, spec)):
    ask = {"algorithm": str(times["as used", kind, it.fabric].algorithm), "alpha_s": 0.0, **alone}
    bare[kind, it.fabric] = tm.collective(kind, message_bytes, **tables.in_rack(it), **ask)
charts.stacks(
    tables.parts(times, bare),
    x="what",
    y="time_s",
    color="part",
    caption=f"Switches speed up an {tables.helped_most(times)} most",
    under=f"{message_bytes / 1e6:,.3g} MB on each rank, over one rack of either kind; links alone",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book. The last line of the table is this chapter's.

# %% tags=["hide-input"]
case.table("torus-or-switch")

# %% [markdown]
# ## Why does the network's shape matter?
#
# Trainium2 joins its chips in a **torus**, where each has links to a few neighbours. For Trainium3, AWS has also announced racks with
# **switches**, which have to earn their price and power. Whether they do depends on the **collectives** by which *ranks*, the cores that a program sees,
# exchange data. In an **all-reduce** each rank holds a vector, and all need the sum, as in tensor parallelism (TP), which cuts matrices into
# slices. In an **all-to-all** each rank sends a different block to each other one, as in expert parallelism (EP).
#
# A message of $m$ bytes takes a start-up $\alpha$, whatever its size, and then flows at the rate $b$ of its link. Below the size $m_{1/2}$ the
# start-up takes most of the time:
#
# $$ t = \alpha + \frac{m}{b}, \qquad m_{1/2} = \alpha\, b . $$
#
# ## All-reduce: steps against bytes
#
# On a **ring**, each of $n$ ranks sends a piece of its buffer to the next one, again and again. It sends few bytes in many steps. A **tree**
# sends whole buffers up to a root and down again, which takes few steps:
#
# $$ t_\text{ring} = 2\,(n-1) \left(\alpha + \frac{m}{n\,b}\right), \qquad
#    t_\text{tree} = 2\,\lceil \log_2 n \rceil \left(\alpha + \frac{m}{b}\right) . $$

# %% tags=["hide-input"]
drawings.ring_all_reduce(4)

# %% [markdown]
# A rack has several axes: the rings of a torus, or tray and rack with switches. The buffer is cut into parts. Each part crosses the axes in a
# different order, so all links work all the time. If axis $i$ takes $s_i$ steps of $\alpha_i$, and $N$ chips send at $B$ over all their links,
#
# $$ t = 2 \sum_i s_i\,\alpha_i + 2\,\frac{N-1}{N}\,\frac{m}{B} . $$
#
# A ring of $k$ chips takes $s = k - 1$ steps. A switch takes one, because through it every chip reaches every other at once.
#
# **By hand.** How long does an all-reduce of 8 MB take over a rack of 32 chips? The four ranks of each chip first add up among themselves.
# Then the chips exchange. A step to a neighbour takes 1.5 µs, and one through a switch 1.615 µs:
#
# | | torus | switches |
# |---|---|---|
# | on the chip | 2 × 1.5 µs + 8 MB at 704 GB/s = 14.4 µs | 14.4 µs |
# | a chip sends | 4 × 256 + 128 = 1,152 GB/s | 128 × 8 = 1,024 GB/s |
# | start-ups, there and back | 2 × 7 × 1.5 = 21.0 µs | 2 × (1.5 + 1.615) = 6.2 µs |
# | 2 × 31/32 × 8 MB | at 1,152 GB/s: 13.5 µs | at 1,024 GB/s: 15.1 µs |
# | sum | **48.8 µs** | **35.7 µs** |
#
# Sums may differ by rounding. The bytes take about as long on both. **The torus loses its time on start-ups**: $3 + 3 + 1$
# steps from neighbour to neighbour, where switches need two. [What is in a rack?](rack.ipynb) adds the link to the second rack.

# %% tags=["hide-input"]
nl32, pair = "trn3-nl32x2-pcie160", ("trn3-nl32x2-torus", "trn3-nl32x2-pcie160")
chip_s = tm.collective("all_reduce", 8e6, nl32, chips=1, **alone).time_s
torus_s = chip_s + 2 * 7 * 1.5e-6 + 2 * 31 / 32 * 8e6 / 1152e9
switches_s = chip_s + 2 * (1.5e-6 + 1.615e-6) + 2 * 31 / 32 * 8e6 / 1024e9
both = [tm.collective("all_reduce", 8e6, it, chips=32, **alone).time_s for it in pair]
assert np.allclose(chip_s, 2 * 1.5e-6 + 8e6 / 704e9, rtol=1e-3)
assert np.allclose(both, [torus_s, switches_s])
assert np.allclose(both, [48.8e-6, 35.7e-6], rtol=0.01)

# %% [markdown]
# **Why does software take longer?** The arguments of the call, or options of `trnmodel collective`, choose
# what is counted:

# %%
ways = [alone, {"efficiencies": "public"}, {"in_graph": True}, {}]
answers = [[tm.collective("all_reduce", 8e6, it, chips=32, **ask).time_s for it in pair] for ask in ways]
charts.table(
    tables.counted(ways, answers), caption="The all-reduce of the estimate, by what is counted", download="counted"
)

# %% [markdown]
# In a graph of *public software*, the ranks of each chip first add up among themselves. At 66 GB/s that takes 122 µs. Then the sums go around one ring of all 32 chips:
# its steps take 46.5 µs, its bytes the rest. A ring does not use the short paths of the switches. *Measured calls* have another limit: each rank passes its buffer twice
# through its DMA queues, once to add and once to distribute. At 90 GB/s that takes 178 µs on any fabric. The two rows come from
# different measurements, steps of models and tests of single calls, and differ by less than the range of either. The planner of this book
# uses the row of public software. A call by the host adds its launch of
# 0.89 ms. These rates and the launch were measured on Trainium2, and we assume them for Trainium3.

# %% tags=["hide-input"]
on_chip, twice = (tm.collective("all_reduce", m, nl32, chips=1, efficiencies="public").time_s for m in (8e6, 16e6))
ring = [tm.collective("all_reduce", m, nl32, chips=32, efficiencies="public").time_s for m in (8e6, 16e6)]
steps_s = 2 * ring[0] - ring[1] - (2 * on_chip - twice)  # the line through both sizes, at no bytes
assert np.allclose([on_chip, 1.5e-6 + 8e6 / 66.25e9, steps_s], [122e-6, 122e-6, 31 * 1.5e-6], rtol=0.01)
assert np.allclose([answers[2][0], answers[3][0] - answers[2][0]], [2 * 8e6 / 90e9, 0.89e-3], rtol=0.01)

# %% [markdown]
# ## All-to-all: who forwards for whom?
#
# Here nothing is added up on the way. On a torus, a block on its way to its target crosses links that others need too. The drawing takes
# its torus from Trainium2, which has few chips, and its switches from Trainium3.

# %% tags=["hide-input"]
drawings.all_to_all("trn2.48xlarge", "trn3-nl32x2-pcie160")
# %% [markdown]
# Let a chip of the torus have $n_i$ links of rate $b_i$ along axis $i$, on which a block travels $\bar d_i$ links on average. With switches, a
# chip sends at $B_\text{sw}$ to the switch trays, which carry everything that is not for the $c$ chips of its own tray. So a pair gets
#
# $$ \lambda_\text{torus} = \min_i \frac{n_i\,b_i}{N\,\bar d_i}, \qquad \lambda_\text{switches} = \frac{B_\text{sw}}{N - c} . $$
#
# An exchange of $m$ bytes per chip first takes the time $L$ in which the farthest chip is reached. Then the bytes flow. Both parts take equally
# long at $m^*$:
#
# $$ t = L + \frac{m}{N\lambda}, \qquad m^* = L\,N\,\lambda . $$
#
# **By hand.** In a rack of the torus, the third axis is one link of 128 GB/s that half of all blocks cross: $\lambda = 128/(32 \times 0.5) = 8$
# GB/s. With switches it is $512/30 = 17$ GB/s. If each of four ranks sends 8 MB, every pair of chips exchanges 1 MB. That takes $7.5 + 125 = 132.5$
# µs on the torus and $3.1 + 58.6 = 61.7$ µs with switches. We fitted no loss of an all-to-all, so the model gives public software the same
# time.

# %% tags=["hide-input"]
by_hand = [7.5e-6 + 1e6 / 8e9, 3.115e-6 + 1e6 / (512e9 / 30)]  # 1 MB for each pair
both = [tm.collective("all_to_all", 8e6, it, chips=32, **alone).time_s for it in pair]
assert np.allclose(both, by_hand, rtol=4e-3)

# %% [markdown]
# ## From which size on?

# %%
sizes, ratios = 2.0 ** np.arange(10, 31), []
for place, kind, both in tables.places(torus, spec):  # in one rack, and over the whole domain
    slow, fast = (tm.collective(kind, sizes, **where, **alone).time_s for where in both)
    line = {"message_bytes": sizes, "torus_over_switches": slow / fast, "exchange": tables.NAMES[kind]}
    ratios.append(pd.DataFrame(line | {"place": place}))

# %% tags=["hide-input"]
charts.lines(
    tables.around_a_tie(pd.concat(ratios)),
    x="message_bytes",
    y="torus_over_switches",
    color="exchange",
    choose="place",
    highlight=list(tables.NAMES.values()),
    log_x=True,
    caption="Above one, the switches are faster",
    under=f"time on {torus.name} over that on {spec.name}",
)

# %% [markdown]
# Within a rack, switches help an all-to-all at every size: small ones wait for the farthest chip, large ones for the links. They help an
# all-reduce while its start-ups count. Over both racks, an all-to-all must cross the few cables between them. This is why experts are
# placed within one rack.
#
# ## What does the running case exchange?
#
# `tm.plan` lists the messages of a decode step. We time each of them with the software of the plan, also on a torus.


# %% tags=["hide-input"]
def sent_s(best, one):
    """Time of one kind of message of a plan's step, all of them together."""
    group = {"ranks": best.ep, "stride": best.tp} if one.group == "ep" else {"ranks": best.tp}
    ask = {"system": best.system, "lnc": best.lnc, "efficiencies": best.step.stack, **group}
    return one.count * float(tm.collective(one.kind, one.message_bytes, **ask).time_s)


# %%
steps = []
for name, where in tables.cases(model):
    if best := tm.plan(name, tables.request(name), systems=where).best:
        steps.append((name, best, {one.kind: sent_s(best, one) for one in best.step.messages}))
rows = tables.exchanges(steps)
charts.table(rows, caption="Exchanges are a small part of a decode step", download="exchanges")

# %% [markdown]
# Llama's ranks share one chip, so no network sees its messages. DeepSeek's exchanges take about twice as long on the torus, and its step
# hardly changes, because public software spends most of it elsewhere.
#
# ## Check: numbers that are not ours
#
# Others have timed collectives on Trainium2, most of them called from the host, which adds a launch.

# %% tags=["hide-input"]
judged = tm.validation()
measured = tables.measured(judged)
display(Markdown(tables.accuracy(measured)))

# %% tags=["hide-input"]
charts.scatter(
    measured,
    x="predicted_s",
    y="measured_s",
    color="message",
    label="run",
    caption="Large messages are predicted better than small ones",
    under="Trainium2, up to two instances; the line is a perfect prediction",
).properties(height=150)

# %% [markdown]
# The vertical row of points near one millisecond is small messages that the host launches. The model gives all of them the time of one launch, but
# measured launches differ from program to program. The
# microseconds of a network show only inside a compiled graph, so these calls say little about its shape.
#
# ## What moves the answer, and what is left out
#
# * **Lanes.** AWS's page prints fewer lanes for a switched chip than SemiAnalysis does, and nobody prints those of a Trainium3 torus in
#   full. The range at the head of the chapter spans these readings, which Evidence lists.
# * **Routes and hops.** We let links split a message over any paths, and take the middle of AWS's 1 to 2 µs per hop.
# * **Left out** are other traffic, failed links, and the price of switches.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Count steps and bytes. Switches save steps in an all-reduce and bytes in an all-to-all, but only within a rack: between racks the
# cables decide. What that is worth depends on how much of a step is exchange.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A 4x4 torus has four links of 128 GB/s per chip. What does each chip get of an all-to-all?
#
# ```{admonition} Answer
# :class: dropdown
# The mean distance in each ring of four is one link: $\lambda = 2 \times 128/16 = 16$ GB/s per pair. Each chip has 15 others, so it gets
# $15 \times 16 = 240$ GB/s, less than half of what it can send.
# ```
#
# **2.** A start-up takes 1.5 µs and a link carries 256 GB/s. Up to which message is a tree faster than a ring of 32 ranks?
#
# ```{admonition} Answer
# :class: dropdown
# They tie where $10\,(\alpha + m/b) = 62\,(\alpha + m/32b)$, that is at $m = 52\,\alpha b/(10 - 1.94) = 6.5\,\alpha b$. With $\alpha b = 384$ kB that is
# 2.5 MB.
# ```
#
# **3.** Tests print the *bus bandwidth* of an all-reduce, which is comparable for any number of ranks. What do they print for the 8 MB above?
#
# ```{admonition} Answer
# :class: dropdown
# $$ B_\text{bus} = 2\,\frac{n-1}{n}\,\frac{m}{t} $$
#
# For $n = 128$ ranks it is $2 \times \frac{127}{128} \times 8$ MB over 48.8 µs, which is 325 GB/s on the torus. With switches it is 444 GB/s.
# ```

# %% [markdown]
# ## Evidence
#
# Other readings of the lanes, who exchanges with whom in the running case, and an all-reduce on a tree:

# %% tags=["hide-input"]
best = case.choice("deepseek-v3", nl32)
lanes = charts.table(tables.by_reading(times), caption="An all-to-all in a rack by each reading", download="lanes")
groups = drawings.mapping("deepseek-v3", nl32, tp=int(best.tp), ep=int(best.ep), dp=1)
display(lanes, groups, drawings.tree_all_reduce(8))

# %% [markdown]
# AWS documents that its library uses a *mesh*, in which each rank sends its whole buffer to all others, up to a fixed size. Our model is
# free to choose:

# %%
sizes = 2.0 ** np.arange(12, 31, 0.25)
chosen = tm.collective("all_reduce", sizes, "trn2.48xlarge", **alone).algorithm
over = sizes[chosen == "one_shot"].max() / tm.chip("trainium2").algorithm_max_bytes["mesh"]
assert np.isclose(tm.collective("all_reduce", 8e6, nl32, chips=32, **alone).busbw_bytes_per_s, 444e9, rtol=1e-3)
Markdown(f"On trn2.48xlarge the model leaves the mesh at {over:.1f} times the size that AWS documents.")

# %% tags=["hide-input"]
sheets = tables.sheets(spec, torus, judged)
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (name, rows) in sheets.items()))

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
kinds = used.entity.isin(["neuron-stack", "pcie-switch", "neuronlink-v3", "nccom-test", "trn3-switched"])
used = used[kinds | used.entity.isin([spec.id, torus.id, common.LANE_MAP])]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
