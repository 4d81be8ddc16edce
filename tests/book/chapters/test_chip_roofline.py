"""Chips side by side: printed numbers and arithmetic done by hand."""

import numpy as np
import pytest

from trnbook.chapters import chip_roofline, common
from trnbook.chapters import chip_roofline_printed as chips_printed
from trnmodel.units import GIB, TB, TFLOP


def test_ridge_of_trainium2_by_hand():
    """667 TFLOP/s over 2.9 TB/s."""
    table = common.peaks(["trainium2"], ["bf16"])
    assert table.ridge_flop_per_byte.tolist() == [pytest.approx(667 / 2.9)]
    assert (table.ridge_flop_per_byte_low <= table.ridge_flop_per_byte).all()


def test_roofline_is_the_lesser_of_two_lines():
    table = chip_roofline.rooflines(["trainium2"], ["bf16"], [1.0, 230.0, 1e6])
    assert table.attainable_flop_per_s.tolist() == pytest.approx([2.9 * TB, 667 * TFLOP, 667 * TFLOP])


def test_arrays_meet_the_printed_peak():
    """128 x 128 multiply-accumulates at 2.4 GHz are 78.6 TFLOP/s; eight cores of Trainium3."""
    table = chip_roofline.arrays(["trainium3"])
    assert table.computed_flop_per_s.tolist() == pytest.approx([2 * 128 * 128 * 2.4e9])
    assert table.difference.abs().max() < 0.01


def test_ceilings_grow_until_the_array_bounds():
    table = chip_roofline.matmul_ceilings("trainium2", "bf16", np.geomspace(256, 32768, 8))
    wide = table.pivot(index="side", columns="level", values="ceiling_flop_per_s")
    assert (wide[["HBM", "DMA", "link"]].diff().dropna() > 0).all(axis=None)
    assert wide.iloc[-1].idxmin() == "compute"
    assert wide.iloc[0].idxmin() != "compute"


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


def test_sbuf_feeds_the_double_mode_of_fp8():
    """128 rows x 4 elements wide: a full tile never waits for SBUF, in FP8 as in BF16 and MXFP8."""
    for dtype in ("bf16", "fp8", "mxfp8"):
        table = chip_roofline.matmul_ceilings("trainium3", dtype, [16384.0]).set_index("level").ceiling_flop_per_s
        assert table.compute < table.SBUF


def test_formats_mark_our_own_peak():
    table = chip_roofline.weight_formats("trainium3", ["bf16", "fp8", "mxfp8"]).set_index("precision")
    assert table.estimate.to_dict() == {"bf16": False, "fp8": True, "mxfp8": False}
    assert table.batch_at_ridge["fp8"] == pytest.approx(1342 / 4.9 / 2)
    assert chip_roofline.rooflines(["trainium3"], ["fp8"], [1.0]).estimate.tolist() == [True]


def test_memory_rulings_reach_the_comparators():
    table = chip_roofline.rulings(["h100"]).set_index("about")
    assert table.used["H100 memory: 80 GB, 80 GiB or 81,559 MiB"] == "81559 MiB"


def test_notation_of_a_range_and_of_a_count():
    rows = common.notation(common.of_spec("trainium3", {"cores": "n", "hbm_bytes": "C"})).set_index("symbol")
    assert rows.value.to_dict() == {"n": "8", "C": "144 GiB"}
    assert (rows.source != "").all()


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
