"""What a system makes of a request at each speed of a user: the answers of `plan`, over many promises at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, UnanswerableError, listed, numbers
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import alike
from trnmodel.search.choice import Choice, Point, chosen
from trnmodel.search.grid import Question, computes, grid, in_own_format, options_of
from trnmodel.serving.account import Planned, planned_and_made
from trnmodel.steps.request import Request, one_request

if TYPE_CHECKING:
    import pandas as pd

SPEEDS = tuple(float(x) for x in np.round(np.geomspace(5.0, 500.0, 21), 3))  # of a user, where none are named [token/s]
COLUMNS = (
    *("system", "precision", "option", "tp", "ep", "pp", "cp", "batch", "chips", "tokens_per_s_per_user"),
    *("tokens_per_s_per_chip", "decode_tokens_per_s_per_chip", "prefill_utilisation", "ttft_s", "bound"),
    *("network_share", "measured_share", "stack", "stack_kind", "basis"),
)


def _best(q: Question, speeds: NDArray) -> list[Point | None]:
    """Return the best point of a question at each speed; None where no point keeps the promise."""
    g = grid(q)
    request = replace(q.request, tokens_per_s_per_user=speeds[:, None, None])
    with np.errstate(invalid="ignore", divide="ignore"):
        planned = planned_and_made(request, q.system, g.times, g.fits, g.chips)
    columns = Planned(*(x.swapaxes(1, 2).reshape(len(speeds), -1) for x in planned)).leading(axis=1)
    places = columns.shape[1] - 1 - columns[:, ::-1].argmax(axis=1)  # of equal ones the last, as in `plan`
    answers = list[Point | None]()
    for speed, at, made, full in zip(speeds, places, planned.made, planned.full, strict=True):
        place, row = np.unravel_index(at, made.T.shape)
        if np.isnan(made[row, place]):
            answers.append(None)
            continue
        promised = replace(q.request, tokens_per_s_per_user=float(speed))
        rank = (2, float(made[row, place]), float(full[row, place]))
        answers.append(g.point(q._replace(request=promised), (row, place), rank))
    return answers


def best_at(
    model: str | Transformer,
    request: Request,
    system: str | System,
    tokens_per_s_per_user: ArrayLike,
    precisions: Iterable[str],
    efficiencies: str | Efficiencies | None = None,
) -> list[Choice | None]:
    """Return the choice of a system at each promised speed, as `plan` has it; None where it cannot keep the promise.

    Examples
    --------
    >>> request = Request(1024, 256)
    >>> slow, fast, never = best_at("llama-3.1-8b", request, "trn2.48xlarge", [20, 50, 1e6], ["bf16"])
    >>> slow.tokens_per_s_per_chip > fast.tokens_per_s_per_chip, never is None
    (True, True)
    """
    where, chosen_model = read_system(system), read_model(model)
    speeds = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY))
    questions = [
        Question(chosen_model, request, where, option, in_own_format(one, where.chip))
        for option in options_of(where, chosen_model, request, efficiencies)
        for one in precisions
        if computes(where, one)
    ]
    each = [_best(q, speeds) for q in questions]
    tops = [
        max((one for one in some if one), key=lambda one: one.rank, default=None) for some in zip(*each, strict=True)
    ]
    return [chosen(top) if top else None for top in tops] if tops else [None] * len(speeds)


def frontiers(
    model: str | Transformer,
    request: Request,
    systems: Iterable[str | System],
    tokens_per_s_per_user: ArrayLike = SPEEDS,
    precisions: Sequence[str] = ("bf16",),
    efficiencies: str | Efficiencies | None = None,
) -> pd.DataFrame:
    """Return what each system makes of a request at each speed, in the best of the precisions.

    A speed that a system cannot keep has no row.

    Parameters
    ----------
    request : Request
        Its own speed does not count. [-]
    tokens_per_s_per_user : array_like
        Promised speeds. [token/s]
    efficiencies : str or Efficiencies, optional
        Software stack of all systems; default each chip's own with its documented options. [-]

    Returns
    -------
    table : pandas.DataFrame
        `COLUMNS`, with promised_tokens_per_s_per_user, the ends of tokens_per_s_per_chip and the chance that the
        promise is kept. [-]
    """
    import pandas as pd

    wanted, rows, precisions = one_request("request", request), [], listed("precisions", precisions)
    speeds = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY))
    for system in listed("systems", systems):
        choices = best_at(model, wanted, system, speeds, precisions, efficiencies)
        rows += [_row(c, speed) for c, speed in zip(choices, speeds, strict=True) if c is not None]
    names = ["promised_tokens_per_s_per_user", *COLUMNS, "chance"]
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)
    return alike(table)


def _row(c: Choice, speed: float) -> dict[str, Any]:
    """Return a choice as a row of a frontier."""
    row: dict[str, Any] = {"promised_tokens_per_s_per_user": speed}
    values: dict[str, Any] = {"system": c.system.id, "option": c.option.name, "stack": c.stack.id}
    values |= {"network_share": float(c.step.network_s / c.step.time_s), "measured_share": float(c.step.measured_share)}
    values |= {"bound": str(c.step.bound), "basis": str(c.basis)}
    row |= {name: values.get(name, getattr(c, name, None)) for name in COLUMNS}
    return row | c.banded("tokens_per_s_per_chip") | {"chance": c.chance}


def formats(systems: Iterable[str], precisions: Sequence[str]) -> dict[str, str]:
    """Return, by system, the first precision of a list in whose compute dtype its chip has a peak.

    Examples
    --------
    >>> formats(["trn3-nl72x2-pcie160", "hgx-h200", "hgx-a100"], ["mxfp8", "fp8", "bf16"])
    {'trn3-nl72x2-pcie160': 'mxfp8', 'hgx-h200': 'fp8', 'hgx-a100': 'bf16'}
    """
    first = {}
    for name in listed("systems", systems):
        usable = [one for one in listed("precisions", precisions) if computes(name, one)]
        if not usable:
            why = f"{name} computes in none of them, but in {', '.join(read_system(name).chip.peak_flop_per_s)}"
            raise UnanswerableError(f"precisions={list(precisions)}: {why}")
        first[name] = usable[0]
    return first


def in_formats(
    model: str | Transformer, request: Request, chosen_formats: Mapping[str, str], **more: Any
) -> pd.DataFrame:
    """`frontiers` of systems that are each in a precision of their own, such as `formats` gives."""
    import pandas as pd

    tables = [frontiers(model, request, [name], precisions=[one], **more) for name, one in chosen_formats.items()]
    return pd.concat([one for one in tables if len(one)] or tables, ignore_index=True)
