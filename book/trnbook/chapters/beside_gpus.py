"""Tables and the drawing of the chapter that sets Trainium beside GPUs and TPUs: three orders, terms, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from trnbook.chapters import common, guard
from trnbook.charts.language import called
from trnbook.drawings.svg import Accent, Drawing, line, text
from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.draws import DRAWS
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.power.energy import RequestEnergy
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.search.compare import Comparison, difference_of
from trnmodel.search.grid import options_of
from trnmodel.search.token_cost import TokenCosts
from trnmodel.steps.request import Request
from trnmodel.units import MS, US, format_digits

CHIP, DOLLAR, JOULE = MEASURES = ("tokens_per_s_per_chip", "usd_per_mtoken", "server_j_per_token")
HEADS = {CHIP: "tokens/s per chip", DOLLAR: "owner's $ per million tokens", JOULE: "J per token"}
SHORT = {CHIP: "per chip", DOLLAR: "per dollar", JOULE: "per joule"}
TIMES = "times_the_best_rival"
BORROWED = "those of other chips"  # in the reason of an energy whose watts no row of the chip gives
NEURON, OTHERS = "Trainium and Inferentia", "GPUs"
SECONDS = {"ms": MS, "us": US, "s": 1.0}
STEPS = ("decode-step", "loaded-step")  # meanings of a decode step without and with other requests' prompts
GPU_ROWS = load.DATA / "evidence" / "comparators.csv"  # runs that others published on chips that are not Amazon's
ROW, TOP, LEFT, RIGHT = 25.0, 52.0, 232.0, 528.0  # of a drawing: its lines and its outer columns [px]


def check(
    system: str,
    systems: Iterable[str],
    models: Mapping[str, str | Transformer],
    lengths: tuple[int, int],
    speeds: Mapping[str, float],
) -> tuple[list[str], dict[str, Transformer], dict[str, Request]]:
    """Return the systems of the chapter, its models by id and the request of each; refuse what cannot be compared.

    Parameters
    ----------
    system, systems : str, iterable of str
        The system that is compared, which has NeuronCores, and the others, of which one has none. [-]
    models : mapping
        The models by the name of their parameter. [-]
    lengths : tuple of int
        Tokens in and out. [token]
    speeds : mapping of str to float
        What each model promises a user, by the name of the parameter and in the order of the models. [token/s]

    Examples
    --------
    >>> models, speeds = {"model": "llama-3.1-8b", "experts_model": "qwen3-30b-a3b"}, {"a": 50.0, "b": 20.0}
    >>> everyone, _, requests = check("trn2.48xlarge", ["hgx-h200", "trn2.48xlarge"], models, (4096, 512), speeds)
    >>> everyone, requests["qwen3-30b-a3b"].tokens_per_s_per_user
    (['trn2.48xlarge', 'hgx-h200'], 20.0)
    """
    spec, others = read_system(system), list(systems)
    ids = list(dict.fromkeys([spec.id, *(read_system(name).id for name in others)]))
    guard.need(bool(rivals(ids)), f"systems = {others} must hold a GPU or a TPU")
    input_tokens, output_tokens = lengths
    own = {parameter: read_model(one) for parameter, one in models.items()}
    guard.generates(**own)
    guard.spans(input_tokens + output_tokens, **own)
    by_id = {one.id: one for one in own.values()}
    guard.need(len(by_id) == len(own), f"{' and '.join(own)} are both {next(iter(by_id))!r}: name two models")
    asked = {
        name: Request(input_tokens, output_tokens, tokens_per_s_per_user=float(speed))
        for name, speed in zip(by_id, speeds.values(), strict=True)
    }
    return ids, by_id, asked


def must_fit(sides: Mapping[str, Comparison], system: str) -> None:
    """Refuse a model that the compared system does not hold."""
    for model, side in sides.items():
        guard.need(system not in side.refused, f"{model} on system = {system!r}: {side.refused.get(system, '')}")


def rivals(systems: Iterable[str]) -> list[str]:
    """Return those of the systems whose chips have no NeuronCores.

    Examples
    --------
    >>> rivals(["trn2.48xlarge", "hgx-h200", "tpu-v6e-pod"])
    ['hgx-h200', 'tpu-v6e-pod']
    """
    return [name for name in systems if read_system(name).chip.core is None]


def measures(side: Comparison, costs: TokenCosts, joules: Mapping[str, RequestEnergy]) -> pd.DataFrame:
    """Return a row for each system of a comparison: what it makes, costs and takes, each with its ends.

    Returns
    -------
    table : pandas.DataFrame
        system, tokens_per_s_per_chip, usd_per_mtoken, server_j_per_token, each with `_low` and `_high`, leads_alone
        and leads_shared (shares of the draws), chance, why. A figure that does not exist is NaN. [-]
    """
    rows, lead = list[dict[str, Any]](), side.leads[side.speeds[0]]
    for c in side.at(side.speeds[0]):
        row: dict[str, Any] = {"system": c.system.id, "why": "" if c.valid else str(c.reason)}
        cost, energy = costs[c.system.id, "public"], joules[c.system.id]
        ends: dict[str, Iterable[Any]] = {CHIP: c.banded(c.FIGURE).values() if c.valid else ()}
        ends[DOLLAR] = (cost.generated_usd_per_mtoken, *cost.ends("generated_usd_per_mtoken")) if cost.valid else ()
        ends[JOULE] = (energy.server_j_per_token, *energy.ends(JOULE)) if c.valid else ()
        for name, three in ends.items():
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), map(float, three or [np.nan] * 3), strict=True))
        row |= {"leads_alone": lead.alone[c.system.id], "leads_shared": lead.shared[c.system.id], "chance": c.chance}
        rows.append(row)
    none = [{"system": name, "why": why} for name, why in side.refused.items()]
    return pd.concat([tidy(rows), pd.DataFrame(none)], ignore_index=True) if none else tidy(rows)


def advantage(table: pd.DataFrame, system: str) -> dict[str, float]:
    """Return how many times as good a system is as the best rival in each measure of `measures`; NaN where unknown.

    Above 1 it makes more per chip, per dollar or per joule than the best system without NeuronCores.
    """
    rows, times = table.set_index("system"), dict[str, float]()
    for name in MEASURES:
        others = rows.loc[rivals(rows.index), name].astype(float).dropna()
        mine = float(rows[name].get(system, np.nan))
        best = (others.max() if name == CHIP else others.min()) if len(others) else np.nan
        times[name] = mine / best if name == CHIP else best / mine
    return times


def _ratios(times: Mapping[str, float]) -> str:
    """Return advantages in words.

    >>> _ratios({CHIP: 0.5512, DOLLAR: 1.004, JOULE: float("nan")})
    '0.55 × per chip, 1.00 × per dollar'
    """
    return ", ".join(f"{x:.2f} × {SHORT[name]}" for name, x in times.items() if x == x)


def answer(tables: Mapping[str, pd.DataFrame], sides: Mapping[str, Comparison], system: str) -> str:
    """Return the card of the chapter: how the system stands to the best rival by chip, dollar and joule, how sure."""
    (model, first), (other, second) = tables.items()
    name, one, two = read_system(system).name, advantage(first, system), advantage(second, system)
    none = "no comparison, for one side breaks the promise"
    return common.card(
        _ratios(one) or none,
        f"`{model}` on {name}, beside the best GPU or TPU in each measure; above one Trainium is ahead, and each "
        "ratio is uncertain by several times",
        mark="extrapolated",
        rival=f"{_ratios(two) or none}, with `{other}`",
        rank="In comparison",
        proof="Check: measured runs of both makers",
        more="**How sure is this?** Nobody has measured this service on all of these systems. "
        + _spread(sides[model], system),
    )


def _spread(side: Comparison, system: str) -> str:
    """Return in words between which ends the ratio per chip lies over the common draws; empty where one is missing."""
    rival = best_rival(side)
    if not rival or system not in {c.system.id for c in side.at()}:
        return ""
    pair = side.difference(system, rival)
    if np.isnan(pair.low):
        return ""
    ends = " and ".join(format_digits(1 + end, 2) for end in (pair.low, pair.high))
    return f"In nine of ten draws of what is unknown of the software, the ratio per chip lies between {ends}."


def orders(tables: Mapping[str, pd.DataFrame]) -> Drawing:
    """Return the drawing of three orders of the same systems, the best on top, with a frame for each model."""
    frames = {model: _slopes(table) for model, table in tables.items()}
    rows = max(len(table) for table in tables.values())
    return Drawing(
        "orders-" + "-".join(name.replace(".", "") for name in tables),
        "The order depends on what you pay for",
        TOP + ROW * rows + 4,
        [],
        frames,
        note="The best stands on top, and a line follows a system. Amazon's chips are coloured; = marks a tie.",
        alt="; ".join(f"{model}: {', '.join(map(str, table.system.map(called)))}" for model, table in tables.items()),
    )


def _slopes(table: pd.DataFrame) -> list[str]:
    """Return one frame: three columns of figures in their order, and lines that follow each system."""
    xs = dict(zip(MEASURES, (LEFT, (LEFT + RIGHT) / 2, RIGHT), strict=True))
    places = {name: table[name].rank(ascending=name != CHIP, method="first", na_option="bottom") for name in MEASURES}
    shown = {name: [_shown(x, name) for x in table[name]] for name in MEASURES}
    marks = [text(x, 22, HEADS[name], bold=True) for name, x in xs.items()]
    for i, row in table.iterrows():
        accent: Accent = "" if rivals([row.system]) else "a"
        at = {name: TOP + ROW * (places[name][i] - 1) for name in MEASURES}
        for (name, y), (after, y2) in pairwise(at.items()):
            look: dict[str, Any] = {"accent": accent, "faint": not accent, "wide": 2.4 if accent else 1.3}
            marks.append(line(xs[name] + 32, y, xs[after] - 32, y2, **look))
        for name, y in at.items():
            figure = shown[name][table.index.get_loc(i)]
            tied = " =" if figure != "–" and shown[name].count(figure) > 1 else ""
            marks.append(text(xs[name], y + 5, figure + tied, accent=accent))
        said = str(called(row.system))
        marks.append(text(LEFT - 40, at[CHIP] + 5, said, anchor="end", accent=accent))
        marks.append(text(RIGHT + 40, at[JOULE] + 5, said, anchor="start", accent=accent))
    return marks


def _shown(value: float, name: str) -> str:
    """Return a figure as the drawing has it; a dash where it is unknown.

    >>> _shown(1.016, DOLLAR), _shown(482.7, CHIP), _shown(float("nan"), CHIP)
    ('$1.02', '483', '–')
    """
    if np.isnan(value):
        return "–"
    return f"${value:.2f}" if name == DOLLAR else format_digits(value, 3)


def points(sides: Mapping[str, Comparison], banded: Iterable[str]) -> pd.DataFrame:
    """Return what each system makes at each promised speed; some systems come last and have their bands.

    Returns
    -------
    table : pandas.DataFrame
        model, system, precision, promised_tokens_per_s_per_user, tokens_per_s_per_chip with `_low` and `_high`; a
        promise that a system does not keep has no row. [-]
    """
    rows, shown = list[dict[str, Any]](), set(banded)
    columns = ["model", "system", "precision", "promised_tokens_per_s_per_user", CHIP, f"{CHIP}_low", f"{CHIP}_high"]
    for model, side in sides.items():
        for c in (c for c in side.lines if c.valid):
            figure = dict(zip((CHIP, f"{CHIP}_low", f"{CHIP}_high"), c.banded(c.FIGURE).values(), strict=True))
            if c.system.id not in shown:
                figure |= {f"{CHIP}_low": np.nan, f"{CHIP}_high": np.nan}
            speed = c.question.request.tokens_per_s_per_user
            row = {"model": model, "system": c.system.id, "precision": c.precision}
            rows.append(row | {"promised_tokens_per_s_per_user": speed} | figure)
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("system", key=lambda names: names.isin(shown), kind="stable", ignore_index=True)


def best_rival(side: Comparison) -> str:
    """Return the rival that makes most per chip at the first speed of a comparison."""
    return next((c.system.id for c in side.at(side.speeds[0]) if rivals([c.system.id])), "")


def money(ties: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return what others cost, and the rent at which the baseline would tie with each, the cheapest to own first.

    Parameters
    ----------
    ties : pandas.DataFrame
        `.break_even()` of a comparison, whose baseline the rents are of. [-]
    table : pandas.DataFrame
        Its `measures`. [-]

    Returns
    -------
    table : pandas.DataFrame
        system, owner_usd_per_h, owner_usd_per_mtoken, rent_usd_per_h (published), tie_usd_per_h with `_low` and
        `_high`. [-]
    """
    names = {f"against_break_even_usd_per_chip_h{end}": f"tie_usd_per_h{end}" for end in ("", "_low", "_high")}
    names |= {"owned_usd_per_h": "owner_usd_per_h", "usd_per_chip_h": "rent_usd_per_h"}
    costs = table.set_index("system")[DOLLAR]
    rows = ties.rename(columns=names).assign(owner_usd_per_mtoken=ties.system.map(costs))
    columns = ["system", "owner_usd_per_h", "owner_usd_per_mtoken", "rent_usd_per_h", *list(names.values())[:3]]
    return rows[columns].sort_values("owner_usd_per_mtoken", kind="stable", ignore_index=True)


def computing(systems: Iterable[str], dtype: str | None) -> list[str]:
    """Return the systems whose chips compute in a format; "mxfp4" stands for any of four bits, None for all formats.

    Examples
    --------
    >>> computing(["trn2.48xlarge", "hgx-h200", "hgx-b200"], "mxfp4")
    ['hgx-b200']
    """
    wanted = {dtype, "nvfp4"} if dtype == "mxfp4" else {dtype}
    return [name for name in systems if dtype is None or wanted & set(read_system(name).chip.peak_flop_per_s)]


def undrafted(model: str | Transformer, request: Request, systems: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of a system and a public stack of it that drafts no tokens.

    Examples
    --------
    >>> undrafted("llama-3.3-70b", Request(4096, 512), ["trn2.48xlarge"])
    [('trn2.48xlarge', 'vllm-neuron-2026'), ('trn2.48xlarge', 'vllm-neuron-2026-async')]
    """
    m, pairs = read_model(model), list[tuple[str, str]]()
    for name in systems:
        options = options_of(read_system(name), m, request, None)
        pairs += [(name, one.efficiencies.id) for one in options if not one.speculates]
    return pairs


def terms(asked: Mapping[tuple[str, str], Sequence[Choice | None]], system: str) -> pd.DataFrame:
    """Return how many times the best rival a system makes per chip, by model and terms of the question.

    Parameters
    ----------
    asked : mapping
        Choices by model and terms; of several of one system the best counts. [-]
    system : str
        Id of the system. [-]

    Returns
    -------
    table : pandas.DataFrame
        terms, model, times_the_best_rival with `_low` and `_high` (over draws in which both keep the promise), rival,
        precision, rival_precision. Terms under which the system or every rival breaks its promise have no row. [-]
    """
    rows = []
    for (model, term), some in asked.items():
        ranked = sorted((c for c in some if c and c.valid), key=lambda c: -c.tokens_per_s_per_chip)
        mine = next((c for c in ranked if c.system.id == system), None)
        best = next((c for c in ranked if rivals([c.system.id])), None)
        if mine is None or best is None:
            continue
        pair = difference_of(*((c.tokens_per_s_per_chip, np.broadcast_to(c.drawn[CHIP], DRAWS)) for c in (mine, best)))
        low, high = (pair.low, pair.high) if mine.stack.kind != "ideal" else (pair.value, pair.value)
        row: dict[str, Any] = {"terms": term, "model": model, TIMES: 1 + pair.value}
        row |= {f"{TIMES}_low": 1 + low, f"{TIMES}_high": 1 + high, "rival": best.system.id}
        rows.append(row | {"precision": mine.precision, "rival_precision": best.precision})
    names = ["terms", "model", TIMES, f"{TIMES}_low", f"{TIMES}_high", "rival", "precision", "rival_precision"]
    return pd.DataFrame(rows, columns=names)


def measured_steps(neuron: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Return the decode steps of two validated tables that have a prediction and count, by maker.

    Returns
    -------
    table : pandas.DataFrame
        of, chip, model, source, measured_s, predicted_s, error, run (what a point shows under the pointer). [-]
    """
    parts = []
    for of, rows in {NEURON: neuron, OTHERS: others}.items():
        rows = rows[rows.meaning.isin(STEPS) & (rows.weight > 0) & (rows.basis != "ideal")]
        rows = rows[~rows.use.str.startswith("GPUs")] if of == NEURON else rows
        scale = rows.unit.str.split().str[0].map(SECONDS)
        table = rows[["chip", "model", "source", "error"]].assign(of=of, predicted_s=rows.predicted * scale)
        said = rows.model + " on " + rows.chip + ", batch " + rows.batch.astype(str)
        parts.append(table.assign(measured_s=table.predicted_s / (1 + rows.error), run=said))
    return pd.concat(parts, ignore_index=True)


def one_author(neuron: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput of runs on Trainium2 and H100 that one page states side by side, measured and predicted.

    Returns
    -------
    table : pandas.DataFrame
        model, chips, batch, measured_ratio and predicted_ratio (Trainium2 over as many H100). [-]
    """
    rows = neuron[(neuron.meaning == "served-throughput") & (neuron.weight > 0)]
    page = set(rows.source[rows.use.str.startswith("GPUs")])
    keys = ["model", "n_chips", "batch", "input_len", "output_len"]
    rows = rows[rows.source.isin(page)].assign(value=lambda t: t.predicted / (1 + t.error))
    both = rows[rows.chip == "trainium2"].merge(rows[rows.chip == "h100"], on=keys, suffixes=("", "_gpu"))
    columns = {"model": both.model, "chips": both.n_chips, "batch": both.batch}
    columns |= {"measured_ratio": both.value / both.value_gpu, "predicted_ratio": both.predicted / both.predicted_gpu}
    return pd.DataFrame(columns)


def grounds(side: Comparison, joules: Mapping[str, RequestEnergy], steps: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return how often each system leads, and what its figures rest on.

    Parameters
    ----------
    side : Comparison
        The comparison. [-]
    joules : mapping of RequestEnergy
        Energy by system. [-]
    steps : pandas.DataFrame
        The `measured_steps`. [-]
    kind : str
        Kind of the model that is compared. [-]

    Returns
    -------
    table : pandas.DataFrame
        system, share_of_draws (in which it leads or shares the lead), software, measured steps on its chip of this
        kind of model and of others, median_error of all of them, watts. [-]
    """
    rows, lead = [], side.leads[side.speeds[0]]
    alike = steps.model.map(lambda name: bool(name) and read_model(name).kind == kind)
    for c in side.at(side.speeds[0]):
        chip, reason = c.system.chip.id, str(joules[c.system.id].basis_reason)
        mine = steps[steps.chip == chip]
        row: dict[str, Any] = {"system": c.system.id}
        row["share_of_draws"] = lead.alone[c.system.id] + lead.shared[c.system.id]
        row["software"] = (c.option.engine or c.stack.name.partition(" (")[0]).partition(", ")[0]
        row |= {
            "steps of this kind of model": int(alike[mine.index].sum()),
            "of other kinds": int((~alike[mine.index]).sum()),
            "median_error": mine.error.abs().median(),
        }
        known = bool(joules[c.system.id].valid)
        row["watts"] = "not published" if not known else "of other chips" if BORROWED in reason else "of this chip"
        rows.append(row)
    return tidy(rows)
