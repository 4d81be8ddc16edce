"""The door of every public call: an argument is checked here once, and what the check returns is what is used.

A check names the argument, shows its value (cut to 80 characters) and says what is allowed, all in one ValueError.
Numbers come back as float arrays. No check guesses: text, None, yes and no, objects, ragged and empty arrays are
refused, as are NaN, infinities, and sizes that no machine has (beyond 1e30, or below 1e-30 where zero cannot be).
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Collection, Iterable, Mapping
from types import UnionType
from typing import Any, Generic, NoReturn, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")

TINY, HUGE = 1e-30, 1e30
MOST_CHIPS = 10**9  # a judgement: more accelerators than were ever made
SHOWN = 80
FLOAT = np.dtype(float)
LONGEST_RANGE = 1e8
DEEPEST = 16  # dimensions; NumPy broadcasts 32 iterators, a result takes some of its own
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = SHOWN
_REPR.maxlevel = 3


class UnanswerableError(ValueError):
    """A chapter has no answer for its parameters; the message says in one line why."""

    def _render_traceback_(self) -> list[str]:
        """Return the line that IPython shows in place of a traceback."""
        return [f"This chapter cannot answer: {self}"]


class ImpossibleError(UnanswerableError):
    """The parameters of a chapter are valid, and nothing satisfies them; the message says in one line why."""


class NoteWarning(UserWarning):
    """What a caller should know of an answer that is given all the same; the terminal prints it as a note."""


class Same(Generic[T]):
    """An object as a key of a cache: equal to itself alone, whatever its fields are."""

    __slots__ = ("it",)

    def __init__(self, it: T) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.it is self.it


def key_of(value: T) -> T | Same[T]:
    """Return an argument as a key of a cache: None and an id as they are, an object as `Same`.

    Examples
    --------
    >>> key_of("bf16"), key_of([1]) == key_of([1])
    ('bf16', False)
    """
    return value if value is None or type(value) is str else Same(value)


def of_key(key: Any) -> Any:
    """Return the argument that a key was made of.

    Examples
    --------
    >>> of_key(key_of([1])), of_key(key_of("bf16"))
    ([1], 'bf16')
    """
    return key.it if isinstance(key, Same) else key


def shown(value: Any) -> str:
    """Return a value as an error message shows it: on one line, cut to 80 characters.

    Examples
    --------
    >>> len(shown("x" * 100)), shown([1.0, None]), shown(np.float32(0.5)), shown(10**5000)
    (80, '[1.0, None]', '0.5', 'int with a whole number of too many digits')
    """
    try:
        plain = type(value) is np.ndarray and not value.ndim and value.dtype == float
        text = f"{value:.15g}" if plain else _REPR.repr(value.item() if isinstance(value, np.generic) else value)
    except ValueError:  # Python refuses to print whole numbers of thousands of digits
        text = f"{type(value).__name__} with a whole number of too many digits"
    return " ".join(text.split())[:SHOWN]


def refuse(name: str, value: Any, allowed: str) -> NoReturn:
    """Raise the one error of an argument.

    Examples
    --------
    >>> refuse("batch", None, "allowed are numbers")
    Traceback (most recent call last):
    ValueError: batch=None: allowed are numbers
    """
    raise ValueError(f"{name}={shown(value)}: {allowed}")


def _array(value: Any) -> NDArray | None:
    """Return a number or an array of numbers as floats, and None for anything else."""
    if isinstance(value, np.ma.MaskedArray | bytes | bytearray | memoryview):
        return None
    if isinstance(value, range) and value and abs(value[-1] - value[0]) > LONGEST_RANGE:
        return None  # it would be written out
    try:
        array = np.asarray(value)
    except ValueError:  # ragged, or nested without end
        return None
    if array.dtype.kind == "O" and all(type(item) is int and abs(item) <= HUGE for item in array.flat):
        array = array.astype(float)  # whole numbers beyond 64 bits
    usable = array.dtype.kind in "iuf" and array.size and array.ndim <= DEEPEST
    return array.astype(float, copy=False) if usable else None


def _plain(value: Any) -> float | None:
    """One number, as most are, that needs no array to be looked at; None for anything else."""
    if type(value) is np.ndarray and value.dtype is FLOAT and not value.ndim:
        return value.item()
    kind = type(value)
    return float(value) if kind in (float, np.float64) or (kind is int and -HUGE <= value <= HUGE) else None


def numbers(
    name: str, value: Any, low: float = 0.0, high: float = HUGE, *, whole: bool = False, unknown: bool = False
) -> NDArray:
    """Return a number or an array of numbers from `low` to `high` as floats.

    Sizes between 0 and 1e-30 are refused, for quotients of them overflow. `unknown` lets NaN pass, where a figure may
    not be published and the answer is NaN with it.

    Examples
    --------
    >>> numbers("batch", [1, 64], 1).tolist()
    [1.0, 64.0]
    >>> numbers("n_ranks", [4, 0], 1, whole=True)
    Traceback (most recent call last):
    ValueError: n_ranks=[4, 0]: allowed are whole numbers from 1 to 1e+30
    """
    x = _plain(value)
    if x is not None and low <= x <= high and not 0 < x < TINY and (not whole or x % 1 == 0):
        return np.asarray(x)
    array = _array(value)
    if array is not None:
        if not whole and array.min() >= max(low, TINY) and array.max() <= high:  # most are, and none of them is NaN
            return array
        allowed = (array >= low) & (array <= high) & ~((array > 0) & (array < TINY))
        if whole:
            allowed &= array == np.floor(array)
        if np.all(allowed | np.isnan(array) if unknown else allowed):
            return array
    kind = "whole numbers" if whole else "numbers"
    rest = ", and NaN where nothing is published" if unknown else ""
    if array is not None and low <= 0 and np.any((array > 0) & (array < TINY)):
        rest += f", none between 0 and {TINY}"
    refuse(name, value, f"allowed are {kind} from {low:.15g} to {high:.15g}{rest}")


def number(name: str, value: Any, low: float = 0.0, high: float = HUGE, *, unknown: bool = False) -> float:
    """One number from `low` to `high`.

    Examples
    --------
    >>> number("tdp_w", 500), number("hop_s", np.float64(1e-6))
    (500.0, 1e-06)
    """
    array = numbers(name, value, low, high, unknown=unknown)
    if array.ndim:
        refuse(name, value, "allowed is one number")
    return float(array)


def share(name: str, value: Any, low: float = 0.0) -> NDArray:
    """Return a share from 0 (or `low`) to 1, or an array of shares."""
    return numbers(name, value, low, 1.0)


def flushed(share: NDArray) -> NDArray:
    """Shares with those below 1e-30 as 0, so that a product of them may be an argument again.

    Examples
    --------
    >>> flushed(np.array([0.5, 1e-40])).tolist()
    [0.5, 0.0]
    """
    return np.where(share < TINY, 0.0, share)[()]


def integer(name: str, value: Any, low: int = 1, high: int = 2**53) -> int:
    """One whole number.

    Examples
    --------
    >>> integer("count", 2.0), integer("lnc", np.int64(4))
    (2, 4)
    """
    array = numbers(name, value, low, high, whole=True)
    if array.ndim:
        refuse(name, value, f"allowed is one whole number from {low} to {high}")
    return int(array)


def flag(name: str, value: Any) -> bool:
    """Return True or False; refuse everything else."""
    if not isinstance(value, bool | np.bool_):
        refuse(name, value, "allowed are True and False")
    return bool(value)


def text(name: str, value: Any, longest: int = 200) -> str:
    """Text of at most `longest` characters."""
    if not isinstance(value, str) or len(value) > longest:
        refuse(name, value, f"allowed is text of up to {longest} characters")
    return value


def label(name: str, value: Any) -> str:
    """Printable text on one line: a name."""
    if not text(name, value).isprintable():
        refuse(name, value, "allowed is text on one line, without control characters")
    return value


def choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """One of a closed list of words.

    Examples
    --------
    >>> choice("ties", "up", ("split", "one_way"))
    Traceback (most recent call last):
    ValueError: ties='up': allowed are one_way, split
    """
    if not isinstance(value, str) or value not in allowed:
        refuse(name, value, f"allowed are {', '.join(sorted(allowed))}")
    return value


def nearest(name: object, choices: Iterable[object], least: float = 0.5, count: int = 4) -> list[str]:
    """Return the choices most like a misspelt name, best first, or the shortest few where none is like it.

    Choices that begin with the name come first; the others follow by the share of letters that they have in common
    with it, down to `least`. Case does not count.

    Examples
    --------
    >>> nearest("trainium", ["trn2", "TRAINIUM3", "h100"]), nearest("tyme_s", ["time_s", "batch"])
    (['TRAINIUM3', 'trn2'], ['time_s'])
    """
    typed = str(name)[: 3 * SHOWN].lower()
    matcher = difflib.SequenceMatcher(b=typed)
    likeness: dict[str, tuple[bool, float]] = {}
    for choice in map(str, choices):
        matcher.set_seq1(choice.lower())
        begins = bool(typed) and choice.lower().startswith(typed)
        if begins or (matcher.real_quick_ratio() >= least and matcher.quick_ratio() >= least):
            likeness[choice] = begins, matcher.ratio()
    close = [choice for choice, (begins, ratio) in likeness.items() if begins or ratio >= least]
    shortest = sorted(sorted(map(str, choices)), key=len)[: 2 * count]
    return sorted(close, key=likeness.__getitem__, reverse=True)[:count] or shortest


def one_of(name: str, value: Any, known: Collection[str], what: str) -> str:
    """Return one of many names; an unknown one is refused with the nearest of them, `what` saying what they name.

    Examples
    --------
    >>> one_of("name", "tyme_s", ("time_s", "batch"), "a figure of a Step")
    Traceback (most recent call last):
    ValueError: name='tyme_s': allowed is a figure of a Step; nearest: time_s
    """
    if not isinstance(value, str) or value not in known:
        near = nearest(value if isinstance(value, str) else "", known)
        refuse(name, value, f"allowed is {what}; nearest: {', '.join(near)}")
    return value


def chosen(name: str, value: Any, table: Mapping[str, T]) -> T:
    """Return the value that a table holds for one of its keys."""
    return table[choice(name, value, table)]


@overload
def instance(name: str, value: Any, kind: type[T], allowed: str) -> T: ...
@overload
def instance(name: str, value: Any, kind: UnionType | tuple[type, ...], allowed: str) -> Any: ...
def instance(name: str, value: Any, kind: Any, allowed: str) -> Any:
    """Return an object of one of the allowed types; `allowed` describes them in the error message."""
    if not isinstance(value, kind):
        refuse(name, value, f"allowed is {allowed}")
    return value


def listed(name: str, values: Any, kind: type | tuple[type, ...] = object) -> list:
    """Several things of a kind as a list, at least one; text is one thing and not several.

    Examples
    --------
    >>> listed("dtypes", ("bf16", "fp8"), str)
    ['bf16', 'fp8']
    >>> listed("dtypes", "bf16")
    Traceback (most recent call last):
    ValueError: dtypes='bf16': allowed is a list of at least one
    """
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes) and getattr(values, "shape", 1) != ()
    items = list(values) if several else []
    if not items or not all(isinstance(item, kind) for item in items):
        refuse(name, values, "allowed is a list of at least one")
    return items


def integers(name: str, values: Any, low: int = 1) -> list[int]:
    """Whole numbers as a list, at least one.

    Examples
    --------
    >>> integers("tps", [8, 16.0]), integers("tps", 4)
    ([8, 16], [4])
    """
    return [int(value) for value in np.ravel(numbers(name, values, low, 2**53, whole=True))]


def together(**arrays: ArrayLike) -> None:
    """Refuse arrays whose shapes do not broadcast, naming two that stand against each other.

    Examples
    --------
    >>> together(batch=np.ones(2), context=np.ones(3))
    Traceback (most recent call last):
    ValueError: context of shape (3,) does not fit batch of shape (2,): sizes must be equal, or one of them 1
    """
    largest: dict[int, tuple[str, int]] = {}
    for name, array in arrays.items():
        for axis, size in enumerate(reversed(np.shape(array))):
            other, known = largest.get(axis, (name, 1))
            if size not in (1, known) and known != 1:
                raise ValueError(
                    f"{name} of shape {np.shape(array)} does not fit {other} of shape {np.shape(arrays[other])}: "
                    "sizes must be equal, or one of them 1"
                )
            if known == 1:
                largest[axis] = name, size
