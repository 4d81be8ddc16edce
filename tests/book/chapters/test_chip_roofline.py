"""Chips side by side: printed numbers and arithmetic done by hand."""

import re

import pytest
from looks import faults

import trnmodel as tm
from trnbook.chapters import chip_roofline, common
from trnbook.chapters import chip_roofline_printed as chips_printed
from trnbook.drawings.svg import WIDTH
from trnbook.shared import case
from trnmodel.units import GIB, TB, TFLOP


def test_ridge_of_trainium2_by_hand():
    """667 TFLOP/s over 2.9 TB/s."""
    table = common.peaks(["trainium2"], ["bf16"])
    assert table.ridge_flop_per_byte.tolist() == [pytest.approx(667 / 2.9)]
    assert (table.ridge_flop_per_byte_low <= table.ridge_flop_per_byte).all()


def test_roofline_is_the_lesser_of_two_lines():
    chip = tm.chip("trainium2")
    rate = tm.roofline.attainable_flop_per_s([1.0, 230.0, 1e6], chip.peak("bf16"), chip.hbm_bytes_per_s)
    assert rate.tolist() == pytest.approx([2.9 * TB, 667 * TFLOP, 667 * TFLOP])


def test_arrays_meet_the_printed_peak():
    """128 x 128 multiply-accumulates at 2.4 GHz are 78.6 TFLOP/s; eight cores of Trainium3."""
    table = chip_roofline.arrays(["trainium3"])
    assert table.computed_flop_per_s.tolist() == pytest.approx([2 * 128 * 128 * 2.4e9])
    assert table.difference.abs().max() < 0.01


def test_printed_totals_agree_or_are_gib_for_gb():
    table = chips_printed.printed_totals()
    assert (table.difference.abs() < 0.01).mean() > 0.7
    assert table.difference.abs().max() < 0.11


def test_logical_cores_share_a_chip():
    table = common.logical_cores(["trainium2", "trainium3"])
    whole = table[table.lnc == 1].set_index("chip").hbm_bytes
    assert (table.hbm_bytes == table.lnc * table.chip.map(whole)).all()
    assert table.groupby("chip").lnc.apply(list).to_dict() == {"Trainium2": [1, 2], "Trainium3": [1, 2, 8]}
    assert table[table.announced].lnc.tolist() == [8]
    # at LNC 1 a core reaches the bank of two, of 24 and 36 GiB: its share is no limit
    assert (table[table.lnc == 1].hbm_bytes_high / GIB).tolist() == [24, 36]
    assert (table.hbm_bytes_low == table.hbm_bytes).all()


def test_memory_rulings_reach_the_comparators():
    table = chip_roofline.rulings(["h100"]).set_index("about")
    assert table.used["H100 memory: 80 GB, 80 GiB or 81,559 MiB"] == "81559 MiB"


def test_totals_by_hand():
    """16 chips of 1,299 TFLOP/s in FP8 are 20,784, and 20.8 PFLOP/s are printed; one total is one row."""
    table = chips_printed.printed_totals()
    assert table.index.tolist() == list(range(len(table)))
    assert not table.duplicated(["system", "quantity", "printed"]).any()
    row = table[(table.system == "trn2.48xlarge") & (table.quantity == "peak_flop_per_s[fp8]")].iloc[0]
    assert (row.chips, row.per_chip, row.computed, row.printed) == (16, 1299e12, 20_784e12, 20_800e12)
    assert row.difference == pytest.approx(20_784 / 20_800 - 1)
    assert (table.chips * table.per_chip).tolist() == pytest.approx(table.computed.tolist())
    assert table.groupby("system").size()["trn2-ultraserver"] == 6  # four formats, one of them sparse too; HBM twice


def test_shares_of_the_peak_that_were_measured():
    """Products alone: 83.84 % of the compiler on 2,048^3 first; a norm with a product is none."""
    table = chips_printed.measured_share_of_peak()
    assert table.index.tolist() == list(range(len(table)))
    assert table.share_of_peak[0] == pytest.approx(0.8384)
    assert (table.share_of_peak > 0.15).all()
    assert table.kernel.str.contains("matmul|GEMM").all()
    assert not table.kernel.str.contains("norm").any()
    assert len(table) == 9


def test_formats_by_hand():
    """1,342 TFLOP/s over 4.9 TB/s in FP8, at one byte a weight; blocks of 32 share a scale of eight bits."""
    table = chip_roofline.weight_formats("trainium3", ["bf16", "fp8", "mxfp8", "w4a8"]).set_index("precision")
    assert table.estimate.to_dict() == {"bf16": False, "fp8": True, "mxfp8": False, "w4a8": False}
    assert table.bytes_per_weight.tolist() == [2, 1, 8.25 / 8, 4.25 / 8]
    assert table.weights_per_s.tolist() == pytest.approx([2.45e12, 4.9e12, 4.9e12 * 8 / 8.25, 4.9e12 * 8 / 4.25])
    batch = table.peak_flop_per_s / (4.9 * TB) * table.bytes_per_weight / 2
    assert batch["fp8"] == pytest.approx(1342 / 4.9 / 2)
    assert batch["w4a8"] == pytest.approx(2517 / 4.9 * 4.25 / 16)


def test_the_first_format_of_a_chip_with_a_peak():
    assert chip_roofline.subject("trainium1")[1:] == ("bf16", 2.0)
    assert chip_roofline.subject(tm.chip("h100").moved({"hbm_bytes_per_s": 1e12}))[1] == "bf16"


def test_the_card_has_the_ends_of_the_comparators_and_of_the_sources():
    """4.7 of 4.9 TB/s are 4 % less; MI300X 1,307/5.3 and TPU v7 2,307/7.38 are the ends of four."""
    card = chip_roofline.answer(tm.chip("trainium3"), "bf16", 671 / 4.9, ["h100", "b200", "mi300x", "tpu-v7"])
    assert "**137 FLOP/byte** (ideal)" in card
    assert "247 on MI300X to 313 on TPU v7 (Ironwood)" in card
    assert "at most 4%" in card
    assert "our estimate" not in card


def test_a_card_of_an_estimate_says_so_and_one_without_rivals_why():
    card = chip_roofline.answer(tm.chip("trainium3"), "fp8", 1342 / 4.9, ["a100"])
    assert "our estimate of the peak" in card
    assert "no comparator has a peak in FP8" in card


def test_one_rival_has_no_range():
    assert "Compared with:** 206 on H200 SXM." in chip_roofline.answer(tm.chip("trainium2"), "bf16", 230.0, ["h200"])


def test_a_step_of_the_case_is_a_row_of_its_own_plan():
    best = case.choice("llama-3.3-70b", "trn2.48xlarge")
    row = chip_roofline.on_the_roofline(best)
    assert row["peak_flop_per_s"] == 1299 * TFLOP
    assert row["sequences"] == best.step.batch
    work = row["intensity_flop_per_byte"] * best.step.moved_bytes_per_rank
    assert work == pytest.approx(best.step.work_flop_per_rank)


def test_reuse_draws_times_to_scale():
    """At 256 sequences and a ridge of 64 multiplying takes four times as long; its bar ends the drawing."""
    drawing = chip_roofline.reuse("trainium2", 2.0, 64.0)
    width = re.compile(r'width="([\d.]+)" height="30"')
    bars = {name: float(width.findall("".join(marks))[0]) for name, marks in drawing.frames.items()}
    read = float(width.findall("".join(drawing.marks))[0])
    assert {name: bar / read for name, bar in bars.items()} == pytest.approx(
        {"1 sequence": 1 / 64, "16 sequences": 1 / 4, "64 sequences": 1, "256 sequences": 4}, rel=0.02
    )
    assert bars["256 sequences"] <= WIDTH - 150
    assert "1 times as long as reading: HBM waits" in "".join(drawing.frames["64 sequences"])


@pytest.mark.parametrize("uses", [1, 16, 64, 256])
def test_reuse_draws_a_square_for_each_sequence(uses):
    name = f"{uses} sequence{'s' if uses > 1 else ''}"
    assert "".join(chip_roofline.reuse("trainium2", 1.0, 500.0).frames[name]).count("M") - 1 == uses  # and Multiplying


@pytest.mark.parametrize("ridge", [1.0, 137.0, 700.0])
def test_nothing_is_wrong_with_the_looks_of_the_drawing(ridge):
    assert faults(chip_roofline.reuse("tpu-v7", 1.03125, ridge)) == []


def test_measured_kernels_by_hand():
    """2,048 x 4,096 x 4,096 on two of eight cores; bytes as the profiler counted them, microseconds as printed."""
    row = chips_printed.measured_kernels().iloc[0]
    assert (row.kernel, row.chip, row.cores) == ("2,048 x 4,096 by 4,096 x 4,096", "Trainium3", 2)
    assert row.work_flop == 2 * 2048 * 4096 * 4096
    assert row.moved_bytes == 94_371_840 + 16_777_216
    assert row.measured_s == pytest.approx(474.219e-6)
    assert (row.peak_flop_per_s, row.hbm_bytes_per_s) == pytest.approx((671e12 / 4, 4.9e12 / 4))


def test_measured_kernels_are_of_three_publications():
    """An MXFP8 product has the peak of its format, a kernel of Trainium1 half the chip, an activation no FLOP."""
    table = chips_printed.measured_kernels()
    assert len(table) == 37 + 1 + 8
    product = table[table.kernel.str.contains("MXFP8")].iloc[0]
    assert product.peak_flop_per_s == pytest.approx(2517e12 / 4)
    assert product.measured_s == pytest.approx(16.641339e-3)
    first = table[table.chip == "Trainium1"]
    assert first.peak_flop_per_s.unique() == pytest.approx([95e12])
    assert first.hbm_bytes_per_s.unique() == pytest.approx([0.41e12])
    assert first.kernel[first.work_flop == 0].tolist() == ["NKIBench silu_M4096_N7168"]


def test_no_kernel_beats_its_roofline():
    """Flop over the peak and bytes over the bandwidth, by division: both are less than the measured time."""
    table = chips_printed.measured_kernels()
    assert (table.measured_s > table.work_flop / table.peak_flop_per_s).all()
    assert (table.measured_s > table.moved_bytes / table.hbm_bytes_per_s).all()
    ridge = table.peak_flop_per_s / table.hbm_bytes_per_s
    left = table.work_flop / table.moved_bytes < ridge
    assert left.groupby(table.chip).sum().to_dict() == {"Trainium1": 5, "Trainium3": 0}  # both parts, and the flat one


def test_notation_of_a_range_and_of_a_count():
    rows = common.notation(common.of_spec("trainium3", {"cores": "n", "hbm_bytes": "C"})).set_index("symbol")
    assert rows.value.to_dict() == {"n": "8", "C": "144 GiB"}
    assert (rows.source != "").all()
