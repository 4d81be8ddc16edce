"""Chip-seconds that a token takes at a user's speed, over the band of the software, and what they cost at a price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, choice, instance, number, numbers, share, together
from trnmodel.catalog.rents import Rent
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.stacks import basis as stack_basis
from trnmodel.catalog.systems import System
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.models.transformer import Transformer
from trnmodel.planner.cost import Cost
from trnmodel.planner.deployments import computes
from trnmodel.planner.plan import PRECISIONS, Choice, served
from trnmodel.result import Basis, Judged, reason_mask
from trnmodel.units import format_digits, format_within

PLACES = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of a step's band, from its fast end to its slow one
WIDEST = 1 / (1 - np.sqrt(0.1))  # half-width of a triangle whose 5th and 95th percentiles are -1 and 1
PHASES = ("prefill", "decode", "blended")
COSTS = tuple(f"{part}_usd_per_mtoken" for part in (*PHASES, "at_load"))


class Effort(NamedTuple):
    """Chip-seconds of a token of a prompt and of a generated one, at each of `PLACES`; infinite where out of reach.

    `chips` are those of a replica there.
    """

    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    chips: tuple[float, ...]

    def of(self, phase: str, input_tokens: float, output_tokens: float) -> NDArray:
        """Chip-seconds of a token of a phase, or of a request's mean token, at each of `PLACES`."""
        choice("phase", phase, PHASES)
        input_tokens, output_tokens = number("input_tokens", input_tokens, 1), number("output_tokens", output_tokens, 1)
        prefill, decode = np.asarray(self.prefill), np.asarray(self.decode)
        whole = (input_tokens * prefill + output_tokens * decode) / (input_tokens + output_tokens)
        return {"prefill": prefill, "decode": decode, "blended": whole}[phase]


def between(each: NDArray, place: ArrayLike) -> NDArray:
    """Chip-seconds at any place of the band, by the logarithm between `PLACES` and beyond them."""
    at, logs = np.asarray(place, dtype=float), np.log(each)
    left = np.clip(np.searchsorted(PLACES, at, side="left") - 1, 0, len(PLACES) - 2)
    with np.errstate(invalid="ignore"):
        share = (at - np.take(PLACES, left)) / 0.5
        found = logs[left] + share * (logs[left + 1] - logs[left])
    out = np.isinf(logs[left]) | (np.isinf(logs[left + 1]) & (share > 0))
    return np.exp(np.where(out, np.inf, np.where(np.isinf(logs[left + 1]), logs[left], found)))


class Load(NamedTuple):
    """The load asked for: requests a second while it is there, the share of the rented time in which it is, spares.

    Without a rate it is what the fewest instances that hold a replica serve.
    """

    requests_per_s: float
    duty: float
    spare_instances: float

    def instances(self, request_chip_s: NDArray, chips: NDArray, sold_chips: float) -> tuple[NDArray, NDArray]:
        """Whole instances that serve it, and chip-seconds that are rented for each request.

        Parameters
        ----------
        request_chip_s, chips : numeric
            Chip-seconds that a request takes on a replica of so many chips; NaN where out of reach. [s]
        sold_chips : float
            Chips that are rented together. [-]
        """
        request_chip_s = numbers("request_chip_s", request_chip_s, TINY, unknown=True)
        chips, sold_chips = numbers("chips", chips, 1, unknown=True), number("sold_chips", sold_chips, 1)
        together(request_chip_s=request_chip_s, chips=chips)
        fitting = np.maximum(np.floor(sold_chips / chips), 1.0)  # replicas of an instance, or one on several
        asked = fitting * chips / request_chip_s if np.isnan(self.requests_per_s) else self.requests_per_s
        replicas = np.ceil(asked * request_chip_s / chips * (1 - 1e-12))
        whole = np.ceil(replicas / fitting) * np.ceil(chips / sold_chips) + self.spare_instances
        return whole, whole * sold_chips / (asked * self.duty)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenCost(Judged):
    """What a million tokens cost on one system with one kind of software, at capacity and at the load asked for.

    `prefill_` is of tokens of prompts, `decode_` of generated ones, `blended_` of both as requests have them;
    `at_load_` is on whole `instances`, over the hours in which they wait too. `choice` is what `plan.served` chooses.
    """

    REASONS: ClassVar[tuple[str, ...]] = (
        "no price is published",
        "too slow for a user at any batch",
        "the model does not fit",
        "its chip does not compute in the precision",
    )
    FIGURE: ClassVar[str] = "blended_usd_per_mtoken"
    UNBANDED: ClassVar[tuple[str, ...]] = (
        *("wanted_tokens_per_s_per_user", "input_tokens", "output_tokens", "price_age_days", "instances"),
    )

    model: Transformer
    system: System
    rent: Rent
    load: Load
    owned: Cost | None
    choice: Choice | None
    effort: Effort
    wanted_tokens_per_s_per_user: float
    input_tokens: float
    output_tokens: float
    usd_per_chip_h: Any
    prefill_usd_per_mtoken: NDArray
    decode_usd_per_mtoken: NDArray
    blended_usd_per_mtoken: NDArray
    at_load_usd_per_mtoken: NDArray
    instances: NDArray

    @property
    def way(self) -> str:
        """How it is rented."""
        return self.rent.way

    @property
    def price_date(self) -> str:
        """Date of the oldest price in force."""
        return self.rent.date

    @property
    def price_age_days(self) -> float:
        """Days from then to the newest date of all prices."""
        return self.rent.age_days()

    @property
    def fast_enough(self) -> bool:
        """Whether it serves the model at the speed, priced or not."""
        return bool(np.isfinite(self.chip_s("blended")[2]))

    @property
    def waits(self) -> bool:
        """Whether the load asked for costs more than full chips do."""
        return bool(np.any(self.valid)) and not np.allclose(self.at_load_usd_per_mtoken, self.blended_usd_per_mtoken)

    @property
    def lacking(self) -> str:
        """Why it does not serve the model at the speed, priced or not; empty where it does."""
        return "; ".join(part for part in str(self.reason).split("; ") if part != self.REASONS[0])

    def price_told(self) -> str:
        """Its price with range, way, date and age, in words."""
        if self.rent.why:
            return self.rent.why
        low, high = (float(np.mean(end)) for end in self.rent.range("usd_per_chip_h"))
        told = format_within(float(np.mean(self.usd_per_chip_h)), low, high)
        age = "" if np.isnan(self.price_age_days) else f" of {self.price_date}, {self.price_age_days:.0f} days old"
        return f"{told} USD a chip-hour, {self.way}{age}"

    def load_told(self) -> str:
        """The load in words."""
        asked = self.load.requests_per_s
        rate = "whole full instances" if np.isnan(asked) else f"{format_digits(asked, 3)} requests/s"
        spares = f", {self.load.spare_instances:g} spare" if self.load.spare_instances else ""
        return f"{rate}, {100 * self.load.duty:.3g} % of the time{spares}"

    def chip_s(self, phase: str = "blended") -> NDArray:
        """Chip-seconds of a token of a phase at each of `PLACES` of the band. [s]"""
        return self.effort.of(phase, self.input_tokens, self.output_tokens)

    def chip_s_ends(self, phase: str = "blended") -> tuple[float, float, float]:
        """Low, middle and high of the chip-seconds of a token of a phase. [s]"""
        each = self.chip_s(phase)
        return float(each.min()), float(each[2]), float(each.max())

    def uncertain(self, phase: str) -> dict[str, Any]:
        """What is drawn of its cost, by name: its price or its owner's, and where in its band the software lies."""
        ends = self.rent.open_ranges.get("usd_per_chip_h")
        inputs = self.owned.uncertain() if self.owned else {}
        if ends and not self.owned:
            inputs[self._price] = ends[0], self.usd_per_chip_h, ends[1]
        return inputs | ({_ground(self): (0.0, 0.5, 1.0)} if np.ptp(self.chip_s(phase)) != 0 else {})

    @property
    def _price(self) -> str:
        return f"{self.system.id}: USD a chip-hour"

    def drawn_chip_s(self, drawn: Mapping[str, Any], phase: str = "blended") -> NDArray:
        """Chip-seconds of a token in each draw; infinite where no user is served as fast."""
        known = instance("drawn", drawn, Mapping, "a mapping of what is uncertain to its draws")
        place = WIDEST * (2 * share(f"drawn[{_ground(self)!r}]", known.get(_ground(self), 0.5)) - 1)
        return between(self.chip_s(phase), place)

    def drawn_usd_per_mtoken(self, drawn: Mapping[str, Any], phase: str) -> NDArray:
        """Its cost in each draw of what is `uncertain`."""
        known = instance("drawn", drawn, Mapping, "a mapping of what is uncertain to its draws")
        own = numbers(f"drawn[{self._price!r}]", known.get(self._price, self.usd_per_chip_h), unknown=True)
        price = self.owned.drawn_usd_per_h(drawn) if self.owned else own
        with np.errstate(invalid="ignore"):
            return usd_per_mtoken(price, 1.0) * self.drawn_chip_s(drawn, phase)

    def told(self, name: str = FIGURE) -> str:
        """One of its costs with band and basis, in words, or why there is none."""
        choice("name", name, COSTS)
        if not self.valid:
            return str(self.reason)
        low, high = (float(np.mean(end)) for end in self.ends(name))
        return within(float(np.mean(self.figure(name))), low, high, str(self.basis))


def within(value: float, low: float, high: float, basis: str = "") -> str:
    """A cost or a price with its band in words; "out of reach" where the slow end of the band serves nobody as fast.

    Examples
    --------
    >>> within(4.41, 0.719, np.inf), within(0.38, 0.31, 0.55, "extrapolated")
    ('4.4 (0.72 to out of reach)', '0.38 (0.31 to 0.55; extrapolated)')
    """
    if np.isfinite(high):
        return format_within(value, low, high, basis=basis)
    ground = f"; {basis}" * bool(basis)
    return f"{format_digits(value, 2)} ({format_digits(low, 2)} to out of reach{ground})"


def _ground(one: TokenCost) -> str:
    """The uncertain input that says where in its band a stack lies: a hand-tuned one is one for all on it."""
    return one.stack.id if one.stack_kind == "hand-tuned" else f"{one.stack.id} on {one.system.chip.id}"


def _full(request_chip_s: NDArray, chips: NDArray) -> NDArray:
    return 1 / request_chip_s


class Ask(NamedTuple):
    """What is asked of every system and kind of software."""

    model: Transformer
    wanted: float
    given: float
    output: float
    precision: Any
    load: Load

    def able(self, spec: System) -> bool:
        """Whether the chip of a system computes in the precision, or in one of those that are tried."""
        return any(computes(spec, one) for one in ([self.precision] if self.precision else PRECISIONS))

    def best(self, spec: System, e: Efficiencies, worth: Any, precision: Any, stretch: float = 1.0) -> Choice | None:
        """The point of most worth where all steps are so many times as long as they are thought to be."""
        return served(worth, self.model, spec, e, self.wanted * stretch, self.given, self.output, precision)

    def effort(self, spec: System, e: Efficiencies, worth: Any) -> tuple[Choice | None, Effort]:
        """What is chosen, and chip-seconds over its band: at each place of it, of the point that is best there."""
        found = self.best(spec, e, worth, self.precision) if self.able(spec) else None
        if found is None or not found.valid:
            return found, Effort(*3 * ((np.inf,) * len(PLACES),))
        steps, prefills = found.widths("tokens_per_s_per_chip"), found.widths("ttft_s")
        points = []
        for place in PLACES:
            stretch, longer = (float(np.exp(place * wide[place > 0])) for wide in (steps, prefills))
            there = found if stretch == 1 else self.best(spec, e, worth, found.dtypes, stretch)
            points.append(self.chip_s(there, stretch, longer))
        return found, Effort(*zip(*points, strict=True))

    def chip_s(self, found: Choice | None, stretch: float, longer: float) -> tuple[float, float, float]:
        """Chip-seconds of a prompt token and of a generated one, were steps and prefills longer, and chips."""
        if found is None or not found.valid:
            return np.inf, np.inf, np.inf
        decode = 1 / found.tokens_per_s_per_chip
        request = self.output / found.with_prompts_tokens_per_s_per_chip
        return longer * (request - self.output * decode) / self.given, stretch * decode, found.chips

    def rented(self, effort: Effort, sold_chips: float) -> tuple[NDArray, NDArray]:
        """Instances at the load, and chip-seconds that are rented for a mean token, at each of `PLACES`."""
        tokens = self.given + self.output
        each = effort.of("blended", self.given, self.output) * tokens
        each, chips = (np.where(np.isfinite(each), x, np.nan) for x in (each, np.asarray(effort.chips)))
        whole, paid = self.load.instances(each, chips, sold_chips)
        return whole, np.where(np.isnan(paid), np.inf, paid / tokens)

    def at_load(self, spec: System, e: Efficiencies, sold_chips: float, full: Effort) -> tuple[NDArray, NDArray]:
        """`rented` at the point that needs the fewest instances, or on full ones where no rate is asked for."""
        if np.isnan(self.load.requests_per_s) or not np.isfinite(full.decode[2]):
            return self.rented(full, sold_chips)

        def least(request_chip_s: NDArray, chips: NDArray) -> NDArray:
            return 1 / self.load.instances(request_chip_s, chips, sold_chips)[1]

        return self.rented(self.effort(spec, e, least)[1], sold_chips)

    def line(
        self,
        spec: System,
        price: Rent,
        owned: Cost | None,
        e: Efficiencies,
        known: tuple[Choice | None, Effort] | None = None,
    ) -> TokenCost:
        """The answer of one system on one kind of software; with what is `known` of it, at another price alone."""
        found, effort = known or self.effort(spec, e, _full)
        able, slow = self.able(spec), found is not None and not bool(found.valid)
        mask = reason_mask(np.isnan(price.usd_per_chip_h), slow, found is None and able, not able)
        instances, paid = self.at_load(spec, e, price.sold_chips, effort)
        each = {f"{phase}_usd_per_mtoken": effort.of(phase, self.given, self.output) for phase in PHASES}
        each |= {"at_load_usd_per_mtoken": paid}
        made: dict[str, Any] = {name: _cost(mask, price, chip_s[2]) for name, chip_s in each.items()}
        made |= {"usd_per_chip_h": price.usd_per_chip_h, "instances": instances[2], "reason_mask": mask}
        made |= {"input_tokens": self.given, "output_tokens": self.output}

        def judge() -> Basis:
            return found.judge() if found else stack_basis(e, spec.chip, spec.chip.lnc_default, "decode")

        return TokenCost(
            model=self.model,
            system=spec,
            rent=price,
            load=self.load,
            owned=owned,
            stack=e,
            choice=found,
            effort=effort,
            wanted_tokens_per_s_per_user=self.wanted,
            **made,
            judge=judge,
            spread=lambda name: _widths(price, each.get(name, np.ones(len(PLACES)))),
        )


def _cost(mask: NDArray, price: Rent, chip_s: float) -> NDArray:
    """A million tokens of which each takes so long of a chip; NaN where there is no answer."""
    return np.where(mask == 0, usd_per_mtoken(price.usd_per_chip_h, 1.0) * chip_s, np.nan)[()]


def _widths(price: Rent, each: NDArray) -> tuple[NDArray, NDArray]:
    """Half-widths of the logarithm of a cost: those of the price and of the throughput, as independent causes."""
    low, high = price.open_ranges.get("usd_per_chip_h", (price.usd_per_chip_h,) * 2)
    money = [np.abs(np.log(end / price.usd_per_chip_h)) for end in (low, high)]
    with np.errstate(invalid="ignore"):
        work = np.abs(np.log([each.min() / each[2], each.max() / each[2]]))
    return np.hypot(money[0], work[0]), np.hypot(money[1], work[1])
