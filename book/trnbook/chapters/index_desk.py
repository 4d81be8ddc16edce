"""The desk of the first page: every state that its controls can reach, as the library answered it.

`desk.js` shows it. Of a state it multiplies with prices, counts whole instances and orders systems; it models nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from trnbook.chapters.index_hand import HAND, drafting_s, moved_bytes, prompt_flop
from trnbook.charts.desk import OTHERS
from trnbook.charts.display import script_json
from trnbook.charts.tables import percent
from trnbook.shared.choices import unmeasured
from trnbook.shared.errors import ANY
from trnmodel.catalog.bands import read as read_measured
from trnmodel.catalog.facilities import site
from trnmodel.catalog.load import chip
from trnmodel.catalog.options import NO_SPECULATION, public
from trnmodel.catalog.prices import owner
from trnmodel.catalog.rents import hosted
from trnmodel.catalog.systems import gpus_for_rent, on_offer, system
from trnmodel.cost.tco import PERIOD_H
from trnmodel.draws import range_of
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.search.capacity import provisioned_site_w
from trnmodel.search.single import TIED
from trnmodel.steps.support import support
from trnmodel.units import GB, KW, KWH, MILLION, TB, TFLOP, US, counted, format_digits

if TYPE_CHECKING:
    import pandas as pd

    from trnmodel.catalog.rents import Hosted
    from trnmodel.catalog.systems import System
    from trnmodel.cost.tco import Cost
    from trnmodel.search.chip_seconds import TokenCost
    from trnmodel.search.choice import Choice
    from trnmodel.search.compare import Comparison
    from trnmodel.search.token_cost import TokenCosts
    from trnmodel.steps.request import Request

DOCUMENTED = "documented"
PLAIN = "no drafts"  # documented, of which a system has a row only where it is another one than the best
SOFTWARE: Mapping[str, str | None] = {
    DOCUMENTED: None,
    PLAIN: NO_SPECULATION,
    "hand-tuned": "hand-tuned",
    "ideal": "ideal",
}
QUANTILES = np.arange(0.05, 1.0, 0.1)  # of the draws of a figure
BOUND = {  # what takes the chip time of a generated token
    "memory": "reading memory",
    "compute": "computing",
    "network": "exchanges",
    "overhead": "residual overhead",
    "prompts": "prompts",
}
PARTS = tuple(BOUND)
DRAFTING, IDLE = "drafting", "idle, so that the promise holds"
RESIDUAL = "Residual overhead is what measured steps take beyond the rest. It is fitted, and its cause is not known."
DIGITS = 4  # of a number in the page
ROUNDING = 1e-9  # share of a time up to which a difference is one of the last digits of a double
MANY = 1e6  # sequences, of a page that names no most
MADE = "tokens_per_s_per_chip"
SWITCHED = ("planes", "switch")  # fabrics
SERVER = 8  # GPUs of the largest server
STEPS = ("decode", "prefill")  # parts of measured rows that a band of steps and prompts rests on
SERVED = ("load", "queue", "request", "run", "throughput")  # those of servers and of whole runs


class State(NamedTuple):
    """What a comparison is of: model, tokens of prompt and answer, a key of `SOFTWARE`, limit of the first token."""

    model: str
    input_tokens: int
    output_tokens: int
    software: str
    ttft_s: float | None = None


def states(models: Iterable[str], lengths: Iterable[tuple[int, int]], limited: tuple[int, int, float]) -> list[State]:
    """Return the states of models and lengths with every software, and `limited` ones with documented software.

    Of a limited state the lengths and the limit of the first token [s] are given.

    Examples
    --------
    >>> [one.software for one in states(["llama-3.1-8b"], [(4096, 512)], (4096, 512, 1.0))]
    ['documented', 'no drafts', 'hand-tuned', 'ideal', 'documented']
    """
    prompt, answer, limit = limited
    every = [State(one, *length, software) for one in models for length in lengths for software in SOFTWARE]
    here = [one for one in every if one[1:] == (prompt, answer, DOCUMENTED, None)]
    return [*every, *(one._replace(ttft_s=limit) for one in here)]


@dataclass(frozen=True, slots=True)
class Desk:
    """The controls and answers of the first page, as HTML that `desk.js` fills, and as text elsewhere."""

    data: Mapping[str, Any]

    def _repr_html_(self) -> str:
        data = f'<script type="application/json">{script_json(self.data)}</script>'
        without = "The controls need the built book and its scripts. The answers below stand without them."
        return f'<div class="trn-desk"><p class="trn-without">{without}</p>{data}</div>'

    def __repr__(self) -> str:
        n = sum(len(places) for point in self.data["points"].values() for places in point.values())
        return f"The desk: {len(self.data['models'])} models on {len(self.data['systems'])} systems, {n:,} answers"


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts, each of which stands once, by their place."""

    places: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))


def desk(
    grid: Mapping[State, Comparison],
    priced: Mapping[str, TokenCosts],
    chosen: Mapping[str, Any],
    errors: pd.DataFrame,
) -> Desk:
    """Return the desk of comparisons, with the rents and the owner's costs of their systems.

    Parameters
    ----------
    grid : mapping of State to Comparison
        Comparisons of the same systems at the same speeds. [-]
    priced : mapping of str to TokenCosts
        Costs of tokens on the systems, of which the prices of chip-hours are read: "rent" of AWS, at the "market", and
        "own" to an owner. [-]
    chosen : mapping
        What the controls show first, of `start`. [-]
    errors : DataFrame
        Errors of predictions by question and chip, of `trnbook.shared.errors.by_chip`. [-]
    """
    texts = _Texts()
    first = next(iter(grid.values()))
    names = priced["rent"].systems
    prices = {paid: {one.system.id: one for one in costs.lines} for paid, costs in priced.items()}
    drawn = {name: {paid: lines[name].common_usd_per_h() for paid, lines in prices.items()} for name in names}
    models = list(dict.fromkeys(one.model for one in grid))
    rows = _Texts()
    points = {one: _points(comparison, names, texts, rows, drawn) for one, comparison in grid.items()}
    stored = {_key(one): _new(points, one) for one in grid}
    return Desk(
        {
            "models": models,
            "lengths": list(dict.fromkeys((one.input_tokens, one.output_tokens) for one in grid)),
            "software": list(dict.fromkeys(one.software for one in grid)),
            "limits": sorted({one.ttft_s for one in grid if one.ttft_s}),
            "speeds": [_short(float(speed or 0.0)) for speed in first.speeds],
            "chosen": dict(chosen),
            "parts": [*list(BOUND.values())[:-1], DRAFTING, BOUND["prompts"], IDLE],
            "residual": RESIDUAL,
            "hand": HAND,
            "paid": list(priced),
            "month_h": PERIOD_H,
            "tied": TIED,
            "systems": [_system({paid: lines[name] for paid, lines in prices.items()}) for name in names],
            "peaks": _peaks(grid.values()),
            "options": _options(grid.values()),
            "measured": _measured(names),
            "sure": _sure(errors),
            "unmeasured": {one: said for one in _chips(names) if (said := unmeasured(chip(one)))},
            "unlisted": {one: _unlisted(one, names) for one in models},
            "drafting": {one: {name: _drafting(one, name) for name in _chips(names)} for one in models},
            "hosted": {one: [_hosted(price) for price in hosted(one)] for one in models},
            "points": stored,
            "rows": [json.loads(row) for row in rows.places],
            "texts": list(texts.places),
        }
    )


def _sure(errors: pd.DataFrame) -> str:
    """Return how far predictions of throughput have been off, in two sentences."""
    one = errors[(errors.question == "throughput") & (errors.chip == ANY)].iloc[0]
    half, most = (percent(error, "") for error in (one.median_error, one.p90_error))
    tested = f"We tested the model on measured throughputs of {one.pages} publications that it had not seen."
    return f"{tested} Half of the predictions were off by less than {half}, and one in ten by more than {most}."


def _peaks(several: Iterable[Comparison]) -> dict[str, dict[str, float]]:
    """Return the peak of a chip by the precisions that some answer has on it [TFLOP/s]."""
    peaks = dict[str, dict[str, float]]()
    for c in (c for comparison in several for c in comparison.lines):
        of_chip = peaks.setdefault(c.system.chip.id, {})
        if c.precision not in of_chip:
            of_chip[c.precision] = _short(float(c.system.chip.peak(c.dtypes.compute)) / TFLOP)
    return peaks


def _options(several: Iterable[Comparison]) -> dict[str, list[Any]]:
    """Return what is documented of each option that drafts, by its name.

    Tokens that it proposes in a step, tokens of a step, and the sequences at which these were measured, where printed.
    """
    some = {c.option.name: c.option for comparison in several for c in comparison.lines if c.option.speculates}
    return {
        name: [one.draft_tokens, _short(float(one.tokens_per_step)), _known(one.measured_batch)]
        for name, one in some.items()
    }


def _measured(names: Iterable[str]) -> dict[str, list[int]]:
    """Return by chip how many measured configurations a band has: of steps and prompts, and of servers; with pages.

    Examples
    --------
    >>> steps, step_pages, served, served_pages = _measured(["trn3-nl72x2-pcie160"])["trainium3"]
    >>> step_pages <= steps, served
    (True, 0)
    """
    labels, _, errors, _ = read_measured()

    def counted(chip_id: str, parts: Iterable[str]) -> list[int]:
        here = (labels["chip"] == chip_id) & np.isin(labels["part"].astype(str), list(parts))
        return [int(here.sum()), len(set(errors["source"][here]))]

    return {one: [*counted(one, STEPS), *counted(one, SERVED)] for one in _chips(names)}


def _chips(names: Iterable[str]) -> list[str]:
    """Return the chips of systems, each once."""
    return list(dict.fromkeys(system(name).chip.id for name in names))


def _unlisted(model: str, names: Iterable[str]) -> list[str]:
    """Return the chips on which no documented software lists a model."""
    return [one for one in _chips(names) if support(model, chip(one)).status != "supported"]


def _hosted(price: Hosted) -> list[Any]:
    """Return the seller of a model by the token, its date, and $ per million tokens of prompts and of answers."""
    usd = (price.input_usd_per_token, price.output_usd_per_token)
    return [price.seller, price.printed_date, *(_short(one * MILLION) for one in usd)]


def _drafting(model: str, name: str) -> float:
    """Return the sequences of a replica up to which a page names drafts for a model on a chip; 0 where none does."""
    some = [one.most_sequences for one in public(chip(name), model) if one.speculates]
    return min(max(some, default=0.0), MANY)


def _key(one: State) -> str:
    """Return the name of a state but for its speed."""
    limit = "" if one.ttft_s is None else f",{one.ttft_s:g}"
    return f"{one.model},{one.input_tokens},{one.output_tokens},{one.software}{limit}"


def _wider(one: State) -> State | None:
    """Return the state that a state is a part of: without its limit, or with drafts; None for any other.

    Examples
    --------
    >>> _wider(State("a", 1, 1, PLAIN, 1.0)).software, _wider(State("a", 1, 1, DOCUMENTED))
    ('documented', None)
    """
    if one.software == PLAIN:
        return one._replace(software=DOCUMENTED)
    return None if one.ttft_s is None else one._replace(ttft_s=None)


def _new(points: Mapping[State, Mapping[str, list[int]]], one: State) -> dict[str, list[int]]:
    """Return the answers of a state that are not those of the state that it is a part of."""
    wider = _wider(one)
    return {at: places for at, places in points[one].items() if wider is None or places != points[wider].get(at)}


def _system(priced: Mapping[str, TokenCost]) -> dict[str, Any]:
    """Return what the page knows of a system: its name, chips, and the prices of its chip-hours."""
    rented = priced["rent"]
    spec, cost = rented.system, priced["own"].owned
    return {
        "id": spec.id,
        "name": spec.name,
        "is": described(spec),
        "gpu": not spec.chip.core,
        "chip": spec.chip.id,
        "status": spec.status,
        "chips": spec.chips,
        "hbm_tb_per_s": _short(spec.chip.hbm_bytes_per_s / TB),
        "site_kw": _known(provisioned_site_w(spec, site(spec, None, owner("hyperscaler").facility)) / KW),
        "prices": {paid: _price(one) for paid, one in priced.items()},
        "dates": {paid: one.price_date for paid, one in priced.items() if not one.rent.why and paid != "own"},
        "electricity": None if cost is None else _electricity(cost),
    }


def described(spec: System) -> str:
    """Return what a system is, for who reads its name for the first time.

    Examples
    --------
    >>> described(system("trn3-nl72x2-pcie160")), described(system("hgx-h200"))
    ('144 Trainium3 chips in 2 racks, joined by switches', '8 GPUs in one server (SXM: on one board)')
    """
    chips = counted(spec.chips, f"{spec.chip.name} chip" if spec.chip.core else "GPU")
    if spec.racks > 1:
        return f"{chips} in {spec.racks:g} racks{', joined by switches' if spec.fabric in SWITCHED else ''}"
    if spec.chip.core:
        return f"{chips} in one instance of EC2"
    where = "one server" if spec.chips <= SERVER else "one rack"
    return f"{chips} in {where}{' (SXM: on one board)' if 'SXM' in spec.name else ''}"


def _price(one: TokenCost) -> list[float] | None:
    """Return the price of a chip-hour and its quantiles over the draws; None where there is none."""
    price = float(np.mean(one.usd_per_chip_h))
    if not np.isfinite(price):
        return None
    return [_short(price, DIGITS + 2), *_quantiles(one.common_usd_per_h(), price)]


def _electricity(cost: Cost) -> list[float] | None:
    """Return the owner's price of a kWh, and the kWh of a chip in an hour of use; None where its watts are unknown."""
    usd_per_kwh, usd_per_h = float(cost.owner.electricity_usd_per_j * KWH), float(cost.energy_usd_per_h)
    return [_short(usd_per_kwh), _short(usd_per_h / usd_per_kwh)] if np.isfinite(usd_per_h) else None


def _points(
    comparison: Comparison,
    names: Sequence[str],
    texts: _Texts,
    rows: _Texts,
    prices: Mapping[str, Mapping[str, ArrayLike]],
) -> dict[str, list[int]]:
    """Return the places of the answers of each system that the model fits, by its own, one for each speed."""
    several: dict[str, list[int]] = {}
    for speed in comparison.speeds:
        loads = comparison.loads(speed)
        for c in comparison.at(speed):
            own = loads[loads.system == c.system.id] if len(loads) else loads
            row = json.dumps(_answer(c, own, texts, prices[c.system.id]))
            several.setdefault(str(names.index(c.system.id)), []).append(rows(row))
    return several


def _answer(c: Choice, loads: Any, texts: _Texts, prices: Mapping[str, ArrayLike]) -> list[Any]:
    """Return what a page shows of a choice; of one that is too slow, the speed that it reaches.

    Throughput of a paid chip, first token, joules at the server; degrees in words and batch; the largest loads of
    `by_instance`; and on documented software the basis, the chance, quantiles of the throughput over its middle,
    ends of the throughput, of the first token and of the cost of a million by how it is paid, the chip time of a
    generated token [us] by its parts, idle time last, and as a whole; and of a replica its chips, the bytes of a step
    [GB] and the operations of a prompt [TFLOP].
    """
    if not c.valid:
        return [_short(c.tokens_per_s_per_user)]
    energy = c.energy()
    degrees = c.mapping.replace(f"batch {c.batch:g}", "batch #")
    sizes = [[m, _short(load, DIGITS + 1)] for m, load in by_instance(c.system.chips, loads).items()]
    row: list[Any] = [_short(c.tokens_per_s_per_chip, DIGITS + 1), _short(c.ttft_s), _known(energy.server_j_per_token)]
    row += [texts(degrees), _short(c.batch), sizes]
    if c.stack_kind != "public":
        return row
    made = c.drawn[MADE]
    return [
        *row,
        texts(str(c.basis)),
        _short(c.chance, 3),
        _quantiles(made, c.tokens_per_s_per_chip),
        [_known(end) for end in c.ends(MADE)],
        [_known(end) for end in c.ends("ttft_s")],
        [_cost_ends(c, usd) for usd in prices.values()],
        [_short(part_s / US, 3) for part_s in _parts_s(c)],
        _short(c.request_chip_s / float(c.question.request.output_tokens) / US),
        [_short(c.chips), _short(moved_bytes(c) / GB, 3), _short(prompt_flop(c) / TFLOP, 3)],
    ]


def _parts_s(c: Choice) -> list[float]:
    """Return the parts of the chip time of a generated token [s], in the order of the page: idle time comes last."""
    chips_per_token = c.paid_chips / float(c.batch * c.times.tokens_per_step)
    whole_s = float(c.request_chip_s) / float(c.question.request.output_tokens)
    prompts_s, decode_s = c.chip_s("prompts"), float(c.times.step_s) * chips_per_token
    rest_s = whole_s - decode_s - prompts_s
    idle_s = rest_s if rest_s > ROUNDING * whole_s else 0.0
    return [*map(c.chip_s, PARTS[:-1]), drafting_s(c) * chips_per_token, prompts_s, idle_s]


def by_instance(chips: int, loads: pd.DataFrame) -> dict[int, float]:
    """Return the largest load that so many instances serve together, from the loads of replicas by their chips.

    A replica that several instances hold serves no load alone in one of them. What no number of requests needs is left
    out: more instances that serve no more than the same number of fewer ones.

    Examples
    --------
    >>> import pandas as pd
    >>> by_instance(16, pd.DataFrame({"chips": [4.0, 8.0, 64.0], "requests_per_s_per_replica": [1.0, 2.5, 30.0]}))
    {1: 5.0, 4: 30.0}
    """
    most = dict[int, float]()
    for n, load in zip(loads.get("chips", ()), loads.get("requests_per_s_per_replica", ()), strict=True):
        instances, each = (1, chips // n) if n <= chips else (int(np.ceil(n / chips)), 1)
        most[instances] = max(most.get(instances, 0.0), float(each * load))
    needed = dict[int, float]()
    for instances, load in sorted(most.items()):
        if not any(instances % m == 0 and load <= instances // m * one for m, one in needed.items()):
            needed[instances] = load
    return needed


def _cost_ends(c: Choice, usd_per_h: ArrayLike) -> list[float] | None:
    """Return the ends of the cost of a million tokens at a price of a chip-hour, over common draws of both."""
    usd = usd_per_mtoken(usd_per_h, c.drawn[MADE])
    middle = float(usd_per_mtoken(np.median(np.asarray(usd_per_h)), c.tokens_per_s_per_chip))
    low, high = range_of(np.asarray(usd))
    return [_short(min(low, middle), 3), _short(max(high, middle), 3)] if np.isfinite(low) else None


def _quantiles(drawn: ArrayLike, middle: float) -> list[float]:
    """Return quantiles of draws in hundredths of their middle, without draws in which there is nothing."""
    known = np.asarray(drawn, dtype=float)
    known = known[np.isfinite(known)]
    hundredths = 100 * np.quantile(known, QUANTILES) / middle if known.size else []
    return [_short(float(one), 2 if one < 100 else 3) for one in hundredths]


def _known(value: Any) -> float | None:
    """Return a number for the page; None where it is unknown."""
    one = float(np.mean(value))
    return _short(one) if np.isfinite(one) else None


def _short(value: float, digits: int = DIGITS) -> float:
    """Return a number with the digits that the page needs; a whole number as an int."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def start(grid: Iterable[State], speeds: Sequence[float], model: str, request: Request, users: float) -> dict[str, Any]:
    """Return what the controls show first: the request where the desk has it, else what is nearest to it.

    Examples
    --------
    >>> from trnmodel.steps.request import Request
    >>> wanted = Request(4096, 512, tokens_per_s_per_user=45.0)
    >>> grid = [State("b", 4096, 512, "documented"), State("a", 2048, 512, "documented")]
    >>> first = start(grid, [20.0, 50.0], "a", wanted, 10)
    >>> first["model"], first["input_tokens"], first["tokens_per_s_per_user"]
    ('a', 2048, 50)
    """
    lengths = (request.input_tokens, request.output_tokens)
    away = {
        one: (one.model != model, sum(abs(a - b) for a, b in zip(one[1:3], lengths, strict=True)))
        for one in grid
        if one.software == DOCUMENTED and one.ttft_s is None
    }
    nearest = min(away, key=away.__getitem__)
    return {
        **nearest._asdict(),
        "tokens_per_s_per_user": _short(min(speeds, key=lambda speed: abs(speed - request.tokens_per_s_per_user))),
        "users": users,
    }


def on_sale() -> list[str]:
    """Return the ids of the systems that the desk compares: those of a plan, and the GPUs that it sets beside them.

    Examples
    --------
    >>> names = on_sale()
    >>> "trn2.48xlarge" in names, "hgx-b200" in names, "trn3-nl72x2-ualink" in names
    (True, True, False)
    """
    return [*on_offer(), *gpus_for_rent()]


def frontier(comparison: Comparison, pair: Iterable[str]) -> pd.DataFrame:
    """Return what each system makes at each speed in one state; `pair` holds the names of the systems in colour.

    The script of the page writes the rows of every other state.
    """
    import pandas as pd

    rows = []
    for c in comparison.lines:
        if not c.valid:
            continue
        chosen = c.system.name in pair
        ends = c.ends(MADE)
        low, high = ends if chosen else (np.nan, np.nan)
        rows.append(
            {
                "system": c.system.name,
                "line": c.system.name if chosen else OTHERS,
                "speed": c.question.request.tokens_per_s_per_user,
                "value": c.tokens_per_s_per_chip,
                "low": float(low),
                "high": float(high),
                "band": " to ".join(format_digits(float(end), 2) for end in ends),
                "mapping": c.mapping,
                "bound": BOUND[max(PARTS, key=c.chip_s)],
                "basis": str(c.basis),
            }
        )
    return pd.DataFrame(
        rows, columns=["system", "line", "speed", "value", "low", "high", "band", "mapping", "bound", "basis"]
    )
