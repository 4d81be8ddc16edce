# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 10
#     part: Understand
# ---

# %% [markdown]
# # Which switch tray, and does it matter?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
model: str = "deepseek-v3"
tokens_per_chip: float = 8.0
context: float = 8192.0
precision: str = "mxfp8"
tokens_per_s_per_user: float = 50.0
pays_at: float = 1.1
grown_from: str = "deepseek-v3"

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import switch_tray as tables
from trnbook.shared import case, domain_sizes, ledger, placements, software_kinds
from trnbook.shared import fabrics as compare

spec, m, base = tm.system(system), tm.model(model), tm.model(grown_from)
asked_for = {"tokens_per_chip": tokens_per_chip, "context": context, "pays_at": pays_at}
tables.check(m, base, **asked_for, tokens_per_s_per_user=tokens_per_s_per_user)
small, large = domain_sizes.PAIR
placed = placements.steps(m, [small, large], [tokens_per_chip], context=context, precision=precision)
guard.need(
    placed[placed.placement != "EP + copy"].groupby("system").time_s.count().min() > 0,
    f"model = {m.id!r} with tokens_per_chip = {tokens_per_chip:g}, context = {context:g} in {precision}: no step on {small} and {large} exists",
)
racks = {name: [*tables.trays(name), *compare.lane_maps(name)] for name in (small, large)}
trays, everyone = tables.trays(spec), [*racks[small], *racks[large]]

# %% tags=["hide-input"]
longest = case.INPUT_TOKENS + case.OUTPUT_TOKENS
prompt = max(min(longest, m.max_context) - case.OUTPUT_TOKENS, 1)
asked = tm.Request(prompt, case.OUTPUT_TOKENS, tokens_per_s_per_user=case.PROMISES.get(m.id, 20.0))
plans = {rack: tm.plan(m, asked, rack).best or tm.plan(m, asked, rack, efficiencies="ideal").best for rack in racks}
guard.need(all(plans.values()), f"model = {m.id!r}: no plan serves it on both racks")


def on_tray(tray, best):
    """The decode step of a plan, without drafted tokens, with nothing changed but the switch tray."""
    ask = {"batch": best.batch, "context": best.step.tokens, "max_context": prompt + case.OUTPUT_TOKENS}
    return tm.decode_step(m, tray, best.degrees, **ask, precision=best.precision, efficiencies=best.step.stack)


steps = {tray: on_tray(tray, plans[rack]) for rack, names in racks.items() for tray in names}

# %% tags=["hide-input"]
first, gains = tm.system(small), []
for hop_s in (first.chip.hop_s, 0.0, first.chip.range("hop_s")[1]):
    ways = {rack: [tables.with_hop(name, hop_s) for name in (rack, tables.trays(rack)[-1])] for rack in racks}
    pairs = {rack: [on_tray(way, plans[rack]).network_s for way in both] for rack, both in ways.items()}
    gains.append({rack: float(one - other) for rack, (one, other) in pairs.items()})
rack = max(gains[0], key=gains[0].get)
saved, low, high = (tm.units.format_quantity(gain[rack], "s", 2) for gain in gains)
Markdown(
    common.card(
        f"{saved} ({low.partition(' ')[0]} to {high.partition(' ')[0]}; extrapolated)",
        f"the most that a later switch tray takes off one decode step of {m.id}",
        mark="",
        rank="Compared with",
        rival=f"{tm.units.format_quantity(float(steps[rack].time_s), 's', 3)} for the whole step",
        proof="Check: numbers that are not ours",
        more="The tray hardly matters. A later one shortens the way between two chips, but each chip keeps the same bandwidth. "
        "[Which rack](#which-rack-and-what-if-a-switch-tray-fails) you choose, and whether it has spare trays, matters more.\n\n"
        "**How sure?** The paths are printed, but the time of a hop is assumed. "
        f"The gain of the case is {low} if chips forward at no cost, and {high} with AWS's slowest hop. "
        + ledger.rests_on(*ledger.estimated(first.chip, "hop_s"), *ledger.estimated(first, "switch_s")),
    )
)

# %% tags=["hide-input"]
shown = pd.concat(step.to_frame().assign(tray=tables.label(tray)) for tray, step in steps.items())
charts.bars(
    shown[["tray", "network_s"]].rename(columns={"tray": "what"}),
    x="what",
    y="network_s",
    caption=f"A later tray saves at most {saved} per step",
    under=f"exchanges of a step of {m.id}, {plans[small].step.stack_kind} software; one plan for each rack",
)

# %% [markdown]
# ## The running case
#
# This chapter adds no line to the table. It asks how much the last line, the time of exchanges, changes with the switch tray.

# %% tags=["hide-input"]
case.table("switch-tray")

# %% [markdown]
# ## Why ask?
#
# Two systems of Trainium3 have switches, and each is a pair of racks: NL32x2 with 32 chips in a rack, and NL72x2 with 72. Their
# **switch trays** hold whatever switch AWS can buy at the time. SemiAnalysis describes the series. A PCIe switch with 160 lanes comes first, with Broadcom's
# PEX90144 as its backup. A PCIe switch with twice the lanes is next, and a UALink switch is last. All but the
# backup are Scorpio X switches of Astera Labs.
#
# The chapter follows what a later tray would bring: to the wires, to the path of a message,
# and to a **decode step**, in which the model makes the next token of every user.
#
# ## Does a chip get more bandwidth?
#
# It does not. A **lane** is a pair of wires for each direction, and eight lanes make a **port**. A chip spends its ports on
# three tiers: the other chips of its compute tray, the switch trays of its rack, and the chip at the same place in the
# second rack. That split is called the **lane map**. A new switch tray changes what stands at the far end of the
# lanes to the switch trays, but not how many there are.

# %% tags=["hide-input"]
tables.lanes([trays[0], *compare.lane_maps(trays[0])])

# %% [markdown]
# AWS's own page prints fewer lanes for NL72x2 than SemiAnalysis does. The book takes SemiAnalysis's map, which covers every
# tray, and also shows AWS's, as "AWS lanes".
#
# In an **all-to-all**, each chip sends to every other chip of the rack at once. The peers on its own tray need no switch tray, so
# the lanes to the switch trays carry the rest:
#
# $$ B = n_{lanes}\, r\, \frac{N - 1}{N - c} $$
#
# Here $B$ is the rate of one chip to all others, $n_{lanes}$ its lanes to the switch trays and $r$ the rate of a lane. There
# are $N$ chips in the rack and $c$ on a tray.
#
# **By hand.** NL72x2 has $N = 72$ and $c = 4$. Its chips have 64 lanes to the switch trays, each of 8 GB/s, so $B = 512 \times 71/68 = 535$ GB/s.
# No kind of switch enters the formula.

# %% tags=["hide-input"]
by_hand = 64 * 8e9 * (72 - 1) / (72 - 4)
ask = {"message_bytes": 1e9, "chips": 72, "alpha_s": 0.0, "efficiencies": "public"}  # from each of four ranks of a chip
one = [tm.collective("all_to_all", system=tray, **ask).time_s for tray in tables.trays(tables.LARGE)]
assert np.allclose(one, 4e9 * 71 / 72 / by_hand, rtol=2e-3)

# %% [markdown]
# ## How many chips share a plane?
#
# A **plane** is a set of switches together with the chips that are wired to them. Each of the eight ports of a chip goes to
# another switch of its plane, so the switches of one plane all reach the same chips. How many chips that is depends on the ports
# of one switch:
#
# $$ p = \frac{L}{8}, \qquad n_{planes} = \left\lceil \frac{N}{p} \right\rceil $$
#
# where $L$ is the number of lanes of a switch, $p$ the number of its ports, and $N$ the number of chips in the rack.
#
# **By hand.** A switch with $L = 160$ has $p = 20$ ports, and $72/20$ makes four planes. With $L = 320$ there are two. A
# UALink switch with 72 ports takes the whole rack in one. The NL32x2 rack, with $N = 32$, needs two planes at first and then one.


# %%
def planes(lanes, chips):
    """How many planes a rack needs, if each chip takes one port of eight lanes on each switch of its plane."""
    return int(np.ceil(chips / (lanes // 8)))


by_hand = [planes(lanes, 72) for lanes in (160, 144, 320, 8 * 72)]
assert by_hand == tables.plane_table(tables.trays(tables.LARGE)).planes.tolist()

# %% tags=["hide-input"]
tables.planes(trays)

# %% [markdown]
# With several planes, a chip has no switch in common with most chips of the other trays. Its message first
# goes to a neighbour on its own tray that belongs to the right plane, and that neighbour forwards it.

# %% [markdown]
# ## How far apart are two chips?
#
# The latency of a message is the time before its bytes flow. Each chip that sends or forwards adds a hop, and each switch
# adds its own delay:
#
# $$ t = \alpha\,(1 + f) + s\,t_{switch} $$
#
# Here $\alpha$ is the time of a hop, $f$ the number of chips that forward, $s$ the number of switches and $t_{switch}$ the delay of one.
#
# **By hand.** Take $\alpha = 1.5$ µs and $t_{switch} = 0.115$ µs. In NL72x2 with the first tray one chip forwards and two switches are
# passed, so $t = 1.5 \times 2 + 0.115 \times 2 = 3.23$ µs. With UALink it is $1.5 + 0.115 = 1.615$ µs, which is half.


# %% tags=["hide-input"]
def latency_s(path, hop_s=1.5 * tm.units.US, switch_s=0.115 * tm.units.US):
    """Latency of a path of chips and switches, whose last chip only receives."""
    switches = sum("switch" in place for place in path)
    return hop_s * (len(path) - 1 - switches) + switch_s * switches


ends = "rack0/tray0/A", "rack0/tray9/D"
ways = {tray: tm.topology(tray).path(*ends) for tray in tables.trays(tables.LARGE)}
assert np.isclose(latency_s(ways["trn3-nl72x2-pcie160"]), 3.23 * tm.units.US)
assert np.isclose(latency_s(ways["trn3-nl72x2-ualink"]), 1.615 * tm.units.US)

# %% tags=["hide-input"]
late = []
for tray in everyone:
    per_rack, hop_s = tm.system(tray).domain_chips // 2, (1.5 * tm.units.US, *tm.system(tray).chip.range("hop_s"))
    ways = [tables.with_hop(tray, one) for one in hop_s]
    empty = [tm.collective("all_to_all", 0, way, chips=per_rack, efficiencies="public").time_s for way in ways]
    late.append(dict(zip(("latency_s", "latency_s_low", "latency_s_high"), map(float, empty), strict=True)))

# %% tags=["hide-input"]
charts.table(
    tables.plane_table(everyone).drop(columns=["ports_used", "board_switches"]).join(pd.DataFrame(late)),
    caption="One rack with each tray; a direct pair of chips needs no other to forward",
    download="planes",
)

# %% [markdown]
# The latency is that of an all-to-all without bytes, over the range that AWS documents for one hop of its rings. We assume the same
# range here. The latency depends on whether a chip must forward, and not on the kind of switch. In the large rack, only the UALink switch reaches
# every chip without a chip that forwards.
#
# ## What does it change in the running case?
#
# The running case of this book serves DeepSeek-V3, a mixture of experts, to users who are promised 20 tokens/s. The experts of a layer are
# spread over chips, so every token travels to its experts and back. The way out is called **dispatch**, the way back
# **combine**, and both are all-to-alls:
#
# $$ T_{experts} = 2\,E\,\left(t_{far} + \frac{S}{B}\right), \qquad \Delta T = 2\,E\,\Delta t_{far} $$
#
# Here $E$ is the number of expert layers, $t_{far}$ the latency to the farthest chip, $S$ the bytes that a chip sends and $B$ the rate from above.
# The tray changes $t_{far}$ alone, so $\Delta T$ is what it saves. **By hand.** With $E = 58$ and one hop of 1.5 µs less, $\Delta T = 2 \times 58 \times 1.5 = 174$ µs. The step of the running case takes some
# forty milliseconds.
#
# Here is the step of the running case with the first tray and with the last. Change the tray or the mapping and run it again.

# %%
ask = {"mapping": tm.Mapping(tp=2, ep=64), "batch": 192, "context": 4352, "max_context": 4608}
ask |= {"precision": "mxfp8", "efficiencies": "vllm-neuron-2026-async"}
first_and_last = [tm.decode_step("deepseek-v3", tray, **ask) for tray in (small, "trn3-nl32x2-ualink")]
assert np.isclose(first_and_last[0].time_s, case.choice("deepseek-v3", small).step.time_s)
both = pd.concat(step.to_frame() for step in first_and_last)[["system", "network_s", "time_s"]]
charts.table(both, caption="A decode step of the running case with two trays", download="steps")

# %% [markdown]
# The plan of the running case lists its messages. The hidden cell times each of them by `tm.collective`, and the sum is
# the line "Exchanges of a step, alone" of the running case, which [Torus or switch?](torus-or-switch.ipynb) explains.

# %% tags=["hide-input"]
plan, exchange_s = case.choice("deepseek-v3", small), {}
for one in plan.step.messages:
    group = {"ranks": plan.ep, "stride": plan.tp} if one.group == "ep" else {"ranks": plan.tp}
    sent = tm.collective(one.kind, one.message_bytes, small, **group, lnc=plan.lnc, efficiencies=plan.step.stack)
    exchange_s[one.name] = float(one.count * sent.time_s)
assert np.isclose(sum(exchange_s.values()), plan.step.network_s)

# %% tags=["hide-input"]
of_case = {}
for name, tray in ((name, tray) for name in case.PROMISES for tray in everyone):
    best = tm.plan(name, case.request(name), tray).best
    of_case[name, tray] = float(best.step.network_s)
assert np.isclose(
    of_case["deepseek-v3", small] - of_case["deepseek-v3", "trn3-nl32x2-ualink"], 2 * 58 * 1.5 * tm.units.US
)
assert len({round(of_case["llama-3.3-70b", tray], 12) for tray in everyone}) == 1

# %% [markdown]
# So NL32x2 gains from later trays. Why does NL72x2 gain nothing in the running case? There the experts fill only a part of a rack, and their
# exchange runs in two phases: first within a tray, then between chips at the same place of each tray. Chips at the same place always share a plane,
# so no chip forwards, whichever switch is used. Llama-3.3-70B splits its layers over the cores of one chip, and its exchanges never reach a switch.

# %% [markdown]
# ## Check: numbers that are not ours
#
# SemiAnalysis prints how many switches and forwarding chips stand on example paths, and the most that stand between any two chips of
# a rack. The graph was built from ports and lanes alone, so these paths test it.

# %% tags=["hide-input"]
paths = tables.paths([*tables.trays(small), *tables.trays(large)])
printed = paths[paths.verdict.isin(["agrees", "disagrees"])]
assert (printed.verdict == "agrees").all()
charts.table(
    tables.side_by_side(printed[printed.system.isin([small, large])]),
    caption="Switches and forwarding chips on a path, counted and printed",
    download="paths",
)

# %% [markdown]
# Every printed path agrees. Path C leads into the second rack, so it may pass more than the most within one rack. The latencies have no such check, because nobody has published a measurement of these switches.
#
# %% [markdown]
# ## What moves the answer
#
# The gain from a tray depends most on the load, which is the number of tokens per chip in a step. The software comes next, because the losses of
# public software are larger than all exchanges together. The time of a hop comes third. SemiAnalysis reports that Trainium3 forwards at no cost. The cell sets the hop to zero and asks for
# the difference between the first tray and the last again.

# %% tags=["hide-input"]
rank = {"message_bytes": 8 * 114_688 / 4, "chips": 72, "efficiencies": "public"}
ends = [tables.with_hop(tray, 0.0) for tray in (tables.LARGE, "trn3-nl72x2-ualink")]
free = [float(tm.collective("all_to_all", system=end, **rank).time_s) for end in ends]
Markdown(
    f"With free hops the first tray costs {tm.units.format_quantity(free[0] - free[1], 's', 3)} more per exchange than the last: one switch."
)

# %% [markdown]
# ## Which rack, and what if a switch tray fails?
#
# **The size of the rack.** SemiAnalysis holds that NL32x2 is enough to decode models of up to three trillion parameters, and that NL72x2 brings a
# benefit from four trillion on. We asked the planner for both racks, with several formats, speeds, contexts, rules of growth and kinds of software:

# %% tags=["hide-input"]
sizes, widths = [0.67, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0], list(dict.fromkeys(["bf16", precision]))
ratios = domain_sizes.ratios(
    tables.rules_of_growth(),
    [size * tm.units.TRILLION for size in sizes],
    rates=sorted({20.0, 50.0, 100.0, tokens_per_s_per_user}),
    precisions=list(dict.fromkeys([*widths, "w4a8"])),
    contexts=[context, 4 * context],
    stacks=["ideal", "exposed", "default"],
    base=base.id,
    pair=(small, large),
)
counted = tables.counts(domain_sizes.verdicts(ratios, pays_at, 3 * tm.units.TRILLION, 4 * tm.units.TRILLION))
Markdown(tables.claim(counted))

# %% [markdown]
# So no single size of model holds for all cases. Why is there a border at all? A decode step with many users reads every expert once, so within the
# time of a token the chips must stream all weights. With $n$ chips of HBM bandwidth $b$, at $v$ tokens/s per user and $s$ bytes per parameter, the
# largest model has
#
# $$ P_{max} = \frac{n\, b}{v\, s} . $$
#
# **By hand.** Both racks of NL32x2 together have $n = 64$ chips with $b = 4.9$ TB/s. At $v = 50$ and in BF16 with $s = 2$, the bound is
# $64 \times 4.9/(50 \times 2) = 3.1$ trillion parameters. NL72x2 with $n = 144$ reaches 7.1 trillion.

# %% [markdown]
# **A lost tray.** SemiAnalysis counts redundant lanes on every chip. They idle until something fails, and they help only where a spare switch stands
# at their end. NL72x2 has spare switch trays. NL32x2 has four and no spare, so a lost tray takes a quarter of the bandwidth. SemiAnalysis expects
# designs with a fifth tray, which would close that gap. AWS's page names no redundant lanes. The cell pulls the first tray out of each rack.

# %%
left = []
for rack in (tm.system(small), tm.system(small).with_switch_trays(5), tm.system(large), tm.system(common.LANE_MAP)):
    net = tm.topology(rack)
    whole, pulled = (one.all_to_all_bytes_per_s_per_pair("rack") for one in (net, net.without(switch_trays=[(0, 0)])))
    name = f"{rack.id}, {rack.switch_trays_per_rack:g} switch trays"
    left.append({"system": name, "left_share": pulled / whole})
charts.table(pd.DataFrame(left), caption="All-to-all bandwidth after one switch tray is pulled", download="pulled")

# %% [markdown]
# ## What is left out
#
# - Queues and congestion in switches, and what UALink's protocol gains beyond fewer hops.
# - The price and the power of a tray, and the date when it can be bought. SemiAnalysis names this date as the reason why the switch with 160 lanes
#   comes first.
# - A direct exchange between chips that fill only part of a rack. On UALink it could save one hop per exchange, as much as in the
#   estimate by hand above.
# - Experts that span both racks. They exchange over the sixteen lanes between the racks, which no tray changes.
# - Experts that are hotter than others, and copies of a token that are merged on their way to one chip.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# A larger switch shortens the path between two chips and adds no bandwidth. Do not wait for a tray. Choose the larger rack when the smaller one
# cannot read the weights of the model in the time of a token. In BF16 at 50 tokens/s per user, that is a model of more than about three trillion
# parameters. Smaller formats and slower users move this border up.
# ```

# %% [markdown]
# ## Problems
#
# **1.** A rack has 36 chips. How many planes does it need with the 320-lane switch?
#
# ```{admonition} Answer
# :class: dropdown
# The switch has $320/8 = 40$ ports, which take all chips of the rack in one plane.
# ```
#
# **2.** NL72x2 with the 320-lane switch has two planes. Why do three things still stand between some chips of a rack?
#
# ```{admonition} Answer
# :class: dropdown
# The message passes a switch of its own tray, a chip there that belongs to the other plane, and a rack switch.
# ```
#
# **3.** A model has four trillion parameters in MXFP8, which is 8.25 bits each. How fast can NL32x2 serve a user at most?
#
# ```{admonition} Answer
# :class: dropdown
# The weights are $4 \times 8.25/8 = 4.125$ TB. The chips stream $64 \times 4.9 = 313.6$ TB/s, so a step takes 13.2 ms, which is
# 76 tokens/s without the cache and latency.
# ```

# %% [markdown]
# ## Further: the load, and models that do not exist yet

# %% [markdown]
# **At which load does the tray matter?** The latency is paid once per exchange and the bytes for every token. Their times are equal at
#
# $$ n^{*} = \frac{t_{far}\, B}{k\, h\, w} $$
#
# tokens per chip, where $k$ is the number of experts of a token, $h$ the width of the model and $w$ the bytes of an element. Far below
# $n^{*}$ the tray sets the time of the exchange, and far above it the lanes do.
#
# **By hand.** For DeepSeek-V3 a token is $k\,h\,w = 8 \times 7168 \times 2 = 114{,}688$ bytes. On NL72x2 with the first tray
# $n^{*} = 3.23 \times 10^{-6} \times 535 \times 10^{9} / 114{,}688 = 15$ tokens per chip. The running case has six.


# %% tags=["hide-input"]
def experts_s(tray, tokens):
    """Dispatch and combine of all expert layers over one rack, with these tokens per chip."""
    rack = tm.system(tray)
    sent = m.outline().top_k * m.hidden_size * 2 * tokens / (rack.chip.cores / rack.chip.logical(None))
    one = tm.collective("all_to_all", sent, tray, chips=rack.domain_chips / rack.racks, efficiencies="public")
    return 2 * m.outline().expert_layers * one.time_s


load = tokens_per_chip * 2.0 ** np.arange(-3, 7)
spread = {tray: experts_s(tray, load) for tray in [trays[0], trays[-1], *compare.lane_maps(trays[0])]}
assert 15 < 3.23 * tm.units.US * 535e9 / (8 * 7168 * 2) < 15.1

# %% tags=["hide-input"]
lines = [pd.DataFrame({"tokens_per_chip": load, "tray": tables.label(k), "exchange_s": v}) for k, v in spread.items()]
charts.lines(
    pd.concat(lines),
    x="tokens_per_chip",
    y="exchange_s",
    color="tray",
    log_x=True,
    log_y=True,
    caption="With few tokens the tray counts, with many the lanes",
    under=f"dispatch and combine of {m.id} over one whole rack, all expert layers of a step",
)

# %% [markdown]
# Read the chart from the left. The lines of the two trays begin apart and run together, because the same bytes come to outweigh
# the latency. A line of AWS's lane map leaves them, because it has fewer lanes to the switch trays. Prefill and training lie
# far to the right.

# %% [markdown]
# **From which size of model does the larger rack pay?** No public model is that large. The cell grows one: depth, width and the number of experts grow together, by our own rules. It asks the
# planner for both racks on software without losses, because the public software has no plan for these sizes.


# %%
def throughput(size, rack, width):
    """Tokens per second and chip of the best plan for a grown model; none where no plan keeps the promise."""
    grown = tables.grown(size * tm.units.TRILLION, base)
    lengths = max(int(min(context, grown.max_context - 512)) - 256, 1), 512
    wanted = tm.Request(*lengths, tokens_per_s_per_user=tokens_per_s_per_user)
    best = tm.plan(grown, wanted, rack, precision=width, efficiencies="ideal").best
    return float(best.tokens_per_s_per_chip) if best else np.nan


assert round(64 * 4.9 / (50 * 2), 1) == 3.1
assert round(144 * 4.9 / (50 * 2), 1) == 7.1

# %% tags=["hide-input"]
rows = [
    {"total_params": size * tm.units.TRILLION, "precision": width, "ratio": throughput(size, large, width) / other}
    for width in widths
    for size in sizes
    if (other := throughput(size, small, width)) > 0
]
charts.lines(
    pd.DataFrame(rows, columns=["total_params", "precision", "ratio"]).dropna(),
    x="total_params",
    y="ratio",
    color="precision",
    log_x=True,
    caption="For large models the larger rack yields more per chip",
    under=f"throughput per chip, NL72x2 over NL32x2, at {tokens_per_s_per_user:g} tokens/s per user, ideal software",
)

# %% [markdown]
# A line ends where the smaller rack no longer keeps the promise. It can fall before that, because beyond the bound a rack only runs batches so small
# that their tokens reach a part of the experts. Wider weights and faster users move all this to smaller models.
#
# The file has every case by which SemiAnalysis's claim is judged. A case is "earlier" where the larger rack pays at three trillion parameters or
# fewer. It is "later" where the larger rack does not pay at some size from four trillion on. In these trials each chip is one rank, a mode that AWS
# has announced and its software does not allow yet.

# %% tags=["hide-input"]
agree, cases, open_cases = counted.iloc[-1][["agrees", "cases", "no rate"]]
charts.table(
    counted,
    caption=f"The claim holds in {agree} of the {cases - open_cases} cases that can be decided",
    download="verdicts",
    file_only=True,
)

# %% [markdown]
# What the two racks yield for whole requests, on three kinds of software, is the question of
# [What does software cost?](software.ipynb).

# %% tags=["hide-input"]
request = tm.Request(min(software_kinds.REQUEST.input_tokens, max(m.max_context - 512, 1)), 512)
columns = """promised_tokens_per_s_per_user system software tokens_per_s_per_chip tokens_per_s_per_chip_low
    tokens_per_s_per_chip_high chance decode_tokens_per_s_per_chip basis option tp ep pp cp batch reason"""
charts.table(
    software_kinds.answers(m, request)[columns.split()],
    caption=f"{m.id} on both racks and three kinds of software",
    download="three-experts",
    file_only=True,
)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
delays = used.entity.isin([compare.STACK, compare.SWITCH]) & used.quantity.isin(["hop_s", "switch_s"])
used = used[used.entity.isin([*everyone, "trn3-switched", "pex90144"]) | delays]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
