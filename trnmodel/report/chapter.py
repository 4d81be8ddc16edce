"""What a chapter says of itself, read without running it: its place in the book and its typed parameters."""

from __future__ import annotations

import ast
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import jupytext
import msgspec
import yaml
from nbformat import NotebookNode

import trnmodel
from trnmodel.catalog.load import nearest, precision

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent
CHAPTERS = PACKAGE / "notebooks" if (PACKAGE / "notebooks").is_dir() else ROOT / "notebooks" / "py"

TYPES = {"bool": bool, "int": int, "float": float, "str": str, "list": list, "Literal": Literal}
LITERAL_IMPORT = "from typing import Literal"  # the one thing beside literals that a parameter cell may hold
ID_WORDS = {"comparator": "chip", "chip": "chip", "system": "system", "model": "model", "precision": "precision"}
MAX_YAML_BYTES = 64_000


class InputError(ValueError):
    """A chapter, parameter, file or folder as the caller named it cannot be used; the message is one line."""


class Parameter(NamedTuple):
    """Declared type and default of a chapter's parameter."""

    type: object
    default: object

    @property
    def type_name(self) -> str:
        """The type as the chapter writes it."""
        plain = isinstance(self.type, type) and not hasattr(self.type, "__args__")
        return self.type.__name__ if plain else str(self.type).replace("typing.", "")


def read(slug: str) -> NotebookNode:
    """The notebook that a chapter's text stands for.

    Raises InputError naming the nearest chapters.
    """
    known = sorted(path.stem for path in CHAPTERS.glob("*.py"))
    if slug not in known:
        raise InputError(f"no chapter {slug!r}; nearest: {', '.join(nearest(slug, known)) or 'there are none'}")
    return jupytext.read(CHAPTERS / f"{slug}.py")


def order(slug: str) -> float:
    """A chapter's place in the book, infinite where its header gives none."""
    return read(slug).metadata.get("trnmodel", {}).get("order", math.inf)


def chapters() -> list[str]:
    """Slugs of all chapters in the order of the book, as their headers give it."""
    return sorted((path.stem for path in CHAPTERS.glob("*.py")), key=lambda slug: (order(slug), slug))


def parameters(slug: str) -> dict[str, Parameter]:
    """A chapter's parameters by name.

    Examples
    --------
    >>> parameters("chip-roofline")["chip"]
    Parameter(type=<class 'str'>, default='trainium3')
    """
    cells = [cell for cell in read(slug).cells if "parameters" in cell.metadata.get("tags", [])]
    body = [statement for cell in cells[:1] for statement in ast.parse(cell.source).body]
    return dict(_declaration(slug, statement) for statement in body if ast.unparse(statement) != LITERAL_IMPORT)


def _declaration(slug: str, statement: ast.stmt) -> tuple[str, Parameter]:
    """Name, type and default of `name: type = literal`."""
    try:
        kind = eval(compile(ast.Expression(statement.annotation), slug, "eval"), {"__builtins__": {}}, TYPES)
        default = msgspec.convert(ast.literal_eval(statement.value), kind)
        return statement.target.id, Parameter(kind, default)
    except (AttributeError, NameError, TypeError, ValueError) as error:
        text = ast.unparse(statement)
        raise ValueError(f"chapter {slug!r}: {text!r} is not `name: type = literal` ({error})") from None


def check_parameters(slug: str, given: Mapping[str, object]) -> dict[str, object]:
    """The given values in the types that the chapter declares; text is read as its type.

    Raises InputError naming the parameter, the value and what is allowed.

    Examples
    --------
    >>> check_parameters("chip-roofline", {"intensity_flop_per_byte": "200", "comparators": "h100,b200"})
    {'intensity_flop_per_byte': 200.0, 'comparators': ['h100', 'b200']}
    """
    declared = parameters(slug)
    return {name: _checked(slug, name, value, declared) for name, value in given.items()}


def _checked(slug: str, name: str, value: object, declared: dict[str, Parameter]) -> object:
    if name not in declared:
        near = ", ".join(nearest(name, declared)) or "it has none"
        raise InputError(f"chapter {slug!r} has no parameter {reprlib.repr(name)}; nearest: {near}")
    kind = declared[name].type
    if isinstance(value, str) and str(kind).startswith("list["):
        value = [item.strip(" '\"") for item in value.strip("[] ").split(",") if item.strip()]
    try:
        checked = msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, OverflowError, RecursionError):
        shown = reprlib.repr(value)[:80]
        raise InputError(f"parameter {name} = {shown} must be of type {declared[name].type_name}") from None
    for item in checked if isinstance(checked, list) else [checked]:
        _check_item(name, item)
    return checked


def _check_item(name: str, item: object) -> None:
    """Refuse numbers that are not finite and names that nothing has."""
    if isinstance(item, float) and not math.isfinite(item):
        raise InputError(f"parameter {name} = {item!r} must be finite")
    kind = ID_WORDS.get(name.rpartition("_")[2].removesuffix("s"))
    if kind is None or not isinstance(item, str):
        return
    resolve = precision if kind == "precision" else getattr(trnmodel, kind)
    try:
        resolve(item)
    except (ValueError, OSError) as error:
        raise InputError(f"parameter {name}: {' '.join(str(error).split())}") from None


def read_parameters(path: str | Path) -> dict[str, object]:
    """Parameters of a YAML file: a mapping of names to plain values, not yet checked against a chapter.

    The file is not trusted: it is short, holds plain values only, and whatever is wrong is one InputError.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with path.open("rb") as file:
        text = file.read(MAX_YAML_BYTES + 1)
    if len(text) > MAX_YAML_BYTES:
        raise InputError(f"{path}: more than {MAX_YAML_BYTES} bytes; a parameter file is a short mapping")
    try:
        values = yaml.safe_load(text)
    except Exception as error:  # on hostile text the safe loader raises far more than YAMLError
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or type(error).__name__).split())
        raise InputError(f"{path}: not plain YAML{place}: {reason[:120]}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InputError(f"{path}: expected a mapping of parameter names to values")
    return values
