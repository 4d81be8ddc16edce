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
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System, chip_of
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import energy as page
from trnmodel.models.transformer import Transformer
from trnmodel.power.energy import Energy, RequestEnergy, energy
from trnmodel.result import tidy
from trnmodel.search.frontier import best_at, formats
from trnmodel.search.sensitivity import Sensitivity, sensitivity
from trnmodel.serving.server import serve
from trnmodel.steps.request import Request

PRECISIONS = ("mxfp8", "fp8", "bf16")
LEVEL = 0.01  # log ratio below which joules count as equal
SHARES = np.linspace(5, 95, 19)  # percentiles of the draws
SPENT = ["server_j_per_token", "server_j_per_token_low", "server_j_per_token_high"]


def request(model: Any, line: Mapping[str, Any], assumed: Assumptions | None = None, **site: Any) -> RequestEnergy:
    """Return the energy of a request at a row of `joules`, with `assumed` numbers in place of data."""
    spec = machine(line["system"], assumed)
    power, choice = facilities.power(spec.chip), line["choice"]
    server = {"precision": choice.precision, "efficiencies": choice.option, "max_batch": choice.batch}
    served = serve(model, choice.question.request, spec, choice.degrees, **server)
    if assumed and power.id in assumed:
        site = site | {"power": facilities.with_assumptions(power, assumed)}
    return cast(RequestEnergy, energy(served, **site))


def point(model: Any, line: Mapping[str, Any], assumed: Assumptions | None = None, **site: Any) -> Energy:
    """Return the energy of the decode step at a row of `joules`, with `assumed` numbers in place of data."""
    return request(model, line, assumed, **site).decode


def machine(system: str | System, assumed: Assumptions | None = None) -> System:
    """Return a system with the numbers assumed for its chip."""
    spec = read_system(system) if isinstance(system, str) else system
    chip = facilities.with_assumptions(spec.chip, assumed or {})
    return spec if chip is spec.chip else replace(spec, chip=chip)


def joules(
    model: str | Transformer,
    systems: Iterable[str],
    speeds: Sequence[float],
    of_request: Request,
    assumed: Assumptions | None = None,
) -> pd.DataFrame:
    """Return J per generated token of a request at the server, by system, promised speed and kind of software.

    Returns
    -------
    table : pandas.DataFrame
        system, wanted_tokens_per_s_per_user, software, precision, tp, ep, batch, stack, choice (as the plan has it),
        tokens_per_s_per_chip (0 where nothing keeps the promise), server_j_per_token with `_low` and `_high`, server_w
        (the mean of a chip and its share of the server), half-widths of the logarithm of watts and of time, each below
        and above, basis. Joules are NaN where nothing keeps the promise. [-]
    """
    rows = list[dict[str, Any]]()
    for name, precision in formats(systems, PRECISIONS).items():
        for kind, word in stacks_of(read_system(name).chip).items():
            choices = best_at(model, of_request, name, speeds, [precision], word)
            for speed, choice in zip(speeds, choices, strict=True):
                line = {"system": name, "wanted_tokens_per_s_per_user": speed, "software": kind, "choice": choice}
                rows.append(line | {"precision": precision} | _spent(model, line, assumed))
    return pd.DataFrame(rows).sort_values("wanted_tokens_per_s_per_user", kind="stable", ignore_index=True)


def _spent(model: str | Transformer, line: Mapping[str, Any], assumed: Assumptions | None) -> dict[str, Any]:
    """Return the figures of a row of `joules`."""
    names = [*SPENT, "server_w", "watts_below", "watts_above", "time_below", "time_above"]
    choice = line["choice"]
    if choice is None:
        return dict.fromkeys(names, np.nan) | {"tokens_per_s_per_chip": 0.0, "stack": "", "option": "", "basis": ""}
    e = request(model, line, assumed)
    parts = (e.prefill, e.decode)
    watts, times = (np.max([one.widths(name) for one in parts], axis=0) for name in ("server_w", "time_s"))
    mean_w = e.server_j_per_token / (e.prefill_chip_s_per_token + e.decode_chip_s_per_token)
    figures = dict(
        zip(names, map(float, (e.server_j_per_token, *e.ends(SPENT[0]), mean_w, *watts, *times)), strict=True)
    )
    about = {name: getattr(choice, name) for name in ("tp", "ep", "batch", "tokens_per_s_per_chip")}
    return figures | about | {"stack": choice.stack.id, "option": choice.option.name, "basis": str(e.basis)}


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
    model: str | Transformer, line: Mapping[str, Any], draws: int = 4000, assumed: Assumptions | None = None
) -> Sensitivity:
    """Draw the joules per token at a row of `joules` with everything uncertain varied: TDP, shares, host, fit, time.

    A 90 % interval is drawn evenly over its logarithm, with the spread of a normal distribution of the same interval.
    Inputs that systems share have the same draws; the error of a time belongs to its chip.
    """
    e = request(model, line, assumed)
    chip, where = chip_of(e.decode.system), e.decode.step.system
    power, time = facilities.with_assumptions(facilities.power(chip), assumed or {}), f"time of {chip.id}"
    tdp = f"tdp_w of {chip.id}"
    errors = {"fit": (power.chip_width,) * 2, "server": (power.server_width,) * 2}
    errors[time] = line["time_below"], line["time_above"]
    factors = {name: (np.exp(-float(low)), 1.0, np.exp(float(high))) for name, (low, high) in errors.items()}
    low, high = facilities.ends(chip, "tdp_w")
    parts = ((e.prefill.step, e.prefill_chip_s_per_token), (e.decode.step, e.decode_chip_s_per_token))

    def j_per_token(power: facilities.Power, fit: NDArray, server: NDArray, **named: Any) -> NDArray:
        tdp_w, slower = named[tdp], named[time]
        hot = replace(chip, tdp_w=tdp_w)
        system = replace(where, chip=hot) if isinstance(where, System) else hot
        joules = np.zeros(())
        for step, chip_s in parts:
            moved = cast(Energy, energy(replace(step, system=system, time_s=step.time_s * slower), power=power))
            watts = page.server_w(np.minimum(moved.chip_w * fit, tdp_w), power.server_ratio, power.host_w_per_chip)
            joules = joules + watts * server * chip_s * slower
        return joules

    inputs = {"power": power, tdp: (low, chip.tdp_w, high)} | factors
    return sensitivity(j_per_token, inputs, draws, distributions=dict.fromkeys(factors, "loguniform"))


def quantiles(
    model: str | Transformer, table: pd.DataFrame, draws: int = 4000, assumed: Assumptions | None = None
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
        percentiles = drawn(model, line, draws, assumed).percentiles(SHARES).iloc[0]
        cuts = {"share_of_draws": SHARES / 100, SPENT[0]: [float(percentiles[f"p{share:g}"]) for share in SHARES]}
        rows.append(who | cuts | {"why": ""})
    names = ["system", "wanted_tokens_per_s_per_user", "software", "share_of_draws", SPENT[0], "why"]
    return tidy(rows).reindex(columns=names)
