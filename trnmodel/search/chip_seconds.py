"""What a token costs on one system: the paid chip-seconds of a request times a price, and both over common draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same, choice, instance, numbers, share
from trnmodel.catalog.rents import Rent
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.stacks import basis as stack_basis
from trnmodel.catalog.systems import System
from trnmodel.cost.tco import Cost
from trnmodel.draws import DRAWS, cause, deviations_at, range_of
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.models.transformer import Transformer
from trnmodel.quantities import quantity
from trnmodel.result import Basis, Judged, reason_mask
from trnmodel.search.choice import Choice
from trnmodel.search.grid import computes
from trnmodel.search.sensitivity import common_draws
from trnmodel.search.single import PRECISIONS, best_choice
from trnmodel.serving.account import TOO_LATE, TOO_SLOW, draw_widths
from trnmodel.steps.request import Request
from trnmodel.units import format_digits, format_figure, format_within

PHASES = ("generated", "prefill", "decode", "blended", "at_load")
COSTS = tuple(f"{phase}_usd_per_mtoken" for phase in PHASES)
MOST_AT_ONCE = 4096  # draws whose numbers of sequences in flight are computed at a time
HALF = 0.5  # of a step that must stand on measured parts before a scenario is ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCostQuestion:
    """The question that every system and kind of software is asked."""

    model: Transformer
    request: Request
    precision: str | None
    duty: float
    spare_instances: float

    def per_token(self, phase: str, spec: System, instances: float, request_chip_s: Any, prompt_chip_s: Any) -> Any:
        """Return the chip-seconds of a token of a phase, from those of a request and of its prompt [s].

        Spares stand beside the `instances` of a load; without a rate these are what one replica takes.
        """
        made, mean = self.request.output_tokens, self.request.input_tokens + self.request.output_tokens
        if phase == "at_load":
            rate = self.request.requests_per_s
            spare = request_chip_s / instances if rate is None else spec.chips / rate
            return (request_chip_s + self.spare_instances * spare) / (self.duty * made)
        return {
            "generated": lambda: request_chip_s / made,
            "prefill": lambda: prompt_chip_s / self.request.input_tokens,
            "decode": lambda: (request_chip_s - prompt_chip_s) / made,
            "blended": lambda: request_chip_s / mean,
        }[phase]()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenCost(Judged):
    """Cost of a million tokens on one system with one kind of software, at the load that `choice` plans.

    `generated_` is of generated tokens with their prompts paid. `prefill_` is the part of the prompt, for each of its
    tokens; `decode_` is the rest, for each generated token: not decoding alone, since it holds the time in which chips
    that are paid for wait. `blended_` is of the mean token of a request. `at_load_` is of generated tokens on whole
    `instances`, with spares, over the hours in which they wait too. The band is the range over common draws of the
    software and of the price; `chance` is the share of draws in which the promises hold.
    """

    REASONS: ClassVar[tuple[str, ...]] = (
        "no price is published",
        TOO_SLOW,
        TOO_LATE,
        "the model does not fit",
        "its chip does not compute in the precision",
    )
    FIGURE: ClassVar[str] = "generated_usd_per_mtoken"
    UNBANDED: ClassVar[tuple[str, ...]] = (
        *("promised_tokens_per_s_per_user", "input_tokens", "output_tokens", "requests_per_s", "price_age_days"),
        *("instances", "chance"),
    )

    question: TokenCostQuestion
    system: System
    rent: Rent
    owned: Cost | None
    choice: Choice | None
    usd_per_chip_h: Any
    generated_usd_per_mtoken: NDArray
    prefill_usd_per_mtoken: NDArray
    decode_usd_per_mtoken: NDArray
    blended_usd_per_mtoken: NDArray
    at_load_usd_per_mtoken: NDArray
    instances: float

    @property
    def ranks(self) -> bool:
        """Whether its cost may be set in an order with others.

        That of a hand-tuned scenario may not, unless at least half of its decode step stands on parts that were
        measured on the chip: `Step.measured_share`.
        """
        if self.stack_kind != "hand-tuned":
            return True
        return self.choice is not None and bool(np.all(self.choice.step.measured_share >= HALF))

    def judge(self) -> Basis:
        """Return the basis of its choice, or that of the stack where nothing fits."""
        chip = self.system.chip
        return self.choice.judge() if self.choice else stack_basis(self.stack, chip, chip.lnc_default, "decode")

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a cost: its range over the common draws that keep the promises."""
        phase = name.removesuffix("_usd_per_mtoken")
        if phase in PHASES:
            return joint_widths(self, self.chip_s(phase), self.common_chip_s(phase))
        if name in ("request_chip_s", "prompt_chip_s"):
            return self.choice.widths(name) if self.choice else (np.nan, np.nan)
        price = self.usd_per_chip_h
        low, high = self.rent.open_ranges.get("usd_per_chip_h", (price, price))
        return np.log(price / low), np.log(high / price)

    @property
    def model(self) -> Transformer:
        """The model that is served."""
        return self.question.model

    @property
    def request(self) -> Request:
        """The request that was asked about."""
        return self.question.request

    @property
    def promised_tokens_per_s_per_user(self) -> float:
        """Speed that each user is promised; NaN without a promise."""
        speed = self.request.tokens_per_s_per_user
        return np.nan if speed is None else speed

    @property
    def input_tokens(self) -> float:
        """Tokens of a prompt."""
        return self.request.input_tokens

    @property
    def output_tokens(self) -> float:
        """Tokens of an answer."""
        return self.request.output_tokens

    @property
    def requests_per_s(self) -> float:
        """Rate of the requests; NaN where replicas run at the largest load at which the promises hold."""
        return np.nan if self.request.requests_per_s is None else self.request.requests_per_s

    @property
    def request_chip_s(self) -> float:
        """Paid chip-seconds of a request, as of its choice; NaN where none keeps the promises."""
        return self.choice.request_chip_s if self.choice else np.nan

    @property
    def prompt_chip_s(self) -> float:
        """Part of them that its prompt takes."""
        return self.choice.prompt_chip_s if self.choice else np.nan

    @property
    def chance(self) -> float:
        """Share of the common draws in which the promises hold, priced or not."""
        return self.choice.chance if self.choice else 0.0

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
        """Whether it keeps the promises, priced or not."""
        return bool(np.isfinite(self.request_chip_s))

    @property
    def waits(self) -> bool:
        """Whether spares, and hours in which chips wait, cost more than the load alone does."""
        return bool(np.any(self.valid)) and not np.allclose(self.at_load_usd_per_mtoken, self.generated_usd_per_mtoken)

    @property
    def lacking(self) -> str:
        """Why it does not keep the promises, priced or not; empty where it does."""
        return "; ".join(part for part in str(self.reason).split("; ") if part != self.REASONS[0])

    def price_text(self) -> str:
        """Its price with range, pricing, date and age, in words."""
        if self.rent.why:
            return self.rent.why
        low, high = (float(np.mean(end)) for end in self.rent.range("usd_per_chip_h"))
        unit = quantity("usd_per_chip_h").unit
        price = format_figure(float(np.mean(self.usd_per_chip_h)), low, high, unit)
        age = "" if np.isnan(self.price_age_days) else f" of {self.price_date}, {self.price_age_days:.0f} days old"
        return f"{price}, {self.pricing}{age}"

    def load_text(self) -> str:
        """Return the load in words."""
        rate = self.requests_per_s
        said = "whole full instances" if np.isnan(rate) else f"{format_digits(rate, 3)} requests/s"
        spares = f", {self.question.spare_instances:g} spare" if self.question.spare_instances else ""
        return f"{said}, {100 * self.question.duty:.3g} % of the time{spares}"

    def _of(self, phase: str, request_chip_s: Any, prompt_chip_s: Any) -> Any:
        """Return the chip-seconds of a token of a phase; NaN where nothing fits."""
        phase = choice("phase", phase, PHASES)
        whole = self.choice.instances if self.choice else np.nan
        return self.question.per_token(phase, self.system, whole, request_chip_s, prompt_chip_s)

    def chip_s(self, phase: str = "generated") -> float:
        """Return the chip-seconds [s] of a token of a phase: "generated", "prefill", "decode", "blended", "at_load"."""
        return float(self._of(phase, self.request_chip_s, self.prompt_chip_s))

    def common_chip_s(self, phase: str = "generated") -> NDArray:
        """Return the chip-seconds [s] of a token in each of the common draws; NaN where the promises do not hold."""
        if not self.choice or not self.fast_enough:
            return np.full(DRAWS, np.nan)
        drawn = self.choice.drawn
        return np.asarray(self._of(phase, drawn["request_chip_s"], drawn["prompt_chip_s"]))

    def chip_s_ends(self, phase: str = "generated") -> tuple[float, float, float]:
        """Return the low, middle and high of the chip-seconds [s] of a token of a phase."""
        middle, (low, high) = self.chip_s(phase), range_of(self.common_chip_s(phase))
        return float(np.minimum(low, middle)), middle, float(np.maximum(high, middle))

    def common_usd_per_h(self) -> NDArray:
        """Return the price of a chip-hour in each of the common draws, between the lowest and the highest in force."""
        if self.owned:
            return owner_draws(Same(self.owned))
        ends = self._price_ends()
        drawn = common_draws(ends) if ends else {}
        return np.broadcast_to(np.asarray(drawn.get(price_of(self.system), self.usd_per_chip_h)), DRAWS)

    def causes(self) -> tuple[str, str]:
        """Return the names of what is drawn of its software: of its decode steps, and of its prompts."""
        return cause(self.stack, self.system, "decode"), cause(self.stack, self.system, "prefill")

    def uncertain(self) -> dict[str, Any]:
        """Return the uncertain inputs of the cost by name: those of its price, and the causes of its software.

        A cause is a quantile, from the fastest software to the slowest.
        """
        inputs = self.owned.uncertain() if self.owned else self._price_ends()
        if not self.choice:
            return inputs
        widths = self.choice.column.step_widths, self.choice.column.prompt_widths
        open_ = [name for name, wide in zip(self.causes(), widths, strict=True) if any(np.any(side) for side in wide)]
        return inputs | dict.fromkeys(open_, (0.0, 0.5, 1.0))

    def _price_ends(self) -> dict[str, Any]:
        """Return the lowest price in force, the price and the highest, by name; nothing where they are one."""
        ends = self.rent.open_ranges.get("usd_per_chip_h")
        return {price_of(self.system): (ends[0], self.usd_per_chip_h, ends[1])} if ends else {}

    def drawn_chip_s(self, drawn: Mapping[str, Any], phase: str = "generated") -> NDArray:
        """Chip-seconds of a token in each draw; NaN where the promises do not hold."""
        known = instance("drawn", drawn, Mapping, "a mapping of what is uncertain to its draws")
        phase = choice("phase", phase, PHASES)
        quantiles = [share(f"drawn[{name!r}]", known.get(name, 0.5)) for name in self.causes()]
        steps, prompts = np.broadcast_arrays(*map(deviations_at, quantiles))
        if not self.choice or not self.fast_enough:
            return np.full(steps.shape, np.nan)
        parts = -(-steps.size // MOST_AT_ONCE) or 1
        some = zip(np.array_split(steps.ravel(), parts), np.array_split(prompts.ravel(), parts), strict=True)
        figures = [self.choice.column.replay(*z) for z in some]
        request, prompt = (
            np.concatenate([each[name] for each in figures]) for name in ("request_chip_s", "prompt_chip_s")
        )
        return np.asarray(self._of(phase, request, prompt)).reshape(steps.shape)

    def drawn_usd_per_h(self, drawn: Mapping[str, Any]) -> NDArray:
        """Return the price of a chip-hour in each draw of what is `uncertain` [USD/h]."""
        known = instance("drawn", drawn, Mapping, "a mapping of what is uncertain to its draws")
        name = price_of(self.system)
        own = numbers(f"drawn[{name!r}]", known.get(name, self.usd_per_chip_h), unknown=True)
        return self.owned.drawn_usd_per_h(drawn) if self.owned else own

    def drawn_usd_per_mtoken(self, drawn: Mapping[str, Any], phase: str = "generated") -> NDArray:
        """Its cost in each draw of what is `uncertain`."""
        return usd_per_mtoken(self.drawn_usd_per_h(drawn), 1.0) * self.drawn_chip_s(drawn, phase)

    def describe(self, name: str = FIGURE) -> str:
        """One of its costs with band, basis and chance, in words, or why there is none."""
        choice("name", name, COSTS)
        if not np.all(self.valid):
            return str(self.reason)
        low, high = (float(np.mean(end)) for end in self.ends(name))
        ground = f"{self.basis}; {self.chance_text()}" if self.chance < 1 else str(self.basis)
        return format_within(float(np.mean(self.figure(name))), low, high, basis=ground)

    def chance_text(self) -> str:
        """Return the share of draws in which the promises hold, in words."""
        return f"the promise holds in {format_digits(100 * self.chance, 2)} % of the draws"


def joint_widths(one: TokenCost, chip_s: float, drawn_chip_s: NDArray) -> tuple[Any, Any]:
    """Return the half-widths of the price of a cost times chip-seconds, over the common draws of both."""
    usd: Any = one.usd_per_chip_h
    value, drawn = (chip_s, drawn_chip_s) if np.ndim(usd) else (usd * chip_s, one.common_usd_per_h() * drawn_chip_s)
    return draw_widths("usd", value, {"usd": drawn})


def uncertain(lines: Iterable[TokenCost]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the uncertain inputs of several costs by name, and how those are drawn that are quantiles of software."""
    some = list(lines)
    inputs = dict(item for one in some for item in one.uncertain().items())
    return inputs, dict.fromkeys((name for one in some for name in one.causes() if name in inputs), "uniform")


def price_of(spec: System) -> str:
    """Return the name under which the price of a system is drawn."""
    return f"{spec.id}: USD a chip-hour"


@lru_cache(maxsize=256)
def owner_draws(owned: Same[Cost]) -> NDArray:
    """Return an owner's useful hour in each of the common draws of all that is uncertain of it [USD/h]."""
    inputs = owned.it.uncertain()
    return np.broadcast_to(owned.it.drawn_usd_per_h(common_draws(inputs)), DRAWS)


def _computes(q: TokenCostQuestion, spec: System) -> bool:
    """Return whether the chip of a system computes in the precision, or in one of those that are tried."""
    return any(computes(spec, one) for one in ([q.precision] if q.precision else PRECISIONS))


def chosen(q: TokenCostQuestion, spec: System, software: Any) -> Choice | None:
    """Return what `plan` chooses for the question on one system and kind of software; None where nothing fits."""
    return best_choice(q.model, q.request, spec, software, q.precision)


def cost_line(
    q: TokenCostQuestion, spec: System, price: Rent, owned: Cost | None, stack: Efficiencies, c: Choice | None
) -> TokenCost:
    """Return the cost on one system with a choice of `chosen`; `stack` counts where nothing fits."""
    able, bad = _computes(q, spec), str(c.reason) if c else ""
    mask = reason_mask(np.isnan(price.usd_per_chip_h), TOO_SLOW in bad, TOO_LATE in bad, able and c is None, not able)
    instances = _instances(q, spec, c)
    costs: dict[str, Any] = {}
    for phase, name in zip(PHASES, COSTS, strict=True):
        each = q.per_token(phase, spec, c.instances, c.request_chip_s, c.prompt_chip_s) if c else np.nan
        costs[name] = np.where(mask == 0, usd_per_mtoken(price.usd_per_chip_h, 1.0) * each, np.nan)[()]
    return TokenCost(
        question=q,
        system=spec,
        rent=price,
        owned=owned,
        stack=c.stack if c else stack,
        choice=c,
        usd_per_chip_h=price.usd_per_chip_h,
        instances=instances,
        reason_mask=mask,
        **costs,
    )


def _instances(q: TokenCostQuestion, spec: System, c: Choice | None) -> float:
    """Return the whole systems that are paid, with spares: those of the load, or of a replica without a rate."""
    if c is None or not c.valid:
        return np.nan
    rate = q.request.requests_per_s
    whole = c.instances if rate is None else float(np.round(rate * c.request_chip_s / spec.chips))
    return whole + q.spare_instances
