"""Lines of tables of errors, verdicts and rounding, by hand."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnlab import table, wide_experts
from trnmodel.evidence.cells import COLUMNS
from trnmodel.evidence.readings import reading

NAN = math.nan
ROW = dict.fromkeys(COLUMNS, "") | {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "somebody's table",
    "date_or_sdk": "SDK 2.29",
    "lnc": "2",
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-70B",
    "batch": "3",
    "seq_len": "2048",
    "tp": "16",
    "precision": "BF16",
    "metric": "TPOT p50",
    "value": "15",
    "unit": "ms",
}


@pytest.mark.parametrize(
    ("errors", "width"),
    [
        # t(0.95) of 1, 4 and 1 degrees of freedom: 6.3138, 2.1318, 6.3138; the spread of one more error
        ([0.1, -0.2, 0.3], 6.3138 * (0.14 / 1) ** 0.5 * (1 + 1 / 3) ** 0.5),
        ([0.1, -0.2, 0.3, -0.4, 0.5, 0.6], 2.1318 * (0.91 / 4) ** 0.5 * (1 + 1 / 6) ** 0.5),
        ([0.3], 6.3138 * 0.3 * 2**0.5),
    ],
)
def test_half_of_an_interval_by_student(errors, width):
    assert wide_experts._half_width(np.array(errors)) == pytest.approx(width, rel=1e-4)


def test_a_bracket_by_the_errors_of_its_kind():
    """Of a step the errors of steps, of a first token those of first tokens, under the fit without the run."""
    of, found = wide_experts.runs(), wide_experts.brackets()
    for place in (0, 4):
        run, row = of[place], found.iloc[place]
        constants = (row.expert_s, row.service_s, row.wave)
        alike = [one for one in of if one is not run and wide_experts.first(one) == wide_experts.first(run)]
        errors = np.array([np.log(wide_experts.predicted_s(one, *constants) / one.measured) for one in alike])
        half = wide_experts._half_width(errors)
        assert row.centre_s == pytest.approx(wide_experts.predicted_s(run, *constants))
        assert np.log([row.centre_s / row.low_s, row.high_s / row.centre_s]) == pytest.approx([half, half])
        assert row.inside == (row.low_s <= run.measured <= row.high_s)
    assert (found.what == "first token").sum() == 7


def test_a_step_among_servers_crosses_them():
    """60 us for each crossing of each of 61 layers of DeepSeek-V3; the line of a layer with experts beside."""
    run = next(run for run in wide_experts.runs() if run.reading.meaning == "decode-step")
    layers = tm.model(run.reading.model).n_layers
    crossings = float(dict(run.reading.arguments).get("node_crossings", 0.0))
    plain = replace(run, reading=replace(run.reading, arguments=()))
    more = replace(run, reading=replace(run.reading, arguments=(("node_crossings", crossings + 3),)))
    none_s, some_s = (wide_experts.predicted_s(one, 50e-6, 9.0, 9.0) for one in (plain, more))
    assert some_s - none_s == pytest.approx((crossings + 3) * layers * 60e-6)
    first = wide_experts.runs()[1]
    few = replace(first, reading=replace(first.reading, batch=0.0))
    assert wide_experts.predicted_s(few, 0.0, 0.0, 1.0) == wide_experts.predicted_s(few, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("use", "about", "line"),
    [
        ("tuned-nki", "kernel", "tuned kernels, Trainium3"),
        ("tuned-gemm", "kernel", "tuned kernels, Trainium3"),
        ("framework-compile", "kernel", "products, torch.compile"),
        ("framework-trace", "kernel", "products, torch trace"),
        ("compiler", "kernel", "other kernels"),
        ("model", "collective", "collectives, machine stated"),
        ("platform not stated", "collective", "collectives, platform not stated"),
    ],
)
def test_the_line_of_a_machine(use, about, line):
    assert table._machine(use, about, "trainium3") == line


@pytest.mark.parametrize(
    ("meaning", "model", "line"),
    [
        ("decode-step", "llama-3.1-8b", "dense decode"),
        ("decode-step", "", "dense decode"),
        ("decode-throughput", "qwen3-30b-a3b", "MoE and hybrid decode"),
        ("prefill", "jamba-v0.1", "TTFT of MoE and hybrids"),
        ("prefill", "llama-3.1-8b", "TTFT"),
        ("forward", "bert-large-uncased", "encoders, latency"),
        ("loaded-step", "qwen3-30b-a3b", "TPOT under load"),
        ("served-requests", "llama-3.1-8b", ""),
    ],
)
def test_the_line_of_a_fitted_group(meaning, model, line):
    assert table._fitted(meaning, model) == line


def test_errors_by_regime_by_hand(monkeypatch):
    """Up to and above 1, 8 and 64 sequences, 2,048 and 8,192 tokens of context or prompt, 8, 16 and 32 ranks."""
    rows = pd.DataFrame({"where": ["trn2.48xlarge", "trn2n.48xlarge", "inf2.xlarge", "trn1.32xlarge"],
                         "batch": [1.0, 8, 64, 65], "context": [2048.0, NAN, 8192, 9000], "prompt": [1.0, 2049, 1, 1],
                         "tp": [8, 16, 32, 33], "error": [0.1, 0.3, -0.2, 0.4]})  # fmt: skip
    monkeypatch.setattr(table, "_of", lambda group: rows)
    found = table.by_regime("dense decode").set_index("regime")
    counts = {
        "system inf2": 1,
        "system trn1": 1,
        "system trn2": 2,
        "batch up to 1": 1,
        "batch up to 8": 1,
        "batch up to 64": 1,
        "batch above 64": 1,
        "context up to 2048": 1,
        "context up to 8192": 2,
        "context above 8192": 1,
        "tp up to 8": 1,
        "tp up to 16": 1,
        "tp up to 32": 1,
        "tp above 32": 1,
    }
    assert found.configurations.to_dict() == counts
    assert found.loc["system trn2", ["error", "error_low", "error_high"]].tolist() == pytest.approx([0.2, 0.15, 0.25])
    assert found.loc["context up to 8192", ["error_low", "error_high"]].tolist() == pytest.approx([-0.075, 0.175])


def test_points_of_a_chart_by_hand():
    """Of a rate the time of a step, 3 / 200 s, with the ends of the prediction; on another page, so that it votes."""
    rate = {"metric": "throughput", "unit": "tokens/s", "value": "200", "source": "another page"}
    rows = pd.DataFrame([ROW, ROW | rate])
    judged = tm.validate(rows)
    found = table.points(judged).set_index("label")
    assert len(found) == 2
    measured, predicted = found.measured_s.tolist(), found.predicted_s.tolist()
    assert sorted(measured) == pytest.approx([0.015, 0.015])
    step = float(
        tm.decode_step("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=16, lnc=2), batch=3, context=2048).time_s
    )
    assert predicted == pytest.approx([step, step])
    assert (found.group == "dense decode").all()
    assert found.index[0] == "llama-3.1-70b, trn2.48xlarge, TP 16, batch 3"
    ends = found[["predicted_s_low", "predicted_s_high"]].to_numpy()
    assert (ends[:, 0] < step).all()
    assert (ends[:, 1] > step).all()


def test_rounding_of_printed_times(monkeypatch):
    """15 ms to half a millisecond are 14.5 to 15.5; 200 tokens/s to two are 3 / 202 to 3 / 198 s."""
    rate = {"metric": "throughput", "unit": "tokens/s", "value": "200", "source": "another page"}
    rows = tm.validate(pd.DataFrame([ROW, ROW | rate]))
    rounded = {"15": 0.5, "200": 2.0}
    monkeypatch.setattr(table, "reading", lambda cells: replace(reading(cells), rounding=rounded[cells["value"]]))
    found = table.points(rows).sort_values("measured_s_low")[["measured_s_low", "measured_s", "measured_s_high"]]
    wanted = sorted([[0.0145, 0.015, 0.0155], [3 / 202, 0.015, 3 / 198]])
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-9)
