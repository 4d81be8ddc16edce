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
shown = tables.lost_by_mechanism(gaps[experts.id], f"{experts.id} on {spec.name}, {lengths}; factors multiply")
tuned = {name: tm.plan(m, requests[name], spec, efficiencies="hand-tuned").best for name, m in models.items()}
display(Markdown(tables.answer(gaps, plans, tuned)), shown)

# %% [markdown]
# **What may software become, and by when?** Public software is what a buyer gets today. The next step is *hand-tuned* software: somebody has measured
# each of its parts, and nobody has put them together. *Ideal* software is a limit, which no release will reach. We found no source that gives a
# date, so this book plans with public software and counts better software as a gain.
#
# **How sure is this?** The ideal end follows from data sheets. The public end is a prediction, and its range holds what nobody knows of the
# software. Routing of experts was fitted to 64 ranks at most; a rack has more. We replace one mechanism after the
# other. Another order changes the factors, and not their product.
#
# ## The running case
#
# Two models on three systems run through the whole book, each with a promise to its users. The last line is this chapter's.

# %% tags=["hide-input"]
case.table("software")

# %% [markdown]
# ## Why ask?
#
# The lines "Throughput per chip" and "The same on ideal software" belong to the same chips and the same request. Only the software differs between them.
# In the running case this changes the answer more than the choice of the rack does. A buyer should ask which of the two a quoted number is. An engineer should
# know which loss to attack first.
#
# ## The idea: software adds waiting
#
# A step has to read $W$ bytes of weights and cache. The $n$ ranks read them at a share $\sigma$ of their bandwidth $b$. Then come the exchanges
# that nothing hides, $t_x$, and the times $t_0$ in which nothing is read or sent:
#
# $$ t = \frac{W}{n\,b\,\sigma} + t_x + t_0 . $$
#
# Ideal software has $\sigma = 1$ and hides every exchange behind the reading, so that $t_x$ and $t_0$ are zero. The cell runs the decode step of
# the public plan on each kind of software. Below, the loss of $\sigma$ is called *kernels*, and that of $t_x$ is called *exchange*.

# %%
steps = {}
for name, best in plans.items():
    where, ask = (models[name], spec, best.degrees), tables.question_of(best)
    steps[name] = {k: tm.decode_step(*where, efficiencies=k, **ask) for k in ("ideal", "hand-tuned")}
    steps[name]["public"] = best.step
tables.in_time(steps)

# %% [markdown]
# Compare whole rows, not their parts. The share of hand-tuned software was measured on streams of bytes alone. Public software was fitted to whole steps,
# which do not show whether a layer reads slowly or waits. We assume that it reads at nearly full speed and book the rest as time per layer.
#
# ## One mechanism in full: routing of experts
#
# **Why.** A layer with experts sends each token to $k$ of them. The cores must learn who works on which token before they start, and all of them wait
# for the slowest. In measurements each doubling of the $n$ cores adds the same wait, as in a tree in which pairs meet, then pairs of pairs.
# More experts per token add little. For $M$ such layers and a fitted time $t_e$ this gives
#
# $$ t_r = M\,t_e\,\log_2(2n)\,k^{1/4} . $$
#
# **What it does to the throughput.** A user at speed $v$ must get a token every $1/v$ seconds. In that time a replica takes one step for its $B$
# users and works on prompts. Each user needs one prompt of the time $t_p$ for every $o$ tokens of answer, so the largest batch follows from
#
# $$ t(B) + \frac{B}{o}\,t_p \;\le\; \frac{1}{v} . $$
#
# A longer step leaves room for fewer users. A replica of $N$ chips then makes, per chip,
#
# $$ y = \frac{B\,v}{N} . $$
#
# **By hand.** DeepSeek-V3 has 58 layers with experts and chooses eight experts per token. It runs on 256 cores of Trainium3. With
# $t_e = 29.6$ µs, routing takes $58 \times 29.6\ \mu\text{s} \times 9 \times 8^{1/4} = 26$ ms. The promise of 20 tokens/s leaves 50 ms for
# everything, so routing takes half of it.

# %%
plan = case.choice("deepseek-v3", "trn3-nl32x2-pcie160")
where, ask = ("deepseek-v3", plan.system, plan.degrees), tables.question_of(plan)
free = plan.stack.moved({"expert_core_s": 0.0})  # the same software without this cost
batches = [16, 32, 64, 128, 192, 256, 512, 704, 1024]
both = {"with routing": plan.stack, "routing for free": free}
timed = {k: tm.decode_step(*where, efficiencies=e, **ask | {"batch": batches}) for k, e in both.items()}
routing_s = timed["with routing"].time_s - timed["routing for free"].time_s
assert (abs(1e3 * routing_s - 26) < 0.5).all()

# %% tags=["hide-input"]
charts.lines(
    tables.by_batch(timed, promise_s=1 / 20),
    x="batch",
    y="time_s",
    color="line",
    log_x=True,
    caption="Routing takes half of the promised time at any batch",
    under="a decode step of DeepSeek-V3; prompts need the room below the promise",
).properties(height=150)

# %% [markdown]
# ## The other mechanisms
#
# ```{admonition} Layer overhead, launch, host sampling and padding: why, and what each costs
# :class: dropdown
# | Mechanism | Why it costs time | What it costs |
# | :-- | :-- | :-- |
# | Layer overhead | Each of $L$ layers waits for $t_\ell$ that no byte explains. If a step yields $k$ tokens, no user is faster than $v$. | $t_0 = L\,t_\ell$ and $v = k / t_0$ |
# | Launch | A *graph* is what the compiler makes of a part of the model. If it holds $g$ of $M$ layers, $n$ ranks start and meet for each graph. | $\lceil M / g \rceil\, t_1 \log_2 n$ |
# | Host sampling | The host chooses the next word. So $B$ rows of scores for $V$ words, of four bytes each, travel to it at a rate $r$. | $4\,B\,V / r$ |
# | Padding | A graph is compiled for a batch $B'$ and a length $C' = 2^{\lceil \log_2 C \rceil}$ and takes as long for less. | useful share of the cache $B\,C / (B'\,C')$ |
# ```
#
# **Launch** shows how far builds differ. A *graph* is what the compiler makes of a part of the model, and the 128 ranks start and meet for each graph. The
# Kiln project built one graph for each layer with experts, which takes $58 \times 0.92\ \text{ms} \times 7 = 374$ ms per step. With twelve layers in a
# graph it takes $5 \times 0.51\ \text{ms} \times 7 = 18$ ms.

# %% tags=["hide-input"]
builds = {"kiln-layers": 374, "kiln-nki": 18}
for name, by_hand_ms in builds.items():
    stack = tm.efficiencies("trainium3", name)
    pair = (stack, stack.moved({"graph_doubling_s": 0.0}))
    launched_s, free_s = (tm.decode_step(*where, efficiencies=e, **ask).time_s for e in pair)
    assert round(1e3 * float(launched_s - free_s)) == by_hand_ms

# %% [markdown]
# ## Our line of the running case, and what each mechanism costs
#
# A slower exchange or a longer step can make another mapping the best one. So `tm.software_gap` replaces one mechanism after the other and plans
# anew after each. The factors multiply to the whole gap:
#
# $$ \frac{y_\text{ideal}}{y_\text{public}} = \prod_m f_m . $$
#
# The first plan of each gap is our line of the case. A training run has a gap too, in days. The last row is the job with which
# [How long does training take?](training.ipynb) begins.

# %%
all_gaps, lines = {}, {one.name: one for one in case.LINES}
for name in case.PROMISES:
    for where in case.SYSTEMS:
        gap = tm.software_gap(name, case.request(name), where)
        all_gaps[name, where, "serving"] = gap
        assert gap.stages[0].value == case.value(lines["The same on ideal software"], name, where)
        assert gap.end("public").value == case.value(lines["Throughput per chip"], name, where)
job = {"tokens": 2e12, "seq": 8192, "global_batch": 2048, "chips": 2048, "precision": "bf16"}
training = tm.training_gap("llama-3.3-70b", "trn2.48xlarge", **job)

# %% tags=["hide-input"]
charts.table(
    tables.factors(all_gaps | {("llama-3.3-70b", "trn2.48xlarge", "training"): training}),
    caption="Factors that public software loses to each mechanism",
    download="factors",
)

# %% [markdown]
# A factor of one means that nothing is lost. A factor below one gives back a part of a loss that another column counts. A mechanism that loses nothing in any of these
# rows has no column. In serving, launch costs nothing, because one graph holds the whole model. Training loses most to
# kernels, and to exchanges that do not overlap with work.
#
# ## How much must software win back?
#
# If a rival makes $y_r$ per chip, our chip ties when its software reaches the share
#
# $$ x = \frac{y_r}{y_\text{ideal}} $$
#
# of its ideal. In the charts the shaded band holds what public software may reach. A rival to the left of the band makes less, and one to the right
# makes more. Where a range overlaps the band, it is a tie.

# %%
dials, sides = {}, {}
for name, m in models.items():
    dials[name] = {"public": plans[name], "hand-tuned": tuned[name]}
    dials[name]["ideal"] = tm.plan(m, requests[name], spec, efficiencies="ideal").best
    sides[name] = tm.compare(m, requests[name], others)

# %% tags=["hide-input"]
turned = tables.dial(dials, sides, spec.id)
for name in models:
    one = turned[turned.model == name]
    said = {
        "caption": tables.beaten(turned, name),
        "under": f"share of ideal {spec.name}, per chip; rivals on public software",
    }
    drawing = charts.ranges(one, x="share_of_ideal", y="which", **said) if len(one) else None
    display(tables.with_bands(drawing, one).properties(height=140) if drawing else Markdown(said["caption"]))

# %% [markdown]
# Software must run the model at all. `tm.support(model, system)` looks up what the documentation lists:

# %% tags=["hide-input"]
Markdown(tables.listed(tm.support(experts, spec)))

# %% [markdown]
# The case assumes that the model runs, with the constants of the documented software. We do not rank systems by hand-tuned software, because nobody has built it as a whole.
# If the needed share is above 1, even perfect software loses.
#
# ## Check: what changes of software gained
#
# Does anybody gain what a gap promises? We collected pairs of published figures that differ by one change of software, by a rule and not by their
# result. The table counts all of them. The largest gain of a kernel is that of one NKI kernel over compiled code for a state-space model: a part of a model, and no server.

# %% tags=["hide-input"]
pairs = tables.pairs(tm.validation())
display(charts.table(tables.closed(), caption="Speedup by one change of software, by cause", download="closed"))
Markdown(tables.foreseen(pairs))

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
# - **Left out**: two half batches that hide each other's exchanges, prompts on separate chips, and the price of writing the software.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Ask on which software before asking on which chip. In the running case public and ideal software lie further apart than any two of its three systems. Much of
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
