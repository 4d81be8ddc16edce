"""Cost per token: published rents, an owner's hour by part, bars to draw, and the answer card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from trnbook.chapters import cost_owners as owned
from trnbook.chapters.common import card
from trnbook.chapters.cost_comparison import ENDS
from trnbook.chapters.cost_inputs import Inputs, parse_inputs
from trnbook.chapters.guard import need
from trnbook.shared import ledger
from trnmodel.arguments import UnanswerableError
from trnmodel.catalog import load, rents
from trnmodel.catalog import prices as priced
from trnmodel.catalog.systems import System
from trnmodel.cost.tco import HOURLY, Cost
from trnmodel.search.chip_seconds import TokenCost
from trnmodel.search.token_cost import TokenCosts
from trnmodel.units import format_digits, format_within

CHECKED = ("hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "mi300x-8")
SYMBOLS = [
    ("", "usd_per_mtoken", "cost of a million generated tokens with their prompts paid", "", "result"),
    ("c", "usd_per_chip_h, usd_per_h", "price of a rented chip-hour; cost of an owner's", "", "data; result"),
    ("R", "request_chip_s", "paid chip-seconds of a request", "", "result"),
    ("", "input_tokens, output_tokens", "tokens of a request", "", "parameter"),
    ("", "rate_per_year, life_years", "cost of capital; years over which servers are paid", "", "data"),
    ("", "capital_usd", "", "", "counted, estimate (D)"),
]


def own_prices(texts: Iterable[str], owner: str) -> Inputs:
    """Return the prices in force with the reader's in their place; raise UnanswerableError for a wrong one."""
    try:
        return parse_inputs(texts, priced.prices(), priced.owner(owner))
    except ValueError as error:
        raise UnanswerableError(" ".join(str(error).split())) from None


def drawable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a cost."""
    return table.dropna(subset=ENDS[0])


def rents_table(systems: Iterable[System], pricing: str, region: str | None, mine: Inputs) -> pd.DataFrame:
    """Return rents per hour of a chip, a PFLOP/s and a TB/s, with place, date and age of the price."""
    return pd.DataFrame([_rented(spec, mine.rent(spec, pricing, region)) for spec in systems])


def _rented(spec: System, one: rents.Rent) -> dict[str, Any]:
    row: dict[str, Any] = {"system": spec.id}
    if one.why:
        published = one.why.partition("; published: ")[2]
        return row | {
            "USD a chip-hour": "no price",
            "rented": f"only by {published}" if published else "no price is published",
        }
    rates = one.rates().set_index("of")
    eight = next((name for name in ("PFLOP/s mxfp8", "PFLOP/s fp8") if name in rates.index), "")
    names = {"USD a chip-hour": "chip", "USD a PFLOP/s-hour, BF16": "PFLOP/s bf16", "the same in FP8": eight}
    for title, name in (names | {"USD a TB/s-hour": "TB/s"}).items():
        three = rates.loc[name, ["usd_per_h", "usd_per_h_low", "usd_per_h_high"]] if name in rates.index else None
        row[title] = "no peak" if three is None else format_within(*three)
    places = sorted(one.places)
    where = f"{', '.join(places[:2])}{f' and {len(places) - 2} more' if len(places) > 2 else ''}"
    return row | {
        "rented": ", ".join(filter(None, (one.pricing, one.date, where))),
        "age of the price [days]": "" if np.isnan(one.age_days()) else f"{one.age_days():.0f}",
    }


def hour_parts(hours: owned.Hours, called: Mapping[str, str]) -> pd.DataFrame:
    """Return the parts of an owner's hour of each system that has a cost: of, part, usd_per_h."""
    some = [cost.by_part().assign(of=called[name]) for name, cost in hours.items() if bool(np.all(cost.valid))]
    return pd.concat(some, ignore_index=True) if some else pd.DataFrame()


def hours_table(hours: owned.Hours, head: TokenCosts) -> pd.DataFrame:
    """Return an owner's hour with band, capital, watts and parts of each system, and the rent for comparison."""
    rows, rented = list[dict[str, Any]](), {one.system.id: one.rent for one in head.lines}
    for name, cost in hours.items():
        if not bool(np.all(cost.valid)):
            rows.append({"system": name, "USD an hour": str(cost.reason)})
            continue
        row: dict[str, Any] = {
            "system": name,
            "USD an hour": format_within(float(cost.usd_per_h), float(cost.low), float(cost.high)),
        }
        for title, field in (("USD a chip", "capital_usd"), ("W all-in", "all_in_w")):
            row[title] = cost.in_words(field)
        price = rented[name]
        ends = price.range("usd_per_chip_h")
        row["rent"] = "no price" if price.why else format_within(float(price.usd_per_chip_h), *ends)
        rows.append(row | {part: format_digits(float(getattr(cost, f"{part}_usd_per_h")), 2) for part in HOURLY})
    return pd.DataFrame(rows).fillna("")


def place(region: str) -> None:
    """Refuse a region that no published price names."""
    known = sorted({price.place for price in rents.prices()})
    need(
        not region or any(one.startswith(region) for one in known), f"region = {region!r}: no published price names it"
    )


def answer(head: TokenCosts, system: str, table: pd.DataFrame, called: Mapping[str, str], question: str) -> str:
    """Return the card: what a token costs on the rented system, on the first software that is fast enough.

    If the system has no price, the card gives the rent at which its token costs as much as on the cheapest system.
    """
    lines = {one.stack_kind: one for one in head.lines if one.system.id == system}
    one = next((line for line in lines.values() if line.fast_enough), next(iter(lines.values())))
    there = table[(table.software == one.stack_kind) & (table.model == one.model.id)]
    there = there[there.promised_tokens_per_s_per_user == one.promised_tokens_per_s_per_user].dropna(subset=ENDS[0])
    others = there[there.system != system].sort_values(ENDS[0], kind="stable")
    best, name = (others.iloc[0] if len(others) else None), called[system]
    figures = {
        kind: [float(line.generated_usd_per_mtoken), *map(float, line.ends(line.FIGURE))]
        for kind, line in lines.items()
    }
    unit, what = "USD", f"{question} on {name}, {one.stack_kind} software"
    if one.rent.why and best is not None:
        names = [f"break_even_usd_per_chip_h{end}" for end in ("", "_low", "_high")]
        figures = {row["software"]: [float(row[name]) for name in names] for row in head.ties(system, best.system)}
        unit, what = (
            "USD a chip-hour",
            f"rent at which {name} ties with {called[best.system]} on {one.stack_kind} software, for {question}",
        )
    also = "; ".join(f"{kind} {_figure(figures[kind], line)}" for kind, line in lines.items() if line is not one)
    value, low, high = figures[one.stack_kind]
    return card(
        figures[one.stack_kind] if np.isfinite(value) else "no cost",
        f"{what}{'' if np.isfinite(value) else f': {one.reason}'}; {also}. Rent: {one.price_text()}",
        unit=unit,
        mark=str(one.basis),
        rival="" if best is None else f"{called[best.system]} with {_band(best)} USD",
        rank=_rank(best, float(one.generated_usd_per_mtoken), low, high),
        alone="" if best is not None else f"no other of these has a price and is as fast on {one.stack_kind} software",
        proof="Check: eight figures of another model",
        more=_unpriced(table, called)
        + "An owner's cost follows the renter's. A band is of common draws of price and software; on "
        f"{one.stack_kind} software {one.chance_text()}{_chosen(one)}.\n\n"
        + ledger.rests_on(*dict.fromkeys(line.stack.id for line in lines.values() if line.stack_kind != "ideal")),
    )


def _chosen(one: TokenCost) -> str:
    """Return the mapping and the option that a cost is of, in words; empty where nothing fits."""
    return f", with {one.choice.mapping}" if one.choice else ""


def _figure(figures: list[float], line: TokenCost) -> str:
    value, low, high = figures
    return format_within(value, low, high, basis=str(line.basis)) if np.isfinite(value) else line.lacking or "no tie"


def _band(row: pd.Series) -> str:
    """Format the cost of a row with its band and basis."""
    value, low, high = row[ENDS]
    return format_within(value, low, high, basis=row.basis)


def _rank(best: pd.Series | None, value: float, low: float, high: float) -> str:
    """Return the label of the cheapest other system: ahead or behind by more than the bands, or neither."""
    if best is None or np.isnan(value):
        return "Beside it"
    if best[ENDS[2]] < low:
        return "Ahead of it"
    return "Next best" if best[ENDS[1]] > high else "Beside it"  # within the bands


def _unpriced(table: pd.DataFrame, called: Mapping[str, str]) -> str:
    names = dict.fromkeys(called[name] for name in table.system[table.usd_per_chip_h.isna()])
    return f"**No such price is published of {', '.join(names)}**: below stands what each may cost. " if names else ""


def bounded(line: pd.DataFrame) -> pd.DataFrame:
    """Return tie rents with ends that can be drawn: between a tenth and ten times the middle."""
    value = line.tie_usd_per_h
    ends = {f"{value.name}{end}": line[f"{value.name}{end}"].clip(value / 10, value * 10) for end in ("_low", "_high")}
    return line.assign(**ends)


def bills(hours: owned.Hours) -> pd.DataFrame:
    """Return the bills of materials of all systems that have one, with a description of each part."""
    return pd.concat([cost.bill().assign(system=name) for name, cost in hours.items()], ignore_index=True)


def movable(cost: Cost) -> bool:
    """Return whether an owner's hour depends on the price and the watts of its chip."""
    return bool(np.all(cost.valid)) and "logic, package and margin" in cost.parts_usd


def fixed(cost: Cost, name: str) -> str:
    """Explain why neither price nor watts of the chip change an owner's hour."""
    why = f"an hour of it has no cost: {cost.reason}" if not np.all(cost.valid) else "it is sold as a server"
    return f"Price and watts of a chip of {name} do not enter: {why}."


def chip_usd(cost: Cost) -> float:
    """Return the price of a package built up from its parts, in USD."""
    return float(cost.parts_usd["HBM"] + cost.parts_usd["logic, package and margin"])


def sources(systems: Iterable[System], pricing: str, region: str | None, mine: Inputs) -> set[str]:
    """Return the ids of the sources of rents, prices and rates."""
    return load.fact_sources(mine.prices, mine.owner, *(mine.rent(spec, pricing, region) for spec in systems))
