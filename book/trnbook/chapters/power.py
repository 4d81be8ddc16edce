"""Tables of the chapter on power: its card, rows of joules, boundaries, measured watts, open inputs, evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import Markdown

from trnbook.chapters import common, guard
from trnbook.shared import ledger
from trnbook.shared.choices import per_rack
from trnbook.shared.rack_power import PARTS, WHOLE, RackPower
from trnmodel.catalog import facilities, load
from trnmodel.catalog.facilities import Assumptions, Power
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import System, chip_of
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence import tables as evidence
from trnmodel.formulas import energy as page
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.power.energy import Energy, RequestEnergy
from trnmodel.search.choice import Choice
from trnmodel.search.sensitivity import Sensitivity
from trnmodel.units import KW, format_digits, format_within

SPENT = ["server_j_per_token", "server_j_per_token_low", "server_j_per_token_high"]
INPUTS: Mapping[str, str] = {
    "prompt": "time of a prompt",
    "decode": "time of a decode step",
    "fit": "error of the fit to GPUs",
    "tdp": "TDP of the chip",
    "power.host_w_per_chip": "host and switches",
    "power.idle_share": "idle share",
    "power.compute_activity": "energy of an operation",
    "power.hbm_activity": "energy of a byte from HBM",
}
RACKS = ("gb200-nvl72", "gb300-nvl72")  # whose watts are printed
EVENLY = dict.fromkeys(("fit", "prompt", "decode"), "loguniform")  # factors, drawn evenly over their logarithm
EDGE = 1.1  # factor by which an axis of powers goes on beyond its first and its last point
MOVED = 0.03  # of the answer, below which an input moves nothing


def promises(
    model: str | Transformer, experts_model: str | Transformer, speeds: Sequence[float], longest: float
) -> dict[str, float]:
    """Return the promised speed of each model [token/s]: the first of the speeds, and the last; check the models.

    Examples
    --------
    >>> promises("llama-3.3-70b", "deepseek-v3", [50.0, 20.0], 4608)
    {'llama-3.3-70b': 50.0, 'deepseek-v3': 20.0}
    """
    one, other = read_model(model), read_model(experts_model)
    guard.generates(model=one, experts_model=other)
    guard.spans(longest, model=one, experts_model=other)
    return {str(model): speeds[0]} | ({str(experts_model): speeds[-1]} if str(experts_model) != str(model) else {})


def machines(systems: Sequence[str], assume: Sequence[str] = ()) -> tuple[list[System], Assumptions]:
    """Return systems with the numbers that a reader assumes for their chips, and these numbers; refuse unknown ones.

    Examples
    --------
    >>> machines(["trn2.48xlarge"], ["trainium2.tdp_w=450"])[0][0].chip.tdp_w
    450.0
    """
    assumed = facilities.assumed(assume)
    specs = {spec.id: _with(spec, assumed) for spec in map(read_system, systems)}
    parts = [(one.chip, facilities.power(one.chip), facilities.site(one)) for one in specs.values()]
    known = sorted({one.id for each in parts for one in each})
    guard.one_of(known, **{f"assume: {name}": name for name in assumed})
    return list(specs.values()), assumed


def _with(spec: System, assumed: Assumptions) -> System:
    chip = facilities.with_assumptions(spec.chip, assumed)
    return spec if chip is spec.chip else replace(spec, chip=chip)


def settings(spec: System, assumed: Assumptions) -> dict[str, Any]:
    """Return site and shares of a system's energy with the numbers that a reader assumes; nothing without any.

    Examples
    --------
    >>> settings(read_system("trn2.48xlarge"), {"aws-air": {"peak_pue": 1.4}})["facility"].peak_pue
    1.4
    """
    site, power = facilities.site(spec), facilities.power(spec.chip)
    own = {"facility": facilities.with_assumptions(site, assumed), "power": facilities.with_assumptions(power, assumed)}
    return {name: one for name, one in own.items() if one.id in assumed}


def known(plan: Choice | None) -> bool:
    """Whether a plan keeps its promise on a chip whose watts are known."""
    return plan is not None and bool(plan.valid) and not np.isnan(plan.system.chip.tdp_w)


def reached(plan: Choice | None, spec: System) -> None:
    """Refuse a system that cannot serve the model as promised, or whose watts nobody knows."""
    guard.possible(plan is not None, f"system = {spec.id!r} cannot hold the model")
    assert plan is not None
    why = "" if known(plan) else plan.reason or f"no source has watts of {spec.chip.id}"
    hint = f"; assume = ['{spec.chip.id}.tdp_w=...'] gives them" if plan.valid else ""
    guard.possible(not why, f"system = {spec.id!r}, {plan.question.model.id}: {why}{hint}")


def row(
    model: str, system: str, plan: Choice | None, e: RequestEnergy | None, drawn: Sensitivity | None = None
) -> dict[str, Any]:
    """Return a plan and its energy as a row: place, throughput, mean watts at the server, joules with band.

    The band holds nine of ten draws of all inputs; without draws it has all inputs at their ends.

    Examples
    --------
    >>> row("llama-3.3-70b", "trn1.32xlarge", None, None)["server_j_per_token"]
    nan
    """
    line: dict[str, Any] = {"model": read_model(model).id, "system": system}
    if plan is None or e is None or not e.valid:
        return line | dict.fromkeys(["tokens_per_s_per_chip", "server_w", *SPENT], np.nan)
    joules = dict(zip(SPENT, map(float, (e.server_j_per_token, *e.ends(SPENT[0]))), strict=True))
    if drawn is not None:
        cuts = drawn.percentiles().iloc[0]
        joules |= {SPENT[1]: float(cuts.p5), SPENT[2]: float(cuts.p95)}
    rate = float(plan.tokens_per_s_per_chip)
    about = {name: getattr(plan, name) for name in ["precision", "tp", "ep", "batch"]}
    about |= {"software": plan.stack.kind, "option": plan.option.name, "basis": str(e.basis)}
    about |= {"wanted_tokens_per_s_per_user": float(np.asarray(plan.question.request.tokens_per_s_per_user))}
    return line | {"tokens_per_s_per_chip": rate, "server_w": joules[SPENT[0]] * rate, **joules, **about}


def footprint(energy: Energy) -> pd.DataFrame:
    """Return carbon and water of a million tokens by region, with the units in the names of the columns."""
    names = {"carbon_kg_per_mtoken": "CO2 [kg/Mtoken]", "water_l_per_mtoken": "water [l/Mtoken]"}
    return energy.footprint().rename(columns=names)


def planned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of plans that keep their promise, place first."""
    first = ["model", "wanted_tokens_per_s_per_user", "system", "software", "precision", "tp", "ep", "batch"]
    there = rows.dropna(subset=SPENT[0])
    return there[[*first, *(name for name in there if name not in first)]]


def answer(
    rows: pd.DataFrame,
    plan: Choice,
    e: RequestEnergy,
    assume: Sequence[str] = (),
    *,
    rack: RackPower | None = None,
    undrafted: Mapping[str, RequestEnergy] = {},
) -> Markdown:
    """Return the card that opens the chapter, with the system that takes fewest joules of the others.

    `rack` has the parts of the rack that a source counts. `undrafted` is the energy of the same request on software
    that drafts nothing, by its name.
    """
    name, spec, chip = plan.question.model.id, plan.system, plan.system.chip
    (mine,) = rows[(rows.model == name) & (rows.system == spec.id)].to_dict("records")
    at = e.decode
    chips, (least_w, most_w) = per_rack(spec), map(float, at.ends("all_in_w"))
    provisioned = format_within(chips * float(at.all_in_w) / KW, chips * least_w / KW, chips * most_w / KW, "kW")
    fewest, densest = map(float, at.ends("chips_per_site_mw"))
    held = format_within(float(at.chips_per_site_mw), fewest, densest)
    low, high = (format_digits(float(end), 2) for end in e.ends(SPENT[0]))
    others = (
        rows[(rows.model == name) & (rows.system != spec.id)]
        .dropna(subset=SPENT[0])
        .sort_values(SPENT[0], kind="stable")
    )
    least = others.iloc[0] if len(others) else None
    power, place = facilities.power(chip), "One domain" if np.isnan(spec.racks) else "A rack"
    fields = "idle_share compute_activity hbm_activity chip_width host_w_per_chip server_ratio".split()
    estimates = *ledger.estimated(chip, "tdp_w", "idle_share"), *ledger.estimated(power, *fields)
    return Markdown(
        common.card(
            [float(mine[column]) for column in SPENT],
            f"energy per token of `{name}` at the server of {spec.name}, prompts included. The server then draws "
            f"{_two(mine['server_w']):,.0f} W per chip on average. {place} of {chips:.0f} chips is provisioned at "
            f"{provisioned}. A megawatt of the site holds {held} chips",
            unit="J/token",
            mark=mine["basis"],
            rival=f"{read_system(least.system).name} takes {least[SPENT[0]]:.2g} J/token" if least is not None else "",
            alone="" if least is not None else "no other system that was asked keeps the promise",
            proof="Check against watts that were measured",
            more=f"**How sure is this?** {_sure(chip)} The range of the joules holds nine of ten draws of all open "
            f"inputs. With all of them at their ends at once it is {low} to {high} J/token. The brackets of "
            f"kilowatts and of chips have such ends. {_counted(rack)}{_undrafted(undrafted)}\n\n"
            + (f"**Assumed in this run:** {'; '.join(assume)}.\n\n" if assume else "")
            + ledger.rests_on(*estimates, plan.stack.id),
        )
    )


def _counted(rack: RackPower | None) -> str:
    """Return which part of what is provisioned for a rack has a source; empty where no source counts its parts."""
    if rack is None:
        return ""
    low, high = (float(w) / KW for w in rack.ends("counted_w"))
    parts = format_within(float(rack.counted_w) / KW, low, high, "kW")
    return (
        f"With every chip at its TDP the counted parts of the rack take {parts}. The rest is storage, the network "
        "beyond the rack, management and reserve, which no source counts. "
    )


def _undrafted(undrafted: Mapping[str, RequestEnergy]) -> str:
    """Return the fewest joules of a token without drafts; empty where the plan has none."""
    if not undrafted:
        return ""
    name, e = min(undrafted.items(), key=lambda one: float(one[1].server_j_per_token))
    return f"Without *drafts* a token takes {format_digits(float(e.server_j_per_token), 2)} J, on `{name}`. "


def _sure(chip: Chip) -> str:
    if chip.core is None:
        return "The watts follow a law that was fitted to GPUs whose power was measured."
    return "AWS publishes no watts of any chip. We assume that its chips draw the same shares of their TDP as GPUs do."


def claim(rows: pd.DataFrame) -> str:
    """Return as a title which system takes the fewest joules for the model, and whether another's range reaches it."""
    there = rows[rows.model == rows.model.iloc[0]].dropna(subset=SPENT[0]).sort_values(SPENT[0], kind="stable")
    first, others = there.iloc[0], there.iloc[1:]
    reaches = bool((others[SPENT[1]] <= first[SPENT[2]]).any())
    return f"{read_system(first.system).name} takes fewest joules for {first.model}" + "; ranges overlap" * reaches


def of_the_case(lines: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows of the case: model, system, watts, tokens/s and joules, in digits that the range leaves."""
    table = pd.DataFrame(lines)[["model", "system", "server_w", "tokens_per_s_per_chip", *SPENT]]
    watts = "server, prompts included [W per chip]"
    table = table.rename(columns=lambda name: name.replace("server_j", "energy_j")).rename(columns={"server_w": watts})
    rounded = {watts: table[watts].map(_two), "tokens_per_s_per_chip": table.tokens_per_s_per_chip.map(_three)}
    return table.assign(**rounded)


def sites(plans: Mapping[str, Choice], energies: Mapping[str, RequestEnergy]) -> pd.DataFrame:
    """Return watts per chip of plans, and what a rack and a megawatt of a site hold, as text, the most tokens first."""
    rows = []
    for name, e in energies.items():
        plan, at = plans[name], e.decode
        chips, rate = per_rack(plan.system), float(plan.tokens_per_s_per_chip)
        drawn, all_in, held = (
            np.array([float(x) for x in (getattr(at, figure), *at.ends(figure))])
            for figure in ("server_w", "all_in_w", "chips_per_site_mw")
        )
        line: dict[str, Any] = {"system": name, "drawn in decode [W per chip]": format_within(*drawn)}
        line |= {"provisioned [W per chip]": format_within(*all_in), "chips per rack": chips}
        line |= {"provisioned for a rack [kW]": format_within(*(chips * all_in / KW))}
        line |= {"PUE, hottest day": at.facility.peak_pue, "chips per MW of the site": format_within(*held)}
        made = held * np.array([rate, *map(float, plan.ends("tokens_per_s_per_chip"))])
        rows.append(line | {"tokens/s per MW of the site": format_within(*made), "made": made[0]})
    return pd.DataFrame(rows).sort_values("made", ascending=False, kind="stable").drop(columns="made")


def _two(value: float) -> float:
    return float(f"{float(value):.2g}")


def _three(value: float) -> float:
    return float(f"{float(value):.3g}")


def inputs(e: RequestEnergy) -> dict[str, Any]:
    """Return what is open of the joules of a request: shares and energies, and factors on TDP, fit and times."""
    decode = e.decode
    chip = chip_of(decode.system)
    power = decode.question.power or facilities.power(chip)
    width, room = np.exp(power.chip_width), float(decode.tdp_w / decode.chip_w)  # no chip draws more than its TDP
    factors = {"fit": (1 / width, 1.0, max(min(width, room), 1.0))}
    for name, step in (("prompt", e.prefill.step), ("decode", decode.step)):
        low, high = map(float, step.widths("time_s"))
        factors[name] = (np.exp(-low), 1.0, np.exp(high))
    low, high = facilities.ends(chip, "tdp_w")
    return {"power": _open(power), "tdp": (low / chip.tdp_w, 1.0, high / chip.tdp_w)} | factors


def _open(power: Power) -> Power:
    """Return shares whose only open values are those that the joules at the server read."""
    read = (*(name.partition(".")[2] for name in INPUTS if "." in name), "flop_ratio")
    return replace(power, ranges={name: ends for name, ends in power.ranges.items() if name.startswith(read)})


def tornado(draws: Sensitivity) -> pd.DataFrame:
    """Return joules per token with each input at its 5th and 95th percentile, the widest first: which, and joules."""
    bars, value = draws.tornado(), float(draws.percentiles().value[0])
    bars = bars[bars.swing >= min(MOVED * value, bars.swing.max())].reset_index(drop=True)
    ends = bars[["answer_low", "answer_high"]]
    named = [INPUTS.get(name, "energy of a narrow operation") for name in bars.input]
    rows = {"which": named, SPENT[0]: value, SPENT[1]: ends.min(axis=1), SPENT[2]: ends.max(axis=1)}
    return pd.DataFrame(rows)


def spread(draws: Sensitivity) -> str:
    """Return as a subtitle between which values nine of ten draws of all inputs lie."""
    cuts = draws.percentiles().iloc[0]
    low, high = (format_digits(end, 2) for end in (cuts.p5, cuts.p95))
    return f"nine of ten draws of all inputs lie between {low} and {high} J/token"


def measured() -> pd.DataFrame:
    """Return measured and predicted watts per chip: GPUs in steady state, their model left out, servers and racks."""
    rows = evidence.table("energy_errors")
    rows = rows[rows.steady]
    names = {one: load.chip(one).name for one in rows.chip.unique()}
    label = rows.model + ", " + rows.precision + ", batch " + rows.batch.map("{:,.0f}".format)
    points = rows.assign(of=rows.chip.map(names), label=label)[["of", "label", "measured_w", "predicted_w"]]
    walls = servers()
    watts = {f"{name}_w": walls[f"{name}_kw"] * KW / walls.chips for name in ("measured", "predicted")}
    whole = walls.assign(of=walls.kind, label=walls.what, **watts)
    return pd.concat([points, whole[points.columns]], ignore_index=True)


def one_scale(chart: Any, points: pd.DataFrame) -> Any:
    """Return the chart of `measured` with both axes over the same watts, so that the line of no error is a diagonal."""
    watts = points[["measured_w", "predicted_w"]]
    ends = [float(watts.min(axis=None)) / EDGE, float(watts.max(axis=None)) * EDGE]
    for layer in chart.layer:
        for axis in ("x", "y"):
            layer.encoding[axis].scale = {"type": "log", "nice": False, "domain": ends}
    return chart.properties(height=220)


def described(points: pd.DataFrame) -> str:
    """Return as a title how far the middle prediction of `measured` is off."""
    error = (points.predicted_w / points.measured_w - 1).abs().median()
    return f"Half of the predictions are within {error:.0%}"


def at_low_watts(points: pd.DataFrame) -> Markdown:
    """Return how far the middle prediction of GPUs is off that draw little, below two powers."""
    gpus = points[~points.of.isin(["server", "rack"])]
    error = gpus.predicted_w / gpus.measured_w - 1
    below = error[gpus.measured_w < 550].groupby(gpus.of).median().sort_values(ascending=False, kind="stable")
    each = ". ".join(f"Of {name} below 550 W, the middle prediction is {_off(x)}" for name, x in below.items())
    return Markdown(f"{each}. Below 400 W it is {_off(error[gpus.measured_w < 400].median())}, over all GPUs.")


def _off(error: float) -> str:
    return f"{abs(error):.0%} too {'high' if error > 0 else 'low'}"


def servers() -> pd.DataFrame:
    """Return printed kilowatts of servers and racks with ours: what, kind, measured_kw, predicted_kw, error, chips.

    Servers are predicted by shares that were fitted to the others, a rack by all of its chips at their TDP.

    Examples
    --------
    >>> servers().kind.unique().tolist()
    ['server', 'rack']
    """
    rows = evidence.table("energy_servers").assign(kind="server", chips=8.0)
    lines = []
    for spec in map(read_system, RACKS):
        chips, printed_w = per_rack(spec), float(load.value(spec.id, "rack_w"))
        power = facilities.power(spec.chip)
        ours_w = chips * float(page.server_w(spec.chip.tdp_w, power.server_ratio, power.host_w_per_chip))
        line: dict[str, Any] = {"what": f"{spec.name}, rack", "kind": "rack", "chips": chips}
        lines.append(
            line | {"measured_kw": printed_w / KW, "predicted_kw": ours_w / KW, "error": ours_w / printed_w - 1}
        )
    return pd.concat([rows, pd.DataFrame(lines)], ignore_index=True)


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


def racks(by_rack: Mapping[str, RackPower]) -> pd.DataFrame:
    """Return the parts of racks side by side: their number, and kilowatts per rack with band."""
    table = pd.DataFrame({"part": [*PARTS.values(), WHOLE]})
    for name, rack in by_rack.items():
        rows = rack.parts()
        ends = (rows[["w", "w_low", "w_high"]] / KW).to_numpy()
        texts = [format_within(*row) if row[0] == row[0] else "in no source" for row in ends]
        table = table.assign(**{f"in {name}": rows.number, f"kW of {name}": texts})
    return table


def builds(systems: Iterable[System]) -> pd.DataFrame:
    """Return what chips are made of and how they are cooled, with the watts of HBM at its full rate."""
    rows = []
    for spec in systems:
        chip = spec.chip
        low, high = facilities.ends(chip, "tdp_w")
        full_w = page.moved_w(chip.hbm_bytes_per_s, 1.0, facilities.power(chip).byte_j["hbm"])
        row: dict[str, Any] = {"system": spec.id, "process": chip.process, "package": chip.packaging or "not printed"}
        row |= {"cooling": spec.cooling or "not printed", "tdp_w": chip.tdp_w, "tdp_w_low": low, "tdp_w_high": high}
        rows.append(row | {"hbm_full_rate_w": full_w})
    return pd.DataFrame(rows)


def sources(spec: System, e: RequestEnergy) -> list[str]:
    """Return the ids of the sources behind watts, shares, sites and printed racks of the chapter."""
    used = load.fact_sources(facilities.power(spec.chip), e.decode.facility, facilities.claims())
    rows = load.facts_rows()
    printed = [row.id for row in rows.values() if row.quantity == "rack_w" and row.entity in RACKS]
    used |= {rows[fact_id].source for fact_id in (*spec.chip.sources.get("tdp_w", ()), *printed)}
    return sorted(used | (evidence.sources("energy_servers") & {*load.sources()}))
