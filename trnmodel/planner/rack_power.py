"""Power budget of a rack by component: parts that sources count, watts of each as a range, and what no source names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import instance, refuse
from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Parts, Power
from trnmodel.catalog.specs import published
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.fabric.graph import topology
from trnmodel.formulas import energy as page
from trnmodel.planner.power import HIGH, LOW, MIDDLE, NO_WATTS, Numbers, at_end
from trnmodel.result import Basis, Grounded, blank, tidy
from trnmodel.units import KW

if TYPE_CHECKING:
    import pandas as pd

PARTS = {
    "logic_w": "chips, without their HBM",
    "hbm_w": "HBM inside the packages",
    "switches_w": "scale-up switches",
    "retimers_w": "retimers",
    "hosts_w": "host CPUs",
    "memory_w": "host memory",
    "nics_w": "NICs",
    "cooling_w": "fans and pumps",
    "conversion_w": "power shelves",
    "unnamed_w": "what no source names",
}
WHOLE = "all, as provisioned"
UNITS = {"switches_w": "switch lane", "retimers_w": "retimer", "hosts_w": "CPU", "memory_w": "DIMM", "nics_w": "NIC"}
OVER = "the parts that are counted draw more than what is provisioned"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RackPower(Grounded):
    """Watts of one rack with every chip at its TDP, by part; `all_in_w` is what is provisioned for its chips.

    The parts sum to `all_in_w`, at the low ends, in the middle and at the high ends. `counted_w` is the sum of those
    whose number and watts a source has; `unnamed_w` is the rest: storage, the network beyond the rack, management,
    regulators, cables, host memory where nobody counts it, and reserve. A part that nobody counts is NaN.
    """

    REASONS: ClassVar[tuple[str, ...]] = (NO_WATTS, OVER)
    FIGURE: ClassVar[str] = "counted_w"

    system: System
    chips: NDArray
    numbers: dict[str, float]
    logic_w: NDArray
    hbm_w: NDArray
    switches_w: NDArray
    retimers_w: NDArray
    hosts_w: NDArray
    memory_w: NDArray
    nics_w: NDArray
    cooling_w: NDArray
    conversion_w: NDArray
    counted_w: NDArray
    unnamed_w: NDArray
    all_in_w: NDArray
    at: Callable[[int], Numbers]

    def _widths(self, name: str, **about: str) -> tuple[Any, Any]:
        """Half-widths of the logarithm, with every input at its low and at its high end; none for what is not there."""
        value, low, high = (np.asarray(found[name]) for found in (self.at(MIDDLE), self.at(LOW), self.at(HIGH)))
        with np.errstate(divide="ignore", invalid="ignore"):
            below, above = (np.where(value > 0, np.abs(np.log(end / value)), np.nan) for end in (low, high))
        return below, above

    def parts(self) -> pd.DataFrame:
        """Each part in a row: part, number in the rack, watts of one and of all, low, middle and high; then their sum.

        Examples
        --------
        >>> found = rack_power("trn3-nl72x2-pcie160").parts().set_index("part")
        >>> found.number[["retimers", "scale-up switches"]].tolist()
        [108.0, 11008.0]
        """
        ends = [self.at(end) for end in (LOW, MIDDLE, HIGH)]
        rows = []
        for name, word in {**PARTS, "all_in_w": WHOLE}.items():
            low, value, high = (float(found[name]) for found in ends)
            each = {"number": self.numbers.get(name, np.nan), "what": UNITS.get(name, "")}
            share = {"share": value / float(self.all_in_w)}
            rows.append({"part": word} | each | {"w_low": low, "w": value, "w_high": high} | share)
        return tidy(rows)


def _numbers(spec: System) -> dict[str, float]:
    """How many of each part stand in a rack; NaN where no source says. Of switches the lanes count."""
    media = {"backplane": spec.switch, "pcb": spec.pcb_switch}
    switches = topology(spec).switch_counts
    lanes = sum(count * getattr(media.get(medium), "switch_lanes", np.nan) for medium, count in switches.items())
    cpus = spec.host_cpus / spec.racks
    return {
        "logic_w": spec.domain_chips / spec.racks,
        "hbm_w": spec.domain_chips / spec.racks,
        "switches_w": lanes / spec.racks,
        "retimers_w": spec.retimers_per_tray * spec.compute_trays_per_rack,
        "hosts_w": cpus,
        "memory_w": cpus * spec.dimm_slots_per_cpu,
        "nics_w": (spec.nics + published(spec.cpu_nics, 0.0)) / spec.racks,
    }


def _watts(spec: System, numbers: dict[str, float], parts: Parts, power: Power, end: int) -> Numbers:
    """Watts of every part of a rack with all inputs at one end."""
    pick, chip, chips = at_end(end), spec.chip, numbers["logic_w"]
    tdp_w = pick(chip, "tdp_w")
    hbm_w = page.moved_w(chip.hbm_bytes_per_s, 1.0, pick(power, "byte_j", "hbm"))
    found: Numbers = {"logic_w": chips * (tdp_w - hbm_w), "hbm_w": chips * hbm_w}
    found |= {name: numbers[name] * pick(parts, "part_w", unit) for name, unit in UNITS.items()}
    load_w = sum(np.nan_to_num(np.asarray(watts)) for watts in found.values()) + 0 * tdp_w
    shares = pick(parts, "cooling_share"), pick(parts, "conversion_share")
    cooled_w, counted_w = (page.wall_w(load_w, published(shares[0], 0.0), published(v, 0.0)) for v in (0.0, shares[1]))
    all_in_w = chips * published(chip.all_in_w, tdp_w * pick(power, "all_in_ratio"))
    return found | {
        "cooling_w": load_w * shares[0],
        "conversion_w": cooled_w * shares[1],
        "counted_w": counted_w,
        "unnamed_w": all_in_w - counted_w,
        "all_in_w": all_in_w,
    }


def rack_power(system: str | System, *, parts: Parts | None = None, power: Power | None = None) -> RackPower:
    """Power budget of one rack of a system by component, low, middle and high.

    Parameters
    ----------
    system : str or System
        A system whose racks, trays and host CPUs a source counts. [-]
    parts : Parts, optional
        Watts of parts, shares of fans and power shelves; default those of how the system is cooled. [-]
    power : Power, optional
        Energy of a byte of HBM and what is provisioned over the TDP; default those of the chip's vendor. [-]

    Returns
    -------
    budget : RackPower
        Watts of each part of a rack; `parts()` is a table of them. [W]

    Raises
    ------
    ValueError
        A system whose racks nobody counts.

    Notes
    -----
    Chips draw their TDP and read their HBM at its full rate. All inputs stand at their low ends together, then at their
    high ends: the sum of many parts is narrower. Watts of a lane, a retimer, a CPU, a DIMM and a NIC are those of other
    vendors' parts.

    Examples
    --------
    >>> small, large = (rack_power(name) for name in ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"))
    >>> bool(0.9 < (small.counted_w / small.chips) / (large.counted_w / large.chips) < 1.1)
    True
    """
    spec = find_system(system, "system")
    if np.isnan(spec.racks):
        refuse("system", spec.id, "allowed is one whose racks a source counts, such as trn3-nl72x2-pcie160")
    stands = facilities.parts(spec.cooling) if parts is None else instance("parts", parts, Parts, "a Parts")
    draws = facilities.power(spec.chip) if power is None else instance("power", power, Power, "a Power")
    numbers = _numbers(spec)

    def at(end: int) -> Numbers:
        return _watts(spec, numbers, stands, draws, end)

    found = at(MIDDLE)
    unknown = np.isnan(np.asarray(found["all_in_w"], dtype=float))
    mask = unknown * 1 + (found["unnamed_w"] < 0) * 2
    missing = [word for name, word in PARTS.items() if np.all(np.isnan(found[name]))]
    told = "watts: of other vendors' parts" + (f"; in no source: {', '.join(missing)}" if missing else "")
    watts: Numbers = blank(mask, chips=numbers["logic_w"], **found)
    return RackPower(
        system=spec,
        numbers=numbers,
        **watts,
        reason_mask=mask,
        judge=lambda: Basis("extrapolated", told),
        at=at,
    )


def beside(racks: Mapping[str, RackPower]) -> pd.DataFrame:
    """Racks side by side, part by part: of, part, number, kilowatts of the rack and watts a chip, with their ends.

    Examples
    --------
    >>> table = beside({"large": rack_power("trn3-nl72x2-pcie160")})
    >>> table.part.iloc[-1], round(float(table.rack_kw.iloc[-1]), 1)
    ('all, as provisioned', 121.5)
    """
    tables = {name: rack.parts() for name, rack in racks.items()}
    rows = []
    for i, word in enumerate([*PARTS.values(), WHOLE]):
        for name, table in tables.items():
            told = {"of": name, "part": word, "number": table.number[i]}
            for end in ("_low", "", "_high"):
                watts = table[f"w{end}"][i]
                told |= {f"rack_kw{end}": watts / KW, f"chip_w{end}": watts / float(racks[name].chips)}
            rows.append(told)
    return tidy(rows)
