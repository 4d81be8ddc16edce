"""Memory of a core: limits and arithmetic done by hand."""

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import memory
from trnmodel.catalog import load
from trnmodel.evidence import tables as evidence


def test_pins_by_hand():
    """9.6 Gb/s x 1,024 pins x four stacks are 4.9 TB/s."""
    row = memory.pins(["trainium3"]).iloc[0]
    assert row.product_bytes_per_s == pytest.approx(9.6e9 / 8 * 1024 * 4)
    # 9.2 Gb/s, another grade, give 4.710 TB/s, between the two figures that sources leave open
    assert row.printed_bytes_per_s_low == 4.7e12 < 9.2e9 / 8 * 1024 * 4 < row.printed_bytes_per_s_high == 4.9e12
    assert load.value("trainium3", "hbm_grade_bytes_per_s", "micron-12-high") == 9.2e9 / 8


def test_dma_rates_as_the_guide_and_the_chip_pages_print_them():
    """Cores x engines x reached: 2 x 16 x 17 GB/s, 8 x 16 x 23, 8 x 16 x 33; the pages print 1, 3.5 and 4.9 TB/s."""
    table = memory.pins(["trainium1", "trainium2", "trainium3"])
    assert table.dma_bytes_per_s.tolist() == [544e9, 2944e9, 4224e9]
    assert table.printed_dma_bytes_per_s.tolist() == [1e12, 3.5e12, 4.9e12]
    assert table.door_bytes_per_s.tolist() == [544e9, 2.9e12, 4224e9]


def test_long_rows_saturate_and_short_ones_do_not():
    table = memory.dma_rows("trainium2").pivot(index="row_bytes", columns="from", values="bandwidth_bytes_per_s")
    assert table.model.is_monotonic_increasing
    core = tm.chip("trainium2").core
    assert table.model.iloc[-1] <= core.dma_engines * core.dma_engine_bytes_per_s


def test_nothing_taken_slows_nothing():
    table = memory.contention("trainium2", np.linspace(0, 0.9, 10), 4096, 4096)
    assert table.slowdown.iloc[0] == 1
    assert table.slowdown.is_monotonic_increasing


def test_twice_the_block_reads_half():
    """Blocks of side s read both operands n / s times."""
    table = memory.blocking("trainium2", 4096, 4096, 4096, "bf16", [512.0, 1024.0])
    read = table[table.engine == "DMA"].read_bytes
    assert read.iloc[0] == pytest.approx(2 * read.iloc[1])


def test_levels_of_decoding():
    table = memory.decode_levels("trainium2", 16e9, 0.5).set_index("level")
    assert table.tokens_per_s["HBM"] == pytest.approx(2.9e12 / 16e9)
    assert table.tokens_per_s["decoding"] == pytest.approx(0.5 * 2.9e12 / 16e9)
    assert memory.decode_levels("trainium2", 16e9, 1.0).tokens_per_s.iloc[2] == table.tokens_per_s["DMA engines"]


def test_decoding_scales_by_the_door_and_stays_below_it():
    """0.55 of 820 GB/s is 0.829 of 544 GB/s; the doors are 544, 2,900 and 4,224 GB/s."""
    reached = memory.share_of_read_limit(evidence.table("profiles", phase="decode"))
    assert reached == pytest.approx(0.55 * 820 / 544)
    tables = {chip: memory.decode_levels(chip, 15e9, reached) for chip in ("trainium1", "trainium2", "trainium3")}
    for table in tables.values():
        assert (table.tokens_per_s.diff().dropna() <= 0).all()
    levels = {chip: table.tokens_per_s.iloc[2] for chip, table in tables.items()}
    assert levels["trainium3"] / levels["trainium1"] == pytest.approx(4.224 / 0.544)
    assert levels["trainium2"] / levels["trainium1"] == pytest.approx(2.9 / 0.544)
    assert {chip: table.estimate.any() for chip, table in tables.items()} == {
        "trainium1": False,
        "trainium2": True,
        "trainium3": True,
    }


def test_an_open_rate_of_hbm_is_carried_until_the_door():
    """4.7 to 4.9 TB/s of HBM; 4.224 of the engines bound both, so the door has no pair."""
    table = memory.decode_levels("trainium3", 1e9, 0.5).set_index("level")
    assert (table.tokens_per_s_low["HBM"], table.tokens_per_s_high["HBM"]) == (4700, 4900)
    assert (table.tokens_per_s_low["DMA engines"], table.tokens_per_s_high["DMA engines"]) == (4224, 4224)


def test_a_profile_reaches_more_of_the_bandwidth_than_is_predicted():
    """So that what is predicted is no limit."""
    profiles = evidence.table("profiles", phase="decode")
    assert (profiles.mbu > profiles.mbu_predicted).any()
