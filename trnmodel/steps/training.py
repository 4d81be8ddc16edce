"""Time, utilisation and memory of a training step, for any grid of batches, lengths and degrees at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, flag, instance, integer, numbers, refuse
from trnmodel.bands import ABSENT_OCTAVES, spread
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.systems import System, find, joined
from trnmodel.catalog.trainers import Trainer, shipped, trainer
from trnmodel.formulas import training as page
from trnmodel.formulas.bands import grown_width
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Basis
from trnmodel.steps.legal import RULES, of_lengths
from trnmodel.steps.mapping import DEGREES, Mapping
from trnmodel.steps.messages import Message
from trnmodel.steps.pieces import Answer, Arrays, fitting, in_pieces
from trnmodel.steps.rank import site
from trnmodel.steps.training_answer import TrainStep
from trnmodel.steps.training_rank import Rank, rank
from trnmodel.steps.training_work import (
    Job,
    flop_of,
    kept_of,
    memory_of,
    messages_of,
    params_of,
    times_of,
    tokens_of,
)
from trnmodel.units import Numeric

PARTS = "stack: put together from parts that were measured elsewhere, on no chip as a whole"
PLACEMENT = ("tp", "cp", "ep", "dp", "pp")


def _numbers(job: Job, r: Rank, g: Arrays) -> Answer:
    """Numbers that a point has only where it can exist, and what every point has."""
    w, t = r.values, tokens_of(r, g, job)
    k, p = kept_of(r, g), params_of(r, t)
    parts = times_of(r, g, job, t, k, p)
    time_s: Any = sum(parts.values())
    model, hardware = flop_of(r, g, job)
    peak = r.at.peak(r.precision.compute)
    kinds = memory_of(r, g, job, t, k, p)
    stored, room = sum(kinds.values()), r.at.hbm_bytes / w["sharing"]
    m, v = t.microbatches, g["interleave"]
    woven = (v > 1) & ((w["pp"] * v > r.outline.layers) | (w["pp"] < 2) | (m % w["pp"] != 0))
    broken = (m % 1 != 0) | (m < 1), woven, time_s != time_s, stored > room
    illegal = w["illegal"] | of_lengths(r.model, w["cp"], g["seq"], r.e.sequence_parts)
    mask = illegal + sum(np.multiply(bad, 2**bit) for bit, bad in enumerate(broken, len(RULES)))
    found = parts | {
        "time_s": time_s,
        "model_flop": model,
        "hardware_flop": hardware,
        "mfu": page.model_utilisation(model, time_s, w["ranks"], peak),
        "hfu": page.model_utilisation(hardware, time_s, w["ranks"], peak),
        "tokens_per_s": g["global_batch"] * g["seq"] / time_s,
    }
    room_of = {"memory_bytes_per_rank": stored, "capacity_bytes": room}
    return Answer(found, kinds | room_of | {"microbatches": m, "reason_mask": mask})


def _answers(r: Rank, job: Job, g: dict[str, Any]) -> dict[str, Any]:
    """The numbers of all points, NaN for those that cannot exist."""
    found = in_pieces(partial(_numbers, job), r, g)
    if r.index is None:
        return found
    return {name: np.broadcast_to(x, found["reason_mask"].shape) for name, x in found.items()}


def _messages(r: Rank, job: Job, g: dict[str, Any]) -> tuple[Message, ...]:
    here = r.everywhere
    return tuple(message for _, message in messages_of(here, g, job, tokens_of(here, g, job)))


def _basis(r: Rank) -> Basis:
    """What a step rests on: rows of its chip and stack, or those of others."""
    if r.e.kind == "ideal":
        return Basis("ideal", "")
    on = sorted({chip for chips in r.e.fitted_on.values() for chip in chips})
    reasons = [] if shipped(r.e) else [f"stack: {r.e.id} is given with the call"]
    if r.e.kind == "hand-tuned":
        return Basis("extrapolated", "; ".join([PARTS, *reasons]))
    if r.at.chip.id not in on:
        reasons.append(f"chip: {r.e.id} was fitted on {', '.join(on) or 'no chip'}")
    if r.model.kind not in r.e.fitted_on:
        reasons.append(f"model: no training row of {r.model.kind} models")
    if r.precision.compute not in ("bf16", "fp16"):
        reasons.append(f"precision: no training row of {r.precision.compute}")
    chips = r.everywhere.values["ranks"] / r.at.ranks_per_chip
    further = np.log2(np.maximum(chips / r.e.fitted_chips, 1))
    said = ["; ".join(reasons), "; ".join([*reasons, f"chips: rows reach to {r.e.fitted_chips:,.0f}"])]
    word = np.where(further > 0, "extrapolated", "extrapolated" if reasons else "interpolated")[()]
    width = grown_width(r.e.width, ABSENT_OCTAVES * len(reasons) + further)
    return Basis(word, np.where(further > 0, said[1], said[0])[()], width)


def _spread(r: Rank, ask: Callable[[Trainer], NDArray], name: str) -> tuple[NDArray, NDArray]:
    """Half-widths of a figure: those of the rows, and outside of them the ranges of the stack's values too."""
    if name.endswith(("_bytes", "_flop")) or "bytes_per" in name:
        return np.zeros(()), np.zeros(())
    return spread(_basis(r), r.e, ask)


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
    trainable_share: Numeric = 1.0,
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
    Start-ups of exchanges are within the fixed time of a layer. An exchange hides behind work by the stack's share of
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
    given = {
        "global_batch": global_batch,
        "seq": seq,
        "micro_batch": micro_batch,
        "interleave": interleave,
        "gradient_bytes": e.gradient_bytes if gradient_bytes is None else gradient_bytes,
        "optimizer_bytes": e.optimizer_bytes if optimizer_bytes is None else optimizer_bytes,
        "expert_imbalance": numbers("expert_imbalance", expert_imbalance, 1),
        "trainable_share": numbers("trainable_share", trainable_share, 0, 1),
        "straggler": e.straggler if straggler is None else straggler,
    }
    sizes = {name: numbers(name, x, 1 if name in WHOLE else 0, whole=name in WHOLE) for name, x in given.items()}
    g = fitting(mapping, {}, **sizes)
    trained = g.pop("trainable_share")
    g |= {"backward": 1.0 + trained, **{name: g[name] * trained for name in ("gradient_bytes", "optimizer_bytes")}}
    return _result(chosen, where, mapping, dtypes, e, job, g)


def _result(
    model: Transformer,
    where: str | System | Chip,
    mapping: Mapping,
    precision: Precision,
    e: Trainer,
    job: Job,
    g: dict[str, Any],
) -> TrainStep:
    """The step of a job, whose numbers another stack gives again when its band is asked for."""
    r = rank(model, where, mapping, precision, e)

    def ask(other: Trainer, name: str = "time_s") -> NDArray:
        return _answers(rank(model, where, mapping, precision, other), job, g)[name]

    return TrainStep(
        model=model,
        system=r.at.where,
        precision=precision,
        stack=e,
        recompute=job.recompute,
        zero=job.zero,
        sequence_parallel=job.sequence_parallel,
        send=partial(_messages, r, job, g),
        again=lambda hidden: _answers(r, job._replace(hidden=hidden), g)["time_s"],
        **{name: getattr(mapping, name)[()] for name in DEGREES},
        ranks_per_chip=r.at.ranks_per_chip,
        **{name: g[name] for name in WHOLE},
        peak_flop_per_s=r.at.peak(precision.compute),
        judge=partial(_basis, r),
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
    return joined(find(system, "system"), integer("count", count))
