"""Tables of lost time: shares by cause, checkpoints, idle chips per failure, spare lanes, spares, replicas, draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnmodel.catalog.fleets import Fleet
from trnmodel.catalog.systems import System
from trnmodel.formulas import reliability
from trnmodel.reliability.goodput import Goodput, goodput, replica_availability
from trnmodel.reliability.redundancy import SWAPS, guards, idled, rack_alternatives
from trnmodel.result import tidy
from trnmodel.search.sensitivity import Sensitivity, sensitivity
from trnmodel.units import HOUR, MINUTE, YEAR, counted, format_digits, format_duration, format_within

SYMBOLS = [
    ("", "goodput", "useful share of the time of all chips, spares too", "", "result"),
    ("", "useful_share", "", "", "result"),
    ("", "ready_share, speed", "share of time with enough chips; speed over that on whole racks", "", "result"),
    ("", "spare_lost", "share of the chips that stand by", "", "result"),
    ("lambda, M", "1/mtbf_s, mtbf_s", "interruptions of the job a second; time between them", "", "result"),
    ("", "write_s", "time that a checkpoint holds the job up", "", "result"),
    ("", "interval_s", "", "", "best, or chosen"),
    ("R", "restart_s", "time from a failure to the first repeated step", "", "data, estimate (D)"),
    ("T", "swap_s, repair_s", "time until a swapped tray, a drained rack works again", "", "data, estimate (D)"),
]
PARTS: Mapping[str, str] = {
    "goodput": "useful",
    "restarting_lost": "restarting",
    "redone_lost": "work done again",
    "writing_lost": "writing checkpoints",
    "slowed_lost": "waiting for a rack that limps",
    "waiting_lost": "waiting for a repair",
    "spare_lost": "spares that stand by",
}
HOW: Mapping[str, str] = {"hot": "trays swapped", "drain": "racks drained"}
SPARED: Mapping[str, str] = {"rack switch": "switches of a plane", "backplane lane": "lanes of a link"}
INPUTS: Mapping[str, str] = {
    "interruptions_per_chip_s": "interruptions of a chip",
    "repaired_share": "share that is repaired",
    "lane_failures_per_s": "failures of a backplane lane",
    "cable_failures_per_s": "failures of a cable",
    "switch_failures_per_s": "failures of a switch",
    "restart_s": "time to restart",
    "swap_s": "time to swap a tray",
    "repair_s": "time to repair a rack",
    "checkpoint_bytes_per_param": "bytes of a checkpoint",
    "checkpoint_bytes_per_s": "rate of a checkpoint",
    "exposed_share": "share that waits for links",
}
LEAST, NEARLY, DRAWS = 0.01, 0.5, 4000  # per cent, per cent, draws of the fleet
Jobs = Mapping[tuple[str, str], Goodput]


def jobs(systems: Iterable[str | System], called: Mapping[str, str], **ask: Any) -> dict[tuple[str, str], Goodput]:
    """Return the job on each system with trays swapped and with racks drained, by system name and repair."""
    pairs = [(system, swap) for system in systems for swap in SWAPS]
    return {(called[getattr(s, "id", str(s))], swap): goodput(s, swap=swap, **ask) for s, swap in pairs}


def percent(job: Goodput, basis: str = "") -> str:
    """Format goodput with its band; near 100 % the loss is given, and below `LEAST` only that."""
    value, low, high = (100 * float(end) for end in (job.goodput, job.low, job.high))
    if value < LEAST:
        return f"under {LEAST}%"
    if value > 100 - NEARLY:
        return "all but " + format_within(100 - value, 100 - high, 100 - low, "%", basis).replace(" %", "%")
    return format_within(value, low if low > LEAST else 0.0, high, "%", basis).replace(" %", "%")


def losses(jobs: Jobs) -> pd.DataFrame:
    """Return where the time of all chips goes: of, part, time_share, which sum to 1 for each `of`."""
    short = {key: f"{key[0].replace('Trainium', 'Trn')}, {HOW[key[1]].split()[1]}" for key in jobs}
    rows = [
        {"of": short[key], "part": word, "time_share": float(getattr(job, field))}
        for key, job in jobs.items()
        for field, word in PARTS.items()
    ]
    return tidy(rows)


def compare(jobs: Jobs) -> pd.DataFrame:
    """Return one row per job: goodput with band, time between interruptions and checkpoints, spares."""
    return tidy(
        [
            {"system": name, "with": HOW[swap], "useful share of the time": percent(job)}
            | {"between interruptions": format_duration(float(job.mtbf_s))}
            | {"between checkpoints": format_duration(float(job.interval_s))}
            | {"spare chips": float(job.spare_chips), "out together": counted(job.failure_domain_chips, "chip")}
            for (name, swap), job in jobs.items()
        ]
    )


def alternatives(systems: Iterable[str | System], called: Mapping[str, str], **ask: Any) -> pd.DataFrame:
    """Return goodput of every way to build a rack, one beside the other: as drawn, and with other uses of its lanes.

    A row has the share with trays swapped and with racks drained, the time between interruptions with trays swapped,
    and how many parts of a kind may be out.
    """
    rows = []
    for name in systems:
        built = rack_alternatives(name)
        for how, spec in built.items() if len(built) > 1 else ():
            hot, drain = (goodput(spec, swap=swap, **ask) for swap in SWAPS)
            spare = [f"{one.spares} of {one.parts} {SPARED[one.name]}" for one in guards(spec) if one.spares]
            rows.append(
                {"system": called[spec.id], "built": how, "to spare": "; ".join(spare) or "nothing"}
                | {"between interruptions": format_duration(float(hot.mtbf_s))}
                | {HOW[swap]: percent(job) for swap, job in zip(SWAPS, (hot, drain), strict=True)}
            )
    return tidy(rows)


def rules(job: Goodput) -> pd.DataFrame:
    """Return checkpoint intervals by Young, Daly and exactly, with the loss at each: rule, interval_s, lost_share."""
    rate, write, restart = 1 / job.mtbf_s, job.write_s, job.fleet.restart_s
    intervals = {"Young": job.young_s, "Daly, first order": reliability.daly_interval_s(write, rate, "first")}
    intervals["Daly"] = job.daly_s
    intervals["exact"] = reliability.best_interval_s(write, rate)
    lost = [float(1 - reliability.time_shares(tau, write, restart, rate)[0]) for tau in intervals.values()]
    rows = zip(intervals, map(float, intervals.values()), lost, strict=True)
    return pd.DataFrame(rows, columns=["rule", "interval_s", "lost_share"])


def over_intervals(job: Goodput, model: str) -> pd.DataFrame:
    """Return the lost share over checkpoint intervals for a quarter, all and four times the chips."""
    taus = float(job.interval_s) * np.geomspace(0.05, 20, 41)
    sizes = np.maximum(job.chips * np.array([[0.25], [1.0], [4.0]]), 1.0)
    result = goodput(
        job.system,
        sizes,
        model=model,
        interval_s=taus,
        spare_chips=0.0,
        swap=job.swap,
        failure_domain_chips=int(job.failure_domain_chips),
        fleet=replace(job.fleet, ranges={}),
    )
    names = [counted(round(size), "chip") for size in sizes.ravel()]
    rows = {"of": np.repeat(names, taus.size), "interval_min": np.tile(taus / MINUTE, len(names))}
    return pd.DataFrame(rows | {"lost_share": 1 - result.useful_share.ravel()}).drop_duplicates()


def idle(systems: Iterable[str], called: Mapping[str, str]) -> pd.DataFrame:
    """Return what one failed part idles: a row per part, a column per system; lanes are left out."""
    wide: dict[str, dict[str, str]] = {}
    for name in systems:
        for row in idled(name).to_dict("records"):
            part = row["failure"].removeprefix("one ").removeprefix("link ")
            if not part.endswith("lane"):
                wide.setdefault(part, {"part that fails": part})[called[name]] = _taken(row)
    return pd.DataFrame(wide.values()).fillna("has none")


def _taken(row: Mapping[str, Any]) -> str:
    if row["covered"]:
        return "nothing"
    still = f"{counted(row['idle_hot'], 'chip')} stand{'s' * (row['idle_hot'] == 1)} still"
    rest = f"the slowest of the rest keeps {row['left']:.0%}"
    return "; ".join([still] * bool(row["idle_hot"]) + [rest] * bool(0 < row["left"] < 1))


def swept(
    cases: Mapping[str, tuple[System, str]], field: str, values: NDArray, *, fleet: Fleet, **ask: Any
) -> pd.DataFrame:
    """Return goodput of systems and repairs over one number of the fleet: of, that number, goodput."""
    changes: dict[str, Any] = {field: values, "ranges": {}}
    at = replace(fleet, **changes)
    goodputs = {name: goodput(spec, swap=swap, fleet=at, **ask).goodput for name, (spec, swap) in cases.items()}
    return pd.concat([pd.DataFrame({"of": name, field: values, "goodput": y}) for name, y in goodputs.items()])


def standing_by(spec: System, fleet: Fleet, sizes: Iterable[float], model: str) -> pd.DataFrame:
    """Return spare chips by size of the job and kind of repair, and their share of all chips."""

    def spares(job: Goodput) -> str:
        return f"{counted(float(job.spare_chips), 'chip')}, {format_digits(100 * float(job.spare_lost), 2)}%"

    return tidy(
        [
            {"chips of the job": float(chips)}
            | {
                f"spares, {HOW[swap]}": spares(goodput(spec, chips, model=model, swap=swap, fleet=fleet))
                for swap in SWAPS
            }
            for chips in sizes
        ]
    )


def served(systems: Mapping[str, str], chips: float, count: int, needed: int, fleet: Fleet) -> pd.DataFrame:
    """Return hours per year in which too few replicas work: median of draws with its band."""
    cases = {"one replica is away": (1, 1), f"fewer than {needed} of {count} work": (count, needed)}
    keys = [(name, swap, label) for name in systems for swap in SWAPS for label in [*cases][: min(count, 2)]]

    def ask(fleet: Fleet) -> dict[str, Any]:
        there = {key: replica_availability(key[0], chips, *cases[key[2]], swap=key[1], fleet=fleet) for key in keys}
        return {"|".join(key): (1 - share) * YEAR / HOUR for key, share in there.items()}

    percentiles = sensitivity(ask, {"fleet": fleet}, DRAWS).percentiles().set_index("answer")[["p50", "p5", "p95"]]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, swap, label in keys:
        row = rows.setdefault((name, swap), {"system": systems[name], "with": HOW[swap]})
        row[f"{label} [h a year]"] = format_within(*percentiles.loc[f"{name}|{swap}|{label}"])
    return tidy(list(rows.values()))


def drawn(systems: Mapping[str, str], fleet: Fleet, pair: tuple[System, System] | None, **ask: Any) -> Sensitivity:
    """Draw goodput of every system in common; of a `pair`, also the difference as "spare lanes"."""

    def answer(fleet: Fleet) -> dict[str, Any]:
        goodputs: dict[str, Any] = {word: goodput(name, fleet=fleet, **ask).goodput for name, word in systems.items()}
        if pair:
            bare, spared = (goodput(spec, fleet=fleet, **ask).goodput for spec in pair)
            goodputs["spare lanes"] = spared - bare
        return goodputs

    return sensitivity(answer, {"fleet": fleet}, DRAWS)


def describe_draws(draws: Sensitivity) -> dict[str, str]:
    """Format the median of each answer's draws in per cent, with the 5th and 95th percentile."""
    ends = {row.answer: (100 * row.p50, 100 * row.p5, 100 * row.p95) for row in draws.percentiles().itertuples()}
    return {name: format_within(*three, "%").replace(" %", "%") for name, three in ends.items()}


def tornado(draws: Sensitivity, answer: str) -> pd.DataFrame:
    """Return the lost share with each input at its 5th and 95th percentile: which, lost_share with its ends."""
    value, table = draws.bars[answer][0], draws.tornado(answer)
    ends = 1 - table[["answer_low", "answer_high"]].assign(value=value)
    rows = {"which": table.input.str.removeprefix("fleet.").map(INPUTS), "lost_share": 1 - value}
    rows |= {"lost_share_low": ends.min(axis=1), "lost_share_high": ends.max(axis=1)}
    return pd.DataFrame(rows).assign(basis="extrapolated")[table.swing > 0].reset_index(drop=True)
