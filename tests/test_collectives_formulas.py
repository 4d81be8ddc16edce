"""Collective times against values that others computed, written-out arithmetic, and the bounds that nothing beats."""

import csv
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnmodel.formulas import bounds, tiers
from trnmodel.formulas import collectives as c
from trnmodel.units import GB, KIB, US

GOLDEN = list(csv.DictReader((Path(__file__).parent / "golden" / "collectives.csv").read_text().splitlines()))

# Chips per tray and trays (chips per plane) per rack: the golden's own text for NL72x2; for NL32x2 the deep dive has
# trays of two chips (line 205) and 32 chips a rack.
TRN3_TIERS = {"Trn3-NL32x2": (2, 16, 2), "Trn3-NL72x2": (4, 18, 2)}


def torus_time(row, ranks, links):
    kind, name, m = row["collective"], row["algorithm"], float(row["S_bytes"])
    n = float(np.prod(ranks))
    if name.startswith("bandwidth lower bound"):
        return bounds.node_cut_bound_s(kind, m, n, 2 * sum(links))
    if name.startswith("single unidirectional"):
        return c.ring_s(kind, m, n, US, min(links))
    if name.startswith("minimal routing"):
        return tiers.torus_one_shot_s(kind, m, ranks, 0, links, ties="one_way")
    calls = {
        "RHD on": tiers.torus_halving_doubling_s,
        "bucket sequential dims, both": partial(tiers.bucket_s, directions=2),
        "bucket sequential dims, ONE": partial(tiers.bucket_s, directions=1),
        "bucket multi-port": tiers.multiport_bucket_s,
        "one-shot": tiers.torus_one_shot_s,
        "alpha + bandwidth": tiers.torus_one_shot_s,
    }
    return next(call for start, call in calls.items() if name.startswith(start))(kind, m, ranks, US, links)


def switch_time(row, n, rate):
    kind, m = row["collective"], float(row["S_bytes"])
    calls = {
        "ring": partial(c.ring_s, kind),
        "recursive doubling": partial(c.halving_doubling_s, kind),
        "recursive doubling (full vector)": c.recursive_doubling_all_reduce_s,
        "double binary tree (asymptotic)": partial(c.double_binary_tree_s, kind),
        "one-shot": partial(c.one_shot_s, kind),
        "two-shot": c.two_shot_all_reduce_s,
        "pairwise exchange": c.pairwise_all_to_all_s,
        "Bruck": c.bruck_all_to_all_s,
    }
    return calls[row["algorithm"]](m, n, US, rate)


def tiered_time(row, ranks, rates):
    kind, name, m = row["collective"], row["algorithm"], float(row["S_bytes"])
    n = float(np.prod(ranks))
    if name.startswith("3-level phased"):
        return tiers.phased_all_to_all_s(m, ranks, (US,) * 3, rates)
    if name.startswith("3-level sequential"):
        return tiers.hierarchical_s(kind, ("ring",) * 3, m, ranks, (US,) * 3, rates)
    if name.startswith("world bandwidth bound"):
        return bounds.bisection_bound_s(kind, m, n, n / 2 * rates[2])
    return bounds.node_cut_bound_s(kind, m, n, sum(rates))


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
    # all-gather, 4 ranks on a ring: 3 steps of 12/4; two ways round: 3 steps of 12/8
    (c.ring_s("all_gather", M, 4, A, B), 3 * (1 + 3)),
    (c.bidirectional_ring_s("all_gather", M, 4, A, B), 3 * (1 + 1.5)),
    (c.bidirectional_ring_s("all_reduce", M, 4, A, B), 2 * 3 * (1 + 1.5)),
    # pairs on a chip, 6 ranks: 2 steps among three chips and one within, 5/6 of the buffer
    (c.kangaring_s("reduce_scatter", M, 6, A, B), 3 + 10),
    # broadcast to 6: 3 rounds of all of it; scatter 3 rounds + ring of 5, twice 5/6 of it; pipelined trees
    (c.binomial_broadcast_s(M, 6, A, B), 3 * (1 + 12)),
    (c.scatter_all_gather_broadcast_s(M, 6, A, B), 3 + 5 + 2 * 10),
    (c.double_binary_tree_s("broadcast", M, 6, A, B), 3 + 12),
    # chain of 5, s = sqrt(3 x 12) = 6 pieces: 3 + 6 steps of 1 + 2
    (c.chain_broadcast_s(M, 5, A, B), 9 * 3),
    # one step on a switch, 4 ranks: three copies of 12/4, or of 12 where all need all of it
    (c.one_shot_s("all_to_all", M, 4, A, B), 1 + 9),
    (c.one_shot_s("reduce_scatter", M, 4, A, B), 1 + 9),
    (c.one_shot_s("all_reduce", M, 4, A, B), 1 + 36),
    (c.one_shot_s("broadcast", M, 4, A, B), 1 + 36),
    # Bruck among 3: blocks 1 and 2 have one bit each, so two steps of one block of 4
    (c.bruck_all_to_all_s(M, 3, A, B), 2 * (1 + 4)),
    # Bruck among 6: bits of 1..5 are 1+1+2+1+2 = 7 blocks of 2 in three steps
    (c.bruck_all_to_all_s(M, 6, A, B), 3 + 14),
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
    (tiers.bucket_s("reduce_scatter", M, (4, 2), A, (B, B), 2), 3 * 2.5 + 1.75),
    # two copies of half: first phase max(3(1 + .75), 1 + 1.5), second max(1 + (6/4)/2/2, 3(1 + (6/2)/4/2))
    (tiers.multiport_bucket_s("all_gather", M, (4, 2), A, (B, B)), 3 * 1.75 + 3 * 1.375),
    # ring of 5: distances 1 1 2 2, so 6/5 of the buffer in hops over two links
    (tiers.torus_one_shot_s("all_to_all", M, (5,), A, (B,)), 1 + 12 * 6 / 5 / 2),
    (tiers.torus_one_shot_s("reduce_scatter", M, (5,), A, (B,)), 1 + 12 * 6 / 5 / 2),
    # bus bandwidth: 4 ranks all-reduce 12 GB in 9 s: 2 x 3/4 x 12/9
    (bounds.busbw_bytes_per_s("all_reduce", M, 4, 9.0) / B, 2.0),
    (bounds.busbw_factor("broadcast", 4), 1),
    # halves of 5 ranks are 2 and 3: 6 blocks of 12/5 cross one way
    (bounds.bisection_bound_s("all_to_all", M, 5, B), 6 * 12 / 5),
    (bounds.bisection_bound_s("all_gather", M, 5, B), 3 * 12 / 5),
    (bounds.bisection_bound_s("all_reduce", M, 5, B), 12),
    # 27 ranks, two messages a step: knowledge triples, 3 steps
    (bounds.latency_bound_s(27, A, 2), 3),
]


@pytest.mark.parametrize(("actual", "expected"), WRITTEN_OUT, ids=range(len(WRITTEN_OUT)))
def test_written_out_arithmetic(actual, expected):
    assert float(actual) == pytest.approx(expected, rel=1e-12)


def test_slow_dimension_goes_last():
    fast_first = tiers.bucket_s("all_reduce", M, (4, 4, 4), A, (B, B, B / 2), 2)
    assert fast_first < tiers.bucket_s("all_reduce", M, (4, 4, 4), A, (B / 2, B, B), 2)


def test_careless_ties_cost_half_more_on_rings_of_four():
    assert tiers.ring_link_load(4, ties="one_way") == 1.5 * tiers.ring_link_load(4)
    assert tiers.ring_link_load(5, ties="one_way") == tiers.ring_link_load(5)


def test_torus_capacity_is_its_bisection():
    """For even rings the channel load equals the cut: n m/4 over 2(n/k) links of the slowest dimension."""
    ranks, links = (4, 4, 4), (2 * B, 2 * B, B)
    cut = tiers.torus_bisection_bytes_per_s_per_dir(ranks, links)
    expected = bounds.bisection_bound_s("all_to_all", M, 64, cut)
    assert tiers.torus_one_shot_s("all_to_all", M, ranks, 0, links) == pytest.approx(expected)
    assert tiers.torus_pair_bytes_per_s(ranks, links) == pytest.approx(M / 64 / expected)


SWITCH = {
    **{f"ring {k}": partial(c.ring_s, k) for k in c.PASSES},
    **{f"halving_doubling {k}": partial(c.halving_doubling_s, k) for k in c.PASSES},
    **{f"one_shot {k}": partial(c.one_shot_s, k) for k in (*c.PASSES, "all_to_all", "broadcast")},
    **{f"double_binary_tree {k}": partial(c.double_binary_tree_s, k) for k in ("all_reduce", "broadcast")},
    "recursive_doubling all_reduce": c.recursive_doubling_all_reduce_s,
    "two_shot all_reduce": c.two_shot_all_reduce_s,
    "pairwise all_to_all": c.pairwise_all_to_all_s,
    "bruck all_to_all": c.bruck_all_to_all_s,
    "binomial broadcast": c.binomial_broadcast_s,
    "scatter_all_gather broadcast": c.scatter_all_gather_broadcast_s,
    "chain broadcast": c.chain_broadcast_s,
    **{f"kangaring {k}": partial(c.kangaring_s, k) for k in c.PASSES},
}
RINGS = {f"bidirectional_ring {k}": partial(c.bidirectional_ring_s, k) for k in c.PASSES}
MANY_PORTS = ("one_shot", "two_shot", "kangaring")  # a start-up reaches more than one rank

sizes = st.integers(0, 2**34)
counts = st.integers(1, 300)
alphas = st.just(0.0) | st.floats(1e-30, 1e-4)
rates = st.floats(1e8, 1e13)


@given(sizes, counts, alphas, rates)
@settings(max_examples=60)
def test_no_switch_algorithm_beats_its_bounds(m, n, alpha, b):
    for name, algorithm in {**SWITCH, **RINGS}.items():
        kind, links = name.split()[1], 2 if name in RINGS else 1
        ports = max(n - 1, 1) if name.startswith(MANY_PORTS) else links
        t = algorithm(m, n, alpha, b)
        if np.isnan(t):
            assert n & (n - 1), name
            continue
        slack = 1 - 1e-12
        assert t >= bounds.node_cut_bound_s(kind, m, n, links * b) * slack, name
        assert t >= bounds.latency_bound_s(n, alpha, ports) * slack, name
        if links == 1:  # a full switch: half the ranks send at once
            assert t >= bounds.bisection_bound_s(kind, m, n, max(n // 2, 1) * b) * slack, name


dims = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@given(sizes, dims, alphas, st.tuples(rates, rates, rates))
@settings(max_examples=60)
def test_no_torus_algorithm_beats_its_bounds(m, ranks, alpha, links):
    links = links[: len(ranks)]
    n = int(np.prod(ranks))
    injection = sum(2 * b for k, b in zip(ranks, links, strict=True) if k > 1) or 1.0
    cut = tiers.torus_bisection_bytes_per_s_per_dir(ranks, links)
    for kind in (*tiers.PASSES, "all_to_all"):
        times = {"one-shot": tiers.torus_one_shot_s(kind, m, ranks, alpha, links)}
        if kind != "all_to_all":
            times["bucket"] = tiers.bucket_s(kind, m, ranks, alpha, links, 2)
            times["multiport"] = tiers.multiport_bucket_s(kind, m, ranks, alpha, links)
            times["halving"] = tiers.torus_halving_doubling_s(kind, m, ranks, alpha, links)
        for name, t in times.items():
            if np.isnan(t):
                assert set(ranks) - {1, 2, 4}
                continue
            assert t >= bounds.node_cut_bound_s(kind, m, n, injection) * (1 - 1e-12), (kind, name)
            assert t >= bounds.latency_bound_s(n, alpha, max(n - 1, 1)), (kind, name)
            assert t >= bounds.bisection_bound_s(kind, m, n, cut) * (1 - 1e-12), (kind, name)


@pytest.mark.parametrize("name", [*SWITCH, *RINGS])
def test_limits_shapes_and_order(name):
    algorithm = {**SWITCH, **RINGS}[name]
    assert algorithm(1e6, 1, 1e-6, 1e9) == 0
    m = np.array([[0.0], [1e3], [1e6], [1e9]])
    n = np.array([1, 2, 4, 64])
    t = algorithm(m, n, 1e-6, 1e9)
    assert t.shape == (4, 4)
    assert np.all(np.diff(t[:, 1:], axis=0) > 0)  # more bytes, more time
    singles = [[float(algorithm(x, k, 1e-6, 1e9)) for k in n.tolist()] for x in m.ravel().tolist()]
    np.testing.assert_array_equal(t, singles)


def test_torus_limits_shapes_and_order():
    m = np.array([0.0, 1e3, 1e6, 1e9])
    k = np.array([[1], [2], [4]])
    for call in (
        partial(tiers.bucket_s, "all_reduce", directions=2),
        partial(tiers.multiport_bucket_s, "all_reduce"),
        partial(tiers.torus_halving_doubling_s, "all_reduce"),
        partial(tiers.torus_one_shot_s, "all_to_all"),
    ):
        t = call(m, (k, 4), 1e-6, (1e9, 2e9))
        assert t.shape == (3, 4)
        assert np.all(np.diff(t, axis=1) > 0)
        singles = [[float(call(x, (j, 4), 1e-6, (1e9, 2e9))) for x in m] for j in (1, 2, 4)]
        np.testing.assert_allclose(t, singles, rtol=1e-15)
        assert call(1e6, (1, 1), 1e-6, (1e9, 1e9)) == 0
    assert tiers.phased_all_to_all_s(1e6, (1, 1), (1e-6, 1e-6), (1e9, 1e9)) == 0
    assert tiers.hierarchical_s("all_reduce", ("one_shot", "ring"), 1e6, (1, 1), (1e-6,) * 2, (1e9,) * 2) == 0


def test_counts_that_an_algorithm_cannot_run_on_are_nan():
    t = c.halving_doubling_s("all_gather", 1e6, [4, 144], 1e-6, 1e9)
    assert np.isfinite(t[0])
    assert np.isnan(t[1])
    assert np.isnan(tiers.torus_halving_doubling_s("all_gather", 1e6, (4, 8), 1e-6, (1e9, 1e9)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: c.ring_s("gather", 1e6, 4, 1e-6, 1e9), "collective='gather'.*all_gather"),
        (lambda: c.ring_s("all_reduce", -1, 4, 1e-6, 1e9), "message_bytes=-1: allowed are numbers from 0"),
        (lambda: c.ring_s("all_reduce", "big", 4, 1e-6, 1e9), "message_bytes='big'"),
        (lambda: c.ring_s("all_reduce", 1e6, 2.5, 1e-6, 1e9), "n_ranks=2.5.*whole"),
        (lambda: c.ring_s("all_reduce", 1e6, [4, 0], 1e-6, 1e9), "n_ranks=.*whole numbers from 1"),
        (lambda: c.ring_s("all_reduce", 1e6, 4, 1e-6, 0.0), "bytes_per_s_per_dir=0.0: allowed are numbers from 1e-30"),
        (lambda: tiers.bucket_s("all_reduce", 1e6, (4, 4), 1e-6, (1e9,), 2), "bytes_per_s_per_dir=.*one entry a tier"),
        (lambda: tiers.bucket_s("all_reduce", 1e6, (4,), 1e-6, (1e9,), 3), "directions=3.*from 1 to 2"),
        (lambda: tiers.ring_link_load(4, ties="up"), "ties='up'"),
    ],
)
def test_wrong_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_rate_gives_unknown_time():
    assert np.isnan(c.ring_s("all_reduce", 1e6, 4, 1e-6, np.nan))


def test_a_million_times_in_one_call():
    m = np.geomspace(KIB, GB, 1000)[:, None]
    n = np.arange(1, 1001)
    links = (np.linspace(1, 2, 1000) * GB, GB, GB)
    assert c.ring_s("all_reduce", m, n, US, GB).size == 1_000_000
    assert tiers.multiport_bucket_s("all_reduce", m, (4, 4, 4), US, links).size == 1_000_000
