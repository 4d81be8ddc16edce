"""What a rank of a training job has and does, resolved once for each mapping: shares of work, parameters, exchanges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import IDEAL as IDEAL_STEPS
from trnmodel.catalog.systems import System
from trnmodel.catalog.trainers import Trainer
from trnmodel.fabric.collectives import times_s
from trnmodel.fabric.groups import Same
from trnmodel.models.backward import Kept, kept
from trnmodel.models.blocks import Attention
from trnmodel.models.terms import Outline, Term
from trnmodel.models.transformer import Transformer
from trnmodel.result import reason_mask
from trnmodel.steps.mapping import Key, Mapping, hold
from trnmodel.steps.rank import Site, site
from trnmodel.steps.setting import plain

ELEMENT_BYTES = 2.0  # of a parameter as the account has it, and of an activation
MESSAGE_BYTES = 2.0**30  # at which the rate of an exchange is read off: without start-ups its time is a line
JOB = ("tp", "pp", "dp", "ep", "cp")
SUMS = ("all_reduce", "all_gather", "reduce_scatter")
SENT = ("ep_all_to_all", "cp_p2p", "pp_p2p", *(f"{of}_{kind}" for of in ("tp", "dense", "expert") for kind in SUMS))


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
    values: dict[str, Any]
    parted: frozenset[str]
    index: NDArray | None = None

    def cut(self, here: slice | None) -> dict[str, Any]:
        """The values of some points, or of all."""
        if self.index is None:
            return self.values
        index = self.index if here is None else self.index[here]
        return {name: x.take(index) if np.ndim(x) else x for name, x in self.values.items()}


@lru_cache(maxsize=256)
def _reached(where: Same[System | Chip], ratio: float) -> System | Chip:
    return _with_rate(where.it, ratio)


def _scaled(where: System | Chip, ratio: Any) -> System | Chip:
    """A machine whose scale-out network has what software reaches of it, over what it reaches of the other links."""
    if np.ndim(ratio):
        return _with_rate(where, ratio)
    return where if ratio == 1 else _reached(Same(where), float(ratio))


def _with_rate(it: System | Chip, ratio: Any) -> System | Chip:
    rate = it.scaleout_bytes_per_s_per_dir * ratio
    if isinstance(it, Chip):
        return replace(it, scaleout_bytes_per_s_per_dir=rate)
    return replace(it, network_bytes_per_s_per_dir=rate * it.domain_chips)


def _s_per_byte(kind: str, name: str, mapping: Mapping, where: System | Chip, lnc: int) -> Any:
    """Time a byte of an exchange in the group of one degree, without start-ups."""
    ranks = getattr(mapping, name)
    if not np.any(ranks > 1):
        return 0.0
    stride = plain(mapping.extent(name)[0])
    found = times_s(kind, np.asarray(MESSAGE_BYTES), where, plain(ranks), stride, lnc, IDEAL_STEPS)
    return plain(found / MESSAGE_BYTES)


def _chained(kind: str, degrees: tuple[str, ...], mapping: Mapping, found: dict[str, Any]) -> Any:
    """The same over the product of some degrees, innermost first: what a group has summed is that much smaller."""
    total: Any = 0.0
    share: Any = 1.0
    for name in (name for name in mapping.placement if name in degrees):
        total = total + share * found[f"{name}_{kind}"]
        share = share / plain(getattr(mapping, name))
    return total


def _exchanges(mapping: Mapping, where: System | Chip, lnc: int) -> dict[str, Any]:
    """Seconds a byte of every exchange: within layers, between stages, of gradients and of weights."""
    asked = [(name, kind) for name in ("tp", "cp", "ep", "dp") for kind in SUMS]
    asked += [("ep", "all_to_all"), ("cp", "p2p"), ("pp", "p2p")]
    found = {f"{name}_{kind}": _s_per_byte(kind, name, mapping, where, lnc) for name, kind in asked}
    for kind in SUMS:
        found[f"dense_{kind}"] = _chained(kind, ("cp", "ep", "dp"), mapping, found)
        found[f"expert_{kind}"] = _chained(kind, ("cp", "dp"), mapping, found)
    return {name: x for name, x in found.items() if name in SENT}


@lru_cache(maxsize=4096)
def _kept_exchanges(where: Same[System | Chip], ratio: float, lnc: int, key: Key) -> dict[str, Any]:
    return _exchanges(keyed(key), _scaled(where.it, ratio), lnc)


def exchanges(mapping: Mapping, at: Site, e: Trainer) -> dict[str, Any]:
    """Seconds a byte of every exchange at the shares that software reaches; without start-ups, found once."""
    ratio = e.scaleout_share / e.link_share
    if mapping.key is not None and not e.shape:
        found = _kept_exchanges(Same(at.where), float(ratio), at.lnc, mapping.key)
    else:
        found = _exchanges(mapping, _scaled(at.where, ratio), at.lnc)
    return {name: x / e.link_share for name, x in found.items()}


def keyed(key: Key) -> Mapping:
    """The mapping of scalar degrees that a key is of."""
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
def _kept_work(model: Same[Transformer], key: Key, policy: str) -> tuple[dict[str, Any], tuple[Attention, ...]]:
    return _work(model.it, keyed(key), policy)


def _work(model: Transformer, mapping: Mapping, policy: str) -> tuple[dict[str, Any], tuple[Attention, ...]]:
    """Work of a token and parameters on the fullest rank, over all stages, and those of the whole model."""
    names = "row_flop routed_flop logit_flop row_all logit_all dense_params expert_params first_params last_params"
    found: dict[str, Any] = dict.fromkeys(names.split(), 0.0)
    pairs: dict[Attention, tuple[Any, Any, Any]] = {}
    for term in model.terms("bf16", "prefill"):
        held = hold(term, mapping, policy)
        found[f"{_where_of(term)}_params"] = found[f"{_where_of(term)}_params"] + plain(
            held.stored * (term.stored_bytes / ELEMENT_BYTES)
        )
        work = plain(held.work)
        if term.attention:
            flop, share, all_ = pairs.get(term.attention, (0.0, 0.0, 0.0))
            pairs[term.attention] = flop + term.pair_flop * work, work, all_ + term.pair_flop
        elif term.kind == "experts":
            found["routed_flop"] = found["routed_flop"] + term.row_flop * work * plain(mapping.ep)
        else:
            found["row_flop"] = found["row_flop"] + term.row_flop * work
        found["logit_flop"] = found["logit_flop"] + term.logit_flop * work
        found["row_all"] += term.row_flop
        found["logit_all"] += term.logit_flop
    for i, (flop, share, all_) in enumerate(pairs.values()):
        found |= {f"pair_flop_{i}": flop, f"head_share_{i}": share, f"pair_all_{i}": all_}
    return found, tuple(pairs)


def _resolved(
    model: Transformer, where: str | System | Chip, mapping: Mapping, precision: Precision, e: Trainer
) -> Rank:
    at, outline = site(where, mapping.lnc), model.outline("prefill")
    index = None
    if mapping.size > 1:
        mapping, index = mapping.different
    policy = e.kv_head_policy
    found = _kept_work(Same(model), mapping.key, policy) if mapping.key else _work(model, mapping, policy)
    work, attentions = found
    few = mapping.pp > outline.layers, mapping.ep * mapping.moe_ep > max(outline.experts, 1)
    values = work | exchanges(mapping, at, e) | {name: plain(getattr(mapping, name)) for name in JOB}
    values["impossible"] = reason_mask(mapping.ranks > at.chips * at.ranks_per_chip, *few)
    values["sharing"] = plain(np.minimum(at.ranks_per_bank, mapping.ranks)) if at.ranks_per_bank > 1 else 1.0
    parted = frozenset(name for name in JOB if np.any(getattr(mapping, name) > 1))
    return Rank(model, at, e, precision, outline, kept(model), attentions, values, parted, index)


@lru_cache(maxsize=512)
def _kept_rank(
    model: Same[Transformer], where: str | Same[System | Chip], key: Key, precision: Same[Precision], e: Same[Trainer]
) -> Rank:
    return _resolved(model.it, where.it if isinstance(where, Same) else where, keyed(key), precision.it, e.it)


@lru_cache(maxsize=8)
def _kept_ranks(
    model: Same[Transformer],
    where: str | Same[System | Chip],
    mapping: Same[Mapping],
    precision: Same[Precision],
    e: Same[Trainer],
) -> Rank:
    return _resolved(model.it, where.it if isinstance(where, Same) else where, mapping.it, precision.it, e.it)


def rank(model: Transformer, where: str | System | Chip, mapping: Mapping, precision: Precision, e: Trainer) -> Rank:
    """The rank of a job, resolved once; of arrays of degrees the last few are kept."""
    key = where if isinstance(where, str) else Same(where)
    if mapping.key is None:
        return _kept_ranks(Same(model), key, Same(mapping), Same(precision), Same(e))
    return _kept_rank(Same(model), key, mapping.key, Same(precision), Same(e))
