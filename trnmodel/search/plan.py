"""The sizing call: which system, precision, option and mapping make most of a request, and why the others lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import instance, listed, refuse
from trnmodel.catalog import load
from trnmodel.catalog import systems as catalog_systems
from trnmodel.catalog.options import Option
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import AVAILABILITY, System
from trnmodel.catalog.systems import find as find_system
from trnmodel.catalog.systems import system as read_system
from trnmodel.declared import MODEL, PRECISION, SEVERAL, STACK, Checked, Object, declare
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.result import Card
from trnmodel.search import plan_card
from trnmodel.search.choice import SHARES, Choice, Point, chosen
from trnmodel.search.grid import Question, computes, grid, options_of
from trnmodel.search.launch import command, runs, undocumented
from trnmodel.search.nearest import nearest
from trnmodel.search.pairs import Pair, best_pair, place
from trnmodel.serving.account import TOO_LATE, load_of, made_per_chip, ttft_s
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.legal import refuse_longer
from trnmodel.steps.request import Request, one_request
from trnmodel.units import spread_of

if TYPE_CHECKING:
    import pandas as pd

PRECISIONS = ("bf16", "fp8", "mxfp8")  # that are tried where none is named: 4 bits change what a model answers
TIED = 0.01  # share of a yield, up to which two systems do the same
SAME = f"the same within {TIED:.0%}".replace("%", " %")


@declare(
    model=MODEL,
    request=Object(Request, "a Request"),
    systems=Checked("ids or names of systems, one or several", SEVERAL),
    precision=PRECISION,
    efficiencies=STACK,
    prefill_systems=Checked("ids or names of systems, one or several", SEVERAL),
)
def plan(
    model: str | Transformer,
    request: Request,
    systems: str | System | Iterable[str | System] | None = None,
    *,
    precision: str | Precision | None = None,
    efficiencies: str | Efficiencies | None = None,
    prefill_systems: str | System | Iterable[str | System] | None = None,
) -> Plan:
    r"""Return the deployment that makes most of a request on each chip that is paid for, with the promises kept.

    .. math:: \max_{system,\,precision,\,option,\,mapping,\,B} \frac{\lambda\,o}{n_{paid}}
        \quad\text{where}\quad \frac{1}{\tau(\lambda)} \ge v

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
        Default the best of BF16, FP8 and MXFP8 that the chip computes in; 4 bits only where they are named. [-]
    efficiencies : str or Efficiencies, optional
        Software stack; default each chip's public one with the best of its documented options, and hand-tuned and
        ideal beside the best. [-]
    prefill_systems : str or System, or several of them, optional
        Systems on which prompts may run on a separate pool, so that each pair of a system and one of them is a choice
        too (`search.pairs.Pair`); the chips of both pools are paid. Default none. [-]

    Returns
    -------
    plan : Plan
        `.best`, `.runner_up`, `.beside`, `.why`, `.command`; `.to_frame()` has a row for each system.

    Raises
    ------
    ValueError
        An argument is out of its range, the model ends before input and output do, no chip computes in the precision, a
        stack is of another maker's software.

    Notes
    -----
    TP and EP are powers of two, TP also what else the runtime supports (24 on Inferentia2), batches those of
    `grid.PER_RANK`; what the stack refuses (`tm.legal`) does not count. A point counts if weights, cache and a prompt
    for each attention group fit all ranks, the first one too. Prompts and decode steps share the chips. Chips that a
    mapping leaves idle in a system are paid. Systems within 1 % of the best do the same: of those the one that can be
    bought comes first, then the one with the fewest chips, then the first of the catalog.

    Examples
    --------
    >>> import trnmodel as tm
    >>> best = plan("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=50), "trn2.48xlarge").best
    >>> bool(best.tokens_per_s_per_user >= 50), best.stack.kind, bool(0 < best.chance <= 1)
    (True, 'public', True)
    """
    q = _asked(read_model(model), one_request("request", request), precision)
    specs = sorted(asked_systems(systems), key=catalog_order)
    if not any(_computed(q, spec) for spec in specs):
        peaks = sorted({dtype for spec in specs for dtype in spec.chip.peak_flop_per_s})
        if precision is None:
            refuse(
                "systems",
                [spec.id for spec in specs],
                f"computes in none of {', '.join(PRECISIONS)}; name the precision: {', '.join(peaks)}",
            )
        refuse("precision", precision, f"no chip asked computes in it; they compute in {', '.join(peaks)}")
    points = {spec.id: _points(q, spec, _options(q, spec, efficiencies)) for spec in specs}
    fitting = [spec for spec in specs if any(point.rank[0] for point in points[spec.id])]
    together = [chosen(points[spec.id][0]) for spec in fitting]
    pairs = _pairs(q, specs, efficiencies, prefill_systems)
    choices = ordered([*together, *(one for one in pairs.values() if isinstance(one, Choice))])
    second, beside = list[Choice](), list[Choice]()
    if choices:
        spec = choices[0].system
        second = [chosen(point) for point in points[spec.id][1:2] if point.rank[0]]
        words = {} if efficiencies is not None else stacks_of(spec.chip)
        for kind in (kind for kind in ("hand-tuned", "ideal") if kind in words):
            others = _points(q, spec, options_of(spec, q.model, q.request, words[kind]))
            beside += [chosen(point) for point in others[:1] if point.rank[0]]
    missing = {spec.id: lacking(spec) for spec in specs}
    whys = {i: some[0].why if some else missing[i] for i, some in points.items()}
    refused = {i: why for i, why in whys.items() if i not in {spec.id for spec in fitting}}
    refused |= {place: one for place, one in pairs.items() if isinstance(one, str)}
    gpus = _gpus(q) if systems is None and efficiencies is None else []
    near = "" if choices and choices[0].valid else _nearest(q, fitting, efficiencies)
    return Plan(q.model, q.request, tuple(choices), tuple(second), refused, tuple(beside), tuple(gpus), near)


def _nearest(q: _Asked, fitting: list[System], efficiencies: Any) -> str:
    """Return the nearest that works: promises on the systems that hold the model, or else a system that holds it."""
    if fitting:
        return nearest(
            (one for spec in fitting for one in _questions(q, spec, _options(q, spec, efficiencies))), q.request
        )
    for spec in sorted(map(read_system, catalog_systems.on_offer()), key=lambda one: one.chips * one.chip.hbm_bytes):
        points = _points(q, spec, _options(q, spec, None))
        if points and points[0].rank[0]:
            return f"{points[0].question.precision.name} on {spec.id}, which holds it"
    return ""


def _gpus(q: _Asked) -> list[Choice]:
    """Return the choices of the GPU systems that can be rented, the best first: what a buyer could rent instead."""
    specs = [read_system(name) for name in catalog_systems.gpus_for_rent()]
    tops = [points[0] for spec in specs if (points := _points(q, spec, _options(q, spec, None)))]
    return sorted((chosen(top) for top in tops if top.rank[0]), key=lambda c: (not c.valid, -c.merit()))


def _pairs(q: _Asked, specs: list[System], efficiencies: Any, prefill_systems: Any) -> dict[str, Pair | str]:
    """Return the best pair of each system with each of the prefill systems, or why there is none, by both names."""
    if prefill_systems is None:
        return {}
    before = sorted(asked_systems(prefill_systems, "prefill_systems"), key=catalog_order)
    asked = {spec.id: _questions(q, spec, _options(q, spec, efficiencies)) for spec in [*specs, *before]}
    return {place(a.id, b.id): best_pair(asked[a.id], asked[b.id]) for a in specs for b in before}


def best_choice(
    model: Transformer, request: Request, spec: System, efficiencies: Any, precision: str | Precision | None
) -> Choice | None:
    """Return the choice of one system for a request; None where nothing fits or its chip lacks the precision."""
    questions = questions_of(model, request, spec, efficiencies, precision)
    points = _best_of(questions)
    return chosen(points[0]) if points and points[0].rank[0] else None


def questions_of(
    model: Transformer, request: Request, spec: System, efficiencies: Any, precision: str | Precision | None
) -> list[Question]:
    """Return the questions of a system: one for each of its software options and each precision that it computes in."""
    q = _asked(model, request, precision)
    return _questions(q, spec, _options(q, spec, efficiencies))


def why_none(questions: list[Question], spec: System) -> str:
    """Return why a system has no choice."""
    points = _best_of(questions)
    return points[0].why if points else lacking(spec)


def lacking(spec: System) -> str:
    """Return in which formats alone a chip computes."""
    return f"computes in {', '.join(spec.chip.peak_flop_per_s)} alone"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question that each system is asked."""

    model: Transformer
    request: Request
    precisions: tuple[Precision, ...]


def _asked(model: Transformer, request: Request, precision: Any) -> _Asked:
    """Return the question, with lengths that the model has."""
    refuse_longer(model, "request", float(request.longest_context))
    return _Asked(model, request, tuple(map(load.precision, PRECISIONS if precision is None else (precision,))))


def _options(q: _Asked, spec: System, efficiencies: Any) -> tuple[Option, ...]:
    """Return the software options of a system; refuse a stack of another maker's software."""
    some = options_of(spec, q.model, q.request, efficiencies)
    for option in some:
        if not runs(option.efficiencies, spec.chip):
            refuse(
                "efficiencies", efficiencies, f"{option.efficiencies.id} does not run on {spec.chip.id} of {spec.id}"
            )
    return some


def asked_systems(systems: Any, argument: str = "systems") -> list[System]:
    """Return the systems asked for in the order given, each once; Trainium's on offer where none is named."""
    if systems is None:
        return [read_system(name) for name in catalog_systems.on_offer()]
    several = listed(argument, systems) if np.iterable(systems) and not isinstance(systems, str) else [systems]
    found = [find_system(instance(argument, one, str | System, "an id or a System"), argument) for one in several]
    by_id = {one.id: one for one in found}
    for one in found:
        if one != by_id[one.id]:
            refuse(argument, one.id, "two different systems have this id; allowed is an id of its own for each")
    return list(by_id.values())


def catalog_order(spec: System) -> tuple[int, str]:
    """Return the place of a system in the catalog; those of a caller follow by their id."""
    ids = catalog_systems.systems()
    return (ids.index(spec.id) if spec.id in ids else len(ids)), spec.id


def _computed(q: _Asked, spec: System) -> list[Precision]:
    """Return the requested precisions in whose compute dtype a system's chip has a peak."""
    return [one for one in q.precisions if computes(spec, one)]


def _questions(q: _Asked, spec: System, some: Iterable[Option]) -> list[Question]:
    """Return a question for each option and each precision that the system computes in."""
    return [Question(q.model, q.request, spec, option, one) for option in some for one in _computed(q, spec)]


def _points(q: _Asked, spec: System, some: Iterable[Option]) -> list[Point]:
    """Return the points of the two best mappings of each precision and option on a system, the best first."""
    return _best_of(_questions(q, spec, some))


def _best_of(questions: list[Question]) -> list[Point]:
    """Return the points of the two best mappings of each question, the best first."""
    return sorted((point for one in questions for point in _searched(one)), key=lambda point: point.rank, reverse=True)


def _searched(q: Question) -> list[Point]:
    """Return the best batch of the two best mappings of a precision and an option.

    Points that keep the promises come first, by what they make of a paid chip; then those that fit, by how near they
    come to the promises on an empty server.
    """
    g = grid(q)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(g.fits, load_of(g.times, q.request)["requests_per_s_per_replica"], np.nan)
        made = made_per_chip(q.request, q.system, rate, g.chips)
        near = np.minimum(q.request.most_tpot_s / g.times.decode_s, 1.0) + 1e-6 / g.times.decode_s
        if q.request.ttft_s is not None:
            near = near + np.minimum(q.request.ttft_s / ttft_s(g.times, 0.0, q.request.ttft_quantile), 1.0)
    kept = np.isfinite(made)
    level = np.where(kept, 2, g.fits)
    merit = np.where(kept, made, np.where(g.fits, near, -g.need / g.have))
    batch = np.lexsort((merit, level), axis=0)[-1]  # the best one of each mapping
    tops = [np.take_along_axis(x, batch[None], 0)[0] for x in (merit, level)]
    places = ((batch[place], place) for place in np.lexsort(tuple(tops))[:-3:-1])
    return [g.point(q, at, float(merit[at]), int(level[at])) for at in places]


def ordered(choices: list[Choice]) -> list[Choice]:
    """Return the choices, the best first; ties go to what can be bought, to the fewest chips, then to the catalog."""
    ranked = sorted(choices, key=lambda c: (not c.valid, -c.merit()))
    tied = [c for c in choices if same(c, ranked[0])]
    first = sorted(tied, key=_first_of_ties)
    return first + [c for c in ranked if not same(c, ranked[0])]


def _first_of_ties(c: Choice) -> tuple[int, bool, float]:
    """Return what orders ties: whether all of it can be bought, whether it is a primary reading, and its chips."""
    status = max(AVAILABILITY.index(one.status) for one in c.systems)
    return status, any(one.alternative_of for one in c.systems), c.chips


def _primary(c: Choice) -> tuple[str, ...]:
    """Return the ids of the systems that a choice is a reading of."""
    return tuple(one.alternative_of or one.id for one in c.systems)


def same(c: Choice, best: Choice) -> bool:
    """Whether two choices tie: both keep the promise, or neither, and they are within `TIED` of each other."""
    return bool(c.valid) == bool(best.valid) and abs(c.merit() / best.merit() - 1) <= TIED


def _in_unit(c: Choice, name: str, basis: str = "") -> str:
    """Return a rate of a choice with its band, in the unit of the table of quantities."""
    return c.in_words(name, quantity(name).unit, basis)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan(Card):
    """The answer to a sizing question: `choices` has one for each system that the model fits, the best first.

    `second` is the best system's next mapping, `refused` says why a system has no choice, `beside` are the best of the
    other kinds of software on the best system, and `gpus`, where no system was named, those of GPUs that can be rented.
    `nearest` names what would work where no system keeps the promises or holds the model.
    """

    model: Transformer
    request: Request
    choices: tuple[Choice, ...]
    second: tuple[Choice, ...]
    refused: Mapping[str, str]
    beside: tuple[Choice, ...]
    gpus: tuple[Choice, ...] = ()
    nearest: str = ""

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
        return [c.place for c in self.choices[1:] if same(c, self.choices[0])]

    @property
    def runner_up(self) -> Choice | None:
        """The next system that is no other reading of the best, one that does not tie first; else the next mapping."""
        rivals = [c for c in self.choices[1:] if _primary(c) != _primary(self.choices[0])]
        rest = sorted(rivals, key=lambda c: same(c, self.choices[0]))
        return next(iter([*rest, *self.second]), None)

    @property
    def why(self) -> dict[str, str]:
        """One reason why each other system loses, by its id; `SAME` where it does what the best one does."""
        return {c.place: self.reason(c) for c in self.choices[1:]} | dict(self.refused)

    def reason(self, c: Choice) -> str:
        """Return why a choice loses: its speed, or the resource that takes the most extra time per token."""
        instance("c", c, Choice, "a Choice of this plan")
        if not any(c is one for one in (*self.choices, *self.second, *self.beside, *self.gpus)):
            refuse("c", f"Choice of {c.question.model.id} on {c.system.id}", "allowed is a Choice of this plan")
        best = self.choices[0]
        alike = (
            f"another reading of {' and '.join(_primary(best))}: "
            if c is not best and _primary(c) == _primary(best)
            else ""
        )
        if c in self.choices and same(c, best):
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
        return f"{1 - c.merit() / best.merit():.0%} less{overlap}{takes}".replace("%", " %")

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
        """Return at most ten lines: what to run, what it makes, how sure that is, what loses, and the command."""
        return plan_card.lines(self)

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Return a row for each system, the best first, then the next mapping, other software, and unusable ones.

        Columns are those of a `Choice`, with `role` ("best", "system", "mapping", "beside", "gpu", "refused"), the id
        of the `option`, the `status` of the system (what a buyer can get) and `why`.
        """
        import pandas as pd

        roles = [("system" if i else "best", c) for i, c in enumerate(self.choices)]
        roles += [("mapping", c) for c in self.second] + [("beside", c) for c in self.beside]
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
        none = [{"system": name, "role": "refused", "why": told, "valid": False} for name, told in self.refused.items()]
        rows += [pd.DataFrame(none)] if none else []
        return pd.concat(rows, ignore_index=True)


def candidates(
    model: Transformer, request: Request, spec: System, efficiencies: Any, precision: str | Precision | None
) -> list[Point]:
    """Return the points of the two best mappings of each precision and option on a system, the best first."""
    return _best_of(questions_of(model, request, spec, efficiencies, precision))
