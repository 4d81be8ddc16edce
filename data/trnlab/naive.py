"""The strongest naive rival of the physics: a regression on sizes, fitted as the physics is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trnmodel.evidence import search
from trnmodel.evidence.fit import MEANINGS, Case
from trnmodel.evidence.readings import Reading, machine
from trnmodel.models.transformer import model
from trnmodel.steps.rank import site

NOTHING = -20.0  # logarithm of a coefficient that is none


def mixed(r: Reading) -> bool:
    """Whether a row mixes prefill and decode steps, so that the regression has no place for it."""
    return r.meaning.startswith("run")


def _design(of: Sequence[Case]) -> NDArray:
    """Regressors: weights, cache and work per rank over bandwidth and peak, traffic, layers, one."""
    columns = []
    for case in of:
        r, chosen = case.reading, model(case.reading.model)
        at = site(machine(r), r.mapping[3])
        tp, bandwidth, peak = r.mapping[0], at.hbm_bytes_per_s, at.peak("bf16")
        prompt = r.meaning not in MEANINGS["decode"]
        rows = (r.prompt if prompt else 1.0) * (r.batch if prompt else r.compiled_batch)
        weights = float(chosen.weight_bytes_read(1, r.precision)) / tp / bandwidth
        cache = 0.0 if prompt else float(chosen.kv_bytes(r.context)) * r.compiled_batch / tp / bandwidth
        work = chosen.active_params() * rows / tp / peak
        columns.append([weights, cache, work, chosen.n_layers * chosen.hidden_size * rows, chosen.n_layers, 1.0])
    return np.array(columns)


def _seconds(case: Case) -> float:
    return case.reading.batch / case.measured if case.reading.meaning.endswith("throughput") else case.measured


def regression(train: Sequence[Case], test: Sequence[Case]) -> NDArray:
    """Errors on `test` of a regression with positive coefficients, fitted to `train`; NaN for mixed rows."""
    train = [case for case in train if not mixed(case.reading)]
    design, wanted = _design(train), np.array([_seconds(case) for case in train])
    means = design.mean(axis=0)
    scales = np.median(wanted) / np.where(means > 0, means, np.inf)

    found = search.constants(lambda c: np.log(design @ c / wanted), scales * np.exp(-2.0), NOTHING, -NOTHING)
    errors = _design(test) @ found / np.array([_seconds(case) for case in test]) - 1
    return np.where([mixed(case.reading) for case in test], np.nan, errors)
