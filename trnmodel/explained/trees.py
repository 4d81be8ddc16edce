"""An answer as a tree of terms: each with its formula, its value, and how fast it changes with each of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from trnmodel.units import format_quantity

Path = tuple[str, ...]  # names of the terms from the answer down to one of its terms
Written = Callable[["Branch"], str]  # how a term stands in a formula: by its name, or by its value
DIGITS = 3
MOST_ADDED = 4  # terms of a sum that its formula names one by one


class Part(NamedTuple):
    """A term that another one is made of, and the derivative of that other one with respect to it."""

    branch: Branch
    slope: float


class Branch(NamedTuple):
    """A quantity of an answer: its formula in words and with values, its value, and the terms that it is made of.

    A term without parts follows from facts and from the question alone.
    """

    name: str
    formula: str
    values: str
    value: float
    unit: str
    parts: tuple[Part, ...] = ()


class Node(NamedTuple):
    """A term at its place in the tree of an answer.

    `weight` is the derivative of the answer with respect to the term, along this path.
    """

    path: Path
    branch: Branch
    weight: float

    @property
    def level(self) -> int:
        """How many terms it lies below the answer."""
        return len(self.path) - 1


def single(value: Any) -> float:
    """Return the number of an array that holds one.

    Examples
    --------
    >>> single(np.array([2.0]))
    2.0
    """
    return float(np.ravel(value)[0])


def printed(branch: Branch) -> str:
    """Return the value of a term with its unit."""
    return format_quantity(branch.value, branch.unit, DIGITS)


def named(branch: Branch) -> str:
    """Return the name of a term."""
    return branch.name


def made(name: str, unit: str, value: float, parts: Iterable[Part], write: Callable[[Written], str]) -> Branch:
    """Return a term whose formula `write` prints, once with the names of its parts and once with their values.

    Examples
    --------
    >>> one, other = (Branch(name, "", "", value, "s") for name, value in (("work", 0.002), ("wait", 0.001)))
    >>> whole = made("time", "s", 0.003, [Part(one, 1.0), Part(other, 1.0)], lambda of: f"{of(one)} + {of(other)}")
    >>> whole.formula, whole.values
    ('work + wait', '2 ms + 1 ms')
    """
    return Branch(name, write(named), write(printed), float(value), unit, tuple(parts))


def summed(name: str, unit: str, terms: Iterable[Branch]) -> Branch:
    """Return the sum of some terms; those that are nothing are left out.

    Examples
    --------
    >>> summed("all", "B", [Branch("a", "", "", 2.0, "B"), Branch("b", "", "", 0.0, "B")]).formula
    'a'
    """
    some = [one for one in terms if one.value]
    parts = [Part(one, 1.0) for one in some]
    value = sum(one.value for one in some)
    if len(some) > MOST_ADDED:
        return Branch(name, f"sum of {len(some)} terms", "", value, unit, tuple(parts))
    return made(name, unit, value, parts, lambda of: " + ".join(map(of, some)) or "0")


def quotient(name: str, unit: str, amount: Branch, rate: Branch) -> Branch:
    """Return an amount over a rate.

    Examples
    --------
    >>> whole = quotient("reads", "s", Branch("bytes", "", "", 6.0, "B"), Branch("rate", "", "", 2.0, "B/s"))
    >>> whole.value, [part.slope for part in whole.parts]
    (3.0, [0.5, -1.5])
    """
    value = amount.value / rate.value
    parts = Part(amount, 1 / rate.value), Part(rate, -value / rate.value)
    return made(name, unit, value, parts, lambda of: f"{of(amount)} / {of(rate)}")


def walk(branch: Branch, path: Path = (), weight: float = 1.0) -> Iterator[Node]:
    """Yield every term of a tree, the answer first, each before its parts.

    Examples
    --------
    >>> leaf = Branch("reads", "", "", 2.0, "s")
    >>> root = Branch("time", "", "", 3.0, "s", (Part(leaf, 0.5),))
    >>> [(node.path, node.weight) for node in walk(root)]
    [(('time',), 1.0), (('time', 'reads'), 0.5)]
    """
    here = (*path, branch.name)
    yield Node(here, branch, weight)
    for part in branch.parts:
        yield from walk(part.branch, here, weight * part.slope)


def values_of(branch: Branch) -> dict[Path, float]:
    """Return the value of every term of a tree, by its path."""
    return {node.path: node.branch.value for node in walk(branch)}


def direct(branch: Branch, changes: Mapping[Path, float]) -> dict[Path, float]:
    """Return what of each term's change its parts do not explain: there a moved fact enters the answer.

    Examples
    --------
    >>> leaf = Branch("reads", "", "", 2.0, "s")
    >>> root = Branch("time", "", "", 3.0, "s", (Part(leaf, 0.5),))
    >>> direct(root, {("time",): 0.75, ("time", "reads"): 0.5})
    {('time',): 0.5, ('time', 'reads'): 0.5}
    """
    own: dict[Path, float] = {}
    for node in walk(branch):
        through = (part.slope * changes.get((*node.path, part.branch.name), 0.0) for part in node.branch.parts)
        own[node.path] = changes.get(node.path, 0.0) - sum(through)
    return own
