"""The gap between ideal, hand-tuned and public software: plans in which one mechanism after the other is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from trnmodel.arguments import TINY, choice, instance, number, refuse
from trnmodel.catalog import trainers
from trnmodel.catalog.options import Option
from trnmodel.catalog.rents import Rent, own, rent
from trnmodel.catalog.specs import Precision, Spec
from trnmodel.catalog.stacks import KINDS, Efficiencies, find
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.declared import MODEL, PRECISION, SYSTEM, Checked, Integer, Number, Object, Word, declare
from trnmodel.formulas.tco import usd_per_mtoken
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.quantities import quantity
from trnmodel.result import Card, tidy
from trnmodel.search.choice import Choice, chosen
from trnmodel.search.single import (
    Search,
    best_points,
    computed,
    lacking,
    option_questions,
    options_for,
    search_for,
)
from trnmodel.search.train_run import train_run
from trnmodel.search.train_size import MOST
from trnmodel.steps.request import Request, one_request
from trnmodel.units import format_digits, format_quantity

if TYPE_CHECKING:
    import pandas as pd

S = TypeVar("S", bound=Spec)
PRECISION_FREED, LAST = "precision", "scheduling"
# what separates kinds of software, in the order of the walk, with the fields of a stack that hold it; the formats that
# are tried belong to "precision", and what is left to "scheduling": legal mappings, memory, documented options
MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "kernels": (
        *("weight_stream_share", "kv_stream_share", "kv_stream_bytes_per_s", "decode_matmul_share"),
        *("compute_memory_overlap", "phase_overlap", "prefill_matmul_share", "prefill_attention_share"),
        *("prefill_slowdown", "prefill_spill_bytes_per_s", "lone_core_cache_passes", "score_passes"),
        *("state_stream_bytes_per_s", "recurrent_token_s"),
    ),
    "layer overhead": (
        *("layer_s", "dense_layer_s", "graph_layers", "graph_doubling_s", "prefill_layer_s"),
        *("decode_level", "prefill_level"),
    ),
    "launch": (
        *("step_overhead_s", "server_step_s", "server_first_token_s", "sequence_s", "host_logit_bytes_per_s"),
        "prefill_overhead_s",
    ),
    "padding": (
        *("context_bucket", "prompt_bucket", "batch_bucket", "kv_head_policy", "cache_split", "head_split"),
        "expert_tile_columns",
    ),
    "exchange": (
        *("hop_s", "in_graph", "network_overlap", "dispatch_traffic_ratio", "mesh_traffic_ratio", "rdh_traffic_ratio"),
        *("ring_traffic_ratio", "one_shot_s", "one_shot_rate_share", "two_shot_s", "two_shot_rate_share"),
        *("shot_rank_s", "shot_copies", "logit_gathers", "context_exchange"),
    ),
    "routing of experts": (
        *("expert_serial_s", "expert_core_s", "expert_read", "expert_gather_reads", "expert_spread"),
        *("prefill_experts", "expert_block_tokens", "expert_block_s"),
    ),
    PRECISION_FREED: ("dequantise_passes",),
    LAST: (
        *("expert_split", "tensor_degrees", "scratchpad_page_bytes", "collective_buffer_bytes", "code_bytes_per_layer"),
        *("ring_bytes_per_layer", "microcode_bytes_per_core", "runtime_bytes", "first_rank_bytes"),
        *("first_rank_tables", "memory_share", "p99_over_p50", "construction", "measured_as"),
    ),
}
# the same of training: "scheduling" is what is left, legal mappings, the slowest rank and stored bytes
TRAINING_MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("matmul_share", "attention_share", "stream_share", "stream_overlap", "scores", "masked"),
    "layer overhead": ("layer_s",),
    "launch": ("step_s", "host_layer_s", "host_adapter_s"),
    "padding": ("kv_head_policy", "head_split"),
    "exchange": ("link_share", "scaleout_share", "hop_s", "bucket_bytes", "bucket_rank_bytes", "library"),
    "overlap": ("tp_overlap", "ep_overlap", "cp_overlap", "pp_overlap", "dp_overlap"),
    LAST: (
        *("straggler", "expert_split", "sequence_parts", "gradient_bytes", "optimizer_bytes", "mask_bytes"),
        *("construction", "width", "octave_width", "fitted_chips"),
    ),
}
OF_A_REQUEST = ("tokens_per_s_per_chip", "usd_per_mtoken", "server_j_per_token")
MADE = ("tokens_per_s_per_chip",)  # of which more is better; of the others less is


def walk(here: S, target: S, mechanisms: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, S, list[S]]]:
    """Yield the stacks between two: each mechanism, the stack with its values replaced, and that at its ranges' ends.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ideal, public = (tm.efficiencies("trainium2", kind) for kind in ("ideal", "public"))
    >>> *_, (last, there, _) = walk(ideal, public, MECHANISMS)
    >>> last, there.weight_stream_share == public.weight_stream_share
    ('scheduling', True)
    """
    ranges = target.open_ranges
    for mechanism, names in mechanisms.items():
        changes: dict[str, Any] = {name: getattr(target, name) for name in names} | {"ranges": {}}
        here = replace(here, **changes)
        mine = [name for name in names if name in ranges]
        yield mechanism, here, [here.moved({name: ranges[name][end] for name in mine}) for end in (0, 1) if mine]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stage:
    """The plan on a stack between two kinds of software, after one mechanism was replaced.

    `factor` is the ratio of the value to that of the stage before, and `factor_low` and `factor_high` are its ends over
    the ranges of the mechanism's constants; they are NaN where it has none.
    """

    software: str
    mechanism: str
    value: float
    factor: float = np.nan
    factor_low: float = np.nan
    factor_high: float = np.nan
    configuration: str = ""
    basis: str = "extrapolated"
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SoftwareGap(Card):
    """The plans from ideal software to the hand-tuned and on to the public one, a mechanism at a time.

    `of` is the figure that is planned. The first of the `stages` is the ideal plan; the last one that leads to a kind
    of software is the plan of that kind. The factors multiply to the ratio of the last plan to the first, unless a
    stage between them keeps no promise: its figure is then 0 where more is better and infinite where less is, and its
    reason says why.
    """

    of: str
    model: Transformer
    system: System
    stages: tuple[Stage, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of software that the chip has, in the order of the walk."""
        return tuple(dict.fromkeys(stage.software for stage in self.stages))

    def end(self, software: str) -> Stage:
        """Return the stage that is the plan of a kind of software."""
        choice("software", software, self.kinds)
        return [stage for stage in self.stages if stage.software == software][-1]

    def lost(self, software: str | None = None) -> float:
        """Return how many times worse the plan of a kind of software is than the ideal one; the last without a name."""
        one = self.end(self.kinds[-1] if software is None else software)
        return self._worse(np.float64(one.value) / self.stages[0].value)

    def loss(self, stage: Stage) -> float:
        """Return how many times worse a stage is than the one before it; below 1 it is better."""
        return self._worse(instance("stage", stage, Stage, "one of the stages of a gap").factor)

    def _worse(self, factor: Any) -> float:
        with np.errstate(divide="ignore"):
            return float(np.divide(1.0, factor) if self.of in MADE else factor)

    def largest(self, software: str | None = None) -> Stage | None:
        """Return the stage that loses most on the way to a kind of software, or to all; None where none loses."""
        ends = self.kinds if software is None else (choice("software", software, self.kinds),)
        some = [one for one in self.stages[1:] if one.software in ends and self.loss(one) > 1]
        return max(some, key=self.loss, default=None)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each stage: software, mechanism, the figure, factors, mapping, basis and reason."""
        rows = []
        for one in self.stages:
            row: dict[str, Any] = {"software": one.software, "mechanism": one.mechanism, self.of: one.value}
            names = ("factor", "factor_low", "factor_high", "configuration", "basis", "reason")
            rows.append(row | {name: getattr(one, name) for name in names})
        return tidy(rows)

    def card(self) -> list[str]:
        """Return the plans of all kinds and what loses most on the way to each, as lines."""
        kind = quantity(self.of)
        lines = [f"Software gap of {self.model.id} on {self.system.id}: {kind.title}"]
        for software in self.kinds:
            one = self.end(software)
            text = f"{software}: {one.reason or format_quantity(one.value, kind.base_unit, 3)}"
            most = self.largest(software)
            lines.append(text + (f"; most is lost to {most.mechanism}: {times(self.loss(most))}" if most else ""))
        return lines


def times(ratio: float) -> str:
    """Return a ratio in words.

    Examples
    --------
    >>> times(2.34), times(float("inf"))
    ('2.3 times', 'everything')
    """
    return f"{format_digits(ratio, 2)} times" if np.isfinite(ratio) else "everything"


class _Plan(NamedTuple):
    """A planned figure with what it was planned on, and why there is none."""

    value: float
    configuration: str
    basis: str
    reason: str


def _stages(
    stacks: Mapping[str, S],
    mechanisms: Mapping[str, tuple[str, ...]],
    plans: Mapping[str, _Plan],
    between: Callable[[str, str, str, S], _Plan],
) -> tuple[Stage, ...]:
    """Return the stages of a walk; `between` plans on the stack of a mechanism between two kinds of software."""
    first, here = next(iter(stacks)), plans[next(iter(stacks))]
    stages = [Stage(software=first, mechanism="the plan itself", **here._asdict())]
    for before, after in pairwise(stacks):
        e_here = stacks[before]
        for mechanism, e, ends in walk(e_here, stacks[after], mechanisms):
            last = mechanism == LAST
            if last:
                there = plans[after]
            elif e == e_here and mechanism != PRECISION_FREED:  # nothing was replaced
                there = here
            else:
                there = between(before, after, mechanism, e)
            moved = [] if last else [between(before, after, mechanism, one).value for one in ends]
            spread = [_ratio(value, here.value) for value in (there.value, *moved)] if moved else [np.nan]
            stages.append(
                Stage(
                    software=after,
                    mechanism=mechanism,
                    factor=_ratio(there.value, here.value),
                    factor_low=min(spread),
                    factor_high=max(spread),
                    **there._asdict(),
                )
            )
            here, e_here = there, e
    return tuple(stages)


def _ratio(after: float, before: float) -> float:
    """Return a factor; 1 between two plans that both keep no promise."""
    if after == before:
        return 1.0
    with np.errstate(divide="ignore"):
        return float(np.float64(after) / before)


PRICING = Checked("a pricing, a price of a chip-hour in USD, or a Rent")
FORMATS = Checked("a precision, or a mapping of precisions by kind of software", PRECISION.schema())


@declare(
    model=MODEL,
    request=Object(Request, "a Request"),
    system=SYSTEM,
    of=Word(OF_A_REQUEST),
    precision=FORMATS,
    pricing=PRICING,
)
def software_gap(
    model: str | Transformer,
    request: Request,
    system: str | System,
    *,
    of: str = "tokens_per_s_per_chip",
    precision: str | Precision | Mapping[str, str | Precision | None] | None = None,
    pricing: str | float | Rent = "capacity-block",
) -> SoftwareGap:
    r"""Split the gap between the plans on ideal, hand-tuned and public software into a factor for each mechanism.

    .. math:: \frac{y_{public}}{y_{ideal}} = \prod_m f_m

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of an own config.json, or object. [-]
    request : Request
        Prompt, answer and promises, as of `tm.plan`. [-]
    system : str or System
        Where it is planned. [-]
    of : str
        Figure of the plan: "tokens_per_s_per_chip" of whole requests and paid chips, "usd_per_mtoken" of generated
        tokens with their prompts paid, or "server_j_per_token". [-]
    precision : str or Precision, or a mapping of them by kind of software, optional
        Default the best of BF16, FP8 and MXFP8 that the chip computes in; a mapping such as `{"ideal": "mxfp4"}` asks
        each kind of software in its own, and those it leaves out in the best. [-]
    pricing : str, float or Rent
        How chips are rented, as of `tm.rent`, or a price of a chip-hour of your own; counts for dollars. [USD/h]

    Returns
    -------
    gap : SoftwareGap
        `.stages`, `.lost()`, `.largest()`, `.to_frame()`.

    Raises
    ------
    ValueError
        As of `tm.plan` on one system; nobody publishes the price or the watts that the figure needs.

    Notes
    -----
    The walk starts at the plan on ideal software. In each stage the fields of one mechanism take the values of the next
    kind of software, and mapping, batch and draft are planned anew, as `tm.plan` does. The number format stays that of
    the plan before until "precision" frees it. "scheduling" is what is left: legal mappings, memory, documented
    options. What a mechanism costs depends on what was replaced before it, so that another order gives other factors.
    Fields that have a range are also planned at both ends. A factor may mend what the one before it broke, where one
    stack counts by the layer what the other counts by the step.

    Examples
    --------
    >>> import trnmodel as tm
    >>> gap = tm.software_gap("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=50), "trn2.48xlarge")
    >>> gap.kinds, gap.lost("hand-tuned") < gap.lost("public")
    (('ideal', 'hand-tuned', 'public'), True)
    >>> bool(abs(gap.to_frame().factor.prod() * gap.lost() - 1) < 1e-9)
    True
    """
    m, spec, promised = read_model(model), find_system(system, "system"), one_request("request", request)
    kinds = stacks_of(spec.chip)
    questions = {kind: search_for(m, promised, one) for kind, one in _formats(precision, kinds).items()}
    if not all(computed(q, spec) for q in questions.values()):
        refuse("precision", precision, f"the chip of {spec.id} {lacking(spec)}")
    options = {kind: options_for(questions[kind], spec, word) for kind, word in kinds.items()}
    value = _figure(of, spec, pricing)
    tops = {kind: _top(questions[kind], spec, some) for kind, some in options.items()}
    plans = {kind: value(top) for kind, top in tops.items()}
    if np.isnan(plans["ideal"].value):
        refuse("of", of, f"no source has watts of the chip of {spec.id}")
    stacks = {kind: _stack(spec, kinds[kind], top) for kind, top in tops.items()}

    def between(before: str, after: str, mechanism: str, e: Efficiencies) -> _Plan:
        some = [replace(one, efficiencies=e, base_stack=e.id) for one in options[before]]
        top, freed = tops[before], mechanism == PRECISION_FREED
        fixed = isinstance(top, Choice) and not freed
        q = replace(questions[before], precisions=(top.dtypes,)) if fixed else questions[after]  # type: ignore[union-attr]
        return value(_top(q, spec, some))._replace(basis="extrapolated")

    return SoftwareGap(of=of, model=m, system=spec, stages=_stages(stacks, MECHANISMS, plans, between))


def _formats(precision: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the precision of each kind of software; None for the best."""
    if not isinstance(precision, Mapping):
        return dict.fromkeys(kinds, precision)
    for kind in precision:
        choice("precision", kind, tuple(kinds))
    return {kind: precision.get(kind) for kind in kinds}


def _top(q: Search, spec: System, some: tuple[Option, ...] | list[Option]) -> Choice | str:
    """Return what `plan` chooses among software options on a system, or why nothing fits."""
    points = best_points(option_questions(q, spec, some))
    return chosen(points[0]) if points[0].rank[0] else points[0].why


def _stack(spec: System, word: str | None, top: Choice | str) -> Efficiencies:
    """Return the stack of a plan, which of public software is that of the option that was chosen."""
    return top.stack if isinstance(top, Choice) and top.valid else find(spec.chip, word, "efficiencies")


def _figure(of: str, spec: System, pricing: Any) -> Callable[[Choice | str], _Plan]:
    """Return what reads the figure of a choice."""
    usd = np.nan
    if of == "usd_per_mtoken":
        price = rent(spec, pricing) if isinstance(pricing, str | Rent) else own(spec, number("pricing", pricing, TINY))
        usd = float(price.usd_per_chip_h)
        if price.why:
            refuse("pricing", pricing, f"{price.why}; allowed is a price of a chip-hour of {spec.id} in USD")

    def read(c: Choice | str) -> _Plan:
        none = 0.0 if of in MADE else np.inf
        if isinstance(c, str):
            return _Plan(none, "", "extrapolated", c)
        if not c.valid:
            return _Plan(none, c.mapping, str(c.basis), f"{c.reason}: {c.tokens_per_s_per_user:.0f} tokens/s at most")
        if of == "usd_per_mtoken":
            value = usd_per_mtoken(usd, 1.0) * (c.request_chip_s / c.question.request.output_tokens)
        else:
            value = c.energy().server_j_per_token if of == "server_j_per_token" else c.tokens_per_s_per_chip
        return _Plan(float(value), c.mapping, str(c.basis), "")

    return read


@declare(
    model=MODEL,
    system=SYSTEM,
    tokens=Number(TINY),
    chips=Integer(1, MOST),
    precision=PRECISION,
    seq=Integer(),
    global_batch=Integer(1, MOST),
)
def training_gap(
    model: str | Transformer,
    system: str | System,
    *,
    tokens: float,
    chips: float | None = None,
    precision: str | Precision = "bf16",
    seq: int | None = None,
    global_batch: int | None = None,
) -> SoftwareGap:
    r"""Split the gap between the days of a training run on ideal, hand-tuned and public software into factors.

    .. math:: \frac{d_{public}}{d_{ideal}} = \prod_m f_m

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of an own config.json, or object. [-]
    system : str or System
        System whose scale-up domains are joined. [-]
    tokens : float
        Tokens to be seen. [token]
    chips : float, optional
        Chips of the job, as in `tm.train_run`. [-]
    precision : str or Precision
        Number formats, the same of all. [-]
    seq : int, optional
        Tokens of a sequence, as in `tm.train_run`. [token]
    global_batch : int, optional
        Sequences of a step, as in `tm.train_run`. [-]

    Returns
    -------
    gap : SoftwareGap
        `.stages`, `.lost()`, `.largest()`, `.to_frame()`; its figure is "days".

    Raises
    ------
    ValueError
        As of `tm.train_run` on ideal software.

    Notes
    -----
    As in `tm.software_gap`: each stage is a run of its own on the best of all mappings and policies.

    Examples
    --------
    >>> import trnmodel as tm
    >>> gap = tm.training_gap("llama-3.1-8b", "hgx-h100", tokens=1e12, chips=64)
    >>> gap.of, gap.kinds[-1], gap.lost() > 1
    ('days', 'public', True)
    """
    m, spec = read_model(model), find_system(system, "system")
    ask: dict[str, Any] = {"tokens": tokens, "chips": chips, "precision": precision, "seq": seq, "best": 1}
    ask |= {"global_batch": global_batch}

    def planned(e: Any) -> _Plan:
        run = train_run(m, spec, efficiencies=e, **ask)
        if not run.valid:
            return _Plan(np.inf, run.configuration, str(run.basis), str(run.reason))
        return _Plan(float(run.days), run.configuration, str(run.basis), "")

    def tried(e: Any) -> _Plan:
        try:
            return planned(e)
        except ValueError as error:  # no mapping is legal
            return _Plan(np.inf, "", "extrapolated", " ".join(str(error).split()))

    there = {kind: kind == "ideal" or getattr(spec.chip, trainers.CHIP_FIELDS[kind]) for kind in KINDS}
    stacks = {kind: trainer(spec.chip, kind) for kind in KINDS if there[kind]}
    plans = {kind: planned(e) if kind == "ideal" else tried(e) for kind, e in stacks.items()}

    def between(before: str, after: str, mechanism: str, e: Trainer) -> _Plan:
        return tried(e)._replace(basis="extrapolated")

    return SoftwareGap(of="days", model=m, system=spec, stages=_stages(stacks, TRAINING_MECHANISMS, plans, between))
