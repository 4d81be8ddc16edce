"""What a rank of a training job has and does, resolved once for each mapping: shares of work, parameters, exchanges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.specs import Chip, Precision, shapes
from trnmodel.catalog.stacks import IDEAL as IDEAL_STEPS
from trnmodel.catalog.systems import System
from trnmodel.catalog.trainers import Trainer
from trnmodel.fabric.collectives import times_s
from trnmodel.fabric.groups import Same
from trnmodel.models.backward import Kept, kept
from trnmodel.models.blocks import Attention
from trnmodel.models.terms import Outline, Term
from trnmodel.models.transformer import Transformer
from trnmodel.steps.legal import of_mapping
from trnmodel.steps.mapping import DEGREES, Key, Mapping, hold
from trnmodel.steps.rank import Site, site
from trnmodel.steps.setting import plain

ELEMENT_BYTES = 2.0  # of a parameter as the account has it, and of an activation
MESSAGE_BYTES = 2.0**30  # at which the rate of an exchange is read off: without start-ups its time is a line
CHAINS = {"dense": ("cp", "ep", "dp"), "expert": ("cp", "dp")}  # degrees that hold the same parameters


class Values(dict[str, Any]):
    """Numbers of a rank by name, one for each mapping or point; of an exchange found when it is first asked for."""

    def __init__(self, known: dict[str, Any], s_per_byte: Callable[[str], Any]) -> None:
        super().__init__(known)
        self.s_per_byte = s_per_byte

    def __missing__(self, name: str) -> Any:
        found = self[name] = self.s_per_byte(name)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """A rank of a training job. `values` has a number for each mapping: shares of FLOP, parameters, seconds a byte.

    `parted` are the degrees that cut anything. Where `index` is given, it says which mapping each point has.
    """

    model: Transformer
    at: Site
    e: Trainer
    precision: Precision
    outline: Outline
    kept: Kept
    attentions: tuple[Attention, ...]
    values: Values
    parted: frozenset[str]
    spec_shapes: dict[str, NDArray]
    index: NDArray | None = None

    def at_points(self, index: NDArray) -> Rank:
        """The rank with a place for each point."""

        def taken(name: str) -> Any:
            x = self.values[name]
            return x.take(index) if np.ndim(x) else x

        return replace(self, values=Values({name: taken(name) for name in self.values}, taken), index=index)

    def cut(self, part: Callable[[Any], Any]) -> Rank:
        """The rank of a part of all points."""
        return self if self.index is None else self.at_points(part(self.index))

    @property
    def everywhere(self) -> Rank:
        """The rank with a place for each point that there is."""
        return self if self.index is None else self.at_points(self.index)

    @property
    def places(self) -> tuple[NDArray, ...]:
        """Arrays with a place for each point, where points have mappings of their own."""
        return () if self.index is None else (self.index,)


def _scaled(where: System | Chip, ratio: Any) -> System | Chip:
    """A machine whose scale-out network has what software reaches of it, over what it reaches of the other links."""
    if np.ndim(ratio):
        return _with_rate.__wrapped__(where, ratio)
    return where if ratio == 1 else _with_rate(where, float(ratio))


@lru_cache(maxsize=256)
def _with_rate(where: System | Chip, ratio: Any) -> System | Chip:
    rate = where.scaleout_bytes_per_s_per_dir * ratio
    if isinstance(where, Chip):
        return replace(where, scaleout_bytes_per_s_per_dir=rate)
    return replace(where, network_bytes_per_s_per_dir=rate * where.domain_chips)


@lru_cache(maxsize=4096)
def _s_per_byte(mapping: Same[Mapping], at: Same[Site], reached: Same[System | Chip], name: str) -> Any:
    """Time a byte of an exchange, "<group>_<kind>", without start-ups; inside a domain the network does not matter.

    Over several degrees, innermost first, what a group has summed is that much smaller for the next.
    """
    group, _, kind = name.partition("_")
    inside = getattr(at.it.where, "domain_chips", 0) * at.it.ranks_per_chip
    total: Any = 0.0
    share: Any = 1.0
    for degree in (one for one in mapping.it.placement if one in CHAINS.get(group, (group,))):
        ranks, stride = plain(getattr(mapping.it, degree)), plain(mapping.it.extent(degree)[0])
        if np.any(ranks > 1):
            where = reached.it if np.any(ranks * stride > inside) else at.it.where
            found = times_s(kind, np.asarray(MESSAGE_BYTES), where, ranks, stride, at.it.lnc, IDEAL_STEPS)
            total = total + share * plain(found / MESSAGE_BYTES)
            share = share / ranks
    return total


@lru_cache(maxsize=4096)
def _keyed(key: Key) -> Mapping:
    """The mapping of scalar degrees that a key is of, one object, by which what is resolved of it is kept."""
    degrees, lnc, order = key
    return Mapping(*degrees, lnc=lnc, placement=order)


def _where_of(term: Term) -> str:
    """Where a term's parameters lie: in experts, in the other parts of layers, in the first or in the last stage."""
    if term.kind == "experts":
        return "expert"
    if term.layer:
        return "dense"
    return "first" if term.part and term.part.group == "embedding" else "last"


@lru_cache(maxsize=4096)
def _work(
    model: Same[Transformer], mapping: Same[Mapping], policy: str
) -> tuple[dict[str, Any], tuple[Attention, ...]]:
    """Work of a token and parameters on the fullest rank, over all stages, and those of the whole model."""
    names = "row_flop routed_flop logit_flop row_all logit_all dense_params expert_params first_params last_params"
    found: dict[str, Any] = dict.fromkeys(names.split(), 0.0)
    pairs: dict[Attention, tuple[Any, Any, Any]] = {}
    for term in model.it.terms("bf16", "prefill"):
        held = hold(term, mapping.it, policy)
        found[f"{_where_of(term)}_params"] = found[f"{_where_of(term)}_params"] + plain(
            held.stored * (term.stored_bytes / ELEMENT_BYTES)
        )
        work = plain(held.work)
        if term.attention:
            flop, _, all_ = pairs.get(term.attention, (0.0,) * 3)
            pairs[term.attention] = flop + term.pair_flop * work, work, all_ + term.pair_flop
        elif term.kind == "experts":
            found["routed_flop"] = found["routed_flop"] + term.row_flop * work * plain(mapping.it.ep)
        else:
            found["row_flop"] = found["row_flop"] + term.row_flop * work
        found["logit_flop"] = found["logit_flop"] + term.logit_flop * work
        found["row_all"] += term.row_flop
        found["logit_all"] += term.logit_flop
    for i, (flop, share, all_) in enumerate(pairs.values()):
        found |= {f"pair_flop_{i}": flop, f"head_share_{i}": share, f"pair_all_{i}": all_}
    return found, tuple(pairs)


def _resolved(
    model: Same[Transformer],
    where: str | Same[System | Chip],
    mapping: Same[Mapping],
    precision: Same[Precision],
    e: Same[Trainer],
) -> Rank:
    at, outline = site(where.it if isinstance(where, Same) else where, mapping.it.lnc), model.it.outline("prefill")
    each, index = mapping.it.different if mapping.it.size > 1 else (mapping.it, None)
    work, attentions = _work(model, Same(each), e.it.kv_head_policy)
    reached = Same(_scaled(at.where, e.it.scaleout_share / e.it.link_share))
    values = Values(work, lambda name: _s_per_byte(Same(each), Same(at), reached, name) / e.it.link_share)
    values |= {name: plain(getattr(each, name)) for name in (*DEGREES, "ranks")}
    values |= {"illegal": of_mapping(model.it, at, each, e.it, "prefill"), "sharing": at.sharing(each.ranks)}
    fixed = outline, kept(model.it), attentions, values, each.parted, shapes(system=at.where, efficiencies=e.it)
    return Rank(model.it, at, e.it, precision.it, *fixed, index)


_kept_rank, _kept_ranks = lru_cache(maxsize=512)(_resolved), lru_cache(maxsize=8)(_resolved)


def rank(model: Transformer, where: str | System | Chip, mapping: Mapping, precision: Precision, e: Trainer) -> Rank:
    """The rank of a job, resolved once; of arrays of degrees the last few are kept."""
    kept_one, one = (_kept_ranks, mapping) if mapping.key is None else (_kept_rank, _keyed(mapping.key))
    return kept_one(Same(model), where if isinstance(where, str) else Same(where), Same(one), Same(precision), Same(e))
