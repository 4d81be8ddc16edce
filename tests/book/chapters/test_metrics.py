"""The words for speed: by hand on a stream of whole seconds, and what two tools print for it."""

import pytest

from trnbook import charts
from trnbook.chapters import metrics
from trnmodel.catalog import load

# A prompt takes 4 s, a step 1 s, answers have 5 tokens; the second request comes while the first one's prompt is read.
WHOLE = metrics.stream([0.0, 1.0], 4.0, [1.0, 1.0], 100, 5)


def test_timestamps_by_hand():
    """A: prompt 0-4, then B's prompt 4-8, then steps; B has its first token at 8."""
    assert WHOLE.token_s.tolist() == [[4, 9, 10, 11, 12], [8, 9, 10, 11, 12]]
    assert WHOLE.begun_s.tolist() == [0, 4]


def test_metrics_by_hand():
    assert metrics.ttft_s(WHOLE).tolist() == [4, 7]
    assert metrics.itl_s(WHOLE).tolist() == [[5, 1, 1, 1], [1, 1, 1, 1]]
    assert metrics.tpot_s(WHOLE).tolist() == [2, 1]
    assert metrics.e2e_s(WHOLE).tolist() == [12, 11]
    assert metrics.tokens_per_s(WHOLE) == 10 / 12
    assert metrics.tokens_per_s(WHOLE, prompts=True) == 210 / 12
    assert metrics.in_time(WHOLE, 7, 1).tolist() == [False, True]
    assert metrics.in_time(WHOLE, 6.9, 2).tolist() == [True, False]


def test_words_by_hand():
    """A's first token comes at 4 s and its last at 12; ten tokens of two requests take 12 s; B alone is in time."""
    found = metrics.by_hand(WHOLE, 1.0, 2.0, 7, 1).set_index("word").value
    assert found["TTFT"] == "4 s"
    assert found["ITL"] == "1 s, 5 s"
    assert found["TPOT"] == "2 s"
    assert found["E2E latency"] == "12 s"
    assert found["interactivity"] == "0.5 tokens/s"
    assert found["throughput per chip"] == "0.417 tokens/s"
    assert found["goodput"] == "0.0833 requests/s"


def test_what_tools_print_for_it():
    """LLMPerf: 12 / 5 and 11 / 5; vLLM: (12 - 4) / 4 and (11 - 7) / 4; AWS's formula divides by 5."""
    found = {(row.tool, row.word): metrics.COUNTS[row.counts][1](WHOLE) for row in metrics.counted()}
    assert found["LLMPerf", "inter token latency"] == pytest.approx((12 / 5 + 11 / 5) / 2)
    assert found["vLLM bench", "TPOT"] == 1.5
    assert found["AIPerf", "inter token latency"] == 1.5
    assert found["AWS Neuron, formula of its guide", "TPOT"] == pytest.approx((8 / 5 + 4 / 5) / 2)
    assert found["AIPerf", "output token throughput per user"] == 0.75
    assert found["LLMPerf", "request output throughput"] == pytest.approx((5 / 12 + 5 / 11) / 2)


def test_the_clock_runs_on_while_nobody_is_there():
    s = metrics.stream([0.0, 100.0], 1.0, [1.0, 1.0], 10, 2)
    assert s.token_s.tolist() == [[1, 2], [101, 102]]
    assert metrics.duration_s(s) == 102


def test_first_come_first_served_and_a_step_may_take_longer_for_more():
    s = metrics.stream([0.0, 0.5, 0.2], 1.0, [1.0, 2.0, 3.0], 10, 2)
    assert s.begun_s.tolist() == [0, 2, 1]
    assert s.token_s[:, 1].tolist() == [6, 6, 6]


@pytest.mark.parametrize("sent", [[0.0], [0.0, 0.0], [0.0, 1.0, 30.0]])
def test_spans_are_the_whole_of_each_request(sent):
    """Wait, prompt, pauses and steps of a request follow each other without a gap from sending to the last token."""
    s = metrics.stream(sent, 4.0, [1.0] * len(sent), 10, 5)
    for name, rows in metrics.spans(s).groupby("request"):
        i = s.names.index(name)
        assert rows.start_s.iloc[0] == s.sent_s[i]
        assert rows.end_s.iloc[-1] == s.token_s[i, -1]
        assert (rows.start_s.iloc[1:].to_numpy() == rows.end_s.iloc[:-1].to_numpy()).all()
        assert (rows.part == "a decode step: a token").sum() == 4


def test_printed_means_obey_the_definition_and_not_that_of_the_unpatched_tool():
    table = metrics.printed()
    assert len(table) == 4
    assert table.tpot_error.abs().max() < 1e-4
    assert table.with_first_error.min() > 0.05
    first = table.iloc[0]
    assert first.tpot_s == pytest.approx((41.04328 - 11.50373) / 1500.04, rel=1e-5)


def test_every_definition_has_a_source_with_an_address():
    assert all(load.sources()[row.source].url and row.locator for row in metrics.counted())


def test_spans_share_one_scale():
    chart = charts.spans(metrics.spans(WHOLE), "start_s", "end_s", "request", "part", caption="A stream").to_dict()
    (rows,) = chart["datasets"].values()
    assert max(row["end_s"] for row in rows) == 12
    assert min(row["start_s"] for row in rows) == 0
    assert chart["encoding"]["x"]["title"] == "Time since the first request [s]"
    assert chart["encoding"]["x2"]["field"] == "end_s"
