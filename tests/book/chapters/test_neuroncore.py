"""Tables of one NeuronCore: bounds in order, and products by hand."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import neuroncore


def test_tiers_are_in_order():
    table = neuroncore.by_side("trainium2", ["bf16"], np.array([512.0, 4096.0]))
    wide = table.pivot(index="side", columns="tier", values="rate_flop_per_s")
    order = ["roofline", "tile bound", "tuned kernel", "engines in a row"]
    assert (wide[order].diff(axis=1).iloc[:, 1:] <= 0).all(axis=None)


def test_whole_tiles_reach_the_peak_and_a_row_more_does_not():
    """An instruction moves up to 512 rows; a 513th costs one of the least length, 64 of its cycles."""
    share = neuroncore.by_rows("trainium2", [512, 513, 1024], 8192, 8192, "bf16").share
    assert share[0] == share[2] == 1
    assert share[1] == pytest.approx(513 / (512 + 64), abs=1e-6)


def test_a_logical_core_is_slower_beside_others_and_the_chip_is_faster():
    table = neuroncore.cores("trainium2", 16384.0, "bf16")
    for _, rows in table.groupby("lnc"):
        assert (rows.rate_flop_per_s.diff().dropna() <= 0).all()
        assert (rows.chip_flop_per_s.diff().dropna() > 0).all()
    # four 16384^3 products on the four logical cores of a trn2.3xlarge: 455.1 TFLOPS of the chip
    all_at_once = table[(table.lnc == 2) & (table.busy_cores == 8)].chip_flop_per_s.item()
    assert all_at_once == pytest.approx(455.1e12, rel=0.10)


def test_half_the_bytes_take_half_the_time():
    """8.25 against 4.25 bits a weight, where reading them bounds: short instructions, and nothing to fill."""
    chip = tm.chip("trainium3")
    tensor = replace(chip.core.tensor, mx_access_overhead_cycle=30.0)
    quick, slow = (replace(chip, core=replace(chip.core, tensor=tensor, fill_s=fill_s)) for fill_s in (0.0, 1e-3))
    asked = ([1.0], 5760, 2880, 16, ["mxfp8", "mxfp4"])
    times, filled = (neuroncore.experts(one, *asked).set_index("weights").time_s for one in (quick, slow))
    assert times["mxfp4"] / times["mxfp8"] == pytest.approx(4.25 / 8.25, rel=0.02)
    assert (filled - times).tolist() == pytest.approx([1e-3] * 2)


def test_busy_engines_are_those_of_the_kernel():
    answer = tm.kernel.matmul("trainium2", 2048, 2048, 2048)
    table = neuroncore.engine_times(answer).set_index("engine").busy_s
    assert table["TensorE"] == float(answer.tensor_s)
    assert (table > 0).all()


def test_attention_of_every_generation_has_four_engines():
    table = neuroncore.attention_engines(["trainium2", "trainium3"], 4096, [64, 128], 8)
    counts = table.groupby(["chip", "exponential", "head_size"]).engine.nunique()
    assert (counts == 4).all()
    assert set(table.exponential) == {"vector", "fast-scalar", "scalar"}


def test_contractions_and_operators_cover_the_generations():
    assert (neuroncore.smallest_contractions(["trainium1", "trainium3"]).contraction > 0).all()
    assert set(neuroncore.lane_operators(["trainium2", "trainium3"], 4096, 4096).chip) == {"Trainium2", "Trainium3"}
