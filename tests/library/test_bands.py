"""Intervals: their formulas by hand, their files as the errors give them, how often they hold, and odd questions."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel import bands
from trnmodel.bands import Near, judged
from trnmodel.catalog import load
from trnmodel.formulas.bands import (
    conformal_width,
    grown_width,
    interval_score,
    joint_width,
    octaves_outside,
    shrunk_width,
    tail_widths,
)
from trnmodel.result import Basis
from trnmodel.serving.server import disaggregate

TRN2, TRN3, LLAMA, TP8 = "trn2.48xlarge", "trn3-nl72x2-pcie160", "llama-3.1-8b", tm.Mapping(tp=8)
ASK = {"model": LLAMA, "mapping": TP8, "batch": 4, "context": 2048}


def decode(system=TRN2, **more):
    return tm.decode_step(**ASK | {"system": system} | more)


def test_the_quantile_is_the_one_that_covers_one_more():
    """Of 19 errors 0.01 ... 0.19 the 0.9 x 20 = 18th; of 9 the 9th; of 4 there is none, so the largest."""
    for n, expected in ((19, 0.18), (9, 0.09), (4, 0.04)):
        errors = np.arange(1, n + 1) / 100 * (-1) ** np.arange(n)
        assert conformal_width(errors) == pytest.approx(expected)
    assert np.isnan(conformal_width([]))
    with pytest.raises(ValueError, match="2 dimensions"):
        conformal_width([[0.1]])


def test_exchangeable_errors_are_covered():
    """Split conformal holds 90 % of new errors whatever their distribution: 2,000 draws of 29 + 1 Cauchy errors."""
    draws = np.random.default_rng(3).standard_cauchy((2000, 30))
    inside = [abs(row[-1]) <= conformal_width(row[:-1]) for row in draws]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.02)


def test_widths_by_hand():
    """exp((24 ln 0.2 + 8 ln 0.4) / 32) = 0.2 x 2^(1/4); sqrt(1 + 0.1 x 10) = sqrt 2; 3, 4, 12 -> 13."""
    assert shrunk_width(0.2, 24, 0.4) == pytest.approx(0.2 * 2**0.25)
    assert shrunk_width(np.nan, 24, 0.4) == pytest.approx(0.4)
    assert grown_width(0.3, 10) == pytest.approx(0.3 * np.sqrt(2))
    assert joint_width(3, 4, 12) == pytest.approx(13)
    assert octaves_outside(96, 2, 24) == 2
    assert interval_score(0.5, 0.2) == pytest.approx(0.4 + 20 * 0.3)


def test_tails_by_hand():
    """Of 99 errors -0.99 ... -0.01 and then 1: the 0.95 x 101 -> 96th from either end is -0.04 and -0.95."""
    below, above = tail_widths([*-np.arange(1, 100) / 100, 1.0])
    assert (below, above) == pytest.approx((0.0, 0.95))
    assert np.isnan(tail_widths(np.ones(38))).all()
    assert tail_widths(np.ones(39)) == pytest.approx((1.0, 0.0))
    assert interval_score([0.5, -0.5, 0.1], 0.2, 0.4) == pytest.approx([0.6 + 20 * 0.3, 0.6 + 20 * 0.1, 0.6])
    with pytest.raises(ValueError, match="2 dimensions"):
        tail_widths([[0.1]])


def test_each_tail_holds_its_half_of_what_is_new():
    """2,000 draws of 59 + 1 exponential errors, all of one sign but for a shift: 5 % below, 5 % above."""
    draws = np.random.default_rng(5).exponential(size=(2000, 60)) - 0.3
    ends = np.array([tail_widths(row[:-1]) for row in draws])
    assert np.mean(draws[:, -1] > ends[:, 0]) == pytest.approx(0.05, abs=0.015)
    assert np.mean(-draws[:, -1] > ends[:, 1]) == pytest.approx(0.05, abs=0.015)


def test_a_rate_has_the_tails_of_its_time():
    """The same step as a time and as a rate: where the time can be longer, the rate can be lower, by the same ratio."""
    row = {
        "kind": "inference-LLM",
        "instance": "trn2.48xlarge",
        "workload": "Qwen3-30B-A3B",
        "phase": "decode",
        "batch": "1",
        "seq_len": "2048",
        "tp": "8",
        "precision": "BF16",
        "value": "10",
    }
    asked = [{"metric": "TPOT", "unit": "s"}, {"metric": "throughput", "unit": "tokens/s"}]
    time, rate = tm.validate(pd.DataFrame([row | one for one in asked])).itertuples()
    assert rate.low == pytest.approx(1 / time.high)
    assert rate.high == pytest.approx(1 / time.low)
    assert time.high / time.predicted > 1.5 * time.predicted / time.low  # experts' steps are longer than thought


def test_tails_hold_where_the_chip_has_rows_alone():
    """A generation without rows may err to either side: both have the width of errors without their signs."""
    known, new = (bands.near("decode", "expert", chip, "vllm-neuron-2026") for chip in ("trainium2", "trainium3"))
    assert known.tails is not None
    assert known.tails[1] > known.width > known.tails[0]
    assert new.tails is None
    assert "chip" in new.absent


NEAR = Near("mine", 0.2, (), np.array([[4.0, 8.0, 8.0], [1.0, 1.0, 16.0], [1024.0, 1024.0, 1024.0], [8e9, 8e9, 8e9]]))


@pytest.mark.parametrize(
    ("at", "word", "reason", "octaves"),
    [
        ({"ranks": 8, "batch": 1}, "measured", "", 0),
        ({"ranks": 8, "batch": 7}, "measured", "", 0),  # between two rows of eight ranks
        ({"ranks": 4, "batch": 7}, "interpolated", "", 0),  # none of four ranks above batch 1
        ({"ranks": 8, "batch": 16.1}, "measured", "", 0),  # within a hundredth
        ({"ranks": 8, "batch": 64}, "extrapolated", "batch: its rows end at 16", 2),
        ({"ranks": 16, "batch": 1}, "extrapolated", "ranks: its rows end at 8", 0),  # up to three octaves no growth
        ({"ranks": 128, "batch": 1}, "extrapolated", "ranks: its rows end at 8", 1),
        ({"ranks": 2, "batch": 32}, "extrapolated", "ranks: its rows begin at 4; batch: its rows end at 16", 1),
    ],
)
def test_words_and_distances(at, word, reason, octaves):
    found = judged(NEAR, at | {"length": 1024, "size": 8e9})
    assert (found.word, found.reason) == (word, reason)
    assert found.width == pytest.approx(0.2 * np.sqrt(1 + 0.1 * octaves), rel=1e-9)


def test_points_are_judged_as_each_by_itself():
    at = {"ranks": np.array([4, 8, 64])[:, None], "batch": np.array([1.0, 7, 16, 1000]), "length": 1024, "size": 8e9}
    many = judged(NEAR, at)
    for i, ranks in enumerate((4, 8, 64)):
        for j, batch in enumerate((1, 7, 16, 1000)):
            one = judged(NEAR, at | {"ranks": ranks, "batch": batch})
            assert (many.word[i, j], many.reason[i, j]) == (one.word, one.reason)
            assert many.width[i, j] == one.width


def test_many_points_are_compared_in_blocks(monkeypatch):
    at = {"ranks": 8, "batch": np.arange(1.0, 40), "length": 1024, "size": 8e9}
    whole = judged(NEAR, at).word
    monkeypatch.setattr(bands, "MOST", 20)
    assert judged(NEAR, at).word.tolist() == whole.tolist()


def test_a_grid_has_the_ends_of_its_points():
    batch, context = np.array([1, 4, 32])[:, None], np.array([512, 2048, 30000])
    many = decode(batch=batch, context=context)
    for name in ("time_s", "tokens_per_s"):
        low, high = many.ends(name)
        for i in range(3):
            for j in range(3):
                one = decode(batch=batch[i, 0], context=context[j])
                np.testing.assert_allclose((low[i, j], high[i, j]), one.ends(name), rtol=1e-9)
    frame = many.to_frame(bands=True)
    np.testing.assert_array_equal(frame.low, np.ravel(many.low))
    assert not {"low", "high"} & set(many.to_frame().columns)


def test_ends_are_computed_when_they_are_asked_for(monkeypatch):
    asked, step = [], decode()
    monkeypatch.setattr(type(step), "_widths", lambda step, name, part="": asked.append(name) or (0.1, 0.2))
    step.to_frame()
    assert not asked
    assert step.high == pytest.approx(step.time_s * np.exp(0.2))
    assert step.ends("tokens_per_s")[0] == pytest.approx(step.tokens_per_s * np.exp(-0.2))
    assert asked == ["time_s", "tokens_per_s"]


def test_further_is_wider():
    width = [np.log(float(step.high / step.low)) for step in (decode(context=2048), decode(context=100_000))]
    assert width[1] > width[0]
    width = [np.log(float(step.high / step.low)) for step in (decode(), decode(TRN3), decode("mi300x-8"))]
    assert width[0] < width[1]


@pytest.mark.parametrize("system", ["trn1.32xlarge", "inf2.48xlarge", TRN2, TRN3, "hgx-h100", "mi300x-8"])
@pytest.mark.parametrize("model", [LLAMA, "qwen3-30b-a3b", "qwen3-next-80b-a3b"])
def test_every_answer_lies_between_its_ends(system, model):
    mapping = tm.Mapping(tp=4)
    ask = {"model": model, "system": system, "mapping": mapping}
    found = [tm.decode_step(**ask, batch=2, context=3000), tm.prefill(**ask, input_tokens=3000)]
    found.append(tm.memory_fit(**ask, batch=2, context=3000))
    for one in found:
        value = getattr(one, one.FIGURE)
        if one.valid:
            assert 0 < one.low < value < one.high < np.inf
        assert one.ground().split(" ")[0] in ("measured", "interpolated", "extrapolated")


def test_a_sentence_about_several_points_is_refused():
    step = tm.decode_step(LLAMA, TRN2, tm.Mapping(tp=4), batch=[1, 2], context=3000)
    assert len(step.basis) == 2
    with pytest.raises(ValueError, match="one point, not of 2; `basis` has that of each"):
        step.ground()


def test_the_ideal_stack_has_no_width_and_rests_on_nothing():
    step = decode(efficiencies="ideal")
    assert step.low == step.high == step.time_s
    assert (step.measured_share, decode(TRN3).measured_share) == (0, 0)
    assert decode().measured_share == pytest.approx(1)


def test_a_hand_tuned_answer_has_the_band_of_its_parts():
    """No row is of it: without ranges nothing is left of the band, wherever the question lies."""
    e = tm.efficiencies("trainium2", "hand-tuned")
    for context in (2048, 32_768):
        step = decode(efficiencies=e, context=context)
        bare = decode(efficiencies=replace(e, ranges={}), context=context)
        assert (step.basis, bare.basis) == ("extrapolated", "extrapolated")
        assert bare.low == bare.high == bare.time_s
        assert step.low < step.time_s < step.high
    part = "weight_stream_share"  # as in memory: the one part decides
    one = replace(e, ranges={part: (getattr(e, part) / 2, getattr(e, part))})
    streamed = decode(efficiencies=replace(e, weight_stream_share=getattr(e, part) / 2))
    assert decode(efficiencies=one).high == pytest.approx(streamed.time_s)


def test_outside_the_rows_the_ranges_of_a_stack_count():
    e = tm.efficiencies("trainium3")
    narrow = replace(e, ranges={})
    wide = replace(e, ranges={"weight_stream_share": (0.01 * e.weight_stream_share, e.weight_stream_share)})
    low, high = (decode(TRN3, efficiencies=one) for one in (narrow, wide))
    assert high.high > 2 * low.high
    assert high.low == pytest.approx(low.low)  # the other end is the value itself


def test_served_and_split_requests_have_ends():
    served = tm.serve(LLAMA, tm.Request(1024, 128, requests_per_s=[0.1, 1e9]), TRN2, TP8, max_batch=8)
    assert served.low[0] < served.tpot_mean_s[0] < served.high[0]
    assert np.isnan(served.low[1])
    for name in ("ttft_p50_s", "request_s", "tokens_per_s_per_user"):
        low, high = served.ends(name)
        assert low[0] < getattr(served, name)[0] < high[0], name
    assert served.ends("tokens_per_s")[0][0] == served.tokens_per_s[0]  # arrivals, no prediction
    sides = {"prefill_mapping": TP8, "decode_mapping": TP8, "batch": 4, "input_tokens": 512, "output_tokens": 64}
    both = disaggregate(LLAMA, prefill_system=TRN2, decode_system=TRN2, **sides)
    assert both.low < both.tokens_per_s_per_chip < both.high
    assert np.all(both.ends("step_s")[1] / both.step_s <= both.ends("ttft_s")[1] / both.ttft_s)


def test_kernels_and_collectives_have_ends():
    kernel = tm.kernel.matmul("trainium2", [1024, 8192], 4096, 2048)
    assert (kernel.low < kernel.time_s).all()
    assert (kernel.time_s < kernel.high).all()
    compiled = tm.kernel.matmul("trainium1", 1024, 4096, 2048, stack="stack-torch-trace")
    assert "chip: no kernel row of stack-torch-trace on trainium1" in compiled.ground()
    for size in (0, 1, 2**30):
        one = tm.collective("all_reduce", size, TRN2, ranks=16, lnc=2)
        assert one.low <= one.time_s <= one.high
    assert tm.collective("all_reduce", 2**20, TRN3).basis == "extrapolated"


def test_default_stacks_have_a_word_on_every_chip():
    for chip in load.chips():
        if load.chip(chip).default_stack and "bf16" in load.chip(chip).peak_flop_per_s:
            step = tm.decode_step(LLAMA, load.chip(chip), tm.Mapping(tp=4), batch=1, context=2048)
            assert step.basis in ("measured", "interpolated", "extrapolated")
            assert bool(step.basis_reason) == (step.basis == "extrapolated")


def test_widths_of_either_side_by_hand():
    """Of 40 errors from -0.20 to 0.19 the ceil(0.95 x 41) = 39th from below and from above."""
    below, above = tail_widths([n / 100 for n in range(-20, 20)], 0.9)
    assert (float(below), float(above)) == (0.18, 0.19)


@pytest.mark.parametrize(
    ("own", "cases", "width"),
    [(0.1, 3, (0.1**3 * 0.4**8) ** (1 / 11)), (0.1, 2, 0.4), (np.nan, 5, 0.4), (0.0, 0, 0.4)],
)
def test_a_group_has_a_say_from_three_cases_on(own, cases, width):
    assert shrunk_width(own, cases, 0.4) == pytest.approx(width)


def test_a_step_at_a_row_that_contradicts_it_is_extrapolated():
    """AWS measured 241.5 ms a token of GLM-5.2 there (row 009f9a534f)."""
    ask = {"model": "glm-5.2", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=64), "precision": "fp8"}
    step = tm.decode_step(**ask, batch=[1, 1, 4], context=[2048, 2060, 2048])
    assert not (step.low[0] <= 0.2415 <= step.high[0])
    assert step.basis.tolist()[:2] == ["extrapolated"] * 2
    assert all("contradicted by row" in reason and "009f9a534f" in reason for reason in step.basis_reason[:2])
    assert "contradicted" not in step.basis_reason[2]
    ideal = tm.decode_step(**ask, batch=1, context=2048, efficiencies="ideal")
    assert (ideal.basis, ideal.basis_reason) == ("ideal", "")


def test_what_is_contradicted_keeps_its_width_and_its_other_reasons():
    part, place = ("decode", "dense", "trainium2", "mine"), {"ranks": 8.0, "size": 8e9}
    found = Basis(np.array(["measured", "extrapolated", "measured"], dtype=object), np.array(["", "chip: x", ""]), 0.2)
    points = {"ranks": np.array([8.0, 8.0, 16.0]), "size": 8.05e9}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bands, "shipped_outliers", lambda: {part: {"abc": place}})
        told = bands.contradicted(found, *part, points)
        other = bands.contradicted(found, *part[:3], "another", points)
        elsewhere = bands.contradicted(found, *part, points | {"batch": 1.0})
    assert told.word.tolist() == ["extrapolated", "extrapolated", "measured"]
    assert told.reason.tolist() == ["contradicted by row abc", "chip: x", ""]
    assert told.width == 0.2
    assert other.word.tolist() == elsewhere.word.tolist() == found.word.tolist()
