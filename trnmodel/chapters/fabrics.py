"""Fabrics compared: how far, how fast and with what delay chips reach each other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, listed, numbers, refuse
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.fabric import flow
from trnmodel.fabric import what_if as audit
from trnmodel.fabric.collectives import BUFFERS, collective
from trnmodel.fabric.graph import Topology, topology

if TYPE_CHECKING:
    import pandas as pd

SCOPES = ("rack", "world")
STACK, SWITCH = "neuron-stack", "pcie-switch"


@cache
def _topology(spec: System) -> Topology:
    return topology(spec)


def _nets(names: Iterable[str | System]) -> list[Topology]:
    """Fabrics of the systems that have one: a single chip is left out."""
    found = [_topology(spec) for spec in map(systems.system, listed("names", names)) if spec.domain_chips > 1]
    if not found:
        refuse("names", names, "none of them has more than one chip")
    return found


def _racks(net: Topology) -> NDArray:
    """Rack of each chip."""
    return np.array([net.graph.nodes[chip]["rack"] for chip in net.chips])


def _pairs(net: Topology, scope: str) -> NDArray:
    """Which ordered pairs of different chips a scope holds."""
    apart = ~np.eye(len(net.chips), dtype=bool)
    racks = _racks(net)
    return apart & (racks[:, None] == racks) if scope == "rack" else apart


def trays(system: str | System) -> list[str]:
    """The systems that differ from this one in nothing but the switch tray; of a torus, those of the NL32x2 rack.

    Examples
    --------
    >>> trays("trn3-nl32x2-ualink")
    ['trn3-nl32x2-pcie160', 'trn3-nl32x2-pcie320', 'trn3-nl32x2-ualink']
    """
    spec = systems.system(system)
    alike = [systems.system(name) for name in systems.systems() if name.startswith("trn3-nl")]
    switched = [other for other in alike if other.fabric == "planes"]
    found = [o.id for o in switched if o.domain_chips == spec.domain_chips and o.scaleup_lanes == spec.scaleup_lanes]
    return found or trays("trn3-nl32x2-pcie160")


def capacities(names: Iterable[str | System]) -> pd.DataFrame:
    """All-to-all capacity of each fabric inside its racks and over the whole domain.

    Returns
    -------
    table : pandas.DataFrame
        system, scope, chips, injection_bytes_per_s_per_dir, all_to_all_bytes_per_s (of a chip to all others),
        oversubscription, bound (the medium that limits; several are alike in the optimum where two are named).

    Examples
    --------
    >>> table = capacities(["trn3-nl32x2-pcie160", "trn3-nl32x2-torus"]).set_index(["system", "scope"])
    >>> table.all_to_all_bytes_per_s.div(1e9).round(3).tolist()
    [529.067, 252.0, 248.0, 252.0]
    """
    import pandas as pd

    rows = []
    for net in _nets(names):
        for scope in SCOPES:
            chips = int(_pairs(net, scope)[0].sum()) + 1
            found = net.flow(scope)
            rows.append(
                {
                    "system": net.system.id,
                    "scope": scope,
                    "chips": chips,
                    "injection_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
                    "all_to_all_bytes_per_s": found.bytes_per_s_per_pair * (chips - 1),
                    "oversubscription": net.oversubscription(scope),
                    "bound": ", ".join(found.bottleneck),
                }
            )
    return pd.DataFrame(rows)


def _costs() -> list[tuple[float, float]]:
    """Cost of a chip and of a switch on the way: middle, low, high. [s]"""
    chip, switch = load.fact_in_force(STACK, "hop_s"), load.fact_in_force(SWITCH, "switch_s")
    return list(zip((chip[1], *chip[2]), (switch[1], *switch[2]), strict=True))


def latencies(names: Iterable[str | System]) -> pd.DataFrame:
    """One-way latency of the empty fabric, mean and worst pair, inside a rack and over the domain.

    Returns
    -------
    table : pandas.DataFrame
        system, scope, mean_s and worst_s with `_low` and `_high` of a chip's cost, most_between (switches and
        forwarding chips), estimate (a chip of the switched racks is taken to cost a NeuronLink hop).

    Examples
    --------
    >>> table = latencies(["trn3-nl32x2-pcie320", "trn3-nl16-torus"])
    >>> table[table.scope == "rack"].worst_s.mul(1e6).round(3).tolist()
    [1.615, 6.0]
    """
    import pandas as pd

    rows = []
    for net in _nets(names):
        times = [flow.latency_matrix(net.graph, *costs) for costs in _costs()]
        for scope in SCOPES:
            pairs = _pairs(net, scope)
            mean, worst = ([float(reduce(time[pairs])) for time in times] for reduce in (np.mean, np.max))
            rows.append(
                {
                    "system": net.system.id,
                    "scope": scope,
                    "most_between": max(net.hop_histogram("intermediate", scope)),
                    **dict(zip(("mean_s", "mean_s_low", "mean_s_high"), mean, strict=True)),
                    **dict(zip(("worst_s", "worst_s_low", "worst_s_high"), worst, strict=True)),
                    "estimate": net.system.fabric == "planes",
                }
            )
    return pd.DataFrame(rows)


def all_to_all(names: Iterable[str | System], message_bytes: Iterable[float], scope: str = "world") -> pd.DataFrame:
    """Time of an all-to-all between chips over the size of a chip's send buffer: the worst latency, then the flow.

    Returns
    -------
    table : pandas.DataFrame
        system, message_bytes, time_s, latency_s, bound ("latency" or "bandwidth").

    Examples
    --------
    >>> all_to_all(["trn3-nl32x2-torus"], [1024, 2**30]).bound.tolist()
    ['latency', 'bandwidth']
    """
    import pandas as pd

    size, frames = np.atleast_1d(numbers("message_bytes", message_bytes)), []
    choice("scope", scope, SCOPES)
    for row in _slopes(names, scope).itertuples():
        sending = size * row.s_per_byte
        bound = np.where(sending > row.latency_s, "bandwidth", "latency")
        columns = {"message_bytes": size, "time_s": row.latency_s + sending, "latency_s": row.latency_s, "bound": bound}
        frames.append(pd.DataFrame({"system": row.system, **columns}))
    return pd.concat(frames, ignore_index=True)


def _slopes(names: Iterable[str | System], scope: str) -> pd.DataFrame:
    """Latency and time per byte of a chip's send buffer, its own block included."""
    rates, delays = capacities(names).query("scope == @scope"), latencies(names).query("scope == @scope")
    per_byte = (rates.chips - 1) / rates.chips / rates.all_to_all_bytes_per_s
    return rates.assign(s_per_byte=per_byte, latency_s=delays.worst_s, low=delays.worst_s_low, high=delays.worst_s_high)


def crossovers(names: Iterable[str | System]) -> pd.DataFrame:
    """Send buffer of a chip at which an all-to-all spends as long on bandwidth as on latency.

    Returns
    -------
    table : pandas.DataFrame
        system, scope, crossover_bytes with `_low` and `_high` of the latency, per_pair_bytes (to each other chip).
    """
    import pandas as pd

    frames = []
    for scope in SCOPES:
        slopes = _slopes(names, scope)
        ends = {"": slopes.latency_s, "_low": slopes.low, "_high": slopes.high}
        sizes = {f"crossover_bytes{end}": value / slopes.s_per_byte for end, value in ends.items()}
        frame = pd.DataFrame({"system": slopes.system, "scope": scope, **sizes})
        frames.append(frame.assign(per_pair_bytes=frame.crossover_bytes / slopes.chips))
    return pd.concat(frames, ignore_index=True)


def collective_times(names: Iterable[str], kind: str, message_bytes: Iterable[float]) -> pd.DataFrame:
    """`tm.collective` over all ranks of each system: system, message_bytes, time_s, busbw_bytes_per_s, algorithm."""
    import pandas as pd

    size, frames = np.atleast_1d(numbers("message_bytes", message_bytes)), []
    for net in _nets(names):
        found = collective(kind, size, net.system)
        columns = {"time_s": found.time_s, "busbw_bytes_per_s": found.busbw_bytes_per_s, "algorithm": found.algorithm}
        frames.append(pd.DataFrame({"system": net.system.id, "message_bytes": size, **columns}))
    return pd.concat(frames, ignore_index=True)


def plane_table(names: Iterable[str | System]) -> pd.DataFrame:
    """What the switch trays and boards of one rack hold: switch, planes, rack and board switches, ports used and free.

    Examples
    --------
    >>> plane_table(["trn3-nl72x2-pcie160"])[["planes", "rack_switches", "ports_used", "ports_free"]].values.tolist()
    [[4, 40, 18, 2]]
    """
    import pandas as pd

    rows = []
    for net in _nets(names):
        spec, nodes = net.system, dict(net.graph.nodes(data=True))
        rack = [node for node, data in nodes.items() if data.get("medium") == "backplane" and data["rack"] == 0]
        used = max(net.graph.degree(node) for node in rack)
        free = (
            spec.switch.switch_lanes // spec.port_lanes if spec.switch.switch_lanes > 0 else spec.switch.switch_ports
        ) - used
        rows.append(
            {
                "system": spec.id,
                "switch": load.entities()[spec.switch.id].name,
                "planes": len({nodes[node]["plane"] for node in rack}),
                "rack_switches": len(rack),
                "ports_used": used,
                "ports_free": int(free),
                "board_switches": sum(d.get("medium") == "pcb" and d["rack"] == 0 for d in nodes.values()),
            }
        )
    return pd.DataFrame(rows)


def paths(names: Iterable[str | System]) -> pd.DataFrame:
    """Printed paths and maxima beside those of the graph: system, part, counted, printed, verdict, locator, how.

    Examples
    --------
    >>> paths(["trn3-nl72x2-pcie160"]).counted.tolist()
    [1.0, 3.0, 4.0, 3.0]
    """
    import pandas as pd

    tables = [audit.hops_table(net.system).assign(system=net.system.id) for net in _nets(names)]
    columns = ["system", "part", "counted", "printed", "verdict", "locator", "how"]
    return pd.concat(tables, ignore_index=True)[columns]


def buffer_places(names: Iterable[str], message_bytes: float) -> pd.DataFrame:
    """All-reduce of one large message with buffers in SBUF (links alone bound) and in HBM.

    Returns
    -------
    table : pandas.DataFrame
        system, ranks, sbuf_s, hbm_s, bound ("links" or "HBM").

    Examples
    --------
    >>> buffer_places(["trn2.48xlarge"], 1e9).bound.tolist()
    ['HBM', 'links']
    """
    import pandas as pd

    rows = []
    for spec in map(systems.system, listed("names", names)):
        whole = spec.domain_chips * spec.chip.cores / spec.chip.lnc_default
        for ranks in (spec.chip.cores / spec.chip.lnc_default, whole):
            times = [collective("all_reduce", message_bytes, spec, ranks, buffers=place).time_s for place in BUFFERS]
            bound = "HBM" if times[1] > times[0] else "links"
            rows.append({"system": spec.id, "ranks": ranks, "sbuf_s": times[0], "hbm_s": times[1], "bound": bound})
    return pd.DataFrame(rows)


def library_switch(names: Iterable[str | System]) -> pd.DataFrame:
    """Largest all-reduce that one shot still does fastest, beside the size to which AWS's library uses its mesh.

    Returns
    -------
    table : pandas.DataFrame
        system, one_shot_up_to_bytes (on a grid of quarter powers of two), library_up_to_bytes, ratio.
    """
    import pandas as pd

    sizes, library = 2.0 ** np.arange(12, 31, 0.25), load.value("neuronlink-v3", "algorithm_max_bytes", "mesh")
    rows = []
    for net in _nets(names):
        shot = collective("all_reduce", sizes, net.system).algorithm == "one_shot"
        last = float(sizes[shot].max(initial=0.0))
        rows.append((net.system.id, last, library, last / library))
    return pd.DataFrame(rows, columns=["system", "one_shot_up_to_bytes", "library_up_to_bytes", "ratio"])


def notation(system: str | System) -> pd.DataFrame:
    """The notation table of these chapters: symbol, code name, meaning, value, source with its confidence."""
    import pandas as pd

    spec = systems.system(system)
    fields = {"scaleup_lanes": "lanes", "scaleup_lanes_redundant": "spare", "scaleup_bytes_per_s_per_dir": "B"}
    rows = [("alpha", load.fact_in_force(STACK, "hop_s")[0]), ("t_switch", load.fact_in_force(SWITCH, "switch_s")[0])]
    for label, ids in spec.sources.items():
        symbol = fields.get(label.partition("[")[0])
        rows += (
            [(f"{symbol} {label.partition('[')[2].rstrip(']')}".strip(), load.facts_rows()[ids[0]])] if symbol else []
        )
    return pd.DataFrame([_noted(symbol, fact) for symbol, fact in rows])


def _noted(symbol: str, fact: load.Fact) -> dict:
    return {
        "symbol": symbol,
        "code name": fact.quantity,
        "meaning": load.quantities()[fact.quantity].description,
        "value": f"{fact.value_printed} {fact.unit_printed}".removesuffix(" 1"),
        "source": f"{fact.source}, {fact.locator} ({fact.confidence})",
    }
