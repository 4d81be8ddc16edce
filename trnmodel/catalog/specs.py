"""Frozen specs in base units: what a chip is made of, and what a precision means.

A field's name is the name of the quantity in `data/facts`; a mapping's key is the fact's qualifier (a dtype).
NaN stands for "not published". `sources` maps a field to the ids of the facts that it was built from, `ranges` maps
a field to its low/high pair where sources disagree and nothing decides, `estimates` names the fields whose chosen
fact is our own estimate (confidence D).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

NAN = math.nan


def _mapping():
    """An empty read-only mapping as the default of a field."""
    return field(default_factory=lambda: MappingProxyType({}))


def _check_numbers(spec) -> None:
    """Refuse negative and infinite numbers anywhere in a spec."""
    for spec_field in fields(spec):
        value = getattr(spec, spec_field.name)
        pairs = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, number in pairs:
            if isinstance(number, (int, float)) and not math.isnan(number) and not 0 <= number < math.inf:
                label = f"{spec_field.name}[{key}]" if key else spec_field.name
                raise ValueError(f"{spec.id}: {label} = {number!r} must be finite and not negative")


@dataclass(frozen=True, eq=False, kw_only=True)
class Spec:
    """What every spec has: an id, a printed name and the provenance of its fields."""

    id: str
    name: str = ""
    sources: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )
    ranges: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )
    estimates: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __post_init__(self) -> None:
        self.__setstate__(vars(self).copy())
        _check_numbers(self)

    def __getstate__(self) -> dict:
        """Plain dictionaries, since a read-only view cannot be pickled."""
        return {
            name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in vars(self).items()
        }

    def __setstate__(self, state: dict) -> None:
        for name, value in state.items():
            if isinstance(value, dict):
                value = MappingProxyType(dict(value))
            object.__setattr__(self, name, NAN if value != value else value)  # one NaN, so that equal specs are equal

    def _compared(self) -> tuple:
        return tuple(getattr(self, spec_field.name) for spec_field in fields(self) if spec_field.compare)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self.id))

    def range(self, name: str) -> tuple[float, float]:
        """Low and high of a field ("hbm_bytes_per_s", "peak_flop_per_s[bf16]"); equal where decided."""
        if name in self.ranges:
            return self.ranges[name]
        field_name, _, key = name.rstrip("]").partition("[")
        value = getattr(self, field_name)
        value = value[key] if key else value
        return value, value


@dataclass(frozen=True, eq=False, kw_only=True)
class Engine(Spec):
    """One engine of a NeuronCore: TensorE, VectorE, ScalarE or GPSIMD."""

    clock_hz: float = NAN
    array_rows: float = NAN
    array_cols: float = NAN
    elements_per_cycle: Mapping[str, float] = _mapping()
    peak_flop_per_s: Mapping[str, float] = _mapping()
    sparse_peak_flop_per_s: Mapping[str, float] = _mapping()
    instruction_overhead_cycle: float = NAN
    access_overhead_cycle: float = NAN
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
    """One physical NeuronCore."""

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
    dma_saturating_bytes: float = NAN
    dma_transpose_share: Mapping[str, float] = _mapping()
    dge_instruction_s: float = NAN


@dataclass(frozen=True, eq=False, kw_only=True)
class Chip(Spec):
    """One accelerator chip (package). Peaks are dense, for the whole chip, by compute dtype.

    `lnc_choices` holds the sizes of a logical core that software allows or its vendor has announced.
    """

    vendor: str = ""
    core: Core | None = None
    year: float = NAN
    process: str = ""
    packaging: str = ""
    cores: float = 1
    lnc_choices: tuple[int, ...] = (1,)
    lnc_default: int = 1
    peak_flop_per_s: Mapping[str, float] = _mapping()
    sparse_peak_flop_per_s: Mapping[str, float] = _mapping()
    sustained_flop_per_s: Mapping[str, float] = _mapping()
    hbm_bytes: float = NAN
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
    tdp_w: float = NAN

    def peak(self, dtype: str, sparse: bool = False) -> float:
        """Peak of the whole chip at a compute dtype. [FLOP/s]

        Raises ValueError, naming the dtypes that have a printed peak, where this one has none.
        """
        peaks = self.sparse_peak_flop_per_s if sparse else self.peak_flop_per_s
        if dtype not in peaks:
            kind = "sparse" if sparse else "dense"
            raise ValueError(f"dtype={dtype!r}: {self.id} has no {kind} peak for it; it has {sorted(peaks)}")
        return peaks[dtype]

    def hbm_bytes_per_logical_core(self, lnc: int | None = None) -> float:
        """HBM behind one logical NeuronCore of `lnc` physical cores. [B]

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.chip("trainium3").hbm_bytes_per_logical_core(2) / tm.units.GIB
        36.0
        """
        lnc = self.lnc_default if lnc is None else lnc
        if lnc not in self.lnc_choices:
            raise ValueError(f"lnc={lnc!r}: {self.id} allows {self.lnc_choices}")
        return self.hbm_bytes * lnc / self.cores


@dataclass(frozen=True)
class Precision:
    """Storage and compute dtypes of a model.

    `weights`, `experts` (as the weights unless given), `kv` and `activations` are storage; `compute` is the dtype of
    the linear layers' matrix multiply, `attention` that of the attention's. W4A8 is MXFP4 storage, MXFP8 compute.

    Raises
    ------
    ValueError
        A dtype outside the closed list of `data/dtypes.csv`.

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

    def __post_init__(self) -> None:
        from trnmodel.catalog.load import dtype_aliases, dtypes

        if self.experts is None:
            object.__setattr__(self, "experts", self.weights)
        for part in ("weights", "experts", "kv", "activations", "compute", "attention"):
            given = getattr(self, part)
            dtype = dtype_aliases().get(given, given) if isinstance(given, str) else given
            if not isinstance(dtype, str) or dtype not in dtypes():
                raise ValueError(f"{part}={given!r}: unknown dtype; allowed are {sorted(dtypes())}")
            object.__setattr__(self, part, dtype)

    def storage_bytes(self, part: str) -> float:
        """Bytes of one element of `part` ("weights", "experts", "kv", "activations"), block scales included. [B]"""
        from trnmodel.catalog.load import dtypes

        return dtypes()[getattr(self, part)]
