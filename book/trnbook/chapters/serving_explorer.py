"""The grid behind the chart with controls: frontiers of all combinations, or why one has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import choice, listed
from trnmodel.catalog import load
from trnmodel.catalog.stacks import KINDS, kinds
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import Cost
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.search.compare import Comparison
from trnmodel.search.grid import computes
from trnmodel.steps.answers import RESOURCES
from trnmodel.steps.legal import longer

if TYPE_CHECKING:
    import pandas as pd

SPEEDS = (10.0, 20.0, 50.0, 100.0, 200.0)  # promised to a user [token/s]
SOFTWARE = tuple(reversed(KINDS))
FORMATS = ("bf16", "fp8", "mxfp8")
LABELS = ("model", "system", "stack_kind", "precision")
DEGREES = ("tp", "ep", "pp", "cp")
ALONE = ("chance", "decode_tokens_per_s_per_chip", "prefill_utilisation")
FIGURES = "promised_tokens_per_s_per_user tokens_per_s_per_chip tokens_per_s_per_chip_low".split()
FIGURES += ["tokens_per_s_per_chip_high", *ALONE]
JOULES = [f"server_j_per_token{end}" for end in ("", "_low", "_high")]
DOLLARS = [f"useful_usd_per_h{end}" for end in ("", "_low", "_high")]
COLUMNS = [*LABELS, "place", *DEGREES, "batch", "chips", "option", *FIGURES, "time_s"]
COLUMNS += [*(f"{name}_s" for name in RESOURCES), "basis", *JOULES, "energy_basis", *DOLLARS, "cost_basis", "why"]

Ask = Callable[[Transformer, System, str | None, str], Comparison]


def frontier_grid(
    ask: Ask,
    owner: Callable[[System], Cost],
    models: Iterable[str | Transformer],
    systems: Iterable[str | System],
    *,
    tokens: float,
    software: Iterable[str] = SOFTWARE,
    precisions: Iterable[str] = FORMATS,
) -> pd.DataFrame:
    """Return the points of the frontiers of all combinations, each with its decode step by resource.

    Parameters
    ----------
    ask : callable
        Returns the comparison of one system at several promises, for a model, a system, the `efficiencies` and the
        precision. [-]
    owner : callable
        Returns what a chip-hour of a system costs its owner. [-]
    models, systems : iterable
        Ids or objects. [-]
    tokens : float
        Of a prompt and its answer; a model that ends before them has no points. [token]
    software : iterable of str
        "public", "hand-tuned", "ideal". [-]
    precisions : iterable of str
        Number formats. [-]

    Returns
    -------
    table : pandas.DataFrame
        model, system, stack_kind, precision; place (from 1, the slowest promise), tp, ep, pp, cp, batch, chips, option,
        promised_tokens_per_s_per_user, tokens_per_s_per_chip (of whole requests, per paid chip) with `_low` and
        `_high`, chance, decode_tokens_per_s_per_chip, prefill_utilisation, time_s of a decode step, and compute_s,
        memory_s, network_s and overhead_s (each by itself), basis; server_j_per_token of whole requests with its ends
        and energy_basis, useful_usd_per_h (of a chip to its owner, at capacity) and cost_basis alike (NaN and ""
        where no source has watts of the chip); a combination without points has one row, whose `why` says so. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> def ask(model, system, software, precision):
    ...     more = {"speeds": [20, 80], "efficiencies": software, "precision": precision}
    ...     return tm.compare(model, tm.Request(1024, 256), system, **more)
    >>> table = frontier_grid(ask, tm.tco, ["llama-3.1-8b"], ["trn1.32xlarge"], tokens=1280, software=["ideal"])
    >>> table.promised_tokens_per_s_per_user.tolist()[:2], table.why.iloc[-1]
    ([20.0, 80.0], 'Trainium1 multiplies in bf16, cfp8, fp16, fp32, tf32, not in mxfp8')
    """
    several = (
        _once(read_model(one) for one in listed("models", models, (str, Transformer))),
        _once(read_system(one) for one in listed("systems", systems, (str, System))),
        dict.fromkeys(choice("software", kind, KINDS) for kind in listed("software", software, str)),
        dict.fromkeys(listed("precisions", precisions, str)),
    )
    hours = {spec.id: _hour(owner(spec)) for spec in several[1]}
    rows = list[dict[str, Any]]()
    for m, spec, kind, precision in product(*several):
        labels = dict(zip(LABELS, (m.id, spec.id, kind, precision), strict=True))
        why = impossible(m, spec, kind, precision, tokens)
        lines = [{"why": why}] if why else _lines(ask(m, spec, KINDS[kind], precision))
        rows += [labels | line | (hours[spec.id] if "time_s" in line else {}) for line in lines]
    return tidy(rows).reindex(columns=COLUMNS)


def _once(specs: Iterable[Any]) -> list[Any]:
    """Return the specs with each id once."""
    return list({one.id: one for one in specs}.values())


def _lines(answer: Comparison) -> list[dict[str, Any]]:
    """Return the points of one frontier, or the reason why it has none."""
    reached = [c for c in answer.lines if c.valid]
    return [_line(c) | {"place": i} for i, c in enumerate(reached, 1)] or [{"why": _unreached(answer)}]


def _line(c: Choice) -> dict[str, Any]:
    """Return a choice as columns of the grid."""
    line = {name: getattr(c, name) for name in (*DEGREES, "batch", "chips", *ALONE)} | c.banded(c.FIGURE)
    line |= {"promised_tokens_per_s_per_user": c.question.request.tokens_per_s_per_user, "option": c.option.name}
    line |= {name: float(getattr(c.step, name)) for name in ("time_s", *(f"{one}_s" for one in RESOURCES))}
    e = c.energy()
    line |= {name: float(value) for name, value in e.banded(JOULES[0]).items()}
    return line | {"energy_basis": str(e.basis) if e.valid else "", "basis": str(c.basis), "why": ""}


def _hour(cost: Cost) -> dict[str, Any]:
    """Return the owner's cost per chip-hour, with its ends and basis."""
    return cost.banded("useful_usd_per_h") | {"cost_basis": str(cost.basis) if cost.valid else ""}


def shown(grid: pd.DataFrame, best: Choice) -> str:
    """Return the precision with which the chart opens: that of the plan, or the first of the grid."""
    known = list(dict.fromkeys(grid.precision))
    return best.precision if best.precision in known else known[0]


def impossible(m: Transformer, spec: System, kind: str, precision: str, tokens: float) -> str:
    """Return why a combination cannot be asked; an empty text if it can.

    Examples
    --------
    >>> impossible(read_model("llama-3.1-8b"), read_system("trn2.48xlarge"), "ideal", "bf16", 131_073)
    'llama-3.1-8b has contexts of up to 131,072 tokens'
    """
    if kind not in kinds(spec.chip):
        return f"no {kind} software of {spec.chip.name} is described"
    if not computes(spec, precision):
        own = ", ".join(sorted(spec.chip.peak_flop_per_s))
        return f"{spec.chip.name} multiplies in {own}, not in {load.precision(precision).compute}"
    return longer(m, tokens)


def _unreached(answer: Comparison) -> str:
    """Return why a system keeps no promise: what its memory lacks, or the highest speed of a user."""
    if answer.refused:
        return next(iter(answer.refused.values()))
    return f"at most {max(c.tokens_per_s_per_user for c in answer.lines):.3g} tokens/s for a user"
