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
models: list[str] = ["llama-3.3-70b", "deepseek-v3"]
precision: str = "bf16"
cluster_chips: int = 8192

# %% tags=["hide-input"]
import numpy as np
import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import scale_out as tables
from trnbook.chapters import scale_out_printed as printed
from trnbook.drawings import racks as drawings
from trnbook.shared import case

spec, senders = tm.system(system), [tm.model(name) for name in models]
rate = spec.scaleout_bytes_per_s_per_dir
guard.need(not np.isnan(rate), f"system = {spec.id!r}: no scale-out rate of its chips is published")
guard.some(models=models), guard.generates(models=senders), guard.computes(spec.chip, precision=precision)
guard.within(1, 1e9, cluster_chips=cluster_chips)

# %% tags=["hide-input"]
first = tables.attached(spec, 100e9)
largest = tm.clos(switch_bits_per_s=12.8e12, layers=3, **first)
Markdown(tables.answer(spec, float(largest.max_chips)))

# %% tags=["hide-input"]
reach = {}
for layers, port in ((3, 100), (3, 400), (2, 100), (2, 400)):
    net = tm.clos(switch_bits_per_s=tables.SWITCHES, layers=layers, **tables.attached(spec, port * 1e9))
    reach[f"{layers} layers, {port}G ports"] = np.where(net.max_chips <= 1e7, net.max_chips, np.nan)
charts.lines(
    tables.curves(reach),
    x="switch_bits_per_s",
    y="max_chips",
    color="line",
    highlight=["3 layers, 100G ports"],
    log_x=True,
    log_y=True,
    caption="Small ports and a third layer reach furthest",
    under="chips that a network joins, up to ten million; the smallest switch is AWS's top of rack",
)

# %% [markdown]
# ## The running case
#
# Every replica of the case stays inside one system, so none of its lines crosses the network of this chapter.

# %% tags=["hide-input"]
case.table("scale-out")

# %% [markdown]
# ## The idea: layers of switches
#
# The chips of a server or a rack are joined by *scale-up* links and form a *domain*. Beyond it, traffic takes the *scale-out* network of network cards
# (*NIC*; AWS calls its own *EFA*), switches and fibre. It is many times slower per chip, but it reaches a whole building. So how many chips
# does it join, and which traffic can it carry?
#
# To join more chips than one switch has ports, switches are stacked in layers. Each switch gives half of its ports to the layer below and half to
# the layer above, so that no layer is narrower than the one below it. Such a network is called a *Clos network*, and its layers *top of rack*,
# *leaf* and *spine*. AWS builds it twice, as two *planes*, and splits each NIC over both.

# %% tags=["hide-input"]
drawings.layers_of_network(spec)

# %% [markdown]
# ## How many chips?
#
# A switch of capacity $S$ has $r$ ports of rate $p$, its *radix*. In every layer below the top, half of these ports lead down. The top layer has
# nothing above it, so all of its ports lead down. A network of $L$ layers therefore has $E_L$ endpoints and $X_L$ switches:
#
# $$ r = \Bigl\lfloor\frac{S}{p}\Bigr\rfloor , \qquad E_L = 2\,\Bigl(\frac{r}{2}\Bigr)^{L} , \qquad X_L = (2L - 1)\,\Bigl(\frac{r}{2}\Bigr)^{L-1} . $$
#
# An endpoint is one port of a NIC. With ports half as fast, a switch has twice as many, and the network $2^L$ times the endpoints. The bandwidth between two
# halves of the network is its *bisection* $B$. If a top of rack has $d$ ports down and $u$ up, it is *oversubscribed* by $o$:
#
# $$ B = \frac{E_L\,p}{2} , \qquad o = \frac{d}{u} . $$
#
# **By hand.** The smallest switch has $12{,}800 / 100 = 128$ ports. Three layers end at $2 \times 64^3 = 524{,}288$ ports, on $5 \times 64^2 = 20{,}480$
# switches. A chip of NL72x2 has one port in each of two planes, so 524,288 chips need two such networks. With ports of 400 Gb/s three layers
# would end at $2 \times 16^3 = 8{,}192$ ports. Two chips share such a port, so these are 16,384 chips.

# %%
rows = []
for port in (100e9, 400e9):
    for layers in (2, 3):
        ask = {"switch_bits_per_s": 12.8e12, "layers": layers, **tables.attached(spec, port)}
        rows.append(tables.sized(tm.clos(**ask), tm.clos(**ask, chips=cluster_chips)))
one, coarse = (tm.clos(switch_bits_per_s=12.8e12, port_bits_per_s=p, layers=3) for p in (1e11, 4e11))
assert (one.endpoints, one.switches, coarse.endpoints) == (2 * 64**3, 5 * 64**2, 2 * 16**3)
charts.table(pd.DataFrame(rows), caption=f"Networks for {cluster_chips:,} chips", download="networks")

# %% [markdown]
# The table counts chips. Above the top of rack every link is optical, so each layer adds optical modules. A dash marks what cannot be built.
#
# ## Which traffic can leave the domain?
#
# The network has a ridge, as [memory has](chip-roofline.ipynb). A chip with peak $P_0$ that sends $b$ bytes per second does not wait for the network if
# it does at least
#
# $$ I^* = \frac{P_0}{b} $$
#
# operations per byte that it sends. Inside a domain $b$ is the rate of the scale-up links, outside it is that of the NIC.

# %%
place = "trn3-nl72x2-pcie160"
llama, deepseek = (tm.plan(m, case.request(m), systems=place).best.first for m in case.PROMISES)
work = {"tensor parallelism, Llama": tables.per_byte(llama, "tp")}
work["experts, DeepSeek"] = tables.per_byte(deepseek, "ep")
for one in senders:
    work[f"cache of a prompt, {one.id}"] = float(one.prefill_flop(4096) / one.kv_bytes(4096))
order, train = ("tp", "cp", "ep", "pp", "dp"), {"global_batch": 1152, "seq": 4096, "zero": 1}
parallel = tm.Mapping(tp=8, pp=4, dp=288, lnc=2, placement=order)
step = tm.train_step("llama-3.3-70b", place, parallel, count=16, **train)
crossing = 6 * llama.model.total_params * (1 - 1 / 16) / 144  # bytes that a chip sends
work["gradients, Llama on 16 domains"] = float(step.model_flop / step.chips) / crossing

# %% tags=["hide-input"]
peak = tables.peak_flop_per_s(spec, precision)
inside = float(tables.rates([spec]).scaleup_bytes_per_s_per_dir[0])
ridges = {"ridge inside the domain": inside, "ridge of the scale-out network": rate}
ridges = {name: float(tm.roofline.ridge_point_flop_per_byte(peak, b)) for name, b in ridges.items()}
charts.ranges(
    tables.ranked(work, ridges),
    x="flop_per_byte_sent",
    y="what",
    color="kind",
    highlight=[tables.RIDGE],
    log_x=True,
    caption=tables.may_leave(work, ridges),
    under=f"work per byte that a chip sends; ridges of {spec.name} in {precision.upper()}",
)

# %% [markdown]
# *Tensor parallelism* splits every matrix over chips and adds up their results in every layer. *Experts* receive each token in every layer. Both must
# stay inside. A cache, or the gradients of a training step, is sent once after much work.
#
# ## How long does an exchange take?
#
# An *all-reduce* adds up a message of $m$ bytes over all chips. It first adds within each domain, so that each of the $N$ chips of a domain holds a
# part. Only these parts cross the network between $c$ domains:
#
# $$ t = t_\text{inside} + 2\,\Bigl(1 - \frac{1}{c}\Bigr)\frac{m}{N\,b} . $$
#
# The larger the domain, the less each chip sends out. **By hand.** The 16 chips of a Trn2 instance share 1 GB. Between two instances each sends 62.5 MB,
# which takes 2.5 ms at its NIC's rate. Among 64 instances each chip sends nearly twice as much.

# %%
over = {}
for name in case.SYSTEMS:
    many = [tm.system(name, count=c) for c in tables.DOMAINS]
    sums = [tm.collective("all_reduce", 1e9, some, efficiencies="ideal") for some in many]
    over[name] = [float(one.time_s) for one in sums]
_, two_s, *_, most_s = over["trn2.48xlarge"]
assert abs((most_s - two_s) / (2 * (1 / 2 - 1 / 64) * 1e9 / (16 * 25e9)) - 1) < 1e-9
charts.table(tables.by_domains(over), caption="All-reduce of 1 GB, links alone", download="all-reduce")

# %% [markdown]
# In the first row there is one domain, whose trays and racks send different parts of the message at the same time. With several domains, a message
# passes one level after the other. This makes $t_\text{inside}$ longer than in the first row, but it is the same in all other rows.
#
# **What does training expose?** In *data parallel* training each domain reads other sequences, and then all of them add up their gradients. Per parameter a domain does 6 FLOP per
# token and sends 6 bytes per step: four for the gradient and two for the new weight. If the software reaches the share $\eta$ of the peak, both
# take equally long at $T^*$ tokens per domain and step. What takes longer than the work it hides behind is *exposed*:
#
# $$ T^* = \frac{\eta\,P_0}{b} , \qquad t_\text{exposed} = \max\bigl(t_\text{gradients} - o\,t_\text{work},\ 0\bigr) . $$
#
# **By hand.** On Trainium3 $T^* = 0.68 \times 671{,}000 / 25 = 18{,}000$ tokens, and large runs have hundreds of thousands. But in published
# training runs on Trainium1, public software reaches only 15% of the network's rate with its gradients, by our fit, and hides nothing ($o = 0$). The higher share at the head of this page is that
# of single large transfers, outside of training.

# %%
fewer = tm.Mapping(tp=8, pp=4, dp=72, lnc=2, placement=order)
few = tm.train_step("llama-3.3-70b", place, fewer, count=4, **train)
assert round(few.stack.matmul_share * 671e12 / 25e9, -3) == 18_000
Markdown(tables.exposed(few, step))

# %% [markdown]
# ## What leaves the case: a cache
#
# If prefill and decode run on separate chips, the cache of each prompt crosses the network. Each chip of a replica prefills its part and sends
# its part. With $c$ bytes per token and $N_a$ active parameters, prefill takes longer than sending by the factor
#
# $$ \frac{t_\text{prefill}}{t_\text{send}} \approx \frac{2\,N_a}{c}\,\frac{b}{\eta\,P_0} . $$
#
# The length of the prompt cancels. The number of chips cancels too where $\eta$ stays the same. Where more chips hardly speed up a prompt,
# $\eta$ falls and the factor rises, as for DeepSeek in the table. **By hand.** A prompt of Llama leaves $4{,}096 \times 327{,}680$ bytes, which is 1.34 GB. One chip of Trainium2 sends it in 54 ms. Prefill
# takes 1.19 s, which is 22 times as long.

# %%
rows = []
for name in case.PROMISES:
    for where in case.SYSTEMS:
        best = tm.plan(name, case.request(name), systems=where).best
        rows.append(tables.sent(best, tm.model(name).kv_bytes(4096, best.dtypes.kv)))
assert abs(rows[0]["send_s"] - 4096 * 327_680 / 25e9) < 1e-9
assert (round(rows[0]["prefill_s"], 2), round(rows[0]["prefill_over_sending"])) == (1.19, 22)
leaving = pd.DataFrame(rows)
charts.table(leaving, caption="A cache is sent far faster than prefill makes it", download="cache")

# %% [markdown]
# SemiAnalysis reports AWS's view that 200 Gb/s per Trainium3 chip is enough to hide the transfer, and here it is. [How fast does it
# serve?](serving.ipynb) asks when separate chips pay.
#
# ## Check: numbers that are not ours
#
# **Measured calls.** One source timed collectives between two instances of Trainium2, which `tm.validate` predicts.

# %% tags=["hide-input"]
judged = tables.timed(tm.validate(tables.between_instances()))

# %% tags=["hide-input"]
charts.scatter(
    judged[judged.message_bytes >= 2**16],
    x="predicted_s",
    y="measured_s",
    color="kind",
    label="call",
    caption="Large messages take about as long as predicted",
    under=f"messages of 64 KiB and more; median error of all {len(judged)} is {judged.error.abs().median():.1%}",
).properties(height=180)

# %% [markdown]
# A smaller message takes the launch of the call, which is our fit to such calls. A large one first passes the memory of each chip and then the
# network. We found that order in these rows, so the test is not blind. **Printed sizes:** all that SemiAnalysis prints agree with ours.
#
# ## What moves the answer, and what is left out
#
# Half the port rate doubles the radix, so three layers reach eight times as many endpoints. Oversubscription buys reach with bandwidth: with
# 72 ports down and 56 up, the network of the headline joins an eighth more chips. Distance adds 5 µs per
# kilometre, whatever the switch. Left out are congestion, lost packets, and prices ([What does a token cost, and who wins?](cost.ipynb)).

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# You need this network for training and for large fleets. Half the port rate lets three layers reach eight times as far. Ask of each exchange how much work stands behind a byte: tensor
# parallelism and experts stay inside the domain, gradients and caches may leave it.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How many endpoints has a network of three layers of 51.2T switches with ports of 200G?
#
# ```{admonition} Answer
# :class: dropdown
# A switch has $51{,}200 / 200 = 256$ ports, and $2 \times 128^3 = 4{,}194{,}304$.
# ```
#
# **2.** Leaf and spine switches double their capacity, and the top of rack stays. Why do four times the chips fit and not eight times?
#
# ```{admonition} Answer
# :class: dropdown
# Endpoints are the ports down of a top of rack, times those of a leaf, times the pods, which are as many as a spine has ports. Only the last two
# factors double.
# ```
#
# **3.** Two buildings are 80 km apart. How much must a chip with 200 Gb/s keep in flight?
#
# ```{admonition} Answer
# :class: dropdown
# Fibre takes 4.9 µs per kilometre, which is 0.39 ms one way. NICs and switches add 0.02 ms. An acknowledgement is back after 0.82 ms, in which the
# chip sends 20 MB.
# ```

# %% tags=["hide-input"]
one = tm.clos(switch_bits_per_s=51.2e12, port_bits_per_s=200e9, layers=3)
wider = tm.clos(switch_bits_per_s=25.6e12, tor_bits_per_s=12.8e12, layers=3, **first)
assert float(one.endpoints) == 2 * 128**3
assert float(wider.max_chips / largest.max_chips) == 4

# %% [markdown]
# ## Evidence
#
# ```{admonition} How many chips share a pair of top-of-rack switches?
# :class: dropdown
# The headline gives half of the ports of a top of rack to chips, 64 of 128, whatever the rack holds. If instead each rack of NL72x2 has its own pair,
# 72 ports go down and 56 up. Then the network joins 589,824 chips, oversubscribed by 1.29. The NICs of a rack's CPUs use the same switches. The table by
# racks has every case.
# ```
#
# ```{admonition} How fast is a chip inside its domain?
# :class: dropdown
# For NL72x2, SemiAnalysis counts 144 lanes per chip, which carry 1.15 TB/s. A map on AWS's own page has 88, which carry 704 GB/s. The book uses the
# first and lists the second as `trn3-nl72x2-aws-lanes`. The scale-out network is slower in both cases, by 46 times or by 28.
# ```
#
# ```{admonition} A printed size that needs a word more
# :class: dropdown
# SemiAnalysis says that small ports reach 8,192 GPUs where large ones reach 512. Both have NICs of 400G, and the small ports have 100G. The formula
# counts 8,192 *ports*. In one network these are 2,048 GPUs with four ports each. The printed size needs four planes, and four times the switches.
# ```

# %% tags=["hide-input"]
one, four = (
    tm.clos(switch_bits_per_s=12.8e12, nic_bits_per_s=400e9, port_bits_per_s=1e11, layers=2, planes=n) for n in (1, 4)
)
assert (one.max_chips, four.max_chips, four.switches / one.switches) == (2048, 8192, 4)
neighbours = [*case.SYSTEMS, "trn1.32xlarge", "trn3-nl72x2-aws-lanes", "gb200-nvl72", "hgx-h100", "tpu-v7-pod"]
speeds = tables.rates(dict.fromkeys([spec.id, *neighbours]))
charts.table(speeds, caption="Rates of a chip, one way", download="rates", file_only=True)

# %% tags=["hide-input"]
pairs = tables.by_rack([spec.id, *case.SYSTEMS])
charts.table(pairs, caption="Reach by the chips that share a pair of switches", download="by-rack", file_only=True)

# %% tags=["hide-input"]
charts.table(tables.ways(spec), caption="Latency and bytes in flight, by distance", download="ways", file_only=True)

# %% tags=["hide-input"]
charts.table(tables.late(leaving), caption="A cache that leaves layer by layer", download="late", file_only=True)

# %% tags=["hide-input"]
sizes_printed, shares = printed.printed_sizes(), printed.measured_share()
assert (sizes_printed.verdict == "agrees").all()
charts.table(sizes_printed, caption="Printed sizes and ours", download="printed-sizes", file_only=True)

# %% tags=["hide-input"]
charts.table(shares, caption="What EFA moved, and its printed rate", download="measured", file_only=True)

# %% tags=["hide-input"]
charts.table(judged, caption="Calls between two instances, measured and predicted", download="calls", file_only=True)

# %% tags=["hide-input"]
charts.table(tables.left_out(), caption="Errors of calls, each run left out", download="left-out", file_only=True)

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
entities = {spec.id, "aws-scaleout", "smf-fibre", "efa-v3"} | set(used.entity[used.quantity == "reach_m"])
used = used[used.entity.isin(entities)]
sources = common.bibliography([*used.source, *sizes_printed.source])
charts.table(sources, caption="Sources of the figures in this chapter", download="sources")
