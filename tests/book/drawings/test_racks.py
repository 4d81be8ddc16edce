"""Racks and networks as drawn: counts are those of the system, and every text stays on the canvas."""

import re

import pytest
from looks import boxes, faults, labels, parsed, svg

import trnmodel as tm
from trnbook.drawings import racks
from trnmodel.fabric import scaleout
from trnmodel.fabric.graph import topology

RACKS = ["trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl72x2-ualink"]
TORI = ["trn2.48xlarge", "trn2-ultraserver", "trn1.32xlarge"]
ALL = {
    **{f"torus {name}": lambda name=name: racks.torus(name) for name in TORI},
    **{f"front {name}": lambda name=name: racks.rack_front(name) for name in [*RACKS, "trn2-ultraserver"]},
    **{f"paths {name}": lambda name=name: racks.paths(name) for name in [*RACKS, *TORI]},
    "three layers": lambda: racks.layers_of_network("trn3-nl72x2-pcie160"),
    "two layers": lambda: racks.layers_of_network("trn2.48xlarge", 2),
}


@pytest.mark.parametrize("name", ALL)
def test_a_drawing_is_well_formed_short_and_within_its_canvas(name):
    assert faults(ALL[name]()) == []


@pytest.mark.parametrize("name", TORI)
def test_a_torus_has_the_chips_and_links_of_its_system(name):
    drawing, spec = racks.torus(name), tm.system(name)
    drawn = parsed(drawing.marks)
    assert len(boxes(drawn, "box")) == spec.domain_chips
    axes = len(spec.torus_shape)
    links = sum("faint" in (mark.get("class") or "") for mark in drawn)
    assert links == 2 * spec.domain_chips  # one to the right and one down per chip, wrap-around ones too
    for frame in drawing.frames.values():
        lit = parsed(frame)
        assert len(boxes(lit, "box-b")) == 2 * axes  # two neighbours on each axis of four
        assert len(boxes(lit, "box-a")) == 1


def test_the_rate_of_links_is_that_of_the_system_over_its_neighbours():
    rates = tm.system("trn2-ultraserver").scaleup_bytes_per_s_per_dir
    inside, between = rates["instance"] / 4 / 1e9, rates["ultraserver"] / 2 / 1e9
    said = " ".join(labels(svg(racks.torus("trn2-ultraserver")).iter()))
    assert f"at {inside:g} GB/s; 2 in other instances at {between:g} GB/s" in said


def test_the_front_shows_the_trays_chips_and_switches_of_both_racks():
    drawing = racks.rack_front("trn3-nl72x2-pcie160")
    drawn = list(svg(drawing).iter())
    legend = 1
    assert len(boxes(drawn, "box-a")) == 144 + legend  # 2 racks of 18 trays of 4 chips
    assert len(boxes(drawn, "box-b")) == 80 + legend  # 2 racks of 4 planes of 10 switches
    assert len(boxes(drawn, "box-d")) == 288 + legend  # 36 trays of 8 board switches
    assert len(boxes(drawn, "box-c")) == 36 + legend  # a CPU in each tray
    assert len(boxes(drawn, "box")) == 2 * (18 + 10)
    said = labels(drawn)
    assert said.count("9 compute trays") == 2
    assert {"10 switch trays", "40 switches", "72 links"} <= set(said)


def test_the_front_of_the_smaller_rack_has_cpu_trays_at_both_ends():
    drawing = racks.rack_front("trn3-nl32x2-pcie160")
    said = labels(svg(drawing).iter())
    trays = [text for text in said if text.endswith(("tray", "trays"))]
    assert trays == ["1 CPU tray", "8 compute trays", "4 switch trays", "8 compute trays", "1 CPU tray"]
    assert "32 links" in said
    assert "2 racks" in drawing.alt


def test_a_rack_without_trays_is_refused():
    with pytest.raises(ValueError, match="trays"):
        racks.rack_front("hgx-h100")


@pytest.mark.parametrize("name", RACKS)
def test_paths_pass_what_the_graph_says(name):
    net, drawing = topology(name), racks.paths(name)
    last = labels(parsed(drawing.frames["Other rack"]))
    assert last == ["1 direct link"]
    assert drawing.caption == f"The farthest chips are {net.diameter:g} links apart"
    farthest = racks.passed(net, net.path("rack0/tray0/A", net.chips[-1]))
    assert farthest["link"] == farthest["switch"] + farthest["chip"] + 1


def test_paths_of_the_two_racks_differ_by_the_board_switches():
    words = {}
    for name in ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"):
        frames = racks.paths(name).frames
        words[name] = [labels(parsed(frame))[0] for frame in frames.values()]
    small, large = words.values()
    assert small[0] == "1 direct link"  # two chips share a board
    assert large[0] == "2 links, through 1 switch"  # four chips share board switches
    assert small[1] == large[1] == "2 links, through 1 switch"


def test_paths_on_a_torus_reach_its_diameter():
    assert list(racks.paths("trn2.48xlarge").frames) == ["1 hop", "2 hops", "3 hops", "4 hops"]  # 2 on each axis


def test_a_torus_that_is_too_large_and_another_fabric_are_refused():
    for name in ("tpu-v5e-pod", "hgx-h100"):
        with pytest.raises(ValueError, match="allowed are tori"):
            racks.torus(name)


def test_layers_have_the_counts_of_the_network():
    attach = scaleout.nic("trn3-nl72x2-pcie160")
    net = tm.clos(switch_bits_per_s=12.8e12, layers=3, **attach)
    drawing = racks.layers_of_network("trn3-nl72x2-pcie160", 3, switch_bits_per_s=12.8e12)
    said = labels(svg(drawing).iter())
    assert "128 ports down" in said  # 12.8T over ports of 100G
    for count in (net.spine_switches, net.leaf_switches, net.tor_switches):
        assert f"{count:,.0f} switches" in said
    reach = [text.split(" chips")[0] for text in said if " between two" in text]
    assert reach == [f"{count:,.0f}" for count in (64, 64 * 64, 64 * 64 * 128)]
    assert list(drawing.frames) == ["Under one top of rack", "In one pod", "In the whole network"]


def test_two_layers_have_no_leaf_and_larger_switches_reach_farther():
    two = racks.layers_of_network("trn3-nl72x2-pcie160", 2)
    assert "Leaf" not in labels(svg(two).iter())
    larger = racks.layers_of_network("trn3-nl72x2-pcie160", 2, switch_bits_per_s=25.6e12)
    chips = [int(re.sub("[^0-9]", "", drawing.caption.split("join")[1])) for drawing in (two, larger)]
    assert chips[1] == 4 * chips[0]  # twice the ports of both layers


def test_layers_that_cannot_be_built_are_refused():
    with pytest.raises(ValueError, match="layers"):
        racks.layers_of_network("trn3-nl72x2-pcie160", 3, switch_bits_per_s=100e9)
