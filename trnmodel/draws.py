"""Common draws of what nobody knows of a stack's steps: the same for all systems with the same software and chip."""

from __future__ import annotations

import zlib
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System, chip_of

DRAWS = 1000
CAUSES = 1000  # whose deviations are at hand
ENDS = (5.0, 95.0)  # percentiles of a band
SIDES: tuple[Literal["lower", "higher"], ...] = ("lower", "higher")  # a draw itself: rates and their times agree
NORMAL = NormalDist()  # its quantiles are those of SciPy to 1e-15, whose import would take longer than a plan's draws
TAIL = NORMAL.inv_cdf(0.95)  # standard deviations at the end of a 90 % interval


def uniform_draws(name: str, draws: int, seed: int = 0) -> NDArray:
    """Draws of an input between 0 and 1. Its name and the seed decide them, and not what else is drawn.

    PCG64 gives whole numbers, of which the upper 53 bits count: the same on every machine and with every NumPy.

    Examples
    --------
    >>> bool(np.all(uniform_draws("restart_s", 3) == uniform_draws("restart_s", 5)[:3]))
    True
    """
    bits = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
    return (bits.random_raw(draws) >> np.uint64(11)) * 2.0**-53


def cause(e: Efficiencies, system: System | Chip, phase: str) -> str:
    """Return the name of what is drawn: a stack on a chip in a phase; all chips share that of a hand-tuned stack.

    Examples
    --------
    >>> import trnmodel as tm
    >>> cause(tm.efficiencies("trainium3"), tm.system("trn3-nl16-torus"), "decode")
    'decode of vllm-neuron-2026 on trainium3'
    """
    where = "" if e.kind == "hand-tuned" else f" on {chip_of(system).id}"
    return f"{phase} of {e.rows_of}{where}"


def shares(name: str, draws: int = DRAWS) -> NDArray:
    """Return draws of a cause between 0 and 1, one in the middle of each of as many equal shares.

    The name alone decides the order, so that whatever shares a cause shares its draws.

    Examples
    --------
    >>> np.sort(shares("prices.chip_markup", 4)).tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    return (_order(name, draws) + 0.5) / draws


def _order(name: str, draws: int) -> NDArray:
    """Return which of as many equal shares each draw of a cause lies in."""
    return np.argsort(uniform_draws(name, draws), kind="stable")


@lru_cache(maxsize=CAUSES)
def deviations(name: str, draws: int = DRAWS) -> NDArray:
    """Return standard deviations of a cause, one in each of as many equal shares of the normal distribution.

    Examples
    --------
    >>> z = deviations("decode of vllm-neuron-2026 on trainium3")
    >>> len(z), bool(abs(z.mean()) < 1e-12), round(float(z.std()), 2)
    (1000, True, 1.0)
    """
    z = _deviations(draws)[_order(name, draws)]
    z.setflags(write=False)
    return z


@lru_cache(maxsize=16)
def _deviations(draws: int) -> NDArray:
    """Return the standard deviations in the middle of equal shares of the normal distribution, in their order."""
    return np.array([NORMAL.inv_cdf((place + 0.5) / draws) for place in range(draws)])


def deviations_at(u: ArrayLike) -> NDArray:
    """Return standard deviations at quantiles of the normal distribution; its two ends count as the last of a double.

    Examples
    --------
    >>> deviations_at([0.05, 0.5]).round(3).tolist()
    [-1.645, 0.0]
    """
    from scipy.special import ndtri

    return np.asarray(ndtri(np.clip(np.asarray(u, dtype=float), 2.0**-54, 1 - 2.0**-53)))


def stretch(z: ArrayLike, below: Any, above: Any) -> NDArray:
    """Return the factor of a time whose 90 % interval has these half-widths, at so many standard deviations.

    Examples
    --------
    >>> stretch([-TAIL, 0.0, TAIL], 0.1, np.log(2.0)).round(6).tolist()
    [0.904837, 1.0, 2.0]
    """
    at = np.asarray(z, dtype=float) / TAIL
    return np.exp(np.where(at < 0, at * below, at * above))


def range_of(values: NDArray) -> tuple[float, float]:
    """Return the ends of the 90 % range of the draws that keep the promise; NaN where none does."""
    some = values[np.isfinite(values)]
    if not some.size:
        return np.nan, np.nan
    low, high = (np.percentile(some, end, method=side) for end, side in zip(ENDS, SIDES, strict=True))
    return float(low), float(high)
