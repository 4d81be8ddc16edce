"""Formulas of claims: expressions over the public names of the package, numbers and arithmetic, and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

Names = Mapping[str, Any]
SHORTEST, LONGEST = 1, 1000  # characters of a formula
MOST_POWER = 2**20  # of a base and of an exponent, so that no formula takes long by a power alone
_NUMPY = frozenset(
    """abs arange array asarray ceil exp floor interp isclose log log10 log2 max maximum mean median min minimum prod
    round sqrt sum""".split()
)
_WRITE = frozenset(["measure", "save_plan"])  # public calls that write files
_METHODS = frozenset("apply eval format pipe save to_clipboard to_csv to_excel to_pickle to_workbook".split())
_FUNCTIONS = {one.__name__: one for one in (abs, float, int, len, map, max, min, round, set, sorted, sum)}
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: _power(base, exponent),
    ast.BitAnd: operator.and_,
    ast.USub: operator.neg,
}
_COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
}
_EVERY: dict[type, Callable[[Iterable[Any]], bool]] = {ast.And: all, ast.Or: any}
_READING = frozenset(["chip", "facts", "model", "rent", "system"])  # public calls that only read data
_LOOK_UPS = frozenset(  # methods that pick or spell what was read
    """at get item items keys max mean min peak query range rstrip set_index split startswith strip sum to_frame tolist
    unique values""".split()
)


class FormulaError(ValueError):
    """An expression is no formula of a claim, or its value is no number and no pair of numbers."""


@cache
def evaluate(formula: str) -> tuple[float, float]:
    """Return the value of a formula as a pair of its lower and its upper end, which are equal for a single number.

    Parameters
    ----------
    formula : str
        An expression over `tm` (the public names of this package), `np` (its plain functions), numbers and texts.

    Raises
    ------
    FormulaError
        The expression uses anything else, or its value is neither a number nor a pair.

    Examples
    --------
    >>> evaluate("tm.chip('trainium2').hbm_bytes / tm.units.GIB")
    (96.0, 96.0)
    >>> evaluate("(4 * 16, 2 * 16)")
    (32.0, 64.0)
    >>> evaluate("open('x')")
    Traceback (most recent call last):
    trnmodel.evidence.claim_formulas.FormulaError: 'open' is no name of a formula, as tm and np are
    """
    ends = np.asarray(_value(parsed(formula), {}), dtype=float)
    if ends.size not in (1, 2) or not np.isfinite(ends).all():
        raise FormulaError(f"{formula}: the value is neither a number nor a pair of numbers")
    return float(ends.min()), float(ends.max())


def parsed(formula: str) -> ast.expr:
    """Return the tree of a formula.

    Raises
    ------
    FormulaError
        The text is no expression, or is longer than 1,000 characters.
    """
    if not SHORTEST <= len(formula) <= LONGEST:
        raise FormulaError(f"a formula has {SHORTEST} to {LONGEST:,} characters and not {len(formula):,}")
    try:
        return ast.parse(formula, mode="eval").body
    except SyntaxError as error:
        raise FormulaError(f"{formula}: no expression ({error.msg})") from None


def derives(formula: str) -> bool:
    """Return whether a formula computes something from facts, rather than reading one fact with a number beside it.

    It does so if it calls a model, or if one of its operators has a fact on both sides.

    Examples
    --------
    >>> derives("tm.chip('trainium2').hbm_bytes / tm.units.GIB"), derives("16 * 4")
    (False, False)
    >>> derives("tm.system('trn2.48xlarge').chips * tm.chip('trainium2').cores")
    True
    >>> derives("tm.clos(switch_bits_per_s=12.8e12, port_bits_per_s=1e11, layers=2).endpoints")
    True
    """
    tree = parsed(formula)
    if any(_is_model(node) for node in ast.walk(tree)):
        return True
    return any(_is_fact(node.left) and _is_fact(node.right) for node in ast.walk(tree) if isinstance(node, ast.BinOp))


def _is_model(node: ast.AST) -> bool:
    """Return whether a node calls a public function, or a method of an object, that does more than read data."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    names = _path(node.func)
    if names[:1] == ["tm"]:
        return names[1] not in _READING
    return not names and node.func.attr not in _LOOK_UPS


def _is_fact(node: ast.expr) -> bool:
    """Return whether a part of a formula reads data: whether it names the package beyond its units."""
    return any(_path(one)[:1] == ["tm"] and _path(one)[1:2] not in ([], ["units"]) for one in ast.walk(node))


def _path(node: ast.AST) -> list[str]:
    """Return the names of a chain of attributes that begins with a name: ["tm", "kernel", "matmul"]."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (owner := _path(node.value)):
        return [*owner, node.attr]
    return []


def names_of(formula: str) -> Iterator[str]:
    """Yield the public names that a formula reads.

    Examples
    --------
    >>> list(names_of("tm.system('trn2.48xlarge').chips / tm.units.GIB"))
    ['units', 'system']
    """
    for node in ast.walk(parsed(formula)):
        if len(names := _path(node)) == 2 and names[0] == "tm":
            yield names[1]


# --- values -----------------------------------------------------------------------------------------------------------


def _value(node: ast.expr, local: Names) -> Any:
    """Return the value of a part of a formula; `local` has the variables of the loops around it."""
    if type(node) not in _PARTS:
        raise FormulaError(f"{ast.unparse(node)}: {type(node).__name__} is no part of a formula")
    return _PARTS[type(node)](node, local)


def _items(nodes: Iterable[ast.expr], local: Names) -> list[Any]:
    """Return the values of several parts."""
    return [_value(node, local) for node in nodes]


def _operated(node: ast.BinOp | ast.UnaryOp, local: Names) -> Any:
    """Return the value of an operator between two parts, or before one."""
    if type(node.op) not in _OPERATORS:
        raise FormulaError(f"{ast.unparse(node)}: {type(node.op).__name__} is no operator of a formula")
    operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
    return _OPERATORS[type(node.op)](*_items(operands, local))


def _compared(node: ast.Compare, local: Names) -> bool:
    """Return whether two parts compare so."""
    if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARED:
        raise FormulaError(f"{ast.unparse(node)}: no comparison of a formula")
    return _COMPARED[type(node.ops[0])](*_items([node.left, *node.comparators], local))


def _called(node: ast.Call, local: Names) -> Any:
    """Return what a function answers; a mapping that is unpacked is refused."""
    if any(one.arg is None for one in node.keywords):
        raise FormulaError("a mapping that is unpacked is no part of a formula")
    named = {str(one.arg): _value(one.value, local) for one in node.keywords}
    return _value(node.func, local)(*_items(node.args, local), **named)


def _listed(node: ast.ListComp | ast.SetComp | ast.GeneratorExp, local: Names) -> list[Any]:
    """Return the values of the rounds of a loop."""
    return [_value(node.elt, inside) for inside in _loop(node.generators, local)]


def _named(node: ast.Name, local: Names) -> Any:
    """Return what a name of a formula stands for."""
    import trnmodel

    names: dict[str, Any] = {"np": np, "tm": trnmodel, **_FUNCTIONS, **local}
    if node.id not in names:
        raise FormulaError(f"{node.id!r} is no name of a formula, as tm and np are")
    return names[node.id]


def _attribute(node: ast.Attribute, local: Names) -> Any:
    """Return an attribute of a part of a formula; private ones, and those that write, are refused."""
    name, of = node.attr, _path(node.value)
    is_refused = name.startswith("_") or name in _METHODS or (of == ["tm"] and name in _WRITE)
    if is_refused or (of == ["np"] and name not in _NUMPY):
        raise FormulaError(f"{name!r} is no attribute of a formula")
    return getattr(_value(node.value, local), name)


def _sliced(node: ast.Slice, local: Names) -> slice:
    """Return a slice of values."""
    return slice(*(None if end is None else _value(end, local) for end in (node.lower, node.upper, node.step)))


def _loop(loops: list[ast.comprehension], local: Names) -> Iterator[Names]:
    """Yield the variables of each round of nested loops, behind the conditions that hold there."""
    if not loops:
        yield local
        return
    first, *others = loops
    for item in _value(first.iter, local):
        inside = {**local, **_bound(first.target, item)}
        if all(_value(condition, inside) for condition in first.ifs):
            yield from _loop(others, inside)


def _bound(target: ast.expr, item: Any) -> Names:
    """Return the variables that a round of a loop binds: one name, or a name for each part of the item."""
    if isinstance(target, ast.Name):
        return {target.id: item}
    if not isinstance(target, ast.Tuple) or not all(isinstance(one, ast.Name) for one in target.elts):
        raise FormulaError(f"{ast.unparse(target)}: no variable of a formula")
    return {one.id: part for one, part in zip(target.elts, item, strict=True) if isinstance(one, ast.Name)}


def _power(base: Any, exponent: Any) -> Any:
    """Return a power of numbers that are not large."""
    if np.max(np.abs(base)) > MOST_POWER or np.max(np.abs(exponent)) > MOST_POWER:
        raise FormulaError(f"a power of {base} and {exponent} is too large for a formula")
    return np.power(np.asarray(base, dtype=float), exponent)[()]


_PARTS: dict[type, Callable[[Any, Names], Any]] = {
    ast.Constant: lambda node, _: node.value,
    ast.Name: _named,
    ast.Attribute: _attribute,
    ast.Subscript: lambda node, local: _value(node.value, local)[_value(node.slice, local)],
    ast.Slice: _sliced,
    ast.Call: _called,
    ast.UnaryOp: _operated,
    ast.BinOp: _operated,
    ast.Compare: _compared,
    ast.BoolOp: lambda node, local: _EVERY[type(node.op)](_value(one, local) for one in node.values),
    ast.Tuple: lambda node, local: tuple(_items(node.elts, local)),
    ast.List: lambda node, local: _items(node.elts, local),
    ast.Set: lambda node, local: set(_items(node.elts, local)),
    ast.Dict: lambda node, local: dict(zip(_items(node.keys, local), _items(node.values, local), strict=True)),
    ast.ListComp: _listed,
    ast.GeneratorExp: _listed,
    ast.DictComp: lambda node, local: {
        _value(node.key, inside): _value(node.value, inside) for inside in _loop(node.generators, local)
    },
    ast.SetComp: lambda node, local: set(_listed(node, local)),
}
