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
question: str = "time per output token"
on_chip: str = "Trainium2"

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import accuracy as tables
from trnbook.chapters import accuracy_explorer as explorer
from trnbook.chapters import guard
from trnbook.shared import errors, own_rows

guard.one_of(list(errors.QUESTIONS)[:-1], question=question)
guard.one_of(errors.CHIPS, on_chip=on_chip)
unseen = errors.left_out()
by_chip = errors.by_chip(unseen)

# %% tags=["hide-input"]
display(
    Markdown(tables.answer(by_chip, question, on_chip)),
    charts.table(
        tables.quoted(by_chip, on_chip),
        caption=f"Errors on {on_chip}, page left out: half stay below the median, nine in ten below P90",
        download="quoted",
    ),
)

# %% tags=["hide-input"]
drawn, beyond = tables.near(tables.points(unseen))
explorer.measured_and_predicted(
    drawn,
    by_chip,
    question,
    on_chip,
    caption="Each point is one prediction of an unseen page",
    under=f"on the line it is right; {beyond} beyond the axes; hover for model and page",
).properties(height=160)

# %% [markdown]
# A *page* is one web page, paper or log with measurements. A *configuration* is one question to the model: machine, software, model, batch and
# lengths, however often they were printed. An *encoder* is a model that reads and writes no answer.
#
# A point below the line is a time that took longer than predicted. Of a rate it is one that was higher than predicted. The words below the chart
# give the error, and the number of configurations and pages that it rests on. A middle error near zero can hide a bias: every time per output token
# beyond a tenth of a second took longer than predicted, most of them more than twice as long.
#
# ## Check: the errors, question by question
#
# A model that was fitted to measurements agrees with them, which proves little. So we leave out each page of measurements in turn, fit the
# constants to all other pages, and predict the page that is missing. We read that page as a stranger's table: from its cells alone, without
# what its text adds. This is the error that you should expect for a machine of your own.

# %%
rows = tm.validation()  # every published measurement beside its prediction
charts.table(
    tables.questions(rows, unseen),
    caption="Errors as fitted and with the page left out, beside a simple regression",
    download="questions",
)

# %% [markdown]
# *P90* is the error that nine in ten stay below. *Share inside its band* counts the configurations that lie inside their own 90% band. The *simple
# regression* is on bytes, operations and layers, and fitted to the same rows; for power it is three quarters of the rated watts. The *spread
# of repeats* compares the highest with the lowest value of one configuration, for the few that were printed several times. An error is measured
# from the middle of the repeats, and most configurations were printed once. So an error can be smaller than that spread.
#
# The errors differ by chip, since most pages are of Trainium2. Of Trainium3 we found few public measurements, and none of a server. More than half of
# the steps of training are of GPUs and TPUs. All watts are of GPUs, because we found no power of a Trainium chip under a known load.
# Other pages count fewer throughputs, as a table in Evidence says.

# %% tags=["hide-input"]
charts.table(
    tables.matrix(unseen),
    caption="Median error with the page left out, of how many configurations",
    download="by-chip",
)

# %% [markdown]
# ## How a row becomes a question
#
# Three steps turn a published row into a call of the model.
#
# 1. **Its words become columns.** General patterns read the cells: "TPOT p50" is a decode step at the median, "TP=64" a degree of
#    parallelism. A pattern sees neither the source of a row nor its value.
# 2. **Its software becomes a stack.** The engine and release that the row names choose a set of constants, fitted to other rows. Where a row
#    names none, the chip's own software of today is asked, and the band grows.
# 3. **The public function answers.** Nothing is adjusted afterwards.
#
# With $p$ predicted and $m$ measured, the error of a row is $e = p/m - 1$. Rows that ask the same question vote once, with their middle error.
# The tables drop the signs of these errors and print the median.
#
# **By hand.** A step of 9.4 ms is predicted, and 10.0 ms are measured. The error is $9.4 / 10.0 - 1 = -6\%$. Now take a published one: a page
# on DeepSeek-V3, with all 64 logical cores of a trn2.48xlarge and graphs for 512 tokens. It prints four steps for four batches.

# %%
assert round(9.4 / 10.0 - 1, 2) == -0.06
page = rows.query("metric == 'ITL synchronous' and model == 'deepseek-v3'")
where = ("deepseek-v3", "trn2.48xlarge", tm.Mapping(tp=64))
ask = {"batch": page.batch.astype(int), "context": 300, "max_context": 512, "precision": "bf16"}
step = tm.decode_step(*where, **ask, efficiencies="vllm-neuron-2026")
assert abs(1000 * step.time_s / page.predicted - 1).max() < 1e-6  # what tm.validation() printed

# %% tags=["hide-input"]
ideal = tm.decode_step(*where, **ask, efficiencies="ideal")
charts.lines(
    tables.lines_of_page(page, step, ideal),
    x="batch",
    y="time_s",
    color="line",
    log_y=True,
    caption="The prediction follows the page, the data sheet does not",
    under="DeepSeek-V3 on trn2.48xlarge; the band is the 90% interval of the prediction",
).properties(height=160)

# %% [markdown]
# The lowest line is what the data sheets alone allow. The prediction is a tenth too slow for larger batches, and more for one sequence.
#
# ## Ask about your own measurements
#
# `tm.validate` takes a table of yours, with the columns that you know. Here is an invented row, and the same row with one change at a time.
# Change a value, a model or a batch and run the cell again. A row that cannot be predicted says what it lacks.

# %%
row = {"instance": "trn2.48xlarge", "workload": "Llama-3.3-70B", "engine": "vllm-neuron"}
row |= {"metric": "TPOT p50", "value": 18.0, "unit": "ms"}
row |= {"batch": 1, "tp": 64, "input_len": 4096, "output_len": 512}
changes = {
    "as it was measured": {},
    "no engine is named": {"engine": ""},
    "another engine ran": {"engine": "kiln"},
    "sixteen sequences": {"batch": 16},
    "a model of our own": {"workload": "our own model"},  # or models={"our own model": "config.json"}
}
own = tm.validate(pd.DataFrame([row | change for change in changes.values()]))
said = "One invented row, and what a change does to it"
charts.table(tables.shown(own, changes), caption=said, download="own")

# %% [markdown]
# The band is printed with every prediction. It has two half-widths, one below and one above the predicted $p$, so it may be longer on one side:
#
# $$ \text{from} \;\; p\, e^{-w_\text{below}} \;\; \text{to} \;\; p\, e^{+w_\text{above}}, \qquad w = \sqrt{\bigl(z\; s\; g(d)\; u^{n}\bigr)^2 + r^2} . $$
#
# Here $s$ is the typical size of the errors of the nearest rows. Nine of ten errors are at most $z$ times as large as is typical for them. The factor $g$ grows
# with the distance $d$ to the nearest row. Each of the $n$ columns that matter and that nobody stated costs a factor $u$. Far from all rows,
# $r$ adds what the ranges of the software's constants leave open. $z$ and $r$ differ below and above, where rows tell both sides apart.
# [How sure can you be?](how-sure.ipynb) shows how often such bands hold.
#
# ### What a few rows of your own change
#
# The errors above are those of a stranger. `tm.calibrate` corrects the constants by rows of yours. The lab let each page play the cluster of a stranger, showed the
# update some of its rows and predicted the others. The *noise floor* is the error that remains when all rows of the page were seen.

# %% tags=["hide-input"]
falling = own_rows.falling()
charts.lines(
    falling[falling.part == "all"],
    x="own_rows",
    y="median_error",
    color="line",
    caption="Own rows take errors part of the way down",
    under="published pages with more than ten rows, all questions of a serving stack together",
).properties(height=150)

# %% [markdown]
# [How wrong is it for my case?](bring-your-own.ipynb) does the same with a file of yours, and shows each question by itself.

# %% [markdown]
# ## Before the rows were read
#
# Leaving out a page tests the constants. It does not test the form of the model, which we chose with most pages in sight. When a second
# collection of measurements was found, we predicted all of it with the constants of that day before anything was fitted to it, and kept
# these errors.

# %% tags=["hide-input"]
blind = tables.blind(rows)
chart = charts.ranges(
    tables.pair(blind),
    x="median_error",
    y="group",
    color="said",
    caption="Blind errors were larger than those of today",
    under="the largest groups of the second collection; every group is in Evidence",
)
display(chart, Markdown(tables.products_sentence()))

# %% [markdown]
# The honest error for a kind of model or engine that nobody has measured lies nearer to the blind one. Mixtures of experts were the worst,
# because engines differ in how they run experts: all of them on all tokens, only those chosen, or in blocks.
#
# ### Stated before it is measured
#
# A second collection comes once. So a fixed list of questions, and the headlines of the running case, are stated with the date and the commit of
# the package. No line of this record is ever changed. `tm.frozen` shows every statement beside today's answer. When a later row asks one of the questions,
# it also shows how far off the statement was, and `trnmodel validate` says so for a row of yours.

# %%
stated = tm.frozen()
since = tm.frozen(tables.measured_after(rows, stated))  # rows of pages with a later date
charts.table(
    tables.aged(stated, since),
    caption="What was stated, and how it aged",
    download="stated",
)

# %% [markdown]
# The band of a question reaches this many times above and below what was stated, in the middle of the questions of its kind.
#
# ## What we missed
#
# Many questions have a target for their median. These miss theirs, and for each of them we say which measurement would help.

# %% tags=["hide-input"]
by_group = tables.by_group()
charts.table(
    tables.missed(by_group),
    caption="Targets that are missed with the page left out, and what would close each",
    download="missed",
)

# %% [markdown]
# * **The scenario of hand-tuned software is no upper bound.** Four of 1,169 published runs are faster than its band, though by no more than
#   an eighth.
# * **Single rows are far off,** by several times. They stay in, and Evidence lists the sources that carry most of the error.
# * **We know no measured server of Trainium3.** What this book says of one rests on kernels, on a few steps, and on the software of Trainium2.
#
# No row is set aside because of its error.
#
# ## What moves the answer, and what is left out
#
# The software that ran moves a prediction most, as the row with another engine shows in the table *One invented row*. Name your engine and its release before you trust a
# time. After that come the kind of model, the chip and, last, the model itself. For decode steps and first tokens, leaving out a model costs less than
# leaving out its page. For steps of training on Trainium it costs more.
#
# Prices and quality are not judged here, for they have no measurements of this kind. Failures are compared with printed uptimes in
# [the chapter on failures](goodput.ipynb), and the serving of GPUs in [the chapter on GPUs](beside-gpus.ipynb).

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Look up the error of your question on your chip with the page left out, and no other. In the median, steps of dense models are known to a seventh, and
# steps of training to a sixth or better on each chip. Kernels are known to a few percent on Trainium3 and only to a third on Trainium2. Mixtures of
# experts are missed by about half. A server's throughput on Trainium2 is known to a quarter, and one in ten is missed by more than a factor of two.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Four configurations have errors of $2, 3, 4$ and $20$ percent. What are the median and the mean?
#
# ```{admonition} Answer
# :class: dropdown
# The median is 3.5%, and the mean is 7.25%. One bad row moves the mean and leaves the median as it is.
# ```
#
# **2.** Nineteen errors with their page left out are $1, 2, \dots, 19$ percent. Which width covers nine of ten new ones?
#
# ```{admonition} Answer
# :class: dropdown
# The 18th of them, 18%. A new error can lie at any of twenty places between, below or above the nineteen, and nine tenths of twenty are 18.
# ```
#
# **3.** Ten pages of one author give a hundred rows, and one page of another gives one. Which page weighs most in the median, and why does
# leaving out a page help?
#
# ```{admonition} Answer
# :class: dropdown
# The ten pages decide the median. Leaving out one page does not change that, but it makes sure that a page never predicts itself. If the ten
# share a machine and an engine, the single page is the better test.
# ```

# %% [markdown]
# ## Evidence
#
# ```{admonition} Which rows are set aside, and why?
# :class: dropdown
# * **The same run again.** A page prints a rate beside the time of the same run. The time counts.
# * **A percentile.** A tail beside a printed median is predicted and has no vote.
# * **A rounding.** A time that is rounded to a quarter of itself says less than a prediction.
# * **No machine.** Collectives of a page that names no machine are predicted for the likeliest one, and counted apart.
# * **No question.** Prices, shares that follow from another row, and parts of a run are no time that a user meets. Pictures and speech have no model
#   here.
# ```
#
# ```{admonition} Why do first tokens on Trainium3 look so bad?
# :class: dropdown
# There are two of them. One page prints a prompt of seven tokens in its table and of 640 tokens in its text. We read pages from their cells, so the
# prediction is far too low; with the longer prompt it is half too high. The cell below checks this.
# ```
#
# ```{admonition} Why do other pages print another error of throughput?
# :class: dropdown
# This page counts all throughputs, those of static batches too. [How fast does it serve?](serving.ipynb) and [Which system should I
# use?](which-system.ipynb) count servers with a queue. No fit has read such a throughput, so their error is smaller than with the whole
# page left out.
# ```

# %% tags=["hide-input"]
said = "Measured throughputs that pages of this book count, and their errors"
charts.table(tables.throughputs(by_chip), caption=said, download="throughputs")

# %% tags=["hide-input"]
files = {
    "From published rows to votes": (tables.funnel(rows), "votes"),
    "Every group and split": (by_group, "accuracy"),
    "Blind errors by group, and those of today": (blind, "blind"),
    "Reasons why predicted rows do not count": (tables.asides(rows), "excluded-reasons"),
    "Sources that carry the error of a question": (tables.lab_table("errors_by_source"), "by-source"),
    "Signed errors by system, batch, context and TP": (tables.lab_table("errors_by_regime"), "by-regime"),
    "Steps of training by software, beside one MFU": (tables.lab_table("training_errors"), "training"),
    "Products on Trainium3, blind and left out": (tables.lab_table("product_errors"), "products"),
}
display(*(charts.table(frame, caption=name, download=stem, file_only=True) for name, (frame, stem) in files.items()))

# %% tags=["hide-input"]
two = tables.both_readings("trainium3", "gpt-oss-20b")
assert two.error.round(2).to_dict() == {"cells": -0.79, "stated": 0.52}, "the words on first tokens of Trainium3"
slow = tables.points(unseen).query("question == 'time per output token' and measured > 100")
longer = slow.measured / slow.predicted
assert longer.min() > 1, "the words below the first chart"
assert longer.median() > 2, "the words below the first chart"
bounds = tables.lab_table("other_chips_bounds")
assert (bounds.quartile_high <= 1).all(), "a measured time beats the ideal machine"
others = {
    "Serving on GPUs by chip, as fitted and left out": "other_chips_by_chip",
    "All-reduces of engines on GPUs": "other_chips_all_reduce",
    "Ideal over measured time on other chips": "other_chips_bounds",
}
display(
    *(
        charts.table(tables.lab_table(name), caption=said, download=name, file_only=True)
        for said, name in others.items()
    )
)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.validation().query("weight > 0").groupby("source").configuration.nunique()
charts.table(
    used.sort_values(ascending=False, kind="stable").rename("configurations").reset_index(),
    caption="Pages of measurements, with their configurations",
    download="sources",
)
