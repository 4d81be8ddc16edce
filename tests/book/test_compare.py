"""Fabrics compared; line numbers are those of `trainium3-deep-dive`."""

from dataclasses import replace

import numpy as np
import pytest

from trnbook.shared import fabrics as compare
from trnmodel.catalog.systems import system
from trnmodel.fabric import what_if
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


def test_a_single_chip_is_left_out():
    assert compare.latencies(["trn1.2xlarge", "trn2.48xlarge"]).system.unique().tolist() == ["trn2.48xlarge"]


def test_two_chips_are_a_fabric_and_one_is_none():
    pair = replace(system("mi300x-8"), domain_chips=2)
    assert [net.system for net in compare.nets([pair, "trn2.3xlarge"])] == [pair]


def test_latencies_say_whose_figures_they_are():
    """Hops of NeuronLink are documented; the switches' and NVLink's latencies are ours."""
    table = compare.latencies([NL72[0], "hgx-h100", "trn2.48xlarge"])
    assert table[table.scope == "rack"].estimate.tolist() == [True, True, False]
    plain = replace(system(NL72[0]), switch_s=np.nan)
    assert compare.latencies([plain]).worst_s.tolist() == pytest.approx([2 * 1.5 * US, 3 * 1.5 * US])
