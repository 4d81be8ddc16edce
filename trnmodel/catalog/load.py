"""`data/` -> checked specs.

Every CSV row passes through a msgspec struct, so a wrong cell is an error that names file, row and column. Rows of one
(entity, quantity, qualifier) that print different values must be decided in `data/decisions.yaml`; a decision repeats
the printed values that it sets aside, so correcting a transcription re-opens it.
"""

from __future__ import annotations

import csv
import difflib
import math
from collections import defaultdict
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

import msgspec

from trnmodel.catalog.specs import Chip, Core, Engine, Precision, Spec
from trnmodel.units import parse_number

_PACKAGE = Path(__file__).resolve().parents[1]
DATA = _PACKAGE / "data" if (_PACKAGE / "data").is_dir() else _PACKAGE.parent / "data"

Confidence = Literal["A", "B", "C", "D"]
Status = Literal["chosen", "rejected", "open"]
Row = TypeVar("Row")


class DataError(ValueError):
    """A file in `data/` is wrong; the message names file, row and column."""


class Unit(msgspec.Struct, frozen=True):
    unit_printed: str
    unit_si: str
    factor: float


class Quantity(msgspec.Struct, frozen=True):
    quantity: str
    unit_si: str
    description: str


class Entity(msgspec.Struct, frozen=True):
    id: str
    kind: Literal["chip", "core", "engine", "system", "link", "stack", "runtime", "fabric", "market"]
    name: str
    vendor: str
    core: str
    base: str
    note: str


class Name(msgspec.Struct, frozen=True):
    alias: str
    id: str
    kind: str
    source: str
    locator: str


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    publisher: str
    title: str
    url: str = ""
    published: str = ""
    accessed: str = ""
    licence: str = ""
    sha256: str = ""
    note: str = ""


class Fact(msgspec.Struct, frozen=True):
    id: str
    entity: str
    quantity: str
    qualifier: str
    value_printed: str
    unit_printed: str
    source: str
    locator: str
    confidence: Confidence
    note: str

    @property
    def qualifiers(self) -> tuple[str, ...]:
        """The keys that the row speaks for: "bf16|fp16" is one printed number for two dtypes."""
        return tuple(self.qualifier.split("|"))


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One disagreement, decided or left open, with the printed values that it was decided on."""

    about: str
    reason: str
    date: str
    conflict: int | None = None
    entity: str = ""
    quantity: str = ""
    qualifier: str = ""
    use: str = ""
    reject: dict[str, str] = {}
    open: dict[str, str] = {}


class Dtype(msgspec.Struct, frozen=True):
    dtype: str
    storage_bits: float
    aliases: str
    source: str
    locator: str


class PrecisionRow(msgspec.Struct, frozen=True):
    name: str
    weights: str
    experts: str
    kv: str
    activations: str
    compute: str
    attention: str
    note: str


def read_csv(path: Path, row_type: type[Row]) -> list[Row]:
    """Rows of a CSV file of `data/` as checked structs.

    Raises DataError naming the file, the row and the column.
    """
    rows = []
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream, strict=True)
        expected = [f.name for f in msgspec.structs.fields(row_type)]
        if reader.fieldnames != expected:
            raise DataError(f"{path.name}: columns are {reader.fieldnames}, expected {expected}")
        for number, row in enumerate(reader, start=2):
            if None in row or None in row.values():
                raise DataError(f"{path.name} row {number}: expected {len(expected)} cells")
            try:
                rows.append(msgspec.convert(row, row_type, strict=False))
            except msgspec.ValidationError as error:
                raise DataError(f"{path.name} row {number}: {str(error).replace('$.', 'column ')}") from None
    return rows


def read_yaml(path: Path, item_type: type[Row]) -> list[Row]:
    """Items of a YAML list of `data/` as checked structs; raises DataError naming file and item."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    items = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    result = []
    for number, item in enumerate(items, start=1):
        try:
            result.append(msgspec.convert(item, item_type))
        except msgspec.ValidationError as error:
            raise DataError(f"{path.name} item {number}: {error}") from None
    return result


def _by_id(rows: list, key: str, file: str) -> dict:
    table = {getattr(row, key): row for row in rows}
    if len(table) != len(rows):
        seen = [getattr(row, key) for row in rows]
        raise DataError(f"{file}: {key} occurs twice: {sorted({k for k in seen if seen.count(k) > 1})}")
    return table


@cache
def units() -> dict[str, Unit]:
    """The closed list of printed units."""
    return _by_id(read_csv(DATA / "units.csv", Unit), "unit_printed", "units.csv")


@cache
def quantities() -> dict[str, Quantity]:
    """The closed list of quantities, each with its base unit."""
    return _by_id(read_csv(DATA / "quantities.csv", Quantity), "quantity", "quantities.csv")


@cache
def entities() -> dict[str, Entity]:
    """Everything that a fact can be about."""
    return _by_id(read_csv(DATA / "entities.csv", Entity), "id", "entities.csv")


@cache
def sources() -> dict[str, Source]:
    """Every source, by id."""
    return _by_id(read_yaml(DATA / "sources.yaml", Source), "id", "sources.yaml")


@cache
def names() -> list[Name]:
    """Every name that a source uses for a thing."""
    rows = read_csv(DATA / "names.csv", Name)
    for row in rows:
        if row.id not in entities():
            raise DataError(f"names.csv: alias {row.alias!r} points to unknown id {row.id!r}")
    return rows


@cache
def facts_rows() -> dict[str, Fact]:
    """Every fact, by id, checked against the lists of entities, quantities, units and sources."""
    rows = [row for path in sorted((DATA / "facts").glob("*.csv")) for row in read_csv(path, Fact)]
    for fact in rows:
        for column, allowed in (
            ("entity", entities()),
            ("quantity", quantities()),
            ("unit_printed", units()),
            ("source", sources()),
        ):
            if getattr(fact, column) not in allowed:
                raise DataError(f"fact {fact.id}: column {column}: {getattr(fact, column)!r} is not listed in data/")
        if not fact.locator:
            raise DataError(f"fact {fact.id}: column locator is empty")
        printed, wanted = units()[fact.unit_printed].unit_si, quantities()[fact.quantity].unit_si
        if printed != wanted:
            raise DataError(f"fact {fact.id}: unit {fact.unit_printed!r} is {printed}, {fact.quantity} wants {wanted}")
    return _by_id(rows, "id", "facts/*.csv")


def value_si(fact: Fact) -> tuple[float, float, float]:
    """A fact's value in base units as (value, low, high); NaN for text."""
    factor = units()[fact.unit_printed].factor
    value, low, high = parse_number(fact.value_printed)
    return value * factor, low * factor, high * factor


def _group_key(fact: Fact, qualifier: str) -> str:
    return f"{fact.entity}/{fact.quantity}[{qualifier}]"


@cache
def decisions() -> list[Decision]:
    """Every decision, its guards checked against the facts as they stand."""
    items = read_yaml(DATA / "decisions.yaml", Decision)
    facts = facts_rows()
    for item in items:
        for fact_id, printed in [*item.reject.items(), *item.open.items(), (item.use, None)]:
            if fact_id and fact_id not in facts:
                raise DataError(f"decisions.yaml: {item.about!r} names unknown fact {fact_id!r}")
            if fact_id and printed is not None and facts[fact_id].value_printed != printed:
                raise DataError(
                    f"decisions.yaml: {item.about!r} was decided on {fact_id} = {printed!r}, "
                    f"which now prints {facts[fact_id].value_printed!r}: decide again"
                )
    return items


@cache
def _decided() -> dict[str, tuple[Fact, tuple[float, float] | None]]:
    """The fact in force for each key, with a low/high pair where the decision is open."""
    groups: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts_rows().values():
        for qualifier in fact.qualifiers:
            groups[_group_key(fact, qualifier)].append(fact)
    rulings = {f"{d.entity}/{d.quantity}[{q}]": d for d in decisions() if d.use for q in d.qualifier.split("|")}
    unknown = rulings.keys() - groups.keys()
    if unknown:
        raise DataError(f"decisions.yaml: nothing to decide for {sorted(unknown)}")
    return {key: _in_force(key, group, rulings.get(key)) for key, group in groups.items()}


def _reading(fact: Fact) -> float | str:
    value = value_si(fact)[0]
    return fact.value_printed if math.isnan(value) else float(f"{value:.12g}")


def _in_force(key: str, group: list[Fact], ruling: Decision | None) -> tuple[Fact, tuple[float, float] | None]:
    if ruling is None:
        if len({_reading(fact) for fact in group}) > 1:
            printed = {fact.id: f"{fact.value_printed} {fact.unit_printed}" for fact in group}
            raise DataError(f"{key}: sources disagree and data/decisions.yaml does not decide: {printed}")
        _, low, high = value_si(group[0])
        return group[0], (low, high) if low < high else None
    used = facts_rows()[ruling.use]
    covered = {ruling.use, *ruling.reject, *ruling.open}
    stray = [fact.id for fact in group if fact.id not in covered and _reading(fact) != _reading(used)]
    if stray:
        raise DataError(f"{key}: decision {ruling.about!r} does not speak of {stray}")
    spread = [bound for fact_id in (ruling.use, *ruling.open) for bound in value_si(facts_rows()[fact_id])]
    low, high = min(spread), max(spread)
    return used, (low, high) if ruling.open or low < high else None


def _statuses() -> dict[str, tuple[Status, str]]:
    """Status and reason of every fact."""
    result: dict[str, tuple[Status, str]] = {}
    for item in decisions():
        reason = f"{item.reason} ({item.date})"
        result.update({fact_id: ("rejected", reason) for fact_id in item.reject})
        if item.use:
            result[item.use] = ("open" if item.open else "chosen", reason)
        result.update({fact_id: ("open", reason) for fact_id in item.open})
    return result


@cache
def _facts_frame():
    import pandas as pd

    statuses = _statuses()
    rows = []
    for fact in facts_rows().values():
        value, low, high = value_si(fact)
        status, reason = statuses.get(fact.id, ("chosen", "no source contradicts it"))
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
    columns = "id entity quantity qualifier value_printed unit_printed value_si unit_si source locator confidence status"
    return pd.DataFrame(rows)[[*columns.split(), "reason", "low_si", "high_si", "note"]]


def facts():
    """Every printed claim in `data/facts` as a DataFrame, one row each, with its verdict.

    Returns
    -------
    facts : pandas.DataFrame
        id, entity, quantity, qualifier, value_printed, unit_printed, value_si, unit_si, source, locator, confidence
        (A vendor specification, B vendor talk or page, C measured or reported by others, D our estimate), status
        (chosen, rejected, open), reason, and the low/high pair of a printed range.

    Examples
    --------
    >>> import trnmodel as tm
    >>> peaks = tm.facts().query("entity == 'trainium1' and quantity == 'peak_flop_per_s' and source == 'trn1-arch'")
    >>> sorted(peaks.value_printed)
    ['210', '420', '52.5']
    """
    return _facts_frame().copy()


def value(entity: str, quantity: str, qualifier: str = "") -> float:
    """The value in force of one fact, in base units.

    Raises ValueError naming the nearest keys where there is none.
    """
    return fact_in_force(entity, quantity, qualifier)[1]


def fact_in_force(entity: str, quantity: str, qualifier: str = "") -> tuple[Fact, float, tuple[float, float]]:
    """The fact in force for a key, its value in base units, and its low/high pair (equal where decided)."""
    key = f"{entity}/{quantity}[{qualifier}]"
    if key not in _decided():
        raise ValueError(f"no fact for {key}; nearest: {nearest(key, _decided())}")
    fact, spread = _decided()[key]
    number = value_si(fact)[0]
    return fact, number, spread or (number, number)


def nearest(name: str, choices) -> list[str]:
    """The choices nearest to a misspelt name, best first, or all of them where none is near."""
    folded = {str(choice).lower(): str(choice) for choice in choices}
    close = difflib.get_close_matches(str(name).lower(), list(folded), n=4, cutoff=0.5)
    return [folded[key] for key in close] or sorted(folded.values())[:40]


def resolve(kind: str, name: str) -> str:
    """The id of an entity by id or by any name that a source uses for it.

    Raises ValueError with the nearest names for an unknown one.
    """
    if not isinstance(name, str):
        raise ValueError(f"{kind}={name!r}: expected an id or a name as text")
    ids = [entity.id for entity in entities().values() if entity.kind == kind]
    table = {row.alias.lower(): row.id for row in names() if row.id in ids} | {entity: entity for entity in ids}
    if name.lower() not in table:
        raise ValueError(f"{kind}={name!r} is unknown; nearest: {', '.join(nearest(name, table))}")
    return table[name.lower()]


def assemble(spec_type: type[Spec], entity: str, **given) -> dict:
    """Keyword arguments of a spec, read from the facts in force about an entity.

    A field takes the quantity of its own name: a mapping field collects the qualifiers, a text field the printed text.
    """
    found: dict[str, dict[str, tuple[Fact, tuple[float, float] | None]]] = defaultdict(dict)
    for key, ruled in _decided().items():
        owner, _, rest = key.partition("/")
        if owner == entity:
            quantity, _, qualifier = rest[:-1].partition("[")
            found[quantity][qualifier] = ruled
    kwargs: dict = {"id": entity, "name": entities()[entity].name, "sources": {}, "ranges": {}, **given}
    estimates = set()
    for spec_field in fields(spec_type):
        rulings = found.get(spec_field.name)
        if rulings is None or spec_field.name in given:
            continue
        kwargs[spec_field.name] = _field_value(spec_field, rulings)
        for qualifier, (fact, spread) in rulings.items():
            label = f"{spec_field.name}[{qualifier}]" if qualifier else spec_field.name
            kwargs["sources"][label] = (fact.id,)
            if spread:
                kwargs["ranges"][label] = spread
            if fact.confidence == "D":
                estimates.add(label)
    kwargs["sources"] = MappingProxyType(kwargs["sources"])
    kwargs["ranges"] = MappingProxyType(kwargs["ranges"])
    return kwargs | {"estimates": frozenset(estimates)}


def _field_value(spec_field, rulings: dict):
    annotation = str(spec_field.type)
    if annotation.startswith("Mapping"):
        return MappingProxyType({key: value_si(fact)[0] for key, (fact, _) in sorted(rulings.items())})
    fact = rulings[""][0]
    if annotation == "str":
        return fact.value_printed
    if annotation.startswith("tuple"):
        return tuple(int(part) for part in fact.value_printed.split())
    number = value_si(fact)[0]
    return int(number) if annotation == "int" else number


@cache
def core(name: str) -> Core:
    """A NeuronCore by id, e.g. "neuroncore-v3"."""
    engines = {part: Engine(**assemble(Engine, f"{name}.{part}")) for part in ("tensor", "vector", "scalar", "gpsimd")}
    return Core(**assemble(Core, resolve("core", name), **engines))


def chip(name: str | Chip) -> Chip:
    """A chip by id or by any name of the table of names; a `Chip` is given back as it is.

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
    >>> tm.chip("trainium2").peak("bf16") / tm.units.TFLOP
    667.0
    >>> tm.chip("trainium2").sources["hbm_bytes_per_s"]
    ('trainium2/hbm_bytes_per_s/ah-trainium2',)
    """
    return name if isinstance(name, Chip) else _chip(resolve("chip", name))


@cache
def _chip(chip_id: str) -> Chip:
    entity = entities()[chip_id]
    built_in = core(entity.core) if entity.core else None
    kwargs = assemble(Chip, chip_id, vendor=entity.vendor, core=built_in)
    return _scaled(chip(entity.base), kwargs) if entity.base else Chip(**kwargs)


def _scaled(base: Chip, kwargs: dict) -> Chip:
    """A roadmap chip: its base scaled by the announced ratios; what nobody announced stays unknown."""
    changed: dict = {}
    ranges, sourced = dict(kwargs["ranges"]), dict(kwargs["sources"])
    for key, (fact, spread) in _decided().items():
        owner, _, rest = key.partition("/ratio_to_base[")
        if owner != kwargs["id"] or not rest:
            continue
        name, _, dtype = rest[:-1].partition(":")
        low, high = spread or (value_si(fact)[0],) * 2
        label = f"{name}[{dtype}]" if dtype else name
        original = getattr(base, name)[dtype] if dtype else getattr(base, name)
        scaled = original * value_si(fact)[0]
        changed[name] = {**changed.get(name, {}), dtype: scaled} if dtype else scaled
        ranges[label], sourced[label] = (original * low, original * high), (fact.id,)
    known = {key: item for key, item in kwargs.items() if key not in ("ranges", "sources", "estimates")}
    return Chip(**known | changed, ranges=ranges, sources=sourced, estimates=frozenset(ranges))


def chips(kind: str = "chip") -> list[str]:
    """Ids of all chips of the catalog."""
    return [entity.id for entity in entities().values() if entity.kind == kind]


@cache
def dtypes() -> dict[str, float]:
    """Bytes of one element in storage, block scales included, for each dtype of the closed list."""
    return {row.dtype: row.storage_bits / 8 for row in read_csv(DATA / "dtypes.csv", Dtype)}


@cache
def _precisions() -> dict[str, Precision]:
    rows = read_csv(DATA / "precisions.csv", PrecisionRow)
    return {r.name: Precision(**{k: v for k, v in msgspec.structs.asdict(r).items() if k != "note"}) for r in rows}


def precision(name: str | Precision) -> Precision:
    """A precision by preset name; a `Precision` is given back as it is.

    Raises ValueError with the nearest presets for an unknown name.

    Examples
    --------
    >>> precision("w4a8").storage_bytes("weights") * 8, precision("w4a8").compute
    (4.25, 'mxfp8')
    """
    if isinstance(name, Precision):
        return name
    if name not in _precisions():
        raise ValueError(f"precision={name!r} is unknown; nearest: {', '.join(nearest(name, _precisions()))}")
    return _precisions()[name]
