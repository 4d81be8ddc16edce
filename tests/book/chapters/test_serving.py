"""Serving studies: sums, limits and hand-made numbers."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import serving
from trnmodel.search import deployments
from trnmodel.search.frontier import frontiers
from trnmodel.search.grid import expert_degrees
from trnmodel.steps.deployment import Deployment

LLAMA = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64))
INF2 = Deployment(model="llama-3.1-8b", system="inf2.24xlarge", mapping=tm.Mapping(tp=8))
SHAPE = {"input_tokens": 1024.0, "output_tokens": 256.0}
REQUEST = tm.Request(**SHAPE)


def test_frontier_is_one():
    systems, speeds = ["trn1.32xlarge", "trn3-nl32x2-torus"], [5.0, 10.0, 20.0]
    table = serving.in_each("deepseek-v3", tm.Request(3584, 512), systems, speeds, ["bf16", "mxfp8"])
    assert set(zip(table.system, table.precision, strict=True)) == {
        ("trn3-nl32x2-torus", "bf16"),
        ("trn3-nl32x2-torus", "mxfp8"),
    }
    for _, line in table.groupby("precision"):
        assert line.promised_tokens_per_s_per_user.is_monotonic_increasing
        assert line.tokens_per_s_per_chip.is_monotonic_decreasing
    assert (table.batch >= table.ep).all()
    assert (table.tokens_per_s_per_user >= table.promised_tokens_per_s_per_user * (1 - 1e-9)).all()
    assert (table.tokens_per_s_per_chip < table.decode_tokens_per_s_per_chip).all()


def test_a_row_of_a_frontier_is_the_answer_of_the_plan():
    """The same request has one number, one band and one chance, whoever asks."""
    ask = {"precision": "bf16", "efficiencies": None}
    row = serving.fronts(LLAMA, REQUEST, ["trn2.48xlarge"], [20.0]).iloc[0]
    best = tm.plan(LLAMA.model, tm.Request(**SHAPE, tokens_per_s_per_user=20), "trn2.48xlarge", **ask).best
    assert [row.tp, row.ep, row.batch, row.option] == [best.tp, best.ep, best.batch, best.option.name]
    ends = row.tokens_per_s_per_chip_low, row.tokens_per_s_per_chip, row.tokens_per_s_per_chip_high
    assert ends == pytest.approx((float(best.low), best.tokens_per_s_per_chip, float(best.high)), rel=1e-12)
    assert row.chance == best.chance


def test_dense_models_have_no_expert_degrees():
    assert expert_degrees("trn2.48xlarge", "llama-3.1-8b").tolist() == [1]
    assert expert_degrees("trn2.48xlarge", "deepseek-v3").max() == 64


@pytest.mark.parametrize("d", [LLAMA, INF2])
def test_capacity_by_hand_is_where_serving_saturates(d):
    full = deployments.saturation(d, 8, REQUEST).set_index("mode").requests_per_s
    ask = d.ask | {"max_batch": 8}
    for mode, rate in full.items():
        arriving = tm.Request(**SHAPE, requests_per_s=rate * np.array([0.995, 1.005]))
        found = tm.serve(**ask, request=arriving, **deployments.MODES[mode])
        assert found.valid.tolist() == [True, False], mode


def test_the_rate_that_fills_a_replica_has_the_band_of_its_times():
    """8 / (256 t + 8 P) with every time at its slow end is the least, with each at its fast end the most."""
    step = LLAMA.decode(batch=8, context=1024 + 128, max_context=1280)
    prompt = LLAMA.prefill(input_tokens=1024, batch=1, max_context=1280)
    row = deployments.saturation(LLAMA, 8, REQUEST).set_index("mode").loc["compiled batch"]
    ends = {"": ("time_s", "time_s"), "_low": ("high", "high"), "_high": ("low", "low")}
    for end, (t, p) in ends.items():
        rate = LLAMA.mapping.dp * 8 / (256 * getattr(step, t) + 8 * getattr(prompt, p))
        assert row["requests_per_s" + end] == pytest.approx(float(rate))
        assert row["generated_tokens_per_s_per_chip" + end] == pytest.approx(float(rate) * 256 / LLAMA.chips)
    assert row.requests_per_s_low < row.requests_per_s < row.requests_per_s_high


def test_load_curves_rise_to_saturation():
    curves = serving.load_curves(LLAMA, 16, REQUEST, shares=[0.1, 0.5, 0.9, 1.2])
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
    ask = {"max_batch": 8, "batching": "static"}
    for dp, rate in ((1, 1e-3), (2, 2e-3)):  # two replicas get half of the requests each
        request = tm.Request(1000, 100, requests_per_s=rate)
        idle = tm.serve("llama-3.1-8b", request, "trn2.48xlarge", tm.Mapping(tp=8, dp=dp), **ask)
        assert float(idle.prefill_utilisation) < 0.01  # nobody queues, not even one in a hundred
        first_s, filling_s = float(idle.prefill_s) + idle.stack.server_first_token_s, (8 - 1) / 1e-3
        assert float(idle.ttft_p50_s) == pytest.approx(first_s + 0.50 * filling_s, rel=1e-12)
        assert float(idle.ttft_p99_s) == pytest.approx(first_s + 0.99 * filling_s, rel=1e-12)
        assert float(idle.tpot_p99_s) == float(idle.tpot_mean_s) == float(idle.step_s)
    # M/D/1 at utilisation u: the wait beyond which a share p is, s / (2 (1 - u)) ln(u / p), once batches queue
    rate = 0.5 * 8 / (float(idle.prefill_s) + 99 * float(idle.step_s))
    request = tm.Request(1000, 100, requests_per_s=rate)
    busy = tm.serve("llama-3.1-8b", request, "trn2.48xlarge", tm.Mapping(tp=8), **ask)
    run_s = 8 * 0.5 / rate
    assert float(busy.prefill_utilisation) == pytest.approx(0.5)
    late_s = 0.99 * (8 - 1) / rate + run_s / (2 * (1 - 0.5)) * np.log(0.5 / 0.01)
    assert float(busy.ttft_p99_s) == pytest.approx(float(busy.prefill_s) + busy.stack.server_first_token_s + late_s)


def line(system, each, user, **more):
    ends = {"tokens_per_s_per_chip_low": each / 2, "tokens_per_s_per_chip_high": each * 2, "basis": "measured"}
    ends["chance"] = 0.9
    return {"system": system, "tokens_per_s_per_chip": each, "tokens_per_s_per_user": user, "tp": 8.0} | ends | more


def test_systems_stand_side_by_side_at_one_speed():
    nothing = dict.fromkeys(["tp", "ep", "batch", *serving.YIELD], np.nan)
    rows = [line("a", 40.0, 25.0, ep=1.0, batch=4.0), line("b", 20.0, 25.0) | nothing]
    table = pd.DataFrame(rows).assign(promised_tokens_per_s_per_user=20.0)
    found = serving.by_speed(table, {"a": "A", "b": "B", "c": "C"}, {"c": "does not fit: 412 of 96 GiB"})
    assert found.to_dict("records") == [
        {
            "promised_tokens_per_s_per_user": 20.0,
            "A": "40 (20 to 80): TP 8, batch 4",
            "B": "too slow",
            "C": "does not fit: 412 of 96 GiB",
        }
    ]


def test_claims_follow_the_ranking():
    called = {"a": "A", "b": "B"}
    ranked = [pd.DataFrame([line("a", 30.0, 25.0), line("b", each, 25.0)]) for each in (10.0, 29.5)]
    assert serving.claim(ranked[0], called) == "A yields 3 times the next"
    assert serving.claim(ranked[1], called) == "A and B tie"
    assert serving.claim(ranked[0].head(1), called) == "A alone is so fast"
    first = pd.Series(line("a", 30.0, 25.0, ep=1.0, batch=4.0))
    assert serving.describe_line(first, called, True) == (
        "A with 30 (15 to 60; measured) tokens/s per paid chip, TP 8, batch 4, promise kept in 90% of the draws"
    )
    sure = serving.describe_line(first.replace(0.9, 1.0), called, True)
    assert sure == "A with 30 (15 to 60; measured) tokens/s per paid chip, TP 8, batch 4"
    assert serving.describe_line(first, called, False) == "A with at most 25 tokens/s for a user, TP 8, batch 4"


def test_gains_are_over_bf16_of_the_same_system():
    made = [("a", "bf16", 10.0), ("a", "fp8", 25.0), ("b", "bf16", 4.0), ("b", "fp8", 6.0), ("c", "fp8", 9.0)]
    rows = [line(system, each, 25.0, precision=dtype) for system, dtype, each in made]
    found = serving.gains(pd.DataFrame(rows))
    assert found == {("a", "fp8"): 2.5, ("b", "fp8"): 1.5}
    assert serving.most(found) == "Smaller weights yield more: fp8 2.5 times BF16"
    assert serving.most({}) == serving.most({("a", "fp8"): 1.01}) == "No precision yields more here"
    assert serving.by_system(found, {"a": "A", "b": "B"}) == "A 2.5 in fp8; B 1.5 in fp8"
    assert serving.gains(pd.DataFrame(rows[1:2])) == {}


def test_collectives_are_compared_where_both_systems_have_them():
    rows = [("a", 8, 1, 1.0), ("b", 8, 1, 2.0), ("a", 8, 2, 2.0), ("b", 8, 2, 6.0), ("a", 8, 4, 9.0), ("b", 16, 1, 1.0)]
    wires = pd.DataFrame(rows, columns=["system", "chips", "batch_per_chip", "network_s"])
    assert serving.slower(wires, "b", "a") == {8: 3.0}
    assert serving.slower(wires, "b", "a", most=1) == {8: 2.0}
    assert serving.slower(wires, "b", "x") == {}


def test_a_system_is_asked_in_a_format_that_its_chip_has():
    d = Deployment(model="llama-3.1-405b", system="trn3-nl32x2-torus", mapping=tm.Mapping(tp=64), precision="mxfp8")
    names = ["trn1.32xlarge", "trn2.48xlarge", "trn3-nl32x2-torus"]
    table = serving.fronts(d, tm.Request(3584, 512), names, [1.0, 10.0])
    assert table.groupby("system").precision.unique().map(list).to_dict() == {
        "trn2.48xlarge": ["bf16"],
        "trn3-nl32x2-torus": ["mxfp8"],
    }
    why = serving.refused(d, tm.Request(3584, 512), table, names)
    assert list(why) == ["trn1.32xlarge"]
    need, have = (float(word.replace(",", "")) for word in why["trn1.32xlarge"].split() if word[0].isdigit())
    assert (have, need > 405.85e9 * 2 / 2**30) == (16 * 32, True)


def test_a_draft_needs_room_and_length():
    short = Deployment(model="gpt2", system="inf2.xlarge", mapping=tm.Mapping())
    assert "ends at 1,024" in serving.no_draft(short, tm.model("gpt2"), 1, 2000)
    small = Deployment(model="llama-3.1-8b", system="inf2.24xlarge", mapping=tm.Mapping(tp=8))
    why = serving.no_draft(small, tm.model("llama-3.1-70b"), 1, 512)
    assert why.startswith("llama-3.1-70b, TP 8: does not fit: ")


def test_graphs_end_where_the_longest_context_does():
    """A graph for 9,216 tokens reads a cache of as many; without an end it is compiled for 16,384."""
    row = frontiers("llama-3.1-70b", tm.Request(9200, 16), ["trn2.48xlarge"], [20.0]).iloc[0]
    ask = {"context": 9208, "max_context": 9216}
    chosen = {"batch": row.batch, "efficiencies": row.stack}
    step = tm.decode_step("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=row.tp, ep=row.ep), **ask, **chosen)
    assert row.decode_tokens_per_s_per_chip == pytest.approx(float(step.tokens_per_s_per_chip))
    mapping, ask = tm.Mapping(tp=32), {"batch": 16, "context": 9208}
    ends = [tm.decode_step("llama-3.1-70b", "trn2.48xlarge", mapping, max_context=end, **ask) for end in (None, 9216)]
    alone = [float(step.tokens_per_s_per_chip) for step in ends]
    assert alone[1] > 1.2 * alone[0]


def test_the_fastest_choice_of_each_system_where_no_promise_is_kept():
    """No mapping is faster for a user than the one that comes nearest to a promise which nobody keeps."""
    found = serving.fastest(LLAMA, REQUEST, ["trn1.32xlarge", "trn2.48xlarge"])
    assert found.system.tolist() == ["trn2.48xlarge", "trn1.32xlarge"]
    assert found.tokens_per_s_per_user.is_monotonic_decreasing
    reached = serving.fronts(LLAMA, REQUEST, ["trn2.48xlarge"], [found.tokens_per_s_per_user.iloc[0] * 1.001])
    assert reached.empty
