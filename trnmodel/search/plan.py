"""The sizing call: which system, precision, option and mapping make most of a request, and why the others lose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import MOST_CHIPS, TINY, instance, refuse
from trnmodel.catalog import systems as catalog_systems
from trnmodel.catalog.facilities import Facility
from trnmodel.catalog.facilities import facility as read_facility
from trnmodel.catalog.prices import Owner
from trnmodel.catalog.prices import owner as read_owner
from trnmodel.catalog.rents import Rent
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost import workbook
from trnmodel.cost.tco import PERIOD_H
from trnmodel.declared import MODEL, PRECISION, SEVERAL, STACK, Checked, Named, Number, Object, declare
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.result import Card
from trnmodel.search import capacity_card, plan_card, plan_data
from trnmodel.search.capacity import SIZES, Capacity, Demand, capacity
from trnmodel.search.choice import SHARES, Choice, chosen
from trnmodel.search.flips import Flips, flips
from trnmodel.search.grid import options_of
from trnmodel.search.launch import command, undocumented
from trnmodel.search.nearest import nearest
from trnmodel.search.pairs import Pair, best_pair, place
from trnmodel.search.price_ties import checked_pricing
from trnmodel.search.single import (
    PRECISIONS,
    TIED,
    Search,
    asked_systems,
    catalog_order,
    computed,
    lacking,
    option_questions,
    options_for,
    ordered,
    points_of,
    primary,
    same,
    search_for,
)
from trnmodel.serving.account import TOO_LATE
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.request import Request, one_request
from trnmodel.units import BILLION, format_digits, spread_of

if TYPE_CHECKING:
    import pandas as pd

HIGHEST_AVAILABILITY = 1 - 1e-9
RENTED = "for rent"
SAME = f"the same within {TIED:.0%}".replace("%", " %")


@declare(
    model=MODEL,
    request=Object(Request, "a Request"),
    systems=Checked("ids or names of systems, one or several", SEVERAL),
    precision=PRECISION,
    efficiencies=STACK,
    prefill_systems=Checked("ids or names of systems, one or several", SEVERAL),
    users=Number(TINY, BILLION),
    chips=Number(1, MOST_CHIPS),
    site_w=Number(TINY, 1e30),
    usd_per_month=Number(TINY, 1e30),
    availability=Number(0, HIGHEST_AVAILABILITY),
    max_loss_percent=Number(0, 100),
    facility=Named("a facility"),
    pricing=Checked("a pricing, a price of a chip-hour in USD, a Rent, or a mapping of them by system"),
    owner=Named("an owner"),
)
def plan(
    model: str | Transformer,
    request: Request,
    systems: str | System | Iterable[str | System] | None = None,
    *,
    precision: str | Precision | None = None,
    efficiencies: str | Efficiencies | None = None,
    prefill_systems: str | System | Iterable[str | System] | None = None,
    users: float | None = None,
    chips: float | None = None,
    site_w: float | None = None,
    usd_per_month: float | None = None,
    availability: float | None = None,
    max_loss_percent: float | None = None,
    facility: str | Facility | None = None,
    pricing: str | float | Rent | Mapping[str, Any] = "capacity-block",
    owner: str | Owner = "hyperscaler",
) -> Plan:
    r"""Return the deployment that makes most of a request on each chip that is paid for, with the promises kept.

    .. math:: \max_{system,\,precision,\,option,\,mapping,\,B} \frac{\lambda\,o}{n_{paid}}
        \quad\text{where}\quad \frac{1}{\tau(\lambda)} \ge v

    A size says how much of it is needed: the rate of the request, users, chips, watts or dollars. `.capacity` then
    counts instances, spares, bill, watts and lost hours.

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of an own config.json, or object. [-]
    request : Request
        Prompt, answer and promises; one request, no array. Without a rate, each replica runs at the largest load at
        which the promises hold. [-]
    systems : str or System, or several of them, optional
        Default the systems of Trainium chips that can be rented or were announced. [-]
    precision : str or Precision, optional
        Default the best of BF16, FP8 and MXFP8 that the chip computes in; 4 bits only where they are named, and then
        in the chip's own format: "mxfp4" asks Blackwell in NVFP4. [-]
    efficiencies : str or Efficiencies, optional
        Software stack; default each chip's public one with the best of its documented options, and hand-tuned and
        ideal beside the best. "no-speculation" leaves out the options that draft tokens. [-]
    prefill_systems : str or System, or several of them, optional
        Systems on which prompts may run on a separate pool, so that each pair of a system and one of them is a choice
        too (`search.pairs.Pair`); the chips of both pools are paid. Default none, and none with a size. [-]
    users : float, optional
        Users that decode at once at the promised speed, which gives the rate of the requests: 2,000 users at 50
        tokens/s with answers of 500 tokens send 200 requests/s. [-]
    chips : float, optional
        Chips that there are at most, spares included. The best system is the one that generates most within a limit,
        and at most one size is allowed, the rate of the request included. [-]
    site_w : float, optional
        Power that the site provisions at most, spares included. [W]
    usd_per_month : float, optional
        Rent per month at most, spares included. [USD]
    availability : float, optional
        Share of time in which all replicas run; spare instances stand by for it. Default no spares. [-]
    max_loss_percent : float, optional
        Most that number formats may lose of the model's score in BF16, by `tm.quality`; formats that are known to lose
        more, or of which nothing is published, are left out. Default any loss. [%]
    facility : str or Facility, optional
        Site whose PUE counts; default for each system that of its cooling. [-]
    pricing : str, float, Rent, or a mapping of them by system
        How instances are rented, as of `tm.rent`, or a price of a chip-hour of your own; systems that a mapping does
        not name are rented on capacity blocks. [USD/h]
    owner : str or Owner
        Who owns in the lines of owned instances. [-]

    Returns
    -------
    plan : Plan
        `.best`, `.runner_up`, `.other_software`, `.why`, `.command`, `.capacity`; `.to_frame()` has a row for each
        system.

    Raises
    ------
    ValueError
        An argument is out of its range, the model ends before input and output do, no chip computes in the precision, a
        stack is of another maker's software, or two sizes are given.

    Notes
    -----
    TP and EP are powers of two, TP also what else the runtime supports (24 on Inferentia2), batches those of
    `grid.PER_RANK`; what the stack refuses (`tm.legal`) does not count. A point counts if weights, cache and a prompt
    for each attention group fit all ranks, the first one too. Prompts and decode steps share the chips. Chips that a
    mapping leaves idle in a system are paid. Systems within 1 % of the best do the same: of those the one that can be
    bought comes first, then the one with the fewest chips, then the first of the catalog. With a limit systems are
    ordered by what their whole instances generate within it; one without a published price is not ordered by dollars.

    Examples
    --------
    >>> import trnmodel as tm
    >>> best = plan("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=50), "trn2.48xlarge").best
    >>> bool(best.tokens_per_s_per_user >= 50), best.stack.kind, bool(0 < best.chance <= 1)
    (True, 'public', True)
    """
    demand = Demand(
        users=users,
        chips=chips,
        site_w=site_w,
        usd_per_month=usd_per_month,
        availability=availability,
        facility=None if facility is None else read_facility(facility),
        pricing=checked_pricing(pricing),
        owner=read_owner(owner),
    )
    q = search_for(read_model(model), demand.at_rate(one_request("request", request)), precision, max_loss_percent)
    _refuse_pairs(demand, prefill_systems)
    specs = _able(q, sorted(asked_systems(systems), key=catalog_order), precision)
    points = {spec.id: points_of(q, spec, options_for(q, spec, efficiencies)) for spec in specs}
    fitting = [spec for spec in specs if any(point.rank[0] for point in points[spec.id])]
    together = [chosen(points[spec.id][0]) for spec in fitting]
    pairs = _pairs(q, specs, efficiencies, prefill_systems)
    within, beyond = _within(demand, [*together, *(one for one in pairs.values() if isinstance(one, Choice))])
    choices = ordered(within, demand_merit(demand))
    second, others = list[Choice](), list[Choice]()
    if choices:
        spec = choices[0].system
        second = [chosen(point) for point in points[spec.id][1:2] if point.rank[0]]
        kinds = {} if efficiencies is not None else stacks_of(spec.chip)
        for kind in (kind for kind in ("hand-tuned", "ideal") if kind in kinds):
            tops = points_of(q, spec, options_of(spec, q.model, q.request, kinds[kind]))[:1]
            others += [chosen(point) for point in tops if point.rank[0]]
    missing = {spec.id: lacking(spec) for spec in specs}
    whys = {i: some[0].why if some else missing[i] for i, some in points.items()}
    refused = {i: why for i, why in whys.items() if i not in {spec.id for spec in fitting}}
    refused |= {place: one for place, one in pairs.items() if isinstance(one, str)}
    refused |= {c.place: _beyond(demand, c, why, choices[:1]) for c, why in beyond}
    gpus = _gpus(q, demand) if systems is None and efficiencies is None else []
    near = ""
    if beyond and not choices:
        near = _smallest(demand, [c.system for c, _ in beyond]) if demand.limit else ""
    elif not choices or not choices[0].valid:
        near = _nearest(q, fitting, efficiencies)
    return Plan(
        q.model,
        q.request,
        tuple(choices),
        tuple(second),
        refused,
        tuple(others),
        tuple(gpus),
        near,
        demand,
        tuple(c for c, _ in beyond),
    )


def _refuse_pairs(demand: Demand, prefill_systems: Any) -> None:
    """Refuse pairs of systems beside a size or an availability."""
    stated = ((name, getattr(demand, name)) for name in (*SIZES, "availability"))
    size = next((f"{name}={value:.15g}" for name, value in stated if value is not None), "")
    if prefill_systems is not None and size:
        refuse("prefill_systems", prefill_systems, f"pairs of systems are not counted for {size}")


def _able(q: Search, specs: list[System], precision: Any) -> list[System]:
    """Return the systems; refuse them where none computes in a precision of the question."""
    if not any(computed(q, spec) for spec in specs):
        peaks = sorted({dtype for spec in specs for dtype in spec.chip.peak_flop_per_s})
        if precision is None:
            none = f"computes in none of {', '.join(PRECISIONS)}; name the precision: {', '.join(peaks)}"
            refuse("systems", [spec.id for spec in specs], none)
        refuse("precision", precision, f"no chip asked computes in it; they compute in {', '.join(peaks)}")
    return specs


def demand_merit(demand: Demand) -> Callable[[Choice], float]:
    """Return what orders choices: tokens/s within a limit, or of a paid chip; the speed of a user where none holds."""

    def merit(c: Choice) -> float:
        return capacity(demand, c).tokens_per_s if demand.limit and c.valid else c.merit()

    return merit


def _within(demand: Demand, some: Iterable[Choice]) -> tuple[list[Choice], list[tuple[Choice, str]]]:
    """Return the choices of which the demand allows an instance, and the others with the reason."""
    whys = [(c, _short_of(demand, c)) for c in some]
    return [c for c, why in whys if not why], [(c, why) for c, why in whys if why]


def _short_of(demand: Demand, c: Choice) -> str:
    """Return why the demand allows no instance of a choice; empty where it does."""
    why = demand.most_instances(c.system)[1]
    if why or not c.valid or not (demand.limit or demand.availability):
        return why
    return str(capacity(demand, c).reason)


def _smallest(demand: Demand, specs: Iterable[System]) -> str:
    """Return the system of which one instance takes least of the limit, in words; empty where none is known."""
    known = [(each, spec) for spec in specs if np.isfinite(each := demand.each(spec)[0])]
    if not known:
        return ""
    spec = min(known, key=lambda one: one[0])[1]
    return demand.least(spec).replace("one instance", f"one {spec.id}")


def _beyond(demand: Demand, c: Choice, why: str, best: Sequence[Choice]) -> str:
    """Return why a choice is not within the limit, and at which price it would tie where it has none."""
    if demand.usd_per_month is None or not c.valid or not demand.price(c.system).why or not best:
        return why
    made = capacity(demand, best[0])
    if not made.valid:
        return why
    chips = made.tokens_per_s / c.tokens_per_s_per_chip
    tie = demand.usd_per_month / (chips * PERIOD_H)
    return f"{why}; it would make as much as {best[0].place} at ${format_digits(tie, 3)} per chip-hour"


def _nearest(q: Search, fitting: list[System], efficiencies: Any) -> str:
    """Return the nearest that works: promises on the systems that hold the model, or else a system that holds it."""
    if fitting:
        some = (one for spec in fitting for one in option_questions(q, spec, options_for(q, spec, efficiencies)))
        return nearest(some, q.request)
    for spec in sorted(map(read_system, catalog_systems.on_offer()), key=lambda one: one.chips * one.chip.hbm_bytes):
        points = points_of(q, spec, options_for(q, spec, None))
        if points and points[0].rank[0]:
            return f"{points[0].question.precision.name} on {spec.id}, which holds it"
    return ""


def _gpus(q: Search, demand: Demand) -> list[Choice]:
    """Return the choices of the GPU systems that can be rented, the best first: what a buyer could rent instead."""
    specs = [read_system(name) for name in catalog_systems.gpus_for_rent()]
    tops = [points[0] for spec in specs if (points := points_of(q, spec, options_for(q, spec, None)))]
    within, _ = _within(demand, [chosen(top) for top in tops if top.rank[0]])
    merit = demand_merit(demand)
    best_first = sorted(within, key=lambda c: (not c.valid, -merit(c)))
    if q.request.requests_per_s is not None:  # what serves a load is chosen by its bill, as on the first page
        return sorted(best_first, key=lambda c: (not c.valid, _bill(demand, c)))
    return _cheapest_first(demand, best_first, merit)


def _bill(demand: Demand, c: Choice) -> float:
    """Return the rent of a month for the demand; infinite where no price is known."""
    usd = capacity(demand, c).usd_per_month if c.valid else np.nan
    return np.inf if np.isnan(usd) else usd


def _cheapest_first(demand: Demand | None, some: list[Choice], merit: Callable[[Choice], float]) -> list[Choice]:
    """Return choices of which those that tie with the first are in the order of their rent, then of their instances.

    What ties makes as much per paid chip, so that the price of a chip-hour orders bills, and the size of a system its
    instances.
    """
    tied = [c for c in some if same(c, some[0], merit) and c.valid]
    if demand is None or len(tied) < 2 or isinstance(some[0], Pair):
        return some

    def bill(c: Choice) -> tuple[float, float]:
        usd = float(demand.price(c.system).usd_per_chip_h)
        return (np.inf if np.isnan(usd) else float(f"{usd:.2g}")), -c.system.chips

    return [*sorted(tied, key=bill), *(c for c in some if not any(c is one for one in tied))]


def _pairs(q: Search, specs: list[System], efficiencies: Any, prefill_systems: Any) -> dict[str, Pair | str]:
    """Return the best pair of each system with each of the prefill systems, or why there is none, by both names."""
    if prefill_systems is None:
        return {}
    before = sorted(asked_systems(prefill_systems, "prefill_systems"), key=catalog_order)
    questions = {spec.id: option_questions(q, spec, options_for(q, spec, efficiencies)) for spec in [*specs, *before]}
    return {place(a.id, b.id): best_pair(questions[a.id], questions[b.id]) for a in specs for b in before}


def _in_unit(c: Choice, name: str, basis: str = "") -> str:
    """Return a rate of a choice with its band, in the unit of the table of quantities."""
    return c.in_words(name, quantity(name).unit, basis)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan(Card):
    """The answer to a sizing question: `choices` has one for each system that the model fits, the best first.

    `second` is the best system's next mapping, `refused` says why a system has no choice, `other_software` are the best
    of the other kinds of software on the best system, and `gpus`, where no system was named, those of GPUs that can be
    rented. `nearest` names what would work where no system keeps the promises or holds the model. `demand` is the size
    that was asked for, and `beyond` are choices of which its limit allows no instance.
    """

    model: Transformer
    request: Request
    choices: tuple[Choice, ...]
    second: tuple[Choice, ...]
    refused: Mapping[str, str]
    other_software: tuple[Choice, ...]
    gpus: tuple[Choice, ...] = ()
    nearest: str = ""
    demand: Demand | None = None
    beyond: tuple[Choice, ...] = ()

    def merit(self, c: Choice) -> float:
        """Return what orders the choices: tokens/s within the limit of the demand, or of a paid chip without one."""
        self._own(c)
        return demand_merit(self.demand)(c) if self.demand else c.merit()

    @property
    def capacity(self) -> Capacity | None:
        """Instances, spares, bill and watts of the best choice for the demand; None for a pair, and if nothing fits."""
        return self.capacity_of(self.best) if self.best and not isinstance(self.best, Pair) else None

    def capacity_of(self, c: Choice) -> Capacity:
        """Return instances, spares, bill and watts of a choice of this plan for the demand."""
        self._own(c)
        assert self.demand is not None
        return capacity(self.demand, c)

    @property
    def for_rent(self) -> Choice | None:
        """The best choice that keeps the promises on a system that can be rented today; None where there is none.

        Of those that tie the one with the lowest rent comes first, then the one with the fewest instances.
        """
        some = [c for c in self.choices if c.valid and all(one.status == RENTED for one in c.systems)]
        return _cheapest_first(self.demand, some, self.merit)[0] if some else None

    def _own(self, c: Any) -> Choice:
        """Return a choice of this plan; refuse any other."""
        instance("c", c, Choice, "a Choice of this plan")
        if not any(c is one for one in (*self.choices, *self.second, *self.other_software, *self.gpus)):
            refuse("c", f"Choice of {c.question.model.id} on {c.system.id}", "allowed is a Choice of this plan")
        return c

    @property
    def best(self) -> Choice | None:
        """The choice that yields most a chip; the fastest one where none is fast enough; None where nothing fits."""
        return self.choices[0] if self.choices else None

    @property
    def deployment(self) -> Deployment | None:
        """The best choice as a deployment with mapping, batch, replicas and spares; None where nothing fits."""
        return self.best.deployment if self.best else None

    @property
    def reached(self) -> bool:
        """Whether any system is as fast as a user wants."""
        return bool(self.choices) and bool(self.choices[0].valid)

    @property
    def same(self) -> list[str]:
        """Other systems that do what the best one does, within 1 %."""
        return [c.place for c in self.choices[1:] if same(c, self.choices[0], self.merit)]

    @property
    def runner_up(self) -> Choice | None:
        """The next system that is no other reading of the best, one that does not tie first; else the next mapping."""
        rivals = [c for c in self.choices[1:] if primary(c) != primary(self.choices[0])]
        rest = sorted(rivals, key=lambda c: same(c, self.choices[0], self.merit))
        return next(iter([*rest, *self.second]), None)

    @property
    def why(self) -> dict[str, str]:
        """One reason why each other system loses, by its id; `SAME` where it does what the best one does."""
        return {c.place: self.reason(c) for c in self.choices[1:]} | dict(self.refused)

    def reason(self, c: Choice) -> str:
        """Return why a choice loses: its speed, or the resource that takes the most extra time per token."""
        c, best = self._own(c), self.choices[0]
        alike = (
            f"another reading of {' and '.join(primary(best))}: "
            if c is not best and primary(c) == primary(best)
            else ""
        )
        if c in self.choices and same(c, best, self.merit):
            return alike + SAME
        if c.reason == TOO_LATE:
            return f"{c.reason}: after {c.in_words('ttft_s', 's')} on an empty server"
        if not c.valid:
            return f"{c.reason}: at most {_in_unit(c, 'tokens_per_s_per_user')}"
        more = {name: c.chip_s(name) - best.chip_s(name) for name in SHARES}
        most = max(more, key=more.__getitem__)
        digits = 2 if more[most] > 0.05 * best.chip_s(most) else 4
        times = [spread_of([one.chip_s(most)], "s", digits) for one in (c, best)]
        verb = "take" if most == "prompts" else "takes"
        takes = f": {most} {verb} {times[0]} of chip time per token, not {times[1]}" if more[most] > 0 else ""
        overlap = " with overlapping bands" if c.high > best.low else ""
        return f"{1 - self.merit(c) / self.merit(best):.0%} less{overlap}{takes}".replace("%", " %")

    @property
    def command(self) -> str:
        """How a server of the best choice is started; empty where nothing fits, and where no single server is it."""
        c = self.best
        if not c or not c.valid or isinstance(c, Pair):
            return ""
        longest = float(self.request.longest_context)
        return command(self.model, c.option, c.step, c.first, c.dtypes, c.lnc, longest)

    @property
    def no_command(self) -> str:
        """Why no document gives a command for the best choice, with the page that documents it; else empty."""
        c = self.best
        if not c or not c.valid or c.stack.kind != "public":
            return ""
        return undocumented(c.option, c.step, c.dtypes)

    def card(self) -> list[str]:
        """Return what to run, what it makes, how sure that is, what loses, the command, and with a size the bill."""
        sized = self.demand is not None and (self.demand.counts or self.request.requests_per_s is not None)
        return capacity_card.lines(self) if sized else plan_card.lines(self)

    def flips(self) -> Flips | None:
        """Return what would flip the order of the best system and its rival: the best GPU for rent, else the runner-up.

        None where there is no rival, or where one of the two does not keep the promises.
        """
        best = self.best
        rivals = [c for c in self.gpus if c.valid] or [
            c for c in self.choices[1:] if c.valid and c.place not in self.same
        ]
        if best is None or not best.valid or not rivals or isinstance(best, Pair) or isinstance(rivals[0], Pair):
            return None
        return flips(self.capacity_of(best), self.capacity_of(rivals[0]), self.other_software)

    def to_data(self) -> dict[str, Any]:
        """Return the plan as plain data: every figure with its ends, the bill, the instances; see `plan_data`."""
        return plan_data.data_of(self)

    def to_workbook(self, path: str | Path) -> Path:
        """Write the owner's cost of the best system as a workbook of formulas; see `cost.workbook`.

        Raises ValueError where nothing keeps the promises, or nobody prices the parts of the best system.
        """
        if self.best is None or not self.best.valid:
            refuse("path", str(path), "no system keeps the promises, so that there is no cost to write")
        return workbook.write(self.capacity_of(self.best).owned, path, self.best.tokens_per_s_per_chip)

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Return a row for each system, the best first, then the next mapping, other software, and unusable ones.

        Columns are those of a `Choice`, with `role` ("best", "system", "mapping", "beside", "gpu", "refused"), the id
        of the `option`, the `status` of the system (what a buyer can get) and `why`.
        """
        import pandas as pd

        roles = [("system" if i else "best", c) for i, c in enumerate(self.choices)]
        roles += [("mapping", c) for c in self.second] + [("beside", c) for c in self.other_software]
        roles += [("gpu", c) for c in self.gpus]
        why = self.why
        rows = [
            c.to_frame(bands).assign(
                role=role,
                option=c.option.id,
                status=c.system.status,
                why=why.get(c.place, "") if role == "system" else "",
            )
            for role, c in roles
        ]
        none = [{"system": name, "role": "refused", "why": why, "valid": False} for name, why in self.refused.items()]
        rows += [pd.DataFrame(none)] if none else []
        return pd.concat(rows, ignore_index=True)
