"""How a model is cut over ranks: degrees, how they lie on the fabric, and the share of each term that a rank has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, integer, numbers, refuse, together
from trnmodel.catalog.specs import Precision
from trnmodel.declared import Integer, Object
from trnmodel.formulas.neuroncore import tile_count
from trnmodel.formulas.step import fullest_share, kv_heads_per_rank
from trnmodel.models.blocks import Phase
from trnmodel.models.terms import Cut, Term
from trnmodel.models.transformer import Transformer
from trnmodel.units import Numeric

Key = tuple[tuple[float, float, float, float, float, float], int | None, tuple[str, ...]]
DEGREES = ("tp", "pp", "dp", "ep", "cp")
CUTS = (*DEGREES, "moe_ep")
TABLE = 2**20  # numbers up to it are told apart by a table
BLOCK = 2**16  # numbers that are looked up at once


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mapping:
    """Degrees of parallelism and the order in which they fill the fabric, innermost tier first.

    A rank is one logical NeuronCore of `lnc` physical ones, or one GPU. Degrees multiply to ranks. `dp` makes replicas.
    Inside a replica `ep` ranks share out experts, and sequences between them; `cp` cuts a sequence; `tp` cuts heads,
    columns, experts and the vocabulary; `pp` cuts the layers. `moe_ep` is no degree by itself: that many groups
    of the `tp` ranks hold whole experts, each a part of them. `key` tells mappings of scalar degrees apart.

    Examples
    --------
    >>> mapping = Mapping(tp=[8, 16], pp=2)
    >>> mapping.ranks.tolist()
    [16.0, 32.0]
    """

    tp: Any = 1
    pp: Any = 1
    dp: Any = 1
    ep: Any = 1
    cp: Any = 1
    moe_ep: Any = 1
    lnc: int | None = None
    placement: tuple[str, ...] = ("tp", "cp", "ep", "pp", "dp")
    key: Key | None = field(init=False, repr=False)
    _different: tuple[Mapping, NDArray] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        for name in CUTS:
            degree = np.array(numbers(name, getattr(self, name), 1, whole=True))
            degree.setflags(write=False)
            object.__setattr__(self, name, degree)
        together(**{name: getattr(self, name) for name in CUTS})
        if np.any(self.tp % self.moe_ep):
            refuse("moe_ep", self.moe_ep.tolist(), f"allowed are divisors of tp={self.tp.tolist()}")
        order = self.placement
        are_names = isinstance(order, tuple | list) and all(isinstance(name, str) for name in order)
        if not are_names or sorted(order) != sorted(DEGREES):
            refuse("placement", order, f"allowed are orders of {DEGREES}")
        object.__setattr__(self, "placement", tuple(order))
        if self.lnc is not None:
            object.__setattr__(self, "lnc", integer("lnc", self.lnc))
        degrees = tuple(float(x) for x in (self.tp, self.pp, self.dp, self.ep, self.cp, self.moe_ep) if not x.ndim)
        key = (degrees, self.lnc, self.placement) if len(degrees) == len(CUTS) else None
        object.__setattr__(self, "key", key)

    def __repr__(self) -> str:
        """Print the call that makes it, without what is the default.

        Examples
        --------
        >>> Mapping(tp=[8, 16], dp=2, lnc=1)
        Mapping(tp=[8, 16], dp=2, lnc=1)
        """
        degrees = {name: getattr(self, name) for name in CUTS}
        texts = {name: np.vectorize(int, otypes=[object])(x).tolist() for name, x in degrees.items() if np.any(x != 1)}
        if self.lnc is not None:
            texts["lnc"] = self.lnc
        if self.placement != ("tp", "cp", "ep", "pp", "dp"):
            texts["placement"] = self.placement
        return f"Mapping({', '.join(f'{name}={value}' for name, value in texts.items())})"

    @property
    def size(self) -> int:
        """Mappings that its arrays make."""
        return math.prod(np.broadcast_shapes(*(getattr(self, name).shape for name in CUTS)))

    @property
    def different(self) -> tuple[Mapping, NDArray]:
        """Each combination of degrees once, and which of them each place has; computed once."""
        different = self._different
        if different is None:
            degrees = np.broadcast_arrays(*(getattr(self, name) for name in CUTS))
            number, first = numbered(degrees)
            each: dict[str, Any] = {name: x.flat[first] for name, x in zip(CUTS, degrees, strict=True)}
            different = replace(self, **each), number
            object.__setattr__(self, "_different", different)
        return different

    @property
    def parted(self) -> frozenset[str]:
        """The degrees that cut anything."""
        return frozenset(name for name in DEGREES if np.any(getattr(self, name) > 1))

    @property
    def replica_ranks(self) -> NDArray:
        """Ranks that hold one copy of the model."""
        return self.tp * self.pp * self.ep * self.cp

    @property
    def ranks(self) -> NDArray:
        """Product of all degrees."""
        return self.replica_ranks * self.dp

    def extent(self, name: str) -> tuple[NDArray, NDArray]:
        """Stride between neighbours of a group and the ranks that the group spans, in order of placement."""
        stride = np.ones(())
        for inner in self.placement[: self.placement.index(choice("name", name, DEGREES))]:
            stride = stride * getattr(self, inner)
        return stride, stride * getattr(self, name)


_DEGREE = {"anyOf": [Integer().schema(), {"type": "array", "items": Integer().schema(), "minItems": 1}]}
_FIELDS = dict.fromkeys(CUTS, _DEGREE) | {
    "lnc": Integer().schema(),
    "placement": {"type": "array", "items": {"enum": [*DEGREES]}},
}
MAPPING = Object(Mapping, "a Mapping, such as Mapping(tp=8)", {"type": "object", "properties": _FIELDS})


def _held(whole: Numeric, ranks: Numeric, policy: str) -> NDArray:
    """Share of `whole` units that the fullest of `ranks` holds; "even" cuts through units."""
    return 1 / np.asarray(ranks) if policy == "even" else fullest_share(whole, ranks)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """The shares of a term that the fullest rank stores, reads and caches, and works on, for arrays of degrees."""

    term: Term
    stored: NDArray
    work: NDArray


def _padding(cut: Cut, tp: NDArray, tile: Numeric) -> NDArray:
    """Ratio of the columns that a matrix engine of `tile` columns works on to those that an expert's shard has."""
    if not cut.inner:
        return np.ones_like(tp)
    width = cut.inner / tp
    return np.where(np.equal(tile, 0), 1.0, tile_count(width, np.maximum(tile, 1)) * tile / width)


def _cached(cut: Cut, tp: NDArray, policy: str, split: str) -> NDArray:
    """Share of a cache on one rank. TP cannot cut a latent by heads, which all read, but by tokens it can.

    Ranks that share out the tokens exchange queries and partial sums (`assemble.messages`). The "even" policy of ideal
    software cuts everything and exchanges nothing: it is a bound.
    """
    if split == "tokens":
        return 1 / tp
    if cut.shard != "latent":
        return kv_heads_per_rank(cut.heads, cut.kv_heads, tp, policy) / cut.kv_heads
    return 1 / tp if policy == "even" else np.ones_like(tp)


def hold(term: Term, mapping: Mapping, policy: str = "even", tile: Numeric = 0.0, split: str = "heads") -> Held:
    """Return what a rank has of a term that `tp` and `ep` cut, layers cut by `pp`, whole experts shared by `moe_ep`.

    Work and traffic are those of a whole pass through all stages; stored is what the fullest stage holds. A part that
    nobody may cut is whole on every rank. With a `tile` the shards of experts are computed in whole tiles. `split`
    says whether TP cuts the cache by "heads" or by "tokens".
    """
    cut, tp, ep = term.cut, mapping.tp, mapping.ep
    if cut.shard == "experts":
        columns = tp / mapping.moe_ep
        share = _held(cut.experts, ep * mapping.moe_ep, policy) / columns
        return Held(term, share, _padding(cut, columns, tile) / (tp * ep))
    if cut.shard in ("latent", "cache"):
        return Held(term, _cached(cut, tp, policy, split), _held(cut.heads, tp, policy))
    if cut.shard == "none":
        share = 1 / tp if policy == "even" else np.ones_like(tp)
    elif cut.shard == "heads":
        share = _held(cut.heads, tp, policy)
    elif cut.shard == "kv_heads":
        share = kv_heads_per_rank(cut.heads, cut.kv_heads, tp, policy) / cut.kv_heads
    else:
        share = 1 / tp
    return Held(term, share, share)


def shard(
    model: Transformer,
    mapping: Mapping,
    precision: Precision,
    phase: Phase,
    policy: str,
    tile: Numeric = 0.0,
    split: str = "heads",
) -> tuple[Held, ...]:
    """Return what the fullest rank has of a model, alike terms summed."""
    return tuple(hold(term, mapping, policy, tile, split) for term in model.summed_terms(precision, phase))


def numbered(arrays: Iterable[NDArray]) -> tuple[NDArray, NDArray]:
    """Return the number of the combination that each place of some arrays of whole numbers has, and where each occurs.

    Examples
    --------
    >>> number, first = numbered([np.array([8.0, 8.0, 4.0]), np.array([1.0, 1.0, 2.0])])
    >>> number.tolist(), first.tolist()
    ([1, 1, 0], [2, 1])
    """
    arrays = np.broadcast_arrays(*arrays)
    shape, size = arrays[0].shape, arrays[0].size
    varying = [x.ravel() for x in arrays if x.min() < x.max()]
    ranks = [_ranks(x) for x in varying if x.max() < TABLE]
    count = math.prod(int(table[-1]) + 1 for table in ranks)
    if len(ranks) < len(varying) or count > TABLE:
        flat = np.stack([x.ravel() for x in arrays])
        _, first, number = np.unique(flat, axis=1, return_index=True, return_inverse=True)
        return number.reshape(shape), first
    number, places = np.empty(size, dtype=np.int32), np.full(count, -1)
    for block in _blocks(size):
        key = np.zeros(block.stop - block.start, dtype=np.intp)
        for x, table in zip(varying, ranks, strict=True):
            key = key * (table[-1] + 1) + table.take(x[block].astype(np.intp), mode="clip")
        number[block], places[key] = key, np.arange(block.start, block.start + key.size)
    occurs = places >= 0
    if not occurs.all():
        table = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        for block in _blocks(size):
            number[block] = table.take(number[block], mode="clip")
    return number.reshape(shape), places[occurs]


def _blocks(size: int) -> Iterator[slice]:
    """Yield the places that are looked up at once."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def _ranks(numbers: NDArray) -> NDArray:
    """Return for each whole number up to the largest of some, how many smaller ones are among them."""
    occurs = np.zeros(int(numbers.max()) + 1, dtype=bool)
    for block in _blocks(numbers.size):
        occurs[numbers[block].astype(np.intp)] = True
    return np.cumsum(occurs) - 1
