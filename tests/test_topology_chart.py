"""Topologies drawn: every node and link is there, one chip's links stand out, and two runs give the same bytes."""

import json

import pytest

from trnmodel import charts
from trnmodel.chapters import rack
from trnmodel.charts.display import VEGALITE_MIME, mimebundle
from trnmodel.fabric.graph import topology

SYSTEMS = [
    "trn3-nl72x2-pcie160",
    "trn3-nl32x2-ualink",
    "trn2-ultraserver",
    "trn1.32xlarge",
    "inf2.48xlarge",
    "trn1.2xlarge",
]


def drawn(system):
    nodes, links = rack.drawing(system)
    return charts.topology(nodes, links, caption=f"{system} as a graph")


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_node_and_link_of_the_graph_is_drawn(system):
    nodes, links = rack.drawing(system)
    graph = topology(system).graph
    assert set(nodes.node) == set(graph)
    assert {frozenset(pair) for pair in zip(links.one, links.other, strict=True)} == set(map(frozenset, graph.edges))


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_two_nodes_share_a_place(system):
    nodes, _ = rack.drawing(system)
    assert not nodes.duplicated(["x", "y"]).any()


@pytest.mark.parametrize("system", ["trn3-nl72x2-pcie160", "trn1.2xlarge"])
def test_chart_is_the_same_on_every_run(system):
    first, second = (mimebundle(drawn(system).to_dict()) for _ in range(2))
    assert json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert set(first) == {VEGALITE_MIME, "text/plain"}
    assert first[VEGALITE_MIME]["$schema"].endswith("/v5.json")


def test_links_in_words_and_groups():
    """Deep dive L275-L322: ten x8 backplane links of which two are spare, eight x8 to the board's switches, one x16."""
    nodes, links = rack.drawing("trn3-nl72x2-pcie160")
    chip = nodes.set_index("node").links["rack0/tray0/A"]
    assert set(chip.split("; ")) == {"8 backplane x8", "2 backplane x8, spare", "8 pcb x8", "1 cross-rack x16"}
    assert set(links.group) == {*(f"backplane, plane {number}" for number in range(1, 5)), "pcb", "cross-rack"}


def test_one_chip_is_picked_to_begin_with():
    spec = drawn("trn2.48xlarge").to_dict()
    (pick,) = [param for param in spec["params"] if param["name"] == "pick"]
    assert pick["value"] == [{"node": "chip0,0"}]
    assert spec["description"] == "trn2.48xlarge as a graph"
