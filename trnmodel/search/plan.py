"""The sizing call: which system, precision, option and mapping make most of a request, and why the others lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import instance, refuse
from trnmodel.catalog import systems as catalog_systems
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.declared import MODEL, PRECISION, SEVERAL, STACK, Checked, Object, declare
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.result import Card
from trnmodel.search import plan_card
from trnmodel.search.choice import SHARES, Choice, chosen
from trnmodel.search.grid import options_of
from trnmodel.search.launch import command, undocumented
from trnmodel.search.nearest import nearest
from trnmodel.search.pairs import Pair, best_pair, place
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
from trnmodel.units import spread_of

if TYPE_CHECKING:
    import pandas as pd

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
    q = search_for(read_model(model), one_request("request", request), precision)
    specs = sorted(asked_systems(systems), key=catalog_order)
    if not any(computed(q, spec) for spec in specs):
        peaks = sorted({dtype for spec in specs for dtype in spec.chip.peak_flop_per_s})
        if precision is None:
            refuse(
                "systems",
                [spec.id for spec in specs],
                f"computes in none of {', '.join(PRECISIONS)}; name the precision: {', '.join(peaks)}",
            )
        refuse("precision", precision, f"no chip asked computes in it; they compute in {', '.join(peaks)}")
    points = {spec.id: points_of(q, spec, options_for(q, spec, efficiencies)) for spec in specs}
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
            others = points_of(q, spec, options_of(spec, q.model, q.request, words[kind]))
            beside += [chosen(point) for point in others[:1] if point.rank[0]]
    missing = {spec.id: lacking(spec) for spec in specs}
    whys = {i: some[0].why if some else missing[i] for i, some in points.items()}
    refused = {i: why for i, why in whys.items() if i not in {spec.id for spec in fitting}}
    refused |= {place: one for place, one in pairs.items() if isinstance(one, str)}
    gpus = _gpus(q) if systems is None and efficiencies is None else []
    near = "" if choices and choices[0].valid else _nearest(q, fitting, efficiencies)
    return Plan(q.model, q.request, tuple(choices), tuple(second), refused, tuple(beside), tuple(gpus), near)


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


def _gpus(q: Search) -> list[Choice]:
    """Return the choices of the GPU systems that can be rented, the best first: what a buyer could rent instead."""
    specs = [read_system(name) for name in catalog_systems.gpus_for_rent()]
    tops = [points[0] for spec in specs if (points := points_of(q, spec, options_for(q, spec, None)))]
    return sorted((chosen(top) for top in tops if top.rank[0]), key=lambda c: (not c.valid, -c.merit()))


def _pairs(q: Search, specs: list[System], efficiencies: Any, prefill_systems: Any) -> dict[str, Pair | str]:
    """Return the best pair of each system with each of the prefill systems, or why there is none, by both names."""
    if prefill_systems is None:
        return {}
    before = sorted(asked_systems(prefill_systems, "prefill_systems"), key=catalog_order)
    asked = {spec.id: option_questions(q, spec, options_for(q, spec, efficiencies)) for spec in [*specs, *before]}
    return {place(a.id, b.id): best_pair(asked[a.id], asked[b.id]) for a in specs for b in before}


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
        rivals = [c for c in self.choices[1:] if primary(c) != primary(self.choices[0])]
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
            f"another reading of {' and '.join(primary(best))}: "
            if c is not best and primary(c) == primary(best)
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
