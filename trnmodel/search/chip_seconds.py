"""Chip-seconds that a token takes at a user's speed, over the band of the software, and what they cost at a price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, instance, number, numbers, share
from trnmodel.catalog.rents import Rent
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.stacks import basis as stack_basis
from trnmodel.catalog.systems import System
from trnmodel.cost.tco import Cost
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.models.transformer import Transformer
from trnmodel.quantities import quantity
from trnmodel.result import Basis, Judged, reason_mask
from trnmodel.search.deployments import computes
from trnmodel.search.objective import REQUESTS, Load, Objective
from trnmodel.search.plan import PRECISIONS, Choice, served
from trnmodel.units import format_digits, format_figure, format_within

PLACES = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of a step's band, from its fast end to its slow one
WIDEST = 1 / (1 - np.sqrt(0.1))  # half-width of a triangle whose 5th and 95th percentiles are -1 and 1
PHASES = ("prefill", "decode", "blended")
COSTS = tuple(f"{part}_usd_per_mtoken" for part in (*PHASES, "at_load"))


class ChipSeconds(NamedTuple):
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenCost(Judged):
    """Cost of a million tokens on one system with one kind of software, at capacity and at the requested load.

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
    chip_seconds: ChipSeconds
    at_load_chip_s: tuple[float, ...]
    wanted_tokens_per_s_per_user: float
    input_tokens: float
    output_tokens: float
    usd_per_chip_h: Any
    prefill_usd_per_mtoken: NDArray
    decode_usd_per_mtoken: NDArray
    blended_usd_per_mtoken: NDArray
    at_load_usd_per_mtoken: NDArray
    instances: NDArray

    def judge(self) -> Basis:
        """Return the basis of its choice, or that of the stack where nothing fits."""
        chip = self.system.chip
        return self.choice.judge() if self.choice else stack_basis(self.stack, chip, chip.lnc_default, "decode")

    def _widths(self, name: str, part: str = "") -> tuple[NDArray, NDArray]:
        """Return the half-widths of a cost: those of the price and of the throughput, as independent causes."""
        phase = name.removesuffix("_usd_per_mtoken")
        each = np.ones(len(PLACES))
        if phase in PHASES:
            each = self.chip_s(phase)
        elif phase == "at_load":
            each = np.asarray(self.at_load_chip_s)
        return _half_widths(self.rent, each)

    @property
    def pricing(self) -> str:
        """How it is rented."""
        return self.rent.pricing

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
        """Its price with range, pricing, date and age, in words."""
        if self.rent.why:
            return self.rent.why
        low, high = (float(np.mean(end)) for end in self.rent.range("usd_per_chip_h"))
        unit = quantity("usd_per_chip_h").unit
        price = format_figure(float(np.mean(self.usd_per_chip_h)), low, high, unit)
        age = "" if np.isnan(self.price_age_days) else f" of {self.price_date}, {self.price_age_days:.0f} days old"
        return f"{price}, {self.pricing}{age}"

    def load_told(self) -> str:
        """Return the load in words."""
        asked = self.load.requests_per_s
        rate = "whole full instances" if np.isnan(asked) else f"{format_digits(asked, 3)} requests/s"
        spares = f", {self.load.spare_instances:g} spare" if self.load.spare_instances else ""
        return f"{rate}, {100 * self.load.duty:.3g} % of the time{spares}"

    def chip_s(self, phase: str = "blended") -> NDArray:
        """Return the chip-seconds [s] of a token of a phase at each of `PLACES` of the band."""
        return self.chip_seconds.of(phase, self.input_tokens, self.output_tokens)

    def chip_s_ends(self, phase: str = "blended") -> tuple[float, float, float]:
        """Return the low, middle and high of the chip-seconds [s] of a token of a phase."""
        each = self.chip_s(phase)
        return float(each.min()), float(each[2]), float(each.max())

    def uncertain(self, phase: str) -> dict[str, Any]:
        """Return the uncertain inputs of the cost by name: its price, and the place of the software in its band."""
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
    """Return a cost or a price with its band; "out of reach" where the slow end of the band is too slow for a user.

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
    """Return the name of the draw that places a stack in its band; all chips share that of a hand-tuned stack."""
    return one.stack.id if one.stack_kind == "hand-tuned" else f"{one.stack.id} on {one.system.chip.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCostQuestion:
    """The question that every system and kind of software is asked."""

    model: Transformer
    tokens_per_s_per_user: float
    input_tokens: float
    output_tokens: float
    precision: str | None
    load: Load


def _computes(q: TokenCostQuestion, spec: System) -> bool:
    """Return whether the chip of a system computes in the precision, or in one of those that are tried."""
    return any(computes(spec, one) for one in ([q.precision] if q.precision else PRECISIONS))


def _best(
    q: TokenCostQuestion,
    spec: System,
    e: Efficiencies,
    objective: Objective,
    precision: str | Precision | None,
    stretch: float = 1.0,
) -> Choice | None:
    """Return the point with the highest objective where all steps take `stretch` times as long as predicted."""
    return served(
        q.model,
        spec,
        e,
        tokens_per_s_per_user=q.tokens_per_s_per_user * stretch,
        input_tokens=q.input_tokens,
        output_tokens=q.output_tokens,
        precision=precision,
        objective=objective,
    )


def over_band(
    q: TokenCostQuestion, spec: System, e: Efficiencies, objective: Objective
) -> tuple[Choice | None, ChipSeconds]:
    """Return the choice, and chip-seconds at each place of its band, each of the point that is best there."""
    best = _best(q, spec, e, objective, q.precision) if _computes(q, spec) else None
    if best is None or not best.valid:
        return best, ChipSeconds(*3 * ((np.inf,) * len(PLACES),))
    steps, prefills = best.widths("tokens_per_s_per_chip"), best.widths("ttft_s")
    points = []
    for place in PLACES:
        stretch, longer = (float(np.exp(place * wide[place > 0])) for wide in (steps, prefills))
        there = best if stretch == 1 else _best(q, spec, e, objective, best.dtypes, stretch)
        points.append(chip_s(q, there, stretch, longer))
    return best, ChipSeconds(*zip(*points, strict=True))


def chip_s(
    q: TokenCostQuestion, choice: Choice | None, stretch: float, prefill_stretch: float
) -> tuple[float, float, float]:
    """Return the chip-seconds of a prompt token and of a generated one, and the chips of a replica.

    Steps take `stretch` times and prefills `prefill_stretch` times as long as predicted.
    """
    if choice is None or not choice.valid:
        return np.inf, np.inf, np.inf
    decode = 1 / choice.tokens_per_s_per_chip
    request = q.output_tokens / choice.with_prompts_tokens_per_s_per_chip
    return prefill_stretch * (request - q.output_tokens * decode) / q.input_tokens, stretch * decode, choice.chips


def _rented(q: TokenCostQuestion, chip_seconds: ChipSeconds, sold_chips: float) -> tuple[NDArray, NDArray]:
    """Return the instances at the load, and the chip-seconds rented per mean token, at each of `PLACES`."""
    tokens = q.input_tokens + q.output_tokens
    each = chip_seconds.of("blended", q.input_tokens, q.output_tokens) * tokens
    each, chips = (np.where(np.isfinite(each), x, np.nan) for x in (each, np.asarray(chip_seconds.chips)))
    whole, paid = q.load.instances(each, chips, sold_chips)
    return whole, np.where(np.isnan(paid), np.inf, paid / tokens)


def _at_load(
    q: TokenCostQuestion, spec: System, e: Efficiencies, sold_chips: float, full: ChipSeconds
) -> tuple[NDArray, NDArray]:
    """Return `_rented` of the point that needs the fewest instances, or of full ones where the load has no rate."""
    if np.isnan(q.load.requests_per_s) or not np.isfinite(full.decode[2]):
        return _rented(q, full, sold_chips)
    objective = Objective(counts="requests", load=q.load, sold_chips=sold_chips)
    return _rented(q, over_band(q, spec, e, objective)[1], sold_chips)


def cost_line(
    q: TokenCostQuestion,
    spec: System,
    price: Rent,
    owned: Cost | None,
    e: Efficiencies,
    known: tuple[Choice | None, ChipSeconds] | None = None,
) -> TokenCost:
    """Return the cost on one system with one kind of software; `known` passes the result of an earlier search."""
    best, chip_seconds = known or over_band(q, spec, e, REQUESTS)
    able, slow = _computes(q, spec), best is not None and not bool(best.valid)
    mask = reason_mask(np.isnan(price.usd_per_chip_h), slow, best is None and able, not able)
    instances, paid = _at_load(q, spec, e, price.sold_chips, chip_seconds)
    each = {f"{phase}_usd_per_mtoken": chip_seconds.of(phase, q.input_tokens, q.output_tokens) for phase in PHASES}
    each |= {"at_load_usd_per_mtoken": paid}
    costs: dict[str, Any] = {name: _cost(mask, price, chip_s[2]) for name, chip_s in each.items()}
    return TokenCost(
        model=q.model,
        system=spec,
        rent=price,
        load=q.load,
        owned=owned,
        stack=e,
        choice=best,
        chip_seconds=chip_seconds,
        at_load_chip_s=tuple(map(float, paid)),
        wanted_tokens_per_s_per_user=q.tokens_per_s_per_user,
        input_tokens=q.input_tokens,
        output_tokens=q.output_tokens,
        usd_per_chip_h=price.usd_per_chip_h,
        instances=instances[2],
        reason_mask=mask,
        **costs,
    )


def _cost(mask: NDArray, price: Rent, chip_s: float) -> NDArray:
    """Return the cost of a million tokens at so many chip-seconds each; NaN where there is no answer."""
    return np.where(mask == 0, usd_per_mtoken(price.usd_per_chip_h, 1.0) * chip_s, np.nan)[()]


def _half_widths(price: Rent, each: NDArray) -> tuple[NDArray, NDArray]:
    """Return the half-widths of a cost at a price, of chip-seconds at each of `PLACES`."""
    low, high = price.open_ranges.get("usd_per_chip_h", (price.usd_per_chip_h,) * 2)
    money = [np.abs(np.log(end / price.usd_per_chip_h)) for end in (low, high)]
    with np.errstate(invalid="ignore"):
        work = np.abs(np.log([each.min() / each[2], each.max() / each[2]]))
    return np.hypot(money[0], work[0]), np.hypot(money[1], work[1])
