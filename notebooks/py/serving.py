# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 15
#     part: Understand
# ---

# %% [markdown]
# # How fast does it serve?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
system: str = "trn2.48xlarge"
precision: str = ""  # "" is the best of BF16 and the 8-bit formats
tokens_per_s_per_user: float = 50.0
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import serving as tables
from trnbook.chapters import serving_explorer as explorer
from trnbook.drawings import timelines
from trnbook.shared import case, choices

m, spec, promise = tm.model(model), tm.system(system), {"tokens_per_s_per_user": tokens_per_s_per_user}
guard.generates(model=m), guard.spans(input_tokens + output_tokens, model=m)
guard.computes(spec.chip, precision=precision or "bf16")
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens), guard.within(1e-3, 1e6, **promise)
usual = {"input_tokens": input_tokens, "output_tokens": output_tokens} | promise
chosen = {"precision": precision or None}
plan = tm.plan(m, tm.Request(**usual), spec, **chosen)
guard.possible(plan.reached, tables.unreached(plan))

# %% tags=["hide-input"]
undrafted = [tm.plan(m, tm.Request(**usual), spec, **chosen, efficiencies=one) for one in choices.undrafted(plan.best)]
Markdown(tables.headline(plan.best, undrafted))

# %%
speeds = [5, 10, 20, 30, 40, 50, 60, 80, 100, 140, 200]
promises = tm.compare(m, tm.Request(input_tokens, output_tokens), spec, speeds=speeds, **chosen)

# %% tags=["hide-input"]
charts.lines(
    tables.with_and_without_prompts(promises.to_frame(bands=True)),
    x="promised_tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="what",
    highlight=["whole requests"],
    log_x=True,
    log_y=True,
    caption="Speed for users and prompts both cost throughput",
    under=f"{m.id} on {spec.name}, public software; speeds are means per user",
).properties(height=180)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its
# users. This chapter explains the last two lines.

# %% tags=["hide-input"]
case.table("serving")

# %% [markdown]
# ## The idea: two kinds of work share the chips
#
# **Prefill** reads the prompt. All of its tokens go through the model at once, so arithmetic limits it, and it ends with the
# first token. **Decode** writes the answer, one token per step, so reading weights and caches limits it. All sequences share
# the read of the weights. A server therefore decodes several at once, each in its own **slot**, and gives a slot to the next
# request as soon as an answer is complete. This is **continuous batching**. But while a prompt is read, the other slots stand still.

# %% tags=["hide-input"]
drawn = {"input_tokens": 4096, "output_tokens": 512, "slots": 4, "precision": "fp8"}
timelines.prefill_and_decode("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=4), **drawn)

# %% [markdown]
# A user sees two times: the **time to first token** (TTFT), and the **time per output token** (TPOT), which is the mean of the later gaps with their
# pauses. The speed of a user is one over TPOT. A single gap is called inter-token latency (ITL).
#
# ## The equations
#
# * A step takes the time $t$ for $B$ slots, and a prompt $P$. Requests for answers of $o$ tokens arrive at the rate $\lambda$.
# * $E$ says how many times as fast an answer gets by *drafts*, which are tokens that a small model guesses and the large one
#   checks in a single step. Without drafts $E$ is one.
# * Prompts take the share $\rho$ of the time, and decode has the rest. If two prompts of 0.2 s come each second, $\rho$ is 0.4.
# * Without prompts a token takes $t/E$. With them it takes $\tau$, the TPOT. If $\rho$ is 0.4, then 12 ms become
#   $12 / 0.6 = 20$ ms. $\tau$ is a mean, and so is the promise: a single gap with a prompt in it is longer.
#
# **Little's law** says that the number of customers in a shop is the rate at which they come times the time that they stay.
# A request stays for $o$ tokens, so $n$ slots are in use. A table after the problems lists all symbols.
#
# $$ \rho = \lambda P, \qquad \tau = \frac{t}{E\,(1 - \rho)}, \qquad n = \lambda\,o\,\tau . $$
#
# The rate has two limits. All slots are full at $\lambda_{\max}$: while $B$ requests decode, the prompts of the next $B$ must be read
# too. And a promise of $v$ tokens/s per user asks for $\tau \le 1/v$, which holds up to $\lambda_v$:
#
# $$ \lambda_{\max} = \frac{B}{o\,t/E + B\,P}, \qquad \lambda_v = \frac{1 - v\,t/E}{P} . $$
#
# Here $t$ does not depend on the load, because a compiled graph runs all its slots in every step, even empty ones. (GPUs run only
# those in use.) The server plans for the smaller rate. On $C$ chips, those left idle included, each makes
#
# $$ T = \frac{o}{C}\,\min(\lambda_{\max},\ \lambda_v) . $$
#
# This is the throughput of whole requests whose promise is kept, also called *goodput*. A figure for decode
# alone, $B E / (C\,t)$, leaves the prompts out.
#
# **The first token** waits for the prompts ahead of it. If equal prompts arrive at random,
# the share $\rho$ finds the server busy, and waits $P / (2\,(1 - \rho))$ on average. We assume that these waits are exponential. The
# check below compares that with measured queues. $W_q$ is the wait that a share $q$ of all prompts does not exceed. Then come the
# prompt, on average half a step that is under way, and the server's own time $h$:
#
# $$ W_q = \frac{P}{2\,(1 - \rho)}\,\ln\frac{\rho}{1 - q}, \qquad \mathrm{TTFT}_q = W_q + P + \tfrac{1}{2}\,t + h . $$
#
# **The wait for a slot is not in it.** The planned load keeps all slots busy, or nearly so. A request that finds none free waits until
# an answer ends. TTFT holds where each user has a slot and sends the next request when the last is answered, or behind a router that
# knows a free slot among many replicas. A single server with random arrivals must run below this load.
#
# ## An estimate by hand
#
# Take Llama-3.3-70B on one chip of Trainium2 with four slots. A step takes 44.7 ms. Drafts (see below) made answers 3.656 times as fast
# in AWS's run, so we take $E = 3.656$. Without prompts a token takes $44.7 / 3.656 = 12.2$ ms, but a promise of 50 tokens/s allows 20 ms. Prompts may
# have the rest, $\rho = 1 - 12.2 / 20 = 0.39$ of the time. A prompt takes 1.19 s, so $0.39 / 1.19 = 0.325$ requests/s can come. At
# 512 tokens each, that makes 166 tokens/s per chip, with $0.325 \times 512 \times 0.020 = 3.3$ slots in use.
# The 99th percentile of the wait is $1.19 / (2 \times 0.61) \times \ln(0.39 / 0.01) = 3.6$ s. With the prompt, half a step and 60 ms in the
# server, the first token takes 4.8 s.

# %%
at = ("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=4))
ask = {"max_context": 4608, "precision": "fp8"}
prompt = tm.prefill(*at, input_tokens=4096, **ask)
checked, plain = (tm.decode_step(*at, batch=4, context=4352, new_tokens=n, **ask) for n in (8, 1))
t, E, P, v, o = float(checked.time_s), 3.656, float(prompt.time_s), 50, 512
busy = 1 - v * t / E
rate, wait = busy / P, P / (2 * (1 - busy)) * np.log(busy / 0.01)
assert f"{1e3 * t:.1f} {1e3 * t / E:.1f} {busy:.2f} {P:.2f}" == "44.7 12.2 0.39 1.19"
assert f"{rate:.3f} {rate * o:.0f} {rate * o / v:.1f}" == "0.325 166 3.3"
assert f"{wait:.1f} {wait + P + t / 2 + 0.060:.1f} {t / plain.time_s - 1:.1%}" == "3.6 4.8 2.6%"

# %% [markdown]
# ## Ask the model
#
# `tm.plan` tries mappings, batches, formats and documented software, and returns what makes most per chip while the promise
# holds. `tm.serve` describes the same server at other rates, here up to the one that fills all slots. For a model of your own, set
# `model` to the path of its `config.json`, in the cell of `notebooks/serving.ipynb` that begins `model: str =`, and choose
# *Run All Cells*. The card, the curves and the table of changes follow your model. The drawing, the estimate by hand and the
# running case stay as they are. [How do I add my own model, price, chip or measurement?](add-your-own.ipynb) shows more.

# %%
best = tm.plan(m, tm.Request(**usual), spec, **chosen).best
B, t, E, P = best.batch, best.times.step_s, best.times.tokens_per_step, best.times.prompt_s
rates = B / (output_tokens * t / E + B * P) * np.append(np.linspace(0.02, 0.995, 30), 1.005)
ask = {"max_batch": B, "precision": best.precision, "efficiencies": best.option.id}
loaded = tm.serve(m, tm.Request(**usual, requests_per_s=rates), spec, best.degrees, **ask)
assert loaded.valid.tolist() == [True] * 30 + [False]  # the last rate is too high

# %% tags=["hide-input"]
charts.lines(
    tables.over_load(loaded, 1 / tokens_per_s_per_user),
    x="requests_per_s",
    y="time_s",
    color="what",
    log_y=True,
    caption="Load delays first tokens more than later ones",
    under=f"{m.id} on {spec.name}: one replica, up to the rate that fills it",
).properties(height=165)

# %% [markdown]
# Each further token takes longer, because more prompts come in between. The median of the first token is flat while prompts take less than half of
# the time. More than half of the requests then find no other prompt, and all prompts take equally long. An unlucky request waits behind several prompts,
# so its first token takes much longer. The planned load ends where the mean meets the promise, or where all slots are full.
#
# ## Our lines of the running case
#
# Without a rate, `tm.serve` runs at the planned load. These are our lines, and what lies behind them.


# %%
def served(name, where):
    best = tm.plan(name, case.request(name), where).best
    ask = {"max_batch": best.batch, "precision": best.precision, "efficiencies": best.option.id}
    return tm.serve(name, case.request(name), where, best.degrees, **ask)


lines = tables.lines({key: served(*key) for key in tables.COLUMNS})
charts.table(lines, caption="What each server does at its planned load", download="planned")

# %% [markdown]
# Prompts take two fifths of Llama's time, because drafts make its decode cheap. DeepSeek needs sixteen chips or more, and its slots
# wait for experts: [How long does a decode step take?](decode-step.ipynb)
#
# ## What moves the answer, and what is left out
#
# **Drafts** (speculative decoding) let a small model guess $d$ tokens. The large model checks them all in one step, keeps those that it would
# have written itself, and adds one of its own. If it accepts each with the chance $a$, a step gives on average
#
# $$ E = 1 + a + a^2 + \dots + a^d = \frac{1 - a^{d+1}}{1 - a} . $$
#
# This pays because a step mostly reads. Our Llama drafts seven tokens, and checking them lengthens its step by 2.6%. Its $E$ is the
# ratio of two latencies that AWS measured in BF16 on 64 ranks with one sequence. We assume the same in this plan. Most of Llama's throughput
# rests on this.
# **Prefill apart** (disaggregation) gives the prompts chips of their own, so that no step waits. The ratio of both is in Evidence.
#
# Each row of the table changes one thing and plans again. Add a row of yours.


# %%
def moved(what, where=None, **changed):
    more = chosen | (where or {})
    return tables.row(what, tm.plan(m, tm.Request(**usual | changed), spec, **more))


rows = [
    moved("as asked"),
    moved("half the speed", tokens_per_s_per_user=tokens_per_s_per_user / 2),
    moved("twice the speed", tokens_per_s_per_user=tokens_per_s_per_user * 2),
    moved("first token within 2 s", ttft_s=2),
    moved("half of the prompt cached", prefix_share=0.5),
    moved("prefill apart", where={"prefill_systems": spec}),
    moved("ideal software", where={"efficiencies": "ideal"}),
    *tables.without_drafts(undrafted),
]
charts.table(pd.DataFrame(rows), caption="The plan with one thing changed", download="changes")

# %% [markdown]
# A slower promise leaves more of the time to prompts, or to a step with more slots. Users may share half of a prompt, such as a system prompt, so that it is cached.
# We leave out requests of mixed lengths, where a long prompt delays the short ones behind it. We also leave out sequences that a full memory drops and begins again.
#
# ## Check against numbers that are not ours
#
# No fit has read these published throughputs, but some of their pages also
# hold decode steps or prompts that a fit has read. A point above the line is a server that we predict to be faster than it was.

# %%
published = tables.measured(tm.validation())

# %% tags=["hide-input"]
charts.scatter(
    published,
    x="measured_tokens_per_s",
    y="predicted_tokens_per_s",
    color="chip",
    label="case",
    caption="Most servers lie near the line, some far above it",
    under="Throughput of servers with NeuronCores; each configuration counts once",
).properties(height=150)

# %% tags=["hide-input"]
Markdown(tables.half_of(tables.errors()))

# %% [markdown]
# In the largest errors mixtures of experts on new software ran several times slower than we predict. [How wrong are we?](accuracy.ipynb)
# lists them all.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Say first how fast each user must be. That fixes how long a token may take. What decode leaves of this time is for prompts, and
# it decides how many requests a server takes. A figure for decode alone hides the prompts. A figure without a promise hides the
# users.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A step of 25 ms serves 32 slots. They share eight chips. How fast is each user, and what does a chip make in decode alone?
#
# ```{admonition} Answer
# :class: dropdown
# Each user gets $1 / 0.025 = 40$ tokens/s. A chip makes $32 \times 40 / 8 = 160$ tokens/s.
# ```
#
# **2.** A step for 16 slots takes 20 ms. A prompt takes 0.22 s, and an answer has 512 tokens. Which rate fills the slots?
#
# ```{admonition} Answer
# :class: dropdown
# $16 / (512 \times 0.020 + 16 \times 0.22) = 16 / 13.8 = 1.16$ requests/s. Prompts then take the share $1.16 \times 0.22 = 0.26$ of the time.
# ```
#
# **3.** Each of three drafted tokens costs 5 ms. The check takes 22 ms, and a plain step takes 20 ms. Which acceptance breaks even?
#
# ```{admonition} Answer
# :class: dropdown
# The longer step must give $E = (3 \times 5 + 22) / 20 = 1.85$ tokens. From $1 + a + a^2 + a^3 = 1.85$ follows $a = 0.49$.
# ```

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    tables.symbols_of(plan.best), caption="Symbols of this chapter, with the values of the plan", download="notation"
)

# %% [markdown]
# ## Evidence
#
# ```{admonition} Which of these numbers are estimates?
# :class: dropdown
# * **Step and prompt** have constants that were fitted to measurements. [How wrong are we?](accuracy.ipynb) says how well they predict.
# * **The gain of drafts** is a ratio of two latencies that AWS's tutorial prints for one sequence: a mean of 19.69 ms without drafts, and a median of
#   5.39 ms with them. Both ran in BF16 on 64 ranks. The ratio counts the time of the drafts. We assume it for other formats, mappings and numbers of sequences.
# * **The server's own time**, $h$, is fitted to pages on vLLM. They leave anything from nothing to 120 ms, depending on the release.
# * **Groups of attention.** With expert parallelism each group reads its own prompt at the same time. $P$ is then the time of one prompt in
#   every group, divided by the number of groups.
# * **Prefill apart.** Its chips send the finished cache over the network. Replicas of prefill and decode keep pace with each other in the ratio
#
#   $$ \frac{n_P}{n_D} = \frac{P\,B}{o\,t/E} . $$
#
# * **A static batch** waits until it is full, and then runs to its end. It fills at $B / (P_B + (o - 1)\,t)$, where $P_B$ is the time of all
#   its prompts at once. `tm.serve(..., batching="static")` has its times.
# ```

# %% tags=["hide-input"]
charts.table(tables.errors(), caption="Errors of servers that no fit has read", download="errors", file_only=True)

# %% tags=["hide-input"]
charts.table(loaded.to_frame(), caption="The server at every rate", download="load", file_only=True)

# %% tags=["hide-input"]
columns = ["case", "instance", "batch", "measured_tokens_per_s", "predicted_tokens_per_s", "error", "locator"]
charts.table(published[columns], caption="Every measured server", download="servers", file_only=True)

# %% [markdown]
# ### Every model, system and software
#
# The same frontier for other combinations. Choose above the chart, and point at the line or slide along it.


# %%
def frontier(one, where, software, number_format):
    more = {"speeds": explorer.SPEEDS, "efficiencies": software, "precision": number_format}
    return tm.compare(one, tm.Request(input_tokens, output_tokens), where, **more)


models = dict.fromkeys(["llama-3.1-8b", "llama-3.3-70b", "deepseek-v3", m])
systems = ["trn1.32xlarge", "trn2.48xlarge", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", spec]
tokens = input_tokens + output_tokens
grid = explorer.frontier_grid(frontier, tm.tco, models, systems, tokens=tokens)

# %% tags=["hide-input"]
charts.frontier(
    grid,
    {"model": m.id, "system": spec.id, "precision": explorer.shown(grid, best)},
    caption="The faster the promise, the less a chip makes",
    under="Whole requests on paid chips",
)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
facts = tm.facts()
said = facts[(facts.entity == spec.chip.id) & facts.quantity.str.contains("hbm|peak")]
said = pd.concat([said, facts[facts.entity.isin([best.option.id, best.stack.id])]])
known = sorted(set(said.source) - {"project"})
charts.table(common.bibliography(known), caption="Sources of chip and software", download="sources")
