"""What an argument of each kind must refuse, and hostile values that only this kind can meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trnmodel import declared
from trnmodel.arguments import TINY

from .files import TABLES as CSV_TEXTS
from .files import TEXTS as CONFIG_TEXTS
from .files import TOKENS
from .values import CELLS, POOL, USED, as_floats, numeric


def _never(value: Any) -> bool:
    return False


@dataclass(frozen=True)
class Kind:
    """`refuses` says which values an argument must refuse; others it may refuse or answer with sense."""

    refuses: Callable[[Any], bool]
    extra: tuple[str, ...] = ()
    skips: Callable[[Any], bool] = _never  # values that are right for this kind
    broadcasts: bool = False
    pool: tuple[str, ...] = tuple(POOL)


def _numbers(
    low: float = 0.0,
    high: float = np.inf,
    *,
    whole: bool = False,
    unknown: bool = False,
    endless: bool = False,
    one: bool = False,
) -> Kind:
    def refuses(value: Any) -> bool:
        found = numeric(value)
        if found is not True:
            return found is False
        array = as_floats(value)
        bad = ~((array >= low) & (array <= high)) & ~(unknown & np.isnan(array))
        bad |= np.isinf(array) & (not endless)
        if whole:
            bad |= array != np.floor(array)
        return bool(np.any(bad)) or (one and array.size > 1)

    return Kind(refuses, broadcasts=not one)


def _not(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, kinds)


def _always(value: Any) -> bool:
    return True


def _filled(value: Any) -> bool:
    """Anything but an empty collection, which asks for nothing."""
    empty = isinstance(value, tuple | list | set | frozenset | range | Mapping) and len(value) == 0
    return not empty and not (isinstance(value, np.ndarray) and value.ndim > 0 and value.size == 0)


def _stages(value: Any) -> bool:
    """Numbers that need not be of one shape."""
    parts = value if isinstance(value, list | tuple) and len(value) else [value]
    return any(_numbers().refuses(part) for part in parts)


def _one_flag(value: Any) -> bool:
    """True or False, for all places at once: an array of one broadcasts as it does by itself."""
    return isinstance(value, bool | np.bool_ | np.ndarray) and np.size(value) == 1 and np.asarray(value).dtype == bool


def _has_zero(value: Any) -> bool:
    return numeric(value) is not False and bool(np.any(as_floats(value) == 0))


PAIRS = (
    "{'load':2}",
    "{'load':-1}",
    "{'load':'x'}",
    "{'load':nan}",
    "{'load':None}",
    "{'load':True}",
)
TABLES = ("{'bf16':-1}", "{'bf16':'x'}", "{'bf16':None}", "{'bf16':inf}", "{'bf16':True}", "{'bf16':[1,2]}", "{1:2}")

LOST = ("-1", "nan", "inf", "'x'", "None", "True", "1.5", "10**400")

KINDS = {
    "number": _numbers(),
    "figure": _numbers(unknown=True),
    "share": _numbers(0, 1),
    "count": _numbers(1, whole=True),
    "from1": _numbers(1),
    "positive": _numbers(TINY),
    "percentile": _numbers(1, 99.99),
    "arrivals": _numbers(TINY, 1e9),
    "one": _numbers(one=True),
    "divisor-figure": replace(_numbers(unknown=True), skips=_has_zero),
    "answer": Kind(_always, skips=lambda value: isinstance(value, str) and value == ""),
    "stack-id": Kind(_always, skips=lambda value: isinstance(value, str) and value == ""),
    "part": Kind(_always, skips=lambda value: isinstance(value, str) and value == ""),
    "ratios": Kind(_always, skips=lambda value: isinstance(value, tuple) and value == ()),
    "places": Kind(_always, skips=_one_flag),
    "levels": replace(_numbers(unknown=True), broadcasts=False),
    "share-figure": _numbers(0, 1, unknown=True),
    "stages": Kind(_stages),
    "rate": _numbers(endless=True, one=True),
    "integer": _numbers(1, whole=True, one=True),
    "whole": _numbers(0, whole=True, one=True),
    "real": Kind(lambda value: numeric(value) is False or np.size(value) > 1),
    "flag": Kind(_not(bool, np.bool_)),
    "choice": Kind(_always),
    "object": Kind(_always),  # an id or an object of one type
    "text": Kind(_not(str), extra=("'x'*10**6",)),
    "folder": Kind(_not(str, Path), extra=("'x'*10**6",)),
    "any": Kind(_never),
    "used-figure": Kind(_never, pool=USED),
    "used-sizes": Kind(
        _never, pool=("()", "(1,)", "(0,)", "(3,)", "(4,4)", "(2**40,)", "(10**6,10**6)", "(1,)*9", "(16,1.0)")
    ),
    "token": Kind(_never, pool=TOKENS),
    "config": Kind(_always, pool=CONFIG_TEXTS),
    "csv": Kind(_never, pool=CSV_TEXTS),
    "file-name": Kind(
        _never, pool=("'<img src=x onerror=alert(1)>.json'", "'a\\nb.json'", "'x'*200+'.json'", "'\\u202e.json'")
    ),
    "cell": Kind(_never, pool=CELLS),
    "frame": Kind(_always),
    "frame-or-none": Kind(_always, skips=lambda value: value is None),
    "any-frame": Kind(_always, skips=lambda value: type(value).__name__ == "DataFrame"),
    "pairs": Kind(_filled, extra=(*PAIRS, "{1:0.5}", "{'loda':0.5}")),
    "table": Kind(_not(Mapping), extra=TABLES),
    "sizes": Kind(
        lambda value: _filled(value) and _numbers().refuses([*value] if isinstance(value, set) else value),
        extra=("(0,)", "(-1,)", "(1.5,)", "(2, nan)"),
    ),
    "list": Kind(_filled),
    "groups": Kind(_filled, extra=("['decode', 'x']", "['decode', None]", "[['decode']]")),
    "callable": Kind(_always, skips=callable),
    "grid": Kind(
        lambda value: _filled(value) and not (isinstance(value, dict) and list(value) == ["x"]),
        extra=("{'nonsense':[1]}", "{1:[1]}", "{None:1}", "[('value',[1])]"),
    ),
    "executor": Kind(_always, skips=lambda value: hasattr(value, "map")),
    "statement": Kind(_not(Mapping), extra=("{'x':1}", "{'tp':None}", "{'tp':object()}", "{1:1}", "{'tp':'x'*10**4}")),
    "models": Kind(_not(Mapping), extra=("{'x':None}", "{'x':object()}", "{1:1}")),
    "lanes": Kind(
        _filled,
        extra=(
            *(f"{{('chip0,0','chip1,0'):{lost}}}" for lost in LOST),
            "{('chip0,0','chip9,9'):1}",
            "{'chip0,0':1}",
            "{('chip0,0',):1}",
            "{None:1}",
            "{('a','b','c'):1}",
        ),
    ),
}


def of_rule(rule: declared.Allowed) -> Kind | None:
    """Return what an argument must refuse by its declaration; None for what only the call itself can check."""
    match rule:
        case declared.Numbers():
            return _numbers(rule.low, rule.high, whole=rule.whole, unknown=rule.unknown)
        case declared.Number():
            return _numbers(rule.low, rule.high, unknown=rule.unknown, endless=rule.high == np.inf, one=True)
        case declared.Integer():
            return _numbers(rule.low, rule.high, whole=True, one=True)
        case declared.Flag():
            return KINDS["flag"]
        case declared.Text():
            return KINDS["text"]
        case declared.Word():
            words = rule.listed()
            return replace(KINDS["choice"], skips=lambda value: isinstance(value, str) and value in words)
        case declared.Object():
            return replace(KINDS["object"], skips=lambda value: isinstance(value, rule.kind))
        case declared.Named():
            return KINDS["object"]
    return None
