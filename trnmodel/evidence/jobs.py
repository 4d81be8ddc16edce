"""Questions of training: the one step of a run that was measured, and the figures that its source may print of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from trnmodel.arguments import Same, shown
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import ANY_MEMORY, System, roomy
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.readings import Reading, Tune, is_rate, machine
from trnmodel.models.transformer import Transformer, model
from trnmodel.steps.legal import reaching, running
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.training.step import PLACEMENT, TrainStep, train_step
from trnmodel.units import GBIT

MICRO = (1, 2, 4, 8, 16, 32)  # sizes of a micro-batch that are tried
FLAGS = {"zero": int, "sequence_parallel": bool, "recompute": str, "interleave": int, "trainable_share": float}
PEAK = "bf16"  # whose printed peak an MFU is of, whatever the run computed in


def fastest_micro_batch(model: str | Transformer, where: str | System | Chip, at: Degrees, **ask: Any) -> int:
    """Sequences of the fastest micro-batch that fits, of the sizes tried for a run that prints none."""
    tried = train_step(model, where, at, micro_batch=list(MICRO), **ask).time_s
    return MICRO[int(np.argmin(np.where(np.isnan(tried), np.inf, tried)))]


def place(r: Reading) -> System | Chip:
    """Return the machines of a run, all that its row names, with the network that it prints."""
    where, gbit_per_s = machine(r), dict(r.arguments).get("network_gbit_per_s")
    if isinstance(where, Chip):
        return where
    return _place(Same(where), r.machines, 0.0 if gbit_per_s is None else float(gbit_per_s))


@lru_cache(maxsize=512)
def _place(where: Same[System], machines: int, gbit_per_s: float) -> System:
    pod = replace(where.it, count=machines) if machines > 1 else where.it
    return replace(pod, network_bytes_per_s_per_dir=gbit_per_s * GBIT) if gbit_per_s else pod


def degrees(r: Reading) -> Degrees:
    """Return the degrees of a run, placed as Megatron-LM places them."""
    tp, pp, dp, lnc = r.mapping
    return _degrees(tp, pp, dp, r.ep, int(float(dict(r.arguments).get("context_ranks", 1))), lnc)


@lru_cache(maxsize=512)
def _degrees(tp: int, pp: int, dp: int, ep: int, cp: int, lnc: int | None) -> Degrees:
    return Degrees(tp=tp, pp=pp, dp=dp, ep=ep, cp=cp, lnc=lnc, placement=PLACEMENT)


def trained(r: Reading) -> Transformer:
    """Return the model of a run, at the length that it is trained on."""
    return reaching(model(r.model), r.prompt)


def sequences(r: Reading) -> float:
    """Return the sequences of a step; fewer of them than replicas are those of one replica."""
    return r.batch * (r.mapping[2] if r.batch < r.mapping[2] else 1)


def software(r: Reading, tune: Tune | None = None) -> Trainer:
    """Return the training stack of a run: the chip's own, or the one that its row names, changed where one asks."""
    where = machine(r)
    own = trainer(where if isinstance(where, Chip) else where.chip, r.stack or None)
    changed = tune(own) if tune else own
    assert isinstance(changed, Trainer)
    return changed


def step(r: Reading, tune: Tune | None = None) -> TrainStep:
    """Return the step of a run that was measured, which has fitted: the one question of training.

    Where the row prints no micro-batch, it is the fastest of those that fit. What is computed again, how states are
    shared out and whether the sequence is cut between matrices are as the row says, else as `tm.train_step` has them.
    """
    if math.isnan(r.prompt):
        raise UnreadableRowError("no length of a sequence; seq_len would help")
    stated, at, chosen, where = dict(r.arguments), degrees(r), trained(r), place(r)
    ask: dict[str, Any] = {name: of(stated[name]) for name, of in FLAGS.items() if name in stated}
    ask |= {"global_batch": sequences(r), "seq": r.prompt, "precision": r.precision}
    ask["efficiencies"] = running(chosen, site(where, at.lnc), at, software(r, tune), "prefill")
    if "micro_batch" in stated:
        where = replace(where, hbm_bytes=ANY_MEMORY) if isinstance(where, Chip) else roomy(where)
    size = stated["micro_batch"] if "micro_batch" in stated else fastest_micro_batch(chosen, where, at, **ask)
    return train_step(chosen, where, at, micro_batch=size, **ask).require_valid()


@lru_cache(maxsize=1000)
def training(r: Reading) -> TrainStep:
    """Return the step of a run as its row states it."""
    return step(r)


def _chips(r: Reading) -> float:
    """Chips that the degrees of a run occupy, of which a pod may have more."""
    at = degrees(r)
    ranks = float(at.tp * at.pp * at.dp * at.ep * at.cp)
    occupied = math.ceil(ranks / site(place(r), at.lnc).ranks_per_chip)
    where = place(r)
    return min(occupied, where.chips) if isinstance(where, System) else occupied


def _work_flop(r: Reading) -> float:
    """Work of a step as Megatron-LM counts it: attention over the whole square, nothing computed again.

    Where a share of the weights is trained it is that of the step, since Megatron-LM has no count of it.
    """
    if float(dict(r.arguments).get("trainable_share", 1)) < 1:
        return float(training(r).model_flop)
    return sequences(r) * float(trained(r).train_flop(r.prompt, "full"))


def _executed_flop(r: Reading) -> float:
    """Work of a step with the layers that the run computes again, as SC21 counts it; the head is computed once."""
    flop, of = _work_flop(r), trained(r)
    if dict(r.arguments).get("recompute") != "full":
        return flop
    head = 6.0 * sequences(r) * r.prompt * of.hidden_size * of.vocab_size
    return head + (flop - head) * 4 / 3


def _mfu(r: Reading) -> float:
    where = machine(r)
    chip = where if isinstance(where, Chip) else where.chip
    return _work_flop(r) / (float(chip.peak(PEAK)) * _chips(r))


def _steps_of_run(r: Reading) -> float:
    tokens = dict(r.arguments).get("tokens")
    if tokens is None:
        raise UnreadableRowError("no tokens of the run whose days are printed; a column `tokens` would help")
    return float(tokens) / (sequences(r) * r.prompt)


# what a figure is of: a rate is this over the time of a step, a duration this times it
AMOUNTS: Mapping[str, Callable[[Reading], float]] = {
    "train-step": lambda r: 1.0,
    "train-run": _steps_of_run,
    "train-tokens": lambda r: sequences(r) * r.prompt,
    "train-sequences": sequences,
    "train-tokens-chip": lambda r: sequences(r) * r.prompt / _chips(r),
    "train-mfu": _mfu,
    "train-flop-rate-chip": lambda r: _work_flop(r) / _chips(r),
    "train-executed-flop-rate-chip": lambda r: _executed_flop(r) / _chips(r),
}


def _between(r: Reading, value: float) -> float:
    """Return the figure of a step's time, or the time of a step's figure: either turns into the other so."""
    return AMOUNTS[r.meaning](r) / value if is_rate(r.meaning) else AMOUNTS[r.meaning](r) * value


def step_s(r: Reading, printed: float) -> float:
    """Time of a step that a printed figure, in base units, stands for."""
    return _between(r, printed) if is_rate(r.meaning) else printed / AMOUNTS[r.meaning](r)


def figure(r: Reading, tune: Tune | None = None) -> float:
    """Return the figure that a run's source prints, in base units, from the time of the modelled step."""
    return _between(r, float((step(r, tune) if tune else training(r)).time_s))


def as_time(r: Reading) -> Reading:
    """Return the reading of a run as a question about the time of its step.

    Examples
    --------
    >>> as_time(Reading(**dict.fromkeys(Reading.__dataclass_fields__) | {"meaning": "train-mfu"})).meaning
    'train-step'
    """
    if r.meaning not in AMOUNTS:
        raise UnreadableRowError(f"{shown(r.meaning)} is no figure of a step of training")
    return replace(r, meaning="train-step", scale=1.0)


JOBS: Mapping[str, Callable[[Reading, Tune | None], Any]] = dict.fromkeys(AMOUNTS, figure)
