"""Tables of training runs: days by system, stated runs, mappings, constraints, claims, cost and accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from trnbook.chapters.training_table import NO_STACK, PARTS, Key, Runs, banded, days, in_percent
from trnmodel.search.train_run import AGAIN, Spent, TrainRun, degrees
from trnmodel.search.trainings import STACKS, at_stated_mfu
from trnmodel.units import GIB, MILLION, format_digits

SYMBOLS = [
    ("", "days", "", "", "result"),
    ("", "tokens, global_batch", "tokens that the run sees; those of a step", "", "parameter"),
    (
        "",
        "model_flop",
        "work of the model in a step, forward and backward, pairs as software computes them",
        "",
        "model",
    ),
    ("N, P", "chips, peak_flop_per_s", "chips of the job; printed peak of one", "", "data"),
    ("", "mfu, hfu", "model FLOP, all computed FLOP over the peak of all chips", "", "result"),
    ("", "forward_s, backward_s, recompute_s", "work of a micro-batch: forward, back, again", "", "step"),
    ("", "exposed_s", "exchanges that nothing hides", "", "step"),
    ("m, p, v", "microbatches, pp, interleave", "micro-batches; pipeline stages; parts of a stage", "", "mapping"),
]
CLAIMED = {"compiler": "public", "hand-written kernels": "hand-tuned"}  # which kind of software each is to be


def compare(runs: Runs, model: str) -> pd.DataFrame:
    """Return a model's days by system and precision on each kind of software, with MFU, mapping and bound."""
    lines = dict[tuple[str, ...], dict[str, Any]]()
    for key, run in runs.items():
        if key.model == model:
            names = {"system": key.system, "in": key.precision.upper(), **dict.fromkeys(STACKS, NO_STACK)}
            row = lines.setdefault(key[1:3], names)
            row[key.kind] = days(run)
            if "MFU" not in row and run.valid:
                row |= {"MFU": f"{float(run.mfu):.0%}", "mapping": degrees(run.table.iloc[0].to_dict())}
                row |= {"bound": PARTS.get(f"{run.bound}_s", run.bound)}
    return pd.DataFrame(lines.values()).fillna("")


def overlaps(runs: Mapping[str, TrainRun]) -> pd.DataFrame:
    """Return days with every exchange hidden that can be, as software hides them, and with none hidden."""
    lines = []
    for name, run in runs.items():
        step = run.step
        ends = {"all hidden": step.lower_s, "as it is": step.time_s, "none hidden": step.upper_s}
        row = {word: format_digits(float(run.days * x / step.time_s), 3) for word, x in ends.items()}
        lines.append({"system": name} | row | {"exchanges that wait": f"{float(step.exposed_s / step.time_s):.0%}"})
    return pd.DataFrame(lines)


def stated(printed: pd.DataFrame) -> pd.DataFrame:
    """Return one row per published run: chips, MFU, days, days on as many chips, and our days by software."""
    lines = dict[str, dict[str, Any]]()
    for row in printed.itertuples():
        line = {"run": row.id, "on": f"{row.chips:,.0f} {row.chip.upper()}", "in": row.precision.upper()}
        line |= {"MFU": f"{row.mfu:.0%}", "days": format_digits(row.days, 3)}
        line = lines.setdefault(row.id, line | {"on as many chips": format_digits(row.days_on, 3)})
        line[f"ours, {row.stack_kind}"] = banded(row.predicted_days, row.predicted_days_low, row.predicted_days_high)
        lines[row.id] = {name: x for name, x in line.items() if name != "source"} | {"source": row.source}
    return pd.DataFrame(lines.values())


def formats(gained: pd.DataFrame) -> pd.DataFrame:
    """Format `gains`: peaks with their unit, days in three digits, ratios in two."""
    shown = gained[["system", "wide_in", "wide_flop_per_s", "narrow_in", "narrow_flop_per_s"]].copy()
    for name, digits in {"wide_days": 3, "narrow_days": 3, "peak_ratio": 2, "speedup": 2}.items():
        shown[name] = [format_digits(x, digits) if np.isfinite(x) else "" for x in gained[name]]
    titles = {"wide_in": "in", "wide_days": "days", "narrow_in": "then in", "narrow_days": "then days"}
    titles |= {"wide_flop_per_s": "peak_flop_per_s", "narrow_flop_per_s": "then_peak_flop_per_s"}
    return shown.rename(columns=titles | {"peak_ratio": "times the peak", "speedup": "times as fast"}).fillna(
        {"then in": ""}
    )


def losing(run: TrainRun) -> pd.DataFrame:
    """Return the best sets of degrees: days, MFU, memory, how much they lose and to which part of a step."""
    return pd.DataFrame(
        [
            {
                "mapping": degrees(row),
                "sequences at once": f"{row['micro_batch']:.0f}",
                "parts a stage": f"{row['interleave']:.0f}",
                "policy": f"ZeRO {row['zero']}, {AGAIN[row['recompute']]}",
                "MFU": f"{row['mfu']:.1%}",
                "memory [GiB]": format_digits(row["memory_bytes_per_rank"] / GIB, 3),
                "days": format_digits(float(run.days) * (1 + run.behind(row)), 3),
                "loses": f"{run.behind(row):.1%}, most by {PARTS.get(row['loses_by'] + '_s', 'nothing')}"
                if place
                else "",
            }
            for place, row in enumerate(run.table.to_dict("records"))
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


def claims(runs: Runs, model: str, system: str, precision: str) -> pd.DataFrame:
    """Return a model's MFU and days, derived on each kind of software and at its claimed MFU."""
    own = {key.kind: run for key, run in runs.items() if key[:3] == (model, system, precision) and run.valid}
    tables = {kind: at_stated_mfu(run) for kind, run in own.items()}
    lines = [(f"derived, {kind} software", table.iloc[0]) for kind, table in tables.items()]
    for table in [*tables.values()][:1]:
        lines += [(f"claimed, {row.software}", row) for _, row in table.iloc[1:].iterrows()]
    return pd.DataFrame(
        [
            {
                "model": model,
                "MFU of": word,
                "MFU": in_percent(row.mfu, row.mfu_low, row.mfu_high),
                "days": banded(row.days, row.days_low, row.days_high),
                "source": row.source,
            }
            for word, row in lines
        ]
    )


def verdicts(runs: Runs, models: Iterable[str], system: str, precision: str) -> str:
    """Describe whether the claims for the compiler and for kernels lie in the derived band."""
    said = []
    for model, (word, kind) in product(models, CLAIMED.items()):
        run = runs.get(Key(model, system, precision, kind))
        table = at_stated_mfu(run) if run is not None and run.valid else pd.DataFrame({"software": []})
        for row in table[table.software == word].to_dict("records"):
            own = table.iloc[0]
            where = "above" if row["mfu_low"] > own.mfu_high else "below" if row["mfu_high"] < own.mfu_low else "inside"
            claim = in_percent(row["mfu"], row["mfu_low"], row["mfu_high"])
            said.append(f"{claim} of {model} with {word} lies {where} the band of {kind} software")
    return f"**Claimed and derived.** {'; '.join(said)}." if said else ""


def spent(runs: Mapping[str, TrainRun], owner: str, pricing: str) -> pd.DataFrame:
    """Return days, useful share, calendar days, and million USD to rent and to own the chips."""
    lines = []
    for name, run in runs.items():
        g = run.goodput()
        row = {"system": name, "days, nothing lost": days(run), "useful share": in_percent(g.goodput, g.low, g.high)}
        row |= {"days in the calendar": _priced(run.calendar_days(g))}
        row |= {"rented [million USD]": _priced(run.renter_usd(pricing, useful=g), MILLION)}
        lines.append(row | {"owned [million USD]": _priced(run.owner_usd(owner, g), MILLION)})
    return pd.DataFrame(lines)


def _priced(one: Spent, scale: float = 1.0) -> str:
    return "no price" if one.why else banded(one.value / scale, one.low / scale, one.high / scale)


def accuracy(errors: pd.DataFrame) -> pd.DataFrame:
    """Format errors of training steps, those of one MFU for all, targets, and what is set aside."""
    names = {"mean": "mean", "median": "median", "inside": "in band", "left_out_mean": "left out, mean"}
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


def trusted(errors: pd.DataFrame, unused: pd.DataFrame, printed: pd.DataFrame) -> str:
    """Describe the accuracy: fitted and blind groups, where one MFU does better, whole runs, rows set aside."""
    fitted, blind = errors[errors.fitted], errors[~errors.fitted]
    better = ", ".join(blind.group[blind["mean"] > blind.rival_carried_mean]) or "none of them"
    ours, rival = _ends(fitted.left_out_mean), _ends(fitted.rival_left_out_mean)
    said = [f"With a model left out, software that was fitted is {ours} off on the mean of a group, one MFU {rival}."]
    said.append(
        f"Groups that no fit has seen are {_ends(blind['mean'])} off; one MFU carried over is nearer on {better}."
    )
    for row in errors[errors.group.str.contains("trn2|trn3")].to_dict("records"):
        off = f"{row['cases']} steps of {row['group']}, {row['mean']:.0%} off on the mean"
        said.append(f"**All that was measured on Trainium2 or Trainium3 are {off}.**")
    if len(printed):
        first = printed[printed.stack_kind == printed.stack_kind.iloc[0]]
        inside = (first.predicted_days_low <= first.days) & (first.days <= first.predicted_days_high)
        ratios = ", ".join(f"{row.id} {row.days / row.predicted_days:.2f}" for row in first.itertuples())
        said.append(f"Published runs in our band: {inside.sum()} of {len(first)}; printed days over ours: {ratios}.")
        said.append("A printed rate is of steps alone; chip-hours have all phases, and what was lost.")
    reasons = unused.reason.str.partition(":")[0].value_counts().sort_index()
    reasons = reasons.sort_values(ascending=False, kind="stable")
    text = "; ".join(f"{reason} ({count})" for reason, count in reasons.head(3).items())
    return " ".join([*said, f"Set aside are {len(unused)} rows, first of all: {text}."])


def _ends(values: pd.Series) -> str:
    return f"{values.min():.0%} to {values.max():.0%}"
