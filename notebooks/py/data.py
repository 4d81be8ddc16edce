# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 22
#     part: Evidence
# ---

# %% [markdown]
# # Where does each number come from?

# %% tags=["parameters"]
entity: str = "trainium3"
quantity: str = "hbm_bytes_per_s"
explained: str = "llama-3.3-70b"

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import data as tables
from trnbook.shared import case

facts = tm.facts()
tables.known(facts, entity, quantity)
guard.one_of([*case.PROMISES], explained=explained)

# %% tags=["hide-input"]
Markdown(tables.answer(facts))

# %% tags=["hide-input"]
charts.bars(
    tables.by_ground(facts),
    "ground",
    "facts",
    caption=tables.claim(facts),
    under="facts in use; our own estimates state their formula and mostly carry a range",
)

# %% [markdown]
# ## Find a fact
#
# These are the facts for the chips of Trainium and the racks of the case, in use or open, those on bandwidth of Trainium3 first. Type words, such as a
# chip and a quantity. The letter of *confidence* is explained below.

# %%
used = tables.in_use(tm.facts())
charts.table(used, caption="Facts on the chips of Trainium and the racks of the case", download="facts", find=True)

# %% [markdown]
# ## Why this page exists
#
# A performance model is only as good as the figures that go into it, and vendors, analysts and logs do not agree on them. So each figure
# of this book is a row of a table, a *fact*. A fact says what a source printed, in its own unit, and where it stands in that source. It is converted
# once, when it is loaded. No formula holds a constant of a machine.
#
# Facts carry one of four letters. **A** is a vendor's specification. **B** is a vendor's talk or page. **C** was measured or reported by others. **D** is an
# estimate of ours, whose formula stands in its note.
#
# ## From a printed figure to an answer
#
# Follow one figure: all facts on a quantity of an entity, with what was decided about each. *In use* is what the models read, *set aside*
# has a reason, and *open* is a rival that widens the range of every answer. The reasons stand in [Where do the sources disagree, and
# what did we decide?](contradictions.ipynb)

# %%
rows = facts[(facts.entity == entity) & (facts.quantity == quantity)]
charts.table(tables.followed(rows), caption="All that sources say of the figure", download="followed")

# %% [markdown]
# A chip is built from its facts in use. Its `sources` name the fact behind each field, and its `range` holds the open rivals.

# %%
chip = tm.chip("trainium3")
fields = tables.fields(chip, ["hbm_bytes_per_s", "hbm_bytes", "tdp_w", "hop_s"])
charts.table(fields, caption="Fields of a chip, their ranges, and the facts behind them", download="fields")

# %% [markdown]
# ## Which facts does an answer stand on?
#
# Let $y$ be an answer and $x_i$ the facts that it uses. The elasticity
#
# $$E_i = \frac{\partial \ln y}{\partial \ln x_i}$$
#
# says how far the answer moves: if the fact grows by 1%, the answer grows by $E_i$ percent. An elasticity of minus one means that the answer falls in proportion, and zero
# that the fact does not matter here. `tm.explain` calls it the *share* of the fact. It asks the question of the answer again with that fact moved a little, and all else as it was.
# Constants of software are facts too, and most of them are estimates of ours. For the decode step of the running case:

# %%
explanations = {}
for model in case.PROMISES:
    best = tm.plan(model, case.request(model), systems=case.SYSTEMS[-1]).best
    ask = {"batch": best.batch, "context": best.question.request.mean_context, "precision": str(best.precision)}
    step = tm.decode_step(model, best.system, best.degrees, efficiencies=best.stack, **ask)
    explanations[model] = tm.explain(step)

# %% tags=["hide-input"]
charts.bars(
    tables.largest(tables.shares(explanations)),
    "fact",
    "share",
    "model",
    caption="Software moves the step as much as the chip does",
    under="decode step of the running case on the largest rack, without speculation; largest first",
)

# %% [markdown]
# A negative bar says that a larger figure shortens the step, as a rate does. A positive one belongs to a time. Facts of the chip and constants of software
# share the step between them. Bars too short to see are left out of the chart, and the table below has them.
#
# ## The whole way down
#
# An explanation is a tree. Each line is a term with its formula, first in words and then with values. Below a term stand the facts that enter it, each with its
# source. Where another source prints something else, the *rival reading* says what the answer would be with it. The terminal prints the same tree, with `--explain` behind a
# command.

# %%
explanations[explained]

# %% [markdown]
# Here are the facts behind both steps. Type words, such as a chip or a source.

# %% tags=["hide-input"]
charts.table(
    tables.behind(explanations),
    caption="Facts behind the decode steps of the running case",
    download="explained",
    find=True,
)

# %% [markdown]
# ## Check: totals that vendors print
#
# A fact can be copied wrongly. AWS prints the totals of whole instances too, and these must be the number of chips times our figure for one chip.

# %%
totals = []
for name in tables.INSTANCES:
    system = tm.system(name)
    ours = {"hbm_bytes": system.chip.hbm_bytes, "hbm_bytes_per_s": system.chip.hbm_bytes_per_s}
    totals += tables.totals(facts, name, system.domain_chips, ours)
charts.table(pd.DataFrame(totals), caption="Printed totals of instances beside ours", download="totals")

# %% [markdown]
# All totals but one agree. That of `trn1.32xlarge` does not: AWS prints it in GiB/s, as
# 16 times 820. We read the 820 of one chip as GB/s, since the pins of its memory give that. The ruling stands in [Where do the sources disagree,
# and what did we decide?](contradictions.ipynb)
#
# ## What is left out
#
# Facts on prices age fastest; each row has the date of its source. Nobody prints the watts of a Trainium chip at work, the price that AWS pays
# for it, or how often its links fail. These are estimates, and the chapters on power, cost and failures say what they assume.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask of each number which fact it stands on, and how far it moves when that fact does. Few facts matter for one answer.
# ```

# %% [markdown]
# ## Problems
#
# **1.** The bandwidth of HBM is printed as 4.9 TB/s by one source and as 4.7 TB/s by another. By how much does a step change that
# spends 60% of its time on reads?
#
# ```{admonition} Answer
# :class: dropdown
# The reads take $4.9/4.7 = 1.043$ times as long. The step grows by $0.6 \times 4.3\,\% = 2.6\,\%$.
# ```
#
# **2.** An answer has an elasticity of −0.5 to a fact that is uncertain by 20%. How uncertain is the answer from this fact alone?
#
# ```{admonition} Answer
# :class: dropdown
# About $0.5 \times 20\,\% = 10\,\%$.
# ```
#
# **3.** Why is a printed total a better check than a second page that prints the same figure per chip?
#
# ```{admonition} Answer
# :class: dropdown
# The second page may have been copied from the first. A total was computed by somebody from the figure and a count, so that an error in either shows.
# ```

# %% [markdown]
# ## Evidence
#
# `tm.facts()` returns every fact as a table. The files behind it lie in `data/facts`, a row for each printed figure.

# %% tags=["hide-input"]
charts.table(
    tables.estimates(facts), caption="Every estimate of ours, with its formula", download="ours", file_only=True
)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
charts.table(common.bibliography(facts.source), caption="All sources", download="sources")
