"""Published runs of wide expert parallelism on GPUs against the hand-tuned scenario: set from all but one, asked of it.

The rows are those of `data/evidence/comparators.csv`, read a second time as kind "wide-experts". A mechanism is
missing and said so: several prompts in one prefill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.evidence import search
from trnmodel.evidence.fit import Case, readable
from trnmodel.evidence.questions import predict
from trnmodel.evidence.rows import wide_rows
from trnmodel.models.transformer import model
from trnmodel.units import US

if TYPE_CHECKING:
    import pandas as pd

    from trnmodel.catalog.specs import Spec

COVERAGE = 0.9
FIRST = (70 * US, 0.18, 0.3)  # where the search starts: a layer with experts, a split server's service, the first wave
NODE_S = 60 * US  # an all-reduce between servers, set and not fitted
MISSING = {"aicref-kimik2_5_gb200_vllm_fp4_disagg_1024x1024_c1024_cfg697-ttft": "several prompts in one prefill"}


def first(run: Case) -> bool:
    """Whether a run is a time to first token."""
    return run.reading.meaning == "prefill"


@cache
def runs() -> tuple[Case, ...]:
    """Return the published runs that have a meaning, each a time.

    Examples
    --------
    >>> len(runs()), sum(map(first, runs()))
    (12, 7)
    """
    return tuple(readable(wide_rows()))


@cache
def _tuned(of: Spec, expert_s: float) -> Spec:
    changed: dict[str, Any] = {"expert_serial_s": expert_s}
    return replace(of, **changed)


@cache
def _line(run: Case) -> tuple[float, float]:
    """Start and slope of a run's time alone over what a layer with experts adds, of which it is a line."""
    r, slots = run.reading, float(run.reading.ep)
    asked = replace(r, batch=slots, compiled_batch=slots) if first(run) else replace(r, meaning="decode-step")
    start, far = (predict(asked, partial(_tuned, expert_s=at)) for at in (0.0, FIRST[0]))
    return start, (far - start) / FIRST[0]


def predicted_s(run: Case, expert_s: float, service_s: float, wave: float) -> float:
    r"""Time of a run on the hand-tuned scenario.

    .. math:: t = t_{step} + 2 L t_{node}, \qquad TTFT = T_1 + s + f \max(c/p - 1, 0)/2\; T_1

    c clients and p prompts in one prefill; of the waves before a prompt the share f is still to run.

    Parameters
    ----------
    run : Run
        Of `runs`. [-]
    expert_s : float
        What a layer with experts adds to a step, `expert_serial_s`. [s]
    service_s : float
        Router, scheduler and hand-over of the cache. [s]
    wave : float
        f. [-]

    Returns
    -------
    time_s : float
        [s]
    """
    r, (start, slope) = run.reading, _line(run)
    one_s = start + slope * expert_s
    if not first(run):
        return one_s + float(dict(r.arguments).get("node_crossings", 0.0)) * model(r.model).n_layers * NODE_S
    return one_s * (1 + wave * max(r.batch / float(r.ep) - 1, 0) / 2) + service_s


def log_errors(of: Sequence[Case], constants: Sequence[float]) -> NDArray:
    """Logarithm of predicted over measured."""
    return np.array([np.log(predicted_s(run, *constants) / run.measured) for run in of])


def fit(of: Sequence[Case]) -> tuple[float, ...]:
    """Return the three constants that meet runs best, by the fit that all stacks have."""
    return tuple(search.constants(partial(log_errors, of), FIRST).tolist())


def _half_width(errors: NDArray) -> float:
    """Half of the 90 % interval of one more error of the kind, by Student's t; in logarithms."""
    from scipy.special import stdtrit  # scipy.stats, which asks it, takes half a second to load

    free = max(len(errors) - 2, 1)
    spread = np.sqrt((errors**2).sum() / free)
    return float(stdtrit(free, (1 + COVERAGE) / 2) * spread * np.sqrt(1 + 1 / len(errors)))


def _bracket(train: list[Case], test: list[Case]) -> NDArray:
    """Centre, low and high of runs, and the constants, from all others: a row for each."""
    constants, found = fit(train), []
    for run in test:
        alike = [other for other in train if first(other) == first(run)]
        centre, width = predicted_s(run, *constants), np.exp(_half_width(log_errors(alike, constants)))
        found.append((centre, centre / width, centre * width, *constants))
    return np.array(found)


@cache
def brackets() -> pd.DataFrame:
    """Every run beside the interval that all others give for it.

    Returns
    -------
    table : pandas.DataFrame
        id, hardware, model, what ("step" or "first token"), measured_s, centre_s, low_s, high_s, inside, expert_s,
        service_s and wave (the constants without it), missing (the mechanism, where a run is not met). [-]
    """
    import pandas as pd

    of, rows = runs(), list[dict[str, Any]]()
    for run, (centre, low, high, *constants) in zip(of, search.left_out(of, lambda run: run.id, _bracket), strict=True):
        line: dict[str, Any] = {"id": run.id, "hardware": run.reading.where, "model": run.reading.model_id}
        line |= {"what": "first token" if first(run) else "step", "measured_s": run.measured}
        line |= {"centre_s": centre, "low_s": low, "high_s": high, "inside": bool(low <= run.measured <= high)}
        line |= dict(zip(("expert_s", "service_s", "wave"), constants, strict=True))
        rows.append(line | {"missing": "" if line["inside"] else MISSING.get(run.id, "not known")})
    return pd.DataFrame(rows)
