"""What sources say that whole runs of training took, and which MFU software reaches, beside what is derived."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from trnmodel.arguments import refuse
from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.tables import check_listed
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.search.train_run import TrainRun, train_run
from trnmodel.units import DAY, parse_number

if TYPE_CHECKING:
    import pandas as pd

ROWS = load.DATA / "evidence" / "stated_runs.csv"
STACKS = ("public", "hand-tuned", "ideal")
NARROW = ("mxfp8", "fp8")  # the first that a chip computes in stands beside BF16


class StatedRun(msgspec.Struct, frozen=True):
    """A line of `data/evidence/stated_runs.csv`: the MFU that software is said to reach, or what a whole run took.

    `about` is the kind of model, `system` what stands for its own; those of a run and its numbers are empty in a
    scenario.
    """

    id: str
    kind: Literal["scenario", "run"]
    about: Literal["dense", "expert"]
    software: str
    model: str
    chip: str
    system: str
    chips: str
    tokens: str
    seq: str
    global_batch: str
    precision: str
    mapping: str
    metric: Literal["mfu", "flop_per_s_per_chip", "chip_hours"]
    value: str
    unit: str
    source: str
    locator: str
    note: str

    @property
    def values(self) -> tuple[float, float, float]:
        """Value, low and high in base units; hours in seconds."""
        factor = load.units()[self.unit].factor
        value, low, high = (factor * one for one in parse_number(self.value))
        return value, low, high

    @property
    def question(self) -> dict[str, Any]:
        """What `tm.train_run` is asked for the same budget."""
        return {"tokens": float(self.tokens), "seq": int(self.seq), "global_batch": int(self.global_batch)}


@cache
def stated(kind: str = "") -> tuple[StatedRun, ...]:
    """Return the stated runs of the sources, all of them or those of one kind."""
    rows = load.read_csv(ROWS, StatedRun)
    for row in rows:
        check_listed(row, f"stated_runs.csv ({row.id})", {"source": load.sources(), "unit": load.units()})
    return tuple(row for row in rows if kind in ("", row.kind))


def question(model: str | Transformer) -> dict[str, Any]:
    """Tokens, length and batch of the published run of a model.

    Raises ValueError where none is in data.

    Examples
    --------
    >>> question("deepseek-v3")
    {'tokens': 14800000000000.0, 'seq': 4096, 'global_batch': 15360}
    """
    name = read_model(model).id
    runs = [row for row in stated("run") if row.model == name]
    if not runs:
        refuse("model", name, f"runs are published of {', '.join(sorted({row.model for row in stated('run')}))}")
    return runs[0].question


def at_stated_mfu(run: TrainRun) -> pd.DataFrame:
    """Days of a run at the MFU that software of its chip is said to reach for such models, beside what is derived.

    Returns
    -------
    table : pandas.DataFrame
        scenario, software, mfu with `_low` and `_high`, days with `_low` and `_high`, source; first what is derived.

    Notes
    -----
    Of the run's own peak and precision; a source's MFU is of BF16. Where no source says one, the first row is alone.

    Examples
    --------
    >>> run = train_run("llama-3.1-8b", "trn3-nl72x2-pcie160", tokens=15e12, chips=1152)
    >>> at_stated_mfu(run).scenario.tolist()
    ['derived', 'trn3-dense-compiler', 'trn3-dense-kernels']
    """
    low, high = map(float, run.ends("days"))
    own = {
        "mfu": float(run.mfu),
        "mfu_low": float(run.mfu * run.days) / high,
        "mfu_high": float(run.mfu * run.days) / low,
    }
    days = {"days": float(run.days), "days_low": low, "days_high": high}
    rows = [{"scenario": "derived", "software": run.stack.id, **own, **days, "source": ""}]
    for row in stated("scenario"):
        if row.chip != run.system.chip.id or row.about != run.model.kind or row.precision != run.precision.compute:
            continue
        share = dict(zip(("mfu", "mfu_low", "mfu_high"), row.values, strict=True))
        at = [float(run.days_at(share[name])) for name in ("mfu", "mfu_high", "mfu_low")]
        days = dict(zip(("days", "days_low", "days_high"), at, strict=True))
        rows.append({"scenario": row.id, "software": row.software, **share, **days, "source": row.source})
    return tidy(rows)


def published(model: str, stacks: Iterable[str] = STACKS[:2], chips: float = 8192) -> pd.DataFrame:
    """Return the days of the published runs of a model on their own chips, and the predicted days on as many.

    Returns
    -------
    table : pandas.DataFrame
        id, chip, chips, precision, mapping, mfu (of the printed work), days (from what is printed), days_on (the same
        chip-hours on so many `chips`), stack_kind, predicted_days with `_low` and `_high` (of the best mapping on as
        many chips), source, locator, note.

    Notes
    -----
    A printed rate is work over the time of a step: failures and other phases are not in it. Printed chip-hours have
    all of that. MFU of chip-hours is of the budget alone.
    """
    rows = []
    for row, stack in product(stated("run"), stacks):
        if row.model != read_model(model).id:
            continue
        where, count = row.system, float(row.chips)
        run = train_run(model, where, chips=count, precision=row.precision, efficiencies=stack, **row.question)
        value = row.values[0]
        peak = read_system(where).chip.peak(row.precision)
        days = float(run.days_at(value / peak)) if row.metric == "flop_per_s_per_chip" else value / count / DAY
        low, high = map(float, run.ends("days"))
        printed = {"source": row.source, "locator": row.locator, "note": row.note}
        rows.append(
            {
                "id": row.id,
                "chip": row.chip,
                "chips": count,
                "precision": row.precision,
                "mapping": row.mapping,
                "mfu": float(run.mfu * run.days) / days,
                "days": days,
                "days_on": days * count / chips,
                "stack_kind": stack,
                "predicted_days": float(run.days),
                "predicted_days_low": low,
                "predicted_days_high": high,
                **printed,
            }
        )
    return tidy(rows)
