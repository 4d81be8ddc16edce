# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 8
#     part: Model and memory
# ---

# %% [markdown]
# # What does a model need?

# %% tags=["parameters"]
model: str = "deepseek-v3"
precision: str = "fp8"
input_tokens: int = 4096
output_tokens: int = 1024
batch: int = 64

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import model_needs as tables
from trnbook.shared import case
from trnbook.shared import ledger as printed
from trnmodel.catalog import load
from trnmodel.units import BILLION, format_digits, format_quantity

GENERATIONS = ["trainium1", "trainium2", "trainium3"]
SPREAD = ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "mixtral-8x7b-v0.1", "qwen3-30b-a3b", "qwen3-235b-a22b"]
SPREAD += ["gpt-oss-120b", "llama-4-maverick", "qwen3-next-80b-a3b", "deepseek-v3", "kimi-k2-instruct"]
KINDS = ["gpt3-175b", "gemma-2b", "llama-3.1-70b", "deepseek-v3", "gemma-3-27b", "gpt-oss-120b", "llama-4-maverick"]
KINDS += ["nemotron-h-56b", "qwen3-next-80b-a3b"]
FORMATS = ["bf16", "fp8", "mxfp8", "mxfp4-moe", "mxfp4", "w4a8"]
WIDTHS = ["llama-3.1-8b", "llama-3.1-70b", "gpt-oss-120b", "jamba-v0.1", "deepseek-v3"]
m, context = tm.model(model), input_tokens + output_tokens
guard.generates(model=m)
guard.reaches(128, model=m)
guard.within(1, 1e9, input_tokens=input_tokens, output_tokens=output_tokens, batch=batch)
guard.spans(context, model=m)
everyone, kinds, places = (
    list(dict.fromkeys(m if name == m.id else name for name in [*names, m.id])) for names in (SPREAD, KINDS, WIDTHS)
)
dtypes = load.precision(precision)

# %% tags=["hide-input"]
operators = tables.phases(m, batch, input_tokens, context, precision)
whole = operators.groupby("phase")[["flop", "weight_bytes", "cache_bytes"]].sum()
intensity = whole.flop / (whole.weight_bytes + whole.cache_bytes)
stored = tables.formats(m, FORMATS)
smaller = stored[stored.weight_bytes < m.weight_bytes(precision)].sort_values("weight_bytes", kind="stable")
Markdown(
    common.card(
        m.weight_bytes(precision),
        f"weights of {m.id} in {precision.upper()}, {format_digits(m.total_params / BILLION, 3)} billion parameters"
        + (
            f" of which a token uses {format_digits(m.active_params() / BILLION, 3)} billion"
            if m.active_params() < m.total_params
            else ", all of which a token uses"
        ),
        unit="B",
        mark="ideal",
        rival=" or ".join(
            f"{row.precision.upper()} with {format_quantity(row.weight_bytes, 'B', 3)}"
            for row in smaller.tail(2).itertuples()
        ),
        alone="" if len(smaller) else f"no format of {', '.join(FORMATS).upper()} stores less",
        proof="Check: figures that are not ours",
        more=f"A token leaves {format_quantity(m.kv_bytes_per_token(dtypes.kv), 'B', 3)} in the cache. Reading a prompt of "
        f"{tm.units.counted(input_tokens, 'token')} takes {format_quantity(whole.flop['prefill'], 'FLOP', 3)}, {format_digits(intensity['prefill'], 3)} for each byte "
        f"of weights and cache; a decode step for {tm.units.counted(batch, 'sequence')} {format_quantity(whole.flop['decode'], 'FLOP', 3)}, "
        f"{format_digits(intensity['decode'], 2)} for each byte.",
    )
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("model-needs")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(tables.symbols(m, precision)),
    caption=f"What this chapter calls things, for {m.id}",
    download="notation",
)

# %% [markdown]
# A work of FLOP counts two for each multiply-accumulate. Norms, softmax, gates and look-ups count nothing.
#
# ## How many parameters?
#
# A configuration file says it all: each layer has projections of attention, a feed-forward part and norms; beside the layers there
# are a table of tokens and a head.
#
# $$ N = l\,\bigl(h\,(2\,h_q + 2\,h_{kv}) + 3\,h\,f\bigr) + 2\,V h + \text{norms} $$
#
# with $h_q$ and $h_{kv}$ the widths of all query and all key heads, $f$ that of a gated feed-forward part and $V$ words.
#
# **By hand.** Llama-3.1-8B: 32 layers of 4,096 x (2 x 4,096 + 2 x 1,024) = 41.9 million and 3 x 4,096 x 14,336 = 176.2 million, two tables
# of 128,256 x 4,096 and 65 norms of 4,096:

# %%
by_hand = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336) + 2 * 128256 * 4096 + 65 * 4096
assert by_hand == tm.model("llama-3.1-8b").total_params
f"{by_hand:,}"

# %%
charts.table(
    tables.sizes(everyone),
    caption="Parameters: all, and those that a token uses, with and without the table of tokens",
    download="parameters",
)

# %% [markdown]
# There are two conventions for *active*. With the table, DeepSeek-V3 has 37.6 billion; without it (a token reads a single row) 36.6.
# Publishers print either: Qwen3-30B-A3B's *A3B* is 3.04 without its table and 3.35 with it. A tied table stays in both, for it is the
# head too. Layers for multi-token prediction that come with a checkpoint are in neither.
#
# ## Where they sit

# %%
where = tables.places(places)
mine = where[where.model == m.id].set_index("place").share.sort_values(ascending=False, kind="stable")
charts.stacks(
    where[where.share > 0],
    x="model",
    y="share",
    color="place",
    caption=f"{m.id}: {mine.iloc[0]:.0%} of the parameters are {mine.index[0]}",
    under=f"{mine.iloc[1]:.1%} are {mine.index[1]}",
)

# %%
charts.table(where, caption="Where parameters sit, and how many of them a token uses", download="places")

# %% [markdown]
# ## What each operator does and reads
#
# A matrix of $p$ parameters does $2p$ FLOP for each token and is read once for all of them. With $s$ bytes a weight its intensity
# over $n$ tokens is $I = 2n/s$, whatever its shape; experts share $n$ tokens among those that they meet. Attention does
# $2\,n_h\,(d_k + d_v)$ FLOP for each query and key. In decode it reads the cache of each sequence for one query: with $g$ query heads
# to each key head, and 2 bytes an element, $I = g$, and no batch changes that. A latent that all heads share (MLA) lifts it:
#
# $$ I_{MLA} = \frac{2\,n_h\,(d_c + d_r + d_c)}{2\,(d_c + d_r)} . $$
#
# **By hand.** Llama-3.1-70B has 64 query heads on 8 key heads: 8 FLOP/B. DeepSeek-V3 has 128 heads on a latent of 512 + 64:
# 2 x 128 x (576 + 512) / (2 x 576) = 242 FLOP/B, above Trainium2's ridge point of 230.

# %%
against = tables.against_ridges(operators, GENERATIONS, dtypes.compute)
charts.ranges(
    against,
    x="intensity_flop_per_byte",
    y="what",
    color="of",
    log_x=True,
    caption=f"Prefill does {format_digits(intensity['prefill'], 3)} FLOP a byte, decode {format_digits(intensity['decode'], 2)}",
    under=f"{m.id} in {precision.upper()} as a whole: a prompt of {tm.units.counted(input_tokens, 'token')}, decode at batch {batch:,}"
    + charts.ours(against.what[against.estimate]),
)

# %% [markdown]
# An operator to the left of a ridge point waits for memory, one to the right for compute. Weights and cache alone count here, as if a
# fused graph kept everything else in SBUF; the table has the intensity with every input and output written to HBM too. Attention runs
# in BF16, so its ridge point is that of BF16, not of the 8-bit formats. A chip without a peak for the format is shown in BF16.
# Plain FP8 on Trainium3 runs at twice BF16 and not at the rate of MXFP8 (chapter 1).

# %%
charts.table(
    operators, caption=f"Operators of a prefill and of a decode step of {m.id}, over all layers", download="operators"
)

# %% [markdown]
# ### The sum over operators
#
# Over all of them a token takes $2\,(N_a - \text{table} - \text{loose}) + $ attention, in decode
# $2\,n_h (d_k + d_v)\,C\,l$.
#
# **By hand.** Llama-3.1-8B at a context of 8,192: 2 x (8,030,261,248 - 525,336,576 - 266,240) = 15.01 GFLOP for the matrices, 32 x 2 x 32 x
# 256 x 8,192 = 4.29 GFLOP for attention.

# %%
decode = 2 * (8030261248 - 128256 * 4096 - 65 * 4096) + 32 * 2 * 32 * 256 * 8192
assert decode == tm.model("llama-3.1-8b").decode_flop(8192)
format_quantity(decode, "FLOP", 4)

# %% [markdown]
# ### What is counted
#
# A prompt needs the triangle of its attention, $T(T+1)/2$ pairs, and one row of logits. MFU is often defined by the whole square and by
# logits of all tokens, as training needs them. The difference is small for a short prompt and doubles attention for a long one.

# %%
lengths = 2.0 ** np.arange(7, int(np.log2(m.max_context)) + 1)
counted = tables.masks(m, lengths)
most = counted.loc[counted.times_needed.idxmax()]
charts.lines(
    counted,
    x="tokens",
    y="times_needed",
    color="counted",
    log_x=True,
    caption=f"Counting {most.counted} gives {most.times_needed:.2f} times the work",
    under=f"{m.id} at {most.tokens:,.0f} tokens, over the work that is needed",
)

# %%
charts.table(counted, caption="Work of a prefill by what is counted", download="masks")

# %% [markdown]
# ## What stays: the cache
#
# $$ c = 2\,s_{kv} \sum_{layers} n_{kv}\,d , \qquad c_{MLA} = s_{kv}\,l\,(d_c + d_r) $$
#
# Multi-head attention keeps keys and values of every head, multi-query attention of one, grouped attention of a few; latent attention
# keeps one vector for all heads. A window keeps no more than its width. A recurrent layer keeps a state that does not grow.
#
# **By hand.** Llama-3.1-70B: 80 layers x 2 x 8 heads x 128 x 2 B = 327,680 B a token. DeepSeek-V3: 61 x (512 + 64) x 2 B = 70,272 B.

# %%
token_bytes = [tm.model(name).kv_bytes_per_token() for name in ("llama-3.1-70b", "deepseek-v3")]
assert token_bytes == [80 * 2 * 8 * 128 * 2, 61 * (512 + 64) * 2]
" and ".join(f"{bytes_:,.0f} B" for bytes_ in token_bytes)

# %%
grown = tables.caches(kinds, 2.0 ** np.arange(8, 18), dtypes.kv)
charts.lines(
    grown[grown.cache_bytes > 0],
    x="context",
    y="cache_bytes",
    color="model",
    log_x=True,
    log_y=True,
    caption="Windows and states bend the line, a latent lowers it",
    under=f"cache of one sequence in {dtypes.kv.upper()}",
)

# %%
charts.table(
    tables.caches(kinds, [context], dtypes.kv),
    caption=f"Cache by kind of attention, and at a context of {context:,}; a dash is beyond the model's longest context",
    download="caches",
)

# %% [markdown]
# ## Weights by format
#
# A block format stores a scale with each block: MXFP8 has 32 elements of 8 bits and 8 bits of scale, 264/32 = 8.25 bits an element;
# MXFP4 4.25. Head, tables, routers, norms and biases stay as wide as activations, in each of them.

# %%
charts.bars(
    stored,
    x="precision",
    y="weight_bytes",
    caption=f"From BF16 to W4A8 weights shrink to {stored.weight_bytes.iloc[-1] / stored.weight_bytes.iloc[0]:.0%}",
    under=f"weights of {m.id}",
)

# %%
charts.table(
    stored,
    caption="Weights by format; W4A8 stores 4 bits and computes with 8, MXFP4-MOE narrows routed experts alone",
    download="formats",
)

# %% [markdown]
# ## What a decode step reads
#
# Dense weights are read once for the batch. Of $E$ experts a batch of $B$ tokens that choose $k$ each, uniformly and independently,
# meets
#
# $$ D = E\,\bigl(1 - (1 - k/E)^B\bigr) . $$
#
# Software may do worse: read the experts of each token anew, which NxD Inference does while $B\,k < E$, or all of them, which it does
# from there on. Caches are never shared.
#
# **By hand.** DeepSeek-V3 at batch 64: 256 x (1 - (1 - 8/256)^64) = 222 of 256.

# %%
f"{256 * (1 - (1 - 8 / 256) ** 64):.1f} experts"

# %%
batches = 2.0 ** np.arange(0, 11)
read = tables.step_bytes(m, batches, context, precision)
at = read[read.batch == 1].set_index("what").read_bytes
cache_passes = read[(read.what == "cache").values].set_index("batch").read_bytes
once = read[read.what == at.index[0]].set_index("batch").read_bytes
passed = cache_passes.index[cache_passes > once]
charts.lines(
    read,
    x="batch",
    y="read_bytes",
    color="what",
    log_x=True,
    log_y=True,
    caption=f"From batch {passed[0]:,.0f} on the cache outweighs the weights"
    if len(passed)
    else f"Up to batch {batches[-1]:,.0f} the weights outweigh the cache",
    under=f"{m.id}, context {context:,}: bytes that a decode step reads",
)

# %%
charts.table(read, caption="Bytes that a decode step reads, and each token's share of them", download="step-bytes")

# %%
met = tables.experts_met(
    [one for one in map(tm.model, everyone) if one.id != "llama-4-maverick"], [1.0, 8.0, 64.0, 256.0]
)
charts.table(met, caption="Experts of a layer that a batch meets, under uniform routing", download="experts")

# %% [markdown]
# ## Check: figures that are not ours
#
# **Publishers' counts.** Some publishers state the parameters of a checkpoint to the unit. Ours come from the configuration file alone:

# %%
published = printed.published_counts()
assert (published.difference == 0).all()
charts.table(published, caption=f"{len(published)} counts to the unit, none off by one", download="published")

# %% [markdown]
# **Other programs.** Parameters and FLOP of six models were counted without this project: the publishers' model code instantiated without
# memory, PyTorch's counter of FLOP run over it, and an analysis written apart from ours. Each row says which.

# %%
others = printed.printed()
assert others.agrees.all()
charts.table(
    printed.agreement(others),
    caption="Agreement by figure; exact means the same to the last unit",
    download="agreement",
)

# %%
charts.table(others, caption="Every figure, its tolerance and what it stands on", download="printed", file_only=True)

# %% tags=["hide-input"]
worst = others.loc[others.error.abs().idxmax()]
Markdown(
    f"{(others.error == 0).sum()} of {len(others)} agree to the unit. The largest difference is {abs(worst.error):.2%}, "
    f"{worst.figure} of {worst.model}: the publisher's file also holds a scale for each block of 128 x 128 weights, which our FP8 does "
    "not count. Bytes that a profiler counted on Trainium1 while models decoded are in chapter 3."
)

# %% [markdown]
# ## What moves the answer
#
# * **Context against batch.** Weights are read once, caches once for each sequence: a long context turns a model that reads weights into
#   one that reads cache.
# * **Who reads experts how.** At batch 1 all policies but one agree; at batch 64 the software's policy may cost several times the weights.
# * **The format of the cache** halves its bytes alone; the format of weights leaves the cache as it is.
#
# ## What is left out
#
# Routing that is not uniform meets fewer experts. Latent attention is counted absorbed in decode and expanded in prefill, the cheaper way
# each; software may differ. Activations that leave SBUF are in the table and not in the chart. Vision and audio towers of multimodal
# models, and adapters, are not modelled. Where a file pads its vocabulary, the padded one counts. Whether it fits is chapter 9.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Three numbers size a model for decode: bytes of the weights that it reads, bytes of cache a token, and the batch over which the first is
# shared.
# ```

# %% [markdown]
# ## Problems
#
# **1.** At which batch do the dense matrices of a model stored in FP8 reach Trainium2's FP8 ridge point of 448 FLOP/B?
#
# ```{admonition} Answer
# :class: dropdown
# $I = 2B/s$ with $s = 1$: $B = 224$. In BF16 the ridge is 230 and $s = 2$, so $B = 230$: the format hardly moves it.
# ```
#
# **2.** Llama-3.1-70B in BF16 serves sequences of 32,768 tokens. From which batch on is the cache more to read than the weights?
#
# ```{admonition} Answer
# :class: dropdown
# A sequence has 32,768 x 327,680 B = 10.7 GB of cache, a step reads 139.0 GB of weights: from 13 sequences on.
# ```
#
# **3.** How many of 128 experts, 8 a token, does a batch of 16 meet, and what would reading them token by token cost?
#
# ```{admonition} Answer
# :class: dropdown
# $128\,(1 - (1 - 1/16)^{16}) = 82.4$ read once, against $16 \times 8 = 128$ reads: 1.55 times the bytes.
# ```
#
# **4.** gpt-oss-120b slides a window of 128 over half of its 36 layers. What does that save of the cache at 32,768 tokens?
#
# ```{admonition} Answer
# :class: dropdown
# 2,048 B a token and layer: 36 layers x 32,768 would be 2.42 GB, 18 x 32,768 + 18 x 128 are 1.21 GB. Nearly half.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
shipped = [m.id] if m.id in tm.model_ids() and tm.model(m.id) is m else []
files = charts.table(
    printed.files(list(dict.fromkeys([*SPREAD, *shipped, *KINDS, *WIDTHS]))),
    caption="Where the configuration of each model was read",
    download="models",
)
files

# %% tags=["hide-input"]
used = tm.facts()
shown = used[used.entity.isin(GENERATIONS) & used.quantity.isin(["hbm_bytes_per_s", "peak_flop_per_s"])]
charts.table(
    common.bibliography([*shown.source, "ocp-mx-1.0"]),
    caption="Sources of the other figures in this chapter",
    download="sources",
)
