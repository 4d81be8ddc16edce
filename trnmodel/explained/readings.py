"""Facts behind the specs of an answer, which of them can be moved, and what other sources print in their place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from typing import Any, NamedTuple

from trnmodel.catalog import load
from trnmodel.catalog.rents import Rent
from trnmodel.catalog.rents import prices as published_prices
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.tables import Fact

SAME = 1e-9  # relative difference up to which a field holds what its fact prints
FROM_CALL = "given with the call"
Place = tuple[type, str, str]  # kind of a spec, its id, and a field as `Spec.at` names it


class Reading(NamedTuple):
    """A number that an answer may stand on: the fact, or nothing where the number was given with the call.

    `places` are the fields that hold it, each with how much of a relative change of the number the field follows. A
    count shapes a graph or a bill, and has no small change.
    """

    id: str
    fact: Fact | None
    quantity: str
    about: str
    value: float
    unit: str
    places: Mapping[Place, float]
    is_count: bool


class Rival(NamedTuple):
    """What another source prints of the same thing, and the fields that it would stand in."""

    fact: Fact
    value: float
    status: str
    factors: Mapping[Place, float]


def specs_within(spec: Spec) -> Iterator[Spec]:
    """Yield a spec and those that it holds, such as the chip of a system and the engines of its core."""
    yield spec
    for one in fields(spec):
        held = getattr(spec, one.name)
        if isinstance(held, Spec):
            yield from specs_within(held)


def moved(spec: Spec, factors: Mapping[Place, float]) -> Spec:
    """Return a spec in which some fields, at any depth, are so many times what they are.

    Examples
    --------
    >>> import trnmodel as tm
    >>> from trnmodel.catalog.specs import Chip
    >>> faster = moved(tm.system("trn2.48xlarge"), {(Chip, "trainium2", "hbm_bytes_per_s"): 2.0})
    >>> faster.chip.hbm_bytes_per_s
    5800000000000.0
    """
    inner: dict[str, Any] = {}
    for one in fields(spec):
        held = getattr(spec, one.name)
        if isinstance(held, Spec):
            there = moved(held, factors)
            if there is not held:
                inner[one.name] = there
    own = {label: spec.at(label) * by for (kind, name, label), by in factors.items() if (kind, name) == _key(spec)}
    if not inner and not own:
        return spec
    return replace(spec.moved(own), **inner)


def _key(spec: Spec) -> tuple[type, str]:
    return type(spec), spec.id


def _numbers(spec: Spec) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a spec that are stated, finite and not zero, each as `Spec.at` names it."""
    for one in fields(spec):
        held = getattr(spec, one.name)
        items = held.items() if isinstance(held, Mapping) else [("", held)]
        for key, value in items:
            label = f"{one.name}[{key}]" if key else one.name
            stated = label in spec.sources or one.default is MISSING or one.default != value
            if stated and isinstance(value, float) and math.isfinite(value) and value:
                yield label, value


def readings(specs: Iterable[Spec]) -> list[Reading]:
    """Return the numbers behind some specs, those of one fact together, in the order in which they are met.

    A number of a spec that is no longer what its fact prints was given with the call, and stands by itself.

    Examples
    --------
    >>> import trnmodel as tm
    >>> some = {one.id: one for one in readings([tm.chip("trainium2")])}
    >>> peaks = some["trainium2/peak_flop_per_s:bf16|fp16|tf32/ah-trainium2"]
    >>> sorted(label for _, _, label in peaks.places)
    ['peak_flop_per_s[bf16]', 'peak_flop_per_s[fp16]', 'peak_flop_per_s[tf32]']
    """
    by_id: dict[str, Reading] = {}
    for spec in (each for one in specs for each in specs_within(one)):
        for label, value in _numbers(spec):
            for reading in _of_field(spec, label, value):
                before = by_id.get(reading.id, reading)
                is_count = before.is_count or reading.is_count
                by_id[reading.id] = reading._replace(places={**before.places, **reading.places}, is_count=is_count)
    return list(by_id.values())


def _of_field(spec: Spec, label: str, value: float) -> Iterator[Reading]:
    """Yield the facts that a field follows; the number itself where it was given with the call."""
    name, place = label.partition("[")[0], (*_key(spec), label)
    is_count = name in spec.COUNTS
    facts = _facts_of(spec, label, value)
    if not facts:
        unit = load.quantities()[name].unit_si if name in load.quantities() else ""
        yield Reading(f"{spec.id}/{label}", None, name, spec.id, value, unit, {place: 1.0}, is_count)
    for fact, follows in facts:
        printed, unit = load.value_si(fact)[0], load.quantities()[fact.quantity].unit_si
        yield Reading(fact.id, fact, fact.quantity, fact.entity, printed, unit, {place: follows}, is_count)


def _facts_of(spec: Spec, label: str, value: float) -> list[tuple[Fact, float]]:
    """Return the facts that a field was read from, each with how much of a change of it the field follows."""
    facts = [load.facts_rows()[one] for one in spec.sources.get(label, ()) if one in load.facts_rows()]
    if isinstance(spec, Rent):
        return _middle_prices(facts, value)
    if len(facts) == 1 and not _same(value, load.value_si(facts[0])[0]):
        return []
    return [(fact, 1.0) for fact in facts]  # a roadmap's figure is the product of several


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=SAME)


def _price(fact: Fact) -> float:
    """Return the price of an hour of one chip that a fact prints."""
    return next(one.value for one in published_prices() if one.fact.id == fact.id)


def _middle_prices(facts: list[Fact], value: float) -> list[tuple[Fact, float]]:
    """Return the prices that the median of some prices is made of: one, or two of which it is the mean.

    Of several facts that print the same price the first one stands for all. Without any the price is a caller's own.
    """
    by_price = {_price(fact): fact for fact in reversed(facts)}
    ordered = sorted(by_price)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    if not middle or not _same(sum(middle) / len(middle), value):
        return []
    return [(by_price[price], price / sum(middle)) for price in middle]


@cache
def _rival_ids() -> dict[str, dict[str, str]]:
    """Return by fact in force the facts that a decision sets aside or leaves open, with the status of each."""
    rivals: dict[str, dict[str, str]] = {}
    for item in load.decisions():
        if item.use:
            stated = dict.fromkeys(item.reject, "rejected") | dict.fromkeys(item.open, "open")
            rivals.setdefault(item.use, {}).update(stated)
    return rivals


def rivals(reading: Reading, specs: Iterable[Spec]) -> list[Rival]:
    """Return what other sources print in the place of a fact, each value of each source once.

    Of a price these are the lowest and the highest of those whose median is in force.

    Examples
    --------
    >>> import trnmodel as tm
    >>> chip = tm.chip("trainium2")
    >>> bandwidth = next(one for one in readings([chip]) if one.quantity == "hbm_bytes_per_s")
    >>> [(rival.value, rival.status) for rival in rivals(bandwidth, [chip])]
    [(3000000000000.0, 'rejected'), (2400000000000.0, 'rejected')]
    """
    if reading.fact is None:
        return []
    if any(kind is Rent for kind, _, _ in reading.places):
        return _other_prices(reading, specs)
    some: dict[tuple[float, str], Rival] = {}
    for other, status in _rival_ids().get(reading.id, {}).items():
        fact = load.facts_rows()[other]
        value = load.value_si(fact)[0]
        places = [place for place in reading.places if _speaks_of(fact, place[2])]
        if math.isfinite(value) and places and not _same(value, reading.value):
            factors = {place: (value / reading.value) ** reading.places[place] for place in places}
            some.setdefault((value, fact.source), Rival(fact, value, status, factors))
    return list(some.values())


def _speaks_of(fact: Fact, label: str) -> bool:
    """Whether a fact speaks of a field: of any number without a key, and of the key that it prints."""
    key = label.partition("[")[2].removesuffix("]")
    return not key or key in fact.qualifiers


def _other_prices(reading: Reading, specs: Iterable[Spec]) -> list[Rival]:
    """Return the lowest and the highest price in force as readings that would stand alone."""
    others = []
    for rent in (each for one in specs for each in specs_within(one) if isinstance(each, Rent)):
        place = (*_key(rent), "usd_per_chip_h")
        prices = {_price(load.facts_rows()[one]): one for one in rent.sources.get("usd_per_chip_h", ())}
        for price in {min(prices), max(prices)} if place in reading.places else ():
            if not _same(price, rent.usd_per_chip_h):
                fact, own = load.facts_rows()[prices[price]], {place: price / rent.usd_per_chip_h}
                others.append(Rival(fact, load.value_si(fact)[0], "open", own))
    return sorted(others, key=lambda one: one.value)


def factors_of(some: Iterable[Reading], step: float, uneven: float = 0.0) -> dict[Place, float]:
    """Return the factors of the fields of some numbers that grow by a step, each by `uneven` steps more than the last.

    Examples
    --------
    >>> one = Reading("x", None, "x", "chip", 2.0, "s", {(Spec, "chip", "x"): 1.0}, False)
    >>> factors_of([one], 0.5)
    {(<class 'trnmodel.catalog.specs.Spec'>, 'chip', 'x'): 1.5}
    """
    factors: dict[Place, float] = {}
    for order, reading in enumerate(some):
        for place, follows in reading.places.items():
            factors[place] = factors.get(place, 1.0) * (1 + step * (1 + uneven * order) * follows)
    return factors
