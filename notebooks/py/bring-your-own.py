# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 24
#     part: Evidence
# ---

# %% [markdown]
# # How wrong is it for my case?

# %% tags=["parameters"]
file: str = "example"
model: str = ""
system: str = ""
tp: int = 0
precision: str = "bf16"
input_tokens: int = 4096
output_tokens: int = 512
tokens_per_s_per_user: float = 25.0
users: float = 1000.0

# %% tags=["hide-input"]
from tempfile import TemporaryDirectory

import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import bring_your_own as tables
from trnbook.chapters import guard
from trnbook.shared import own_rows

path, own = tables.path_of(file), tables.own_models(model)
try:
    rows = tm.read_measurements(path, tables.statements(model, system, tp)).rows
    tables.check_rows(rows)
    shipped = tm.validate(rows, own)
    m, spec = tables.question_of(shipped, model, system)
    ours = tm.calibrate(rows, models=own)
except ValueError as reason:
    raise tables.refused("file", reason) from None
guard.above_zero(tokens_per_s_per_user=tokens_per_s_per_user, users=users)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
request = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=tokens_per_s_per_user)
tables.check_plan(tm.plan(m, request, spec, precision=precision, efficiencies=ours.stack))

# %% tags=["hide-input"]
known = tables.usable(ours, rows)
parts = [
    tm.validate(others, own, efficiencies=tm.calibrate(seen, models=own).stack)
    for seen, others in tables.parts_left_out(known)
]
corrected = tables.together(parts, shipped)

# %% tags=["hide-input"]
Markdown(tables.answer(file, shipped, corrected, ours))

# %% tags=["hide-input"]
charts.ranges(
    tables.ratios({tables.BEFORE: shipped, tables.AFTER: corrected}),
    x="predicted_over_measured",
    y="metric",
    color="prediction",
    log_x=True,
    caption="Own rows bring the predictions to what was measured",
    under="1 is right; the point is the middle row of a metric, the bar spans all of them",
)

# %% [markdown]
# A *row* is one figure that a benchmark printed, such as the mean time per output token of a run. To *calibrate* is to correct the constants of the
# software by such rows. The corrected predictions are a fair test, since no run had a part in its own. The rows of one run depend on
# each other, and so all of them are left out together.
#
# ## Why your own rows beat any formula
#
# The model knows chips, links and the work of a model well. What it does not know is your software: the release of the engine, the kernels that ran, the
# settings of the server. Two published pages give the same model on the same chip
# [steps that differ by a factor of two and more](decode-step.ipynb). No formula can foresee that, but one measurement shows it. The rest of the page takes one
# file through seven questions:
#
# | the question | the call |
# |---|---|
# | What does my file say? | `tm.read_measurements` |
# | Is my measurement inside the band? | `tm.validate` |
# | Who measured something similar? | `tm.nearest` |
# | What holds the time? | `tm.doctor` |
# | How does the model correct itself? | `tm.calibrate` |
# | What does that change in the plan? | `tm.plan` |
# | What should I measure next, and how? | `tm.next_measurement`, `tm.measure` |
#
# ## What does my file say?
#
# A tool prints numbers and leaves out what they belong to. So a file is first read into rows of named columns. The example is of
# `vllm bench serve`, which appended six runs of one model to a file. Machine, degrees and precision stand in it, because the runs were started with
# `--metadata system=... tp=...`. If your file lacks them, state them in the second argument.

# %%
read = tm.read_measurements(path, tables.statements(model, system, tp))
read

# %% [markdown]
# **The figures of the example are invented.** They are predictions for a cluster whose decode steps take 1.25 times as long as ours and whose prefills
# take 1.1 times as long, scattered by a few percent. No machine printed them. The same call reads the files of ten other tools, and tables with the columns of our own template,
# which you find in [Evidence](#evidence). A figure that contradicts another one of its run is refused with its line and the reason.
#
# ## Is my measurement inside the band?
#
# `tm.validate` asks the model the question of each row. A prediction comes with a 90% band, which should hold nine of ten measurements of
# strangers.

# %%
judged = tm.validate(read.rows, own)
charts.table(tables.by_metric(judged), caption="Errors of the shipped model, metric by metric", download="by-metric")

# %% tags=["hide-input"]
drawn = tables.points(judged)
measured, predicted = drawn.columns[:2]
charts.scatter(
    drawn,
    x=measured,
    y=predicted,
    color="metric",
    label="run",
    caption="A bar that crosses the line holds its measurement",
    under="a point per configuration, before any correction; bars are 90% bands",
).properties(height=230)

# %% [markdown]
# The error is *predicted over measured, minus one*. A negative error of a time means that your server is slower than predicted. Of a throughput the sign
# turns around. If all times are too long by a similar factor, your software is slower than ours as a whole. If one metric stands out, look at it
# first, because a row may state something else than what ran.
#
# ## Who measured something similar?
#
# An error is easier to judge beside others. `tm.nearest` looks for the closest published rows. It counts the distance in *octaves*: twice the ranks,
# twice the batch or twice the length is one octave each, and another kind of model, chip or software counts two.

# %%
near = tm.nearest(tables.one_of_each(read.rows, judged), models=own)
charts.table(tables.neighbours(near), caption="Published rows that lie nearest", download="nearest")

# %% [markdown]
# The error in the last column is that of the model for the published row, with the page of that row left out. If the neighbours are missed to the same
# side as your rows, the fault is ours. If you alone are off, look at your server.
#
# ## What holds the time?
#
# `tm.doctor` takes a row and asks which known causes could explain its time. It is asked here about the time that the shipped model misses by
# most. The causes are not added up, since several may explain the same milliseconds.

# %%
diagnosis = tm.doctor(read.rows.loc[tables.farthest(judged)], own).rows[0]
charts.table(tables.causes(diagnosis), caption=f"What could explain {tables.row_name(diagnosis)}", download="causes")

# %% [markdown]
# *Share* is the part of the measured time that a cause can hold at most. *Pairs* counts published measurements before and after such a change, and the
# last column is their median speedup. Try the setting of the first line. If the time does not change, go to the second one.
#
# ## How does the model correct itself?
#
# The constants of a stack are known within ranges. Take their natural logarithms, so that a factor up and a factor down are alike. Let $C$ be
# the covariance of these logarithms before your rows. It was found on published pages. Row $i$ gives the logarithm of measured $m_i$ over
# predicted $p_i$, with a noise of variance $R_i$ that has nothing to do with the constants:
#
# $$ y_i = \ln \frac{m_i}{p_i} . $$
#
# Let $H_{ij}$ say by how many percent the prediction of row $i$ moves when constant $j$ moves by one percent. If everything is normal and
# linear, Bayes' rule has a closed form. The constants move by $x$, and their covariance shrinks to $C'$:
#
# $$ x = C H^{\mathsf T} S^{-1} y, \qquad S = H C H^{\mathsf T} + R , $$
#
# $$ C' = C - C H^{\mathsf T} S^{-1} H C . $$
#
# A constant on which no row depends has zeros in its column of $H$. It keeps its value and its range, and the result names it. The
# package repeats the step where the constants end up, because $H$ changes on the way, and gives less weight to a row that the others contradict.
#
# ### One row, by hand
#
# Suppose there were one unknown only: how far a whole decode step is off, with a standard deviation $s$ before. A row with noise $r$ then moves the
# prediction by a share $k$ of the gap, and leaves the deviation $s'$:
#
# $$ k = \frac{s^2}{s^2 + r^2}, \qquad p' = p \left(\frac{m}{p}\right)^{k} , $$
#
# $$ s' = s\,\sqrt{1 - k} . $$
#
# Take the dense model of the running case in BF16, on 32 ranks of Trainium2 with four sequences. The step is predicted at 21.5 ms, and you measure 25 ms. The constant of a layer is known to 37%, and makes
# up 60% of the step. The level of whole steps varies by 9% from page to page. What else is uncertain hardly counts:
#
# $$ s = \sqrt{(0.37 \times 0.60)^2 + 0.093^2} = 0.24 . $$
#
# Two rows of one page scatter by $r = 0.075$ around any law of this kind. So the row takes nine tenths of the gap, and a deviation of a quarter
# shrinks to one of seven percent:
#
# $$ k = \frac{0.24^2}{0.24^2 + 0.075^2} = 0.91, \qquad s' = 0.24\,\sqrt{1 - 0.91} = 0.07 , $$
#
# $$ p' = 21.5\ \mathrm{ms} \times \left(\frac{25}{21.5}\right)^{0.91} = 24.7\ \mathrm{ms} . $$
#
# The cell repeats this, asks the package with all its constants at once, and fails if the two differ by more than two percent.

# %%
s, r = ((0.37 * 0.60) ** 2 + 0.093**2) ** 0.5, 0.075
k = s**2 / (s**2 + r**2)
by_hand_ms = 21.5 * (25.0 / 21.5) ** k
step = {"instance": "trn2.48xlarge", "workload": "Llama-3.3-70B", "engine": "vllm-neuron", "date_or_sdk": "SDK 2.28"}
step |= {"tp": 32, "batch": 4, "seq_len": 1280, "precision": "bf16", "metric": "TPOT", "value": 25.0, "unit": "ms"}
one = tm.calibrate(pd.DataFrame([step]))
packaged_ms = 25.0 * (1 + one.rows.error_after[0])
assert abs(by_hand_ms / packaged_ms - 1) < 0.02

# %% tags=["hide-input"]
assert abs(r - tables.noise("decode")) < 0.01, "the noise that the text prints"
charts.lines(
    tables.densities((21.5, s), (25.0, r), (by_hand_ms, s * (1 - k) ** 0.5)),
    x="time_s",
    y="density",
    color="known",
    caption="One row narrows what is known of the step",
    under="how likely each time of the step is",
).properties(height=150)

# %% [markdown]
# ### All rows at once
#
# `tm.calibrate` does the same with every row of the file and every constant of the stack.

# %%
ours = tm.calibrate(read.rows, models=own)
charts.ranges(
    tables.prior_and_posterior(ours),
    x="value_over_the_shipped_one",
    y="constant",
    color="when",
    log_x=True,
    caption="Your rows narrow the constants that they depend on",
    under="each constant over its shipped value, with its 90% range; best determined first",
)

# %% [markdown]
# Compare the two bars of a constant. Where they are alike, the rows say little about it. Several constants can explain one time, so that single ones stay uncertain while
# their sum is known well. This is why the package keeps the whole covariance and not only the ranges. To separate two constants, measure at points where they
# matter differently: another batch, another length, other degrees.
#
# ## What does that change in the plan?
#
# The corrected stack goes wherever a call takes `efficiencies=`. The cell plans the same request on the shipped software and on yours.

# %%
asks = {"request": request, "systems": spec, "precision": precision}
plans = {"shipped": tm.plan(m, **asks, efficiencies=ours.release)}
for name, seen in tables.first_runs(known).items():
    plans[f"after {name}"] = tm.plan(m, **asks, efficiencies=tm.calibrate(seen, models=own).stack)

# %% tags=["hide-input"]
compared = pd.DataFrame([tables.plan_row(name, plan) for name, plan in plans.items()])
charts.ranges(
    compared.drop(columns=["mapping"], errors="ignore"),
    x="tokens_per_s_per_chip",
    y="case",
    caption="Each run narrows what the plan promises",
    under=f"{m.id}, {input_tokens:,} tokens in, {output_tokens:,} out, {tokens_per_s_per_user:g} tokens/s per user; bars are 90% bands",
)

# %% tags=["hide-input"]
charts.table(compared, caption="The plan before and after, with what it rests on", download="plans")

# %% [markdown]
# The width of a bar is what a buyer must add as a reserve. *Share of draws* counts the draws in which the promise holds. The mapping may change too, since a
# server whose steps are longer needs more ranks for the same promise. The software of the example drafts nothing, so its promise is lower than that of the
# book's [running case](decode-step.ipynb).
#
# ## What should I measure next?
#
# A measurement is worth what it saves in a decision. `tm.next_measurement` compares the bills of two systems in common draws. It lists by how many dollars
# of expected regret each candidate lowers the loss of choosing the wrong one. When none pays, it says to decide now.

# %%
try:
    choice = tm.compare(m, request, [spec.id, tables.rival(spec)], precision=precision)
    learnt = tm.next_measurement(choice, users=users)
except ValueError as reason:  # one of the two has no published price, or keeps no such promise
    learnt = reason
charts.table(tables.suggestions(learnt), caption="What to learn before you choose", download="next")

# %% [markdown]
# The two systems are compared on their shipped software, since your rows are of one of them only. For the measurements themselves, `tm.measure` writes the scripts: the server, the
# benchmark at the plan's own point, and up to three further points, where one would still narrow a constant. `tm.read_measurements` reads what they print.

# %%
lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens, "tokens_per_s_per_user": tokens_per_s_per_user}
with TemporaryDirectory() as place:
    ours.save(f"{place}/cluster.yaml")
    asked = {"model": model or m.id, "systems": spec.id, "precision": precision, "request": lengths}
    tm.save_plan(asked | {"efficiencies": f"{place}/cluster.yaml"}, f"{place}/plan.json")
    scripts = tm.measure(f"{place}/plan.json", f"{place}/scripts").to_frame()
charts.table(tables.shown_runs(scripts), caption="Runs that the scripts make", download="runs")

# %% [markdown]
# ## The same at the terminal
#
# ```console
# trnmodel validate runs.json
# trnmodel doctor runs.json
# trnmodel calibrate runs.json -o cluster.yaml
# trnmodel plan llama-3.3-70b --in 4096 --out 512 --speed 25 --stack cluster.yaml --save plan.json
# trnmodel measure plan.json -o scripts
# trnmodel run bring-your-own -p file=runs.json -o report
# ```
#
# What a file does not state, `--set` does: `--set system=trn2.48xlarge --set tp=8`. `cluster.yaml` is a text that you can read: each constant with its value, its range and where it is from. Every command with `--stack` takes it. Used on another
# machine than the one of your rows, it widens its bands and says so. The last line makes this page about your file. Add `-p system=...`, `-p model=...` or `-p tp=...` for what the
# file does not state.
#
# ## Check: every published page in the place of a stranger
#
# Does it work for rows that nobody invented? The lab let each page of published measurements play the cluster of a stranger. The constants were fitted without
# the page, and so was their covariance. Then the update took some rows of the page, drawn by chance, and predicted the others.

# %% tags=["hide-input"]
falling = own_rows.falling()
total = falling[(falling.part == "all") & (falling.line == own_rows.SEEN)].set_index("own_rows").median_error
assert total[10] < total[0], "ten own rows make the error smaller"
charts.lines(
    falling,
    x="own_rows",
    y="median_error",
    color="line",
    choose="part",
    caption="Own rows take errors part of the way down",
    under="published pages with more than ten rows; the buttons choose what was measured",
).properties(height=190)

# %% [markdown]
# The *noise floor* is what remains when all rows of the page were seen, those that are predicted among them. No correction of constants gets far below it. One row at another
# point helps little on average, and for single parts it can even hurt. A row at the same model and mapping helps most parts at once:

# %%
charts.table(own_rows.after_one(), caption="One row of the same model, mapping and part", download="after-one")

# %% [markdown]
# *Share inside* counts the rows that lie inside their bands after the update, and should be near nine in ten.
#
# ## What moves the answer
#
# What you measure matters more than how often. A time per output token says little about prompts, and a first token little about steps. A plan needs
# both, in proportion to the chip time that each takes. The cell corrects the stack by rows of one kind at a time, and plans again.

# %%
kinds = {}
for name, some in tables.kinds(known).items():
    kinds[name] = tm.plan(m, **asks, efficiencies=tm.calibrate(some, models=own).stack)

# %% tags=["hide-input"]
charts.ranges(
    pd.DataFrame([tables.plan_row(name, plan) for name, plan in kinds.items()]).drop(columns="mapping"),
    x="tokens_per_s_per_chip",
    y="case",
    caption="Rows of one kind narrow what they time",
    under="the same request, after rows of one kind and after all; bars are 90% bands",
)

# %% [markdown]
# Where most of the chip time goes into decoding, as in the example, rows of steps do nearly all of the work. With long prompts and short answers it is the other
# way round.
#
# ## What is left out
#
# - **Rows of one run depend on each other.** A request takes its first token and its steps, so its time repeats theirs. The update counts each figure as a
#   measurement of its own, and its ranges are too narrow for it. The chart at the top leaves out whole runs and does not have this fault.
# - **Another format, model or mapping.** The constants are taken to be the same for all models on one software. A correction by BF16 rows is used for FP8
#   without a further margin.
# - **Servers, not training.** Only rows of models that serve move constants. `trnmodel validate` judges kernels, collectives, watts and training as well.
# - **The choice of a system.** What to measure next is asked of the shipped software of both systems.
#
# ```{admonition} Takeaway
# :class: tip
# Measure one point of your own before you trust any prediction for your cluster. Measure a step and a first token, at the mapping that you mean to use. Then
# correct the model, and let the decision say whether a further measurement pays.
# ```
#
# ## Problems
#
# **1.** A prediction is known to 20% before, and a row scatters by 20%. What share of the gap does the row take, and how well is the prediction known after?
#
# ```{admonition} Answer
# :class: dropdown
# Both variances are alike, so the row takes half of the gap. The deviation falls by $\sqrt{1/2}$, to 14%.
# ```
#
# **2.** Nine rows of one point each scatter by 9%, independently of each other. How much better than one of them are they together?
#
# ```{admonition} Answer
# :class: dropdown
# Their mean scatters by $9\%/\sqrt{9} = 3\%$. It says nothing about another point, and no number of rows there gets below the floor.
# ```
#
# **3.** Two constants each make half of a step, and a row shows a step that is 10% too long. By how much does each move, if both are known equally badly?
#
# ```{admonition} Answer
# :class: dropdown
# Each takes half of the gap in time. That is 5% of the step, or 10% of the constant. Their sum is now known, and their difference is as uncertain as before.
# ```

# %% [markdown]
# ## Evidence
#
# The template has these columns. Leave blank what you do not know: the row is still read, and its band grows. Several rows may share a run.

# %% tags=["hide-input"]
charts.table(tables.column_meanings(), caption="Columns of a table of your own", download="columns")

# %% tags=["hide-input"]
files = {
    "An empty table to fill in": (tables.template(), "own-rows"),
    "Rows of the file, as they were read": (tables.by_file_name(read.rows), "rows"),
    "Figures of the file that were refused": (tables.by_file_name(read.refused), "refused"),
    "Every row with its prediction and its band": (tables.by_file_name(judged), "judged"),
    "Rows without a prediction or a vote, and why": (tables.reasons(judged), "reasons"),
    "Every constant before and after": (tables.constants(ours), "constants"),
    "Every row in the correction": (ours.rows, "correction"),
    "All replays of published pages": (falling, "replays"),
}
display(*(charts.table(frame, caption=name, download=stem, file_only=True) for name, (frame, stem) in files.items()))

# %% [markdown]
# ## Sources
#
# The update is in C. E. Rasmussen and C. K. I. Williams, *Gaussian Processes for Machine Learning* (2006), equations for the posterior of a linear model. The published rows that
# lie nearest are from these pages.

# %% tags=["hide-input"]
charts.table(tables.used_sources(near), caption="Pages of the nearest rows", download="sources")
