# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 3
#     part: Decide
# ---

# %% [markdown]
# # How does Trainium stand beside GPUs and TPUs?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
systems: list[str] = [
    "trn2-ultraserver",
    "trn3-nl32x2-torus",
    "trn3-nl72x2-aws-lanes",
    "hgx-h100",
    "hgx-h200",
    "hgx-b200",
    "gb200-nvl72",
    "mi300x-8",
    "mi355x-8",
    "tpu-v6e-pod",
]
model: str = "llama-3.1-70b"
experts_model: str = "deepseek-v3"
precisions: list[str] = ["mxfp8", "fp8", "int8", "bf16"]
input_tokens: int = 4096
output_tokens: int = 512
interactivity_tokens_per_s: list[float] = [20.0, 50.0]

# %% tags=["hide-input"]
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import beside_gpus as tables
from trnbook.chapters import common, guard
from trnbook.shared import gaps, ledger
from trnbook.shared.software_kinds import names as short_names
from trnmodel.catalog.stacks import KINDS, kinds
from trnmodel.units import GIB, format_quantity

spec = tm.system(system)
everyone = list(dict.fromkeys(tm.system(name).id for name in [system, *systems]))
m, experts_m = tm.model(model), tm.model(experts_model)
context = input_tokens + output_tokens
guard.some(precisions=precisions)
guard.need(len(everyone) > 1, f"systems = {systems} must hold another than system = {spec.id!r}")
guard.generates(model=m, experts_model=experts_m)
guard.routes(experts_model=experts_m)
guard.within(1, 1e6, input_tokens=input_tokens, output_tokens=output_tokens)
guard.within(1e-3, 1e6, interactivity_tokens_per_s=interactivity_tokens_per_s)
guard.spans(context, model=m, experts_model=experts_m)
speeds = sorted(set(interactivity_tokens_per_s))
speed = speeds[-1]
request = tm.Request(input_tokens, output_tokens)
lengths = f"{input_tokens:,} tokens in and {output_tokens:,} out"
curve = sorted({*tables.CURVE, *speeds})
served = {one.id: tables.frontiers(one, request, everyone, precisions, curve) for one in (m, experts_m)}
for name, table in served.items():
    format_ = tables.formats([spec.id], precisions)[spec.id]
    one = next(one for one in (m, experts_m) if one.id == name)
    why = f"in {format_} {one.weight_bytes(format_) / GIB:.0f} GiB of weights and a cache on {spec.domain_chips} chips"
    guard.need(
        spec.id in set(table.system),
        f"{name} reaches {curve[0]:g} tokens/s for a user with no mapping on system = {spec.id!r}: {why}",
    )
equal = {name: tables.at_speeds(table, speeds, spec.id) for name, table in served.items()}

# %% tags=["hide-input"]
waits = [*ledger.estimated(spec.chip, "hop_s"), *ledger.estimated(spec, "switch_s")]
answers = {name: tables.side_by_side(table, speed).set_index("system") for name, table in equal.items()}


def best_of(name, kind):
    """The best of the others on a kind of stack, by id; nothing where none reaches the speed."""
    rates = answers[name].drop(spec.id)[f"{kind.replace('-', '_')}_tokens_per_s_per_chip"]
    return rates.idxmax() if (rates > 0).any() else ""


def ahead_of(name, kind):
    """The systems of which a chip yields more than one of the reference on a kind of stack."""
    rates = answers[name][f"{kind.replace('-', '_')}_tokens_per_s_per_chip"]
    return set(rates.index[rates > rates[spec.id]])


def said(name):
    """What a chip of the reference yields, and what share that is of the best of the others on the same kind of stack."""
    pieces = []
    for kind in own_kinds:
        rate = answers[name][f"{kind.replace('-', '_')}_tokens_per_s_per_chip"]
        best = best_of(name, kind)
        rivals_ahead = (
            f", {rate[spec.id] / rate[best]:.2g} times that of {called[best]}" if best and rate[spec.id] > 0 else ""
        )
        pieces.append(f"{kind} {tables.describe_yield(answers[name].loc[spec.id], kind)}{rivals_ahead}")
    return f"{name}: {'; '.join(pieces)}"


called, own_kinds = short_names(everyone), [kind for kind in reversed(KINDS) if kind in kinds(spec.chip)]
reached = [
    (name, kind)
    for name in dict.fromkeys([m.id, experts_m.id])
    for kind in own_kinds
    if answers[name].loc[spec.id, f"{kind.replace('-', '_')}_tokens_per_s_per_chip"] > 0
]
question, kind = reached[0] if reached else (m.id, own_kinds[0])
best = best_of(question, kind)
number, mark = tables.for_card(answers[question].loc[spec.id], kind)


share = answers[m.id].measured_share[spec.id]
Markdown(
    common.card(
        number,
        f"{called[spec.id]}, {question} on {kind} software, whole requests of {lengths}, {speed:,g} tokens/s promised to each user",
        unit="tokens/s per paid chip",
        mark=mark,
        rival=f"{called[best]} with {tables.describe_yield(answers[question].loc[best], kind)}" if best else "",
        rank="Ahead of it" if best in ahead_of(question, kind) else "Next best",
        alone="" if best else f"no other system reaches the speed on {kind} software",
        proof="Check: what is published about chips of others",
        more=f"Of {'. Of '.join(said(name) for name in dict.fromkeys([m.id, experts_m.id]))}. The kinds do not mix: a public stack is "
        f"what software was measured to do, `extrapolated` where nobody has published a step of that chip ({spec.chip.name}: "
        f"{tables.software([spec.id]).decode.iloc[0]}); a hand-tuned one is a scenario of parts that were measured somewhere ([What does software cost?](software.ipynb) "
        f"brackets published runs with it); the ideal one is what a chip allows."
        + (
            f" {share:.0%} of the public step's time rests on constants that were fitted to rows of {spec.chip.name}."
            if share >= 0
            else ""
        )
        + "\n\n"
        + ledger.rests_on(*waits, *dict.fromkeys(tm.system(name).chip.default_stack for name in everyone)),
    )
)

# %% tags=["hide-input"]
charts.table(
    answers[m.id].reset_index(),
    caption=f"{m.id} at {speed:g} tokens/s a user, {lengths}: tokens/s per paid chip of whole requests by kind of stack; a dash is not reached",
    download="answer-dense",
)

# %% tags=["hide-input"]
charts.table(
    answers[experts_m.id].reset_index(),
    caption=f"{experts_m.id} at {speed:g} tokens/s a user, {lengths}; a system that keeps no promise of the chart is left out",
    download="answer-experts",
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(common.of_spec(spec.chip, ["hbm_bytes", "hbm_bytes_per_s", "scaleup_bytes_per_s_per_dir"])),
    caption=f"What this chapter calls things, with the values of {spec.chip.name}",
    download="notation",
)

# %% [markdown]
# **Public**: the fitted stack of a chip's own kind, or the one that stands in for it. **Hand-tuned**: parts that were measured
# somewhere, put together; a chip without such rows has none. **Ideal**: nothing is lost and nothing padded.
# Each chip computes in the first of `precisions` for which it has a peak: compare only chips that have come to equally many bits.
#
# ## The machines
#
# A chip computes $p$ FLOP in the time in which it reads $b$ bytes; below $I^* = p/b$ FLOP a byte, where decode is, only $b$ and $M$ count.
#
# **By hand.** H200: 1,979 TFLOP/s in FP8 over 4.8 TB/s are 412 FLOP a byte; Trainium3 with MXFP8: 2,517 over 4.9 are 514.

# %%
f"{1979e12 / 4.8e12:.0f} and {2517e12 / 4.9e12:.0f} FLOP a byte"

# %%
machines = tables.machines(everyone, precisions)
mine = machines.set_index("system").loc[spec.id]
fastest = machines.loc[machines.hbm_bytes_per_s.idxmax()]
charts.bars(
    machines,
    x="system",
    y="hbm_bytes_per_s",
    caption=f"{spec.chip.name} reads {format_quantity(mine.hbm_bytes_per_s, 'B/s')}, "
    + (
        f"the fastest {format_quantity(fastest.hbm_bytes_per_s, 'B/s')}"
        if fastest.hbm_bytes_per_s > mine.hbm_bytes_per_s
        else "and none reads faster"
    ),
    under="HBM bandwidth of a chip as printed"
    + (f"; the fastest is {fastest.chip}" if fastest.hbm_bytes_per_s > mine.hbm_bytes_per_s else ""),
)

# %%
charts.table(
    machines,
    caption="A chip of each system in its format; links one way, all-to-all an upper bound over the whole domain; `estimate` marks our own",
    download="machines",
)

# %% [markdown]
# Injection is what a chip can send at once. Two maps of Trainium3's lanes are published, the deep dive's and that of AWS's own page,
# which is a system of its own (`trn3-nl72x2-aws-lanes`). A torus delivers less than it can send, because chips forward for others.
#
# ## On which software
#
# A number of one chip on its measured software beside a number of another on none says nothing about the chips. Every chip takes its public stack, and a
# table that mixed kinds would be refused.

# %%
software = tables.software(everyone)
charts.table(software, caption="The public stack of each chip, and what it rests on", download="software")

# %% [markdown]
# ## Whole requests
#
# Each point is the best mapping, batch and documented software option of that machine at which every user still gets the promised
# speed, with the prompts of the requests on the same chips. Chips that a mapping leaves idle are paid. The band is over draws of what
# nobody knows of the software, with the promise kept. *Measured* says that the stack's constants were fitted on rows of that chip, not
# that this very point was.


# %%
def drawn(one):
    """Frontiers of a model on the kind of stack that the buttons choose, public first."""
    at = equal[one.id]
    best = at[(at.promised_tokens_per_s_per_user == speed) & at.times.notna()]
    ahead = {kind: ((rows.times > 1).sum(), len(rows) - 1) for kind, rows in best.groupby("software", sort=False)}
    pieces = ", ".join(f"{count} of {reach} on {kind} stacks" for kind, (count, reach) in ahead.items())
    said = f"{called[spec.id]} is behind {pieces}" if pieces else f"{called[spec.id]} does not reach it"
    leading = next((kind for kind in reversed(KINDS) if kind in ahead), "")
    count, reach = ahead.get(leading, (0, 0))
    front = served[one.id].assign(rank=served[one.id].software.map(["public", "hand-tuned", "ideal"].index))
    return charts.lines(
        front.sort_values("rank", kind="stable"),
        x="promised_tokens_per_s_per_user",
        y="tokens_per_s_per_chip",
        color="system",
        choose="software",
        log_x=True,
        log_y=True,
        caption=f"{one.id}: {count} of {reach} others are ahead on {leading} stacks"
        if ahead
        else f"{one.id}: {speed:,g} tokens/s a user are out of reach",
        under=f"{lengths}, whole requests per paid chip; at {speed:,g} tokens/s a user {said}; band: nine of ten draws, with the promise kept",
    )


drawn(m)

# %%
charts.table(
    equal[m.id],
    caption=f"{m.id}: the most of whole requests at an equal promise; `times` is over {spec.id} on the same kind of stack",
    download="decode-dense",
)

# %%
drawn(experts_m)

# %%
charts.table(
    equal[experts_m.id],
    caption=f"{experts_m.id}: the most of whole requests at an equal promise; `times` is over {spec.id} on the same kind of stack",
    download="decode-experts",
)

# %% [markdown]
# ## What lies between the kinds of stack?
#
# Chips are compared on equal kinds of stack, because the distance between the kinds is larger than that between chips.
# Each bar is a plan of its own, in which the values of one mechanism are those of the next software; the factors multiply
# to the whole gap. [What does software cost?](software.ipynb) explains the mechanisms.

# %%
promised = tm.Request(input_tokens, output_tokens, tokens_per_s_per_user=speed)
gap = tm.software_gap(m, promised, spec, precision=tables.formats([spec.id], precisions)[spec.id])
gaps.waterfall(gap, f"{m.id} on {called[spec.id]}, {lengths}, {speed:,g} tokens/s for each user")

# %% tags=["hide-input"]
Markdown(gaps.describe(gap))

# %% [markdown]
# ## Prefill
#
# A part of every request above: prompts alone, each machine at the TP that reads the most per chip. Compute bounds a long prompt.
# `share_of_peak` is MFU: the model's FLOP over the peak of the chips that work.

# %%
read = {one.id: tables.prompts(one, everyone, precisions, input_tokens) for one in (m, experts_m)}
rates = read[m.id].set_index(["software", "system"])
charts.bars(
    read[m.id],
    x="system",
    y="tokens_per_s_per_chip",
    color="software",
    caption=f"A prompt on public software takes {rates.share_of_peak['public', spec.id]:.0%} of the peak"
    if ("public", spec.id) in rates.index
    else f"{m.id} does not fit on {spec.id}",
    under=f"{m.id}, {input_tokens} tokens; the share is that of {spec.id}",
)

# %%
charts.table(
    read[m.id],
    caption=f"{m.id}: a prompt of {input_tokens} tokens at the TP that reads the most a chip",
    download="prefill-dense",
)

# %%
charts.table(
    read[experts_m.id],
    caption=f"{experts_m.id}: a prompt of {input_tokens} tokens at the TP that reads the most a chip",
    download="prefill-experts",
)

# %% [markdown]
# ## Check: what is published about chips of others
#
# Decode steps that others measured on GPUs, each asked of every kind of stack. A machine that loses nothing must not be slower than a measured one.

# %%
points = tables.published()
public = points[points.software == "public"]
charts.scatter(
    points,
    x="measured_s",
    y="predicted_s",
    color="software",
    label="hardware",
    caption=f"The public stack is {public.error.abs().median():.0%} off in the median",
    under=f"{len(public)} measured decode steps of others; the ideal one is {points[points.software == 'ideal'].error.abs().median():.0%} off",
)

# %%
charts.table(points, caption="Every measured step with its predictions", download="published", file_only=True)

# %% [markdown]
# ## What moves the answer
#
# * **The kind of stack** moves it more than the chip does. What Trainium's software would have to reach to tie is the ratio of the lines.
# * **The speed promised to a user.** Slow users let a chip share its weights among many; fast ones leave only bandwidth and latency.
# * **The size of the domain** counts for mixtures of experts, whose weights spread over all ranks, and hardly for a dense model.
# * **The format.** A chip without an 8-bit peak reads twice the bytes.
#
# ## What is left out
#
# Price and power: a faster chip may be the dearer one. Prefill and decode share their chips; a pair of machines is not asked, and no first
# token has a limit. Every system is one scale-up domain; nothing crosses its network.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Compare chips on equal kinds of stack, at equal speed for the user, in the format each computes; then say which stack it was.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How fast can H200 (4.8 TB/s) and Trainium3 (4.9 TB/s) read the 70.6 billion weights of Llama-3.1-70B in FP8, on 8 chips each?
#
# ```{admonition} Answer
# :class: dropdown
# 70.6 GB / (8 x 4.8 TB/s) = 1.84 ms and 70.6 / (8 x 4.9) = 1.80 ms: equal to 2 %. Any larger difference in a measured step is software.
# ```
#
# **2.** At which batch do MXFP8 weights reach the ridge point of Trainium3, and FP8 weights that of H200?
#
# ```{admonition} Answer
# :class: dropdown
# A byte of weight serves 2 FLOP a sequence: 514 / 2 = 257 (times 8.25/8 for the scales: 265) and 412 / 2 = 206 sequences.
# ```
#
# **3.** A mixture of 671 billion parameters in 8 bits: on how many chips of 144 GiB do its weights alone fit, and on how many of H200's 143,771 MiB?
#
# ```{admonition} Answer
# :class: dropdown
# 671 GB / 154.6 GB = 4.3, so five; 671 / 150.8 = 4.45, five too. With a cache, and degrees that are powers of two: eight.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
ids = {tm.system(name).chip.id for name in everyone}
shown = used[used.entity.isin(ids) & used.quantity.isin(["peak_flop_per_s", "hbm_bytes", "hbm_bytes_per_s"])]
charts.table(
    common.bibliography(shown[shown.status == "chosen"].source), caption="Sources of the machines", download="sources"
)
