"""What would flip the order of the best system of a plan and its best rival: a price, a speed, or other software."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trnmodel.search.capacity import Capacity
from trnmodel.search.choice import Choice
from trnmodel.search.compare import Flip, compare
from trnmodel.search.token_cost import tie
from trnmodel.units import format_digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """The best choice and its rival, with the price, the speeds and the software at which their order changes.

    `tie_usd_per_chip_h`, with its ends, is the price of a chip-hour of `priced` at which a generated token costs what
    it costs on the other of the two at its own price, `other_usd_per_chip_h`. `priced` is the best system where a price
    of the rival is published, else the rival. `software` are the choices of hand-tuned and ideal software on the best
    system.
    """

    best: Choice
    rival: Choice
    priced: Choice
    tie_usd_per_chip_h: float
    tie_low: float
    tie_high: float
    usd_per_chip_h: float
    other_usd_per_chip_h: float
    speeds: tuple[Flip, ...]
    software: tuple[Choice, ...]

    @property
    def other(self) -> Choice:
        """The one of the two whose own price counts."""
        return self.rival if self.priced is self.best else self.best


def flips(best: Capacity, rival: Capacity, software: tuple[Choice, ...]) -> Flips:
    """Return what would flip the order of two choices for the same request.

    Speeds are looked for from 1 token/s per user up, at the software and in the formats that a plan tries.
    """
    one, other = (rival, best) if rival.rented.rent.why else (best, rival)
    at, low, high = (float(np.mean(x)) for x in tie(one.rented, other.rented))
    request = replace(best.choice.question.request, requests_per_s=None)
    turns = compare(best.model, request, [best.system, rival.system], baseline=best.system).flips
    return Flips(
        best=best.choice,
        rival=rival.choice,
        priced=one.choice,
        tie_usd_per_chip_h=at,
        tie_low=low,
        tie_high=high,
        usd_per_chip_h=float(one.rented.rent.usd_per_chip_h),
        other_usd_per_chip_h=float(other.rented.rent.usd_per_chip_h),
        speeds=turns,
        software=software,
    )


def speeds_in_words(found: Flips) -> str:
    """Return at which speeds per user the order changes, in words."""
    if not found.speeds:
        return "the order per chip stays the same at every speed"
    texts = [
        f"from {format_digits(one.tokens_per_s_per_user, 2)} tokens/s per user up "
        + (f"only {one.above} keeps the promise" if one.alone else f"{one.above} makes more per chip")
        for one in found.speeds
    ]
    return ", ".join(texts)
