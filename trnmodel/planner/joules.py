"""Joules a token of systems at equal speed for a user: tables of them, and what within its band would put one first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Given
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.fabric.groups import chip_of
from trnmodel.formulas import energy as page
from trnmodel.models.transformer import Transformer
from trnmodel.planner import software
from trnmodel.planner.power import Energy, RequestEnergy, energy
from trnmodel.planner.sensitivity import Sensitivity, sensitivity
from trnmodel.result import tidy
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees

PRECISIONS = ("mxfp8", "fp8", "bf16")
LEVEL = 0.01  # of a logarithm: joules that differ by less are level
SHARES = np.linspace(5, 95, 19)  # per cent of the draws at which quantiles stand
SPENT = ["server_j_per_token", "server_j_per_token_low", "server_j_per_token_high"]


def point(
    model: str | Transformer, line: Mapping[str, Any], context: float, given: Given | None = None, **site: Any
) -> Energy:
    """Energy of the decode step at a line of `software.answers`, with what is `given` in place of data."""
    mapping = Degrees(tp=line["tp"], ep=line["ep"])
    ask = {"batch": line["batch"], "context": context, "precision": line["precision"], "efficiencies": line["stack"]}
    spec = machine(line["system"], given)
    step = decode_step(model, spec, mapping, **ask)
    power = facilities.power(spec.chip)
    if given and power.id in given:
        site = site | {"power": facilities.with_given(power, given)}
    return cast(Energy, energy(step, **site))


def request(
    model: Any, line: Mapping[str, Any], context: float, output_tokens: float, given: Given | None = None
) -> RequestEnergy:
    """Energy of a request at a line of `joules`: decode stands at `context`, half of the output made.

    The batch of the line decodes together, so that a user has the speed of the line.
    """
    spec = machine(line["system"], given)
    power, mapping = facilities.power(spec.chip), Degrees(tp=line["tp"], ep=line["ep"])
    asked = Deployment(
        model=model, system=cast(Any, spec), mapping=mapping, precision=line["precision"], stack=line["stack"]
    )
    ask: dict[str, Any] = {"batch": line["batch"], "input_tokens": context - output_tokens / 2}
    if given and power.id in given:
        ask["power"] = facilities.with_given(power, given)
    return cast(RequestEnergy, energy(asked, output_tokens=output_tokens, **ask))


def machine(system: str | System, given: Given | None = None) -> System:
    """A system with the numbers that are given for its chip."""
    spec = read_system(system) if isinstance(system, str) else system
    chip = facilities.with_given(spec.chip, given or {})
    return spec if chip is spec.chip else replace(spec, chip=chip)


def joules(
    model: str | Transformer,
    systems: Iterable[str],
    speeds: Sequence[float],
    context: float,
    given: Given | None = None,
) -> pd.DataFrame:
    """`software.answers` with joules a token and watts at the server, NaN where no mapping is as fast.

    Returns
    -------
    table : pandas.DataFrame
        The columns of `software.answers`, server_j_per_token with `_low` and `_high`, server_w, and half-widths of the
        logarithm of watts and of time, each below and above. The point stays while its time moves within its band. [-]
    """
    found = software.answers(model, systems, speeds, context, PRECISIONS)
    return tidy([line | _spent(model, line, context, given) for line in found.to_dict("records")])


def _spent(model: str | Transformer, line: Mapping[str, Any], context: float, given: Given | None) -> dict[str, Any]:
    names = [*SPENT, "server_w", "watts_below", "watts_above", "time_below", "time_above"]
    if not line["tokens_per_s_per_chip"]:
        return dict.fromkeys(names, np.nan)
    e = point(model, line, context, given)
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


def drawn(
    model: str | Transformer, line: Mapping[str, Any], context: float, draws: int = 4000, given: Given | None = None
) -> Sensitivity:
    """Joules a token at a line of `joules` with all that is open drawn at once: TDP, shares, host, errors of fit, time.

    A 90 % interval is drawn evenly over its logarithm, whose spread is that of a normal one with the same interval.
    What systems share is drawn alike for all of them; the error of a time is that of its chip.
    """
    e = point(model, line, context, given)
    chip, where = chip_of(e.system), e.step.system
    power, time = facilities.with_given(facilities.power(chip), given or {}), f"time of {chip.id}"
    errors = {"fit": (power.chip_width,) * 2, "server": (power.server_width,) * 2}
    errors[time] = line["time_below"], line["time_above"]
    factors = {name: (np.exp(-float(low)), 1.0, np.exp(float(high))) for name, (low, high) in errors.items()}
    low, high = facilities.ends(chip, "tdp_w")

    def ask(power: facilities.Power, tdp_w: Any, fit: NDArray, server: NDArray, **times: NDArray) -> NDArray:
        hot = replace(chip, tdp_w=tdp_w)
        system = replace(where, chip=hot) if isinstance(where, System) else hot
        found = cast(Energy, energy(replace(e.step, system=system, time_s=e.step.time_s * times[time]), power=power))
        watts = page.server_w(np.minimum(found.chip_w * fit, tdp_w), power.server_ratio, power.host_w_per_chip)
        return page.energy_j(watts * server, e.tokens_per_s_per_chip / times[time])

    inputs = {"power": power, f"tdp_w of {chip.id}": (low, chip.tdp_w, high)} | factors
    return sensitivity(
        lambda **given: ask(tdp_w=given.pop(f"tdp_w of {chip.id}"), **given),
        inputs,
        draws,
        distributions=dict.fromkeys(factors, "loguniform"),
    )


def quantiles(
    model: str | Transformer, table: pd.DataFrame, context: float, draws: int = 4000, given: Given | None = None
) -> pd.DataFrame:
    """Quantiles of `drawn` for every line of `joules`; a line without an answer has one row, whose `why` says so.

    Returns
    -------
    quantiles : pandas.DataFrame
        system, wanted_tokens_per_s_per_user, software, share_of_draws, server_j_per_token, why. [-]
    """
    rows = []
    for line in table.to_dict("records"):
        who = {name: line[name] for name in ("system", "wanted_tokens_per_s_per_user", "software")}
        if np.isnan(line[SPENT[0]]):
            lost = "no source has watts of this chip" if line["tokens_per_s_per_chip"] else "too slow for a user"
            rows.append(who | {"why": lost})
            continue
        found = drawn(model, line, context, draws, given).percentiles(SHARES).iloc[0]
        cuts = {"share_of_draws": SHARES / 100, SPENT[0]: [float(found[f"p{share:g}"]) for share in SHARES]}
        rows.append(who | cuts | {"why": ""})
    names = ["system", "wanted_tokens_per_s_per_user", "software", "share_of_draws", SPENT[0], "why"]
    return tidy(rows).reindex(columns=names)
