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
# Trainium is Amazon's accelerator for training and serving models: one `trn2.48xlarge` at AWS has sixteen chips of its second generation. Choose a
# model and what you promise to its users, and see which Trainium and which GPU serve it best, what they cost, and how sure that is.

# %% tags=["parameters"]
models: list[str] = ["llama-3.3-70b", "deepseek-v3", "llama-3.1-8b"]
tokens_per_s_per_user: list[float] = [50.0, 20.0, 100.0]
input_tokens: int = 4096
output_tokens: int = 512
users: int = 1000
desk_models: list[str] = ["llama-3.1-8b", "llama-3.3-70b", "gpt-oss-120b", "qwen3-235b-a22b", "deepseek-v3", "kimi-k2"]
desk_tokens_per_s_per_user: list[float] = [10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0]
desk_input_tokens: list[int] = [2048, 4096, 32768]
desk_output_tokens: list[int] = [512, 512, 1024]
desk_ttft_s: float = 1.0

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import guard
from trnbook.chapters import index as tables
from trnbook.chapters import index_desk as desk
from trnbook.chapters import index_hand as hand
from trnbook.chapters import index_site as site
from trnbook.drawings import systems
from trnbook.shared import case, errors

guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.above_zero(tokens_per_s_per_user=tokens_per_s_per_user)
guard.within(1, 1e9, users=users)
asked = tables.paired(models, tokens_per_s_per_user)
for model in asked:
    guard.generates(models=tm.model(model))
    guard.spans(input_tokens + output_tokens, models=tm.model(model))
lengths = tables.lengths(desk_input_tokens, desk_output_tokens)
guard.above_zero(desk_tokens_per_s_per_user=desk_tokens_per_s_per_user, desk_ttft_s=desk_ttft_s)
guard.some(desk_models=desk_models)
for model in map(tm.model, desk_models):
    guard.generates(desk_models=model), guard.spans(max(map(sum, lengths)), desk_models=model)
requests = {m: tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speed) for m, speed in asked.items()}

# %% tags=["hide-input"]
plans = {model: tm.plan(model, request) for model, request in requests.items()}
sized = {model: tm.plan(model, request, users=users) for model, request in requests.items()}
roles = {model: tables.roles_of(plans[model], sized[model]) for model in requests}
best = {(m, name): tm.plan(m, requests[m], systems=name).best for m, names in roles.items() for name in names}
plain = {
    (m, name): tm.plan(m, requests[m], name, efficiencies="no-speculation").best
    for (m, name), c in best.items()
    if c.option.speculates
}

# %% tags=["hide-input"]
names = desk.on_sale()
grid = {
    at: tm.compare(
        at.model,
        tm.Request(at.input_tokens, at.output_tokens, ttft_s=at.ttft_s),
        names,
        speeds=desk_tokens_per_s_per_user,
        efficiencies=desk.SOFTWARE[at.software],
    )
    for at in desk.states(
        [tm.model(name).id for name in desk_models], lengths, (input_tokens, output_tokens, desk_ttft_s)
    )
}

# %% tags=["hide-input"]
first = next(iter(requests))
hours = {"rent": "capacity-block", "market": "market", "own": {name: tm.tco(name) for name in names}}
priced = {paid: tm.token_cost(first, requests[first], names, pricing=pricing) for paid, pricing in hours.items()}
start = desk.start(grid, desk_tokens_per_s_per_user, tm.model(first).id, requests[first], users)
pair = tables.pair(roles[first])
shown = [tm.system(name).name for name in pair]
desk.desk(grid, priced, start, errors.by_chip(errors.left_out()))

# %% tags=["hide-input"]
charts.promises(
    desk.frontier(grid[desk.State(*list(start.values())[:5])], shown),
    highlight=shown,
    caption="What a chip makes at each promised speed",
    under=f"{start['model']}, {start['input_tokens']:,} in, {start['output_tokens']:,} out, documented public software",
)

# %% [markdown]
# Each point is the best mapping of a system; point at it to see which. Documented software is what a vendor or an engine documents for the
# chip, or for the chip before it. [`tm.compare`](which-system.ipynb) computed every point, and the page multiplies them with prices.
#
# ## What is compared
#
# A model runs on one chip or on several that share its layers. You rent an instance, and pay for all of its chips. SemiAnalysis calls the
# racks of Trainium3 NL32x2 and NL72x2: two racks of 32 or 72 chips, joined by switches. SXM says that the GPUs of a server sit on one board.
# [What is in a rack?](rack.ipynb) shows how links join chips, and [What limits a chip: memory or arithmetic?](chip-roofline.ipynb) what one can do.

# %% tags=["hide-input"]
systems.compared()

# %% [markdown]
# ## Check it by hand
#
# A decode step makes tokens for all sequences of a batch, and it can be no faster than the chip reads the weights and the caches. If a step
# takes $t$ seconds on $n$ chips and makes $k$ tokens for each of $b$ sequences, if a prompt takes $T$ seconds of a chip for an answer of $a$
# tokens, and if an hour of a chip costs $p$ dollars, then a million tokens cost at least
#
# $$ c = \frac{p}{3600\ \mathrm{s}} \left( \frac{n\,t}{b\,k} + \frac{T}{a} \right) 10^6 . $$
#
# The true cost is higher where a chip must stay idle so that the promised speed holds, and the table below adds that time. Paste these lines into Python, or open this page in JupyterLab and change them there:

# %%
import trnmodel as tm

request = tm.Request(4096, 512, tokens_per_s_per_user=50)
cost = tm.token_cost("llama-3.3-70b", request, "trn2.48xlarge", pricing="capacity-block")
print(f"${float(cost['trn2.48xlarge', 'public'].generated_usd_per_mtoken):.2f} per million tokens")

# %% [markdown]
# The table follows the controls at the top of the page, the lines above do not:

# %% tags=["hide-input"]
one = tm.plan(first, requests[first], systems=pair[0]).best
hour = tm.token_cost(first, requests[first], pair[0], pricing="capacity-block")
charts.table(
    hand.sums(one, hour[pair[0], "public"]),
    caption=f"From bytes to dollars: {first} on {pair[0]}",
    download="by-hand",
)

# %% [markdown]
# [How long does a decode step take?](decode-step.ipynb) derives the step, and shows how the residual overhead was fitted. Drafts are tokens that a
# small model proposes and the large one checks; they make $k$ larger than one. Sellers of the model by the token promise no speed, so that their batches may be larger and their prices lower.
#
# ## Three models on Trainium and GPUs
#
# For each model, `tm.plan` searches all systems, number formats and mappings for the one that completes most requests per paid chip. The
# table shows the Trainium to rent, the best one of all, the GPUs with the lowest bill, and the GPU that makes most. For the first model and its
# users the page says before you move a control:

# %% tags=["hide-input"]
Markdown(tables.bills(sized[first], pair))

# %% tags=["hide-input"]
rows = [
    tables.row(role, best[m, name], plain.get((m, name)), tables.sized_on(sized[m], name))
    for m, names in roles.items()
    for name, role in names.items()
]
charts.table(pd.DataFrame(rows), caption=f"What serves {tm.units.counted(users, 'user')}", download="what-to-use")

# %% tags=["hide-input"]
answers = []
for (model, system), choice in best.items():
    owned = tm.token_cost(model, requests[model], system, pricing=tm.tco(system))
    answers.append(tables.answer(choice, choice.system.status, owned[system, choice.stack_kind]))
charts.table(pd.DataFrame(answers), caption="All figures of these systems", download="answers", file_only=True)

# %% [markdown]
# Rents are those of AWS's Capacity Blocks, instances that are booked ahead by the day, and a dash says that nobody publishes one. A *draw* is one guess of what nobody knows of the software:
# the range in brackets holds nine in ten of the draws that keep the promise, and *chance* is the share of draws in which the promise holds. TTFT is the time in
# which 99 of 100 first tokens come: it includes the queue behind other users' prompts, and not the wait for a free place in a batch.
#
# **Drafts** are tokens that a small model proposes and the large one checks. Their gain was measured with one sequence, in another format and on
# more ranks than here, and we assume that it carries over. The ranges leave out the uncertainty of this gain. So the table also shows what the newest
# documented software makes without them. An older release makes less, and [What does software cost?](software.ipynb) sets releases side by side.
#
# Nobody has published a run of a server of Trainium3. Its figures are extrapolated, so that its true ranges are wider than those of the table. We count
# drafts only up to the batch that a published page documents, on Trainium and on GPUs alike.
#
# Where ranges overlap, a measurement on your own model decides, and not this page. Four chapters help you: [Which system should I
# use?](which-system.ipynb) compares systems at every speed and under a limit on the first token. [What does a token cost, and who
# wins?](cost.ipynb) takes your own prices. [How does Trainium stand beside GPUs and TPUs?](beside-gpus.ipynb) counts per chip, per dollar and
# per joule. [How sure can you be?](how-sure.ipynb) says how far such answers have been from measurements.
#
# ## Power, training and failures
#
# Three tables follow, which stay as they are when you move a control: the power to serve Llama-3.3-70B at 50 tokens/s per user, one training run
# of it, and the failures of a larger job and of the servers. A range holds nine of ten cases of what nobody knows of software and failures. A figure without
# a range is a best estimate; the card at the top has the ranges of instances and of provisioned power.

# %% tags=["hide-input"]
rates, serving, training, failing = tm.fleet("borrowed"), {}, {}, {}
for name in [*case.SYSTEMS, "hgx-h200"]:
    ask = ("llama-3.3-70b", case.request("llama-3.3-70b"), name)
    size = tm.plan(*ask, users=users).capacity
    spared = tm.plan(*ask, users=users, availability=0.9999).capacity
    chips = site.whole_domains(size.system.domain_chips, 2048)
    run = tm.train_run("llama-3.3-70b", name, chips=chips, tokens=2e12, seq=8192, global_batch=2048)

    def useful(fleet, name=name, swap="hot"):
        return tm.goodput(name, 16384, model="llama-3.1-405b", swap=swap, fleet=fleet)

    draws = tm.sensitivity(useful, {"fleet": rates}, draws=4000)
    column = f"on {size.system.name}"
    serving[column], training[column] = site.serving(size), site.training(run)
    failing[column] = site.failures(size, spared, useful(rates), useful(rates, swap="drain"), draws)
charts.table(site.table(serving), caption=f"Power for {tm.units.counted(users, 'user')}", download="site-serving")

# %% [markdown]
# A site provisions for its hottest day. On that day we assume that the site of the liquid-cooled NL72x2, which has chillers, needs 1.5 times the power of its
# racks, and a site that outside air cools 1.2 times. Whole domains are bought, so that a large domain stands partly idle.
# [How many watts per chip, and how many joules per token?](power.ipynb) derives the watts, with their ranges.

# %% tags=["hide-input"]
charts.table(site.table(training), caption="One training run, its failures included", download="site-training")

# %% [markdown]
# The run has sequences of 8,192 tokens, and 2,048 of them in a batch. An estimate by hand divides its operations, six for each parameter and token, by what the
# chips compute at their share of the peak. [How long does training take?](training.ipynb) shows both, and the mapping.

# %% tags=["hide-input"]
charts.table(site.table(failing), caption="What failures take", download="site-failures")

# %% [markdown]
# Nobody publishes how often Trainium fails. We borrow the rates of GPU fleets and of other networks, so that these systems differ by their design alone: by how
# many chips one failure stops, and how long a restart takes. A rack that is drained for a repair stops all of its chips, so that the largest racks lose most by
# it. The running case below counts the hours in which one replica is out; with hundreds of replicas, some replica is out far more often.
# [What is lost to failures?](goodput.ipynb) compares the same rates with printed uptimes of other fleets.
#
# ## The running case
#
# Two models on three systems run through the whole book: a dense one, in which every token uses all weights, and a mixture of experts. Most
# chapters of the second part derive a line of this table, from the peak of the chip to the hours that failures cost. The last line is what a million
# tokens cost their owner. Each plan has its own mapping, so that steps of different systems do different work. The table has the best estimates, the
# chapters have their ranges, and the last rows open below the table.
#
# No release of documented software lists DeepSeek-V3 on Trainium. We assume the measured overheads of vLLM Neuron, and
# `tm.support("deepseek-v3", "trn2.48xlarge")` says what exists.

# %% tags=["hide-input"]
case.table("index")

# %% [markdown]
# ## Three ways to read
#
# **You decide about a purchase.** Read the first four chapters. One line at the terminal asks the same for your own
# model: the system, the mapping, the runner-up, the bill for a number of users at several prices, and the command that starts the server. With
# `--users` it counts whole instances, so that another system may lead.
#
# ```console
# trnmodel plan llama-3.3-70b --speed 50 --in 4096 --out 512
# trnmodel plan path/to/config.json --speed 50 --in 4096 --out 512 --users 500
# ```
#
# **You want to understand, or to check us.** Read the second part in order, or open it in JupyterLab: the cells that call the model stand open.
# Change one and run it. Start JupyterLab in the folder of the repository:
#
# ```console
# make lab
# ```
#
# There, [What happens if I change the mapping?](workbench.ipynb) opens with controls instead of code: move one, and see what follows.
#
# **You need the answer again and again.** Each chapter is a report with parameters, for a pipeline. The third part shows how the
# numbers were measured, decided and found, and how to add your own.
#
# ```console
# trnmodel run serving -p model=llama-3.1-8b -p system=trn2.48xlarge -o reports
# trnmodel compare deepseek-v3 trn3-nl32x2-pcie160 trn3-nl72x2-pcie160 --speed 20 --in 4096 --out 512
# ```
#
# ## The chips
#
# AWS has built three generations. A *domain* is the largest group of chips that scale-up links join. The links of a chip are
# counted in one direction; those of Trainium3 are counted by SemiAnalysis, and AWS's page has fewer. Trainium3 is fastest in MXFP8, and
# plain FP8 runs at about half of that rate.

# %%
chips = [tables.chip(tm.chip(name), tm.topology(system)) for name, system in tables.LARGEST.items()]
charts.table(pd.DataFrame(chips), caption="Three generations of Trainium", download="chips")

# %% [markdown]
# ## The chapters
#
# Each chapter asks one question, answers it first, derives the answer, and meets a number that is not ours. Each table can be downloaded
# as CSV, and each chapter as a notebook.
