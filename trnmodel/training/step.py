"""Time, utilisation and memory of a training step, for any grid of batches, lengths and degrees at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import numbers, refuse
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.systems import System, find, joined
from trnmodel.catalog.trainers import Trainer
from trnmodel.declared import MACHINE, MODEL, PRECISION, STACK, Flag, Integer, Numbers, Word, declare
from trnmodel.formulas import training as page
from trnmodel.models.transformer import Transformer
from trnmodel.result import Basis, Grounded
from trnmodel.steps.answers import REASONS as FORWARD
from trnmodel.steps.assemble import Message
from trnmodel.steps.legal import RULES
from trnmodel.steps.mapping import DEGREES, MAPPING, Mapping
from trnmodel.steps.pieces import fitting
from trnmodel.training.rank import rank
from trnmodel.training.work import EXCHANGES, PARTS, WORK, TrainQuestion, answers_of
from trnmodel.units import HOUR, Numeric

PLACEMENT = ("tp", "cp", "ep", "dp", "pp")
WHOLE = ("global_batch", "seq", "micro_batch", "interleave")
NO_DEGREES = Mapping(placement=PLACEMENT)


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
    all ranks, with the whole square of attention on all software; HFU is what is computed, layers that run again among
    it and masked pairs that are skipped not. A point that does not fit keeps its bytes.
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
    host_s: NDArray
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
    question: TrainQuestion

    def judge(self) -> Basis:
        """Return what the step rests on, with its reason and widths."""
        return self.question.basis()

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Half-widths of a figure; bytes and FLOP have none."""
        return self.question.widths(name)

    @property
    def chips(self) -> NDArray:
        """Chips that the job occupies."""
        return np.ceil(self.tp * self.pp * self.dp * self.ep * self.cp / self.ranks_per_chip)

    @property
    def tokens_per_s_per_chip(self) -> NDArray:
        """Tokens of all replicas over the chips [token/s]."""
        return self.tokens_per_s / self.chips

    @property
    def lower_s(self) -> NDArray:
        """Time where every exchange hides that work can hide [s]."""
        return self.question.time_hiding_s(1.0)

    @property
    def upper_s(self) -> NDArray:
        """Time where no exchange hides [s]."""
        return self.question.time_hiding_s(0.0)

    @property
    def bound(self) -> NDArray | str:
        """The longest part: "work", an exchange, "host", "bubble", "optimizer" or "overhead"; empty where none can."""
        names = ("work", *(name.removesuffix("_s") for name in PARTS if name not in WORK))
        work = sum(getattr(self, name) for name in WORK)
        times = np.stack(np.broadcast_arrays(work, *(getattr(self, name) for name in PARTS if name not in WORK)))
        dead = np.isnan(times).any(axis=0)
        return np.asarray([*names, ""], dtype=object)[np.where(dead, len(names), times.argmax(axis=0))]

    @property
    def exposed_s(self) -> NDArray:
        """Exchanges that nothing hides, all together [s]."""
        return sum((getattr(self, name) for name in EXCHANGES), np.zeros(()))

    def run_s(self, tokens: Numeric) -> NDArray:
        """Time of a run over a number of tokens when nothing is lost.

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
        """Hours of all chips for a number of tokens [h]."""
        return self.run_s(tokens) * self.chips / HOUR

    @property
    def messages(self) -> tuple[Message, ...]:
        """Collectives of a rank of the fullest stage for a micro-batch, with those of gradients and weights.

        What takes place once a step counts as a part: its number over that of the micro-batches. The groups "dense" and
        "expert" are all ranks that hold the same parameters.
        """
        return self.question.messages()

    @property
    def megatron_flop(self) -> NDArray:
        """Work of the step as the papers of Megatron-LM count it for GPT, with what is computed again."""
        o = self.model.outline("prefill")
        return page.megatron_flop(self.global_batch, self.seq, o.layers, o.hidden, o.vocabulary, self.recompute)


@declare(
    model=MODEL,
    system=MACHINE,
    mapping=MAPPING,
    global_batch=Numbers(1, whole=True),
    seq=Numbers(1, whole=True),
    micro_batch=Numbers(1, whole=True),
    interleave=Numbers(1, whole=True),
    precision=PRECISION,
    recompute=Word(page.RECOMPUTES),
    zero=Integer(0, 3),
    sequence_parallel=Flag(),
    gradient_bytes=Numbers(),
    optimizer_bytes=Numbers(),
    expert_imbalance=Numbers(1),
    trainable_share=Numbers(0, 1),
    straggler=Numbers(),
    count=Integer(),
    efficiencies=STACK,
)
def train_step(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    global_batch: Numeric,
    seq: Numeric,
    micro_batch: Numeric = 1,
    interleave: Numeric = 1,
    precision: str | Precision = "bf16",
    recompute: str = "selective",
    zero: int = 1,
    sequence_parallel: bool = True,
    gradient_bytes: Numeric | None = None,
    optimizer_bytes: Numeric | None = None,
    expert_imbalance: Numeric = 1.0,
    trainable_share: Numeric = 1.0,
    straggler: Numeric | None = None,
    count: int | None = None,
    efficiencies: str | Trainer | None = None,
) -> TrainStep:
    r"""Time of a step of training: forward, backward, what is computed again, what waits, and the optimizer.

    .. math:: t = m\,(t_f + t_b + t_r + t_x + t_w) + \frac{p-1}{v}(t_f + t_b + t_r + t_x + t_w) + t_d + t_o + t_0

    with m micro-batches, exposed exchanges t_x of layers and stages, waits t_w for a host that launches more slowly
    than the chip works, and t_d of gradients and weights.

    Parameters
    ----------
    model : str or Transformer
        Id, name, path or object. [-]
    system : str or System or Chip
        Id, name or object; of a bare chip there are as many as wanted. [-]
    mapping : Mapping, optional
        Degrees; default one rank. Ranks of `dp` and of `ep` share out the sequences, those of `cp` each of them. [-]
    global_batch : numeric
        Sequences of a step, all replicas together. [-]
    seq : numeric
        Tokens of a sequence. [token]
    micro_batch : numeric
        Sequences that a rank takes at once. [-]
    interleave : numeric
        Parts of the model that each stage has. [-]
    precision : str or Precision
        Preset or object; scores and logits are computed in that of its attention. [-]
    recompute : str
        "none", "selective" (scores again, where they are kept) or "full" (layers again). [-]
    zero : int
        What data-parallel ranks share out: 0 nothing, 1 the optimizer, 2 gradients, 3 weights (FSDP). [-]
    sequence_parallel : bool
        Whether tensor-parallel ranks cut the sequence between matrices. [-]
    gradient_bytes : numeric, optional
        Of a parameter: 2, or 4 where gradients are summed in FP32; default the stack's. [B]
    optimizer_bytes : numeric, optional
        State of a parameter: 12 of Adam, 8 with stochastic rounding (no FP32 copy); default the stack's. [B]
    expert_imbalance : numeric
        Tokens of the hottest expert rank over the mean. [-]
    trainable_share : numeric
        Parameters that are trained over all of them, such as those of LoRA's adapters: the others have no gradients, no
        state of the optimizer, and half of the backward products. [-]
    straggler : numeric, optional
        By how much the slowest rank's work is longer than the mean; default the stack's. [-]
    count : int, optional
        Scale-up domains that the scale-out network joins; default as the system has it. [-]
    efficiencies : str or Trainer, optional
        Training stack: "public" (the chip's own, the default), "hand-tuned" (the chip's scenario of parts that were
        measured somewhere), "ideal", an id, or a set. [-]

    Returns
    -------
    step : TrainStep
        Arrays of the broadcast shape of batches, lengths and degrees. [-]

    Raises
    ------
    ValueError
        An argument is out of its range, the chip has no training stack, or the model is an encoder-decoder.

    Notes
    -----
    Every exchange has a start-up for each step of its algorithm, and ZeRO-3 gathers layer by layer, so that many ranks
    with few parameters each wait for starts. An exchange hides behind work by the stack's share of
    its pair; what one has hidden behind hides no other. All stages wait for the fullest, which has the head too.
    Flash attention computes scores again inside its kernel, which is not counted. What products lose beside the engine
    is as long in every number format (`formulas.training.product_s`). An oversubscribed network is one of a lower rate.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"global_batch": 64, "seq": 2048, "interleave": 3, "count": 8}
    >>> step = tm.train_step("gpt3-175b", "hgx-a100", tm.Mapping(tp=8, pp=8), **ask)
    >>> 0.5 < step.mfu < step.hfu < 0.55  # 51.4 and 52.8 % are published
    np.True_
    """
    mapping = NO_DEGREES if mapping is None else mapping
    resolved = rank(model, _joined(system, count), mapping, precision, efficiencies)
    e = resolved.e
    sizes: dict[str, Any] = {
        "global_batch": global_batch,
        "seq": seq,
        "micro_batch": micro_batch,
        "interleave": interleave,
        "gradient_bytes": numbers("gradient_bytes", e.gradient_bytes) if gradient_bytes is None else gradient_bytes,
        "optimizer_bytes": numbers("optimizer_bytes", e.optimizer_bytes)
        if optimizer_bytes is None
        else optimizer_bytes,
        "expert_imbalance": expert_imbalance,
        "trainable_share": trainable_share,
        "straggler": numbers("straggler", e.straggler) if straggler is None else straggler,
    }
    fitted: dict[str, Any] = fitting(mapping, {}, **sizes)
    question = TrainQuestion(
        rank=resolved,
        mapping=mapping,
        recompute=recompute,
        zero=zero,
        sequence_parallel=sequence_parallel,
        **fitted,
    )
    return _result(question)


def _result(q: TrainQuestion) -> TrainStep:
    """Return the step of a question."""
    r = q.rank
    return TrainStep(
        model=r.model,
        system=r.at.where,
        precision=r.precision,
        stack=r.e,
        recompute=q.recompute,
        zero=q.zero,
        sequence_parallel=q.sequence_parallel,
        **{name: getattr(q.mapping, name)[()] for name in DEGREES},
        ranks_per_chip=r.at.ranks_per_chip,
        **{name: getattr(q, name) for name in WHOLE},
        peak_flop_per_s=r.rates.compute_flop_per_s,
        question=q,
        **answers_of(q),
    )


def _joined(system: str | System | Chip, count: int | None) -> str | System | Chip:
    """Return a system, or a system of `count` of its domains."""
    if count is None:
        return system
    if isinstance(system, Chip):
        refuse("count", count, "of a bare chip there are as many as wanted")
    return joined(find(system, "system"), count)
