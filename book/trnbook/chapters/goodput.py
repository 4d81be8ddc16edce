"""Tables of lost time: failures of a rack by part, losses by cause, racks as they may be built, open inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from IPython.display import Markdown

from trnbook.chapters import common, guard
from trnbook.shared import ledger
from trnmodel.catalog import load
from trnmodel.catalog.fleets import Fleet
from trnmodel.catalog.fleets import fleet as read_fleet
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.reliability.goodput import COUNTED, Goodput
from trnmodel.reliability.redundancy import SWAPS, guards, rack_alternatives
from trnmodel.search.capacity import Capacity
from trnmodel.search.sensitivity import Sensitivity
from trnmodel.units import YEAR, counted, format_digits, format_duration, format_within

CAUSES: Mapping[str, str] = {
    "chip": "chips with memory",
    "host": "hosts and trays",
    "network": "scale-out network",
    "software": "software",
}
LANES, SWITCHES, CABLES = "backplane lanes", "switch chips", "cables between racks"
RATES: Mapping[str, str] = {
    LANES: "lane_failures_per_s",
    SWITCHES: "switch_failures_per_s",
    CABLES: "cable_failures_per_s",
}
LOSSES: Mapping[str, tuple[str, ...]] = {  # parts of a bar, with the losses that each sums
    "restarts": ("restarting",),
    "work done again": ("redone",),
    "checkpoints": ("writing",),
    "spares, repairs and slow racks": ("spare", "waiting", "slowed"),
}
REPAIRED: Mapping[str, str] = {
    "hot": "trays are swapped while the rack runs",
    "drain": "racks are drained for a repair",
}
INSTEAD: Mapping[str, str] = {"hot": "trays are swapped", "drain": "racks are drained"}
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
BORROWED = "borrowed"
SIZES = tuple(4**n for n in range(5, 9))  # 1,024 to 65,536 chips of the jobs of a table
WORKED_DAYS = 30  # of a run whose length in the calendar is printed
MILLION_HOURS = 3.6e9  # [s]
MOVED = 0.06  # of what is lost, below which an input moves little
LEAST, NEARLY = 0.01, 0.5  # per cent below which a share, and a loss, are printed as bounds


class Part(NamedTuple):
    """A kind of part: how many a rack has, how often one fails with its ends, and whether spares cover it."""

    name: str
    number: float
    per_s: float
    low: float
    high: float
    spared: bool


def check(system: str, systems: Iterable[str], swap: str, fleet: str) -> tuple[list[System], Fleet]:
    """Return the systems and the fleet, once what was asked for can be answered."""
    guard.one_of(SWAPS, swap=swap)
    guard.one_of([name for name, entity in load.entities().items() if entity.kind == "fleet"], fleet=fleet)
    specs = {spec.id: spec for spec in map(read_system, [system, *systems])}
    for i, spec in enumerate(specs.values()):
        guard.links(**{"systems" if i else "system": spec})
    return list(specs.values()), read_fleet(fleet)


def _counts(spec: System, swap: str) -> dict[str, tuple[float, bool]]:
    """Return lanes, switches and cables of one rack that fail by themselves, and whether a spare takes over."""
    racks = 1.0 if np.isnan(spec.racks) else float(spec.racks)
    counts: dict[str, tuple[float, bool]] = {}
    for one in guards(spec):
        parts = one.groups * one.parts / racks
        for name, each in ((LANES, one.lanes), (SWITCHES, one.switches), (CABLES, one.cables)):
            if each:
                number, spared = counts.get(name, (0.0, True))
                counts[name] = number + parts * each, spared and one.spares > 0 and swap == "hot"
    return counts


def rack(spec: System, fleet: Fleet, swap: str = "hot") -> pd.DataFrame:
    """Return what fails in one rack in a year by part, most often first: part, number, failures_per_year, spared.

    Interruptions of chips are shared out by cause as the fleet counted them, or as Llama 3's fleet did. A server or a
    domain whose racks no source counts is one rack. A spare covers nothing where its rack is drained.

    Examples
    --------
    >>> rack(read_system("trn3-nl32x2-pcie160"), read_fleet()).part[0]
    'backplane lanes'
    """
    chips = float(spec.domain_chips / (1.0 if np.isnan(spec.racks) else spec.racks))
    causes = fleet.causes or read_fleet(COUNTED).causes
    own, ends = fleet.interruptions_per_chip_s, fleet.range("interruptions_per_chip_s")
    parts = [
        Part(CAUSES[name], chips, share * own, share * ends[0], share * ends[1], False)
        for name, share in causes.items()
    ]
    for name, (number, spared) in _counts(spec, swap).items():
        parts.append(Part(name, number, fleet.at(RATES[name]), *fleet.range(RATES[name]), spared))
    rows = [
        {"part": one.name, "number": one.number, "spared": one.spared}
        | dict(zip(("failures_per_year", "failures_per_year_low", "failures_per_year_high"), yearly, strict=True))
        for one in parts
        for yearly in [[one.number * rate * YEAR for rate in (one.per_s, one.low, one.high)]]
    ]
    return pd.DataFrame(rows).sort_values("failures_per_year", ascending=False, kind="stable", ignore_index=True)


def never(fleet: Fleet, part: str) -> Fleet:
    """Return a fleet of which one kind of part never fails.

    Examples
    --------
    >>> never(read_fleet(), "backplane lanes").lane_failures_per_s
    0.0
    """
    if part in RATES:
        return fleet.moved({RATES[part]: 0.0})
    causes = fleet.causes or read_fleet(COUNTED).causes
    (name,) = (name for name, said in CAUSES.items() if said == part)
    return fleet.moved({"interruptions_per_chip_s": fleet.interruptions_per_chip_s * (1 - causes.get(name, 0.0))})


def priced(parts: pd.DataFrame, job: Goodput, without: Mapping[str, Goodput]) -> pd.DataFrame:
    """Return the parts of a rack with the useful time that a job gains if each never failed, and a label for a bar."""
    lost = [max(float(without[part].goodput - job.goodput), 0.0) for part in parts.part]
    yearly = parts.failures_per_year.map(lambda x: f"{x:.1f}" if x < 10 else f"{x:.0f}")
    cost = pd.Series(lost).map(lambda share: f": {share:.1%}" if share >= LEAST / 10 else ": under 0.1%")
    label = parts.part + ", " + yearly + " per year" + parts.spared.map({True: " (spared)", False: ""}) + cost
    return parts.assign(lost_share=lost, of=label)


def claim(parts: pd.DataFrame) -> str:
    """Return as a title which part fails most often, and which costs most useful time."""
    often, dear = parts.part[parts.failures_per_year.idxmax()], parts.part[parts.lost_share.idxmax()]
    said = often.capitalize()
    return f"{said} fail most often and cost most" if often == dear else f"{said} fail most often, {dear} cost most"


def dearest(parts: pd.DataFrame) -> list[str]:
    """Return the labels of the parts that fail most often, and that cost most useful time."""
    return [parts.of[parts[name].idxmax()] for name in ("failures_per_year", "lost_share")]


def multiplied(parts: pd.DataFrame) -> Markdown:
    """Return in words how the failures of the part that fails most often follow from its number and its rate."""
    one = parts.loc[parts.failures_per_year.idxmax()]
    each = format_digits(one.failures_per_year / one.number / YEAR * MILLION_HOURS, 2)
    most = format_digits(one.failures_per_year, 2)
    return Markdown(
        f"One rack has {one.number:,.0f} {one.part}, of which each fails {each} times in a million hours. "
        f"In a year of 8,760 hours they fail {most} times together."
    )


def answer(
    job: Goodput, others: Mapping[str, Goodput], fleet: Fleet, draws: Sensitivity, repaired: Goodput | None = None
) -> Markdown:
    """Return the card that opens the chapter: the useful share of the time, the next system, and how sure it is.

    The range holds nine of ten draws of all rates. `repaired` is the same job with the other kind of repair.
    """
    name, best = max(others.items(), key=lambda one: float(one[1].goodput)) if others else ("", job)
    model = job.model.id if job.model else ""
    chips = counted(float(job.chips), "chip")
    cuts = draws.percentiles().iloc[0]
    shares = [100 * float(end) for end in (job.goodput, cuts.p5, cuts.p95)]
    taken = format_digits(WORKED_DAYS * float((1 - job.spare_lost) / job.goodput), 2)
    return Markdown(
        common.card(
            shares if percent(job)[0].isdigit() else percent(job),
            f"the share of chip time that is useful in training `{model}` on {chips} of {job.system.name}, "
            f"if {REPAIRED[job.swap]}. {_otherwise(repaired)}"
            f"The job is interrupted every {format_duration(float(job.mtbf_s))}. "
            f"Work of {WORKED_DAYS} days takes {taken} days in the calendar",
            unit="%",
            mark=str(job.basis),
            rival=f"{name} keeps {100 * float(best.goodput):.3g}%" if others else "",
            alone="" if others else "no other system was asked for",
            proof="Check against jobs whose uptime was printed",
            more="**How sure is this?** No failure rate of Trainium2 or Trainium3 is published. Rates are "
            f"{_whose(fleet)}. All systems get the same rates of their parts, so they differ here by their design "
            f"alone. The range holds nine of ten draws of the rates. {_swapped(job)}\n\n"
            + ledger.rests_on(*ledger.estimated(fleet, *INPUTS)),
        )
    )


def _otherwise(other: Goodput | None) -> str:
    """Return the useful share with the other kind of repair; empty without one."""
    if other is None:
        return ""
    return f"If {INSTEAD[other.swap]} instead, it is {percent(other).partition(' (')[0]}. "


def _swapped(job: Goodput) -> str:
    """Return for whom a source says that trays can be swapped, where a job's racks have no spare switch."""
    spared = any(one.spares for one in guards(job.system))
    if job.swap != "hot" or spared or job.system.chip.core is None:
        return ""
    return "SemiAnalysis reports such swaps for racks with a spare tray, and this rack has none as drawn."


def factors(job: Goodput) -> pd.DataFrame:
    """Return the four factors of the useful share, and their product: factor, symbol, value.

    Examples
    --------
    >>> import trnmodel as tm
    >>> table = factors(tm.goodput("trn2-ultraserver", 4096, model="llama-3.1-8b"))
    >>> bool(np.isclose(table.value[:4].prod(), table.value[4]))
    True
    """
    parts = {
        ("chips that do not stand by", "1 - s"): 1 - job.spare_lost,
        ("time with enough chips", "A"): job.ready_share,
        ("time whose work is kept", "u"): job.useful_share,
        ("mean speed", "v"): job.speed,
        ("useful share, their product", "G"): job.goodput,
    }
    return pd.DataFrame({"factor": name, "symbol": symbol, "value": float(x)} for (name, symbol), x in parts.items())


def _whose(fleet: Fleet) -> str:
    return (
        "borrowed from other fleets" if fleet.id == BORROWED else f"those of {fleet.name}, borrowed where it has none"
    )


def percent(job: Goodput, basis: str = "") -> str:
    """Format goodput with its band; near 100 % the loss is given, and below `LEAST` only that."""
    value, low, high = (100 * float(end) for end in (job.goodput, job.low, job.high))
    if value < LEAST:
        return f"under {LEAST}%"
    if value > 100 - NEARLY:
        return "all but " + format_within(100 - value, 100 - high, 100 - low, "%", basis).replace(" %", "%")
    return format_within(value, low if low > LEAST else 0.0, high, "%", basis).replace(" %", "%")


def short(spec: System) -> str:
    """Return the name of a system without its generation, where a rack's name is left.

    Examples
    --------
    >>> short(read_system("trn3-nl72x2-pcie160")), short(read_system("hgx-h100"))
    ('NL72x2', '8 x H100 SXM')
    """
    return spec.name.removeprefix("Trainium3 ").removesuffix(" Switched")


def variants(specs: Iterable[System]) -> dict[str, tuple[System, str]]:
    """Return each system with trays swapped, with other numbers of switch trays, and with racks drained, by a label.

    Examples
    --------
    >>> list(variants([read_system("trn3-nl32x2-pcie160")]))
    ['NL32x2, trays swapped', 'NL32x2, 5 switch trays', 'NL32x2, racks drained']
    """
    bars = {}
    for spec in specs:
        name = short(spec)
        bars[f"{name}, {HOW['hot']}"] = spec, "hot"
        others = {how: one for how, one in rack_alternatives(spec).items() if how[:1].isdigit()}
        bars |= {f"{name}, {how}": (one, "hot") for how, one in others.items()}
        bars[f"{name}, {HOW['drain']}"] = spec, "drain"
    return bars


def losses(jobs: Mapping[str, Goodput]) -> pd.DataFrame:
    """Return where the time of all chips is lost: of, part, lost_share, which sum to what is not useful."""
    rows = [
        {"of": name, "part": part, "lost_share": sum(float(getattr(job, f"{loss}_lost")) for loss in some)}
        for name, job in jobs.items()
        for part, some in LOSSES.items()
    ]
    return pd.DataFrame(rows)


def compare(jobs: Mapping[str, Goodput]) -> pd.DataFrame:
    """Return one row per job: goodput with band, time between interruptions and checkpoints, spares."""
    return pd.DataFrame(
        {"job": name, "useful share of the time": percent(job)}
        | {"between interruptions": format_duration(float(job.mtbf_s))}
        | {"between checkpoints": format_duration(float(job.interval_s))}
        | {"spare chips": float(job.spare_chips), "out together": counted(job.failure_domain_chips, "chip")}
        for name, job in jobs.items()
    )


def sizes(jobs: Mapping[float, Goodput]) -> pd.DataFrame:
    """Return jobs by size: chips, interruptions, the best interval, spares, and the useful share with its band."""
    return pd.DataFrame(
        {"chips": float(chips), "between interruptions": format_duration(float(job.mtbf_s))}
        | {"best interval": format_duration(float(job.interval_s)), "spare chips": float(job.spare_chips)}
        | {"useful share": percent(job)}
        for chips, job in jobs.items()
    )


def built(specs: Iterable[System]) -> dict[str, tuple[System, str]]:
    """Return each rack with redundant lanes in every way that it may be built, with what it then has to spare.

    Examples
    --------
    >>> built([read_system("trn3-nl72x2-pcie160")])["Trainium3 NL72x2 Switched, 8 switch trays"][1]
    'nothing'
    """
    racks = {}
    for spec in specs:
        alternatives = rack_alternatives(spec)
        for how, one in alternatives.items() if len(alternatives) > 1 else ():
            spare = [f"{part.spares} of {part.parts} {SPARED[part.name]}" for part in guards(one) if part.spares]
            racks[f"{spec.name}, {how}"] = one, "; ".join(spare) or "nothing"
    return racks


def alternatives(racks: Mapping[str, tuple[System, str]], jobs: Mapping[str, Goodput]) -> pd.DataFrame:
    """Return racks as they may be built: what each has to spare, the time between interruptions, the useful share."""
    return pd.DataFrame(
        {"built": name, "to spare": spare, "between interruptions": format_duration(float(jobs[name].mtbf_s))}
        | {"useful share": percent(jobs[name])}
        for name, (_, spare) in racks.items()
    )


def hours(model: str, system: str, capacity: Capacity) -> pd.DataFrame:
    """Return the hours of a year in which a replica is out by cause: of, cause, lost_h."""
    table = capacity.losses()
    joined = table.cause.where(table.cause.isin(["chip", "links and switches"]), "host, network, software")
    summed = table.groupby(joined, sort=False).h_per_year.sum()
    name = f"{model}, {short(read_system(system))}"
    return pd.DataFrame({"of": name, "cause": summed.index, "lost_h": summed.to_numpy()})


def rules(job: Goodput, lost: Mapping[str, Goodput]) -> pd.DataFrame:
    """Return rules for the interval with the share that a job loses at each: rule, interval_s, lost_share."""
    return pd.DataFrame(
        {"rule": name, "interval_s": float(one.interval_s), "lost_share": 1 - float(one.useful_share)}
        for name, one in {"best": job, **lost}.items()
    )


def tornado(draws: Sensitivity) -> pd.DataFrame:
    """Return the lost share with each input at its 5th and 95th percentile, the widest first: which, and its ends."""
    table, value = draws.tornado(), float(draws.percentiles().value[0])
    table = table[table.swing >= min(MOVED * (1 - value), table.swing.max())].reset_index(drop=True)
    ends = 1 - table[["answer_low", "answer_high"]]
    rows = {"which": table.input.str.removeprefix("fleet.").map(INPUTS), "lost_share": 1 - value}
    return pd.DataFrame(rows | {"lost_share_low": ends.min(axis=1), "lost_share_high": ends.max(axis=1)})


def spread(draws: Sensitivity) -> str:
    """Return as a subtitle between which values nine of ten draws of all inputs lie."""
    cuts = draws.percentiles().iloc[0]
    low, high = (format_digits(100 * (1 - float(end)), 2) for end in (cuts.p95, cuts.p5))
    return f"nine of ten draws of all inputs lose between {low}% and {high}%"


def sources(fleet: Fleet, used: Iterable[str]) -> list[str]:
    """Return the ids of the sources behind rates, times and printed jobs of the chapter."""
    facts = load.facts_rows()
    counted_ = {
        facts[fact_id].source for one in (fleet, read_fleet()) for ids in one.sources.values() for fact_id in ids
    }
    return sorted((counted_ | set(used) | QUOTED) - {"project"})


QUOTED = {  # sources of the ends of the borrowed rates
    *("lockwood-component-reliability", "lockwood-availability", "meta-rsc", "crusoe-autoclusters", "mlsysim-defaults"),
    *("xuzou-llama3", "orbital-gpu-failures", "semianalysis-gb200", "tpuv4-resiliency", "alibaba-hpn"),
}
