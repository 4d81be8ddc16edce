"""What every result has: a tidy table, and a mark on points that cannot exist.

A result is a frozen, slotted dataclass of arrays, inputs beside outputs; what follows from the fields is a property:

    @dataclass(frozen=True, slots=True, eq=False, kw_only=True)
    class Answer(Result):
        REASONS: ClassVar[tuple[str, ...]] = ("more ranks than chips", "does not fit in memory")
        n_ranks: NDArray
        time_s: NDArray

    mask = reason_mask(n_ranks > chips, needed_bytes > hbm_bytes)
    Answer(n_ranks=n_ranks, **blank(mask, time_s=time_s), reason_mask=mask)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from html import escape
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, flag, number, one_of, refuse, text
from trnmodel.quantities import Quantity, quantity
from trnmodel.units import format_figure, format_within, spread_of, title_of

if TYPE_CHECKING:
    import pandas as pd

SCALES = 1e-18, 1e18  # of units in which a figure is printed
CARD_LINES, CARD_WIDTH = 8, 118
MOST_COUNTED = 2**14  # value of a mask up to which all its values are counted
JUDGED = 4096  # points up to which a card says what they rest on
BASES = ("measured", "interpolated", "extrapolated", "ideal")  # from the firmest ground on
CALIBRATED = "calibrated"  # how the word begins of what rests on rows of a user's own: as firm as "interpolated"


def reason_mask(*impossible: ArrayLike) -> NDArray:
    """Bit mask with bit i set where the i-th condition holds; 0 is a point that can exist.

    Examples
    --------
    >>> reason_mask([True, False, True], [False, False, True])
    array([1, 0, 3])
    """
    bits = [np.asarray(condition, dtype=bool) * 2**bit for bit, condition in enumerate(impossible)]
    return np.asarray(sum(bits))[()]


def blank(mask: ArrayLike, **numbers: ArrayLike) -> dict[str, NDArray]:
    """Return the numbers with NaN wherever the mask is not 0.

    Examples
    --------
    >>> blank([0, 1], time_s=2.0)
    {'time_s': array([ 2., nan])}
    """
    return {name: np.where(np.equal(mask, 0), value, np.nan)[()] for name, value in numbers.items()}


class Texts(NamedTuple):
    """Text of many points, few of which differ: the place of each point's text in a list."""

    places: NDArray
    texts: tuple[str, ...]

    @property
    def each(self) -> NDArray | str:
        """The text of each point."""
        return np.asarray(self.texts, dtype=object)[self.places]


def texts_of(mask: ArrayLike, names: tuple[str, ...]) -> Texts:
    """Return the text of a bit mask: the names of its bits joined by "; ", empty for 0.

    Examples
    --------
    >>> texts_of([3, 0], ("too big", "too slow"))
    Texts(places=array([1, 0], dtype=int16), texts=('', 'too big; too slow'))
    """
    masks = np.asarray(mask)
    masks = masks if masks.dtype.kind == "i" else masks.astype(int)
    most = masks.max(initial=0)
    if not most:
        return Texts(np.broadcast_to(np.int16(0), masks.shape), ("",))
    if most < MOST_COUNTED:  # counts of all masks are quicker than a sort of the points
        counts = np.bincount(masks.ravel())
        masks_seen = np.flatnonzero(counts)
        rank = np.zeros(counts.shape, dtype=np.int16)
        rank[masks_seen] = np.arange(len(masks_seen))
        places = rank[masks]
    else:
        masks_seen, places = np.unique(masks, return_inverse=True)
    texts = tuple("; ".join(name for bit, name in enumerate(names) if int(one) >> bit & 1) for one in masks_seen)
    return Texts(np.reshape(places, np.shape(mask)), texts)


def text_of(mask: ArrayLike, names: tuple[str, ...]) -> NDArray | str:
    """Text of a bit mask: the names of its bits joined by "; ", empty for 0; one text for one point.

    Examples
    --------
    >>> text_of(3, ("too big", "too slow"))
    'too big; too slow'
    """
    return texts_of(mask, names).each


def tidy(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as one pandas DataFrame; a row that holds arrays stands for as many, with what is single repeated.

    Examples
    --------
    >>> tidy([{"chip": "a", "batch": np.array([1, 2])}, {"chip": "b", "batch": 3}]).chip.tolist()
    ['a', 'a', 'b']
    """
    import pandas as pd

    every = list(rows)
    if not any(value is None or np.ndim(value) for row in every for value in row.values()):
        return pd.DataFrame(every)
    frames = [pd.DataFrame(row if any(map(np.ndim, row.values())) else [row]) for row in every]
    return pd.concat(frames, ignore_index=True)


def stacked(frames: Mapping[Any, Any], name: str) -> pd.DataFrame:
    """DataFrames below each other, with their keys as a column of that name.

    Examples
    --------
    >>> stacked({"a": tidy([{"x": 1}]), "b": tidy([{"x": 2}])}, "of").values.tolist()
    [[1, 'a'], [2, 'b']]
    """
    import pandas as pd

    return pd.concat([frame.assign(**{name: label}) for label, frame in frames.items()], ignore_index=True)


class Card:
    """Base of what shows itself as the lines of its `card`; in a notebook the first one is bold."""

    __slots__ = ()

    def card(self) -> list[str]:
        """Return the answer on a few lines."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(self.card())

    def _repr_html_(self) -> str:
        first, *more = map(escape, self.card())
        return f"<div><b>{first}</b>{''.join(f'<br>{line}' for line in more)}</div>"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Result(Card):
    """Base of every result: fields broadcast against each other, `reason_mask` marks points that cannot exist."""

    REASONS: ClassVar[tuple[str, ...]] = ()
    ON_DEMAND: ClassVar[tuple[str, ...]] = ()
    UNBANDED: ClassVar[tuple[str, ...]] = ()
    reason_mask: NDArray

    def __init_subclass__(cls, **more: Any) -> None:
        if "__repr__" not in vars(cls):  # before the dataclass writes one of its own
            cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return "\n  ".join(self.card())

    def card(self) -> list[str]:
        """Return the result on a few lines: the answer with unit, band and basis, then what it was asked and made of.

        Examples
        --------
        >>> import trnmodel as tm
        >>> ask = {"batch": 1, "context": 2048, "efficiencies": "ideal"}
        >>> for line in tm.decode_step("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=2), **ask).card()[:2]:
        ...     print(line)
        Step: time 18.63 ms (ideal)
        software stack: ideal, model: llama-3.1-8b, system: trn1.32xlarge, bound by: memory
        """
        points, bad = np.size(self.reason_mask), int(np.count_nonzero(self.reason_mask))
        parts = [", ".join([*([f"{points} points"] if points > 1 else []), *self._answer()])]
        if bad:
            why = "; ".join(sorted(set(np.ravel(self.reason)) - {""}))
            parts.append(f"{bad} cannot exist: {why}" if points > 1 else f"cannot exist: {why}")
        head = ": ".join(filter(None, (type(self).__name__, "; ".join(filter(None, parts)))))
        return card_of(head, self._described())

    def _answer(self) -> list[str]:
        """Return the main figure in words; a result that has none says nothing."""
        return []

    def _described(self) -> tuple[list[str], list[str], list[str]]:
        """Print fields and the class's own properties: what is text, numbers without a unit, figures with one."""
        names = [field.name for field in fields(self) if field.name != "reason_mask"]
        names += [name for name, item in vars(type(self)).items() if isinstance(item, property) and name[0] != "_"]
        return describe(self, [name for name in names if name != getattr(self, "FIGURE", "")])

    @property
    def valid(self) -> NDArray:
        """Whether each point can exist."""
        return np.equal(self.reason_mask, 0)

    @property
    def reason(self) -> NDArray | str:
        """Why each point cannot exist; empty where it can."""
        return text_of(self.reason_mask, self.REASONS)

    def require_valid(self) -> Self:
        """Return the result, or raise ValueError with the reasons if any point cannot exist."""
        if not np.all(self.valid):
            bad = np.count_nonzero(~np.asarray(self.valid))
            reasons = sorted(set(np.ravel(self.reason)) - {""})
            raise ValueError(f"{bad} of {np.size(self.valid)} points cannot exist: {'; '.join(reasons)}")
        return self

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Tidy pandas DataFrame: one row a point, inputs beside outputs, last whether it is valid and why not.

        With `bands`, which take longer, the ends of the main figure's interval are columns of their own.

        Fields and properties broadcast to their common shape and are laid out in C order. A spec shows its id; whatever
        is neither number, text nor spec (a breakdown, say) is left out.
        """
        import pandas as pd

        cells = columns_of(self, flag("bands", bands))
        shape = np.broadcast_shapes(*(np.shape(_places(cell)) for cell in cells.values()))
        every = {
            name: np.asarray(cell.each, dtype=object) if isinstance(cell, Texts) else cell
            for name, cell in cells.items()
        }
        return pd.DataFrame({name: np.broadcast_to(cell, shape).ravel() for name, cell in every.items()})

    def _coded(self) -> dict[str, Any]:
        """Return columns of text that are made together, or of few texts; others are read by their names."""
        return {"reason": texts_of(self.reason_mask, self.REASONS)}


def columns_of(result: Result, bands: bool = False) -> dict[str, NDArray | Texts]:
    """Return the columns of a result's table, each of its own shape; with `bands` also what is made on demand."""
    names = [name for name in _columns(_kind(result)) if bands or name not in result.ON_DEMAND]
    coded = result._coded()
    columns = {name: coded[name] if name in coded else _cells(getattr(result, name)) for name in names}
    return {name: cell for name, cell in columns.items() if cell is not None}


def _places(cell: NDArray | Texts) -> NDArray:
    """Return an array of a column's shape."""
    return cell.places if isinstance(cell, Texts) else cell


class Basis(NamedTuple):
    """What numbers rest on: a word of `BASES`, and along which axes they leave the rows that were measured.

    `width` is how far a measurement may lie from them: half the width of the logarithm's 90 % interval. Where errors of
    one sign are larger, `tails` are the half-widths below and above of a time.
    """

    word: NDArray | str
    reason: NDArray | str = ""
    width: NDArray | float = 0.0
    tails: tuple[NDArray | float, NDArray | float] | None = None

    @property
    def sides(self) -> tuple[NDArray | float, NDArray | float]:
        """Half-widths below and above of a time."""
        return (self.width, self.width) if self.tails is None else self.tails


def firmness(word: str) -> int:
    """Return the place of a basis among `BASES`; what was calibrated on a user's rows is as firm as an interpolation.

    Examples
    --------
    >>> firmness("measured"), firmness("calibrated on 3 rows of yours")
    (0, 1)
    """
    return BASES.index("interpolated" if word.startswith(CALIBRATED) else word)


def weakest(parts: Mapping[str, Basis]) -> Basis:
    """Return the basis of what is made of parts: that of the weakest, with the reasons of each and the widest width.

    Examples
    --------
    >>> weakest({"prefill": Basis("ideal"), "decode": Basis("extrapolated", "chip: never served")})[:2]
    ('ideal', 'decode chip: never served')
    """
    words = np.stack(np.broadcast_arrays(*(np.asarray(part.word, dtype=object) for part in parts.values())))
    places = np.vectorize(firmness)(words).argmax(axis=0)
    word = np.take_along_axis(words, places[None], axis=0)[0]
    reasons = [np.asarray(part.reason, dtype=object) for part in parts.values()]
    reason = np.vectorize(_joined(tuple(parts)), otypes=[object])(*reasons)[()]
    width, *tails = (
        np.max(np.broadcast_arrays(*some), axis=0)[()]
        for some in zip(*((part.width, *part.sides) for part in parts.values()), strict=True)
    )
    even = all(part.tails is None for part in parts.values())
    return Basis(word, reason, width, None if even else (tails[0], tails[1]))


def _joined(names: tuple[str, ...]) -> Callable[..., str]:
    """Return a function that joins reasons, once where all parts have the same."""

    def join(*reasons: str) -> str:
        if len(set(reasons)) == 1:
            return reasons[0]
        return "; ".join(f"{name} {reason}" for name, reason in zip(names, reasons, strict=True) if reason)

    return join


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Grounded(Result):
    """Base of every result that says what it rests on, and how far a measurement may lie from it.

    A class answers both when it is asked, from the question that it holds: `judge` gives the basis, `_widths` the
    half-widths below and above of a figure's logarithm where they are not those of the basis. `low` and `high` are the
    ends of the class's `FIGURE`. `UNBANDED` are numbers without a band: what the question set, and what only follows
    from that. `PARTS` are other parts of the measured rows whose widths a class can give.
    """

    FIGURE: ClassVar[str] = "time_s"
    PARTS: ClassVar[tuple[str, ...]] = ()
    ON_DEMAND: ClassVar[tuple[str, ...]] = ("low", "high")

    def judge(self) -> Basis:
        """Return what the numbers rest on, with its reason and widths."""
        raise NotImplementedError

    def ground(self) -> str:
        """Return the basis of one point as a sentence tells it: the word, with the reason where there is one.

        Raises ValueError for a result of several points: each has its own in `basis` and `basis_reason`.
        """
        basis = self.judge()
        if np.size(basis.word) > 1:
            raise ValueError(f"ground() tells of one point, not of {np.size(basis.word)}; `basis` has that of each")
        return f"{basis.word} ({basis.reason})" if basis.reason else f"{basis.word}"

    @property
    def basis(self) -> NDArray | str:
        """What the numbers rest on: "measured", "interpolated", "extrapolated", "ideal" or "calibrated on" own rows."""
        return self.judge().word

    @property
    def basis_reason(self) -> NDArray | str:
        """Along which axes they leave what was measured; empty where they do not."""
        return self.judge().reason

    @property
    def low(self) -> NDArray:
        """Lower end of the 90 % interval of the result's main figure."""
        return self.ends(self.FIGURE)[0]

    @property
    def high(self) -> NDArray:
        """Upper end of the 90 % interval of the result's main figure."""
        return self.ends(self.FIGURE)[1]

    def _coded(self) -> dict[str, Any]:
        """Return columns of text that are made together, the basis and its reason among them."""
        basis = self.judge()
        return Result._coded(self) | {"basis": _cells(basis.word), "basis_reason": _cells(basis.reason)}

    def figures(self) -> list[str]:
        """Return the names of the figures that have a band."""
        names = (
            name for name in _columns(_kind(self)) if name not in self.ON_DEMAND and name in _bandable(_kind(self))
        )
        return [name for name in names if _is_number(getattr(self, name))]

    def figure(self, name: str) -> Any:
        """Return a figure that has a band, by its name.

        Raises ValueError with the nearest figures for any other name.

        Examples
        --------
        >>> import trnmodel as tm
        >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=2048)
        >>> step.figure("tyme_s")
        Traceback (most recent call last):
        ValueError: name='tyme_s': allowed is a figure of a Step that has a band; nearest: time_s, ...
        """
        value = getattr(self, name) if isinstance(name, str) and name in _bandable(_kind(self)) else None
        if not _is_number(value):
            one_of("name", name, self.figures(), f"a figure of a {type(self).__name__} that has a band")
        return value

    def widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Half-widths below and above of the logarithm of a figure; `part` names another part of the rows."""
        self.figure(name)
        if choice("part", part, ("", *self.PARTS)):
            return self._widths(name, part=part)
        return self._widths(name)

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a figure whose name is checked."""
        return self.judge().sides

    def _answer(self) -> list[str]:
        """Return the class's figure with its interval for one point, else its range; and what it rests on."""
        value, called = np.asarray(getattr(self, self.FIGURE)), _quantity(_kind(self), self.FIGURE)
        if np.all(value != value):
            return []
        title, basis = in_sentence(called.title), ""
        if value.size <= JUDGED:
            basis = ", ".join(sorted(set(np.ravel(self.basis)), key=firmness))
        if value.size == 1:
            low, high = (np.asarray(end).item() for end in self.ends(self.FIGURE))
            return [f"{title} {format_figure(value.item(), low, high, called.unit, basis, title)}"]
        spread = spread_of(value[value == value].tolist(), called.unit, title=title)
        return [f"{title} {spread}", *([basis] if basis else [])]

    def ends(self, name: str) -> tuple[NDArray, NDArray]:
        """Low and high of a time, a size or a rate of the result: nine of ten measurements are to lie between them.

        Examples
        --------
        >>> import trnmodel as tm
        >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=2048)
        >>> low, high = step.ends("tokens_per_s")
        >>> bool(low < step.tokens_per_s < high), bool(step.low < step.time_s < step.high)
        (True, True)
        """
        value, (below, above) = self.figure(name), self._widths(name)
        if "per_s" in name:  # slow where the time is long
            below, above = above, below
        return value * np.exp(-below), value * np.exp(above)

    def banded(self, name: str) -> dict[str, Any]:
        """Return a figure with its ends as columns of a table: `name`, and it with `_low` and `_high` after it."""
        low, high = self.ends(name)
        return {name: self.figure(name), f"{name}_low": low, f"{name}_high": high}

    def in_words(self, name: str, unit: str = "", basis: str = "", scale: float = 1.0) -> str:
        """Return a figure of one point with its band, in a unit that is `scale` of its own."""
        scale, unit, basis = number("scale", scale, *SCALES), text("unit", unit), text("basis", basis)
        figure, ends = self.figure(name), self.ends(name)
        if np.size(figure) > 1:
            refuse("name", name, f"allowed is a figure of one point, not of {np.size(figure)}")
        value, low, high = (np.asarray(x).item() / scale for x in (figure, *ends))
        return format_within(value, low, high, unit, basis)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Judged(Grounded):
    """Base of every result of a software stack."""

    stack: Any  # with an `id`, and the `kind` of stack that it is

    @property
    def stack_kind(self) -> str:
        """Whether the stack is "ideal", "public" software or "given" with the call."""
        return self.stack.kind


def alike(table: pd.DataFrame, mixed: bool = False) -> pd.DataFrame:
    """Return a table; raise ValueError where its systems are on different kinds of stack, unless they may be `mixed`.

    A system is what a column ending in "system" names; two kinds of stack are a comparison as long as every system has
    both.

    Examples
    --------
    >>> rows = [{"system": "a", "stack_kind": "ideal"}, {"system": "b", "stack_kind": "public"}]
    >>> alike(tidy(rows))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: mixed=False: systems are on different kinds of stack (a: ideal, b: public); give them the same, such ...
    """
    who = [name for name in table if str(name).endswith("system")]
    if mixed or not who or "stack_kind" not in table:
        return table
    kinds: dict[tuple[str, ...], set[str]] = {}
    for *names, kind in table[[*who, "stack_kind"]].drop_duplicates().itertuples(index=False):
        kinds.setdefault(tuple(map(str, names)), set()).add(kind)
    if len(set(map(frozenset, kinds.values()))) > 1:
        stacks = ", ".join(f"{' and '.join(names)}: {' and '.join(sorted(some))}" for names, some in kinds.items())
        raise ValueError(
            f"mixed=False: systems are on different kinds of stack ({stacks}); give them the same, such as "
            "efficiencies='ideal', or mixed=True"
        )
    return table


def _kind(result: Any) -> Any:
    """Return the class of a result, as a key."""
    return type(result)


@cache
def _quantity(kind: Any, name: str) -> Quantity:
    """Return what a field of a kind of result is called."""
    called = quantity(name, *(base.__name__ for base in kind.__mro__))
    return called if called.title else called._replace(title=title_of(name))


def card_of(head: str, lines: Iterable[list[str]]) -> list[str]:
    """Return a card of at most `CARD_LINES` lines: its head, then the items of each list."""
    rows = [row for items in lines for row in _wrapped(items)]
    if len(rows) >= CARD_LINES:
        rows[CARD_LINES - 2] = shorten(rows[CARD_LINES - 2], CARD_WIDTH - 4, placeholder="") + " ..."
    return [shorten(head, 2 * CARD_WIDTH, placeholder=" ..."), *rows[: CARD_LINES - 1]]


def describe(thing: Any, names: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Print the named fields of a result or a spec: what is text, numbers without a unit, figures with one."""
    lines: tuple[list[str], list[str], list[str]] = ([], [], [])
    for name in names:
        value, called = getattr(thing, name), _quantity(_kind(thing), name)
        cell = _cells(value)
        if isinstance(value, Mapping) and not isinstance(thing, Result):
            texts = {key: _print_cells(np.asarray(one), called) for key, one in value.items() if _is_number(one)}
            pairs = (f"{shown} in {key}" if key else shown for key, shown in texts.items() if shown)
            text, kind = ", ".join(pair.replace(" ", "\xa0") for pair in pairs), "f"
        elif cell is not None and cell.size:
            text, kind = _print_cells(cell, called), cell.dtype.kind
        else:
            continue
        if text and text not in (name, "-"):
            place = 0 if kind in "Ob" else 2 if called.unit else 1
            lines[place].append(f"{in_sentence(called.title)}: {text}")
    return lines


def _wrapped(items: list[str]) -> list[str]:
    """Return items as lines of a card; one of up to half a line is not broken."""
    whole = (item.replace(" ", "\xa0") if len(item) <= CARD_WIDTH // 2 else item for item in items)
    return [row.replace("\xa0", " ") for row in wrap(", ".join(whole), CARD_WIDTH, break_on_hyphens=False)]


def in_sentence(title: str) -> str:
    """Return a title as it stands inside a sentence: small, unless it is a name or an abbreviation.

    >>> in_sentence("Time to first token"), in_sentence("TTFT, median"), in_sentence("Young's interval")
    ('time to first token', 'TTFT, median', "Young's interval")
    """
    first = title.partition(" ")[0]
    return title if first.endswith("'s") or first[1:] != first[1:].lower() else title[:1].lower() + title[1:]


def _print_cells(cells: NDArray, called: Quantity) -> str:
    """Print the values of a field: one, or the first of several, or the least and the most; empty for none."""
    if cells.dtype.kind == "b":
        return " and ".join(dict.fromkeys("yes" if cell else "no" for cell in cells.flat))
    if cells.dtype == object:
        texts = [text for text in dict.fromkeys(map(str, cells.flat)) if text]
        return ", ".join(texts[:3]) + (" ..." if len(texts) > 3 else "")
    known = np.unique(cells[cells == cells]).astype(float).tolist()
    digits = 3 if called.unit else 9 if all(x % 1 == 0 for x in known) else 4
    return spread_of(known, called.unit, digits, called.title) if known else ""


@cache
def _bandable(kind: Any) -> frozenset[str]:
    """Names of a kind of result that may be of figures with a band."""
    return frozenset(_columns(kind)) - {"low", "high", "valid", *kind.UNBANDED}


def _is_number(value: Any) -> bool:
    cell = _cells(value)
    return cell is not None and cell.dtype.kind in "iuf"


@cache
def _columns(kind: Any) -> tuple[str, ...]:
    """Fields of a kind of result and its properties, in the order of a table's columns."""
    names = [field.name for field in fields(kind) if field.name != "reason_mask"]
    for base in kind.__mro__:
        names += [name for name, item in vars(base).items() if isinstance(item, property)]
    return tuple(names)


def _cells(value: Any) -> NDArray | None:
    label = getattr(value, "id", value)
    if isinstance(label, str):
        return np.asarray(label, dtype=object)
    return np.asarray(label) if isinstance(label, np.ndarray | np.generic | float | int) else None
