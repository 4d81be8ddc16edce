"""A grid of frontiers with each point's step by resource: the data of the interactive chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import choice, integer, listed, numbers
from trnmodel.catalog import load
from trnmodel.catalog.stacks import KINDS, kinds
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import tco
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.power.energy import energy
from trnmodel.result import tidy
from trnmodel.search.deployments import computes, frontier, tried
from trnmodel.steps.answers import RESOURCES
from trnmodel.steps.inference import memory_fit
from trnmodel.steps.legal import longer
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.units import GIB, format_digits

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

POINTS = 12  # per frontier
LABELS = ("model", "system", "stack_kind", "precision", "context")
FIGURES = "tokens_per_s_per_user tokens_per_s_per_chip tokens_per_s_per_chip_low tokens_per_s_per_chip_high".split()
JOULES = [f"server_j_per_token{end}" for end in ("", "_low", "_high")]
DOLLARS = [f"useful_usd_per_h{end}" for end in ("", "_low", "_high")]
COLUMNS = [*LABELS, "place", "tp", "ep", "batch", "chips", *FIGURES, "time_s", *(f"{name}_s" for name in RESOURCES)]
COLUMNS += ["basis", *JOULES, "energy_basis", *DOLLARS, "cost_basis", "why"]


def frontier_grid(
    models: Iterable[str | Transformer],
    systems: Iterable[str | System],
    stack_kinds: Iterable[str] = tuple(reversed(KINDS)),
    precisions: Sequence[str] = ("bf16", "fp8"),
    contexts: ArrayLike = (4096, 32768),
    points: int = POINTS,
) -> pd.DataFrame:
    """Return points of the frontiers of all combinations, each with its step by resource.

    Parameters
    ----------
    stack_kinds : iterable of str
        "public", "hand-tuned", "ideal". [-]
    points : int
        Points per frontier, its ends included, spread evenly over the logarithm of the speed per user. [-]

    Returns
    -------
    table : pandas.DataFrame
        model, system, stack_kind, precision, context; place (from 1, the slowest per user), tp, ep, batch, chips,
        tokens_per_s_per_user, tokens_per_s_per_chip with `_low` and `_high`, time_s, and compute_s, memory_s, network_s
        and overhead_s (each by itself), basis; server_j_per_token with its ends and energy_basis, useful_usd_per_h
        (of a chip to a hyperscaler, at capacity) and cost_basis alike (NaN and "" where no
        source has watts of the chip); a combination without points has one row, whose `why` says so. [-]

    Examples
    --------
    >>> table = frontier_grid(["llama-3.1-8b"], ["trn1.32xlarge"], ["ideal"], ["bf16", "fp8"], [4096.0], points=3)
    >>> table.tp.tolist()[:3], table.why.iloc[-1]
    ([32.0, 32.0, 32.0], 'Trainium1 multiplies in bf16, cfp8, fp16, fp32, tf32, not in fp8')
    """
    several = (
        _once(read_model(one) for one in listed("models", models, (str, Transformer))),
        _once(read_system(one) for one in listed("systems", systems, (str, System))),
        dict.fromkeys(choice("stack_kinds", kind, KINDS) for kind in listed("stack_kinds", stack_kinds, str)),
        dict.fromkeys(listed("precisions", precisions, str)),
        np.unique(numbers("contexts", contexts, 1)).tolist(),
    )
    points, rows = integer("points", points, 2), []
    dollars = {spec.id: _dollars(spec) for spec in several[1]}
    for case in product(*several):
        labels = dict(zip(LABELS, (case[0].id, case[1].id, *case[2:]), strict=True))
        line = _line(points, *case)
        rows.append(labels | line | (dollars[case[1].id] if "time_s" in line else {}))
    return tidy(rows).reindex(columns=COLUMNS)


def _once(specs: Iterable[Any]) -> list[Any]:
    """Return the specs with each id once."""
    return list({one.id: one for one in specs}.values())


def _line(points: int, m: Transformer, spec: System, kind: str, precision: str, context: float) -> dict[str, Any]:
    """Return the points of one frontier, or the reason why it has none."""
    if why := _impossible(m, spec, kind, precision, context):
        return {"why": why}
    ask: dict[str, Any] = {"context": context, "precision": precision, "efficiencies": KINDS[kind]}
    step = frontier(m, spec, points, **ask)
    if step is None:
        return {"why": _unfit(m, spec, ask)}
    e = energy(step)
    place = {"place": np.arange(1, len(step.batch) + 1), "chips": step.occupied_chips, "basis": step.basis, "why": ""}
    place |= step.banded("tokens_per_s_per_chip") | e.banded("server_j_per_token")
    place |= {"energy_basis": np.where(e.valid, e.basis, "")}
    names = ("tp", "ep", "batch", "tokens_per_s_per_user", "time_s", *(f"{name}_s" for name in RESOURCES))
    return place | {name: getattr(step, name) for name in names}


def _dollars(spec: System) -> dict[str, Any]:
    """Return a hyperscaler's cost per chip-hour, with its ends and basis."""
    cost = tco(spec)
    return cost.banded("useful_usd_per_h") | {"cost_basis": str(cost.basis) if cost.valid else ""}


def _impossible(m: Transformer, spec: System, kind: str, precision: str, context: float) -> str:
    """Return why a combination cannot be asked; an empty text if it can."""
    if kind not in kinds(spec.chip):
        return f"no {kind} software of {spec.chip.name} is described"
    if not computes(spec, precision):
        own = ", ".join(sorted(spec.chip.peak_flop_per_s))
        return f"{spec.chip.name} multiplies in {own}, not in {load.precision(precision).compute}"
    return longer(m, context)


def _unfit(m: Transformer, spec: System, ask: dict[str, Any]) -> str:
    """Return why no mapping of a system can run a model: the memory needed and present, else the reasons."""
    step = tried(m, spec, **ask)
    mapping = Degrees(tp=step.tp, ep=step.ep)
    fit = memory_fit(m, spec, mapping, batch=mapping.ep, **ask)
    need, have = (np.ravel(x * mapping.ranks / GIB) for x in (fit.total_bytes, fit.capacity_bytes))
    least = int(np.argmin(need / have))
    if need[least] > have[least]:
        return f"does not fit: {format_digits(need[least], 3)} of {format_digits(have[least], 3)} GiB"
    return "; ".join(sorted(set(np.ravel(step.reason)) - {""}))
