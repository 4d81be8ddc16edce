# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 20
#     part: Evidence
# ---

# %% [markdown]
# # How wrong are we?

# %% tags=["parameters"]
group: str = "dense decode"
second_group: str = "TTFT"
within_share: float = 0.25

# %% tags=["hide-input"]
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import accuracy as tables
from trnbook.chapters import common, guard
from trnmodel.evidence import score
from trnmodel.evidence import tables as evidence
from trnmodel.units import format_quantity

guard.one_of(evidence.GROUPS.values(), group=group)
guard.one_of(evidence.GROUPS.values(), second_group=second_group)
guard.need(group != second_group, f"second_group = {second_group!r} must be another one than group")
guard.within(1e-3, 10.0, within_share=within_share)
errors, judged = evidence.accuracy(), evidence.judged()
card, tally, missing = tables.answers(errors), tables.counts(judged), tables.missed(errors)
by_question = card.set_index("question")
NAMED = {"naive_median": "naive_median_error", "noise": "noise_median_error", "ideal_median": "ideal_median_error"}
NAMED |= {f"{left}_left_out_median": f"{left}_left_out_median_error" for left in ("model", "chip", "size")}

# %% tags=["hide-input"]
aimed = card[card.mark != "no target"]
best, worst = (card.loc[at] for at in (card.error.idxmin(), card.error.idxmax()))
own = by_question.loc[group]
reached = aimed[aimed.mark == "reached"].question
naive = own.naive_median
Markdown(
    common.card(
        100 * round(own.error, 3),
        f"is the median error for {group} on a page of measurements that neither the constants nor the reading of its rows have "
        f"seen. Nine in ten are within {own.error_high:.0%}",
        unit="%",
        mark="measured",
        rival=f"a naive fit to bytes, FLOP and layers is off by {naive:.1%}" if naive >= 0 else "",
        rank="Ahead of it" if naive < own.error else "Next best",
        alone="" if naive >= 0 else f"nothing naive answers {group}",
        proof="Check: predicted against measured",
        more=f"Best is {best.question}, {best.error:.1%}, worst {worst.question}, {worst.error:.0%}. "
        + (
            f"{len(reached)} of {len(aimed)} targets are reached: {'; '.join(reached)}."
            if len(reached)
            else f"None of the {len(aimed)} targets is reached."
        )
        + f" That is from {tally['configurations']:,} configurations in {tally['rows']:,} published rows.",
    )
)

# %%
charts.ranges(
    tables.sized(card),
    x="median_error",
    y="question",
    color="mark",
    caption=f"{len(reached)} of {len(aimed)} questions are answered within their target",
    under="each page of measurements left out in turn; point: median; bar: to the 90th percentile",
)

# %%
shown = "question configurations error mean_error error_high target naive_median noise mark".split()
charts.table(
    card[shown].rename(columns={"error": "median_error", "error_high": "p90_error", "target": "target_error"} | NAMED),
    caption="Each question with its target, a naive rival, and how far repeats of one measurement lie apart",
    download="answers",
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(common.notation(tables.symbols()), caption="What this chapter calls things", download="notation")

# %% [markdown]
# ## One vote a configuration
#
# Each published row is predicted from its own columns or says why not. With $p$ predicted and $m$ measured, the error is
#
# $$ e = p/m - 1, $$
#
# and rows of one configuration vote once, with the middle one.
#
# A row's words fill typed columns by general patterns, which see neither its source nor its value. What no word and no page states
# stays unknown, and an unknown widens the band. A row has no vote where the same run is printed twice (a rate beside its time, a
# percentile beside the median) or where a time is rounded to a quarter of itself. No row is set aside because of its error.
#
# **By hand.** A step of 9.4 ms predicted and 10.0 ms measured is 9.4 / 10.0 - 1 = -6 %.

# %% tags=["hide-input"]
Markdown(
    f"Of {tally['rows']:,} rows {tally['predicted']:,} have a prediction and {tally['counted']:,} count, as {tally['configurations']:,} "
    f"configurations. {tally['copies']:,} are the same run as another row, or a percentile of it. {tally['aside']:,} "
    f"({tally['aside_share']:.1%}) are set aside for another cause."
    + (f" Their median error is {tally['aside_error']:.0%}." if tally["aside"] else "")
)

# %%
charts.table(
    tables.asides(judged),
    caption="Why predicted rows do not count, copies and percentiles apart",
    download="excluded-reasons",
)

# %% tags=["hide-input"]
listed = "kind reason instance workload shape metric measured error".split()
silent = score.excluded(judged)
charts.table(
    silent[silent.outcome == score.NOT_COUNTED][listed],
    caption="Every predicted row that does not count; `data/evidence/unasked.csv` has the rows without a prediction",
    download="excluded",
    file_only=True,
)

# %% [markdown]
# ## Said before any was read
#
# A fit can follow anything. Rows that came later were predicted first, with the constants that stood then, and that error is kept:

# %%
said = tables.blind(judged)
both = tables.pair(said)
known = said.dropna(subset="error")
nearer = known[known.error < known.blind_error]
most = (nearer if len(nearer) else known).eval("gain = blind_error - error").nlargest(1, "gain").iloc[0]
charts.ranges(
    tables.sized(both),
    x="median_error",
    y="group",
    color="said",
    caption=f"{len(nearer)} of {len(known)} groups said blind are nearer now",
    under=f"by most {most.group}, from {most.blind_error:.0%} to {most.error:.0%}",
)

# %%
charts.table(said, caption="Blind errors by group, and those of now", download="blind", file_only=True)

# %% tags=["hide-input"]
gemm = tables.products()
Markdown(
    f"{gemm['shapes']} matrix products on real Trainium3 were asked blind too: median {gemm['blind_median']:.1%}, the worst "
    f"{gemm['blind_worst']:+.0%}. With three constants read off the profiler's counters, and the file of each shape left out, it is "
    f"{gemm['left_out_median']:.1%}."
)

# %% [markdown]
# ## What the fit has not seen
#
# Constants are fitted anew without a model, a chip generation or a page of measurements, and asked about what was left out. A page that
# is left out is read from the cells of its rows alone: what its text and scripts state beyond them is not used, because a stranger's
# table has no such text. The naive rival is a regression on bytes, FLOP, layers and traffic with positive coefficients, fitted to the
# same rows.

# %%
met = tables.strangers(errors)
charts.table(
    met,
    caption="What a stranger meets: each page left out with its readings, beside an unseen model and the chip's own software",
    download="by-page",
)

# %% [markdown]
# The last column asks the software that a call takes where it names none. On Trainium that is today's public engine, and for an encoder
# torch-neuronx. It is worse than the software of the row where the page ran something else: an older release of Transformers NeuronX
# with its own buckets, an engine with other kernels (Kiln), a port that takes a recurrence token by token, or a server with its own
# backend (TGI). The argument `efficiencies` of a call names any of these stacks.

# %%
charts.table(
    tables.runs(),
    caption="Steps of training, and watts of GPUs: as fitted, and with what was left out",
    download="runs",
)

# %%
left = tables.splits(errors)
chips = left[left.split == evidence.CHIP].set_index("group").error
models = left[left.split == evidence.LEFT_OUT].set_index("group").error
hardest = (chips / models).idxmax()
costs = f"{chips[hardest]:.0%} instead of {models[hardest]:.0%}"
charts.ranges(
    tables.sized(left),
    x="median_error",
    y="group",
    color="split",
    caption="An unseen chip costs more than an unseen model"
    if chips[hardest] > models[hardest] + 0.005
    else "An unseen chip costs no more than an unseen model",
    under=f"most for {hardest}: {costs}; point: median; bar: to the 90th percentile",
)

# %% tags=["hide-input"]
apart = errors[errors.split == evidence.FAMILY]
said_of = [f"{row.group} {row.median_error:.0%} over {row.cases}" for row in apart.itertuples()]
Markdown(
    "**A machine that the fit has not seen.** Fitted on Trn1 and Inf2 alone, asked about Trn2 on the stacks that ran on both, which is "
    + (
        "what predicting Trainium3 asks: " + ", ".join(said_of)
        if said_of
        else "not possible: no stack has rows on both"
    )
    + " configurations."
)

# %%
charts.table(errors, caption="All groups and splits: every figure of this chapter", download="accuracy", file_only=True)

# %% [markdown]
# ### Targets that are not reached

# %%
names = "group split median_error mean_error p90_error times_target missing".split()
charts.table(
    missing[names].drop_duplicates("group"),
    caption=f"{missing.group.nunique()} questions miss a target, and what would close each"
    if len(missing)
    else "All targets are reached",
    download="missed",
)

# %% [markdown]
# ### Constants against configurations

# %%
owned = tables.constants(errors)
many = owned[~owned.within].group
charts.table(
    owned,
    caption=f"{owned.constants.sum()} constants stand on {owned.configurations.sum()} configurations; "
    + ("none has more than one in ten" if many.empty else f"more than one in ten: {'; '.join(many)}"),
    download="constants",
)

# %% [markdown]
# ## Intervals that are honest
#
# A prediction rests on the rows near it. It is *measured* where a row lies at the point and inside its band, *interpolated* where one
# row lies within a factor of two on every axis at once, and *extrapolated* elsewhere. Its 90 % interval is the scale of the errors of
# the rows nearby, which grows with the distance to them. An interval is worth something if nine of ten rows lie inside and it is
# narrow: Winkler's score counts both, and a constant width is its rival.

# %%
widths = tables.intervals(errors)
fitted = widths[widths.group.isin(evidence.GROUPS.values())]
wins = (fitted.score < fitted.constant_score).sum()
inside = np.average(fitted.coverage, weights=fitted.cases)
charts.ranges(
    fitted,
    x="coverage",
    y="group",
    color="split",
    caption=f"{inside:.0%} lie inside their 90 % interval",
    under=f"{wins} of {len(fitted)} scores beat a constant width",
)

# %%
words = tables.bases(tables.coverage())
charts.table(
    words,
    caption="How often the 90 % interval holds on an unseen page, by what the prediction rests on",
    download="coverage-by-basis",
)

# %%
charts.table(widths, caption="Coverage, width and score by group and split", download="intervals", file_only=True)

# %% [markdown]
# ## Where it is furthest off

# %%
regimes = {name: evidence.table("errors_by_regime", group=name) for name in dict.fromkeys((group, second_group))}
several = {
    name: errors[errors.configurations > 2] for name, errors in regimes.items()
}  # what one row says is no regime
far = {name: errors.loc[errors.error.abs().idxmax()] for name, errors in several.items()}


def regimes_of(name):
    """The errors of a question by regime, under the one that is furthest off."""
    at = far[name]
    return charts.ranges(
        regimes[name],
        x="error",
        y="regime",
        caption=f"Furthest off: {at.regime}, {at.error:+.0%}",
        under=f"{name}; that regime has {tm.units.counted(at.configurations, 'configuration')}",
    )


regimes_of(group)

# %%
regimes_of(second_group)

# %%
sources = evidence.table("errors_by_source", group=group)
first = sources.iloc[0]
charts.table(
    sources,
    caption=f"{first.share:.0%} of the error of {group} sits in {tm.units.counted(first.configurations, 'configuration')} of one source",
    download="by-source",
)

# %% [markdown]
# ## Check: predicted against measured

# %%
seen = evidence.table("measured_times")
within = (seen.predicted_s / seen.measured_s - 1).abs() < within_share
charts.scatter(
    seen,
    x="measured_s",
    y="predicted_s",
    color="group",
    label="label",
    caption=f"{within.mean():.0%} of {len(seen)} times are within {within_share:.0%}",
    under=f"from {format_quantity(seen.measured_s.min(), 's', 3)} to {format_quantity(seen.measured_s.max(), 's', 3)}",
)

# %%
assert tally["aside_share"] <= 0.03
assert {*card.question} >= {*evidence.GROUPS.values()}
assert (seen.measured_s > 0).all()

# %% [markdown]
# ### On chips of others
#
# The same machinery with nothing lost, asked about GPUs and TPUs: a bound that no measured time should beat.

# %%
foreign = evidence.table("other_chips", software="ideal")
bounds = evidence.table("other_chips_bounds")
assert (bounds.quartile_high <= 1).all(), "a measured time beats the ideal machine"
fitted_to = {by: evidence.table(f"other_chips_by_{of}") for by, of in {"where": "chip", "model": "model"}.items()}
every = fitted_to["where"].iloc[-1]
charts.table(
    fitted_to["where"].rename(columns=NAMED),
    caption=f"Serving on GPUs, median error over {every.cases} configurations: {every.ideal_median:.0%} where nothing is lost, "
    f"{every.median_error:.0%} as fitted, {every.chip_left_out_median:.0%} with the chip left out",
    download="other-chips-fitted",
)

# %%
networks = evidence.table("other_chips_all_reduce")
hard = networks.iloc[:-1].sort_values("size_left_out_median", kind="stable").iloc[-1]
far = networks.iloc[:-1].sort_values("chip_left_out_median", kind="stable").iloc[-1]
charts.table(
    networks.rename(columns=NAMED),
    caption=f"All-reduces of the engines' kernels, each chip with constants of its own: {networks.size_left_out_median.iloc[-1]:.0%} off "
    f"with the size left out, at most {hard.size_left_out_median:.0%} ({hard['where']}). A chip without rows, which gets the middle of "
    f"the others, can be {far.chip_left_out_median:.0%} off ({far['where']})",
    download="other-chips-collectives",
)

# %% tags=["hide-input"]
charts.table(bounds, caption="Ideal over measured time by question and chip", download="other-chips", file_only=True)

# %% tags=["hide-input"]
charts.table(fitted_to["model"], caption="Serving on GPUs by model", download="other-chips-models", file_only=True)

# %% tags=["hide-input"]
listed = "hardware question measured predicted unit error reason model metric id".split()
charts.table(foreign[listed], caption="Every row of other chips", download="other-chips-rows", file_only=True)

# %% [markdown]
# ## What moves the answer
#
# * **The software that ran**: engines of one year differ by more than chips of two generations, and rows seldom name theirs in full.
# * **What a metric means**: a server's latency between tokens holds the prefills of others; read as a bare step it is another question.
# * **What is left out of a fit**: a model costs little, a chip more, a source that alone has a kind of row most.
#
# ## What is left out
#
# Training rows are predicted, and judged in their own chapter. Power, cost and quality are not judged. Rows of one author vote as rows of many.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Trust a median as far as its group, and an answer as far as its interval: kernels to a few percent, steps of dense models to about a
# tenth, servers and experts to a factor that their interval prints.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A group of four has errors of 2, 3, 4 and 20 %. Median and mean?
#
# ```{admonition} Answer
# :class: dropdown
# 3.5 % and 7.25 %: one row moves the mean, not the median.
# ```
#
# **2.** Nineteen left-out errors are 1, 2, ... 19 %. Which width covers nine of ten new ones?
#
# ```{admonition} Answer
# :class: dropdown
# The 0.9 x 20 = 18th, 18 %: one more than the quantile of those seen, for the new one may lie beyond them all.
# ```
#
# **3.** An interval of half-width 0.2 misses a row by 0.05. What does Winkler's score charge at 90 %?
#
# ```{admonition} Answer
# :class: dropdown
# 2 x 0.2 + 20 x 0.05 = 1.4; inside it would have been 0.4.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = score.counted(judged).groupby("source").size().sort_values(ascending=False, kind="stable")
charts.table(
    used.rename("configurations").reset_index(),
    caption=f"{len(used)} sources; the largest gives {used.iloc[0] / used.sum():.0%} of the configurations",
    download="sources",
)
