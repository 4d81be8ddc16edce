"""Serving: sums, limits and hand-made numbers of the calls that the chapter makes, and the tables that it shapes."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import serving
from trnbook.shared import case, choices
from trnmodel.evidence.tables import OUTSIDE, accuracy
from trnmodel.search import deployments
from trnmodel.search.frontier import frontiers
from trnmodel.search.grid import expert_degrees
from trnmodel.steps.deployment import Deployment

LLAMA = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64))
INF2 = Deployment(model="llama-3.1-8b", system="inf2.24xlarge", mapping=tm.Mapping(tp=8))
SHAPE = {"input_tokens": 1024.0, "output_tokens": 256.0}
REQUEST = tm.Request(**SHAPE)


def test_frontier_is_one():
    speeds = [5.0, 10.0, 20.0]
    for precision in ("bf16", "mxfp8"):
        ask = {"speeds": speeds, "precision": precision}
        table = tm.compare("deepseek-v3", tm.Request(3584, 512), "trn3-nl32x2-torus", **ask).to_frame()
        assert table.promised_tokens_per_s_per_user.is_monotonic_increasing
        assert table.tokens_per_s_per_chip.is_monotonic_decreasing
        assert (table.batch >= table.ep).all()
        assert (table.tokens_per_s_per_user >= table.promised_tokens_per_s_per_user * (1 - 1e-9)).all()
        assert (table.tokens_per_s_per_chip < table.decode_tokens_per_s_per_chip).all()


def test_a_row_of_a_frontier_is_the_answer_of_the_plan():
    """The same request has one number, one band and one chance, whoever asks."""
    row = frontiers(LLAMA.model, REQUEST, ["trn2.48xlarge"], [20.0], ["bf16"]).iloc[0]
    ask = {"precision": "bf16", "efficiencies": None}
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


def test_times_rise_with_the_load_and_end_where_a_replica_is_full():
    full = deployments.saturation(LLAMA, 16, REQUEST).requests_per_s[0]
    arriving = tm.Request(**SHAPE, requests_per_s=full * np.array([0.1, 0.5, 0.9, 1.2]))
    served = tm.serve(**LLAMA.ask, request=arriving, max_batch=16)
    assert served.valid.tolist() == [True, True, True, False]
    times = serving.over_load(served, 0.02)
    wide = times.pivot(index="requests_per_s", columns="what", values="time_s")
    assert len(wide) == 3
    assert wide[serving.TIMES["ttft_p99_s"]].is_monotonic_increasing
    assert wide[serving.TIMES["tpot_mean_s"]].is_monotonic_increasing
    assert (wide[serving.TIMES["ttft_p99_s"]] >= wide[serving.TIMES["ttft_p50_s"]]).all()
    assert set(wide["later tokens, promised"]) == {0.02}


def test_drafts_that_are_never_accepted_cost():
    table = deployments.drafts(LLAMA, "llama-3.2-1b", 4, 2048, [3], [0.0, 0.7, 1.0])
    assert table.tokens_per_step.tolist() == pytest.approx([1, 2.533, 4])
    assert table.speedup[0] < 1
    assert table.speedup.is_monotonic_increasing


def test_prefill_apart_by_hand():
    """327,680 B per token x 1,024 tokens over EFA, and prefill time x batch / (output x step) replicas per replica."""
    row = deployments.split_phases(LLAMA, ["trn2.48xlarge"], 16, **SHAPE).iloc[0]
    assert row.transfer_bytes == pytest.approx(327680 * 1024)
    chips = row.prefill_s * 16 / (256 * row.step_s) * np.ceil(row.prefill_tp / 4) / 16
    assert row.prefill_chips_per_decode_chip == pytest.approx(chips)


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


def test_the_fastest_user_of_a_system_that_keeps_no_promise_is_named():
    """No user is faster than on an empty server of the mapping that comes nearest to a promise which nobody keeps."""
    plan = tm.plan("llama-3.1-8b", tm.Request(512, 128, tokens_per_s_per_user=1e5), "trn2.48xlarge")
    most = plan.best.tokens_per_s_per_user
    assert serving.unreached(plan).endswith(f"at most {most:,.0f}, on an empty server")
    kept = tm.plan("llama-3.1-8b", tm.Request(512, 128, tokens_per_s_per_user=most * 0.99), "trn2.48xlarge")
    assert kept.reached
    large = tm.plan("llama-3.1-405b", tm.Request(512, 128, tokens_per_s_per_user=1), "trn1.2xlarge")
    assert serving.unreached(large).startswith("llama-3.1-405b on trn1.2xlarge: does not fit: ")


def test_the_card_has_the_numbers_of_the_case():
    best = case.choice("llama-3.3-70b", "trn2.48xlarge")
    card = serving.headline(best)
    assert f"**{best.tokens_per_s_per_chip:.0f} tokens/s per chip**" in card
    assert f"{best.ttft_s:.1f} s at the 99th percentile" in card
    assert f"{best.chance:.0%} of the draws" in card


def test_the_card_says_what_is_made_without_drafts():
    """The better of both kinds of software without drafts, 28 tokens/s; a plan that drafts nothing says nothing."""
    best = case.choice("llama-3.3-70b", "trn2.48xlarge")
    ask = case.request("llama-3.3-70b"), "trn2.48xlarge"
    plain = [tm.plan("llama-3.3-70b", *ask, efficiencies=one) for one in choices.undrafted(best)]
    most = max(one.best.tokens_per_s_per_chip for one in plain)
    said = serving.headline(best, plain)
    assert f"**Compared with:** {most:.0f} tokens/s per chip without drafts, on `vllm-neuron-2026-async`." in said
    assert "Without them the plan's own software, `vllm-neuron-2026`, makes 12, which is below the range." in said
    assert "for one sequence at a time" in said
    assert [one["what"] for one in serving.without_drafts(plain)] == ["without drafts, on vllm-neuron-2026-async"]
    assert choices.undrafted(case.choice("deepseek-v3", "trn2.48xlarge")) == []
    assert "drafts" not in serving.headline(case.choice("deepseek-v3", "trn2.48xlarge"))


def test_symbols_are_those_of_the_estimate_by_hand():
    """0.325 requests/s of 512 tokens at 20 ms hold 3.3 slots; prompts of 1.19 s take 39 % of the time."""
    table = serving.symbols_of(case.choice("llama-3.3-70b", "trn2.48xlarge")).set_index("symbol").value
    assert table[["t", "P", "λ", "ρ", "τ", "n"]].tolist() == ["44.7 ms", "1.19 s", "0.325", "0.388", "20 ms", "3.33"]


def test_lines_of_the_case_are_those_of_a_server_at_its_planned_load():
    key = "deepseek-v3", "trn2.48xlarge"
    best = case.choice(*key)
    ask = {"max_batch": best.batch, "precision": best.precision, "efficiencies": best.option.id}
    served = tm.serve(key[0], case.request(key[0]), key[1], best.degrees, **ask)
    row = serving.lines({key: served}).iloc[0]
    little = float(best.requests_per_s_per_replica) * 512 / best.tokens_per_s_per_user
    assert [row.slots, row.slots_in_use] == pytest.approx([16, little])
    with pytest.raises(AssertionError):
        serving.lines({("llama-3.3-70b", "trn2.48xlarge"): served})


def test_whole_requests_make_less_than_decode_alone():
    promises = tm.compare("llama-3.1-8b", REQUEST, "trn2.48xlarge", speeds=[10, 40, 1e6])
    table = serving.with_and_without_prompts(promises.to_frame(bands=True))
    wide = table.pivot(index="promised_tokens_per_s_per_user", columns="what", values="tokens_per_s_per_chip")
    assert wide.index.tolist() == [10, 40]
    assert (wide["whole requests"] < wide["decode alone"]).all()
    whole = table[table.what == "whole requests"]
    assert (whole.tokens_per_s_per_chip_low < whole.tokens_per_s_per_chip_high).all()


def test_a_change_that_breaks_the_promise_has_no_figures():
    kept, broken = (
        serving.row("a", tm.plan("llama-3.1-8b", tm.Request(512, 128, tokens_per_s_per_user=v), "trn2.48xlarge"))
        for v in (20, 1e5)
    )
    assert kept["what"] == "a"
    assert kept["tokens_per_s_per_chip_low"] < kept["tokens_per_s_per_chip"] < kept["tokens_per_s_per_chip_high"]
    assert broken == {"what": "a: too slow for a user at any load"}


def test_measured_servers_are_those_of_the_table_of_errors():
    """The same configurations, counted once: the median error of the accuracy table."""
    rows = pd.DataFrame(
        {
            "configuration": ["a", "a", "a", "b", "c"],
            "value": [10.0, 20.0, 40.0, 5.0, 5.0],
            "predicted": [20.0, 20.0, 20.0, 6.0, 6.0],
            "error": [1.0, 0.0, -0.5, 0.2, 0.2],
            "weight": [1.0, 1.0, 1.0, 1.0, 0.0],
            "use": serving.THROUGHPUT,
            "unit": ["tokens/s"] * 5,
        }
    ).assign(skipped="", model="m", chip="trainium2", source="page", basis="measured")
    found = serving.measured(rows).sort_values("configuration")
    assert found.measured_tokens_per_s.tolist() == [20.0, 5.0]  # the middle of three; what has no weight does not count
    table = accuracy().set_index(["group", "split"])
    first = serving.errors().iloc[0]
    assert first.median_error == table.median_error[serving.THROUGHPUT, OUTSIDE]
    assert f"{first.configurations} configurations" in serving.half_of(serving.errors())
