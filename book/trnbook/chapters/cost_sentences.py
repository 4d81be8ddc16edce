"""Sentences about costs: worked by hand, under a load, against hosted models, and what waiting pays for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trnbook.chapters.cost_comparison import ENDS, SPEED, CostGrid, level_rents
from trnbook.shared.software_kinds import ORDER
from trnmodel.cost.tco import MONTHS, PERIOD_H, Cost
from trnmodel.formulas import tco as page
from trnmodel.result import tidy
from trnmodel.search.chip_seconds import TokenCost
from trnmodel.search.sensitivity import Sensitivity
from trnmodel.search.token_cost import TokenCosts
from trnmodel.units import HOUR, KW, MILLION, MS, counted, format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

INPUTS: Mapping[str, str] = {
    "prices.chip_markup": "margin on the package",
    "prices.switch_usd_per_lane": "price of a switch lane",
    "prices.rack_usd_per_w": "cooling and rack a watt",
    "prices.market_ratio": "street price of servers",
    "prices.network_usd_per_bytes_per_s": "price of scale-out switches",
    "owner.build_usd_per_w": "price of a building a watt",
    "owner.colocation_usd_per_w_h": "rent of a building a watt",
    "owner.operations_share": "operations a year",
    "owner.life_years": "years of life",
    "owner.lost_share": "worth that is lost in the life",
    "owner.rate_per_year": "cost of capital",
    "owner.electricity_usd_per_j": "price of electricity",
    "owner.mean_load_share": "mean load",
    "power.all_in_ratio": "watts provisioned a watt of TDP",
}
SHORTEST = 0.05  # months; a shorter wait is not mentioned


def by_hand(one: TokenCost, called: Mapping[str, str]) -> str:
    """Work out the cost of a token by hand from its price and its chip-seconds, as a sentence."""
    prompts, made = one.input_tokens, one.output_tokens
    prompt, each = (one.chip_s(phase) / MS for phase in ("prefill", "decode"))
    mean = (prompts * prompt + made * each) / made
    price = float(one.usd_per_chip_h)
    cost = price * mean * MS * MILLION / HOUR
    if not np.isclose(cost, float(one.generated_usd_per_mtoken)):
        raise AssertionError(f"{one.system.id}: {cost} by hand, {one.generated_usd_per_mtoken} by the package")
    return (
        f"**By hand, {called[one.system.id]} on {one.stack_kind} software.** A token of a prompt takes {prompt:.4g} ms "
        f"of a chip, one of an answer {each:.4g} ms with the time in which chips wait: ({prompts:,.0f} x {prompt:.4g} "
        f"+ {made:,.0f} x {each:.4g}) / {made:,.0f} = {mean:.4g} ms for each generated token. At {price:.4g} USD an "
        f"hour a million take {price:.4g} x {mean:.4g} x 1,000 / 3,600 = {cost:.3g} USD; the package says "
        f"{float(one.generated_usd_per_mtoken):.3g} USD."
    )


def loaded(costs: TokenCosts, under: TokenCosts) -> pd.DataFrame:
    """Return a row per priced system: $ per million generated tokens at capacity and `under` a load, by software."""
    import pandas as pd

    rows = []
    for name in costs.systems:
        pairs = zip(costs.lines, under.lines, strict=True)
        some = [pair for pair in pairs if pair[0].system.id == name and not pair[0].rent.why]
        some.sort(key=lambda pair: ORDER.index(pair[0].stack_kind))
        row = {"system": name} | {full.stack_kind: _at_load(full, load) for full, load in some}
        rows += [row] if some else []
    return pd.DataFrame(rows)


def _at_load(full: TokenCost, load: TokenCost) -> str:
    """Format a cost at capacity and one under a load, with the number of instances."""
    if not (bool(np.all(full.valid)) and bool(np.all(load.valid))):
        return full.lacking or load.lacking
    at_capacity, at_load = full.in_words(full.FIGURE), load.in_words("at_load_usd_per_mtoken")
    return f"{at_capacity} at capacity, {at_load} on {counted(load.instances, 'instance')}"


def hosted(grid: CostGrid, called: Mapping[str, str], system: str) -> str:
    """Describe prices of hosted models, and from which utilisation a rented system is cheaper, a line per model."""
    said, described = [], set[str]()
    for (model, speed), one in grid.items():
        table = one.hosted()
        if model in described or not len(table):
            continue
        described |= {model}
        table = table[table.system == system]
        for (seller, date), rows in table.groupby(["seller", "date"], sort=False):
            full = ", ".join(f"{row.software} {_full(row.break_even_utilisation)}" for row in rows.itertuples())
            price = format_digits(float(rows.api_usd_per_mtoken.iloc[0]), 3)
            said.append(
                f"* **{model} by {seller}** ({date}): {price} USD a million tokens of these requests. {called[system]} "
                f"at {speed:,.15g} tokens/s a user costs less where it is full in this share of its hours: {full}."
            )
    return "\n".join(said) if said else "No price of these models by the token is known."


def _full(share: float) -> str:
    return "never" if np.isnan(share) or share > 1 else f"{share:.0%}"


def hour_by_hand(cost: Cost, name: str) -> str:
    """Work out the parts of an owner's hour by hand, as a sentence."""
    if not bool(np.all(cost.valid)):
        return f"An hour of {name} has no cost: {cost.reason}."
    who, capital = cost.owner, float(cost.capital_usd)
    rate, n, lost = who.rate_per_year / MONTHS, who.life_years * MONTHS, who.lost_share
    month = float(page.capital_recovery_usd(capital, rate, n, (1 - lost) * capital))
    hour = float(cost.server_usd_per_h + cost.network_usd_per_h)
    if not np.isclose(month / PERIOD_H, hour):
        raise AssertionError(f"{name}: {month / PERIOD_H} by hand, {hour} by the package")
    watts, pue, kwh = float(cost.mean_w), cost.facility.annual_pue, who.electricity_usd_per_j * KW * HOUR
    left = f", of which {1 - lost:.0%} is left at the end" if lost < 1 else ""
    return (
        f"**By hand, {name}.** {capital:,.0f} USD over {n:g} months at {rate:.2%} a month{left}: {month:,.0f} USD a "
        f"month, {hour:.3f} USD an hour of {PERIOD_H:g} a month. Electricity: {watts:,.0f} W x {pue:g} x {kwh:.4g} "
        f"USD/kWh = {watts / KW * pue * kwh:.3f} USD; the package says {float(cost.energy_usd_per_h):.3f} USD. With "
        f"building ({float(cost.site_usd_per_h):.3f}) and operations ({float(cost.operations_usd_per_h):.3f}) the hour "
        f"costs {float(cost.usd_per_h):.2f} USD."
    )


def early_delivery(cost: Cost, table: pd.DataFrame, name: str) -> str:
    """Describe the value of an earlier delivery of a chip, with the first one worked by hand."""
    falls, rate, first = cost.prices.decades_per_year, cost.owner.rate_per_year, table.iloc[0]
    lost = 1 - 10 ** (-falls * first.months / MONTHS) * (1 + rate) ** (-first.months / MONTHS)
    if not np.isclose(lost, first.share):
        raise AssertionError(f"{name}: {lost} by hand, {first.share} by the package")
    gains = [
        f"{counted(row.months, 'month')} {row.share:.1%}, {format_within(row.usd, row.usd_low, row.usd_high)} USD"
        for row in table.itertuples()
    ]
    return (
        f"**By hand.** Prices fall by {falls:g} powers of ten and capital costs {rate:.1%} a year: "
        f"1 - 10^(-{falls:g} x {first.months:g} / 12) x {1 + rate:.4g}^(-{first.months:g} / 12) = {lost:.1%}. "
        f"A chip of {name} that works earlier gains, of what is paid for it: {'; '.join(gains)}."
    )


def waiting_time(table: pd.DataFrame, now: str, later: str) -> str:
    """Describe how many months of waiting for a later rack its cheaper tokens pay for."""
    if now == later:
        return f"{now} and the later rack are one: there is nothing to wait for."
    said, none = list[str](), list[float]()
    for row in table.to_dict("records"):
        for kind in [kind for kind in ORDER if np.isfinite(row[kind])]:
            value, low, high = (row[f"{kind}{end}"] for end in ("", "_low", "_high"))
            if value < SHORTEST:
                none.append(high)
                continue
            months = format_within(value, low, high) if np.isfinite(high) else format_digits(value, 2)
            said.append(f"{months} months for {row['model']} at {row[SPEED]:,.15g} tokens/s on {kind} software")
    if not said and not none:
        return f"Not both {now} and {later} are as fast and have a cost, so that waiting is worth nothing known."
    whole = f"in {len(none)} of {len(none) + len(said)} cases no time, since a token of {later} is no cheaper"
    most = max((each for each in none if each >= SHORTEST), default=0.0)
    whole += f" (at the 95th percentile of the draws up to {format_digits(most, 2)} months)" if most else ""
    parts = "; ".join([whole] * bool(none) + said)
    return f"**How long may one wait for {later}** where {now} could work now? By what tokens save, {parts}."


def tie_table(grid: CostGrid, system: str) -> pd.DataFrame:
    """Return rents at which a system ties with each priced one, by model, speed and kind of software."""
    rows = dict[tuple[str, float, str], dict[str, Any]]()
    for row in level_rents(grid, system).to_dict("records"):
        cells = rows.setdefault((row["model"], row[SPEED], row["against"]), {})
        three = [row[f"break_even_usd_per_chip_h{end}"] for end in ("", "_low", "_high")]
        cells[row["software"]] = format_within(*three) if np.isfinite(three[0]) else "too slow"
    return tidy(
        dict(zip(("model", SPEED, "against"), key, strict=True))
        | {kind: cells[kind] for kind in ORDER if kind in cells}
        for key, cells in rows.items()
    )


def tornado(draws: Sensitivity, answer: str) -> pd.DataFrame:
    """Return a cost with each input at its 5th and 95th percentile: which, usd_per_mtoken with its ends."""
    import pandas as pd

    table, value = draws.tornado(answer), draws.bars[answer][0]
    table = table[np.isfinite(table.swing) & (table.swing > 1e-3 * value)].head(10)
    ends = table[["answer_low", "answer_high"]].assign(value=value)
    columns = {"which": table.input.map(_named), ENDS[0]: value, ENDS[1]: ends.min(axis=1), ENDS[2]: ends.max(axis=1)}
    return pd.DataFrame(columns).assign(basis="extrapolated").reset_index(drop=True)


def _named(label: str) -> str:
    """Return the reader's name of an input."""
    spec, _, field = label.partition(".")
    if field and spec in ("prices", "owner", "power"):
        return INPUTS.get(label, field.replace("_", " "))
    return label if label.startswith("TDP") else f"how good {label} is"
