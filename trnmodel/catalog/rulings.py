"""Which fact is in force where sources disagree: decisions applied to facts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Literal, NamedTuple

from trnmodel.catalog.tables import DataError, Decision, Fact, Key

Status = Literal["chosen", "rejected", "open"]
ValueSI = Callable[[Fact], tuple[float, float, float]]


class Ruled(NamedTuple):
    """The fact in force for a key, and a low/high pair where it is a range or the decision is open."""

    fact: Fact
    spread: tuple[float, float] | None


def label(key: Key) -> str:
    """Return a key as text: "trainium2/peak_flop_per_s[bf16]"."""
    entity, quantity, qualifier = key
    return f"{entity}/{quantity}[{qualifier}]"


def _groups(facts: dict[str, Fact]) -> dict[Key, list[Fact]]:
    """Facts that speak of the same thing, the most trusted first."""
    groups: dict[Key, list[Fact]] = defaultdict(list)
    for fact in sorted(facts.values(), key=lambda fact: fact.confidence):
        for key in fact.keys:
            groups[key].append(fact)
    return groups


def check(decisions: list[Decision], facts: dict[str, Fact]) -> None:
    """Raise DataError where a decision names no fact, was taken on another printed value, or is taken twice."""
    decided: set[Key] = set()
    for number, item in enumerate(decisions, start=1):
        place = f"decisions.yaml item {number} ({item.about})"
        for fact_id, printed in [*item.reject.items(), *item.open.items(), (item.use, None)]:
            if fact_id and fact_id not in facts:
                raise DataError(f"{place}: names unknown fact {fact_id!r}")
            if printed is not None and facts[fact_id].value_printed != printed:
                now = facts[fact_id].value_printed
                raise DataError(f"{place}: decided on {fact_id} = {printed!r}, which now prints {now!r}: decide again")
        stray = [label(key) for key in item.keys if key in decided or key not in facts[item.use].keys]
        if stray:
            raise DataError(f"{place}: {item.use} does not speak of {stray}, or another item decides it")
        decided.update(item.keys)


def decide(facts: dict[str, Fact], decisions: list[Decision], value_si: ValueSI) -> dict[Key, Ruled]:
    """Return the fact in force for each key; raises DataError where sources disagree and no decision speaks."""
    rulings = {key: item for item in decisions for key in item.keys}

    def reading(fact: Fact) -> float | str:
        value = value_si(fact)[0]
        return fact.value_printed if math.isnan(value) else float(f"{value:.12g}")

    def in_force(key: Key, group: list[Fact]) -> Ruled:
        item = rulings.get(key)
        used = facts[item.use] if item else group[0]
        spoken_of = {*item.reject, *item.open} if item else set()
        stray = [f for f in group if f.id not in spoken_of and reading(f) != reading(used)]
        if stray:
            printed = {fact.id: f"{fact.value_printed} {fact.unit_printed}" for fact in (used, *stray)}
            raise DataError(f"{label(key)}: sources disagree and decisions.yaml does not decide: {printed}")
        bounds = [bound for f in group if f is used or (item and f.id in item.open) for bound in value_si(f)]
        low, high = min(bounds), max(bounds)
        return Ruled(used, (low, high) if low < high else None)

    return {key: in_force(key, group) for key, group in _groups(facts).items()}


def statuses(facts: dict[str, Fact], decisions: list[Decision]) -> dict[str, tuple[Status, str]]:
    """Status and reason of every fact; one that agrees with the fact in force shares its verdict."""
    groups = _groups(facts)
    result: dict[str, tuple[Status, str]] = dict.fromkeys(facts, ("chosen", "no source contradicts it"))
    for item in decisions:
        verdict: tuple[Status, str] = ("open" if item.open else "chosen", f"{item.reason} ({item.date})")
        result.update({fact.id: verdict for key in item.keys for fact in groups[key]})
    for item in decisions:
        reason = f"{item.reason} ({item.date})"
        result.update(dict.fromkeys(item.open, ("open", reason)))
        result.update(dict.fromkeys(item.reject, ("rejected", reason)))
    return result
