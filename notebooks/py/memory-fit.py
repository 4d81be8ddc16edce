# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 13
#     part: Understand
# ---

# %% [markdown]
# # Does it fit?

# %% tags=["parameters"]
model: str = "llama-3.1-70b"
system: str = "trn2.48xlarge"
precision: str = "bf16"
tp: int = 16
lnc: int = 2
batch: int = 16
context: int = 8192

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import memory_fit as tables
from trnbook.chapters import memory_fit_printed as printed
from trnbook.shared import ledger
from trnmodel.search import sizing
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.rank import site
from trnmodel.units import MIB, format_quantity, format_within

FAMILY = ["trn1.32xlarge", "trn2-ultraserver", "trn3-nl72x2-pcie160"]
LARGE = ["llama-3.1-70b", "gpt-oss-120b", "qwen3-235b-a22b", "llama-3.1-405b", "deepseek-v3", "kimi-k2-instruct"]
BATCHES = 2.0 ** np.arange(0, 10)
m, spec = tm.model(model), tm.system(system)
guard.generates(model=m)
guard.reaches(128, model=m)
guard.one_of((*spec.chip.lnc_choices, *spec.chip.lnc_announced), lnc=lnc)
ranks = spec.domain_chips * spec.chip.cores / lnc
guard.within(1, ranks, tp=tp)
guard.within(128, m.max_context, context=context)
guard.within(1, 1e6, batch=batch)
d = Deployment(model=m, system=spec.id, mapping=tm.Mapping(tp=tp, lnc=lnc), precision=precision)
degrees = [int(n) for n in tp * 2.0 ** np.arange(-2, 3) if n >= 1 and n <= ranks]
contexts = 2.0 ** np.arange(7, int(np.log2(m.max_context)) + 1)
fitted, core = d.fit(batch, context), site(spec, lnc)

# %% tags=["hide-input"]
first_of = (fitted.first_rank_total_bytes, *fitted.ends("first_rank_total_bytes"))
near = [
    n for n in (max((n for n in degrees if n < tp), default=0), min((n for n in degrees if n > tp), default=0)) if n
]
rivals = [f"TP {n} {tables.verdict(d.fit(batch, context, tp=n))}" for n in near]
bank = f" Up to {core.ranks_per_bank:g} ranks share a bank of {format_quantity(core.hbm_bytes, 'B', 3)}; the first has what the others leave of it."
Markdown(
    common.card(
        tuple(map(float, first_of)) if fitted.valid else tables.verdict(fitted),
        f"what {f'the first of {tp} ranks' if tp > 1 else 'the one rank'} of {spec.name} ({core.description}) stores of {m.id} in {precision.upper()} with "
        f"{tm.units.counted(batch, 'sequence')} of up to {context:,} tokens"
        + (
            f"; it has {format_quantity(float(fitted.first_rank_capacity_bytes), 'B', 3)}, so it fits"
            if fitted.valid
            else ""
        ),
        unit="B",
        mark=fitted.basis,
        rival="; ".join(rivals),
        alone="" if rivals else f"{spec.name} has no other TP to give",
        proof="Check: measured footprints, runs that fitted, capacities of others",
        more=f"An ordinary rank stores {format_within(fitted.total_bytes, fitted.low, fitted.high, 'B')}, of which weights are "
        f"{float(fitted.weight_bytes / fitted.total_bytes):.0%} and the cache {float(fitted.cache_bytes / fitted.total_bytes):.0%}."
        f"{bank if core.ranks_per_bank > 1 else ''} What {fitted.stack.id} takes beside weights and cache is {fitted.ground()}.\n\n"
        + ledger.rests_on(fitted.stack.id),
    )
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(tables.symbols(d, batch, context)),
    caption=f"What this chapter calls things, for {m.id} on {spec.id}",
    download="notation",
)

# %% [markdown]
# ## Bytes of a rank
#
# A rank is a logical core with the banks of memory that its cores reach, and nothing flows over into others. At LNC 1 two ranks share a
# bank: half of it is their share and not a limit, a rank by itself has all of it. A rank stores its part of the weights, the cache of all
# sequences at their longest, the activations of the longest prompt in whole pages, and what the runtime needs: buffers of collectives, DMA
# rings and code, layer by layer, microcode for each physical core, and what its process and its library keep (on a GPU the CUDA context).
#
# $$ m = \frac{W}{n} + \frac{c\,C\,B}{n} + P\,\Bigl\lceil \frac{2\,T\,(f/n + 2h)}{P} \Bigr\rceil + a + b + l\,(r + x) + k\,y \le M $$
#
# where heads divide by $n$, with $f$ the widest matrix, $T$ the longest prompt, 2 bytes an element and $k$ cores of a rank. $M$ is the
# memory that the software may use: all of it on Neuron, the share $u$ of it for a server on a GPU. The first rank stores $F$ more: $m + F
# \le M$, or $s\,m + F \le s\,M$ where $s$ ranks share a bank, of which $M$ is the even part.
#
# **By hand.** Llama-3.1-8B on 8 ranks of inf2.48xlarge, 32 sequences of 4,096 tokens, in MiB: 15,317/8 = 1,915 weights; 32 x 4,096 x 16,384 B =
# 2,048 cache; one page of 1,024; 126; 32 x (6.875 + 4.125) + 96 = 448. Sum 5,561. Measured: 5,600.

# %%
anchor = Deployment(model="llama-3.1-8b", system="inf2.48xlarge", mapping=tm.Mapping(tp=8), stack=printed.ANCHOR_STACK)
at_anchor = anchor.fit(32, 4096)
by_hand = 15317 / 8 + 32 * 4096 * 16384 / MIB + 1024 + 126 + 448
f"{float(at_anchor.total_bytes) / MIB:,.0f} MiB, by hand {by_hand:,.0f}"

# %%
held = tables.by_kind(d, batch, context)
elsewhere = f"; others {held[held['rank'] == tables.ORDINARY].share.sum():.0%}"
charts.stacks(
    held,
    x="rank",
    y="stored_bytes",
    color="kind",
    limit="capacity_bytes",
    caption=f"The first rank fills {float(fitted.first_rank_total_bytes / fitted.first_rank_capacity_bytes):.0%} of its memory"
    if fitted.valid
    else f"The first rank {tables.verdict(fitted)}",
    under=f"{m.id} on {spec.id}, TP {tp}{elsewhere if fitted.valid else ''}; the stroke is all there is",
)

# %%
charts.table(held, caption="What a rank stores, by kind", download="kinds")

# %% [markdown]
# ## How many cores make a rank
#
# LNC joins physical cores to one rank. The chips stay the same, so TP falls as LNC grows. What is stored once a rank (pages, buffers,
# rings, code) is then stored less often, and a cache that heads cannot divide is copied less often.

# %%
cut = tables.by_lnc(d, batch, context)
first = cut[cut["rank"] == tables.FIRST]
verdicts = first.groupby("ranks", sort=False).fits.first()
charts.stacks(
    first,
    x="ranks",
    y="stored_bytes",
    color="kind",
    limit="capacity_bytes",
    caption=f"{int(verdicts.sum())} of {tm.units.counted(len(verdicts), 'cut')} of the chips fit"
    if verdicts.any()
    else "No cut of the chips into ranks fits",
    under="first rank of the same chips: "
    + "; ".join(f"{name} {'fits' if good else 'does not fit'}" for name, good in verdicts.items())
    + ("; at LNC 1 the stroke is what its neighbour leaves of a bank" if spec.chip.hbm_bank_cores > 1 else ""),
)

# %%
to_come = [site(spec, size).description for size in spec.chip.lnc_announced]
charts.table(
    cut, caption="; ".join(["The same chips at each LNC, and whether each rank fits", *to_come]), download="lnc"
)

# %% [markdown]
# ## The largest batch, the longest context
#
# What weights and overhead leave is cache, and batch times context is what it holds: $B\,C \le n\,(M - F/s - m_0)/c$, until the heads
# stop dividing by $n$ or a window is full.

# %%
batches = sizing.largest_batch(d, contexts, degrees)
here = batches[(batches.tp == tp) & (batches.batch > 0)]
charts.lines(
    batches[batches.batch > 0].assign(tp=lambda one: one.tp.map("TP {:.0f}".format)),
    x="context",
    y="batch",
    color="tp",
    log_x=True,
    log_y=True,
    caption=f"TP {tp} holds {here.batch.iloc[0]:,.0f} sequences of {here.context.iloc[0]:,.0f} tokens"
    if len(here)
    else f"TP {tp} holds none",
    under=f"{m.id} in {precision.upper()} on {spec.id}"
    + (f"; of {here.context.iloc[-1]:,.0f} tokens {here.batch.iloc[-1]:,.0f}" if len(here) else ""),
) if (batches.batch > 0).any() else Markdown(
    f"**{m.id} fits at none of TP {', '.join(map(str, degrees))}**, whatever the batch."
)

# %%
charts.table(batches, caption="The largest batch by TP and context; 0 does not fit", download="batches")

# %%
longest = sizing.longest_context(d, BATCHES, degrees)
charts.lines(
    longest[longest.context > 0].assign(tp=lambda one: one.tp.map("TP {:.0f}".format)),
    x="batch",
    y="context",
    color="tp",
    log_x=True,
    log_y=True,
    caption="The longest context shrinks as the batch grows",
    under=f"{m.id} itself ends at {m.max_context:,} tokens",
) if (longest.context > 0).any() else Markdown("**No context fits at any of these TP.**")

# %%
charts.table(
    longest, caption="The longest context by TP and batch, a prompt in one piece; 0 does not fit", download="contexts"
)

# %% [markdown]
# ### Systems and formats

# %%
others = [name for name in FAMILY if tm.system(name).chip.id != spec.chip.id]
formats = list(dict.fromkeys([precision, "fp8", "fp8-kvfp8"]))
systems = sizing.across(d, [spec.id, *others], formats, contexts)
at = (
    systems[(systems.context == contexts[contexts <= context][-1]) & (systems.system == spec.id)]
    .set_index("precision")
    .batch
)
charts.lines(
    systems[systems.batch > 0],
    x="context",
    y="batch",
    color="system",
    shape="precision",
    log_x=True,
    log_y=True,
    caption=f"{spec.id} holds {tm.units.counted(at.max(), 'sequence')} in {at.idxmax().upper()}"
    if at.max() > 0
    else f"{spec.id} holds no such sequence",
    under=f"{contexts[contexts <= context][-1]:,.0f} tokens each, on as many chips: "
    + ", ".join(f"{count:,.0f} in {name.upper()}" for name, count in at.items()),
) if (systems.batch > 0).any() else Markdown(f"**No system of these holds a sequence of {m.id}** on as many chips.")

# %%
charts.table(
    systems,
    caption="The largest batch by system and format; formats store less, whatever the chip computes in",
    download="systems",
)

# %% [markdown]
# ## The fewest chips
#
# At least $\lceil (W + B\,c\,C)/M_{chip} \rceil$ chips; more where powers of two, copies and overhead ask for them.
#
# **By hand.** Llama-3.1-405B in BF16 and 16 sequences of 8,192 tokens: 811.7 GB + 16 x 8,192 x 516,096 B = 67.6 GB are 879 GB; Trainium2 has
# 103.1 GB: 8.5, so 9 chips at least.

# %%
filled = (tm.model("llama-3.1-405b").weight_bytes("bf16") + 16 * 8192 * 516096) / tm.chip("trainium2").hbm_bytes
f"{filled:.1f} chips"

# %%
models = list(dict.fromkeys(m if name == m.id else name for name in [*LARGE, m.id]))
fewest = sizing.smallest(models, FAMILY, ["bf16", "fp8", "w4a8"], batch, context)
shown = fewest[(fewest.precision == "bf16") & fewest.chips.notna()]
most = shown.loc[shown.chips.idxmax()] if len(shown) else None
charts.ranges(
    shown.assign(chips_low=shown.floor_chips, chips_high=shown.chips),
    x="chips",
    y="model",
    color="system",
    log_x=True,
    caption=f"{most.model} takes up to {tm.units.counted(most.chips, 'chip')}",
    under=f"{tm.units.counted(batch, 'sequence')} of {context:,} tokens in BF16, that many on {most.system}; a bar starts where bytes alone would fit",
) if len(shown) else Markdown("**None of these models fits any of these systems in BF16.**")

# %%
charts.table(
    fewest,
    caption="The fewest chips by format; a dash does not fit. TP, and EP for experts, in powers of two",
    download="fewest-chips",
)

# %% [markdown]
# ## Graphs and buckets
#
# Neuron compiles a graph for each shape: one for prompts and one for decode steps of each bucket, which are powers of two. A length in
# between is padded. The scratchpad is shared by all graphs and as large as the largest needs, in whole pages; cache and weights are
# shared too. Code and rings are each graph's own. What was measured is one set of graphs, whose number is not published: the column
# marked as estimate is what it would be if every pair of graphs needed as much.

# %%
made = tables.buckets(d, batch, context)
charts.table(
    made,
    caption=f"Buckets up to {context:,}: what a length may be padded, what a decode step reads, and what graphs may store (estimate)",
    download="buckets",
)

# %%
pads = tables.scratchpads(d, 128.0 * 2.0 ** np.arange(0, np.floor(np.log2(m.max_context / 128)) + 1, 0.25), [tp])
page = float(d.fit(1, 128, 128).scratchpad_bytes)
charts.lines(
    pads,
    x="input_tokens",
    y="scratchpad_bytes",
    color="held",
    log_x=True,
    caption=f"The shortest prompt takes {format_quantity(page, 'B', 3)} too",
    under=f"TP {tp}: a page is taken whole; long prompts in one piece need more",
)

# %% [markdown]
# ## What surprises on Neuron

# %%
copied = tables.copies(d, degrees, batch, context)
cached = copied[copied.part == "cache"].set_index("tp").ratio
charts.lines(
    copied.rename(columns={"ratio": "stored_over_needed"}),
    x="tp",
    y="stored_over_needed",
    color="part",
    log_x=True,
    caption=f"At TP {cached.index[-1]} the cache is stored {cached.iloc[-1]:.0f} times",
    under="all ranks together over what the model needs once",
) if cached.max() > 1.005 else Markdown(f"Up to TP {cached.index[-1]} nothing of the cache is stored twice.")

# %%
charts.table(copied, caption="Copies that tensor parallelism makes", download="copies")

# %%
budget = printed.cache_budgets(d, context)
charts.table(budget, caption=f"Cache of a rank, and sequences of {context:,} tokens that it holds", download="budget")

# %% tags=["hide-input"]
cap, runtime_page, microcode = (
    printed.rule(name) for name in ("kv_cap_share", "scratchpad_page_bytes", "microcode_bytes_per_core")
)
allowed = budget.set_index("policy").sequences
Markdown(
    f"""
* **Heads do not divide for ever.** Where TP exceeds the key heads, each is copied; a latent (MLA) is on every rank from the start. More
  ranks then add no room for cache: use EP or DP instead, which share out sequences.
* **The first rank is fuller.** The runtime keeps {format_quantity(d.e.first_rank_bytes, "B", 3)} more of buffers, rings and code there. One library also
  leaves the tables of the vocabulary whole on it. It decides.
* **A rank's memory ends at its own.** The compiler refuses a graph that does not fit, however empty other ranks are. At LNC 1 two
  cores share a bank, and one may take what the other counted on: half of it each is a share, not a limit.
* **The cache's length is compiled.** So vLLM Neuron gives it no more than {cap:.0%} of the budget by default: {tm.units.counted(allowed.iloc[1], "sequence")} here
  {f"instead of {allowed.iloc[0]:,.0f}" if allowed.iloc[1] < allowed.iloc[0] else "with it and without"}.
* **Scratchpad comes in pages**: {format_quantity(runtime_page, "B", 3)} by the runtime's default, and {format_quantity(page, "B", 4)} here. A variable larger
  than a page gets memory of its own beside it.
* **Each physical core loads {format_quantity(microcode, "B", 3)} of microcode** before any of yours.
"""
)

# %% [markdown]
# ## Check: measured footprints, runs that fitted, capacities of others
#
# **A measured footprint.** One run has been published with the memory of each kind: Llama-3.1-8B on 8 ranks of inf2.48xlarge. Weights and
# cache come from the model's shapes; page, buffers, rings and code are constants *taken from these rows*, so their agreement says nothing.

# %%
measured = printed.footprint()
ordinary, rank0 = (printed.in_mib(measured, rank).set_index("part") for rank in ("ranks 1-7", "rank 0"))
assert ordinary.error[["weights", "KV cache", "total HBM"]].abs().max() < 0.02
charts.table(
    ordinary.reset_index(),
    caption="Ordinary ranks: each row, its error, and what the prediction stands on",
    download="footprint",
)

# %%
charts.table(
    rank0.drop(columns="basis").reset_index(),
    caption="Rank 0 against an ordinary rank, part by part; its total has the first rank's extra",
    download="footprint-first",
)

# %% tags=["hide-input"]
llama = tm.model("llama-3.1-8b")
unexplained = (rank0["measured [MiB]"].weights - ordinary["measured [MiB]"].weights) * MIB
whole = 2 * llama.vocab_size * llama.hidden_size * 2 * (1 - 1 / 8)
Markdown(
    f"Weights {ordinary.error.weights:+.1%}, cache {ordinary.error['KV cache']:+.1%}, all of an ordinary rank {ordinary.error['total HBM']:+.1%}. Of rank 0's "
    f"extra weights, {format_quantity(unexplained, 'B', 3)}, whole tables and head explain {whole / unexplained:.0%}: the page says that this library "
    "does not cut them there, and the prediction for its stack holds them, so that they grow with the vocabulary of another model. Rows that do "
    f"not count: {(measured.use != printed.COUNTS).sum()} of {len(measured)}, with their reasons in the tables."
)

# %% [markdown]
# **What ran must fit.** Every published run on Trainium and Inferentia whose model and length are known did fit. No constant was fitted to
# that.

# %%
ran = printed.what_ran()
assert (ran.verdict == printed.FITS).all()
ran = ran.assign(fill=ran.first_rank_total_bytes / ran.first_rank_capacity_bytes)
ran = ran.sort_values("fill", ascending=False, kind="stable")
charts.table(ran.head(12), caption=f"The fullest of {len(ran)} runs that fitted", download="fullest")

# %% tags=["hide-input"]
sharing = ran[(ran.first_rank_total_bytes > ran.capacity_bytes) & (ran.verdict == printed.FITS)]
Markdown(
    f"{(ran.verdict == printed.FITS).sum()} of {len(ran)} fit. The check only bites where memory is nearly full: {(ran.fill > 0.7).sum()} runs are "
    f"predicted to fill more than 70 %. {len(sharing)} ({', '.join(sharing.model)}) {'fits' if len(sharing) == 1 else 'fit'} because ranks at LNC 1 share "
    "a bank: half of it would not do. Two rows of OPT are not among them, since their pages contradict themselves: the weights or the cache "
    "would take several times the memory of the cores that they name."
)

# %%
charts.table(ran, caption="Every published run, and the memory that it should take", download="runs", file_only=True)

# %% [markdown]
# **Capacities that others solved.** The same source extrapolates its measurement to the longest context for each batch, with a matrix of
# scores, heads x prompt x context x 2 B, written to the scratchpad. `tm.memory_fit` counts none, as a flash kernel writes none. With
# the matrix added both agree; without it, prompts in one piece go further than the source says.

# %%
solved = printed.capacities()
sound = solved[(solved.prefill == "in chunks") | (solved.note == "")]
assert sound.error_with_scores.abs().max() < 0.025
both = solved.melt(["prefill", "batch"], ["printed", "computed", "with_scores"], "what", "context")
charts.lines(
    both.replace({"what": {"computed": "ours", "with_scores": "ours, scores written out", "printed": "the source"}}),
    x="batch",
    y="context",
    color="what",
    shape="prefill",
    log_x=True,
    log_y=True,
    caption=f"With scores written out within {sound.error_with_scores.abs().max():.1%} of the source",
    under="Llama-3.1-8B on 8 ranks, where the source's own formula holds",
)

# %%
charts.table(
    solved,
    caption="The longest context by batch: printed and computed; notes name rows that do not hold",
    download="capacities",
)

# %% [markdown]
# ## What moves the answer
#
# * **The cache's format** doubles what fits once weights are small against memory.
# * **TP beyond the key heads** divides weights and no cache.
# * **The first rank's extra** is one measurement of one model; a run that only it denies may fit.
# * **The scratchpad of a large expert model** is more than its activations: Kimi-K2.5 took 3 to 5.5 GiB for one sequence. No law of it is
#   known, and a page is all that is counted.
# * **A kernel that writes scores** turns the longest prompt from linear to quadratic memory.
#
# ## What is left out
#
# Fragments between allocations, profiling buffers (about 2 GB while a profile is taken), draft models, adapters, prefix caches beyond the
# batch, caches offloaded to the host. Windows are stored no longer than they are; software that stores the whole context needs more. Code
# and rings are taken in proportion to layers, whatever LNC, batch or number of graphs. Where weights and cache come from is chapter 8; how
# fast what fits decodes is chapter 10.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Size the first rank, not the mean: weights and cache divide only as far as heads do, and the overhead does not divide at all.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Does Llama-3.1-8B in BF16 fit on one Trainium1 chip (two ranks of 16 GiB), one sequence of 8,192 tokens?
#
# ```{admonition} Answer
# :class: dropdown
# Weights 7.48 GiB a rank, cache 0.5, a page 0.5, buffers, rings and code 0.56: 9.04 GiB, and 9.64 for the first. It fits; some 13 such
# sequences do.
# ```
#
# **2.** What does Llama-3.1-70B gain in room for cache from TP 64 over TP 32 on ranks of 24 GiB, with 8 key heads?
#
# ```{admonition} Answer
# :class: dropdown
# Each rank stores one key head at either, so a sequence takes the same bytes of it. Only weights shrink, from 4.3 to 2.3 GiB: room grows from
# 17.4 to 19.4 GiB on the first rank, 12 % for twice the chips.
# ```
#
# **3.** How many chips of Trainium3 (144 GiB) do the weights of DeepSeek-V3 need at least in BF16, in MXFP8, in W4A8?
#
# ```{admonition} Answer
# :class: dropdown
# 1,342, 694 and 359 GB over 154.6 GB: 9, 5 and 3.
# ```
#
# **4.** A page is 512 MiB and a prompt's activations take 327 MB at 8,192 tokens. From which prompt on is a second page taken?
#
# ```{admonition} Answer
# :class: dropdown
# Activations are proportional: 8,192 x 537 / 327 = 13,450 tokens.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
memory = used.entity.isin([tm.system(name).chip.id for name in [*FAMILY, spec.id]]) & (used.quantity == "hbm_bytes")
stack = used.quantity.isin(
    ["scratchpad_page_bytes", "collective_buffer_bytes", "ring_bytes_per_layer", "first_rank_bytes", "memory_share"]
)
extra = ["vllm-neuron-memory", "sdk-device-memory"]
charts.table(
    common.bibliography([*used[memory | stack].source, *extra]),
    caption="Sources of the figures in this chapter",
    download="sources",
)
