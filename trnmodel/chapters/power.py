"""Where watts go: joules a token beside each other, a chip by part, boundaries, sites, a vendor's claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from trnmodel.catalog import load
from trnmodel.catalog.facilities import ends, power
from trnmodel.catalog.specs import Chip, published
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence import energy as measured
from trnmodel.formulas import energy as page
from trnmodel.models.transformer import Transformer
from trnmodel.planner import software
from trnmodel.planner.claimed import claim_sets
from trnmodel.planner.power import HIGH, LOW, Energy, energy
from trnmodel.result import tidy
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.units import KW, MW, format_digits, format_within

PRECISIONS = ("mxfp8", "fp8", "bf16")
LEVEL = 0.01  # of a logarithm: joules that differ by less are level
SPENT = ["server_j_per_token", "server_j_per_token_low", "server_j_per_token_high"]
SYMBOLS = [
    ("P", "chip_w", "power of a chip while a step runs", "", "result"),
    ("P_TDP", "tdp_w", "thermal design power of a chip", "", "data"),
    ("i", "idle_share", "share of the TDP that is drawn when nothing runs", "", "fitted to GPUs"),
    ("u_f, u_m", "compute_utilisation, hbm_utilisation", "shares of peak and of HBM bandwidth in the step", "", "step"),
    ("a_f, a_m", "compute_activity, hbm_activity", "what full use of each counts", "", "fitted to GPUs"),
    ("e", "flop_j, byte_j", "energy of one operation, of one byte", "", "papers, by node of logic"),
    ("E", "server_j_per_token", "energy of a token", "", "result"),
    ("PUE", "annual_pue, peak_pue", "power of a site over that of its IT: of a year, of the hottest day", "", "data"),
]


def point(model: str | Transformer, line: Mapping[str, Any], context: float, **site: Any) -> Energy:
    """Energy of the decode step at a line of `software.answers`."""
    mapping = Degrees(tp=line["tp"], ep=line["ep"])
    ask = {"batch": line["batch"], "context": context, "precision": line["precision"], "efficiencies": line["stack"]}
    return energy(decode_step(model, line["system"], mapping, **ask), **site)


def joules(model: str | Transformer, systems: Iterable[str], speeds: Sequence[float], context: float) -> pd.DataFrame:
    """`software.answers` with joules a token and watts at the server, NaN where no mapping is as fast.

    Returns
    -------
    table : pandas.DataFrame
        The columns of `software.answers`, server_j_per_token with `_low` and `_high`, server_w, and half-widths of the
        logarithm of watts and of time, each below and above. The point stays while its time moves within its band. [-]
    """
    found = software.answers(model, systems, speeds, context, PRECISIONS)
    return tidy([line | _spent(model, line, context) for line in found.to_dict("records")])


def _spent(model: str | Transformer, line: Mapping[str, Any], context: float) -> dict[str, Any]:
    names = [*SPENT, "server_w", "watts_below", "watts_above", "time_below", "time_above"]
    if not line["tokens_per_s_per_chip"]:
        return dict.fromkeys(names, np.nan)
    e = point(model, line, context)
    told = (e.server_j_per_token, *e.ends(SPENT[0]), e.server_w, *e.widths("server_w"), *e.step.widths("time_s"))
    return dict(zip(names, map(float, told), strict=True)) | {"basis": e.basis}


def line_of(table: pd.DataFrame, speed: float, system: str) -> pd.Series | None:
    """The line of a system at a speed on the first kind of software, of public, hand-tuned and ideal, that reaches it."""
    at = table[(table.wanted_tokens_per_s_per_user == speed) & (table.system == system)].dropna(subset=SPENT[0])
    at = at.sort_values("software", key=lambda kind: kind.map(software.ORDER.index))
    return at.iloc[0] if len(at) else None


def moved_by(gap: float, line: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """What within the bands makes up for a gap between the logarithms of two lines' joules.

    Examples
    --------
    >>> ask = {"system": "hgx-h200", "watts_below": 0.1, "time_below": 0.3}
    >>> best = {"system": "gb200-nvl72", "watts_above": 0.1, "time_above": 0.2}
    >>> moved_by(0.15, ask, best), moved_by(0.4, ask, best), moved_by(0.55, ask, best), moved_by(0.9, ask, best)
    ('watts or speed', 'speed', 'both together', 'nothing')
    """
    if gap < LEVEL:
        return "level"
    chips = [read_system(str(one["system"])).chip.id for one in (line, best)]
    if chips[0] == chips[1]:
        return "nothing: the same chip"
    widths = {"watts": line["watts_below"] + best["watts_above"], "speed": line["time_below"] + best["time_above"]}
    alone = [name for name, width in widths.items() if width >= gap]
    return " or ".join(alone) or ("both together" if sum(widths.values()) >= gap else "nothing")


def beside(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`joules` of several models with a row a model, speed and system: J/token with bands, what would put it first."""
    rows = []
    for model, table in tables.items():
        for (speed, system), lines in table.groupby(["wanted_tokens_per_s_per_user", "system"], sort=False):
            row: dict[str, Any] = {"model": model, "wanted_tokens_per_s_per_user": speed, "system": system}
            for kind in (kind for kind in software.ORDER if kind in set(lines.software)):
                one = lines[lines.software == kind].iloc[0]
                row[kind] = "too slow" if np.isnan(one[SPENT[0]]) else software.in_band(*one[SPENT])
            rows.append(row | {"puts it first": _first(table, speed, system)})
    return pd.DataFrame(rows)


def _first(table: pd.DataFrame, speed: float, system: str) -> str:
    """By kind of software, what would put a system first at a speed."""
    said = list[str]()
    for kind in software.ORDER:
        there = table[(table.wanted_tokens_per_s_per_user == speed) & (table.software == kind)].dropna(subset=SPENT[0])
        own = there[there.system == system]
        if len(own):
            best, line = there.loc[there[SPENT[0]].idxmin()], own.iloc[0]
            word = "is" if best.system == system else moved_by(np.log(line[SPENT[0]] / best[SPENT[0]]), line, best)
            said.append(f"{kind}: {word}")
    return ", ".join(said)


def parts(energies: Mapping[str, Energy]) -> pd.DataFrame:
    """Watts of each chip by what it does, from shares of its TDP: of, part, chip_w, tdp_w."""
    rows = [
        {"of": name, "part": part, "chip_w": float(getattr(e, f"{field}_w")), "tdp_w": float(e.tdp_w)}
        for name, e in energies.items()
        for part, field in (("idle", "idle"), ("compute", "compute"), ("HBM", "hbm"))
    ]
    return pd.DataFrame(rows)


def both_ways(e: Energy) -> pd.DataFrame:
    """Watts of a chip from shares of its TDP and from energies of operations and bytes: part, shares_w, energies_w."""
    pairs = [("idle, static", "idle", "static"), ("compute, operations", "compute", "operations")]
    pairs += [("HBM and SBUF", "hbm", "memory"), ("links", "", "links"), ("all, at most the TDP", "chip", "bottom_up")]
    low, high = e.at(LOW), e.at(HIGH)
    rows = []
    for part, *names in pairs:
        row: dict[str, Any] = {"part": part}
        for column, name in zip(("shares", "energies"), names, strict=True):
            value = float(getattr(e, f"{name}_w")) if name else np.nan
            sides = [float(end[f"{name}_w"]) if name in ("chip", "bottom_up") else value for end in (low, high)]
            row |= {f"{column}_w_low": sides[0], f"{column}_w": value, f"{column}_w_high": sides[1]}
        rows.append(row)
    return pd.DataFrame(rows)


def sites(energies: Mapping[str, Energy]) -> pd.DataFrame:
    """What a megawatt of a site holds and makes: PUE, IT power on the hottest day, chips, tokens/s; joules of a year."""
    rows = []
    for name, e in energies.items():
        low, high = map(float, e.ends("tokens_per_s_per_site_mw"))
        site = e.facility
        rows.append(
            {"system": name, "site": site.id, "annual PUE": site.annual_pue, "peak PUE": site.peak_pue}
            | {"IT of a site MW [kW]": page.it_w(MW, site.peak_pue) / KW, "chips a site MW": float(e.chips_per_site_mw)}
            | {"tokens/s a site MW": format_within(float(e.tokens_per_s_per_site_mw), low, high)}
            | {"J/token with annual PUE": software.in_band(float(e.facility_j_per_token),
                                                           *map(float, e.ends("facility_j_per_token")))}
        )  # fmt: skip
    return pd.DataFrame(rows)


def largest(sets: pd.DataFrame) -> pd.DataFrame:
    """Sets of claims that agree and that no larger one holds.

    Examples
    --------
    >>> largest(claim_sets()).claims.tolist()[-1]
    'peak compute + speed + power for equal work'
    """
    agree = [set(claims.split(" + ")) for claims in sets.claims[sets.agree]]
    inside = sets.claims.map(lambda one: any(set(one.split(" + ")) < other for other in agree))
    return sets[sets.agree & ~inside]


def region(sets: pd.DataFrame, new: Chip, old: Chip) -> pd.DataFrame:
    """Speed of a chip over work for each joule: how many single claims hold there, and whether the watts are the TDP's."""
    single = sets[~sets.claims.str.contains("+", regex=False)]
    axes = []
    for name, step, end in (("speed", 0.5, 3.5), ("efficiency", 0.5, 6.0)):
        sides = single[[f"{name}_low", f"{name}_high"]].replace(np.inf, np.nan).mask(lambda t: t == 0)
        axes.append(np.unique(np.round([*np.arange(step, end + step, step), *sides.mean(axis=1).dropna()], 2)))
    speed, work = (x.ravel() for x in np.meshgrid(*axes))
    held = sum(
        ((one.speed_low <= speed) & (speed <= one.speed_high) & (one.efficiency_low <= work) & (work <= one.efficiency_high))
        .astype(int) for one in single.itertuples()
    )  # fmt: skip
    ratio, (low, high), (least, most) = page.power_ratio(speed, work), ends(old, "tdp_w"), ends(new, "tdp_w")
    fits = (ratio * low <= most) & (ratio * high >= least)
    words = f"{held.max()} of {len(single)} claims hold"
    which = np.where(held < held.max(), "fewer hold", np.where(fits, f"{words}, watts fit", f"{words}, watts do not"))
    return pd.DataFrame({"speed_ratio": speed, "efficiency_ratio": work, "which": which, "held": held})


def moves(e: Energy) -> Iterator[dict[str, Any]]:
    """Joules a token at the server with one input after another at its low and its high end."""
    where = e.step.system
    chip = where.chip if isinstance(where, System) else where
    about, value = power(chip), float(e.server_j_per_token)

    def asked(spec: Chip = chip, **given: float) -> float:
        system = replace(where, chip=spec) if isinstance(where, System) else spec
        shares = replace(about, **given) if given else None
        return float(energy(replace(e.step, system=system), power=shares).server_j_per_token)

    found = {"TDP of the chip": [asked(replace(chip, tdp_w=float(end))) for end in ends(chip, "tdp_w")]}
    if np.isnan(published(chip.idle_share, np.nan)):
        found["idle share"] = [asked(idle_share=float(end)) for end in ends(about, "idle_share")]
    found["host"] = [asked(host_w_per_chip=float(end)) for end in ends(about, "host_w_per_chip")]
    off = np.minimum(np.exp([-about.chip_width, about.chip_width]) * e.chip_w, e.tdp_w) - e.chip_w
    found["error of the fit"] = (value * (1 + about.server_ratio * off / e.server_w)).tolist()
    below, above = map(float, e.step.widths("time_s"))
    found["time of the step"] = [value * np.exp(-below), value * np.exp(above)]
    for which, (low, high) in found.items():
        yield {"which": which, SPENT[0]: value, SPENT[1]: low, SPENT[2]: high}


def by_chip(errors: pd.DataFrame) -> pd.DataFrame:
    """`evidence.energy.accuracy` by chip and in all: configurations, models, median and ninetieth percentile of errors."""
    rows = []
    for name, part in [*errors.groupby("chip"), ("all", errors), ("all in steady state", errors[errors.steady])]:
        size = part.error.abs()
        row = {"chip": name, "configurations": len(part), "models": part.model.nunique(), "median_error": size.median()}
        row |= {"p90_error": size.quantile(measured.QUANTILE), "bias": part.error.median()}
        rows.append(row | {"median with the model's own speed": f"{part.own_error.abs().median():.0%}"})
    return pd.DataFrame(rows)


def fact_sources(*specs: Any) -> set[str]:
    """Ids of the sources behind fields of specs."""
    rows = load.facts_rows()
    return {rows[fact_id].source for spec in specs for ids in spec.sources.values() for fact_id in ids}


def claim(at: pd.DataFrame) -> str:
    """By how much software moves the joules of a system, and systems those of one kind of software, as a title."""
    wide = at.pivot(index="system", columns="software", values=SPENT[0])
    kinds, across = (wide.max(axis=1) / wide.min(axis=1)).max(), (wide.max() / wide.min()).max()
    return f"Software moves joules up to {format_digits(kinds, 2)} times, systems {format_digits(across, 2)} times"


def order_words(tables: Mapping[str, pd.DataFrame], speeds: Sequence[float], called: Mapping[str, str]) -> str:
    """Who spends least on public software and on ideal, by model and speed, as a list."""
    said = list[str]()
    for (model, table), speed in product(tables.items(), speeds):
        firsts = {kind: _least(table, speed, kind) for kind in software.ORDER}
        there = {kind: one for kind, one in firsts.items() if one is not None}
        words = "; ".join(
            f"{kind} {called[one.system]} with {software.in_band(*one[SPENT])} J" for kind, one in there.items()
        )
        same = len({one.system for one in there.values()}) == 1
        tail = "the order's head holds on every kind of software" if same else "software flips who is first"
        said.append(
            f"* **{model} at {speed:g} tokens/s a user**: " + (f"{words}; {tail}." if there else "none is as fast.")
        )
    return "\n".join(said)


def _least(table: pd.DataFrame, speed: float, kind: str) -> pd.Series | None:
    there = table[(table.wanted_tokens_per_s_per_user == speed) & (table.software == kind)].dropna(subset=SPENT[0])
    return there.loc[there[SPENT[0]].idxmin()] if len(there) else None
