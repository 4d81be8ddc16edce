"""Frozen specs in base units: chips with their cores and engines, and precisions.

A field's name is the name of the quantity in `data/facts`; a mapping's key is the fact's qualifier (a dtype). What a
field may hold follows from its annotation, its name and its default, and is checked when a spec is made. A number may
be an array, but for the `COUNTS` of a spec, which shape a graph or a rank and are one number. NaN stands for "not
published". `sources` maps a field to the ids of the facts that it was built from, `ranges` maps a field to its low/high
pair where sources disagree and nothing decides, `estimates` names the fields whose chosen fact is our own estimate
(confidence D).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

from trnmodel.arguments import HUGE, TINY, choice, flag, instance, integer, label, number, numbers, refuse, text
from trnmodel.result import card_of, describe

NAN = math.nan
ROUNDING = 1e-9
STORED = ("weights", "experts", "kv", "activations")
Check = Callable[[str, Any], Any]


def published(value: Any, otherwise: Any) -> Any:
    """Return a figure where it is published, another one where it is not.

    Examples
    --------
    >>> published(NAN, 2.0), published(1.0, 2.0), published(np.array([NAN, 1.0]), 2.0).tolist()
    (2.0, 1.0, [2.0, 1.0])
    """
    if isinstance(value, float):
        return otherwise if value != value else value
    return np.where(np.isnan(value), otherwise, value)


def mapping_field(**more: Any) -> Any:
    """Return a field whose default is an empty read-only mapping."""
    return field(default_factory=lambda: MappingProxyType({}), **more)


def _number_check(spec_field: Field) -> Check:
    """Return the check of a number: rates, sizes and shares are above 0; times, overlaps and defaults of 0 may be 0.

    A share and an overlap end at 1. "Not published" and "no limit" are allowed where they are the default.
    """
    name, default = spec_field.name, spec_field.default
    time = name.endswith(("_s", "_cycle")) and "_per_" not in name
    low = 0.0 if default == 0 or time or "overlap" in name or name.endswith("_passes") else TINY
    high = 1.0 if "overlap" in name or name.endswith("share") else default if default == math.inf else HUGE
    reach = 1 + ROUNDING if high == 1 else min(high, HUGE)  # a fit may end one rounding beyond 1
    unknown = default is MISSING or default != default

    def check(label: str, value: Any) -> Any:
        if type(value) is float or (type(value) is int and value <= HUGE):
            if low <= value <= reach and not 0 < value < TINY:
                return float(min(value, high))
            if unknown and value != value:
                return NAN  # one NaN, so that equal specs are equal
        array = np.array(numbers(label, value, low, high, unknown=unknown))
        if np.any((array > HUGE) & np.isfinite(array)):
            refuse(label, value, f"allowed are numbers up to {HUGE:.15g}, and infinity for no limit")
        array.setflags(write=False)
        return array if array.ndim else float(array)

    return check


def _one(item: Check) -> Check:
    """Return the check of one number that may not be an array."""

    def check(label: str, value: Any) -> Any:
        checked = item(label, value)
        if np.ndim(checked):
            refuse(label, value, "allowed is one number, for it shapes the machine")
        return checked

    return check


def _items_check(kind: type, item: Check) -> Check:
    """Return the check of a tuple or a set, by the check of its items."""

    def check(label: str, value: Any) -> Any:
        if not isinstance(value, tuple | list | set | frozenset):
            refuse(label, value, f"allowed is a {kind.__name__}")
        return kind([item(label, one) for one in value])

    return check


def _mapping_check(item: Check) -> Check:
    """Return the check of a mapping from words, by the check of its items; a checked mapping is read-only."""

    def check(label: str, value: Any) -> Any:
        known = instance(label, value, Mapping, "a mapping from words")
        return MappingProxyType({text(label, key): item(f"{label}[{key}]", known[key]) for key in known})

    return check


def _pair(label: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        refuse(label, value, "allowed is a low and a high")
    low, high = (number(label, end, high=math.inf, unknown=True) for end in value)
    return low, high


def _check(spec_field: Field, hint: Any, counts: frozenset[str]) -> Check:
    """Return the check of a field, by its annotation."""
    kind, inner = get_origin(hint), get_args(hint)
    one_number = _number_check(spec_field)
    if spec_field.name in counts:
        one_number = _one(one_number)
    if hint is float:
        return one_number
    if hint is int:
        return lambda label, value: integer(label, value, 0 if spec_field.default == 0 else 1)
    if hint is str:
        return text
    if kind is Literal:
        return lambda label, value: choice(label, value, inner)
    if kind is tuple:
        return _items_check(tuple, integer)
    if kind is frozenset:
        return _items_check(frozenset, text)
    if kind is Mapping:
        pairs = inner[1] == tuple[float, float]
        items = one_number if inner[1] is float else _pair if pairs else _items_check(tuple, text)
        return _mapping_check(items)
    wanted = inner or (hint,)
    allowed = " or ".join("None" if one is type(None) else one.__name__ for one in wanted)
    return lambda label, value: instance(label, value, wanted, allowed)


@cache
def _checks(spec_type: type[Any]) -> tuple[tuple[str, Check], ...]:
    """Return the checks of a kind of spec, by field."""
    hints = get_type_hints(spec_type)
    counts = spec_type.COUNTS
    return tuple((one.name, _check(one, hints[one.name], counts)) for one in fields(spec_type))


def _shape(value: Any) -> tuple[int, ...]:
    """Shape of what a field holds: of a number, of the numbers of a mapping, or of another spec."""
    if isinstance(value, Mapping):
        return np.broadcast_shapes(*map(_shape, value.values()))
    return value.shape if isinstance(value, Spec | np.ndarray) else ()


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one is other or one == other


@dataclass(frozen=True, eq=False, kw_only=True)
class Spec:
    """What every spec has: an id, a printed name and the provenance of its fields.

    `COUNTS` are the numbers that shape a graph, a rank or a bill of parts: they are never arrays. `JOINED` are the
    mappings that an entity and its base state together, key by key. `SHOWN` are the fields that a printed spec shows;
    where it is empty, a spec prints as the call that makes it.
    """

    COUNTS: ClassVar[frozenset[str]] = frozenset()
    JOINED: ClassVar[frozenset[str]] = frozenset()
    SHOWN: ClassVar[tuple[str, ...]] = ()

    id: str
    name: str = ""
    sources: Mapping[str, tuple[str, ...]] = mapping_field(repr=False, compare=False)
    ranges: Mapping[str, tuple[float, float]] = mapping_field(repr=False, compare=False)
    estimates: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __init_subclass__(cls, **more: Any) -> None:
        if vars(cls).get("SHOWN"):  # before the dataclass writes a form of its own
            cls.__repr__ = Spec._printed  # type: ignore[assignment, method-assign]

    def _printed(self) -> str:
        """Return the name and the id of a spec, then what is published of the fields that it shows."""
        head = f"{type(self).__name__}: {self.id if self.name in ('', self.id) else f'{self.name} ({self.id})'}"
        return "\n  ".join(card_of(head, describe(self, self.SHOWN)))

    def __post_init__(self) -> None:
        label("id", self.id)
        kind: Any = type(self)
        for name, check in _checks(kind):
            object.__setattr__(self, name, check(f"{self.id}: {name}", getattr(self, name)))

    @classmethod
    def _taken_over(cls, older: Mapping[str, Any], newer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what an entity takes over from its base: all of it, unless a kind of spec says otherwise."""
        return older

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape that the arrays among the numbers broadcast to; () for a spec of plain numbers."""
        return np.broadcast_shapes(*map(_shape, vars(self).values()))

    def __getstate__(self) -> dict:
        """Plain dictionaries, since a read-only view cannot be pickled."""
        return {
            name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in vars(self).items()
        }

    def __setstate__(self, state: dict) -> None:
        for name, value in state.items():
            if isinstance(value, dict):
                value = MappingProxyType(dict(value))
            object.__setattr__(self, name, NAN if isinstance(value, float) and value != value else value)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        compared = (spec_field.name for spec_field in fields(self) if spec_field.compare)
        return all(_same(getattr(self, name), getattr(other, name)) for name in compared)

    def __hash__(self) -> int:
        return hash((type(self), self.id))

    def at(self, name: str) -> Any:
        """Return a number by field ("hbm_bytes_per_s"), or by field and key ("peak_flop_per_s[bf16]")."""
        value = _held(self, text("name", name))
        if not isinstance(value, int | float | np.ndarray):
            refuse("name", name, f'allowed is a number of {self.id}, such as "hbm_bytes" or "peak_flop_per_s[bf16]"')
        return value

    def moved(self, values: Mapping[str, Any]) -> Self:
        """Return the spec with other numbers, named as in `at`: `chip.moved({"peak_flop_per_s[bf16]": 6e14})`."""
        changes: dict[str, Any] = {}
        for which, value in instance("values", values, Mapping, "a mapping of names to numbers").items():
            if not isinstance(which, str) or not isinstance(_held(self, which), int | float | np.ndarray):
                refuse("values", which, f"allowed are names of numbers of {self.id}")
            name, _, key = which.removesuffix("]").partition("[")
            held = changes.get(name, getattr(self, name))
            changes[name] = {**held, key: value} if isinstance(held, Mapping) else value
        return replace(self, **changes)

    @cached_property
    def open_ranges(self) -> dict[str, tuple[float, float]]:
        """Low and high of numbers that are open; a range that does not hold its value is of what the value replaced."""
        held = ((name, ends, _held(self, name)) for name, ends in self.ranges.items())
        return {name: ends for name, ends, value in held if isinstance(value, float) and ends[0] <= value <= ends[1]}

    def range(self, name: str) -> tuple[Any, Any]:
        """Low and high of a field, named as `at` names it; equal where decided."""
        return self.ranges[name] if text("name", name) in self.ranges else (self.at(name),) * 2


def _held(spec: Spec, which: str) -> Any:
    """Return what a field holds, or its mapping under a key; None where there is neither."""
    name, _, key = which.removesuffix("]").partition("[")
    value = vars(spec).get(name)
    return value.get(key) if isinstance(value, Mapping) else value if not key else None


def shapes(**specs: Spec | None) -> dict[str, np.ndarray]:
    """Stand-ins with the shapes of the specs that hold arrays, by argument, for `arguments.together`."""
    by_argument = {name: () if spec is None else spec.shape for name, spec in specs.items()}
    return {name: np.broadcast_to(0.0, shape) for name, shape in by_argument.items() if shape}


ASK_NARROW = "ask in a precision that multiplies linear layers and attention in these alone, such as 'mxfp8-attn8'"


@dataclass(frozen=True, eq=False, kw_only=True)
class Engine(Spec):
    """One engine of a NeuronCore: TensorE, VectorE, ScalarE or GPSIMD."""

    clock_hz: float = NAN
    array_rows: float = NAN
    array_cols: float = NAN
    elements_per_cycle: Mapping[str, float] = mapping_field()
    peak_flop_per_s: Mapping[str, float] = mapping_field()
    sparse_peak_flop_per_s: Mapping[str, float] = mapping_field()
    instruction_overhead_cycle: float = NAN
    access_overhead_cycle: float = NAN
    mx_access_overhead_cycle: float = NAN
    min_initiation_cycle: float = NAN
    exponential_ratio: float = NAN
    max_stationary_cols: float = NAN
    max_moving_cols: float = NAN
    fp32_cost_ratio: float = NAN
    fast_load_stationary_ratio: float = NAN
    processors: float = NAN
    throttle_share: float = NAN
    throttle_ramp_s: float = NAN


@dataclass(frozen=True, eq=False, kw_only=True)
class Core(Spec):
    """One physical NeuronCore.

    `dma_linear_bytes` are the contiguous bytes below which DMA slows down in proportion. In `fill_s` of a product
    TensorE has nothing to multiply yet, or no more: first panels in, last block out. `indirect_access` and
    `background_transpose` are 1 where the core has them. `native_weight_dtypes` lists, by compute dtype, what TensorE
    takes without dequantisation ("same": that dtype alone).
    """

    tensor: Engine
    vector: Engine
    scalar: Engine
    gpsimd: Engine
    sbuf_bytes: float = NAN
    sbuf_partitions: float = NAN
    sbuf_partition_bytes: float = NAN
    psum_bytes: float = NAN
    psum_banks: float = NAN
    dma_bytes_per_s: float = NAN
    dma_engines: float = NAN
    dma_engine_bytes_per_s: float = NAN
    dma_engine_peak_bytes_per_s: float = NAN
    dma_start_s: float = NAN
    fill_s: float = 0.0
    dma_saturating_bytes: float = NAN
    dma_transpose_share: Mapping[str, float] = mapping_field()
    dma_linear_bytes: float = NAN
    dge_instruction_s: float = NAN
    indirect_access: float = 0.0
    background_transpose: float = 0.0
    native_weight_dtypes: Mapping[str, tuple[str, ...]] = mapping_field()


@dataclass(frozen=True, eq=False, kw_only=True)
class Chip(Spec):
    """One accelerator chip (package). Peaks are dense, for the whole chip, by compute dtype.

    `catalog_id` is the catalog's chip that this one was made from: constants of software that were measured on it hold.
    `ratios_to` is the id of the chip to which an announcement gives its ratios; it is empty for a chip that is built.
    `lnc_choices` holds the sizes of a logical core that software allows today, `lnc_announced` those to come,
    `tensor_degrees` the degrees of TP that its runtime supports (empty where nobody lists them), and `hbm_bank_cores`
    the cores that reach a bank of HBM together. `default_stack` is the software where a call names none,
    `encoder_stack` that of an encoder, `hand_tuned_stack` the scenario that "hand-tuned" means, `training_stack` and
    `hand_tuned_training_stack` what trains. `algorithm_max_bytes` ends the messages of an algorithm of AWS's library,
    and `hbm_accesses_per_pair` counts what its rings read and write. A collective that a host launches takes
    `collective_launch_s` beside its steps. It reaches `collective_rate_share` of the links where a library of GPUs
    was measured; on NeuronCores the buffer of each rank passes through its DMA queues at
    `collective_pass_bytes_per_s`, by the physical cores of the rank. `intra_chip_bytes_per_s` is what the ranks of
    one chip send each other, all together, in an all-reduce of a graph.
    """

    COUNTS = frozenset({"cores", "hbm_bank_cores", "scaleup_domain_chips"})
    SHOWN = (
        "vendor",
        "core",
        "cores",
        "peak_flop_per_s",
        "hbm_bytes",
        "hbm_bytes_per_s",
        "scaleup_bytes_per_s_per_dir",
        "scaleout_bytes_per_s_per_dir",
        "tdp_w",
        "default_stack",
        "training_stack",
    )

    vendor: str = ""
    catalog_id: str = ""
    ratios_to: str = ""
    core: Core | None = None
    year: float = NAN
    process: str = ""
    packaging: str = ""
    cores: float = 1
    lnc_choices: tuple[int, ...] = (1,)
    tensor_degrees: tuple[int, ...] = ()
    lnc_announced: tuple[int, ...] = ()
    lnc_default: int = 1
    peak_flop_per_s: Mapping[str, float] = mapping_field()
    sparse_peak_flop_per_s: Mapping[str, float] = mapping_field()
    sustained_flop_per_s: Mapping[str, float] = mapping_field()
    hbm_bytes: float = NAN
    hbm_bank_cores: float = 1
    hbm_bytes_per_s: float = NAN
    hbm_stacks: float = NAN
    hbm_stack_bytes: float = NAN
    hbm_stack_pins: float = NAN
    hbm_pin_bytes_per_s: float = NAN
    hbm_type: str = ""
    sbuf_bytes: float = NAN
    dma_engines: float = NAN
    dma_bytes_per_s: float = NAN
    collective_cores: float = NAN
    scaleup_links: float = NAN
    scaleup_lanes: float = NAN
    scaleup_lanes_redundant: float = NAN
    scaleup_bytes_per_s_per_dir: float = NAN
    scaleup_domain_chips: float = NAN
    scaleout_bytes_per_s_per_dir: float = NAN
    scaleout_max_bytes_per_s_per_dir: float = NAN
    hop_s: float = NAN
    intra_chip_bytes_per_s: float = NAN
    collective_launch_s: float = 0.0
    collective_rate_share: float = 1.0
    collective_pass_bytes_per_s: Mapping[str, float] = mapping_field()
    tdp_w: float = NAN
    idle_share: float = NAN
    all_in_w: float = NAN
    busy_core_share: float = NAN
    algorithm_max_bytes: Mapping[str, float] = mapping_field()
    hbm_accesses_per_pair: Mapping[str, float] = mapping_field()
    default_stack: str = ""
    encoder_stack: str = ""
    hand_tuned_stack: str = ""
    training_stack: str = ""
    hand_tuned_training_stack: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lnc_default not in self.lnc_choices:
            refuse(f"{self.id}: lnc_default", self.lnc_default, f"allowed are its lnc_choices, {self.lnc_choices}")

    def peak(self, dtype: str, sparse: bool = False) -> float:
        """Peak of the whole chip at a compute dtype [FLOP/s].

        Raises ValueError, naming the dtypes that have a printed peak, where this one has none.
        """
        peaks = self.sparse_peak_flop_per_s if flag("sparse", sparse) else self.peak_flop_per_s
        if not isinstance(dtype, str) or dtype not in peaks:
            more = f"; nobody has announced another, so {ASK_NARROW}" if self.ratios_to else ""
            kind = "sparse" if sparse else "dense"
            refuse("dtype", dtype, f"{self.id} has no {kind} peak for it; it has {[*peaks]}{more}")
        return peaks[dtype]

    def logical(self, lnc: int | None = None) -> int:
        """Physical cores of a logical one: as asked for, if allowed or announced, else by the chip's default.

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.chip("trainium3").logical(), tm.chip("trainium3").logical(8), tm.chip("trainium3").lnc_announced
        (2, 8, (8,))
        """
        cores = self.lnc_default if lnc is None else integer("lnc", lnc)
        if cores not in (*self.lnc_choices, *self.lnc_announced):
            more = f", and {self.lnc_announced} are announced" if self.lnc_announced else ""
            refuse("lnc", lnc, f"{self.id} allows {self.lnc_choices}{more}")
        return cores


@dataclass(frozen=True)
class Precision:
    """Storage and compute dtypes of a model.

    `weights`, `experts` (as the weights unless given), `kv` and `activations` are storage; `compute` is the dtype of
    the linear layers' matrix multiply, `attention` that of the attention's. W4A8 is MXFP4 storage, MXFP8 compute.

    With `sparse`, linear layers multiply at the peak that a chip prints for structured sparsity: the caller says that
    the model was pruned to it. Weights are stored and read whole all the same. A chip without such a peak for `compute`
    refuses it.

    Raises
    ------
    ValueError
        A dtype outside the closed list of `data/lists/dtypes.csv`.

    Examples
    --------
    >>> Precision(weights="mxfp4", compute="mxfp8").storage_bytes("experts")
    0.53125
    """

    weights: str = "bf16"
    experts: str | None = None
    kv: str = "bf16"
    activations: str = "bf16"
    compute: str = "bf16"
    attention: str = "bf16"
    name: str = field(default="custom", kw_only=True)
    sparse: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        from trnmodel.catalog.load import dtype_aliases, dtypes

        flag("sparse", self.sparse)

        if self.experts is None:
            object.__setattr__(self, "experts", self.weights)
        text("name", self.name)
        for part in ("weights", "experts", "kv", "activations", "compute", "attention"):
            dtype_name = getattr(self, part)
            dtype = dtype_aliases().get(dtype_name, dtype_name) if isinstance(dtype_name, str) else dtype_name
            object.__setattr__(self, part, choice(part, dtype, dtypes()))

    def storage_bytes(self, part: str) -> float:
        """Bytes of one element of `part` ("weights", "experts", "kv", "activations"), block scales included [B]."""
        from trnmodel.catalog.load import dtypes

        return dtypes()[getattr(self, choice("part", part, STORED))]
