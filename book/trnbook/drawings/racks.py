"""Drawings of racks and of the networks in them, generated from the data of a system.

`torus` shows a torus with its wrap-around links, `rack_front` the trays of a rack, `paths` how a message goes from one
chip to another, and `layers_of_network` the Clos network that joins racks. All counts come from `tm.system`,
`topology` and `clos`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from trnbook.drawings import svg
from trnbook.drawings.amounts import name_of
from trnbook.drawings.svg import WIDTH, Accent, Drawing
from trnmodel.arguments import refuse
from trnmodel.catalog.systems import System
from trnmodel.fabric import scaleout
from trnmodel.fabric.build import chip_name, plane_of
from trnmodel.fabric.graph import Topology, topology
from trnmodel.formulas.clos import Clos, clos
from trnmodel.units import GB, counted

Point = tuple[float, float]
MOST_CHIPS = 64  # of a torus that is drawn chip by chip
MOST_PLANES = 4  # of a torus of three dimensions, side by side


def bent(points: Sequence[Point], radius: float = 6) -> str:
    """Return the description of a path through some points, with rounded corners.

    Examples
    --------
    >>> bent([(0, 0), (20, 0), (20, 20)])
    'M0 0L14 0Q20 0 20 6L20 20'
    """
    parts = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        enter, leave = (_towards(corner, end, radius) for end in (before, after))
        parts.append(f"L{enter[0]:g} {enter[1]:g}Q{corner[0]:g} {corner[1]:g} {leave[0]:g} {leave[1]:g}")
    return "".join(parts) + f"L{points[-1][0]:g} {points[-1][1]:g}"


def _towards(start: Point, end: Point, most: float) -> Point:
    """Return the point at some distance from a start towards an end, halfway there at most."""
    length = max(math.dist(start, end), 1e-9)
    share = min(most, length / 2) / length
    return tuple(round(a + (b - a) * share, 1) for a, b in zip(start, end, strict=True))  # type: ignore[return-value]


class TorusLayout:
    """Places of the chips of a torus: a square grid for each place on its third axis.

    Parameters
    ----------
    net : Topology
        Fabric of a torus of up to three dimensions. [-]
    x, y : float
        Upper left corner of the first grid. [-]
    cell : float
        Distance between neighbours. [-]
    apart : float
        Distance from one grid to the next. [-]
    """

    def __init__(self, net: Topology, x: float, y: float, cell: float, apart: float = 0) -> None:
        self.net, self.x, self.y, self.cell, self.apart = net, x, y, cell, apart
        self.half, self.gap = 0.28 * cell, 0.44 * cell
        shape = (*net.system.torus_shape, 1, 1)
        self.columns, self.rows, self.planes = shape[0], shape[1], shape[2]
        self.bottom = y + self.rows * cell

    def place(self, chip: str) -> Point:
        """Return the centre of a chip."""
        data = self.net.graph.nodes[chip]
        across = self.x + data.get("z", 0) * self.apart + (data["x"] + 0.5) * self.cell
        return across, self.y + (data.get("y", 0) + 0.5) * self.cell

    def link(self, one: str, other: str, *, accent: Accent = "", wide: float = 1.3) -> str:
        """Return the link of two neighbours; one that closes a ring runs in the channel between rows or columns."""
        nodes = self.net.graph.nodes
        axis = next(axis for axis in "xyz" if nodes[one].get(axis) != nodes[other].get(axis))
        if nodes[one][axis] > nodes[other][axis]:
            one, other = other, one
        faint = not accent
        (x, y), (x2, y2), half = self.place(one), self.place(other), self.half
        out, side = half + 0.22 * self.gap, half + 0.28 * self.gap
        far = nodes[other][axis] - nodes[one][axis] > 1
        if axis == "z":
            below = half + (0.75 if far else 0.45) * self.gap
            points = [(x, y + half), (x, y + below), (x2, y2 + below), (x2, y2 + half)]
        elif axis == "x" and far:
            points = [(x - half, y), (x - out, y), (x - out, y - side), (x2 + out, y - side), (x2 + out, y2)]
            points.append((x2 + half, y2))
        elif axis == "y" and far:
            points = [(x, y - half), (x, y - out), (x + side, y - out), (x + side, y2 + out), (x2, y2 + out)]
            points.append((x2, y2 + half))
        else:
            ends = (x + half, y, x2 - half, y2) if axis == "x" else (x, y + half, x2, y2 - half)
            return svg.line(*ends, accent=accent, faint=faint, wide=wide)
        return svg.path(bent(points), accent=accent, faint=faint, wide=wide)

    def links(self, axes: str = "xy") -> list[str]:
        """Return all links along some axes, in faint ink."""
        nodes = self.net.graph.nodes
        return [
            self.link(one, other)
            for one, other in self.net.graph.edges
            if any(nodes[one].get(axis) != nodes[other].get(axis) for axis in axes)
        ]

    def chip(self, chip: str, *, accent: Accent = "", label: str = "", size: float = 13) -> str:
        """Return a chip, with a label where there is one."""
        x, y = self.place(chip)
        box = svg.rect(x - self.half, y - self.half, 2 * self.half, 2 * self.half, accent=accent)
        return box + (svg.text(x, y + size / 3, label, size=size) if label else "")


def torus_net(system: str | System) -> Topology:
    """Return the fabric of a torus that is small enough to be drawn chip by chip; raises ValueError for others."""
    net = topology(system)
    shape = net.system.torus_shape
    if net.system.fabric != "torus" or len(net.chips) > MOST_CHIPS or (*shape, 1, 1)[2] > MOST_PLANES:
        allowed = f"allowed are tori of up to {MOST_CHIPS} chips in {MOST_PLANES} planes"
        refuse("system", net.system.id, f"{allowed}; its fabric is {net.system.fabric} of {len(net.chips)} chips")
    return net


def ordered(net: Topology) -> list[str]:
    """Return the chips of a fabric in the order in which ranks fill it, the innermost tier first.

    Examples
    --------
    >>> ordered(topology("trn2.48xlarge"))[:5]
    ['chip0,0', 'chip1,0', 'chip2,0', 'chip3,0', 'chip0,1']
    """
    nodes = net.graph.nodes
    if net.system.fabric != "torus":
        return net.chips
    return sorted(net.chips, key=lambda chip: tuple(nodes[chip].get(axis, 0) for axis in "zyx"))


def torus(system: str | System = "trn2.48xlarge") -> Drawing:
    """Return a torus with its wrap-around links; one chip and its neighbours are highlighted.

    A torus of three dimensions stands as planes side by side. Links between planes join the same places; only those
    of the highlighted chip are drawn.

    Parameters
    ----------
    system : str or System
        System whose chips are joined in a torus, of up to 64 chips. [-]

    Returns
    -------
    drawing : Drawing
        Two frames: a chip inside, and a chip at the corner. [-]

    Examples
    --------
    >>> list(torus("trn2.48xlarge").frames)
    ['A chip inside', 'A chip at the corner']
    """
    net = torus_net(system)
    shape = net.system.torus_shape
    layout = torus_layout(net)
    flat = layout.planes == 1
    height = layout.bottom + (20 if flat else 66)
    chips = ordered(net)
    numbers = {chip: str(number) for number, chip in enumerate(chips)} if flat else {}
    inside = next(chip for chip in chips if _at(net, chip, [min(1, size - 1) for size in shape]))
    corner = next(
        chip for chip in chips if _at(net, chip, [0, *(shape[1:2] and [shape[1] - 1]), *(0 for _ in shape[2:])])
    )
    marks = layout.links() + ([] if flat else _plane_names(layout))
    marks += [layout.chip(chip, label=numbers.get(chip, ""), size=15) for chip in chips]
    frames = {
        name: _neighbours(layout, chip, numbers, height)
        for name, chip in {"A chip inside": inside, "A chip at the corner": corner}.items()
    }
    each = sorted({net.graph.degree(chip) for chip in chips})
    size = "×".join(map(str, shape))
    return Drawing(
        name_of("torus", net.system.id),
        f"At the corner, too, every chip has {each[-1]} neighbours",
        height,
        marks,
        frames,
        note=f"A message travels from neighbour to neighbour, and the links around the outside close each row and "
        f"column of the {size} torus of {net.system.name} to a ring.",
        alt=f"{len(chips)} chips of {net.system.name} in a {size} torus with {len(net.graph.edges)} links; the "
        f"highlighted chip has {each[-1]} neighbours.",
    )


def torus_layout(net: Topology, width: float = 400) -> TorusLayout:
    """Return places for a torus: on some width where it is flat, else with its planes side by side."""
    shape = (*net.system.torus_shape, 1, 1)
    if shape[2] == 1:
        return TorusLayout(net, 14, 20, min(width / max(shape), 96))
    apart = WIDTH / shape[2]
    return TorusLayout(net, 8, 46, min((apart - 22) / shape[0], 60), apart)


def _at(net: Topology, chip: str, place: Iterable[int]) -> bool:
    return all(net.graph.nodes[chip][axis] == value for axis, value in zip("xyz", place, strict=False))


def _plane_names(layout: TorusLayout) -> list[str]:
    """Return the name of each plane, and of its rack where there are several."""
    net = layout.net
    racks = {d.get("z", 0): d["rack"] for _, d in net.graph.nodes(data=True)}
    several = len(set(racks.values())) > 1
    middle = layout.x + layout.columns * layout.cell / 2
    return [
        svg.text(
            middle + z * layout.apart,
            22,
            f"{plane_noun(net)} {z + 1}" + (f", rack {rack + 1}" if several else ""),
            size=15,
        )
        for z, rack in sorted(racks.items())
    ]


def plane_noun(net: Topology) -> str:
    """Return the name of a plane of a torus: an instance, where links within instances have a rate of their own."""
    return "Instance" if "instance" in net.system.scaleup_bytes_per_s_per_dir else "Plane"


def _neighbours(layout: TorusLayout, chip: str, numbers: dict[str, str], height: float) -> list[str]:
    """Return a chip, its links and its neighbours in colour, with their number and the rate of a link."""
    net = layout.net
    near = list(net.graph[chip])
    marks = [layout.link(chip, other, accent="a", wide=3) for other in near]
    marks += [layout.chip(other, accent="b") for other in near]
    marks.append(layout.chip(chip, accent="a"))
    groups = _by_rate(net, chip)
    title = (
        f"Chip {numbers[chip]} has {len(near)} neighbours:"
        if numbers
        else f"It has {len(near)} neighbours, with these rates each way:"
    )
    if numbers:
        x, y = layout.x + layout.columns * layout.cell + 44, 0.34 * height
        marks.append(svg.text(x, y, title, anchor="start", size=17, bold=True))
        lines = [line for parts, rate in groups for line in (*parts, f"at {rate / GB:g} GB/s each way")]
        return marks + [svg.text(x, y + 27 * n, said, anchor="start", size=16) for n, said in enumerate(lines, 1)]
    said = "; ".join(f"{' and '.join(parts)} at {rate / GB:g} GB/s" for parts, rate in groups)
    marks.append(svg.text(8, height - 32, title, anchor="start", size=16, bold=True))
    return [*marks, svg.text(8, height - 9, said, anchor="start", size=16)]


def _by_rate(net: Topology, chip: str) -> list[tuple[list[str], float]]:
    """Return how many neighbours a chip has along each axis in words, for each rate of a link."""
    nodes, counts = net.graph.nodes, Counter[tuple[str, float]]()
    for other, data in net.graph[chip].items():
        axis = next(axis for axis in "xyz" if nodes[chip].get(axis) != nodes[other].get(axis))
        counts[axis, data["bytes_per_s_per_dir"]] += 1
    names = {"x": "in its row", "y": "in its column", "z": f"in other {plane_noun(net).lower()}s"}
    rates: dict[float, list[str]] = {}
    for (axis, rate), count in sorted(counts.items()):
        rates.setdefault(rate, []).append(f"{count} {names[axis]}")
    return [(parts, rate) for rate, parts in rates.items()]


# --- the front of a rack


def _trays(spec: System) -> list[tuple[str, int]]:
    """Return kinds of trays of a rack from top to bottom, with their numbers.

    Switch trays stand in the middle and CPU trays at both ends (SemiAnalysis); without switch trays, CPU trays stand
    above each half of the compute trays.
    """
    if math.isnan(spec.compute_trays_per_rack) or math.isnan(spec.chips_per_tray):
        refuse("system", spec.id, "no source says how many trays its rack has")
    share = min(spec.racks, 1) if spec.racks == spec.racks else 1
    compute, cpu = int(spec.compute_trays_per_rack * share), int(spec.cpu_trays_per_rack * share)
    upper, above = math.ceil(compute / 2), math.ceil(cpu / 2)
    switches = int(spec.switch_trays_per_rack)
    last = [("compute", compute - upper), ("cpu", cpu - above)]
    order = [("cpu", above), ("compute", upper), ("switch", switches), *(last if switches else last[::-1])]
    return [(kind, count) for kind, count in order if count]


def rack_front(system: str | System = "trn3-nl72x2-pcie160") -> Drawing:
    """Return the front of the racks of a system: its trays from top to bottom, with the chips and switches in them.

    Power shelves are not drawn, because no source says how many there are.

    Parameters
    ----------
    system : str or System
        System whose trays are known. [-]

    Returns
    -------
    drawing : Drawing
        A picture without steps. [-]

    Examples
    --------
    >>> "18 compute trays" in rack_front("trn3-nl72x2-pcie160").alt
    True
    """
    net = topology(system)
    spec = net.system
    trays, racks = _trays(spec), len({rack for _, rack in net.graph.nodes(data="rack")})
    total = sum(count for _, count in trays)
    row, pause, top = min(max(430 / total, 13), 20), 9, 52
    width, gap = (180, 70) if racks > 1 else (200, 0)
    left = (WIDTH - racks * width - (racks - 1) * gap) / 2
    marks = []
    for rack in range(racks):
        x, y = left + rack * (width + gap), float(top)
        chips = sum(net.graph.nodes[chip]["rack"] == rack for chip in net.chips)
        marks.append(svg.text(x + width / 2, 20, f"Rack {rack + 1}", size=16, bold=True))
        marks.append(svg.text(x + width / 2, 39, counted(chips, "chip"), size=16))
        for kind, count in trays:
            for number in range(count):
                marks += _tray(net, kind, x, y + number * row, width, row - 2)
            y += count * row + pause
    marks += _tray_labels(net, trays, (top, row, pause), (left, WIDTH - left))
    height = top + total * row + pause * len(trays) + 30
    if racks > 1:
        marks += _between_racks(net, left + width, gap, top + 0.25 * total * row)
    marks += _legend(net, trays, height - 10)
    words = ", ".join(counted(sum(n for k, n in trays if k == kind), _NAMES[kind]) for kind in dict(trays))
    chips = len(net.chips) / racks
    switched = spec.switch_trays_per_rack > 0
    return Drawing(
        name_of("rack", spec.id),
        "Switch trays stand in the middle, where cables are shortest"
        if switched
        else f"The {counted(chips, 'chip')} of a rack stand in {sum(n for k, n in trays if k == 'compute')} trays",
        height,
        marks,
        note=f"Each row is a tray of {spec.name} seen from the front in the order that SemiAnalysis describes; power "
        "shelves are left out because no source counts them.",
        alt=f"{counted(racks, 'rack')} of {spec.name}, each with {words} and {counted(chips, 'chip')}.",
    )


_NAMES = {"compute": "compute tray", "switch": "switch tray", "cpu": "CPU tray"}


def _in_tray(net: Topology, kind: str) -> list[tuple[Accent, int, str]]:
    """Return what stands in a tray of a kind: accent, number and name of each part."""
    spec = net.system
    if kind == "cpu":
        return [("c", int(spec.cpus_per_cpu_tray), "CPU")]
    here = [d for _, d in net.graph.nodes(data=True) if (d["rack"], d["tray"]) == (0, 0)]
    if kind == "switch":
        return [("b", sum(d.get("medium") == "backplane" for d in here), "switch")]
    chips = sum(d["kind"] == "chip" for d in here)
    board = sum(d.get("medium") == "pcb" for d in here)
    parts: list[tuple[Accent, int, str]] = [
        ("a", chips, "chip"),
        ("d", board, "board switch"),
        ("c", int(spec.cpus_per_compute_tray), "CPU"),
    ]
    return [part for part in parts if part[1]]


_WIDE = {"chip": 22.0, "switch": 26.0, "CPU": 18.0, "board switch": 5.0}


def _tray(net: Topology, kind: str, x: float, y: float, width: float, height: float) -> list[str]:
    """Return a tray with its parts, spread evenly."""
    parts = [(accent, _WIDE[name]) for accent, count, name in _in_tray(net, kind) for _ in range(count)]
    space = (width - sum(wide for _, wide in parts)) / (len(parts) + 1)
    marks, at = [svg.rect(x, y, width, height, radius=2)], x + space
    inset = 2.5
    for accent, wide in parts:
        marks.append(svg.rect(at, y + inset, wide, height - 2 * inset, accent=accent, radius=1.5))
        at += wide + space
    return marks


def _tray_labels(
    net: Topology, trays: list[tuple[str, int]], rows: tuple[float, float, float], sides: tuple[float, float]
) -> list[str]:
    """Return the number of trays on the left of the racks, and what they hold on the right."""
    (y, row, pause), (left, right), marks = rows, sides, list[str]()
    for kind, count in trays:
        end = y + count * row - 2
        marks += [
            svg.path(bent([(x, y), (x + out, y), (x + out, end), (x, end)], 4), faint=True)
            for x, out in ((left - 4, -7), (right + 4, 7))
        ]
        middle = (y + end) / 2 + 5
        marks.append(svg.text(left - 18, middle, counted(count, _NAMES[kind]), anchor="end", size=16))
        held = [counted(count * number, name) for _, number, name in _in_tray(net, kind)]
        if count < 3:
            held = [", ".join(held)]
        first = middle - 9 * (len(held) - 1)
        marks += [svg.text(right + 18, first + 18 * n, said, anchor="start", size=16) for n, said in enumerate(held)]
        y += count * row + pause
    return marks


def _between_racks(net: Topology, x: float, gap: float, y: float) -> list[str]:
    """Return the links between two racks, as a double arrow with their number."""
    racks = net.graph.nodes(data="rack")
    links = sum(racks[one] != racks[other] for one, other in net.graph.edges)
    middle = x + gap / 2
    both = [svg.arrow(middle, y, x + gap - 3, y), svg.arrow(middle, y, x + 3, y)]
    lines = {-10: counted(links, "link"), 22: "chip", 38: "to chip"}
    return both + [svg.text(middle, y + down, said, size=15) for down, said in lines.items()]


def _legend(net: Topology, trays: list[tuple[str, int]], y: float) -> list[str]:
    """Return the parts of trays with their colours, in a line."""
    parts: dict[str, Accent] = {name: accent for kind, _ in trays for accent, _, name in _in_tray(net, kind)}
    names = {"switch": "rack switch"}
    step = min(150, WIDTH / max(len(parts), 1))
    x, marks = (WIDTH - step * len(parts)) / 2 + 10, list[str]()
    for number, (name, accent) in enumerate(parts.items()):
        at = x + number * step
        marks.append(svg.rect(at, y - 11, 16, 12, accent=accent, radius=2))
        marks.append(svg.text(at + 23, y, names.get(name, name), anchor="start", size=16))
    return marks


# --- paths


def paths(system: str | System = "trn3-nl72x2-pcie160") -> Drawing:
    """Return how a message goes from one chip to others: nearby, and step by step farther away.

    On switched racks the other chip is in the same tray, in another tray, and in the other rack; on a torus it is one
    more hop away in each frame. The way is the shortest one of the graph.

    Parameters
    ----------
    system : str or System
        Switched racks, or a torus of up to 64 chips. [-]

    Returns
    -------
    drawing : Drawing
        A frame for each distance. [-]

    Examples
    --------
    >>> list(paths("trn3-nl32x2-pcie160").frames)[:2]
    ['Same tray', 'Other tray']
    """
    net = topology(system)
    return _switched_paths(net) if net.system.fabric == "planes" else _torus_paths(torus_net(system))


def passed(net: Topology, way: Sequence[str]) -> dict[str, int]:
    """Return the links, switches and chips that a message passes between two chips.

    Examples
    --------
    >>> net = topology("trn3-nl32x2-pcie160")
    >>> passed(net, net.path("rack0/tray0/A", "rack0/tray1/A"))
    {'link': 2, 'switch': 1, 'chip': 0}
    """
    kinds = Counter(net.graph.nodes[node]["kind"] for node in way[1:-1])
    return {"link": len(way) - 1, "switch": kinds["switch"], "chip": kinds["chip"]}


def _passed(net: Topology, way: Sequence[str]) -> str:
    counts = passed(net, way)
    between = [counted(counts[kind], kind) for kind in ("switch", "chip") if counts[kind]]
    links = counted(counts["link"], "link")
    return f"{links}, through {' and '.join(between)}" if between else f"{counted(counts['link'], 'direct link')}"


def _torus_paths(net: Topology) -> Drawing:
    layout, chips, spec = torus_layout(net), ordered(net), net.system
    flat = layout.planes == 1
    height = layout.bottom + (20 if flat else 46)
    start, frames = chips[0], dict[str, list[str]]()
    for chip in chips[1:]:
        way = net.path(start, chip)
        name = counted(len(way) - 1, "hop")
        if name not in frames:
            marks = [layout.link(*ends, accent="a", wide=3) for ends in pairwise(way)]
            marks += [layout.chip(node, accent="a" if node in (start, chip) else "b") for node in way]
            x, y = (layout.x + layout.columns * layout.cell + 44, height / 2) if flat else (8, height - 10)
            marks.append(svg.text(x, y, _passed(net, way), anchor="start", size=16))
            frames[name] = marks
    marks = layout.links() + ([] if flat else _plane_names(layout)) + [layout.chip(chip) for chip in chips]
    return Drawing(
        name_of("paths", spec.id),
        f"The farthest chips of the torus are {net.diameter:g} hops apart",
        height,
        marks,
        frames,
        note=f"Orange chips exchange a message over a shortest path of {spec.name}, and blue chips on the way forward "
        "it.",
        alt=f"Paths over 1 to {net.diameter:g} hops on the torus of {spec.name}.",
    )


def _ends(net: Topology) -> dict[str, str]:
    """Return chips that are farther and farther from the first one, by the name of the distance."""
    letters = list(plane_of(net.system))
    first, other = letters[0], letters[len(letters) // 2]
    ends = {
        "Same tray": chip_name(0, 0, other),
        "Other tray": chip_name(0, 1, first),
        "Other tray and place": chip_name(0, 1, other),
        "Other rack": chip_name(1, 0, first),
        "Other rack, tray and place": chip_name(1, 1, other),
    }
    return {name: chip for name, chip in ends.items() if chip in net.graph}


class _RackLayout:
    """Places in two trays of each rack: the chips of a tray in a row, the switches of the rack between both trays."""

    def __init__(self, net: Topology) -> None:
        self.net, self.letters = net, list(plane_of(net.system))
        self.racks = len({rack for _, rack in net.graph.nodes(data="rack")})
        self.board = net.system.pcb_switches_per_tray > 0
        self.width = 330.0
        self.tops = (92.0, 330.0) if self.board else (70.0, 250.0)  # of the chips of both trays
        self.middle = (self.tops[0] + self.tops[1] + 36) / 2
        self.bottom = self.tops[1] + (101 if self.board else 70)

    def names(self) -> tuple[float, float]:
        """Return the baselines of the names of both trays."""
        upper, lower = self.tops
        return (upper - 39, lower + 83) if self.board else (upper + 23, lower + 23)

    def x(self, rack: int) -> float:
        """Return the left end of a rack."""
        return 30 + rack * 370.0

    def place(self, node: str) -> tuple[float, float, float, float]:
        """Return the box of a node: its left, top, width and height."""
        data = self.net.graph.nodes[node]
        x = self.x(data["rack"])
        if data["kind"] == "chip":
            step = self.width / len(self.letters)
            at = x + (self.letters.index(data["position"]) + 0.5) * step
            return at - 22, self.tops[data["tray"]], 44, 36
        if data["medium"] == "pcb":
            top = self.tops[0] - 58 if data["tray"] == 0 else self.tops[1] + 64
            return x + 60, top, self.width - 120, 28
        planes = max(plane_of(self.net.system).values()) + 1
        step = self.width / planes
        return x + data["plane"] * step + 2, self.middle - 18, step - 4, 36

    def link(self, one: str, other: str, *, accent: Accent = "", wide: float = 1.3) -> str:
        """Return a link between two nodes, from edge to edge."""
        (x, y, w, h), (x2, y2, w2, h2) = self.place(one), self.place(other)
        nodes = self.net.graph.nodes
        if nodes[one]["rack"] != nodes[other]["rack"]:
            tray = nodes[one]["tray"]
            side = (y, y - 13) if tray == 0 else (y + h, y + h + 13)
            shift = 12.0
            points = [(x + w / 2 + shift, side[0]), (x + w / 2 + shift, side[1])]
            points += [(x2 + w2 / 2 - shift, side[1]), (x2 + w2 / 2 - shift, side[0])]
            return svg.path(bent(points), accent=accent, faint=not accent, wide=wide)
        if y == y2:
            left, right = sorted((x, x2))
            return svg.line(left + w, y + h / 2, right, y + h / 2, accent=accent, faint=not accent, wide=wide)
        upper, lower = sorted(((x, y, w, h), (x2, y2, w2, h2)), key=lambda box: box[1])
        at, to = upper[0] + upper[2] / 2, lower[0] + lower[2] / 2
        if upper[2] > lower[2]:
            at = to if upper[0] < to < upper[0] + upper[2] else at
        elif lower[2] > upper[2]:
            to = at if lower[0] < at < lower[0] + lower[2] else to
        ends = at, upper[1] + upper[3], to, lower[1]
        return svg.line(*ends, accent=accent, faint=not accent, wide=wide)

    def box(self, node: str, *, accent: Accent = "") -> str:
        """Return a node: a chip, or all switches that stand for each other."""
        x, y, w, h = self.place(node)
        return svg.rect(x, y, w, h, accent=accent)

    def name(self, node: str) -> str:
        """Return the label of a node; where a tray has many chips, those of the first one head the columns."""
        data = self.net.graph.nodes[node]
        x, y, w, h = self.place(node)
        middle, base = x + w / 2, y + h / 2 + 5
        if data["kind"] == "chip":
            named = data["tray"] == 0 or len(self.letters) <= 2
            return svg.text(middle, base, data["position"], size=16) if named else ""
        like = [d for _, d in self.net.graph.nodes(data=True) if self._alike(d, data)]
        if data["medium"] == "pcb":
            return svg.text(middle, base, counted(len(like), "board switch"), size=15)
        return svg.text(middle, base, counted(len(like), "switch"), size=15 if w > 100 else 13)

    def _alike(self, one: dict, other: dict) -> bool:
        if one["kind"] != "switch" or one["medium"] != other["medium"]:
            return False
        keys = ("rack", "tray") if other["medium"] == "pcb" else ("rack", "plane")
        return all(one[key] == other[key] for key in keys)

    def shown(self) -> list[str]:
        """Return the nodes that are drawn: two trays of each rack, and one switch for all that are alike."""
        boxes: dict[tuple, str] = {}
        for node, data in self.net.graph.nodes(data=True):
            if data.get("medium") == "backplane" or data["tray"] < 2:
                boxes.setdefault(self.place(node), node)
        return list(boxes.values())


def _switched_paths(net: Topology) -> Drawing:
    layout, spec = _RackLayout(net), net.system
    shown = layout.shown()
    height = layout.bottom + 50
    marks = [layout.link(*ends) for ends in net.graph.edges if set(ends) <= set(shown) and _inside(net, ends)]
    for rack in range(layout.racks):
        x = layout.x(rack)
        marks.append(svg.rect(x - 14, 26, layout.width + 28, layout.bottom - 26, filled=False, radius=6))
        marks.append(svg.text(x + layout.width / 2, 17, f"Rack {rack + 1}", size=16, bold=True))
        names = enumerate(layout.names(), 1) if not rack else ()
        marks += [svg.text(x - 7, y, f"tray {n}", anchor="start", size=15) for n, y in names]
    boxes = [mark for node in shown for mark in (layout.box(node), layout.name(node))]
    frames, start = dict[str, list[str]](), net.chips[0]
    for name, end in _ends(net).items():
        way = net.path(start, end)
        steps = [layout.link(*ends, accent="a", wide=3.5) for ends in pairwise(way)]
        steps += [layout.box(node, accent="a" if node in (start, end) else "b") for node in way]
        frames[name] = [*steps, svg.text(WIDTH / 2, height - 14, _passed(net, way), size=18)]
    return Drawing(
        name_of("paths", spec.id),
        f"The farthest chips are {net.diameter:g} links apart",
        height,
        marks + boxes,
        frames,
        note=f"Orange chips exchange a message over a shortest path of {spec.name}, blue parts forward it, and two of "
        f"the {spec.compute_trays_per_rack:g} compute trays of each rack are drawn.",
        alt=f"Paths between chips of {spec.name} in the same tray, in other trays and in the other rack, over up to "
        f"{net.diameter:g} links.",
    )


def _inside(net: Topology, ends: tuple[str, str]) -> bool:
    racks = net.graph.nodes(data="rack")
    return racks[ends[0]] == racks[ends[1]]


# --- the scale-out network


def layers_of_network(
    system: str | System = "trn3-nl72x2-pcie160",
    layers: int = 3,
    *,
    switch_bits_per_s: float | None = None,
    port_bits_per_s: float | None = None,
) -> Drawing:
    """Return the layers of the scale-out Clos network of a system, with the radix and the number of its switches.

    Parameters
    ----------
    system : str or System
        System whose NICs the network joins. [-]
    layers : int
        Layers of switches, 2 or 3. [-]
    switch_bits_per_s : float, optional
        Capacity of a switch one way; by default that of the smallest on offer. [bit/s]
    port_bits_per_s : float, optional
        Rate of a logical port; by default that of AWS's network. [bit/s]

    Returns
    -------
    drawing : Drawing
        A frame for each part of the network: under one top of rack, in one pod, all. [-]

    Examples
    --------
    >>> "524,288 chips" in layers_of_network("trn3-nl72x2-pcie160").alt
    True
    """
    attach = scaleout.nic(system)
    if port_bits_per_s is not None:
        attach["port_bits_per_s"] = port_bits_per_s
    capacity = float(scaleout.switch_bits_per_s()[0]) if switch_bits_per_s is None else switch_bits_per_s
    net = clos(switch_bits_per_s=capacity, layers=layers, **attach)
    if not net.valid:
        refuse("layers", layers, f"no such network of {scaleout.tera(capacity)} switches can be built")
    name = topology(system).system.name
    names = ["Spine", "Leaf", "Top of rack"] if layers == 3 else ["Spine", "Top of rack"]
    picture = _ClosPicture(net, names)
    ports = f"{scaleout.giga(float(net.port_bits_per_s))} ports"
    return Drawing(
        name_of("clos", topology(system).system.id, layers, scaleout.tera(capacity), ports),
        f"{layers} layers of switches join {net.max_chips:,.0f} chips",
        picture.height,
        picture.marks(),
        picture.frames(),
        note=f"Each NIC of {name} is split over {counted(float(net.planes), 'separate network')} of "
        f"{scaleout.tera(capacity)} switches with {ports}, of which a part of one is drawn; the counts are of all.",
        alt=f"A Clos network of {layers} layers with {net.switches:,.0f} switches for {net.max_chips:,.0f} chips "
        f"of {name}.",
    )


class _ClosPicture:
    """A Clos network: a row for each layer, two pods of which the first is highlighted."""

    def __init__(self, net: Clos, names: list[str]) -> None:
        self.net, self.names = net, names
        self.rows = {name: 52 + 88.0 * n for n, name in enumerate([*names, "Servers"])}
        self.height = self.rows["Servers"] + 88
        step = 240 if "Leaf" in names else 192
        self.pods = [[150.0 + start + 64 * n for n in range(3)] for start in (0, step)]
        self.size = (46.0, 28.0)

    def at(self, name: str) -> list[float]:
        """Return the centres of the boxes of a layer."""
        if name == "Spine":
            return [146 + 78 * n for n in range(5)]
        return [x for pod in self.pods for x in pod]

    def box(self, name: str, x: float, accent: Accent = "") -> str:
        """Return a switch, or the chips under a top of rack."""
        y, (w, h) = self.rows[name], self.size
        if name == "Servers":
            return "".join(svg.rect(x - w / 2 + 12 * n, y, 9, 18, accent=accent, radius=2) for n in range(4))
        return svg.rect(x - w / 2, y, w, h, accent=accent)

    def joins(self) -> list[tuple[str, float, str, float]]:
        """Return the links between boxes: layer and place of the upper one, then of the lower one."""
        links = []
        last = "Top of rack"
        if "Leaf" in self.names:
            links += [("Spine", up, "Leaf", low) for up in self.at("Spine") for low in self.at("Leaf")]
            links += [("Leaf", up, last, low) for pod in self.pods for up in pod for low in pod]
        else:
            links += [("Spine", up, last, low) for up in self.at("Spine") for low in self.at(last)]
        return links + [(last, x, "Servers", x) for x in self.at(last)]

    def line(self, upper: str, x: float, lower: str, x2: float, accent: Accent = "") -> str:
        """Return a link between two boxes."""
        start = self.rows[upper] + self.size[1]
        return svg.line(x, start, x2, self.rows[lower], accent=accent, faint=not accent, wide=2 if accent else 1)

    def counts(self) -> dict[str, tuple[str, str]]:
        """Return two labels of each layer: the number of switches, and their ports."""
        n = self.net
        half = f"{n.radix // 2:.0f} ports down, {n.radix - n.radix // 2:.0f} up"
        return {
            "Spine": (f"{n.spine_switches:,.0f} switches", f"{n.radix:.0f} ports down"),
            "Leaf": (f"{n.leaf_switches:,.0f} switches", half),
            "Top of rack": (f"{n.tor_switches:,.0f} switches", f"{n.down_ports:.0f} ports down, {n.rails:.0f} up"),
            "Servers": (f"{n.max_chips:,.0f} chips", f"{counted(float(n.chips_per_nic), 'chip')} per NIC"),
        }

    def marks(self) -> list[str]:
        """Return what stands in every frame."""
        marks = [self.line(*ends) for ends in self.joins()]
        for name, y in self.rows.items():
            marks += [self.box(name, x) for x in self.at(name)]
            marks.append(svg.text(8, y + 19, name, anchor="start", size=15, bold=True))
            for n, said in enumerate(self.counts()[name]):
                marks.append(svg.text(582, y + 9 + 19 * n, said, anchor="start", size=16))
            if name != "Servers":
                marks.append(svg.text(563, y + 19, "…", size=16))
        if "Leaf" in self.names:
            for number, pod in enumerate(self.pods):
                marks.append(svg.text(pod[1], self.rows["Servers"] + 38, f"pod {number + 1}", size=15))
        return marks

    def frames(self) -> dict[str, list[str]]:
        """Return a frame for each distance: what is highlighted, and how many chips it joins."""
        n, first = self.net, self.pods[0]
        near: list[tuple[str, float]] = [("Top of rack", first[0]), ("Servers", first[0])]
        low = [(name, x) for name in ("Top of rack", "Servers") for x in first]
        everything = [(name, x) for name in self.rows for x in self.at(name)]
        parts = {"Under one top of rack": (near, float(n.chips_per_rack), 1)}
        if "Leaf" in self.names:
            parts["In one pod"] = ([("Leaf", x) for x in first] + low, float(n.chips_per_pod), 3)
        parts["In the whole network"] = (everything, float(n.max_chips), int(n.switch_hops))
        return {name: self._frame(*part) for name, part in parts.items()}

    def _frame(self, lit: list[tuple[str, float]], chips: float, hops: int) -> list[str]:
        own = set(lit)
        marks = [self.line(*ends, accent="a") for ends in self.joins() if {ends[:2], ends[2:]} <= own]
        marks += [self.box(name, x, "a") for name, x in lit]
        said = f"{chips:,.0f} chips, at most {counted(hops, 'switch')} between two of them"
        return [*marks, svg.text(WIDTH / 2, self.height - 12, said, size=18)]
