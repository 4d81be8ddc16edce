# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 3
#     part: Decide
# ---

# %% [markdown]
# # How does Trainium stand beside GPUs and TPUs?

# %% tags=["parameters"]
system: str = "trn3-nl32x2-pcie160"
systems: list[str] = [
    "trn2.48xlarge",
    "trn3-nl72x2-pcie160",
    "hgx-h100",
    "hgx-h200",
    "hgx-b200",
    "gb200-nvl72",
    "mi355x-8",
    "tpu-v6e-pod",
    "tpu-v7-pod",
]
model: str = "llama-3.3-70b"
tokens_per_s_per_user: float = 50.0
experts_model: str = "deepseek-v3"
experts_tokens_per_s_per_user: float = 20.0
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import beside_gpus as tables
from trnbook.chapters import common, guard
from trnbook.shared import case, market

named = {"model": model, "experts_model": experts_model}
speeds = {"tokens_per_s_per_user": tokens_per_s_per_user}
speeds |= {"experts_tokens_per_s_per_user": experts_tokens_per_s_per_user}
guard.neuroncore(system=tm.system(system))
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens), guard.within(1e-3, 1e6, **speeds)
everyone, models, requests = tables.check(system, systems, named, (input_tokens, output_tokens), speeds)
mine, dense = everyone[0], next(iter(models))

# %% tags=["hide-input"]
owned = {name: tm.tco(name) for name in everyone}  # what a chip-hour costs its owner
sides, costs, joules = {}, {}, {}
for name, m in models.items():
    sides[name] = tm.compare(m, requests[name], everyone, baseline=mine)
    costs[name] = tm.token_cost(m, requests[name], everyone, pricing=owned)
    joules[name] = {c.system.id: c.energy() for c in sides[name].at()}

# %% tags=["hide-input"]
tables.must_fit(sides, mine)
plain = {name: tables.undrafted(m, requests[name], everyone) for name, m in models.items()}
per_chip, drawn = {}, {}
for name, m in models.items():
    bare = [tm.plan(m, requests[name], s, efficiencies=e).best for s, e in plain[name]]
    per_chip |= {(name, "per chip"): sides[name].at(), (name, tables.NO_DRAFTS): bare}
    drawn[name] = costs[name].draws(draws=1000).values if market.any_cost(costs[name]) else {}
answers = {name: tables.measures(side, costs[name], joules[name]) for name, side in sides.items()}
stands = tables.standing(per_chip, drawn, joules, answers, mine)
card, ratios = tables.answer(stands, sides, mine), tables.shown_standing(stands)
display(Markdown(card), tables.orders(answers), Markdown(ratios))

# %% [markdown]
# The brackets hold nine of ten draws of what is unknown. The rival is the best GPU or TPU of each row. An *owner's dollar* pays for a chip
# that the owner bought, and Amazon's own price of a chip is our estimate. *Drafts* are tokens that a small model proposes and the large one
# checks. A TPU has no figure per dollar, because no source prices its server, and nobody publishes the watts of v6e.
#
# No limit on the first token is promised here. [Which system should I use?](which-system.ipynb) shows that a limit of a second costs
# Trainium most of its throughput, and the best GPU nothing.
#
# ## The running case
#
# Two models on three systems run through the whole book.

# %% tags=["hide-input"]
case.table("beside-gpus")

# %% [markdown]
# ## What should be compared?
#
# A data sheet compares peaks, and few requests come near a peak. A buyer pays for chips, dollars and electricity, and gets tokens. So we
# ask each system for the same service: the same model and lengths, at least the promised speed for every user, with as many users as
# it then holds. The plan counts prompts and idle chips. Its throughput per chip is $y$.
#
# A chip-hour that costs $p$ dollars yields $3{,}600\,y$ tokens, and a server draws $P$ watts per chip. This gives three measures:
#
# $$ y \ \left[\frac{\text{tokens}}{\text{s}}\right], \qquad
#    C = \frac{10^6\,p}{3{,}600\,y} \ \left[\frac{\$}{\text{million tokens}}\right], \qquad
#    E = \frac{P}{y} \ \left[\frac{\text{J}}{\text{token}}\right] . $$
#
# A large chip leads in $y$ and may lose in $C$, because its price grew more than its throughput. Two systems cost the same per token where
#
# $$ p^{*} = p_{\text{other}}\,\frac{y}{y_{\text{other}}} . $$
#
# **By hand.** A chip-hour of Trainium3 NL32x2 costs its owner about 0.98 dollars, and one of GB200 NVL72 about 1.98. With Llama the plans make
# 268 and 483 tokens/s per chip. That is 0.96 and 1.74 million tokens per hour. A million tokens cost 1.02 dollars on the one
# and 1.14 on the other, although GB200 makes almost twice as much per chip.

# %%
by_hand = {}
for name in ("trn3-nl32x2-pcie160", "gb200-nvl72"):
    plan = tm.plan("llama-3.3-70b", case.request("llama-3.3-70b"), systems=name).best
    usd, mtoken = float(tm.tco(name).useful_usd_per_h), 3600 * plan.tokens_per_s_per_chip / 1e6
    by_hand[name] = f"{usd:.2f}, {plan.tokens_per_s_per_chip:.0f}, {mtoken:.2f}, {usd / mtoken:.2f}"
assert by_hand == {"trn3-nl32x2-pcie160": "0.98, 268, 0.96, 1.02", "gb200-nvl72": "1.98, 483, 1.74, 1.14"}

# %% [markdown]
# ## Per chip
#
# The promise matters as much as the machine. At a slow promise many users share each read of the weights, and large memories win. At a
# fast one few users fit into a step, and bandwidth and latency decide. The chart shows four of the systems, and its file has all.

# %%
several = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150]
curves = {name: tm.compare(m, requests[name], everyone, speeds=several) for name, m in models.items()}
shown = tables.few(sides[dense], mine)

# %% tags=["hide-input"]
charts.lines(
    tables.points(curves, shown[:1]).query("system in @shown"),
    x="promised_tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="system",
    choose="model",
    highlight=shown,
    log_x=True,
    log_y=True,
    caption="A faster promise costs every chip throughput",
    under=f"a line ends where no plan keeps the promise; band: {tm.system(mine).name}",
).properties(height=165)

# %% [markdown]
# A mixture of experts rewards chips that exchange tokens fast, and software that lets them. Public software for Trainium does not do so
# yet: [What does software cost?](software.ipynb) takes that gap apart.
#
# ## Per dollar and per joule
#
# Amazon has published no price of Trainium3, so the first drawing uses what a chip costs its owner: hardware over its life, building,
# electricity and operations. A customer pays more. AWS rents GPUs in Capacity Blocks, and other sellers rent them out for less, while only AWS rents Trainium.
# The last column turns the question around: at which rent would the compared system tie with each rival at AWS?

# %%
ties = tm.compare(models[dense], requests[dense], everyone, baseline=mine).break_even()
rented = tm.token_cost(models[dense], requests[dense], everyone)  # in AWS's Capacity Blocks
sold = tm.token_cost(models[dense], requests[dense], everyone, pricing="market")  # by other sellers

# %% tags=["hide-input"]
charts.table(
    tables.money(ties, answers[dense], rented, sold),
    caption=f"What others cost an owner and a renter, and the rent at which {tm.system(mine).name} ties: {dense}"
    + market.seen(everyone),
    download="money",
)

# %% tags=["hide-input"]
ours, gpu = market.lowest(rented, neuron=True), market.lowest(rented, neuron=False)
paid = (
    f"In a Capacity Block, {ours.system.name} costs \\${ours.in_words('generated_usd_per_mtoken')} per million tokens."
    if ours
    else ""
)
Markdown(f"{paid} {market.turned(ours, gpu.system.id, sold) if ours and gpu else ''}")

# %% [markdown]
# A rent pays the margins of the chip maker and of the cloud. An owner pays only the maker's. For a GPU we take prices of servers as sold. Nobody publishes what
# Amazon pays for Trainium, so we count its parts and estimate their prices. You can put in your own estimate in
# [What does a token cost, and who wins?](cost.ipynb).
#
# Energy is that of the server for the whole request. Where nobody measured a chip's watts under load, we scale its rated power by
# shares that were measured on other chips.
#
# ## Under other terms
#
# Each chip so far runs the best of BF16, FP8 and MXFP8 that it computes, and the best documented options of its software. Is that fair?
# The cell asks again on other terms, the same for everyone. On *ideal software* nothing is lost, so that only the hardware decides.


# %%
def ask(m, dtype=None, software=None):
    some, terms = tables.computing(everyone, dtype), {"precision": dtype, "efficiencies": software}
    return tm.compare(m, requests[m.id], some, **terms).at() if some else []


asked = {}
for name, m in models.items():
    asked |= {(name, "as asked"): ask(m), (name, "FP8 on every chip"): ask(m, "fp8")}
    asked[name, "4 bits where possible"] = ask(m) + ask(m, "mxfp4")
    asked[name, "no drafts"] = per_chip[name, tables.NO_DRAFTS]
    asked[name, "ideal software"] = ask(m, software="ideal")

# %% tags=["hide-input"]
terms = tables.terms(asked, mine)
drawing = charts.ranges(
    terms,
    x=tables.TIMES,
    y="terms",
    color="model",
    log_x=True,
    caption="The terms of a comparison move its answer",
    under=f"{tm.system(mine).name}, per chip; dashed line: as much as the best rival",
)
tables.with_parity(drawing)

# %% [markdown]
# A bar holds draws in which both keep the promise. The distance from *as asked* to *ideal software* is how far software moves the ratio. Where the ratio without drafts is much smaller, the
# answer rests on one option of the software. Llama on Trainium is such a case.
#
# ## Is it fair?
#
# - **Drafts.** A chip may use drafts that documents or a measured run name for it, or for another chip of the same maker. So
#   Trainium3 takes over the drafts of Trainium2 for Llama, and B200 may take over those of H100. The search runs drafts only where
#   they gain. AWS measured those for Llama on Trainium2 in BF16 on 64 ranks with one sequence, and we assume the same here.
#   Drafts on GPUs are charged for every token that they check, and lose with many users.
# - **Software.** AMD's chips and TPUs run on constants of NVIDIA's software with wider bands, because nobody published enough of their
#   steps. Trainium3 runs on those of Trainium2.
# - **Who measured.** Runs on Trainium2 come mostly from its users, and those on GPUs from ML.ENERGY, a leaderboard of the University of
#   Michigan.
# - **Bands.** A chip that nobody measured takes the errors of the nearest one. So a shorter band does not mean more certainty.
#
# We draw a thousand guesses of what is unknown, with one guess for two racks of the same chip and software. The table gives the share in
# which a system leads per chip. A tie counts for each, so the shares may sum to more than 100%. An uncertain system leads more often,
# because its upper end is higher.

# %%
neuron, others = tm.validation(), tm.validate(tables.GPU_ROWS)
steps = tables.measured_steps(neuron, others)

# %% tags=["hide-input"]
charts.table(
    tables.grounds(sides[dense], joules[dense], steps, models[dense].kind),
    caption=f"How often each system leads, and what its figures rest on: {dense}",
    download="grounds",
)

# %% [markdown]
# ## Check: measured runs of both makers
#
# This is mostly a check of consistency, because constants were fitted to most of these runs. If the model flattered a side, that side's
# points would lie below the line. The chart shows all published decode steps that state what a prediction needs, but for a few slow ports beyond its axis.

# %% tags=["hide-input"]
drawn, beyond = tables.drawn_steps(steps)
charts.scatter(
    drawn,
    x="measured_s",
    y="predicted_s",
    color="of",
    label="run",
    caption="Some new ports are much slower than predicted",
    under=f"line: a perfect prediction; most of these runs were fitted; {beyond}",
).properties(height=175)

# %% tags=["hide-input"]
both, pair = tables.one_author(neuron), ("trn2.48xlarge", "hgx-h100")
free = [
    tm.plan(models[dense], tm.Request(input_tokens, output_tokens), s, efficiencies=e).best
    for s, e in plain[dense]
    if s in pair
]
charts.table(
    tables.with_and_without(both, sides[dense], per_chip[dense, tables.NO_DRAFTS], free, pair),
    caption=f"Trainium2 over H100: `{both.model[0]}` on one page that ran both, and {dense}",
    download="pair",
)

# %% [markdown]
# The page ran as many chips of either in BF16, and promised no speed. In the running case only drafts turn the order of this pair. Most steps of both sides lie close to the line. Those far below it are new ports of mixtures of experts, most of them on Trainium, where
# our prediction is too fast. So the ratios above may be too kind to Trainium, and not to GPUs. [How wrong are we?](accuracy.ipynb)
# leaves out models, chips and pages.
#
# ## What moves the answer, and what is left out
#
# Software moves the answer most, and the promised speed comes next. For a customer, the price on offer counts more than the list price.
# Left out are prompts on separate chips, prefixes that requests share, and the work of porting a program.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask per chip, per dollar and per joule, since the three orders may differ, and state a limit on the first token if there is one. In the running case Trainium3 makes less per chip than the newest GPUs.
# For the dense model its owner's lower cost may make up for that, as long as drafts gain what they did on Trainium2. For the mixture of
# experts it does not, because public software is far from what the chip could do.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A chip makes 400 tokens/s and rents for \$8 per hour.
# Another makes 180 tokens/s and rents for \$3. Which one is cheaper per token?
#
# ```{admonition} Answer
# :class: dropdown
# The first costs $8 / (3{,}600 \times 400 / 10^6) = 5.56$ dollars per million tokens, the second $3 / (3{,}600 \times 180 / 10^6) = 4.63$.
# The second one is cheaper. The first ties at 6.67 dollars per hour.
# ```
#
# **2.** H200 reads 4.8 TB/s. Trainium3 reads 4.9 TB/s. How long does each take to read the weights of Llama-3.3-70B in FP8? What does a
# larger difference in measured steps mean?
#
# ```{admonition} Answer
# :class: dropdown
# The weights are 70.6 GB. They take 14.7 ms and 14.4 ms. A larger difference comes from software, formats or drafts.
# ```
#
# **3.** A system leads per chip in 40% of common draws. A colleague says that it is therefore the safest choice. What is wrong?
#
# ```{admonition} Answer
# :class: dropdown
# Another system leads in the other draws. A safe choice loses little where it loses. Look at the lower end of its band and at the chance
# that it keeps the promise.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
facts, ids = tm.facts(), {tm.system(name).chip.id for name in everyone}
used = facts[facts.entity.isin(ids) & facts.quantity.isin(["peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "tdp_w"])]
stacks = facts[facts.entity.isin({c.stack.id for side in sides.values() for c in side.at()})]
evidence = {
    f"Every measure of each system with its ends: {name}": (f"measures-{name}", t) for name, t in answers.items()
}
evidence |= {f"Prices at a tie: {name}": (f"ties-{name}", side.break_even()) for name, side in sides.items()}
evidence |= {"Points of the curves": ("curves", tables.points(curves, everyone)), "Measured steps": ("steps", steps)}
evidence |= {"Ratios per chip, dollar and joule": ("standing", stands)}
evidence |= {"Ratios under other terms, with formats": ("terms", terms), "Runs on both chips": ("one-author", both)}
evidence |= {"Constants of the software, with sources": ("constants", stacks)}
evidence |= {"Sources of the chips": ("sources", common.bibliography(used[used.status == "chosen"].source))}
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (name, rows) in evidence.items()))

# %% [markdown]
# ## Sources
#
# Chips: the makers' pages, as the file above lists them. Runs: the pages of Trainium's users and of AWS's Neuron documentation, the
# [ML.ENERGY leaderboard](https://ml.energy/leaderboard), NVIDIA's AIConfigurator and SemiAnalysis's InferenceX. Prices:
# [the chapter on cost](cost.ipynb).
