"""Where a joule, a dollar and a byte go: flows whose widths are in proportion to the parts of a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trnbook.drawings.amounts import name_of, number, percent, size
from trnbook.drawings.svg import WIDTH, Accent, Drawing, line, rect, text
from trnmodel.catalog import facilities
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.systems import chip_of
from trnmodel.cost.bill import NETWORK
from trnmodel.cost.tco import Cost
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.power.energy import Energy, RequestEnergy
from trnmodel.steps.inference import memory_fit
from trnmodel.steps.mapping import Mapping

TOP, TALL = 66.0, 300.0  # of the whole, and its height
FIRST, LAST, THICK = 16.0, 440.0, 12.0  # bars of the whole and of the last parts, and their thickness
SLOT, GAP = 46.0, 8.0  # height that two lines of text need, and room between parts
INSET, BAR = 16.0, 30.0  # margin of the bars of bytes, and their height
MOST_RANKS = 128  # ranks that are drawn one by one
ONCE = 1.05  # times below which bytes count as stored once
TURNS: tuple[Accent, ...] = ("b", "a", "c", "d", "e")
NO_INTEREST = 1e-12  # rate of an owner whose capital costs nothing; an owner has one above 0
KEYS = (0.0, 175.0, 335.0, 570.0)  # places of the key of a rank's memory
CHIP_PARTS = ("HBM", "logic, package and margin")


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a flow; one that is divided further is the sum of its parts."""

    name: str
    amount: float = 0.0
    accent: Accent = ""
    parts: tuple[Branch, ...] = field(default=())

    @property
    def total(self) -> float:
        """Its amount, or that of its parts."""
        return sum(one.total for one in self.parts) if self.parts else self.amount

    @property
    def depth(self) -> int:
        """How often it is divided."""
        return 1 + max(one.depth for one in self.parts) if self.parts else 0

    def ends(self) -> Iterator[Branch]:
        """Yield the parts that are divided no further, as they stand below each other."""
        for one in self.parts:
            yield from one.ends()
        if not self.parts:
            yield self


def where_a_joule_goes(energy: Energy | RequestEnergy) -> Drawing:
    """Return the energy per token from the site to what it is spent on, with widths in proportion.

    Parameters
    ----------
    energy : Energy or RequestEnergy
        Energy of a step, or of a request with its prompt; one point. [-]

    Returns
    -------
    drawing : Drawing
        Site, server and chip from left to right, each with what it loses. [-]

    Notes
    -----
    The parts are those of `chip_w`. It has no part for the links of a chip: their energy is among the idle power, and
    NICs and switches are among the host.

    Examples
    --------
    >>> import trnmodel as tm
    >>> step = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=64), batch=16, context=4352)
    >>> where_a_joule_goes(tm.energy(step)).caption
    '24 % of each joule computes or moves data'
    """
    runs, linked = _watts(energy), 0.0
    parts = dict.fromkeys(("compute", "memory", "idle", "supplies", "host", "site"), 0.0)
    for one, chip_s in runs:
        for name, watts in _spent(one).items():
            parts[name] += watts * chip_s
        linked += number(one, "links_w") * chip_s
    chip = Branch(
        "chip",
        parts=(
            Branch("compute", parts["compute"], "b"),
            Branch("memory (HBM)", parts["memory"], "c"),
            Branch("chip, idle", parts["idle"], ""),
        ),
    )
    server = Branch(
        "server",
        parts=(
            chip,
            Branch("supplies and fans", parts["supplies"], "e"),
            Branch("host, NICs, switches", parts["host"], "d"),
        ),
    )
    whole = Branch("site", parts=(server, Branch("cooling and conversion", parts["site"], "a")))
    used = (parts["compute"] + parts["memory"]) / whole.total
    first = runs[0][0]
    return _flow(
        name_of("joule", first.model.id, first.system.id),
        whole,
        lambda x: f"{x:.2g} J",
        caption=f"{percent(used)} of each joule computes or moves data",
        note="Each band is as wide as its energy per generated token, from the site (left) to its use (right).",
        foot=f"Links take too little to draw: {percent(linked / whole.total)}, from energies per byte.",
    )


def _watts(energy: Energy | RequestEnergy) -> list[tuple[Energy, float]]:
    """Return the energies that a token takes part in, each with its chip-seconds per token."""
    if isinstance(energy, Energy):
        return [(energy, 1 / number(energy, "tokens_per_s_per_chip"))]
    return [
        (one, number(energy, f"{name}_chip_s_per_token"))
        for name, one in (("prefill", energy.prefill), ("decode", energy.decode))
    ]


def _spent(energy: Energy) -> dict[str, float]:
    """Return the watts per chip by what they are spent on; they add up to those of the facility."""
    power = energy.question.power
    power = facilities.power(chip_of(energy.system)) if power is None else power
    chip, server = number(energy, "chip_w"), number(energy, "server_w")
    supplies = (float(power.server_ratio) - 1) * chip
    return {
        "compute": number(energy, "compute_w"),
        "memory": number(energy, "hbm_w"),
        "idle": number(energy, "idle_w"),
        "supplies": supplies,
        "host": server - chip - supplies,
        "site": number(energy, "facility_w") - server,
    }


def where_a_dollar_goes(cost: Cost) -> Drawing:
    """Return the cost of an owner's chip-hour by what it pays for, with widths in proportion.

    Parameters
    ----------
    cost : Cost
        Cost of one point. [-]

    Returns
    -------
    drawing : Drawing
        Server, network, building, capital, operations and electricity. [-]

    Notes
    -----
    The cost of capital is what an hour costs more than one without interest; servers, network and a building of the
    owner are drawn at their cost without it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> where_a_dollar_goes(tm.tco("trn2.48xlarge")).caption
    '19 % of the hour pays for the chips'
    """
    plain, total = _without_interest(cost), number(cost, "usd_per_h")
    capital = total - plain["usd_per_h"]
    server = plain["server_usd_per_h"]
    bought = {name: float(cost.parts_usd[name]) for name in CHIP_PARTS if name in cost.parts_usd}
    all_usd = sum(float(usd) for name, usd in cost.parts_usd.items() if name not in NETWORK)
    chips = server * sum(bought.values()) / all_usd
    rented = not np.isnan(cost.owner.colocation_usd_per_w_h)
    inner = (
        Branch(
            "servers", parts=(Branch("chips with HBM", chips, "b"), Branch("rest of the server", server - chips, "c"))
        )
        if bought
        else Branch("server as sold", server, "b")
    )
    whole = Branch(
        "chip-hour",
        parts=(
            inner,
            Branch("scale-out network", plain["network_usd_per_h"], "d"),
            Branch("rent of the building" if rented else "building", plain["site_usd_per_h"]),
            Branch("cost of capital", capital, "a"),
            Branch("operations", plain["operations_usd_per_h"], "c"),
            Branch("electricity", plain["energy_usd_per_h"], "e"),
        ),
    )
    paid, named = (chips, "chips") if bought else (server, "server")
    return _flow(
        name_of("dollar", cost.system.id, cost.owner.id),
        whole,
        lambda x: f"${x:.2f}" if x >= 0.1 else f"${x:.3f}",
        caption=f"{percent(paid / total)} of the hour pays for the {named}",
        note="Each band is as wide as its dollars per hour of a chip, with its share of rack, network and building.",
    )


def _without_interest(cost: Cost) -> dict[str, float]:
    """Return the dollars of the hour for an owner whose capital costs next to nothing, by part."""
    number(cost, "usd_per_h")
    figures = cost.recompute(owner=replace(cost.owner, rate_per_year=NO_INTEREST))
    return {name: float(x) for name, x in figures.items() if name.endswith("_usd_per_h") or name == "usd_per_h"}


def _flow(
    controls: str, whole: Branch, said: Callable[[float], str], *, caption: str, note: str, foot: str = ""
) -> Drawing:
    """Return a tree of flows: the whole on the left, its last parts below each other on the right."""
    scale = TALL / whole.total
    ends = [one for one in whole.ends() if one.total > 0]
    tops, y = dict[str, float](), TOP
    for one in ends:
        slot = max(one.total * scale, SLOT)
        tops[one.name] = y + (slot - one.total * scale) / 2
        y += slot + GAP
    columns = [FIRST + (LAST - FIRST) * i / whole.depth for i in range(whole.depth)]
    marks = list(_bands(whole, 0, TOP, scale, tops, columns))
    marks += _heads(whole, columns, said)
    for one in ends:
        top, tall = tops[one.name], one.total * scale
        middle = top + tall / 2
        marks.append(rect(LAST, top, THICK, tall, accent=one.accent, radius=0))
        marks.append(text(LAST + 22, middle - 3, one.name, anchor="start", size=18, bold=True))
        share = f"{said(one.total)} · {percent(one.total / whole.total)}"
        marks.append(text(LAST + 22, middle + 17, share, anchor="start", size=17))
    height = max(y, TOP + TALL) + 12
    if foot:
        marks.append(text(FIRST, height + 8, foot, anchor="start", size=17))
        height += 20
    parts = ", ".join(f"{one.name} {percent(one.total / whole.total)}" for one in ends)
    return Drawing(controls, caption, height, marks, note=note, alt=f"{whole.name}, {said(whole.total)}: {parts}")


def _heads(whole: Branch, columns: list[float], said: Callable[[float], str]) -> list[str]:
    """Return the names and amounts above the bars of what is divided further."""
    marks, one = list[str](), whole
    for x in columns:
        marks.append(text(x, TOP - 28, one.name, anchor="start", size=18, bold=True))
        marks.append(text(x, TOP - 8, said(one.total), anchor="start", size=17))
        one = one.parts[0]
    return marks


def _bands(
    one: Branch, depth: int, top: float, scale: float, tops: dict[str, float], columns: list[float]
) -> Iterator[str]:
    """Yield the bar of a part that is divided further, and the bands from it to its parts."""
    x = columns[depth]
    yield rect(x, top, THICK, one.total * scale, radius=0)
    y = top
    for part in one.parts:
        tall = part.total * scale
        if part.parts:
            yield band(x + THICK, y, columns[depth + 1], y, tall)
            yield from _bands(part, depth + 1, y, scale, tops, columns)
        elif tall > 0:
            yield band(x + THICK, y, LAST, tops[part.name], tall, part.accent)
        y += tall


def band(x: float, y: float, x2: float, y2: float, tall: float, accent: Accent = "") -> str:
    """Return a filled band of one height between two upright bars.

    Examples
    --------
    >>> band(0, 0, 10, 5, 2)
    '<path d="M0.0,0.0C5.0,0.0 5.0,5.0 10.0,5.0V7.0C5.0,7.0 5.0,2.0 0.0,2.0Z" class="head" opacity="0.12"/>'
    """
    half = (x + x2) / 2
    d = f"M{x:.1f},{y:.1f}C{half:.1f},{y:.1f} {half:.1f},{y2:.1f} {x2:.1f},{y2:.1f}V{y2 + tall:.1f}"
    d += f"C{half:.1f},{y2 + tall:.1f} {half:.1f},{y + tall:.1f} {x:.1f},{y + tall:.1f}Z"
    look = f'class="fill-{accent}" opacity="0.4"' if accent else 'class="head" opacity="0.12"'
    return f'<path d="{d}" {look}/>'


@dataclass(frozen=True, slots=True)
class Copies:
    """Bytes of the weights or of the cache: once, and on all ranks of a replica together."""

    name: str
    once: float
    held: float

    @property
    def times(self) -> float:
        """How often they are stored."""
        return self.held / self.once if self.once else 0.0


def where_a_byte_goes(
    model: str | Transformer = "llama-3.3-70b",
    system: str = "trn2.48xlarge",
    mapping: Mapping | None = None,
    *,
    batch: int = 16,
    context: int = 4608,
    precision: str | Precision = "bf16",
    efficiencies: Any = None,
) -> Drawing:
    """Return weights and cache of a model over the ranks of a replica: what is cut, what is copied, what is free.

    Parameters
    ----------
    model, system, precision, efficiencies
        As in `tm.memory_fit`. [-]
    mapping : Mapping, optional
        Degrees; default TP 64. [-]
    batch, context : int
        Sequences of the replica, and tokens of each. [-], [token]

    Returns
    -------
    drawing : Drawing
        Bars of the bytes on all ranks, the ranks that hold the same cache, and the memory of a rank. [-]

    Examples
    --------
    >>> where_a_byte_goes().caption
    '64 ranks store the cache 8 times, the weights 1.1'
    >>> where_a_byte_goes("deepseek-v3", batch=16, precision="fp8").caption
    '64 ranks store the cache 64 times, the weights 1.1'
    """
    chosen, bits = read_model(model), read_precision(precision)
    mapping = Mapping(tp=64) if mapping is None else mapping
    fit = memory_fit(chosen, system, mapping, batch=batch, context=context, precision=bits, efficiencies=efficiencies)
    ranks = round(float(mapping.replica_ranks))
    rank = {name: number(fit, f"{name}_bytes") for name in ("weight", "cache", "total", "capacity")}
    cached = batch * (float(chosen.kv_bytes(context, bits.kv)) + chosen.state_bytes())
    weights = Copies("weights", chosen.weight_bytes(bits), rank["weight"] * ranks)
    cache = Copies("cache", cached, rank["cache"] * ranks)
    marks = _copied((weights, cache), ranks)
    rows = -(-2 * ranks // MOST_RANKS) if ranks <= MOST_RANKS else 0
    marks += _ranks(cache, ranks, 166) + _rank_memory(rank, 220 + 28 * rows)
    return Drawing(
        name_of("byte", chosen.id, fit.system.id, ranks, batch),
        _copies_claim(weights, cache, ranks),
        300 + 28 * rows,
        marks,
        note="Bars are as long as their bytes: each once, then the copies and padding that all ranks hold together.",
        alt=f"{chosen.id}: weights {size(weights.once)} once, {size(weights.held)} on {ranks} ranks; "
        f"cache {size(cache.once)} once, {size(cache.held)} on all; a rank uses {size(rank['total'])} of "
        f"{size(rank['capacity'])}",
    )


def _copies_claim(weights: Copies, cache: Copies, ranks: int) -> str:
    """Return in a sentence how often the ranks store what."""
    if ranks == 1:
        return "One rank stores every byte once"
    if max(weights.times, cache.times) < ONCE:
        return f"{ranks} ranks store every byte about once"
    return f"{ranks} ranks store the cache {cache.times:.3g} times, the weights {weights.times:.2g}"


def _copied(stored: tuple[Copies, ...], ranks: int) -> list[str]:
    """Return a bar for each kind of bytes: once, and what all ranks hold more."""
    scale = (WIDTH - 2 * INSET) / max(one.held for one in stored)
    marks = list[str]()
    for one, y in zip(stored, (30, 104), strict=True):
        more = max(one.held - one.once, 0.0)
        said = f"{size(one.once)} once, {size(one.held)} on {ranks} ranks" if ranks > 1 else size(one.once)
        marks.append(text(INSET, y - 8, one.name, anchor="start", size=16, bold=True))
        marks.append(text(INSET + 92, y - 8, said, anchor="start", size=15))
        marks.append(rect(INSET, y, min(one.once, one.held) * scale, BAR, accent="b", radius=0))
        if more * scale >= 0.1:
            marks.append(rect(INSET + one.once * scale, y, more * scale, BAR, accent="a", radius=0))
    x = WIDTH - INSET
    for said, accent in (("copies and padding", "a"), ("once", "b")):
        x -= 8 * len(said)
        marks.append(text(x, 22, said, anchor="start", size=15))
        marks.append(rect(x - 20, 10, 14, 14, accent=accent, radius=0))  # type: ignore[arg-type]
        x -= 40
    return marks


def _ranks(cache: Copies, ranks: int, y: float) -> list[str]:
    """Return the ranks in a row, in groups that hold the same part of the cache."""
    share = cache.held / ranks / cache.once if cache.once else 0.0
    parts = round(1 / share) if share else 0
    whole = parts > 0 and abs(parts * share - 1) < 0.01 and ranks % parts == 0
    part = (
        ("the whole cache" if parts == 1 else f"1/{parts} of the cache") if whole else f"{percent(share)} of the cache"
    )
    said = f"each rank holds {part}"
    if whole and parts < ranks:
        said = f"each group of {ranks // parts} ranks holds the same {part}" if parts > 1 else f"each rank holds {part}"
    marks = [
        text(INSET, y, "ranks", anchor="start", size=17, bold=True),
        text(INSET + 92, y, said, anchor="start", size=16),
    ]
    if ranks > MOST_RANKS:
        return marks
    across = min(ranks, MOST_RANKS // 2)
    step = min((WIDTH - 2 * INSET) / across, 34.0)
    for i in range(ranks):
        group = i * parts // ranks if whole else 0
        last = whole and (i + 1) * parts % ranks == 0  # of its group
        place = INSET + i % across * step, y + 12 + i // across * 28
        gap = min(step / 2, 6.0) if last and parts < ranks else min(2.0, step / 4)
        marks.append(rect(*place, step - gap, 24, accent=TURNS[group % len(TURNS)], radius=1))
    return marks


def _rank_memory(rank: dict[str, float], y: float) -> list[str]:
    """Return the memory of a rank, and what fills it."""
    rest = rank["total"] - rank["weight"] - rank["cache"]
    free = rank["capacity"] - rank["total"]
    scale = (WIDTH - 2 * INSET) / max(rank["capacity"], rank["total"])
    said = (
        f"{size(rank['capacity'])} for each" if free >= 0 else f"{size(rank['capacity'])}, and {size(-free)} do not fit"
    )
    marks = [
        text(INSET, y - 8, "memory of a rank", anchor="start", size=16, bold=True),
        text(INSET + 180, y - 8, said, anchor="start", size=15),
    ]
    kinds: tuple[tuple[str, float, Accent], ...] = (
        ("weights", rank["weight"], "b"),
        ("cache", rank["cache"], "c"),
        ("buffers, code", rest, "e"),
        ("free", max(free, 0.0), ""),
    )
    x = INSET
    for i, (name, amount, accent) in enumerate(kinds):
        if amount > 0:
            marks.append(rect(x, y, amount * scale, BAR, accent=accent, radius=0))
        x += amount * scale
        key = INSET + KEYS[i]
        marks.append(rect(key, y + BAR + 14, 14, 14, accent=accent, radius=0))
        marks.append(text(key + 21, y + BAR + 26, f"{name} {size(amount)}", anchor="start", size=15))
    if free < 0:
        end = INSET + rank["capacity"] * scale
        marks.append(line(end, y - 4, end, y + BAR + 6, accent="a", wide=3))
    return marks
