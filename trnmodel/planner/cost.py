"""What an hour of a chip and a million tokens cost the one who owns them: parts, building, electricity, operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import TINY, choice, instance, numbers, refuse, share, together
from trnmodel.bands import ranged
from trnmodel.catalog import facilities
from trnmodel.catalog import prices as priced
from trnmodel.catalog.facilities import Facility, Power
from trnmodel.catalog.prices import Owner, Prices
from trnmodel.catalog.specs import published, shapes
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import energy as joules
from trnmodel.formulas import tco as page
from trnmodel.formulas.bands import joint_width
from trnmodel.models.transformer import Transformer
from trnmodel.planner import bill
from trnmodel.planner.goodput import Goodput
from trnmodel.planner.owners import same_owner
from trnmodel.planner.power import Energy
from trnmodel.result import Basis, Grounded, blank, reason_mask, tidy
from trnmodel.steps.answers import Step

if TYPE_CHECKING:
    import pandas as pd

MONTHS = 12.0
PERIOD_H = page.HOURS_PER_YEAR / MONTHS
HOURLY = ("server", "network", "site", "energy", "operations")
Inputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cost(Grounded):
    """Dollars of an hour of a chip with its share of rack, network and building; the `..._usd_per_h` parts add up.

    `site_usd_per_h` is of a building, its own or rented. `useful_usd_per_h` is over utilisation and goodput. What one
    of the inputs would have to be is `break_even`.
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
    ask: Callable[..., dict[str, Any]]

    def usd_per_mtoken(self, answer: Step | Energy | ArrayLike) -> NDArray:
        """Dollars of a million tokens at the useful hour's cost.

        Parameters
        ----------
        answer : Step, Energy or numeric
            What gives tokens, on the same system and of the same model as the cost where that is of one: its tokens a
            second of a chip, or that number itself. [token/s]

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
        """What servers and network lose of their worth in the first hour, as new ones become cheaper. [USD/h]"""
        return page.replacement_usd_per_h(self.capital_usd, self.prices.decades_per_year)

    def flop_per_s_per_usd_per_h(self, dtype: str) -> NDArray:
        """Peak that a dollar an hour pays for, by compute dtype. [FLOP*h/s/USD]

        Raises ValueError where the chip has no peak at it.

        Examples
        --------
        >>> round(float(tco("hgx-h100").flop_per_s_per_usd_per_h("bf16") / 1e12))
        791
        """
        return page.flop_per_s_per_usd_per_h(self.system.chip.peak(dtype), self.usd_per_h)

    def mtoken_ends(self, answer: Step | Energy | ArrayLike) -> tuple[NDArray, NDArray]:
        """Low and high of `usd_per_mtoken`: the cost's range, and that of a step's time where one is given."""
        value, (below, above) = self.usd_per_mtoken(answer), self.widths("useful_usd_per_h")
        step = answer.step if isinstance(answer, Energy) else answer
        fast, slow = step.widths("time_s") if isinstance(step, Step) else (0.0, 0.0)
        return value * np.exp(-np.hypot(below, fast)), value * np.exp(np.hypot(above, slow))

    def bill(self) -> pd.DataFrame:
        """Bill of materials of a chip with its share of rack and network.

        Returns
        -------
        table : pandas.DataFrame
            part, usd of a chip with `_low` and `_high`, share of the capital, estimate (whether a price of it is ours).

        Examples
        --------
        >>> tco("hgx-h100").bill().part.tolist()[:2]
        ['server as sold', 'scale-out switches']
        """
        rows = []
        for part, usd in self.parts_usd.items():
            below, above = self.widths(part)
            ends = {"usd_low": (usd * np.exp(-below))[()], "usd": usd[()], "usd_high": (usd * np.exp(above))[()]}
            named = [f"{name}[{self.system.id}]" if name in bill.BY_SYSTEM else name for name in bill.PRICED[part]]
            estimate = not self.prices.estimates.isdisjoint(named)
            rows.append({"part": part, **ends, "share": usd / self.capital_usd, "estimate": estimate})
        return tidy(rows)

    def by_part(self) -> pd.DataFrame:
        """Parts of an hour's cost: part, usd_per_h with `_low` and `_high`, share."""
        rows = []
        for part in HOURLY:
            name = f"{part}_usd_per_h"
            low, high = self.ends(name)
            value = getattr(self, name)
            ends = {"usd_per_h_low": low, "usd_per_h": value, "usd_per_h_high": high}
            rows.append({"part": part, **ends, "share": value / self.usd_per_h})
        return tidy(rows)

    def break_even(self, which: str, *, useful_usd_per_h: ArrayLike) -> NDArray:
        """Value of one input at which a useful hour costs this much; below 0 where not even a gift does it.

        Parameters
        ----------
        which : str
            "chip_usd", "tdp_w", "switch_usd_per_lane", "server_usd" or "utilisation". [-]
        useful_usd_per_h : numeric
            Cost of a useful hour to reach: a rival's `useful_usd_per_h`, times how much faster this chip is. An hour
            that is paid for, `usd_per_h`, is another quantity as soon as hours are lost or idle. [USD/h]

        Returns
        -------
        value : numeric
            The input in its own unit, all else as it is. [-]

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
        at_low, at_high = (self.ask(**{which: end})["useful_usd_per_h"] for end in (low, high))
        slope = np.asarray((at_high - at_low) / (high - low))
        if np.any(slope == 0):
            refuse("which", which, f"the cost of {self.system.id} does not depend on it")
        return np.asarray(low + (target - at_low) / slope)

    def uncertain(self) -> dict[str, Any]:
        """What is drawn of an owner's hour, by name: prices, owner, what is provisioned, watts of the chip."""
        chip, inputs = self.system.chip, dict[str, Any](prices=self.prices, owner=self.owner)
        if np.isnan(chip.all_in_w):
            watts, (low, high) = facilities.power(chip), facilities.ends(chip, "tdp_w")
            inputs["power"] = replace(watts, ranges={"all_in_ratio": watts.range("all_in_ratio")})
            inputs |= {f"TDP of {chip.id}": (low, chip.tdp_w, high)} if low < high else {}
        return inputs

    def drawn_usd_per_h(self, drawn: Inputs, **moved: Any) -> NDArray:
        """A useful hour in each draw of what is `uncertain`, with inputs of the call in their place. [USD/h]"""
        chip = self.system.chip
        names = {"prices": "p", "owner": "who", f"TDP of {chip.id}": "tdp_w"}
        names |= {"power": "power"} if np.isnan(chip.all_in_w) else {}
        known = instance("drawn", drawn, Mapping, "a mapping of what is uncertain to its draws")
        given = {short: _drawn(name, known[name]) for name, short in names.items() if name in known}
        for name, value in moved.items():
            moved[choice("moved", name, (*BREAK_EVENS, "utilisation"))] = numbers(name, value, TINY)
        return np.asarray(self.ask(**given | moved)["useful_usd_per_h"])


BREAK_EVENS = {
    "chip_usd": (1e3, 1e4),
    "tdp_w": (100.0, 1000.0),
    "switch_usd_per_lane": (1.0, 100.0),
    "server_usd": (1e3, 1e5),
}


DRAWN = {"prices": Prices, "owner": Owner, "power": Power}


def _drawn(name: str, value: Any) -> Any:
    """A draw of an input of a cost: a spec that holds arrays, or watts."""
    place = f"drawn[{name!r}]"
    kind = DRAWN.get(name)
    return numbers(place, value, TINY) if kind is None else instance(place, value, kind, kind.__name__)


def _priced(p: Prices, spec: System, inputs: Inputs) -> Prices:
    """Prices with those of the call in place of their own."""
    changes: dict[str, Any] = {}
    if inputs.get("chip_usd") is not None:
        changes["chip_usd"] = {**p.chip_usd, spec.chip.id: inputs["chip_usd"]}
    if inputs.get("server_usd") is not None:
        changes["server_usd_per_chip"] = {**p.server_usd_per_chip, spec.id: inputs["server_usd"]}
        changes["server_year"] = {**p.server_year, spec.id: p.money_year}
        changes["market_ratio"] = 1.0
    if inputs.get("switch_usd_per_lane") is not None:
        changes["switch_usd_per_lane"] = inputs["switch_usd_per_lane"]
    return replace(p, **changes) if changes else p


def _watts(spec: System, power: Power, who: Owner, tdp_w: Any, inputs: Inputs) -> tuple[Any, Any]:
    """Watts of IT that are provisioned for a chip, and those that it draws on the mean."""
    own = spec.chip.all_in_w if inputs.get("tdp_w") is None else np.nan
    all_in = published(own, tdp_w * power.all_in_ratio)
    drawn = inputs.get("mean_w")
    return all_in, all_in * who.mean_load_share if drawn is None else drawn


def _site(all_in_w: Any, who: Owner) -> NDArray:
    """Dollars of an hour of the building, built or rented."""
    built = page.facility_usd_per_h(
        all_in_w, who.build_usd_per_w, who.rate_per_year / MONTHS, who.build_years * MONTHS, PERIOD_H
    )
    return published(page.colocation_usd_per_h(all_in_w, who.colocation_usd_per_w_h), built)


def _unknown(*values: Any) -> NDArray:
    """Whether any of some numbers is not known."""
    return np.isnan(sum(values))


def _hour(spec: System, p: Prices, who: Owner, power: Power, site: Facility, inputs: Inputs) -> dict[str, Any]:
    """The numbers of `Cost`, from checked inputs."""
    p = _priced(p, spec, inputs)
    tdp_w = spec.chip.tdp_w if inputs.get("tdp_w") is None else inputs["tdp_w"]
    all_in, mean = _watts(spec, power, who, tdp_w, inputs)
    parts = bill.lines(spec, p, tdp_w, who.cluster_chips)
    net = sum(parts[name] for name in bill.NETWORK)
    server = sum(usd for name, usd in parts.items() if name not in bill.NETWORK)
    terms = who.rate_per_year / MONTHS, who.life_years * MONTHS, PERIOD_H, 1 - who.lost_share
    hourly = {
        "server_usd_per_h": page.owned_usd_per_h(server, *terms),
        "network_usd_per_h": page.owned_usd_per_h(net, *terms),
        "site_usd_per_h": _site(all_in, who),
        "energy_usd_per_h": page.energy_usd_per_h(
            joules.facility_w(mean, site.annual_pue), 1.0, who.electricity_usd_per_j
        ),
        "operations_usd_per_h": (server + net) * who.operations_share / page.HOURS_PER_YEAR,
    }
    usd = sum(hourly.values())
    useful = page.useful_usd_per_h(usd, (inputs["utilisation"], inputs["goodput"]))
    watts = {"tdp_w": np.asarray(tdp_w), "all_in_w": np.asarray(all_in), "mean_w": np.asarray(mean)}
    found = {"capital_usd": server + net, **watts, **hourly, "usd_per_h": usd, "useful_usd_per_h": useful}
    whole = np.isnan(parts["server as sold"]) if "server as sold" in parts else False
    mask = reason_mask(
        whole,
        np.isnan(server) & ~np.asarray(whole) & ~np.isnan(tdp_w),
        np.isnan(net),
        _unknown(all_in, mean),
        _unknown(*terms, who.operations_share),
        np.isnan(_site(1.0, who)),
        _unknown(who.electricity_usd_per_j, site.annual_pue),
    )
    return blank(mask, **found) | {"parts_usd": parts, "reason_mask": mask}


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
    r"""What an hour of a chip costs its owner.

    Parameters
    ----------
    system : str or System
        Whose rack, network and watts count. [-]
    owner : str or Owner
        "hyperscaler" (builds) or "neocloud" (rents its building); fields may be arrays. [-]
    prices : Prices, optional
        Prices of servers and parts; those of data where none are given. [-]
    energy : Energy, optional
        A step's watts on this system, of which its electricity follows; else the owner's mean load of what is
        provisioned. [-]
    goodput : Goodput or numeric
        Useful share of the time that is used: of a job on this system, or the share itself. [-]
    utilisation : numeric
        Share of the hours that are used; at 1 the cost is at capacity. [-]
    chip_usd, server_usd, switch_usd_per_lane : numeric, optional
        Price of a package with its HBM, of a whole server over its chips, of a lane, in place of data's. [USD]
    tdp_w : numeric, optional
        TDP of a chip, of which boards, racks and all that is provisioned follow. [W]
    facility : str or Facility, optional
        Site whose annual PUE counts; the owner's where none is given. [-]
    power : Power, optional
        What is provisioned for each watt of a chip whose own all-in power is not published. [-]

    Returns
    -------
    cost : Cost
        Dollars an hour with parts, band and basis.

    Raises
    ------
    ValueError
        Unknown names, numbers out of range, both a price and a rent of the building, or an energy or a goodput of
        another system or of two models.

    Notes
    -----
    .. math:: c = \frac{A(P_s + P_n)}{h} + c_{site} + P\,\mathrm{PUE}\,e + \frac{o\,(P_s + P_n)}{8766}

    with the capital recovery A of `formulas.tco`, by the month. Servers as sold are at the prices of `money_year`. An
    unknown price, watt or rate makes no zero: its point has no cost, and `reason` names it. Where sources leave a
    range to one side of the value in force (building, cost of capital, loss of worth) draws lie below the middle.

    Examples
    --------
    >>> found = tco("hgx-h100")
    >>> parts = [float(getattr(found, f"{part}_usd_per_h")) for part in HOURLY]
    >>> bool(found.low < found.usd_per_h < found.high), abs(sum(parts) - float(found.usd_per_h)) < 1e-12
    (True, True)
    """
    spec, who = read_system(system), priced.owner(owner)
    p = priced.prices() if prices is None else instance("prices", prices, Prices, "Prices")
    site = facilities.facility(who.facility if facility is None else facility)
    watts = facilities.power(spec.chip) if power is None else instance("power", power, Power, "a Power")
    drawn = None if energy is None else instance("energy", energy, Energy, "an Energy").server_w
    model = _model(spec, energy, goodput)
    inputs: dict[str, Any] = {"mean_w": drawn}
    given = goodput.goodput if isinstance(goodput, Goodput) else share("goodput", goodput, 1e-9)
    inputs |= {"goodput": given, "utilisation": share("utilisation", utilisation, 1e-9)}
    named = {"chip_usd": chip_usd, "server_usd": server_usd, "switch_usd_per_lane": switch_usd_per_lane, "tdp_w": tdp_w}
    inputs |= {name: None if value is None else numbers(name, value, TINY) for name, value in named.items()}
    arrays = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    together(**arrays, **shapes(system=spec, owner=who, prices=p, facility=site, power=watts))

    def ask(**moved: Any) -> dict[str, Any]:
        specs = {"p": p, "who": who, "power": watts} | {k: moved.pop(k) for k in ("p", "who", "power") if k in moved}
        return _hour(spec, specs["p"], specs["who"], specs["power"], site, inputs | moved)

    ends: dict[str, Any] = {} if energy is None else {"mean_w": energy.ends("server_w")}
    ends |= {"tdp_w": facilities.ends(spec.chip, "tdp_w")} if tdp_w is None else {}
    ends |= {"goodput": goodput.ends("goodput")} if isinstance(goodput, Goodput) else {}

    widths = cache(partial(_widths, ask, {"p": p, "who": who, "power": watts}, ends))
    found = ask()
    shown: dict[str, Any] = {
        "system": spec,
        "model": model,
        "owner": who,
        "prices": _priced(p, spec, inputs),
        "facility": site,
    }
    shown |= {"utilisation": inputs["utilisation"], "goodput": given}
    judge = partial(_basis, spec, p, server_usd)
    return Cost(**shown, **found, ask=ask, judge=judge, spread=lambda name: widths()[name])


def _model(spec: System, energy: Energy | None, useful: Any) -> Transformer | None:
    """The model whose watts or whose job a cost is of, or none; both have to be of its system."""
    model = None
    if energy is not None:
        same_owner("energy", energy, spec)
        model = energy.model
    if isinstance(useful, Goodput):
        same_owner("goodput", useful, spec, model)
        model = model or useful.model
    return model


def _widths(ask: Callable, specs: Inputs, given: Inputs) -> dict[str, tuple[NDArray, NDArray]]:
    """Half-widths of the logarithm of each figure and part; each open input of the specs, each given, moved by itself.

    What the rack does not have is 0 with no width.
    """
    first = ask()
    names = [name for name in first if name not in ("parts_usd", "reason_mask")]

    def figures(**moved: Any) -> NDArray:
        found = ask(**moved) if moved else first
        return np.stack(np.broadcast_arrays(*(found[name] for name in names), *found["parts_usd"].values()))

    middle = figures()
    with np.errstate(invalid="ignore"):  # 0 over 0
        pairs = [ranged(one, lambda moved, key=key: figures(**{key: moved})) for key, one in specs.items()]  # type: ignore[misc]
        for key, (low, high) in given.items():
            if np.any(np.less(low, high)):
                moved = [np.log(figures(**{key: end}) / middle) for end in (low, high)]
                pairs.append((np.maximum(0.0, -np.minimum(*moved)), np.maximum(0.0, np.maximum(*moved))))
        sides = (joint_width(*(pair[side] for pair in pairs)) for side in (0, 1))
        below, above = (np.where(middle == 0, 0.0, width) for width in sides)
    return dict(zip((*names, *first["parts_usd"]), zip(below, above, strict=True), strict=True))


def _basis(spec: System, p: Prices, given: Any) -> Basis:
    if given is not None:
        return Basis("extrapolated", "server: its price is given with the call")
    if spec.id in p.server_usd_per_chip:
        return Basis("extrapolated", "prices: of servers as sold, taken to another year")
    return Basis("extrapolated", f"prices: nobody publishes one of {spec.chip.id}; its parts are counted and estimated")
