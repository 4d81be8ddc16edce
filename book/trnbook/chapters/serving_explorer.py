"""A grid of frontiers with each point's step by resource: the data of the interactive chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import TINY, choice, listed, numbers
from trnmodel.catalog import facilities, load
from trnmodel.catalog.stacks import KINDS, kinds
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import tco
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.power.energy import of_request
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.search.frontier import best_at
from trnmodel.search.grid import computes
from trnmodel.search.plan import plan
from trnmodel.steps.answers import RESOURCES
from trnmodel.steps.legal import longer
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.request import Request, one_request

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

SPEEDS = (10.0, 20.0, 40.0, 80.0, 160.0)  # promised to a user [token/s]
LABELS = ("model", "system", "stack_kind", "precision")
DEGREES = ("tp", "ep", "pp", "cp")
ALONE = ("chance", "decode_tokens_per_s_per_chip", "prefill_utilisation")
FIGURES = "promised_tokens_per_s_per_user tokens_per_s_per_chip tokens_per_s_per_chip_low".split()
FIGURES += ["tokens_per_s_per_chip_high", *ALONE]
JOULES = [f"server_j_per_token{end}" for end in ("", "_low", "_high")]
DOLLARS = [f"useful_usd_per_h{end}" for end in ("", "_low", "_high")]
COLUMNS = [*LABELS, "place", *DEGREES, "batch", "chips", "option", *FIGURES, "time_s"]
COLUMNS += [*(f"{name}_s" for name in RESOURCES), "basis", *JOULES, "energy_basis", *DOLLARS, "cost_basis", "why"]


def frontier_grid(
    models: Iterable[str | Transformer],
    systems: Iterable[str | System],
    request: Request,
    stack_kinds: Iterable[str] = tuple(reversed(KINDS)),
    precisions: Sequence[str] = ("bf16", "fp8"),
    tokens_per_s_per_user: ArrayLike = SPEEDS,
) -> pd.DataFrame:
    """Return points of the frontiers of all combinations, each with its decode step by resource.

    Parameters
    ----------
    request : Request
        Its own speed does not count. [-]
    stack_kinds : iterable of str
        "public", "hand-tuned", "ideal". [-]
    tokens_per_s_per_user : array_like
        Promised speeds. [token/s]

    Returns
    -------
    table : pandas.DataFrame
        model, system, stack_kind, precision; place (from 1, the slowest promise), tp, ep, pp, cp, batch, chips, option,
        promised_tokens_per_s_per_user, tokens_per_s_per_chip (of whole requests, per paid chip) with `_low` and
        `_high`, chance, decode_tokens_per_s_per_chip, prefill_utilisation, time_s of a decode step, and compute_s,
        memory_s, network_s and overhead_s (each by itself), basis; server_j_per_token of whole requests with its ends
        and energy_basis, useful_usd_per_h (of a chip to a hyperscaler, at capacity) and cost_basis alike (NaN and ""
        where no source has watts of the chip); a combination without points has one row, whose `why` says so. [-]

    Examples
    --------
    >>> ask = ["llama-3.1-8b"], ["trn1.32xlarge"], Request(1024, 256), ["ideal"], ["bf16", "fp8"], [20.0, 80.0]
    >>> table = frontier_grid(*ask)
    >>> table.promised_tokens_per_s_per_user.tolist()[:2], table.why.iloc[-1]
    ([20.0, 80.0], 'Trainium1 multiplies in bf16, cfp8, fp16, fp32, tf32, not in fp8')
    """
    several = (
        _once(read_model(one) for one in listed("models", models, (str, Transformer))),
        _once(read_system(one) for one in listed("systems", systems, (str, System))),
        dict.fromkeys(choice("stack_kinds", kind, KINDS) for kind in listed("stack_kinds", stack_kinds, str)),
        dict.fromkeys(listed("precisions", precisions, str)),
    )
    speeds = np.unique(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY))
    request, rows = one_request("request", request), list[dict[str, Any]]()
    dollars = {spec.id: _dollars(spec) for spec in several[1]}
    for case in product(*several):
        labels = dict(zip(LABELS, (case[0].id, case[1].id, *case[2:]), strict=True))
        lines = _lines(request, speeds, *case)
        rows += [labels | line | (dollars[case[1].id] if "time_s" in line else {}) for line in lines]
    return tidy(rows).reindex(columns=COLUMNS)


def _once(specs: Iterable[Any]) -> list[Any]:
    """Return the specs with each id once."""
    return list({one.id: one for one in specs}.values())


def _lines(
    request: Request, speeds: Any, m: Transformer, spec: System, kind: str, precision: str
) -> list[dict[str, Any]]:
    """Return the points of one frontier, or the reason why it has none."""
    if why := _impossible(m, spec, kind, precision, float(request.longest_context)):
        return [{"why": why}]
    reached = [c for c in best_at(m, request, spec, speeds, [precision], KINDS[kind]) if c]
    if not reached:
        return [{"why": _unreached(m, spec, request, kind, precision, float(speeds[0]))}]
    by_option = [[c for c in reached if c.option.id == one] for one in dict.fromkeys(c.option.id for c in reached)]
    spent = {id(c): line for some in by_option for c, line in zip(some, _joules(some), strict=True)}
    return [_line(c) | {"place": i} | spent[id(c)] for i, c in enumerate(reached, 1)]


def _line(c: Choice) -> dict[str, Any]:
    """Return a choice as columns of the grid."""
    line = {name: getattr(c, name) for name in (*DEGREES, "batch", "chips", *ALONE)} | c.banded(c.FIGURE)
    line |= {"promised_tokens_per_s_per_user": c.question.request.tokens_per_s_per_user, "option": c.option.name}
    line |= {name: float(getattr(c.step, name)) for name in ("time_s", *(f"{one}_s" for one in RESOURCES))}
    return line | {"basis": str(c.basis), "why": ""}


def _joules(some: Sequence[Choice]) -> list[dict[str, Any]]:
    """Return the joules of whole requests to choices with one software option, as `Choice.energy` has them."""
    at: dict[str, Any] = {name: np.array([getattr(c, name) for c in some]) for name in DEGREES}
    q, rate = some[0].question, np.array([c.requests_per_s_per_replica for c in some])
    steps = q.steps(Degrees(**at, lnc=q.option.lnc or None), np.array([c.batch for c in some]))
    prompt_s, busy = (np.array(x) for x in zip(*((c.times.prompt_s, c.prefill_utilisation) for c in some), strict=True))
    more = {"prompt_s": prompt_s, "decode_s_per_token": (1 - busy) / (rate * q.request.output_tokens)}
    e = of_request(steps.together, steps.step, q.request, facility=facilities.facility("aws-air"), **more)
    basis = np.where(e.valid, e.basis, "")
    columns = e.banded(JOULES[0]) | {"energy_basis": basis}
    whole = [np.broadcast_to(column, len(some)).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*whole, strict=True)]


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


def _unreached(m: Transformer, spec: System, request: Request, kind: str, precision: str, speed: float) -> str:
    """Return why a system keeps no promise: what its memory lacks, or the highest speed of a user."""
    slow = Request(request.input_tokens, request.output_tokens, speed, prefix_share=request.prefix_share)
    answer = plan(m, slow, spec, precision=precision, efficiencies=KINDS[kind])
    if answer.refused:
        return answer.refused[spec.id]
    return f"at most {answer.choices[0].tokens_per_s_per_user:.3g} tokens/s for a user"
