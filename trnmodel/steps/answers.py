"""Results of inference: a step with its times, and what a rank stores."""

from __future__ import annotations

from collections.abc import Mapping as Lines
from dataclasses import dataclass, field
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.models.transformer import Transformer
from trnmodel.result import Basis, Judged, Result, Texts
from trnmodel.steps.assemble import Line, Message
from trnmodel.steps.ends import COST_CONSTANTS
from trnmodel.steps.legal import RULES
from trnmodel.steps.questions import MemoryQuestion, StepQuestion

RESOURCES = ("compute", "memory", "network", "overhead")
REASONS = (
    *RULES,
    "a figure of the chip that the answer needs is not published",
    "does not fit in memory",
    "the first rank, which holds more, does not fit in memory",
)


def _no_lines() -> Lines[str, Line]:
    """Return a breakdown without lines."""
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Step(Judged):
    """A forward step: its time, the resources that it is made of, its bounds, and what one rank stores.

    `lower_s` lets everything overlap, `upper_s` nothing; `time_s` lies between them. `memory_s` and the others are the
    times that a resource takes by itself. Numbers of a point that cannot exist are NaN.
    """

    REASONS: ClassVar[tuple[str, ...]] = REASONS[:-1]
    UNBANDED: ClassVar[tuple[str, ...]] = (
        *("tp", "pp", "dp", "ep", "cp", "ranks_per_chip", "occupied_chips"),
        *("batch", "tokens", "compiled_tokens"),
    )
    PARTS: ClassVar[tuple[str, ...]] = ("load",)
    ON_DEMAND: ClassVar[tuple[str, ...]] = (*Judged.ON_DEMAND, "messages")

    model: Transformer
    system: System | Chip
    precision: Precision
    stack: Efficiencies
    tp: NDArray
    pp: NDArray
    dp: NDArray
    ep: NDArray
    cp: NDArray
    ranks_per_chip: float
    batch: NDArray
    tokens: NDArray
    compiled_tokens: NDArray
    time_s: NDArray
    compute_s: NDArray
    memory_s: NDArray
    network_s: NDArray
    overhead_s: NDArray
    tokens_per_s: NDArray
    tokens_per_s_per_user: NDArray
    work_flop_per_rank: NDArray
    moved_bytes_per_rank: NDArray
    memory_bytes_per_rank: NDArray
    question: StepQuestion
    operators: Lines[str, Line] = field(default_factory=_no_lines)

    def judge(self) -> Basis:
        """Return what the step rests on, with its reason and widths."""
        return self.question.basis()

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Half-widths of the time, which all figures of a part have."""
        return self.question.widths(part)

    def breakdown(self) -> Lines[str, Line]:
        """Return each operator, exchange and cost with its time by resource; by resource the lines add up.

        `operators` holds the same lines where the call had `breakdown=True`.

        Examples
        --------
        >>> import trnmodel as tm
        >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=2048)
        >>> lines = step.breakdown()
        >>> abs(sum(float(line.memory_s) for line in lines.values()) / float(step.memory_s) - 1) < 1e-9
        True
        """
        return MappingProxyType(self.question.breakdown())

    @property
    def occupied_chips(self) -> NDArray:
        """Chips that all replicas occupy."""
        return np.ceil(self.tp * self.pp * self.dp * self.ep * self.cp / self.ranks_per_chip)

    @property
    def tokens_per_s_per_chip(self) -> NDArray:
        """Tokens of all replicas over the chips that they occupy [token/s]."""
        return self.tokens_per_s / self.occupied_chips

    @property
    def messages(self) -> tuple[Message, ...]:
        """Collectives that a rank takes part in during the step."""
        return self.question.messages()

    @property
    def experts(self) -> NDArray | str:
        """How experts run: those "needed", those "selected" for each token, "all" on all tokens, or in "blocks".

        Blocks of a static graph hold the worst distribution; few tokens that fill one are then more work than all
        experts would be, and cost less in chunks that fill none. Empty for a model without experts.
        """
        return self.question.experts().each

    @property
    def lower_s(self) -> NDArray:
        """Time where everything overlaps [s]."""
        longest = _onto(np.maximum, np.maximum(self.compute_s, self.memory_s), self.network_s)
        return _onto(np.add, longest, self.overhead_s)

    @property
    def upper_s(self) -> NDArray:
        """Time where nothing overlaps [s]."""
        return _onto(np.add, self.compute_s + self.memory_s, self.network_s + self.overhead_s)

    @property
    def measured_share(self) -> NDArray:
        """Share of its time, resource by resource, that rests on constants fitted to rows of its chip."""
        return self._fitted_s() / self.upper_s

    def _fitted_s(self) -> NDArray:
        """Return the times of the resources whose constants were fitted to rows of the chip, added up [s]."""
        times = (getattr(self, f"{name}_s") for name in self.question.fitted_resources())
        return reduce(partial(_onto, np.add), times, np.zeros(()))

    @property
    def bound(self) -> NDArray | str:
        """The resource that takes longest by itself; empty for a point that cannot exist."""
        return self._bound().each

    def _bound(self) -> Texts:
        """Return the resource that takes longest by itself, the first of several, as a place in a list."""
        times = np.broadcast_arrays(*(getattr(self, f"{name}_s") for name in RESOURCES))
        most, place = np.array(times[0]), np.zeros(np.shape(times[0]), dtype=np.int8)
        for i, time_s in enumerate(times[1:], 1):
            np.putmask(place, time_s > most, i)
            np.maximum(most, time_s, out=most)  # NaN where any is
        np.putmask(place, np.isnan(most), len(RESOURCES))
        return Texts(place, (*RESOURCES, ""))

    def _coded(self) -> dict[str, Any]:
        """Return columns of few texts, and those that are made together."""
        word, reason = self.question.judgement()
        columns = {"basis": word, "basis_reason": reason, "experts": self.question.experts(), "bound": self._bound()}
        upper_s = self.upper_s
        return Result._coded(self) | columns | {"upper_s": upper_s, "measured_share": self._fitted_s() / upper_s}


def _onto(combine: Any, x: Any, y: Any) -> NDArray:
    """Return two arrays combined, in the place of the first one, which nobody else has, where the answer fits."""
    whole = isinstance(x, np.ndarray) and x.ndim and x.shape == np.broadcast_shapes(x.shape, np.shape(y))
    return combine(x, y, out=x) if whole else combine(x, y)


DOMINANT = 0.5


class Dominant(NamedTuple):
    """Constant of a stack that makes up most of a step, empty where none does, and the largest share that one has."""

    name: NDArray | str
    share: NDArray


def dominant_constant(step: Step) -> Dominant:
    """Return the one fitted constant that makes up over half of a step's time, and its share of it.

    Such a step says more about the fit than about the machine: bandwidth and peaks move the rest alone.

    Parameters
    ----------
    step : Step
        A decode step or a prefill. [-]

    Returns
    -------
    dominant : Dominant
        `name` of the field of the stack, empty where no constant has over half; `share` of the one that has most. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 1, "context": 10750, "efficiencies": "vllm-neuron-2026"}
    >>> name, share = dominant_constant(tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=64), **ask))
    >>> name, round(float(share), 2)
    ('dense_layer_s', 0.67)
    """
    lines = step.breakdown()
    shares: dict[str, Any] = {"": np.zeros(np.shape(step.time_s))}
    for line, names in COST_CONSTANTS[step.question.phase].items():
        if line not in lines:
            continue
        values = {name: getattr(step.stack, name) for name in names}
        for name, value in values.items():
            part = 1.0 if len(values) == 1 else np.divide(value, np.maximum(sum(values.values()), TINY))
            shares[name] = lines[line].overhead_s * part / step.time_s
    every = np.stack(np.broadcast_arrays(*shares.values()))
    share = every.max(axis=0)
    place = np.where(share > DOMINANT, every.argmax(axis=0), 0)
    return Dominant(np.asarray([*shares], dtype=object)[place], share[()])


TOTALS = ("total_bytes", "first_rank_total_bytes")
COUNTED_KINDS = ("weight_bytes", "cache_bytes")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryFit(Judged):
    """Bytes of an ordinary rank by kind, what the first rank holds more, and whether both fit.

    `runtime_bytes` are what the process of a rank and its library keep whatever the model is, such as a CUDA context.
    Ranks that reach one bank of memory share it: `capacity_bytes` is a rank's even part of what it reaches, all of it
    for a rank by itself, and `first_rank_capacity_bytes` what the first one may take when its neighbours are ordinary.
    Weights and cache are counted; the band of a total widens what is estimated alone.
    """

    REASONS: ClassVar[tuple[str, ...]] = REASONS
    FIGURE: ClassVar[str] = "total_bytes"
    UNBANDED: ClassVar[tuple[str, ...]] = (
        *("tp", "batch", "context"),
        *("capacity_bytes", "first_rank_capacity_bytes", "room_bytes"),
    )

    system: System | Chip
    stack: Efficiencies
    tp: NDArray
    batch: NDArray
    context: NDArray
    weight_bytes: NDArray
    cache_bytes: NDArray
    scratchpad_bytes: NDArray
    collective_buffer_bytes: NDArray
    ring_bytes: NDArray
    code_bytes: NDArray
    runtime_bytes: NDArray
    total_bytes: NDArray
    first_rank_total_bytes: NDArray
    capacity_bytes: NDArray
    first_rank_capacity_bytes: NDArray
    question: MemoryQuestion

    def judge(self) -> Basis:
        """Return what the sizes rest on, with its reason and widths."""
        return self.question.basis()

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Half-widths of a total, which never ends below the bytes that are counted, or of the kinds that are not.

        Weights and cache are counted from the model's shapes and have no width. What a total may be off by lies in the
        other kinds together, each of which takes an even part of it.
        """
        counted = self.weight_bytes + self.cache_bytes
        if name in COUNTED_KINDS:
            nothing = np.zeros(np.shape(counted))[()]
            return nothing, nothing
        whole = self.first_rank_total_bytes if name == "first_rank_total_bytes" else self.total_bytes
        below, above = self.question.widths()
        low, high = np.maximum(whole * np.exp(-below), counted), whole * np.exp(above)
        if name not in TOTALS:
            whole, low, high = whole - counted, low - counted, high - counted
        with np.errstate(divide="ignore", invalid="ignore"):  # a kind may end at nothing
            sides = -np.log(low / whole), np.log(high / whole)
        below, above = (np.where(np.equal(whole, 0), 0.0, side)[()] for side in sides)
        return below, above

    @property
    def room_bytes(self) -> NDArray:
        """Bytes that the first rank has left, or lacks; more sequences take from it evenly."""
        return self.first_rank_capacity_bytes - self.first_rank_total_bytes
