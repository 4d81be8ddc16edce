"""What requests of given lengths take on a system, at all mappings and batches, whatever speed a user is to have."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.formulas.latency import full_requests_per_s
from trnmodel.models.transformer import Transformer
from trnmodel.search.deployments import tried
from trnmodel.steps.answers import Step
from trnmodel.steps.inference import decode_step, memory_fit, prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.units import GIB

GRIDS = 256  # that are kept: a search at another speed reads the same steps


class Request(NamedTuple):
    """The steps that a request of these lengths takes."""

    model: Transformer
    given: float
    output: float

    @property
    def longest(self) -> float:
        """Tokens at its end."""
        return self.given + self.output

    def decode(self, spec: System, mapping: Degrees, e: Efficiencies, precision: Precision, batch: Any) -> Step:
        """Return the decode step at the mean context, with a graph and a cache for the longest one."""
        ask: dict[str, Any] = {"context": self.given + self.output / 2, "max_context": self.longest}
        return decode_step(self.model, spec, mapping, batch=batch, precision=precision, efficiencies=e, **ask)

    def prefill(self, spec: System, mapping: Degrees, e: Efficiencies, precision: Precision, batch: Any = 1) -> Step:
        """Return the prefill of the prompt."""
        ask: dict[str, Any] = {"input_tokens": self.given, "max_context": self.longest}
        return prefill(self.model, spec, mapping, batch=batch, precision=precision, efficiencies=e, **ask)


class Grid(NamedTuple):
    """What all batches (first axis) and mappings of a system, a stack and a precision do, whatever speed is asked for.

    `request_chip_s` are chip-seconds of a request with its prompt, `need` and `have` GiB of a replica; `why` names what
    else makes a point impossible.
    """

    tp: NDArray
    ep: NDArray
    batch: NDArray
    chips: NDArray
    request_chip_s: NDArray
    tokens_per_s_per_user: NDArray
    tokens_per_s_per_chip: NDArray
    fits: NDArray
    need: NDArray
    have: NDArray
    why: NDArray


@lru_cache(maxsize=GRIDS)
def grid(asked: Request, spec: System, e: Efficiencies, precision: Precision) -> Grid:
    """All mappings and batches of a precision at once."""
    more: dict[str, Any] = {"precision": precision, "efficiencies": e, "context": asked.given + asked.output / 2}
    step = tried(asked.model, spec, max_context=asked.longest, **more)
    mapping = Degrees(tp=step.tp, ep=step.ep)
    more |= {"batch": step.batch, "context": asked.longest, "input_tokens": asked.given}
    fit, first = memory_fit(asked.model, spec, mapping, **more), asked.prefill(spec, mapping, e, precision)
    fits = step.valid & fit.valid & first.valid
    together = first if np.all(step.ep == 1) else asked.prefill(spec, mapping, e, precision, batch=mapping.ep)
    full = full_requests_per_s(step.batch, asked.output, step.time_s, 1.0, together.time_s / mapping.ep)
    need, have = (
        np.broadcast_to(x * mapping.ranks / GIB, fits.shape)
        for x in (fit.first_rank_total_bytes, fit.first_rank_capacity_bytes)
    )
    served = step.occupied_chips, step.occupied_chips / full, step.tokens_per_s_per_user, step.tokens_per_s_per_chip
    why = np.broadcast_to(np.asarray(step.reason, dtype=object), fits.shape)
    return Grid(step.tp, step.ep, step.batch, *served, fits, need, have, why)


@lru_cache(maxsize=GRIDS)
def alone(
    asked: Request,
    system: Same[System],
    stack: Same[Efficiencies],
    precision: Precision,
    tp: float,
    ep: float,
    batch: float,
) -> tuple[Step, Step, float]:
    """Return one point: its decode step, the prefill of one prompt, and the time per prompt of a full EP group."""
    mapping, spec, e = Degrees(tp=tp, ep=ep), system.it, stack.it
    step, first = asked.decode(spec, mapping, e, precision, batch), asked.prefill(spec, mapping, e, precision)
    together = first if ep == 1 else asked.prefill(spec, mapping, e, precision, batch=ep)
    return step, first, float(together.time_s) / ep
