# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 19
#     part: Understand
# ---

# %% [markdown]
# # What is lost to failures?

# %% tags=["parameters"]
system: str = "trn3-nl32x2-pcie160"
systems: list[str] = ["trn3-nl72x2-pcie160", "trn2-ultraserver", "gb200-nvl72"]
chips: int = 16384
model: str = "llama-3.1-405b"
swap: str = "hot"
fleet: str = "borrowed"

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import goodput as tables
from trnbook.chapters import goodput_uptimes as uptimes
from trnbook.drawings import timelines
from trnbook.shared import case

machines, rates = tables.check(system, systems, swap, fleet)
guard.within(1, 1e6, chips=chips)
spec, ask = machines[0], {"model": model, "fleet": rates, "swap": swap}

# %% tags=["hide-input"]
job = tm.goodput(spec, chips, model=model, swap=swap, fleet=rates)


# %% tags=["hide-input"]
def useful(fleet):
    """Return the useful share of the job with other rates."""
    return tm.goodput(spec, chips, model=model, swap=swap, fleet=fleet)


draws = tm.sensitivity(useful, {"fleet": rates}, draws=4000)

# %% tags=["hide-input"]
others = {one.name: tm.goodput(one, chips, **ask) for one in machines[1:]}
repaired = tm.goodput(spec, chips, model=model, fleet=rates, swap="drain" if swap == "hot" else "hot")
tables.answer(job, others, rates, draws, repaired)

# %% tags=["hide-input"]
parts = tables.rack(spec, rates, swap)
without = {
    part: tm.goodput(spec, chips, model=model, swap=swap, fleet=tables.never(rates, part)) for part in parts.part
}
lost = tables.priced(parts, job, without)
size = tm.units.counted(chips, "chip")
said = {"caption": tables.claim(lost), "under": f"{spec.name}: failures in one rack, and their cost to a job of {size}"}
charts.bars(lost, x="of", y="lost_share", highlight=tables.dearest(lost), **said)

# %% [markdown]
# Each line names a part, how often one of its kind fails in one rack, and what that costs. The bar is the time that the job would win if this
# kind of part never failed. The bars need not add up. Failures of a kind are the rate of one part times their number. A part that a spare can replace may fail often and cost little.

# %% tags=["hide-input"]
tables.multiplied(parts)

# %% [markdown]
#
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. The last
# line is this chapter's.

# %% tags=["hide-input"]
case.table("goodput")

# %% [markdown]
# ## Why the question matters
#
# A training job is one machine of thousands of chips. Each step ends when the slowest chip is done, and if one stops, all stop. A chip
# that fails once in five years is no worry. In a job of sixteen thousand such chips one of them fails about every three hours, and stops all.
# Links and switches come on top. A served replica is small, and loses hours per year.
#
# ## The idea: save, fail, repeat
#
# The job saves its state in *checkpoints*. After a failure it restarts from the last one and does the work since then again. Frequent
# checkpoints cost time to write, and rare ones cost more repeated work.

# %%
timelines.checkpoint_and_restart(tm.goodput(spec, chips, model=model, swap=swap, fleet=rates))

# %% [markdown]
# ## The equations
#
# Failures of parts that all have to work add up. With $n_i$ parts of a kind, which fail at the rate $\lambda_i$ each, the job is interrupted
# every $M$ on average:
#
# $$ M = \frac{1}{\lambda} , \qquad \lambda = \sum_i n_i \lambda_i . $$
#
# A checkpoint takes $\delta$ to write, after each interval $\tau$ of work. A failure costs half an interval on average, and a restart $R$:
#
# $$ \text{lost} \approx \frac{\delta}{\tau} + \frac{\tau}{2M} + \frac{R}{M} . $$
#
# The first two terms are equal at the best interval $\tau^*$, which Young found first. Near it the sum is flat, so that nobody needs it exactly. No
# interval helps against the third term; only a quick restart does. For large losses the library uses Daly's exact share $u$ of time whose
# work is kept:
#
# $$ \tau^* = \sqrt{2\,\delta\,M} $$
#
# $$ u = e^{-R/M}\, \frac{\tau}{\tau + \delta}\, \frac{x}{e^x - 1} , \qquad x = \frac{\tau + \delta}{M} $$
#
# Of all chips a share $s$ stands by. $A$ is the share of the time in which enough of the others work. Slow racks bring the mean speed to $v$.
# This leaves the useful share $G$ of the time of all chips:
#
# $$ G = (1 - s)\, A\, u\, v . $$
#
# A part that fails every $m$ and is out for $T$ is out for a share $q$ of the time:
#
# $$ q = \frac{T}{m + T} . $$
#
# The probability that more than $k$ of $n$ parts are out at once is
#
# $$ P = \sum_{i=k+1}^{n} \binom{n}{i}\, q^i\, (1 - q)^{n-i} . $$
#
# ## An estimate by hand
#
# Llama 3 was trained on 16,384 H100. Meta counted 419 interruptions in 54 days:
#
# $$ M = 54 \times 24\ \text{h} / 419 = 3.09\ \text{h} = 11{,}135\ \text{s} . $$
#
# With its optimizer the model makes a checkpoint of 6.5 TB. We assume that it is written in 6.2 s, and that a restart takes 546 s:
#
# $$ \begin{aligned} \tau^* &= \sqrt{2 \times 6.2 \times 11{,}135} = 371\ \text{s} \\
#    \text{lost} &= \frac{6.2}{371} + \frac{371}{22{,}270} + \frac{546}{11{,}135} = 8.2\% \end{aligned} $$
#
# Meta printed an effective training time of more than 90%. The answer at the head of this page is the product $G$ for its own job, and
# Evidence has its four factors.

# %% tags=["hide-input"]
llama = tm.goodput("hgx-h100", 16_384, model="llama-3.1-405b", fleet="llama-3-h100")
mtbf_s, restart_s = 54 * 86_400 / 419, llama.fleet.restart_s
assert np.allclose([llama.mtbf_s, llama.write_s, restart_s], [mtbf_s, 6.2, 546], rtol=5e-3)
assert np.isclose(llama.young_s, np.sqrt(2 * llama.write_s * mtbf_s))
assert abs(1 - llama.useful_share - (6.2 / 371 + 371 / 2 / mtbf_s + 546 / mtbf_s)) < 0.004

# %% [markdown]
# ## What do spare switches and a swapped tray save?
#
# A Trainium3 chip has redundant lanes in the backplane. They help only if they end on spare switches, which take over from a lane or a switch
# that fails. In the NL72x2 rack they do. In the NL32x2 rack as drawn they end on nothing; SemiAnalysis expects designs with a fifth switch
# tray. Which of them AWS builds is not published.
#
# There are two ways to repair. A tray is taken out while the rack runs on, or all work is first moved off the rack: it is drained. SemiAnalysis writes
# that operators of GB200 NVL72 must drain it to swap a switch tray, and that AWS's racks with a spare tray need not. Which of the two AWS
# does is not known, and the NL32x2 rack as drawn has no spare tray.

# %%
jobs = {}
for name, (one, how) in tables.variants(machines).items():
    jobs[name] = tm.goodput(one, chips, model=model, swap=how, fleet=rates)
said = {
    "caption": "Spare switches and swapped trays save time",
    "under": "share of all chip time that is lost, by cause",
}
charts.stacks(tables.losses(jobs), x="of", y="lost_share", color="part", **said)

# %% [markdown]
# A drained rack needs spares as large as a rack. A quick restart helps either way.
#
# ## Our line of the running case
#
# A served replica is out while its part is swapped or its server restarts. We ask the plan of each column for these hours. The links and
# switches of its whole scale-up domain count, although a replica of one chip hardly needs them; its hours are an upper bound.

# %%
rows, (line,) = [], [one for one in case.LINES if one.chapter == "goodput"]
for name in case.PROMISES:
    for at in case.SYSTEMS:
        size = tm.plan(name, case.request(name), systems=at, availability=0.9999).capacity
        rows.append(tables.hours(name, at, size))
        assert np.isclose(rows[-1].lost_h.sum(), case.value(line, name, at))
        assert (size.spare_instances, size.lost_h_per_year < 0.1) == (1, True)
said = {"caption": "A replica without a spare loses hours per year", "under": "hours out in a year, by cause"}
charts.stacks(pd.concat(rows), x="of", y="lost_h", color="cause", **said)

# %% [markdown]
# In every column one spare instance removes nearly all of these hours.
#
# ## Check against jobs whose uptime was printed
#
# We ask for each published job at its size, with the rates of this chapter. Nothing was fitted to the tests. Some jobs are no test:
#
# * A rate was inferred from the job.
# * People restarted it by hand.
# * It ran on fewer than 4,096 chips. Code, storage and people stop small jobs more often than chips do.
#
# We chose the limit of 4,096 chips after we had seen the results, and it is the size of the smallest job that passes. It leaves out OPT-175B, which lost
# far more than we predict.

# %%
printed = uptimes.rows()
predicted = [tm.goodput(one.system, one.chips, model=one.model, fleet=rates) for one in printed]
checked = uptimes.uptimes(printed, predicted)
charts.table(uptimes.shown(checked), caption=uptimes.described(checked), download="uptimes")

# %% [markdown]
# Two of the tests are weak: MegaScale printed only a bound, and FT-HSDP lies on the edge of a wide range. One test ran on Trainium1, at AWS, and
# none on a newer chip of AWS. Small jobs can lose far more than this chapter says.
#
# ## What moves the answer
#
# No rate is known well. We draw all of them between the ends that were published, and then move each by itself.

# %%
bars = tables.tornado(draws)
said = {"caption": f"Most hangs on the {bars.which[0]}", "under": tables.spread(draws)}
charts.ranges(bars, x="lost_share", y="which", **said)

# %% [markdown]
# The number of chips moves it as well: four times the chips are interrupted four times as often.
#
# ## What is left out
#
# A job may write its checkpoints while it runs on, which takes it less time than we count. Wrong results that nobody notices, failures that come together,
# early failures, wear and planned maintenance have no term. A job that restarts only the part with the failure loses less.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask what happens in a rack when one link fails. Does the job stop? Does the repair take out a tray or the whole rack? Then make restarts
# quick, because no choice of checkpoints helps against them.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A job is interrupted every 3 h and restarts in 10 min. Which share of its time goes to restarts?
#
# ```{admonition} Answer
# :class: dropdown
# $1 - e^{-10/180} = 5.4$%. The short form $R/M$ gives 5.6%.
# ```
#
# **2.** A checkpoint takes 20 s and the job is interrupted every 3.09 h. Which interval does Young advise, and what does it lose?
#
# ```{admonition} Answer
# :class: dropdown
# $\sqrt{2 \times 20 \times 11135} = 667$ s. Writing takes $20/667 = 3$% of the time, and repeated work as much.
# ```
#
# **3.** A rack needs 8 switches per plane and has 10; each is out for a thousandth of the time. How often are more than two out? And how often
# is one of 8 out, without spares?
#
# ```{admonition} Answer
# :class: dropdown
# $\binom{10}{3} \times 10^{-9} = 1.2 \times 10^{-7}$ of the time. Without spares it is $8 \times 0.001 = 0.8$%.
# ```

# %% [markdown]
# ## Evidence
#
# ```{admonition} Where do the rates come from?
# :class: dropdown
# * **Chips.** The rate lies between those of two fleets of Meta, and Llama 3's is one of them. It contains hosts, scale-out network, software and
#   the links of a board, because the servers that were counted have theirs on a board. Their shares are those that Meta counted for Llama 3.
# * **Lanes of a backplane.** The rate is inferred from what GB200 NVL72 loses beyond H100, as SemiAnalysis reports it.
# * **Cables between racks** fail as those of TPU v4 and of Alibaba's network do.
# * **The range** of this page comes from draws. `trnmodel goodput` adds half-widths instead, so its range is wider.
# * **Time to restart.** From a model of a cluster to what Meta's printed uptime implies, so Llama 3 is no test of it.
# ```

# %% tags=["hide-input"]
charts.table(tables.factors(job), caption="Four factors make the useful share", download="factors")

# %% tags=["hide-input"]
many = {n: tm.goodput(spec, n, **ask) for n in tables.SIZES}
built = tables.built(machines)
result = {name: tm.goodput(one, chips, **ask) for name, (one, _) in built.items()}
steps = {f"{k:g} times the best": k * job.interval_s for k in (0.25, 0.5, 2, 4, 10)} | {
    "Young": job.young_s,
    "Daly": job.daly_s,
}
lost_at = {name: tm.goodput(spec, chips, interval_s=tau, **ask) for name, tau in steps.items()}
evidence = {
    "Failures of a rack by part, and their cost": ("parts", lost),
    "Each bar of the chart of losses": ("beside", tables.compare(jobs)),
    "The same system at other sizes of the job": ("sizes", tables.sizes(many)),
    "What intervals lose": ("intervals", tables.rules(job, lost_at)),
    "Every printed uptime and its prediction": ("uptimes-rows", checked),
    "What the hours of the case are lost to": ("case-hours", pd.concat(rows)),
}
if built:
    evidence["Racks by where the redundant lanes of a chip end"] = (
        "redundant-lanes",
        tables.alternatives(built, result),
    )
display(*(charts.table(table, caption=what, download=name, file_only=True) for what, (name, table) in evidence.items()))

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tables.sources(rates, (row.source for row in printed))
charts.table(common.bibliography(used), caption="Sources of the figures in this chapter", download="sources")
