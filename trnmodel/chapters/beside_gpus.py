"""Trainium beside chips of others: peaks, memory, links, decode and prefill, on equal kinds of stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from trnmodel.arguments import listed, number, refuse
from trnmodel.catalog import load
from trnmodel.catalog.stacks import efficiencies
from trnmodel.catalog.systems import system as read_system
from trnmodel.chapters import common
from trnmodel.evidence.comparators import comparators
from trnmodel.fabric.compare import capacities
from trnmodel.models.transformer import model as read_model
from trnmodel.planner import deployments
from trnmodel.result import stacked
from trnmodel.steps.inference import prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import MS, US

KINDS: Mapping[str, str | None] = {"public": None, "ideal": "ideal"}
STEPS = ("decode-step", "loaded-step")
SECONDS = {"ms": MS, "us": US, "s": 1.0}


def formats(systems: Iterable[str], precisions: Sequence[str]) -> dict[str, str]:
    """The first precision of a list in whose compute dtype each system's chip has a peak.

    Examples
    --------
    >>> formats(["trn3-nl72x2-pcie160", "hgx-h200", "hgx-a100"], ["mxfp8", "fp8", "bf16"])
    {'trn3-nl72x2-pcie160': 'mxfp8', 'hgx-h200': 'fp8', 'hgx-a100': 'bf16'}
    """
    found = {}
    for name in listed("systems", systems):
        peaks = read_system(name).chip.peak_flop_per_s
        usable = [one for one in listed("precisions", precisions) if load.precision(one).compute in peaks]
        if not usable:
            refuse("precisions", precisions, f"{name} computes in none of them, but in {', '.join(peaks)}")
        found[name] = usable[0]
    return found


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
        links = capacities([spec]).set_index("scope").loc["world"]
        known = {"system": name, "chip": spec.chip.name, "chips": spec.domain_chips, "precision": precision}
        columns = peak[["peak_flop_per_s", *(c for c in peak.index if c.startswith("ridge")), "hbm_bytes_per_s"]]
        sent = links[["injection_bytes_per_s_per_dir", "all_to_all_bytes_per_s"]]
        rows.append({**known, "hbm_bytes": spec.chip.hbm_bytes, **columns, **sent, "estimate": peak.estimate})
    return pd.DataFrame(rows)


def frontiers(model: str, systems: Iterable[str], precisions: Sequence[str], context: float) -> pd.DataFrame:
    """`deployments.frontiers` of each system in its format, once on public stacks and once on ideal ones."""
    chosen = formats(systems, precisions)
    found = {}
    for kind, stack in KINDS.items():
        lines = [
            deployments.frontiers(model, [name], context, [precision], efficiencies=stack)
            for name, precision in chosen.items()
        ]
        found[kind] = pd.concat([line for line in lines if len(line)] or lines, ignore_index=True)
    return stacked(found, "software")


def at_speeds(table: pd.DataFrame, tokens_per_s_per_user: Iterable[float], reference: str) -> pd.DataFrame:
    """What each system of `frontiers` yields a chip at equal speed for a user, and how often the reference's yield.

    Returns
    -------
    table : pandas.DataFrame
        software, wanted_tokens_per_s_per_user, system, precision, tp, ep, batch, tokens_per_s_per_chip, times (over the
        reference on the same kind of stack; NaN where either cannot), bound. [-]
    """
    lines = table.groupby("software", sort=False)
    found = stacked({k: deployments.at_interactivity(v, tokens_per_s_per_user) for k, v in lines}, "software")
    base = found[found.system == reference].set_index(["software", "wanted_tokens_per_s_per_user"])
    keys = pd.MultiIndex.from_frame(found[["software", "wanted_tokens_per_s_per_user"]])
    found["times"] = found.tokens_per_s_per_chip / base.tokens_per_s_per_chip.reindex(keys).to_numpy()
    names = "software wanted_tokens_per_s_per_user system precision tp ep batch tokens_per_s_per_chip times bound basis"
    return found[[name for name in names.split() if name in found]]


def prompts(model: str, systems: Iterable[str], precisions: Sequence[str], input_tokens: float) -> pd.DataFrame:
    """Prefill of one prompt at the tensor-parallel degree that yields the most tokens a chip, on both kinds of stack.

    Returns
    -------
    table : pandas.DataFrame
        software, system, precision, tp, chips, time_s, tokens_per_s_per_chip, share_of_peak (model FLOP over the peak of
        the chips that work), bound; a system on which the model does not fit has no rows. [-]
    """
    tokens, rows = number("input_tokens", input_tokens, 1), []
    for (name, precision), (kind, stack) in product(formats(systems, precisions).items(), KINDS.items()):
        at = site(name)
        tp = np.exp2(np.arange(np.floor(np.log2(at.chips * at.ranks_per_chip)) + 1))
        ask = {"input_tokens": tokens, "precision": precision, "efficiencies": stack}
        table = prefill(model, name, Degrees(tp=tp), **ask).to_frame()
        chips = np.ceil(table.tp / at.ranks_per_chip)
        table = table.assign(software=kind, system=name, precision=precision, chips=chips)
        table["tokens_per_s_per_chip"] = tokens / table.time_s / chips
        peak = read_system(name).chip.peak(load.precision(precision).compute)
        table["share_of_peak"] = read_model(model).prefill_flop(tokens) / table.time_s / chips / peak
        rows.append(table[table.valid].nlargest(1, "tokens_per_s_per_chip"))
    names = "software system precision tp chips time_s tokens_per_s_per_chip share_of_peak bound basis".split()
    found = pd.concat(rows, ignore_index=True)
    return found[[name for name in names if name in found]]


def published() -> pd.DataFrame:
    """Measured decode steps on chips of others, beside what both kinds of stack give for the same question.

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
    """The public stack of each system's chip: its name, and which of its values are our own estimates."""
    rows = []
    for name in listed("systems", systems):
        chip = read_system(name).chip
        stack = efficiencies(chip)
        sources = {load.facts_rows()[fact].source for used in stack.sources.values() for fact in used}
        rows.append({"system": name, "chip": chip.name, "stack": stack.id, "values": len(stack.sources), "sources": ", ".join(sorted(sources))})
    return pd.DataFrame(rows)
