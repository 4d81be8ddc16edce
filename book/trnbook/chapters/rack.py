"""Racks: their fabrics side by side, their names, and their parts as counted and as printed."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from trnmodel.arguments import listed
from trnmodel.catalog import load
from trnmodel.catalog.systems import System, systems
from trnmodel.catalog.systems import system as find_system
from trnmodel.fabric import what_if
from trnmodel.fabric.graph import Topology, topology
from trnmodel.units import format_quantity


def fabrics(systems: Iterable[str | System]) -> pd.DataFrame:
    """Compare fabrics: chips, switches, hops, injection, bisection and all-to-all capacity.

    Returns
    -------
    table : pandas.DataFrame
        One row per system; rates are one way, all-to-all is per ordered pair of chips, hops are between chips.

    Examples
    --------
    >>> fabrics(["trn3-nl72x2-pcie160"]).set_index("system").switches.to_dict()
    {'trn3-nl72x2-pcie160': 368}
    """
    rows = []
    for net in map(topology, listed("systems", systems)):
        hops = net.hop_histogram("intermediate")
        rows.append(
            {
                "system": net.system.id,
                "chips": net.system.domain_chips,
                "racks": net.system.racks,
                "switches": sum(net.switch_counts.values()),
                "most_between": max(hops, default=0),
                "mean_between": sum(h * n for h, n in hops.items()) / max(sum(hops.values()), 1),
                "injection_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
                "bisection_bytes_per_s_per_dir": net.bisection_bytes_per_s_per_dir,
                "all_to_all_bytes_per_s": net.all_to_all_bytes_per_s_per_pair(),
            }
        )
    return pd.DataFrame(rows)


def by_medium(net: Topology) -> str:
    """Describe the rate at which a chip sends into the fabric, in total and by medium.

    Examples
    --------
    >>> by_medium(topology("trn3-nl72x2-aws-lanes"))
    '704 GB/s (320 GB/s backplane, 256 GB/s pcb, 128 GB/s cross-rack)'
    """
    media = [f"{format_quantity(rate, 'B/s')} {medium}" for medium, rate in net.injection_by_medium().items()]
    return f"{format_quantity(net.injection_bytes_per_s_per_dir, 'B/s')} ({', '.join(media) or 'it has no neighbour'})"


def names() -> pd.DataFrame:
    """Return one row per Trainium and Inferentia system: its names at AWS, by topology, as codename, as instance.

    Examples
    --------
    >>> names().set_index("system").codename["trn3-nl72x2-pcie160"]
    'Teton3 MAX'
    """
    known = load.names_table()
    known = known[known.id.isin(systems()) & known.id.str.startswith(("trn", "inf"))]
    wide = known.groupby(["id", "kind"], sort=False).alias.agg("; ".join).unstack(fill_value="")
    wide = wide.rename(columns={"aws": "AWS", "nl": "by topology"}).reset_index(names="system")
    wide = wide.sort_values("AWS", key=lambda names: names == "", kind="stable", ignore_index=True)
    return wide[["system", "AWS", "by topology", "codename", "instance"]].rename_axis(columns=None)


def verdicts(systems: Iterable[str | System]) -> pd.DataFrame:
    """Compare every printed count of parts with the count on the graph, over several systems.

    Examples
    --------
    >>> set(verdicts(["trn3-nl72x2-pcie160"]).verdict) <= {"agrees", "disagrees"}
    True
    """
    tables = [what_if.parts_table(name).assign(system=find_system(name).id) for name in listed("systems", systems)]
    table = pd.concat(tables, ignore_index=True)
    shown = ["system", "part", "counted", "how", "printed", "verdict", "locator", "note"]
    printed = table[table.verdict != "not printed"][shown]
    return printed.drop_duplicates(["part", "counted", "printed", "locator"], ignore_index=True)
