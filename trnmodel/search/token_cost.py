"""What a token costs the one who rents: a price of a chip-hour times the paid chip-seconds of what `plan` chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import MOST_CHIPS, TINY, choice, numbers, one_of, refuse
from trnmodel.catalog.rents import Rent, hosted, own, rent
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.cost.matching import same_owner
from trnmodel.cost.tco import Cost
from trnmodel.declared import MODEL, PRECISION, SEVERAL, STACK, Checked, Integer, Number, Object, declare
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Card, tidy
from trnmodel.search.chip_seconds import TokenCost, TokenCostQuestion, chosen, cost_line, joint_widths, uncertain
from trnmodel.search.grid import computes
from trnmodel.search.sensitivity import Sensitivity, sensitivity
from trnmodel.search.single import asked_systems
from trnmodel.steps.request import Request, one_request
from trnmodel.units import MILLION, format_within

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TokenCosts(Card):
    """The answer to a question of cost: `lines` has one for each system and kind of software, public first."""

    question: TokenCostQuestion
    lines: tuple[TokenCost, ...]

    def priced(self, pricing: Any, region: str | None = None) -> TokenCosts:
        """Return the costs at other prices, as `token_cost` takes them; the search does not depend on prices."""
        prices = {one.system.id: _price(pricing, one.system, self.question.model, region) for one in self.lines}
        lines = [
            cost_line(self.question, one.system, *prices[one.system.id], one.stack, one.choice) for one in self.lines
        ]
        return TokenCosts(self.question, tuple(lines))

    def __getitem__(self, which: tuple[str, str]) -> TokenCost:
        """Return the line of a system and a kind of software."""
        lines = {(one.system.id, one.stack_kind): one for one in self.lines}
        if not isinstance(which, tuple) or len(which) != 2 or not all(isinstance(word, str) for word in which):
            refuse(
                "which", which, 'allowed is an id of a system and a kind of software, such as ("hgx-h100", "public")'
            )
        system, software = which
        one_of("system", system, self.systems, "one of the systems asked for")
        choice("software", software, [kind for name, kind in lines if name == system])
        return lines[which]

    @property
    def systems(self) -> list[str]:
        """Ids of the systems, in the order in which they were asked for."""
        return list(dict.fromkeys(one.system.id for one in self.lines))

    @property
    def with_price(self) -> list[str]:
        """Ids of those that have a price."""
        return list(dict.fromkeys(one.system.id for one in self.lines if not one.rent.why))

    def of(self, software: str) -> list[TokenCost]:
        """Return the lines of one kind of software."""
        kinds = dict.fromkeys(one.stack_kind for one in self.lines)
        choice("software", software, kinds)
        return [one for one in self.lines if one.stack_kind == software]

    def break_even(self, against: str) -> pd.DataFrame:
        r"""Price of a chip-hour at which each system's token costs what that of another one costs, priced or not.

        .. math:: c^* = c_0 \frac{s_0}{s}

        Parameters
        ----------
        against : str
            One of the systems, which has a price c_0; s are paid chip-seconds of a request. [-]

        Returns
        -------
        table : pandas.DataFrame
            system, against, software, break_even_usd_per_chip_h with `_low` and `_high` (over common draws of the price
            and of both kinds of software), usd_per_chip_h (its own, NaN where none is published), basis, reason.

        Raises
        ------
        ValueError
            `against` is none of the systems.
        """
        other = self._id("against", against)
        return tidy(row for name in self.systems for row in self.ties(name, other))

    def ties(self, system: str, against: str) -> list[dict[str, Any]]:
        """Return the rows of `break_even` of one system, by kind of software."""
        system, against = self._id("system", system), self._id("against", against)
        rows, other = list[dict[str, Any]](), {one.stack_kind: one for one in self.lines if one.system.id == against}
        for one in self.lines:
            if one.system.id != system or system == against or one.stack_kind not in other:
                continue
            rival = other[one.stack_kind]
            row: dict[str, Any] = {"system": system, "against": against, "software": one.stack_kind}
            names = ("break_even_usd_per_chip_h", "break_even_usd_per_chip_h_low", "break_even_usd_per_chip_h_high")
            row |= dict(zip(names, tie(one, rival), strict=True)) | {"usd_per_chip_h": one.usd_per_chip_h}
            lacking = [f"{who.system.id}: {who.lacking}" for who in (one, rival) if who.lacking]
            lacking += [f"{against}: {rival.rent.why}"] * bool(rival.rent.why)
            rows.append(row | {"basis": one.basis, "reason": "; ".join(lacking)})
        return rows

    def hosted(self) -> pd.DataFrame:
        """Return prices of hosted APIs, and the utilisation at which a rented system costs as much as they do.

        Returns
        -------
        table : pandas.DataFrame
            seller, date, source, api_usd_per_mtoken (as requests have prompts and answers) and the same for each
            generated token, api_generated_usd_per_mtoken, system, software, break_even_utilisation with `_low` and
            `_high`: above 1 renting costs more even where it is always full.
        """
        rows = list[dict[str, Any]]()
        for api in hosted(self.question.model.id):
            for one in self.lines:
                api_usd = api.usd_per_token(one.input_tokens, one.output_tokens) * MILLION
                row: dict[str, Any] = {"seller": api.seller, "date": api.printed_date, "source": api.source}
                row |= {"api_usd_per_mtoken": api_usd, "system": one.system.id, "software": one.stack_kind}
                row |= {
                    "api_generated_usd_per_mtoken": api_usd * (one.input_tokens + one.output_tokens) / one.output_tokens
                }
                low, high = one.ends("blended_usd_per_mtoken")
                row |= {"break_even_utilisation": one.blended_usd_per_mtoken / api_usd}
                rows.append(
                    row | {"break_even_utilisation_low": low / api_usd, "break_even_utilisation_high": high / api_usd}
                )
        return tidy(rows)

    def draws(
        self, software: str = "public", phase: str = "generated", draws: int = 10_000, seed: int = 0
    ) -> Sensitivity:
        """Costs of the priced systems from common draws of prices and of what software makes of a chip.

        Parameters
        ----------
        software : str
            Kind of software, the same of all. [-]
        phase : str
            "generated", "prefill", "decode", "blended" or "at_load", as a `TokenCost` calls its costs. [-]
        draws, seed : int
            As of `tm.sensitivity`. [-]

        Returns
        -------
        sensitivity : Sensitivity
            `.wins(least=True)` is how often each is the cheapest, `.percentiles()`, `.tornado(system)`.

        Notes
        -----
        Prices lie between the lowest and the highest in force. What nobody knows of a hand-tuned stack is one draw for
        all systems on it, and one for its prompts; a public stack's errors are drawn for each chip. In each draw the
        number of sequences in flight adapts, so that the promises hold. The ends of a band are the 5th and 95th
        percentiles. A draw in which a system cannot keep the promises has no cost. Systems of whose hand-tuned step
        less than half stands on measured parts are left out: no order follows from a scenario.
        """
        priced = [one for one in self.of(software) if np.all(one.valid) and one.ranks]
        if not priced:
            why = "no system has a price and is fast enough with it"
            if any(np.all(one.valid) for one in self.of(software)):
                why = "less than half of each system's step stands on measured parts, and no order follows"
            refuse("software", software, why)
        inputs, even = uncertain(priced)

        def ask(**drawn: Any) -> dict[str, NDArray]:
            return {one.system.id: one.drawn_usd_per_mtoken(drawn, phase) for one in priced}

        return sensitivity(ask, inputs, draws, seed, even)

    def describe(self, system: str) -> list[str]:
        """Return the $ per million tokens of a system by kind of software, with its price; and those at the load."""
        system = self._id("system", system)
        some = [one for one in self.lines if one.system.id == system]
        first = some[0]
        if first.rent.why:
            return [first.rent.why]
        costs = ", ".join(f"{one.stack_kind} {one.describe()}" for one in some)
        loaded = [f"{one.stack_kind} {one.describe('at_load_usd_per_mtoken')}" for one in some if one.waits]
        at_load = [f"{system} at {first.load_text()}: {', '.join(loaded)}"] if loaded else []
        return [f"{system}: {costs}; {first.price_text()}", *at_load]

    def card(self, against: str | None = None) -> list[str]:
        """Return lines of text: $ per million tokens by system and software, prices, break-even prices, hosted APIs.

        Ties are with the system that is named `against`, else those of systems without a price with the first that has
        one.
        """
        q = self.question
        lines = [f"$ per million generated tokens of {q.model.id}, prompts paid: {q.request.describe()}"]
        lines += [line for name in self.systems for line in self.describe(name)]
        priced, other = self.with_price, None if against is None else self._id("against", against)
        ties = [name for name in self.systems if name != other and (other or name not in priced)]
        if other or priced:
            lines += [self._tied(name, other or priced[0]) for name in ties]
        table = self.hosted().drop_duplicates("seller") if priced else ()
        others = [
            f"{one.api_generated_usd_per_mtoken:.3g} by {one.seller} ({one.date})"
            for one in getattr(table, "itertuples", list)()
        ]
        return [*lines, *([f"hosted APIs, on the same requests: {', '.join(others)}"] if others else [])]

    def _id(self, argument: str, name: str) -> str:
        """Return the id of one of the requested systems, from any of its names."""
        if isinstance(name, str) and name in self.systems:
            return name
        return one_of(argument, find_system(name, argument).id, self.systems, "one of the systems asked for")

    def _tied(self, system: str, against: str) -> str:
        """At what price a system costs what another one does, in words."""
        parts = []
        for row in self.ties(system, against):
            mid, low, high = (float(np.mean(row[f"break_even_usd_per_chip_h{end}"])) for end in ("", "_low", "_high"))
            why = row["reason"] if "no price" in row["reason"] else "out of reach"
            parts.append(f"{row['software']} {format_within(mid, low, high) if np.isfinite(mid) else why}")
        return f"{system} ties with {against} at these $ per chip-hour: {', '.join(parts)}"

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Return a row for each system and kind of software; with `bands`, the ends of the blended cost too."""
        import pandas as pd

        return pd.concat([one.to_frame(bands) for one in self.lines], ignore_index=True)


def tie(one: TokenCost, other: TokenCost) -> tuple[Any, Any, Any]:
    """Price at which one ties with another, with the ends of its range over the common draws."""
    if not (one.fast_enough and other.fast_enough):
        return np.nan, np.nan, np.nan
    times = other.chip_s() / one.chip_s()
    below, above = joint_widths(other, times, other.common_chip_s() / one.common_chip_s())
    price = np.asarray(other.usd_per_chip_h) * times
    return price, price * np.exp(-below), price * np.exp(above)


@declare(
    model=MODEL,
    request=Object(Request, "a Request"),
    systems=Checked("ids or names of systems, one or several", SEVERAL),
    pricing=Checked("a pricing, a price of a chip-hour in USD, a Rent or a Cost, or a mapping of them by system"),
    region=Checked("a region or seller that a published price names", {"type": "string"}),
    precision=PRECISION,
    efficiencies=STACK,
    duty=Number(TINY, 1),
    spare_instances=Integer(0, MOST_CHIPS),
)
def token_cost(
    model: str | Transformer,
    request: Request,
    systems: str | System | Iterable[str | System],
    *,
    pricing: str | float | Rent | Cost | Mapping[str, Any] = "capacity-block",
    region: str | None = None,
    precision: str | None = None,
    efficiencies: str | Efficiencies | None = None,
    duty: float = 1.0,
    spare_instances: int = 0,
) -> TokenCosts:
    r"""Return the cost of a million tokens to a renter, at equal promises to a user, on each kind of software.

    .. math:: C = \frac{10^6}{3600}\,c\,\frac{R}{o}

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of an own config.json, or object. [-]
    request : Request
        Prompt, answer of o tokens, and promises, as of `tm.plan`. With a rate, the fewest whole systems that serve it
        are paid; without one, each replica runs at the largest load at which the promises hold. [-]
    systems : str or System, or several of them
        Systems that are rented. [-]
    pricing : str, float, Rent or Cost, or a mapping of them by system
        How it is rented, which gives the price c: see `tm.rent`; or a price of a chip-hour of your own, or what it
        costs its owner, of `tm.tco`. [USD/h]
    region : str, optional
        Where, as of `tm.rent`. [-]
    precision : str, optional
        Default the best of BF16, FP8 and MXFP8 that the chip computes in. [-]
    efficiencies : str or Efficiencies, optional
        One software stack, as of `tm.decode_step`, such as one that was calibrated; default each kind that the chip
        has. [-]
    duty : float
        Share of the rented time in which the load is there; above 0. [-]
    spare_instances : int
        Instances that are rented and stand by. [-]

    Returns
    -------
    costs : TokenCosts
        `.lines`, `[system, software]`, `.break_even(against)`, `.hosted()`, `.draws()`, `.to_frame()`.

    Raises
    ------
    ValueError
        An argument out of its range, an unknown name, no chip that computes in the precision, `input_tokens` and
        `output_tokens` beyond the model's context.

    Notes
    -----
    R are the paid chip-seconds of a request (`request_chip_s`) of what `tm.plan` chooses on the system, with its prompt
    and with the chips that wait. A band is the range over common draws of the software and, between the lowest and the
    highest in force, of the price; only draws that keep the promises count, and `chance` is their share. A system whose
    price nobody publishes has no cost; `.break_even` answers there too. Where a promise fails, there is none either.

    Examples
    --------
    >>> import trnmodel as tm
    >>> request = tm.Request(1024, 256, tokens_per_s_per_user=20)
    >>> found = tm.token_cost("llama-3.1-8b", request, ["trn2.48xlarge", "trn3-nl72x2-pcie160"])
    >>> one = found["trn2.48xlarge", "hand-tuned"]
    >>> bool(one.low < one.generated_usd_per_mtoken < one.high), one.price_date
    (True, '2026-07-22')
    >>> found["trn3-nl72x2-pcie160", "ideal"].reason
    'no price is published'
    >>> found.break_even("trn2.48xlarge").software.tolist()
    ['public', 'hand-tuned', 'ideal']
    """
    if systems is None:
        refuse("systems", systems, "allowed are systems")
    specs = asked_systems(systems)
    if precision is not None and not any(computes(spec, precision) for spec in specs):
        peaks = sorted({dtype for spec in specs for dtype in spec.chip.peak_flop_per_s})
        refuse("precision", precision, f"no chip asked computes in it; they compute in {', '.join(peaks)}")
    q = TokenCostQuestion(
        model=read_model(model),
        request=one_request("request", request),
        precision=precision,
        duty=duty,
        spare_instances=spare_instances,
    )
    lines = []
    for spec in specs:
        price = _price(pricing, spec, q.model, region)
        kinds = reversed(stacks_of(spec.chip).values()) if efficiencies is None else [efficiencies]
        for word in kinds:
            stack = find(spec.chip, word, "efficiencies")
            lines.append(cost_line(q, spec, *price, stack, chosen(q, spec, word)))
    return TokenCosts(q, tuple(lines))


def owned_rent(cost: Cost) -> Rent:
    """Return the owner's cost of a useful chip-hour as a price."""
    spec, why = cost.system, "" if np.all(cost.valid) else f"{cost.system.id}, owned: {cost.reason}"
    about: dict[str, Any] = {
        "id": f"{spec.id}-owned",
        "chip": spec.chip,
        "pricing": f"owned by a {cost.owner.id}",
        "why": why,
    }
    value: Any = cost.useful_usd_per_h
    ends = tuple(map(float, cost.ends("useful_usd_per_h"))) if np.ndim(value) == 0 and not why else None
    about |= {"ranges": {"usd_per_chip_h": ends} if ends else {}, "sold_chips": spec.domain_chips}
    return Rent(**about, usd_per_chip_h=value if np.ndim(value) else float(value))


def _price(pricing: Any, spec: System, model: Transformer, region: str | None) -> tuple[Rent, Cost | None]:
    """Price of a system (one pricing for all, one by system, or the caller's own), and the cost of its owner."""
    if isinstance(pricing, Mapping):
        if spec.id not in pricing:
            refuse("pricing", dict(pricing), f"allowed is a mapping that names {spec.id} too")
        pricing = pricing[spec.id]
    owned = pricing if isinstance(pricing, Cost) else None
    if owned is not None:
        same_owner("pricing", owned, spec, model)
    pricing = pricing if owned is None else owned_rent(owned)
    return rent(spec, pricing, region) if isinstance(pricing, str | Rent) else own(
        spec, numbers("pricing", pricing, TINY)
    ), owned
