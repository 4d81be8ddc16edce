"""Compare Trainium with other chips: peaks, memory, links, decode and prefill on equal kinds of software."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters import common
from trnbook.shared.fabrics import capacities
from trnmodel.arguments import listed, number
from trnmodel.catalog import load
from trnmodel.catalog.stacks import KINDS, basis, efficiencies, kinds
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence import tables as evidence
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import stacked, tidy
from trnmodel.search.frontier import formats, in_formats
from trnmodel.search.grid import tensor_degrees
from trnmodel.steps.inference import prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.steps.request import Request
from trnmodel.units import MS, US, format_within

CURVE = (10.0, 20.0, 40.0, 80.0, 160.0)  # promised to a user, in charts [token/s]
LINKS = ("injection_bytes_per_s_per_dir", "all_to_all_bytes_per_s")
STEPS = ("decode-step", "loaded-step")
RATES = ("tokens_per_s_per_chip", "tokens_per_s_per_chip_low", "tokens_per_s_per_chip_high")
SECONDS = {"ms": MS, "us": US, "s": 1.0}


def machines(systems: Iterable[str], precisions: Sequence[str]) -> pd.DataFrame:
    """Return peak, memory, ridge point and link rates per chip of each system.

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
    """Return the rates of a chip's links, in total and to all chips; NaN for a lone chip or an unpublished rate."""
    if spec.domain_chips == 1 or np.isnan(spec.chip.scaleup_bytes_per_s_per_dir):
        return [np.nan] * len(LINKS)
    return capacities([spec]).set_index("scope").loc["world", list(LINKS)].tolist()


def frontiers(
    model: str | Transformer,
    request: Request,
    systems: Iterable[str],
    precisions: Sequence[str],
    tokens_per_s_per_user: ArrayLike = CURVE,
) -> pd.DataFrame:
    """Return the frontier of each system in its format, on each kind of software that its chip has."""
    chosen = formats(systems, precisions)
    there = {kind: [name for name in chosen if kind in kinds(read_system(name).chip)] for kind in KINDS}
    speeds = {"tokens_per_s_per_user": tokens_per_s_per_user}
    tables = {
        kind: in_formats(model, request, {name: chosen[name] for name in names}, efficiencies=KINDS[kind], **speeds)
        for kind, names in there.items()
        if names
    }
    return stacked(tables, "software")


def at_speeds(table: pd.DataFrame, tokens_per_s_per_user: Iterable[float], reference: str) -> pd.DataFrame:
    """Return tokens/s per paid chip of each system at an equal promise, and the ratio to a reference system.

    Returns
    -------
    table : pandas.DataFrame
        software, promised_tokens_per_s_per_user, system, precision, option, degrees, batch, tokens_per_s_per_chip with
        `_low` and `_high`, chance, decode_tokens_per_s_per_chip, prefill_utilisation, times (over the reference on the
        same kind of stack; NaN where either cannot), bound, measured_share, basis. [-]
    """
    lines = table.groupby("software", sort=False)
    speeds = list(tokens_per_s_per_user)
    yields = stacked({k: common.at_speeds(v.drop(columns="software"), speeds) for k, v in lines}, "software")
    base = yields[yields.system == reference].set_index(["software", "promised_tokens_per_s_per_user"])
    keys = pd.MultiIndex.from_frame(yields[["software", "promised_tokens_per_s_per_user"]])
    yields["times"] = yields.tokens_per_s_per_chip / base.tokens_per_s_per_chip.reindex(keys).to_numpy()
    names = "software promised_tokens_per_s_per_user system precision option tp ep pp cp batch".split()
    parts = "chance decode_tokens_per_s_per_chip prefill_utilisation times bound measured_share basis".split()
    return yields[[*names, *RATES, *parts]]


def side_by_side(table: pd.DataFrame, tokens_per_s_per_user: float) -> pd.DataFrame:
    """Return one row per system at one promise: tokens/s per paid chip by kind of software, basis of the public one.

    Returns
    -------
    table : pandas.DataFrame
        system, precision, basis, measured_share and chance (public), public_tokens_per_s_per_chip, hand_tuned_... and
        ideal_... with `_low` and `_high`, share_of_ideal (public); the most on ideal stacks first. [-]
    """
    at = table[table.promised_tokens_per_s_per_user == tokens_per_s_per_user].set_index("system")
    kinds = {kind: at[at.software == kind] for kind in reversed(KINDS)}
    wide = kinds["ideal"][["precision"]].join(kinds["public"][["basis", "measured_share", "chance"]])
    for kind, rows in kinds.items():
        ends = list(RATES) if kind != "ideal" else [RATES[0]]
        wide = wide.join(rows[ends].add_prefix(f"{kind.replace('-', '_')}_"))
    wide["share_of_ideal"] = wide.public_tokens_per_s_per_chip / wide.ideal_tokens_per_s_per_chip
    return wide.sort_values("ideal_tokens_per_s_per_chip", ascending=False, kind="stable").reset_index()


def for_card(row: pd.Series, kind: str) -> tuple[tuple[float, float, float] | str, str]:
    """Return the yield of a row of `side_by_side` with low and high, and its basis."""
    names = RATES[:1] * 3 if kind == "ideal" else RATES
    value, low, high = (float(row[f"{kind.replace('-', '_')}_{name}"]) for name in names)
    mark = {"ideal": "ideal", "public": row.get("basis")}.get(kind)
    return ((value, low, high), mark or "extrapolated") if value > 0 else ("out of reach", "extrapolated")


def describe_yield(row: pd.Series, kind: str) -> str:
    """Write the yield of a row of `side_by_side` on one kind of software, with band and basis.

    Examples
    --------
    >>> row = pd.Series(dict(zip(RATES, (1008.0, 700.0, 1500.0)))).add_prefix("hand_tuned_")
    >>> describe_yield(row, "hand-tuned")
    '1,000 tokens/s per paid chip (700 to 1,500; extrapolated)'
    """
    number, mark = for_card(row, kind)
    if isinstance(number, str):
        return "cannot"
    value, low, high = number
    return format_within(value, low, high, "tokens/s per paid chip", "" if kind == "ideal" else mark)


def prompts(model: str, systems: Iterable[str], precisions: Sequence[str], input_tokens: float) -> pd.DataFrame:
    """Return the prefill of one prompt at the tensor-parallel degree with the most tokens/s per chip.

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
        mapping = Degrees(tp=tensor_degrees(name))
        step = prefill(model, name, mapping, input_tokens=tokens, precision=precision, efficiencies=stack)
        table = step.to_frame(bands=True)
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
    """Compare published decode steps on other chips with the prediction on each kind of software.

    Returns
    -------
    table : pandas.DataFrame
        id, source, hardware, model, measured_s, software, predicted_s, error (predicted over measured, minus 1). [-]
    """
    predictions = evidence.table("other_chips")
    steps = predictions[predictions.question.isin(STEPS) & (predictions.reason == "") & ~predictions.analytic]
    seconds = steps.measured * steps.unit.map(SECONDS)
    steps = steps.assign(measured_s=seconds, predicted_s=seconds * (1 + steps.error))
    return steps["id source hardware model measured_s software predicted_s error".split()].reset_index(drop=True)


def software(systems: Iterable[str]) -> pd.DataFrame:
    """Return the public stack of each system's chip, and the basis of its decode step and prefill.

    Examples
    --------
    >>> software(["hgx-h200", "mi300x-8"]).decode.tolist()
    ['measured', 'extrapolated']
    """
    rows = []
    for spec in map(read_system, listed("systems", systems)):
        stack = efficiencies(spec.chip)
        decode, first = (basis(stack, spec.chip, site(spec).lnc, part) for part in ("decode", "prefill"))
        bases = {"decode": decode.word, "prefill": first.word, "because": decode.reason or first.reason}
        rows.append({"system": spec.id, "chip": spec.chip.name, "stack": stack.name, **bases})
    return tidy(rows)
