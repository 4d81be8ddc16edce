"""Prices of parts and servers, what capital, buildings and electricity cost their owner, and warrants of suppliers.

A row of `data/facts/prices.csv` names its currency, region and date at the head of its note. What no source prices is a
range whose formula stands in its row; what has not even that is unknown, and an answer that needs it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trnmodel.arguments import refuse
from trnmodel.catalog import reader
from trnmodel.catalog.specs import NAN, Spec, mapping_field
from trnmodel.catalog.tables import DataError, Fact
from trnmodel.declared import Named, declare

_DATED = re.compile(r"(USD), ([^,]+), (\d{4}[^;]*)(?:; (.*))?$")


TERMS = "owner"  # what both kinds of owner have in common, which is nobody


@dataclass(frozen=True, eq=False, kw_only=True)
class Prices(Spec):
    """Prices of whole servers by system and of parts. A field without a price is NaN, and no answer takes it for 0.

    `server_usd_per_chip` is what a server or rack is sold for over its chips, in the year of `server_year`. A rack that
    is sold to nobody is made of parts: the package of a chip costs its HBM over `hbm_share` times `chip_markup`, or its
    `chip_usd` where that is given. Prices of servers fall by `decades_per_year` up to `money_year`; `market_ratio` is
    common to all of them. `scaleout_bytes_per_s_per_dir` stands in, by system, for the rate of chips that have none of
    their own, so that their network has a price. Rebates are shares of what is paid for switches and retimers, and for
    active cables.
    """

    server_usd_per_chip: Mapping[str, float] = mapping_field()
    server_year: Mapping[str, float] = mapping_field()
    chip_usd: Mapping[str, float] = mapping_field()
    hbm_usd_per_byte: float = NAN
    hbm_share: float = NAN
    chip_markup: float = NAN
    switch_usd_per_lane: float = NAN
    switch_rebate: float = 0.0
    retimer_usd: float = NAN
    retimers_per_chip: float = NAN
    copper_cable_usd: float = NAN
    aec_usd: float = NAN
    aec_rebate: float = 0.0
    nic_usd_per_bytes_per_s: float = NAN
    nics_per_cpu: float = NAN
    cpu_usd: float = NAN
    board_usd_per_w: float = NAN
    rack_usd_per_w: float = NAN
    integration_share: float = NAN
    network_usd_per_bytes_per_s: float = NAN
    optics_usd_per_bytes_per_s: float = NAN
    scaleout_bytes_per_s_per_dir: Mapping[str, float] = mapping_field()
    market_ratio: float = NAN
    decades_per_year: float = NAN
    money_year: float = NAN


@dataclass(frozen=True, eq=False, kw_only=True)
class Owner(Spec):
    """Who pays: cost of capital, years, a building of its own or a rented one, electricity, operations.

    `facility` is the site of an owner that has one of its own; blank, the site is that of a system's cooling.

    Raises ValueError where both a price of a building and a rent are given.
    """

    COUNTS = frozenset({"cluster_chips"})
    SHOWN = (
        "facility",
        "rate_per_year",
        "life_years",
        "lost_share",
        "build_usd_per_w",
        "build_years",
        "electricity_usd_per_j",
        "operations_share",
        "mean_load_share",
        "cluster_chips",
    )

    rate_per_year: float = NAN
    life_years: float = NAN
    lost_share: float = NAN
    build_usd_per_w: float = NAN
    build_years: float = NAN
    colocation_usd_per_w_h: float = NAN
    electricity_usd_per_j: float = NAN
    operations_share: float = NAN
    mean_load_share: float = NAN
    cluster_chips: float = NAN
    facility: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        both = [value for value in (self.build_usd_per_w, self.colocation_usd_per_w_h) if _known(value)]
        if len(both) > 1:
            refuse(f"{self.id}: colocation_usd_per_w_h", both[1], "allowed is a building's price or its rent, not both")


@dataclass(frozen=True, eq=False, kw_only=True)
class Warrant(Spec):
    """Shares of a supplier that vest with purchases; `printed_rebate` is the discount that a text makes of it."""

    warrants: float = NAN
    strike_usd: float = NAN
    spend_usd: float = NAN
    printed_rebate: float = NAN


class Dated(NamedTuple):
    """Currency, region and date of a price, and the rest of its note."""

    currency: str
    region: str
    date: str
    note: str


def _known(value: object) -> bool:
    return not isinstance(value, float) or value == value


def dated(fact: Fact) -> Dated:
    """Currency, region and date of a price.

    Raises DataError where its note does not begin with them.

    Examples
    --------
    >>> from trnmodel.catalog import load
    >>> dated(load.facts_rows()["prices/server_usd_per_chip:hgx-h100/epoch-hardware-purchases"])[:3]
    ('USD', 'US', '2025-01-31')
    """
    match = _DATED.match(fact.note)
    if not match:
        raise DataError(f"{fact.id}: column note: allowed is a currency, a region and a date, then the note")
    return Dated(*(part or "" for part in match.groups()))


def prices() -> Prices:
    """Return the prices of parts and servers in force.

    Returns
    -------
    prices : Prices
        Dollars of chips, servers, switches, cables and retimers, each with its sources; NaN where nobody prints one.

    Examples
    --------
    >>> found = prices()
    >>> found.server_usd_per_chip["hgx-h100"], found.range("retimer_usd")
    (31904.63, (54.0, 108.0))
    """
    return reader.spec(Prices, "prices")


@declare(name=Named("an owner"))
def owner(name: str | Owner = "hyperscaler") -> Owner:
    """Return an owner by id: a "hyperscaler" builds, a "neocloud" rents its building. An `Owner` is returned as it is.

    Raises ValueError with the nearest ids for an unknown one.

    Parameters
    ----------
    name : str or Owner
        Id of the owner, or the owner. [-]

    Returns
    -------
    owner : Owner
        Cost of capital, lives, building, electricity and operations, each with its sources.

    Examples
    --------
    >>> owner().life_years, owner("neocloud").facility
    (5.5, 'colocation')
    """
    who = reader.find(Owner, "owner", name)
    if name == TERMS:
        refuse("owner", name, f"allowed is one of {', '.join(one for one in reader.ids('owner') if one != TERMS)}")
    return who


def warrant(name: str | Warrant) -> Warrant:
    """Return a warrant by id: "astera-2022", "astera-2026", "credo"; a `Warrant` is returned as it is.

    Examples
    --------
    >>> warrant("astera-2022").strike_usd, warrant("credo").printed_rebate
    (20.34, 1.0)
    """
    return reader.find(Warrant, "warrant", name)
