"""What a rack counts against what the sources print, what an assumption changes, and what a failure costs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from trnmodel.arguments import listed
from trnmodel.catalog import load
from trnmodel.catalog.systems import System, bases
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric.build import MEDIA, chip_name, plane_of
from trnmodel.fabric.graph import Topology, topology

if TYPE_CHECKING:
    import pandas as pd


class Assumption(msgspec.Struct, frozen=True):
    """A row of `data/systems/fabric_assumptions.csv`: another reading of a silent or contradictory source."""

    id: str
    systems: str
    change: str
    about: str
    chosen: str
    source: str
    locator: str
    reason: str


def parts(system: str | System) -> dict[str, tuple[float, str]]:
    """Return the bill of materials of one scale-up domain, each part with the arithmetic that counted it.

    Chips, switches, lanes and links are counted on the graph; the rest is trays times what a tray holds. A domain may
    be half a rack; of one whose racks no source counts, the chips per rack are not known.

    Examples
    --------
    >>> parts("trn3-nl72x2-pcie160")["switches per rack"]
    (184.0, '40 + 144')
    """
    net = topology(system)
    spec = net.system
    racks = len({rack for _, rack in net.graph.nodes(data="rack")})
    counted = {
        "chips": (float(len(net.chips)), "chips of the graph"),
        "chips per rack": (len(net.chips) / spec.racks, f"{len(net.chips)} / {spec.racks:g}"),
        "compute trays": (spec.compute_trays, f"{spec.racks:g} racks x {spec.compute_trays_per_rack:g}"),
        "host CPUs": (spec.host_cpus, "compute and CPU trays x CPUs of each"),
        "retimers": (spec.compute_trays * spec.retimers_per_tray, f"trays x {spec.retimers_per_tray:g}"),
        "NICs of chips": (spec.nics, "chips x rate of a chip / rate of a NIC"),
        "NICs of CPUs": (spec.cpu_nics, "compute and CPU trays x NICs of each that are the CPUs' own"),
        "DIMM slots": (spec.host_cpus * spec.dimm_slots_per_cpu, f"CPUs x {spec.dimm_slots_per_cpu:g}"),
        "PCIe gearboxes": (spec.host_cpus * spec.pcie_gearboxes_per_cpu, f"CPUs x {spec.pcie_gearboxes_per_cpu:g}"),
        **_lanes(net),
        **(_switches(net, racks) if spec.fabric == "planes" else {}),
    }
    return {part: count for part, count in counted.items() if not math.isnan(count[0])}


def _lanes(net: Topology) -> dict[str, tuple[float, str]]:
    wired: dict[str, float] = defaultdict(float)
    links: Counter[str] = Counter()
    for *_, data in net.graph.edges(data=True):
        wired[data["medium"]] += data["lanes"]
        links[data["medium"]] += 1
    spec = net.system
    if spec.fabric != "planes":
        cables = 2 * wired["backplane"] or math.nan
        aecs = {"AEC links": (float(links["aec"]), "links of the third dimension")} if links["aec"] else {}
        return {"copper cables": (cables, f"2 ends x {wired['backplane']:g} backplane lanes between chips"), **aecs}
    active, spare = spec.scaleup_lanes["backplane"], spec.scaleup_lanes_redundant
    total = sum(spec.scaleup_lanes[medium] for medium in MEDIA)
    return {
        "copper cables": (len(net.chips) * (active + spare), f"{len(net.chips)} chips x ({active:g} + {spare:g})"),
        "backplane lanes that end at a switch": (wired["backplane"], "lanes of the graph"),
        "AEC links": (float(links["cross-rack"]), "x16 links of the graph"),
        "lanes per chip": (total + spare, f"{total:g} + {spare:g}"),
        "active lanes per chip": (total, " + ".join(f"{spec.scaleup_lanes[medium]:g}" for medium in MEDIA)),
        "backplane differential pairs per chip": (2 * (active + spare), f"2 x ({active:g} + {spare:g})"),
        "cross-rack share of backplane": (spec.scaleup_lanes["cross-rack"] / active, f"16 / {active:g} active lanes"),
    }


def _switches(net: Topology, racks: int) -> dict[str, tuple[float, str]]:
    rack, board = (net.switch_counts.get(medium, 0) / racks for medium in ("backplane", "pcb"))
    used = max(net.graph.degree(n) for n, d in net.graph.nodes(data=True) if d.get("medium") == "backplane")
    spec, part = net.system, net.system.switch
    assert part is not None  # a fabric of planes names its switch
    ports = part.switch_ports if math.isnan(part.switch_lanes) else part.switch_lanes // spec.port_lanes
    widths = (spec.port_lanes, spec.port_lanes / 2)
    return {
        "rack switches per rack": (rack, "switch trays of the graph"),
        "board switches per rack": (board, "compute trays of the graph"),
        "switches per rack": (rack + board, f"{rack:g} + {board:g}"),
        "switches": ((rack + board) * racks, f"{racks} x {rack + board:g}"),
        "ports used per rack switch": (float(used), "links of the graph"),
        "spare ports per rack switch": (ports - used, f"{ports:g} - {used}"),
        **{
            f"x{n:g} ports of a rack switch": (part.switch_lanes // n, f"{part.switch_lanes:g} / {n:g}") for n in widths
        },
    }


def _agrees(counted: float, printed: str) -> bool:
    """Tell whether a count equals what is printed, to the digits printed where the source says "about"."""
    value = load.parse_number(printed)[0]
    digits = len(printed.strip("~").replace(",", "").rstrip("0"))
    rounded = float(f"{counted:.{max(digits, 1) - 1}e}") if printed.startswith("~") else counted
    return math.isclose(rounded, value)


def _printed(system_id: str, *quantities: str) -> dict[str, load.Fact]:
    """Return the facts of these quantities by qualifier, the system's own before those of its bases."""
    chain = bases(system_id)[::-1]
    facts = [fact for fact in load.facts_rows().values() if fact.quantity in quantities and fact.entity in chain]
    return {fact.qualifier: fact for fact in sorted(facts, key=lambda fact: chain.index(fact.entity))}


def _verdict(system_id: str, counted: float, fact: load.Fact) -> str:
    if _agrees(counted, fact.value_printed):
        return "inferred" if fact.quantity == "inferred_hops" else "agrees"
    own = fact.entity == system_id or load.entities()[fact.entity].kind != "system"
    return "disagrees" if own else f"printed for {fact.entity}"


def _compared(
    system_id: str, counted: Mapping[str, tuple[float, str]], printed: Mapping[str, load.Fact]
) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for name, (value, how) in counted.items():
        fact = printed.get(name)
        verdict = _verdict(system_id, value, fact) if fact else "not printed"
        said = (_as_printed(fact), fact.source, fact.locator, fact.note) if fact else ("",) * 4
        rows.append((name, value, how, verdict, *said))
    return pd.DataFrame(rows, columns=["part", "counted", "how", "verdict", "printed", "source", "locator", "note"])


def _as_printed(fact: load.Fact) -> str:
    return f"{fact.value_printed} {fact.unit_printed}".removesuffix(" 1")


def parts_table(system: str | System) -> pd.DataFrame:
    """Return counted parts next to printed ones, with the verdict.

    Returns
    -------
    table : pandas.DataFrame
        part, counted, how, verdict ("agrees", "disagrees", "not printed", or the system it was printed for), printed,
        source, locator, note.
    """
    spec = find_system(system)
    return _compared(spec.id, parts(spec), _printed(spec.id, "printed_parts"))


def paths(net: Topology) -> dict[str, list[str]]:
    """Return the nodes on the deep dive's paths A, B and C, those that a rack has; none in a torus.

    Examples
    --------
    >>> paths(topology("trn3-nl32x2-pcie160"))["A"][::2]
    ['rack0/tray0/A', 'rack0/tray1/A']
    """
    if net.system.fabric != "planes":
        return {}
    letters = list(plane_of(net.system))
    start, other = chip_name(0, 0, letters[0]), letters[len(letters) // 2]
    ends = {"A": chip_name(0, 1, letters[0]), "B": chip_name(0, 1, other), "C": chip_name(1, 1, other)}
    return {name: net.path(start, end) for name, end in ends.items() if end in net.graph}


def hops_table(system: str | System) -> pd.DataFrame:
    """Return intermediate hops of the deep dive's paths A, B and C and of the farthest pair, next to the printed ones.

    Path A ends at the same letter of the next tray, B at the letter half a tray further, C there in the other rack; a
    torus has no such paths. Where a source says how chips are connected and prints no number, the verdict is
    "inferred".
    """
    net = topology(system)
    counted = {f"path {name}": (len(path) - 2.0, " > ".join(path)) for name, path in paths(net).items()}
    farthest = float(max(net.hop_histogram("intermediate", "rack"), default=0))
    counted["rack maximum"] = (farthest, "all pairs of a rack")
    return _compared(net.system.id, counted, _printed(net.system.id, "printed_hops", "inferred_hops"))


def capacities(net: Topology) -> dict[str, float]:
    """Return the rates in B/s that a fabric carries, by which failures are judged."""
    return {
        "injection_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
        "bisection_bytes_per_s_per_dir": net.bisection_bytes_per_s_per_dir,
        "rack_all_to_all_bytes_per_s_per_pair": net.all_to_all_bytes_per_s_per_pair("rack"),
        "all_to_all_bytes_per_s_per_pair": net.all_to_all_bytes_per_s_per_pair(),
    }


def metrics(net: Topology) -> dict[str, float]:
    """Return the counts and the rates in B/s by which assumptions are judged."""
    return {
        "switches": float(sum(net.switch_counts.values())),
        "diameter": net.diameter,
        "mean_hops": net.mean_hops,
        "rack_intermediate_hops": max(net.hop_histogram("intermediate", "rack"), default=0),
        **capacities(net),
    }


@cache
def assumptions() -> list[Assumption]:
    """Return other readings of the sources, from `data/systems/fabric_assumptions.csv`."""
    return load.read_csv(load.DATA / "systems" / "fabric_assumptions.csv", Assumption)


def altered(system: System, change: str) -> System:
    """Return a system with fields replaced as an assumption's `change` says: "field=value; field[key]=value"."""
    fields: dict = {}
    for label, text in (part.strip().split("=") for part in change.split(";")):
        name, _, key = label.rstrip("]").partition("[")
        now = fields.get(name, getattr(system, name))
        plain = type(now) if isinstance(now, int | float) else str
        fields[name] = {**now, key: float(text)} if isinstance(now, Mapping) else plain(text)
    return replace(system, **fields)


def alternatives(system: str | System) -> dict[str, System]:
    """Return a system by each other reading that concerns it; the id of the reading names it.

    Examples
    --------
    >>> dict(alternatives("trn3-nl32x2-torus")["trn3-torus-144"].scaleup_bytes_per_s_per_dir)["ultraserver"]
    128000000000.0
    """
    spec = find_system(system)
    mine = [item for item in assumptions() if any(fnmatch(spec.id, pattern) for pattern in item.systems.split())]
    return {item.id: replace(altered(spec, item.change), id=item.id) for item in mine}


def failures(net: Topology) -> dict[str, Topology]:
    """Return the fabric after one failure of each kind that it can have, by name."""
    chip = net.chips[0]
    cases: dict[str, dict] = {}
    for other, data in net.graph[chip].items():
        if not math.isnan(data["lanes"]):
            cases.setdefault(f"one {data['medium']} lane", {"lanes": {(chip, other): 1}})
        cases.setdefault(f"one {data['medium']} link", {"links": [(chip, other)]})
        if net.graph.nodes[other]["kind"] == "switch":
            cases.setdefault(f"one {data['medium']} switch", {"switches": [other]})
    if net.system.switch_trays_per_rack:
        cases["one switch tray"] = {"switch_trays": [(0, 0)]}
    return {name: net.without(**what) for name, what in cases.items()}


def lost(names: Iterable[str | System]) -> pd.DataFrame:
    """Return the share of a rack's all-to-all that one lost part leaves: a row per failure, a column per system.

    1 where a spare takes over; NaN where a system has no such part.

    Examples
    --------
    >>> table = lost(["trn3-nl32x2-pcie160"]).set_index("failure")
    >>> float(table["trn3-nl32x2-pcie160"]["one switch tray"])
    0.75
    """
    import pandas as pd

    shares = {}
    for net in map(topology, listed("names", names)):
        whole = net.all_to_all_bytes_per_s_per_pair("rack")
        shares[net.system.id] = {
            name: after.all_to_all_bytes_per_s_per_pair("rack") / whole for name, after in failures(net).items()
        }
    return pd.DataFrame(shares).rename_axis("failure").reset_index()


def shares_left(system: str | System) -> pd.DataFrame:
    """Return the share of each capacity that one lost part leaves: a row per failure, a column per capacity.

    The share is 1 where nothing is lost.

    Examples
    --------
    >>> table = shares_left("trn3-nl72x2-pcie160").set_index("failure")
    >>> float(table.all_to_all["one cross-rack link"]) == 71 / 72
    True
    """
    import pandas as pd

    net = topology(system)
    whole, rows = capacities(net), list[dict]()
    for failure, after in failures(net).items():
        left = capacities(after)
        shares = {name.partition("_bytes_per_s")[0]: left[name] / value for name, value in whole.items()}
        rows.append({"failure": failure} | shares)
    return pd.DataFrame(rows)


def readings(system: str | System) -> pd.DataFrame:
    """Return other readings of the sources, and which metrics they change by how much.

    Examples
    --------
    >>> readings("trn3-nl72x2-pcie160").columns.tolist()
    ['assumption', 'about', 'chosen', 'reason', 'changes']
    """
    import pandas as pd

    spec = find_system(system)
    default, known, rows = metrics(topology(spec)), {item.id: item for item in assumptions()}, []
    for name, other in alternatives(spec).items():
        read, item = metrics(topology(other)), known[name]
        moved = [key for key, value in default.items() if not math.isclose(read[key], value, rel_tol=1e-6)]
        changes = [
            f"{key.replace('_bytes_per_s', '').replace('_', ' ')} x {read[key] / default[key]:.3g}" for key in moved
        ]
        rows.append((name, item.about, item.chosen, item.reason, "; ".join(changes) or "nothing"))
    return pd.DataFrame(rows, columns=["assumption", "about", "chosen", "reason", "changes"])
