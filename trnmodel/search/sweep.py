"""Sweeps: categories are looped over, numbers broadcast."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import nearest, refuse, shown
from trnmodel.declared import Checked, Flag, declare
from trnmodel.result import alike

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

MOST_POINTS = 10**8
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
        found = list(values)
    else:  # an array or a Series lists its items; one of no dimension is its item
        found = values.tolist() if hasattr(values, "tolist") else values
        found = found if isinstance(found, list) else [found]
    if not found:
        refuse(f"grid[{shown(name)}]", values, "allowed is at least one value")
    return found


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


def _flat(name: Any, column: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.broadcast_to(np.asarray(column), shape).ravel()
    except ValueError:
        found = shown(getattr(column, "shape", column))
    raise ValueError(f"function: {shown(name)} of its answer, {found}, does not fit numbers of the grid in {shape}")


def _columns(result: Any, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    if result is None:
        refuse("function", result, "its answer may be numbers, a mapping of them, or a result with .to_frame()")
    if hasattr(result, "to_frame"):
        frame = result.to_frame()
        return {name: frame[name].to_numpy() for name in frame.columns}
    outputs = result if isinstance(result, Mapping) else {"value": result}
    return {name: _flat(name, column, shape) for name, column in outputs.items()}


def _one_case(function: Callable, categories: dict[str, Any], numbers: dict[str, np.ndarray]) -> pd.DataFrame:
    """One call of `function`, its broadcast numbers flattened to rows beside its inputs."""
    import pandas as pd

    axes = dict(zip(numbers, np.ix_(*numbers.values()), strict=True)) if numbers else {}
    shape = tuple(len(values) for values in numbers.values())
    outputs = _columns(function(**categories, **axes), shape)
    rows = max([math.prod(shape), *map(len, outputs.values())])
    columns = {name: np.broadcast_to(axis, shape).ravel() for name, axis in axes.items()} | outputs
    for name, column in columns.items():
        if len(column) not in (1, rows):
            raise ValueError(f"function: {len(column)} rows of {shown(name)} for {rows} points of the grid")
        columns[name] = np.broadcast_to(column, rows)
    labels = {name: getattr(value, "id", getattr(value, "name", value)) for name, value in categories.items()}
    return pd.DataFrame({name: [label] * rows for name, label in labels.items()} | columns, index=range(rows))


@declare(
    passes_on=True,
    function=Checked("a function", {}),
    grid=Checked("a mapping of arguments to their values", {"type": "object"}),
    executor=Checked("an executor with .map, such as those of concurrent.futures", {}),
    progress=Flag(),
    mixed=Flag(),
)
def sweep(
    function: Callable,
    grid: Mapping[str, Any],
    executor: Executor | None = None,
    progress: bool = True,
    mixed: bool = False,
) -> pd.DataFrame:
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
        Runs the calls; any executor with `.map` serves. Default: this thread. [-]
    progress : bool
        Show a bar over the calls. [-]
    mixed : bool
        Whether systems may stand beside each other on different kinds of stack, such as an ideal and a public one. [-]

    Returns
    -------
    table : pandas.DataFrame
        Row order is that of the grid: categories outermost, the last number fastest.

    Raises
    ------
    ValueError
        The grid does not name the arguments of the function, has no values or too many, or an answer does not fit it;
        its systems are on different kinds of stack.

    Examples
    --------
    >>> def rate(chip, intensity):
    ...     return {"doubled": 2 * intensity}
    >>> sweep(rate, {"chip": ["a", "b"], "intensity": [1.0, 3.0]}, progress=False).doubled.tolist()
    [2.0, 6.0, 2.0, 6.0]
    """
    import pandas as pd
    from tqdm.auto import tqdm

    _checked(function, grid)
    if isinstance(executor, type) or not (executor is None or callable(getattr(executor, "map", None))):
        refuse("executor", executor, "allowed is an executor with .map, such as those of concurrent.futures")
    numbers = {name: np.atleast_1d(values) for name, values in grid.items() if _is_numeric(values)}
    lists = {name: _listed(name, values) for name, values in grid.items() if name not in numbers}
    points = math.prod(map(len, numbers.values())) * math.prod(map(len, lists.values()))
    if points > MOST_POINTS:
        raise ValueError(f"grid: {points} points; allowed are up to {MOST_POINTS}")
    cases = [dict(zip(lists, combination, strict=True)) for combination in itertools.product(*lists.values())]
    run = map if executor is None else executor.map
    frames = run(_one_case, itertools.repeat(function), cases, itertools.repeat(numbers))
    table = pd.concat(tqdm(frames, total=len(cases), disable=not progress, leave=False), ignore_index=True)
    return alike(table, mixed)
