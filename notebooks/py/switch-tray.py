# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 6
# ---

# %% [markdown]
# # Which switch tray, and does it matter?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
model: str = "deepseek-v3"
tokens_per_chip: float = 8.0
context: float = 8192.0
precision: str = "mxfp8"
tokens_per_s_per_user: float = 50.0
pays_at: float = 1.1
grown_from: str = "deepseek-v3"

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import switch_tray as tables
from trnbook.shared import domain_sizes, ledger, placements, software_kinds
from trnbook.shared import fabrics as compare
from trnmodel.models import synthetic as synthetic_models
from trnmodel.units import BILLION, GIB, TRILLION, format_quantity, format_within

spec, m, base = tm.system(system), tm.model(model), tm.model(grown_from)
guard.generates(model=m)
guard.routes(model=m)
guard.one_of(synthetic_models.bases(), grown_from=base.id)
guard.need(base is tm.model(base.id), f"grown_from = {base.id!r} is a file; only shipped models grow")
guard.within(1 / 32, 1e5, tokens_per_chip=tokens_per_chip)
guard.within(1, m.max_context, context=context)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
guard.within(1, 1e6, pays_at=pays_at)
small, large = domain_sizes.PAIR
software = "exposed"
ask = {"context": context, "precision": precision, "stack": software}
placed = placements.steps(m, [small, large], [tokens_per_chip], **ask)
guard.need(
    placed[placed.placement != "EP + copy"].groupby("system").time_s.count().min() > 0,
    f"model = {m.id!r} with tokens_per_chip = {tokens_per_chip:g}, context = {context:g} in {precision}: no step on {small} and {large} exists",
)
trays = tables.trays(spec)
maps = compare.lane_maps(trays[0])
first, last, chip = trays[0], trays[-1], tm.system(trays[0]).chip
fabrics, free = [*trays, *maps], [tables.free_to_forward(name) for name in (trays[0], trays[-1])]
both = [*tables.trays("trn3-nl32x2-pcie160"), *tables.trays("trn3-nl72x2-pcie160")]

# %% tags=["hide-input"]
late = compare.latencies(fabrics)
rates = compare.capacities(fabrics)
experts = placements.exchanges(m, fabrics, tokens_per_chip * 2.0 ** np.arange(-3, 7))
mean = late[late.scope == "rack"].set_index("system").mean_s
worst = late[late.scope == "rack"].set_index("system").worst_s
ends = late[late.scope == "rack"].set_index("system")[["worst_s", "worst_s_low", "worst_s_high"]]
steps = experts[experts.tokens_per_chip == tokens_per_chip].set_index(["system", "experts_over"]).step_s
unhindered = placements.exchanges(m, free, [tokens_per_chip]).set_index(["system", "experts_over"]).step_s
saved = unhindered[first, "rack"] - unhindered[last, "rack"]
reach = rates[rates.scope == "rack"].set_index("system").all_to_all_bytes_per_s
spread, ranked = reach[trays], tables.describe_rank(first)
called = {name: tm.system(name).name for name in fabrics}
by_map = "".join(
    f" By AWS's own lane map ({called[name]}) it is {format_quantity(reach[name], 'B/s', 3)} and {format_quantity(steps[name, 'rack'], 's', 3)}."
    for name in maps
)
others = ends.loc[[name for name in trays if name != last]].sort_values("worst_s", kind="stable")
nearest, apart = others.index[0], spread.max() / spread.min() - 1
Markdown(
    common.card(
        tuple(ends.loc[last]),
        f"what the worst pair of a rack waits one way with the tray of {called[last]}; with that of {called[first]} {format_within(*ends.loc[first], 's')}",
        unit="s",
        mark="ideal",
        rival=f"{called[nearest]} {format_within(*others.loc[nearest], 's')}"
        + (", as the others" if others.worst_s.nunique() == 1 and len(others) > 1 else ""),
        rank="Next best",
        proof="Check: numbers that are not ours",
        more=f"For bandwidth the tray does not matter: {f'the trays differ by {apart:.1%}, ' if apart > 5e-4 else ''}with any of them a chip has "
        f"{format_quantity(spread.mean(), 'B/s', 3)} of all-to-all in its rack, because the lanes of the chips are the same. With "
        f"{tm.units.counted(tokens_per_chip, 'token a chip')} the experts' traffic of one decode step of {m.id} falls from "
        f"{format_quantity(steps[first, 'rack'], 's', 3)} to {format_quantity(steps[last, 'rack'], 's', 3)}.{by_map}"
        + (
            ""
            if spec.id in fabrics
            else f" ({spec.name} has no choice of switch trays; this is the {tm.system(first).name} rack.)"
        )
        + f"\n\nAssumed, for nobody has published either: a chip that forwards costs a hop of AWS's rings, and a switch, UALink's "
        f"too, what a Gen5 PCIe switch costs. Forwarding for free, as the text reports, the step would differ by "
        f"{format_quantity(saved, 's', 2)}, not {format_quantity(steps[first, 'rack'] - steps[last, 'rack'], 's', 3)}. In it {ranked}.\n\n"
        + ledger.rests_on(*ledger.estimated(chip, "hop_s"), *ledger.estimated(tm.system(first), "switch_s")),
    )
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(common.of_fabric(first)),
    caption="What this chapter calls things; confidence D is our own estimate",
    download="notation",
)

# %% [markdown]
# A **tray** here is a generation of switch trays: 160-lane PCIe switches first, Broadcom's PEX90144 as their backup, 320-lane
# ones next, UALink switches at last. A **plane** is the set of rack switches that a group of chips shares. A **lane map** says how
# many lanes of a chip go to its tray, to the backplane and to the other rack: the deep dive's is 64 + 64 + 16, AWS's page prints
# 32 + 40 + 16 for the NL72x2, which is a system of its own here and stands beside the trays.
#
# ## The model
#
# A chip has 64 active backplane lanes in x8 ports, so it reaches eight switches, whatever they are. What a switch's number of
# ports decides is how many *chips* share a plane. A message within a plane passes one switch. To another plane it first goes to
# a chip on its own tray that is in that plane, which forwards it:
#
# $$ t = \alpha\,(1 + f) + s\,t_{switch} $$
#
# with $f$ chips that forward, $s$ switches on the way, $\alpha$ the cost of a chip (AWS's 1 to 2 us a hop).
#
# **By hand.** NL72x2 has 18 trays of four chips. A 160-lane switch has $160/8 = 20$ ports: 18 chips of one place, two ports left,
# four planes. A 320-lane switch has 40: two places, two planes. UALink's 72 ports take all $18 \times 4$ chips: one plane.

# %%
planes = tables.plane_table(tables.trays("trn3-nl72x2-pcie160")).set_index("system").planes
"; ".join(f"{name} {count:.0f}" for name, count in planes.items()) + " planes"

# %% [markdown]
# ## What each tray is made of

# %%
charts.table(tables.plane_table(fabrics), caption="Switches of one rack, and ports of a rack switch", download="planes")

# %% [markdown]
# ## How far chips are apart

# %%
distinct, hops = tables.plane_table(fabrics).drop_duplicates("planes").system, tables.hops(fabrics)
direct = tables.within_one(hops)
charts.bars(
    hops[hops.system.isin([*distinct, last])],
    x="between",
    y="share",
    color="system",
    caption=f"At most one switch between: {direct[first]:.0%} to {direct[last]:.0%}",
    under=f"of all pairs, with {first} and with {last}",
)

# %%
charts.ranges(
    late,
    x="worst_s",
    y="system",
    color="scope",
    caption=f"The worst pair: from {format_quantity(worst[first], 's', 2)} to {format_quantity(worst[last], 's', 2)}",
    under=f"in a rack of {first} and of {last}, if a chip that forwards costs {format_quantity(chip.hop_s, 's', 2)} and a switch "
    f"{format_quantity(tm.system(first).switch_s, 's', 3)}, our estimates (D)",
)

# %%
shown = ["system", "scope", "most_between", "mean_s", "mean_s_low", "mean_s_high", "worst_s"]
charts.table(late[shown], caption="One way through the empty fabric", download="latencies")

# %% [markdown]
# Hollow: nobody has published what a Trainium3 costs when it sends or forwards, nor the latency of these switches; the
# bars take AWS's hop of a ring for the one and a Gen5 PCIe switch of Broadcom for the other. If Trainium3 forwards for
# free, as the text reports, the trays differ by a switch or two of a tenth of a microsecond.
#
# ## How fast

# %%
charts.table(
    rates[["system", "scope", "chips", "all_to_all_bytes_per_s", "oversubscription", "bound"]],
    caption="All-to-all of one chip to all others: the tray does not enter"
    + "".join(f", the lanes do ({reach[name] / reach[first]:.0%} in a rack on {name})" for name in maps),
    download="capacities",
    file_only=True,
)

# %% [markdown]
# ## What a decode step feels

# %%
in_rack = experts[experts.experts_over == "rack"]
charts.lines(
    in_rack,
    x="tokens_per_chip",
    y="step_s",
    color="system",
    log_x=True,
    log_y=True,
    caption=f"The first tray takes {steps[first, 'rack'] / steps[last, 'rack']:.2f} times the last's time",
    under=f"dispatch and combine of {m.id} over a rack, {tm.units.counted(tokens_per_chip, 'token a chip')}: {first} over {last}"
    + "".join(f", {name} {steps[name, 'rack'] / steps[last, 'rack']:.2f} times" for name in maps)
    + f" ({ranked})",
)

# %% tags=["hide-input"]
table = in_rack.set_index(["tokens_per_chip", "system"]).step_s.unstack()
few, many = table.iloc[0], table.iloc[-1]
Markdown(
    f"At {tm.units.counted(table.index[0], 'token a chip')} the ratio is {few[first] / few[last]:.2f}, at {table.index[-1]:g} it is "
    f"{many[first] / many[last]:.2f}: the tray is worth most where latency rules, and next to nothing where a step carries many "
    "tokens, as in prefill and training. "
    + " ".join(
        f"The mean pair of a rack waits {1 - mean[name] / mean[first]:.0%} less on {called[name]} than on {called[first]}, the worst "
        + (f"{1 - worst[name] / worst[first]:.0%} less." if worst[name] < worst[first] else "as long.")
        for name in trays[1:]
        if mean[name] < mean[first]
    )
    + "".join(
        f" With AWS's own lanes a step takes {few[name] / few[first]:.2f} times as long as on {called[first]} at {tm.units.counted(table.index[0], 'token a chip')} "
        f"and {many[name] / many[first]:.2f} times at {table.index[-1]:g}: with many tokens the lanes count and the tray does not."
        for name in maps
    )
)

# %% [markdown]
# ## What the rack yields, on three kinds of software
#
# The steps below are of an ideal stack. What a rack yields is the software's first: here is the question of
# [What does software cost?](software.ipynb), word for word, on software that loses nothing, on a hand-tuned scenario and on the public stack.

# %%
request = tm.Request(min(software_kinds.REQUEST.input_tokens, max(m.max_context - 512, 1)), 512)
three = software_kinds.answers(m, request)
slow, fast = software_kinds.SPEEDS
charts.table(
    three[
        "promised_tokens_per_s_per_user system software tokens_per_s_per_chip tokens_per_s_per_chip_low tokens_per_s_per_chip_high chance decode_tokens_per_s_per_chip basis option tp ep pp cp batch reason".split()
    ],
    caption=f"{m.id}, whole requests, {request.input_tokens:,g} tokens in and {request.output_tokens:,g} out, at {fast:g} tokens/s a user. {software_kinds.describe(three, fast, small)}. {software_kinds.describe(three, fast, large)}",
    download="three-experts",
    file_only=True,
)

# %% tags=["hide-input"]
wide = three.set_index(["promised_tokens_per_s_per_user", "software", "system"]).tokens_per_s_per_chip
gains = {
    f"{speed:g} tokens/s {kind}": wide[speed, kind, large] / wide[speed, kind, small]
    for speed in (slow, fast)
    for kind in ("ideal", "hand-tuned", "public")
    if wide[speed, kind, small] > 0
}
level = [name for name, gain in gains.items() if abs(gain - 1) < 0.005]
others = [f"{gain:.2f} times at {name}" for name, gain in gains.items() if name not in level]
Markdown(
    (
        f"A chip of {tm.system(large).name} yields as much as one of {tm.system(small).name} in {len(level)} of {len(gains)} cases; else "
        f"{', '.join(others) or 'nothing'}"
        if gains
        else f"Nothing is as fast on {tm.system(small).name}"
    )
    + ". Either may take groups smaller than itself; where the larger one yields less, chips that its mapping leaves idle are paid, or a group of as many chips lies worse on its trays."
)

# %% [markdown]
# ## Where do the experts live?
#
# A tray does not widen the way to the other rack: 16 of a chip's 144 active lanes go there. The text proposes three placements,
# beside which stands a fourth that says nothing across: **EP + TP**, experts in a rack and each layer cut in two
# between twins of the racks; **EP + CP**, experts in a rack and each context cut in two; **EP of the pair**, experts over both
# racks; **EP + copy**, the whole model in each rack. Here a rank is a chip, so that TP can reach across: that is LNC 8, which AWS
# has announced and its SDK does not allow yet (1 and 2 are what it supports). With the LNC 2 of today a chip is four ranks, and
# experts over the 32 chips of a rack are EP 32 with TP 4 inside each chip, or EP 128.
#
# **By hand.** A token of DeepSeek-V3 goes to 8 experts with 7,168 elements of two bytes: $8 \times 7168 \times 2 = 114{,}688$ B out and
# as many back. With experts over both racks half of them cross: 114,688 B in all. TP sums twice a layer, and each of two racks
# sends its half sums once: $2 \times 2 \times 7168 \times 2 = 57{,}344$ B. CP exchanges the partial outputs of 128 heads:
# $2 \times 128 \times 512 \times 2 = 262{,}144$ B.

# %%
sent = placements.traffic(m, large)
sent = sent.assign(traffic=sent.what + ", " + sent.tier.map({"rack": "in the rack", "pair": "across"}))
crossing = sent[sent.tier == "pair"].groupby("placement").bytes_per_token.sum()
most, least = crossing.idxmax(), crossing[crossing > 0].idxmin()
charts.stacks(
    sent[sent.bytes_per_token > 0],
    x="placement",
    y="bytes_per_token",
    color="traffic",
    caption=f"{least} sends least, {most} most",
    under=f"bytes of a token of {m.id} in a layer, across racks, one copy for each expert: {format_quantity(crossing[least], 'B', 3)} and "
    f"{format_quantity(crossing[most], 'B', 3)} cross",
)

# %% tags=["hide-input"]
fewer = pd.concat([placements.traffic(m, large, copies).assign(copies=copies) for copies in placements.COPIES])
fewer = fewer.groupby(["placement", "copies", "tier"], sort=False).bytes_per_token.sum().reset_index()
apart = fewer[(fewer.tier == "pair") & (fewer.placement == "EP of the pair")].set_index("copies").bytes_per_token
charts.table(
    fewer,
    caption=f"If a token crosses once for each rack instead of once for each expert, EP of the pair crosses with {apart['rack'] / apart['expert']:.0%} of the bytes",
    download="bytes",
)

# %%
across = placements.exchanges(m, [*dict.fromkeys([small, large, *maps, "trn3-nl32x2-torus"])], [tokens_per_chip])
times = across.set_index(["system", "experts_over"]).layer_s
charts.bars(
    across,
    x="experts_over",
    y="layer_s",
    color="system",
    caption=f"Over both racks: {times[large, 'world'] / times[large, 'rack']:.2f} times the time in one",
    under=f"dispatch and combine of a layer, {tm.units.counted(tokens_per_chip, 'token a chip')}, on {large}; the torus "
    f"{times['trn3-nl32x2-torus', 'world'] / times['trn3-nl32x2-torus', 'rack']:.2f} times"
    + "".join(f", {name} {times[name, 'world'] / times[name, 'rack']:.2f} times" for name in maps)
    + f" ({ranked})",
)

# %%
parts = ["compute_s", "memory_s", "network_s", "overhead_s"]
here = placed[placed.system == large]
long = here.melt(["placement"], parts, var_name="part", value_name="busy_s")
step_of = here.set_index("placement").time_s
charts.bars(
    long.assign(part=long.part.str.removesuffix("_s")),
    x="placement",
    y="busy_s",
    color="part",
    caption=f"{step_of.idxmin()} is fastest, {step_of.idxmax()} slowest",
    under=f"{large}, {tm.units.counted(tokens_per_chip, 'sequence a chip')} of {context:,.0f} tokens, {precision}, ideal software: "
    f"{format_quantity(step_of.min(), 's', 3)} and {format_quantity(step_of.max(), 's', 3)} a step; {ranked}",
)

# %%
shown = ["system", "placement", "time_s", *parts, "tokens_per_s_per_user", "tokens_per_s_per_chip"]
charts.table(
    placed[shown],
    caption=f"Steps of the placements; compute and memory overlap, the network does not; {ranked}",
    download="placements",
)

# %% tags=["hide-input"]
gain = placed.set_index(["system", "placement"]).tokens_per_s_per_chip.unstack()
share = (here.set_index("placement").network_s / step_of).drop("EP + copy")
Markdown(
    f"Of those that speak across, the network takes {share.min():.0%} to {share.max():.0%} of the step. The rest is mostly how many weights "
    f"a chip reads: TP halves its part of everything, EP of the pair that of the experts, CP and a copy neither. With this load "
    f"{tm.system(small).name} reaches {gain.loc[small].max():.0f} tokens/s a chip with {gain.loc[small].idxmax()}, {tm.system(large).name} "
    f"{gain.loc[large].max():.0f} with {gain.loc[large].idxmax()}."
)

# %% [markdown]
# ## From which size of model does the larger domain pay?
#
# The text (in which the word trillion is missing once): for decode NL32x2 is more than enough for models of 2-3T total parameters,
# from 4T on NL72x2 brings a meaningful benefit. No public model is that large, so we grow some, by rules that are ours (confidence D):
#
# * **together**: depth, hidden size, expert width and number of experts each by the fourth root of the growth,
# * **experts**: more experts and nothing else, which is how Kimi-K2 came from DeepSeek-V3,
# * **width**: hidden size and expert width by the square root,
# * **depth**: more layers.
#
# Top-k and the cached latent stay. For each model, precision and rate that a user is promised, each domain then takes the batch, the
# degrees of TP, CP and EP and their order that give most tokens/s a chip.
#
# **By hand.** A step must stream every expert that its batch needs, soon all of them. In 20 ms (50 tokens/s) 64 chips of 4.9 TB/s stream
# $64 \times 4.9 \times 0.02 = 6.3$ TB, in BF16 3.1T parameters; 144 chips 7.1T. Beyond this wall a domain can only run batches so small
# that they miss most experts.

# %%
sizes = [size * TRILLION for size in (0.67, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)]
precisions = list(dict.fromkeys(["bf16", precision, "w4a8"]))
user_rates = sorted({20.0, 50.0, 100.0, tokens_per_s_per_user})
walls = domain_sizes.walls([small, large], precisions, user_rates)
wall = walls.set_index(["system", "precision", "tokens_per_s_per_user"])
near = wall.loc[small, "bf16", tokens_per_s_per_user]
charts.table(
    walls,
    caption=f"Parameters that fit, and that stream in one step: {small} holds {near.fits_params / TRILLION:.1f}T in BF16 and streams "
    f"{near.streams_params / TRILLION:.1f}T at {tokens_per_s_per_user:g} tokens/s a user",
    download="walls",
)

# %%
made = synthetic_models.family(synthetic_models.growth(), sizes, base.id)
charts.table(made, caption=f"The synthetic family, grown from {base.id}", download="family", file_only=True)

# %%
models = [synthetic_models.synthetic(size, "together", base.id) for size in sizes]
held = domain_sizes.capacity(models, [small, large], precisions)
full = held[(held.system == small) & (held.domain_share > 1)]
charts.table(
    held,
    caption=f"Weights over HBM: {len(full)} of {len(held) // 2} do not fit into {small}"
    + ("" if full.empty else f", first {full.model.iloc[0]} in {full.precision.iloc[0]}"),
    download="capacity",
    file_only=True,
)

# %%
ratios = domain_sizes.ratios(
    synthetic_models.growth(),
    sizes,
    rates=user_rates,
    precisions=precisions,
    contexts=[context, 4 * context],
    stacks=["ideal", "exposed", "default"],
    base=base.id,
    pair=(small, large),
)
judged = domain_sizes.verdicts(ratios, pays_at, 3 * TRILLION, 4 * TRILLION)
case = f"software == '{software}' and context == {context} and tokens_per_s_per_user == {tokens_per_s_per_user}"
top = 4.0
drawn = ratios.query(case + " and rule == 'together'").replace({"ratio": {np.inf: np.nan}})
enough = pd.DataFrame(
    {
        "total_params": np.array([2, 2, 3, 3]) * TRILLION,
        "ratio": [1, top, top, 1],
        "precision": "text: NL32x2 is enough",
    }
)
pays = pd.DataFrame(
    {"total_params": np.array([4, 4]) * TRILLION, "ratio": [1, top], "precision": "text: NL72x2 pays from"}
)
verdict = judged.query(case + " and rule == 'together'").set_index("precision")
said = [
    f"{name} never" if np.isnan(row.pays_from_params) else f"{name} from {row.pays_from_params / TRILLION:g}T"
    for name, row in verdict.iterrows()
]
charts.lines(
    pd.concat([drawn.assign(ratio=drawn.ratio.clip(upper=top)), enough, pays]),
    x="total_params",
    y="ratio",
    color="precision",
    log_x=True,
    caption="Where the larger domain pays depends on the format"
    if verdict.pays_from_params.nunique(dropna=False) > 1
    else "The larger domain pays alike in every format",
    under=f"tokens/s a chip of {large} over {small} on ideal software, each user at {tokens_per_s_per_user:g} tokens/s: {pays_at:g} times or more in "
    + ", ".join(said)
    + f". Above {top:g} is drawn at {top:g}; a line ends where the model no longer fits the smaller domain; {ranked}",
)

# %%
level = ratios.query(f"software == '{software}' and context == {context} and rule == 'together'")
named = np.select(
    [np.isinf(level.ratio), level.ratio.isna(), level.ratio >= pays_at],
    ["only the larger", "neither", "the larger pays"],
    "alike",
)
first_pays = judged.query(
    f"software == '{software}' and context == {context} and rule == 'together' and precision == '{precision}'"
)
borders = [
    f"{'nowhere' if np.isnan(row.pays_from_params) else f'at {row.pays_from_params / TRILLION:g}T'} with {row.tokens_per_s_per_user:g} tokens/s a user"
    for row in first_pays.itertuples()
]
charts.regions(
    level.assign(trillion=level.total_params / TRILLION, which=named),
    x="trillion",
    y="tokens_per_s_per_user",
    color="which",
    panel="precision",
    caption="Where the larger domain pays, by format and speed",
    under=f"ideal software; in {precision} it first pays " + ", ".join(borders) + f"; {ranked}",
)

# %% tags=["hide-input"]
counted = (
    judged.groupby(["software", "precision", "tokens_per_s_per_user"], sort=False)
    .verdict.value_counts()
    .unstack(fill_value=0)
)
charts.table(
    counted.reset_index(),
    caption=f"The claim (4 rules, 2 contexts each) against {tables.tally(judged)}",
    download="verdicts",
)

# %% tags=["hide-input"]
decided = judged[judged.verdict != "no rate"]
mine, n_cases = decided[decided.software == software], (judged.software == software).sum()
by_rule = mine.groupby(["precision", "context", "tokens_per_s_per_user"]).verdict.nunique()
by_stack = decided.groupby(["precision", "context", "tokens_per_s_per_user", "rule"]).verdict.nunique()
agreeing = mine[mine.verdict == "agrees"].groupby(["precision", "tokens_per_s_per_user"]).size()
where = ", ".join(f"{name} at {rate:g} tokens/s" for name, rate in agreeing.index)
Markdown(
    f"**The verdict depends on the bytes of a weight, on the rate promised and on the software, less on how the model grows.** With the "
    f"ideal stack and its network in the open the claim "
    f"holds in {(mine.verdict == 'agrees').sum()} of the {len(mine)} cases that are decided"
    + (f" ({n_cases - len(mine)} are not)" if n_cases > len(mine) else "")
    + f": {where or 'none'}. At faster rates NL72x2 pays for smaller models "
    f"already, with fewer bits at slow rates only for larger ones: the border is where the weights no longer stream in a "
    f"token's time, or no longer fit. The rule of growth changes a decided verdict in {(by_rule > 1).sum()} of {len(by_rule)} cases, the "
    f"software in {(by_stack > 1).sum()} of {len(by_stack)}. Near its wall the smaller domain falls off fast, so ratios there are large; "
    f"beyond the walls of both they return to one, at throughputs that nobody would buy."
)

# %%
charts.table(
    judged[judged.software == software].drop(columns="software"),
    caption="Smallest size at which the larger domain pays, case by case (network not hidden)",
    download="cases",
    file_only=True,
)

# %%
at_least = pd.concat(
    domain_sizes.verdicts(ratios, ratio, 3 * TRILLION, 4 * TRILLION).assign(threshold=ratio)
    for ratio in (pays_at, 1.25, 1.5, 2.0)
)
at_least = (
    at_least.groupby(["software", "threshold"], sort=False).verdict.value_counts().unstack(fill_value=0).reset_index()
)
charts.table(
    at_least,
    caption=f"What counts as meaningful: cases by verdict, for ratios from {pays_at:g}; no rate: undecidable",
    download="thresholds",
)

# %%
generations = pd.concat(
    domain_sizes.ratios(
        ["together"],
        sizes,
        rates=[tokens_per_s_per_user],
        precisions=[precision],
        contexts=[context],
        base=base.id,
        pair=(f"trn3-nl32x2-{tray}", f"trn3-nl72x2-{other}"),
    ).assign(tray=tray if tray == other else f"{tray}, {other}")
    for tray, other in [*((name, name) for name in ("pcie160", "pcie320", "ualink")), ("pcie160", "aws-lanes")]
)
by_tray = generations.replace({"ratio": {np.inf: np.nan}}).set_index(["total_params", "tray"]).ratio.unstack()
by_lanes = by_tray.pop("pcie160, aws-lanes") / by_tray.pcie160
apart = by_tray.max(axis=1) - by_tray.min(axis=1)
charts.table(
    generations[
        [
            "tray",
            "total_params",
            "small_tokens_per_s_per_chip",
            "large_tokens_per_s_per_chip",
            "ratio",
            "small_placement",
            "large_placement",
        ]
    ],
    caption=f"The other trays: the ratio moves by {apart.max():.2f} at most; with AWS's own lanes in the larger domain it is "
    f"{by_lanes.min():.0%} to {by_lanes.max():.0%} of what it was; {ranked}",
    download="generations",
    file_only=True,
)

# %% [markdown]
# ## What a failure costs
#
# Redundant lanes idle until a lane, a switch or a tray fails; then they take over, and a rack keeps its rate while the tray is
# swapped, where there are trays to spare. NL72x2 has them; the NL32x2 rack of four trays has the lanes and no switch to end them
# at, which a fifth tray would give: chapter 4 sets them side by side.
#
# ## Check: numbers that are not ours

# %%
paths = tables.paths(both)
printed = paths[paths.verdict.isin(["agrees", "disagrees"])]
charts.table(
    printed.drop(columns="how"),
    caption="Switches and forwarding chips between two chips, as printed and as counted",
    download="paths",
)

# %%
ports = ledger.contradictions()
ports = ports[ports.about.str.contains("PEX|pairs|lanes end")]
charts.table(ports, caption="Where the text is at odds with itself about trays and lanes", download="contradictions")

# %% tags=["hide-input"]
Markdown(
    f"{(printed.verdict == 'agrees').sum()} of {len(printed)} printed paths and maxima agree with the graph, and "
    f"{(paths.verdict == 'inferred').sum()} maxima that follow from words without a number. Latencies cannot "
    f"be checked: none of these switches has been measured in public."
)

# %% [markdown]
# **Where the experts live.** The bytes by hand above, the printed memory of both domains, and the one public step of growth:

# %%
assert crossing["EP + TP"] == 2 * 2 * m.hidden_size * 2
printed_hbm = tm.facts().query(
    "entity in @domain_sizes.PAIR and quantity == 'hbm_bytes' and unit_printed == 'GiB' and source == 'trn3-arch'"
)
assert set(printed_hbm.value_si) == set(held.hbm_bytes)
grown, kimi = (
    synthetic_models.synthetic(tm.model("kimi-k2-instruct").total_params, "experts"),
    tm.model("kimi-k2-instruct"),
)
met = pd.DataFrame(
    {
        "what": ["bytes of both domains, GiB", "experts at the size of Kimi-K2", "active parameters there, billion"],
        "ours": [
            " and ".join(f"{size / GIB:,.0f}" for size in sorted(set(held.hbm_bytes))),
            f"{synthetic_models.family(['experts'], [kimi.total_params]).experts.iloc[0]}",
            f"{grown.active_params() / BILLION:.1f}",
        ],
        "theirs": [
            " and ".join(sorted(printed_hbm.value_printed, key=len)),
            "384",
            f"{kimi.active_params() / BILLION:.1f}",
        ],
    }
)
charts.table(
    met, caption="Kimi-K2 has two more layers of experts and half the heads; the rest is the rule's", download="met"
)

# %% [markdown]
# ## What moves the answer
#
# The load, the software and the lanes, in this order; the tray at small batches alone. Where the text can be read otherwise, chapter 4
# lists the readings and what they change.
#
# ## What is left out
#
# Queues and congestion in switches, UALink's own protocol gains beyond hops, price and power of the trays, time to market, which is
# the text's reason for the first tray.
#
# Of the placements: what the cores of a chip tell each other; that copies of a token to one chip or rack can be merged (the table
# shows the bytes, the steps charge one for each expert, in two bytes); that CP could merge outputs after the values are
# expanded, with a quarter of the bytes, and share out the rest of the layer; experts that are hotter than others; pipelines over two
# domains by EFA, which would let NL32x2 hold what it cannot. Prefill, of which the text says that the larger domain does not
# help it, is not in these ratios.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# A larger switch shortens the path, it does not widen it: pay for it in decode at small batch, not in training. A larger domain pays
# when the weights no longer stream through the smaller one in a token's time.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How many planes would a 320-lane switch need in a rack of 36 chips on trays of two?
#
# ```{admonition} Answer
# :class: dropdown
# 40 ports of x8 take all 36 chips: one plane.
# ```
#
# **2.** Why do two planes of NL72x2 still need up to three between two chips of a rack?
#
# ```{admonition} Answer
# :class: dropdown
# From A to B on another tray: the board switch, a chip on A's tray that shares B's plane, the rack switch.
# ```
#
# **3.** A decode step has 58 expert layers with two all-to-alls each. What do 1.6 us less for each save?
#
# ```{admonition} Answer
# :class: dropdown
# $58 \times 2 \times 1.6 = 186$ us a token: a few percent of a step of some milliseconds.
# ```
#
# **4.** At how many tokens/s a user does the wall of NL32x2 stand at 4T parameters in MXFP8 (8.25 bits)?
#
# ```{admonition} Answer
# :class: dropdown
# 4T are 4.125 TB, which 64 chips of 4.9 TB/s stream in 13.2 ms: 76 tokens/s, without cache and latency.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
delays = used.entity.isin([compare.STACK, compare.SWITCH]) & used.quantity.isin(["hop_s", "switch_s"])
used = used[used.entity.isin([*both, "trn3-switched", "pex90144"]) | delays]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
