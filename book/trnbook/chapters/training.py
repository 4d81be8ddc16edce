"""Tables of the chapter on training: the card, days and energy by system, memory by policy, and measured steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import Markdown

from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.charts.language import called, named
from trnbook.shared import gaps
from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.catalog import load, rents
from trnmodel.catalog.systems import System, chip_of, find
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.trainers import trainer
from trnmodel.evidence import tables as evidence
from trnmodel.models.transformer import Transformer
from trnmodel.search.gaps import SoftwareGap
from trnmodel.search.grid import computes
from trnmodel.search.train_run import AGAIN, Spent, TrainRun, degrees
from trnmodel.search.train_runs import budget
from trnmodel.search.trainings import NARROW, at_stated_mfu, stated
from trnmodel.training.step import TrainStep
from trnmodel.units import DAY, GIB, MILLION, MW, MWH, counted, format_digits, format_within

STORED: Mapping[str, tuple[str, ...]] = {
    "weights": ("weight_bytes",),
    "gradients": ("gradient_bytes",),
    "optimizer": ("optimizer_bytes",),
    "activations, buffers": ("activation_bytes", "buffer_bytes"),
}
LEFT_OUT, OUTSIDE = "model left out", "outside the fits"
ERRORS = load.DATA / "evidence" / "residuals_runs.csv"
Runs = Mapping[tuple[str, str], TrainRun]


def check(model: Transformer, tokens: float, seq: float, global_batch: float) -> None:
    """Check the budget and the sizes of a step: a run has at least one, of sequences that the model takes."""
    guard.within(1, 1e18, tokens=tokens)
    guard.within(1, 1e8, global_batch=global_batch)
    few = f"tokens = {tokens:g} are fewer than the {seq * global_batch:,.0f} of one step"
    guard.need(tokens >= seq * global_batch, few)
    guard.spans(seq, model=model)


def owned_and_rented(owner: str, pricing: str) -> None:
    """Check the names of an owner and of a pricing."""
    owners = [name for name, entity in load.entities().items() if entity.kind == "owner" and name != "owner"]
    guard.one_of(owners, owner=owner)
    guard.one_of(rents.PRICINGS, pricing=pricing)


def whole_domains(system: str | System, chips: float) -> int:
    """Return the number of chips of whole scale-up domains that is nearest to a number of chips.

    Examples
    --------
    >>> whole_domains("trn2.48xlarge", 2048), whole_domains("trn3-nl72x2-pcie160", 2048)
    (2048, 2016)
    """
    size = read_system(system, 1).domain_chips
    return int(max(round(chips / size), 1) * size)


def formats(system: str | System, precision: str) -> list[str]:
    """Return a format, and the 8-bit format in which the chip of a system computes, if it is another.

    Examples
    --------
    >>> formats("trn2.48xlarge", "bf16"), formats("trn3-nl32x2-pcie160", "mxfp8"), formats("trn1.32xlarge", "bf16")
    (['bf16', 'fp8'], ['mxfp8'], ['bf16'])
    """
    return list(dict.fromkeys([precision, *[one for one in NARROW if computes(system, one)][:1]]))


def first(run_on: Callable[..., TrainRun], system: str) -> TrainRun:
    """Return the run on the system of the chapter, or raise in one line why there is none."""
    try:
        run = run_on(system)
    except ValueError as error:
        raise UnanswerableError(f"system = {system!r}: {' '.join(str(error).split())}") from None
    if not run.valid:
        lacks = f"the fullest rank lacks {format_digits(run.missing_bytes / GIB, 3)} GiB"
        where = f"{run.model.id} on {run.chips:,.0f} chips of {run.system.id}"
        raise ImpossibleError(f"{where}: {run.reason}; {lacks if run.missing_bytes else 'no mapping can run'}")
    return run


def each(run_on: Callable[..., TrainRun], systems: Iterable[str], precision: str) -> dict[tuple[str, str], TrainRun]:
    """Return the run on each system in each of its formats; those that cannot run are left out.

    Parameters
    ----------
    run_on : callable
        The run on a system in a format. [-]
    systems : iterable of str
        Systems. [-]
    precision : str
        Format that is tried beside 8 bits. [-]
    """
    runs: dict[tuple[str, str], TrainRun] = {}
    for name in dict.fromkeys(systems):
        for dtype in formats(name, precision):
            try:
                run = run_on(name, dtype)
            except ValueError:
                continue
            if run.valid:
                runs[name, dtype] = run
    return runs


def answer(run: TrainRun, runs: Runs) -> str:
    """Return the card that opens the chapter: days in the calendar and energy, beside the next system."""
    calendar, own = run.calendar_days(), find(run.system.id, "system").id
    peers = {name: one for (name, dtype), one in runs.items() if dtype == run.precision.name and name != own}
    ends = sorted((one.calendar_days().value, name) for name, one in peers.items())
    best = ""
    if ends:
        best = f"{called(ends[0][1])}, {format_digits(ends[0][0], 2)} days on {peers[ends[0][1]].chips:,.0f} chips"
    work = f"`{run.model.id}` on {budget(run.tokens)} tokens in {run.precision.name.upper()}"
    return common.card(
        (calendar.value, calendar.low, calendar.high),
        f"what {run.chips:,.0f} chips of {called(own)} take, failures included, to train {work}. {_bills(run)}",
        unit="days",
        mark=str(run.basis),
        rival=best,
        alone="" if best else "no other system was asked about that can run it",
        proof="Check: steps and runs that were measured",
        more=f"**How sure?** The range is what the constants of `{run.stack.id}` leave open, our own estimate."
        f"{reasons(str(run.basis_reason), _GRADIENTS_OF.get(run.stack.id, ''))}"
        " It never begins below ideal software, because nothing can be faster.",
    )


def _bills(run: TrainRun) -> str:
    """Return dollars, MFU and energy of a run in sentences, each with its range."""
    owned, rented, energy = run.owner_usd(), run.renter_usd(), run.site_j()
    said = [] if owned.why else [f"They cost their owner {_millions(owned)}"]
    said.append("Nobody publishes a rent" if rented.why else f"At a published rent they cost {_millions(rented)}")
    used = "their power is not published" if energy.why else f"use {_banded(energy, MWH)} MWh at the site"
    return ". ".join([*said, f"They reach an MFU of {float(run.mfu):.0%} and {used}"])


def _millions(one: Spent) -> str:
    """Return dollars in millions, with their range."""
    value, _, ends = _banded(one, MILLION).partition(" (")
    return rf"\${value} million ({ends}"


def reasons(basis_reason: str, gradients_of: str = "") -> str:
    """Return in a sentence why a run is not like those that were measured; nothing where it is.

    Examples
    --------
    >>> reasons("models: no training row of expert models; chips: rows reach to 1")
    ' No step of expert models was measured, no step on more than 1 chip is behind its constants, so the range is wide.'
    >>> reasons("chips: rows reach to 1", "neuronx-training").partition(". ")[2]
    'Its gradients rest on up to 512 chips of Trainium1.'
    >>> reasons("")
    ''
    """
    said = []
    for one in filter(None, basis_reason.split("; ")):
        text = re.sub(r"^[a-z ]+: ", "", one)
        text = re.sub(r"^no training row of (.+)$", r"no step of \1 was measured", text)
        said.append(
            re.sub(
                r"^rows reach to (\d+)$",
                lambda most: f"no step on more than {counted(int(most[1]), 'chip')} is behind its constants",
                text,
            )
        )
    wide = ", ".join(said)
    wide = f" {wide[0].upper()}{wide[1:]}, so the range is wide." if wide else ""
    if gradients_of:
        most = trainer(load.chip("trainium1"), gradients_of).fitted_chips
        wide += f" Its gradients rest on up to {counted(int(most), 'chip')} of Trainium1."
    return named(wide)


_GRADIENTS_OF = {"optimum-neuron-training": "neuronx-training"}  # takes the rate of its gradients from


def _banded(one: Spent, scale: float = 1.0) -> str:
    """Return a figure with its range, or a dash where it has none."""
    if one.why:
        return "–"
    return format_within(one.value / scale, one.low / scale, one.high / scale, "")


def waterfall(gap: SoftwareGap, run: TrainRun) -> Any:
    """Return the chart of what each kind of software adds to the days of a run, with the MFU of each."""
    bars = gaps.bars(gap)
    whole = bars.before.isna()
    mfu = float(run.mfu * run.days) / bars.days
    named = bars.assign(
        which=bars.which.where(~whole, bars.which + mfu.map(", MFU {:.0%}".format)),
        label=bars.label.where(~whole, bars.days.map(lambda x: f"{format_digits(x, 3)} days")),
    )
    return charts.waterfall(
        named,
        before="before",
        x="days",
        y="which",
        color="software",
        label="label",
        log_x=False,
        caption=gaps.claim(gap),
        under=f"{budget(run.tokens)} tokens on {run.chips:,.0f} chips, without failures",
    )


def spent(runs: Runs, owner: str, pricing: str) -> pd.DataFrame:
    """Return days in the calendar, energy and dollars of runs, a row for each system and format.

    Returns
    -------
    table : pandas.DataFrame
        system, in (the format), chips, MFU, days, MWh, mean MW, owned and rented in million dollars; text with
        ranges. [-]
    """
    rows = []
    for (name, dtype), run in runs.items():
        row = {"system": name, "in": dtype.upper(), "chips": f"{run.chips:,.0f}", "MFU": f"{float(run.mfu):.0%}"}
        days, energy = run.calendar_days(), run.site_j(owner)
        mean_mw = "–" if energy.why else format_digits(energy.value / (days.value * DAY) / MW, 2)
        row |= {"days": _banded(days), "MWh": _banded(energy, MWH), "mean MW": mean_mw}
        row |= {"owned [million $]": _banded(run.owner_usd(owner), MILLION)}
        rows.append(row | {"rented [million $]": _banded(run.renter_usd(pricing), MILLION)})
    return pd.DataFrame(rows)


def sizes(run: TrainRun) -> dict[str, Any]:
    """Return the arguments of `tm.train_step` that a run chose beside its mapping and its policies of memory."""
    names = ("global_batch", "micro_batch", "interleave", "seq", "precision", "sequence_parallel")
    return {name: getattr(run.step, name) for name in names} | {"efficiencies": run.stack}


def policies(steps: Iterable[TrainStep]) -> pd.DataFrame:
    """Return what the fullest rank stores under policies of memory, whether it fits, and the MFU that each leaves.

    Returns
    -------
    table : pandas.DataFrame
        policy, a column in GiB for each kind of bytes, their sum of what a rank has, MFU ("does not fit" without one).
    """
    rows = []
    for step in steps:
        row = {"policy": f"ZeRO {step.zero}, {AGAIN[step.recompute]}"}
        for kind, fields in STORED.items():
            row[kind] = f"{sum(float(getattr(step, field)) for field in fields) / GIB:.1f}"
        row |= {"sum": f"{float(step.memory_bytes_per_rank) / GIB:.1f} of {float(step.capacity_bytes) / GIB:.0f}"}
        rows.append(row | {"MFU": f"{float(step.mfu):.0%}" if step.valid else "does not fit"})
    return pd.DataFrame(rows)


def measured() -> pd.DataFrame:
    """Return measured steps beside what a fit predicts that has not seen their model.

    Steps of groups to which nothing was fitted are there as predicted.

    Returns
    -------
    table : pandas.DataFrame
        step, chip, group, model, measured_s, predicted_s, source. [-]

    Examples
    --------
    >>> table = measured()
    >>> bool((table.predicted_s > 0).all())
    True
    """
    rows = pd.read_csv(ERRORS)
    rows = rows[rows.group.str.startswith("training, ") & rows.split.isin([LEFT_OUT, OUTSIDE])]
    chips = {where: str(chip_of(find(where, "where")).name) for where in rows["where"].unique()}
    table = rows.assign(
        step=rows.model + ", " + rows.id,
        chip=rows["where"].map(chips),
        group=rows.group.str.removeprefix("training, "),
        measured_s=rows.measured,
        predicted_s=rows.measured * (1 + rows.error),
    )
    return table[["step", "chip", "group", "model", "measured_s", "predicted_s", "source"]].reset_index(drop=True)


def of_chip(table: pd.DataFrame, chip: str) -> pd.Series:
    """Return the sizes of the errors of `measured` for a chip."""
    mine = table[table.chip == chip]
    return (mine.predicted_s / mine.measured_s - 1).abs()


def whole_runs(runs: Mapping[str, TrainRun]) -> pd.DataFrame:
    """Return what whole published runs took by their authors, and the days of ours on as many chips.

    Parameters
    ----------
    runs : mapping of str to TrainRun
        Our runs, by the id of the published one. [-]

    Returns
    -------
    table : pandas.DataFrame
        run, model, chips, days as printed, run_days of ours with `_low` and `_high`, calendar_days with the failures
        that we predict, source. [-]
    """
    rows = []
    for one in stated("run"):
        if run := runs.get(one.id):
            peak = float(run.step.peak_flop_per_s * run.step.ranks_per_chip)
            rate = one.metric == "flop_per_s_per_chip"
            days = float(run.days_at(one.values[0] / peak)) if rate else one.values[0] / run.chips / DAY
            low, high = map(float, run.ends("days"))
            row = {"run": one.id, "model": one.model, "chips": run.chips, "printed": days, "run_days": float(run.days)}
            row |= {"run_days_low": low, "run_days_high": high, "calendar_days": run.calendar_days().value}
            rows.append(row | {"source": one.source})
    return pd.DataFrame(rows)


def compared(whole: pd.DataFrame) -> Markdown:
    """Return printed and predicted days of whole runs in the calendar, in a sentence each."""
    days = [(row.model, *(format_digits(x, 2) for x in (row.printed, row.calendar_days))) for row in whole.itertuples()]
    said = [
        f"The run of `{model}` took **{printed} days**, and our model says {ours}." for model, printed, ours in days
    ]
    return Markdown(" ".join(said))


def losing(run: TrainRun) -> pd.DataFrame:
    """Return the best sets of degrees: days, MFU, memory, how much they lose and to which part of a step."""
    return pd.DataFrame(
        [
            {
                "mapping": degrees(row),
                "sequences at once": f"{row['micro_batch']:.0f}",
                "parts per stage": f"{row['interleave']:.0f}",
                "policy": f"ZeRO {row['zero']}, {AGAIN[row['recompute']]}",
                "MFU": f"{row['mfu']:.1%}",
                "memory [GiB]": format_digits(row["memory_bytes_per_rank"] / GIB, 3),
                "days": format_digits(float(run.days) * (1 + run.behind(row)), 3),
                "longer": f"{run.behind(row):.1%}",
                "because of": str(row["loses_by"]),
            }
            for row in run.table.to_dict("records")
        ]
    )


def binding(run: TrainRun) -> pd.DataFrame:
    """Return what each constraint costs, the dearest first: days, time over the best, the mapping then best."""
    table = run.constraints().sort_values("cost", ascending=False, na_position="first", kind="stable")
    lines = []
    for row in table.to_dict("records"):
        line = {"constraint": row["constraint"], "days": "does not fit", "times the best": "", "then best": ""}
        if np.isfinite(row["cost"]):
            line |= {"days": format_digits(row["days"], 3), "times the best": format_digits(row["cost"], 3)}
            line["then best"] = f"{degrees(row)}, ZeRO {row['zero']}, {AGAIN[row['recompute']]}"
        lines.append(line)
    return pd.DataFrame(lines)


def claims(runs: Runs) -> pd.DataFrame:
    """Return the MFU and days of runs as derived and at the MFU that is claimed of such models on their chips."""
    frames = [at_stated_mfu(run).assign(system=name, precision=dtype) for (name, dtype), run in runs.items()]
    table = pd.concat(frames, ignore_index=True)
    figures = [name for name in table if name.startswith(("mfu", "days"))]
    return table[["system", "precision", "scenario", *figures, "source"]]


def accuracy(errors: pd.DataFrame) -> pd.DataFrame:
    """Format errors of training steps, those of one MFU for all, targets, and what is set aside."""
    names = {"mean": "mean", "median": "median", "inside": "in range", "left_out_mean": "left out, mean"}
    names |= {"left_out_median": "left out, median", "rival_left_out_mean": "one MFU, left out"}
    names |= {"rival_carried_mean": "one MFU, carried over"}
    table = errors[["group", "stack", "cases"]].rename(columns={"group": "runs", "cases": "steps"})
    for name, word in names.items():
        if name in errors:
            table[word] = ["" if np.isnan(x) else f"{x:.1%}" for x in errors[name]]
    mark = errors.met.map({True: ": met", False: ": missed"}).fillna("")
    return table.assign(target=errors.target.fillna("") + mark, aside=errors.aside).rename(
        columns={"aside": "set aside"}
    )


def errors() -> pd.DataFrame:
    """Return the errors of measured steps by group, as the evidence holds them."""
    return evidence.table("training_errors")


def aside() -> pd.DataFrame:
    """Return the measured rows that are set aside, each with its reason."""
    return evidence.table("training_aside")


def sources(table: pd.DataFrame) -> set[str]:
    """Return ids of the sources of the evidence of the chapter, and of a table with a column of them."""
    named_ids = {"trainium3-deep-dive"} | evidence.sources("training", without="aside") | set(table.source)
    return (named_ids & set(load.sources())) - {"project"}
