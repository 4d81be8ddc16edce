"""What a row or a call does not name counts nothing: every default of a record, by its kind."""

import dataclasses
import importlib
import math
import pkgutil

import msgspec
import pytest

import trnmodel
from trnmodel.catalog.facilities import Power
from trnmodel.catalog.fleets import Fleet
from trnmodel.catalog.prices import Prices
from trnmodel.catalog.specs import Chip, Core
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.catalog.tables import Decision, Source
from trnmodel.catalog.trainers import Trainer
from trnmodel.kernels.engines import Operator
from trnmodel.models.blocks import Attention, Layer, Part
from trnmodel.models.families import Decoder
from trnmodel.models.terms import Cut, Term
from trnmodel.result import Basis
from trnmodel.steps.mapping import Mapping

NAMED = {  # what is neither nothing, nor all of a peak, nor without a limit
    Chip: {"cores": 1, "lnc_default": 1, "hbm_bank_cores": 1},
    System: {"count": 1},
    Fleet: {"checkpoint_bytes_per_param": 16.0, "checkpoint_bytes_per_s": math.inf, "ready_share": 0.999},
    Trainer: {"gradient_bytes": 2.0, "optimizer_bytes": 12.0, "sequence_parts": 1.0},  # FP32 weight and two of Adam
    Efficiencies: {"lone_core_cache_passes": 1.0, "memory_share": 1.0},
    Part: {"copies": 1, "active": 1},
    Layer: {"count": 1},
    Cut: {"heads": 1, "kv_heads": 1},
    Decoder: {"gated_mlp": True, "norms": 2},
    Mapping: dict.fromkeys(("tp", "pp", "dp", "ep", "cp", "moe_ep"), 1),
}
WHOLE = ("stream_share", "matmul_share", "attention_share", "rate_share", "link_share", "scaleout_share", "_overlap")
WHOLE += ("_level", "_ratio", "_slowdown", "gather_reads", "range_factor", "p99_over_p50")
ENDLESS = ("_bytes_per_s", "graph_layers", "fitted_chips", "bucket_bytes")
KINDS = (Power, Fleet, Prices, Core, Chip, Efficiencies, System, Trainer, Operator, Part, Attention, Layer, Decoder)


@pytest.mark.parametrize("kind", [*KINDS, Cut, Term, Basis, Mapping], ids=lambda kind: kind.__name__)
def test_what_is_not_named_counts_nothing(kind):
    known = NAMED.get(kind, {})
    found = kind._field_defaults if hasattr(kind, "_field_defaults") else {f.name: f.default for f in fields(kind)}
    for name, default in found.items():
        if not isinstance(default, int | float) or math.isnan(default):  # NaN: nobody publishes it
            continue
        rule = 1.0 if name.endswith(WHOLE) else math.inf if name.endswith(ENDLESS) else 0.0
        assert default == known.get(name, rule), name


def fields(kind):
    return [f for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING]


def structs():
    for module in pkgutil.walk_packages(trnmodel.__path__, "trnmodel."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    return msgspec.Struct.__subclasses__()


def test_rows_of_files_cannot_be_changed():
    """One row is read by many answers, from a cache."""
    rows = [kind for kind in structs() if kind.__module__.startswith("trnmodel.")]
    assert len(rows) > 20
    assert all(kind.__struct_config__.frozen for kind in rows)


@pytest.mark.parametrize("kind", [Source, Decision])
def test_a_list_with_a_field_that_nobody_reads_is_refused(kind):
    """Tables are read by columns, which are compared; lists in YAML are not."""
    assert kind.__struct_config__.forbid_unknown_fields
