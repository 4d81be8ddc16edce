"""The waterfall of a gap between kinds of software: bars that chain, one claim, and a sentence of two numbers."""

import re
from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook import charts
from trnbook.shared import gaps

CHAT = tm.Request(4096, 512, tokens_per_s_per_user=20)


@pytest.fixture(scope="module")
def experts():
    return tm.software_gap("deepseek-v3", CHAT, "trn3-nl72x2-pcie160")


@pytest.fixture(scope="module")
def broken():
    """Public software keeps no promise."""
    return tm.software_gap("deepseek-v3", replace(CHAT, tokens_per_s_per_user=100), "trn3-nl72x2-pcie160")


def test_each_bar_begins_where_the_one_before_it_ended(experts):
    table = gaps.bars(experts)
    assert table.which.is_unique
    wholes = table[table.before.isna()]
    assert wholes.which.tolist() == [f"{kind} software" for kind in experts.kinds]
    made = table.tokens_per_s_per_chip
    for i in table.index[1:]:
        last = made[i - 1]
        assert table.before[i] == pytest.approx(last, rel=gaps.LEAST - 1) or made[i] == last  # a whole repeats the last
    assert table.label[0] == "1,880 tokens/s"
    lost = experts.largest("public")
    label = table[table.which == f"{lost.mechanism} (public)"].label.item()
    assert float(label.removeprefix("÷ ")) == pytest.approx(1 / lost.factor, rel=0.05)


def test_the_chart_has_an_axis_of_powers_and_one_claim(experts):
    chart = gaps.waterfall(experts, "a question").to_dict()
    bar = chart["layer"][0]["encoding"]
    assert bar["x"]["scale"]["type"] == "log"
    assert bar["x"]["title"] == "Throughput per chip [tokens/s]"
    assert bar["color"]["scale"]["domain"] == list(experts.kinds)
    assert chart["title"]["text"] == [gaps.claim(experts)]
    assert gaps.claim(experts).startswith(f"Most is lost to {experts.largest().mechanism}: ")
    assert "a question" in chart["title"]["subtitle"][0]
    assert chart["layer"][1]["mark"]["type"] == "text"


def test_a_bar_of_a_whole_begins_below_every_other(experts):
    plot = charts.waterfall(
        gaps.bars(experts), "before", "tokens_per_s_per_chip", "which", "software", label="label", caption="A"
    )
    rows = next(iter(plot.to_dict()["datasets"].values()))
    starts = {row["before"] for row in rows if row["which"].endswith(" software")}
    assert len(starts) == 1
    assert 0 < starts.pop() < min(row["tokens_per_s_per_chip"] for row in rows)


def numbers(text):
    return re.findall(r"\d[\d,.]*", text)


@pytest.mark.parametrize(("of", "said"), [("usd_per_mtoken", "a token costs"), ("server_j_per_token", "energy")])
def test_a_sentence_has_two_numbers_at_most(of, said, experts):
    for gap in (experts, tm.software_gap("llama-3.3-70b", CHAT, "trn2.48xlarge", of=of)):
        text = gaps.describe(gap)
        assert max(len(numbers(sentence)) for sentence in re.split(r"[.;] ", text)) <= 2
        assert text.count("published changes of its kind") == (gap.largest().mechanism in gaps.CAUSES)
        assert f"**{gap.largest().mechanism}**" in text
    assert said in text


def test_a_promise_that_breaks_is_said_and_not_drawn(broken):
    text, most = gaps.describe(broken), broken.largest().mechanism
    assert f"no plan keeps the promise once **{most}** is that of public software" in text
    assert len(numbers(text)) == 1
    assert not {"public software", f"{most} (public)"} & set(gaps.bars(broken).which)
    chart = gaps.waterfall(broken).to_dict()
    assert chart["title"]["text"] == [f"The promise breaks with {most} (public)"]
    assert "no plan keeps the promise: public software" in " ".join(chart["title"]["subtitle"])


def test_a_stage_between_that_breaks_the_promise_is_named(experts):
    """Public software keeps it again: a stack counts by the step what the other counts by the layer."""
    stages = list(experts.stages)
    at = next(i for i, stage in enumerate(stages) if stage.software == "public")
    stages[at] = replace(stages[at], value=0.0, factor=0.0, reason="too slow")
    stages[at + 1] = replace(stages[at + 1], factor=np.inf)
    gap = replace(experts, stages=tuple(stages))
    assert f"**{stages[at].mechanism}** of public software breaks the promise until" in gaps.describe(gap)
    assert gaps.unreached(gap) == [f"no plan keeps the promise: {stages[at].mechanism} (public)"]
    assert not {f"{one.mechanism} (public)" for one in stages[at : at + 2]} & set(gaps.bars(gap).which)


def test_where_nothing_is_lost_or_nothing_is_fast_enough_the_sentence_says_so(experts):
    never = tm.software_gap("llama-3.1-8b", replace(CHAT, tokens_per_s_per_user=1e6), "trn2.48xlarge")
    assert gaps.describe(never) == gaps.claim(never) + "."
    assert len(gaps.bars(never)) == 0
    assert gaps.waterfall(never).to_dict()["title"]["text"] == ["Even ideal software keeps no promise"]
    alone = replace(experts, stages=experts.stages[:1])
    assert gaps.describe(alone) == "No software loses anything here."
    only = replace(
        experts, stages=(experts.stages[0], replace(experts.stages[1], value=0.0, factor=0.0, reason="slow"))
    )
    assert gaps.describe(only).startswith("Only ideal software keeps the promise: no plan")


def test_days_are_a_waterfall_too():
    gap = tm.training_gap("llama-3.1-8b", "hgx-h100", tokens=1e12, chips=64, seq=4096, global_batch=256)
    table = gaps.bars(gap)
    assert table.days.iloc[-1] > table.days.iloc[0]
    assert all(label[0] in "×÷" for label in table.label[table.before.notna()])
    assert "takes" in gaps.describe(gap)
    assert np.isfinite(gap.lost())
    assert gaps.waterfall(gap).to_dict()["layer"][0]["encoding"]["x"]["title"] == "Days"
