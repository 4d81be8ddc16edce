"""Tables of the chapter that opens the workbench: its card, the grid of mappings, the waterfall of a step, sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trnbook import charts
from trnbook.chapters import common
from trnbook.chapters.common import card
from trnbook.shared import drafts
from trnbook.workbench import Answers, ServingState
from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.search.grid import tensor_degrees
from trnmodel.steps.rank import site
from trnmodel.units import format_digits, format_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from trnmodel.search.choice import Choice
    from trnmodel.search.plan import Plan
    from trnmodel.serving.server import Serving
    from trnmodel.steps.answers import MemoryFit

PROOF = "Check: a step that AWS printed"
SURE = "**How sure?** Nine in ten draws of what is uncertain lie in the range in brackets."
WINDOW = 6  # degrees of TP that the grid holds, at most
TIMES = np.exp2(np.arange(-2.0, 4.0))  # the batch of a plan that the grid tries


def unreached(plan: Plan) -> str:
    """Return why a system does not serve a request: what does not fit, or the highest speed that it reaches.

    Examples
    --------
    >>> import trnmodel as tm
    >>> unreached(tm.plan("llama-3.1-8b", tm.Request(512, 128, tokens_per_s_per_user=1e5), "trn1.2xlarge"))[:46]
    'llama-3.1-8b on trn1.2xlarge gives no user 100'
    """
    if plan.best is None:
        return "; ".join(f"{plan.model.id} on {system}: {why}" for system, why in plan.refused.items())
    most = format_digits(plan.best.tokens_per_s_per_user, 3)
    speed = plan.request.tokens_per_s_per_user
    return f"{plan.model.id} on {plan.best.system.id} gives no user {speed:,g} tokens/s: at most {most}"


def headline(plan: Plan, undrafted: Sequence[Plan] = ()) -> str:
    """Return the card that opens the chapter: what the best mapping makes, the next one, and how sure that is.

    `undrafted` are plans of the same request on software that drafts nothing, where the best drafts.
    """
    best = plan.best
    assert best is not None
    low, high = (format_digits(float(end), 2) for end in best.ends(best.FIGURE))
    ends = f"{low} to {high}; {best.basis}" if low != high else str(best.basis)
    second = plan.second[0] if plan.second and plan.second[0].valid else None
    compared: dict[str, Any] = {"alone": "no other mapping keeps the promise"}
    if second is not None:
        made = format_digits(second.tokens_per_s_per_chip, 3)
        compared = {"rank": "Next best", "rival": f"`{_at(second)}`, {made} tokens/s per chip"}
    own = f"The constants of the software, `{best.stack.id}`, are our own estimates. " if best.stack.estimates else ""
    drafted = f"The figure rests on drafts by a small model. {_undrafted(plan, undrafted)}" if undrafted else ""
    return card(
        f"{format_digits(best.tokens_per_s_per_chip, 3)} tokens/s per chip ({ends})",
        f"`{best.question.model.id}` on {best.system.id}, as `{_at(best)}`",
        mark="",
        proof=PROOF,
        more=f"{SURE} {own}{drafted}".strip(),
        **compared,
    )


def _at(c: Choice) -> str:
    """Return degrees and batch of a choice."""
    degrees = {"TP": c.tp, "EP": c.ep, "PP": c.pp, "CP": c.cp}
    named = [f"{name} {degree:g}" for name, degree in degrees.items() if degree > 1 or name == "TP"]
    return f"{' x '.join(named)}, batch {c.batch:g}"


def _undrafted(plan: Plan, others: Sequence[Plan]) -> str:
    assert plan.best is not None
    return drafts.without(plan.best, [one.best for one in others])


def around(state: ServingState) -> tuple[NDArray, NDArray]:
    """Return the degrees of TP, along a row, and the batches, along a column, that the grid tries beside a state.

    Examples
    --------
    >>> tp, batch = around(ServingState())
    >>> tp.tolist(), batch.ravel().tolist()
    ([2.0, 4.0, 8.0, 16.0, 32.0, 64.0], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    """
    at = site(read_system(state.system), state.lnc or None)
    most = at.chips * at.ranks_per_chip / (state.ep * state.pp * state.cp)
    degrees = tensor_degrees(state.system)
    degrees = degrees[(degrees <= max(most, state.tp)) & (degrees >= state.tp / 2)]
    batches = np.unique(np.maximum(np.ceil(state.batch * TIMES), 1.0))
    return degrees[:WINDOW], batches[:, None]


def grid(served: Serving, fit: MemoryFit) -> pd.DataFrame:
    """Return a row for each mapping and batch of a call, the most per chip first; those without a figure say why.

    More sequences than a document names with the software are no configuration of it, as in a plan.

    Parameters
    ----------
    served : Serving
        Degrees of TP along a row and batches along a column. [-]
    fit : MemoryFit
        The memory of the same points. [-]

    Returns
    -------
    table : pandas.DataFrame
        tp, batch, first_rank_total_bytes, tokens_per_s_per_user, tokens_per_s_per_chip, why. [-]
    """
    q = served.question
    shape = np.shape(served.tokens_per_s_per_chip)
    columns = {"tp": q.mapping.tp, "batch": q.max_batch, "first_rank_total_bytes": fit.first_rank_total_bytes}
    columns |= {name: getattr(served, name) for name in ("tokens_per_s_per_user", "tokens_per_s_per_chip")}
    columns |= {"why": np.where(fit.valid, np.asarray(served.reason, dtype=object), fit.reason)}
    table = pd.DataFrame({name: np.ravel(np.broadcast_to(x, shape)) for name, x in columns.items()})
    table["why"] = table.why.astype(str).str.replace("; .*", "", regex=True)
    beyond = (table.batch > q.option.most_sequences) & (table.why == "")
    table.loc[beyond, ["tokens_per_s_per_user", "tokens_per_s_per_chip"]] = np.nan
    table.loc[beyond, "why"] = f"documented for at most {q.option.most_sequences:,.0f} sequences"
    return table.sort_values("tokens_per_s_per_chip", ascending=False, kind="stable", ignore_index=True)


def waterfall(one: Answers) -> Any:
    """Return the chart of what one decode step spends its time on, for what the workbench is set to."""
    spans, state = one.spans, one.state
    assert isinstance(state, ServingState)
    whole = float(spans.until_s.iloc[-1])
    shares = spans.assign(label=[_label(row.time_s, whole) for row in spans.itertuples(index=False)])
    longest = str(shares.loc[shares.time_s.idxmax(), "part"]).capitalize()
    degrees = f"TP {state.tp}" + (f" x EP {state.ep}" if state.ep > 1 else "")
    return charts.waterfall(
        shares,
        before="from_s",
        x="until_s",
        y="part",
        color="part",
        label="label",
        log_x=False,
        caption=f"{longest} take most of the step",
        under=f"{state.precision.upper()}, {degrees}, batch {state.batch}; together {format_quantity(whole, 's', 3)}",
    )


def _label(time_s: float, whole_s: float) -> str:
    return format_quantity(time_s, "s", 3) if time_s > 1e-9 * whole_s else "hidden"


def exchanges(one: Answers) -> pd.DataFrame:
    """Return the exchanges of a step with the tiers that they cross, the longest first."""
    columns = {"exchange": "what", "tiers": "tier"}
    table = one.exchanges.rename(columns=columns)[["what", "collective", "ranks", "tier", "message_bytes", "time_s"]]
    return table.sort_values("time_s", ascending=False, kind="stable", ignore_index=True)


def sources(state: ServingState) -> pd.DataFrame:
    """Return the sources of the chip's memory and rates, and of the constants of the software."""
    spec, used = read_system(state.system), state.option.efficiencies
    rows = load.facts_rows()
    stated = [fact_id for one in (spec.chip, used) for ids in one.sources.values() for fact_id in ids]
    return common.bibliography({rows[fact_id].source for fact_id in stated} - {"project"})
