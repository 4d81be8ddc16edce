"""How many instances of a choice serve a demand: spares for its availability, its bill, watts and lost hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import refuse, shown
from trnmodel.catalog.facilities import Facility
from trnmodel.catalog.facilities import site as site_of
from trnmodel.catalog.prices import Owner
from trnmodel.catalog.rents import PRICINGS, Rent, hosted, rent
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import PERIOD_H, Cost, tco
from trnmodel.draws import range_of
from trnmodel.formulas import latency
from trnmodel.formulas.tco import HOURS_PER_YEAR
from trnmodel.power.energy import RequestEnergy
from trnmodel.reliability.goodput import replica_availability, replica_downtime
from trnmodel.result import Basis, Grounded, reason_mask, tidy
from trnmodel.search.chip_seconds import TokenCost, TokenCostQuestion, cost_line
from trnmodel.search.choice import Choice
from trnmodel.search.price_ties import PricesAsked
from trnmodel.search.token_cost import owned_rent
from trnmodel.serving.account import draw_widths
from trnmodel.steps.request import Request, one_request
from trnmodel.units import HOUR, MILLION

if TYPE_CHECKING:
    import pandas as pd

MOST_SPARES = 4096  # spare instances that are tried for an availability
MONTH_S = PERIOD_H * HOUR
LIMITS = ("chips", "site_w", "usd_per_month")
SIZES = ("users", *LIMITS)
ROUNDING = 1e-12  # of counts that are whole but for the last digits of a double


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What a buyer asks for beside the request: a size of one kind, an availability, a site, a pricing and an owner.

    `users` are those that decode at the promised speed, which gives the rate of the requests. `chips`, `site_w` and
    `usd_per_month` limit what there is, spares included, and replicas are then full. Without a size the instances of
    one replica are counted. Without a `facility` each system stands at the site of its cooling.
    """

    facility: Facility | None
    owner: Owner
    pricing: str | Rent | float | Mapping[str, Any] = "capacity-block"
    users: float | None = None
    chips: float | None = None
    site_w: float | None = None
    usd_per_month: float | None = None
    availability: float | None = None

    @property
    def limit(self) -> str:
        """The name of the limit; empty where there is none."""
        return next((name for name in LIMITS if getattr(self, name) is not None), "")

    @property
    def counts(self) -> bool:
        """Whether a size or an availability was asked for."""
        return bool(self.limit) or self.users is not None or self.availability is not None

    def at_rate(self, request: Request) -> Request:
        """Return a request with the rate of its users, and refuse two sizes.

        Examples
        --------
        >>> from trnmodel.catalog.facilities import facility
        >>> from trnmodel.catalog.prices import owner
        >>> many = Demand(facility=facility("aws-air"), owner=owner("hyperscaler"), users=2000.0)
        >>> many.at_rate(Request(2048, 500, tokens_per_s_per_user=50)).requests_per_s
        200.0
        """
        request = one_request("request", request)
        sizes = {name: getattr(self, name) for name in SIZES if getattr(self, name) is not None}
        if request.requests_per_s is not None:
            sizes = {"requests_per_s": request.requests_per_s} | sizes
        if len(sizes) > 1:
            (first, size), *_, (last, value) = sizes.items()
            refuse(last, value, f"allowed is one size, and {first}={shown(size)} is given too")
        if self.users is None:
            return request
        if request.tokens_per_s_per_user is None:
            refuse("users", self.users, "users need a promised speed, from which the rate of their requests follows")
        return replace(request, requests_per_s=self.users * request.tokens_per_s_per_user / request.output_tokens)

    def site(self, system: str | System) -> Facility:
        """Return the site of a system: that of the demand, else the owner's own, else that of the system's cooling."""
        return site_of(read_system(system), self.facility, self.owner.facility)

    def price(self, system: str | System) -> Rent:
        """Return the price of a chip-hour of a system under the pricing, or the buyer's own."""
        return PricesAsked(self.pricing, None, self.owner).of(read_system(system))

    def most_instances(self, system: str | System) -> tuple[float, str]:
        """Return the whole instances of a system that the limit allows, and why there is none; infinite without one."""
        if not self.limit:
            read_system(system)
            return np.inf, ""
        most, (each, unknown) = float(getattr(self, self.limit)), self.each(system)
        if unknown:
            return 0.0, unknown
        whole = float(np.floor(most / each * (1 + ROUNDING)))
        return whole, "" if whole >= 1 else f"{self.least(system)}, more than {self._amount(most)}"

    def least(self, system: str | System) -> str:
        """Return what one instance takes of the limit, in words; empty where that is not known."""
        each, unknown = self.each(system)
        return "" if unknown or not self.limit else f"one instance takes {self._amount(each)}"

    def _amount(self, amount: float) -> str:
        """Return an amount of what is limited, in words."""
        words = {"chips": "{:,.6g} chips", "site_w": "{:,.6g} W at the site", "usd_per_month": "${:,.0f} per month"}
        return words[self.limit].format(amount)

    def each(self, system: str | System) -> tuple[float, str]:
        """Return what one instance of a system takes of the limit, and why that is not known."""
        spec = read_system(system)
        if not self.limit:
            return 0.0, ""
        if self.limit == "chips":
            return float(spec.chips), ""
        if self.limit == "site_w":
            watts = provisioned_site_w(spec, self.site(spec))
            return watts, "" if np.isfinite(watts) else "no watts of its chip are known"
        price = self.price(spec)
        return float(price.usd_per_chip_h) * spec.chips * PERIOD_H, price.why


def provisioned_site_w(spec: System, facility: Facility) -> float:
    """Return the power that a site provisions for one instance, on its hottest day [W]."""
    return float(spec.chips * tco(spec, facility=facility).site_watts.peak_site_w)


class BillLine(NamedTuple):
    """A line of a bill: what a month costs under a pricing, with its ends, and where and when the price was read."""

    kind: str
    pricing: str = ""
    usd_per_month: float = np.nan
    usd_per_month_low: float = np.nan
    usd_per_month_high: float = np.nan
    usd_per_chip_h: float = np.nan
    places: str = ""
    date: str = ""
    source: str = ""
    why: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Capacity(Grounded):
    """Whole instances of a choice for a demand, with what they serve, cost and draw.

    `instances` serve, and `spare_instances` stand by so that the share of time in which all `replicas` run is at least
    the availability. `decoding_users` and `waiting_users` (in the queue or in their prefill) are means, by Little's
    law. `usd_per_month` is the rent under the pricing of the demand, and `owned_usd_per_month` the cost to an owner,
    both of spares too. `mean_site_w` is that of the chips that serve, `provisioned_site_w` that of all instances. The
    band of what the load decides is the range over the draws of its choice.
    """

    REASONS: ClassVar[tuple[str, ...]] = (
        "the promises are not kept",
        "no number of spare instances gives the availability",
        "its parts are not counted for a pair of systems",
    )
    FIGURE: ClassVar[str] = "instances"
    UNBANDED: ClassVar[tuple[str, ...]] = (
        *("spare_instances", "availability", "availability_without_spares", "lost_h_per_year"),
        *("provisioned_site_w", "replicas_per_instance"),
    )

    question: Demand
    choice: Choice
    instances: float
    spare_instances: float
    replicas: float
    chips: float
    requests_per_s: float
    tokens_per_s: float
    decoding_users: float
    waiting_users: float
    availability: float
    availability_without_spares: float
    lost_h_per_year: float
    usd_per_month: float
    owned_usd_per_month: float
    mean_server_w: float
    mean_site_w: float
    provisioned_site_w: float

    @property
    def system(self) -> System:
        """The system whose instances are counted."""
        return self.choice.system

    @property
    def model(self) -> Any:
        """The model that is served."""
        return self.choice.question.model

    @property
    def replicas_per_instance(self) -> float:
        """Replicas that one instance holds; below 1 where a replica takes several."""
        return _replicas_per_instance(self.choice)

    @cached_property
    def energy(self) -> RequestEnergy:
        """The energy of a request at the load and the site."""
        return self.choice.energy(self.question.site(self.system))

    @cached_property
    def rented(self) -> TokenCost:
        """The cost of a generated token to a renter, on whole instances with spares, under the pricing."""
        return _token_cost(self, self.question.price(self.system))

    @cached_property
    def owned(self) -> Cost:
        """The cost of a chip-hour to the owner of the demand."""
        return tco(self.system, owner=self.question.owner, facility=self.question.site(self.system))

    @cached_property
    def drawn(self) -> Mapping[str, NDArray]:
        """Its figures in each of the draws of its choice; NaN where the promises do not hold."""
        return _figures(self.question, self.choice, self.choice.drawn, self.instances, self.spare_instances)

    @cached_property
    def full(self) -> Capacity:
        """The same point on the fewest whole instances, all full, without spares: what a token takes at its least.

        Per token and per chip these are the figures of `tm.compare` and `tm.token_cost`, whatever the demand is.
        """
        anything = replace(self.question, users=None, chips=None, site_w=None, usd_per_month=None, availability=None)
        return capacity(anything, self.choice.full)

    def judge(self) -> Basis:
        """Return the basis of its choice."""
        return self.choice.judge()

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a figure: of the draws, with those of the price or of the joules."""
        if name in self.drawn:
            return draw_widths(name, float(getattr(self, name)), self.drawn)
        if name.endswith(("_w", "_j_per_token")):
            boundary = "server" if "server" in name else "facility"
            return self.energy.widths(f"{boundary}_j_per_token")
        price = self._owner_draws() if name.startswith("owned") else self._price_draws()
        made = self.drawn["tokens_per_s"] * MONTH_S / MILLION if name.endswith("_per_mtoken") else 1.0
        return draw_widths("usd", float(getattr(self, name)), {"usd": self.drawn["chips"] * price * PERIOD_H / made})

    def _price_draws(self) -> NDArray:
        """Return the price of a chip-hour in each of the common draws [USD/h]."""
        return self.rented.common_usd_per_h()

    def _owner_draws(self) -> NDArray:
        """Return the owner's hour of a chip in each of the common draws [USD/h]."""
        return _token_cost(self, owned_rent(self.owned), self.owned).common_usd_per_h()

    @property
    def usd_per_mtoken(self) -> float:
        """Rent per million generated tokens, with prompts, waiting chips and spares paid."""
        return self.usd_per_month / (self.tokens_per_s * MONTH_S) * MILLION

    @property
    def owned_usd_per_mtoken(self) -> float:
        """The same to the owner."""
        return self.owned_usd_per_month / (self.tokens_per_s * MONTH_S) * MILLION

    @property
    def server_j_per_token(self) -> float:
        """Energy of a generated token with its prompt, at the server."""
        return float(self.energy.server_j_per_token)

    @property
    def facility_j_per_token(self) -> float:
        """Energy of a generated token with its prompt, at the site."""
        return float(self.energy.facility_j_per_token)

    def bill(self) -> pd.DataFrame:
        """Return what the instances and spares cost in a month, under each published pricing, owned, and hosted.

        Returns
        -------
        table : pandas.DataFrame
            kind ("rent", "owned" or "hosted"), pricing, usd_per_month with `_low` and `_high` (of the price and, where
            the load decides the instances, of the software), usd_per_chip_h, places, date, source, why (nothing is
            published). A hosted price is that of the same tokens.
        """
        return tidy(one._asdict() for one in self.bill_lines())

    def bill_lines(self) -> list[BillLine]:
        """Return the lines of the bill one by one."""
        rents = [rent(self.system, pricing) for pricing in PRICINGS]
        own = self.question.price(self.system)
        rents = [*([] if own.pricing in PRICINGS else [own]), *rents]
        lines = [self._line("rent", one, _token_cost(self, one).common_usd_per_h()) for one in rents if not one.why]
        if not lines:
            lines.append(BillLine("rent", why=own.why))
        lines.append(self._line("owned", owned_rent(self.owned), self._owner_draws()))
        request = self.choice.question.request
        tokens = (request.input_tokens + request.output_tokens) * self.requests_per_s * MONTH_S
        for api in hosted(self.model.id):
            usd = api.usd_per_token(request.input_tokens, request.output_tokens) * tokens
            whole = BillLine("hosted", api.seller, usd, usd, usd)
            lines.append(whole._replace(places=api.seller, date=api.printed_date, source=api.source))
        return lines

    def _line(self, kind: str, price: Rent, drawn_usd_per_h: NDArray) -> BillLine:
        """Return a line of the bill."""
        usd = self.chips * float(price.usd_per_chip_h) * PERIOD_H
        low, high = range_of(self.drawn["chips"] * drawn_usd_per_h * PERIOD_H)
        return BillLine(
            kind=kind,
            pricing=price.pricing,
            usd_per_month=usd,
            usd_per_month_low=float(np.minimum(low, usd)),
            usd_per_month_high=float(np.maximum(high, usd)),
            usd_per_chip_h=float(price.usd_per_chip_h),
            places=", ".join(sorted(price.places)),
            date=price.date,
            source=", ".join(price.sources.get("usd_per_chip_h", ())),
            why=price.why,
        )

    def losses(self) -> pd.DataFrame:
        """Return the hours of a year in which a replica is out, by cause.

        Returns
        -------
        table : pandas.DataFrame
            cause, h_per_year (of one replica), share.
        """
        hours = self.lost_h_by_cause
        total = sum(hours.values())
        return tidy(
            {"cause": cause, "h_per_year": each, "share": each / total if total else 0.0}
            for cause, each in hours.items()
        )

    @property
    def lost_h_by_cause(self) -> dict[str, float]:
        """Hours of a year in which one replica is out, by cause."""
        down = replica_downtime(self.system, self.choice.chips)
        total = sum(down.values())
        return {cause: float(part / (1 + total)) * HOURS_PER_YEAR for cause, part in down.items()}


@lru_cache(maxsize=512)
def capacity(demand: Demand, c: Choice) -> Capacity:
    """Return how many instances of a choice a demand takes, and what they serve, cost and draw.

    A choice that breaks the promises, or runs on a pair of systems, gives an invalid point.
    """
    pair = len(c.systems) > 1
    if pair or not c.valid:
        return _none(demand, c, reason_mask(not pair, False, pair))
    instances, spare, reached = _instances(demand, c)
    if not reached:
        return _none(demand, c, reason_mask(False, True, False))
    here = {name: np.asarray(getattr(c, name)) for name in _READ}
    figures = {name: float(x) for name, x in _figures(demand, c, here, instances, spare).items()}
    place = demand.site(c.system)
    price, owner = demand.price(c.system), tco(c.system, owner=demand.owner, facility=place)
    joules = c.energy(place)
    figures |= {
        "spare_instances": spare,
        "usd_per_month": figures["chips"] * float(price.usd_per_chip_h) * PERIOD_H,
        "owned_usd_per_month": figures["chips"] * float(owner.useful_usd_per_h) * PERIOD_H,
        "mean_server_w": figures["tokens_per_s"] * float(joules.server_j_per_token),
        "mean_site_w": figures["tokens_per_s"] * float(joules.facility_j_per_token),
        "provisioned_site_w": (instances + spare) * provisioned_site_w(c.system, place),
    }
    figures |= _availability(c, instances, spare)
    return Capacity(question=demand, choice=c, **figures, reason_mask=reason_mask(False, False, False))


_READ = (
    *("tokens_per_s_per_chip", "requests_per_s_per_replica", "request_chip_s", "prompt_chip_s"),
    *("sequences_in_flight", "prefill_utilisation"),
)
_FIGURES = tuple(one.name for one in fields(Capacity) if one.name not in ("question", "choice", "reason_mask"))


def _none(demand: Demand, c: Choice, mask: NDArray) -> Capacity:
    """Return a capacity without figures, for the reasons of a mask."""
    return Capacity(question=demand, choice=c, **dict.fromkeys(_FIGURES, np.nan), reason_mask=mask)


def _replicas_per_instance(c: Choice) -> float:
    """Return the replicas of one instance; below 1 where a replica takes several."""
    return c.replicas_per_instance if c.replicas_per_instance >= 1 else 1 / c.instances


def _figures(
    demand: Demand, c: Choice, drawn: Mapping[str, NDArray], instances: float, spare: float
) -> dict[str, NDArray]:
    """Return the figures that the load decides, as planned or in each draw of them.

    With a rate of the request instances adapt in each draw; with a limit what they make does.
    """
    request, spec = c.question.request, c.system
    if request.requests_per_s is not None:
        whole = np.round(request.requests_per_s * drawn["request_chip_s"] / spec.chips)
        rate = np.where(np.isfinite(whole), request.requests_per_s, np.nan)
    else:
        whole = np.where(np.isfinite(drawn["tokens_per_s_per_chip"]), instances, np.nan)
        rate = whole * spec.chips * drawn["tokens_per_s_per_chip"] / request.output_tokens
    replicas = np.floor(whole * _replicas_per_instance(c) * (1 + ROUNDING))
    needed = rate / drawn["requests_per_s_per_replica"]
    utilisation = drawn["prefill_utilisation"] * np.minimum(needed / replicas, 1.0)
    times = c.times.stretched(1.0, drawn["prompt_chip_s"] / c.prompt_chip_s)
    alone = latency.prompt_latency_s(times.alone_s, times.together_s, utilisation)
    first = latency.first_token_s(alone, times.chunks, times.step_s)
    waits = latency.mean_waiting_s(utilisation, times.together_s)
    return {
        "instances": whole,
        "replicas": replicas,
        "chips": (whole + spare) * spec.chips,
        "requests_per_s": rate,
        "tokens_per_s": rate * request.output_tokens,
        "decoding_users": drawn["sequences_in_flight"] * needed,
        "waiting_users": rate * (first + waits),
    }


def _instances(demand: Demand, c: Choice) -> tuple[float, float, bool]:
    """Return the instances that serve, the spares, and whether these give the availability."""
    spec, request, each = c.system, c.question.request, _replicas_per_instance(c)
    if not demand.limit:
        rate = request.requests_per_s
        whole = c.instances if rate is None else float(np.round(rate * c.request_chip_s / spec.chips))
        if demand.availability is None:
            return whole, 0.0, True
        spare = np.arange(MOST_SPARES + 1.0)
        reached = _all_run(c, whole + spare, whole, each) >= demand.availability
        return (whole, float(spare[reached.argmax()]), True) if reached.any() else (whole, 0.0, False)
    whole, _ = demand.most_instances(spec)
    whole = float(np.floor(whole / c.instances) * c.instances) if c.instances > 1 else whole
    if demand.availability is None or not whole:
        return whole, 0.0, whole > 0
    spare = np.arange(min(whole, MOST_SPARES + 1.0))
    reached = _all_run(c, np.full(spare.shape, whole), whole - spare, each) >= demand.availability
    least = float(spare[reached.argmax()])
    return (whole - least, least, True) if reached.any() else (whole, 0.0, False)


def _all_run(c: Choice, instances: NDArray, needed: Any, each: float) -> NDArray:
    """Return the share of time in which the replicas of `needed` instances run on any of so many instances."""
    replicas, least = (np.maximum(np.floor(n * each * (1 + ROUNDING)), 1.0) for n in (instances, needed))
    return replica_availability(c.system, c.chips, replicas, np.broadcast_to(least, np.shape(replicas)))


def _availability(c: Choice, instances: float, spare: float) -> dict[str, float]:
    """Return the share of time in which all replicas run, with spares and without, and the hours that are lost."""
    each = _replicas_per_instance(c)
    with_spares, without = (
        float(_all_run(c, np.asarray(instances + n), np.asarray(instances), each)) for n in (spare, 0.0)
    )
    lost = (1 - with_spares) * HOURS_PER_YEAR
    return {"availability": with_spares, "availability_without_spares": without, "lost_h_per_year": lost}


def _token_cost(one: Capacity, price: Rent, owned: Cost | None = None) -> TokenCost:
    """Return the cost of a token of the choice at a price, as `tm.token_cost` has it."""
    c = one.choice
    q = TokenCostQuestion(
        model=c.question.model,
        request=c.question.request,
        precision=c.precision,
        duty=1.0,
        spare_instances=one.spare_instances,
    )
    return cost_line(q, c.system, price, owned, c.stack, c)
