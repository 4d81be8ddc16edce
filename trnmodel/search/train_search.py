"""The fastest policy to train a model on so many chips: all mappings and policies at once, and why others lose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Mapping_
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same, instance, integer, key_of, of_key, refuse, together
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.models.transformer import Transformer
from trnmodel.result import tidy
from trnmodel.steps.legal import of_lengths, of_mapping
from trnmodel.steps.mapping import DEGREES, Mapping
from trnmodel.steps.rank import Site, site
from trnmodel.training.step import PLACEMENT, TrainStep, train_step
from trnmodel.training.work import PARTS

if TYPE_CHECKING:
    import pandas as pd

CUTS = ("global_batch", "micro_batch", "interleave")
FIGURES = ("time_s", "mfu", "hfu", "tokens_per_s", "memory_bytes_per_rank", *PARTS)


@cache
def _divisors(n: int) -> tuple[int, ...]:
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*low, *(n // d for d in low)}))


def _products(ranks: int, legal: Mapping_[str, frozenset[int]]) -> Iterator[tuple[int, ...]]:
    """All (tp, pp, dp, ep, cp) whose product is a number of ranks, of degrees that are legal by themselves."""
    for tp in (d for d in _divisors(ranks) if d in legal["tp"]):
        for pp in (d for d in _divisors(ranks // tp) if d in legal["pp"]):
            left = ranks // tp // pp
            for ep in (d for d in _divisors(left) if d in legal["ep"]):
                for cp in (d for d in _divisors(left // ep) if d in legal["cp"]):
                    yield tp, pp, left // ep // cp, ep, cp


def _degrees(model: Transformer, at: Site, e: Trainer, seq: int, max_cp: int) -> list[tuple[int, ...]]:
    """Return the legal products of degrees that fill a system: a rule of training is about one degree by itself."""
    ranks = int(at.chips * at.ranks_per_chip)
    legal: dict[str, frozenset[int]] = {}
    for name in ("tp", "pp", "ep", "cp"):
        some = np.array([d for d in _divisors(ranks) if name != "cp" or d <= max_cp], dtype=float)
        mapping = Mapping(**{name: some})  # type: ignore[arg-type]
        broken = of_mapping(model, at, mapping, e, "prefill") | of_lengths(model, mapping.cp, seq, e.sequence_parts)
        legal[name] = frozenset(some[np.broadcast_to(broken, some.shape) == 0].astype(int).tolist())
    return list(_products(ranks, legal))


@lru_cache(maxsize=64)
def _cut(
    model: Same[Transformer],
    where: Same[System],
    efficiencies: str | Same[Trainer] | None,
    seq: int,
    global_batch: int,
    max_cp: int,
    batch_slack: float,
) -> dict[str, NDArray]:
    """`grid` of one model, system and training stack, found once."""
    rows: list[tuple[int, ...]] = []
    layers, at = model.it.outline("prefill").layers, site(where.it)
    for tp, pp, dp, ep, cp in _degrees(model.it, at, trainer(at.chip, of_key(efficiencies)), seq, max_cp):
        parts = [v for v in _divisors(-(-layers // pp)) if v == 1 or 1 < pp <= layers // v]  # of the fullest stage
        for micro in _divisors(max(round(global_batch / (dp * ep)), 1)):
            for v in parts:
                unit = dp * ep * micro * (pp if v > 1 else 1)
                batch = max(round(global_batch / unit), 1) * unit
                if abs(batch - global_batch) <= batch_slack * global_batch:
                    rows.append((tp, pp, dp, ep, cp, batch, micro, v))
    return dict(zip((*DEGREES, *CUTS), np.array(rows, dtype=float).reshape(-1, 8).T, strict=True))


@lru_cache(maxsize=64)
def _mapping(cuts: Same[dict[str, NDArray]]) -> Mapping:
    """Return the mappings of cuts, one object for all searches among them."""
    return Mapping(**{name: cuts.it[name] for name in DEGREES}, placement=PLACEMENT)  # type: ignore[arg-type]


def grid(
    model: Transformer,
    where: System,
    efficiencies: str | Trainer | None,
    seq: int,
    global_batch: int,
    max_cp: int = 1,
    batch_slack: float = 0.0,
) -> dict[str, NDArray]:
    """Every legal cut of a job, as arrays side by side: degrees, sizes of a batch and of a micro-batch, interleaving.

    The batch of a cut is the nearest one that its replicas share out in whole micro-batches, up to `batch_slack` off.
    Ways to recompute, to shard the optimizer and to cut the sequence multiply these cuts: 25,122 points for 175B on 64
    GPUs at 1,536 sequences, and 121,824 with ZeRO-2 and sequences cut over up to 64 ranks (`max_cp`). The 140,000 of
    Calculon's search (calculon/llm/optimal_execution.py) count other things: how TP communicates, what overlaps, what
    is offloaded, which network a group uses. Here what overlaps is of the stack, groups lie where the placement has
    them, and nothing is offloaded.

    Examples
    --------
    >>> from trnmodel.models.transformer import model
    >>> where = read_system("hgx-a100", 8)
    >>> len(grid(model("gpt3-175b"), where, trainer(where.chip), 2048, 64)["tp"])
    498
    """
    return _cut(Same(model), Same(where), key_of(efficiencies), seq, global_batch, max_cp, batch_slack)


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """All points of a search: policies in rows, cuts in columns.

    `tokens_per_s` is 0 where a point cannot run, and NaN where it is another point by another name.
    """

    model: Transformer
    where: System
    policies: list[dict[str, Any]]
    cuts: dict[str, NDArray]
    shared: dict[str, Any]
    tokens_per_s: NDArray
    memory_bytes: NDArray

    @property
    def asked(self) -> int:
        """Points that are no other point by another name."""
        return int((~np.isnan(self.tokens_per_s)).sum())

    @property
    def valid(self) -> int:
        """Points that can run."""
        return int((self.tokens_per_s > 0).sum())

    def order(self, allowed: NDArray | bool = True) -> NDArray:
        """Places of the points that can run and are allowed, the fastest first."""
        mask = np.asarray(allowed if isinstance(allowed, bool | np.bool_ | np.ndarray) else ())
        if mask.dtype != bool:
            refuse("allowed", allowed, "allowed is True or False for each point")
        together(points=self.tokens_per_s, allowed=mask)
        places = np.flatnonzero(mask & (self.tokens_per_s > 0))
        return places[np.argsort(-self.tokens_per_s.ravel()[places], kind="stable")]

    def different(self, best: int) -> list[int]:
        """Places of the fastest points, one for each set of degrees."""
        best, places = integer("best", best), dict[tuple[float, ...], int]()
        for place in self.order().tolist():
            cut = place % self.tokens_per_s.shape[1]
            places.setdefault(tuple(float(self.cuts[name][cut]) for name in DEGREES), place)
            if len(places) == best:
                break
        return list(places.values())

    def ask(self, place: int) -> dict[str, Any]:
        """Return the arguments with which `train_step` computes one point."""
        policy, cut = divmod(integer("place", place, 0, self.tokens_per_s.size - 1), self.tokens_per_s.shape[1])
        one = {name: int(x[cut]) for name, x in self.cuts.items()}
        mapping = Mapping(**{name: one.pop(name) for name in DEGREES}, placement=PLACEMENT)
        return self.shared | {"mapping": mapping} | one | self.policies[policy]

    def again(self, where: System) -> Space:
        """Return the same points on another system."""
        instance("where", where, System, "a System")
        return tried(self.model, where, self.policies, self.cuts, self.shared)

    def step(self, place: int) -> TrainStep:
        """Return the step of one point."""
        return train_step(self.model, self.where, **self.ask(place))


def space(
    model: Transformer,
    where: System,
    *,
    global_batch: int,
    recompute: Iterable[str],
    zero: Iterable[int],
    sequence_parallel: Iterable[bool],
    max_cp: int = 1,
    batch_slack: float = 0.0,
    **shared: Any,
) -> Space:
    """Try all legal mappings and policies of a model on all chips of a system.

    Parameters
    ----------
    model, where, shared
        As in `train_step`: length, precision, training stack. [-]
    global_batch : int
        Sequences of a step. [-]
    recompute, zero, sequence_parallel : iterable
        Policies to try. [-]
    max_cp : int
        Ranks that may cut a sequence. [-]
    batch_slack : float
        Share by which a cut's batch may be off. [-]

    Examples
    --------
    >>> from trnmodel.models.transformer import model
    >>> ask = {"recompute": ["selective"], "zero": (0, 1, 3), "sequence_parallel": (True, False), "seq": 2048}
    >>> found = space(model("gpt3-175b"), read_system("hgx-a100", 8), global_batch=64, **ask)
    >>> best = described(found, found.order()[:5])
    >>> int(best.tp[0] * best.pp[0]), found.valid < found.asked
    (64, True)
    """
    cuts = grid(model, where, shared.get("efficiencies"), shared["seq"], global_batch, max_cp, batch_slack)
    if not cuts["tp"].size:
        ranks = where.chips * site(where).ranks_per_chip
        refuse("global_batch", global_batch, f"no replicas of {ranks:.0f} ranks share it out ({where.chips:.0f} chips)")
    kinds = product(recompute, zero, sequence_parallel)
    policies: list[dict[str, Any]] = [{"recompute": r, "zero": z, "sequence_parallel": s} for r, z, s in kinds]
    return tried(model, where, policies, cuts, shared)


def tried(
    model: Transformer, where: System, policies: list[dict[str, Any]], cuts: dict[str, NDArray], shared: dict[str, Any]
) -> Space:
    """Every policy with every cut."""
    sizes: dict[str, Any] = {name: cuts[name] for name in CUTS}
    steps = [train_step(model, where, _mapping(Same(cuts)), **shared, **sizes, **policy) for policy in policies]
    least, cut = min(policy["zero"] for policy in policies), any(policy["sequence_parallel"] for policy in policies)
    rates = np.stack([_distinct(step, cuts, least, cut) for step in steps])
    held = np.stack([np.broadcast_to(step.memory_bytes_per_rank, cuts["tp"].shape) for step in steps])
    return Space(model, where, policies, cuts, shared, rates, held)


def largest_micro_batch(
    model: str | Transformer,
    system: str | System,
    mapping: Mapping,
    *,
    global_batch: int,
    seq: int,
    count: int = 1,
    **policies: Any,
) -> NDArray:
    """Return the largest micro-batch that fits for each mapping; 0 where not even one sequence fits.

    Parameters
    ----------
    model, system, mapping, global_batch, seq, policies
        As in `train_step`; degrees may be arrays. [-]
    count : int
        Scale-up domains. [-]

    Returns
    -------
    sequences : numeric
        A divisor of the batch of a replica, which has whole micro-batches. [-]

    Raises
    ------
    ValueError
        As `train_step` raises it.

    Examples
    --------
    >>> ask = {"global_batch": 64, "seq": 2048, "count": 8, "recompute": "full"}
    >>> largest_micro_batch("gpt3-175b", "hgx-a100", Mapping(tp=8, pp=[1, 2, 4, 8]), **ask).tolist()
    [0.0, 0.0, 0.0, 64.0]
    """
    micro = np.array(_divisors(integer("global_batch", global_batch)), dtype=float)
    sizes = micro.reshape(-1, *(1,) * mapping.ranks.ndim)
    where = read_system(system, integer("count", count))
    step = train_step(model, where, mapping, global_batch=global_batch, seq=seq, micro_batch=sizes, **policies)
    return np.where(step.valid, sizes, 0.0).max(axis=0)


def _distinct(step: TrainStep, cuts: dict[str, NDArray], least: int, cut: bool) -> NDArray:
    """Rates; 0 where a point cannot run, and NaN where it is that of the least ZeRO or of a cut sequence."""
    alone = (cuts["dp"] * cuts["ep"] * cuts["cp"] == 1) & (step.zero > least)
    whole = (cuts["tp"] == 1) & (not step.sequence_parallel) & cut
    return np.where(alone | whole, np.nan, np.where(step.valid, step.tokens_per_s, 0.0))


def described(space: Space, places: Iterable[int]) -> pd.DataFrame:
    """Points as rows that compute again by one call each, with the part by which each loses against the first."""
    rows = []
    for place in places:
        ask, step = space.ask(place), space.step(place)
        one = {name: float(getattr(ask["mapping"], name)) for name in DEGREES} | {name: ask[name] for name in CUTS}
        one |= {name: ask[name] for name in ("recompute", "zero", "sequence_parallel")}
        rows.append(one | {name: float(getattr(step, name)) for name in FIGURES})
    for row in rows:
        more = {name: row[name] / row["global_batch"] - rows[0][name] / rows[0]["global_batch"] for name in PARTS}
        worst = max(more, key=lambda name: more[name])
        row["loses_by"] = worst.removesuffix("_s") if more[worst] > 0 else ""
    return tidy(rows)
