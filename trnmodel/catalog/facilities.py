"""Power beyond a chip's own figures: shares of activity, energies of operations, servers, racks and sites.

Shares stand for a vendor, energies of operations for a node of logic (`Power`); PUE, carbon and water for a site
(`Facility`). Nobody has published a watt of an AWS chip: its shares are those of GPUs, with wider ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from trnmodel.arguments import number, refuse
from trnmodel.catalog import reader
from trnmodel.catalog.specs import NAN, Chip, Spec, mapping_field

S = TypeVar("S", bound=Spec)
NODES = (3, 5, 7, 45)  # nm of which `data/` has energies; what lies between is of the family of the next larger
AIR = "aws-air"
SITES = {"air": AIR, "liquid": "aws-chilled"}  # where a rack stands, by what cools it
Ends = tuple[Any, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Power(Spec):
    """How watts follow from what a chip does: shares of TDP, energies of operations and bytes, the server around it.

    `flop_j` is by compute dtype at a node of logic, `byte_j` by medium. `idle_share` and `all_in_ratio` stand for chips
    that have no `idle_share` and no `all_in_w` of their own. `flop_ratio` is the energy of an operation in a served
    model by compute dtype, over that of a 16-bit one. What is open has its ends in `.ranges`.
    """

    idle_share: float = NAN
    compute_activity: float = NAN
    hbm_activity: float = NAN
    flop_ratio: Mapping[str, float] = mapping_field()
    chip_width: float = 0.0
    host_w_per_chip: float = NAN
    server_ratio: float = NAN
    server_max_ratio: float = NAN
    server_width: float = 0.0
    all_in_ratio: float = NAN
    static_share: float = NAN
    flop_j: Mapping[str, float] = mapping_field()
    byte_j: Mapping[str, float] = mapping_field()


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts(Spec):
    """Parts of a rack other than its chips: watts of one by part, shares for fans and pumps and for power shelves."""

    part_w: Mapping[str, float] = mapping_field()
    cooling_share: float = NAN
    conversion_share: float = NAN


@dataclass(frozen=True, eq=False, kw_only=True)
class Facility(Spec):
    """A site: its PUE over a year and on its hottest day, carbon of its electricity by region, its water."""

    annual_pue: float = NAN
    peak_pue: float = NAN
    carbon_kg_per_j: Mapping[str, float] = mapping_field()
    water_l_per_j: float = NAN


def ends(spec: Spec, name: str, key: str = "") -> Ends:
    """Low and high of a number of a spec; a range that does not hold the value is of what the value replaced.

    Examples
    --------
    >>> import trnmodel as tm
    >>> from dataclasses import replace
    >>> chip = tm.chip("trainium3")
    >>> ends(chip, "tdp_w"), ends(replace(chip, tdp_w=600.0), "tdp_w")
    ((700.0, 1000.0), (600.0, 600.0))
    """
    which = f"{name}[{key}]" if key else name
    return spec.open_ranges.get(which, (spec.at(which),) * 2)


@lru_cache(maxsize=64)
def _power(kind: str, process: str) -> Power:
    """Return the shares of a kind of chip, with energies of operations at the node that its process names, if any."""
    shares, size = reader.spec(Power, kind), re.search(r"\d+", process)
    near = [node for node in NODES if size and int(size[0]) <= node]
    if not near:
        return shares
    node = reader.spec(Power, f"node-{near[0]}nm")
    return replace(
        shares,
        flop_j=node.flop_j,
        sources={**shares.sources, **node.sources},
        ranges={**shares.ranges, **node.ranges},
        estimates=shares.estimates | node.estimates,
    )


def power(chip: Chip) -> Power:
    """Return how a chip's power follows from its activity: shares of its kind of chip, energies of its logic node.

    Examples
    --------
    >>> import trnmodel as tm
    >>> found = power(tm.chip("trainium2"))
    >>> found.id, f"{found.flop_j['bf16']:.4g}", found.range("host_w_per_chip")
    ('neuron-power', '6.475e-13', (113.2, 226.5))
    """
    return _power("gpu-power" if chip.core is None else "neuron-power", chip.process)


def parts(cooling: str) -> Parts:
    """Return the parts of a rack other than its chips, by how it is cooled; unknown cooling has no fans or pumps.

    Examples
    --------
    >>> parts("air").range("cooling_share"), parts("liquid").range("part_w[retimer]")
    ((0.049, 0.15), (11.0, 13.0))
    """
    return reader.spec(Parts, f"rack-{cooling}" if cooling else "rack-parts")


Assumptions = Mapping[str, Mapping[str, float]]


def assumed(items: Iterable[str]) -> Assumptions:
    """Return the numbers that a reader assumes in place of data, by id of a spec and name of a field.

    Raises ValueError for what does not read as "id.field=number".

    Examples
    --------
    >>> assumed(["trainium3.tdp_w=700", "aws-air.peak_pue = 1.3", "rack-air.part_w[NIC]=40"])
    {'trainium3': {'tdp_w': 700.0}, 'aws-air': {'peak_pue': 1.3}, 'rack-air': {'part_w[NIC]': 40.0}}
    """
    assumptions: dict[str, dict[str, float]] = {}
    for item in items:
        read = re.fullmatch(r"\s*([^.\s]+)\.([^=\s][^=]*?)\s*=\s*([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)\s*", item)
        if read is None:
            refuse("assume", item, 'allowed is an id, a field and a number, such as "trainium3.tdp_w=700"')
        assumptions.setdefault(read[1], {})[read[2]] = number(f"assume: {item}", float(read[3]))
    return assumptions


def with_assumptions(spec: S, assumptions: Assumptions) -> S:
    """Return a spec with the numbers that a reader assumes for its id; their ranges no longer apply.

    Examples
    --------
    >>> import trnmodel as tm
    >>> chip = with_assumptions(tm.chip("trainium3"), {"trainium3": {"tdp_w": 800.0}})
    >>> chip.tdp_w, ends(chip, "tdp_w")
    (800.0, (800.0, 800.0))
    """
    own = assumptions.get(spec.id, {})
    left = {name: pair for name, pair in spec.ranges.items() if name not in own}
    return replace(spec.moved(own), ranges=left) if own else spec


@dataclass(frozen=True, eq=False, kw_only=True)
class Claims(Spec):
    """Claims of a vendor about a system against another one, by what is compared."""

    claimed_ratio: Mapping[str, float] = mapping_field()
    claimed_cut: Mapping[str, float] = mapping_field()


def claims(system: str = "trn3-nl72x2-pcie160") -> Claims:
    """Return what AWS and the press claim of a system against the one before it.

    Examples
    --------
    >>> sorted(claims().claimed_ratio.items())
    [('efficiency', 4.0), ('peak compute', 4.4), ('speed', 3.0), ('tokens per MW', 5.0)]
    """
    return reader.spec(Claims, system)


def site(system: Any, chosen: str | Facility | None = None, own: str = "") -> Facility:
    """Return the site whose PUE counts for a system: the one that is given, else its owner's own, else by its cooling.

    A rack that liquid cools stands at a site with chillers on peak days. Any other stands at one that outside air
    cools, which is also assumed where no source says how a system is cooled.

    Parameters
    ----------
    system : System or Chip
        System, whose `cooling` counts; a chip alone has none. [-]
    chosen : str or Facility, optional
        Site that a call names. [-]
    own : str
        Id of the site of an owner that has one, such as a rented building; blank for an owner that builds. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> [site(tm.system(name)).id for name in ("trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160")]
    ['aws-chilled', 'aws-air']
    >>> site(tm.system("trn3-nl72x2-pcie160"), "aws-air").id, site(tm.system("hgx-h100"), own="colocation").id
    ('aws-air', 'colocation')
    """
    assumed = own or SITES.get(getattr(system, "cooling", ""), AIR)
    return facility(assumed if chosen is None else chosen)


def facility(name: str | Facility) -> Facility:
    """Return a site by id; a `Facility` is returned as it is.

    Raises ValueError with the nearest ids for an unknown one.

    Examples
    --------
    >>> facility("aws-air").annual_pue, facility("aws-chilled").peak_pue
    (1.14, 1.5)
    """
    return reader.find(Facility, "facility", name)
