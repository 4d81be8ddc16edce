"""Intervals: their formulas by hand, their files as the errors give them, how often they hold, and odd questions."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel import bands, neighbours
from trnmodel.bands import UNSTATED, judged
from trnmodel.catalog import load
from trnmodel.catalog.bands import AXES, LABELS, Width
from trnmodel.formulas.bands import (
    conformal_width,
    effective_rows,
    grown_width,
    interval_score,
    joint_width,
    local_scale,
    shrunk_width,
    tail_widths,
)
from trnmodel.neighbours import Rows
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
    points = {"ranks": 8.0, "batch": 1.0, "length": 2048.0, "size": 3e9}
    known, new = (
        judged(bands.near("decode", "expert", chip, "vllm-neuron-2026"), points) for chip in ("trainium2", "trainium3")
    )
    assert known.tails is not None
    assert known.tails[1] > known.width > known.tails[0]
    assert new.tails is None
    assert "chip" in bands.near("decode", "expert", "trainium3", "vllm-neuron-2026").absent


def test_rows_of_a_page_are_worth_fewer():
    """One row counts as one, three as 3 / (1 + 0.5 x 2) = 1.5, and a million as two."""
    assert effective_rows([0.25, 1, 3, 1e6]) == pytest.approx([0.25, 1, 1.5, 2], rel=1e-5)
    assert effective_rows(7, 0) == 7
    assert effective_rows(7, 1) == 1
    with pytest.raises(ValueError, match="correlation"):
        effective_rows(1, 2)


def test_a_scale_by_hand():
    """Pages with rows of 0.1 (one) and of 0.2 and 0.8 (two, worth 4/3), and the prior 0.3 with the say of one row."""
    logs = np.log([0.1, 0.2 * 0.8, 1.0])
    expected = np.exp((np.log(0.1) + 4 / 3 * np.log(0.4) + np.log(0.3)) / (1 + 4 / 3 + 1))
    assert local_scale([1.0, 2.0, 0.0], logs, 0.3) == pytest.approx(expected)
    assert local_scale([0.0, 0.0], [0.0, 0.0], 0.3) == pytest.approx(0.3)
    many = local_scale([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]], [logs, np.zeros(3)], [0.3, 0.5])
    assert many == pytest.approx([expected, 0.5])


PLACES = np.array([[4.0, 8.0, 8.0], [1.0, 1.0, 16.0], [1024.0, 1024.0, 1024.0], [8e9, 8e9, 8e9]])
WIDTH = Width("mine", "pool", 3, 3, 0.1, 0.3, 2.0, 1.5, 4.0)
MINE = ("part", "dense", "chip", "stack")


def rows_of(values, errors=None, pages=None, stacks=None, unknown=0):
    """Return rows of one group side by side, each on a page of its own unless they are named."""
    n = values.shape[1]
    labels = dict(zip(LABELS, (np.full(n, name, dtype=object) for name in ("mine", *MINE)), strict=True))
    labels["stack"] = np.array(stacks or ["stack"] * n, dtype=object)
    of = {"source": np.array(pages or [f"page {i}" for i in range(n)]), "unknown": np.full(n, unknown)}
    return Rows(labels, values, of | {"log_error": np.array(errors or [0.1] * n)}, {"mine": WIDTH})


NEAR = rows_of(PLACES).near(*MINE)


@pytest.mark.parametrize(
    ("at", "word", "reason", "octaves"),
    [
        ({"ranks": 8, "batch": 1}, "measured", "", 0),
        ({"ranks": 8, "batch": 16.1}, "measured", "", 0),  # within a hundredth
        ({"ranks": 8, "batch": 16.2}, "interpolated", "", 0),
        ({"ranks": 8, "batch": 32}, "interpolated", "", 1),
        ({"ranks": 4, "batch": 2}, "interpolated", "", 1),
        ({"ranks": 8, "batch": 4}, "extrapolated", "batch: 4.0 times the nearest row's 1", 2),  # between two rows
        ({"ranks": 8, "batch": 6}, "extrapolated", "batch: 0.38 times the nearest row's 16", 1.375),
        ({"ranks": 4, "batch": 16}, "interpolated", "", 1),  # of the row at eight ranks
        ({"ranks": 2, "batch": 12}, "extrapolated", "ranks: 0.25 times the nearest row's 8", 2.375),
        ({"ranks": 64, "batch": 64}, "extrapolated",
         "ranks: 8.0 times the nearest row's 8; batch: 4.0 times the nearest row's 16", 5),
    ],
)  # fmt: skip
def test_words_and_distances(at, word, reason, octaves):
    """A factor of two is a neighbour's, on all axes of one row; the first octave to the nearest row is free."""
    found = judged(NEAR, at | {"length": 1024, "size": 8e9})
    assert (found.word, found.reason) == (word, reason)
    assert found.width == pytest.approx(2 * 0.1 * np.sqrt(1 + 0.1 * max(octaves - 1, 0)), rel=1e-9)
    assert found.tails == pytest.approx((0.75 * found.width, 2 * found.width))


def test_a_corner_that_each_axis_has_is_no_neighbour():
    """Bytes from rows of two ranks and ranks from rows of few bytes: no row has both."""
    values = np.array([[2.0, 64.0], [np.nan, np.nan], [np.nan, np.nan], [2.0**27, 2.0**15]])
    found = judged(rows_of(values).near(*MINE), {"ranks": [2, 64, 64], "size": [2.0**27, 2.0**15, 2.0**27]})
    assert found.word.tolist() == ["measured", "measured", "extrapolated"]
    assert found.reason[2] == "ranks: 32 times the nearest row's 2"


def test_the_band_is_that_of_the_errors_around():
    """Errors of 0.4 at one end and 0.1 at the other: at a row one row of it and the group's 0.1, far away the group."""
    here = rows_of(np.array([[1.0, 1024.0], [1.0] * 2, [1.0] * 2, [1.0] * 2]), [0.4, -0.1]).near(*MINE)
    at = {"ranks": 2.0 ** np.arange(0, 11), "batch": 1, "length": 1, "size": 1}
    scale, growth = here.spread(at)
    near, far = 2.0 ** -np.arange(0, 11), 2.0 ** -np.arange(10, -1, -1)
    expected = np.exp((near * np.log(0.4) + (far + 1) * np.log(0.1)) / (near + far + 1))
    assert scale == pytest.approx(expected)
    assert growth == pytest.approx(np.sqrt(1 + 0.1 * np.array([0, 0, 1, 2, 3, 4, 3, 2, 1, 0, 0])))
    assert np.argmax(scale) == 0


def test_rows_of_another_stack_count_two_octaves_away():
    here = rows_of(PLACES[:, :1], [0.4], stacks=["other"]).near(*MINE)
    scale, growth = here.spread({"ranks": 4.0, "batch": 1.0, "length": 1024.0, "size": 8e9})
    assert here.absent == ("stack",)
    assert scale == pytest.approx(np.exp((0.25 * np.log(0.4) + np.log(0.1)) / 1.25))
    assert growth == pytest.approx(np.sqrt(1.1))


def test_what_nobody_stated_widens_the_band():
    """Each such column makes an error 1.38 times as large; and the point is not known."""
    at = {"ranks": np.full(3, 8.0), "batch": 1, "length": 1024, "size": 8e9}
    found = judged(NEAR, at, unknown=np.array([0, 1, 2]))
    assert found.width == pytest.approx(0.2 * np.array([1, 1.38, 1.38**2]))
    assert found.word.tolist() == ["measured", "extrapolated", "extrapolated"]
    assert found.reason.tolist() == ["", UNSTATED, UNSTATED]
    row = rows_of(PLACES[:, :1], [0.3], unknown=1).near(*MINE)  # whose own error is worth less by as much
    scale, _ = row.spread({"ranks": 4.0, "batch": 1.0, "length": 1024.0, "size": 8e9})
    assert scale == pytest.approx(np.sqrt(0.3 / 1.38 * 0.1))


def test_points_are_judged_as_each_by_itself():
    at = {"ranks": np.array([4, 8, 64])[:, None], "batch": np.array([1.0, 7, 16, 1000]), "length": 1024, "size": 8e9}
    many = judged(NEAR, at)
    for i, ranks in enumerate((4, 8, 64)):
        for j, batch in enumerate((1, 7, 16, 1000)):
            one = judged(NEAR, at | {"ranks": ranks, "batch": batch})
            assert (many.word[i, j], many.reason[i, j]) == (one.word, one.reason)
            assert many.width[i, j] == pytest.approx(one.width, rel=1e-12)


def test_many_points_are_compared_in_blocks(monkeypatch):
    at = {"ranks": 8, "batch": np.arange(1.0, 40), "length": 1024, "size": 8e9}
    whole = judged(NEAR, at)
    monkeypatch.setattr(neighbours, "MOST", 20)
    some = judged(NEAR, at)
    assert (some.word.tolist(), some.reason.tolist()) == (whole.word.tolist(), whole.reason.tolist())
    assert some.width == pytest.approx(whole.width)


KEYS = [("decode", "dense", "trainium2", "vllm-neuron-2026-async"), ("prefill", "dense", "trainium1", "nxd-inference"),
        ("decode", "expert", "trainium2", "vllm-neuron-2026"), ("collective", "collective", "trainium2", ""),
        ("kernel", "kernel", "trainium2", "stack-nki"), ("throughput", "dense", "trainium2", "vllm-neuron-2026"),
        ("decode", "dense", "h100", "gpu-serving")]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=[" ".join(key) for key in KEYS])
def test_a_brute_force_search_finds_the_neighbours(key):
    """Of 10^5 questions in all, random and at the very edges, none is interpolated without a joint neighbour."""
    n, rng, here = 100_000 // len(KEYS) + 1, np.random.default_rng(len(key[0])), bands.near(*key)
    assert here.absent == ()
    values, points = here.values, {}
    own = rng.integers(0, values.shape[1], n)  # near a row on all axes, or on none
    for i, axis in enumerate(AXES):
        known = values[i][np.isfinite(values[i])]
        if known.size:
            wide = np.exp(rng.uniform(np.log(known.min() / 8), np.log(known.max() * 8), n))
            edge = values[i][own] * rng.choice([1, 1.01, 1 / 1.01, 2, 0.5, 2.0001, 0.4999, 1.5, 0.7], n)
            points[axis] = np.maximum(np.where(np.isnan(edge) | (rng.random(n) < 0.3), wide, edge), 1.0)
    ratio = np.ones((n, values.shape[1]))
    for axis, x in points.items():
        at = values[AXES.index(axis)]
        ratio = np.fmax(ratio, np.fmax(x[:, None] / at, at / x[:, None]))
    nearest = ratio.min(axis=1)
    clear = (np.abs(nearest - 1.01) > 1e-12) & (nearest != 2)  # the last digit of a quotient
    found = judged(here, points)
    words = np.where(nearest <= 1.01, "measured", np.where(nearest <= 2, "interpolated", "extrapolated"))
    assert np.array_equal(found.word[clear], words[clear])
    assert not np.any((found.word == "interpolated") & (nearest > 2 * (1 + 1e-12)))
    assert {"measured", "interpolated", "extrapolated"} == set(found.word)
    assert np.array_equal(found.reason != "", found.word == "extrapolated")


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
    """AWS's library measured 10.2 ms a token of Qwen3-30B-A3B there (row df255a3b96)."""
    ask = {"model": "qwen3-30b-a3b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8)}
    step = tm.decode_step(**ask, batch=[1, 1, 4], context=[2048, 2060, 2048])
    assert np.log(step.time_s[0] / 0.0102) > step.judge().sides[0][0]
    assert step.basis.tolist() == ["extrapolated", "extrapolated", "interpolated"]
    assert all("contradicted by row" in reason and "df255a3b96" in reason for reason in step.basis_reason[:2])
    assert step.basis_reason[2] == ""
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
