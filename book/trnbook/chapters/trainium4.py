"""Tables of the chapter on Trainium4: what is announced and what is assumed, gains over Trainium3, and a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnbook.chapters import common, guard
from trnbook.shared import market
from trnbook.shared.ledger import estimated, rests_on
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import System
from trnmodel.draws import range_of
from trnmodel.quantities import quantity
from trnmodel.result import in_sentence, tidy
from trnmodel.search.compare import Comparison
from trnmodel.search.token_cost import TokenCosts
from trnmodel.steps.answers import Step
from trnmodel.units import format_digits, format_quantity

TIMES = "times_as_much"
ASSUMED = "assumed: "  # begins the locator of what nobody announced
ENDS = ("", "_low", "_high")
JOULES = "server_j_per_token"
TODAY, IDEAL = "today's software", "ideal software"
PARTS = {"compute_s": "arithmetic", "memory_s": "reads of HBM", "network_s": "exchanges", "overhead_s": "overheads"}
NAMES = {  # of what the sources announce or claim of Trainium3, by the qualifier of the row
    "performance announced in 2024": "performance, announced in 2024",
    "memory bandwidth of an UltraServer": "HBM bandwidth, rack",
    "peak compute": "8-bit peak, rack",
}


def check(system: System, systems: Sequence[System]) -> None:
    """Refuse systems that are on no roadmap, and one to compare with that is none of Trainium3.

    Examples
    --------
    >>> import trnmodel as tm
    >>> check(tm.system("trn3-nl72x2-pcie160"), [tm.system("trn4-ualink-roadmap")])
    """
    guard.some(systems=list(systems))
    for spec in systems:
        guard.need(bool(spec.chip.ratios_to), f"systems: {spec.id!r} is on no roadmap; {_allowed()}")
        own = spec.chip.ratios_to
        guard.need(system.chip.id == own, f"system = {system.id!r} has no {own}, to which {spec.chip.id} has ratios")
    guard.need(len({spec.id for spec in systems}) == len(systems), "systems must name each system once")


def _allowed() -> str:
    """Return which systems are on a roadmap."""
    from trnmodel.catalog.systems import systems

    return f"allowed are {', '.join(name for name in systems(roadmap=True) if name not in systems())}"


def ratios(chip: Chip) -> pd.DataFrame:
    """Return what is announced of a chip as ratios to another one, with both figures.

    Returns
    -------
    table : pandas.DataFrame
        figure, announced (as printed), before, after, source. [-]

    Examples
    --------
    >>> table = ratios(load.chip("trainium4-roadmap"))
    >>> sorted(table.announced)
    ['2', '4', 'at least 3', 'at least 6']
    """
    base, rows = load.chip(chip.ratios_to), list[dict[str, Any]]()
    for label, ids in chip.sources.items():
        fact = load.facts_rows()[ids[0]]
        if fact.quantity == "ratio_to_base":
            name, _, dtype = label.removesuffix("]").partition("[")
            unit = quantity(name).unit
            values = (format_quantity(float(one.at(label)), unit, 3) for one in (base, chip))
            row = {"figure": " ".join(filter(None, (in_sentence(quantity(name).title), dtype.upper())))}
            row |= {"announced": fact.value_printed} | dict(zip((base.name, chip.name), values, strict=True))
            rows.append(row | {"source": load.sources()[fact.source].title})
    return pd.DataFrame(rows)


def assumed(*specs: Chip | System) -> pd.DataFrame:
    """Return the ranges of specs that are our own, each with where it begins and ends, and why.

    Returns
    -------
    table : pandas.DataFrame
        of, figure, range, rule, reason; one row for each fact. [-]

    Examples
    --------
    >>> table = assumed(load.chip("trainium4-roadmap")).set_index("figure")
    >>> table.range["TDP"], table.rule["TDP"]
    ('700 to 3,000 W', "Trainium3's low to three times its high")
    """
    rows, facts = dict[str, dict[str, Any]](), load.facts_rows()
    for spec in specs:
        for label in spec.ranges:
            fact = facts[spec.sources[label][0]]
            if fact.locator.startswith(ASSUMED):
                cores = f", {fact.qualifier} cores" if fact.qualifier else ""
                ends = " to ".join(f"{float(end):,g}" for end in fact.value_printed.split("-"))
                row = {"of": load.entities()[fact.entity].name, "figure": f"{quantity(fact.quantity).title}{cores}"}
                row |= {"range": f"{ends} {fact.unit_printed}", "rule": fact.locator.removeprefix(ASSUMED)}
                rows[fact.id] = row | {"reason": fact.note}
    return pd.DataFrame(rows.values()).sort_values(["of", "figure"], kind="stable", ignore_index=True)


def gains(
    model: str, software: str, side: Comparison, costs: Mapping[str, TokenCosts], base: str, kind: str = "public"
) -> Iterator[dict[str, Any]]:
    """Yield how many times a base's tokens each other system makes: per chip, per owner's dollar and per joule.

    Of chips and dollars the ranges are those of common draws. Those of joules join the errors of both as independent.
    """
    choices = {c.system.id: c for c in side.at() if c.valid}
    able = (costs[name] for name in choices if market.any_cost(costs[name], kind))
    drawn = {name: values for one in able for name, values in one.draws(kind, draws=1000).values.items()}
    for name in (name for name in choices if name != base and base in choices):
        about = {"model": model, "software": software, "system": name}
        more = side.difference(name, base)
        yield about | _times("per chip", 1 + more.value, 1 + more.low, 1 + more.high)
        usd = [float(costs[one][one, kind].generated_usd_per_mtoken) for one in (base, name)]
        yield about | _times("per owner's dollar", usd[0] / usd[1], *_ratio(drawn, base, name))
        yield about | _times("per joule", *_joules(choices[base].energy(), choices[name].energy()))


def planned(
    model: str, software: str, side: Comparison, costs: Mapping[str, TokenCosts], kind: str = "public"
) -> Iterator[dict[str, Any]]:
    """Yield what each system makes of a request: its mapping, tokens per chip, joules and the owner's dollars."""
    valid = {c.system.id: c for c in side.at() if c.valid}
    for name, c in ((name, valid[name]) for name in costs if name in valid):
        energy, cost = c.energy(), costs[name][name, kind]
        row = {"model": model, "system": c.system.id, "software": software, "chips": c.chips, "sequences": c.batch}
        row |= c.banded("tokens_per_s_per_chip")
        row |= dict(
            zip((f"{JOULES}{end}" for end in ENDS), (energy.server_j_per_token, *energy.ends(JOULES)), strict=True)
        )
        ends = (cost.generated_usd_per_mtoken, *cost.ends("generated_usd_per_mtoken"))
        yield row | dict(zip((f"usd_per_mtoken{end}" for end in ENDS), ends, strict=True))


def _times(measure: str, value: float, low: float, high: float) -> dict[str, Any]:
    return {"measure": f"tokens {measure}"} | dict(
        zip((f"{TIMES}{end}" for end in ENDS), (value, low, high), strict=True)
    )


def _ratio(drawn: Mapping[str, NDArray], one: str, other: str) -> tuple[float, float]:
    """Return the ends of the ratio of two costs in common draws.

    Examples
    --------
    >>> _ratio({"a": np.array([1.0, 3.0]), "b": np.array([1.0, 1.0])}, "a", "b")
    (1.0, 3.0)
    """
    return range_of(drawn[one] / drawn[other]) if {one, other} <= set(drawn) else (np.nan, np.nan)


def _joules(one: Any, other: Any) -> tuple[float, float, float]:
    """Return the ratio of two energies per token, and its ends where their errors are independent."""
    value = float(one.server_j_per_token / other.server_j_per_token)
    (below, above), (less, more) = one.widths(JOULES), other.widths(JOULES)
    return value, value * float(np.exp(-np.hypot(below, more))), value * float(np.exp(np.hypot(above, less)))


def table_of(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows of `gains` as a table, which has its columns also where no promise is kept.

    Examples
    --------
    >>> table_of([]).columns.tolist()[:4]
    ['model', 'software', 'system', 'measure']
    """
    columns = ["model", "software", "system", "measure", *(f"{TIMES}{end}" for end in ENDS)]
    return pd.DataFrame([dict(row) for row in rows], columns=columns)


def shown(table: pd.DataFrame, system: str) -> pd.DataFrame:
    """Return what the first chart shows: the gains of one rack on both kinds of software."""
    own = table[table.system == system]
    own = own.assign(measure=own.measure + ", " + own.software, rank=own.software.map([IDEAL, TODAY].index))
    return own.sort_values("rank", kind="stable")[["measure", "model", *(f"{TIMES}{end}" for end in ENDS)]]


def per_chip(table: pd.DataFrame) -> pd.DataFrame:
    """Return the gains per chip alone, with the systems by name."""
    return table[table.measure == "tokens per chip"].drop(columns="measure")


def answer(table: pd.DataFrame, model: str, before: System, after: System) -> str:
    """Return the card: the gain per chip on ideal software, that on today's, and what it rests on."""
    rows = table[(table.model == model) & (table.system == after.id) & (table.measure == "tokens per chip")]
    by_software = rows.set_index("software")
    for one in (IDEAL, TODAY):
        why = f"the promise of {model} is not kept on both {before.id} and {after.id} with {one}"
        guard.possible(one in by_software.index, why)
    estimates = [*estimated(after.chip, "tdp_w"), *estimated(after, "scaleup_bytes_per_s_per_dir")]
    return common.card(
        in_times(by_software.loc[IDEAL]).removesuffix(")") + "; ideal)",
        f"tokens/s per chip of {after.name} over {before.name}, for {model} on software that loses nothing, if all "
        "that is announced arrives",
        mark="",
        rival=f"{in_times(by_software.loc[TODAY])} on today's software",
        proof="Check: what came of the announcement of Trainium3?",
        more=rests_on(*estimates, after.chip.default_stack),
    )


def in_times(row: Any) -> str:
    """Return a ratio with its range in words.

    Examples
    --------
    >>> in_times(pd.Series({TIMES: 3.687, f"{TIMES}_low": 0.312, f"{TIMES}_high": 12.04}))
    '3.7 times (0.31 to 12)'
    """
    value, low, high = (format_digits(float(row[f"{TIMES}{end}"]), 2) for end in ENDS)
    return f"{value} times ({low} to {high})"


def roofs(peaks: Mapping[str, tuple[Chip, str]], intensity: NDArray, rate: Any) -> pd.DataFrame:
    """Return the attainable rate of each chip and format over intensities, by a function of the library."""
    frames = [
        pd.DataFrame(
            {
                "roof": name,
                "intensity_flop_per_byte": intensity,
                "attainable_flop_per_s": rate(intensity, chip.peak(dtype), chip.hbm_bytes_per_s),
            }
        )
        for name, (chip, dtype) in peaks.items()
    ]
    return pd.concat(frames, ignore_index=True)


def parts(steps: Mapping[str, Step]) -> pd.DataFrame:
    """Return the time of each part of each step, alone.

    Returns
    -------
    table : pandas.DataFrame
        what, part, time_s, basis. [-]
    """
    rows = [
        {"what": what, "part": part, "time_s": float(getattr(step, name)), "basis": str(step.basis)}
        for what, step in steps.items()
        for name, part in PARTS.items()
    ]
    return tidy(rows)


def delivered(old: System, new: System) -> pd.DataFrame:
    """Return what was announced of Trainium3 over Trainium2 and what its data sheets give, per chip and per rack.

    Returns
    -------
    table : pandas.DataFrame
        figure, per, times_as_much. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> table = delivered(tm.system("trn2-ultraserver"), tm.system("trn3-nl72x2-pcie160"))
    >>> [float(round(one, 2)) for one in table.times_as_much]
    [1.94, 4.36, 1.01, 2.26, 1.69, 3.8, 1.5, 3.38]
    """
    both = (old.chip, new.chip)
    figures = {
        "8-bit peak": [chip.peak(dtype) for chip, dtype in zip(both, ("fp8", "mxfp8"), strict=True)],
        "BF16 peak": [chip.peak("bf16") for chip in both],
        "HBM bandwidth": [chip.hbm_bytes_per_s for chip in both],
        "HBM capacity": [chip.hbm_bytes for chip in both],
    }
    scopes = {"per chip": 1.0, "per UltraServer": new.chips / old.chips}
    return pd.DataFrame(
        [
            {"figure": figure, "per": scope, "times_as_much": float(after / before * more)}
            for figure, (before, after) in figures.items()
            for scope, more in scopes.items()
        ]
    )


def claims() -> pd.DataFrame:
    """Return what AWS and the press said of Trainium3 over Trainium2, with the source of each.

    Returns
    -------
    table : pandas.DataFrame
        claim, claimed (as printed), source, note. [-]
    """
    rows = [fact for fact in load.facts_rows().values() if fact.quantity == "claimed_ratio"]
    return pd.DataFrame(
        [
            {"claim": NAMES.get(fact.qualifier, fact.qualifier), "claimed": fact.value_printed}
            | {"source": load.sources()[fact.source].title, "note": fact.note}
            for fact in rows
        ]
    )


def sources(*specs: Chip | System) -> pd.DataFrame:
    """Return the sources of specs, once each."""
    return common.bibliography(sorted(load.fact_sources(*specs)))
