"""The answer of a serving report: the best Trainium system and the best GPU for a scenario, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trnbook.report.answers import COUNT, GPU, RENTED, TRAINIUM, Answer, Figure, row
from trnmodel.catalog.stacks import KINDS
from trnmodel.catalog.systems import gpus_for_rent, on_offer
from trnmodel.search.plan import RENTED as FOR_RENT
from trnmodel.search.plan import Plan, demand_merit, plan
from trnmodel.search.single import TIED, same
from trnmodel.units import format_digits

if TYPE_CHECKING:
    from trnmodel.files.scenarios import Scenario
    from trnmodel.search.choice import Choice

Sides: TypeAlias = "dict[str, tuple[Plan, Choice]]"
FIGURES = (
    Figure("tokens_per_s_per_chip", "Generated tokens/s per paid chip"),
    Figure("usd_per_mtoken", "$ per million generated tokens, prompts paid, at the rent"),
    Figure("server_j_per_token", "J/token at the server, prompts included"),
    Figure("ttft_s", "First token (TTFT)", "s"),
    Figure("tokens_per_s_per_user", "Tokens/s per user"),
    Figure("tokens_per_s", "Generated tokens/s of all instances"),
    Figure("instances", "Instances for the load", COUNT),
    Figure("usd_per_month", "Rent per month [$]"),
    Figure("chance", "Chance that the promise is kept", "%"),
    Figure("basis", "What it rests on"),
    Figure("status", "What a buyer can get"),
    Figure("mapping", "How it runs"),
)


def rival_plan(case: Scenario, answer: Plan) -> Plan | None:
    """Return the plan on the kind of chips that a scenario does not name: rented GPUs, or Trainium; None for neither.

    Software that the scenario names by its id runs on one kind of chip alone, so that nothing stands beside it.
    """
    ours, gpus = _split(answer)
    named = bool(case.systems)
    systems = gpus_for_rent() if not gpus and not answer.gpus else on_offer() if named and not ours else None
    if systems is None or case.settings.get("efficiencies") not in (None, *KINDS):
        return None
    try:
        return plan(**case.ask("plan") | {"systems": systems, "prefill_systems": None})
    except ValueError:  # no chip of these computes in the precision of the scenario
        return None


def _split(answer: Plan) -> tuple[list[Choice], list[Choice]]:
    """Return the choices of a plan on Trainium, and those on other chips."""
    ours = [c for c in answer.choices if c.system.chip.core is not None]
    return ours, [c for c in answer.choices if c.system.chip.core is None]


def answered(case: Scenario, answer: Plan, other: Plan | None = None) -> Answer:
    """Return the answer of a plan, with the one on systems that the scenario does not name beside it."""
    plans = [answer] if other is None else [answer, other]
    every = [(one, c) for one in plans for c in (*one.choices, *one.gpus)]
    ours = [(one, c) for one, c in every if c.system.chip.core is not None]
    gpus = [(one, c) for one, c in every if c.system.chip.core is None]
    some = _sides(ours, gpus)
    names = {id(c): side for side, (_, c) in some.items()}
    rows = [_row(one, c, names.get(id(c), "")) for one, c in every]
    rows += [
        row(system=name, name=name, side="", valid=False, reason=why)
        for one in plans
        for name, why in one.refused.items()
    ]
    question = f"{case.model.id}, {answer.request.describe()}"
    verdict = _verdict(case, some, ours, answer)
    reached = any(c.valid for _, c in every)
    return Answer("serving", question, verdict, rows, answer.card(), possible=reached)


def refused(case: Scenario, why: str) -> Answer:
    """Return the answer of a scenario that nothing satisfies."""
    return Answer(
        "serving", case.model.id, [f"Nothing serves {case.model.id} as the scenario asks: {why}."], [], [], False
    )


def _sides(ours: Sequence[tuple[Plan, Choice]], gpus: Sequence[tuple[Plan, Choice]]) -> Sides:
    """Return the sides of the verdict: choices that keep the promise, or else the first ones."""
    best, gpu = (next((pair for pair in some if pair[1].valid), next(iter(some), None)) for some in (ours, gpus))
    rented = next((pair for pair in ours if pair[1] is pair[0].for_rent), None)
    if rented is None:
        rented = next((p for p in ours if p[1].valid and all(s.status == FOR_RENT for s in p[1].systems)), None)
    rented = None if best is not None and rented is not None and rented[1] is best[1] else rented
    return {side: pair for side, pair in ((TRAINIUM, best), (RENTED, rented), (GPU, gpu)) if pair is not None}


def _row(of: Plan, c: Choice, side: str) -> dict[str, Any]:
    """Return the row of a choice of a plan."""
    banded = [c.banded(name) for name in ("tokens_per_s_per_chip", "ttft_s", "tokens_per_s_per_user")]
    cells: dict[str, Any] = {"system": c.place, "name": _named(c), "side": side, "status": _status(c)}
    cells |= {"valid": bool(c.valid), "reason": str(c.reason), "mapping": c.mapping, "software": c.stack.id}
    cells |= {name: value for one in banded for name, value in one.items()}
    cells |= {f"{name}_basis": str(c.basis) for one in banded for name in list(one)[:1]}
    cells |= {
        "tokens_per_s_per_chip_why": str(c.reason),
        "chance": c.chance if c.valid else None,
        "basis": str(c.basis),
    }
    return row(**cells, **_sized(of, c))


def _sized(of: Plan, c: Choice) -> dict[str, Any]:
    """Return what follows from a choice with its whole instances: dollars, joules, instances and rent."""
    names = ("usd_per_mtoken", "server_j_per_token")
    if not c.valid:
        return {}
    size = of.capacity_of(c)
    if not size.valid:
        return {f"{name}{end}": text for name in names for end, text in (("", None), ("_why", str(size.reason)))}
    why = size.rented.rent.why.replace(f" of {c.system.id}", "")
    cells: dict[str, Any] = size.banded("usd_per_mtoken") | size.energy.banded("server_j_per_token")
    cells |= {"usd_per_mtoken_basis": str(size.basis), "usd_per_mtoken_why": why}
    cells |= {"server_j_per_token_basis": str(size.energy.basis)}
    if has_size(of):
        cells |= size.banded("tokens_per_s") | {"tokens_per_s_basis": str(size.basis)}
        cells |= size.banded("instances") | {"spare_instances": size.spare_instances}
        cells |= size.banded("usd_per_month") | {"usd_per_month_why": why}
    return cells


def has_size(of: Plan) -> bool:
    """Return whether a plan was asked for a size: users, a rate, a limit or an availability."""
    return of.demand is not None and (of.demand.counts or of.request.requests_per_s is not None)


def _named(c: Choice) -> str:
    """Return the name of the system of a choice, of a pair both."""
    return " with prompts on ".join(one.name for one in c.systems)


def _status(c: Choice) -> str:
    return next((one.status for one in c.systems if one.status != FOR_RENT), FOR_RENT)


def _verdict(case: Scenario, some: Sides, ours: Sequence[tuple[Plan, Choice]], answer: Plan) -> list[str]:
    """Return the verdict: who is best of each kind, by how much, at which cost, and who ties."""
    best, gpu = (some[side] if side in some and some[side][1].valid else None for side in (TRAINIUM, GPU))
    nearest = [f"The nearest that works is {answer.nearest}."] if answer.nearest else []
    lines = list[str]()
    if best is not None:
        rival = f" and {_called(gpu[1])} the best GPU system" if gpu is not None else ""
        lines.append(f"For {case.model.id}, {_called(best[1])} is the best Trainium system{rival}.")
        lines += [_gap(best, gpu)] if gpu is not None else []
        lines += _ties(best, ours)
    elif gpu is not None:
        best_gpu = f"{_called(gpu[1])} is the best GPU system"
        lines.append(f"For {case.model.id}, {best_gpu}, and no Trainium system keeps the promise.")
    else:
        lines.append(f"No system keeps the promise for {case.model.id}.")
    absent = [text for kind, side in (("Trainium", TRAINIUM), ("GPU", GPU)) for text in _absent(kind, some.get(side))]
    return [*lines, *_dollars(some), *absent, *nearest]


def _called(c: Choice) -> str:
    return f"{_named(c)}{'' if _status(c) == FOR_RENT else f' ({_status(c)})'}"


def _absent(kind: str, side: tuple[Plan, Choice] | None) -> list[str]:
    """Return why there is no side of a kind of chip, in a sentence; none where there is one."""
    if side is None:
        return [f"No {kind} system runs the model in the precision and with the software of the scenario."]
    c = side[1]
    return [] if c.valid else [f"No {kind} system keeps the promise: {_named(c)} is {c.reason}."]


def _merit(of: Plan) -> tuple[Callable[[Choice], float], str]:
    """Return what orders the choices of a plan, and how a sentence about it begins."""
    assert of.demand is not None
    return demand_merit(of.demand), "Within the limit" if of.demand.limit else "Per paid chip"


def _ties(best: tuple[Plan, Choice], ours: Sequence[tuple[Plan, Choice]]) -> list[str]:
    """Return which other Trainium systems tie with the best one, as a plan has it, in a sentence."""
    merit, begins = _merit(best[0])
    tied = [_named(c) for _, c in ours if c is not best[1] and c.valid and same(c, best[1], merit)]
    return [f"{begins} {_named(best[1])} ties with {' and '.join(tied)}, within 1 %."] if tied else []


def _gap(best: tuple[Plan, Choice], gpu: tuple[Plan, Choice]) -> str:
    """Return which of two sides makes more and by how much, or that they tie."""
    merit, begins = _merit(best[0])
    (of, one), (_, other) = more, less = sorted((best, gpu), key=lambda pair: -merit(pair[1]))
    if same(other, one, merit):
        return f"{begins} {_named(best[1])} and {_named(gpu[1])} tie: they are within 1 % of each other."
    times = format_digits(merit(one) / merit(other), 2)
    limit = of.demand is not None and of.demand.limit
    ends = [of.capacity_of(c).ends("tokens_per_s") if limit else (c.low, c.high) for of, c in (more, less)]
    sure = "; their ranges overlap, so the order may be the other way round" if _overlap(*ends) else ""
    return f"{begins} {_named(one)} makes {times} times as many tokens as {_named(other)}{sure}."


def _overlap(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return bool(one[0] <= other[1] and other[0] <= one[1])


def _dollars(some: Sides) -> list[str]:
    """Return what a million tokens cost at the rent on each side, cheapest first, and which side has no price."""
    sizes = {_named(c): of.capacity_of(c) for of, c in some.values() if c.valid}
    sizes = {name: size for name, size in sizes.items() if size.valid}
    priced = sorted((size.usd_per_mtoken, name) for name, size in sizes.items() if not size.rented.rent.why)
    whys = dict.fromkeys(size.rented.rent.why for size in sizes.values() if size.rented.rent.why)
    lines = [f"{why[:1].upper()}{why[1:]}." for why in whys]
    if not priced:
        return lines
    costs = " and ".join(f"${format_digits(usd, 2)} on {name}" for usd, name in priced[:2])
    text = f"At the rent a million generated tokens, prompts paid, cost {costs}"
    if len(priced) > 1 and priced[1][0] - priced[0][0] <= TIED * priced[1][0]:
        text += ", which is a tie"
    elif len(priced) > 1 and _overlap(*(sizes[name].ends("usd_per_mtoken") for _, name in priced[:2])):
        text += "; these ranges overlap"
    return [f"{text}.", *lines]
