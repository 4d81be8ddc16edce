"""What a question of training gives back: a step with the parts of its time, its work, and what a rank stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import numbers
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.systems import System
from trnmodel.catalog.trainers import Trainer
from trnmodel.formulas import training as page
from trnmodel.models.transformer import Transformer
from trnmodel.result import Grounded
from trnmodel.steps.answers import REASONS as FORWARD
from trnmodel.steps.legal import RULES
from trnmodel.steps.messages import Message
from trnmodel.steps.training_work import EXCHANGES, PARTS, WORK
from trnmodel.units import HOUR, Numeric

REASONS = (
    *RULES,
    "the global batch is no whole number of micro-batches of all replicas",
    "interleaved stages need a pipeline, its layers, and micro-batches by the pipeline",
    *FORWARD[len(RULES) : len(RULES) + 2],
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainStep(Grounded):
    """A training step: the parts of its time, which add up to `time_s`, its work, and what the fullest rank stores.

    `lower_s` hides every exchange that work can hide, `upper_s` none. MFU is the model's work over the printed peak of
    all ranks, HFU counts what is computed again too. A point that does not fit keeps its bytes.
    """

    REASONS: ClassVar[tuple[str, ...]] = REASONS
    ON_DEMAND: ClassVar[tuple[str, ...]] = ("low", "high", "lower_s", "upper_s")
    UNBANDED: ClassVar[tuple[str, ...]] = (
        *("tp", "pp", "dp", "ep", "cp", "ranks_per_chip", "chips", "zero", "peak_flop_per_s"),
        *("global_batch", "micro_batch", "microbatches", "seq", "interleave"),
    )

    model: Transformer
    system: System | Chip
    precision: Precision
    stack: Trainer
    recompute: str
    zero: int
    sequence_parallel: bool
    tp: NDArray
    pp: NDArray
    dp: NDArray
    ep: NDArray
    cp: NDArray
    ranks_per_chip: float
    global_batch: NDArray
    micro_batch: NDArray
    seq: NDArray
    interleave: NDArray
    microbatches: NDArray
    time_s: NDArray
    forward_s: NDArray
    backward_s: NDArray
    recompute_s: NDArray
    tensor_s: NDArray
    expert_s: NDArray
    context_s: NDArray
    pipeline_s: NDArray
    data_s: NDArray
    bubble_s: NDArray
    optimizer_s: NDArray
    straggler_s: NDArray
    overhead_s: NDArray
    model_flop: NDArray
    hardware_flop: NDArray
    mfu: NDArray
    hfu: NDArray
    tokens_per_s: NDArray
    weight_bytes: NDArray
    gradient_bytes: NDArray
    optimizer_bytes: NDArray
    activation_bytes: NDArray
    buffer_bytes: NDArray
    memory_bytes_per_rank: NDArray
    capacity_bytes: NDArray
    peak_flop_per_s: float
    again: Callable[[float], NDArray]
    send: Callable[[], tuple[Message, ...]]

    @property
    def chips(self) -> NDArray:
        """Chips that the job occupies."""
        return np.ceil(self.tp * self.pp * self.dp * self.ep * self.cp / self.ranks_per_chip)

    @property
    def tokens_per_s_per_chip(self) -> NDArray:
        """Tokens of all replicas over the chips. [token/s]"""
        return self.tokens_per_s / self.chips

    @property
    def lower_s(self) -> NDArray:
        """Time where every exchange hides that work can hide. [s]"""
        return self.again(1.0)

    @property
    def upper_s(self) -> NDArray:
        """Time where no exchange hides. [s]"""
        return self.again(0.0)

    @property
    def bound(self) -> NDArray | str:
        """What takes longest: "work", an exchange, "bubble", "optimizer" or "overhead"; empty where nothing can."""
        names = ("work", *(name.removesuffix("_s") for name in PARTS if name not in WORK))
        work = sum(getattr(self, name) for name in WORK)
        times = np.stack(np.broadcast_arrays(work, *(getattr(self, name) for name in PARTS if name not in WORK)))
        dead = np.isnan(times).any(axis=0)
        return np.asarray([*names, ""], dtype=object)[np.where(dead, len(names), times.argmax(axis=0))]

    @property
    def exposed_s(self) -> NDArray:
        """Exchanges that nothing hides, all together. [s]"""
        return sum((getattr(self, name) for name in EXCHANGES), np.zeros(()))

    def run_s(self, tokens: Numeric) -> NDArray:
        """Time of a run over so many tokens, nothing lost.

        Parameters
        ----------
        tokens : numeric
            Tokens to be seen. [token]

        Examples
        --------
        >>> import trnmodel as tm
        >>> step = tm.train_step("gpt3-175b", "hgx-a100", tm.Mapping(tp=8, pp=12, dp=16), count=192,
        ...                      global_batch=1536, seq=2048, recompute="full")
        >>> bool(20 < step.run_s(300e9) / tm.units.DAY < 30)
        True
        """
        return page.run_s(numbers("tokens", tokens), self.tokens_per_s)

    def chip_hours(self, tokens: Numeric) -> NDArray:
        """Hours of all chips for so many tokens. [h]"""
        return self.run_s(tokens) * self.chips / HOUR

    @property
    def messages(self) -> tuple[Message, ...]:
        """What a rank of the fullest stage sends for a micro-batch; gradients and weights are not among it."""
        return self.send()

    @property
    def megatron_flop(self) -> NDArray:
        """Work of the step as the papers of Megatron-LM count it for GPT, with what is computed again."""
        o = self.model.outline("prefill")
        return page.megatron_flop(self.global_batch, self.seq, o.layers, o.hidden, o.vocabulary, self.recompute)
