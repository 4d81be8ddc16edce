"""The facts that an answer stands on, as rows that can be written to a file and put in force again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np

from trnmodel.catalog import load
from trnmodel.catalog.rulings import Ruled
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.systems import System, bases
from trnmodel.catalog.systems import systems as system_ids
from trnmodel.catalog.tables import Confidence, Fact, Key
from trnmodel.models.transformer import Transformer

FILES = ("*.yaml", "evidence/*.csv", "lists/*.csv", "systems/*.csv", "models/*.csv")  # of data/, that hold no facts


class FactRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fact in force when an answer was saved: what it is about, what its source prints, and its value in base units.

    `low` and `high` are equal where the fact is decided. Text has no value.
    """

    entity: str
    quantity: str
    qualifier: str
    id: str
    value_printed: str
    unit_printed: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    source: str
    locator: str
    confidence: Confidence

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.entity, self.quantity, self.qualifier

    @property
    def fact(self) -> str:
        """What it is about, as text."""
        return load.label(self.key).removesuffix("[]")

    @property
    def stated(self) -> tuple[Any, ...]:
        """What has to be the same for the fact to be the same: its value and range, or its text."""
        return (self.value, self.low, self.high) if self.value is not None else (self.value_printed,)

    @property
    def printed(self) -> str:
        """What its source prints, with the range of rivals where that is open."""
        text = f"{self.value_printed} {'' if self.unit == 'text' else self.unit_printed}".strip()
        return text if self.low == self.high else f"{text} ({self.low:.6g} to {self.high:.6g} {self.unit})"

    def ruled(self) -> Ruled:
        """Return the fact as `catalog.load` holds it, to be put in force again."""
        known = load.facts_rows().get(self.id)
        about = {name: getattr(self, name) for name in self.__struct_fields__ if name in Fact.__struct_fields__}
        spread = None if self.low is None or self.high is None or self.low == self.high else (self.low, self.high)
        return Ruled(Fact(**about, note=known.note if known else ""), spread)


def specs_in(*things: Any) -> Iterator[Spec]:
    """Return every spec that answers hold, at any depth: chips and their engines, systems, stacks, options, prices."""
    seen, todo = set[int](), list(things)
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | np.ndarray | Transformer | type):
            continue
        seen.add(id(thing))
        if isinstance(thing, Spec):
            yield thing
        if isinstance(thing, Mapping):
            todo += thing.values()
        elif isinstance(thing, tuple | list):
            todo += thing
        elif is_dataclass(thing):
            todo += (getattr(thing, one.name) for one in fields(thing))


def facts_of(specs: Iterable[Spec]) -> list[FactRow]:
    """Return the facts in force that specs were read from, in the order of what they are about."""
    every = list(specs)
    ids = {one for spec in every for some in spec.sources.values() for one in some}
    systems = {
        base for spec in every if isinstance(spec, System) and spec.id in system_ids() for base in bases(spec.id)
    }
    counted = {(entity, "chips", "") for entity in systems}  # which a system reads beside its fields
    rows = sorted(load.in_force().items())
    return [row(key, ruled) for key, ruled in rows if ruled.fact.id in ids or key in counted]


def row(key: Key, ruled: Ruled) -> FactRow:
    """Return a fact in force as a row."""
    fact, unit = ruled.fact, load.quantities()[ruled.fact.quantity].unit_si
    printed = {name: getattr(fact, name) for name in ("id", "value_printed", "unit_printed", "source", "locator")}
    value: dict[str, Any] = dict.fromkeys(("value", "low", "high"))
    if unit != "text":
        middle = load.value_si(fact)[0]
        low, high = ruled.spread or (middle, middle)
        value = {"value": middle, "low": low, "high": high}
    about: dict[str, Any] = dict(zip(("entity", "quantity", "qualifier"), key, strict=True))
    return FactRow(**about | printed | value, unit=unit, confidence=fact.confidence)


def current(key: Key) -> FactRow | None:
    """Return the fact that is in force about something now; None where there is none."""
    ruled = load.in_force().get(key)
    return row(key, ruled) if ruled else None


def digests() -> dict[str, str]:
    """Return a digest of each file of `data/` that holds no facts and may move an answer."""
    paths = sorted(path for pattern in FILES for path in load.DATA.glob(pattern))
    return {str(path.relative_to(load.DATA).as_posix()): digest(path.read_bytes()) for path in paths}


def digest(content: bytes) -> str:
    """Return a digest of 16 letters: it tells versions of a file apart, and holds off nobody."""
    return hashlib.sha256(content).hexdigest()[:16]
