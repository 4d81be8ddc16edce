# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 2
#     part: Decide
# ---

# %% [markdown]
# # What does a token cost, and who wins?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
experts_model: str = "deepseek-v3"
tokens_per_s_per_user: list[float] = [20.0, 50.0, 100.0]
input_tokens: int = 4096
output_tokens: int = 512
rented_system: str = "trn2.48xlarge"
system: str = "trn3-nl72x2-pcie160"
air_system: str = "trn3-nl32x2-pcie160"
torus_system: str = "trn3-nl32x2-torus"
systems: list[str] = ["hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "mi355x-8"]
pricing: str = "capacity-block"
region: str = ""
owner: str = "hyperscaler"
prices: list[str] = []
requests_per_s: float = 5.0
duty: float = 0.5
spare_instances: int = 1

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import (
    common,
    cost_sentences,
    guard,
)
from trnbook.chapters import cost as tables
from trnbook.chapters import (
    cost_comparison as markets,
)
from trnbook.chapters import (
    cost_inputs as inputs,
)
from trnbook.chapters import (
    cost_owners as owned,
)
from trnbook.chapters import (
    cost_value as value,
)
from trnbook.chapters.cost_stated import stated
from trnbook.chapters.cost_whatif import grid, what_if
from trnbook.shared import case, gaps, software_kinds
from trnmodel.catalog import load as data
from trnmodel.catalog import rents
from trnmodel.units import format_within

m, experts_m, spec, rented = tm.model(model), tm.model(experts_model), tm.system(system), tm.system(rented_system)
air, torus = tm.system(air_system), tm.system(torus_system)
guard.generates(model=m, experts_model=experts_m)
guard.one_of(rents.PRICINGS, pricing=pricing)
guard.one_of(
    [name for name, entity in data.entities().items() if entity.kind == "owner" and name != "owner"], owner=owner
)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user, requests_per_s=requests_per_s)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.spans(input_tokens + output_tokens, model=m, experts_model=experts_m)
guard.within(1e-3, 1, duty=duty)
mine = tables.own_prices(prices, owner)
tables.place(region)
guard.within(0, 1e6, spare_instances=spare_instances)
specs = list({one.id: one for one in (rented, air, spec, torus, *map(tm.system, systems))}.values())
speeds = sorted(set(tokens_per_s_per_user))
middle, called = markets.middle_of(speeds), software_kinds.names([one.id for one in specs])
request = tm.Request(input_tokens, output_tokens)
at_rents = markets.cost_grid([m, experts_m], specs, speeds, mine, (pricing, region or None), request)
hours = owned.hours(specs, owner=mine.owner, prices=mine.prices)
at_owners = {key: one.priced(hours) for key, one in at_rents.items()}
rent, own = markets.table_of(at_rents), markets.table_of(at_owners)
head, owned_head = at_rents[m.id, middle], at_owners[m.id, middle]
long = f"{input_tokens:,} tokens in and {output_tokens:,} out"

# %% tags=["hide-input"]
shown_line = next((one for one in head.lines if one.system.id == rented.id and bool(np.all(one.valid))), None)
asks = f"a million generated tokens of {m.id} with their prompts paid, {long}, at {middle:,.15g} tokens/s for each user"
Markdown(tables.answer(head, rented.id, rent, called, asks))

# %% tags=["hide-input"]
at = (rent.model == m.id) & (rent.promised_tokens_per_s_per_user == middle)
shown = tables.drawable(rent[at])
if len(shown):
    view = charts.ranges(
        shown,
        x="usd_per_mtoken",
        y="system",
        color="software",
        log_x=True,
        caption=markets.claim(head, called),
        under=f"{m.id}, {long}, {middle:,.15g} tokens/s for each user, rented by {pricing}; a bar is of the draws in which the promise holds",
    )
else:
    view = Markdown(f"No system of these has a price by {pricing}{f' in {region}' if region else ''} and is as fast.")
view

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("cost")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(common.notation(tables.SYMBOLS, "from"), caption="What this chapter calls things", download="notation")

# %% [markdown]
# ## Who is the cheapest?
#
# Prices are drawn between the lowest and the highest that are published, steps within their bands, the same draws for all. Hand-tuned software
# is a scenario. A system is left out of its order where less than half of a step stands on parts that were measured on its chip.

# %% tags=["hide-input"]
Markdown(
    f"A system leads where it is the cheapest in {markets.LEAD:.0%} of {owned.DRAWS:,} draws; else the order is open.\n\n"
    + markets.describe_order(at_rents, called)
)

# %% tags=["hide-input"]
charts.table(
    markets.compare(rent),
    caption="USD a million generated tokens to the one who rents, prompts paid, by software; at which price of a chip-hour each were level with the least",
    download="rent",
)

# %% tags=["hide-input"]
charts.table(rent.replace(np.inf, np.nan), caption="The same, row by row", download="rent-rows", file_only=True)

# %% [markdown]
# The table says what would flip each order: the rent at which a system were level with the least. Software is of the same kind in a column; who is first
# on public software says what is installed today, on ideal software what the chips could do.
#
# ## What is an hour rented for?

# %% tags=["hide-input"]
charts.table(
    tables.rents_table(specs, pricing, region or None, mine),
    caption=f"Published prices by {pricing}{f' in {region}' if region else ''}, of a chip and of what it has",
    download="hours",
)

# %% tags=["hide-input"]
every = rents.price_table()
charts.table(
    every, caption=f"All {len(every)} published prices of an hour, in force or not", download="prices", file_only=True
)

# %% [markdown]
# A price is the median of those in force; its band runs from the lowest to the highest. An age counts to the newest price of all.
#
# ## From an hour to a token
#
# A request takes $R$ chip-seconds that are paid, with its prompt and with the time in which chips wait, and makes $o$ tokens. At a price $c$ of a
# chip-hour
#
# $$ C = \frac{10^6}{3600}\, c\, \frac{R}{o} . $$
#
# Users have at least the speed asked for, the prompts of others counted; of all mappings, options and batches that keep it, the one that `tm.plan`
# chooses counts.

# %% tags=["hide-input"]
Markdown(
    cost_sentences.by_hand(shown_line, called) if shown_line else "No cost to work out by hand: no price, or too slow."
)

# %% [markdown]
# ## What would better software save?
#
# The price of an hour is the same on every software, so that a token is as many times dearer as the software is slower.
# Each bar is a plan of its own, in which the values of one mechanism are those of the next software; the factors multiply
# to the whole gap. [What does software cost?](software.ipynb) explains the mechanisms.

# %%
price = head[rented.id, "ideal"].rent
if price.why:
    view = Markdown(f"Nothing is split here: {price.why}.")
else:
    promised = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=middle)
    gap = tm.software_gap(m, promised, rented, of="usd_per_mtoken", pricing=price)
    view = gaps.waterfall(
        gap, f"{m.id} on {called[rented.id]}, {long}, {middle:,.15g} tokens/s for each user, {pricing}"
    )
view

# %% tags=["hide-input"]
None if price.why else Markdown(gaps.describe(gap))

# %% [markdown]
# ## At the load that is there
#
# Chips are rented by the instance, by the hour, and wait. A hosted model is paid by the token.

# %% tags=["hide-input"]
asked = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=middle, requests_per_s=requests_per_s)
at_load = tm.token_cost(
    m, asked, specs, pricing={one.system.id: one.rent for one in head.lines}, duty=duty, spare_instances=spare_instances
)
charts.table(
    cost_sentences.loaded(head, at_load),
    caption=f"{requests_per_s:g} requests/s in {duty:.0%} of the time, {tm.units.counted(spare_instances, 'instance')} to spare: USD a million generated tokens of {m.id}",
    download="load",
)

# %% tags=["hide-input"]
Markdown(cost_sentences.hosted(at_rents, called, rented.id))

# %% [markdown]
# ## At what rent does it tie?
#
# Where nobody publishes a price, what it may be is the answer. A tie needs no secret number, only throughput on equal software.

# %% tags=["hide-input"]
line = markets.curve(at_rents, m.id, spec.id)
if len(line):
    view = charts.lines(
        tables.bounded(line).sort_values("software", key=lambda one: one == "public", kind="stable"),
        x="promised_tokens_per_s_per_user",
        y="tie_usd_per_h",
        color="against",
        choose="software",
        log_x=True,
        log_y=True,
        caption=f"{called[spec.id]} ties at these rents",
        under=f"{m.id}, {long}; each line is the rent of a chip-hour at which a token costs what it costs on that system ({pricing})",
    )
else:
    view = Markdown(f"No system with a price is as fast, so that nothing ties with {called[spec.id]}.")
view

# %% tags=["hide-input"]
tie_prices = cost_sentences.tie_table(at_rents, spec.id)
if len(tie_prices):
    view = charts.table(
        tie_prices,
        caption=f"USD a chip-hour at which {called[spec.id]} ties with each that has a price",
        download="ties",
    )
else:
    view = Markdown("No other of these has a price.")
view

# %% [markdown]
# ## What does an hour cost its owner?
#
# The owner pays for parts, counted on the graph of the rack, or for a server as sold; for its share of the network, a building, electricity and
# operations. Capital comes back over the life with its cost:
#
# $$ c = \frac{A}{h}\,\frac{r}{1 - (1 + r)^{-n}} + c_{site} + P\,\mathrm{PUE}\,e + \frac{o\,A}{8766} . $$

# %% tags=["hide-input"]
parts = tables.hour_parts(hours, called)
if len(parts):
    shown = called[spec.id] if called[spec.id] in set(parts.of) else parts.of.iloc[0]
    largest = parts[parts.of == shown].set_index("part").usd_per_h
    whole = next(cost for name, cost in hours.items() if called[name] == shown)
    view = charts.stacks(
        parts.assign(basis="extrapolated"),
        x="of",
        y="usd_per_h",
        color="part",
        caption=f"The {largest.idxmax()} is {largest.max() / largest.sum():.0%} of an hour",
        under=f"cost of an hour of a chip to a {owner}, at capacity; the share is that of {shown}: {format_within(float(whole.usd_per_h), float(whole.low), float(whole.high))} USD; parts of racks of Trainium are priced by our estimates",
    )
else:
    view = Markdown("No source prices any of these systems or their parts, so that no hour has a cost.")
view

# %% tags=["hide-input"]
charts.table(
    tables.hours_table(hours, head),
    caption=f"An hour of a chip to a {owner}: USD, with capital and provisioned watts",
    download="owner-hours",
)

# %% tags=["hide-input"]
charts.table(
    tables.bills(hours),
    caption="Bill of materials of a chip with its share of rack and network, by part",
    download="bill",
    file_only=True,
)

# %% tags=["hide-input"]
Markdown(cost_sentences.hour_by_hand(hours[spec.id], called[spec.id]))

# %% tags=["hide-input"]
owners = tables.drawable(own[(own.model == m.id) & (own.promised_tokens_per_s_per_user == middle)])
if len(owners):
    view = charts.ranges(
        owners,
        x="usd_per_mtoken",
        y="system",
        color="software",
        log_x=True,
        caption=markets.claim(owned_head, called),
        under=f"{m.id}, {long}, {middle:,.15g} tokens/s for each user, cost to a {owner} at capacity; a bar is of the draws in which the promise holds",
    )
else:
    view = Markdown("No system is as fast at a known cost.")
view

# %% tags=["hide-input"]
charts.table(
    markets.compare(own),
    caption=f"USD a million generated tokens to a {owner} who owns the chips, prompts paid, by software; at which hour's cost each were level with the least",
    download="own",
)

# %% tags=["hide-input"]
Markdown(
    "Prices, watts, rates and steps are drawn together, the same draws for all:\n\n"
    + markets.describe_order(at_owners, called)
)

# %% tags=["hide-input"]
charts.table(
    markets.cheaper(at_owners, spec.id),
    caption=f"{called[spec.id]} is cheaper to its owner in so many of {owned.DRAWS:,} common draws",
    download="cheaper",
)

# %% [markdown]
# ## What may its chip cost, and draw?
#
# The owner's hour is linear in the price of the package and in its watts: each has one value at which a token costs what a rival's does.

# %% tags=["hide-input"]
first = {key: one for key, one in at_owners.items() if key[0] == m.id}
others = [one.id for one in specs if one.chip.id != spec.chip.id] or [one.id for one in specs if one.id != spec.id]
if tables.movable(hours[spec.id]):
    view = charts.table(
        markets.ties(first, spec.id, "chip_usd", others),
        caption=f"USD for a package of {spec.chip.name} at which {called[spec.id]} ties: median of draws, 5th to 95th percentile; none: not even a gift does it",
        download="chip-price",
    )
else:
    view = Markdown(tables.fixed(hours[spec.id], called[spec.id]))
view

# %% tags=["hide-input"]
if tables.movable(hours[spec.id]):
    view = charts.table(
        markets.ties(first, spec.id, "tdp_w", others),
        caption=f"TDP in W at which {called[spec.id]} ties, its price as it is",
        download="chip-watts",
    )
else:
    view = Markdown("The same holds of its watts.")
view

# %% [markdown]
# ## What may a lane of a switch cost?
#
# A switched rack has lanes that a torus has not. They may cost what the faster collectives save.

# %% tags=["hide-input"]
if (
    tables.movable(hours[air.id])
    and air.fabric == "planes"
    and bool(np.all(hours[torus.id].valid))
    and air.id != torus.id
):
    tie_prices = markets.ties(at_owners, air.id, "switch_usd_per_lane", [torus.id])
    view = charts.table(
        tie_prices.drop(columns="against"),
        caption=f"USD a lane at which {called[air.id]} gives a token for what {called[torus.id]} does; {format_within(mine.prices.switch_usd_per_lane, *mine.prices.range('switch_usd_per_lane'))} is our estimate",
        download="lanes",
    )
else:
    view = Markdown(f"{called[air.id]} has no switches whose lanes are counted.")
view

# %% [markdown]
# ## What are early months worth?
#
# Hardware of the same performance becomes cheaper every year, so that output which comes later is worth less. A rack that fits old
# air-cooled buildings may be there first.

# %% tags=["hide-input"]
Markdown(
    cost_sentences.early_delivery(hours[air.id], markets.early(hours[air.id]), called[air.id])
    if bool(np.all(hours[air.id].valid))
    else f"An hour of {called[air.id]} has no cost: {hours[air.id].reason}."
)

# %% tags=["hide-input"]
Markdown(
    cost_sentences.waiting_time(markets.waiting(at_owners, hours[air.id], spec.id), called[air.id], called[spec.id])
)

# %% [markdown]
# ## Supply, customers, time to market
#
# What no model says, as a source states it, in our words.

# %% tags=["hide-input"]
said = stated()
charts.table(said, caption="What is stated", download="stated")

# %% [markdown]
# ## Check: eight figures of another model
#
# One set of assumptions for all, chosen with the eight figures of NVIDIA in sight: prices of servers as sold, taken to their month. By those of
# the last system nothing was chosen.

# %% tags=["hide-input"]
check = pd.concat([value.against_printed(name) for name in tables.CHECKED], ignore_index=True)
eight = check[check.system.isin(tables.CHECKED[:-1])]
called_check = tm.system(tables.CHECKED[-1]).name
worst, blind = eight.loc[eight.error.abs().idxmax()], check.drop(eight.index)
charts.table(
    check,
    caption=f"An owner's hour beside what SemiAnalysis prints: at most {abs(worst.error):.0%} off, {eight.error.abs().median():.0%} at the median",
    download="check",
)

# %% tags=["hide-input"]
Markdown(
    f"**The {len(eight)} lie within {abs(worst.error):.1%}**, their mean signed error is {eight.error.mean():+.1%}; {called_check} lies within {blind.error.abs().max():.1%}. Nothing is printed of Trainium: its capital rests on counted "
    "parts at estimated prices, and the check does not reach them."
)

# %% [markdown]
# ## What moves the answer

# %% tags=["hide-input"]
kind = next(
    (
        one.stack_kind
        for one in reversed(head.lines)
        if one.system.id == spec.id and one.fast_enough and one.stack_kind != "ideal"
    ),
    "ideal",
)
draws = markets.drawn(owned_head, kind)
draws = draws if draws is not None and spec.id in draws.values else None
bars = cost_sentences.tornado(draws, spec.id) if draws is not None else ()
if len(bars):
    view = charts.ranges(
        bars,
        x="usd_per_mtoken",
        y="which",
        caption=f"Most hangs on {bars.which.iloc[0]}",
        under=f"{m.id} on {called[spec.id]}, {middle:,.15g} tokens/s for each user, {kind} software, to a {owner}; each input at its 5th and 95th percentile",
    )
else:
    view = Markdown(f"Nothing of {called[spec.id]} is open, or no user is served as fast.")
view

# %% [markdown]
# ## Try your own
#
# Choose a question and a system, and move the price and watts of its chip and the share of ideal that its software reaches. Dots are public and
# hand-tuned software.

# %% tags=["hide-input"]
cases = {
    f"{name}, {speed:,.15g} tokens/s a user": own[(own.model == name) & (own.promised_tokens_per_s_per_user == speed)]
    for name, speed in at_rents
}
rows = grid(cases, {name: owned.as_line(cost) for name, cost in hours.items() if bool(np.all(cost.valid))})
movable = [one.id for one in (spec, air, torus, rented) if tables.movable(hours[one.id]) and one.id in set(rows.system)]
if movable:
    view = what_if(
        rows,
        movable,
        chip_usd=tables.chip_usd(hours[movable[0]]),
        tdp_w=tm.system(movable[0]).chip.tdp_w,
        caption="Price, watts and software: what a token would cost",
        under=f"{long}, to a {owner} at capacity; middle values, whose bands stand above; Trainium by our estimates (D)",
    )
else:
    view = Markdown("No system whose parts are counted is as fast, so that nothing moves.")
view

# %% [markdown]
# ## Every price and rate

# %% tags=["hide-input"]
charts.table(
    inputs.price_list(mine.prices, mine.owner, mine.named),
    caption=f"What the owner's cost takes; given with the call: {', '.join(mine.named) if 0 < len(mine.named) < 5 else len(mine.named) or 'nothing'}",
    download="rates",
)

# %% [markdown]
# A parameter file replaces any of them: `trnmodel run cost -f notebooks/parameters/cost.yaml` has all by name; a rent of your own is `rent[trn3-nl72x2-pcie160]=2:3:4`.
#
# ## What is left out
#
# Contracts and discounts that nobody publishes; taxes; storage, network traffic and staff of the one who rents; queues, which make chips wait for requests; what
# it costs to port software; training jobs (chapter 17). Rebates count as nothing: two are stated above, and the prices of
# shares that they rest on stand in a picture.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Compare tokens at the same speed for a user and on software of the same kind, and ask for the rent at which two systems tie: it needs no secret price. Software
# moves it more than hardware does.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A chip is rented at USD 2.00 an hour and makes 85 tokens/s. What do a million tokens cost?
#
# ```{admonition} Answer
# :class: dropdown
# 2.00 / (85 x 3,600) x 1,000,000 = USD 6.54.
# ```
#
# **2.** System A costs USD 10 a chip-hour and takes 0.1 ms of a chip for a token, B takes 0.4 ms. At what rent is B level?
#
# ```{admonition} Answer
# :class: dropdown
# 10 x 0.1 / 0.4 = USD 2.50.
# ```
#
# **3.** A server of USD 30,000 is paid over 60 months at 1 % a month. What is the payment, and what of an hour of 730.5 a month?
#
# ```{admonition} Answer
# :class: dropdown
# 30,000 x 0.01 / (1 - 1.01^-60) = USD 667 a month, USD 0.91 an hour.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tables.sources(specs, pricing, region or None, mine) | set(said.source) | {"inferencex-owners"}
charts.table(
    common.bibliography(used - {"project"}), caption="Sources of the figures in this chapter", download="sources"
)
