# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 19
#     part: Understand
# ---

# %% [markdown]
# # How much time is lost?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
systems: list[str] = ["trn3-nl32x2-pcie160", "trn3-nl32x2-torus", "trn2-ultraserver", "gb200-nvl72"]
chips: int = 16384
model: str = "llama-3.1-405b"
swap: str = "hot"
fleet: str = "borrowed"
replica_chips: int = 8
replicas: int = 9
replicas_needed: int = 8

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import goodput as tables
from trnbook.chapters import goodput_uptimes as uptimes
from trnbook.shared import case, ledger, software_kinds
from trnbook.shared import fabrics as compare
from trnmodel.catalog import load
from trnmodel.formulas import spares
from trnmodel.reliability.goodput import limping
from trnmodel.reliability.redundancy import SWAPS, guards, lane_pair
from trnmodel.units import DAY, HOUR, MINUTE, TB, format_digits, format_duration, format_within

spec, m = tm.system(system), tm.model(model)
guard.one_of(SWAPS, swap=swap)
guard.one_of([name for name, entity in load.entities().items() if entity.kind == "fleet"], fleet=fleet)
guard.within(1, 1e6, chips=chips, replica_chips=replica_chips, replicas=replicas, replicas_needed=replicas_needed)
guard.need(replicas_needed <= replicas, f"replicas_needed = {replicas_needed} is more than replicas = {replicas}")
names = list(dict.fromkeys([spec.id, *(tm.system(name).id for name in systems)]))
for name in names:
    guard.links(**{"system" if name == spec.id else "systems": tm.system(name)})
those, ask, called = (
    tm.fleet(fleet),
    {"chips": chips, "model": m, "fleet": tm.fleet(fleet)},
    software_kinds.names(names),
)
goodputs = tables.jobs(names, called, **ask)
here, other_swap = called[spec.id], next(word for word in SWAPS if word != swap)
job, otherwise = goodputs[here, swap], goodputs[here, other_swap]
how = tables.HOW

# %% tags=["hide-input"]
others = [(one.goodput, name, one) for (name, policy), one in goodputs.items() if policy == swap and name != here]
shares = [100 * float(end) for end in (job.goodput, job.low, job.high)]
mapped = {tm.system(one).name: tm.goodput(one, swap=swap, **ask) for one in compare.lane_maps(spec)}
_, next_best, best = max(others, key=lambda one: one[0]) if others else (None, "", None)
Markdown(
    common.card(
        shares if tables.percent(job)[0].isdigit() else tables.percent(job),
        f"of the time of all chips is work that is kept, in training {m.id} on {tm.units.counted(chips, 'chip')} of {here}, {how[swap]}, "
        f"{format_duration(float(job.mtbf_s))} between interruptions; with {how[other_swap]} it is {tables.percent(otherwise)}",
        unit="%",
        mark=str(job.basis),
        rival=f"{next_best} with {tables.percent(best, str(best.basis))}, {format_duration(float(best.mtbf_s))} between interruptions"
        + (
            ", links of one of the two counted with its chips"
            if bool(guards(spec)) != bool(guards(best.system))
            else ""
        )
        if others
        else "",
        rank="Beside it"
        if not others
        else "Level"
        if tables.percent(best) == tables.percent(job)
        else "Next best"
        if best.goodput < job.goodput
        else "Ahead of it",
        alone="" if others else "no other system was asked for",
        proof="Check: jobs whose uptime was printed",
        more="".join(
            f"By AWS's own lane map, with {f'{one.system.scaleup_lanes_redundant:g}' if one.system.scaleup_lanes_redundant else 'no'} spare lanes a chip, it is {tables.percent(one)}. "
            for one in mapped.values()
        )
        + "**No failure rate of Trainium2 or Trainium3, of a NeuronSwitch or of a backplane is published.** Rates of "
        f"{'chips lie between those of fleets of GPUs' if fleet == 'borrowed' else f'chips are those of {those.name}'}. The rate of a backplane lane is inferred from what "
        "GB200 NVL72 loses beyond H100, and cables between racks fail as those of TPU v4 and of Alibaba's network do. Every rack has the same rates. The band moves each rate and time to its ends by itself and joins them as squares. "
        + (
            ""
            if chips >= uptimes.LARGE
            else f"**A job of fewer than {uptimes.LARGE:,} chips loses more than this**: rates are those of large jobs. "
        )
        + "\n\n"
        + ledger.rests_on(*ledger.estimated(those, *(name for name in tables.INPUTS))),
    )
)

# %% tags=["hide-input"]
lost = tables.losses(goodputs)
assert np.allclose(lost.groupby("of").time_share.sum(), 1)
largest = max(list(tables.PARTS)[1:], key=lambda name: float(getattr(job, name)))
charts.stacks(
    lost,
    x="of",
    y="time_share",
    color="part",
    caption=f"Most is lost to {tables.PARTS[largest].split(' that')[0]}: {format_digits(100 * float(getattr(job, largest)), 2)}% on {here}",
    under=f"{m.id} on {tm.units.counted(chips, 'chip')}, fleet {fleet}; a bar is all chips all the time, its parts sum to 1 (extrapolated)",
)

# %% tags=["hide-input"]
charts.table(
    tables.compare(goodputs),
    caption="The same as figures, with bands; between checkpoints is the best interval",
    download="beside",
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("goodput")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(common.notation(tables.SYMBOLS, "from"), caption="What this chapter calls things", download="notation")

# %% [markdown]
# ## Useful time is a product
#
# Of all chips some stand by; of the time some has too few chips; of a job's own time some goes to checkpoints, to work that is done again and
# to restarts; and while it runs it waits for its slowest rack:
#
# $$ G = (1 - s)\, A\, u\, v, \qquad u = e^{-\lambda R}\, \frac{\tau}{\tau + \delta}\, \frac{x}{e^x - 1}, \qquad x = \lambda (\tau + \delta) . $$
#
# It is also called goodput, a word that servers use for requests within their limits. Each chip and each link that nothing stands in for adds its rate to $\lambda = 1/M$. Failures are independent and have no memory.

# %% tags=["hide-input"]
own, rate = chips * those.interruptions_per_chip_s, float(1 / job.mtbf_s)
product = (1 - float(job.spare_lost)) * float(job.ready_share) * float(job.useful_share) * float(job.speed)
assert np.isclose(product, float(job.goodput))
Markdown(
    f"**By hand.** Eight chips have {those.interruptions_per_chip_s * 8 * 1000 * DAY:.2f} interruptions in 1,000 days, {tm.units.counted(chips, 'chip')} one in {format_duration(1 / own)}; "
    f"{f'links and switches that nothing stands in for have one in {format_duration(1 / (rate - own))}, ' if rate > own * 1.0001 else ''}so that the job is interrupted every "
    f"{format_duration(float(job.mtbf_s))}. It restarts in {those.restart_s / MINUTE:.1f} min: 1 - exp(-{those.restart_s / MINUTE:.1f} / {format_digits(float(job.mtbf_s) / MINUTE, 3)}) = "
    f"{1 - float(job.running_share):.1%} of its time. All together (1 - {float(job.spare_lost):.4f}) x {float(job.ready_share):.4f} x {float(job.useful_share):.4f} x "
    f"{float(job.speed):.4f} = {product:.3f}; the package says {float(job.goodput):.3f}."
)

# %% tags=["hide-input"]
counted = tm.fleet("llama-3-h100")
Markdown(
    f"What stops a job of GPUs, by count (Llama 3, {sum(counted.interruptions.values()):g} interruptions in 54 days): "
    + ", ".join(f"{part} {share:.0%}" for part, share in counted.causes.items())
    + ". Hosts, scale-out network, software and the NVLinks of a board are in the rate of a chip; lanes of a scale-up backplane and cables between racks are not, and come on top."
)

# %% [markdown]
# ## How often to write a checkpoint?
#
# Short intervals write much, long ones lose much. Young and Daly approximate the best interval; the exact one is
# $\tau = \bigl(1 + W_0(-e^{-1-\lambda\delta})\bigr)/\lambda$ with Lambert's function.

# %% tags=["hide-input"]
rules = tables.rules(job)
size = m.total_params * those.checkpoint_bytes_per_param
young = np.sqrt(2 * float(job.write_s) / rate)
assert np.isclose(young, float(job.young_s))
Markdown(
    f"**By hand.** {format_digits(m.total_params / 1e9, 3)} billion parameters x {those.checkpoint_bytes_per_param:g} B = {format_digits(size / TB, 3)} TB; at "
    f"{format_digits(those.checkpoint_bytes_per_s / TB, 3)} TB/s a checkpoint takes {format_digits(float(job.write_s), 2)} s. Young: sqrt(2 x "
    f"{format_digits(float(job.write_s), 3)} s x {float(job.mtbf_s):,.0f} s) = {young:,.0f} s; the package says {float(job.young_s):,.0f} s, exactly {float(job.interval_s):,.0f} s."
)

# %% tags=["hide-input"]
gap = rules.lost_share.max() / rules.lost_share.min() - 1
charts.table(
    rules.assign(lost=rules.lost_share.map("{:.3%}".format)).drop(columns="lost_share"),
    caption="Rules for the interval: "
    + (f"the worst loses {gap:.1%} more than the best" if gap > 5e-4 else "it does not matter which"),
    download="rules",
)

# %% tags=["hide-input"]
curve = tables.over_intervals(job, m)
at = curve[curve.of == tm.units.counted(chips, "chip")]
off = [
    float(np.interp(k * float(job.interval_s) / MINUTE, at.interval_min, at.lost_share) - at.lost_share.min())
    for k in (2, 10)
]
charts.lines(
    curve,
    x="interval_min",
    y="lost_share",
    color="of",
    log_x=True,
    caption=f"Twice the best interval costs {format_digits(100 * off[0], 1)}%, ten times {format_digits(100 * off[1], 2)}%"
    if off[0] > 1e-4
    else "The interval hardly matters here",
    under=f"{m.id} on {here}, {how[swap]}; without spares and slow racks. The best for {tm.units.counted(chips, 'chip')} is {format_duration(float(job.interval_s))}",
)

# %% [markdown]
# ## What one failed part takes with it
#
# From the graph of each domain: chips that stand still while the part is swapped, and the rate that the slowest of the others keeps, of what it
# sends or of an all-to-all in its rack or domain. With racks drained, each of these empties a rack.

# %% tags=["hide-input"]
parts = tables.idle([name for name in names if tm.system(name).domain_chips > 1], called)
if len(parts):
    view = charts.table(
        parts, caption="What one failed part takes, while trays are swapped in a running rack", download="idle"
    )
else:
    view = Markdown(f"{here} is a single chip: nothing else stands still with it.")
view

# %% [markdown]
# ## What spare lanes are worth
#
# A chip with more backplane lanes than it uses, and switches at their ends, loses nothing when a lane or a switch fails: a spare takes over until the
# part is swapped. Without them the job stops and then limps.
#
# A Trainium3 chip has 16 redundant lanes, and the bill charges them in every rack. In the NL72x2 rack they end on two more switches per plane. In the NL32x2
# rack as drawn, with four switch trays, they end on nothing. SemiAnalysis writes that designs with a fifth tray will exist. The 160-lane switches of the four
# trays have just enough lanes for them too: then a lane may fail, and a switch may not. The table shows these ways beside each other; which of them AWS
# builds is not published.

# %% tags=["hide-input"]
built = tables.alternatives(names, called, **ask)
if len(built):
    view = charts.table(
        built,
        caption="Useful share of the time by what the redundant lanes of a chip end on",
        download="redundant-lanes",
    )
else:
    view = Markdown("No system here has redundant lanes that could end elsewhere.")
view

# %% tags=["hide-input"]
pair = lane_pair(spec)
low, high = (end * 1e6 * HOUR for end in those.range("lane_failures_per_s"))
if pair:
    cases = {"spare lanes": (pair[1], "hot"), "no spare lanes": (pair[0], "hot"), "racks drained": (pair[1], "drain")}
    swept = tables.swept(cases, "lane_failures_per_s", np.geomspace(low / 10, high * 10, 25) / 1e6 / HOUR, **ask)
    swept = swept.assign(lane_failures=swept.lane_failures_per_s * 1e6 * HOUR)
    ends = {
        name: np.interp([low, those.lane_failures_per_s * 1e6 * HOUR, high], one.lane_failures, one.goodput)
        for name, one in swept.groupby("of")
    }
    gains = 100 * (ends["spare lanes"] - ends["no spare lanes"])
    view = charts.lines(
        swept,
        x="lane_failures",
        y="goodput",
        color="of",
        log_x=True,
        caption=f"{spec.scaleup_lanes_redundant:g} spare lanes are worth {format_digits(min(gains), 2)} to {format_digits(max(gains), 2)} points",
        under=f"{m.id} on {tm.units.counted(chips, 'chip')} of {here}, spare lanes with and without switches; our range of a lane is {format_digits(low, 2)} to {format_digits(high, 2)} in 1e6 h (estimate, D)",
    )
else:
    view = Markdown(f"{here} has no spare backplane lanes, or no switches at their ends.")
view

# %% tags=["hide-input"]
first = (guards(pair[1]) if pair else guards(spec))[:1]
Markdown(
    f"At our middle rate of {format_digits(those.lane_failures_per_s * 1e6 * HOUR, 2)} failures of a lane in a million hours they are worth {format_digits(gains[1], 2)} points of the time: "
    f"{format_digits(100 * ends['no spare lanes'][1], 3)}% without, {format_digits(100 * ends['spare lanes'][1], 3)}% with them. "
    f"A {first[0].name} with its {tm.units.counted(first[0].lanes, 'lane')} is one of {first[0].parts}, of which {first[0].spares} may be out. "
    + (
        f"{here} as it is has no switches at the ends of its spare lanes; it stands at {tables.percent(goodputs[here, 'hot'])} with trays swapped."
        if guards(spec)[:1] != first
        else ""
    )
    if pair
    else f"Every {first[0].name} of {here} stands alone: one that fails stops the job and leaves the slowest chip {first[0].left:.0%} of its rate."
    if first
    else f"Links and switches of {here} are counted with its chips: its figures stand higher for that beside systems whose links are counted."
)

# %% [markdown]
# ## Swap while it runs, or drain the rack?
#
# SemiAnalysis writes that operators of an NVL72 must drain the rack before they swap a switch tray, and that AWS's racks with a spare tray need no drain. Of an
# NVL72 the figures for drained racks count for switches, and those for swapped trays for its chips.

# %% tags=["hide-input"]
hours = np.geomspace(0.1, 240, 31)
repairs = tables.swept({word: (spec, policy) for policy, word in how.items()}, "repair_s", hours * HOUR, **ask)
repairs = repairs.assign(repair_h=repairs.repair_s / HOUR)
drained = repairs[repairs.of == how["drain"]]
level = drained.repair_h[drained.goodput >= float(goodputs[here, "hot"].goodput)]
charts.lines(
    repairs,
    x="repair_h",
    y="goodput",
    color="of",
    log_x=True,
    caption=f"Draining is level up to a repair of {format_duration(level.max() * HOUR)}"
    if len(level)
    else "Draining loses more however quick the repair",
    under=f"{m.id} on {tm.units.counted(chips, 'chip')} of {here}; a swap takes {format_duration(those.swap_s)}, a repair {' to '.join(format_duration(end) for end in those.range('repair_s'))} (estimates, D)",
)

# %% tags=["hide-input"]
hot, drain = goodputs[here, "hot"], goodputs[here, "drain"]
Markdown(
    f"Swapping a tray takes {tm.units.counted(hot.failure_domain_chips, 'chip')} out for {format_duration(those.swap_s)}, draining takes {tm.units.counted(drain.failure_domain_chips, 'chip')} for "
    f"{format_duration(those.repair_s)}"
    + (" and does so for a lane that a spare covers" if any(one.spares for one in guards(spec)) else "")
    + (
        f": the job then stops every {format_duration(float(drain.mtbf_s))} instead of {format_duration(float(hot.mtbf_s))}"
        if hot.mtbf_s > 1.1 * drain.mtbf_s
        else ", and the job stops about as often"
    )
    + f". Beside the job stand {tm.units.counted(float(drain.spare_chips), 'chip')} with racks drained, {tm.units.counted(float(hot.spare_chips), 'chip')} with trays swapped. Drained it makes "
    f"{tables.percent(drain)}, swapped {tables.percent(hot)}."
    + (
        " Draining for every link is the worst case; a rack that is left to limp until its next repair lies between."
        if guards(spec)
        else ""
    )
)

# %% [markdown]
# ## How many spares?
#
# Units that are out at a time follow Poisson's law with mean $\mu$: those that fail in the time of a repair. The fewest spares are its quantile.

# %% tags=["hide-input"]
away = own * those.repaired_share * those.swap_s
needed = float(spares.spares_needed(away, those.ready_share))
assert needed * hot.failure_domain_chips == float(hot.spare_chips)
Markdown(
    f"**By hand.** With trays swapped one chip in {format_duration(1 / own)} stops, {those.repaired_share:.0%} of them are taken out for {format_duration(those.swap_s)}: "
    f"{format_digits(away, 2)} trays at a time. {those.ready_share:.1%} of the time {tm.units.counted(needed, 'spare')} {'is' if needed == 1 else 'are'} enough: {tm.units.counted(needed * hot.failure_domain_chips, 'chip')}, "
    f"{format_digits(100 * float(hot.spare_lost), 2)}% of all."
)

# %% tags=["hide-input"]
sizes = sorted({max(1.0, chips * factor) for factor in (1 / 16, 1 / 4, 1, 4)})
charts.table(
    tables.standing_by(spec, those, [round(size) for size in sizes], m),
    caption=f"Chips that stand by for {here}, for {those.ready_share:.1%} of the time whole",
    download="spares",
)

# %% [markdown]
# ## One rack that limps slows all
#
# All wait for the slowest. With $g$ groups of parts, of which each is worn with probability $p$, some rack limps for the share $1 - (1 - p)^g$ of the
# time, and the job then runs at $1/(1 - e + e/l)$ where a share $e$ of a step waits for links that have $l$ of their rate.

# %% tags=["hide-input"]
limps = limping(spec, those, chips)
assert not len(limps) or np.isclose(limps.speed.prod(), float(hot.speed))
if len(limps):
    medians = {name: limps[name].map("{:.2%}".format) for name in ("any", "left", "speed")}
    view = charts.table(
        limps.drop(columns="in_group")
        .assign(**medians)
        .rename(columns={"any": "time that any limps", "left": "rate that is left", "speed": "mean speed"}),
        caption=f"The job runs at {float(hot.speed):.1%} of its speed for racks that limp ({here}, trays swapped)",
        download="limping",
    )
else:
    view = Markdown(f"Links and switches of {here} are counted with its chips: it stops, and never limps.")
view

# %% tags=["hide-input"]
worst = limps.loc[limps.speed.idxmin()] if len(limps) else None
Markdown(
    (
        f"**By hand, {worst.part}.** 1 - (1 - {worst.in_group:.3g})^{worst.groups:,.0f} = {worst['any']:.1%} of the time; then 1 / ({1 - those.exposed_share:g} + {those.exposed_share:g} / "
        f"{worst.left:.3f}) = {1 / (1 - those.exposed_share + those.exposed_share / worst.left):.1%} of the speed. "
        if worst is not None and those.exposed_share < 1 and worst.left
        else ""
    )
    + f"Chips that are merely unequal do it too: where steps vary by 1% from chip to chip, the slowest of {tm.units.counted(chips, 'chip')} takes {float(spares.slowest_of(chips, 0.01)) - 1:.1%} longer than the mean (`step_spread`; 0 here)."
)

# %% [markdown]
# ## A replica that serves
#
# A replica of a few chips is small beside a training job: what counts is how long it is away, and how many stand beside it.

# %% tags=["hide-input"]
charts.table(
    tables.served(called, replica_chips, replicas, replicas_needed, those),
    caption=f"Hours a year that a replica of {tm.units.counted(replica_chips, 'chip')} is away: median of draws, 5th to 95th percentile",
    download="replicas",
)

# %% [markdown]
# The links and switches of its whole domain count, since a replica sends over them. Replicas fail independently here: one rack that is drained takes all
# that it holds.
#
# ## Check: jobs whose uptime was printed
#
# Nothing was fitted to them: the rates are those of the answer, the checkpoint is that of the printed size of model. *Running* is the time that the job is up,
# *useful* the time whose work is kept.

# %% tags=["hide-input"]
printed = uptimes.uptimes(those)
fair = printed[printed.fair]
points = fair.dropna(subset="lost_ratio")
bands = [
    format_within(*(100 * end for end in row), "%").replace(" %", "%")
    for row in printed[["predicted", "predicted_low", "predicted_high"]].to_numpy()
]
bounds = f" ({len(fair) - len(points)} printed as a bound alone)" if len(fair) > len(points) else ""
error = (points.predicted - points.share).abs().median()
charts.table(
    printed[["what", "chips", "measure", "printed"]].assign(
        predicted=bands,
        inside=printed.inside,
        **{"loss over printed": printed.lost_ratio.round(2), "no prediction since": printed.no_prediction},
    ),
    caption=f"{int(printed.inside.sum())} of all {len(printed)} printed uptimes lie in the band, and {int(fair.inside.sum())} of the {len(fair)} that are predictions",
    download="uptimes",
)

# %% tags=["hide-input"]
missed = printed[~printed.index.isin(fair.index) & ~printed.inside]
by_hand = uptimes.rows()[1]
assert fair.inside.any()
trainium = printed.iloc[0]
Markdown(
    f"**{int(printed.inside.sum())} of all {len(printed)} lie in the band, {int(fair.inside.sum())} of the {len(fair)} that are predictions{bounds}; of these the median is {format_digits(100 * error, 2)} points off**; predicted losses are {points.lost_ratio.min():.1f} to {points.lost_ratio.max():.1f} times those printed. "
    f"The only one of Trainium: {trainium.printed} of the time on {trainium.chips:,.0f} chips of Trainium1, here {100 * trainium.predicted:.1f}% ({100 * trainium.predicted_low:.1f} to {100 * trainium.predicted_high:.1f}). "
    + "".join(
        f"{row.what} is not counted: the {row.used_for} was inferred from it. "
        for row in uptimes.rows()
        if row.used_for
    )
    + (
        f"Outside are {', '.join(missed.what)}. People who restart by hand are not in the model: {by_hand.printed} takes {format_duration(uptimes.restart_implied_s(by_hand, those))} for a restart. "
        f"Small jobs lose more than their chips explain: code, storage and people stop them too. Only jobs of at least {uptimes.LARGE:,} chips count as predictions."
        if len(missed)
        else ""
    )
)

# %% [markdown]
# ## What moves the answer
#
# All rates and times are drawn at once between their ends, the same draws for every system; then each is moved by itself.

# %% tags=["hide-input"]
draws = tables.drawn(called, those, pair, chips=chips, model=m, swap=swap)
bars = tables.tornado(draws, here)
if len(bars):
    view = charts.ranges(
        bars,
        x="lost_share",
        y="which",
        log_x=True,
        caption=f"Most hangs on the {bars.which[0]}",
        under=f"{m.id} on {tm.units.counted(chips, 'chip')} of {here}, {how[swap]}; each input from its 5th to its 95th percentile, the others at their values",
    )
else:
    view = Markdown("No input of this fleet has a range.")
view

# %% tags=["hide-input"]
medians = tables.describe_draws(draws)
wins = draws.wins().set_index("answer").wins.drop("spare lanes", errors="ignore")
few, many = (tm.goodput(spec, max(chips * k, 1), swap=swap, model=m, fleet=those) for k in (0.25, 4))
Markdown(
    f"* **Drawn {draws.draws:,} times** {here} makes {medians[here]}"
    + "".join(f", {name} {text}" for name, text in medians.items() if name not in (here, "spare lanes"))
    + (f"; {wins.idxmax()} is first in {wins.max():.0%} of the draws" if len(wins) > 1 else "")
    + ". Rates and times are drawn evenly over factors, so that most draws lose less than the middle of the ends does.\n"
    + (
        f"* **Spare lanes** are worth {medians['spare lanes'].replace('%', '')} points in these draws.\n"
        if pair
        else ""
    )
    + "".join(
        f"* **AWS's own lane map**, with {f'{one.system.scaleup_lanes_redundant:g}' if one.system.scaleup_lanes_redundant else 'no'} spare lanes a chip: {name} makes {tables.percent(one)}.\n"
        for name, one in mapped.items()
    )
    + f"* **The number of chips**: {format_digits(chips / 4, 2)} make {tables.percent(few)}, {format_digits(4 * chips, 2)} {tables.percent(many)}.\n"
    "* **What restarts**: a job that restarts only the replica with the failure loses a part of this; the model restarts all of it."
)

# %% [markdown]
# ## What is left out
#
# Checkpoints that are written while the job runs, which save most of their time; wrong results that nobody notices; failures that come together (power, cooling,
# a bad batch); parts that fail early or wear out; planned maintenance; hours in which people look for the cause. No rate here was measured on Trainium2 or Trainium3:
# the log of one large job would replace most of this chapter. How many days a run takes before anything is lost is chapter 17.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask of a rack what one failed link costs: whether it stops the job, and whether its repair takes a tray or a rack. Then make restarts quick: checkpoints have
# a best interval, a restart has none.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A job has an interruption every 3 h and restarts in 10 min. Which share of its time goes to restarts?
#
# ```{admonition} Answer
# :class: dropdown
# 1 - exp(-10 / 180) = 5.4 %.
# ```
#
# **2.** A checkpoint takes 20 s, the job is interrupted every 3.09 h. What interval does Young advise, and what Daly at the first order?
#
# ```{admonition} Answer
# :class: dropdown
# sqrt(2 x 20 x 11,135) = 667 s, and 20 s less, 647 s: Daly's root is the time from one checkpoint to the next.
# ```
#
# **3.** A rack needs 8 switches a plane and has 10; each is out for a thousandth of the time. How often are more than two out, and how often would one of 8 be, without spares?
#
# ```{admonition} Answer
# :class: dropdown
# About 120 x 10^-9 = 1.2 x 10^-7 of the time (10 choose 3 is 120); without spares 8 x 0.001 = 0.8 %.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = {
    load.facts_rows()[fact_id].source for one in (those, tm.fleet()) for ids in one.sources.values() for fact_id in ids
}
quoted = {
    "lockwood-component-reliability",
    "lockwood-availability",
    "meta-rsc",
    "crusoe-autoclusters",
    "mlsysim-defaults",
    "xuzou-llama3",
    "orbital-gpu-failures",
    "semianalysis-gb200",
    "tpuv4-resiliency",
    "alibaba-hpn",
}
used |= quoted | {row.source for row in uptimes.rows()}
charts.table(
    common.bibliography(used - {"project"}), caption="Sources of the figures in this chapter", download="sources"
)
