"""Useful share of the time of many chips: failures, checkpoints, restarts, spares, and racks at a reduced rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import MOST_CHIPS, TINY, choice, integer, numbers, refuse, shown, together
from trnmodel.bands import ranged
from trnmodel.catalog.fleets import Fleet
from trnmodel.catalog.fleets import fleet as read_fleet
from trnmodel.catalog.specs import shapes
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.declared import MODEL, SYSTEM, Checked, Integer, Named, Numbers, Word, declare
from trnmodel.formulas import reliability, spares
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.reliability import redundancy
from trnmodel.reliability.redundancy import SWAPS, guards
from trnmodel.result import Basis, Grounded

if TYPE_CHECKING:
    import pandas as pd

COUNTED = "llama-3-h100"  # the fleet whose interruptions were published by cause
LOSSES = ("spare", "waiting", "writing", "redone", "restarting", "slowed")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GoodputQuestion:
    """Inputs of a goodput, checked; None stands for the best interval and for the fewest spare chips.

    A checkpoint has `checkpoint_bytes`, or where a `model` is given its parameters times the fleet's bytes per
    parameter.
    """

    system: System
    fleet: Fleet
    model: Transformer | None
    swap: str
    failure_domain_chips: float
    chips: NDArray
    checkpoint_bytes: NDArray | None
    step_spread: NDArray
    interval_s: NDArray | None
    spare_chips: NDArray | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Goodput(Grounded):
    """Useful share of the time of a job's chips and of its spares; with the `..._lost` shares it sums to 1.

    `useful_share` is the share of the job's own time (ETTR), and `running_share` the share of that time in which the
    job is up. `ready_share` is the share of time with enough chips, `speed` the speed of the job over that on whole
    racks, and `mtbf_s` the mean time between interruptions.
    """

    FIGURE: ClassVar[str] = "goodput"
    UNBANDED: ClassVar[tuple[str, ...]] = ("chips", "failure_domain_chips", "ettr_small_loss", "young_s", "daly_s")

    system: System
    model: Transformer | None
    fleet: Fleet
    swap: str
    chips: NDArray
    spare_chips: NDArray
    failure_domain_chips: float
    write_s: NDArray
    interval_s: NDArray
    mtbf_s: NDArray
    ready_share: NDArray
    running_share: NDArray
    useful_share: NDArray
    speed: NDArray
    goodput: NDArray
    spare_lost: NDArray
    waiting_lost: NDArray
    writing_lost: NDArray
    redone_lost: NDArray
    restarting_lost: NDArray
    slowed_lost: NDArray
    question: GoodputQuestion

    @property
    def ettr_small_loss(self) -> NDArray:
        """Meta's closed form of the useful share; 0 where the losses are beyond its range."""
        interval = np.where(np.isinf(self.interval_s), 1 / TINY, self.interval_s)
        return reliability.ettr(interval, self.write_s, self.fleet.restart_s, self._rate())

    @property
    def young_s(self) -> NDArray:
        """Young's interval between checkpoints."""
        return reliability.young_interval_s(self.write_s, self._rate())

    @property
    def daly_s(self) -> NDArray:
        """Daly's interval between checkpoints, of the higher order."""
        return reliability.daly_interval_s(self.write_s, self._rate())

    def _rate(self) -> NDArray:
        return 1 / np.maximum(self.mtbf_s, TINY)

    def judge(self) -> Basis:
        """Return the basis: failure rates are those of other fleets."""
        return Basis("extrapolated", f"fleet: {self.fleet.name or self.fleet.id}")

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths that the ranges of the fleet's values give a figure."""
        return _half_widths(self.question, name)

    def ends(self, name: str) -> tuple[NDArray, NDArray]:
        """Return the low and the high end of a figure; a share is at most 1."""
        low, high = Grounded.ends(self, name)
        return low, high if name.endswith("_s") or name == "spare_chips" else np.minimum(high, 1.0)


@declare(
    system=SYSTEM,
    chips=Numbers(1, MOST_CHIPS, whole=True),
    model=MODEL,
    checkpoint_bytes=Numbers(),
    interval_s=Numbers(TINY),
    spare_chips=Numbers(0, MOST_CHIPS, whole=True),
    swap=Word(SWAPS),
    failure_domain_chips=Checked("a whole number of chips, up to those of a scale-up domain", Integer().schema()),
    step_spread=Numbers(0, 1),
    fleet=Named("a fleet, whose failures count"),
)
def goodput(
    system: str | System,
    chips: ArrayLike | None = None,
    *,
    model: str | Transformer | None = None,
    checkpoint_bytes: ArrayLike | None = None,
    interval_s: ArrayLike | None = None,
    spare_chips: ArrayLike | None = None,
    swap: str = "hot",
    failure_domain_chips: int | None = None,
    step_spread: ArrayLike = 0.0,
    fleet: str | Fleet = "borrowed",
) -> Goodput:
    """Return the useful share of the time of a training job's chips.

    Parameters
    ----------
    system : str or System
        System whose scale-up domains the job runs on. [-]
    chips : numeric, optional
        Whole chips of the job, without spares; default all chips of the system. [-]
    model : str or Transformer, optional
        Model that is trained: a checkpoint is its parameters times `fleet.checkpoint_bytes_per_param`. [-]
    checkpoint_bytes : numeric, optional
        Size of a checkpoint, in place of `model`. [B]
    interval_s : numeric, optional
        Useful time between checkpoints; default the best interval. [s]
    spare_chips : numeric, optional
        Whole chips that stand by; default the fewest that give `fleet.ready_share`. [-]
    swap : str
        "hot": trays are swapped while the rack runs, in `fleet.swap_s`, and spare links take over; "drain": a rack
        with a failure is emptied for `fleet.repair_s`. [-]
    failure_domain_chips : int, optional
        Chips of a scale-up domain that are out together when one of them is repaired; default the tray or the rack, as
        in `redundancy.failure_domain_chips`. [-]
    step_spread : numeric
        Standard deviation of the step time between chips over its mean, up to 1; all wait for the slowest. [-]
    fleet : str or Fleet
        Failure rates of parts and times to repair them; fields may be arrays. [-]

    Returns
    -------
    goodput : Goodput
        Shares that sum to 1, with interval and basis.

    Raises
    ------
    ValueError
        Neither model nor checkpoint_bytes, an unknown name, or numbers out of range.

    Notes
    -----
    Failures are independent with exponential times between them, and each interruption takes the whole job back to its
    last checkpoint. A spare failure domain can replace any other. Where trays are swapped hot, a failed link or switch
    that spares cover interrupts nothing; one that they do not cover interrupts the job and slows all of it until it is
    swapped. With "drain" each of these failures empties a rack.

    Examples
    --------
    >>> import trnmodel as tm
    >>> job = tm.goodput("trn3-nl72x2-pcie160", 16_384, model="llama-3.1-405b")
    >>> parts = [float(getattr(job, f"{part}_lost")) for part in LOSSES]
    >>> bool(job.low < job.goodput < job.high), abs(sum(parts) + float(job.goodput) - 1) < 1e-12
    (True, True)
    """
    spec, those = read_system(system), read_fleet(fleet)
    inputs: dict[str, Any] = {"chips": np.asarray(spec.chips if chips is None else chips, float)}
    inputs["checkpoint_bytes"] = _checkpoint_bytes(model, checkpoint_bytes, those)
    inputs["step_spread"] = step_spread
    if interval_s is not None:
        inputs["interval_s"] = interval_s
    if spare_chips is not None:
        inputs["spare_chips"] = spare_chips
    together(**inputs, **shapes(fleet=those))
    size = redundancy.failure_domain_chips(spec, swap)
    if failure_domain_chips is not None:
        size = float(integer("failure_domain_chips", failure_domain_chips, 1, int(spec.domain_chips)))
    question = GoodputQuestion(
        system=spec,
        fleet=those,
        model=None if model is None else read_model(model),
        swap=swap,
        failure_domain_chips=size,
        chips=inputs["chips"],
        checkpoint_bytes=inputs["checkpoint_bytes"] if model is None else None,
        step_spread=inputs["step_spread"],
        interval_s=inputs.get("interval_s"),
        spare_chips=inputs.get("spare_chips"),
    )
    figures = _figures(question)
    return Goodput(
        system=spec,
        fleet=those,
        model=question.model,
        swap=swap,
        failure_domain_chips=size,
        chips=question.chips,
        **figures,
        reason_mask=np.zeros(np.shape(figures["goodput"]), int),
        question=question,
    )


@lru_cache(maxsize=256)
def _half_widths(question: GoodputQuestion, name: str) -> tuple[NDArray, NDArray]:
    """Return the half-widths of a figure, with each open value of the fleet moved by itself."""

    def figure(fleet: Fleet) -> NDArray:
        return np.maximum(_figures(replace(question, fleet=fleet))[name], TINY)

    return ranged(question.fleet, figure)


def _checkpoint_bytes(model: str | Transformer | None, checkpoint_bytes: ArrayLike | None, fleet: Fleet) -> NDArray:
    """Return the size of a checkpoint; ValueError unless one of model and size is given."""
    if (model is None) == (checkpoint_bytes is None):
        refuse("model", model, f"allowed is one of model and checkpoint_bytes, here {shown(checkpoint_bytes)}")
    if checkpoint_bytes is not None:
        return numbers("checkpoint_bytes", checkpoint_bytes)
    assert model is not None
    return np.asarray(read_model(model).total_params * fleet.checkpoint_bytes_per_param)


class Stops(NamedTuple):
    """Failures of a job's fabric: interruptions, failure domains taken out, and the mean speed over whole racks."""

    per_s: Any
    out: Any
    speed: Any


def _fabric(spec: System, fleet: Fleet, swap: str, chips: NDArray) -> Stops:
    """Return what failures of links and switches do to a job of so many chips."""
    per_s, out, speed = np.zeros(()), np.zeros(()), np.ones(())
    for guard in guards(spec):
        each, groups = guard.failures_per_s(fleet), np.ceil(chips / spec.domain_chips) * guard.groups
        if swap == "drain":
            stops = groups * guard.parts * each
            per_s, out = per_s + stops, out + stops
            continue
        gone = spares.out_share(each, fleet.swap_s)
        worn = spares.more_out(guard.parts, guard.spares, gone)
        per_s = per_s + groups * spares.unspared_per_s(guard.parts, guard.spares, each, fleet.swap_s)
        slow = 1 - spares.slowed_speed(guard.left, fleet.exposed_share)
        speed = speed * (1 - spares.any_of(groups, worn) * slow)
    return Stops(per_s, out, speed)


def _figures(question: GoodputQuestion) -> dict[str, Any]:
    """Return the figures of a `Goodput`."""
    fleet, chips, swap = question.fleet, question.chips, question.swap
    net = _fabric(question.system, fleet, swap, chips)
    own = chips * fleet.interruptions_per_chip_s
    mtbf = reliability.mtbf_s((1.0, 1.0), (own, net.per_s))
    rate = own + net.per_s
    write = _checkpoint_bytes(question.model, question.checkpoint_bytes, fleet) / fleet.checkpoint_bytes_per_s
    interval = question.interval_s
    if interval is None:
        interval = reliability.best_interval_s(write, rate)
    useful, writing, restarting, redone = reliability.time_shares(interval, write, fleet.restart_s, rate)
    away = (own * fleet.repaired_share + net.out) * (fleet.swap_s if swap == "hot" else fleet.repair_s)
    spare_chips = question.spare_chips
    if spare_chips is None:
        spare_chips = question.failure_domain_chips * spares.spares_needed(away, fleet.ready_share)
    ready = spares.ready_share(away, np.floor(spare_chips / question.failure_domain_chips))
    speed = net.speed / spares.slowest_of(chips, question.step_spread)
    spare = spare_chips / (chips + spare_chips)
    total = reliability.goodput(spare, ready, useful, speed)
    working = (1 - spare) * ready
    shares = {"ready_share": ready, "running_share": 1 - restarting, "useful_share": useful, "speed": speed}
    shares |= {"goodput": total, "spare_lost": spare}
    shares |= {"waiting_lost": (1 - spare) * (1 - ready), "slowed_lost": working * useful * (1 - speed)}
    shares |= {"writing_lost": working * writing, "redone_lost": working * redone}
    times = {"write_s": write, "interval_s": interval, "mtbf_s": mtbf, "spare_chips": spare_chips}
    return times | shares | {"restarting_lost": working * restarting}


def limping(system: str | System, fleet: str | Fleet, chips: float) -> pd.DataFrame:
    """Return how often a job with hot-swapped trays runs at the reduced rate of one rack, by failed part.

    Returns
    -------
    table : pandas.DataFrame
        part, groups (in all racks), in_group (chance that more parts of a group are out than it has spares), any (the
        chance for one group or more), left (rate of the slowest chip then), speed (mean of the job, at the fleet's
        exposed share). [-]

    Examples
    --------
    >>> limping("trn3-nl72x2-pcie160", "borrowed", 16_384).part.tolist()
    ['rack switch', 'cross-rack link']
    """
    spec, fleet = read_system(system), read_fleet(fleet)
    rows = []
    for one in guards(spec):
        groups = float(np.ceil(chips / spec.domain_chips) * one.groups)
        worn = float(spares.more_out(one.parts, one.spares, spares.out_share(one.failures_per_s(fleet), fleet.swap_s)))
        some, slow = float(spares.any_of(groups, worn)), float(spares.slowed_speed(one.left, fleet.exposed_share))
        rows.append((one.name, groups, worn, some, one.left, 1 - some * (1 - slow)))
    import pandas as pd

    return pd.DataFrame(rows, columns=["part", "groups", "in_group", "any", "left", "speed"])


def replica_availability(
    system: str | System,
    chips: ArrayLike,
    replicas: ArrayLike = 1,
    needed: ArrayLike | None = None,
    *,
    swap: str = "hot",
    fleet: str | Fleet = "borrowed",
) -> NDArray:
    """Return the share of time in which at least `needed` of a number of serving replicas work.

    Parameters
    ----------
    system : str or System
        System whose scale-up domains hold the replicas. [-]
    chips : numeric
        Chips per replica; a replica needs all of them. [-]
    replicas, needed : numeric
        Number of replicas, and how many of them have to work; default all. [-]
    swap : str
        "hot": a replica is out while a tray is swapped; "drain": while a rack is repaired, for any failure in it. [-]
    fleet : str or Fleet
        Failure rates of parts and times to repair them. [-]

    Returns
    -------
    availability : numeric
        Share of time. [-]

    Notes
    -----
    An interruption without a repair takes `fleet.restart_s`. Links and switches of the whole domain count.

    Examples
    --------
    >>> one = replica_availability("trn3-nl72x2-pcie160", 8)
    >>> bool(0.99 < one < replica_availability("trn3-nl72x2-pcie160", 8, replicas=9, needed=8) < 1)
    True
    """
    count = numbers("replicas", replicas, 1, whole=True)
    least = count if needed is None else numbers("needed", needed, 1, whole=True)
    if np.any(least > count):
        refuse("needed", needed, f"allowed are whole numbers up to replicas={shown(replicas)}")
    down = sum(replica_downtime(system, chips, swap=swap, fleet=fleet).values())
    return 1 - spares.more_out(count, count - least, spares.out_share(1.0, down))


def replica_downtime(
    system: str | System, chips: ArrayLike, *, swap: str = "hot", fleet: str | Fleet = "borrowed"
) -> dict[str, NDArray]:
    """Return how long a serving replica is out for each second that it works, by cause.

    Parameters
    ----------
    system : str or System
        System whose scale-up domain holds the replica. [-]
    chips : numeric
        Chips of the replica; it needs all of them. [-]
    swap, fleet : str, str or Fleet
        As of `replica_availability`. [-]

    Returns
    -------
    downtime : dict
        Seconds out for each second of work: of the parts that the fleet names ("chip", "host", "network", "software"),
        and of the "links and switches" of the scale-up domain. [-]

    Notes
    -----
    The parts share the interruptions of a chip as the fleet counted them, or as `llama-3-h100` did where it did not. An
    interruption with a repair takes the time of a swap or of a repair, the others take `fleet.restart_s`.

    Examples
    --------
    >>> list(replica_downtime("trn3-nl72x2-pcie160", 8))
    ['chip', 'host', 'network', 'software', 'links and switches']
    """
    spec, those = read_system(system), read_fleet(fleet)
    size = numbers("chips", chips, 1, MOST_CHIPS, whole=True)
    unit = redundancy.failure_domain_chips(spec, swap)
    reach = np.ceil(size / unit) * unit if choice("swap", swap, SWAPS) == "drain" else size
    net, mended = _fabric(spec, those, swap, reach), those.repaired_share
    away = those.swap_s if swap == "hot" else those.repair_s
    own = reach * those.interruptions_per_chip_s * (mended * away + (1 - mended) * those.restart_s)
    causes = those.causes or read_fleet(COUNTED).causes
    return {part: own * share for part, share in causes.items()} | {
        "links and switches": net.out * away + net.per_s * those.restart_s
    }
