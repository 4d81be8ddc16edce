"""Efficiencies fitted to measured rows, and how well the fit predicts models and machines that it has not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, listed, refuse
from trnmodel.catalog.load import DATA, read_csv, value
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.evidence import fitting
from trnmodel.evidence.readings import Reading, UnreadableRowError, reading
from trnmodel.evidence.validation import Tune, machine, measure, predict, read_models, read_rows
from trnmodel.models.transformer import model
from trnmodel.steps.rank import site

if TYPE_CHECKING:
    import pandas as pd

NOTHING = -20.0  # logarithm of a coefficient that is none
MOST_ROUNDS = 12  # of fits of all groups, which settle after four
MEANINGS: Mapping[str, tuple[str, ...]] = {
    "decode": ("decode-step", "decode-throughput", "run-per-token"),
    "prefill": ("prefill", "batch-prefill", "one-prefill", "reprefill-throughput"),
    "expert-decode": ("decode-step", "decode-throughput"),
    "expert-prefill": ("prefill", "batch-prefill", "one-prefill", "reprefill-throughput"),
    "encoder": ("forward",),
    "server": ("loaded-step",),
}


class Parameter(msgspec.Struct, frozen=True):
    """A quantity that a group of rows fits, and the stacks whose own row it is."""

    group: str
    owner: str
    quantity: str


@dataclass(frozen=True, slots=True)
class Case:
    """One unique configuration: what was asked, the median of what was measured, and its weight."""

    reading: Reading
    measured: float
    weight: float

    @property
    def model(self) -> str:
        """The model's id."""
        return str(getattr(self.reading.model, "id", self.reading.model))

    @property
    def family(self) -> str:
        """The system family: trn1, inf2, trn2, ..."""
        return self.reading.where.split(".")[0].removesuffix("n")


@cache
def parameters(group: str) -> tuple[Parameter, ...]:
    """What a group of rows fits."""
    rows = [row for row in read_csv(DATA / "evidence" / "calibration.csv", Parameter) if row.group == group]
    if not rows:
        raise ValueError(f"group={group!r}: allowed are {sorted(MEANINGS)}")
    return tuple(rows)


def _kind(name: Any) -> str:
    """Encoders, mixtures of experts with recurrent hybrids, and dense models are fitted apart."""
    chosen = model(name)
    parts = {part.group for layer in chosen.layers for part in layer.parts}
    hybrid = any(layer.recurrence for layer in chosen.layers)
    return "encoder" if not chosen.generates else "expert" if hybrid or "experts" in parts else "dense"


def _belongs(r: Reading, group: str) -> bool:
    kinds = {"encoder", "dense"} if group in ("encoder", "server") else {"expert" if "expert" in group else "dense"}
    return r.meaning in MEANINGS[group] and not r.percentile and r.stack != "ideal" and _kind(r.model) in kinds


def cases(rows: pd.DataFrame | str | Path, group: str, models: Mapping[str, Any] | None = None) -> list[Case]:
    """Unique configurations of a group: rows of one configuration become one case with their median."""
    choice("group", group, MEANINGS)
    found: dict[tuple, list[tuple[Reading, float]]] = defaultdict(list)
    known = read_models(models)
    for row in read_rows(rows):
        try:
            r = reading(row, known)
            measured = measure(row) * r.scale
            if r.weight and _belongs(r, group):
                value = predict(r)
                key = (r.meaning, r.where, r.stack, r.mapping, str(r.model), r.compiled_batch, f"{value:.9g}")
                found[key].append((r, measured))
        except UnreadableRowError:
            continue
    medians = {key: float(np.median([value for _, value in group_])) for key, group_ in found.items()}
    return [Case(group_[0][0], medians[key], max(r.weight for r, _ in group_)) for key, group_ in found.items()]


def tuned(values: Mapping[Parameter, float]) -> Tune:
    """A change of the efficiencies whose own rows the parameters are; stacks that override them keep theirs."""
    seen: dict[int, Efficiencies] = {}

    def tune(e: Efficiencies) -> Efficiencies:
        if id(e) not in seen:
            mine = {p.quantity: v for p, v in values.items() if _owner(e, p.quantity) in p.owner.split("|")}
            seen[id(e)] = replace(e, **mine, ranges={})
        return seen[id(e)]

    return tune


def _owner(e: Efficiencies, quantity: str) -> str:
    """The stack whose own row a value of the set is."""
    return e.sources.get(quantity, ("",))[0].split("/")[0]


def log_errors(of: Sequence[Case], tune: Tune | None = None) -> NDArray:
    """Logarithm of predicted over measured, by case."""
    return np.array([np.log(predict(case.reading, tune) / case.measured) for case in of])


def fit(of: Sequence[Case], group: str, found: Mapping[Parameter, float] | None = None) -> dict[Parameter, float]:
    """Values of a group's parameters that fit cases best: soft-L1 least squares of the logarithm of the error.

    Parameters of all groups that were `found` before hold or, if they are the group's own, are where the search starts.
    """
    names, known = parameters(group), dict(found or {})
    first = np.array([known.get(name, _in_force(name)) for name in names])
    weights = np.sqrt([case.weight for case in of])

    def errors(values: NDArray) -> NDArray:
        return weights * log_errors(of, tuned(known | dict(zip(names, map(float, values), strict=True))))

    room = [-np.log(v) if name.quantity.endswith("_share") else np.inf for name, v in zip(names, first, strict=True)]
    best = fitting.constants(errors, first, high=np.minimum(room, fitting.LARGEST))
    return dict(zip(names, best.tolist(), strict=True))


def _fit_all(of: Mapping[str, Sequence[Case]]) -> dict[Parameter, float]:
    """Groups fitted in turn, each with what the others found, until no value moves in the digits that are kept."""
    found: dict[Parameter, float] = {}
    for _ in range(MOST_ROUNDS):
        before = dict(found)
        for group, some in of.items():
            found |= fit(some, group, found)
        if found == before or len(of) == 1:
            break
    return found


def _in_force(parameter: Parameter) -> float:
    return value(parameter.owner.split("|")[0], parameter.quantity)


def _left_out(of: Sequence[Case], group: str, name: Callable[[Case], str]) -> NDArray:
    """Errors of each case under a fit that has not seen the cases of the same name."""
    errors = np.full(len(of), np.nan)
    for left in sorted({name(case) for case in of}):
        inside = [case for case in of if name(case) != left]
        places = [i for i, case in enumerate(of) if name(case) == left]
        tune = tuned(fit(inside, group)) if inside else None
        errors[places] = np.expm1(log_errors([of[i] for i in places], tune))
    return errors


def _design(of: Sequence[Case]) -> NDArray:
    """Regressors of the naive model: weights, cache and work per rank over bandwidth and peak, traffic, layers, one."""
    columns = []
    for case in of:
        r, chosen = case.reading, model(case.reading.model)
        tp, bandwidth, peak = r.mapping[0], *_rates(r)
        prompt = r.meaning not in MEANINGS["decode"]
        rows = (r.prompt if prompt else 1.0) * (r.batch if prompt else r.compiled_batch)
        weights = float(chosen.weight_bytes_read(1, r.precision)) / tp / bandwidth
        cache = 0.0 if prompt else float(chosen.kv_bytes(r.context)) * r.compiled_batch / tp / bandwidth
        work = chosen.active_params() * rows / tp / peak
        columns.append([weights, cache, work, chosen.n_layers * chosen.hidden_size * rows, chosen.n_layers, 1.0])
    return np.array(columns)


def _rates(r: Reading) -> tuple[float, float]:
    at = site(machine(r), r.mapping[3])
    return at.hbm_bytes_per_s, at.peak("bf16")


def regression(train: Sequence[Case], test: Sequence[Case]) -> NDArray:
    """Errors of the strongest naive model: a regression on sizes with positive coefficients, fitted as the physics is.

    Rows that mix prefill and decode steps have no place in it and get NaN.
    """
    train = [case for case in train if not case.reading.meaning.startswith("run")]
    design, wanted = _design(train), np.array([_seconds(case) for case in train])
    means = design.mean(axis=0)
    scales = np.median(wanted) / np.where(means > 0, means, np.inf)

    found = fitting.constants(lambda c: np.log(design @ c / wanted), scales * np.exp(-2.0), NOTHING, -NOTHING)
    errors = _design(test) @ found / np.array([_seconds(case) for case in test]) - 1
    return np.where([case.reading.meaning.startswith("run") for case in test], np.nan, errors)


def _seconds(case: Case) -> float:
    return case.reading.batch / case.measured if case.reading.meaning.endswith("throughput") else case.measured


def naive_left_out(of: Sequence[Case]) -> NDArray:
    """Errors of the regression, each model predicted from the others."""
    errors = np.full(len(of), np.nan)
    for left in {case.model for case in of}:
        places = [i for i, case in enumerate(of) if case.model == left]
        train = [case for case in of if case.model != left]
        errors[places] = regression(train, [of[i] for i in places])
    return errors


def accuracy(rows: pd.DataFrame | str | Path, group: str, models: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Errors by unique configuration: as shipped, fitted without the case's model, and of the naive regression.

    Parameters
    ----------
    rows : DataFrame or path
        Measurements as `tm.validate` takes them. [-]
    group : str
        "decode", "prefill", "expert-decode", "expert-prefill", "encoder" or "server". [-]
    models : mapping, optional
        As in `tm.validate`. [-]

    Returns
    -------
    table : pandas.DataFrame
        One row a configuration: model, where, stack, shapes, measured and the signed errors. [-]
    """
    import pandas as pd

    of = cases(rows, group, models)
    if len({case.model for case in of if not _mixed(case)}) < 2:
        raise ValueError(f"rows: fewer than two models have rows of group {group!r}: nothing can be left out")
    return pd.DataFrame(
        {
            **_labels(of),
            "error": np.expm1(log_errors(of)),
            "left_out_error": _left_out(of, group, lambda case: case.model),
            "naive_error": regression(of, of),
            "naive_left_out_error": naive_left_out(of),
        }
    )


def _mixed(case: Case) -> bool:
    """Whether a case mixes prefill and decode steps, so that the naive regression has no place for it."""
    return case.reading.meaning.startswith("run")


def _words(name: str, words: str | Iterable[str]) -> list[str]:
    """One word or several, each once."""
    return list(dict.fromkeys(listed(name, [words] if isinstance(words, str) else words, str)))


def _labels(of: Sequence[Case]) -> dict[str, list]:
    return {
        "meaning": [case.reading.meaning for case in of],
        "model": [case.model for case in of],
        "where": [case.reading.where for case in of],
        "stack": [case.reading.stack for case in of],
        "tp": [case.reading.mapping[0] for case in of],
        "batch": [case.reading.compiled_batch for case in of],
        "context": [case.reading.context for case in of],
        "prompt": [case.reading.prompt for case in of],
        "measured": [case.measured for case in of],
    }


def family_split(
    rows: pd.DataFrame | str | Path,
    group: str,
    train: Iterable[str] = ("trn1", "inf2"),
    test: Iterable[str] = ("trn2",),
    models: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Errors on the `test` system families under a fit on the `train` families alone: what predicting Trn3 asks."""
    import pandas as pd

    fitted, left = _words("train", train), _words("test", test)
    of = cases(rows, group, models)
    seen = [case for case in of if case.family in fitted]
    asked = [case for case in of if case.family in left]
    for name, families, some in (("train", fitted, seen), ("test", left, asked)):
        if all(map(_mixed, some)):
            refuse(name, families, f"no row of group {group!r} ran on such a system")
    errors = np.expm1(log_errors(asked, tuned(fit(seen, group))))
    return pd.DataFrame({**_labels(asked), "error": errors, "naive_error": regression(seen, asked)})


def calibrate(rows: pd.DataFrame | str | Path, groups: str | Iterable[str] = tuple(MEANINGS)) -> pd.DataFrame:
    """Efficiencies fitted to the given rows, beside those in force; several groups until none moves the others.

    Parameters
    ----------
    rows : DataFrame or path
        Measurements as `tm.validate` takes them. [-]
    groups : str or iterable of str
        One or more of "decode", "prefill", "expert-decode", "expert-prefill", "encoder" and "server". [-]

    Returns
    -------
    table : pandas.DataFrame
        group, owner (stack), quantity, in_force, fitted, cases; no line for a group without rows. [-]

    Raises
    ------
    ValueError
        An unknown group, or rows that are no such table.
    """
    import pandas as pd

    names = [choice("groups", group, MEANINGS) for group in _words("groups", groups)]
    of = {group: some for group in names if (some := cases(rows, group))}
    values = _fit_all(of)
    lines = [(p.group, p.owner, p.quantity, _in_force(p), v, len(of[p.group])) for p, v in values.items()]
    return pd.DataFrame(lines, columns=["group", "owner", "quantity", "in_force", "fitted", "cases"])
