"""Collectives on real fabrics: arithmetic written out, bounds, ranks that do not fit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog.load import chips as catalog_chips
from trnmodel.catalog.stacks import efficiencies, stacks
from trnmodel.catalog.systems import chip_of, systems
from trnmodel.fabric import collectives as engine
from trnmodel.fabric.algorithms import ALGORITHMS
from trnmodel.fabric.groups import Same, place
from trnmodel.fabric.limits import hbm_s
from trnmodel.fabric.runtime import graph_barrier_s
from trnmodel.formulas import collectives, tiers

SYSTEMS = [
    "trn1.32xlarge",
    "trn2.3xlarge",
    "trn2.48xlarge",
    "trn2-ultraserver",
    "trn3-nl32x2-pcie160",
    "trn3-nl72x2-ualink",
]
CASES = [(kind, name) for kind, table in ALGORITHMS.items() for name in ["best", *table]]
US, GB = 1e-6, 1e9


def on_links(kind, message_bytes, system, *more, **asked):
    """The collective by the links and DMA engines of NeuronCores alone; of other chips, and in a stack, the default."""
    found = tm.system(system) if isinstance(system, str) else system
    alone = {"in_graph": True, "rate_share": 1.0} if chip_of(found).core and "efficiencies" not in asked else {}
    return tm.collective(kind, message_bytes, system, *more, **{**alone, **asked})


def wires_of(name):
    """A system of which nobody has measured what the ranks of a chip reach: its wires and DMA engines alone."""
    where = tm.system(name)
    return replace(where, chip=replace(where.chip, intra_chip_bytes_per_s=np.nan))


def all_reduce_parts(chip_rate, chips, injection, size):
    """Exchange on the chip (4 ranks), then each chip sends its share at all its links: twice 3/4 and twice (n-1)/n."""
    return 2 * 3 / 4 * size / chip_rate + 2 * (chips - 1) / chips * size / injection


def test_large_all_reduce_on_trn2_by_hand():
    # a rank of LNC=2: 2 cores x 16 DMA engines x 23 GB/s = 736 GB/s; a chip: 4 neighbours x 128 GB/s = 512 GB/s
    # steps: 2 on the chip, 2 passes x 2 axes x 3 hops on the torus, 1.5 us each (midpoint of the documented 1-2 us)
    answer = on_links("all_reduce", 1 * GB, "trn2.48xlarge", algorithm="multiport_bucket")
    expected = all_reduce_parts(736 * GB, 16, 512 * GB, 1 * GB) + (2 + 2 * 2 * 3) * 1.5 * US
    assert answer.time_s == pytest.approx(expected, rel=1e-9)


def test_hierarchical_all_gather_on_a_rack_pair_by_hand():
    # 4 ranks a chip, 4 chips a tray, 18 trays, 2 racks; shares 3/4, 3/16, 17/288, 1/576 of the buffer;
    # a rank: 2 cores x 16 x 33 GB/s on the chip, then 512, 512, 128 GB/s of its chip over 4 ranks
    shares, rates = [3 / 4, 3 / 16, 17 / 288, 1 / 576], [1056 * GB, 128 * GB, 128 * GB, 32 * GB]
    # tier j moves (k-1)/k of what is left: m 3/4, (m/4) 3/4, (m/16) 17/18, (m/288) 1/2
    # steps: chip, tray (over the board's switch, 0.115 us), rack (over a backplane switch), pair (a cable)
    steps = 4 * 1.5 * US + 2 * 0.115 * US
    expected = sum(s * GB / r for s, r in zip(shares, rates, strict=True)) + steps
    answer = on_links("all_gather", 1 * GB, "trn3-nl72x2-pcie160", algorithm="one_shot")
    assert answer.time_s == pytest.approx(expected, rel=1e-9)


def test_all_to_all_uses_the_capacity_of_the_fabric():
    # 144 chips x 4 ranks: a chip sends another 16 pairs of ranks x m/576; 72 x 128 GB/s cross for 72^2 pairs of chips
    size = 1 * GB
    between = 16 * size / 576 / (128 * GB / 72)
    inside = 3 / 576 * size / (1056 * GB)
    answer = on_links("all_to_all", size, "trn3-nl72x2-pcie160", algorithm="direct", alpha_s=0.0)
    assert answer.time_s == pytest.approx(between + inside, rel=1e-9)


def test_a_strided_group_starts_where_the_inner_ones_end():
    # EP=16 outside TP=16 on NL32x2: 4 ranks a chip, 4 chips inside; 2 chips a tray: TP fills 2 trays,
    # so that the 16 members are 8 places of a rack in 2 racks. A rank has a quarter
    # of its chip's 512 GB/s backplane and 128 GB/s cable; one-shot phases move 7/8 and 1/2 of the buffer.
    size = 1 * GB
    expected = 7 / 8 * size / (512 * GB / 4) + 1 / 2 * size / (128 * GB / 4)
    answer = on_links("all_to_all", size, "trn3-nl32x2-pcie160", ranks=16, stride=16, algorithm="phased", alpha_s=0.0)
    assert answer.time_s == pytest.approx(expected, rel=1e-9)


def test_groups_side_by_side_share_a_torus_axis():
    # 16 chips of 4 ranks: TP=8 fills two chips of a row of four, so that the members of EP=2 face each other across
    # the ring. A chip sends 4 x m/2 over two hops: 4 chips x 2 m x 2 hops over 8 one-way links of 128 GB/s
    answer = on_links("all_to_all", 1 * GB, "trn2.48xlarge", ranks=2, stride=8, algorithm="phased", alpha_s=0.0)
    assert answer.time_s == pytest.approx(4 * 2 * GB * 2 / 8 / (128 * GB), rel=1e-9)


@given(st.integers(0, 5), st.integers(0, 4), st.sampled_from(SYSTEMS))
def test_a_wider_stride_never_helps_and_a_whole_group_is_as_without(inner, outer, name):
    ranks, stride, where = 2.0**outer, 2.0**inner, wires_of(name)
    near = on_links("all_gather", 1 * GB, where, ranks=ranks, algorithm="one_shot", alpha_s=0.0)
    far = on_links("all_gather", 1 * GB, where, ranks=ranks, stride=stride, algorithm="one_shot", alpha_s=0.0)
    if near.valid and far.valid:
        assert far.time_s >= near.time_s * (1 - 1e-12) or stride == 1


def test_between_servers_the_network_is_the_slowest_tier():
    two = tm.system("trn2.48xlarge", count=2)
    # half of the last pair's share crosses EFA: (m/64)/2 by a rank at 200 Gb/s / 4
    only_far = on_links("all_gather", 1 * GB, two, algorithm="ring", alpha_s=0.0)
    near = on_links("all_gather", 1 * GB, "trn2.48xlarge", algorithm="ring", alpha_s=0.0)
    assert only_far.time_s - near.time_s == pytest.approx(GB / 64 / 2 / (25 * GB / 4), rel=1e-9)


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
@given(st.sampled_from(SYSTEMS), st.just(0.0) | st.floats(1e-20, 1e11), st.integers(0, 8), st.integers(0, 4))
def test_never_below_the_graph_bound(kind, algorithm, name, size, power, skip):
    answer = on_links(kind, size, name, ranks=2**power, stride=2**skip, algorithm=algorithm)
    assert not answer.valid or answer.time_s >= answer.lower_bound_s * (1 - 1e-12)


@pytest.mark.parametrize("name", [name for name in systems() if name != "mi210-4"])  # no rate of its links is published
def test_never_below_the_cuts_of_any_system(name):
    """Random sizes, ranks and strides, of powers of two and of none, and no time but that of the bytes."""
    rng, chip = np.random.default_rng(len(name)), tm.system(name).chip
    for _ in range(60):
        spec, kind = tm.system(name, count=int(rng.choice([1, 1, 2, 3]))), str(rng.choice(list(ALGORITHMS)))
        asked = {"algorithm": str(rng.choice(["best", *ALGORITHMS[kind]])), "lnc": int(rng.choice(chip.lnc_choices))}
        total = spec.chips * chip.cores / asked["lnc"]
        ranks = max(np.floor(total ** rng.random()), 1)
        stride = max(np.floor((total / ranks) ** rng.random()), 1)
        if rng.random() < 0.5:
            ranks, stride = (2 ** np.floor(np.log2(number)) for number in (ranks, stride))
        size = rng.choice([0.0, 10 ** rng.uniform(-20, 11)])
        free = {"alpha_s": 0.0, "launch_s": 0.0, "rate_share": 1.0}
        answer = on_links(kind, size, spec, ranks=ranks, stride=stride, **asked, **free)
        assert not answer.valid or answer.time_s >= answer.lower_bound_s * (1 - 1e-12), (kind, ranks, stride, asked)
        assert answer.valid or asked["algorithm"] != "best"
        assert answer.lower_bound_s > 0 or ranks == 1 or size == 0 or not answer.valid


def test_cuts_by_hand():
    # two racks of 72 chips of 4 ranks: 2 (g-1)/g = 1 of the buffer for the pair over 72 x 128 GB/s, 2 x 143/144 for a
    # chip over 512 + 512 + 128 GB/s; all-to-all: half of the ranks send a half of theirs, 288 x 1/2
    racks, size = "trn3-nl72x2-pcie160", 1 * GB
    reduced = on_links("all_reduce", size, racks)
    assert reduced.lower_bound_s == pytest.approx(2 * 143 / 144 * size / (1152 * GB))
    crossed = on_links("all_to_all", size, racks)
    assert crossed.lower_bound_s == pytest.approx(288 / 2 * size / (72 * 128 * GB))
    # every fourth rank of both racks, each with its three neighbours: four groups cross at once
    assert on_links("all_to_all", size, racks, ranks=144, stride=4).lower_bound_s == pytest.approx(
        4 * 72 / 2 * size / (72 * 128 * GB)
    )
    # a chip of 16: 2 x 15/16 of the buffer over 512 GB/s; a rank of it has 736 GB/s of DMA besides
    whole = on_links("all_reduce", size, "trn2.48xlarge").lower_bound_s
    assert whole == pytest.approx(2 * 15 / 16 * size / (512 * GB))
    # a chip of two servers has 200 Gb/s besides
    servers = tm.system("trn2.48xlarge", count=2)
    assert on_links("all_gather", size, servers).lower_bound_s == pytest.approx(31 / 32 * size / (537 * GB))


def test_a_stride_that_divides_nothing_still_joins_all_ranks():
    """Ranks 0 and 44 of three servers of 32 are on two of them."""
    far = on_links("all_reduce", 1 * GB, tm.system("trn1n.32xlarge", count=3), ranks=2, stride=44)
    near = on_links("all_reduce", 1 * GB, tm.system("trn1n.32xlarge", count=3), ranks=2, stride=32)
    assert far.time_s == near.time_s > 0


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_grows_with_the_message_and_one_rank_costs_nothing(name, kind):
    sizes = np.geomspace(1, 1e10, 40)
    answer = on_links(kind, sizes, name)
    assert (np.diff(answer.time_s) >= 0).all()
    assert on_links(kind, sizes, name, ranks=1).time_s.max() == 0
    alone = [float(on_links(kind, size, name).time_s) for size in sizes]
    np.testing.assert_array_equal(answer.time_s, alone)


def test_the_best_is_the_fastest_and_says_which():
    sizes = np.geomspace(1, 1e10, 60)
    best = on_links("all_reduce", sizes, "trn2-ultraserver")
    for name in set(ALGORITHMS["all_reduce"]) - {"neuron"}:
        named = on_links("all_reduce", sizes, "trn2-ultraserver", algorithm=name)
        assert (np.isnan(named.time_s) | (best.time_s <= named.time_s)).all()
        chosen = best.algorithm == name
        np.testing.assert_array_equal(best.time_s[chosen], named.time_s[chosen])
    assert len(set(best.algorithm)) > 1


def test_the_library_switches_where_aws_says():
    # mesh below 1 MB, recursive doubling and halving to 56 MB, rings above
    sizes = np.array([0.9e6, 1.1e6, 55e6, 57e6])
    library = on_links("all_reduce", sizes, "trn2.48xlarge", algorithm="neuron").time_s
    names = ["one_shot", "halving_doubling", "halving_doubling", "ring"]
    for size, took, name in zip(sizes, library, names, strict=True):
        named = on_links("all_reduce", size, "trn2.48xlarge", algorithm=name)
        assert took == pytest.approx(float(named.time_s), rel=1e-12)


@pytest.mark.parametrize("hop_s", [0.0, 1.5e-6])
@pytest.mark.parametrize(
    ("name", "shape", "changes_place"),
    [
        ("trn2.48xlarge", (4, 4), False),
        ("trn2.48xlarge", (2, 8), False),  # the long axis takes longer at any size
        ("trn2-ultraserver", (4, 4, 4), False),
        ("trn2-ultraserver", (8, 4, 2), True),  # most steps on the long axis, least rate on the short one
    ],
)
def test_what_is_kept_of_a_torus_is_its_formula_at_every_size(name, shape, changes_place, hop_s):
    """Where the slowest axis of a phase changes as the message grows, the time is no line, and is not kept as one."""
    base = tm.system(name)
    links = base.scaleup_bytes_per_s_per_dir | ({"ultraserver": 64 * GB} if changes_place else {})
    torus = replace(base, torus_shape=shape, chip=replace(base.chip, hop_s=hop_s), scaleup_bytes_per_s_per_dir=links)
    ranks, sizes = 4.0 * np.prod(shape), np.geomspace(1, 1e10, 61)
    found = on_links("all_reduce", sizes, torus, algorithm="multiport_bucket").time_s
    formula, group = ALGORITHMS["all_reduce"]["multiport_bucket"], place(torus, np.asarray(ranks), np.ones(()), 2)
    np.testing.assert_allclose(found, formula("all_reduce", sizes, group), rtol=1e-12)
    kept = engine._wires(Same(torus), Same(None))("all_reduce", "best", ranks, 1.0, 2)
    assert bool(kept.curved) is (changes_place and hop_s > 0)


def test_of_algorithms_that_tie_the_first_is_named():
    """On two ranks all exchanges are one: what rounding leaves must not choose between them, size by size."""
    best = on_links("all_gather", np.geomspace(1, 1e10, 500), "trn2.48xlarge", ranks=2)
    assert set(best.algorithm) == {"ring"}


def test_ranks_that_do_not_fit_give_reasons():
    answer = on_links("all_reduce", 1024, "trn2.48xlarge", ranks=[6, 64, 65, 128])
    assert answer.valid.tolist() == [True, True, False, False]
    assert answer.time_s[0] <= on_links("all_reduce", 1024, "trn2.48xlarge", ranks=8).time_s
    assert "more ranks" in answer.reason[3]
    assert np.isnan(answer.time_s[[2, 3]]).all()
    odd = on_links("all_gather", 1024, "trn3-nl72x2-pcie160", algorithm="halving_doubling")
    assert "algorithm cannot run" in str(odd.reason)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"kind": "gossip"}, "kind='gossip'"),
        ({"algorithm": "magic"}, "algorithm='magic'"),
        ({"system": "trn9"}, "trn9"),
        ({"message_bytes": -1}, "message_bytes=-1"),
        ({"ranks": 0}, "ranks=0"),
        ({"alpha_s": -1e-6}, "alpha_s"),
        ({"lnc": 3}, "lnc=3"),
        ({"system": "mi300x-8"}, "no hop latency is published"),
    ],
)
def test_wrong_input_is_named(given, match):
    asked = {"kind": "all_reduce", "message_bytes": 1024, "system": "trn2.48xlarge"} | given
    with pytest.raises(ValueError, match=match):
        tm.collective(**asked)


def test_other_vendors_need_a_latency():
    # 8 GPUs on one switch: (n-1)/n of the buffer at 450 GB/s, 7 steps
    answer = on_links("all_gather", 8 * GB, "hgx-h100", algorithm="ring", alpha_s=1e-6, launch_s=0.0, rate_share=1.0)
    assert answer.time_s == pytest.approx(7e-6 + 7 / 8 * 8 / 450)
    assert answer.busbw_bytes_per_s == pytest.approx(450 * GB, rel=1e-3)


def test_the_barrier_meets_the_measured_graphs():
    # printed for Trn2: 1.040 ms at 4 ranks, 1.486 at 8, 2.973 at 64; for Trn1 2.45 at 8, 5.10 at 32; a pair: 0.150
    np.testing.assert_allclose(graph_barrier_s([2, 4, 8, 64]) * 1e3, [0.150, 1.040, 1.486, 2.973], rtol=0.02)
    np.testing.assert_allclose(graph_barrier_s([8, 32], "neuron-runtime-trn1") * 1e3, [2.45, 5.10], rtol=0.01)
    assert graph_barrier_s(128) - graph_barrier_s(64) == pytest.approx(graph_barrier_s(64) - graph_barrier_s(32))
    assert graph_barrier_s(1) == 0
    with pytest.raises(ValueError, match="runtime='trn9'"):
        graph_barrier_s(8, "trn9")


def test_a_floor_and_a_share_of_the_rate():
    ideal = on_links("all_gather", 8 * GB, "hgx-h100", alpha_s=0.0, launch_s=0.0, rate_share=1.0)
    real = on_links("all_gather", 8 * GB, "hgx-h100", alpha_s=0.0, launch_s=1e-3, rate_share=[0.5, 1.0])
    assert real.time_s == pytest.approx(1e-3 + ideal.time_s * np.array([2.0, 1.0]))
    assert np.all(real.lower_bound_s == ideal.lower_bound_s)
    for wrong in ({"rate_share": 0}, {"rate_share": 1.1}, {"launch_s": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            on_links("all_gather", 1, "hgx-h100", alpha_s=0.0, **wrong)


def test_buffers_in_hbm_by_hand():
    # two ranks of one Trn1 chip: KangaRing touches HBM (3 + 4)/2 times for each byte that passes, half of the buffer;
    # a rank has half of 820 GB/s. One rank on each of 16 Trn2 chips: plain rings, (4 + 6)/2, a quarter of 2.9 TB/s.
    pair = on_links("all_reduce", 1 * GB, wires_of("trn1.32xlarge"), ranks=2, buffers="hbm")
    assert pair.time_s == pytest.approx(3.5 * 0.5 * GB / (410 * GB))
    ones = on_links(
        "all_reduce", 1 * GB, "trn2.48xlarge", ranks=16, stride=4, algorithm="multiport_bucket", buffers="hbm"
    )
    links = on_links("all_reduce", 1 * GB, "trn2.48xlarge", ranks=16, stride=4, algorithm="multiport_bucket")
    assert ones.time_s == pytest.approx(max(5 * 15 / 16 * GB / (725 * GB), float(links.time_s)))
    with pytest.raises(ValueError, match="buffers='hbm'"):
        on_links("all_reduce", 1, "hgx-h100", alpha_s=0.0, buffers="hbm")
    with pytest.raises(ValueError, match="buffers"):
        on_links("all_reduce", 1, "trn2.48xlarge", buffers="disk")


def test_a_million_times_in_one_call():
    sizes = np.geomspace(1, 1e10, 1_000_000)
    times = on_links("all_reduce", sizes, "trn2.48xlarge").time_s  # `make bench` prints how long it takes
    few = on_links("all_reduce", sizes[::100_000], "trn2.48xlarge").time_s
    np.testing.assert_allclose(times[::100_000], few, rtol=1e-12)


PLACES = ["trn1.32xlarge", "trn2-ultraserver", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus", "trainium2", "h200"]
SPREAD = {"tp": 4, "ep": 2, "cp": 2, "pp": 2}


@pytest.mark.parametrize("stack", stacks())
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("degrees", [SPREAD, {"tp": 24}, {"tp": [2, 8, 64]}, {"cp": 4, "tp": 8}, {"ep": 16, "pp": 4}])
def test_a_step_sends_what_the_public_collective_takes(name, stack, degrees):
    """Network time = count x `tm.collective` of every message, on every group and stack, in prefill and decode."""
    where = tm.chip(name) if name in catalog_chips() else tm.system(name)
    mapping = tm.Mapping(**degrees)
    ask = {"efficiencies": stack, "batch": 64}
    for step in (
        tm.decode_step("deepseek-v3", where, mapping, context=5000, **ask),
        tm.prefill("deepseek-v3", where, mapping, input_tokens=3000, **ask),
    ):
        e = step.stack
        total = 0.0
        for sent in step.messages:
            given = {"ranks": getattr(mapping, sent.group), "stride": mapping.extent(sent.group)[0], "efficiencies": e}
            total = total + sent.count * on_links(sent.kind, sent.message_bytes, where, **given).time_s
        np.testing.assert_allclose(np.where(step.valid, total, np.nan), step.network_s, rtol=1e-9)


def test_one_engine_serves_both(monkeypatch):
    """A formula that takes twice as long doubles the public call and the step alike."""
    ask = {"batch": 4, "context": 1000, "efficiencies": "ideal"}
    calls = (
        lambda: float(on_links("all_reduce", 2**20, "trn2.48xlarge", ranks=64, efficiencies="ideal").time_s),
        lambda: float(tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=64), **ask).network_s),
    )
    before = [call() for call in calls]
    for name in ("hierarchical_s", "multiport_bucket_s"):
        formula = getattr(tiers, name)
        monkeypatch.setattr(tiers, name, lambda *given, formula=formula: 2 * formula(*given))
    monkeypatch.setattr(collectives, "one_shot_s", lambda *given, formula=collectives.one_shot_s: 2 * formula(*given))
    engine._wires.cache_clear()
    assert [call() for call in calls] == pytest.approx([2 * time for time in before], rel=1e-9)
    engine._wires.cache_clear()


def test_what_takes_no_time_has_no_rate():
    answer = on_links("all_reduce", [0.0, 64.0], "trn2.48xlarge", alpha_s=0.0)
    assert np.isnan(answer.busbw_bytes_per_s).tolist() == [True, False]
    assert np.isnan(on_links("all_reduce", 64.0, "trn2.48xlarge", ranks=1).busbw_bytes_per_s)


def test_rate_of_one_chip_holds_for_all_reduces_of_a_stack():
    """An all-reduce of a graph passes the ranks of each chip first; nothing else asks for the rate of a chip."""
    for system in ("trn2.48xlarge", "trn1.32xlarge", "trn3-nl72x2-pcie160"):
        where, free = tm.system(system), wires_of(system)
        cores = where.chip.cores / where.chip.logical()
        for ranks in (2, cores, 2 * cores):
            for kind in ("all_reduce", "all_gather"):
                for stack in (None, "ideal", where.chip.default_stack):
                    now, before = (
                        tm.collective(kind, 2**26, one, ranks, efficiencies=stack).time_s for one in (where, free)
                    )
                    fitted = stack == where.chip.default_stack and kind == "all_reduce"
                    assert (now > before) == fitted, (system, ranks, kind, stack)


HOP = 1.5e-6  # of NeuronLink, the middle of 1-2 us


@pytest.mark.parametrize(
    ("kind", "algorithm", "asked", "seconds"),
    [
        # every fourth rank of a whole 4x4 torus: the four groups of a chip share its links, 2 x 15/16 x 4 GB at
        # 512 GB/s after 2 x 2 x 3 steps; nothing is sent on the chip
        (
            "all_reduce",
            "multiport_bucket",
            {"ranks": 16, "stride": 4},
            12 * HOP + 2 * 15 / 16 * 4 * GB / (512 * GB),
        ),
        # two chips of a row and 4 ranks of each: 2 steps of 4 ranks on the chip, one between chips over an open link
        ("broadcast", "binomial", {"ranks": 8}, 3 * HOP + 2 * GB / (736 * GB) + GB / (128 * GB)),
        ("broadcast", "scatter_all_gather", {"ranks": 4}, 5 * HOP + 2 * 3 / 4 * GB / (736 * GB)),
        # a hop on the chip and one between chips, the slower of which bounds; 12 ranks are 3 chips of a row
        ("p2p", "p2p", {"ranks": 4}, HOP + GB / (736 * GB)),
        ("p2p", "p2p", {"ranks": 12}, 2 * HOP + GB / (128 * GB)),
        ("p2p", "p2p", {"ranks": 8}, 2 * HOP + GB / (128 * GB)),
        ("p2p", "p2p", {"ranks": 1}, 0),
        ("broadcast", "mesh", {"ranks": 1}, 0),
        # two chips of a row: half of a quarter of the buffer, one step of a line of two
        ("all_gather", "tiers_at_once", {"ranks": 8}, 2 * HOP + 3 / 4 * GB / (736 * GB) + GB / 8 / (32 * GB)),
        # alone on a chip: n - 1 = 3 buffers in one step; log2 4 = 2 steps of a buffer; two passes of 2 steps and a
        # buffer; n - 1 steps of a quarter; 2 steps of w = 4 quarters (2 x 2 ranks with a bit set)
        ("all_reduce", "mesh", {"ranks": 4}, HOP + 3 * GB / (736 * GB)),
        ("all_reduce", "recursive_doubling", {"ranks": 4}, 2 * (HOP + GB / (736 * GB))),
        ("all_reduce", "double_binary_tree", {"ranks": 4}, 2 * (2 * HOP + GB / (736 * GB))),
        ("broadcast", "double_binary_tree", {"ranks": 4}, 2 * HOP + GB / (736 * GB)),
        ("all_to_all", "pairwise", {"ranks": 4}, 3 * (HOP + GB / 4 / (736 * GB))),
        ("all_to_all", "bruck", {"ranks": 4}, 2 * HOP + 4 / 4 * GB / (736 * GB)),
        ("all_reduce", "mesh", {"ranks": 8}, np.nan),  # chip and axis are two tiers
        # all pairs of 16 chips at once at 16 GB/s a pair; four ranks a chip: 16 pairs of blocks of 1/64, at 6 hops to
        # the farthest, and 3 of 64 blocks on the chip; on one chip 3 of 4; four groups side by side: 4 blocks of 1/16
        ("all_to_all", "direct", {}, 4 * HOP + 16 / 64 * GB / (16 * GB) + 3 / 64 * GB / (736 * GB)),
        ("all_to_all", "direct", {"ranks": 4}, HOP + 3 / 4 * GB / (736 * GB)),
        ("all_to_all", "direct", {"ranks": 16, "stride": 4}, 4 * HOP + 4 / 16 * GB / (16 * GB)),
        ("all_to_all", "direct", {"ranks": 32}, np.nan),  # half of the chips
    ],
)
def test_algorithms_of_a_torus_of_chips_by_hand(kind, algorithm, asked, seconds):
    """16 chips of 4 ranks: 736 GB/s of a rank on its chip, four links of 128 GB/s of a chip."""
    answer = on_links(kind, GB, wires_of("trn2.48xlarge"), algorithm=algorithm, **asked)
    assert answer.time_s == pytest.approx(seconds, rel=1e-9, nan_ok=True)


def test_tiers_at_once_by_hand():
    """Shares of 4 x 18 x 2 chips after an exchange of 4 ranks: all but 1/144 over 512 + 512 + 128 GB/s, four at a time.

    A step of a chip, over a board's switch, over a rack's, and to the other rack; once more on the way back.
    """
    answer = on_links("all_reduce", 1 * GB, wires_of("trn3-nl72x2-pcie160"), algorithm="tiers_at_once")
    inside = HOP + 3 / 4 * GB / (1056 * GB)
    outside = 3 * HOP + 2 * 0.115 * US + 143 / 144 * GB / (1152 * GB)
    assert answer.time_s == pytest.approx(2 * (inside + outside), rel=1e-9)


def test_tiers_at_once_on_a_part_of_a_torus_by_hand():
    """48 ranks: 4 on each of 4 x 3 chips. A closed ring of 4 takes 3 steps and sends both ways, an open one of 3 two.

    A quarter of the buffer is left to a rank. All of it but 1/12 leaves over its 64 + 32 GB/s, what the other axis
    leaves, 1/3 - 1/12, over the 64 of the ring, and 1/4 - 1/12 over the 32 of the line.
    """
    answer = on_links("all_gather", 1 * GB, wires_of("trn2.48xlarge"), ranks=48, algorithm="tiers_at_once", alpha_s=HOP)
    most = max(11 / 12 / 96, (1 / 3 - 1 / 12) / 64, (1 / 4 - 1 / 12) / 32)
    expected = HOP + 3 / 4 / 736 + (3 + 2) * HOP + most / 4
    assert answer.time_s == pytest.approx(expected, rel=1e-9)
    whole = on_links("all_gather", 1 * GB, "trn2.48xlarge", algorithm="tiers_at_once")
    assert np.isnan(whole.time_s)  # has its bucket


@pytest.mark.parametrize(
    ("ranks", "switch_s", "seconds"),
    # path C of the deep dive: three chips send and two switches; in a rack two and two (B). 16 pairs of blocks, of
    # 1/576 at 128 GB/s over 72 pairs, of 1/288 at 512 GB/s over the 68 chips off the tray; 3 blocks on the chip
    [
        (576, 0.115 * US, 3 * HOP + 2 * 0.115 * US + 16 / 576 * 72 / 128 + 3 / 576 / 1056),
        (288, 0.115 * US, 2 * HOP + 2 * 0.115 * US + 16 / 288 * 68 / 512 + 3 / 288 / 1056),
        (576, np.nan, 3 * HOP + 16 / 576 * 72 / 128 + 3 / 576 / 1056),  # not published: none
    ],
)
def test_a_direct_exchange_waits_for_the_farthest_chip(ranks, switch_s, seconds):
    where = replace(wires_of("trn3-nl72x2-pcie160"), switch_s=switch_s)
    answer = on_links("all_to_all", 1 * GB, where, ranks=ranks, algorithm="direct")
    assert answer.time_s == pytest.approx(seconds, rel=1e-9)


def test_steps_over_switches_of_which_nothing_is_published_take_those_of_chips():
    where = replace(wires_of("trn3-nl72x2-pcie160"), switch_s=np.nan)
    assert on_links("all_gather", 0, where, algorithm="one_shot").time_s == pytest.approx(4 * HOP)


def _torus(*shape):
    where = tm.system("trn2.48xlarge")
    return replace(where, torus_shape=shape, domain_chips=int(np.prod(shape)))


@pytest.mark.parametrize(
    ("where", "ranks", "stride", "links", "spans", "swaps", "forwards"),
    # in GB/s, of a group's chip, of its chip over the tiers that it spans, and of a rank on each axis of the torus: by
    # one link, and when all send to all, where a link carries load l of k ranks: b (k - 1) / (k l)
    [
        # a closed row of 4: 256 of a chip's 512, 64 of a rank; one link 32; l = 1/2: 32 x 3 / (4 / 2)
        (_torus(4, 4), 16, 1, 256, 256, {"x": 32}, (48, 32)),
        # 3 of a row of 4 on a line of single links, 32 of a rank; its middle bears twice 1/3: 32 x 2 / (3 x 2/3)
        (_torus(4, 4), 12, 1, 128, 128, {"x": 32}, (32, 32)),
        # three links for 3 x 2 chips: 512 / 3 each; l of 3 is 1/3, of the pair 1/2: 42.7 x 2 and x 1
        (_torus(3, 2), 24, 1, 512, 512, {"x": 128 / 3, "y": 128 / 3}, (256 / 3, 128 / 3)),
        # every second rank: two of a chip, each with half of what both groups send
        (_torus(4, 4), 32, 2, 256, 256, {"x": 32, "y": 32}, (48, 48)),
        (_torus(4, 4), 1, 1, 512, np.inf, {}, (128, 128)),
    ],
)
def test_what_a_group_reaches_on_a_torus_by_hand(where, ranks, stride, links, spans, swaps, forwards):
    group = place(where, np.asarray(float(ranks)), np.asarray(float(stride)))
    assert group.links == pytest.approx(links * GB)
    assert group.tier_bytes_per_s == pytest.approx(spans * GB)
    found = {level.name: float(rate) / GB for level, rate in zip(group.levels, group.exchange_rates, strict=True)}
    assert {axis: found[axis] for axis in swaps} == pytest.approx(swaps)
    assert [float(rate) for rate in group.direct_rates[1:]] == pytest.approx([rate * GB for rate in forwards])


@pytest.mark.parametrize(
    ("where", "ranks", "stride", "links", "groups"),
    # bare chips: within the domain of 8, or of 64 chips of 4 ranks, the scale-up rate, beyond it the network's; groups
    # that lie between share it, as many as a chip has
    [
        (tm.chip("h100"), 8, 1, 450, 1),
        (tm.chip("h100"), 9, 1, 50, 1),
        (tm.chip("h100"), 3, 3, 50, 1),
        (tm.chip("h100"), 2, 4, 450, 1),
        (tm.chip("trainium2"), 256, 1, 640, 1),
        (tm.chip("trainium2"), 257, 1, 25, 1),
        (tm.chip("trainium2"), 7, 3, 640 / 3, 3),
        (tm.chip("trainium2"), 7, 9, 640 / 4, 4),
        (tm.system("trn2.48xlarge", count=2), 64, 2, 25, 2),
        (tm.system("trn2.48xlarge"), 2, 4, 128 / 4, 4),  # two chips, one link, which four groups share
        (tm.system("hgx-h100", count=2), 8, 1, 450, 1),
        (tm.system("hgx-h100", count=2), 2, 8, 50, 1),
        (tm.system("trn2.3xlarge", count=3), 4, 3, 25 / 3, 3),
    ],
)
def test_links_of_a_group_by_hand(where, ranks, stride, links, groups):
    group = place(where, np.asarray(float(ranks)), np.asarray(float(stride)))
    assert group.links == pytest.approx(links * GB)
    assert group.groups == groups


@pytest.mark.parametrize(
    ("kind", "algorithm", "asked", "seconds"),
    # of rings 4 accesses a pair of bytes in an all-gather and 6 in a reduce-scatter, of KangaRing 3 and 4 where all
    # ranks of a chip take part; a rank of four has 725 GB/s
    [
        ("all_gather", "ring", {"ranks": 4}, 3 / 2 * 3 / 4 / 725),
        ("all_gather", "ring", {"ranks": 2}, 4 / 2 / 2 / 725),
        ("all_gather", "one_shot", {"ranks": 4}, 4 / 2 * 3 / 4 / 725),
        ("reduce_scatter", "ring", {"ranks": 4}, 4 / 2 * 3 / 4 / 725),
        ("all_reduce", "halving_doubling", {"ranks": 4}, (4 + 6) / 2 * 3 / 4 / 725),
    ],
)
def test_accesses_of_hbm_by_hand(kind, algorithm, asked, seconds):
    where = wires_of("trn2.48xlarge")
    slow = {"alpha_s": 0.0, "algorithm": algorithm}
    links = float(on_links(kind, 1 * GB, where, **asked, **slow).time_s)
    held = float(on_links(kind, 1 * GB, where, **asked, **slow, buffers="hbm").time_s)
    assert held == pytest.approx(max(seconds, links))
    group = place(where, np.asarray(float(asked["ranks"])), np.ones(()))
    assert hbm_s(kind, algorithm, 1 * GB, group) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "kind", "asked", "seconds"),
    [
        # two ranks of a chip: one has 736 GB/s on it and four links of 128 beside
        ("trn2.48xlarge", "all_reduce", {"ranks": 2}, 1 / (736 + 512)),
        # every fourth rank: four groups send all but 1/64 of two buffers over a chip's 1,152 GB/s
        ("trn3-nl32x2-pcie160", "all_reduce", {"ranks": 64, "stride": 4}, 4 * 2 * 63 / 64 / 1152),
        # 8 GPUs: 2 x 7/8 over 450 GB/s, whatever the stride on 16 of them
        ("hgx-h100", "all_reduce", {"ranks": 8}, 2 * 7 / 8 / 450),
    ],
)
def test_more_cuts_by_hand(name, kind, asked, seconds):
    assert on_links(kind, 1 * GB, wires_of(name), **asked).lower_bound_s == pytest.approx(seconds)


def test_three_ranks_pay_a_barrier():
    """1.04 ms of Trn2 at 4 ranks, 0.446 ms more at twice as many."""
    four, eight = graph_barrier_s([4, 8])
    assert graph_barrier_s(3) == pytest.approx(four - (eight - four) * (2 - np.log2(3)))


def test_the_library_switches_at_its_sizes():
    """Mesh below 1 MB, recursive doubling and halving from there to 56 MB and at it."""
    for size, name in ((1e6, "halving_doubling"), (56e6, "halving_doubling")):
        library, named = (
            on_links("all_reduce", size, "trn2.48xlarge", algorithm=one).time_s for one in ("neuron", name)
        )
        assert library == pytest.approx(float(named), rel=1e-12)


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        ({}, 64),
        ({"stride": 3}, 21),  # of 64
        ({"stride": 100}, 1),
        ({"chips": 3}, 12),
        ({"system": "hgx-h100", "chips": 3, "alpha_s": 0.0}, 3),
        ({"system": "trn2.3xlarge", "chips": 1}, 4),
        ({"system": "trn2.3xlarge"}, 4),
        ({"lnc": 1}, 128),
    ],
)
def test_ranks_that_take_part(asked, ranks):
    answer = on_links("all_gather", 1024, **({"system": "trn2.48xlarge"} | asked))
    assert answer.ranks == ranks


@pytest.mark.parametrize("name", ["ranks", "chips", "stride"])
def test_what_is_counted_is_whole(name):
    with pytest.raises(ValueError, match=rf"{name}=2\.5: allowed are whole"):
        on_links("all_gather", 1024, "trn2.48xlarge", **{name: 2.5})


def test_ranks_reach_as_far_as_their_stride():
    found = on_links("all_gather", 1024, "trn2.48xlarge", ranks=16, stride=[4, 5])
    assert found.valid.tolist() == [True, False]
    assert found.reason[1] == "more ranks than the system has"


STACKS = [("trn2.48xlarge", None), ("trn2.48xlarge", "ideal"), ("trn2.48xlarge", ""), ("hgx-h100", "gpu-serving")]


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "broadcast"])
@pytest.mark.parametrize(("name", "stack"), [*STACKS, ("trn3-nl72x2-pcie160", "")])
def test_many_messages_take_what_each_takes_alone(kind, name, stack):
    """One message or many, in groups of one size or many, given one by one or by their number."""
    where = tm.system(name)
    e = None if stack is None else efficiencies(where.chip, stack or where.chip.default_stack)
    lnc = where.chip.logical()
    ranks, stride = np.array([1.0, 4.0, 8.0, 2.0]), np.array([1.0, 1.0, 1.0, 4.0])
    sizes = np.array([0.0, 3e3, 5e6, 7e8])

    def alone(m, n, step):
        return float(on_links(kind, m, where, n, stride=step, lnc=lnc, efficiencies=e, **FREE[e is None]).time_s)

    one_by_one = [alone(m, n, step) for m, n, step in zip(sizes, ranks, stride, strict=True)]
    index = np.array([2, 0, 1, 3, 2])
    by_number = [alone(7e6, ranks[i], stride[i]) for i in index]
    own = (where, ranks, stride, lnc, e)
    times = engine.times_s
    assert times(kind, sizes, *own) == pytest.approx(one_by_one)
    assert times(kind, np.array(7e6), *own, index) == pytest.approx(by_number)
    assert times(kind, np.array(7e6), *own) == pytest.approx(
        [alone(7e6, n, s) for n, s in zip(ranks, stride, strict=True)]
    )
    assert times(kind, sizes[index[:4]], *own, index[:4]) == pytest.approx(
        [alone(sizes[i], ranks[i], stride[i]) for i in index[:4]]
    )
    assert times(kind, sizes, where, 8.0, 1.0, lnc, e) == pytest.approx([alone(m, 8, 1) for m in sizes])
    assert times(kind, sizes, where, 1.0, 1.0, lnc, e).tolist() == [0, 0, 0, 0]
    assert times(kind, sizes, where, ranks, 1.0, lnc, e)[2:] == pytest.approx([alone(5e6, 8, 1), alone(7e8, 2, 1)])
    assert times(kind, sizes, where, 2.0, stride, lnc, e)[2:] == pytest.approx([alone(5e6, 2, 1), alone(7e8, 2, 4)])


FREE = {True: {"launch_s": 0.0, "rate_share": 1.0}, False: {}}


def test_many_messages_on_an_array_of_systems_take_what_each_takes_alone():
    where = tm.system("trn2.48xlarge")
    rates = np.array([700e9, 1e12])[:, None]
    several = replace(where, scaleup_bytes_per_s_per_dir={"instance": rates})
    ranks, sizes = np.array([1.0, 8.0, 16.0]), np.array([0.0, 3e5, 7e8])
    found = engine.times_s("all_reduce", sizes, several, ranks, np.ones(3), 2, None)
    for row, rate in zip(found, rates[:, 0], strict=True):
        one = replace(where, scaleup_bytes_per_s_per_dir={"instance": rate})
        alone = [float(on_links("all_reduce", m, one, n).time_s) for m, n in zip(sizes, ranks, strict=True)]
        assert row == pytest.approx(alone)


def test_a_stack_of_which_some_have_a_fitted_exchange_():
    """An array of latencies: where it is 0 all algorithms are tried with documented latencies, else the stack's."""
    fitted = efficiencies(tm.chip("trainium2"), tm.chip("trainium2").default_stack)
    several = replace(fitted, hop_s=np.array([0.0, fitted.hop_s, 2 * fitted.hop_s]))
    sizes = np.array([[64.0], [1e6], [1e9]])
    found = on_links("all_reduce", sizes, "trn2.48xlarge", ranks=16, efficiencies=several)
    for column, hop_s in enumerate(several.hop_s):
        one = on_links("all_reduce", sizes[:, 0], "trn2.48xlarge", 16, efficiencies=replace(fitted, hop_s=hop_s))
        assert found.time_s[:, column] == pytest.approx(one.time_s)
        assert found.algorithm[:, column].tolist() == one.algorithm.tolist()


def test_a_tray_alone_is_spanned_to_the_byte():
    """16 ranks of 4 chips send into their board's 64 lanes of 8 GB/s, and into nothing else."""
    group = place(tm.system("trn3-nl72x2-pcie160"), np.asarray(16.0), np.asarray(1.0))
    assert float(group.tier_bytes_per_s) == 64 * 8 * GB


def test_one_rank_of_all_cores_is_no_pair():
    """KangaRing pairs the ranks of a chip: where a rank has all of its cores, rings access HBM as rings do."""
    where = wires_of("trn3-nl32x2-pcie160")
    bandwidth = where.chip.hbm_bytes_per_s
    group = place(where, np.asarray(4.0), np.ones(()), lnc=8)
    assert hbm_s("all_gather", "ring", 1 * GB, group) == pytest.approx(4 / 2 * 3 / 4 * GB / bandwidth)


def test_one_rank_pays_no_floor():
    found = on_links("all_reduce", 1 * GB, "trn2.48xlarge", ranks=[1, 2], launch_s=1.0)
    assert found.time_s[0] == 0
    assert found.time_s[1] > 1


def test_chips_are_no_more_than_ranks_may_be():
    with pytest.raises(ValueError, match=r"chips=1e\+30: allowed are whole numbers from 1 to 1e\+27"):
        on_links("all_reduce", 1, tm.chip("trainium2"), chips=1e30)


def test_an_algorithm_by_name_needs_a_latency_too():
    where = replace(tm.chip("h100"), hop_s=np.nan)
    with pytest.raises(ValueError, match="no hop latency is published"):
        on_links("all_reduce", 1, where, ranks=8, algorithm="ring")


def test_specs_are_known_again_as_one_object_alone():
    one, other = tm.system("trn2.48xlarge"), replace(tm.system("trn2.48xlarge"))
    assert Same(one) == Same(one) != Same(other)
    assert Same(one) != one


def test_a_group_is_placed_once_for_all_questions(monkeypatch):
    """Many groups first, then some of them beside a new one: that one alone is placed, and the times are each one's."""
    spec, stack = replace(tm.system("trn2.48xlarge")), tm.efficiencies("trainium2", "hand-tuned")
    ask = "all_reduce", np.array([2.0**20, 2.0**14, 2.0**26]), spec
    every, few = np.array([4.0, 8.0, 16.0]), np.array([16.0, 32.0, 4.0])
    engine.times_s(*ask, every, 1.0, 2, stack)
    placed, place = list[float](), engine.place

    def noted(where, ranks, *more, **options):
        placed.extend(np.ravel(ranks).tolist())
        return place(where, ranks, *more, **options)

    monkeypatch.setattr(engine, "place", noted)
    together = engine.times_s(*ask, few, 1.0, 2, stack)
    assert set(placed) == {32.0}
    alone = [engine.times_s(ask[0], m, spec, n, 1.0, 2, stack) for m, n in zip(ask[1], few, strict=True)]
    np.testing.assert_array_equal(together, alone)


def test_stacks_share_the_bound_without_start_ups():
    """No stack changes what a fabric without start-ups takes, so that all of them hold the same one."""
    spec, stack = replace(tm.system("trn2.48xlarge")), tm.efficiencies("trainium2", "hand-tuned")
    slower = replace(stack, hop_s=2 * stack.hop_s)
    one, other = (engine._wires(Same(spec), Same(e))("all_reduce", "best", 16.0, 1.0, 2) for e in (stack, slower))
    assert one.floor is other.floor
    assert one.floor is not None
