"""Collectives against measurements that are not ours: a floor and a rate for each published run, and the barrier."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog import load, systems
from trnmodel.catalog.load import chip
from trnmodel.catalog.systems import System
from trnmodel.evidence.cells import number
from trnmodel.evidence.collections import collected
from trnmodel.evidence.meanings import decide
from trnmodel.evidence.readings import TIMES, call_arguments, joined_alike
from trnmodel.evidence.rows import LATER, MEASURED, read_rows
from trnmodel.evidence.search import left_out, line
from trnmodel.fabric.collectives import collective
from trnmodel.fabric.runtime import LAUNCHERS, RUNTIMES, graph_barrier_s, launch_s
from trnmodel.formulas.bounds import busbw_factor
from trnmodel.formulas.collectives import PASSES
from trnmodel.result import tidy
from trnmodel.units import GB, GIB, KIB, MIB, MS, US

if TYPE_CHECKING:
    import pandas as pd

MACHINES = ("trn1.32xlarge", "trn2.48xlarge")  # that could have made the published runs
SEVERAL, REGIME = ("allr-64-two-nodes",), 64 * KIB
OTHER_REGIME = (
    "another regime: below 64 KiB the time of two nodes climbs from 520 to 1,013 us with the size, then jumps to "
    "1,315 us; no documented algorithm does that"
)
ON_LINKS: dict[str, Any] = {"in_graph": True, "rate_share": 1.0}  # the fabric alone
LARGE = (GB, 10 * GB)  # two messages far beyond every latency: their difference is the rate


def contract() -> pd.DataFrame:
    """Every measured collective row with what it is used for, or the reason why it is set aside.

    Examples
    --------
    >>> rows = contract()
    >>> bool(((rows.use == "") == (rows.reason != "")).all())
    True
    """
    import pandas as pd

    kept = ("id", "source", "date_or_sdk", "instance", "workload", "metric", "unit", "note")
    told, lines = ("kind", "ranks", "message_bytes"), []
    for row in read_rows(MEASURED):
        if row["kind"] == "collective":
            d = decide(row)
            given = dict(call_arguments(d.arguments))
            line: dict[str, Any] = {name: row[name] for name in kept} | {"use": d.use}
            line |= {
                "series": d.record.series or d.arguments.get("series", ""),
                **{name: given.get(name, np.nan) for name in told},
            }
            if line["series"] in SEVERAL and line["message_bytes"] < REGIME and line["use"] == "fit":
                line, d = line | {"use": ""}, replace(d, reason=OTHER_REGIME)
            lines.append(line | {"value": number(row["value"]), "reason": d.reason})
    return pd.DataFrame(lines)


def _timed(use: str) -> pd.DataFrame:
    rows = contract()
    rows = rows[rows.use == use]
    return rows.assign(time_s=rows.value * rows.unit.map(TIMES))


def recomputed() -> pd.DataFrame:
    """Return printed rates beside those of bytes and microseconds, in the unit that the run really printed.

    Returns
    -------
    table : pandas.DataFrame
        series, metric, message_bytes, printed, as_gb, as_gib, unit ("GB/s" or "GiB/s", whichever the run's own times
        give) and error of the printed figure in that unit, with its rounding.

    Examples
    --------
    >>> recomputed().groupby("unit").series.unique().map(len).to_dict()
    {'GB/s': 4, 'GiB/s': 3}
    """
    rows = contract()
    rates = rows[rows.use == "rate"]
    times = rows[rows.metric.isin(["time", "time:avg"])]
    keys = [rates.source.str.split(" @").str[0], times.source.str.split(" @").str[0]]
    time = dict(zip(zip(keys[1], times.workload, strict=True), times.value * US, strict=True))
    seconds = np.array([time[key] for key in zip(keys[0], rates.workload, strict=True)])
    rate = rates.message_bytes / seconds * np.where(rates.metric == "busbw", _factors(rates), 1.0)
    table = rates[["series", "metric", "message_bytes"]].assign(printed=rates.value, as_gb=rate / GB, as_gib=rate / GIB)
    off = {unit: (table[column] - table.printed).abs() for unit, column in (("GB/s", "as_gb"), ("GiB/s", "as_gib"))}
    sums = {unit: each.groupby(table.series).sum() for unit, each in off.items()}
    unit = np.where(table.series.map(sums["GB/s"] <= sums["GiB/s"]), "GB/s", "GiB/s")
    shown = np.where(unit == "GB/s", table.as_gb, table.as_gib)
    return table.assign(unit=unit, error=shown / table.printed - 1).reset_index(drop=True)


def _line(wire_bytes: NDArray, time_s: NDArray) -> tuple[float, float]:
    """Floor and rate of t = floor + wire / rate, by relative least squares."""
    floor, slope = line(wire_bytes, time_s, time_s**-2)
    return floor, 1 / slope


def _factors(rows: pd.DataFrame) -> NDArray:
    return np.array([float(busbw_factor(k, n)) for k, n in zip(rows.kind, rows.ranks, strict=True)])


def _wire_bytes(rows: pd.DataFrame) -> NDArray:
    return rows.message_bytes.to_numpy() * _factors(rows)


def points() -> pd.DataFrame:
    """Each measured time with the line of its own run, and with that line fitted to the run's other sizes.

    Returns
    -------
    table : pandas.DataFrame
        series, kind, ranks, message_bytes, time_s, fitted_s, error, left_out_error (NaN where two sizes are all).
    """
    import pandas as pd

    frames = []
    for _, run in _timed("fit").groupby("series", sort=False):
        wire, time = _wire_bytes(run), run.time_s.to_numpy()
        floor, rate = _line(wire, time)
        sized = list(zip(run.message_bytes, wire, time, strict=True))
        left = left_out(sized, lambda point: point[0], _line_errors)
        fitted = floor + wire / rate
        kept = run[["series", "kind", "ranks", "message_bytes", "time_s"]]
        frames.append(kept.assign(fitted_s=fitted, error=fitted / time - 1, left_out_error=left))
    return pd.concat(frames, ignore_index=True)


def _line_errors(train: list[tuple], test: list[tuple]) -> NDArray:
    """Errors of (bytes, bytes on the wire, time) under the line of others; NaN where those have one size alone."""
    if len({size for size, _, _ in train}) < 2:
        return np.full(len(test), np.nan)
    floor, rate = _line(*(np.array(column) for column in list(zip(*train, strict=True))[1:]))
    return np.array([(floor + wire / rate) / time - 1 for _, wire, time in test])


def fits() -> pd.DataFrame:
    """Floor and bus bandwidth of each published run, with the spread of its rows.

    Returns
    -------
    table : pandas.DataFrame
        series, kind, ranks, sizes, floor_s, busbw_bytes_per_s, crossover_bytes (where floor and transfer are alike),
        worst_error and worst_left_out_error (NaN where two sizes are all).

    Examples
    --------
    >>> round(float(fits().set_index("series").floor_s["allg-32"]) * 1e6, 1)
    6.2
    """
    import pandas as pd

    lines = []
    for (name, kind, ranks), run in points().groupby(["series", "kind", "ranks"], sort=False):
        floor, rate = _line(_wire_bytes(run), run.time_s.to_numpy())
        sizes = run.message_bytes.nunique()
        line = {"series": name, "kind": kind, "ranks": ranks, "sizes": sizes, "floor_s": floor}
        line |= {"busbw_bytes_per_s": rate, "crossover_bytes": floor * rate / float(busbw_factor(kind, ranks))}
        line |= {"worst_error": run.error.abs().max() if sizes > 2 else np.nan}
        lines.append(line | {"worst_left_out_error": run.left_out_error.abs().max()})
    return pd.DataFrame(lines)


def curves() -> pd.DataFrame:
    """Bus bandwidth over the message, measured and as the run's two constants give it.

    Returns
    -------
    table : pandas.DataFrame
        series, message_bytes, what ("measured" or "two constants"), busbw_bytes_per_s.
    """
    import pandas as pd

    measured = points()
    wire = _wire_bytes(measured)
    frames = [
        measured[["series", "message_bytes"]].assign(what=what, busbw_bytes_per_s=wire / measured[column])
        for what, column in (("measured", "time_s"), ("two constants", "fitted_s"))
    ]
    return pd.concat(frames, ignore_index=True)


def _machines(series: str) -> list[System]:
    """Return the systems that could have made a run: of two servers where it ran on two."""
    return [systems.system(name, count=2 if "two-nodes" in series else 1) for name in MACHINES]


def misses() -> pd.DataFrame:
    """Each measured time over what `tm.collective` says without a constant of the run, on each system it could be of.

    The launch is that of AWS's test.

    Returns
    -------
    table : pandas.DataFrame
        series, system, message_bytes, time_s, predicted_s, ratio (measured over predicted).

    Examples
    --------
    >>> round(float(misses().groupby("system").ratio.median()["trn1.32xlarge"]), 1)
    1.9
    """
    rows = []
    for (series, kind, ranks), run in points().groupby(["series", "kind", "ranks"], sort=False):
        for where in _machines(series):
            found = collective(kind, run.message_bytes.to_numpy(), where, ranks=ranks, launch_s=launch_s("nccom-test"))
            if np.all(found.valid):
                times = {"time_s": run.time_s, "predicted_s": found.time_s, "ratio": run.time_s / found.time_s}
                rows.append({"series": series, "system": where.id, "message_bytes": run.message_bytes, **times})
    return tidy(rows)


def shares() -> pd.DataFrame:
    """Return what each run reaches of the modelled fabric, on each system that could have been its machine.

    Returns
    -------
    table : pandas.DataFrame
        series, system (of two servers where the run had two), model_bytes_per_s and model_floor_s (`tm.collective`,
        best algorithm), share of the rate, floor_ratio. A share above one says that it was another machine.
    """
    import pandas as pd

    lines = []
    for run in fits().itertuples():
        for where in _machines(run.series):
            big = collective(run.kind, LARGE, where, ranks=run.ranks, **ON_LINKS)
            if not np.all(big.valid):
                continue
            rate = float(busbw_factor(run.kind, run.ranks)) * np.diff(LARGE)[0] / np.diff(big.time_s)[0]
            floor = float(collective(run.kind, 0.0, where, ranks=run.ranks, **ON_LINKS).time_s)
            lines.append(
                {
                    "series": run.series,
                    "system": where.id,
                    "model_bytes_per_s": rate,
                    "share": run.busbw_bytes_per_s / rate,
                    "model_floor_s": floor,
                    "floor_ratio": run.floor_s / floor,
                }
            )
    return pd.DataFrame(lines)


def barriers() -> pd.DataFrame:
    """Graphs with no, one and twelve all-reduces of 32 KiB: what the graph pays once, and what each collective adds.

    Returns
    -------
    table : pandas.DataFrame
        runtime, ranks, without_s, one_s, twelve_s, each_s (of the eleven further ones), model_s (`graph_barrier_s`),
        error.
    """
    import pandas as pd

    others = {use: _timed(use).set_index(["series", "ranks"]).time_s for use in ("null", "twelve")}
    lines = []
    for row in _timed("one").itertuples():
        twelve = float(others["twelve"][row.series, row.ranks])
        model = float(graph_barrier_s(row.ranks, RUNTIMES[row.series]))
        lines.append(
            {
                "runtime": row.series,
                "ranks": row.ranks,
                "without_s": float(others["null"][row.series, row.ranks]),
                "one_s": row.time_s,
                "twelve_s": twelve,
                "each_s": (twelve - row.time_s) / 11,
                "model_s": model,
                "error": model / row.time_s - 1,
            }
        )
    return pd.DataFrame(lines)


SMALL, SPLITS = 256 * KIB, 512 * MIB  # up to which a call is all launch, and bandwidth does not step down
TIMES_THE_FLOOR = 3  # from which a time says what the transfer takes
RUN = ["source", "system", "machines", "ranks", "lnc", "kind", "launcher", "job", "call", "fixed_slots"]


def host_calls() -> pd.DataFrame:
    """Return the collectives of Trainium2 that a host launches, back to back, with the run that each belongs to.

    Returns
    -------
    table : pandas.DataFrame
        run (its number), source, system, machines, ranks, lnc, kind, launcher, job, call, fixed_slots, message_bytes,
        time_s.

    Examples
    --------
    >>> host_calls().launcher.value_counts().to_dict()
    {'torch-distributed': 848, 'nki': 121, 'torch-compile': 32}
    """
    rows = collected()
    rows = rows[(rows.kind == "collective") & (rows.launches == "overlapped") & (rows.kind_of_call != "")]
    rows = rows[rows.message_bytes.notna() & rows.value.notna()]
    rows = rows.assign(
        kind=rows.kind_of_call,
        launcher=rows.engine,
        time_s=rows.value,
        source=rows.source.str.split(" @").str[0],
        job=rows.note.str.extract(r"job (\d+)", expand=False).fillna(""),
        fixed_slots=rows.receive_buffer_bytes.notna(),
        call=rows.workload.str.split(" ranks").str[0],
    )
    rows["run"] = rows.groupby(RUN, sort=False).ngroup()
    return rows[["run", *RUN, "message_bytes", "time_s"]].reset_index(drop=True)


def launches() -> pd.DataFrame:
    """Return the launch of each run of `host_calls`, and the rate at which its ranks pass their buffers.

    The launch is the median of messages to 256 KiB. The rate is the median over messages to 512 MiB that take more than
    three times as long: of the time without the launch, and, as its low end, of all the time, since launches overlap
    the work of the call before. A run on two machines has no rate of its own, nor a kernel that copies whole buffers of
    fixed slots, however few of their bytes are the message.

    Returns
    -------
    table : pandas.DataFrame
        run, its columns, launch_s, sizes (that say the rate), pass_low_bytes_per_s, pass_bytes_per_s; NaN where no
        message says it.
    """
    import pandas as pd

    lines = []
    for run, rows in host_calls().groupby("run", sort=False):
        small = rows[rows.message_bytes <= SMALL]
        if small.empty:
            continue
        launch = small.time_s.median()
        long = rows[(rows.time_s > TIMES_THE_FLOOR * launch) & (rows.message_bytes <= SPLITS)]
        long = long[(long.machines == 1) & ~long.fixed_slots]
        passed = PASSES[rows.kind.iloc[0]] * long.message_bytes
        line = {"run": run, **rows.iloc[0][RUN], "launch_s": launch, "sizes": len(long)}
        line |= {"pass_low_bytes_per_s": (passed / long.time_s).median()}
        lines.append(line | {"pass_bytes_per_s": (passed / (long.time_s - launch)).median()})
    return pd.DataFrame(lines)


def host_call_errors() -> pd.DataFrame:
    """Return each call of `host_calls` with what `tm.collective` predicts, its constants fitted to the other runs.

    The constants are the middles of the middle halves, as in `launch_facts`: the launch of the other runs of the same
    launcher, the rate of those of as many cores for a rank.

    Returns
    -------
    table : pandas.DataFrame
        The columns of `host_calls`, predicted_s, error (predicted over measured, less one) and `transfer`: whether
        the call takes more than three launches of its run, so that the transfer counts and not the host.
    """
    import pandas as pd

    calls, runs, frames = host_calls(), launches(), []
    shipped, own_launch_s = chip("trainium2"), runs.set_index("run").launch_s
    for run, rows in calls.groupby("run", sort=False):
        one, others = rows.iloc[0], runs[runs.run != run]
        launch = _middle(others[others.launcher == one.launcher].launch_s)
        rate = _middle(others[others.lnc == one.lnc].pass_bytes_per_s.dropna())
        where = joined_alike(one.system, int(one.machines), float(one.ranks), int(one.lnc))
        rates = {**shipped.collective_pass_bytes_per_s, str(one.lnc): rate}
        where = replace(where, chip=replace(where.chip, collective_pass_bytes_per_s=rates))
        asked = {"ranks": one.ranks, "lnc": int(one.lnc), "launch_s": launch}
        predicted = collective(one.kind, rows.message_bytes.to_numpy(), where, **asked).require_valid().time_s
        transfer = rows.time_s > TIMES_THE_FLOOR * own_launch_s.get(run, np.nan)
        frames.append(rows.assign(predicted_s=predicted, error=predicted / rows.time_s - 1, transfer=transfer))
    return pd.concat(frames).sort_index()


def host_call_table() -> pd.DataFrame:
    """Return errors of calls in which the transfer counts, by kind and by ranks, with the run left out.

    Returns
    -------
    table : pandas.DataFrame
        by ("kind", "ranks", "all"), what, calls, runs, median_error (of absolute ones), middle_error (with its sign)
        and inside_share: whose error lies between the 5 and 95 percentiles of the other runs' errors.
    """
    import pandas as pd

    calls = host_call_errors()
    calls = calls[calls.transfer].reset_index(drop=True)
    others = ((at.index, calls.error[calls.run != run]) for run, at in calls.groupby("run"))
    inside = {i: x.quantile(0.05) <= calls.error[i] <= x.quantile(0.95) for at, x in others for i in at}
    calls = calls.assign(inside=pd.Series(inside), all="all", on=calls.ranks.map("{:g}".format))
    calls.loc[calls.machines == 2, "on"] += " on 2 machines"
    lines = []
    for by, column in (("all", "all"), ("kind", "kind"), ("ranks", "on")):
        for what, some in calls.groupby(column, sort=False):
            line = {"by": by, "what": what, "calls": len(some), "runs": some.run.nunique()}
            line |= {"median_error": some.error.abs().median(), "middle_error": some.error.median()}
            lines.append(line | {"inside_share": some.inside.mean()})
    return pd.DataFrame(lines)


def launchers() -> pd.DataFrame:
    """Return the launch of a collective by what calls it, as shipped: launcher, launch_s, low_s, high_s."""
    rows = load.facts_rows()
    facts = {name: load.value_si(rows[f"neuron-runtime/collective_launch_s:{name}/project"]) for name in LAUNCHERS}
    return tidy([{"launcher": n, "launch_s": x, "low_s": a, "high_s": b} for n, (x, a, b) in facts.items()])


def waiting_s() -> NDArray:
    """Return what a call takes more where the host waits for each, for every call that was timed both ways, in s."""
    rows = collected()
    rows = rows[(rows.kind == "collective") & (rows.inside == "launch") & rows.value.notna()]
    keys = ["source", "workload", "note"]
    both = [rows[rows.launches == how].set_index(keys).value for how in ("synchronised", "overlapped")]
    several = both[0].index.duplicated(keep=False), both[1].index.duplicated(keep=False)
    more = both[0][~several[0]] - both[1][~several[1]]
    return more.dropna().to_numpy()


def _middle(values: Any) -> float:
    """Return the middle between the quarter and three quarters of some values."""
    return float(np.mean(np.quantile(np.asarray(values, float), [0.25, 0.75])))


def _middle_half(values: Any, unit: float) -> str:
    """Return the quarter and three quarters of some values, to four digits."""
    low, high = np.quantile(np.asarray(values, float), [0.25, 0.75]) / unit
    return f"{low:.4g}-{high:.4g}"


def launch_facts() -> dict[str, str]:
    """Return the facts of launches and of passes: id and the middle half of the runs."""
    runs, own = launches(), "neuron-runtime"
    floors: dict[str, Any] = {name: list(one.launch_s) for name, one in runs.groupby("launcher")}
    floors["nccom-test"] = nccom_launches_s()
    floors["torch-xla"] = [number(row["value"]) * TIMES[row["unit"]] for row in _lazy_rows()]
    found = {f"{own}/collective_launch_s:{name}/project": _middle_half(x, US) for name, x in floors.items()}
    found[f"{own}/collective_wait_s/project"] = _middle_half(waiting_s(), US)
    found["trainium2/collective_launch_s/project"] = _middle_half(floors["torch-distributed"], US)
    for lnc, some in runs.dropna(subset="pass_bytes_per_s").groupby("lnc"):
        ends = _middle_half(some.pass_bytes_per_s, GB)
        found[f"trainium2/collective_pass_bytes_per_s:{lnc}/project"] = ends
    return found


def nccom_launches_s() -> NDArray:
    """Return what each run of AWS's test on one machine takes beyond the links with an empty message, in s.

    A run is one of `fits`, or the messages to 64 KiB of a count of ranks on a page that states no platform.
    """
    runs = fits()
    runs = runs[~runs.series.isin(SEVERAL)]
    found = [(run.kind, run.ranks, run.floor_s) for run in runs.itertuples()]
    small = dict[tuple[str, float], list[float]]()
    for row in read_rows(LATER):
        if row["kind"] == "collective" and row["unit"] in TIMES and decide(row).use == "platform not stated":
            asked = dict(call_arguments(decide(row).arguments))
            if float(asked["message_bytes"]) <= REGIME:
                each = small.setdefault((row["source"], float(asked["ranks"])), [])
                each.append(number(row["value"]) * TIMES[row["unit"]])
    found += [("all_reduce", ranks, np.median(times)) for (_, ranks), times in small.items()]
    links = [float(collective(kind, 0.0, MACHINES[0], ranks=ranks, **ON_LINKS).time_s) for kind, ranks, _ in found]
    return np.maximum(np.array([floor for *_, floor in found]) - links, 0.0)


def _lazy_rows() -> list[dict[str, str]]:
    """Return the times of calls of PyTorch/XLA, which are all launch: none is of more than 2 MiB."""
    rows = [row for path in (MEASURED, LATER) for row in read_rows(path) if row["kind"] == "collective"]
    lazy = [row for row in rows if decide(row).record.engine == "torch-xla" and row["unit"] in TIMES]
    return [row for row in lazy if not row["workload"].startswith("ping_pong")]


def barrier_line(runtime: str) -> tuple[float, float]:
    """Return base and step of t = base + step log2(ranks), in seconds, fitted to graphs of more than two ranks."""
    facts = [f for f in load.facts_rows().values() if f.quantity == "graph_with_collective_s" and f.entity == runtime]
    points_ = {float(fact.qualifier): load.value_si(fact)[0] for fact in facts if float(fact.qualifier) > 2}
    return line(np.log2([*points_]), [*points_.values()])


def fitted_facts() -> dict[str, str]:
    """Return what `data/facts/collectives.csv` must print: id of each fitted fact and its value, to four digits."""
    found = {}
    for run in fits().itertuples():
        found[f"nccom-test/collective_floor_s:{run.series}/project"] = f"{run.floor_s / US:.4g}"
        found[f"nccom-test/collective_busbw_bytes_per_s:{run.series}/project"] = f"{run.busbw_bytes_per_s / GB:.4g}"
    for runtime in RUNTIMES.values():
        for part, value in zip(("base", "step"), barrier_line(runtime), strict=True):
            found[f"{runtime}/graph_barrier_{part}_s/project"] = f"{value / MS:.4g}"
    return found | launch_facts()
