"""A step's time with each open value of its stack at both ends, from the parts of one solve.

Most constants change one part alone: a rate scales the time of a resource, a cost is in proportion to its constant, and
an exchange is timed again. The work of a rank stays as it is, so that it is not counted again for each end.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Lines
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.bands import end_of, side_widths, widths_of
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.fabric.collectives import SPOKEN
from trnmodel.steps.assemble import Message, Parts, RankWork, joined_s, network_s
from trnmodel.steps.pieces import Answer, Arrays, Piece, Question
from trnmodel.steps.rank import Site
from trnmodel.steps.setting import Rates, Setting, rates_of

AT_ONCE = 2000  # points up to which all ends are computed in one array
OF_RATES = frozenset(
    "decode_matmul_share prefill_matmul_share prefill_attention_share weight_stream_share kv_stream_share".split()
)
_OF_EITHER_PHASE: dict[str, tuple[str, ...]] = {
    "expert routing": ("expert_core_s",),
    "logits to the host": ("host_logit_bytes_per_s",),
    "weights to another format": ("dequantise_passes",),
    "layers without experts": ("dense_layer_s",),
    "graphs": ("graph_doubling_s",),
    "sequences": ("sequence_s",),
    "experts one after another": ("expert_serial_s",),
    "expert blocks": ("expert_block_s",),
    "spills": ("prefill_spill_bytes_per_s",),
    "recurrence": ("recurrent_token_s",),
}
_OF_DECODE: dict[str, tuple[str, ...]] = {"layers": ("layer_s",), "step": ("step_overhead_s", "server_step_s")}
_OF_PREFILL: dict[str, tuple[str, ...]] = {
    "layers": ("layer_s", "prefill_layer_s"),
    "step": ("prefill_overhead_s", "server_step_s"),
}
COST_CONSTANTS = {  # constants of a stack that a line of costs is made of, by phase
    "decode": _OF_EITHER_PHASE | _OF_DECODE,
    "prefill": _OF_EITHER_PHASE | _OF_PREFILL,
}
RATE_OF = {  # of a part
    "linear_s": "linear_flop_per_s",
    "weights_s": "weight_bytes_per_s",
    "attend_s": "pair_flop_per_s",
    "cache_s": "cache_bytes_per_s",
}
INVERSE = frozenset({"logits to the host", "spills"})  # lines whose constant is a rate


@lru_cache(maxsize=1024)
def _rates(at: Same[Site], e: Same[Efficiencies], precision: Same[Precision], phase: str) -> Rates:
    return rates_of(at.it, e.it, precision.it, phase)


@lru_cache(maxsize=1024)
def _lines(e: Same[Efficiencies], phase: str) -> Lines[str, tuple[str, float]]:
    """Return by constant the line of costs that is in proportion to it, and the sum of that line's constants."""
    lines = {line: names for line, names in COST_CONSTANTS[phase].items() if line not in INVERSE}
    sums = {line: float(sum(getattr(e.it, name) for name in names)) for line, names in lines.items()}
    return {name: (line, sums[line]) for line, names in lines.items() for name in names if sums[line] > 0}


@lru_cache(maxsize=512)
def _simple(e: Same[Efficiencies], phase: str, states: bool) -> frozenset[str]:
    rates = OF_RATES - {"kv_stream_share"} if states else OF_RATES  # a state's rate may have a limit of its own
    return frozenset(e.it.open_ranges.keys() & {*SPOKEN, *_lines(e, phase), *rates})


def simple(s: Setting) -> frozenset[str]:
    """Return the open values of a stack of numbers that change one part of a step alone."""
    return _simple(Same(s.e), s.phase, any(b.kind == "state" for b in s.burdens))


class Solved(NamedTuple):
    """A step that is solved: its setting, the work on a rank, what a rank sends, and its parts."""

    setting: Setting
    work: RankWork
    sent: tuple[Message, ...]
    parts: Parts

    def with_value(self, name: str, value: float) -> Parts:
        """Return the parts with one value of the stack at an end."""
        s, parts = self.setting, self.parts
        if name in SPOKEN:
            return parts._replace(network_s=network_s(s, self.sent, end_of(s.e, name, value)))
        if name in OF_RATES:
            return self._at_rates(_rates(Same(s.at), Same(end_of(s.e, name, value)), Same(s.precision), s.phase))
        line, whole = _lines(Same(s.e), s.phase)[name]
        if line not in self.work.costs:
            return parts
        return parts._replace(
            overhead_s=parts.overhead_s + self.work.costs[line][1] * ((value - getattr(s.e, name)) / whole)
        )

    def _at_rates(self, there: Rates) -> Parts:
        """Return the parts at other rates; what is at the same rate stays as it is."""
        parts, own = self.parts, self.setting.rates
        changed: dict[str, Any] = {}
        for name, rate in RATE_OF.items():
            before, after = getattr(own, rate), getattr(there, rate)
            if before != after:
                changed[name] = getattr(parts, name) * (before / after)
                if name == "weights_s" and "scores" in self.work.costs:
                    changed["overhead_s"] = parts.overhead_s + self.work.costs["scores"][1] * (before / after - 1)
        return parts._replace(**changed)

    def ends(self, names: frozenset[str]) -> Iterator[tuple[Parts, Parts]]:
        """Yield the parts with each of some values at its low and at its high end."""
        for name, (low, high) in self.setting.e.open_ranges.items():
            if name in names:
                yield self.with_value(name, low), self.with_value(name, high)

    def widths(self, names: frozenset[str], overlaps: tuple[Any, Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Return the half-widths below and above that the ranges of some values give the time of points of a shape."""
        s = self.setting
        middle = np.broadcast_to(joined_s(s, self.parts, *overlaps), shape)
        if middle.size > AT_ONCE:
            pairs = ((joined_s(s, one, *overlaps) for one in pair) for pair in self.ends(names))
            return widths_of(middle, pairs)
        every = [one for pair in self.ends(names) for one in pair]
        if not every:
            return np.zeros(shape), np.zeros(shape)
        times = joined_s(s, _stacked(every, len(shape)), *overlaps)
        return side_widths(middle, np.broadcast_to(times, (len(every), *shape)))


def _stacked(every: list[Parts], dimensions: int) -> Parts:
    """Return parts side by side along a first axis, before `dimensions` others; what none changes stays as it is."""

    def one(values: tuple[Any, ...]) -> Any:
        if all(value is values[0] for value in values):
            return values[0]
        stack = np.stack(np.broadcast_arrays(*values)) if any(map(np.ndim, values)) else np.array(values)
        return stack.reshape(len(values), *[1] * (dimensions + 1 - stack.ndim), *stack.shape[1:])

    return Parts(*map(one, zip(*every, strict=True)))


class Solvable(Question, Protocol):
    """Question of a step that gives its parts."""

    @property
    def overlaps(self) -> tuple[Any, Any]:
        """The overlap of compute and memory, and that of both with the network."""

    def solved(self) -> tuple[Solved, NDArray]:
        """Return the step with its parts, and the mask of the points that cannot exist."""


@dataclass(frozen=True, slots=True, eq=False)
class EndsQuestion:
    """The half-widths that some values of a stack give the points of a step that lie outside of its rows."""

    step: Solvable
    outside: Any
    names: frozenset[str]

    @property
    def spec_shapes(self) -> Arrays:
        """The shapes of arrays in the specs."""
        return self.step.spec_shapes

    @property
    def sizes(self) -> Arrays:
        """The numbers of the step by name."""
        return self.step.sizes

    @property
    def places(self) -> tuple[Any, ...]:
        """The arrays that say which mapping each point has."""
        return self.step.places

    @property
    def everywhere(self) -> Self:
        """The question with what its mappings resolve to at every point."""
        return replace(self, step=self.step.everywhere)

    def piece(self, piece: Piece, mappings: bool) -> Self:
        """Return the question of a piece of its points."""
        return replace(self, step=self.step.piece(piece, mappings), outside=piece.of(self.outside))

    def solve(self) -> Answer:
        """Return the half-widths of all points, zero where none of a piece is outside."""
        step = self.step
        shape = np.broadcast_shapes(*{x.shape for x in (*step.places, *step.sizes.values())})
        if not np.any(self.outside):
            nothing = np.zeros(shape)
            return Answer({"below": nothing, "above": nothing}, {"reason_mask": np.zeros(shape, dtype=int)})
        solved, mask = step.solved()
        below, above = solved.widths(self.names, step.overlaps, shape)
        return Answer({"below": below, "above": above}, {"reason_mask": np.broadcast_to(mask, shape)})
