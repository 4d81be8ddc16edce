"""Fabrics compared; line numbers are those of `trainium3-deep-dive`."""

from dataclasses import replace

import numpy as np
import pytest

from trnmodel.catalog.systems import system
from trnmodel.fabric import compare, flow, what_if
from trnmodel.fabric.graph import topology
from trnmodel.units import GB, US

TORUS, RACK, AWS = "trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "trn3-nl72x2-aws-lanes"
NL72 = ["trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl72x2-pcie320", "trn3-nl72x2-ualink"]


def test_world_capacity_of_torus_and_switch_by_hand():
    """Torus: two Z links of 128 GB/s, mean distance 1, 64 chips: 4 GB/s a pair. Racks: 32 x 128 over 32 x 32 pairs.

    In the rack, NL32x2: 31 others, 30 of them off the chip's tray; its 64 backplane lanes carry 512 GB/s for 30 pairs.
    """
    rates = compare.capacities([TORUS, RACK]).set_index(["system", "scope"]).all_to_all_bytes_per_s
    assert rates[TORUS, "world"] == pytest.approx(63 * 4 * GB)
    assert rates[RACK, "world"] == pytest.approx(63 * 4 * GB)
    assert rates[RACK, "rack"] == pytest.approx(31 * 512 * GB / 30)


def test_capacities_count_the_chips_of_their_scope():
    chips = compare.capacities([TORUS, RACK]).set_index(["system", "scope"]).chips
    assert chips.to_dict() == {(name, scope): n for name in (TORUS, RACK) for scope, n in (("rack", 32), ("world", 64))}


def test_rates_by_either_lane_map_by_hand():
    """NL72x2: 71 others of a rack, 68 off the tray; 64 backplane lanes are 512 GB/s, the 40 that AWS prints 320."""
    rates = compare.capacities([NL72[0], AWS]).set_index(["system", "scope"]).all_to_all_bytes_per_s
    assert rates[NL72[0], "rack"] == pytest.approx(512 * GB / 68 * 71)
    assert rates[AWS, "rack"] == pytest.approx(320 * GB / 68 * 71)
    assert rates[AWS, "world"] == pytest.approx(rates[NL72[0], "world"])  # 16 lanes to the other rack by both


def test_a_torus_of_144_lanes_halves_what_the_third_dimension_bounds():
    thin = what_if.alternatives(TORUS)["trn3-torus-144"]
    rates = compare.capacities([TORUS, thin]).set_index(["system", "scope"])
    assert rates.injection_bytes_per_s_per_dir[thin.id, "world"] == 144 * 8 * GB
    for scope, whole in (("rack", 248), ("world", 252)):
        assert rates.all_to_all_bytes_per_s[TORUS, scope] == pytest.approx(whole * GB)
        assert rates.all_to_all_bytes_per_s[thin.id, scope] == pytest.approx(whole / 2 * GB)


def test_each_tier_hands_on_what_it_takes():
    """Lanes by L273 (64, 64, 16) and by AWS's page (40, 32, 16); a plane of NL72x2 has 18 chips, of two planes 36."""
    table = compare.tiers([TORUS, NL72[0], AWS]).set_index(["system", "tier"])
    counted = table[["chips", "lanes"]].apply(tuple, axis=1).to_dict()
    assert counted == {
        (NL72[0], "backplane"): (18, 64), (NL72[0], "pcb"): (4, 64), (NL72[0], "cross-rack"): (2, 16),
        (AWS, "backplane"): (36, 40), (AWS, "pcb"): (4, 32), (AWS, "cross-rack"): (2, 16),
    }  # fmt: skip
    np.testing.assert_allclose(table.oversubscription, 1)


def test_trays_leave_the_rates_alone():
    rates = compare.capacities(NL72)
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
    table = compare.latencies([system])
    assert table[table.scope == "rack"].worst_s.iloc[0] == pytest.approx(worst_us * US)


def test_latency_of_one_path_is_its_parts():
    net = topology("trn3-nl72x2-pcie160")
    matrix = flow.latency_matrix(flow.path_switches(net.graph), 100.0, 1.0)
    start, same, other = (
        net.chips.index(f"rack0/tray{tray}/{letter}") for tray, letter in ((0, "A"), (1, "A"), (1, "C"))
    )
    assert matrix[start, same] == 101  # one switch
    assert matrix[start, other] == 202  # two switches and one chip
    np.testing.assert_array_equal(matrix, matrix.T)


def test_a_single_chip_is_left_out():
    assert compare.latencies(["trn1.2xlarge", "trn2.48xlarge"]).system.unique().tolist() == ["trn2.48xlarge"]


def test_parts_by_hand():
    """Two racks of 18 trays of 4 chips, 4 planes of 10 switches with 160 lanes, 8 switches a board; 16 and 2 chips."""
    counted = {part: value for part, (value, _) in what_if.parts(NL72[0]).items()}
    assert counted["DIMM slots"] == 36 * 12
    assert counted["PCIe gearboxes"] == 36 * 2
    assert counted["AEC links"] == 72
    assert counted["backplane lanes that end at a switch"] == 144 * 80
    assert what_if.parts(NL72[0])["lanes per chip"] == (160, "144 + 16")
    boards = what_if.parts(RACK)
    assert boards["board switches per rack"] == (0, "compute trays of the graph")
    assert boards["switches"] == (32, "2 x 16")
    assert what_if.parts("trn2-ultraserver")["AEC links"] == (64, "links of the third dimension")
    assert set(what_if.parts("hgx-h100")) == {"chips"}  # a server: no source says how many stand in a rack


def test_ports_of_a_switch_are_whole():
    """Of 150 lanes x8 ports take 144, x4 ports 148; all 18 are used."""
    spec = system(NL72[0])
    found = what_if.parts(replace(spec, switch=replace(spec.switch, switch_lanes=150.0)))
    ports = ("x8 ports of a rack switch", "x4 ports of a rack switch", "spare ports per rack switch")
    assert [found[part][0] for part in ports] == [18, 37, 0]


def test_paths_end_where_the_text_says():
    """Deep dive L335-L339: the next tray, half a tray further there, the same place of the other rack."""
    found = what_if.paths(topology(NL72[0]))
    assert [path[-1] for path in found.values()] == ["rack0/tray1/A", "rack0/tray1/C", "rack1/tray1/C"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            NL72[0],
            [
                "backplane lane",
                "backplane link",
                "backplane switch",
                "pcb lane",
                "pcb link",
                "pcb switch",
                "cross-rack lane",
                "cross-rack link",
                "switch tray",
            ],
        ),
        ("trn2-ultraserver", ["pcb lane", "pcb link", "backplane lane", "backplane link", "aec lane", "aec link"]),
        ("hgx-h100", ["link link", "link switch"]),
        ("trn2.3xlarge", []),
    ],
)
def test_failures_that_a_fabric_can_have(name, parts):
    assert [*what_if.failures(topology(name))] == [f"one {part}" for part in parts]


def test_what_a_failure_leaves_by_hand():
    """A cable x16 of which a lane fails keeps x8 + x4 of the first chip's 128 GB/s: 124 of 144 lanes at injection."""
    left = what_if.shares_left(NL72[0]).set_index("failure")
    assert left.injection["one cross-rack lane"] == pytest.approx((144 - 4) / 144)
    assert left.injection["one cross-rack link"] == pytest.approx((144 - 16) / 144)
    assert left.bisection["one cross-rack lane"] == pytest.approx(1 - 4 / (72 * 16))
    assert (left.loc["one switch tray"] == 1).all()


def test_what_other_readings_change_by_hand():
    """A rack has 20 switches and 8 on each of 18 boards, 164; with 4 a board 92 of them, with 2 only 56."""
    changes = what_if.readings("trn3-nl72x2-pcie320").set_index("assumption").changes
    assert sum(topology("trn3-nl72x2-pcie320").switch_counts.values()) == 2 * 164
    assert changes["board-4x64"] == f"switches x {92 / 164:.3g}"
    assert changes["board-2x128"] == f"switches x {56 / 164:.3g}"
    assert changes["redundant-in-use"] == "injection per dir x 1.11; rack all to all per pair x 1.25"  # 160/144, 80/64


def test_two_chips_are_a_fabric_and_one_is_none():
    pair = replace(system("mi300x-8"), domain_chips=2)
    assert [net.system for net in compare.nets([pair, "trn2.3xlarge"])] == [pair]


def test_latencies_say_whose_figures_they_are():
    """Hops of NeuronLink are documented; the switches' and NVLink's latencies are ours."""
    table = compare.latencies([NL72[0], "hgx-h100", "trn2.48xlarge"])
    assert table[table.scope == "rack"].estimate.tolist() == [True, True, False]
    plain = replace(system(NL72[0]), switch_s=np.nan)
    assert compare.latencies([plain]).worst_s.tolist() == pytest.approx([2 * 1.5 * US, 3 * 1.5 * US])
