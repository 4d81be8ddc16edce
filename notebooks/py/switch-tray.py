# ---
# jupyter:
#   jupytext:
#     formats: notebooks///ipynb,notebooks/py///py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   trnmodel:
#     order: 6
# ---

# %% [markdown]
# # Which switch tray, and does it matter?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
model: str = "deepseek-v3"
tokens_per_chip: float = 8.0

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnmodel import charts
from trnmodel.studies import chips, contradictions, fabrics, racks
from trnmodel.units import format_quantity

spec = tm.system(system)
trays = fabrics.trays(system)
first, last = trays[0], trays[-1]
both = [*fabrics.trays("trn3-nl32x2-pcie160"), *fabrics.trays("trn3-nl72x2-pcie160")]

# %% tags=["hide-input"]
late = fabrics.latencies(trays)
rates = fabrics.capacities(trays)
experts = fabrics.expert_traffic(model, trays, tokens_per_chip * 2.0 ** np.arange(-3, 7))
mean = late[late.scope == "rack"].set_index("system").mean_s
worst = late[late.scope == "rack"].set_index("system").worst_s
steps = experts[experts.tokens_per_chip == tokens_per_chip].set_index(["system", "experts_over"]).step_s
spread = rates[rates.scope == "rack"].all_to_all_bytes_per_s
Markdown(
    f"**For bandwidth it does not: with any tray a chip has {format_quantity(spread.mean(), 'B/s', 3)} of all-to-all in its rack "
    f"(the trays differ by {spread.max() / spread.min() - 1:.1%}), because the lanes of the chips are the same. For latency it does: from {first} to {last} the worst pair of a rack falls from "
    f"{format_quantity(worst[first], 's', 2)} to {format_quantity(worst[last], 's', 2)}**, and with "
    f"{tokens_per_chip:g} tokens a chip the experts' traffic of one decode step of {model} from "
    f"{format_quantity(steps[first, 'rack'], 's', 3)} to {format_quantity(steps[last, 'rack'], 's', 3)}."
    + ("" if spec.id in trays else f" ({spec.name} has no switch trays; this is the NL32x2 rack.)")
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    fabrics.notation(first),
    caption="What this chapter calls things; confidence D is our own estimate",
    download="notation",
)

# %% [markdown]
# A **tray** here is a generation of switch trays: 160-lane PCIe switches first, Broadcom's PEX90144 as their backup, 320-lane
# ones next, UALink switches at last. A **plane** is the set of rack switches that a group of chips shares.
#
# ## The model
#
# A chip has 64 active backplane lanes in x8 ports, so it reaches eight switches, whatever they are. What a switch's number of
# ports decides is how many *chips* share a plane. A message within a plane passes one switch. To another plane it first goes to
# a chip on its own tray that is in that plane, which forwards it:
#
# $$ t = \alpha\,(1 + f) + s\,t_{switch} $$
#
# with $f$ chips that forward, $s$ switches on the way, $\alpha$ the cost of a chip (AWS's 1 to 2 us a hop).
#
# **By hand.** NL72x2 has 18 trays of four chips. A 160-lane switch has $160/8 = 20$ ports: 18 chips of one place, two ports left,
# four planes. A 320-lane switch has 40: two places, two planes. UALink's 72 ports take all $18 \times 4$ chips: one plane.

# %%
160 // 8, 320 // 8, 18 * 4, fabrics.plane_table(fabrics.trays("trn3-nl72x2-pcie160")).planes.tolist()

# %% [markdown]
# ## What each tray is made of

# %%
charts.table(fabrics.plane_table(trays), caption="Switches of one rack, and ports of a rack switch", download="planes")

# %% [markdown]
# ## How far chips are apart

# %%
distinct = fabrics.plane_table(trays).drop_duplicates("planes").system
hops = racks.hops(distinct)
direct = hops[hops.between <= 1].groupby("system").share.sum()
charts.bars(
    hops,
    x="between",
    y="share",
    color="system",
    caption=f"At most one switch between: {direct.get(first, 0):.0%} of all pairs with {first}, {direct.get(last, 0):.0%} with {last}",
)

# %%
charts.ranges(
    late,
    x="worst_s",
    y="system",
    color="scope",
    caption=f"Worst pair of a rack: {format_quantity(worst[first], 's', 2)} on {first}, "
    f"{format_quantity(worst[last], 's', 2)} on {last}",
)

# %%
shown = ["system", "scope", "most_between", "mean_s", "mean_s_low", "mean_s_high", "worst_s"]
charts.table(late[shown], caption="One way through the empty fabric", download="latencies")

# %% [markdown]
# Hollow: nobody has published what a chip of the switched racks costs when it forwards, nor the latency of these switches; the
# bars take AWS's hop of NeuronLink for the one and a Gen5 PCIe switch of Broadcom for the other. If Trainium3 forwards for
# free, as the text reports, the trays differ by a switch or two of a tenth of a microsecond.
#
# ## How fast

# %%
charts.table(
    rates[["system", "scope", "chips", "all_to_all_bytes_per_s", "oversubscription", "bound"]],
    caption="All-to-all of one chip to all others: the tray does not enter",
    download="capacities",
)

# %% [markdown]
# ## What a decode step feels

# %%
in_rack = experts[experts.experts_over == "rack"]
charts.lines(
    in_rack,
    x="tokens_per_chip",
    y="step_s",
    color="system",
    log_x=True,
    log_y=True,
    caption=f"Dispatch and combine of {model} over a rack: {first} takes {steps[first, 'rack'] / steps[last, 'rack']:.2f} times as "
    f"long as {last} with {tokens_per_chip:g} tokens a chip",
)

# %% tags=["hide-input"]
table = in_rack.set_index(["tokens_per_chip", "system"]).step_s.unstack()
few, many = table.iloc[0], table.iloc[-1]
Markdown(
    f"At {table.index[0]:g} tokens a chip the ratio is {few[first] / few[last]:.2f}, at {table.index[-1]:g} it is "
    f"{many[first] / many[last]:.2f}: the tray is worth most where latency rules, and next to nothing where a step carries many "
    "tokens, as in prefill and training. "
    + " ".join(
        f"The mean pair of a rack is {mean[first] / mean[name] - 1:.0%} faster on {name} than on {first}, the worst "
        f"{worst[first] / worst[name] - 1:.0%}."
        for name in trays[1:]
        if mean[name] < mean[first]
    )
)

# %% [markdown]
# ## What a failure costs

# %%
lost = racks.failures(first)
charts.table(lost, caption=f"Share left of each capacity of {first} after one failure", download="failures")

# %% [markdown]
# Redundant lanes idle until a lane, a switch or a tray fails; then they take over, and a rack keeps its rate while the tray is
# swapped, where there are trays to spare.
#
# ## Check: numbers that are not ours

# %%
paths = fabrics.paths(both)
printed = paths[paths.verdict.isin(["agrees", "disagrees"])]
charts.table(
    printed.drop(columns="how"),
    caption="Switches and forwarding chips between two chips, as printed and as counted",
    download="paths",
)

# %%
ports = contradictions.contradictions()
ports = ports[ports.about.str.contains("PEX|pairs|lanes end")]
charts.table(ports, caption="Where the text is at odds with itself about trays and lanes", download="contradictions")

# %% tags=["hide-input"]
Markdown(
    f"{(printed.verdict == 'agrees').sum()} of {len(printed)} printed paths and maxima agree with the graph. Latencies cannot "
    f"be checked: none of these switches has been measured in public."
)

# %% [markdown]
# ## What moves the answer

# %%
charts.table(racks.readings(first), caption=f"Other readings of {first}, and what they change", download="readings")

# %% [markdown]
# ## What is left out
#
# Queues and congestion in switches, UALink's own protocol gains beyond hops, price and power of the trays, time to market, which is
# the text's reason for the first tray.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# A larger switch shortens the path, it does not widen it: pay for it in decode at small batch, not in training.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How many planes would a 320-lane switch need in a rack of 36 chips on trays of two?
#
# ```{admonition} Answer
# :class: dropdown
# 40 ports of x8 take all 36 chips: one plane.
# ```
#
# **2.** Why do two planes of NL72x2 still need up to three between two chips of a rack?
#
# ```{admonition} Answer
# :class: dropdown
# From A to B on another tray: the board switch, a chip on A's tray that shares B's plane, the rack switch.
# ```
#
# **3.** A decode step has 58 expert layers with two all-to-alls each. What do 1.6 us less for each save?
#
# ```{admonition} Answer
# :class: dropdown
# $58 \times 2 \times 1.6 = 186$ us a token: a few percent of a step of some milliseconds.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
delays = used.entity.isin([fabrics.STACK, fabrics.SWITCH]) & used.quantity.isin(["hop_s", "switch_s"])
used = used[used.entity.isin([*both, "trn3-switched", "pex90144"]) | delays]
charts.table(chips.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
