"""Replays of decisions: how much of the expected regret the first three suggestions of `tm.next_measurement` remove.

Each decision is a model, a request, systems, prices and a number of users, drawn by its number. Its candidates are the
default ones, at no cost, so that their order is that of what they save. The suggestions come from one set of draws. The
regret that is left is that of other draws, which stand for truths that nobody knows yet: each candidate tells its part
of the truth with its noise, and the option is chosen by the regressions of the first set. Beside stand all candidates
together, and random choices of three. One truth of each decision is written out as well. `python -m
trnlab.next_measurement` writes `data/evidence/next_measurement.csv`; it takes some two minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np

import trnmodel as tm
from trnmodel.catalog.load import DATA
from trnmodel.catalog.rents import own
from trnmodel.evidence.rows import save
from trnmodel.search.decision import drawn_of
from trnmodel.search.next_measurement import DRAWS, draws_of
from trnmodel.search.regret import Draws, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

REPLAYS = DATA / "evidence" / "next_measurement.csv"
DECISIONS, FEWEST, FIRST, RANDOM = 50, 20, 3, 20  # decisions, candidates of each, suggestions, random choices
TRUTHS = "truths"  # name of the other draws
MODELS = (
    "llama-3.1-8b llama-3.3-70b llama-3.1-405b qwen3-8b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b gpt-oss-120b "
    "mixtral-8x7b-v0.1 mistral-small-3.1-24b gemma-3-27b deepseek-v3 glm-4.5-air minimax-m2.5"
).split()
RENTED = {  # systems with a published price under a pricing
    "capacity-block": "trn1.32xlarge trn2.3xlarge trn2.48xlarge hgx-a100 hgx-h100 hgx-h200 hgx-b200 hgx-b300",
    "on-demand": "trn1.32xlarge inf2.48xlarge hgx-a100 hgx-h100 hgx-h200 hgx-b200 hgx-b300",
    "market": "hgx-a100 hgx-h100 hgx-h200 hgx-b200 hgx-b300 gb200-nvl72 mi300x-8",
}
OWNED = "trn2.48xlarge trn2-ultraserver trn3-nl32x2-pcie160 trn3-nl72x2-pcie160 hgx-h200 hgx-b200 mi300x-8 mi355x-8"
QUOTED = "prices of one's own"  # each drawn, and open by a third
OPEN = 4 / 3  # ends of such a price over its value


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A decision that is replayed: what is asked, of which systems, and how they are paid."""

    number: int
    model: str
    request: tm.Request
    systems: tuple[str, ...]
    pricing: str
    prices: Any
    users: float
    months: float

    @property
    def bill(self) -> str:
        """Whose dollars they are."""
        return "owned" if self.pricing == "owned" else "rented"


def decision(number: int) -> Replayed:
    """Return the decision of a number: the same on every machine."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([35, number])))

    def one(of: Sequence[Any]) -> Any:
        return of[int(random.integers(len(of)))]

    def between(low: float, high: float, digits: int = 2) -> float:
        return float(f"{low * (high / low) ** random.random():.{digits}g}")

    pricing = one([*RENTED, QUOTED, "owned"])
    pool = RENTED.get(pricing, OWNED).split()
    systems = tuple(sorted(random.permutation(pool)[: int(random.integers(2, 6))].tolist(), key=pool.index))
    request = tm.Request(
        between(500, 20_000),
        between(100, 2000),
        tokens_per_s_per_user=between(10, 60),
        ttft_s=one([None, 2.0, 5.0]),
    )
    usd = {name: between(1.5, 12.0) for name in systems}
    quoted = {name: own(name, each, (each / OPEN, each * OPEN)) for name, each in usd.items()}
    return Replayed(
        number=number,
        model=one(MODELS),
        request=request,
        systems=systems,
        pricing=pricing,
        prices=quoted if pricing == QUOTED else pricing if pricing in RENTED else "capacity-block",
        users=between(100, 10_000),
        months=float(one([3, 6, 12, 36])),
    )


def asked_of(one: Replayed) -> tm.NextMeasurement | None:
    """Return what to measure before a decision; None where there are too few options or candidates."""
    try:
        compared = tm.compare(one.model, one.request, one.systems, pricing=one.prices)
        answer = tm.next_measurement(compared, users=one.users, months=one.months, bill=one.bill, hours=0)
    except ValueError:
        return None
    return answer if len(answer.candidates) >= FEWEST else None


def replay(one: Replayed, answer: tm.NextMeasurement) -> dict[str, Any]:
    """Return the row of a decision: its regret, and what three suggestions, all candidates and random ones remove."""
    candidates, options = answer.candidates, answer.decision
    learnt = draws_of(options, drawn_of(options, DRAWS), candidates)
    truths = draws_of(options, drawn_of(options, DRAWS, TRUTHS), candidates, TRUTHS)
    best = options.systems.index(answer.best)
    now = truths.regret[best]
    places = range(len(candidates))
    three = after(learnt, truths, places[:FIRST])
    everything = after(learnt, truths, places)
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([35, one.number, 1])))
    chances = [after(learnt, truths, random.permutation(len(candidates))[:FIRST].tolist()) for _ in range(RANDOM)]
    row: dict[str, Any] = {"decision": one.number, "model": one.model, "request": one.request.describe()}
    row |= {"systems": " ".join(one.systems), "pricing": one.pricing, "users": one.users, "months": one.months}
    row |= {"options": len(options.systems), "candidates": len(candidates), "best": answer.best}
    row |= {"suggestions": len(answer.suggestions), "planned_usd": options.planned_usd[best]}
    row |= {"regret_now_usd": now.mean(), "three_remove_usd": (now - three).mean()}
    row |= {
        "all_remove_usd": (now - everything).mean(),
        "random_remove_usd": float(np.mean([now - c for c in chances])),
    }
    row |= {"first": candidates[0].name, "second": candidates[1].name, "third": candidates[2].name}
    return row | {"truth_now_usd": now[0], "truth_after_three_usd": three[0], "truth_after_all_usd": everything[0]}


def after(learnt: Draws, truths: Draws, places: Sequence[int]) -> Any:
    """Return the regret of each truth after the readings of some candidates, by what the other draws teach [USD]."""
    choose = rule(*learnt.of(places)).choose(truths.of(places).readings)
    return np.take_along_axis(truths.regret, choose[None], axis=0)[0]


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each decision that has at least two options and 20 candidates, one number after another."""
    for number in count():
        one = decision(number)
        answer = asked_of(one)
        if answer is not None:
            yield replay(one, answer)


def replays(decisions: int = DECISIONS) -> pd.DataFrame:
    """Return the columns of `data/evidence/next_measurement.csv`, of the first so many decisions."""
    import pandas as pd

    return pd.DataFrame(islice(rows(), decisions))


def shares(table: pd.DataFrame) -> dict[str, float]:
    """Return what three suggestions and random ones remove of what all candidates remove, each bill counted once.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"planned_usd": 8.0, "all_remove_usd": 2.0, "three_remove_usd": 1.5, "random_remove_usd": 0.5}
    >>> shares(pd.DataFrame([row]))
    {'three': 0.75, 'random': 0.25}
    """
    removed = {
        name: float((table[f"{name}_remove_usd"] / table.planned_usd).sum()) for name in ("three", "random", "all")
    }
    return {name: removed[name] / removed["all"] for name in ("three", "random")}


if __name__ == "__main__":
    save(replays(), REPLAYS)
