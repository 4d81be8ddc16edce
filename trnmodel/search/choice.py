"""The best point of one system for a request, with the range over what nobody knows of its software, and the chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice
from trnmodel.catalog.facilities import Facility, Power
from trnmodel.catalog.facilities import facility as read_facility
from trnmodel.catalog.options import Option
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.models.quality import Quality, quality
from trnmodel.power.energy import RequestEnergy, of_request
from trnmodel.result import Basis, Judged, reason_mask
from trnmodel.search.grid import Point, Question, Steps
from trnmodel.serving import account
from trnmodel.serving.account import PER_RANK, TOO_LATE, TOO_SLOW, Column, Times, made_per_chip, paid_chips
from trnmodel.serving.server import LOAD_REASONS, ServingQuestion
from trnmodel.serving.server import column as server_column
from trnmodel.steps.answers import RESOURCES, Step
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.ground import joint_basis
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.steps.support import Support, support

NONE = np.zeros(())  # tokens and time of drafts beside those of the option


def column(q: Question, mapping: Degrees) -> Column:
    """Return all batches of a mapping with what is uncertain of their times, as a server of it draws them."""
    slots = np.asarray(PER_RANK * mapping.ep)
    server = ServingQuestion(
        model=q.model,
        system=q.system,
        mapping=mapping,
        precision=q.precision,
        option=q.option,
        request=q.request,
        max_batch=slots,
        max_context=np.asarray(q.request.longest_context),
        batching="continuous",
        compiled=None,
        chunk_tokens=None,
        draft_tokens=NONE,
        acceptance=NONE,
        draft_step_s=NONE,
    )
    return server_column(server, slots)


SHARES = (*RESOURCES, "prompts")  # what a generated token takes chip time of


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice(Judged):
    """One replica on one system at the precision, software option, mapping and batch that make most for a request.

    Figures are those at the planned load, with prompts counted; `decode_tokens_per_s_per_chip` is of decoding alone.
    The band of a figure at the load is a range over draws of what nobody knows of the software, in which the mapping
    stays and the number of sequences in flight adapts, so that the promises hold; `chance` is the share of draws in
    which some number keeps them. A choice that breaks a promise is not valid, and keeps the speed and the first token
    of an empty server.
    """

    REASONS: ClassVar[tuple[str, ...]] = (TOO_SLOW, TOO_LATE)
    FIGURE: ClassVar[str] = "tokens_per_s_per_chip"
    UNBANDED: ClassVar[tuple[str, ...]] = (
        *("lnc", "tp", "ep", "pp", "cp", "batch", "chips", "paid_chips", "instances", "replicas_per_instance"),
        "chance",
    )

    question: Question
    stack: Efficiencies
    tp: float
    ep: float
    pp: float
    cp: float
    batch: float
    chips: float
    paid_chips: float
    requests_per_s_per_replica: float
    request_chip_s: float
    prompt_chip_s: float
    tokens_per_s_per_user: float
    tokens_per_s_per_chip: float
    decode_tokens_per_s_per_chip: float
    sequences_in_flight: float
    prefill_utilisation: float
    ttft_s: float
    prefill_s: float
    times: Times

    @cached_property
    def steps(self) -> Steps:
        """The decode step, the prompts and the memory that the numbers are read from."""
        return self.question.steps(self.degrees, np.asarray(self.batch))

    @property
    def step(self) -> Step:
        """Its decode step."""
        return self.steps.step

    @property
    def first(self) -> Step:
        """One prompt by itself."""
        return self.steps.alone

    @property
    def together(self) -> Step:
        """One prompt in each attention group at once."""
        return self.steps.together

    @property
    def system(self) -> System:
        """System that it runs on."""
        return self.question.system

    @property
    def systems(self) -> tuple[System, ...]:
        """Systems that it runs on: in a `Pair` the one of its prompts comes second."""
        return (self.system,)

    @property
    def place(self) -> str:
        """Where it runs, in words."""
        return self.system.id

    @property
    def option(self) -> Option:
        """Software option that it runs with."""
        return self.question.option

    @property
    def dtypes(self) -> Precision:
        """Its precision."""
        return self.question.precision

    @property
    def precision(self) -> str:
        """The name of its precision."""
        return self.dtypes.name

    @property
    def lnc(self) -> int:
        """Physical cores of a rank."""
        return site(self.system, self.option.lnc or None).lnc

    @property
    def instances(self) -> float:
        """Systems that a replica takes."""
        return float(np.ceil(self.chips / self.system.chips))

    @property
    def replicas_per_instance(self) -> float:
        """Replicas that a system holds."""
        return float(self.system.chips // self.chips)

    @property
    def degrees(self) -> Degrees:
        """Its degrees of parallelism."""
        return Degrees(tp=self.tp, ep=self.ep, pp=self.pp, cp=self.cp, lnc=self.option.lnc or None)

    @property
    def deployment(self) -> Deployment:
        """The chosen point as a deployment, with as many replicas as one system holds."""
        return Deployment(
            model=self.question.model,
            system=self.system,
            mapping=self.degrees,
            precision=self.dtypes,
            stack=self.stack,
            batch=self.batch,
            replicas=self.replicas_per_instance,
        )

    @property
    def mapping(self) -> str:
        """Precision, degrees, batch and software option in words; of a chip with NeuronCores also the LNC."""
        more = {"EP": self.ep, "PP": self.pp, "CP": self.cp}
        degrees = "".join(f" x {name} {x:g}" for name, x in more.items() if x > 1)
        option = f", {self.option.name}" if self.option.id != self.stack.id else ""
        core = f", LNC {self.lnc}" if self.system.chip.core else ""
        return f"{self.precision}, TP {self.tp:g}{degrees}{core}, batch {self.batch:g}{option}"

    @property
    def support(self) -> Support:
        """What documents say of the model on its software."""
        return support(self.question.model, self.system, self.option)

    @property
    def quality(self) -> Quality:
        """What its number formats lose of the model's score."""
        return quality(self.question.model, self.dtypes)

    @cached_property
    def column(self) -> Column:
        """All batches of its mapping."""
        return column(self.question, self.degrees)

    @cached_property
    def drawn(self) -> Mapping[str, NDArray]:
        """Its figures at the load in each of the common draws; NaN where the promise cannot be kept."""
        return self.column.drawn(self.stack)

    @property
    def chance(self) -> float:
        """Share of the draws in which some number of sequences keeps the promises."""
        return float(np.mean(np.isfinite(self.drawn[self.FIGURE])))

    def judge(self) -> Basis:
        """Return the weaker basis of its prompts and its decode step; a borrowed option is extrapolated."""
        return self.option.basis(joint_basis(self.first, self.step))

    def _widths(self, name: str, part: str = "") -> tuple[Any, Any]:
        """Return the half-widths of the range over the draws, or of the prompt or the step of a figure without load."""
        if name in account.FIGURES and self.valid:
            return account.draw_widths(name, getattr(self, name), self.drawn)
        return (self.first if name in ("ttft_s", "prefill_s") else self.step).widths("time_s")

    def energy(self, facility: str | Facility | None = None, power: Power | None = None) -> RequestEnergy:
        """Return the energy of a request at the planned load, as `tm.energy` gives it for a server."""
        tokens_per_s = self.requests_per_s_per_replica * self.question.request.output_tokens
        return of_request(
            self.together,
            self.step,
            self.question.request,
            prompt_s=self.times.prompt_s,
            decode_s_per_token=(1 - self.prefill_utilisation) / tokens_per_s,
            facility=None if facility is None else read_facility(facility),
            power=power,
            load_mask=self.reason_mask << LOAD_REASONS.index(TOO_SLOW),
        )

    @property
    def full(self) -> Choice:
        """The same point with its replicas full, as of a request without a rate; itself where the request has none."""
        if self.question.request.requests_per_s is None:
            return self
        q = self.question._replace(request=replace(self.question.request, requests_per_s=None))
        degrees = {name: getattr(self, name) for name in ("tp", "ep", "pp", "cp", "times", "chips")}
        return chosen(Point((0, 0.0, 0.0), q, why="", **degrees))

    def merit(self) -> float:
        """Return what orders choices: tokens/s of a paid chip where the promises are kept, else the speed of a user."""
        return self.tokens_per_s_per_chip if self.valid else self.tokens_per_s_per_user

    def chip_s(self, resource: str) -> float:
        """Return the paid chip time [s] that a resource takes per generated token; "prompts" is a resource too."""
        if choice("resource", resource, SHARES) == "prompts":
            return self.prompt_chip_s / float(self.question.request.output_tokens)
        made = float(self.batch * self.times.tokens_per_step)
        return float(getattr(self.step, f"{resource}_s")) * self.paid_chips / made


def chosen(point: Point) -> Choice:
    """Return a point of the grid as a choice, with its figures at the planned load."""
    q, times, chips = point.question, point.times, point.chips
    request, paid = q.request, float(paid_chips(q.system, np.asarray(chips)))
    planned = account.planned_requests_per_s(times, request)
    figures = {name: float(x) for name, x in account.loaded(times, planned, request).items()}
    kept = np.isfinite(figures["requests_per_s_per_replica"])
    if not kept:
        empty_ttft_s = float(account.ttft_s(times, 0.0, request.ttft_quantile))
        figures |= {"tokens_per_s_per_user": 1 / float(times.decode_s), "ttft_s": empty_ttft_s}
    slow = not kept and (request.ttft_s is None or float(times.decode_s) > float(request.most_tpot_s))
    made = made_per_chip(request, q.system, np.asarray(figures["requests_per_s_per_replica"]), np.asarray(chips))
    return Choice(
        question=q,
        stack=q.option.efficiencies,
        tp=point.tp,
        ep=point.ep,
        pp=point.pp,
        cp=point.cp,
        batch=float(times.batch),
        chips=chips,
        paid_chips=paid,
        request_chip_s=float(request.output_tokens / made),
        prompt_chip_s=float(times.prompt_s) * paid,
        tokens_per_s_per_chip=float(made),
        decode_tokens_per_s_per_chip=float(times.batch / times.decode_s) / chips,
        prefill_s=float(times.alone_s),
        times=times,
        reason_mask=reason_mask(slow, not kept and not slow),
        **figures,
    )
