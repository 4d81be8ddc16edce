"""How long a training run takes, and whether it fits: runs beside each other, parts of a step, memory, mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from trnmodel.arguments import UnanswerableError
from trnmodel.planner.deployments import computes
from trnmodel.planner.train_run import TrainRun, degrees, train_run
from trnmodel.planner.trainings import NARROW, STACKS
from trnmodel.result import tidy
from trnmodel.steps.training import train_step
from trnmodel.steps.training_answer import TrainStep
from trnmodel.units import GIB, MILLION, format_digits, format_within

SYMBOLS = [
    ("d", "days", "days of a run, nothing lost", "", "result"),
    ("T", "tokens", "tokens that the run sees", "", "parameter"),
    ("F", "model_flop", "work of the model in a step, forward and backward", "", "model"),
    ("N, P", "chips, peak_flop_per_s", "chips of the job, printed peak of one", "", "data"),
    ("MFU, HFU", "mfu, hfu", "model FLOP, all computed FLOP over the peak of all chips", "", "result"),
    ("t_f, t_b, t_r", "forward_s, backward_s, recompute_s", "work of a micro-batch: there, back, again", "", "step"),
    ("t_x", "exposed_s", "exchanges that nothing hides", "", "step"),
    ("m, p, v", "microbatches, pp, interleave", "micro-batches; pipeline stages; parts of a stage", "", "mapping"),
]
PARTS: Mapping[str, str] = {
    "forward_s": "forward",
    "backward_s": "backward",
    "recompute_s": "computed again",
    "tensor_s": "TP exchanges",
    "expert_s": "EP exchanges",
    "context_s": "CP exchanges",
    "pipeline_s": "PP sends",
    "data_s": "DP exchanges",
    "bubble_s": "bubble",
    "optimizer_s": "optimizer",
    "straggler_s": "slowest rank",
    "overhead_s": "fixed time",
}
KINDS: Mapping[str, str] = {
    "weight_bytes": "weights",
    "gradient_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "activation_bytes": "activations",
    "buffer_bytes": "buffers",
}
AGAIN: Mapping[str, str] = {"none": "nothing again", "selective": "scores again", "full": "layers again"}
ZEROS = (0, 1, 3)
POLICIES: Mapping[str, Any] = {"zero": (1, 3), "sequence_parallel": (True,)}  # the others are tried for the headline


class Key(NamedTuple):
    """Which run: model, system, precision and kind of software."""

    model: str
    system: str
    precision: str
    kind: str


Runs = Mapping[Key, TrainRun]


def asked(questions: Mapping[str, Mapping[str, Any]], systems: Iterable[str], precision: str, **ask: Any) -> dict:
    """Runs of each model on each system and kind of software, in a precision and the first of 8 bits that it has.

    What cannot be asked (no stack of a kind, chips that are no whole domains) is left out; UnanswerableError where
    nothing is left.
    """
    found, why = dict[Key, TrainRun](), ""
    for model, question in questions.items():
        for system in systems:
            narrow = [name for name in NARROW if computes(system, name)][:1]
            for dtype in dict.fromkeys([precision, *narrow]):
                for kind in STACKS:
                    try:
                        run = train_run(model, system, precision=dtype, efficiencies=kind, **question, **ask)
                    except ValueError as error:
                        why = why or " ".join(str(error).split())
                    else:
                        found[Key(model, system, dtype, kind)] = run
    if not found:
        raise UnanswerableError(why)
    return found


def days(run: TrainRun | None, basis: bool = False) -> str:
    """Days of a run with their band, or why it has none."""
    if run is None:
        return "no such software"
    if not run.valid:
        return str(run.reason)
    low, high = map(float, run.ends("days"))
    return format_within(float(run.days), low, high, "days" * basis, str(run.basis) * basis)


def rows(runs: Runs) -> pd.DataFrame:
    """Every run in a row: days with `_low` and `_high`, MFU, mapping, bound, runner-up, memory, basis."""
    found = []
    for key, run in runs.items():
        low, high = map(float, run.ends("days"))
        row = key._asdict() | {"software": key.kind, "chips": run.chips, "tokens": run.tokens, "days": float(run.days)}
        row |= {"days_low": low, "days_high": high, "mfu": float(run.mfu), "hfu": float(run.hfu)}
        row |= {"mapping": run.words, "bound": run.bound, "next": run.runner_up, "reason": str(run.reason)}
        row |= {"memory_bytes": float(run.step.memory_bytes_per_rank), "capacity_bytes": float(run.step.capacity_bytes)}
        found.append(row | {"stack": run.stack.id, "basis": str(run.basis), "basis_reason": str(run.basis_reason)})
    return pd.DataFrame(found).drop(columns="kind")


def beside(runs: Runs, model: str) -> pd.DataFrame:
    """A model's days by system and precision on each kind of software, with mapping and bound of the first one."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for key, run in runs.items():
        if key.model == model:
            row = found.setdefault(key[1:3], {"system": key.system, "precision": key.precision, **NONE})
            row[key.kind] = days(run)
            if "mapping" not in row and run.valid:
                row |= {"mapping": degrees(run.table.iloc[0].to_dict()), "bound": run.bound, "MFU": f"{float(run.mfu):.0%}"}
    return pd.DataFrame(found.values()).fillna("")


NONE = dict.fromkeys(STACKS, "no such software")


def gains(runs: Runs, model: str, kind: str) -> pd.DataFrame:
    """What 8 bits bring on each system: peaks, days and their ratio to those of the wider format."""
    found = []
    mine = {key: run for key, run in runs.items() if key.model == model and key.kind == kind}
    for system in dict.fromkeys(key.system for key in mine):
        wide, *narrow = ((key, run) for key, run in mine.items() if key.system == system)
        row = {"system": system, "wide": wide[0].precision, "wide_flop_per_s": _peak(wide[1]), "wide_days": days(wide[1])}
        for key, run in narrow[:1]:
            row |= {"narrow": key.precision, "narrow_flop_per_s": _peak(run), "narrow_days": days(run)}
            row |= {"peak_ratio": _peak(run) / _peak(wide[1]), "speedup": float(wide[1].days / run.days)}
        found.append(row)
    return pd.DataFrame(found)


def _peak(run: TrainRun) -> float:
    return float(run.step.peak_flop_per_s * run.step.ranks_per_chip)


def parts(runs: Mapping[str, TrainRun]) -> pd.DataFrame:
    """Where the days of each run that fits go, by part of its steps: of, part, run_days."""
    found = [
        {"of": name, "part": word, "run_days": float(getattr(run.step, field) / run.step.time_s * run.days)}
        for name, run in runs.items()
        for field, word in PARTS.items()
        if run.valid
    ]
    table = pd.DataFrame(found, columns=["of", "part", "run_days"])
    return table[table.groupby("part").run_days.transform("max") > 0].reset_index(drop=True)


def stepped(run: TrainRun, **other: Any) -> TrainStep:
    """The step of a run's mapping with another size or policy."""
    names = ("global_batch", "seq", "micro_batch", "interleave", "precision", "recompute", "zero", "sequence_parallel")
    ask: dict[str, Any] = {name: getattr(run.step, name) for name in names} | {"efficiencies": run.stack} | other
    return train_step(run.model, run.system, run.mapping, **ask)


def _policies(run: TrainRun, sizes: np.ndarray) -> Iterable[tuple[int, str, TrainStep]]:
    """Steps of the run's mapping for each way to share out and to compute again that differs in what it keeps."""
    for zero in ZEROS:
        kept = set[float]()
        for again, word in AGAIN.items():
            step = stepped(run, recompute=again, zero=zero, micro_batch=sizes, interleave=1)
            held = float(np.ravel(step.memory_bytes_per_rank)[0])
            if held not in kept:
                kept.add(held)
                yield zero, word, step


def memory(run: TrainRun) -> pd.DataFrame:
    """What the fullest rank stores of one sequence at a time, by policy and kind: of, kind, stored_bytes."""
    return pd.DataFrame([
        {"of": f"ZeRO {zero}, {word}", "kind": kind, "stored_bytes": float(np.ravel(getattr(step, field))[0]),
         "capacity_bytes": float(step.capacity_bytes), "time_s": float(np.ravel(step.time_s)[0])}
        for zero, word, step in _policies(run, np.array([1.0])) for field, kind in KINDS.items()
    ])  # fmt: skip


def largest(run: TrainRun) -> pd.DataFrame:
    """The largest micro-batch of the run's mapping that fits with each policy, without interleaving."""
    each, found = round(float(run.step.global_batch / (run.step.dp * run.step.ep))), list[dict[str, Any]]()
    sizes = np.array([size for size in range(1, each + 1) if each % size == 0])
    for zero, word, step in _policies(run, sizes):
        held = np.broadcast_to(step.memory_bytes_per_rank, sizes.shape)
        fit = np.flatnonzero(held <= step.capacity_bytes)
        row = {"policy": f"ZeRO {zero}, {word}", "one sequence at a time [GiB]": format_digits(held[0] / GIB, 3)}
        last = {"largest micro-batch": f"{sizes[fit[-1]]:,}", "takes [GiB]": format_digits(held[fit[-1]] / GIB, 3)} if fit.size else {}  # fmt: skip
        found.append(row | (last or {"largest micro-batch": "none fits", "takes [GiB]": ""}))
    return pd.DataFrame(found)


def losing(run: TrainRun) -> pd.DataFrame:
    """The best sets of degrees: days, MFU, memory, by how much they lose and by which part of a step."""
    found = []
    for row in run.table.to_dict("records"):
        more = row["tokens_per_s"] and run.table.tokens_per_s[0] / row["tokens_per_s"] - 1
        found.append({
            "mapping": degrees(row), "micro-batch": f"{row['micro_batch']:.0f}", "parts a stage": f"{row['interleave']:.0f}",
            "ZeRO": row["zero"], "computed again": AGAIN[row["recompute"]],
            "days": format_digits(float(run.days) * (1 + more), 3), "MFU": f"{row['mfu']:.1%}",
            "memory [GiB]": format_digits(row["memory_bytes_per_rank"] / GIB, 3),
            "loses": f"{more:.1%} by {LOST[row['loses_by']]}" if row["loses_by"] else "",
        })  # fmt: skip
    return tidy(found)


LOST: Mapping[str, str] = {field.removesuffix("_s"): word for field, word in PARTS.items()} | {"work": "work"}


def binding(run: TrainRun) -> pd.DataFrame:
    """What each constraint costs: days and their share over those of the free best, with the mapping that is then best."""
    table = run.constraints()
    return pd.DataFrame([
        {"constraint": row.constraint, "days": format_digits(row.days, 3) if row.cost == row.cost else "does not fit",
         "over the best": f"{row.cost - 1:+.1%}" if row.cost == row.cost else "",
         "then best": degrees(row._asdict()) if row.cost == row.cost else ""}
        for row in table.itertuples()
    ])  # fmt: skip


def spent(runs: Mapping[str, TrainRun], owner: str, way: str, region: str | None) -> pd.DataFrame:
    """Days, useful share, days in the calendar, and million dollars to one who rents and to one who owns the chips."""
    found = []
    for name, run in runs.items():
        row = {"system": name, "days, nothing lost": days(run)}
        if run.valid:
            useful = run.goodput()
            row["useful share"] = format_within(
                *(100 * float(end) for end in (useful.goodput, useful.low, useful.high)), "%"
            ).replace(" %", "%")
            row["days in the calendar"] = run.calendar_days(useful).told("").strip()
            rented, owned = run.renter_usd(way, region, useful), run.owner_usd(owner, useful)
            row["rented [million USD]"], row["owned [million USD]"] = (million(one) for one in (rented, owned))
        found.append(row)
    return pd.DataFrame(found).fillna("")


def million(one: Any) -> str:
    """A sum in millions, or that nobody prices it."""
    if one.why:
        return "no price"
    return format_within(one.value / MILLION, one.low / MILLION, one.high / MILLION)
