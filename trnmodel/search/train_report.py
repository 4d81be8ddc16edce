"""A training run in words: the answer first, then what loses, what constraints cost, days on the calendar, dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnmodel.result import stacked, tidy
from trnmodel.search.train_run import TrainRun
from trnmodel.search.train_runs import TrainRuns, budget, row_of
from trnmodel.search.trainings import at_stated_mfu
from trnmodel.units import MWH, format_digits, format_quantity, format_within

if TYPE_CHECKING:
    import pandas as pd

COST, FREE, NEVER = (
    "constraints that change the days",
    "constraints that cost nothing",
    "constraints that nothing meets",
)
COSTLY = 0.005  # share of the days from which on a constraint is parts with a number


def lines(run: TrainRun) -> list[str]:
    """Return the run as lines of text; for one that fits nowhere, the memory that it lacks.

    Examples
    --------
    >>> import trnmodel as tm
    >>> parts = lines(tm.train_run("llama-3.1-8b", "hgx-h100", tokens=15e12, chips=1024))
    >>> parts[0].partition(": ")[0], [line.partition(":")[0] for line in parts[3:6]]
    ('llama-3.1-8b, 15T tokens on 1,024 chips of hgx-h100', ['memory', 'software', 'next'])
    """
    head = f"{run.model.id}, {budget(run.tokens)} tokens on {run.chips:,.0f} chips of {run.system.id}"
    step = run.step
    held, room = (format_quantity(float(x), "B", 3) for x in (step.memory_bytes_per_rank, step.capacity_bytes))
    if not run.valid:
        lacks = format_quantity(run.missing_bytes, "B", 3)
        return [
            f"{head}: {run.reason}",
            f"least memory: {run.configuration}: {held} of {room} per rank, {lacks} too much",
        ]
    peak = format_quantity(step.peak_flop_per_s * step.ranks_per_chip, "FLOP/s", 4)
    shares = f"MFU {100 * run.mfu:.3g} %, HFU {100 * run.hfu:.3g} % of {peak} per chip in {run.precision.compute}"
    batch = f"{float(step.global_batch):,.0f} sequences of {float(step.seq):,.0f} tokens per step"
    return [
        f"{head}: {run.describe()}",
        f"mapping: {run.configuration}, {batch}",
        f"bound: {run.bound} takes most of a step of {format_quantity(float(step.time_s), 's', 3)}; {shares}",
        f"memory: fits, {held} of {room} per rank",
        f"software: {run.stack.id} ({run.stack.kind}); {run.basis_reason or run.basis}",
        *([f"next: {'; '.join(run.next())}"] if run.next() else []),
        *_constraints(run),
        *_stated(run),
        *_spent(run),
    ]


def _constraints(run: TrainRun) -> list[str]:
    parts: dict[str, list[str]] = {name: [] for name in (COST, FREE, NEVER)}
    for row in run.constraints().to_dict("records"):
        off = abs(row["cost"] - 1) >= COSTLY
        kind = NEVER if row["cost"] != row["cost"] else COST if off else FREE
        parts[kind].append(f"{row['constraint']} x{format_digits(row['cost'], 3)}" if off else row["constraint"])
    return [f"{kind}: {', '.join(some)}" for kind, some in parts.items() if some]


def _stated(run: TrainRun) -> list[str]:
    rows = at_stated_mfu(run).iloc[1:].to_dict("records")
    parts = []
    for row in rows:
        days = format_within(row["days"], row["days_low"], row["days_high"], "days")
        parts.append(f"{days} at {100 * row['mfu']:.3g} % ({row['software']})")
    return [f"at the MFU that sources state: {', '.join(parts)}"] if parts else []


def _spent(run: TrainRun) -> list[str]:
    spent, q = run.spending(), run.question
    share = format_digits(100 * float(run.useful().goodput), 3)
    return [
        f"calendar: {spent['calendar_days'].describe('days')}, {share} % of the time of chips and spares is useful",
        f"owned by a {q.owner_id}: {spent['owner_usd'].usd_in_words()}",
        f"rented ({q.rent_of(run.system).pricing}): {spent['renter_usd'].usd_in_words()}",
        f"energy at the site: {spent['site_j'].describe('MWh', MWH)}",
    ]


def frame(run: TrainRun) -> pd.DataFrame:
    """Every figure as rows: the run, the best sets of degrees, what constraints cost, days at stated MFUs.

    Examples
    --------
    >>> import trnmodel as tm
    >>> table = frame(tm.train_run("llama-3.1-8b", "hgx-h100", tokens=15e12, chips=1024))
    >>> sorted(set(table.what))
    ['constraint', 'degrees', 'run', 'stated MFU']
    """
    return _parts(run, run.to_frame(bands=True).assign(**row_of(run)))


def _parts(run: TrainRun, own: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a run, of which `own` is the first."""
    if not run.valid:
        return own.assign(what="run")
    first = tidy([run.table.iloc[0].to_dict() | own.iloc[0].to_dict()])
    more = {"degrees": run.table, "constraint": run.constraints(), "stated MFU": at_stated_mfu(run)}
    return stacked({"run": first} | more, "what")


def table(runs: TrainRuns) -> pd.DataFrame:
    """Every figure of several systems as rows, those of a system as in `frame`, the best system first.

    Examples
    --------
    >>> import trnmodel as tm
    >>> found = table(tm.train_run("llama-3.1-8b", ["hgx-h100", "trn2-ultraserver"], tokens=1e12, chips=64))
    >>> found[found.what == "run"].system.tolist()
    ['hgx-h100', 'trn2-ultraserver']
    """
    import pandas as pd

    own = runs.to_frame(bands=True)
    parts = [_parts(run, own.iloc[[i]]).assign(system=run.system.id) for i, run in enumerate(runs.runs)]
    refused = own.iloc[len(runs.runs) :].dropna(axis=1, how="all").assign(what="refused")
    return pd.concat([*parts, *([refused] if len(refused) else [])], ignore_index=True)
