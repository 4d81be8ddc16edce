"""The lines of a sized plan: instances, users, bill, power, lost hours, what stands beside it, what flips the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.formulas.tco import HOURS_PER_YEAR
from trnmodel.search import plan_card
from trnmodel.search.capacity import Capacity
from trnmodel.search.choice import Choice
from trnmodel.search.compare import flips_in_words
from trnmodel.search.flips import Flips
from trnmodel.search.price_ties import ties_in_words
from trnmodel.units import counted, format_digits, format_quantity, format_within

if TYPE_CHECKING:
    from trnmodel.search.plan import Plan

RIVALS = 2  # GPU systems, or named ones, that stand beside the best
SURE = 0.9999  # availability from which on a share is printed as more than this


def lines(p: Plan) -> list[str]:
    """Return the answer on one screen, most important first."""
    c, sized = p.best, p.capacity
    if not c or sized is None or not sized.valid:
        return plan_card.lines(p)
    priced = p.for_rent if np.isnan(sized.usd_per_month) and p.for_rent else None
    return [
        f"{p.model.id}, {p.request.describe()}{_limit(sized)}.",
        _best(c, sized, bool(p.gpus)),
        *plan_card.ties(p),
        plan_card.configuration(c),
        *plan_card.documented(c),
        *plan_card.one_constant(c),
        _users(c, sized),
        *_bills(sized, p.capacity_of(priced) if priced else None),
        _power(sized),
        _lost(sized),
        *_side_by_side(p, [c, *([priced] if priced else []), *_rivals(p, c)]),
        *_flipped(p),
        *plan_card.others(p, None),
        *plan_card.start(p),
    ]


def _limit(sized: Capacity) -> str:
    """Return the limit and the availability of the demand in words."""
    d = sized.question
    said = {
        "chips": lambda: counted(d.chips or 0.0, "chip"),
        "site_w": lambda: f"{(d.site_w or 0.0) / 1e6:,.4g} MW at {d.site(sized.system).id}",
        "usd_per_month": lambda: f"${d.usd_per_month:,.0f} per month",
    }
    parts = [f"; limit {said[d.limit]()}"] if d.limit else []
    parts += [f"; {d.users:,g} users decoding at that speed"] if d.users is not None else []
    parts += [f"; available {_percent(d.availability)} of the time"] if d.availability is not None else []
    return "".join(parts)


def _percent(share: float) -> str:
    """Return a share as a percentage, with the nines that it has."""
    return f"{100 * share:.6g} %"


def _best(c: Choice, sized: Capacity, only_trainium: bool) -> str:
    """Return how many instances of the best system serve the demand, and how sure that is."""
    spare = f" and {sized.spare_instances:g} spare" if sized.spare_instances else ""
    count = f"{_instances(sized, str(c.basis))}{spare}, {counted(sized.chips, 'chip')}"
    what = f"{count} of {plan_card.named(c)} with {c.stack.kind} software"
    made = f"{format_digits(sized.requests_per_s, 3)} requests/s, {sized.in_words('tokens_per_s', 'tokens/s')}"
    return f"Best{' Trainium' if only_trainium else ''}: {what}: {made}{plan_card.chance(c)}."


def _instances(sized: Capacity, basis: str = "") -> str:
    """Return the whole instances that serve, with their band."""
    low, high = (format_digits(float(end), 2) for end in sized.ends("instances"))
    band = "; ".join(filter(None, (f"{low} to {high}" if low != high else "", basis)))
    return counted(sized.instances, "instance") + (f" ({band})" if band else "")


def _users(c: Choice, sized: Capacity) -> str:
    """Return how many users decode and how many wait, and what one gets."""
    decode, wait = (sized.in_words(f"{name}_users") for name in ("decoding", "waiting"))
    speed, first = c.in_words("tokens_per_s_per_user", "tokens/s"), c.in_words("ttft_s", "s")
    late = f"{c.question.request.ttft_percentile:g} % of first tokens come within {first}"
    return f"Users: each runs at {speed}, so that {decode} decode at any moment and {wait} wait or prefill; {late}."


def _bills(sized: Capacity, other: Capacity | None) -> list[str]:
    """Return the bill of the best system line by line, and that of the best one for rent where it is another."""
    return [line for one in (sized, other) if one is not None for line in _bill(one, own=one is sized)]


def _bill(sized: Capacity, own: bool) -> list[str]:
    """Return the lines of a bill."""
    lines = []
    for row in sized.bill_lines():
        if row.kind == "hosted" and not own:
            continue
        if np.isnan(row.usd_per_month):
            lines.append(f"{row.kind}: {row.why}")
            continue
        usd = _usd(row.usd_per_month, row.usd_per_month_low, row.usd_per_month_high)
        name = f"hosted by {row.pricing}, for the same tokens" if row.kind == "hosted" else row.pricing
        place = "" if row.kind == "hosted" else _places(row.places)
        lines.append(f"{name}: {usd}{_bracketed(place, row.date)}")
    head = f"Bill per month of {sized.system.id}:"
    if not own:
        head = f"For rent today, bill per month of {_instances(sized)} of {sized.system.id}:"
    return [head, *(f"  {line}" for line in lines)]


def _places(places: str) -> str:
    """Return the first place of a price, and how many others it has."""
    first, *more = places.split(", ")
    return f"{first} and {counted(len(more), 'other')}" if more else first


def _bracketed(*parts: str) -> str:
    """Return what is not empty in brackets; nothing where all is."""
    known = ", ".join(filter(None, parts))
    return f" ({known})" if known else ""


def _usd(usd: float, low: float, high: float) -> str:
    """Return dollars with their band, in three digits without one."""
    return f"${format_within(usd, low, high) if low < high else format_digits(usd, 3)}"


def _power(sized: Capacity) -> str:
    """Return watts and joules per token at the server and at the site."""
    server, site = (sized.in_words(f"mean_{name}_w", "W") for name in ("server", "site"))
    at_server, at_site = (sized.energy.in_words(f"{name}_j_per_token", "J") for name in ("server", "facility"))
    provisioned = format_quantity(sized.provisioned_site_w, "W", 2)
    more = f", {provisioned} provisioned" if np.isfinite(sized.provisioned_site_w) else ""
    watts = f"{server} at the servers and {site} at the site {sized.question.site(sized.system).id}{more}"
    return f"Mean power: {watts}; {at_server} per token at the server, {at_site} at the site."


def _lost(sized: Capacity) -> str:
    """Return the hours of a year in which fewer replicas run than the demand needs, and what causes them."""
    hours = sorted(sized.lost_h_by_cause.items(), key=lambda one: -one[1])
    out = sum(each for _, each in hours)
    causes = ", ".join(f"{cause} {100 * each / out:.0f} %" for cause, each in hours if each >= 0.005 * out)
    spare = sized.spare_instances
    less = f" ({_percent_of(sized.availability_without_spares)} without spares)" if spare else ""
    each = f"a replica is out for {format_digits(out, 2)} of {HOURS_PER_YEAR:,.0f} h per year ({causes})"
    mean = f"on average {_percent_of(1 - out / HOURS_PER_YEAR)} of the replicas run"
    every = f", all {sized.replicas:,.0f} at once {_percent_of(sized.availability)} of the time{less}"
    return f"Lost hours: {each}; {mean}{every if sized.replicas > 1 else ''}."


def _percent_of(share: float) -> str:
    """Return a share as a percentage of four digits; of more than 99.99 % only that."""
    return f"over {100 * SURE:g} %" if share > SURE else f"{format_digits(100 * share, 4)} %"


def _rivals(p: Plan, best: Choice) -> list[Choice]:
    """Return what stands beside the best: GPUs that can be rented, else the next systems that were named."""
    some = [c for c in p.gpus if c.valid] or [c for c in p.choices if c.valid and c is not best]
    return some[:RIVALS]


def _side_by_side(p: Plan, choices: Sequence[Choice]) -> list[str]:
    """Return a table of systems side by side."""
    several = [(c, p.capacity_of(c)) for c in dict.fromkeys(choices)]
    rows = [_row(c, one) for c, one in several if one.valid]
    if len(rows) < 2:
        return []
    pricing = several[0][1].question.pricing
    rented = f"rented by {pricing}" if isinstance(pricing, str) else "at your own prices"
    full = [_full_row(c, one.full) for c, one in several if one.valid]
    return [
        f"Side by side, {rented}:",
        *(f"  {line}" for line in _aligned(rows)),
        "The same with every replica full, as trnmodel compare and the first page of the book count:",
        *(f"  {line}" for line in _aligned(full)),
    ]


def _aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return rows as lines of columns, with their names above; the first two columns begin, the others end, alike."""
    cells = [dict(zip(rows[0], rows[0], strict=True)), *rows]
    widths = {name: max(len(row[name]) for row in cells) for name in rows[0]}
    left = list(rows[0])[:2]
    return [
        "  ".join(text.ljust(widths[name]) if name in left else text.rjust(widths[name]) for name, text in row.items())
        for row in cells
    ]


def _row(c: Choice, one: Capacity) -> dict[str, str]:
    """Return a row of the table of systems side by side."""
    spare = f" + {one.spare_instances:g}" if one.spare_instances else ""
    return {
        "system": c.place,
        "status": c.system.status,
        "instances": f"{one.instances:,.0f}{spare}",
        "tokens/s": _digits(one.tokens_per_s),
        "rent $/month": _digits(one.usd_per_month),
        "owned $/month": _digits(one.owned_usd_per_month),
        "mean kW": _digits(one.mean_site_w / 1e3),
        "chance": f"{100 * c.chance:.0f} %",
    }


def _full_row(c: Choice, full: Capacity) -> dict[str, str]:
    """Return a row of the table of what a chip makes, and a token takes, where replicas are full."""
    return {
        "system": c.place,
        "status": c.system.status,
        "tokens/s per chip": full.choice.in_words(c.FIGURE),
        "rent $/Mtok": _digits(full.usd_per_mtoken),
        "owned $/Mtok": _digits(full.owned_usd_per_mtoken),
        "J/token at server": _digits(full.server_j_per_token),
        "first token": full.choice.in_words("ttft_s", "s"),
    }


def _digits(value: float) -> str:
    """Return a number in two digits; a dash where it is unknown."""
    return "-" if np.isnan(value) else format_digits(value, 2)


def _flipped(p: Plan) -> list[str]:
    """Return what would flip the order of the best system and its rival."""
    flips = p.flips()
    if flips is None:
        return []
    best, rival = flips.best, flips.rival
    ratio, where = p.merit(rival) / p.merit(best), f"{best.place}"
    per = "within the limit" if p.demand and p.demand.limit else "per paid chip"
    made = f"it makes {format_digits(ratio, 2)} times as many tokens {per} as {where}"
    parts = [f"What would flip the order against {plan_card.named(rival)}: {made}."]
    parts += [f"  Price: {where}: {line}." for line in ties_in_words(flips.price)]
    turns = flips_in_words(flips.speeds) or ["the order per chip stays the same at every speed"]
    parts += [f"  Speed: {line}." for line in turns]
    return [*parts, *([f"  Software: {_software(flips)}."] if flips.software else [])]


def _software(flips: Flips) -> str:
    """Return which other software on the best system would overtake the rival."""
    rival = flips.rival.merit()
    texts = (
        f"{c.stack.kind} makes {format_digits(c.merit(), 2)} tokens/s per paid chip on {c.place}, "
        + ("more" if c.merit() > rival else "still less")
        for c in flips.software
    )
    return "; ".join(texts) + f" than the {format_digits(rival, 2)} of {flips.rival.place}"
