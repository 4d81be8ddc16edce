"""Fabrics compared, and the deep dive against itself; line numbers are those of `trainium3-deep-dive`."""

import numpy as np
import pytest

from trnmodel.chapters import fabrics
from trnmodel.evidence import ledger
from trnmodel.fabric import flow
from trnmodel.fabric.graph import topology
from trnmodel.units import GB, US

TORUS, RACK = "trn3-nl32x2-torus", "trn3-nl32x2-pcie160"
NL72 = ["trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl72x2-pcie320", "trn3-nl72x2-ualink"]


def test_world_capacity_of_torus_and_switch_by_hand():
    """Torus: two Z links of 128 GB/s, mean distance 1, 64 chips: 4 GB/s a pair. Racks: 32 x 128 over 32 x 32 pairs.

    In the rack, NL32x2: 31 others, 30 of them off the chip's tray; its 64 backplane lanes carry 512 GB/s for 30 pairs.
    """
    rates = fabrics.capacities([TORUS, RACK]).set_index(["system", "scope"]).all_to_all_bytes_per_s
    assert rates[TORUS, "world"] == pytest.approx(63 * 4 * GB)
    assert rates[RACK, "world"] == pytest.approx(63 * 4 * GB)
    assert rates[RACK, "rack"] == pytest.approx(31 * 512 * GB / 30)


def test_trays_leave_the_rates_alone():
    rates = fabrics.capacities(NL72)
    for _, scope in rates.groupby("scope"):
        assert np.ptp(scope.all_to_all_bytes_per_s) < 1e-6 * scope.all_to_all_bytes_per_s.max()


@pytest.mark.parametrize(
    ("system", "worst_us"),
    # chips cost 1.5 us (the middle of 1-2), switches 0.115 us. L335-339, L379: paths A, B, C.
    # NL72x2, 160 lanes: board switch, chip, rack switch between the ends: 2 x 1.5 + 2 x 0.115. UALink: 1.5 + 0.115.
    # NL32x2, 160 lanes: rack switch and chip: 3.115. 3D torus of 64: six links, 9 us.
    [("trn3-nl72x2-pcie160", 3.23), ("trn3-nl72x2-ualink", 1.615), (RACK, 3.115), ("trn2.48xlarge", 6.0)],
)
def test_worst_latency_in_a_rack_by_hand(system, worst_us):
    table = fabrics.latencies([system])
    assert table[table.scope == "rack"].worst_s.iloc[0] == pytest.approx(worst_us * US)


def test_latency_of_one_path_is_its_parts():
    net = topology("trn3-nl72x2-pcie160")
    matrix = flow.latency_matrix(net.graph, 100.0, 1.0)
    start, same, other = (
        net.chips.index(f"rack0/tray{tray}/{letter}") for tray, letter in ((0, "A"), (1, "A"), (1, "C"))
    )
    assert matrix[start, same] == 101  # one switch
    assert matrix[start, other] == 202  # two switches and one chip
    np.testing.assert_array_equal(matrix, matrix.T)


def test_time_is_latency_then_flow():
    """64 chips at 252 GB/s: 63/64 of 1 GiB takes 4.194 ms; crossing where that equals 9 us: 2.304 MB."""
    table = fabrics.all_to_all([TORUS], [0, 2**30])
    assert table.time_s.tolist() == pytest.approx([9e-6, 9e-6 + 2**30 * 63 / 64 / (252 * GB)])
    crossing = fabrics.crossovers([TORUS]).set_index("scope").loc["world"]
    assert crossing.crossover_bytes == pytest.approx(2.304e6)
    assert crossing.per_pair_bytes == pytest.approx(36e3)


def test_planes_as_printed():
    """L322 four planes of ten, 144 board switches; L355 eight switches; L363 two planes; L379 one."""
    table = fabrics.plane_table([*NL72, "trn3-nl32x2-pcie320"]).set_index("system")
    assert table.planes.tolist() == [4, 4, 2, 1, 1]
    assert table.rack_switches.tolist() == [40, 40, 20, 10, 8]
    assert table.ports_free["trn3-nl72x2-pcie160"] == 2  # L327
    assert table.board_switches[NL72].tolist() == [144] * 4


def test_trays_of_any_system():
    assert fabrics.trays("trn3-nl72x2-pcie320") == NL72
    assert fabrics.trays("trn2-ultraserver") == fabrics.trays(RACK)


def test_every_printed_path_agrees():
    table = fabrics.paths([*NL72, RACK, "trn3-nl32x2-pcie320", "trn3-nl32x2-ualink"])
    assert "disagrees" not in set(table.verdict)
    assert (table.verdict == "agrees").sum() == 22


def test_a_single_chip_is_left_out():
    assert fabrics.latencies(["trn1.2xlarge", "trn2.48xlarge"]).system.unique().tolist() == ["trn2.48xlarge"]


def test_contradictions_carry_their_arithmetic():
    table = ledger.contradictions()
    gives = dict(zip(table.about, table.gives, strict=True))
    assert gives["chips of an NL72x2 rack"] == "72 chips"
    assert gives["cross-rack share of the backplane"] == "25 %"
    assert gives["the same over all lanes of the chip"] == "10 %"
    assert gives["copper cables of NL32x2"] == "5120 lanes"
    assert gives["scale-up rate of a chip"] == "1.152 TB/s"
    assert (table.gives[table.arithmetic == ""] == "").all()
    assert table.about.is_unique or table[table.about.duplicated(keep=False)].arithmetic.is_unique
