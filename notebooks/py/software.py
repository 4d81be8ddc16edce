# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 16
#     part: Understand
# ---

# %% [markdown]
# # What does software cost?

# %% tags=["parameters"]
system: str = "trn3-nl32x2-pcie160"
rivals: list[str] = ["hgx-h200", "hgx-b200", "gb200-nvl72", "mi355x-8"]
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
from trnbook.chapters import common, guard
from trnbook.chapters import software as tables
from trnbook.shared import case

spec, dense, experts = tm.system(system), tm.model(model), tm.model(experts_model)
speeds = {"tokens_per_s_per_user": tokens_per_s_per_user}
speeds |= {"experts_tokens_per_s_per_user": experts_tokens_per_s_per_user}
guard.neuroncore(system=spec), guard.some(rivals=rivals), guard.generates(model=dense, experts_model=experts)
guard.spans(input_tokens + output_tokens, model=dense, experts_model=experts)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens), guard.within(1e-3, 1e6, **speeds)
guard.need(dense.id != experts.id, f"model and experts_model are both {dense.id!r}: name two models")
models, others = {dense.id: dense, experts.id: experts}, [tm.system(name).id for name in rivals]
lengths = f"{input_tokens:,} tokens in and {output_tokens:,} out"

# %% tags=["hide-input"]
requests, gaps, plans = {}, {}, {}
for (name, m), speed in zip(models.items(), speeds.values(), strict=True):
    requests[name] = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speed)
    gaps[name] = tm.software_gap(m, requests[name], spec)
    plans[name] = tm.plan(m, requests[name], spec).best

# %% tags=["hide-input"]
tables.must_fit(plans, spec.id)
shown = tables.waterfall(gaps[experts.id], f"{experts.id} on {spec.name}, {lengths}")
display(Markdown(tables.answer(gaps, plans)), shown)

# %% [markdown]
# **How sure is this?** The ideal end follows from data sheets. The public end is a prediction; the range is that of what nobody knows of the
# software. Routing of experts was fitted to at most 64 ranks, and a large rack is asked for more. A bar depends on the order of the bars, and their
# product does not.
#
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. The last
# line is this chapter's.

# %% tags=["hide-input"]
case.table("software")

# %% [markdown]
# ## Why ask?
#
# The throughput and our line belong to the same chips and the same request. Between them lies software alone, and it moves the answer more than
# any two racks of the table differ. A buyer should know which end a number belongs to, and an engineer which loss to attack first. We keep three
# kinds apart:
#
# - **Ideal** software loses nothing. It is what the hardware allows.
# - **Public** software is what one can install today, with constants that were fitted to published runs.
# - **Hand-tuned** software is a scenario between them. Each of its parts was measured somewhere, and all of them together nowhere.
#
# ## The idea: software adds waiting
#
# A step must read the same bytes on any software. Software reads them more slowly, adds bytes that nobody needs, and leaves times in which
# nothing is read. The cell runs the decode step of the public plan on each kind.

# %%
steps = {}
for name, best in plans.items():
    where, ask = (models[name], spec, best.degrees), tables.asked(best)
    steps[name] = {k: tm.decode_step(*where, efficiencies=k, **ask) for k in ("ideal", "hand-tuned")}
    steps[name]["public"] = best.step
tables.in_time(steps)

# %% [markdown]
# ## The mechanisms
#
# **Kernels** stream $W$ bytes at a share $\sigma$ of the bandwidth $b$ of $n$ ranks. Ideal software hides an **exchange** of the time $t_x$
# behind them, and where nothing overlaps the times add up:
#
# $$ t_w = \frac{W}{n\,b\,\sigma} , \qquad t = \max(t_w,\ t_x) \;\longrightarrow\; t = t_w + t_x . $$
#
# **Layer overhead** is a time per layer that was measured and that no byte explains. It sets a speed that no user passes, if a step yields $k$
# tokens and the model has $L$ layers:
#
# $$ t_0 = L\,t_\ell , \qquad v \le \frac{k}{L\,t_\ell} . $$
#
# **Launch.** A *graph* is what the compiler makes of a part of the model. If a graph holds $g$ of $M$ layers with experts, the $n$ ranks start and
# meet again for each of them:
#
# $$ t_g = \left\lceil \frac{M}{g} \right\rceil t_1 \log_2 n . $$
#
# **Host sampling.** Where the host chooses the next word, $B$ rows of scores for $V$ words of four bytes travel to it at a rate $r$:
#
# $$ t_h = \frac{4\,B\,V}{r} . $$
#
# **Padding.** A graph is compiled for a batch $B'$ and a length $C'$ and takes as long for less. The useful share of what it reads of the
# cache is
#
# $$ s = \frac{B}{B'}\,\frac{C}{C'} , \qquad C' = 2^{\lceil \log_2 C \rceil} . $$
#
# **Routing of experts.** Each layer with experts chooses $k$ experts per token, gathers them, and waits for the slowest core. The
# constant $t_e$ was fitted, and each doubling of the $n$ cores waits as long again:
#
# $$ t_r = M\,t_e\,\log_2(2n)\,k^{1/4} . $$
#
# **By hand.** DeepSeek-V3 has 58 layers with experts, eight experts per token, and runs on 256 cores of Trainium3. With
# $t_e = 29.6$ µs, routing takes $58 \times 29.6\ \mu\text{s} \times 9 \times 8^{1/4} = 26$ ms. One graph per layer on 128 ranks would take
# $58 \times 0.92\ \text{ms} \times 7 = 374$ ms, and a graph of twelve layers $5 \times 0.51\ \text{ms} \times 7 = 18$ ms. Both are
# builds of the Kiln project.

# %%
plan = case.choice("deepseek-v3", "trn3-nl32x2-pcie160")
where, ask = ("deepseek-v3", plan.system, plan.degrees), tables.asked(plan)
by_hand, launch = {}, {"kiln-layers": "graph_doubling_s", "kiln-nki": "graph_doubling_s"}
for name, constant in {plan.stack.id: "expert_core_s", **launch}.items():
    stack = tm.efficiencies("trainium3", name)
    free = stack.moved({constant: 0.0})  # the same software without this cost
    whole_s, free_s = (tm.decode_step(*where, efficiencies=e, **ask).time_s for e in (stack, free))
    by_hand[name] = round(1e3 * float(whole_s - free_s))
assert by_hand == {plan.stack.id: 26, "kiln-layers": 374, "kiln-nki": 18}

# %% [markdown]
# ## Our line of the running case, and what each mechanism costs
#
# A mechanism costs more than its time in a step. A longer step leaves room for fewer users at the promised speed, and a slower exchange forces
# other mappings. So `tm.software_gap` plans anew after each one, and its factors multiply to the whole gap:
#
# $$ \frac{y_\text{ideal}}{y_\text{public}} = \prod_m f_m . $$
#
# The first plan of each gap is our line of the case. A training run has a gap too, in days.

# %%
all_gaps, lines = {}, {one.name: one for one in case.LINES}
for name in case.PROMISES:
    for where in case.SYSTEMS:
        gap = tm.software_gap(name, case.request(name), where)
        all_gaps[f"{name}, {where}"] = gap
        assert gap.stages[0].value == case.value(lines["The same on ideal software"], name, where)
        assert gap.end("public").value == case.value(lines["Throughput per chip"], name, where)
ask = {"tokens": 15e12, "chips": 2048}
all_gaps["training llama-3.3-70b"] = tm.training_gap("llama-3.3-70b", "trn3-nl32x2-pcie160", **ask)

# %% tags=["hide-input"]
charts.table(
    tables.factors(all_gaps),
    caption="How many times each mechanism costs on the way from ideal to public software",
    download="factors",
)

# %% [markdown]
# Each factor goes the whole way to public software; the first chart shows the part up to hand-tuned software apart. A factor of one means that
# nothing is lost. One below one is a gain that another row takes back, because kinds of software count the same loss in different places. Launch
# has no row, because one graph holds the whole model. Training loses to kernels, and to exchanges that do not overlap with work.
#
# ## The dial: how much must be won back?
#
# If a rival makes $y_r$ per chip, our chip ties when its software reaches the share
#
# $$ x = \frac{y_r}{y_\text{ideal}} $$
#
# of its ideal. Read the chart as a dial. Find the share that you expect of the software on the axis. You beat every rival whose dot lies left of it.

# %%
dials, sides = {}, {}
for name, m in models.items():
    dials[name] = {"public": plans[name]}
    for kind in ("hand-tuned", "ideal"):
        dials[name][kind] = tm.plan(m, requests[name], spec, efficiencies=kind).best
    sides[name] = tm.compare(m, requests[name], others)

# %% tags=["hide-input"]
turned = tables.dial(dials, sides, spec.id)
charts.ranges(
    turned,
    x="share_of_ideal",
    y="which",
    color="model",
    caption=tables.beaten(turned, dense.id),
    under=f"share of ideal {spec.name}, per chip; rivals on public software",
)

# %% [markdown]
# A gap presupposes software that runs the model at all. `tm.support` looks up what the documentation lists:

# %%
Markdown(tables.listed(tm.support(experts, spec)))

# %% [markdown]
# No documented release of vLLM Neuron lists DeepSeek-V3, with its latent attention (MLA) and shared experts; a contributed port exists for
# trn2.48xlarge. The case assumes that it runs with that software's constants.
#
# The band of hand-tuned software shows what measured parts would reach together. It ranks nobody, because nobody has put them together.
# Where a rival ties at more than one, no software wins that race.
#
# ## Check: what changes of software gained
#
# A gap says what could be gained, and not whether anybody gains it. So we collected pairs of published figures that differ by one change of
# software, by a rule and not by their result. The table counts all of them, and the chart shows those that we can predict.

# %%
pairs = tables.pairs(tm.validation())

# %% tags=["hide-input"]
display(charts.table(tables.closed(), caption="Speedup by one change of software, by cause", download="closed"))
display(
    charts.scatter(
        pairs,
        x="measured_speedup",
        y="predicted_speedup",
        color="prediction",
        label="run",
        caption="We foresee exchanges and padding, not better kernels",
        under="one point for each published change; the line is a perfect prediction",
    ).properties(height=180)
)

# %% [markdown]
# Our constants know what a graph pads, how exchanges run and what a format reads. A release or a better kernel moves none of them; most such changes
# are small, and some made a run slower. The hand-tuned scenario has a check too: of published times of experts spread wide over GPUs we leave out
# one at a time.

# %% tags=["hide-input"]
wide = tables.wide_experts()
Markdown(f"{tables.held(wide)} of the left-out times lie in the interval that the others give.")

# %% [markdown]
# ## What moves the answer, and what is left out
#
# - **The promised speed.** A time per layer does not shrink with the batch: the faster the user, the more software costs.
# - **Left out**: two half batches that hide each other's exchanges, prompts on chips of their own, and the price of writing the software.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask on which software before asking on which chip. In the running case public and ideal software lie further apart than any two systems. Much of
# the loss is time in which nothing is read. Published changes won back some of it, more often by fewer launches and less padding than by kernels.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A stack spends 140 µs per layer on a model of 80 layers, without drafts. Which speed can no user pass?
#
# ```{admonition} Answer
# :class: dropdown
# A step takes at least $80 \times 140\ \mu\text{s} = 11.2$ ms. That is a speed of 89 tokens/s, with nothing else in the step.
# ```
#
# **2.** A rival makes 2,400 tokens/s per chip. Ours would ideally make 3,556. Which share of the ideal ties?
#
# ```{admonition} Answer
# :class: dropdown
# $2{,}400 / 3{,}556 = 0.67$. At a third of the ideal we make half of what the rival does.
# ```
#
# **3.** A server compiles a graph for 120 sequences and 4,096 tokens. It runs 40 sequences of 1,500 tokens. Which share of its reads of the
# cache is useful?
#
# ```{admonition} Answer
# :class: dropdown
# $\frac{40}{120} \times \frac{1{,}500}{4{,}096} = 0.12$. A graph that fits the batch and ends at 2,048 tokens makes it 0.73.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
facts = tm.facts()
stacks = facts[facts.entity.isin({c.stack.id for kinds in dials.values() for c in kinds.values() if c})]
evidence = {f"Every stage of the walk: {name}": (f"gap-{name}", gap.to_frame()) for name, gap in gaps.items()}
evidence |= {"Shares of the ideal, and those at which rivals tie": ("ties", turned)}
evidence |= {"Every pair of figures with its source": ("pairs", tables.every_pair())}
evidence |= {"Pairs with predictions": ("predicted-pairs", pairs), "Wide expert parallelism": ("wide-experts", wide)}
evidence |= {"Constants of the software, with sources": ("constants", stacks)}
evidence |= {"Sources of these constants": ("sources", common.bibliography(stacks.source))}
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (name, rows) in evidence.items()))

# %% [markdown]
# ## Sources
#
# The pages of AWS's Neuron documentation, of the Kiln project and of users who published benchmarks; NVIDIA's AIConfigurator for experts spread over
# GPUs. The files above name each of them.
