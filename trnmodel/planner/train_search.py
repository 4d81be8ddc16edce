"""The fastest way to train a model on so many chips: all mappings and policies at once, and why others lose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import integer, integers, listed, refuse
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.trainers import Trainer
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.steps.mapping import DEGREES, Mapping
from trnmodel.steps.rank import site
from trnmodel.steps.training import PLACEMENT, train_step
from trnmodel.steps.training_answer import TrainStep
from trnmodel.steps.training_work import PARTS

if TYPE_CHECKING:
    import pandas as pd

CUTS = ("micro_batch", "interleave")
MOST_TP = 2**10  # of a model without attention


@cache
def _divisors(n: int) -> tuple[int, ...]:
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*low, *(n // d for d in low)}))


def _degrees(ranks: int, layers: int, experts: int, longest: int, heads: int) -> Iterator[tuple[int, ...]]:
    """All (tp, pp, dp, ep, cp) whose product is the ranks: stages of at least a layer, experts whole."""
    for tp in (d for d in _divisors(ranks) if d <= heads):
        for pp in (d for d in _divisors(ranks // tp) if d <= layers):
            left = ranks // tp // pp
            for ep in (d for d in _divisors(left) if d <= max(experts, 1)):
                for cp in (d for d in _divisors(left // ep) if d <= longest):
                    yield tp, pp, left // ep // cp, ep, cp


def grid(model: Transformer, ranks: int, global_batch: int, most_context: int = 1) -> dict[str, NDArray]:
    """Every legal cut of a job: degrees, size of a micro-batch and interleaving, as arrays side by side.

    Examples
    --------
    >>> from trnmodel.models.transformer import model
    >>> len(grid(model("gpt3-175b"), 64, 64)["tp"])
    505
    """
    o = model.outline("prefill")
    heads = max((a.heads for a in model.attentions("prefill")), default=MOST_TP)
    found: list[tuple[int, ...]] = []
    for tp, pp, dp, ep, cp in _degrees(ranks, o.layers, o.experts, most_context, heads):
        if global_batch % (dp * ep):
            continue
        for micro in _divisors(global_batch // (dp * ep)):
            batches = global_batch // (dp * ep * micro)
            woven = pp > 1 and batches % pp == 0
            parts = (v for v in _divisors(o.layers // pp) if v == 1 or (woven and o.layers % pp == 0))
            found += [(tp, pp, dp, ep, cp, micro, v) for v in parts]
    return dict(zip((*DEGREES, *CUTS), np.array(found, dtype=float).reshape(-1, 7).T, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What was asked, how many points there were and may run, and the table of the best ones."""

    asked: int
    valid: int
    table: pd.DataFrame


def train_search(
    model: str | Transformer,
    system: str | System,
    *,
    global_batch: int,
    seq: int,
    count: int = 1,
    precision: str | Precision = "bf16",
    recompute: Iterable[str] = ("none", "selective", "full"),
    zero: Iterable[int] = (0, 1, 3),
    sequence_parallel: Iterable[bool] = (True, False),
    most_context: int = 1,
    best: int = 5,
    efficiencies: str | Trainer | None = None,
) -> Search:
    """The fastest steps of all legal mappings of a model on all chips of so many systems.

    Parameters
    ----------
    model, system, precision, efficiencies
        As in `train_step`. [-]
    global_batch, seq : int
        Sequences of a step and their tokens. [-]
    count : int
        Scale-up domains. [-]
    recompute, zero, sequence_parallel : iterable
        Policies to try. [-]
    most_context : int
        Ranks that may cut a sequence. [-]
    best : int
        Rows of the table. [-]

    Returns
    -------
    found : Search
        `.table` has the best rows with their degrees, time, MFU, memory, and of the others `loses_by`: the part of the
        step that is longest over that of the best one.

    Examples
    --------
    >>> found = train_search("gpt3-175b", "hgx-a100", global_batch=64, seq=2048, count=8, recompute=["selective"])
    >>> int(found.table.tp[0] * found.table.pp[0]), found.valid < found.asked
    (64, True)
    """
    chosen, where = read_model(model), read_system(system, integer("count", count))
    ranks = int(where.chips * site(where).ranks_per_chip)
    cuts = grid(chosen, ranks, integer("global_batch", global_batch), integer("most_context", most_context))
    if not cuts["tp"].size:
        refuse("global_batch", global_batch, f"no replicas of {ranks} ranks share it out")
    degrees: dict[str, Any] = {name: cuts[name] for name in DEGREES}
    mapping = Mapping(**degrees, placement=PLACEMENT)
    shared: dict[str, Any] = {"global_batch": global_batch, "seq": integer("seq", seq), "precision": precision,
              "efficiencies": efficiencies, **{name: cuts[name] for name in CUTS}}  # fmt: skip
    kinds = product(
        listed("recompute", recompute, str),
        integers("zero", zero, 0),
        listed("sequence_parallel", sequence_parallel, bool),
    )
    ways: list[dict[str, Any]] = [{"recompute": r, "zero": z, "sequence_parallel": s} for r, z, s in kinds]
    steps = [train_step(chosen, where, mapping, **shared, **way) for way in ways]
    times = np.stack([_distinct(step, cuts) for step in steps])
    order = np.argsort(times, axis=None, kind="stable")[: integer("best", best)]
    rows = [
        _row(steps, ways, cuts, *divmod(int(place), times.shape[1]))
        for place in order
        if np.isfinite(times.flat[place])
    ]
    return Search(int((~np.isnan(times)).sum()), int(np.isfinite(times).sum()), _told(rows))


def _distinct(step: TrainStep, cuts: dict[str, NDArray]) -> NDArray:
    """Times; infinite where a point cannot run, and NaN where it is another point by another name."""
    alone = (cuts["dp"] * cuts["ep"] * cuts["cp"] == 1) & (step.zero > 0)
    whole = (cuts["tp"] == 1) & (not step.sequence_parallel)
    return np.where(alone | whole, np.nan, np.where(step.valid, step.time_s, np.inf))


def _row(
    steps: list[TrainStep], ways: list[dict[str, Any]], cuts: dict[str, NDArray], way: int, place: int
) -> dict[str, Any]:
    step, names = steps[way], ("time_s", "mfu", "hfu", "tokens_per_s", "memory_bytes_per_rank", *PARTS)
    numbers = {name: float(np.broadcast_to(getattr(step, name), step.time_s.shape)[place]) for name in names}
    return {name: float(x[place]) for name, x in cuts.items()} | ways[way] | numbers


def _told(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The rows with the part by which each loses against the first."""
    for row in rows:
        more = {name: row[name] - rows[0][name] for name in PARTS}
        worst = max(more, key=lambda name: more[name])
        row["loses_by"] = worst.removesuffix("_s") if more[worst] > 0 else ""
    return tidy(rows)
