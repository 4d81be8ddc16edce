"""Why each other candidate of a plan loses: systems, precisions, software options and mappings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.systems import systems as system_ids
from trnmodel.files.scenarios import Scenario
from trnmodel.search.choice import Choice, chosen
from trnmodel.search.grid import Point, Question
from trnmodel.search.pairs import Pair
from trnmodel.search.plan import Plan
from trnmodel.search.single import candidates, lacking, questions_of

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [
    *("system", "status", "precision", "option", "stack", "tp", "ep", "pp", "cp", "batch", "tokens_per_s_per_user"),
    *("tokens_per_s_per_chip", "tokens_per_s_per_chip_low", "tokens_per_s_per_chip_high", "chance", "why"),
]


def systems_of(scenario: Scenario, plan: Plan) -> list[System]:
    """Return the systems that a plan has considered, each once: those asked or on offer, and GPUs beside them."""
    if scenario.systems:
        return list(scenario.systems)
    ids = [one.system.id for one in (*plan.choices, *plan.gpus)] + [*plan.refused]
    return [read_system(name) for name in dict.fromkeys(ids) if name in system_ids()]


def _how(scenario: Scenario) -> tuple[Any, Any]:
    return scenario.settings.get("efficiencies"), scenario.settings.get("precision")


def questions(scenario: Scenario, plan: Plan) -> list[Question]:
    """Return every question of the search: each system with each of its options and precisions."""
    every = (questions_of(plan.model, plan.request, one, *_how(scenario)) for one in systems_of(scenario, plan))
    return [question for some in every for question in some]


def rejected(scenario: Scenario, plan: Plan) -> pd.DataFrame:
    """Return a row for each candidate but the best: the two best mappings of each system, precision and option.

    The best candidates come first, then those that break a promise, then those that cannot run, each with its reason.
    """
    import pandas as pd

    places = systems_of(scenario, plan)
    points = [point for one in places for point in candidates(plan.model, plan.request, one, *_how(scenario))]
    choices = [chosen(point) for point in points if point.rank[0]]
    choices = [one for one in choices if not (plan.best and _same(one, plan.best))]
    choices += [one for one in plan.choices[1:] if isinstance(one, Pair)]
    wide = replace(plan, second=(*plan.second, *choices))
    rows = [_row(one, wide) for one in sorted(choices, key=lambda c: (not c.valid, -c.merit()))]
    rows += [_impossible(point) for point in points if not point.rank[0]]
    rows += _unanswered(places, points, plan)
    return pd.DataFrame(rows, columns=COLUMNS)


def _same(one: Choice, other: Choice) -> bool:
    """Return whether two choices are one candidate."""

    def candidate(c: Choice) -> tuple[Any, ...]:
        return c.place, c.precision, c.option.id, c.tp, c.ep, c.pp, c.cp

    return candidate(one) == candidate(other)


def _row(c: Choice, plan: Plan) -> dict[str, Any]:
    low, high = c.ends(c.FIGURE)
    row: dict[str, Any] = {"system": c.place, "status": c.system.status, "option": c.option.id, "stack": c.stack.id}
    row |= {name: getattr(c, name) for name in ("precision", "tp", "ep", "pp", "cp", "batch", "tokens_per_s_per_user")}
    row |= {c.FIGURE: getattr(c, c.FIGURE), f"{c.FIGURE}_low": low, f"{c.FIGURE}_high": high}
    return row | {"chance": c.chance, "why": plan.reason(c)}


def _impossible(point: Point) -> dict[str, Any]:
    q = point.question
    row: dict[str, Any] = {"system": q.system.id, "status": q.system.status, "precision": q.precision.name}
    row |= {"option": q.option.id, "stack": q.option.efficiencies.id, "why": point.why}
    return row | {name: getattr(point, name) for name in ("tp", "ep", "pp", "cp")}


def _unanswered(places: list[System], points: list[Point], plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield a row for each system that computes in no precision of the question, and for each pair that is none."""
    known = {point.question.system.id for point in points}
    for one in places:
        if one.id not in known:
            yield {"system": one.id, "status": one.status, "why": lacking(one)}
    for name, why in plan.refused.items():
        if name not in {one.id for one in places}:
            yield {"system": name, "why": why}
