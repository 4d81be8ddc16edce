"""A reader's own prices and rates in place of those of data, by name: "hbm_usd_per_byte=1.5e-8:1.7e-8:2e-8"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from trnmodel.arguments import TINY, number, refuse, text
from trnmodel.catalog import load
from trnmodel.catalog.prices import Owner, Prices
from trnmodel.catalog.rents import Rent, own, rent
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd

S = TypeVar("S", bound=Spec)
REBATE = load.Quantity("rebate", "1", "Share of the price that a supplier's warrants give back; none is counted")
RENTS = ("rent", "usd_per_chip_h")  # of a chip-hour, by system, as readers and as scenario files call it
OPEN = ("chip_usd", "server_usd_per_chip")  # by chip and by system, with any key


@dataclass(frozen=True, slots=True)
class Inputs:
    """Prices, an owner, and the reader's own rents by system."""

    prices: Prices
    owner: Owner
    pricing: str = "capacity-block"
    region: str | None = None
    rents: Mapping[str, Rent] = field(default_factory=dict)
    named: tuple[str, ...] = ()

    def rent(self, spec: System) -> Rent:
        """Return the reader's own rent of a system, or the published one."""
        return self.rents.get(spec.id) or rent(spec, self.pricing, self.region)


def parse_inputs(
    texts: Iterable[str], prices: Prices, owner: Owner, pricing: str = "capacity-block", region: str | None = None
) -> Inputs:
    """Replace prices and rates, each by a text "name=value" or "name=low:value:high" in base units.

    Parameters
    ----------
    texts : iterable of str
        Names are those of `price_list`, "rent[trn3-nl72x2-pcie160]" and "chip_usd[trainium3]" too. [-]
    pricing, region : str, optional
        How and where systems without a rent of the reader's own are rented, as of `tm.rent`. [-]

    Raises
    ------
    ValueError
        Another form, an unknown name, ends that do not hold the value.

    Examples
    --------
    >>> from trnmodel.catalog import prices
    >>> inputs = parse_inputs(["retimer_usd=60", "rent[trn3-nl72x2-pcie160]=2:3:4"], prices.prices(), prices.owner())
    >>> inputs.prices.range("retimer_usd"), inputs.rents["trn3-nl72x2-pcie160"].range("usd_per_chip_h")
    ((60.0, 60.0), (2.0, 4.0))
    """
    inputs = Inputs(prices, owner, pricing, region)
    for one in texts:
        name, _, numbers = text("prices", one).partition("=")
        try:
            ends = sorted(map(float, numbers.split(":")))
        except ValueError:
            ends = []
        if len(ends) not in (1, 3):
            refuse("prices", one, 'allowed is "name=value" or "name=low:value:high"')
        for end in ends:
            number(f"prices: {name}", end, 0.0)
        low, value, high = ends if len(ends) == 3 else ends * 3
        inputs = _put(inputs, name.strip(), value, (low, high))
    return inputs


def _put(inputs: Inputs, name: str, value: float, ends: tuple[float, float]) -> Inputs:
    named = (*inputs.named, name)
    which, _, key = name.removesuffix("]").partition("[")
    if which in RENTS:
        spec = read_system(key)
        price = own(spec, number(f"prices: {name}", value, TINY), ends)
        return replace(inputs, rents={**inputs.rents, spec.id: price}, named=named)
    if which in OPEN:
        key = read_system(key).id if which != "chip_usd" else load.chip(key).id
        p = _set(inputs.prices, f"{which}[{key}]", value, ends)
        if which == "server_usd_per_chip":
            p = replace(p, server_year={**p.server_year, key: p.money_year})
        return replace(inputs, prices=p, named=named)
    for part in ("prices", "owner"):
        if name in _numbers(getattr(inputs, part)):
            return replace(inputs, **{part: _set(getattr(inputs, part), name, value, ends)}, named=named)
    allowed = [*_numbers(inputs.prices), *_numbers(inputs.owner), f"{RENTS[0]}[a system]", "chip_usd[a chip]"]
    return refuse("prices", name, f"allowed are {', '.join(allowed)}")


def _set(spec: S, label: str, value: float, ends: tuple[float, float]) -> S:
    """Return a spec with one number replaced, and its range replaced or removed."""
    name, _, key = label.removesuffix("]").partition("[")
    ranges = {which: pair for which, pair in spec.ranges.items() if which != label}
    ranges |= {label: ends} if ends[0] < ends[1] else {}
    changes: dict[str, Any] = {name: {**getattr(spec, name), key: value} if key else value}
    return replace(spec, **changes, ranges=ranges)


def _numbers(spec: Spec) -> list[str]:
    """Return the names of a spec's numbers, those in mappings with their keys."""
    names = []
    for one in fields(spec):
        held = getattr(spec, one.name)
        if isinstance(held, Mapping) and one.name not in ("sources", "ranges"):
            names += [f"{one.name}[{key}]" for key in held]
        elif isinstance(held, float | int) and not isinstance(held, bool):
            names.append(one.name)
    return names


def price_list(prices: Prices, owner: Owner, named: Iterable[str] = ()) -> pd.DataFrame:
    """Return every price of parts and servers and every rate of an owner that enters a cost.

    Returns
    -------
    table : pandas.DataFrame
        name (as `parse_inputs` takes it), value with `_low` and `_high` in base units, unit, meaning, given (whether it
        is `named` as one's own), estimate, sources.

    Examples
    --------
    >>> from trnmodel.catalog import prices
    >>> table = price_list(prices.prices(), prices.owner()).set_index("name")
    >>> table.unit["hbm_usd_per_byte"], bool(table.estimate["retimer_usd"])
    ('USD/B', True)
    """
    rows, known, mine = [], load.quantities(), set(named)
    for spec in (prices, owner):
        for name in _numbers(spec):
            value, (low, high) = spec.at(name), spec.range(name)
            about = known.get(name.partition("[")[0], REBATE)
            if not np.isnan(value):
                used = sorted({load.facts_rows()[i].source for i in spec.sources.get(name, ())})
                rows.append(
                    {
                        "name": name,
                        "value": value,
                        "value_low": low,
                        "value_high": high,
                        "unit": about.unit_si,
                        "meaning": about.description,
                        "given": name in mine,
                        "estimate": name in spec.estimates and name not in mine,
                        "sources": "" if name in mine else "; ".join(used),
                    }
                )
    return tidy(rows)
