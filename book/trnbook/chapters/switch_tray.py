"""Switch trays: systems that differ only in the tray, what trays hold, and paths as printed and counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from trnbook.shared.fabrics import by_lanes, nets
from trnmodel.arguments import listed
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.fabric import what_if
from trnmodel.result import tidy


def trays(system: str | System) -> list[str]:
    """Return systems that differ only in the switch tray, of as many chips; for a torus, those of NL32x2.

    Where sources print several lane maps it is the one that has most trays.

    Examples
    --------
    >>> trays("trn3-nl32x2-ualink")
    ['trn3-nl32x2-pcie160', 'trn3-nl32x2-pcie320', 'trn3-nl32x2-ualink']
    """
    groups = by_lanes(system)
    return groups[0] if groups and len(groups[0]) > 1 else by_lanes("trn3-nl32x2-pcie160")[0]


def describe_rank(system: str | System) -> str:
    """Describe what a rank of the placements is, and whether today's software allows it.

    Examples
    --------
    >>> describe_rank("trn3-nl32x2-pcie160")
    'a rank is a chip, LNC 8, which AWS has announced; the SDK allows 1 or 2'
    """
    chip = systems.system(system).chip
    allowed = " or ".join(map(str, chip.lnc_choices))
    announced = f", which AWS has announced; the SDK allows {allowed}" if chip.cores in chip.lnc_announced else ""
    return f"a rank is a chip, LNC {chip.cores:g}{announced}"


def free_to_forward(system: str | System) -> System:
    """Return the system with no latency for forwarding in a chip, so that only switches cost time.

    Examples
    --------
    >>> free_to_forward("trn3-nl32x2-pcie160").chip.hop_s
    0.0
    """
    spec = systems.system(system)
    return replace(spec, chip=replace(spec.chip, hop_s=0.0))


def tally(judged: pd.DataFrame) -> str:
    """Count the decided cases of `domain_sizes.verdicts` and their verdicts, as text.

    Examples
    --------
    >>> tally(pd.DataFrame({"verdict": ["agrees", "later", "no rate", "later"]}))
    '4 cases: 3 decided (agrees 1, earlier 0, later 2), 1 undecidable, for neither domain reaches the rate on one side'
    """
    counts = judged.verdict.value_counts()
    said = ", ".join(f"{verdict} {counts.get(verdict, 0)}" for verdict in ("agrees", "earlier", "later"))
    unknown = counts.get("no rate", 0)
    rest = f", {unknown} undecidable, for neither domain reaches the rate on one side" if unknown else ""
    return f"{len(judged)} cases: {len(judged) - unknown} decided ({said}){rest}"


def plane_table(names: Iterable[str | System]) -> pd.DataFrame:
    """Return what the switch trays and boards of one rack hold: switch, planes, switches, ports.

    Examples
    --------
    >>> plane_table(["trn3-nl72x2-pcie160"])[["planes", "rack_switches", "ports_used", "ports_free"]].values.tolist()
    [[4, 40, 18, 2]]
    """
    rows = []
    for net in nets(names):
        spec, nodes = net.system, dict(net.graph.nodes(data=True))
        assert spec.switch is not None  # a fabric of planes names its switch
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
    """Return the share of chip pairs by the number of switches and forwarding chips between them.

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


def within_one(table: pd.DataFrame) -> pd.Series:
    """Return the share of chip pairs with at most one switch or forwarding chip between them, by system.

    Examples
    --------
    >>> within_one(hops(["trn3-nl32x2-pcie160", "trn3-nl32x2-ualink"])).round(3).to_dict()
    {'trn3-nl32x2-pcie160': 0.286, 'trn3-nl32x2-ualink': 0.524}
    """
    return table.share.where(table.between <= 1, 0.0).groupby(table.system, sort=False).sum()


def paths(names: Iterable[str | System]) -> pd.DataFrame:
    """Compare printed paths and maxima with those of the graph.

    Examples
    --------
    >>> paths(["trn3-nl72x2-pcie160"]).counted.tolist()
    [1.0, 3.0, 4.0, 3.0]
    """
    specs = map(systems.system, listed("names", names))
    tables = [what_if.hops_table(spec).assign(system=spec.id) for spec in specs]
    columns = ["system", "part", "counted", "printed", "verdict", "locator", "how"]
    return pd.concat(tables, ignore_index=True)[columns]
