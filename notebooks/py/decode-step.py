# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
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
stack: str = "public"
tp: int = 64
ep: int = 1
batch: int = 16
input_tokens: int = 3584
output_tokens: int = 512

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import decode_step as tables
from trnbook.shared import case, ledger, software_kinds
from trnmodel.catalog.stacks import KINDS
from trnmodel.evidence import tables as evidence
from trnmodel.steps.deployment import Deployment
from trnmodel.units import GB, MS, counted, format_digits, format_quantity, format_within

m, spec = tm.model(model), tm.system(system)
guard.neuroncore(system=spec)
guard.computes(spec.chip, precision=precision)
guard.software(spec.chip, stack=stack)
guard.generates(model=m)
guard.within(1, 1e6, tp=tp, ep=ep, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
context = input_tokens + output_tokens
guard.spans(context, model=m)
mapping, word = tm.Mapping(tp=tp, ep=ep), KINDS.get(stack, stack)
ours = Deployment(model=m, system=spec.id, mapping=mapping, precision=precision, stack=word)
guard.fits(ours, batch, context)
step = ours.decode(batch=batch, context=context, max_context=context)
prompt = ours.prefill(input_tokens=input_tokens, max_context=context)
guard.valid(f"a prefill with tp = {tp}, ep = {ep}, input_tokens = {input_tokens}", prompt)

# %% tags=["hide-input"]
called, used = spec.name, ours.e.id
kind = f"{ours.e.kind} software" + (f" ({used})" if used != ours.e.kind else "")
degrees = f"TP {tp}" + (f", EP {ep}" if ep > 1 else "")
where = f"{m.id} in {precision.upper()}, {degrees} on {called}"
question = f"{where}, {counted(batch, 'sequence')} at a context of {context:,}"
parts = tables.anatomy(ours, batch, context)
others = tables.changes(ours, batch, context, input_tokens)
stacks = others[others.changed.str.endswith("software") & (others.step_s < float(step.time_s))]
rivals = [
    f"{line.changed}, "
    + (
        format_quantity(line.step_s, "s", 3)
        if line.basis == "ideal"
        else format_within(line.step_s, line.step_s_low, line.step_s_high, "s", line.basis)
    )
    for line in stacks.sort_values("step_s", ascending=False, kind="stable").itertuples()
]
first_rank = ours.fit(batch, context)
held = [
    format_quantity(float(x), "B", 3) for x in (first_rank.first_rank_total_bytes, first_rank.first_rank_capacity_bytes)
]
own = parts[(parts.software == used) & (parts.part != "step")].sort_values("time_s", ascending=False, kind="stable")
longest, second = own.iloc[0], own.iloc[1]
users = format_within(step.tokens_per_s_per_user, *step.ends("tokens_per_s_per_user"), "tokens/s")
first_token = format_within(prompt.time_s, *prompt.ends("time_s"), "s", prompt.basis)
Markdown(
    common.card(
        [float(x) for x in (step.time_s, *step.ends("time_s"))],
        f"a decode step of {question}, on {kind}; {users} for each user",
        unit="s",
        mark=str(step.basis),
        rival="; ".join(rivals),
        alone="" if rivals else "nothing is faster than software that loses nothing",
        proof="Check: what was measured",
        more=f"A prompt of {counted(input_tokens, 'token')} has its first token after **{first_token}**. {longest.part.capitalize()} takes longest of "
        f"the step, {format_quantity(longest.time_s, 's', 2)}, then {second.part}, {format_quantity(second.time_s, 's', 2)}; with everything "
        f"overlapped it would be {format_quantity(float(step.lower_s), 's', 3)}, with nothing {format_quantity(float(step.upper_s), 's', 3)}. "
        + ("" if first_rank.valid else f"The first rank, which holds more, does not fit: {held[0]} of {held[1]}. ")
        + f"The step is {step.ground()}, the prefill {prompt.ground()}.\n\n"
        + ledger.rests_on(used),
    )
)

# %%
charts.bars(
    parts[parts.part != "step"],
    x="part",
    y="time_s",
    color="software",
    caption=f"{longest.part.capitalize()} takes {format_quantity(longest.time_s, 's', 2)} of a step of {format_quantity(float(step.time_s), 's', 2)}",
    under=f"{question}; each resource by itself, they overlap",
)

# %%
charts.table(
    parts, caption="One decode step by resource; low and high of a step are its bounds", download="step", file_only=True
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("decode-step")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(tables.symbols(ours), "from"),
    caption=f"What this chapter calls things, for {m.id} on {called}",
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

# %%
example = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64))
big, share = tm.model(example.model), example.e.weight_stream_share
weights, rate = big.weight_bytes_read(1, "bf16"), tm.chip("trainium2").hbm_bytes_per_s / 4
copied = 7 * 2 * big.hidden_size * 1024 * 2 * 80  # 8 KV heads on 64 ranks, each on eight of them
lines = tables.operators(example, 16, 4096)
read_s = lines[~lines.operator.str.contains("attention")].memory_s.sum()
Markdown(
    f"**By hand.** Llama-3.1-70B in BF16 at TP 64 on Trainium2: {weights / GB:.1f} GB / 64 = {weights / 64 / GB:.2f} GB a rank. A quarter of a "
    f"chip reads {rate / GB:.0f} GB/s, of which weights reach {share:.0%}: {weights / 64 / rate / share / MS:.2f} ms. Its 8 KV heads are copied to "
    f"64 ranks, which is {copied / 64 / rate / share / MS:.2f} ms more. In all {(weights + copied) / 64 / rate / share / MS:.2f} ms; the package says "
    f"{read_s / MS:.2f} ms."
)

# %%
charts.table(
    tables.operators(ours, batch, context),
    caption="Operators of a rank, longest first; all-reduces, softmax and overhead belong to none of them",
    download="operators",
)

# %% [markdown]
# ### What the stack loses, and who says so
#
# From the step that loses nothing to the one on this stack, one mechanism after the other:

# %%
if used != "ideal":
    lost = software_kinds.waterfall(
        m, spec, mapping, ["ideal", stack], batch=batch, context=context, max_context=context, precision=precision
    )
    most = lost.iloc[1:].loc[lambda bars: bars.bar_s.idxmax()]
    shown = charts.bars(
        lost.rename(columns={"bar_s": "time_s", "bar_s_low": "time_s_low", "bar_s_high": "time_s_high"}),
        x="mechanism",
        y="time_s",
        caption=f"Most is lost to {most.mechanism}: {format_quantity(most.bar_s, 's', 2)}",
        under=f"{question}; bars add up to {format_quantity(float(step.time_s), 's', 3)}, whiskers are the ranges of the constants",
    )
else:
    shown = Markdown("The stack is the ideal one: it loses nothing.")
shown

# %%
values = tables.efficiency_table(ours.e)
charts.table(
    values,
    caption=f"The {counted(len(values), 'value')} in which {used} differs from the ideal stack, each with range, source and how it is known",
    download="efficiencies",
    file_only=True,
)

# %% [markdown]
# ### The constant of a layer
#
# On Neuron a layer takes longer than its reads, its products and its exchanges explain. The model gives the rest one constant per
# layer, which was fitted on Trainium2. Each bar below is a set of measured steps: their time, less everything else that the model
# gives them, divided by their layers.

# %%
rest = tables.unexplained()
charts.ranges(
    rest,
    x="layer_s",
    y="ranks",
    color="stack",
    caption="A layer's unexplained time does not grow with the ranks",
    under=f"measured decode steps of dense models on Trainium2, {int(rest.steps.sum())} in all; bars hold 80 % of them",
)

# %% [markdown]
# The long bar at four ranks holds two populations. One page prints steps of a 7B model that are two to eight times as long as those
# of the same model on another page, and neither says which kernels ran. No column of the rows decides between them, so the bands of
# such a step hold both.
#
# Three causes can be told apart. Exchanges are not the cause, because the time is there on one rank, where nothing is exchanged.
# Traffic is not, because models of 3,072 and of 8,192 hidden elements have about the same. The host is a part of it, because
# asynchronous steps take about a third away. What remains fits operators that wait for each other on the device. A profile of one
# layer would show it, and no public one exists.
#
# Nobody has published a step of Trainium3 with this software, so the constant of Trainium2 stands in for it. Experts have a
# constant of the same kind. The answer for the running case moves with both:

# %%
rack, today, curves = "trn3-nl72x2-pcie160", tm.efficiencies("trainium3"), []
for times in (0.5, 1.0, 1.5):
    changed = tables.with_layer_constants(today, times)
    for speed in (15, 20, 25, 30, 40, 50, 60):
        asked = tm.Request(4096, 512, speed)
        best = tm.plan("deepseek-v3", asked, rack, precision="fp8", efficiencies=changed).best
        made = best.tokens_per_s_per_chip if best is not None else np.nan
        curves.append((f"{times:g} times Trainium2's", speed, made))

# %%
charts.lines(
    pd.DataFrame(curves, columns=["layer_constants", "tokens_per_s_per_user", "tokens_per_s_per_chip"]).dropna(),
    x="tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="layer_constants",
    caption="Two constants of unknown cause decide the answer on Trainium3",
    under="DeepSeek-V3 in FP8, 4,096 tokens in and 512 out, on the rack of 144 Trainium3 chips with public software",
)

# %% [markdown]
# ## Turning points
#
# Weights are read once however many sequences share them, so compute catches up with memory at a batch of $B = p\,s/(2b)$ for $s$
# bytes a weight, if all weights serve every token. Caches are not shared: a longer context pushes that point away. All-reduces grow
# with the batch as compute does.

# %%
grid = tables.regimes(ours)
turns = tables.turning_points(grid)
near = grid.context[grid.context <= max(context, grid.context.min())].max()
beyond = (grid[grid.software == used].basis == "extrapolated").mean()
charts.regions(
    grid.loc[grid.bound != tables.DOES_NOT_FIT, ["software", "batch", "context", "bound"]],
    x="batch",
    y="context",
    color="bound",
    panel="software",
    caption=tables.takes_over(grid, used, near),
    under=f"{where}; the claim is of {used} at a context of {near:,.0f}; blank does not fit in memory"
    + (f"; {beyond:.0%} of it is extrapolated" if beyond else ""),
)

# %% tags=["hide-input"]
by_hand = tm.chip("trainium2")
Markdown(
    f"**By hand.** Trainium2 in BF16: {format_quantity(by_hand.peak('bf16'), 'FLOP/s', 3)} / {format_quantity(by_hand.hbm_bytes_per_s, 'B/s', 3)} = "
    f"{by_hand.peak('bf16') / by_hand.hbm_bytes_per_s:.0f} FLOP/B. At 2 bytes a weight and 2 FLOP the ideal machine turns at a batch of "
    f"{by_hand.peak('bf16') / by_hand.hbm_bytes_per_s:.0f}, if there were no cache.\n\n"
    "Compute at small batches and long contexts, where it shows, is not TensorE: it is the softmax, which runs on the vector engines 128 rows "
    "at a time and has too few rows to fill them. The network takes over where all-reduces grow beyond what one step of a mesh carries and "
    "are doubled and halved instead."
)

# %%
charts.table(
    turns,
    caption="First batch (powers of two) at which another resource takes longest",
    download="turning-points",
    file_only=True,
)

# %%
charts.table(grid, caption="Every point of the map, with the time of each resource", download="regimes", file_only=True)

# %% [markdown]
# ## Prefill, and the first token
#
# Prefill computes: $t \approx 2 N L/(n\,p\,\eta) + t_{attention} + t_{net} + t_0$. A graph is compiled for powers of two, and a
# prompt is padded to the next one; the first token comes with the end of the prefill.

# %%
body, reached = big.active_params(input_embedding=False) - 128256 * big.hidden_size, example.e.prefill_matmul_share
flop, peak = 2 * body * 4096, 16 * tm.chip("trainium2").peak("bf16")
real = example.prefill(input_tokens=4096)
Markdown(
    f"**By hand.** 4,096 tokens of Llama-3.1-70B on 64 ranks of Trainium2: 2 x {body / 1e9:.1f}e9 x 4,096 = {format_quantity(flop, 'FLOP', 3)} over "
    f"{format_quantity(peak, 'FLOP/s', 3)} x {reached:.0%} is {flop / peak / reached / MS:.0f} ms. The package says {float(real.compute_s) / MS:.0f} ms with "
    f"attention and softmax, and {float(real.time_s) / MS:.0f} ms with all-reduces and what each layer and launch costs."
)

# %%
lengths = np.unique(np.round(np.geomspace(64, max(8192, 2 * input_tokens), 120)))
padded = tables.prompts(ours, lengths[lengths <= (m.max_context or np.inf)])
waste = padded[padded.policy == "compiled bucket"].padding_share.mean()
charts.lines(
    padded,
    x="input_tokens",
    y="time_s",
    color="policy",
    log_x=True,
    caption=f"Prefill goes up in steps: {waste:.0%} is padding" if waste > 0 else "This stack pads no prompt",
    under=where + ("; padding is the mean over these lengths" if waste > 0 else ""),
)

# %%
charts.table(padded, caption="Prefill by length of the prompt", download="prefill", file_only=True)

# %% [markdown]
# The line never falls: at every size an all-reduce takes the fastest of mesh, recursive doubling and halving, and ring.
# AWS prints 1 and 56 MB as the sizes at which its library goes from one to the next.
#
# ### In chunks
#
# A prompt in chunks lets others decode in between. Each chunk launches anew, reads all weights, and attends to what came before:

# %%
cuts = [n for n in (256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0) if input_tokens / 64 <= n < input_tokens]
pieces = tables.chunks(ours, input_tokens, [*cuts, float(input_tokens)], batch)
whole, shortest = pieces.iloc[-1], pieces.loc[pieces.stall_s.idxmin()]
took = {name: [format_quantity(one[name], "s", 2) for one in (shortest, whole)] for name in ("stall_s", "ttft_s")}
if cuts:
    shown = charts.lines(
        tables.waits(pieces),
        x="chunk_tokens",
        y="time_s",
        color="what",
        log_x=True,
        caption=f"Chunks of {shortest.chunk_tokens:,.0f} cut the longest pause to {took['stall_s'][0]}",
        under=f"{where}, batch {batch}; whole, {input_tokens:,} tokens stop others for {took['stall_s'][1]}; their first token comes after {took['ttft_s'][0]} in chunks and {took['ttft_s'][1]} whole",
    )
else:
    shown = Markdown(f"A prompt of {counted(input_tokens, 'token')} is one chunk: others wait {took['stall_s'][1]}.")
shown

# %%
charts.table(pieces, caption="Chunked prefill, a decode step after each chunk", download="chunks", file_only=True)

# %% [markdown]
# ### With a cached prefix

# %%
prefix = tables.prefixes(ours, input_tokens, np.arange(0, 1, 0.1))
charts.table(
    prefix,
    caption=f"Prefill of {counted(input_tokens, 'token')} where a share is cached; what is new pads to its bucket",
    download="prefix",
)

# %% tags=["hide-input"]
pays = prefix[prefix.speedup > 1.05]
smaller = ", where what is left falls into a smaller graph" if ours.e.prompt_bucket != "exact" else ""
Markdown(
    f"A cached prefix pays from a share of {pays.prefix_share.iloc[0]:.0%} on{smaller}; nine tenths of the prompt make the first token "
    f"{format_digits(prefix.speedup.iloc[-1], 2)} times as fast."
    if len(pays)
    else "No share that is cached pays: what is left is padded to the same graph, or takes as long to launch."
)

# %% [markdown]
# ## Check: what was measured
#
# Pages of measurements that neither the fit nor the reading of rows has seen; [How wrong are we?](accuracy.ipynb) asks every published
# measurement that we found.

# %% tags=["hide-input"]
experts = m.kind in ("expert", "hybrid")
groups = ("MoE and hybrid decode", "TTFT of MoE and hybrids") if experts else ("dense decode", "TTFT")
measured = evidence.accuracy().set_index(["group", "split"])
unseen = {group: measured.loc[group, evidence.SOURCE] for group in groups}
rivals = {group: measured.loc[group, evidence.LEFT_OUT] for group in groups}
Markdown(
    "\n\n".join(
        f"**{group[0].upper()}{group[1:]}: the median error is {one.median_error:.0%}, and nine in ten are within {one.p90_error:.0%}**, over "
        f"{one.cases:.0f} configurations of {one.pages:.0f} pages. With a model left out it is {rivals[group].median_error:.0%}, where a "
        f"regression on bytes, FLOP and traffic has {rivals[group].naive_median:.0%}."
        for group, one in unseen.items()
    )
)

# %%
assert all(one.median_error < one.naive_median for one in rivals.values())

# %% [markdown]
# ## What moves the answer
#
# One thing changed at a time:

# %%
charts.table(
    others,
    caption=f"Nothing and one thing changed of {question}, {used}",
    download="changes",
)

# %% [markdown]
# TP divides weights and multiplies all-reduces; KV heads that do not divide are copied. A graph runs the batch that it was compiled
# for, with one user too.
#
# ## What is left out
#
# What a layer with experts adds beyond its bytes was fitted up to 64 ranks and batch 8; with more of either the form is
# extrapolated, and for the largest mixtures it is then most of a step. Contention between collectives and DMA in a step, the host's
# tokeniser, multimodal encoders, and the time to load or to compile. Users that come and go:
# [How fast does it serve?](serving.ipynb)

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Weights and caches over bandwidth, plus all-reduces that hide behind nothing, plus what each layer and launch costs. On compiled
# graphs the last is as large as the first: ask what a stack adds to a layer before asking what a chip reads.
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
# **2.** A layer without experts costs 0.17 ms beside its bytes, 80 layers stand in a row, and weights take 3.6 ms. By how much does a chip of
# twice the bandwidth shorten that?
#
# ```{admonition} Answer
# :class: dropdown
# From 80 x 0.17 + 3.6 = 17.2 ms to 13.6 + 1.8 = 15.4 ms: by a tenth.
# ```
#
# **3.** A prompt of 2,100 tokens, graphs of powers of two. Which share of the prefill is padding, and how many cached tokens halve it?
#
# ```{admonition} Answer
# :class: dropdown
# It runs as 4,096: 1 - 2,100/4,096 = 49 %. What is left must fit 2,048, so 52 cached tokens.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
facts = tm.facts()
said = facts[(facts.entity == spec.chip.id) & facts.quantity.str.contains("hbm|peak")]
charts.table(
    common.bibliography({*filter(None, values.source.str.split("; ").explode()), *said.source}),
    caption="Sources of the figures in this chapter",
    download="sources",
)
