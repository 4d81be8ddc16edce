"""Exchanges as drawn: the algorithms sum, and counts follow from arithmetic on the ranks."""

import pytest
from looks import boxes, faults, labels, parsed

import trnmodel as tm
from trnbook.drawings import exchanges
from trnmodel.fabric.graph import topology

ALL = {
    **{f"ring {n}": lambda n=n: exchanges.ring_all_reduce(n) for n in (2, 4, 8)},
    **{f"tree {n}": lambda n=n: exchanges.tree_all_reduce(n) for n in (2, 6, 8)},
    "torus and switches": exchanges.all_to_all,
    "larger torus": lambda: exchanges.all_to_all("trn2-ultraserver", "trn3-nl72x2-pcie160"),
    "older torus": lambda: exchanges.all_to_all("trn1.32xlarge", "trn3-nl72x2-ualink"),
    "experts": lambda: exchanges.mapping("deepseek-v3", "trn3-nl72x2-pcie160", tp=4, ep=36, cp=2),
    "dense": lambda: exchanges.mapping("llama-3.3-70b", "trn2.48xlarge", tp=16, cp=2),
    "planes": lambda: exchanges.mapping("llama-3.3-70b", "trn2-ultraserver", tp=64, pp=2),
    "GPUs": lambda: exchanges.mapping("llama-3.3-70b", "hgx-h100", tp=4),
}


def frame_of(drawing, name):
    return parsed(drawing.frames[name])


@pytest.mark.parametrize("name", ALL)
def test_a_drawing_is_well_formed_short_and_within_its_canvas(name):
    assert faults(ALL[name]()) == []


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_a_ring_sums_in_the_fewest_bytes(n):
    steps = exchanges.ring_steps(n)
    assert len(steps) == 2 * (n - 1)  # 6 for a ring of 4
    for rank in range(n):
        sent = sum(send.source == rank for step in steps for send in step)
        assert sent / n == pytest.approx(2 * (n - 1) / n)  # chunks of 1/n of the buffer
    *_, scattered = exchanges.after(steps[: n - 1], n, n)
    for rank, chunks in enumerate(scattered):
        assert chunks[(rank + 1) % n] == frozenset(range(n))  # a rank has summed one chunk
    *_, last = exchanges.after(steps, n, n)
    assert all(chunk == frozenset(range(n)) for chunks in last for chunk in chunks)


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8])
def test_a_tree_sums_in_the_fewest_steps(n):
    steps = exchanges.tree_steps(n)
    depth = (n - 1).bit_length()  # log2 of n, rounded up
    assert len(steps) == 2 * depth
    assert sum(map(len, steps)) == 2 * (n - 1)  # each other rank sends once, and receives once
    *_, up = exchanges.after(steps[:depth], n, 1)
    assert up[0] == [frozenset(range(n))]
    *_, last = exchanges.after(steps, n, 1)
    assert last == [[frozenset(range(n))]] * n


def test_the_ring_draws_each_step_and_the_result():
    drawing = exchanges.ring_all_reduce(4)
    assert list(drawing.frames) == [*(f"Step {n}" for n in range(1, 7)), "Result"]
    first, last = frame_of(drawing, "Step 1"), frame_of(drawing, "Result")
    mine, summed = (sum(len(boxes(marks, f"box-{accent}")) for accent in "bcde") for marks in (first, last))
    assert mine == 4 * 4  # each rank has its own part of 4 chunks
    assert summed == 4 * 4 * 4  # of all ranks
    assert len(first.findall("polygon")) == 4  # a message per rank
    assert "2×(4−1)/4 = 1.5" in " ".join(labels(last))


def test_the_tree_draws_each_step_and_the_result():
    drawing = exchanges.tree_all_reduce(8)
    assert list(drawing.frames) == ["Up 1", "Up 2", "Up 3", "Down 1", "Down 2", "Down 3", "Result"]
    assert [len(frame_of(drawing, name).findall("polygon")) for name in drawing.frames] == [4, 2, 1, 1, 2, 4, 0]
    assert len(boxes(frame_of(drawing, "Up 1"), "box-b")) == 8
    assert len(boxes(frame_of(drawing, "Result"), "box-b")) == 8 * 8


def test_ranks_that_cannot_be_drawn_are_refused():
    for draw in (exchanges.ring_all_reduce, exchanges.tree_all_reduce):
        for ranks in (1, 9):
            with pytest.raises(ValueError, match="ranks"):
                draw(ranks)


def test_messages_on_links_follow_from_hops_and_links():
    net = topology("trn2.48xlarge")
    hops = sum(distance * pairs for distance, pairs in net.hop_histogram().items())
    assert hops == 32 + 2 * 48 + 3 * 32 + 4 * 8
    load, rate = exchanges.busiest_link(net, net.chips, net.chips)
    assert load == 2 * hops / (2 * len(net.graph.edges)) == 8  # both directions; all links of a torus are alike
    assert net.all_to_all_bytes_per_s_per_pair() == pytest.approx(rate / load)


def test_an_all_to_all_counts_chips_by_distance_and_messages():
    drawing = exchanges.all_to_all("trn2.48xlarge", "trn3-nl32x2-pcie160")
    reached = [labels(frame_of(drawing, name))[0] for name in list(drawing.frames)[:-1]]
    assert [int(text.split()[0]) for text in reached] == [4, 6, 4, 1]  # all 15 others
    torus, switches = labels(frame_of(drawing, "All messages"))
    assert torus.startswith("240 messages: 8 on a link")  # 16 x 15 messages
    assert switches.startswith("240 messages: 1.9 on a link")  # 15 messages of a chip over 8 links: 1.875
    assert drawing.caption == "A torus puts 8 messages on a link, switches 1.9"


def test_an_all_to_all_leaves_out_spare_switches():
    drawing = exchanges.all_to_all("trn2-ultraserver", "trn3-nl72x2-pcie160")
    assert "18 chips on 8 switches" in drawing.alt  # 64 of 80 lanes are active, 8 per switch
    assert len(drawing.frames) == 6 + 1  # two hops on each axis, and all messages


def test_an_all_to_all_needs_a_torus_and_planes():
    with pytest.raises(ValueError, match="tori"):
        exchanges.all_to_all("hgx-h100")
    with pytest.raises(ValueError, match="planes"):
        exchanges.all_to_all("trn2.48xlarge", "hgx-h100")


@pytest.mark.parametrize("name", ["tp", "cp", "ep", "pp", "dp"])
def test_groups_part_all_ranks_with_the_stride_of_the_mapping(name):
    m = tm.Mapping(tp=4, cp=2, ep=3, pp=2, dp=2)
    parts = exchanges.groups(m, name)
    assert sorted(rank for part in parts for rank in part) == list(range(4 * 2 * 3 * 2 * 2))
    degree, stride = int(getattr(m, name)), int(m.extent(name)[0])
    assert all(part == list(range(part[0], part[0] + degree * stride, stride)) for part in parts)


def test_a_mapping_shows_groups_of_the_running_case():
    drawing = exchanges.mapping("deepseek-v3", "trn3-nl72x2-pcie160", tp=4, ep=36, cp=2)
    ranks = 144 * 8 // 2  # chips of 8 cores, two to a rank
    assert list(drawing.frames) == ["TP 4", "CP 2", "EP 36", "DP 2"]
    assert labels(frame_of(drawing, "TP 4"))[0] == f"{ranks // 4} groups of 4 ranks, each on 1 chip"
    said = labels(frame_of(drawing, "EP 36"))
    assert said[0] == f"{ranks // 36} groups of 36 ranks, each on 36 chips"
    assert said[1].endswith("1/4 of each of at most 8 of 256 experts")  # 256/36 = 7.1
    assert len(boxes(parsed(drawing.marks), "box")) == ranks
    assert len(boxes(frame_of(drawing, "EP 36"), "box-a")) == 36


def test_a_mapping_follows_its_placement():
    first = exchanges.mapping("deepseek-v3", "trn2.48xlarge", tp=4, ep=16)
    other = exchanges.mapping("deepseek-v3", "trn2.48xlarge", tp=4, ep=16, placement=("ep", "tp", "cp", "pp", "dp"))
    assert list(first.frames) == ["TP 4", "EP 16"]
    assert list(other.frames) == ["EP 16", "TP 4"]
    assert labels(frame_of(first, "TP 4"))[0].endswith("each on 1 chip")
    assert labels(frame_of(other, "TP 4"))[0].endswith("each on 4 chips")


def test_a_dense_model_computes_heads_on_its_ranks():
    said = labels(frame_of(exchanges.mapping("llama-3.3-70b", "trn2.48xlarge", tp=16, cp=2), "TP 16"))
    assert said[1] == "Each rank of a group computes 4 of 64 attention heads"


def test_more_ranks_than_a_system_has_are_refused():
    with pytest.raises(ValueError, match="128 ranks"):
        exchanges.mapping("llama-3.3-70b", "trn2.48xlarge", tp=128)
