# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,-all
#     formats: notebooks///ipynb,notebooks/py///py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   trnmodel:
#     order: 10
#     part: Serving
# ---

# %% [markdown]
# # How long does a step take?

# %% tags=["parameters"]
model: str = "llama-3.1-70b"
system: str = "trn2.48xlarge"
precision: str = "bf16"
stack: str = "vllm-neuron-2026"
tp: int = 64
ep: int = 1
batch: int = 16
input_tokens: int = 3584
output_tokens: int = 512

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnmodel import charts
from trnmodel.catalog.stacks import stacks
from trnmodel.chapters import common, guard
from trnmodel.chapters import decode_step as tables
from trnmodel.evidence import accuracy, ledger, table
from trnmodel.steps.deployment import Deployment
from trnmodel.units import MS, format_quantity

m, spec = tm.model(model), tm.system(system)
guard.neuroncore(system=spec)
guard.computes(spec.chip, precision=precision)
guard.one_of(stacks(), stack=stack)
guard.generates(model=m)
guard.within(1, 1e6, tp=tp, ep=ep, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
context = input_tokens + output_tokens
guard.spans(context, model=m)
ours = Deployment(model=m, system=spec.id, mapping=tm.Mapping(tp=tp, ep=ep), precision=precision, stack=stack)
step, prompt = ours.decode(batch=batch, context=context), ours.prefill(input_tokens=input_tokens)
guard.valid(f"a decode step with tp = {tp}, ep = {ep}, batch = {batch}, context = {context}", step)
guard.valid(f"a prefill with tp = {tp}, ep = {ep}, input_tokens = {input_tokens}", prompt)

# %% tags=["hide-input"]
ideal = ours.ideal.decode(batch=batch, context=context)
Markdown(
    f"**{m.id} in {precision.upper()} on {ours.mapping.ranks:.0f} ranks of {spec.name} makes a token for each "
    f"of {batch} users every {format_quantity(float(step.time_s), 's', 3)}, {float(step.tokens_per_s):.0f} tokens a second, and "
    f"reads a prompt of {input_tokens} tokens in {format_quantity(float(prompt.time_s), 's', 3)}.** {str(step.bound).capitalize()} takes "
    f"longest of that step; with everything overlapped it would be {format_quantity(float(step.lower_s), 's', 3)}, with nothing "
    f"{format_quantity(float(step.upper_s), 's', 3)}, and on a machine that loses nothing "
    f"{format_quantity(float(ideal.time_s), 's', 3)}. Basis on {stack}: step {step.ground()}; prefill {prompt.ground()}.\n\n"
    + ledger.rests_on(step.stack.id)
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(tables.symbols(ours), "from"),
    caption=f"What this chapter calls things, for {m.id} on {spec.id}",
    download="notation",
)

# %% [markdown]
# ## A decode step taken apart
#
# A step reads every weight once for the whole batch $B$, and each sequence's own cache of $L$ tokens. With $n$ ranks,
# bandwidth $b$ and shares $\eta$ of it,
#
# $$ t = \max\Bigl(\frac{2NB}{n\,p\,\eta_c},\ \frac{W}{n\,b\,\eta_w}\Bigr)
#      + \max\Bigl(t_{softmax},\ \frac{c\,L\,B}{n\,b\,\eta_{kv}}\Bigr) + t_{net} + t_0 . $$
#
# Linear layers hide compute behind weights, attention hides softmax behind the cache, and nothing hides the all-reduces: two a
# layer stand between products that need each other's results. `lower_s` lets all of it overlap, `upper_s` nothing.
#
# **By hand.** Llama-3.1-70B in BF16 at TP 64 on trn2.48xlarge: 139.1 GB / 64 = 2.17 GB a rank; a quarter of a chip reads
# 2.9 / 4 = 0.725 TB/s, of which weights reach 57 %: 2.17 / 0.413 = 5.3 ms. The weights alone:

# %%
weights = tm.model("llama-3.1-70b").weight_bytes_read(1, "bf16")
share = tm.efficiencies("trainium2").weight_stream_share
by_hand = weights / 64 / (tm.chip("trainium2").hbm_bytes_per_s / 4) / share
f"{by_hand / MS:.2f} ms"

# %%
parts = tables.anatomy(ours, batch, context)
resources = parts[parts.part != "step"]
charts.bars(
    resources,
    x="part",
    y="time_s",
    color="software",
    caption=f"{m.id}, batch {batch}, context {context}: with {stack} a step takes {float(step.time_s / ideal.time_s):.1f} times "
    f"the ideal one, and {step.bound} takes longest of it",
)

# %%
whole = parts[parts.part == "step"]
charts.ranges(
    whole,
    x="time_s",
    y="software",
    caption="The step between its bounds: all overlaps (left end), nothing does (right end)",
)

# %%
charts.table(parts, caption="One decode step by resource; low and high of a step are its bounds", download="step")

# %% [markdown]
# The operators of one rank. All-reduces, softmax and overhead belong to none of them:

# %%
charts.table(tables.operators(ours, batch, context), caption="Operators of a step, longest first", download="operators")

# %% [markdown]
# ### What the stack loses, and who says so
#
# Each share and overhead is a row of data with a source and a range. Those from *project* are our own fits to published
# measurements (confidence D); the Check below shows what they are worth.

# %%
lost = tables.efficiency_table(ours.e)
charts.table(
    lost[["name", "what it is", "value", "range", "source"]],
    caption=f"Where {stack} differs from an ideal stack",
    download="efficiencies",
)

# %% tags=["hide-input"]
how = lost.loc[lost["how it is known"] != "", ["name", "confidence", "how it is known"]]
charts.table(how, caption="How each is known; A vendor, C measured by others, D our estimate", download="how-known")

# %% [markdown]
# ## Turning points
#
# Weights are read once however many sequences share them, so compute catches up with memory at a batch of $B = p\,s/(2b)$ for $s$
# bytes a weight. Caches are not shared: a longer context pushes that point away. All-reduces grow with the batch as compute does.
#
# **By hand.** Trainium2 in BF16: 667 TFLOP/s / 2.9 TB/s = 230 FLOP/B; at 2 bytes a weight and 2 FLOP the ideal machine turns at a
# batch of 230, if there were no cache.

# %%
grid = tables.regimes(ours)
turns = tables.turning_points(grid)
charts.regions(
    grid[grid.bound != tables.DOES_NOT_FIT],
    x="batch",
    y="context",
    color="bound",
    panel="software",
    caption=f"What takes longest in a decode step of {m.id} on {spec.id}; blank does not fit in memory",
)

# %%
charts.table(turns, caption="First batch (powers of two) at which another resource bounds", download="turning-points")

# %% [markdown]
# Compute at small batches and long contexts, where it shows, is not TensorE: it is the softmax, which runs on the vector engines
# 128 rows at a time and has too few rows to fill them. The network takes over where all-reduces
# grow beyond what one step of a mesh carries and are doubled and halved instead.

# %% tags=["hide-input"]
charts.table(grid, caption="Every point of the map, with the time of each resource", download="regimes")

# %% [markdown]
# ## Prefill, and the first token
#
# Prefill computes: $t \approx 2 N L/(n\,p\,\eta) + t_{attention} + t_{net} + t_0$. The graph is compiled for powers of two and a
# prompt is padded to the next one.
#
# **By hand.** 4,096 tokens of Llama-3.1-70B on 64 ranks: 2 x 69.5e9 x 4,096 = 569 TFLOP over 16 x 667 TFLOP/s x 46 % is 115 ms;
# attention, the all-reduces and the launch come on top.

# %%
body = tm.model("llama-3.1-70b").active_params(input_embedding=False) - 128256 * 8192
hand = 2 * body * 4096 / (16 * tm.chip("trainium2").peak("bf16") * tm.efficiencies("trainium2").prefill_matmul_share)
real = tm.prefill("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=64), input_tokens=4096)
f"{hand / MS:.0f} ms by hand, {float(real.compute_s) / MS:.0f} ms with attention, {float(real.time_s) / MS:.0f} ms in all"

# %%
lengths = np.unique(np.round(np.geomspace(64, max(8192, 2 * input_tokens), 120)))
padded = tables.prompts(ours, lengths)
waste = padded[padded.policy == "compiled bucket"].padding_share
charts.lines(
    padded,
    x="input_tokens",
    y="time_s",
    color="policy",
    log_x=True,
    caption=f"Prefill goes up in steps: over these lengths {waste.mean():.0%} of the compiled tokens are padding",
)

# %%
charts.table(padded, caption="Prefill by length of the prompt", download="prefill")

# %% [markdown]
# The line never falls: at every size an all-reduce takes the fastest of mesh, recursive doubling and halving, and ring.
# AWS prints 1 and 56 MB as the sizes at which its library goes from one to the next.
#
# ### In chunks
#
# A prompt in chunks lets others decode in between. Each chunk launches anew, reads all weights, and attends to what came before:

# %%
pieces = tables.chunks(ours, input_tokens, [256.0, 512.0, 1024.0, 2048.0, float(input_tokens)], batch)
shortest = pieces.loc[pieces.stall_s.idxmin()]
charts.lines(
    pieces.melt(["chunk_tokens", "basis"], ["ttft_s", "stall_s"], "what", "time_s").replace(
        {"ttft_s": "first token of the prompt", "stall_s": "longest pause of the others"}
    ),
    x="chunk_tokens",
    y="time_s",
    color="what",
    log_x=True,
    caption=f"Chunks of {shortest.chunk_tokens:.0f}: others wait {format_quantity(shortest.stall_s, 's', 3)} instead of "
    f"{format_quantity(pieces.stall_s.iloc[-1], 's', 3)}, the prompt {format_quantity(shortest.ttft_s, 's', 3)} instead of "
    f"{format_quantity(pieces.ttft_s.iloc[-1], 's', 3)}",
)

# %%
charts.table(pieces, caption="Chunked prefill, a decode step after each chunk", download="chunks")

# %% [markdown]
# ### With a cached prefix

# %%
prefix = tables.prefixes(ours, input_tokens, np.arange(0, 1, 0.1))
charts.table(
    prefix, caption="Prefill where a share of the prompt is cached; what is new pads to its bucket", download="prefix"
)

# %% [markdown]
# A prefix pays when what is left falls into a smaller bucket, not before.

# %% [markdown]
# ## Check: what was measured
#
# [How wrong are we?](accuracy.ipynb) asks every published measurement that we found, and what is left out of the fits.

# %% tags=["hide-input"]
of_kind = "MoE and hybrid decode" if m.kind in ("expert", "hybrid") else "dense decode"
measured = table.written().set_index(["group", "split"])
unseen = measured.loc[of_kind, accuracy.LEFT_OUT]
Markdown(
    f"**Decode steps of models that the fit has not seen, {of_kind}: median {unseen.median_error:.1%}, nine in ten within "
    f"{unseen.p90_error:.0%}**, over {unseen.cases:.0f} configurations of {unseen.models:.0f} models; a regression on bytes, FLOP and "
    f"traffic has {unseen.naive_median:.1%}."
)

# %%
assert unseen.median_error < unseen.naive_median

# %% [markdown]
# ## What moves the answer
#
# * **The software stack**: the step of compiled graphs takes several times the ideal one.
# * **The compiled batch**: a graph runs its full batch for one user.
# * **TP**: it divides weights and multiplies all-reduces; KV heads that do not divide are copied.
# * **Efficiencies on Trainium3** are those of Trainium1, Inferentia2 and 2 where no row of its own speaks; captions and the column
#   `basis` then call them extrapolated.
#
# ## What is left out
#
# What a layer with experts adds beyond its bytes was fitted up to 64 ranks and batch 8; with more of either the form is
# extrapolated, and for the largest mixtures it is then most of a step. Contention
# between collectives and DMA in a step, requests of different lengths, preemption, the host's tokeniser, multimodal
# encoders, and the time to load or to compile.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Weights and caches over bandwidth, plus all-reduces that hide behind nothing, plus what each layer and launch costs: how near that comes,
# [How wrong are we?](accuracy.ipynb) says.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Llama-3.1-70B in BF16 on 64 ranks of Trainium2. At which batch does an ideal machine read as many bytes of cache as of
# weights, at 4,096 tokens of context?
#
# ```{admonition} Answer
# :class: dropdown
# A token adds 2 x 80 x 8 x 128 x 2 B = 328 kB, a sequence 1.34 GB; 139 / 1.34 = 104 sequences.
# ```
#
# **2.** A prefill takes 0.22 s, a step at batch 16 takes 20 ms, answers have 512 tokens. How many requests a second fill the batch?
#
# ```{admonition} Answer
# :class: dropdown
# 16 / (512 x 0.020 + 16 x 0.22) = 16 / 13.8 = 1.16 a second, of which prefill takes a quarter of the time.
# ```
#
# **3.** A draft of three tokens costs three steps of 5 ms, verifying takes 22 ms instead of 20. Which acceptance breaks even?
#
# ```{admonition} Answer
# :class: dropdown
# $E = 37/20 = 1.85$; $1 + a + a^2 + a^3 = 1.85$ at $a = 0.49$.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
stacks = set(lost.source.str.split("; ").explode())
chosen = used[used.entity.isin([spec.chip.id]) & used.quantity.str.contains("hbm|peak")]
charts.table(
    common.bibliography(stacks | set(chosen.source)),
    caption="Sources of the figures in this chapter",
    download="sources",
)
