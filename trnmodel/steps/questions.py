"""Questions of inference: a decode step, a prefill, stored bytes; each solves itself and says what its answer rests on.

A question keeps the names of the public call: `batch`, `context`, `input_tokens`, ... Its `setting` is what model,
system, mapping, precision and software stack resolve to.
"""

from __future__ import annotations

from collections.abc import Mapping as Lines
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trnmodel.bands import (
    MEMORY,
    STORED,
    Judgement,
    Reach,
    joined,
    ranged,
    stack_basis,
    stack_judgement,
    stack_reach,
    with_assumed,
)
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import OF_MEMORY, Efficiencies, fitted_resources
from trnmodel.formulas.bands import joint_width
from trnmodel.formulas.step import left_in_bank_bytes
from trnmodel.models.blocks import Phase
from trnmodel.models.transformer import Transformer
from trnmodel.result import Basis, Texts
from trnmodel.steps.assemble import (
    EXPERT_EXECUTIONS,
    Line,
    Message,
    RankWork,
    assemble,
    bucket,
    decode_work,
    joined_s,
    lines_of,
    messages,
    parts_of,
    prefill_work,
    prefilled_tokens,
    stored_kinds,
    total,
)
from trnmodel.steps.ends import EndsQuestion, Solved, simple
from trnmodel.steps.legal import RULES, of_lengths
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.pieces import Answer, Arrays, Piece, in_pieces
from trnmodel.steps.setting import Setting, setting

UNKNOWN, TOO_LARGE, FIRST_TOO_LARGE = (2 ** (len(RULES) + bit) for bit in range(3))
OVERLAPS = ("compute_memory_overlap", "network_overlap")
FEW_OUTSIDE = 0.5  # share of points outside of their rows up to which they are asked by themselves
Widths = tuple[Any, Any]  # below and above
Place = tuple[Efficiencies, Chip, int, str, str, Arrays]  # stack, chip, logical core, part, kind of model, points
# Values of a stack that a step does not have: of the other phase, of experts, of exchanges.
ELSEWHERE: Lines[str, frozenset[str]] = {
    "decode": frozenset(
        """prefill_matmul_share prefill_attention_share prefill_overhead_s prefill_layer_s prefill_slowdown
        prefill_spill_bytes_per_s score_passes recurrent_token_s expert_block_s p99_over_p50""".split()
    ),
    "prefill": frozenset(
        """decode_matmul_share lone_core_cache_passes host_logit_bytes_per_s step_overhead_s dense_layer_s sequence_s
        graph_doubling_s expert_core_s expert_gather_reads expert_serial_s p99_over_p50""".split()
    ),
    "memory": OF_MEMORY,
    "experts": frozenset(
        """expert_core_s expert_gather_reads expert_block_s expert_serial_s expert_spread
        dispatch_traffic_ratio""".split()
    ),
    "exchanges": frozenset(
        """hop_s mesh_traffic_ratio rdh_traffic_ratio ring_traffic_ratio shot_rank_s shot_copies one_shot_s
        one_shot_rate_share two_shot_s two_shot_rate_share dispatch_traffic_ratio expert_spread""".split()
    ),
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InferenceQuestion:
    """What was asked of a model on a system, of any number of points. Its widths are computed once."""

    SIZES: ClassVar[tuple[str, ...]] = ()  # names of the numbers that may be arrays
    TIMED: ClassVar[bool] = True  # whether rates are needed

    setting: Setting = field(repr=False)
    mapping: Mapping
    batch: NDArray
    saved_widths: dict[str, Widths] = field(init=False, repr=False, default_factory=dict)

    @property
    def model(self) -> Transformer:
        """The model."""
        return self.setting.model

    @property
    def system(self) -> Any:
        """The system, or the bare chip."""
        return self.setting.system

    @property
    def precision(self) -> Precision:
        """The precision."""
        return self.setting.precision

    @property
    def efficiencies(self) -> Efficiencies:
        """The software stack in force."""
        return self.setting.e

    @property
    def phase(self) -> Phase:
        """The phase: "decode" or "prefill"."""
        return self.setting.phase

    @property
    def sizes(self) -> Arrays:
        """The numbers that may be arrays, by name; those that were not set are left out."""
        named = ((name, getattr(self, name)) for name in self.SIZES)
        return {name: value for name, value in named if value is not None}

    @property
    def spec_shapes(self) -> Arrays:
        """The shapes of arrays in system and stack."""
        return self.setting.spec_shapes

    @property
    def places(self) -> tuple[Any, ...]:
        """The arrays that say which mapping each point has."""
        return self.setting.places

    @property
    def everywhere(self) -> Self:
        """The question with its setting at every point."""
        return self if self.setting.index is None else replace(self, setting=self.setting.everywhere)

    def piece(self, piece: Piece, mappings: bool) -> Self:
        """Return the question of a piece of its points; `mappings` says whether these vary along the axis."""
        part: dict[str, Any] = {name: piece.of(x) for name, x in self.sizes.items()}
        return replace(self, setting=self.setting.cut(piece) if mappings else self.setting, **part)

    def solve(self) -> Answer:
        """Return the numbers of all points."""
        raise NotImplementedError

    def longest(self) -> Any:
        """Return the longest sequence that has to fit the model and the mapping [token]."""
        raise NotImplementedError

    def figure(self, e: Efficiencies) -> NDArray:
        """Return the number whose band counts, for a stack with other values."""
        raise NotImplementedError

    def illegal(self) -> NDArray:
        """Return the bits of the rules that a point breaks: those of its mapping, and those of its longest sequence."""
        s = self.setting
        return s.illegal | of_lengths(s.model, s.degrees.cp, self.longest())

    def with_stack(self, e: Efficiencies) -> Self:
        """Return the same question of a stack with other values."""
        s = self.setting
        there = setting(s.model, s.system, self.mapping, s.precision, e, s.phase, self.TIMED)
        if not self.TIMED:
            return replace(self, setting=there.storing)
        moved: dict[str, Any] = {
            name: np.asarray(getattr(e, name)) for name in OVERLAPS if np.any(getattr(e, name) != getattr(s.e, name))
        }
        return replace(self, setting=there, **moved)

    def elsewhere(self) -> frozenset[str]:
        """Return the values of the stack on which the figure does not depend, so that their ranges say nothing."""
        return frozenset()

    def place(self, part: str = "") -> Place:
        """Return where the rows of a part of what was measured are looked for, and the points."""
        raise NotImplementedError

    def basis(self, part: str = "") -> Basis:
        """Return word, reason and width of each point, by the rows of a part of what was measured."""
        return stack_basis(*self.place(part))

    def judgement(self) -> Judgement:
        """Return word and reason of each point as places in lists."""
        return stack_judgement(*self.place())

    def widths(self, part: str = "") -> Widths:
        """Half-widths below and above of the figure's logarithm: its rows', and outside of them the stack's ranges."""
        if part not in self.saved_widths:
            reach = self.reach(part)
            own = joined(reach, lambda: self.ranges(reach.outside))
            self.saved_widths[part] = with_assumed(own, self.system, self.figure_on) if self.TIMED else own
        return self.saved_widths[part]

    def figure_on(self, where: Any) -> NDArray:
        """Return the number whose band counts, for a system with other figures."""
        s = self.setting
        there = setting(s.model, where, self.mapping, s.precision, s.e, s.phase, self.TIMED)
        return replace(self, setting=there).figure(s.e)

    def reach(self, part: str = "") -> Reach:
        """Return what a band needs of the basis."""
        return stack_reach(*self.place(part))

    def ranges(self, outside: Any) -> Widths:
        """Half-widths below and above that the stack's ranges give the figure; they count for points `outside`."""
        return ranged(self.setting.e, self.figure, at_once=True, without=self.elsewhere())


class StepWork(NamedTuple):
    """Work of a step: the compiled length, what a rank does, what it stores, and tokens that a sequence gets of it."""

    compiled_tokens: NDArray
    work: RankWork
    memory_bytes: NDArray
    tokens_made: NDArray | float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepQuestion(InferenceQuestion):
    """What was asked of a forward step. Rows of its phase judge it, and rows of "load" where a server is loaded."""

    max_context: NDArray | None = None
    expert_imbalance: NDArray | None = None
    compute_memory_overlap: NDArray
    network_overlap: NDArray

    def step_work(self) -> StepWork:
        """Return what the step asks of a rank."""
        raise NotImplementedError

    @property
    def length(self) -> NDArray:
        """Tokens of a sequence: those in the cache of a decode step, those that a prefill takes in."""
        raise NotImplementedError

    @property
    def slots(self) -> NDArray:
        """Sequences that run."""
        return self.batch

    def solve(self) -> Answer:
        """Return every number of a step, and why it cannot exist."""
        s = self.setting
        compiled, work, memory, made = self.step_work()
        times = assemble(s, work, self.compute_memory_overlap, self.network_overlap)
        time_s = times["time_s"]
        rate = made / time_s
        numbers = times | {
            "tokens_per_s": self.batch * s.degrees.dp * rate,
            "tokens_per_s_per_user": rate,
            "memory_bytes_per_rank": memory,
        }
        return Answer(numbers, {"compiled_tokens": compiled, "reason_mask": self.impossible(time_s, memory)})

    def impossible(self, time_s: NDArray, memory_bytes: NDArray) -> NDArray:
        """Return the bits of why a point cannot exist; 0 where it can."""
        s = self.setting
        return self.illegal() | np.isnan(time_s) * UNKNOWN | (memory_bytes > s.room_bytes / s.sharing) * TOO_LARGE

    def elsewhere(self) -> frozenset[str]:
        """Return the values of memory and of the other phase, and those of experts and exchanges where it has none."""
        s = self.setting
        names = ELSEWHERE[s.phase] | ELSEWHERE["memory"]
        if s.at.ranks_per_bank <= 1:
            names |= {"lone_core_cache_passes"}  # of cores that share a bank
        if not s.outline.experts:
            names |= ELSEWHERE["experts"]
        return names if s.parted else names | ELSEWHERE["exchanges"]

    def figure(self, e: Efficiencies) -> NDArray:
        """Return the time for a stack with other values [s]."""
        return in_pieces(self.with_stack(e))["time_s"]

    @property
    def overlaps(self) -> Widths:
        """The overlap of compute and memory, and that of both with the network."""
        return self.compute_memory_overlap, self.network_overlap

    def solved(self) -> tuple[Solved, NDArray]:
        """Return the step with its parts, and the mask of the points that cannot exist."""
        s, (_, work, memory, _) = self.setting, self.step_work()
        sent = messages(s, work)
        parts = parts_of(s, work, sent)[0]
        return Solved(s, work, sent, parts), self.impossible(joined_s(s, parts, *self.overlaps), memory)

    def ranges(self, outside: Any) -> Widths:
        """Half-widths that the stack's ranges give the time of points outside of the rows; 0 where few are."""
        if self.setting.e.posterior:
            return ranged(self.setting.e, self.figure, at_once=True, without=self.elsewhere())
        if not np.ndim(outside) or any(map(np.ndim, self.places)) or self.spec_shapes or np.mean(outside) > FEW_OUTSIDE:
            return self._ranges(outside)
        few = {name: np.broadcast_to(x, outside.shape)[outside] for name, x in self.sizes.items() if np.ndim(x)}
        found = replace(self, **few)._ranges(np.True_)
        sides = np.zeros(outside.shape), np.zeros(outside.shape)
        for side, of_few in zip(sides, found, strict=True):
            side[outside] = of_few
        return sides

    def _ranges(self, outside: Any) -> Widths:
        """Half-widths that the stack's ranges give: those of values that change one part from the parts alone."""
        s, without = self.setting, self.elsewhere()
        names = frozenset() if s.spec_shapes else simple(s) - without
        found = in_pieces(EndsQuestion(self, outside, names)) if names else {}
        rest = s.e.open_ranges.keys() - without - names
        if found and not rest:
            return found["below"], found["above"]
        more = ranged(s.e, self.figure, at_once=True, without=without | names)
        if not found:
            return more
        return joint_width(found["below"], more[0]), joint_width(found["above"], more[1])

    def place(self, part: str = "") -> Place:
        """Return where the rows of the step's phase or of "load" are looked for, and the points."""
        s = self.setting
        d = s.degrees
        points = {
            "ranks": s.at_each_point(d.tp * d.pp * d.ep * d.cp),
            "batch": self.slots,
            "length": self.length,
            "size": np.float64(s.model.active_params()),
        }
        return s.e, s.at.chip, s.at.lnc, part or s.phase, s.model.kind, points

    def messages(self) -> tuple[Message, ...]:
        """Return what a rank sends."""
        question = self.everywhere
        return messages(question.setting, question.step_work().work)

    def breakdown(self) -> Lines[str, Line]:
        """Return the time of each operator, exchange and cost by resource."""
        question = self.everywhere
        return lines_of(question.setting, question.step_work().work)

    def experts(self) -> Texts:
        """Return how experts run at each point, a text of `EXPERT_EXECUTIONS`."""
        if not self.setting.outline.experts:
            return Texts(np.zeros((), dtype=int), EXPERT_EXECUTIONS[:1])
        return Texts(np.asarray(self.everywhere.step_work().work.expert_execution, dtype=int), EXPERT_EXECUTIONS)

    def fitted_resources(self) -> tuple[str, ...]:
        """Return the resources whose constants were fitted to rows of the chip."""
        return fitted_resources(self.setting.e, self.setting.at.chip, self.setting.phase)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DecodeQuestion(StepQuestion):
    """What was asked of a decode step."""

    SIZES: ClassVar[tuple[str, ...]] = (
        *("batch", "context", "new_tokens", "max_context", "compiled_batch", "expert_imbalance"),
        *OVERLAPS,
    )

    context: NDArray
    new_tokens: NDArray
    compiled_batch: NDArray | None = None
    expert_read: str | None = None

    @property
    def length(self) -> NDArray:
        """Tokens in the cache of a sequence, the new one included."""
        return self.context

    @property
    def slots(self) -> NDArray:
        """Sequences that run: those that the graph is compiled for, where they are more than the active ones."""
        return np.maximum(self.batch, self.batch if self.compiled_batch is None else self.compiled_batch)

    def longest(self) -> NDArray:
        """Return the longest sequence, which is the largest context that graphs are compiled for [token]."""
        return self.context if self.max_context is None else np.maximum(self.context, self.max_context)

    def step_work(self) -> StepWork:
        """Return what a decode step asks of a rank, at the compiled length, with its cache as long as it may get."""
        s, batch = self.setting, self.batch if self.compiled_batch is None else self.slots
        context = bucket(self.context, s.e.context_bucket, self.max_context)
        work = decode_work(s, batch, context, self.new_tokens, self.expert_read, self.expert_imbalance)
        longest = context if self.max_context is None else np.maximum(context, self.max_context)
        new = batch * self.new_tokens
        stored = stored_kinds(s, batch, longest, new, new)
        return StepWork(context, work, total(stored.values()), np.float64(1))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrefillQuestion(StepQuestion):
    """What was asked of a prefill."""

    SIZES: ClassVar[tuple[str, ...]] = (
        *("batch", "input_tokens", "past", "expert_imbalance", "max_context"),
        *OVERLAPS,
    )

    input_tokens: NDArray
    past: NDArray

    @property
    def length(self) -> NDArray:
        """New tokens of each prompt."""
        return self.input_tokens

    def longest(self) -> NDArray:
        """Return the longest sequence: cached and new tokens, or what graphs are compiled for [token]."""
        context = self.input_tokens + self.past
        return context if self.max_context is None else np.maximum(context, self.max_context)

    def step_work(self) -> StepWork:
        """Return what a prefill asks of a rank, at the compiled length."""
        s, batch, past = self.setting, self.batch, self.past
        input_tokens = bucket(self.input_tokens, s.e.prompt_bucket, self.max_context)
        work = prefill_work(s, batch, input_tokens, past, self.expert_imbalance)
        stored = stored_kinds(s, batch, input_tokens + past, *prefilled_tokens(s, batch, input_tokens))
        return StepWork(input_tokens, work, total(stored.values()), self.input_tokens)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryQuestion(InferenceQuestion):
    """What was asked of a rank's memory."""

    SIZES: ClassVar[tuple[str, ...]] = ("batch", "context", "input_tokens", "prompts")
    TIMED: ClassVar[bool] = False

    context: NDArray
    input_tokens: NDArray | None = None
    prompts: NDArray

    def longest(self) -> NDArray:
        """Return the longest sequence [token]."""
        return self.context

    def solve(self) -> Answer:
        """Return stored bytes by kind, and whether they fit; a point that does not fit keeps them."""
        s = self.setting
        input_tokens = self.context if self.input_tokens is None else self.input_tokens
        kinds = stored_kinds(s, self.batch, self.context, *prefilled_tokens(s, self.prompts, input_tokens))
        whole = total(kinds.values())
        first, even = whole + s.stored.first_rank_bytes, s.room_bytes / s.sharing
        left = left_in_bank_bytes(s.room_bytes, s.sharing, whole)
        mask = (
            self.illegal()
            | np.isnan(s.hbm_bytes) * UNKNOWN
            | (whole > even) * TOO_LARGE
            | (first > left) * FIRST_TOO_LARGE
        )
        totals = {"total_bytes": whole, "first_rank_total_bytes": first}
        room = {"capacity_bytes": np.asarray(even), "first_rank_capacity_bytes": np.asarray(left)}
        return Answer({}, {**kinds, **totals, **room, "reason_mask": mask})

    def figure(self, e: Efficiencies) -> NDArray:
        """Return all bytes of an ordinary rank for a stack with other values [B]."""
        return in_pieces(self.with_stack(e))["total_bytes"]

    def place(self, part: str = "") -> Place:
        """Return where the rows of memory are looked for: of sums of sizes, no length or batch is far."""
        s = self.setting
        return s.e, s.at.chip, s.at.lnc, part or MEMORY, s.model.kind, {}

    def reach(self, part: str = "") -> Reach:
        """Return what a band needs of the basis: the errors of rows as shares of all bytes."""
        return stack_reach(*self.place(part or STORED))
