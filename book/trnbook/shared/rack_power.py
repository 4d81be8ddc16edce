"""Power budget of a rack by component: counted parts, the watts of each as a range, and the rest no source names."""

from __future__ import annotations

from collections.abc import Mapping
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
from trnmodel.power.account import provisioned_w
from trnmodel.power.energy import HIGH, LOW, MIDDLE, NO_WATTS, Figures, value_at
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
class RackQuestion:
    """Inputs of a rack's power budget; `numbers` is how many of each part stand in the rack."""

    system: System
    parts: Parts
    power: Power
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RackPower(Grounded):
    """Power of one rack with every chip at its TDP, by part; `all_in_w` is the provisioned power of its chips.

    The parts sum to `all_in_w`, at the low ends, in the middle and at the high ends. `counted_w` is the sum of the
    parts whose number and watts a source has; `unnamed_w` is the rest: storage, the network beyond the rack,
    management, regulators, cables, host memory where no source counts it, and reserve. A part that no source counts is
    NaN.
    """

    REASONS: ClassVar[tuple[str, ...]] = (NO_WATTS, OVER)
    FIGURE: ClassVar[str] = "counted_w"
    UNBANDED: ClassVar[tuple[str, ...]] = ("chips",)

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
    question: RackQuestion

    def judge(self) -> Basis:
        """Return the basis, whose reason names the parts that no source counts."""
        missing = [title for name, title in PARTS.items() if np.all(np.isnan(_watts(self.question, MIDDLE)[name]))]
        parts = f"; in no source: {', '.join(missing)}" if missing else ""
        return Basis("extrapolated", f"watts: of other vendors' parts{parts}")

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a figure with all inputs at their low and high ends; NaN for a missing part."""
        value, low, high = (np.asarray(_watts(self.question, end)[name]) for end in (MIDDLE, LOW, HIGH))
        with np.errstate(divide="ignore", invalid="ignore"):
            below, above = (np.where(value > 0, np.abs(np.log(end / value)), np.nan) for end in (low, high))
        return below, above

    def parts(self) -> pd.DataFrame:
        """Return a row for each part, then their sum: number in the rack, watts low, middle and high, and share.

        Examples
        --------
        >>> table = rack_power("trn3-nl72x2-pcie160").parts().set_index("part")
        >>> table.number[["retimers", "scale-up switches"]].tolist()
        [108.0, 11008.0]
        """
        ends = [_watts(self.question, end) for end in (LOW, MIDDLE, HIGH)]
        rows = []
        for name, title in {**PARTS, "all_in_w": WHOLE}.items():
            low, value, high = (float(watts[name]) for watts in ends)
            each = {"number": self.numbers.get(name, np.nan), "what": UNITS.get(name, "")}
            share = {"share": value / float(self.all_in_w)}
            rows.append({"part": title} | each | {"w_low": low, "w": value, "w_high": high} | share)
        return tidy(rows)


def _numbers(spec: System) -> dict[str, float]:
    """Return the number of each part in a rack, of switches their lanes; NaN where no source has it."""
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


def _watts(question: RackQuestion, end: int) -> Figures:
    """Return the watts of every part of a rack with all inputs at one end."""
    parts, power, numbers = question.parts, question.power, question.numbers
    chip, chips = question.system.chip, numbers["logic_w"]
    tdp_w = value_at(end, chip, "tdp_w")
    hbm_w = page.moved_w(chip.hbm_bytes_per_s, 1.0, value_at(end, power, "byte_j", "hbm"))
    watts: Figures = {"logic_w": chips * (tdp_w - hbm_w), "hbm_w": chips * hbm_w}
    watts |= {name: numbers[name] * value_at(end, parts, "part_w", unit) for name, unit in UNITS.items()}
    load_w = sum(np.nan_to_num(np.asarray(each)) for each in watts.values()) + 0 * tdp_w
    shares = value_at(end, parts, "cooling_share"), value_at(end, parts, "conversion_share")
    cooled_w, counted_w = (page.wall_w(load_w, published(shares[0], 0.0), published(v, 0.0)) for v in (0.0, shares[1]))
    all_in_w = chips * provisioned_w(chip.all_in_w, tdp_w, value_at(end, power, "all_in_ratio"))
    return watts | {
        "cooling_w": load_w * shares[0],
        "conversion_w": cooled_w * shares[1],
        "counted_w": counted_w,
        "unnamed_w": all_in_w - counted_w,
        "all_in_w": all_in_w,
    }


def rack_power(system: str | System, *, parts: Parts | None = None, power: Power | None = None) -> RackPower:
    """Return the power budget of one rack of a system by component, with low and high ends.

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
        A system whose racks no source counts.

    Notes
    -----
    Chips draw their TDP and read their HBM at its full rate. All inputs are moved to their low ends together, then to
    their high ends; the interval of a sum of independent parts would be narrower. The watts of lanes, retimers, CPUs,
    DIMMs and NICs are those of other vendors' parts.

    Examples
    --------
    >>> small, large = (rack_power(name) for name in ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"))
    >>> bool(0.9 < (small.counted_w / small.chips) / (large.counted_w / large.chips) < 1.1)
    True
    """
    spec = find_system(system, "system")
    if np.isnan(spec.racks):
        refuse("system", spec.id, "allowed is one whose racks a source counts, such as trn3-nl72x2-pcie160")
    counted = facilities.parts(spec.cooling) if parts is None else instance("parts", parts, Parts, "a Parts")
    vendor = facilities.power(spec.chip) if power is None else instance("power", power, Power, "a Power")
    question = RackQuestion(system=spec, parts=counted, power=vendor, numbers=_numbers(spec))
    watts = _watts(question, MIDDLE)
    unknown = np.isnan(np.asarray(watts["all_in_w"], dtype=float))
    mask = unknown * 1 + (watts["unnamed_w"] < 0) * 2
    figures: Figures = blank(mask, chips=question.numbers["logic_w"], **watts)
    return RackPower(system=spec, numbers=question.numbers, **figures, reason_mask=mask, question=question)


def compare(racks: Mapping[str, RackPower]) -> pd.DataFrame:
    """Return racks part by part: of, part, number, kilowatts of the rack and watts per chip, with their ends.

    Examples
    --------
    >>> table = compare({"large": rack_power("trn3-nl72x2-pcie160")})
    >>> table.part.iloc[-1], round(float(table.rack_kw.iloc[-1]), 1)
    ('all, as provisioned', 107.1)
    """
    tables = {name: rack.parts() for name, rack in racks.items()}
    rows = []
    for i, title in enumerate([*PARTS.values(), WHOLE]):
        for name, table in tables.items():
            row = {"of": name, "part": title, "number": table.number[i]}
            for end in ("_low", "", "_high"):
                watts = table[f"w{end}"][i]
                row |= {f"rack_kw{end}": watts / KW, f"chip_w{end}": watts / float(racks[name].chips)}
            rows.append(row)
    return tidy(rows)
