"""Cost of a chip-hour and of a million tokens to the owner: parts, building, electricity and operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, choice, instance, numbers, refuse, share, together
from trnmodel.catalog import facilities
from trnmodel.catalog import prices as priced
from trnmodel.catalog.facilities import Facility, Power
from trnmodel.catalog.prices import Owner, Prices
from trnmodel.catalog.specs import published, shapes
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost import bill, ends
from trnmodel.cost.matching import same_owner
from trnmodel.declared import SYSTEM, Checked, Named, Numbers, Object, declare
from trnmodel.formulas import tco as page
from trnmodel.formulas.bands import joint_width
from trnmodel.models.transformer import Transformer
from trnmodel.power.account import SiteWatts, provisioned_w
from trnmodel.power.energy import Energy
from trnmodel.reliability.goodput import Goodput
from trnmodel.result import Basis, Grounded, blank, reason_mask, tidy
from trnmodel.steps.answers import Step

if TYPE_CHECKING:
    import pandas as pd

MONTHS = 12.0
PERIOD_H = page.HOURS_PER_YEAR / MONTHS
HOURLY = ("server", "network", "site", "energy", "operations")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CostQuestion:
    """Inputs of a cost, checked; None stands for the value that the system or the owner has.

    `mean_w` and `goodput` are the values of `energy` and `job`, where the cost is computed from these results.
    """

    system: System
    owner: Owner
    prices: Prices
    facility: Facility
    power: Power
    energy: Energy | None
    job: Goodput | None
    mean_w: NDArray | None
    goodput: NDArray
    utilisation: NDArray
    chip_usd: NDArray | None
    server_usd: NDArray | None
    switch_usd_per_lane: NDArray | None
    tdp_w: NDArray | None

    @property
    def own_w(self) -> Any:
        """Provisioned power that is published of the chip; NaN where the call has another TDP."""
        return self.system.chip.all_in_w if self.tdp_w is None else np.nan


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cost(Grounded):
    """Dollars per hour of a chip with its share of rack, network and building; the `..._usd_per_h` parts add up.

    `site_usd_per_h` is the cost of the building, owned or rented. `useful_usd_per_h` is the cost of an hour over
    utilisation and goodput. `break_even` gives the value of one input at which a useful hour costs a target.
    """

    REASONS: ClassVar[tuple[str, ...]] = (
        "no source prices the server, and its parts are not counted",
        "no price of a part of the rack",
        "no price or no rate of the scale-out network",
        "no watts of the chip are known",
        "no cost of capital, years or operations of the owner",
        "neither a price nor a rent of the building",
        "no price of electricity",
    )
    FIGURE: ClassVar[str] = "usd_per_h"
    UNBANDED: ClassVar[tuple[str, ...]] = ("utilisation", "goodput", "replacement_usd_per_h")

    system: System
    model: Transformer | None
    owner: Owner
    prices: Prices
    facility: Facility
    parts_usd: Mapping[str, NDArray]
    capital_usd: NDArray
    tdp_w: NDArray
    all_in_w: NDArray
    mean_w: NDArray
    utilisation: NDArray
    goodput: NDArray
    server_usd_per_h: NDArray
    network_usd_per_h: NDArray
    site_usd_per_h: NDArray
    energy_usd_per_h: NDArray
    operations_usd_per_h: NDArray
    usd_per_h: NDArray
    useful_usd_per_h: NDArray
    question: CostQuestion

    def judge(self) -> Basis:
        """Return the basis of the price of the server or of its parts."""
        spec, p = self.system, self.question.prices
        if self.question.server_usd is not None:
            return Basis("extrapolated", "server: its price is given with the call")
        if spec.id in p.server_usd_per_chip:
            return Basis("extrapolated", "prices: of servers as sold, taken to another year")
        return Basis(
            "extrapolated", f"prices: nobody publishes one of {spec.chip.id}; its parts are counted and estimated"
        )

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths that all open inputs give a figure or a part of the bill."""
        shape = np.shape(self.figure(name))
        below, above = (np.broadcast_to(side, shape) for side in _half_widths(self.question, name))
        return below[()], above[()]

    @property
    def site_watts(self) -> SiteWatts:
        """Return provisioned and mean watts per chip with the PUE of either, as `tm.energy` counts them too."""
        return SiteWatts(self.all_in_w, self.mean_w, self.facility.peak_pue, self.facility.annual_pue)

    def recompute(self, **changes: Any) -> dict[str, Any]:
        """Return the figures of the hour with other inputs.

        Parameters
        ----------
        changes : keywords
            Fields of `CostQuestion`, such as `prices`, `owner`, `power`, `tdp_w` or `utilisation`, as checked values.
            [-]

        Returns
        -------
        figures : dict
            Fields of a `Cost` by name. [-]

        Raises
        ------
        ValueError
            A name that is no input of a cost.

        Examples
        --------
        >>> cost = tco("hgx-h100")
        >>> half = cost.recompute(utilisation=0.5)
        >>> float(half["useful_usd_per_h"] / cost.useful_usd_per_h)
        2.0
        """
        for name in changes:
            choice("changes", name, [field.name for field in fields(CostQuestion)])
        return _hour(replace(self.question, **changes))

    def usd_per_mtoken(self, answer: Step | Energy | ArrayLike) -> NDArray:
        """Return dollars per million tokens at the cost of a useful hour.

        Parameters
        ----------
        answer : Step, Energy or numeric
            Tokens per second per chip, or a result that has them. A result has to be of the system of the cost, and of
            its model where the cost is of one. [token/s]

        Raises
        ------
        ValueError
            A step or an energy of another system or model.

        Examples
        --------
        >>> round(float(tco("hgx-h100").usd_per_mtoken(1000.0)), 2)
        0.35
        """
        if isinstance(answer, Step | Energy):
            same_owner("answer", answer, self.system, self.model)
            rate = answer.tokens_per_s_per_chip
        else:
            rate = numbers("answer", answer, 0.0, unknown=True)
        together(answer=rate, cost=self.useful_usd_per_h)
        with np.errstate(divide="ignore"):
            return page.usd_per_mtoken(self.useful_usd_per_h, rate)

    def figures(self) -> list[str]:
        """Return the names of the figures of the hour, and of the parts of the capital."""
        return [*Grounded.figures(self), *self.parts_usd]

    def figure(self, name: str) -> Any:
        """Return a figure of the hour, or the dollars of one of `parts_usd`, by its name."""
        if isinstance(name, str) and name in self.parts_usd:
            return self.parts_usd[name]
        return Grounded.figure(self, name)

    @property
    def replacement_usd_per_h(self) -> NDArray:
        """Loss of value of servers and network in the first hour, as new ones become cheaper [USD/h]."""
        return page.replacement_usd_per_h(self.capital_usd, self.prices.decades_per_year)

    def flop_per_s_per_usd_per_h(self, dtype: str) -> NDArray:
        """Return the peak per dollar per hour for a compute dtype [FLOP*h/s/USD].

        Raises ValueError where the chip has no peak at it.

        Examples
        --------
        >>> round(float(tco("hgx-h100").flop_per_s_per_usd_per_h("bf16") / 1e12))
        791
        """
        return page.flop_per_s_per_usd_per_h(self.system.chip.peak(dtype), self.usd_per_h)

    def mtoken_ends(self, answer: Step | Energy | ArrayLike) -> tuple[NDArray, NDArray]:
        """Return the low and the high end of `usd_per_mtoken`, from the intervals of cost and of the step's time."""
        value, (below, above) = self.usd_per_mtoken(answer), self.widths("useful_usd_per_h")
        step = answer.step if isinstance(answer, Energy) else answer
        fast, slow = step.widths("time_s") if isinstance(step, Step) else (0.0, 0.0)
        return value * np.exp(-np.hypot(below, fast)), value * np.exp(np.hypot(above, slow))

    def bill(self) -> pd.DataFrame:
        """Return the bill of materials per chip with its share of rack and network.

        Returns
        -------
        table : pandas.DataFrame
            part, usd per chip with `_low` and `_high`, share of the capital, estimate (whether a price of it is our
            own estimate).

        Examples
        --------
        >>> tco("hgx-h100").bill().part.tolist()[:2]
        ['server as sold', 'scale-out switches']
        """
        rows = []
        for part, usd in self.parts_usd.items():
            below, above = self.widths(part)
            band = {"usd_low": (usd * np.exp(-below))[()], "usd": usd[()], "usd_high": (usd * np.exp(above))[()]}
            prices = [f"{name}[{self.system.id}]" if name in bill.BY_SYSTEM else name for name in bill.PRICED[part]]
            estimate = not self.prices.estimates.isdisjoint(prices)
            rows.append({"part": part, **band, "share": usd / self.capital_usd, "estimate": estimate})
        return tidy(rows)

    def by_part(self) -> pd.DataFrame:
        """Return the parts of an hour's cost: part, usd_per_h with `_low` and `_high`, share."""
        rows = []
        for part in HOURLY:
            name = f"{part}_usd_per_h"
            low, high = self.ends(name)
            value = getattr(self, name)
            band = {"usd_per_h_low": low, "usd_per_h": value, "usd_per_h_high": high}
            rows.append({"part": part, **band, "share": value / self.usd_per_h})
        return tidy(rows)

    def break_even(self, which: str, *, useful_usd_per_h: ArrayLike) -> NDArray:
        """Return the value of one input at which a useful hour costs a target; below 0 where even a gift costs more.

        Parameters
        ----------
        which : str
            "chip_usd", "tdp_w", "switch_usd_per_lane", "server_usd" or "utilisation". [-]
        useful_usd_per_h : numeric
            Target for the cost of a useful hour: a rival's `useful_usd_per_h`, times how much faster this chip is. The
            cost of an hour that is paid for, `usd_per_h`, differs from it as soon as hours are lost or idle. [USD/h]

        Returns
        -------
        value : numeric
            Value of the input in its own unit, with all other inputs unchanged. [-]

        Raises
        ------
        ValueError
            The cost does not depend on it.

        Notes
        -----
        The cost of an hour is linear in every price and in the watts, so two costs give the line.

        Examples
        --------
        >>> ours = tco("trn3-nl72x2-pcie160")
        >>> at = ours.break_even("chip_usd", useful_usd_per_h=2.0)
        >>> round(float(tco("trn3-nl72x2-pcie160", chip_usd=at).useful_usd_per_h), 9)
        2.0
        """
        target = numbers("useful_usd_per_h", useful_usd_per_h)
        if choice("which", which, (*BREAK_EVENS, "utilisation")) == "utilisation":
            return np.asarray(self.usd_per_h / (target * self.goodput))
        low, high = BREAK_EVENS[which]
        at_low, at_high = (self.recompute(**{which: end})["useful_usd_per_h"] for end in (low, high))
        slope = np.asarray((at_high - at_low) / (high - low))
        if np.any(slope == 0):
            refuse("which", which, f"the cost of {self.system.id} does not depend on it")
        return np.asarray(low + (target - at_low) / slope)

    def uncertain(self) -> dict[str, Any]:
        """Return the uncertain inputs of an owner's hour by name: prices, owner, provisioned power, TDP of the chip."""
        chip, inputs = self.system.chip, dict[str, Any](prices=self.prices, owner=self.owner)
        if np.isnan(chip.all_in_w):
            watts, (low, high) = facilities.power(chip), facilities.ends(chip, "tdp_w")
            inputs["power"] = replace(watts, ranges={"all_in_ratio": watts.range("all_in_ratio")})
            inputs |= {f"TDP of {chip.id}": (low, chip.tdp_w, high)} if low < high else {}
        return inputs

    def drawn_usd_per_h(self, drawn: Mapping[str, Any], **inputs: Any) -> NDArray:
        """Return the cost of a useful hour in each draw of the `uncertain` inputs, with other `inputs` of the call."""
        chip = self.system.chip
        names = {"prices": "prices", "owner": "owner", f"TDP of {chip.id}": "tdp_w"}
        names |= {"power": "power"} if np.isnan(chip.all_in_w) else {}
        draws = instance("drawn", drawn, Mapping, "a mapping of what is uncertain to its draws")
        changes = {name: _drawn(label, draws[label]) for label, name in names.items() if label in draws}
        for name, value in inputs.items():
            changes[choice("inputs", name, (*BREAK_EVENS, "utilisation"))] = numbers(name, value, TINY)
        return np.asarray(self.recompute(**changes)["useful_usd_per_h"])

    def drawn_break_even(self, which: str, drawn: Mapping[str, Any], useful_usd_per_h: ArrayLike) -> NDArray:
        """Return `break_even` of one input in each draw of the other `uncertain` ones, for a target of each draw.

        A target of NaN, where a rival has no cost, gives NaN.
        """
        low, high = BREAK_EVENS[choice("which", which, BREAK_EVENS)]
        target = numbers("useful_usd_per_h", useful_usd_per_h, unknown=True)
        at_low, at_high = (self.drawn_usd_per_h(drawn, **{which: end}) for end in (low, high))
        if np.any(at_high == at_low):
            refuse("which", which, f"the cost of {self.system.id} does not depend on it")
        together(useful_usd_per_h=target, drawn=at_low)
        return np.asarray(low + (target - at_low) / (at_high - at_low) * (high - low))


BREAK_EVENS = {
    "chip_usd": (1e3, 1e4),
    "tdp_w": (100.0, 1000.0),
    "switch_usd_per_lane": (1.0, 100.0),
    "server_usd": (1e3, 1e5),
}


DRAWN = {"prices": Prices, "owner": Owner, "power": Power}


def _drawn(name: str, value: Any) -> Any:
    """Return a draw of an input, checked: a spec that holds arrays, or watts."""
    place = f"drawn[{name!r}]"
    kind = DRAWN.get(name)
    return numbers(place, value, TINY) if kind is None else instance(place, value, kind, kind.__name__)


def _prices(question: Any) -> Any:
    """Return the prices, with those of the call in place of the ones of data."""
    p, spec, changes = question.prices, question.system, dict[str, Any]()
    if question.chip_usd is not None:
        changes["chip_usd"] = {**p.chip_usd, spec.chip.id: question.chip_usd}
    if question.server_usd is not None:
        changes["server_usd_per_chip"] = {**p.server_usd_per_chip, spec.id: question.server_usd}
        changes["server_year"] = {**p.server_year, spec.id: p.money_year}
        changes["market_ratio"] = 1.0
    if question.switch_usd_per_lane is not None:
        changes["switch_usd_per_lane"] = question.switch_usd_per_lane
    if isinstance(p, Prices):
        return replace(p, **changes) if changes else p
    return SimpleNamespace(**(vars(p) | changes))


def _tdp_w(question: Any) -> Any:
    """Return the TDP of the call, or that of the chip."""
    return question.system.chip.tdp_w if question.tdp_w is None else question.tdp_w


def _watts(question: Any, tdp_w: Any) -> SiteWatts:
    """Return the watts of a chip as its site counts them; without an energy the mean is the owner's share of them."""
    all_in = provisioned_w(question.own_w, tdp_w, question.power.all_in_ratio)
    mean = all_in * question.owner.mean_load_share if question.mean_w is None else question.mean_w
    return SiteWatts(all_in, mean, question.facility.peak_pue, question.facility.annual_pue)


def _site(all_in_w: Any, owner: Owner) -> NDArray:
    """Return the cost of the building, built or rented [USD/h]."""
    built = page.facility_usd_per_h(
        all_in_w, owner.build_usd_per_w, owner.rate_per_year / MONTHS, owner.build_years * MONTHS, PERIOD_H
    )
    return published(page.colocation_usd_per_h(all_in_w, owner.colocation_usd_per_w_h), built)


def _unknown(*values: Any) -> NDArray:
    """Return whether any of the numbers is unknown."""
    return np.isnan(sum(values))


def _hour(question: Any) -> dict[str, Any]:
    """Return the figures of a `Cost`."""
    owner, tdp_w = question.owner, _tdp_w(question)
    site = _watts(question, tdp_w)
    parts = bill.lines(question.system, _prices(question), tdp_w, owner.cluster_chips)
    net = sum(parts[name] for name in bill.NETWORK)
    server = sum(usd for name, usd in parts.items() if name not in bill.NETWORK)
    terms = owner.rate_per_year / MONTHS, owner.life_years * MONTHS, PERIOD_H, 1 - owner.lost_share
    hourly = {
        "server_usd_per_h": page.owned_usd_per_h(server, *terms),
        "network_usd_per_h": page.owned_usd_per_h(net, *terms),
        "site_usd_per_h": _site(site.provisioned_w, owner),
        "energy_usd_per_h": page.energy_usd_per_h(site.mean_site_w, 1.0, owner.electricity_usd_per_j),
        "operations_usd_per_h": (server + net) * owner.operations_share / page.HOURS_PER_YEAR,
    }
    usd = sum(hourly.values())
    useful = page.useful_usd_per_h(usd, (question.utilisation, question.goodput))
    watts = {"tdp_w": np.asarray(tdp_w), "all_in_w": np.asarray(site.provisioned_w), "mean_w": np.asarray(site.mean_w)}
    figures = {"capital_usd": server + net, **watts, **hourly, "usd_per_h": usd, "useful_usd_per_h": useful}
    whole = np.isnan(parts["server as sold"]) if "server as sold" in parts else False
    mask = reason_mask(
        whole,
        np.isnan(server) & ~np.asarray(whole) & ~np.isnan(tdp_w),
        np.isnan(net),
        _unknown(site.provisioned_w, site.mean_w),
        _unknown(*terms, owner.operations_share),
        np.isnan(_site(1.0, owner)),
        _unknown(owner.electricity_usd_per_j, site.annual_pue),
    )
    return blank(mask, **figures) | {"parts_usd": parts, "reason_mask": mask}


@declare(
    system=SYSTEM,
    owner=Named("an owner"),
    prices=Object(Prices, "Prices"),
    energy=Object(Energy, "an Energy"),
    goodput=Checked("a number from 0 to 1, above 0, or a Goodput", {"type": "number"}),
    utilisation=Numbers(1e-9, 1),
    chip_usd=Numbers(TINY),
    server_usd=Numbers(TINY),
    switch_usd_per_lane=Numbers(TINY),
    tdp_w=Numbers(TINY),
    facility=Named("a facility"),
    power=Object(Power, "a Power"),
)
def tco(
    system: str | System,
    *,
    owner: str | Owner = "hyperscaler",
    prices: Prices | None = None,
    energy: Energy | None = None,
    goodput: Goodput | ArrayLike = 1.0,
    utilisation: ArrayLike = 1.0,
    chip_usd: ArrayLike | None = None,
    server_usd: ArrayLike | None = None,
    switch_usd_per_lane: ArrayLike | None = None,
    tdp_w: ArrayLike | None = None,
    facility: str | Facility | None = None,
    power: Power | None = None,
) -> Cost:
    r"""Return the cost of a chip-hour to its owner.

    Parameters
    ----------
    system : str or System
        System whose rack, network and power count. [-]
    owner : str or Owner
        "hyperscaler" (builds) or "neocloud" (rents its building); fields may be arrays. [-]
    prices : Prices, optional
        Prices of servers and parts; default those of data. [-]
    energy : Energy, optional
        Energy of a step on this system, for its electricity; default the owner's mean load of the provisioned power.
        [-]
    goodput : Goodput or numeric
        Useful share of the time that is used: a job on this system, or the share itself. [-]
    utilisation : numeric
        Share of the hours that are used; at 1 the cost is at capacity. [-]
    chip_usd, server_usd, switch_usd_per_lane : numeric, optional
        Price of a package with its HBM, of a server over its number of chips, of a lane, in place of data's. [USD]
    tdp_w : numeric, optional
        TDP of a chip, from which boards, racks and provisioned power follow. [W]
    facility : str or Facility, optional
        Site whose annual PUE counts; default the owner's own, or that of the system's cooling, as in `tm.energy`. [-]
    power : Power, optional
        Provisioned power over TDP, for a chip whose own all-in power is not published. [-]

    Returns
    -------
    cost : Cost
        Dollars per hour with parts, interval and basis.

    Raises
    ------
    ValueError
        Unknown names, numbers out of range, both a price and a rent of the building, or an energy or a goodput of
        another system or of two models.

    Notes
    -----
    .. math:: c = \frac{A(P_s + P_n)}{h} + c_{site} + P\,\mathrm{PUE}\,e + \frac{o\,(P_s + P_n)}{8766}

    with the capital recovery A of `formulas.tco`, by the month. Servers as sold are at the prices of `money_year`. An
    unknown price, power or rate does not count as zero: its point has no cost, and `reason` names it. Where sources
    leave a range to one side of the value in force (building, cost of capital, loss of value) draws lie below the
    middle.

    Examples
    --------
    >>> cost = tco("hgx-h100")
    >>> parts = [float(getattr(cost, f"{part}_usd_per_h")) for part in HOURLY]
    >>> bool(cost.low < cost.usd_per_h < cost.high), abs(sum(parts) - float(cost.usd_per_h)) < 1e-12
    (True, True)
    """
    spec, owner = read_system(system), priced.owner(owner)
    prices = priced.prices() if prices is None else prices
    site = facilities.site(spec, facility, owner.facility)
    power = facilities.power(spec.chip) if power is None else power
    mean_w = None if energy is None else energy.server_w
    model = _model(spec, energy, goodput)
    job = goodput if isinstance(goodput, Goodput) else None
    useful = goodput.goodput if isinstance(goodput, Goodput) else share("goodput", goodput, 1e-9)
    inputs: dict[str, Any] = {
        "chip_usd": chip_usd,
        "server_usd": server_usd,
        "switch_usd_per_lane": switch_usd_per_lane,
        "tdp_w": tdp_w,
    }
    arrays = {"mean_w": mean_w, "goodput": useful, "utilisation": utilisation} | inputs
    specs: dict[str, Any] = {"system": spec, "owner": owner, "prices": prices, "facility": site}
    together(
        **{name: value for name, value in arrays.items() if isinstance(value, np.ndarray)},
        **shapes(**specs, power=power),
    )
    question = CostQuestion(
        **specs,
        power=power,
        energy=energy,
        job=job,
        mean_w=mean_w,
        goodput=useful,
        utilisation=np.asarray(utilisation),
        **inputs,
    )
    specs["prices"] = _prices(question)
    return Cost(
        **specs, model=model, utilisation=np.asarray(utilisation), goodput=useful, **_hour(question), question=question
    )


def _model(spec: System, energy: Energy | None, goodput: Any) -> Transformer | None:
    """Return the model of the energy or of the job, or None; both have to be of the system."""
    model = None
    if energy is not None:
        same_owner("energy", energy, spec)
        model = energy.model
    if isinstance(goodput, Goodput):
        same_owner("goodput", goodput, spec, model)
        model = model or goodput.model
    return model


def _ends(question: CostQuestion) -> dict[str, tuple[Any, Any]]:
    """Return the low and the high end of the inputs that are no specs."""
    inputs: dict[str, tuple[Any, Any]] = {}
    if question.energy is not None:
        inputs["mean_w"] = question.energy.ends("server_w")
    if question.tdp_w is None:
        inputs["tdp_w"] = facilities.ends(question.system.chip, "tdp_w")
    if question.job is not None:
        inputs["goodput"] = question.job.ends("goodput")
    return inputs


def _flat(question: Any) -> dict[str, Any]:
    """Return all figures and the parts of the bill, by name."""
    result = _hour(question)
    return {name: x for name, x in result.items() if name not in ("parts_usd", "reason_mask")} | result["parts_usd"]


@lru_cache(maxsize=256)
def _lines(question: CostQuestion) -> ends.Lines:
    """Return the hour at both ends of each open input, of specs that hold no arrays."""
    moved = ends.moves(question, {"tdp_w": _ends(question).get("tdp_w", (0.0, 0.0))})
    known = {name: getattr(question, name) for name in BREAK_EVENS} | {"own_w": question.own_w}
    known |= {"tdp_w": _tdp_w(question), "mean_w": question.mean_w, "goodput": 1.0, "utilisation": 1.0}
    return ends.lines(question, moved, _flat, known)


@lru_cache(maxsize=512)
def _half_widths(question: CostQuestion, name: str) -> tuple[NDArray, NDArray]:
    """Return the half-widths of a figure or a part, with each open input moved by itself.

    A part that the rack does not have is 0 without a width.
    """
    open_ends = _ends(question)
    if ends.holds_arrays(question, ends.moves(question, open_ends)):
        return _one_at_a_time(question, name)
    lines, more = _lines(question), []
    if "mean_w" in open_ends:
        more = [(len(lines.away) - 1, tuple(end - question.mean_w for end in open_ends["mean_w"]))]
    return _with_goodput(question, name, ends.widths(lines, name, more))


def _with_goodput(question: CostQuestion, name: str, widths: tuple[Any, Any]) -> tuple[NDArray, NDArray]:
    """Return half-widths with those of a job's goodput, by which the hour is divided."""
    if name != "useful_usd_per_h" or question.job is None:
        return widths
    low, high = (np.asarray(end) for end in _ends(question)["goodput"])
    own = ends.joint(1 / np.stack(np.broadcast_arrays(low, high)), np.asarray(1 / question.goodput))
    return joint_width(widths[0], own[0]), joint_width(widths[1], own[1])


def _one_at_a_time(question: CostQuestion, name: str) -> tuple[NDArray, NDArray]:
    """Return the half-widths where specs hold arrays: the hour is asked again for each end."""
    middle, answers = np.asarray(_flat(question)[name]), list[NDArray]()
    for which, field, pair in ends.moves(question, _ends(question)):
        for end in pair:
            moved = ends.with_values(getattr(question, which), {field: end}) if field else end
            answers.append(np.asarray(_flat(_asked(question, which, moved))[name]))
    every = np.broadcast_arrays(middle, *answers)
    return ends.joint(np.stack(every)[1:], every[0])


def _asked(question: CostQuestion, which: str, value: Any) -> CostQuestion:
    """Return the question with another spec or number."""
    return replace(question, **{which: value})
