# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 14
#     part: Understand
# ---

# %% [markdown]
# # How long does a decode step take?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
system: str = "trn2.48xlarge"
precision: str = "fp8"
stack: str = "public"
tp: int = 4
ep: int = 1
batch: int = 4
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
import numpy as np
import pandas as pd

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import decode_step as tables
from trnbook.chapters import guard
from trnbook.drawings import chip, timelines
from trnbook.shared import case

ask = {"stack": stack, "tp": tp, "ep": ep, "batch": batch, "input_tokens": input_tokens, "output_tokens": output_tokens}
deployment, mapping, sizes, software = asked = tables.check(model, system, precision=precision, **ask)
guard.fits(deployment, batch, sizes["max_context"])

# %% tags=["hide-input"]
step = tm.decode_step(model, system, mapping, **sizes, **software)
ideal = tm.decode_step(model, system, mapping, **sizes, precision=precision, efficiencies="ideal")

# %% tags=["hide-input"]
tables.headline(step, ideal)

# %% tags=["hide-input"]
charts.spans(
    tables.cascade(step),
    "from_s",
    "time_s",
    y="what",
    color="part",
    caption=tables.claim(step),
    under=tables.described(step),
)

# %% [markdown]
# A **decode step** runs the model once and adds a token to every sequence of the batch; a sequence is one prompt and its
# answer. The step reads the **weights**, which all sequences share, and the **cache** of each sequence. **Compute** shows only
# what the reads do not hide. **Exchanges** are messages between ranks. A rank is one of the cores that share the model, and TP
# counts those that share each matrix. **Layers** is a fitted time per layer whose cause nobody knows. A mixture has a second such constant, of its experts. The answer is
# *extrapolated* where no measured step lies near.
#
# ## Why it matters
#
# Every promise to a user is a promise about this time. A user waits one step for each token, and the machine makes one token
# per sequence in it. With $t$ for the time of a step and $B$ for the sequences in the batch, a user's speed $u$ and the
# throughput $T$ of the machine are
#
# $$ u = \frac{1}{t}, \qquad T = \frac{B}{t} . $$
#
# The two pull against each other. A larger batch makes the step longer, which every user notices, but less than in
# proportion, which the owner likes. To see how much longer, we must know what the step is made of. A section below answers [how
# fast one user can be](#how-fast-can-one-user-be).
#
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its
# users. The last line is this chapter's.

# %% tags=["hide-input"]
case.table("decode-step")

# %% [markdown]
# The next cell asks for that line again, for both models on `trn2.48xlarge`. The plan lets the dense model check seven
# drafted tokens in each step, so that a step takes in eight tokens per sequence. This costs little: the weights are read
# anyway, and eight tokens use them instead of one.

# %%
middle = {"context": 4096 + 256, "max_context": 4096 + 512, "precision": "fp8"}
dense = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=4), batch=4, new_tokens=8, **middle)
at, used = tm.Mapping(tp=4, ep=16), "vllm-neuron-2026-async"
experts = tm.decode_step("deepseek-v3", "trn2.48xlarge", at, batch=16, efficiencies=used, **middle)
for name, mine in (("llama-3.3-70b", dense), ("deepseek-v3", experts)):
    assert np.isclose(mine.time_s, case.choice(name, "trn2.48xlarge").step.time_s, rtol=1e-9)

# %% [markdown]
# ## The idea
#
# Generating is reading. To make one token, every weight has to travel from HBM, the memory of the chip, to the engines that
# multiply. It is used for one token of each sequence and dropped again, because the cores cannot hold the weights. All
# sequences share that one trip. The cache of a sequence serves nobody else, so its trip is made for each of them.

# %% tags=["hide-input"]
chip.decode_step_idea("llama-3.3-70b", tm.chip("trainium2"), context=4352, batches=(1, 4, 16), precision="fp8")

# %% [markdown]
# ## The equation, and the numbers by hand
#
# We split the step where one thing has to wait for another. In a linear layer the products run while the next weights arrive,
# so the longer of $t_c$ and $t_w$ counts. The same holds in attention for the scores and the cache, $t_s$ and $t_{kv}$. An
# exchange stands between two products that need each other's results, so nothing hides its time $t_x$. Layers add $t_0$:
#
# $$ t = \max(t_c,\ t_w) + \max(t_s,\ t_{kv}) + t_x + t_0 . $$
#
# Take the dense model without drafts: FP8, the $n = 4$ ranks of one Trainium2 chip, four sequences, and graphs for 4,608
# tokens. **Weights** take a byte per parameter, and two in the output head. All $W$ bytes are read at the bandwidth $b$ of each
# rank, of which software reaches a share $\eta_w$:
#
# $$ t_w = \frac{W}{n\,b\,\eta_w} = \frac{70.6\ \mathrm{GB}}{2.9\ \mathrm{TB/s} \times 0.95} = 25.6\ \mathrm{ms} . $$
#
# **Cache.** A token leaves a key and a value of two bytes per element in each of 80 layers, $c$ bytes in all:
#
# $$ c = 2 \times 80\ \mathrm{layers} \times 8\ \mathrm{heads} \times 128 \times 2\ \mathrm{B} = 328\ \mathrm{kB} . $$
#
# Each of $B$ sequences reads $L$ tokens. A compiled graph always reads as many as it was compiled for, here 4,608. A sequence
# fills 4,352 of them halfway through its answer. The share is lower than that of the weights, because a cache lies in smaller
# pieces:
#
# $$ t_{kv} = \frac{B\,c\,L}{n\,b\,\eta_{kv}} = \frac{4 \times 328\ \mathrm{kB} \times 4608}{2.9\ \mathrm{TB/s} \times 0.445}
#    = 4.7\ \mathrm{ms} . $$
#
# **Compute.** A token meets $N$ parameters, those of all layers and of the head, with a multiplication and an addition each, at a share $\eta_c$ of the peak $p$ of a
# rank. The scores follow the same law. Both hide behind the reads:
#
# $$ t_c = \frac{2\,N\,B}{n\,p\,\eta_c} = \frac{2 \times 69.5\times10^{9} \times 4}{1299\ \mathrm{TFLOP/s} \times 0.8}
#    = 0.5\ \mathrm{ms} < t_w . $$
#
# **Exchanges.** Tensor parallelism (TP) cuts every matrix into slices, one per rank. Twice in each of $l$ layers the ranks add
# up partial results of $m$ bytes, in an all-reduce whose time [Torus or switch?](torus-or-switch.ipynb) derives:
#
# $$ t_x = 2\,l\,t_{\mathrm{allreduce}}(n, m) = 160 \times 2.5\ \mathrm{µs} = 0.4\ \mathrm{ms} . $$
#
# **Layers** add a constant $\tau$ each, which was fitted to measured steps:
#
# $$ t_0 = l\,\tau = 80 \times 161.7\ \mathrm{µs} = 12.9\ \mathrm{ms} . $$
#
# Together they make 43.6 ms. The step of the case takes 44.7 ms, because it also checks drafts. Eight times as many tokens take
# longer to exchange, while their work stays hidden behind the reads. The cell repeats the arithmetic, asks the package for the
# same step, and fails if the two differ by more than half a percent. A mixture adds an all-to-all to $t_x$, and a constant of its experts to $t_0$.

# %% tags=["hide-input"]
weights_s = 70.555e9 / (2.9e12 * 0.95)
cache_s = 4 * 4608 * (2 * 80 * 8 * 128 * 2) / (2.9e12 * 0.445)
exchanges_s, layers_s = 2 * 80 * 2.5e-6, 80 * 161.7e-6
compute_s = 2 * 69.5e9 * 4 / (1299e12 * 0.8)
assert compute_s < weights_s
by_hand_s = weights_s + cache_s + exchanges_s + layers_s
plain = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=4), batch=4, **middle)
assert abs(by_hand_s / float(plain.time_s) - 1) < 0.005

# %% [markdown]
# ## Ask the model
#
# The cells below hold what a performance engineer changes: the degrees of TP, the batch and the context. Edit them and run
# the chart again. What does not fit in memory is left out. The command line gives the step at the top of the page:

# %% tags=["hide-input"]
tables.command(asked, stack)

# %%
steps = {"as asked, ideal": ideal, "as asked": step}
for n in (8, 16, 32, 64):
    steps[f"TP {n}"] = tm.decode_step(model, system, tm.Mapping(tp=n, ep=ep), **sizes, **software)

# %%
half = {"batch": batch, "context": sizes["context"] / 2, "max_context": sizes["max_context"] / 2}
steps["half the context"] = tm.decode_step(model, system, mapping, **half, **software)
steps["twice the batch"] = tm.decode_step(model, system, mapping, **sizes | {"batch": 2 * batch}, **software)

# %% tags=["hide-input"]
charts.stacks(
    tables.parts(steps),
    x="what",
    y="time_s",
    color="part",
    caption="More ranks shorten the reads and leave the constant",
    under="One thing changed at a time; ideal software loses nothing",
)

# %% [markdown]
# Twice the ranks read the weights in half the time, because each holds half of them. The exchanges grow slowly, because a
# message travels further. The last part does not move: a rank keeps half of each layer, but it still runs all layers. This is
# why a model on many ranks is fast for its users and poor for its owner. With more ranks than cache heads, each head is copied,
# so the time of the cache no longer falls. Context and batch move the cache, until compute takes over (problem 3).
#
# ## Check: what was measured
#
# AWS prints a step of `llama-3.3-70b` in its tutorial for Trainium2: 19.69 ms per token in BF16 on 64 ranks. The cell types
# that row as the page has it, and fails if the package misses it by more than two percent. Your own measurement goes the
# same way.

# %%
row = {"instance": "trn2.48xlarge", "workload": "Llama-3.3-70B", "phase": "decode", "metric": "TPOT mean"}
row |= {"tp": 64, "batch": 1, "input_len": 10000, "output_len": 1501, "seq_len": 12800, "precision": "BF16"}
printed = row | {"value": 19.6918, "unit": "ms", "note": "vLLM+LLMPerf, no speculative decoding"}
checked = tm.validate(pd.DataFrame([printed]))
assert abs(checked.error[0]) < 0.02

# %% [markdown]
# This row helped to fit the constants, so the agreement proves little. The fair test leaves the page of a measurement out of
# the fit before predicting it. Each point below is such a step. A point below the line took longer than we expect.

# %% tags=["hide-input"]
unseen = tables.unseen()
charts.scatter(
    unseen,
    x="measured_s",
    y="predicted_s",
    color="chip",
    label="case",
    caption="Most steps outside of the fit lie along the line",
    under="Dense models on Neuron; each page was left out of the fit that predicts it",
).properties(height=190)

# %% tags=["hide-input"]
errors = tables.wrong()
assert (errors.model_left_out_error < errors.regression_error).all()
tables.medians(errors, unseen)

# %% [markdown]
# ## What moves the answer: the constant of a layer
#
# The constant $\tau$ is the time of a layer that its reads, products and exchanges do not explain. A section after the problems
# says what it is not. Nobody has published a step of Trainium3 with this software, so we use the constant of Trainium2. Mixtures
# have a second constant of unknown cause, `expert_core_s`, which their experts add. The next cells take half of both and 1.5 times both, and plan again
# at each speed. Change `times` to try your own.

# %%
rack, today, curves = "trn3-nl72x2-pcie160", tm.efficiencies("trainium3", used), []
for name, times in {"half": 0.5, "as fitted": 1.0, "1.5 times": 1.5}.items():
    changed = tables.with_layer_constants(today, times)
    for speed in (15, 20, 25, 30, 40, 50, 60):
        request = tm.Request(4096, 512, speed)
        best = tm.plan("deepseek-v3", request, rack, precision="mxfp8", efficiencies=changed).best
        made = best.tokens_per_s_per_chip if best is not None else np.nan
        curves.append((name, speed, made))

# %% tags=["hide-input"]
at_promise = {name: made for name, speed, made in curves if speed == case.PROMISES["deepseek-v3"]}
assert np.isclose(at_promise["as fitted"], case.choice("deepseek-v3", rack).tokens_per_s_per_chip)
assert at_promise["half"] > 2 * at_promise["as fitted"] > 10 * at_promise["1.5 times"]
charts.lines(
    pd.DataFrame(curves, columns=["layer_constants", "tokens_per_s_per_user", "tokens_per_s_per_chip"]).dropna(),
    x="tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="layer_constants",
    log_y=True,
    caption="Two constants of unknown cause decide the answer on Trainium3",
    under="DeepSeek-V3 in MXFP8 on the largest rack of Trainium3, with the case's public software",
).properties(height=170)

# %% [markdown]
# Look at the promise of the running case, 20 tokens/s per user, where the middle line has the value of the case. With half the
# constants a chip makes more than twice as much, and with 1.5 times the constants it makes almost nothing. A profile of one layer on
# Trainium3 would settle it.
#
# ### How fast can one user be?
#
# Ask for a speed that nobody reaches. The plan then returns the nearest mapping, out of all that fit on the rack.

# %%
fastest = tm.plan("deepseek-v3", tm.Request(4096, 512, tokens_per_s_per_user=1000), rack).best
tables.fastest(fastest)

# %% [markdown]
# The constant `expert_core_s` is the time that routing and waiting add to a layer with experts. It grows with each doubling of
# the cores that run an expert together. More chips do not help, because the reads shrink by less than it grows.

# %% [markdown]
# ## What is left out
#
# What a layer with experts adds beyond its bytes was fitted up to 64 ranks and batch 8. With more of either the form is
# extrapolated, and for the largest mixtures it is then most of a step. Contention between collectives and DMA, the host's
# tokeniser, and the time to load or to compile are not in the step. Users who come and go, prompts that interrupt a step, and
# cached prefixes are the subject of [the next chapter](serving.ipynb).
#
# ```{admonition} Takeaway
# :class: tip
# A decode step is weights and caches over bandwidth, plus exchanges that hide behind nothing, plus a constant for each layer.
# More ranks shorten only the reads. Ask what the software adds to a layer before you ask what the chip reads.
# ```
#
# ## Problems
#
# **1.** The dense model of the running case, in BF16, with 4,096 tokens of context. At which batch does a step read as many
# bytes of cache as of weights?
#
# ```{admonition} Answer
# :class: dropdown
# The weights are 139 GB. A token adds $2 \times 80 \times 8 \times 128 \times 2$ B, which is 328 kB. A sequence has 1.34 GB, so 104 sequences have as much.
# ```
#
# **2.** Every layer costs 0.17 ms beside its bytes, and there are eighty of them. The weights are read in 3.6 ms. By how much
# does a chip of twice the bandwidth shorten the step?
#
# ```{admonition} Answer
# :class: dropdown
# The step took $80 \times 0.17 + 3.6 = 17.2$ ms and takes $13.6 + 1.8 = 15.4$ ms, a tenth less.
# ```
#
# **3.** A weight of $s$ bytes takes $s/b$ to read, and each sequence uses it for two operations. At which batch does an ideal
# Trainium2 in BF16 compute as long as it reads, without any cache?
#
# ```{admonition} Answer
# :class: dropdown
# The peak is 667 TFLOP/s, and the bandwidth 2.9 TB/s. The batch is $ps/2b$, which makes 230. Caches push it further away.
# ```

# %% [markdown]
# ## Further: the constant of a layer, and prefill

# %% [markdown]
# **What is the step of the mixture made of?** Its memory is the weights and the cache, its network the exchanges, and its overhead the constants of
# layers and experts, which are half of the step.

# %% tags=["hide-input"]
timelines.step_as_sum(experts)

# %% [markdown]
# **Where does the constant of a layer come from?** On Neuron a layer takes longer than its reads, its products and its exchanges explain. We take a measured step, subtract
# everything that the model gives it, and divide what is left by the layers:
#
# $$ \tau = \frac{t_{\mathrm{measured}} - (t - t_0)}{l} . $$
#
# If the rest came from the exchanges, it would grow with the ranks. If it came from the reads, it would shrink with them.
# Where a bar reaches below zero, the model predicts more time than the step took.

# %% tags=["hide-input"]
rest = tables.unexplained()
charts.ranges(
    rest,
    x="layer_s",
    y="ranks",
    color="stack",
    caption="A layer's unexplained time does not grow with the ranks",
    under="Measured decode steps of dense models on Trainium2; bars hold 80% of them",
)

# %% [markdown]
# The long bar at four ranks holds two populations. One page prints steps of a 7B model that are two to eight times as long as
# those of the same model on another page, and neither says which kernels ran. We cannot say which of the two a new step will
# be like, so its band covers both.
#
# We tested three causes. Exchanges are not the cause, because the time is there on one rank, where nothing is exchanged.
# Traffic is not the cause, because models of 3,072 and of 8,192 hidden elements have about the same constant. The host explains
# about one third of it, because asynchronous steps take that much away. What remains would fit operators that wait for each
# other on the device. A profile of one layer would show it, and no public one exists.

# %% [markdown]
# **How long is the step before the first?** Prefill takes the whole prompt through the model at once. The weights now serve thousands of tokens, and the step waits for
# compute instead. For $P$ tokens of the dense model in FP8 on one Trainium2 chip, at a share $\eta$ of 48%, the products
# alone take this long. $N_l$ counts the layers without the head, which prefill runs for the last token only:
#
# $$ t = \frac{2\,N_l\,P}{n\,p\,\eta}
#    = \frac{2 \times 68.45\times10^{9} \times 4096}{1299\ \mathrm{TFLOP/s} \times 0.4836} = 893\ \mathrm{ms} . $$
#
# Attention, exchanges and a constant per layer come on top. Neuron compiles graphs for powers of two and pads a prompt to the
# next one, so a prompt just past a power of two pays for nearly twice its length.

# %% tags=["hide-input"]
linear_s = 2 * 68.45e9 * 4096 / (1299e12 * 0.4836)
whole = tm.prefill("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=4), input_tokens=4096, precision="fp8")
attention_s = sum(float(line.compute_s) for name, line in whole.breakdown().items() if name.endswith(" attention"))
assert abs((linear_s + attention_s) / float(whole.compute_s) - 1) < 0.005

# %% tags=["hide-input"]
charts.table(
    errors, caption="Errors of decode steps, each configuration counted once", download="errors", file_only=True
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    tables.symbols_of(asked, step),
    caption="Symbols of this chapter, with the values of the step at the top",
    download="notation",
)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
values = tables.efficiency_table(step.stack)
charts.table(values, caption="Every constant of the software", download="efficiencies", file_only=True)

# %% tags=["hide-input"]
charts.table(tables.operators(step), caption="Every operator of the step", download="operators", file_only=True)

# %%
batches, contexts = 2.0 ** np.arange(10), np.array([[0.5], [1.0], [2.0]]) * sizes["context"]
grid = tm.decode_step(model, system, mapping, batch=batches, context=contexts, **software).to_frame()
charts.table(grid, caption="Every batch and context, and what bounds it", download="regimes", file_only=True)

# %% tags=["hide-input"]
charts.table(tables.sources(step), caption="Sources of the figures in this chapter", download="sources")
