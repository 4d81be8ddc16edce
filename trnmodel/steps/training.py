"""Time, utilisation and memory of a training step, for any grid of batches, lengths and degrees at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice, flag, instance, integer, numbers, refuse, together
from trnmodel.bands import ABSENT_OCTAVES, ranged
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.systems import System, find
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.formulas import training as page
from trnmodel.formulas.bands import grown_width, joint_width
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Basis, Grounded, blank
from trnmodel.steps.mapping import DEGREES, Mapping
from trnmodel.steps.messages import Message
from trnmodel.steps.rank import site
from trnmodel.steps.training_rank import Rank, rank
from trnmodel.steps.training_work import (
    EXCHANGES,
    PARTS,
    WORK,
    Job,
    flop_of,
    kept_of,
    memory_of,
    messages_of,
    params_of,
    times_of,
    tokens_of,
)
from trnmodel.units import HOUR

Numeric = ArrayLike
POINTS = 40_000  # of a piece: its arrays stay in a core's cache
PLACEMENT = ("tp", "cp", "ep", "dp", "pp")
REASONS = (
    "more ranks than the system has",
    "more pipeline stages than layers",
    "more expert-parallel ranks than experts",
    "the global batch is no whole number of micro-batches of all replicas",
    "interleaved stages need a pipeline, its layers, and micro-batches by the pipeline",
    "a figure of the chip that the answer needs is not published",
    "does not fit in memory",
)
ROOMY = 6  # the bit of memory


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainStep(Grounded):
    """A training step: the parts of its time, which add up to `time_s`, its work, and what the fullest rank stores.

    `lower_s` hides every exchange that work can hide, `upper_s` none. MFU is the model's work over the printed peak of
    all ranks, HFU counts what is computed again too. A point that does not fit keeps its bytes.
    """

    REASONS: ClassVar[tuple[str, ...]] = REASONS
    ON_DEMAND: ClassVar[tuple[str, ...]] = ("low", "high", "lower_s", "upper_s")

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


def _numbers(r: Rank, job: Job, w: dict[str, Any], g: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Numbers that a point has only where it can exist, and what every point has."""
    t = tokens_of(r, w, g, job)
    k, p = kept_of(r, g), params_of(w, t)
    parts = times_of(r, w, g, job, t, k, p)
    time_s = sum(parts.values())
    model, hardware = flop_of(r, w, g, job)
    ranks = w["tp"] * w["pp"] * w["dp"] * w["ep"] * w["cp"]
    peak = r.at.peak(r.precision.compute)
    kinds = memory_of(r, w, g, job, t, k, p)
    stored, room = sum(kinds.values()), r.at.hbm_bytes / w["sharing"]
    m, v = t.microbatches, g["interleave"]
    woven = (v > 1) & ((w["pp"] * v > r.outline.layers) | (w["pp"] < 2) | (m % w["pp"] != 0))
    broken = (m % 1 != 0) | (m < 1), woven, time_s != time_s, stored > room
    mask = w["impossible"] + sum(np.multiply(bad, 2**bit) for bit, bad in enumerate(broken, ROOMY - 3))
    found = parts | {
        "time_s": time_s,
        "model_flop": model,
        "hardware_flop": hardware,
        "mfu": page.model_utilisation(model, time_s, ranks, peak),
        "hfu": page.model_utilisation(hardware, time_s, ranks, peak),
        "tokens_per_s": g["global_batch"] * g["seq"] / time_s,
    }
    return found, kinds | {"memory_bytes_per_rank": stored, "capacity_bytes": room, "microbatches": m,
                           "reason_mask": mask}  # fmt: skip


def _answers(r: Rank, job: Job, g: dict[str, Any]) -> dict[str, Any]:
    """The numbers of all points, a piece at a time, NaN for those that cannot exist."""
    shapes = [np.shape(x) for x in g.values()] + [() if r.index is None else r.index.shape]
    shape = np.broadcast_shapes(*shapes)
    size = int(np.prod(shape))
    if size <= POINTS and r.index is None:
        found, kept = _numbers(r, job, r.cut(None), g)
        return kept | (blank(kept["reason_mask"], **found) if np.any(kept["reason_mask"]) else found)
    flat = {name: np.broadcast_to(x, shape).ravel() if np.ndim(x) else x for name, x in g.items()}
    whole = r if r.index is None else replace(r, index=np.broadcast_to(r.index, shape).ravel())
    room: dict[str, NDArray] = {}
    for start in range(0, size, POINTS):
        here = slice(start, start + POINTS)
        part = {name: x[here] if np.ndim(x) else x for name, x in flat.items()}
        found, kept = _numbers(r, job, whole.cut(here), part)
        dead = kept["reason_mask"] != 0
        for name, x in (kept | found).items():
            if name not in room:
                room[name] = np.empty(size, np.asarray(x).dtype)
            room[name][here] = np.where(dead, np.nan, x) if name in found and np.any(dead) else x
    return {name: x.reshape(shape) for name, x in room.items()}


def _messages(r: Rank, job: Job, g: dict[str, Any]) -> tuple[Message, ...]:
    w = r.cut(None)
    return tuple(message for _, message in messages_of(r, w, g, job, tokens_of(r, w, g, job)))


def _basis(r: Rank, job: Job) -> Basis:
    """What a step rests on: rows of its chip and stack, or those of others."""
    if r.e.kind == "ideal":
        return Basis("ideal", "")
    on = sorted({chip for chips in r.e.fitted_on.values() for chip in chips})
    reasons = [] if r.e.kind == "public" else [f"stack: {r.e.id} is given with the call"]
    if r.at.chip.id not in on:
        reasons.append(f"chip: {r.e.id} was fitted on {', '.join(on) or 'no chip'}")
    if r.model.kind not in r.e.fitted_on:
        reasons.append(f"model: no training row of {r.model.kind} models")
    if r.precision.compute not in ("bf16", "fp16"):
        reasons.append(f"precision: no training row of {r.precision.compute}")
    width = grown_width(r.e.width, ABSENT_OCTAVES * len(reasons))
    return Basis("extrapolated" if reasons else "interpolated", "; ".join(reasons), width)


def _spread(r: Rank, ask: Callable[[Trainer], NDArray], name: str) -> tuple[NDArray, NDArray]:
    """Half-widths of a figure: those of the rows, and outside of them the ranges of the stack's values too."""
    if name.endswith(("_bytes", "_flop")) or "bytes_per" in name:
        return np.zeros(()), np.zeros(())
    found = _basis(r, Job("none", 0, True))
    below, above = ranged(r.e, ask) if found.word == "extrapolated" else (np.zeros(()), np.zeros(()))
    return joint_width(found.width, below), joint_width(found.width, above)


def _checked(mapping: Mapping, **given: Numeric) -> dict[str, Any]:
    """What was given, as numbers that broadcast with the mapping."""
    found = {
        name: numbers(name, value, 1 if name in WHOLE else 0, whole=name in WHOLE) for name, value in given.items()
    }
    if mapping.key is None or any(x.ndim for x in found.values()):
        together(**{f"mapping.{name}": getattr(mapping, name) for name in DEGREES}, **found)
    return {name: x if x.ndim else x[()] for name, x in found.items()}


WHOLE = ("global_batch", "seq", "micro_batch", "interleave")
NO_DEGREES = Mapping(placement=PLACEMENT)


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
    straggler: Numeric | None = None,
    count: int | None = None,
    efficiencies: str | Trainer | None = None,
) -> TrainStep:
    r"""Time of a step of training: forward, backward, what is computed again, what waits, and the optimizer.

    .. math:: t = m\,(t_f + t_b + t_r + t_x) + \frac{p-1}{v}(t_f + t_b + t_r + t_x) + t_d + t_o + t_0

    with m micro-batches, exposed exchanges t_x of layers and stages, and t_d of gradients and weights.

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
    straggler : numeric, optional
        By how much the slowest rank's work is longer than the mean; default the stack's. [-]
    count : int, optional
        Scale-up domains that the scale-out network joins; default as the system has it. [-]
    efficiencies : str or Trainer, optional
        Training stack: an id, "ideal", or a set; default the chip's own. [-]

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
    Start-ups of exchanges are within the fixed time of a layer. An exchange hides behind work by the stack's share of
    its pair; what one has hidden behind hides no other. All stages wait for the fullest, which has the head too.
    Flash attention computes scores again inside its kernel, which is not counted.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"global_batch": 64, "seq": 2048, "interleave": 3, "count": 8}
    >>> step = tm.train_step("gpt3-175b", "hgx-a100", tm.Mapping(tp=8, pp=8), **ask)
    >>> 0.5 < step.mfu < step.hfu < 0.55  # 51.4 and 52.8 % are published
    np.True_
    """
    mapping = (
        NO_DEGREES if mapping is None else instance("mapping", mapping, Mapping, "a Mapping, such as Mapping(tp=8)")
    )
    chosen, dtypes = read_model(model), read_precision(precision)
    if chosen.reads_source:
        refuse("model", chosen.id, "training of an encoder-decoder is not defined by one sequence length")
    where = _joined(system, count)
    chip = site(where, mapping.lnc).chip
    e = trainer(chip, efficiencies)
    job = Job(
        choice("recompute", recompute, page.RECOMPUTES), _stage(zero), flag("sequence_parallel", sequence_parallel)
    )
    g = _checked(
        mapping,
        global_batch=global_batch,
        seq=seq,
        micro_batch=micro_batch,
        interleave=interleave,
        gradient_bytes=e.gradient_bytes if gradient_bytes is None else gradient_bytes,
        optimizer_bytes=e.optimizer_bytes if optimizer_bytes is None else optimizer_bytes,
        expert_imbalance=numbers("expert_imbalance", expert_imbalance, 1),
        straggler=e.straggler if straggler is None else straggler,
    )
    r = rank(chosen, where, mapping, dtypes, e)

    def ask(other: Trainer, name: str = "time_s") -> NDArray:
        return _answers(rank(chosen, where, mapping, dtypes, other), job, g)[name]

    return TrainStep(
        model=chosen,
        system=r.at.where,
        precision=dtypes,
        stack=e,
        recompute=job.recompute,
        zero=job.zero,
        sequence_parallel=job.sequence_parallel,
        send=partial(_messages, r, job, g),
        again=lambda hidden: _answers(r, job._replace(hidden=hidden), g)["time_s"],
        **{name: getattr(mapping, name)[()] for name in DEGREES},
        ranks_per_chip=r.at.ranks_per_chip,
        **{name: g[name] for name in WHOLE},
        peak_flop_per_s=r.at.peak(dtypes.compute),
        judge=partial(_basis, r, job),
        spread=partial(_spread, r, ask),
        **_answers(r, job, g),
    )


def _stage(zero: int) -> int:
    found = integer("zero", zero, 0)
    if found > 3:
        refuse("zero", zero, "allowed are 0, 1, 2 and 3")
    return found


def _joined(system: str | System | Chip, count: int | None) -> str | System | Chip:
    """A system, or so many of its domains."""
    if count is None:
        return system
    if isinstance(system, Chip):
        refuse("count", count, "of a bare chip there are as many as wanted")
    return _several(find(system, "system"), integer("count", count))


_KEPT: dict[tuple[int, int], tuple[System, System]] = {}


def _several(system: System, count: int) -> System:
    """So many domains of a system; one object for each number, of which what is resolved is kept."""
    key = (id(system), count)
    if key not in _KEPT or _KEPT[key][0] is not system:
        if len(_KEPT) > 256:
            _KEPT.clear()
        _KEPT[key] = system, replace(system, count=count)
    return _KEPT[key][1]
