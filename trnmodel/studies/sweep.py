"""Sweeps: categories are looped over, numbers broadcast."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.catalog.load import nearest

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd


def _is_numeric(values: Any) -> bool:
    return np.asarray(values).dtype.kind in "biuf"


def _listed(values: Any) -> list:
    is_list = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    return list(values) if is_list else [values]


def _check_names(function: Callable, grid: Mapping[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in grid:
        if name not in parameters:
            near = nearest(name, parameters)
            raise ValueError(f"grid: {name!r} is no argument of {function.__name__}; nearest: {near}")


def _columns(result: Any, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    if hasattr(result, "to_frame"):
        frame = result.to_frame()
        return {name: frame[name].to_numpy() for name in frame.columns}
    outputs = result if isinstance(result, Mapping) else {"value": result}
    return {name: np.broadcast_to(np.asarray(column), shape).ravel() for name, column in outputs.items()}


def _one_case(function: Callable, categories: dict[str, Any], numbers: dict[str, np.ndarray]) -> pd.DataFrame:
    """One call of `function`, its broadcast numbers flattened to rows beside its inputs."""
    import pandas as pd

    axes = dict(zip(numbers, np.ix_(*numbers.values()), strict=True)) if numbers else {}
    shape = tuple(len(values) for values in numbers.values())
    outputs = _columns(function(**categories, **axes), shape)
    inputs = {name: np.broadcast_to(axis, shape).ravel() for name, axis in axes.items()}
    labels = {name: getattr(value, "id", getattr(value, "name", value)) for name, value in categories.items()}
    rows = max((len(column) for column in outputs.values()), default=1)
    return pd.DataFrame({**labels, **inputs, **outputs}, index=range(rows))


def sweep(
    function: Callable, grid: Mapping[str, Any], executor: Executor | None = None, progress: bool = True
) -> pd.DataFrame:
    """Call a model over a grid and return a tidy table: one row a case, inputs beside outputs.

    Parameters
    ----------
    function : callable
        A broadcasting function that returns an array, a mapping of arrays, or a result with `.to_frame()`.
    grid : mapping
        Argument name to value or values. Numbers span broadcast axes of a single call; anything else (names, objects)
        is a category, and every combination of categories is one call.
    executor : concurrent.futures.Executor, optional
        Runs the calls; any executor with `.map` serves. Default: this thread.
    progress : bool
        Show a bar over the calls.

    Returns
    -------
    table : pandas.DataFrame
        Row order is that of the grid: categories outermost, the last number fastest.

    Raises
    ------
    ValueError
        A grid name that is no argument of the function.

    Examples
    --------
    >>> def rate(chip, intensity):
    ...     return {"doubled": 2 * intensity}
    >>> sweep(rate, {"chip": ["a", "b"], "intensity": [1.0, 3.0]}, progress=False).doubled.tolist()
    [2.0, 6.0, 2.0, 6.0]
    """
    import pandas as pd
    from tqdm.auto import tqdm

    _check_names(function, grid)
    numbers = {name: np.atleast_1d(values) for name, values in grid.items() if _is_numeric(values)}
    lists = {name: _listed(values) for name, values in grid.items() if name not in numbers}
    cases = [dict(zip(lists, combination, strict=True)) for combination in itertools.product(*lists.values())]
    run = executor.map if executor else map
    frames = run(_one_case, itertools.repeat(function), cases, itertools.repeat(numbers))
    return pd.concat(tqdm(frames, total=len(cases), disable=not progress, leave=False), ignore_index=True)
