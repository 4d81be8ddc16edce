"""The joint distribution of the constants of stacks before anybody's own rows, as the lab has found it.

`data/evidence/constants_prior.csv` holds covariances of natural logarithms. The mean of each constant is its value in
force. What a new page of measurements differs by has several levels: the fit that the value is from; the page, of which
each constant varies by so many times the deviation of its range; and levels of whole steps, which vary between pages,
between releases of engines, and between machines. `python -m trnlab.constants_prior` writes the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.load import DATA, read_csv
from trnmodel.catalog.posterior import TAIL
from trnmodel.catalog.stacks import LEVELS, Efficiencies
from trnmodel.formulas.update import tail

PRIOR = DATA / "evidence" / "constants_prior.csv"
FIT, PAGE, RELEASE, MACHINE, NOISE, LEFT = "fit", "page", "release", "machine", "noise", "left"
FREEDOM = "freedom"  # the quantity whose covariance is the degrees of freedom of a cluster's scale
RANGES = "ranges"  # the quantity whose covariance is the factor on squares of deviations of ranges
PARTS = ("decode", "load", "prefill", "queue", "request", "run", "throughput")  # of a model, that constants explain
LIKE = {"all-decode-throughput": "decode"}  # parts that are judged as others


class Term(msgspec.Struct, frozen=True):
    """One covariance: the level that it is of, and two quantities, each with the stack whose own rows it has."""

    level: str
    owner: str
    quantity: str
    other_owner: str
    other: str
    covariance: float


def deviation(value: float, low: float, high: float) -> float:
    """Return the standard deviation of a constant's logarithm, by its 90 % range; of one that may be 0, by its top.

    Examples
    --------
    >>> round(deviation(1.0, 0.5, 2.0), 3), round(deviation(1.0, 0.0, 2.0), 3)
    (0.421, 0.421)
    """
    return math.log(high / low) / 2 / TAIL if low > 0 else max(math.log(high / value), 0.0) / TAIL


def owner(e: Efficiencies, name: str) -> str:
    """Return the stack whose own row a constant of a stack is."""
    return e.sources.get(name, ("",))[0].partition("/")[0]


@dataclass(frozen=True)
class Prior:
    """Covariances of constants and of levels, and the variance of what measurements of a part hold beside them."""

    terms: tuple[Term, ...]

    def variance(self, level: str, quantity: str) -> float:
        """Return one variance of a level that has no owner."""
        return next(t.covariance for t in self.terms if t.level == level and t.quantity == quantity == t.other)

    def spreads(self, level: str) -> dict[str, float]:
        """Return the standard deviation by part of what is beside the constants: NOISE of a row, LEFT for a band."""
        return {t.quantity: math.sqrt(t.covariance) for t in self.terms if t.level == level}

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the scale that all variances of a cluster have."""
        return self.variance(PAGE, FREEDOM)

    @property
    def elsewhere(self) -> float:
        """Standard deviation of a level that another machine adds: it is another page, on another machine."""
        return math.sqrt(self.of_levels((PAGE, MACHINE)).diagonal().max())

    def of_levels(self, levels: Iterable[str] = (PAGE, RELEASE, MACHINE)) -> NDArray:
        """Return the covariance of the levels of whole steps, of all levels together."""
        places = {name: place for place, name in enumerate(LEVELS)}
        matrix, wanted = np.zeros((len(LEVELS), len(LEVELS))), [*levels]
        for t in self.terms:
            if t.level in wanted and t.quantity in places:
                i, j = places[t.quantity], places[t.other]
                matrix[i, j] += t.covariance
                matrix[j, i] += t.covariance * (i != j)
        return matrix

    def covariance(self, e: Efficiencies) -> tuple[tuple[str, ...], NDArray]:
        """Return the constants of a stack that a calibration moves, and the covariance of their logarithms.

        That of a stack which was calibrated before is what that calibration found, at a scale of one.
        """
        if known := e.posterior:
            return known.names, known.matrix / (known.scale * tail(known.freedom) ** 2)
        names = e.movable
        deviations = np.array([deviation(getattr(e, name), *e.ranges[name]) for name in names[: -len(LEVELS)]])
        joint = np.zeros((len(names), len(names)))
        joint[-len(LEVELS) :, -len(LEVELS) :] = self.of_levels()
        fitted = {(t.owner, t.quantity, t.other_owner, t.other): t.covariance for t in self.terms if t.level == FIT}
        fitted |= {(c, d, a, b): value for (a, b, c, d), value in fitted.items()}
        owners = [owner(e, name) for name in names]
        for i, own in enumerate(deviations):
            joint[i, i] = self.variance(PAGE, RANGES) * own**2
            for j in range(len(deviations)):
                alone = own**2 if i == j else 0.0
                joint[i, j] += fitted.get((owners[i], names[i], owners[j], names[j]), alone)
        return names, joint


@cache
def shipped(path: Path = PRIOR) -> Prior:
    """Return the distribution that the lab has found.

    Examples
    --------
    >>> sorted(shipped().spreads(NOISE)) == sorted(PARTS)
    True
    """
    return Prior(tuple(read_csv(path, Term)))


def noise_of(parts: Sequence[str], spreads: dict[str, float]) -> NDArray:
    """Return the standard deviation of each of some parts."""
    return np.array([spreads[LIKE.get(part, part)] for part in parts])
