"""Text of a file with its lines: JSON values one after another, each object with its place, and lines of a log."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from json import scanner
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog import plain_yaml, untrusted
from trnmodel.evidence.formats.runs import Refusal
from trnmodel.units import MIB

MAX_FILE_BYTES = 64 * MIB
DEEPEST = 64  # levels of a JSON text
MAX_YAML_BYTES = MIB
PLACED_BYTES = 8 * MIB  # of a JSON text whose objects are placed: beyond it a value's figures have the value's line
LONGEST_HEADER = 500_000  # characters of the first line of a CSV file
FILE, JSON_FILE = "file", "JSON"  # what a refusal is of, where no figure is read
BLANK = re.compile(r"[\s\x00]*")


class Located(dict):
    """An object of a JSON text, with the place at which it begins."""

    __slots__ = ("at",)
    at: int


class TwiceError(ValueError):
    """An object of a JSON text has a key twice."""


@dataclass(frozen=True, eq=False)
class Document:
    """The text of a file that somebody else wrote."""

    path: Path
    text: str
    bad_line: int = 0  # first line that is no UTF-8; 0 where all are

    @cached_property
    def ends(self) -> NDArray:
        """Places of the ends of lines."""
        return np.flatnonzero(np.frombuffer(self.text.encode("utf-32-le"), dtype=np.uint32) == ord("\n"))

    def line(self, place: int) -> int:
        """Return the line of a place in the text, from 1 on."""
        return int(np.searchsorted(self.ends, place)) + 1

    def line_of(self, where: Any, key: str) -> int:
        """Return the line on which a key of an object stands, or that of the object where it is not placed."""
        at = getattr(where, "at", 0)
        hit = re.compile(rf'"{re.escape(key)}"\s*:').search(self.text, at)
        return self.line(hit.start() if hit else at)

    @cached_property
    def suffix(self) -> str:
        """How the name of the file ends, without regard to case."""
        return self.path.suffix.lower()

    @cached_property
    def values(self) -> list[Any]:
        """JSON values of the text, and what of it is no JSON as refusals."""
        return list(json_values(self)) if self.is_json else []

    @cached_property
    def objects(self) -> list[Located]:
        """Objects among the values of the text, and those in its lists."""
        several = [one if isinstance(one, list) else [one] for one in self.values]
        return [item for items in several for item in items if isinstance(item, Located)]

    @property
    def is_json(self) -> bool:
        """Whether the text begins as JSON does."""
        return self.text.lstrip()[:1] in ("{", "[")

    @property
    def broken(self) -> list[Refusal]:
        """What of the text is no JSON."""
        return [one for one in self.values if isinstance(one, Refusal)]


def document(path: Path) -> Document:
    """Return the text of a regular file of at most 64 MiB; bytes that are no UTF-8 become replacement characters.

    Raises ValueError naming the path for a file that is missing, too large, or no regular file.
    """
    content = untrusted.content("paths", path, MAX_FILE_BYTES)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"paths={untrusted.printed(path)}: the file is UTF-16; allowed is UTF-8")
    try:
        return Document(path, content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Document(path, content.decode("utf-8-sig", errors="replace"), line)


def csv_header(text: str, delimiter: str = ",") -> list[str]:
    r"""Return the cells of the first line of a text; none where it is no line of CSV.

    Examples
    --------
    >>> csv_header("a,b\n1,2"), csv_header("x" * 10**6)
    (['a', 'b'], [])
    """
    first = text[:LONGEST_HEADER].partition("\n")[0]
    if len(first) >= LONGEST_HEADER:
        return []
    try:
        return next(csv.reader([first], delimiter=delimiter), [])
    except csv.Error:
        return []


def yaml_values(of: Document) -> Document:
    """Return the text of a YAML file as that of a JSON file, whose objects stand on one line.

    A text that is no plain YAML stays as it is.
    """
    if len(of.text) > MAX_YAML_BYTES:
        return of
    try:
        return Document(of.path, json.dumps(plain_yaml.read(of.text), default=str))
    except (plain_yaml.YamlError, ValueError, TypeError):
        return of


def _decoder(text: str) -> json.JSONDecoder:
    """Return a decoder whose objects know where they begin."""
    decoder = json.JSONDecoder(object_pairs_hook=_located)
    if len(text) > PLACED_BYTES:
        return decoder
    parse = decoder.parse_object  # type: ignore[attr-defined]

    def placed(start: tuple[str, int], *others: Any) -> tuple[Located, int]:
        value, end = parse(start, *others)
        value.at = start[1] - 1
        return value, end

    decoder.parse_object = placed  # type: ignore[attr-defined]
    decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder


def _located(pairs: list[tuple[str, Any]]) -> Located:
    value = Located(pairs)
    value.at = 0
    if len(value) != len(pairs):
        seen = set[str]()
        raise TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return value


def json_values(of: Document) -> Iterator[Any]:
    r"""Return the JSON values of a text, one after another, with any blanks between them.

    What is no JSON is a refusal, and reading goes on at the next line that begins with an object.

    Examples
    --------
    >>> text = Document(Path("a.json"), '{"a": 1}\n{"a":\n{"a": 3}')
    >>> [one if isinstance(one, dict) else one.line for one in json_values(text)]
    [{'a': 1}, 2, {'a': 3}]
    """
    if untrusted.depth(of.text.encode("utf-8", errors="replace")) > DEEPEST:
        yield Refusal(1, JSON_FILE, f"nested too deeply: allowed are {DEEPEST} levels")
        return
    decoder = _decoder(of.text)
    place = BLANK.match(of.text).end()  # type: ignore[union-attr]
    while place < len(of.text):
        try:
            value, end = decoder.raw_decode(of.text, place)
        except (ValueError, RecursionError) as error:
            yield Refusal(of.line(place), JSON_FILE, _why(of, error))
            again = re.compile(r"^\{", re.MULTILINE).search(of.text, place + 1)
            end = again.start() if again else len(of.text)
        else:
            if isinstance(value, Located):
                value.at = place
            yield value
        place = BLANK.match(of.text, end).end()  # type: ignore[union-attr]


def _why(of: Document, error: Exception) -> str:
    """Return why a text is no JSON, with the line on which that shows."""
    if isinstance(error, TwiceError):
        return f"the key {str(error)[:100]!r} is given more than once"
    if isinstance(error, json.JSONDecodeError):
        end = "" if of.text.rstrip().endswith(("}", "]")) else "; the text ends early"
        return f"no JSON at line {of.line(error.pos)}: {error.msg}{end}"
    return "no JSON: a number or its nesting is beyond what is read"
