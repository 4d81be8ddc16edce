"""Tables and the drawing of the chapter that sets Trainium beside GPUs and TPUs: three orders, terms, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trnbook.chapters import common, guard
from trnbook.charts.display import alt
from trnbook.charts.language import called
from trnbook.drawings.svg import Accent, Drawing, line, text
from trnbook.shared import market
from trnbook.shared.choices import plain_stacks
from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.draws import DRAWS, range_of
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
HEADS_OF = {DOLLAR: "per owner's dollar", JOULE: "per joule"}
TIMES = "times_the_best_rival"
BORROWED = "those of other chips"  # in the reason of an energy whose watts no row of the chip gives
NEURON, OTHERS = "Trainium and Inferentia", "GPUs"
SECONDS = {"ms": MS, "us": US, "s": 1.0}
STEPS = ("decode-step", "loaded-step")  # meanings of a decode step without and with other requests' prompts
GPU_ROWS = load.DATA / "evidence" / "comparators.csv"  # runs that others published on chips that are not Amazon's
ROW, TOP, LEFT, RIGHT = 25.0, 50.0, 212.0, 740.0  # of a drawing: its lines, and where its outer figures end [px]
NAMES = 205.0  # from the end of a figure back to the start of its name [px]
AT_AWS, AT_OTHERS = (f"rented {at} [$ per million tokens]" for at in ("at AWS", "from others"))
MOST_S = 2.0  # measured steps beyond it are counted, not drawn [s]
NO_DRAFTS = "per chip, no drafts"


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
    plans = {
        name: Request(input_tokens, output_tokens, tokens_per_s_per_user=float(speed))
        for name, speed in zip(by_id, speeds.values(), strict=True)
    }
    return ids, by_id, plans


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


def standing(
    plans: Mapping[tuple[str, str], Sequence[Choice | None]],
    drawn: Mapping[str, Mapping[str, NDArray]],
    joules: Mapping[str, Mapping[str, RequestEnergy]],
    tables: Mapping[str, pd.DataFrame],
    system: str,
) -> pd.DataFrame:
    """Return how many times as good a system is as the best rival, by measure and model, with ranges.

    Parameters
    ----------
    plans : mapping
        Choices by model and measure, for what is made per chip with and without drafts. [-]
    drawn : mapping
        Costs of the common draws by model and system. [USD]
    joules : mapping
        Energies by model and system. [-]
    tables : mapping of pandas.DataFrame
        Their `measures` by model. [-]
    system : str
        Id of the system. [-]

    Returns
    -------
    table : pandas.DataFrame
        terms, model, times_the_best_rival with `_low` and `_high`, rival. The range per joule takes the energies of
        both as independent, for they run different software. [-]
    """
    rows = terms(plans, system)[["terms", "model", *(f"{TIMES}{end}" for end in ("", "_low", "_high")), "rival"]]
    more = list[dict[str, Any]]()
    for model, table in tables.items():
        own, times = table.set_index("system"), advantage(table, system)
        for name in (DOLLAR, JOULE):
            if np.isnan(times[name]):
                continue
            rival = str(own.loc[rivals(own.index), name].astype(float).idxmin())
            low, high = _ends(drawn[model], system, rival) if name == DOLLAR else _apart(joules[model], system, rival)
            row = {"terms": HEADS_OF[name], "model": model, TIMES: times[name]}
            more.append(row | {f"{TIMES}_low": low, f"{TIMES}_high": high, "rival": rival})
    return pd.concat([rows, pd.DataFrame(more, columns=rows.columns)], ignore_index=True) if more else rows


def _ends(drawn: Mapping[str, NDArray], system: str, rival: str) -> tuple[float, float]:
    """Return the ends of a rival's cost over that of a system; NaN where either has no draws.

    >>> _ends({"a": np.array([1.0, 1.0]), "b": np.array([2.0, 2.0])}, "a", "b")
    (2.0, 2.0)
    """
    return range_of(drawn[rival] / drawn[system]) if {system, rival} <= set(drawn) else (np.nan, np.nan)


def _apart(joules: Mapping[str, RequestEnergy], system: str, rival: str) -> tuple[float, float]:
    """Return the ends of a rival's energy over that of a system, whose errors are independent."""
    mine, other = joules[system], joules[rival]
    value = float(other.server_j_per_token / mine.server_j_per_token)
    (below, above), (less, more) = other.widths(JOULE), mine.widths(JOULE)
    return value * float(np.exp(-np.hypot(below, more))), value * float(np.exp(np.hypot(above, less)))


def shown_standing(table: pd.DataFrame) -> str:
    """Return the rows of `standing` as a table in Markdown, with a column for each model.

    Examples
    --------
    >>> row = {"terms": "per chip", "model": "m", TIMES: 0.5, f"{TIMES}_low": 0.25, f"{TIMES}_high": 1.0}
    >>> print(shown_standing(pd.DataFrame([row | {"rival": "hgx-h100"}])))
    | times the best rival | `m` |
    |---|---|
    | per chip | 0.50 (0.25 to 1.0), 8 x H100 SXM |
    """
    models = list(dict.fromkeys(table.model))
    if not models:
        return ""
    cells = {(row.terms, row.model): _cell(row) for row in table.itertuples()}
    lines = [
        " | ".join(["times the best rival", *(f"`{name}`" for name in models)]),
        "|".join(["---"] * (len(models) + 1)),
    ]
    several = [term for term in ("per chip", NO_DRAFTS, *HEADS_OF.values()) if term in set(table.terms)]
    lines += [" | ".join([term, *(cells.get((term, name), "not known") for name in models)]) for term in several]
    return "\n".join(f"| {line} |" if i != 1 else f"|{line}|" for i, line in enumerate(lines))


def _cell(row: Any) -> str:
    """Return a ratio with its range and its rival."""
    value, low, high = (getattr(row, f"{TIMES}{end}") for end in ("", "_low", "_high"))
    ends = f" ({' to '.join(_two(end) for end in (low, high))})" if np.isfinite(low + high) else ""
    return f"{_two(value)}{ends}, {called(row.rival)}"


def _two(value: float) -> str:
    """Return a ratio in two digits, with the zeros that belong to it.

    >>> _two(1.004), _two(0.0738), _two(14.2)
    ('1.0', '0.074', '14')
    """
    return (
        format_digits(value, 2)
        if value >= 9.95 or value < 0.1
        else f"{value:.1f}"
        if value >= 0.995
        else f"{value:.2f}"
    )


def answer(table: pd.DataFrame, sides: Mapping[str, Comparison], system: str) -> str:
    """Return the card of the chapter from `standing`: the ratio per chip, without drafts, and of the other model."""
    (first, other), name = sides, read_system(system).name
    by_terms = {(row.terms, row.model): row for row in table.itertuples()}
    one, plain, second = (by_terms.get(key) for key in (("per chip", first), (NO_DRAFTS, first), ("per chip", other)))
    others = {"if neither runs drafts": plain, f"with `{other}`": second}
    more = [f"{_two(getattr(row, TIMES))} × {when}" for when, row in others.items() if row is not None]
    figures = {"number": "no comparison", "of": f"`{first}` breaks its promise on {name} or on every rival"}
    if one is not None:
        ends = f" ({' to '.join(_two(getattr(one, f'{TIMES}{end}')) for end in ('_low', '_high'))}; extrapolated)"
        of = f"tokens/s per chip of {name} with `{first}`, over those of the best rival, {called(one.rival)}"
        figures = {
            "number": f"{_two(getattr(one, TIMES))} ×{ends}",
            "of": f"{of}. More than 1 means that Trainium leads",
        }
    return common.card(
        **figures,
        mark="",
        rival=", and ".join(more) or f"no comparison with `{other}`",
        rank="Compared with",
        proof="Check: measured runs of both makers",
    )


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
        note="The best stands on top. = makes the same; ≈ ties with the best, as ranges overlap; – is not published.",
        alt="; ".join(f"{model}: {', '.join(map(str, table.system.map(called)))}" for model, table in tables.items()),
    )


def _slopes(table: pd.DataFrame) -> list[str]:
    """Return one frame: three columns of names and figures in their order, and lines that follow Amazon's chips."""
    xs = dict(zip(MEASURES, (LEFT, (LEFT + RIGHT) / 2, RIGHT), strict=True))
    places = {name: table[name].rank(ascending=name != CHIP, method="first", na_option="bottom") for name in MEASURES}
    shown = {name: [_shown(x, name) for x in table[name]] for name in MEASURES}
    near = {name: _near(table, name) for name in MEASURES}
    marks = [text(x, 22, HEADS[name], anchor="end", bold=True) for name, x in xs.items()]
    for i, row in table.iterrows():
        accent: Accent = "" if rivals([row.system]) else "a"
        at = {name: TOP + ROW * (places[name][i] - 1) for name in MEASURES}
        for (name, y), (after, y2) in pairwise(at.items()) if accent else ():
            marks.append(line(xs[name] + 22, y, xs[after] - NAMES - 6, y2, accent=accent, wide=2))
        for name, y in at.items():
            figure = shown[name][table.index.get_loc(i)]
            marks.append(text(xs[name], y + 5, figure, anchor="end", accent=accent))
            marked = "=" * (shown[name].count(figure) > 1) + "≈" * (i in near[name])
            if figure != "–" and marked:
                marks.append(text(xs[name] + 6, y + 5, marked, anchor="start", accent=accent))
            marks.append(text(xs[name] - NAMES, y + 5, str(called(row.system)), anchor="start", accent=accent))
    return marks


def _near(table: pd.DataFrame, name: str) -> set[Any]:
    """Return the rows whose range of a measure overlaps that of the best, if there are several.

    >>> rows = pd.DataFrame({CHIP: [9.0, 5.0, 1.0], f"{CHIP}_low": [6.0, 3.0, 1.0], f"{CHIP}_high": [12.0, 7.0, 2.0]})
    >>> sorted(_near(rows, CHIP))
    [0, 1]
    """
    if f"{name}_low" not in table or table[name].isna().all():
        return set()
    best = table.loc[table[name].astype(float).idxmax() if name == CHIP else table[name].astype(float).idxmin()]
    meets = (table[f"{name}_low"] <= best[f"{name}_high"]) & (table[f"{name}_high"] >= best[f"{name}_low"])
    return set(table.index[meets]) if meets.sum() > 1 else set()


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


def few(side: Comparison, system: str) -> list[str]:
    """Return four systems at most: one, another Trainium chip, the best rival, and the best TPU or the last rival."""
    ranked = [c.system for c in side.at(side.speeds[0])]
    chip = read_system(system).chip
    others = [one.id for one in ranked if one.chip.core is not None and one.chip != chip]
    mine, far = [one for one in ranked if one.chip.core is None], [one for one in ranked if one.chip.vendor == "Google"]
    return list(dict.fromkeys([system, *others[:1], *(one.id for one in (*mine[:1], *(far[:1] or mine[-1:])))]))


def money(
    ties: pd.DataFrame, table: pd.DataFrame, rented: TokenCosts | None = None, sold: TokenCosts | None = None
) -> pd.DataFrame:
    """Return what others cost, and the rent at which the baseline would tie with each, the cheapest to own first.

    Parameters
    ----------
    ties : pandas.DataFrame
        `.break_even()` of a comparison, whose baseline the rents are of. [-]
    table : pandas.DataFrame
        Its `measures`. [-]
    rented, sold : TokenCosts, optional
        Costs of tokens at AWS's rents and at those of other sellers. [-]

    Returns
    -------
    table : pandas.DataFrame
        system, owner_usd_per_h, owner_usd_per_mtoken, rent_usd_per_h (published), what tokens cost at AWS's rents and
        at others' if asked for, tie_usd_per_h with `_low` and `_high`. [-]
    """
    names = {f"against_break_even_usd_per_chip_h{end}": f"tie_usd_per_h{end}" for end in ("", "_low", "_high")}
    names |= {"owned_usd_per_h": "owner_usd_per_h", "usd_per_chip_h": "rent_usd_per_h"}
    costs = table.set_index("system")[DOLLAR]
    rows = ties.rename(columns=names).assign(owner_usd_per_mtoken=ties.system.map(costs))
    more = {AT_AWS: rented, AT_OTHERS: sold}
    for head, costs_of in more.items():
        if costs_of is not None:
            rows[head] = [market.cell(costs_of[name, "public"]) for name in rows.system]
    columns = ["system", "owner_usd_per_h", "owner_usd_per_mtoken", "rent_usd_per_h"]
    columns += [*(head for head in more if head in rows), *list(names.values())[:3]]
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
    m = read_model(model)
    return [(name, stack) for name in systems for stack in plain_stacks(read_system(name), m, request)]


def terms(plans: Mapping[tuple[str, str], Sequence[Choice | None]], system: str) -> pd.DataFrame:
    """Return how many times the best rival a system makes per chip, by model and terms of the question.

    Parameters
    ----------
    plans : mapping
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
    for (model, term), some in plans.items():
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
        system, share_of_draws (in which it leads or shares the lead), drafts (whether its plan runs them, and
        from where they are taken over), measured steps on its chip of this kind of model and of others, median_error
        of all of them, watts. [-]
    """
    rows, lead = [], side.leads[side.speeds[0]]
    alike = steps.model.map(lambda name: bool(name) and read_model(name).kind == kind)
    for c in side.at(side.speeds[0]):
        chip, reason = c.system.chip.id, str(joules[c.system.id].basis_reason)
        mine = steps[steps.chip == chip]
        row: dict[str, Any] = {"system": c.system.id}
        row["share_of_draws"] = lead.alone[c.system.id] + lead.shared[c.system.id]
        row["drafts"] = _drafts(c)
        row |= {
            "steps of this kind of model": int(alike[mine.index].sum()),
            "of other kinds": int((~alike[mine.index]).sum()),
            "median_error": mine.error.abs().median(),
        }
        known = bool(joules[c.system.id].valid)
        row["watts"] = "not published" if not known else "of other chips" if BORROWED in reason else "of this chip"
        rows.append(row)
    return tidy(rows)


def _drafts(c: Choice) -> str:
    """Return whether a plan runs drafts, and from which chip they are taken over."""
    if c.option.speculates:
        where = ", ".join(sorted(str(called(name)) for name in c.option.measured_on or c.option.documented_on))
        return f"yes, from {where}" if c.option.borrowed else "yes, its own"
    q = c.question
    offered = [one for one in options_of(c.system, q.model, q.request, None) if one.speculates]
    return "no, faster without" if offered else "none documented"


def with_and_without(
    both: pd.DataFrame,
    side: Comparison,
    plain: Iterable[Choice | None],
    free: Iterable[Choice | None],
    pair: tuple[str, str],
) -> pd.DataFrame:
    """Return how one system stands to another, on the page that ran both and for our request, in rows by terms.

    Parameters
    ----------
    both : pandas.DataFrame
        The runs of `one_author`. [-]
    side : Comparison
        The comparison, with drafts where they gain. [-]
    plain, free : iterable of Choice or None
        Choices without drafts that keep the promise, and without drafts or a promise. [-]
    pair : tuple of str
        The systems. [-]
    """
    made = (_most(choices) for choices in (free, plain, side.at(side.speeds[0])))
    terms = ("our request, no drafts, no promise", "our request, no drafts", "our request, drafts where they gain")
    rows = [("that page's runs, no drafts, no promise", both.measured_ratio.median(), both.predicted_ratio.median())]
    for said, most in zip(terms, made, strict=True):
        if set(pair) <= set(most):
            rows.append((said, np.nan, most[pair[0]] / most[pair[1]]))
    head = f"{called(pair[0])} over {called(pair[1])}"
    shown = [(said, *(_two(x) if np.isfinite(x) else "–" for x in two)) for said, *two in rows]
    return pd.DataFrame(shown, columns=["what is compared", f"{head}, measured", f"{head}, predicted"])


def drawn_steps(steps: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the measured steps that a chart draws, and in words how many lie beyond its axis.

    >>> drawn_steps(pd.DataFrame({"measured_s": [0.1, 30.0]}))[1]
    '1 beyond 2 s'
    """
    near = steps.measured_s <= MOST_S
    return steps[near], f"{int((~near).sum())} beyond {MOST_S:g} s"


def with_parity(chart: alt.LayerChart) -> alt.LayerChart:
    """Return a chart of ratios with a line where both sides make the same."""
    rule = alt.Chart(alt.InlineData(values=[{"one": 1}])).mark_rule(color="#888888", strokeDash=[4, 3], strokeWidth=1.5)
    chart.layer.insert(0, rule.encode(x=alt.X(field="one", type="quantitative")))
    return chart


def _most(choices: Iterable[Choice | None]) -> dict[str, float]:
    """Return the largest throughput per chip of the choices of each system that keep their promise."""
    most = dict[str, float]()
    for c in choices:
        if c is not None and c.valid:
            most[c.system.id] = max(most.get(c.system.id, 0.0), c.tokens_per_s_per_chip)
    return most
