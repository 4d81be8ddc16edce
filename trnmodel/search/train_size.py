"""How many whole domains a training run takes: the fewest that end in time, or those that end first on a budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trnmodel.arguments import ImpossibleError
from trnmodel.catalog.prices import Owner
from trnmodel.catalog.rents import Rent
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.trainers import trainer
from trnmodel.cost.tco import tco
from trnmodel.models.transformer import Transformer
from trnmodel.reliability.goodput import goodput
from trnmodel.search.price_ties import PricesAsked
from trnmodel.search.train_search import grid, space
from trnmodel.steps.rank import site
from trnmodel.training.rank import ELEMENT_BYTES
from trnmodel.units import DAY, HOUR, MILLION, format_digits

OWNER = "hyperscaler"
CHIPS = 8192  # of a run that nothing else sizes
MOST = 2**20  # chips, sequences of a step
BLOCKS = 64  # of numbers of domains between two powers of two, of each of which one is tried
EDGE, EDGES = 0.97, 6  # how far below a largest batch numbers of domains are tried, and how many
RAGGED = 0.7  # share of the time between two powers of two that a number with other divisors may take
FEWER: Mapping[str, tuple[Any, ...]] = {"recompute": ("none", "full"), "zero": (1, 3), "sequence_parallel": (True,)}
ROUNDING = 1e-9  # share by which a limit may be passed


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainRunQuestion:
    """The question that every system is asked: what sizes and limits a run, who pays how, and what is searched.

    Of `chips`, `days` and `usd` the first that is not None sizes the job, and the others limit it. `ask` are the
    arguments of `train_search.space`.
    """

    model: Transformer
    tokens: float
    chips: float | None
    days: float | None
    usd: float | None
    bill: str
    pricing: str | float | Rent | Mapping[str, Any]
    region: str | None
    owner: str | Owner
    ask: Mapping[str, Any]
    best: int

    @property
    def owner_id(self) -> str:
        """Id of the owner."""
        return self.owner if isinstance(self.owner, str) else self.owner.id

    @property
    def pricing_words(self) -> str:
        """How chips are rented, in words."""
        return self.pricing if isinstance(self.pricing, str) else "own prices"

    def rent_of(self, system: System, region: str | None = None) -> Rent:
        """Return the price of a chip-hour of a system; `region` stands in for that of the question."""
        return PricesAsked(self.pricing, self.region if region is None else region, self.owner).of(system)


class Size(NamedTuple):
    """A number of domains, with the days with failures and the dollars of its run; infinite where none can run."""

    domains: int
    days: float
    usd: float


def checkpoint_bytes(model: Transformer, optimizer_bytes: float) -> float:
    """Return the bytes of weights and states of the optimizer of all parameters."""
    return model.total_params * (ELEMENT_BYTES + optimizer_bytes)


def _price(q: TrainRunQuestion, one: System) -> float:
    """Return the dollars that an hour of a chip costs the one who pays; raise ImpossibleError where nobody says."""
    if q.usd is None:
        return 0.0
    if q.bill == "owned":
        hour = tco(one, owner=q.owner)
        price, why = float(hour.usd_per_h), str(hour.reason)
    else:
        rented = q.rent_of(one)
        price, why = rented.usd_per_chip_h, rented.why
    if why:
        raise ImpossibleError(f"usd={q.usd:.15g}: {why}")
    return price


def quick(ask: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a search with few policies, of which one is nearly as fast as the best of all.

    Examples
    --------
    >>> quick({"recompute": ["none", "selective"], "zero": [0], "sequence_parallel": [True, False], "seq": 4096})
    {'recompute': ['none'], 'zero': [0], 'sequence_parallel': [True], 'seq': 4096}
    """
    few = {name: [one for one in ask[name] if one in some] or ask[name] for name, some in FEWER.items()}
    return dict(ask) | few


def sizes(q: TrainRunQuestion, one: System, price: float, counts: Iterable[int], first: bool = False) -> list[Size]:
    """Return the days and the dollars of runs on numbers of domains, at the price of an hour of a chip.

    With `first` no number is tried after the first one that is within the limit.
    """
    several, ask, tried = np.array(list(counts), dtype=float), quick(q.ask), list[Size]()
    if not several.size:
        return []
    held = checkpoint_bytes(q.model, trainer(one.chip, q.ask["efficiencies"]).optimizer_bytes)
    job = goodput(one, several * one.domain_chips, checkpoint_bytes=held)
    for count, spare, useful in zip(several, job.spare_lost, job.goodput, strict=True):
        days = _days(q, ask, one, int(count)) / useful if useful else np.inf
        hours = days * DAY / HOUR * count * one.domain_chips
        tried.append(Size(int(count), float(days * (1 - spare)), float(hours * price) if price else 0.0))
        if first and _within(q, tried[-1]):
            break
    return tried


def _days(q: TrainRunQuestion, ask: Mapping[str, Any], one: System, count: int) -> float:
    """Return the days of the best mapping on so many domains when nothing is lost; infinite where none can run."""
    where = read_system(one, count)
    shape = {name: ask[name] for name in ("efficiencies", "seq", "global_batch", "max_cp", "batch_slack")}
    if not grid(q.model, where, **shape)["tp"].size:
        return np.inf
    fastest = float(np.nanmax(space(q.model, where, **ask).tokens_per_s))
    return q.tokens / fastest / DAY if fastest > 0 else np.inf


def _within(q: TrainRunQuestion, size: Size) -> bool:
    """Return whether a size is within the limit that sizes the job."""
    return size.days <= q.days if q.days is not None else size.usd <= (q.usd or 0.0)


def _best(q: TrainRunQuestion, tried: Iterable[Size]) -> tuple[Size, bool]:
    """Return the best size and whether it is within the limit; else the one that comes nearest to it."""
    every = list(tried)
    within = [one for one in every if _within(q, one)]
    if q.days is not None:
        return (min(within), True) if within else (min(every, key=lambda one: one.days), False)
    if within:
        return min(within, key=lambda one: (one.days, one.domains)), True
    return min(every, key=lambda one: one.usd), False


def _divisors(count: int) -> int:
    """Return how many numbers divide a number."""
    low = np.arange(1, int(count**0.5) + 1)
    return int(2 * np.sum(count % low == 0) - (low[-1] ** 2 == count))


def _blocks(low: int, high: int, most: int = BLOCKS) -> list[int]:
    """Return numbers between two others, one from each of at most so many blocks: that with the most divisors.

    Examples
    --------
    >>> _blocks(8, 16), len(_blocks(1024, 2048)), _blocks(1024, 2048)[0]
    ([9, 10, 11, 12, 13, 14, 15], 64, 1040)
    """
    between = np.arange(low + 1, high)
    parts = np.array_split(between, min(most, between.size)) if between.size else []
    return [max(map(int, part), key=lambda count: (_divisors(count), -count)) for part in parts]


def _edges(q: TrainRunQuestion, one: System, low: int, high: int) -> list[int]:
    """Return numbers of domains whose ranks just share out the largest batch that the slack allows, or its multiples.

    Just above such a number replicas have to take another sequence each, which costs up to a third of the time.
    """
    ranks = one.domain_chips * site(one).ranks_per_chip
    largest = q.ask["global_batch"] * (1 + q.ask["batch_slack"]) / ranks
    edges = [largest * 2.0**i for i in range(-40, 41)]
    return [
        n
        for edge in edges
        if low < edge < high + 1
        for n in _blocks(max(int(edge * EDGE) - 1, 0), int(edge) + 1, EDGES)
        if low < n < high
    ]


def _span(q: TrainRunQuestion, best: Size, within: bool, tried: Mapping[int, Size], most: int) -> tuple[int, int]:
    """Return the numbers of domains between which a better one than the best power of two may lie.

    Numbers with other divisors take `RAGGED` at least of the days and the dollars of a power of two, between which days
    are taken as a power law.
    """
    low, high, half = best.domains // 2, min(best.domains * 2, most + 1), tried.get(best.domains // 2)
    if q.days is None:
        near = [n for n, one in tried.items() if RAGGED * one.usd <= (q.usd or 0.0)] or [best.domains]
        return best.domains if within else min(near) // 2, min(2 * max(near), most + 1)
    if within and half and best.days < half.days < np.inf:
        falls = np.log2(half.days / best.days)
        low = int(best.domains * (RAGGED * best.days / q.days) ** (1 / falls)) - 1
    return max(low, 0), best.domains if within else high


def sized(q: TrainRunQuestion, one: System) -> int:
    """Return the number of domains on which a run ends in time, or first on its budget.

    Raises ImpossibleError with the fastest or the cheapest run where none does.

    Examples
    --------
    >>> import trnmodel as tm
    >>> run = tm.train_run("llama-3.1-8b", "hgx-h100", tokens=1e12, days=30)
    >>> float(run.calendar_days().value) <= 30, run.chips % 8
    (True, 0.0)
    """
    most, price, fewest = int(MOST // one.domain_chips), _price(q, one), q.days is not None
    tried = {size.domains: size for size in sizes(q, one, price, [2**i for i in range(most.bit_length())])}
    best, within = _best(q, tried.values())
    span = _span(q, best, within, tried, most)
    for _ in range(2):
        counts = sorted({*_blocks(*span), *_edges(q, one, *span)} - tried.keys())
        tried |= {size.domains: size for size in sizes(q, one, price, counts, first=fewest)}
        best, within = _best(q, tried.values())
        higher = best.domains if fewest else min((n for n in tried if n > best.domains), default=most + 1)
        span = max((n for n in tried if n < best.domains), default=0), higher
    if not within:
        raise ImpossibleError(_why(q, one, best))
    return best.domains


def _why(q: TrainRunQuestion, one: System, nearest: Size) -> str:
    """Return why no number of domains satisfies a question, with the run that comes nearest."""
    limit = f"days={q.days:.15g}" if q.days is not None else f"usd={q.usd:.15g}"
    if not np.isfinite(nearest.days):
        return f"{limit}: {q.model.id} does not fit on up to {MOST:,} chips of {one.id}"
    chips, days = f"on {nearest.domains * one.domain_chips:,} chips", format_digits(nearest.days, 3)
    if q.days is not None:
        return f"{limit}: {one.id} takes at least about {days} days, {chips}"
    usd = f"${format_digits(nearest.usd / MILLION, 3)} million {q.bill}"
    return f"{limit}: {one.id} costs at least about {usd}, {chips} for {days} days"
