"""What a decode step and a prefill pay on Trainium2's engines of today: layers, experts, passes over the cache."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import IDEAL
from trnmodel.evidence.rows import MEASURED, read_table

TODAY = "vllm-neuron-2026"
STACKS = (
    TODAY,
    f"{TODAY}-async",
    "nxd-inference",
    "fp8-dequantised",
    "nki-megakernel",
    "kiln",
    "kiln-nki",
    "nxd-hybrid-2.29",
)
MIMO = {"model": "mimo-v2-flash", "system": "trn2.48xlarge", "precision": "bf16"}
WHOLE = tm.Mapping(tp=64, moe_ep=64, lnc=2)


def decoded(model="llama-3.1-8b", system="trn2.48xlarge", mapping=None, efficiencies=IDEAL, **ask):
    degrees = tm.Mapping(tp=8) if mapping is None else mapping
    return tm.decode_step(model, system, degrees, efficiencies=efficiencies, **({"batch": 1, "context": 4096} | ask))


def test_a_layer_has_its_own_time_and_one_without_experts_another():
    # 61 layers of DeepSeek-V3, of which 3 have no experts
    slow = replace(IDEAL, id="slow", layer_s=1e-3)
    dense = replace(IDEAL, id="dense", dense_layer_s=1e-3)
    plain, one, other = (
        decoded("deepseek-v3", mapping=tm.Mapping(tp=64), efficiencies=e).time_s for e in (IDEAL, slow, dense)
    )
    assert float(one - plain) == pytest.approx(0.061)
    assert float(other - plain) == pytest.approx(0.003)


def test_phi_3_5_moe_reads_what_its_profile_says():
    """2.90 GB a core (neuron-profile, TP 8 of trn1.32xlarge): 2 of 16 experts, gathered and read again, and others."""
    step = decoded("phi-3.5-moe", "trn1.32xlarge", tm.Mapping(tp=8), "nxd-inference", context=512, max_context=512)
    assert float(step.moved_bytes_per_rank) == pytest.approx(2.90e9, rel=5e-3)
    once = replace(tm.efficiencies("trainium1", "nxd-inference"), expert_gather_reads=1.0)
    step_once = decoded("phi-3.5-moe", "trn1.32xlarge", tm.Mapping(tp=8), once, context=512, max_context=512)
    # 32 layers x 2 experts x 3 matrices x 4,096 x 6,400 in BF16 over 8 ranks
    assert float(step.moved_bytes_per_rank - step_once.moved_bytes_per_rank) == pytest.approx(
        32 * 2 * 3 * 4096 * 6400 * 2 / 8
    )


def test_whole_experts_inside_tp_as_mimo_was_profiled():
    """Profile of MiMo-V2-Flash, TP 64, whole experts on each rank: 11 GB, 34.7 ms a step, 349 ms for 1,024 tokens."""
    ask = MIMO | {"mapping": WHOLE, "efficiencies": TODAY}
    step = tm.decode_step(**ask, batch=32, context=1024, max_context=1024)
    assert float(step.moved_bytes_per_rank) == pytest.approx(11e9, rel=0.1)
    assert float(step.time_s) == pytest.approx(0.0347, rel=0.15)
    assert float(tm.prefill(**ask, input_tokens=1024).time_s) == pytest.approx(0.349, rel=0.25)
    # all four experts of a rank, whatever the batch: 47 layers x 4 x 3 x 4,096 x 2,048 in BF16
    alone = tm.decode_step(**ask, batch=1, context=1024, breakdown=True)
    experts = sum(float(line.memory_s) for name, line in alone.operators.items() if "expert_" in name)
    rate = tm.chip("trainium2").hbm_bytes_per_s / 4 * tm.efficiencies("trainium2", TODAY).weight_stream_share
    assert experts * rate == pytest.approx(47 * 4 * 3 * 4096 * 2048 * 2, rel=1e-6)


def test_whole_experts_store_and_read_as_many_bytes_as_their_columns_would():
    for batch in (1, 64):
        cut, whole = (
            tm.decode_step(
                **MIMO,
                mapping=degrees,
                efficiencies=replace(IDEAL, id="all", expert_read="all"),
                batch=batch,
                context=1024,
            )
            for degrees in (tm.Mapping(tp=64), WHOLE)
        )
        assert float(whole.moved_bytes_per_rank) == pytest.approx(float(cut.moved_bytes_per_rank))
        assert float(whole.work_flop_per_rank) == pytest.approx(float(cut.work_flop_per_rank))
        assert float(whole.memory_bytes_per_rank) == pytest.approx(float(cut.memory_bytes_per_rank))


def test_all_experts_on_all_tokens_is_e_over_k_times_the_work():
    every, own = (
        decoded("mixtral-8x7b-v0.1", efficiencies=replace(IDEAL, id=read, expert_read=read), batch=64)
        for read in ("all", "distinct")
    )
    # 32 layers x 3 matrices x 4,096 x 14,336 x 2 FLOP, for (8 - 2) experts of 64 tokens, over 8 ranks
    more = float(every.work_flop_per_rank - own.work_flop_per_rank)
    assert more == pytest.approx(32 * 3 * 4096 * 14336 * 2 * 6 * 64 / 8)


def test_a_group_of_whole_experts_divides_tp_and_the_experts():
    with pytest.raises(ValueError, match=r"moe_ep=3\.0: allowed are divisors of tp=8\.0"):
        tm.Mapping(tp=8, moe_ep=3)
    step = decoded("mixtral-8x7b-v0.1", mapping=tm.Mapping(tp=16, moe_ep=[1, 8, 16]))
    assert step.valid.tolist() == [True, True, False]


def test_degrees_of_whole_experts_broadcast():
    degrees = tm.Mapping(tp=64, moe_ep=[1, 4, 64])
    many = decoded("mimo-v2-flash", mapping=degrees, efficiencies=TODAY, batch=[[1], [32]]).time_s
    for (i, j), value in np.ndenumerate(many):
        one = tm.Mapping(tp=64, moe_ep=[1, 4, 64][j])
        assert value == decoded("mimo-v2-flash", mapping=one, efficiencies=TODAY, batch=[1, 32][i]).time_s


def test_only_several_sequences_on_a_lone_core_read_their_cache_twice():
    twice = replace(IDEAL, id="twice", lone_core_cache_passes=2.0)
    for lnc, batch, passes in ((1, 1, 1), (1, 8, 2), (2, 8, 1)):
        ask = {"mapping": tm.Mapping(tp=8, lnc=lnc), "batch": batch}
        more = decoded(**ask, efficiencies=twice).moved_bytes_per_rank - decoded(**ask).moved_bytes_per_rank
        # 32 layers x 2 x 128 x 1 of 8 KV heads a rank in BF16, 4,096 tokens
        assert float(more) == pytest.approx((passes - 1) * batch * 4096 * 32 * 2 * 128 * 2)


def test_quantised_experts_pass_the_vector_engines():
    """47 layers x all 4 local experts x 3 x 4,096 x 2,048 weights, by 2 x 128 lanes at the vector engine's clock."""
    slow = replace(IDEAL, id="slow", dequantise_passes=5.0, expert_read="all")
    ask = MIMO | {"mapping": WHOLE, "batch": 4, "context": 1024}
    free = replace(slow, id="free", dequantise_passes=0.0)
    for precision, passes in (("fp8", 5), ("bf16", 0)):
        ask["precision"] = precision
        more = tm.decode_step(**ask, efficiencies=slow).time_s - tm.decode_step(**ask, efficiencies=free).time_s
        clock_hz = tm.chip("trainium2").core.vector.clock_hz
        assert float(more) == pytest.approx(passes * 47 * 4 * 3 * 4096 * 2048 / (256 * clock_hz))


def test_a_recurrence_takes_the_tokens_of_a_prompt_one_after_another():
    """18 of the 24 layers of Qwen3.5-2B are recurrent: 18 x 1,000 x 100 us, whatever the ranks and the prompts."""
    serial = replace(IDEAL, id="serial", recurrent_token_s=1e-4)
    for model, layers in (("qwen3.5-2b", 18), ("llama-3.1-8b", 0)):
        for tp, batch in ((1, 1), (4, 1), (4, 8)):
            ask = {"model": model, "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=tp), "batch": batch}
            with_it, without = (tm.prefill(**ask, input_tokens=1000, efficiencies=e).time_s for e in (serial, IDEAL))
            assert float(with_it - without) == pytest.approx(layers * 1000 * 1e-4)


def test_scores_of_a_masked_prefill_go_through_memory():
    """32 layers x 4 heads a rank x 2,048 x 2,048 scores of 4 bytes, three times, at 2.9 TB/s over 4 ranks of a chip."""
    masked = replace(IDEAL, id="masked", score_passes=3.0)
    ask = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8), "input_tokens": 2048}
    more = tm.prefill(**ask, efficiencies=masked).time_s - tm.prefill(**ask, efficiencies=IDEAL).time_s
    assert float(more) == pytest.approx(3 * 4 * 32 * 4 * 2048**2 / (2.9e12 / 4))


DEGREES = ({"tp": 8}, {"tp": 8, "moe_ep": 8}, {"tp": 2, "ep": 4}, {"tp": 4, "lnc": 1}, {"tp": 4, "moe_ep": 2})


@settings(max_examples=30, deadline=None)
@given(
    stack=st.sampled_from(STACKS),
    model=st.sampled_from(["qwen3-1.7b", "mixtral-8x7b-v0.1", "qwen3-30b-a3b", "gpt-oss-20b"]),
    degrees=st.sampled_from(
        [{"tp": 8}, {"tp": 8, "moe_ep": 8}, {"tp": 2, "ep": 4}, {"tp": 4, "lnc": 1}, {"tp": 4, "moe_ep": 2}]
    ),
    precision=st.sampled_from(["bf16", "fp8"]),
)
def test_no_work_is_made_faster_by_more_of_it(stack, model, degrees, precision):
    batch = np.arange(1.0, 200.0)[:, None]
    ask = {"mapping": tm.Mapping(**degrees), "efficiencies": stack, "precision": precision}
    time_s = decoded(model, batch=batch, context=[512.0, 4096.0], **ask).time_s
    rises = np.diff(time_s, axis=0)
    assert np.all((rises >= -1e-12) | np.isnan(rises))
    assert np.all((time_s[:, 1] >= time_s[:, 0]) | np.isnan(time_s[:, 1]))


def test_graphs_of_a_step_wait_for_their_ranks():
    """Kiln's notes: 2.54 ms a graph at 32 ranks, 1.04 at 4; 12 layers with experts a graph."""
    mapping = tm.Mapping(tp=8, ep=4, lnc=2)
    one = replace(IDEAL, id="one", graph_doubling_s=0.5e-3)
    many = replace(one, id="many", graph_layers=12.0)
    plain, first, second = (
        float(decoded("mimo-v2-flash", mapping=mapping, efficiencies=e, batch=4).time_s) for e in (IDEAL, one, many)
    )
    assert first - plain == pytest.approx(2.54e-3, rel=0.03)
    assert second - plain == pytest.approx(4 * (first - plain))  # 47 layers with experts in four graphs
    dense = [float(decoded(efficiencies=e, mapping=tm.Mapping(tp=4)).time_s) for e in (IDEAL, many)]
    assert dense[1] - dense[0] == pytest.approx(1.04e-3, rel=0.05)


def test_states_of_recurrent_layers_stream_at_their_own_rate():
    # Qwen3.5-27B: 48 layers of 48 heads, a state of 128 x 128 in FP32 and 3 kept inputs of 10,240 in BF16 (4-wide)
    slow = replace(IDEAL, id="slow", state_stream_bytes_per_s=3e9)
    steps = [decoded("qwen3.5-27b", mapping=tm.Mapping(tp=4), efficiencies=slow, batch=b) for b in (1, 2)]
    states = 2 * 48 * (48 * 128 * 128 * 4 + 3 * 10240 * 2) / 4
    assert float(steps[1].memory_s - steps[0].memory_s) == pytest.approx(states / 3e9, rel=0.02)
    assert float(decoded("llama-3.1-8b", efficiencies=slow).time_s) == float(decoded("llama-3.1-8b").time_s)


def test_weights_stored_wider_than_products_are_cast_once():
    cast = replace(IDEAL, id="cast", dequantise_passes=1.0)
    wide = Precision(weights="fp32", activations="fp32", compute="bf16", name="autocast")
    ask = {"model": "llama-3.1-8b", "system": "inf2.48xlarge", "mapping": tm.Mapping(tp=8)}
    steps = [tm.decode_step(**ask, batch=1, context=128, precision=wide, efficiencies=e) for e in (IDEAL, cast)]
    # eight thousand million weights less the table of embeddings (128,256 x 4,096), over 8 ranks of 128 lanes
    lanes = 128 * tm.chip("inferentia2").core.vector.clock_hz
    cast_s = (8.03e9 - 128256 * 4096) / 8 / lanes
    assert float(steps[1].time_s - steps[0].time_s) == pytest.approx(cast_s, rel=0.01)
    same = [tm.decode_step(**ask, batch=1, context=128, efficiencies=e) for e in (IDEAL, cast)]
    assert float(same[0].time_s) == float(same[1].time_s)


def test_t5_casts_its_weights_in_every_step():
    """AWS prints 9.25 and 8.50 ms a token at TP 8 of inf2.24xlarge; without the cast it was 22 and 16 % too fast."""
    rows = read_table(MEASURED)
    table = tm.validate(rows[rows.source.str.contains("encoder_decoder", regex=False) & (rows.batch == "1")])
    table = table[(table.metric == "latency per token p50") & table.workload.str.contains("t5", regex=False)]
    assert len(table) == 2
    assert (table["stack"] == "neuronx-distributed-t5").all()
    assert table.error.abs().max() < 0.12
