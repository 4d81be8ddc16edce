"""Pieces of a long table: the answers of calls in as few bytes as they have, joined as a frame or written to a file."""

from __future__ import annotations

import json
import math
import os
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

ROWS = 2**16  # of a group of rows in a file, and of a piece of a grid that is asked at once


class Column(NamedTuple):
    """A column of a piece: values or places of texts, which are spread over a shape and then read row by row."""

    cell: NDArray | Texts
    shape: tuple[int, ...]

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


def table_of(pieces: list[Piece], ordered: Collection[str] = ()) -> pd.DataFrame:
    """Return pieces below each other as one table; those of a list are emptied, since they may be large.

    Text is categorical. Its categories are in alphabetical order, but for the `ordered` columns, which have theirs.
    """
    import pandas as pd

    lengths = [piece.rows for piece in pieces]
    names = dict.fromkeys(name for piece in pieces for name in piece.columns)
    columns = {}
    for name in names:
        parts = [piece.columns.pop(name, None) for piece in pieces]
        columns[name] = _joined(parts, lengths, name in ordered)
    return pd.DataFrame(columns, index=range(sum(lengths)), copy=False)


def _joined(parts: list[Column | None], lengths: list[int], ordered: bool) -> Any:
    """Return the parts of a column below each other."""
    import pandas as pd

    cells = [part and part.cell for part in parts]
    if all(isinstance(cell, Texts) for cell in cells):
        return _categorical(parts, lengths, ordered)
    plain = [part is not None and not isinstance(part.cell, Texts) and part.cell.dtype.kind != "O" for part in parts]
    if all(plain):
        spread = [part.spread(rows) for part, rows in zip(parts, lengths, strict=True) if part]
        kinds = {"b" if one.dtype.kind == "b" else "" for one in spread}
        if len(kinds) == 1:
            return np.concatenate(spread)
    each = [
        np.full(rows, np.nan) if part is None else part.values(rows) for part, rows in zip(parts, lengths, strict=True)
    ]
    return pd.concat([pd.Series(np.array(one)) for one in each], ignore_index=True)


def _categorical(parts: list[Any], lengths: list[int], ordered: bool) -> pd.Categorical:
    """Return the parts of a column of text as categories, of which each occurs."""
    places = [part.spread(rows) for part, rows in zip(parts, lengths, strict=True)]
    used = [_used(part.cell, one) for part, one in zip(parts, places, strict=True)]
    texts = dict.fromkeys(text for some in used for text in some)
    listed = list(texts) if ordered and all(len(some) == 1 for some in used) else sorted(texts)
    codes = [_codes(part.cell, one, listed) for part, one in zip(parts, places, strict=True)]
    return _of_codes(np.concatenate(codes), listed)


def _codes(cell: Texts, places: NDArray, listed: Sequence[str]) -> NDArray:
    """Return the places of texts in another list; -1 for those that no row has."""
    place_of = {text: i for i, text in enumerate(listed)}
    kind = np.int8 if len(listed) < 2**7 else np.int32
    return np.array([place_of.get(text, -1) for text in cell.texts], kind)[places]


def _of_codes(codes: NDArray, listed: Sequence[str]) -> pd.Categorical:
    """Return places in a list of texts as categories."""
    import pandas as pd

    return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(list(listed)), validate=False)


def _used(cell: Texts, places: NDArray) -> list[str]:
    """Return the texts that some row has."""
    few = places[:1] if places.strides == (0,) else places  # one value that stands for all rows
    return [cell.texts[i] for i in np.flatnonzero(np.bincount(few))]


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
    if target.is_dir() or not target.parent.is_dir():
        refuse("to", str(path), allowed)
    if find_spec("fastparquet") is None:
        refuse(
            "to", str(path), 'allowed with the extra "parquet", which is not installed: pip install "trnmodel[parquet]"'
        )
    return target


def write(pieces: Iterable[Piece], target: Path) -> Path:
    """Write pieces to a Parquet file, a group of rows at a time; the file is there when all of it is written."""
    import fastparquet

    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
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
        self.listed: dict[str, dict[str, None]] = {}

    def frames(self, pieces: Iterable[Piece]) -> Iterator[pd.DataFrame]:
        """Yield the tables of groups of rows, each of which has the same columns."""
        some, rows = list[Piece](), 0
        for piece in pieces:
            some.append(piece)
            rows += piece.rows
            if rows >= ROWS:
                yield self.frame(some)
                some, rows = [], 0
        if some:
            yield self.frame(some)

    def frame(self, pieces: list[Piece]) -> pd.DataFrame:
        """Return pieces as the table of a group."""
        import pandas as pd

        columns = {str(name): self.column(str(name), pieces, name) for name in pieces[0].columns}
        if self.kinds.keys() != columns.keys() or any(
            piece.columns.keys() != pieces[0].columns.keys() for piece in pieces
        ):
            refuse("to", str(self.target), "allowed for a function whose answers all have the same columns")
        return pd.DataFrame(columns, copy=False)

    def column(self, name: str, pieces: list[Piece], key: Any) -> Any:
        """Return a column of a group: numbers of the kind that the first group has, or texts."""
        parts = [piece.columns[key] for piece in pieces if key in piece.columns]
        cells = [_as_text(part.cell) for part in parts]
        kinds = {"text" if isinstance(cell, Texts) else cell.dtype.name for cell in cells}
        kind = self.kinds.setdefault(name, min(kinds))
        if kinds != {kind}:
            found = " and ".join(sorted({kind, *kinds}))
            refuse("to", str(self.target), f"allowed is one kind of values in a column; {shown(name)} has {found}")
        each = [
            Column(cell, part.shape).spread(piece.rows) for cell, part, piece in zip(cells, parts, pieces, strict=True)
        ]
        if kind != "text":
            return np.concatenate(each)
        listed = self.listed.setdefault(name, {})
        for cell, places in zip(cells, each, strict=True):
            listed.update(dict.fromkeys(_used(cell, places)))
        codes = [_codes(cell, places, list(listed)) for cell, places in zip(cells, each, strict=True)]
        return _of_codes(np.concatenate(codes), list(listed))

    def count(self, path: str, described: str) -> None:
        """Write into a file how many texts each column has in the end, which its first group does not know."""
        from fastparquet.writer import update_file_custom_metadata

        about = json.loads(described)
        for column in about["columns"]:
            if column["name"] in self.listed:
                column["metadata"]["num_categories"] = len(self.listed[column["name"]])
        update_file_custom_metadata(path, {"pandas": json.dumps(about)})


def _as_text(cell: NDArray | Texts) -> NDArray | Texts:
    """Return objects as the text that they print."""
    if isinstance(cell, Texts) or cell.dtype.kind != "O":
        return cell
    return _coded(np.vectorize(str, otypes=[object])(cell))
