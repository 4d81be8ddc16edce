"""Systems: what is in a rack, and which fabric joins its chips.

`data/systems/systems.csv` names a system's chip, kind of fabric and base; its facts are its own, then those of the
chain of bases, then those of its chip, so what two racks share is one row. Printed totals (cables, switches, CPUs) are
no inputs: they are compared with what the graph counts, in `trnmodel.fabric.what_if`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import numpy as np

from trnmodel.arguments import HUGE, MOST_CHIPS, Same, instance, integer, numbers, refuse
from trnmodel.catalog import load, reader
from trnmodel.catalog.names import folded, nearest_ids
from trnmodel.catalog.specs import NAN, Chip, Spec, mapping_field, published
from trnmodel.declared import SYSTEM, Flag, Integer, declare

if TYPE_CHECKING:
    import pandas as pd

AXES = "xyz"
ANY_MEMORY = 4e15  # bytes of a chip in which anything fits
MEDIA = ("pcb", "backplane", "cross-rack")
MOST_SWITCH_TRAYS = 100  # of a rack; the tallest racks have about 50 units
MOST_LANES = 2**20  # of a chip; a rate is below the largest number by this
NEEDED = {
    "torus": ("torus_shape",),
    "planes": (
        "racks",
        "compute_trays_per_rack",
        "chips_per_tray",
        "plane_positions",
        "switch_trays_per_rack",
        "switches_per_plane",
        "switch",
        "port_lanes",
        "lane_bytes_per_s_per_dir",
    ),
}
Fabric = Literal["single", "switch", "mesh", "torus", "planes"]
RedundantLaneEnds = Literal["other switches", "active switches"]
Status = Literal["for rent", "announced", "analyst", "our reading", "roadmap", "custom"]
AVAILABILITY: tuple[Status, ...] = get_args(Status)  # what can be had first comes first; "custom" is of a caller
GPU_MAKERS = ("NVIDIA", "AMD")
OFFERED: tuple[Status, ...] = ("for rent", "announced")  # by its cloud or its vendor
NOT_INHERITED = frozenset({"status", "alternative_of"})


class Row(msgspec.Struct, frozen=True):
    """A line of `data/systems/systems.csv`."""

    id: str
    chip: str
    fabric: Fabric
    base: str
    source: str
    locator: str
    note: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Switch(Spec):
    """A scale-up switch chip: how many lanes and ports it has."""

    COUNTS = frozenset({"switch_lanes", "switch_ports"})

    switch_lanes: float = NAN
    switch_ports: float = NAN


@dataclass(frozen=True, eq=False, kw_only=True)
class System(Spec):
    """Chips that share one scale-up fabric, with their host and network; `count` such domains side by side.

    Counts are for one domain unless the name says per rack or per tray. `scaleup_lanes` are active lanes of one chip by
    medium; redundant ones are all on the backplane. `scaleup_bytes_per_s_per_dir` is a torus chip's sum over its
    neighbours, within the instance and across the UltraServer apart. A switch may be given by its id.

    A rack that is drawn as one switch has `backplane_links_per_chip` where its links leave the trays of its chips: each
    goes to another switch behind a backplane. `redundant_lane_ends` says whether the redundant lanes of a chip end on
    "other switches", if the rack has any beyond those of its active lanes, or on the "active switches" themselves.

    `status` is what a buyer can get (`AVAILABILITY`); a system made by a caller is "custom". `alternative_of` is the id
    of the system of which this one is another reading or another build; it is empty for that system itself.
    """

    COUNTS = frozenset(
        """vcpus racks compute_trays_per_rack chips_per_tray cpus_per_compute_tray cpu_trays_per_rack cpus_per_cpu_tray
        cpu_nics_per_compute_tray cpu_nics_per_cpu_tray dimm_slots_per_cpu pcie_gearboxes_per_cpu retimers_per_tray
        backplanes backplane_links_per_chip
        backplane_lanes_per_link scaleup_lanes scaleup_lanes_redundant
        port_lanes switch_trays_per_rack switches_per_plane pcb_switches_per_tray""".split()
    )
    SHOWN = (
        "chip",
        "fabric",
        "cooling",
        "status",
        "alternative_of",
        "domain_chips",
        "count",
        "racks",
        "scaleup_bytes_per_s_per_dir",
        "network_bytes_per_s_per_dir",
        "host_bytes",
    )

    chip: Chip
    fabric: Fabric
    domain_chips: int
    count: int = 1
    status: Status = "custom"
    alternative_of: str = ""
    vcpus: float = NAN
    host_bytes: float = NAN
    nvme_bytes: float = NAN
    network_bytes_per_s_per_dir: float = NAN
    host_cpu: str = ""
    cooling: str = ""
    racks: float = NAN
    compute_trays_per_rack: float = NAN
    chips_per_tray: float = NAN
    cpus_per_compute_tray: float = 0.0
    cpu_trays_per_rack: float = 0.0
    cpus_per_cpu_tray: float = 0.0
    cpu_nics_per_compute_tray: float = 0.0
    cpu_nics_per_cpu_tray: float = 0.0
    host_link_bytes_per_s_per_dir: float = NAN
    dimm_slots_per_cpu: float = NAN
    pcie_gearboxes_per_cpu: float = NAN
    retimers_per_tray: float = NAN
    backplanes: float = NAN
    backplane_links_per_chip: float = 0.0
    backplane_lanes_per_link: float = NAN
    nic_generation: str = ""
    nic_bytes_per_s_per_dir: float = NAN
    scaleout_option_bytes_per_s_per_dir: Mapping[str, float] = mapping_field()
    torus_shape: tuple[int, ...] = ()
    scaleup_bytes_per_s_per_dir: Mapping[str, float] = mapping_field()
    lane_id: str = ""
    scaleup_lanes: Mapping[str, float] = mapping_field()
    scaleup_lanes_redundant: float = 0.0
    redundant_lane_ends: RedundantLaneEnds = "other switches"
    port_lanes: float = NAN
    plane_positions: str = ""
    switch_trays_per_rack: float = 0.0
    switches_per_plane: float = 0.0
    switch: Switch | None = None
    pcb_switches_per_tray: float = 0.0
    pcb_switch: Switch | None = None
    cross_rack_shift: int = 0
    lane_bytes_per_s_per_dir: float = NAN
    switch_s: float = NAN
    scaleout_hop_s: float = NAN

    def __post_init__(self) -> None:
        for name in ("switch", "pcb_switch"):
            if isinstance(getattr(self, name), str):
                switch_id = load.resolve("link", getattr(self, name), f"{self.id}: {name}")
                object.__setattr__(self, name, switch(switch_id))
        super().__post_init__()
        instance(f"{self.id}: chip", self.chip, Chip, "a Chip")
        lane = self.lane_bytes_per_s_per_dir
        numbers(f"{self.id}: lane_bytes_per_s_per_dir", lane, high=HUGE / MOST_LANES, unknown=True)
        self._check_alternative()
        self._check_fabric()
        counted = math.prod(self.torus_shape) if self.fabric == "torus" else self._chips_in_trays()
        if counted and counted != self.domain_chips:
            shape = "torus_shape" if self.fabric == "torus" else "racks x compute_trays_per_rack x chips_per_tray"
            refuse(f"{self.id}: domain_chips", self.domain_chips, f"{counted:g} chips by {shape}")

    @classmethod
    def _taken_over(cls, older: Mapping[str, Any], newer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a system takes over from its base: all but what a buyer can get, which each system states."""
        values = {name: value for name, value in older.items() if name not in NOT_INHERITED}
        sources = {label: ids for label, ids in older["sources"].items() if label not in NOT_INHERITED}
        return {**values, "sources": sources, "estimates": older["estimates"] - NOT_INHERITED}

    def _check_alternative(self) -> None:
        """Refuse a primary system that is unknown, that is this one, or that is another one's alternative."""
        if not self.alternative_of:
            return
        primary = load.resolve("system", self.alternative_of, f"{self.id}: alternative_of")
        if primary == self.id or load.stated(primary, "alternative_of"):
            why = "is this system itself" if primary == self.id else "is an alternative of another system itself"
            refuse(f"{self.id}: alternative_of", self.alternative_of, f"{primary} {why}; allowed is a primary system")
        object.__setattr__(self, "alternative_of", primary)

    def _check_fabric(self) -> None:
        """Refuse a composition from which its kind of fabric cannot be built."""
        shape, switched = self.torus_shape, self.fabric == "planes"
        if len(shape) > len(AXES) or 1 in shape:
            refuse(f"{self.id}: torus_shape", shape, "allowed are up to three sizes from 2")
        needed = (*NEEDED.get(self.fabric, ()), *(("pcb_switch",) if self.pcb_switches_per_tray else ()))
        for name in needed:
            value = getattr(self, name)
            if np.any(value != value) or not (np.any(value) if isinstance(value, np.ndarray) else value):
                why = "pcb_switches_per_tray" if name == "pcb_switch" else f"fabric={self.fabric!r}"
                refuse(f"{self.id}: {name}", value, f"needed for {why}")
        if switched and self.racks not in (1, 2):
            refuse(f"{self.id}: racks", self.racks, "allowed are 1 and 2 where racks are joined chip by chip")
        if switched and not self.scaleup_lanes.keys() >= set(MEDIA):
            refuse(f"{self.id}: scaleup_lanes", dict(self.scaleup_lanes), f"allowed are lanes of {', '.join(MEDIA)}")
        if self.redundant_lane_ends == "active switches":
            self._check_redundant_lanes()
        rates = self.scaleup_bytes_per_s_per_dir.keys()
        parts = {"instance", "ultraserver"} if len(shape) == len(AXES) else {"instance"}
        if self.fabric == "torus" and not (rates >= parts if "instance" in rates else "" in rates):
            refuse(f"{self.id}: scaleup_bytes_per_s_per_dir", sorted(rates), f"allowed are '' or {sorted(parts)}")

    def _check_redundant_lanes(self) -> None:
        """Refuse redundant lanes on the switches of the active ones where there are none, or too few switch lanes."""
        where = self.redundant_lane_ends
        if self.fabric != "planes" or not self.redundant_lanes_per_link:
            refuse(f"{self.id}: redundant_lane_ends", where, "the chip has no redundant lane for each of its links")
        assert self.switch is not None  # a fabric of planes has one
        chips = self.domain_chips / self.racks / len(self.plane_positions.split("|"))
        needed = chips * (self.port_lanes + self.redundant_lanes_per_link)
        if needed > self.switch.switch_lanes:
            most = f"{self.switch.id} has {self.switch.switch_lanes:g} lanes, needed are {needed:g}"
            refuse(f"{self.id}: redundant_lane_ends", where, most)

    @property
    def redundant_lanes_per_link(self) -> float:
        """Whole redundant lanes of a chip for each of the links of its active backplane lanes.

        Examples
        --------
        >>> system("trn3-nl32x2-pcie160").redundant_lanes_per_link  # 16 lanes, 64 active ones in links of 8
        2.0
        """
        links = self.scaleup_lanes.get("backplane", 0.0) / self.port_lanes
        return float(self.scaleup_lanes_redundant // links) if links > 0 else 0.0

    def _chips_in_trays(self) -> float:
        known = self.racks * self.compute_trays_per_rack * self.chips_per_tray
        return 0 if math.isnan(known) else known

    @property
    def chips(self) -> int:
        """Chips of all `count` domains."""
        return self.domain_chips * self.count

    @property
    def hbm_bytes(self) -> float:
        """HBM of all chips [B]."""
        return self.chips * self.chip.hbm_bytes

    @property
    def hbm_bytes_per_s(self) -> float:
        """HBM bandwidth of all chips [B/s]."""
        return self.chips * self.chip.hbm_bytes_per_s

    @property
    def compute_trays(self) -> float:
        """Compute (JBOG) trays of one domain."""
        return self.racks * self.compute_trays_per_rack

    @property
    def host_cpus(self) -> float:
        """Host CPUs of one domain, those of compute trays and of CPU trays together; NaN where no source says."""
        in_cpu_trays = self.racks * self.cpu_trays_per_rack * self.cpus_per_cpu_tray
        return self.compute_trays * self.cpus_per_compute_tray + in_cpu_trays or NAN

    @property
    def scaleout_bytes_per_s_per_dir(self) -> float:
        """EFA rate of one chip [B/s]."""
        per_chip = self.network_bytes_per_s_per_dir / self.domain_chips
        return published(per_chip, self.chip.scaleout_bytes_per_s_per_dir)

    @property
    def nics(self) -> float:
        """Scale-out NICs of the chips of one domain: their bandwidth in units of one NIC."""
        return self.domain_chips * self.scaleout_bytes_per_s_per_dir / self.nic_bytes_per_s_per_dir

    @property
    def cpu_nics(self) -> float:
        """NICs of the host CPUs' own of one domain; NaN where no source says."""
        in_cpu_trays = self.racks * self.cpu_trays_per_rack * self.cpu_nics_per_cpu_tray
        return self.compute_trays * self.cpu_nics_per_compute_tray + in_cpu_trays or NAN

    def with_switch_trays(self, trays: int) -> System:
        """Return the same system with more or fewer switch trays a rack, each tray holding what it holds now.

        A fifth tray in the NL32x2 rack makes its redundant backplane lanes useful.
        """
        wanted = integer("trays", trays, 1, MOST_SWITCH_TRAYS)
        if not self.switch_trays_per_rack:
            refuse("trays", trays, f"{self.id} has no switch trays")
        per_plane = self.switches_per_plane * wanted / self.switch_trays_per_rack
        return replace(self, switch_trays_per_rack=float(wanted), switches_per_plane=per_plane)


def chip_of(where: System | Chip) -> Chip:
    """Return the chip of a system, or the bare chip."""
    return where if isinstance(where, Chip) else where.chip


def switch(name: str) -> Switch:
    """Return a switch chip by id, e.g. "scorpio-x-160"."""
    return reader.find(Switch, "link", name)


@cache
def _rows() -> dict[str, Row]:
    rows = {row.id: row for row in load.read_csv(load.DATA / "systems" / "systems.csv", Row)}
    for row in rows.values():
        if row.id not in load.entities() or row.base not in {"", *rows} or row.chip not in load.chips():
            listed = f"{row.id!r}, its base {row.base!r} or its chip {row.chip!r}"
            raise load.DataError(f"data/systems/systems.csv: {listed} is not listed in data/lists/entities.csv")
    return rows


def bases(system_id: str) -> tuple[str, ...]:
    """Return a system and those that it inherits facts from, the most general last."""
    return reader.ancestry(system_id, {row.id: row.base for row in _rows().values()})


def _chips(system_id: str) -> float:
    """Chips of one domain: printed for the system or the nearest of its bases, else for the chip."""
    for entity in bases(system_id):
        if load.stated(entity, "chips"):
            return load.value(entity, "chips")
    if not load.stated(_rows()[system_id].chip, "scaleup_domain_chips"):
        raise load.DataError(f"data/facts/*.csv: no row of {system_id}, chips")
    return load.value(_rows()[system_id].chip, "scaleup_domain_chips")


@cache
def _system(system_id: str) -> System:
    row = _rows()[system_id]
    kwargs = reader.inherited(System, (row.chip, *reversed(bases(system_id))))
    kwargs |= {"fabric": row.fabric, "domain_chips": int(_chips(system_id))}
    chip = load.chip(row.chip)
    owners = {"lane_bytes_per_s_per_dir": (kwargs.get("lane_id", ""), "scaleup_bytes_per_s_per_dir")}
    if chip.core:
        owners |= {"switch_s": ("pcie-switch", "switch_s"), "scaleout_hop_s": ("efa-v3", "hop_s")}
    kwargs = load.borrowed(kwargs | {"chip": chip}, owners)
    if row.fabric == "torus" and "torus_shape" not in kwargs and load.stated(row.chip, "pod_shape"):
        printed = load.fact_in_force(row.chip, "pod_shape")[0]
        kwargs["torus_shape"] = tuple(int(size) for size in printed.value_printed.split("x"))
        kwargs["sources"] = MappingProxyType(dict(kwargs["sources"]) | {"torus_shape": (printed.id,)})
    if "status" not in kwargs:
        raise load.DataError(f"data/facts/availability.csv: no row of {system_id}, status")
    try:
        return System(**kwargs)
    except ValueError as error:
        raise load.DataError(f"data/facts/*.csv: rows of {system_id}: {error}") from None


def find(name: str | System, argument: str) -> System:
    """Return a system by id or name for an `argument` of a call."""
    if isinstance(name, System):
        return name
    return _named(name, argument) if type(name) is str else _named.__wrapped__(name, argument)


@lru_cache(maxsize=512)
def _named(name: str, argument: str) -> System:
    """Return the system that a name means, looked up once."""
    rows = _rows()  # which checks them
    system_id = load.resolve("system", name, argument)
    if system_id not in rows:
        near = ", ".join(nearest_ids(name, {folded(one): one for one in systems()}))
        what = f"data/systems/systems.csv has no row of {system_id}"
        raise ValueError(f"{argument}={name!r} is no scale-up domain, {what}; nearest: {near}")
    return _system(system_id)


@declare(name=SYSTEM, count=Integer())
def system(name: str | System, count: int = 1) -> System:
    """Return a system by id or by any name of the table of names; a `System` is returned as it is.

    Parameters
    ----------
    name : str or System
        "trn3-nl72x2-pcie160", "trn2-ultraserver", "gb200-nvl72", ... [-]
    count : int
        Scale-up domains side by side, joined by the scale-out network. [-]

    Returns
    -------
    system : System
        Frozen spec in base units, with the facts behind each field in `.sources`.

    Raises
    ------
    ValueError
        Unknown name (the message lists the nearest) or a count below one.

    Examples
    --------
    >>> rack_pair = system("trn3-nl72x2-pcie160")
    >>> rack_pair.chips, rack_pair.host_cpus, rack_pair.nics, rack_pair.cpu_nics
    (144, 36.0, 72.0, 36.0)
    >>> system("trn2.48xlarge", count=4).chips
    64
    """
    one = find(name, "system")
    return one if count == 1 else joined(one, count)


def joined(one: System, count: int) -> System:
    """Return so many domains of a system: one object for each number, by which all that is resolved of it is saved."""
    return _joined(Same(one), count)


@lru_cache(maxsize=256)
def _joined(one: Same[System], count: int) -> System:
    return replace(one.it, count=integer("count", count, 1, MOST_CHIPS))


@lru_cache(maxsize=256)
def roomy(one: System) -> System:
    """Return the same system of chips whose memory sets no limit.

    Examples
    --------
    >>> roomy(system("hgx-h100")).chip.hbm_bytes
    4000000000000000.0
    """
    return replace(one, chip=replace(one.chip, hbm_bytes=ANY_MEMORY))


def system_table(roadmap: bool = False) -> pd.DataFrame:
    """Return every system of the catalog with what it is made of and what else it is called.

    Parameters
    ----------
    roadmap : bool
        Whether systems of status "roadmap" are listed too. [-]

    Returns
    -------
    systems : pandas.DataFrame
        id, name, chip, chips, fabric, racks, hbm_bytes (of all chips), status, alternative_of, names (of the table of
        names, with semicolons).

    Examples
    --------
    >>> table = system_table().set_index("id")
    >>> int(table.chips["trn3-nl72x2-pcie160"]), table.names["trn2.48xlarge"].split("; ")[:2]
    (144, ['Trn2.48xlarge', 'trn2u.48xlarge'])
    """
    import pandas as pd

    called: dict[str, list[str]] = {}
    for row in load.names():
        called.setdefault(row.id, []).append(row.alias)
    rows = []
    for name in systems(roadmap):
        one = _system(name)
        rows.append(
            {
                "id": name,
                "name": one.name,
                "chip": one.chip.id,
                "chips": one.chips,
                "fabric": one.fabric,
                "racks": one.racks,
                "hbm_bytes": one.chips * one.chip.hbm_bytes,
                "status": one.status,
                "alternative_of": one.alternative_of,
                "names": "; ".join(called.get(name, [])),
            }
        )
    return pd.DataFrame(rows)


@declare(roadmap=Flag())
def systems(roadmap: bool = False) -> list[str]:
    """Ids of the systems of the catalog.

    Parameters
    ----------
    roadmap : bool
        Whether to list the systems of status "roadmap" too. Their chips are announced and their racks are assumed, so
        they answer by name alone. [-]

    Returns
    -------
    ids : list of str
        What `tm.system` takes, in the order of the catalog.

    Examples
    --------
    >>> "trn2.48xlarge" in systems()
    True
    >>> sorted({*systems(roadmap=True)} - {*systems()})
    ['trn4-nvlink-roadmap', 'trn4-ualink-roadmap']
    """
    every = [row for row in _rows() if load.entities()[row].kind == "system"]
    return [name for name in every if roadmap or _status(name) != "roadmap"]


def _status(system_id: str) -> str:
    """Return what a buyer can get of a system, without reading the rest of it."""
    return load.fact_in_force(system_id, "status")[0].value_printed if load.stated(system_id, "status") else ""


def on_offer() -> list[str]:
    """Return the Trainium systems that a buyer can rent or that AWS announced, without their alternatives.

    A plan considers them where no system is named; they stand in the order of the catalog.

    Examples
    --------
    >>> on_offer()[:3], "trn3-nl72x2-ualink" in on_offer()
    (['trn1.2xlarge', 'trn1.32xlarge', 'trn1n.32xlarge'], False)
    """
    primary = [one for one in map(_system, systems()) if not one.alternative_of]
    return [one.id for one in primary if one.chip.id.startswith("trainium") and one.status in OFFERED]


def gpus_for_rent() -> list[str]:
    """Return the systems of GPUs that a buyer can rent, in the order of the catalog: what a plan sets beside its best.

    Examples
    --------
    >>> gpus_for_rent()[:3]
    ['hgx-a100', 'hgx-h100', 'hgx-h200']
    """
    primary = [one for one in map(_system, systems()) if not one.alternative_of]
    return [one.id for one in primary if one.chip.vendor in GPU_MAKERS and one.status == "for rent"]


def alternatives(system_id: str) -> list[str]:
    """Return the ids of other readings and builds of a system; the primary one leads where an alternative is named.

    Examples
    --------
    >>> alternatives("trn3-nl72x2-aws-lanes"), alternatives("trn2.48xlarge")
    (['trn3-nl72x2-pcie160', 'trn3-nl72x2-pex90144'], [])
    """
    one = find(system_id, "system_id")
    primary = one.alternative_of or one.id
    alike = [primary, *(name for name in systems() if _system(name).alternative_of == primary)]
    return [name for name in alike if name != one.id]
