"""Equal combinations of numbers told apart once, however many points have them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

TABLE = 2**20  # numbers up to it are told apart by a table
BLOCK = 2**16  # numbers that are looked up at once


def numbered(arrays: Iterable[NDArray]) -> tuple[NDArray, NDArray]:
    """Number of the combination that each place of some arrays of whole numbers has, and a place of each combination.

    Examples
    --------
    >>> number, first = numbered([np.array([8.0, 8.0, 4.0]), np.array([1.0, 1.0, 2.0])])
    >>> number.tolist(), first.tolist()
    ([1, 1, 0], [2, 1])
    """
    arrays = np.broadcast_arrays(*arrays)
    shape, size = arrays[0].shape, arrays[0].size
    varying = [x.ravel() for x in arrays if x.min() < x.max()]
    ranks = [_ranks(x) for x in varying if x.max() < TABLE]
    count = math.prod(int(table[-1]) + 1 for table in ranks)
    if len(ranks) < len(varying) or count > TABLE:
        flat = np.stack([x.ravel() for x in arrays])
        _, first, number = np.unique(flat, axis=1, return_index=True, return_inverse=True)
        return number.reshape(shape), first
    number, places = np.empty(size, dtype=np.int32), np.full(count, -1)
    for block in _blocks(size):
        key = np.zeros(block.stop - block.start, dtype=np.intp)
        for x, table in zip(varying, ranks, strict=True):
            key = key * (table[-1] + 1) + table.take(x[block].astype(np.intp), mode="clip")
        number[block], places[key] = key, np.arange(block.start, block.start + key.size)
    occurs = places >= 0
    if not occurs.all():
        table = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        for block in _blocks(size):
            number[block] = table.take(number[block], mode="clip")
    return number.reshape(shape), places[occurs]


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def _ranks(numbers: NDArray) -> NDArray:
    """For each whole number up to the largest of some, how many smaller ones are among them."""
    occurs = np.zeros(int(numbers.max()) + 1, dtype=bool)
    for block in _blocks(numbers.size):
        occurs[numbers[block].astype(np.intp)] = True
    return np.cumsum(occurs) - 1
