# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 15
#     part: Understand
# ---

# %% [markdown]
# # How fast does it serve?

# %% tags=["parameters"]
model: str = "llama-3.1-70b"
system: str = "trn2.48xlarge"
precision: str = "bf16"
stack: str = "public"
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
import numpy as np
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import serving as tables
from trnbook.chapters import serving_explorer as explore
from trnbook.shared import case, gaps, ledger, software_kinds
from trnbook.shared.fabrics import capacities
from trnmodel.catalog.stacks import KINDS
from trnmodel.evidence import tables as evidence
from trnmodel.search import deployments
from trnmodel.search.frontier import frontiers
from trnmodel.serving.account import PER_RANK
from trnmodel.steps.deployment import Deployment
from trnmodel.units import GB, MS, counted, format_digits, format_quantity, format_within

FAMILY = ["trn1.32xlarge", "trn2-ultraserver", "trn3-nl32x2-torus", "trn3-nl72x2-pcie160"]
EXPLORED = ["trn1.32xlarge", "trn2.48xlarge", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"]
RACKS = ["trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"]
TRAYS = [*(f"trn3-nl32x2-{tray}" for tray in ("pcie160", "pcie320", "ualink"))]
TRAYS += [f"trn3-nl72x2-{tray}" for tray in ("pcie160", "pex90144", "pcie320", "ualink")]
m, experts_m, draft_m = (tm.model(name) for name in (model, experts_model, draft_model))
spec, prefill_specs = tm.system(system), [tm.system(name) for name in prefill_systems]
guard.neuroncore(system=spec)
guard.computes(spec.chip, precision=precision)
guard.software(spec.chip, stack=stack)
guard.generates(model=m, experts_model=experts_m, draft_model=draft_m)
guard.routes(experts_model=experts_m)
guard.within(1, 1e6, tp=tp, ep=ep, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
guard.within(1e-3, 1e6, interactivity_tokens_per_s=interactivity_tokens_per_s)
guard.some(prefill_systems=prefill_systems)
guard.neuroncore(prefill_systems=prefill_specs)
context = input_tokens + output_tokens
guard.spans(context, model=m)
guard.spans(context, experts_model=experts_m)
ours = Deployment(
    model=m, system=spec.id, mapping=tm.Mapping(tp=tp, ep=ep), precision=precision, stack=KINDS.get(stack, stack)
)
guard.fits(ours, batch, context)
prompt = ours.prefill(input_tokens=input_tokens, max_context=context)
guard.valid(f"a prefill with tp = {tp}, ep = {ep}, input_tokens = {input_tokens}", prompt)
speeds = sorted(set(interactivity_tokens_per_s))
request = tm.Request(input_tokens, output_tokens)

# %% tags=["hide-input"]
systems = [*(name for name in FAMILY if tm.system(name).chip.id != spec.chip.id), spec.id]
called = software_kinds.names(dict.fromkeys([*systems, *RACKS, *(one.id for one in prefill_specs)]))
best = tables.fronts(ours, request, systems, sorted({*tables.CURVE, *speeds}))
none = tables.refused(ours, request, best, systems)
equal = common.at_speeds(best, speeds)
reached = equal[equal.promised_tokens_per_s_per_user == speeds[0]].dropna(subset="tokens_per_s_per_chip")
ranked = reached.sort_values("tokens_per_s_per_chip", ascending=False, kind="stable")
lines = ranked if len(ranked) else tables.fastest(ours, request, systems)
top, after = lines.iloc[0], lines.iloc[1] if len(lines) > 1 else None
full = deployments.saturation(ours, batch, request)
filled = {
    name: format_within(*(float(full[name + end][0]) for end in ("", "_low", "_high")))
    for name in ("requests_per_s", "generated_tokens_per_s_per_chip")
}
t_step = ours.decode(batch=batch, context=request.mean_context, max_context=context)
groups = ep  # attention groups, each of which prefills its own prompt at saturation
prompt_s = float(ours.prefill(input_tokens=input_tokens, batch=groups, max_context=context).time_s) / groups
where = f"{m.id} in {precision.upper()}"
rival = tables.describe_line(after, called, bool(len(ranked))) if after is not None else ""
first = f"{called[top.system]}, {tables.degrees(top)}" if len(ranked) else tables.describe_line(top, called, False)
chance = (
    f"{called[top.system]} keeps this promise in {format_digits(100 * top.chance, 3)} % of the draws of what nobody knows of its software; "
    f"decoding alone it makes {format_digits(top.decode_tokens_per_s_per_chip, 2)} tokens/s per chip. "
    if len(ranked)
    else ""
)
lengths = f"{input_tokens:,} tokens in and {output_tokens:,} out"
each = f"{lengths}, {speeds[0]:,g} tokens/s promised to every user"
Markdown(
    common.card(
        [float(top[name]) for name in software_kinds.YIELD] if len(ranked) else "out of reach",
        f"{m.id} in {top.precision.upper()}, {each}, whole requests: {first}",
        unit="tokens/s per paid chip" if len(ranked) else "",
        mark=str(top.basis),
        rival=rival,
        rank="Next best",
        alone="" if rival else "no other system holds the model with this software",
        proof="Check: what was measured",
        more=f"{chance}{where} with TP {tp}{f', EP {ep}' if ep > 1 else ''} and a batch of {batch} on {called[spec.id]}, prompts of {counted(input_tokens, 'token')} and answers of "
        f"{counted(output_tokens, 'token')}, is full at **{filled['requests_per_s']} requests/s**: {filled['generated_tokens_per_s_per_chip']} tokens/s per "
        f"paid chip with its prompts on the same chips, {format_digits(float(t_step.tokens_per_s_per_user), 2)} tokens/s for a user between prompts "
        f"({full.basis[0]})."
        + "".join(f" {m.id} on {called[name]} {why}." for name, why in none.items())
        + "\n\n"
        + ledger.rests_on(*dict.fromkeys([top.stack, ours.e.id])),
    )
)

# %% tags=["hide-input"]
grid = explore.frontier_grid(
    ["llama-3.1-8b", m, experts_m],
    [*EXPLORED, spec],
    request,
    precisions=dict.fromkeys(["bf16", "fp8", "mxfp8", precision]),
)
charts.frontier(
    grid,
    {"model": m.id, "system": spec.id, "precision": precision},
    caption="The faster the promise, the less a chip yields",
    under=f"whole requests, {lengths}; choose below; point at the line, or slide along it; the band of throughput holds nine of ten draws "
    "with the promise kept, of joules and dollars the ends of what they take; dollars: to a hyperscaler at capacity; "
    "hollow: extrapolated; dashed: a torus",
)

# %%
charts.lines(
    best,
    x="promised_tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="system",
    log_y=True,
    caption=tables.claim(ranked, called) if len(ranked) else f"No system keeps {speeds[0]:,g} tokens/s a user",
    under=f"{where}, {ours.e.kind} software, {lengths}; whole requests per paid chip; the claim is at {speeds[0]:,g} tokens/s for a user; band: "
    "with the promise kept",
)

# %%
charts.table(
    tables.by_speed(equal, called, none),
    caption="Tokens/s per paid chip of whole requests at an equal promise, with 90 % bands and mappings",
    download="at-speed",
)

# %%
shown = (
    "promised_tokens_per_s_per_user system precision option tp ep pp cp batch tokens_per_s_per_chip chance "
    "decode_tokens_per_s_per_chip prefill_utilisation ttft_s network_share stack basis"
).split()
charts.table(equal[shown], caption="The same, row by row", download="interactivity", file_only=True)

# %% [markdown]
# ## The running case
#
# Two models on three systems run through the whole book: a dense one and a mixture of experts, each with a promise to its users. Every
# chapter adds a line, which it explains, and the last lines are those of the first page.

# %%
case.table("serving")

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(common.notation(tables.SYMBOLS, "from"), caption="What this chapter calls things", download="notation")

# %% [markdown]
# ## Throughput against interactivity
#
# A step of time $t(B)$ on $C$ chips gives a user $1/t$ and a chip $B/(C\,t)$ tokens a second of decoding alone: more users a batch, more
# tokens per chip and fewer per user. Prompts run on the same chips and stall the steps, so that a chip makes less of whole requests. Each
# point above is the best mapping, batch and documented software option at which every user still gets the promised speed, and
# chips that a mapping leaves idle are paid. Compare at equal promises; batches are whole, so neighbours may differ by a few percent
# for that alone. How the time of one step comes about: [How long does a decode step take?](decode-step.ipynb)
#
# **By hand.** A step of 20 ms for 16 users on the 16 chips of a Trn2 instance is 50 tokens a second for a user and as many for a
# chip, of decoding alone.
#
# Tensor parallelism over a few chips sends between neighbours, which a torus serves as well as switches do
# ([Torus or switch?](torus-or-switch.ipynb)); a rank's HBM decides.
#
# ### How far is that from what the chip allows?
#
# A yield by itself does not say whether the chip sets it or its software.
# Each bar is a plan of its own, in which the values of one mechanism are those of the next software; the factors multiply
# to the whole gap. [What does software cost?](software.ipynb) explains the mechanisms.

# %%
promised = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speeds[0])
gap = tm.software_gap(m, promised, top.system, precision=precision)
gaps.waterfall(gap, f"{where} on {called[top.system]}, {lengths}, {speeds[0]:,g} tokens/s for each user")

# %% tags=["hide-input"]
Markdown(gaps.describe(gap))

# %% [markdown]
# ### Torus against switches, for experts

# %% tags=["hide-input"]
experts = frontiers(experts_m, request, RACKS, speeds, ["mxfp8"])
equal_experts = common.at_speeds(experts, speeds, dict.fromkeys(RACKS, "mxfp8"))
at = equal_experts[equal_experts.promised_tokens_per_s_per_user == speeds[0]].set_index("system")
Markdown(
    (
        f"At {speeds[0]:,g} tokens/s a user {experts_m.id} in MXFP8 makes "
        f"{' and '.join(f'{at.tokens_per_s_per_chip[name] / at.tokens_per_s_per_chip[RACKS[0]]:.2f} times as much per paid chip on {called[name]}' for name in RACKS[1:])} as on the torus. "
        f"On the torus {at.bound[RACKS[0]]} takes longest of a decode step and the network {at.network_share[RACKS[0]]:.0%} of it, on the "
        f"switches of as many chips {at.network_share[RACKS[1]]:.0%}. What public software loses covers the fabric; the collectives by themselves show it:"
    )
    if at.tokens_per_s_per_chip.reindex(RACKS).notna().all()
    else f"{experts_m.id} in MXFP8 does not reach {speeds[0]:,g} tokens/s a user on each of these racks. The collectives of a step by themselves:"
)

# %%
charts.table(
    tables.by_speed(equal_experts, called),
    caption=f"{experts_m.id} in MXFP8, tokens/s per paid chip of whole requests at an equal promise",
    download="experts-at-speed",
)

# %%
charts.table(equal_experts[shown], caption="The same, row by row", download="experts", file_only=True)

# %%
most = max(part.copies for layer in experts_m.layers for part in layer.parts)
over = sorted({min(n, int(2 ** np.floor(np.log2(most)))) for n in (32, 64)})
wires = tables.expert_networks(experts_m, RACKS, context, over, 2.0 ** np.arange(0, 8), "mxfp8")
ratios = tables.slower(wires, RACKS[0], RACKS[1])
charts.lines(
    wires.assign(experts_over=wires.chips.map("{:.0f} chips".format)),
    x="batch_per_chip",
    y="network_s",
    color="system",
    choose="experts_over",
    log_x=True,
    log_y=True,
    caption=f"Over {over[0]} chips the torus takes {ratios[over[0]]:.1f} times as long"
    if over[0] in ratios
    else "Collectives of a step, where they fit",
    under=f"{experts_m.id}; all collectives of a decode step at the most users that both hold, up to 64 a chip, against {called[RACKS[1]]}: "
    + ", ".join(f"{ratio:.1f} times with experts over {chips:g} chips" for chips, ratio in ratios.items()),
)

# %%
charts.table(
    wires,
    caption="All collectives of a decode step, TP within a chip, experts over chips",
    download="networks",
    file_only=True,
)

# %% [markdown]
# Over 64 chips the racks of 32 must go from one to the other, by cables that carry no more than the torus does; 64 chips of NL72x2 lie
# in one rack. Degrees are powers of two, so that a mapping on NL72x2 may leave an eighth of a rack idle, which is paid.
#
# ### By switch tray

# %% tags=["hide-input"]
trays = frontiers(experts_m, request, TRAYS, speeds, ["mxfp8"])
trays = common.at_speeds(trays, speeds, dict.fromkeys(TRAYS, "mxfp8"))
lanes = capacities(TRAYS).pivot(index="system", columns="scope", values="all_to_all_bytes_per_s")
there = trays.dropna(subset="tokens_per_s_per_chip")
groups = there.groupby([there.system.str[:9], "promised_tokens_per_s_per_user"]).tokens_per_s_per_chip
spread = (groups.max() / groups.min() - 1).max()
apart = PER_RANK[-1] / PER_RANK[-2] - 1
lies = f"by at most **{spread:.1%}**" if spread >= 5e-4 else "**not at all**"
Markdown(
    (
        f"Within one size of rack the tray changes the yield of {experts_m.id} {lies}; from one batch that is tried to the next it changes "
        f"by up to {apart:.0%}. "
        if len(there)
        else f"{experts_m.id} reaches none of these speeds. "
    )
    + "Switches have more ports than a chip has lanes. The backplane lanes of a chip bound an all-to-all in the rack "
    f"({' and '.join(dict.fromkeys(f'{x / GB:.0f} GB/s' for x in lanes['rack']))}) and its cross-rack cables bound it over the domain "
    f"({' and '.join(dict.fromkeys(f'{x / GB:.0f} GB/s' for x in lanes['world']))}), the same on every tray. What a better tray saves is switches "
    "and hops, and a microsecond hardly shows in a step of milliseconds: "
    "[Which switch tray, and does it matter?](switch-tray.ipynb) Software covers everything else: [What does software cost?](software.ipynb)"
)

# %%
charts.table(
    trays[shown].assign(
        rack_all_to_all_bytes_per_s=trays.system.map(lanes["rack"]),
        world_all_to_all_bytes_per_s=trays.system.map(lanes["world"]),
    ),
    caption="Trays at equal speed, with what each chip gets of an all-to-all",
    download="trays",
    file_only=True,
)

# %% [markdown]
# ### By precision

# %%
larger = tm.system("trn3-nl72x2-pcie160")
both = dict.fromkeys([spec.id, larger.id])
bits = tables.in_each(m, request, both, sorted({*tables.CURVE, *speeds}), common.FORMATS, ours.e.word)
small = common.at_speeds(bits, speeds[:1]).dropna(subset="tokens_per_s_per_chip")
gains = tables.gains(small)
charts.lines(
    bits.assign(on=bits.system.map(called)),
    x="promised_tokens_per_s_per_user",
    y="tokens_per_s_per_chip",
    color="precision",
    choose="on",
    log_y=True,
    caption=tables.most(gains),
    under=f"{m.id}, {ours.e.kind} software, {lengths}, whole requests; at {speeds[0]:,g} tokens/s for a user times what BF16 yields: "
    + (tables.by_system(gains, called) or "none is so fast"),
)

# %%
charts.table(
    common.at_speeds(bits, speeds)[shown],
    caption="Precisions at equal speed for the user",
    download="precisions",
    file_only=True,
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
# With experts over several ranks each attention group prefills a prompt of its own at saturation: $P$ is then the time of one prompt in
# each group, over the number of groups. A static batch waits until it is full, then runs to its end: $\lambda_{max} = B/(P(B) + (o - 1)\,t(B))$.
#
# A first token also holds what the server does outside the chips: it takes the request, makes tokens of it, and finds it a place in
# the schedule. The chips work on other requests meanwhile, so this time is in the first token and in no step. It differs between
# releases, and six pages on vLLM leave between none and 120 ms for it. Its value is `server_first_token_s` of the stack.

# %% tags=["hide-input"]
t_s, p_s = float(t_step.time_s), prompt_s
Markdown(
    f"**By hand.** A step of {t_s / MS:.1f} ms and a prompt of {p_s / MS:.0f} ms: {batch} / ({output_tokens} x {t_s:.4f} s + {batch} x {p_s:.3f} s) = "
    f"{format_digits(batch / (output_tokens * t_s + batch * p_s), 3)} requests a second fill the batch, of which prompts take "
    f"{p_s * batch / (output_tokens * t_s + batch * p_s):.0%} of the time; the package says {format_digits(full.requests_per_s[0], 3)}."
)

# %%
charts.table(full, caption="Where each way of batching is full", download="saturation")

# %%
loads = np.r_[0.02, np.arange(0.05, 1.1, 0.05)]
rates = tables.load_curves(ours, batch, request, loads)
half = rates[np.isclose(rates.requests_per_s, full.requests_per_s[0] / 2)].set_index("mode")
waits = half.ttft_p50_s.get("static batch", np.nan) / half.ttft_p50_s.get("compiled batch", np.nan)
charts.lines(
    tables.percentiles(rates, "ttft_p50_s", "ttft_p99_s", ("median", "99th percentile")),
    x="requests_per_s",
    y="time_s",
    color="mode",
    choose="percentile",
    log_y=True,
    caption=f"A static batch delays the first token {format_digits(waits, 2)} times"
    if waits > 1.05
    else "Time to first token over the load",
    under=f"{where} on {called[spec.id]}, TP {tp}, batch {batch}; the median at half of the rate that fills the compiled batch is "
    f"{format_quantity(half.ttft_p50_s['compiled batch'], 's', 2)} with it",
)

# %%
busy = rates[(rates["mode"] == "compiled batch") & rates.valid]
slow, quick = (format_quantity(x, "s", 2) for x in (busy.tpot_mean_s.max(), busy.tpot_mean_s.min()))
charts.lines(
    tables.percentiles(rates, "tpot_mean_s", "tpot_p99_s", ("mean", "99th percentile")),
    x="requests_per_s",
    y="time_s",
    color="mode",
    choose="percentile",
    caption=f"Load stretches a token from {quick} to {slow}"
    if quick != slow
    else f"A token takes {quick} at every load",
    under=f"{where} on {called[spec.id]}, TP {tp}, batch {batch}"
    + (f"; a graph compiled for {batch} sequences runs as many for one request" if batch > 1 else ""),
)

# %%
served = "mode requests_per_s batch ttft_p50_s ttft_p99_s tpot_mean_s tpot_p99_s tokens_per_s basis reason".split()
charts.table(
    rates[served],
    caption="Serving over the request rate; a dash is beyond saturation",
    download="load",
    file_only=True,
)

# %% [markdown]
# ### Drafts
#
# A small model drafts $d$ tokens, the large one verifies them in one step and keeps those that agree and one of its own,
# $E = (1 - a^{d+1})/(1 - a)$ tokens for an acceptance rate $a$. It pays if $E$ grows faster than the step does.
#
# **By hand.** $d = 3$ and $a = 0.7$: $(1 - 0.7^4)/0.3 = 2.53$ tokens.

# %%
why = tables.no_draft(ours, draft_m, batch, context)
if why:
    drafted, view = None, Markdown(f"No draft here: {why}. `draft_model` takes another.")
else:
    tokens = [n for n in tables.DRAFTS if n < context]
    drafted = deployments.drafts(ours, draft_m, batch, context, tokens, np.linspace(0.05, 0.95, 37))
    pays = drafted[drafted.speedup >= 1].groupby("draft_tokens").acceptance.min().sort_values(kind="stable")
    view = charts.lines(
        drafted.assign(draft=drafted.draft_tokens.map(lambda n: counted(n, "token"))),
        x="acceptance",
        y="speedup",
        color="draft",
        caption=f"Drafts of {counted(pays.index[0], 'token')} pay from {pays.iloc[0]:.0%} acceptance on"
        if len(pays)
        else "No draft pays here at any acceptance",
        under=f"{draft_m.id} drafts for {where} on {called[spec.id]}, TP {tp}, batch {batch}"
        + "".join(f"; {counted(n, 'token')} from {share:.0%}" for n, share in pays.iloc[1:].items()),
    )
view

# %%
if drafted is not None:
    view = charts.table(drafted, caption="Drafts by length and acceptance", download="drafts", file_only=True)
else:
    view = None
view

# %% [markdown]
# The acceptance rate is a property of two models and a text that this chapter cannot know. The draft pays the launch of a step for
# each token; fused graphs save that.
#
# ### Prefill on machines of its own
#
# The prompt's cache goes over EFA to the machine that decodes. Neither side waits where there are $n_P/n_D = P\,B/(o\,t(B))$ prefill
# replicas a decode replica. Each prefill machine uses the TP that yields most a chip, which is not the one with the soonest token.

# %%
known, nic = tm.model("llama-3.1-70b"), tm.system("trn2.48xlarge")
sent, port = known.kv_bytes(3584, "bf16"), nic.scaleout_bytes_per_s_per_dir
Markdown(
    f"**By hand.** 3,584 tokens of Llama-3.1-70B are 3,584 x {known.kv_bytes(1, 'bf16') / 1e3:.0f} kB = {sent / GB:.2f} GB. TP 8 is two chips of a Trn2 "
    f"instance, each with a sixteenth of its network, {port / GB:.0f} GB/s: {sent / 2 / port / MS:.1f} ms."
)

# %%
several = dict.fromkeys([spec.id, *(one.id for one in prefill_specs)])
apart = deployments.split_phases(ours, several, batch, input_tokens, output_tokens)
apart = apart.drop_duplicates("prefill_system", ignore_index=True)
together = full.generated_tokens_per_s_per_chip[0]
if len(apart):
    lengths = np.unique(np.maximum(output_tokens * 2.0 ** np.arange(-3, 4), 1))
    first = apart.loc[apart.tokens_per_s_per_chip.idxmax()]
    view = charts.lines(
        deployments.ratios(ours, apart.prefill_system, batch, input_tokens, lengths),
        x="output_tokens",
        y="prefill_chips_per_decode_chip",
        color="prefill_system",
        log_x=True,
        log_y=True,
        caption=f"Prefill apart yields {format_digits(first.tokens_per_s_per_chip, 2)} tokens/s a chip, together {format_digits(together, 2)}",
        under=f"{where}: decode on {called[spec.id]}, prefill on {called[first.prefill_system]}, prompts of {counted(input_tokens, 'token')}, answers of {counted(output_tokens, 'token')}; "
        "the longer the answers, the fewer chips prefill needs",
    )
else:
    view = Markdown(f"No prefill apart: {where} does not fit any of {', '.join(called[name] for name in several)}.")
view

# %%
charts.table(
    apart, caption="Prefill apart: times, bytes over EFA, and chips for prefill a chip for decode", download="apart"
)

# %% [markdown]
# Each side runs the degree that suits it; the price is time to first token (the table has it). A chip of one generation is counted like
# a chip of another.
#
# ## Check: what was measured
#
# Servers under load, on pages of measurements that neither the fit nor the reading of rows has seen.
# [How wrong are we?](accuracy.ipynb) asks every published measurement that we found.

# %% tags=["hide-input"]
measured = evidence.accuracy().set_index(["group", "split"])
load, rival = measured.loc["TPOT under load", evidence.SOURCE], measured.loc["TPOT under load", evidence.LEFT_OUT]
runs = {group: measured.loc[group, evidence.SOURCE] for group in ("serving, throughput", "serving, TTFT in a queue")}
Markdown(
    f"**Time per token under load: the median error is {load.median_error:.0%}, and nine in ten are within {load.p90_error:.0%}**, over "
    f"{load.cases:.0f} configurations of {load.pages:.0f} pages. With a model left out it is {rival.median_error:.0%}, where a regression "
    f"on bytes, FLOP and traffic has {rival.naive_median:.0%}. "
    + " ".join(
        f"For {group.removeprefix('serving, ')} the median is {one.median_error:.0%}, and nine in ten of {one.cases:.0f} runs are within "
        f"{one.p90_error:.0%}."
        for group, one in runs.items()
    )
)

# %%
assert rival.median_error < rival.naive_median

# %% [markdown]
# ## What moves the answer

# %% tags=["hide-input"]
steps = equal[equal.system == top.system].dropna(subset="tokens_per_s_per_chip")
Markdown(
    (
        f"* **The speed promised**: on {called[top.system]} a chip yields "
        + ", ".join(
            f"{format_digits(line.tokens_per_s_per_chip, 2)} at {line.promised_tokens_per_s_per_user:,g}"
            for line in steps.itertuples()
        )
        + " tokens/s for a user.\n"
        if len(steps)
        else ""
    )
    + "* **The compiled batch**: a graph runs its full batch for one user.\n"
    + "* **The software**: [What does software cost?](software.ipynb)\n"
    + "* **Efficiencies on Trainium3** are those of Trainium1, Inferentia2 and 2 where no row of its own speaks; charts then draw them "
    + "hollow and call them extrapolated."
)

# %% [markdown]
# ## What is left out
#
# Requests of different lengths, preemption, prompts that share a prefix, contention between collectives and DMA in a step,
# multimodal encoders, and the time to load or to compile. Prices come in a later chapter.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Say first how fast each user must be: it moves the yield of a chip more than the fabric does, and more than the chip does where
# software is slow. Then count prompts: they take their share of the time before any token is made.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A step of 25 ms serves 32 users on 8 chips. How many tokens a second are that for a user and for a chip?
#
# ```{admonition} Answer
# :class: dropdown
# 1 / 0.025 = 40 for a user; 32 x 40 / 8 = 160 for a chip.
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
facts, chips = tm.facts(), {tm.system(name).chip.id for name in systems}
said = facts[facts.entity.isin(chips) & facts.quantity.str.contains("hbm|peak")]
charts.table(
    common.bibliography(set(said.source)), caption="Sources of the figures in this chapter", download="sources"
)
