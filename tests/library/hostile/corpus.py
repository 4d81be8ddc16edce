"""The corpus: every argument of every public call spoiled by every value, and pairs of arguments that do not fit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from .calls import HELPERS, Call
from .judge import attempt
from .values import as_floats, made, numeric

PAIRS = 12


@dataclass(frozen=True)
class Case:
    """One hostile call: codes of the arguments that were spoiled, over those of the call's base."""

    call: Call
    codes: dict[str, str]
    must: bool = False  # refused, whatever the kinds of the arguments say

    def values(self) -> dict[str, Any]:
        """The spoiled arguments, made anew."""
        return {name: made(code, HELPERS) for name, code in self.codes.items()}

    def fault(self) -> str:
        """What is wrong with the answer, or nothing."""
        values = self.values()
        refused = {name: self.must or self.call.refuses(name, value) for name, value in values.items()}
        unknown = self.call.any_number or any(
            self.call.kinds[name].endswith(("figure", "levels")) and np.any(np.isnan(as_floats(value)))
            for name, value in values.items()
            if not refused[name] and numeric(value) is not False
        )
        return attempt(
            self.call, self.call.arguments({}) | values, refused, unknown=unknown, signed=self.call.any_number
        )

    def line(self) -> str:
        """The call as a line of code."""
        return self.call.line(self.codes)


def singles(call: Call) -> Iterator[Case]:
    """Each argument of a call spoiled by each value of the pool, and by those of its kind."""
    for name in call.kinds:
        kind = call.kind(name)
        yield from (
            Case(call, {name: code}) for code in (*kind.pool, *kind.extra) if not kind.skips(made(code, HELPERS))
        )


def misfits(call: Call) -> Iterator[Case]:
    """Each two numbers of a call as arrays of 2 and of 3, which do not broadcast."""
    known = {name: call.ordinary[name][-1] for name in call.ordinary} | call.base
    arrays = [name for name in call.kinds if call.kind(name).broadcasts and name in known]
    for one, other in combinations(arrays, 2):
        codes = {name: f"np.full({size}, np.max({known[name]}), float)" for name, size in ((one, 2), (other, 3))}
        yield Case(call, codes, must=True)
    yield from (Case(call, codes, must=True) for codes in call.together)


def pairs(call: Call) -> Iterator[Case]:
    """A few pairs of spoiled arguments, always the same ones."""
    names = [name for name in call.kinds if call.kinds[name] != "any"]
    rng = np.random.default_rng(zlib.crc32(call.code.encode()))
    for _ in range(PAIRS if len(names) > 1 else 0):
        one, other = rng.choice(names, 2, replace=False)
        codes = {str(name): str(rng.choice((*call.kind(name).pool, *call.kind(name).extra))) for name in (one, other)}
        if not any(call.kind(name).skips(made(code, HELPERS)) for name, code in codes.items()):
            yield Case(call, codes)


def corpus(call: Call) -> Iterator[Case]:
    """All hostile cases of a call."""
    yield from singles(call)
    yield from misfits(call)
    yield from pairs(call)
