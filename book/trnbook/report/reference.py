"""What the reference of the book says of each public name: where it is listed, what its fields are, who explains it.

The pages are `book/reference/*.rst`. Each lists its names in directives `entries` (`trnbook.report.entries`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import trnmodel as tm
from trnbook.report import chapter
from trnmodel.quantities import Quantity, quantity
from trnmodel.result import Card, Grounded, Judged, Result

BASES = (Card, Result, Grounded, Judged)  # of every result; what they define is described once
LISTED = re.compile(r"^\.\. entries::.*\n(?: {3}:.*\n)*\n((?: {3}\S+\n)+)", re.MULTILINE)


class Row(NamedTuple):
    """A field or property of a class as its table shows it."""

    name: str
    title: str
    unit: str
    default: str
    meaning: str


def public_names() -> list[str]:
    """Return what a user may write after `tm.`, in the order of `trnmodel.__all__`.

    Examples
    --------
    >>> "decode_step" in public_names(), "__version__" in public_names()
    (True, False)
    """
    return [name for name in tm.__all__ if name != "__version__"]


def listed(pages: Path) -> list[str]:
    """Return the names that the pages of a folder list, page by page."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(pages.glob("*.rst")))
    return [name for text in texts for block in LISTED.findall(text) for name in block.split()]


def functions(module: ModuleType) -> list[str]:
    """Return the public functions of a module, which a user calls by the module's name.

    Examples
    --------
    >>> "ridge_point_flop_per_byte" in functions(tm.roofline)
    True
    """
    own = [name for name, item in vars(module).items() if getattr(item, "__module__", "") == module.__name__]
    return [name for name in getattr(module, "__all__", own) if name[0] != "_" and callable(getattr(module, name))]


def callables() -> dict[str, Callable[..., Any]]:
    """Return every public function and class by its name after `tm.`, those of the public modules among them.

    Examples
    --------
    >>> "kernel.matmul" in callables(), "Step" in callables()
    (True, True)
    """
    table: dict[str, Callable[..., Any]] = {}
    for name in public_names():
        item = getattr(tm, name)
        if isinstance(item, ModuleType):
            table |= {f"{name}.{own}": getattr(item, own) for own in functions(item)}
        else:
            table[name] = item
    return table


def methods(kind: type) -> list[str]:
    """Return the public methods of a class without those of every result.

    Examples
    --------
    >>> methods(tm.Precision)
    ['storage_bytes']
    """
    members = inspect.getmembers_static(kind)
    return [name for name, item in members if name[0] != "_" and _is_method(item) and not _is_inherited(kind, name)]


def properties(kind: type) -> list[str]:
    """Return the public properties of a class without those of every result.

    Examples
    --------
    >>> properties(tm.Topology)[0]
    'bisection_bytes_per_s_per_dir'
    """
    data = [name for name, item in inspect.getmembers_static(kind) if inspect.isdatadescriptor(item)]
    fixed = {field.name for field in fields(kind)}
    return [name for name in data if name[0] != "_" and name not in fixed and not _is_inherited(kind, name)]


def _is_method(item: object) -> bool:
    return inspect.isfunction(item) or isinstance(item, (classmethod, staticmethod))


def _is_inherited(kind: type, name: str) -> bool:
    """Whether a member is that of the bases of every result, which have entries of their own."""
    return kind not in BASES and next(base for base in kind.__mro__ if name in vars(base)) in (*BASES, object)


def rows(kind: type) -> list[Row]:
    """Return the fields of a class that a user may read, and then its properties, each with its unit and meaning.

    Examples
    --------
    >>> [row.unit for row in rows(tm.Step) if row.name == "time_s"]
    ['s']
    """
    if not is_dataclass(kind):
        return []
    public = [field for field in fields(kind) if _is_public(kind, field)]
    table = [_row(kind, field.name, _default(field)) for field in public]
    return [*table, *(_row(kind, name, "") for name in properties(kind))]


def _is_public(kind: type, field: Field[Any]) -> bool:
    """Whether a user reads a field: it is neither private, nor a function, nor that of every result."""
    return field.name[0] != "_" and "Callable" not in str(field.type) and not _is_field_of_a_base(kind, field.name)


def _row(kind: type, name: str, default: str) -> Row:
    entry = _quantity(kind, name)
    return Row(name, entry.title, entry.unit, default, meaning(kind, name))


def _quantity(kind: type, name: str) -> Quantity:
    return quantity(name, *(base.__name__ for base in kind.__mro__))


def _is_field_of_a_base(kind: type, name: str) -> bool:
    """Whether a field is that of every result, whose base has an entry of its own."""
    bases = [base for base in BASES if base in kind.__mro__]
    return kind not in BASES and any(name in vars(base).get("__annotations__", {}) for base in bases)


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return repr(field.default)
    return repr(field.default_factory()) if field.default_factory is not MISSING else ""


def meaning(kind: type, name: str) -> str:
    """Return what a field or property of a class is, from its docstring or from the table of quantities.

    It is empty where nobody says so.

    Examples
    --------
    >>> meaning(tm.Topology, "chips")
    'Names of the chips.'
    """
    own = inspect.getattr_static(kind, name, None)
    text = (inspect.getdoc(own) or "") if isinstance(own, property) else ""
    return text.partition("\n\n")[0].replace("\n", " ") or _quantity(kind, name).description


def undescribed(kind: type) -> list[str]:
    """Return the fields and properties of a class that nobody describes, and its methods without a docstring.

    Examples
    --------
    >>> undescribed(tm.Step)
    []
    """
    unknown = [row.name for row in rows(kind) if not row.meaning]
    return unknown + [name for name in methods(kind) if not inspect.getdoc(getattr(kind, name))]


@cache
def calling(name: str) -> tuple[str, ...]:
    """Return the chapters that name a public thing in an open cell, in the order of the book.

    Examples
    --------
    >>> calling("topology")[0]
    'rack'
    """
    called = re.compile(rf"^[^#\n]*\btm\.{name}\b", re.MULTILINE)
    return tuple(slug for slug in chapter.chapters() if called.search(_code(slug)))


@cache
def _code(slug: str) -> str:
    return (chapter.CHAPTERS / f"{slug}.py").read_text(encoding="utf-8")


@cache
def makers() -> dict[str, list[str]]:
    """Return the public calls that give each class, by the class's name, as their annotations say.

    Examples
    --------
    >>> makers()["Step"]
    ['decode_step', 'prefill']
    """
    calls: dict[str, list[str]] = {}
    for name, item in callables().items():
        if inspect.isfunction(item):
            for kind in re.findall(r"\w+", str(inspect.signature(item).return_annotation)):
                calls.setdefault(kind, []).append(name)
    return calls
