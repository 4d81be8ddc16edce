"""Everything that a step depends on besides batch and lengths, resolved once: shares, rates and stored bytes.

`setting` turns a question's model, system, mapping, precision and stack into a `Setting`, and saves those of scalar
degrees. A `Setting` holds the rank (`at`), its rates, the bytes that it stores whatever the batch is, and a `Burden`
for each sort of term: what the fullest rank has to do of it. `trnmodel.steps.assemble` makes times of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import NoteWarning, Same, instance, refuse
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.posterior import Posterior, is_file
from trnmodel.catalog.specs import Chip, Precision, shapes
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.systems import System
from trnmodel.formulas.memory import stream_bytes_per_s
from trnmodel.formulas.step import fullest_share
from trnmodel.models.blocks import Attention, Phase
from trnmodel.models.shipped import known
from trnmodel.models.terms import Cut, Outline
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.legal import of_mapping
from trnmodel.steps.mapping import CUTS, DEGREES, Held, Key, Mapping, hold, shard
from trnmodel.steps.pieces import Piece
from trnmodel.steps.rank import Site, site
from trnmodel.units import Numeric

SETTINGS = 512  # that are saved
SHARED = 1000  # mappings of a search up to which what they resolve to is saved
FEW = 4096  # mappings up to which each is resolved; of more, those that differ are resolved once


class Degrees(NamedTuple):
    """Degrees of parallelism as numbers."""

    tp: Numeric
    pp: Numeric
    dp: Numeric
    ep: Numeric
    cp: Numeric
    moe_ep: Numeric

    @property
    def expert_groups(self) -> Numeric:
        """Groups of ranks that hold whole experts, each a part of them."""
        return self.ep * self.moe_ep


class Burden(NamedTuple):
    """Sum of alike terms, times the share of them that the fullest rank has: its FLOP and bytes per row or pair.

    `head_share` and `kv_share` are the shares of an attention's heads and of its KV heads that the rank has.
    """

    kind: str
    name: str
    cut: Cut
    attention: Attention | None
    layers: int
    row_flop: Numeric
    logit_flop: Numeric
    pair_flop: Numeric
    read_bytes: Numeric
    row_bytes: Numeric
    cached_bytes: Numeric
    state_bytes: Numeric
    head_share: Numeric
    kv_share: Numeric


def burden(h: Held) -> Burden:
    """Return a term times a rank's shares of it; a number that is 0 in the term stays a plain 0."""
    t = h.term
    shared = {
        **dict.fromkeys(("row_flop", "logit_flop", "pair_flop"), h.work),
        **dict.fromkeys(("read_bytes", "row_bytes", "cached_bytes", "state_bytes"), h.stored),
    }
    numbers = (getattr(t, name) * share if getattr(t, name) else 0.0 for name, share in shared.items())
    shares = (h.work, h.stored) if t.attention else (0.0, 0.0)
    return Burden(t.kind, t.label, t.cut, t.attention, t.layers, *numbers, *shares)


def _summed(burdens: Iterable[Burden]) -> tuple[Burden, ...]:
    """Add up terms that meet the same rows at the same rates: matrices, experts of one kind, each kind of attention."""
    sums: dict[Any, Burden] = {}
    for b in burdens:
        key = b.attention or ((b.cut.experts, b.cut.active) if b.kind == "experts" else "")
        first = sums.get(key)
        if first:
            numbers = (one + more for one, more in zip(first[4:12], b[4:12], strict=True))
            kind = "state" if "state" in (first.kind, b.kind) else b.kind
            sums[key] = Burden._make((kind, *first[1:4], *numbers, *first[12:]))
        else:
            sums[key] = b
    return tuple(sums.values())


class Rates(NamedTuple):
    """Rates of a rank: FLOP of matrices and of attention, bytes of weights, cache and states, elements."""

    linear_flop_per_s: Numeric
    pair_flop_per_s: Numeric
    weight_bytes_per_s: Numeric
    cache_bytes_per_s: Numeric
    state_bytes_per_s: Numeric
    elements_per_s: Numeric


class Stored(NamedTuple):
    """Bytes that a rank stores whatever the batch is: the fullest stage's weights, and its share of the runtime's.

    `first_rank_bytes` are those that the first of several ranks stores beyond them.
    """

    weight_bytes: NDArray
    collective_buffer_bytes: NDArray
    ring_bytes: NDArray
    code_bytes: NDArray
    runtime_bytes: NDArray
    first_rank_bytes: NDArray


class Points(NamedTuple):
    """Number of the mapping that each point has."""

    places: NDArray

    def of(self, x: NDArray) -> Any:
        """Return the value of each point's mapping; one number where all mappings have the same."""
        return x[0] if (x == x[0]).all() else x.take(self.places, mode="clip")


class Team(NamedTuple):
    """A rank's group along one degree: how many ranks, and the stride from one to the next."""

    ranks: Numeric
    stride: Numeric


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Everything that a step depends on besides batch and lengths, resolved once.

    Arrays have a place for each mapping. Where there are many points and few mappings, arrays have a place for each
    mapping that differs, and `index` is the number of each point's mapping. `at` is the rank, `e` its software,
    `parted` are the degrees above 1, and `illegal` is a bit mask of the rules (`legal.RULES`) that each mapping breaks.
    Ranks fill neighbouring cores, so that `sharing` of them store in the `hbm_bytes` of one bank.
    """

    model: Transformer
    system: System | Chip
    mapping: Mapping
    precision: Precision
    wide_bytes: float
    phase: Phase
    at: Site
    e: Efficiencies
    outline: Outline
    degrees: Degrees
    burdens: tuple[Burden, ...]
    rates: Rates
    stored: Stored
    teams: dict[str, Team]
    hbm_bytes: Numeric
    sharing: Numeric
    illegal: NDArray
    parted: frozenset[str]
    gathers_logits: bool
    splits_cache: bool
    phases_wait: bool
    spec_shapes: dict[str, NDArray]
    index: NDArray | None = None

    def picked(self, points: Piece | Points, **changes: Any) -> Setting:
        """Return the setting with other places in its arrays: those of a piece, or one for each point."""

        def one(x: Any) -> Any:
            return points.of(x) if np.ndim(x) else x

        def each(values: Any) -> Any:
            return type(values)(*(one(x) if isinstance(x, np.ndarray) else x for x in values))

        return replace(
            self,
            degrees=each(self.degrees),
            burdens=tuple(each(b) for b in self.burdens),
            stored=each(self.stored),
            sharing=one(self.sharing),
            illegal=one(self.illegal),
            **changes,
        )

    def at_points(self, index: NDArray) -> Setting:
        """Return the setting with a place for each point; groups stay listed once for each mapping."""
        here = self.picked(Points(index), index=index)
        return replace(here, illegal=self.illegal.take(index, mode="clip"))

    def cut(self, piece: Piece) -> Setting:
        """Return the setting of a piece of all points."""
        if self.index is not None:
            return self.at_points(piece.of(self.index).astype(np.intp))  # which NumPy would do for each array
        return self.picked(piece, teams={name: Team(*map(piece.of, team)) for name, team in self.teams.items()})

    @property
    def room_bytes(self) -> Numeric:
        """Memory that the software may use of a bank: all of it, or the share that a server is allowed."""
        return self.hbm_bytes * self.e.memory_share

    @property
    def level(self) -> Any:
        """How many times as long a step of the phase takes as the constants of the stack explain."""
        return self.e.decode_level if self.phase == "decode" else self.e.prefill_level

    @property
    def places(self) -> tuple[Any, ...]:
        """Arrays with a place for each point, or for each mapping that broadcasts with them."""
        return self.degrees if self.index is None else (self.index,)

    def at_each_point(self, x: Any) -> Any:
        """Return a number of each mapping at every point."""
        return x if self.index is None or not np.ndim(x) else Points(self.index).of(x)

    @property
    def everywhere(self) -> Setting:
        """The setting with a place for each point that there is."""
        return self if self.index is None else self.at_points(self.index)

    @property
    def storing(self) -> Setting:
        """The setting for memory alone: burdens of what is cached, without the work."""
        cached = (b for b in self.burdens if b.kind in ("attention", "state"))
        names = ("row_flop", "logit_flop", "pair_flop", "read_bytes", "row_bytes", "head_share")
        empty: dict[str, Any] = dict.fromkeys(names, 0.0)
        return replace(self, burdens=tuple(b._replace(**empty) for b in cached))

    @property
    def listed(self) -> Setting:
        """The setting with a burden for each term by itself, to be listed in a breakdown."""
        e, terms = self.e, (term for term in self.model.terms(self.precision, self.phase) if term.layers)
        shares = (hold(term, self.mapping, e.kv_head_policy, e.expert_tile_columns, e.cache_split) for term in terms)
        return replace(self, burdens=tuple(burden(h) for h in shares)).everywhere


def setting(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping,
    precision: str | Precision,
    stack: str | Efficiencies | None,
    phase: Phase,
    timed: bool = True,
) -> Setting:
    """Return the setting of a question, from ids or objects; resolved once and saved, but for many mappings.

    Scalar degrees are known by their values and arrays by the mapping itself, whose degrees nobody can change. `timed`
    is False where the question is about memory alone, which needs no rates.
    """
    instance("mapping", mapping, Mapping, "a Mapping, such as Mapping(tp=8)")
    named = type(model) is str and known(model)  # a file may have changed since
    if type(stack) is str and is_file(stack):
        stack = find(site(system, mapping.lnc).chip, stack, "efficiencies")
    specs = (model if named else read_model(model), system, precision, stack)
    if not mapping.key and mapping.size > SHARED:
        return _resolved(specs, phase, timed, mapping)
    saved = tuple(x if x is None or type(x) is str else Same(x) for x in specs)
    return _saved(saved, phase, timed, mapping.key or Same(mapping))


NO_DEGREES, NO_RATES = Mapping(), Rates(*[np.nan] * len(Rates._fields))


@lru_cache(maxsize=SETTINGS)
def _saved(specs: tuple[str | Same | None, ...], phase: Phase, timed: bool, key: Key | Same[Mapping]) -> Setting:
    """Return the setting of a few mappings; `Same` compares objects by identity, so that they can be keys."""
    resolvable = tuple(x.it if isinstance(x, Same) else x for x in specs)
    if isinstance(key, Same):
        return _resolved(resolvable, phase, timed, key.it)
    degrees, lnc, placement = key
    return _resolved(resolvable, phase, timed, Mapping(*degrees, lnc=lnc, placement=placement))


@lru_cache(maxsize=SETTINGS)
def _note(posterior: Same[Posterior], chip: str, system: str) -> None:
    """Warn where a machine is none of those that a stack was calibrated on: once for each."""
    if strange := posterior.it.strange(chip, system):
        warnings.warn(f"efficiencies on {system or chip}: {strange}", NoteWarning, stacklevel=3)


def _resolved(specs: tuple[Any, ...], phase: Phase, timed: bool, mapping: Mapping) -> Setting:
    """Return the setting of a model, a system, a precision and a stack."""
    model, system, precision, stack = specs
    at = site(system, mapping.lnc)
    chosen, dtypes = read_model(model), read_precision(precision)
    e = find(at.chip, stack, "efficiencies", chosen.kind)
    if e.posterior:
        _note(Same(e.posterior), at.chip.id, "" if at.where is at.chip else at.where.id)
    mapping, index = _different(mapping, at, e)
    wide, outline = dtypes.storage_bytes("activations"), chosen.outline(phase)
    if not outline.layers:
        refuse("model", chosen.id, "an encoder has no decode step")
    held = shard(chosen, mapping, dtypes, phase, e.kv_head_policy, e.expert_tile_columns, e.cache_split)
    tables = sum(t.stored_bytes for t in chosen.terms(dtypes, phase) if t.part and t.part.shard == "vocabulary")
    return Setting(
        model=chosen,
        system=at.where,
        mapping=mapping,
        precision=dtypes,
        wide_bytes=wide,
        phase=phase,
        at=at,
        e=e,
        outline=outline,
        degrees=Degrees(*(plain(getattr(mapping, name)) for name in CUTS)),
        burdens=tuple(Burden(*map(plain, b)) for b in _summed(map(burden, held))),
        rates=rates_of(at, e, dtypes, phase) if timed else NO_RATES,
        stored=Stored(*map(plain, _stored(held, mapping, outline, e, at.lnc, tables))),
        teams={name: Team(plain(getattr(mapping, name)), plain(mapping.extent(name)[0])) for name in DEGREES},
        hbm_bytes=plain(at.hbm_bytes),
        sharing=at.sharing(mapping.ranks),
        illegal=of_mapping(chosen, at, mapping, e, phase),
        parted=mapping.parted,
        gathers_logits=bool(np.any(e.logit_gathers)),
        splits_cache=e.cache_split == "tokens",
        phases_wait=bool(np.any(np.not_equal(e.phase_overlap, 1))),
        spec_shapes=shapes(system=at.where, efficiencies=e),
        index=index,
    )


def plain(value: Any) -> Any:
    """Return an array of no dimensions as a NumPy scalar, with which arithmetic is faster; anything else as it is."""
    return value[()] if isinstance(value, np.ndarray) else value


def _different(mapping: Mapping, at: Site, e: Efficiencies) -> tuple[Mapping, NDArray | None]:
    """Return each mapping once and which of them each point has, where there are many points and few that differ."""
    if mapping.size <= FEW or at.where.shape or e.shape:
        return mapping, None
    return mapping.different


def rates_of(at: Site, e: Efficiencies, precision: Precision, phase: str) -> Rates:
    """Return printed peaks and bandwidth of a rank, times the shares that the stack reaches in this phase.

    In prefill attention reaches no larger share of the peak than linear layers do.
    """
    linear = pair = e.decode_matmul_share
    if phase == "prefill":
        linear = e.prefill_matmul_share / e.prefill_slowdown
        pair = np.minimum(e.prefill_attention_share / e.prefill_slowdown, linear)
    rates = (
        at.peak(precision.compute, precision.sparse) * linear,
        at.peak(precision.attention) * pair,
        at.hbm_bytes_per_s * e.weight_stream_share,
        stream_bytes_per_s(at.hbm_bytes_per_s, e.kv_stream_share, e.kv_stream_bytes_per_s),
        stream_bytes_per_s(at.hbm_bytes_per_s, e.kv_stream_share, e.state_stream_bytes_per_s),
        at.elements_per_s,
    )
    return Rates(*map(plain, rates))


def _stored(
    held: Iterable[Held], mapping: Mapping, outline: Outline, e: Efficiencies, cores: int, table_bytes: float
) -> Stored:
    """Return the bytes that the fullest rank stores whatever the batch is; `table_bytes` are of the vocabulary."""
    layers, whole = np.ceil(outline.layers / mapping.pp), e.first_rank_tables == "whole"
    return Stored(
        sum(h.term.stored_bytes * h.stored for h in held) * fullest_share(outline.layers, mapping.pp),
        np.where(mapping.replica_ranks > 1, e.collective_buffer_bytes, 0.0),
        layers * e.ring_bytes_per_layer,
        layers * e.code_bytes_per_layer + cores * e.microcode_bytes_per_core,
        np.asarray(e.runtime_bytes),
        np.where(mapping.replica_ranks > 1, e.first_rank_bytes, 0.0) + whole * table_bytes * (1 - 1 / mapping.tp),
    )
