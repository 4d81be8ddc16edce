"""Kernels at odd sizes: bytes, FLOP and how busy times add up, worked out by hand."""

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.kernels import engines
from trnmodel.kernels.engines import Operator

PASSES = {name: {"": passes} for name, passes in (("vector_passes", 3.0), ("scalar_passes", 2.0))}
OWN = Operator(id="op-own", hbm_reads=1.5, hbm_writes=0.25, **PASSES)


def mixed(chip="trainium2", **more):
    return tm.kernel.elementwise(chip, OWN, 384, 1000, **more)


def test_an_operator_reads_and_writes_what_it_says():
    """384 x 1000 elements of 2 bytes, one and a half times in, a quarter out; fused by 0.5, half of it."""
    for hbm in (1.0, 0.5):
        found = mixed(hbm=hbm)
        assert (float(found.hbm_read_bytes), float(found.hbm_write_bytes)) == (1_152_000 * hbm, 192_000 * hbm)
        assert float(found.roofline_s) == pytest.approx(1_344_000 * hbm * 8 / 2.9e12, rel=1e-9)  # 8 cores of 2.9 TB/s
    assert found.op == "own"
    assert float(found.flop) == 0


def test_passes_of_each_engine_take_as_long_as_they_are_many():
    once = Operator(id="op-one", hbm_reads=1.0, **{name: {"": 1.0} for name in PASSES})
    one, many = tm.kernel.elementwise("trainium2", once, 384, 1000), mixed()
    for engine, passes in (("vector", 3), ("scalar", 2)):
        assert getattr(many, f"{engine}_s") == pytest.approx(passes * getattr(one, f"{engine}_s"), rel=1e-9)
    assert float(many.tensor_s) == 0


def busy(found):
    return (float(getattr(found, f"{name}_s")) for name in ("vector", "scalar", "gpsimd", "load", "store", "fixed"))


@pytest.mark.parametrize(("load", "store"), [(1.0, 1.0), (0.25, 1.0), (1.0, 0.25), (0.0, 0.0)])
def test_times_side_by_side_in_a_row_and_in_between(load, store):
    """Of the loads a quarter hides: it is the lane of DMA that waits beside the longest other, the rest is added."""
    found = mixed(overlap={"load": load, "store": store, "vector": 1.0, "scalar": 1.0, "gpsimd": 1.0})
    vector, scalar, gpsimd, first, last, fixed = busy(found)
    assert float(found.lower_s) == pytest.approx(fixed + max(vector, scalar, gpsimd, first + last), rel=1e-12)
    assert float(found.upper_s) == pytest.approx(fixed + vector + scalar + gpsimd + first + last, rel=1e-12)
    hidden = load * first + store * last
    by_hand = fixed + max(vector, scalar, gpsimd, hidden) + (1 - load) * first + (1 - store) * last
    assert float(found.time_s) == pytest.approx(by_hand, rel=1e-12)


def test_half_of_the_vector_work_hides():
    found = mixed(overlap={"load": 1.0, "store": 1.0, "vector": 0.5, "scalar": 1.0, "gpsimd": 1.0})
    vector, scalar, gpsimd, first, last, fixed = busy(found)
    by_hand = fixed + max(vector / 2, scalar, gpsimd, first + last) + vector / 2
    assert float(found.time_s) == pytest.approx(by_hand, rel=1e-12)


def test_a_product_in_blocks_reads_an_operand_once_for_each_block_of_the_other():
    """300 x 700 by 700 x 500 in blocks of 100 x 250: rows are read twice, weights three times; two bytes each."""
    ask = {"block_rows": 100, "block_columns": 250}
    found = tm.kernel.matmul("trainium2", 300, 500, 700, **ask)
    rows, weights, out = 300 * 700 * 2, 700 * 500 * 2, 300 * 500 * 2
    assert (float(found.hbm_read_bytes), float(found.hbm_write_bytes)) == (2 * rows + 3 * weights, out)
    assert float(found.flop) == 2 * 300 * 500 * 700
    least = (rows + weights + out) * 8 / 2.9e12
    assert float(found.roofline_s) == pytest.approx(max(least, 2 * 300 * 500 * 700 * 8 / 667e12), rel=1e-9)
    many = tm.kernel.matmul("trainium2", 300, 500, 700, **ask, groups=3, output_dtype="fp32")
    assert (float(many.hbm_read_bytes), float(many.hbm_write_bytes)) == (3 * (2 * rows + 3 * weights), 3 * 2 * out)
    assert float(many.flop) == 3 * float(found.flop)
    sorted_ = tm.kernel.matmul("trainium2", 300, 500, 700, **ask, groups=3, gather="permute")
    assert float(sorted_.hbm_read_bytes) == 3 * (3 * rows + 3 * weights)
    assert float(sorted_.hbm_write_bytes) == 3 * (out + rows)


def test_attention_moves_queries_and_results_and_a_cache_of_kv_heads():
    """7 queries of 6 heads of 5 over 11 keys of 3 heads: 420 bytes in and out, keys and values of 330 each."""
    found = tm.kernel.attention("trainium2", 7, 11, heads=6, kv_heads=3, head_size=5, causal=0)
    assert (float(found.hbm_read_bytes), float(found.hbm_write_bytes)) == (420 + 2 * 330, 420)
    assert float(found.flop) == 4 * 7 * 11 * 6 * 5
    half = tm.kernel.attention("trainium2", 7, 7, heads=6, kv_heads=3, head_size=5, causal=1)
    assert float(half.flop) == 4 * 28 * 6 * 5  # of 7 x 7 the 7 x 8 / 2 on and below the diagonal


def test_an_operator_without_a_number_asks_for_no_hbm():
    assert (Operator(id="op-none").hbm_reads, Operator(id="op-none").hbm_writes) == (0.0, 0.0)
    assert "dequantise" not in engines.operators()


def test_of_equals_the_first_engine_binds():
    found = mixed()
    vector, scalar, gpsimd, first, last, fixed = busy(found)
    parts = dict(zip(found.BOUNDS, (0.0, vector, scalar, gpsimd, first + last, fixed), strict=True))
    assert found.bound == max(parts, key=parts.__getitem__)
    assert str(found.hint).startswith(found.bound)
    nothing = tm.kernel.dma("trainium2", 0.0, 512)
    assert np.isfinite(float(nothing.time_s))


def test_waits_that_nothing_hides_are_starts_of_dma():
    """300 x 700 by 700 x 500 in tiles of 128 x 512: 3 waits, one a tile, or 6 times as many, one for 128 of 700."""
    start = tm.chip("trainium2").core.dma_start_s
    fixed = {name: float(tm.kernel.matmul("trainium2", 300, 500, 700, buffering=name).fixed_s)
             for name in ("double", "tile", "none")}  # fmt: skip
    assert fixed["tile"] - fixed["double"] == pytest.approx(3 * start, rel=1e-9)
    assert fixed["none"] - fixed["double"] == pytest.approx(18 * start, rel=1e-9)


def test_attention_has_one_head_unless_more_are_asked_for():
    found = tm.kernel.attention("trainium2", 7, 11, head_size=5, causal=0)
    assert float(found.flop) == 4 * 7 * 11 * 5
    assert float(found.flop_per_s) == float(found.flop) / float(found.time_s)
    busy_links = tm.kernel.attention("trainium2", 7, 11, head_size=5, causal=0, collective_bytes_per_s=1e11)
    assert busy_links.load_s > found.load_s
