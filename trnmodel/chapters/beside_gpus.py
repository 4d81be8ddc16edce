"""Trainium beside chips of others: peaks, memory, links, decode and prefill, on equal kinds of stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from trnmodel.arguments import listed, number
from trnmodel.catalog import load
from trnmodel.catalog.stacks import KINDS, basis, efficiencies, kinds
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.chapters import common
from trnmodel.evidence.comparators import comparators
from trnmodel.fabric.compare import capacities
from trnmodel.models.transformer import model as read_model
from trnmodel.planner import deployments
from trnmodel.planner.deployments import formats
from trnmodel.result import stacked, tidy
from trnmodel.steps.inference import prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import MS, US, format_within

LINKS = ("injection_bytes_per_s_per_dir", "all_to_all_bytes_per_s")
STEPS = ("decode-step", "loaded-step")
RATES = ("tokens_per_s_per_chip", "tokens_per_s_per_chip_low", "tokens_per_s_per_chip_high")
SECONDS = {"ms": MS, "us": US, "s": 1.0}


def machines(systems: Iterable[str], precisions: Sequence[str]) -> pd.DataFrame:
    """A chip of each system: peak in its format, memory, ridge point, and what its links carry.

    Returns
    -------
    table : pandas.DataFrame
        system, chip, chips (of the domain), precision, peak_flop_per_s, hbm_bytes, hbm_bytes_per_s,
        ridge_flop_per_byte with `_low` and `_high`, injection_bytes_per_s_per_dir, all_to_all_bytes_per_s (of a chip to
        all of its domain), `estimate`. [-]

    Examples
    --------
    >>> machines(["hgx-h200"], ["fp8"]).chips.tolist()
    [8]
    """
    rows = []
    for name, precision in formats(systems, precisions).items():
        spec = read_system(name)
        peak = common.peaks([spec.chip], [load.precision(precision).compute]).iloc[0]
        known = {"system": name, "chip": spec.chip.name, "chips": spec.domain_chips, "precision": precision}
        columns = peak[["peak_flop_per_s", *(c for c in peak.index if c.startswith("ridge")), "hbm_bytes_per_s"]]
        sent = dict(zip(LINKS, _sent(spec), strict=True))
        rows.append({**known, "hbm_bytes": spec.chip.hbm_bytes, **columns, **sent, "estimate": peak.estimate})
    return pd.DataFrame(rows)


def _sent(spec: System) -> list[float]:
    """What a chip sends, at once and to all; NaN for a chip alone, and where no rate of its links is published."""
    if spec.domain_chips == 1 or np.isnan(spec.chip.scaleup_bytes_per_s_per_dir):
        return [np.nan] * len(LINKS)
    return capacities([spec]).set_index("scope").loc["world", list(LINKS)].tolist()


def frontiers(model: str, systems: Iterable[str], precisions: Sequence[str], context: float) -> pd.DataFrame:
    """The frontier of each system in its format, on each kind of stack that its chip has a row for."""
    chosen = formats(systems, precisions)
    there = {kind: [name for name in chosen if kind in kinds(read_system(name).chip)] for kind in KINDS}
    found = {
        kind: deployments.in_formats(model, {name: chosen[name] for name in names}, context, efficiencies=KINDS[kind])
        for kind, names in there.items()
        if names
    }
    return stacked(found, "software")


def at_speeds(table: pd.DataFrame, tokens_per_s_per_user: Iterable[float], reference: str) -> pd.DataFrame:
    """What each system of `frontiers` yields a chip at equal speed for a user, and how often the reference's yield.

    Returns
    -------
    table : pandas.DataFrame
        software, wanted_tokens_per_s_per_user, system, precision, tp, ep, batch, tokens_per_s_per_chip with `_low` and
        `_high`, times (over the reference on the same kind of stack; NaN where either cannot), bound, measured_share,
        basis. [-]
    """
    lines = table.groupby("software", sort=False)
    found = stacked({k: deployments.at_interactivity(v, tokens_per_s_per_user) for k, v in lines}, "software")
    base = found[found.system == reference].set_index(["software", "wanted_tokens_per_s_per_user"])
    keys = pd.MultiIndex.from_frame(found[["software", "wanted_tokens_per_s_per_user"]])
    found["times"] = found.tokens_per_s_per_chip / base.tokens_per_s_per_chip.reindex(keys).to_numpy()
    names = "software wanted_tokens_per_s_per_user system precision tp ep batch".split()
    return found[[*names, *RATES, "times", "bound", "measured_share", "basis"]]


def side_by_side(table: pd.DataFrame, tokens_per_s_per_user: float) -> pd.DataFrame:
    """`at_speeds` at one speed, a row a system: tokens/s a chip on each kind of stack, and what public ones rest on.

    Returns
    -------
    table : pandas.DataFrame
        system, precision, basis and measured_share (public), public_tokens_per_s_per_chip, hand_tuned_... and
        ideal_... with `_low` and `_high`, share_of_ideal (public); the most on ideal stacks first. [-]
    """
    at = table[table.wanted_tokens_per_s_per_user == tokens_per_s_per_user].set_index("system")
    kinds = {kind: at[at.software == kind] for kind in reversed(KINDS)}
    found = kinds["ideal"][["precision"]].join(kinds["public"][["basis", "measured_share"]])
    for kind, rows in kinds.items():
        ends = list(RATES) if kind != "ideal" else [RATES[0]]
        found = found.join(rows[ends].add_prefix(f"{kind.replace('-', '_')}_"))
    found["share_of_ideal"] = found.public_tokens_per_s_per_chip / found.ideal_tokens_per_s_per_chip
    return found.sort_values("ideal_tokens_per_s_per_chip", ascending=False, kind="stable").reset_index()


def for_card(row: pd.Series, kind: str) -> tuple[tuple[float, ...] | str, str]:
    """What `side_by_side` says of a system on a kind of stack: its figure with low and high, and what it rests on."""
    names = RATES[:1] * 3 if kind == "ideal" else RATES
    ends = tuple(float(row[f"{kind.replace('-', '_')}_{name}"]) for name in names)
    mark = {"ideal": "ideal", "public": row.get("basis")}.get(kind)
    return (ends, mark or "extrapolated") if ends[0] > 0 else ("out of reach", "extrapolated")


def yield_in_words(row: pd.Series, kind: str) -> str:
    """What `side_by_side` says of a system on a kind of stack: tokens/s a chip, with band and basis.

    Examples
    --------
    >>> row = pd.Series(dict(zip(RATES, (1008.0, 700.0, 1500.0)))).add_prefix("hand_tuned_")
    >>> yield_in_words(row, "hand-tuned")
    '1,000 tokens/s a chip (700 to 1,500; extrapolated)'
    """
    number, mark = for_card(row, kind)
    if isinstance(number, str):
        return "cannot"
    return format_within(*number, "tokens/s a chip", "" if kind == "ideal" else mark)


def prompts(model: str, systems: Iterable[str], precisions: Sequence[str], input_tokens: float) -> pd.DataFrame:
    """Prefill of one prompt at the tensor-parallel degree that yields the most tokens a chip, on each kind of stack.

    Returns
    -------
    table : pandas.DataFrame
        software, system, precision, tp, chips, time_s, tokens_per_s_per_chip with `_low` and `_high`, share_of_peak
        (model FLOP over the peak of the chips that work), measured_share, bound, basis; a system on which the model
        does not fit has no rows. [-]
    """
    tokens, rows = number("input_tokens", input_tokens, 1), []
    for (name, precision), (kind, stack) in product(formats(systems, precisions).items(), KINDS.items()):
        if kind not in kinds(read_system(name).chip):
            continue
        at = site(name)
        ask = {"input_tokens": tokens, "precision": precision, "efficiencies": stack}
        table = prefill(model, name, Degrees(tp=deployments.tensor_degrees(name)), **ask).to_frame(bands=True)
        chips = np.ceil(table.tp / at.ranks_per_chip)
        table = table.assign(software=kind, system=name, precision=precision, chips=chips)
        for rate, time in zip(RATES, ("time_s", "high", "low"), strict=True):
            table[rate] = tokens / table[time] / chips
        peak = read_system(name).chip.peak(load.precision(precision).compute)
        table["share_of_peak"] = read_model(model).prefill_flop(tokens) / table.time_s / chips / peak
        rows.append(table[table.valid].nlargest(1, "tokens_per_s_per_chip"))
    names = "software system precision tp chips time_s".split()
    return pd.concat(rows, ignore_index=True)[[*names, *RATES, "share_of_peak", "measured_share", "bound", "basis"]]


def published() -> pd.DataFrame:
    """Measured decode steps on chips of others, beside what each kind of stack gives for the same question.

    Returns
    -------
    table : pandas.DataFrame
        id, source, hardware, model, measured_s, software, predicted_s, error (predicted over measured, minus 1). [-]
    """
    found = stacked({kind: comparators(stack) for kind, stack in KINDS.items()}, "software")
    steps = found[found.question.isin(STEPS) & (found.reason == "") & ~found.analytic]
    seconds = steps.measured * steps.unit.map(SECONDS)
    steps = steps.assign(measured_s=seconds, predicted_s=seconds * (1 + steps.error))
    return steps["id source hardware model measured_s software predicted_s error".split()].reset_index(drop=True)


def software(systems: Iterable[str]) -> pd.DataFrame:
    """The public stack of each system's chip, and what a decode step and a prefill on it rest on.

    Examples
    --------
    >>> software(["hgx-h200", "mi300x-8"]).decode.tolist()
    ['measured', 'extrapolated']
    """
    rows = []
    for spec in map(read_system, listed("systems", systems)):
        stack = efficiencies(spec.chip)
        decode, first = (basis(stack, spec.chip, site(spec).lnc, part) for part in ("decode", "prefill"))
        words = {"decode": decode.word, "prefill": first.word, "because": decode.reason or first.reason}
        rows.append({"system": spec.id, "chip": spec.chip.name, "stack": stack.name, **words})
    return tidy(rows)
