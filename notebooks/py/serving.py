# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,-all
#     formats: notebooks///ipynb,notebooks/py///py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   trnmodel:
#     order: 11
# ---

# %% [markdown]
# # How fast does it serve?

# %% tags=["parameters"]
model: str = "llama-3.1-70b"
system: str = "trn2.48xlarge"
precision: str = "bf16"
stack: str = "vllm-neuron-2026"
tp: int = 64
ep: int = 1
batch: int = 16
input_tokens: int = 3584
output_tokens: int = 512
experts_model: str = "deepseek-v3"
draft_model: str = "llama-3.2-1b"
prefill_systems: list[str] = ["trn1.32xlarge", "trn3-nl72x2-pcie160"]
interactivity_tokens_per_s: list[float] = [20.0, 40.0, 60.0]

# %% tags=["hide-input"]
from dataclasses import replace

import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnmodel import charts
from trnmodel.catalog.stacks import stacks
from trnmodel.chapters import common, guard
from trnmodel.chapters import serving as tables
from trnmodel.evidence import accuracy, ledger, table
from trnmodel.fabric.compare import capacities
from trnmodel.planner import deployments, explore
from trnmodel.steps.deployment import Deployment
from trnmodel.units import format_within

YIELD = ["tokens_per_s_per_chip", "tokens_per_s_per_chip_low", "tokens_per_s_per_chip_high"]
FAMILY = ["trn1.32xlarge", "trn2-ultraserver", "trn3-nl32x2-torus", "trn3-nl72x2-pcie160"]
EXPLORED = ["trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"]
RACKS = ["trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"]
TRAYS = ["trn3-nl32x2-pcie160", "trn3-nl32x2-pcie320", "trn3-nl32x2-ualink"]
TRAYS += ["trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl72x2-pcie320", "trn3-nl72x2-ualink"]
m, experts_m, draft_m = (tm.model(name) for name in (model, experts_model, draft_model))
spec, prefill_specs = tm.system(system), [tm.system(name) for name in prefill_systems]
guard.neuroncore(system=spec)
guard.computes(spec.chip, precision=precision)
guard.one_of(stacks(), stack=stack)
guard.generates(model=m, experts_model=experts_m, draft_model=draft_m)
guard.routes(64, experts_model=experts_m)
guard.within(1, 1e6, tp=tp, ep=ep, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
guard.within(1e-3, 1e6, interactivity_tokens_per_s=interactivity_tokens_per_s)
interactivity_tokens_per_s = list(dict.fromkeys(interactivity_tokens_per_s))
guard.some(prefill_systems=prefill_systems)
guard.neuroncore(prefill_systems=prefill_specs)
context = input_tokens + output_tokens
guard.spans(context, model=m, experts_model=experts_m, draft_model=draft_m)
guard.need(context >= 8, f"input_tokens + output_tokens = {context} must be 8 or more, for drafts of 7 tokens")
ours = Deployment(model=m, system=spec.id, mapping=tm.Mapping(tp=tp, ep=ep), precision=precision, stack=stack)
step, prompt = ours.decode(batch=batch, context=context), ours.prefill(input_tokens=input_tokens)
guard.valid(f"a decode step with tp = {tp}, ep = {ep}, batch = {batch}, context = {context}", step)
draft_step = replace(ours, model=draft_m, mapping=tm.Mapping(tp=tp)).decode(batch=max(batch / ep, 1), context=context)
guard.valid(f"a decode step of draft_model = {draft_m.id!r} with tp = {tp}, context = {context}", draft_step)
guard.valid(f"a prefill with tp = {tp}, ep = {ep}, input_tokens = {input_tokens}", prompt)

# %% tags=["hide-input"]
best = deployments.frontiers(m, FAMILY, context)
answers = deployments.at_interactivity(best, interactivity_tokens_per_s[:1]).dropna(subset="tokens_per_s_per_chip")
answers = answers.sort_values("tokens_per_s_per_chip", ascending=False)
said = "; ".join(
    f"{line.system} {format_within(*line[YIELD], 'tokens/s', line.basis)} a chip" for _, line in answers.iterrows()
)
Markdown(
    f"**{m.id} in BF16 at {interactivity_tokens_per_s[0]:g} tokens/s for each user: {said or 'no system is so fast'}.**\n\n"
    + ledger.rests_on(step.stack.id)
)

# %% tags=["hide-input"]
grid = explore.frontier_grid(
    ["llama-3.1-8b", m, experts_m],
    [*EXPLORED, spec],
    precisions=dict.fromkeys(["bf16", "fp8", "mxfp8", precision]),
    contexts=[context, 32768],
)
charts.frontier(
    grid,
    {"model": m.id, "system": spec.id, "precision": precision, "context": context},
    caption="The faster for a user, the less a chip yields",
    under="choose below; point at the line, or slide along it; the band holds nine of ten cases; "
    "hollow: extrapolated; dashed: a torus",
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(tables.SYMBOLS, "from"),
    caption=f"What this chapter calls things, for {m.id} on {spec.id}",
    download="notation",
)

# %% [markdown]
# ## Throughput against interactivity
#
# A step of time $t(B)$ on $C$ chips gives a user $1/t$ and a chip $B/(C\,t)$ tokens a second: more users a batch, more tokens a chip
# and fewer a user. Each line below is what no other TP, EP and batch beats. Compare at equal tokens a second and user; batches are
# whole, so neighbours may differ by a few percent for that alone.
#
# **By hand.** A step of 20 ms for 16 users on the 16 chips of a trn2.48xlarge is 50 tokens a second for a user and as many for a
# chip.
#
# ### By system

# %%
shown = "wanted_tokens_per_s_per_user system tp ep batch tokens_per_s_per_chip network_share stack basis".split()
equal = deployments.at_interactivity(best, interactivity_tokens_per_s)
first = (
    equal[equal.wanted_tokens_per_s_per_user == interactivity_tokens_per_s[0]].set_index("system").tokens_per_s_per_chip
)
charts.lines(
    best,
    x="tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="system",
    log_y=True,
    caption=f"{m.id}, BF16, context {context}: at {interactivity_tokens_per_s[0]:g} tokens/s a user "
    + ", ".join(f"{first[name]:.0f} tokens/s a chip on {name}" for name in FAMILY if first.get(name, 0) > 0),
)

# %%
charts.table(
    equal[shown], caption="The most tokens a second and chip at equal speed for the user", download="interactivity"
)

# %% [markdown]
# Tensor parallelism over a few chips sends between neighbours, which a torus serves as well as switches do (chapter 5); a rank's HBM
# decides.
#
# ### Torus against switches, for experts

# %%
experts = deployments.frontiers(experts_m, RACKS, context, ["mxfp8"])
reached = experts.groupby("system").tokens_per_s_per_user.max().min()
levels = [wanted for wanted in interactivity_tokens_per_s if wanted <= reached] or [np.floor(reached)]
equal_experts = deployments.at_interactivity(experts, levels)
at = equal_experts[equal_experts.wanted_tokens_per_s_per_user == levels[0]].set_index("system")
gain = at.tokens_per_s_per_chip / at.tokens_per_s_per_chip[RACKS[0]]
charts.lines(
    experts,
    x="tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="system",
    log_y=True,
    caption=f"{experts_m.id}, MXFP8, today's stack, at {levels[0]:g} tokens/s a user: {gain[RACKS[1]]:.2f} times the torus a chip on "
    f"{RACKS[1]}, {gain[RACKS[2]]:.2f} times on {RACKS[2]}",
)

# %%
charts.table(equal_experts[shown], caption=f"{experts_m.id} at equal speed for the user", download="experts")

# %% tags=["hide-input"]
Markdown(
    f"At {levels[0]:g} tokens/s a user {at.bound[RACKS[0]]} takes longest of a step on the torus and the network "
    f"{at.network_share[RACKS[0]]:.0%} of it, on the switches of as many chips {at.network_share[RACKS[1]]:.0%}. What the software "
    "loses covers the fabric; the collectives by themselves show it:"
)

# %%
wires = tables.expert_networks(experts_m, RACKS, context, [32, 64], 2.0 ** np.arange(0, 8), "mxfp8")
counts = wires.batch_per_chip.value_counts()
users = max((n for n, found in counts.items() if found == 2 * len(RACKS) and n <= 64), default=0)
most = wires[wires.batch_per_chip == users].set_index(["system", "chips"]).network_s
charts.lines(
    wires.assign(experts_over=wires.chips.map("{:.0f} chips".format)),
    x="batch_per_chip",
    y="network_s",
    color="system",
    dash="experts_over",
    log_x=True,
    log_y=True,
    caption=f"{experts_m.id}: the collectives of a step "
    + (
        f"at {users:g} users a chip take on the torus {most[RACKS[0], 32] / most[RACKS[1], 32]:.1f} "
        f"times as long as on {RACKS[1]} with experts over 32 chips, {most[RACKS[0], 64] / most[RACKS[1], 64]:.1f} times over 64"
        if users
        else "with experts over 32 and 64 chips, where they fit"
    ),
)

# %%
charts.table(
    wires, caption="All collectives of a decode step, TP within a chip, experts over chips", download="networks"
)

# %% [markdown]
# Over 64 chips NL32x2 must go between its racks, by cables that carry no more than the torus does; 64 chips of NL72x2 lie in one rack.

# %% [markdown]
# ### By switch tray

# %%
trays = deployments.at_interactivity(deployments.frontiers(experts_m, TRAYS, context, ["mxfp8"]), levels)
lanes = capacities(TRAYS).pivot(index="system", columns="scope", values="all_to_all_bytes_per_s")
trays = trays.assign(
    rack_all_to_all_bytes_per_s=trays.system.map(lanes["rack"]),
    world_all_to_all_bytes_per_s=trays.system.map(lanes["world"]),
)
spread = max(
    group.tokens_per_s_per_chip.max() / group.tokens_per_s_per_chip.min() - 1
    for _, group in trays.dropna().groupby([trays.system.str[:9], "wanted_tokens_per_s_per_user"])
)
two = trays[trays.wanted_tokens_per_s_per_user.isin([levels[0], levels[-1]])].dropna()
charts.bars(
    two.assign(wanted=two.wanted_tokens_per_s_per_user.map("at {:g} tokens/s a user".format)),
    x="wanted",
    y="tokens_per_s_per_chip",
    color="system",
    caption=f"{experts_m.id}, MXFP8: within one size of rack the switch tray changes at most {spread:.1%}",
)

# %%
charts.table(
    trays[[*shown, *trays.columns[-2:]]],
    caption="Trays at equal speed, with what each chip gets of an all-to-all",
    download="trays",
)

# %% [markdown]
# Equal trays have one cause. Their switches have more ports than a chip has lanes: the backplane lanes of a chip bound an all-to-all
# in the rack and its cross-rack cables bound it over the domain, and both are the same on every tray (the last two columns). What a
# better tray saves is switches and hops, and a microsecond hardly shows in a step of milliseconds (chapter 6).

# %% [markdown]
# The software covers everything else: [What does software cost?](software.ipynb) asks the same question of it, ideal, hand-tuned and public.

# %% [markdown]
# ### By precision

# %%
formats = deployments.frontiers(m, ["trn3-nl72x2-pcie160"], context, ["bf16", "mxfp8", "w4a8"])
equal_formats = deployments.at_interactivity(formats, interactivity_tokens_per_s)
charts.lines(
    formats,
    x="tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="precision",
    log_y=True,
    caption=f"{m.id} on trn3-nl72x2-pcie160: smaller weights make the step shorter and leave room for more caches",
)

# %%
charts.table(
    equal_formats[["precision", *shown]].drop(columns="system"),
    caption="Precisions at equal speed for the user",
    download="precisions",
)

# %% [markdown]
# The efficiencies are those fitted in BF16; no public row measures MXFP8 or 4-bit weights on Trainium3.
#
# ## Under a request rate
#
# Requests arrive at random at a rate $\lambda$. Continuous batching prefills each prompt as it comes, which takes the share
# $\lambda P$ of the time; in what is left $n$ requests decode at once:
#
# $$ \mathrm{TPOT} = \frac{t(B)}{1 - \lambda P}, \qquad n = \lambda\,o\,\mathrm{TPOT} \le B
#    \quad\Rightarrow\quad \lambda_{max} = \frac{B}{o\,t(B) + B\,P} . $$
#
# A static batch waits until it is full, then runs to its end: $\lambda_{max} = B/(P(B) + (o - 1)\,t(B))$.

# %%
full = deployments.saturation(ours, batch, input_tokens, output_tokens)
middle = {"context": input_tokens + output_tokens / 2, "max_context": context}
t_step = float(ours.decode(batch=batch, **middle).time_s)
t_prompt = float(ours.prefill(input_tokens=input_tokens, max_context=context).time_s)
f"{batch / (output_tokens * t_step + batch * t_prompt):.3f} requests a second by hand, {full.requests_per_s[0]:.3f} in the table"

# %%
charts.table(full, caption="Where each way of batching is full", download="saturation")

# %%
rates = tables.load_curves(ours, batch, input_tokens, output_tokens, np.r_[0.02, np.arange(0.05, 1.1, 0.05)])
ttft = tables.percentiles(rates, "ttft_p50_s", "ttft_p99_s", ("median", "99th percentile"))
tpot = tables.percentiles(rates, "tpot_mean_s", "tpot_p99_s", ("mean", "99th percentile"))
charts.lines(
    ttft,
    x="requests_per_s",
    y="time_s",
    color="mode",
    dash="percentile",
    log_y=True,
    caption="Time to first token: a static batch makes everybody wait for the last to arrive",
)

# %%
charts.lines(
    tpot,
    x="requests_per_s",
    y="time_s",
    color="mode",
    dash="percentile",
    caption=f"Time per output token: a graph compiled for {batch} runs {batch} even for one request",
)

# %%
served = "mode requests_per_s batch ttft_p50_s ttft_p99_s tpot_mean_s tpot_p99_s tokens_per_s basis reason".split()
charts.table(rates[served], caption="Serving over the request rate; a dash is beyond saturation", download="load")

# %% [markdown]
# ### Drafts
#
# A small model drafts $d$ tokens, the large one verifies them in one step and keeps those that agree and one of its own,
# $E = (1 - a^{d+1})/(1 - a)$ tokens for an acceptance rate $a$. It pays if $E$ grows faster than the step does.
#
# **By hand.** $d = 3$ and $a = 0.7$: $(1 - 0.7^4)/0.3 = 2.53$ tokens.

# %%
drafted = deployments.drafts(ours, draft_m, batch, context, [1, 3, 5, 7], np.linspace(0.05, 0.95, 37))
pays = drafted[drafted.speedup >= 1].groupby("draft_tokens").acceptance.min()
charts.lines(
    drafted.assign(draft=drafted.draft_tokens.map("{} tokens".format)),
    x="acceptance",
    y="speedup",
    color="draft",
    caption=f"{draft_m.id} drafts for {m.id} at batch {batch}: tokens drafted pay "
    + (
        ", ".join(f"from {share:.0%} acceptance on with {tokens} a draft" for tokens, share in pays.items())
        or "at no acceptance here"
    ),
)

# %%
charts.table(drafted, caption="Speculative decoding by draft length and acceptance", download="drafts")

# %% [markdown]
# The acceptance rate is a property of two models and a text that this chapter cannot know. The draft pays the launch of a step for
# each token; fused graphs save that.
#
# ### Prefill on machines of its own
#
# The prompt's cache goes over EFA to the machine that decodes. Neither side waits where there are $n_P/n_D = P\,B/(o\,t(B))$ prefill
# replicas a decode replica. Each prefill machine uses the TP that yields most a chip, which is not the one with the soonest token.
#
# **By hand.** 3,584 tokens of Llama-3.1-70B are 3,584 x 328 kB = 1.17 GB; TP 8 is two chips of a trn2.48xlarge, each with a sixteenth
# of 3.2 Tb/s: 1.17 GB / (2 x 25 GB/s) = 23.5 ms.

# %%
apart = deployments.split_phases(
    ours, [spec.id, *(one.id for one in prefill_specs)], batch, input_tokens, output_tokens
)
apart = apart.drop_duplicates("prefill_system", ignore_index=True)
together = full.generated_tokens_per_s_per_chip[0]
lengths = np.unique(np.maximum(output_tokens * 2.0 ** np.arange(-3, 4), 1))
answers = deployments.ratios(ours, apart.prefill_system, batch, input_tokens, lengths)
charts.lines(
    answers,
    x="output_tokens",
    y="prefill_chips_per_decode_chip",
    color="prefill_system",
    log_x=True,
    log_y=True,
    caption=f"Decode on {spec.id}: the longer the answers, the fewer chips prefill needs; with {output_tokens} tokens "
    f"{apart.tokens_per_s_per_chip.max():.0f} tokens/s a chip on {apart.prefill_system[apart.tokens_per_s_per_chip.idxmax()]} "
    f"against {together:.0f} with both on one",
)

# %%
charts.table(
    apart, caption="Prefill apart: times, bytes over EFA, and chips for prefill a chip for decode", download="apart"
)

# %% [markdown]
# Each side runs the degree that suits it; the price is time to first token (the table has it). A chip of one generation is counted like
# a chip of another; prices come in a later chapter.

# %% [markdown]
# ## Check: what was measured
#
# [How wrong are we?](accuracy.ipynb) asks every published measurement that we found, and what is left out of the fits.

# %% tags=["hide-input"]
of_kind = "MoE and hybrid decode" if m.kind in ("expert", "hybrid") else "dense decode"
measured = table.written().set_index(["group", "split"])
unseen = measured.loc[of_kind, accuracy.LEFT_OUT]
Markdown(
    f"**Decode steps of models that the fit has not seen, {of_kind}: median {unseen.median_error:.1%}, nine in ten within "
    f"{unseen.p90_error:.0%}**, over {unseen.cases:.0f} configurations of {unseen.models:.0f} models; a regression on bytes, FLOP and "
    f"traffic has {unseen.naive_median:.1%}."
)

# %%
assert unseen.median_error < unseen.naive_median

# %% [markdown]
# ## What moves the answer
#
# * **The software stack**: the step of compiled graphs takes several times the ideal one.
# * **The compiled batch**: a graph runs its full batch for one user.
# * **TP**: it divides weights and multiplies all-reduces; KV heads that do not divide are copied.
# * **Efficiencies on Trainium3** are those of Trainium1, Inferentia2 and 2 where no row of its own speaks; captions and the column
#   `basis` then call them extrapolated.
#
# ## What is left out
#
# What a layer with experts adds beyond its bytes was fitted up to 64 ranks and batch 8; with more of either the form is
# extrapolated, and for the largest mixtures it is then most of a step. Contention
# between collectives and DMA in a step, requests of different lengths, preemption, the host's tokeniser, multimodal
# encoders, and the time to load or to compile.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Weights and caches over bandwidth, plus all-reduces that hide behind nothing, plus what each layer and launch costs: how near that comes,
# [How wrong are we?](accuracy.ipynb) says.
# ```

# %% [markdown]
# ## Problems
#
# **1.** Llama-3.1-70B in BF16 on 64 ranks of Trainium2. At which batch does an ideal machine read as many bytes of cache as of
# weights, at 4,096 tokens of context?
#
# ```{admonition} Answer
# :class: dropdown
# A token adds 2 x 80 x 8 x 128 x 2 B = 328 kB, a sequence 1.34 GB; 139 / 1.34 = 104 sequences.
# ```
#
# **2.** A prefill takes 0.22 s, a step at batch 16 takes 20 ms, answers have 512 tokens. How many requests a second fill the batch?
#
# ```{admonition} Answer
# :class: dropdown
# 16 / (512 x 0.020 + 16 x 0.22) = 16 / 13.8 = 1.16 a second, of which prefill takes a quarter of the time.
# ```
#
# **3.** A draft of three tokens costs three steps of 5 ms, verifying takes 22 ms instead of 20. Which acceptance breaks even?
#
# ```{admonition} Answer
# :class: dropdown
# $E = 37/20 = 1.85$; $1 + a + a^2 + a^3 = 1.85$ at $a = 0.49$.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
chosen = used[
    used.entity.isin([one.chip.id for one in (spec, *map(tm.system, FAMILY))]) & used.quantity.str.contains("hbm|peak")
]
charts.table(
    common.bibliography(set(chosen.source)),
    caption="Sources of the figures in this chapter",
    download="sources",
)
