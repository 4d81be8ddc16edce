"""Costs in words: by hand, at a load, beside hosted models, against a rival in draws, and what waiting pays for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.formulas import tco as page
from trnmodel.planner.cost import MONTHS, PERIOD_H, Cost
from trnmodel.planner.effort import TokenCost, within
from trnmodel.planner.markets import ENDS, SPEED, Found, level_rents
from trnmodel.planner.rent import TokenCosts
from trnmodel.planner.sensitivity import Sensitivity
from trnmodel.planner.software import ORDER
from trnmodel.result import tidy
from trnmodel.units import HOUR, KW, MILLION, MS, counted, format_digits

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
SHORTEST = 0.05  # months that are worth a word


def by_hand(one: TokenCost, called: Mapping[str, str]) -> str:
    """The cost of a token from its price and its chip-seconds, as one works it out."""
    given, made = one.input_tokens, one.output_tokens
    prompt, each = (float(one.chip_s(phase)[2]) / MS for phase in ("prefill", "decode"))
    mean = (given * prompt + made * each) / (given + made)
    price = float(one.usd_per_chip_h)
    cost = price * mean * MS * MILLION / HOUR
    if not np.isclose(cost, float(one.blended_usd_per_mtoken)):
        raise AssertionError(f"{one.system.id}: {cost} by hand, {one.blended_usd_per_mtoken} by the package")
    return (
        f"**By hand, {called[one.system.id]} on {one.stack_kind} software.** A token of a prompt takes {prompt:.4g} ms "
        f"of a chip, one of an answer {each:.4g} ms: ({given:,.0f} x {prompt:.4g} + {made:,.0f} x {each:.4g}) / "
        f"{given + made:,.0f} = {mean:.4g} ms. At {price:.4g} USD an hour a million take {price:.4g} x {mean:.4g} x "
        f"1,000 / 3,600 = {cost:.3g} USD; the package says {float(one.blended_usd_per_mtoken):.3g} USD."
    )


def loaded(found: TokenCosts) -> pd.DataFrame:
    """A row a system that has a price: USD a million tokens at capacity and at the load, and instances, by software."""
    import pandas as pd

    rows = []
    for name in found.systems:
        some = [one for one in found.lines if one.system.id == name and not one.rent.why]
        row = {"system": name}
        row |= {one.stack_kind: _at_load(one) for one in sorted(some, key=lambda line: ORDER.index(line.stack_kind))}
        rows += [row] if some else []
    return pd.DataFrame(rows)


def _at_load(one: TokenCost) -> str:
    """A cost at capacity, and at the load with the instances that it takes."""
    if not bool(np.all(one.valid)):
        return one.lacking
    full, load = (
        within(float(getattr(one, name)), *_two(one.ends(name))) for name in (one.FIGURE, "at_load_usd_per_mtoken")
    )
    return f"{full} at capacity, {load} on {counted(float(one.instances), 'instance')}"


def _two(ends: tuple[Any, Any]) -> tuple[float, float]:
    return float(ends[0]), float(ends[1])


def hosted(found: Found, called: Mapping[str, str], system: str) -> str:
    """What hosted models cost by the token, and how full a rented system must be to cost less, a line a model."""
    said, told = [], set[str]()
    for (model, speed), one in found.items():
        table = one.hosted()
        if model in told or not len(table):
            continue
        told |= {model}
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
    """The parts of an owner's hour as one works them out."""
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


def early_words(cost: Cost, table: pd.DataFrame, name: str) -> str:
    """What months are worth to a chip that works earlier, and how one works out the first."""
    falls, rate, first = cost.prices.decades_per_year, cost.owner.rate_per_year, table.iloc[0]
    lost = 1 - 10 ** (-falls * first.months / MONTHS) * (1 + rate) ** (-first.months / MONTHS)
    if not np.isclose(lost, first.share):
        raise AssertionError(f"{name}: {lost} by hand, {first.share} by the package")
    told = [
        f"{counted(row.months, 'month')} {row.share:.1%}, {within(row.usd, row.usd_low, row.usd_high)} USD"
        for row in table.itertuples()
    ]
    return (
        f"**By hand.** Prices fall by {falls:g} powers of ten and capital costs {rate:.1%} a year: "
        f"1 - 10^(-{falls:g} x {first.months:g} / 12) x {1 + rate:.4g}^(-{first.months:g} / 12) = {lost:.1%}. "
        f"A chip of {name} that works earlier gains, of what is paid for it: {'; '.join(told)}."
    )


def wait_words(table: pd.DataFrame, now: str, later: str) -> str:
    """How many months of waiting for a later rack its cheaper tokens pay for."""
    if now == later:
        return f"{now} and the later rack are one: there is nothing to wait for."
    said, none = list[str](), list[float]()
    for row in table.to_dict("records"):
        for kind in [kind for kind in ORDER if np.isfinite(row[kind])]:
            value, low, high = (row[f"{kind}{end}"] for end in ("", "_low", "_high"))
            if value < SHORTEST:
                none.append(high)
                continue
            months = within(value, low, high) if np.isfinite(high) else format_digits(value, 2)
            said.append(f"{months} months for {row['model']} at {row[SPEED]:,.15g} tokens/s on {kind} software")
    if not said and not none:
        return f"Not both {now} and {later} are as fast and have a cost, so that waiting is worth nothing known."
    whole = f"in {len(none)} of {len(none) + len(said)} cases no time, since a token of {later} is no cheaper"
    most = max((each for each in none if each >= SHORTEST), default=0.0)
    whole += f" (at the 95th percentile of the draws up to {format_digits(most, 2)} months)" if most else ""
    told = "; ".join([whole] * bool(none) + said)
    return f"**How long may one wait for {later}** where {now} could work now? By what tokens save, {told}."


def ties_told(found: Found, system: str) -> pd.DataFrame:
    """Rents at which a system ties with each that has a price, by model, speed and kind of software, in words."""
    rows = dict[tuple[str, float, str], dict[str, Any]]()
    for row in level_rents(found, system).to_dict("records"):
        told = rows.setdefault((row["model"], row[SPEED], row["against"]), {})
        three = [row[f"break_even_usd_per_chip_h{end}"] for end in ("", "_low", "_high")]
        told[row["software"]] = within(*three) if np.isfinite(three[0]) else "too slow"
    return tidy(
        dict(zip(("model", SPEED, "against"), key, strict=True)) | {kind: told[kind] for kind in ORDER if kind in told}
        for key, told in rows.items()
    )


def tornado(draws: Sensitivity, answer: str) -> pd.DataFrame:
    """A cost with one input after another at its 5th and 95th percentile: which, usd_per_mtoken with its ends."""
    import pandas as pd

    table, value = draws.tornado(answer), draws.bars[answer][0]
    table = table[np.isfinite(table.swing) & (table.swing > 1e-3 * value)].head(10)
    ends = table[["answer_low", "answer_high"]].assign(value=value)
    found = {"which": table.input.map(_named), ENDS[0]: value, ENDS[1]: ends.min(axis=1), ENDS[2]: ends.max(axis=1)}
    return pd.DataFrame(found).assign(basis="extrapolated").reset_index(drop=True)


def _named(label: str) -> str:
    """What an input is called."""
    spec, _, field = label.partition(".")
    if field and spec in ("prices", "owner", "power"):
        return INPUTS.get(label, field.replace("_", " "))
    return label if label.startswith("TDP") else f"how good {label} is"
