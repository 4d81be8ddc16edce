"""What the chapters ask with a reader's parameters: zero, negative, NaN, empty and unknown are refused by name."""

import math

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import (
    chip_roofline,
    common,
    rack,
)
from trnbook.chapters import memory_fit_printed as footprints
from trnbook.shared import domain_sizes, placements, rack_drawing
from trnbook.shared import fabrics as compare
from trnmodel.fabric import scaleout
from trnmodel.models import synthetic as synthetic_models
from trnmodel.search import deployments, sizing
from trnmodel.search.frontier import frontiers
from trnmodel.steps.deployment import Deployment

RACK, LLAMA = "trn3-nl32x2-pcie160", "llama-3.1-8b"
D = Deployment(model=LLAMA, system="trn2.48xlarge", mapping=tm.Mapping(tp=16))
SHAPE = {"batch": 16, "context": 2048}
REQUEST = tm.Request(1024, 128)
SERVED = {"max_batch": 16, "request": REQUEST}
CALLS = [
    (common.peaks, {"chips": ["trainium2"], "dtypes": ["bf16"]}),
    (chip_roofline.arrays, {"chips": ["trainium2"]}),
    (chip_roofline.weight_formats, {"chip": "trainium3", "precisions": ["bf16"]}),
    (chip_roofline.reuse, {"chip": "trainium2", "bytes_per_weight": 2.0, "batch_at_ridge": 230.0}),
    (chip_roofline.disagreements, {"entities": ["trainium1"], "quantities": ["hbm_bytes"]}),
    (chip_roofline.rulings, {"entities": ["trainium1"]}),
    (Deployment.fit, {"self": D, **SHAPE}),
    (sizing.largest_batch, {"d": D, "contexts": [4096.0], "tps": [8]}),
    (sizing.longest_context, {"d": D, "batches": [1.0], "tps": [8]}),
    (sizing.across, {"d": D, "systems": ["trn2.48xlarge"], "precisions": ["bf16"], "contexts": [4096.0]}),
    (sizing.smallest, {"models": [LLAMA], "systems": ["trn2.48xlarge"], "precisions": ["bf16"], **SHAPE}),
    (common.logical_cores, {"chips": ["trainium2"]}),
    (compare.capacities, {"names": [RACK]}),
    (rack.verdicts, {"systems": [RACK]}),
    (rack_drawing.drawing, {"system": RACK}),
    (scaleout.networks, {"system": RACK}),
    (scaleout.port_choice, {"system": RACK, "chips": 8192, "port_bits_per_s": [100e9]}),
    (frontiers, {"model": LLAMA, "request": REQUEST, "systems": ["trn1.2xlarge"], "precisions": ["bf16"]}),
    (frontiers, {"tokens_per_s_per_user": [20.0]}),
    (deployments.saturation, {"d": D, **SERVED}),
    (deployments.drafts, {"d": D, "draft_tokens": [3], **SHAPE}),
    (deployments.split_phases, {"d": D, "prefill_systems": ["trn1.32xlarge"], "batch": 16}),
    (deployments.ratios, {"d": D, "prefill_systems": ["trn1.32xlarge"], "batch": 16, "output_tokens": [128]}),
    (domain_sizes.walls, {"names": [RACK], "precisions": ["bf16"], "rates": [50.0]}),
    (domain_sizes.ratios, {"rules": ["experts"], "sizes": [1e12], "precisions": ["bf16"], "contexts": [8192.0]}),
    (placements.exchanges, {"model": "deepseek-v3", "names": [RACK]}),
    (placements.steps, {"model": "deepseek-v3", "names": [RACK], "sequences_per_chip": [32.0], "context": 8192}),
    (synthetic_models.synthetic, {"total_params": 1e12, "base": "deepseek-v3"}),
    (synthetic_models.family, {"rules": ["experts"], "sizes": [1e12], "base": "deepseek-v3"}),
]
REST = {  # arguments that no chapter takes from its parameters, or whose zero is an answer
    deployments.drafts: {"draft_model": "llama-3.2-1b", "acceptance": [0.5]},
    deployments.split_phases: {"input_tokens": 1024, "output_tokens": 128},
    deployments.ratios: {"input_tokens": 1024},
    frontiers: {"model": LLAMA, "request": REQUEST, "systems": ["trn1.2xlarge"]},
    domain_sizes.ratios: {"rates": [20.0]},
    placements.exchanges: {"tokens_per_chip": [16.0]},
    synthetic_models.synthetic: {"rule": "experts"},
}
FREE = ("entities", "quantities", "dtypes")  # what is not there answers nothing
# the words of an element are its own: one chip of several, one system, one model
SINGULAR = {"names": "system", "rivals": "system", "prefill_systems": "system", "sizes": "sizes|total_params"}


def wrong_values(name, value):
    """Values that the argument cannot have, of the sort of the one that it has."""
    if isinstance(value, str):
        return ["nobody", "", None, 7, ["x"], math.nan]
    if isinstance(value, list) and isinstance(value[0], str):
        return [[], None, 7, "", [None], [[]]] + ([["nobody"]] if name not in FREE else [])
    if isinstance(value, list):
        return [[], [-1], [math.nan], [math.inf], None, "x", ["x"], [None], [[1], [2, 3]], [10**400]]
    return [0, -1, math.nan, math.inf, None, "x", [], [[1], [2, 3]], 10**400, {}]


CASES = [(call, given, name) for call, given in CALLS for name in given if name not in ("d", "self")]


@pytest.mark.parametrize(
    ("call", "given", "name"), CASES, ids=[f"{c.__module__[9:]}.{c.__name__}-{n}" for c, _, n in CASES]
)
def test_a_wrong_value_is_refused_by_name(call, given, name):
    words = f"{name}|{SINGULAR.get(name, name.removesuffix('s'))}"
    for wrong in wrong_values(name, given[name]):
        with pytest.raises(ValueError, match=words):
            call(**given | REST.get(call, {}) | {name: wrong})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chip_roofline.arrays(["trainium2", "h100"]), "chips='h100': it has no NeuronCores"),
        (lambda: common.logical_cores(["trainium2", "h100"]), "chips='h100'"),
        (lambda: sizing.largest_batch(D, [2.0**20], [8]), "contexts=.*longest context"),
        (lambda: compare.capacities(["trn1.2xlarge"]), "names=.*more than one chip"),
        (lambda: placements.exchanges("deepseek-v3", ["trn1.2xlarge"], [1.0]), "names=.*trn1.2xlarge"),
        (lambda: placements.traffic("deepseek-v3", RACK, dtypes=("bf16",)), "dtypes="),
        (lambda: placements.placement("EP", RACK), "name='EP'"),
        (lambda: placements.named_stack(["ideal"]), "stack="),
        (lambda: synthetic_models.synthetic(1e12, base=LLAMA), "base='llama-3.1-8b': its configuration has no"),
        (lambda: synthetic_models.synthetic(1e12, ["experts"]), "rule="),
        (lambda: scaleout.distances("inf2.xlarge"), "system='inf2.xlarge': no scale-out rate"),
        (lambda: deployments.split_phases(D, ["mi210-4"], 1, 128, 128), "prefill_systems=.*computes in bf16"),
        (lambda: footprints.rule("magic"), "quantity='magic'"),
    ],
)
def test_what_a_known_name_cannot_answer(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_lists_may_be_arrays_tuples_and_keys():
    """The chapters pass arrays, tuples and dictionaries of names."""
    wanted = sizing.largest_batch(D, [2048.0, 4096.0], [8, 16])
    assert sizing.largest_batch(D, np.array([2048, 4096]), np.array([8, 16])).equals(wanted)
    assert common.peaks(dict.fromkeys(["trainium2"]), ("bf16",)).equals(common.peaks(["trainium2"], ["bf16"]))
