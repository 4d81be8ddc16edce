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
#     order: 13.9
#     part: Training
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
way: str = "capacity-block"

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnmodel import charts
from trnmodel.catalog import load, rents
from trnmodel.chapters import common, guard
from trnmodel.chapters import training as tables
from trnmodel.evidence import ledger
from trnmodel.planner import software
from trnmodel.planner.trainings import at_stated_mfu, published
from trnmodel.units import DAY, GIB, TFLOP, format_digits, format_within

spec, m, experts_m = tm.system(system), tm.model(model), tm.model(experts_model)
asked = list(dict.fromkeys([spec.id, *(tm.system(name).id for name in systems)]))
owners = [name for name, entity in load.entities().items() if entity.kind == "owner" and name != "owner"]
guard.one_of(owners, owner=owner)
guard.one_of(rents.WAYS, way=way)
guard.within(1, 1e18, tokens=tokens, experts_tokens=experts_tokens)
guard.within(1, 1e7, chips=chips, seq=seq, experts_seq=experts_seq)
guard.within(1, 1e9, global_batch=global_batch, experts_global_batch=experts_global_batch)
guard.spans(seq, model=m)
guard.spans(experts_seq, experts_model=experts_m)
guard.need(m.id != experts_m.id, f"experts_model = {experts_m.id!r} is the other model too")
guard.computes(spec.chip, precision=precision)
questions = {
    m.id: {"model": m, "tokens": tokens, "seq": seq, "global_batch": global_batch},
    experts_m.id: {"model": experts_m, "tokens": experts_tokens, "seq": experts_seq, "global_batch": experts_global_batch},
}
called = software.names(asked)
found = tables.asked(questions, asked, precision, chips=chips)
run = tables.first(found, m.id, spec.id, precision)
head = tables.first_key(found, m.id, spec.id, precision)
here, kind, step = called[spec.id], head.kind, run.step
size = common.counted(run.chips, "chip")
budget = f"{m.id} over {tables.many(tokens)} tokens"

# %% tags=["hide-input"]
level = tables.alike(found, m.id, kind, precision)
others = sorted((float(one.days), name) for name, one in level.items() if name != spec.id and one.valid)
best = level[others[0][1]] if others else None
also = [f"{other} {tables.days(found.get(head._replace(kind=other)))}" for other in tables.STACKS if other != kind]
narrow = [key for key in found if key[:2] == head[:2] and key.kind == kind and key.precision != precision]
useful = run.goodput()
Markdown(
    common.card(
        [float(run.days), *map(float, run.ends("days"))],
        f"{budget} in {precision.upper()} on {size} of {here} with nothing lost, on {kind} software at an MFU of {float(run.mfu):.0%}; {'; '.join(also)}; "
        + "".join(f"in {key.precision.upper()} {tables.days(found[key])}; " for key in narrow)
        + f"with failures {run.calendar_days(useful).told('days')}",
        unit="days",
        mark=str(run.basis),
        rival=f"{called[others[0][1]]} with {tables.days(best, True)}" if best else "",
        rank="Ahead of it" if best is not None and best.days < run.days else "Next best",
        alone="" if best else f"no other system of these runs it on {kind} software",
        proof="Check: runs and steps that were measured",
        more=f"It fits: the fullest rank holds {format_digits(float(step.memory_bytes_per_rank) / GIB, 3)} of {format_digits(float(step.capacity_bytes) / GIB, 3)} GiB. "
        + f"The mapping is {run.words}. "
        + (
            f"**No published run trains on {spec.chip.name}**: its software is that of other chips, and the band is wide for it. "
            if spec.chip.id in str(run.basis_reason) or str(run.basis_reason).startswith("chip")
            else ""
        )
        + "\n\n"
        + ledger.rests_on(*tables.stacks(found, head, others[0][1] if others else "")),
    )
)

# %% tags=["hide-input"]
every = tables.rows(found)
shown = every[(every.model == m.id) & (every.precision == precision)].dropna(subset="days")
charts.ranges(
    shown.assign(of=shown.system.map(called)),
    x="days",
    y="of",
    color="software",
    log_x=True,
    caption=tables.claim(shown, called),
    under=f"{budget} in {precision.upper()} on {chips:,} chips each, nothing lost; 90 % bands",
)

# %% tags=["hide-input"]
charts.table(
    tables.beside(found, m.id),
    caption=f"Days of {budget}, on equal kinds of software; MFU, mapping and bound of the first kind that runs",
    download="days",
)

# %% tags=["hide-input"]
charts.table(
    tables.beside(found, experts_m.id),
    caption=f"Days of {experts_m.id} over {tables.many(experts_tokens)} tokens",
    download="days-experts",
)

# %% tags=["hide-input"]
charts.table(every, caption="Every run, row by row", download="runs", file_only=True)

# %% tags=["hide-input"]
printed = pd.concat([published(name, chips=chips) for name in questions], ignore_index=True)
if len(printed):
    view = charts.table(
        tables.printed(printed, chips),
        caption=f"What those runs took where they were run, and the same chip-hours on {chips:,} chips",
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
# A run sees $T$ tokens, $B$ of them in a step that takes $t$ seconds and has $F$ FLOP of the model's own work; MFU is that work over the peak $P$ of all $N$ chips:
#
# $$ d = \frac{T}{B}\,\frac{t}{86400}, \qquad \mathrm{MFU} = \frac{F}{t\,N\,P}, \qquad t = \Bigl(m + \frac{p-1}{v}\Bigr)(t_f + t_b + t_r + t_x) + t_d + t_o + t_0 . $$
#
# $m$ micro-batches go through $p$ stages of $v$ parts each, then gradients are exchanged, $t_d$, and weights updated, $t_o$. HFU counts what is computed
# again too. Every legal mapping and policy is tried; the fastest that fits counts.

# %% tags=["hide-input"]
work, peak = float(step.model_flop), tables.peak(run)
batch = float(step.global_batch * step.seq)
by_hand = tokens / batch * float(step.time_s) / DAY
assert np.isclose(by_hand, float(run.days))
Markdown(
    f"**By hand, {here}.** {tables.many(tokens)} tokens / {batch:,.0f} = {tokens / batch:,.0f} steps of {float(step.time_s):.3g} s = {by_hand:,.3g} days; the package says {float(run.days):,.3g}. "
    f"A step has {work:.4g} FLOP, {work / batch / m.total_params:.2f} for each token and parameter; over {float(step.time_s):.4g} s x {run.chips:,.0f} x {peak / TFLOP:,.0f} TFLOP/s that is an MFU of "
    f"{work / (float(step.time_s) * run.chips * peak):.1%}; the package says {float(run.mfu):.1%}, HFU {float(run.hfu):.1%}."
)

# %% [markdown]
# ## What do eight bits bring?
#
# Work that is bound by products takes as long as the peak of its format lets it. Optimizer, norms, exchanges of gradients and scores stay in 16 or 32 bits, so
# that a step gains less than the peak does.

# %% tags=["hide-input"]
gained = tables.gains(found, m.id, kind)
charts.table(
    tables.told_gains(gained),
    caption=tables.gain_claim(gained, spec.id, called),
    download="formats",
)

# %% tags=["hide-input"]
Markdown(tables.gain_words(gained, spec, asked, called))

# %% [markdown]
# ## Does it fit?
#
# A rank holds its part of the weights, their gradients, the optimizer's states (an FP32 copy and two moments), what the forward pass leaves for the backward one, and buffers. ZeRO 1
# shares the optimizer among the data-parallel ranks, ZeRO 3 weights and gradients too; computing again drops activations.

# %% tags=["hide-input"]
held = tables.memory(run)
charts.stacks(
    held,
    x="of",
    y="stored_bytes",
    color="kind",
    limit="capacity_bytes",
    caption=tables.fit_claim(held),
    under=f"fullest rank of {m.id} on {size} of {here}, {tables.degrees(run.table.iloc[0].to_dict())}, one sequence at a time, stages not interleaved; stroke: what a rank has",
)

# %% tags=["hide-input"]
charts.table(
    tables.largest(run),
    caption="The largest micro-batch that fits with that mapping",
    download="fit",
)

# %% tags=["hide-input"]
Markdown(tables.fit_by_hand(run))

# %% [markdown]
# ## Where does a step's time go?
#
# An exchange hides behind work as far as the software lets it. Between *all hidden that can hide* and *none hidden* lies what any policy of overlap can do.

# %% tags=["hide-input"]
level = {called[name]: one for name, one in tables.alike(found, m.id, kind, precision).items() if one.valid}
piled = tables.parts(level)
assert np.isclose(piled[piled.of == here].run_days.sum(), float(run.days))
charts.stacks(
    piled.assign(basis=str(run.basis)),
    x="of",
    y="run_days",
    color="part",
    caption=tables.parts_claim(piled, here),
    under=f"{budget} in {precision.upper()} on {kind} software, each on its best mapping; parts sum to the days",
)

# %% tags=["hide-input"]
charts.table(
    tables.overlaps(level),
    caption="A step with every exchange hidden that can be, as it is, and with none hidden",
    download="overlap",
)

# %% [markdown]
# ## Which mapping, and what do the next ones lose?

# %% tags=["hide-input"]
wide = tables.all_policies(run, questions[m.id], kind, chips=chips)
charts.table(
    tables.losing(wide),
    caption=f"The best of {wide.space.asked:,} points, of which {wide.space.valid:,} fit: one for each set of degrees, and the part of a step by which it loses",
    download="mappings",
)

# %% tags=["hide-input"]
charts.table(
    tables.binding(wide),
    caption="What each constraint costs: the best run that keeps it",
    download="constraints",
)

# %% [markdown]
# ## Which MFU do vendors claim?
#
# AWS claims what its compiler reaches and what kernels written by hand do, in BF16 on Trainium3. Beside it stands what the parts of a step come to.

# %% tags=["hide-input"]
claims = tables.claims({name: tables.first(found, name, spec.id, precision) for name in questions}, found, precision)
charts.table(claims, caption=tables.claims_caption(claims, here), download="claims")

# %% [markdown]
# ## In calendar days, and in dollars
#
# Failures, checkpoints and slow racks take their share (chapter `goodput`), and a chip-hour has a price or a cost (chapter `cost`).

# %% tags=["hide-input"]
charts.table(
    tables.spent(level, owner, way, None),
    caption=f"The run with failures, rented by {way} and owned by a {owner}",
    download="spent",
)
