"""Serving studies: sums, limits and hand-made numbers."""

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import IDEAL
from trnmodel.chapters import serving
from trnmodel.planner import deployments
from trnmodel.steps.deployment import Deployment

LLAMA = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64))
EXPERTS = Deployment(
    model="deepseek-v3", system="trn3-nl72x2-pcie160", mapping=tm.Mapping(tp=4, ep=64), precision="mxfp8"
)
INF2 = Deployment(model="llama-3.1-8b", system="inf2.24xlarge", mapping=tm.Mapping(tp=8))
SHAPE = {"input_tokens": 1024.0, "output_tokens": 256.0}


@pytest.mark.parametrize("d", [LLAMA, EXPERTS, INF2])
def test_step_lies_between_its_bounds_and_its_parts(d):
    parts = serving.anatomy(d, 64, 2048)
    for _, stack in parts.groupby("software"):
        step, resources = stack[stack.part == "step"].iloc[0], stack[stack.part != "step"]
        assert step.time_s_low <= step.time_s <= step.time_s_high
        assert step.time_s_high == pytest.approx(resources.time_s.sum())
        assert step.time_s_low >= resources.time_s.max()


@pytest.mark.parametrize("d", [LLAMA, EXPERTS, INF2])
def test_operators_read_what_the_ideal_step_reads(d):
    step = d.ideal.decode(batch=64, context=2048)
    assert serving.operators(d.ideal, 64, 2048).memory_s.sum() == pytest.approx(float(step.memory_s), rel=1e-6)


def test_weights_of_a_step_by_hand():
    """139.06 GB / 64 ranks at a quarter of 2.9 TB/s: 3.0 ms; one sequence of 1,024 tokens adds 336 MB / 64: 7 us."""
    step = LLAMA.ideal.decode(batch=1, context=1024)
    assert float(step.memory_s) == pytest.approx((139.06e9 + 1024 * 327680) / 64 / 0.725e12, rel=1e-3)


def test_every_loss_of_a_stack_has_a_source():
    lost = serving.efficiency_table(LLAMA.e)
    assert lost.source.ne("").all()
    assert lost["what it is"].ne("").all()
    assert serving.efficiency_table(IDEAL).empty


def test_ideal_machine_turns_to_compute_at_its_ridge():
    """667 TFLOP/s / 2.9 TB/s = 230 FLOP/B: with next to no cache the turn lies between a batch of 128 and 512."""
    step = LLAMA.ideal.decode(batch=np.array([128.0, 256.0]), context=128)
    assert (step.compute_s > step.memory_s).tolist() == [False, True]
    turns = serving.turning_points(serving.regimes(LLAMA, contexts=[128.0]))
    assert turns[turns.software == "ideal"].iloc[0]["from"] == "memory"


def test_one_call_fills_the_map():
    grid = serving.regimes(LLAMA)
    point = LLAMA.decode(batch=16, context=4096)
    row = grid.query("software != 'ideal' and batch == 16 and context == 4096").iloc[0]
    assert row.time_s == pytest.approx(float(point.time_s))
    assert row.bound == point.bound


def test_padding():
    table = serving.prompts(LLAMA, [100, 128, 129, 3000]).set_index(["policy", "input_tokens"])
    assert table.compiled_tokens["compiled bucket"].tolist() == [128, 128, 256, 4096]
    assert (table.padding_share["exact length"] == 0).all()


def test_one_chunk_is_the_prefill_and_none_is_free():
    table = serving.chunks(LLAMA, 2048, [256, 512, 2048], batch=8)
    whole = table.iloc[-1]
    assert whole.prefill_s == whole.ttft_s == pytest.approx(float(LLAMA.prefill(input_tokens=2048).time_s))
    assert table.pieces.tolist() == [8, 4, 1]
    assert (table.prefill_s[:-1] > whole.prefill_s).all()
    assert table.stall_s.is_monotonic_increasing


def test_a_cached_prefix_saves_and_none_saves_nothing():
    table = serving.prefixes(LLAMA, 4096, [0.0, 0.5, 0.9375])
    assert table.speedup[0] == 1
    assert table.new_tokens.tolist() == [4096, 2048, 256]
    assert table.speedup.iloc[-1] > 2


def test_frontier_is_one():
    table = deployments.frontiers("deepseek-v3", ["trn1.32xlarge", "trn3-nl32x2-torus"], 4096.0, ["bf16", "mxfp8"])
    assert set(zip(table.system, table.precision, strict=True)) == {
        ("trn3-nl32x2-torus", "bf16"),
        ("trn3-nl32x2-torus", "mxfp8"),
    }
    for _, line in table.groupby("precision"):
        assert line.tokens_per_s_per_user.is_monotonic_increasing
        assert line.tokens_per_s_per_chip.is_monotonic_decreasing
    assert (table.batch >= table.ep).all()
    equal = deployments.at_interactivity(table, [20.0])
    assert (equal.tokens_per_s_per_user >= 20).all()


def test_dense_models_have_no_expert_degrees():
    assert deployments.expert_degrees("trn2.48xlarge", "llama-3.1-8b").tolist() == [1]
    assert deployments.expert_degrees("trn2.48xlarge", "deepseek-v3").max() == 64


@pytest.mark.parametrize("d", [LLAMA, INF2])
def test_capacity_by_hand_is_where_serving_saturates(d):
    full = deployments.capacity_requests_per_s(d, 8, **SHAPE)
    ask = d.ask | SHAPE | {"max_batch": 8}
    for mode, rate in full.items():
        found = tm.serve(**ask, requests_per_s=rate * np.array([0.995, 1.005]), **deployments.MODES[mode])
        assert found.valid.tolist() == [True, False], mode


def test_load_curves_rise_to_saturation():
    curves = serving.load_curves(LLAMA, 16, **SHAPE, shares=[0.1, 0.5, 0.9, 1.2])
    for mode, line in curves.groupby("mode"):
        assert line.valid.tolist()[:3] == [True] * 3
        if mode != "static batch":
            assert not line.valid.iloc[-1]
            assert line.ttft_p99_s.iloc[:3].is_monotonic_increasing
    long = serving.percentiles(curves, "ttft_p50_s", "ttft_p99_s", ("median", "99th percentile"))
    wide = long.pivot(index=["mode", "requests_per_s"], columns="percentile", values="time_s")
    assert (wide["99th percentile"] >= wide["median"]).all()


def test_drafts_that_are_never_accepted_cost():
    table = deployments.drafts(LLAMA, "llama-3.2-1b", 4, 2048, [3], [0.0, 0.7, 1.0])
    assert table.tokens_per_step.tolist() == pytest.approx([1, 2.533, 4])
    assert table.speedup[0] < 1
    assert table.speedup.is_monotonic_increasing


def test_prefill_apart_by_hand():
    """327,680 B a token x 1,024 tokens over EFA, and prefill time x batch / (output x step) machines a machine."""
    row = deployments.split_phases(LLAMA, ["trn2.48xlarge"], 16, **SHAPE).iloc[0]
    assert row.transfer_bytes == pytest.approx(327680 * 1024)
    chips = row.prefill_s * 16 / (256 * row.step_s) * np.ceil(row.prefill_tp / 4) / 16
    assert row.prefill_chips_per_decode_chip == pytest.approx(chips)


def test_collectives_of_experts_follow_the_all_to_all_of_the_fabric():
    """A chip gets 529 GB/s of an all-to-all in an NL32 rack and 252 GB/s on the torus: 2.1 at most, latency apart."""
    systems = ["trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"]
    table = serving.expert_networks("deepseek-v3", systems, 4096.0, [32, 64], [64.0], "mxfp8")
    times = table.set_index(["system", "chips"]).network_s
    assert 1.5 < times[systems[0], 32] / times[systems[1], 32] < 2.1
    assert times[systems[0], 64] / times[systems[1], 64] == pytest.approx(1, abs=0.15)
    assert times[systems[2], 64] < times[systems[1], 64]


def test_percentiles_of_a_static_batch():
    """A batch of B starts when it is full: a request waits up to (B - 1) / rate, half of it at the median."""
    ask = {"input_tokens": 1000, "output_tokens": 100, "max_batch": 8, "batching": "static"}
    for dp, rate in ((1, 1e-3), (2, 2e-3)):  # two replicas get half of the requests each
        idle = tm.serve("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8, dp=dp), requests_per_s=rate, **ask)
        assert float(idle.prefill_utilisation) < 0.01  # nobody queues, not even one in a hundred
        prefill_s, filling_s = float(idle.prefill_s), (8 - 1) / 1e-3
        assert float(idle.ttft_p50_s) == pytest.approx(prefill_s + 0.50 * filling_s, rel=1e-12)
        assert float(idle.ttft_p99_s) == pytest.approx(prefill_s + 0.99 * filling_s, rel=1e-12)
        assert float(idle.tpot_p99_s) == float(idle.tpot_mean_s) == float(idle.step_s)
    # M/D/1 at utilisation u: the wait beyond which a share p is, s / (2 (1 - u)) ln(u / p), once batches queue
    rate = 0.5 * 8 / (float(idle.prefill_s) + 99 * float(idle.step_s))
    busy = tm.serve("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), requests_per_s=rate, **ask)
    run_s = 8 * 0.5 / rate
    assert float(busy.prefill_utilisation) == pytest.approx(0.5)
    late_s = 0.99 * (8 - 1) / rate + run_s / (2 * (1 - 0.5)) * np.log(0.5 / 0.01)
    assert float(busy.ttft_p99_s) == pytest.approx(float(busy.prefill_s) + late_s)
