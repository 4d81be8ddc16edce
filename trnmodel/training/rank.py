"""Rank of a training job, resolved once for each mapping: shares of work, parameters, exchanges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same, key_of, of_key, refuse
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Chip, Precision, shapes
from trnmodel.catalog.stacks import IDEAL as IDEAL_STEPS
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.fabric.collectives import times_s
from trnmodel.formulas.training import library_start_s
from trnmodel.models.backward import Saved, saved
from trnmodel.models.blocks import Attention
from trnmodel.models.shipped import known
from trnmodel.models.terms import Outline, Term
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.legal import of_mapping
from trnmodel.steps.mapping import DEGREES, Key, Mapping, hold
from trnmodel.steps.pieces import Piece
from trnmodel.steps.rank import Site, site
from trnmodel.steps.setting import plain

ELEMENT_BYTES = 2.0  # of a parameter as the account has it, and of an activation
FITTED_FORMAT = "bf16"  # of the rows on which shares of the peak are fitted
CHAINS = {"dense": ("cp", "ep", "dp"), "expert": ("cp", "dp")}  # degrees that hold the same parameters


class Rates(NamedTuple):
    """Printed peaks of a rank for matrices, for scores and logits, and in 16 bits; its memory and bandwidth."""

    compute_flop_per_s: Any
    attention_flop_per_s: Any
    fitted_flop_per_s: Any
    hbm_bytes: Any
    hbm_bytes_per_s: Any


class Exchanges(NamedTuple):
    """Exchanges of a mapping on a machine of which software reaches a share; `places` numbers each point's mapping."""

    mapping: Same[Mapping]
    at: Same[Site]
    near: Same[System | Chip]
    reached: Same[System | Chip]
    link_share: Any
    starts: Efficiencies | None
    by_library: bool
    places: NDArray | None = None

    def time_s(self, group: str, kind: str, message_bytes: Any) -> Any:
        """Time of one message in a group, for each mapping or point [s]; inside a domain the network does not matter.

        Over several degrees, innermost first, what a group has summed is that much smaller for the next.
        """
        mapping, at = self.mapping.it, self.at.it
        inside = getattr(at.where, "domain_chips", 0) * at.ranks_per_chip
        left, total = np.asarray(message_bytes / self.link_share), np.zeros(())
        for degree in (one for one in mapping.placement if one in CHAINS.get(group, (group,))):
            ranks, stride = plain(getattr(mapping, degree)), plain(mapping.extent(degree)[0])
            if np.any(ranks > 1):
                where = self.reached.it if np.any(ranks * stride > inside) else self.near.it
                index = self.places if np.ndim(ranks) or np.ndim(stride) else None
                total = total + times_s(kind, left, where, ranks, stride, at.lnc, self.starts, index)
                if self.by_library:
                    start_s = _start_s(kind, self.near.it, ranks, stride, inside)
                    total = total + (start_s if index is None or not np.ndim(ranks) else start_s.take(index))
                left = left / (ranks if index is None or not np.ndim(ranks) else ranks.take(index))
        return total


class Values(dict[str, Any]):
    """Numbers of a rank by name, one for each mapping or point, with the exchanges that its messages go through."""

    def __init__(self, known: dict[str, Any], exchanges: Exchanges) -> None:
        super().__init__(known)
        self.exchanges = exchanges


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """A rank of a training job. `values` has a number for each mapping: shares of FLOP, parameters; and its exchanges.

    `parted` are the degrees that cut anything. Where `index` is given, it says which mapping each point has.
    """

    model: Transformer
    at: Site
    e: Trainer
    precision: Precision
    rates: Rates
    outline: Outline
    saved: Saved
    attentions: tuple[Attention, ...]
    values: Values
    parted: frozenset[str]
    spec_shapes: dict[str, NDArray]
    index: NDArray | None = None

    def at_points(self, index: NDArray) -> Rank:
        """Return the rank with a place for each point."""
        known = {name: x.take(index) if np.ndim(x) else x for name, x in self.values.items()}
        return replace(self, values=Values(known, self.values.exchanges._replace(places=index)), index=index)

    def cut(self, piece: Piece) -> Rank:
        """Return the rank of a piece of all points."""
        return self if self.index is None else self.at_points(piece.of(self.index))

    @property
    def everywhere(self) -> Rank:
        """The rank with a place for each point that there is."""
        return self if self.index is None else self.at_points(self.index)

    @property
    def places(self) -> tuple[NDArray, ...]:
        """Arrays with a place for each point, where points have mappings of their own."""
        return () if self.index is None else (self.index,)


def _scaled(where: System | Chip, ratio: Any) -> System | Chip:
    """Return a machine whose scale-out network is scaled by the share that software reaches, relative to others."""
    if np.ndim(ratio):
        return _with_rate.__wrapped__(where, ratio)
    return where if ratio == 1 else _with_rate(where, float(ratio))


@lru_cache(maxsize=256)
def _with_rate(where: System | Chip, ratio: Any) -> System | Chip:
    rate = where.scaleout_bytes_per_s_per_dir * ratio
    if isinstance(where, Chip):
        return replace(where, scaleout_bytes_per_s_per_dir=rate)
    return replace(where, network_bytes_per_s_per_dir=rate * where.domain_chips)


def _starting(where: System | Chip, e: Trainer) -> tuple[System | Chip, Efficiencies | None]:
    """Return a machine whose exchanges all have a start-up, and the stack whose exchanges run on it: that of nobody.

    It is the ideal one where nothing has a start-up, as on a bare chip of which no latency is documented, and where a
    library adds its own.
    """
    if not np.any(e.hop_s) or (isinstance(where, Chip) and where.core is None):
        return where, IDEAL_STEPS
    whole = (_with_hop.__wrapped__ if np.ndim(e.hop_s) else _with_hop)(where, e.hop_s)
    return whole, IDEAL_STEPS if e.library == "nccl" else None


def _start_s(kind: str, where: System | Chip, ranks: Any, stride: Any, inside: float) -> Any:
    """Start-up of a library's exchange among every `stride`-th rank of servers that have `inside` ranks [s]."""
    assert isinstance(where, System)
    servers = np.clip(np.ceil(ranks * stride / inside), 1, ranks)
    return library_start_s(kind, ranks, servers, where.chip.hop_s, where.scaleout_hop_s)


@lru_cache(maxsize=256)
def _with_hop(where: System | Chip, hop_s: Any) -> System | Chip:
    chip = where if isinstance(where, Chip) else where.chip
    if np.any(np.isnan(chip.hop_s)):
        chip = replace(chip, hop_s=_published(chip.hop_s, hop_s))
    if isinstance(where, Chip):
        return chip
    if chip is where.chip and not np.any(np.isnan(where.scaleout_hop_s)):
        return where
    return replace(where, chip=chip, scaleout_hop_s=_published(where.scaleout_hop_s, hop_s))


def _published(own_s: Any, hop_s: Any) -> Any:
    """Return a latency where it is documented, another elsewhere."""
    return plain(np.where(np.isnan(own_s), hop_s, own_s))


@lru_cache(maxsize=4096)
def _keyed(key: Key) -> Mapping:
    """Return the mapping of scalar degrees that a key is of: one object, by which its rank is saved."""
    degrees, lnc, order = key
    return Mapping(*degrees, lnc=lnc, placement=order)


def _where_of(term: Term) -> str:
    """Return where a term's parameters lie: in experts, in other parts of layers, in the first or the last stage."""
    if term.kind == "experts":
        return "expert"
    if term.layer:
        return "dense"
    return "first" if term.part and term.part.group == "embedding" else "last"


@lru_cache(maxsize=4096)
def _work(
    model: Same[Transformer], mapping: Same[Mapping], policy: str
) -> tuple[dict[str, Any], tuple[Attention, ...]]:
    """Return work per token and parameters of the fullest rank, over all stages, and those of the whole model."""
    names = "row_flop routed_flop logit_flop row_all logit_all dense_params expert_params first_params last_params"
    values: dict[str, Any] = dict.fromkeys(names.split(), 0.0)
    pairs: dict[Attention, tuple[Any, Any, Any]] = {}
    for term in model.it.terms("bf16", "prefill"):
        held = hold(term, mapping.it, policy)
        values[f"{_where_of(term)}_params"] = values[f"{_where_of(term)}_params"] + plain(
            held.stored * (term.stored_bytes / ELEMENT_BYTES)
        )
        work = plain(held.work)
        if term.attention:
            flop, _, all_ = pairs.get(term.attention, (0.0,) * 3)
            pairs[term.attention] = flop + term.pair_flop * work, work, all_ + term.pair_flop
        elif term.kind == "experts":
            values["routed_flop"] = values["routed_flop"] + term.row_flop * work * plain(mapping.it.ep)
        else:
            values["row_flop"] = values["row_flop"] + term.row_flop * work
        values["logit_flop"] = values["logit_flop"] + term.logit_flop * work
        values["row_all"] += term.row_flop
        values["logit_all"] += term.logit_flop
    for i, (flop, share, all_) in enumerate(pairs.values()):
        values |= {f"pair_flop_{i}": flop, f"head_share_{i}": share, f"pair_all_{i}": all_}
    return values, tuple(pairs)


def _resolved(
    model: str | Same[Transformer],
    system: str | Same[System | Chip],
    mapping: Same[Mapping],
    precision: str | Same[Precision],
    efficiencies: str | Same[Trainer] | None,
) -> Rank:
    """Return the rank of a job from ids and objects."""
    chosen, dtypes = read_model(of_key(model)), read_precision(of_key(precision))
    if chosen.reads_source:
        refuse("model", chosen.id, "training of an encoder-decoder is not defined by one sequence length")
    if dtypes.sparse:
        refuse("precision", dtypes, "sparse is for inference: training keeps all weights")
    at, outline = site(of_key(system), mapping.it.lnc), chosen.outline("prefill")
    e = trainer(at.chip, of_key(efficiencies))
    each, index = mapping.it.different if mapping.it.size > 1 else (mapping.it, None)
    work, attentions = _work(Same(chosen), Same(each), e.kv_head_policy)
    near, starts = _starting(at.where, e)
    by_library = e.library == "nccl" and isinstance(near, System) and bool(np.any(e.hop_s))
    reached = Same(_scaled(near, e.scaleout_share / e.link_share))
    values = Values(work, Exchanges(Same(each), Same(at), Same(near), reached, e.link_share, starts, by_library))
    values |= {name: plain(getattr(each, name)) for name in (*DEGREES, "ranks")}
    values |= {"illegal": of_mapping(chosen, at, each, e, "prefill"), "sharing": at.sharing(each.ranks)}
    return Rank(
        model=chosen,
        at=at,
        e=e,
        precision=dtypes,
        rates=Rates(
            compute_flop_per_s=at.peak(dtypes.compute),
            attention_flop_per_s=at.peak(dtypes.attention),
            fitted_flop_per_s=at.peak(FITTED_FORMAT),
            hbm_bytes=at.hbm_bytes,
            hbm_bytes_per_s=at.hbm_bytes_per_s,
        ),
        outline=outline,
        saved=saved(chosen),
        attentions=attentions,
        values=values,
        parted=each.parted,
        spec_shapes=shapes(system=at.where, efficiencies=e),
        index=index,
    )


_scalar_ranks, _array_ranks = lru_cache(maxsize=512)(_resolved), lru_cache(maxsize=8)(_resolved)


def rank(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping,
    precision: str | Precision,
    efficiencies: str | Trainer | None,
) -> Rank:
    """Return the rank of a job from ids or objects, resolved once; of arrays of degrees the last few are saved.

    Raises ValueError for an unknown id, a model that reads a source, and a chip without a stack or a peak.
    """
    resolved, one = (_array_ranks, mapping) if mapping.key is None else (_scalar_ranks, _keyed(mapping.key))
    named = type(model) is str and known(model)  # a file may have changed since
    specs = (key_of(model if named else read_model(model)), key_of(system), Same(one))
    return resolved(*specs, key_of(precision), key_of(efficiencies))
