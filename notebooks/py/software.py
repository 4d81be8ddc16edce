# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 16
#     part: Understand
# ---

# %% [markdown]
# # What does software cost?

# %% tags=["parameters"]
system: str = "trn3-nl32x2-pcie160"
larger_system: str = "trn3-nl72x2-pcie160"
torus_system: str = "trn3-nl32x2-torus"
rivals: list[str] = ["hgx-h200", "gb200-nvl72", "mi355x-8"]
experts_model: str = "deepseek-v3"
model: str = "llama-3.3-70b"
grown_from: str = "deepseek-v3"
input_tokens: int = 4096
output_tokens: int = 512
tokens_per_s_per_user: list[float] = [20.0, 50.0]

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import software as tables
from trnbook.chapters import software_break_even as break_even
from trnbook.shared import gaps, ledger, software_kinds
from trnmodel.catalog.stacks import KINDS, kinds
from trnmodel.evidence import before_after
from trnmodel.evidence import tables as evidence
from trnmodel.models import synthetic
from trnmodel.search import frontier
from trnmodel.units import MS, format_digits, format_quantity

PRECISIONS = ["mxfp8", "fp8", "bf16"]
trn = list(dict.fromkeys([system, larger_system, torus_system]))
spec, experts_m, m = tm.system(system), tm.model(experts_model), tm.model(model)
for name, one in (
    ("system", spec),
    ("larger_system", tm.system(larger_system)),
    ("torus_system", tm.system(torus_system)),
):
    guard.neuroncore(**{name: one})
    guard.need(one.domain_chips > 1, f"{name} = {one.id!r} is a single chip")
    guard.need(set(kinds(one.chip)) == set(KINDS), f"{name} = {one.id!r} has no hand-tuned software")
guard.some(rivals=rivals)
guard.generates(model=m, experts_model=experts_m)
guard.routes(experts_model=experts_m)
guard.one_of(synthetic.bases(), grown_from=grown_from)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.spans(input_tokens + output_tokens, model=m, experts_model=experts_m)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
speeds = sorted(set(tokens_per_s_per_user))
slow, fast = speeds[0], speeds[-1]
request = tm.Request(input_tokens, output_tokens)
lengths = f"{input_tokens:,} tokens in and {output_tokens:,} out"
experts = software_kinds.answers(experts_m, request, trn, speeds, PRECISIONS)
dense = software_kinds.answers(m, request, [system, *rivals], speeds, PRECISIONS)
falls = {}
for name, one, table in (("experts_model", experts_m, experts), ("model", m, dense)):
    ask = {"context": request.mean_context, "max_context": request.longest_context}
    ask["precision"] = frontier.formats([system], PRECISIONS)[system]
    where = software_kinds.shared_point(one, system, table, **ask)
    guard.need(where is not None, f"{name} = {one.id!r}: hand-tuned and public software share no step on {system}")
    falls[name] = where, software_kinds.waterfall(one, system, where[0], batch=where[1], **ask)

# %% tags=["hide-input"]
called = software_kinds.names([*trn, *rivals])
public, tuned, ideal = (software_kinds.line(experts, slow, system, kind) for kind in software_kinds.ORDER)
others = experts[(experts.promised_tokens_per_s_per_user == slow) & (experts.software == "hand-tuned")]
best = others[others.system != system].nlargest(1, "tokens_per_s_per_chip").iloc[0] if len(trn) > 1 else None
cost = ideal.tokens_per_s_per_chip / public.tokens_per_s_per_chip if public.tokens_per_s_per_chip else np.inf
least, most = (ideal.tokens_per_s_per_chip / end if end else np.inf for end in public[software_kinds.YIELD[:0:-1]])
mine = {kind: software_kinds.line(dense, slow, system, kind) for kind in software_kinds.ORDER}
targets = sorted({10.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, *speeds})
tied = {one.id: break_even.ties(one, system, rivals[:2], targets, request, PRECISIONS) for one in (m, experts_m)}
claimed = f"{experts_m.id} on {called[system]}, {lengths}, at {slow:g} tokens/s promised to each user: how many times as much a chip makes on ideal software as on public software"
Markdown(
    common.card(
        "everything" if cost == np.inf else (cost, least, most) if most < np.inf else f"{format_digits(cost, 2)} times",
        claimed + (f"; by its band {format_digits(least, 2)} times or more" if least < np.inf == most else ""),
        unit="times",
        mark=public.basis,
        rival=software_kinds.describe_line(tuned),
        proof="Check: runs that were published",
        more=f"It makes {software_kinds.describe_line(public)}, {software_kinds.describe_line(ideal)}. What holds public software back: {public.reason}; hand-tuned: {tuned.reason}. "
        + (
            f"{'Ahead of it' if best.tokens_per_s_per_chip > tuned.tokens_per_s_per_chip else 'Runner-up'}, hand-tuned: {called[best.system]} with {software_kinds.in_band(*best[software_kinds.YIELD])}. "
            if best is not None
            else ""
        )
        + f"{m.id} there: {'; '.join(software_kinds.describe_line(one) for one in mine.values())}. Each band is over draws of what "
        f"nobody knows of the software, with the promise kept; {f'in {public.chance:.0%} of the draws public software keeps it' if public.chance else 'public software keeps it in none'}.\n\n"
        + ledger.rests_on(
            *ledger.estimated(spec.chip, "hop_s"), *ledger.estimated(spec, "switch_s"), public.stack, tuned.stack
        ),
    )
)

# %% tags=["hide-input"]
slowest = experts[experts.promised_tokens_per_s_per_user == slow]
charts.ranges(
    slowest.loc[slowest.tokens_per_s_per_chip > 0, [*software_kinds.YIELD, "software", "basis"]].assign(
        of=slowest.system.map(called)
    ),
    x="tokens_per_s_per_chip",
    y="of",
    color="software",
    caption=software_kinds.decides(slowest),
    under=f"{experts_m.id}, {lengths}, whole requests per paid chip, {slow:g} tokens/s promised to each user",
)

# %% tags=["hide-input"]
charts.table(
    software_kinds.side_by_side(experts),
    caption=f"{experts_m.id}, tokens/s per paid chip of whole requests, with bands: at {slow:g} tokens/s a user {software_kinds.describe_line(tuned)}, {called[system]}",
    download="answer-experts",
)

# %% tags=["hide-input"]
charts.table(
    software_kinds.side_by_side(dense),
    caption=f"{m.id}, tokens/s per paid chip of whole requests, with bands, in the first of {', '.join(PRECISIONS)} that a chip computes: at {slow:g} tokens/s a user "
    f"{software_kinds.describe_line(mine['hand-tuned'])}, {called[system]}",
    download="answer-dense",
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(
        common.of_spec(spec.chip, ["hbm_bytes_per_s", "hbm_bytes", "hop_s", "cores"]),
    ),
    caption=f"What this chapter calls things, for {spec.chip.name}",
    download="notation",
)

# %% [markdown]
# ## Three kinds of software
#
# **Ideal** loses nothing. **Public** is the stack that one can install, as measured, and extrapolated where it leaves its rows: none
# runs experts over many chips of Trainium3. **Hand-tuned** is a scenario: kernels at the share of the peak that the NKI library
# reaches on Trainium3, a layer's latency as the fastest rows have it, one routing and wait a layer with experts, documented hops, and
# only those experts read that tokens go to. Each part was measured somewhere, all of them together nowhere. On GPUs public is the
# fitted vLLM, SGLang or TensorRT-LLM, hand-tuned the same construction with their kernels.
#
# Each system takes the mapping, the batch and the documented option of its software that make most of the request per chip that is paid
# for, while every user gets the promised speed; prompts run on the same chips. The band is over a thousand draws of how slow steps and
# prompts really are: the mapping stays, and the number of sequences in flight adapts so that the promise holds. The chance is the
# share of draws in which some number of sequences keeps it. The tables also say what takes most of a step together with the prompts
# that its tokens need. A decode step by itself takes
#
# $$ t_{tuned} = \frac{\max(t_c, t_w)}{\sigma} + L\,t_{layer} + L_e\,t_{route} + t_{net} $$
#
# **By hand.** DeepSeek-V3 has 61 layers, 58 of them with experts: 61 x 79.5 us + 58 x 45 us = 7.5 ms a step, which at 50 tokens/s a
# user leaves 12.5 ms of 20 for all else.

# %%
lost_layers = tm.efficiencies("trainium3", "hand-tuned")
deepseek = tm.model("deepseek-v3").outline("decode")
by_hand = deepseek.layers * lost_layers.layer_s + deepseek.expert_layers * lost_layers.expert_serial_s
f"{by_hand / MS:.1f} ms"

# %% [markdown]
# ## Why is the answer so far from ideal?
#
# A step at a fixed mapping hides most of what software decides: slower exchanges force other mappings, and a longer step
# leaves room for fewer users at the promised speed. Therefore the answer itself is taken apart.
#
# Each bar of the chart is a plan of its own: the values of one mechanism are replaced by those of the next software, and
# mapping and batch are searched again, so that the factors multiply to the whole gap. A bar that goes back is something
# that the next software loses elsewhere. Another order of the mechanisms would share the gap out in another way.

# %%
promised = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=slow)
gap = tm.software_gap(experts_m, promised, system, precision=tuned.precision)
gaps.waterfall(gap, f"{experts_m.id} on {called[system]}, {lengths}, {slow:g} tokens/s for each user")

# %% tags=["hide-input"]
Markdown(gaps.describe(gap))

# %% tags=["hide-input"]
charts.table(
    gap.to_frame(), caption="Every stage with its mapping, and its factor at the ends of the constants", download="gap"
)

# %% [markdown]
# ## How often do such gaps close?
#
# A gap says what could be gained and not whether anybody will gain it. Published figures before and after one change of software are
# evidence of that. A pair has the same model, chip, mapping and lengths, and pairs were chosen by a rule and not by their result, so that
# some got slower. Kernels of single operators are among them, and their greatest gains are not those of a whole step.

# %%
pairs = before_after.closed()
charts.table(pairs, caption="Speed after a change of software over the speed before it, by cause", download="closed")

# %% tags=["hide-input"]
charts.table(
    before_after.pairs()[["source", "locator", "chip", "model", "what", "cause", "before", "after", "unit", "speedup"]],
    caption="Every pair with its source",
    download="pairs",
    file_only=True,
)

# %% [markdown]
# ## Where the time goes
#
# The same step from the ideal stack to the hand-tuned one and on to the public one, a mechanism at a time: each bar is the difference of
# two calls with the values of one mechanism replaced. A bar that goes back is something that the next stack has in another place: one
# whose latency is fitted by the step has none by the layer. The bars are of the decode step alone, without prompts and drafts. The point is
# the one at which hand-tuned software makes most of the request, with the batch halved until public software has room; public
# software has a better one, which the tables take.


# %% tags=["hide-input"]
def falls_of(one, name):
    """The chart of a model: its step from the ideal stack to the public one."""
    (mapping, batch), fall = falls[name]
    first_s, last_s = fall.end_s.iloc[0], fall.end_s.iloc[-1]
    return charts.ranges(
        tables.bars(fall),
        x="step_s",
        y="which",
        caption=f"{one.id}: public software takes {last_s / first_s:.1f} times the ideal decode step",
        under=f"{called[system]}, TP {mapping.tp:g}{f', EP {mapping.ep:g}' if mapping.ep > 1 else ''}, batch {batch:,.0f}: "
        f"{format_quantity(first_s, 's', 3)} ideal; {tables.largest(fall)}",
    )


falls_of(experts_m, "experts_model")

# %% tags=["hide-input"]
falls_of(m, "model")

# %% [markdown]
# ## What share of the ideal ties?
#
# Where a rival makes $y(v)$ tokens/s of whole requests per paid chip at $v$ tokens/s for each user, a chip ties when its software reaches the share
# $x(v) = y(v)/y_{ideal}(v)$ of its own ideal. Read it as a dial: name the share that you expect of the software, and the lines below it are
# the rivals that it beats. The band is what the hand-tuned scenario reaches. It ranks nobody, because less than half of its step stands on
# parts that were measured on this chip. Above 1 no software ties.


# %% tags=["hide-input"]
def ties_of(one):
    """The chart of a model: rivals on each software over the band of the system's own."""
    least, most = break_even.spans(tied[one.id], system, slow)
    return charts.lines(
        tables.tie_lines(tied[one.id], system),
        x="promised_tokens_per_s_per_user",
        y="share_of_ideal",
        color="system",
        dash="software",
        caption=f"{one.id}: a tie takes {least:.2g} to {most:.2g} of the ideal",
        under=f"rivals at {slow:g} tokens/s a user, each rival on each software; yield over the ideal one of {called[system]}: above 1 no "
        f"software ties; band: what it reaches hand-tuned, with the promise kept; a line ends below {tables.SHOWN:.0%}",
    )


ties_of(m)

# %% tags=["hide-input"]
ties_of(experts_m)

# %% tags=["hide-input"]
tie = break_even.tie_table(tied, system, list(dict.fromkeys([slow, fast])))
own = tie[tie.whose == "its own"].drop(columns=["whose", "software", "no software ties"])
charts.table(
    tie[tie.whose != "its own"],
    caption=f"Shares of ideal {called[system]} that tie (band: with the promise kept, extrapolated). Hand-tuned it reaches itself: "
    + "; ".join(
        f"{one[0]} {', '.join(map(' '.join, zip(one[1:], own.columns[1:], strict=True)))}" for one in own.to_numpy()
    ),
    download="ties",
)

# %% [markdown]
# ## When does the larger domain win?
#
# The text says that the small domain is more than enough for mixtures of 2 to 3 trillion parameters in all, and that from 4 trillion
# on the large one brings a meaningful benefit (the deep dive, in which the word trillion is missing once). Models grow from a public one by
# rules of ours (confidence D): depth, widths and number of experts by the fourth root of the growth each. Cells are the yield of a chip of the
# larger domain over one of the smaller; hatched where the band of that ratio holds 1. Both run the same software, so that a draw moves both. Chips that a
# mapping leaves idle in a domain are paid: degrees are powers of two, so that 8 of 72 or 16 of 144 chips may stand idle.

# %% tags=["hide-input"]
pair = (system, larger_system)
precision = frontier.formats([system], PRECISIONS)[system]
over = sorted({10.0, 20.0, 30.0, 50.0, 80.0, 120.0, *speeds})
won = break_even.domains(tables.SIZES, over, pair, request=request, base=grown_from, precision=precision)
firsts = {kind: tables.pays_from(won, kind) for kind in ("hand-tuned", "ideal")}
tables.domain_map(
    won[won.software == "hand-tuned"],
    caption=f"Hand-tuned, the larger domain pays: {tables.describe_sizes(firsts['hand-tuned'], [slow])}",
    under=f"{called[larger_system]} over {called[system]}, tokens/s per paid chip, {precision}, {lengths}; lines: the text's 2T to 3T and 4T; extrapolated. "
    f"Pays ({tables.PAYS_AT:g} times): {tables.describe_sizes(firsts['hand-tuned'], speeds)}",
)

# %% tags=["hide-input"]
tables.domain_map(
    won[won.software == "ideal"],
    caption=f"With nothing lost it pays: {tables.describe_sizes(firsts['ideal'], [slow])}",
    under=f"As above, nothing lost. Pays ({tables.PAYS_AT:g} times): {tables.describe_sizes(firsts['ideal'], speeds)}",
)

# %% tags=["hide-input"]
Markdown(
    "**The text's line holds "
    + "; ".join(f"{kind} at {tables.agreeing(table)}" for kind, table in firsts.items())
    + ".** It is a statement about a speed and about software, which the text does not name."
)

# %% [markdown]
# ## What hangs on the lanes?
#
# Two texts count the lanes of a switched Trainium3: the deep dive 64 + 64 + 16 (1,152 GB/s a chip), AWS's page 32 + 40 + 16 (704 GB/s). The
# second is a system of its own for the large domain, and a reading of ours (D) for the small one; a torus keeps its links. Each headline of other
# chapters, asked both ways on hand-tuned software:

# %% tags=["hide-input"]
lanes = tables.conclusions(
    {"experts": experts_m, "dense": m},
    pair,
    torus_system,
    rivals[:2],
    speeds=speeds,
    request=request,
    precisions=PRECISIONS,
)
flips = lanes[lanes.flips]
charts.table(
    lanes,
    caption=f"{len(flips)} of {len(lanes)} conclusions flip"
    + "".join(f": {one[2]}, {one[3]} and {one[4]}" for one in flips.itertuples())
    + (
        ""
        if break_even.fewer_lanes(system) is not tm.system(system)
        else f"; no text counts the lanes of {called[system]} otherwise"
    )
    + "; hand-tuned software, extrapolated",
    download="lanes",
)

# %% [markdown]
# ## Check: runs that were published
#
# Twelve times of wide expert parallelism on GPUs have been published, of servers that prefill and decode apart. The same construction, its three constants set from all but one, is asked
# for the one left out:

# %% tags=["hide-input"]
wide = evidence.table("wide_experts")
missed, off = wide[~wide.inside], (wide.centre_s / wide.measured_s - 1).abs()
steps = wide.what == "step"
shown = "hardware model what measured_s centre_s low_s high_s inside missing".split()
charts.table(
    wide[shown],
    caption=f"{wide.inside.sum()} of {len(wide)} lie within the 90 % interval of the others; centres of steps are "
    f"{off[steps].median():.0%} off in the median, of first tokens {off[~steps].median():.0%}; intervals of first tokens span "
    f"{(wide.high_s / wide.low_s)[~steps].median():.0f} times their low end",
    download="wide-experts",
)

# %% tags=["hide-input"]
Markdown(
    "Not met: "
    + ("; ".join(f"{line.id} (missing: {line.missing})" for line in missed.itertuples()) or "none")
    + f". Without each run once a layer with experts takes {format_quantity(wide.expert_s.min(), 's', 2)} to {format_quantity(wide.expert_s.max(), 's', 2)}, a split server's "
    f"service {format_quantity(wide.service_s.min(), 's', 3)} to {format_quantity(wide.service_s.max(), 's', 3)}."
)

# %% [markdown]
# ## What moves the answer
#
# * **The speed promised to a user.** Latency by the layer does not shrink with the batch: the faster the user, the more software costs.
# * **Routing of experts** on public software, whose constant was fitted to at most 64 ranks.
# * **The share of the peak** that kernels reach: 0.64 to 0.92 of it in the hand-tuned scenario.
#
# ## What is left out
#
# A limit on the time to the first token ([How fast does it serve?](serving.ipynb)); price and power; two half batches that hide each other's collectives; experts over several servers of eight GPUs,
# so that a mixture that fills eight of them barely has room there; degrees that are no powers of two, which the larger domain has more of.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask on which software before asking on which rack: between public and ideal lies more than between any two racks, and whoever wants
# a conclusion about racks must first say whose kernels run on them.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A stack spends 140 us a layer on a model of 80 layers. Which speed can no user pass?
#
# ```{admonition} Answer
# :class: dropdown
# 80 x 140 us = 11.2 ms a step: 89 tokens/s, with nothing else in the step.
# ```
#
# **2.** A rival's chip makes 2,400 tokens/s where yours would ideally make 3,556. Which share ties, and does software at 0.33 of the ideal?
#
# ```{admonition} Answer
# :class: dropdown
# 2,400 / 3,556 = 0.67; at 0.33 it makes half of what the rival does.
# ```
#
# **3.** At which speed does a model of 4T parameters in MXFP8 (8.25 bits) no longer stream through 64 chips of 4.9 TB/s?
#
# ```{admonition} Answer
# :class: dropdown
# 4.125 TB / (64 x 4.9 TB/s) = 13.2 ms: beyond 76 tokens/s, on software that loses nothing.
# ```

# %% [markdown]
# ## Evidence
#
# Every line behind the tables above, with degrees, batch, stack and basis; the same question stands in
# [Which switch tray, and does it matter?](switch-tray.ipynb).

# %% tags=["hide-input"]
columns = "promised_tokens_per_s_per_user system software tokens_per_s_per_chip tokens_per_s_per_chip_low tokens_per_s_per_chip_high chance decode_tokens_per_s_per_chip basis option tp ep pp cp batch reason".split()
charts.table(
    experts[columns],
    caption=f"{experts_m.id}: tokens/s per paid chip of whole requests on three kinds of software, decoding alone beside it, and the largest thing between each and the ideal",
    download="three-experts",
)

# %% tags=["hide-input"]
charts.table(
    dense[[*columns[:3], "precision", *columns[3:]]],
    caption=f"{m.id} on Trainium and on chips of others, each in the narrowest format that it computes",
    download="three-dense",
)

# %% tags=["hide-input"]
charts.table(
    falls["experts_model"][1],
    caption="Each bar of the mixture of experts; low and high by the ranges of its mechanism",
    download="waterfall",
)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
stacks = {one.stack for one in (*experts.itertuples(), *dense.itertuples())}
charts.table(
    common.bibliography([*used[used.entity.isin(stacks)].source, "trainium3-deep-dive", "ah-trn3-arch"]),
    caption="Sources of the constants in this chapter",
    download="sources",
)
