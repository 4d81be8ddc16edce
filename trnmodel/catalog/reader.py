"""The reader of specs: facts about an entity, and about those that it builds on, become one frozen spec.

A module of the catalog declares its spec and calls `find` with the kind of entity that `data/lists/entities.csv` lists.
Values, sources, ranges and estimates of a spec follow from the rows in force; an unknown name is refused with the
nearest names; and an entity takes over from its base (the column `base`) each field that it does not state itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache, reduce
from typing import Any, TypeVar

from trnmodel.catalog import load
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.tables import DataError, Fact

S = TypeVar("S", bound=Spec)


def ids(kind: str) -> tuple[str, ...]:
    """Return the ids of the entities of a kind, in the order of `data/`.

    Examples
    --------
    >>> ids("facility")
    ('aws-air', 'aws-chilled', 'colocation')
    """
    return tuple(entity.id for entity in load.entities().values() if entity.kind == kind)


def ancestry(entity: str, bases: Mapping[str, str]) -> tuple[str, ...]:
    """Return an entity and those that it builds on, the most general last; `bases` names the base of each, or "".

    Raises DataError where one of them has no row.

    Examples
    --------
    >>> ancestry("wide-rack", {"wide-rack": "rack", "rack": ""})
    ('wide-rack', 'rack')
    """
    if entity not in bases:
        raise DataError(f"data/lists/entities.csv: no row of {entity}")
    base = bases[entity]
    return (entity, *(ancestry(base, bases) if base else ()))


def lineage(entity: str) -> tuple[str, ...]:
    """Return an entity and those that it builds on, the most general last; nothing for one that `data/` does not list.

    Raises DataError where one of them names a base that has no row.

    Examples
    --------
    >>> lineage("vllm-neuron-2026-async"), lineage("mine")
    (('vllm-neuron-2026-async', 'vllm-neuron-2026', 'neuron-stack'), ())
    """
    bases = {row.id: row.base for row in load.entities().values()}
    return ancestry(entity, bases) if entity in bases else ()


def inherited(spec_type: type[Spec], chain: Iterable[str], on: str = "") -> dict[str, Any]:
    """Return the arguments of a spec, read from facts about entities that build on each other, the most general first.

    A field that a later entity states replaces the field of the earlier one with its sources, ranges and estimates. A
    mapping that the spec lists in `JOINED` is replaced key by key. `Spec._taken_over` may change what is taken over.
    A number takes the fact of the chip that the entity is used `on` before the general one.
    """
    arguments = [load.assemble(spec_type, entity, on) for entity in chain]
    return reduce(lambda older, newer: _overlaid(spec_type, older, newer), arguments)


def _overlaid(spec_type: type[Spec], older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a spec laid over those of the entity that it builds on."""
    older = spec_type._taken_over(older, newer)
    joined = {name: {**older[name], **newer[name]} for name in spec_type.JOINED if name in older and name in newer}
    stated = {label.partition("[")[0] for label in newer["sources"]}
    replaced = stated - joined.keys()
    merged = {
        name: {label: value for label, value in older[name].items() if label.partition("[")[0] not in replaced}
        | newer[name]
        for name in ("sources", "ranges")
    }
    estimates = {label for label in older["estimates"] if label.partition("[")[0] not in stated} | newer["estimates"]
    return {**older, **newer, **joined, **merged, "estimates": frozenset(estimates)}


@cache
def _spec(spec_type: type[Any], entity: str, on: str = "") -> Any:
    made = spec_type(**inherited(spec_type, reversed(lineage(entity)), on))
    general = _spec(spec_type, entity) if on else made  # type: ignore[arg-type]
    return general if made.sources == general.sources else made


def spec(spec_type: type[S], entity: str, on: str = "") -> S:
    """Return the spec of an entity with what it takes over; each spec is made once.

    With the id of a chip that it is used `on`, numbers that facts state for that chip stand in the place of the general
    ones. Where no fact names the chip, the spec is the general one.

    Examples
    --------
    >>> from trnmodel.catalog.facilities import Facility
    >>> chilled = spec(Facility, "aws-chilled")
    >>> chilled.peak_pue, chilled.sources["water_l_per_j"] == spec(Facility, "aws-air").sources["water_l_per_j"]
    (1.5, True)
    """
    made: S = _spec(spec_type, entity, on) if on else _spec(spec_type, entity)  # type: ignore[arg-type]
    return made


def find(spec_type: type[S], kind: str, name: str | S, argument: str = "") -> S:
    """Return the spec of an entity of a kind by id or name; a spec is returned as it is.

    Raises ValueError with the nearest ids for an unknown name; it names the `argument` (by default the kind).

    Examples
    --------
    >>> from trnmodel.catalog.facilities import Facility
    >>> find(Facility, "facility", "AWS-air").id
    'aws-air'
    """
    if isinstance(name, spec_type):
        return name
    named = _named if type(name) is str else _named.__wrapped__
    return named(spec_type, kind, name, argument)  # type: ignore[arg-type]


@lru_cache(maxsize=512)
def _named(spec_type: type[Any], kind: str, name: str, argument: str) -> Any:
    """Return the spec that a name means, looked up once."""
    return _spec(spec_type, load.resolve(kind, name, argument))  # type: ignore[arg-type]


def facts_of(*quantities: str) -> list[Fact]:
    """Return every fact of some quantities, decided or not, in the order of `data/`.

    Examples
    --------
    >>> sorted({fact.entity for fact in facts_of("annual_pue")})[0]
    'aws-air'
    """
    return [fact for fact in load.facts_rows().values() if fact.quantity in quantities]
