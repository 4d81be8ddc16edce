"""A chapter's place in the book and its typed parameters, read without running it."""

from __future__ import annotations

import ast
import math
import os
import reprlib
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

import trnmodel
from trnmodel.arguments import HUGE, SHOWN, ImpossibleError, nearest, shown
from trnmodel.catalog import plain_yaml
from trnmodel.catalog.load import precision
from trnmodel.cli.errors import InputError, NoAnswerError, printable

if TYPE_CHECKING:
    from nbformat import NotebookNode

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]
CHAPTERS = PACKAGE / "notebooks" if (PACKAGE / "notebooks").is_dir() else ROOT / "notebooks" / "py"

INDEX = "index"  # the first page of the book: a notebook without a number
TYPES = {"bool": bool, "int": int, "float": float, "str": str, "list": list, "Literal": Literal}
LITERAL_IMPORT = "from typing import Literal"  # the one thing beside literals that a parameter cell may hold
ID_KINDS = {"comparator": "chip", "chip": "chip", "model": "model", "precision": "precision"}
ID_KINDS |= dict.fromkeys(("system", "rival"), "system")
MAX_YAML_BYTES = 64_000


class Parameter(NamedTuple):
    """Declared type and default of a chapter's parameter."""

    type: object
    default: object

    @property
    def type_name(self) -> str:
        """Name of the type as the chapter writes it."""
        if isinstance(self.type, type) and not hasattr(self.type, "__args__"):
            return self.type.__name__
        return str(self.type).replace("typing.", "")


def read(slug: str) -> NotebookNode:
    """Return the notebook of a chapter's text.

    Raises InputError naming the nearest chapters.
    """
    return parsed(_text(slug))


def parsed(text: str) -> NotebookNode:
    """Return the notebook of a text in jupytext's percent format."""
    return deepcopy(_parsed(text))


def _text(slug: str) -> str:
    known = sorted(path.stem for path in CHAPTERS.glob("*.py"))
    if slug not in known:
        near = ", ".join(nearest(slug[:SHOWN], known)) or "there are none"
        raise InputError(f"no chapter {reprlib.repr(slug)}; nearest: {near}")
    return (CHAPTERS / f"{slug}.py").read_text(encoding="utf-8")


@lru_cache(maxsize=64)
def _parsed(text: str) -> NotebookNode:
    """Parse a chapter's text; cached, because jupytext takes a fifth of a second for a long chapter."""
    import jupytext

    return jupytext.reads(text, fmt={"extension": ".py"})


def pairing(slug: str) -> dict[str, Any]:
    """Return what jupytext, configured as this project configures it, writes into the notebook of a chapter's text."""
    import jupytext
    from jupytext.config import load_jupytext_config

    text = str(CHAPTERS / f"{slug}.py")
    written = jupytext.read(text, config=load_jupytext_config(text)).metadata.get("jupytext", {})
    return {name: value for name, value in written.items() if name != "text_representation"}


@lru_cache(maxsize=64)
def _place(text: str) -> dict[str, Any]:
    """Return the chapter's place in the book from its header, the first comment between two `---`."""
    _, _, after = text.partition("# ---\n")
    header = plain_yaml.read(after.partition("# ---\n")[0].replace("# ", "")) or {}
    return header.get("jupyter", {}).get("trnmodel", {})


def order(slug: str) -> float:
    """Return a chapter's place in the book, infinite if its header has none."""
    return _place(_text(slug)).get("order", math.inf)


def notebooks() -> list[str]:
    """Return slugs of all notebooks in the order of the book, as their headers say."""
    return sorted((path.stem for path in CHAPTERS.glob("*.py")), key=lambda slug: (order(slug), slug))


def chapters() -> list[str]:
    """Return slugs of the notebooks that the book numbers: all but its first page."""
    return [slug for slug in notebooks() if slug != INDEX]


def called(slug: str) -> str:
    """Return a chapter's number as prose names it and the book links it.

    Examples
    --------
    >>> called("which-system")
    'chapter 1'
    """
    return f"chapter {chapters().index(slug) + 1}"


def parts() -> dict[str, list[str]]:
    """Return slugs of the chapters of each part of the book; a part lasts until a header names another."""
    slugs: dict[str, list[str]] = {}
    name = "Chapters"
    for slug in chapters():
        name = str(_place(_text(slug)).get("part", name))
        slugs.setdefault(name, []).append(slug)
    return slugs


def parameters(slug: str) -> dict[str, Parameter]:
    """Return a chapter's parameters by name.

    Examples
    --------
    >>> parameters("chip-roofline")["chip"]
    Parameter(type=<class 'str'>, default='trainium3')
    """
    cells = [cell for cell in read(slug).cells if "parameters" in cell.metadata.get("tags", [])]
    body = [statement for cell in cells[:1] for statement in ast.parse(cell.source).body]
    return dict(_declaration(slug, statement) for statement in body if ast.unparse(statement) != LITERAL_IMPORT)


def _declaration(slug: str, statement: ast.stmt) -> tuple[str, Parameter]:
    """Return name, type and default of `name: type = literal`."""
    try:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            raise TypeError("no name is declared with a type")
        if statement.value is None:
            raise TypeError("no default is assigned")
        kind = eval(compile(ast.Expression(statement.annotation), slug, "eval"), {"__builtins__": {}}, TYPES)
        default = msgspec.convert(ast.literal_eval(statement.value), kind)
        return statement.target.id, Parameter(kind, default)
    except (AttributeError, NameError, TypeError, ValueError) as error:
        text = ast.unparse(statement)
        raise ValueError(f"chapter {slug!r}: {text!r} is not `name: type = literal` ({error})") from None


def check_parameters(slug: str, values: Mapping[str, object]) -> dict[str, object]:
    """Convert values to the types that the chapter declares; text is read as its type.

    Raises InputError naming the parameter, the value and what is allowed.

    Examples
    --------
    >>> check_parameters("chip-roofline", {"intensity_flop_per_byte": "200", "comparators": "h100,b200"})
    {'intensity_flop_per_byte': 200.0, 'comparators': ['h100', 'b200']}
    """
    if not values:
        _text(slug)  # refuses a chapter that does not exist
        return {}
    declared = parameters(slug)
    return {name: _checked(slug, name, value, declared) for name, value in values.items()}


def check_answers(slug: str, values: Mapping[str, object]) -> None:
    """Ask a chapter, here and without a kernel, whether it has an answer for checked values of its parameters.

    The statements of its first cell after the parameters are run as far as the last one that names the guard.

    Raises InputError with what the chapter refuses in a line, NoAnswerError where nothing satisfies the question.
    """
    first, *others = [cell for cell in read(slug).cells if cell.cell_type == "code"]
    body = ast.parse(others[0].source).body if others and values else []
    asks = [place for place, statement in enumerate(body) if "guard" in _names(statement)]
    if not asks:
        return
    scope: dict[str, Any] = {"__name__": slug}
    try:
        exec(compile(first.source, slug, "exec"), scope)
        scope |= values
        exec(compile(ast.Module(body[: asks[-1] + 1], []), slug, "exec"), scope)
    except ValueError as error:
        kind = NoAnswerError if isinstance(error, ImpossibleError) else InputError
        raise kind(unanswered(slug, error)) from None


def _names(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def unanswered(slug: str, reason: object) -> str:
    """Return the line that says why a chapter has no answer."""
    return f"chapter {slug!r} cannot answer: {printable(' '.join(str(reason).split()))}"


def _checked(slug: str, name: str, value: object, declared: dict[str, Parameter]) -> object:
    if name not in declared:
        near = ", ".join(nearest(str(name)[:SHOWN], declared)) or "it has none"
        raise InputError(f"chapter {slug!r} has no parameter {reprlib.repr(name)}; nearest: {near}")
    kind, default = declared[name]
    if isinstance(value, str) and str(kind).startswith("list["):
        value = [item.strip(" '\"") for item in value.strip("[] ").split(",") if item.strip()]
    try:
        checked = msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, OverflowError, RecursionError, UnicodeError):
        raise InputError(f"parameter {name} = {shown(value)} must be of type {declared[name].type_name}") from None
    if checked == [] and default:
        raise InputError(f"parameter {name} = [] must hold at least one item")
    for item in checked if isinstance(checked, list) else [checked]:
        _check_item(name, item)
    return checked


def _check_item(name: str, item: object) -> None:
    """Refuse numbers that are not finite or that no machine has, broken text, and names that nothing has."""
    if isinstance(item, float | int) and not abs(item) <= HUGE:
        limit = f"be no larger than {HUGE:g}" if isinstance(item, int) or math.isfinite(item) else "be finite"
        raise InputError(f"parameter {name} = {shown(item)} must {limit}")
    if not isinstance(item, str):
        return
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in item):
        raise InputError(f"parameter {name} = {shown(item)} must be text without NUL and broken characters")
    kind = ID_KINDS.get(name.rpartition("_")[2].removesuffix("s"))
    if kind is None:
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
    name = printable(path)
    if not os.path.isfile(path):  # noqa: PTH113 - a Path raises on over-long names
        raise InputError(f"{name}: no such file")
    with Path(path).open("rb") as file:
        text = file.read(MAX_YAML_BYTES + 1)
    if len(text) > MAX_YAML_BYTES:
        raise InputError(f"{name}: more than {MAX_YAML_BYTES} bytes; a parameter file is a short mapping")
    try:
        values = plain_yaml.read(text)
    except plain_yaml.YamlError as error:
        raise InputError(f"{name}: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InputError(f"{name}: expected a mapping of parameter names to values")
    return values
