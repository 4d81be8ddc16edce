"""Racks: the answer in one card, fabrics in a row, distances, names, and parts as counted and as printed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from trnbook import charts
from trnbook.chapters import common
from trnbook.drawings import racks as drawings_of
from trnbook.drawings import svg
from trnbook.drawings.svg import Drawing
from trnbook.shared import case, ledger, rack_drawing
from trnbook.shared.fabrics import lane_maps
from trnbook.shared.rack_power import RackPower
from trnmodel.arguments import listed
from trnmodel.catalog import load
from trnmodel.catalog.systems import System, systems
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric import what_if
from trnmodel.fabric.collectives import Collective
from trnmodel.fabric.graph import Topology, topology
from trnmodel.power.energy import Energy
from trnmodel.search.choice import Choice
from trnmodel.units import TB, counted, format_quantity

if TYPE_CHECKING:
    from altair import LayerChart

PRINTED = [  # systems with parts that a source prints
    *("trn2.48xlarge", "trn2-ultraserver", "trn3-nl16-torus", "trn3-nl32x2-torus"),
    *(f"trn3-nl32x2-{tray}" for tray in ("pcie160", "pcie320", "ualink")),
    *(f"trn3-nl72x2-{tray}" for tray in ("pcie160", "pex90144", "pcie320", "ualink")),
]
MOST_PARTS = 7  # rows of a table that a reader sees
WHOLE = ("chips", "compute trays", "host CPUs", "retimers", "copper cables", "AEC links", "switches")  # of a system
FIRST = ("chips per rack", "host CPUs", "switches per rack", "rack switches per rack", "board switches per rack")


def per_rack(spec: System) -> tuple[int, str]:
    """Return the chips of a rack, or of a system that fills none or whose racks no source counts, and where they are.

    Examples
    --------
    >>> per_rack(find_system("trn3-nl72x2-pcie160")), per_rack(find_system("trn1.32xlarge"))
    ((72, 'a rack of'), (16, ''))
    """
    racks = spec.racks if spec.racks >= 1 else 1.0
    return int(spec.domain_chips / racks), "a rack of" if spec.racks >= 1 else ""


def answer(
    net: Topology,
    other: Topology,
    far: Collective | None,
    watts: Energy | None = None,
    budget: RackPower | None = None,
) -> str:
    """Return the card that opens the chapter: what a chip can send, how far, in how large a rack, and how sure that is.

    Parameters
    ----------
    net, other : Topology
        The fabric of the chapter's system, and of one to compare. [-]
    far : Collective, optional
        An all-to-all over the whole system that moves no bytes; none where no latency of a hop is published. [-]
    watts : Energy, optional
        Any step on the system, for the power that is provisioned for a chip. [-]
    budget : RackPower, optional
        Parts of the power of a rack, where a source counts its racks. [-]

    Examples
    --------
    >>> from trnmodel.fabric.collectives import collective
    >>> empty = collective("all_to_all", 0, "trn2.48xlarge", in_graph=True)
    >>> print(answer(topology("trn2.48xlarge"), topology("trn2-ultraserver"), empty).splitlines()[0])
    > **512 GB/s per chip**: what each of the 16 chips in trn2.48xlarge can send to the others.
    """
    spec, (chips, where) = net.system, per_rack(net.system)
    groups = round(spec.domain_chips / chips)
    switches, links = sum(net.switch_counts.values()) / groups, len(net.graph.edges) / groups
    joined = counted(switches, "switch") if switches else f"{counted(round(links), 'link')} and no switch"
    here = "A rack" if where else "The system"
    sent, rival_sends = (format_quantity(one.injection_bytes_per_s_per_dir, "B/s", 3) for one in (net, other))
    lines = [f"{here} joins its chips by {joined}."]
    if far is not None:
        reached = format_quantity(float(far.time_s), "s", 3)
        lines.append(f"An empty message reaches the farthest chip of the system after {reached}.")
    if watts is not None and math.isfinite(float(watts.all_in_w)):
        kw = format_quantity(chips * float(watts.all_in_w), "W", 2)
        cooled = f", cooled by {net.system.cooling}" if net.system.cooling in ("air", "liquid") else ""
        lines.append(f"{here} is provisioned for about {kw}{cooled}, as [{POWER}](power.ipynb) estimates.")
        if budget is not None and math.isfinite(float(budget.counted_w)):
            parts = format_quantity(float(budget.counted_w), "W", 2)
            low, high = (format_quantity(float(end), "W", 2).partition(" ")[0] for end in budget.ends("counted_w"))
            lines.append(
                f"The parts that a source counts need {parts} ({low} to {high}) of this at their limits. "
                "The rest is for storage, the network beyond the rack and reserve, whose watts no source names."
            )
    lines.append(
        "\n\n**How sure?** We count on a graph of every chip, switch and link. "
        "The check below tests little more than that our graph adds up."
    )
    slowest = min([net, *map(topology, lane_maps(spec))], key=lambda one: one.injection_bytes_per_s_per_dir)
    between = " to ".join(f"{one.injection_bytes_per_s_per_dir / TB:.2f}" for one in (slowest, net))
    for name in (maps := lane_maps(spec)):
        mapped = topology(name)
        least = format_quantity(mapped.injection_bytes_per_s_per_dir, "B/s", 3)
        needed = sum(mapped.switch_counts.values()) / groups
        lines.append(
            f"AWS's own page prints fewer lanes for this rack. With them a chip sends only {least}"
            f"{_near(mapped, '')}, and the rack needs "
            f"{needed:g} switches (our own estimate)."
        )
    return common.card(
        f"{sent} per chip" + f" ({between})" * (slowest is not net),
        f"what each of the {counted(chips, 'chip')} in {where} {spec.name} can send{_near(net)}".replace("  ", " "),
        mark="",
        rank="Compared with",
        rival=f"{rival_sends} for each chip of {other.system.name}{_near(other, '')}",
        proof="Check: our graph against printed counts",
        more=" ".join(lines)
        + "\n\n"
        + ledger.rests_on(
            *(fact for name in maps for fact in ledger.estimated(find_system(name), *_OF_SWITCHES)),
        ),
    )


def _near(net: Topology, everything: str = " to the others") -> str:
    """Return what of a chip's bytes per second stays within its rack or instance, where cables lead out of it."""
    links = [(one["medium"], one["bytes_per_s_per_dir"]) for *_, one in net.graph.edges(net.chips[0], data=True)]
    out = sum(rate for medium, rate in links if medium in _LEADS_OUT)
    if not out:
        return everything
    (where,) = {_LEADS_OUT[medium] for medium, _ in links if medium in _LEADS_OUT}
    return f", {format_quantity(net.injection_bytes_per_s_per_dir - out, 'B/s', 3)} of it within its {where}"


_LEADS_OUT = {"cross-rack": "rack", "aec": "instance"}  # cables, and what they lead out of
POWER = "How many watts per chip, and how many joules per token?"  # the chapter of that title
_OF_SWITCHES = ("pcb_switches_per_tray", "switches_per_plane")


def front(spec: System) -> Drawing | LayerChart:
    """Return the front of the racks of a system, or its torus; the chart of its links where neither is known.

    Examples
    --------
    >>> front(find_system("trn1.32xlarge")).id
    'torus-trn1-32xlarge'
    """
    if not math.isnan(spec.compute_trays_per_rack * spec.chips_per_tray):
        return drawings_of.rack_front(spec)
    grid = spec.fabric == "torus" and len(spec.torus_shape) > 1
    return drawings_of.torus(spec) if grid else link_by_link(spec)


def some_paths(spec: System) -> Drawing | Markdown:
    """Return the drawing of the paths of a message between chips of a rack with switches, a frame for each.

    Examples
    --------
    >>> list(some_paths(find_system("trn3-nl72x2-pcie160")).frames)
    ['path A', 'path B', 'path C']
    """
    net = topology(spec)
    routes = what_if.paths(net)
    if not routes:
        return Markdown("Each link of this system joins two neighbours.")
    stops = {name: [_stop(net, node) for node in nodes] for name, nodes in routes.items()}
    said = [f"path {name}: {' to '.join(f'{stop} ({at})' for stop, at, _ in path)}" for name, path in stops.items()]
    return Drawing(
        "rack-paths",
        "A message changes planes on a tray",
        _STOP_HIGH + 24,
        [],
        {f"path {name}": _chain(path) for name, path in stops.items()},
        note=f"SemiAnalysis describes them in {spec.name}. A colour is a plane, and a dashed box is a board switch.",
        alt="; ".join(said) + ".",
    )


_STOP_HIGH, _STOP_GAP = 78.0, 26.0  # of a box of that drawing, and between two of them
_PLANES: tuple[svg.Accent, ...] = ("b", "a", "c", "d", "e")


def _stop(net: Topology, node: str) -> tuple[str, str, svg.Accent]:
    """Return what a node of a path is, where it stands, and the colour of its plane."""
    data = net.graph.nodes[node]
    tray = f"tray {data['tray'] + 1}"
    if data["kind"] == "chip":
        plane = f"plane {data['plane'] + 1}"
        where = f"{tray}, {plane}" if data["rack"] == 0 else f"second rack, {plane}"
        return f"chip {data['position']}", where, _PLANES[data["plane"] % len(_PLANES)]
    if data.get("medium") == "pcb":
        return "board switch", tray, ""
    return "rack switch", f"plane {data['plane'] + 1}", _PLANES[data["plane"] % len(_PLANES)]


def _chain(path: list[tuple[str, str, svg.Accent]]) -> list[str]:
    """Return the stops of a path as boxes from left to right, with arrows between them."""
    wide = min((svg.WIDTH - 4 - _STOP_GAP * (len(path) - 1)) / len(path), 150.0)
    left = (svg.WIDTH - len(path) * wide - (len(path) - 1) * _STOP_GAP) / 2
    marks = []
    for place, (what, where, accent) in enumerate(path):
        x = left + place * (wide + _STOP_GAP)
        box = svg.rect(x, 12, wide, _STOP_HIGH, accent=accent)
        marks.append(box if accent else box.replace("<rect", '<rect stroke-dasharray="4 3"'))
        marks.append(svg.text(x + wide / 2, 42, what, bold=True))
        marks += [svg.text(x + wide / 2, 60 + 17 * row, word) for row, word in enumerate(where.split(", "))]
        if place:
            marks.append(svg.arrow(x - _STOP_GAP, 12 + _STOP_HIGH / 2, x - 1, 12 + _STOP_HIGH / 2))
    return marks


def family(spec: System) -> list[str]:
    """Return systems of all generations to compare, and the chapter's where it is built of NeuronCores.

    Examples
    --------
    >>> family(find_system("trn3-nl72x2-ualink"))[-1], len(family(find_system("gb200-nvl72")))
    ('trn3-nl72x2-ualink', 7)
    """
    tori = ["trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "trn3-nl32x2-torus"]
    mine = [spec.id] if spec.chip.core is not None else []
    return list(dict.fromkeys([*tori, "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", common.LANE_MAP, *mine]))


def fabric(net: Topology, empty: Collective) -> dict:
    """Return a row that describes a fabric, with the time of an all-to-all over all its chips that moves no bytes.

    Examples
    --------
    >>> from trnmodel.fabric.collectives import collective
    >>> empty = collective("all_to_all", 0, "trn2.48xlarge", algorithm="direct", in_graph=True)
    >>> row = fabric(topology("trn2.48xlarge"), empty)
    >>> row["chips"], row["most_links"], round(row["mean_links"], 2), round(row["latency_s"] * 1e6, 9)
    (16, 4, 2.13, 6.0)
    """
    return {
        "system": net.system.id,
        "chips": len(net.chips),
        "switches": sum(net.switch_counts.values()),
        "mean_links": net.mean_hops,
        "most_links": net.diameter,
        "latency_s": float(empty.time_s),
        "injection_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
        "all_to_all_bytes_per_s": net.all_to_all_bytes_per_s_per_pair() * (len(net.chips) - 1),
    }


def parts(spec: System) -> pd.DataFrame:
    """Return parts of a system as counted and as printed, those that a source prints first, a few at most.

    A count is that of one rack or one chip where its name says so; others are of the whole system.

    Examples
    --------
    >>> parts(find_system("trn3-nl72x2-pcie160")).set_index("part").verdict["switches per rack"]
    'agrees'
    """
    table = what_if.parts_table(spec)[["part", "counted", "printed", "verdict", "how"]]
    both = spec.racks == 2
    order = table.part.map({part: place for place, part in enumerate(FIRST)}).fillna(len(FIRST))
    silent = table.verdict == "not printed"
    part = table.part.where(~table.part.isin(WHOLE) | (not both), table.part + ", both racks")
    return table.assign(part=part, silent=silent, order=order).sort_values(
        ["silent", "order"], kind="stable", ignore_index=True
    )[list(table.columns)][:MOST_PARTS]


def names() -> pd.DataFrame:
    """Return one row per Trainium and Inferentia system: its names at AWS, by topology, as codename, as instance.

    Examples
    --------
    >>> names().set_index("system").codename["trn3-nl72x2-pcie160"]
    'Teton3 MAX'
    """
    known = load.names_table()
    known = known[known.id.isin(systems()) & known.id.str.startswith(("trn", "inf"))]
    wide = known.groupby(["id", "kind"], sort=False).alias.agg("; ".join).unstack(fill_value="")
    wide = wide.rename(columns={"aws": "AWS", "nl": "by topology"}).reset_index(names="system")
    wide = wide.sort_values("AWS", key=lambda names: names == "", kind="stable", ignore_index=True)
    return wide[["system", "AWS", "by topology", "codename", "instance"]].rename_axis(columns=None)


def verdicts(systems: Iterable[str | System]) -> pd.DataFrame:
    """Compare every printed count of parts with the count on the graph, over several systems.

    Examples
    --------
    >>> set(verdicts(["trn3-nl72x2-pcie160"]).verdict) <= {"agrees", "disagrees"}
    True
    """
    tables = [what_if.parts_table(name).assign(system=find_system(name).id) for name in listed("systems", systems)]
    table = pd.concat(tables, ignore_index=True)
    shown = ["system", "part", "counted", "how", "printed", "verdict", "locator", "note"]
    printed = table[table.verdict != "not printed"][shown]
    return printed.drop_duplicates(["part", "counted", "printed", "locator"], ignore_index=True)


LINE = next(one for one in case.LINES if one.chapter == "rack")  # of the running case


def replicas(plans: Mapping[tuple[str, str], Choice]) -> Drawing:
    """Return the drawing of the chips that one replica takes of each system: a frame for each model.

    Parameters
    ----------
    plans : mapping of (str, str) to Choice
        Plans by model and system. [-]

    Returns
    -------
    drawing : Drawing
        The chips of each system, those of a replica highlighted. [-]

    Examples
    --------
    >>> drawing = replicas({("llama-3.3-70b", "trn2.48xlarge"): case.choice("llama-3.3-70b", "trn2.48xlarge")})
    >>> list(drawing.frames), drawing.alt
    (['llama-3.3-70b'], 'llama-3.3-70b takes 1 of 16 chips of trn2.48xlarge.')
    """
    names = list(dict.fromkeys(name for _, name in plans))
    wide = svg.WIDTH / len(names)
    marks, frames, said = list[str](), dict[str, list[str]](), list[str]()
    for place, name in enumerate(names):
        net = topology(name)
        boxes = _chips(net, place * wide, wide)
        marks += [svg.text((place + 0.5) * wide, 16, net.system.name, size=15, bold=True)]
        marks += [svg.rect(*box, radius=1.5) for box in boxes]
        for model in dict.fromkeys(model for model, _ in plans):
            taken = int(plans[model, name].chips)
            lit = [svg.rect(*box, accent="a", radius=1.5) for box in boxes[:taken]]
            label = f"{taken} of {counted(len(boxes), 'chip')}"
            lit.append(svg.text((place + 0.5) * wide, _HIGH - 12, label, size=17))
            frames.setdefault(model, []).extend(lit)
            said.append(f"{model} takes {label} of {net.system.name}")
    return Drawing(
        "replicas",
        "No replica of the case reaches into a second rack",
        _HIGH,
        marks,
        frames,
        note="Each square is a chip, each block is a rack or an instance, and orange chips serve one replica.",
        alt="; ".join(said) + ".",
    )


_HIGH, _TALL = 222.0, 152.0  # of that drawing, and of a rack in it


def _chips(net: Topology, x: float, width: float) -> list[tuple[float, float, float, float]]:
    """Return the boxes of the chips of a system in the order in which ranks fill it, a rack beside the other."""
    nodes = net.graph.nodes
    places: dict[int, list[str]] = {}
    for chip in drawings_of.ordered(net):
        places.setdefault(nodes[chip]["rack"], []).append(chip)
    first = places[0]
    columns = int(net.system.chips_per_tray) if net.system.fabric == "planes" else math.ceil(math.sqrt(len(first)))
    rows = math.ceil(len(first) / columns)
    step = min(_TALL / rows, 30.0)
    across = min(step * 2, 26.0) if rows > columns else step
    span = columns * across + 16
    left = x + (width - len(places) * span + 16) / 2
    return [
        (left + rack * span + n % columns * across, 32 + n // columns * step, across - 2.5, step - 2.5)
        for rack, chips in places.items()
        for n in range(len(chips))
    ]


def link_by_link(spec: System) -> LayerChart:
    """Return the chart of every chip, switch and link of a system, with paths to choose where sources name some."""
    nodes, links = rack_drawing.drawing(spec)
    return charts.topology(
        nodes,
        links,
        labels=rack_drawing.labels(spec),
        paths=rack_drawing.paths_drawn(spec),
        caption="Every lane ends at a neighbour or a switch",
        under=spec.name,
    )


def evidence(spec: System) -> dict[str, tuple[str, pd.DataFrame]]:
    """Return the tables behind the chapter by what they show, each with the name of its file.

    Examples
    --------
    >>> [name for name, _ in evidence(find_system("trn1.32xlarge")).values()][:2]
    ['names', 'all-names']
    """
    known = load.names_table()
    mine = dict.fromkeys([spec.id, *(name for name in family(spec) if find_system(name).fabric == "planes")])
    tables = {
        "What each system is called, and by whom": ("names", names()),
        "Every name with its source": ("all-names", known[known.id.str.startswith(("trn", "inf"))]),
        "Every printed count of parts, and ours": ("verdicts", verdicts(PRINTED)),
        f"Switches and forwarding chips on paths of {spec.name}": ("paths", what_if.hops_table(spec)),
        "Sources against themselves and each other": ("contradictions", ledger.contradictions()),
        f"Other readings of what sources leave open about {spec.name}": ("assumptions", what_if.readings(spec)),
        f"Share of each capacity of {spec.name} that one failure leaves": ("failures", what_if.shares_left(spec)),
        "Share of a rack's all-to-all that one failure leaves": ("lost", what_if.lost(mine)),
        f"Lanes and latencies of {spec.name}": ("notation", common.notation(common.of_fabric(spec))),
    }
    return {what: (name, rows) for what, (name, rows) in tables.items() if len(rows)}
