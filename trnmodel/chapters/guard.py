"""What a chapter cannot answer, said in one line by its first cell, before anything is computed.

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
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import KINDS, find, kinds
from trnmodel.catalog.systems import System
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.planner import sizing
from trnmodel.planner.launch import runs
from trnmodel.result import Result
from trnmodel.steps.deployment import Deployment

MOST_DRAWN = 200  # chips of a domain


def need(holds: bool, why: str) -> None:
    """Go on only if something holds.

    Examples
    --------
    >>> need(2 + 2 == 5, "tp = 3 does not divide 64 ranks")
    Traceback (most recent call last):
    trnmodel.arguments.UnanswerableError: tp = 3 does not divide 64 ranks
    """
    if not holds:
        raise UnanswerableError(why)


def possible(holds: bool, why: str) -> None:
    """Go on only if something satisfies the parameters, which are valid each by itself.

    Examples
    --------
    >>> possible(False, "llama-3.1-405b does not fit in memory")
    Traceback (most recent call last):
    trnmodel.arguments.ImpossibleError: llama-3.1-405b does not fit in memory
    """
    if not holds:
        raise ImpossibleError(why)


def within(low: float, high: float, **values: float | list[float]) -> None:
    """Numbers from `low` to `high`, alone or in lists that hold at least one.

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
    """Numbers above zero, alone or in lists that hold at least one."""
    within(TINY, HUGE, **values)


def some(**values: object) -> None:
    """Lists that hold at least one item."""
    for name, value in values.items():
        need(value != [], f"{name} = [] must hold at least one item")


def one_of(allowed: Collection[object], **values: object) -> None:
    """Values of a closed list.

    Examples
    --------
    >>> one_of(["bf16", "fp8"], dtype="fp9")
    Traceback (most recent call last):
    trnmodel.arguments.UnanswerableError: dtype = 'fp9' must be one of bf16, fp8
    """
    for name, value in values.items():
        need(value in allowed, f"{name} = {shown(value)} must be one of {', '.join(map(str, allowed))}")


def neuroncore(**specs: Chip | System | list[System]) -> None:
    """Chips, or systems of chips, alone or in lists, that are built of NeuronCores."""
    for name, value in specs.items():
        for spec in value if isinstance(value, list) else [value]:
            chip = spec.chip if isinstance(spec, System) else spec
            need(chip.core is not None, f"{name} = {spec.id!r} has no NeuronCore, of which this chapter tells")


def links(**systems: System) -> None:
    """Systems whose links have a published rate and are few enough to be drawn."""
    for name, spec in systems.items():
        need(spec.domain_chips <= MOST_DRAWN, f"{name} = {spec.id!r}: {spec.domain_chips:g} chips are too many to draw")
        known = spec.domain_chips == 1 or not math.isnan(spec.chip.scaleup_bytes_per_s_per_dir)
        need(known, f"{name} = {spec.id!r}: no rate of its links is published")


def generates(**models: Transformer | list[Transformer]) -> None:
    """Models, alone or in lists, that have a decode step."""
    for name, value in models.items():
        for model in value if isinstance(value, list) else [value]:
            need(model.generates, f"{name} = {model.id!r} is an encoder: it has no decode step")


def reaches(tokens: int, **models: Transformer) -> None:
    """Models whose longest context is at least so many tokens; some state none."""
    for name, model in models.items():
        longest = f"a longest context of {model.max_context}" if model.max_context else "no longest context"
        need(model.max_context >= tokens, f"{name} = {model.id!r} has {longest}; {tokens} tokens are needed")


def spans(tokens: float, **models: Transformer) -> None:
    """Models that do not end before so many tokens; one that states no longest context never does."""
    for name, model in models.items():
        fits = not model.max_context or tokens <= model.max_context
        need(fits, f"{name} = {model.id!r} ends at {model.max_context} tokens; {tokens:.15g} are asked for")


def routes(least: int = 2, **models: Transformer) -> None:
    """Models with at least so many routed experts in a layer."""
    for name, model in models.items():
        most = max(part.copies for layer in model.layers for part in layer.parts)
        need(most > 1, f"{name} = {model.id!r} has no routed experts, of which this chapter tells")
        need(most >= least, f"{name} = {model.id!r} has {most} routed experts; {least} are needed")


def computes(chip: Chip, **precisions: str) -> None:
    """Precisions in whose format a chip has a peak."""
    for name, precision in precisions.items():
        dtype = load.precision(precision).compute
        need(dtype in chip.peak_flop_per_s, f"{name} = {precision!r} computes in {dtype}, which {chip.id} does not")


def software(chip: Chip, **stacks: str) -> None:
    """Kinds of software that a chip has, or stacks by name that run on it."""
    for name, stack in stacks.items():
        one_of(known := dict.fromkeys([*KINDS, *catalog_stacks.stacks()]), **{name: stack})
        there = kinds(chip) if stack in KINDS else known
        need(stack in there, f"{name} = {stack!r}: {chip.id} has none; it has {', '.join(there)}")
        own = find(chip, KINDS.get(stack, stack), name)
        need(runs(own, chip), f"{name} = {stack!r} does not run on {chip.id}")


def fits(d: Deployment, batch: float, context: float) -> None:
    """A decode step that exists; where it does not, by how much it does not fit and what would hold it."""
    why = sizing.shortfall(d, batch, context)
    asked = f"tp = {d.mapping.tp:g}, ep = {d.mapping.ep:g}, batch = {batch:g}, context = {context:g}"
    hold = why and sizing.remedy(d, batch, context)
    possible(not why, f"{read_model(d.model).id} on {d.system} with {asked}: {why}; {hold}")


def valid(what: str, result: Result) -> None:
    """A result, called so, each point of which can exist."""
    possible(bool(np.all(result.valid)), f"{what} cannot exist: {'; '.join(sorted({*np.ravel(result.reason)} - {''}))}")
