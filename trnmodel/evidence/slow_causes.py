"""What can make a measured time longer than it has to be, and how much of the time each such mechanism holds.

Each mechanism is a row of `MECHANISMS`: the values of a software stack that hold it, or another question that does
without it. What it holds is a difference of two predictions of the row, with the mechanism as the row has it and with
the mechanism gone. These rules follow from what a step is made of and from the documents of the engines. No measured
value, and none of the published pairs of `before_after`, had a say in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

from trnmodel.catalog import reader
from trnmodel.catalog.engines import releases
from trnmodel.catalog.load import chip as read_chip
from trnmodel.catalog.load import precision
from trnmodel.catalog.options import options
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.stacks import IDEAL, Efficiencies, stacks
from trnmodel.catalog.trainers import IDEAL as IDEAL_TRAINER
from trnmodel.catalog.trainers import Trainer, trainers
from trnmodel.evidence.cells import UnreadableRowError, number
from trnmodel.evidence.columns import ENERGY, TRAINING
from trnmodel.evidence.grounds import part
from trnmodel.evidence.jobs import software
from trnmodel.evidence.primitives import bare_chip
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import Reading, Tune, is_rate, stack_of
from trnmodel.evidence.records import Record
from trnmodel.fabric.runtime import NONE
from trnmodel.kernels.engines import KernelStack
from trnmodel.search.gaps import MECHANISMS as OF_STACKS
from trnmodel.search.gaps import TRAINING_MECHANISMS as OF_TRAINERS
from trnmodel.search.gaps import walk

Family = Literal["language", "encoder", "training", "kernel", "collective"]
DRAFTS = "drafts"  # the one cause that is no change of software alone: it changes what is computed
PADDED = 1.05  # compiled over real sizes from which on a row is called padded: less is within what repeated runs differ
HAND_WRITTEN = ("nki", "nki-cp", "fused", "mega")  # kernels of a row that no compiler made
SLOW_KERNELS = ("xla", "masked-dense", "recurrence-by-token")
COMPILED = ("xla", "torch-compile", "torch-trace", "compiler")  # code of a kernel that a compiler made
OLD_MINORS = 6  # releases of the SDK in about a year: a year before the newest one is an old release
# what a request under load is without the other requests
UNLOADED: Mapping[str, str] = {
    **dict.fromkeys(("loaded-step", "waiting-step"), "decode-step"),
    "loaded-speed": "decode-speed",
    **dict.fromkeys(("queued-prefill", "waiting-prefill", "burst-prefill"), "one-prefill"),
    **dict.fromkeys(("loaded-request", "waiting-request"), "run-of-steps"),
    **dict.fromkeys(("loaded-per-token", "waiting-per-token"), "run-of-steps"),
}
NOT_OF_TIME = ("memory:", ENERGY, "critical-batch", "decode-read-bytes", "kernel-read-bytes", "kernel-write-bytes")


def time_s(r: Reading, tune: Tune | None = None) -> float:
    """Return the predicted time of a reading; of a rate the time of one of what it counts. NaN where there is none.

    Parameters
    ----------
    r : Reading
        What a row means. [-]
    tune : callable, optional
        A change of its software. [-]

    Returns
    -------
    time_s : float
        Time, or the inverse of a rate or share. [s]

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> from trnmodel.evidence.readings import reading
    >>> cells = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 2048}
    >>> r = reading(texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0])
    >>> time_s(r) > time_s(r, lambda _: IDEAL)
    True
    """
    try:
        value = predict(r, tune)
    except UnreadableRowError:
        return math.nan
    return 1 / value if is_rate(r.meaning) else value


def family_of(kind: str) -> Family:
    """Return which mechanisms a kind of row has.

    Examples
    --------
    >>> family_of("gpu-collective"), family_of("inference-LLM-serving"), family_of("kernel")
    ('collective', 'language', 'kernel')
    """
    if kind.endswith("collective"):
        return "collective"
    named: dict[str, Family] = {"kernel": "kernel", "training": "training", "inference-encoder": "encoder"}
    return named.get(kind, "language")


@dataclass(frozen=True, eq=False)
class Case:
    """A measured row as the rules see it: its family, its typed columns and, where it can be asked, its question.

    `reading` is None for a row without a prediction; rules then look at the typed columns alone. `measured_s` is the
    time that was measured, or the inverse of a rate [s]. `precision` is what the row prints of its number format.
    """

    family: Family
    record: Record
    reading: Reading | None = None
    measured_s: float = math.nan
    precision: str = ""

    @property
    def r(self) -> Reading:
        """The question of a row that has one."""
        assert self.reading is not None
        return self.reading

    @property
    def is_of_time(self) -> bool:
        """Whether the row has a prediction, and that of a time or a rate."""
        return self.reading is not None and not self.reading.meaning.startswith(NOT_OF_TIME)

    @cached_property
    def predicted_s(self) -> float:
        """Time that the model gives for the row as it stands; NaN where it gives none."""
        return time_s(self.r) if self.is_of_time else math.nan

    @cached_property
    def excess_s(self) -> float:
        """By how much the measured time is longer than the predicted one; 0 where it is shorter."""
        return max(self.measured_s - self.predicted_s, 0.0) if self.predicted_s == self.predicted_s else math.nan

    @cached_property
    def stack(self) -> Efficiencies | Trainer | None:
        """Software of the row; None for kernels and collectives, which have none of these."""
        if not self.is_of_time or self.family in ("kernel", "collective"):
            return None
        return software(self.r) if part(self.r.meaning) == TRAINING else stack_of(self.r)

    @property
    def is_hand_written(self) -> bool:
        """Whether the row states kernels that were written by hand."""
        return self.record.kernels in HAND_WRITTEN or self.record.code == "nki"

    @property
    def clients_per_slot(self) -> float:
        """Requests in flight over the sequences that a server has room for; NaN where either is unknown."""
        if self.reading is not None:
            return self.reading.clients / self.reading.compiled_batch
        return number(self.record.clients) / self.record.slots


class Mechanism(NamedTuple):
    """One thing that can make a row slow.

    `cause` is the word of `before_after.Cause`, or "drafts". `fields` are values of a stack that hold the mechanism, of
    an inference stack or of a trainer. `without_s` is the time of the row without it, where that is another question.
    `is_stated` says whether the row states that it has the mechanism, and `is_absent` whether it states that it has
    not.
    """

    name: str
    cause: str
    families: tuple[Family, ...]
    setting: str
    fields: Callable[[Case], tuple[str, ...]] = lambda _: ()
    without_s: Callable[[Case], float] | None = None
    is_stated: Callable[[Case], bool] = lambda _: False
    is_absent: Callable[[Case], bool] = lambda _: False
    takes_excess: bool = False


def _fields(*names: str) -> Callable[[Case], tuple[str, ...]]:
    """Return the values of a stack that hold a mechanism, whatever the row is."""
    return lambda _: names


def _either(serving: tuple[str, ...], training: tuple[str, ...]) -> Callable[[Case], tuple[str, ...]]:
    """Return the values of a stack of inference, or those of a trainer."""
    return lambda case: training if isinstance(case.stack, Trainer) else serving


def _kernel_fields(case: Case) -> tuple[str, ...]:
    """Return the values that the operators' code decides.

    A kernel for a whole layer also takes over what a layer costs besides its operators. So of a row without kernels
    written by hand, that fixed work is part of what such a kernel would save.
    """
    if isinstance(case.stack, Trainer):
        return OF_TRAINERS["kernels"] + OF_TRAINERS["layer overhead"]
    own = OF_STACKS["kernels"] + OF_STACKS["routing of experts"]
    return own if case.is_hand_written else own + LAYER


def _on(case: Case, e: Spec) -> float:
    """Return the time of a row on another stack."""
    return time_s(case.r, lambda _: e)


def ideal_of(case: Case) -> Efficiencies | Trainer:
    """Return the ideal software of inference, or that of training."""
    return IDEAL_TRAINER if isinstance(case.stack, Trainer) else IDEAL


def holding(case: Case, fields: tuple[str, ...], target: Spec) -> Any:
    """Return the stack of a case with some of its values replaced by those of another stack."""
    _, changed, _ = next(walk(case.stack, target, {"": fields}))  # type: ignore[type-var]
    return changed


def saved_s(case: Case, mechanism: Mechanism) -> float:
    """Return the part of the predicted time that a mechanism holds; NaN where no prediction does without it.

    Parameters
    ----------
    case : Case
        A row. [-]
    mechanism : Mechanism
        What may make it slow. [-]

    Returns
    -------
    saved_s : float
        Time with the mechanism less that without it, at least 0. [s]

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> from trnmodel.evidence.readings import reading
    >>> cells = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 2048}
    >>> r = reading(texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0])
    >>> case = Case("language", Record(), r, measured_s=9e-3)
    >>> layer = next(one for one in MECHANISMS if one.cause == "layer overhead")
    >>> 0 < saved_s(case, layer) < case.predicted_s
    True
    """
    if not case.is_of_time:
        return math.nan
    times = []
    fields = mechanism.fields(case)
    if fields and case.stack is not None:
        changed = holding(case, fields, ideal_of(case))
        times.append(case.predicted_s if changed == case.stack else _on(case, changed))
    if mechanism.without_s is not None:
        times.append(mechanism.without_s(case))
    without_s = min((t for t in times if not math.isnan(t)), default=math.nan)
    return max(case.predicted_s - without_s, 0.0)


@lru_cache(maxsize=16)
def _published(vendor: str, trains: bool) -> tuple[Spec, ...]:
    """Return the public stacks that were fitted on chips of a vendor."""
    names = trainers() if trains else stacks()
    every: list[Any] = [reader.spec(Trainer if trains else Efficiencies, name) for name in names if name != "ideal"]
    return tuple(e for e in every if e.kind == "public" and vendor in _vendors(e))


def _vendors(e: Efficiencies | Trainer) -> set[str]:
    """Return who made the chips that a stack was fitted on."""
    return {read_chip(name).vendor for chips in e.fitted_on.values() for name in chips}


def added_s(case: Case, mechanism: Mechanism) -> float:
    """Return how much longer the row would take with the mechanism as the slowest published software has it.

    A row that takes longer than predicted may run software that is slower than its stack. So much of the excess can a
    mechanism explain; it is 0 where the row states that the mechanism is not there.

    Parameters
    ----------
    case : Case
        A row. [-]
    mechanism : Mechanism
        What may make it slow. [-]

    Returns
    -------
    added_s : float
        Time beyond the predicted one, at least 0. [s]

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> from trnmodel.evidence.readings import reading
    >>> cells = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 2048}
    >>> r = reading(texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0])
    >>> launch = next(one for one in MECHANISMS if one.name == "launch of a step by the host")
    >>> slow, fast = (Case("language", Record(), r, measured_s=time) for time in (90e-3, 1e-3))
    >>> added_s(slow, launch) > added_s(fast, launch) == 0
    True
    """
    fields = mechanism.fields(case)
    if mechanism.takes_excess and case.excess_s > 0:
        return case.excess_s
    if not fields or case.stack is None or not case.excess_s > 0:
        return 0.0
    changed = {_key(one, fields): one for one in _slower(case, fields)}
    times = [_on(case, e) - case.predicted_s for e in changed.values()]
    return max((t for t in times if not math.isnan(t)), default=0.0)


def _slower(case: Case, fields: tuple[str, ...]) -> Iterator[Any]:
    """Yield the stack of a case with the values that each published stack of the vendor has for a mechanism."""
    for other in _published(bare_chip(case.r).vendor, isinstance(case.stack, Trainer)):
        yield holding(case, fields, other)


def _key(e: Any, fields: tuple[str, ...]) -> tuple:
    """Return the values of some fields, by which stacks are told apart."""
    return tuple(getattr(e, name) for name in fields)


# --- questions that do without a mechanism ----------------------------------------------------------------------------


def _at_its_batch_s(case: Case) -> float:
    r = case.r
    return time_s(replace(r, compiled_batch=r.batch)) if r.compiled_batch > r.batch else math.nan


def _context(r: Reading) -> float:
    """Return the mean context of a run: its prompt and half of its output."""
    return r.input_tokens + r.output_tokens / 2 + 1


def _at_its_context_s(case: Case) -> float:
    """Return the time with a graph for the context that the run has."""
    r = case.r
    real = min(r.context, _context(r)) if _context(r) == _context(r) else r.context
    exact = holding(case, ("context_bucket",), IDEAL)
    return time_s(replace(r, context=real, max_context=max(real, r.prompt)), lambda _: exact)


def _at_its_prompt_s(case: Case) -> float:
    """Return the time with a graph for the prompt that the run has."""
    r = case.r
    real = r.input_tokens if r.input_tokens < r.prompt else r.prompt
    exact = holding(case, ("prompt_bucket",), IDEAL)
    return time_s(replace(r, prompt=real), lambda _: exact)


def _alone_s(case: Case) -> float:
    """Return the time of a request that no other delays."""
    r = case.r
    if r.meaning not in UNLOADED:
        return math.nan
    whole_s = time_s(replace(r, meaning=UNLOADED[r.meaning]))
    return whole_s / r.output_tokens if r.meaning.endswith("per-token") else whole_s


def _on_other_cores_s(case: Case) -> float:
    """Return the time with the same physical cores joined into other logical ones; NaN where the chip has no choice."""
    r, chip = case.r, bare_chip(case.r)
    tp, pp, dp, lnc = r.mapping
    own = lnc or chip.lnc_default
    others = [one for one in chip.lnc_choices if one != own and tp * own % one == 0]
    times = [time_s(replace(r, mapping=(tp * own // one, pp, dp, one))) for one in others]
    return min((t for t in times if not math.isnan(t)), default=math.nan)


def _narrower(case: Case) -> str:
    """Return the widest format that is narrower than that of the weights and that the chip computes in or stores."""
    r, chip = case.r, bare_chip(case.r)
    if r.precision.compute == "fp32":
        return "bf16"
    if _states_wide_format(case):  # the model has no prediction in FP32
        return ""
    if r.precision.storage_bytes("weights") < 2 or not r.model:
        return ""
    return "fp8" if "fp8" in chip.peak_flop_per_s else "int8" if case.family == "language" else ""


def _in_narrower_s(case: Case) -> float:
    name = _narrower(case)
    if not name:
        return math.nan
    return time_s(replace(case.r, precision=replace(precision(name), kv=case.r.precision.kv)))


def _asynchronous_s(case: Case) -> float:
    """Return the time with the documented options of the chip that need no draft."""
    if not isinstance(case.stack, Efficiencies) or not bare_chip(case.r).default_stack:
        return math.nan
    plain = [one.efficiencies for one in options(bare_chip(case.r), case.r.model_id)[1:] if not one.speculates]
    times = [_on(case, e) for e in plain]
    return min((t for t in times if not math.isnan(t)), default=math.nan)


def _drafted_s(case: Case) -> float:
    """Return the time of a token with the tokens per step of the best documented draft, whose passes are not counted.

    A prompt takes as long with a draft as without.
    """
    if case.stack is None or not bare_chip(case.r).default_stack or part(case.r.meaning) not in ("decode", "load"):
        return math.nan
    gains = [one.tokens_per_step for one in options(bare_chip(case.r), case.r.model_id) if one.speculates]
    return case.predicted_s / max(gains) if gains else math.nan


def _without_launch_s(case: Case) -> float:
    """Return the time of a collective without its launch by the host."""
    r = case.r
    arguments = dict(r.arguments) | {"launcher": NONE}
    return time_s(replace(r, arguments=tuple(sorted(arguments.items()))))


def _without_exchange_s(case: Case) -> float:
    """Return what is left of a collective without its messages: the launch by the host."""
    launched_s = _without_launch_s(case)
    return max(case.predicted_s - launched_s, 0.0) if launched_s == launched_s else 0.0


def _ideal_kernel_s(case: Case) -> float:
    """Return the time of a kernel whose engines and queues all work side by side, at their whole rates."""

    def tune(spec: Spec) -> Spec:
        if not isinstance(spec, KernelStack):
            return spec
        shares = ("load_share", "store_share", *(name for name in spec.__dataclass_fields__ if "overlap_" in name))
        rates: dict[str, Any] = dict.fromkeys(shares, 1.0) | {"launch_s": 0.0, "ranges": {}}
        return replace(spec, **rates)

    return time_s(case.r, tune)


def _kernel_in_narrower_s(case: Case) -> float:
    """Return the time of a kernel in the next narrower format that its core multiplies in."""
    arguments = dict(case.r.arguments)
    narrower = {"fp32": "bf16", "bf16": "fp8", "fp16": "fp8"}
    dtype = str(arguments.get("dtype", "bf16")).lower()
    if dtype not in narrower or "dtype" not in arguments:
        return math.nan
    arguments["dtype"] = narrower[dtype]
    return time_s(replace(case.r, arguments=tuple(sorted(arguments.items()))))


# --- what a row states ------------------------------------------------------------------------------------------------


def _states_padded_batch(case: Case) -> bool:
    r = case.reading
    if r is not None:
        return r.compiled_batch > PADDED * r.batch
    return case.record.slots > PADDED * number(case.record.clients)


def _states_padded_context(case: Case) -> bool:
    r = case.reading
    if r is not None and _context(r) == _context(r):
        return r.context > PADDED * _context(r)
    return bool(case.record.buckets == "one" or case.record.context_bucket == "length")


def _states_padded_prompt(case: Case) -> bool:
    r = case.reading
    if r is not None and r.input_tokens == r.input_tokens:
        return r.prompt > PADDED * r.input_tokens
    return bool(case.record.buckets == "one" or case.record.prompt_bucket == "length")


def _states_many_graphs(case: Case) -> bool:
    return case.record.kernels in ("layers", "eager") or case.record.launches > 1


def _states_slow_code(case: Case) -> bool:
    one = case.record
    return one.version == "baseline" or one.code in COMPILED or one.kernels in SLOW_KERNELS


def _states_queue(case: Case) -> bool:
    """Return whether requests wait for each other: more than slots, all at once, or several of which one waits first.

    The latter decides only where nothing can be computed.
    """
    one = case.record
    several = case.reading is None and number(one.clients) > 1 and one.measure in ("first_token", "request")
    return case.clients_per_slot > 1 or one.scheduling == "burst" or one.bound == "prefill" or several


def _states_other_cores(case: Case) -> bool:
    r = case.reading
    return r is not None and r.mapping[3] is not None and r.mapping[3] != bare_chip(r).lnc_default


def _samples_on_host(case: Case) -> bool:
    return isinstance(case.stack, Efficiencies) and math.isfinite(float(case.stack.host_logit_bytes_per_s))


def _states_wide_format(case: Case) -> bool:
    """Return whether a row states FP32: of a model in the cell of its precision, without a cast to BF16."""
    if case.family in SERVED and re.fullmatch(r"(fp|float)32", case.precision.strip(), re.IGNORECASE):
        return True
    return case.record.format == "fp32" or case.record.dtype.lower() in ("fp32", "float32")


def _minor(sdk: str) -> int:
    """Return the minor number of a release of the SDK, 2.28.1 -> 28; -1 for none."""
    parts = sdk.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[0] == "2" and parts[1].isdigit() else -1


@lru_cache(maxsize=1)
def newest_minor() -> int:
    """Return the minor number of the newest release of the Neuron SDK that a list of releases names.

    Examples
    --------
    >>> newest_minor() >= 32
    True
    """
    words = (word for one in releases().values() for word in one.name.replace(",", " ").split())
    return max(map(_minor, words))


def is_old(record: Record) -> bool:
    """Return whether a row states a release of the SDK that is a year old, or older, beside the newest.

    Examples
    --------
    >>> is_old(Record(sdk="2.18.1")), is_old(Record(sdk="2.31")), is_old(Record())
    (True, False, False)
    """
    return 0 <= _minor(record.sdk) <= newest_minor() - OLD_MINORS


def _documented_s(case: Case) -> float:
    """Return the time on the chip's public stack of today; NaN where that is the row's own."""
    if not isinstance(case.stack, Efficiencies):
        return math.nan
    today = replace(case.r, stack="")
    return math.nan if stack_of(today).rows_of == case.stack.rows_of else time_s(today)


MODELS: tuple[Family, ...] = ("language", "encoder", "training")
SERVED: tuple[Family, ...] = ("language", "encoder")
GRAPHS = ("graph_layers", "graph_doubling_s")
LAYER = tuple(name for name in OF_STACKS["layer overhead"] if name not in GRAPHS)
SAMPLING = ("host_logit_bytes_per_s",)
LAUNCH = tuple(name for name in OF_STACKS["launch"] if name not in SAMPLING)
BUCKETS = ("context_bucket", "prompt_bucket", "batch_bucket")
HEADS = tuple(name for name in OF_STACKS["padding"] if name not in BUCKETS)
# in the order in which they stand where nothing can be computed: what most of a step is made of comes first
MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "operators without a hand-written kernel",
        "kernel",
        MODELS,
        "hand-written kernels, such as attn_block_tkg_nki_kernel_enabled, qkv_kernel_enabled and mlp_kernel_enabled of "
        "NxD Inference, or fused attention of a trainer",
        fields=_kernel_fields,
        is_stated=lambda case: case.record.kernels in SLOW_KERNELS,
    ),
    Mechanism(
        "code of the kernel",
        "kernel",
        ("kernel",),
        "a kernel written by hand, with tiles that fill the engine, loads that run ahead and no copy between layouts",
        without_s=_ideal_kernel_s,
        is_stated=_states_slow_code,
        takes_excess=True,
    ),
    Mechanism(
        "messages of the collective",
        "exchange",
        ("collective",),
        "another algorithm, fewer ranks, or a message that is cut so that its parts overlap",
        without_s=_without_exchange_s,
        takes_excess=True,
    ),
    Mechanism(
        "launch of a call by the host",
        "launch",
        ("collective",),
        "several calls in one compiled graph, or a call that the host does not wait for",
        without_s=_without_launch_s,
        is_absent=lambda case: bool(case.record.each),
        takes_excess=True,
    ),
    Mechanism(
        "launch of a kernel by the host",
        "launch",
        ("kernel",),
        "several kernels in one compiled graph",
        is_stated=lambda case: "launch" in case.record.inside,
        takes_excess=True,
    ),
    Mechanism(
        "queue, and steps that wait for prompts of others",
        "scheduling",
        ("language",),
        "fewer requests in flight per replica, chunked prefill, or prompts on machines of their own",
        without_s=_alone_s,
        is_stated=_states_queue,
        is_absent=lambda case: case.record.scheduling in ("static", "single"),
    ),
    Mechanism(
        "fixed work in each layer",
        "layer overhead",
        MODELS,
        "one kernel for the whole layer, and the same layout from one operator to the next",
        fields=_either(LAYER, OF_TRAINERS["layer overhead"]),
    ),
    Mechanism(
        "several graphs in a step",
        "launch",
        SERVED,
        "one compiled graph for all layers; on GPUs CUDA graphs",
        fields=_fields(*GRAPHS),
        is_stated=_states_many_graphs,
        is_absent=lambda case: case.record.kernels in ("mega", "fused"),
    ),
    Mechanism(
        "sampling on the host",
        "launch",
        ("language",),
        "on_device_sampling_config of NxD Inference and vLLM",
        fields=_fields(*SAMPLING),
        is_stated=_samples_on_host,
    ),
    Mechanism(
        "launch of a step by the host",
        "launch",
        MODELS,
        "a longer graph, or a host that prepares the next step meanwhile (async_mode); on GPUs CUDA graphs",
        fields=_either(LAUNCH, OF_TRAINERS["launch"]),
        is_stated=lambda case: case.record.kernels == "eager",
    ),
    Mechanism(
        "exchange between ranks",
        "exchange",
        MODELS,
        "a smaller tensor-parallel degree, sequence_parallel_enabled, or collectives that run beside the work",
        fields=_either(OF_STACKS["exchange"], OF_TRAINERS["exchange"] + OF_TRAINERS["overlap"]),
    ),
    Mechanism(
        "padding to the compiled batch",
        "padding",
        ("language",),
        "batch_size, max_num_seqs or num_seqs_buckets near the sequences that run",
        without_s=_at_its_batch_s,
        is_stated=_states_padded_batch,
    ),
    Mechanism(
        "padding to the bucket of the context",
        "padding",
        ("language",),
        "token_generation_buckets for the lengths that occur",
        without_s=_at_its_context_s,
        is_stated=_states_padded_context,
    ),
    Mechanism(
        "padding to the bucket of the prompt",
        "padding",
        SERVED,
        "context_encoding_buckets or num_batched_tokens_buckets for the prompts that occur",
        without_s=_at_its_prompt_s,
        is_stated=_states_padded_prompt,
    ),
    Mechanism(
        "heads and tiles that are padded or copied",
        "padding",
        MODELS,
        "a tensor-parallel degree that divides the KV heads, or attention_dp_degree",
        fields=_either(HEADS, OF_TRAINERS["padding"]),
    ),
    Mechanism(
        "weights that a step takes to another format",
        "precision",
        ("language",),
        "kernels that multiply in the stored format, or weights in BF16",
        fields=_fields(*OF_STACKS["precision"]),
        is_stated=lambda case: case.record.kernels == "dequantised",
    ),
    Mechanism(
        "number format",
        "precision",
        ("language", "encoder"),
        "quantized weights (FP8, INT8) where the quality allows it; BF16 in place of FP32 (--auto-cast)",
        without_s=_in_narrower_s,
        is_stated=_states_wide_format,
    ),
    Mechanism(
        "number format of the kernel",
        "precision",
        ("kernel",),
        "operands in BF16 in place of FP32, or in FP8 where the quality allows it",
        without_s=_kernel_in_narrower_s,
        is_stated=_states_wide_format,
    ),
    Mechanism(
        "synchronous steps",
        "scheduling",
        ("language",),
        "async_mode of NxD Inference, --async-scheduling of vLLM",
        without_s=_asynchronous_s,
        is_absent=lambda case: case.record.steps == "async",
    ),
    Mechanism(
        "size of a logical core (LNC)",
        "scheduling",
        SERVED,
        "logical_nc_config and NEURON_LOGICAL_NC_CONFIG, with the degree that fills the same cores",
        without_s=_on_other_cores_s,
        is_stated=_states_other_cores,
    ),
    Mechanism(
        "an old release",
        "release",
        ("language", "encoder", "training", "kernel", "collective"),
        "the newest release of the SDK and the engine",
        without_s=_documented_s,
        is_stated=lambda case: is_old(case.record),
        is_absent=lambda case: not is_old(case.record),
        takes_excess=True,
    ),
    Mechanism(
        "no draft proposes tokens",
        DRAFTS,
        ("language",),
        "a draft that the engine documents for the model (EAGLE, multi-token prediction, a smaller model)",
        without_s=_drafted_s,
        is_absent=lambda case: case.record.draft_tokens > 0,
    ),
)
