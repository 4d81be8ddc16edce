"""Prefill on one system, decode on another: the pair of mappings that makes most per chip paid in both pools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.facilities import Facility, Power
from trnmodel.catalog.facilities import facility as read_facility
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.systems import System
from trnmodel.draws import cause
from trnmodel.formulas.memory import transfer_s
from trnmodel.models.transformer import Transformer
from trnmodel.power.energy import RequestEnergy, of_request
from trnmodel.result import Basis
from trnmodel.search.choice import Choice
from trnmodel.search.grid import GRIDS, Question, mappings
from trnmodel.serving.account import PER_RANK, Times, paid_chips
from trnmodel.serving.apart import Columns, Pool, apart, chip_s_apart, replica_bytes_per_s, sent_bytes
from trnmodel.serving.drafts import drafting_s
from trnmodel.steps.answers import Step
from trnmodel.steps.ground import joint_basis
from trnmodel.steps.inference import memory_fit
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.request import Request

NO_FORMAT = "no precision of the cache in common"
NONE_FITS = "{} fits on no mapping"
NONE_HOLDS = "no pair keeps the promise"
NEVER = np.zeros(())  # of what a pool does not do


def place(decode: str, prefill: str) -> str:
    """Return both systems of a pair in words."""
    return f"{decode} with prefill on {prefill}"


class Side(NamedTuple):
    """The mappings (and batches, first axis) of one pool: what its replicas do, whether they can, and their steps."""

    mapping: Degrees
    times: Times
    chips: NDArray
    fits: NDArray
    step: Step
    alone: Step

    def flat(self) -> tuple[NDArray, Times, NDArray]:
        """Return the places of the points that can exist, with their times and chips."""
        parts = {
            name: np.broadcast_to(getattr(self.times, name), self.fits.shape)[self.fits]
            for name in self.times._fields
            if name != "compiled"
        }
        chips = np.broadcast_to(self.chips, self.fits.shape)[self.fits]
        return np.argwhere(self.fits), self.times._replace(**parts), chips


def decode_side(q: Question, mapping: Degrees, batch: Any) -> Side:
    """Return the decode pool at batches and mappings: its replicas hold the cache and run no prompts."""
    step = q.decode(mapping, batch)
    fit = memory_fit(
        q.model,
        q.system,
        mapping,
        batch=batch,
        context=q.request.longest_context,
        precision=q.precision,
        efficiencies=q.option.efficiencies,
    )
    times = Times(
        batch=step.batch,
        step_s=step.time_s + drafting_s(q.option, step),
        tokens_per_step=np.asarray(q.option.tokens_per_step),
        alone_s=NEVER,
        together_s=NEVER,
        groups=np.ones(()),
        chunks=np.ones(()),
        host_s=np.zeros(()),
        compiled=q.option.efficiencies.batch_bucket == "maximum",
    )
    fits = step.valid & fit.valid & (step.batch <= q.option.most_sequences)
    return Side(mapping, times, step.occupied_chips, fits, step, step)


def prefill_side(q: Question, mapping: Degrees) -> Side:
    """Return the prefill pool at mappings: each attention group runs a prompt, whose cache its replica holds."""
    groups = mapping.ep * mapping.pp
    alone = q.prefill(mapping)
    together = alone if np.all(groups == 1) else q.prefill(mapping, groups)
    fit = memory_fit(
        q.model,
        q.system,
        mapping,
        batch=groups,
        context=q.request.input_tokens,
        input_tokens=q.request.new_tokens,
        prompts=groups,
        precision=q.precision,
        efficiencies=q.option.efficiencies,
    )
    times = Times(
        batch=NEVER,
        step_s=NEVER,
        tokens_per_step=np.ones(()),
        alone_s=alone.time_s,
        together_s=together.time_s,
        groups=groups,
        chunks=np.ones(()),
        host_s=np.asarray(q.option.efficiencies.server_first_token_s),
        compiled=False,
    )
    fits = alone.valid & together.valid & fit.valid
    return Side(mapping, times, together.occupied_chips, fits, together, alone)


@lru_cache(maxsize=GRIDS)
def _side(
    phase: str,
    model: Same[Transformer],
    system: Same[System],
    option: Same[Any],
    precision: Precision,
    request: Request,
) -> Side:
    q = Question(model.it, request, system.it, option.it, precision)
    mapping = mappings(q.system, q.model, q.option.efficiencies, q.option.lnc or None)
    return prefill_side(q, mapping) if phase == "prefill" else decode_side(q, mapping, PER_RANK[:, None] * mapping.ep)


def side(phase: str, q: Question) -> Side:
    """Return all mappings of one pool ("prefill" or "decode") at once; kept, since other promises read the same."""
    lengths = Request(q.request.input_tokens, q.request.output_tokens, prefix_share=q.request.prefix_share)
    return _side(phase, Same(q.model), Same(q.system), Same(q.option), q.precision, lengths)


def _sent_s(decode: Question, prefill: Question, chips: Any, first_chips: Any) -> NDArray:
    """Return the time in which the cache of a prompt is sent; the slower side sets it."""
    rate = np.minimum(replica_bytes_per_s(decode.system, chips), replica_bytes_per_s(prefill.system, first_chips))
    return transfer_s(sent_bytes(decode.model, decode.request.input_tokens, decode.precision), rate)


class Best(NamedTuple):
    """The best pair of mappings of two questions: what it makes per paid chip, and its degrees and batch."""

    made: float
    decode: Question
    prefill: Question
    mapping: Degrees
    batch: float
    prefill_mapping: Degrees


def best_of(decode: Question, prefill: Question) -> Best | None:
    """Return the best pair of mappings of a decode question and a prefill question; None where none keeps the promise.

    All points of one side meet all mappings of the other at once.
    """
    slow, fast = side("decode", decode), side("prefill", prefill)
    (at, times, chips), (first_at, prompts, first_chips) = slow.flat(), fast.flat()
    if not len(at) or not len(first_at):
        return None
    column = {name: getattr(times, name)[:, None] for name in times._fields if name != "compiled"}
    sent_s = _sent_s(decode, prefill, chips[:, None], first_chips)
    with np.errstate(invalid="ignore", divide="ignore"):
        flow = apart(times._replace(**column), prompts, decode.request, sent_s)
        pools = Pool(decode.system, chips[:, None]), Pool(prefill.system, first_chips)
        made = decode.request.output_tokens / sum(chip_s_apart(decode.request, *pools, flow))
    if not np.any(np.isfinite(made)):
        return None
    i, j = np.unravel_index(np.nanargmax(made), made.shape)
    mapping = _degrees(slow.mapping, at[i][-1], decode)
    return Best(
        float(made[i, j]),
        decode,
        prefill,
        mapping,
        float(times.batch[i]),
        _degrees(fast.mapping, first_at[j][-1], prefill),
    )


def _degrees(mapping: Degrees, place: int, q: Question) -> Degrees:
    """Return one mapping of several."""
    tp, ep, pp, cp = (float(np.asarray(x)[place]) for x in (mapping.tp, mapping.ep, mapping.pp, mapping.cp))
    return Degrees(tp=tp, ep=ep, pp=pp, cp=cp, lnc=q.option.lnc or None)


def best_pair(decodes: Iterable[Question], prefills: Iterable[Question]) -> Pair | str:
    """Return the best pair of two systems over their options and precisions; or why there is none."""
    slow, fast = list(decodes), list(prefills)
    both = [(d, p) for d in slow for p in fast if d.precision.kv == p.precision.kv]
    if not both:
        return NO_FORMAT
    for phase, some in (("decode", slow), ("prefill", fast)):
        if not any(side(phase, q).fits.any() for q in some):
            return NONE_FITS.format(phase)
    bests = [one for one in (best_of(d, p) for d, p in both) if one is not None]
    return paired(max(bests, key=lambda one: one.made)) if bests else NONE_HOLDS


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(Choice):
    """A choice whose prompts run on a separate pool: decode is as in `Choice`, `first` and `together` are of that pool.

    `prefill_replicas_per_decode_replica` is the number at which neither pool waits. `ttft_s` is the queue,
    the prompt, the transfer of its cache and a decode step; without a TTFT limit the queue has no bound and is not in
    it. `prefill_utilisation` is that of the prefill pool.
    """

    UNBANDED: ClassVar[tuple[str, ...]] = (
        *Choice.UNBANDED,
        *("prefill_tp", "prefill_ep", "prefill_pp", "prefill_cp", "prefill_chips", "prefill_paid_chips"),
        *("prefill_replicas_per_decode_replica", "prefill_chips_per_decode_chip", "transfer_s", "transfer_bytes"),
    )

    prefill_question: Question
    prefill_tp: float
    prefill_ep: float
    prefill_pp: float
    prefill_cp: float
    prefill_chips: float
    prefill_paid_chips: float
    prefill_replicas_per_decode_replica: float
    transfer_s: float
    transfer_bytes: float

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """The decode pool and the prefill pool at the chosen mappings."""
        slow = decode_side(self.question, self.degrees, np.asarray(self.batch))
        return slow, prefill_side(self.prefill_question, self.prefill_degrees)

    @property
    def step(self) -> Step:
        """Its decode step."""
        return self.sides[0].step

    @property
    def first(self) -> Step:
        """One prompt by itself, on the prefill pool."""
        return self.sides[1].alone

    @property
    def together(self) -> Step:
        """One prompt in each attention group of the prefill pool at once."""
        return self.sides[1].step

    @property
    def prefill_system(self) -> System:
        """System on which its prompts run."""
        return self.prefill_question.system

    @property
    def prefill_degrees(self) -> Degrees:
        """Degrees of parallelism of a replica of the prefill pool."""
        lnc = self.prefill_question.option.lnc or None
        return Degrees(tp=self.prefill_tp, ep=self.prefill_ep, pp=self.prefill_pp, cp=self.prefill_cp, lnc=lnc)

    @property
    def prefill_chips_per_decode_chip(self) -> float:
        """Chips paid in the prefill pool for each that is paid in the decode pool."""
        return self.prefill_replicas_per_decode_replica * self.prefill_paid_chips / self.paid_chips

    @property
    def systems(self) -> tuple[System, ...]:
        """The system that decodes, and the one on which its prompts run."""
        return self.system, self.prefill_system

    @property
    def place(self) -> str:
        """Both systems in words."""
        return place(self.system.id, self.prefill_system.id)

    @property
    def mapping(self) -> str:
        """Both sides in words: the decode replica, and the replicas that prefill for it."""
        parts = {"EP": self.prefill_ep, "PP": self.prefill_pp, "CP": self.prefill_cp}
        degrees = "".join(f" x {name} {x:g}" for name, x in parts.items() if x > 1)
        format_, option = self.prefill_question.precision.name, self.prefill_question.option
        ratio = f"{self.prefill_chips_per_decode_chip:.3g} prefill chips per decode chip"
        software = f", {option.name}" if option.id != option.efficiencies.id else ""
        return f"{super().mapping}; prefill: {format_}, TP {self.prefill_tp:g}{degrees}{software}, {ratio}"

    @cached_property
    def column(self) -> Any:
        """All batches of its decode mapping, with its prefill mapping."""
        batch = PER_RANK * self.ep
        slow, fast = (
            decode_side(self.question, self.degrees, batch),
            prefill_side(self.prefill_question, self.prefill_degrees),
        )
        options = self.question.option, self.prefill_question.option
        return Columns(
            self.question.request,
            slow.times,
            fast.times,
            slow.fits,
            Pool(self.system, slow.chips),
            Pool(self.prefill_system, fast.chips),
            np.asarray(self.transfer_s),
            self.prefill_replicas_per_decode_replica,
            slow.step.widths("time_s"),
            fast.step.widths("time_s"),
            (
                cause(options[0].efficiencies, self.system, "decode"),
                cause(options[1].efficiencies, self.prefill_system, "prefill"),
            ),
        )

    @cached_property
    def drawn(self) -> Mapping[str, NDArray]:
        """Its figures in each of the common draws, with the pools as large as they were bought."""
        return self.column.drawn()

    def judge(self) -> Basis:
        """Return the weaker basis of both sides; a borrowed option is extrapolated."""
        steps = joint_basis(self.first, self.step)
        return self.question.option.basis(self.prefill_question.option.basis(steps))

    def energy(self, facility: str | Facility | None = None, power: Power | None = None) -> RequestEnergy:
        """Return the energy of a request on both pools while they are busy with it."""
        tokens_per_s = self.requests_per_s_per_replica * self.question.request.output_tokens
        return of_request(
            self.together,
            self.step,
            self.question.request,
            prompt_s=self.times.prompt_s,
            decode_s_per_token=1 / tokens_per_s,
            facility=None if facility is None else read_facility(facility),
            power=power,
        )


def paired(best: Best) -> Pair:
    """Return a pair of mappings as a choice, with its own steps and figures."""
    q, p = best.decode, best.prefill
    slow, fast = decode_side(q, best.mapping, np.asarray(best.batch)), prefill_side(p, best.prefill_mapping)
    sent_s = _sent_s(q, p, slow.chips, fast.chips)
    flow = apart(slow.times, fast.times, q.request, sent_s)
    parts = chip_s_apart(q.request, Pool(q.system, slow.chips), Pool(p.system, fast.chips), flow)
    times = slow.times._replace(alone_s=fast.times.alone_s, together_s=fast.times.together_s, groups=fast.times.groups)
    mapping, first = best.mapping, best.prefill_mapping
    whole = float(sum(parts))
    return Pair(
        question=q,
        prefill_question=p,
        stack=q.option.efficiencies,
        **{name: float(getattr(mapping, name)) for name in ("tp", "ep", "pp", "cp")},
        **{f"prefill_{name}": float(getattr(first, name)) for name in ("tp", "ep", "pp", "cp")},
        batch=best.batch,
        chips=float(slow.chips),
        paid_chips=float(paid_chips(q.system, slow.chips)),
        prefill_chips=float(fast.chips),
        prefill_paid_chips=float(paid_chips(p.system, fast.chips)),
        prefill_replicas_per_decode_replica=float(flow.prefill_replicas),
        requests_per_s_per_replica=float(flow.requests_per_s),
        request_chip_s=whole,
        prompt_chip_s=float(parts[1]),
        tokens_per_s_per_user=float(1 / times.decode_s),
        tokens_per_s_per_chip=float(q.request.output_tokens) / whole,
        decode_tokens_per_s_per_chip=float(times.batch / times.decode_s) / float(slow.chips),
        sequences_in_flight=float(flow.in_flight),
        prefill_utilisation=float(flow.utilisation),
        ttft_s=float(flow.ttft_s),
        prefill_s=float(fast.alone.time_s),
        transfer_s=float(sent_s),
        transfer_bytes=float(sent_bytes(q.model, q.request.input_tokens, q.precision)),
        times=times,
        reason_mask=np.asarray(0),
    )
