# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 17
#     part: Understand
# ---

# %% [markdown]
# # How fast does it train, and does it fit?

# %% tags=["parameters"]
model: str = "llama-3.1-405b"
tokens: float = 15e12
seq: int = 8192
global_batch: int = 2048
experts_model: str = "deepseek-v3"
experts_tokens: float = 14.8e12
experts_seq: int = 4096
experts_global_batch: int = 15360
system: str = "trn3-nl72x2-pcie160"
systems: list[str] = ["trn2-ultraserver", "trn3-nl32x2-pcie160", "hgx-h100", "gb200-nvl72"]
chips: int = 8192
precision: str = "bf16"
owner: str = "hyperscaler"
pricing: str = "capacity-block"

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import training as tables
from trnbook.chapters import training_table as train_table
from trnbook.shared import gaps, ledger, software_kinds
from trnmodel.catalog import load, rents
from trnmodel.evidence import tables as evidence
from trnmodel.search.train_report import budget as said
from trnmodel.search.train_run import degrees
from trnmodel.search.trainings import published
from trnmodel.units import DAY, GIB, TFLOP, format_digits

spec, m, experts_m = tm.system(system), tm.model(model), tm.model(experts_model)
names = list(dict.fromkeys([spec.id, *(tm.system(name).id for name in systems)]))
owners = [name for name, entity in load.entities().items() if entity.kind == "owner" and name != "owner"]
guard.one_of(owners, owner=owner)
guard.one_of(rents.PRICINGS, pricing=pricing)
guard.within(1, 1e18, tokens=tokens, experts_tokens=experts_tokens)
guard.within(1, 1e7, chips=chips, seq=seq, experts_seq=experts_seq)
guard.within(1, 1e9, global_batch=global_batch, experts_global_batch=experts_global_batch)
for name, budget, one in (
    ("tokens", tokens, seq * global_batch),
    ("experts_tokens", experts_tokens, experts_seq * experts_global_batch),
):
    guard.need(budget >= one, f"{name} = {budget:g} are fewer than the {one:,} of one step")
guard.spans(seq, model=m)
guard.spans(experts_seq, experts_model=experts_m)
guard.computes(spec.chip, precision=precision)
guard.need(m.id != experts_m.id, f"experts_model = {experts_m.id!r} is the other model too")
sizes = {"tokens": tokens, "seq": seq, "global_batch": global_batch}
experts_sizes = {"tokens": experts_tokens, "seq": experts_seq, "global_batch": experts_global_batch}
by_key = train_table.runs(
    {m.id: {"model": m} | sizes, experts_m.id: {"model": experts_m} | experts_sizes}, names, precision, chips
)
run = train_table.whole(by_key, m.id, {"model": m} | sizes, spec.id, precision, chips)
head = next(key for key in by_key if key[:3] == (m.id, spec.id, precision))
by_key[head] = run
called = software_kinds.names(names)
here, step, wide = called[spec.id], run.step, precision.upper()
size, work = tm.units.counted(run.chips, "chip"), f"{m.id} over {said(tokens)} tokens"

# %% tags=["hide-input"]
peers = train_table.level(by_key, head)
rest = sorted((float(one.days), name) for name, one in peers.items() if name != spec.id)
best = peers[rest[0][1]] if rest else None
kinds = {kind: train_table.days(by_key.get(head._replace(kind=kind))) for kind in tables.STACKS if kind != head.kind}
eight = next(
    (key for key in by_key if key[:2] == head[:2] and key.kind == head.kind and key.precision != precision), None
)
Markdown(
    common.card(
        [float(run.days), *map(float, run.ends("days"))],
        f"{work} in {wide} on {size} of {here} with nothing lost, on {head.kind} software at an MFU of {float(run.mfu):.0%}; "
        + "; ".join(f"{kind} {text}" for kind, text in kinds.items())
        + (f"; in {eight.precision.upper()} {train_table.days(by_key[eight])}" if eight else ""),
        unit="days",
        mark=str(run.basis),
        rival=f"{called[rest[0][1]]} with {best.describe()}" if best else "",
        rank="Ahead of it" if best and best.days < run.days else "Next best",
        alone="" if best else f"no other system of these runs it in {wide} on {head.kind} software",
        proof="Check: runs and steps that were measured",
        more=f"It fits: the fullest rank holds {format_digits(float(step.memory_bytes_per_rank) / GIB, 3)} of {format_digits(float(step.capacity_bytes) / GIB, 3)} GiB. With failures the "
        f"calendar says {run.calendar_days().describe('days')}. "
        + (
            f"**It is extrapolated** ({str(run.basis_reason).replace(': ', ' ')}), and the band is wider for it. "
            if run.basis_reason
            else ""
        )
        + "\n\n"
        + ledger.rests_on(
            *dict.fromkeys(
                one.stack.id for key, one in by_key.items() if key[0] == m.id and (key.system == spec.id or one is best)
            )
        ),
    )
)

# %% tags=["hide-input"]
every = train_table.rows(by_key)
shown = every[(every.model == m.id) & (every.precision == precision)].dropna(subset="run_days")
spread = shown.groupby("system").run_days.agg(["min", "max"])
charts.ranges(
    shown[["run_days", "run_days_low", "run_days_high", "software", "basis"]].assign(of=shown.system.map(called)),
    x="run_days",
    y="of",
    color="software",
    log_x=True,
    caption=f"Software moves days up to {format_digits((spread['max'] / spread['min']).max(), 2)} times, systems {format_digits(max(one.run_days.max() / one.run_days.min() for _, one in shown.groupby('software')), 2)} times",
    under=f"{work} in {wide} on {chips:,} chips each, in whole domains, nothing lost; 90 % bands",
)

# %% tags=["hide-input"]
twin = train_table.level(by_key, head._replace(model=experts_m.id))
Markdown(
    f"**{experts_m.id} over {said(experts_tokens)} tokens** takes, on the same chips and software in {wide}, "
    + "; ".join(f"{train_table.days(one)} days on {called[name]}" for name, one in twin.items())
    + "."
    if twin
    else f"**{experts_m.id}** fits none of them on {head.kind} software."
)

# %% tags=["hide-input"]
charts.table(
    tables.compare(by_key, m.id),
    caption=f"Days of {work}; MFU, mapping and what takes longest on the first software that runs",
    download="days",
)

# %% tags=["hide-input"]
charts.table(
    tables.compare(by_key, experts_m.id),
    caption=f"The same of {experts_m.id} over {said(experts_tokens)} tokens",
    download="days-experts",
)

# %% tags=["hide-input"]
charts.table(every, caption="Every run, row by row", download="runs", file_only=True)

# %% tags=["hide-input"]
printed = pd.concat([published(one, [head.kind], chips) for one in (m, experts_m)], ignore_index=True)
if len(printed):
    view = charts.table(
        tables.stated(printed),
        caption=f"What runs of these models took by their authors, as so many days on {chips:,} chips, and ours on their own",
        download="published",
    )
else:
    view = Markdown(f"No source says what a run of {m.id} or {experts_m.id} took.")
view

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(common.notation(tables.SYMBOLS, "from"), caption="What this chapter calls things", download="notation")

# %% [markdown]
# ## Days are work over rate
#
# A run sees $T$ tokens, $B$ of them in a step of $t$ seconds and $F$ FLOP of the model's own work. MFU is that work over the peak $P$ of all $N$ chips,
# with the whole square of attention on every software, as Megatron-LM counts it; HFU is what is computed: layers that run again count, masked pairs that a kernel skips do not. In a step $m$ micro-batches go through $p$ stages of $v$ parts, then gradients are exchanged, $t_d$, and weights updated, $t_o$:
#
# $$ d = \frac{T}{B}\,\frac{t}{86400}, \qquad \mathrm{MFU} = \frac{F}{t\,N\,P}, $$
#
# $$ t = \Bigl(m + \frac{p-1}{v}\Bigr)(t_f + t_b + t_r + t_x) + t_d + t_o + t_0 . $$
#
# Every legal mapping and policy is tried, and the fastest that fits counts.

# %% tags=["hide-input"]
flop, time_s, batch = float(step.model_flop), float(step.time_s), float(step.global_batch * step.seq)
steps, mfu = tokens / batch, flop / (time_s * run.chips * train_table.peak(run))
assert np.isclose(steps * time_s / DAY, float(run.days))
assert np.isclose(mfu, float(run.mfu))
Markdown(
    f"**By hand, {here}.** {tokens:,.15g} tokens / {batch:,.0f} = {steps:,.0f} steps of {format_digits(time_s, 4)} s = {format_digits(steps * time_s / DAY, 4)} days; the package says "
    f"{format_digits(float(run.days), 4)}. A step has {flop:.4g} FLOP, {flop / batch / m.active_params():.2f} for each token and active parameter; over {format_digits(time_s, 4)} s x {run.chips:,.0f} x "
    f"{train_table.peak(run) / TFLOP:,.0f} TFLOP/s it is an MFU of {mfu:.1%}; the package says {float(run.mfu):.1%}. The mapping: {run.configuration}."
)

# %% [markdown]
# ## What do eight bits bring?
#
# Products take as long as the peak of their format lets them. Scores, norms, the optimizer and what is exchanged stay wider, so that a step gains less than its peak.

# %% tags=["hide-input"]
formats = train_table.gains(by_key, head)
mine = formats[formats.system == spec.id].iloc[0]
charts.table(
    tables.formats(formats),
    caption=f"{mine.narrow_in} makes {here} {format_digits(mine.speedup, 2)} times as fast, of {format_digits(mine.peak_ratio, 2)} times the peak ({head.kind} software)"
    if mine.speedup == mine.speedup
    else f"Days in both formats on {head.kind} software; {here} has one",
    download="formats",
)

# %% tags=["hide-input"]
older = next(
    (name for name in names if train_table.elder(tm.system(name), spec) and train_table.level(by_key, head).get(name)),
    "",
)
Markdown(
    (
        train_table.why_little(by_key, head, older, called)
        if older
        else f"No older Trainium of these runs it in {wide} beside {here}."
    )
    + " No run in 8 bits was measured on any Trainium; whether a model trains as well in them is not modelled."
)

# %% [markdown]
# ## Does it fit?
#
# A rank holds its part of weights and gradients, the optimizer's states (an FP32 copy and two moments), what the forward pass leaves for the backward one, and buffers. ZeRO 1
# shares the optimizer out among data-parallel ranks, ZeRO 3 weights and gradients too; computing layers again drops their activations.

# %% tags=["hide-input"]
held = train_table.memory(run)
whole = held.groupby("of", sort=False).agg(
    stored_bytes=("stored_bytes", "sum"), room=("capacity_bytes", "first"), most=("most", "first")
)
fits = whole[whole.stored_bytes <= whole.room]
charts.stacks(
    held[["of", "kind", "stored_bytes", "capacity_bytes"]],
    x="of",
    y="stored_bytes",
    color="kind",
    limit="capacity_bytes",
    caption=f"{len(fits)} of {len(whole)} policies fit in memory",
    under=f"fullest rank of {m.id} on {size} of {here}, {degrees(run.table.iloc[0].to_dict())}, one sequence at a time, stages not interleaved; stroke: what a rank has, of which policies take {whole.stored_bytes.min() / whole.room.max():.2g} to {whole.stored_bytes.max() / whole.room.max():.2g}",
)

# %% tags=["hide-input"]
zero1 = held[held.of == held.of.iloc[0]].set_index("kind").stored_bytes
params = zero1.weights / 2
Markdown(
    f"**By hand, {whole.index[0]}.** The fullest rank has {format_digits(params / 1e9, 3)} billion parameters: {m.total_params / 1e9:,.1f} billion / (TP {float(step.tp):.0f} x PP {float(step.pp):.0f}) = "
    f"{m.total_params / float(step.tp * step.pp) / 1e9:.3g} billion on the mean one. At 2 B they take {format_digits(zero1.weights / GIB, 3)} GiB, their gradients at {zero1.gradients / params:.2g} B {format_digits(zero1.gradients / GIB, 3)} GiB, "
    f"the optimizer at {zero1.optimizer / params:.2g} B {format_digits(zero1.optimizer / GIB, 3)} GiB, activations {format_digits(zero1.activations / GIB, 3)} GiB."
)

# %% tags=["hide-input"]
charts.table(
    pd.DataFrame(
        {
            "policy": whole.index,
            "stored": [f"{size_ / GIB:,.1f} GiB" for size_ in whole.stored_bytes],
            "largest micro-batch that fits": [f"{most:,.0f}" if most else "none" for most in whole.most],
        }
    ),
    caption=f"With that mapping; a rank has {whole.room.max() / GIB:.3g} GiB",
    download="fit",
)

# %% [markdown]
# ## Where does the time go?
#
# An exchange hides behind work as far as the software lets it. No policy of overlap leaves the range between all hidden that can hide and none hidden.

# %% tags=["hide-input"]
piled = train_table.parts({called[name]: one for name, one in peers.items()})
share = piled[piled.of == here].set_index("part").run_days / float(by_key[head].days)
assert np.isclose(share.sum(), 1)
lost = share.drop(["forward", "backward"]).sort_values(ascending=False, kind="stable")
charts.stacks(
    piled.assign(basis=str(run.basis)),
    x="of",
    y="run_days",
    color="part",
    caption=f"{share.forward + share.backward:.0%} is forward and backward work, {lost.iloc[0]:.0%} {lost.index[0]}",
    under=f"shares of {here}; {work} in {wide} on {head.kind} software, each on its best mapping; parts sum to the days",
)

# %% tags=["hide-input"]
soon, late = (float(run.days * end / step.time_s) for end in (step.lower_s, step.upper_s))
Markdown(
    f"**{here}**: {format_digits(soon, 3)} days if every exchange hides that can, {format_digits(late, 3)} if none does, {format_digits(float(run.days), 3)} as {head.kind} software does it. "
    f"The bubble is {float(step.bubble_s / step.time_s):.1%} of a step: ({float(step.pp):.0f} - 1) / {float(step.interleave):.0f} micro-batches beside {float(step.microbatches):.0f}."
    if step.pp > 1
    else f"**{here}**: {format_digits(soon, 3)} days if every exchange hides that can, {format_digits(late, 3)} if none does, {format_digits(float(run.days), 3)} as {head.kind} software does it. It has no pipeline, and no bubble."
)

# %% tags=["hide-input"]
charts.table(
    tables.overlaps(peers),
    caption="A step with every exchange hidden that can be, as the software does it, and with none hidden",
    download="overlap",
)

# %% [markdown]
# ## What lies between ideal and public software?
#
# The days above are those of one kind of software, and most of them could be saved without another chip. Each bar is a
# run of its own on the best of all mappings, in which the values of one mechanism are those of the next software; the
# factors multiply to the whole gap.

# %%
gap = tm.training_gap(m, spec, tokens=tokens, chips=chips, precision=precision, seq=seq, global_batch=global_batch)
gaps.waterfall(gap, f"{work} in {wide} on {size} of {here}")

# %% tags=["hide-input"]
Markdown(gaps.describe(gap))

# %% [markdown]
# ## Which mapping, and what do the next ones lose?

# %% tags=["hide-input"]
charts.table(
    tables.losing(run),
    caption=f"The best of {run.space.asked:,} mappings and policies, of which {run.space.valid:,} fit: one for each set of degrees",
    download="mappings",
)

# %% tags=["hide-input"]
charts.table(
    tables.binding(run),
    caption=f"The best run that keeps a constraint, over {format_digits(float(run.days), 3)} days without",
    download="constraints",
)

# %% [markdown]
# ## Which MFU does AWS claim?
#
# AWS claims an MFU in BF16 on Trainium3 with its compiler on the first day, and with kernels written by hand. Beside it stands what the parts of a step come to.

# %% tags=["hide-input"]
claimed = pd.concat(
    [tables.claims(by_key, name, spec.id, precision) for name in (m.id, experts_m.id)], ignore_index=True
)
charts.table(
    claimed,
    caption=f"MFU and days on {size} of {here} in {wide}: as derived, and at what is claimed of {spec.chip.name}"
    if claimed.source.any()
    else f"MFU and days on {size} of {here} in {wide}, as derived; nobody claims an MFU of it",
    download="claims",
)

# %% tags=["hide-input"]
Markdown(
    tables.verdicts(by_key, (m.id, experts_m.id), spec.id, precision)
    or f"Nobody claims an MFU of {spec.chip.name} in {wide}."
)

# %% [markdown]
# ## In the calendar, and in dollars
#
# Failures, checkpoints and racks that limp take their share, and a chip-hour has a price or a cost.

# %% tags=["hide-input"]
charts.table(
    tables.spent({called[name]: one for name, one in peers.items()}, owner, pricing),
    caption=f"{work} with failures, rented by {pricing} or owned by a {owner}",
    download="spent",
)

# %% [markdown]
# ## Check: runs and steps that were measured
#
# *Left out* is the error on a model under a fit that has seen all others, and *in band* the share of runs whose time lies in the band that the step states. The rival
# knows one MFU for all runs of a group, or carries it over from the group that the software was fitted to.
#
# On one Trainium2 a micro-batch of Llama-3.1-8B with adapters takes 0.58 s at 2,048 tokens, as long at 4,096, and 0.98 s at 8,192. Up to 4,096 tokens the chip waits for the
# host, which traces every pass over a layer anew: 3.7 ms, and 2.2 ms more where adapters are trained. Three models keep to this, and a run without recomputation has two thirds of it. At
# 8,192 tokens the chip reaches 68 % of its peak. Qwen3-32B at 2,048 tokens is 30 % slower than both together explain. A profile of that run, and one of a second model at
# 8,192 tokens, would say whether the share depends on the model or on the length; until then its range holds both (38 to 97 %).
#
# No run on Trainium has the same model at TP 8 and at TP 32. Runs of different models at either are within 20 %, and the model expects the same job to take 1.3 to 1.5 times as
# long at TP 32, since each rank then exchanges four times as many activations. One pair of runs would settle it.
#
# Three targets are missed. Of Trainium1 one would need a decoder and an encoder by one software on as many cores: with BERT left out,
# decoders alone say what a layer costs beside its products. Of Trainium2 one would need a second model whose chip is busy. Of FSDP on Hopper
# one would need the clock of an H100 limited to 500 W and the attention kernel of each run: with 405B left out one share foretells runs
# that differ by kernel, cut of the sequence and compiler.

# %% tags=["hide-input"]
errors, unused = evidence.table("training_errors"), evidence.table("training_aside")
aimed = errors[errors.met.notna()]
charts.table(
    tables.accuracy(errors),
    caption=f"{int(errors.cases.sum())} measured steps: {int(aimed.met.astype(bool).sum())} of {len(aimed)} targets are met",
    download="accuracy",
)

# %% tags=["hide-input"]
charts.table(
    unused, caption=f"The {len(unused)} rows that are set aside, each with its reason", download="aside", file_only=True
)

# %% tags=["hide-input"]
Markdown(tables.trusted(errors, unused, printed))

# %% [markdown]
# ## What moves the answer

# %% tags=["hide-input"]
Markdown(train_table.moves(by_key, head, {"model": m} | sizes, chips))

# %% [markdown]
# ## What is left out
#
# Loss and how well a model learns: a larger batch and 8 bits are taken to cost nothing. Loading of data, evaluation and the phases of longer contexts; multi-token prediction; offloading to
# hosts; unequal stages and zero-bubble schedules; experts that fill unevenly (`expert_imbalance`); two collectives that meet on a link. What fails, and how often, is chapter 15; what a chip-hour costs chapter 16.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask first whether it fits and with which mapping, then what software makes of it: that moves days more than the rack does. In 16 bits a newer Trainium brings memory and links; its products pay in 8.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A model of 405 billion parameters sees 15 trillion tokens at 6 FLOP each. How long do 8,192 chips of 667 TFLOP/s take at an MFU of 40 %?
#
# ```{admonition} Answer
# :class: dropdown
# 6 x 405e9 x 15e12 / (8,192 x 667e12 x 0.4) = 16.7 million s, 193 days.
# ```
#
# **2.** With 16 stages and 32 micro-batches, which share of the time is bubble, and which with 4 parts a stage?
#
# ```{admonition} Answer
# :class: dropdown
# 15 / (32 + 15) = 32 %; (15 / 4) / (32 + 15 / 4) = 10 %.
# ```
#
# **3.** A rank holds 2 billion parameters in BF16 with FP32 gradients and Adam's 12 bytes. What does it take, and what with ZeRO 1 over 64 ranks?
#
# ```{admonition} Answer
# :class: dropdown
# 2e9 x (2 + 4 + 12) = 36 GB; 2e9 x (2 + 4 + 12 / 64) = 12.4 GB.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = {"trainium3-deep-dive"} | set(claimed.source) | (set(printed.source) if len(printed) else set())
used |= evidence.sources("training", without="aside")
charts.table(
    common.bibliography(used & set(load.sources()) - {"project"}),
    caption="Sources of the figures in this chapter",
    download="sources",
)
