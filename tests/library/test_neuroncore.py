"""Cycles of one NeuronCore: documented costs, limits, properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnmodel.catalog import load
from trnmodel.formulas import neuroncore as nc
from trnmodel.formulas import step

BF16 = {"array_rows": 128, "max_stationary": 128, "max_moving": 512, "min_initiation_cycle": 64}
TILE = {name: value for name, value in BF16.items() if name != "min_initiation_cycle"}
size = st.integers(1, 20_000)
share = st.just(0.0) | st.floats(1e-30, 1)
seconds = st.just(0.0) | st.floats(1e-30, 1e3)


@pytest.mark.parametrize(
    ("stationary", "moving", "contraction", "cycles"),
    [
        # NKI ISA reference: max(min(64, N_stationary), N_moving) for each instruction
        (128, 512, 128, 512),
        (128, 1, 128, 64),
        (1, 1, 1, 1),
        (32, 16, 128, 32),
        (129, 512, 128, 1024),
        (128, 513, 128, 512 + 64),
        (2048, 2048, 2048, 16 * 16 * 4 * 512),
        (1590, 1536, 1536, 12 * (12 * 3 * 512 + 3 * 512)),  # 1590 = 12 x 128 + 54
    ],
)
def test_cycles_are_the_documented_cost_of_each_instruction(stationary, moving, contraction, cycles):
    assert nc.matmul_cycles(stationary, moving, contraction, **BF16) == cycles


@pytest.mark.parametrize(
    ("chip", "dtype", "rows", "ratio"),
    [
        ("trainium1", "bf16", 128, 1),
        ("trainium1", "fp32", 128, 4),
        ("trainium2", "bf16", 128, 1),
        ("trainium2", "fp8", 256, 1),
        ("trainium3", "fp8", 256, 1),
        ("trainium3", "mxfp8", 512, 1),
        ("trainium3", "fp32", 128, 4),
    ],
)
def test_full_tiles_reach_the_printed_peak(chip, dtype, rows, ratio):
    tensor = load.chip(chip).core.tensor
    cycles = nc.matmul_cycles(128, 512, rows, rows, 128, 512, 64, ratio)
    rate = 2 * 128 * 512 * rows / (cycles / tensor.clock_hz)
    assert rate == pytest.approx(tensor.peak_flop_per_s[dtype], rel=0.02)  # printed to whole TFLOPS


@given(size, size, size)
def test_never_faster_than_the_array(stationary, moving, contraction):
    assert nc.matmul_cycles(stationary, moving, contraction, **BF16) >= stationary * moving * contraction / 128**2


@given(size, size, size, st.integers(0, 2))
def test_monotone_in_every_dimension(stationary, moving, contraction, axis):
    shape = [stationary, moving, contraction]
    more = [n + (i == axis) for i, n in enumerate(shape)]
    assert nc.matmul_cycles(*more, **BF16) >= nc.matmul_cycles(*shape, **BF16)
    assert nc.matmul_instructions(*more, **TILE) >= nc.matmul_instructions(*shape, **TILE)


@given(st.lists(size, min_size=1, max_size=5))
def test_scalar_equals_array(sizes):
    together = nc.matmul_cycles(np.array(sizes), 700, 900, **BF16)
    assert together.tolist() == [float(nc.matmul_cycles(n, 700, 900, **BF16)) for n in sizes]


def test_contraction_moves_in_steps_of_the_array():
    cycles = nc.matmul_cycles(128, 512, np.array([1, 128, 129, 256]), **BF16)
    assert cycles.tolist() == [512, 512, 1024, 1024]


def test_lanes_cost_a_full_tile_for_any_row_count():
    one, full, over = (nc.lane_cycles(rows, 512, 128, 128, 1, 512, 64, 60) for rows in (1, 128, 129))
    assert one == full == 512 + 60
    assert over == 2 * full


def test_lanes_take_at_least_an_instruction():
    assert nc.lane_cycles(128, 4, 128, 128, 1, 512, 64, 0) == 64


def test_ramp_against_arithmetic():
    # 3 us from half rate: the first 3 us do 3 x (0.5 + 1) / 2 = 2.25 us of work, so 0.75 us are lost
    assert nc.ramped_s(100e-6, 0.5, 3e-6) == pytest.approx(100.75e-6)
    assert nc.ramped_s(2.25e-6, 0.5, 3e-6) == pytest.approx(3e-6)
    # half-way in time: 1.5 us x (0.5 + 0.75) / 2 = 0.9375 us of work
    assert nc.ramped_s(0.9375e-6, 0.5, 3e-6) == pytest.approx(1.5e-6)
    assert nc.ramped_s(0.0, 0.5, 3e-6) == 0


@given(seconds, st.floats(0.1, 1), st.floats(1e-6, 10))
def test_ramp_only_delays(busy, start, ramp):
    time = float(nc.ramped_s(busy, start, ramp))
    assert busy <= time * (1 + 1e-12)
    assert time <= busy / start * (1 + 1e-9)


@given(st.lists(st.tuples(seconds, share), min_size=1, max_size=6))
@settings(max_examples=50)
def test_overlap_lies_between_the_bounds(engines):
    busy, overlap = zip(*engines, strict=True)
    time = float(nc.overlapped_s(busy, overlap))
    assert max(busy) * (1 - 1e-12) <= time <= sum(busy) * (1 + 1e-12) + 1e-12


def test_transposes_cost_their_rows():
    # NKI ISA reference: TensorE max(P, min(64, F)); 16 x 16 tiles of 128 x 128
    assert nc.transpose_cycles(2048, 2048, 128, 64) == 16 * 16 * 128
    assert nc.transpose_cycles(1, 128, 128, 64) == 64


def test_causal_scores_are_the_lower_triangle():
    for queries, keys in ((1, 9), (5, 5), (3, 8)):
        mask = np.arange(keys)[None, :] <= np.arange(queries)[:, None] + keys - queries
        assert step.score_elements(queries, keys, 1) == mask.sum()
        assert step.score_elements(queries, keys, 0) == mask.size


@pytest.mark.parametrize(("past", "tokens", "window"), [(0, 9, 4), (3, 5, 4), (10, 3, 4), (2, 3, 20), (5, 7, 6)])
def test_windows_and_chunks_by_counting(past, tokens, window):
    queries, keys = np.arange(past, past + tokens)[:, None], np.arange(past + tokens)[None, :]
    slid = (keys <= queries) & (keys > queries - window)
    assert step.window_score_elements(tokens, past + tokens, window) == slid.sum()
    chunked = (keys <= queries) & (keys // window == queries // window)
    before = past % window
    found = step.chunk_score_elements(before + tokens, window) - step.chunk_score_elements(before, window)
    assert found == chunked.sum()


def test_contraction_that_hides_the_copy_out_of_psum():
    # 572 cycles at 1.12 GHz are 511 ns; 572 cycles at 2.8 GHz are 204 ns: three instructions of 128
    assert nc.hiding_contraction(572, 1.12e9, 572, 2.8e9, 128) == 3 * 128


@pytest.mark.parametrize(
    ("busy", "seconds"),
    # from half of the rate to all of it in 10 s, which are 7.5 s of work: 8 are 10.5; t of 7 is half of t plus t^2 / 40
    [(8.0, 10.5), (7.5, 10.0), (7.0, -10 + 380**0.5), (1.0, -10 + 140**0.5)],
)
def test_ramp_by_the_area_below_it(busy, seconds):
    assert nc.ramped_s(busy, 0.5, 10.0) == pytest.approx(seconds)
