"""Systems side by side for one request, in common draws: who leads, how sure that is, and where the order flips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, number, numbers, refuse
from trnmodel.catalog.prices import Owner
from trnmodel.catalog.rents import Rent
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.declared import MODEL, PRECISION, SEVERAL, STACK, SYSTEM, Checked, Named, Numbers, Object, declare
from trnmodel.draws import range_of
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.result import Card, tidy
from trnmodel.search import single as planner
from trnmodel.search.choice import Choice
from trnmodel.search.grid import Question, grid
from trnmodel.search.plan_card import UNIT, documented, one_constant
from trnmodel.search.price_ties import PricesAsked, checked_pricing, price_tie, ties_in_words
from trnmodel.serving.account import Times, made_per_chip, planned_requests_per_s
from trnmodel.steps.request import Request, one_request
from trnmodel.units import counted, format_digits

if TYPE_CHECKING:
    import pandas as pd

MADE = Choice.FIGURE
SPEEDS = 97  # speeds between the slowest and the fastest at which the order of two systems is looked at
SLOWEST = 1.0  # of them [token/s]
ROUNDS, PARTS = 5, 16  # of the search for a flip between two of them: each round looks at so many parts
MANY_TIMES = 9.0  # difference from which it is printed as a factor
NAMED = 5  # systems that a line of the card describes


class Lead(NamedTuple):
    """Who leads in how many of the draws, by system; values within 1 % of the best one share the lead.

    `alone` and `shared` are shares of all draws. In `tied` several lead, in `none` no system keeps the promise.
    """

    alone: Mapping[str, float]
    shared: Mapping[str, float]
    tied: float
    none: float


class Difference(NamedTuple):
    """How much more one system makes than another: `value` as predicted, `low` to `high` over the draws.

    The range is that of the draws in which both keep the promise; shares of the draws say in how many `both` do, only
    the first, only the second, and neither.
    """

    value: float
    low: float
    high: float
    both: float
    only_first: float
    only_second: float
    neither: float


class Flip(NamedTuple):
    """A speed of a user at which the order of two systems changes: who is ahead below and above it.

    `alone` says that above it only the system that is ahead keeps the promise.
    """

    tokens_per_s_per_user: float
    below: str
    above: str
    alone: bool


@declare(
    model=MODEL,
    request=Object(Request, "a Request"),
    systems=Checked("ids or names of systems, one or several", SEVERAL),
    speeds=Numbers(TINY, 1e30),
    precision=PRECISION,
    efficiencies=STACK,
    baseline=SYSTEM,
    pricing=Checked("a pricing, a price of a chip-hour in USD, a Rent, or a mapping of them by system"),
    region=Checked("a region or seller that a published price names", {"type": "string"}),
    owner=Named("an owner"),
)
def compare(
    model: str | Transformer,
    request: Request,
    systems: str | System | Iterable[str | System],
    *,
    speeds: Any = None,
    precision: str | Precision | None = None,
    efficiencies: str | Efficiencies | None = None,
    baseline: str | System | None = None,
    pricing: str | float | Rent | Mapping[str, Any] = "capacity-block",
    region: str | None = None,
    owner: str | Owner = "hyperscaler",
) -> Comparison:
    """Return the best deployment of each system for one request, side by side in common draws.

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of an own config.json, or object. [-]
    request : Request
        Prompt, answer and promises; one request, no array. [-]
    systems : str or System, or several of them
        Systems that are compared, of Trainium or of GPUs, each once. [-]
    speeds : numeric, optional
        Speeds that a user is promised, each an own comparison; default the request's. [token/s]
    precision, efficiencies : str or object, optional
        As in `plan`. [-]
    baseline : str or System, optional
        System that the others are compared with; default the leader at each speed. [-]
    pricing : str, float, Rent, or a mapping of them by system
        How chips are rented, as in `plan`, where prices at which systems tie are wanted for. [USD/h]
    region : str, optional
        Where published prices are taken from, as in `tm.rent`. [-]
    owner : str or Owner
        Who owns chips there, as in `tm.tco`. [-]

    Returns
    -------
    comparison : Comparison
        `.lines`, `.leader`, `.leads`, `.ties`, `.difference(a, b)`, `.flips`, `.break_even()`; `.to_frame()` has a row
        for each system and speed.

    Raises
    ------
    ValueError
        An argument is out of its range, or `baseline` is none of the systems.

    Notes
    -----
    Each answer is that of `plan` on this system. What nobody knows of the software is drawn a thousand times. Systems
    with the same software and chip have the same draws, so that their difference is known better than either value.
    Systems within 1 % of each other tie. Flips are looked for from 1 token/s per user up. No price decides who leads:
    a system without one has its place. `.break_even()` says at which prices the order of the dollars would turn.

    Examples
    --------
    >>> import trnmodel as tm
    >>> request = tm.Request(1024, 256)
    >>> both = compare("llama-3.1-8b", request, ["trn2.48xlarge", "trn2.3xlarge"], speeds=[20, 50])
    >>> [c.system.id for c in both.lines[:2]], both.ties[20.0]
    (['trn2.3xlarge', 'trn2.48xlarge'], ['trn2.48xlarge'])
    """
    own, wanted = read_model(model), one_request("request", request)
    if systems is None:
        refuse("systems", systems, "allowed are ids or names of systems, one or several")
    specs = sorted(planner.asked_systems(systems), key=planner.catalog_order)
    base = None if baseline is None else _of_these("baseline", baseline, [spec.id for spec in specs])
    questions = {one.id: planner.questions_of(own, wanted, one, efficiencies, precision) for one in specs}
    if not any(questions.values()):
        peaks = sorted({dtype for spec in specs for dtype in spec.chip.peak_flop_per_s})
        refuse("precision", precision, f"no chip wanted computes in it; they compute in {', '.join(peaks)}")
    several = [wanted.tokens_per_s_per_user] if speeds is None else _each_once(speeds)
    lines = list[Choice]()
    for speed in several:
        promised = replace(wanted, tokens_per_s_per_user=speed)
        some = [planner.best_choice(own, promised, spec, efficiencies, precision) for spec in specs]
        lines += planner.ordered([c for c in some if c is not None])
    fitting = {c.system.id for c in lines}
    refused = {one.id: planner.why_none(questions[one.id], one) for one in specs if one.id not in fitting}
    prices = PricesAsked(checked_pricing(pricing), region, owner).checked()
    for spec in specs if not isinstance(pricing, str) else ():
        prices.of(spec)  # which refuses the price of another system
    return Comparison(own, wanted, tuple(several), tuple(lines), refused, base, questions, prices)


def _each_once(speeds: Any) -> list[float]:
    """Return the speeds in increasing order, each once."""
    return np.unique(numbers("speeds", speeds, TINY)).tolist()


def _of_these(argument: str, value: Any, ids: Iterable[str]) -> str:
    """Return the id of a system that is compared; refuse any other by the argument's name."""
    if not isinstance(value, str | System):
        refuse(argument, value, f"allowed is one of {', '.join(ids)}")
    if isinstance(value, str) and value in ids:
        return value
    name = find_system(value, argument).id
    return name if name in ids else refuse(argument, name, f"it is not compared; allowed is one of {', '.join(ids)}")


def _flat(times: Times, here: NDArray) -> Times:
    """Return the times of the points that can exist, in one row."""
    parts = {
        name: np.broadcast_to(getattr(times, name), here.shape)[here] for name in times._fields if name != "compiled"
    }
    return times._replace(**parts)


def _fitting(questions: Iterable[Question]) -> Iterator[tuple[Question, Times, NDArray]]:
    """Yield each question of which some points can exist, with the times and the chips of those in one row."""
    for q in questions:
        g = grid(q)
        if np.any(g.fits):
            yield q, _flat(g.times, g.fits), np.broadcast_to(g.chips, g.fits.shape)[g.fits]


def objective(questions: Iterable[Question], speeds: NDArray) -> NDArray:
    """Return generated tokens per second per paid chip of the best point of a system at each speed of a user.

    NaN where no point keeps the promise. It reads the grids that a plan has read.
    """
    best = np.full(len(speeds), -1.0)
    for q, times, chips in _fitting(questions):
        request = replace(q.request, tokens_per_s_per_user=speeds[:, None])
        with np.errstate(invalid="ignore", divide="ignore"):
            made = made_per_chip(request, q.system, planned_requests_per_s(times, request), chips)
        best = np.maximum(best, np.nan_to_num(made, nan=-1.0).max(axis=-1))
    return np.where(best >= 0, best, np.nan)


def largest_loads(questions: Iterable[Question], request: Request) -> dict[float, float]:
    """Return the most requests per second of a replica at which the promises hold, by how many chips it takes."""
    most = dict[float, float]()
    for _, times, chips in _fitting(questions):
        with np.errstate(invalid="ignore", divide="ignore"):
            loads = planned_requests_per_s(times, request)
        kept = np.isfinite(loads)
        for n in np.unique(chips[kept]).tolist():
            most[n] = max(most.get(n, 0.0), float(loads[kept & (chips == n)].max()))
    return dict(sorted(most.items()))


def _fastest(questions: Iterable[Question]) -> float:
    """Return the highest speed of a user on an empty server of a system; 0 where nothing fits."""
    grids = [grid(q) for q in questions]
    speeds = [(1 / np.broadcast_to(g.times.decode_s, g.fits.shape)[g.fits]).max() for g in grids if g.fits.any()]
    return max(map(float, speeds), default=0.0)


def _sign(first: NDArray, second: NDArray, tied: float) -> NDArray:
    """Return 1 where the first system is ahead, -1 where the second is, and 0 where they tie or neither runs."""
    a, b = np.nan_to_num(first), np.nan_to_num(second)
    best = np.maximum(a, b)
    return np.where(np.abs(a - b) <= tied * best, 0, np.sign(a - b)).astype(int)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Card):
    """Systems side by side: `lines` has a `Choice` for each speed and system that the model fits, the best first.

    `refused` says why the model does not fit the others. A speed is a key of `leader`, `leads` and `ties`.
    """

    model: Transformer
    request: Request
    speeds: tuple[float | None, ...]
    lines: tuple[Choice, ...]
    refused: Mapping[str, str]
    baseline: str | None
    questions: Mapping[str, list[Question]]
    prices: PricesAsked

    def at(self, speed: float | None = None) -> list[Choice]:
        """Return the choices at one of the speeds, the best first; without a speed at the only one."""
        if speed is None and len(self.speeds) == 1:
            speed = self.speeds[0]
        wanted = None if speed is None else number("speed", speed)
        if wanted not in self.speeds:
            several = ", ".join("none" if one is None else f"{one:,g}" for one in self.speeds)
            refuse("speed", speed, f"allowed is one of {several}")
        return [c for c in self.lines if c.question.request.tokens_per_s_per_user == wanted]

    @property
    def leader(self) -> dict[float | None, str | None]:
        """The system that makes most per paid chip at each speed; None where none keeps the promise."""
        firsts = {speed: next(iter(self.at(speed)), None) for speed in self.speeds}
        return {speed: c.system.id if c and c.valid else None for speed, c in firsts.items()}

    @property
    def ties(self) -> dict[float | None, list[str]]:
        """Systems that do the same as the leader, within 1 %, at each speed."""
        some = {speed: self.at(speed) for speed in self.speeds if self.leader[speed]}
        tied = {speed: [c.system.id for c in cs[1:] if planner.same(c, cs[0])] for speed, cs in some.items()}
        return {speed: tied.get(speed, []) for speed in self.speeds}

    @cached_property
    def leads(self) -> dict[float | None, Lead]:
        """Shares of the draws in which each system leads, at each speed."""
        return {speed: lead_of({c.system.id: c.drawn[MADE] for c in self.at(speed)}) for speed in self.speeds}

    def difference(self, a: str | System, b: str | System, speed: float | None = None) -> Difference:
        """Return how much more the system `a` makes than `b` at one of the speeds, as a share of what `b` makes."""
        several = {c.system.id: c for c in self.at(speed)}
        first, second = (several[_of_these(name, one, several)] for name, one in (("a", a), ("b", b)))
        return _difference(first, second)

    def loads(self, speed: float | None = None) -> pd.DataFrame:
        r"""Return the largest load of a replica on each system at one of the speeds, by how many chips a replica takes.

        .. math:: n = \min_c \Bigl\lceil \frac{\lceil \lambda / \lambda_c \rceil}{\lfloor N / c \rfloor} \Bigr\rceil

        From them follow the whole instances n of N chips that serve a rate of requests, as `tm.plan` counts them. A
        replica of more than N chips takes as many whole instances as it needs.

        Returns
        -------
        table : pandas.DataFrame
            system, chips (c) and requests_per_s_per_replica (the largest load at which the promises hold); a replica
            that does no more than a smaller one is left out.

        Examples
        --------
        >>> import trnmodel as tm
        >>> request = tm.Request(1024, 256, tokens_per_s_per_user=50)
        >>> one = compare("llama-3.1-8b", request, "trn2.48xlarge").loads()
        >>> one.chips.tolist()[0], bool((one.requests_per_s_per_replica.diff().dropna() > 0).all())
        (1.0, True)
        """
        rows = list[dict[str, Any]]()
        for c in self.at(speed):
            best = 0.0
            for chips, load in largest_loads(self.questions[c.system.id], c.question.request).items():
                if load > best:
                    rows.append({"system": c.system.id, "chips": chips, "requests_per_s_per_replica": load})
                    best = load
        return tidy(rows)

    def compared_with(self, speed: float | None = None) -> Choice | None:
        """Return the choice that the others are compared with at a speed: the baseline's, else the leader's."""
        some = self.at(speed)
        named = [c for c in some if c.system.id == self.baseline] if self.baseline else some
        return named[0] if named else None

    @cached_property
    def flips(self) -> tuple[Flip, ...]:
        """Speeds at which the order of the baseline (else of the first speed's leader) and another system changes."""
        running = {name: some for name, some in self.questions.items() if name not in self.refused}
        leaders = [name for name in (self.baseline, *self.leader.values()) if name in running]
        base = next(iter([*leaders, *running]), "")
        top = max(map(_fastest, running.values()), default=0.0)
        if len(running) < 2 or top <= SLOWEST:
            return ()
        speeds = np.geomspace(SLOWEST, top * 1.01, SPEEDS)
        made = {name: objective(some, speeds) for name, some in running.items()}
        flips = [
            self._flip(base, other, ends)
            for other in running
            if other != base
            for ends in _turns(_sign(made[base], made[other], planner.TIED), speeds)
        ]
        return tuple(sorted(flips))

    def _flip(self, base: str, other: str, ends: tuple[float, float, int]) -> Flip:
        """Return the flip between two speeds, of which at the lower one the base is ahead (1) or behind (-1)."""
        low, high, ahead = ends
        alone = False
        for _ in range(ROUNDS):
            speeds = np.geomspace(low, high, PARTS + 1)
            first, second = (objective(self.questions[name], speeds) for name in (base, other))
            turned = _sign(first, second, 0.0) == -ahead
            i = max(int(np.argmax(turned)), 1)
            low, high = float(speeds[i - 1]), float(speeds[i])
            alone = bool(np.isnan(first[i]) or np.isnan(second[i]))
        below, above = (base, other) if ahead > 0 else (other, base)
        return Flip(float(np.sqrt(low * high)), below, above, alone)

    def card(self) -> list[str]:
        """Return who leads at each speed and by how much, how sure that is, and where the order flips."""
        wanted = replace(self.request, tokens_per_s_per_user=None) if len(self.speeds) > 1 else self.request
        lines = [f"{self.model.id}, {wanted.describe()}: {counted(len(self.questions), 'system')} in common draws"]
        for speed in self.speeds:
            lines += self._described(speed)
        lines += flips_in_words(self.flips)
        if len(self.questions) > 1 and not self.flips:
            lines.append("no promised speed changes the order of the leader and the others")
        warnings = [f"{c.system.id}: {line}" for c in self.lines for line in (*documented(c), *one_constant(c))]
        refused = [f"{name}: {why}" for name, why in self.refused.items()]
        return [*lines, *dict.fromkeys(warnings), *refused]

    def _described(self, speed: float | None) -> list[str]:
        """Return the lines of one speed: the leader, the shares of the draws, and the others."""
        some = self.at(speed)
        where = "without a promised speed" if speed is None else f"at {speed:,g} tokens/s per user"
        if not some:
            return [f"{where}: the model fits on no system"]
        first, lead = some[0], self.leads[speed]
        verb = "ties for the lead" if self.ties[speed] else "leads"
        head = f"{where}: {first.system.id} {verb} with"
        head = head if first.valid else f"{where}: no system keeps the promise as predicted:"
        lines = [f"{head} {_answer(first)}", f"  {first.mapping}; first token after {first.in_words('ttft_s', 's')}"]
        lines.append(f"  draws: {_sure(lead, [c.system.id for c in some])}")
        if self.ties[speed]:
            lines.append(f"  ties within 1 %: {', '.join(self.ties[speed])}")
        base = self.compared_with(speed)
        rest = [c for c in some if c is not first]
        for c in rest[:NAMED]:
            lines += [f"  {c.system.id}: {_answer(c)}{_against(c, base)}"]
            lines += [f"    {line}" for line in self._tied(c, base)]
        return lines + [f"  {len(rest) - NAMED} more systems"] * (len(rest) > NAMED)

    def _tied(self, c: Choice, base: Choice | None) -> list[str]:
        """Return at which prices a choice ties with the one that it is compared with, in words."""
        if base is None or base is c or not (c.valid and base.valid):
            return []
        return ties_in_words(price_tie(c, base, self.prices))

    def break_even(
        self,
        speed: float | None = None,
        *,
        pricing: str | float | Rent | Mapping[str, Any] | None = None,
        region: str | None = None,
        owner: str | Owner | None = None,
    ) -> pd.DataFrame:
        """Return the prices of a chip-hour, and of a chip or server, at which systems tie, rented and owned.

        Parameters
        ----------
        speed : float, optional
            One of the speeds; default all of them. [token/s]
        pricing : str, float, Rent, or a mapping of them by system, optional
            How chips are rented, as in `plan`; default as the comparison has it. [USD/h]
        region : str, optional
            Where published prices are taken from, as in `tm.rent`; default as the comparison has it. [-]
        owner : str or Owner, optional
            Who owns, as in `tm.tco`; default as the comparison has it. [-]

        Returns
        -------
        table : pandas.DataFrame
            A row for each speed and each system beside the baseline, else the leader, which is `against`:
            break_even_usd_per_chip_h of the system at the published price of the other one, and against_usd_per_chip_h
            of the other one at the system's; owned_break_even_usd_per_h; break_even_usd of a `part`, "chip_usd" or
            "server_usd" (over its chips); each with `_low` and `_high` over the common draws, beside what is published
            or assumed.
        """
        own = None if pricing is None else checked_pricing(pricing)
        changes: dict[str, Any] = {"pricing": own, "region": region, "owner": owner}
        prices = self.prices._replace(**{name: value for name, value in changes.items() if value is not None})
        rows = []
        for one in self.speeds if speed is None else [speed]:
            base = self.compared_with(one)
            others = [c for c in self.at(one) if base is not None and c is not base]
            rows += [price_tie(c, base, prices.checked())._asdict() for c in others if base is not None]
        return tidy(rows)

    def to_frame(self, bands: bool = False) -> pd.DataFrame:
        """Return a row for each speed and system, the best of a speed first, then systems that the model does not fit.

        Columns are those of a `Choice`, with the promised speed, `role` ("leader", "tie", "system", "refused"), shares
        of the draws in which it leads alone or shares the lead, and the difference from the baseline or the leader.
        """
        import pandas as pd

        rows = [c.to_frame(bands).assign(**self._columns(c)) for c in self.lines]
        more = {"role": "refused", "valid": False}
        none = [{"system": name, "why": why} | more for name, why in self.refused.items()]
        rows += [pd.DataFrame(none)] if none else []
        return pd.concat(rows, ignore_index=True)

    def _columns(self, c: Choice) -> dict[str, Any]:
        """Return what a row says of a choice beside the others of its speed."""
        speed = c.question.request.tokens_per_s_per_user
        lead, base = self.leads[speed], self.compared_with(speed)
        role = "tie" if c.system.id in self.ties[speed] else "system"
        gap = _difference(c, base) if base else Difference(*[np.nan] * 7)
        return {
            "promised_tokens_per_s_per_user": np.nan if speed is None else speed,
            "role": "leader" if self.leader[speed] == c.system.id else role,
            "leads_alone": lead.alone[c.system.id],
            "leads_shared": lead.shared[c.system.id],
            "baseline": base.system.id if base else "",
            **{f"difference{end}": x for end, x in zip(("", "_low", "_high"), gap[:3], strict=True)},
            "why": "" if c.valid else c.reason,
        }


def _turns(ahead: NDArray, speeds: NDArray) -> list[tuple[float, float, int]]:
    """Return the pairs of speeds between which the order changes, and who is ahead at the lower one."""
    places = np.flatnonzero(ahead)
    turns = [(i, j) for i, j in pairwise(places) if ahead[i] != ahead[j]]
    return [(float(speeds[i]), float(speeds[j]), int(ahead[i])) for i, j in turns]


def lead_of(drawn: Mapping[str, NDArray]) -> Lead:
    """Return the shares of the draws in which each system leads, from what each makes in them."""
    if not drawn:
        return Lead({}, {}, 0.0, 1.0)
    made = np.nan_to_num(np.array(list(drawn.values())), nan=0.0)
    best = made.max(axis=0)
    first = (made >= best * (1 - planner.TIED)) & (made > 0)
    many = first.sum(axis=0)
    alone, shared = (first & (many == 1)).mean(axis=1), (first & (many > 1)).mean(axis=1)
    return Lead(
        dict(zip(drawn, alone.tolist(), strict=True)),
        dict(zip(drawn, shared.tolist(), strict=True)),
        float(np.mean(many > 1)),
        float(np.mean(many == 0)),
    )


def _difference(first: Choice, second: Choice) -> Difference:
    """Return how much more one choice makes than another."""
    values = (first.tokens_per_s_per_chip, first.drawn[MADE]), (second.tokens_per_s_per_chip, second.drawn[MADE])
    return difference_of(*values)


def difference_of(first: tuple[float, NDArray], second: tuple[float, NDArray]) -> Difference:
    """Return how much more one figure is than another, each as predicted and in each of the common draws.

    Examples
    --------
    >>> difference_of((3.0, np.array([2.0, 4.0, np.nan])), (2.0, np.array([2.0, 2.0, 2.0])))[:4]
    (0.5, 0.0, 1.0, 0.6666666666666666)
    """
    (value, a), (other, b) = first, second
    one, two = np.isfinite(a), np.isfinite(b)
    shares = (one & two, one & ~two, ~one & two, ~one & ~two)
    return Difference(float(value / other - 1), *range_of(a / b - 1), *(float(np.mean(x)) for x in shares))


def percent(share: float, sign: str = "") -> str:
    """Return a share or a signed difference in per cent, in words.

    Examples
    --------
    >>> percent(0.004), percent(0.63), percent(0.999), percent(1.0), percent(-0.17, "+"), percent(14.0, "+")
    ('under 1 %', '63 %', 'over 99 %', '100 %', '-17 %', '15 times')
    """
    if not sign and 0 < share < 0.01:
        return "under 1 %"
    if not sign and 0.99 < share < 1:
        return "over 99 %"
    return f"{share + 1:.3g} times" if share >= MANY_TIMES else f"{100 * share:{sign}.0f} %"


def _answer(c: Choice) -> str:
    """Return what a choice makes per paid chip with its band and chance, or how near it comes to the promise."""
    speed = "tokens_per_s_per_user"
    name, unit = (MADE, UNIT) if c.valid else (speed, quantity(speed).unit)
    text = c.in_words(name, unit, str(c.basis))
    return f"{'' if c.valid else c.reason + ', at most '}{text}, the promise holds in {percent(c.chance)} of the draws"


def _against(c: Choice, base: Choice | None) -> str:
    """Return the difference of a choice from the baseline in words; empty where there is none."""
    if base is None or base is c:
        return ""
    gap = _difference(c, base)
    if not np.isfinite(gap.low):
        return f"; never both with {base.system.id}"
    if max(abs(gap.low), abs(gap.high)) <= planner.TIED:
        return f"; the same as {base.system.id} within 1 %"
    ends = f"{percent(gap.low, '+')} to {percent(gap.high, '+')} where both keep the promise"
    middle = f"{percent(gap.value, '+')} against {base.system.id}: " if np.isfinite(gap.value) else ""
    only = f"; in {percent(gap.only_first + gap.only_second)} of the draws only one does"
    return f"; {middle}{ends}{only if gap.only_first + gap.only_second else ''}"


def _sure(lead: Lead, ids: Iterable[str]) -> str:
    """Return the shares of the draws in words, those of the systems that ever lead first."""
    alone = [f"{name} leads alone in {percent(lead.alone[name])}" for name in ids if lead.alone[name]][:NAMED]
    tied = [f"several tie in {percent(lead.tied)}"] if lead.tied else []
    return ", ".join([*alone, *tied, f"none keeps the promise in {percent(lead.none)}"])


def flips_in_words(flips: Iterable[Flip]) -> list[str]:
    """Return at which speeds an order flips, in words and in order of speed.

    Systems that are passed at the same speed share a line, and so do those that pass.

    Examples
    --------
    >>> for line in flips_in_words([Flip(31.24, "trn2", "h100", False), Flip(125.0, "h100", "trn2", False)]):
    ...     print(line)
    below 31.2 tokens/s per user trn2 makes more per chip than h100, and above it h100 makes more than trn2
    above 125 tokens/s per user trn2 makes more per chip than h100 again
    >>> flips_in_words([Flip(31.24, "a", "b", True), Flip(31.24, "c", "b", True)])
    ['below 31.2 tokens/s per user a and c make more per chip than b, and above it only b keeps the promise']
    """
    groups: dict[tuple[str, str, str, bool], list[Flip]] = {}
    each = sorted(flips)
    for one in each:
        speed = format_digits(one.tokens_per_s_per_user, 3)
        rivals = [flip.below for flip in each if flip.below == one.below]
        same = ("below", one.below) if len(rivals) > 1 else ("above", one.above)
        groups.setdefault((speed, *same, one.alone), []).append(one)
    lines, passed = list[str](), set[frozenset[str]]()
    for (speed, _, _, alone), some in groups.items():
        below, above = _names([flip.below for flip in some]), _names([flip.above for flip in some])
        slow, fast = len({flip.below for flip in some}) > 1, len({flip.above for flip in some}) > 1
        pairs = {frozenset((flip.below, flip.above)) for flip in some}
        if alone:
            after = f"only {above} {'keep' if fast else 'keeps'} the promise"
        else:
            after = f"{above} {'make' if fast else 'makes'} more than {below}"
        if pairs <= passed:
            again = after if alone else f"{after.replace(' more than', ' more per chip than')} again"
            lines.append(f"above {speed} tokens/s per user {again}")
        else:
            more = f"{below} {'make' if slow else 'makes'} more per chip than {above}"
            lines.append(f"below {speed} tokens/s per user {more}, and above it {after}")
        passed |= pairs
    return lines


def _names(ids: Iterable[str]) -> str:
    """Return ids as a list in words, each once; beyond a few they are counted."""
    several = list(dict.fromkeys(ids))
    if len(several) > NAMED:
        return f"{', '.join(several[:NAMED])} and {len(several) - NAMED} more"
    return " and ".join(filter(None, [", ".join(several[:-1]), several[-1]]))
