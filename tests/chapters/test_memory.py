"""Memory of a core: limits and arithmetic done by hand."""

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.chapters import memory


def test_pins_by_hand():
    """9.6 Gb/s x 1,024 pins x four stacks are 4.9 TB/s."""
    row = memory.pins(["trainium3"]).iloc[0]
    assert row.product_bytes_per_s == pytest.approx(9.6e9 / 8 * 1024 * 4)


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
