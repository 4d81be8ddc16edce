"""One visual language: a machine has its colour, dash is topology, grey is not highlighted, hollow is not measured.

Every builder asks here what a name looks like, and what a column is called; nothing else in `charts` chooses a colour.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import cycle
from typing import NamedTuple

from trnmodel.catalog import load, systems
from trnmodel.catalog.stacks import KINDS

GENERATIONS: Mapping[str, str] = {
    "trainium1": "#56B4E9",
    "trainium2": "#0072B2",
    "trainium3": "#D55E00",
    "trainium4": "#CC79A7",
    "inferentia2": "#009E73",
}
OWN: Mapping[str, str] = {  # of generations, of systems that stand beside another of theirs, and of other chips
    **GENERATIONS,
    "trn2-ultraserver": "#1080F0",
    "trn3-nl32x2-pcie160": "#C09000",
    "trn3-nl32x2-torus": "#705000",
    "h100": "#604060",
    "h200": "#8050C0",
    "b200": "#107070",
    "gb200": "#407010",
    "mi300x": "#A090E0",
    "mi355x": "#D02080",
}
# What is no machine takes these in turn, and so does a machine whose colour another has. Any two colours here are at
# least 20 apart in CIE Lab (Delta E of 1976), on a white page and as a dark one shows them.
PALETTE = ["#8050C0", "#C09000", "#107070", "#C07060", "#407010", "#D02080", "#1080F0", "#705000", "#50C050", "#604060"]
PALETTE += ["#F04060", "#A090E0", "#A0B010"]
LIGHT = 0.4  # of a colour on a dark page, at least, of white; `charts.js` has it too
GREY = "#9A9A9A"  # of what is not highlighted
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
    specs = [*map(load.chip, load.chips()), *map(systems.system, systems.systems(roadmap=True))]
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
    """What a label names: chip, topology (none of a chip alone), and id; all are empty where it is no machine."""

    chip: str = ""
    fabric: str = ""
    id: str = ""


@cache
def _machines() -> Mapping[str, Machine]:
    """Machines by every name, lower case, under which they are drawn."""
    machines: dict[str, Machine] = {}
    for name in load.chips():
        chip = load.chip(name)
        machines |= dict.fromkeys((chip.id.lower(), chip.name.lower()), Machine(chip.id, id=chip.id))
    for name in systems.systems():
        spec = systems.system(name)
        machines |= dict.fromkeys((spec.id.lower(), spec.name.lower()), Machine(spec.chip.id, spec.fabric, spec.id))
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
    return Machine(chip, "torus" if chip and "torus" in label else "", label if chip else "")


def colours(names: Sequence[str], highlight: Collection[str] = ()) -> list[str]:
    """Return a colour for each name; those that are not highlighted are grey where some are.

    A machine has its own colour, or that of its chip, a kind of software its own; the rest, and a machine whose colours
    others of the chart have, take theirs from the palette in turn.

    Examples
    --------
    >>> colours(["trainium2", "read", "written"]) == [GENERATIONS["trainium2"], *PALETTE[:2]]
    True
    >>> colours(["ideal", "read", "public"]) == [PALETTE[2], PALETTE[1], PALETTE[0]]
    True
    >>> colours(["Trn2 UltraServer", "trn2.48xlarge", "h100"], ["h100"]) == [GREY, GREY, OWN["h100"]]
    True
    """
    shown = [name for name in dict.fromkeys(names) if not highlight or name in highlight]
    looks = {kind: PALETTE[place] for place, kind in enumerate(reversed(KINDS)) if kind in shown}
    for name in shown:
        it = machine(name)
        taken = looks.values()
        own = next((OWN[key] for key in (it.id, it.chip) if OWN.get(key, GREY) not in (GREY, *taken)), None)
        if name not in looks and own:
            looks[name] = own
    free = cycle([colour for colour in PALETTE if colour not in looks.values()] or PALETTE)
    return [GREY if name not in shown else looks.get(name) or looks.setdefault(name, next(free)) for name in names]


def on_dark(colour: str) -> str:
    """Return a hex colour as a dark page shows it, by the rule of `charts.js`: with white until it is light enough.

    Examples
    --------
    >>> on_dark("#0072B2"), on_dark("#D55E00")
    ('#177fb9', '#d55e00')
    """
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    light = sum(weight * part for weight, part in zip((0.3, 0.59, 0.11), parts, strict=True)) / 255
    white = max(0.0, (LIGHT - light) / (1 - light))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


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
