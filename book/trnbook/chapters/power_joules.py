"""Joules per token of systems at equal speed per user, and what within the bands would make another best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnbook.shared import software_kinds
from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Assumptions
from trnmodel.catalog.systems import System, chip_of
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import energy as page
from trnmodel.models.transformer import Transformer
from trnmodel.power.energy import Energy, RequestEnergy, energy
from trnmodel.result import tidy
from trnmodel.search.sensitivity import Sensitivity, sensitivity
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees

PRECISIONS = ("mxfp8", "fp8", "bf16")
LEVEL = 0.01  # log ratio below which joules count as equal
SHARES = np.linspace(5, 95, 19)  # percentiles of the draws
SPENT = ["server_j_per_token", "server_j_per_token_low", "server_j_per_token_high"]


def point(
    model: str | Transformer, line: Mapping[str, Any], context: float, assumed: Assumptions | None = None, **site: Any
) -> Energy:
    """Return the energy of the decode step at a row of `answers`, with `assumed` numbers in place of data."""
    mapping = Degrees(tp=line["tp"], ep=line["ep"])
    ask = {"batch": line["batch"], "context": context, "precision": line["precision"], "efficiencies": line["stack"]}
    spec = machine(line["system"], assumed)
    step = decode_step(model, spec, mapping, **ask)
    power = facilities.power(spec.chip)
    if assumed and power.id in assumed:
        site = site | {"power": facilities.with_assumptions(power, assumed)}
    return cast(Energy, energy(step, **site))


def request(
    model: Any, line: Mapping[str, Any], context: float, output_tokens: float, assumed: Assumptions | None = None
) -> RequestEnergy:
    """Return the energy of a request at a row of `joules`, with the decode step at half of its output.

    The batch of the line decodes together, so that a user has the speed of the line.
    """
    spec = machine(line["system"], assumed)
    power, mapping = facilities.power(spec.chip), Degrees(tp=line["tp"], ep=line["ep"])
    deployment = Deployment(
        model=model, system=cast(Any, spec), mapping=mapping, precision=line["precision"], stack=line["stack"]
    )
    ask: dict[str, Any] = {"batch": line["batch"], "input_tokens": context - output_tokens / 2}
    if assumed and power.id in assumed:
        ask["power"] = facilities.with_assumptions(power, assumed)
    return cast(RequestEnergy, energy(deployment, output_tokens=output_tokens, **ask))


def machine(system: str | System, assumed: Assumptions | None = None) -> System:
    """Return a system with the numbers assumed for its chip."""
    spec = read_system(system) if isinstance(system, str) else system
    chip = facilities.with_assumptions(spec.chip, assumed or {})
    return spec if chip is spec.chip else replace(spec, chip=chip)


def joules(
    model: str | Transformer,
    systems: Iterable[str],
    speeds: Sequence[float],
    context: float,
    assumed: Assumptions | None = None,
) -> pd.DataFrame:
    """Return `software_kinds.answers` with J/token and watts at the server; NaN where nothing is fast enough.

    Returns
    -------
    table : pandas.DataFrame
        The columns of `software_kinds.answers`, server_j_per_token with `_low` and `_high`, server_w, and half-widths
        of the logarithm of watts and of time, each below and above. The point stays while its time moves within its
        band. [-]
    """
    answers = software_kinds.answers(model, systems, speeds, context, PRECISIONS)
    return tidy([line | _spent(model, line, context, assumed) for line in answers.to_dict("records")])


def _spent(
    model: str | Transformer, line: Mapping[str, Any], context: float, assumed: Assumptions | None
) -> dict[str, Any]:
    names = [*SPENT, "server_w", "watts_below", "watts_above", "time_below", "time_above"]
    if not line["tokens_per_s_per_chip"]:
        return dict.fromkeys(names, np.nan)
    e = point(model, line, context, assumed)
    figures = (e.server_j_per_token, *e.ends(SPENT[0]), e.server_w, *e.widths("server_w"), *e.step.widths("time_s"))
    return dict(zip(names, map(float, figures), strict=True)) | {"basis": e.basis}


def line_of(table: pd.DataFrame, speed: float, system: str) -> pd.Series | None:
    """Return a system's row at a speed on the first of public, hand-tuned and ideal software that reaches it."""
    at = table[(table.wanted_tokens_per_s_per_user == speed) & (table.system == system)].dropna(subset=SPENT[0])
    at = at.sort_values("software", key=lambda kind: kind.map(software_kinds.ORDER.index), kind="stable")
    return at.iloc[0] if len(at) else None


def moved_by(gap: float, line: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """Return which change within the bands closes the gap between the log joules of two rows.

    For two systems of the same chip nothing does, because their errors are shared.

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
    """Return the row of fewest joules, and by system what would make another the best."""
    there = table[(table.wanted_tokens_per_s_per_user == speed) & (table.software == kind)].dropna(subset=SPENT[0])
    if not len(there):
        return None, {}
    best = there.loc[there[SPENT[0]].idxmin()]
    gaps = {str(one.system): (np.log(one[SPENT[0]] / best[SPENT[0]]), one) for _, one in there.iterrows()}
    return best, {name: moved_by(gap, one, best) for name, (gap, one) in gaps.items() if name != best.system}


def drawn(
    model: str | Transformer,
    line: Mapping[str, Any],
    context: float,
    draws: int = 4000,
    assumed: Assumptions | None = None,
) -> Sensitivity:
    """Draw the joules per token at a row of `joules` with everything uncertain varied: TDP, shares, host, fit, time.

    A 90 % interval is drawn evenly over its logarithm, with the spread of a normal distribution of the same interval.
    Inputs that systems share have the same draws; the error of a time belongs to its chip.
    """
    e = point(model, line, context, assumed)
    chip, where = chip_of(e.system), e.step.system
    power, time = facilities.with_assumptions(facilities.power(chip), assumed or {}), f"time of {chip.id}"
    tdp = f"tdp_w of {chip.id}"
    errors = {"fit": (power.chip_width,) * 2, "server": (power.server_width,) * 2}
    errors[time] = line["time_below"], line["time_above"]
    factors = {name: (np.exp(-float(low)), 1.0, np.exp(float(high))) for name, (low, high) in errors.items()}
    low, high = facilities.ends(chip, "tdp_w")

    def j_per_token(power: facilities.Power, fit: NDArray, server: NDArray, **named: Any) -> NDArray:
        tdp_w, slower = named[tdp], named[time]
        hot = replace(chip, tdp_w=tdp_w)
        system = replace(where, chip=hot) if isinstance(where, System) else hot
        moved = cast(Energy, energy(replace(e.step, system=system, time_s=e.step.time_s * slower), power=power))
        watts = page.server_w(np.minimum(moved.chip_w * fit, tdp_w), power.server_ratio, power.host_w_per_chip)
        return page.energy_j(watts * server, e.tokens_per_s_per_chip / slower)

    inputs = {"power": power, tdp: (low, chip.tdp_w, high)} | factors
    return sensitivity(j_per_token, inputs, draws, distributions=dict.fromkeys(factors, "loguniform"))


def quantiles(
    model: str | Transformer, table: pd.DataFrame, context: float, draws: int = 4000, assumed: Assumptions | None = None
) -> pd.DataFrame:
    """Return quantiles of `drawn` for every row of `joules`; a row without an answer has the reason in `why`.

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
        percentiles = drawn(model, line, context, draws, assumed).percentiles(SHARES).iloc[0]
        cuts = {"share_of_draws": SHARES / 100, SPENT[0]: [float(percentiles[f"p{share:g}"]) for share in SHARES]}
        rows.append(who | cuts | {"why": ""})
    names = ["system", "wanted_tokens_per_s_per_user", "software", "share_of_draws", SPENT[0], "why"]
    return tidy(rows).reindex(columns=names)
