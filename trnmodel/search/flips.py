"""What would flip the order of the best system of a plan and its best rival: a price, a speed, or other software."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnmodel.search.capacity import Capacity
from trnmodel.search.choice import Choice
from trnmodel.search.compare import Flip, compare
from trnmodel.search.price_ties import PricesAsked, PriceTie, price_tie


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """The best choice and its rival, with the prices, the speeds and the software at which their order changes.

    `price` holds the rents and the prices of a chip or a server at which a generated token costs the same on both.
    `software` are the choices of hand-tuned and ideal software on the best system.
    """

    best: Choice
    rival: Choice
    price: PriceTie
    speeds: tuple[Flip, ...]
    software: tuple[Choice, ...]


def flips(best: Capacity, rival: Capacity, software: tuple[Choice, ...]) -> Flips:
    """Return what would flip the order of two choices for the same request.

    Speeds are looked for from 1 token/s per user up, at the software and in the formats that a plan tries.
    """
    demand = best.question
    request = replace(best.choice.question.request, requests_per_s=None)
    return Flips(
        best=best.choice,
        rival=rival.choice,
        price=price_tie(best.choice, rival.choice, PricesAsked(demand.pricing, None, demand.owner)),
        speeds=compare(best.model, request, [best.system, rival.system], baseline=best.system).flips,
        software=software,
    )
