"""Questions of watts: what the chips of a measured run draw at the printed rate, else at the rate of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Power
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import ANY_MEMORY, System
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.readings import Reading, Tune, machine
from trnmodel.power.energy import HIGH, LOW, MIDDLE, Amounts, chip_watts, watts_basis
from trnmodel.result import Basis, weakest
from trnmodel.steps.answers import Step
from trnmodel.steps.inference import decode_step
from trnmodel.units import BILLION


@lru_cache(maxsize=512)
def _roomy(chip: Chip, limit_w: float) -> Chip:
    """Return a chip with room for all, and the limit that a row prints: some rows queued more sequences than fit."""
    return replace(chip, hbm_bytes=ANY_MEMORY, tdp_w=limit_w or chip.tdp_w)


def board(r: Reading) -> Chip:
    """Return the chip of a run with room for all its sequences, at the limit of watts that its row prints."""
    where = machine(r)
    chip = where.chip if isinstance(where, System) else where
    return _roomy(chip, float(dict(r.arguments).get("limit_w", 0)))


def _step(r: Reading, stack: str | None) -> Step:
    """Return the decode step of a run, valid or not: sequences are half way on average.

    Lengths that are not printed count nothing. Prefill is left out: its tokens are not printed. A100 boards of 40 GB
    stand for those of 80 GB.
    """
    known = [0.0 if math.isnan(length) else length for length in (r.input_tokens, r.output_tokens)]
    context = max(known[0] + known[1] / 2, 1.0)
    return decode_step(
        r.model, board(r), r.degrees, batch=r.batch, context=context, precision=r.precision, efficiencies=stack
    )


def decoding(r: Reading, stack: str | None) -> Step:
    """Return the decode step of a run; raise ValueError with the reason where it cannot be."""
    return _step(r, stack).require_valid()


@lru_cache(maxsize=2048)
def own_s(r: Reading) -> float:
    """Time of a run's decode step by the chip's own software; NaN for a model of which parameters alone are known."""
    return float(decoding(r, None).time_s) if r.model else math.nan


def step_s(r: Reading) -> float:
    """Time between the tokens of a sequence: at the rate that the row prints, else the model's own."""
    rate = dict(r.arguments).get("tokens_per_s")
    if rate is None and not r.model:
        raise UnreadableRowError(
            "no tokens/s, and no configuration of the model that gives them; a column `tokens_per_s` would help"
        )
    return own_s(r) if rate is None else r.batch / float(rate)


def pace_s(r: Reading) -> float:
    """Return the time in which a chip of a run does the work of a decode step while it works.

    A chip that never waits is as active in the rest of its time as in its decode steps: prompts, whose tokens a row
    does not print, and kernels that do more than the work of the model fill it. The rate of the model's own step
    therefore counts where the printed one is lower, unless the row says that the chips stood idle between steps.
    """
    time_s, printed = step_s(r), dict(r.arguments)
    if not r.model or "tokens_per_s" not in printed or printed.get("idles"):
        return time_s
    return float(np.fmin(time_s, _step(r, None).time_s))


@lru_cache(maxsize=2048)
def amounts(r: Reading) -> Amounts:
    """Return what a chip of a run does in a step: the work of the model's step, or of its printed parameters alone.

    Its time is that of the work (`pace_s`), not of the whole step.
    """
    time_s, nothing = np.asarray(pace_s(r)), np.zeros(())
    apart = (nothing, nothing, nothing)
    if r.model:
        ideal = decoding(r, "ideal")
        return Amounts(time_s, ideal.work_flop_per_rank, ideal.moved_bytes_per_rank, *apart)
    printed = dict(r.arguments)
    stored = float(printed["params_b"])
    flop = 2 * float(printed.get("active_b", stored)) * BILLION * r.batch / chips(r)
    moved = stored * BILLION * r.precision.storage_bytes("weights") / chips(r)
    return Amounts(time_s, np.asarray(flop), np.asarray(moved), *apart)


def chips(r: Reading) -> float:
    """Chips whose watts a row adds up: those that it counts, else those of its degrees."""
    return float(dict(r.arguments).get("chips", r.degrees.replica_ranks * r.mapping[2]))


def power(r: Reading, tune: Tune | None = None) -> Power:
    """Return the shares by which a run's watts follow from its work, changed where one asks for it."""
    own = facilities.power(board(r))
    changed = tune(own) if tune else own
    assert isinstance(changed, Power)
    return changed


def _watts(r: Reading, end: int, tune: Tune | None = None) -> float:
    """Watts of all chips of a run with every input at one end of its range, or in the middle."""
    figures = chip_watts(amounts(r), board(r), r.precision.compute, power(r, tune), end)
    return float(figures["chip_w"]) * chips(r)


def watts(r: Reading, tune: Tune | None = None) -> float:
    """Watts of all chips of a run."""
    return _watts(r, MIDDLE, tune)


def joules_per_token(r: Reading, tune: Tune | None = None) -> float:
    """Joules of all chips of a run for each token that it generates."""
    return watts(r, tune) * step_s(r) / r.batch


def basis(r: Reading) -> Basis:
    """Return what a run's watts rest on with their half-widths, as `tm.energy` has them.

    Joules have the width of the step's time too where no rate is printed.
    """
    judged, middle = watts_basis(board(r)), watts(r)
    sides = [abs(math.log(_watts(r, end) / middle)) for end in (LOW, HIGH)]
    if "tokens_per_s" in dict(r.arguments):
        return judged._replace(width=max(sides), tails=(sides[0], sides[1]))
    own = decoding(r, None)
    judged = weakest({"time": own.judge(), "watts": judged})
    if r.meaning == "energy-per-token":
        sides = [math.hypot(one, float(slow)) for one, slow in zip(sides, own.widths("time_s"), strict=True)]
    return Basis(str(judged.word), str(judged.reason), max(sides), (sides[0], sides[1]))


WATTS: Mapping[str, Callable[[Reading, Tune | None], Any]] = {
    "energy-watts": watts,
    "energy-per-token": joules_per_token,
}
