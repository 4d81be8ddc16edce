# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 18
#     part: Understand
# ---

# %% [markdown]
# # Where do the watts go?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
experts_model: str = "deepseek-v3"
system: str = "trn3-nl72x2-pcie160"
site: str = "aws-chilled"
air_system: str = "trn3-nl32x2-pcie160"
air_site: str = "aws-air"
systems: list[str] = ["trn2-ultraserver", "hgx-h200", "gb200-nvl72", "mi355x-8"]
input_tokens: int = 4096
output_tokens: int = 512
tokens_per_s_per_user: list[float] = [20.0, 50.0]
claim_tolerance: float = 0.1
assume: list[str] = []

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import power as tables
from trnbook.chapters import power_joules as joules
from trnbook.chapters.power_claims import READINGS, claim_sets, largest, region
from trnbook.chapters.power_rack import compare, rack_power
from trnbook.shared import case, gaps, ledger, software_kinds
from trnmodel.catalog import facilities, load
from trnmodel.evidence import tables as evidence
from trnmodel.power.energy import matmul_rate, one_at_a_time
from trnmodel.units import KW, MW, TB, TFLOP, format_digits, format_within

m, experts_m, spec, air = tm.model(model), tm.model(experts_model), tm.system(system), tm.system(air_system)
places = [name for name, entity in load.entities().items() if entity.kind == "facility"]
guard.one_of(places, site=site, air_site=air_site)
guard.generates(model=m, experts_model=experts_m)
guard.within(1, 1e9, input_tokens=input_tokens, output_tokens=output_tokens)
guard.spans(input_tokens + output_tokens, model=m, experts_model=experts_m)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
guard.within(0.02, 0.5, claim_tolerance=claim_tolerance)
assumed = facilities.assumed(assume)
spec, air = (joules.machine(one, assumed) for one in (spec, air))
chip, place, air_place = (
    spec.chip,
    *(facilities.with_assumptions(facilities.facility(name), assumed) for name in (site, air_site)),
)
names = list(dict.fromkeys([spec.id, air.id, *(tm.system(name).id for name in systems)]))
speeds = sorted(set(tokens_per_s_per_user))
slow, fast = speeds[0], speeds[-1]
called = software_kinds.names(names)
machines = [joules.machine(name, assumed) for name in names]
known = {
    one.id for spec_ in machines for one in (spec_.chip, facilities.power(spec_.chip), facilities.parts(spec_.cooling))
}
guard.one_of(sorted(known | {site, air_site}), **{f"assume: {name}": name for name in assumed})
asked = tm.Request(input_tokens, output_tokens)
spent = {one.id: joules.joules(one, names, speeds, asked, assumed) for one in (m, experts_m)}
table = spent[m.id]
line, air_line = (joules.line_of(table, slow, one.id) for one in (spec, air))
for name, one, reached in (("system", spec, line), ("air_system", air, air_line)):
    guard.need(
        reached is not None,
        f"{name} = {one.id!r}: no software serves {m.id} at {slow:g} tokens/s a user with known watts",
    )
e, air_e = (joules.point(m, one, assumed, facility=where) for one, where in ((line, place), (air_line, air_place)))
power = facilities.with_assumptions(facilities.power(chip), assumed)

# %% tags=["hide-input"]
kind = line.software
same = table[(table.wanted_tokens_per_s_per_user == slow) & (table.software == kind)].dropna(subset=joules.SPENT[0])
others = same[same.system != spec.id].sort_values(joules.SPENT[0], kind="stable")
best = others.iloc[0] if len(others) else None
shown = format_within(*line[joules.SPENT], "J a token") if best is not None else ""
Markdown(
    common.card(
        line[joules.SPENT].tolist(),
        f"a generated token of {m.id} with its prompt in {line.precision.upper()} on {called[spec.id]}, counted at the server, {slow:g} tokens/s for each user on "
        f"{kind} software ({format_within(float(e.server_w), *map(float, e.ends('server_w')), 'W')} for a chip and its share of the server while it decodes)",
        unit="J a token",
        mark=str(line.basis),
        rival=f"{called[best.system]} with {format_within(*best[joules.SPENT], 'J a token', str(best.basis))}"
        if best is not None
        else "",
        rank="Ahead of it" if best is not None and bool(best[joules.SPENT[0]] < line[joules.SPENT[0]]) else "Next best",
        alone="" if best is not None else f"no other system of these is as fast on {kind} software",
        proof="Check: joules and watts that were measured",
        more=(f"**Assumptions with this run: {'; '.join(assume)}.** " if assume else "")
        + (
            f"**AWS has not published a watt of any chip.** Shares of the TDP are those of GPUs, and the TDP of {chip.name} is {'given' if 'tdp_w' in assumed.get(chip.id, {}) else 'a reading of ours'}. "
            if chip.core is not None
            else ""
        )
        + ("" if kind == "public" else "Public software does not reach that speed. ")
        + "The band holds the ends of TDP, idle share, host and the error of the fit at once, and the step's own 90 % interval.\n\n"
        + ledger.rests_on(
            *ledger.estimated(chip, "tdp_w", "idle_share"),
            *ledger.estimated(
                power, "idle_share", "compute_activity", "hbm_activity", "chip_width", "host_w_per_chip", "server_ratio"
            ),
            line.stack,
        ),
    )
)

# %% tags=["hide-input"]
at = table[table.wanted_tokens_per_s_per_user == slow].dropna(subset=joules.SPENT[0])
charts.ranges(
    at[[*joules.SPENT, "software", "basis"]].assign(of=at.system.map(called)),
    x="server_j_per_token",
    y="of",
    color="software",
    log_x=True,
    caption=tables.claim(at),
    under=f"{m.id}, {input_tokens:,} tokens in and {output_tokens:,} out, {slow:g} tokens/s for each user, at the server; bands as in the answer",
)

# %% tags=["hide-input"]
charts.table(
    tables.compare(spent),
    caption="J a token at the server with bands, and what within its band would put a system first: its watts or its speed, by itself or both "
    "together",
    download="joules",
)

# %% tags=["hide-input"]
charts.table(
    pd.concat([one.assign(model=name) for name, one in spent.items()])[
        [
            "model",
            "wanted_tokens_per_s_per_user",
            "system",
            "software",
            "precision",
            "tp",
            "ep",
            "batch",
            "tokens_per_s_per_chip",
            "server_w",
            *joules.SPENT,
            "stack",
            "option",
            "basis",
        ]
    ],
    caption="The same, row by row",
    download="joules-rows",
    file_only=True,
)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("power")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(tables.SYMBOLS, "from"),
    caption="What this chapter calls things",
    download="notation",
)

# %% [markdown]
# ## What would flip the order?
#
# Each system takes the TP, EP and batch that yield most a chip at the speed, in the first of MXFP8, FP8 and BF16 that it computes. Joules
# are power over rate: a chip at twice the watts and three times the tokens wins.

# %% tags=["hide-input"]
Markdown(tables.describe_order(spent, speeds, called))

# %% [markdown]
# A chip of the same kind in another rack has the same watts, so that its bands move together and flip nothing.
#
# ## What of a request is spent where?
#
# A token that is made carries its share of the prompt: $E = E_{prefill}\,n_{in}/n_{out} + E_{decode}$, all at the server and at the same speed for a user.

# %% tags=["hide-input"]
charts.table(
    tables.requests({called[one["system"]]: joules.request(m, one, assumed) for one in same.to_dict("records")}),
    caption=f"{m.id}, {input_tokens:,} tokens in and {output_tokens:,} out, {slow:g} tokens/s for each user on {kind} software; step and FLOP at the chip",
    download="requests",
)

# %% [markdown]
# ## What would better software save?
#
# A chip that waits for its software draws most of its power all the same, so that lost time becomes joules.
# Each bar is a plan of its own, in which the values of one mechanism are those of the next software; the factors multiply
# to the whole gap. [What does software cost?](software.ipynb) explains the mechanisms.

# %%
promised = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=slow)
gap = tm.software_gap(m, promised, spec, of="server_j_per_token", precision=line.precision)
gaps.waterfall(gap, f"{m.id} on {called[spec.id]}, at the server, {slow:g} tokens/s for each user")

# %% tags=["hide-input"]
Markdown(gaps.describe(gap))

# %% [markdown]
# ## A chip, part by part
#
# A chip draws idle power, an energy for every operation and an energy for every byte. With $F$ operations and $B$ bytes in a second its
# power is about $i P_{TDP} + e_f F + e_m B$ while it is far from the TDP. Near the TDP clocks give way:
#
# $$ P = P_{TDP} \bigl(i + (1 - i) \tanh a\bigr), \qquad a = \frac{e_f F + e_m B}{(1 - i) P_{TDP}} = a_f\, r\, \frac{F}{R} + a_m u_m . $$
#
# The energy of an operation depends on its format. It is that of a 16-bit operation times a ratio $r$, which is two thirds for 8 bits in the
# one source that prints both. A higher peak in a narrow format does not make an operation cheaper by itself, and therefore the peak of the
# format is not in the law. $R$ is the rate of 16-bit operations for which the matrix engines are built: the larger of the 16-bit peak and
# half of the 8-bit peak. $u_m$ is the share of the HBM bandwidth in use.
#
# $a_f$ and $a_m$ are common to all chips and were fitted to joules of GPUs; each chip has an idle share. For a chip that nobody measured
# they have a range, which is that of the fits to one GPU alone. This is the view from the top. From the bottom, static power and the energy
# of every operation and byte add up, $P = P_0 + \sum n\,e/t$, at most the TDP, with energies from papers. They are several times smaller,
# because a served model does more than its multiply-adds.

# %% tags=["hide-input"]
there = {called[one.system]: joules.point(m, one, assumed) for _, one in same.iterrows()}
piled = tables.parts(there)
idle = piled[piled.part == "idle"]
charts.stacks(
    piled.assign(basis="extrapolated"),
    x="of",
    y="chip_w",
    color="part",
    limit="tdp_w",
    caption=f"Idle power is {idle.chip_w.sum() / piled.chip_w.sum():.0%} of what these chips draw",
    under=f"{m.id} at {slow:g} tokens/s for each user on {kind} software; stroke: TDP",
)

# %% tags=["hide-input"]
dtype, full = e.step.precision.compute, float(matmul_rate(chip))
flop_per_s, u_m, i = float(e.flop_per_chip / e.time_s), float(e.hbm_utilisation), float(e.idle_w / e.tdp_w)
u_f = power.flop_ratio[dtype] * flop_per_s / full
activity = power.compute_activity * u_f + power.hbm_activity * u_m
by_hand = chip.tdp_w * (i + (1 - i) * np.tanh(activity))
assert np.isclose(by_hand, float(e.chip_w))
static, flop_j = power.static_share * chip.tdp_w, power.flop_j.get(dtype)
byte_j, rate = power.byte_j["hbm"] + power.byte_j["sbuf"], float(e.flop_per_chip / e.time_s)
Markdown(
    f"**By hand, {called[spec.id]}.** The step computes {flop_per_s / TFLOP:,.0f} TFLOP/s in {dtype.upper()}, each at {power.flop_ratio[dtype]:.3g} of the energy of a "
    f"16-bit operation, of {full / TFLOP:,.0f} TFLOP/s: {u_f:.4f}. It reads at {u_m:.0%} of the bandwidth. "
    f"{power.compute_activity:.4g} x {u_f:.4f} + {power.hbm_activity:.4g} x {u_m:.3f} = {activity:.3f}, of which the hyperbolic tangent is "
    f"{np.tanh(activity):.3f}. {chip.tdp_w:,.0f} W x ({i:.3f} + {1 - i:.3f} x {np.tanh(activity):.3f}) = {by_hand:,.0f} W; the package says "
    f"{float(e.chip_w):,.0f} W."
    + (
        f" From the bottom: {power.static_share:.2f} x {chip.tdp_w:,.0f} W = {static:,.0f} W static, {rate / TFLOP:,.0f} TFLOP/s x "
        f"{flop_j * 1e12:.2f} pJ = {rate * flop_j:,.0f} W, {u_m * chip.hbm_bytes_per_s / TB:.2f} TB/s x {byte_j * 1e12:.0f} pJ/B = "
        f"{u_m * chip.hbm_bytes_per_s * byte_j:,.0f} W; the package says {float(e.operations_w):,.0f} W and {float(e.memory_w):,.0f} W."
        if flop_j
        else f" From the bottom nothing is said: no source has energies of operations at the node of {chip.name}."
    )
)

# %% tags=["hide-input"]
charts.table(
    tables.two_estimates(e),
    caption=f"{chip.name} in that step, from shares of its TDP and from energies of operations and bytes (extrapolated; our estimate, confidence D)",
    download="parts",
)

# %% tags=["hide-input"]
gap = float(e.bottom_up_w / e.chip_w - 1)
Markdown(
    (f"From the bottom the chip draws {abs(gap):.0%} {'less' if gap < 0 else 'more'}. " if flop_j else "")
    + "Energies of operations are of arithmetic and of arrays alone: clocks, control, regulators and what moves between units are in no "
    "published figure. The answer takes the shares, which were fitted to joules; the check has both."
)

# %% [markdown]
# ## What a chip is made of
#
# Process and format decide the energy of an operation, HBM that of a byte, package and cooling how much heat may leave: the TDP.

# %% tags=["hide-input"]
made_of = tables.builds(machines, called)
charts.table(
    made_of.rename(
        columns=lambda name: (
            name.replace("tdp_w", "TDP [W]")
            .replace("hbm_full_rate_w", "HBM at full rate [W]")
            .replace("operations_at_peak_w", "operations at peak [W]")
        )
    ),
    caption="Process, package and cooling, and what HBM and operations would draw at full rate (energies of papers and programs, node by node)",
    download="builds",
)

# %% tags=["hide-input"]
mine = made_of.iloc[0]
ask_w = float(mine.hbm_full_rate_w + mine.operations_at_peak_w)
hbm_share = mine.hbm_full_rate_w / mine.tdp_w
Markdown(
    f"**By hand, {chip.name}.** {chip.hbm_bytes_per_s / TB:g} TB/s x 8 x {power.byte_j['hbm'] / 8 * 1e12:.1f} pJ/bit = {mine.hbm_full_rate_w:,.0f} W, {hbm_share:.0%} of the TDP. "
    + (
        f"With operations in {mine['operations in']} at their peak it is {ask_w:,.0f} W of {mine.tdp_w:,.0f} W"
        + (
            ": with what is drawn in any case, both at once do not fit, so that clocks give way or the energies, which are old, are too high. "
            if ask_w + power.static_share * mine.tdp_w > mine.tdp_w
            else ", which leaves room for the rest. "
        )
        if np.isfinite(ask_w)
        else "No source has energies of operations at its node. "
    )
    + (
        f"{called[air.id]} and {called[spec.id]} hold the same chip, {air.domain_chips / air.racks:g} and {spec.domain_chips / spec.racks:g} of them in a rack"
        + (f" that {air.cooling} and {spec.cooling} cool." if air.cooling and spec.cooling else ".")
        if air.chip.id == chip.id and air is not spec and not np.isnan(air.racks + spec.racks)
        else ""
    )
)

# %% [markdown]
# ## Four boundaries
#
# *Chip*: what its own supply draws. *Server*: with its part of host, switches, regulators and fans, while the step runs. *All-in*: all that is
# provisioned for it in IT, drawn or not; it pays for capacity. *Facility*: the server with the annual PUE. A figure without its boundary is
# none.
#
# The chapters on power, cost and lost time read one account. Provisioned power is the published one or a ratio times the TDP; for AWS chips the
# ratio is that of GB200 NVL72, the one rack with a scale-up switch whose provisioned power is printed. A rack that liquid cools stands at a
# site with chillers on its hottest days, any other at a site that outside air cools.

# %% tags=["hide-input"]
bounds = e.by_boundary().rename(
    columns=lambda name: (
        name.replace("w", "power_w", 1) if name.startswith("w") else "energy_" + name if name.startswith("j") else name
    )
)
widest = float(e.all_in_j_per_token / e.chip_j_per_token)
charts.table(
    bounds.assign(boundary=bounds.boundary.str.replace("_", "-")),
    caption=f"The same token is {format_digits(float(e.chip_j_per_token), 2)} J at the chip and {format_digits(widest, 2)} times that all-in "
    f"({called[spec.id]}, {kind} software; extrapolated, our estimate, confidence D)",
    download="boundaries",
)

# %% [markdown]
# ## What a rack draws, part by part
#
# Numbers of parts are those of the rack's graph and trays; watts of one are those of other vendors' parts, for AWS prints none. A rack draws
# $P = \bigl(\sum_k n_k P_k\bigr)(1 + c)(1 + v)$ at its inlet with a share $c$ for fans and pumps and $v$ for its power shelves. What is provisioned for its
# chips is more; the rest is what no source names: storage, the network beyond the rack, management, regulators, cables, reserve.

# %% tags=["hide-input"]
racks = {
    called[one.id]: rack_power(
        one,
        parts=facilities.with_assumptions(facilities.parts(one.cooling), assumed),
        power=facilities.with_assumptions(facilities.power(one.chip), assumed),
    )
    for one in dict.fromkeys([air, spec])
    if not np.isnan(one.racks)
}
if racks:
    view = charts.ranges(
        compare(racks)
        .dropna(subset="chip_w")[["of", "part", "chip_w", "chip_w_low", "chip_w_high"]]
        .assign(basis="extrapolated"),
        x="chip_w",
        y="part",
        color="of",
        log_x=True,
        caption="Chips draw "
        + " and ".join(f"{float((one.logic_w + one.hbm_w) / one.counted_w):.0%}" for one in racks.values())
        + " of what is counted",
        under="every chip at its TDP; watts of a rack over its chips, all inputs at their low and at their high ends (our estimate, confidence D)",
    )
else:
    view = Markdown("No source counts the racks of these systems.")
view

# %% tags=["hide-input"]
charts.table(
    tables.racks(racks),
    caption="Parts of a rack: how many, and kilowatts with every input at its low and at its high end; of switches the lanes are counted",
    download="racks",
)

# %% tags=["hide-input"]
lines = []
for name, one in racks.items():
    lanes, each = one.numbers["switches_w"], float(one.switches_w)
    if each:
        lines.append(f"{name}: {lanes:,.0f} lanes x {each / lanes:.3f} W = {each / KW:.1f} kW of switches")
    if not np.isnan(one.cooling_w):
        lines.append(
            f"{float(one.cooling_w / one.chips):,.0f} W a chip for fans and pumps" + f" ({one.system.cooling})"
        )
a, b = (racks.get(called[one.id]) for one in (air, spec))
Markdown(
    (f"**By hand.** {'; '.join(lines)}. " if lines else "")
    + (
        f"A chip with its part of the rack draws {abs(float(a.counted_w / a.chips / b.counted_w * b.chips) - 1):.0%} {'less' if a.counted_w / a.chips < b.counted_w / b.chips else 'more'} in {called[air.id]} than in {called[spec.id]}. "
        f"{'An analyst who counted them, in the deep dive, finds the two very similar too. ' if {air.id, spec.id} == {'trn3-nl32x2-pcie160', 'trn3-nl72x2-pcie160'} else ''}"
        "Fans differ by what cools them, switches by the lanes between two chips; what no source counts is left out."
        if a is not None and b is not None and air is not spec
        else ""
    )
)

# %% [markdown]
# ## What a megawatt of the site makes
#
# The energy bill follows the annual PUE, the number of chips the PUE on the hottest day: a site of 1 MW has $1/\mathrm{PUE}_{peak}$ MW for IT.

# %% tags=["hide-input"]
held = tables.sites({called[one.system.id] + at: one for one, at in ((e, ""), (air_e, " " if spec is air else ""))})
charts.table(held, caption="A megawatt of a site, at the provisioned power of a chip", download="sites")

# %% tags=["hide-input"]
hot, cool = place.peak_pue, air_place.peak_pue
made, air_made = float(e.tokens_per_s_per_site_mw), float(air_e.tokens_per_s_per_site_mw)
more = float(e.tokens_per_s_per_chip / air_e.tokens_per_s_per_chip)
breaks = float(e.site_w / air_e.site_w)
Markdown(
    f"**By hand.** 1 MW / {hot:g} = {MW / hot / KW:,.0f} kW and 1 MW / {cool:g} = {MW / cool / KW:,.0f} kW of IT: "
    + (
        f"a peak PUE of {hot:g} instead of {cool:g} {'costs' if hot > cool else 'adds'} {abs(1 - cool / hot):.0%} of the IT power. "
        if hot != cool
        else "the two sites leave as much. "
    )
    + f"{called[spec.id]} then makes {format_digits(made, 2)} tokens/s a site megawatt, {called[air.id]} {format_digits(air_made, 2)}"
    + f" ({m.id}, {slow:g} tokens/s a user). To be level a chip of the former must yield {breaks:.2f} times as much as one of the latter; it yields {more:.2f} times. "
    + f"Over a year their PUE are {place.annual_pue:g} and {air_place.annual_pue:g}. No PUE of AWS with chillers is published, and peaks are an analyst's."
)

# %% [markdown]
# ## What AWS claims
#
# Each claim is of speed, of work for each joule or of power, of UltraServers of Trainium3 against those of Trainium2. A speed $s$ and a work for each
# joule $w$ imply the power: $P = s/w$ times that of Trainium2. So three claims may be one: a speed, tokens per megawatt at that speed, and what is
# left of the power.
#
# The press writes of 40 % less power for equivalent work, and that can be read in two ways. If it means the watts that are drawn while the work is done at the
# speeds claimed, it is what the other two leave. If it means the joules of the same work, it is another claim of efficiency, and a much smaller one.

# %% tags=["hide-input"]
said, pair = facilities.claims(), [tm.system(name) for name in ("trn3-nl72x2-pcie160", "trn2-ultraserver")]
printed = [load.facts_rows()[fact_id] for ids in said.sources.values() for fact_id in ids]
chips, new = [one.domain_chips * one.count for one in pair], pair[0].chip
Markdown(
    "; ".join(f"{fact.qualifier} {fact.value_printed} times" for fact in printed if fact.quantity == "claimed_ratio")
    + "".join(
        f"; {fact.qualifier} {fact.value_printed} % less (press)" for fact in printed if fact.quantity == "claimed_cut"
    )
    + f". Compute is of {chips[0]:g} chips against {chips[1]:g}, so that **by hand** a chip has {said.claimed_ratio['peak compute']:g} x {chips[1]:g} / "
    f"{chips[0]:g} = {said.claimed_ratio['peak compute'] * chips[1] / chips[0]:.2f} times; "
    + "; ".join(
        f"{said.claimed_ratio['speed']:g} times the speed over {said.claimed_ratio['tokens per MW']:g} times the tokens per megawatt is "
        f"{said.claimed_ratio['speed'] / said.claimed_ratio['tokens per MW']:.2f} of the power, and {cut:.0%} less is {1 - cut:.2f}; read as joules, {cut:.0%} less is "
        f"1 / {1 - cut:g} = {1 / (1 - cut):.2f} times the work for each joule"
        for cut in said.claimed_cut.values()
    )
    + "."
)

# %% tags=["hide-input"]
both = {reading: claim_sets(tolerance=claim_tolerance, reading=reading) for reading in READINGS}
sets = both["power"]
area, agreeing = region(sets, *pair), largest(sets)
met = agreeing[agreeing.meets_tdp]
most, count = int(area.held.max()), int((~sets.claims.str.contains("+", regex=False)).sum())
holding = f"{most} of {count} claims hold"
charts.regions(
    area.assign(
        which=np.select(
            [area.held < most, area.meets_tdp], ["fewer hold", f"{holding}, watts fit"], f"{holding}, watts do not"
        )
    ),
    x="speed_ratio",
    y="efficiency_ratio",
    color="which",
    caption=f"No point holds more than {most} of {count} claims"
    if most < count
    else f"All {count} claims can be true together",
    under=f"speed of a chip and work for each joule over Trainium2's, printed ratios within {claim_tolerance:.0%}; watts fit where they meet the TDP of {new.name}, "
    f"{' to '.join(f'{x:,.0f}' for x in facilities.ends(new, 'tdp_w'))} W (our estimate, confidence D)",
)

# %% tags=["hide-input"]
charts.table(
    pd.concat([largest(one).assign(read_as=reading) for reading, one in both.items()])
    .drop(columns="agree")
    .replace({np.inf: np.nan})
    .rename(columns={"meets_tdp": "meets the TDP", "read_as": "less power is"}),
    caption="Largest sets of claims that can be true together, by what less power means; a dash is open",
    download="claims",
)

# %% tags=["hide-input"]
Markdown(
    (
        f"Of {len(agreeing)} largest sets of this reading the TDP is met by "
        + "; ".join(f"{one.claims}, with {one.chip_w_low:,.0f} to {one.chip_w_high:,.0f} W" for one in met.itertuples())
        + ". "
        if len(met)
        else "No largest set of this reading meets the TDP. "
    )
    + "A set that does not meet the TDP may be true of something else: of whole racks with their hosts, of the mean watts and not of the most, of a smaller format, or of software that got better."
)

# %% [markdown]
# ## Carbon and water

# %% tags=["hide-input"]
print_at = e.footprint().sort_values("carbon_kg_per_mtoken", kind="stable")
widths = {
    word: [float(end / getattr(e, name)) for end in e.ends(name)]
    for word, name in (
        ("carbon_kg_per_mtoken", "facility_j_per_token"),
        ("water_l_per_mtoken", "server_j_per_token"),
    )
}
for word, ends in widths.items():
    print_at = print_at.assign(
        **{f"{word}{side}": print_at[word] * end for side, end in zip(("_low", "_high"), ends, strict=True)}
    )
charts.table(
    print_at.rename(
        columns=lambda name: name.replace("carbon_kg_per_mtoken", "kg CO2e a million tokens").replace(
            "water_l_per_mtoken", "litres of water a million tokens"
        )
    ),
    caption=f"{m.id} on {called[spec.id]} by region: the cleanest emits {print_at.carbon_kg_per_mtoken.min() / print_at.carbon_kg_per_mtoken.max():.0%} of the dirtiest",
    download="footprint",
)

# %% [markdown]
# Carbon is that of the electricity at the facility (SCI without what making the machines emitted, which nobody prints for Trainium), by grid
# averages of 2019 to 2021; water is AWS's litres a kilowatt-hour of IT, the same in every region. Both have the band of the joules.
#
# ## Check: joules and watts that were measured
#
# Watts and tokens/s of GPUs were published by model, chip and batch. Fitted are the two activities and the idle shares, with the model of a
# row left out; printed watts are what is predicted. The rate is the printed one; the last column takes the package's own. Where a run was
# slower than the package's step, the chip counts as equally active in the rest of the time, which prompts and slower kernels fill, unless the
# source says that it waited for its host.

# %% tags=["hide-input"]
errors = evidence.table("energy_errors")
steady = errors[errors.steady]
charts.table(
    evidence.table("energy_by_chip"),
    caption=f"Joules a token of GPUs, model left out: median error {errors.error.abs().median():.0%} over {len(errors)} configurations",
    download="joules-measured",
)

# %% tags=["hide-input"]
assert steady.error.abs().median() < steady.share_error.abs().median() < steady.tdp_error.abs().median()
Markdown(
    f"**In steady state the median error is {steady.error.abs().median():.0%}, the mean {steady.error.abs().mean():.0%}**, over {len(steady)} configurations of "
    f"{steady.model.nunique()} models. {evidence.TDP_SHARE:g} of the TDP for every chip and run gives {steady.share_error.abs().median():.0%}, the TDP "
    f"{steady.tdp_error.abs().median():.0%}, energies of operations and bytes from the bottom {steady.bottom_up_error.abs().median():.0%}."
)

# %% tags=["hide-input"]
walls = evidence.table("energy_servers")
worst = walls.loc[walls.error.abs().idxmax()]
charts.table(
    walls.rename(columns={"measured_kw": "measured [kW]", "predicted_kw": "predicted [kW]"}),
    caption=f"Servers, each left out of one set of shares for all: at most {abs(worst.error):.0%} off ({worst.what})",
    download="servers",
)

# %% [markdown]
# No row is of an AWS chip: what holds of GPUs is assumed of NeuronCores. In FP8 the models disagree: on eight H100 with eight sequences
# Llama 4 Maverick draws half of what Qwen3-235B draws, and reads its memory faster. No energy of a format can give both, and the rows do not decide the ratio of
# FP8 to BF16.
#
# ## What moves the answer

# %% tags=["hide-input"]
moved = one_at_a_time(e, power).assign(basis=line.basis)
charts.ranges(
    moved,
    x="server_j_per_token",
    y="which",
    caption=f"Most hangs on the {moved.which[0]}",
    under=f"one input at a time at the ends of its range, {m.id} on {called[spec.id]} at {slow:g} tokens/s for each user, {kind} software",
)

# %% tags=["hide-input"]
rolled = joules.quantiles(m, table, assumed=assumed)
mid = rolled[
    (rolled.wanted_tokens_per_s_per_user == slow) & (rolled.software == kind) & np.isclose(rolled.share_of_draws, 0.5)
].set_index("system")[joules.SPENT[0]]
charts.draws(
    rolled,
    {"system": spec.id, "wanted_tokens_per_s_per_user": slow, "software": kind},
    caption=f"Half of the draws lie under {format_digits(mid[spec.id], 2)} J",
    under=f"all that is open drawn at once; {m.id}, {input_tokens:,} tokens in and {output_tokens:,} out, {called[spec.id]}; grey: other systems at the same speed and on the same software; choose below",
)

# %% [markdown]
# TDP, idle share and host are drawn between their ends (triangles around their values), the errors of fit, server and time evenly over the logarithm of their 90 %
# intervals, what chips share alike for all. The bands elsewhere hold every end at once and are wider for it.

# %% tags=["hide-input"]
quick = joules.line_of(table, fast, spec.id)
own = table[(table.system == spec.id) & (table.wanted_tokens_per_s_per_user == slow)].dropna(subset=joules.SPENT[0])
Markdown(
    (
        f"* **The speed promised**: at {fast:g} tokens/s for each user a token takes {format_within(*quick[joules.SPENT], 'J', str(quick.software))}.\n"
        if quick is not None and fast > slow
        else ""
    )
    + "* **The software**: "
    + ", ".join(f"{software_kinds.in_band(*one[joules.SPENT])} J {one.software}" for _, one in own.iterrows())
    + f".\n* **Which watts are open**: the TDP of {chip.name} is {' to '.join(format_digits(x, 4) for x in dict.fromkeys(facilities.ends(chip, 'tdp_w')))} W"
    + ("; AWS prints none.\n" if chip.core is not None else ".\n")
    + "* **The boundary**: the table above."
)

# %% [markdown]
# ## What is left out
#
# No watt of an AWS chip is published: one wall meter beside one run would replace most of this chapter. Energies from the bottom miss clocks, control
# and regulators. Chips that a mapping leaves idle draw nothing here. Idle hours between requests, clocks that follow the
# load, power caps, warm summers, embodied carbon, and the network beyond the server have no term.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask of every joule where it was measured and at which speed for a user. Tokens a second decide joules a token more than watts do: a chip that
# waits for software draws most of its power all the same.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A server of 8 chips draws 8 kW and makes 4,000 tokens/s. What does a token cost at the server, and at a facility with an annual PUE of 1.15?
#
# ```{admonition} Answer
# :class: dropdown
# 8,000 / 4,000 = 2 J; 2.3 J.
# ```
#
# **2.** A chip is provisioned at 1.5 kW. How many fit a site of 1 MW with a peak PUE of 1.2, and with 1.5?
#
# ```{admonition} Answer
# :class: dropdown
# 833 kW / 1.5 kW = 555; 667 kW / 1.5 kW = 444, a fifth less.
# ```
#
# **3.** A chip is twice as fast as the one before it and does 40 % more work for each joule. What does it draw, if that one drew 500 W?
#
# ```{admonition} Answer
# :class: dropdown
# 2 / 1.4 x 500 W = 714 W.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = load.fact_sources(
    power, place, facilities.facility(air_site), facilities.claims(), *map(facilities.parts, ("air", "liquid"))
)
used |= {load.facts_rows()[fact_id].source for fact_id in chip.sources.get("tdp_w", ())}
charts.table(
    common.bibliography(used | (evidence.sources("energy_servers") & {*load.sources()})),
    caption="Sources of the figures in this chapter",
    download="sources",
)
