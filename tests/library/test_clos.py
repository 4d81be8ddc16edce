"""Folded Clos sizing against every cluster size that the Trainium3 deep dive prints, and small networks by hand.

Line numbers are those of `trainium3-deep-dive`.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnmodel.fabric.scaleout import port_choice
from trnmodel.formulas import transit
from trnmodel.formulas.clos import clos

T, G = 1e12, 1e9


@pytest.mark.parametrize(
    ("switch", "port", "layers", "printed"),
    [
        pytest.param(25.6 * T, 400 * G, 2, 2048, id="line 461: 64^2/2"),
        pytest.param(51.2 * T, 100 * G, 2, 131_072, id="line 465: 512^2/2, from a 51.2T switch"),
        pytest.param(12.8 * T, 400 * G, 2, 512, id="line 473: 32^2/2"),
        pytest.param(12.8 * T, 100 * G, 2, 8192, id="line 473: 128^2/2"),
        pytest.param(12.8 * T, 100 * G, 3, 524_288, id="line 473: 128^3/4"),
    ],
)
def test_printed_cluster_sizes(switch, port, layers, printed):
    assert clos(switch_bits_per_s=switch, port_bits_per_s=port, layers=layers).endpoints == printed


@pytest.mark.parametrize("switch", [12.8 * T, 25.6 * T, 51.2 * T, 102.4 * T])
def test_small_ports_reach_16_and_64_times_as_far(switch):
    """Line 481, printed for 51.2T: (512/128)^2 = 16 on two layers, (512/128)^3 = 64 on three; any switch gives it."""
    ports = np.array([100 * G, 400 * G])
    for layers, printed in [(2, 16), (3, 64)]:
        small, large = clos(switch_bits_per_s=switch, port_bits_per_s=ports, layers=layers).endpoints
        assert small / large == printed


def test_printed_sizes_hold_only_if_the_nic_is_split_over_planes():
    """Line 473 sets 8,192 GPUs with 100G ports against 512 with 400G ports, both for NICs of 400G.

    8,192 is the number of ports of one network. A GPU with all four of its ports in that network leaves room for
    8,192/4 = 2,048 GPUs; the printed size needs four such networks, hence four times the switches.
    """
    rates = {"switch_bits_per_s": 12.8 * T, "port_bits_per_s": 100 * G, "nic_bits_per_s": 400 * G, "layers": 2}
    one, four = clos(**rates, planes=1), clos(**rates, planes=4)
    assert (one.max_chips, four.max_chips) == (2048, 8192)
    assert four.switches == 4 * one.switches
    assert four.switches / four.chips == one.switches / one.chips


TRN3 = {"port_bits_per_s": 100 * G, "nic_bits_per_s": 400 * G, "chips_per_nic": 2, "planes": 2, "layers": 3}


def test_trn3_network_of_12t8_switches():
    """Lines 447-449, 489: a 400G NIC for two chips, 200G to each of two top-of-rack switches; no size is printed.

    Two ports of 100G a chip, 524,288 endpoints in each of two planes: 524,288 chips. A top of rack has 64 ports down:
    32 NICs with two ports each, 64 chips. A pod has 128/2 = 64 racks, the network 128 pods.
    """
    network = clos(switch_bits_per_s=12.8 * T, **TRN3)
    assert network.chips == 524_288
    assert (network.chips_per_rack, network.racks_per_pod, network.pods) == (64, 64, 128)
    assert network.chips_per_pod == 4096
    assert network.chip_bytes_per_s_per_dir == 25e9  # 200 Gb/s


def test_larger_leaf_and_spine_switches():
    """Line 493: 4x the chips, double the pods, double the racks per pod; then four times again. Top of rack stays."""
    switches = np.array([12.8, 25.6, 51.2]) * T
    network = clos(switch_bits_per_s=switches, tor_bits_per_s=12.8 * T, **TRN3)
    np.testing.assert_array_equal(network.chips[1:] / network.chips[:-1], [4, 4])
    np.testing.assert_array_equal(network.pods[1:] / network.pods[:-1], [2, 2])
    np.testing.assert_array_equal(network.racks_per_pod[1:] / network.racks_per_pod[:-1], [2, 2])
    np.testing.assert_array_equal(network.chips_per_rack, 64)
    # were the top of rack upgraded as well, it would be 8x: 256^3/4 over 128^3/4
    assert clos(switch_bits_per_s=25.6 * T, **TRN3).chips == 8 * network.chips[0]


@pytest.mark.parametrize(("chips_per_rack", "down", "up"), [(32, 32, 96), (64, 64, 64), (72, 72, 56)])
def test_top_of_rack_of_a_trn3_rack(chips_per_rack, down, up):
    """128 ports of 100G; half the NICs' ports, one for each chip, come down to each of the two switches.

    Line 457 speaks of extra uplinks: a rack of 32 chips (line 205) leaves 96 for 32. A rack of 72 chips needs 72, more
    than half, so at 12.8T it is oversubscribed 72:56 = 1.29.
    """
    network = clos(switch_bits_per_s=12.8 * T, oversubscription=down / up, **TRN3)
    assert (network.down_ports, network.rails, network.chips_per_rack) == (down, up, chips_per_rack)
    assert network.chips == chips_per_rack * 64 * 128
    assert network.chip_bytes_per_s_per_dir_across_racks == pytest.approx(25e9 * min(1, up / down))


def test_fat_tree_of_four_port_switches_by_hand():
    """k = 4: 16 hosts, 8 edge, 8 aggregation and 4 core switches, 16 links on each of three levels."""
    tree = clos(switch_bits_per_s=4, port_bits_per_s=1, layers=3)
    assert (tree.endpoints, tree.pods, tree.racks_per_pod) == (16, 4, 2)
    assert (tree.tor_switches, tree.leaf_switches, tree.spine_switches, tree.switches) == (8, 8, 4, 20)
    assert (tree.endpoint_links, tree.fabric_links, tree.links) == (16, 32, 48)
    assert (tree.optics, tree.switch_hops) == (64, 5)


def test_leaf_and_spine_by_hand():
    """Four ports, two layers: 4 leaves with 2 hosts, 2 spines. Modules of two ports halve cables and optics."""
    network = clos(switch_bits_per_s=4, port_bits_per_s=1, layers=2, module_bits_per_s=2, endpoint_medium="optical")
    assert (network.endpoints, network.tor_switches, network.leaf_switches, network.spine_switches) == (8, 4, 0, 2)
    assert (network.links, network.cables, network.optics) == (16, 8, 16)


def test_network_for_fewer_chips_by_hand():
    """Five hosts on k = 4: 3 racks in 2 pods, 4 leaves, 3 x 2 and 4 x 2 links up, 8/4 = 2 spines."""
    tree = clos(switch_bits_per_s=4, port_bits_per_s=1, layers=3, chips=5)
    assert (tree.racks, tree.pods, tree.leaf_switches, tree.spine_switches) == (3, 2, 4, 2)
    assert (tree.endpoint_links, tree.fabric_links) == (5, 14)
    assert (tree.chips, tree.max_chips) == (5, 16)


def test_points_that_cannot_exist_are_marked():
    network = clos(switch_bits_per_s=[4, 1, 4, 4], port_bits_per_s=1, layers=2, chips=[8, 1, 9, 1],
                   nic_bits_per_s=[1, 1, 1, 1.5])  # fmt: skip
    np.testing.assert_array_equal(network.valid, [True, False, False, False])
    np.testing.assert_array_equal(np.isnan(network.switches), ~network.valid)
    assert "fewer than two ports" in network.reason[1]
    assert network.reason[2] == "more chips than the layers reach"
    assert "no whole number of ports" in network.reason[3]
    with pytest.raises(ValueError, match="3 of 4 points cannot exist"):
        network.require_valid()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": 4}, "layers=4: allowed are whole numbers from 2 to 3"),
        ({"switch_bits_per_s": -1}, "switch_bits_per_s=-1: allowed are numbers from 1e-30"),
        ({"oversubscription": 0}, "oversubscription=0: allowed are numbers from 1e-30"),
        ({"planes": 1.5}, "planes=1.5.*whole"),
        ({"chips": 0}, "chips=0: allowed are whole numbers from 1"),
        ({"endpoint_medium": "air"}, "endpoint_medium='air'.*copper"),
    ],
)
def test_wrong_input_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        clos(**{"switch_bits_per_s": 12.8 * T, "port_bits_per_s": 100 * G, "layers": 2} | wrong)


@given(st.integers(1, 80), st.sampled_from([2, 3]), st.sampled_from([1 / 3, 1, 2, 3]), st.integers(1, 4), st.data())
@settings(max_examples=60)
def test_no_switch_has_more_links_than_ports(half_radix, layers, oversubscription, planes, data):
    radix = 2 * half_radix + 2
    arguments = {"switch_bits_per_s": radix, "port_bits_per_s": 1, "layers": layers, "planes": planes}
    full = clos(**arguments, oversubscription=oversubscription)
    if not full.valid:
        return
    used = clos(**arguments, oversubscription=oversubscription, chips=data.draw(st.integers(1, int(full.max_chips))))
    for network in (full, used):
        ends = network.endpoint_links + 2 * network.fabric_links
        assert ends <= network.switches * radix
        assert network.chips <= network.racks * network.chips_per_rack
    assert used.switches <= full.switches
    assert full.chips <= radix**layers  # every layer multiplies the reach by less than its ports
    if oversubscription == 1:
        assert full.endpoints == 2 * (radix / 2) ** layers


def test_arrays_equal_scalars_and_make_a_tidy_frame():
    switches, layers = np.array([[12.8 * T], [51.2 * T]]), np.array([2, 3])
    frame = clos(switch_bits_per_s=switches, port_bits_per_s=100 * G, layers=layers).to_frame()
    assert len(frame) == 4
    assert {"switch_bits_per_s", "layers", "endpoints", "optics", "valid", "reason"} <= set(frame.columns)
    for row in frame.itertuples():
        one = clos(switch_bits_per_s=row.switch_bits_per_s, port_bits_per_s=100 * G, layers=row.layers)
        assert (one.endpoints, one.switches, one.optics) == (row.endpoints, row.switches, row.optics)


def test_distance_by_hand():
    # 100 km of glass with index 1.5: light needs 1e5 x 1.5 / 299,792,458 = 0.50035 ms
    delay = transit.fibre_delay_s(100e3, 1.5)
    assert delay == pytest.approx(0.50035e-3, rel=1e-5)
    assert transit.path_latency_s(5, 1e-6, 2e-6, delay) == pytest.approx(delay + 9e-6)
    # 25 GB/s over there and back: 25 MB outstanding
    assert transit.in_flight_bytes(25 * G, delay) == pytest.approx(2 * 0.50035e-3 * 25e9, rel=1e-5)


def test_kv_transfer_beside_prefill_by_hand():
    # 200 Gb/s (lines 205-209) carry 10 GB in 0.4 s
    send = {"kv_bytes": 10 * G, "bytes_per_s_per_dir": 25 * G, "latency_s": 1e-3}
    assert transit.kv_exposed_s(prefill_s=5.0, pieces=1, **send) == pytest.approx(0.401)
    # 80 layers under 5 s of prefill: only the last layer's 0.4/80 is seen
    assert transit.kv_exposed_s(prefill_s=5.0, pieces=80, **send) == pytest.approx(0.005 + 1e-3)
    # prefill of 0.2 s: after the first layer's 0.0025 s the link is busy for 0.4 s, so 0.2025 s are left at the end
    assert transit.kv_exposed_s(prefill_s=0.2, pieces=80, **send) == pytest.approx(0.2025 + 1e-3)


@given(
    st.just(0.0) | st.floats(1e-30, 1e12),
    st.just(0.0) | st.floats(1e-30, 100),
    st.integers(1, 200),
    st.floats(1e8, 1e12),
)
@settings(max_examples=60)
def test_exposed_transfer_lies_between_what_cannot_hide_and_all(kv_bytes, prefill_s, pieces, rate):
    exposed = transit.kv_exposed_s(kv_bytes, prefill_s, pieces, rate, 0.0)
    transfer = kv_bytes / rate
    assert max(transfer - prefill_s, 0.0) * (1 - 1e-12) <= exposed + 1e-12
    assert exposed <= transfer * (1 + 1e-12)


def test_a_nic_of_exactly_two_ports_has_one_in_each_plane():
    """400 Gb/s in two ports of 200: switches of 64 ports join 64^3 / 4 NICs in three layers, each of two chips."""
    table = port_choice("trn3-nl72x2-pcie160", 130_000, [200e9]).iloc[0]
    assert (table.switch, table.port, table.layers, table.reach_chips) == ("12.8T", "200G", 3, 64**3 / 4 * 2)


def test_an_odd_network_by_hand():
    """Leaves of 13 ports, first switches of 11, three down for two up: 4 up and 6 down.

    A NIC of 3 chips has 2 ports in each of 3 planes: 3 NICs or 9 chips a rack, 6 racks or 54 chips a pod, 13 pods.
    100 chips: 34 NICs, 12 racks, 2 pods. A plane has 12 first switches, 2 x 4 leaves with 6 links up, 48 links into
    ceil(48 / 13) = 4 spines. Links: 34 x 2 x 3 = 204 of NICs; 3 (48 + 12 x 4) = 288 among switches.
    Modules of 5 ports: 41 and 58.
    """
    network = clos(
        switch_bits_per_s=13 * G,
        tor_bits_per_s=11 * G,
        port_bits_per_s=G,
        layers=3,
        oversubscription=1.5,
        nic_bits_per_s=6 * G,
        planes=3,
        chips_per_nic=3,
        module_bits_per_s=5 * G,
        chips=100,
        endpoint_medium="optical",
    )
    assert (network.radix, network.tor_radix, network.down_ports, network.rails) == (13, 11, 6, 4)
    assert (network.ports_per_nic, network.nics_per_rack, network.racks_per_pod, network.max_pods) == (2, 3, 6, 13)
    assert (network.chips_per_rack, network.chips_per_pod, network.max_chips) == (9, 54, 702)
    assert (network.endpoints, network.nics, network.racks, network.pods) == (468, 34, 12, 2)
    assert (network.tor_switches, network.leaf_switches, network.spine_switches) == (36, 24, 12)
    assert (network.switches, network.endpoint_links, network.fabric_links) == (72, 204, 288)
    assert (network.endpoint_cables, network.fabric_cables, network.optics) == (41, 58, 198)
    assert (network.oversubscription, network.switch_hops) == (1.5, 5)
    assert network.chip_bytes_per_s_per_dir == pytest.approx(0.25e9)  # a third of 6 Gb/s
    assert network.chip_bytes_per_s_per_dir_across_racks == pytest.approx(0.25e9 / 1.5)


def test_chips_and_switches_that_do_not_broadcast_are_refused():
    with pytest.raises(ValueError, match=r"chips"):
        clos(switch_bits_per_s=[4, 8], port_bits_per_s=1, layers=2, chips=[1, 2, 3])
