"""`data/` -> checked specs.

Rows of one (entity, quantity, qualifier) that print different values must be decided in `data/decisions.yaml`; a
decision repeats the printed values that it sets aside, so correcting a transcription re-opens it.
"""

from __future__ import annotations

import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from trnmodel.arguments import SHOWN, instance, nearest, refuse, text
from trnmodel.catalog import rulings
from trnmodel.catalog.names import index
from trnmodel.catalog.names import resolve as resolve_in
from trnmodel.catalog.rulings import Ruled, label
from trnmodel.catalog.specs import Chip, Core, Engine, Precision, Spec
from trnmodel.catalog.tables import (
    DataError,
    Decision,
    Dtype,
    Entity,
    Fact,
    Key,
    Name,
    PrecisionRow,
    Quantity,
    Source,
    Unit,
    by_id,
    check_listed,
    read_csv,
    read_yaml,
    with_needed,
)
from trnmodel.declared import CHIP, declare
from trnmodel.quantities import DATA as DATA
from trnmodel.units import parse_number

if TYPE_CHECKING:
    import pandas as pd


@cache
def units() -> dict[str, Unit]:
    """Return the closed list of printed units."""
    return by_id(read_csv(DATA / "lists" / "units.csv", Unit), "unit_printed", "units.csv")


@cache
def quantities() -> dict[str, Quantity]:
    """Return the closed list of quantities, each with its base unit."""
    return by_id(read_csv(DATA / "lists" / "quantities.csv", Quantity), "quantity", "quantities.csv")


@cache
def entities() -> dict[str, Entity]:
    """Everything that a fact can be about."""
    return by_id(read_csv(DATA / "lists" / "entities.csv", Entity), "id", "entities.csv")


@cache
def sources() -> dict[str, Source]:
    """Every source, by id."""
    return by_id(read_yaml(DATA / "sources.yaml", Source), "id", "sources.yaml")


@cache
def names() -> list[Name]:
    """Every name that a source uses for a thing."""
    rows = read_csv(DATA / "lists" / "names.csv", Name)
    for number, row in enumerate(rows, start=2):
        check_listed(row, f"names.csv row {number}", {"id": entities(), "source": sources()})
    return rows


def names_table() -> pd.DataFrame:
    """Every name that the sources use for a chip, a system or a collective, and what it stands for here.

    Returns
    -------
    names : pandas.DataFrame
        Columns alias, id, kind (aws, instance, codename, nl, short, vendor; typed: as people type it), source, locator.

    Examples
    --------
    >>> names = names_table()
    >>> names[names.kind == "codename"].set_index("alias").id["Teton3 MAX"]
    'trn3-nl72x2-pcie160'
    """
    import pandas as pd

    return pd.DataFrame([msgspec.structs.asdict(row) for row in names()])


_INSTEAD: dict[Key, Ruled | None] = {}  # facts in place of those in force, see `with_facts`


def forget(*packages: str) -> None:
    """Empty every cache of some packages, as a spec in one cache and the same spec read anew are two objects.

    Examples
    --------
    >>> chip("trainium2") is chip("trainium2")
    True
    >>> before = chip("trainium2")
    >>> forget("trnmodel")
    >>> chip("trainium2") is before, chip("trainium2") == before
    (False, True)
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            for item in vars(module).values():
                getattr(item, "cache_clear", lambda: None)()


@contextmanager
def with_facts(instead: Mapping[Key, Ruled | None]) -> Iterator[None]:
    """Let other facts be in force until the context ends: by entity, quantity and qualifier; None is no fact at all.

    All that was read from `data/` is forgotten before and after, so that this takes as long as a new process, and no
    other thread may ask anything meanwhile.

    Examples
    --------
    >>> key = ("trainium2", "hbm_bytes_per_s", "")
    >>> fact, spread = in_force()[key]
    >>> with with_facts({key: Ruled(msgspec.structs.replace(fact, value_printed="2", unit_printed="TB/s"), None)}):
    ...     slower = chip("trainium2").hbm_bytes_per_s
    >>> slower, chip("trainium2").hbm_bytes_per_s
    (2000000000000.0, 2900000000000.0)
    """
    former = dict(_INSTEAD)
    _INSTEAD.update(instead)
    forget("trnmodel")
    try:
        yield
    finally:
        _INSTEAD.clear()
        _INSTEAD.update(former)
        forget("trnmodel")


@cache
def facts_rows() -> dict[str, Fact]:
    """Every fact, by id, with those that stand in for others."""
    rows = dict(_printed_rows())
    for key, ruled in _INSTEAD.items():
        now = _ruled().get(key)
        if now:
            rows.pop(now.fact.id, None)
        if ruled:
            rows[ruled.fact.id] = ruled.fact
    return rows


@cache
def _printed_rows() -> dict[str, Fact]:
    """Every fact, by id, checked against the lists of entities, quantities, units and sources."""
    lists = {"entity": entities(), "quantity": quantities(), "unit_printed": units(), "source": sources()}
    rows = []
    for path in sorted((DATA / "facts").glob("*.csv")):
        for number, fact in enumerate(read_csv(path, Fact), start=2):
            place = f"{path.name} row {number} ({fact.id})"
            check_listed(fact, place, lists)
            if not fact.locator:
                raise DataError(f"{place}: column locator is empty")
            printed, wanted = units()[fact.unit_printed].unit_si, quantities()[fact.quantity].unit_si
            if printed != wanted:
                raise DataError(f"{place}: column unit_printed: {fact.unit_printed!r} is in {printed}, not in {wanted}")
            if wanted != "text" and math.isnan(value_si(fact)[0]):
                raise DataError(f"{place}: column value_printed: {fact.value_printed!r} is no number or range")
            rows.append(fact)
    return by_id(rows, "id", "facts/*.csv")


def fact_sources(*specs: Spec) -> set[str]:
    """Ids of the sources behind fields of specs."""
    return {facts_rows()[fact_id].source for spec in specs for ids in spec.sources.values() for fact_id in ids}


@cache
def _decision_rows() -> list[Decision]:
    return read_yaml(DATA / "decisions.yaml", Decision)


@cache
def units_read_as() -> dict[tuple[str, str], Unit]:
    """Return the unit that a decision reads for a quantity and its printed unit, where the printed one is a label."""
    items = [item for item in _decision_rows() if item.read_as]
    for item in items:
        for name in (*item.read_as, *item.read_as.values()):
            if item.quantity not in quantities() or name not in units():
                raise DataError(f"decisions.yaml ({item.about}): no quantity {item.quantity!r} or no unit {name!r}")
    return {(item.quantity, old): units()[new] for item in items for old, new in item.read_as.items()}


def value_si(fact: Fact) -> tuple[float, float, float]:
    """Return a fact's value in base units as (value, low, high); NaN for text."""
    unit = units_read_as().get((fact.quantity, fact.unit_printed)) or units()[fact.unit_printed]
    value, low, high = (math.nan,) * 3 if unit.unit_si == "text" else _number(fact.value_printed)
    return value * unit.factor, low * unit.factor, high * unit.factor


_number = lru_cache(maxsize=2**12)(parse_number)  # which checks and rulings read again


@cache
def decisions() -> list[Decision]:
    """Every decision, its guards checked against the facts as they stand."""
    items = _decision_rows()
    rulings.check(items, _printed_rows())
    return items


@cache
def _ruled() -> dict[Key, Ruled]:
    """Return the fact that the decisions put in force for each key."""
    return rulings.decide(_printed_rows(), decisions(), value_si)


@cache
def _decided() -> dict[Key, Ruled]:
    """Return the fact in force for each key, with those that stand in for others."""
    every = _ruled() | _INSTEAD
    return {key: ruled for key, ruled in every.items() if ruled is not None}


def in_force() -> Mapping[Key, Ruled]:
    """Return the fact in force for each entity, quantity and qualifier, and its low/high pair where it is open.

    Examples
    --------
    >>> in_force()["trainium2", "hbm_bytes_per_s", ""].fact.value_printed
    '2.9'
    """
    return MappingProxyType(_decided())


def _of(entity: str) -> dict[str, dict[str, Ruled]]:
    """Return the facts in force about an entity, by quantity and qualifier."""
    return _by_entity().get(entity, {})


@cache
def _by_entity() -> dict[str, dict[str, dict[str, Ruled]]]:
    """Return the facts in force by entity, quantity and qualifier."""
    about: dict[str, dict[str, dict[str, Ruled]]] = defaultdict(lambda: defaultdict(dict))
    for (owner, quantity, qualifier), ruled in _decided().items():
        about[owner][quantity][qualifier] = ruled
    return {owner: dict(quantities) for owner, quantities in about.items()}


@cache
def _facts_frame() -> pd.DataFrame:
    import pandas as pd

    _decided()
    statuses = rulings.statuses(facts_rows(), decisions())
    rows = []
    for fact in facts_rows().values():
        value, low, high = value_si(fact)
        status, reason = statuses[fact.id]
        rows.append(
            {
                **msgspec.structs.asdict(fact),
                "value_si": value,
                "low_si": low,
                "high_si": high,
                "unit_si": units()[fact.unit_printed].unit_si,
                "status": status,
                "reason": reason,
            }
        )
    columns = (
        "id entity quantity qualifier value_printed unit_printed value_si unit_si source locator confidence status"
    )
    return pd.DataFrame(rows)[[*columns.split(), "reason", "low_si", "high_si", "note"]]


def facts() -> pd.DataFrame:
    """Every printed claim in `data/facts` as a DataFrame, one row each, with its verdict.

    Returns
    -------
    facts : pandas.DataFrame
        Columns id, entity, quantity, qualifier, value_printed, unit_printed, value_si, unit_si, source, locator,
        confidence
        (A vendor specification, B vendor talk or page, C measured or reported by others, D our estimate), status
        (chosen, rejected, open), reason, and the low/high pair of a printed range.

    Examples
    --------
    >>> import trnmodel as tm
    >>> peaks = tm.facts().query("entity == 'trainium1' and quantity == 'peak_flop_per_s' and source == 'trn1-arch'")
    >>> sorted(peaks.value_printed)
    ['210', '52.5']
    """
    return _facts_frame().copy()


def value(entity: str, quantity: str, qualifier: str = "") -> float:
    """Return the value in force of one fact, in base units.

    Raises ValueError naming the nearest keys where there is none.

    Examples
    --------
    >>> value("neuroncore-v3.vector", "clock_hz")
    960000000.0
    """
    return fact_in_force(entity, quantity, qualifier)[1]


def fact_in_force(entity: str, quantity: str, qualifier: str = "") -> tuple[Fact, float, tuple[float, float]]:
    """Return the fact in force for a key, its value in base units, and its low/high pair (equal where decided)."""
    key = (entity, quantity, qualifier)
    if not (isinstance(entity, str) and isinstance(quantity, str) and isinstance(qualifier, str)):
        for name, part in zip(("entity", "quantity", "qualifier"), key, strict=True):
            instance(name, part, str, "text")
    if key not in _decided():
        wanted = label((entity[:SHOWN], quantity[:SHOWN], qualifier[:SHOWN]))
        raise ValueError(f"no fact for {wanted}; nearest: {nearest(wanted, map(label, _decided()))}")
    fact, spread = _decided()[key]
    number = value_si(fact)[0]
    return fact, number, spread or (number, number)


def stated(entity: str, quantity: str) -> bool:
    """Whether a fact in force states a quantity of an entity, under any qualifier."""
    return quantity in _of(entity)


def resolve(kind: str, name: str, argument: str = "") -> str:
    """Return the id of an entity by id, by its own name, or by any name that a source uses for it.

    Case and separators do not count. Raises ValueError with the two nearest ids for an unknown name, naming the
    `argument` (by default the kind).

    Examples
    --------
    >>> resolve("system", "trn2"), resolve("chip", "trn2"), resolve("system", "Trn3 NL32x2")
    ('trn2.48xlarge', 'trainium2', 'trn3-nl32x2-pcie160')
    """
    return resolve_in(argument or kind, name, ids_by_name(text("kind", kind)))


@cache
def ids_by_name(kind: str) -> dict[str, str]:
    """Return the ids of one kind of entity by every folded name: their own, and those that sources use."""
    ids = {entity.id: entity.name for entity in entities().values() if entity.kind == kind}
    if not ids:
        refuse("kind", kind, f"allowed are {', '.join(sorted({entity.kind for entity in entities().values()}))}")
    named = [(row.alias, row.id) for row in names() if row.id in ids]
    own = [(name, one) for one, entity_name in ids.items() for name in (one, entity_name)]
    return index(own + named, f"names.csv, {kind}")


def assemble(spec_type: type[Spec], entity: str, on: str = "", /, **parts: Any) -> dict:
    """Keyword arguments of a spec, read from the facts in force about an entity.

    A field takes the quantity of its own name: a mapping collects the qualifiers, text is the printed text, a tuple the
    whole numbers printed under any qualifier, a set the printed words, and a number the fact without a qualifier, or
    the one whose qualifier is the chip that the entity is used `on`, where there is one.
    """
    kwargs: dict = {"id": entity, "name": entity_row(entity).name, **parts}
    used: dict[str, Ruled] = {}
    about = _of(entity)
    for name, kind in _kinds(spec_type).items() if about else ():  # type: ignore[arg-type]
        stated = about.get(name, {})
        if stated and kind not in ("Mapping", "tuple"):
            place = on if on in stated else ""
            stated = {"": stated[place]} if place in stated else {}
        if stated and name not in parts:
            kwargs[name] = _field_value(kind, stated)
            used.update({f"{name}[{q}]" if q else name: ruled for q, ruled in stated.items()})
    return kwargs | {
        "sources": MappingProxyType({name: (ruled.fact.id,) for name, ruled in used.items()}),
        "ranges": MappingProxyType({name: ruled.spread for name, ruled in used.items() if ruled.spread}),
        "estimates": frozenset(name for name, ruled in used.items() if ruled.fact.confidence == "D"),
    }


@cache
def _kinds(spec_type: type[Spec]) -> dict[str, str]:
    """Return the kind of each field of a spec: "float", "Mapping", ..."""
    return {one.name: str(one.type).partition("[")[0] for one in fields(spec_type)}


def entity_row(entity: str) -> Entity:
    """Return an entity that a cell of `data/` names; DataError where it has no row."""
    if entity not in entities():
        raise DataError(f"data/lists/entities.csv: no row of {entity}")
    return entities()[entity]


def borrowed(kwargs: dict, owners: Mapping[str, tuple[str, str]]) -> dict:
    """Keyword arguments of a spec with fields that are facts of other entities: field -> (entity, quantity)."""
    values, sourced, ranges = {}, dict(kwargs["sources"]), dict(kwargs["ranges"])
    for name, (owner, quantity) in owners.items():
        if owner and name not in kwargs:
            stated = _of(owner).get(quantity, {})
            if not stated:
                fact_in_force(owner, quantity)  # says what there is
            values[name] = _field_value("float" if "" in stated else "Mapping", stated)
            for qualifier, ruled in stated.items():
                label_ = f"{name}[{qualifier}]" if qualifier else name
                sourced[label_] = (ruled.fact.id,)
                if ruled.spread:
                    ranges[label_] = ruled.spread
    return kwargs | values | {"sources": MappingProxyType(sourced), "ranges": MappingProxyType(ranges)}


def _field_value(kind: str, stated: dict[str, Ruled]) -> Any:
    if kind == "Mapping":
        return MappingProxyType({key: _number_or_text(ruled.fact) for key, ruled in sorted(stated.items())})
    if kind == "tuple":
        printed = " ".join(ruled.fact.value_printed for _, ruled in sorted(stated.items()))
        return tuple(int(number) for number in re.findall(r"\d+", printed))
    fact = stated[""].fact
    if kind == "frozenset":
        return frozenset(fact.value_printed.split())
    number = {"int": int, "float": float}.get(kind)
    return number(value_si(fact)[0]) if number else fact.value_printed


def _number_or_text(fact: Fact) -> float | tuple[str, ...]:
    return tuple(fact.value_printed.split()) if units()[fact.unit_printed].unit_si == "text" else value_si(fact)[0]


@cache
def _core(entity: str) -> Core:
    engines = {
        part: Engine(**with_needed(assemble(Engine, f"{entity}.{part}"), part))
        for part in ("tensor", "vector", "scalar", "gpsimd")
    }
    kwargs = with_needed(assemble(Core, entity, **engines), "core")
    return Core(**borrowed(kwargs, {"dma_linear_bytes": ("neuron-dma", "dma_linear_bytes")}))


@declare(name=CHIP)
def chip(name: str | Chip) -> Chip:
    """Return a chip by id or by any name of the table of names; a `Chip` is returned as it is.

    Parameters
    ----------
    name : str or Chip
        "trainium1", "Trn2", "h100", ... [-]

    Returns
    -------
    chip : Chip
        Frozen spec in base units, with the facts behind each field in `.sources`.

    Raises
    ------
    ValueError
        Unknown name; the message lists the nearest.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tm.chip("Trn2").peak("bf16") / tm.units.TFLOP
    667.0
    >>> tm.chip("trainium2").sources["hbm_bytes_per_s"]
    ('trainium2/hbm_bytes_per_s/ah-trainium2',)
    """
    return name if isinstance(name, Chip) else _chip(resolve("chip", name))


@cache
def _chip(chip_id: str) -> Chip:
    entity = entities()[chip_id]
    built_in = _core(entity_row(entity.core).id) if entity.core else None
    kwargs = assemble(Chip, chip_id, vendor=entity.vendor, catalog_id=chip_id, core=built_in)
    if built_in:
        owners = {"neuron-stack": "hop_s", "neuronlink-v3": "algorithm_max_bytes"}
        owners["neuron-runtime"] = "hbm_accesses_per_pair"
        kwargs = borrowed(kwargs, {name: (owner, name) for owner, name in owners.items()})
    if entity.base:
        kwargs = _scaled(chip(entity_row(entity.base).id), kwargs)
    if built_in:
        with_needed(kwargs, "chip with NeuronCores")
    return Chip(**with_needed(kwargs, "chip"))


def _scaled(base: Chip, kwargs: dict) -> dict:
    """Return the arguments of a roadmap chip: figures of its base times the announced ratios; others are unknown."""
    known = {name: getattr(base, name) for name in ("cores", "lnc_choices", "lnc_announced", "lnc_default")}
    known |= {**kwargs, "ratios_to": base.id}
    ranges, sourced = dict(kwargs["ranges"]), dict(kwargs["sources"])
    for qualifier, (fact, spread) in _of(kwargs["id"]).get("ratio_to_base", {}).items():
        name, _, dtype = qualifier.partition(":")
        field_name = f"{name}[{dtype}]" if dtype else name
        ratio = value_si(fact)[0]
        ratio_low, ratio_high = spread or (ratio, ratio)
        original = getattr(base, name)[dtype] if dtype else getattr(base, name)
        low, high = base.range(field_name)
        known[name] = {**known.get(name, {}), dtype: original * ratio} if dtype else original * ratio
        ranges[field_name] = low * ratio_low, high * ratio_high
        sourced[field_name] = (fact.id, *base.sources[field_name])
    return known | {"ranges": ranges, "sources": sourced, "estimates": frozenset(sourced)}


@cache
def chips() -> tuple[str, ...]:
    """Ids of all chips of the catalog."""
    return tuple(entity.id for entity in entities().values() if entity.kind == "chip")


@cache
def dtypes() -> dict[str, float]:
    """Bytes of one element in storage, block scales included, for each dtype of the closed list."""
    return {row.dtype: row.storage_bits / 8 for row in read_csv(DATA / "lists" / "dtypes.csv", Dtype)}


@cache
def dtype_aliases() -> dict[str, str]:
    """Other spellings of the dtypes, e.g. "bfloat16"."""
    return {alias: row.dtype for row in read_csv(DATA / "lists" / "dtypes.csv", Dtype) for alias in row.aliases.split()}


@cache
def precisions() -> dict[str, Precision]:
    """Every preset by its name."""
    rows = read_csv(DATA / "lists" / "precisions.csv", PrecisionRow)
    return {r.name: Precision(**{k: v for k, v in msgspec.structs.asdict(r).items() if k != "note"}) for r in rows}


def precision(name: str | Precision) -> Precision:
    """Return a precision by preset name; a `Precision` is returned as it is.

    Raises ValueError with the two nearest presets for an unknown name.

    Examples
    --------
    >>> precision("BF16").name
    'bf16'
    >>> precision("w4a8").storage_bytes("weights") * 8, precision("w4a8").compute
    (4.25, 'mxfp8')
    """
    if isinstance(name, Precision):
        return name
    return precisions()[resolve_in("precision", instance("precision", name, str, "a preset or a Precision"), presets())]


@cache
def presets() -> dict[str, str]:
    """Names of the presets by their folded names."""
    return index(zip(precisions(), precisions(), strict=True), "precisions.csv")
