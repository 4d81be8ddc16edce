"""Which switch tray: systems that differ in nothing else, what their trays hold, and paths as printed and counted."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from trnmodel.arguments import listed
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.fabric import what_if
from trnmodel.fabric.compare import nets
from trnmodel.result import tidy


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


def plane_table(names: Iterable[str | System]) -> pd.DataFrame:
    """What the switch trays and boards of one rack hold: switch, planes, rack and board switches, ports used and free.

    Examples
    --------
    >>> plane_table(["trn3-nl72x2-pcie160"])[["planes", "rack_switches", "ports_used", "ports_free"]].values.tolist()
    [[4, 40, 18, 2]]
    """
    rows = []
    for net in nets(names):
        spec, nodes = net.system, dict(net.graph.nodes(data=True))
        rack = [node for node, data in nodes.items() if data.get("medium") == "backplane" and data["rack"] == 0]
        used, lanes = max(net.graph.degree(node) for node in rack), spec.switch.switch_lanes
        ports = lanes // spec.port_lanes if lanes > 0 else spec.switch.switch_ports
        rows.append(
            {
                "system": spec.id,
                "switch": load.entities()[spec.switch.id].name,
                "planes": len({nodes[node]["plane"] for node in rack}),
                "rack_switches": len(rack),
                "ports_used": used,
                "ports_free": int(ports - used),
                "board_switches": sum(d.get("medium") == "pcb" and d["rack"] == 0 for d in nodes.values()),
            }
        )
    return tidy(rows)


def hops(names: Iterable[str | System]) -> pd.DataFrame:
    """Share of chip pairs by what lies between them: system, between (switches and forwarding chips), share.

    Examples
    --------
    >>> hops(["trn3-nl32x2-pcie160"]).between.tolist()
    [0, 1, 2, 3]
    """
    histograms = {net.system.id: net.hop_histogram("intermediate") for net in nets(names)}
    return tidy(
        {"system": name, "between": list(pairs), "share": np.array(list(pairs.values())) / sum(pairs.values())}
        for name, pairs in histograms.items()
    )


def paths(names: Iterable[str | System]) -> pd.DataFrame:
    """Printed paths and maxima beside those of the graph: system, part, counted, printed, verdict, locator, how.

    Examples
    --------
    >>> paths(["trn3-nl72x2-pcie160"]).counted.tolist()
    [1.0, 3.0, 4.0, 3.0]
    """
    specs = map(systems.system, listed("names", names))
    tables = [what_if.hops_table(spec).assign(system=spec.id) for spec in specs]
    columns = ["system", "part", "counted", "printed", "verdict", "locator", "how"]
    return pd.concat(tables, ignore_index=True)[columns]
