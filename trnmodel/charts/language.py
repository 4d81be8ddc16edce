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

WORDS: Mapping[str, str] = {
    "tokens_per_s_per_user": "Speed for a user",
    "tokens_per_s_per_chip": "Throughput of a chip",
    "tokens_per_s": "Throughput",
    "run_days": "Days of the run",
    "usd_per_mtoken": "Cost",
    "usd_per_h": "An hour of a chip",
    "printed_usd_per_h": "The same as printed",
    "usd": "A chip",
    "tie_usd_per_h": "Rent of a chip-hour at a tie",
    "against": "Ties with",
    "server_j_per_token": "Energy of a token at the server",
    "chip_w": "Power of a chip",
    "speed_ratio": "Speed of a chip, times the older one's",
    "efficiency_ratio": "Work for each joule, times the older one's",
    "message_bytes": "Message",
    "busbw_bytes_per_s": "Bus bandwidth",
    "all_to_all_bytes_per_s": "All-to-all of a chip",
    "hbm_bytes_per_s": "HBM bandwidth",
    "bandwidth_bytes_per_s": "Bandwidth",
    "intensity_flop_per_byte": "Arithmetic intensity",
    "ridge_flop_per_byte": "Ridge point",
    "attainable_flop_per_s": "Attainable rate",
    "peak_flop_per_s": "Peak",
    "bf16_flop_per_s": "Peak in BF16",
    "fp8_flop_per_s": "Peak in FP8",
    "links_bytes_per_s_per_dir": "Links of a chip, one way",
    "rate_flop_per_s": "Rate",
    "ceiling_flop_per_s": "Ceiling",
    "measured_s": "Measured time",
    "predicted_s": "Predicted time",
    "crossover_bytes": "Send buffer",
    "step_s": "Time in a step",
    "layer_s": "Time in a layer",
    "end_s": "Time since the first request",
    "worst_s": "Latency of the worst pair",
    "busy_s": "Busy time",
    "stored_bytes": "Stored",
    "capacity_bytes": "Capacity",
    "cache_bytes": "Cache",
    "read_bytes": "Read",
    "row_bytes": "Length of a row",
    "scratchpad_bytes": "Scratchpad",
    "bytes_per_token": "Bytes of a token",
    "times_needed": "Times what is needed",
    "speed_over_bf16": "Speed over BF16",
    "switch_bits_per_s": "Capacity of a switch",
    "send_over_prefill": "Sending over prefill",
    "scaleup_over_scaleout": "Scale-up over scale-out",
    "optics_per_chip": "Optical modules a chip",
    "endpoints": "NIC ports that are reached",
    "total_params": "Parameters in all",
    "trillion": "Parameters in all [trillion]",
    "stored_over_needed": "Stored over what is needed once",
    "measured_over_predicted": "Measured over predicted",
    "ratio": "Ratio",
    "share": "Share",
    "time_share": "Share of the time of all chips",
    "goodput": "Useful share of the time",
    "lost_share": "Time that is lost",
    "interval_min": "Useful time between checkpoints [min]",
    "link_failures": "Failures of a link in a million hours",
    "repair_h": "Time to repair a drained rack",
    "error": "Signed error",
    "median_error": "Median error",
    "side": "Side of the square",
    "m": "Rows of the product",
    "tokens_per_expert": "Tokens an expert",
    "tokens_per_chip": "Tokens a chip",
    "prompt_tokens": "Tokens of the prompt",
    "input_tokens": "Tokens of the prompt",
    "tokens": "Tokens of the prompt",
    "context": "Context in tokens",
    "batch": "Sequences in the batch",
    "collective_share": "Share that collectives take",
    "slowdown": "Slowdown",
    "switches": "Switches",
    "chips": "Chips",
    "chunk_tokens": "Tokens of a chunk",
    "batch_per_chip": "Users of a chip",
    "network_s": "Time of the collectives",
    "acceptance": "Share of the drafted tokens that is kept",
    "speedup": "Times as fast",
    "requests_per_s": "Requests that arrive",
    "output_tokens": "Tokens of an answer",
    "prefill_chips_per_decode_chip": "Chips for prefill a chip for decode",
    "between": "Switches and chips between",
    "experts_over": "Experts spread over",
    "lnc": "LNC",
    "tp": "TP",
    "dtype": "Number format",
    "scope": "All-to-all within",
    "kind": "Kind",
    "part": "Part",
    "rule": "Rule",
    "from": "Bytes from",
    "tier": "Counted as",
    "wanted_tokens_per_s_per_user": "Speed wanted for a user",
    **dict.fromkeys(("what", "of", "which", "held", "series", "way", "level", "group"), ""),
}  # what an axis or a legend calls a column; "" says that its values speak for themselves

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
    """What a person calls each chip and system, by its id."""
    specs = [*map(load.chip, load.chips()), *map(systems.system, systems.systems())]
    return {spec.id: spec.name for spec in specs if spec.id != spec.name} | dict(READINGS)


@cache
def _ids() -> re.Pattern[str]:
    longest_first = sorted(_names(), key=len, reverse=True)
    return re.compile(rf"(?<![\w./`-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])")


def called(value: object) -> object:
    """A cell in which chips and systems go by their names; numbers and addresses as they are.

    Examples
    --------
    >>> called("trn3-nl72x2-pcie160"), called("world"), called("bf16"), called(3)
    ('Trainium3 NL72x2 Switched', 'whole domain', 'bf16', 3)
    """
    return SCOPES.get(value) or named(value) if isinstance(value, str) and "://" not in value else value


def named(text: str) -> str:
    """A sentence in which chips and systems go by the names that a person uses; what stands as code keeps its id.

    Examples
    --------
    >>> named("trn3-nl32x2-torus, 2 x trainium1 and `trn3-nl32x2-torus`")
    'Trainium3 NL32x2 3D Torus, 2 x Trainium1 and `trn3-nl32x2-torus`'
    """
    return _ids().sub(lambda found: _names()[found[0]], text)


class Machine(NamedTuple):
    """What a label names: chip, topology (none of a chip alone), and which of its generation's systems it is."""

    chip: str = ""
    fabric: str = ""
    number: int = 0


@cache
def _machines() -> Mapping[str, Machine]:
    """Machines by every name, lower case, under which they are drawn."""
    found: dict[str, Machine] = {}
    for name in load.chips():
        chip = load.chip(name)
        found |= dict.fromkeys((chip.id.lower(), chip.name.lower()), Machine(chip.id))
    count = dict[str, int]()
    for name in systems.systems():
        spec = systems.system(name)
        kin = spec.chip.id if spec.chip.id in GENERATIONS else ""
        count[kin] = count.get(kin, 0) + 1
        found |= dict.fromkeys((spec.id.lower(), spec.name.lower()), Machine(spec.chip.id, spec.fabric, count[kin]))
    return found


def machine(name: str) -> Machine:
    """What a label names: a chip, a system, or a variant of one that begins with its generation.

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
    """A colour for each name, the same in every chart for a machine.

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
    """A colour mixed with white, or with black for a share below zero.

    >>> _shade("#0072B2", 0.0), _shade("#000000", 0.5), _shade("#FFFFFF", -1.0)
    ('#0072B2', '#808080', '#000000')
    """
    if not towards:
        return colour
    end = 255 if towards > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (end - part) * abs(towards)):02x}" for part in parts)


def dashes(names: Sequence[str]) -> list[list[int]] | None:
    """The dash of each name's topology; None where names are no systems.

    Examples
    --------
    >>> dashes(["trn3-nl32x2-torus", "trn3-nl32x2-pcie160"]), dashes(["bf16", "fp8"])
    ([[7, 4], [1, 0]], None)
    """
    fabrics = [machine(name).fabric for name in names]
    return [DASHES.get(fabric, [1, 0]) for fabric in fabrics] if any(fabrics) else None


def dashed(names: Iterable[str]) -> list[str]:
    """What a note says of the dashes of these names.

    Examples
    --------
    >>> dashed(["trn3-nl32x2-torus", "mi300x-8", "gb200-nvl72"])
    ['dashed: a torus', 'dotted: a full mesh']
    """
    fabrics = {machine(name).fabric for name in names}
    return [words for fabric, words in DASHED.items() if fabric in fabrics]
