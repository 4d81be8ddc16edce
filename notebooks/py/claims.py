# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 21.5
#     part: Evidence
# ---

# %% [markdown]
# # Do the printed claims hold?

# %% tags=["parameters"]
topic: str = "all"
verdict: str = "disagrees"

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import claims as tables
from trnbook.chapters import guard
from trnbook.shared import ledger

why = tables.unknown(topic)
guard.need(not why, why)
guard.one_of(tables.VERDICTS, verdict=verdict)
result = tm.claims()
why = tables.none_with(result, topic, verdict)
guard.need(not why, why)

# %% tags=["hide-input"]
Markdown(tables.answer(result))

# %% tags=["hide-input"]
charts.stacks(
    tables.by_topic(result),
    x="topic",
    y="claims",
    color="verdict",
    caption="Most claims hold; chips, memory and links are disputed most",
    under="claims by topic and verdict; inputs are figures that the book reads",
)

# %% [markdown]
# A *claim* is a sentence of a source that has a number: a bandwidth, a count of cables, a ratio of two generations. Three pages of AWS, an encyclopedia and
# a long article of SemiAnalysis are behind this book. Their claims stand in one table, each with a formula over the public calls of the package. When you ask,
# the package computes each formula and compares.
#
# ## Why ask?
#
# A specification is printed once, and then copied. On the way units change, two directions become one, and a figure of an instance becomes one of a
# rack. A reader who designs by such a copy may be wrong by a factor of two. A claim that *follows* from other figures is safe in another way than a claim
# that is only repeated: many sources can copy one mistake, but arithmetic does not.
#
# ## What is a verdict?
#
# Five words are enough.
#
# - **Agrees**: the formula gives the printed value, up to the rounding of its last digit.
# - **Disagrees**: it gives another value. A *reading* says under which the claim would be true, such as "in GiB" or "both directions counted".
# - **Input**: the claim is a fact that the package itself reads. That it agrees with itself proves nothing, so it is counted apart.
# - **Not derivable**: something is missing, and the table says what.
# - **Stated**: the sentence has no number.
#
# Let $v$ be the printed value and $u$ the unit of its last digit. Rounding hides everything within half of that unit. So the claim allows the interval
#
# $$ \left[\, v - \tfrac{u}{2},\; v + \tfrac{u}{2} \,\right] , $$
#
# and a computed value $c$ agrees if it lies inside. Words such as "about" make the interval twice as wide. A model may itself have a range
# $[c_1, c_2]$. It then agrees if the two intervals meet:
#
# $$ c_2 \ge v - \tfrac{u}{2} \quad\text{and}\quad c_1 \le v + \tfrac{u}{2} . $$
#
# The tolerance is fixed before the formula is computed, and is never widened to fit.
#
# ### One claim, by hand
#
# SemiAnalysis prints that a Trainium3 chip has 1.2 TB/s of scale-up bandwidth in one direction. With $n$ active lanes of rate $r$,
#
# $$ b = \frac{n\,r}{8} = \frac{144 \times 64\ \mathrm{Gb/s}}{8} = 1152\ \mathrm{GB/s} . $$
#
# The last printed digit is a tenth of a TB/s, so that half of a tenth on either side rounds to it. The claim agrees, though its true value is lower by 4%.
# The cell repeats this, and asks the package for the same claim.

# %%
by_hand = 144 * 64 / 8 / 1000
claim = tm.claims(topic="scale-up").claim("NC009")
assert abs(by_hand - claim.value_computed_low) < 1e-9
assert (claim.verdict == "agrees") == (1.15 <= by_hand <= 1.25)
claim

# %% [markdown]
# ## Ten claims that matter
#
# A designer of a system or a buyer would act on these. Open one to see its formula, and what decides.

# %%
ten = tables.chosen(tm.claims(), *tables.TEN)
charts.table(tables.table(ten), caption="Ten claims that a design or a purchase rests on", download="ten")

# %% tags=["hide-input"]
tables.Derivations(ten, "Their derivations, by id")

# %% [markdown]
# Peak rates and sizes of networks are products of a few counts, and such claims follow. Three kinds do not. A figure may be the right number under the wrong
# name: the 706 TB/s are the bandwidth of all memories, and not that of a fabric. A word may leave out a condition: no pair of one switch plane needs several hops, but most pairs of
# the rack do. And a ratio of energy or of served tokens depends on a workload that nobody printed with it.
#
# ## Ask about a claim
#
# `tm.claims` takes a topic, a verdict and a source. Change the line and run it again.

# %%
asked = tm.claims(topic=None if topic == "all" else topic, verdict=verdict)
charts.table(tables.table(asked, "reading"), caption="Claims with this verdict", download="asked")

# %% [markdown]
# Each result knows its claims by id, and a claim shows its derivation. At the terminal the same is
#
# ```console
# trnmodel claims --verdict disagrees
# trnmodel claims --topic memory --source trainium3-encyclopedia
# trnmodel claims NC009 NC118
# trnmodel claims --verdict disagrees -o disagree.csv
# ```
#
# ## Every claim, with its derivation
#
# Choose a verdict, a topic or a source above the list, or type a word. A click on a line opens it.

# %% tags=["hide-input"]
tables.Derivations(result, "All claims of the five texts")

# %% [markdown]
# ## Sets that hold together only under one reading
#
# Sometimes each of two sentences is plausible alone, and both cannot be true. The table puts them beside each other, with the arithmetic between
# them. Where they fit after all, it says which reading makes them fit.

# %% tags=["hide-input"]
sets = ledger.contradictions()
apart = sets[sets.together == "no"]
charts.table(
    apart[["says", "also", "gives", "reading"]],
    caption="Pairs of statements that contradict each other",
    download="apart",
)

# %% [markdown]
# The cables are the best example of a set that does fit. The three racks of the article have three counts of copper cables. One rule gives all of them, if each
# lane is a cable and redundant lanes count. Under any other rule at least one of the three is wrong.
#
# ## Statements without a number
#
# A source also says who buys, what is planned and why something was built. Such a sentence has nothing to compute, but it touches a part of the models: an
# input that it could change, or a call that it would decide.

# %% tags=["hide-input"]
plain = tables.touching(tm.claims(verdict="stated"))
charts.table(plain, caption="What sources state without a number, and what it touches", download="plain")

# %% [markdown]
# ## What moves a verdict
#
# A formula reads the figures in force, so that another figure gives another verdict. AWS prints two memory bandwidths of Trainium3. The encyclopedia says
# that the larger UltraServer has 706 TB/s in all, which follows from one of them:

# %%
chips = tm.system("trn3-nl72x2-pcie160").chips
rates = pd.Series([tm.chip("trainium3").hbm_bytes_per_s, 4.7e12])
total = chips * rates
moved = pd.DataFrame(
    {"hbm_bytes_per_s": rates, "bandwidth_bytes_per_s": total, "agrees": (total / 1e12 - 706).abs() <= 0.5}
)
assert moved.agrees[0] == (tm.claims(topic="memory").claim("NC465").verdict == "agrees")
charts.table(moved, caption="The bandwidth of all chips together, under both figures", download="moved")

# %% [markdown]
# The page on [disagreements](contradictions.ipynb) says why the larger figure is in force. If that ruling changes, this page changes with it.
#
# ## Check: totals that AWS prints
#
# The headline rests on formulas that we wrote. Some claims can be computed from totals that AWS prints itself, with no formula of ours between. AWS prints the
# compute and the memory bandwidth of both UltraServers. The encyclopedia calls the ratios 4.4 and 3.9. The cell divides the totals of AWS:

# %%
known = {one.id: one for one in tm.claims(source="trainium3-encyclopedia").rows}
for name, ratio in {"NC147": 362_448 / 83_200, "NC148": 705.6 / 185.6}.items():
    assert abs(known[name].value_computed_low / ratio - 1) < 0.005
    assert (known[name].verdict == "agrees") == (abs(ratio - float(known[name].value_printed)) <= 0.05)

# %% [markdown]
# Both of our values agree with the totals of AWS within half a percent, and so do both verdicts. The ratio of the bandwidths rounds to 3.8 and not to 3.9.
#
# ## What is left out
#
# - **Some sentences stand twice.** The list that we began with names them under two ids. Counted once, the share that agrees is nearly the same.
# - **A wide range agrees easily.** Where a model's answer has a wide band, as for training on new software, the verdict says little. Open the row to see the band.
# - **Pictures.** The tables of the article are images, and its saved copy does not have them.
# - **Claims on rivals** count only where the package has the chip.
# - **A formula is one way to a number.** Where two formulas are possible we took the one with the fewest assumptions, and `why` says what it is.
# - **An input may be wrong.** The package then repeats the mistake of its source, and no verdict shows it.

# %% tags=["hide-input"]
missing = tables.table(tm.claims(verdict="not derivable"), "why")
charts.table(
    missing[["id", "claim", "printed", "why"]], caption="Claims that nothing derives, and why", download="missing"
)

# %% [markdown]
# No paragraph of the five texts was skipped. Each has its claims, or a reason to have none, such as that it is a heading.

# %% tags=["hide-input"]
charts.table(tables.coverage(), caption="Paragraphs of each text, and what they come to", download="coverage")

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Most printed numbers follow from a few specifications, and a reader can check them in a line. When one does not follow, ask first for its unit, then for its direction, and then
# for what it is a figure of. Distrust ratios of energy or cost that name no workload.
# ```
#
# ## Problems
#
# **1.** An UltraServer has 144 chips with as many GiB of memory each. A page prints "20 TB" for it. Does the claim agree?
#
# ```{admonition} Answer
# :class: dropdown
# The sum is $144 \times 144 = 20736$ GiB, or 22.3 TB. In TB the claim is off by more than half a unit. In TiB it is 20.25, which rounds to 20.
# ```
#
# **2.** A network has three layers of switches with 128 ports each. How many endpoints does it connect without oversubscription?
#
# ```{admonition} Answer
# :class: dropdown
# Half of the ports of two layers go up, so it is $2 \times 64^3 = 524288$.
# ```
#
# **3.** Two chips are compared by "twice the energy efficiency". Which two figures do you need to test it, and which are usually missing?
#
# ```{admonition} Answer
# :class: dropdown
# It takes work per second and watts of both. Rates are printed, but the watts of a chip under that work are usually not.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
files = {
    "Every claim with its formula, value and verdict": (result.to_frame(), "claims"),
    "Sets of statements, with the arithmetic": (sets, "sets"),
    "Every paragraph, its claims, or why it has none": (tables.paragraphs(), "paragraphs"),
}
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (rows, name) in files.items()))

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
charts.table(tables.sources(result), caption="Sources of the claims", download="sources")
