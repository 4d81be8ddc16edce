"""Watts and joules of a step at the boundaries of chip, server and facility, each with its 90 % interval."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import instance, refuse
from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import Facility, Power, ends
from trnmodel.catalog.load import dtypes
from trnmodel.catalog.specs import Chip, Spec, published
from trnmodel.catalog.systems import System, chip_of
from trnmodel.declared import Named, Numbers, Object, declare
from trnmodel.formulas import energy as page
from trnmodel.formulas.bounds import busbw_factor
from trnmodel.models.transformer import Transformer
from trnmodel.power.account import SiteWatts, provisioned_w
from trnmodel.result import Basis, Grounded, Judged, blank, tidy, weakest
from trnmodel.serving.server import LOAD_REASONS, Serving, serve
from trnmodel.steps.answers import Step
from trnmodel.steps.assemble import ranks_of
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.request import Request
from trnmodel.units import MW, Numeric

if TYPE_CHECKING:
    import pandas as pd

BOUNDARIES = ("chip", "server", "all_in", "facility")
NO_WATTS = "no source has watts of the chip, not even as an estimate"
WIDTHS = (16, 8)  # bits of the operands by whose peaks a chip's matrix engines are measured
LOW, MIDDLE, HIGH = range(3)
Figures = dict[str, Any]


class Amounts(NamedTuple):
    """Work of one chip in a step: time, FLOP, bytes moved and sent, and over which medium the sent bytes go."""

    time_s: NDArray
    flop: NDArray
    moved_bytes: NDArray
    sent_bytes: NDArray
    within: NDArray
    beyond: NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EnergyQuestion:
    """Inputs of an energy; `power` is None where the shares and energies of the chip's vendor and node count."""

    step: Step
    facility: Facility
    power: Power | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Energy(Judged):
    """Power per chip while a step runs, and energy per token, per step and per FLOP.

    Each chip carries its share of the server and the facility. `chip_w` follows from shares of TDP that were fitted to
    the measured joules of GPUs; its parts are `idle_w`, `compute_w` and `hbm_w`. Two other estimates can be compared
    with it: `tdp_w` (top-down), and `bottom_up_w`, the sum of `static_w`, `operations_w`, `memory_w` and `links_w`,
    which the TDP caps. `server_w` and `facility_w` (annual PUE) are means over the step, and energy follows from them;
    `all_in_w` and `site_w` (peak PUE) are provisioned power, and capacity follows from them.
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
    question: EnergyQuestion

    @property
    def model(self) -> Transformer:
        """Model of the step."""
        return self.step.model

    @property
    def chip_j_per_token(self) -> NDArray:
        """Energy per token at the boundary of the chip [J]."""
        return page.energy_j(self.chip_w, self.tokens_per_s_per_chip)

    @property
    def server_j_per_token(self) -> NDArray:
        """Energy per token at the boundary of the server [J]."""
        return page.energy_j(self.server_w, self.tokens_per_s_per_chip)

    @property
    def all_in_j_per_token(self) -> NDArray:
        """Energy per token if the IT equipment drew all of its provisioned power [J]."""
        return page.energy_j(self.all_in_w, self.tokens_per_s_per_chip)

    @property
    def facility_j_per_token(self) -> NDArray:
        """Energy per token at the boundary of the facility, with its annual PUE [J]."""
        return page.energy_j(self.facility_w, self.tokens_per_s_per_chip)

    @property
    def chip_step_j(self) -> NDArray:
        """Energy of a step in all of its chips [J]."""
        return page.energy_j(self.chip_w * self.chips, 1 / self.time_s)

    @property
    def chip_j_per_flop(self) -> NDArray:
        """Energy per executed FLOP in the chip [J]."""
        return page.energy_j(self.chip_w, self.flop_per_chip / self.time_s)

    @property
    def tokens_per_s_per_site_mw(self) -> NDArray:
        """Throughput per megawatt of the site, whose chips are limited by peak PUE and provisioned power [token/s]."""
        return page.tokens_per_s_per_mw(self.tokens_per_s_per_chip, self.site_w)

    @property
    def chips_per_site_mw(self) -> NDArray:
        """Chips per megawatt of the site: IT power on the hottest day over the provisioned power per chip."""
        return page.it_w(MW, self.facility.peak_pue) / self.all_in_w

    def footprint(self) -> pd.DataFrame:
        """Return carbon (SCI, operation alone) and water per million tokens by region.

        Carbon is counted at the boundary of the facility, water at the boundary of the server.

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
        """Return power per chip and energy per token at each boundary, with low and high ends.

        Examples
        --------
        >>> import trnmodel as tm
        >>> step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=16, context=2048)
        >>> list(tm.energy(step).by_boundary().boundary)
        ['chip', 'server', 'all_in', 'facility']
        """
        rows = []
        for boundary in BOUNDARIES:
            row: Figures = {"boundary": boundary}
            for name in ("w", "j_per_token"):
                figure = f"{boundary}_{name}"
                low, high = self.ends(figure)
                row |= {f"{name}_low": low, name: getattr(self, figure), f"{name}_high": high}
            rows.append(row)
        return tidy(rows)

    def watts_at_ends(self) -> tuple[Figures, Figures]:
        """Return the watts of every part and boundary with all inputs at their low and at their high ends."""
        work = _amounts(self.step)
        return _watts_at(self.question, work, LOW), _watts_at(self.question, work, HIGH)

    def judge(self) -> Basis:
        """Return the weaker of the step's basis and the basis of the watts."""
        watts = watts_basis(chip_of(self.step.system), self.question.power)
        return weakest({"time": self.step.judge(), "watts": watts})

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of a figure: watts by the ends of their inputs; joules have those of the time too."""
        if name in ("time_s", "tokens_per_s_per_chip"):
            return self.step.widths("time_s")
        watts = "site_w" if "site_mw" in name else re.sub(r"(_step)?_j(_per_.*)?$", "_w", name)
        value, *ends = getattr(self, watts), *(at_end[watts] for at_end in self.watts_at_ends())
        zero = np.equal(value, 0)  # of links that carry nothing
        below, above = (np.abs(np.log(np.where(zero, 1.0, end) / np.where(zero, 1.0, value))) for end in ends)
        if name == "chips_per_site_mw":
            return above, below
        if watts == name:
            return below, above
        slow = self.step.widths("time_s")
        return np.hypot(below, slow[0]), np.hypot(above, slow[1])


def _sent(step: Step) -> NDArray:
    """Return the least bytes that a rank sends in a step: the share of each message that any algorithm sends."""
    parts = [
        busbw_factor(message.kind, ranks_of(message, getattr(step, message.group)))
        * message.message_bytes
        * message.count
        for message in step.messages
    ]
    return np.asarray(sum(parts)) if parts else np.zeros(())


def _amounts(step: Step) -> Amounts:
    """Return the work of one chip in a step, which is that of its ranks, and the medium of its messages."""
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


def value_at(end: int, spec: Spec, name: str, key: str = "") -> Any:
    """Return a field of a spec in the middle, or its low or high end; NaN where a mapping lacks the key."""
    mapping = getattr(spec, name) if key else None
    if mapping is not None and key not in mapping:
        return np.nan
    value = mapping[key] if mapping is not None else getattr(spec, name)
    low, high = ends(spec, name, key)
    return (low, value, high)[end]


def matmul_rate(chip: Chip) -> Any:
    """Return the rate of 16-bit operations for which a chip is built, from its dense peaks of 16 and 8 bits [FLOP/s].

    Examples
    --------
    >>> import trnmodel as tm
    >>> [float(matmul_rate(tm.chip(name))) / 1e12 for name in ("h100", "trainium2", "trainium3")]
    [989.5, 667.0, 1258.5]
    """
    peaks: dict[int, Any] = {}
    for dtype, peak in chip.peak_flop_per_s.items():
        bits = int(8 * dtypes()[dtype])
        if bits in WIDTHS:
            peaks[bits] = np.maximum(peaks.get(bits, 0.0), peak)
    return page.matmul_flop_per_s(peaks) if peaks else np.nan


def chip_watts(work: Amounts, chip: Chip, dtype: str, power: Power, end: int) -> Figures:
    """Return the power inside the boundary of a chip: by shares of its TDP, and bottom-up."""
    side = end - MIDDLE
    tdp_w = value_at(end, chip, "tdp_w")
    idle = published(chip.idle_share, value_at(end, power, "idle_share"))
    used = {
        "compute_utilisation": page.utilisation(work.flop, work.time_s, chip.peak(dtype)),
        "hbm_utilisation": page.utilisation(work.moved_bytes, work.time_s, chip.hbm_bytes_per_s),
    }
    ratio, full = value_at(end, power, "flop_ratio", dtype), matmul_rate(chip)
    flop_j = page.operation_j(tdp_w, idle, ratio * value_at(end, power, "compute_activity"), full)
    byte_j = page.operation_j(tdp_w, idle, value_at(end, power, "hbm_activity"), chip.hbm_bytes_per_s)
    compute, hbm = (
        page.activity(page.moved_w(amount, work.time_s, energy_j), tdp_w, idle)
        for amount, energy_j in ((work.flop, flop_j), (work.moved_bytes, byte_j))
    )
    watts = page.chip_w(tdp_w, idle, compute + hbm)
    watts = np.minimum(watts * np.exp(side * power.chip_width), tdp_w)
    dynamic = watts - tdp_w * idle
    medium = [
        np.where(mask, value_at(end, power, "byte_j", name), 0.0)
        for mask, name in ((work.within, "backplane"), (work.beyond, "network"))
    ]
    parts = {
        "static_w": value_at(end, power, "static_share") * tdp_w,
        "operations_w": page.moved_w(work.flop, work.time_s, value_at(end, power, "flop_j", dtype)),
        "memory_w": page.moved_w(
            work.moved_bytes,
            work.time_s,
            value_at(end, power, "byte_j", "hbm") + value_at(end, power, "byte_j", "sbuf"),
        ),
        "links_w": page.moved_w(work.sent_bytes, work.time_s, sum(medium)),
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


def _around(inside: Figures, chip: Chip, power: Power, site: Facility, end: int) -> Figures:
    """Return the power of server, provisioned IT and site per chip."""
    side = end - MIDDLE
    server = page.server_w(inside["chip_w"], power.server_ratio, value_at(end, power, "host_w_per_chip"))
    server = server * np.exp(side * power.server_width)
    watts = SiteWatts(
        provisioned_w(chip.all_in_w, inside["tdp_w"], value_at(end, power, "all_in_ratio")),
        server,
        value_at(end, site, "peak_pue"),
        value_at(end, site, "annual_pue"),
    )
    return {
        "server_w": server,
        "all_in_w": watts.provisioned_w,
        "facility_w": watts.mean_site_w,
        "site_w": watts.peak_site_w,
    }


def watts_basis(chip: Chip, power: Power | None = None) -> Basis:
    """Return the basis of a chip's watts: measured where it has an idle share fitted to its own rows.

    Examples
    --------
    >>> import trnmodel as tm
    >>> watts_basis(tm.chip("h100")).word, watts_basis(tm.chip("trainium2")).word
    ('measured', 'extrapolated')
    """
    if power is not None:
        return Basis("extrapolated", "power: shares and energies are given with the call")
    if "idle_share" not in chip.sources or "idle_share" not in chip.estimates:
        reason = "none is published" if chip.core is not None else "no row has any"
        return Basis("extrapolated", f"chip: watts of {chip.id} are those of other chips, for {reason}")
    return Basis("measured")


def _watts_at(question: EnergyQuestion, work: Amounts, end: int) -> Figures:
    """Return the watts of every part and boundary with all inputs at one end."""
    chip = chip_of(question.step.system)
    power = facilities.power(chip) if question.power is None else question.power
    inside = chip_watts(work, chip, question.step.precision.compute, power, end)
    return inside | _around(inside, chip, power, question.facility, end)


def _of_step(step: Step, chosen: Facility | None, power: Power | None) -> Energy:
    """Return the energy of a step, from checked inputs, at the chosen site or at that of its system."""
    facility = facilities.site(step.system, chosen)
    question, work = EnergyQuestion(step=step, facility=facility, power=power), _amounts(step)
    watts = _watts_at(question, work, MIDDLE)
    unknown = np.isnan(watts["tdp_w"]) * 2 ** len(Step.REASONS)
    mask = step.reason_mask | unknown
    rates = {"time_s": step.time_s, "tokens_per_s_per_chip": step.tokens_per_s_per_chip}
    figures: Figures = blank(mask, flop_per_chip=work.flop, **rates, **watts)
    return Energy(
        step=step,
        system=step.system,
        stack=step.stack,
        facility=facility,
        chips=step.occupied_chips,
        **figures,
        reason_mask=mask,
        question=question,
    )


def one_at_a_time(energy: Energy, power: Power | None = None) -> pd.DataFrame:
    """Return energy per token at the server with each open input at its low and its high end, the widest first.

    Parameters
    ----------
    energy : Energy
        Energy of one point. [-]
    power : Power, optional
        The `power` with which `energy` was computed; default that of its chip. [-]

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
    chip, value = chip_of(energy.step.system), float(energy.server_j_per_token)
    power = facilities.power(chip) if power is None else power
    tdp_w, idle, host = ends(chip, "tdp_w"), ends(power, "idle_share"), ends(power, "host_w_per_chip")
    joules = {"TDP of the chip": [_with_inputs(energy, replace(chip, tdp_w=float(end)), power) for end in tdp_w]}
    if np.isnan(published(chip.idle_share, np.nan)):
        joules["idle share"] = [_with_inputs(energy, chip, replace(power, idle_share=float(end))) for end in idle]
    dtype = energy.step.precision.compute
    for label, which in (("compute", "compute_activity"), ("HBM", "hbm_activity"), (dtype.upper(), "flop_ratio")):
        key = dtype if which == "flop_ratio" else ""
        joules[f"energy of {'an operation in ' * bool(key)}{label}"] = [
            _with_inputs(energy, chip, _moved(power, which, key, float(end))) for end in ends(power, which, key)
        ]
    joules["host"] = [_with_inputs(energy, chip, replace(power, host_w_per_chip=float(end))) for end in host]
    off = np.minimum(np.exp(np.array([-1, 1]) * power.chip_width) * energy.chip_w, energy.tdp_w) - energy.chip_w
    joules["error of the fit"] = (value * (1 + power.server_ratio * off / energy.server_w)).tolist()
    slow, fast = (float(width) for width in energy.step.widths("time_s"))
    joules["time of the step"] = [value * np.exp(-slow), value * np.exp(fast)]
    names = ("server_j_per_token", "server_j_per_token_low", "server_j_per_token_high")
    rows = [
        {"which": which} | dict(zip(names, (value, low, high), strict=True))
        for which, (low, high) in joules.items()
        if low < high
    ]
    return tidy(sorted(rows, key=lambda row: row[names[1]] - row[names[2]]))


def _moved(power: Power, name: str, key: str, value: float) -> Power:
    """Return shares with one number, or one of a mapping, in the place of their own."""
    new: Any = {**getattr(power, name), key: value} if key else value
    return replace(power, **{name: new})


def _with_inputs(energy: Energy, chip: Chip, power: Power) -> float:
    """Return the energy per token at the server with another chip and other shares [J]."""
    where = energy.step.system
    system = replace(where, chip=chip) if isinstance(where, System) else chip
    return float(_of_step(replace(energy.step, system=system), energy.facility, power).server_j_per_token)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RequestEnergy(Grounded):
    """Energy per generated token of a request, with its prompt, at the load of a server.

    `prefill` and `decode` are the energies of the steps that the server runs; `prefill_j_share` is the part of the
    joules at the server that prompts take, `prefill_chip_s_per_token` and `decode_chip_s_per_token` are the chip time
    of either for each generated token. Chips that a mapping leaves idle draw nothing here.
    """

    REASONS: ClassVar[tuple[str, ...]] = (*Energy.REASONS, *LOAD_REASONS)
    FIGURE: ClassVar[str] = "server_j_per_token"
    UNBANDED: ClassVar[tuple[str, ...]] = ("input_tokens", "output_tokens", "prefill_j_share")

    prefill: Energy
    decode: Energy
    input_tokens: NDArray
    output_tokens: NDArray
    prefill_j_share: NDArray
    prefill_chip_s_per_token: NDArray
    decode_chip_s_per_token: NDArray
    chip_j_per_token: NDArray
    server_j_per_token: NDArray
    all_in_j_per_token: NDArray
    facility_j_per_token: NDArray

    def judge(self) -> Basis:
        """Return the weaker basis of prefill and decode."""
        return weakest({"prefill": self.prefill.judge(), "decode": self.decode.judge()})

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the wider half-widths of prefill and decode, for the same inputs move both; of a time, its step's."""
        if name.endswith("_chip_s_per_token"):
            return (self.prefill if name.startswith("prefill") else self.decode).step.widths("time_s")
        parts = self.prefill.widths(name), self.decode.widths(name)
        below, above = (np.maximum(*sides) for sides in zip(*parts, strict=True))
        return below, above


def of_request(
    prefill: Step,
    decode: Step,
    request: Request,
    *,
    prompt_s: Numeric,
    decode_s_per_token: Numeric,
    facility: Facility | None,
    power: Power | None = None,
    load_mask: Any = 0,
) -> RequestEnergy:
    r"""Return the energy of a request from the time that a replica spends on its prompt and on its tokens.

    .. math:: E = \frac{n}{o} (P_{prefill}\,t_{prompt} + P_{decode}\,o\,t_{token})

    Parameters
    ----------
    prefill, decode : Step
        Steps that the replica runs: prompts as at saturation, and its decode steps. [-]
    request : Request
        Lengths of the prompt and the answer, o. [-]
    prompt_s, decode_s_per_token : numeric
        Time of the replica that a prompt takes, and that a generated token takes. [s]
    facility, power : Facility, Power
        As in `energy`. [-]
    load_mask : numpy.ndarray
        Why the load cannot be, as bits of `LOAD_REASONS`. [-]
    """
    if power is not None:
        instance("power", power, Power, "a Power, such as catalog.facilities.power(chip)")
    first, later = (_of_step(step, facility, power) for step in (prefill, decode))
    output = np.asarray(request.output_tokens)
    seconds = prefill.occupied_chips * prompt_s / output, decode.occupied_chips * decode_s_per_token
    watts = {name: (getattr(first, f"{name}_w"), getattr(later, f"{name}_w")) for name in BOUNDARIES}
    parts = {name: (both[0] * seconds[0], both[1] * seconds[1]) for name, both in watts.items()}
    each: dict[str, Any] = {f"{name}_j_per_token": sum(both) for name, both in parts.items()}
    each |= {"prefill_chip_s_per_token": seconds[0], "decode_chip_s_per_token": seconds[1]}
    each |= {"prefill_j_share": parts["server"][0] / each["server_j_per_token"]}
    mask = first.reason_mask | later.reason_mask | np.asarray(load_mask) << len(Energy.REASONS)
    return RequestEnergy(
        prefill=first,
        decode=later,
        input_tokens=np.asarray(request.input_tokens),
        output_tokens=output,
        **blank(mask, **each),
        reason_mask=mask,
    )


def _of_serving(serving: Serving, facility: Facility | None, power: Power | None) -> RequestEnergy:
    """Return the energy of a request to a server at its load."""
    q, rate = serving.question, serving.requests_per_s / serving.question.mapping.dp
    busy, dp = serving.prefill_utilisation, serving.question.mapping.dp
    first, step = serving.full_prefill_step, serving.decode_step
    more = {"prompt_s": busy / rate / dp, "decode_s_per_token": (1 - busy) / (rate * q.request.output_tokens) / dp}
    unserved = np.asarray(serving.reason_mask) & (2 ** len(LOAD_REASONS) - 1)
    return of_request(first, step, q.request, facility=facility, power=power, load_mask=unserved, **more)


@declare(
    passes_on=True,
    step=Object(Step | Serving | Deployment, "a step of tm.decode_step or tm.prefill, a Serving, or a Deployment"),
    facility=Named("a facility"),
    power=Object(Power, "a Power, such as catalog.facilities.power(chip)"),
    request=Object(Request, "a Request"),
    batch=Numbers(1, whole=True),
)
def energy(
    step: Step | Serving | Deployment,
    *,
    facility: str | Facility | None = None,
    power: Power | None = None,
    request: Request | None = None,
    batch: ArrayLike | None = None,
) -> Energy | RequestEnergy:
    r"""Return power by boundary while a step runs, and energy per token, with their 90 % intervals.

    .. math:: P = P_{TDP} \bigl(i + (1 - i) \tanh \frac{e_f F + e_m B}{(1 - i) P_{TDP}}\bigr), \qquad E = P / r

    Parameters
    ----------
    step : Step, Serving or Deployment
        A result of `tm.decode_step` or `tm.prefill`; of `tm.serve`, for the energy of a request at its load; or a
        deployment, for the energy of a request to it. [-]
    facility : str or Facility, optional
        Site: its PUE, carbon and water; "aws-air" or "aws-chilled". Default that of the system's cooling
        (`catalog.facilities.site`), as in `tm.tco`. [-]
    power : Power, optional
        Shares, energies of operations and server; default those of the chip's vendor and node. [-]
    request : Request, optional
        Request to a deployment, at its rate or at the largest load at which its promises hold. [-]
    batch : numeric, optional
        Largest batch of a replica of a deployment. [-]

    Returns
    -------
    energy : Energy or RequestEnergy
        Power per chip at each boundary and energy per token; `ends(name)` is the interval of each figure. [-]

    Raises
    ------
    ValueError
        Neither a step nor a deployment, a deployment without a request, or an unknown site.

    Notes
    -----
    An operation takes an energy e_f by its format, a byte e_m. Both are fitted to GPUs at the boundary of the chip and
    scale with the TDP over the rate of the chip's matrix engines and of its HBM; for other chips that is an assumption,
    with a range. The interval
    moves TDP, idle share, host and PUE to their ends at once, and adds the error of left-out models and the step's own
    interval. No power of an AWS chip has been published. `tdp_w` of the system's chip, and any field of `power` and of
    `facility`, may be replaced, also by arrays.

    Examples
    --------
    >>> import trnmodel as tm
    >>> shape = {"batch": 64, "context": 2048, "precision": "fp8"}
    >>> result = tm.energy(tm.decode_step("llama-3.1-70b", "hgx-h100", tm.Mapping(tp=4), **shape))
    >>> parts = result.idle_w + result.compute_w + result.hbm_w
    >>> bool(abs(parts - result.chip_w) < 1e-9), bool(result.chip_w < result.server_w < result.facility_w)
    (True, True)
    """
    site = None if facility is None else facilities.facility(facility)
    stated = {"request": request, "batch": batch}
    if not isinstance(step, Deployment):
        for name, value in stated.items():
            if value is not None:
                refuse(name, value, "allowed with a Deployment alone: a step and a Serving have their own")
        return _of_step(step, site, power) if isinstance(step, Step) else _of_serving(step, site, power)
    if request is None or batch is None:
        refuse("request" if request is None else "batch", None, "a Deployment needs a Request and a batch from 1")
    return _of_serving(serve(step.model, request, step.system, step.mapping, **_served(step, batch)), site, power)


def _served(d: Deployment, batch: ArrayLike) -> dict[str, Any]:
    """Return what `serve` is asked of a deployment, beside its request."""
    return {"max_batch": batch, "precision": d.precision, "efficiencies": d.e}
