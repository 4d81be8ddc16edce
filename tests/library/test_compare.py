"""Names and arguments of fabrics that are compared."""

from dataclasses import replace

import numpy as np
import pytest

from trnmodel.catalog.systems import system
from trnmodel.fabric import flow, what_if
from trnmodel.fabric.graph import topology

TORUS, RACK, AWS = "trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "trn3-nl72x2-aws-lanes"
NL72 = ["trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl72x2-pcie320", "trn3-nl72x2-ualink"]


def test_latency_of_one_path_is_its_parts():
    net = topology("trn3-nl72x2-pcie160")
    matrix = flow.latency_matrix(flow.path_switches(net.graph), 100.0, 1.0)
    start, same, other = (
        net.chips.index(f"rack0/tray{tray}/{letter}") for tray, letter in ((0, "A"), (1, "A"), (1, "C"))
    )
    assert matrix[start, same] == 101  # one switch
    assert matrix[start, other] == 202  # two switches and one chip
    np.testing.assert_array_equal(matrix, matrix.T)


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
