# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   trnmodel:
#     order: 8
#     part: Understand
# ---

# %% [markdown]
# # What is in a rack?

# %% tags=["parameters"]
system: str = "trn3-nl72x2-pcie160"
compared_system: str = "trn2-ultraserver"

# %% tags=["hide-input"]
from IPython.display import Markdown

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.chapters import rack as tables
from trnbook.charts import language
from trnbook.shared import fabrics as compare
from trnbook.shared import ledger, rack_drawing
from trnmodel.fabric import what_if as audit
from trnmodel.units import GB

spec, other = tm.system(system), tm.system(compared_system)
guard.links(system=spec, compared_system=other)
net = tm.topology(spec)
switches = sum(net.switch_counts.values())
TORUS = ["trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "trn3-nl16-torus", "trn3-nl32x2-torus"]
NL32 = [f"trn3-nl32x2-{tray}" for tray in ("pcie160", "pcie320", "ualink")]
NL72 = [f"trn3-nl72x2-{tray}" for tray in ("pcie160", "pex90144", "pcie320", "ualink")]
mapped = [tm.topology(it) for it in compare.lane_maps(spec)]

# %% tags=["hide-input"]
also = [f", by AWS's own lane map {sum(it.switch_counts.values())} (our estimate, D)" for it in mapped]
sends = [f"; by AWS's own lane map {tables.by_medium(it)}" for it in mapped]
Markdown(
    common.card(
        spec.domain_chips,
        f"in {spec.name}, with {f'{switches:,} switches' if switches else 'no switch'}{''.join(also)} and "
        f"{tm.units.counted(net.graph.number_of_edges(), 'link')}, all counted on its graph",
        unit="chips" if spec.domain_chips > 1 else "chip",
        mark="ideal",
        rival=f"{other.name} with {tm.units.counted(other.domain_chips, 'chip')}",
        proof="Check: counts that are not ours",
        more=(
            f"Each chip sends one way into the scale-up fabric {tables.by_medium(net)}{''.join(sends)}.\n\n"
            if net.graph.number_of_edges()
            else "It has no scale-up fabric.\n\n"
        )
        + ledger.rests_on(
            *(
                name
                for it in mapped
                for name in ledger.estimated(it.system, "pcb_switches_per_tray", "switches_per_plane")
            )
        ),
    )
)

# %% [markdown]
# ## Notation

# %% tags=["hide-input"]
charts.table(
    common.notation(common.of_fabric(spec)),
    caption=f"What this chapter calls things, for {spec.id}; confidence D is our own estimate",
    download="notation",
)

# %% [markdown]
# A **switch plane** is a set of rack switches that reaches only the chips of one place on their trays. **Lanes** are PCIe
# lanes, **links** are bundles of lanes (x8, x16), and a rate is always one way.
#
# ## The model
#
# A rack is a graph of chips and switches. An edge carries $n$ active lanes of rate $r$; redundant lanes idle.
#
# $$b_{chip} = \sum_{media} n_{medium}\, r .$$
#
# **By hand.** A Trainium3 chip of a switched rack has 64 lanes on its board, 64 on the backplane and 16 to the other rack:
# 144 lanes of PCIe Gen6 at 8 GB/s are 1,152 GB/s one way, which the deep dive prints as 1.2 TB/s.
#
# **Two lane maps.** AWS's own page of the same rack prints four, five and two links of Gen6 x8 instead: 32, 40 and 16 lanes, 256 +
# 320 + 128 = 704 GB/s. The two texts are not reconciled. This book counts with the deep dive, which alone tells lanes by medium and
# which of them are spare, and gives both wherever the answer moves; how many switches carry AWS's lanes is our estimate (D).

# %%
counted = [tm.topology(it).injection_bytes_per_s_per_dir / GB for it in ("trn3-nl72x2-pcie160", common.LANE_MAP)]
assert counted == [144 * 8, 88 * 8]
" and ".join(f"{rate:,.0f} GB/s" for rate in counted)

# %% [markdown]
# ## The rack, link by link
#
# Point at a chip or a switch to see its links. Where a printed count disagrees with the graph, the check below says which holds: a
# rack of NL72x2 has 18 trays of four chips, 72; the 64 that the text once gives it are the chips of both racks of NL32x2.

# %%
nodes, links = rack_drawing.drawing(spec)
charts.topology(
    nodes,
    links,
    caption=f"{tm.units.counted(spec.domain_chips, 'chip')}, {f'{switches} switches' if switches else 'no switch'}, and every link",
    under=spec.name,
)

# %%
composition = audit.parts_table(spec)[["part", "counted", "how", "printed", "verdict"]]
charts.table(composition, caption=f"Parts of {spec.name}, counted on the graph", download="parts")

# %% [markdown]
# ## Torus and switched, drawn

# %%
other_nodes, other_links = rack_drawing.drawing(other)
charts.topology(
    other_nodes,
    other_links,
    caption=f"{tm.units.counted(other.domain_chips, 'chip')}, and every link",
    under=other.name,
)

# %%
small_nodes, small_links = rack_drawing.drawing("trn3-nl32x2-pcie160")
charts.topology(
    small_nodes, small_links, caption="Two chips a tray on two planes", under="NL32x2 with 160-lane switches"
)

# %% [markdown]
# ## All systems side by side

# %%
everyone = tables.fabrics(dict.fromkeys([*TORUS, *NL32, *NL72, common.LANE_MAP]))
charts.table(everyone, caption="Fabrics: parts, hops between chips, rates one way", download="fabrics")

# %%
kinds = everyone.system.map(language.called).str.extract(r"Trainium3 (?P<rack>NL\d+x2) (?P<tray>.+)")
kinds["estimate"] = everyone.system == common.LANE_MAP
charts.bars(
    everyone.assign(**kinds)[everyone.switches > 0],
    x="tray",
    y="switches",
    color="rack",
    caption="Larger switches thin out the trays",
    under="most switches of NL72x2 sit on its boards; AWS's lanes take fewer (our estimate, D)",
)

# %% [markdown]
# ## One thing, many names
#
# AWS, its supply chain and its runtime name the same rack differently.

# %%
charts.table(tables.names(), caption="What each system is called, and by whom", download="names")

# %% tags=["hide-output"]
known = tm.names_table()
charts.table(
    known[known.id.str.startswith(("trn", "inf"))],
    caption="Every name with its source",
    download="all-names",
    file_only=True,
)

# %% [markdown]
# ## What fails, and what it costs

# %%
left = audit.shares_left(spec)
charts.table(left, caption=f"Share left of each capacity of {spec.name}", download="failures") if len(
    left
) else Markdown(f"{spec.name} has no link to lose.")

# %%
small, large = tm.system(NL32[0]), tm.system(NL72[0])
fifth = audit.alternatives(small)["fifth-switch-tray"]
lost = audit.lost([it for it in (large, tm.system(common.LANE_MAP), small, fifth) if it.id != spec.id])
if spec.fabric == "planes":
    lost.insert(1, spec.id, lost.failure.map(left.set_index("failure").rack_all_to_all))
charts.table(lost, caption="Share left of the all-to-all of a rack; a fifth tray takes over in NL32x2", download="lost")

# %% tags=["hide-input"]
pulled = lost.set_index("failure").loc["one switch tray"]
retimers = {it.id: audit.parts(it)["retimers"][0] for it in (large, small)}
Markdown(
    f"**A switch tray pulled** leaves a rack of {large.name} {pulled[large.id]:.0%} of its all-to-all: its trays hold spare switches. "
    f"{small.name} has {small.switch_trays_per_rack:g} trays, and its {small.scaleup_lanes_redundant:g} redundant lanes a chip end at none: {pulled[small.id]:.0%}. "
    f"The text says that there are designs with five, for hot swap; these would keep {pulled[fifth.id]:.0%}. By AWS's own lane map, "
    f"which names no spare lane, a rack of NL72x2 keeps {pulled[common.LANE_MAP]:.0%}. Retimers fail too and are not in the tables: "
    f"{retimers[large.id]:g} in {large.name}, {retimers[small.id]:g} in {small.name}."
)

# %% [markdown]
# ## Check: counts that are not ours
#
# The deep dive prints parts; the graph counts them.

# %%
checked = tables.verdicts([*TORUS[1:], *NL32, *NL72])
shown = ["system", "part", "counted", "printed", "verdict", "locator"]
charts.table(checked[shown], caption="Printed parts against counted", download="verdicts")

# %%
paths = audit.hops_table(spec)
shown = ["part", "counted", "printed", "verdict", "locator", "how"]
charts.table(paths[shown], caption=f"Switches and forwarding chips on paths of {spec.id}", download="paths")

# %% tags=["hide-input"]
own = checked[checked.verdict.isin(["agrees", "disagrees"])]
apart = own[own.verdict == "disagrees"].drop_duplicates(["part", "printed"])
Markdown(
    f"{len(own)} printed counts, of which {(checked.verdict == 'agrees').sum()} agree. The text is at odds with itself on: "
    + "; ".join(
        f"{row.part} ({row.printed} printed, {f'{row.counted:.0%}' if '%' in row.printed else f'{row.counted:g}'} counted: {row.how})"
        for row in apart.itertuples()
    )
    + "."
)

# %% [markdown]
# **Statement against statement.** Each disagreement of a text with itself or with another, with its arithmetic:

# %%
charts.table(ledger.contradictions(), caption="Texts against themselves and each other", download="contradictions")

# %% [markdown]
# ## What moves the answer
#
# Where the text is silent, an assumption stands in `data/` with its alternatives:

# %%
other_readings = audit.readings(spec)
charts.table(other_readings, caption="Other readings of the text, and what they change", download="assumptions") if len(
    other_readings
) else Markdown(f"No text about {spec.name} is silent on its fabric.")

# %% [markdown]
# ## What is left out
#
# Power and its shelves, dimensions beyond the count of racks, the front-end network. What the fabric is worth to a
# collective is chapter 5, what the trays are worth chapter 6.

# %% [markdown]
# ```{admonition} Takeaway
# :class: tip
# Count a rack from its lanes: 144 active lanes a chip (88 by AWS's page) explain the bandwidth, the cables and the switches of every tray.
# ```

# %% [markdown]
# ## Problems
#
# **1.** How many 160-lane switches would one plane of NL72x2 need if no lane were redundant?
#
# ```{admonition} Answer
# :class: dropdown
# 18 chips of one position bring 64 backplane lanes each: 18 x 64 / 144 lanes in use (18 ports of x8) = 8.
# ```
#
# **2.** Why does the PEX90144 not fit twenty x8 ports?
#
# ```{admonition} Answer
# :class: dropdown
# 144 lanes at x8 are 18 ports, exactly the 18 chips of a plane; nothing is spare.
# ```
#
# **3.** What share of a chip's scale-up bandwidth crosses to the other rack?
#
# ```{admonition} Answer
# :class: dropdown
# 16 of 144 active lanes: 11 %; by AWS's lane map 16 of 88: 18 %.
# ```

# %% [markdown]
# ## Sources

# %% tags=["hide-input"]
used = tm.facts()
used = used[
    used.entity.isin([spec.id, spec.chip.id, "trn3-switched", "jbog-rack", *TORUS, *NL32, *NL72, common.LANE_MAP])
]
charts.table(common.bibliography(used.source), caption="Sources of the figures in this chapter", download="sources")
