# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 0
# ---

# %% [markdown]
# # Trainium from first principles
#
# **Which Trainium, how many, how fast, how much power, how much money, and how long to train?** Small formulas over sourced data answer it for AWS Trainium 1, 2 and 3. Each number has a
# band, says what it rests on, and links to the chapter that derives it.

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
small_model: str = "llama-3.1-8b"
dense_model: str = "llama-3.3-70b"
experts_model: str = "deepseek-v3"
tokens_per_s_per_user: list[float] = [20.0, 50.0]
experts_tokens_per_s_per_user: float = 30.0
input_tokens: int = 4096
output_tokens: int = 512

# %% tags=["hide-input"]
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import guard
from trnbook.chapters import index as tables
from trnbook.chapters import index_cover as cover
from trnbook.report.chapter import called
from trnbook.shared import case, gaps
from trnbook.shared import rack_drawing as drawing

spec = tm.system(system)
guard.links(system=spec)
models = list(dict.fromkeys([small_model, dense_model, experts_model]))
lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens}
guard.above_zero(
    tokens_per_s_per_user=tokens_per_s_per_user, experts_tokens_per_s_per_user=experts_tokens_per_s_per_user
)
guard.within(1, 1e6, **lengths)
for name in models:
    guard.generates(model=tm.model(name))
    guard.spans(input_tokens + output_tokens, model=tm.model(name))

table = cover.answers(models, tokens_per_s_per_user, **lengths)
Markdown(tables.headline(table, dense_model, **lengths))

# %% tags=["hide-input"]
nodes, links = drawing.drawing(spec)
charts.topology(
    nodes,
    links,
    labels=drawing.labels(spec),
    paths=drawing.paths_drawn(spec),
    caption=f"{spec.domain_chips} chips, {len(nodes) - spec.domain_chips} switches, and every link",
    under=spec.name,
)

# %% [markdown]
# ## What to use

# %% tags=["hide-input"]
Markdown(
    f"The best Trainium system that is for rent or announced, for requests of {input_tokens:,} tokens in and {output_tokens:,} out, on the best "
    f"documented public software; beside it what hand-tuned and ideal software would do there. Tokens are those of whole requests: the same chips "
    f"run the prompts, and chips that a mapping leaves idle count.\n\n{tables.answers(table, called)}"
)

# %% tags=["hide-input"]
charts.table(
    table, caption="The same with runner-up and the command that serves it", download="answers", file_only=True
)

# %% tags=["hide-input"]
Markdown(
    f"A trillion tokens of training in BF16 on the best of all mappings, nothing lost; {called('training')} has failures, 8 bits and dollars.\n\n{tables.trainings(table)}"
)

# %% tags=["hide-input"]
Markdown(
    f"Brackets hold 90 % bands. *Measured* rests on runs of that chip and software, *extrapolated* goes beyond them; {called('accuracy')} "
    "says how wrong such answers have been. Hand-tuned software is put together from parts that were measured somewhere and always "
    "extrapolated; ideal software loses nothing. A mapping is precision, degrees of parallelism, cores behind a rank, batch of a replica. "
    f"The promise is the mean speed of a user with the prompts of others counted; the range is that of the draws of the software's uncertain times "
    f"in which it is kept. Energy and power are of whole requests, the chips with their share of hosts and losses; AWS publishes no watts, so that {called('power')} "
    "takes the shares of TDP of GPUs, and the brackets hold the ends of every such input at once. Cost is of generated tokens with their prompts paid, to one who owns the chips, at "
    f"capacity; prices of parts of Trainium are estimates of ours. {called('cost').capitalize()} has rents, and who wins."
)

# %% [markdown]
# ## Why so far from ideal?
#
# Public software makes a fraction of what the chips allow. Each bar is a plan of its own, in which the values of one
# mechanism are those of the next software, and the factors multiply to the whole gap.

# %%
speed = max(tokens_per_s_per_user)
rows = table[(table.model == tm.model(dense_model).id) & (table.wanted_tokens_per_s_per_user == speed)]
where = rows.system.iloc[0] or system
gap = tm.software_gap(dense_model, tm.Request(**lengths, tokens_per_s_per_user=speed), where)
gaps.waterfall(gap, f"{dense_model} on {tm.system(where).name}, {speed:g} tokens/s for each user")

# %% tags=["hide-input"]
Markdown(f"{gaps.describe(gap)} {called('software').capitalize()} has the mechanisms.")

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book, and each chapter explains a line of this table. Its last lines are what
# the chapters add up to.

# %%
case.table("cost")

# %% [markdown]
# ## Five questions

# %% tags=["hide-input"]
Markdown(
    tables.questions(
        dense_model,
        experts_model,
        max(tokens_per_s_per_user),
        experts_tokens_per_s_per_user,
        called=called,
        **lengths,
    )
)

# %% [markdown]
# ## Who it is for, and three ways in
#
# **You size a deployment**: one line gives the system, the mapping, the runner-up and the command that starts the server.
#
# ```console
# trnmodel plan llama-3.3-70b --speed 50 --in 4096 --out 512
# ```
#
# **You check the numbers, or learn**: JupyterLab opens the chapters with their code folded; change a number and run.
#
# ```console
# make lab
# ```
#
# **You need it again and again**: a chapter with your parameters is a report, for a pipeline.
#
# ```console
# trnmodel run serving -p model=llama-3.1-8b -p system=inf2.24xlarge -p tp=8 -o reports
# ```
#
# ## The chips

# %% tags=["hide-input"]
charts.table(
    tables.chips(),
    caption="Three generations: printed peaks, memory, and links one way in the largest system",
    download="chips",
)

# %% [markdown]
# ## The chapters
#
# Each asks one question, answers it first, shows the equation, and ends by meeting a number that is not ours. What is our own
# estimate is drawn hollow or dashed. Every table can be downloaded as CSV, every chapter as a notebook.
