# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 4
#     part: Decide
# ---

# %% [markdown]
# # How sure can you be?

# %% tags=["parameters"]
models: list[str] = ["llama-3.3-70b", "deepseek-v3"]
tokens_per_s_per_user: list[float] = [50.0, 20.0]
systems: list[str] = ["trn2.48xlarge", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"]
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import guard
from trnbook.chapters import how_sure as tables
from trnbook.shared import case, choices

known = [tm.model(name) for name in models]
guard.some(models=models, systems=systems), guard.generates(models=known)
guard.need(len(models) == len(tokens_per_s_per_user), "tokens_per_s_per_user must have one speed for each of models")
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
[guard.spans(input_tokens + output_tokens, models=m) for m in known]
guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
questions = {
    (m.id, where): (m, tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speed), where)
    for m, speed in zip(known, tokens_per_s_per_user, strict=True)
    for where in systems
}

# %% tags=["hide-input"]
m, request, where = next(iter(questions.values()))
one, ideal = (tm.plan(m, request, systems=where, efficiencies=kind).best for kind in (None, "ideal"))
guard.possible(one is not None and one.valid, f"{m.id} on {where} does not keep this promise")
drafted = choices.undrafted(one)  # software of this system that drafts nothing, if the plan drafts
plain = [tm.plan(m, request, systems=where, efficiencies=kind).best for kind in drafted]
Markdown(tables.answer(one, ideal, plain))

# %% tags=["hide-input"]
best = {key: tm.plan(m, ask, systems=where).best for key, (m, ask, where) in questions.items()}
lossless = {
    key: tm.plan(m, ask, systems=where, efficiencies="ideal").best for key, (m, ask, where) in questions.items()
}
charts.ranges(
    tables.bands(best, lossless),
    x="tokens_per_s_per_chip",
    y="group",
    color="software",
    log_x=True,
    caption="The band of public software is wide on every system",
    under="throughput per chip of whole requests; the bar spans nine draws of ten",
)

# %% tags=["hide-input"]
rows = tm.validation()  # every published measurement beside its prediction
Markdown(tables.unmeasured(rows, best.values()))

# %% [markdown]
# ## The running case
#
# Every figure below has such a band, which its own chapter shows. The figures are the predictions.

# %% tags=["hide-input"]
case.table("how-sure")

# %% [markdown]
# ## What a band means, and what it rests on
#
# A band is a promise about many answers: of ten such bands, nine should hold what a careful measurement finds. Errors are factors, so a band has one
# width below the predicted value $p$ and another above it, both on a scale of logarithms. It reaches
#
# $$ \text{from} \quad p\, e^{-w_\text{below}} \quad \text{to} \quad p\, e^{+w_\text{above}} . $$
#
# **By hand.** Llama on one `trn2.48xlarge` makes 166.5 tokens/s per chip. Its width is $2.58$ below and $0.342$ above. So its band reaches from
# $166.5\,e^{-2.58} = 12.6$ to $166.5\,e^{0.342} = 234$, which a card prints as 13 to 230.
#
# The figure beside a band is the prediction with the best-known constants. It is not the median of the draws, which may be far lower or higher. A
# band holds only draws in which the promise is kept, and the chance says how many do.
#
# The width has two sources: how wrong we were on the measured runs nearby, and what nobody knows of the software. One of four words beside
# each band says what it rests on: *measured*, *interpolated*, *extrapolated* or *ideal*. The table explains the first three by how near the
# nearest run is. An *ideal* figure rests on no run: it is arithmetic on data sheets, and a bound that no software beats.

# %% tags=["hide-input"]
hand = case.choice("llama-3.3-70b", "trn2.48xlarge")
assert np.allclose([166.5 * np.exp(-2.58), 166.5 * np.exp(0.342)], [hand.low, hand.high], rtol=0.005)  # by hand
charts.table(tables.bases(), caption="How far predictions were off, by what they rested on", download="bases")

# %% [markdown]
# A band is judged on runs that its constants have not seen. *Model unseen* leaves out all runs of a model, and *page unseen* all runs of a
# page, with what its text says. The second test is mostly harder, and your machine is a page that we have not seen. In that test few predictions rest
# on a run that was *measured* at the same point, because two pages seldom measure the same. They differ in software and set-up, so the error of these few can
# exceed that of interpolated runs.
#
# ## Why is a band so much wider than the median error?
#
# By the check below, half of the measured throughputs of servers lie within a quarter of their prediction. Yet the ends of a band can
# differ by a factor of twenty. There are three reasons:
#
# 1. **Nine of ten is more than half.** The band must also hold the runs that were far off. Some prompts on Trainium2 took many times as long as
#    predicted.
# 2. **The plan is far from any run.** Its constants were measured at other batches, other lengths or on other chips.
# 3. **The promise enlarges an error.** A slow prompt interrupts the answers of all users. To keep its promise, the server then takes fewer users at
#    once, so the throughput falls by more than the prompt alone would cost.
#
# The table follows this for Llama on Trainium2. The step is known well, and the prompt badly.

# %%
llama = tm.plan("llama-3.3-70b", tm.Request(4096, 512, tokens_per_s_per_user=50.0), systems="trn2.48xlarge").best
charts.table(tables.parts(llama), caption="From the times to the throughput", download="parts")

# %% [markdown]
# **What a band assumes.** The draws vary what the software costs, but not which options it has. A plan with *drafts* lets a small model guess tokens that
# the large one checks. AWS measured their gain for Llama in BF16 on 64 ranks with one sequence; we assume the same elsewhere. If drafts
# gain less on your machine, the result can lie below the whole band. Ask again without them:

# %%
undrafted = {key: [] for key in questions}
for key, (m, ask, where) in questions.items():
    for kind in choices.undrafted(best[key]):
        undrafted[key].append(tm.plan(m, ask, systems=where, efficiencies=kind).best)
without = tables.without_drafts(best, undrafted)
said = "The plans that draft, and the same systems without drafts"
charts.table(without, caption=said, download="drafts") if len(without) else Markdown("These plans do not draft.")

# %% [markdown]
# ## How near is the nearest measurement?
#
# Ask the measurements themselves. Only runs of the same chip, the same kind of model and the same software say much about a plan. The last
# column compares the plan with the nearest run.

# %%
near = tables.nearest(rows, best.values())
charts.table(near, caption="Measured steps and prompts near each plan", download="nearest")

# %% [markdown]
# Where the last count is zero, the software was measured on another chip, and its constants are carried over. That is so for every
# answer on Trainium3.
#
# **Do not take a shorter bar for more certainty.** In the running case the bar of Llama is shorter on Trainium3 than on Trainium2, although the
# table counts runs near it on Trainium2 alone. On Trainium2 some measured prompts took many times as long as predicted, and the low end of
# its bar holds such surprises. On Trainium3 too few prompts were measured to find any. Read its bar as a lower bound of what is uncertain.
#
# ## Can you compare two systems?
#
# Yes, if they share what is uncertain. Two racks with the same chip and the same software are wrong in the
# same way, so that the error cancels in their ratio. The errors of two generations of chips differ, and do not cancel.

# %%
draws = {key: tm.plan(m, ask, systems=where).best for key, (m, ask, where) in questions.items()}
pairs = tables.ratios(draws)
said = {"caption": "What two systems share cancels in their ratio"}
said |= {"under": "throughput per chip of one over the other, draw by draw; the bar spans nine of ten"}
none = Markdown("Fewer than two of these systems keep the promise, so there is no pair.")
charts.ranges(pairs, x="ratio", y="group", color="model", log_x=True, **said) if len(pairs) else none

# %% [markdown]
# ## Check: servers whose pages no fit had read
#
# A buyer serves users, so the errors of servers count. These are all runs that we found of servers and of whole
# batches, each predicted without its page.

# %% tags=["hide-input"]
charts.ranges(
    tables.served(),
    x="error_in_percent",
    y="group",
    caption="The middle is fair, and the tail is long",
    under="point: half of the runs are off by less; end of the bar: nine of ten are",
)

# %% [markdown]
# [How wrong are we?](accuracy.ipynb) has every kind of question, by chip, and a call that judges your own measurements.
#
# ## What does it mean for a purchase?
#
# Let $T$ be the tokens per second that all users need, and $t$ the throughput per chip. You need $n = T / t$ chips, and $t$ has a band.
# Systems are sold whole, so the counts are rounded up to whole instances or racks. Ask for your own $T$:

# %%
wanted = 10_000.0  # tokens/s for all users together
asked = [tm.plan(m, ask, systems=where).best for m, ask, where in questions.values()]
rents = {where: tm.rent(where).usd_per_chip_h for where in systems}  # on a capacity block
said = f"Chips for {wanted:,.0f} tokens/s"
charts.table(tables.chips_for(wanted, asked, rents), caption=said, download="chips")

# %% [markdown]
# A dash says that nobody publishes a rent. A rule of thumb follows from the table.
#
# 1. **Budget for the count at the predicted throughput.** It uses the best-known constants, and is not the median of the draws. Sign first only for the count at the high end of throughput, and keep an option on the rest.
# 2. **Measure before you sign for more.** One instance for a week, with your model, your prompts and your software, replaces the whole band by a
#    measurement. Nothing else that a buyer can do is as cheap. While a system is only announced, keep the option open.
# 3. **Do not pay for a difference that is smaller than the bands,** unless both systems share chip and software.
# 4. **Distrust an answer above the ideal one.** It usually counts other tokens, such as those of prompts.
#
# ## What is left out
#
# The bands hold what is uncertain of the software, of disputed data and of the fit. They do not hold the failure of an option such as drafts, a
# change of prices, a delivery that comes late, or a release that is faster. Bands of costs and watts have uncertain prices and activities besides; their chapters say which.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Read the word beside the band before the number. On Trainium2 software was measured, on Trainium3 it was carried over. A week on one instance is better
# evidence than any model.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A plan makes 100 tokens/s per chip, with a band from $40$ to $150$. You need 6,000 tokens/s. How many chips do you budget for, and
# how many may you need?
#
# ```{admonition} Answer
# :class: dropdown
# In the middle, $6000/100 = 60$ chips. At the low end, $6000/40 = 150$ chips. At the high end, $6000/150 = 40$ chips would do.
# ```
#
# **2.** Two systems have bands of a factor of four each, and the same chip and software. Their ratio lies between 0.75 and 0.85. Which one
# do you take?
#
# ```{admonition} Answer
# :class: dropdown
# The second one, if a chip-hour costs the same on both. The first makes at most 85 percent of the throughput of the second, however fast both
# turn out to be.
# ```
#
# **3.** Of 200 bands that should hold nine times in ten, 170 hold. Is the claim refuted?
#
# ```{admonition} Answer
# :class: dropdown
# Thirty fail where twenty should, with a standard deviation of $\sqrt{200 \times 0.9 \times 0.1} = 4.2$ if the runs are independent. That is 2.4
# deviations. But runs of one page are not independent, so count pages before you judge.
# ```

# %% [markdown]
# ## Sources
#
# The errors behind these bands stand in [How wrong are we?](accuracy.ipynb), and data on which sources disagree in
# [Where do the sources disagree, and what did we decide?](contradictions.ipynb)

# %% tags=["hide-input"]
charts.table(
    tables.pages(rows, best.values()), caption="Pages measured on these chips", download="pages", file_only=True
)
