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
model: str = "llama-3.3-70b"
system: str = "trn2.48xlarge"
precision: str = "fp8"
batch: int = 4
context: int = 4608
tp: int = 0
ep: int = 0
lnc: int = 0

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import memory_fit as tables
from trnbook.chapters import memory_fit_printed as printed
from trnbook.drawings import flows
from trnbook.shared import case

m, spec = tables.subject(model, context), tm.system(system)
guard.one_of((0, *spec.chip.lnc_choices, *spec.chip.lnc_announced), lnc=lnc)
guard.within(0, spec.domain_chips * spec.chip.cores / spec.chip.logical(lnc or None), tp=tp, ep=ep)
guard.within(1, 1e6, batch=batch)
guard.computes(spec.chip, precision=precision)
mappings = tables.mappings(spec, lnc or None, tp, ep)
ask = {"batch": batch, "context": context, "precision": precision}

# %% tags=["hide-input"]
fit = tm.memory_fit(m, spec, mappings, **ask)
place = tables.chosen(mappings, fit)
mapping, question = tables.at(mappings, place), f"of `{m.id}` in {precision.upper()}"
Markdown(tables.answer(mappings, fit, place, question))

# %% tags=["hide-input"]
charts.stacks(
    tables.by_ranks(mappings, fit),
    x="mapping",
    y="stored_bytes",
    color="kind",
    limit="capacity_bytes",
    caption="More ranks shrink the weights more than the rest",
    under=f"first rank, {tm.units.counted(batch, 'user')} of {context:,} tokens; the grey mark is what a rank has",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book. The last line is this chapter's: the bytes that a chip stores for the case.

# %% tags=["hide-input"]
case.table("memory-fit")

# %% [markdown]
# ## Why the question comes first
#
# A deployment that does not fit has neither speed nor cost. A chip cannot borrow memory from its neighbour, so HBM, the memory beside each
# chip, decides how many chips share a model, how many users share those chips, and how long their conversations may be. Dividing all bytes
# by all memory often gives a wrong answer.
#
# ## The idea: the fullest rank decides
#
# **Ranks** are logical cores that each see their own part of the memory; by default Trainium2 and Trainium3 join two physical cores into
# one. Some bytes can be shared out among ranks, and some cannot:
#
# * **Weights** are cut into almost as many equal pieces as there are ranks.
# * **The KV cache** keeps a key and a value for every token of every user, in every layer. It is cut by *heads*, of which a model has few. Once
#   there is one per rank, further ranks hold copies.
# * **Scratchpad, buffers and code** are each rank's own, and the first rank has more of them than the others.
#
# The drawing shows a dense model whose eight heads of keys are spread over 64 ranks.

# %%
flows.where_a_byte_goes("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=64), batch=16, context=4608, precision="fp8")

# %% [markdown]
# ## The equations
#
# Ranks share work in two ways. **TP**, tensor parallelism, cuts every matrix into $n_t$ pieces. **EP**, expert parallelism, makes $n_e$
# groups. They share out the experts of a mixture, and the users too, while each group keeps all of the attention weights. With $W_x$ for the
# stored bytes of the experts and $W_s$ for those that every token uses, a rank holds
#
# $$ W_r = \frac{W_s}{n_t} + \frac{W_x}{n_t\,n_e} . $$
#
# A token of the cache takes two vectors of $d$ elements, with $s$ bytes each, for every head of keys $n_{kv}$ in every layer $l$, and a rank
# cannot hold less than one head. DeepSeek's latent attention (MLA) keeps one compressed vector of $d_c$ elements for all heads, and $d_r$
# elements for the position. There is nothing to cut, so every rank of a group holds all of it:
#
# $$ c_r = 2\,s\,l\,d\,\left\lceil \frac{n_{kv}}{n_t} \right\rceil \quad\text{with heads of keys}, \qquad c_r = s\,l\,(d_c + d_r) \quad\text{in MLA}. $$
#
# A batch of $B$ users with contexts of $C$ tokens is divided among the groups, so its cache takes $K_r = c_r\,C\,\lceil B/n_e \rceil$. Reading a
# prompt of $T$ tokens needs room for the widest matrix product $f$, which TP cuts, and for two vectors of the model's width $h$, which it
# does not. The runtime rounds this *scratchpad* up to pages of $P$ bytes:
#
# $$ A_r = P \left\lceil \frac{2\,T\,(f/n_t + 2h)}{P} \right\rceil . $$
#
# With five constants of the runtime, all this must fit into the memory $M$ of a rank. Where a rank is one physical core (LNC 1), two
# neighbours share a bank of memory. In MiB, the constants of `vllm-neuron-2026` are:
#
# | page $P$ | buffers for exchanges $a$ | DMA descriptors per layer $r$ | code per layer $x$ | microcode of each of $k$ cores $y$ | more on the first rank $F$ |
# |---|---|---|---|---|---|
# | 512 | 126 | 6.875 | 4.125 | 96 | 610 |
#
# $$ m = W_r + K_r + A_r + a + l\,(r + x) + k\,y, \qquad m \le M, \qquad m + F \le M \text{ on the first rank.} $$
#
# ## An estimate by hand: our line of the running case
#
# The case serves Llama on four ranks of one Trainium2 chip, each with 24 GiB. In FP8 its matrices take one byte per parameter, and the table
# of words and the head two, which makes 72.7 GB. A token of the cache takes $2 \times 2 \times 80 \times 8 \times 128 = 327{,}680$ bytes on the
# four ranks, and there are four users with 4,608 tokens. A prompt needs one page. Buffers, descriptors and code are
# $126 + 80 \times 11 + 2 \times 96 = 1{,}198$ MiB. In GiB per rank:
#
# $$ \underbrace{16.9}_{\text{weights}} + \underbrace{1.4}_{\text{cache}} + \underbrace{0.5}_{\text{page}} + \underbrace{1.2}_{\text{buffers, code}}
#    = 20.0, \qquad 20.0 + 0.6 = 20.6 \text{ on the first rank.} $$
#
# Four such ranks make a chip, which stores 80 GiB, as the table says. In the next table bytes are per chip and users per replica.

# %%
GIB, MIB = 2**30, 2**20
weights, cache = (70_553_706_496 + 2 * 128_256 * 8192) / 4, 4 * 4608 * 327_680 / 4
beside = (126 + 80 * 11 + 2 * 96) * MIB
runtime = tm.efficiencies("trainium2", "vllm-neuron-2026")
assert (runtime.ring_bytes_per_layer, runtime.code_bytes_per_layer) == (6.875 * MIB, 4.125 * MIB)
assert (runtime.scratchpad_page_bytes, runtime.first_rank_bytes) == (512 * MIB, 610 * MIB)
assert [f"{x / GIB:.1f}" for x in (weights, cache, beside)] == ["16.9", "1.4", "1.2"]


def of_the_case(name, where):
    plan = case.choice(name, where)
    sizes = {"batch": plan.batch, "context": 4608, "precision": plan.precision}
    fit = tm.memory_fit(name, where, plan.degrees, **sizes, efficiencies=plan.stack)
    return tables.on_a_chip(plan, fit)


chips = pd.DataFrame([of_the_case(name, where) for name in case.PROMISES for where in case.SYSTEMS])
assert abs(chips.stored_bytes[0] / 4 - (weights + cache + GIB / 2 + beside)) < 10 * MIB
charts.table(chips, caption="Weights fill the chips of the case, the cache hardly", download="case-memory")

# %% tags=["hide-input"]
line = next(one for one in case.LINES if one.chapter == "memory-fit")
lines = [case.value(line, name, where) for name in case.PROMISES for where in case.SYSTEMS]
assert np.allclose(chips.stored_bytes, lines, rtol=1e-9)
assert (chips.more_users > 0).all()
assert f"{tm.model('llama-3.2-1b').weight_bytes('bf16') / 4 / GIB:.1f}" == "0.6"

# %% [markdown]
# By the middle estimate memory does not limit the case. Every chip has room for more users, but they would make each step longer and break
# the promise to the others. Two things may change this for Llama on Trainium2: the range at the head of this page goes beyond the memory of
# a rank, and the draft model of its software, Llama-3.2-1B, is not counted. In BF16 it would add 0.6 GiB per rank. The chips of DeepSeek together hold much more than one copy of it, since every group keeps all of the attention weights.
#
# ## Which mapping holds it?
#
# Does Qwen3's largest model (`qwen3-235b-a22b`) fit on one trn2.48xlarge in FP8, with eight users of 65,536 tokens each? Weights and caches
# come to 337 GB, and the instance has five times as much. Yet its 64 ranks do not hold the model with TP alone, because they are then one
# replica that serves all eight users. The model has four heads of keys, so the ranks would store the whole cache sixteen times:
#
# $$ K_r = 8 \times 65{,}536 \times \frac{192{,}512\ \text{B}}{4} = 25.2\ \text{GB} = 23.5\ \text{GiB of the } 24 \text{ per rank.} $$
#
# TP 16 fits if each of four replicas serves two users, as in [Which system should I use?](which-system.ipynb).
# EP avoids the copies inside one replica, since each group of ranks serves its own users. `tm.memory_fit` takes arrays, so one call tries
# every mapping of TP and EP. A second call asks how fast each user reads. Put your own model in the last line.


# %%
def which(model, where, **ask):
    model, where = tables.subject(model, ask["context"]), tm.system(where)
    every = tables.mappings(where)  # of TP and EP in powers of two
    fit = tm.memory_fit(model, where, every, **ask)
    step = tm.decode_step(model, where, every, **ask)
    return tables.that_hold(every, fit, step)


held = which("qwen3-235b-a22b", "trn2.48xlarge", batch=8, context=65_536, precision="fp8")
charts.table(held.head(6), caption="Yes, on half of the instance or all of it", download="qwen3")

# %% [markdown]
# `TP 4 x EP 8` is the natural choice: one user per group of ranks, and one head of keys per rank. The model's configuration ends at 40,960
# tokens. [Its publisher](https://huggingface.co/Qwen/Qwen3-235B-A22B) stretches the position encoding, which adds no bytes. This chapter
# does the same for every model, up to four times the context that its configuration names.
#
# ## How many users, how long a context?
#
# What weights and overhead $m_0$ leave is room for the cache, in which users and tokens count alike. The cell below asks with one user
# per group and with two; the difference is what a user takes:
#
# $$ B \;\le\; n_e \left\lfloor \frac{M - F - m_0}{c_r\,C} \right\rfloor . $$
#
# %%
contexts = np.exp2(np.arange(9, np.floor(np.log2(m.max_context)) + 1))
around = tables.more_ranks(mapping, spec)
groups = around.ep
one = tm.memory_fit(m, spec, around, batch=groups, context=contexts, precision=precision)
two = tm.memory_fit(m, spec, around, batch=2 * groups, context=contexts, precision=precision)
tables.largest_batches(around, one, two, contexts, f"{m.id} in {precision.upper()} on {spec.name}")

# %% [markdown]
# A line bends where a long prompt takes more pages. Doubling TP more than doubles the batch as long as it divides the weights *and* the heads.
# Once each rank has a single head of keys, more TP divides only the weights, and the lines draw closer together.
#
# ## Check: a measured footprint, and what ran
#
# [Hugging Face](https://github.com/huggingface/optimum-neuron) published one run with the memory of each part: Llama with eight billion
# parameters on eight ranks of Inferentia2. Weights and cache come from the model's shapes. Page, buffers and code are constants *taken from
# this run*, so their agreement proves nothing. The first rank held twice the weights of the others, because that library keeps the tables of
# the vocabulary whole there. We carry the surplus as a constant, which may be wrong for another model.
#
# A second page is a real test, since no constant was fitted to it. [A pull request](https://github.com/aws-neuron/neuronx-distributed-inference/pull/145)
# prints what a rank of Trainium2 held with Kimi-K2.5, a mixture of experts, at three lengths.
#
# A third check is one-sided. Every published run on Trainium or Inferentia did fit, so the model must not call any of them too large. A
# model that always says "it fits" would pass as well, because failed runs are hardly ever published.

# %% tags=["hide-input"]
ran = {"batch": 32, "context": 4096, "efficiencies": printed.ANCHOR_STACK}
anchor = tm.memory_fit("llama-3.1-8b", "inf2.48xlarge", tm.Mapping(tp=8), **ran)
measured = printed.footprint().query("rank == 'ranks 1-7'").set_index("part").measured_bytes
assert abs(anchor.weight_bytes / measured["weights"] - 1) < 0.02
theirs, ours = measured["total HBM"] / MIB, anchor.total_bytes / MIB
Markdown(f"An ordinary rank of Inferentia2 stored **{theirs:,.0f} MiB**; we give {ours:,.0f}.")

# %%
mixture = printed.mixtures()
long = {"batch": 1, "context": mixture.context.to_numpy(), "precision": tm.Precision(experts="fp8")}
kimi = tm.memory_fit("kimi-k2.5", "trn2.48xlarge", tm.Mapping(tp=64), **long)
mixture = mixture.assign(**kimi.banded("total_bytes"))
charts.table(mixture, caption="A large mixture stores more than we predict", download="mixture")

# %% [markdown]
# With the context the measured bytes grow from 20.9 to 23.4 GiB. Ours stay at 19 GiB. So we miss something that large mixtures store, and
# the middle estimate is too low for them. The range holds all three rows.

# %% tags=["hide-input"]
in_gib = mixture[["measured_bytes", "total_bytes"]] / GIB
assert [f"{one:.1f}" for one in in_gib.measured_bytes.iloc[[0, -1]]] == ["20.9", "23.4"]
assert (in_gib.total_bytes.round() == 19).all()
assert mixture.measured_bytes.between(mixture.total_bytes_low, mixture.total_bytes_high).all()
two_users = {"batch": 2, "context": 65_536, "precision": "fp8"}
assert tm.memory_fit(tables.subject("qwen3-235b-a22b", 65_536), "trn2.48xlarge", tm.Mapping(tp=16), **two_users).valid
runs = printed.what_ran()
assert (runs.verdict == printed.FITS).all()
full = (runs.first_rank_total_bytes > 0.9 * runs.first_rank_capacity_bytes).sum()
Markdown(
    f"Of **{len(runs)} published runs** the model calls none too large. Only {full} fill over 90% of a rank, and they carry this check."
)

# %% [markdown]
# ## What moves the answer, and what is left out
#
# * **The format of the cache.** FP8 instead of BF16 halves it; ask with `precision="fp8-kvfp8"`.
# * **A cap by the server.** [vLLM Neuron](https://github.com/aws-neuron/aws-neuron-sdk/blob/a3247f5b8c305f9b70a19993acb306122e736eec/vllm-neuron/docs/design/vllm/determine_available_memory_design.md)
#   by default gives the cache at most 30% of a rank's memory. It can be raised.
# * **Prompts read together** take more pages. One at a time is assumed; the argument `prompts` asks for more.
# * **Left out** are the draft models of speculative decoding, fragments between allocations, adapters and shared prefixes, and what
#   large mixtures were seen to put into the scratchpad beyond their activations.
#
# [How long does training take?](training.ipynb) adds gradients and optimizer states.

# %% tags=["hide-input"]
assert printed.rule("kv_cap_share") == 0.3

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Size the fullest rank and not the mean. Weights divide among all ranks, the cache only among heads and groups, and the overhead not at all.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Does `llama-3.1-8b` in BF16 fit on one Trainium1 chip with one user of 8,192 tokens? The chip has two ranks of 16 GiB.
#
# ```{admonition} Answer
# :class: dropdown
# Weights take 7.5 GiB per rank. The cache and a page take half a GiB each, and so do buffers and code. The first rank stores 9.6 GiB, so it fits.
# ```
#
# **2.** A model has eight heads of keys and 141 GB of weights. Ranks have 24 GiB. How much more room for its cache gives TP 64 than TP 32?
#
# ```{admonition} Answer
# :class: dropdown
# Each rank stores one head either way, so a user takes the same bytes of it. Only the weights shrink, from $4.1$ to $2.05$ GiB per
# rank. The room of about 20 GiB grows by two, or 10%, for twice the chips.
# ```
#
# **3.** How many Trainium3 chips of 144 GiB do the weights of DeepSeek-V3 need at least, in BF16 and in MXFP8?
#
# ```{admonition} Answer
# :class: dropdown
# They take 1,342 and 694 GB. A chip has 154.6 GB: nine chips, or five.
# ```

# %% [markdown]
# ## Evidence

# %%
every = which(m, system, batch=batch, context=context, precision=precision)
charts.table(every, caption=f"Every mapping that holds {m.id}, at the default LNC", download="mappings", file_only=True)

# %% tags=["hide-input"]
at_one = tm.memory_fit("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=2), batch=1, context=8192)
assert f"{at_one.first_rank_total_bytes / GIB:.1f}" == "9.6"
qwen, long = tm.model("qwen3-235b-a22b"), 8 * 65_536 * 192_512
assert round((qwen.weight_bytes("fp8") + long) / 1e9) == 337
assert f"{long / 4 / 1e9:.1f} {long / 4 / GIB:.1f}" == "25.2 23.5"
charts.table(printed.footprint(), caption="The measured footprint, part by part", download="footprint", file_only=True)

# %% tags=["hide-input"]
fullest = runs.assign(share=runs.first_rank_total_bytes / runs.first_rank_capacity_bytes)
fullest = fullest.sort_values("share", ascending=False, kind="stable")
charts.table(fullest, caption="Every published run, the fullest first", download="runs", file_only=True)

# %% tags=["hide-input"]
charts.table(printed.by_fill(runs), caption="Published runs by what they fill", download="fill", file_only=True)

# %% [markdown]
# The source of the footprint also solved for the longest context per batch. It counts a matrix of attention scores that its kernel writes out,
# which a flash kernel does not. With that matrix both agree.

# %%
solved = printed.capacities()
lengths = np.arange(128.0, 131_072 + 1, 128)
sizes = {"batch": solved.batch.to_numpy()[:, None], "input_tokens": np.minimum(solved[["chunk"]].to_numpy(), lengths)}
longest = tm.memory_fit(
    "llama-3.1-8b", "inf2.48xlarge", tm.Mapping(tp=8), context=lengths, **sizes, efficiencies=printed.ANCHOR_STACK
)
solved = printed.with_longest(solved, lengths, longest)
assert solved[solved.sound].error_with_scores.abs().max() < 0.025
charts.table(
    solved, caption="The longest context by batch: printed and computed", download="capacities", file_only=True
)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
memory = (used.quantity == "hbm_bytes") & used.entity.isin([spec.chip.id, "trainium2", "trainium3", "inferentia2"])
stack = used.quantity.isin(["scratchpad_page_bytes", "microcode_bytes_per_core", "first_rank_bytes"])
sources = [*used[memory | stack].source, "vllm-neuron-memory", "sdk-device-memory", "optimum-neuron"]
charts.table(common.bibliography(sources), caption="Sources of the figures in this chapter", download="sources")
