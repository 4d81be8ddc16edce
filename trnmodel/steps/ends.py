"""A step's time with each open value of its stack at both ends, from the parts of one solve.

Most constants change one part alone: a rate scales the time of a resource, a cost is in proportion to its constant, and
an exchange is timed again. The work of a rank stays as it is, so that it is not counted again for each end.
"""

from __future__ import annotations

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


@lru_cache(maxsize=512)
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


class Move(NamedTuple):
    """What a value at an end changes: exchanges by a stack, parts by a factor, or a line of costs by a part of it."""

    stack: Efficiencies | None = None
    scales: tuple[tuple[str, float], ...] = ()
    line: str = ""
    more: float = 0.0


@lru_cache(maxsize=512)
def _moves(
    e: Same[Efficiencies], at: Same[Site], precision: Same[Precision], phase: str, names: frozenset[str]
) -> tuple[Move, ...]:
    """Return what each of some open values changes at its low and then at its high end."""
    own, lines, moves = rates_of(at.it, e.it, precision.it, phase), _lines(e, phase), list[Move]()
    for name, end in ((name, end) for name, ends in e.it.open_ranges.items() if name in names for end in ends):
        if name in SPOKEN:
            moves.append(Move(end_of(e.it, name, end)))
        elif name in OF_RATES:
            there = rates_of(at.it, end_of(e.it, name, end), precision.it, phase)
            moves.append(_at_rates(own, there))
        else:
            line, whole = lines[name]
            moves.append(Move(line=line, more=(end - getattr(e.it, name)) / whole))
    return tuple(moves)


def _at_rates(own: Rates, there: Rates) -> Move:
    """Return what other rates change; scores that two products wait for move with the weights."""
    pairs = ((name, getattr(own, rate), getattr(there, rate)) for name, rate in RATE_OF.items())
    scales = {name: float(before / after) for name, before, after in pairs if before != after}
    return Move(scales=tuple(scales.items()), line="scores", more=scales.get("weights_s", 1.0) - 1)


class Solved(NamedTuple):
    """A step that is solved: its setting, the work on a rank, what a rank sends, and its parts."""

    setting: Setting
    work: RankWork
    sent: tuple[Message, ...]
    parts: Parts

    def at(self, move: Move) -> Parts:
        """Return the parts with one value of the stack at an end."""
        parts = self.parts
        if move.stack is not None:
            return parts._replace(network_s=network_s(self.setting, self.sent, move.stack))
        changed = {name: getattr(parts, name) * scale for name, scale in move.scales}
        if move.line in self.work.costs:
            changed["overhead_s"] = parts.overhead_s + self.work.costs[move.line][1] * move.more
        return parts._replace(**changed)

    def widths(self, names: frozenset[str], overlaps: tuple[Any, Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Return the half-widths below and above that the ranges of some values give the time of points of a shape."""
        s = self.setting
        moves = _moves(Same(s.e), Same(s.at), Same(s.precision), s.phase, names)
        middle = joined_s(s, self.parts, *overlaps)
        middle = np.broadcast_to(middle, shape) if shape else middle
        if middle.size > AT_ONCE:
            times = (joined_s(s, self.at(move), *overlaps) for move in moves)
            return widths_of(middle, zip(times, times, strict=True))
        together_s = joined_s(s, _stacked([self.at(move) for move in moves], len(shape)), *overlaps)
        return side_widths(middle, np.broadcast_to(together_s, (len(moves), *shape)))


def _stacked(every: list[Parts], dimensions: int) -> Parts:
    """Return parts side by side along a first axis, before `dimensions` others; what none changes stays as it is."""

    def one(values: tuple[Any, ...]) -> Any:
        first = values[0]
        if all(value is first for value in values):
            return first
        if not dimensions:
            return np.array(values)
        stack = np.stack(np.broadcast_arrays(*values))
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
        shapes = {x.shape for x in (*step.places, *step.sizes.values())}
        shape = np.broadcast_shapes(*shapes) if any(shapes) else ()
        if not np.any(self.outside):
            nothing = np.zeros(shape)
            return Answer({"below": nothing, "above": nothing}, {"reason_mask": np.zeros(shape, dtype=int)})
        solved, mask = step.solved()
        below, above = solved.widths(self.names, step.overlaps, shape)
        return Answer(
            {"below": below, "above": above}, {"reason_mask": np.broadcast_to(mask, shape) if shape else mask}
        )
