"""Fabrics: printed paths, counts and sums; closed forms; two methods that must agree; failures."""

import csv
import math
import re
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnmodel.catalog.systems import system, systems
from trnmodel.fabric import flow
from trnmodel.fabric.build import link_rates
from trnmodel.fabric.graph import topology
from trnmodel.fabric.what_if import failures, hops_table, metrics, parts, parts_table, readings
from trnmodel.units import GB

SWITCHED = [name for name in systems() if name.startswith("trn3-nl") and "torus" not in name]
GOLDEN = Path(__file__).parents[1] / "golden" / "fabric_all_to_all.csv"


def torus(shape, rates):
    """A torus built here, apart from the package's builder."""
    graph = nx.Graph()
    for axis, rate in enumerate(rates):
        for place in nx.grid_graph(shape[::-1]).nodes:
            place = place if isinstance(place, tuple) else (place,)
            graph.add_node(place, kind="chip", **dict(zip("xyz", place, strict=False)))
            far = tuple((c + (a == axis)) % shape[a] for a, c in enumerate(place))
            graph.add_edge(place, far, bytes_per_s_per_dir=rate, medium="link")
    return graph


@pytest.mark.parametrize("name", [name for name in systems() if name != "mi210-4"])
def test_every_system_builds(name):
    net = topology(name)
    assert len(net.chips) == system(name).domain_chips
    pairs = len(net.chips) * (len(net.chips) - 1) // 2
    assert sum(net.hop_histogram().values()) == pairs


@pytest.mark.parametrize(
    ("name", "hops"),
    [("trn3-nl32x2-pcie160", (1, 2, 3)), ("trn3-nl72x2-pcie160", (1, 3, 4)), ("trn3-nl72x2-pex90144", (1, 3, 4))],
)
def test_printed_paths(name, hops):
    """deep dive L306-310 and L335-339: paths A, B and C in intermediate hops."""
    table = hops_table(name).set_index("part")
    assert tuple(table.counted[["path A", "path B", "path C"]]) == hops
    assert (table.verdict == "agrees").all()


@pytest.mark.parametrize(
    ("name", "most"),
    # deep dive L290 "up to three hops", L359 "just one hop" and "two hop worst case", L379 "all-to-all"
    [("trn3-nl72x2-pcie160", 3), ("trn3-nl32x2-pcie160", 2), ("trn3-nl32x2-pcie320", 1), ("trn3-nl72x2-ualink", 1)],
)
def test_printed_rack_maxima(name, most):
    histogram = topology(name).hop_histogram("intermediate", "rack")
    assert max(histogram) == most
    assert min(histogram) == (0 if "nl32x2" in name else 1)  # NL32x2 board neighbours have no switch between them


def test_same_letters_of_a_rack_are_one_switch_apart():
    net = topology("trn3-nl72x2-pcie160")
    histogram = net.hop_histogram("intermediate", "rack")
    # 4 planes of 18 chips: 4 * C(18,2) pairs over a rack switch; 18 trays * C(4,2) over a board switch; 2 racks
    assert histogram[1] == 2 * (4 * math.comb(18, 2) + 18 * math.comb(4, 2))
    assert sum(histogram.values()) == 2 * math.comb(72, 2)


def test_parts_count_what_is_printed():
    """deep dive L322: 40 + 144 = 184 a rack, 368 in the world; L229: 36 CPUs; L393: cables."""
    nl72, nl32, trn2 = (parts(name) for name in ("trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160", "trn2-ultraserver"))
    assert nl72["rack switches per rack"][0] == 40
    assert nl72["board switches per rack"][0] == 144
    assert (nl72["switches per rack"][0], nl72["switches"][0]) == (184, 368)
    assert (nl72["host CPUs"][0], nl72["copper cables"][0], nl72["spare ports per rack switch"][0]) == (36, 11520, 2)
    assert (nl32["copper cables"][0], trn2["copper cables"][0]) == (64 * 80, 64 * 96)
    assert sum(topology("trn3-nl72x2-pcie160").switch_counts.values()) == 368


@pytest.mark.parametrize("name", [name for name in systems() if name != "mi210-4"])
def test_chips_of_a_rack_fill_the_racks_of_a_domain(name):
    """Deep dive L169: NL16 occupies half a rack; L189: 16 trays of two chips. Unknown racks are not taken to be one."""
    spec, found = system(name), parts(name)
    if math.isnan(spec.racks):
        assert "chips per rack" not in found
    else:
        assert found["chips per rack"][0] * spec.racks == spec.domain_chips
    if spec.chip.id.startswith("trainium") and spec.fabric == "torus" and "chips per rack" in found:
        assert found["chips per rack"][0] == 32
        assert parts_table(name).set_index("part").verdict["chips per rack"] == "agrees"


def test_the_text_against_itself():
    verdicts = parts_table("trn3-nl72x2-pcie160").set_index("part").verdict
    assert verdicts["chips per rack"] == "disagrees"  # L401 prints 64; 18 trays x 4 (L229) are 72
    assert verdicts["cross-rack share of backplane"] == "disagrees"  # "<10%" at L314; 16 of 64 lanes are 25 %
    backup = parts_table("trn3-nl72x2-pex90144").set_index("part").verdict
    assert backup["x8 ports of a rack switch"] == "disagrees"  # L349 prints 36 (x8) or 18 (x4): 144 / 8 = 18
    assert backup["x4 ports of a rack switch"] == "disagrees"
    others = verdicts.drop(["chips per rack", "cross-rack share of backplane"])
    assert set(others) == {"agrees", "not printed"}
    for name in ("trn3-nl32x2-pcie160", "trn2-ultraserver"):
        assert parts_table(name).set_index("part").verdict["copper cables"] == "agrees"


@pytest.mark.parametrize("name", SWITCHED)
def test_lanes_of_a_chip_and_ports_of_a_switch(name):
    net = topology(name)
    spec = net.system
    for node, data in net.graph.nodes(data=True):
        lanes = sum(edge["lanes"] for edge in net.graph[node].values())
        if data["kind"] == "switch":
            part = spec.switch if data["medium"] == "backplane" else spec.pcb_switch
            assert not lanes > part.switch_lanes
            assert not net.graph.degree(node) > part.switch_ports
        elif name != "trn3-nl72x2-aws-lanes":
            assert lanes in (144, 160)
    rate = net.injection_bytes_per_s_per_dir
    # 144 active lanes x 8 GB/s (L94), or (4 + 5 + 2) x8 links by AWS's own map
    assert rate == (704 * GB if name == "trn3-nl72x2-aws-lanes" else 1152 * GB)


def test_links_of_the_tori():
    """Printed sums are of both directions: 1,024 / 2 / 4 = 128, 256 / 2 / 2 = 64, 384 / 2 / 4 = 48, 192 / 2 / 2."""
    ultra = topology("trn2-ultraserver")
    rates = {(data["medium"], data["bytes_per_s_per_dir"] / GB) for *_, data in ultra.graph.edges(data=True)}
    assert rates == {("pcb", 128), ("backplane", 128), ("aec", 64)}
    assert topology("trn2.48xlarge").injection_bytes_per_s_per_dir == 512 * GB
    assert topology("trn1.32xlarge").injection_bytes_per_s_per_dir == 4 * 48 * GB
    assert topology("inf2.48xlarge").injection_bytes_per_s_per_dir == 2 * 48 * GB
    lanes = {data["medium"]: data["lanes"] for *_, data in ultra.graph.edges(data=True)}
    assert lanes == {"pcb": 32, "backplane": 32, "aec": 16}  # PCIe Gen5 lanes of 4 GB/s


def test_hops_of_a_4x4_torus():
    # from one chip: 4 at distance 1, 6 at 2, 4 at 3, 1 at 4; times 16 / 2
    assert topology("trn2.48xlarge").hop_histogram() == {1: 32, 2: 48, 3: 32, 4: 8}
    assert topology("trn2.48xlarge").hop_histogram("intermediate") == {0: 32, 1: 48, 2: 32, 3: 8}
    assert topology("trn2-ultraserver").diameter == 6


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("trn2.48xlarge", 8 * 128),  # a 4x4 torus is halved by 8 links
        ("trn2-ultraserver", 32 * 64),  # 16 rings cut twice, in the slow dimension
        ("trn3-nl32x2-pcie160", 32 * 128),  # 32 cross-rack links x16
        ("trn3-nl72x2-pcie160", 72 * 128),
        ("gb200-nvl72", 36 * 900),  # one switch: half the chips' links
        ("mi300x-8", 16 * 64),  # 4 x 4 links of a full mesh
    ],
)
def test_bisection(name, expected):
    assert topology(name).bisection_bytes_per_s_per_dir == pytest.approx(expected * GB)


@pytest.mark.parametrize("name", ["trn2.48xlarge", "trn2-ultraserver", *SWITCHED])
def test_no_balanced_cut_is_smaller(name):
    """The all-to-all flow of both halves fits through every balanced cut, so a tight one proves the minimum."""
    assert topology(name).bisection_is_exact


def test_bisection_of_small_graphs_by_trying_all():
    graph = torus((4, 3), (3.0, 5.0))
    every = [flow.cut_bytes_per_s_per_dir(graph, set(half)) for half in combinations(graph, 6)]
    assert flow.bisection(graph, ("x", "y"))[0] == min(every)


def test_all_to_all_equals_golden_closed_forms():
    rates = {"NL16": ((4, 4), (128, 128)), "homogeneous": ((4, 4, 4), (128, 128, 128))}
    with GOLDEN.open() as stream:
        for row in csv.DictReader(stream):
            key = next((key for key in rates if key in row["topology"]), None)
            if key:
                shape, links = rates[key]
                pair = flow.concurrent_flow(torus(shape, [rate * GB for rate in links])).bytes_per_s_per_pair
            else:
                shape, pair = (144,), topology("trn3-nl72x2-pcie160").all_to_all_bytes_per_s_per_pair()
            alpha_us = 1.0 if row["formula"].startswith("a") else 0.0
            block = float(row["S_bytes"]) / (1 if "S/lambda" in row["formula"] else math.prod(shape))
            assert block / pair * 1e6 == pytest.approx(float(row["time_us"]) - alpha_us, rel=1e-6), row


@pytest.mark.parametrize(
    ("name", "world", "rack"),
    [
        # world: 128 GB/s AEC of each chip carries the pairs of its 32 (72) partners across.
        # rack: a chip's 512 GB/s backplane reaches the 30 (68) chips off its tray; forwarding stays on the board.
        ("trn3-nl32x2-pcie160", 128 / 32, 512 / 30),
        ("trn3-nl32x2-ualink", 128 / 32, 512 / 30),
        ("trn3-nl72x2-pcie160", 128 / 72, 512 / 68),
        ("trn3-nl72x2-ualink", 128 / 72, 512 / 68),
        ("trn3-nl72x2-aws-lanes", 128 / 72, 320 / 68),
        ("trn2.48xlarge", 16, 16),
        ("trn2-ultraserver", 2, 4),  # 8 B / (N k) = 8 * 64 / 256; a rack's 16 Z links of 64 serve 16 x 16 pairs
        ("hgx-h100", 450 / 7, 450 / 7),
        ("mi300x-8", 64, 64),
    ],
)
def test_all_to_all_by_hand(name, world, rack):
    net = topology(name)
    assert net.all_to_all_bytes_per_s_per_pair() == pytest.approx(world * GB)
    assert net.all_to_all_bytes_per_s_per_pair("rack") == pytest.approx(rack * GB)


ROUTED = [name for name in systems() if name != "mi210-4" and 1 < system(name).domain_chips <= 144]


@pytest.mark.parametrize("scope", ["rack", "world"])
@pytest.mark.parametrize("name", ROUTED)
def test_no_routing_passes_the_free_flow(name, scope):
    net = topology(name)
    free, even, whole = (net.all_to_all_bytes_per_s_per_pair(scope, routing) for routing in ("free", "even", "whole"))
    assert 0.97 * free < even <= free * (1 + 1e-9)
    assert 0.8 * free < whole <= free * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "pairs", "links", "others"),
    # x8 links of 64 GB/s of a chip carry the pairs that leave its tray: 30 over 8 are 3.75, one link takes 4;
    # 68 over 8 are 8.5, one takes 9; by AWS's lane map 68 over 5 are 13.6, one takes 14
    [("trn3-nl32x2-pcie160", 30, 8, 31), ("trn3-nl72x2-pcie160", 68, 8, 71), ("trn3-nl72x2-aws-lanes", 68, 5, 71)],
)
def test_whole_paths_by_hand(name, pairs, links, others):
    whole = topology(name).all_to_all_bytes_per_s_per_pair("rack", "whole")
    assert whole * others == pytest.approx(64 * GB / math.ceil(pairs / links) * others)


def chips_with(links):
    graph = nx.Graph()
    for (one, other), rate in links.items():
        graph.add_node(one, kind="chip"), graph.add_node(other, kind="chip")
        graph.add_edge(one, other, bytes_per_s_per_dir=rate, medium="link")
    return graph


def test_an_even_split_takes_no_detour():
    """a-b has one unit of its own, or 2 with the detour over c: a-c then carries a rate of 2 and 1 of the detour, 3."""
    graph = chips_with({("a", "b"): 1.0, ("a", "c"): 3.0, ("c", "b"): 3.0})
    assert flow.even_split(graph) == pytest.approx(1)
    assert flow.concurrent_flow(graph).bytes_per_s_per_pair == pytest.approx(2)


def test_an_even_split_is_hop_by_hop():
    """Three shortest ways, two of which share their ends: each hop of an end takes half, where paths put 2/3 on one."""
    inner = ["s m y n t", "s m z n t", "s x w v t"]
    graph = chips_with({pair: 1.0 for way in inner for pair in pairwise(way.split())})
    for node in "mynzxwv":
        graph.nodes[node]["kind"] = "switch"
    assert flow.even_split(graph) == pytest.approx(1 / (1 / 2))


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (2, 3, 4), (5,)])
def test_an_even_split_on_a_torus_is_the_closed_form_and_the_edge_betweenness_of_networkx(shape):
    rates = [1.0] * len(shape)
    graph = torus(shape, rates)
    assert flow.even_split(graph) == pytest.approx(flow.torus_bytes_per_s_per_pair(shape, rates))
    assert flow.even_split(graph) == pytest.approx(
        1 / max(nx.edge_betweenness_centrality(graph, normalized=False).values())
    )


def test_an_even_split_of_what_is_cut_off_and_of_one_chip():
    apart = chips_with({("a", "b"): 1.0, ("c", "d"): 1.0})
    assert flow.even_split(apart) == 0
    assert math.isnan(flow.even_split(apart.subgraph(["a"])))
    assert flow.whole_paths(apart, flow.Flow(0.0, {"link": 1.0}, 0)) == 0


@pytest.mark.parametrize("routing", ["free", "even", "whole"])
def test_routings_of_machines_that_failed_are_large_or_differ_in_their_rates(routing):
    net, pod = topology("trn2.48xlarge"), topology("tpu-v4-pod")
    alone = net.without(links=[("chip0,0", other) for other in net.graph["chip0,0"]])
    assert alone.all_to_all_bytes_per_s_per_pair(routing=routing) == 0
    worse = net.without(links=[("chip0,0", "chip1,0")]).all_to_all_bytes_per_s_per_pair(routing=routing)
    assert 12 * GB < worse < 14.1 * GB  # of 16: one of eight links across a half is gone
    assert pod.all_to_all_bytes_per_s_per_pair(routing=routing) == pod.all_to_all_bytes_per_s_per_pair()
    slow = replace(system("trn3-nl32x2-pcie160"), lane_bytes_per_s_per_dir=np.array([8, 4]) * GB)
    whole, half = topology(slow).all_to_all_bytes_per_s_per_pair("rack", routing)
    assert whole == pytest.approx(2 * half)


def test_bottleneck_medium_and_oversubscription():
    net = topology("trn3-nl72x2-pcie160")
    assert net.flow().bottleneck == {"cross-rack": 1.0}
    assert net.flow("rack").bottleneck == {"backplane": 1.0}
    assert topology("trn2-ultraserver").flow().bottleneck == {"aec": 1.0}
    assert topology("gb200-nvl72").oversubscription() == pytest.approx(1)
    # 1,152 / (128 / 72 * 143)
    assert net.oversubscription() == pytest.approx(1152 * 72 / 128 / 143)


small_tori = st.lists(st.integers(2, 5), min_size=1, max_size=3).filter(lambda shape: 4 <= math.prod(shape) <= 24)


@settings(max_examples=25)
@given(small_tori, st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_symmetric_lp_full_lp_and_closed_form_agree_on_tori(shape, rates):
    graph = torus(tuple(shape), [float(rate) for rate in rates[: len(shape)]])
    reduced = flow.concurrent_flow(graph).bytes_per_s_per_pair
    assert reduced == pytest.approx(flow.full_concurrent_flow(graph).bytes_per_s_per_pair, rel=1e-6)
    assert reduced == pytest.approx(flow.torus_bytes_per_s_per_pair(tuple(shape), rates[: len(shape)]), rel=1e-6)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(4, 7), st.integers(1, 3))
def test_symmetric_and_full_lp_agree_on_random_graphs(seed, chips, switches):
    import random

    rng, graph = random.Random(seed), nx.Graph()
    graph.add_nodes_from((n, {"kind": "chip"}) for n in range(chips))
    graph.add_nodes_from((chips + n, {"kind": "switch"}) for n in range(switches))
    for one, other in [(n, (n + 1) % chips) for n in range(chips)] + [
        (n, chips + m) for n in range(chips) for m in range(switches) if rng.random() < 0.7
    ]:
        graph.add_edge(one, other, bytes_per_s_per_dir=float(rng.randint(1, 2)), medium="link")
    reduced, full = flow.concurrent_flow(graph), flow.full_concurrent_flow(graph)
    assert reduced.bytes_per_s_per_pair == pytest.approx(full.bytes_per_s_per_pair, rel=1e-6)
    assert reduced.variables <= full.variables


def small_nl72(**fields):
    """Two racks of four trays of the NL72x2, small enough for the whole LP."""
    return replace(system("trn3-nl72x2-pcie320"), compute_trays_per_rack=4.0, domain_chips=32, **fields)


def test_symmetric_and_full_lp_agree_on_a_small_rack_pair_also_when_broken():
    intact = topology(small_nl72())
    broken = intact.without(
        switches=["rack0/plane0/switch1", "rack0/plane0/switch2", "rack0/plane0/switch3"],
        links=[("rack0/tray1/B", "rack1/tray1/B")],
    )
    for net in (intact, broken):
        full = flow.full_concurrent_flow(net.graph).bytes_per_s_per_pair
        assert net.all_to_all_bytes_per_s_per_pair() == pytest.approx(full, rel=1e-6)


def test_spares_take_over():
    """L193, L275, L397: eight of a plane's ten switches are active, so a lane, a switch or a whole tray may fail."""
    net = topology("trn3-nl72x2-pcie160")
    whole, broken = metrics(net), failures(net)
    for name in ("one backplane lane", "one backplane switch", "one switch tray"):
        assert metrics(broken[name]) | {"switches": whole["switches"]} == whole
    left = broken["one cross-rack link"].all_to_all_bytes_per_s_per_pair()
    assert left / whole["all_to_all_bytes_per_s_per_pair"] == pytest.approx(71 / 72)


def test_four_trays_have_no_spare_and_five_do():
    four = topology("trn3-nl32x2-pcie160").without(switch_trays=[(0, 0)])
    five = topology(system("trn3-nl32x2-pcie160").with_switch_trays(5)).without(switch_trays=[(0, 0)])
    assert four.all_to_all_bytes_per_s_per_pair("rack") == pytest.approx(0.75 * 512 / 30 * GB)  # 48 of 64 lanes
    assert five.all_to_all_bytes_per_s_per_pair("rack") == pytest.approx(512 / 30 * GB)


def test_a_port_that_loses_a_lane_trains_down():
    net = topology("trn3-nl32x2-pcie160").without(lanes={("rack0/tray0/A", "rack0/plane0/switch0"): 1})
    assert net.injection_bytes_per_s_per_dir == (1152 - 4 * 8) * GB  # x8 falls to x4
    last = topology("trn3-nl32x2-pcie160").without(lanes={("rack0/tray0/A", "rack0/plane0/switch0"): 7})
    assert last.injection_bytes_per_s_per_dir == (1152 - 7 * 8) * GB  # x1 stays
    with pytest.raises(ValueError, match="no such switch"):
        net.without(switches=["rack9/plane0/switch0"])
    with pytest.raises(ValueError, match="no such tray"):
        net.without(switch_trays=[(0, 9)])


LINK = ("rack0/tray0/A", "rack0/plane0/switch0")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ({"lanes": {LINK: 9}}, "lanes.*=9: allowed are whole numbers from 1 to 8"),
        ({"lanes": {LINK: 0}}, "lanes.*=0"),
        ({"lanes": {LINK: "1"}}, "lanes.*='1'"),
        ({"lanes": {LINK: float("nan")}}, "lanes.*=nan"),
        ({"lanes": {"ab": 1}}, "lanes='ab': .* no such link"),
        ({"lanes": [LINK]}, "lanes=.*a mapping"),
        ({"links": "ab"}, "links='ab': allowed is a list"),
        ({"links": ["ab"]}, "links='ab': .* no such link"),
        ({"links": [("a", "b", "c")]}, "links="),
        ({"links": [(LINK[0], [])]}, "links="),
        ({"links": None}, "links=None"),
        ({"links": 5}, "links=5"),
        ({"switches": "rack0/plane0/switch0"}, "switches='rack0.*a list"),
        ({"switches": [["a"]]}, "switches=.*no such switch"),
        ({"switches": ["rack0/tray0/A"]}, "switches='rack0/tray0/A': .* no such switch"),
        ({"switch_trays": [(0, -1)]}, "switch_trays=-1"),
        ({"switch_trays": [(0,)]}, "switch_trays=.*pairs of a rack and a tray"),
        ({"switch_trays": [0]}, "switch_trays=0"),
        ({"switch_trays": [([], 0)]}, r"switch_trays=\[\]"),
    ],
)
def test_failures_of_what_is_not_there_are_refused(failure, words):
    with pytest.raises(ValueError, match=words):
        topology("trn3-nl32x2-pcie160").without(**failure)


def test_lanes_that_nobody_published_cannot_fail():
    net = topology("hgx-h100")
    with pytest.raises(ValueError, match=r"lanes=.*not published; use links"):
        net.without(lanes={("chip0", "switch"): 1})


def test_chips_that_are_cut_off():
    net = topology("hgx-h100").without(links=[("chip0", "switch")])
    assert net.all_to_all_bytes_per_s_per_pair() == 0
    assert net.oversubscription() == net.diameter == math.inf
    with pytest.raises(ValueError, match="other='chip0': nothing joins it to chip1"):
        net.path("chip1", "chip0")
    dark = topology("hgx-h100").without(switches=["switch"])
    assert (dark.injection_bytes_per_s_per_dir, dark.all_to_all_bytes_per_s_per_pair()) == (0, 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda net: net.path("chip0", "chip99"), "other='chip99': .* no such chip"),
        (lambda net: net.path([], "chip1"), r"one=\[\]"),
        (lambda net: net.flow([]), r"scope=\[\]"),
        (lambda net: net.oversubscription(None), "scope=None"),
        (lambda net: net.hop_histogram({}), r"metric=\{\}"),
        (lambda net: net.all_to_all_bytes_per_s_per_pair("Rack"), "scope='Rack'"),
        (lambda net: net.all_to_all_bytes_per_s_per_pair(routing="ecmp"), "routing='ecmp'"),
        (lambda net: type(net)("hgx-h100", net.graph), "system='hgx-h100': allowed is a System"),
        (lambda net: type(net)(net.system, None), "wiring=None"),
        (lambda net: topology([]), r"system=\[\]"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(topology("hgx-h100"))


@pytest.mark.parametrize(
    ("name", "change", "most"),
    # 2^21 over the links of a chip are the chips squared: one link; half of 161 neighbours; 10 switches of a plane, as
    # many of the tray as it has switches (8) or else planes (2), and the cable
    [
        ("hgx-h100", {"domain_chips": 1449}, "1448 for fabric='switch'"),
        ("mi300x-8", {"domain_chips": 162}, "161 for fabric='mesh'"),  # (2^21 / 80.5) ^ 0.5 = 161.4
        ("tpu-v5p-pod", {"torus_shape": (64, 64, 64), "domain_chips": 64**3}, "16384 for fabric='torus'"),
        (
            "trn3-nl72x2-pcie160",
            {"compute_trays_per_rack": 42.0, "domain_chips": 336},
            "332 for fabric='planes'",
        ),  # (2^21 / 19) ^ 0.5
        (
            "trn3-nl32x2-pcie160",
            {"compute_trays_per_rack": 110.0, "domain_chips": 440},
            "437 for fabric='planes'",
        ),  # (2^21 / 11) ^ 0.5 = 436.6
        ("trn3-nl72x2-pcie160", {"switches_per_plane": 1e9}, "0 for fabric='planes'"),
        ("trn2.3xlarge", {"domain_chips": 2}, "1 for fabric='single'"),
    ],
)
def test_a_fabric_too_large_for_its_graph_is_refused_before_it_is_built(name, change, most):
    with pytest.raises(ValueError, match=f"domain_chips=.*: allowed are up to {most}"):
        topology(replace(system(name), **change))


@pytest.mark.parametrize(
    ("spec", "node", "found"),
    [
        (system("hgx-h100"), "chip3", {"kind": "chip", "rack": 0, "tray": 0, "plane": 0, "position": 3}),
        (system("mi300x-8"), "chip5", {"kind": "chip", "rack": 0, "tray": 0, "plane": 0, "position": 5}),
        (system("trn2.3xlarge"), "chip0", {"kind": "chip", "rack": 0, "tray": 0, "plane": 0, "position": "A"}),
        (
            system("hgx-h100"),
            "switch",
            {"kind": "switch", "rack": 0, "tray": 0, "plane": 0, "position": "", "medium": "switch"},
        ),
        # two chips of the first axis a tray, 3 x 5 trays beside each other; 5 places of the third axis over 2 racks
        (
            replace(system("trn2-ultraserver"), torus_shape=(4, 3, 5), domain_chips=60),
            "chip3,2,1",
            {"kind": "chip", "rack": 0, "tray": 15 + 2 * 5 + 1, "plane": 0, "position": "B", "x": 3, "y": 2, "z": 1},
        ),
        (
            replace(system("trn2-ultraserver"), torus_shape=(4, 3, 5), domain_chips=60),
            "chip1,1,4",
            {"kind": "chip", "rack": 1, "tray": 5 + 4, "plane": 0, "position": "B", "x": 1, "y": 1, "z": 4},
        ),
        (
            replace(system("trn2.48xlarge"), racks=2.0),
            "chip2,3",
            {"kind": "chip", "rack": 0, "tray": 4 + 3, "plane": 0, "position": "A", "x": 2, "y": 3},
        ),
        # ten switches of each of four planes over ten trays: 7 x 4 + 2 = 30 is on the eighth
        (
            system("trn3-nl72x2-pcie160"),
            "rack1/plane2/switch7",
            {"kind": "switch", "rack": 1, "tray": 7, "plane": 2, "position": 7, "medium": "backplane"},
        ),
        # over four trays they are ten each: 4 x 4 + 3 = 19 is on the second, 5 x 4 on the third
        (
            replace(system("trn3-nl72x2-pcie160"), switch_trays_per_rack=4.0),
            "rack0/plane3/switch4",
            {"kind": "switch", "rack": 0, "tray": 1, "plane": 3, "position": 4, "medium": "backplane"},
        ),
        (
            replace(system("trn3-nl72x2-pcie160"), switch_trays_per_rack=4.0),
            "rack0/plane0/switch5",
            {"kind": "switch", "rack": 0, "tray": 2, "plane": 0, "position": 5, "medium": "backplane"},
        ),
        (
            system("trn3-nl72x2-pcie160"),
            "rack1/tray5/switch3",
            {"kind": "switch", "rack": 1, "tray": 5, "plane": 0, "position": 3, "medium": "pcb"},
        ),
        (
            system("trn3-nl72x2-pcie160"),
            "rack1/tray5/C",
            {"kind": "chip", "rack": 1, "tray": 5, "plane": 2, "position": "C"},
        ),
    ],
)
def test_where_a_node_stands_by_hand(spec, node, found):
    data = dict(topology(spec).graph.nodes[node])
    data.pop("part", None)
    assert data == found


def test_a_torus_of_which_no_racks_are_known_is_one():
    small = replace(system("tpu-v5p-pod"), torus_shape=(2, 3, 4), domain_chips=24)
    assert set(topology(small).wiring.racks) == {0}


@pytest.mark.parametrize("shift", [1, 3])
def test_cables_to_the_other_rack_may_end_further_on(shift):
    graph = topology(replace(system("trn3-nl72x2-pcie160"), cross_rack_shift=shift)).graph
    for place, letter in enumerate("ABCD"):
        assert graph.has_edge(f"rack0/tray3/{letter}", f"rack1/tray3/{'ABCDABC'[place + shift]}")


def test_neighbours_of_a_board_share_a_chips_lanes():
    """Three chips of a tray without a switch: each has 64 lanes for two others."""
    three = {"plane_positions": "A|B|C", "chips_per_tray": 3.0, "domain_chips": 96}
    net = topology(replace(system("trn3-nl32x2-pcie160"), **three))
    assert net.graph.edges["rack0/tray0/A", "rack0/tray0/C"]["lanes"] == 32
    assert net.injection_by_medium() == {"backplane": 512 * GB, "pcb": 512 * GB, "cross-rack": 128 * GB}


@pytest.mark.parametrize(
    ("lanes", "left"),
    # of 64 in ports of eight: whole ports stay, and of the one that lost some the next power of two
    [(1, 56 + 4), (8, 56), (9, 48 + 4), (11, 48 + 4), (12, 48 + 4), (14, 48 + 2), (63, 1), (64, 0)],
)
def test_lanes_left_of_a_link_by_hand(lanes, left):
    ends = "rack0/tray0/A", "rack0/tray0/B"
    link = topology("trn3-nl32x2-pcie160").without(lanes={ends: lanes}).graph.edges[ends]
    assert (link["lanes"], link["bytes_per_s_per_dir"]) == (left, left * 8 * GB)


def test_a_torus_link_trains_down_by_its_rate():
    """A link of 32 lanes that loses five: three ports of eight, and two of the three lanes left."""
    ends = "chip0,0", "chip0,1"
    wired = topology("trn2.48xlarge").without(lanes={ends: 5}).graph.edges[ends]
    assert (wired["lanes"], wired["bytes_per_s_per_dir"]) == (26, 26 * 4 * GB)


def test_a_mesh_of_two_is_one_link():
    assert topology(replace(system("mi300x-8"), domain_chips=2)).injection_bytes_per_s_per_dir == 448 * GB


def test_failures_of_a_pod_are_refused():
    with pytest.raises(ValueError, match="failures are answered for up to 256 chips"):
        topology("tpu-v5p-pod").without(links=[("chip0,0,0", "chip1,0,0")])
    broken = topology("tpu-v5e-pod").without(links=[("chip0,0", "chip0,1"), ("chip3,0", "chip4,0")])
    with pytest.raises(ValueError, match=r"flow of 256 chips: .* unknowns; allowed are up to 32768"):
        broken.flow()


def test_answers_depend_on_some_assumptions_only():
    changes = readings("trn3-nl72x2-pcie320").set_index("assumption").changes
    assert changes["pairing-ab-cd"] == "nothing"
    assert re.fullmatch(r"switches x [\d.]+", changes["board-4x64"])
    assert (readings("trn2-ultraserver").changes != "nothing").any()


def test_impossible_fabrics_are_refused():
    with pytest.raises(ValueError, match="carries 288 lanes on 36 ports; scorpio-x-160"):
        topology(replace(system("trn3-nl72x2-pcie160"), plane_positions="A C|B D"))
    with pytest.raises(ValueError, match="uses 48 of 48 wired backplane lanes"):
        topology(system("trn3-nl32x2-pcie160").with_switch_trays(3))
    alone = replace(system("trn3-nl32x2-pcie160"), plane_positions="A", chips_per_tray=1.0, domain_chips=32)
    with pytest.raises(ValueError, match="uses 0 of 0 wired pcb lanes; the chip has 64 active and 0 redundant"):
        topology(alone)
    with pytest.raises(ValueError, match="no scale-up rate"):
        topology("mi210-4")
    with pytest.raises(ValueError, match="metric='hops': allowed are edges"):
        topology("trn2.48xlarge").hop_histogram("hops")
    with pytest.raises(ValueError, match="scope='pair'"):
        topology("trn2.48xlarge").hop_histogram(scope="pair")


@pytest.mark.parametrize(
    ("own", "words"),
    # a rack switch of NL72x2 joins 18 chips by x8
    [
        ({"switch_ports": 18.0, "switch_lanes": 144.0}, ""),
        ({"switch_ports": 17.0}, "carries 144 lanes on 18 ports; scorpio-x-160 has 160 lanes, 17 ports"),
        ({"switch_lanes": 143.0}, "carries 144 lanes on 18 ports; scorpio-x-160 has 143 lanes, 20 ports"),
    ],
)
def test_a_switch_has_as_many_lanes_and_ports_as_are_wired(own, words):
    spec = system("trn3-nl72x2-pcie160")
    narrow = replace(spec, switch=replace(spec.switch, **own))
    if not words:
        assert topology(narrow).switch_counts == {"backplane": 80, "pcb": 288}
        return
    with pytest.raises(ValueError, match=words):
        topology(narrow)


def test_144_chips_with_all_metrics():
    net = topology("trn3-nl72x2-pcie160")
    assert sum(net.hop_histogram().values()) == 144 * 143 / 2
    assert net.bisection_bytes_per_s_per_dir > 0
    assert 0 < net.all_to_all_bytes_per_s_per_pair() < net.all_to_all_bytes_per_s_per_pair("rack")


def test_pods_answer_in_closed_form():
    net = topology("tpu-v5p-pod")
    assert net.diameter == 8 + 10 + 14
    assert net.bisection_bytes_per_s_per_dir == pytest.approx(2 * 16 * 20 * 100 * GB)  # 600 GB/s on six links


def test_racks_alike_are_one_problem_and_others_are_not():
    net = topology("trn2.48xlarge").graph
    renamed = nx.relabel_nodes(net, {node: f"other {node}" for node in net})
    assert flow.arcs(net) == flow.arcs(renamed)
    assert flow.arcs(net) != flow.arcs(topology("trn2-ultraserver").graph)
    assert flow.arcs(net) != net


def test_links_in_ratio_have_their_rate_times_it():
    net = topology("trn2.48xlarge")
    rates = {data["rate"] for *_, data in net.wiring.graph.edges(data=True)}
    (plain,), (twice,) = (net.wiring.scope("world", (ratio,) * (max(rates) + 1)) for ratio in (1.0, 2.0))
    for (*_, one), (*_, other) in zip(plain.edges(data=True), twice.edges(data=True), strict=True):
        assert other["bytes_per_s_per_dir"] == 2 * one["bytes_per_s_per_dir"]


def test_a_chip_alone_has_no_way_in_its_rack():
    assert hops_table("trn1.2xlarge").set_index("part").counted["rack maximum"] == 0


def test_an_axis_of_two_has_one_link_and_an_axis_of_three_two():
    """Rings of 5 and 2 chips: each chip has 2 + 1 neighbours, which share 192 GB/s; of 5 and 3, 2 + 2."""
    assert link_rates(replace(system("trn1.32xlarge"), torus_shape=(5, 2), domain_chips=10)) == [64 * GB, 64 * GB]
    assert link_rates(replace(system("trn1.32xlarge"), torus_shape=(5, 3), domain_chips=15)) == [48 * GB, 48 * GB]


def test_numbers_of_one_chip():
    net = topology("trn2.3xlarge")
    assert (net.diameter, net.mean_hops, net.switch_counts) == (0, 0, {})
    assert metrics(net)["rack_intermediate_hops"] == 0
    assert failures(net) == {}


def test_mean_hops_by_hand():
    """A 4x4 torus: 32 pairs at 1, 48 at 2, 32 at 3 and 8 at 4 make 256 hops of 120 pairs."""
    assert topology("trn2.48xlarge").mean_hops == 256 / 120


def test_a_link_without_lanes_is_none():
    """The neighbour on the same tray is three hops away, up or down the other axis."""
    ends = "chip0,0", "chip1,0"
    net = topology("trn2.48xlarge").without(lanes={ends: 32})
    assert len(net.path(*ends)) - 1 == 3
    assert net.hop_histogram()[1] == 31


def test_bisection_of_an_odd_number_of_chips():
    """A mesh of three: two links of 224 GB/s leave one chip, and two pairs cross. Seven on a switch leave 3 of 450."""
    three, seven = (replace(system(name), domain_chips=n) for name, n in (("mi300x-8", 3), ("hgx-h100", 7)))
    assert topology(three).bisection_bytes_per_s_per_dir == 448 * GB
    assert topology(three).bisection_is_exact
    assert topology(seven).bisection_bytes_per_s_per_dir == 3 * 450 * GB
    assert not topology(seven).bisection_is_exact  # 450 / 6 for 3 x 4 pairs are 900


def test_a_flow_of_rates_that_are_arrays():
    """Rates in one ratio are one flow; others have an answer each, but no bottleneck in common."""
    base = system("trn2-ultraserver")
    one = replace(
        base,
        scaleup_bytes_per_s_per_dir={"instance": np.array([512, 256]) * GB, "ultraserver": np.array([128, 64]) * GB},
    )
    assert topology(one).flow().bytes_per_s_per_pair == pytest.approx([2 * GB, GB])
    assert topology(one).flow().bottleneck == {"aec": 1.0}
    two = replace(
        base, scaleup_bytes_per_s_per_dir={"instance": 512 * GB, "ultraserver": np.array([128, 1024, 64, 128]) * GB}
    )
    # in a rack, 16 chips of a plane, 16 GB/s a pair over 128 GB/s links; over the world at most 4 and 2, 16, 1, 2
    assert topology(two).all_to_all_bytes_per_s_per_pair() == pytest.approx(np.array([2, 4, 1, 2]) * GB)
    assert topology(two).bisection_bytes_per_s_per_dir == pytest.approx(
        np.array([32 * 64, 32 * 128, 32 * 32, 32 * 64]) * GB
    )
    with pytest.raises(ValueError, match=r"trn2-ultraserver: scaleup_bytes_per_s_per_dir=.*: a flow has one ratio"):
        topology(two).flow()


def test_flows_that_need_no_programme():
    """A pod of 16 x 20 x 28 has 2 links of 100 GB/s on its longest axis, mean distance 7; chips that nothing joins."""
    pod = topology("tpu-v5p-pod").flow()
    assert (pod.variables, pod.bottleneck) == (0, {})
    assert pod.bytes_per_s_per_pair == pytest.approx(2 * 100 * GB / (16 * 20 * 28 * 7))
    apart = nx.Graph()
    apart.add_nodes_from("ab", kind="chip")
    nothing, alone = flow.concurrent_flow(apart), flow.concurrent_flow(apart.subgraph("a"))
    assert (nothing.bytes_per_s_per_pair, nothing.bottleneck, nothing.variables) == (0, {}, 0)
    assert math.isnan(alone.bytes_per_s_per_pair)


@pytest.mark.parametrize(
    ("shape", "rates", "expected"),
    # n B / (N d): 1 x 5 / (24 x 1/2), 2 x 7 / (24 x 2/3), 2 x 11 / (24 x 1)
    [
        ((2, 3, 4), (5, 7, 11), 5 / 12),
        ((2, 3, 4), (13, 7, 11), 14 / 16),
        ((2, 3, 4), (13, 17, 11), 22 / 24),
        ((1, 3), (5, 7), 14 / 2),
        ((2,), (5,), 5),
    ],
)
def test_closed_form_of_a_torus_by_hand(shape, rates, expected):
    assert flow.torus_bytes_per_s_per_pair(shape, rates) == pytest.approx(expected)


def test_what_bounds_a_flow_by_hand():
    """Two chips, 1 on a cable of their own and 3 over a switch: a quarter of what bounds is the cable."""
    graph = chips_with({("a", "b"): 1.0, ("a", "s"): 3.0, ("s", "b"): 3.0})
    graph.nodes["s"]["kind"] = "switch"
    graph.edges["a", "b"]["medium"] = "cable"
    found = flow.concurrent_flow(graph)
    assert found.bytes_per_s_per_pair == pytest.approx(4)
    assert found.bottleneck == pytest.approx({"cable": 0.25, "link": 0.75})


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_whole_paths_of_small_graphs_by_hand(scale):
    """A line of three carries two pairs in its links. Of a pair's 2 the link of 3 carries one and a half, whole 1."""
    line = chips_with({("a", "b"): scale, ("b", "c"): scale})
    assert flow.whole_paths(line, flow.concurrent_flow(line)) == pytest.approx(scale / 2)
    detour = chips_with({("a", "b"): scale, ("a", "c"): 3 * scale, ("c", "b"): 3 * scale})
    assert flow.whole_paths(detour, flow.concurrent_flow(detour)) == pytest.approx(1.5 * scale)


def test_a_cut_puts_each_switch_where_it_cuts_less():
    """Chip a: 2 on a cable and 5 to a switch that has 3 and 4 to the others; with b, 1 + 4 are left to c."""
    graph = chips_with({("a", "b"): 2.0, ("a", "s"): 5.0, ("s", "b"): 3.0, ("s", "c"): 4.0, ("b", "c"): 1.0})
    graph.nodes["s"]["kind"] = "switch"
    assert flow.cut_bytes_per_s_per_dir(graph, {"a"}) == 2 + 5
    assert flow.cut_bytes_per_s_per_dir(graph, {"a", "b"}) == 1 + 4
    assert flow.cut_bytes_per_s_per_dir(graph, {"b"}) == 2 + 1 + 3


@pytest.mark.parametrize(
    ("name", "node", "position"),
    [("hgx-h100", "chip3", 3), ("hgx-h100", "switch", ""), ("mi300x-8", "chip5", 5), ("trn2.3xlarge", "chip0", "A")],
)
def test_nodes_of_one_box_are_in_one_place(name, node, position):
    """Rack, tray and plane from 0, of the chips of a switch, of a mesh and of one alone."""
    found = dict(topology(name).graph.nodes[node])
    kind = "switch" if node == "switch" else "chip"
    medium = {"medium": "switch"} if kind == "switch" else {}
    assert found == {"kind": kind, "rack": 0, "tray": 0, "plane": 0, "position": position} | medium


def test_a_chip_alone_is_one():
    with pytest.raises(ValueError, match=r"domain_chips=2: allowed are up to 1 for fabric='single'"):
        topology(replace(system("trn2.3xlarge"), domain_chips=2))


def test_an_even_split_of_two_chips_that_nothing_joins():
    apart = nx.Graph()
    apart.add_nodes_from("ab", kind="chip")
    assert flow.even_split(apart) == 0
    assert math.isnan(flow.even_split(apart.subgraph("a")))


def test_fewest_switches_on_the_way_by_hand():
    """a-b is a cable, b and c are on a switch: c is one switch from b at once, and from a if b sends too."""
    graph = chips_with({("a", "b"): 1.0, ("b", "s"): 1.0, ("s", "c"): 1.0, ("a", "c"): 0.0})
    graph.nodes["s"]["kind"] = "switch"
    found = flow.path_switches(graph.subgraph("abcs"))
    order = [node for node in graph.nodes if node != "s"]
    assert order == ["a", "b", "c"]
    assert found.tolist() == [[[0, 0, math.inf], [0, 0, 1], [math.inf, 1, 0]], [[0, 0, 1], [0, 0, 1], [1, 1, 0]]]
    # a start of 5 at each chip that sends, 7 in the switch
    assert flow.latency_matrix(found, 5.0, 7.0).tolist() == [[0, 5, 17], [5, 0, 12], [17, 12, 0]]


def test_a_source_is_told_from_a_switch_that_stands_as_it_does():
    """Two chips and a switch, all joined alike: 1 goes straight and 1 over the switch."""
    graph = chips_with({("a", "b"): 1.0, ("a", "s"): 1.0, ("s", "b"): 1.0})
    graph.nodes["s"]["kind"] = "switch"
    for found in (flow.concurrent_flow(graph), flow.full_concurrent_flow(graph)):
        assert found.bytes_per_s_per_pair == pytest.approx(2)


def test_shares_of_what_bounds_have_nine_digits():
    graph = chips_with({("a", "b"): 1.0, ("a", "s"): 2.0, ("s", "b"): 2.0})
    graph.nodes["s"]["kind"] = "switch"
    graph.edges["a", "b"]["medium"] = "cable"
    assert flow.concurrent_flow(graph).bottleneck == {"cable": 0.333333333, "link": 0.666666667}


def test_whole_paths_of_a_torus_by_hand():
    """Rings of 6 and 3: 18 x 9 / 6 / 2 = 13.5 pairs cross a link of 48 GB/s of the longer one, 14 of them whole."""
    net = topology(replace(system("trn1.32xlarge"), torus_shape=(6, 3), domain_chips=18))
    found = {how: net.all_to_all_bytes_per_s_per_pair(routing=how) for how in ("free", "even", "whole")}
    assert found == pytest.approx({"free": 48e9 / 13.5, "even": 48e9 / 13.5, "whole": 48e9 / 14})


@pytest.mark.parametrize(("shape", "large"), [((16, 16), False), ((16, 17), True)])
def test_a_torus_of_more_than_256_chips_is_large(shape, large):
    one = replace(system("tpu-v5e-pod"), torus_shape=shape, domain_chips=int(np.prod(shape)))
    assert topology(one).wiring.large is large
