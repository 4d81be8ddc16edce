"""What the chapters ask with a reader's parameters: zero, negative, NaN, empty and unknown are refused by name."""

import math

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.chapters import (
    chips,
    domain_sizes,
    fabrics,
    fits,
    kernel_tables,
    needs,
    placements,
    racks,
    scaleout,
    serving_load,
    serving_tables,
    transfers,
)
from trnmodel.evidence import footprints
from trnmodel.models import synthetic as synthetic_models

RACK, LLAMA = "trn3-nl32x2-pcie160", "llama-3.1-8b"
D = serving_tables.Deployment(model=LLAMA, system="trn2.48xlarge", mapping=tm.Mapping(tp=16))
SHAPE = {"batch": 16, "context": 2048}
SERVED = {"max_batch": 16, "input_tokens": 1024, "output_tokens": 128}
CALLS = [
    (chips.rooflines, {"chips": ["trainium2"], "dtypes": ["bf16"], "intensity_flop_per_byte": [300.0]}),
    (chips.peaks, {"chips": ["trainium2"], "dtypes": ["bf16"]}),
    (chips.logical_devices, {"chips": ["trainium2"]}),
    (chips.arrays, {"chips": ["trainium2"]}),
    (chips.weight_formats, {"chip": "trainium3", "precisions": ["bf16"]}),
    (chips.matmul_ceilings, {"chip": "trainium2", "dtype": "bf16", "side": [256.0]}),
    (chips.disagreements, {"entities": ["trainium1"]}),
    (chips.rulings, {"entities": ["trainium1"]}),
    (fits.fit, {"d": D, **SHAPE}),
    (fits.notation, {"d": D, **SHAPE}),
    (fits.by_kind, {"d": D, **SHAPE}),
    (fits.by_lnc, {"d": D, **SHAPE}),
    (fits.largest_batch, {"d": D, "contexts": [4096.0], "tps": [8]}),
    (fits.longest_context, {"d": D, "batches": [1.0], "tps": [8]}),
    (fits.across, {"d": D, "systems": ["trn2.48xlarge"], "precisions": ["bf16"], "contexts": [4096.0]}),
    (fits.smallest, {"models": [LLAMA], "systems": ["trn2.48xlarge"], "precisions": ["bf16"], **SHAPE}),
    (fits.copies, {"d": D, "tps": [8], **SHAPE}),
    (fits.buckets, {"d": D, **SHAPE}),
    (fits.scratchpads, {"d": D, "prompts": [128.0], "tps": [16]}),
    (footprints.cache_budgets, {"d": D, "context": 8192}),
    (kernel_tables.by_side, {"chip": "trainium2", "dtypes": ["bf16"], "side": [1024.0]}),
    (kernel_tables.by_rows, {"chip": "trainium2", "m": [1590], "n": 8960, "k": 1536, "dtype": "bf16"}),
    (kernel_tables.cores, {"chip": "trainium2", "side": 8192.0, "dtype": "bf16"}),
    (kernel_tables.dma_rows, {"chips": ["trainium2"]}),
    (kernel_tables.strided, {"chip": "trainium2", "widths": [512.0]}),
    (kernel_tables.logical_cores, {"chips": ["trainium2"], "choices": [1]}),
    (kernel_tables.decode_levels, {"chip": "trainium2", "weight_bytes": 16e9}),
    (needs.notation, {"model": "deepseek-v3", "precision": "fp8"}),
    (needs.sizes, {"models": ["deepseek-v3"]}),
    (needs.places, {"models": ["deepseek-v3"]}),
    (needs.phases, {"model": LLAMA, "input_tokens": 128, "precision": "bf16", **SHAPE}),
    (needs.caches, {"models": [LLAMA], "contexts": [1024.0], "dtype": "bf16"}),
    (needs.formats, {"model": LLAMA, "precisions": ["bf16"]}),
    (needs.step_bytes, {"model": LLAMA, "batches": [1.0], "precision": "bf16"}),
    (needs.experts_met, {"models": ["deepseek-v3"], "batches": [1.0]}),
    (needs.masks, {"model": LLAMA, "tokens": [128.0]}),
    (fabrics.capacities, {"names": [RACK]}),
    (fabrics.notation, {"system": RACK}),
    (racks.fabrics, {"systems": [RACK]}),
    (racks.drawing, {"system": RACK}),
    (scaleout.reach, {"port_bits_per_s": [100e9]}),
    (scaleout.networks, {"system": RACK}),
    (scaleout.port_choice, {"system": RACK, "chips": 8192, "port_bits_per_s": [100e9]}),
    (transfers.kv_transfer, {"model": LLAMA, "system": RACK, "tokens": [8192], "chips": 16, "precision": "bf16"}),
    (serving_tables.anatomy, {"d": D, **SHAPE}),
    (serving_tables.operators, {"d": D, **SHAPE}),
    (serving_tables.prompts, {"d": D, "input_tokens": [512.0]}),
    (serving_tables.chunks, {"d": D, "input_tokens": 2048, "chunk_tokens": [512.0], "batch": 16}),
    (serving_tables.prefixes, {"d": D, "input_tokens": 2048}),
    (serving_load.frontiers, {"model": LLAMA, "systems": ["trn1.2xlarge"], "context": 2048, "precisions": ["bf16"]}),
    (serving_load.saturation, {"d": D, **SERVED}),
    (serving_load.load_curves, {"d": D, "shares": [0.5], **SERVED}),
    (serving_load.drafts, {"d": D, "draft_tokens": [3], **SHAPE}),
    (serving_load.split_phases, {"d": D, "prefill_systems": ["trn1.32xlarge"], "batch": 16}),
    (serving_load.ratios, {"d": D, "prefill_systems": ["trn1.32xlarge"], "batch": 16, "output_tokens": [128]}),
    (domain_sizes.walls, {"names": [RACK], "precisions": ["bf16"], "rates": [50.0]}),
    (domain_sizes.best, {"model": LLAMA, "system": RACK, "context": 8192, "precision": "mxfp8"}),
    (placements.exchanges, {"model": "deepseek-v3", "names": [RACK]}),
    (placements.steps, {"model": "deepseek-v3", "names": [RACK], "sequences_per_chip": [32.0], "context": 8192}),
    (synthetic_models.synthetic, {"total_params": 1e12, "base": "deepseek-v3"}),
    (synthetic_models.family, {"rules": ["experts"], "sizes": [1e12], "base": "deepseek-v3"}),
]
REST = {  # arguments that no chapter takes from its parameters, or whose zero is an answer
    kernel_tables.decode_levels: {"mbu": 0.5},
    needs.step_bytes: {"context": 4096},
    serving_tables.prefixes: {"shares": [0.5]},
    serving_load.drafts: {"draft_model": "llama-3.2-1b", "acceptance": [0.5]},
    serving_load.split_phases: {"input_tokens": 1024, "output_tokens": 128},
    serving_load.ratios: {"input_tokens": 1024},
    domain_sizes.best: {"tokens_per_s_per_user": [50.0]},
    placements.exchanges: {"tokens_per_chip": [16.0]},
    synthetic_models.synthetic: {"rule": "experts"},
}
# the words of an element are its own: one chip of several, one system, one model
SINGULAR = {"names": "system", "prefill_systems": "system", "sizes": "sizes|total_params"}


def wrong_values(name, value):
    """Values that the argument cannot have, of the sort of the one that it has."""
    if isinstance(value, str):
        return ["nobody", "", None, 7, ["x"], math.nan]
    if isinstance(value, list) and isinstance(value[0], str):
        return [[], None, 7, "", [None], [[]]] + ([["nobody"]] if name not in ("entities", "dtypes") else [])
    if isinstance(value, list):
        return [[], [-1], [math.nan], [math.inf], None, "x", ["x"], [None], [[1], [2, 3]], [10**400]]
    return [0, -1, math.nan, math.inf, None, "x", [], [[1], [2, 3]], 10**400, {}]


CASES = [(call, given, name) for call, given in CALLS for name in given if name != "d"]


@pytest.mark.parametrize(
    ("call", "given", "name"), CASES, ids=[f"{c.__module__[17:]}.{c.__name__}-{n}" for c, _, n in CASES]
)
def test_a_wrong_value_is_refused_by_name(call, given, name):
    words = f"{name}|{SINGULAR.get(name, name.removesuffix('s'))}"
    for wrong in wrong_values(name, given[name]):
        with pytest.raises(ValueError, match=words):
            call(**given | REST.get(call, {}) | {name: wrong})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chips.arrays(["trainium2", "h100"]), "chips='h100': it has no NeuronCores"),
        (lambda: kernel_tables.notation("h100", {"tensor.clock_hz": "f"}), "chips='h100'"),
        (lambda: kernel_tables.logical_cores(["trainium1"], [1, 8]), "choices=.*trainium1 has 2 cores"),
        (lambda: fits.largest_batch(D, [2.0**20], [8]), "contexts=.*longest context"),
        (lambda: fabrics.capacities(["trn1.2xlarge"]), "names=.*more than one chip"),
        (lambda: placements.exchanges("deepseek-v3", ["trn1.2xlarge"], [1.0]), "names=.*trn1.2xlarge"),
        (lambda: placements.traffic("deepseek-v3", RACK, dtypes=("bf16",)), "dtypes="),
        (lambda: placements.placement("EP", RACK), "name='EP'"),
        (lambda: placements.named_stack(["ideal"]), "stack="),
        (lambda: synthetic_models.synthetic(1e12, base=LLAMA), "base='llama-3.1-8b': its configuration has no"),
        (lambda: synthetic_models.synthetic(1e12, ["experts"]), "rule="),
        (lambda: transfers.distances("inf2.xlarge"), "system='inf2.xlarge': no scale-out rate"),
        (lambda: serving_load.split_phases(D, ["mi210-4"], 1, 128, 128), "prefill_systems=.*computes in bf16"),
        (lambda: footprints.rule("magic"), "quantity='magic'"),
    ],
)
def test_what_a_known_name_cannot_answer(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_encoders_keep_no_cache():
    bert = serving_tables.Deployment(model="bert-large-uncased", system="trn2.48xlarge", mapping=tm.Mapping(tp=1))
    assert fits.copies(bert, [1, 2], 1, 128).part.unique().tolist() == ["weights"]
    with pytest.raises(ValueError, match="an encoder keeps no cache"):
        footprints.cache_budgets(bert, 128)


def test_lists_may_be_arrays_tuples_and_keys():
    """The chapters pass arrays, tuples and dictionaries of names."""
    wanted = fits.largest_batch(D, [2048.0, 4096.0], [8, 16])
    assert fits.largest_batch(D, np.array([2048, 4096]), np.array([8, 16])).equals(wanted)
    assert chips.peaks(dict.fromkeys(["trainium2"]), ("bf16",)).equals(chips.peaks(["trainium2"], ["bf16"]))
