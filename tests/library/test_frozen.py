"""What was stated before it was measured: the list is fixed, no line of the past changes, and rows find their line."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.cli.app import app
from trnmodel.evidence.frozen import HEADLINES, QUESTIONS, STATEMENTS, headlines, today

ROW = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "engine": "vllm-neuron", "precision": "fp8", "lnc": 2}
ROW |= {"tp": 8, "slots": 1, "clients": 1, "input_len": 1024, "output_len": 1024, "metric": "TPOT mean"}
ROW |= {"value": 7.5, "unit": "ms", "kind": "inference-LLM-serving"}
# of the lines of each commit, so that a statement cannot be changed when its measurement has come
PAST = {"b09f5d15": (232, "7ef4f7ac9f8278e9")}


@pytest.fixture(scope="module")
def stated():
    return tm.frozen()


def test_the_list_has_two_hundred_questions_that_all_have_an_answer(stated):
    asked = stated[stated.kind == "question"].drop_duplicates("id")
    assert len(asked) == 200
    assert len(pd.read_csv(QUESTIONS).id.unique()) == 200
    assert asked.now.gt(0).all()
    assert (asked.stated_low <= asked.stated).all()
    assert (asked.stated <= asked.stated_high).all()


def test_every_headline_was_stated(stated):
    assert set(stated[stated.kind == "headline"].id) == set(headlines())
    assert len(headlines()) == len(pd.read_csv(HEADLINES))


@pytest.mark.parametrize("commit", PAST)
def test_no_line_of_the_past_changes(commit):
    lines = [line for line in STATEMENTS.read_text().splitlines() if f",{commit}," in line]
    found = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert (len(lines), found) == PAST[commit]


def test_every_line_belongs_to_a_commit_that_is_checked(stated):
    assert set(stated.commit) == set(PAST)


def test_a_row_finds_its_statement_in_its_unit():
    """0.0075 s is 7.5 ms: against 6.94468 ms the statement was 6.94468 / 7.5 - 1 = -7.4 % off."""
    for row in (ROW, ROW | {"value": 0.0075, "unit": "s"}):
        (line,) = tm.frozen(row).to_dict("records")
        assert (line["id"], line["inside"], line["unit"]) == ("frozen-001", "yes", "ms")
        assert line["measured"] == pytest.approx(7.5)
        assert line["error"] == pytest.approx(6.94468 / 7.5 - 1)


@pytest.mark.parametrize(
    "change",
    [
        {"instance": "trn2.3xlarge"},
        {"workload": "llama-3.2-1b"},
        {"tp": 16},
        {"precision": "bf16"},
        {"slots": 16, "clients": 16, "input_len": 2048},
        {"input_len": 1200},
        {"metric": "TTFT mean"},
        {"workload": "nobody's"},
    ],
)
def test_a_row_of_another_question_finds_none(change):
    assert not len(tm.frozen(ROW | change))


@pytest.mark.parametrize("change", [{"input_len": 1000}, {"date_or_sdk": "2027-03 SDK 2.34"}, {"value": 99.0}])
def test_a_row_a_little_beside_or_of_a_later_release_finds_it(change):
    assert tm.frozen(ROW | change).id.tolist() == ["frozen-001"]


def test_outside_the_band_is_outside():
    assert tm.frozen(ROW | {"value": 99.0}).inside.tolist() == ["no"]


def test_several_rows_keep_their_labels():
    rows = pd.DataFrame([ROW, ROW | {"workload": "nobody's"}, ROW | {"value": 8.0}], index=["a", "b", "c"])
    assert tm.frozen(rows)["row"].tolist() == ["a", "c"]


def test_moved_is_how_far_the_answer_has_moved_since(stated):
    now = today()
    for line in stated.sample(20, random_state=1).to_dict("records"):
        assert line["moved"] == pytest.approx(now[line["id"]].now / line["stated"] - 1)


def test_a_headline_is_what_the_public_call_says(stated):
    best = tm.plan("llama-3.3-70b", tm.Request(4096, 512, tokens_per_s_per_user=50), "trn2.48xlarge").best
    line = stated[stated.id == "made-llama-trn2.48xlarge"].iloc[0]
    assert line.now == pytest.approx(best.tokens_per_s_per_chip)
    assert np.isnan(line.now_low)


def test_validate_says_what_was_stated(tmp_path):
    """Both rows are the same question: one inside the stated band of 5.68 to 14.3 ms, one outside."""
    path = tmp_path / "rows.csv"
    pd.DataFrame([ROW, ROW | {"value": 20.0}]).to_csv(path, index=False)
    said = CliRunner().invoke(app, ["validate", str(path)]).output
    assert f"Stated on 2026-11-27 of {path} line 2, TPOT mean (frozen-001, commit b09f5d15): 6.9 ms (5.7 to 14)" in said
    assert "measured 7.5 ms, inside the band of that day." in said
    assert "measured 20 ms, outside the band of that day." in said
