# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 0
# ---

# %% [markdown]
# # Trainium from first principles
#
# This book answers what you must know before you rent, buy or program AWS Trainium: which generation, which rack, how many chips, how fast,
# at what power, at what price, and how long training takes. Small formulas over sourced facts answer it. Every number carries its range, says
# what it rests on, and leads to the chapter that derives it.

# %% tags=["parameters"]
models: list[str] = ["llama-3.3-70b", "deepseek-v3", "llama-3.1-8b"]
tokens_per_s_per_user: list[float] = [50.0, 20.0, 100.0]
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import guard
from trnbook.chapters import index as tables
from trnbook.shared import case

guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.above_zero(tokens_per_s_per_user=tokens_per_s_per_user)
asked = tables.paired(models, tokens_per_s_per_user)
for model in asked:
    guard.generates(models=tm.model(model))
    guard.spans(input_tokens + output_tokens, models=tm.model(model))
requests = {m: tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speed) for m, speed in asked.items()}

# %% tags=["hide-input"]
plans = {model: tm.plan(model, request) for model, request in requests.items()}
Markdown(tables.headline(next(iter(plans.values()))))

# %% [markdown]
# ## What to use
#
# A request is a prompt and its answer, with a promise: the speed at which each user receives tokens. For each model, `tm.plan` searches all
# systems, number formats and mappings for the one that completes most requests per chip, with documented public software. The table
# puts the best Trainium system beside the best GPU system. An *announced* system cannot be rented yet.
#
# Three things to know before you read it. **The promise sets no limit on the first token.** Prompts take longer on Trainium, so a limit helps GPUs;
# [Which system should I use?](which-system.ipynb) shows by how much. **The dollars are an owner's**, for the machines, their power and their
# site, per million generated tokens with the prompts paid. Of Trainium that owner is Amazon, at our estimate of its cost; rents stand in
# [What does a token cost, and who wins?](cost.ipynb) **A range in brackets holds nine of ten outcomes**, other than that of energy, which moves
# all inputs to their ends. *Extrapolated* means that no published run lies near.

# %%
rows = []
for model, request in requests.items():
    for system, status in tables.trainium_and_gpu(plans[model]).items():
        best = tm.plan(model, request, systems=system).best
        cost = tm.token_cost(model, request, system, pricing=tm.tco(system))
        rows.append(tables.answer(best, status, cost[best.system.id, best.stack_kind]))
charts.table(pd.DataFrame(rows), caption="The best Trainium system beside the best GPU system", download="answers")

# %% tags=["hide-input"]
charts.ranges(
    tables.owner_usd(rows),
    x="generated_usd_per_mtoken",
    y="model",
    color="kind",
    log_x=True,
    caption="What a million tokens cost their owner",
    under="owner's cost per million generated tokens, prompts paid; the bar holds nine of ten draws",
)

# %% [markdown]
# Where the ranges overlap, a measurement on your own model decides, and not this page. Four chapters help you to decide: [Which system should
# I use?](which-system.ipynb) compares all systems at every speed. [What does a token cost, and who wins?](cost.ipynb) takes your own prices.
# [How does Trainium stand beside GPUs and TPUs?](beside-gpus.ipynb) counts per chip, per dollar and per joule. [How sure can you
# be?](how-sure.ipynb) says how far such answers have been from measurements.
#
# ## The running case
#
# Two models on three systems run through the whole book: a dense one, in which every token uses all weights, and a mixture of experts. Most
# chapters of the second part derive a line of this table, from the peak of the chip to the hours that failures cost. The last line is what a million
# tokens cost their owner.
#
# One thing is assumed. No documented release of vLLM Neuron lists DeepSeek-V3, whose attention keeps a latent and whose layers have shared experts. The
# case asks what it would make with the constants of that software; `tm.support("deepseek-v3", "trn2.48xlarge")` says what exists.

# %% tags=["hide-input"]
case.table("index")

# %% [markdown]
# ## Three ways to read
#
# **You decide about a purchase.** Read the four chapters of the first part. One line at the terminal gives the same answer for your own
# model: the system, the mapping, the runner-up, the bill for a number of users, and the command that starts the server.
#
# ```console
# trnmodel plan llama-3.3-70b --speed 50 --in 4096 --out 512
# trnmodel plan path/to/config.json --speed 50 --in 4096 --out 512 --users 500
# ```
#
# **You want to understand, or to check us.** Read the second part in order, or open it in JupyterLab: the cells that call the model stand open.
# Change one and run it.
#
# ```console
# make lab
# ```
#
# **You need the answer again and again.** Each chapter is a report with parameters, for a pipeline. The third part shows how the
# numbers were measured, decided and found, and how to add your own.
#
# ```console
# trnmodel run serving -p model=llama-3.1-8b -p system=trn2.48xlarge -o reports
# trnmodel compare deepseek-v3 trn3-nl32x2-pcie160 trn3-nl72x2-pcie160 --speed 20 --in 4096 --out 512
# ```
#
# ## The chips
#
# AWS has built three generations. A *domain* is the largest group of chips that scale-up links join. The links of a chip are
# counted in one direction; those of Trainium3 are counted by SemiAnalysis, and AWS's page has fewer. Eight bits are FP8, and MXFP8 on Trainium3.

# %%
chips = [tables.chip(tm.chip(name), tm.topology(system)) for name, system in tables.LARGEST.items()]
charts.table(pd.DataFrame(chips), caption="Three generations of Trainium", download="chips")

# %% [markdown]
# ## The chapters
#
# Each chapter asks one question, answers it first, derives the answer, and meets a number that is not ours. Each table can be downloaded
# as CSV, and each chapter as a notebook.
