"""Kernels at odd sizes: bytes, FLOP and how busy times add up, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.specs import Engine
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
        assert float(found.roofline_s) == pytest.approx(1_344_000 * hbm / 368e9, rel=1e-9)  # 16 engines of 23 GB/s
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
    least = (rows + weights + out) / 368e9
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
    fixed = {
        name: float(tm.kernel.matmul("trainium2", 300, 500, 700, buffering=name).fixed_s)
        for name in ("double", "tile", "none")
    }
    assert fixed["tile"] - fixed["double"] == pytest.approx(3 * start, rel=1e-9)
    assert fixed["none"] - fixed["double"] == pytest.approx(18 * start, rel=1e-9)


def test_attention_has_one_head_unless_more_are_asked_for():
    found = tm.kernel.attention("trainium2", 7, 11, head_size=5, causal=0)
    assert float(found.flop) == 4 * 7 * 11 * 5
    assert float(found.flop_per_s) == float(found.flop) / float(found.time_s)
    busy_links = tm.kernel.attention("trainium2", 7, 11, head_size=5, causal=0, collective_bytes_per_s=1e11)
    assert busy_links.load_s > found.load_s


# A core of small and odd numbers: TensorE of 10 rows and 7 columns at 4 Hz, tiles of 11 columns, 3 cycles an
# instruction and 5 more; 6 partitions; 2 DMA engines of 50 B/s, rows from 80 B on at full rate; HBM of 720 B/s for 8
def engine(**own):
    return Engine(**{"id": "small", "access_overhead_cycle": 1.0, "min_initiation_cycle": 4.0} | own)


SMALL_CORE = replace(
    tm.chip("trainium2").core,
    tensor=Engine(
        id="small",
        clock_hz=4.0, array_rows=10.0, max_stationary_cols=7.0, max_moving_cols=11.0, min_initiation_cycle=3.0,
        access_overhead_cycle=5.0, peak_flop_per_s={"bf16": 560.0, "fp32": 140.0}, fp32_cost_ratio=4.0,
    ),
    vector=engine(clock_hz=2.0, elements_per_cycle={"other": 12.0}),
    scalar=engine(clock_hz=0.5, elements_per_cycle={"other": 3.0}, min_initiation_cycle=2.0, access_overhead_cycle=2.0),
    gpsimd=engine(clock_hz=0.25, elements_per_cycle={"other": 600.0}, min_initiation_cycle=np.nan),
    sbuf_bytes=1800.0, sbuf_partitions=6.0, dma_engines=2.0, dma_engine_bytes_per_s=50.0, dma_linear_bytes=80.0,
    dma_start_s=13.0, fill_s=17.0,
)  # fmt: skip
SMALL = replace(tm.chip("trainium2"), core=SMALL_CORE, hbm_bytes_per_s=720.0)  # of 8 cores
SHARES = {"load_share": 0.5, "store_share": 0.25, "sbuf_block_share": 0.5}
BY_HAND = engines.stack("stack-nki", launch_s=19.0, **SHARES)


def product(m, n, k, **more):
    return tm.kernel.matmul(SMALL, m, n, k, stack=BY_HAND, **more)


def test_a_product_of_odd_sizes_engine_by_engine():
    """9 x 13 by 13 x 17, three times: columns of the weights stand still in tiles of 7, 7, 3, and 9 rows move.

    2 contractions x 3 tiles x 9 cycles = 54, and 5 cycles of each of 6 instructions; 9 x 17 stationary would be 68.
    """
    found = product(9, 17, 13, groups=3, block_rows=4, block_columns=6)
    assert float(found.tensor_s) == pytest.approx(3 * (54 + 6 * 5) / 4, rel=1e-12)
    left, weights, out = 9 * 13 * 2, 13 * 17 * 2, 9 * 17 * 2
    # rows of 26, 34 and 34 bytes; three blocks of columns, three of rows: both are read twice more, at the full rate
    left_rate, rate = 100 * 26 / 80, 100 * 34 / 80
    first = left / (left_rate * 0.5) + weights / (rate * 0.5)
    again = 2 * left / left_rate + 2 * weights / rate
    assert float(found.load_s) == pytest.approx(3 * (first + again), rel=1e-12)
    assert float(found.store_s) == pytest.approx(3 * out / (rate * 0.25), rel=1e-12)
    # 17 columns as rows of PSUM: 3 times 6 partitions, 9 elements two a cycle in one instruction, of 1 cycle besides
    assert float(found.vector_s) == pytest.approx(3 * 3 * (4.5 + 1) / 2, rel=1e-12)
    assert float(found.fixed_s) == 19 + 2 * 13 + 17
    assert float(found.tile_s) == pytest.approx(3 * 54 / 4, rel=1e-12)  # not 3 x 982 / 100
    assert float(found.roofline_s) == pytest.approx(3 * (left + weights + out) / 100, rel=1e-12)


def test_a_product_leaves_psum_by_the_side_that_is_cheaper():
    """5 x 30 on 6 partitions: 30 elements two a cycle in 3 instructions are 18 cycles; 30 x 5 would be 5 times 5."""
    assert float(product(5, 30, 13).vector_s) == pytest.approx(18 / 2, rel=1e-12)


def test_a_product_that_the_peak_bounds():
    """50 x 40 by 40 x 30 is 120,000 FLOP at 560 a second; of 4-fold sparse weights as many at 4 times as much."""
    for compression in (1, 4):
        sparse = {"sparse_peak_flop_per_s": {"bf16": 4 * 560.0}}
        chip = replace(SMALL, core=replace(SMALL_CORE, tensor=replace(SMALL_CORE.tensor, **sparse)))
        found = tm.kernel.matmul(chip, 50, 30, 40, stack=BY_HAND, compression=compression)
        assert float(found.roofline_s) == pytest.approx(
            max(120_000 / 560 / compression, 2 * (2000 + 1200 / compression + 1500) / 100), rel=1e-12
        )


def test_only_a_dtype_with_a_sparse_peak_takes_sparse_weights():
    with pytest.raises(ValueError, match=r"compression=1.1: allowed are numbers from 1 to 1"):
        product(9, 17, 13, compression=1.1)


@pytest.mark.parametrize(("gather", "passes", "share"), [("none", 1, 1), ("rows", 1, 26 / 80), ("permute", 2, 26 / 80)])
def test_rows_that_are_gathered(gather, passes, share):
    """Rows of 26 bytes are found at 26 of 80 of the rate once more; sorted ones are written and read again."""
    found = product(9, 17, 13, gather=gather, block_rows=9, block_columns=17)
    left, weights, out = 9 * 13 * 2, 13 * 17 * 2, 9 * 17 * 2
    loads = passes * left / (100 * 26 / 80 * 0.5 * share) + weights / (100 * 34 / 80 * 0.5)
    assert float(found.load_s) == pytest.approx(loads, rel=1e-12)
    stores = out / (100 * 34 / 80 * 0.25) + (passes - 1) * left / (100 * 26 / 80 * 0.25)
    assert float(found.store_s) == pytest.approx(stores, rel=1e-12)


def test_a_transpose_on_tensore_takes_products_and_no_rate():
    """9 rows in tiles of 7 and 2, at least 3 cycles: 10, for each of two tiles of 13 columns."""
    plain, turned = (product(9, 17, 13, transpose=way) for way in ("none", "tensor"))
    assert float(turned.tensor_s - plain.tensor_s) == pytest.approx(20 / 4, rel=1e-12)
    assert (turned.load_s, turned.store_s) == (plain.load_s, plain.store_s)


def test_weights_that_are_dequantised():
    """17 bits of 32 an element; 13 rows on 6 partitions are 3, 17 elements two a cycle in 2 instructions, 3 passes."""
    plain, packed = (product(9, 17, 13, groups=3, weight_dtype=dtype) for dtype in ("bf16", "mxfp4"))
    assert float(packed.vector_s - plain.vector_s) == pytest.approx(3 * 3 * 3 * (8.5 + 2) / 2, rel=1e-12)
    assert float(plain.hbm_read_bytes - packed.hbm_read_bytes) == 3 * 13 * 17 * (2 - 17 / 32)


@pytest.mark.parametrize(("buffering", "waits"), [("double", 0), ("tile", 9), ("none", 18)])
def test_waits_of_a_product(buffering, waits):
    """Three tiles of weights' columns, each with two contractions, in three groups."""
    assert float(product(9, 17, 13, groups=3, buffering=buffering).fixed_s) == 62 + waits * 13
    assert float(product(9, 17, 13, groups=3, buffering=buffering, lnc=2).fixed_s) == 62 + waits / 2 * 13


def test_a_block_may_be_one_row_and_column():
    found = product(3, 5, 7, block_rows=1, block_columns=1)
    assert float(found.hbm_read_bytes) == 5 * 3 * 7 * 2 + 3 * 7 * 5 * 2


@pytest.mark.parametrize(
    ("m", "n", "k", "left_reads", "weight_reads"),
    [
        # half of 1,800 bytes are 225 sums of 4: a square of 15, or of 14 in tiles of 7
        (30, 50, 40, 4, 3),
        (60, 8, 70, 1, 3),  # 8 columns leave 196 / 8 = 24.5 rows
        (10, 50, 70, 3, 1),  # 10 rows leave 19.6 columns
        (10, 50, 45, 1, 1),  # 900 bytes of activations stay
        (10, 50, 46, 3, 1),  # 920 do not
    ],
)
def test_blocks_that_sbuf_holds(m, n, k, left_reads, weight_reads):
    found = product(m, n, k)
    assert float(found.hbm_read_bytes) == 2 * (left_reads * m * k + weight_reads * k * n)


def test_attention_engine_by_engine():
    """40 queries of 4 heads of 5 to 50 keys of 2 heads, causal: 80 rows a KV head.

    Of 2,000 scores 1,220 are needed, and half a tile of 11 of each query is masked: 1,440 are computed, 0.72 of all.
    Scores: 12 tiles of rows x (4 x 11 + 6) = 600 cycles and 60 instructions; values: 5 contractions x 12 x 5 = 300, 60
    instructions too; 50 keys turned: 49 + 3 cycles for each of 12 tiles of rows, 624.
    """
    found = tm.kernel.attention(SMALL, 40, 50, 4, 2, 5, kv_dtype="fp8", stack=BY_HAND)
    assert float(found.tensor_s) == pytest.approx((900 + 600 + 624) * 0.72 * 2 / 4, rel=1e-12)
    assert float(found.tile_s) == pytest.approx((600 + 300) * 0.72 * 2 / 4, rel=1e-12)
    assert float(found.flop) == 4 * 1220 * 20
    assert float(found.roofline_s) == pytest.approx(97_600 / 560, rel=1e-12)
    assert (float(found.hbm_read_bytes), float(found.hbm_write_bytes)) == (1600 + 2 * 500, 1600)
    rate = 100 * 50 / 80  # rows of 10 keys of 5 bytes
    assert float(found.load_s) == pytest.approx(2600 / (rate * 0.5), rel=1e-12)
    assert float(found.store_s) == pytest.approx(1600 / (rate * 0.25), rel=1e-12)
    # 160 rows are 27 times 6 partitions; 36 scores two a cycle in 4 instructions, and 2 passes over 4 x 5 outputs
    assert float(found.vector_s) == pytest.approx(27 * ((18 + 4) + 2 * (10 + 2)) / 2, rel=1e-12)
    # a copy and an exponential of 36 scores, a half a cycle, 4 instructions of 2 cycles besides
    assert float(found.scalar_s) == pytest.approx(27 * 2 * (72 + 8) / 0.5, rel=1e-12)
    assert float(found.gpsimd_s) == 0
    assert float(found.fixed_s) == 19 + 2 * 13


def test_queries_may_be_more_than_keys_where_nothing_is_masked():
    found = tm.kernel.attention(SMALL, 11, 7, head_size=5, causal=0, stack=BY_HAND)
    assert float(found.flop) == 4 * 11 * 7 * 5


@pytest.mark.parametrize("lnc", [1, 2])
def test_an_operator_engine_by_engine(lnc):
    """20 rows of 50 elements, on two cores 10 of each, and 6 partitions: 4 or 2 turns, 5 instructions of 11 columns."""
    own = Operator(
        id="op-own",
        hbm_reads=1.5,
        hbm_writes=0.75,
        vector_passes={"": 3.0},
        scalar_passes={"": 2.0},
        gpsimd_passes={"": 7.0},
        exponential_passes={"": 5.0},
    )
    found = tm.kernel.elementwise(SMALL, own, 20, 50, "fp8", stack=BY_HAND, lnc=lnc)
    turns = 4 / lnc
    assert float(found.vector_s) == pytest.approx(3 * turns * (25 + 5) / 2, rel=1e-12)
    assert float(found.scalar_s) == pytest.approx((2 + 5) * turns * (100 + 10) / 0.5, rel=1e-12)
    assert float(found.gpsimd_s) == pytest.approx(7 * turns * (0.5 + 5) / 0.25, rel=1e-12)  # no least cycles are known
    rate = lnc * 100 * 50 / 80
    assert float(found.load_s) == pytest.approx(1500 / (rate * 0.5), rel=1e-12)
    assert float(found.store_s) == pytest.approx(750 / (rate * 0.25), rel=1e-12)
    assert float(found.fixed_s) == 19 + 2 * 13
    assert float(found.tile_s) == float(found.roofline_s) == pytest.approx(2250 / 100 / lnc, rel=1e-12)
    fused = tm.kernel.elementwise(SMALL, "copy", 20, 50, stack=BY_HAND)
    last = float(fused.load_s + fused.store_s)  # that binds: 2,000 bytes in and out, rows of 100
    assert last == pytest.approx(2000 / 50 + 2000 / 25, rel=1e-12)
    assert float(fused.lower_s) == pytest.approx(45 + last, rel=1e-12)


@pytest.mark.parametrize(
    ("asked", "seconds", "starts"),
    [
        ({}, 1260 / 50, 1),  # a core alone: half of what its two engines of 50 B/s move
        ({"busy_cores": 8}, 1260 / 45, 1),  # half of an eighth of HBM's 720 B/s
        ({"busy_cores": 7}, 1260 / 50, 1),  # a seventh is more than two engines move
        ({"engines": 1}, 1260 / 50, 1),
        ({"engines": 1, "stack": replace(BY_HAND, load_share=1.0)}, 1260 / 50, 1),
        ({"engines": 1, "lnc": 2, "stack": replace(BY_HAND, load_share=1.0)}, 1260 / 100, 1),
        ({"queued": 0.25}, 1260 / 50, 1),
        ({"queued": 0.25, "transfers": 5}, 1260 / 50, 0.25 + 0.75 * 5),
        ({"queued": 1, "transfers": 5}, 1260 / 50, 1),
        ({"queued": 1, "transfers": 0}, 1260 / 50, 0),
        ({"collective_bytes_per_s": 30.0}, 1260 / 35, 1),
    ],
)
@pytest.mark.parametrize(("row_bytes", "share"), [(100, 1), (20, 1 / 4)])
def test_a_transfer_by_hand(asked, seconds, starts, row_bytes, share):
    """1,260 bytes in rows of 80 bytes and more, or of a quarter of them."""
    hbm = 90 if asked.get("busy_cores") == 8 else 100
    found = tm.kernel.dma(SMALL, 1260, row_bytes, **{"stack": BY_HAND} | asked)
    assert float(found.load_s) == pytest.approx(seconds / share, rel=1e-12)
    assert float(found.fixed_s) == starts * 13
    assert float(found.time_s) == pytest.approx(seconds / share + starts * 13, rel=1e-12)
    assert float(found.roofline_s) == pytest.approx(1260 / hbm / asked.get("lnc", 1), rel=1e-12)
    assert (float(found.flop), float(found.hbm_read_bytes), float(found.hbm_write_bytes)) == (0, 1260, 0)


@pytest.mark.parametrize(
    ("kernel", "asked"),
    [("matmul", (9, 17, 13)), ("attention", (5, 7)), ("elementwise", ("copy", 20, 50)), ("dma", (1260, 100))],
)
def test_collectives_are_none_unless_given(kernel, asked):
    found, none, some = (
        getattr(tm.kernel, kernel)(SMALL, *asked, stack=BY_HAND, **more)
        for more in ({}, {"collective_bytes_per_s": 0.0}, {"collective_bytes_per_s": 1.0})
    )
    assert found.load_s == none.load_s < some.load_s


def test_a_core_that_is_not_throttled_or_is():
    """75 cycles are 18.75 s at 4 Hz; a ramp of 8 s from a quarter of the rate costs three eighths of it."""
    slow = replace(SMALL_CORE, tensor=replace(SMALL_CORE.tensor, throttle_share=0.25, throttle_ramp_s=8.0))
    for core, more in ((SMALL_CORE, 0.0), (slow, 3.0)):
        found = tm.kernel.matmul(replace(SMALL, core=core), 9, 17, 13, stack=BY_HAND)
        assert float(found.tensor_s) == pytest.approx(84 / 4 + more, rel=1e-12)
    both = replace(SMALL_CORE.tensor, throttle_share=np.array([np.nan, 0.25]), throttle_ramp_s=np.array([np.nan, 8.0]))
    found = tm.kernel.matmul(replace(SMALL, core=replace(SMALL_CORE, tensor=both)), 9, 17, 13, stack=BY_HAND)
    assert found.tensor_s.tolist() == [21, 24]


def test_a_kernel_stack_that_there_is_not_is_told_which_there_are():
    known = ["stack-nki", "stack-torch-compile-beta2", "stack-torch-trace"]
    assert sorted(engines.stacks()) == known
    with pytest.raises(ValueError, match="says nothing about kernels; allowed are " + ", ".join(engines.stacks())):
        tm.kernel.stack("nxd-inference")


def test_a_copy_is_as_large_as_what_it_reads_and_writes():
    """64 KiB have a row within a factor of two; what it reads less what it writes, nothing, would not."""
    assert tm.kernel.elementwise("trainium2", "copy", 128, 128).basis == "interpolated"
    assert tm.kernel.elementwise("trainium2", "copy", 2, 2).basis == "extrapolated"
