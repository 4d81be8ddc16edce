"""The answer of a training report: days, energy and dollars of a run on each system of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnbook.report.answers import COUNT, ENDS, GPU, TRAINIUM, Answer, Figure, row
from trnmodel.search.train_runs import TrainRuns, budget
from trnmodel.units import MWH, format_within

if TYPE_CHECKING:
    from trnmodel.files.scenarios import Scenario
    from trnmodel.search.train_run import Spent, TrainRun

FIGURES = (
    Figure("calendar_days", "Days in the calendar, failures included"),
    Figure("site_mwh", "Energy at the site [MWh]"),
    Figure("mfu", "MFU", "%"),
    Figure("owner_usd", "Cost to the owner [$]"),
    Figure("renter_usd", "Cost to the renter [$]"),
    Figure("chips", "Chips of the job", COUNT),
    Figure("leads_alone", "Share of the draws in which it is first", "%"),
    Figure("basis", "What it rests on"),
    Figure("status", "What a buyer can get"),
    Figure("mapping", "How it runs"),
)


def answered(case: Scenario, runs: TrainRuns) -> Answer:
    """Return the answer of training runs side by side."""
    running = [run for run in runs.runs if run.valid]
    firsts = {
        TRAINIUM: next((run for run in running if run.system.chip.core is not None), None),
        GPU: next((run for run in running if run.system.chip.core is None), None),
    }
    names = {id(run): side for side, run in firsts.items() if run is not None}
    rows = [_row(runs, run, names.get(id(run), "")) for run in runs.runs]
    rows += [row(system=name, name=name, side="", valid=False, reason=why) for name, why in runs.refused.items()]
    question = f"{case.model.id}, {budget(runs.question.tokens)} tokens"
    verdict = _verdict(question, runs, running)
    return Answer("training", question, verdict, rows, runs.card(), possible=bool(running))


def refused(case: Scenario, why: str) -> Answer:
    """Return the answer of a scenario that nothing satisfies."""
    verdict = [f"Nothing trains {case.model.id} as the scenario asks: {why}."]
    return Answer("training", case.model.id, verdict, [], [], possible=False)


def _row(runs: TrainRuns, run: TrainRun, side: str) -> dict[str, Any]:
    """Return the row of a run."""
    cells: dict[str, Any] = {"system": run.system.id, "name": run.system.name, "side": side}
    cells |= {"status": run.system.status, "valid": bool(run.valid), "reason": str(run.reason), "chips": run.chips}
    if run.valid:
        for name, spent in run.spending().items():
            shown = ("site_mwh", MWH) if name == "site_j" else (name, 1.0)
            cells |= _figure(shown[0], spent, shown[1])
        cells |= run.banded("mfu") | {"mfu_basis": str(run.basis)}
        cells |= {"leads_alone": runs.leads.alone[run.system.id], "spare_chips": float(run.useful().spare_chips)}
    cells |= {"basis": str(run.basis), "mapping": run.configuration, "software": run.stack.id}
    return row(**cells)


def _figure(name: str, spent: Spent, scale: float) -> dict[str, Any]:
    """Return a figure with its ends, its basis, and why there is none."""
    numbers = dict(zip(("", *ENDS), (spent.value, spent.low, spent.high), strict=True))
    cells = {f"{name}{end}": number / scale for end, number in numbers.items()}
    return cells | {f"{name}_why": spent.why, f"{name}_basis": spent.basis}


def _verdict(question: str, runs: TrainRuns, running: list[TrainRun]) -> list[str]:
    """Return who is first, in how many days, who ties or comes next, and what the first one costs."""
    if not running:
        return [f"No system runs {question}: {runs.runs[0].reason}."]
    first, *others = running
    spent, name = first.spending(), first.system.name
    days = spent["calendar_days"].describe("days")
    lines = [f"{name} trains {question}, in {days} on {first.chips:,.0f} chips, failures included."]
    by = "days" if runs.ranked_by == "calendar_days" else "dollars"
    if runs.ties:
        lines.append(f"{name} ties by {by} with {' and '.join(runs[one].system.name for one in runs.ties)}.")
    elif others:
        gap = runs.difference(others[0].system.id, first.system.id)
        more = format_within(100 * gap.value, 100 * gap.low, 100 * gap.high, "%")
        lines.append(f"{others[0].system.name} comes next and takes {more} more {by}.")
    return [*lines, *(_dollars(name, who, spent[f"{who}_usd"]) for who in ("owner", "renter"))]


def _dollars(system: str, who: str, spent: Spent) -> str:
    """Return what a run on a system costs its owner or renter, or why nobody knows."""
    if spent.why:
        return f"On {system} the cost to the {who} is not known: {spent.why}."
    return f"On {system} the {who} pays {spent.usd_in_words()}."
