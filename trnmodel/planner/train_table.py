"""Training runs by model, system, precision and software: days, formats, parts of a step, memory by policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.catalog.systems import System
from trnmodel.planner.deployments import computes
from trnmodel.planner.train_run import AGAIN, TrainRun, train_run
from trnmodel.planner.train_search import largest_micro_batch
from trnmodel.planner.trainings import NARROW, STACKS
from trnmodel.steps.training import train_step
from trnmodel.steps.training_answer import TrainStep
from trnmodel.steps.training_work import KINDS
from trnmodel.units import GIB, TFLOP, format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

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
STORED: Mapping[str, str] = {name: f"{name.split('_')[0]}s" for name in KINDS} | {"optimizer_bytes": "optimizer"}
WIDE, ZEROS, NO_STACK = "bf16", (0, 1, 3), "no such software"
MORE = 1.02  # of days, from which on a difference is told
SLOW, HOT = 0.05, 1.5  # a slow rank, a full one of experts
BESIDE: Mapping[str, Any] = {"zero": (1, 3), "recompute": ("none", "full"), "best": 2}  # of runs beside


class Key(NamedTuple):
    """Which run: model, system, precision and kind of software."""

    model: str
    system: str
    precision: str
    kind: str


Runs = Mapping[Key, TrainRun]


def runs(
    questions: Mapping[str, Mapping[str, Any]], systems: Iterable[str], precision: str, chips: float
) -> dict[Key, TrainRun]:
    """Runs of models on systems and kinds of software, in a precision and in the first of 8 bits that a chip has.

    Left out is what cannot be asked: no stack of a kind, no whole domains. UnanswerableError where nothing is left.
    """
    found, why = dict[Key, TrainRun](), ""
    for name, (model, question) in product(systems, questions.items()):
        formats = [one for one in (WIDE, *NARROW) if computes(name, one)][:2]
        for dtype, kind in product(
            dict.fromkeys([*formats, precision] if computes(name, precision) else formats), STACKS
        ):
            try:
                ask = {**BESIDE, **question, "precision": dtype, "efficiencies": kind}
                run = train_run(system=name, chips=chips, **ask)
            except ValueError as error:
                why = why or " ".join(str(error).split())
            else:
                found[Key(model, name, dtype, kind)] = run
    if not found:
        raise UnanswerableError(why)
    return found


def whole(found: Runs, model: str, question: Mapping[str, Any], system: str, precision: str, chips: float) -> TrainRun:
    """The run of a model on the first kind of software that it has, by all policies; UnanswerableError says why not."""
    kind = next((kind for kind in STACKS if Key(model, system, precision, kind) in found), STACKS[0])
    try:
        run = train_run(system=system, chips=chips, precision=precision, efficiencies=kind, **question)
    except ValueError as error:
        raise UnanswerableError(f"{model} on {system}: {' '.join(str(error).split())}") from None
    if not run.valid:
        lacks = (
            f"the fullest rank lacks {run.missing_bytes / GIB:.3g} GiB" if run.missing_bytes else "no mapping can run"
        )
        raise ImpossibleError(f"{model} on {run.chips:,.0f} chips of {system}: {run.reason}; {lacks}")
    return run


def level(found: Runs, head: Key) -> dict[str, TrainRun]:
    """Runs like one on every system, of its model, precision and kind of software: those that fit."""
    return {key.system: run for key, run in found.items() if key._replace(system=head.system) == head and run.valid}


def rows(found: Runs) -> pd.DataFrame:
    """Every run in a row: days with `_low` and `_high`, MFU, mapping, bound, what is next, memory, basis."""
    import pandas as pd

    lines = []
    for key, run in found.items():
        low, high = map(float, run.ends("days"))
        row: dict[str, Any] = {
            "model": key.model,
            "system": key.system,
            "precision": key.precision,
            "software": key.kind,
        }
        row |= {"chips": run.chips, "tokens": run.tokens, "run_days": float(run.days)}
        row |= {"run_days_low": low, "run_days_high": high, "mfu": float(run.mfu), "hfu": float(run.hfu)}
        row |= {"mapping": run.words, "bound": run.bound, "next": run.runner_up, "reason": str(run.reason)}
        row |= {"memory_bytes": float(run.step.memory_bytes_per_rank), "capacity_bytes": float(run.step.capacity_bytes)}
        lines.append(row | {"trainer": run.stack.id, "basis": str(run.basis), "basis_reason": str(run.basis_reason)})
    return pd.DataFrame(lines)


def gains(found: Runs, head: Key) -> pd.DataFrame:
    """What 8 bits bring: system, peaks and days in both formats, ratios of peaks and of speeds; NaN with one format."""
    import pandas as pd

    lines: dict[str, dict[str, Any]] = {}
    for key, run in found.items():
        if (key.model, key.kind) == (head.model, head.kind):
            row = lines.setdefault(key.system, {"system": key.system})
            if "narrow_in" in row:
                continue
            name = "narrow" if "wide_in" in row else "wide"
            row |= {
                f"{name}_in": key.precision.upper(),
                f"{name}_flop_per_s": peak(run),
                f"{name}_days": float(run.days),
            }
    columns = ["system", *(f"{name}_{end}" for name in ("wide", "narrow") for end in ("in", "flop_per_s", "days"))]
    table = pd.DataFrame(list(lines.values())).reindex(columns=columns)
    ratio = table.narrow_flop_per_s / table.wide_flop_per_s
    return table.assign(peak_ratio=ratio, speedup=table.wide_days / table.narrow_days)


def peak(run: TrainRun) -> float:
    """Printed peak of a chip of the run in its format. [FLOP/s]"""
    return float(run.step.peak_flop_per_s * run.step.ranks_per_chip)


def parts(found: Mapping[str, TrainRun]) -> pd.DataFrame:
    """Where the days of runs go, by part of a step: of, part, run_days; what is nowhere is left out."""
    import pandas as pd

    shares = [
        (name, word, float(getattr(run.step, field) / run.step.time_s * run.days))
        for name, run in found.items()
        for field, word in PARTS.items()
    ]
    table = pd.DataFrame(shares, columns=["of", "part", "run_days"])
    return table[table.groupby("part").run_days.transform("max") > 0].reset_index(drop=True)


def again(run: TrainRun, **other: Any) -> TrainStep:
    """The step of a run with something else than it was asked with."""
    names = ("global_batch", "seq", "micro_batch", "interleave", "precision", "recompute", "zero", "sequence_parallel")
    ask: dict[str, Any] = {name: getattr(run.step, name) for name in names} | {"efficiencies": run.stack} | other
    return train_step(run.model, run.system, run.mapping, **ask)


def _policies(run: TrainRun) -> Iterator[tuple[str, TrainStep, float]]:
    """Steps of a run's mapping, one sequence at a time, for each policy that keeps other bytes; the most sequences."""
    step = run.step
    ask: dict[str, Any] = {"precision": step.precision, "sequence_parallel": step.sequence_parallel}
    ask |= {"global_batch": int(step.global_batch), "seq": int(step.seq), "efficiencies": run.stack}
    for zero in ZEROS:
        kept = set[float]()
        for again, word in AGAIN.items():
            ask |= {"zero": zero, "recompute": again}
            one = train_step(run.model, run.system, run.mapping, **ask)
            if float(one.memory_bytes_per_rank) not in kept:
                kept.add(float(one.memory_bytes_per_rank))
                yield f"ZeRO {zero}, {word}", one, float(largest_micro_batch(run.model, run.system, run.mapping, **ask))


def memory(run: TrainRun) -> pd.DataFrame:
    """What the fullest rank stores of one sequence at a time: of (policy), kind, stored_bytes, capacity_bytes, most.

    `most` is the largest micro-batch that fits, 0 where not one sequence does; stages are not interleaved.
    """
    import pandas as pd

    lines = []
    for word, step, most in _policies(run):
        room = {"capacity_bytes": float(step.capacity_bytes), "most": most}
        lines += [
            {"of": word, "kind": told, "stored_bytes": float(getattr(step, kind))} | room
            for kind, told in STORED.items()
        ]
    return pd.DataFrame(lines)


def elder(one: System, than: System) -> bool:
    """Whether a system is of an older chip of NeuronCores than another."""
    return one.chip.core is not None and than.chip.core is not None and one.chip.year < than.chip.year


def why_little(found: Runs, head: Key, older: str, called: Mapping[str, str]) -> str:
    """What a newer Trainium brings in the same format, by kind of software, and in 8 bits, in words."""
    pairs = {kind: [found.get(head._replace(kind=kind, system=one)) for one in (older, head.system)] for kind in STACKS}
    both = {kind: (a, b) for kind, (a, b) in pairs.items() if a is not None and b is not None and a.valid and b.valid}
    old, new = both[head.kind]
    (chip, rate), (chip_, rate_) = ((run.system.chip.name, peak(run)) for run in (old, new))
    times = [f"{float(a.days / b.days):.2f} on {kind} software" for kind, (a, b) in both.items()]
    wide = parts({"old": old, "new": new}).pivot(index="part", columns="of", values="run_days")
    most = (wide.old - wide.new).idxmax()
    eight = gains(found, head).set_index("system").loc[[older, head.system]]
    faster = eight.narrow_days.iloc[0] / eight.narrow_days.iloc[1]
    names = " beside ".join(dict.fromkeys(map(str, eight.narrow_in[::-1])))
    rates = f"**In {head.precision.upper()} {chip_} computes {rate_ / TFLOP:,.0f} TFLOP/s, {chip} {rate / TFLOP:,.0f}**"
    twice = f"{called[head.system]} is as many times as fast as {called[older]}: {', '.join(times)}."
    said = [f"{rates}, {rate_ / rate:.2f} times as much.", twice]
    if old.days > MORE * new.days:
        told = f"{most}, {format_digits(wide.old[most], 2)} days against {format_digits(wide.new[most], 2)}"
        said.append(f"Most of the difference on {head.kind} software is {told}.")
    if np.isfinite(faster):
        said.append(f"In 8 bits on both ({names}) it is {faster:.2f} times.")
    return " ".join(said)


def moves(found: Runs, head: Key, question: Mapping[str, Any], chips: float) -> str:
    """What moves the answer: chips, batch, a slow rank, experts that fill unevenly; a list in Markdown."""
    run, said, size = found[head], list[str](), found[head].system.domain_chips
    several = (max(round(run.chips * k / size), 1) * size for k in (0.25, 0.5, 2, 4))
    asked: dict[str, Any] = {f"{n:,} chips": {"chips": n} for n in several}
    for batch in (max(int(question["global_batch"]) // 2, 1), 2 * int(question["global_batch"])):
        asked[f"{batch:,} sequences a step"] = {"global_batch": batch}
    for word, other in asked.items():
        ask = {"chips": chips, "precision": head.precision, "efficiencies": head.kind, **BESIDE, **question, **other}
        try:
            one = train_run(system=head.system, **ask)
        except ValueError:
            continue
        said.append(f"**{word}**: {f'{days(one)} days, MFU {float(one.mfu):.0%}' if one.valid else one.reason}")
    slow = float(again(run, straggler=SLOW).time_s / run.step.time_s)
    said.append(f"**A slowest rank that takes {SLOW:.0%} longer**: {slow - 1:+.1%} time")
    for key, one in found.items():
        if key[1:] == head[1:] and one.valid and one.model.outline("prefill").experts:
            hot = again(one, expert_imbalance=HOT)
            more = f"{float(hot.time_s / one.step.time_s) - 1:+.0%} time" if hot.valid else str(hot.reason)
            said.append(f"**Experts of {key.model} that fill unevenly**, a rank with {HOT:g} times the mean: {more}")
    return "".join(f"* {line}.\n" for line in said)


def days(run: TrainRun | None) -> str:
    """Days of a run with their band, or why it has none."""
    if run is None:
        return NO_STACK
    if not run.valid:
        return str(run.reason)
    low, high = map(float, run.ends("days"))
    return banded(float(run.days), low, high)


def banded(value: float, low: float, high: float, unit: str = "") -> str:
    """A figure with its band; three digits where it has none.

    Examples
    --------
    >>> banded(79.5642, 79.5642, 79.5642), banded(200.6, 138.7, 290.1)
    ('79.6', '200 (140 to 290)')
    """
    if low == high:
        return format_digits(value, 3) + unit
    return format_within(value, low, high, unit).replace(" %", "%")


def in_percent(*ends: Any) -> str:
    """A share with its band, in per cent."""
    value, low, high = (100 * float(end) for end in ends)
    return banded(value, low, high, "%")
