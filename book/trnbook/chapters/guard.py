"""Checks of a chapter's parameters in its first cell, before anything is computed.

The cell names its own parameters: `guard.within(1, 64, tp=tp)`, `guard.neuroncore(chip=spec)`. What is refused is named
by the parameter, its value and what the chapter needs. `trnmodel run` prints that line and leaves nothing behind; in a
notebook the line stands alone, without a traceback.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from trnmodel.arguments import HUGE, TINY, ImpossibleError, UnanswerableError, shown
from trnmodel.catalog import load
from trnmodel.catalog import stacks as catalog_stacks
from trnmodel.catalog.posterior import is_file
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import KINDS, find, kinds
from trnmodel.catalog.systems import System
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Result
from trnmodel.search import sizing
from trnmodel.search.launch import runs
from trnmodel.steps.deployment import Deployment

MOST_DRAWN = 200  # chips per domain that a drawing can show


def need(holds: bool, why: str) -> None:
    """Raise UnanswerableError unless a condition holds.

    Examples
    --------
    >>> need(2 + 2 == 5, "tp = 3 does not divide 64 ranks")
    Traceback (most recent call last):
    trnmodel.arguments.UnanswerableError: tp = 3 does not divide 64 ranks
    """
    if not holds:
        raise UnanswerableError(why)


def possible(holds: bool, why: str) -> None:
    """Raise ImpossibleError unless something satisfies the parameters, each valid by itself.

    Examples
    --------
    >>> possible(False, "llama-3.1-405b does not fit in memory")
    Traceback (most recent call last):
    trnmodel.arguments.ImpossibleError: llama-3.1-405b does not fit in memory
    """
    if not holds:
        raise ImpossibleError(why)


def within(low: float, high: float, **values: float | list[float]) -> None:
    """Check that numbers, alone or in non-empty lists, lie from `low` to `high`.

    Examples
    --------
    >>> within(1, 1e6, batch=8, sizes=[1, 10])
    >>> within(1, 1e6, batch=0)
    Traceback (most recent call last):
    trnmodel.arguments.UnanswerableError: batch = 0 must be from 1 to 1e+06
    """
    for name, value in values.items():
        some(**{name: value})
        for item in value if isinstance(value, list) else [value]:
            need(low <= item <= high, f"{name} = {shown(item)} must be from {low:g} to {high:g}")


def above_zero(**values: float | list[float]) -> None:
    """Check that numbers, alone or in non-empty lists, are above zero."""
    within(TINY, HUGE, **values)


def some(**values: object) -> None:
    """Check that lists hold at least one item."""
    for name, value in values.items():
        need(value != [], f"{name} = [] must hold at least one item")


def one_of(allowed: Collection[object], **values: object) -> None:
    """Check that values belong to a closed list.

    Examples
    --------
    >>> one_of(["bf16", "fp8"], dtype="fp9")
    Traceback (most recent call last):
    trnmodel.arguments.UnanswerableError: dtype = 'fp9' must be one of bf16, fp8
    """
    for name, value in values.items():
        need(value in allowed, f"{name} = {shown(value)} must be one of {', '.join(map(str, allowed))}")


def neuroncore(**specs: Chip | System | list[System]) -> None:
    """Check that chips, or systems of chips, alone or in lists, are built of NeuronCores."""
    for name, value in specs.items():
        for spec in value if isinstance(value, list) else [value]:
            chip = spec.chip if isinstance(spec, System) else spec
            need(chip.core is not None, f"{name} = {spec.id!r} has no NeuronCore, which this chapter describes")


def links(**systems: System) -> None:
    """Check that systems have a published link rate and few enough chips to be drawn."""
    for name, spec in systems.items():
        need(spec.domain_chips <= MOST_DRAWN, f"{name} = {spec.id!r}: {spec.domain_chips:g} chips are too many to draw")
        known = spec.domain_chips == 1 or not math.isnan(spec.chip.scaleup_bytes_per_s_per_dir)
        need(known, f"{name} = {spec.id!r}: no rate of its links is published")


def generates(**models: Transformer | list[Transformer]) -> None:
    """Check that models, alone or in lists, have a decode step."""
    for name, value in models.items():
        for model in value if isinstance(value, list) else [value]:
            need(model.generates, f"{name} = {model.id!r} is an encoder: it has no decode step")


def reaches(tokens: int, **models: Transformer) -> None:
    """Check that models state a longest context of at least `tokens`."""
    for name, model in models.items():
        longest = f"a longest context of {model.max_context}" if model.max_context else "no longest context"
        need(model.max_context >= tokens, f"{name} = {model.id!r} has {longest}; {tokens} tokens are needed")


def spans(tokens: float, **models: Transformer) -> None:
    """Check that models do not end before `tokens`; a model without a longest context passes."""
    for name, model in models.items():
        fits = not model.max_context or tokens <= model.max_context
        need(fits, f"{name} = {model.id!r} ends at {model.max_context} tokens; {tokens:.15g} are asked for")


def routes(least: int = 2, **models: Transformer) -> None:
    """Check that models have at least `least` routed experts in a layer."""
    for name, model in models.items():
        most = max(part.copies for layer in model.layers for part in layer.parts)
        need(most > 1, f"{name} = {model.id!r} has no routed experts, which this chapter describes")
        need(most >= least, f"{name} = {model.id!r} has {most} routed experts; {least} are needed")


def computes(chip: Chip, **precisions: str) -> None:
    """Check that a chip has a peak in the format of each precision."""
    for name, precision in precisions.items():
        dtype = load.precision(precision).compute
        need(dtype in chip.peak_flop_per_s, f"{name} = {precision!r} computes in {dtype}, which {chip.id} does not")


def software(chip: Chip, **stacks: str) -> None:
    """Check that a chip has the kind of software, or that a stack by name or by its file runs on it."""
    for name, stack in stacks.items():
        own_file = [stack] if isinstance(stack, str) and is_file(stack) else []
        known = dict.fromkeys([*KINDS, *catalog_stacks.stacks(), *own_file])
        one_of(known, **{name: stack})
        there = kinds(chip) if stack in KINDS else known
        need(stack in there, f"{name} = {stack!r}: {chip.id} has none; it has {', '.join(there)}")
        own = find(chip, KINDS.get(stack, stack), name)
        need(runs(own, chip), f"{name} = {stack!r} does not run on {chip.id}")


def fits(d: Deployment, batch: float, context: float) -> None:
    """Check that a decode step exists; the message says by how much it does not fit and what would hold it."""
    why = sizing.shortfall(d, batch, context)
    case = f"tp = {d.mapping.tp:g}, ep = {d.mapping.ep:g}, batch = {batch:g}, context = {context:g}"
    hold = why and sizing.remedy(d, batch, context)
    possible(not why, f"{read_model(d.model).id} on {d.system} with {case}: {why}; {hold}")


def valid(what: str, result: Result) -> None:
    """Check that every point of a result, called `what` in the message, can exist."""
    possible(bool(np.all(result.valid)), f"{what} cannot exist: {'; '.join(sorted({*np.ravel(result.reason)} - {''}))}")
