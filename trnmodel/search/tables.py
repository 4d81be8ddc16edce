"""Pieces of a long table: the answers of calls in as few bytes as they have, joined as a frame or written to a file."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import refuse, shown
from trnmodel.result import Result, Texts, alike, columns_of

if TYPE_CHECKING:
    import pandas as pd

FEW = 2**7  # texts of a column up to which a byte says which one a row has
HELD = 3  # references to an array that only its column has: the column's, a name's, and that of the count
ROWS = 2**16  # of a group of rows in a file, and of a piece of a grid that is asked at once


class Column(NamedTuple):
    """A column of a piece: values or places of texts, which are spread over a shape and then read row by row."""

    cell: NDArray | Texts
    shape: tuple[int, ...]

    @property
    def kind(self) -> str:
        """What it holds: text, numbers, yes or no, or objects."""
        kinds = {"O": "object", "b": "flag"}
        return "text" if isinstance(self.cell, Texts) else kinds.get(self.array.dtype.kind, "number")

    @property
    def length(self) -> int:
        """Rows that it has."""
        return math.prod(self.shape)

    @property
    def array(self) -> NDArray:
        """Its values, or the places of its texts."""
        return self.cell.places if isinstance(self.cell, Texts) else self.cell

    def spread(self, rows: int) -> NDArray:
        """Return the value or the place of each row; one of one row stands for all of them."""
        flat = np.broadcast_to(self.array, self.shape).reshape(-1)
        return np.broadcast_to(flat, rows) if len(flat) == 1 else flat

    def values(self, rows: int) -> NDArray:
        """Return the value or the text of each row."""
        each = self.spread(rows)
        return np.asarray(self.cell.texts, dtype=object)[each] if isinstance(self.cell, Texts) else each


class Piece(NamedTuple):
    """Consecutive rows of a table."""

    rows: int
    columns: dict[str, Column]

    def different(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the different rows of some columns."""
        import pandas as pd

        some = [self.columns[name] for name in names]
        if all(column.array.size == 1 for column in some):
            values = [column._replace(shape=column.array.shape).values(1) for column in some]
        else:
            values = [column.values(self.rows) for column in some]
        return pd.DataFrame(dict(zip(names, values, strict=True))).drop_duplicates()


def piece_of(columns: Mapping[str, Column], points: int) -> Piece:
    """Return the columns of a call for so many points as a piece; refuse columns of other lengths."""
    rows = max([points, *(column.length for column in columns.values())])
    for name, column in columns.items():
        if column.length not in (1, rows):
            raise ValueError(f"function: {column.length} rows of {shown(name)} for {rows} points of the grid")
    return Piece(rows, dict(columns))


def columns_from(answer: Any, shape: tuple[int, ...], bands: bool) -> dict[str, Column]:
    """Return the columns of what a function answers for numbers of a shape; with `bands` those of intervals too."""
    if answer is None:
        refuse("function", answer, "its answer may be numbers, a mapping of them, or a result with .to_frame()")
    if isinstance(answer, Result) and type(answer).to_frame is Result.to_frame:
        cells = columns_of(answer, bands)
        own = np.broadcast_shapes(*(np.shape(x.places if isinstance(x, Texts) else x) for x in cells.values()))
        return {name: Column(_coded(cell), own) for name, cell in cells.items()}
    if hasattr(answer, "to_frame"):
        frame = answer.to_frame(bands=True) if bands else answer.to_frame()
        return {name: Column(_coded(frame[name].to_numpy()), (len(frame),)) for name in frame.columns}
    if bands:
        refuse("bands", bands, "allowed is False for a function whose answer is no result")
    outputs = answer if isinstance(answer, Mapping) else {"value": answer}
    return {name: Column(_coded(_fitting(name, column, shape)), shape) for name, column in outputs.items()}


def _fitting(name: Any, column: Any, shape: tuple[int, ...]) -> NDArray:
    """Return an answer as an array that can be spread over a shape, or refuse it."""
    try:
        array = np.asarray(column)
        np.broadcast_to(array, shape)
    except ValueError:
        found = shown(getattr(column, "shape", column))
        allowed = f"does not fit numbers of the grid in {shape}"
        raise ValueError(f"function: {shown(name)} of its answer, {found}, {allowed}") from None
    return array


def _coded(cell: NDArray | Texts) -> NDArray | Texts:
    """Return text as places in a list of the different ones; anything else as it is."""
    if isinstance(cell, Texts) or cell.dtype.kind not in "OU":
        return cell
    import pandas as pd

    flat = cell.astype(object).ravel()
    if pd.api.types.infer_dtype(flat, skipna=False) not in ("string", "empty"):
        return cell
    places, texts = pd.factorize(flat)
    return Texts(places.astype(np.int32).reshape(cell.shape), tuple(texts))


def labels_of(values: Iterable[Any]) -> dict[int, Column]:
    """Return the column of each of the values of a category, by its place: a text, or whatever the value is."""
    labels = [getattr(value, "id", getattr(value, "name", value)) for value in values]
    if all(isinstance(label, str) for label in labels):
        texts = tuple(dict.fromkeys(labels))
        return {i: Column(Texts(np.asarray(texts.index(label)), texts), ()) for i, label in enumerate(labels)}
    return {i: Column(_object(label), ()) for i, label in enumerate(labels)}


def _object(label: Any) -> NDArray:
    """Return a value as an array of one, even where it is a list."""
    if isinstance(label, bool | np.bool_):
        return np.asarray(label)
    array = np.empty((), dtype=object)
    array[()] = label
    return array


def _alone(column: Column) -> bool:
    """Return whether nothing else holds the numbers of a column, which can then stand in a table as they are."""
    cell = column.cell
    if isinstance(cell, Texts) or cell.dtype.kind == "O":
        return False
    mine = cell.flags.owndata and cell.flags.writeable and cell.flags.c_contiguous
    return bool(mine) and sys.getrefcount(cell) <= HELD


class Cells:
    """A column that is filled piece by piece; text as its place in a list, in the order in which texts come."""

    def __init__(self, column: Column, rows: int, listed: dict[str, int]) -> None:
        self.kind = column.kind
        self.listed = listed
        self.full = column.shape == column.array.shape and column.length == rows and _alone(column)
        if self.full:
            self.array = column.array.reshape(-1)
        else:
            self.array = np.empty(rows, np.int8 if self.kind == "text" else column.array.dtype)

    def make_room(self, rows: int) -> None:
        """Make room for so many rows."""
        if rows > len(self.array):
            more = np.empty(rows, self.array.dtype)
            more[: len(self.array)] = self.array
            self.array = more

    def put(self, column: Column | None, start: int, rows: int) -> None:
        """Fill so many rows with a column of a piece; with what says that there is none where it is None."""
        if column is None:
            return self._leave_out(start, rows)
        cell: Any = column.cell
        if self.full:
            return None
        if column.kind != self.kind:
            self._as_objects(start)
            cell = column.values(rows) if column.kind == "text" else cell
        elif isinstance(cell, Texts):
            places = cell.places if any(cell.places.strides) else cell.places[(0,) * cell.places.ndim]
            ranks = self._ranks(cell.texts, places)
            same = np.array_equal(ranks, np.arange(len(ranks)))
            cell = np.asarray(places if same else ranks[places])
            self._widen(start, ranks.dtype)
        else:
            self._widen(start, cell.dtype)
        room = self.array[start : start + rows]
        if np.size(cell) == 1:
            room[...] = np.reshape(cell, -1)[0] if self.kind != "object" else np.reshape(cell, 1)
        else:
            room.reshape(column.shape)[...] = cell.reshape(column.shape) if cell.size == rows else cell
        return None

    def _ranks(self, texts: tuple[str, ...], places: NDArray) -> NDArray:
        """Return the place in the list of each text that occurs."""
        if len(texts) < FEW:
            used = np.array([np.any(places == i) for i in range(len(texts))])
        else:
            used = np.bincount(np.ravel(places), minlength=len(texts)) > 0
        for text in sorted(text for text, here in zip(texts, used, strict=True) if here):
            self.listed.setdefault(text, len(self.listed))
        ranks = [self.listed.get(text, -1) for text in texts]
        return np.array(ranks, np.int8 if len(self.listed) < FEW else np.int32)

    def _widen(self, filled: int, dtype: np.dtype) -> None:
        """Take values of another size of numbers too."""
        wider = np.promote_types(self.array.dtype, dtype)
        if wider != self.array.dtype:
            more = np.empty(self.array.shape, wider)
            more[:filled] = self.array[:filled]
            self.array = more

    def _as_objects(self, filled: int) -> None:
        """Take values of any kind."""
        if self.kind != "object":
            more = np.empty(self.array.shape, dtype=object)
            texts = np.array([*self.listed, np.nan], dtype=object)
            more[:filled] = texts[self.array[:filled]] if self.kind == "text" else self.array[:filled]
            self.array, self.kind = more, "object"

    def _leave_out(self, start: int, rows: int) -> None:
        """Fill so many rows with what says that there is no value."""
        if self.kind == "number":
            self._widen(start, np.dtype(float))
        elif self.kind == "flag":
            self._as_objects(start)
        self.array[start : start + rows] = -1 if self.kind == "text" else np.nan

    def joined(self, rows: int, in_order: bool | None) -> Any:
        """Return the values of the first rows; texts as categories, in order of the alphabet or of their places."""
        import pandas as pd

        array = self.array if rows == len(self.array) else self.array[:rows].copy()
        if self.kind == "object":
            return pd.Series(array, dtype=object, copy=False)
        if self.kind != "text":
            return array
        texts = list(self.listed)
        if not in_order and texts != sorted(texts):
            rank = np.empty(len(texts) + 1, array.dtype)  # the last one is that of no text
            rank[np.argsort(np.array(texts, dtype=object), kind="stable")], rank[-1] = np.arange(len(texts)), -1
            array, texts = rank[array], sorted(texts)
        return pd.Categorical.from_codes(array, dtype=pd.CategoricalDtype(texts), validate=False)


class Table:
    """A table that grows by pieces; `rows` is how many it is to have, and `listed` the texts that its columns have."""

    def __init__(self, rows: int, listed: dict[str, dict[str, int]] | None = None) -> None:
        self.room, self.rows = rows, 0
        self.columns: dict[Any, Cells] = {}
        self.listed: dict[Any, dict[str, int]] = {} if listed is None else listed

    def add(self, piece: Piece) -> None:
        """Add the rows of a piece."""
        start, rows = self.rows, piece.rows
        if start + rows > self.room:
            self.room = max(start + rows, 2 * self.room if start else 0)
            for cells in self.columns.values():
                cells.make_room(self.room)
        for name, column in piece.columns.items():
            if name not in self.columns:
                self.columns[name] = Cells(column, self.room, self.listed.setdefault(name, {}))
                if start:
                    self.columns[name].put(None, 0, start)
        for name, cells in self.columns.items():
            cells.put(piece.columns.get(name), start, rows)
        self.rows += rows

    def frame(self, in_order: Collection[str] = ()) -> pd.DataFrame:
        """Return the table. Texts are categories, in alphabetical order but for columns whose texts have their own."""
        import pandas as pd

        columns = {name: cells.joined(self.rows, name in in_order) for name, cells in self.columns.items()}
        return pd.DataFrame(columns, index=range(self.rows), copy=False)


class Kinds:
    """Systems of pieces with their kinds of stack, which have to be alike unless they may be `mixed`."""

    def __init__(self, mixed: bool) -> None:
        self.mixed, self.seen = mixed, list[Any]()

    def passed(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield pieces whose systems are on the same kinds of stack; ValueError after the last where they are not."""
        import pandas as pd

        for piece in pieces:
            names = [name for name in piece.columns if str(name).endswith("system") or name == "stack_kind"]
            if len(names) > 1 and not self.mixed:
                self.seen.append(piece.different(names))
            yield piece
        if self.seen:
            alike(pd.concat(self.seen, ignore_index=True))


def checked_path(path: Any) -> Path:
    """Return where a file of rows is to be written, or refuse it."""
    allowed = "allowed is the path of a file that ends in .parquet, in a folder that exists"
    if not isinstance(path, str | Path) or Path(path).suffix != ".parquet":
        refuse("to", path, allowed)
    target = Path(path)
    if os.path.isdir(target) or not os.path.isdir(target.parent):  # noqa: PTH112 - which no odd name makes raise
        refuse("to", str(path), allowed)
    if find_spec("fastparquet") is None:
        refuse(
            "to", str(path), 'allowed with the extra "parquet", which is not installed: pip install "trnmodel[parquet]"'
        )
    try:
        _draft(target).touch()
        _draft(target).unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        refuse("to", str(path), f"the file cannot be written there: {reason}")
    return target


def _draft(target: Path) -> Path:
    """Return the file that grows until all rows are written."""
    return target.with_name(f".{target.name}.{os.getpid()}.draft")


def write(pieces: Iterable[Piece], target: Path) -> Path:
    """Write pieces to a Parquet file, a group of rows at a time; the file is there when all of it is written."""
    import fastparquet

    draft = _draft(target)
    groups = _Groups(target)
    frames = groups.frames(pieces)
    try:
        fastparquet.write(str(draft), next(frames), compression="SNAPPY", write_index=False)
        file = fastparquet.ParquetFile(str(draft))
        file.write_row_groups(frames, compression="SNAPPY")
        groups.count(str(draft), file.key_value_metadata["pandas"])
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


class _Groups:
    """Groups of rows of a file. Texts stay in the place that they have in the first group in which they occur."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.kinds: dict[str, str] = {}
        self.listed: dict[Any, dict[str, int]] = {}

    def frames(self, pieces: Iterable[Piece]) -> Iterator[pd.DataFrame]:
        """Yield the tables of groups of rows, each of which has the same columns."""
        table = Table(ROWS, self.listed)
        for piece in pieces:
            table.add(Piece(piece.rows, {name: _as_text(column) for name, column in piece.columns.items()}))
            if table.rows >= ROWS:
                yield self.checked(table)
                table = Table(ROWS, self.listed)
        if table.rows:
            yield self.checked(table)

    def checked(self, table: Table) -> pd.DataFrame:
        """Return the table of a group, or refuse one whose columns are not those of the first group."""
        frame = table.frame(table.columns)
        frame.columns = frame.columns.map(str)
        kinds = {
            name: cells.kind if cells.kind == "text" else cells.array.dtype.name
            for name, cells in table.columns.items()
        }
        self.kinds = self.kinds or kinds
        for name in self.kinds | kinds:
            found = {of.get(name, "missing") for of in (self.kinds, kinds)}
            if len(found) > 1 or "object" in found:
                allowed = "allowed for a function whose answers have the same columns, each of one kind of values"
                refuse("to", str(self.target), f"{allowed}; {shown(name)} is {' and '.join(sorted(found))}")
        return frame

    def count(self, path: str, described: str) -> None:
        """Write into a file how many texts each column has in the end, which its first group does not know."""
        from fastparquet.writer import update_file_custom_metadata

        about, counts = json.loads(described), {str(name): texts for name, texts in self.listed.items()}
        for column in about["columns"]:
            if self.kinds.get(column["name"]) == "text":
                column["metadata"]["num_categories"] = len(counts[column["name"]])
        update_file_custom_metadata(path, {"pandas": json.dumps(about)})


def _as_text(column: Column) -> Column:
    """Return objects as the text that they print."""
    if column.kind != "object":
        return column
    return column._replace(cell=_coded(np.vectorize(str, otypes=[object])(column.array)))
