"""Joules a token of systems at equal speed for a user: tables of them, and what within its band would put one first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.planner import software
from trnmodel.planner.power import Energy, energy
from trnmodel.result import tidy
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees

PRECISIONS = ("mxfp8", "fp8", "bf16")
LEVEL = 0.01  # of a logarithm: joules that differ by less are level
SPENT = ["server_j_per_token", "server_j_per_token_low", "server_j_per_token_high"]


def point(model: str | Transformer, line: Mapping[str, Any], context: float, **site: Any) -> Energy:
    """Energy of the decode step at a line of `software.answers`."""
    mapping = Degrees(tp=line["tp"], ep=line["ep"])
    ask = {"batch": line["batch"], "context": context, "precision": line["precision"], "efficiencies": line["stack"]}
    return cast(Energy, energy(decode_step(model, line["system"], mapping, **ask), **site))


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


def verdicts(table: pd.DataFrame, speed: float, kind: str) -> tuple[pd.Series | None, dict[str, str]]:
    """The line of fewest joules at a speed on a kind of software, and by system what would put another first."""
    there = table[(table.wanted_tokens_per_s_per_user == speed) & (table.software == kind)].dropna(subset=SPENT[0])
    if not len(there):
        return None, {}
    best = there.loc[there[SPENT[0]].idxmin()]
    gaps = {str(one.system): (np.log(one[SPENT[0]] / best[SPENT[0]]), one) for _, one in there.iterrows()}
    return best, {name: moved_by(gap, one, best) for name, (gap, one) in gaps.items() if name != best.system}
