"""Tables of the chapter on what a token costs: rows of costs, shares of draws, ties, printed prices, the card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from IPython.display import Markdown

from trnbook import charts
from trnbook.chapters import cost_whatif as whatif
from trnbook.chapters.common import card
from trnbook.chapters.cost_inputs import Inputs, parse_inputs
from trnbook.chapters.cost_value import delay_usd, saving_usd
from trnbook.chapters.guard import need, one_of, possible
from trnbook.charts.tables import Table
from trnbook.shared import drafts, ledger, market
from trnmodel.arguments import UnanswerableError
from trnmodel.catalog import load, rents
from trnmodel.catalog import prices as priced
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import MONTHS, Cost
from trnmodel.models.transformer import Transformer
from trnmodel.result import tidy
from trnmodel.search.chip_seconds import TokenCost
from trnmodel.search.compare import percent
from trnmodel.search.token_cost import TokenCosts
from trnmodel.steps.request import Request
from trnmodel.units import format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

PRINTED = ("hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "mi300x-8")  # with a printed owner's hour
SPEED = "promised_tokens_per_s_per_user"
ENDS = ("usd_per_mtoken", "usd_per_mtoken_low", "usd_per_mtoken_high")
ENDS_OF, SHOWN = ("", "_low", "_high"), ("public", "ideal")
CUSTOMER, OTHERS = "rented at AWS, or bought", "rented from others"
SELLERS = ["model", "seller", "date", "api_usd_per_mtoken", "api_generated_usd_per_mtoken", "source"]
BARS = 4  # of a tornado
INPUTS: Mapping[str, str] = {
    "prices.chip_markup": "margin on the chip",
    "prices.switch_usd_per_lane": "price of a switch lane",
    "prices.rack_usd_per_w": "cooling and rack, per watt",
    "prices.market_ratio": "street price of servers",
    "prices.network_usd_per_bytes_per_s": "price of network switches",
    "owner.build_usd_per_w": "building, per watt",
    "owner.colocation_usd_per_w_h": "rent of the building, per watt",
    "owner.operations_share": "maintenance per year",
    "owner.life_years": "years of life",
    "owner.lost_share": "value lost over the life",
    "owner.rate_per_year": "cost of capital",
    "owner.electricity_usd_per_j": "price of electricity",
    "owner.mean_load_share": "mean load",
    "power.all_in_ratio": "power provisioned per watt of TDP",
}


class Ranking(NamedTuple):
    """Costs of systems that are drawn against each other: model and request, prices by system, kind of software."""

    which: str
    ask: tuple[Transformer, Request]
    pricing: Mapping[str, rents.Rent | Cost]
    software: str


def own_prices(texts: Iterable[str], owner: str, pricing: str, region: str) -> Inputs:
    """Return the prices in force with the reader's in their place; raise UnanswerableError for a wrong parameter."""
    one_of(rents.PRICINGS, pricing=pricing)
    one_of([name for name, it in load.entities().items() if it.kind == "owner" and name != "owner"], owner=owner)
    places = {price.place for price in rents.prices()}
    known = not region or any(place.startswith(region) for place in places)
    need(known, f"region = {region!r}: no published price names it")
    try:
        return parse_inputs(texts, priced.prices(), priced.owner(owner), pricing, region or None)
    except ValueError as error:
        raise UnanswerableError(" ".join(str(error).split())) from None


def must_cost(owned: TokenCosts, system: str) -> None:
    """Raise ImpossibleError unless a system has an owner's cost on public software."""
    one = owned[system, "public"]
    assert one.owned is not None  # they are owners' costs
    possible(bool(np.all(one.owned.valid)), f"an hour on system = {system!r} has no cost: {one.owned.reason}")
    possible(bool(np.all(one.valid)), f"{one.model.id} on system = {system!r}, public software: {one.reason}")


def rows(costs: TokenCosts, **columns: Any) -> pd.DataFrame:
    """Return a row for each system and kind of software of a cost, with constant `columns` in front.

    Returns
    -------
    table : pandas.DataFrame
        model, promised_tokens_per_s_per_user, system, software, usd_per_mtoken with `_low` and `_high` (NaN where there
        is none) of a generated token with its prompt, chip_s (of the same), chance, usd_per_chip_h, basis, reason.
    """
    return tidy(columns | _row(one) for one in costs.lines)


def all_rows(costs: Mapping[str, TokenCosts]) -> pd.DataFrame:
    """Return the `rows` of all questions below each other."""
    import pandas as pd

    return pd.concat(map(rows, costs.values()), ignore_index=True)


def _row(one: TokenCost) -> dict[str, Any]:
    row: dict[str, Any] = {"model": one.model.id, SPEED: one.promised_tokens_per_s_per_user}
    row |= {"system": one.system.id, "software": one.stack_kind}
    value = float(one.generated_usd_per_mtoken)
    ends = [float(end) for end in one.ends(one.FIGURE)] if np.isfinite(value) else [np.nan, np.nan]
    row |= dict(zip(ENDS, (value, *ends), strict=True))
    row |= {"chip_s": one.chip_s(), "chance": one.chance, "usd_per_chip_h": float(one.usd_per_chip_h)}
    return row | {"basis": str(one.basis), "reason": str(one.reason)}


def bars(owned: TokenCosts, rented: TokenCosts, sold: TokenCosts | None = None) -> pd.DataFrame:
    """Return the rows on public software with a cost, cheapest to own first; sellers of tokens last.

    `sold` are costs at market rents, those of sellers other than AWS.

    A row of a company that sells tokens has its name in column `system`, and no range.
    """
    import pandas as pd

    some = [rows(owned, paid="owned"), rows(rented, paid=CUSTOMER)]
    table = pd.concat([*some, *([] if sold is None else [rows(sold, paid=OTHERS)])], ignore_index=True)
    table = table[(table.software == "public") & table.usd_per_mtoken.notna()]
    place = {name: i for i, name in enumerate(table.sort_values(["paid", ENDS[0]], kind="stable").system.unique())}
    table = table.assign(place=table.system.map(place)).sort_values(["place", "paid"], kind="stable", ignore_index=True)
    hosted = sellers({"": rented}).sort_values("api_generated_usd_per_mtoken", kind="stable")
    price = dict.fromkeys(ENDS, hosted.api_generated_usd_per_mtoken)
    more = hosted[["model"]].assign(paid=CUSTOMER, system="sold by " + hosted.seller, software="public", **price)
    return pd.concat([table, more.assign(basis="measured")], ignore_index=True) if len(more) else table


def customer(costs: TokenCosts, system: str) -> TokenCost | None:
    """Return what a customer who rents pays on public software: on a system, else on the cheapest with NeuronCores.

    None where none of them has a published rent and keeps the promise.
    """
    some = [one for one in costs.of("public") if one.valid and (one.system.id == system or one.system.chip.core)]
    return min(some, key=lambda one: (one.system.id != system, float(one.generated_usd_per_mtoken)), default=None)


def compared(costs: TokenCosts, software: str) -> bool:
    """Return whether several systems have a cost on a kind of software that may be ranked, and any input is open."""
    some = [one for one in costs.lines if one.stack_kind == software and np.all(one.valid) and one.ranks]
    return len(some) > 1 and any(one.uncertain() for one in some)


def rankings(owned: Mapping[str, TokenCosts], rented: Mapping[str, TokenCosts]) -> Iterator[Ranking]:
    """Yield what is drawn against each other, by question: owned and rented on public software, owned on ideal."""
    for question in owned:
        cases = (owned, "owned", "public"), (rented, "rented", "public"), (owned, "owned", "ideal")
        for costs, paid, software in cases:
            if compared(costs[question], software):
                q = costs[question].question
                prices = {one.system.id: one.owned or one.rent for one in costs[question].lines}
                yield Ranking(f"{q.model.id}, {paid}, {software}", (q.model, q.request), prices, software)


def winners(wins: pd.DataFrame, which: str) -> pd.DataFrame:
    """Return the shares of draws in which each system is the cheapest.

    Examples
    --------
    >>> import pandas as pd
    >>> shares = pd.DataFrame({"answer": ["hgx-h100", "hgx-h200"], "wins": [0.0, 0.25]})
    >>> winners(shares, "q").to_dict("records")
    [{'which': 'q', 'system': 'hgx-h100', 'share': 0.0}, {'which': 'q', 'system': 'hgx-h200', 'share': 0.25}]
    """
    table = wins.rename(columns={"answer": "system", "wins": "share"})
    return table.assign(which=which)[["which", "system", "share"]].reset_index(drop=True)


def all_of(shares: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the `winners` of all contests below each other."""
    import pandas as pd

    return pd.concat([pd.DataFrame({"which": [], "system": [], "share": []}), *shares], ignore_index=True)


def shares(entries: Sequence[pd.DataFrame]) -> Any:
    """Return the table of the `winners` of all contests, with a column for each; a sentence where nobody was compared.

    Examples
    --------
    >>> import pandas as pd
    >>> one = pd.DataFrame({"which": "q", "system": ["hgx-h100", "hgx-h200"], "share": [0.004, 0.996]})
    >>> shares([one]).frame.to_dict("records")
    [{'system': 'hgx-h200', 'q': 'over 99%'}, {'system': 'hgx-h100', 'q': 'under 1%'}]
    """
    if not entries:
        return Markdown("No two of these systems keep the promise at a known cost, so nobody wins.")
    table = all_of(entries)
    wide = table.pivot_table(index="system", columns="which", values="share", sort=False)
    order = wide.fillna(0).sum(axis=1).sort_values(ascending=False, kind="stable").index
    shown = wide.loc[order].map(lambda share: percent(share).replace(" %", "%") if share >= 0 else "–").reset_index()
    shown.columns.name = None
    return charts.table(shown, caption="How often a token of each system is the cheapest", download="shares")


def overlapping(
    owned: TokenCosts, rented: TokenCosts, sold: TokenCosts | None = None, buyer: TokenCost | None = None
) -> str:
    """Return who is the cheapest on public software over the whole range, to own and to rent, and at market rents."""
    first = dict[str, str]()
    for paid, one in {"to own": owned, "to rent": rented}.items():
        ends = {c.system.name: market.ends(c) for c in one.of("public") if np.all(c.valid) and not c.rent.why}
        if len(ends) > 1:
            least = min(ends, key=lambda name: ends[name][2])
            wins = all(ends[least][2] < low for name, (_, low, _) in ends.items() if name != least)
            first[paid] = least if wins else ""
    if not first:
        return ""
    who = {name: " and ".join(paid for paid, one in first.items() if one == name) for name in first.values() if name}
    open_ = " or ".join(paid for paid, one in first.items() if not one)
    said = [f"{name} {paid}" for name, paid in who.items()] + ([f"nobody {open_}"] if open_ else [])
    why = ": the ranges overlap, which is a tie" if open_ else ""
    text = " and ".join(said)
    text = f"**Who wins?** {text[0].upper()}{text[1:]}{why}."
    gpus = [c for c in rented.of("public") if np.all(c.valid) and not c.rent.why and c.system.chip.core is None]
    if sold is None or buyer is None or not gpus:
        return text
    rival = min(gpus, key=lambda c: float(c.generated_usd_per_mtoken))
    return f"{text} {market.turned(buyer, rival.system.id, sold)}".strip()


def answer(
    own: TokenCost,
    rent: TokenCost | None,
    sold: pd.DataFrame,
    *,
    same: TokenCost | None = None,
    plain: Sequence[Any] = (),
    wins: str = "",
) -> str:
    """Return the card: what a customer pays who rents, what the owner and the cheapest seller ask, who wins, how sure.

    Parameters
    ----------
    own : TokenCost
        Cost to the owner of the chapter's system. [-]
    rent : TokenCost or None
        Cost to a `customer`; without one the card opens with the owner's. [-]
    sold : pandas.DataFrame
        The `sellers` of the model. [-]
    same : TokenCost, optional
        Cost to the owner of the system that is rented. [-]
    plain : sequence of Choice
        What it makes without drafts, if its figure rests on them. [-]
    wins : str
        Who is the cheapest, in a sentence. [-]
    """
    first, counted = rent or own, own.owned is not None and "server as sold" not in own.owned.parts_usd
    who = "a customer who rents" if rent else "the owner of"
    seller = sold.loc[sold.api_generated_usd_per_mtoken.idxmin()] if len(sold) else None
    others = []
    if rent and same is not None and np.all(same.valid):
        others.append(rf"its owner pays \${float(same.generated_usd_per_mtoken):.2f}")
    if seller is not None:
        asked = float(seller.api_generated_usd_per_mtoken)
        others.append(rf"the seller {seller.seller} asks \${asked:.2f} for the same tokens")
    return card(
        rf"\${first.in_words(first.FIGURE, basis=str(first.basis))}",
        f"what a million generated tokens of `{first.model.id}`, prompts paid, cost {who} {first.system.name} on "
        "public software at the promised speed",
        mark="",
        rank="Compared with",
        rival=" and ".join(others),
        alone="" if others else "nobody sells tokens of this model at a known price",
        proof="Check against prices that are not ours",
        more=f"{wins}{_bought(rent, seller)}\n\n"
        "**How sure?** The range in brackets holds nine of ten draws of software and prices. "
        f"{_without(rent, plain)}{_whose(own) * counted} {_rests(first.stack.id)}".strip(),
    )


def _without(rent: TokenCost | None, plain: Sequence[Any]) -> str:
    """Return that a rented token rests on drafts, and what it costs without; empty if it does not."""
    said = drafts.priced(float(rent.rent.usd_per_chip_h), plain) if rent is not None else ""
    return f"The figure rests on {drafts.LINKED}.{said} " if said else ""


def _rests(stack: str) -> str:
    """Return how many of our own estimates a figure rests on."""
    return ledger.rests_on(stack).replace("It rests", "The times rest", 1)


def _bought(rent: TokenCost | None, seller: Any) -> str:
    """Return how many times cheaper the cheapest seller is than renting; empty where either is missing."""
    if rent is None or seller is None:
        return ""
    times = float(rent.generated_usd_per_mtoken) / float(seller.api_generated_usd_per_mtoken)
    if times < 1:
        return f" Renting {rent.system.name} is cheaper than buying tokens if it is busy all day."
    return f" Renting costs {format_digits(times, 2)} times as much as buying tokens from the cheapest seller."


def _whose(one: TokenCost) -> str:
    """Return who owns a chip whose parts we count, and that its cost is our estimate."""
    name, amazon = one.system.chip.name, one.system.chip.core is not None
    return f"Nobody publishes what a {name} costs{' Amazon' * amazon}, so its price is our estimate."


def movable(hours: Mapping[str, Cost]) -> list[str]:
    """Return the systems whose hour depends on the price and the watts of a chip: those whose parts are counted."""
    return [name for name, cost in hours.items() if np.all(cost.valid) and "HBM" in cost.parts_usd]


def live(owned: Mapping[str, TokenCosts], hours: Mapping[str, Cost], moved: Mapping[str, Cost], under: str) -> Any:
    """Return the chart of `cost_whatif` for owners' costs by question; a sentence where no price of a chip counts."""
    planes = {name: whatif.plane(hours[name], cost) for name, cost in moved.items()}
    frame = whatif.grid({name: rows(costs) for name, costs in owned.items()}, planes)
    choices = [name for name in moved if name in set(frame.system)]
    if not choices:
        return Markdown("Each of these systems is sold as a server, or too slow, so that no price of a chip moves it.")
    return whatif.what_if(
        frame,
        choices,
        share=100 * float(frame[frame.system == choices[0]].public_share.iloc[0]),
        caption="What a token costs at your price, power and software",
        under=under,
    )


def tie_rows(
    request: str,
    system: str,
    at_one: pd.DataFrame,
    rented: pd.DataFrame,
    owned: pd.DataFrame,
    sold: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the ties of one system with its rival on public and ideal software, as numbers.

    Parameters
    ----------
    request : str
        What is asked, as the table calls it. [-]
    system : str
        The system that ties. [-]
    at_one, rented, owned : pandas.DataFrame
        `break_even` where both cost $1 per chip-hour, at the rival's rent, and at its cost to the owner. [-]
    sold : pandas.DataFrame, optional
        The same at the rival's market rent. [-]

    Returns
    -------
    table : pandas.DataFrame
        request, software, and with `_low` and `_high` rival_hours (hours of the rival that a chip-hour of the system
        replaces), rent_usd_per_h, market_usd_per_h if asked for, and owner_usd_per_h of the system at a tie.
    """
    names = {"rival_hours": at_one, "rent_usd_per_h": rented}
    names |= {} if sold is None else {"market_usd_per_h": sold}
    names |= {"owner_usd_per_h": owned}
    entries = []
    for software in SHOWN:
        row: dict[str, Any] = {"request": request, "software": software}
        for name, table in names.items():
            one = table[(table.system == system) & (table.software == software)]
            row |= {f"{name}{end}": _only(one[f"break_even_usd_per_chip_h{end}"]) for end in ENDS_OF}
        entries.append(row)
    return tidy(entries)


def _only(values: pd.Series) -> float:
    return float(values.iloc[0]) if len(values) else np.nan


def ties(
    entries: Sequence[pd.DataFrame], hours: Mapping[str, Cost], rent: rents.Rent, spec: System, other: System
) -> Table:
    """Return the table of several `tie_rows`, with what a chip of the system may cost its owner at the tie.

    Parameters
    ----------
    entries : sequence of pandas.DataFrame
        Ties of `spec` with `other`. [-]
    hours : mapping of Cost
        Owner's hours by system. [-]
    rent : Rent
        Rent of the other system. [-]
    spec, other : System
        The system that ties, and the one with which it does. [-]
    """
    import pandas as pd

    table = pd.concat(entries, ignore_index=True)
    heads = {
        "rival_hours": "replaces [rival's hours]",
        "rent_usd_per_h": "rent [$/h]",
        "market_usd_per_h": "rent, at other sellers' price of the rival [$/h]",
        "owner_usd_per_h": "owner's cost [$/h]",
    }
    shown = table[["request", "software"]].copy()
    for name, head in ((name, head) for name, head in heads.items() if name in table):
        ends = zip(*(table[f"{name}{end}"] for end in ENDS_OF), strict=True)
        shown[head] = [format_within(*three) if np.isfinite(three[0]) else "-" for three in ends]
    shown[f"its {'server' if _part(hours[spec.id]) == 'server_usd' else 'chip'} [$]"] = [
        _price_at(hours[spec.id], usd) for usd in table.owner_usd_per_h
    ]
    own = format_digits(float(hours[other.id].useful_usd_per_h), 3)
    paid = "no published rent" if rent.why else f"${format_digits(float(rent.usd_per_chip_h), 3)} rented"
    caption = f"A chip-hour of {spec.name} ties at these prices with {other.name} ({paid}, ${own} owned)"
    return charts.table(shown, caption=caption, download="ties")


def _part(cost: Cost) -> str:
    """Return whose price an owner pays: that of a chip, or of a server over its chips."""
    return "server_usd" if "server as sold" in cost.parts_usd else "chip_usd"


def _price_at(cost: Cost, usd_per_h: float) -> str:
    """Return what the chip, or the server, may cost for an hour of this price; "none" where even a gift costs more."""
    if not np.isfinite(usd_per_h):
        return "-"
    usd = float(cost.break_even(_part(cost), useful_usd_per_h=usd_per_h))
    return format_digits(usd, 2) if usd > 0 else "none"


def choices(costs: Mapping[str, TokenCosts], spec: System) -> Table:
    """Return the table of what tokens cost on public software at several prices of an hour, and what sellers charge.

    Parameters
    ----------
    costs : mapping of TokenCosts
        By who pays. [-]
    spec : System
        Their system. [-]
    """
    entries, one = [], next(iter(costs.values()))
    for who, each in costs.items():
        line = each[spec.id, "public"]
        row: dict[str, Any] = {"who pays": who, "usd_per_chip_h": float(line.usd_per_chip_h)}
        for name, head in (
            ("generated_usd_per_mtoken", "at full load [$ per million tokens]"),
            (
                "at_load_usd_per_mtoken",
                "at my load [$ per million tokens]",
            ),
        ):
            row[head] = line.in_words(name)
        entries.append(row)
    for seller in sellers({"": one}).to_dict("records"):
        price = format_digits(seller["api_generated_usd_per_mtoken"], 3)
        row = {"who pays": f"bought from {seller['seller']} ({seller['date']})", "usd_per_chip_h": np.nan}
        entries.append(row | {f"{when} [$ per million tokens]": price for when in ("at full load", "at my load")})
    return charts.table(tidy(entries), caption=f"{one.question.model.id} on {spec.name}", download="own-prices")


def sellers(costs: Mapping[str, TokenCosts]) -> pd.DataFrame:
    """Return what sellers charge for tokens of the models, per million and per million generated ones with prompts."""
    import pandas as pd

    tables = [each.hosted().assign(model=each.question.model.id) for each in costs.values()]
    every = pd.concat([one for one in tables if len(one)]) if any(map(len, tables)) else pd.DataFrame(columns=SELLERS)
    return every.drop_duplicates(["model", "seller", "date"])[SELLERS].reset_index(drop=True)


def seller_sources(costs: Mapping[str, TokenCosts]) -> set[str]:
    """Return the ids of the sources of sellers' prices."""
    return set(sellers(costs).source)


def named(label: str) -> str:
    """Return the reader's name of an uncertain input.

    Examples
    --------
    >>> named("owner.life_years"), named("prefill of vllm-neuron-2026 on trainium3"), named("TDP of trainium3")
    ('years of life', 'speed of prompts on this software', 'TDP of trainium3')
    """
    spec, _, field = label.partition(".")
    if field and spec in ("prices", "owner", "power"):
        return INPUTS.get(label, field.replace("_", " "))
    phases = {"prefill of ": "speed of prompts", "decode of ": "speed of decode steps"}
    entries = next((said for start, said in phases.items() if label.startswith(start)), "")
    return f"{entries} on this software" if entries else label


def bars_of(table: pd.DataFrame, value: float) -> pd.DataFrame:
    """Return the inputs that move a cost most, each at its 5th and 95th percentile, as bars.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"input": "owner.life_years", "answer_low": 1.2, "answer_high": 0.9, "swing": 0.3}
    >>> bars_of(pd.DataFrame([row]), 1.0).drop(columns="basis").values.tolist()
    [['years of life', 1.0, 0.9, 1.2]]
    """
    import pandas as pd

    some = table[np.isfinite(table.swing) & (table.swing > 1e-3 * value)].head(BARS)
    ends = some[["answer_low", "answer_high"]].assign(value=value)
    columns = {"which": some.input.map(named), ENDS[0]: value, ENDS[1]: ends.min(axis=1), ENDS[2]: ends.max(axis=1)}
    return pd.DataFrame(columns).assign(basis="extrapolated").reset_index(drop=True)


def tornado(table: pd.DataFrame, one: TokenCost) -> Any:
    """Return the chart of what moves a cost most, from its tornado."""
    some = bars_of(table, float(one.generated_usd_per_mtoken))
    under = f"{one.model.id} at {one.promised_tokens_per_s_per_user:g} tokens/s on {one.system.name}, public, owned"
    caption = f"Most hangs on the {some.which.iloc[0]}"
    return charts.ranges(some, x="usd_per_mtoken", y="which", caption=caption, under=under)


def printed_hours() -> pd.DataFrame:
    """Return what SemiAnalysis prints of an owner's chip-hour: system, owner, money_year (of its date), usd_per_h.

    Examples
    --------
    >>> printed_hours().iloc[0].to_dict()
    {'system': 'hgx-h100', 'owner': 'hyperscaler', 'money_year': 2025.625, 'printed_usd_per_h': 1.3}
    """
    entries = []
    for name in PRINTED:
        for owner in ("hyperscaler", "neocloud"):
            fact, value, _ = load.fact_in_force(read_system(name).chip.id, "owner_usd_per_h", owner)
            year, month = map(int, priced.dated(fact).date.split("-"))
            row = {"system": name, "owner": owner, "money_year": year + (month - 0.5) / MONTHS}
            entries.append(row | {"printed_usd_per_h": value})
    return tidy(entries)


def printed_questions(printed: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `tm.tco` for each of the `printed_hours`, at prices of its month."""
    for one in printed.itertuples():
        then = priced.prices().moved({"money_year": one.money_year})
        yield {"system": one.system, "owner": one.owner, "prices": then}


def rents_table(systems: Iterable[System], mine: Inputs) -> pd.DataFrame:
    """Return rents per chip-hour, and per hour of a PFLOP/s and a TB/s, with place, date and age of the price."""
    return tidy(_rented(spec, mine.rent(spec)) for spec in systems)


def _rented(spec: System, one: rents.Rent) -> dict[str, Any]:
    row: dict[str, Any] = {"system": spec.id, "pricing": one.pricing, "why": one.why}
    if one.why:
        return row
    for of, value in one.rates().set_index("of").iterrows():
        row |= {f"{of}{end}": value[f"usd_per_h{end}"] for end in ("", "_low", "_high")}
    return row | {"places": ", ".join(sorted(one.places)), "date": one.date, "age_days": one.age_days()}


def every_price() -> pd.DataFrame:
    """Return every published price of an hour, in force or not."""
    return rents.price_table()


def hours_table(hours: Mapping[str, Cost]) -> pd.DataFrame:
    """Return an owner's chip-hour by system: its parts, its capital and its watts, each with its range."""
    return tidy(_hour(name, cost) for name, cost in hours.items())


def _hour(name: str, cost: Cost) -> dict[str, Any]:
    row: dict[str, Any] = {"system": name, "owner": cost.owner.id, "reason": str(cost.reason)}
    for figure in ["usd_per_h", "capital_usd", "all_in_w", *(f"{part}_usd_per_h" for part in cost.by_part().part)]:
        low, high = cost.ends(figure)
        row |= {figure: getattr(cost, figure), f"{figure}_low": low, f"{figure}_high": high}
    return row


def bills(hours: Mapping[str, Cost]) -> pd.DataFrame:
    """Return the bills of materials of all systems that have one, part by part."""
    import pandas as pd

    return pd.concat([cost.bill().assign(system=name) for name, cost in hours.items()], ignore_index=True)


def delays(hours: Mapping[str, Cost]) -> pd.DataFrame:
    """Return what an earlier delivery gains per chip, and the price that a cent per chip-hour pays for, by system."""
    return tidy(
        {
            "system": name,
            "capital_usd": float(cost.capital_usd),
            "cent_per_hour_pays_usd": float(saving_usd(cost, 0.01)),
        }
        | {f"USD, early by months: {months}": float(delay_usd(cost, months)) for months in (1, 3, 6, 12)}
        for name, cost in hours.items()
        if np.all(cost.valid)
    )


def sources(systems: Iterable[System], mine: Inputs) -> set[str]:
    """Return the ids of the sources of rents, prices and rates."""
    return load.fact_sources(mine.prices, mine.owner, *map(mine.rent, systems)) - {"project"}
