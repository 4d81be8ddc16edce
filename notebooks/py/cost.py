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
tokens_per_s_per_user: float = 50.0
experts_model: str = "deepseek-v3"
experts_tokens_per_s_per_user: float = 20.0
input_tokens: int = 4096
output_tokens: int = 512
system: str = "trn3-nl32x2-pcie160"
rival: str = "hgx-b200"
systems: list[str] = ["trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h200", "gb200-nvl72", "mi355x-8"]
pricing: str = "capacity-block"
region: str = ""
owner: str = "hyperscaler"
prices: list[str] = []

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, cost_value, guard
from trnbook.chapters import cost as tables
from trnbook.chapters import cost_inputs as inputs
from trnbook.drawings import flows
from trnbook.shared import case, choices, market

mine, m, experts = tables.own_prices(prices, owner, pricing, region), tm.model(model), tm.model(experts_model)
speeds = [(m, tokens_per_s_per_user), (experts, experts_tokens_per_s_per_user)]
guard.generates(model=m, experts_model=experts)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
guard.within(1e-3, 1e6, experts_tokens_per_s_per_user=experts_tokens_per_s_per_user)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.spans(input_tokens + output_tokens, model=m, experts_model=experts)
spec, other = tm.system(system), tm.system(rival)
guard.need(spec.id != other.id, f"rival = {rival!r} must be another than system = {system!r}")
everyone = list(dict.fromkeys(one.id for one in [spec, other, *map(tm.system, systems)]))

# %% tags=["hide-input"]
published = {name: mine.rent(tm.system(name)) for name in everyone}
hours = {name: tm.tco(name, owner=mine.owner, prices=mine.prices) for name in everyone}
requests, rented, owned, elsewhere = {}, {}, {}, {}  # elsewhere: rented from sellers other than AWS
for one, speed in speeds:
    label = f"{one.id} at {speed:g} tokens/s"
    requests[label] = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speed)
    rented[label] = tm.token_cost(one, requests[label], everyone, pricing=published)
    owned[label] = rented[label].priced(hours)
    elsewhere[label] = tm.token_cost(one, requests[label], everyone, pricing="market")
first, request = next(iter(requests.items()))
tables.must_cost(owned[first], spec.id)
buyer, sold = tables.customer(rented[first], spec.id), tables.sellers({first: rented[first]})
at = tm.plan(m, request, buyer.system).best if buyer else None
plain = [tm.plan(m, request, buyer.system, efficiencies=kind).best for kind in choices.undrafted(at)]
same = owned[first][buyer.system.id, "public"] if buyer else None
wins = tables.overlapping(owned[first], rented[first], elsewhere[first], buyer)
card = tables.answer(owned[first][spec.id, "public"], buyer, sold, same=same, plain=plain, wins=wins)
display(Markdown(card))
charts.ranges(
    tables.bars(owned[first], rented[first], elsewhere[first]),
    x="usd_per_mtoken",
    y="system",
    color="paid",
    log_x=True,
    caption="Where ranges overlap, nobody wins",
    under=f"{first} per user, public software" + market.seen(everyone),
).properties(height=205)

# %% [markdown]
# A generated token also pays for its share of the prompt. *Owned* is the cost to a company that buys machines and keeps them busy. A
# customer rents machines, or buys tokens. Only AWS rents Trainium. Others rent out GPUs for less than AWS's Capacity
# Blocks do. A system without such a bar has no published rent.
#
# ## Move the prices yourself
#
# *Public* software can be installed today. *Hand-tuned* software puts together the best parts that somebody has measured. *Ideal* software
# loses nothing, so no real program is faster. In the chart below, a wide bar is the range on public software, and the diamond marks a guess of your own, which the sliders move.

# %% tags=["hide-input"]
three = {"chip_usd": [1e3, 1.1e4, 1e3], "tdp_w": [1e2, 1e2, 1.1e3]}  # points of a plane
whose = {"owner": mine.owner, "prices": mine.prices}
moved = {one: tm.tco(one, **whose, **three) for one in tables.movable(hours)}
tables.live(owned, hours, moved, under=f"{input_tokens:,} tokens in and {output_tokens:,} out, owned, at full load")

# %% [markdown]
# ## The running case
#
# The book follows one request with a promise to each user, and counts its prompt. This chapter explains the last line.

# %% tags=["hide-input"]
case.table("cost")

# %% [markdown]
# ## From a chip-hour to a token
#
# A price list names dollars per hour, but users pay for tokens. If a token of the prompt takes $s_p$ chip-seconds and a generated one $s_d$,
# waiting included, a request with $i$ tokens of prompt and $o$ generated ones takes $R$. At a price $c$ per chip-hour a million generated
# tokens cost $C$:
#
# $$ R = i\,s_p + o\,s_d , \qquad C = \frac{10^6}{3600}\; c\; \frac{R}{o} . $$
#
# **By hand.** Llama of the running case on Trainium2, whose chip-hour costs its owner 0.658 dollars:
#
# $$ R = 4{,}096 \times 0.2914\,\text{ms} + 512 \times 3.675\,\text{ms} = 3.08\,\text{s} , \qquad C = \frac{10^6}{3600} \times 0.658
# \times \frac{3.08}{512} = 1.10\ \text{dollars} $$
#
# There are eight times as many tokens of the prompt, so they make two fifths of the bill. The running case has this figure in its last line.

# %%
trn2, ask = "trn2.48xlarge", case.request("llama-3.3-70b")
llama = tm.token_cost("llama-3.3-70b", ask, trn2, pricing=tm.tco(trn2))[trn2, "public"]
seconds = 4096 * llama.chip_s("prefill") + 512 * llama.chip_s("decode")
assert f"{seconds:.2f} {llama.generated_usd_per_mtoken:.2f}" == "3.08 1.10"
assert llama.generated_usd_per_mtoken == case.value(case.LINES[-1], "llama-3.3-70b", trn2)

# %% [markdown]
# ## What does a chip-hour cost its owner?
#
# The owner buys servers and a share of the network, builds or rents a hall, pays for electricity, and operates it all.

# %%
hour = tm.tco(spec, owner=mine.owner, prices=mine.prices)
flows.where_a_dollar_goes(hour)

# %% [markdown]
# If $K$ dollars are paid back over $n$ months at a rate $r$ per month, each month takes the share $a$ of $K$. With $h$ hours in a month
# the chip-hour costs $c$:
#
# $$ a = \frac{r}{1 - (1 + r)^{-n}} , \qquad c = \frac{a\,K}{h} + c_\text{site} + P \cdot \mathrm{PUE} \cdot e + \frac{k\,K}{12\,h} . $$
#
# The first two terms pay for the machine and the building, with interest. The building provides 1,488 W per chip at \$11.5 per watt, and
# is paid back over twelve years. Electricity is the mean
# power $P$ times the *PUE*, which adds cooling and conversion, times the price $e$. Operations take a share $k$ of the capital per year.
# **By hand**, a chip of Trainium3 NL32x2 whose owner pays 8% interest per year over 66 months costs, in dollars:
#
# $$ \underbrace{\frac{0.01878 \times 21{,}932}{730.5}}_{0.5638} + \underbrace{\frac{0.010825 \times 11.5 \times 1{,}488}{730.5}}_{0.2535} + \underbrace{0.948\,\text{kW} \times
# 1.14 \times 0.0826}_{0.0893} + \underbrace{\frac{0.02955 \times 21{,}932}{8{,}766}}_{0.0739} = 0.980 $$

# %% tags=["hide-input"]
by_hand, rate = tm.tco("trn3-nl32x2-pcie160"), 0.08 / 12
site = rate / (1 - (1 + rate) ** -144) * 11.5 * 1487.5 / 730.5
capital = rate / (1 - (1 + rate) ** -66) * 21_932 / 730.5
terms = [capital, site, 0.948 * 1.14 * 0.0826, 0.02955 * 21_932 / 8766]
assert abs(site / float(by_hand.site_usd_per_h) - 1) < 1e-3
assert [round(term, 4) for term in terms] == [0.5638, 0.2535, 0.0893, 0.0739]
assert f"{sum(terms):.3f} {by_hand.usd_per_h:.3f}" == "0.980 0.980"

# %% [markdown]
# ## Who wins, and how often?
#
# Prices, power and the speed of software are uncertain. We draw all of them four thousand times and count who is the cheapest. Each draw
# uses one price of electricity for all systems, and one guess per chip and software. A system wins if it is the cheapest in at least 95% of the draws.

# %%
shares = []
for label, question, prices_of, software in tables.rankings(owned, rented):
    costs = tm.token_cost(*question, everyone, pricing=prices_of)
    wins = costs.draws(software, draws=4000).wins(least=True)
    shares.append(tables.winners(wins, label))
tables.shares(shares)

# %% [markdown]
# A dash means that no price is published, and 0% that the system is never the cheapest. Ideal software says what the hardware could do at these prices. An uncertain system is the
# cheapest in more draws, because its best draws are better. MI355X is such a case: none of its decode steps could be checked, so it runs on
# constants of NVIDIA's software with a wide range. Of two racks that make the same per chip, only the one with the cheaper hour can win.
#
# ## At what price per chip-hour does Trainium tie with a GPU?
#
# If the rival costs $c_0$ per hour and takes $R_0$ chip-seconds for the request, both
# cost the same per token at $c^* = c_0\,R_0/R$. The ratio $R_0/R$ says how many hours of the rival one chip-hour *replaces*. The first column of rents takes the rival's rent in AWS's Capacity
# Blocks by default, and the second its market rent at other sellers. The last column says what the chip may cost its owner. Where it says *none*, Trainium would lose even with a free chip.

# %%
small = tm.Request(4096, 512, tokens_per_s_per_user=100)
small_costs = tm.token_cost("llama-3.1-8b", small, everyone, pricing=published)
markets = {name: tm.rent(name, "market") for name in everyone}
ties = []
for label, costs in {**rented, "llama-3.1-8b at 100 tokens/s": small_costs}.items():
    at = [costs.priced(prices) for prices in (dict.fromkeys(everyone, 1.0), published, hours, markets)]
    ties.append(tables.tie_rows(label, spec.id, *(one.break_even(other.id) for one in at)))
tables.ties(ties, hours, published[other.id], spec, other)

# %% [markdown]
# ## Your own prices
#
# Put in your rent, your electricity, and how much of the day your chips have work.

# %%
my_rent, my_kwh, my_load = 3.00, 0.12, 0.5  # $ per chip-hour, $ per kWh, share of hours with work
my_owner = mine.owner.moved({"electricity_usd_per_j": my_kwh / 3.6e6})
my_hour = tm.tco(spec, owner=my_owner, prices=mine.prices)
choices = {}
for who, price in {"owned": hour, "owned, my electricity": my_hour, "rented at my price": my_rent}.items():
    choices[who] = tm.token_cost(m, request, spec, pricing=price, duty=my_load)
tables.choices(choices, spec)

# %% [markdown]
# ## Check against prices that are not ours
#
# This checks consistency, because we chose most assumptions with these figures in view. SemiAnalysis prints what an hour of five GPUs costs a *hyperscaler*, who builds its halls, and a *neocloud*, who rents them. We ask for the
# same hours, at prices of the same month.

# %% tags=["hide-input"]
printed = tables.printed_hours()
printed["usd_per_h"] = [float(tm.tco(**one).usd_per_h) for one in tables.printed_questions(printed)]
printed["error"] = printed.usd_per_h / printed.printed_usd_per_h - 1
off = printed.error.abs()
Markdown(f"Our hours differ from the printed ones by at most {off.max():.0%}, and by {off.median():.0%} at the median.")

# %% [markdown]
# Only MI300X is a test: we did not look at its figures when we chose our assumptions. For Trainium nobody prints such a figure, so our prices of its parts are unchecked.

# %% [markdown]
# ## What moves the answer, and what is left out
#
# Each bar moves one input from its 5th to its 95th percentile and leaves all others in the middle.

# %%
costs = tm.token_cost(m, request, spec, pricing=hour)
swings = costs.draws("public", draws=4000).tornado(spec.id)
tables.tornado(swings, costs[spec.id, "public"])

# %% [markdown]
# Left out are secret discounts, taxes, storage, staff, [training](training.ipynb), and the work of moving software to another chip.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Compare tokens, not hours: the same request and promise, prompts paid, software of the same kind. Where ranges overlap, nobody has won. If
# you only need tokens, first ask what a seller charges.
# ```

# %% [markdown]
# ## Problems
#
# **1.** `llama-3.1-8b` serves users at 100 tokens/s. A B200-hour costs you 5 dollars. At what price of a chip-hour does Trainium3 NL32x2
# tie?
#
# ```{admonition} Answer
# :class: dropdown
# For this request a chip-hour replaces 0.12 hours of B200 on public software, and 0.35 on ideal software. They tie at
# $0.12 \times 5 = 0.6$ dollars, or at 1.7 dollars if both run ideal software. In a terminal,
# `trnmodel compare llama-3.1-8b trn3-nl32x2-pcie160 hgx-b200 --speed 100 --in 4096 --out 512` prints such ties for any request.
# ```
#
# **2.** A chip costs 2 dollars per hour. It makes 85 tokens/s. What do a million tokens cost?
#
# ```{admonition} Answer
# :class: dropdown
# $2 / (85 \times 3{,}600) \times 10^6 = 6.54$ dollars.
# ```
#
# **3.** A server costs 30,000 dollars. It is paid back over 60 months at 1% per month. What is the payment per month, and per hour?
#
# ```{admonition} Answer
# :class: dropdown
# $30{,}000 \times 0.01 / (1 - 1.01^{-60}) = 667$ dollars per month. A month has 730.5 hours, so an hour costs 0.91 dollars.
# ```

# %% [markdown]
# ## Notation
#
# | symbol | in code | what it is |
# |---|---|---|
# | $C$ | `generated_usd_per_mtoken` | cost of a million generated tokens, prompts paid |
# | $c$ | `usd_per_chip_h`, `usd_per_h` | rent of a chip-hour, and its cost to the owner |
# | $R$ | `request_chip_s` | paid chip-seconds of a request |
# | $i$, $o$ | `input_tokens`, `output_tokens` | tokens of a request |
# | $K$ | `capital_usd` | price of a chip with its share of server and network |
# | $r$, $n$ | `rate_per_year`, `life_years` | cost of capital, and time in which it is paid back |
# | $P$, PUE, $e$ | `mean_w`, `annual_pue`, `electricity_usd_per_j` | mean power, overhead of the site, price of electricity |
#
# ## Evidence
#
# The parameter `prices` of this chapter takes your prices of single parts, such as a lane of a switch or a watt of building. The file
# `notebooks/parameters/cost.yaml` names them all.

# %% tags=["hide-input"]
pair = tm.token_cost("llama-3.1-8b", small, ["trn3-nl32x2-pcie160", "hgx-b200"], pricing=1.0).break_even("hgx-b200")
ratios = pair.query("system == 'trn3-nl32x2-pcie160'").set_index("software").break_even_usd_per_chip_h
assert [round(float(ratios[kind]), 2) for kind in ("public", "ideal")] == [0.12, 0.35]  # of the first problem
own, rents = (tables.all_rows(some).replace(np.inf, np.nan) for some in (owned, rented))
evidence = {
    "Cost on every kind of software, rented": ("rent-rows", rents),
    "Cost on every kind of software, owned": ("own-rows", own),
    "Ties as numbers with their ranges": ("tie-rows", pd.concat(ties)),
    "What sellers other than AWS ask for a chip-hour": ("market", market.hours(everyone)),
    "Shares of the draws": ("draws", tables.all_of(shares)),
    "An owner's chip-hour by part, with its range": ("owner-hours", tables.hours_table(hours)),
    "Bill of materials per chip with its share of rack and network": ("bill", tables.bills(hours)),
    "Rents per chip, per PFLOP/s and per TB/s": ("hours", tables.rents_table(map(tm.system, everyone), mine)),
    "All published prices of an hour, in force or not": ("prices", tables.every_price()),
    "Every price and rate of the owner": ("rates", inputs.price_list(mine.prices, mine.owner, mine.named)),
    "The check, figure by figure": ("check", printed),
    "What sellers charge for tokens of both models": ("sellers", tables.sellers(owned)),
    "What earlier delivery gains, and what a saving pays for": ("early", tables.delays(hours)),
    "Warrants of suppliers, which are not counted": ("rebates", cost_value.rebates([150.0, 200.0, 250.0])),
    "What sources state without a number, on supply, customers and time to market": ("stated", cost_value.stated()),
}
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (name, rows) in evidence.items()))

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tables.sources(map(tm.system, everyone), mine) | {
    "inferencex-owners",
    "trainium3-deep-dive",
    *tables.seller_sources(owned),
}
charts.table(common.bibliography(used), caption="Sources of the figures in this chapter", download="sources")
