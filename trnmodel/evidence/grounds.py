"""What a measured row says about other questions: the part of a model that it asks, the chip, the stack, its sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import nan

import numpy as np

from trnmodel.bands import contradicted, plain_rows_basis, rows_basis, spread
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.trainers import trainer
from trnmodel.evidence.primitives import bare_chip, kernel_answer, message
from trnmodel.evidence.questions import predict, training
from trnmodel.evidence.readings import TRAINING, Reading, is_rate, stack_of
from trnmodel.evidence.rows import UnreadableRowError
from trnmodel.kernels import kernel
from trnmodel.models.transformer import model
from trnmodel.result import Basis

# the part that a meaning is about, by how it begins; another meaning is a part by itself
PARTS = (
    ("decode-read", "bytes"),
    ("decode-mbu", "share of HBM"),
    ("prefill-mfu", "share of peak"),
    ("queued-", "queue"),
    ("burst-", "queue"),
    ("decode", "decode"),
    ("layer-", "decode"),
    ("loaded-step", "load"),
    ("loaded-speed", "load"),
    ("loaded-", "request"),
    ("served", "throughput"),
    ("generated", "run"),
    ("total-", "run"),
    ("run", "run"),
    ("request", "run"),
    ("memory:", "memory"),
    ("kernel-", "kernel"),
    ("collective", "collective"),
    ("graph", "collective"),
    (TRAINING, TRAINING),
)
PREFILL = ("prefill", "one-prefill", "batch-prefill", "reprefill", "forward")
ALONE = ("one-prefill", "batch-prefill", "queued-prefill", "burst-prefill")  # prompts that run one by one


def document(source: str) -> str:
    """Return what a source is beside its version: the page or the pull request.

    Examples
    --------
    >>> document("aws-neuron-sdk libraries/a.rst @81ce03ae")
    'aws-neuron-sdk libraries/a.rst'
    """
    return re.sub(r"\s*@\w+.*$", "", source).strip()


def part(meaning: str) -> str:
    """Return the part of a model that a meaning is about.

    Examples
    --------
    >>> part("decode-throughput"), part("reprefill-throughput"), part("served-requests")
    ('decode', 'prefill', 'throughput')
    """
    if meaning.startswith(PREFILL) and meaning != "prefill-mfu":
        return "prefill"
    return next((name for start, name in PARTS if meaning.startswith(start)), meaning)


@lru_cache(maxsize=65536)
def where(r: Reading) -> dict[str, str]:
    """Part, kind of model, chip and stack of a reading."""
    about = part(r.meaning)
    if about == "kernel":
        kind, on = "kernel", kernel.stack(r.stack).id
    elif about == "collective":
        kind, on = "collective", ""
    elif about == TRAINING:
        kind, on = model(r.model).kind, trainer(bare_chip(r)).id
    else:
        kind, on = (model(r.model).kind if r.model else "operator"), stack_of(r).rows_of
    return {"part": about, "kind": kind, "chip": bare_chip(r).id, "on": on}


@lru_cache(maxsize=65536)
def sizes(r: Reading) -> dict[str, float]:
    """Return a reading's place on the axes; NaN where it has none."""
    about = part(r.meaning)
    if about == "kernel":
        answer = kernel_answer(r)
        return _axes(ranks=r.mapping[3] or 1, size=float(answer.hbm_read_bytes + answer.hbm_write_bytes))
    if about == "collective":
        try:
            _, ranks, size = message(r)
        except UnreadableRowError:
            return _axes()
        return _axes(ranks=ranks, size=size)
    prompt = about in ("prefill", "queue", "share of peak")
    batch = (1.0 if r.meaning in ALONE else r.batch) if prompt else max(r.batch, r.compiled_batch)
    size = float(model(r.model).active_params()) if r.model else nan
    return _axes(float(r.degrees.replica_ranks), batch, r.prompt if prompt else r.context, size)


def _axes(ranks: float = nan, batch: float = nan, length: float = nan, size: float = nan) -> dict[str, float]:
    return {"ranks": ranks, "sequences": batch, "length": length, "size": size}


def grounds(of: Sequence[Reading]) -> dict[str, list]:
    """Part, kind, chip, stack and sizes of readings, as columns of a table."""
    found = [where(r) | sizes(r) for r in of]
    return {name: [one[name] for one in found] for name in (found[0] if found else ())}


def place(r: Reading) -> dict[str, float]:
    """Return a reading's values on the axes of a question, those that it has."""
    return {"batch" if name == "sequences" else name: x for name, x in sizes(r).items() if np.isfinite(x)}


def rows_basis_of(r: Reading) -> Basis:
    """Return what the rows near a reading say of its prediction, with their half-width."""
    about, kind, chip, on = where(r).values()
    if about in ("kernel", "collective"):
        return plain_rows_basis(about, chip, on, place(r))
    own = bare_chip(r)
    return rows_basis(stack_of(r), own, r.mapping[3] or own.lnc_default, about, kind, place(r))


def basis_of(r: Reading) -> Basis:
    """Return what a prediction of a reading rests on: the rows near it, and those that contradict it."""
    found, (about, kind, chip, on) = rows_basis_of(r), where(r).values()
    return found if found.word == "ideal" else contradicted(found, about, kind, chip, on, place(r))


@lru_cache(maxsize=65536)
def banded(r: Reading) -> tuple[float, float, float, str, str]:
    """Return what the model gives, the ends of its 90 % interval, and what it rests on: a word and its reason."""
    plain = predict(r)
    if where(r)["part"] == TRAINING:
        step = training(r)
        ratio = float(step.high / step.time_s)
        return plain, plain / ratio, plain * ratio, str(step.basis), str(step.basis_reason)
    found = basis_of(r)

    def ask(e: Efficiencies) -> np.ndarray:
        return np.asarray(predict(r, lambda _: e))

    if is_rate(r.meaning) and found.tails is not None:  # slow where the time is long
        found = found._replace(tails=found.tails[::-1])
    below, above = found.sides if where(r)["part"] in ("kernel", "collective") else spread(found, stack_of(r), ask)
    return plain, plain * float(np.exp(-below)), plain * float(np.exp(above)), str(found.word), str(found.reason)
