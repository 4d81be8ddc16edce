# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 9
#     part: Understand
# ---

# %% [markdown]
# # Torus or switch?

# %% tags=["parameters"]
system: str = "trn3-nl32x2-pcie160"
torus_system: str = "trn3-nl32x2-torus"
model: str = "deepseek-v3"
tokens_per_chip: float = 32.0

# %% tags=["hide-input"]
import math

import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import torus_or_switch as tables
from trnbook.shared import case, ledger, placements
from trnbook.shared import fabrics as compare
from trnmodel.evidence import score
from trnmodel.evidence import tables as evidence
from trnmodel.fabric import build, expert_exchange, flow, what_if
from trnmodel.units import GB, KIB, MIB, format_quantity

spec, torus, m = tm.system(system), tm.system(torus_system), tm.model(model)
guard.neuroncore(system=spec, torus_system=torus)
guard.need(torus.domain_chips > 1, f"torus_system = {torus.id!r} is a single chip")
guard.routes(model=m)
guard.within(1e-3, 1e9, tokens_per_chip=tokens_per_chip)
guard.need(spec.domain_chips > 1, f"system = {spec.id!r} is a single chip")
guard.need(spec.id != torus.id, f"system = {spec.id!r} must be another one than torus_system")

FAMILY = ["trn2-ultraserver", "trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", common.LANE_MAP]
read = tables.readings(spec, torus)
series = list({it.id: it for both in read.values() for it in both}.values())
everyone = list({it.id: it for it in [*map(tm.system, FAMILY), *series]}.values())

# %% tags=["hide-input"]
rates = compare.capacities(everyone)
slots, bound = (rates.set_index(["system", "scope"])[name] for name in ("all_to_all_bytes_per_s", "bound"))
gains = tables.gains(spec, torus)
missed = evidence.table("collective_misses")
off = missed.groupby("system").ratio.median()
ours = ", ".join(tables.estimated(series))
Markdown(
    common.card(
        (gains.rack[0], gains.rack.min(), gains.rack.max()),
        f"the all-to-all of a chip inside a rack of {spec.name} over that of {torus.name}"
        + ("; the band is other readings of their lanes" if len(gains) > 1 else ""),
        unit="times",
        mark="ideal",
        rival=f"{torus.name} with {format_quantity(slots[torus.id, 'rack'], 'B/s', 3)} of each chip in its rack against "
        f"{format_quantity(slots[spec.id, 'rack'], 'B/s', 3)}; over the whole domain it is {tables.describe_gains(gains, 'world')}",
        proof="Check: numbers that are not ours",
        more=f"In the rack it is {tables.describe_gains(gains, 'rack')}. Over all {tm.units.counted(spec.domain_chips, 'chip')} it is "
        f"{format_quantity(slots[spec.id, 'world'], 'B/s', 3)} against {format_quantity(slots[torus.id, 'world'], 'B/s', 3)}, and what "
        f"bounds there are the {bound[spec.id, 'world']} links. Ideal are the links alone, free to take any path"
        f"{f' (the rate of a link is our estimate, D, in {ours})' if ours else ''}; published runs of collectives take {off.min():.0f} to "
        f"{off.max():.0f} times (medians) what `tm.collective` says of the links.\n\n"
        + ledger.rests_on(*ledger.estimated(torus, "scaleup_bytes_per_s_per_dir")),
    )
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("torus-or-switch")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(common.of_fabric(spec)),
    caption="What this chapter calls things; confidence D is our own estimate",
    download="notation",
)

# %% [markdown]
# **All-to-all**: every chip sends a different block to every other, as experts of a mixture do twice a layer. Its
# **capacity** is the largest equal rate that all pairs sustain at once (maximum concurrent flow), an upper bound of what any
# routing reaches; **oversubscription** of a fabric is what a chip can inject over what it can so deliver, of a tier the same
# for the chips that the tier joins.
#
# ## The model
#
# A torus sends a message over $d$ links on the way, and every link carries for others. With $N$ chips, $n_i$ links of rate
# $B_i$ a chip along axis $i$, and mean distance $\bar d_i = \lfloor k_i^2/4 \rfloor / k_i$ in a ring of $k_i$, each pair has
#
# $$ \lambda = \min_i \frac{n_i B_i}{N\,\bar d_i} . $$
#
# In a rack of switches the backplane lanes of a chip carry everything that is not for its own tray. An all-to-all of a send
# buffer of $m$ bytes then takes $t = L + \frac{m}{N\lambda}$, with $L$ the latency of the worst pair.
#
# **By hand.** The 4x4x4 torus of Trainium3 is thinnest along Z: two links of 128 GB/s, mean distance 1:
# $\lambda = 2 \times 128/(64 \times 1) = 4$ GB/s. Between the two racks of NL32x2, 32 chips send to 32 others over 16 lanes of
# 8 GB/s each: $32 \times 128/32^2 = 4$ GB/s. The same.

# %%
by_hand = [2 * 128 * GB / 64, 32 * 128 * GB / 32**2]
assert by_hand == [tm.topology(name).all_to_all_bytes_per_s_per_pair() for name in FAMILY[1:3]]
" and ".join(format_quantity(rate, "B/s") for rate in by_hand)

# %% [markdown]
# ## Inside the rack and across

# %%
charts.bars(
    rates,
    x="scope",
    y="all_to_all_bytes_per_s",
    color="system",
    caption=f"All-to-all: {gains.rack[0]:.2f} times in a rack, {gains.world[0]:.2f} over the domain",
    under=f"{spec.id} over {torus.id}: {tables.describe_gains(gains, 'rack')} in a rack, {tables.describe_gains(gains, 'world')} over the domain; ideal",
)

# %%
charts.table(
    rates.rename(columns={"oversubscription": "injection_over_delivered"}),
    caption="All-to-all of one chip to all others of its scope, one way: an upper bound, of free multipath and chips that forward",
    download="capacities",
)

# %% tags=["hide-input"]
over = rates.set_index(["system", "scope"]).oversubscription
tiers = compare.tiers(everyone)
tiered = spec.id if spec.id in set(tiers.system) else FAMILY[2]
own = ", ".join(
    f"{row.tier} {row.lanes:g}:{row.delivered_lanes:g}" for row in tiers[tiers.system == tiered].itertuples()
)
counts = "; ".join(
    f"{tm.system(name).name} {over[name, 'rack']:.2f} times in a rack and {over[name, 'world']:.2f} over the domain"
    for name in dict.fromkeys([tiered, spec.id, torus.id])
)
Markdown(
    f"The deep dive says that a torus is oversubscribed and the switched racks are not. Tier by tier that is so: what a chip of "
    f"{tm.system(tiered).name} sends into a tier, the tier hands on to the chips that it joins ({own}, in lanes or links); a torus has no tier, each link ends "
    f"at another chip. Over all lanes at once a chip still injects more than an all-to-all delivers: {counts}. That counts lanes "
    f"which reach one tray or one chip alone."
)

# %%
charts.table(
    tiers, caption="Each tier for itself: lanes of a chip into it, and those that it hands on", download="tiers"
)

# %% [markdown]
# **How far below the bound?** Free multipath is more than a router does. Where every hop splits a pair evenly over all that
# lead on (ECMP), the switched racks lose little; where each pair takes one path, links carry whole pairs. By hand in a rack of
# NL32x2: 30 pairs of a chip leave its tray over 8 links of 64 GB/s, so that some link has 4 of them, and the chip at most
# $64/4 \times 31 = 496$ GB/s. That is with paths dealt out perfectly: a hash puts more on some link, and all pairs wait for it.

# %%
format_quantity(64 * GB / math.ceil(30 / 8) * 31, "B/s")

# %%
routed = compare.routings(everyone)
even, whole = ((routed[f"{name}_bytes_per_s"] / routed.free_bytes_per_s).min() for name in ("even", "whole"))
charts.table(
    routed,
    caption=f"All-to-all of a chip: freely split is the bound, evenly {even:.0%} of it or more; one path a pair, at most, {whole:.0%}",
    download="routings",
    file_only=True,
)

# %% [markdown]
# ## From which message on does bandwidth rule?

# %%
sizes = 2.0 ** np.arange(10, 31)
rack = tables.all_to_all(series, sizes, scope="rack")
crossings = tables.crossovers(everyone)
mine = crossings[crossings.system.isin([it.id for it in series]) & (crossings.scope == "rack")]
charts.lines(
    rack,
    x="message_bytes",
    y="time_s",
    color="system",
    log_x=True,
    log_y=True,
    caption="Where an all-to-all bends, latency gives way to bandwidth",
    under="in a rack, ideal; at "
    + ", ".join(f"{format_quantity(row.crossover_bytes, 'B', 2)} ({row.system})" for row in mine.itertuples()),
)

# %%
charts.ranges(
    crossings[crossings.scope == "world"],
    x="crossover_bytes",
    y="system",
    log_x=True,
    caption="Bandwidth bounds an all-to-all from this size on",
    under="send buffer of a chip, over the domain; a bar is AWS's 1 to 2 us a hop",
)

# %% tags=["hide-input"]
low, high = 16 * KIB, MIB
inside = crossings[(crossings.per_pair_bytes <= high) & (crossings.per_pair_bytes >= low)]
Markdown(
    f"The text puts the saturation of a 3D torus between 16 KB and 1 MB. Counted as the buffer of a chip ours lies between "
    f"{format_quantity(crossings.crossover_bytes_low.min(), 'B', 3)} and "
    f"{format_quantity(crossings.crossover_bytes_high.max(), 'B', 3)}; counted as the message to one other chip "
    f"{len(inside)} of {len(crossings)} cases are inside the text's range. The "
    f"width of a bar is that of AWS's 1 to 2 us a hop."
)

# %% [markdown]
# ## What dense models do: all-reduce
#
# An all-reduce sends round rings of neighbours, and that is what a torus is made of.

# %%
reduced = tables.collective_times(series, "all_reduce", sizes[::2])
last = reduced[reduced.message_bytes == reduced.message_bytes.max()].set_index("system").time_s
others = ", ".join(f"{name} {time / last[spec.id]:.2f}" for name, time in last.items() if name != spec.id)
charts.lines(
    reduced,
    x="message_bytes",
    y="busbw_bytes_per_s",
    color="system",
    log_x=True,
    caption=f"All-reduce of {format_quantity(sizes[-1], 'B', 1)}: times differ {last.max() / last.min():.2g}-fold",
    under=f"over the domain, over the time of {spec.id}: {others or 'nothing beside'}; band: nine of ten measurements",
)

# %% [markdown]
# Between steps the data waits in memory. Trainium3 passes it from SBUF to SBUF, says the text; on Trainium1 and 2 AWS counts
# reads and writes of HBM, four for each chunk that passes two ranks in an all-gather and six in a reduce-scatter, and three
# and four with KangaRing, which exists for that reason (`buffers="hbm"`).

# %%
waiting = tables.buffer_places(["trn1.32xlarge", "trn2.48xlarge", torus.id], GB)
charts.table(
    waiting,
    caption=f"All-reduce of 1 GB through HBM: links bound {(waiting.bound == 'links').sum()} of {len(waiting)} cases, HBM the others",
    download="buffers",
)

# %% [markdown]
# ## What it means for a mixture of experts

# %%
experts = placements.exchanges(m, series, tokens_per_chip * 2.0 ** np.arange(-4, 6))
placed = experts[experts.tokens_per_chip == tokens_per_chip]
steps = placed.set_index(["system", "experts_over"]).step_s
inside = ", ".join(f"{it.id} {format_quantity(steps[it.id, 'rack'], 's', 3)}" for it in series)
here_s = placed[placed.experts_over == "rack"].step_s
charts.lines(
    experts[experts.experts_over == "rack"],
    x="tokens_per_chip",
    y="step_s",
    color="system",
    log_x=True,
    log_y=True,
    caption=f"Dispatch and combine take {format_quantity(here_s.min(), 's', 2)} to {format_quantity(here_s.max(), 's', 2)}",
    under=f"a decode step of {m.id}, experts over a rack, {tm.units.counted(tokens_per_chip, 'token a chip')}: {inside}",
)

# %%
shown = "system experts_over chips dispatch_bytes layer_s step_s latency_share".split()
lnc = "; one rank a chip, an LNC that AWS has announced and the SDK does not allow" if placed.announced.any() else ""
charts.table(
    placed[shown],
    caption=f"Dispatch and combine of one decode step of {m.id}, {tm.units.counted(tokens_per_chip, 'token a chip')}; the share of latency is what "
    f"empty messages take by the same algorithm{lnc}",
    download="experts",
)

# %% tags=["hide-input"]
apart = steps[spec.id, "world"] > 1.01 * steps[spec.id, "rack"]
why = " That is why the text places experts within a rack and something else, tensor or context parallelism, across the pair."
Markdown(
    f"Spread over the whole domain instead, the same step takes {format_quantity(steps[spec.id, 'world'], 's', 3)} on {spec.name} and "
    f"{format_quantity(steps[torus.id, 'world'], 's', 3)} on {torus.name}.{why if apart else ''}"
)

# %% [markdown]
# These times are bytes and start-ups. The one published dispatch and combine of Trainium2 (deepep-trn, one chip) takes longer, because
# its collective cannot say where rows land inside a server: each rank reserves a slot of the whole send buffer for every other one, and
# copies all of these buffers through SBUF before and after.

# %% tags=["hide-input"]
qwen, ranks, tokens = tm.model("qwen3-30b-a3b"), 4, 128
shape = tokens, qwen.hidden_size, 128, 8, ranks  # as measured: 128 experts, 8 of them per token
there_s = float(expert_exchange.dispatch_s(*shape, launch="overlapped"))
back_s = float(expert_exchange.combine_s(*shape, per_choice=True, launch="overlapped"))
Markdown(
    f"At {tokens} tokens per rank of {qwen.id} on {ranks} ranks, `expert_exchange` gives {format_quantity(there_s, 's', 3)} for a dispatch and "
    f"{format_quantity(back_s, 's', 3)} for a combine that sends every chosen expert's row back; measured were 258 and 777 µs. Both hold "
    "the launch of a call. Nobody has measured such an exchange inside a compiled graph, so that decode steps here have no slots."
)

# %% [markdown]
# ## Check: numbers that are not ours
#
# **Closed form.** The linear programme of the torus must give the textbook formula above, and does, to rounding:

# %%
ring = torus if torus.fabric == "torus" else tm.system("trn2-ultraserver")
closed = flow.torus_bytes_per_s_per_pair(ring.torus_shape, build.link_rates(ring))
error = tm.topology(ring).all_to_all_bytes_per_s_per_pair() / closed - 1
f"{format_quantity(closed, 'B/s')} a pair, error {charts.tables.percent(error)}"

# %% [markdown]
# **The text's two claims** about oversubscription and message size, against the graph: above. **AWS's own library** uses a
# one-shot mesh up to a documented size and rings after it. Ours is free to choose:

# %%
switching = tables.library_switch(["trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", torus.id])
charts.table(switching, caption="All-reduce: up to which message one shot is fastest", download="library")

# %% tags=["hide-input"]
Markdown(
    f"The model leaves the one-shot mesh at {switching.ratio.min():.1f} to {switching.ratio.max():.1f} times the documented "
    f"size, and at {switching.set_index('system').ratio['trn2.48xlarge']:.1f} times on trn2.48xlarge, for which the thresholds "
    f"are most likely meant."
)

# %% [markdown]
# **The prediction itself.** The runs of AWS's own test have left one constant in the model, the launch of that test. Each run is
# asked for below with that launch, on the two machines that may have made it.

# %%
likely = missed[missed.system.str.startswith("trn1")]
charts.lines(
    likely.rename(columns={"ratio": "measured_over_predicted"}),
    x="message_bytes",
    y="measured_over_predicted",
    color="series",
    log_x=True,
    log_y=True,
    caption=f"Measured runs take {likely.ratio.median():.1f} times what is predicted",
    under=f"in the median, were all runs made on {likely.system.iloc[0]}",
)

# %% tags=["hide-input"]
spread = missed.groupby("system").ratio.quantile([0.25, 0.5, 0.75]).unstack()
near = likely.groupby("series").ratio.median().sort_values(kind="stable")
large, small = likely[likely.message_bytes >= 16 * MIB].ratio, likely[likely.message_bytes <= 64 * KIB].ratio
machines = " and ".join(
    f"{row[0.5]:.1f} times on {name} (half of the rows {row[0.25]:.1f} to {row[0.75]:.1f})"
    for name, row in spread.iterrows()
)
Markdown(
    f"{len(likely)} rows of {likely.series.nunique()} runs took {machines} what the public call predicts. Messages from 16 MiB took "
    f"{large.median():.1f} times as long ({large.min():.1f} to {large.max():.1f}). Messages to 64 KiB took {small.min():.2f} to "
    f"{small.max():.0f} times as long, because some versions of the test time the device and others the "
    f"host, and no run states which. By run the median is {near.iloc[0]:.2f} ({near.index[0]}) to {near.iloc[-1]:.1f} ({near.index[-1]})."
)

# %% [markdown]
# **The launch and the passes.** The charts above compare fabrics, so they count neither. A program that calls a collective
# outside a graph pays for both. First, the host launches the call, and the time depends on the software that launches it more than on the
# message or the ranks. Second, the DMA queues of each rank pass its whole buffer: once for an all-gather or a reduce-scatter, twice
# for an all-reduce or a broadcast. The measured time of a large message hardly depends on the ranks, whether they share a
# chip or fill eight. Links between the chips of an instance are faster than that, so they do not bound these calls. Between two
# instances the passes and the network cards work one after the other. The table leaves each run out of its own prediction.

# %%
charts.table(
    evidence.table("collective_launchers"),
    caption="Launch of a collective by what calls it: the middle half of the runs on Trainium2",
    download="launchers",
)

# %%
charts.table(
    evidence.table("collective_host_calls"),
    caption="Error of calls on Trainium2 that take more than three launches, with the run left out",
    download="host-calls",
)

# %% [markdown]
# **Published runs.** 185 measured rows tell of collectives on Neuron. Most are examples of AWS's own test, which name no
# instance and mix versions of the software, so each run gets two constants of its own and none are pooled: a floor and a rate,
# $t = t_0 + f m / b$, with $f m$ the bytes that a rank must send. These fits interpolate. Left out one size at a time, a run predicts the sizes between
# its ends well; where the largest is left out nothing is left that says what the rate is.

# %%
runs = evidence.table("collective_fits")
charts.table(runs, caption="Floor and bus bandwidth of each published run, with its worst row", download="runs")

# %%
charts.lines(
    evidence.table("collective_curves"),
    x="message_bytes",
    y="busbw_bytes_per_s",
    color="series",
    shape="what",
    log_x=True,
    log_y=True,
    caption=f"{(runs.worst_error < 0.05).sum()} of {runs.worst_error.count()} runs within 5 % by two constants",
    under=f"the one that changes its algorithm with the size (allr-16) is off by up to {runs.worst_error.max():.0%}",
)

# %%
reached = evidence.table("collective_shares")
charts.table(reached, caption="What a run reaches of the modelled fabric, were it this system", download="shares")

# %% tags=["hide-input"]
elsewhere = reached[(reached.share > 1) & (reached.system == "trn1.32xlarge")]
two = reached[(reached.series == "allr-64-two-nodes") & (reached.system == "trn1.32xlarge")].iloc[0]
contract_rows = evidence.table("collective_contract")
rates_printed = evidence.table("collective_recomputed")
gib = ", ".join(sorted(rates_printed[rates_printed.unit == "GiB/s"].series.unique()))
Markdown(
    f"Nothing may reach more than its fabric, so {', '.join(elsewhere.series)} cannot be Trn1. Two servers of 32 ranks each are "
    f"the shape of trn1.32xlarge: that run reaches {two.share:.0%} of the model's rate. Floors are {reached.floor_ratio.min():.1f} to "
    f"{reached.floor_ratio.max():.0f} times the latency of the fabric alone: they are launches, not links. "
    f"`tm.collective(..., launch_s=, rate_share=)` takes both. Every printed rate was recomputed from bytes and microseconds: "
    f"{len(rates_printed)} rates, of which {gib} print GiB/s under the label GB/s."
)

# %%
charts.table(
    score.reasons(score.excluded(score.shipped("collective")))[["reason", "rows"]],
    caption=f"{(contract_rows.use == '').sum()} of {len(contract_rows)} rows set aside, and why",
    download="set-aside",
)

# %%
charts.table(
    contract_rows.drop(columns="note"), caption="Every row and what it is used for", download="contract", file_only=True
)

# %% [markdown]
# **Once a graph, not once a collective.** A graph that holds a collective pays the runtime's barrier, which grows with each
# doubling of the ranks; eleven further collectives add next to nothing. It is kept apart from the collective
# (`graph_barrier_s`), and a pair of ranks pays none.

# %%
barriers = evidence.table("collective_barriers")
assert barriers.error.abs().max() < 0.03
charts.table(
    barriers,
    caption=f"Graphs with none, one and twelve all-reduces of 32 KiB; the line is within {barriers.error.abs().max():.0%}",
    download="barriers",
)

# %% [markdown]
# ## What moves the answer

# %%
charts.table(what_if.readings(torus.id), caption=f"Other readings of what {torus.name} is", download="readings")

# %% [markdown]
# * **Where the experts live.** In a rack the switch pays; over the pair it does not.
# * **The lanes of a Trainium3 torus** are printed nowhere in full; the table above has the alternative, and the answer both.
# * **The lanes of a switched chip.** AWS's page prints 32, 40 and 16 (board, backplane, cross-rack), the deep dive 64, 64 and 16:
#   a rack then gains less over the torus, the domain the same. How many switches carry AWS's lanes is our estimate (D).
# * **Latency of a chip that forwards.** AWS claims that Trainium3 forwards on its own; then the switched racks are faster still
#   for small messages.
#
# ## What is left out
#
# Contention between collectives, failed links (chapter 4), paths that a hash picks, the cost of the switches, and power. Prices of either fabric are in a later chapter.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Switches buy all-to-all inside a rack, by AWS's own lane map less of it. Between racks the cables decide, and for dense models
# rings of neighbours come close.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A 4x4 torus has four links of 128 GB/s a chip. What does each chip get of an all-to-all?
#
# ```{admonition} Answer
# :class: dropdown
# Mean distance 1 in each ring of four: $\lambda = 2 \times 128/16 = 16$ GB/s a pair, times 15 others is 240 GB/s of the 512 that
# it can inject.
# ```
#
# **2.** How many cross-rack lanes a chip would NL32x2 need for its whole domain to be as fast as its rack?
#
# ```{admonition} Answer
# :class: dropdown
# A rack gives 17.07 GB/s a pair. Across, 32 lanes-bundles serve 32 x 32 pairs: $17.07 \times 32 = 546$ GB/s a chip, 68 lanes of
# 8 GB/s instead of 16.
# ```
#
# **3.** Why does the torus of two racks give a rack of its own no more than the whole?
#
# ```{admonition} Answer
# :class: dropdown
# Half of a Z ring lies in the rack: two of its four chips, one link between them instead of two, and half as many chips to serve.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
delays = used.entity.isin([compare.STACK, compare.SWITCH]) & used.quantity.isin(["hop_s", "switch_s"])
limits = (used.entity == "neuronlink-v3") & (used.quantity == "algorithm_max_bytes")
runtimes = used.entity.str.startswith("neuron-runtime-") | (used.entity == "nccom-test")
used = used[used.entity.isin([*(it.id for it in everyone), "trn3-switched"]) | delays | limits | runtimes]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
