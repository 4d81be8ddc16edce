"""Watts and joules of a step: what its FLOP, bytes and messages ask of a chip, a server, a site, each with a band."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import instance, numbers, refuse, together
from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Facility, Power, ends
from trnmodel.catalog.specs import Chip, Spec, published
from trnmodel.catalog.systems import System
from trnmodel.fabric.groups import chip_of
from trnmodel.formulas import energy as page
from trnmodel.formulas.bounds import busbw_factor
from trnmodel.models.transformer import Transformer
from trnmodel.result import Basis, Grounded, Judged, blank, tidy, weakest
from trnmodel.steps.answers import Step
from trnmodel.steps.deployment import Deployment
from trnmodel.units import MW

if TYPE_CHECKING:
    import pandas as pd

BOUNDARIES = ("chip", "server", "all_in", "facility")
NO_WATTS = "no source has watts of the chip, not even as an estimate"
LOW, MIDDLE, HIGH = range(3)
Numbers = dict[str, Any]


class Amounts(NamedTuple):
    """What one chip does in a step: seconds, FLOP, bytes of memory, bytes sent, and the medium that these go over."""

    time_s: NDArray
    flop: NDArray
    moved_bytes: NDArray
    sent_bytes: NDArray
    within: NDArray
    beyond: NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Energy(Judged):
    """Watts of a chip with its share of what stands around it, while a step runs; joules a token, a step and a FLOP.

    `chip_w` follows from shares of TDP that were fitted to joules of GPUs; its parts are `idle_w`, `compute_w` and
    `hbm_w`. Beside it stand `tdp_w` (top-down) and `bottom_up_w`, which is `static_w`, `operations_w`, `memory_w` and
    `links_w`, capped by the TDP. `server_w` and `facility_w` (annual PUE) are means over the step, of which energy is
    made; `all_in_w` and `site_w` (peak PUE) are provisioned and pay for capacity.
    """

    REASONS: ClassVar[tuple[str, ...]] = (*Step.REASONS, NO_WATTS)
    FIGURE: ClassVar[str] = "server_j_per_token"
    UNBANDED: ClassVar[tuple[str, ...]] = ("chips", "flop_per_chip")

    step: Step
    system: System | Chip
    facility: Facility
    time_s: NDArray
    tokens_per_s_per_chip: NDArray
    chips: NDArray
    flop_per_chip: NDArray
    compute_utilisation: NDArray
    hbm_utilisation: NDArray
    idle_w: NDArray
    compute_w: NDArray
    hbm_w: NDArray
    chip_w: NDArray
    static_w: NDArray
    operations_w: NDArray
    memory_w: NDArray
    links_w: NDArray
    bottom_up_w: NDArray
    tdp_w: NDArray
    server_w: NDArray
    all_in_w: NDArray
    facility_w: NDArray
    site_w: NDArray
    at: Callable[[int], Numbers]

    @property
    def model(self) -> Transformer:
        """The model whose step it is."""
        return self.step.model

    @property
    def chip_j_per_token(self) -> NDArray:
        """Energy of a token at the boundary of the chip. [J]"""
        return page.energy_j(self.chip_w, self.tokens_per_s_per_chip)

    @property
    def server_j_per_token(self) -> NDArray:
        """Energy of a token at the boundary of the server. [J]"""
        return page.energy_j(self.server_w, self.tokens_per_s_per_chip)

    @property
    def all_in_j_per_token(self) -> NDArray:
        """Energy of a token if all that is provisioned in IT were drawn. [J]"""
        return page.energy_j(self.all_in_w, self.tokens_per_s_per_chip)

    @property
    def facility_j_per_token(self) -> NDArray:
        """Energy of a token at the boundary of the facility, with its annual PUE. [J]"""
        return page.energy_j(self.facility_w, self.tokens_per_s_per_chip)

    @property
    def chip_step_j(self) -> NDArray:
        """Energy of a step in all its chips. [J]"""
        return page.energy_j(self.chip_w * self.chips, 1 / self.time_s)

    @property
    def chip_j_per_flop(self) -> NDArray:
        """Energy of an executed FLOP in the chip. [J]"""
        return page.energy_j(self.chip_w, self.flop_per_chip / self.time_s)

    @property
    def tokens_per_s_per_site_mw(self) -> NDArray:
        """Tokens a second of a megawatt of the site, whose peak PUE and provisioned power limit its chips. [token/s]"""
        return page.tokens_per_s_per_mw(self.tokens_per_s_per_chip, self.site_w)

    @property
    def chips_per_site_mw(self) -> NDArray:
        """Chips that a megawatt of the site can hold: IT power on the hottest day over what a chip is provisioned."""
        return page.it_w(MW, self.facility.peak_pue) / self.all_in_w

    def footprint(self) -> pd.DataFrame:
        """Carbon (SCI, operation alone) and water of a million tokens by region, at the facility and the server.

        Examples
        --------
        >>> import trnmodel as tm
        >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=16, context=2048)
        >>> list(tm.energy(step).footprint())
        ['region', 'carbon_kg_per_mtoken', 'water_l_per_mtoken']
        """
        water = page.water_l(self.server_j_per_token, self.facility.water_l_per_j) * MW
        rows = [
            {
                "region": region,
                "carbon_kg_per_mtoken": page.carbon_kg(self.facility_j_per_token, each) * MW,
                "water_l_per_mtoken": water,
            }
            for region, each in self.facility.carbon_kg_per_j.items()
        ]
        return tidy(rows)

    def by_boundary(self) -> pd.DataFrame:
        """Watts of a chip with its share of what stands around it, and joules a token, low, middle and high.

        Examples
        --------
        >>> import trnmodel as tm
        >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=16, context=2048)
        >>> list(tm.energy(step).by_boundary().boundary)
        ['chip', 'server', 'all_in', 'facility']
        """
        rows = []
        for boundary in BOUNDARIES:
            row: Numbers = {"boundary": boundary}
            for name in ("w", "j_per_token"):
                figure = f"{boundary}_{name}"
                low, high = self.ends(figure)
                row |= {f"{name}_low": low, name: getattr(self, figure), f"{name}_high": high}
            rows.append(row)
        return tidy(rows)

    def _widths(self, name: str, **about: str) -> tuple[Any, Any]:
        """Half-widths of the logarithm: of watts by the ends of their inputs; joules and tokens have the time's too."""
        if name in ("time_s", "tokens_per_s_per_chip"):
            return self.step.widths("time_s")
        watts = "site_w" if "site_mw" in name else re.sub(r"(_step)?_j(_per_.*)?$", "_w", name)
        value, *ends = (getattr(self, watts), self.at(LOW)[watts], self.at(HIGH)[watts])
        below, above = (np.abs(np.log(end / value)) for end in ends)
        if name == "chips_per_site_mw":
            return above, below
        if watts == name:
            return below, above
        slow = self.step.widths("time_s")
        return np.hypot(below, slow[0]), np.hypot(above, slow[1])


def _sent(step: Step) -> NDArray:
    """Bytes that a rank must at least send in a step: the share of each message that any algorithm sends."""
    parts = [
        busbw_factor(message.kind, getattr(step, message.group)) * message.message_bytes * message.count
        for message in step.messages
    ]
    return np.asarray(sum(parts)) if parts else np.zeros(())


def _amounts(step: Step) -> Amounts:
    """What a chip of a step does: its ranks' work; messages leave the chip, and beyond the domain its rack."""
    where = step.system
    domain = where.domain_chips if isinstance(where, System) else published(where.scaleup_domain_chips, 1.0)
    ranks = step.tp * step.pp * step.ep * step.cp
    here = np.minimum(ranks * step.dp, step.ranks_per_chip)
    chips = np.ceil(ranks / step.ranks_per_chip)
    sent = _sent(step) * here
    return Amounts(
        step.time_s,
        step.work_flop_per_rank * here,
        step.moved_bytes_per_rank * here,
        sent,
        (chips > 1) & (chips <= domain),
        chips > domain,
    )


def at_end(end: int) -> Callable[..., Any]:
    """Reads a number of a spec: as it is, or the low or the high end of it; NaN where a mapping lacks the key."""

    def pick(spec: Spec, name: str, key: str = "") -> Any:
        mapping = getattr(spec, name) if key else None
        if mapping is not None and key not in mapping:
            return np.nan
        value = mapping[key] if mapping is not None else getattr(spec, name)
        low, high = ends(spec, name, key)
        return (low, value, high)[end]

    return pick


def chip_watts(a: Amounts, chip: Chip, dtype: str, power: Power, end: int) -> Numbers:
    """Watts inside the boundary of a chip: by shares of its TDP, and bottom-up."""
    pick, side = at_end(end), end - MIDDLE
    tdp_w = pick(chip, "tdp_w")
    idle = published(chip.idle_share, pick(power, "idle_share"))
    used = {
        "compute_utilisation": page.utilisation(a.flop, a.time_s, chip.peak(dtype)),
        "hbm_utilisation": page.utilisation(a.moved_bytes, a.time_s, chip.hbm_bytes_per_s),
    }
    compute, hbm = used["compute_utilisation"] * power.compute_activity, used["hbm_utilisation"] * power.hbm_activity
    watts = page.chip_w(tdp_w, idle, compute + hbm)
    watts = np.minimum(watts * np.exp(side * power.chip_width), tdp_w)
    dynamic = watts - tdp_w * idle
    medium = [
        np.where(mask, pick(power, "byte_j", name), 0.0)
        for mask, name in ((a.within, "backplane"), (a.beyond, "network"))
    ]
    parts = {
        "static_w": pick(power, "static_share") * tdp_w,
        "operations_w": page.moved_w(a.flop, a.time_s, pick(power, "flop_j", dtype)),
        "memory_w": page.moved_w(a.moved_bytes, a.time_s, pick(power, "byte_j", "hbm") + pick(power, "byte_j", "sbuf")),
        "links_w": page.moved_w(a.sent_bytes, a.time_s, sum(medium)),
    }
    return {
        **used,
        "idle_w": tdp_w * idle,
        "compute_w": page.part_w(dynamic, compute, compute + hbm),
        "hbm_w": page.part_w(dynamic, hbm, compute + hbm),
        "chip_w": watts,
        **parts,
        "bottom_up_w": page.capped_w(
            parts["operations_w"] + parts["memory_w"] + parts["links_w"], parts["static_w"], tdp_w
        ),
        "tdp_w": tdp_w,
    }


def _around(inside: Numbers, chip: Chip, power: Power, site: Facility, end: int) -> Numbers:
    """Watts of server, provisioned IT and site for a chip."""
    pick, side = at_end(end), end - MIDDLE
    server = page.server_w(inside["chip_w"], power.server_ratio, pick(power, "host_w_per_chip"))
    server = server * np.exp(side * power.server_width)
    all_in = published(chip.all_in_w, inside["tdp_w"] * pick(power, "all_in_ratio"))
    return {
        "server_w": server,
        "all_in_w": all_in,
        "facility_w": page.facility_w(server, pick(site, "annual_pue")),
        "site_w": page.facility_w(all_in, pick(site, "peak_pue")),
    }


def _basis(step: Step, chip: Chip, given: Power | None) -> Basis:
    """The weaker of the step's basis and of the watts': measured on chips with a fitted idle share of their own."""
    watts = Basis("measured")
    if given is not None:
        watts = Basis("extrapolated", "power: shares and energies are given with the call")
    elif "idle_share" not in chip.sources or "idle_share" not in chip.estimates:
        told = "none is published" if chip.core is not None else "no row has any"
        watts = Basis("extrapolated", f"chip: watts of {chip.id} are those of other chips, for {told}")
    return weakest({"time": step.judge(), "watts": watts})


def _of_step(step: Step, site: Facility, given: Power | None) -> Energy:
    chip = chip_of(step.system)
    power = facilities.power(chip) if given is None else given
    a = _amounts(step)

    def at(end: int) -> Numbers:
        inside = chip_watts(a, chip, step.precision.compute, power, end)
        return inside | _around(inside, chip, power, site, end)

    found = at(MIDDLE)
    unknown = np.isnan(found["tdp_w"]) * 2 ** len(Step.REASONS)
    mask = step.reason_mask | unknown
    rates = {"time_s": step.time_s, "tokens_per_s_per_chip": step.tokens_per_s_per_chip}
    numbers_at: Numbers = blank(mask, flop_per_chip=a.flop, **rates, **found)
    return Energy(
        step=step,
        system=step.system,
        stack=step.stack,
        facility=site,
        chips=step.occupied_chips,
        **numbers_at,
        reason_mask=mask,
        judge=partial(_basis, step, chip, given),
        at=at,
    )


def one_at_a_time(e: Energy, power: Power | None = None) -> pd.DataFrame:
    """Joules a token at the server with one open input after another at its low and its high end, the widest first.

    Parameters
    ----------
    e : Energy
        Of one point. [-]
    power : Power, optional
        What `e` was asked with; default that of its chip. [-]

    Returns
    -------
    table : pandas.DataFrame
        which, server_j_per_token with `_low` and `_high`; an input without a range is left out. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> step = tm.decode_step("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=1), batch=64, context=2048)
    >>> one_at_a_time(tm.energy(step)).which.tolist()
    ['time of the step', 'error of the fit']
    """
    where, chip, value = e.step.system, chip_of(e.step.system), float(e.server_j_per_token)
    power = facilities.power(chip) if power is None else power

    def asked(spec: Chip = chip, **given: Any) -> float:
        system = replace(where, chip=spec) if isinstance(where, System) else spec
        return float(_of_step(replace(e.step, system=system), e.facility, replace(power, **given)).server_j_per_token)

    found = {"TDP of the chip": [asked(replace(chip, tdp_w=float(end))) for end in ends(chip, "tdp_w")]}
    if np.isnan(published(chip.idle_share, np.nan)):
        found["idle share"] = [asked(idle_share=float(end)) for end in ends(power, "idle_share")]
    found["host"] = [asked(host_w_per_chip=float(end)) for end in ends(power, "host_w_per_chip")]
    off = np.minimum(np.exp(np.array([-1, 1]) * power.chip_width) * e.chip_w, e.tdp_w) - e.chip_w
    found["error of the fit"] = (value * (1 + power.server_ratio * off / e.server_w)).tolist()
    slow, fast = (float(width) for width in e.step.widths("time_s"))
    found["time of the step"] = [value * np.exp(-slow), value * np.exp(fast)]
    names = ("server_j_per_token", "server_j_per_token_low", "server_j_per_token_high")
    rows = [
        {"which": which} | dict(zip(names, (value, low, high), strict=True))
        for which, (low, high) in found.items()
        if low < high
    ]
    return tidy(sorted(rows, key=lambda row: row[names[1]] - row[names[2]]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RequestEnergy(Grounded):
    """Joules of a request and of each token that it makes: its prefill, and its decode steps at half their length."""

    REASONS: ClassVar[tuple[str, ...]] = Energy.REASONS
    FIGURE: ClassVar[str] = "server_j_per_token"
    UNBANDED: ClassVar[tuple[str, ...]] = ("input_tokens", "output_tokens")

    prefill: Energy
    decode: Energy
    input_tokens: NDArray
    output_tokens: NDArray
    chip_j_per_token: NDArray
    server_j_per_token: NDArray
    all_in_j_per_token: NDArray
    facility_j_per_token: NDArray

    def _widths(self, name: str, **about: str) -> tuple[Any, Any]:
        """Half-widths of the logarithm: the wider of prefill and decode, for what moves one moves the other."""
        parts = self.prefill.widths(name), self.decode.widths(name)
        below, above = (np.maximum(*sides) for sides in zip(*parts, strict=True))
        return below, above


def _blended(prefill: Energy, decode: Energy, input_tokens: NDArray, output_tokens: NDArray) -> RequestEnergy:
    names = [f"{boundary}_j_per_token" for boundary in BOUNDARIES]
    each = {name: getattr(prefill, name) * input_tokens / output_tokens + getattr(decode, name) for name in names}
    return RequestEnergy(
        prefill=prefill,
        decode=decode,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        **each,
        reason_mask=prefill.reason_mask | decode.reason_mask,
        judge=lambda: weakest({"prefill": prefill.judge(), "decode": decode.judge()}),
    )


def energy(
    of: Step | Deployment,
    *,
    facility: str | Facility = "aws-air",
    power: Power | None = None,
    batch: ArrayLike | None = None,
    input_tokens: ArrayLike | None = None,
    output_tokens: ArrayLike | None = None,
) -> Energy | RequestEnergy:
    r"""Watts by boundary while a step runs, and joules a token, low, middle and high.

    .. math:: P = P_{TDP} \bigl(i + (1 - i) \tanh(a_f u_f + a_m u_m)\bigr), \qquad E = P / r

    Parameters
    ----------
    of : Step or Deployment
        What `tm.decode_step` or `tm.prefill` gave; or a deployment, of which a request is asked. [-]
    facility : str or Facility
        Site: its PUE, carbon and water; "aws-air" or "aws-chilled". [-]
    power : Power, optional
        Shares, energies of operations and server; default those of the chip's vendor and node. [-]
    batch, input_tokens, output_tokens : numeric, optional
        Of a request to a deployment: sequences that decode together, tokens in and tokens out. [-]

    Returns
    -------
    energy : Energy or RequestEnergy
        Watts of a chip at each boundary and joules a token; `ends(name)` is the interval of any of them. [-]

    Raises
    ------
    ValueError
        Neither a step nor a deployment, a deployment without a request, or an unknown site.

    Notes
    -----
    Shares are fitted to GPUs at the boundary of the chip; of other chips they are an assumption. The interval holds the
    ends of TDP, idle share, host and PUE at once, the error of left-out models, and the step's own. Nobody has
    published a watt of an AWS chip. `tdp_w` of the system's chip, and any field of `power` and of `facility`, may be
    replaced, also by arrays.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 64, "context": 2048, "precision": "fp8"}
    >>> found = tm.energy(tm.decode_step("llama-3.1-70b", "hgx-h100", tm.Mapping(tp=4), **ask))
    >>> parts = found.idle_w + found.compute_w + found.hbm_w
    >>> bool(abs(parts - found.chip_w) < 1e-9), bool(found.chip_w < found.server_w < found.facility_w)
    (True, True)
    """
    site = facilities.facility(facility)
    if power is not None:
        instance("power", power, Power, "a Power, such as catalog.facilities.power(chip)")
    given = {"batch": batch, "input_tokens": input_tokens, "output_tokens": output_tokens}
    if isinstance(of, Step):
        for name, value in given.items():
            if value is not None:
                refuse(name, value, "allowed with a Deployment alone: a step has its own")
        return _of_step(of, site, power)
    if not isinstance(of, Deployment):
        refuse("of", of, "allowed is a step of tm.decode_step or tm.prefill, or a Deployment")
    many, length, made = (numbers(name, value, 1) for name, value in given.items())
    together(batch=many, input_tokens=length, output_tokens=made)
    prompts = np.maximum(of.mapping.ep, 1)  # a prompt is not cut: fewer would leave ranks without one
    steps = of.prefill(batch=prompts, input_tokens=length), of.decode(batch=many, context=length + made / 2)
    first, then = (_of_step(step, site, power) for step in steps)
    return _blended(first, then, length, made)
