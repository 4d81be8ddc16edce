"""Measured inference on chips of others beside what the model gives for them: what is asked, and what is not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from trnmodel.catalog import load
from trnmodel.catalog.load import DATA, read_csv
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies, efficiencies
from trnmodel.evidence import fitting
from trnmodel.evidence.calibration import parameters
from trnmodel.fabric.collectives import collective
from trnmodel.formulas import roofline
from trnmodel.models.transformer import model
from trnmodel.steps.inference import Step, decode_step, prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.units import GB, MS, US

if TYPE_CHECKING:
    import pandas as pd

STACK = "gpu-serving"
GPUS = "hgx-a100"
UNITS = {"s": 1.0, "ms": MS, "us": US, "Gelement/s": GB, "tokens": 1.0}
DTYPES = {"fp8": "fp8", "int8": "int8", "fp4": "mxfp4"}
FITTED_ON = ("layer", "layer-all-reduce", "operators", "prefill", "decode-step", "run", "loaded-step")


class Measured(msgspec.Struct, frozen=True):
    """A row as it was printed."""

    case: str
    source: str
    model: str
    hardware: str
    parallelism: str
    batch: str
    seq: str
    precision: str
    metric: str
    value: str
    unit: str
    note: str


class Rule(msgspec.Struct, frozen=True):
    """One decision about rows: patterns on the left, cells to set on the right."""

    rule: str
    case: str
    hardware: str
    metric: str
    question: str
    chip: str
    model: str
    parts: str
    precision: str
    hbm_bytes_per_s: str
    reason: str


SET = ("question", "chip", "model", "parts", "precision", "hbm_bytes_per_s")


class UnanswerableError(ValueError):
    """A row that has no prediction, and why."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a row asks, in base units."""

    row: Measured
    name: str
    chip: Chip
    model: str
    parts: tuple[str, ...]
    degrees: Degrees
    workers: int
    precision: Precision
    batch: float
    given: float
    out: float
    measured: float


@cache
def rows() -> tuple[Measured, ...]:
    """All measured rows."""
    return tuple(read_csv(DATA / "evidence" / "comparator_measured.csv", Measured))


@cache
def _rules() -> tuple[Rule, ...]:
    return tuple(read_csv(DATA / "evidence" / "comparator_contract.csv", Rule))


def _contract(row: Measured) -> tuple[dict[str, str], str]:
    cells, reason = dict.fromkeys(SET, ""), ""
    for rule in _rules():
        patterns = [(rule.case, row.case), (rule.hardware, row.hardware), (rule.metric, row.metric)]
        if all(re.search(pattern, text, re.I) for pattern, text in patterns if pattern):
            cells |= {name: getattr(rule, name) for name in SET if getattr(rule, name)}
            reason = rule.reason if rule.question else reason
    return cells, reason


def _number(pattern: str, text: str, default: float = math.nan) -> float:
    found = re.search(pattern, text)
    return float(found[1]) if found and found[1] else default


def _degrees(row: Measured) -> tuple[Degrees, int]:
    """The mapping of one worker and how many of them share the requests; a decode worker where the roles are apart.

    Attention-parallel replicas share out sequences and experts, as expert parallelism does here.
    """
    role = "P" if row.metric == "ttft" else "D"
    part = re.search(rf"{role}:(\d+)x\(([^)]*)\)", row.parallelism)
    text = part[2] if part else row.parallelism
    ranks = _number(r"tp(\d+)", text, _number(r"^(\d+)-way", text, 1))
    return Degrees(tp=ranks, ep=_number(r"adp(\d+)", text, 1)), int(part[1]) if part else 1


def _chip(cells: Mapping[str, str]) -> Chip:
    """The chip of a row, with the HBM that the contract gives it; one layer fits wherever it was measured."""
    chip = load.chip(cells["chip"])
    if cells["hbm_bytes_per_s"]:
        chip = replace(chip, hbm_bytes_per_s=float(cells["hbm_bytes_per_s"]))
    if cells["parts"] or cells["question"] == "layer":
        return replace(chip, hbm_bytes=chip.hbm_bytes * model(cells["model"]).n_layers)
    return chip


def _precision(cells: Mapping[str, str], printed: str) -> Precision:
    """The preset of a row; "int8+int8" names the dtype of the cache too."""
    name, _, kv = (cells["precision"] or DTYPES.get(printed[:4], "bf16")).partition("+")
    return replace(load.precision(name), kv=kv) if kv else load.precision(name)


def question(row: Measured) -> Question:
    """What a row asks; raises UnanswerableError with the reason for a row that the model has no answer to."""
    cells, reason = _contract(row)
    if cells["question"] in ("", "skip"):
        raise UnanswerableError(reason or "no rule for this row")
    degrees, workers = _degrees(row)
    concurrency = _number(r"concurrency=(\d+)", row.note, _number(r"^(\d+)$", row.batch, 1))
    return Question(
        row=row,
        name=cells["question"],
        chip=_chip(cells),
        model=cells["model"],
        parts=tuple(filter(None, cells["parts"].split("|"))),
        degrees=degrees,
        workers=workers,
        precision=_precision(cells, row.precision),
        batch=max(concurrency / workers, 1.0),
        given=_number(r"isl(\d+)", row.seq, _number(r"^(\d+)$", row.seq)),
        out=_number(r"osl(\d+)", row.seq, _number(r"(\d+) generated", row.note)),
        measured=float(row.value) * UNITS[row.unit],
    )


def _asked(q: Question, e: Efficiencies) -> dict[str, object]:
    return {"mapping": q.degrees, "precision": q.precision, "efficiencies": e}


def _prefill(q: Question, e: Efficiencies, batch: float = 1.0, breakdown: bool = False) -> Step:
    found = prefill(q.model, q.chip, batch=batch, input_tokens=q.given, breakdown=breakdown, **_asked(q, e))
    return found.require_valid()


def _decode(q: Question, e: Efficiencies, breakdown: bool = False) -> Step:
    """A step in the middle of the output."""
    context = q.given + (0 if math.isnan(q.out) else q.out / 2)
    found = decode_step(q.model, q.chip, batch=q.batch, context=context, breakdown=breakdown, **_asked(q, e))
    return found.require_valid()


def _rates(q: Question, e: Efficiencies) -> tuple[float, float]:
    return q.chip.peak("fp16") * e.prefill_matmul_share, q.chip.hbm_bytes_per_s * e.weight_stream_share


def _shape(q: Question) -> list[float]:
    return [float(size) for size in re.findall(r"\d+", q.row.case.rsplit("-", 1)[1])]


def _matmul_s(q: Question, e: Efficiencies) -> float:
    m, n, k = _shape(q)
    moved = (m * k + k * n + m * n) * q.precision.storage_bytes("activations")
    peak, bandwidth = _rates(q, e)
    return float(roofline.time_s(2 * m * n * k, moved, peak, bandwidth, 1.0))


def _elements_per_s(q: Question, e: Efficiencies) -> float:
    return _rates(q, e)[1] / (2 * q.precision.storage_bytes("activations"))


def _all_reduce_s(q: Question, e: Efficiencies, message_bytes: float) -> float:
    """An all-reduce by two exchanges with all others, as behind a switch: a share to each, then the sums."""
    asked = {"ranks": q.degrees.tp, "alpha_s": e.hop_s, "floor_s": 0.0, "rate_share": 1.0, "algorithm": "one_shot"}
    return float(collective("all_reduce", message_bytes, GPUS, **asked).time_s)


def _operators_s(q: Question, e: Efficiencies) -> float:
    """Operators of one layer, each at the slower of its compute and its memory."""
    step = _decode(q, e, True) if "decode" in q.row.case else _prefill(q, e, q.batch, True)
    lines = [line for name, line in step.operators.items() if name.split(": ")[-1] in q.parts]
    times = [np.maximum(line.compute_s, line.memory_s) for line in lines]
    return float(sum(times)) / model(q.model).n_layers


def _layer_all_reduce_s(q: Question, e: Efficiencies) -> float:
    tokens = q.batch * (1 if "decode" in q.row.case else q.given)
    return _all_reduce_s(q, e, tokens * model(q.model).hidden_size * q.precision.storage_bytes("activations"))


def _loaded_step_s(q: Question, e: Efficiencies) -> float:
    """A decode step; on workers that also prefill, with its part of the prefills of the other requests."""
    stall = 0.0 if "D:" in q.row.parallelism else (q.batch - 1) * float(_prefill(q, e).time_s) / q.out
    return float(_decode(q, e).time_s) + stall


def _critical_batch(q: Question, e: Efficiencies) -> float:
    """Tokens at which a matmul reads its weights as fast as it multiplies: FLOP a byte over 2 FLOP, times its bytes."""
    ridge = roofline.ridge_point_flop_per_byte(q.chip.peak("bf16"), q.chip.hbm_bytes_per_s)
    return float(ridge) * q.precision.storage_bytes("weights") / 2


ANSWERS: Mapping[str, Callable[[Question, Efficiencies], float]] = {
    "matmul": _matmul_s,
    "elementwise": _elements_per_s,
    "all-reduce": lambda q, e: _all_reduce_s(q, e, q.batch),
    "operators": _operators_s,
    "layer-all-reduce": _layer_all_reduce_s,
    "layer": lambda q, e: float(_decode(q, e).time_s) / model(q.model).n_layers,
    "prefill": lambda q, e: float(_prefill(q, e).time_s),
    "decode-step": lambda q, e: float(_decode(q, e).time_s),
    "run": lambda q, e: float(_prefill(q, e).time_s) + q.out * float(_decode(q, e).time_s),
    "loaded-step": _loaded_step_s,
    "critical-batch": _critical_batch,
}


def answer(q: Question, stack: str | Efficiencies = "ideal") -> float:
    """What the model gives for a question, in base units; raises UnanswerableError with the reason for none."""
    try:
        value = ANSWERS[q.name](q, efficiencies(q.chip, stack))
    except ValueError as error:
        raise UnanswerableError(str(error)) from None
    if not math.isfinite(value):
        raise UnanswerableError("the model has no figure for a part of this row")
    return value


def comparators(stack: str | Efficiencies = "ideal") -> pd.DataFrame:
    """Every measured row of other chips with its prediction, or the reason for none.

    Parameters
    ----------
    stack : str or Efficiencies
        "ideal" (nothing is lost: a bound) or a stack fitted to such rows; printed arithmetic is always ideal. [-]

    Returns
    -------
    table : pandas.DataFrame
        case, hardware, model, question, batch, measured and predicted in the row's unit, error (predicted over
        measured, minus 1), analytic (the printed value is somebody's arithmetic) and reason. [-]
    """
    import pandas as pd

    lines = []
    for row in rows():
        line = {name: getattr(row, name) for name in ("case", "source", "hardware", "parallelism", "metric", "unit")}
        line |= {"model": row.model, "question": "", "predicted": math.nan, "error": math.nan, "reason": ""}
        line |= {"measured": float(row.value), "analytic": row.note.startswith("ANALYTIC")}
        try:
            q = question(row)
            value = answer(q, "ideal" if line["analytic"] else stack)
            line |= {"question": q.name, "predicted": value / UNITS[row.unit], "error": value / q.measured - 1}
        except UnanswerableError as reason:
            line["reason"] = str(reason)
        lines.append(line)
    return pd.DataFrame(lines)


def _tuned(values: Mapping[str, float]) -> Efficiencies:
    """The GPU stack with other values; weights and cache stream at one share."""
    e = efficiencies("h100", STACK)
    return replace(e, **values, kv_stream_share=values["weight_stream_share"], ranges={})


def _log_errors(of: Sequence[Question], e: Efficiencies) -> list[float]:
    return [math.log(answer(q, e) / q.measured) for q in of]


def fitted_on() -> list[Question]:
    """The measured rows that the GPU stack is fitted on: layers, steps and runs of models."""
    asked = []
    for row in rows():
        try:
            q = question(row)
            answer(q)
        except UnanswerableError:
            continue
        if q.name in FITTED_ON and not row.note.startswith("ANALYTIC"):
            asked.append(q)
    return asked


def fit(of: Sequence[Question]) -> dict[str, float]:
    """Values of the GPU stack that fit rows best, as `calibration.fit` does it for Neuron stacks."""
    names = [p.quantity for p in parameters("comparator")]
    first = [getattr(efficiencies("h100", STACK), name) for name in names]

    def errors(values: np.ndarray) -> list[float]:
        return _log_errors(of, _tuned(dict(zip(names, map(float, values), strict=True))))

    return dict(zip(names, fitting.constants(errors, first).tolist(), strict=True))


def left_out() -> pd.DataFrame:
    """Errors of the GPU stack by row, as shipped and fitted without the row's model, beside those of the ideal one."""
    import pandas as pd

    of = fitted_on()
    errors = {q.row.case: math.nan for q in of}
    for name in sorted({q.model for q in of}):
        e = _tuned(fit([q for q in of if q.model != name]))
        mine = [q for q in of if q.model == name]
        errors |= {q.row.case: math.expm1(error) for q, error in zip(mine, _log_errors(mine, e), strict=True)}
    lines = {
        "case": [q.row.case for q in of],
        "question": [q.name for q in of],
        "model": [q.model for q in of],
        "chip": [q.chip.id for q in of],
        "ideal_error": np.expm1(_log_errors(of, efficiencies("h100", "ideal"))),
        "error": np.expm1(_log_errors(of, efficiencies("h100", STACK))),
        "left_out_error": list(errors.values()),
    }
    return pd.DataFrame(lines)
