"""The doctor: what a row should be, its verdict, what each cause explains by hand, and the committed exam."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.cli.app import app
from trnmodel.evidence.before_after import Cause
from trnmodel.evidence.records import Record
from trnmodel.evidence.slow_causes import MECHANISMS, Case, family_of, is_old

ROW = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "metric": "TPOT", "unit": "ms"}
ROW |= {"engine": "vllm-neuron", "input_len": 2000, "output_len": 500, "value": 10.0}


def diagnosed(**changes):
    return tm.doctor(ROW | changes).rows[0]


def cause(one, mechanism):
    return next((each for each in one.causes if each.mechanism.startswith(mechanism)), None)


def test_the_number_as_stated_is_that_of_validate():
    judged = tm.validate(pd.DataFrame([ROW])).iloc[0]
    one = diagnosed()
    own, documented, ideal = one.expected
    assert (own.value, own.low, own.high) == pytest.approx((judged.predicted, judged.low, judged.high))
    assert ideal.value < documented.value < own.value
    assert ideal.low == ideal.value == ideal.high
    assert documented.stack == "vllm-neuron-2026-async"


@pytest.mark.parametrize(("value", "verdict"), [(1.0, "faster"), (10.0, "as predicted"), (450.0, "slower")])
def test_the_verdict_of_a_time(value, verdict):
    assert diagnosed(value=value).verdict == verdict


def test_the_verdict_of_a_rate_turns_with_it():
    rate = {"metric": "decode throughput", "unit": "tokens/s", "phase": "decode"}
    verdicts = [diagnosed(**rate, value=value).verdict for value in (1, 400, 90_000)]
    assert verdicts == ["slower", "as predicted", "faster"]


def test_padding_to_the_compiled_batch_by_hand():
    """A graph for 32 sequences of which 4 run: the time with 32 compiled slots, less that with 4."""
    one = diagnosed(slots=32, value=20.0)
    ask = {"batch": 4, "context": 2251, "max_context": 2500}
    steps = [
        tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), compiled_batch=slots, **ask).time_s
        for slots in (32, 4)
    ]
    batch = cause(one, "padding to the compiled batch")
    assert batch.explained_s == pytest.approx(float(steps[0] - steps[1]), rel=1e-9)
    assert one.first is batch
    assert batch.evidence == "the row states it"
    assert cause(diagnosed(), "padding to the compiled batch") is None


def test_fixed_work_of_a_layer_by_hand():
    """Of a row as predicted it is 32 layers times the stack's constant."""
    predicted = diagnosed().expected[0].value
    layer = cause(diagnosed(value=predicted * 0.999), "fixed work in each layer")
    e = tm.efficiencies("trainium2")
    assert layer.explained_s == pytest.approx(32 * (e.layer_s + e.dense_layer_s), rel=0.01)


def test_the_lnc_that_a_row_states():
    one = diagnosed(lnc=1, tp=16, value=30.0)
    cores = cause(one, "size of a logical core")
    assert cores.evidence == "the row states it"
    assert cores.cause == "scheduling"


def test_a_cause_explains_no_more_than_the_time():
    for value in (0.5, 8.0, 30.0, 3000.0):
        one = diagnosed(value=value)
        assert all(0 <= each.share <= 1 for each in one.causes)
        assert all(each.explained_s == pytest.approx(each.share * value / 1e3) for each in one.causes)
        assert 0 <= one.unexplained <= 1
    assert one.unexplained > 0.9
    assert "No known cause explains" in repr(one)


def test_what_a_row_states_comes_first_and_what_it_rules_out_is_absent():
    experts = {"instance": "trn1.32xlarge", "workload": "Qwen3-30B-A3B", "engine": "kiln", "tp": 32, "value": 90.0}
    graphs = diagnosed(**experts, kernels="layers")
    assert graphs.first.mechanism == "several graphs in a step"
    assert graphs.first.evidence == "the row states it"
    assert cause(diagnosed(steps="async"), "synchronous steps") is None
    assert cause(diagnosed(), "synchronous steps").explained_s > 0
    assert cause(diagnosed(), "an old release") is None
    assert cause(diagnosed(sdk="2.20"), "an old release").evidence == "the row states it"


def test_a_queue_is_named_for_a_request_that_waits():
    served = {"metric": "TTFT mean", "kind": "inference-LLM-serving", "clients": 64, "slots": 4, "value": 4000}
    one = diagnosed(**served, scheduling="closed")
    assert one.first.cause == "scheduling"
    assert one.first.share > 0.5


def test_collectives_are_launch_when_small_and_exchange_when_large():
    row = {"kind": "collective", "instance": "trn2.48xlarge", "metric": "latency", "unit": "us"}
    row |= {"note": "torch.distributed", "engine": "torch-distributed", "inside": "launch"}
    small, large = (
        tm.doctor(row | {"workload": f"all-reduce {size} 16 ranks", "value": value}).rows[0]
        for size, value in (("1 KB", 300.0), ("1 GB", 30_000.0))
    )
    assert (small.first.cause, large.first.cause) == ("launch", "exchange")


def test_a_row_that_cannot_be_asked_has_a_reason_and_causes_without_times():
    one = diagnosed(input_len="", output_len="", slots=32, clients=4)
    assert one.verdict == "cannot be asked"
    assert one.reason == "no output length; output_len would help"
    assert one.first.mechanism == "padding to the compiled batch"
    assert all(np.isnan(each.share) for each in one.causes)
    assert diagnosed(value="fast").reason.startswith("value")


def test_training_and_encoders_have_causes():
    step = {"kind": "training", "instance": "hgx-a100", "workload": "llama-3.1-8b", "metric": "step time", "unit": "s"}
    job = tm.doctor(step | {"batch": 64, "seq_len": 4096, "tp": 2, "dp": 4, "value": 60.0}).rows[0]
    assert {each.cause for each in job.causes} >= {"kernel", "exchange"}
    bert = {"kind": "inference-encoder", "instance": "inf2.xlarge", "workload": "bert-base-uncased", "seq_len": 128}
    one = tm.doctor(bert | {"batch": 8, "metric": "latency", "value": 9.0, "unit": "ms"}).rows[0]
    assert one.first.cause == "kernel"


def test_a_table_a_series_a_mapping_and_a_file_say_the_same(tmp_path):
    table = pd.DataFrame([ROW, ROW | {"value": 45.0}])
    table.to_csv(tmp_path / "rows.csv", index=False)
    frame = tm.doctor(table).to_frame()
    pd.testing.assert_frame_equal(
        frame.drop(columns="id"), tm.doctor(tmp_path / "rows.csv").to_frame().drop(columns="id")
    )
    assert tm.doctor(table.iloc[1]).rows[0].causes == tm.doctor(table).rows[1].causes == diagnosed(value=45.0).causes
    causes = tm.doctor(table).causes()
    assert set(causes.id) == set(frame.id)
    assert (causes.groupby("id").order.min() == 1).all()


@pytest.mark.parametrize("bad", [None, 7, [ROW], {1: 2}, {"instance": "trn2.48xlarge"}, "no such file.csv", ""])
def test_what_is_no_row_is_refused(bad):
    with pytest.raises(ValueError, match="rows"):
        tm.doctor(bad)


def test_more_rows_than_the_doctor_takes_are_refused():
    with pytest.raises(ValueError, match="1001 rows; allowed are at most 1000"):
        tm.doctor(pd.DataFrame([ROW] * 1001))


def test_old_releases_are_a_year_before_the_newest():
    assert is_old(Record(sdk="2.26.0"))
    assert not is_old(Record(sdk="2.28"))
    assert not is_old(Record(sdk="next"))


def test_every_cause_is_one_of_the_pairs_or_a_draft():
    allowed = {*Cause.__args__, "drafts"}
    assert {one.cause for one in MECHANISMS} == allowed
    assert len({one.name for one in MECHANISMS}) == len(MECHANISMS)
    kinds = ("inference-LLM", "inference-encoder", "training", "kernel", "collective")
    assert {family_of(kind) for kind in kinds} == {name for one in MECHANISMS for name in one.families}


def test_typer_prints_the_diagnosis_and_its_json(tmp_path):
    cells = [f"{name}={value}" for name, value in ROW.items()]
    shown = CliRunner().invoke(app, ["doctor", "--row", *cells])
    assert shown.exit_code == 0
    assert "lies inside the 90 % band" in shown.output
    pd.DataFrame([ROW]).to_csv(tmp_path / "rows.csv", index=False)
    printed = CliRunner().invoke(app, ["doctor", str(tmp_path / "rows.csv"), "--json"])
    assert json.loads(printed.output)[0]["verdict"] == "as predicted"
    assert CliRunner().invoke(app, ["doctor", "--row", "instance=trn9", *cells[1:]]).exit_code == 3
    for wrong in (["doctor"], ["doctor", "--row", "tp"], ["doctor", "--row", "tp=8", "tp=8"]):
        assert CliRunner().invoke(app, wrong).exit_code == 2


def test_a_case_without_a_reading_asks_for_no_prediction():
    case = Case("language", Record(kernels="layers"))
    assert np.isnan(case.predicted_s)
    assert replace(case, precision="FP32").precision == "FP32"
