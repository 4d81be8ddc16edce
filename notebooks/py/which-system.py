# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 1
#     part: Decide
# ---

# %% [markdown]
# # Which system should I use?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
tokens_per_s_per_user: float = 50.0
input_tokens: int = 4096
output_tokens: int = 512
users: int = 1000
pricing: str = "capacity-block"
fit_model: str = "qwen3-235b-a22b"
fit_system: str = "trn2.48xlarge"
fit_context: int = 65536
fit_users: int = 8

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import which_system as tables
from trnbook.shared import case, choices, market

m, fit_m = tm.model(model), tables.stretched(tm.model(fit_model), fit_context)
guard.generates(model=m, fit_model=fit_m), guard.spans(input_tokens + output_tokens, model=m)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
guard.within(1, 1e9, users=users, fit_users=fit_users), guard.within(2, 1e7, fit_context=fit_context)
request = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=tokens_per_s_per_user)
plan = tm.plan(m, request, pricing=pricing)
guard.possible(plan.reached, tables.unreached(plan))
every = [c for c in (*plan.choices, *plan.gpus) if c.valid]
rented = tm.token_cost(m, request, [c.system for c in every], pricing=pricing)
sold = tm.token_cost(m, request, [c.system for c in every], pricing="market")  # by sellers other than AWS

# %% tags=["hide-input"]
plain = {
    c.place: [tm.plan(m, request, c.system, efficiencies=kind).best for kind in choices.undrafted(c)]
    for c in (plan.best, plan.for_rent)
    if c is not None
}
second = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=tokens_per_s_per_user, ttft_s=1.0)
soon = tm.plan(m, second, pricing=pricing)
Markdown(tables.headline(plan, rented, plain, sold, soon))

# %% tags=["hide-input"]
plan = tm.plan(m, request, pricing=pricing)
chosen = tables.one_per_chip(plan)
speeds = tables.sampled(tokens_per_s_per_user, plan.flips())
systems = tables.few(chosen, 1)  # of each Trainium chip, and the best GPU
promises = tm.compare(m, tm.Request(input_tokens, output_tokens), systems, speeds=speeds)

# %% tags=["hide-input"]
charts.lines(
    tables.frontier(promises),
    x="promised_tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="system",
    log_x=True,
    log_y=True,
    caption="A faster promise costs every chip throughput",
    under=f"{m.id}, whole requests on public software; each Trainium chip and the best GPU",
).properties(height=140)

# %% [markdown]
# In charts a dashed line is a system whose chips are linked as a *torus*, each to its neighbours. The others have a switch.
#
# ## The running case
#
# Two models on three systems run through the whole book. The second part derives these lines, and [What does a token cost, and who wins?](cost.ipynb) the last.

# %% tags=["hide-input"]
case.table("which-system")

# %% [markdown]
# ## Four questions, in this order
#
# Stop at the first question that a system fails:
#
# 1. **Does it fit?** Weights and the caches of all users must fit the memory of the chips.
# 2. **Is it fast enough?** You promise each user a speed. A slower promise lets a chip serve more users at once.
# 3. **How much does a chip make?** Count whole requests: prompts take chip time before any token is made.
# 4. **What does a chip-hour cost?** With a price $c$ per chip-hour and $T$ tokens/s per chip, a million tokens cost
#
# $$ \frac{c}{3600\,T} \times 10^6 . $$
#
# ## From best to worst
#
# `tm.plan` answers the first three questions for all Trainium systems, and for GPUs that are for rent. `tm.token_cost` answers the
# fourth: for an owner, for somebody who rents at AWS, and at the *market rent* of other sellers. Only AWS rents Trainium.
#
# In the column *order* an equals sign marks systems that make the same: they differ by less than a percent. Where ranges overlap, two
# systems **tie**, and the order may well be the other way round. "Chips" counts those of one replica, which is a copy of the model. A dash says that nobody
# publishes a price.

# %%
rented = tm.token_cost(m, request, [c.system for c in every], pricing=pricing)
owned = {c.place: tm.token_cost(m, request, c.system, pricing=tm.tco(c.system)) for c in every}
ranking = tables.ranking(chosen, rented, owned, sold)
said = "The best system of each chip at the promise" + market.seen(c.system for c in chosen)
charts.table(tables.in_seconds(ranking), caption=said, download="ranking")

# %% [markdown]
# AWS measured the gain of Llama's drafts in BF16 on 64 ranks with one sequence; we assume the same on all Trainium systems here. TTFT is the time to the first token that 99 % of requests stay below.
# The chance is the share of the draws of uncertain software in which the promise holds.
#
# ## What if the first token must come soon?
#
# A limit on the first token can be met with more chips per replica and fewer users at once, so each chip makes less.

# %%
limited = {}
for limit in (None, 2.0, 1.0, 0.5):  # s, for 99 % of the requests
    speed = {"tokens_per_s_per_user": tokens_per_s_per_user, "ttft_s": limit}
    limited[limit] = tm.plan(m, tm.Request(input_tokens, output_tokens, **speed), pricing=pricing)
hurried = tables.hurried(limited)
charts.table(hurried, caption="The best of each kind under a limit on the first token", download="limits")

# %% [markdown]
# ## How many, and what does a month cost?
#
# If $N$ users read at the promised speed $v$ and answers have $o$ tokens, they send $\lambda$ requests per second. A replica takes $\lambda_r$ of
# them, and an instance with $r$ replicas is paid whole. So you need $n$ instances:
#
# $$ \lambda = \frac{N v}{o}, \qquad n = \left\lceil \frac{1}{r} \left\lceil \frac{\lambda}{\lambda_r} \right\rceil \right\rceil . $$
#
# **By hand.** A thousand users of the case's Llama read 50 tokens/s each. With answers of 512 tokens they send 97.7 requests/s. On
# `trn2.48xlarge` each chip is a replica that takes 0.325 of them. That makes 301 replicas, which fill 19 instances. A chip-hour
# rents for \$2.235, and a month has 730.5 hours. The bill is $19 \times 16 \times 2.235 \times 730.5$ dollars, or \$496,000.

# %% tags=["hide-input"]
thousand = tm.plan("llama-3.3-70b", case.request("llama-3.3-70b"), "trn2.48xlarge", users=1000)
rate, each = 1000 * 50 / 512, thousand.best.requests_per_s_per_replica
bill = 19 * 16 * 2.235 * 730.5
assert f"{rate:.1f} {each:.3f}" == "97.7 0.325"
assert [np.ceil(rate / each), np.ceil(301 / 16), thousand.capacity.instances] == [301, 19, 19]
assert abs(bill / thousand.capacity.usd_per_month - 1) < 1e-3

# %% [markdown]
# For your users, on all systems:

# %%
sized = tm.plan(m, request, users=users, pricing=pricing)
bills = tables.bills(sized)
charts.table(
    tables.thousands(bills), caption=f"Instances and bills for {tm.units.counted(users, 'user')}", download="bills"
)

# %% tags=["hide-input"]
Markdown(tables.command(plan, users, pricing))

# %% [markdown]
# Instances are paid whole, and a large system may stand half empty for few users. So the lowest bill may be that of another system than the lowest
# price per token. Power is that of the site: on average, and provisioned for its hottest day. The bill contains no spare instances; `availability=0.999` adds them.
#
# ## Does it fit on one instance?
#
# Whether a large model fits one instance depends on the **mapping**, the way in which the model is cut.
# A **rank** is a core, or a group of cores, that holds one piece. Tensor parallelism (TP) gives each rank a slice of every matrix, and some
# heads of the cache. With more ranks than heads, several store the same head. Expert
# parallelism (EP) gives each group of ranks some of the experts, and the caches of its own users only.
#
# A mapping that takes a part of the instance leaves room for more replicas, which share the users. The chart says how many users each
# replica then has. It shows the first rank, which stores a little more than the others. [Does it fit?](memory-fit.ipynb) gives all users to one replica.
# We assume that any model can be stretched to your context.

# %%
long = tm.Request(fit_context - fit_context // 128, fit_context // 128)
answer = tm.plan(fit_m, long, fit_system)
fits = {}
for name, degrees in tables.candidates(answer, fit_system).items():
    batch = tables.sequences(degrees, fit_system, fit_users)
    more = {"batch": batch, "context": fit_context, "precision": tables.stored(answer)}
    fits[f"{name}, {batch:g} per replica"] = tm.memory_fit(fit_m, fit_system, degrees, **more)

# %% tags=["hide-input"]
charts.stacks(
    tables.footprint(fits),
    x="mapping",
    y="stored_bytes",
    color="part",
    limit="limit",
    caption="The mapping decides whether it fits",
    under=f"{fit_m.id}, {fit_users:,} users with {fit_context:,} tokens, first rank of {fit_system}; line: its memory",
)

# %% [markdown]
# ## What would flip the choice?
#
# The first chart shows at which speed two systems change places. A price or better software does it too:

# %%
changes = tm.plan(m, request, pricing=pricing).flips()
charts.table(tables.flips(changes), caption="What would flip the order", download="flips")

# %% [markdown]
# ## Check against numbers that are not ours
#
# The order rests on predicted servers. People have published what their servers made. No fit has read these throughputs, but the
# test is not blind: fits have read decode steps or prompts on some of the same pages.

# %%
errors = tables.errors(tm.validation())
Markdown(tables.half_of(errors))

# %% [markdown]
# So trust an order only where the ranges do not overlap; [How wrong are we?](accuracy.ipynb) has all measurements. Sellers of tokens
# give a second check, because they must earn what their chips cost:

# %% tags=["hide-input"]
month = sized.capacity_of(sized.for_rent or sized.best).bill()
Markdown(f"{tables.hosted(month)} {tables.verdict(bills, month)}")

# %% [markdown]
# ## What is left out
#
# Failures and spares, engineers, data centres that have no room, discounts that nobody publishes, and quality: eight bits change a model's answers a little.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# State the promise first, then compare whole requests per dollar at that promise. Where ranges overlap, let price and availability decide, and
# measure a replica before you buy many.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A chip makes 200 tokens/s and its hour costs \$2. What does a million tokens cost?
#
# ```{admonition} Answer
# :class: dropdown
# $2 / (3600 \times 200) \times 10^6 = 2.78$ dollars.
# ```
#
# **2.** A rival makes 450 tokens/s per chip, for \$9 per chip-hour. At which price does your chip of 200 tokens/s tie with it?
#
# ```{admonition} Answer
# :class: dropdown
# Both must cost the same per token: $9 \times 200 / 450 = 4$ dollars per chip-hour.
# ```
#
# **3.** You have 30 users at 20 tokens/s. Answers have 400 tokens. A replica takes 0.5 requests/s, and an instance holds four. How many instances?
#
# ```{admonition} Answer
# :class: dropdown
# They send $30 \times 20 / 400 = 1.5$ requests/s, which takes three replicas. One instance holds them, and its fourth replica is idle but paid.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
everything = tables.ranking(every, rented, owned, sold)
charts.table(everything, caption="Every system that keeps the promise", download="every-system", file_only=True)

# %% tags=["hide-input"]
charts.table(plan.to_frame(bands=True), caption="The whole plan", download="plan", file_only=True)

# %% tags=["hide-input"]
ours, gpus = plan.best.system, [c.system for c in plan.gpus if c.valid]
prices = tables.ties(tm.compare(m, request, [ours, *gpus], baseline=ours, pricing=pricing))
charts.table(prices, caption=f"Rents at which {ours.name} ties with each GPU", download="rents", file_only=True)

# %% tags=["hide-input"]
asked = market.hours(c.system for c in every)
charts.table(asked, caption="What sellers other than AWS ask for a chip-hour", download="market", file_only=True)

# %% tags=["hide-input"]
charts.table(month, caption="A month on Trainium, and the prices of sellers", download="bill", file_only=True)

# %% tags=["hide-input"]
charts.table(errors, caption="Errors of servers that no fit has read", download="errors", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
facts, chips = tm.facts(), {c.system.chip.id for c in chosen}
said = facts[facts.entity.isin(chips) & facts.quantity.str.contains("hbm|peak")]
charts.table(common.bibliography(set(said.source)), caption="Sources of the chips' figures", download="sources")
