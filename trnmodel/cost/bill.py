"""Bill of materials of a chip's share of rack and network: parts counted on the graph of the rack, times prices."""

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
FEW = 8  # rates up to which each has its own parts
UNKNOWN = np.asarray(math.nan)
Lines = dict[str, NDArray]


def is_counted(system: System) -> bool:
    """Return whether the parts of a system's rack are counted: a rack of trays whose host CPUs are known."""
    return system.fabric in ("torus", "planes") and not math.isnan(system.host_cpus)


def _lanes(part: Switch | None, port_lanes: float) -> float:
    """Return the lanes that are bought with a switch chip: all of them, used or not."""
    return 0.0 if part is None else published(part.switch_lanes, part.switch_ports * port_lanes)


@lru_cache(maxsize=256)
def counts(system: System) -> Mapping[str, float]:
    """Return the number of parts per chip of a rack that is counted; NaN where no source has a number.

    Examples
    --------
    >>> from trnmodel.catalog.systems import system
    >>> parts = counts(system("trn3-nl72x2-pcie160"))
    >>> parts["rack switches"] * 144 / 160, parts["copper cables"], parts["retimers"]
    (80.0, 80.0, 1.5)
    """
    parts, switches = what_if.parts(system), topology(system).switch_counts
    rack, board = _lanes(system.switch, system.port_lanes), _lanes(system.pcb_switch, system.port_lanes)
    whole = {
        "rack switches": switches["backplane"] * rack,
        "board switches": switches["pcb"] * board,
        "retimers": parts.get("retimers", (math.nan,))[0],
        "copper cables": parts["copper cables"][0],
        "active cables": parts.get("AEC links", (0.0,))[0],
        "NICs": system.nics,
        "NICs of CPUs": parts.get("NICs of CPUs", (math.nan,))[0],
        "host CPUs": system.host_cpus,
    }
    return MappingProxyType({name: number / system.domain_chips for name, number in whole.items()})


@lru_cache(maxsize=256)
def joined(system: System, rate: float, chips: float) -> Mapping[str, float]:
    """Return the network parts per chip for a number of chips at a rate; NaN where one of them is unknown."""
    if math.isnan(rate) or math.isnan(chips):
        return MappingProxyType(dict.fromkeys(JOINED, math.nan))
    at_rate = replace(system, network_bytes_per_s_per_dir=rate * system.domain_chips)
    return MappingProxyType(scaleout.parts_per_chip(at_rate, chips))


def network(system: System, prices: Prices, chips: float) -> Mapping[str, Any]:
    """Return the network parts per chip, for each rate of its chips where there are several.

    A rate that is read from the prices has a range: of many values, the parts are those of the lowest, in proportion.
    """
    rates, ratio = np.asarray(system.scaleout_bytes_per_s_per_dir), np.ones(())
    if np.all(np.isnan(rates)) and system.id in prices.scaleout_bytes_per_s_per_dir:
        assumed = np.asarray(prices.scaleout_bytes_per_s_per_dir[system.id])
        rates = assumed if np.unique(assumed).size <= FEW else np.asarray(assumed.min())
        ratio = assumed / rates
    several, at = np.unique(rates, return_inverse=True)
    parts = [joined(system, float(one), chips) for one in several]
    return {name: np.array([each[name] for each in parts])[np.reshape(at, rates.shape)] * ratio for name in JOINED}


def network_lines(system: System, prices: Prices, chips: float) -> Lines:
    """Return the cost of a chip's share of a scale-out network, by part [USD]."""
    parts = network(system, prices, chips)
    costs = (
        parts["switch_bytes_per_s"] * prices.network_usd_per_bytes_per_s,
        parts["optics_bytes_per_s"] * prices.optics_usd_per_bytes_per_s,
        parts["cables"] * prices.aec_usd * (1 - prices.aec_rebate),
    )
    return {name: np.asarray(cost) for name, cost in zip(NETWORK, costs, strict=True)}


def _package(system: System, prices: Prices) -> Lines:
    """Return the cost of the HBM, and of the rest of a package with the margin of its makers."""
    hbm = system.chip.hbm_bytes * prices.hbm_usd_per_byte
    package = hbm / prices.hbm_share * prices.chip_markup
    if system.chip.id in prices.chip_usd:
        package = prices.chip_usd[system.chip.id]
        hbm = package * prices.hbm_share / prices.chip_markup
    return {"HBM": np.asarray(hbm), "logic, package and margin": np.asarray(package - hbm)}


def _rack(system: System, prices: Prices, tdp_w: Any) -> Lines:
    """Return the cost of a chip and of its share of a rack whose parts are counted [USD]."""
    n, paid, cable = counts(system), 1 - prices.switch_rebate, 1 - prices.aec_rebate
    nic_usd = system.nic_bytes_per_s_per_dir * prices.nic_usd_per_bytes_per_s
    own_nics = published(n["NICs of CPUs"], n["host CPUs"] * prices.nics_per_cpu)
    costs = {
        **{name: n[name] * prices.switch_usd_per_lane * paid for name in LANE_PARTS},
        "retimers": published(n["retimers"], prices.retimers_per_chip) * prices.retimer_usd * paid,
        "backplane cables": n["copper cables"] * prices.copper_cable_usd,
        "active cables": n["active cables"] * prices.aec_usd * cable,
        "NICs": (n["NICs"] + own_nics) * nic_usd,
        "host CPUs": n["host CPUs"] * prices.cpu_usd,
        "boards and power supplies": tdp_w * prices.board_usd_per_w,
        "cooling, rack and drives": tdp_w * prices.rack_usd_per_w,
    }
    lines = _package(system, prices) | {name: np.asarray(cost) for name, cost in costs.items()}
    return lines | {"assembly and test": tco.grossed_up_usd(sum(lines.values()), prices.integration_share)}


def lines(system: System, prices: Prices, tdp_w: Any, cluster_chips: float) -> Lines:
    """Return the bill of materials: dollars per chip with its share of server or rack and of the network, by part.

    A system with a price as sold costs that price at `money_year`; one whose parts are counted costs the sum of its
    parts. A line without a price is NaN; it is never left out.

    Examples
    --------
    >>> from trnmodel.catalog import prices
    >>> from trnmodel.catalog.systems import system
    >>> list(lines(system("hgx-h100"), prices.prices(), 700.0, 4096))
    ['server as sold', 'scale-out switches', 'scale-out optics', 'scale-out cables']
    """
    network = network_lines(system, prices, cluster_chips)
    if system.id in prices.server_usd_per_chip:
        age = prices.money_year - prices.server_year.get(system.id, math.nan)
        sold = tco.aged_usd(prices.server_usd_per_chip[system.id], prices.decades_per_year, age) * prices.market_ratio
        return {"server as sold": np.asarray(sold), **network}
    if is_counted(system):
        return _rack(system, prices, tdp_w) | network
    return {"server as sold": UNKNOWN, **network}
