"""Measured rows of other chips: the ideal machine bounds them, a stack of three constants comes near them."""

import math

import pandas as pd
import pytest

from trnmodel.catalog.stacks import efficiencies
from trnmodel.evidence import comparators as study
from trnmodel.evidence.fit import calibrate
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COLUMNS, COMPARATORS, UnreadableRowError


@pytest.fixture(scope="module")
def ideal():
    return study.comparators()


def test_every_row_is_predicted_or_says_why(ideal):
    assert len(ideal) == len(pd.read_csv(COMPARATORS))
    assert ((ideal.reason == "") == ideal.predicted.notna()).all()
    assert (ideal.reason == "").sum() == 100
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


def test_the_stack_of_gpus_against_models_that_its_fit_has_not_seen():
    errors = study.left_out()
    assert len(errors) == 26
    assert errors.model.nunique() == 5
    assert errors.error.abs().median() < 0.14
    assert errors.left_out_error.abs().median() < 0.27
    assert errors.left_out_error.abs().mean() < 0.32
    assert errors.left_out_error.abs().median() < 0.6 * errors.ideal_error.abs().median()


def test_shipped_values_are_those_of_the_fit():
    table = calibrate(COMPARATORS, "comparator")
    assert (table.cases == 26).all()
    assert (table.fitted / table.in_force - 1).abs().max() < 0.02
    shipped = efficiencies("h100", "gpu-serving")
    assert shipped.kv_stream_share == shipped.weight_stream_share


def row(**change):
    return dict.fromkeys(COLUMNS, "") | {"kind": "other-chip", "value": "1", "unit": "ms"} | change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "no rule"),
        ({"instance": "RTX4090", "workload": "Qwen3-32B"}, "not in the catalogue"),
        ({"workload": "Qwen3-32B", "instance": "h100_sxm", "metric": "ttft"}, "queues"),
    ],
)
def test_rows_without_an_answer_say_why(change, reason):
    with pytest.raises(UnreadableRowError, match=reason):
        reading(row(**change))


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
