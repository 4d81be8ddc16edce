"""The scale-out network of a system: its NICs on Clos networks of the switches on offer, and the routes through it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import number, numbers, refuse
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.formulas import clos as network
from trnmodel.formulas import transit
from trnmodel.result import tidy
from trnmodel.units import GBIT, TBIT

if TYPE_CHECKING:
    import pandas as pd

AWS, FIBRE = "aws-scaleout", "smf-fibre"
BITS = 8  # of a byte


def tera(bits_per_s: float) -> str:
    """Return the name of a switch by its capacity: "12.8T"."""
    return f"{bits_per_s / BITS / TBIT:g}T"


def giga(bits_per_s: float) -> str:
    """Return the name of a port by its rate: "100G"."""
    return f"{bits_per_s / BITS / GBIT:g}G"


@cache
def switch_bits_per_s() -> NDArray:
    """Return the capacities of the switches on offer in bit/s, in ascending order."""
    facts = [fact for fact in load.facts_rows().values() if fact.quantity == "switch_bytes_per_s_per_dir"]
    return np.array(sorted(load.value_si(fact)[0] * BITS for fact in facts))


def _connected(system: str | System) -> System:
    """Return a system whose chips have a scale-out rate; raises ValueError where none is published."""
    spec = systems.system(system)
    if math.isnan(spec.scaleout_bytes_per_s_per_dir):
        refuse("system", spec.id, "no scale-out rate of it is published")
    return spec


def nic(system: str | System) -> dict[str, Any]:
    """Return how a system's chips meet the network: rate and ports of a NIC, planes, chips that share it, for `clos`.

    Where no source says what one NIC carries, it is taken to have one logical port in each plane.

    Examples
    --------
    >>> nic("trn3-nl72x2-pcie160")["chips_per_nic"], nic("trn2.48xlarge")["chips_per_nic"]
    (2.0, 1.0)
    """
    spec = _connected(system)
    port, planes = load.value(AWS, "port_bytes_per_s_per_dir"), load.value(AWS, "tor_switches")
    rate = port * planes if math.isnan(spec.nic_bytes_per_s_per_dir) else spec.nic_bytes_per_s_per_dir
    return {
        "port_bits_per_s": port * BITS,
        "nic_bits_per_s": rate * BITS,
        "module_bits_per_s": load.value(AWS, "module_bytes_per_s_per_dir") * BITS,
        "planes": planes,
        "chips_per_nic": rate / spec.scaleout_bytes_per_s_per_dir,
    }


def networks(system: str | System) -> pd.DataFrame:
    """Return a system's full network of three layers for each leaf and spine switch, over the smallest top of rack.

    Parameters
    ----------
    system : str or System
        Whose NICs.

    Returns
    -------
    table : pandas.DataFrame
        leaf_and_spine, chips_per_rack, racks_per_pod, pods, chips, switches, cables, optics, and the last three over
        chips.

    Examples
    --------
    >>> networks("trn3-nl72x2-pcie160").chips.tolist()[:2]
    [524288.0, 2097152.0]
    """
    import pandas as pd

    switch = switch_bits_per_s()
    sized = network.clos(switch_bits_per_s=switch, tor_bits_per_s=switch[0], layers=3, **nic(system))
    names = "chips_per_rack racks_per_pod pods chips switches cables optics".split()
    table = pd.DataFrame({name: np.broadcast_to(getattr(sized, name), switch.shape) for name in names})
    for part in ("switches", "cables", "optics"):
        table[f"{part}_per_chip"] = table[part] / table.chips
    table.insert(0, "leaf_and_spine", [*map(tera, switch)])
    return table


def by_rack(system: str | System) -> pd.DataFrame:
    """Return how far three layers of the smallest switch reach, by the chips that share a pair of tops of rack.

    Half of a top of rack's ports go down where nothing is oversubscribed; a rack has the chips that it has.

    Returns
    -------
    table : pandas.DataFrame
        under, chips_per_pair, down_ports and up_ports of one top of rack, oversubscription, chips, and cpu_ports: the
        ports that the NICs of these chips' CPUs would take besides, NaN where no source says.

    Examples
    --------
    >>> by_rack("trn3-nl72x2-pcie160").set_index("under").chips.astype(int).to_dict()
    {'half of the ports': 524288, 'half a rack': 294912, 'a rack': 589824}
    """
    import pandas as pd

    spec, attach, switch = systems.system(system), nic(system), switch_bits_per_s()[0]
    tor = float(network.radix(switch, attach["port_bits_per_s"]))
    chips = spec.domain_chips / spec.racks * np.array([0.5, 1, 2])
    ports = chips / attach["chips_per_nic"] * attach["nic_bits_per_s"] / attach["port_bits_per_s"] / attach["planes"]
    down = {"half of the ports": tor // 2, **dict(zip(("half a rack", "a rack", "two racks"), ports, strict=True))}
    down = {under: count for under, count in down.items() if count < tor and count == int(count)}
    ratio = np.array([count / (tor - count) for count in down.values()])
    sized = network.clos(switch_bits_per_s=switch, layers=3, oversubscription=ratio, **attach)
    sizes = {"chips_per_pair": sized.chips_per_rack, "down_ports": sized.down_ports, "up_ports": sized.rails}
    sizes |= {"oversubscription": sized.oversubscription, "chips": sized.chips}
    return pd.DataFrame({"under": [*down], **sizes, "cpu_ports": sized.down_ports * spec.cpu_nics / spec.nics})


def port_choice(system: str | System, chips: float, port_bits_per_s: Iterable[float]) -> pd.DataFrame:
    """Return what a cluster of `chips` takes in each port size: layers needed, switches and modules per chip.

    The modules are the same in every row, so a smaller port means a cable that fans out, not another module.

    Returns
    -------
    table : pandas.DataFrame
        switch, port, layers (2 where they reach, else 3, NaN where neither does), switches_per_chip, optics_per_chip,
        reach_chips.

    Examples
    --------
    >>> table = port_choice("trn3-nl72x2-pcie160", 8192, [100e9])
    >>> table[table.switch == "12.8T"].layers.tolist()
    [2.0]
    """
    attach, rows, chips = nic(system), [], number("chips", chips, 1)
    for port in np.ravel(numbers("port_bits_per_s", port_bits_per_s, 1)).tolist():
        planes = attach["planes"] if attach["nic_bits_per_s"] >= attach["planes"] * port else 1
        clos = attach | {"port_bits_per_s": port, "planes": planes, "switch_bits_per_s": switch_bits_per_s()}
        two, three = (network.clos(layers=n, chips=chips, **clos) for n in (2, 3))
        full = [network.clos(layers=n, **clos).max_chips for n in (2, 3)]
        sizes = {
            f"{part}_per_chip": [getattr(n, part) / n.chips for n in (two, three)] for part in ("switches", "optics")
        }
        near = np.broadcast_to(two.valid, switch_bits_per_s().shape)
        rows.append(
            {
                "switch": [*map(tera, switch_bits_per_s())],
                "port": giga(port),
                "layers": np.where(near, 2.0, np.where(three.valid, 3.0, np.nan)),
                **{name: np.where(near, *pair) for name, pair in sizes.items()},
                "reach_chips": np.where(near, *full),
            }
        )
    return tidy(rows)


def distances(system: str | System) -> pd.DataFrame:
    """Return the latency of one direction through the network, from the same rack to the reach of each optical module.

    Returns
    -------
    table : pandas.DataFrame
        way, switch_hops, distance_m, fibre_s, latency_s with `_low` and `_high`, in_flight_bytes (what a chip must keep
        outstanding to fill the way), estimate (NIC latency is ours).

    Examples
    --------
    >>> routes = distances("trn3-nl72x2-pcie160").set_index("way")
    >>> round(float(routes.fibre_s["building, 400G ZR"]) * 1e3, 3)
    0.588
    """
    import pandas as pd

    spec, facts = _connected(system), load.facts_rows().values()
    reach = {fact.entity: load.value_si(fact)[0] for fact in facts if fact.quantity == "reach_m"}
    routes = [("same top of rack", 1, 0.0), ("same pod", 3, 0.0), ("other pod", 5, 0.0)]
    # spine to spine: one more switch than between pods
    routes += [
        (f"building, {load.entities()[optics].name.removesuffix(' optics')}", 6, metres)
        for optics, metres in sorted(reach.items(), key=itemgetter(1))
        if optics != "optics-dr4"
    ]
    table = pd.DataFrame(routes, columns=["way", "switch_hops", "distance_m"])
    table["fibre_s"] = fibre = transit.fibre_delay_s(table.distance_m.to_numpy(), load.value(FIBRE, "group_index"))
    spreads = ((fact[1], *fact[2]) for fact in (load.fact_in_force(AWS, name) for name in ("switch_s", "nic_s")))
    for end, switch_s, nic_s in zip(("", "_low", "_high"), *spreads, strict=True):
        table[f"latency_s{end}"] = transit.path_latency_s(table.switch_hops.to_numpy(), switch_s, nic_s, fibre)
    table["in_flight_bytes"] = transit.in_flight_bytes(spec.scaleout_bytes_per_s_per_dir, table.latency_s.to_numpy())
    return table.assign(estimate=True)


def parts_per_chip(system: str | System, chips: float) -> dict[str, float]:
    """Return a chip's part of the network that joins `chips`: switch capacity, optics and copper ends, by rate.

    Two layers where they reach, else three; of the switches on offer the leaf and spine with the least capacity in all.

    Returns
    -------
    parts : dict
        switch_bytes_per_s and optics_bytes_per_s of a chip one way, cables (endpoint cables), layers; NaN where not
        even three layers reach.

    Examples
    --------
    >>> found = parts_per_chip("hgx-h100", 4096)
    >>> found["layers"], found["switch_bytes_per_s"] / 1.25e8, found["cables"]  # three ports of 400 Gb/s
    (2.0, 1200.0, 1.0)
    """
    attach, switch, joined = nic(system), switch_bits_per_s(), number("chips", chips, 1)
    best = dict.fromkeys(("switch_bytes_per_s", "optics_bytes_per_s", "cables", "layers"), math.nan)
    for layers in (3, 2):
        net = network.clos(switch_bits_per_s=switch, tor_bits_per_s=switch[0], layers=layers, chips=joined, **attach)
        bits = (net.tor_switches * switch[0] + (net.switches - net.tor_switches) * switch) / net.chips
        if not np.all(np.isnan(bits)):
            at = int(np.nanargmin(np.round(bits)))
            each = net.optics / net.chips, net.endpoint_cables / net.chips
            optics, cables = (float(np.broadcast_to(x, switch.shape)[at]) for x in each)
            best = {
                "switch_bytes_per_s": float(bits[at]) / BITS,
                "optics_bytes_per_s": optics * attach["module_bits_per_s"] / BITS,
                "cables": cables,
                "layers": float(layers),
            }
    return best
