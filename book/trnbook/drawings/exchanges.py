"""Drawings of exchanges between chips, step by step: all-reduce on a ring and on a tree, all-to-all, and mappings.

`ring_all_reduce` and `tree_all_reduce` run the algorithm on sets of contributions, and draw who holds what before each
step. `all_to_all` counts messages on the links of a torus and of switches. `mapping` shows which ranks of a model form
a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trnbook.drawings import svg
from trnbook.drawings.amounts import name_of
from trnbook.drawings.racks import TorusLayout, bent, ordered, plane_noun, torus_layout, torus_net
from trnbook.drawings.svg import WIDTH, Accent, Drawing
from trnmodel.arguments import integer, refuse
from trnmodel.catalog.systems import System
from trnmodel.fabric.graph import Topology, topology
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.mapping import Mapping
from trnmodel.units import GB, counted

Held = list[list[frozenset[int]]]  # whose contributions are in each chunk of each rank
ACCENTS: tuple[Accent, ...] = ("a", "b", "c", "d", "e")


@dataclass(frozen=True, slots=True)
class Send:
    """A message: the chunk that one rank sends to another, and whether the receiver adds it to its own."""

    source: int
    target: int
    chunk: int
    adds: bool


def ring_steps(ranks: int) -> list[list[Send]]:
    """Return the messages of each step of an all-reduce on a ring: reduce-scatter, then all-gather.

    Examples
    --------
    >>> [len(step) for step in ring_steps(4)]
    [4, 4, 4, 4, 4, 4]
    """
    steps = range(2 * (ranks - 1))
    return [[Send(r, (r + 1) % ranks, (r - n) % ranks, n < ranks - 1) for r in range(ranks)] for n in steps]


def tree_steps(ranks: int) -> list[list[Send]]:
    """Return the messages of each step of an all-reduce on a binomial tree: up to rank 0, then down again.

    Examples
    --------
    >>> [[(send.source, send.target) for send in step] for step in tree_steps(4)]
    [[(1, 0), (3, 2)], [(2, 0)], [(0, 2)], [(0, 1), (2, 3)]]
    """
    strides = [2**n for n in range((ranks - 1).bit_length())]
    up = [[Send(r, r - s, 0, True) for r in range(s, ranks, 2 * s)] for s in strides]
    down = [[Send(r - s, r, 0, False) for r in range(s, ranks, 2 * s)] for s in reversed(strides)]
    return up + down


def after(steps: Sequence[Sequence[Send]], ranks: int, chunks: int) -> list[Held]:
    """Return whose contributions are in each chunk of each rank: at the start, and after each step.

    Examples
    --------
    >>> last = after(tree_steps(4), 4, 1)[-1]
    >>> [sorted(chunk) for chunk in last[3]]
    [[0, 1, 2, 3]]
    """
    held: list[Held] = [[[frozenset({rank})] * chunks for rank in range(ranks)]]
    for step in steps:
        now = [list(chunks_of) for chunks_of in held[-1]]
        for send in step:
            sent = held[-1][send.source][send.chunk]
            now[send.target][send.chunk] = sent | (held[-1][send.target][send.chunk] if send.adds else sent)
        held.append(now)
    return held


def _accent(rank: int, ranks: int) -> Accent:
    """Return the colour of a rank's contribution: one for each rank, or one for all where there are too many."""
    own = ACCENTS[1:]  # the first one is that of messages
    return own[rank] if ranks <= len(own) else own[0]


def _cell(x: float, y: float, width: float, height: float, held: frozenset[int], ranks: int) -> str:
    """Return a chunk: a box with a slot for each rank, filled where its contribution is in the sum."""
    slot = (width - 6) / ranks
    filled = [
        svg.rect(x + 3 + rank * slot + 0.7, y + 4, slot - 1.4, height - 8, accent=_accent(rank, ranks), radius=1)
        for rank in sorted(held)
    ]
    return svg.rect(x, y, width, height) + "".join(filled)


def _outline(x: float, y: float, width: float, height: float) -> str:
    """Return the outline of a chunk that is sent."""
    around = [(x + width / 2, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y), (x + width / 2, y)]
    return svg.path(bent(around, 3), accent="a", wide=2.5)


def ring_all_reduce(ranks: int = 4) -> Drawing:
    """Return an all-reduce on a ring, step by step: which chunk each rank holds and sends.

    Parameters
    ----------
    ranks : int
        Ranks of the ring, and chunks of the buffer; from 2 to 8. [-]

    Returns
    -------
    drawing : Drawing
        A frame before each step, and one of the result. [-]

    Examples
    --------
    >>> list(ring_all_reduce(3).frames)
    ['Step 1', 'Step 2', 'Step 3', 'Step 4', 'Result']
    """
    n = integer("ranks", ranks, 2, 8)
    steps = ring_steps(n)
    states = after(steps, n, n)
    left, wide = 76, (WIDTH - 76 - 26) / n
    box, row, top = min(wide - 42, 110), min(40, 200 / n + 8), 40
    bottom = top + n * row
    xs = [left + wide * (rank + 0.5) - box / 2 for rank in range(n)]
    ys = [top + row * chunk for chunk in range(n)]
    marks = [svg.text(xs[rank] + box / 2, 24, f"rank {rank}", size=15, bold=True) for rank in range(n)]
    marks += [svg.text(8, y + row / 2 + 3, f"chunk {chunk}", anchor="start", size=15) for chunk, y in enumerate(ys)]
    height = bottom + 92
    frames = {}
    for number, (state, sends) in enumerate(zip(states, [*steps, []], strict=True), 1):
        drawn = [_cell(xs[r], ys[c], box, row - 8, state[r][c], n) for r in range(n) for c in range(n)]
        for send in sends:
            y = ys[send.chunk] + (row - 8) / 2
            drawn.append(_outline(xs[send.source], ys[send.chunk], box, row - 8))
            if send.target > send.source:
                drawn.append(svg.arrow(xs[send.source] + box, y, xs[send.target] - 1, y, accent="a", wide=2.5))
                continue
            back = [(xs[-1] + box, y), (WIDTH - 12, y), (WIDTH - 12, bottom + 12), (xs[0] - 22, bottom + 12)]
            drawn.append(svg.path(bent([*back, (xs[0] - 22, y), (xs[0] - 8, y)]), accent="a", wide=2.5))
            drawn.append(svg.arrow(xs[0] - 12, y, xs[0] - 1, y, accent="a", wide=2.5))
        title, said = _ring_words(number, n)
        drawn.append(svg.text(WIDTH / 2, bottom + 48, title, size=18, bold=True))
        drawn.append(svg.text(WIDTH / 2, bottom + 74, said, size=17))
        frames[f"Step {number}" if sends else "Result"] = drawn
    return Drawing(
        name_of("ring", n),
        f"A ring of {n} needs {len(steps)} steps of single chunks",
        height,
        marks,
        frames,
        note="Each column is the buffer of a rank, each colour in a chunk is the contribution of one rank that is "
        "already in the sum, and each arrow is a message to the next rank.",
        alt=f"An all-reduce of {n} ranks on a ring: {counted(n - 1, 'step')} of reduce-scatter and {n - 1} of "
        "all-gather, after which each rank holds the whole sum.",
    )


def _ring_words(number: int, n: int) -> tuple[str, str]:
    """Return the title of a frame, and what a rank has sent before it."""
    last = 2 * (n - 1)
    if number > last:
        return "Every rank holds the whole sum", f"Each rank has sent 2×({n}−1)/{n} = {last / n:.3g} times its buffer"
    name, kind = ("Reduce-scatter", "adds") if number < n else ("All-gather", "copies")
    sent = f"each rank sends 1/{n} of its buffer, and the next rank {kind} it"
    return f"{name}, step {number} of {last}", sent[0].upper() + sent[1:]


def tree_all_reduce(ranks: int = 8) -> Drawing:
    """Return an all-reduce on a tree, step by step: sums go up to rank 0, and the whole sum comes down.

    Parameters
    ----------
    ranks : int
        Ranks of the tree, from 2 to 8. [-]

    Returns
    -------
    drawing : Drawing
        A frame before each step, and one of the result. [-]

    Examples
    --------
    >>> list(tree_all_reduce(4).frames)
    ['Up 1', 'Up 2', 'Down 1', 'Down 2', 'Result']
    """
    n = integer("ranks", ranks, 2, 8)
    steps = tree_steps(n)
    states, depth = after(steps, n, 1), len(steps) // 2
    wide, high, gap = WIDTH / n, 34.0, 78.0
    box = min(wide - 10, 100)
    levels = [depth if not rank else (rank & -rank).bit_length() - 1 for rank in range(n)]
    places = [(wide * (rank + 0.5), 34 + gap * (depth - level)) for rank, level in enumerate(levels)]
    bottom = 34 + gap * depth + high
    marks = [svg.text(x, y - 7, f"rank {rank}", size=15) for rank, (x, y) in enumerate(places)]
    links = [_edge(places[s.target], places[s.source], high, box) for step in steps[:depth] for s in step]
    marks += [svg.line(*link, faint=True) for link in links]
    frames = {}
    for number, (state, sends) in enumerate(zip(states, [*steps, []], strict=True)):
        drawn = [_cell(x - box / 2, y, box, high, state[rank][0], n) for rank, (x, y) in enumerate(places)]
        for send in sends:
            up = places[send.target][1] < places[send.source][1]
            ends = (send.target, send.source) if up else (send.source, send.target)
            x, y, x2, y2 = _edge(places[ends[0]], places[ends[1]], high, box)
            drawn.append(svg.arrow(*((x2, y2, x, y) if up else (x, y, x2, y2)), accent="a", wide=2.5))
        rising = number < depth
        name = "Result" if not sends else f"Up {number + 1}" if rising else f"Down {number + 1 - depth}"
        title, said = _tree_words(number, len(sends), n, depth)
        drawn.append(svg.text(WIDTH / 2, bottom + 34, title, size=18, bold=True))
        drawn.append(svg.text(WIDTH / 2, bottom + 60, said, size=17))
        frames[name] = drawn
    return Drawing(
        name_of("tree", n),
        f"A tree of {n} needs {len(steps)} steps of whole buffers",
        bottom + 76,
        marks,
        frames,
        note="Each box is the buffer of a rank with one slot for each contribution, a filled slot is already in the "
        "sum, and each arrow is a message of the whole buffer.",
        alt=f"An all-reduce of {n} ranks on a binomial tree: {counted(depth, 'step')} up to rank 0 and {depth} down.",
    )


def _edge(upper: tuple[float, float], lower: tuple[float, float], high: float, box: float) -> tuple[float, ...]:
    """Return a link of the tree from the lower edge of one box to the label above another."""
    (x, y), (x2, y2) = upper, lower
    inset = max(-box * 0.4, min(box * 0.4, (x2 - x) * 0.25))
    return x + inset, y + high, x2, y2 - 22


def _tree_words(number: int, messages: int, n: int, depth: int) -> tuple[str, str]:
    steps = 2 * depth
    if number == steps:
        ring = 2 * (n - 1)
        return "Every rank holds the whole sum", f"2×{depth} = {steps} steps, where a ring takes 2×({n}−1) = {ring}"
    sent = (
        f"{counted(messages, 'message')} of the whole buffer; the receiver {'adds' if number < depth else 'copies'} it"
    )
    return f"Step {number + 1} of {steps}, {'up' if number < depth else 'down'}", sent


# --- all-to-all


def busiest_link(net: Topology, chips: Sequence[str], nodes: Sequence[str]) -> tuple[float, float]:
    """Return the messages on the busiest link one way, and its rate, where each of some chips sends one to each other.

    Messages take shortest paths over `nodes`, and split evenly where there are several. Of links that are equally busy
    the rate is that of the slowest.

    Returns
    -------
    messages : float
        Messages on the link in one direction. [-]
    bytes_per_s : float
        Rate of the link in one direction. [B/s]

    Examples
    --------
    >>> net = topology("trn2.48xlarge")
    >>> busiest_link(net, net.chips, net.chips)  # 16 chips, 4 in each ring
    (8.0, 128000000000.0)
    """
    import networkx as nx

    rates = nx.get_edge_attributes(net.graph.subgraph(nodes), "bytes_per_s_per_dir")
    live = nx.Graph([ends for ends, rate in rates.items() if rate > 0])
    loads = nx.edge_betweenness_centrality_subset(live, sources=chips, targets=chips, normalized=False)
    most = max(loads.values())
    busiest = [net.graph.edges[ends]["bytes_per_s_per_dir"] for ends, load in loads.items() if load > most - 1e-9]
    return round(most, 9), min(busiest)


def _plane(net: Topology) -> tuple[list[str], list[str]]:
    """Return the chips and the active switches of the first plane of a switched rack."""
    if net.system.fabric != "planes":
        refuse(
            "switched", net.system.id, f"allowed are racks with planes of switches; its fabric is {net.system.fabric}"
        )
    nodes = net.graph.nodes
    chips = [n for n in net.chips if nodes[n]["rack"] == 0 and nodes[n]["plane"] == 0]
    near = {other for other, data in net.graph[chips[0]].items() if data["bytes_per_s_per_dir"] > 0}
    return chips, [n for n in net.graph if n in near and nodes[n].get("medium") == "backplane"]


def all_to_all(system: str | System = "trn2.48xlarge", switched: str | System = "trn3-nl32x2-pcie160") -> Drawing:
    """Return an all-to-all on a torus and on switches: who is reached over how many links, and the busiest link.

    On the torus messages pass through neighbours; on the switches of one plane of a rack every pair is one switch
    apart. Messages split evenly over the shortest paths.

    Parameters
    ----------
    system : str or System
        A torus of up to 64 chips. [-]
    switched : str or System
        A switched rack, of which one plane is drawn. [-]

    Returns
    -------
    drawing : Drawing
        A frame for each distance on the torus, and one of all messages. [-]

    Examples
    --------
    >>> list(all_to_all().frames)
    ['1 hop', '2 hops', '3 hops', '4 hops', 'All messages']
    """
    net, rack = torus_net(system), topology(switched)
    layout = torus_layout(net, 330)
    flat = layout.planes == 1
    layout.y, layout.bottom = layout.y + 24 * flat, layout.bottom + 24 * flat
    text = (8.0, layout.bottom + 32)
    panel = _Plane(rack, 402, 44, 350, layout.bottom - 54) if flat else _Plane(rack, 20, text[1] + 66, WIDTH - 40, 224)
    right = (402.0, text[1]) if flat else (8.0, panel.bottom + 32)
    marks = layout.links() + [layout.chip(chip) for chip in net.chips] + panel.marks()
    marks.append(svg.text(8, 18, f"Torus of {net.system.name}", anchor="start", size=15, bold=True))
    plane = f"One plane of {rack.system.name}"
    marks.append(svg.text(right[0], panel.y - 26, plane, anchor="start", size=15, bold=True))
    source = ordered(net)[min(1 + layout.columns, len(net.chips) - 1)]
    far = _distances(net, source)
    frames = {}
    for hops in range(1, max(far.values()) + 1):
        drawn, there = _reached(layout, source, far, hops) + panel.from_one(), sum(n == hops for n in far.values())
        away = counted(hops, "hop")
        drawn.append(_line(text, f"{counted(there, 'chip')} at {away}: {counted(hops, 'link')} per message"))
        drawn.append(_line(right, f"All {len(panel.chips) - 1} at 1 switch: 2 links per message"))
        frames[away] = drawn
    loads = busiest_link(net, net.chips, net.chips), busiest_link(rack, panel.chips, panel.nodes)
    everyone = [layout.link(*ends, accent="a", wide=2) for ends in net.graph.edges if _drawn(layout, ends)]
    everyone += [layout.chip(chip, accent="b") for chip in net.chips] + panel.from_all()
    for where, chips, (load, rate) in ((text, net.chips, loads[0]), (right, panel.chips, loads[1])):
        messages = f"{len(chips) * (len(chips) - 1):,} messages"
        everyone.append(_line(where, f"{messages}: {load:.2g} on a link of {rate / GB:g} GB/s"))
    frames["All messages"] = everyone
    alike = len(panel.chips) == len(net.chips)
    return Drawing(
        name_of("all-to-all", net.system.id, rack.system.id),
        f"A torus puts {loads[0][0]:.2g} messages on a link, switches {loads[1][0]:.2g}"
        if alike
        else "Messages pass through neighbours on a torus, directly on switches",
        max(text[1], right[1]) + 14,
        marks,
        frames,
        note="The orange chip sends a message to each other chip, blue chips are reached in this step through the "
        "parts between, and messages on a link are counted one way.",
        alt=f"An all-to-all of {len(net.chips)} chips on the torus of {net.system.name}, with {loads[0][0]:.2g} "
        f"messages on the busiest link one way, and of {len(panel.chips)} chips on {len(panel.switches)} switches of "
        f"{rack.system.name}, with {loads[1][0]:.2g}.",
    )


def _distances(net: Topology, source: str) -> dict[str, int]:
    import networkx as nx

    return dict(nx.single_source_shortest_path_length(net.graph, source))


def _line(where: tuple[float, float], said: str) -> str:
    return svg.text(*where, said, anchor="start", size=16)


def _drawn(layout: TorusLayout, ends: tuple[str, str]) -> bool:
    """Return whether a link is drawn: those between planes are not."""
    nodes = layout.net.graph.nodes
    return nodes[ends[0]].get("z") == nodes[ends[1]].get("z")


def _reached(layout: TorusLayout, source: str, far: dict[str, int], hops: int) -> list[str]:
    """Return the links on the way to all chips at some distance, and these chips."""
    edges = layout.net.graph.edges
    used = [ends for ends in edges if max(far[ends[0]], far[ends[1]]) <= hops and far[ends[0]] != far[ends[1]]]
    z = layout.net.graph.nodes[source].get("z")
    marks = [
        layout.link(*ends, accent="a", wide=2.2)
        for ends in used
        if _drawn(layout, ends) or (source in ends and z is not None)
    ]
    marks += [layout.chip(chip, accent="b") for chip, value in far.items() if value == hops]
    return [*marks, layout.chip(source, accent="a")]


class _Plane:
    """One plane of a switched rack: its chips in two rows, its active switches between them."""

    def __init__(self, net: Topology, x: float, y: float, width: float, height: float) -> None:
        self.net, self.x, self.y, self.width = net, x, y, width
        self.chips, self.switches = _plane(net)
        self.nodes = [*self.chips, *self.switches]
        self.gap = (height - 26) / 2
        self.bottom = y + 2 * self.gap + 26
        half = math.ceil(len(self.chips) / 2)
        rows = [self.chips[:half], self.switches, self.chips[half:]]
        self.places = {
            node: (x + (n + 0.5) * width / len(row), y + self.gap * level + 13)
            for level, row in enumerate(rows)
            for n, node in enumerate(row)
        }

    def line(self, chip: str, switch: str, accent: Accent = "", wide: float = 1) -> str:
        """Return the link of a chip and a switch."""
        (x, y), (x2, y2) = self.places[chip], self.places[switch]
        way = 13 if y < y2 else -13
        return svg.line(x, y + way, x2, y2 - way, accent=accent, faint=not accent, wide=wide)

    def box(self, node: str, accent: Accent = "") -> str:
        """Return a chip, or a wider switch."""
        x, y = self.places[node]
        half = 13 if node in self.chips else min(17, self.width / len(self.switches) / 2 - 3)
        half = min(half, self.width / math.ceil(len(self.chips) / 2) / 2 - 1)
        return svg.rect(x - half, y - 13, 2 * half, 26, accent=accent)

    def marks(self) -> list[str]:
        """Return what stands in every frame."""
        links = [self.line(chip, switch) for chip in self.chips for switch in self.switches]
        return links + [self.box(node) for node in self.nodes]

    def from_one(self) -> list[str]:
        """Return what the first chip sends: to all switches, and on to all other chips."""
        first, *others = self.chips
        wide = min(120 / (len(self.chips) * len(self.switches)), 0.8)
        links = [self.line(chip, switch, "b", wide) for chip in others for switch in self.switches]
        links += [self.line(first, switch, "a", 2.2) for switch in self.switches]
        return links + [self.box(chip, "b") for chip in others] + [self.box(first, "a")]

    def from_all(self) -> list[str]:
        """Return what all chips send."""
        links = [self.line(chip, switch, "a") for chip in self.chips for switch in self.switches]
        return links + [self.box(chip, "b") for chip in self.chips]


# --- mappings


def mapping(
    model: str | Transformer = "deepseek-v3",
    system: str | System = "trn3-nl72x2-pcie160",
    *,
    tp: int = 1,
    ep: int = 1,
    cp: int = 1,
    pp: int = 1,
    dp: int | None = None,
    lnc: int | None = None,
    **more: Any,
) -> Drawing:
    """Return which ranks of a system form a group of each degree of parallelism, in order of placement.

    Parameters
    ----------
    model : str or Transformer
        Model that is cut. [-]
    system : str or System
        System on whose chips the ranks lie. [-]
    tp, ep, cp, pp : int
        Degrees, as in `tm.Mapping`. [-]
    dp : int, optional
        Replicas; by default as many as the system has room for. [-]
    lnc : int, optional
        Physical cores of a rank; by default those of the chip. [-]
    **more
        Other fields of `tm.Mapping`, such as `placement`. [-]

    Returns
    -------
    drawing : Drawing
        A frame for each degree above 1. [-]

    Examples
    --------
    >>> list(mapping("deepseek-v3", "trn2.48xlarge", tp=8, ep=8).frames)
    ['TP 8', 'EP 8']
    """
    net, read = topology(system), read_model(model)
    ranks = net.system.chip.cores / net.system.chip.logical(lnc) if net.system.chip.core else 1
    total = int(len(net.chips) * ranks)
    m = Mapping(tp=tp, ep=ep, cp=cp, pp=pp, lnc=lnc, **more)
    replica = int(m.replica_ranks)
    copies = max(total // replica, 1) if dp is None else dp
    m = Mapping(tp=tp, ep=ep, cp=cp, pp=pp, dp=copies, lnc=lnc, **more)
    if int(m.ranks) > total:
        refuse("mapping", repr(m), f"it has {int(m.ranks):,} ranks, and {net.system.id} has {total:,}")
    picture = _Ranks(net, int(ranks))
    used = [name for name in m.placement if getattr(m, name) > 1]
    frames = {
        f"{name.upper()} {int(getattr(m, name))}": picture.frame(groups(m, name), _share(read, m, name))
        for name in used
    }
    ends = [name.upper() for name in used]
    claim = f"{ends[0]} groups lie close together, {ends[-1]} groups far apart"
    degrees = ", ".join(frames)
    return Drawing(
        name_of("mapping", read.id, net.system.id, *frames),
        claim if len(ends) > 1 else f"{' '.join(ends) or 'One rank'} fills {counted(len(picture.boxes), 'chip')}",
        picture.height,
        picture.marks(),
        frames or None,
        note=f"Each small square is a rank on {net.system.name}, ranks fill a chip first and then a tray or a row, and "
        f"each of the first {len(ACCENTS)} groups has a colour.",
        alt=f"{read.id} on {net.system.name} with {degrees or 'one rank'}: {int(m.ranks)} ranks on "
        f"{len(net.chips)} chips.",
    )


def groups(m: Mapping, name: str) -> list[list[int]]:
    """Return the groups of ranks of a degree, in order of their first rank.

    Examples
    --------
    >>> groups(Mapping(tp=2, ep=2), "ep")
    [[0, 2], [1, 3]]
    """
    stride, span = (int(x) for x in m.extent(name))
    starts = [block + offset for block in range(0, int(m.ranks), span) for offset in range(stride)]
    return [list(range(start, start + span, stride)) for start in starts]


def _share(model: Transformer, m: Mapping, name: str) -> str:
    """Return in words what a rank has of a model, for one degree."""
    degree, outline = int(getattr(m, name)), model.outline()
    if name == "tp":
        heads = max((a.heads for a in model.attentions()), default=0)
        each = f"{heads / degree:.3g} of {heads} attention heads" if heads >= degree else f"1/{degree} of the columns"
        return f"Each rank of a group computes {each}"
    if name == "ep" and outline.experts:
        whole, columns = degree * int(m.moe_ep), int(m.tp / m.moe_ep)
        held = f"at most {math.ceil(outline.experts / whole)} of {outline.experts} experts"
        return f"Each rank of a group holds {f'1/{columns} of each of ' if columns > 1 else ''}{held}"
    return {
        "ep": f"Each rank of a group serves 1/{degree} of the sequences",
        "cp": f"Each rank of a group keeps 1/{degree} of the context of a sequence",
        "pp": f"Each rank of a group holds {outline.layers / degree:.3g} of {outline.layers} layers",
        "dp": f"Each rank of a group serves another of {degree} copies of the model",
    }[name]


class _Ranks:
    """Ranks in the chips of a system: trays as rows and racks side by side, a torus as grids, else rows of eight."""

    def __init__(self, net: Topology, ranks: int) -> None:
        self.net, self.ranks = net, ranks
        self.titles: list[tuple[str, float]] = []
        self.boxes = self._trays() if net.system.fabric == "planes" else self._grids()
        self.bottom = max(y + h for _, y, _, h in self.boxes)
        self.height = self.bottom + 70

    def _trays(self) -> list[tuple[float, float, float, float]]:
        nodes, spec = self.net.graph.nodes, self.net.system
        trays, places, racks = int(spec.compute_trays_per_rack), int(spec.chips_per_tray), int(spec.racks)
        row, wide = min(max(350 / trays, 18), 26), (WIDTH - 30 * (racks - 1)) / racks / places
        span = places * wide + 30
        self.titles = [(f"Rack {rack + 1}", rack * span + places * wide / 2) for rack in range(racks)]
        boxes = []
        for chip in self.net.chips:
            data = nodes[chip]
            x = data["rack"] * span + (ord(data["position"]) - ord("A")) * wide
            boxes.append((x + 3, 30 + data["tray"] * row, wide - 6, row - 4))
        return boxes

    def _grids(self) -> list[tuple[float, float, float, float]]:
        spec = self.net.system
        count = len(self.net.chips)
        shape = (*spec.torus_shape, 1, 1)[:3] if spec.fabric == "torus" else (min(count, 8), math.ceil(count / 8), 1)
        apart = WIDTH / shape[2]
        cell = min((apart - (16 if shape[2] > 1 else 0)) / shape[0], 84 if shape[2] == 1 else 60)
        start = (apart - cell * shape[0]) / 2
        if shape[2] > 1:
            self.titles = [(f"{plane_noun(self.net)} {z + 1}", z * apart + apart / 2) for z in range(shape[2])]
        boxes = []
        for n in range(count):
            x, y, z = n % shape[0], n // shape[0] % shape[1], n // (shape[0] * shape[1])
            boxes.append((start + z * apart + x * cell + 2, 30 + y * cell, cell - 5, cell - 5))
        return boxes

    def rank(self, number: int, accent: Accent = "") -> str:
        """Return a rank within its chip."""
        chip, place = divmod(number, self.ranks)
        x, y, w, h = self.boxes[chip]
        columns = self.ranks if w > 2 * h else math.ceil(math.sqrt(self.ranks))
        rows = math.ceil(self.ranks / columns)
        wide, high = (w - 4) / columns, (h - 4) / rows
        at = x + 2 + place % columns * wide, y + 2 + place // columns * high
        return svg.rect(at[0] + 1, at[1] + 1, wide - 2, high - 2, accent=accent, radius=2)

    def marks(self) -> list[str]:
        """Return what stands in every frame."""
        marks = [svg.text(x, 18, said, size=15, bold=True) for said, x in self.titles]
        for x, y, w, h in self.boxes:
            corners = [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)]
            marks.append(svg.path(bent(corners, 2), faint=True, wide=1))
        return marks + [self.rank(number) for number in range(len(self.boxes) * self.ranks)]

    def frame(self, parts: list[list[int]], share: str) -> list[str]:
        """Return the first groups of a degree in colours of their own, and what they are in words."""
        lit = parts[: len(ACCENTS)]
        marks = [self.rank(n, accent) for accent, part in zip(ACCENTS, lit, strict=False) for n in part]
        chips = max(len({n // self.ranks for n in part}) for part in parts)
        size = f"{counted(len(parts), 'group')} of {len(parts[0])} ranks, each on {counted(chips, 'chip')}"
        marks.append(svg.text(WIDTH / 2, self.bottom + 30, size, size=18, bold=True))
        return [*marks, svg.text(WIDTH / 2, self.bottom + 56, share, size=17)]
