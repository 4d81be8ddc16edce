"""A decode step and a prefill taken apart: sums, limits and hand-made numbers."""

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import IDEAL
from trnmodel.chapters import decode_step
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
