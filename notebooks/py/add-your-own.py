# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 23
#     part: Evidence
# ---

# %% [markdown]
# # How do I add my own model, price, chip or measurement?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
system: str = "trn2.48xlarge"
tokens_per_s_per_user: float = 50.0
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
from dataclasses import replace

import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import add_your_own as tables
from trnbook.chapters import common, guard
from trnbook.shared import choices

m, spec = tm.model(model), tm.system(system)
guard.generates(model=m)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.spans(input_tokens + output_tokens, model=m)
guard.above_zero(tokens_per_s_per_user=tokens_per_s_per_user)
request = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=tokens_per_s_per_user)
plan = tm.plan(m, request, systems=spec)
tables.answered(plan)

# %% tags=["hide-input"]
plain = [tm.plan(m, request, spec, efficiencies=kind).best for kind in choices.undrafted(plan.best)]
Markdown(tables.answer(plan.best, plain))

# %% [markdown]
# ## Why you should not stop at our numbers
#
# The published case is not yours. You have your own model, your own rent, perhaps a machine that nobody has described, and you can measure. Each of
# these enters the model in one argument, and nothing has to be installed or changed for it. The cells below start from one question and change
# one thing at a time. In JupyterLab (`make lab`) you can do the same in every chapter.
#
# ## Your own model
#
# A model is its `config.json`, the file that lies beside the weights on Hugging Face. Give its path wherever a chapter, a command or a call
# takes a model. The sizes in the file give the parameters, the work and the cache; no weight is read. The cell writes the file of a
# shipped model with half of its layers to disk, and asks for that path.

# %%
path = tables.config_file(m, layers=m.n_layers // 2)
own_model = tm.model(path)
rows = [tables.row("as shipped", plan.best), tables.row("half of the layers", tm.plan(own_model, request, spec).best)]
rows += [tables.row(f"as shipped, without drafts ({one.stack.id})", one) for one in filter(None, plain)]
said = "The same question, for a shipped model and for an own one"
charts.table(pd.DataFrame(rows), caption=said, download="own-model")

# %% [markdown]
# Compare your model with the rows *without drafts*, if there are any. Drafts are documented for single models by name, such as Llama-3.3-70B. A model of your own
# has none, so half of the layers do not make twice the tokens of a model that drafts.
# Without drafts the gain exceeds two: a shorter step leaves more of the promised time for other users and for prompts.
#
# To read a chapter for your model in JupyterLab, open its notebook, such as `notebooks/serving.ipynb`, set `model` in the second cell to the
# path of your file, and choose *Run All Cells*. A relative path starts in the folder of the notebook. A promise that your model cannot keep is
# refused in one line; lower `tokens_per_s_per_user` then. At the terminal the same is one line, and the report is a page of its own:
#
# ```console
# trnmodel run serving -p model=path/to/config.json -p system=trn2.48xlarge -o reports
# ```
#
# ## Your own price
#
# With $p$ dollars per chip-hour and $r$ tokens per second and paid chip, a million generated tokens cost
#
# $$c = \frac{p}{3600} \cdot \frac{10^6}{r}.$$
#
# `tm.token_cost` takes your price of a chip-hour as a number. The cost is proportional to it, so that one price is enough to know all others.

# %%
prices = [1.0, 2.0, 4.0]  # $ per chip-hour
costs = [tm.token_cost(m, request, spec, pricing=price)[spec.id, "public"] for price in prices]
priced = pd.DataFrame({"usd_per_chip_h": prices, "usd_per_mtoken": [c.generated_usd_per_mtoken for c in costs]})
charts.table(priced, caption="A million generated tokens, with their prompts, at your price", download="prices")

# %% [markdown]
# If you own the chips, more figures are yours. Each is an argument of a call, and `replace` gives a copy of what the book uses:
#
# - **Price of a chip, capital and electricity:** `tm.tco(system, chip_usd=..., owner=replace(tm.owner(), ...))`.
#   See [What does a token cost, and who wins?](cost.ipynb)
# - **Watts and PUE of a site:** `tm.energy(step, power=..., facility=...)`.
#   See [How many watts per chip, and how many joules per token?](power.ipynb)
# - **Rates of failure:** `tm.goodput(system, chips, fleet=replace(tm.fleet(), ...))`.
#   See [What is lost to failures?](goodput.ipynb)
#
# %% [markdown]
# ## Your own chip or rack
#
# A system cannot be changed in place; `replace` gives a copy with another value. All models follow: time, memory, energy and cost. Here HBM is read at
# half to twice its rate, with everything else as it is.

# %%
rates = np.array([0.5, 0.75, 1.0, 1.5, 2.0])
slower = [replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=rate * spec.chip.hbm_bytes_per_s)) for rate in rates]
found = [tm.plan(m, request, systems=it).best for it in slower]
whatif = pd.DataFrame([tables.row(f"{rate:g} x HBM bandwidth", best) for rate, best in zip(rates, found, strict=True)])
said = {"caption": "More HBM bandwidth gives more throughput"}
said["under"] = "whole requests per paid chip, everything else as it is; the bar spans nine draws of ten"
charts.ranges(whatif, "tokens_per_s_per_chip", "case", **said)

# %% [markdown]
# A bar holds only the draws that keep the promise. With slower memory fewer draws keep it, and those are the fast ones, so a low end can rise where
# the bandwidth falls.
#
# To add a chip to the book, write its rows into `data/facts`. `CONTRIBUTING.md` says which rows it needs, and every row needs a source.
#
# ## Your own software
#
# What software loses is a set of named constants, the *efficiencies*. `tm.efficiencies` gives those of a chip's public software, `efficiencies=` takes
# your own. Here the server reaches another share of the bandwidth when it reads weights.

# %%
public = tm.efficiencies(spec.chip)
shares = np.array([0.25, 0.5, 0.75, 1.0])
mapping, context = plan.best.degrees, request.mean_context
steps = [
    tm.decode_step(
        m, spec, mapping, batch=plan.best.batch, context=context, precision=str(plan.best.precision), efficiencies=own
    )
    for own in (replace(public, weight_stream_share=float(share)) for share in shares)
]
charts.lines(
    pd.DataFrame({"share of HBM bandwidth for weights": shares, "time_s": [float(step.time_s) for step in steps]}),
    x="share of HBM bandwidth for weights",
    y="time_s",
    caption="Software that reads faster shortens the step",
    under=f"one decode step without speculation; public software reaches {public.weight_stream_share:.0%}",
)

# %% [markdown]
# ## Your own measurement
#
# A measurement is a row of a table: what ran, where, and what was read off. `tm.validate` asks the model the question of the row. It returns the prediction with
# its band and what it rests on, or the reason why the row cannot be asked. A row that lacks a column is not refused, but its band gets
# wider, because it may mean more than one case.

# %%
measured = pd.DataFrame(
    {
        "instance": "trn2.48xlarge",
        "workload": "Llama-3.1-70B",
        "phase": "decode",
        "metric": "tpot",
        "tp": 64,
        "lnc": 2,
        "precision": "bf16",
        "seq_len": 4096,
        "batch": [1, 1, 4],
        "value": [18.0, 90.0, 22.0],
        "unit": "ms",
    }
)
judged = tm.validate(measured)
charts.table(tables.verdicts(judged), caption="Three invented rows, as the model sees them", download="judged")

# %% [markdown]
# These three rows are invented, to show what comes back. A row outside of its band is either a discovery or a mistake. Common mistakes: the graph was
# compiled for a larger batch than the one in use, each layer has a graph, or a draft model runs that the row does not name. The columns are those of
# `data/evidence/measured.csv`, and a file is read as well as a table: `tm.validate("my-rows.csv")`.
# [How wrong is it for my case?](bring-your-own.ipynb) takes files of benchmark tools, corrects the model by them, and plans again.
#
# ## Check: the published rows, through the same call
#
# The same call judges everything that others have published. The share inside the bands should be near nine in ten, or above it, because our
# constants were fitted to most of these rows. It tests the call, and not how well an unseen page is predicted.

# %%
published = tm.validate(tm.validation()[tables.COLUMNS])
known, inside = published.predicted.notna().sum(), tables.share_inside(published)
Markdown(f"Of all published rows, {known:,} can be asked, and {inside:.0%} of these lie inside their band.")

# %% [markdown]
# [How wrong are we?](accuracy.ipynb) has all rows, each predicted by constants that have not seen its page.
#
# ## What is left out
#
# Models with other building blocks than those that a `config.json` can name are refused, with the name of the block. `tm.calibrate` corrects
# the constants of your software by your own rows; every call takes its `.stack` as `efficiencies`.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Change one thing, ask again, and look at how far the answer moves. What moves it most is what you should measure first.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A chip makes 250 tokens/s and costs \$2 per hour. What do a million tokens cost?
#
# ```{admonition} Answer
# :class: dropdown
# $2/3600 \times 10^6/250 = 2.22$ dollars.
# ```
#
# **2.** A step takes 40 ms, of which reads take 24 ms. By how much does a chip shorten it whose memory is twice as fast?
#
# ```{admonition} Answer
# :class: dropdown
# Reads take half of their time, 12 ms. The step takes 28 ms if nothing else hides behind the reads, which is 30% less.
# ```
#
# **3.** You measure 90 ms where the band ends at 51 ms. What do you look at first?
#
# ```{admonition} Answer
# :class: dropdown
# At what the row does not say: the batch for which the graph was compiled, the context, the software and its release. Add these columns and
# ask again. If the row is still outside, it is news.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
charts.table(judged, caption="All columns of the judged rows", download="judged-rows", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
facts = tm.facts()
used = facts[(facts.entity == spec.chip.id) & facts.quantity.isin(["hbm_bytes_per_s", "peak_flop_per_s"])]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
