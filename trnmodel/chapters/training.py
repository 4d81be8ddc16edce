"""How long a training run takes, and whether it fits: runs beside each other, memory, parts of a step, mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from trnmodel.arguments import UnanswerableError
from trnmodel.planner.deployments import computes
from trnmodel.planner.train_run import Spent, TrainRun, degrees, train_run
from trnmodel.planner.train_search import largest_micro_batch
from trnmodel.planner.trainings import NARROW, STACKS, at_stated_mfu
from trnmodel.steps.training import train_step
from trnmodel.steps.training_answer import TrainStep
from trnmodel.units import GIB, MILLION, format_digits, format_within

SYMBOLS = [
    ("d", "days", "days of a run, nothing lost", "", "result"),
    ("T, B", "tokens, global_batch", "tokens that the run sees; those of a step", "", "parameter"),
    ("F", "model_flop", "work of the model in a step, forward and backward", "", "model"),
    ("N, P", "chips, peak_flop_per_s", "chips of the job; printed peak of one", "", "data"),
    ("MFU, HFU", "mfu, hfu", "model FLOP, all computed FLOP over the peak of all chips", "", "result"),
    ("t_f, t_b, t_r", "forward_s, backward_s, recompute_s", "work of a micro-batch: forward, back, again", "", "step"),
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
ZEROS, NO_STACK = (0, 1, 3), "no such software"
POLICIES: Mapping[str, Any] = {"zero": (1, 3), "sequence_parallel": (True,)}  # the others are tried for the answer


class Key(NamedTuple):
    """Which run: model, system, precision and kind of software."""

    model: str
    system: str
    precision: str
    kind: str


Runs = Mapping[Key, TrainRun]


def runs(questions: Mapping[str, Mapping[str, Any]], systems: Iterable[str], precision: str, chips: float) -> Runs:
    """Runs of models on systems and kinds of software, in a precision and in the first of 8 bits that a chip has.

    Left out is what cannot be asked: no stack of a kind, no whole domains. UnanswerableError where nothing is left.
    """
    found, why = dict[Key, TrainRun](), ""
    for name, question in questions.items():
        for system in systems:
            formats = [precision] * computes(system, precision) + [one for one in NARROW if computes(system, one)][:1]
            for dtype, kind in ((dtype, kind) for dtype in dict.fromkeys(formats) for kind in STACKS):
                ask = {**question, **POLICIES, "chips": chips, "precision": dtype, "efficiencies": kind}
                try:
                    found[Key(name, system, dtype, kind)] = train_run(system=system, **ask)
                except ValueError as error:
                    why = why or " ".join(str(error).split())
    if not found:
        raise UnanswerableError(why)
    return found


def level(found: Runs, head: Key) -> dict[str, TrainRun]:
    """Runs like one on every system: of its model, precision and kind of software; those that fit."""
    return {key.system: run for key, run in found.items() if key._replace(system=head.system) == head and run.valid}


def days(run: TrainRun | None) -> str:
    """Days of a run with their band, or why it has none."""
    if run is None:
        return NO_STACK
    low, high = map(float, run.ends("days"))
    return format_within(float(run.days), low, high) if run.valid else str(run.reason)


def rows(found: Runs) -> pd.DataFrame:
    """Every run in a row: days with `_low` and `_high`, MFU, mapping, bound, what is next, memory, basis."""
    lines = []
    for key, run in found.items():
        low, high = map(float, run.ends("days"))
        row = key._asdict() | {
            "software": key.kind,
            "chips": run.chips,
            "tokens": run.tokens,
            "run_days": float(run.days),
        }
        row |= {"run_days_low": low, "run_days_high": high, "mfu": float(run.mfu), "hfu": float(run.hfu)}
        row |= {"mapping": run.words, "bound": run.bound, "next": run.runner_up, "reason": str(run.reason)}
        row |= {"memory_bytes": float(run.step.memory_bytes_per_rank), "capacity_bytes": float(run.step.capacity_bytes)}
        lines.append(row | {"stack": run.stack.id, "basis": str(run.basis), "basis_reason": str(run.basis_reason)})
    return pd.DataFrame(lines).drop(columns="kind")


def beside(found: Runs, model: str) -> pd.DataFrame:
    """A model's days by system and precision on each kind of software; MFU, mapping and bound on the first that runs."""
    lines = dict[tuple[str, ...], dict[str, Any]]()
    for key, run in found.items():
        if key.model == model:
            names = {"system": key.system, "in": key.precision.upper(), **dict.fromkeys(STACKS, NO_STACK)}
            row = lines.setdefault(key[1:3], names)
            row[key.kind] = days(run)
            if "MFU" not in row and run.valid:
                row |= {"MFU": f"{float(run.mfu):.0%}", "mapping": degrees(run.table.iloc[0].to_dict())}
                row |= {"bound": PARTS.get(f"{run.bound}_s", run.bound)}
    return pd.DataFrame(lines.values()).fillna("")


def gains(found: Runs, head: Key) -> pd.DataFrame:
    """What 8 bits bring: system, peaks and days in both formats, ratios of peaks and of speeds; NaN with one format."""
    lines = []
    for system in dict.fromkeys(key.system for key in found):
        both = [(key, run) for key, run in found.items() if key[:2] == (head.model, system) and key.kind == head.kind]
        row: dict[str, Any] = {"system": system}
        for (key, run), name in zip(both, ("wide", "narrow"), strict=False):
            row |= {
                f"{name}_in": key.precision.upper(),
                f"{name}_flop_per_s": peak(run),
                f"{name}_days": float(run.days),
            }
        lines.append(row)
    columns = ["system", *(f"{name}_{end}" for name in ("wide", "narrow") for end in ("in", "flop_per_s", "days"))]
    table = pd.DataFrame(lines).reindex(columns=columns).dropna(subset="wide_in")
    ratios = {"peak_ratio": table.narrow_flop_per_s / table.wide_flop_per_s}
    return table.assign(**ratios, speedup=table.wide_days / table.narrow_days)


def peak(run: TrainRun) -> float:
    """Printed peak of a chip of the run in its format. [FLOP/s]"""
    return float(run.step.peak_flop_per_s * run.step.ranks_per_chip)


def parts(found: Mapping[str, TrainRun]) -> pd.DataFrame:
    """Where the days of runs go, by part of a step: of, part, run_days."""
    shares = [(name, word, getattr(run.step, field) / run.step.time_s * run.days)
              for name, run in found.items() for field, word in PARTS.items()]  # fmt: skip
    table = pd.DataFrame(shares, columns=["of", "part", "run_days"]).astype({"run_days": float})
    return table[table.groupby("part").run_days.transform("max") > 0].reset_index(drop=True)


def _policies(run: TrainRun) -> Iterator[tuple[str, TrainStep, float]]:
    """Steps of a run's mapping, one sequence at a time, for each policy that keeps other bytes; the most sequences."""
    ask = {name: getattr(run.step, name) for name in ("global_batch", "seq", "precision", "sequence_parallel")}
    ask |= {"global_batch": int(run.step.global_batch), "seq": int(run.step.seq), "efficiencies": run.stack}
    for zero in ZEROS:
        kept = set[float]()
        for again, word in AGAIN.items():
            policy: dict[str, Any] = ask | {"zero": zero, "recompute": again}
            step = train_step(run.model, run.system, run.mapping, **policy)
            if float(step.memory_bytes_per_rank) not in kept:
                kept.add(float(step.memory_bytes_per_rank))
                most = largest_micro_batch(run.model, run.system, run.mapping, **policy)
                yield f"ZeRO {zero}, {word}", step, float(most)


def memory(run: TrainRun) -> pd.DataFrame:
    """What the fullest rank stores of one sequence at a time: of (policy), kind, stored_bytes, capacity_bytes, most."""
    return pd.DataFrame([
        {"of": word, "kind": kind, "stored_bytes": float(getattr(step, field)),
         "capacity_bytes": float(step.capacity_bytes), "most": most}
        for word, step, most in _policies(run) for field, kind in KINDS.items()
    ])  # fmt: skip


def overlaps(found: Mapping[str, TrainRun]) -> pd.DataFrame:
    """A step with every exchange hidden that can be, as it is, and with none hidden: in seconds, and over its time."""
    return pd.DataFrame([
        {"system": name, "time_s": float(run.step.time_s), "lower_s": float(run.step.lower_s),
         "upper_s": float(run.step.upper_s), "exposed": f"{float(run.step.exposed_s / run.step.time_s):.0%}"}
        for name, run in found.items()
    ])  # fmt: skip


def stated(printed: pd.DataFrame) -> pd.DataFrame:
    """Runs that their authors print, a row each: chips, MFU, days, the same on as many chips, and ours by software."""
    lines = dict[str, dict[str, Any]]()
    for row in printed.itertuples():
        line = lines.setdefault(
            row.id,
            {
                "run": row.id,
                "chips": f"{row.chips:,.0f} {row.chip.upper()}",
                "in": row.precision.upper(),
                "MFU": f"{row.mfu:.0%}",
                "days": format_digits(row.days, 3),
                "on as many chips": format_digits(row.days_on, 3),
            },
        )
        ends = (row.predicted_days, row.predicted_days_low, row.predicted_days_high)
        line[f"ours, {row.stack_kind}"] = format_within(*ends)
        line["source"] = row.source
    return pd.DataFrame(lines.values())


def losing(run: TrainRun) -> pd.DataFrame:
    """The best sets of degrees: days, MFU, memory, by how much they lose and by which part of a step."""
    return pd.DataFrame([
        {"mapping": degrees(row), "sequences at once": row["micro_batch"], "parts a stage": row["interleave"],
         "policy": f"ZeRO {row['zero']}, {AGAIN[row['recompute']]}", "MFU": f"{row['mfu']:.1%}",
         "days": format_digits(float(run.days) * (1 + run.behind(row)), 3),
         "memory [GiB]": format_digits(row["memory_bytes_per_rank"] / GIB, 3),
         "loses": f"{run.behind(row):.1%}, most by {PARTS.get(row['loses_by'] + '_s', 'nothing')}" if place else ""}
        for place, row in enumerate(run.table.to_dict("records"))
    ])  # fmt: skip


def binding(run: TrainRun) -> pd.DataFrame:
    """What each constraint costs: days and the mapping that is then best, those that bind first."""
    table = run.constraints().sort_values("cost", ascending=False, na_position="first", kind="stable")
    return pd.DataFrame([
        {"constraint": row["constraint"]} | ({"days": "does not fit"} if np.isnan(row["cost"]) else
         {"days": format_digits(row["days"], 3), "time": f"{row['cost'] - 1:+.1%}", "then best": degrees(row)})
        for row in table.to_dict("records")
    ]).fillna("")  # fmt: skip


def claims(found: Iterable[TrainRun]) -> pd.DataFrame:
    """MFU and days of runs as derived, and at the MFU that their chip's software is said to reach."""
    tables = [at_stated_mfu(run).assign(model=run.model.id) for run in found]
    lines = [
        {"model": row.model, "MFU of": row.scenario if row.scenario == "derived" else row.software,
         "MFU": format_within(*(100 * x for x in (row.mfu, row.mfu_low, row.mfu_high)), "%").replace(" %", "%"),
         "days": format_within(row.days, row.days_low, row.days_high), "source": row.source}
        for table in tables for row in table.itertuples()
    ]  # fmt: skip
    return pd.DataFrame(lines)


def spent(found: Mapping[str, TrainRun], owner: str, way: str) -> pd.DataFrame:
    """Days, useful share, days in the calendar, and million dollars to one who rents and to one who owns the chips."""
    lines = []
    for name, run in found.items():
        g = run.goodput()
        share = format_within(*(100 * float(x) for x in (g.goodput, g.low, g.high)), "%").replace(" %", "%")
        row = {"system": name, "days, nothing lost": days(run), "useful share of the time": share}
        row |= {"days in the calendar": _within(run.calendar_days(g))}
        row |= {"rented [million USD]": _within(run.renter_usd(way, useful=g), MILLION)}
        lines.append(row | {"owned [million USD]": _within(run.owner_usd(owner, g), MILLION)})
    return pd.DataFrame(lines)


def _within(one: Spent, scale: float = 1.0) -> str:
    return "no price" if one.why else format_within(one.value / scale, one.low / scale, one.high / scale)
