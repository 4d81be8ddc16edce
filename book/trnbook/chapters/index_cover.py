"""The table of the first page: sizing answers over a few models and speeds, a row for each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import TINY, listed, numbers
from trnmodel.catalog.systems import System
from trnmodel.cost.tco import tco
from trnmodel.models.transformer import Transformer
from trnmodel.result import tidy
from trnmodel.search.plan import Choice, Plan, plan
from trnmodel.search.token_cost import token_cost
from trnmodel.search.train_run import train_run
from trnmodel.steps.request import Request
from trnmodel.units import TRILLION

if TYPE_CHECKING:
    import pandas as pd

TRAINED = 1152  # chips: whole domains of 8, 16, 64, 72 and 144
KINDS = {"public": "", "hand-tuned": "hand_tuned_", "ideal": "ideal_"}  # how columns of a kind of software begin
NONE: tuple[Any, ...] = (np.nan,) * 3
SPEEDS = (20.0, 50.0)  # tokens/s per user: reading speed, and faster


def answers(
    models: Iterable[str | Transformer],
    tokens_per_s_per_user: Iterable[float] = SPEEDS,
    input_tokens: float = 4096,
    output_tokens: float = 512,
    **question: Any,
) -> pd.DataFrame:
    """Return the best of `plan` for each model and speed, with bands of its yield and first token.

    Parameters
    ----------
    question
        systems, precision and efficiencies of `plan`. [-]

    Returns
    -------
    table : pandas.DataFrame
        model, wanted_tokens_per_s_per_user, reached (whether any system is as fast), system, mapping (in words),
        precision, tp, ep, batch, chips, tokens_per_s_per_user, tokens_per_s_per_chip (of whole requests) and ttft_s
        with `_low` and `_high`, chance that the promise is kept, ties, basis, stack_kind, hand_tuned_ and
        ideal_tokens_per_s_per_chip on the same system (with their ends too), server_j_per_token of a request and
        server_w of all chips of the replica (with their ends, and energy_basis), usd_per_mtoken, hand_tuned_ and
        ideal_usd_per_mtoken: what a million generated tokens cost who owns the chips, their prompts paid,
        train_chips and train_days, hand_tuned_ and ideal_train_days (with their ends, and train_basis): how long a
        trillion tokens take in training in BF16 on whole domains of at least 1,152 chips,
        runner_up, why it loses, command; numbers of the fastest point where the speed is out of reach, NaN where the
        model fits no system or no source has watts of its chip. [-]

    Examples
    --------
    >>> table = answers(["llama-3.1-8b"], [50.0], 1024, 256, systems="trn2.48xlarge")
    >>> table[["model", "system", "stack_kind", "runner_up"]].iloc[0].tolist()
    ['llama-3.1-8b', 'trn2.48xlarge', 'public', 'trn2.48xlarge']
    """
    speeds = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY)).tolist()
    rows, known = [], dict[str, dict[str, Any]]()
    for model, speed in product(listed("models", models, (str, Transformer)), speeds):
        result = plan(model, Request(input_tokens, output_tokens, speed), **question)
        row = _row(result, question.get("precision"))
        if (c := result.best) is not None:
            key = f"{result.model.id} {c.system.id}"
            known[key] = known.get(key) or _trained(result.model, c.system)
            row |= known[key]
        rows.append(row)
    return tidy(rows)


def _trained(model: Transformer, system: System) -> dict[str, Any]:
    """Return days of training on a trillion tokens on each kind of software, with their ends."""
    chips = float(np.ceil(TRAINED / system.domain_chips) * system.domain_chips)
    row: dict[str, Any] = {"train_chips": chips, "train_basis": ""}
    for kind, prefix in KINDS.items():
        figures = NONE
        if system.chip.training_stack and (kind != "hand-tuned" or system.chip.hand_tuned_training_stack):
            run = train_run(model, system, tokens=TRILLION, chips=chips, efficiencies=kind, best=1)
            figures = (run.days, *run.ends("days"))
            row["train_basis"] = row["train_basis"] or str(run.basis)
        row |= _columns(f"{prefix}train_days", figures)
    return row


def _row(result: Plan, precision: Any) -> dict[str, Any]:
    """Return the best choice of a plan with its question and the answers of other software."""
    question = {"model": result.model.id, "wanted_tokens_per_s_per_user": result.request.tokens_per_s_per_user}
    why = "; ".join(result.why.values())
    row: dict[str, Any] = question | {"reached": result.reached, "system": "", "basis": "", "why": why}
    c, after = result.best, result.runner_up
    if c is None:
        return row
    names = ("precision", "tp", "ep", "batch", "chips", "tokens_per_s_per_user", "stack_kind", "chance")
    row |= {"system": c.system.id, "basis": str(c.basis), "mapping": c.mapping} | {
        name: getattr(c, name) for name in names
    }
    for name in ("tokens_per_s_per_chip", "ttft_s"):
        row |= c.banded(name)
    row |= _spent(c) | _paid(result, c, precision) | {"ties": " ".join(result.same)}
    for one in result.other_software:
        made = (one.tokens_per_s_per_chip, *one.ends(one.FIGURE)) if one.valid else NONE
        row |= _columns(f"{KINDS[one.stack.kind]}tokens_per_s_per_chip", made)
    return row | {
        "runner_up": after.system.id if after else "",
        "why": result.reason(after) if after else "",
        "command": result.command,
    }


def _paid(result: Plan, c: Choice, precision: Any) -> dict[str, Any]:
    """Return the owner's cost per million generated tokens on each kind of software, with its ends."""
    own = token_cost(result.model, result.request, c.system, pricing=tco(c.system), precision=precision)
    costs = dict[str, Any]()
    for line in own.lines:
        name = "generated_usd_per_mtoken"
        figures = (line.figure(name), *line.ends(name)) if np.all(line.valid) else NONE
        costs |= _columns(f"{KINDS[line.stack_kind]}usd_per_mtoken", figures)
    return costs


def _spent(c: Choice) -> dict[str, Any]:
    """Return energy per generated token of a request and power of the replica at the server, with their ends."""
    if not c.valid:
        return {"energy_basis": ""}
    e = c.energy()
    columns: dict[str, Any] = {"energy_basis": str(e.basis) if e.valid else ""}
    columns |= _columns("server_j_per_token", (e.server_j_per_token, *e.ends("server_j_per_token")))
    watts = c.tokens_per_s_per_chip * c.paid_chips * float(e.server_j_per_token)
    below, above = (
        max(map(float, sides)) for sides in zip(*(x.widths("server_w") for x in (e.prefill, e.decode)), strict=True)
    )
    columns |= _columns("server_w", (watts, watts * np.exp(-below), watts * np.exp(above)))
    return columns


def _columns(name: str, figures: Iterable[Any]) -> dict[str, float]:
    """Return a figure and its ends as columns."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), map(float, figures), strict=True))
