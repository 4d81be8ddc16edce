"""How much of the time of many chips is useful: failures, checkpoints, restarts, spares, and racks that limp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import MOST_CHIPS, TINY, choice, integer, numbers, refuse, share, shown, together
from trnmodel.bands import ranged
from trnmodel.catalog.fleets import Fleet
from trnmodel.catalog.fleets import fleet as read_fleet
from trnmodel.catalog.specs import shapes
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import reliability, spares
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.planner.redundancy import SWAPS, guards, unit_chips
from trnmodel.result import Basis, Grounded

if TYPE_CHECKING:
    import pandas as pd

LOSSES = ("spare", "waiting", "writing", "redone", "restarting", "slowed")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Goodput(Grounded):
    """Useful share of the time of a job's chips and of its spares; with the `..._lost` shares it sums to 1.

    `useful_share` is of a job's own time (ETTR), of which it is up for `running_share`; `ready_share` is of time with
    enough chips, `speed` that of the job over one on whole racks; `mtbf_s` is the time between interruptions.
    """

    FIGURE: ClassVar[str] = "goodput"
    UNBANDED: ClassVar[tuple[str, ...]] = ("chips", "unit_chips", "ettr_small_loss", "young_s", "daly_s")

    system: System
    model: Transformer | None
    fleet: Fleet
    swap: str
    chips: NDArray
    spare_chips: NDArray
    unit_chips: float
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

    @property
    def ettr_small_loss(self) -> NDArray:
        """Meta's closed form of the useful share; 0 where losses have left its range."""
        interval = np.where(np.isinf(self.interval_s), 1 / TINY, self.interval_s)
        return reliability.ettr(interval, self.write_s, self.fleet.restart_s, self._rate())

    @property
    def young_s(self) -> NDArray:
        """Young's interval."""
        return reliability.young_interval_s(self.write_s, self._rate())

    @property
    def daly_s(self) -> NDArray:
        """Daly's interval, of the higher order."""
        return reliability.daly_interval_s(self.write_s, self._rate())

    def _rate(self) -> NDArray:
        return 1 / np.maximum(self.mtbf_s, TINY)

    def ends(self, name: str) -> tuple[NDArray, NDArray]:
        """Low and high; a share ends at 1."""
        low, high = Grounded.ends(self, name)
        return low, high if name.endswith("_s") or name == "spare_chips" else np.minimum(high, 1.0)


def goodput(
    system: str | System,
    chips: ArrayLike | None = None,
    *,
    model: str | Transformer | None = None,
    checkpoint_bytes: ArrayLike | None = None,
    interval_s: ArrayLike | None = None,
    spare_chips: ArrayLike | None = None,
    swap: str = "hot",
    unit: int | None = None,
    step_spread: ArrayLike = 0.0,
    fleet: str | Fleet = "borrowed",
) -> Goodput:
    """Useful share of the time of a training job's chips.

    Parameters
    ----------
    system : str or System
        Whose scale-up domains the job runs on. [-]
    chips : numeric, optional
        Chips of the job, whole ones, spares not counted; all of the system where none is given. [-]
    model : str or Transformer, optional
        What is trained: a checkpoint is its parameters times `fleet.checkpoint_bytes_per_param`. [-]
    checkpoint_bytes : numeric, optional
        Bytes of a checkpoint instead. [B]
    interval_s : numeric, optional
        Useful time between checkpoints; the best one where none is given. [s]
    spare_chips : numeric, optional
        Whole chips that stand by; the fewest for `fleet.ready_share` where none is given. [-]
    swap : str
        "hot": trays are swapped while the rack runs, in `fleet.swap_s`, and spare links take over; "drain": a rack
        with a failure is emptied for `fleet.repair_s`. [-]
    unit : int, optional
        Chips of a domain that are out together when one is repaired; by default the tray or the rack, as `unit_chips`
        has it. [-]
    step_spread : numeric
        Standard deviation of the time of a step from chip to chip over its mean, up to 1; all wait for the slowest. [-]
    fleet : str or Fleet
        What fails, how often and for how long; fields may be arrays. [-]

    Returns
    -------
    goodput : Goodput
        Shares that sum to 1, with band and basis.

    Raises
    ------
    ValueError
        Neither model nor checkpoint_bytes, an unknown name, or numbers out of range.

    Notes
    -----
    Failures are independent and follow exponential laws; any interruption takes the whole job back to its last
    checkpoint. A spare unit can stand in for any other. A link or switch that spares cover interrupts nothing where
    trays are swapped hot; one that they do not cover interrupts the job and slows all of it until it is swapped.
    With "drain" each of them empties a rack.

    Examples
    --------
    >>> import trnmodel as tm
    >>> job = tm.goodput("trn3-nl72x2-pcie160", 16_384, model="llama-3.1-405b")
    >>> parts = [float(getattr(job, f"{part}_lost")) for part in LOSSES]
    >>> bool(job.low < job.goodput < job.high), abs(sum(parts) + float(job.goodput) - 1) < 1e-12
    (True, True)
    """
    spec, those = read_system(system), read_fleet(fleet)
    asked = {"chips": numbers("chips", spec.chips if chips is None else chips, 1, MOST_CHIPS, whole=True)}
    asked["checkpoint_bytes"] = _checkpoint_bytes(model, checkpoint_bytes, those)
    asked["step_spread"] = share("step_spread", step_spread)
    if interval_s is not None:
        asked["interval_s"] = numbers("interval_s", interval_s, TINY)
    if spare_chips is not None:
        asked["spare_chips"] = numbers("spare_chips", spare_chips, 0, MOST_CHIPS, whole=True)
    together(**asked, **shapes(fleet=those))
    units = unit_chips(spec, swap)
    units = units if unit is None else float(integer("unit", unit, 1, int(spec.domain_chips)))
    found = _parts(spec, those, swap, units, **asked)

    def judge() -> Basis:
        return Basis("extrapolated", f"fleet: {those.name or those.id}")

    @cache
    def spread(name: str) -> tuple[NDArray, NDArray]:
        def ask(moved: Fleet) -> NDArray:
            again = asked if model is None else asked | {"checkpoint_bytes": _checkpoint_bytes(model, None, moved)}
            return np.maximum(_parts(spec, moved, swap, units, **again)[name], TINY)

        return ranged(those, ask)

    given: dict[str, Any] = {
        "system": spec,
        "fleet": those,
        "model": None if model is None else read_model(model),
        "swap": swap,
        "unit_chips": units,
        "chips": asked["chips"],
    }
    return Goodput(**given, **found, reason_mask=np.zeros(np.shape(found["goodput"]), int), judge=judge, spread=spread)


def _checkpoint_bytes(model: str | Transformer | None, given: ArrayLike | None, fleet: Fleet) -> NDArray:
    if (model is None) == (given is None):
        refuse("model", model, f"allowed is one of model and checkpoint_bytes, here {shown(given)}")
    if given is not None:
        return numbers("checkpoint_bytes", given)
    assert model is not None
    return np.asarray(read_model(model).total_params * fleet.checkpoint_bytes_per_param)


class Stops(NamedTuple):
    """What fails of a job's fabric: interruptions, units taken out, and the mean speed beside whole racks."""

    per_s: Any
    out: Any
    speed: Any


def _fabric(spec: System, fleet: Fleet, swap: str, chips: NDArray) -> Stops:
    per_s, out, speed = np.zeros(()), np.zeros(()), np.ones(())
    for guard in guards(spec):
        each, groups = guard.failures_per_s(fleet), np.ceil(chips / spec.domain_chips) * guard.groups
        if swap == "drain":
            stops = groups * guard.parts * each
            per_s, out = per_s + stops, out + stops
            continue
        gone = spares.out_share(each, fleet.swap_s)
        worn = spares.more_out(guard.parts, guard.spares, gone)
        per_s = per_s + groups * spares.worn_per_s(guard.parts, guard.spares, each, fleet.swap_s)
        slow = 1 - spares.slowed_speed(guard.left, fleet.exposed_share)
        speed = speed * (1 - spares.any_of(groups, worn) * slow)
    return Stops(per_s, out, speed)


def _parts(
    spec: System,
    fleet: Fleet,
    swap: str,
    unit: float,
    *,
    chips: NDArray,
    checkpoint_bytes: NDArray,
    step_spread: NDArray,
    interval_s: NDArray | None = None,
    spare_chips: NDArray | None = None,
) -> dict[str, Any]:
    """The numbers of `Goodput`, from checked ones."""
    net = _fabric(spec, fleet, swap, chips)
    own = chips * fleet.interruptions_per_chip_s
    mtbf = reliability.mtbf_s((1.0, 1.0), (own, net.per_s))
    rate = own + net.per_s
    write = checkpoint_bytes / fleet.checkpoint_bytes_per_s
    interval = reliability.best_interval_s(write, rate) if interval_s is None else interval_s
    useful, writing, restarting, redone = reliability.time_shares(interval, write, fleet.restart_s, rate)
    away = (own * fleet.repaired_share + net.out) * (fleet.swap_s if swap == "hot" else fleet.repair_s)
    if spare_chips is None:
        spare_chips = unit * spares.spares_needed(away, fleet.ready_share)
    ready = spares.ready_share(away, np.floor(spare_chips / unit))
    speed = net.speed / spares.slowest_of(chips, step_spread)
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
    """How often a job of swapped trays waits for a rack that limps, by part.

    Returns
    -------
    table : pandas.DataFrame
        part, groups (of all racks), in_group (of a group's parts more are out than spares), any (of one group or more),
        left (rate of the slowest then), speed (mean of the job, at the fleet's exposed share). [-]

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
    """Share of time in which at least so many of a number of serving replicas work.

    Parameters
    ----------
    system : str or System
        Whose scale-up domains the replicas are parts of. [-]
    chips : numeric
        Chips of a replica; without one of them it does not work. [-]
    replicas, needed : numeric
        Replicas that there are, and how many have to work; all where none is given. [-]
    swap : str
        "hot": a replica is away while a tray is swapped; "drain": while a rack is repaired, for any failure in it. [-]
    fleet : str or Fleet
        What fails, how often and for how long. [-]

    Returns
    -------
    availability : numeric
        Share of time. [-]

    Notes
    -----
    An interruption after which nothing is repaired takes `fleet.restart_s`. Links and switches of all its domain count.

    Examples
    --------
    >>> one = replica_availability("trn3-nl72x2-pcie160", 8)
    >>> bool(0.99 < one < replica_availability("trn3-nl72x2-pcie160", 8, replicas=9, needed=8) < 1)
    True
    """
    spec, those = read_system(system), read_fleet(fleet)
    size = numbers("chips", chips, 1, MOST_CHIPS, whole=True)
    count = numbers("replicas", replicas, 1, whole=True)
    least = count if needed is None else numbers("needed", needed, 1, whole=True)
    if np.any(least > count):
        refuse("needed", needed, f"allowed are whole numbers up to replicas={shown(replicas)}")
    unit = unit_chips(spec, swap)
    reach = np.ceil(size / unit) * unit if choice("swap", swap, SWAPS) == "drain" else size
    net = _fabric(spec, those, swap, reach)
    own, mended = reach * those.interruptions_per_chip_s, those.repaired_share
    away = those.swap_s if swap == "hot" else those.repair_s
    down = own * (mended * away + (1 - mended) * those.restart_s) + net.out * away + net.per_s * those.restart_s
    gone = spares.out_share(1.0, down)
    return 1 - spares.more_out(count, count - least, gone)
