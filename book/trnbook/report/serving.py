"""The answer of a serving report: the best Trainium system and the best GPU for a scenario, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trnbook.report.answers import COUNT, GPU, RENTED, TRAINIUM, Answer, Figure, row
from trnbook.shared.choices import tied
from trnmodel.catalog.stacks import KINDS
from trnmodel.catalog.systems import gpus_for_rent, on_offer
from trnmodel.search.pairs import Pair
from trnmodel.search.plan import RENTED as FOR_RENT
from trnmodel.search.plan import Plan, plan
from trnmodel.search.single import TIED, same
from trnmodel.units import format_digits

if TYPE_CHECKING:
    from trnmodel.files.scenarios import Scenario
    from trnmodel.search.choice import Choice

COST = "generated_usd_per_mtoken"
FIGURES = (
    Figure("tokens_per_s_per_chip", "Generated tokens/s per paid chip"),
    Figure("usd_per_mtoken", "$ per million generated tokens, prompts paid, at the rent"),
    Figure("server_j_per_token", "J/token at the server, prompts included"),
    Figure("ttft_s", "First token (TTFT)", "s"),
    Figure("tokens_per_s_per_user", "Tokens/s per user"),
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
    verdict = _verdict(case, some, [c for _, c in ours], answer)
    reached = any(c.valid for _, c in every)
    return Answer("serving", question, verdict, rows, answer.card(), possible=reached)


def refused(case: Scenario, why: str) -> Answer:
    """Return the answer of a scenario that nothing satisfies."""
    return Answer(
        "serving", case.model.id, [f"Nothing serves {case.model.id} as the scenario asks: {why}."], [], [], False
    )


def _sides(ours: Sequence[tuple[Plan, Choice]], gpus: Sequence[tuple[Plan, Choice]]) -> dict[str, tuple[Plan, Choice]]:
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
    cells |= {"chance": c.chance if c.valid else None, "basis": str(c.basis)}
    return row(**cells, **_sized(of, c))


def _sized(of: Plan, c: Choice) -> dict[str, Any]:
    """Return what follows from a choice with its whole instances: dollars, joules, instances and rent."""
    if isinstance(c, Pair):
        why = "not counted for a pair of systems"
        return {
            "usd_per_mtoken": None,
            "usd_per_mtoken_why": why,
            "server_j_per_token": None,
            "server_j_per_token_why": why,
        }
    size = of.capacity_of(c)
    if not size.valid:
        return {}
    rent, cells = size.rented, dict[str, Any]()
    cells |= {name.replace(COST, "usd_per_mtoken"): value for name, value in rent.banded(COST).items()}
    cells |= {"usd_per_mtoken_basis": str(rent.basis), "usd_per_mtoken_why": str(rent.reason)}
    cells |= size.energy.banded("server_j_per_token")
    cells |= {"server_j_per_token_basis": str(size.energy.basis)}
    if has_size(of):
        cells |= size.banded("instances") | {"spare_instances": size.spare_instances}
        cells |= size.banded("usd_per_month") | {"usd_per_month_why": rent.rent.why}
    return cells


def has_size(of: Plan) -> bool:
    """Return whether a plan was asked for a size: users, a rate, a limit or an availability."""
    return of.demand is not None and (of.demand.counts or of.request.requests_per_s is not None)


def _named(c: Choice) -> str:
    """Return the name of the system of a choice, of a pair both."""
    return " with prompts on ".join(one.name for one in c.systems)


def _status(c: Choice) -> str:
    return next((one.status for one in c.systems if one.status != FOR_RENT), FOR_RENT)


def _verdict(case: Scenario, some: dict[str, tuple[Plan, Choice]], ours: Sequence[Choice], answer: Plan) -> list[str]:
    """Return the verdict: who is best of each kind, by how much, at which cost, and who ties."""
    what = case.model.id
    best, gpu = (some[side][1] if side in some else None for side in (TRAINIUM, GPU))
    nearest = [f"The nearest that works is {answer.nearest}."] if answer.nearest else []
    absent = [_absent(kind, c) for kind, c in (("Trainium", best), ("GPU", gpu)) if c is None or not c.valid]
    lines = list[str]()
    if best is not None and best.valid:
        rival = f" and {_called(gpu)} the best GPU system" if gpu is not None and gpu.valid else ""
        lines.append(f"For {what}, {_called(best)} is the best Trainium system{rival}.")
        lines += [_gap(best, gpu)] if gpu is not None and gpu.valid else []
        lines += [tied(best, ours).replace(" it ", f" {best.system.name} ")] if tied(best, ours) else []
    elif gpu is not None and gpu.valid:
        lines.append(f"For {what}, {_called(gpu)} is the best GPU system, and no Trainium system keeps the promise.")
    else:
        lines.append(f"No system keeps the promise for {what}.")
    return [*lines, *_dollars(some), *absent, *nearest]


def _called(c: Choice) -> str:
    return f"{_named(c)}{'' if _status(c) == FOR_RENT else f' ({_status(c)})'}"


def _absent(kind: str, c: Choice | None) -> str:
    """Return why there is no side of a kind of chip."""
    if c is None:
        return f"No {kind} system runs the model in the precision and with the software of the scenario."
    return f"No {kind} system keeps the promise: {_named(c)} is {c.reason}."


def _gap(ours: Choice, gpu: Choice) -> str:
    """Return which of two choices makes more per paid chip and by how much, or that they tie."""
    one, other = sorted((ours, gpu), key=lambda c: -c.tokens_per_s_per_chip)
    if same(other, one):
        return f"Per paid chip {ours.system.name} and {gpu.system.name} tie: they are within 1 % of each other."
    times = format_digits(one.tokens_per_s_per_chip / other.tokens_per_s_per_chip, 2)
    sure = "; their ranges overlap, so the order may be the other way round" if _overlap(one, other) else ""
    return f"Per paid chip {one.system.name} makes {times} times as many tokens as {other.system.name}{sure}."


def _overlap(one: Any, other: Any) -> bool:
    return bool(one.low <= other.high and other.low <= one.high)


def _dollars(some: dict[str, tuple[Plan, Choice]]) -> list[str]:
    """Return what a million tokens cost at the rent on each side, cheapest first, and which side has no price."""
    sizes = {c.system.name: of.capacity_of(c) for of, c in some.values() if c.valid and not isinstance(c, Pair)}
    rents = {name: size.rented for name, size in sizes.items() if size.valid}
    priced = sorted((float(one.generated_usd_per_mtoken), name) for name, one in rents.items() if one.valid)
    lines = [f"Nobody publishes a rent of {name}." for name, one in rents.items() if one.rent.why]
    if not priced:
        return lines
    costs = " and ".join(f"${format_digits(usd, 2)} on {name}" for usd, name in priced[:2])
    text = f"At the rent a million generated tokens, prompts paid, cost {costs}"
    if len(priced) > 1 and priced[1][0] - priced[0][0] <= TIED * priced[1][0]:
        text += ", which is a tie"
    elif len(priced) > 1 and _overlap(*(rents[name] for _, name in priced[:2])):
        text += "; these ranges overlap"
    return [f"{text}.", *lines]
