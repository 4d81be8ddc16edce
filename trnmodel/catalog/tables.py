"""Files of `data/` -> checked rows: a wrong cell is an error that names file, row and column."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

Confidence = Literal["A", "B", "C", "D"]
Key = tuple[str, str, str]
Row = TypeVar("Row", bound=msgspec.Struct)


NEEDED = {  # rows without which nothing can be asked of a part
    "chip": ("hbm_bytes", "hbm_bytes_per_s", "peak_flop_per_s"),
    "chip with NeuronCores": ("cores", "lnc_choices", "lnc_default"),
    "core": ("sbuf_bytes", "sbuf_partitions", "dma_engines", "dma_engine_bytes_per_s", "dma_start_s"),
    "tensor": (
        "clock_hz",
        "array_rows",
        "max_stationary_cols",
        "max_moving_cols",
        "min_initiation_cycle",
        "access_overhead_cycle",
        "fp32_cost_ratio",
        "peak_flop_per_s",
    ),
    "vector": ("clock_hz", "elements_per_cycle", "access_overhead_cycle"),
    "scalar": ("clock_hz", "elements_per_cycle", "access_overhead_cycle"),
    "gpsimd": ("clock_hz", "access_overhead_cycle"),
}


class DataError(ValueError):
    """A file in `data/` is wrong; the message names file, row and column."""


class Unit(msgspec.Struct, frozen=True):
    """A printed unit and its factor to the base unit; a fact of unit `text` has no number."""

    unit_printed: str
    unit_si: str
    factor: float


class Quantity(msgspec.Struct, frozen=True):
    """What a fact can state, with its base unit."""

    quantity: str
    unit_si: str
    description: str


class Entity(msgspec.Struct, frozen=True):
    """What a fact can be about; `core` is a chip's NeuronCore, `base` what a chip to come or a stack builds on.

    The base of an instance is the system that it is.
    """

    id: str
    kind: Literal[
        "chip",
        "core",
        "engine",
        "system",
        "link",
        "stack",
        "runtime",
        "fabric",
        "market",
        "instance",
        "power",
        "node",
        "facility",
        "fleet",
        "trainer",
        "prices",
        "owner",
        "warrant",
        "collective",
        "exchange",
        "option",
    ]
    name: str
    vendor: str
    core: str
    base: str
    note: str


class Name(msgspec.Struct, frozen=True):
    """A name that a source uses for an entity."""

    alias: str
    id: str
    kind: Literal["aws", "instance", "codename", "nl", "short", "typed", "vendor"]
    source: str
    locator: str


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a fact was printed; `sha256` is that of the copy whose lines its locators count."""

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
    """One printed claim about one quantity of one entity."""

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
        """The qualifiers that the row speaks for: "bf16|fp16" is one printed number for two dtypes."""
        return tuple(self.qualifier.split("|"))

    @property
    def keys(self) -> list[Key]:
        """The keys that the row speaks for."""
        return [(self.entity, self.quantity, qualifier) for qualifier in self.qualifiers]


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One disagreement, decided or left open, with the printed values that it was decided on.

    `read_as` is a ruling on units: the quantity's printed unit is read as another one, whatever the row prints.
    """

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
    read_as: dict[str, str] = {}

    @property
    def keys(self) -> list[Key]:
        """What is decided; nothing where no two facts compete."""
        return [(self.entity, self.quantity, qualifier) for qualifier in self.qualifier.split("|")] if self.use else []


class Dtype(msgspec.Struct, frozen=True):
    """A number format with its bits in storage, block scales included."""

    dtype: str
    storage_bits: float
    aliases: str
    source: str
    locator: str


class PrecisionRow(msgspec.Struct, frozen=True):
    """A preset of storage and compute dtypes."""

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
    with path.open(newline="", encoding="utf-8") as stream:
        lines = [line for line in csv.reader(stream, strict=True) if line]
    expected = [f.name for f in msgspec.structs.fields(row_type)]
    header = lines[0] if lines else None
    if header != expected:
        raise DataError(f"{path.name} row 1: columns are {header}, expected {expected}")
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(expected):
            raise DataError(f"{path.name} row {number}: expected {len(expected)} cells")
    rows = [dict(zip(expected, line, strict=True)) for line in lines[1:]]
    try:
        return msgspec.convert(rows, list[row_type], strict=False)  # type: ignore[valid-type]
    except msgspec.ValidationError:
        return [_row(row, row_type, f"{path.name} row {number}") for number, row in enumerate(rows, start=2)]


def _row(row: dict[str, str], row_type: type[Row], place: str) -> Row:
    """Return a row as a checked struct; raises DataError naming its place and the column."""
    try:
        return msgspec.convert(row, row_type, strict=False)
    except msgspec.ValidationError as error:
        raise DataError(f"{place}: {str(error).replace('$.', 'column ')}") from None


def read_yaml(path: Path, item_type: type[Row]) -> list[Row]:
    """Items of a YAML list of `data/` as checked structs; raises DataError naming file and item."""
    from trnmodel.catalog import plain_yaml

    try:
        items = plain_yaml.read(path.read_text(encoding="utf-8"), trusted=True)
    except plain_yaml.YamlError as error:
        raise DataError(f"{path.name}: {error}") from None
    result = []
    for number, item in enumerate(items, start=1):
        try:
            result.append(msgspec.convert(item, item_type))
        except msgspec.ValidationError as error:
            raise DataError(f"{path.name} item {number}: {str(error).replace('$.', 'field ')}") from None
    return result


def by_id(rows: list, column: str, file: str) -> dict:
    """Rows by their id; raises DataError where two share one."""
    table = {getattr(row, column): row for row in rows}
    if len(table) < len(rows):
        twice = sorted(key for key, count in Counter(getattr(row, column) for row in rows).items() if count > 1)
        raise DataError(f"{file}: column {column}: {twice} occurs twice")
    return table


def check_listed(row: Any, place: str, lists: dict[str, Any]) -> None:
    """Raise DataError naming place and column where a cell of a row is not in the closed list of its column."""
    for column, allowed in lists.items():
        if getattr(row, column) not in allowed:
            raise DataError(f"{place}: column {column}: {getattr(row, column)!r} is not listed in data/")


def with_needed(kwargs: dict, part: str) -> dict:
    """Return the keyword arguments of a spec; DataError where a row is missing that its kind of part needs."""
    absent = [name for name in NEEDED[part] if name not in kwargs]
    if absent:
        raise DataError(f"data/facts/*.csv: no row of {kwargs['id']}, {absent[0]}, which a {part} needs")
    return kwargs
