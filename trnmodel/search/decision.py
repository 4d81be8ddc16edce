"""A decision between systems in dollars over a term: each option's bill in common draws, and what could be read of it.

An option is a line of cost (`TokenCost`): a choice of a search at a price. A reading is the logarithm of something that
a measurement, a quote or a settled fact would tell: the decode step or the prompt of an option, its chip time per
token under load, its price, or an input of its owner's cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, refuse
from trnmodel.cost.tco import PERIOD_H, tco
from trnmodel.draws import TAIL, deviations_at, stretch
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.models.transformer import Transformer
from trnmodel.search.capacity import Demand, capacity
from trnmodel.search.chip_seconds import TokenCost, TokenCostQuestion, cost_line, price_of, uncertain
from trnmodel.search.choice import Choice
from trnmodel.search.compare import Comparison
from trnmodel.search.pairs import Pair
from trnmodel.search.plan import Plan
from trnmodel.search.price_ties import PricesAsked
from trnmodel.search.sensitivity import common_values, filled
from trnmodel.search.token_cost import TokenCosts, owned_rent
from trnmodel.steps.request import Request
from trnmodel.units import HOUR, MILLION

BILLS = ("rented", "owned")
READ = {"decode": "decode step", "prefill": "prefill", "throughput": "load"}  # by part of the measured rows
NEVER = np.log(2.0)  # above the slowest draw lies the reading of a draw in which the promises cannot be kept


def read_on(part: str, system: str) -> str:
    """Return the name of what is read of an option: "decode step on trn2.48xlarge"."""
    return f"{READ[part]} on {system}"


class Drawn(NamedTuple):
    """Common draws of a decision: dollars by option (infinite where it breaks its promises), and readings by name."""

    dollars: NDArray
    readings: Mapping[str, NDArray]


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """Options that serve the same requests over a term, and why other systems are none."""

    lines: tuple[TokenCost, ...]
    left_out: Mapping[str, str]
    requests_per_s: float
    months: float

    @property
    def model(self) -> Transformer:
        """The model that is served."""
        return self.lines[0].model

    @property
    def request(self) -> Request:
        """The request that every option serves."""
        return self.lines[0].request

    @property
    def systems(self) -> list[str]:
        """Ids of the systems of the options."""
        return [one.system.id for one in self.lines]

    @property
    def mtokens(self) -> float:
        """Generated tokens over the hours of the term in which the load is there, in millions."""
        seconds = self.months * PERIOD_H * HOUR * self.lines[0].question.duty
        return self.requests_per_s * self.request.output_tokens * seconds / MILLION

    @cached_property
    def planned_usd(self) -> NDArray:
        """Bill of each option over the term as predicted [USD]."""
        return np.array([float(one.at_load_usd_per_mtoken) * self.mtokens for one in self.lines])


def drawn_of(decision: Decision, draws: int, series: str = "") -> Drawn:
    """Return so many common draws of a decision's dollars and readings; those of another series are others."""
    inputs, even = uncertain(decision.lines)
    values = common_values(inputs, draws, even, series) if inputs else {}
    known = filled(inputs, values)
    causes = {name for one in decision.lines for name in one.causes()}
    readings = {name: _log_reading(value) for name, value in values.items() if name not in causes}
    dollars = []
    for one in decision.lines:
        chip_s = np.broadcast_to(one.drawn_chip_s(known, "at_load"), draws)
        usd = usd_per_mtoken(one.drawn_usd_per_h(known), 1.0) * chip_s * decision.mtokens
        dollars.append(np.where(np.isfinite(usd), usd, np.inf))
        readings |= _of_software(one, known, chip_s)
    return Drawn(np.stack(dollars), readings)


def _log_reading(values: NDArray) -> NDArray:
    """Return the logarithm of what is read; of an input that may be 0 its deviation over its mean."""
    return np.log(values) if np.all(values > 0) else (values - values.mean()) / (abs(values.mean()) or 1.0)


def half_widths(one: TokenCost, part: str) -> tuple[float, float]:
    """Return the half-widths below and above of an option's decode step or prompt at its batch."""
    c = one.choice
    assert c is not None
    column = c.column
    batch = np.asarray(column.times.batch)
    place = int(np.argmin(np.abs(batch - c.batch)))
    sides = column.step_widths if part == "decode" else column.prompt_widths
    below, above = (float(np.broadcast_to(side, batch.shape).ravel()[place]) for side in sides)
    return below, above


def standard_deviation(one: TokenCost, part: str) -> float:
    """Return the standard deviation of the logarithm of an option's decode step or prompt."""
    return sum(half_widths(one, part)) / 2 / TAIL


def _of_software(one: TokenCost, known: Mapping[str, Any], chip_s: NDArray) -> dict[str, NDArray]:
    """Return the readings of an option's software: of its decode step, of its prompt, and under its load."""
    readings = dict[str, NDArray]()
    for part, cause in zip(("decode", "prefill"), one.causes(), strict=True):
        if cause in known:
            z = deviations_at(known[cause])
            readings[read_on(part, one.system.id)] = np.log(stretch(z, *half_widths(one, part)))
    slowest = np.log(np.nanmax(chip_s)) if np.any(np.isfinite(chip_s)) else 0.0
    with np.errstate(invalid="ignore"):
        loaded = np.where(np.isfinite(chip_s), np.log(chip_s), slowest + NEVER)
    if readings:
        readings[read_on("throughput", one.system.id)] = loaded
    return readings


def decision_of(
    what: Comparison | Plan | TokenCosts, users: float | None, months: float, speed: float | None, bill: str
) -> Decision:
    """Return the decision that a comparison, a plan or token costs leave open.

    Raises ValueError where no load is stated, or where fewer than two systems have a price and keep the promises.
    """
    lines, others = _lines(what, speed, choice("bill", bill, BILLS))
    left_out = others | {one.system.id: str(one.reason) for one in lines if not np.all(one.valid)}
    options = tuple(one for one in lines if np.all(one.valid) and np.ndim(one.usd_per_chip_h) == 0)
    if len({one.system.id for one in options}) < 2:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        allowed = "allowed is one of at least two systems that have a price and keep the promises"
        refuse("decision", type(what).__name__, f"{allowed}{'; ' + why if why else ''}")
    rate = _requests_per_s(options[0].request, users)
    return Decision(lines=options, left_out=left_out, requests_per_s=rate, months=months)


def _requests_per_s(request: Request, users: float | None) -> float:
    """Return the rate of the requests: that of the request, or that of so many users."""
    if request.requests_per_s is not None:
        if users is not None:
            refuse("users", users, f"the decision has a load already: {request.requests_per_s:g} requests/s")
        return float(request.requests_per_s)
    if users is None:
        refuse("users", users, "the decision states no load; allowed is a number of users above 0")
    if request.tokens_per_s_per_user is None:
        refuse("users", users, "users need a promised speed, from which the rate of their requests follows")
    return float(users * request.tokens_per_s_per_user / request.output_tokens)


def _lines(
    what: Comparison | Plan | TokenCosts, speed: float | None, bill: str
) -> tuple[list[TokenCost], dict[str, str]]:
    """Return the lines of cost of a decision, and why other systems have none."""
    if isinstance(what, TokenCosts):
        if bill == "owned":
            refuse("bill", bill, "allowed is 'rented' for costs of tokens, which have their own prices")
        return [one for one in what.of("public") if one.choice], {
            one.system.id: one.lacking for one in what.of("public") if not one.choice
        }
    if isinstance(what, Comparison):
        prices = what.prices
        demand = Demand(facility=None, owner=prices.checked().owner, pricing=prices.pricing)  # type: ignore[arg-type]
        return [_line(c, demand, prices, bill) for c in what.at(speed)], dict(what.refused)
    size = what.demand
    if size is None or size.limit:
        refuse("decision", "Plan", "allowed is a plan for a number of users or requests/s, or without a size")
    prices = PricesAsked(size.pricing, None, size.owner)
    single = [c for c in (*what.choices, *what.gpus) if not isinstance(c, Pair)]
    return [_line(c, size, prices, bill) for c in single], dict(what.refused)


def _line(c: Choice, demand: Demand, prices: PricesAsked, bill: str) -> TokenCost:
    """Return the cost of a choice, with the spares of a demand, rented or owned."""
    spare = capacity(demand, c).spare_instances if demand.availability is not None else 0.0
    q = TokenCostQuestion(
        model=c.question.model,
        request=c.question.request,
        precision=c.precision,
        duty=1.0,
        spare_instances=float(np.nan_to_num(spare)),
    )
    if bill == "rented":
        return cost_line(q, c.system, prices.of(c.system), None, c.stack, c)
    hour = tco(c.system, owner=demand.owner, facility=demand.site(c.system))
    return cost_line(q, c.system, owned_rent(hour), hour, c.stack, c)


def open_facts(one: TokenCost) -> list[tuple[str, tuple[float, float], str, float]]:
    """Return the open facts of an option's chip that move its decode step or prompt.

    Returns
    -------
    facts : list
        Name of a field of the chip, its two ends, the part that it moves most ("decode" or "prefill"), and the
        standard deviation of the logarithm that it gives this part. [-]
    """
    c = one.choice
    assert c is not None
    spec, facts = c.system, list[tuple[str, tuple[float, float], str, float]]()
    for name, ends in spec.chip.open_ranges.items():
        times = {"decode": list[float](), "prefill": list[float]()}
        for end in ends:
            q = c.question._replace(system=replace(spec, chip=spec.chip.moved({name: end})))
            times["decode"].append(float(q.decode(c.degrees, np.asarray(c.batch)).time_s))
            times["prefill"].append(float(q.prefill(c.degrees).time_s))
        moves = {part: abs(np.log(both[0] / both[1])) / 2 / TAIL for part, both in times.items()}
        part = max(moves, key=moves.__getitem__)
        if np.isfinite(moves[part]) and moves[part] > 0:
            facts.append((name, ends, part, float(moves[part])))
    return facts


def price_readings(lines: Iterable[TokenCost]) -> dict[str, str]:
    """Return the names of the prices that are open, with the system of each."""
    return {price_of(one.system): one.system.id for one in lines if price_of(one.system) in one.uncertain()}
