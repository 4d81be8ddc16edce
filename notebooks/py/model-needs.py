# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 12
#     part: Understand
# ---

# %% [markdown]
# # What does a model need of a machine?

# %% tags=["parameters"]
model: str = "deepseek-v3"
precision: str = "fp8"
input_tokens: int = 4096
output_tokens: int = 512
batch: int = 16

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard, model_needs
from trnbook.drawings import flows
from trnbook.shared import case, ledger

m, context = tm.model(model), input_tokens + output_tokens / 2
guard.generates(model=m), guard.reaches(128, model=m), guard.spans(input_tokens + output_tokens, model=m)
guard.within(1, 1e9, input_tokens=input_tokens, output_tokens=output_tokens, batch=batch)
everyone = model_needs.models_compared(m)


# %% tags=["hide-input"]
def step_of(sequences, precision=precision, context=context, experts="distinct"):
    ask = {"past": context - 1, "precision": precision, "expert_read": experts}
    return m.operators("decode", batch=sequences, **ask)


parts = {n: model_needs.by_part(step_of(n)) for n in sorted({1, 4, 16, 64, 256, batch})}
read = parts[batch].read_bytes.sum()
flop = batch * m.decode_flop(context)
Markdown(
    common.card(
        read,
        f"what one decode step of `{m.id}` must read from memory for {tm.units.counted(batch, 'sequence')}",
        unit="B",
        mark="ideal",
        rival=f"{tm.units.format_quantity(m.weight_bytes(precision), 'B', 3)} that all weights take. The step does {tm.units.format_digits(flop / read, 2)} FLOP for each byte",
        rank="Compared with",
        proof="Check: figures that are not ours",
        more="**How sure?** It is a lower bound for any software. Parameters, work and cache follow from the model's configuration file, "
        "and they agree with publishers and other programs. The number of experts read is a mean, for a router without favourites.",
    )
)

# %% tags=["hide-input"]
charts.stacks(
    pd.concat(part.assign(case=f"batch {n:,}") for n, part in parts.items()),
    x="case",
    y="read_bytes",
    color="part",
    caption="Reads grow more slowly than the batch",
    under=f"{m.id} in {precision.upper()}, context {context:,.0f}: least bytes that a decode step reads",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book. The last line of the table is this chapter's.

# %% tags=["hide-input"]
case.table("model-needs")

# %% [markdown]
# It holds the bytes that all cores serving one batch read from HBM, the memory of the chips, in one
# step. The first chart counts what a model needs. This line counts what public software reads, with experts that no token asked for, padding and
# copies. For Llama that is little more than its weights. For DeepSeek it is more than the whole model weighs, although a token uses only a
# small part of it.
#
# ## Why ask the model first?
#
# A machine offers room, bandwidth and arithmetic. A model needs them in proportions that its configuration fixes, whatever machine it
# runs on. Four numbers describe it:
#
# | a model needs | symbol | what it decides |
# |---|---|---|
# | parameters | $N$ | how many chips hold the model |
# | bytes that a step reads | $R$ | how long a decode step takes while memory limits it |
# | FLOP per token | $F$ | how long a prompt takes |
# | bytes of cache per token | $c$ | how many users fit, and how long their contexts may be |
#
# *Decode* makes one token for each of $B$ sequences, the *batch*. *Prefill* reads a prompt. The *context* $C$ counts the tokens that a
# sequence has so far. A FLOP is one addition or multiplication. Sizes on this page are in GiB,
# which are $2^{30}$ bytes.
#
# ## The idea: weights are shared, caches are not
#
# To make a token, a model multiplies a vector with every matrix that the token uses. If several sequences decode together, the chip
# reads a matrix once and multiplies it with all their vectors. The keys and values of earlier tokens, the *cache*, belong to one
# sequence, and no other can use them.
#
# A mixture of experts stands between the two. A *router* sends each token to a few of many small networks, the *experts*. Two tokens
# share the read of an expert only if the router sends both to it. A small batch reads few experts, and a large one nearly all.

# %%
model_needs.step_of_experts("deepseek-v3", [1, 4, 16, 64])

# %% [markdown]
# ## How many parameters?
#
# Each layer of a dense model has four projections of attention (query, key, value and output), three matrices of a gated MLP, and norms.
# Outside the layers stand a table with a row for each word of the vocabulary, and the head that turns a vector into words:
#
# $$ N = l\,\bigl(h\,(2\,h_q + 2\,h_{kv}) + 3\,h\,f\bigr) + 2\,V h + \text{norms} $$
#
# Here $l$ counts the layers and $h$ is the width of a token's vector. The heads of queries have the width $h_q$ together, those of keys
# $h_{kv}$. The MLP has the width $f$, and the vocabulary has $V$ words. If $k$ of $E$ experts work for a token, it uses
#
# $$ N_a = N - \Bigl(1 - \frac{k}{E}\Bigr)\,N_{\text{experts}} $$
#
# parameters, where $N_{\text{experts}}$ counts those of all routed experts. They are called *active*.
#
# **By hand.** A layer of `llama-3.3-70b` has $8{,}192 \times (2 \times 8{,}192 + 2 \times 1{,}024) + 3 \times 8{,}192 \times 28{,}672$
# parameters, which are 856 million. Eighty layers have 68.5 billion, and the two tables add 2.1 billion. In `deepseek-v3` the experts of
# 58 layers have $58 \times 256 \times 3 \times 7{,}168 \times 2{,}048$ parameters, which are 654 billion. A token uses eight of 256 experts.

# %% tags=["hide-input"]
llama, deepseek = tm.model("llama-3.3-70b"), tm.model("deepseek-v3")
layer = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672
assert 80 * layer + 2 * 128256 * 8192 + 161 * 8192 == llama.total_params == 70_553_706_496
experts = 58 * 256 * 3 * 7168 * 2048
assert deepseek.total_params - (1 - 8 / 256) * experts == deepseek.active_params() == 37_552_282_624

# %% [markdown]
# Llama uses all of its 70.6 billion parameters for each token. DeepSeek uses 37.6 billion of 671 billion.
# Publishers disagree on what *active* means. We count the table of words, of which a token reads a single row; some leave it out.
#
# ## How much work per token?
#
# A matrix of $p$ parameters takes $2p$ FLOP per token: one multiplication and one addition for each. Attention compares the token with
# every token before it, and then adds up their values:
#
# $$ F = 2\,(N_a - V h - \text{norms}) + 2\,n_h\,(d_k + d_v)\,C\,l $$
#
# There are $n_h$ heads of queries. Keys have the width $d_k$ and values $d_v$. To look up a word, the chip copies one row of the table of
# $V h$ parameters and multiplies nothing, so the formula leaves that table out. In a prompt each token sees only those before it, so
# attention does half of the square.
#
# **By hand.** For `llama-3.3-70b` at 4,352 tokens, the matrices take $2 \times 69.5 \times 10^9 = 139.0$ GFLOP. Attention takes
# $2 \times 64 \times 256 \times 4{,}352 \times 80 = 11.4$ GFLOP, a twelfth of that.

# %% tags=["hide-input"]
linear = 2 * (llama.total_params - 128256 * 8192 - 161 * 8192)
attention = 2 * 64 * 256 * 4352 * 80
assert linear + attention == llama.decode_flop(4352)

# %% [markdown]
# The timing model counts the same work. If four *ranks*, logical cores, share the model, each does a quarter. Ask it for the prompt:

# %%
four = tm.Mapping(tp=4, lnc=2)
prompt = tm.prefill("llama-3.3-70b", "trn2.48xlarge", four, input_tokens=4096, precision="fp8")
assert 4 * prompt.work_flop_per_rank == llama.prefill_flop(4096)
Markdown(f"The prompt takes **{prompt.time_s:.2f} s**, and its bound is {prompt.bound}.")

# %% [markdown]
# ## How much cache per token?
#
# Each layer keeps a key and a value for every head of keys. With $n_{kv}$ such heads of width $d$ and $s_{kv}$ bytes for an element
#
# $$ c = 2\,s_{kv}\,l\,n_{kv}\,d , \qquad c_{\text{latent}} = s_{kv}\,l\,(d_c + d_r) . $$
#
# The second form is that of DeepSeek's latent attention. It keeps one compressed vector of width $d_c$ for all heads, and a part of width
# $d_r$ that holds the position.
#
# **By hand**, with two bytes for an element: Llama keeps $2 \times 2 \times 80 \times 8 \times 128 = 327{,}680$ bytes per token, and DeepSeek
# $2 \times 61 \times (512 + 64) = 70{,}272$ bytes. If four ranks share the model, each stores a quarter of Llama's cache.

# %% tags=["hide-input"]
assert llama.kv_bytes_per_token() == 2 * 2 * 80 * 8 * 128 == 327_680
assert deepseek.kv_bytes_per_token() == 2 * 61 * (512 + 64) == 70_272
fit = tm.memory_fit("llama-3.3-70b", "trn2.48xlarge", four, batch=4, context=4608, precision="fp8")
assert 4 * fit.cache_bytes == 4 * 4608 * 327_680

# %% [markdown]
# ## What does a decode step read?
#
# A token misses an expert with the probability $1 - k/E$, and a batch misses it if all tokens do. On average a batch meets
#
# $$ D = E\,\Bigl(1 - \Bigl(1 - \frac{k}{E}\Bigr)^{B}\Bigr) $$
#
# of $E$ experts. The step reads these, the weights that every token uses, and the caches:
#
# $$ R = W_{\text{shared}} + \frac{D}{E}\,W_{\text{experts}} + B\,c\,C $$
#
# Each $W$ counts stored bytes. A format of eight bits stores one byte for each parameter of the large matrices. Head, router and norms stay at
# two bytes in every format. The factor $c\,C$ is the cache of one sequence; a window stops its growth.
#
# **By hand.** Sixteen sequences of DeepSeek meet $256\,(1 - (1 - 8/256)^{16}) = 102$ of 256 experts. These are 242.6 GiB of the
# experts' 609 GiB. The weights that every token uses add 16.0 GiB, and the caches add 4.6 GiB. The sum is 263.2 GiB.

# %% tags=["hide-input"]
met = 256 * (1 - (1 - 8 / 256) ** 16)
shared = deepseek.weight_bytes_read(1, "fp8", "all") - experts
by_hand = shared + met / 256 * experts + 16 * 4352 * 70_272
model_says = deepseek.weight_bytes_read(16, "fp8") + 16 * deepseek.kv_bytes(4352)
assert abs(by_hand / model_says - 1) < 1e-5
in_gib = [size / 2**30 for size in (met / 256 * experts, experts, shared, 16 * 4352 * 70_272, by_hand)]
assert [f"{size:.1f}" for size in in_gib] == ["242.6", "609.0", "16.0", "4.6", "263.2"]

# %% [markdown]
# ## The line of the case
#
# The least that a step must read is not what it does read. Three things come on top:
#
# $$ R_{\text{step}} = R + R_{\text{unused experts}} + R_{\text{padding}} + R_{\text{copies}} $$
#
# - **Unused experts.** Public software runs all experts on all tokens, unless the tokens are very few.
# - **Padding.** A compiled graph has a fixed length of context. It reads the cache at that length, even where it is empty.
# - **Copies.** The ranks of DeepSeek form groups. A group keeps its share of the experts, but all of the attention weights. Within a
#   group, the latent has no heads to divide, so that each rank keeps all of it.
#
# **By hand.** Llama on Trainium2 runs on four ranks, with four sequences and a graph for 4,608 tokens. It reads all weights once,
# and each rank also its own copy of the norms, which adds 0.02 GiB:
#
# $$ \frac{70.56 \times 10^9 + 4 \times 4{,}608 \times 327{,}680}{2^{30}}\ \text{GiB} = (65.7 + 5.6)\ \text{GiB} = 71.3\ \text{GiB} $$

# %% tags=["hide-input"]
ask = {"batch": 4, "context": 4352, "max_context": 4608, "new_tokens": 8, "precision": "fp8"}
step = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", four, **ask)
by_hand = llama.weight_bytes_read(4, "fp8") + 4 * 4608 * 327_680
assert f"{(4 * step.moved_bytes_per_rank - by_hand) / 2**30:.2f}" == "0.02"


# %% [markdown]
# The same call gives every column of the table. The plan of the case has chosen mapping, batch and software.


# %% tags=["hide-input"]
def asked(plan):
    ask = {"batch": plan.batch, "context": 4352, "max_context": 4608, "new_tokens": 1 + plan.option.draft_tokens}
    return ask | {"precision": plan.precision, "efficiencies": plan.stack}


line = next(one for one in case.LINES if one.chapter == "model-needs")
columns = [(name, system) for name in case.PROMISES for system in case.SYSTEMS]
for name, system in columns:
    plan = case.choice(name, system)
    step = tm.decode_step(name, system, plan.degrees, **asked(plan))
    assert plan.degrees.ranks * step.moved_bytes_per_rank == case.value(line, name, system)


# %% [markdown]
# Where do the bytes come from? Ask again for a step that reads only the experts it needs, and ask the model what it needs. Before you
# run the cell, guess which is larger for DeepSeek: the experts that nobody asked for, or the copies?


# %%
def from_need_to_read(name, system):
    plan, one = case.choice(name, system), tm.model(name)
    frugal = tm.decode_step(name, system, plan.degrees, **asked(plan), expert_read="distinct")
    read, less = (plan.degrees.ranks * step.moved_bytes_per_rank for step in (plan.step, frugal))
    weights = one.weight_bytes_read(plan.batch, plan.precision)
    cache, padded = (plan.batch * one.kv_bytes(n, frugal.precision.kv) for n in (4352, 4608))
    return model_needs.breakdown(name, system, weights, cache, padded - cache, read - less, read)


# %% tags=["hide-input"]
parts_of = {column: from_need_to_read(*column) for column in columns}
for (name, _), part in parts_of.items():
    needed = part.read_bytes[part.part.isin(["weights needed", "caches needed"])].sum() / part.read_bytes.sum()
    assert (needed > 0.97) == (name == "llama-3.3-70b")
charts.stacks(
    pd.concat(part for (name, _), part in parts_of.items() if name == "deepseek-v3"),
    x="case",
    y="read_bytes",
    color="part",
    caption="DeepSeek reads far more than it needs",
    under="bytes that all ranks of a replica read in one decode step of the running case",
)

# %% [markdown]
# Llama is not in the chart. It has no experts, and its ranks copy next to nothing, so more than 97% of what it reads is needed.
#
# On Trainium2 the small batch of DeepSeek meets few experts, but the software reads them all. On Trainium3 the batch is large enough to
# need nearly every expert. There the copies weigh more, because there are more groups. Copies cost room and time, since every rank reads
# its whole copy instead of a share of one.

# %% [markdown]
# ## Check: figures that are not ours
#
# Some publishers state the parameters of a checkpoint to the unit; ours come from the configuration file alone. For other figures there
# are the publishers' own model code, built without its weights, PyTorch's counter of FLOP run over it, and an analysis written apart
# from ours.

# %% tags=["hide-input"]
published, others = ledger.published_counts(), ledger.printed()
assert (published.difference == 0).all()
assert others.agrees.all()
charts.table(
    model_needs.with_counts(ledger.agreement(others), published),
    caption="Figures that others counted; exact: equal to the last digit",
    download="agreement",
)

# %% [markdown]
# The largest difference is 0.02%, in weight bytes: DeepSeek's own FP8 file stores a scale for each block of weights, which we do not count.
# These checks test counts and not a running chip. [How fast do bytes reach a NeuronCore?](memory.ipynb) compares with bytes that a profiler counted.
#
# ## What moves the answer?
#
# The next cell asks the question of this page under other circumstances, one at a time. Change a line and run it again.

# %%
changes = {"as asked": {}, "batch x 4": {"batch": 4 * batch}, "context x 4": {"past": 4 * context - 1}}
changes |= {"weights in BF16": {"precision": "bf16"}, "weights in MXFP4": {"precision": "mxfp4"}}
changes |= {"weights and cache in FP8": {"precision": "fp8-kvfp8"}, "all experts": {"expert_read": "all"}}
ask = {"batch": batch, "past": context - 1, "precision": precision, "expert_read": "distinct"}
steps = {name: m.operators("decode", **ask | change) for name, change in changes.items()}

# %% tags=["hide-input"]
charts.stacks(
    pd.concat(model_needs.by_part(step).assign(asked=name) for name, step in steps.items()),
    x="asked",
    y="read_bytes",
    color="part",
    caption="Format moves the weights, context the cache",
    under=f"{m.id}, batch {batch:,}, context {context:,.0f}: bytes that a decode step reads",
)

# %% [markdown]
# A narrower format shrinks weights and leaves the cache as it is, unless the cache is stored in it too. A longer context grows the cache
# alone. A larger batch grows the cache, and in a mixture of experts also the experts read. Where a model has no experts, the last bar
# equals the first.
#
# ## What is left out?
#
# - **Favourite experts.** If a router prefers some experts, a batch meets fewer of them, and their rank has more to do.
# - **Activations.** Vectors that leave the on-chip memory between operators are read again. Fused graphs avoid most of it.
# - **Attention's ridge.** Attention runs in BF16, whose ridge is about half as high as that of the matrices.
# - **Other parts.** Towers for images and sound, adapters, and layers that predict several tokens are not counted.
# - **Room.** [Does it fit?](memory-fit.ipynb) asks whether a model fits.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# A decode step reads weights once for the whole batch, an expert once for all tokens that share it, and a cache once for each sequence.
# The model fixes this least amount. Software and mapping decide what is read on top.
# ```

# %% [markdown]
# ## Problems
#
# **1.** At which batch do dense matrices stored in FP8 reach Trainium2's ridge point of 448 FLOP/B?
#
# ```{admonition} Answer
# :class: dropdown
# A matrix of $p$ bytes does $2\,p\,B$ FLOP: $I = 2B$, so $B = 224$. In BF16 the ridge is 230 and a parameter has two bytes, so $B = 230$.
# The format hardly moves it.
# ```
#
# **2.** Llama in BF16 serves sequences of 32,768 tokens. From which batch on is there more cache than weights to read?
#
# ```{admonition} Answer
# :class: dropdown
# A sequence has a cache of $32{,}768 \times 327{,}680$ B, which is 10 GiB. A step reads 129.5 GiB of weights, so from 13 sequences on.
# ```
#
# **3.** A layer has 128 experts, of which each token uses eight. How many does a batch of sixteen meet, and what does it cost to read
# them for each token anew?
#
# ```{admonition} Answer
# :class: dropdown
# They meet $128\,(1 - (1 - 1/16)^{16}) = 82.4$. For each token anew, the step reads $16 \times 8 = 128$, which is 1.55 times the bytes.
# ```

# %% [markdown]
# ## Further: kinds of attention, copies, and intensity
#
# **Which kind of attention keeps how much?** MHA gives every head of queries its own keys. GQA shares one head of keys among several, and
# MLA shares a latent among all. A *window* forgets what is further back. Recurrent layers, such as Mamba, keep a state of fixed size
# instead. The table shows one sequence of each model. The size of a model says little about its cache.

# %% tags=["hide-input"]
kinds = [one for one in map(tm.model, everyone) if one.max_context >= context]
caches = pd.DataFrame({"model": [one.id for one in kinds], "attention": map(model_needs.attention_kind, kinds)})
caches["total"] = [one.total_params for one in kinds]
caches["token_bytes"] = [one.kv_bytes_per_token() for one in kinds]
caches["cache_bytes"] = [float(one.kv_bytes(context)) + one.state_bytes() for one in kinds]
charts.table(
    caches.sort_values("cache_bytes", ascending=False, kind="stable"),
    caption=f"Kinds of attention, and the cache of one sequence of {context:,.0f} tokens in BF16",
    download="caches",
)

# %% [markdown]
# **By hand.** On Trainium2 there are sixteen groups. Each of them reads the 16.04 GiB that every token uses, where one copy would do. That
# makes $15 \times 16.04 = 241$ GiB of copies. Parts of attention and the latent are copied within a group, too:

# %% tags=["hide-input"]
plan = case.choice("deepseek-v3", "trn2.48xlarge")
where = ("deepseek-v3", "trn2.48xlarge", plan.degrees)
ask = {"batch": int(plan.batch), "context": 4608, "precision": plan.precision, "efficiencies": plan.stack}
fit = tm.memory_fit(*where, **ask)
assert plan.degrees.ranks * fit.weight_bytes - deepseek.weight_bytes(plan.precision) > 15 * shared
assert f"{shared / 2**30:.2f} {15 * shared / 2**30:.0f}" == "16.04 241"
flows.where_a_byte_goes(*where, **ask)

# %% [markdown]
# **How much work is there for each byte?** A chip needs a certain amount of work per byte to keep its arithmetic busy, the *ridge point*: its peak over its bandwidth. A model in
# decode offers
#
# $$ I = \frac{B\,F}{R} \;\longrightarrow\; \frac{F}{c\,C} \quad \text{for a large batch.} $$
#
# A batch raises the intensity $I$ until the caches outweigh the weights. Beyond that point
# more sequences bring bytes and work alike.
# Below the ridge memory limits the step; above it, arithmetic does.
#
# **By hand.** Attention alone has the same intensity at any batch, because each query meets the cache of its own sequence. In Llama eight
# query heads share one key head, which gives 8 FLOP/B. In DeepSeek all heads share one latent, which gives
# $2 \times 128 \times (576 + 512) / (2 \times 576) = 242$ FLOP/B.

# %% tags=["hide-input"]
for one, by_hand in ((llama, 8), (deepseek, 2 * 128 * (576 + 512) / (2 * 576))):
    table = model_needs.by_operator(one.operators("decode", batch=16, past=1e6)).set_index("operator")
    assert abs(table.intensity_flop_per_byte["causal attention"] / by_hand - 1) < 1e-4

# %%
ask = {
    "batch": [16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    "context": 4352,
    "precision": "fp8",
    "efficiencies": "ideal",
}
mappings = {"llama-3.3-70b": tm.Mapping(tp=64), "deepseek-v3": tm.Mapping(tp=4, ep=16)}
offered = pd.concat(
    tm.decode_step(name, "trn2.48xlarge", degrees, **ask).to_frame() for name, degrees in mappings.items()
)
offered["intensity_flop_per_byte"] = offered.work_flop_per_rank / offered.moved_bytes_per_rank

# %% tags=["hide-input"]
chip = tm.chip("trainium2")
ridge = pd.DataFrame({"model": "Trainium2 ridge", "batch": ask["batch"]})
ridge["intensity_flop_per_byte"] = chip.peak("fp8") / chip.hbm_bytes_per_s
charts.lines(
    pd.concat([offered[offered.valid], ridge])[["model", "batch", "intensity_flop_per_byte"]],
    x="batch",
    y="intensity_flop_per_byte",
    color="model",
    log_x=True,
    log_y=True,
    caption="Memory is full before decode reaches the ridge",
    under="ideal software on trn2.48xlarge, FP8, context 4,352; a line ends where memory is full",
)

# %% [markdown]
# Llama's line flattens, because its caches come to outweigh its weights. DeepSeek has a small cache and much work per byte of it, so that
# its line still rises where memory is full. A prompt is different. All its tokens share one read of the weights, as if they were a large
# batch. A long prompt therefore stands right of the ridge, where decode stands left of it.

# %% [markdown]
# ## Notation
#
# | symbol | in code | what it is |
# |---|---|---|
# | $N$, $N_a$ | `total_params`, `active_params()` | parameters, and those that a token uses |
# | $F$ | `decode_flop(context)` | work per token in decode |
# | $c$ | `kv_bytes_per_token()` | cache per token, before a window is full |
# | $R$ | `operators("decode", ...)` | least bytes that a step reads |
# | $R_{\text{step}}$ | `moved_bytes_per_rank` | bytes that a step reads on each rank |
# | $B$, $C$ | `batch`, `context` | sequences of a step, and tokens of each |
# | $E$, $k$, $D$ | | experts of a layer, those of a token, those that a batch meets |
# | $I$ | `intensity_flop_per_byte` | work per byte |
#
# ## Sources

# %% tags=["hide-input"]
facts, shipped = tm.facts(), [m.id] if m.id in tm.model_ids() and tm.model(m.id) is m else []
used = facts[(facts.entity == "trainium2") & facts.quantity.isin(["hbm_bytes_per_s", "peak_flop_per_s"])]
sources = common.bibliography([*used.source, "ocp-mx-1.0"])
evidence = {
    "Parameters as publishers count them, and ours": ("published", published),
    "Every figure of another program, its tolerance and source": ("printed", others),
    "Every operator of the decode step asked about": ("operators", model_needs.by_operator(step_of(batch))),
    "Where the configuration of each model was read": ("models", ledger.files([*model_needs.KINDS, *shipped])),
}
display(charts.table(sources, caption="Sources of the chip's figures and of the formats", download="sources"))
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (name, rows) in evidence.items()))
