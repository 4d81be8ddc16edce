"""One NeuronCore: bounds in order, products by hand, and measured kernels as the chapter shows them."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import neuroncore
from trnmodel.evidence import tables as evidence


def test_tiers_are_in_order():
    square = tm.kernel.matmul("trainium2", *[np.array([512.0, 4096.0])] * 3)
    tiers = [square.roofline_s, square.tile_s, square.time_s, square.upper_s]
    assert (np.diff(tiers, axis=0) >= 0).all()


def test_whole_tiles_reach_the_peak_and_a_row_more_does_not():
    """An instruction moves up to 512 rows; a 513th costs one of the least length, 64 of its cycles."""
    few = tm.kernel.matmul("trainium2", [512, 513, 1024], 8192, 8192)
    share = few.flop / few.tile_s / (few.flop / few.tile_s)[0]
    assert share[2] == 1
    assert share[1] == pytest.approx(513 / (512 + 64), abs=1e-6)


def test_a_logical_core_is_slower_beside_others_and_the_chip_is_faster():
    large = tm.kernel.matmul("trainium2", 16384.0, 16384.0, 16384.0, lnc=2, busy_cores=[2, 4, 8])
    assert (np.diff(large.flop_per_s) <= 0).all()
    chip = large.flop_per_s * np.array([1, 2, 4])
    assert (np.diff(chip) > 0).all()
    # four 16384^3 products on the four logical cores of a trn2.3xlarge: 455.1 TFLOPS of the chip
    assert chip[2] == pytest.approx(455.1e12, rel=0.10)


def test_half_the_bytes_take_half_the_time():
    """8.25 against 4.25 bits a weight, where reading them bounds: short instructions, and nothing to fill."""
    chip = tm.chip("trainium3")
    tensor = replace(chip.core.tensor, mx_access_overhead_cycle=30.0)
    quick, slow = (replace(chip, core=replace(chip.core, tensor=tensor, fill_s=fill_s)) for fill_s in (0.0, 1e-3))

    def time_s(one, weights):
        return float(tm.kernel.matmul(one, 1, 5760, 2880, "mxfp8", groups=16, weight_dtype=weights).time_s)

    assert time_s(quick, "mxfp4") / time_s(quick, "mxfp8") == pytest.approx(4.25 / 8.25, rel=0.02)
    filled = [time_s(slow, weights) - time_s(quick, weights) for weights in ("mxfp8", "mxfp4")]
    assert filled == pytest.approx([1e-3] * 2)


def test_a_table_of_kernels_has_shares_of_the_core_s_own_peak():
    work = {name: tm.kernel.matmul("trainium2", 4096, 4096, 4096, name) for name in ("bf16", "fp32")}
    table = neuroncore.kernels(work).set_index("kernel")
    assert table.share_of_peak["bf16"] == pytest.approx(float(work["bf16"].flop_per_s) / 79e12)
    assert table.share_of_peak["fp32"] == pytest.approx(float(work["fp32"].flop_per_s) / 20e12)


def test_measured_kernels_are_those_of_the_evidence():
    """Rows that state a rate, and those that state a time, are predicted as the lab's table has them."""
    shown, written = neuroncore.timed(tm.validate(neuroncore.measured())), evidence.table("kernels", quantity="time")
    np.testing.assert_allclose(shown.measured_s, written.measured)
    np.testing.assert_allclose(shown.predicted_s, written.predicted, rtol=1e-9)
    np.testing.assert_allclose(shown.error, written.error, rtol=1e-6, atol=1e-9)


def test_no_measured_kernel_is_left_without_a_kind():
    shown = neuroncore.timed(tm.validate(neuroncore.measured()))
    errors = neuroncore.by_kind(shown)
    assert errors.cases.sum() == len(shown)
    assert set(errors.kind) == {*neuroncore.KINDS.values(), "other kernels"}
    assert errors.kind[0] == neuroncore.TUNED


def test_counters_have_the_error_of_their_own_shape_left_out():
    counted, left = neuroncore.counted(), evidence.table("product_errors").set_index([*"mnk"]).left_out_error
    assert counted.left_out_error.notna().all()
    first = counted.iloc[0]
    assert first.left_out_error == left[first.m, first.n, first.k]
