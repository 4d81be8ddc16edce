"""Compare fabrics: all-to-all capacity and latency, inside a rack and over the domain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same, listed, refuse
from trnmodel.catalog import systems
from trnmodel.catalog.specs import published
from trnmodel.catalog.systems import System
from trnmodel.fabric import flow
from trnmodel.fabric.graph import ROUTINGS, SCOPES, Topology
from trnmodel.fabric.groups import fabric
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd

STACK, SWITCH = "neuron-stack", "pcie-switch"  # their printed latencies stand in for unpublished ones


def nets(names: Iterable[str | System]) -> list[Topology]:
    """Return the topologies of systems with more than one chip."""
    topologies = [fabric(Same(spec)) for spec in map(systems.system, listed("names", names)) if spec.domain_chips > 1]
    if not topologies:
        refuse("names", names, "none of them has more than one chip")
    return topologies


def by_lanes(system: str | System) -> list[list[str]]:
    """Return switched racks of the same chips in groups of equal lanes, the largest group first."""
    spec, groups = systems.system(system), dict[tuple, list[str]]()
    for other in map(systems.system, systems.systems()):
        alike = other.fabric == spec.fabric == "planes" and other.chip.id == spec.chip.id
        if alike and other.domain_chips == spec.domain_chips:
            groups.setdefault(tuple(other.scaleup_lanes.items()), []).append(other.id)
    return sorted(groups.values(), key=len, reverse=True)


def lane_maps(system: str | System) -> list[str]:
    """Return the ids of the same rack with the lanes of another source.

    Examples
    --------
    >>> lane_maps("trn3-nl72x2-pcie320"), lane_maps("trn3-nl32x2-pcie320"), lane_maps("trn3-nl72x2-aws-lanes")
    (['trn3-nl72x2-aws-lanes'], [], [])
    """
    spec = systems.system(system)
    others = [name for group in by_lanes(spec)[1:] for name in group]
    return [name for name in others if systems.system(name).scaleup_lanes != spec.scaleup_lanes]


def capacities(names: Iterable[str | System]) -> pd.DataFrame:
    """Return the all-to-all capacity of each fabric inside its racks and over the whole domain.

    Returns
    -------
    table : pandas.DataFrame
        system, scope, chips, injection_bytes_per_s_per_dir, all_to_all_bytes_per_s (of a chip to all others),
        oversubscription (injection over delivered), bound (the medium that limits; several are alike in the optimum
        where two are named). All-to-all is an upper bound, of free multipath; `routings` has others.

    Examples
    --------
    >>> table = capacities(["trn3-nl32x2-pcie160", "trn3-nl32x2-torus"]).set_index(["system", "scope"])
    >>> table.all_to_all_bytes_per_s.div(1e9).round(3).tolist()
    [529.067, 252.0, 248.0, 252.0]
    """
    return tidy(
        {
            "system": net.system.id,
            "scope": scope,
            "chips": 1 + others,
            "injection_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
            "all_to_all_bytes_per_s": net.flow(scope).bytes_per_s_per_pair * others,
            "oversubscription": net.oversubscription(scope),
            "bound": ", ".join(net.flow(scope).bottleneck),
        }
        for net in nets(names)
        for scope in ("rack", "world")
        for others in [_others(net, scope)]
    )


def routings(names: Iterable[str | System]) -> pd.DataFrame:
    """Return all-to-all rates per chip in B/s one way by routing, inside racks and over the domain.

    Returns
    -------
    table : pandas.DataFrame
        system, scope, free_bytes_per_s (any paths: the upper bound), even_bytes_per_s (evenly over the shortest ones),
        whole_bytes_per_s (one path a pair, at most); see `Topology.all_to_all_bytes_per_s_per_pair`.

    Examples
    --------
    >>> table = routings(["trn3-nl32x2-pcie160"])
    >>> table[table.scope == "rack"].whole_bytes_per_s.div(1e9).round(3).tolist()
    [496.0]
    """
    return tidy(
        {"system": net.system.id, "scope": scope}
        | {
            f"{routing}_bytes_per_s": net.all_to_all_bytes_per_s_per_pair(scope, routing) * _others(net, scope)
            for routing in ROUTINGS
        }
        for net in nets(names)
        for scope in ("rack", "world")
    )


def tiers(names: Iterable[str | System]) -> pd.DataFrame:
    """Return each tier's lanes per chip over those it delivers when only chips that it joins communicate.

    A torus has no tiers, because each link ends at another chip.

    Returns
    -------
    table : pandas.DataFrame
        system, tier, chips (that it joins), lanes and delivered_lanes of a chip (links, where lanes are not counted),
        oversubscription.

    Examples
    --------
    >>> tiers(["trn3-nl72x2-pcie160"]).set_index("tier").lanes.to_dict()
    {'backplane': 64.0, 'pcb': 64.0, 'cross-rack': 16.0}
    """
    rows = []
    for net in nets(names):
        graph, first = net.wiring.graph, net.chips[0]
        for medium in net.injection_by_medium() if net.system.fabric != "torus" else ():
            inside = _joined(graph, first, medium)
            chips = len(flow.chip_nodes(inside))
            lanes = float(sum(data["bytes_per_s_per_dir"] for data in inside[first].values()))
            handed = flow.concurrent_flow(inside).bytes_per_s_per_pair * (chips - 1)
            row = {"system": net.system.id, "tier": medium, "chips": chips, "lanes": lanes, "delivered_lanes": handed}
            rows.append(row | {"oversubscription": lanes / handed})
    return tidy(rows)


def _joined(graph: Any, chip: str, medium: str) -> Any:
    """Return the subgraph that the links of one medium join to a chip."""
    import networkx as nx

    links = [(u, v) for u, v, other in graph.edges(data="medium") if other == medium]
    alone = graph.edge_subgraph(links)
    return alone.subgraph(nx.node_connected_component(alone, chip))


def _others(net: Topology, scope: str) -> int:
    """Return the number of chips with which the first one communicates."""
    racks = [net.graph.nodes[chip]["rack"] for chip in net.chips]
    return (racks.count(racks[0]) if scope == "rack" else len(racks)) - 1


def _costs(spec: System) -> list[tuple[float, float]]:
    """Return the latency in s of a chip and of a switch on a path: middle, low, high."""
    chip, switch = (spec.chip.hop_s, *spec.chip.range("hop_s")), (spec.switch_s, *spec.range("switch_s"))
    return [(hop_s, published(switch_s, 0.0)) for hop_s, switch_s in zip(chip, switch, strict=True)]


def latencies(names: Iterable[str | System]) -> pd.DataFrame:
    """Return the one-way latency of the empty fabric, mean and worst pair, inside a rack and over the domain.

    Returns
    -------
    table : pandas.DataFrame
        system, scope, mean_s and worst_s with `_low` and `_high` of a chip's cost, most_between (switches and
        forwarding chips), estimate (what a chip or a switch of the system costs is our own figure).

    Examples
    --------
    >>> table = latencies(["trn3-nl32x2-pcie320", "trn3-nl16-torus"])
    >>> table[table.scope == "rack"].worst_s.mul(1e6).round(3).tolist()
    [1.615, 6.0]
    """
    rows = []
    for net in nets(names):
        paths = [_path_latencies(net, *costs) for costs in _costs(net.system)]
        for scope in ("rack", "world"):
            same: dict[str, Any] = {"system": net.system.id, "scope": scope}
            same["most_between"] = max(net.hop_histogram("intermediate", scope))
            for end, by_scope in zip(("", "_low", "_high"), paths, strict=True):
                time_s, pairs = by_scope[scope]
                same |= {f"mean_s{end}": np.average(time_s, weights=pairs), f"worst_s{end}": np.max(time_s)}
            rows.append(same | {"estimate": "hop_s" in net.system.chip.estimates or "switch_s" in net.system.estimates})
    return tidy(rows)


def _path_latencies(net: Topology, chip_s: float, switch_s: float) -> dict[str, tuple[NDArray, NDArray]]:
    """Return latencies by scope, and the number of pairs with each; without switches every hop costs one chip."""
    if not net.switch_counts:
        hops = {scope: net.hop_histogram("edges", scope) for scope in SCOPES}
        return {scope: (chip_s * np.array([*pairs]), np.array([*pairs.values()])) for scope, pairs in hops.items()}
    matrix = flow.latency_matrix(net.wiring.path_switches, chip_s, switch_s)
    racks = np.array([net.graph.nodes[chip]["rack"] for chip in net.chips])
    apart = ~np.eye(len(racks), dtype=bool)
    inside = {"world": apart, "rack": apart & (racks[:, None] == racks)}
    return {scope: (matrix[pairs], np.ones(np.count_nonzero(pairs))) for scope, pairs in inside.items()}
