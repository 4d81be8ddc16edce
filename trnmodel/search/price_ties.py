"""Prices at which a system ties with another one for the same request: of a chip-hour, and of a chip or a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from trnmodel.arguments import TINY, choice, number
from trnmodel.catalog.prices import Owner
from trnmodel.catalog.prices import owner as read_owner
from trnmodel.catalog.rents import PRICINGS, Rent, known_place, own, rent
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.cost.tco import Cost, tco
from trnmodel.draws import range_of
from trnmodel.search.chip_seconds import TokenCost, TokenCostQuestion, cost_line
from trnmodel.search.choice import Choice
from trnmodel.search.sensitivity import common_draws
from trnmodel.search.token_cost import owned_rent, tie
from trnmodel.units import format_digits, format_within

DEFAULT = "capacity-block"  # pricing of systems for which no other is given


class PricesAsked(NamedTuple):
    """How and where chips are rented, and who owns them."""

    pricing: str | Rent | float | Mapping[str, Any]
    region: str | None
    owner: str | Owner

    def checked(self) -> PricesAsked:
        """Return the same with its owner read; ValueError for an unknown pricing, region or owner."""
        if isinstance(self.pricing, str):
            choice("pricing", self.pricing, PRICINGS)
        if self.region is not None:
            known_place(self.region)
        return self._replace(owner=read_owner(self.owner))

    def of(self, spec: System) -> Rent:
        """Return the price of a chip-hour of a system: under the pricing, or the price that was given."""
        pricing = self.pricing.get(spec.id, DEFAULT) if isinstance(self.pricing, Mapping) else self.pricing
        if isinstance(pricing, str | Rent):
            return rent(spec, pricing, self.region)
        return own(spec, pricing)


def checked_pricing(pricing: Any) -> str | Rent | float | Mapping[str, Any]:
    """Return a pricing, a price, or a mapping of them by system, checked.

    Examples
    --------
    >>> checked_pricing("spot"), checked_pricing({"trn2": 2})
    ('spot', {'trn2.48xlarge': 2.0})
    """
    if isinstance(pricing, Mapping):
        return {find_system(name, "pricing").id: checked_pricing(each) for name, each in pricing.items()}
    if isinstance(pricing, str):
        return choice("pricing", pricing, PRICINGS)
    return pricing if isinstance(pricing, Rent) else number("pricing", pricing, TINY)


class PriceTie(NamedTuple):
    """Prices at which a token on `system` costs what one on `against` does; NaN, with a reason, where there is none.

    `break_even_usd_per_chip_h` is the rent of the system at the other one's price, `against_break_even_usd_per_chip_h`
    the other one's rent at the system's price. `owned_break_even_usd_per_h` is what an hour of the system may cost its
    owner, and `break_even_usd` the price of the `part`, a chip ("chip_usd") or a server over its chips ("server_usd"),
    at which it does; `part_usd` is what is assumed.
    """

    tokens_per_s_per_user: float
    system: str
    against: str
    pricing: str
    usd_per_chip_h: float
    break_even_usd_per_chip_h: float
    break_even_usd_per_chip_h_low: float
    break_even_usd_per_chip_h_high: float
    against_pricing: str
    against_usd_per_chip_h: float
    against_break_even_usd_per_chip_h: float
    against_break_even_usd_per_chip_h_low: float
    against_break_even_usd_per_chip_h_high: float
    rent_reason: str
    owner: str
    owned_usd_per_h: float
    owned_break_even_usd_per_h: float
    owned_break_even_usd_per_h_low: float
    owned_break_even_usd_per_h_high: float
    part: str
    part_usd: float
    break_even_usd: float
    break_even_usd_low: float
    break_even_usd_high: float
    owned_reason: str


def _line(c: Choice, price: Rent, owned: Cost | None = None) -> TokenCost:
    """Return what a token costs on a choice at a price of a chip-hour."""
    q = c.question
    question = TokenCostQuestion(model=q.model, request=q.request, precision=c.precision, duty=1.0, spare_instances=0)
    return cost_line(question, c.system, price, owned, c.stack, c)


def price_tie(c: Choice, other: Choice, prices: PricesAsked) -> PriceTie:
    """Return the prices at which one choice ties with another, rented and owned."""
    rents = [prices.of(one.system) for one in (c, other)]
    mine, theirs = (_line(one, price) for one, price in zip((c, other), rents, strict=True))
    hours = [tco(one.system, owner=prices.owner) for one in (c, other)]
    mine_owned, rival = (_line(one, owned_rent(hour), hour) for one, hour in zip((c, other), hours, strict=True))
    rented, turned, owned = (
        [float(end) for end in tie(one, two)] for one, two in ((mine, theirs), (theirs, mine), (mine_owned, rival))
    )
    part, now, at = _part(mine_owned, rival, owned[0])
    lacking = "; ".join(f"{one.system.id}: {one.lacking}" for one in (mine_owned, rival) if one.lacking)
    unpriced = dict.fromkeys(price.why for price in rents if price.why)
    unowned = [f"{hour.system.id}: {hour.reason}" for hour in hours if not hour.valid]
    speed = c.question.request.tokens_per_s_per_user
    row: dict[str, Any] = {
        "tokens_per_s_per_user": np.nan if speed is None else speed,
        "system": c.system.id,
        "against": other.system.id,
        "pricing": rents[0].pricing,
        "usd_per_chip_h": float(rents[0].usd_per_chip_h),
        **_with_ends("break_even_usd_per_chip_h", rented),
        "against_pricing": rents[1].pricing,
        "against_usd_per_chip_h": float(rents[1].usd_per_chip_h),
        **_with_ends("against_break_even_usd_per_chip_h", turned),
        "rent_reason": "; ".join(filter(None, (lacking, *unpriced))),
        "owner": hours[0].owner.id,
        "owned_usd_per_h": float(hours[0].useful_usd_per_h),
        **_with_ends("owned_break_even_usd_per_h", owned),
        "part": part,
        "part_usd": now,
        **_with_ends("break_even_usd", at),
        "owned_reason": lacking or "; ".join(unowned),
    }
    return PriceTie(**row)


def _with_ends(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return a figure with its ends by name."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _part(own: TokenCost, rival: TokenCost, hour_usd: float) -> tuple[str, float, tuple[float, float, float]]:
    """Return whose price ties, a chip's or a server's, what it is now, and what it is at the tie with its range."""
    cost = own.owned
    assert cost is not None
    part = "server_usd" if "server as sold" in cost.parts_usd else "chip_usd"
    if not cost.valid:
        return part, np.nan, (np.nan,) * 3
    now = float(cost.break_even(part, useful_usd_per_h=cost.useful_usd_per_h))
    if np.isnan(hour_usd):
        return part, now, (np.nan,) * 3
    value = float(cost.break_even(part, useful_usd_per_h=hour_usd))
    with np.errstate(invalid="ignore"):
        targets = rival.common_usd_per_h() * rival.common_chip_s() / own.common_chip_s()
    low, high = range_of(cost.drawn_break_even(part, common_draws(cost.uncertain()), targets))
    return part, now, (value, min(low, value), max(high, value))


def ties_in_words(one: PriceTie) -> list[str]:
    """Return at which rent and at which price of a chip or a server a system ties, on a line each."""
    return [line for line in (_rented(one), _owned(one)) if line]


def _rented(one: PriceTie) -> str:
    """Return at which rent two systems tie; where one of them has no price, that of the other one counts."""
    mine, theirs = one.usd_per_chip_h, one.against_usd_per_chip_h
    if np.isfinite(one.break_even_usd_per_chip_h):
        at = one.break_even_usd_per_chip_h, one.break_even_usd_per_chip_h_low, one.break_even_usd_per_chip_h_high
        known = np.isfinite(mine)
        rents = (
            f"its {one.pricing.removesuffix(' price')} price is ${format_digits(mine, 4)}"
            if known
            else "no rent of it is published"
        )
        rival = f"{one.against} (${format_digits(theirs, 4)} per chip-hour, {one.against_pricing})"
        return f"if rented, it ties with {rival} at ${format_within(*at, 'per chip-hour')}; {rents}"
    if np.isfinite(one.against_break_even_usd_per_chip_h):
        value, low, high = (getattr(one, f"against_break_even_usd_per_chip_h{end}") for end in ("", "_low", "_high"))
        rents = f"${format_digits(mine, 4)} per chip-hour, {one.pricing}"
        rival = f"{one.against} rents for ${format_within(value, low, high, 'per chip-hour')}"
        return f"if rented ({rents}), it ties where {rival}; no rent of that is published"
    return f"if rented: {one.rent_reason}" if one.rent_reason else ""


def _owned(one: PriceTie) -> str:
    """Return at which price of a chip or a server two systems tie for their owner."""
    if not np.isfinite(one.break_even_usd):
        return f"if owned: {one.owned_reason}" if one.owned_reason else ""
    what, per = ("chip", "") if one.part == "chip_usd" else ("server", "per chip")
    now = f"${format_digits(one.part_usd, 2)} is assumed"
    if one.break_even_usd <= 0:
        band = f"; the band reaches to ${format_digits(one.break_even_usd_high, 2)} {per}".rstrip()
        reach = band if one.break_even_usd_high > 0 else ""
        return f"if owned, it costs more than {one.against} even with its {what} for nothing{reach}; {now}"
    at = format_within(one.break_even_usd, max(one.break_even_usd_low, 0.0), one.break_even_usd_high, per)
    return f"if owned, it ties with {one.against} at a price of its {what} of ${at}; {now}"
