"""Tables of the chapter on own measurements: a file of anybody, before and after the model is corrected by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trnbook.chapters import common, guard
from trnmodel.arguments import UnanswerableError
from trnmodel.catalog.load import DATA
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cli.validate import inert
from trnmodel.evidence.calibration import Calibration
from trnmodel.evidence.doctor import Diagnosis
from trnmodel.evidence.formats.checks import SECONDS
from trnmodel.evidence.prior import NOISE, shipped
from trnmodel.evidence.score import counted
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.search.next_measurement import NextMeasurement
from trnmodel.search.plan import Plan
from trnmodel.units import MS, format_digits
from trnmodel.units import counted as number_of

EXAMPLE = "example"  # the file that the book brings
SHIPPED, TEMPLATE = DATA / "evidence" / "example_vllm_bench.json", DATA / "evidence" / "example_own_rows.csv"
MOST_ROWS = 1000  # of a file: the corrections of more take minutes
MOST_PARTS = 6  # into which runs are dealt, each of which is left out once
RIVALS = ("hgx-h100", "trn2.48xlarge")  # the first that is another system stands beside the one that was measured
BEFORE, AFTER = "as shipped", "corrected by the other runs"
STEPS, FIRST_TOKENS = r"TPOT|ITL|\bstep|per output token", r"TTFT|first token|prefill"  # in the name of a metric
PRIOR, POSTERIOR = "before your rows", "after your rows"
MOST_SHOWN = 8
KNOWN = ("before the row, from other pages", "from the row alone, with its noise", "after the row, from both together")


def path_of(file: str) -> str:
    """Return the path of the file that is read: that of the shipped example by its name.

    Examples
    --------
    >>> path_of("my-run.json"), path_of("example").endswith("example_vllm_bench.json")
    ('my-run.json', True)
    """
    return str(SHIPPED) if file == EXAMPLE else file


def refused(parameter: str, reason: ValueError) -> UnanswerableError:
    """Return what the library refuses as a refusal of a parameter of the chapter.

    Examples
    --------
    >>> refused("file", ValueError("paths=a.json: no such file"))
    UnanswerableError('file: paths=a.json: no such file')
    """
    return reason if isinstance(reason, UnanswerableError) else UnanswerableError(f"{parameter}: {reason}")


def statements(model: str, system: str, tp: int) -> dict[str, Any]:
    """Return what the parameters state of all rows of a file; an own model goes by its id.

    Examples
    --------
    >>> statements("llama-3.1-8b", "", 8), statements("", "", 0)
    ({'model': 'llama-3.1-8b', 'tp': 8}, {})
    """
    guard.need(tp >= 0, f"tp = {tp} must be at least 1, or 0 where the file states it")
    named = {"model": read_model(model).id if model else "", "system": system, "tp": tp}
    return {name: value for name, value in named.items() if value}


def own_models(model: str) -> dict[str, Transformer] | None:
    """Return the model of a `config.json` by its id, as `tm.validate` takes it; None for a shipped one."""
    one = read_model(model) if model else None
    return {one.id: one} if one and one.path else None


def check_rows(rows: pd.DataFrame) -> None:
    """Refuse a file without a figure that can be read, and one with too many."""
    guard.need(len(rows) > 0, "file: it holds no figure that can be read; trnmodel validate lists the reasons")
    guard.need(
        len(rows) <= MOST_ROWS,
        f"file: it has {len(rows):,} rows; allowed are at most {MOST_ROWS:,}, those that matter most",
    )


def question_of(judged: pd.DataFrame, model: str, system: str) -> tuple[Transformer, System]:
    """Return the model and the system that a plan is made for: those stated, or those of most predicted rows."""
    rows = judged[judged.skipped == ""]
    guard.need(len(rows) > 0, f"no row can be predicted: {next(iter(judged.skipped), 'it has none')}")
    named, where = model or rows.model.mode()[0], system or rows.instance.mode()[0]
    return read_model(named), read_system(where)


def check_plan(plan: Plan) -> None:
    """Refuse a promise that the corrected software cannot keep."""
    guard.possible(plan.best is not None, f"{plan.model.id} does not fit: {'; '.join(plan.why.values())}")
    speed = f"tokens_per_s_per_user = {plan.request.tokens_per_s_per_user:g}"
    guard.possible(plan.reached, f"{speed}: {plan.model.id} does not reach it on the corrected software")


def usable(ours: Calibration, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table that corrected the constants."""
    return rows[(ours.rows.skipped == "").to_numpy()]


def runs_of(rows: pd.DataFrame) -> pd.Series:
    """Return the number of the run that each row is of; without a name of the run, each line of a file is one.

    Examples
    --------
    >>> runs_of(pd.DataFrame({"file": "a", "run": ["x", "x", "", ""], "line": [1, 1, 2, 3]})).tolist()
    [0, 0, 1, 2]
    """
    line = rows.line.astype(str).where(rows.run.astype(str) == "", "")
    keys = rows.file.astype(str) + "\n" + rows.run.astype(str) + "\n" + line
    return pd.Series(pd.factorize(keys)[0], index=rows.index)


def parts_left_out(rows: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield the rows of some runs and those of the others: each run is among the others once; nothing of one run.

    Examples
    --------
    >>> rows = pd.DataFrame({"file": "a", "run": ["x", "x", "y"], "line": 1})
    >>> [(len(seen), len(others)) for seen, others in parts_left_out(rows)]
    [(1, 2), (2, 1)]
    """
    part = runs_of(rows) % MOST_PARTS
    if part.nunique() > 1:
        yield from ((rows[part != one], rows[part == one]) for one in sorted(part.unique()))


def together(tables: list[pd.DataFrame], like: pd.DataFrame) -> pd.DataFrame:
    """Return tables of parts of a file as one, in its order; an empty one where there are none."""
    return pd.concat(tables).sort_index() if tables else like.iloc[:0]


def ratios(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return how predictions compare with what was measured, metric by metric, the most frequent ones first.

    Parameters
    ----------
    judged : mapping
        What `tm.validate` returns, by what the predictions are called. [-]

    Returns
    -------
    table : pandas.DataFrame
        metric, prediction, predicted_over_measured of the middle row, from the least to the greatest. [-]
    """
    rows = pd.concat([_votes(table).assign(prediction=name) for name, table in judged.items()], ignore_index=True)
    often = rows.metric.value_counts(sort=True).index[:MOST_SHOWN]
    rows = rows[rows.metric.isin(often)].assign(ratio=1 + rows.error)
    several = rows.groupby(["metric", "prediction"], sort=False).ratio
    name = "predicted_over_measured"
    ends = {name: several.median(), f"{name}_low": several.min(), f"{name}_high": several.max()}
    return pd.DataFrame(ends).reset_index()


def _votes(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a prediction and a vote."""
    return judged[(judged.skipped == "") & (judged.weight > 0)]


def _measured(judged: pd.DataFrame) -> pd.Series:
    """Return what predicted rows measured as the library reads it: a cell may hold a range or a text around it."""
    return judged.predicted / (1 + judged.error)


def points(judged: pd.DataFrame) -> pd.DataFrame:
    """Return measured beside predicted, once a configuration: times, or rates where nothing else was measured.

    Returns
    -------
    table : pandas.DataFrame
        Measured and predicted with its band (`measured_s` of times, `measured_tokens_per_s` of rates), metric, run. [-]
    """
    rows = counted(judged)
    times = rows.unit.isin(SECONDS)
    if times.any():
        rows, scale, end = rows[times], rows.unit[times].map(SECONDS), "s"
    else:
        rows, scale, end = rows[rows.unit == rows.unit.mode()[0]], 1.0, "tokens_per_s"
    numbers = {f"measured_{end}": _measured(rows) * scale, f"predicted_{end}": rows.predicted * scale}
    numbers |= {f"predicted_{end}_low": rows.low * scale, f"predicted_{end}_high": rows.high * scale}
    short = rows.metric.str.replace(r" (?:mean|p\d+|median)$", "", regex=True)
    return pd.DataFrame(numbers).assign(metric=short, run=rows.run.astype(str))


def medians(judged: pd.DataFrame) -> tuple[float, float, int]:
    """Return the median error of a file, the share inside the bands, and the configurations, each counted once."""
    votes = counted(judged)
    inside = _measured(votes).between(votes.low, votes.high)
    return float(votes.error.abs().median()), float(inside.mean()), len(votes)


def answer(file: str, before: pd.DataFrame, after: pd.DataFrame, ours: Calibration) -> str:
    """Return the card that opens the chapter: the error for a file before and after the constants are corrected."""
    error, inside, many = medians(before)
    left = f"{medians(after)[0]:.1%} for a run after the other runs have corrected the constants" if len(after) else ""
    made_up = "The file is an example. Its figures are invented and of no machine. " if file == EXAMPLE else ""
    again = "" if left else "With a second run the page shows the error that is left. "
    sure = (
        f"**How sure?** It is the error of this file, of {number_of(many, 'configuration')}. {again}{made_up}"
        "Name your own file in `file`, choose *Run All Cells*, and the page is about it."
    )
    return common.card(
        f"{error:.0%}",
        f"the median error for the measurements of this file, on {ours.release}, before the model has seen it. "
        f"Of its configurations {inside:.0%} lie inside their 90% bands",
        mark="measured",
        rival=left,
        proof="Check: every published page in the place of a stranger",
        more=sure,
    )


def by_metric(judged: pd.DataFrame) -> pd.DataFrame:
    """Return for each metric how many rows count, their median error, and the share inside their bands.

    Returns
    -------
    table : pandas.DataFrame
        metric, error (signed median), share_inside, rows, rests_on (the most frequent basis). [-]
    """
    rows = _votes(judged)
    rows = rows.assign(inside=_measured(rows).between(rows.low, rows.high).astype(float))
    table = rows.groupby("metric", sort=False).agg(
        rows=("inside", "size"), error=("error", "median"), share_inside=("inside", "mean"), rests_on=("basis", _most)
    )
    return table[["error", "share_inside", "rows", "rests_on"]].reset_index()


def _most(values: pd.Series) -> str:
    return str(values.mode()[0])


def reasons(judged: pd.DataFrame) -> pd.DataFrame:
    """Return why rows have no prediction or no vote: the reason, how many, and the first metric."""
    reason = judged.skipped.where(judged.skipped != "", judged.set_aside)
    rows = judged.assign(reason=reason)[reason != ""]
    table = rows.groupby("reason", sort=False).agg(rows=("metric", "size"), first=("metric", "first")).reset_index()
    return table.sort_values("rows", ascending=False, kind="stable", ignore_index=True)


def one_of_each(rows: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """Return the first predicted row of each part of a file, at most four: a step, a first token, a throughput."""
    return rows.loc[_votes(judged).drop_duplicates("meaning").index[:4]]


def neighbours(near: pd.DataFrame) -> pd.DataFrame:
    """Return the nearest published rows, each once, the nearest first: what was measured where, and its error."""
    rows = near.drop_duplicates(["meaning", "model", "where", "tp", "batch", "context"])
    rows = rows.sort_values("octaves", kind="stable").head(MOST_SHOWN)
    names = {"meaning": "question", "where": "system"}
    return rows[["meaning", "model", "where", "tp", "batch", "octaves", "error"]].rename(columns=names)


def farthest(judged: pd.DataFrame) -> Any:
    """Return the label of the row whose time is missed by most: a step or a first token, where there is one."""
    rows = _votes(judged)
    alone = rows[rows.metric.str.contains(f"{STEPS}|{FIRST_TOKENS}", case=False)]
    some = alone if len(alone) else rows
    return np.log1p(some.error).abs().idxmax()


def row_name(diagnosis: Diagnosis) -> str:
    """Return a measured row as a caption names it: its number, its unit and its metric."""
    return f"{format_digits(diagnosis.measured, 3)} {diagnosis.unit} of {diagnosis.metric}"


def causes(diagnosis: Diagnosis) -> pd.DataFrame:
    """Return what can explain a measured time, the likeliest first: the cause, its share, and what changes it."""
    columns = ["cause", "share", "setting", "pairs", "median_speedup"]
    rows = [
        (one.mechanism, one.share, one.setting, one.pairs, format_digits(one.median, 2) if one.pairs else "")
        for one in diagnosis.causes[:MOST_SHOWN]
    ]
    return pd.DataFrame(rows, columns=columns)


def prior_and_posterior(ours: Calibration) -> pd.DataFrame:
    """Return the constants that rows moved, before and after, as times the value that ships, in long form.

    Returns
    -------
    table : pandas.DataFrame
        constant, when, value_over_the_shipped_one with its 90 % range; those that the rows determine best first. [-]
    """
    known = ours.constants[~ours.constants.constant.isin(ours.undetermined)]
    known = known.sort_values("resolved", ascending=False, kind="stable")
    names = {PRIOR: ("prior", "prior_low", "prior_high"), POSTERIOR: ("value", "low", "high")}
    parts = []
    for when, columns in names.items():
        ends = zip(("", "_low", "_high"), columns, strict=True)
        numbers = {f"value_over_the_shipped_one{end}": known[c] / known.prior for end, c in ends}
        parts.append(pd.DataFrame({"constant": known.constant, "when": when, **numbers}))
    return pd.concat(parts, ignore_index=True)


def constants(ours: Calibration) -> pd.DataFrame:
    """Return every constant before and after with its range, what rows resolved of it, and its origin."""
    table = ours.constants.rename(columns={"resolved": "share_resolved"})
    table = table.assign(meaning=[quantity(name).description for name in table.constant])
    return table[
        ["constant", "meaning", "prior", "prior_low", "prior_high", "value", "low", "high", "share_resolved", "origin"]
    ]


def plan_row(case: str, plan: Plan) -> dict[str, Any]:
    """Return a plan as a row: where it runs, what it makes per chip with its band, and what it rests on."""
    best = plan.best
    if best is None:
        return {"case": case}
    rests = {"mapping": best.mapping, "share_of_draws": float(best.chance), "rests_on": str(best.basis)}
    return {"case": case, **best.banded("tokens_per_s_per_chip"), **rests}


def first_runs(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of the first run, of the first three and of all, by how many there are.

    Examples
    --------
    >>> list(first_runs(pd.DataFrame({"file": "a", "run": "", "line": range(5)})))
    ['1 run', '3 runs', '5 runs']
    """
    run = runs_of(rows)
    many = int(run.nunique())
    return {number_of(n, "run"): rows[run < n] for n in sorted({1, min(3, many), many})}


def kinds(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each kind that a file has, and all of them: steps, first tokens, and whatever counts both.

    Examples
    --------
    >>> list(kinds(pd.DataFrame({"metric": ["TPOT mean", "TTFT p50", "ITL mean"]})))
    ['steps alone', 'first tokens alone', 'all rows']
    """
    step, first = (rows.metric.str.contains(p, case=False, regex=True) for p in (STEPS, FIRST_TOKENS))
    named = {
        "steps alone": rows[step],
        "first tokens alone": rows[first & ~step],
        "throughput and requests": rows[~(step | first)],
    }
    return {name: some for name, some in {**named, "all rows": rows}.items() if len(some)}


def densities(*known: tuple[float, float]) -> pd.DataFrame:
    """Return how likely each time of a step is before a row, from the row alone, and after, in long form.

    Parameters
    ----------
    known : tuple of float
        Median [ms] and standard deviation of the logarithm, of each of the three. [-]

    Returns
    -------
    table : pandas.DataFrame
        time_s, density (of the logarithm, over the highest of all), known (which of the three). [-]

    Examples
    --------
    >>> table = densities((20.0, 0.2), (25.0, 0.1), (24.0, 0.09))
    >>> float(table.density.max()), table.known.nunique()
    (1.0, 3)
    """
    low, high = (f(m * np.exp(side * 3 * s) for m, s in known) for f, side in ((min, -1), (max, 1)))
    times = np.geomspace(low, high, 121)
    shapes = [np.exp(-0.5 * (np.log(times / m) / s) ** 2) / s for m, s in known]
    most = max(float(shape.max()) for shape in shapes)
    return pd.concat(
        pd.DataFrame({"time_s": times * MS, "density": shape / most, "known": name})
        for name, shape in zip(KNOWN, shapes, strict=True)
    )


def rival(system: System) -> str:
    """Return the system that stands beside the one that was measured.

    Examples
    --------
    >>> rival(read_system("trn2.48xlarge")), rival(read_system("hgx-h100"))
    ('hgx-h100', 'trn2.48xlarge')
    """
    return next(name for name in RIVALS if name != system.id)


def suggestions(learnt: NextMeasurement | ValueError) -> pd.DataFrame:
    """Return what to learn before a decision, the best first: what it saves, alone and together, and its cost.

    Where there is no decision, the table holds the reason.

    Examples
    --------
    >>> suggestions(ValueError("no price is published")).reason.tolist()
    ['no price is published']
    """
    if isinstance(learnt, ValueError):
        return pd.DataFrame({"reason": [str(learnt)]})
    table = learnt.to_frame().head(MOST_SHOWN)
    return table[["candidate", "saved_usd", "saved_together_usd", "measurement_usd", "suggested"]]


def shown_runs(scripts: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that scripts make: the script, the load, the lengths, and how long each takes."""
    return scripts[["run", "script", "batch", "clients", "input_tokens", "output_tokens", "requests", "duration_s"]]


def by_file_name(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of a file's rows with the name of the file in place of its path; no text of it is a formula."""
    return inert(table.assign(file=[Path(one).name for one in table.file])).rename(columns={"basis": "rests_on"})


def noise(part: str) -> float:
    """Return the standard deviation of the logarithm that a measurement has beside the constants."""
    return shipped().spreads(NOISE)[part]


def template() -> pd.DataFrame:
    """Return the columns that a table of own measurements has, without a row."""
    return pd.read_csv(TEMPLATE)


COLUMNS = (
    ("instance", "machine, as AWS or the vendor names it", "trn2.48xlarge"),
    ("workload", "model", "Llama-3.3-70B"),
    ("engine", "serving engine", "vllm-neuron"),
    ("date_or_sdk", "release of the software, or the day", "SDK 2.28"),
    ("precision", "format of weights and products", "bf16"),
    ("lnc, tp, pp, dp", "physical cores of a logical one, and degrees of parallelism", "2, 32, 1, 1"),
    ("slots", "sequences that the server decodes at once", "16"),
    ("clients", "requests that are in flight at once", "8"),
    ("batch", "sequences of a step, where no server ran", "4"),
    ("input_len, output_len", "tokens of the prompt and of the answer", "1024, 256"),
    ("metric", "what was measured: TPOT, TTFT, ITL, request latency, throughput", "TPOT mean"),
    ("value, unit", "the number, and its unit", "36.1, ms"),
)


def column_meanings() -> pd.DataFrame:
    """Return what each column of the template means, with an example."""
    return pd.DataFrame(COLUMNS, columns=["name", "meaning", "example"])


def used_sources(near: pd.DataFrame) -> pd.DataFrame:
    """Return the pages of the nearest published rows, with how many rows are of each."""
    many = near.groupby("source").size().sort_values(ascending=False, kind="stable")
    return many.rename("rows").reset_index()
