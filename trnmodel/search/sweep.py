"""Sweeps: categories are looped over, numbers broadcast."""

from __future__ import annotations

import inspect
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import nearest, refuse, shown
from trnmodel.declared import Checked, Flag, Integer, Text, declare
from trnmodel.search.tables import (
    ROWS,
    Column,
    Kinds,
    Piece,
    Table,
    checked_path,
    columns_from,
    labels_of,
    piece_of,
    write,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

T = TypeVar("T")
MOST_POINTS = 10**8
HELD = 2**20  # points of a call whose answers are held by this process
AHEAD = 8  # calls that an executor has at a time, twice, where their answers are not held
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_numeric(values: Any) -> bool:
    """Whether values are one number or a flat list of them; what is ragged or nested is a list of categories."""
    try:
        array = np.asarray(values)
    except ValueError:
        return False
    return array.dtype.kind in "iuf" and array.ndim <= 1 and array.size > 0


def _listed(name: str, values: Any) -> list:
    """Return the values of an argument: the items of a list, tuple, range, array or Series, or else the one value."""
    if isinstance(values, Set | Iterator):
        refuse(
            f"grid[{shown(name)}]", values, "allowed are one value, or values in a list, a range, an array, a Series"
        )
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        several = list(values)
    else:  # an array or a Series lists its items; one of no dimension is its item
        several = values.tolist() if hasattr(values, "tolist") else values
        several = several if isinstance(several, list) else [several]
    if not several:
        refuse(f"grid[{shown(name)}]", values, "allowed is at least one value")
    return several


def _checked(function: Callable, grid: Mapping[str, Any]) -> None:
    """Refuse a function whose arguments have no names, and names of the grid that are not those of its arguments."""
    if not isinstance(grid, Mapping) or not grid or not all(isinstance(name, str) for name in grid):
        refuse("grid", grid, "allowed is a mapping of names of arguments to values, at least one")
    if not callable(function):
        refuse("function", function, "allowed is a function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C do not say
        refuse("function", function, "allowed is a function whose arguments have names")
    called = shown(getattr(function, "__name__", type(function).__name__))
    named = [p.name for p in parameters if p.kind in NAMED]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in grid:
            if name not in named:
                raise ValueError(f"grid: {shown(name)} is no argument of {called}; nearest: {nearest(name, named)}")
    missing = [p.name for p in parameters if p.default is p.empty and p.kind not in UNNAMED and p.name not in grid]
    if missing:
        raise ValueError(f"grid: arguments {missing} of {called} are missing")


class Job(NamedTuple):
    """A call: the function, a value for each category, and the numbers of a part of the grid by name.

    `first` is the row of the grid that its first point is. `apart` is whether the numbers are points by
    themselves, and not axes that are crossed.
    """

    function: Callable
    categories: dict[str, Any]
    labels: dict[str, Column]
    numbers: dict[str, NDArray]
    first: int = 0
    apart: bool = False
    bands: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its points."""
        sizes = tuple(len(values) for values in self.numbers.values())
        return sizes[:1] if self.apart else sizes

    @property
    def axes(self) -> dict[str, NDArray]:
        """Its numbers as the function takes them."""
        crossed = self.numbers and not self.apart
        return dict(zip(self.numbers, np.ix_(*self.numbers.values()), strict=True)) if crossed else self.numbers

    def ask(self) -> Piece:
        """Call the function, and return its numbers and its answer side by side."""
        axes, shape = self.axes, self.shape
        answers = columns_from(self.function(**self.categories, **axes), shape, self.bands)
        inputs = {name: Column(axis, shape) for name, axis in axes.items()}
        return piece_of(inputs | answers, math.prod(shape))

    def labelled(self, piece: Piece) -> Piece:
        """Return what the function answered beside the values of the categories."""
        return piece._replace(columns=self.labels | piece.columns)

    def screen(self, by: str, sign: float, most: int) -> tuple[NDArray, NDArray]:
        """Return the best of its points, the first of equal ones first: their values times a sign, and their rows."""
        answer = columns_from(self.function(**self.categories, **self.axes), self.shape, False)
        points = math.prod(self.shape)
        numeric = [name for name, column in answer.items() if column.kind == "number"]
        if by not in numeric:
            raise ValueError(
                f"{EXTREMES[sign]}: {shown(by)} is no number of the answer; nearest: {nearest(by, numeric)}"
            )
        value = sign * piece_of(answer, points).columns[by].spread(points)
        if len(value) != points:
            raise ValueError(f"{EXTREMES[sign]}: {len(value)} rows for {points} points of the grid")
        places = best_of(value, most)
        return value[places], self.first + places


EXTREMES = {1.0: "least", -1.0: "most"}


def best_of(values: NDArray, most: int) -> NDArray:
    """Return the places of the least values in order, the first of equal ones first; NaN has no place.

    Examples
    --------
    >>> best_of(np.array([3.0, np.nan, 1.0, 1.0, 2.0]), 3).tolist()
    [2, 3, 4]
    """
    places = np.flatnonzero(~np.isnan(values))
    if len(places) > most:
        known = values[places]
        last = np.partition(known, most - 1)[most - 1]
        under = known < last
        under[np.flatnonzero(known == last)[: most - np.count_nonzero(under)]] = True
        places = places[under]
    return places[np.argsort(values[places], kind="stable")]


def _split(job: Job, most: int) -> Iterator[Job]:
    """Yield the jobs of parts of a grid, in the order of its rows, each of about so many points at most."""
    shape, names = job.shape, list(job.numbers)
    inner = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axis = next((axis for axis, points in enumerate(inner) if points <= most), 0)
    if math.prod(shape) <= most:
        yield job
        return
    size = max(most // inner[axis], 1)
    outer = itertools.product(*map(range, shape[:axis]))
    for row, (place, start) in enumerate(itertools.product(outer, range(0, shape[axis], size))):
        cuts = [*(slice(i, i + 1) for i in place), slice(start, start + size)]
        part = {name: job.numbers[name][cut] for name, cut in zip(names, cuts, strict=False)}
        before = (row // -(-shape[axis] // size) * shape[axis] + start) * inner[axis]
        yield job._replace(numbers=job.numbers | part, first=job.first + before)


def _answers(executor: Any, ask: Callable[[Job], Any], jobs: Iterable[Job], all_at_once: bool) -> Iterator[Any]:
    """Yield the answers of jobs in their order; an executor has a few of them at a time, unless all are to be held."""
    jobs = [job._replace(labels={}) for job in jobs]  # labels stay here, since what travels is another object
    if executor is None:
        yield from map(ask, jobs)
    elif all_at_once:
        yield from executor.map(ask, jobs)
    else:
        waiting = deque[Iterable]()
        rest = iter(jobs)
        while some := list(itertools.islice(rest, AHEAD)):
            waiting.append(executor.map(ask, some))
            if len(waiting) > 1:
                yield from waiting.popleft()
        for answers in waiting:
            yield from answers


def _best(jobs: list[Job], executor: Any, by: str, sign: float, most: int, progress: bool) -> NDArray:
    """Return the rows of the grid that have the least, or the most, of a number of the answer, the best first."""
    ask = partial(Job.screen, by=by, sign=sign, most=most)
    values, rows = np.empty(0), np.empty(0, dtype=int)
    answers = _answers(executor, ask, jobs, all_at_once=False)
    for value, row in with_bar(answers, len(jobs), progress):
        values, rows = np.concatenate([values, value]), np.concatenate([rows, row])
        places = best_of(values, most)
        values, rows = values[places], rows[places]
    return rows


def _at_rows(whole: list[Job], rows: NDArray) -> tuple[list[Job], NDArray]:
    """Return the jobs of some rows of the grid, case by case, and the place of each row among their answers."""
    shape = whole[0].shape
    case, place = np.divmod(rows, math.prod(shape))
    order = np.argsort(case, kind="stable")
    jobs = []
    for one in np.unique(case):
        at = np.unravel_index(place[case == one], shape) if shape else ()
        numbers = {name: values[i] for (name, values), i in zip(whole[one].numbers.items(), at, strict=True)}
        jobs.append(whole[one]._replace(numbers=numbers, apart=True))
    return jobs, np.argsort(order, kind="stable")


@declare(
    passes_on=True,
    function=Checked("a function", {}),
    grid=Checked("a mapping of arguments to their values", {"type": "object"}),
    executor=Checked("an executor with .map, such as those of concurrent.futures", {}),
    progress=Flag(),
    mixed=Flag(),
    to=Checked("the path of a .parquet file", {"type": "string"}),
    least=Text(),
    most=Text(),
    rows=Integer(1, MOST_POINTS),
    bands=Flag(),
)
def sweep(
    function: Callable,
    grid: Mapping[str, Any],
    executor: Executor | None = None,
    progress: bool = True,
    mixed: bool = False,
    *,
    to: str | Path | None = None,
    least: str | None = None,
    most: str | None = None,
    rows: int = 1000,
    bands: bool = False,
) -> pd.DataFrame | Path:
    """Call a model over a grid and return a tidy table: one row a case, inputs beside outputs.

    Parameters
    ----------
    function : callable
        A broadcasting function that returns an array, a mapping of arrays, or a result with `.to_frame()`. What it
        raises is raised here. [-]
    grid : mapping
        Argument name to value or values. Numbers span broadcast axes of a single call; anything else (names, objects,
        yes and no) is a category, and every combination of categories is one call. At most 10^8 points. [-]
    executor : concurrent.futures.Executor, optional
        Runs the calls, each for a part of the grid: threads, processes, or a cluster, such as that of a Dask client by
        its `get_executor()`; any executor with `.map` serves. Default: this thread. [-]
    progress : bool
        Show a bar over the calls. [-]
    mixed : bool
        Whether systems may stand beside each other on different kinds of stack, such as an ideal and a public one. [-]
    to : str or pathlib.Path, optional
        A Parquet file that takes the rows as they are computed, in little memory; needs the extra `parquet`. The file
        is there when all rows are in it. [-]
    least, most : str, optional
        A number of the answer; the table then has only the `rows` points with the least or the most of it, the best
        first, and no point without it. The others are not held in memory. [-]
    rows : int
        How many points `least` or `most` leaves. [-]
    bands : bool
        Whether results show the ends of their interval, as of `.to_frame(bands=True)`; with `least` or `most` they are
        computed for the points that are left. [-]

    Returns
    -------
    table : pandas.DataFrame or pathlib.Path
        Row order is that of the grid: categories outermost, the last number fastest. Text is categorical. With `to`,
        the path of the file.

    Raises
    ------
    ValueError
        The grid does not name the arguments of the function, has no values or too many, or an answer does not fit it;
        its systems are on different kinds of stack; the file cannot be written there.

    Notes
    -----
    Without an executor, a file and a limit of rows, every combination of categories is a single call. Otherwise a call
    has up to 65,536 points, so that a function has to answer each point by itself, as all of this library do. Processes
    and clusters need a function that can be pickled, such as one of a module.

    Examples
    --------
    >>> def rate(chip, intensity):
    ...     return {"doubled": 2 * intensity}
    >>> sweep(rate, {"chip": ["a", "b"], "intensity": [1.0, 3.0]}, progress=False).doubled.tolist()
    [2.0, 6.0, 2.0, 6.0]
    """
    _checked(function, grid)
    checked_executor(executor)
    if least is not None and most is not None:
        refuse("most", most, "allowed is one of least and most")
    path = None if to is None else checked_path(to)
    whole, ordered = _jobs(function, grid, bands)
    by, sign = (most, -1.0) if least is None else (least, 1.0)
    points = len(whole) * math.prod(whole[0].shape)
    held = executor is None and path is None and by is None
    jobs = [part for job in whole for part in _split(job, HELD if held else ROWS)]
    if by is None:
        answers = _answers(executor, Job.ask, jobs, all_at_once=path is None)
        labelled = map(Job.labelled, jobs, with_bar(answers, len(jobs), progress))
        pieces = Kinds(mixed).passed(labelled)
        return _table(pieces, points, ordered) if path is None else write(pieces, path)
    best = _best(jobs, executor, by, sign, rows, progress)
    table = _rows_of(whole, best, ordered, mixed)
    return table if path is None else write([piece_of(columns_from(table, (), False), len(table))], path)


def checked_executor(executor: Any) -> None:
    """Refuse what is no executor, nor None."""
    if isinstance(executor, type) or not (executor is None or callable(getattr(executor, "map", None))):
        refuse("executor", executor, "allowed is an executor with .map, such as those of concurrent.futures")


def _table(pieces: Iterable[Piece], rows: int, ordered: list[str]) -> pd.DataFrame:
    """Return pieces, of so many rows together, as one table."""
    table = Table(rows)
    for piece in pieces:
        table.add(piece)
    return table.frame(ordered)


def with_bar(answers: Iterable[T], total: int, progress: bool) -> Iterable[T]:
    """Return answers with a bar that counts them."""
    from tqdm.auto import tqdm

    return tqdm(answers, total=total, disable=not progress, leave=False)


def _jobs(function: Callable, grid: Mapping[str, Any], bands: bool) -> tuple[list[Job], list[str]]:
    """Return a job for each combination of categories, and the names of these."""
    numbers = {name: np.atleast_1d(values) for name, values in grid.items() if _is_numeric(values)}
    lists = {name: _listed(name, values) for name, values in grid.items() if name not in numbers}
    points = math.prod(map(len, numbers.values())) * math.prod(map(len, lists.values()))
    if points > MOST_POINTS:
        raise ValueError(f"grid: {points} points; allowed are up to {MOST_POINTS}")
    labels = {name: labels_of(values) for name, values in lists.items()}
    each = math.prod(map(len, numbers.values()))
    jobs = []
    for i, places in enumerate(itertools.product(*(range(len(values)) for values in lists.values()))):
        at = dict(zip(lists, places, strict=True))
        categories = {name: lists[name][place] for name, place in at.items()}
        marks = {name: labels[name][place] for name, place in at.items()}
        jobs.append(Job(function, categories, marks, numbers, i * each, bands=bands))
    return jobs, list(lists)


def _rows_of(whole: list[Job], rows: NDArray, ordered: list[str], mixed: bool) -> pd.DataFrame:
    """Return the table of some rows of the grid in their order; without rows, its columns alone."""
    jobs, places = _at_rows(whole, rows if rows.size else np.zeros(1, dtype=int))
    table = _table(Kinds(mixed).passed(job.labelled(job.ask()) for job in jobs), max(rows.size, 1), ordered)
    return table.iloc[places if rows.size else []].reset_index(drop=True)
