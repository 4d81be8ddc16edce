"""Collective times against values that others computed, written-out arithmetic, and the bounds that nothing beats."""

import csv
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.fabric.algorithms import ALGORITHMS
from trnmodel.formulas import bounds, exchanges, spares, tiers
from trnmodel.formulas import collectives as c
from trnmodel.units import GB, KIB, US

GOLDEN = list(csv.DictReader((Path(__file__).parents[1] / "golden" / "collectives.csv").read_text().splitlines()))

# Chips per tray and trays (chips per plane) per rack: the golden's own text for NL72x2; for NL32x2 the deep dive has
# trays of two chips (line 205) and 32 chips a rack.
TRN3_TIERS = {"Trn3-NL32x2": (2, 16, 2), "Trn3-NL72x2": (4, 18, 2)}


def switched(kind, algorithm, message_bytes, n_ranks, alpha_s, bytes_per_s_per_dir):
    """Time on one switch, by the public call: as many chips as wanted of one rank each."""
    domain = {"scaleup_domain_chips": 1024, "scaleup_bytes_per_s_per_dir": bytes_per_s_per_dir}
    asked = {"ranks": n_ranks, "algorithm": algorithm, "alpha_s": alpha_s, "launch_s": 0.0, "rate_share": 1.0}
    return tm.collective(kind, message_bytes, replace(tm.chip("h100"), **domain), **asked).time_s


def in_turn(step, kind, m, ranks, links, ways=1):
    """Time along one axis of a torus after the other, by the formula of the public "ring" and "halving_doubling"."""
    n = len(ranks)
    return tiers.hierarchical_s(kind, (step,) * n, m, ranks, (US,) * n, tuple(ways * link for link in links))


def to_all_s(kind, m, ranks, links, ties="split"):
    """What the busiest link carries when every rank sends to all others at once."""
    sent = m * float(np.prod(ranks)) if kind == "all_reduce" else m
    return sent * max(tiers.ring_link_load(k, ties) / link for k, link in zip(ranks, links, strict=True))


def torus_time(row, ranks, links):
    kind, name, m = row["collective"], row["algorithm"], float(row["S_bytes"])
    n = float(np.prod(ranks))
    times = {
        "bandwidth lower bound": lambda: bounds.cut_bound_s(kind, m, n, 1, 2 * sum(links)),
        "single unidirectional": lambda: in_turn("ring", kind, m, (n,), (min(links),)),
        "minimal routing": lambda: to_all_s(kind, m, ranks, links, "one_way"),
        "RHD on": lambda: in_turn("halving_doubling", kind, m, ranks, links),
        "bucket sequential dims, both": lambda: in_turn("ring", kind, m, ranks, links, 2),
        "bucket sequential dims, ONE": lambda: in_turn("ring", kind, m, ranks, links),
        "bucket multi-port": lambda: tiers.multiport_bucket_s(kind, m, ranks, US, links),
        "one-shot": lambda: US + to_all_s(kind, m, ranks, links),
        "alpha + bandwidth": lambda: US + to_all_s(kind, m, ranks, links),
    }
    return next(time for start, time in times.items() if name.startswith(start))()


ON_A_SWITCH = {
    "ring": "ring",
    "recursive doubling": "halving_doubling",
    "recursive doubling (full vector)": "recursive_doubling",
    "double binary tree (asymptotic)": "double_binary_tree",
    "two-shot": "one_shot",
    "pairwise exchange": "pairwise",
    "Bruck": "bruck",
}
ONE_STEP = {"all_reduce": "mesh", "all_to_all": "phased"}  # others: "one_shot"


def switch_time(row, n, rate):
    kind, name = row["collective"], row["algorithm"]
    algorithm = ONE_STEP.get(kind, "one_shot") if name == "one-shot" else ON_A_SWITCH[name]
    return switched(kind, algorithm, float(row["S_bytes"]), n, US, rate)


def tiered_time(row, ranks, rates):
    kind, name, m = row["collective"], row["algorithm"], float(row["S_bytes"])
    n = float(np.prod(ranks))
    if name.startswith("3-level phased"):
        return tiers.phased_all_to_all_s(m, ranks, (US,) * 3, rates)
    if name.startswith("3-level sequential"):
        return tiers.hierarchical_s(kind, ("ring",) * 3, m, ranks, (US,) * 3, rates)
    if name.startswith("world bandwidth bound"):
        return bounds.cut_bound_s(kind, m, n, n / 2, n / 2 * rates[2])
    return bounds.cut_bound_s(kind, m, n, 1, sum(rates))


def golden_time(row):
    topology, params = row["topology"], row["params"]
    if topology.startswith("torus"):
        ranks = tuple(int(k) for k in re.search(r"[\dx]+x\d+", topology)[0].split("x"))
        links = tuple(float(b) * GB for b in re.search(r"link ([\d/]+) GB/s", params)[1].split("/"))
        assert "alpha=1us" in params
        return torus_time(row, ranks, links)
    if topology.startswith("ideal switch"):
        return switch_time(row, int(topology.split("N=")[1]), float(re.match(r"B=(\d+) GB/s", params)[1]) * GB)
    backplane, pcb, cable = (float(b) * GB for b in re.findall(r"(?:backplane|PCB|AEC) (\d+)", params))
    return tiered_time(row, TRN3_TIERS[topology], (pcb, backplane, cable))


@pytest.mark.parametrize(
    "row", GOLDEN, ids=lambda r: f"{r['topology']}-{r['params']}-{r['collective']}-{r['algorithm']}-{r['S_bytes']}"
)
def test_golden(row):
    # Printed to ten significant digits, most of them exact.
    assert float(golden_time(row)) / US == pytest.approx(float(row["time_us"]), rel=1e-9)


M, A, B = 12e9, 1.0, 1e9  # 12 s on one link, 1 s a step


WRITTEN_OUT = [
    # message to one neighbour, and over three hops: 1 + 12; 3 + 12
    (c.p2p_s(M, 1, A, B), 13),
    (c.p2p_s(M, 3, A, B), 15),
    (switched("p2p", "p2p", M, 6, A, B), 13),
    # all-gather, 4 ranks on a ring: 3 steps of 12/4
    (switched("all_gather", "ring", M, 4, A, B), 3 * (1 + 3)),
    # broadcast to 6: 3 rounds of all of it; scatter 3 rounds + ring of 5, twice 5/6 of it; pipelined trees
    (switched("broadcast", "binomial", M, 6, A, B), 3 * (1 + 12)),
    (switched("broadcast", "scatter_all_gather", M, 6, A, B), 3 + 5 + 2 * 10),
    (switched("broadcast", "double_binary_tree", M, 6, A, B), 3 + 12),
    # chain of 5, s = sqrt(3 x 12) = 6 pieces: 3 + 6 steps of 1 + 2
    (switched("broadcast", "chain", M, 5, A, B), 9 * 3),
    # one step on a switch, 4 ranks: three copies of 12/4, or of 12 where all need all of it
    (switched("all_to_all", "phased", M, 4, A, B), 1 + 9),
    (switched("reduce_scatter", "one_shot", M, 4, A, B), 1 + 9),
    (switched("all_reduce", "mesh", M, 4, A, B), 1 + 36),
    (switched("broadcast", "mesh", M, 4, A, B), 1 + 36),
    (c.one_shot_s("all_to_all", M, 4, A, B), 1 + 9),
    (c.one_shot_s("reduce_scatter", M, 4, A, B), 1 + 9),
    # Bruck among 3: blocks 1 and 2 have one bit each, so two steps of one block of 4
    (switched("all_to_all", "bruck", M, 3, A, B), 2 * (1 + 4)),
    # Bruck among 6: bits of 1..5 are 1+1+2+1+2 = 7 blocks of 2 in three steps
    (switched("all_to_all", "bruck", M, 6, A, B), 3 + 14),
    # rack of 4 and a pair of racks: ring reduce-scatter 3(1 + 3), then all-reduce of 3 by halving among 2 over a
    # link of half the rate with 15 s a step 2(15 + 3), then ring all-gather 3(1 + 3)
    (
        tiers.hierarchical_s("all_reduce", ("ring", "halving_doubling"), M, (4, 2), (A, 15.0), (B, B / 2)),
        3 * (1 + 3) + 2 * (15 + 3) + 3 * (1 + 3),
    ),
    (
        tiers.hierarchical_s("all_gather", ("one_shot", "ring"), M, (4, 3), (A, A), (B, B)),
        (1 + 9) + 2 * (1 + 1),
    ),
    # torus of 4 x 2, both ways: 3(1 + 3/2) along the first, then 1 + (12/4)/2/2
    (tiers.hierarchical_s("reduce_scatter", ("ring",) * 2, M, (4, 2), (A, A), (2 * B, 2 * B)), 3 * 2.5 + 1.75),
    # two copies of half: first phase max(3(1 + .75), 1 + 1.5), second max(1 + (6/4)/2/2, 3(1 + (6/2)/4/2))
    (tiers.multiport_bucket_s("all_gather", M, (4, 2), A, (B, B)), 3 * 1.75 + 3 * 1.375),
    # ring of 5: distances 1 1 2 2, so 6/5 of the buffer in hops over two links
    (to_all_s("all_to_all", M, (5,), (B,)), 12 * 6 / 5 / 2),
    # bus bandwidth: 4 ranks all-reduce 12 GB in 9 s: 2 x 3/4 x 12/9
    (bounds.busbw_bytes_per_s("all_reduce", M, 4, 9.0) / B, 2.0),
    (bounds.busbw_factor("broadcast", 4), 1),
    # halves of 5 ranks are 2 and 3: 6 blocks of 12/5 cross one way; a reduced buffer crosses once
    (bounds.cut_bound_s("all_to_all", M, 5, 3, B), 6 * 12 / 5),
    (bounds.cut_bound_s("all_reduce", M, 5, 3, B), 12),
    (bounds.cut_bound_s("all_gather", M, 5, 3, B), 12 / 2),
    # units of 4 among 5 ranks: one rank alone sends 4 blocks of 12/5, as many as come back
    (bounds.cut_bound_s("all_to_all", M, 5, 4, B), 4 * 12 / 5),
    (bounds.cut_bound_s("broadcast", M, 5, 5, B), 0),
]


@pytest.mark.parametrize(("actual", "expected"), WRITTEN_OUT, ids=range(len(WRITTEN_OUT)))
def test_written_out_arithmetic(actual, expected):
    assert float(actual) == pytest.approx(expected, rel=1e-12)


def test_slow_dimension_goes_last():
    fast_first = in_turn("ring", "all_reduce", M, (4, 4, 4), (B, B, B / 2), 2)
    assert fast_first < in_turn("ring", "all_reduce", M, (4, 4, 4), (B / 2, B, B), 2)


def test_careless_ties_cost_half_more_on_rings_of_four():
    assert tiers.ring_link_load(4, ties="one_way") == 1.5 * tiers.ring_link_load(4)
    assert tiers.ring_link_load(5, ties="one_way") == tiers.ring_link_load(5)


def test_torus_capacity_is_its_bisection():
    """For even rings the channel load equals the cut: n m/4 over 2(n/k) links of the slowest dimension."""
    ranks, links = (4, 4, 4), (2 * B, 2 * B, B)
    assert to_all_s("all_to_all", M, ranks, links) == pytest.approx(
        bounds.cut_bound_s("all_to_all", M, 64, 32, 2 * 16 * B)
    )


SWITCH = [(kind, name) for kind, table in ALGORITHMS.items() for name in table]
NEVER = {"multiport_bucket", "tiers_at_once", "direct"}  # of a torus, of tiers, of a graph
POWERS = {"halving_doubling", "recursive_doubling"}

sizes = st.integers(0, 2**34)
counts = st.integers(1, 300)
alphas = st.just(0.0) | st.floats(1e-30, 1e-4)
rates = st.floats(1e8, 1e13)


@given(sizes, counts, alphas, rates)
@settings(max_examples=40)
def test_no_switch_algorithm_beats_its_bounds(m, n, alpha, b):
    for kind, name in SWITCH:
        t = switched(kind, name, m, n, alpha, b)
        if np.isnan(t):
            assert name in NEVER or (name in POWERS and n & (n - 1)), (kind, name)
            continue
        assert t >= bounds.cut_bound_s(kind, m, n, 1, b) * (1 - 1e-12), (kind, name)
        assert t >= alpha * (n > 1) * (1 - 1e-12), (kind, name)
        if kind not in ("broadcast", "p2p"):  # a full switch: half the ranks send at once
            half = np.ceil(n / 2)
            assert t >= bounds.cut_bound_s(kind, m, n, half, half * b) * (1 - 1e-12), (kind, name)


dims = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@given(sizes, dims, st.tuples(rates, rates, rates))
@settings(max_examples=60)
def test_no_torus_algorithm_beats_its_bounds(m, ranks, links):
    links, n = links[: len(ranks)], int(np.prod(ranks))
    injection = sum(2 * b for k, b in zip(ranks, links, strict=True) if k > 1) or 1.0
    for kind in tiers.PASSES:
        bound = bounds.cut_bound_s(kind, m, n, 1, injection) * (1 - 1e-12)
        assert in_turn("ring", kind, m, ranks, links, 2) >= bound
        assert tiers.multiport_bucket_s(kind, m, ranks, 0.0, links) >= bound
        assert not in_turn("halving_doubling", kind, m, ranks, links) < bound


RUN = [(kind, name) for kind, name in SWITCH if name not in NEVER]


@pytest.mark.parametrize(("kind", "name"), RUN)
def test_limits_shapes_and_order(kind, name):
    assert switched(kind, name, 1e6, 1, 1e-6, 1e9) == 0
    m = np.array([[0.0], [1e3], [1e6], [1e9]])
    n = np.array([1, 2, 4, 64])
    t = switched(kind, name, m, n, 1e-6, 1e9)
    assert t.shape == (4, 4)
    assert np.all(np.diff(t[:, 1:], axis=0) > 0)  # more bytes, more time
    singles = [[float(switched(kind, name, x, k, 1e-6, 1e9)) for k in n.tolist()] for x in m.ravel().tolist()]
    np.testing.assert_allclose(t, singles, rtol=1e-12)


def test_torus_limits_shapes_and_order():
    m = np.array([0.0, 1e3, 1e6, 1e9])
    k = np.array([[1], [2], [4]])
    for call in (
        partial(in_turn, "ring", "all_reduce"),
        partial(in_turn, "halving_doubling", "all_reduce"),
        lambda m, ranks, links: tiers.multiport_bucket_s("all_reduce", m, ranks, 1e-6, links),
    ):
        t = call(m, (k, 4), (1e9, 2e9))
        assert t.shape == (3, 4)
        assert np.all(np.diff(t, axis=1) > 0)
        singles = [[float(call(x, (j, 4), (1e9, 2e9))) for x in m] for j in (1, 2, 4)]
        np.testing.assert_allclose(t, singles, rtol=1e-15)
        assert call(1e6, (1, 1), (1e9, 1e9)) == 0
    assert tiers.phased_all_to_all_s(1e6, (1, 1), (1e-6, 1e-6), (1e9, 1e9)) == 0
    assert tiers.hierarchical_s("all_reduce", ("one_shot", "ring"), 1e6, (1, 1), (1e-6,) * 2, (1e9,) * 2) == 0


def test_counts_that_an_algorithm_cannot_run_on_are_nan():
    t = switched("all_gather", "halving_doubling", 1e6, [4, 144], 1e-6, 1e9)
    assert np.isfinite(t[0])
    assert np.isnan(t[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: c.one_shot_s("gather", 1e6, 4, 1e-6, 1e9), "collective='gather'.*all_gather"),
        (lambda: c.one_shot_s("all_reduce", -1, 4, 1e-6, 1e9), "message_bytes=-1: allowed are numbers from 0"),
        (lambda: c.one_shot_s("all_reduce", "big", 4, 1e-6, 1e9), "message_bytes='big'"),
        (lambda: c.one_shot_s("all_reduce", 1e6, 2.5, 1e-6, 1e9), "n_ranks=2.5.*whole"),
        (lambda: c.one_shot_s("all_reduce", 1e6, [4, 0], 1e-6, 1e9), "n_ranks=.*whole numbers from 1"),
        (lambda: c.one_shot_s("all_reduce", 1e6, 4, 1e-6, 0.0), "bytes_per_s_per_dir=0.0: allowed are numbers from"),
        (
            lambda: tiers.phased_all_to_all_s(1e6, (4, 4), (1e-6,) * 2, (1e9,)),
            "bytes_per_s_per_dir=.*one entry a tier",
        ),
        (lambda: tiers.ring_link_load(4, ties="up"), "ties='up'"),
        (lambda: bounds.cut_bound_s("all_reduce", 1e6, 4, 0, 1e9), "ranks_inside=0"),
    ],
)
def test_wrong_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_rate_gives_unknown_time():
    assert np.isnan(c.one_shot_s("all_reduce", 1e6, 4, 1e-6, np.nan))


def test_a_million_times_in_one_call():
    m = np.geomspace(KIB, GB, 1000)[:, None]
    n = np.arange(1, 1001)
    links = (np.linspace(1, 2, 1000) * GB, GB, GB)
    assert tiers.hierarchical_s("all_reduce", ("ring",), m, (n,), (US,), (GB,)).size == 1_000_000
    assert tiers.multiport_bucket_s("all_reduce", m, (4, 4, 4), US, links).size == 1_000_000


def test_rotated_copies_on_unlike_axes_by_hand():
    """Copies of 1 on axes of 2, 3 and 4: 3/4 is the most of the first phase, then 1/2 x 2/3, then 1/6 x 3/4."""
    assert tiers.multiport_bucket_s("all_gather", 3, (2, 3, 4), 0.0, (0.5,) * 3) == pytest.approx(3 / 4 + 1 / 3 + 1 / 8)


@pytest.mark.parametrize(("n", "bits"), [(1, 0), (2, 1), (3, 2), (6, 7), (7, 9), (13, 22)])
def test_blocks_that_bruck_forwards_are_the_bits_of_all_below(n, bits):
    assert sum(number.bit_count() for number in range(n)) == bits
    assert c.bruck_all_to_all_s(n, n, 0.0, 1.0) == pytest.approx(bits)


def test_a_broadcast_sends_the_buffer_once_and_to_nobody_nothing():
    assert bounds.busbw_factor("broadcast", [1, 2, 3]).tolist() == [0, 1, 1]


@pytest.mark.parametrize(("inside", "share"), [(1, 6 / 7), (3, 12 / 7), (4, 12 / 7), (6, 6 / 7), (7, 0), (9, 0)])
def test_bytes_of_an_all_to_all_over_a_cut(inside, share):
    """Of 7 ranks those inside send a seventh of their buffers to each of the others."""
    assert bounds.cut_bound_s("all_to_all", 1, 7, inside, 1.0) == pytest.approx(share)


def test_two_chips_of_a_graph_by_hand():
    """1 rank sends 10 B at 4 B/s to the other; two steps of half a second."""
    assert exchanges.in_graph_mesh_s(10, 2, 1, 0.5, 4.0, 1.0) == pytest.approx(10 / 4 + 2 * 0.5)
    assert exchanges.in_graph_ring_s(10, 2, 1, 0.5, 4.0, 1.0) == pytest.approx(2 * 10 / 2 / 4 + 2 * 0.5)


@pytest.mark.parametrize(
    ("name", "formula", "given"),
    [
        ("n_ranks", bounds.busbw_factor, ("all_reduce", 2.5)),
        ("n_ranks", bounds.cut_bound_s, ("all_reduce", 1, 2.5, 1, 1)),
        ("ranks_inside", bounds.cut_bound_s, ("all_reduce", 1, 4, 2.5, 1)),
        ("ranks", tiers.phased_all_to_all_s, (1, (2.5,), (0.0,), (1.0,))),
        ("parts", spares.more_out, (2.5, 1, 0.1)),
        ("spares", spares.more_out, (3, 2.5, 0.1)),
        ("parts", spares.unspared_per_s, (2.5, 1, 0.1, 1)),
        ("spares", spares.unspared_per_s, (3, 2.5, 0.1, 1)),
        ("spares", spares.ready_share, (1, 2.5)),
    ],
)
def test_what_is_counted_is_whole(name, formula, given):
    with pytest.raises(ValueError, match=rf"{name}=2\.5: allowed are whole"):
        formula(*given)
