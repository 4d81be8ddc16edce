"""One visual language: colour is generation, dash is topology, grey another vendor, hollow what is not measured.

Every builder asks here what a name looks like, and what a column is called; nothing else in `charts` chooses a colour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import cycle
from typing import NamedTuple
from zlib import crc32

from trnmodel.catalog import load, systems
from trnmodel.catalog.stacks import KINDS

GENERATIONS: Mapping[str, str] = {
    "trainium1": "#56B4E9",
    "trainium2": "#0072B2",
    "trainium3": "#D55E00",
    "trainium4": "#CC79A7",
    "inferentia2": "#009E73",
}
# for what is no machine: none of them is a generation's
PALETTE = ["#7B5EA7", "#B58900", "#1B9AAA", "#8C564B", "#6B8E23", "#C2185B", "#5C6BC0", "#A1887F", "#00695C", "#AD8FD3"]
STEP = 0.45  # of shades, from a system to the next: keeps those apart that are drawn together
SHADES: Mapping[str, tuple[float, float]] = {  # from black (-1) to white: two blues must not meet
    "trainium1": (0.0, 0.4),
    "trainium2": (-0.4, 0.15),
}
MOST_SHADES = (-0.5, 0.4)  # of other generations
DASHES: Mapping[str, list[int]] = {
    "switch": [1, 0],
    "planes": [1, 0],
    "torus": [7, 4],
    "mesh": [2, 3],
    "single": [1, 0],
}
DASHED: Mapping[str, str] = {"torus": "dashed: a torus", "mesh": "dotted: a full mesh"}
OTHER_DASHES = [[1, 0], [9, 4], [2, 3], [9, 3, 2, 3], [5, 2]]  # of what is no topology
LOOSE = "extrapolated"  # the basis that is drawn hollow
BAND_OPACITY, MANY_BANDS, FAINT_BAND = 0.18, 3, 0.08

PERCENT: Mapping[str, str] = {
    "error": "+.0%",
    **dict.fromkeys(
        (
            "share",
            "time_share",
            "goodput",
            "lost_share",
            "availability",
            "median_error",
            "coverage",
            "collective_share",
            "send_over_prefill",
        ),
        "~%",
    ),
}


# What other readings of a system are called, and the groups of its chips where one fills a cell.
READINGS: Mapping[str, str] = {
    "trn3-torus-144": "Trainium3 3D Torus 144",
    "fifth-switch-tray": "with a fifth switch tray",
}
SCOPES: Mapping[str, str] = {"world": "whole domain", "twins": "twins of both racks"}


@cache
def _names() -> Mapping[str, str]:
    """Return what a person calls each chip and system, by its id."""
    specs = [*map(load.chip, load.chips()), *map(systems.system, systems.systems())]
    return {spec.id: spec.name for spec in specs if spec.id != spec.name} | dict(READINGS)


@cache
def _ids() -> re.Pattern[str]:
    longest_first = sorted(_names(), key=len, reverse=True)
    return re.compile(rf"(?<![\w./`-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])")


def called(value: object) -> object:
    """Return a cell in which chips and systems go by their names; numbers and addresses as they are.

    Examples
    --------
    >>> called("trn3-nl72x2-pcie160"), called("world"), called("bf16"), called(3)
    ('Trainium3 NL72x2 Switched', 'whole domain', 'bf16', 3)
    """
    return SCOPES.get(value) or named(value) if isinstance(value, str) and "://" not in value else value


def named(text: str) -> str:
    """Return a sentence in which chips and systems go by the names that a person uses; code keeps its ids.

    Examples
    --------
    >>> named("trn3-nl32x2-torus, 2 x trainium1 and `trn3-nl32x2-torus`")
    'Trainium3 NL32x2 3D Torus, 2 x Trainium1 and `trn3-nl32x2-torus`'
    """
    return _ids().sub(lambda match: _names()[match[0]], text)


class Machine(NamedTuple):
    """What a label names: chip, topology (none of a chip alone), and which of its generation's systems it is."""

    chip: str = ""
    fabric: str = ""
    number: int = 0


@cache
def _machines() -> Mapping[str, Machine]:
    """Machines by every name, lower case, under which they are drawn."""
    machines: dict[str, Machine] = {}
    for name in load.chips():
        chip = load.chip(name)
        machines |= dict.fromkeys((chip.id.lower(), chip.name.lower()), Machine(chip.id))
    count = dict[str, int]()
    for name in systems.systems():
        spec = systems.system(name)
        kin = spec.chip.id if spec.chip.id in GENERATIONS else ""
        count[kin] = count.get(kin, 0) + 1
        machines |= dict.fromkeys((spec.id.lower(), spec.name.lower()), Machine(spec.chip.id, spec.fabric, count[kin]))
    return machines


def machine(name: str) -> Machine:
    """Return what a label names: a chip, a system, or a variant of one that begins with its generation.

    Examples
    --------
    >>> machine("Trainium1").chip, machine("trn3-nl32x2-torus")[:2], machine("trn3-torus-144")[:2], machine("BF16")[:2]
    ('trainium1', ('trainium3', 'torus'), ('trainium3', 'torus'), ('', ''))
    """
    label = str(name).lower()
    if label in _machines():
        return _machines()[label]
    full = label.replace("trn", "trainium").replace("inf2", "inferentia2")
    chip = next((key for key in GENERATIONS if full.startswith(key)), "")
    return Machine(chip, "torus" if chip and "torus" in label else "", crc32(label.encode()) % 97 if chip else 0)


def colours(names: Sequence[str]) -> list[str]:
    """Return a colour for each name, the same in every chart for a machine.

    A chip has its generation's, a system a shade of it that is its own, a machine of another vendor a grey, a kind of
    software its own; the rest take theirs from the palette in turn.

    Examples
    --------
    >>> colours(["trainium2", "read", "written"]) == [GENERATIONS["trainium2"], *PALETTE[:2]]
    True
    >>> colours(["ideal", "read", "public"]) == [PALETTE[2], PALETTE[1], PALETTE[0]]
    True
    >>> colours(["h100"])[0][1:3] * 3 == colours(["h100"])[0][1:]
    True
    """
    own = {kind: PALETTE[place] for place, kind in enumerate(reversed(KINDS)) if kind in names}
    free = (colour for colour in cycle(PALETTE) if colour not in own.values())
    return [own.get(name) or (_colour(it) if (it := machine(name)).chip else next(free)) for name in names]


def _colour(it: Machine) -> str:
    shade = math.fmod(STEP + it.number * STEP, 1.0) if it.number else STEP
    if it.chip not in GENERATIONS:
        return "#" + f"{round(100 + 80 * shade):02x}" * 3
    low, high = SHADES.get(it.chip, MOST_SHADES)
    return _shade(GENERATIONS[it.chip], low + (high - low) * shade if it.number else 0.0)


def _shade(colour: str, towards: float) -> str:
    """Return a colour mixed with white, or with black for a share below zero.

    >>> _shade("#0072B2", 0.0), _shade("#000000", 0.5), _shade("#FFFFFF", -1.0)
    ('#0072B2', '#808080', '#000000')
    """
    if not towards:
        return colour
    end = 255 if towards > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (end - part) * abs(towards)):02x}" for part in parts)


def dashes(names: Sequence[str]) -> list[list[int]] | None:
    """Return the dash of each name's topology; None where names are no systems.

    Examples
    --------
    >>> dashes(["trn3-nl32x2-torus", "trn3-nl32x2-pcie160"]), dashes(["bf16", "fp8"])
    ([[7, 4], [1, 0]], None)
    """
    fabrics = [machine(name).fabric for name in names]
    return [DASHES.get(fabric, [1, 0]) for fabric in fabrics] if any(fabrics) else None


def dashed(names: Iterable[str]) -> list[str]:
    """Return what a note says of the dashes of these names.

    Examples
    --------
    >>> dashed(["trn3-nl32x2-torus", "mi300x-8", "gb200-nvl72"])
    ['dashed: a torus', 'dotted: a full mesh']
    """
    fabrics = {machine(name).fabric for name in names}
    return [note for fabric, note in DASHED.items() if fabric in fabrics]
