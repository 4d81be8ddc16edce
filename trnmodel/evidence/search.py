"""Fits that end at the same answer on every machine: a line by its own normal equations, and soft-L1 least squares."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")
LOSS_SCALE = 0.1  # a logarithmic error from which on a row counts by its size, no longer by its square
STEP = 1e-5  # of a central difference: its square and the last bits over it are both below 1e-10
TOLERANCE = 1e-8
LARGEST = 3.0  # change of a logarithm


def line(x: ArrayLike, y: ArrayLike, weights: ArrayLike = 1.0) -> tuple[float, float]:
    r"""Return base and slope of the line through points by weighted least squares: two unknowns, two normal equations.

    .. math:: s = \frac{\sum w (x - \bar x)(y - \bar y)}{\sum w (x - \bar x)^2}, \qquad b = \bar y - s \bar x

    Parameters
    ----------
    x, y, weights : numeric
        Points, two of them at least with different x, and what each counts. [-]

    Returns
    -------
    base, slope : float
        In the unit of y, and of y over x. [-]

    Examples
    --------
    >>> line([1, 2, 3], [5, 7, 9])
    (3.0, 2.0)
    """
    x, y, w = np.broadcast_arrays(*(np.asarray(values, dtype=float) for values in (x, y, weights)))
    middle_x, middle_y = (w * x).sum() / w.sum(), (w * y).sum() / w.sum()
    slope = (w * (x - middle_x) * (y - middle_y)).sum() / (w * (x - middle_x) ** 2).sum()
    return float(middle_y - slope * middle_x), float(slope)


def constants(
    errors: Callable[[NDArray], Sequence[float] | NDArray],
    first: ArrayLike,
    low: ArrayLike = -LARGEST,
    high: ArrayLike = LARGEST,
) -> NDArray:
    """Positive constants that make logarithms of errors smallest in soft-L1, to the four digits that `data/` prints.

    The unknowns are logarithms counted from one at the start, since SciPy takes the length of its first step and its
    tolerance from their size: from zero, a start moved by 1e-14 ends the search at once. Differences are central with a
    fixed step, and only a step that changes nothing ends the search. That leaves 2e-8 of an answer open; what is beyond
    four digits tells of the machine and not of the rows.

    Parameters
    ----------
    errors : callable
        Logarithms of predicted over measured for an array of constants. [-]
    first : numeric
        Where the search starts; a zero stays. [-]
    low, high : numeric
        Least and largest change of a logarithm. [-]

    Returns
    -------
    values : numeric
        In the units of `first`. [-]

    Examples
    --------
    >>> constants(lambda c: np.log(c / [2.0, 0.125]), [1.0, 1.0]).tolist()
    [2.0, 0.125]
    """
    from scipy.optimize import least_squares

    first = np.asarray(first, dtype=float)
    least, most = (np.broadcast_to(1.0 + np.asarray(end), first.shape) for end in (low, high))

    def at(x: NDArray) -> NDArray:
        return np.asarray(errors(first * np.exp(x - 1.0)), dtype=float)

    def slopes(x: NDArray) -> NDArray:
        sides = [(np.maximum(x - step, least), np.minimum(x + step, most)) for step in STEP * np.eye(x.size)]
        return np.stack([(at(up) - at(down)) / (up - down).sum() for down, up in sides], axis=1)

    search = {"ftol": None, "gtol": None, "xtol": TOLERANCE, "x_scale": 0.1}
    start = np.clip(np.ones_like(first), least, most)
    best = least_squares(at, start, slopes, (least, most), loss="soft_l1", f_scale=LOSS_SCALE, **search)
    return np.array([float(f"{value:.4g}") for value in first * np.exp(best.x - 1.0)])


def room(names: Iterable[str], first: ArrayLike) -> NDArray:
    """Largest changes of logarithms of constants by their names: a share and an overlap end at one.

    Examples
    --------
    >>> room(["layer_s", "bubble_overlap"], [1e-5, 1.0]).tolist()
    [3.0, -0.0]
    """
    ends = [
        -np.log(value) if name.endswith(("share", "overlap")) else np.inf
        for name, value in zip(names, np.asarray(first, dtype=float), strict=True)
    ]
    return np.minimum(ends, LARGEST)


def left_out(of: Sequence[T], name: Callable[[T], Hashable], errors: Callable[[list[T], list[T]], Iterable]) -> NDArray:
    """Return the one leave-out: errors of each case by what was learned from the cases of all other names.

    `errors(train, test)` learns from the first and gives the errors of the second, or a row of figures for each.
    """
    names, figures = [name(case) for case in of], dict[int, Any]()
    for left in dict.fromkeys(names):
        places = [i for i, one in enumerate(names) if one == left]
        train = [case for case, one in zip(of, names, strict=True) if one != left]
        figures |= zip(places, errors(train, [of[i] for i in places]), strict=True)
    return np.array([figures[i] for i in range(len(of))])


def chosen_without(
    names: Sequence[Hashable], forms: Sequence[str], errors: Callable[[str, NDArray, NDArray], NDArray]
) -> tuple[NDArray, list[str]]:
    """Errors of each case by a form and constants in which no case of its name had a say, and the form by case.

    Within what is left when a name is out, each form is judged by leaving the other names out in turn, and the one
    with the smallest mean of errors of at most a half is fitted to all of them.

    Parameters
    ----------
    names : sequence
        Name of each case, all of which are left out together. [-]
    forms : sequence of str
        Forms to choose among. [-]
    errors : callable
        Of a form, places to fit and places to judge: logarithms of predicted over measured at the latter. [-]

    Returns
    -------
    errors : numeric
        Logarithms of predicted over measured. [-]
    chosen : list of str
        The form that each case was predicted with. [-]

    Examples
    --------
    >>> y = np.array([1.0, 2.0, 3.0])
    >>> def errors(form, fit, judge):
    ...     x = y if form == "line" else np.ones(3)
    ...     return np.log(x[judge] * np.mean(y[fit] / x[fit]) / y[judge])
    >>> chosen_without(["a", "b", "c"], ["flat", "line"], errors)[1]
    ['line', 'line', 'line']
    """

    def loss(form: str, among: list[int]) -> float:
        off = left_out(among, names.__getitem__, lambda fit, judge: errors(form, np.array(fit), np.array(judge)))
        return float(np.mean(np.minimum(np.abs(off), 0.5)))

    def learned(train: list[int], test: list[int]) -> list[tuple[float, int]]:
        best = min(forms, key=lambda form: loss(form, train))
        return [(error, forms.index(best)) for error in errors(best, np.array(train), np.array(test))]

    figures, places = left_out(range(len(names)), names.__getitem__, learned).T
    return figures, [forms[int(place)] for place in places]
