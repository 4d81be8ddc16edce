"""Training runs by model, system, precision and software: days, formats, parts of a step, memory by policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.catalog.systems import System
from trnmodel.search.grid import computes
from trnmodel.search.train_run import AGAIN, TrainRun, train_run
from trnmodel.search.train_search import largest_micro_batch
from trnmodel.search.trainings import NARROW, STACKS
from trnmodel.training.step import TrainStep, train_step
from trnmodel.training.work import KINDS
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
    "host_s": "waits for the host",
    "bubble_s": "bubble",
    "optimizer_s": "optimizer",
    "straggler_s": "slowest rank",
    "overhead_s": "fixed time",
}
STORED: Mapping[str, str] = {name: f"{name.split('_')[0]}s" for name in KINDS} | {"optimizer_bytes": "optimizer"}
WIDE, ZEROS, NO_STACK = "bf16", (0, 1, 3), "no such software"
MORE = 1.02  # ratio of days from which a difference is described
SLOW, HOT = 0.05, 1.5  # extra time of a slow rank; load of a rank with many tokens over the mean
COMPARISON: Mapping[str, Any] = {"zero": (1, 3), "recompute": ("none", "full"), "best": 2}  # of runs that are compared


class Key(NamedTuple):
    """The key of a run: model, system, precision and kind of software."""

    model: str
    system: str
    precision: str
    kind: str


Runs = Mapping[Key, TrainRun]


def runs(
    questions: Mapping[str, Mapping[str, Any]], systems: Iterable[str], precision: str, chips: float
) -> dict[Key, TrainRun]:
    """Search runs of models on systems and kinds of software, in BF16 and the chip's first format of 8 bits.

    Combinations that cannot be asked are left out. UnanswerableError is raised if none remains.
    """
    results, why = dict[Key, TrainRun](), ""
    for name, (model, question) in product(systems, questions.items()):
        formats = [one for one in (WIDE, *NARROW) if computes(name, one)][:2]
        for dtype, kind in product(
            dict.fromkeys([*formats, precision] if computes(name, precision) else formats), STACKS
        ):
            try:
                ask = {**COMPARISON, **question, "precision": dtype, "efficiencies": kind}
                run = train_run(systems=name, chips=chips, **ask)
            except ValueError as error:
                why = why or " ".join(str(error).split())
            else:
                results[Key(model, name, dtype, kind)] = run
    if not results:
        raise UnanswerableError(why)
    return results


def whole(runs: Runs, model: str, question: Mapping[str, Any], system: str, precision: str, chips: float) -> TrainRun:
    """Search a model's run over all policies on its first kind of software; UnanswerableError says why not."""
    kind = next((kind for kind in STACKS if Key(model, system, precision, kind) in runs), STACKS[0])
    try:
        run = train_run(systems=system, chips=chips, precision=precision, efficiencies=kind, **question)
    except ValueError as error:
        raise UnanswerableError(f"{model} on {system}: {' '.join(str(error).split())}") from None
    if not run.valid:
        lacks = (
            f"the fullest rank lacks {run.missing_bytes / GIB:.3g} GiB" if run.missing_bytes else "no mapping can run"
        )
        raise ImpossibleError(f"{model} on {run.chips:,.0f} chips of {system}: {run.reason}; {lacks}")
    return run


def level(runs: Runs, head: Key) -> dict[str, TrainRun]:
    """Return the valid runs of the same model, precision and software on every system."""
    return {key.system: run for key, run in runs.items() if key._replace(system=head.system) == head and run.valid}


def rows(runs: Runs) -> pd.DataFrame:
    """Return every run as a row: days with band, MFU, mapping, bound, next best, memory, basis."""
    import pandas as pd

    lines = []
    for key, run in runs.items():
        low, high = map(float, run.ends("days"))
        row: dict[str, Any] = {
            "model": key.model,
            "system": key.system,
            "precision": key.precision,
            "software": key.kind,
        }
        row |= {"chips": run.chips, "tokens": run.tokens, "run_days": float(run.days)}
        row |= {"run_days_low": low, "run_days_high": high, "mfu": float(run.mfu), "hfu": float(run.hfu)}
        row |= {"mapping": run.configuration, "bound": run.bound, "next": run.runner_up, "reason": str(run.reason)}
        row |= {"memory_bytes": float(run.step.memory_bytes_per_rank), "capacity_bytes": float(run.step.capacity_bytes)}
        lines.append(row | {"trainer": run.stack.id, "basis": str(run.basis), "basis_reason": str(run.basis_reason)})
    return pd.DataFrame(lines)


def gains(runs: Runs, head: Key) -> pd.DataFrame:
    """Return what 8 bits bring: peaks and days in both formats and their ratios; NaN with one format."""
    import pandas as pd

    lines: dict[str, dict[str, Any]] = {}
    for key, run in runs.items():
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
    """Return the printed peak per chip of the run in its format, in FLOP/s."""
    return float(run.step.peak_flop_per_s * run.step.ranks_per_chip)


def parts(runs: Mapping[str, TrainRun]) -> pd.DataFrame:
    """Return the days of runs by part of a step: of, part, run_days; parts that are zero everywhere are left out."""
    import pandas as pd

    shares = [
        (name, word, float(getattr(run.step, field) / run.step.time_s * run.days))
        for name, run in runs.items()
        for field, word in PARTS.items()
    ]
    table = pd.DataFrame(shares, columns=["of", "part", "run_days"])
    return table[table.groupby("part").run_days.transform("max") > 0].reset_index(drop=True)


def again(run: TrainRun, **other: Any) -> TrainStep:
    """Return the step of a run with some arguments changed."""
    names = ("global_batch", "seq", "micro_batch", "interleave", "precision", "recompute", "zero", "sequence_parallel")
    ask: dict[str, Any] = {name: getattr(run.step, name) for name in names} | {"efficiencies": run.stack} | other
    return train_step(run.model, run.system, run.mapping, **ask)


def _policies(run: TrainRun) -> Iterator[tuple[str, TrainStep, float]]:
    """Yield the run's step per policy with distinct memory, and the policy's largest micro-batch."""
    step = run.step
    ask: dict[str, Any] = {"precision": step.precision, "sequence_parallel": step.sequence_parallel}
    ask |= {"global_batch": int(step.global_batch), "seq": int(step.seq), "efficiencies": run.stack}
    for zero in ZEROS:
        seen = set[float]()
        for again, word in AGAIN.items():
            ask |= {"zero": zero, "recompute": again}
            one = train_step(run.model, run.system, run.mapping, **ask)
            if float(one.memory_bytes_per_rank) not in seen:
                seen.add(float(one.memory_bytes_per_rank))
                yield f"ZeRO {zero}, {word}", one, float(largest_micro_batch(run.model, run.system, run.mapping, **ask))


def memory(run: TrainRun) -> pd.DataFrame:
    """Return what the fullest rank stores per policy: of, kind, stored_bytes, capacity_bytes, most.

    `most` is the largest micro-batch that fits, 0 where not one sequence does; stages are not interleaved.
    """
    import pandas as pd

    lines = []
    for word, step, most in _policies(run):
        room = {"capacity_bytes": float(step.capacity_bytes), "most": most}
        lines += [
            {"of": word, "kind": title, "stored_bytes": float(getattr(step, kind))} | room
            for kind, title in STORED.items()
        ]
    return pd.DataFrame(lines)


def elder(one: System, than: System) -> bool:
    """Return whether a system has an older chip of NeuronCores than another."""
    return one.chip.core is not None and than.chip.core is not None and one.chip.year < than.chip.year


def why_little(runs: Runs, head: Key, older: str, called: Mapping[str, str]) -> str:
    """Describe the gain of a newer Trainium in the same format, by kind of software, and in 8 bits."""
    pairs = {kind: [runs.get(head._replace(kind=kind, system=one)) for one in (older, head.system)] for kind in STACKS}
    both = {kind: (a, b) for kind, (a, b) in pairs.items() if a is not None and b is not None and a.valid and b.valid}
    old, new = both[head.kind]
    (chip, rate), (chip_, rate_) = ((run.system.chip.name, peak(run)) for run in (old, new))
    times = [f"{float(a.days / b.days):.2f} on {kind} software" for kind, (a, b) in both.items()]
    wide = parts({"old": old, "new": new}).pivot(index="part", columns="of", values="run_days")
    most = (wide.old - wide.new).idxmax()
    eight = gains(runs, head).set_index("system").loc[[older, head.system]]
    faster = eight.narrow_days.iloc[0] / eight.narrow_days.iloc[1]
    names = " beside ".join(dict.fromkeys(map(str, eight.narrow_in[::-1])))
    rates = f"**In {head.precision.upper()} {chip_} computes {rate_ / TFLOP:,.0f} TFLOP/s, {chip} {rate / TFLOP:,.0f}**"
    twice = f"{called[head.system]} is as many times as fast as {called[older]}: {', '.join(times)}."
    said = [f"{rates}, {rate_ / rate:.2f} times as much.", twice]
    if old.days > MORE * new.days:
        text = f"{most}, {format_digits(wide.old[most], 2)} days against {format_digits(wide.new[most], 2)}"
        said.append(f"Most of the difference on {head.kind} software is {text}.")
    if np.isfinite(faster):
        said.append(f"In 8 bits on both ({names}) it is {faster:.2f} times.")
    return " ".join(said)


def moves(runs: Runs, head: Key, question: Mapping[str, Any], chips: float) -> str:
    """Describe what changes the answer: chips, batch, a slow rank, uneven experts; a list in Markdown."""
    run, said, size = runs[head], list[str](), runs[head].system.domain_chips
    several = (max(round(run.chips * k / size), 1) * size for k in (0.25, 0.5, 2, 4))
    cases: dict[str, Any] = {f"{n:,} chips": {"chips": n} for n in several}
    for batch in (max(int(question["global_batch"]) // 2, 1), 2 * int(question["global_batch"])):
        cases[f"{batch:,} sequences a step"] = {"global_batch": batch}
    for word, other in cases.items():
        ask = {
            "chips": chips,
            "precision": head.precision,
            "efficiencies": head.kind,
            **COMPARISON,
            **question,
            **other,
        }
        try:
            one = train_run(systems=head.system, **ask)
        except ValueError:
            continue
        said.append(f"**{word}**: {f'{days(one)} days, MFU {float(one.mfu):.0%}' if one.valid else one.reason}")
    slow = float(again(run, straggler=SLOW).time_s / run.step.time_s)
    said.append(f"**A slowest rank that takes {SLOW:.0%} longer**: {slow - 1:+.1%} time")
    for key, one in runs.items():
        if key[1:] == head[1:] and one.valid and one.model.outline("prefill").experts:
            hot = again(one, expert_imbalance=HOT)
            more = f"{float(hot.time_s / one.step.time_s) - 1:+.0%} time" if hot.valid else str(hot.reason)
            said.append(f"**Experts of {key.model} that fill unevenly**, a rank with {HOT:g} times the mean: {more}")
    return "".join(f"* {line}.\n" for line in said)


def days(run: TrainRun | None) -> str:
    """Format the days of a run with their band, or the reason why it has none."""
    if run is None:
        return NO_STACK
    if not run.valid:
        return str(run.reason)
    low, high = map(float, run.ends("days"))
    return banded(float(run.days), low, high)


def banded(value: float, low: float, high: float, unit: str = "") -> str:
    """Format a figure with its band; three digits without a band.

    Examples
    --------
    >>> banded(79.5642, 79.5642, 79.5642), banded(200.6, 138.7, 290.1)
    ('79.6', '200 (140 to 290)')
    """
    if low == high:
        return format_digits(value, 3) + unit
    return format_within(value, low, high, unit).replace(" %", "%")


def in_percent(*ends: Any) -> str:
    """Format a share with its band, in per cent."""
    value, low, high = (100 * float(end) for end in ends)
    return banded(value, low, high, "%")
