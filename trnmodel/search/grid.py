"""The one grid of all searches: mappings, batches and software options of a model on a system, for one request."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same, key_of, of_key, refuse
from trnmodel.catalog import load
from trnmodel.catalog.options import Option, options, plain
from trnmodel.catalog.reader import lineage
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.serving.account import PER_RANK, Times, paid_chips
from trnmodel.serving.drafts import drafting_s
from trnmodel.steps.answers import MemoryFit, Step
from trnmodel.steps.inference import decode_step, memory_fit, prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.steps.request import Request
from trnmodel.units import GIB, format_digits

GRIDS = 512  # that are saved: a search at another speed or price reads the same times
PIPELINES, CUTS = (1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0, 8.0)  # degrees of PP and of CP that are tried


def _powers(ranks: float) -> NDArray:
    """Powers of two up to a number of ranks."""
    return np.exp2(np.arange(np.floor(np.log2(ranks)) + 1))


def tensor_degrees(system: str | System) -> NDArray:
    """Degrees of TP that are tried: powers of two, and what else the chip's runtime supports, up to all ranks.

    Examples
    --------
    >>> tensor_degrees("inf2.48xlarge").tolist()
    [1.0, 2.0, 4.0, 8.0, 16.0, 24.0]
    """
    at = site(system)
    ranks = at.chips * at.ranks_per_chip
    more = [degree for degree in at.chip.tensor_degrees if degree <= ranks]
    return np.union1d(_powers(ranks), more)


def expert_degrees(system: str | System, model: str | Transformer) -> NDArray:
    """Powers of two of EP, up to the experts of the model; 1 alone for a dense one."""
    at = site(system)
    return _powers(min(at.chips * at.ranks_per_chip, max(read_model(model).outline().experts, 1)))


def more_degrees(e: Efficiencies) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the degrees of PP and of CP that are tried.

    A plan is to be started: Neuron's servers document neither for decoding, those of GPUs pipelines alone.
    """
    if e.kind != "public":
        return PIPELINES, CUTS
    return ((1.0,) if "neuron-stack" in lineage(e.id) else PIPELINES), (1.0,)


def mappings(system: str | System, model: str | Transformer, e: Efficiencies, lnc: int | None = None) -> Degrees:
    """Return all mappings that are tried: degrees of TP, EP, PP and CP whose product the system has ranks for."""
    axes = tensor_degrees(system), expert_degrees(system, model), *more_degrees(e)
    tp, ep, pp, cp = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
    at = site(system, lnc)
    linked = at.chips if not np.isnan(at.chip.scaleup_bytes_per_s_per_dir) else 1  # of unpublished links nobody knows
    here = tp * ep * pp * cp <= linked * at.ranks_per_chip
    return Degrees(tp=tp[here], ep=ep[here], pp=pp[here], cp=cp[here], lnc=lnc)


@lru_cache(maxsize=GRIDS)
def _mappings(system: Same[System], model: Same[Transformer], e: Same[Efficiencies], lnc: int | None) -> Degrees:
    """Return the mappings of a stack, the same object each time: what they resolve to is then resolved once."""
    return mappings(system.it, model.it, e.it, lnc)


NARROW_ATTENTION = "mxfp8"  # of a chip without a published peak in 16 bits
DTYPES = ("weights", "experts", "kv", "activations", "compute", "attention")  # of a precision
FOUR_BITS = ("mxfp4", "nvfp4")  # block formats of 4 bits; a chip multiplies one of them, if any


def in_own_format(precision: str | Precision, chip: Chip) -> Precision:
    """Return a precision in the 4-bit format that a chip multiplies: NVFP4 on Blackwell, MXFP4 on Trainium3 and MI355X.

    Other formats, and those of a chip that multiplies no 4-bit format, are returned as they are. A chip that has no
    published peak in the format of the attention multiplies it in MXFP8, where that has one.

    Examples
    --------
    >>> import trnmodel as tm
    >>> [in_own_format("mxfp4", tm.chip(name)).name for name in ("trainium3", "gb200", "h100")]
    ['mxfp4', 'nvfp4', 'mxfp4']
    >>> in_own_format("mxfp8", tm.chip("trainium4-roadmap")).name
    'mxfp8-attn8'
    """
    return _with_attention(_in_own_bits(load.precision(precision), chip), chip)


def _with_attention(one: Precision, chip: Chip) -> Precision:
    """Return a precision with the attention in MXFP8 where a chip has a published peak in that alone."""
    peaks = chip.peak_flop_per_s
    if one.attention in peaks or one.compute not in peaks or NARROW_ATTENTION not in peaks:
        return one
    return replace(one, name=f"{one.name}-attn8", attention=NARROW_ATTENTION)


def _in_own_bits(one: Precision, chip: Chip) -> Precision:
    """Return a precision in the 4-bit format that a chip multiplies, if it multiplies one."""
    own = next((dtype for dtype in FOUR_BITS if dtype in chip.peak_flop_per_s), one.compute)
    if one.compute not in FOUR_BITS or one.compute in chip.peak_flop_per_s or own == one.compute:
        return one
    changed = {part: own for part in DTYPES if getattr(one, part) in FOUR_BITS}
    return replace(one, name=one.name.replace(one.compute, own), **changed)  # type: ignore[arg-type]


def computes(system: str | System, precision: str | Precision) -> bool:
    """Whether a system's chip has a peak in the compute dtype of a precision, or in its own 4-bit format instead."""
    chip = read_system(system).chip
    one = in_own_format(precision, chip)
    return one.compute in (chip.sparse_peak_flop_per_s if one.sparse else chip.peak_flop_per_s)


@lru_cache(maxsize=GRIDS)
def _options(chip: Same[Chip], model: str, efficiencies: Any) -> tuple[Option, ...]:
    names = [of_key(one) for one in efficiencies] if isinstance(efficiencies, tuple) else of_key(efficiencies)
    return options(chip.it, model, names)


def options_of(system: System, model: Transformer, request: Request, efficiencies: Any = None) -> tuple[Option, ...]:
    """Return the software options that a search tries on a system; the same objects for the same question.

    A cached part of the prompt is a part of the prompt: drafts are of the answer, and read what is cached. Raises
    ValueError where an option that is named drafts no fewer tokens than the request has.
    """
    several = isinstance(efficiencies, list | tuple)
    every = _options(Same(system.chip), model.id, tuple(map(key_of, efficiencies)) if several else key_of(efficiencies))
    shortest = min(float(request.input_tokens), float(request.output_tokens))
    fitting = tuple(one for one in every if one.draft_tokens < shortest)
    if not fitting:
        allowed = f"it drafts {every[0].draft_tokens}; allowed are fewer than the {shortest:g} tokens of the request"
        refuse("efficiencies", every[0].id, allowed)
    return fitting


class Question(NamedTuple):
    """Question of a grid: all that moves its times, and no price."""

    model: Transformer
    request: Request
    system: System
    option: Option
    precision: Precision

    @property
    def of_steps(self) -> dict[str, Any]:
        """Arguments that every step of it shares, by name."""
        return {
            "precision": self.precision,
            "efficiencies": self.option.efficiencies,
            "max_context": self.request.longest_context,
        }

    def decode(self, mapping: Degrees, batch: Any) -> Step:
        """Return the decode step at the mean context, with a graph and a cache for the longest one."""
        more: dict[str, Any] = {"context": self.request.mean_context, "new_tokens": self.option.draft_tokens + 1}
        return decode_step(self.model, self.system, mapping, batch=batch, **more, **self.of_steps)

    def prefill(self, mapping: Degrees, prompts: Any = 1) -> Step:
        """Return the prefill of so many prompts at once."""
        more: dict[str, Any] = {"input_tokens": self.request.new_tokens, "past": self.request.past_tokens}
        return prefill(self.model, self.system, mapping, batch=prompts, **more, **self.of_steps)

    def prompts(self, mapping: Degrees, batch: Any) -> Prompts:
        """Return one prompt, one in each group, and what a rank stores beside so many sequences."""
        groups = mapping.ep * mapping.pp
        alone = self.prefill(mapping)
        together = alone if np.all(groups == 1) else self.prefill(mapping, groups)
        fit = memory_fit(
            self.model,
            self.system,
            mapping,
            batch=batch,
            context=self.request.longest_context,
            input_tokens=self.request.new_tokens,
            prompts=np.minimum(groups, batch),
            precision=self.precision,
            efficiencies=self.option.efficiencies,
        )
        return Prompts(alone, together, fit)

    def steps(self, mapping: Degrees, batch: Any, prompts: Prompts | None = None) -> Steps:
        """Return the steps of a server at batches and mappings; `prompts` are those of another option of the stack."""
        step = self.decode(mapping, batch)
        alone, together, fit = prompts or self.prompts(mapping, batch)
        return Steps(step, alone, together, drafting_s(self.option, step), fit)

    def possible(self, steps: Steps) -> NDArray:
        """Return whether a replica runs its steps and prompts, at no more sequences than a document names."""
        return steps.valid & (steps.step.batch <= self.option.most_sequences)

    def times(self, steps: Steps) -> Times:
        """Return the times of a replica, from its steps."""
        e, mapping = self.option.efficiencies, steps.alone
        return Times(
            batch=steps.step.batch,
            step_s=steps.step.time_s + steps.drafts_s,
            tokens_per_step=np.asarray(self.option.tokens_per_step),
            alone_s=steps.alone.time_s,
            together_s=steps.together.time_s,
            groups=mapping.ep * mapping.pp,
            chunks=np.ones(()),
            host_s=np.asarray(e.server_first_token_s),
            compiled=e.batch_bucket == "maximum",
        )


class Prompts(NamedTuple):
    """One prompt, one prompt in each group, and what a rank stores: what the options of a stack share."""

    alone: Step
    together: Step
    fit: MemoryFit


class Steps(NamedTuple):
    """The decode step, one prompt, one prompt in each group, the drafts of a step, and what a rank stores."""

    step: Step
    alone: Step
    together: Step
    drafts_s: Any
    fit: MemoryFit

    @property
    def valid(self) -> NDArray:
        """Whether a replica holds its weights, its cache and its own prompts, and runs them."""
        return self.step.valid & self.fit.valid & self.alone.valid & self.together.valid


class Point(NamedTuple):
    """A point of the grid: where it is, and how it ranks.

    First comes whether it fits and keeps the promises, then what it makes, then what full systems of it would make.
    """

    rank: tuple[int, float, float]
    question: Question
    tp: float
    ep: float
    pp: float
    cp: float
    times: Times
    chips: float
    why: str

    @property
    def mapping(self) -> Degrees:
        """Its degrees."""
        return Degrees(tp=self.tp, ep=self.ep, pp=self.pp, cp=self.cp, lnc=self.question.option.lnc or None)


class Grid(NamedTuple):
    """All batches (first axis) and mappings of a question: what they do under no promise but that of a full batch.

    `fits` is whether a point can exist, `need` and `have` are GiB of the first rank's replica, `why` names what else
    makes a point impossible. `paid_chips` are those of a replica, its part of idle ones of the domain among them.
    """

    mapping: Degrees
    times: Times
    chips: NDArray
    paid_chips: NDArray
    fits: NDArray
    need: NDArray
    have: NDArray
    why: NDArray

    def point(self, q: Question, at: tuple[Any, Any], rank: tuple[int, float, float]) -> Point:
        """Return one place (a batch and a mapping) as a point of a question, with its rank."""
        degrees = {name: float(getattr(self.mapping, name)[at[1]]) for name in ("tp", "ep", "pp", "cp")}
        need, have = self.need[at], self.have[at]
        why = f"does not fit: {format_digits(need, 3)} of {format_digits(have, 3)} GiB"
        why = why if need > have else str(self.why[at])
        times, chips = self.times.at(self.fits.shape, at), float(self.chips[at[1]])
        return Point(rank, q, times=times, chips=chips, why=why, **degrees)


@lru_cache(maxsize=GRIDS)
def _plain(e: Same[Efficiencies]) -> Option:
    """Return a stack without drafts as an option, the same object each time."""
    return plain(e.it)


@lru_cache(maxsize=GRIDS)
def _prompts(
    model: Same[Transformer],
    system: Same[System],
    e: Same[Efficiencies],
    precision: Precision,
    request: Request,
    lnc: int | None,
) -> tuple[Degrees, Prompts]:
    """Return all mappings of a stack, with the prompts that its options share."""
    mapping = _mappings(system, model, e, lnc)
    q = Question(model.it, request, system.it, _plain(e), precision)
    return mapping, q.prompts(mapping, PER_RANK[:, None] * mapping.ep)


@lru_cache(maxsize=GRIDS)
def _grid(
    model: Same[Transformer], system: Same[System], option: Same[Option], precision: Precision, request: Request
) -> Grid:
    q, e = Question(model.it, request, system.it, option.it, precision), Same(option.it.efficiencies)
    mapping, prompts = _prompts(model, system, e, precision, request, option.it.lnc or None)
    steps = q.steps(mapping, PER_RANK[:, None] * mapping.ep, prompts)
    possible = q.possible(steps)
    need, have = (
        np.broadcast_to(x * mapping.ranks / GIB, possible.shape)
        for x in (steps.fit.first_rank_total_bytes, steps.fit.first_rank_capacity_bytes)
    )
    chips = np.broadcast_to(steps.step.occupied_chips, mapping.ranks.shape)
    why = np.broadcast_to(np.asarray(steps.step.reason, dtype=object), possible.shape)
    return Grid(mapping, q.times(steps), chips, paid_chips(q.system, chips), possible, need, have, why)


def grid(q: Question) -> Grid:
    """Return all batches and mappings of a question at once; saved, since a search at another price reads the same."""
    return _grid(Same(q.model), Same(q.system), Same(q.option), q.precision, _without_promise(q.request))


def _without_promise(request: Request) -> Request:
    """Return the request with its lengths alone, on which times depend."""
    return Request(request.input_tokens, request.output_tokens, prefix_share=request.prefix_share)
