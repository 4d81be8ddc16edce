"""The chapter on own measurements: its example, what it reads of files of strangers, and its arithmetic."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook import report
from trnbook.chapters import bring_your_own as own
from trnbook.report import chapter
from trnbook.shared import own_rows
from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.cli.errors import InputError

STEP = {
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-8B",
    "tp": 8,
    "seq_len": 4096,
    "metric": "TPOT",
    "unit": "ms",
}


@pytest.fixture(scope="module")
def rows():
    return tm.read_measurements(own.path_of("example")).rows


@pytest.fixture(scope="module")
def ours(rows):
    return tm.calibrate(rows)


def test_the_example_says_in_its_own_words_that_it_is_invented(rows):
    runs = [json.loads(line) for line in own.SHIPPED.read_text().splitlines()]
    assert all("invented" in run["label"] for run in runs)
    assert rows.run.nunique() == len(runs) == 6
    assert set(rows.instance) == {"trn2.48xlarge"}


def test_nothing_of_the_example_is_refused():
    assert len(tm.read_measurements(own.path_of("example")).refused) == 0


def test_the_example_is_slower_than_the_model_by_what_the_text_says(rows):
    """Decode steps were made 1.25 times as long as predicted, first tokens 1.1 times, with 3 % of scatter."""
    judged = tm.validate(rows)
    steps = judged[judged.metric == "ITL p50"].error
    assert np.log(1 / (1 + steps)).mean() == pytest.approx(math.log(1.25), abs=0.06)
    alone = judged[(judged.metric == "TTFT mean") & (judged.meaning == "one-prefill")].error
    assert 0.85 < 1 + float(alone.iloc[0]) < 1.0


def test_rows_of_the_example_correct_the_model_for_runs_that_it_has_not_seen(rows, ours):
    known = own.usable(ours, rows)
    before = own.medians(tm.validate(known))[0]
    parts = [tm.validate(b, efficiencies=tm.calibrate(a).stack) for a, b in own.parts_left_out(known)]
    after = own.medians(own.together(parts, known))[0]
    assert after < 0.06 < 0.12 < before


def test_each_run_is_left_out_once_and_none_is_on_both_sides(rows):
    seen = []
    for some, others in own.parts_left_out(rows):
        assert not set(some.run) & set(others.run)
        seen += others.run.unique().tolist()
    assert sorted(seen) == sorted(rows.run.unique())
    assert list(own.parts_left_out(rows[rows.run == rows.run[0]])) == []


def test_a_run_of_a_table_without_names_is_a_line():
    table = pd.DataFrame({"file": ["a", "a", "b"], "run": "", "line": [1, 2, 1]})
    assert own.runs_of(table).tolist() == [0, 1, 2]


def test_many_runs_are_dealt_into_few_parts():
    table = pd.DataFrame({"file": "a", "run": "", "line": range(100)})
    assert len(list(own.parts_left_out(table))) == own.MOST_PARTS


def test_points_are_in_seconds_with_their_bands(rows):
    judged = tm.validate(rows)
    drawn = own.points(judged)
    assert list(drawn.columns[:2]) == ["measured_s", "predicted_s"]
    assert set(drawn.metric) <= {"TPOT", "ITL", "TTFT", "request latency"}
    assert (drawn.predicted_s_low <= drawn.predicted_s).all()
    assert 0.02 < drawn.measured_s.min() < 0.03


def test_a_cell_with_a_range_is_drawn_where_the_library_reads_it():
    judged = tm.validate(pd.DataFrame([STEP | {"batch": 1, "value": "9-11", "run": "", "file": "a", "line": 1}]))
    assert own.points(judged).measured_s.tolist() == pytest.approx([0.010])
    assert own.by_metric(judged).share_inside.tolist() in ([0.0], [1.0])


def test_a_file_of_rates_alone_is_drawn_as_rates(rows):
    rates = rows[rows.unit == "tokens/s"]
    assert list(own.points(tm.validate(rates)).columns[:2]) == ["measured_tokens_per_s", "predicted_tokens_per_s"]


def test_ratios_are_predicted_over_measured(rows):
    judged = tm.validate(rows)
    (row,) = own.ratios({"x": judged[judged.metric == "TPOT mean"]}).to_dict("records")
    errors = 1 + judged[judged.metric == "TPOT mean"].error
    assert row["predicted_over_measured"] == pytest.approx(errors.median())
    assert (row["predicted_over_measured_low"], row["predicted_over_measured_high"]) == (errors.min(), errors.max())


def test_a_metric_has_its_share_inside(rows):
    judged = tm.validate(rows)
    table = own.by_metric(judged.assign(high=judged.predicted)).set_index("metric")
    assert table.share_inside["TPOT mean"] == 0  # what is slower lies above such a band
    assert table.share_inside["requests per second"] == 1


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        (("", "", 0), {}),
        (("llama-3.1-8b", "trn2.48xlarge", 8), {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "tp": 8}),
    ],
)
def test_only_what_is_typed_is_stated_of_a_file(given, stated):
    assert own.statements(*given) == stated


def test_a_download_has_no_path_and_no_formula():
    table = own.by_file_name(
        pd.DataFrame({"file": ["/home/me/a.csv"], "note": "=1+1", "basis": "measured", "value": 2.0})
    )
    assert table.to_dict("records") == [{"file": "a.csv", "note": "'=1+1", "rests_on": "measured", "value": 2.0}]


def test_what_no_file_can_have_is_refused():
    with pytest.raises(UnanswerableError, match="tp = -1"):
        own.statements("", "", -1)
    with pytest.raises(UnanswerableError, match="no figure that can be read"):
        own.check_rows(pd.DataFrame())
    with pytest.raises(UnanswerableError, match=r"1,001 rows"):
        own.check_rows(pd.DataFrame({"a": range(own.MOST_ROWS + 1)}))


def test_a_machine_that_nobody_knows_is_asked_for():
    judged = pd.DataFrame({"skipped": [""], "model": "llama-3.1-8b", "instance": "our machine"})
    with pytest.raises(ValueError, match="our machine"):
        own.question_of(judged, "", "")
    assert own.question_of(judged, "", "trn2.48xlarge")[1].id == "trn2.48xlarge"


def test_rows_of_which_none_is_predicted_say_why():
    judged = pd.DataFrame({"skipped": ["no output length"], "model": "", "instance": ""})
    with pytest.raises(UnanswerableError, match="no output length"):
        own.question_of(judged, "", "")


def test_a_promise_that_nothing_keeps_is_impossible(ours):
    request = tm.Request(4096, 512, tokens_per_s_per_user=1e5)
    plan = tm.plan("llama-3.3-70b", request, "trn2.48xlarge", efficiencies=ours.stack)
    with pytest.raises(ImpossibleError, match="tokens_per_s_per_user = 100000"):
        own.check_plan(plan)


def test_constants_stand_before_and_after_in_long_form(ours):
    table = own.prior_and_posterior(ours)
    assert table.constant.tolist()[: len(table) // 2] == table.constant.tolist()[len(table) // 2 :]
    assert (table[table.when == own.PRIOR].value_over_the_shipped_one == 1).all()
    assert not set(table.constant) & set(ours.undetermined)
    assert set(own.constants(ours).constant) == set(ours.constants.constant)


def test_one_row_takes_the_share_of_the_gap_that_the_page_prints():
    """k = s^2 / (s^2 + r^2) = 0.24^2 / (0.24^2 + 0.075^2) = 0.91, of a gap from 21.5 to 25 ms: 24.7 ms."""
    k = 0.24**2 / (0.24**2 + 0.075**2)
    assert (round(k, 2), round(0.24 * math.sqrt(1 - k), 2)) == (0.91, 0.07)
    assert round(21.5 * (25 / 21.5) ** k, 1) == 24.7


def test_the_template_is_read_with_a_row_and_refused_without(tmp_path):
    assert own.template().empty
    row = {"instance": "trn2.48xlarge", "workload": "Llama-3.3-70B", "engine": "vllm-neuron", "date_or_sdk": "SDK 2.28"}
    row |= {"precision": "bf16", "lnc": 2, "tp": 32, "slots": 16, "clients": 8, "input_len": 1024, "output_len": 256}
    path = tmp_path / "own.csv"
    pd.concat([own.template(), pd.DataFrame([row | {"metric": "TPOT mean", "value": 36.1, "unit": "ms"}])]).to_csv(
        path, index=False
    )
    read = tm.read_measurements(path)
    assert (len(read.rows), len(read.refused)) == (1, 0)
    assert tm.validate(read.rows).skipped[0] == ""
    named = [name for cell in own.column_meanings().name for name in cell.split(", ")]
    assert set(named) <= set(own.template().columns)


def test_the_error_falls_with_ten_rows_and_stays_above_the_floor():
    table = own_rows.falling()
    total = table[table.part == "all"].pivot_table(index="own_rows", columns="line", values="median_error")
    assert list(total.index) == [0, 1, 3, 10]
    assert total[own_rows.SEEN][10] < total[own_rows.SEEN][0]
    assert (total[own_rows.FLOOR] < total[own_rows.SEEN]).all()


def test_a_part_without_ten_rows_has_a_shorter_line(monkeypatch):
    whole = own_rows._replays()
    monkeypatch.setattr(own_rows, "_replays", lambda: whole[(whole.part != "decode steps") | (whole.number < 10)])
    table = own_rows.falling()
    assert set(table[table.part == "decode steps"].own_rows) == {0, 1, 3}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", "{", "no figure that can be read"),
        ("a.csv", "instance,workload,metric,value,unit\nx,y,z,1,s\n", "no row can be predicted"),
        ("a.csv", "=cmd|' /C calc'!A0,b\n1,2\n", "no figure that can be read"),
        ("a.json", "", "no figure that can be read"),
    ],
)
def test_a_file_that_says_nothing_is_refused_in_a_line(tmp_path, name, text, why):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=why) as refusal:
        chapter.check_answers("bring-your-own", report.check_parameters("bring-your-own", {"file": str(path)}))
    assert "\n" not in str(refusal.value)


def test_a_file_of_training_moves_no_constant_and_says_so(tmp_path):
    path = tmp_path / "a.csv"
    pd.DataFrame(
        [{"instance": "trn2.48xlarge", "workload": "all_reduce 1 MiB", "metric": "time", "value": 50, "unit": "us"}]
    ).to_csv(path, index=False)
    with pytest.raises(InputError):
        chapter.check_answers("bring-your-own", report.check_parameters("bring-your-own", {"file": str(path)}))


def test_a_missing_file_is_refused():
    with pytest.raises(InputError, match=r"no-such\.json"):
        chapter.check_answers("bring-your-own", report.check_parameters("bring-your-own", {"file": "no-such.json"}))
