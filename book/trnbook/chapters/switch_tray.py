"""Switch trays: racks that differ only in the tray, their planes and paths, and drawings of lanes and planes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd

from trnbook.chapters import guard
from trnbook.drawings import svg
from trnbook.shared.fabrics import by_lanes, nets
from trnmodel.arguments import listed
from trnmodel.catalog import systems
from trnmodel.catalog.systems import System
from trnmodel.fabric import what_if
from trnmodel.models import synthetic
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.units import GB, counted

if TYPE_CHECKING:
    from trnmodel.fabric.graph import Topology

LARGE, SMALL = "trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160"
TIERS = {"pcb": "chips of its tray", "backplane": "switch trays of its rack", "cross-rack": "the other rack"}
TIER_ACCENTS: dict[str, svg.Accent] = {"pcb": "c", "backplane": "b", "cross-rack": "a"}
PLANE_ACCENTS: tuple[svg.Accent, ...] = ("b", "a", "c", "d", "e")
VERDICTS = ["agrees", "earlier", "later", "no rate"]
SOFTWARE = {"ideal": "ideal, exchanges hidden", "exposed": "ideal, exchanges not hidden", "default": "public"}
NUMERALS = ("no plane", "one plane", "two planes", "three planes", "four planes")


def grown(params: float, base: Transformer) -> Transformer:
    """Return a model of so many parameters that does not exist: depth, width and experts of another grow together."""
    return synthetic.synthetic(params, "together", base.id)


def rules_of_growth() -> list[str]:
    """Return the names of the rules by which a model is grown."""
    return list(synthetic.growth())


def check(
    model: Transformer,
    base: Transformer,
    *,
    tokens_per_chip: float,
    context: float,
    pays_at: float,
    tokens_per_s_per_user: float,
) -> None:
    """Refuse parameters of the chapter that it cannot answer, each by its name."""
    guard.generates(model=model)
    guard.routes(model=model)
    guard.one_of(synthetic.bases(), grown_from=base.id)
    guard.need(base is read_model(base.id), f"grown_from = {base.id!r} is a file; only shipped models grow")
    guard.within(1 / 32, 1e5, tokens_per_chip=tokens_per_chip)
    guard.within(1, model.max_context, context=context)
    guard.within(1e-3, 1e6, tokens_per_s_per_user=tokens_per_s_per_user)
    guard.within(1, 1e6, pays_at=pays_at)


def trays(system: str | System) -> list[str]:
    """Return systems that differ only in the switch tray, of as many chips; for a torus, those of NL32x2.

    Where sources print several lane maps it is the one that has most trays.

    Examples
    --------
    >>> trays("trn3-nl32x2-ualink")
    ['trn3-nl32x2-pcie160', 'trn3-nl32x2-pcie320', 'trn3-nl32x2-ualink']
    """
    groups = by_lanes(system)
    return groups[0] if groups and len(groups[0]) > 1 else by_lanes(SMALL)[0]


def label(system: str | System) -> str:
    """Return what charts call a rack and its switch; the lane map of AWS's page is named too.

    Examples
    --------
    >>> label("trn3-nl72x2-pcie320"), label("trn3-nl72x2-aws-lanes"), label("trn3-nl32x2-ualink")
    ('NL72x2, PCIe 320', 'NL72x2, AWS lanes', 'NL32x2, UALink')
    """
    spec = systems.system(system)
    rack, _, switch = spec.name.removeprefix("Trainium3 ").partition(" ")
    return f"{rack}, {switch.replace('Switched', 'PCIe 160')}"


def with_hop(system: str | System, hop_s: float) -> System:
    """Return the system with another latency of a hop, in seconds; 0 for chips that forward for free.

    Examples
    --------
    >>> with_hop("trn3-nl32x2-pcie160", 0.0).chip.hop_s
    0.0
    """
    spec = systems.system(system)
    return replace(spec, chip=replace(spec.chip, hop_s=hop_s))


def counts(judged: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts of `domain_sizes.verdicts` by software, with a last row for all of them.

    Examples
    --------
    >>> judged = pd.DataFrame({"software": "ideal", "verdict": ["agrees", "later", "no rate", "later"]})
    >>> counts(judged).values.tolist()
    [['ideal, exchanges hidden', 1, 0, 2, 1, 4], ['all', 1, 0, 2, 1, 4]]
    """
    table = pd.crosstab(judged.software, judged.verdict).reindex(columns=VERDICTS, fill_value=0)
    table = table.loc[judged.software.unique()]
    table.loc["all"] = table.sum()
    table = table.rename(index=SOFTWARE)
    return table.assign(cases=table.sum(axis=1)).rename_axis("software", axis=0).reset_index()


def claim(counted: pd.DataFrame) -> str:
    """Return in sentences in how many cases SemiAnalysis's claim about both racks holds, from a table of `counts`.

    Examples
    --------
    >>> judged = pd.DataFrame({"software": "ideal", "verdict": ["agrees", "later", "no rate", "earlier"]})
    >>> claim(counts(judged)).partition(".")[0]
    'We can decide 3 cases, and the claim holds in 1 of them'
    """
    agrees, earlier, later, open_cases, cases = (int(counted.iloc[-1][name]) for name in (*VERDICTS, "cases"))
    return (
        f"We can decide {cases - open_cases} cases, and the claim holds in {agrees} of them. In {earlier} cases the "
        "larger rack already pays at 3 trillion parameters or fewer. "
        f"In {later} cases it does not yet pay at 4 trillion parameters, or at a larger size."
    )


def plane_table(names: Iterable[str | System]) -> pd.DataFrame:
    """Return planes, switches and ports of one rack, and the share of its chip pairs in one plane, by tray.

    Examples
    --------
    >>> plane_table(["trn3-nl72x2-pcie160"])[["ports", "planes", "rack_switches", "ports_used"]].values.tolist()
    [[20, 4, 40, 18]]
    """
    rows = []
    for net in nets(names):
        spec, nodes = net.system, dict(net.graph.nodes(data=True))
        assert spec.switch is not None  # a fabric of planes names its switch
        rack = [node for node, data in nodes.items() if data.get("medium") == "backplane" and data["rack"] == 0]
        lanes, pairs = spec.switch.switch_lanes, net.hop_histogram("intermediate", "rack")
        rows.append(
            {
                "tray": label(spec),
                "ports": int(lanes // spec.port_lanes if lanes > 0 else spec.switch.switch_ports),
                "ports_used": max(net.graph.degree(node) for node in rack),
                "planes": len({nodes[node]["plane"] for node in rack}),
                "rack_switches": len(rack),
                "board_switches": sum(d.get("medium") == "pcb" and d["rack"] == 0 for d in nodes.values()),
                "direct_share": sum(n for between, n in pairs.items() if between <= 1) / sum(pairs.values()),
            }
        )
    return tidy(rows)


def paths(names: Iterable[str | System]) -> pd.DataFrame:
    """Compare printed paths and maxima with those of the graph.

    Examples
    --------
    >>> paths(["trn3-nl72x2-pcie160"]).counted.tolist()
    [1.0, 3.0, 4.0, 3.0]
    """
    specs = map(systems.system, listed("names", names))
    tables = [what_if.hops_table(spec).assign(system=spec.id) for spec in specs]
    columns = ["system", "part", "counted", "printed", "verdict", "locator", "how"]
    return pd.concat(tables, ignore_index=True)[columns]


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """Return counted and printed figures of `paths` with a row for each path and columns for each rack.

    Examples
    --------
    >>> side_by_side(paths(["trn3-nl72x2-pcie160"])).values.tolist()[1]
    ['path B', 3, '3']
    """
    columns = [
        rows.set_index("part")[["counted", "printed"]]
        .astype({"counted": int})
        .add_prefix(f"{label(system).partition(',')[0]}_")
        for system, rows in table.groupby("system", sort=False)
    ]
    return pd.concat(columns, axis=1).reset_index()


def lanes(names: Iterable[str | System]) -> svg.Drawing:
    """Draw where the lanes of one chip go, port by port, with a frame for each lane map.

    Examples
    --------
    >>> lanes(["trn3-nl72x2-pcie160", "trn3-nl72x2-aws-lanes"])
    The lane map says where a chip's ports lead (NL72x2, PCIe 160, NL72x2, AWS lanes): one chip and its ports
    """
    frames = {label(spec): _ports(spec) for spec in map(systems.system, listed("names", names))}
    chip = [svg.rect(4, 40, 76, 120), svg.text(42, 105, "one chip", bold=True)]
    return svg.Drawing(
        id="switch-tray-lanes",
        caption="The lane map says where a chip's ports lead",
        height=215,
        marks=chip,
        frames=frames,
        note="Each line is a port of eight lanes; dashed ones are redundant. No switch tray changes them.",
        alt="one chip and its ports",
    )


def _ports(spec: System) -> list[str]:
    """Return the ports of a chip as lines to the boxes that they reach, with what a box gets in words."""
    marks, top = [], 10.0
    for medium, where in TIERS.items():
        count = spec.scaleup_lanes.get(medium, 0.0)
        ports, spare = int(count // spec.port_lanes), 0
        if medium == "backplane":
            spare = int(spec.scaleup_lanes_redundant // spec.port_lanes)
        tall = 7.0 * (ports + spare) + 8
        for i in range(ports + spare):
            y, start = top + 7.5 + 7 * i, 44 + 112 * (top + 7 * i - 10) / 180
            one = svg.line(80, start, 170, y, accent=TIER_ACCENTS[medium] if i < ports else "", wide=2)
            marks.append(one if i < ports else one.replace("<line", '<line stroke-dasharray="3 4" opacity=".5"'))
        high = max(tall, 42)
        marks.append(svg.rect(170, top, 566, high, accent=TIER_ACCENTS[medium]))
        rate = f"{count:g} lanes, {count * spec.lane_bytes_per_s_per_dir / GB:g} GB/s"
        marks.append(svg.text(180, top + high / 2 - 4, rate, anchor="start", bold=True))
        marks.append(svg.text(180, top + high / 2 + 13, f"to {where}", anchor="start"))
        top += high + 10
    return marks


def planes(names: Iterable[str | System]) -> svg.Drawing:
    """Draw the planes of one rack and the path between two of its chips, with a frame for each number of planes.

    Examples
    --------
    >>> planes(["trn3-nl32x2-pcie160", "trn3-nl32x2-ualink"])
    Fewer planes, shorter paths (PCIe 160: two planes, UALink: one plane): chips of a rack, coloured by plane
    """
    frames: dict[int, tuple[str, list[str]]] = {}
    for net in nets(names):
        count = len({data["plane"] for _, data in net.graph.nodes(data=True) if data["kind"] == "chip"})
        said = f"{label(net.system).partition(', ')[2]}: {NUMERALS[count]}"
        frames.setdefault(count, (said, _rack(net)))
    rows = max(int(net.system.chips_per_tray) for net in nets(names))
    return svg.Drawing(
        id="switch-tray-planes",
        caption="Fewer planes, shorter paths",
        height=188 + 34 * rows,
        marks=[],
        frames=dict(frames.values()),
        note="Each column is a compute tray, each colour a plane; the arrows are one message.",
        alt="chips of a rack, coloured by plane",
    )


def _rack(net: Topology) -> list[str]:
    """Return the switches of each plane, the chips below them and the path of one message."""
    nodes: dict[str, dict[str, Any]] = {n: d for n, d in net.graph.nodes(data=True) if d["rack"] == 0}
    chips = {name: data for name, data in nodes.items() if data["kind"] == "chip"}
    columns = 1 + max(data["tray"] for data in chips.values())
    letters = sorted({data["position"] for data in chips.values()})
    count, pitch = 1 + max(data["plane"] for data in chips.values()), 700 / columns
    middle = {k: 40 + 700 * (k + 0.5) / count for k in range(count)}
    at = {n: (40 + pitch * (d["tray"] + 0.5), 150 + 34.0 * letters.index(d["position"])) for n, d in chips.items()}
    accents = {k: PLANE_ACCENTS[k % len(PLANE_ACCENTS)] for k in range(count)}
    marks = []
    for k, x in middle.items():
        switches = sum(d.get("medium") == "backplane" and d["plane"] == k for d in nodes.values())
        marks += [
            svg.line(x, 44, place[0], 134, accent=accents[k], wide=0.6)
            for name, place in at.items()
            if chips[name]["plane"] == k
        ]
        marks += [
            svg.rect(x - 78, 14, 156, 30, accent=accents[k]),
            svg.text(x, 34, f"plane {k + 1}: {switches} switches"),
        ]
    marks += [svg.rect(x - 11, y - 11, 22, 22, accent=accents[chips[name]["plane"]]) for name, (x, y) in at.items()]
    marks += [svg.text(24, 155 + 34 * i, letter) for i, letter in enumerate(letters)]
    return marks + _message(net, chips, at, middle, letters, columns)


def _message(
    net: Topology,
    chips: dict[str, dict[str, Any]],
    at: dict[str, tuple[float, float]],
    middle: dict[int, float],
    letters: list[str],
    columns: int,
) -> list[str]:
    """Return the arrows of a message from the first chip to the last one of a tray in the middle of the rack."""
    named = {(data["tray"], data["position"]): name for name, data in chips.items()}
    start, end = named[0, letters[0]], named[columns // 2, letters[-1]]
    path = net.path(start, end)
    stops = [name for name in path if name in at or net.graph.nodes[name]["medium"] == "backplane"]
    places = [at[name] if name in at else (middle[net.graph.nodes[name]["plane"]], 48.0) for name in stops]
    marks = []
    for i, ((x, y), (x2, y2)) in enumerate(pairwise(places)):
        last = i == len(places) - 2
        if x == x2:  # over a board switch to a neighbour, past the chips between them
            side = x - 17
            marks += [svg.line(x - 11, y, side, y, wide=2.4), svg.line(side, y, side, y2, wide=2.4)]
            marks.append(svg.arrow(side, y2, x - 10, y2, wide=2.4))
            continue
        marks.append(svg.arrow(x, y, x2, y2 - (12 if last and y2 > y else 0), wide=2.4))
    forwards, boards = sum(name in at for name in path) - 2, len(path) - len(stops)
    passed = [counted(boards, "board switch")] * (boards > 0) + [
        counted(len(path) - boards - forwards - 2, "rack switch")
    ]
    x, y = at[start]
    marks += [svg.text(x - 14, y - 16, "from", bold=True), svg.text(at[end][0], at[end][1] + 26, "to", bold=True)]
    said = f"{' and '.join(passed)} on the way, {forwards or 'no'} chip forwards"
    return [*marks, svg.text(390, 178 + 34 * len(letters), said, bold=True)]
