# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 11
#     part: Understand
# ---

# %% [markdown]
# # How far does the scale-out network reach?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
models: list[str] = ["llama-3.1-8b", "llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3"]
precision: str = "bf16"
prefill_chips: int = 16
cluster_chips: int = 8192
attainable_share: float = 0.6

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import scale_out as tables
from trnbook.chapters import scale_out_printed as networks_printed
from trnbook.shared import ledger
from trnmodel.fabric import scaleout
from trnmodel.units import GBIT, format_digits, format_quantity, format_within

spec, senders = tm.system(system), [tm.model(name) for name in models]
guard.need(
    not np.isnan(spec.scaleout_bytes_per_s_per_dir),
    f"system = {spec.id!r}: no scale-out rate of its chips is published",
)
guard.some(models=models)
guard.generates(models=senders)
guard.computes(spec.chip, precision=precision)
guard.within(1, 1e9, prefill_chips=prefill_chips, cluster_chips=cluster_chips)
guard.within(0.01, 1, attainable_share=attainable_share)
PORTS = [100e9, 200e9, 400e9, 800e9]
RACKS = ["trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"]
NEIGHBOURS = [
    "trn1.32xlarge",
    "trn2-ultraserver",
    *RACKS,
    "trn3-nl72x2-aws-lanes",
    "gb200-nvl72",
    "hgx-h100",
    "tpu-v7-pod",
]

# %% tags=["hide-input"]
largest = scaleout.networks(spec)
first, paths = largest.iloc[0], scaleout.distances(spec)
rate, shared = spec.scaleout_bytes_per_s_per_dir, scaleout.by_rack(system)
whole = [
    f" With a pair for each of its own racks of {row.chips_per_pair:.0f} it is {row.chips:,.0f}, "
    + (f"oversubscribed {row.oversubscription:.2f}:1." if row.oversubscription > 1 else "with ports to spare.")
    for row in shared[shared.under == "a rack"].itertuples()
]
Markdown(
    common.card(
        first.chips,
        f"so many of {spec.name} do three layers of {first.leaf_and_spine} switches with 100G ports reach where {first.chips_per_rack:.0f} of "
        f"them share a pair of top-of-rack switches: half of its ports, whatever the rack holds",
        unit="chips",
        mark="ideal",
        rival=f"{largest.leaf_and_spine[1]} switches, in leaf and spine alone, reach {largest.chips[1] / first.chips:.0f} times as many",
        proof="Check: numbers that are not ours",
        more=f"Each has {rate / GBIT:g} Gb/s and is at most five switches, some "
        f"{format_within(paths.latency_s[2], paths.latency_s_low[2], paths.latency_s_high[2], 's')}, from any other.{''.join(whole)} Beyond the "
        f"building the fibre rules: {format_quantity(paths.fibre_s[5], 's', 3)} one way at the {paths.distance_m[5] / 1000:.0f} km of ZR "
        f"optics, and the chip keeps {format_quantity(paths.in_flight_bytes[5], 'B', 3)} in flight to fill it.\n\n"
        + ledger.rests_on(f"{scaleout.AWS}/nic_s/project"),
    )
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(tables.symbols(system)),
    caption=f"What this chapter calls things, for {spec.name}; confidence D is our own estimate",
    download="notation",
)

# %% [markdown]
# A **logical port** is what a switch forwards to: a 400G cage can be one port of 400G or four of 100G. A **plane** is a
# network of its own, and a NIC is split over all planes. **Top of rack** (ToR) is the first layer of switches.
#
# ## The model
#
# A switch of capacity $S$ has $r = \lfloor S/p \rfloor$ logical ports of rate $p$. If the first layer gives half of its ports to
# NICs, a folded Clos network ends in
#
# $$ e_2 = \frac{r^2}{2}, \qquad e_3 = \frac{r^3}{4} $$
#
# endpoints with two and three layers. Halving the port doubles $r$: four times the endpoints on two layers, eight times on
# three. Nothing is gained in bandwidth: each endpoint is half as fast, and a NIC needs twice as many planes.
#
# **By hand.** A 12.8T switch has 12,800/100 = 128 ports of 100G: $128^2/2 = 8{,}192$ and $128^3/4 = 524{,}288$. With ports of
# 400G it has 32, and two layers end at $32^2/2 = 512$.

# %%
by_hand = {(100e9, 2): 128**2 / 2, (100e9, 3): 128**3 / 4, (400e9, 2): 32**2 / 2}
ends = [float(tm.clos(switch_bits_per_s=12.8e12, port_bits_per_s=p, layers=n).endpoints) for p, n in by_hand]
assert ends == list(by_hand.values())
", ".join(f"{count:,.0f}" for count in ends)

# %% [markdown]
# ## Small ports reach far

# %%
reach = tables.reach(PORTS)
charts.lines(
    reach.assign(layers=reach.layers.map("{:.0f} layers".format)),
    x="switch_bits_per_s",
    y="endpoints",
    color="port",
    shape="layers",
    log_x=True,
    log_y=True,
    caption="100G ports reach 16 to 64 times 400G's",
    under="on any switch: 16 times on two layers, 64 times on three",
)

# %% [markdown]
# ## What it means for this system
#
# Each NIC has two ToR switches above it, one for each plane, so both planes reach every chip. The ToR stays while leaf and
# spine are exchanged:

# %%
attach = scaleout.nic(system)
shown = "leaf_and_spine chips_per_rack racks_per_pod pods chips switches switches_per_chip optics_per_chip".split()
charts.table(
    largest[shown],
    caption=f"The largest three-layer network of {spec.name}, by the switch of leaf and spine",
    download="networks",
)

# %% tags=["hide-input"]
Markdown(
    f"Where as many ports of a ToR go up as down, a pair of them serves {first.chips_per_rack:.0f} chips, and each chip costs {first.switches_per_chip:.3f} switches and "
    f"{first.optics_per_chip:.2g} optical modules of 400G, whatever the size: a larger leaf and spine saves switches, not optics. "
    f"Copper between chip and ToR is what keeps that down; with optical cables there as well it would be "
    f"{first.optics_per_chip + 2 * attach['nic_bits_per_s'] / attach['module_bits_per_s'] / attach['chips_per_nic']:.2g}."
    + (
        " No source says what one NIC of this system carries; one port in each plane is assumed."
        if np.isnan(spec.nic_bytes_per_s_per_dir)
        else ""
    )
)

# %%
own = [scaleout.by_rack(name).assign(system=name) for name in dict.fromkeys([spec.id, *RACKS])]
pairs = pd.concat(own, ignore_index=True)
charts.table(
    pairs[["system", *pairs.columns[:-1]]],
    caption=f"{first.chips:,.0f} chips take {first.chips_per_rack:.0f} a pair of tops of rack; with a pair for each rack it is "
    + ", ".join(f"{row.chips:,.0f} on {row.system}" for row in pairs[pairs.under == "a rack"].itertuples()),
    download="by-rack",
)

# %% tags=["hide-input"]
crowded = pairs[(pairs.under == "a rack") & (pairs.cpu_ports > 0)].drop_duplicates("system")
Markdown(
    "The printed reach takes a pair of tops of rack that is full to the half, whatever stands in the rack. "
    + " ".join(
        f"A rack of {row.system} puts {row.down_ports:.0f} of {row.down_ports + row.up_ports:.0f} ports down for its {row.chips_per_pair:.0f} "
        f"chips, and {row.cpu_ports:.0f} more for the NICs of its CPUs, which use the same switches."
        for row in crowded.itertuples()
    )
)

# %% [markdown]
# ## A layer saved is a layer of optics saved

# %%
choice = scaleout.port_choice(system, cluster_chips, PORTS[:3])
reached = choice.dropna(subset=["layers"])
needed = reached[reached.switch == first.leaf_and_spine].set_index("port").layers
charts.bars(
    reached,
    x="switch",
    y="optics_per_chip",
    color="port",
    caption=f"{tm.units.counted(cluster_chips, 'chip')} need {needed.min():.0f} to {needed.max():.0f} layers"
    if needed.nunique() > 1
    else f"{tm.units.counted(cluster_chips, 'chip')} need as many layers with any ports"
    if len(needed)
    else f"{tm.units.counted(cluster_chips, 'chip')} are beyond {first.leaf_and_spine} switches",
    under=f"on {first.leaf_and_spine} switches: "
    + (", ".join(f"{layers:.0f} layers with {port} ports" for port, layers in needed.items()) or "out of reach"),
)

# %%
charts.table(
    choice, caption=f"A cluster of {tm.units.counted(cluster_chips, 'chip')} in each port size", download="port-choice"
)

# %% tags=["hide-input"]
small = reached[reached.switch == first.leaf_and_spine].set_index("port").optics_per_chip
missing = sorted(set(choice.port) - set(reached.port))
Markdown(
    (
        f"On {first.leaf_and_spine} switches the cluster takes "
        + ", ".join(
            f"{tm.units.counted(round(optics, 1), 'module a chip')} with {port} ports" for port, optics in small.items()
        )
        if len(small)
        else f"On {first.leaf_and_spine} switches no network reaches so many"
    )
    + (f"; no NIC of this system can be split into {' or '.join(missing)} ports." if missing else ".")
)

# %% [markdown]
# ## Across buildings
#
# AWS joins spines of different buildings directly, without deep buffers: the NICs hold what is in flight,
# $q = 2\,t\,b$ for a one-way latency $t$. FR optics drive a few kilometres, ZR optics more than a hundred.

# %%
charts.ranges(
    paths,
    x="latency_s",
    y="way",
    log_x=True,
    caption="Inside a site NICs make the latency, beyond it fibre",
    under="the fibre from ten kilometres on; what a NIC takes is our estimate (D)",
)

# %%
columns = "way switch_hops fibre_s latency_s latency_s_low latency_s_high in_flight_bytes".split()
charts.table(
    paths[columns], caption="One way through the empty network, and what one chip keeps in flight", download="ways"
)

# %% [markdown]
# NIC latency is our estimate (D), backed out of the 15 us that AWS prints for a message between servers; the path of that
# measurement is not stated, hence the bars.
#
# ## Does 200 Gb/s a chip hide the KV cache?
#
# AWS believes that 200 Gb/s a chip is enough to overlap the transfer of the KV cache from prefill to decode instances. A cache of
# $v$ bytes a token leaves at rate $b$; it hides behind a prefill of fewer than $R = b/v$ tokens a second. So the slower the prefill,
# the easier the claim: the public software's stands beside one that reaches a share of the peak and hides its own network. AWS claims
# about 60 % of BF16 for dense models with hand-written kernels, which it says of training.

# %%
tokens, attained = 2.0 ** np.arange(10, 18), tables.attainable(attainable_share)
moved = pd.concat(
    [
        tables.kv_transfer(m, spec, tokens, prefill_chips, precision, stack)
        for stack in (None, attained)
        for m in senders
    ],
    ignore_index=True,
)
fits = moved.dropna(subset=["send_over_prefill"])

# %% tags=["hide-input"]
used_chips = int(moved.chips.iloc[0])
worst = fits.loc[fits.groupby("stack", sort=False).send_over_prefill.idxmax()]
claim = (
    "Sending the KV cache takes at most "
    + ", ".join(f"{row.send_over_prefill:.1%} of a prefill on {row.stack} ({row.model})" for row in worst.itertuples())
    if len(fits)
    else f"None of these models fits {tm.units.counted(used_chips, 'chip')}"
)
charts.lines(
    fits,
    x="input_tokens",
    y="send_over_prefill",
    color="model",
    shape="stack",
    log_x=True,
    log_y=True,
    caption=f"Sending the cache takes at most {fits.send_over_prefill.max():.1%} of a prefill",
    under=f"{precision}, from {tm.units.counted(used_chips, 'chip')}; {claim[:1].lower()}{claim[1:]}",
) if len(fits) else Markdown(f"**{claim}** in {precision}.")

# %% tags=["hide-output"]
shown = "model input_tokens chips stack basis kv_bytes prefill_s send_s hidden late_s late_whole_s".split()
charts.table(
    moved[shown],
    caption=f"KV transfer from {tm.units.counted(used_chips, 'chip')}, in {precision}: sent layer by layer, or whole after prefill",
    download="kv",
)

# %%
narrow = list(dict.fromkeys([precision, *(name for name in ["mxfp8"] if name in spec.chip.peak_flop_per_s)]))
counts = sorted({n for n in (1, 4, used_chips) if n <= spec.domain_chips})
room = tables.room(senders, spec, tokens, counts, narrow, [None, attained])
least = room.groupby("stack", sort=False).room.agg(["min", "max"])
low = least["min"].min()
ends = [
    " to ".join(dict.fromkeys(f"{format_digits(end, 2)}" for end in row)) + f" times on {stack}"
    for stack, *row in least.itertuples()
]
charts.table(
    room,
    caption="Tightest prompt and model of each case: the network could be slower by " + ", ".join(ends)
    if ends
    else "No case",
    download="room",
)

# %% tags=["hide-input"]
Markdown(
    f"From {tm.units.counted(used_chips, 'chip')} of {spec.name} in {precision} the network could be "
    + " and ".join(
        f"{format_digits(1 / row.send_over_prefill, 2)} times slower on {row.stack}" for row in worst.itertuples()
    )
    + " before sending became the longer of the two. Over prefills from "
    + ", ".join(map(str, counts))
    + f" chips in {' and '.join(narrow)} it is "
    + ", ".join(ends)
    + f": the claim {'fails below one' if low < 1 else 'holds, with little to spare' if low < 3 else 'holds with room'}. "
    f"What layer-by-layer sending cannot hide is the last layer, {1 - fits.hidden.max():.1%} of the transfer or more."
    if len(fits)
    else "With more chips or a narrower format the table fills."
)

# %% [markdown]
# ## Scale-out beside scale-up

# %%
speeds = tables.rates(dict.fromkeys([spec.id, *NEIGHBOURS]))
ratio, fast = speeds.scaleup_over_scaleout, speeds.set_index("system").scaleup_over_scaleout
charts.bars(
    speeds,
    x="system",
    y="scaleup_over_scaleout",
    caption=f"Scale-up sends {ratio.min():.0f} to {ratio.max():.0f} times scale-out's rate",
    under=f"a chip, one way; on NL72x2 {fast['trn3-nl72x2-pcie160']:.0f} times, by AWS's own lane map {fast['trn3-nl72x2-aws-lanes']:.0f}",
)

# %%
charts.table(
    speeds.drop(columns=["nic_bytes_per_s_per_dir"]),
    caption="Rates of one chip, one way, and of its whole scale-up domain",
    download="rates",
)

# %% [markdown]
# ## Check: numbers that are not ours
#
# **Printed sizes.** Every cluster size and ratio that the deep dive prints, against the same from the formula:

# %%
printed = networks_printed.printed_sizes()
charts.table(
    printed.drop(columns=["source"]), caption="Cluster sizes as printed and as computed", download="printed-sizes"
)

# %%
measured = networks_printed.measured_share()
charts.table(measured, caption="What EFA moved on trn2.48xlarge, against its printed rate", download="measured")

# %% tags=["hide-input"]
computed_s, printed_s = networks_printed.fibre_check()
Markdown(
    f"{(printed.verdict == 'agrees').sum()} of {len(printed)} printed sizes agree exactly. One kilometre of fibre: "
    f"{format_quantity(computed_s, 's')} computed, {format_quantity(printed_s, 's')} printed elsewhere "
    f"({computed_s / printed_s - 1:+.2%}). Measured transfers reach {measured.share.min():.0%} to "
    f"{measured.share.max():.0%} of the printed rate; at {measured.share.min():.0%} every sending time above is "
    f"{1 / measured.share.min():.2f} times as long."
)

# %% [markdown]
# **A printed size that needs a word more.** The text sets 8,192 GPUs behind 100G ports against 512 behind 400G ports, both with a
# NIC of 400G. 8,192 is the number of *ports*: in one network they are 2,048 GPUs with four ports each. The printed size needs
# four planes, hence four times the switches:

# %%
one, four = (
    tm.clos(switch_bits_per_s=12.8e12, port_bits_per_s=100e9, nic_bits_per_s=400e9, layers=2, planes=n) for n in (1, 4)
)
planes = pd.DataFrame(
    {"planes": [1, 4], "gpus": [one.max_chips, four.max_chips], "switches": [one.switches, four.switches]}
)
charts.table(planes, caption="Two layers of 12.8T switches with 100G ports, for NICs of 400G", download="planes")

# %% [markdown]
# ## What moves the answer
#
# * **Port size**, by its square or cube; **planes** buy the bandwidth back at the price of cabling.
# * **The NIC option.** A chip with a 400G NIC of its own halves the chips of a ToR and doubles optics and switches a chip.
# * **Distance.** Five microseconds a kilometre, whatever the switch.
# * **The share of the printed rate** that transfers reach: two thirds to three quarters, measured.
#
# ## What is left out
#
# Congestion and packet loss, SRD's spraying, the frontend network that shares the ToR, patch panels, oversubscribed uplinks
# (`tm.clos(oversubscription=)` sizes them), prices (a later chapter). The prefills are those of chapter 10. The real topology between buildings is not known.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# The reach of a network is its switch's port count to the power of its layers: divide ports before you add layers, and mind that
# bandwidth comes from planes.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How many endpoints has a three-layer network of 51.2T switches with ports of 200G?
#
# ```{admonition} Answer
# :class: dropdown
# 51,200/200 = 256 ports: $256^3/4 = 4{,}194{,}304$.
# ```
#
# **2.** Leaf and spine go from 12.8T to 25.6T, the ToR stays. Why four times the chips and not eight?
#
# ```{admonition} Answer
# :class: dropdown
# Endpoints are (ToR ports down) x (leaf ports down) x (pods = leaf ports): only the last two factors double.
# ```
#
# **3.** Two buildings are 80 km apart. How much must a chip with 200 Gb/s keep in flight?
#
# ```{admonition} Answer
# :class: dropdown
# 80 km x 4.9 us/km = 0.39 ms one way, with NICs and switches 0.41 ms; twice that at 25 GB/s is 20 MB.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
entities = {spec.id, scaleout.AWS, scaleout.FIBRE, "efa-v3"} | set(used.entity[used.quantity == "reach_m"])
used = used[used.entity.isin(entities)]
charts.table(
    common.bibliography([*used.source, *printed.source]),
    caption="Sources of the figures in this chapter",
    download="sources",
)
