"""The scale-out network: printed cluster sizes, how far Trainium reaches, and of what parts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from trnmodel.arguments import listed, number, numbers
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.formulas import clos as network
from trnmodel.units import GBIT, TBIT, format_quantity

if TYPE_CHECKING:
    import pandas as pd

AWS, FIBRE = "aws-scaleout", "smf-fibre"
BITS = 8  # of a byte


class PrintedNetwork(msgspec.Struct, frozen=True):
    """A line of `data/evidence/printed_networks.csv`: a size of a network, or its ratio to another's, as printed."""

    id: str
    quantity: str
    printed: str
    switch_bits_per_s: float
    tor_bits_per_s: float
    port_bits_per_s: float
    layers: int
    against_switch_bits_per_s: str
    against_port_bits_per_s: str
    source: str
    locator: str
    note: str


def printed_sizes() -> pd.DataFrame:
    """Every cluster size that the deep dive prints, beside the same from `clos`.

    Returns
    -------
    table : pandas.DataFrame
        quantity, network, computed, printed, verdict, source, locator, note.

    Examples
    --------
    >>> set(printed_sizes().verdict)
    {'agrees'}
    """
    import pandas as pd

    rows = load.read_csv(load.DATA / "evidence" / "printed_networks.csv", PrintedNetwork)
    return pd.DataFrame([_printed_size(row) for row in rows])


def _printed_size(row: PrintedNetwork) -> dict:
    given = {"layers": row.layers, "tor_bits_per_s": row.tor_bits_per_s}
    sized = network.clos(switch_bits_per_s=row.switch_bits_per_s, port_bits_per_s=row.port_bits_per_s, **given)
    words = _words(row.switch_bits_per_s, row.port_bits_per_s, row.layers)
    computed = float(getattr(sized, row.quantity))
    if row.against_switch_bits_per_s:
        switch, port = float(row.against_switch_bits_per_s), float(row.against_port_bits_per_s)
        other = network.clos(switch_bits_per_s=switch, port_bits_per_s=port, **given)
        computed /= float(getattr(other, row.quantity))
        words += f" over {_words(switch, port, row.layers)}"
    printed = load.parse_number(row.printed)[0]
    return {
        "quantity": row.quantity.replace("_", " ").removeprefix("max "),
        "network": words,
        "computed": computed,
        "printed": row.printed,
        "verdict": "agrees" if computed == printed else "disagrees",
        "source": row.source,
        "locator": row.locator,
        "note": row.note,
    }


def _words(switch_bits_per_s: float, port_bits_per_s: float, layers: int) -> str:
    return f"{_tera(switch_bits_per_s)}, {port_bits_per_s / BITS / GBIT:g}G, {layers} layers"


def _tera(bits_per_s: float) -> str:
    return f"{bits_per_s / BITS / TBIT:g}T"


def switch_bits_per_s() -> np.ndarray:
    """Capacities of the switches on offer, in ascending order. [bit/s]"""
    facts = [fact for fact in load.facts_rows().values() if fact.quantity == "switch_bytes_per_s_per_dir"]
    return np.array(sorted(load.value_si(fact)[0] * BITS for fact in facts))


def reach(port_bits_per_s: Iterable[float]) -> pd.DataFrame:
    """Endpoints of one network by switch, port and layers: switch, switch_bits_per_s, port, layers, radix, endpoints.

    Examples
    --------
    >>> table = reach([100e9, 400e9])
    >>> int(table[(table.switch == "51.2T") & (table.port == "100G") & (table.layers == 2)].endpoints.iloc[0])
    131072
    """
    import pandas as pd

    ports = np.ravel(numbers("port_bits_per_s", port_bits_per_s, 1))
    switch, port, layers = np.meshgrid(switch_bits_per_s(), ports, [2, 3], indexing="ij")
    sized = network.clos(switch_bits_per_s=switch, port_bits_per_s=port, layers=layers)
    labels = {
        "switch": map(_tera, switch.ravel()),
        "switch_bits_per_s": switch.ravel(),
        "port": (f"{p / BITS / GBIT:g}G" for p in port.ravel()),
    }
    sizes = {"layers": layers, "radix": sized.radix, "endpoints": sized.endpoints}
    return pd.DataFrame({**labels, **{name: value.ravel() for name, value in sizes.items()}})


def nic(system: str | System) -> dict[str, float]:
    """How a system's chips meet the network: rate and ports of a NIC, planes, chips that share it, for `clos`.

    Where no source says what one NIC carries, it is taken to have one logical port in each plane.

    Examples
    --------
    >>> nic("trn3-nl72x2-pcie160")["chips_per_nic"], nic("trn2.48xlarge")["chips_per_nic"]
    (2.0, 1.0)
    """
    spec = systems.system(system)
    port, planes = load.value(AWS, "port_bytes_per_s_per_dir"), load.value(AWS, "tor_switches")
    rate = port * planes if math.isnan(spec.nic_bytes_per_s_per_dir) else spec.nic_bytes_per_s_per_dir
    if math.isnan(spec.scaleout_bytes_per_s_per_dir):
        raise ValueError(f"system={spec.id!r}: no scale-out rate is published")
    return {
        "port_bits_per_s": port * BITS,
        "nic_bits_per_s": rate * BITS,
        "module_bits_per_s": load.value(AWS, "module_bytes_per_s_per_dir") * BITS,
        "planes": planes,
        "chips_per_nic": rate / spec.scaleout_bytes_per_s_per_dir,
    }


def networks(
    system: str | System, chips: float | None = None, layers: int = 3, tor_bits_per_s: float | None = None
) -> pd.DataFrame:
    """A system's network for each leaf and spine switch on offer, full or for a number of chips.

    Parameters
    ----------
    system : str or System
        Whose NICs.
    chips : float, optional
        Chips to connect; default all that it reaches. [-]
    layers : int
        Switch layers, 2 or 3. [-]
    tor_bits_per_s : float, optional
        Capacity of the top of rack; default the smallest switch on offer. [bit/s]

    Returns
    -------
    table : pandas.DataFrame
        leaf_and_spine, chips_per_rack, racks_per_pod, pods, chips, switches, cables, optics, and the last three over
        chips; NaN where the layers do not reach so far.

    Examples
    --------
    >>> networks("trn3-nl72x2-pcie160").chips.tolist()[:2]
    [524288.0, 2097152.0]
    """
    import pandas as pd

    switch = switch_bits_per_s()
    tor = switch[0] if tor_bits_per_s is None else tor_bits_per_s
    sized = network.clos(switch_bits_per_s=switch, tor_bits_per_s=tor, layers=layers, chips=chips, **nic(system))
    names = "chips_per_rack racks_per_pod pods chips switches cables optics".split()
    table = pd.DataFrame({name: np.broadcast_to(getattr(sized, name), switch.shape) for name in names})
    for part in ("switches", "cables", "optics"):
        table[f"{part}_per_chip"] = table[part] / table.chips
    table.insert(0, "leaf_and_spine", [*map(_tera, switch)])
    return table


def port_choice(system: str | System, chips: float, port_bits_per_s: Iterable[float]) -> pd.DataFrame:
    """What a cluster of that many chips takes in each port size: layers needed, switches and modules a chip.

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
    import pandas as pd

    attach, rows, chips = nic(system), [], number("chips", chips, 1)
    for port in np.ravel(numbers("port_bits_per_s", port_bits_per_s, 1)).tolist():
        planes = attach["planes"] if attach["nic_bits_per_s"] >= attach["planes"] * port else 1
        given = attach | {"port_bits_per_s": port, "planes": planes}
        for switch in switch_bits_per_s():
            tried = [network.clos(switch_bits_per_s=switch, layers=n, chips=chips, **given) for n in (2, 3)]
            sized = next((one for one in tried if one.valid), tried[-1])
            full = network.clos(switch_bits_per_s=switch, layers=sized.layers, **given)
            rows.append(
                {
                    "switch": _tera(switch),
                    "port": f"{port / BITS / GBIT:g}G",
                    "layers": float(sized.layers) if sized.valid else math.nan,
                    "switches_per_chip": float(sized.switches / sized.chips),
                    "optics_per_chip": float(sized.optics / sized.chips),
                    "reach_chips": float(full.max_chips),
                }
            )
    return pd.DataFrame(rows)


def rates(names: Iterable[str | System]) -> pd.DataFrame:
    """Scale-out beside scale-up for each system: system, chip, chips, generation, rates of a chip, their ratio."""
    import pandas as pd

    rows = []
    for spec in map(systems.system, listed("names", names)):
        out, up = spec.scaleout_bytes_per_s_per_dir, spec.chip.scaleup_bytes_per_s_per_dir
        rows.append(
            {
                "system": spec.id,
                "chip": spec.chip.name,
                "chips": spec.domain_chips,
                "generation": spec.nic_generation or "not stated",
                "nic_bytes_per_s_per_dir": spec.nic_bytes_per_s_per_dir,
                "scaleout_bytes_per_s_per_dir": out,
                "domain_bytes_per_s_per_dir": out * spec.domain_chips,
                "scaleup_over_scaleout": up / out,
            }
        )
    return pd.DataFrame(rows)


def notation(system: str | System) -> pd.DataFrame:
    """The notation table of the chapter: symbol, code name, meaning, value, source.

    Examples
    --------
    >>> notation("trn3-nl72x2-pcie160").symbol.tolist()[:3]
    ['p', 'k', 'S']
    """
    import pandas as pd

    spec = systems.system(system)
    wanted = [("p", AWS, "port_bytes_per_s_per_dir"), ("k", AWS, "tor_switches")]
    wanted += [("t_switch", AWS, "switch_s"), ("t_nic", AWS, "nic_s"), ("n", FIBRE, "group_index")]
    facts = [(symbol, load.fact_in_force(entity, quantity)[0]) for symbol, entity, quantity in wanted]
    offered = [fact for fact in load.facts_rows().values() if fact.quantity == "switch_bytes_per_s_per_dir"]
    facts[2:2] = [("S", fact) for fact in offered[:1]]
    own = {"b": "network_bytes_per_s_per_dir", "b_nic": "nic_bytes_per_s_per_dir"}
    known = {symbol: spec.sources[field][0] for symbol, field in own.items() if field in spec.sources}
    facts += [(symbol, load.facts_rows()[fact_id]) for symbol, fact_id in known.items()]
    return pd.DataFrame([_noted(symbol, fact) for symbol, fact in facts])


def _noted(symbol: str, fact: load.Fact) -> dict:
    quantity, (value, low, high) = load.quantities()[fact.quantity], load.value_si(fact)
    shown = dict.fromkeys((low, high) if low != high else (value,))
    printed = " to ".join(format_quantity(number, quantity.unit_si).removesuffix(" 1") for number in shown)
    if symbol == "S":
        printed = ", ".join(map(_tera, switch_bits_per_s()))
    return {
        "symbol": symbol,
        "code name": fact.quantity,
        "meaning": quantity.description,
        "value": printed,
        "source": f"{fact.source}, {fact.locator} ({fact.confidence})",
    }
