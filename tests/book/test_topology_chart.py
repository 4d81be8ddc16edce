"""Topologies drawn: every node and link is there, one chip's links stand out, and two runs give the same bytes."""

import json
from dataclasses import replace

import pytest

from trnbook import charts
from trnbook.charts.display import VEGALITE_MIME, mimebundle
from trnbook.shared import rack_drawing as drawing
from trnmodel.catalog.systems import system as find_system
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
    nodes, links = drawing.drawing(system)
    return charts.topology(nodes, links, caption=f"{system} as a graph")


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_node_and_link_of_the_graph_is_drawn(system):
    nodes, links = drawing.drawing(system)
    graph = topology(system).graph
    assert set(nodes.node) == set(graph)
    assert {frozenset(pair) for pair in zip(links.one, links.other, strict=True)} == set(map(frozenset, graph.edges))


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_two_nodes_share_a_place(system):
    nodes, _ = drawing.drawing(system)
    assert not nodes.duplicated(["x", "y"]).any()


@pytest.mark.parametrize("system", ["trn3-nl72x2-pcie160", "trn1.2xlarge"])
def test_chart_is_the_same_on_every_run(system):
    first, second = (mimebundle(drawn(system).to_dict()) for _ in range(2))
    assert json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert set(first) == {VEGALITE_MIME, "text/plain"}
    assert first[VEGALITE_MIME]["$schema"].endswith("/v5.json")


def test_links_in_words_and_groups():
    """Deep dive L275-L322: ten x8 backplane links of which two are spare, eight x8 to the board's switches, one x16."""
    nodes, links = drawing.drawing("trn3-nl72x2-pcie160")
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
    nodes, links = drawing.drawing(system)
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


LONG = replace(find_system("trn2-ultraserver"), torus_shape=(2, 6, 5), domain_chips=60)
# half of two racks: 8 to the chips, 1.2 a chip, 0.3 a board switch, 2 to the middle
NL72, NL32 = 8 + 4 * 1.2 + 8 * 0.3 + 2, 8 + 2 * 1.2 + 2


@pytest.mark.parametrize(
    ("system", "node", "x", "y"),
    [
        ("trn3-nl72x2-pcie160", "rack0/tray3/B", 8 + 1.2, 3 + 0.7 * (1.5 / 4 - 0.5)),  # the second of four, in a slant
        ("trn3-nl72x2-pcie160", "rack1/tray4/D", 2 * NL72 - 8 - 3 * 1.2, 4 + 0.7 * (3.5 / 4 - 0.5)),
        ("trn3-nl72x2-pcie160", "rack0/plane1/switch6", 0, 17 * (11 + 7) / 44),  # four planes of ten and a gap, 17 rows
        ("trn3-nl72x2-pcie160", "rack1/plane3/switch2", 2 * NL72, 17 * (33 + 3) / 44),
        ("trn3-nl72x2-pcie160", "rack0/tray2/switch6", 8 + 4 * 1.2 + 6 * 0.3, 2),
        ("trn3-nl72x2-pcie160", "rack1/tray2/switch5", 2 * NL72 - (8 + 4 * 1.2 + 5 * 0.3), 2),
        ("trn3-nl32x2-pcie160", "rack1/tray7/B", 2 * NL32 - 8 - 1.2, 7 + 0.7 * (1.5 / 2 - 0.5)),
        ("trn3-nl32x2-pcie160", "rack0/plane1/switch2", 0, 15 * (9 + 3) / 18),
        # places on the other axis, modulo 4, nudge by 0, 0.3, 0.15, 0.45; those on the third axis by a third of it
        ("trn1.32xlarge", "chip0,0", 0, 0),
        ("trn1.32xlarge", "chip1,2", 1 + 0.15, 2 + 0.3),
        ("trn1.32xlarge", "chip3,1", 3 + 0.3, 1 + 0.45),
        ("trn2-ultraserver", "chip2,3,3", 3 * 5.5 + 2 + 0.45, 3 + 0.15 + 0.45 / 3),
        (LONG, "chip1,5,4", 4 * 3.5 + 1 + 0.3, 5 + 0.3),
        ("tpu-v5e-pod", "chip5,6", 5 + 0.15, 6 + 0.3),
        ("inf2.48xlarge", "chip1", 1 / 2, 3**0.5 / 2),  # a twelfth of a circle, from its top
        ("inf2.48xlarge", "chip9", -1, 0),
        ("hgx-h100", "chip3", 0.5**0.5, -(0.5**0.5)),
        ("hgx-h100", "switch", 0, 0),
    ],
)
def test_places_by_hand(system, node, x, y):
    nodes, links = drawing.drawing(system)
    places = nodes.set_index("node")[["x", "y"]]
    assert places.loc[node].tolist() == pytest.approx([x, y], abs=0.00051)
    assert links[["x", "y"]].to_numpy().tolist() == places.loc[links.one].to_numpy().tolist()
    assert links[["x2", "y2"]].to_numpy().tolist() == places.loc[links.other].to_numpy().tolist()


def test_labels_by_hand():
    """Racks at 0.4 of the way to the middle, trays between them, planes outside, read from below and from above."""
    words = drawing.labels("trn3-nl72x2-pcie160")
    assert words.text.tolist() == [
        "Rack 1",
        "Rack 2",
        *(f"tray {n}" for n in range(1, 19)),
        *(2 * [f"plane {n}" for n in range(1, 5)]),
    ]
    for row, found in [
        (0, (0.4 * NL72, 18.3, 0)),
        (1, (2 * NL72 - 0.4 * NL72, 18.3, 0)),
        (8, (NL72, 6.5, 0)),
        (22, (-1.2, 17 * 2.55 / 4, 270)),
        (26, (2 * NL72 + 1.2, 17 * 2.55 / 4, 90)),
    ]:
        assert tuple(words.loc[row, ["x", "y", "angle"]]) == pytest.approx(found)


@pytest.mark.parametrize(
    ("system", "node", "words"),
    [
        ("trn1.2xlarge", "chip0", "none"),
        ("hgx-h100", "switch", "8 link"),
        ("trn2-ultraserver", "chip0,0,0", "1 pcb x32; 3 backplane x32; 2 aec x16"),
        ("trn3-nl72x2-pcie160", "rack0/plane0/switch9", "18 backplane x8, spare"),
    ],
)
def test_links_of_a_node_in_words(system, node, words):
    nodes, links = drawing.drawing(system)
    assert nodes.set_index("node").links[node] == words
    assert links.group.is_monotonic_increasing
    assert set(drawing.drawing("trn2-ultraserver")[1].group) == {"pcb", "backplane", "aec"}


def test_paths_in_words():
    """Deep dive L335-L339: path A passes one switch of NL72x2, B two and a chip, C two and two chips."""
    told = drawing.paths_drawn("trn3-nl72x2-pcie160").path.unique().tolist()
    assert told == ["A: over 1 switch", "B: over 3 switches and chips", "C: over 4 switches and chips"]
