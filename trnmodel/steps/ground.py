"""What a step, a stored size or a served request rests on, and how far it may be off: found when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trnmodel.bands import spread, stack_basis
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.result import Basis, Judged, weakest
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.pieces import Answer, Arrays, in_pieces
from trnmodel.steps.setting import NO_RATES, Setting, setting

OVERLAPS = ("compute_memory_overlap", "network_overlap")
BOTH = ("request", "ttft_s", "tokens_per_s_per_chip", "prefill_chips", "prefill_replicas")  # of prefill and of steps
ARRIVALS = ("requests_per_s", "tokens_per_s", "tokens_per_s_per_chip")
Work = Callable[[Setting, Arrays], Answer]


def basis_of(s: Setting, given: Arrays, part: str = "") -> Basis:
    """Word, reason and width of each point, by the rows of a part: the step's phase, "load" or "memory"."""
    if part == "memory":  # sums of sizes: no length or batch of theirs is far
        return stack_basis(s.e, s.at.chip, s.at.lnc, part, s.model.kind, {})
    d = s.everywhere.degrees
    batch = np.maximum(given["batch"], given.get("compiled_batch", given["batch"]))
    points = {
        "ranks": d.tp * d.pp * d.ep * d.cp,
        "batch": batch,
        "length": given["tokens"] if "tokens" in given else given["context"],
        "size": float(s.model.active_params()),
    }
    return stack_basis(s.e, s.at.chip, s.at.lnc, part or s.phase, s.model.kind, points)


def spread_of(
    s: Setting, mapping: Mapping, given: Arrays, work: Work, figure: str, part: str
) -> tuple[NDArray, NDArray]:
    """Half-widths below and above of a step's logarithm: its rows', and outside of them those of the stack's ranges."""
    return spread(basis_of(s, given, part), s.e, partial(_asked_again, s, mapping, given, work, figure), at_once=True)


def of_any_figure(found: Callable[[str], tuple[NDArray, NDArray]], own: str, name: str, part: str = "") -> tuple:
    """Half-widths of a figure by name: all figures of a part have those that were `found` of one."""
    return found(part or own)


def _asked_again(s: Setting, mapping: Mapping, given: Arrays, work: Work, figure: str, e: Efficiencies) -> NDArray:
    """The same question of a stack with another value."""
    timed = s.rates is not NO_RATES
    there = setting(s.model, s.system, mapping, s.precision, e, s.phase, timed)
    there = there if timed else there.storing
    moved = {x: np.asarray(getattr(e, x)) for x in OVERLAPS if x in given and np.any(getattr(e, x) != getattr(s.e, x))}
    return in_pieces(work, there, given | moved)[figure]


def joint_basis(first: Judged, step: Judged) -> Basis:
    """What an answer made of a prefill and of decode steps rests on."""
    return weakest({"prefill": first.judge(), "decode": step.judge()})


def joint_spread(first: Judged, step: Judged, under_load: bool, name: str) -> tuple[NDArray, NDArray]:
    """Half-widths of a figure: those of the prefill, of the step, or the wider of both where it holds both.

    A step that requests share is judged by rows of loaded servers too. What queues add is not in them, and a rate that
    arrivals give has none.
    """
    if under_load and name in ARRIVALS:
        return np.zeros(()), np.zeros(())
    own, later = first.widths("time_s"), step.widths("time_s")
    parts = [own] if name.startswith(("ttft", "prefill_s")) else [later]
    if under_load and name.startswith(("tpot", "request", "tokens")):
        parts.append(step.widths("time_s", part="load"))
    if name.startswith(BOTH):
        parts += [own, later]
    below, above = (np.max(np.broadcast_arrays(*ends), axis=0)[()] for ends in zip(*parts, strict=True))
    return below, above
