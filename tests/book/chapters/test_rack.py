"""Racks: counts against print, names, failures, readings, the equations, and what card and drawing show."""

import networkx as nx
import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import rack
from trnbook.shared import case
from trnbook.shared import fabrics as compare
from trnmodel.fabric import flow, what_if
from trnmodel.fabric.graph import topology
from trnmodel.units import GB

SWITCHED = ["trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl32x2-pcie320"]


def test_printed_counts_of_the_deep_dive():
    """L393, L322, L327, L229, L189: cables, switches, ports, CPUs and chips, as printed and as counted on the graph."""
    table = rack.verdicts([*SWITCHED, "trn2-ultraserver"]).set_index(["system", "part"])
    agreed = table.counted[table.verdict == "agrees"]
    assert agreed["trn3-nl72x2-pcie160", "switches"] == 368
    assert agreed["trn3-nl72x2-pcie160", "copper cables"] == 11_520
    assert agreed["trn3-nl32x2-pcie160", "copper cables"] == 5120
    assert agreed["trn2-ultraserver", "copper cables"] == 6144
    assert agreed["trn3-nl72x2-pcie160", "host CPUs"] == 36


def test_disagreements_of_the_text_are_marked():
    """L401 64 chips a rack against 18 x 4; L314 less than 10 % against 16/64; L349 ports of the PEX90144 swapped."""
    table = rack.verdicts(SWITCHED)
    wrong = table[table.verdict == "disagrees"].drop_duplicates("part").set_index("part").counted
    assert wrong["chips per rack"] == 72
    assert wrong["cross-rack share of backplane"] == pytest.approx(0.25)
    assert (wrong["x8 ports of a rack switch"], wrong["x4 ports of a rack switch"]) == (18, 36)


def test_names_of_a_rack():
    names = rack.names().set_index("system")
    assert names.codename["trn3-nl32x2-pcie160"] == "Teton3 PDS"
    assert "Trn3 Gen2 UltraServer" in names.AWS["trn3-nl72x2-pcie160"]
    assert "Trainium3 NL72x2 Switched" in names["by topology"]["trn3-nl72x2-pcie160"]


def test_spares_take_over():
    """L275-279: redundant backplane lanes; none on the board or between rack."""
    left = what_if.shares_left("trn3-nl72x2-pcie160").set_index("failure")
    assert (left.loc[["one backplane lane", "one backplane switch", "one switch tray"]] == 1).all(axis=None)
    assert left.injection["one pcb lane"] == pytest.approx(1 - 4 / 144)  # a x8 port that lost a lane trains to x4
    assert left.all_to_all["one cross-rack link"] == pytest.approx(71 / 72)


def test_a_pulled_tray_of_nl32x2():
    """L193: four trays, a quarter of the lanes each; a fifth takes the redundant ones. L275: NL72x2 has spares.

    AWS's page names no spare lane: ten trays of one switch each, five to a plane. Half the chips lose a fifth of their
    lanes, and what they cannot send goes over their neighbours: a tenth.
    """
    small, mapped = "trn3-nl32x2-pcie160", "trn3-nl72x2-aws-lanes"
    fifth = what_if.alternatives(small)["fifth-switch-tray"]
    lost = what_if.lost(["trn3-nl72x2-pcie160", small, fifth, mapped]).set_index("failure").loc["one switch tray"]
    assert lost.to_dict() == pytest.approx({"trn3-nl72x2-pcie160": 1, small: 3 / 4, fifth.id: 1, mapped: 1 - 1 / 10})
    assert what_if.shares_left(small).set_index("failure").rack_all_to_all["one switch tray"] == lost[small]
    assert what_if.parts(small)["retimers"][0] == 32 * 4  # L201
    assert what_if.parts("trn3-nl72x2-pcie160")["retimers"][0] == 36 * 6  # L235


def test_a_failure_that_a_system_cannot_have_is_no_share():
    lost = what_if.lost(["trn2-ultraserver", "trn3-nl32x2-pcie160"]).set_index("failure")
    assert np.isnan(lost["trn2-ultraserver"]["one switch tray"])
    assert np.isnan(lost["trn3-nl32x2-pcie160"]["one aec link"])


def test_both_lane_maps_of_a_rack():
    """Switches by AWS's map: 18 boards of four and ten trays of one in each of two racks; 88 lanes of 8 GB/s."""
    (mapped,) = compare.lane_maps("trn3-nl72x2-pcie320")
    empty = tm.collective("all_to_all", 0, mapped, algorithm="direct", in_graph=True)
    row = rack.fabric(topology(mapped), empty)
    assert (row["switches"], row["injection_bytes_per_s_per_dir"]) == (2 * (18 * 4 + 10), 704 * GB)
    assert (
        compare.lane_maps(mapped)
        == compare.lane_maps("trn2-ultraserver")
        == compare.lane_maps("trn3-nl32x2-pcie160")
        == []
    )


def test_the_card_says_what_a_rack_holds():
    """L229: 18 trays of four chips; L322: 184 switches a rack; a torus has links and no switch."""
    nets = {name: topology(name) for name in ("trn3-nl72x2-pcie160", "trn2-ultraserver", "trn3-nl32x2-pcie160")}
    far = {name: tm.collective("all_to_all", 0, name, in_graph=True, rate_share=1.0) for name in nets}

    def said(name, other, *watts):
        return rack.answer(nets[name], nets[other], far[name], *watts)

    step = tm.decode_step("llama-3.1-8b", "trn3-nl72x2-pcie160", tm.Mapping(), batch=1, context=1024)
    card = said("trn3-nl72x2-pcie160", "trn2-ultraserver", tm.energy(step))
    assert (
        "**1.15 TB/s per chip** (0.70 to 1.15): what each of the 72 chips in a rack of Trainium3 NL72x2 Switched "
        "can send, 1.02 TB/s of it within" in card
    )
    assert "640 GB/s for each chip of Trn2 UltraServer, 512 GB/s of it within its instance" in card
    assert "A rack joins its chips by 184 switches." in card
    assert "An empty message reaches the farthest chip of the system after 4.73 µs." in card
    assert "provisioned for about 110 kW" in card  # 72 chips of 1.49 kW each
    assert (
        "With them a chip sends only 704 GB/s, 576 GB/s of it within its rack, "
        "and the rack needs 82 switches (our own estimate)." in card
    )  # 18 x 4 + 10
    # 16 trays of two chips in each of two racks; a chip of a 4 x 4 x 4 torus has six links
    assert f"joins its chips by {32 * 6 // 2} links and no switch" in said("trn2-ultraserver", "trn3-nl32x2-pcie160")
    assert "kW" not in said("trn3-nl32x2-pcie160", "trn2-ultraserver")


def test_paths_are_drawn_stop_by_stop():
    """L296-L312: path A passes one switch; path B changes planes on the first tray, over a board switch."""
    frames = rack.some_paths(tm.system("trn3-nl72x2-pcie160")).frames
    assert [("".join(frame)).count("<rect") for frame in frames.values()] == [3, 5, 6]
    assert "".join(frames["path B"]).count("board switch") == 1
    assert "neighbours" in rack.some_paths(tm.system("trn2.48xlarge")).data


def test_a_count_says_when_it_is_of_both_racks():
    """L229: 18 trays and one CPU each in each of two racks; L393: 144 chips of 80 lanes."""
    table = rack.parts(tm.system("trn3-nl72x2-pcie160")).set_index("part").counted
    assert (table["host CPUs, both racks"], table["copper cables, both racks"]) == (36, 11_520)
    assert table["switches per rack"] == 184


@pytest.mark.parametrize("name", ["trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "trn3-nl32x2-torus"])
def test_mean_distance_and_cut_of_a_torus(name):
    """A ring of k has a mean distance of floor(k^2 / 4) / k, itself included; a cut crosses each of its rings twice."""
    net, shape = topology(name), tm.system(name).torus_shape
    chips = int(np.prod(shape))
    assert net.mean_hops == pytest.approx(chips / (chips - 1) * sum(k * k // 4 / k for k in shape))
    slowest = min(data["bytes_per_s_per_dir"] for *_, data in net.graph.edges(data=True))
    assert net.bisection_bytes_per_s_per_dir == pytest.approx(2 * chips / 4 * slowest)


@pytest.mark.parametrize("name", ["trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl72x2-aws-lanes"])
def test_a_pair_of_racks_is_cut_at_its_cables(name):
    """A chip has 16 lanes of 8 GB/s to the other rack, and every pair across the cut gets an equal part."""
    net = topology(name)
    half = len(net.chips) // 2
    assert net.bisection_bytes_per_s_per_dir == pytest.approx(half * 16 * 8 * GB)
    assert net.all_to_all_bytes_per_s_per_pair() == pytest.approx(half * 16 * 8 * GB / half**2)


def test_the_drawing_marks_the_chips_of_a_replica():
    systems = ["trn2.48xlarge", "trn3-nl72x2-pcie160"]
    plans = {("deepseek-v3", name): case.choice("deepseek-v3", name) for name in systems}
    drawing = rack.replicas(plans)
    taken = sum(int(case.value(rack.LINE, "deepseek-v3", name)) for name in systems)
    assert "".join(drawing.frames["deepseek-v3"]).count("box-a") == taken
    assert "".join(drawing.marks).count("<rect") == 16 + 144


def test_a_system_without_trays_shows_its_links():
    assert rack.front(tm.system("trn3-nl72x2-pcie160")).id == "rack-trn3-nl72x2-pcie160"
    assert len(rack.front(tm.system("gb200-nvl72")).to_dict()["description"]) > 0


@pytest.mark.parametrize("text", ["82 switches (our own estimate)", "704", "64 chips", "disagrees"])
def test_the_executed_chapter_shows_both_lane_maps(root, text):
    assert text in (root / "notebooks" / "rack.ipynb").read_text()


def test_torus_reading_halves_the_third_dimension():
    readings = what_if.readings("trn3-nl32x2-torus").set_index("assumption")
    assert "all to all per pair x 0.5" in readings.changes["trn3-torus-144"]


def idle_switches(net):
    """Rack switches whose links all idle, as {(rack, plane): positions}; no switch idles for some chips alone."""
    found = {}
    for node, data in net.graph.nodes(data=True):
        if data.get("medium") == "backplane":
            live = {link["bytes_per_s_per_dir"] > 0 for link in net.graph[node].values()}
            assert len(live) == 1
            if live == {False}:
                found.setdefault((data["rack"], data["plane"]), []).append(data["position"])
    return found


def test_which_switches_are_spare():
    """L275-279: 64 of a chip's 80 backplane lanes are active, x8 to each switch: the first 8 of a plane.

    A switch that fails, or stands behind a broken link, changes places with the first spare of its own plane and rack.
    """
    net = topology("trn3-nl72x2-pcie160")
    planes = [(rack, plane) for rack in (0, 1) for plane in range(4)]
    assert idle_switches(net) == {key: [8, 9] for key in planes}
    # switch 3 is gone: 8 takes over, 9 remains
    lost = net.without(switches=["rack0/plane1/switch3"])
    assert idle_switches(lost) == {key: [8, 9] for key in planes} | {(0, 1): [9]}
    # switch 2 has a broken link: it idles for all chips of its plane
    broken = net.without(links=[("rack1/tray5/A", "rack1/plane0/switch2")])
    assert idle_switches(broken) == {key: [8, 9] for key in planes} | {(1, 0): [2, 9]}
    # 10 trays hold 40 switches, one of each plane: the first tray holds those of position 0, and 8 takes over
    pulled = net.without(switch_trays=[(0, 0)])
    assert {node for node in net.graph if node not in pulled.graph} == {f"rack0/plane{n}/switch0" for n in range(4)}
    assert idle_switches(pulled) == {(rack, plane): [8, 9] if rack else [9] for rack, plane in planes}


def test_idle_switches_before_and_between_chips_move_nothing():
    """Three chips on one switch of rate 1, two spares that idle: 1 / 2 to each of two others, over one switch."""
    graph = nx.Graph()
    kinds = {"s0": "switch", "a": "chip", "s1": "switch", "s2": "switch", "b": "chip", "c": "chip"}
    for node, kind in kinds.items():
        graph.add_node(node, kind=kind)
    for chip in "abc":
        for switch, rate in (("s0", 0.0), ("s1", 1.0), ("s2", 0.0)):
            graph.add_edge(chip, switch, bytes_per_s_per_dir=rate, medium="backplane")
    arcs = flow.arcs(graph)
    assert [arcs.nodes[place] for place in arcs.chips] == flow.chip_nodes(graph) == ["a", "b", "c"]
    assert flow.concurrent_flow(graph).bytes_per_s_per_pair == pytest.approx(1 / 2)
    assert flow.full_concurrent_flow(graph).bytes_per_s_per_pair == pytest.approx(1 / 2)
    apart = 1 - np.eye(3)
    np.testing.assert_array_equal(flow.hop_matrix(graph), 2 * apart)
    np.testing.assert_array_equal(flow.hop_matrix(graph, ["b"]), 2 * apart[1:2])
    np.testing.assert_allclose(flow.latency_matrix(flow.path_switches(graph), 3.0, 0.5), (3.0 + 0.5) * apart)
    assert flow.cut_bytes_per_s_per_dir(graph, {"b"}) == 1.0


@pytest.mark.parametrize("name", ["trn3-nl72x2-pcie160", "trn3-nl32x2-pcie320", "gb200-nvl72", "trn2.48xlarge"])
def test_chips_keep_their_places_in_the_flow(name):
    graph = topology(name).graph
    arcs = flow.arcs(graph)
    assert [arcs.nodes[place] for place in arcs.chips] == flow.chip_nodes(graph)
