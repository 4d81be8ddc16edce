"""Answers that can be explained: the specs behind each, and how its question is put again with other ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trnmodel.arguments import refuse, shown
from trnmodel.catalog import facilities
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.systems import chip_of
from trnmodel.explained.choices import choice_tree, cost_tree
from trnmodel.explained.energies import energy_tree
from trnmodel.explained.steps import collective_tree, memory_tree, step_tree
from trnmodel.explained.trainings import run_tree, train_tree
from trnmodel.explained.trees import Branch
from trnmodel.fabric.collectives import Collective, collective
from trnmodel.models.transformer import Transformer
from trnmodel.power.energy import Energy, energy
from trnmodel.result import Card
from trnmodel.search.chip_seconds import TokenCost, cost_line
from trnmodel.search.choice import Choice, chosen
from trnmodel.search.grid import Point
from trnmodel.search.pairs import Pair
from trnmodel.search.plan import Plan
from trnmodel.search.train_run import TrainRun
from trnmodel.steps.answers import MemoryFit, Step
from trnmodel.steps.inference import decode_step, memory_fit, prefill
from trnmodel.steps.questions import OVERLAPS, DecodeQuestion
from trnmodel.training.step import TrainStep, train_step

ALLOWED = (
    "an answer of one point: a Step, MemoryFit, Collective, Energy, Choice, Plan, TrainStep, TrainRun, or a renter's "
    "TokenCost"
)
IN_JUMPS = "Whole systems are paid for its requests, in jumps, so that the load of one replica is explained"


class Subject(NamedTuple):
    """An answer with its question: `again` asks it with other specs in the order of `specs`, `tree` gives its terms.

    `head` is the answer in words.
    """

    head: str
    answer: Any
    specs: tuple[Spec, ...]
    again: Callable[..., Any]
    tree: Callable[[Any], Branch]
    model: Transformer | None


def subject_of(answer: Any) -> Subject:
    """Return an answer with the way to ask its question again.

    Raises ValueError, naming the answer, for what cannot be explained: another kind of result, several points, a point
    that cannot exist, an answer of 0, or a price that an owner's costs make up.
    """
    if isinstance(answer, Plan):
        if answer.best is None:
            refuse("answer", "Plan", "no system runs the model; allowed is a plan with a best choice")
        answer = answer.best
    make = next((make for kind, make in KINDS if isinstance(answer, kind)), None)
    if make is None or isinstance(answer, Pair):
        refuse("answer", type(answer).__name__ if isinstance(answer, Card) else shown(answer), f"allowed is {ALLOWED}")
    if np.ndim(answer.reason_mask) or np.ndim(answer.figure(answer.FIGURE)):
        refuse("answer", f"{type(answer).__name__} of an array", f"allowed is {ALLOWED}, asked with plain numbers")
    if not np.all(answer.valid):
        refuse("answer", f"{type(answer).__name__} that cannot exist", f"{answer.reason}; allowed is {ALLOWED}")
    if not answer.figure(answer.FIGURE):
        refuse("answer", f"{type(answer).__name__} of 0", "nothing is a share of it; allowed is an answer above 0")
    return make(answer)


def _of_step(step: Step) -> Subject:
    head, specs = _head(step, step.model.id, step.system.id), (step.system, step.stack)
    return Subject(head, step, specs, lambda *other: _step_again(step, *other), step_tree, step.model)


def _step_again(step: Step, system: Any, stack: Any) -> Step:
    """Return a step of another system and stack; overlaps are those of the stack, unless the call named others."""
    q = step.question
    named = {name: x for name, x in q.sizes.items() if name not in OVERLAPS or np.any(x != getattr(step.stack, name))}
    ask: dict[str, Any] = {**named, "precision": step.precision, "efficiencies": stack}
    if isinstance(q, DecodeQuestion):
        return decode_step(step.model, system, q.mapping, expert_read=q.expert_read, **ask)
    return prefill(step.model, system, q.mapping, **ask)


def _of_memory(fit: MemoryFit) -> Subject:
    q = fit.question

    def again(system: Any, stack: Any) -> MemoryFit:
        ask: dict[str, Any] = {**q.sizes, "precision": q.precision, "efficiencies": stack}
        return memory_fit(q.model, system, q.mapping, **ask)

    head = _head(fit, q.model.id, fit.system.id)
    return Subject(head, fit, (fit.system, fit.stack), again, memory_tree, q.model)


def _of_collective(one: Collective) -> Subject:
    q = one.question
    e = () if q.efficiencies is None else (q.efficiencies,)
    launch = chip_of(q.system).collective_launch_s

    def again(system: Any, stack: Any = None) -> Collective:
        is_own = bool(launch) and np.all(q.launch_s == launch)
        ask: dict[str, Any] = {"in_graph": False} if is_own else {"launch_s": q.launch_s}
        ask |= {"algorithm": q.algorithm, "alpha_s": q.alpha_s, "lnc": q.lnc, "stride": q.stride}
        ask |= {"rate_share": q.rate_share, "buffers": q.buffers, "efficiencies": stack}
        return collective(q.kind, q.message_bytes, system, q.ranks, **ask)

    head = _head(one, q.kind.replace("_", "-"), q.system.id)
    return Subject(head, one, (q.system, *e), again, collective_tree, None)


def _of_energy(one: Energy) -> Subject:
    q = one.question
    power = facilities.power(chip_of(one.system)) if q.power is None else q.power

    def again(system: Any, stack: Any, facility: Any, power: Any) -> Energy:
        there = energy(_step_again(q.step, system, stack), facility=facility, power=power)
        assert isinstance(there, Energy)
        return there

    head, specs = _head(one, one.model.id, one.system.id), (one.system, one.stack, q.facility, power)
    return Subject(head, one, specs, again, energy_tree, one.model)


def _of_choice(c: Choice) -> Subject:
    q, head = c.question, _head(c, c.question.model.id, c.place)
    if q.request.requests_per_s is not None:
        head = f"{head}. {IN_JUMPS}"
    return Subject(head, c, (q.system, q.option), lambda *specs: _choice_again(c, *specs), choice_tree, q.model)


def _choice_again(c: Choice, system: Any, option: Any) -> Choice:
    """Return the same mapping and batch on another system with other software, at the load that is planned there."""
    q = c.question._replace(system=system, option=option)
    steps = q.steps(c.degrees, np.asarray(c.batch))
    chips = float(steps.step.occupied_chips)
    return chosen(Point((2, 0.0, 0.0), q, c.tp, c.ep, c.pp, c.cp, q.times(steps), chips, ""))


def _of_cost(one: TokenCost) -> Subject:
    c = one.choice
    if c is None or one.owned is not None:
        refuse("answer", "TokenCost of an owner", f"its price follows from tm.tco; allowed is {ALLOWED}")

    def again(system: Any, option: Any, rent: Any) -> TokenCost:
        there = _choice_again(c, system, option)
        return cost_line(one.question, system, rent, None, option.efficiencies, there)

    q, head = c.question, _head(one, one.model.id, one.system.id)
    return Subject(head, one, (q.system, q.option, replace(one.rent, chip=q.system.chip)), again, cost_tree, q.model)


def _of_train_step(step: TrainStep) -> Subject:
    head, specs = _head(step, step.model.id, step.system.id), (step.system, step.stack)
    return Subject(head, step, specs, lambda *other: _train_again(step, *other), train_tree, step.model)


def _of_run(run: TrainRun) -> Subject:
    head = _head(run, run.model.id, run.system.id)
    return _of_train_step(run.step)._replace(head=head, tree=lambda step: run_tree(run, step))


def _train_again(step: TrainStep, system: Any, stack: Any) -> TrainStep:
    """Return a training step of another system and stack; what the call did not name is that of the stack."""
    q = step.question
    names = (name for name, x in q.sizes.items() if np.any(x != getattr(step.stack, name, np.nan)))
    named: dict[str, Any] = {name: q.sizes[name] for name in names}
    ask: dict[str, Any] = {"recompute": q.recompute, "zero": q.zero, "sequence_parallel": q.sequence_parallel}
    return train_step(q.model, system, q.mapping, precision=q.precision, efficiencies=stack, **named, **ask)


def _head(answer: Any, what: str, where: str) -> str:
    """Return the first line of a card, with its subject and place in front."""
    return f"{what} on {where}: {answer.card()[0].partition(': ')[2]}"


KINDS: tuple[tuple[type, Callable[[Any], Subject]], ...] = (
    (Step, _of_step),
    (MemoryFit, _of_memory),
    (Collective, _of_collective),
    (Energy, _of_energy),
    (Choice, _of_choice),
    (TokenCost, _of_cost),
    (TrainStep, _of_train_step),
    (TrainRun, _of_run),
)
