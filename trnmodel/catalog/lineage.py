"""Specs that build on others: what an entity takes over from those below it, and what it states itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, reduce
from typing import Any

from trnmodel.catalog import load
from trnmodel.catalog.specs import Spec


def lineage(entity: str) -> tuple[str, ...]:
    """An entity and those that it builds on, the most general last; nothing for one that `data/` does not list.

    DataError where one of them names a base that has no row.

    Examples
    --------
    >>> lineage("vllm-neuron-2026-async"), lineage("mine")
    (('vllm-neuron-2026-async', 'vllm-neuron-2026', 'neuron-stack'), ())
    """
    found = load.entities().get(entity)
    further = lineage(load.entity_row(found.base).id) if found and found.base else ()
    return (entity, *further) if found else ()


def inherited(spec_type: type[Spec], chain: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments of a spec, read from the facts about entities that build on each other, the most general first.

    A field that a later one states replaces the earlier one's whole: value, sources, range and estimate.
    """
    return reduce(overlaid, (load.assemble(spec_type, entity) for entity in chain))


def overlaid(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a spec over those of what it builds on."""
    stated = {label.partition("[")[0] for label in newer["sources"]}
    kept = {
        name: [label for label in older[name] if label.partition("[")[0] not in stated]
        for name in ("sources", "ranges", "estimates")
    }
    merged = {name: {label: older[name][label] for label in kept[name]} | newer[name] for name in ("sources", "ranges")}
    return {**older, **newer, **merged, "estimates": newer["estimates"].union(kept["estimates"])}


@cache
def built(kind: Any, entity: str) -> Any:
    """The spec of an entity with what it takes over; a value of its own has its own range, or none."""
    return kind(**inherited(kind, reversed(lineage(entity))))


def named(kind: Any, name: Any, of: str) -> Any:
    """A spec by the id or name of an entity of a kind; a spec is given back as it is."""
    return name if isinstance(name, kind) else built(kind, load.resolve(of, name))
