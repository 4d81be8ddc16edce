"""What the parts of a chip's rack and network cost: counted on the graph of the rack, times priced facts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.prices import Prices
from trnmodel.catalog.specs import published
from trnmodel.catalog.systems import Switch, System
from trnmodel.fabric import scaleout, what_if
from trnmodel.fabric.graph import topology
from trnmodel.formulas import tco

JOINED = ("switch_bytes_per_s", "optics_bytes_per_s", "cables")
NETWORK = ("scale-out switches", "scale-out optics", "scale-out cables")
LANE_PARTS = ("rack switches", "board switches")
BY_SYSTEM = ("server_usd_per_chip", "server_year")
PRICED: Mapping[str, tuple[str, ...]] = {
    "server as sold": BY_SYSTEM,
    "HBM": ("hbm_usd_per_byte",),
    "logic, package and margin": ("hbm_usd_per_byte", "hbm_share", "chip_markup"),
    "rack switches": ("switch_usd_per_lane",),
    "board switches": ("switch_usd_per_lane",),
    "retimers": ("retimer_usd", "retimers_per_chip"),
    "backplane cables": ("copper_cable_usd",),
    "active cables": ("aec_usd",),
    "NICs": ("nic_usd_per_bytes_per_s", "nics_per_cpu"),
    "host CPUs": ("cpu_usd",),
    "boards and power supplies": ("board_usd_per_w",),
    "cooling, rack and drives": ("rack_usd_per_w",),
    "assembly and test": ("integration_share",),
    "scale-out switches": ("network_usd_per_bytes_per_s",),
    "scale-out optics": ("optics_usd_per_bytes_per_s",),
    "scale-out cables": ("aec_usd",),
}  # the prices that each part takes
UNKNOWN = np.asarray(math.nan)
Lines = dict[str, NDArray]


def is_counted(spec: System) -> bool:
    """Whether the parts of a system's rack are counted: a rack of trays whose host CPUs are known."""
    return spec.fabric in ("torus", "planes") and not math.isnan(spec.host_cpus)


def _lanes(part: Switch | None, port_lanes: float) -> float:
    """Lanes that are bought with a switch chip: all of them, used or not."""
    return 0.0 if part is None else published(part.switch_lanes, part.switch_ports * port_lanes)


@lru_cache(maxsize=256)
def counts(spec: System) -> Mapping[str, float]:
    """Parts of a chip of a rack that is counted; NaN where no source has a number.

    Examples
    --------
    >>> from trnmodel.catalog.systems import system
    >>> found = counts(system("trn3-nl72x2-pcie160"))
    >>> found["rack switches"] * 144 / 160, found["copper cables"], found["retimers"]
    (80.0, 80.0, 1.5)
    """
    parts, switches = what_if.parts(spec), topology(spec).switch_counts
    rack, board = _lanes(spec.switch, spec.port_lanes), _lanes(spec.pcb_switch, spec.port_lanes)
    whole = {
        "rack switches": switches["backplane"] * rack,
        "board switches": switches["pcb"] * board,
        "retimers": parts.get("retimers", (math.nan,))[0],
        "copper cables": parts["copper cables"][0],
        "active cables": parts.get("AEC links", (0.0,))[0],
        "NICs": spec.nics,
        "NICs of CPUs": parts.get("NICs of CPUs", (math.nan,))[0],
        "host CPUs": spec.host_cpus,
    }
    return MappingProxyType({name: number / spec.domain_chips for name, number in whole.items()})


@lru_cache(maxsize=256)
def joined(spec: System, rate: float, chips: float) -> Mapping[str, float]:
    """What a chip has of the network that joins so many at a rate; NaN where the rate or their number is not known."""
    if math.isnan(rate) or math.isnan(chips):
        return MappingProxyType(dict.fromkeys(JOINED, math.nan))
    at_rate = replace(spec, network_bytes_per_s_per_dir=rate * spec.domain_chips)
    return MappingProxyType(scaleout.parts_per_chip(at_rate, chips))


def network(spec: System, p: Prices, chips: float) -> Mapping[str, Any]:
    """What a chip has of the network, for each rate of its chips where there are several.

    A rate that prices stand in with is open: what it takes is that of its lowest value, in proportion.
    """
    rates, ratio = np.asarray(spec.scaleout_bytes_per_s_per_dir), np.ones(())
    if np.all(np.isnan(rates)) and spec.id in p.scaleout_bytes_per_s_per_dir:
        given = np.asarray(p.scaleout_bytes_per_s_per_dir[spec.id])
        rates = np.asarray(given.min())
        ratio = given / rates
    several, at = np.unique(rates, return_inverse=True)
    found = [joined(spec, float(one), chips) for one in several]
    return {name: np.array([each[name] for each in found])[np.reshape(at, rates.shape)] * ratio for name in JOINED}


def network_lines(spec: System, p: Prices, chips: float) -> Lines:
    """Dollars of a chip's share of a scale-out network of so many chips, by part. [USD]"""
    found = network(spec, p, chips)
    costs = (
        found["switch_bytes_per_s"] * p.network_usd_per_bytes_per_s,
        found["optics_bytes_per_s"] * p.optics_usd_per_bytes_per_s,
        found["cables"] * p.aec_usd * (1 - p.aec_rebate),
    )
    return {name: np.asarray(cost) for name, cost in zip(NETWORK, costs, strict=True)}


def _package(spec: System, p: Prices) -> Lines:
    """HBM, and the rest of a package with what its makers earn."""
    hbm = spec.chip.hbm_bytes * p.hbm_usd_per_byte
    package = hbm / p.hbm_share * p.chip_markup
    if spec.chip.id in p.chip_usd:
        package = p.chip_usd[spec.chip.id]
        hbm = package * p.hbm_share / p.chip_markup
    return {"HBM": np.asarray(hbm), "logic, package and margin": np.asarray(package - hbm)}


def _rack(spec: System, p: Prices, tdp_w: Any) -> Lines:
    """Dollars of a chip and of its share of a rack that is made of counted parts. [USD]"""
    n, paid, cable = counts(spec), 1 - p.switch_rebate, 1 - p.aec_rebate
    nic_usd = spec.nic_bytes_per_s_per_dir * p.nic_usd_per_bytes_per_s
    own_nics = published(n["NICs of CPUs"], n["host CPUs"] * p.nics_per_cpu)
    costs = {
        **{name: n[name] * p.switch_usd_per_lane * paid for name in LANE_PARTS},
        "retimers": published(n["retimers"], p.retimers_per_chip) * p.retimer_usd * paid,
        "backplane cables": n["copper cables"] * p.copper_cable_usd,
        "active cables": n["active cables"] * p.aec_usd * cable,
        "NICs": (n["NICs"] + own_nics) * nic_usd,
        "host CPUs": n["host CPUs"] * p.cpu_usd,
        "boards and power supplies": tdp_w * p.board_usd_per_w,
        "cooling, rack and drives": tdp_w * p.rack_usd_per_w,
    }
    lines = _package(spec, p) | {name: np.asarray(cost) for name, cost in costs.items()}
    return lines | {"assembly and test": tco.grossed_up_usd(sum(lines.values()), p.integration_share)}


def lines(spec: System, p: Prices, tdp_w: Any, cluster_chips: float) -> Lines:
    """Bill of materials: dollars of a chip with its share of server or rack and of the scale-out network, by part.

    A system with a price as it is sold costs that price at `money_year`; one whose parts are counted costs its parts.
    A line without a price is NaN; it is never left out.

    Examples
    --------
    >>> from trnmodel.catalog import prices
    >>> from trnmodel.catalog.systems import system
    >>> found = lines(system("hgx-h100"), prices.prices(), 700.0, 4096)
    >>> list(found)
    ['server as sold', 'scale-out switches', 'scale-out optics', 'scale-out cables']
    """
    network = network_lines(spec, p, cluster_chips)
    if spec.id in p.server_usd_per_chip:
        age = p.money_year - p.server_year.get(spec.id, math.nan)
        sold = tco.aged_usd(p.server_usd_per_chip[spec.id], p.decades_per_year, age) * p.market_ratio
        return {"server as sold": np.asarray(sold), **network}
    if is_counted(spec):
        return _rack(spec, p, tdp_w) | network
    return {"server as sold": UNKNOWN, **network}
