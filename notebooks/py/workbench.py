# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 4.5
#     part: Decide
# ---

# %% [markdown]
# # What happens if I change the mapping?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
system: str = "trn2.48xlarge"
precision: str = ""  # "" is the best of BF16 and the 8-bit formats
tokens_per_s_per_user: float = 50.0
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts, workbench
from trnbook.chapters import guard
from trnbook.chapters import workbench as tables
from trnbook.shared import case, choices

m, spec = tm.model(model), tm.system(system)
guard.generates(model=m), guard.spans(input_tokens + output_tokens, model=m)
guard.computes(spec.chip, precision=precision or "bf16")
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
request = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=tokens_per_s_per_user)
plan = tm.plan(m, request, spec, precision=precision or None)
guard.possible(plan.reached, tables.unreached(plan))

# %% tags=["hide-input"]
plain = [tm.plan(m, request, spec, precision=precision or None, efficiencies=e) for e in choices.undrafted(plan.best)]
Markdown(tables.headline(plan, plain))

# %%
lengths = {"prompt": input_tokens, "context": input_tokens + output_tokens, "speed": tokens_per_s_per_user}
asked = workbench.ServingState(model=model, system=system, precision=precision, **lengths)
bench = workbench.show(workbench.best(asked))  # controls in JupyterLab, a table in the book
bench

# %% [markdown]
# In JupyterLab the cell above shows controls: `make lab`, open `workbench.ipynb`, and run all cells. Move one, and the answers follow
# at once: the memory of the first rank and of the others, the parts of a decode step, the exchanges, the speed of a user, what
# a chip makes, and the command that starts the server. The book shows the figures that the controls begin with.

# %% tags=["hide-input"]
tables.waterfall(bench.answers)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. The
# controls begin at the first column, unless you run the page with other parameters.

# %% tags=["hide-input"]
case.table("workbench")

# %% [markdown]
# ## Why look at more than the best mapping?
#
# `tm.plan` returns one answer. Whoever has to defend it wants to know how far the next ones are, and what the best one would lose
# if a promise changed. Your server may also lack what the plan assumes: it may not draft tokens, or run another number format.
# Then it helps to change one thing, see what moves, and learn why the rest stays.
#
# ## The controls
#
# * **Model** is a shipped one, or the path of your own `config.json`.
# * **TP, EP, PP and CP** are the degrees of parallelism: they cut matrices, experts, layers and sequences. **LNC** says how many
#   cores make a rank.
# * **Prompt and context** are in tokens. The context is the longest one, the prompt together with its answer.
# * **Promise** is the speed that each user gets. The server then takes as many requests as it can without breaking it.
# * **Software and drafts** are those that the catalogue documents for the chip and the model.
# * **Best mapping** asks `tm.plan` and sets the controls. **Keep** puts up to three configurations side by side. **Save** writes a
#   scenario file, which `trnmodel plan --scenario` reads.
#
# A second tab asks the same of a training step. Where a combination cannot run, the reason stands in place of the numbers.
#
# ## The same answers in code
#
# The controls call nothing that you cannot call. The next cell asks the library for what the workbench is set to, also after you have
# moved a control, and fails if the two differ.

# %%
now, option = bench.state, bench.state.option
sizes = {"batch": now.batch, "context": now.request.mean_context, "max_context": now.context}
software = {"precision": now.precision, "efficiencies": option.efficiencies}
step = tm.decode_step(now.model, now.system, now.mapping, new_tokens=option.draft_tokens + 1, **sizes, **software)
server = {"max_batch": now.batch, "precision": now.precision, "efficiencies": option.id}
served = tm.serve(now.model, now.request, now.system, now.mapping, **server)

# %% tags=["hide-input"]
shown = bench.answers
assert shown.value("time_s") == step.time_s or not shown.runs
assert shown.value("tokens_per_s_per_chip") == served.tokens_per_s_per_chip or shown.note or not shown.runs
charts.table(tables.exchanges(shown), caption="Exchanges of the step, and the tiers they cross", download="exchanges")

# %% [markdown]
# ## Which mappings hold the promise?
#
# If all $B$ slots of a replica on $n$ chips are in use, and a token takes $\tau$ with the prompts of others counted, a chip makes
#
# $$ T = \frac{B}{n\,\tau} . $$
#
# A call takes arrays. This one asks for degrees of TP and batches around the chosen ones at once. A small TP makes more per chip,
# because its exchanges are short and the constant of each layer keeps fewer ranks waiting. A larger one is faster for its users.

# %%
tp, batch = tables.around(now)
mappings = tm.Mapping(tp=tp, ep=now.ep, pp=now.pp, cp=now.cp, lnc=now.lnc or None)
every = tm.serve(now.model, now.request, now.system, mappings, **server | {"max_batch": batch})
held = {"context": now.context, "input_tokens": now.prompt, **software}
fit = tm.memory_fit(now.model, now.system, mappings, batch=batch, **held)

# %% tags=["hide-input"]
charts.table(tables.grid(every, fit), caption="Mappings around the chosen one, the best first", download="grid")

# %% [markdown]
# ## A training step
#
# The second tab begins with Llama on 2,048 chips of Trainium2. These are its two calls.

# %%
job = workbench.TrainingState()
trained = tm.train_step(job.model, job.system, job.mapping, **job.ask)
f"{float(trained.time_s):.1f} s at an MFU of {float(trained.mfu):.0%}"

# %% tags=["hide-input"]
figures = workbench.answers(job).figures
charts.table(figures[["title", "said", "basis"]], caption="What the second tab shows at first", download="training")

# %% [markdown]
# ## Check: a step that AWS printed
#
# AWS prints 19.69 ms per token for `llama-3.3-70b` in its tutorial for Trainium2, in BF16 on 64 ranks with one sequence. Set the
# controls to that run. The workbench must show a little less, because the printed time also holds what the server adds to a step. The
# row helped to fit the constants, so that the agreement proves that the controls reach the model, and little more. [How long does a
# decode step take?](decode-step.ipynb) has the fair test.

# %%
theirs = workbench.ServingState(precision="bf16", tp=64, batch=1, prompt=10_000, context=12_800, speed=0.0)
ours_s, printed_s = workbench.answers(theirs).value("time_s"), 19.6918e-3
assert 0 < printed_s / ours_s - 1 < 0.05
rows = pd.DataFrame({"what": ["printed by AWS", "workbench"], "time_s": [printed_s, ours_s]})
charts.table(rows, caption="One step, printed and shown", download="check")

# %% [markdown]
# ## What is left out
#
# The workbench asks for one replica of a server. It does not search: use `tm.plan` and `tm.compare` for that. It shows no price and no
# watts, which [What does a token cost, and who wins?](cost.ipynb) and [How many watts per chip, and how many joules per
# token?](power.ipynb) have.
#
# ```{admonition} Takeaway
# :class: tip
# Ask for the best mapping first, then change one control at a time. What moves is what your deployment depends on.
# ```

# %% [markdown]
# ## Problems
#
# Solve them with the controls. Begin with Llama on trn2.48xlarge in BF16, a prompt of 4,096 tokens, a context of 4,608, no promise and
# no drafts.
#
# **1.** Which is the smallest TP that holds four sequences?
#
# ```{admonition} Answer
# :class: dropdown
# TP 8. With TP 4 the first rank would need more than its 24 GiB for weights alone.
# ```
#
# **2.** Double TP from 8 to 16. Does the step take half as long?
#
# ```{admonition} Answer
# :class: dropdown
# No. Reads of weights and of the cache take half as long, and the constant of the layers stays. A step takes 71 % of the time.
# ```
#
# **3.** Back at TP 8, raise the batch to 16. What happens to the speed of a user, and to what a chip makes?
#
# ```{admonition} Answer
# :class: dropdown
# A user gets 57 % of the speed, because steps read more cache and prompts interrupt them. A chip makes 2.3 times as much.
# ```

# %% tags=["hide-input"]
begin = {"precision": "bf16", "speed": 0.0}
four, eight, sixteen, more = (
    workbench.answers(workbench.ServingState(tp=n, batch=b, **begin)) for n, b in ((4, 4), (8, 4), (16, 4), (8, 16))
)
faster, larger = (more.value(name) / eight.value(name) for name in ("tokens_per_s_per_user", "tokens_per_s_per_chip"))
assert "does not fit in memory" in four.reason
assert eight.runs
assert f"{sixteen.value('time_s') / eight.value('time_s'):.0%} {faster:.0%} {larger:.1f}" == "71% 57% 2.3"

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
charts.table(tables.sources(now), caption="Sources of the figures in this chapter", download="sources")
