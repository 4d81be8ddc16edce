"""What sellers other than AWS ask for an hour of a GPU, beside AWS's own Capacity Blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.catalog.rents import published, rent
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd

    from trnmodel.search.chip_seconds import TokenCost
    from trnmodel.search.token_cost import TokenCosts

MARKET = "market"  # a pricing of `trnmodel.rent`
COLUMNS = ["system", "usd_per_h", "usd_per_h_low", "usd_per_h_high", "prices", "oldest", "newest"]


def hours(systems: Iterable[str | System]) -> pd.DataFrame:
    """Return market prices of a chip-hour by system: the median and the ends, how many, the dates; only where known.

    Examples
    --------
    >>> hours(["trn2.48xlarge", "gb200-nvl72"])[["system", "usd_per_h", "newest"]].values.tolist()
    [['gb200-nvl72', 4.54, '2026-03-17']]
    """
    rows = []
    for spec in map(read_system, systems):
        some = published([spec], MARKET)
        if len(some := some[some.in_force]):
            price = rent(spec, MARKET)
            low, high = price.open_ranges.get("usd_per_chip_h", (price.usd_per_chip_h,) * 2)
            rows.append((spec.id, price.usd_per_chip_h, low, high, len(some), some.date.min(), some.date.max()))
    return tidy(dict(zip(COLUMNS, row, strict=True)) for row in rows)


def lowest(costs: TokenCosts, neuron: bool | None = None) -> TokenCost | None:
    """Return the lowest cost of a rented token on public software, of all or by whether cores are Amazon's; or None."""
    some = [one for one in costs.of("public") if not one.rent.why and np.all(one.valid)]
    some = [one for one in some if neuron is None or (one.system.chip.core is not None) == neuron]
    return min(some, key=lambda one: float(one.generated_usd_per_mtoken), default=None)


def ends(one: TokenCost) -> tuple[float, float, float]:
    """Return what a million generated tokens cost, and both ends of the range [USD]."""
    low, high = map(float, one.ends("generated_usd_per_mtoken"))
    return float(one.generated_usd_per_mtoken), low, high


def cell(one: TokenCost | None) -> str:
    """Return a cost per million tokens as a table has it; a dash where there is none."""
    return "–" if one is None or one.rent.why or not np.all(one.valid) else one.in_words(one.FIGURE)


def turned(first: TokenCost, rival: str, costs: TokenCosts) -> str:
    r"""Return what a rival costs at rents of the market, and whether it then leads a system; empty if unknown.

    Parameters
    ----------
    first : TokenCost
        The cheapest system to rent. [-]
    rival : str
        Id of its rival; where the market has no price of it, the cheapest of all stands in. [-]
    costs : TokenCosts
        Costs at rents of the market. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = tm.Request(4096, 512, tokens_per_s_per_user=50)
    >>> aws = tm.token_cost("llama-3.3-70b", ask, ["trn2.48xlarge"])["trn2.48xlarge", "public"]
    >>> print(turned(aws, "gb200-nvl72", tm.token_cost("llama-3.3-70b", ask, ["gb200-nvl72"], pricing="market"))[:62])
    **Other sellers ask less for GPUs, and then the order turns.**
    """
    some = [one for one in costs.of("public") if not one.rent.why and np.all(one.valid)]
    one = next((one for one in some if one.system.id == rival), lowest(costs))
    if one is None:
        return ""
    known = hours([one.system]).iloc[0]
    which = "the one price that we know" if known.prices == 1 else f"the middle of {known.prices} prices"
    (mine, low, high), (usd, least, most) = ends(first), ends(one)
    turns = "and then the order turns" if usd < mine else "but the order stays"
    text = f"**Other sellers ask less for GPUs, {turns}.** At \\${known.usd_per_h:.2f} per chip-hour, {which}, "
    text += f"{one.system.name} costs \\${one.in_words(one.FIGURE)}"
    return text + (", and the ranges still overlap." if least <= high and low <= most else ".")


def seen(systems: Iterable[str | System]) -> str:
    """Return of which years the market prices of systems are, as the end of a caption; empty where there is none.

    Examples
    --------
    >>> seen(["gb200-nvl72"]), seen(["trn2.48xlarge"])
    ('; market rents of 2026', '')
    """
    table = hours(systems)
    years = sorted({day[:4] for day in (*table.oldest, *table.newest)}) if len(table) else []
    return f"; market rents of {' to '.join(dict.fromkeys((years[0], years[-1])))}" if years else ""


def any_cost(costs: TokenCosts, software: str = "public") -> bool:
    """Return whether a system has a cost on a kind of software, and a rank."""
    return any(bool(np.all(one.valid)) and one.ranks for one in costs.of(software))
