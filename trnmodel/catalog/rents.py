"""Published prices, with their dates, of an hour of a rented chip and of a token of a hosted model.

A row of `data/facts/rents.csv` says in its qualifier how something is rented, where or from whom, and when that was
read. All rows are kept; the newest of each place are in force. A price that nobody publishes is unknown, and not zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import ArrayLike

from trnmodel.arguments import TINY, choice, instance, numbers, refuse, text
from trnmodel.catalog import load, reader
from trnmodel.catalog.specs import NAN, Chip, Spec
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.tables import DataError, Fact
from trnmodel.declared import SYSTEM, Checked, declare
from trnmodel.units import PFLOP, TB

if TYPE_CHECKING:
    import pandas as pd

PRICINGS = {
    "on-demand": "by the hour from its cloud",
    "capacity-block": "AWS, a fixed time ahead",
    "reserved": "AWS, a term that is not printed",
    "reserved-1y": "its cloud, for a year",
    "reserved-3y": "its cloud, for three years",
    "spot": "AWS, until somebody pays more",
    "sagemaker": "AWS, with its hosting software",
    "market": "by the hour from other sellers",
    "market-1y": "other sellers, for a year",
    "market-3y": "other sellers, for three years",
}
INSTANCE, CHIP = "rent_usd_per_h", "rent_usd_per_chip_h"
CURRENT_DAYS = 365  # a price that is older than another of the same thing by more is not in force
NOWHERE, NEVER = "unnamed", "undated"


class Price(NamedTuple):
    """A published price of an hour of one chip, at one place; `chips` are rented together."""

    entity: str
    pricing: str
    place: str
    printed_date: str
    low: float
    value: float
    high: float
    chips: int
    fact: Fact

    @property
    def day(self) -> date:
        """Its date; the first day of a month or year, the earliest of all where none is printed."""
        return day_of(self.printed_date)


def day_of(printed: str) -> date:
    """Return a printed date: the first day of a month or a year, and the earliest of all dates where none is printed.

    Examples
    --------
    >>> day_of("2026-05"), day_of("undated") == date.min
    (datetime.date(2026, 5, 1), True)
    """
    if printed == NEVER:
        return date.min
    return date.fromisoformat("-".join([*printed.split("-"), "01", "01"][:3]))


def _sold_chips(entity: str) -> int:
    kind = load.entities()[entity].kind
    if kind == "instance":
        return int(load.value(entity, "instance_chips"))
    return read_system(entity).chips if kind == "system" else 1


@cache
def prices() -> tuple[Price, ...]:
    """Every published price, one for each place that its row names, as the rows stand in `data/`."""
    rows = []
    for fact in reader.facts_of(INSTANCE, CHIP):
        pricing, _, rest = fact.qualifier.partition(" ")
        places, _, printed = rest.partition(" ")
        if pricing not in PRICINGS or not places:
            raise DataError(
                f"{fact.id}: column qualifier: allowed is a pricing ({', '.join(PRICINGS)}), places and a date"
            )
        chips = 1 if fact.quantity == CHIP else _sold_chips(fact.entity)
        value, low, high = (end / chips for end in load.value_si(fact))
        rows += [Price(fact.entity, pricing, at, printed, low, value, high, chips, fact) for at in places.split(",")]
        day_of(printed)
    return tuple(rows)


def newest() -> date:
    """Return the newest date of the prices, from which ages are counted unless a call says another."""
    hosted_dates = [one.day for one in _hosted_rows()]
    return max([price.day for price in prices()] + hosted_dates)


def in_force(prices: Iterable[Price]) -> list[Price]:
    """Return the newest price for each place, without prices that are a year older than the newest of all.

    A price of an unnamed place is replaced by any newer one of the same instance.
    """
    current = list(prices)
    last = max((price.day for price in current), default=date.min)
    current = [price for price in current if (last - price.day).days <= CURRENT_DAYS]

    def replaced(old: Price) -> bool:
        newer = (new for new in current if new.entity == old.entity and new.day > old.day)
        return any(new.place == old.place or old.place.startswith(NOWHERE) for new in newer)

    return [price for price in current if not replaced(price)]


def _of(spec: System) -> list[Price]:
    """Return the prices of a whole system, and of its chips where they are sold one by one."""
    own = {name for name, row in load.entities().items() if row.kind == "instance" and row.base == spec.id}
    whole = {spec.id} | {name for name in own if _sold_chips(name) == spec.domain_chips}
    chip = spec.chip.id if spec.chip.core is None else ""
    return [price for price in prices() if price.entity in whole or price.entity == chip]


@dataclass(frozen=True, eq=False, kw_only=True)
class Rent(Spec):
    """Price of an hour of one chip of a system under a pricing; NaN, with a reason in `why`, where unpublished.

    `.ranges` holds the lowest and the highest price in force, of which the value is the median; `date` is that of the
    oldest. `sold_chips` are rented together. A price of your own: `replace(rent, usd_per_chip_h=2.0, ranges={})`.
    """

    COUNTS = frozenset({"sold_chips"})
    SHOWN = ("chip", "pricing", "date", "why", "sold_chips", "usd_per_chip_h")

    chip: Chip
    pricing: str = ""
    usd_per_chip_h: float = NAN
    sold_chips: float = 1
    date: str = ""
    places: frozenset[str] = frozenset()
    confidence: str = ""
    why: str = ""

    def age_days(self, at: str | None = None) -> float:
        """Days from the oldest price in force to a date "2026-11-22"; default the newest date of all prices.

        Examples
        --------
        >>> rent("trn2.48xlarge", region="us-east-2").age_days("2026-07-23")
        1.0
        """
        until = newest() if at is None else _date("at", at)
        if self.date not in ("", NEVER) and until < day_of(self.date):
            refuse("at", at, f"allowed are dates from {self.date} on, that of the oldest price in force")
        return float((until - day_of(self.date)).days) if self.date not in ("", NEVER) else NAN

    def rates(self, at: str | None = None) -> pd.DataFrame:
        """Return the price of an hour of a chip, of each PFLOP/s by dtype, and of a TB/s of HBM, with low and high.

        Returns
        -------
        table : pandas.DataFrame
            of, usd_per_h with `_low` and `_high`, pricing, date, age_days, confidence.
        """
        import pandas as pd

        units = {"chip": 1.0} | {f"PFLOP/s {dtype}": peak / PFLOP for dtype, peak in self.chip.peak_flop_per_s.items()}
        units |= {"TB/s": self.chip.hbm_bytes_per_s / TB}
        low, high = self.range("usd_per_chip_h")
        rows = [(name, self.usd_per_chip_h / one, low / one, high / one) for name, one in units.items()]
        price = {
            "pricing": self.pricing,
            "date": self.date,
            "age_days": self.age_days(at),
            "confidence": self.confidence,
        }
        return pd.DataFrame(rows, columns=["of", "usd_per_h", "usd_per_h_low", "usd_per_h_high"]).assign(**price)


def _date(name: str, value: str) -> date:
    try:
        return date.fromisoformat(text(name, value))
    except ValueError:
        refuse(name, value, 'allowed are dates such as "2026-11-22"')


@declare(
    system=SYSTEM,
    pricing=Checked("one of the pricings, or a Rent", {"enum": [*PRICINGS]}),
    region=Checked("a region or seller that a published price names", {"type": "string"}),
)
def rent(system: str | System, pricing: str | Rent = "capacity-block", region: str | None = None) -> Rent:
    """Return the price of an hour of a chip of a system under a pricing; a `Rent` is returned as it is.

    Parameters
    ----------
    system : str or System
        What is rented, whole. [-]
    pricing : str or Rent
        "capacity-block" (the only pricing under which AWS sells both Trainium2 and GPUs), "on-demand", "reserved",
        "reserved-1y", "reserved-3y", "spot", "sagemaker", "market", "market-1y" or "market-3y". [-]
    region : str, optional
        Where: a region, or a seller; all of them where none is named. [-]

    Returns
    -------
    rent : Rent
        `.usd_per_chip_h` is the median of the different prices in force, `.range("usd_per_chip_h")` their ends.

    Raises
    ------
    ValueError
        Unknown system or pricing; a place that no price names.

    Notes
    -----
    Assumes that a chip costs its share of an instance. In force is the newest price of each place, unless it is a year
    older than another. What is not published has NaN and says why.

    Examples
    --------
    >>> import trnmodel as tm
    >>> one = tm.rent("hgx-h100", "on-demand")
    >>> one.usd_per_chip_h, one.sold_chips, one.date
    (6.88, 8.0, '2026-07-20')
    >>> tm.rent("trn3-nl72x2-pcie160").why
    'no price is published of trn3-nl72x2-pcie160 under any pricing'
    """
    spec = read_system(system)
    if isinstance(pricing, Rent):
        if pricing.chip.id != spec.chip.id:
            refuse(
                "pricing", pricing.id, f"it is the price of {pricing.chip.id}, and {spec.id} has chips {spec.chip.id}"
            )
        return pricing
    pricing = choice("pricing", pricing, PRICINGS)
    there = _of(spec)
    current = in_force(price for price in there if price.pricing == pricing)
    if region is not None:
        place = known_place(region)
        current = [price for price in current if price.place.startswith(place)]
    described: dict[str, Any] = {
        "id": f"{spec.id}-{pricing}",
        "name": f"{spec.name} ({pricing})",
        "chip": spec.chip,
        "pricing": pricing,
    }
    if not current:
        return Rent(**described, sold_chips=spec.domain_chips, why=_why(spec, pricing, region, there))
    values = sorted({price.value for price in current})
    low, high = min(price.low for price in current), max(price.high for price in current)
    oldest = min(current, key=lambda price: price.day)
    return Rent(
        **described,
        usd_per_chip_h=float(median(values)),
        sold_chips=max(price.chips for price in current),
        date=oldest.printed_date,
        places=frozenset(price.place for price in current),
        confidence=max(price.fact.confidence for price in current),
        sources={"usd_per_chip_h": tuple(sorted({price.fact.id for price in current}))},
        ranges={"usd_per_chip_h": (low, high)} if low < high else {},
    )


def own(system: str | System, usd_per_chip_h: ArrayLike, ends: tuple[float, float] | None = None) -> Rent:
    """Return a price of your own of an hour of a chip of a system, with a low and a high where it is open.

    Examples
    --------
    >>> own("trn3-nl72x2-pcie160", 3.0, (2.0, 4.0)).range("usd_per_chip_h")
    (2.0, 4.0)
    """
    spec = read_system(system)
    price: Any = numbers("usd_per_chip_h", usd_per_chip_h, TINY)
    ranges = {} if ends is None else {"usd_per_chip_h": ends}
    described: dict[str, Any] = {
        "id": f"{spec.id}-own",
        "chip": spec.chip,
        "pricing": "own price",
        "sold_chips": spec.domain_chips,
    }
    return Rent(**described, usd_per_chip_h=price if price.ndim else float(price), ranges=ranges)


def _why(spec: System, pricing: str, region: str | None, there: list[Price]) -> str:
    pricings = [one for one in PRICINGS if any(price.pricing == one for price in there)]
    if not pricings:
        return f"no price is published of {spec.id} under any pricing"
    where = f" in {region}" if region is not None and pricing in pricings else ""
    return f"no price is published of {spec.id} by {pricing}{where}; published: {', '.join(pricings)}"


def price_table(at: str | None = None) -> pd.DataFrame:
    """Every published price of an hour of a chip, in force or not.

    Returns
    -------
    table : pandas.DataFrame
        entity, pricing, place, date, age_days, usd_per_chip_h with `_low` and `_high`, chips, currency, in_force (among
        prices of the same entity), source, locator, confidence, note.

    Examples
    --------
    >>> table = price_table("2026-11-22")
    >>> table[(table.entity == "p5.48xlarge") & (table.pricing == "on-demand") & table.in_force].usd_per_chip_h.tolist()
    [6.88]
    """
    import pandas as pd

    until = newest() if at is None else _date("at", at)
    groups: dict[tuple[str, str], list[Price]] = {}
    for price in prices():
        groups.setdefault((price.entity, price.pricing), []).append(price)
    current = {id(price) for some in groups.values() for price in in_force(some)}
    rows = list[dict[str, Any]]()
    for one in prices():
        age = (until - one.day).days if one.printed_date != NEVER else NAN
        row: dict[str, Any] = {
            "entity": one.entity,
            "pricing": one.pricing,
            "place": one.place,
            "date": one.printed_date,
            "age_days": age,
        }
        row |= {"usd_per_chip_h": one.value, "usd_per_chip_h_low": one.low, "usd_per_chip_h_high": one.high}
        row |= {"chips": one.chips, "currency": "USD", "in_force": id(one) in current, "source": one.fact.source}
        row |= {"locator": one.fact.locator, "confidence": one.fact.confidence, "note": one.fact.note}
        rows.append(row)
    return pd.DataFrame(rows)


def published(
    systems: Iterable[str | System] | None = None, pricing: str | None = None, region: str | None = None
) -> pd.DataFrame:
    """Return the rows of `price_table` for some systems, one pricing, and one region or seller.

    Parameters
    ----------
    systems : list of str or System, optional
        Prices of these, and of their chips where they are sold by the chip. Default: everything. [-]
    pricing : str, optional
        As of `rent`. [-]
    region : str, optional
        What the name of the region or seller begins with, as of `rent`. [-]

    Examples
    --------
    >>> sorted(set(published(["trn2.48xlarge"], "capacity-block").entity))
    ['trn2.48xlarge']
    """
    table = price_table()
    if systems is not None:
        sold = {price.entity for one in systems for price in _of(read_system(one))}
        table = table[table.entity.isin(sold)]
    if pricing is not None:
        table = table[table.pricing == choice("pricing", pricing, PRICINGS)]
    if region is not None:
        place = known_place(region)
        table = table[[one.startswith(place) for one in table.place]]
    return table.reset_index(drop=True)


def known_place(region: str) -> str:
    """Return a region or seller that a published price names; ValueError for any other."""
    place = text("region", region)
    if not place or not any(price.place.startswith(place) for price in prices()):
        refuse("region", region, "no published price names it")
    return place


class Hosted(NamedTuple):
    """A seller's price of a model by the token: of prompts and of what is generated."""

    seller: str
    printed_date: str
    input_usd_per_token: float
    output_usd_per_token: float
    source: str

    @property
    def day(self) -> date:
        """Its date, as `day_of` reads it."""
        return day_of(self.printed_date)

    def usd_per_token(self, input_tokens: float, output_tokens: float) -> float:
        """Mean price of the tokens of a request [USD/token]."""
        paid = input_tokens * self.input_usd_per_token + output_tokens * self.output_usd_per_token
        return paid / (input_tokens + output_tokens)


@cache
def _hosted_rows(model: str = "") -> tuple[Hosted, ...]:
    names = ("api_input_usd_per_token", "api_output_usd_per_token")
    of: dict[tuple[str, str, str], dict[str, Fact]] = {}
    for fact in reader.facts_of(*names):
        if fact.entity.endswith(model):
            of.setdefault((fact.entity, fact.qualifier, fact.source), {})[fact.quantity] = fact
    rows = []
    for (_, qualifier, source), pair in of.items():
        seller, _, printed = qualifier.partition(" ")
        input_price, output_price = (load.value_si(pair[name])[0] for name in names)
        rows.append(Hosted(seller, printed, input_price, output_price, source))
    return tuple(rows)


def hosted(model: str) -> list[Hosted]:
    """Return the newest price of each seller of a model by the token, the newest first; empty where none is known.

    Examples
    --------
    >>> [(one.seller, round(one.usd_per_token(3, 1) * 1e6, 3)) for one in hosted("llama-3.3-70b")]
    [('deepinfra', 0.155), ('tera', 0.72)]
    """
    latest: dict[str, Hosted] = {}
    for one in sorted(_hosted_rows(f"api-{instance('model', model, str, 'the id of a model')}"), key=lambda h: h.day):
        latest[one.seller] = one
    return sorted(latest.values(), key=lambda one: one.day, reverse=True)
