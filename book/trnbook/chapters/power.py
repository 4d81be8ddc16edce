"""Tables of power: joules per token of systems, a chip's watts by part, sites, racks, and a vendor's claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from trnbook.chapters.power_joules import SPENT, verdicts
from trnbook.chapters.power_rack import PARTS, WHOLE, RackPower
from trnbook.shared import software_kinds
from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Power
from trnmodel.catalog.systems import System
from trnmodel.formulas import energy as page
from trnmodel.power.energy import Energy, RequestEnergy
from trnmodel.units import KW, MW, format_digits, format_quantity, format_within

REACHED = {"level": "already", "both together": "by both together", "nothing": "not at all"}
SYMBOLS = [
    ("", "chip_w", "", "", "result"),
    ("", "tdp_w", "", "", "data"),
    ("i", "idle_share", "share of the TDP that is drawn when nothing runs", "", "fitted to GPUs"),
    ("", "compute_utilisation, hbm_utilisation", "shares of peak and of HBM bandwidth in the step", "", "step"),
    ("a_f, a_m", "compute_activity, hbm_activity", "what full use of each counts", "", "fitted to GPUs"),
    ("r", "flop_ratio", "energy of an operation in a format over that in 16 bits", "", "a source, with a range"),
    ("R", "", "rate of 16-bit operations for which the matrix engines are built", "FLOP/s", "data"),
    ("e", "flop_j, byte_j", "energy of one operation, of one byte", "", "papers, by node of logic"),
    ("", "server_j_per_token", "energy of a token", "", "result"),
    ("PUE", "annual_pue, peak_pue", "power of a site over that of its IT: of a year, of the hottest day", "", "data"),
]


def compare(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a row per model, speed and system: J/token with bands, and what would make the system best."""
    rows = []
    for model, table in tables.items():
        for (speed, system), lines in table.groupby(["wanted_tokens_per_s_per_user", "system"], sort=False):
            row: dict[str, Any] = {"model": model, "wanted_tokens_per_s_per_user": speed, "system": system}
            for kind in (kind for kind in software_kinds.ORDER if kind in set(lines.software)):
                one = lines[lines.software == kind].iloc[0]
                lost = "no watts known" if one["tokens_per_s_per_chip"] else "too slow"
                row[kind] = lost if np.isnan(one[SPENT[0]]) else software_kinds.in_band(*one[SPENT])
            judged = {kind: verdicts(table, speed, kind) for kind in software_kinds.ORDER}
            rows.append(row | {"what puts it first": _said(judged, str(system))})
    return pd.DataFrame(rows)


def _said(judged: Mapping[str, tuple[pd.Series | None, dict[str, str]]], system: str) -> str:
    """Describe what would make a system the best, by kind of software."""
    changes = {
        kind: "is" if best is not None and best.system == system else others.get(system)
        for kind, (best, others) in judged.items()
    }
    return ", ".join(f"{kind}: {word}" for kind, word in changes.items() if word)


def describe_order(tables: Mapping[str, pd.DataFrame], speeds: Sequence[float], called: Mapping[str, str]) -> str:
    """Describe by model and speed who spends least on each kind of software, and what would change that."""
    said = list[str]()
    for (model, table), speed in product(tables.items(), speeds):
        judged = {kind: verdicts(table, speed, kind) for kind in software_kinds.ORDER}
        heads = {kind: one for kind, (one, _) in judged.items() if one is not None}
        joules = "; ".join(
            f"{kind} {called[one.system]}, {software_kinds.in_band(*one[SPENT])} J" for kind, one in heads.items()
        )
        groups: dict[str, list[str]] = {}
        for name, word in judged["public"][1].items():
            how = REACHED.get(word) or f"by {word}".replace(" or ", " or by ")
            groups.setdefault(how, []).append(called[name])
        flips = "; ".join(f"{how}: {', '.join(names)}" for how, names in groups.items())
        tail = f" Within their bands others draw level with it on public software {flips}." if flips else ""
        line = f"{joules}.{tail}" if heads else "none is as fast."
        said.append(f"* **{model} at {speed:g} tokens/s a user**: {line}")
    return "\n".join(said)


def parts(energies: Mapping[str, Energy]) -> pd.DataFrame:
    """Return watts per chip by part, from shares of its TDP: of, part, chip_w, tdp_w."""
    rows = [
        {"of": name, "part": part, "chip_w": float(getattr(e, f"{field}_w")), "tdp_w": float(e.tdp_w)}
        for name, e in energies.items()
        for part, field in (("idle", "idle"), ("compute", "compute"), ("HBM", "hbm"))
    ]
    return pd.DataFrame(rows)


def two_estimates(e: Energy) -> pd.DataFrame:
    """Return a chip's watts by part from shares of its TDP and from energies of operations and bytes."""
    pairs = [("idle, static", "idle", "static"), ("compute, operations", "compute", "operations")]
    pairs += [("HBM and SBUF", "hbm", "memory"), ("links", "", "links"), ("all, at most the TDP", "chip", "bottom_up")]
    rows = []
    for part, *names in pairs:
        row: dict[str, Any] = {"part": part}
        for column, name in zip(("shares", "energies"), names, strict=True):
            value = float(getattr(e, f"{name}_w")) if name else np.nan
            sides = [value, *(float(watts[f"{name}_w"]) for watts in e.watts_at_ends() if name)]
            row |= {f"{column}_w_low": min(sides), f"{column}_w": value, f"{column}_w_high": max(sides)}
        rows.append(row)
    return pd.DataFrame(rows)


def sites(energies: Mapping[str, Energy]) -> pd.DataFrame:
    """Return what one MW of a site holds: PUE, IT power on the hottest day, chips, tokens/s; and J/token."""
    rows = []
    for name, e in energies.items():
        site = e.facility
        row = {"system": name, "site": site.id, "annual PUE": site.annual_pue, "peak PUE": site.peak_pue}
        row |= {"IT of a site MW [kW]": page.it_w(MW, site.peak_pue) / KW}
        row |= {"chips a site MW": e.in_words("chips_per_site_mw")}
        row |= {"tokens/s a site MW": e.in_words("tokens_per_s_per_site_mw")}
        rows.append(row | {"J/token with annual PUE": e.in_words("facility_j_per_token")})
    return pd.DataFrame(rows)


def racks(by_rack: Mapping[str, RackPower]) -> pd.DataFrame:
    """Return the parts of racks side by side: their number, and kilowatts per rack with band."""
    table = pd.DataFrame({"part": [*PARTS.values(), WHOLE]})
    for name, rack in by_rack.items():
        rows = rack.parts()
        ends = (rows[["w", "w_low", "w_high"]] / KW).to_numpy()
        texts = [format_within(*row) if row[0] == row[0] else "in no source" for row in ends]
        table = table.assign(**{f"in {name}": rows.number, f"kW of {name}": texts})
    return table


def builds(systems: Iterable[System], called: Mapping[str, str]) -> pd.DataFrame:
    """Return what a chip is made of and how it is cooled, with the watts of HBM and operations at full rate.

    Operations are of the dtype with the highest peak whose energy at the node a source has; the TDP bounds all of them.
    """
    rows = []
    for spec in systems:
        chip, power = spec.chip, facilities.power(spec.chip)
        known = {dtype: chip.peak(dtype) for dtype in power.flop_j if dtype in chip.peak_flop_per_s}
        most = max(known, key=lambda dtype: known[dtype], default="")
        row: dict[str, Any] = {
            "system": called[spec.id],
            "process": chip.process,
            "package": chip.packaging or "not printed",
        }
        row |= {"cooling": spec.cooling or "not printed"}
        figures = {"tdp_w": (chip.tdp_w, *facilities.ends(chip, "tdp_w"))}
        figures["hbm_full_rate_w"] = _ends_w(power, "byte_j[hbm]", chip.hbm_bytes_per_s)
        figures["operations_at_peak_w"] = (
            _ends_w(power, f"flop_j[{most}]", known[most]) if most else (np.nan, np.nan, np.nan)
        )
        for name, ends in figures.items():
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), map(float, ends), strict=True))
        rows.append(row | {"operations in": most.upper()})
    return pd.DataFrame(rows)


def _ends_w(power: Power, which: str, rate: float) -> tuple[float, float, float]:
    low, high = power.range(which)
    value_w, low_w, high_w = (float(page.moved_w(rate, 1.0, joules)) for joules in (power.at(which), low, high))
    return value_w, low_w, high_w


def requests(energies: Mapping[str, RequestEnergy]) -> pd.DataFrame:
    """Return joules of a generated token: of its prompt, of its decode steps, and of both; per step and per FLOP."""
    rows = []
    for name, e in energies.items():
        joules, share = float(e.server_j_per_token), float(e.prefill_j_share)
        row: dict[str, Any] = {"system": name, "its prompt [J]": format_digits(joules * share, 3)}
        row |= {"its decode steps [J]": format_digits(joules * (1 - share), 3), "together [J]": e.in_words(SPENT[0])}
        whole = {"decode step": e.decode.chip_step_j, "a FLOP": e.decode.chip_j_per_flop}
        rows.append(row | {word: format_quantity(float(joules), "J", 2) for word, joules in whole.items()})
    return pd.DataFrame(rows)


def claim(at: pd.DataFrame) -> str:
    """Return as a chart title how far software, and how far systems, change the joules per token."""
    wide = at.pivot(index="system", columns="software", values=SPENT[0])
    kinds, across = (wide.max(axis=1) / wide.min(axis=1)).max(), (wide.max() / wide.min()).max()
    return f"Software moves joules up to {format_digits(kinds, 2)} times, systems {format_digits(across, 2)} times"
