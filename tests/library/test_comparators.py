"""Measured rows of other chips: the ideal machine bounds them, a stack of four constants comes near them."""

import math
from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import efficiencies
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError
from trnmodel.evidence.fit import cases, fit, parameters
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COMPARATORS
from trnmodel.evidence.score import validate


@pytest.fixture(scope="module")
def judged():
    return validate(COMPARATORS)


def test_no_constant_of_serving_can_be_moved_to_a_better_fit():
    of = cases(COMPARATORS, "comparator")[
        ::3
    ]  # every third configuration has its say: the fit itself takes half a minute
    shipped = {
        p: getattr(efficiencies("h100", "gpu-serving"), p.quantity.split("|")[0]) for p in parameters("comparator")
    }
    refit = fit(of, "comparator")
    for one, value in shipped.items():
        assert refit[one] == pytest.approx(value, rel=0.25)
    e = efficiencies("h100", "gpu-serving")
    assert (e.kv_stream_share, e.decode_matmul_share) == (e.weight_stream_share, e.prefill_matmul_share)


SERVED = {  # of each chip a published row and its error; AMD and TPUs have none of a model that we have
    "a100": ("ft-13B-1gpu-decode_latency_per_token", 0.144),
    "h100": ("aicref-qwen_qwen3_32b_qwen_qwen3_32b_h100_sxm_vllm_agg_1024x1024_c32_tp2_epnone_37-tpot", 0.176),
    "h200": ("aicref-2026_04_06_deepseek_r1_h200_sxm_sglang_fp8_agg_1024x1024_c16_tp8_ep1_238-tpot", 0.046),
    "b200": ("aicref-2026_04_06_deepseek_r1_b200_sxm_sglang_fp8_agg_1024x1024_c16_tp8_ep1_286-tpot", 0.115),
    "gb200": ("aicref-dsr1_gb200_sglang_fp8_disagg_1024x1024_c16_cfg227-tpot", 0.32),
    "b300": ("aicref-minimaxm2_5_b300_vllm_fp8_agg_1024x1024_c64_cfg732-tpot", 0.286),
    "gb300": ("aicref-dsr1_gb300_sglang_fp8_disagg_1024x1024_c4096_cfg526-tpot", 0.07),
}


@pytest.mark.parametrize("chip", SERVED)
def test_each_chip_is_held_to_a_served_row(judged, chip):
    name, error = SERVED[chip]
    found = judged.set_index("id").loc[name]
    assert (reading(found.to_dict()).where, found.stack) == (chip, efficiencies(chip).id)  # a call without a stack
    assert found.error == pytest.approx(error, abs=0.015)
    measured = float(found.value)
    assert found.low < 1.05 * measured
    assert measured < found.high


def test_rows_of_the_energy_benchmark_are_used_or_say_why(judged):
    rows = judged[judged.id.str.startswith("mlenergy-")]
    steps, older = rows[rows.metric == "itl_median"], rows[rows.metric == "tpot_avg"]
    assert (len(steps), len(older)) == (269, 154)
    assert older.skipped.str.contains("no context|no configuration of").all()  # no lengths are printed
    assert steps.skipped.str.contains("inputs are long").sum() == 24
    assert (steps.skipped == "").sum() == 214
    assert (steps[steps.skipped == ""].weight == 1).all()  # a slow machine too
    with_experts = steps[steps.note.str.contains("EP 8 DP 1") & (steps.skipped == "")]
    assert {reading(row).degrees.tp.item() for row in with_experts.to_dict("records")} == {8}


def test_the_assumed_input_counts_little():
    """300 tokens are assumed where no input length is printed; with 1,000 the median step grows by a few per cent."""
    of = [case.reading for case in cases(COMPARATORS, "comparator") if case.reading.meaning == "decode-step"]
    small = [r for r in of if r.batch <= 64]  # whose caches still fit
    moved = [
        predict(replace(r, context=r.context + 700, max_context=r.max_context + 700)) / predict(r) - 1 for r in small
    ]
    assert len(moved) > 80
    assert 0 < np.median(moved) < 0.04
    assert max(moved) < 0.35


def test_tensor_parallelism_pays_on_gpus():
    """70B in FP8 on H100: each doubling of TP shortens a step of one sequence; its network is a small part."""
    degrees = tm.Mapping(tp=[1, 2, 4, 8])
    asked = {"precision": "fp8", "efficiencies": "gpu-serving"}
    step = tm.decode_step("llama-3.1-70b", "hgx-h100", degrees, batch=1, context=4096, **asked)
    assert (np.diff(step.time_s) < 0).all()
    assert (step.network_s < 0.1 * step.time_s).all()


def test_costs_of_layers_and_sequences_are_lines_of_a_step():
    """80 layers and 16 sequences; without them the step is shorter by as much; Neuron pays none by the sequence."""
    e = efficiencies("h100", "gpu-serving")
    asked = {"batch": 16, "context": 1024, "precision": "fp8"}
    step = tm.decode_step("llama-3.1-70b", "hgx-h100", tm.Mapping(tp=8), efficiencies=e, breakdown=True, **asked)
    layers, sequences = (float(step.operators[name].overhead_s) for name in ("layers", "sequences"))
    assert (layers, sequences) == (pytest.approx(80 * e.layer_s), pytest.approx(16 * e.sequence_s))
    assert step.overhead_s == pytest.approx(layers + sequences)
    bare = replace(e, layer_s=0.0, sequence_s=0.0)
    free = tm.decode_step("llama-3.1-70b", "hgx-h100", tm.Mapping(tp=8), efficiencies=bare, **asked)
    assert step.time_s - free.time_s == pytest.approx(layers + sequences)
    each = replace(e, sequence_s=np.array([0.0, 1e-3]))
    some = tm.decode_step("llama-3.1-70b", "hgx-h100", tm.Mapping(tp=8), efficiencies=each, **asked)
    assert np.diff(some.time_s) == pytest.approx(16e-3)
    shared = tm.decode_step("deepseek-v3", "hgx-h200", tm.Mapping(tp=1, ep=8), efficiencies=e, breakdown=True, **asked)
    assert float(shared.operators["sequences"].overhead_s) == pytest.approx(2 * e.sequence_s)
    for chip in ("trainium2", "trainium3"):
        assert efficiencies(chip).sequence_s == 0.0


def row(**change):
    return dict.fromkeys(COLUMNS, "") | {"kind": "other-chip", "value": "1", "unit": "ms"} | change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "no pattern"),
        ({"instance": "RTX4090", "workload": "Qwen3-32B", "metric": "tpot"}, "no output length"),
        ({"workload": "Qwen3-32B", "instance": "h100_sxm", "metric": "tpot", "note": "LONG INPUTS"}, "long"),
    ],
)
def test_rows_without_an_answer_say_why(change, reason):
    with pytest.raises(UnreadableRowError, match=reason):
        predict(reading(row(**change)))


def test_workers_share_the_requests():
    asked = reading(
        row(
            workload="deepseek-ai/DeepSeek-V3",
            instance="h200_sxm",
            metric="tpot",
            batch="64",
            input_len="1024",
            output_len="512",
            tp="2",
            dp="4",
            precision="fp8",
            note="disagg P:1x(tp1 adp8 ep8 bs1) D:4x(tp2 adp4 ep8 bs16); MEASURED",
        )
    )
    assert asked.batch == 16
    assert (asked.degrees.tp, asked.degrees.ep) == (2, 4)
    assert (asked.context, asked.scale) == (1024 + 256, pytest.approx(1e-3))
    assert math.isfinite(predict(asked))
