"""Values that nobody should pass, each as the code that makes it, so that a failure prints as a line to run again."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

import trnmodel as tm


class Rude:
    """An object that answers no question."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")


def loop() -> list:
    """A list that holds itself."""
    found: list = []
    found.append(found)
    return found


def deep(levels: int) -> list:
    """A number in so many lists."""
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


NAMES = {
    "Decimal": Decimal,
    "Fraction": Fraction,
    "Path": Path,
    "Rude": Rude,
    "SimpleNamespace": SimpleNamespace,
    "date": date,
    "deep": deep,
    "inf": math.inf,
    "loop": loop,
    "nan": math.nan,
    "np": np,
    "pd": pd,
    "tm": tm,
}

NUMBERS = """
0 -0.0 -1 -1e-9 0.5 1.5 3 1e-320 1e-31 1e18 1e30 1e31 1e308 2**53 2**63 2**64 10**400 -10**400 10**5000 nan inf -inf
np.float32(-1) np.int8(-1) np.float64('nan') np.uint8(3) Decimal('-1') Decimal('NaN') Fraction(1,3) np.float16(6e4)
"""
ARRAYS = """
[] [[]] [[1,2],[3]] [1,None] [1,'x'] [1,nan] [1,-1] [1,[]] [True,False] [10**400] np.array([]) np.array(['1'])
np.array([None]) np.array([True]) np.array([1j]) np.array(['2020-01-01'],'M8[D]') np.array([object()]) np.zeros((0,3))
np.array(nan) np.array([[1.0],[-inf]]) np.ma.masked np.ma.array([4.0,2.0],mask=[0,1]) np.full((1,)*40,2.0) range(3)
range(0) range(-3,0) (n,for,n,in,[1]) pd.Series([1,None]) pd.Series(['x']) pd.DataFrame({'a':[1]}) () (1,) ((),)
"""
OBJECTS = """
None True False np.True_ object() NotImplemented ... 1j b'1' bytearray(b'1') memoryview(b'1') {} {'x':1} {1:2} set()
{1,2} frozenset() lambda:1 int np type date(2020,1,1) loop() deep(40) deep(2000) [['x']*9]*10**4 Rude() [Rude()] pd.NA
pd.NaT pd.Timestamp('2020') np.datetime64('2020') np.timedelta64(1,'s') np.void(b'x') SimpleNamespace(id='trainium2')
"""
TEXTS = r"""
'' 'x' '1' '\x20' 'nan' '-1' 'x'*10**5 '\0' 'a\nb' '../../etc/passwd' '/dev/null' '/' '{0}%n' '\u202ex' '\ud800' 'é'*300
'<img\x20src=x\x20onerror=alert(1)>' '</script>' ['x'] ('x','y') {'x'} np.str_('x') np.array('x') Path('x') Path('/')
Path('x'*5000) 'x'*5000+'.json' 'None' 'inf' '1e400'
"""
CELLS = tuple(
    r"""
'' 'x' '0' '-1' '-0.0' '0.5' '1e5' '1e400' '-1e400' '1e-400' '1e308' '9'*400 '9'*5000 '1,,,2' '1-' '-' '--1' '~'
'1-2' '5-1' '1±2' '(7)' '4k(~4096)' '(~'*10**4 '('*10**5 '1'*10**5 'nan' 'inf' '-inf' 'NaN' '∞' '٣' '1_000' '0x10' '1e'
'x'*10**5 's' '%' '\0' 'a\nb' '../../etc/passwd' '<img\x20src=x\x20onerror=alert(1)>' '\ud800' 'llama-3.1-8b' 'h100'
'trainium4-roadmap' None True 0 -1 1e308 10**400 nan inf 1j b'x' [] {} [1,2] object() Rude() pd.NA pd.NaT Decimal('NaN')
""".split()
)
USED = tuple("0 -0.0 1e-320 1e-31 1e-9 0.5 1.5 1 3 7 1e9 1e18 1e30 1e31 1e308 2**53 2**64 nan".split())


def _codes(text: str) -> list[str]:
    return [code.replace("(n,for,n,in,[1])", "(n for n in [1])") for code in text.split()]


POOL = [code for text in (NUMBERS, ARRAYS, OBJECTS, TEXTS) for code in _codes(text)]


def made(code: str, names: dict[str, Any] | None = None) -> Any:
    """The value that a code makes, a new one each time."""
    return eval(code, NAMES | (names or {}))


def numeric(value: Any) -> bool | None:
    """Whether a person would call a value a number or an array of numbers; None where both answers are fair."""
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, int | float | np.integer | np.floating):
        return True
    if isinstance(value, np.ma.MaskedArray) and np.any(np.ma.getmaskarray(value)):
        return False
    if isinstance(value, pd.Series | pd.DataFrame):
        return None if value.to_numpy().dtype.kind in "iuf" else False
    if isinstance(value, Decimal | Fraction | np.ma.MaskedArray):
        return None
    if not isinstance(value, np.ndarray | list | tuple | range):
        return False
    try:
        array = np.asarray(value)
    except ValueError:  # ragged or endless
        return False
    if array.dtype.kind == "O":
        return bool(array.size) and all(type(item) is int for item in array.flat)
    return bool(array.size) and array.dtype.kind in "iuf"


def as_floats(value: Any) -> np.ndarray:
    """A number or an array as floats, whole numbers beyond all floats as infinite."""
    try:
        return np.asarray(value, dtype=float)
    except (OverflowError, TypeError, ValueError):
        flat = [item for item in np.asarray(value, dtype=object).flat]  # noqa: C416
        return np.array([math.inf if item > 0 else -math.inf for item in flat])
