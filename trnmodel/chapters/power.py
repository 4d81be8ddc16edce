"""Where watts go: joules a token beside each other, a chip by part, boundaries, sites, a vendor's claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import energy as page
from trnmodel.models.transformer import Transformer
from trnmodel.planner import software
from trnmodel.planner.power import HIGH, LOW, Energy, energy
from trnmodel.result import tidy
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.units import KW, MW, format_digits, format_within

PRECISIONS = ("mxfp8", "fp8", "bf16")
LEVEL = 0.01  # of a logarithm: joules that differ by less are level
SPENT = ["server_j_per_token", "server_j_per_token_low", "server_j_per_token_high"]
REACHED = {"level": "already", "both together": "by both together", "nothing": "not at all"}
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
    """The line of a system at a speed on the first of public, hand-tuned and ideal software that reaches it."""
    at = table[(table.wanted_tokens_per_s_per_user == speed) & (table.system == system)].dropna(subset=SPENT[0])
    at = at.sort_values("software", key=lambda kind: kind.map(software.ORDER.index), kind="stable")
    return at.iloc[0] if len(at) else None


def moved_by(gap: float, line: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """What within the bands makes up for a gap between the logarithms of two lines' joules; of one chip nothing does.

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
        return "nothing"
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
                lost = "no watts known" if one["tokens_per_s_per_chip"] else "too slow"
                row[kind] = lost if np.isnan(one[SPENT[0]]) else software.in_band(*one[SPENT])
            words = {kind: verdicts(table, speed, kind) for kind in software.ORDER}
            rows.append(row | {"what puts it first": _said(words, str(system))})
    return pd.DataFrame(rows)


def _said(found: Mapping[str, tuple[pd.Series | None, dict[str, str]]], system: str) -> str:
    """What would put a system first, by kind of software."""
    words = {kind: "is" if best is not None and best.system == system else others.get(system)
             for kind, (best, others) in found.items()}  # fmt: skip
    return ", ".join(f"{kind}: {word}" for kind, word in words.items() if word)


def verdicts(table: pd.DataFrame, speed: float, kind: str) -> tuple[pd.Series | None, dict[str, str]]:
    """The line of fewest joules at a speed on a kind of software, and by system what would put another first."""
    there = table[(table.wanted_tokens_per_s_per_user == speed) & (table.software == kind)].dropna(subset=SPENT[0])
    if not len(there):
        return None, {}
    best = there.loc[there[SPENT[0]].idxmin()]
    gaps = {str(one.system): (np.log(one[SPENT[0]] / best[SPENT[0]]), one) for _, one in there.iterrows()}
    return best, {name: moved_by(gap, one, best) for name, (gap, one) in gaps.items() if name != best.system}


def order_words(tables: Mapping[str, pd.DataFrame], speeds: Sequence[float], called: Mapping[str, str]) -> str:
    """By model and speed who spends least on each kind of software, and on public software what would change that."""
    said = list[str]()
    for (model, table), speed in product(tables.items(), speeds):
        found = {kind: verdicts(table, speed, kind) for kind in software.ORDER}
        heads = {kind: one for kind, (one, _) in found.items() if one is not None}
        words = "; ".join(
            f"{kind} {called[one.system]}, {software.in_band(*one[SPENT])} J" for kind, one in heads.items()
        )
        groups: dict[str, list[str]] = {}
        for name, word in found["public"][1].items():
            how = REACHED.get(word) or f"by {word}".replace(" or ", " or by ")
            groups.setdefault(how, []).append(called[name])
        flips = "; ".join(f"{how}: {', '.join(names)}" for how, names in groups.items())
        tail = f" Within their bands others draw level with it on public software {flips}." if flips else ""
        line = f"{words}.{tail}" if heads else "none is as fast."
        said.append(f"* **{model} at {speed:g} tokens/s a user**: {line}")
    return "\n".join(said)


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
    rows = []
    for part, *names in pairs:
        row: dict[str, Any] = {"part": part}
        for column, name in zip(("shares", "energies"), names, strict=True):
            value = float(getattr(e, f"{name}_w")) if name else np.nan
            sides = [value, *(float(end[f"{name}_w"]) for end in (e.at(LOW), e.at(HIGH)) if name)]
            row |= {f"{column}_w_low": min(sides), f"{column}_w": value, f"{column}_w_high": max(sides)}
        rows.append(row)
    return pd.DataFrame(rows)


def _within(e: Energy, name: str) -> str:
    low, high = e.ends(name)
    return format_within(float(getattr(e, name)), float(low), float(high))


def sites(energies: Mapping[str, Energy]) -> pd.DataFrame:
    """What a megawatt of a site holds and makes: PUE, IT power on the hottest day, chips, tokens/s; joules a token."""
    rows = []
    for name, e in energies.items():
        site = e.facility
        row = {"system": name, "site": site.id, "annual PUE": site.annual_pue, "peak PUE": site.peak_pue}
        row |= {"IT of a site MW [kW]": page.it_w(MW, site.peak_pue) / KW}
        row |= {"chips a site MW": _within(e, "chips_per_site_mw")}
        row |= {"tokens/s a site MW": _within(e, "tokens_per_s_per_site_mw")}
        rows.append(row | {"J/token with annual PUE": _within(e, "facility_j_per_token")})
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
