"""Topologies drawn: every node and link is there, one chip's links stand out, and two runs give the same bytes."""

import json

import pytest

from trnmodel import charts
from trnmodel.chapters import rack
from trnmodel.charts.display import VEGALITE_MIME, mimebundle
from trnmodel.fabric import drawing
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


def test_labels_and_the_paths_of_the_text_stand_on_the_drawing():
    """Deep dive L335-L339: path A passes one switch of NL72x2, B three nodes, C four."""
    system = "trn3-nl72x2-pcie160"
    nodes, links = rack.drawing(system)
    words, paths = drawing.labels(system), drawing.paths_drawn(system)
    assert words.text.value_counts()["plane 4"] == 2
    assert words.text.str.startswith("tray ").sum() == 18
    assert (words[words.text.str.startswith("Rack ")].y > nodes.y.max()).all()  # above all that is drawn
    assert paths.groupby("path").size().tolist() == [1 + 1, 3 + 1, 4 + 1]
    ends = {frozenset([row[:2], row[2:]]) for row in links[["x", "y", "x2", "y2"]].itertuples(index=False, name=None)}
    walked = paths[["x", "y", "x2", "y2"]].itertuples(index=False, name=None)
    assert all(frozenset([row[:2], row[2:]]) in ends for row in walked)
    spec = charts.topology(nodes, links, labels=words, paths=paths, caption="A rack").to_dict()
    (choice,) = [param for param in spec["params"] if param["name"] == "path"]
    assert choice["bind"]["options"] == paths.path.unique().tolist()
    assert drawing.labels("trn2.48xlarge").empty
    assert drawing.paths_drawn("trn2.48xlarge").empty
