"""`tm.kernel`: bounds, properties, features, and the error on measurements that are not ours."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.evidence import score

CHIPS = ["trainium1", "trainium2", "trainium3"]
DTYPES = {"trainium1": ["bf16", "fp32"], "trainium2": ["bf16", "fp8"], "trainium3": ["bf16", "fp8", "mxfp8", "mxfp4"]}
PAIRS = [(chip, dtype) for chip in CHIPS for dtype in DTYPES[chip]]
size = st.integers(1, 20_000)
light = settings(max_examples=30)


@given(st.sampled_from(PAIRS), size, size, size, st.sampled_from(["stack-nki", "stack-torch-trace"]))
@light
def test_never_below_the_roofline_nor_the_tile_bound(pair, m, n, k, stack):
    answer = tm.kernel.matmul(pair[0], m, n, k, pair[1], stack=stack)
    assert answer.roofline_s <= answer.tile_s * (1 + 1e-12)
    assert answer.tile_s <= answer.time_s * (1 + 1e-12)
    assert answer.lower_s <= answer.time_s * (1 + 1e-12)
    assert answer.time_s <= answer.upper_s * (1 + 1e-12)


def test_a_transpose_on_the_way_loads_at_the_share_of_the_dma_rate_that_aws_states():
    plain, turned = (tm.kernel.matmul("trainium2", 512, 512, 4096, transpose=how) for how in ("none", "dma"))
    assert tm.chip("trainium2").core.dma_transpose_share["hbm-sbuf"] == 0.9
    assert turned.load_s == pytest.approx(plain.load_s / 0.9)
    assert turned.store_s == plain.store_s
    assert turned.tensor_s == plain.tensor_s


@given(st.sampled_from(PAIRS), size, size, size, st.integers(0, 2), st.integers(1, 3000))
@light
def test_more_work_is_never_faster(pair, m, n, k, axis, more):
    bigger = [value + more * (i == axis) for i, value in enumerate((m, n, k))]
    small, large = (tm.kernel.matmul(pair[0], *shape, pair[1]) for shape in ((m, n, k), bigger))
    assert large.time_s >= small.time_s * (1 - 1e-12)


@given(size, st.integers(1, 8192), st.sampled_from([64, 128, 256]), st.sampled_from(CHIPS), st.sampled_from([0, 1]))
@light
def test_attention_keeps_its_bounds(queries, extra, head_size, chip, causal):
    answer = tm.kernel.attention(chip, queries, queries + extra, head_size=head_size, causal=causal)
    assert answer.roofline_s <= answer.time_s * (1 + 1e-12)
    assert answer.lower_s <= answer.time_s * (1 + 1e-12) <= answer.upper_s * (1 + 1e-9)


@pytest.mark.parametrize("op", tm.kernel.operators())
@pytest.mark.parametrize("chip", CHIPS)
def test_elementwise_keeps_its_bounds(op, chip):
    if op == "mask" and chip == "trainium2":
        pytest.skip("GPSIMD's width on NeuronCore-v3 is not published")
    rows, columns = np.array([1, 128, 4096]), 4096
    answer = tm.kernel.elementwise(chip, op, rows, columns)
    assert np.all(answer.roofline_s <= answer.time_s)
    assert np.all(np.diff(answer.time_s) >= -1e-12 * answer.time_s[1:])
    assert np.all(tm.kernel.elementwise(chip, op, rows, columns, hbm=0.0).time_s <= answer.time_s * (1 + 1e-12))


def test_scalar_equals_array():
    m = np.array([1, 100, 1590, 4096])
    together = tm.kernel.matmul("trainium2", m[:, None], 2048, np.array([128, 5000]))
    assert together.time_s.shape == (4, 2)
    for i, rows in enumerate(m):
        alone = tm.kernel.matmul("trainium2", int(rows), 2048, 5000)
        assert alone.time_s == together.time_s[i, 1]
        assert alone.bound == together.bound[i, 1]


def test_large_full_tiles_come_near_the_printed_peak():
    for chip, dtype in PAIRS:
        answer = tm.kernel.matmul(chip, 16384, 16384, 16384, dtype)
        peak = load.chip(chip).core.tensor.peak_flop_per_s[dtype]
        assert answer.flop / answer.tile_s == pytest.approx(peak, rel=0.02)
        # 512 of 512 + 60, 12 or 91 cycles are work, and TensorE waits for half of the copies
        overhead = {"trainium1": 60, "inferentia2": 60}.get(chip, 91 if dtype.startswith("mx") else 12)
        waits = 1 - answer.tensor_s / answer.time_s
        assert answer.flop_per_s == pytest.approx(peak * 512 / (512 + overhead) * (1 - waits), rel=0.02)
        assert waits < 0.05


def test_none_is_the_lnc_that_the_chip_has_by_default():
    own = tm.kernel.matmul("trainium3", 4096, 4096, 4096, lnc=None)
    assert own.lnc == load.chip("trainium3").lnc_default
    assert own.time_s == tm.kernel.matmul("trainium3", 4096, 4096, 4096, lnc=own.lnc).time_s


def test_two_cores_halve_a_large_product():
    one, two = (tm.kernel.matmul("trainium2", 8192, 8192, 8192, lnc=lnc) for lnc in (1, 2))
    assert two.tensor_s == pytest.approx(one.tensor_s / 2, rel=1e-3)


def test_logical_cores_beside_each_other_are_slower_by_what_the_rows_say():
    """Four 16384^3 products at once against one, and an expert layer on two and four logical cores against one."""
    n = np.arange(1, 9)
    busy = tm.kernel.matmul("trainium2", 8192, 8192, 8192, busy_cores=n)
    share = busy.tensor_s[0] / busy.tensor_s
    assert share[:2] == pytest.approx([1, 1])  # both cores of one logical core: 138.3 TFLOPS were measured so
    rows = {
        "16384^3, four": (455.1 / 4) / 138.3,
        "16,384 tokens, TP 2, uniform": 326.003 / (2 * 240.092),
        "16,384 tokens, TP 2, skewed": 325.903 / (2 * 212.191),
        "16,384 tokens, EP 2": 325.903 / (2 * 213.904),
        "4,096 tokens, EP 2": 82.166 / (2 * 50.331),
        "16,384 tokens, EP 4": 325.903 / (4 * 100.821),
        "4,096 tokens, TP 2, uniform": 82.207 / (2 * 61.172),
    }
    low, high = tm.chip("trainium2").range("busy_core_share")
    assert (low, high) == pytest.approx((min(rows.values()), max(rows.values())), abs=5e-4)
    assert low < share[-1] < high
    assert np.all(share[2:] == share[2])  # two logical cores are as slow as four


def test_cores_at_work_share_the_bandwidth_of_hbm():
    """16 DMA engines of 23 B/ns against an eighth of 2.9 TB/s, an eighth of 4.9 TB/s, and a half of 820 GB/s."""
    n = np.arange(1, 9)
    second = 2**30 / tm.kernel.dma("trainium2", 2**30, 2**14, busy_cores=n, transfers=0).time_s
    assert second[:7] == pytest.approx(16 * 23e9)
    assert second[7] == pytest.approx(2.9e12 / 8)
    third = 2**30 / tm.kernel.dma("trainium3", 2**30, 2**14, busy_cores=n, transfers=0).time_s
    assert third == pytest.approx(np.full(8, 16 * 33e9))
    narrow = replace(tm.chip("trainium2"), hbm_bytes_per_s=1e12)
    shared = 2**30 / tm.kernel.dma(narrow, 2**30, 2**14, busy_cores=n, transfers=0).time_s
    assert shared == pytest.approx(np.minimum(16 * 23e9, 1e12 / n))
    assert np.all(np.diff(shared) <= 0)


@pytest.mark.parametrize("chip", ["trainium1", "inferentia2", "trainium2", "trainium3"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_more_cores_at_work_never_make_a_kernel_faster(chip, lnc):
    spec = tm.chip(chip)
    if lnc not in spec.lnc_choices:
        pytest.skip("one core is a logical one")
    n, ask = np.arange(lnc, spec.cores + 1), {"lnc": lnc}
    answers = [
        tm.kernel.matmul(chip, 1000, 3000, 2000, busy_cores=n, **ask),
        tm.kernel.attention(chip, 1024, 4096, heads=8, busy_cores=n, **ask),
        tm.kernel.elementwise(chip, "silu", 4096, 7168, "fp32", busy_cores=n, **ask),
        tm.kernel.dma(chip, 2**24, 4096, busy_cores=n, **ask),
    ]
    for answer in answers:
        assert answer.time_s.shape == n.shape
        assert np.all(np.diff(answer.time_s) >= 0)
        assert np.all(answer.time_s >= answer.roofline_s)
        assert np.all(answer.fixed_s == answer.fixed_s[0])  # the launch is counted once, whoever else works


def test_a_chip_without_a_share_can_be_asked_for_one_logical_core_alone():
    spec = replace(tm.chip("trainium2"), busy_core_share=np.nan)
    assert tm.kernel.matmul(spec, 512, 512, 512, busy_cores=2).valid
    with pytest.raises(ValueError, match="no busy_core_share is known of trainium2"):
        tm.kernel.matmul(spec, 512, 512, 512, busy_cores=[2, 4])


def test_structured_sparsity_buys_up_to_the_printed_ratio():
    dense, sparse = (tm.kernel.matmul("trainium2", 4096, 4096, 4096, compression=c) for c in (1, 4))
    assert dense.tensor_s / sparse.tensor_s == pytest.approx(4, rel=0.01)  # 316 / 79
    assert tm.kernel.matmul("trainium2", 4096, 4096, 4096, "fp8", compression=2).bound  # 316 / 158
    with pytest.raises(ValueError, match=r"compression=.*from 1 to 2"):
        tm.kernel.matmul("trainium2", 4096, 4096, 4096, "fp8", compression=4)


def test_split_array_helps_where_the_contraction_is_short():
    whole, four = (tm.kernel.matmul("trainium3", 4096, 4096, 128, "mxfp8", split=s) for s in (1, 4))
    assert four.tensor_s < whole.tensor_s / 3
    whole, four = (tm.kernel.matmul("trainium3", 4096, 4096, 512, "mxfp8", split=s) for s in (1, 4))
    assert four.tensor_s == pytest.approx(whole.tensor_s, rel=1e-6)


def test_four_bit_storage_halves_the_weights_and_may_cost_vector_time():
    eight, four, soft = (
        tm.kernel.matmul("trainium3", 16, 8192, 8192, "mxfp8", weight_dtype=w) for w in ("mxfp8", "mxfp4", "nvfp4")
    )
    assert four.load_s / eight.load_s == pytest.approx(4.25 / 8.25, rel=0.01)
    assert four.vector_s == eight.vector_s
    assert soft.vector_s > four.vector_s
    assert soft.bound == "VectorE"


def test_groups_pad_each_expert_to_its_own_tiles():
    together = tm.kernel.matmul("trainium3", 1024, 2048, 4096)
    apart = tm.kernel.matmul("trainium3", 4, 2048, 4096, groups=256)
    assert apart.tensor_s > 2 * together.tensor_s
    assert apart.flop == together.flop


def test_gather_by_generation():
    dereferenced = tm.kernel.matmul("trainium3", 64, 2048, 4096, groups=8, gather="dereference")
    permuted = tm.kernel.matmul("trainium3", 64, 2048, 4096, groups=8, gather="permute")
    assert permuted.load_s + permuted.store_s > dereferenced.load_s + dereferenced.store_s
    with pytest.raises(ValueError, match="no indirect access"):
        tm.kernel.matmul("trainium2", 64, 2048, 4096, gather="dereference")


def test_background_transposes_are_free_on_trainium3_alone():
    plain, hidden, paid = (
        tm.kernel.matmul("trainium3", 2048, 2048, 2048, transpose=t) for t in ("none", "background", "tensor")
    )
    assert plain.time_s == hidden.time_s < paid.time_s
    with pytest.raises(ValueError, match="background"):
        tm.kernel.matmul("trainium2", 2048, 2048, 2048, transpose="background")


def test_collectives_share_the_dma_engines():
    alone, beside = (tm.kernel.matmul("trainium2", 8, 4096, 4096, collective_bytes_per_s=c) for c in (0.0, 100e9))
    assert beside.load_s > alone.load_s
    assert beside.tensor_s == alone.tensor_s
    choked = tm.kernel.matmul("trainium2", 8, 4096, 4096, collective_bytes_per_s=np.array([0.0, 1e12]))
    assert choked.valid.tolist() == [True, False]
    assert np.isnan(choked.time_s[1])
    assert "collectives" in choked.reason[1]


def test_exponential_is_faster_on_trainium3_on_either_engine():
    plain, vector, scalar = (
        tm.kernel.attention("trainium3", 4096, 4096, head_size=64, exponential=e)
        for e in ("scalar", "vector", "fast-scalar")
    )
    assert vector.time_s <= plain.time_s
    assert vector.scalar_s < plain.scalar_s
    assert scalar.vector_s < vector.vector_s
    with pytest.raises(ValueError, match="no fast exponential"):
        tm.kernel.attention("trainium2", 128, 128, exponential="vector")


def test_overlap_is_named_by_pair():
    hidden, in_a_row = (tm.kernel.matmul("trainium2", 2048, 2048, 2048, overlap={"load": o}) for o in (1.0, 0.0))
    assert in_a_row.time_s == pytest.approx(hidden.time_s + hidden.load_s)
    with pytest.raises(ValueError, match="overlap"):
        tm.kernel.matmul("trainium2", 2048, 2048, 2048, overlap={"hbm": 1.0})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"m": 0}, "m=0"),
        ({"chip": "h100"}, "NeuronCore"),
        ({"dtype": "int4"}, "multiplies in"),
        ({"lnc": 4}, "lnc=4"),
        ({"stack": "stack-nik"}, "stack-nki"),
        ({"busy_cores": "all"}, "busy_cores"),
        ({"busy_cores": 9}, "from 1 to 8"),
        ({"busy_cores": 1, "lnc": 2}, "from 2 to 8"),
        ({"transpose": "maybe"}, "transpose"),
        ({"weight_dtype": "fp5"}, "fp5"),
        ({"buffering": "3"}, "buffering"),
        ({"collective_bytes_per_s": -1.0}, "collective_bytes_per_s"),
        ({"split": 2}, "split=2"),
    ],
)
def test_wrong_input_is_refused(wrong, message):
    given_ = {"chip": "trainium2", "m": 128, "n": 128, "k": 128} | wrong
    with pytest.raises(ValueError, match=message):
        tm.kernel.matmul(**given_)


MATMUL = {"chip": "trainium2", "m": 128, "n": 128, "k": 128}
SCORES = {"chip": "trainium2", "queries": 128, "keys": 256}
LANES = {"chip": "trainium2", "op": "softmax", "rows": 128, "columns": 256}
LOADED = {"moved_bytes": 1, "stage_bytes_per_s": [1e9]}
MOVED = {"chip": "trainium2", "moved_bytes": 2**20, "row_bytes": 512}


@pytest.mark.parametrize(
    ("call", "usual", "wrong", "message"),
    [
        (tm.kernel.matmul, MATMUL, {"m": np.nan}, "m=nan"),
        (tm.kernel.matmul, MATMUL, {"groups": True}, "groups=True"),
        (tm.kernel.matmul, MATMUL, {"dtype": []}, r"dtype=\[\]: neuroncore-v3 multiplies in"),
        (tm.kernel.matmul, MATMUL, {"lnc": True}, "lnc=True"),
        (tm.kernel.matmul, MATMUL, {"lnc": "2"}, "lnc='2'"),
        (tm.kernel.matmul, MATMUL, {"chip": None}, "chip=None"),
        (tm.kernel.matmul, MATMUL, {"stack": None}, "stack=None"),
        (tm.kernel.matmul, MATMUL, {"stack": "nxd-inference"}, "stack='nxd-inference': says nothing about kernels"),
        (tm.kernel.matmul, MATMUL, {"compression": "2"}, "compression='2'"),
        (tm.kernel.matmul, MATMUL, {"split": [[]]}, "split="),
        (tm.kernel.matmul, MATMUL, {"weight_dtype": ""}, "weight_dtype=''"),
        (tm.kernel.matmul, MATMUL, {"output_dtype": {}}, r"output_dtype=\{\}"),
        (tm.kernel.matmul, MATMUL, {"gather": np.ones(3)}, "gather="),
        (tm.kernel.matmul, MATMUL, {"block_rows": 0, "block_columns": 1}, "block_rows=0"),
        (tm.kernel.matmul, MATMUL, {"block_rows": 64}, "block_columns=None: must be set"),
        (tm.kernel.matmul, MATMUL, {"overlap": {"load": 1.5}}, r"overlap\[load\]=1.5: allowed are numbers from 0 to 1"),
        (tm.kernel.matmul, MATMUL, {"overlap": {"launch_s": 1}}, "overlap='launch_s': allowed are evict, gpsimd, load"),
        (tm.kernel.matmul, MATMUL, {"overlap": {3: 1}}, "overlap=3"),
        (tm.kernel.matmul, MATMUL, {"overlap": [1]}, "overlap=.*a mapping"),
        (tm.kernel.matmul, MATMUL, {"overlap": {"load": None}}, r"overlap\[load\]=None"),
        (tm.kernel.matmul, MATMUL, {"m": [1, 2], "n": [1, 2, 3]}, r"n of shape \(3,\) does not fit m of shape \(2,\)"),
        (tm.kernel.matmul, MATMUL, {"m": [1, 2], "overlap": {"load": [0, 0.5, 1]}}, "overlap_load of shape"),
        (tm.kernel.attention, SCORES, {"queries": 257}, "queries=257: allowed are at most as many as keys=256"),
        (tm.kernel.attention, SCORES, {"queries": [1, 300], "causal": 0.5}, "queries="),
        (tm.kernel.attention, SCORES, {"heads": 8, "kv_heads": 3}, "kv_heads=3: must divide heads=8"),
        (tm.kernel.attention, SCORES, {"heads": 2, "kv_heads": 8}, "kv_heads=8"),
        (tm.kernel.attention, SCORES, {"head_size": 0}, "head_size=0"),
        (tm.kernel.attention, SCORES, {"causal": 2}, "causal=2: allowed are numbers from 0 to 1"),
        (tm.kernel.attention, SCORES, {"kv_dtype": "fp9"}, "kv_dtype='fp9'"),
        (tm.kernel.attention, SCORES, {"exponential": ""}, "exponential=''"),
        (tm.kernel.attention, SCORES, {"transpose": "dma"}, "transpose='dma'"),
        (tm.kernel.elementwise, LANES, {"op": []}, r"op=\[\]: allowed are"),
        (tm.kernel.elementwise, LANES, {"dtype": {}}, r"dtype=\{\}"),
        (tm.kernel.elementwise, LANES, {"hbm": 2}, "hbm=2"),
        (tm.kernel.elementwise, LANES, {"exponential": "warp", "op": "copy"}, "exponential='warp'"),
        (tm.kernel.dma, MOVED, {"queued": 7}, "queued=7: allowed are numbers from 0 to 1"),
        (tm.kernel.dma, MOVED, {"engines": 0}, "engines=0: allowed are numbers from 1 to 16"),
        (tm.kernel.dma, MOVED, {"engines": 17}, "engines=17"),
        (tm.kernel.dma, MOVED, {"row_bytes": 0}, "row_bytes=0"),
        (tm.kernel.dma, MOVED, {"transfers": -1}, "transfers=-1"),
        (tm.kernel.host, LOADED, {"stage_bytes_per_s": []}, "stage_bytes_per_s="),
        (tm.kernel.host, LOADED, {"stage_bytes_per_s": 5}, "stage_bytes_per_s=5"),
        (tm.kernel.host, LOADED, {"stage_bytes_per_s": [1, 0]}, r"_per_s\[1\]=0"),
        (tm.kernel.host, LOADED, {"overlap": 2}, "overlap=2"),
        (tm.kernel.smallest_contraction, {"chip": "trainium2"}, {"engine": []}, r"engine=\[\]"),
        (tm.kernel.smallest_contraction, {"chip": "trainium2"}, {"dtype": "fp4"}, "dtype='fp4'"),
        (tm.kernel.stack, {}, {"name": 5}, "stack=5"),
        (tm.kernel.stack, {}, {"colour": 5}, "change='colour': allowed are launch_s"),
        (tm.kernel.stack, {}, {"overlap_load": 2}, "overlap_load=2"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(call, usual, wrong, message):
    call(**usual)
    with pytest.raises(ValueError, match=message):
        call(**usual | wrong)


@given(st.data())
@light
def test_a_valid_answer_is_finite_and_not_negative_at_any_size(data):
    sizes = st.sampled_from([1, 2, 3, 127, 4096, 10**6, 1e15, 1e30])
    m, n, k, groups, heads = (data.draw(sizes) for _ in range(5))
    chip = data.draw(st.sampled_from(CHIPS))
    share = data.draw(st.sampled_from([0, 0.5, 1]))
    taken = data.draw(st.sampled_from([0, 1e9, 1e11, 1e12, 1e30]))
    answers = [
        tm.kernel.matmul(chip, m, n, k, groups=groups, collective_bytes_per_s=taken, overlap={"vector": share}),
        tm.kernel.attention(chip, min(m, n), max(m, n), heads, head_size=k, causal=share, collective_bytes_per_s=taken),
        tm.kernel.elementwise(chip, "softmax", m, n, hbm=share),
        tm.kernel.dma(chip, m, n, transfers=k, queued=share, collective_bytes_per_s=taken),
    ]
    for answer in answers:
        numbers = answer.to_frame().select_dtypes("number").to_numpy()
        if answer.valid:
            assert np.all(np.isfinite(numbers) & (numbers >= 0))
        else:
            assert "collectives" in answer.reason


def test_what_is_not_published_is_marked():
    """GPSIMD's width on NeuronCore-v3 is in no document: the time is unknown, and says so."""
    answer = tm.kernel.elementwise("trainium2", "mask", 128, 4096)
    assert not answer.valid
    assert np.isnan(answer.time_s)
    assert answer.reason == "a figure of the chip that this needs is not published"


def test_moving_nothing_takes_no_time():
    answer = tm.kernel.dma("trainium2", 0, 512, transfers=0)
    assert (answer.time_s, answer.flop_per_s) == (0, 0)


def test_overlaps_may_be_arrays():
    both = tm.kernel.matmul("trainium2", 2048, 2048, 2048, overlap={"load": [0.0, 1.0]})
    for place, overlap in enumerate((0.0, 1.0)):
        assert both.time_s[place] == tm.kernel.matmul("trainium2", 2048, 2048, 2048, overlap={"load": overlap}).time_s


def test_result_is_a_tidy_table():
    frame = tm.kernel.matmul("trainium2", np.array([1, 4096]), 4096, 4096).to_frame()
    assert frame.bound.tolist() == ["DMA", "TensorE"]
    assert {"m", "n", "k", "time_s", "tensor_s", "roofline_s", "valid", "reason"} <= set(frame.columns)
    assert "reuse" in tm.kernel.matmul("trainium2", 1, 4096, 4096).hint


COUNTED = Path(__file__).parents[2] / "data" / "evidence" / "trn3_gemm.csv"


def test_a_product_by_hand():
    """2048 x 1024 by 1024 x 2048 on two cores of Trainium3: 79.8 us measured, 64.4 predicted before it was read."""
    answer = tm.kernel.matmul("trainium3", 2048, 2048, 1024, lnc=2)
    # 16 x 8 x 4 instructions of 512 + 12 cycles over two cores, at 2.4 GHz; the ramp of 3 us begins at half rate
    assert answer.tensor_s == pytest.approx(256 * 524 / 2.4e9 + 0.25 * 3e-6)
    # a core copies 8 x 128 rows of 2,048 FP32 elements, two a cycle, in 4 instructions of 60 cycles besides, at 1.2 GHz
    assert answer.vector_s == pytest.approx(8 * (2048 / 2 + 4 * 60) / 1.2e9)
    assert answer.fixed_s == pytest.approx(2 * 1.3e-6 + 15.2e-6)
    assert answer.time_s == pytest.approx(answer.tensor_s + 0.482 * answer.vector_s + answer.fixed_s)
    assert answer.time_s == pytest.approx(79.8e-6, rel=0.02)


def test_constants_of_products_on_another_chip():
    """Trainium2, whose rows fitted the fill alone: a large product, 149.42 TFLOP/s; MXFP8 as a profiler saw it."""
    large = tm.kernel.matmul("trainium2", 12288, 8192, 8192, lnc=2)
    assert large.flop_per_s == pytest.approx(149.42e12, rel=0.02)
    shifted = tm.kernel.matmul("trainium3", 16384, 16384, 16384, "mxfp8", lnc=2)
    assert shifted.time_s == pytest.approx(16.641339e-3, rel=0.01)
    assert shifted.tensor_s == pytest.approx(0.99762 * 16.641339e-3, rel=0.02)


def test_a_copy_that_bounds_is_paid_once():
    """With one instruction a tile the copies take longer than the products: waiting for them adds nothing to them."""
    answer = tm.kernel.matmul("trainium1", 8192, 8192, 128)
    assert answer.vector_s > answer.tensor_s
    assert answer.time_s == pytest.approx(max(answer.vector_s, answer.load_s + answer.store_s) + answer.fixed_s)
    in_a_row = tm.kernel.matmul("trainium1", 8192, 8192, 8192, overlap={"evict": 0.0})
    assert in_a_row.time_s == pytest.approx(in_a_row.tensor_s + in_a_row.vector_s + in_a_row.fixed_s)


def test_a_table_of_counters_is_read(tmp_path):
    """Its own columns, no workload and no value; what cannot be read says so, and spoils no other."""
    table = pd.read_csv(COUNTED).drop(columns="blind_time_us")
    judged = tm.validate(table)
    assert (judged.skipped == "").all()
    assert (len(judged), judged.configuration.nunique()) == (37, 30)
    assert judged.error.abs().max() < 0.05
    assert ((judged.low <= judged.predicted) & (judged.predicted <= judged.high)).all()
    assert judged.hbm_read_bytes.tolist() == table.hbm_read_bytes.tolist()
    odd = table.iloc[:5].astype(object).reset_index(drop=True)
    for row, (name, cell) in enumerate([("m", "many"), ("k", None), ("instance", "moon"), ("time_us", 0), ("lnc", 3)]):
        odd.loc[row, name] = cell
    odd.to_csv(tmp_path / "odd.csv", index=False)
    for found in (tm.validate(odd), tm.validate(tmp_path / "odd.csv")):
        assert (found.skipped != "").all()
    alone = tm.validate(table[["instance", "m", "n", "k", "time_us"]])  # one physical core, in BF16
    assert (alone.predicted > 1.5 * judged.predicted).all()
    with pytest.raises(ValueError, match=r"columns .*workload.* are missing"):
        tm.validate(table.drop(columns="k"))


def test_every_kernel_row_is_used_or_has_a_reason():
    rows = score.shipped("kernel")
    assert len(rows) == 142
    out = score.excluded(rows)
    assert out.reason.ne("").all()
    assert len(out) + (rows.weight > 0).sum() == 142


def test_queued_transfers_start_once():
    one, four = (tm.kernel.dma("trainium2", 1e6, 4096, transfers=n, queued=1.0).time_s for n in (1, 4))
    assert one == four


def test_attention_writes_what_its_query_heads_give_and_a_background_transpose_costs_no_dma():
    assert tm.kernel.attention("trainium2", 512, 1024, heads=8, kv_heads=2).hbm_write_bytes == 512 * 8 * 128 * 2
    plain, turned = (tm.kernel.matmul("trainium3", 512, 512, 4096, transpose=how) for how in ("none", "background"))
    assert turned.load_s == plain.load_s
