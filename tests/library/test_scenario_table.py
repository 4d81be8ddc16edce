"""A table of scenarios: the same rows as the calls, on any executor, and each refusal names its scenario."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import pandas as pd
import pytest

import trnmodel as tm

BASE = {
    "model": "llama-3.1-8b",
    "request": {"input_tokens": 1000, "output_tokens": 256, "tokens_per_s_per_user": 20},
    "systems": ["trn2.3xlarge", "hgx-h200"],
    "load": {"requests_per_s": 200},
    "prices": {"trn2.3xlarge": {"usd_per_chip_h": 1.5}},
    "job": {"chips": 256},
    "step": {"tp": 4, "batch": 8, "context": 2048},
    "training": {"tokens": 1e11, "chips": 256, "recompute": ["none"], "zero": [1], "sequence_parallel": [True]},
}
FAST = BASE | {"request": BASE["request"] | {"tokens_per_s_per_user": 50}, "precision": "fp8"}


@pytest.mark.parametrize("call", ["plan", "token_cost", "compare", "train_run"])
def test_rows_are_those_of_the_calls(call):
    table = tm.scenario_table([BASE, FAST], call, progress=False)
    assert table.columns[0] == "scenario"
    for label, source in (("1", BASE), ("2", FAST)):
        answer = getattr(tm.scenario(source), call)().to_frame(bands=True)
        rows = table[table.scenario == label].drop(columns="scenario").reset_index(drop=True)
        pd.testing.assert_frame_equal(rows[answer.columns], answer, check_dtype=False)


def test_calls_of_one_system_have_a_row_for_each_system():
    jobs = tm.scenario_table([BASE], "goodput", progress=False)
    assert jobs.goodput.tolist() == [float(tm.goodput(i, 256, model="llama-3.1-8b").goodput) for i in BASE["systems"]]
    hours = tm.scenario_table([BASE], "tco", progress=False).set_index("system").useful_usd_per_h
    assert hours["hgx-h200"] == pytest.approx(float(tm.tco("hgx-h200").useful_usd_per_h))
    steps = tm.scenario_table([BASE, FAST], "energy", progress=False)
    assert steps.scenario.tolist() == ["1", "1", "2", "2"]


def test_instances_are_those_of_the_plans():
    table = tm.scenario_table([BASE, FAST], "capacity", progress=False)
    for row, source in zip(table.to_dict("records"), (BASE, FAST), strict=True):
        answer = tm.scenario(source).plan()
        assert row["instances"] == float(answer.capacity.instances)
        # by hand: enough replicas for 200 requests/s, whole ones
        best = answer.best
        replicas = -(-200 // float(best.requests_per_s_per_replica))
        assert row["replicas"] >= replicas
        assert row["usd_per_month"] == pytest.approx(float(answer.capacity.usd_per_month))


def test_threads_and_processes_give_the_table_of_this_thread():
    own = replace(tm.system("hgx-h200"), status="custom", id="my-hgx")
    sources = [BASE, FAST, tm.scenario(BASE | {"systems": [own]}), BASE | {"training": {"tokens": 1e12, "days": 1e-6}}]
    for call in ("plan", "compare", "train_run"):
        serial = tm.scenario_table(sources, call, progress=False)
        with ThreadPoolExecutor(2) as pool:
            pd.testing.assert_frame_equal(tm.scenario_table(sources, call, pool, progress=False), serial)
        with ProcessPoolExecutor(2) as pool:
            pd.testing.assert_frame_equal(tm.scenario_table(sources, call, pool, progress=False), serial)


def test_a_file_is_named_and_what_nothing_satisfies_is_a_row(tmp_path):
    (tmp_path / "a.yaml").write_text("model: llama-3.1-8b\nsystems: hgx-h200\ntraining: {tokens: 1T, days: 1e-6}\n")
    table = tm.scenario_table([tmp_path / "a.yaml", str(tmp_path / "a.yaml"), BASE], "train_run", progress=False)
    assert table.scenario.tolist() == [str(tmp_path / "a.yaml")] * 2 + ["3"] * 2
    assert table.valid.tolist() == [False, False, True, True]
    assert table.reason[0].startswith(f"scenario {tmp_path / 'a.yaml'}: days=1e-06")


@pytest.mark.parametrize(
    ("sources", "call", "told"),
    [
        ([], "plan", "^sources="),
        (BASE, "plan", "^sources='dict': allowed is a list"),
        ("buyer.yaml", "plan", "^sources='buyer.yaml'"),
        (None, "plan", "^sources=None"),
        ([BASE, {"modle": 1}], "plan", "^scenario 2: modle: there is no such key; nearest: model$"),
        ([BASE, {"model": "llama-3.1-8b"}], "plan", "^scenario 2: request is missing"),
        ([BASE | {"load": {}}], "capacity", "^scenario 1: load is missing"),
        ([{"model": "llama-3.1-8b", "job": {"chips": 8}}], "goodput", "^scenario 1: systems is missing"),
        ([BASE], "plans", "^call='plans'"),
        ([BASE] * 10_001, "plan", "^sources='10001 scenarios'"),
    ],
)
def test_what_cannot_be_asked_names_its_scenario(sources, call, told):
    with pytest.raises(ValueError, match=told):
        tm.scenario_table(sources, call, progress=False)


@pytest.mark.parametrize("executor", [1, ThreadPoolExecutor, "threads"])
def test_what_is_no_executor_is_refused(executor):
    with pytest.raises(ValueError, match=r"^executor="):
        tm.scenario_table([BASE], "tco", executor)
