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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd


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
    """Give the numbers back with NaN wherever the mask is not 0.

    Examples
    --------
    >>> blank([0, 1], time_s=2.0)
    {'time_s': array([ 2., nan])}
    """
    return {name: np.where(np.equal(mask, 0), value, np.nan)[()] for name, value in numbers.items()}


def words(mask: ArrayLike, names: tuple[str, ...]) -> NDArray | str:
    """Text of a bit mask: the names of its bits joined by "; ", empty for 0; one text for one point.

    Examples
    --------
    >>> words(3, ("too big", "too slow"))
    'too big; too slow'
    """
    masks, places = np.unique(np.asarray(mask), return_inverse=True)
    texts = ["; ".join(name for bit, name in enumerate(names) if int(value) >> bit & 1) for value in masks]
    return np.asarray(texts, dtype=object)[np.reshape(places, np.shape(mask))]


def tidy(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as one pandas DataFrame; a row that holds arrays stands for as many, with what is single repeated.

    Examples
    --------
    >>> tidy([{"chip": "a", "batch": np.array([1, 2])}, {"chip": "b", "batch": 3}]).chip.tolist()
    ['a', 'a', 'b']
    """
    import pandas as pd

    frames = [pd.DataFrame(row if any(map(np.ndim, row.values())) else [row]) for row in rows]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def stacked(frames: Mapping[Any, Any], name: str) -> pd.DataFrame:
    """DataFrames below each other, with their keys as a column of that name.

    Examples
    --------
    >>> stacked({"a": tidy([{"x": 1}]), "b": tidy([{"x": 2}])}, "of").values.tolist()
    [[1, 'a'], [2, 'b']]
    """
    import pandas as pd

    return pd.concat([frame.assign(**{name: label}) for label, frame in frames.items()], ignore_index=True)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Result:
    """Base of every result: fields broadcast against each other, `reason_mask` marks points that cannot exist."""

    REASONS: ClassVar[tuple[str, ...]] = ()
    reason_mask: NDArray

    @property
    def valid(self) -> NDArray:
        """Whether each point can exist."""
        return np.equal(self.reason_mask, 0)

    @property
    def reason(self) -> NDArray | str:
        """Why each point cannot exist; empty where it can."""
        return words(self.reason_mask, self.REASONS)

    def require_valid(self) -> Self:
        """Give the result back, or raise ValueError with the reasons if any point cannot exist."""
        if not np.all(self.valid):
            bad = np.count_nonzero(~np.asarray(self.valid))
            reasons = sorted(set(np.ravel(self.reason)) - {""})
            raise ValueError(f"{bad} of {np.size(self.valid)} points cannot exist: {'; '.join(reasons)}")
        return self

    def to_frame(self) -> pd.DataFrame:
        """Tidy pandas DataFrame: one row a point, inputs beside outputs, last whether it is valid and why not.

        Fields and properties broadcast to their common shape and are laid out in C order. A spec shows its id; whatever
        is neither number, text nor spec (a breakdown, say) is left out.
        """
        import pandas as pd

        names = [field.name for field in fields(self) if field.name != "reason_mask"]
        for kind in type(self).__mro__:
            names += [name for name, item in vars(kind).items() if isinstance(item, property)]
        found = {name: _cells(getattr(self, name)) for name in names}
        cells = {name: cell for name, cell in found.items() if cell is not None}
        shape = np.broadcast_shapes(*(cell.shape for cell in cells.values()))
        return pd.DataFrame({name: np.broadcast_to(cell, shape).ravel() for name, cell in cells.items()})


def _cells(value: Any) -> NDArray | None:
    label = getattr(value, "id", value)
    if isinstance(label, str):
        return np.asarray(label, dtype=object)
    return np.asarray(label) if isinstance(label, np.ndarray | np.generic | float | int) else None
