"""Lost time: shares of it by cause, checkpoints, what one failed part idles, spare lanes, spares, replicas, draws."""

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
from trnmodel.planner.goodput import Goodput, goodput, replica_availability
from trnmodel.planner.redundancy import SWAPS, idled
from trnmodel.planner.sensitivity import Sensitivity, sensitivity
from trnmodel.result import tidy
from trnmodel.units import HOUR, MINUTE, YEAR, counted, format_digits, format_duration, format_within

SYMBOLS = [
    ("G", "goodput", "useful share of the time of all chips, spares too", "", "result"),
    ("u", "useful_share", "share of a job's own time whose work is kept (ETTR)", "", "result"),
    ("A, v", "ready_share, speed", "share of time with enough chips; speed over that on whole racks", "", "result"),
    ("s", "spare_lost", "share of the chips that stand by", "", "result"),
    ("lambda, M", "1/mtbf_s, mtbf_s", "interruptions of the job a second; time between them", "", "result"),
    ("delta", "write_s", "time that a checkpoint holds the job up", "", "result"),
    ("tau", "interval_s", "useful time between two checkpoints", "", "best, or chosen"),
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
INPUTS: Mapping[str, str] = {
    "interruptions_per_chip_s": "interruptions of a chip",
    "repaired_share": "share that is repaired",
    "link_failures_per_s": "failures of a link",
    "switch_failures_per_s": "failures of a switch",
    "restart_s": "time to restart",
    "swap_s": "time to swap a tray",
    "repair_s": "time to repair a rack",
    "checkpoint_bytes_per_param": "bytes of a checkpoint",
    "checkpoint_bytes_per_s": "rate of a checkpoint",
    "exposed_share": "share that waits for links",
}
LEAST, NEARLY, DRAWS = 0.01, 0.5, 4000  # per cent, per cent, of the fleet
Jobs = Mapping[tuple[str, str], Goodput]


def jobs(systems: Iterable[str | System], called: Mapping[str, str], **ask: Any) -> dict[tuple[str, str], Goodput]:
    """The job on each system with trays swapped and with racks drained, by name of the system and way."""
    pairs = [(system, swap) for system in systems for swap in SWAPS]
    return {(called[getattr(s, "id", str(s))], swap): goodput(s, swap=swap, **ask) for s, swap in pairs}


def percent(job: Goodput, basis: str = "") -> str:
    """Goodput with its band; what is lost where that is little, and no digits where little is left."""
    value, low, high = (100 * float(end) for end in (job.goodput, job.low, job.high))
    if value < LEAST:
        return f"under {LEAST}%"
    if value > 100 - NEARLY:
        return "all but " + format_within(100 - value, 100 - high, 100 - low, "%", basis).replace(" %", "%")
    return format_within(value, low if low > LEAST else 0.0, high, "%", basis).replace(" %", "%")


def losses(found: Jobs) -> pd.DataFrame:
    """Where the time of all chips goes: of, part, time_share, which sum to 1 for each `of`."""
    short = {key: f"{key[0].replace('Trainium', 'Trn')}, {HOW[key[1]].split()[1]}" for key in found}
    rows = [
        {"of": short[key], "part": word, "time_share": float(getattr(job, field))}
        for key, job in found.items()
        for field, word in PARTS.items()
    ]
    return tidy(rows)


def beside(found: Jobs) -> pd.DataFrame:
    """Each job in a row: goodput with band, time between interruptions and checkpoints, spares, what is out."""
    return tidy(
        [
            {"system": name, "with": HOW[swap], "useful share of the time": percent(job)}
            | {"between interruptions": format_duration(float(job.mtbf_s))}
            | {"between checkpoints": format_duration(float(job.interval_s))}
            | {"spare chips": float(job.spare_chips), "out together": counted(job.unit_chips, "chip")}
            for (name, swap), job in found.items()
        ]
    )


def rules(job: Goodput) -> pd.DataFrame:
    """Intervals between checkpoints by Young, Daly and exactly, with the loss at each: rule, interval_s, lost_share."""
    rate, write, restart = 1 / job.mtbf_s, job.write_s, job.fleet.restart_s
    found = {"Young": job.young_s, "Daly, first order": reliability.daly_interval_s(write, rate, "first")}
    found["Daly"] = job.daly_s
    found["exact"] = reliability.best_interval_s(write, rate)
    lost = [float(1 - reliability.time_shares(tau, write, restart, rate)[0]) for tau in found.values()]
    rows = zip(found, map(float, found.values()), lost, strict=True)
    return pd.DataFrame(rows, columns=["rule", "interval_s", "lost_share"])


def over_intervals(job: Goodput, model: str) -> pd.DataFrame:
    """What a quarter, all and four times the chips lose over intervals: interval_min, lost_share, of."""
    taus = float(job.interval_s) * np.geomspace(0.05, 20, 41)
    sizes = np.maximum(job.chips * np.array([[0.25], [1.0], [4.0]]), 1.0)
    ask = {"model": model, "swap": job.swap, "fleet": replace(job.fleet, ranges={}), "unit": job.unit_chips}
    found = goodput(job.system, sizes, interval_s=taus, spare_chips=0.0, **ask)
    names = [counted(round(size), "chip") for size in sizes.ravel()]
    rows = {"of": np.repeat(names, taus.size), "interval_min": np.tile(taus / MINUTE, len(names))}
    return pd.DataFrame(rows | {"lost_share": 1 - found.useful_share.ravel()}).drop_duplicates()


def idle(systems: Iterable[str], called: Mapping[str, str]) -> pd.DataFrame:
    """What one failed part takes with it: a row a part, in the column of each system words; lanes are left out."""
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
    ways: Mapping[str, tuple[System, str]], field: str, values: NDArray, *, fleet: Fleet, **ask: Any
) -> pd.DataFrame:
    """Goodput of systems and ways of repair over one number of the fleet: of, that number by its name, goodput."""
    at = replace(fleet, **{field: values}, ranges={})
    found = {name: goodput(spec, swap=swap, fleet=at, **ask).goodput for name, (spec, swap) in ways.items()}
    return pd.concat([pd.DataFrame({"of": name, field: values, "goodput": y}) for name, y in found.items()])


def standing_by(spec: System, fleet: Fleet, sizes: Iterable[float], model: str) -> pd.DataFrame:
    """Spare chips by size of the job and way of repair, and their share of all chips."""

    def told(job: Goodput) -> str:
        return f"{counted(float(job.spare_chips), 'chip')}, {format_digits(100 * float(job.spare_lost), 2)}%"

    return tidy(
        [
            {"chips of the job": float(chips)}
            | {f"spares, {HOW[way]}": told(goodput(spec, chips, model=model, swap=way, fleet=fleet)) for way in SWAPS}
            for chips in sizes
        ]
    )


def served(systems: Mapping[str, str], chips: float, count: int, needed: int, fleet: Fleet) -> pd.DataFrame:
    """Hours a year that a replica, or `needed` of `count`, do not work: median of draws with its band."""
    cases = {"one replica is away": (1, 1), f"fewer than {needed} of {count} work": (count, needed)}
    keys = [(name, swap, label) for name in systems for swap in SWAPS for label in [*cases][: min(count, 2)]]

    def ask(fleet: Fleet) -> dict[str, Any]:
        there = {key: replica_availability(key[0], chips, *cases[key[2]], swap=key[1], fleet=fleet) for key in keys}
        return {"|".join(key): (1 - share) * YEAR / HOUR for key, share in there.items()}

    told = sensitivity(ask, {"fleet": fleet}, DRAWS).percentiles().set_index("answer")[["p50", "p5", "p95"]]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, swap, label in keys:
        row = rows.setdefault((name, swap), {"system": systems[name], "with": HOW[swap]})
        row[f"{label} [h a year]"] = format_within(*told.loc[f"{name}|{swap}|{label}"])
    return tidy(list(rows.values()))


def drawn(systems: Mapping[str, str], fleet: Fleet, pair: tuple[System, System] | None, **ask: Any) -> Sensitivity:
    """Goodput of every system on common draws; of a `pair` the second less the first as "spare lanes"."""

    def answer(fleet: Fleet) -> dict[str, Any]:
        found: dict[str, Any] = {word: goodput(name, fleet=fleet, **ask).goodput for name, word in systems.items()}
        if pair:
            bare, spared = (goodput(spec, fleet=fleet, **ask).goodput for spec in pair)
            found["spare lanes"] = spared - bare
        return found

    return sensitivity(answer, {"fleet": fleet}, DRAWS)


def told(found: Sensitivity) -> dict[str, str]:
    """The median of the draws of each answer in per cent, with the 5th and the 95th percentile."""
    ends = {row.answer: (100 * row.p50, 100 * row.p5, 100 * row.p95) for row in found.percentiles().itertuples()}
    return {name: format_within(*three, "%").replace(" %", "%") for name, three in ends.items()}


def tornado(found: Sensitivity, answer: str) -> pd.DataFrame:
    """What is lost with one input after another at its 5th and 95th percentile: which, lost_share with its ends."""
    value, table = found.bars[answer][0], found.tornado(answer)
    ends = 1 - table[["answer_low", "answer_high"]].assign(value=value)
    rows = {"which": table.input.str.removeprefix("fleet.").map(INPUTS), "lost_share": 1 - value}
    rows |= {"lost_share_low": ends.min(axis=1), "lost_share_high": ends.max(axis=1)}
    return pd.DataFrame(rows).assign(basis="extrapolated")[table.swing > 0].reset_index(drop=True)
