"""The least that each door lets in, and that nothing below it comes in."""

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.fabric.runtime import graph_barrier_s
from trnmodel.formulas import bounds, clos, collectives, tiers, transit
from trnmodel.serving.server import disaggregate

MODEL, NODE = "llama-3.1-8b", "trn2.48xlarge"
HALF = tm.Mapping(tp=8)
SWITCH = {"switch_bits_per_s": 51.2e12, "port_bits_per_s": 400e9}
STATED = {"input_tokens": 128, "output_tokens": 128, "requests_per_s": 0.01}
SPLIT = (MODEL, NODE, HALF, NODE, HALF)
SENT = {"batch": 1, "input_tokens": 128, "output_tokens": 128}


def _step(**given):
    return tm.decode_step(MODEL, NODE, HALF, **{"batch": 1, "context": 8} | given).time_s


def _prompt(**given):
    return tm.prefill(MODEL, NODE, HALF, **{"batch": 1, "input_tokens": 8} | given).time_s


def _fit(**given):
    return tm.memory_fit(MODEL, NODE, HALF, **{"batch": 1, "context": 8} | given).total_bytes


def _served(**given):
    request = tm.Request(**STATED | {name: given.pop(name) for name in STATED if name in given})
    return tm.serve(MODEL, request, NODE, HALF, **{"max_batch": 8} | given).step_s


DOORS = [
    ("layers", 2, lambda x: clos.clos(**SWITCH, layers=x).endpoints),
    ("planes", 1, lambda x: clos.clos(**SWITCH, layers=2, planes=x).endpoints),
    ("chips", 1, lambda x: clos.clos(**SWITCH, layers=2, chips=x).endpoints),
    ("refractive_index", 1, lambda x: transit.fibre_delay_s(100.0, x)),
    ("n_ranks", 1, lambda x: collectives.double_binary_tree_s("all_reduce", 1.0, x, 1e-6, 1e9)),
    ("n_ranks", 1, lambda x: bounds.cut_bound_s("all_reduce", 1.0, x, 1, 1e9)),
    ("k", 1, tiers.ring_link_load),
    ("ranks", 1, graph_barrier_s),
    ("ranks", 1, lambda x: tm.collective("all_reduce", 1e6, NODE, ranks=x).time_s),
    ("chips", 1, lambda x: tm.collective("all_reduce", 1e6, NODE, chips=x).time_s),
    ("stride", 1, lambda x: tm.collective("all_reduce", 1e6, NODE, ranks=2, stride=x).time_s),
    ("context", 1, lambda x: tm.model(MODEL).decode_flop(x)),
    ("tokens", 1, lambda x: tm.model(MODEL).decode_flop(8, tokens=x)),
    *((name, 1, lambda x, name=name: _step(**{name: x})) for name in "batch new_tokens expert_imbalance".split()),
    *((name, 1, lambda x, name=name: _step(**{name: x})) for name in ("context", "compiled_batch")),
    ("max_context", 8, lambda x: _step(max_context=x)),  # the tokens of the context
    *((name, 1, lambda x, name=name: _prompt(**{name: x})) for name in ("batch", "input_tokens", "expert_imbalance")),
    ("past", 0, lambda x: _prompt(past=x)),
    *((name, 1, lambda x, name=name: _fit(**{name: x})) for name in ("batch", "context", "input_tokens")),
    *((name, 1, lambda x, name=name: _served(**{name: x})) for name in ("input_tokens", "output_tokens", "max_batch")),
    ("chunk_tokens", 1, lambda x: _served(chunk_tokens=x)),
    ("max_context", 256, lambda x: _served(max_context=x)),  # input and output tokens
    ("draft_tokens", 0, lambda x: _served(draft_tokens=x)),
    *((name, 1, lambda x, name=name: disaggregate(*SPLIT, **SENT | {name: x}).step_s) for name in SENT),
    *(
        (name, 1, lambda x, i=i: tm.kernel.matmul("trainium2", *[x if i == j else 128 for j in range(3)]).time_s)
        for i, name in enumerate("mnk")
    ),
    ("groups", 1, lambda x: tm.kernel.matmul("trainium2", 128, 128, 128, groups=x).time_s),
    ("compression", 1, lambda x: tm.kernel.matmul("trainium2", 128, 128, 128, compression=x).time_s),
    ("split", 1, lambda x: tm.kernel.matmul("trainium2", 128, 128, 128, split=x).time_s),
    ("rows", 1, lambda x: tm.kernel.elementwise("trainium2", "rmsnorm", x, 128).time_s),
    ("columns", 1, lambda x: tm.kernel.elementwise("trainium2", "rmsnorm", 128, x).time_s),
    ("engines", 1, lambda x: tm.kernel.dma("trainium2", 1e6, 4096, engines=x).time_s),
    ("queries", 1, lambda x: tm.kernel.attention("trainium2", x, 128).time_s),
    ("keys", 1, lambda x: tm.kernel.attention("trainium2", 1, x).time_s),
    ("head_size", 1, lambda x: tm.kernel.attention("trainium2", 128, 128, head_size=x).time_s),
    ("tp", 1, lambda x: tm.Mapping(tp=x).ranks),
    ("count", 1, lambda x: tm.system(NODE, count=x).count),
]


@pytest.mark.parametrize(("name", "least", "call"), DOORS, ids=[f"{n}-{door[0]}" for n, door in enumerate(DOORS)])
def test_the_least_comes_in_and_nothing_below(name, least, call):
    assert np.all(np.isfinite(call(least)))
    with pytest.raises(ValueError, match=rf"{name}="):
        call(least - 0.5)


def test_networks_have_at_most_three_layers():
    assert clos.clos(**SWITCH, layers=3).endpoints > clos.clos(**SWITCH, layers=2).endpoints
    with pytest.raises(ValueError, match="layers="):
        clos.clos(**SWITCH, layers=4)
