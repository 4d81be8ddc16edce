"""Steps of training that were measured beside what the model gives, with the model of a row left out.

Fitted are a few shares and fixed times of each training stack, on the rows of its group; other groups are predicted.
`python -m trnlab.training` writes them into `data/facts/training.csv`, and the errors of runs whose model
was left out into `data/evidence/training_left_out.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import instance
from trnmodel.catalog import load
from trnmodel.catalog.systems import System
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.evidence import jobs, search
from trnmodel.evidence.cells import measure
from trnmodel.evidence.fit import Case as Vote
from trnmodel.evidence.fit import log_errors as residual_logs
from trnmodel.evidence.readings import Reading, reading
from trnmodel.evidence.records import document
from trnmodel.evidence.rows import RUNS, put_fitted, read_rows, save
from trnmodel.models.transformer import Transformer
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.training.step import TrainStep

if TYPE_CHECKING:
    import pandas as pd

LEFT_OUT = load.DATA / "evidence" / "training_left_out.csv"
FACTS = load.DATA / "facts" / "training.csv"
GROUPS = {  # on whose rows a stack is fitted
    "megatron-2021": "a100-cluster",
    "neuronx-training": "trn1",
    "optimum-neuron-training": "finetune-trn2",
    "optimum-neuron-training-trn1": "finetune-trn1",
    "megatron-core-b200": "b200",
    "deepspeed-2021": "zero3-2021",
    "megatron-core-hopper": "h100",
    "torchtitan-hopper": "torchtitan",
}
FITTED = {
    "megatron-2021": ("matmul_share", "stream_share", "scaleout_share", "layer_s"),
    "megatron-core-b200": ("matmul_share", "stream_share"),
    "neuronx-training": ("matmul_share", "scaleout_share", "layer_s", "step_s"),
    "optimum-neuron-training": ("matmul_share", "host_layer_s", "host_adapter_s"),
    "optimum-neuron-training-trn1": ("matmul_share", "host_adapter_s"),
    "deepspeed-2021": ("scaleout_share", "dp_overlap"),
    "megatron-core-hopper": ("matmul_share",),
    "torchtitan-hopper": ("matmul_share",),
}
FIRST = {  # where a fit starts that sees no run which decides a constant: at the value of the software before
    "optimum-neuron-training": {"matmul_share": "neuronx-training"},
    "optimum-neuron-training-trn1": {"matmul_share": "neuronx-training", "host_adapter_s": "optimum-neuron-training"},
}
TARGETS = {  # a column of the table, and what it is to stay below
    "korthikanti": {"mean": 0.03},
    "sc21": {"mean": 0.08},
    "a100-cluster": {"left_out_mean": 0.08, "left_out_median": 0.06},
    "trn1": {"left_out_median": 0.07},
    "finetune-trn2": {"left_out_median": 0.20},
    "h100": {"left_out_median": 0.15},
    "torchtitan": {"left_out_median": 0.15},
}
SHORT_S = 2.0  # only steps as short as this tell of the fixed time of a step: without one it is none
QUANTILE = 0.9


class Row(msgspec.Struct, frozen=True):
    """A line of `data/evidence/training.csv`: a run with what was measured of a step.

    `model` is an id of ours, of which `layers` may say how many ran, or a GPT of printed widths. `trainable_share` is
    that of LoRA, empty where all is trained; `training_stack` the software, empty where it is the chip's own. `use` is
    "fit", "predict", or "aside" with the reason in `note`.
    """

    id: str
    group: str
    use: Literal["fit", "predict", "aside"]
    source: str
    locator: str
    model: str
    layers: str
    hidden: str
    heads: str
    vocabulary: str
    system: str
    count: int
    scaleout_gbit_per_s: str
    tp: str
    pp: str
    dp: str
    ep: str
    cp: str
    global_batch: str
    seq: str
    micro_batch: str
    interleave: int
    recompute: Literal["none", "selective", "full"]
    zero: int
    sequence_parallel: int
    precision: str
    trainable_share: str
    training_stack: str
    metric: str
    value: str
    unit: str
    note: str


class Case(NamedTuple):
    """A run as the question that `tm.validate` asks of its row, with the time that one of its steps took."""

    row: Row
    reading: Reading
    measured_s: float
    page: str

    @property
    def name(self) -> str:
        """What is left out together: a model of one size, whatever its depth or software."""
        return self.row.model

    @property
    def vote(self) -> Vote:
        """The run as a case of any other kind: a question, and what was measured."""
        return Vote(self.reading, self.measured_s, 1.0, self.page, self.row.id)

    @property
    def model(self) -> Transformer:
        """The model, at the length that it is trained on."""
        return jobs.trained(self.reading)

    @property
    def where(self) -> System:
        """The machines of the run."""
        return instance("system", jobs.place(self.reading), System, "a system")

    @property
    def degrees(self) -> Degrees:
        """Degrees, placed as Megatron-LM places them."""
        return jobs.degrees(self.reading)

    def step(self, e: Trainer | str | None = None) -> TrainStep:
        """Return the step, of the row's own software or of another; `jobs.step` has what is asked."""
        if e is None:
            return jobs.training(self.reading)
        chosen = trainer(self.where.chip, e)
        return jobs.step(self.reading, lambda _: chosen)


def case_of(row: Row) -> Case:
    """Return a run as a question, read as any row is."""
    import pandas as pd

    return _case(row, *read_rows(pd.DataFrame([msgspec.structs.asdict(row)])))


def _case(row: Row, cells: Mapping[str, str]) -> Case:
    r = reading(cells)
    return Case(row, jobs.as_time(r), jobs.step_s(r, measure(cells) * r.scale), document(cells["source"]))


@cache
def rows() -> tuple[Row, ...]:
    """All runs."""
    return tuple(load.read_csv(RUNS, Row))


@cache
def cases(group: str = "") -> tuple[Case, ...]:
    """Return runs that are asked for, of one group or of all."""
    if group:
        return tuple(case for case in cases() if case.row.group == group)
    return tuple(_case(row, cells) for row, cells in zip(rows(), read_rows(RUNS), strict=True) if row.use != "aside")


@cache
def stack_of(group: str) -> str:
    """Return the stack that a group is asked with: the one that its rows name, or their chip's own."""
    (found,) = {jobs.software(case.reading).id for case in cases(group)}
    return found


def log_errors(of: Iterable[Case], e: Trainer | None = None) -> NDArray:
    """Logarithms of predicted over measured time, under one stack or under the software of each row."""
    return residual_logs([case.vote for case in of], None if e is None else lambda _: e)


def fit(of: Sequence[Case], e: Trainer, names: Sequence[str]) -> Trainer:
    """Return a stack with the constants that fit some runs best; a share ends at 1."""
    if "step_s" in names and min(case.measured_s for case in of) > SHORT_S:
        e, names = replace(e, step_s=0.0), [name for name in names if name != "step_s"]
    first = np.array([getattr(e, name) for name in names], dtype=float)

    def errors(values: NDArray) -> NDArray:
        return log_errors(of, _with(e, names, values))

    return _with(e, names, search.constants(errors, first, high=search.room(names, first)))


def unseen(e: Trainer) -> Trainer:
    """Return a stack at which a fit with runs left out starts: no constant of it comes from the runs left out."""
    chip = cases(GROUPS[e.id])[0].where.chip
    return replace(e, **{name: getattr(trainer(chip, other), name) for name, other in FIRST.get(e.id, {}).items()})


def _with(e: Trainer, names: Sequence[str], values: NDArray) -> Trainer:
    moved: dict[str, Any] = {name: float(value) for name, value in zip(names, values, strict=True)}
    return replace(e, **moved)


@cache
def without_model(stack: str) -> NDArray:
    """Return a row for each of a stack's runs: its error and the constants by a fit that did not see its model."""
    return without(stack, lambda case: case.name)


def without(stack: str, name: Callable[[Case], str]) -> NDArray:
    """Return a row for each of a stack's runs: its error and the constants by a fit that saw no run of its name."""
    of, names = cases(GROUPS[stack]), FITTED[stack]
    e = unseen(trainer(of[0].where.chip, stack))

    def learned(train: list[Case], test: list[Case]) -> list[NDArray]:
        found = fit(train, e, names)
        constants = [getattr(found, name) for name in names]
        return [np.array([error, *constants]) for error in np.expm1(log_errors(test, found))]

    return search.left_out(of, name, learned)


@cache
def _share(case: Case) -> float:
    step = case.step("ideal")
    peak = float(step.peak_flop_per_s * step.chips * step.ranks_per_chip)
    return float(step.model_flop) / case.measured_s / peak


def _shares(of: Sequence[Case]) -> NDArray:
    """MFU of runs as measured."""
    return np.array([_share(case) for case in of])


def constant_mfu(of: Sequence[Case]) -> tuple[NDArray, NDArray]:
    """Errors of the rival, one share of the peak for all runs: as fitted to them, and with the model left out.

    Where there is one model, the latter are NaN.
    """
    shares = _shares(of)

    def learned(train: list[int], test: list[int]) -> NDArray:
        return shares[test] / (np.exp(np.median(np.log(shares[train]))) if train else np.nan) - 1

    every = list(range(len(of)))
    return learned(every, every), search.left_out(every, lambda i: of[i].name, learned)


def carried_mfu(group: str) -> NDArray:
    """Errors of the rival that has not seen a group: the MFU of the runs that its stack, or the base of that, fits."""
    stack = stack_of(group)
    while stack not in GROUPS:
        stack = load.entities()[stack].base
    known = _shares(cases(GROUPS[stack]))
    return _shares(cases(group)) / np.exp(np.median(np.log(known))) - 1


@cache
def left_out_errors() -> dict[str, float]:
    """Errors by id, of fits that did not see the model of the run, as they were last written."""
    with LEFT_OUT.open(newline="") as file:
        return {row["id"]: float(row["left_out_error"]) for row in csv.DictReader(file)}


def accuracy(group: str) -> pd.DataFrame:
    """Return runs of a group with errors as shipped, with the model left out, and of the rival.

    Returns
    -------
    table : pandas.DataFrame
        id, model, degrees, measured and predicted time, error, left_out_error (NaN where the group is predicted), and
        errors of one MFU for all: in sample, left out (NaN where there is one model), and carried over from the runs
        that the stack was fitted to; the half-width of a logarithm that the step states. [-]
    """
    import pandas as pd

    of = cases(group)
    steps = [case.step() for case in of]
    times = np.array([float(step.time_s) for step in steps])
    took = np.array([case.measured_s for case in of])
    inside, outside = constant_mfu(of)
    return pd.DataFrame(
        {
            "id": [case.row.id for case in of],
            "model": [case.name for case in of],
            **{name: [int(getattr(case.row, name)) for case in of] for name in ("tp", "pp", "dp", "ep", "cp")},
            "recompute": [case.row.recompute for case in of],
            "measured_s": took,
            "predicted_s": times,
            "error": times / took - 1,
            "left_out_error": [left_out_errors().get(case.row.id, np.nan) for case in of],
            "mfu_error": inside,
            "mfu_left_out_error": outside,
            "mfu_carried_error": carried_mfu(group),
            "width": [float(step.judge().width) for step in steps],
            "mfu": [float(step.mfu) for step in steps],
            "note": [case.row.note for case in of],
        }
    )


ERRORS = {
    "": "error",
    "left_out_": "left_out_error",
    "rival_": "mfu_error",
    "rival_left_out_": "mfu_left_out_error",
    "rival_carried_": "mfu_carried_error",
}


def _summary(group: str) -> dict[str, Any]:
    """Return the line of a group."""
    found = accuracy(group)
    line: dict[str, Any] = {
        "group": group,
        "stack": stack_of(group),
        "cases": len(found),
        "models": found.model.nunique(),
        "fitted": group in GROUPS.values(),
    }
    for name, column in ERRORS.items():
        errors = np.abs(found[column].to_numpy())
        known = errors[np.isfinite(errors)]
        line |= {f"{name}{how.__name__}": float(how(known)) if known.size else np.nan for how in (np.mean, np.median)}
    line["inside"] = float(np.mean(np.abs(np.log1p(found.error)) <= found.width))
    wanted = TARGETS.get(group, {})
    line["target"] = ", ".join(f"{name.replace('_', ' ')} under {100 * value:g} %" for name, value in wanted.items())
    line["met"] = all(line[name] < value for name, value in wanted.items()) if wanted else None
    line["aside"] = sum(row.use == "aside" and row.group == group for row in rows())
    return line


def table() -> pd.DataFrame:
    """Absolute errors by group beside those of the rival, one MFU for all runs of the group, and the issue's targets.

    Returns
    -------
    table : pandas.DataFrame
        group, stack, cases, models, fitted (whether the stack was fitted to these runs), mean and median as shipped,
        left_out_mean and left_out_median (the model of a run left out of the fit; NaN where nothing was fitted),
        rival_mean, rival_median, the same of rival_left_out and of rival_carried (which has not seen a group that is
        predicted: the MFU of the runs that its stack was fitted to), inside (share of the runs within the width
        of their errors as shipped), target in words, met (None without a
        target), and aside (runs of the group that are set aside). [-]

    Examples
    --------
    >>> found = table().set_index("group")
    >>> int(found.cases["a100-cluster"]), found.target["sc21"], bool(found.met["sc21"])
    (45, 'mean under 8 %', True)
    """
    import pandas as pd

    return pd.DataFrame([_summary(group) for group in dict.fromkeys(case.row.group for case in cases())])


def aside() -> pd.DataFrame:
    """Return runs that are set aside: id, group, model, source, what was measured, and the reason.

    Examples
    --------
    >>> bool((aside().reason != "").all())
    True
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "id": row.id,
                "group": row.group,
                "model": row.model,
                "source": row.source,
                "measured": f"{row.metric} {row.value} {row.unit}",
                "reason": row.note,
            }
            for row in rows()
            if row.use == "aside"
        ]
    )


def _ends(name: str, values: NDArray) -> str:
    """Return the first of some values in the middle of a range as wide as the others go; a share ends at 1."""
    middle = values[0]
    half = min(float(np.abs(values - middle).max()), middle)
    if name.endswith(("share", "overlap")):
        half = min(half, 1 - middle)
    return f"{middle - half:.6g}-{middle + half:.6g}" if half else f"{middle:.4g}"


def calibrated(stacks: Iterable[str] = tuple(GROUPS)) -> dict[tuple[str, str], str]:
    """Every fitted value by stack and quantity, with the range of the fits in which a model is left out."""
    found: dict[tuple[str, str], str] = {}
    for stack in stacks:
        of, (errors, *without) = cases(GROUPS[stack]), without_model(stack).T
        best = fit(of, trainer(of[0].where.chip, stack), FITTED[stack])
        for name, values in zip(FITTED[stack], without, strict=True):
            found[stack, name] = _ends(name, np.array([getattr(best, name), *values]))
        found[stack, "width"] = f"{np.quantile(np.abs(np.log1p(errors)), QUANTILE):.4g}"
        found[stack, "fitted_chips"] = f"{max(case.where.chips for case in of)}"
        if (wide := octave_width(stack)) > 0:
            found[stack, "octave_width"] = f"{wide:.4g}"
    return found


def octave_width(stack: str) -> float:
    """Half-width that each doubling of chips beyond those of a fit adds, from predicted runs on more; 0 without any."""
    most = max(case.where.chips for case in cases(GROUPS[stack]))
    further = [
        case
        for case in cases()
        if case.row.use == "predict" and case.where.chips > most and jobs.software(case.reading).id == stack
    ]
    if not further:
        return 0.0
    doublings = np.log2([case.where.chips / most for case in further])
    return float(np.quantile(np.abs(log_errors(further)) / np.sqrt(doublings), QUANTILE))


def write() -> None:
    """Put fitted values into their rows, and errors of what was left out into a file."""
    import pandas as pd

    put_fitted(FACTS, calibrated())
    ids = [case.row.id for group in GROUPS.values() for case in cases(group)]
    errors = np.concatenate([without_model(stack)[:, 0] for stack in GROUPS])
    save(pd.DataFrame({"id": ids, "left_out_error": errors}), LEFT_OUT, "%.4f")


if __name__ == "__main__":
    write()
