"""Memory: pins, DMA, blocks in SBUF, stages to the host."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnmodel.catalog import load
from trnmodel.formulas import memory
from trnmodel.units import GB, KIB, US

sizes = st.integers(1, 10_000)
rates = st.floats(1e6, 1e13)


@pytest.mark.parametrize("chip", ["trainium2", "trainium3"])
def test_pins_make_the_printed_bandwidth(chip):
    """Pin rate of the deep dive, 1,024 pins a stack and four stacks against AWS's bandwidth: 2.92 and 4.92 TB/s."""
    spec = load.chip(chip)
    pins = load.value(chip, "hbm_stack_pins")
    bandwidth = spec.hbm_pin_bytes_per_s * pins * spec.hbm_stacks
    assert bandwidth == pytest.approx(spec.hbm_bytes_per_s, rel=0.01)


@pytest.mark.parametrize("row", [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768])
def test_dma_share_against_the_documented_curve(row):
    """AWS's figure of DMA throughput over bytes a partition, digitised."""
    printed = load.value("neuron-dma", "dma_relative_throughput", str(row))
    modelled = memory.dma_share(row, load.value("neuron-dma", "dma_linear_bytes"))
    assert modelled == pytest.approx(printed, rel=0.05)


def test_one_engine_loads_32_kib_in_the_documented_time():
    """AWS's profile of one DMA engine of NeuronCore-v3: 1,416 ns."""
    core = load.chip("trainium2").core
    assert memory.transfer_s(32 * KIB, core.dma_engine_bytes_per_s) == pytest.approx(1.416 * US, rel=0.01)


@given(rates, rates, rates)
def test_collectives_only_take(dma, hbm, collective):
    left = memory.bandwidth_left_bytes_per_s(dma, hbm, collective)
    assert 0 <= left <= min(dma, hbm)
    assert memory.bandwidth_left_bytes_per_s(dma, hbm, 0.0) == min(dma, hbm)


def test_stages_by_hand():
    # 140 GB over 7 and 16 GB/s: 20 s and 8.75 s
    assert memory.staged_s(140 * GB, [7 * GB, 16 * GB], 1.0) == pytest.approx(20.0)
    assert memory.staged_s(140 * GB, [7 * GB, 16 * GB], 0.0) == pytest.approx(28.75)


@given(sizes, sizes, sizes, sizes, sizes)
def test_blocking_reads_each_operand_at_least_once(m, n, k, rows, columns):
    read = memory.blocked_read_bytes(m, n, k, 2, 2, rows, columns)
    assert read >= 2 * (m * k + k * n)
    assert memory.blocked_read_bytes(m, n, k, 2, 2, m, n) == 2 * (m * k + k * n)


def test_blocked_traffic_of_a_profiled_kernel():
    """NKIBench matmul K=5120 M=4096 N=12288 in FP32 on Trn1 read 9,059,762,176 B: blocks of 128 x 1024."""
    read = memory.blocked_read_bytes(4096, 12288, 5120, 4, 4, 128, 1024)
    assert read == pytest.approx(9_059_762_176, rel=1e-4)


@given(st.floats(2**20, 2**30))
def test_block_fits_its_share(sbuf):
    side = memory.output_block_side(sbuf, 4, 0.75, 128)
    assert side % 128 == 0
    assert side == 128 or 4 * side**2 <= 0.75 * sbuf


def test_scalar_equals_array():
    rows = np.array([16.0, 700.0, 1e5])
    assert memory.dma_share(rows, 2485.0).tolist() == [float(memory.dma_share(r, 2485.0)) for r in rows]


def test_logical_core_has_its_share():
    assert memory.share_per_logical_core(144.0, 8, np.array([1, 2, 8])).tolist() == [18.0, 36.0, 144.0]


def test_activations_and_pages_by_hand():
    # 8,192 tokens of Llama-3.1-8B at TP 8: 14,336 x 2 B / 8 and twice 4,096 x 2 B a token, in pages of 1 MiB
    needed = memory.activation_bytes(8192, 8192, 2 * 14336, 4096, 2, 8)
    assert needed == 8192 * (2 * 14336 * 2 / 8 + 2 * 4096 * 2)
    # of four attention groups with 8,192 tokens each: the inner activation is of one group, the exchange of all four
    assert memory.activation_bytes(8192, 4 * 8192, 2 * 14336, 4096, 2, 8) == needed + 3 * 8192 * 2 * 4096 * 2
    assert memory.paged_bytes(needed + 1, 2**20) == needed + 2**20
    assert memory.paged_bytes(np.array([5.0, 5.0]), np.array([0.0, 4.0])).tolist() == [5.0, 8.0]


def test_spills_beyond_sbuf():
    # three prompts, 80 layers, 10 MiB beyond 24 MiB at 1 GiB/s: two further prompts pay 80 x 10/1,024 s
    assert memory.spill_s(80, 3, 34 * 2**20, 24 * 2**20, 2**30) == 80 * 2 * 10 / 1024
    assert memory.spill_s(80, 1, 34 * 2**20, 24 * 2**20, 2**30) == 0
    assert memory.spill_s(80, 3, 20 * 2**20, 24 * 2**20, 2**30) == 0
