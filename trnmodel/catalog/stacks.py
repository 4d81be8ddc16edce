"""Software stacks for inference: named efficiencies, overheads and policies, each a row of `data/`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trnmodel.arguments import instance, nearest, one_of, refuse, shown
from trnmodel.catalog import load, posterior, reader
from trnmodel.catalog.names import folded, resolve
from trnmodel.catalog.posterior import Posterior, StackFile
from trnmodel.catalog.specs import Chip, Spec, mapping_field
from trnmodel.declared import CHIP, STACK, declare
from trnmodel.result import Basis

if TYPE_CHECKING:
    import pandas as pd

ExpertRead = Literal["distinct", "per_token", "all"]
KvHeads = Literal["even", "replicate", "multi-head"]
PrefillExperts = Literal["routed", "all", "blocks"]
Bucket = Literal["exact", "power-of-two", "maximum"]
ContextExchange = Literal["ring", "ulysses"]
InGraph = Literal["ring", "mesh doubling", "mesh doubling ring", "one_shot two_shot"]
HeadSplit = Literal["cut", "pad", "divide"]
CacheSplit = Literal["heads", "tokens"]
Tables = Literal["cut", "whole"]
ExpertSplit = Literal["cut", "whole", "divide"]
TensorDegrees = Literal["any", "supported"]  # of those that a chip lists
Kind = Literal["ideal", "hand-tuned", "public", "given"]
Construction = Literal["fitted", "parts"]
CHIP_FIELDS = {"public": "default_stack", "hand-tuned": "hand_tuned_stack"}  # fields of a chip, by word
ENCODER_FIELDS = CHIP_FIELDS | {"public": "encoder_stack"}
KINDS: dict[str, str | None] = {"ideal": "ideal", "hand-tuned": "hand-tuned", "public": None}  # what a call names
Part = Literal["decode", "prefill", "memory"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Efficiencies(Spec):
    """Efficiencies, overheads and policies of a software stack in one SDK era.

    A share is of the printed peak or bandwidth. The class defaults are the ideal stack: nothing is lost, nothing is
    padded, everything is cut evenly. `ranges` holds the low and high of each fitted value. `fitted_on` names the chips
    whose rows the constants of decode, of prefill and of memory come from; where a stack stands in on other chips,
    `range_factor` widens the ranges of what it takes over from its base. A constant may have a fact for one chip, whose
    id is the qualifier: it stands in the place of the general one where the stack is asked for on that chip.
    `construction` is "parts" of a scenario that
    was never fitted as a whole: each part was measured somewhere, and nobody has published all of them together.
    `head_split`, `expert_split` and `tensor_degrees` say what is legal; `steps.legal` reads them.
    Of the device's memory a server may use `memory_share`; each rank's process and its library keep `runtime_bytes` of
    it. The first rank holds `first_rank_bytes` more, and the tables of the vocabulary `whole` where the library does
    not cut them there. Ranks of TP cut the cache by `heads`, and store copies where there are fewer, or by `tokens`.
    A whole decode step takes `decode_level` times what the other constants explain, a whole prefill `prefill_level`
    times; only a calibration on a user's rows moves these.
    `measured_as` names the stack whose rows speak of one that differs in what is legal alone. `parts_measured_on`
    names, for each resource, the chips on which the parts of a scenario were measured. `posterior` is what a
    calibration on a user's rows says of the constants; then bands follow from it.
    """

    JOINED = frozenset({"fitted_on", "parts_measured_on"})

    weight_stream_share: float = 1.0
    kv_stream_share: float = 1.0
    kv_stream_bytes_per_s: float = inf
    decode_matmul_share: float = 1.0
    prefill_matmul_share: float = 1.0
    prefill_attention_share: float = 1.0
    lone_core_cache_passes: float = 1.0
    state_stream_bytes_per_s: float = inf
    mesh_traffic_ratio: float = 1.0
    rdh_traffic_ratio: float = 1.0
    ring_traffic_ratio: float = 1.0
    hop_s: float = 0.0
    one_shot_s: float = 0.0
    one_shot_rate_share: float = 1.0
    two_shot_s: float = 0.0
    two_shot_rate_share: float = 1.0
    shot_rank_s: float = 0.0
    shot_copies: float = 0.0
    host_logit_bytes_per_s: float = inf
    step_overhead_s: float = 0.0
    layer_s: float = 0.0
    dense_layer_s: float = 0.0
    sequence_s: float = 0.0
    graph_layers: float = inf
    graph_doubling_s: float = 0.0
    prefill_overhead_s: float = 0.0
    prefill_layer_s: float = 0.0
    score_passes: float = 0.0
    recurrent_token_s: float = 0.0
    prefill_slowdown: float = 1.0
    prefill_spill_bytes_per_s: float = inf
    expert_tile_columns: float = 0.0
    expert_core_s: float = 0.0
    expert_gather_reads: float = 1.0
    dequantise_passes: float = 0.0
    expert_block_tokens: float = 0.0
    expert_block_s: float = 0.0
    server_step_s: float = 0.0
    server_first_token_s: float = 0.0
    compute_memory_overlap: float = 1.0
    network_overlap: float = 1.0
    logit_gathers: float = 0.0
    phase_overlap: float = 1.0
    p99_over_p50: float = 1.0
    decode_level: float = 1.0
    prefill_level: float = 1.0
    scratchpad_page_bytes: float = 0.0
    collective_buffer_bytes: float = 0.0
    code_bytes_per_layer: float = 0.0
    ring_bytes_per_layer: float = 0.0
    microcode_bytes_per_core: float = 0.0
    runtime_bytes: float = 0.0
    first_rank_bytes: float = 0.0
    first_rank_tables: Tables = "cut"
    memory_share: float = 1.0
    cache_split: CacheSplit = "heads"
    kv_head_policy: KvHeads = "even"
    head_split: HeadSplit = "cut"
    expert_split: ExpertSplit = "cut"
    tensor_degrees: TensorDegrees = "any"
    expert_read: ExpertRead = "distinct"
    prefill_experts: PrefillExperts = "routed"
    context_bucket: Bucket = "exact"
    prompt_bucket: Bucket = "exact"
    context_exchange: ContextExchange = "ring"
    batch_bucket: Bucket = "exact"
    in_graph: InGraph = "ring"
    expert_serial_s: float = 0.0
    expert_spread: float = 0.0
    dispatch_traffic_ratio: float = 1.0
    construction: Construction = "fitted"
    range_factor: float = 1.0
    measured_as: str = ""
    fitted_on: Mapping[str, tuple[str, ...]] = mapping_field()
    parts_measured_on: Mapping[str, tuple[str, ...]] = mapping_field()
    posterior: Posterior | None = None

    @property
    def kind(self) -> Kind:
        """Kind of the stack: ideal, a hand-tuned scenario, public software (values may be changed), or a caller's."""
        if self is IDEAL or not any(_differing(self, IDEAL)):
            return "ideal"
        if self.construction == "parts":
            return "hand-tuned"
        return "public" if self.sources else "given"

    @property
    def movable(self) -> tuple[str, ...]:
        """Constants of steps and servers that a calibration moves: those with a range, and the levels."""
        held = (name for name in self.ranges if name in VALUES and name not in (*OF_MEMORY, *LEVELS))
        ranged = (name for name in held if self.ranges[name][0] < self.ranges[name][1])
        return (*(name for name in ranged if isinstance(getattr(self, name), float) and getattr(self, name)), *LEVELS)

    @property
    def word(self) -> str | None:
        """Word that a call uses for this kind of stack; None means the public one, and a caller's stack has it too."""
        return KINDS.get(self.kind)

    @property
    def rows_of(self) -> str:
        """Id of the stack whose measured rows count for this one: itself, unless `measured_as` names another."""
        return self.measured_as or self.id

    @classmethod
    def _taken_over(cls, older: Mapping[str, Any], newer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a stack takes over from its base, with ranges that its `range_factor` widens."""
        wide = _widened(older, *newer["ranges"].get("range_factor", (1.0, 1.0)))
        return {**older, "ranges": {**older["ranges"], **wide}, "estimates": older["estimates"] | wide.keys()}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prefill_experts == "blocks" and not np.all(np.greater_equal(self.expert_block_tokens, 1)):
            refuse(f"{self.id}: expert_block_tokens", self.expert_block_tokens, "allowed are numbers from 1 for blocks")
        if self.measured_as:
            one_of(f"{self.id}: measured_as", self.measured_as, reader.ids("stack"), "the id of a stack")


LEVELS = ("decode_level", "prefill_level")
OF_MEMORY = frozenset(
    """scratchpad_page_bytes collective_buffer_bytes code_bytes_per_layer ring_bytes_per_layer
    microcode_bytes_per_core runtime_bytes first_rank_bytes memory_share""".split()
)

IDEAL = Efficiencies(id="ideal", name="ideal: nothing lost, nothing padded")


VALUES = tuple(
    one.name
    for one in fields(Efficiencies)
    if one.compare and one.name not in ("id", "name", "fitted_on", "parts_measured_on", "range_factor", "posterior")
)


def _differing(e: Efficiencies, other: Efficiencies) -> Iterator[str]:
    """Names of the values in which two stacks differ."""
    named = () if e is other else VALUES
    return (name for name in named if not np.array_equal(getattr(e, name), getattr(other, name)))


def _widened(arguments: Mapping[str, Any], low: float, high: float) -> dict[str, tuple[float, float]]:
    """Return the ranges of the constants of a stack, from `low` to `high` times each; a share ends at 1."""
    values = {name: arguments[name] for name in VALUES if low < high and name in arguments["sources"]}
    tops = {name: 1.0 if "share" in name or "overlap" in name else inf for name in values}
    return {name: (low * v, min(high * v, tops[name])) for name, v in values.items() if isinstance(v, float) and v}


def kinds(chip: Chip) -> dict[str, str | None]:
    """Return the kinds of stack that a chip has rows for, each with the word that a call names it by.

    Examples
    --------
    >>> import trnmodel as tm
    >>> list(kinds(tm.chip("trainium3"))), list(kinds(tm.chip("tpu-v6e")))
    (['ideal', 'hand-tuned', 'public'], ['ideal', 'public'])
    """
    there = {"ideal": True, "hand-tuned": bool(chip.hand_tuned_stack), "public": bool(chip.default_stack)}
    return {kind: word for kind, word in KINDS.items() if there[kind]}


def stacks() -> list[str]:
    """Ids of all software stacks of `data/`, the ideal one first; ways of writing kernels are `tm.kernel.stack`'s."""
    return ["ideal", *(name for name in reader.ids("stack") if reader.spec(Efficiencies, name).sources)]


def stack_table() -> pd.DataFrame:
    """Return every inference stack with its name and the chips whose public or hand-tuned software it is.

    Returns
    -------
    stacks : pandas.DataFrame
        id, name, kind, public_on (ids of chips whose default it is), hand_tuned_on.

    Examples
    --------
    >>> stack_table().set_index("id").public_on["vllm-neuron-2026"]
    'trainium2 trainium3'
    """
    every = [IDEAL, *(reader.spec(Efficiencies, name) for name in stacks()[1:])]
    return table_of(every, *CHIP_FIELDS.values())


def table_of(specs: Iterable[Spec], public: str, hand_tuned: str) -> pd.DataFrame:
    """Return a row for each stack; the chips are those of which a field, `public` or `hand_tuned`, names it."""
    import pandas as pd

    chips = [load.chip(name) for name in load.chips()]
    rows = []
    for spec in specs:
        row: dict[str, Any] = {"id": spec.id, "name": spec.name, "kind": getattr(spec, "kind", "")}
        for column, field in {"public_on": public, "hand_tuned_on": hand_tuned}.items():
            row[column] = " ".join(chip.id for chip in chips if getattr(chip, field) == spec.id)
        rows.append(row)
    return pd.DataFrame(rows)


@declare(chip=CHIP, stack=STACK)
def efficiencies(chip: str | Chip, stack: str | Efficiencies | None = None) -> Efficiencies:
    """Return the frozen set of efficiencies, overheads and policies of a software stack, with their sources.

    Parameters
    ----------
    chip : str or Chip
        Decides the stack where none is named. [-]
    stack : str or Efficiencies, optional
        "public" (the chip's own, the default), "hand-tuned" (the chip's own scenario), "ideal", the id or name of a
        stack, or a set, which is returned as it is. [-]

    Returns
    -------
    efficiencies : Efficiencies
        `.sources` names the fact behind each value, `.ranges` its low and high.

    Raises
    ------
    ValueError
        Unknown stack (the message lists the nearest); none is named and the chip has no default; no row says what is
        hand-tuned on the chip.

    Examples
    --------
    >>> import trnmodel as tm
    >>> [tm.efficiencies(chip, "hand-tuned").id for chip in ("trainium3", "h200")]
    ['hand-tuned-neuron', 'hand-tuned-gpu']
    """
    return find(load.chip(chip), stack, "stack")


def find(chip: Chip, stack: str | Efficiencies | None, argument: str, kind: str = "") -> Efficiencies:
    """Return the stack that an `argument` of a call names: by a word, by id, or as an object; None is "public".

    The public stack of an encoder (`kind` of its model) is the chip's `encoder_stack`, where it has one.
    """
    if isinstance(stack, Efficiencies):
        return stack
    instance(
        argument, "" if stack is None else stack, str, "the id of a stack, the path of its file, or a stack itself"
    )
    if stack is not None and posterior.is_file(stack):
        return from_file(chip, stack, argument)
    fields = ENCODER_FIELDS if kind == "encoder" and chip.encoder_stack else CHIP_FIELDS
    name = stack_id(chip, stack, argument, "stack", fields)
    if name == "ideal":
        return IDEAL
    e = reader.find(Efficiencies, "stack", name, argument)
    if not e.sources:
        why = f"it is a stack of kernels, for tm.kernel, or data/facts/efficiencies.csv has no row of {e.id}"
        refuse(argument, name, f"{why}; allowed are {', '.join(stacks())}")
    return reader.spec(Efficiencies, e.id, chip.catalog_id)


def from_file(chip: Chip, path: str, argument: str = "efficiencies") -> Efficiencies:
    """Return the stack of a file that a calibration wrote, for use on a chip.

    Raises ValueError, naming the file and the key, for a release or a constant that there is not.
    """
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        state = None  # which reading it tells of
    version = (state.st_mtime_ns, state.st_size) if state else ()
    return _from_file(path, version, argument, chip.catalog_id)


@lru_cache(maxsize=64)
def _from_file(path: str, version: tuple[int, ...], argument: str, chip: str) -> Efficiencies:
    """Return the stack of one version of a file: the same object each time, as results are cached by object."""
    stated = posterior.read(path, argument)
    if stated.stack not in stacks()[1:]:
        near = ", ".join(nearest(stated.stack, stacks()[1:]))
        raise ValueError(f"{stated.origin}: stack={shown(stated.stack)}: there is no such release; nearest: {near}")
    return with_constants(reader.spec(Efficiencies, stated.stack, chip), stated)


def with_constants(base: Efficiencies, stated: StackFile) -> Efficiencies:
    """Return a stack with the constants that a calibration found, and what it knows of them."""
    for name in stated.constants:
        if name not in base.movable:
            near = ", ".join(nearest(name, base.movable))
            raise ValueError(f"{stated.origin}: constants.{name}: {base.id} has no such constant; nearest: {near}")
    known = {name: (one.low, one.high) for name, one in stated.constants.items()}
    named: dict[str, Any] = {"name": f"{base.name}, {stated.posterior.word}", "ranges": {**base.ranges, **known}}
    values: dict[str, Any] = {name: one.value for name, one in stated.constants.items()}
    try:
        return replace(base, posterior=stated.posterior, **named, **values)
    except ValueError as error:
        raise ValueError(f"{stated.origin}: constants: {error}") from None


FACTS_OF = {"stack": "efficiencies.csv", "trainer": "training.csv"}  # where these fields have their rows


def stack_id(chip: Chip, stack: str | None, argument: str, kind: str, chips_own: Mapping[str, str]) -> str:
    """Return the id of the stack of inference or of training that an `argument` of a call names on a chip.

    "public", which None stands for, and "hand-tuned" are the chip's own, in the fields `chips_own`; "ideal" is an id.
    Raises ValueError with the nearest names for any other word that is no id or name of a `kind` ("stack" or
    "trainer"), and where the chip has no such stack.

    Examples
    --------
    >>> stack_id(load.chip("trainium3"), "Hand Tuned", "efficiencies", "stack", CHIP_FIELDS)
    'hand-tuned-neuron'
    >>> stack_id(load.chip("trainium3"), "publik", "efficiencies", "stack", CHIP_FIELDS)
    Traceback (most recent call last):
    ValueError: efficiencies='publik' is unknown; nearest: public, ...
    """
    words = {folded(word): word for word in ("ideal", *chips_own)}
    one = resolve(argument, "public" if stack is None else stack, words | load.ids_by_name(kind))
    if one not in chips_own:
        return one
    own: str = getattr(chip, chips_own[one])
    if not own:
        what = "training stack" if kind == "trainer" else "stack"
        where = f"add a row of {chip.id},{chips_own[one]} to data/facts/{FACTS_OF[kind]}"
        refuse(argument, stack, f"{chip.id} has no {one} {what}; name another one, such as 'ideal', or {where}")
    return own


def basis(e: Efficiencies, chip: Chip, lnc: int, part: Part) -> Basis:
    """Return the basis of an answer of a stack on a chip: "measured" if its constants were fitted on rows of that chip.

    Anything else is extrapolated along the axis that the reason names, or ideal.

    Examples
    --------
    >>> import trnmodel as tm
    >>> basis(tm.efficiencies("trainium2"), tm.chip("trainium2"), 2, "decode").word
    'measured'
    >>> basis(tm.efficiencies("trainium3"), tm.chip("trainium3"), 2, "prefill").reason
    'chip: vllm-neuron-2026 was fitted on inferentia2, trainium2'
    """
    reasons = [] if lnc in chip.lnc_choices else [f"lnc: {lnc} is announced for {chip.id}, not supported"]
    if chip.ratios_to:
        told = f"{chip.id} is announced as ratios to {chip.ratios_to}"
        reasons.append(f"chip: {told}, and what nobody announced is an assumed range")
    on = sorted(e.fitted_on.get(part, ()))
    if e.posterior and part != "memory":
        return e.posterior.basis(chip.id, reasons)
    if e.kind == "ideal":
        return Basis("ideal", "; ".join(reasons))
    changed = (
        list(_differing(e, reader.spec(Efficiencies, e.id, chip.catalog_id)))
        if e.id in stacks()[1:] and not e.posterior
        else [f"{e.id} is none of data/"] * (not e.posterior)
    )
    if changed:
        reasons.append(f"stack: given with the call ({', '.join(changed)})")
    if e.kind == "hand-tuned":
        reasons.append("stack: put together from parts that were measured elsewhere, on no chip as a whole")
    elif chip.id not in on:
        what = f"memory of {e.id} was measured" if part == "memory" else f"{e.id} was fitted"
        reasons.append(f"chip: {what} on {', '.join(on) or 'no chip'}")
    elif chip != load.chip(chip.id):
        reasons.append(f"chip: figures of {chip.id} are given with the call")
    return Basis("extrapolated" if reasons else "measured", "; ".join(reasons))


RESOURCE_OF = {
    "compute": ("matmul", "attention", "softmax"),
    "memory": ("stream",),
    "network": ("traffic", "hop", "shot"),
}


def fitted_resources(e: Efficiencies, chip: Chip, part: Part) -> tuple[str, ...]:
    """Resources of a step on a chip of which a constant was fitted to rows of that chip.

    Those of a scenario of parts are the resources whose part was measured on that chip.

    Examples
    --------
    >>> import trnmodel as tm
    >>> fitted_resources(tm.efficiencies("trainium2", "hand-tuned"), tm.chip("trainium2"), "decode")
    ('compute', 'memory', 'overhead')
    >>> fitted_resources(tm.efficiencies("trainium2"), tm.chip("trainium2"), "decode")
    ('compute', 'memory', 'network', 'overhead')
    >>> fitted_resources(tm.efficiencies("trainium3"), tm.chip("trainium3"), "decode")
    ()
    """
    if e.kind == "hand-tuned":
        return tuple(sorted(name for name, chips in e.parts_measured_on.items() if chip.id in chips))
    if basis(e, chip, chip.lnc_default, part).word != "measured":
        return ()
    other = "prefill" if part == "decode" else "decode"
    own = [name for name in _differing(e, IDEAL) if name in e.estimates and not name.startswith(other)]
    resources = set()
    for name in own:
        named = [resource for resource, stems in RESOURCE_OF.items() if any(stem in name for stem in stems)]
        resources |= set(named or (["overhead"] if name.endswith("_s") else []))
    return tuple(sorted(resources))
