"""The sizing call: which system, precision, mapping and batch yield most at a user's speed, and why the others lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, Same, choice, instance, listed, refuse
from trnmodel.catalog import load
from trnmodel.catalog import systems as catalog_systems
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.catalog.systems import system as read_system
from trnmodel.declared import MODEL, PRECISION, SEVERAL, STACK, Checked, Number, declare
from trnmodel.formulas.latency import full_requests_per_s
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.result import Basis, Card, Judged, reason_mask
from trnmodel.search.deployments import computes
from trnmodel.search.launch import command, runs
from trnmodel.search.objective import TOKENS, Objective
from trnmodel.search.request import Request, alone, grid
from trnmodel.steps.answers import RESOURCES, Step
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.ground import joint_basis
from trnmodel.steps.legal import refuse_longer
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import format_digits, spread_of

if TYPE_CHECKING:
    import pandas as pd

PRECISIONS = ("bf16", "fp8", "mxfp8")  # that are tried where none is named: 4 bits change what a model answers
TIED = 0.01  # share of a yield, up to which two systems do the same
SAME = f"the same within {TIED:.0%}".replace("%", " %")
TOLD = 3  # reasons why systems lose that a card tells, and systems that it names with each


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Choice(Judged):
    """One replica on one system and software stack, at the precision, mapping and batch with the most throughput.

    `step` and `first` are the decode step and the prefill that its numbers are read from. A choice that is too slow for
    the user is not valid and keeps its numbers, those of its fastest point, so that one can see by how much.
    """

    REASONS: ClassVar[tuple[str, ...]] = ("too slow for a user at any batch",)
    FIGURE: ClassVar[str] = "tokens_per_s_per_chip"
    UNBANDED: ClassVar[tuple[str, ...]] = ("lnc", "tp", "ep", "batch", "chips", "instances", "replicas_per_instance")

    system: System
    stack: Efficiencies
    dtypes: Precision
    lnc: int
    tp: float
    ep: float
    batch: float
    chips: float
    instances: float
    replicas_per_instance: float
    tokens_per_s_per_user: float
    tokens_per_s_per_chip: float
    with_prompts_tokens_per_s_per_chip: float
    ttft_s: float
    step: Step
    first: Step

    def judge(self) -> Basis:
        """Return the weaker basis of its prefill and its decode step."""
        return joint_basis(self.first, self.step)

    def _widths(self, name: str, part: str = "") -> tuple[NDArray, NDArray]:
        """Return the half-widths of the prefill, of the step, or the wider of both for a figure that holds both."""
        parts = {"ttft_s": [self.first]}.get(name, [self.step])
        if name.startswith("with_prompts"):
            parts = [self.step, self.first]
        below, above = zip(*(part.widths("time_s") for part in parts), strict=True)
        return np.max(below, axis=0), np.max(above, axis=0)

    @property
    def deployment(self) -> Deployment:
        """The chosen point as a deployment, with as many replicas as one system holds."""
        return Deployment(
            model=self.step.model,
            system=self.system,
            mapping=Degrees(tp=self.tp, ep=self.ep, lnc=self.lnc),
            precision=self.dtypes,
            stack=self.stack,
            batch=self.batch,
            replicas=self.replicas_per_instance,
        )

    @property
    def precision(self) -> str:
        """The name of its precision."""
        return self.dtypes.name

    @property
    def mapping(self) -> str:
        """Precision, degrees and batch in words."""
        ep = f" x EP {self.ep:g}" if self.ep > 1 else ""
        return f"{self.precision}, TP {self.tp:g}{ep}, LNC {self.lnc}, batch {self.batch:g}"

    @property
    def merit(self) -> float:
        """What orders choices: throughput a chip of those that are fast enough, the user's speed of the others."""
        return self.tokens_per_s_per_chip if self.valid else self.tokens_per_s_per_user

    def chip_s(self, resource: str) -> float:
        """Return the chip time [s] that a resource takes per token by itself."""
        choice("resource", resource, RESOURCES)
        return float(getattr(self.step, f"{resource}_s")) * self.chips / self.batch


class _Ask(NamedTuple):
    """Inputs of the search on each system."""

    request: Request
    wanted: float
    precisions: tuple[Precision, ...]
    objective: Objective = TOKENS


class _Point(NamedTuple):
    """A point of the grid; `rank` is higher where it is better: it fits, it is fast enough, then by what it does."""

    rank: tuple[int, float]
    precision: Precision
    tp: float
    ep: float
    batch: float
    why: str


@declare(
    model=MODEL,
    systems=Checked("ids or names of systems, one or several", SEVERAL),
    tokens_per_s_per_user=Number(TINY),
    input_tokens=Number(1),
    output_tokens=Number(1),
    precision=PRECISION,
    efficiencies=STACK,
)
def plan(
    model: str | Transformer,
    systems: str | System | Iterable[str | System] | None = None,
    *,
    tokens_per_s_per_user: float,
    input_tokens: float,
    output_tokens: float,
    precision: str | Precision | None = None,
    efficiencies: str | Efficiencies | None = None,
) -> Plan:
    r"""Return the best deployment of a model where every user gets at least a given number of tokens per second.

    .. math:: \max_{system,\,precision,\,TP,\,EP,\,B} \frac{B}{n\,t(B)} \quad\text{where}\quad \frac{1}{t(B)} \ge v

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of an own config.json, or object. [-]
    systems : str or System, or several of them, optional
        Default every system of Trainium chips in the catalog, the alternatives of its racks among them. [-]
    tokens_per_s_per_user : float
        Speed v that each user has at least: one over a decode step at the mean context. [token/s]
    input_tokens, output_tokens : float
        Of one request; steps are at input and half of the output, memory and graphs at both. [token]
    precision : str or Precision, optional
        Default the best of BF16, FP8 and MXFP8 that the chip computes in; 4 bits only where they are named. [-]
    efficiencies : str or Efficiencies, optional
        Software stack; default each chip's public one, with hand-tuned and ideal beside the best. [-]

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
    `deployments.tried`; what the stack refuses (`tm.legal`) does not count. A point counts if weights, cache and one
    prompt fit all ranks, the first one too. Throughput is that of decoding alone;
    `with_prompts_tokens_per_s_per_chip` is what remains where the same chips prefill prompts, one a group of EP at
    once. TTFT is the prefill of one prompt, without a queue. Systems within 1 % of the best do the same: of those with
    the fewest chips the first of the catalog is named, in whatever order they are given.

    Examples
    --------
    >>> ask = {"tokens_per_s_per_user": 50, "input_tokens": 1024, "output_tokens": 256}
    >>> found = plan("llama-3.1-8b", "trn2.48xlarge", **ask)
    >>> found.reached, bool(found.best.tokens_per_s_per_user >= 50), found.best.stack.kind
    (True, True, 'public')
    """
    ask = _asked(read_model(model), tokens_per_s_per_user, input_tokens, output_tokens, precision)
    specs = sorted(asked_systems(systems), key=_catalog_order)
    if not any(_computed(ask, spec) for spec in specs):
        peaks = sorted({dtype for spec in specs for dtype in spec.chip.peak_flop_per_s})
        refuse("precision", precision, f"no chip asked computes in it; they compute in {', '.join(peaks)}")
    stacks = {spec.id: find(spec.chip, efficiencies, "efficiencies") for spec in specs}
    for spec in specs:
        if not runs(stacks[spec.id], spec.chip):
            refuse("efficiencies", efficiencies, f"{stacks[spec.id].id} does not run on {spec.chip.id} of {spec.id}")
    points = {spec.id: _points(ask, spec, stacks[spec.id]) for spec in specs}
    fitting = [spec for spec in specs if any(point.rank[0] for point in points[spec.id])]
    choices = _ordered([_chosen(ask, spec, stacks[spec.id], points[spec.id][0]) for spec in fitting])
    second, beside = list[Choice](), list[Choice]()
    if choices:
        spec = choices[0].system
        second = [_chosen(ask, spec, stacks[spec.id], point) for point in points[spec.id][1:2] if point.rank[0]]
        words = {} if efficiencies is not None else stacks_of(spec.chip)
        for e in (find(spec.chip, words[kind], "efficiencies") for kind in ("hand-tuned", "ideal") if kind in words):
            beside += [_chosen(ask, spec, e, point) for point in _points(ask, spec, e)[:1] if point.rank[0]]
    missing = {spec.id: f"computes in {', '.join(spec.chip.peak_flop_per_s)} alone" for spec in specs}
    whys = {i: found[0].why if found else missing[i] for i, found in points.items()}
    refused = {i: why for i, why in whys.items() if i not in {spec.id for spec in fitting}}
    return Plan(ask.request.model, ask.wanted, *ask.request[1:], tuple(choices), tuple(second), refused, tuple(beside))


def served(
    model: Transformer,
    spec: System,
    e: Efficiencies,
    *,
    tokens_per_s_per_user: float,
    input_tokens: float,
    output_tokens: float,
    precision: str | Precision | None,
    objective: Objective,
) -> Choice | None:
    """Return the choice on one system with the highest objective; None where nothing fits."""
    ask = _asked(model, tokens_per_s_per_user, input_tokens, output_tokens, precision)._replace(objective=objective)
    best = _points(ask, spec, e)[0]
    return _chosen(ask, spec, e, best) if best.rank[0] else None


def _asked(model: Transformer, wanted: float, given: float, output: float, precision: Any) -> _Ask:
    """Return the question, with lengths that the model has."""
    refuse_longer(model, "input_tokens + output_tokens", given + output)
    names = PRECISIONS if precision is None else (precision,)
    return _Ask(Request(model, given, output), wanted, tuple(map(load.precision, names)))


def asked_systems(systems: Any) -> list[System]:
    """Return the systems asked for in the order given, each once; all of Trainium chips where none is named."""
    if systems is None:
        return [one for one in map(read_system, catalog_systems.systems()) if one.chip.id.startswith("trainium")]
    several = listed("systems", systems) if np.iterable(systems) and not isinstance(systems, str) else [systems]
    found = [find_system(instance("systems", one, str | System, "an id or a System"), "systems") for one in several]
    by_id = {one.id: one for one in found}
    for one in found:
        if one != by_id[one.id]:
            refuse("systems", one.id, "two different systems have this id; allowed is an id of its own for each")
    return list(by_id.values())


def _catalog_order(spec: System) -> tuple[int, str]:
    """Return the place of a system in the catalog; those of a caller follow by their id."""
    ids = catalog_systems.systems()
    return (ids.index(spec.id) if spec.id in ids else len(ids)), spec.id


def _computed(ask: _Ask, spec: System) -> list[Precision]:
    """Return the requested precisions in whose compute dtype a system's chip has a peak."""
    return [one for one in ask.precisions if computes(spec, one)]


def _points(ask: _Ask, spec: System, e: Efficiencies) -> list[_Point]:
    """Return the points of the two best mappings of each precision on a system, the best first."""
    found = [point for one in _computed(ask, spec) for point in _searched(ask, spec, e, one)]
    return sorted(found, key=lambda point: point.rank, reverse=True)


def _searched(ask: _Ask, spec: System, e: Efficiencies, precision: Precision) -> list[_Point]:
    """Return the best batch of the two best mappings of a precision."""
    g, points = grid(ask.request, spec, e, precision), []
    made = ask.objective.values(g)
    fast = g.fits & (g.tokens_per_s_per_user >= ask.wanted)
    level = np.where(fast, 2, g.fits)
    worth = np.where(fast, made, np.where(g.fits, g.tokens_per_s_per_user, -g.need / g.have))
    batch = np.lexsort((worth, level), axis=0)[-1]  # the best one of each mapping
    tops = (np.take_along_axis(x, batch[None], 0)[0] for x in (worth, level))
    for place in np.lexsort(tuple(tops))[:-3:-1]:
        at = batch[place], place
        why = f"does not fit: {format_digits(g.need[at], 3)} of {format_digits(g.have[at], 3)} GiB"
        rank, degrees = (int(level[at]), float(worth[at])), (float(g.tp[place]), float(g.ep[place]))
        why = why if g.need[at] > g.have[at] else str(g.why[at])
        points.append(_Point(rank, precision, *degrees, float(g.batch[at]), why))
    return points


def _chosen(ask: _Ask, spec: System, e: Efficiencies, point: _Point) -> Choice:
    """Return a point of the grid as a choice, with its own step and prefill."""
    step, first, prompt_s = alone(ask.request, Same(spec), Same(e), *point[1:5])
    full = full_requests_per_s(point.batch, ask.request.output, step.time_s, 1.0, prompt_s)
    chips = float(step.occupied_chips)
    return Choice(
        system=spec,
        stack=e,
        dtypes=point.precision,
        lnc=site(spec).lnc,
        tp=point.tp,
        ep=point.ep,
        batch=point.batch,
        chips=chips,
        instances=float(np.ceil(chips / spec.chips)),
        replicas_per_instance=float(spec.chips // chips),
        tokens_per_s_per_user=float(step.tokens_per_s_per_user),
        tokens_per_s_per_chip=float(step.tokens_per_s_per_chip),
        with_prompts_tokens_per_s_per_chip=float(full * ask.request.output / chips),
        ttft_s=float(first.time_s),
        step=step,
        first=first,
        reason_mask=reason_mask(float(step.tokens_per_s_per_user) < ask.wanted),
    )


def _ordered(choices: list[Choice]) -> list[Choice]:
    """Return the choices, the best first; ties go to the fewest chips and then to the order of the catalog."""
    found = sorted(choices, key=lambda c: (not c.valid, -c.merit))
    same = [c for c in choices if _same(c, found[0])]
    return sorted(same, key=lambda c: c.chips) + [c for c in found if not _same(c, found[0])]


def _same(c: Choice, best: Choice) -> bool:
    return bool(c.valid) == bool(best.valid) and abs(c.merit / best.merit - 1) <= TIED


def _in_unit(c: Choice, name: str, basis: str = "") -> str:
    """Return a rate of a choice with its band, in the unit of the table of quantities."""
    return c.in_words(name, quantity(name).unit, basis)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan(Card):
    """The answer to a sizing question: `choices` has one for each system that the model fits, the best first.

    `second` is the best system's next mapping, `refused` says why a system has no choice, `beside` are the best of the
    other kinds of software on the best system.
    """

    model: Transformer
    tokens_per_s_per_user: float
    input_tokens: float
    output_tokens: float
    choices: tuple[Choice, ...]
    second: tuple[Choice, ...]
    refused: Mapping[str, str]
    beside: tuple[Choice, ...]

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
        return [c.system.id for c in self.choices[1:] if _same(c, self.choices[0])]

    @property
    def runner_up(self) -> Choice | None:
        """The next system, one that does not do the same first; the next mapping where no other system fits."""
        rest = sorted(self.choices[1:], key=lambda c: _same(c, self.choices[0]))
        return next(iter([*rest, *self.second]), None)

    @property
    def why(self) -> dict[str, str]:
        """One reason why each other system loses, by its id; `SAME` where it does what the best one does."""
        return {c.system.id: self.reason(c) for c in self.choices[1:]} | dict(self.refused)

    def reason(self, c: Choice) -> str:
        """Return why a choice loses: its speed, or the resource that takes the most extra time per token."""
        instance("c", c, Choice, "a Choice of this plan")
        if not any(c is one for one in (*self.choices, *self.second, *self.beside)):
            refuse("c", f"Choice of {c.step.model.id} on {c.system.id}", "allowed is a Choice of this plan")
        best = self.choices[0]
        if c in self.choices and _same(c, best):
            return SAME
        if not c.valid:
            return f"too slow: at most {_in_unit(c, 'tokens_per_s_per_user')}"
        more = {name: c.chip_s(name) - best.chip_s(name) for name in RESOURCES}
        most = max(more, key=more.__getitem__)
        digits = 2 if more[most] > 0.05 * best.chip_s(most) else 4
        times = [spread_of([one.chip_s(most)], "s", digits) for one in (c, best)]
        takes = f": {most} takes {times[0]} of chip time per token, not {times[1]}" if more[most] > 0 else ""
        overlap = " with overlapping bands" if c.high > best.low else ""
        return f"{1 - c.merit / best.merit:.0%} less{overlap}{takes}".replace("%", " %")

    @property
    def command(self) -> str:
        """How a server of the best choice is started; empty where nothing fits, or where no server is its software."""
        c = self.best
        if not c or not c.valid:
            return ""
        longest = self.input_tokens + self.output_tokens
        return command(self.model, c.stack, c.step, c.first, c.dtypes, c.lnc, longest)

    def card(self) -> list[str]:
        """Return six lines: the best, its mapping, other software, the runner-up, why others lose, and the command."""
        c, after = self.best, self.runner_up
        lengths = f"{self.input_tokens:,.0f} tokens in and {self.output_tokens:,.0f} out"
        request = f"{self.model.id} at {self.tokens_per_s_per_user:,g} tokens/s per user, {lengths}"
        if not c:
            return [f"{request}: fits on no system", *self._others(after)]
        speed = _in_unit(c, "tokens_per_s_per_user")
        answer = _in_unit(c, c.FIGURE, str(c.basis))
        if not c.valid:
            answer = f"too slow, at most {_in_unit(c, 'tokens_per_s_per_user', str(c.basis))}"
        lines = [f"{request}: {answer} on {c.system.id} with {c.stack.kind} software"]
        lines.append(
            f"mapping: {c.mapping}, {c.chips:g} of {c.system.chips} chips; {speed}, "
            f"first token after {c.in_words('ttft_s', 's')}, "
            f"{_in_unit(c, 'with_prompts_tokens_per_s_per_chip')} if the same chips prefill the prompts"
        )
        if self.beside:
            others = [f"{b.stack.kind} {_in_unit(b, b.FIGURE) if b.valid else 'too slow'}" for b in self.beside]
            lines.append(f"other software on it: {', '.join(others)}")
        if after:
            answer = _in_unit(after, after.FIGURE) + ", " if after.valid else ""
            lines.append(f"runner-up: {after.system.id}, {after.mapping}; {answer}{self.reason(after)}")
        return [*lines, *self._others(after), *([self.command] if self.command else [])]

    def _others(self, after: Choice | None) -> list[str]:
        """Return why the other systems lose, with those of the same reason together."""
        groups: dict[str, list[str]] = {}
        for name, why in self.why.items():
            if not after or name != after.system.id:
                groups.setdefault(why, []).append(name)
        reasons = [
            ", ".join(names[:TOLD]) + (f" and {len(names) - TOLD} more" if len(names) > TOLD else "") + f" ({why})"
            for why, names in groups.items()
        ]
        more = sum(map(len, list(groups.values())[TOLD:]))
        rest = [f"{more} more system{'s' if more > 1 else ''}"] if more else []
        return ["others: " + "; ".join([*reasons[:TOLD], *rest])] if reasons else []

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Return a row for each system, the best first, then the next mapping, other software, and unusable systems.

        Columns are those of a `Choice`, with `role` ("best", "system", "mapping", "beside", "refused") and `why`.
        """
        import pandas as pd

        roles = [("system" if i else "best", c) for i, c in enumerate(self.choices)]
        roles += [("mapping", c) for c in self.second] + [("beside", c) for c in self.beside]
        why = self.why
        rows = [
            c.to_frame(bands).assign(role=role, why=why.get(c.system.id, "") if role == "system" else "")
            for role, c in roles
        ]
        none = [{"system": name, "role": "refused", "why": told, "valid": False} for name, told in self.refused.items()]
        rows += [pd.DataFrame(none)] if none else []
        return pd.concat(rows, ignore_index=True)
