# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 17
#     part: Understand
# ---

# %% [markdown]
# # How long does training take?

# %% tags=["parameters"]
model: str = "llama-3.3-70b"
tokens: float = 2e12
seq: int = 8192
global_batch: int = 2048
system: str = "trn2.48xlarge"
systems: list[str] = ["trn2-ultraserver", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "hgx-h100", "hgx-b200"]
chips: int = 2048
precision: str = "bf16"
owner: str = "hyperscaler"
pricing: str = "capacity-block"

# %% tags=["hide-input"]
import pandas as pd
from IPython.display import Markdown, display

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import training as tables
from trnbook.drawings import timelines
from trnbook.shared import case

m, spec = tm.model(model), tm.system(system)
job = {"tokens": tokens, "seq": seq, "global_batch": global_batch}
tables.check(m, **job)
tables.owned_and_rented(owner, pricing)
guard.within(1, 1e7, chips=chips, seq=seq)
guard.computes(spec.chip, precision=precision)


# %% tags=["hide-input"]
def run_on(name, dtype=precision):
    count = tables.whole_domains(name, chips)
    return tm.train_run(m, name, chips=count, precision=dtype, owner=owner, pricing=pricing, **job)


# %% tags=["hide-input"]
run = tables.first(run_on, spec.id)
runs = {(spec.id, precision): run} | tables.each(run_on, [spec.id, *systems], precision)
Markdown(tables.answer(run, runs))

# %% tags=["hide-input"]
gap = tm.training_gap(m, spec.id, chips=int(run.chips), precision=precision, **job)
tables.waterfall(gap, run)

# %% [markdown]
# The chart starts from *ideal* software, which loses nothing. Each bar replaces one ideal mechanism by a real one: first as it is in software
# tuned by hand, then as it is in public software. **MFU** is the share of the peak that the model's work needs. It counts attention
# that the mask hides, so ideal software, which skips that, can be above 100%.
#
# ## The running case
#
# Training is another question than serving, so it adds no line to the case. Model and systems are the same.

# %% tags=["hide-input"]
case.table("training")

# %% [markdown]
# ## Why the question matters
#
# A training run occupies thousands of chips for weeks. The choice of chips, software and mapping settles its length and bill.
#
# ## The idea: work, and what waits for it
#
# Training shows the model a text and corrects its weights. The *forward* pass predicts. The *backward* pass computes how each weight should
# change, which is twice the work. A *step* does both for a batch of sequences and then updates the weights once.
#
# No chip holds such a model, so three ways to cut it are combined. **TP** cuts every matrix, and its ranks exchange activations in every
# layer. **PP** gives each rank some of the layers, a *stage*, and cuts the batch into *micro-batches* that pass through the stages. **DP**
# copies all this, gives each copy a part of the batch, and adds up the gradients once per step. Exchanges cost time unless they run
# while the chips compute. The drawing shows the best mapping of Llama on 2,048 chips of Trainium2. Change a degree and look again.

# %%
order = ("tp", "cp", "ep", "dp", "pp")  # neighbours first
cuts = tm.Mapping(tp=16, pp=4, dp=128, placement=order)
shape = {"count": 128, "global_batch": 2048, "seq": 8192, "interleave": 2, "recompute": "none"}
step = tm.train_step("llama-3.3-70b", "trn2.48xlarge", cuts, **shape)
timelines.micro_batch_of_training(step)

# %% [markdown]
# ## The equations
#
# **Work.** A matrix of $p$ parameters takes $2p$ operations (FLOP) per token forward and $4p$ backward. Attention adds a term that grows with
# the length $s$ of a sequence. For $T$ tokens, $N$ parameters in matrices, $l$ layers and heads of width $h$ together:
#
# $$ F = T\,(6 N + 12\, l\, h\, s) . $$
#
# **Utilisation.** *MFU*, model FLOP utilisation, is the model's work $F_1$ in a step of $t$ seconds over the peak $P$ of $n$ chips. *HFU* counts
# the FLOP $F_h$ that are executed: more where layers are computed twice, fewer where attention skips what its mask hides. Of the
# calendar, failures leave the useful share $g$ ([What is lost to failures?](goodput.ipynb)), which gives the days $d$:
#
# $$ \text{MFU} = \frac{F_1}{t\,n\,P}, \qquad \text{HFU} = \frac{F_h}{t\,n\,P}, \qquad d = \frac{F}{86{,}400 \cdot n\,P \cdot \text{MFU} \cdot g} . $$
#
# **A step** sends $m$ micro-batches through $p$ stages. Each takes $t_1$ forward, backward and in exchanges that nothing hides. Filling and
# draining the pipeline leaves a *bubble*, which is smaller if a stage holds $v$ separate parts of the model. Then gradients are
# exchanged, which takes $t_d$, and weights updated, $t_o$:
#
# $$ t = \Bigl(m + \frac{p-1}{v}\Bigr)\,t_1 + t_d + t_o , \qquad \text{bubble} = \frac{p-1}{v\,m + p - 1} . $$

# %%
timelines.pipeline_bubble(stages=4, micro_batches=8, interleave=2)

# %% [markdown]
# **Gradients.** The $n_d$ copies add up $G$ bytes of gradients per rank over a network of $b$ bytes per second. Software hides the share
# $\omega$ of what can run beside the backward pass, $t_b$:
#
# $$ t_x = 2\,\frac{n_d - 1}{n_d}\,\frac{G}{b}, \qquad t_d = t_x - \omega \min(t_x, t_b) . $$
#
# **Memory.** For each of its $N_r$ parameters a rank stores a weight, a gradient, and what the optimizer Adam keeps: a precise copy and two
# moments. *ZeRO 1* shares the optimizer among the copies, *ZeRO 3* weights and gradients too. The *activations* $A$ wait for the backward pass:
#
# $$ M = N_r\Bigl(2 + 4 + \frac{12}{n_d}\Bigr) + A . $$
#
# ## An estimate by hand
#
# Llama has 69.5 billion parameters in matrices. With sequences of 8,192 tokens, a token takes $6 \times 69.5 + 64.4 = 481$ GFLOP, and two
# trillion tokens take $9.63 \times 10^{23}$. The peak of 2,048 chips is $1.366 \times 10^{18}$ per second. At an MFU of 44% that gives
#
# $$ \frac{9.63 \times 10^{23}}{1.366 \times 10^{18} \times 0.44 \times 86{,}400} = 18.5 \text{ days.} $$
#
# Failures leave 97% of the job's time, which makes 19.1 days in the calendar. With the 32 idle spares counted, 95.6% of chip time is
# useful. A spare is what is repaired as a whole: here an instance of 16 chips, and on Trainium3 a tray of few. We charge spares full power. A chip draws 558 W on average with its share of the server, and 636 W with the
# overhead of the site (the PUE):
#
# $$ E = 19.1 \times 24\ \text{h} \times 2{,}080 \times 0.636\ \text{kW} = 606 \text{ MWh.} $$

# %%
llama = tm.train_run("llama-3.3-70b", "trn2.48xlarge", tokens=2e12, chips=2048)
useful = tm.goodput(llama.system, 2048, checkpoint_bytes=llama.checkpoint_bytes)
flop = 2e12 * (6 * 69.5e9 + 12 * 80 * 8192 * 8192)
days = flop / (2048 * 667e12 * 0.44 * 86_400)
calendar = days * (1 - useful.spare_lost) / useful.goodput
mwh = calendar * 24 * 2080 * 0.558 * 1.14 / 1000
assert f"{flop:.2e} {days:.1f} {calendar:.1f} {mwh:.0f}" == "9.63e+23 18.5 19.1 606"
assert f"{useful.goodput / (1 - useful.spare_lost):.0%} {useful.goodput:.1%}" == "97% 95.6%"
assert abs(float(llama.owned_hour().site_watts.mean_w) - 558) < 0.5
assert abs(llama.calendar_days().value / calendar - 1) < 0.01
assert abs(llama.site_j().value / 3.6e9 / mwh - 1) < 0.01

# %% [markdown]
# ## Days, energy and dollars
#
# The same question for each system, in the format asked for and in eight bits. Each has as many chips as make whole racks; a dash means that
# nobody rents the system out yet. GPUs run their vendor's public software, Megatron-Core.

# %%
charts.table(tables.spent(runs, owner, pricing), caption=f"{m.id} in the calendar, failures included", download="days")

# %% [markdown]
# The 558 W are 64% of the provisioned power, as training servers of GPUs draw on average. An UltraServer joins four instances by NeuronLink. Fewer gradients then cross the slower network, so the same chips take fewer days.
# In 16 bits Trainium3 has hardly more peak than Trainium2, and gains by memory and links. In MXFP8 its peak is nearly four times as high, but
# a step gains less, because scores, norms and exchanges stay wider. No run in eight bits was measured on any Trainium, and whether a
# model learns as well in them is not modelled here.
#
# ## Does it fit?
#
# The cell keeps the mapping of our run and changes what a rank stores. *Full recompute* drops the activations of a layer and computes them again
# on the way back.

# %%
sizes = tables.sizes(run)  # of its batch, with its format and software
steps = [
    tm.train_step(m, run.system, run.mapping, zero=zero, recompute=again, **sizes)
    for zero, again in ((0, "none"), (1, "none"), (1, "full"), (3, "none"), (3, "full"))
]
charts.table(tables.policies(steps), caption="GiB of the fullest rank, and the MFU that is left", download="memory")

# %% [markdown]
# The optimizer is the cheapest to share, since its states are needed once per step. Weights are needed in every micro-batch, so ZeRO 3 gathers
# them again and again, which pays where a copy works on few large micro-batches.
#
# ## Check: steps and runs that were measured
#
# We found 212 published steps whose model, mapping and time are known. Each is predicted by a fit that has *not seen its model*, or by
# constants that were fitted to other kinds of steps.

# %% tags=["hide-input"]
measured = tables.measured()
assert len(measured) == 212
kind = measured.chip.where(measured.chip.str.startswith("Trainium"), "GPUs and TPUs")
charts.scatter(
    measured.assign(chip=kind),
    x="measured_s",
    y="predicted_s",
    color="chip",
    label="step",
    highlight=["Trainium1", "Trainium2"],
    caption="Predictions follow measured steps; Trainium2 only on one chip",
    under="time of a step; above the line the prediction is too slow",
).properties(height=150)

# %% [markdown]
# On Trainium2 the steps are of fine-tuning on single chips, and half of the predictions miss by more than 15%. No step of Trainium2 on many
# chips was published, so nothing checks our answer itself, and its range is wide. The whole model is left out here. If only one page is left
# out, the error is half as large ([How wrong are we?](accuracy.ipynb)).
#
# Whole runs are a harder test. We use tokens, batch and chips alone, and count DeepSeek's H800 as H100. Printed days are chip-hours, with later
# phases in them. Ours are the steps, and the failures that [What is lost to failures?](goodput.ipynb) predicts.

# %%
sizes = {"tokens": 14.8e12, "chips": 2048, "seq": 4096, "global_batch": 15360}
deepseek = tm.train_run("deepseek-v3", "hgx-h100", precision="fp8", **sizes)
large = tm.train_run("llama-3.1-405b", "hgx-h100", tokens=15e12, chips=16384, global_batch=2048)
whole = tables.whole_runs({"deepseek-v3-whole": deepseek, "llama-405b-whole": large})
tables.compared(whole)

# %% [markdown]
# ## What moves the answer, and what is left out
#
# * **Software** moves it by the factors of the first chart. **Chips:** twice as many take a little more than half the days, until each copy has too little to do.
# * **The batch.** A larger one shrinks bubble and exchange. How well the model then learns is not modelled.
# * **Left out** are loading of data, evaluation, longer contexts and offloading. Slow ranks and uneven experts are arguments of `tm.train_step`.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Days are work over rate. The work is fixed by parameters and tokens; the rate depends on software and mapping more than on the rack. Ask
# first whether the mapping fits.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A model of 405 billion parameters sees 15 trillion tokens at $6N$ FLOP each. How long do 8,192 chips of 667 TFLOP/s take at an MFU of $40\,\%$?
#
# ```{admonition} Answer
# :class: dropdown
# $6 \times 405 \times 10^9 \times 15 \times 10^{12} / (8{,}192 \times 667 \times 10^{12} \times 0.4) = 16.7$ million seconds, which are 193 days.
# ```
#
# **2.** Which share of a step is bubble with 16 stages and 32 micro-batches, and which with four parts per stage?
#
# ```{admonition} Answer
# :class: dropdown
# $15 / (32 + 15) = 32\,\%$, and $15 / (4 \times 32 + 15) = 10\,\%$.
# ```
#
# **3.** A rank holds two billion parameters. What does it store before activations, and what with ZeRO 1 over 64 copies?
#
# ```{admonition} Answer
# :class: dropdown
# $2 \times (2 + 4 + 12) = 36$ GB, and $2 \times (2 + 4 + 12/64) = 12.4$ GB.
# ```

# %% [markdown]
# ## Evidence

# %% tags=["hide-input"]
errors, claimed = tables.errors(), tables.claims(runs)
assert llama.step.time_s == step.time_s  # what the drawing shows is the best
assert tables.of_chip(measured, "Trainium2").median() > 0.15
assert set(errors.group[errors.met.eq(False)]) == {"trn1", "torchtitan"}
evidence = {
    "Errors of steps by group, and targets": ("accuracy", tables.accuracy(errors)),
    "Every step, measured and predicted": ("steps", measured),
    "Rows that are set aside, with reasons": ("aside", tables.aside()),
    "Whole runs: printed days and ours": ("whole-runs", whole),
    f"The best mappings, of {run.space.valid:,} that fit": ("mappings", tables.losing(run)),
    "What each constraint costs": ("constraints", tables.binding(run)),
    "MFU that AWS claims for Trainium3, as SemiAnalysis prints it, beside ours": ("claims", claimed),
}
display(*(charts.table(rows, caption=what, download=name, file_only=True) for what, (name, rows) in evidence.items()))

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tables.sources(pd.concat([claimed, whole]))
charts.table(common.bibliography(used), caption="Sources of the figures in this chapter", download="sources")
