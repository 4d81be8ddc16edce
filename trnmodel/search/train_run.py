"""How long a training run takes on so many chips: the best mapping, what loses, what constraints cost, dollars."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Mapping_
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import (
    TINY,
    ImpossibleError,
    Same,
    instance,
    integer,
    number,
    numbers,
    refuse,
    shown,
    text,
)
from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Facility
from trnmodel.catalog.prices import Owner
from trnmodel.catalog.prices import owner as read_owner
from trnmodel.catalog.rents import PRICINGS, Rent, known_place, rent
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.systems import System, roomy
from trnmodel.catalog.systems import find as find_system
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.trainers import Trainer
from trnmodel.cost.matching import same_owner
from trnmodel.cost.tco import Cost, tco
from trnmodel.declared import (
    MODEL,
    PRECISION,
    SEVERAL,
    STACK,
    Checked,
    Flag,
    Integer,
    Named,
    Number,
    Several,
    Word,
    declare,
)
from trnmodel.formulas.training import RECOMPUTES
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.reliability.goodput import Goodput, goodput
from trnmodel.result import SCALES, Basis, Grounded, tidy
from trnmodel.search.plan import asked_systems
from trnmodel.search.price_ties import checked_pricing
from trnmodel.search.train_runs import TrainRuns, side_by_side
from trnmodel.search.train_search import CUTS, Space, space
from trnmodel.search.train_search import described as tabled
from trnmodel.search.train_size import CHIPS, MOST, OWNER, ROUNDING, TrainRunQuestion, checkpoint_bytes, sized
from trnmodel.steps.legal import most_tokens, refuse_longer
from trnmodel.steps.mapping import DEGREES, Mapping
from trnmodel.training.step import TrainStep
from trnmodel.training.work import SHARES
from trnmodel.units import DAY, HOUR, MILLION, counted, format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

BATCH_TOKENS = 2**24  # of a step of Llama 3.1 405B through most of its run
SEQ = 8192  # of most of it
WHOLE = 0.05  # share of the chips asked for by which whole domains may be more


class Spent(NamedTuple):
    """A figure of a run with the ends of its 90 % interval; NaN with a reason where it has none."""

    value: float
    low: float
    high: float
    basis: str
    why: str = ""

    def describe(self, unit: str, scale: float = 1.0) -> str:
        """In words, in a unit that is `scale` of its own."""
        scale, unit = number("scale", scale, *SCALES), text("unit", unit)
        return self.why or format_within(self.value / scale, self.low / scale, self.high / scale, unit, self.basis)

    def usd_in_words(self) -> str:
        """Dollars in words, from a million on in millions."""
        if self.why:
            return self.why
        return f"${self.describe('million', MILLION) if self.value >= MILLION else self.describe('')}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainRun(Grounded):
    """A run over a budget of tokens on the best mapping of all: `days` of it on its chips, nothing lost.

    `step` is `tm.train_step` of `mapping`; where nothing fits in memory it is the point that lacks least, and `days` is
    NaN. `table` has the best sets of degrees, and by which part of the step the others lose. What failures add is
    `goodput` and `calendar_days`, what it costs `owner_usd` and `renter_usd`, its energy `site_j`, what a constraint
    costs `constraints`. Who pays and how stands in `question`, unless a method is told otherwise.
    """

    FIGURE: ClassVar[str] = "days"
    REASONS: ClassVar[tuple[str, ...]] = TrainStep.REASONS
    UNBANDED: ClassVar[tuple[str, ...]] = ("tokens", "chips", "checkpoint_bytes", "missing_bytes")

    model: Transformer
    system: System
    precision: Precision
    stack: Trainer
    tokens: float
    chips: float
    days: NDArray
    chip_hours: NDArray
    mfu: NDArray
    hfu: NDArray
    mapping: Mapping
    step: TrainStep
    table: pd.DataFrame
    space: Space
    question: TrainRunQuestion

    def judge(self) -> Basis:
        """Return the basis of its step."""
        return self.step.judge()

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of the time of its step, or of its share of the peak."""
        return self.step.widths(name if name in SHARES else "time_s")

    @property
    def bound(self) -> str:
        """What takes longest of a step."""
        return str(self.step.bound)

    @property
    def configuration(self) -> str:
        """The best mapping in words."""
        return in_words(self.step)

    def behind(self, row: Mapping_[str, Any]) -> float:
        """Share by which a row of the table takes longer than the best one."""
        speed = instance("row", row, Mapping_, "a row of the run's table").get("tokens_per_s")
        return float(self.table.tokens_per_s[0] / number("row: tokens_per_s", speed, TINY) - 1)

    def next(self, most: int = 3) -> list[str]:
        """Return the next sets of degrees, with how much longer each takes and the part of the step that costs it."""
        parts = []
        for row in self.table.iloc[1 : 1 + integer("most", most)].to_dict("records"):
            longer = format_digits(100 * self.behind(row), 2)
            parts.append(f"{degrees(row)}: {longer} % longer" + _because(row["loses_by"]))
        return parts

    @property
    def runner_up(self) -> str:
        """The next set of degrees; empty where there is none."""
        return "".join(self.next(1))

    def days_at(self, mfu: ArrayLike) -> NDArray:
        """Days at another MFU than the derived one, of the same peak and work.

        Parameters
        ----------
        mfu : numeric
            Share of the peak that the work of the model makes use of. [-]
        """
        return np.asarray(self.days * self.mfu / numbers("mfu", mfu, TINY, 1.0))

    @property
    def checkpoint_bytes(self) -> float:
        """Weights and states of the optimizer of all parameters."""
        return checkpoint_bytes(self.model, self.stack.optimizer_bytes)

    @property
    def missing_bytes(self) -> float:
        """Memory that the fullest rank lacks; 0 where it fits."""
        return max(float(self.step.memory_bytes_per_rank - self.step.capacity_bytes), 0.0)

    def describe(self) -> str:
        """Return the days in words, with band and basis; in hours below one day."""
        unit, scale = ("days", 1.0) if self.days >= 1 else ("h", HOUR / DAY)
        return self.in_words("days", unit, str(self.basis), scale)

    def _answer(self) -> list[str]:
        return [self.describe()] if self.valid else []

    def goodput(self, **how: Any) -> Goodput:
        """Return the useful share of the time of the run's chips, with checkpoints of the run's own size.

        Parameters
        ----------
        how : keywords
            `fleet`, `swap`, `spare_chips`, `interval_s`, `step_spread`, `failure_domain_chips` of `tm.goodput`. [-]
        """
        for name, value in how.items():
            if name not in HOW:
                refuse(name, value, f"a run sets it itself; allowed are {', '.join(HOW)}")
        share = goodput(self.system, self.chips, checkpoint_bytes=self.checkpoint_bytes, **how)
        return replace(share, model=self.model)

    def useful(self) -> Goodput:
        """Return the useful share of the run's time as `goodput` gives it without more, computed once."""
        return _usual(Same(self))

    def _useful(self, useful: Goodput | None) -> Goodput:
        """Return the useful share of this run, or check that one passed is of its system, model and chips."""
        if useful is None:
            return self.useful()
        g = instance("useful", useful, Goodput, "a Goodput, such as run.goodput()")
        same_owner("useful", g, self.system, self.model)
        if np.size(g.goodput) > 1 or np.any(g.chips != self.chips):
            refuse(
                "useful",
                f"Goodput of {shown(g.chips)} chips",
                f"allowed is one point of the run's {self.chips:g} chips",
            )
        return g

    def calendar_days(self, useful: Goodput | None = None) -> Spent:
        """Days with what failures take: those of nothing lost over the useful share of the job's own time."""
        g = self._useful(useful)
        own = (1 - g.spare_lost) / g.goodput
        return self._spent(float(self.days * own), _shares(g))

    def owned_hour(self, owner: str | Owner | None = None, useful: Goodput | None = None) -> Cost:
        """Return the cost of a chip-hour of the run to its owner, by default the owner of the question."""
        return tco(self.system, owner=self.question.owner if owner is None else owner, goodput=self._useful(useful))

    def owner_usd(self, owner: str | Owner | None = None, useful: Goodput | None = None) -> Spent:
        """Dollars of the run to the one who owns its chips and spares: useful chip-hours at `tm.tco`'s useful hour."""
        hour = self.owned_hour(owner, useful)
        if not hour.valid:
            return self._spent(np.nan, (0.0, 0.0), str(hour.reason))
        return self._spent(float(self.chip_hours * hour.useful_usd_per_h), hour.widths("useful_usd_per_h")[::-1])

    def renter_usd(
        self, pricing: str | Rent | None = None, region: str | None = None, useful: Goodput | None = None
    ) -> Spent:
        """Dollars of the run to the one who rents its chips and spares, at a published price of an hour of a chip.

        Without a pricing it is that of the question, in its region.
        """
        g = self._useful(useful)
        price = self.question.rent_of(self.system, region) if pricing is None else rent(self.system, pricing, region)
        if price.why:
            return self._spent(np.nan, (0.0, 0.0), price.why)
        low, high = (np.log(end / price.usd_per_chip_h) for end in price.range("usd_per_chip_h"))
        below, above = _shares(g)
        wide = np.hypot(above, low), np.hypot(below, high)
        return self._spent(float(self.chip_hours / g.goodput * price.usd_per_chip_h), wide[::-1])

    def site_j(
        self,
        owner: str | Owner | None = None,
        facility: str | Facility | None = None,
        useful: Goodput | None = None,
    ) -> Spent:
        r"""Energy of the run at the site [J]: the mean power of its chips and spares, as in the owner's electricity.

        .. math:: E = \frac{3600\,h}{g}\; P\, \mathrm{PUE}

        with h chip-hours of the run, its goodput g, and the mean power P of a chip with its share of the server, which
        is the owner's share of the provisioned power; the share is that of measured training servers.
        """
        hour, g = self.owned_hour(owner, useful), self._useful(useful)
        if not hour.valid:
            return self._spent(np.nan, (0.0, 0.0), str(hour.reason))
        site = hour.facility if facility is None else facilities.facility(facility)
        watts = replace(hour.site_watts, annual_pue=site.annual_pue).mean_site_w
        below, above = hour.widths("mean_w")
        low, high = (np.log(end / site.annual_pue) for end in facilities.ends(site, "annual_pue"))
        less, more = _shares(g)
        wide = np.sqrt(below**2 + low**2 + more**2), np.sqrt(above**2 + high**2 + less**2)
        return self._spent(float(self.chip_hours / g.goodput * HOUR * watts), wide[::-1])

    def bill_usd(self, useful: Goodput | None = None) -> Spent:
        """Dollars of the run to the one who pays in the question: "rented" or "owned"."""
        return self.owner_usd(useful=useful) if self.question.bill == "owned" else self.renter_usd(useful=useful)

    def spending(self) -> dict[str, Spent]:
        """Return days with failures, dollars and joules by name, of the question's owner and pricing."""
        return {
            "calendar_days": self.calendar_days(),
            "owner_usd": self.owner_usd(),
            "renter_usd": self.renter_usd(),
            "site_j": self.site_j(),
        }

    def _spent(self, value: float, widths: tuple[Any, Any], why: str = "") -> Spent:
        """Return a figure that is divided by a share, so that it is high where the share is low."""
        if not self.valid:
            return Spent(np.nan, np.nan, np.nan, "", str(self.reason))
        (slow, fast), (below, above) = self.widths("days")[::-1], widths
        ends = float(value * np.exp(-np.hypot(fast, above))), float(value * np.exp(np.hypot(slow, below)))
        return Spent(value, *ends, "extrapolated", why)

    def constraints(self) -> pd.DataFrame:
        """Return the cost of each constraint: the best run with it imposed, or lifted, against the free best.

        Returns
        -------
        table : pandas.DataFrame
            constraint, kind ("imposed" or "lifted"), days, cost (time over that of the free best: at least 1 where
            imposed, at most 1 where lifted; NaN where nothing runs so), and the degrees and policies.
        """
        space, chips_per_tray = self.space, getattr(self.system, "chips_per_tray", 0)
        cuts, a_chip = space.cuts, float(self.step.ranks_per_chip)
        alone = cuts["dp"] * cuts["ep"] * cuts["cp"] == 1  # whatever ZeRO would share out
        policies = {name: np.array([[policy[name]] for policy in space.policies]) for name in space.policies[0]}
        imposed: dict[str, Any] = {
            "no recompute": policies["recompute"] == "none",
            "full recompute": policies["recompute"] == "full",
            "TP within a chip": cuts["tp"] <= a_chip,
            "TP within a tray": cuts["tp"] <= a_chip * chips_per_tray,
            "TP within a domain": cuts["tp"] <= a_chip * self.system.domain_chips,
            "no TP": cuts["tp"] == 1,
            "no pipeline": cuts["pp"] == 1,
            "stages are not interleaved": cuts["interleave"] == 1,
            "no EP": cuts["ep"] == 1,
            **{f"ZeRO {z} only": (policies["zero"] == z) | alone for z in np.unique(policies["zero"]).tolist()},
            "one sequence per micro-batch": cuts["micro_batch"] == 1,
        }
        rows = [
            self._constrained(name, "imposed", space, mask)
            for name, mask in imposed.items()
            if mask.any() and not mask.all()
        ]
        free = space.again(roomy(space.where))
        return tidy([*rows, self._constrained("memory sets no limit", "lifted", free, True)])

    def _constrained(self, name: str, kind: str, space: Space, mask: Any) -> dict[str, Any]:
        row: dict[str, Any] = {"constraint": name, "kind": kind, "days": np.nan, "cost": np.nan}
        order = space.order(mask)
        if order.size:
            best = tabled(space, order[:1]).to_dict("records")[0]
            days = self.tokens / best["tokens_per_s"] / DAY
            row |= {"days": days, "cost": days / float(self.days)} | {key: best[key] for key in COLUMNS}
        return row


def _because(part: str) -> str:
    """Return the part of a step by which a mapping loses, as an ending of a sentence; empty where there is none."""
    title = quantity(f"{part}_s", "TrainStep").title if part else ""
    return f" because of {title[:1].lower()}{title[1:]}" if part else ""


@lru_cache(maxsize=64)
def _usual(run: Same[TrainRun]) -> Goodput:
    """Return the useful share of a run as it is asked without more, computed once."""
    return run.it.goodput()


HOW = ("fleet", "swap", "spare_chips", "interval_s", "step_spread", "failure_domain_chips")


def _shares(g: Goodput) -> tuple[Any, Any]:
    """Half-widths of a useful share, which ends at 1."""
    low, high = g.ends("goodput")
    return np.log(g.goodput / low), np.log(high / g.goodput)


COLUMNS = (*DEGREES, *CUTS, "recompute", "zero", "sequence_parallel", "memory_bytes_per_rank")
AGAIN: Mapping_[str, str] = {"none": "no recompute", "selective": "selective recompute", "full": "full recompute"}


def degrees(row: Mapping_[str, Any]) -> str:
    """Return the degrees above 1 of a row in words.

    Examples
    --------
    >>> degrees({"tp": 8, "pp": 4.0, "dp": 16, "ep": 1, "cp": 1})
    'TP 8 x PP 4 x DP 16'
    """
    return " x ".join(f"{name.upper()} {row[name]:.0f}" for name in DEGREES if row[name] > 1) or "one rank"


def in_words(step: TrainStep) -> str:
    """Degrees above 1, batch, policies of a step."""
    cut = degrees({name: float(getattr(step, name)) for name in DEGREES})
    many = f"{counted(float(step.microbatches), 'micro-batch')} of {step.micro_batch:,.0f}"
    woven = f", {float(step.interleave):.0f} parts per stage" if step.interleave > 1 else ""
    whole = "" if step.sequence_parallel or step.tp == 1 else ", no SP"
    return f"{cut}, {many}{woven}, ZeRO {step.zero}, {AGAIN[step.recompute]}{whole}"


def domains(system: str | System, chips: float) -> System:
    """Return the fewest whole scale-up domains that have at least a given number of chips.

    Raises ValueError where they have over 5 % more.

    Examples
    --------
    >>> domains("trn3-nl72x2-pcie160", 8192).chips, domains("hgx-h100", 8192).count
    (8208, 1024)
    """
    one, wanted = read_system(system, 1), integer("chips", chips, 1, MOST)
    size = one.domain_chips
    count = -(-wanted // size)
    if count * size > wanted * (1 + WHOLE):
        near = sorted({max(wanted // size, 1) * size, count * size})
        refuse(
            "chips",
            chips,
            f"{one.id} comes in domains of {counted(size, 'chip')}; near are {' and '.join(f'{n:,}' for n in near)}",
        )
    return one if one.count == count else read_system(system, count)


@overload
def train_run(
    model: str | Transformer,
    systems: str | System,
    *,
    tokens: float,
    chips: float | None = None,
    days: float | None = None,
    usd: float | None = None,
    bill: str = "rented",
    pricing: str | float | Rent | Mapping_[str, Any] = "capacity-block",
    region: str | None = None,
    owner: str | Owner = OWNER,
    precision: str | Precision = "bf16",
    efficiencies: str | Trainer | None = None,
    seq: int | None = None,
    global_batch: int | None = None,
    batch_slack: float = 0.05,
    recompute: Iterable[str] = ("none", "selective", "full"),
    zero: Iterable[int] = (0, 1, 3),
    sequence_parallel: Iterable[bool] = (True, False),
    max_cp: int = 1,
    best: int = 5,
) -> TrainRun: ...
@overload
def train_run(
    model: str | Transformer,
    systems: list[str | System] | list[str] | list[System] | tuple[str | System, ...],
    *,
    tokens: float,
    chips: float | None = None,
    days: float | None = None,
    usd: float | None = None,
    bill: str = "rented",
    pricing: str | float | Rent | Mapping_[str, Any] = "capacity-block",
    region: str | None = None,
    owner: str | Owner = OWNER,
    precision: str | Precision = "bf16",
    efficiencies: str | Trainer | None = None,
    seq: int | None = None,
    global_batch: int | None = None,
    batch_slack: float = 0.05,
    recompute: Iterable[str] = ("none", "selective", "full"),
    zero: Iterable[int] = (0, 1, 3),
    sequence_parallel: Iterable[bool] = (True, False),
    max_cp: int = 1,
    best: int = 5,
) -> TrainRuns: ...
@declare(
    model=MODEL,
    systems=Checked("the id or name of a system, or a list of them", SEVERAL),
    tokens=Number(TINY),
    chips=Integer(1, MOST),
    days=Number(TINY),
    usd=Number(TINY),
    bill=Word(("rented", "owned")),
    pricing=Checked("a pricing, a price of a chip-hour in USD, a Rent, or a mapping of them by system"),
    region=Checked("a region or seller that a published price names", {"type": "string"}),
    owner=Named("an owner"),
    precision=PRECISION,
    efficiencies=STACK,
    seq=Integer(),
    global_batch=Integer(1, MOST),
    batch_slack=Number(0, 1),
    recompute=Several(Word(RECOMPUTES)),
    zero=Several(Integer(0, 3)),
    sequence_parallel=Several(Flag()),
    max_cp=Integer(),
    best=Integer(),
)
def train_run(
    model: str | Transformer,
    systems: Any,
    *,
    tokens: float,
    chips: float | None = None,
    days: float | None = None,
    usd: float | None = None,
    bill: str = "rented",
    pricing: str | float | Rent | Mapping_[str, Any] = "capacity-block",
    region: str | None = None,
    owner: str | Owner = OWNER,
    precision: str | Precision = "bf16",
    efficiencies: str | Trainer | None = None,
    seq: int | None = None,
    global_batch: int | None = None,
    batch_slack: float = 0.05,
    recompute: Iterable[str] = ("none", "selective", "full"),
    zero: Iterable[int] = (0, 1, 3),
    sequence_parallel: Iterable[bool] = (True, False),
    max_cp: int = 1,
    best: int = 5,
) -> TrainRun | TrainRuns:
    r"""Return a training run on the best mapping of all legal ones, or those of several systems side by side.

    .. math:: d = \frac{T}{86400\; \max_m r(m)}

    with the tokens a second r of `tm.train_step` for every mapping and policy m that fits.

    Parameters
    ----------
    model, precision : str or object
        As in `tm.train_step`. [-]
    systems : str or System, or a list of them
        System whose scale-up domains are joined; a list puts systems side by side. [-]
    tokens : float
        Tokens to be seen, T. [token]
    chips : float, optional
        Chips of the job; of whole domains the fewest that have as many. Default 8,192, unless days or dollars size the
        job. [-]
    days : float, optional
        Days that the run may take, failures counted. Without `chips` the job has the fewest whole domains that end in
        time. [d]
    usd : float, optional
        Dollars that the run may cost, as `bill` says. Without `chips` and `days` the job has the whole domains that end
        first within them. [USD]
    bill : str
        Whose dollars `usd` limits: "rented" at `pricing`, or "owned". [-]
    pricing : str, float, Rent, or a mapping of them by system
        How chips are rented, as in `plan`. [USD/h]
    region : str, optional
        Where published prices are taken from, as in `tm.rent`. [-]
    owner : str or Owner
        Who owns in the dollars of an owner, as in `tm.tco`. [-]
    efficiencies : str or Trainer, optional
        "public" (default), "hand-tuned" or "ideal"; an id, or a stack. [-]
    seq : int, optional
        Tokens of a sequence; default 8,192, or as many as the model takes. [token]
    global_batch : int, optional
        Sequences of a step; default as many as hold 2^24 tokens. [-]
    batch_slack : float
        Share by which a mapping's batch may be off `global_batch`, so that all its replicas have whole
        micro-batches. [-]
    recompute, zero, sequence_parallel, max_cp : str, int, bool or several of them
        Policies that are tried, as in `train_search.space`. [-]
    best : int
        Rows of the table. [-]

    Returns
    -------
    run : TrainRun or TrainRuns
        `.days` with `.low`, `.high` and `.basis`; `.step`, `.mapping`, `.table`, `.constraints()`, and what it costs.
        Of a list of systems `.runs`, the best first, `.ties`, `.leads`, `.difference(a, b)`, and why others are
        `.refused`.

    Raises
    ------
    ValueError
        An unknown name, a number out of its range, chips that are no whole domains. Where nothing can satisfy the
        days or the dollars, the error is an `ImpossibleError`; it names the fastest or the cheapest run.

    Notes
    -----
    Days fall with chips only nearly: the divisors of the number of domains decide how a batch is shared out, and from
    some size on failures take more than chips bring. Powers of two of domains are tried up to 2^20 chips, then one
    number of each of 64 blocks between them, and at last those between the best one and its neighbours. A number that
    is not tried may need somewhat fewer chips.

    Systems of a list are compared in common draws: those with the same software and chip share its error, and all
    share that of the failures. A system that cannot be asked, or not in time or budget, is among `.refused`; where no
    system is left, the error is raised.

    Examples
    --------
    >>> import trnmodel as tm
    >>> run = tm.train_run("llama-3.1-8b", "hgx-h100", tokens=15e12, chips=1024)
    >>> bool(run.low < run.days < run.high), run.chips, str(run.bound)
    (True, 1024.0, 'work')
    >>> both = tm.train_run("llama-3.1-8b", ["hgx-h100", "trn2-ultraserver"], tokens=1e12, chips=1024)
    >>> both.best.system.id, both.ties
    ('hgx-h100', [])
    """
    chosen = read_model(model)
    if region is not None:
        known_place(region)
    seq = int(min(SEQ, most_tokens(chosen))) if seq is None else seq
    refuse_longer(chosen, "seq", seq)
    ask = {
        "global_batch": max(BATCH_TOKENS // seq, 1) if global_batch is None else global_batch,
        "recompute": list(recompute),
        "zero": list(zero),
        "max_cp": max_cp,
        "sequence_parallel": list(sequence_parallel),
        "batch_slack": batch_slack,
        "seq": seq,
        "precision": precision,
        "efficiencies": efficiencies,
    }
    question = TrainRunQuestion(
        model=chosen,
        tokens=tokens,
        chips=CHIPS if chips is None and days is None and usd is None else chips,
        days=days,
        usd=usd,
        bill=bill,
        pricing=pricing if isinstance(pricing, str) and pricing in PRICINGS else checked_pricing(pricing),
        region=region,
        owner=OWNER if isinstance(owner, str) and owner == OWNER else read_owner(owner),  # an unknown one is refused
        ask=ask,
        best=best,
    )
    if isinstance(systems, str | System):
        return _run(question, find_system(systems, "systems"))
    if systems is None:
        refuse("systems", systems, "allowed are ids or names of systems, one or several")
    return side_by_side(question, asked_systems(systems), _run)


def _run(question: TrainRunQuestion, system: System) -> TrainRun:
    """Return the run of a question on one system; raise ImpossibleError where it takes too long or costs too much."""
    if not isinstance(question.pricing, str):
        question.rent_of(system)  # which refuses the price of another system
    if question.chips is not None:
        run = _best(question, domains(system, question.chips))
    else:
        one = read_system(system, 1)
        count = sized(question, one)
        run = _best(question, one if count == one.count else read_system(system, count))
    return _within(run)


def _within(run: TrainRun) -> TrainRun:
    """Return a run that is within the days and the dollars of its question; raise ImpossibleError for any other."""
    q = run.question
    if not run.valid:
        return run
    where = f"{run.chips:,.0f} chips of {run.system.id}"
    if q.days is not None and (lasting := run.calendar_days()).value > q.days * (1 + ROUNDING):
        raise ImpossibleError(f"days={q.days:.15g}: {where} take {lasting.describe('days')}")
    if q.usd is not None:
        bill = run.bill_usd()
        if bill.why or bill.value > q.usd * (1 + ROUNDING):
            raise ImpossibleError(f"usd={q.usd:.15g}: {where}, {q.bill}: {bill.usd_in_words()}")
    return run


def _best(question: TrainRunQuestion, where: System) -> TrainRun:
    """Return the run on the best mapping of all chips of a system."""
    points = space(question.model, where, **question.ask)
    places = points.different(question.best)
    place = places[0] if places else int(points.memory_bytes.argmin())
    step, tokens = points.step(place), question.tokens
    return TrainRun(
        model=question.model,
        system=where,
        precision=step.precision,
        stack=step.stack,
        tokens=tokens,
        chips=float(where.chips),
        days=step.run_s(tokens) / DAY,
        mfu=step.mfu,
        hfu=step.hfu,
        chip_hours=step.run_s(tokens) * where.chips / HOUR,
        mapping=points.ask(place)["mapping"],
        step=step,
        table=tabled(points, places),
        space=points,
        question=question,
        reason_mask=step.reason_mask,
    )
