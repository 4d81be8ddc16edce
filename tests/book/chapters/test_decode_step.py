"""A decode step and a prefill taken apart: sums, limits and hand-made numbers."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import decode_step
from trnmodel.catalog.stacks import IDEAL
from trnmodel.search.sizing import remedy, shortfall
from trnmodel.steps.deployment import Deployment

LLAMA = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64))
EXPERTS = Deployment(
    model="deepseek-v3", system="trn3-nl72x2-pcie160", mapping=tm.Mapping(tp=4, ep=64), precision="mxfp8"
)
INF2 = Deployment(model="llama-3.1-8b", system="inf2.24xlarge", mapping=tm.Mapping(tp=8))


@pytest.mark.parametrize("d", [LLAMA, EXPERTS, INF2])
def test_step_lies_between_its_bounds_and_its_parts(d):
    parts = decode_step.anatomy(d, 64, 2048)
    for _, stack in parts.groupby("software"):
        step, resources = stack[stack.part == "step"].iloc[0], stack[stack.part != "step"]
        assert step.time_s_low <= step.time_s <= step.time_s_high
        assert step.time_s_high == pytest.approx(resources.time_s.sum())
        assert step.time_s_low >= resources.time_s.max()


@pytest.mark.parametrize("d", [LLAMA, EXPERTS, INF2])
def test_operators_read_what_the_ideal_step_reads(d):
    step = d.ideal.decode(batch=64, context=2048)
    assert decode_step.operators(d.ideal, 64, 2048).memory_s.sum() == pytest.approx(float(step.memory_s), rel=1e-6)


def test_weights_of_a_step_by_hand():
    """139.06 GB / 64 ranks at a quarter of 2.9 TB/s: 3.0 ms; one sequence of 1,024 tokens adds 336 MB / 64: 7 us."""
    step = LLAMA.ideal.decode(batch=1, context=1024)
    assert float(step.memory_s) == pytest.approx((139.06e9 + 1024 * 327680) / 64 / 0.725e12, rel=1e-3)


def test_every_loss_of_a_stack_has_a_source():
    lost = decode_step.efficiency_table(LLAMA.e)
    assert lost.source.ne("").all()
    assert lost["what it is"].ne("").all()
    assert decode_step.efficiency_table(IDEAL).empty


def test_ideal_machine_turns_to_compute_at_its_ridge():
    """667 TFLOP/s / 2.9 TB/s = 230 FLOP/B: with next to no cache the turn lies between a batch of 128 and 512."""
    step = LLAMA.ideal.decode(batch=np.array([128.0, 256.0]), context=128)
    assert (step.compute_s > step.memory_s).tolist() == [False, True]
    turns = decode_step.turning_points(decode_step.regimes(LLAMA, contexts=[128.0]))
    assert turns[turns.software == "ideal"].iloc[0]["from"] == "memory"


def test_one_call_fills_the_map():
    grid = decode_step.regimes(LLAMA)
    point = LLAMA.decode(batch=16, context=4096)
    row = grid.query("software != 'ideal' and batch == 16 and context == 4096").iloc[0]
    assert row.time_s == pytest.approx(float(point.time_s))
    assert row.bound == point.bound


def test_padding():
    table = decode_step.prompts(LLAMA, [100, 128, 129, 3000]).set_index(["policy", "input_tokens"])
    assert table.compiled_tokens["compiled bucket"].tolist() == [128, 128, 256, 4096]
    assert (table.padding_share["exact length"] == 0).all()


def test_one_chunk_is_the_prefill_and_none_is_free():
    table = decode_step.chunks(LLAMA, 2048, [256, 512, 2048], batch=8)
    whole = table.iloc[-1]
    assert whole.prefill_s == whole.ttft_s == pytest.approx(float(LLAMA.prefill(input_tokens=2048).time_s))
    assert table.pieces.tolist() == [8, 4, 1]
    assert (table.prefill_s[:-1] > whole.prefill_s).all()
    assert table.stall_s.is_monotonic_increasing


def test_a_cached_prefix_saves_and_none_saves_nothing():
    table = decode_step.prefixes(LLAMA, 4096, [0.0, 0.5, 0.9375])
    assert table.speedup[0] == 1
    assert table.new_tokens.tolist() == [4096, 2048, 256]
    assert table.speedup.iloc[-1] > 2


def test_shares_of_operators_are_of_the_step():
    table = decode_step.operators(LLAMA, 16, 4096)
    assert (table.longer_s > 0).all()
    assert table.share_of_step.sum() < 1
    step_s = float(LLAMA.decode(batch=16, context=4096).time_s)
    assert table.share_of_step.tolist() == pytest.approx((table.longer_s / step_s).tolist())
    assert not table.operator.str.contains(": ").any(), "layers that are all alike have no name"
    assert decode_step.operators(EXPERTS, 512, 4096).operator.str.contains(": ").any()


def test_what_takes_over_is_told_by_the_first_batch_of_another_resource():
    lines = {1.0: ["memory", "memory", "network", "does not fit"], 2.0: ["memory"] * 4, 4.0: ["does not fit"] * 4}
    rows = [("x", 2.0**n, context, bound) for context, line in lines.items() for n, bound in enumerate(line)]
    grid = pd.DataFrame(rows, columns=["software", "batch", "context", "bound"])
    told = [decode_step.takes_over(grid, "x", context) for context in lines]
    assert told[0] == "Network takes longest from batch 4 on"
    assert told[1:] == ["Memory takes longest at every batch", "Not even one sequence fits"]


def test_pauses_and_first_tokens_are_two_lines():
    pieces = pd.DataFrame({"chunk_tokens": [8.0, 16.0], "ttft_s": [3.0, 2.0], "stall_s": [1.0, 2.0], "basis": "ideal"})
    long = decode_step.waits(pieces).set_index(["what", "chunk_tokens"]).time_s
    assert long["first token of the prompt"].tolist() == [3.0, 2.0]
    assert long["longest pause of the others"].tolist() == [1.0, 2.0]


def test_changes_hold_what_was_asked_and_say_why_a_point_is_missing():
    """64 ranks are all of the system; at TP 8 a rank holds 17.6 GB, and 32 x 8,192 x 328 kB / 8 = 10.7 GB of cache."""
    table = decode_step.changes(LLAMA, 16, 4096, 3584).set_index("changed")
    assert table.step_s["nothing"] == float(LLAMA.decode(batch=16, context=4096).time_s)
    assert table["why not"]["TP 128"].startswith("more ranks than the system has")
    assert np.isnan(table.step_s["TP 128"])
    assert table.step_s["ideal software"] < table.step_s["hand-tuned software"] < table.step_s["nothing"]
    assert table.decode_tokens_per_s_per_chip["batch 32"] > table.decode_tokens_per_s_per_chip["nothing"]
    eight = Deployment(model=LLAMA.model, system=LLAMA.system, mapping=tm.Mapping(tp=8))
    why = decode_step.changes(eight, 16, 8192, 128).set_index("changed")["why not"]
    assert why["nothing"] == why["TP 16"] == ""
    for name in ("batch 32", "context 16,384"):
        need, _, have = why[name].removeprefix("does not fit: ").split()[:3]
        assert (17.6e9 + 10.7e9) / 2**30 < float(need) < 1.2 * (17.6e9 + 10.7e9) / 2**30
        assert have == "24"
    odd = decode_step.changes(Deployment(model="gpt2", system="inf2.xlarge", mapping=tm.Mapping(tp=1)), 1, 1000, 999)
    assert not odd.changed.str.contains("TP 0|batch 0|context").any(), "half of one, and a context beyond the longest"


def test_what_lacks_is_weights_and_cache_over_the_ranks():
    """405.85e9 x 2 B = 811.7 GB and 16 x 4,096 tokens of 2 x 126 x 8 x 128 x 2 B = 33.8 GB: 787.4 GiB, and buffers."""
    big = Deployment(model="llama-3.1-405b", system="trn2.48xlarge", mapping=tm.Mapping(tp=1))
    need, _, have = shortfall(big, 16, 4096).removeprefix("does not fit: ").split()[:3]
    least = (405.85e9 * 2 + 16 * 4096 * 2 * 126 * 8 * 128 * 2) / 2**30
    assert least < float(need) < 1.02 * least
    assert float(have) == 96 / 4
    held = Deployment(model=big.model, system=big.system, mapping=tm.Mapping(tp=64))
    assert (remedy(big, 16, 4096), shortfall(held, 16, 4096)) == ("tp = 64 holds it", "")
    experts = Deployment(model="deepseek-v3", system="trn3-nl32x2-torus", mapping=tm.Mapping(tp=8))
    assert " with ep = " in remedy(experts, 16, 4096)
    nowhere = Deployment(model="deepseek-v3", system="inf2.xlarge", mapping=tm.Mapping())
    assert remedy(nowhere, 1, 128) == "no tp and ep hold it there"
