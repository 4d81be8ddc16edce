"""Compare token costs over models and speeds: who is cheapest, what ties with it, and what time is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from trnbook.chapters import cost_owners as owned
from trnbook.chapters.cost_inputs import Inputs
from trnbook.chapters.cost_value import delay_usd, months_of_waiting
from trnbook.shared.software_kinds import ORDER
from trnmodel.catalog.systems import System
from trnmodel.cost.tco import Cost
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.models.transformer import Transformer
from trnmodel.result import tidy
from trnmodel.search.chip_seconds import TokenCost
from trnmodel.search.sensitivity import Sensitivity
from trnmodel.search.token_cost import TokenCosts, token_cost
from trnmodel.steps.request import Request
from trnmodel.units import format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

LEAD = 0.95  # share of the draws from which a system is called the cheapest
LEAST_SHOWN, MOST_NAMED, MAX_CLAIM_LENGTH = 0.005, 3, 10  # share of draws; systems per sentence; words per claim
SPEED = "promised_tokens_per_s_per_user"
ENDS = ["usd_per_mtoken", "usd_per_mtoken_low", "usd_per_mtoken_high"]
CostGrid = Mapping[tuple[str, float], TokenCosts]  # by model and speed, at rents or at owners' costs


def cost_grid(
    models: Iterable[Transformer],
    systems: Iterable[System],
    speeds: Sequence[float],
    mine: Inputs,
    rented: tuple[str, str | None],
    request: Request,
) -> dict[tuple[str, float], TokenCosts]:
    """Return `token_cost` of a request for every model and promised speed."""
    some, whom = list(systems), {one.id: one for one in models}
    rents = {spec.id: mine.rent(spec, *rented) for spec in some}
    return {
        (name, speed): token_cost(one, replace(request, tokens_per_s_per_user=speed), some, pricing=rents)
        for name, one in whom.items()
        for speed in speeds
    }


def middle_of(speeds: Iterable[float]) -> float:
    """Return the middle one of some speeds; of an even number, the slower one.

    Examples
    --------
    >>> middle_of([20, 50, 100]), middle_of([50, 20])
    (50, 20)
    """
    some = sorted(speeds)
    return some[(len(some) - 1) // 2]


def table_of(grid: CostGrid) -> pd.DataFrame:
    """Return the costs of a grid as a table, at rents or at owners' hours, whichever priced the grid.

    Returns
    -------
    table : pandas.DataFrame
        model, promised_tokens_per_s_per_user, system, software, usd_per_mtoken with `_low` and `_high` (NaN where there
        is none) of a generated token with its prompt, chip_s (of the same), chance, usd_per_chip_h, basis, reason.

    Examples
    --------
    >>> import trnmodel as tm
    >>> grid = tm.token_cost("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=20), "trn2.48xlarge")
    >>> owned_ = grid.priced(owned.hours(["trn2.48xlarge"]))
    >>> rent, own = (table_of({("llama-3.1-8b", 20): one}) for one in (grid, owned_))
    >>> bool((own.usd_per_mtoken < rent.usd_per_mtoken).all())
    True
    """
    return tidy(_line(one) for costs in grid.values() for one in costs.lines)


def _line(one: TokenCost) -> dict[str, Any]:
    row: dict[str, Any] = {"model": one.model.id, SPEED: one.promised_tokens_per_s_per_user}
    row |= {"system": one.system.id, "software": one.stack_kind}
    value = float(one.generated_usd_per_mtoken)
    ends = [float(end) for end in one.ends(one.FIGURE)] if np.isfinite(value) else [np.nan, np.nan]
    row |= dict(zip(ENDS, (value, *ends), strict=True))
    row |= {"chip_s": one.chip_s(), "chance": one.chance, "usd_per_chip_h": float(one.usd_per_chip_h)}
    return row | {"basis": str(one.basis), "reason": str(one.reason)}


def level_at(least: float, price: float, chip_s: float) -> str:
    """Return the price per chip-hour at which a token costs as little as the cheapest, as text."""
    if np.isnan(least) or not np.isfinite(chip_s):
        return "never"
    tie = float(least / usd_per_mtoken(1.0, 1.0) / chip_s)
    return "least" if abs(tie / price - 1) < 1e-9 else format_digits(tie, 2)


def compare(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model, speed and system: $ per million tokens by software, and hourly prices of a tie."""
    rows, least = list[dict[str, Any]](), table.groupby(["model", SPEED, "software"]).usd_per_mtoken.min()
    for (model, speed, system), lines in table.groupby(["model", SPEED, "system"], sort=False):
        there = {one.software: one for one in lines.itertuples()}
        row: dict[str, Any] = {"model": model, SPEED: speed, "system": system}
        row |= {kind: cell(there[kind]) if kind in there else "no such software" for kind in ORDER}
        own = float(lines.usd_per_chip_h.iloc[0])
        row["USD a chip-hour"] = "no price" if np.isnan(own) else format_digits(own, 3)
        level = [
            f"{kind} {level_at(least[model, speed, kind], own, there[kind].chip_s)}" for kind in ORDER if kind in there
        ]
        rows.append(row | {"level at, USD a chip-hour": ", ".join(level)})
    return tidy(rows)


def cell(line: Any) -> str:
    """Format a cost with its band and the share of draws that it is of, or the reason why there is none."""
    if np.isnan(line.usd_per_mtoken):
        return "too slow" if "too slow" in line.reason else "no price" if np.isnan(line.usd_per_chip_h) else line.reason
    of = "" if line.chance == 1 else f", in {_often(line.chance)} of the draws"
    return format_within(*(getattr(line, end) for end in ENDS)) + of


@lru_cache(maxsize=64)
def drawn(costs: TokenCosts, software: str) -> Sensitivity | None:
    """Return common draws of the costs on a kind of software; None if no system has a cost or nothing varies."""
    try:
        return costs.draws(software, draws=owned.DRAWS)
    except ValueError:  # no system is as fast at a cost, or nothing varies
        return None


def _drawn_ties(
    costs: TokenCosts, system: str, which: str, software: str, against: Sequence[str]
) -> Sensitivity | None:
    """Return draws of `cost_owners.drawn_ties`; None where a system is too slow or has no cost."""
    try:
        return owned.drawn_ties(costs, system, which, software, against)
    except ValueError:
        return None


def firsts(costs: TokenCosts, software: str) -> dict[str, float]:
    """Return the share of draws in which each system is the cheapest, largest first; middles if nothing varies.

    Systems whose hand-tuned software is mostly a scenario are left out (`TokenCost.ranks`).
    """
    draws = drawn(costs, software)
    if draws is not None:
        wins = draws.wins(least=True).sort_values("wins", ascending=False, kind="stable")
        return dict(zip(wins.answer, map(float, wins.wins), strict=True))
    known = [one for one in costs.lines if one.stack_kind == software and np.all(one.valid) and one.ranks]
    known.sort(key=lambda one: float(one.generated_usd_per_mtoken))
    return {one.system.id: float(one is known[0]) for one in known}


def leads(shares: Mapping[str, float], called: Mapping[str, str]) -> str:
    """Describe who is the cheapest in which share of the draws; a lead counts only from `LEAD` of them.

    Examples
    --------
    >>> leads({"a": 0.96, "b": 0.04}, {"a": "A", "b": "B"}), leads({"a": 0.6, "b": 0.4}, {"a": "A", "b": "B"})
    ('A in 96%, B in 4%', 'open, A in 60%, B in 40%')
    >>> leads({"a": 1.0}, {"a": "A"}), leads({}, {})
    ('A alone', 'nobody is as fast at a known price on measured software')
    """
    if len(shares) < 2:
        return next(
            (f"{called[name]} alone" for name in shares), "nobody is as fast at a known price on measured software"
        )
    some = [
        f"{called[name]} in {_often(share)}" for name, share in [*shares.items()][:MOST_NAMED] if share >= LEAST_SHOWN
    ]
    return ("" if max(shares.values()) >= LEAD else "open, ") + ", ".join(some)


def claim(costs: TokenCosts, called: Mapping[str, str]) -> str:
    """Return who leads on which kind of software as a chart title; a lead needs `LEAD` of the draws."""
    shares = {kind: firsts(costs, kind) for kind in ORDER}
    there = {name for some in shares.values() for name in some}
    if len(there) == 1:
        return f"Only {called[there.pop()]} has the speed and a price"
    first = {
        kind: next((called[name] for name in some if len(some) > 1 and some[name] >= LEAD), "")
        for kind, some in shares.items()
    }
    names, none = set(first.values()) - {""}, [kind for kind, name in first.items() if not name]
    if not names:
        return "Nobody is the cheapest by more than the band"
    if len(names) == 1 and not none:
        return f"{names.pop()} is the cheapest on all software"
    who = [f"{name} {' and '.join(kind for kind in ORDER if first[kind] == name)}" for name in sorted(names)]
    said = f"Cheapest: {', '.join(who)}{'; else open' if none else ''}"
    return said if len(said.split()) <= MAX_CLAIM_LENGTH else "Who is the cheapest depends on the software"


def _often(share: float) -> str:
    return "all" if share == 1 else "nearly all" if share >= 1 - LEAST_SHOWN else f"{format_digits(100 * share, 2)}%"


def describe_order(grid: CostGrid, called: Mapping[str, str]) -> str:
    """Describe, by model and speed, who is the cheapest in which share of draws on each kind of software."""
    said = []
    for (model, speed), one in grid.items():
        orders = "; ".join(f"*{kind}* {leads(firsts(one, kind), called)}" for kind in ORDER)
        said.append(f"* **{model} at {speed:,.15g} tokens/s**: {orders}.")
    return "\n".join(said)


def _lacks(costs: TokenCosts, kind: str, *names: str) -> str:
    """Explain why systems cannot be compared: too slow, or without a cost."""
    there = [one for one in costs.of(kind) if one.system.id in names]
    if len(there) < len(names):
        return "no such software"
    if not all(one.ranks for one in there if one.fast_enough):
        return "a scenario"
    return "no cost" if all(one.fast_enough for one in there) else "too slow"


def tie_cell(draws: Sensitivity | None, name: str, lacks: str = "") -> str:
    """Format what an input must be for a tie: median, 5th and 95th percentile; "none" if zero is still too much."""
    if draws is None or name not in draws.values:
        return lacks
    row = draws.percentiles().set_index("answer").loc[name]
    if np.isnan(row.p50) or row.p95 <= 0:
        return "none"
    middle, low, high = (format_digits(end, 2) if end > 0 else "" for end in (row.p50, row.p5, row.p95))
    return f"{middle} ({low or 0} to {high})" if middle else f"none (to {high})"


def ties(grid: CostGrid, system: str, which: str, against: Sequence[str] = ()) -> pd.DataFrame:
    """Return what an owner's input must be to tie with each other system, by model, speed and kind of software."""
    rows = list[dict[str, Any]]()
    for (model, speed), one in grid.items():
        draws = {kind: _drawn_ties(one, system, which, kind, against) for kind in ORDER}
        for other in [rival for rival in (against or one.systems) if rival != system]:
            row: dict[str, Any] = {"model": model, SPEED: speed, "against": other}
            rows.append(
                row | {kind: tie_cell(it, other, _lacks(one, kind, system, other)) for kind, it in draws.items()}
            )
    return tidy(rows)


def cheaper(grid: CostGrid, system: str) -> pd.DataFrame:
    """Return the share of common draws in which a system's token costs less than another's, by software."""
    rows = list[dict[str, Any]]()
    for (model, speed), one in grid.items():
        draws = {kind: drawn(one, kind) for kind in ORDER}
        for other in [name for name in one.systems if name != system]:
            row: dict[str, Any] = {"model": model, SPEED: speed, "than": other}
            rows.append(
                row
                | {kind: _share(it, system, other) or _lacks(one, kind, system, other) for kind, it in draws.items()}
            )
    return tidy(rows)


def _share(draws: Sensitivity | None, system: str, other: str) -> str:
    if draws is None or system not in draws.values or other not in draws.values:
        return ""
    share = owned.cheaper(draws, system, other)
    return f"in {_often(share)}" if share else "in none"


def level_rents(grid: CostGrid, system: str) -> pd.DataFrame:
    """Return rents at which a system ties with each priced one, in the columns of `break_even`."""
    return tidy(
        {"model": model, SPEED: speed} | row
        for (model, speed), one in grid.items()
        for rival in one.with_price
        for row in one.ties(system, rival)
    )


def curve(grid: CostGrid, model: str, system: str) -> pd.DataFrame:
    """Return the rent per chip-hour at which a system ties with each priced one, over the speed per user."""
    table = level_rents({key: one for key, one in grid.items() if key[0] == model}, system)
    names = {f"break_even_usd_per_chip_h{end}": f"tie_usd_per_h{end}" for end in ("", "_low", "_high")}
    return table.rename(columns=names).dropna(subset="tie_usd_per_h").reset_index(drop=True) if len(table) else table


def waiting(grid: CostGrid, now: Cost, later: str) -> pd.DataFrame:
    """Return how many months of waiting a later system's cheaper tokens pay for; negative if they are dearer.

    Their `_low` and `_high` are the 5th and 95th percentile of common draws.
    """
    rows = list[dict[str, Any]]()
    for (model, speed), one in grid.items():
        row: dict[str, Any] = {"model": model, SPEED: speed}
        costs = {
            (line.stack_kind, line.system.id): float(line.generated_usd_per_mtoken) for line in one.lines if line.ranks
        }
        for kind in ORDER:
            ratio = costs.get((kind, now.system.id), np.nan) / costs.get((kind, later), np.nan)
            row[kind] = float(months_of_waiting(now, ratio)) if np.isfinite(ratio) else np.nan
            row |= dict(zip((f"{kind}_low", f"{kind}_high"), _months_ends(one, now, later, kind), strict=True))
        rows.append(row)
    return tidy(rows)


def _months_ends(one: TokenCosts, now: Cost, later: str, kind: str) -> list[float]:
    """Return the 5th and 95th percentile of the months over draws in which both are fast enough; else NaN."""
    draws, first = drawn(one, kind), now.system.id
    if first == later or draws is None or not {first, later} <= set(draws.values):
        return [np.nan, np.nan]
    ours, theirs = draws.values[first], draws.values[later]
    both = np.isfinite(ours) & np.isfinite(theirs)
    months = months_of_waiting(now, ours[both] / theirs[both])
    return [float(end) for end in np.quantile(months, (0.05, 0.95))] if months.size else [np.nan, np.nan]


def early(cost: Cost, months: Sequence[float] = (1.0, 3.0, 6.0, 12.0)) -> pd.DataFrame:
    """Return the value of an earlier delivery: months, USD per chip with its ends, share of the capital."""
    value, capital = delay_usd(cost, list(months)), float(cost.capital_usd)
    low, high = (float(end) / capital for end in cost.ends("capital_usd"))
    return tidy(
        {"months": m, "usd_low": w * low, "usd": w, "usd_high": w * high, "share": w / capital}
        for m, w in zip(months, value, strict=True)
    )
