"""The search on one system: its best points, why it has none, and how choices of several systems are ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np

from trnmodel.arguments import instance, listed, refuse
from trnmodel.catalog import load
from trnmodel.catalog import systems as catalog_systems
from trnmodel.catalog.options import Option
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.systems import AVAILABILITY, System
from trnmodel.catalog.systems import find as find_system
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.quality import Quality, quality
from trnmodel.models.transformer import Transformer
from trnmodel.search.choice import Choice, Point, chosen
from trnmodel.search.grid import FOUR_BITS, Question, computes, grid, in_own_format, options_of
from trnmodel.search.launch import runs
from trnmodel.serving.account import planned_and_made, ttft_s
from trnmodel.steps.legal import refuse_longer
from trnmodel.steps.request import Request

PRECISIONS = ("bf16", "fp8", "mxfp8")  # that are tried where none is named: 4 bits change what a model answers
OBJECTIVE: Callable[[Choice], float] = methodcaller("merit")  # of a choice by itself
TIED = 0.01  # share of a yield, up to which two systems do the same


def best_choice(
    model: Transformer, request: Request, spec: System, efficiencies: Any, precision: str | Precision | None
) -> Choice | None:
    """Return the choice of one system for a request; None where nothing fits or its chip lacks the precision."""
    points = candidates(model, request, spec, efficiencies, precision)
    return chosen(points[0]) if points and points[0].rank[0] else None


def questions_of(
    model: Transformer, request: Request, spec: System, efficiencies: Any, precision: str | Precision | None
) -> list[Question]:
    """Return the questions of a system: one for each of its software options and each precision that it computes in."""
    q = search_for(model, request, precision)
    return option_questions(q, spec, options_for(q, spec, efficiencies))


def candidates(
    model: Transformer, request: Request, spec: System, efficiencies: Any, precision: str | Precision | None
) -> list[Point]:
    """Return the points of the two best mappings of each precision and option on a system, the best first."""
    return best_points(questions_of(model, request, spec, efficiencies, precision))


def why_none(questions: list[Question], spec: System) -> str:
    """Return why a system has no choice."""
    points = best_points(questions)
    return points[0].why if points else lacking(spec)


def lacking(spec: System) -> str:
    """Return in which formats alone a chip computes."""
    return f"computes in {', '.join(spec.chip.peak_flop_per_s)} alone"


@dataclass(frozen=True, slots=True)
class Search:
    """The question that each system is asked."""

    model: Transformer
    request: Request
    precisions: tuple[Precision, ...]


def search_for(model: Transformer, request: Request, precision: Any, max_loss_percent: float | None = None) -> Search:
    """Return the question, with lengths that the model has and formats that do not lose more than the limit."""
    refuse_longer(model, "request", float(request.longest_context))
    formats = tuple(map(load.precision, PRECISIONS if precision is None else (precision,)))
    if max_loss_percent is None:
        return Search(model, request, formats)
    losses = {one.name: quality(model, one) for one in formats}
    allowed = tuple(one for one in formats if not any(q.exceeds(max_loss_percent) for q in _losses(model, one)))
    if not allowed:
        losing = ", ".join(f"{name} {one.described()}" for name, one in losses.items())
        refuse("max_loss_percent", max_loss_percent, f"every format that is tried may lose more: {losing}")
    return Search(model, request, allowed)


def _losses(model: Transformer, precision: Precision) -> list[Quality]:
    """Return what a precision may lose; a 4-bit preset may be asked in either format, by the chip."""
    names = FOUR_BITS if precision.name in FOUR_BITS else (precision,)
    return [quality(model, one) for one in names]


def options_for(q: Search, spec: System, efficiencies: Any) -> tuple[Option, ...]:
    """Return the software options of a system; refuse a stack of another maker's software."""
    some = options_of(spec, q.model, q.request, efficiencies)
    for option in some:
        if not runs(option.efficiencies, spec.chip):
            refuse(
                "efficiencies", efficiencies, f"{option.efficiencies.id} does not run on {spec.chip.id} of {spec.id}"
            )
    return some


def asked_systems(systems: Any, argument: str = "systems") -> list[System]:
    """Return the systems asked for in the order given, each once; Trainium's on offer where none is named."""
    if systems is None:
        return [read_system(name) for name in catalog_systems.on_offer()]
    several = listed(argument, systems) if np.iterable(systems) and not isinstance(systems, str) else [systems]
    specs = [find_system(instance(argument, one, str | System, "an id or a System"), argument) for one in several]
    by_id = {one.id: one for one in specs}
    for one in specs:
        if one != by_id[one.id]:
            refuse(argument, one.id, "two different systems have this id; allowed is an id of its own for each")
    return list(by_id.values())


def catalog_order(spec: System) -> tuple[int, str]:
    """Return the place of a system in the catalog; those of a caller follow by their id."""
    ids = catalog_systems.systems()
    return (ids.index(spec.id) if spec.id in ids else len(ids)), spec.id


def computed(q: Search, spec: System) -> list[Precision]:
    """Return the requested precisions in whose compute dtype a system's chip has a peak, 4 bits in its own format."""
    return [in_own_format(one, spec.chip) for one in q.precisions if computes(spec, one)]


def option_questions(q: Search, spec: System, some: Iterable[Option]) -> list[Question]:
    """Return a question for each option and each precision that the system computes in."""
    return [Question(q.model, q.request, spec, option, one) for option in some for one in computed(q, spec)]


def points_of(q: Search, spec: System, some: Iterable[Option]) -> list[Point]:
    """Return the points of the two best mappings of each precision and option on a system, the best first."""
    return best_points(option_questions(q, spec, some))


def best_points(questions: list[Question]) -> list[Point]:
    """Return the points of the two best mappings of each question, the best first."""
    return sorted((point for one in questions for point in _searched(one)), key=lambda point: point.rank, reverse=True)


def _searched(q: Question) -> list[Point]:
    """Return the best batch of the two best mappings of a precision and an option.

    Points that keep the promises come first, by what they make of a paid chip, and of equal ones by what full systems
    would make; then those that fit, by how near they come to the promises on an empty server.
    """
    g = grid(q)
    with np.errstate(invalid="ignore", divide="ignore"):
        _, made, full = planned_and_made(q.request, q.system, g.times, g.fits, g.chips)
        near = np.minimum(q.request.most_tpot_s / g.times.decode_s, 1.0) + 1e-6 / g.times.decode_s
        if q.request.ttft_s is not None:
            near = near + np.minimum(q.request.ttft_s / ttft_s(g.times, 0.0, q.request.ttft_quantile), 1.0)
    holds = np.isfinite(made)
    level = np.where(holds, 2, g.fits)
    merit = np.where(holds, made, np.where(g.fits, near, -g.need / g.have))
    full = np.where(holds, full, 0.0)
    batch = np.lexsort((full, merit, level), axis=0)[-1]  # the best one of each mapping
    tops = [np.take_along_axis(x, batch[None], 0)[0] for x in (full, merit, level)]
    places = ((batch[place], place) for place in np.lexsort(tuple(tops))[:-3:-1])
    return [g.point(q, at, (int(level[at]), float(merit[at]), float(full[at]))) for at in places]


def ordered(choices: list[Choice], merit: Callable[[Choice], float] = OBJECTIVE) -> list[Choice]:
    """Return the choices, the best first; ties go to what can be bought, to the fewest chips, then to the catalog."""
    ranked = sorted(choices, key=lambda c: (not c.valid, -merit(c)))
    tied = [c for c in choices if same(c, ranked[0], merit)]
    first = sorted(tied, key=_first_of_ties)
    return first + [c for c in ranked if not same(c, ranked[0], merit)]


def _first_of_ties(c: Choice) -> tuple[int, bool, float]:
    """Return what orders ties: whether all of it can be bought, whether it is a primary reading, and its chips."""
    status = max(AVAILABILITY.index(one.status) for one in c.systems)
    return status, any(one.alternative_of for one in c.systems), c.chips


def primary(c: Choice) -> tuple[str, ...]:
    """Return the ids of the systems that a choice is a reading of."""
    return tuple(one.alternative_of or one.id for one in c.systems)


def same(c: Choice, best: Choice, merit: Callable[[Choice], float] = OBJECTIVE) -> bool:
    """Whether two choices tie: both keep the promise, or neither, and they are within `TIED` of each other."""
    return bool(c.valid) == bool(best.valid) and abs(merit(c) - merit(best)) <= TIED * merit(best)
