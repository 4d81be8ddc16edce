"""The fitted stack of other chips against models and chips that its fit has not seen."""

import numpy as np
import pandas as pd
import pytest

from trnlab import comparators as study
from trnmodel.evidence.cells import COLUMNS
from trnmodel.evidence.fit import cases, log_errors
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COMPARATORS
from trnmodel.evidence.score import validate


@pytest.fixture(scope="module")
def ideal():
    return study.comparators()


@pytest.fixture(scope="module")
def judged():
    return validate(COMPARATORS)


def test_every_row_is_predicted_or_says_why(ideal):
    assert len(ideal) == len(pd.read_csv(COMPARATORS))
    assert ((ideal.reason == "") == ideal.predicted.notna()).all()
    assert (ideal.reason == "").sum() == 337
    assert (ideal.predicted[ideal.reason == ""] >= 0).all()


def test_nothing_measured_is_faster_than_the_ideal_machine(ideal):
    done = ideal[(ideal.reason == "") & ~ideal.analytic]
    is_rate = done.unit.str.contains("/s")
    assert (done.error[is_rate] > 0).all()
    assert (done.error[~is_rate] < 0).all()


def test_arithmetic_of_the_scaling_book(ideal):
    """Llama-3-70B in int8 on 16 TPU v5e: (70 GB + 32 x 8,192 x 0.164 MB) / (16 x 820 GB/s); 197 T / 820 G = 240."""
    rows = ideal[ideal.analytic & (ideal.reason == "")].set_index("question")
    assert rows.loc["decode-step", "error"] == pytest.approx(0, abs=0.025)
    assert rows.loc["critical-batch", "error"] == pytest.approx(0, abs=0.005)


def test_large_multiplications_of_the_a100(ideal):
    large = ideal[ideal.id.str.contains("matmul_A100-(?:4096|8192)x(?:12288|32768)")]
    assert len(large) == 3
    assert large.error.abs().max() < 0.12


def test_the_stack_of_gpus_against_models_and_chips_that_its_fit_has_not_seen():
    errors = study.shipped()
    assert len(errors) == 248
    assert (errors.model.nunique(), errors["where"].nunique()) == (17, 7)
    ideal, fitted, model, chip = (
        errors[name].abs().median() for name in ("ideal_error", "error", "model_left_out_error", "chip_left_out_error")
    )
    assert fitted < 0.14
    assert fitted < model < 0.17
    assert fitted < chip < 0.17
    assert max(model, chip) < 0.27 * ideal


def test_the_shipped_errors_are_those_of_the_stack_in_force():
    of = cases(COMPARATORS, "comparator")
    assert study.shipped().error.to_numpy() == pytest.approx(np.expm1(log_errors(of)), abs=1e-4)


SERVED = {  # of each chip a published row and its error; AMD and TPUs have none of a model that we have
    "a100": ("ft-13B-1gpu-decode_latency_per_token", 0.08),
    "h100": ("aicref-qwen_qwen3_32b_qwen_qwen3_32b_h100_sxm_vllm_agg_1024x1024_c32_tp2_epnone_37-tpot", 0.16),
    "h200": ("aicref-2026_04_06_deepseek_r1_h200_sxm_sglang_fp8_agg_1024x1024_c16_tp8_ep1_238-tpot", 0.01),
    "b200": ("aicref-2026_04_06_deepseek_r1_b200_sxm_sglang_fp8_agg_1024x1024_c16_tp8_ep1_286-tpot", 0.09),
    "gb200": ("aicref-dsr1_gb200_sglang_fp8_disagg_1024x1024_c16_cfg227-tpot", 0.21),
    "b300": ("aicref-minimaxm2_5_b300_vllm_fp8_agg_1024x1024_c64_cfg732-tpot", 0.27),
    "gb300": ("aicref-dsr1_gb300_sglang_fp8_disagg_1024x1024_c4096_cfg526-tpot", 0.07),
}


def test_chips_without_a_served_row_are_those_we_name(judged):
    asked = judged[
        (judged.skipped == "") & judged.meaning.isin(["decode-step", "loaded-step"]) & (judged["stack"] != "ideal")
    ]
    assert {reading(row).where for row in asked.to_dict("records")} == set(SERVED)


def row(**change):
    return dict.fromkeys(COLUMNS, "") | {"kind": "other-chip", "value": "1", "unit": "ms"} | change


def test_rates_turn_over_so_that_the_ideal_machine_bounds_them():
    rows = {"question": "elementwise", "hardware": "1x A100", "analytic": False, "unit": "Gelement/s"}
    both = pd.DataFrame([rows | {"error": 3.0, "reason": ""}, rows | {"error": 0.0, "reason": "unknown chip"}])
    found = study.others(both).iloc[0]
    assert (found["median"], found.cases) == (0.25, 1)
