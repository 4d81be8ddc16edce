"""The systems of Trainium4's roadmap: arithmetic from what is announced, ranges of what is not, and words for BF16."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.systems import on_offer, system_table
from trnmodel.search.grid import computes, in_own_format

UALINK, NVLINK = TRACKS = ("trn4-ualink-roadmap", "trn4-nvlink-roadmap")
REQUEST = tm.Request(4096, 512, tokens_per_s_per_user=50)
ASK = {"batch": 32, "context": 4352}
EIGHT = "mxfp8-attn8"


def test_a_roadmap_system_is_asked_by_name_alone():
    assert not {*TRACKS} & {*tm.systems(), *on_offer(), *system_table().id}
    assert {*tm.systems(roadmap=True)} - {*tm.systems()} == {*TRACKS}
    assert [tm.system(name).status for name in TRACKS] == ["roadmap", "roadmap"]
    plan = tm.plan("llama-3.2-1b", tm.Request(512, 64, tokens_per_s_per_user=20))
    assert not [c for c in plan.choices if c.system.id in TRACKS]


@pytest.mark.parametrize(("name", "gbps"), [(UALINK, 224), (NVLINK, 448)])
def test_a_lane_is_between_that_of_trainium3_and_the_printed_one(name, gbps):
    """PCIe Gen6 carries 64 Gb/s each way; UALink 224; two pairs of NVLink BiDi carry 224 each way, so 448 together."""
    spec = tm.system(name)
    assert spec.ranges["lane_bytes_per_s_per_dir"] == (64e9 / 8, gbps * 1e9 / 8)
    assert spec.ranges["scaleup_bytes_per_s_per_dir"] == (144 * 64e9 / 8, 144 * gbps * 1e9 / 8)
    assert spec.chips == 144 == 2 * 18 * 4
    assert spec.hbm_bytes == 144 * 2 * tm.chip("trainium3").hbm_bytes


def test_the_ridge_falls_in_8_bits_and_rises_in_4():
    """Three times the FP8 over four times the bandwidth is 3/4 of 2,517 / 4.9; six times the FP4 is 6/4 of it."""
    chip = tm.chip("trainium4-roadmap")
    ridges = [
        float(tm.roofline.ridge_point_flop_per_byte(chip.peak(d), chip.hbm_bytes_per_s)) for d in chip.peak_flop_per_s
    ]
    assert ridges == pytest.approx([3 / 4 * 2517 / 4.9, 6 / 4 * 2517 / 4.9])


@pytest.mark.parametrize("precision", ["bf16", "mxfp8", "fp8"])
def test_a_bf16_question_is_refused_in_plain_words(precision):
    """Attention of the preset "mxfp8" multiplies in BF16 too."""
    with pytest.raises(
        ValueError, match=r"nobody has announced another, so ask in a precision .* such as 'mxfp8-attn8'"
    ):
        tm.decode_step("llama-3.3-70b", UALINK, tm.Mapping(tp=8), **ASK, precision=precision)


def test_a_search_asks_attention_in_8_bits_where_16_have_no_peak():
    chip = tm.chip("trainium4-roadmap")
    assert [in_own_format(one, chip).name for one in ("mxfp8", "mxfp8-kvfp8", "mxfp4", "nvfp4")] == [
        *("mxfp8-attn8", "mxfp8-kvfp8-attn8", "mxfp4-attn8", "mxfp4-attn8"),
    ]
    assert in_own_format("mxfp8-attn8", chip) == tm.Precision(
        weights="mxfp8", compute="mxfp8", attention="mxfp8", name="mxfp8-attn8"
    )
    assert not computes(UALINK, "bf16")
    assert in_own_format("mxfp8", tm.chip("trainium3")).name == "mxfp8"
    plan = tm.plan("llama-3.3-70b", REQUEST, UALINK)
    assert plan.best.precision == EIGHT
    with pytest.raises(ValueError, match="no chip asked computes in it; they compute in mxfp4, mxfp8"):
        tm.plan("llama-3.3-70b", REQUEST, UALINK, precision="bf16")


def test_an_ideal_step_that_reads_memory_alone_takes_a_quarter_of_trainium3s():
    """Four times the bandwidth and the same bytes; the network and arithmetic hide behind the reads."""
    ask = ASK | {"precision": EIGHT, "efficiencies": "ideal"}
    ours, theirs = (
        tm.decode_step("llama-3.3-70b", name, tm.Mapping(tp=8), **ask) for name in (UALINK, "trn3-nl72x2-pcie160")
    )
    assert float(theirs.memory_s / ours.memory_s) == pytest.approx(4)
    assert float(theirs.compute_s / ours.compute_s) == pytest.approx(3)


def test_the_band_holds_the_answer_at_both_ends_of_an_assumed_rate():
    """Of an ideal step, whose software has no range, the assumed rates alone make the band."""
    ask = ASK | {"precision": EIGHT, "efficiencies": "ideal", "network_overlap": 0.0}
    spec = tm.system(NVLINK)
    step = tm.decode_step("llama-3.3-70b", spec, tm.Mapping(tp=64), **ask)
    ends = [
        float(
            tm.decode_step(
                "llama-3.3-70b", spec.moved({"lane_bytes_per_s_per_dir": x}), tm.Mapping(tp=64), **ask
            ).time_s
        )
        for x in spec.range("lane_bytes_per_s_per_dir")
    ]
    assert ends[1] < float(step.time_s) < ends[0]
    assert float(step.low) <= ends[1]
    assert ends[0] <= float(step.high)
    exact = tm.decode_step("llama-3.3-70b", "trn3-nl72x2-pcie160", tm.Mapping(tp=64), **ask)
    assert float(exact.low) == float(exact.time_s) == float(exact.high)


def test_every_default_call_answers_and_says_that_it_is_assumed():
    for name in TRACKS:
        step = tm.decode_step("llama-3.3-70b", name, tm.Mapping(tp=8), **ASK, precision=EIGHT)
        exchange = tm.collective("all_reduce", 2**20, name, chips=8)
        hour, energy = tm.tco(name), tm.energy(step)
        cost = tm.token_cost("llama-3.3-70b", REQUEST, name, pricing=hour)[name, "public"]
        for one in (step, exchange, hour, energy, cost):
            assert one.low < getattr(one, one.FIGURE) < one.high
        assert "what nobody announced is an assumed range" in str(step.basis_reason)
        assert str(step.basis) == "extrapolated"
        assert bool(tm.memory_fit("llama-3.3-70b", name, tm.Mapping(tp=8), batch=32, context=4352).valid)


def test_watts_are_between_trainium3_and_three_times_it():
    """The hour's electricity follows the watts: 700 to 3,000 W of the chip."""
    hour = tm.tco(UALINK)
    low, high = (float(tm.tco(UALINK, tdp_w=w).usd_per_h) for w in (700, 3000))
    assert low < float(hour.usd_per_h) < high


def test_a_rate_of_links_without_a_key_is_moved():
    """The sum of a switched chip's links has the empty key."""
    spec = tm.system(UALINK).moved({"scaleup_bytes_per_s_per_dir": 2e12})
    assert dict(spec.scaleup_bytes_per_s_per_dir) == {"": 2e12}


# Cases that nobody asked for


def test_arrays_of_lanes_give_as_many_steps():
    lanes = np.linspace(8e9, 56e9, 5)
    spec = tm.system(NVLINK).moved({"lane_bytes_per_s_per_dir": lanes})
    step = tm.decode_step("llama-3.3-70b", spec, tm.Mapping(tp=64), **ASK, precision=EIGHT)
    assert step.time_s.shape == (5,)
    assert np.all(np.diff(step.time_s) <= 0)


def test_a_bare_chip_has_the_same_words_and_a_band():
    step = tm.decode_step("llama-3.1-8b", tm.chip("trainium4-roadmap"), tm.Mapping(tp=4), **ASK, precision=EIGHT)
    assert step.low < step.time_s < step.high
    with pytest.raises(ValueError, match="nobody has announced another"):
        tm.decode_step("llama-3.1-8b", tm.chip("trainium4-roadmap"), tm.Mapping(tp=4), **ASK)


def test_a_kernel_is_refused_because_no_core_is_announced():
    with pytest.raises(ValueError, match="chip='trainium4-roadmap': nothing is announced of its NeuronCore"):
        tm.kernel.matmul("trainium4-roadmap", 4096, 4096, 4096, dtype="mxfp8")


def test_training_is_refused_for_no_software_is_known():
    with pytest.raises(ValueError, match="trainium4-roadmap has no public training stack"):
        tm.train_step("llama-3.1-8b", UALINK, tm.Mapping(tp=8, dp=4), global_batch=64, seq=4096)


def test_attention_in_8_bits_has_no_measured_quality():
    one, plain = (tm.quality("llama-3.1-8b", name) for name in (EIGHT, "mxfp8"))
    assert (plain.basis, one.basis) == ("measured", "extrapolated")
    assert one.loss_percent == plain.loss_percent
    assert "attention: no published score multiplies it in mxfp8" in one.basis_reason


def test_a_peak_that_a_caller_assumes_answers_in_bf16():
    """Whoever believes in 671 TFLOP/s, as on Trainium3, says so."""
    spec = tm.system(UALINK)
    peaks = {**spec.chip.peak_flop_per_s, "bf16": 671e12}
    own = replace(spec, id="mine", chip=replace(spec.chip, peak_flop_per_s=peaks))
    assert bool(tm.decode_step("llama-3.3-70b", own, tm.Mapping(tp=8), **ASK).valid)


def test_four_pairs_of_racks_are_joined():
    step = tm.decode_step("llama-3.1-405b", tm.system(UALINK, count=4), tm.Mapping(tp=64, pp=2), **ASK, precision=EIGHT)
    assert bool(step.valid)


def test_a_plan_beside_trainium3_keeps_both():
    both = tm.compare("llama-3.3-70b", REQUEST, [UALINK, "trn3-nl72x2-pcie160"], efficiencies="ideal")
    assert [c.system.id for c in both.at()] == [UALINK, "trn3-nl72x2-pcie160"]
    assert both.leader[50.0] == UALINK
