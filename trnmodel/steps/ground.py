"""What an answer made of a prefill and of decode steps rests on, and how far it may be off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.result import Basis, Grounded, weakest

BOTH = ("request", "ttft_s", "tokens_per_s_per_chip", "prefill_chips", "prefill_replicas")  # of prefill and of steps
ARRIVALS = ("requests_per_s", "tokens_per_s", "tokens_per_s_per_chip")


def joint_basis(first: Grounded, step: Grounded) -> Basis:
    """Return what an answer made of a prefill and of decode steps rests on."""
    return weakest({"prefill": first.judge(), "decode": step.judge()})


def joint_spread(first: Grounded, step: Grounded, under_load: bool, name: str) -> tuple[NDArray, NDArray]:
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
