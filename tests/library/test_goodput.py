"""Useful share of the time on each fabric, against published uptimes and arithmetic; what one failed part idles."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.formulas import reliability
from trnmodel.reliability.goodput import replica_availability
from trnmodel.reliability.redundancy import failure_domain_chips, guards, idled, rack_alternatives

HOUR, DAY = 3600.0, 86_400.0
NL32, NL72, TORUS = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus"
FLEET = tm.fleet()
RATED = {"interruptions_per_chip_s": 0.0, "lane_failures_per_s": 1e-9, "cable_failures_per_s": 3e-9}
RATED |= {"switch_failures_per_s": 1e-8}


def left(system):
    return idled(system).set_index("failure")


def test_hlat_s_uptime_on_4096_trainium_chips_lies_in_the_band():
    """The only printed figure of Trainium: 98.81 % of the time with automatic restarts, so 1.19 % goes to restarts."""
    job = tm.goodput("trn1.32xlarge", 4096, model="llama-2-70b")
    low, high = job.ends("restarting_lost")
    assert low < 1 - 0.9881 < high
    assert job.restarting_lost == pytest.approx(0.0119, rel=0.5)


def test_llama_3_trained_over_90_percent_of_the_time():
    """16,384 H100 for 54 days; Lockwood infers 16.7 min for a restart from it, the high end of the range."""
    fleet = replace(tm.fleet("llama-3-h100"), restart_s=16.7 * 60, checkpoint_bytes_per_s=2e12)
    job = tm.goodput("hgx-h100", 16_384, model="llama-3.1-405b", fleet=fleet)
    assert job.mtbf_s == pytest.approx(54 * DAY / 419)
    assert 0.86 < job.useful_share < 0.92
    assert np.exp(-16.7 * 60 / float(job.mtbf_s)) == pytest.approx(0.914, abs=5e-4)  # restarts alone


def test_byte_robust_s_97_percent_of_9600_gpus_lies_in_the_band():
    job = tm.goodput("hgx-h100", 9600, model="llama-3.1-70b")
    low, high = job.ends("useful_share")
    assert low < 0.97 < high


def test_a_checkpoint_of_gpt_3_at_100_gb_per_s_is_28_seconds():
    fleet = replace(FLEET, checkpoint_bytes_per_s=100e9, ranges={})
    job = tm.goodput("hgx-h100", 10_000, checkpoint_bytes=175e9 * 16, fleet=fleet)
    assert job.write_s == pytest.approx(28)
    assert tm.goodput("hgx-h100", 10_000, model="gpt3-175b", fleet=fleet).write_s == pytest.approx(28, rel=0.02)


def test_the_useful_share_is_near_meta_s_closed_form_where_losses_are_small():
    fleet = replace(FLEET, restart_s=300.0, checkpoint_bytes_per_s=1e12, interruptions_per_chip_s=6.5e-3 / DAY / 8)
    job = tm.goodput("hgx-h100", 256 * 8, checkpoint_bytes=60e12, interval_s=3600.0, fleet=fleet)
    assert job.ettr_small_loss == pytest.approx(0.9438, abs=6e-5)  # printed
    assert job.useful_share == pytest.approx(0.9438, abs=2e-3)


@pytest.mark.parametrize(("system", "active", "spares", "chips"), [(NL32, 8, 0, 16), (NL72, 8, 2, 18)])
def test_a_plane_has_the_switches_of_its_lanes_and_the_rest_to_spare(system, active, spares, chips):
    """64 active lanes in ports of x8 are 8 switches; NL72x2 has 10 a plane, NL32x2 8: 16 more lanes end nowhere."""
    plane = guards(system)[0]
    assert (plane.parts - plane.spares, plane.spares, plane.lanes) == (active, spares, 8 * chips)
    fifth = guards(tm.system(NL32).with_switch_trays(5))[0]
    assert (fifth.parts, fifth.spares) == (10, 2)


def test_what_a_lost_switch_leaves_is_counted_on_lanes():
    """NL32x2: 7 of 8 rack switches leave all-to-all 15/16; NL72x2 with three gone sends on 128 + 8 of 144 lanes."""
    assert guards(NL32)[0].left == pytest.approx(15 / 16)
    assert guards(NL72)[0].left == pytest.approx(136 / 144)


def test_one_failed_part_idles_what_the_fabric_says():
    switched, wide, torus = left(NL32), left(NL72), left(TORUS)
    assert switched.idle_hot["one chip"] == 2  # chips a tray
    assert (wide.idle_hot["one chip"], torus.idle_hot["one chip"]) == (4, 16)
    assert (switched.idle_drain["one chip"], wide.idle_drain["one chip"], torus.idle_drain["one chip"]) == (32, 72, 32)
    assert wide.left["one switch tray"] == 1
    assert wide.covered["one switch tray"]
    assert switched.left["one switch tray"] == 0.75  # 48 of 64 lanes: the deep dive's rack of four trays
    assert not switched.covered["one switch tray"]
    assert torus.left["one aec link"] < 1
    assert "one switch tray" not in torus.index


def test_spare_lanes_turn_a_drained_rack_into_nothing():
    """A rack switch that fails idles 72 chips for a repair where racks are drained, and none otherwise."""
    fleet = replace(FLEET, interruptions_per_chip_s=0.0, ranges={}, exposed_share=1.0)
    hot, drain = (tm.goodput(NL72, 16_384, checkpoint_bytes=0.0, fleet=fleet, swap=swap) for swap in ("hot", "drain"))
    assert hot.goodput > 0.95
    assert drain.goodput < 0.8
    assert (hot.spare_chips, hot.failure_domain_chips, drain.failure_domain_chips) == (0, 4, 72)


def test_the_drained_interruptions_are_all_links_and_switches_of_the_job():
    """114 domains of 144 chips: 8 planes x 10 switches x (18 x 8 lanes + switch), and 72 cables, each at its rate."""
    fleet = replace(FLEET, ranges={}, **RATED)
    job = tm.goodput(NL72, 114 * 144, checkpoint_bytes=0.0, fleet=fleet, swap="drain")
    assert 1 / job.mtbf_s == pytest.approx(114 * (80 * (144e-9 + 1e-8) + 72 * 3e-9))


def test_one_degraded_rack_slows_the_whole_job():
    """Without spares, at a swap of T, the share of time with any part out is 1 - (1 - q)^n, and all wait for it."""
    rate, away = 1e-9, 3600.0
    fleet = replace(
        FLEET,
        interruptions_per_chip_s=0.0,
        lane_failures_per_s=rate / 8,
        cable_failures_per_s=rate,
        switch_failures_per_s=0.0,
        swap_s=away,
        restart_s=0.0,
        exposed_share=1.0,
        ranges={},
    )
    job = tm.goodput(NL32, 64 * 100, checkpoint_bytes=0.0, fleet=fleet)
    out = {"plane": 1 - (1 - 16 * rate * away / (1 + 16 * rate * away)) ** (100 * 4 * 8),
           "cable": 1 - (1 - rate * away / (1 + rate * away)) ** (100 * 32)}  # fmt: skip
    expected = (1 - out["plane"] * (1 - 15 / 16)) * (1 - out["cable"] * (1 - 128 / 144))
    assert job.speed == pytest.approx(expected, rel=1e-9)


def test_spares_are_whole_units_and_cost_their_share():
    job = tm.goodput(NL72, 16_384, checkpoint_bytes=1e12)
    assert float(job.spare_chips) % job.failure_domain_chips == 0
    assert job.ready_share >= FLEET.ready_share
    fewer = tm.goodput(
        NL72, 16_384, checkpoint_bytes=1e12, spare_chips=float(job.spare_chips) - job.failure_domain_chips
    )
    assert fewer.ready_share < FLEET.ready_share
    assert job.spare_lost == pytest.approx(job.spare_chips / (16_384 + job.spare_chips))


def test_what_is_out_together_is_an_argument():
    jobs = [
        tm.goodput("gb200-nvl72", 16_384, checkpoint_bytes=1e12, failure_domain_chips=chips) for chips in (None, 18)
    ]
    assert [job.failure_domain_chips for job in jobs] == [4, 18]  # 18 trays of 4
    assert jobs[0].spare_lost < jobs[1].spare_lost


def test_a_replica_of_a_rack_is_away_more_often_than_one_of_a_tray():
    tray, rack = (replica_availability(NL72, n) for n in (4, 72))
    assert rack < tray
    assert replica_availability(NL72, 4, swap="drain") < tray
    rate = 4 * FLEET.interruptions_per_chip_s
    assert 1 - tray > 0.9 * rate * FLEET.repaired_share * FLEET.swap_s


def test_a_drained_replica_is_away_for_a_repair_and_a_restart_by_hand():
    """NL72x2 as above: 80 x (18 x 8 lanes + a switch) + 72 cables, each of which stops a rack for both times."""
    fleet = replace(FLEET, ranges={}, repair_s=7200.0, restart_s=600.0, **RATED)
    down = (80 * (144e-9 + 1e-8) + 72 * 3e-9) * (7200 + 600)
    assert replica_availability(NL72, 72, swap="drain", fleet=fleet) == pytest.approx(1 / (1 + down), rel=1e-12)


def test_a_replica_without_links_is_away_as_often_as_its_chips_by_hand():
    """A part of the interruptions is repaired, for a swap; after the others it starts again. A drain takes the rack."""
    rates = dict.fromkeys(RATED, 0.0) | {"interruptions_per_chip_s": 1e-7}
    rates |= {"repaired_share": 0.25, "swap_s": 3600.0, "repair_s": 7200.0, "restart_s": 100.0}
    fleet = replace(FLEET, ranges={}, **rates)
    for chips, swap, reach, away in (
        (1, "hot", 1, 3600),
        (8, "hot", 8, 3600),
        (8, "drain", 72, 7200),
        (73, "drain", 144, 7200),
    ):
        down = reach * 1e-7 * (0.25 * away + 0.75 * 100)
        found = replica_availability(NL72, chips, swap=swap, fleet=fleet)
        assert found == pytest.approx(1 / (1 + down), rel=1e-12), (chips, swap)


def test_k_of_n_replicas_by_hand():
    """Two of three: a^3 + 3 a^2 (1 - a)."""
    one = float(replica_availability(NL72, 8, fleet=replace(FLEET, interruptions_per_chip_s=1e-6)))
    three = replica_availability(NL72, 8, 3, 2, fleet=replace(FLEET, interruptions_per_chip_s=1e-6))
    assert three == pytest.approx(one**3 + 3 * one**2 * (1 - one), rel=1e-9)
    assert replica_availability(NL72, 8, 3, fleet=replace(FLEET, interruptions_per_chip_s=1e-6)) == pytest.approx(
        one**3
    )


def test_the_card_says_band_and_basis():
    card = "\n".join(tm.goodput(NL72, 16_384, model="llama-3.1-405b").card())
    assert card.startswith("Goodput: useful share of the time 0.")
    assert "extrapolated" in card
    assert "fleet: borrowed" in card


def test_a_table_has_a_row_a_point():
    frame = tm.goodput(NL72, np.array([1000, 16_384]), model="llama-3.1-8b").to_frame()
    assert len(frame) == 2
    assert frame[[c for c in frame if c.endswith("_lost")]].sum(axis=1).add(frame.goodput).tolist() == pytest.approx(
        [1, 1]
    )


ODD = {
    "half a chip": ({"chips": 0.5}, "chips"),
    "a model and bytes": ({"model": "llama-3.1-8b"}, "model"),
    "a swap that is none": ({"swap": "warm"}, "swap"),
    "an unknown fleet": ({"fleet": "llama-4"}, "fleet"),
    "no chip together": ({"failure_domain_chips": 0.5}, "failure_domain_chips"),
    "no time between checkpoints": ({"interval_s": 0.0}, "interval_s"),
    "arrays that do not fit": ({"chips": [1, 2], "step_spread": [0.1, 0.2, 0.3]}, "step_spread"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_questions_are_refused(name):
    given, named = ODD[name]
    with pytest.raises(ValueError, match=named):
        tm.goodput(NL72, **{"chips": 1024, "checkpoint_bytes": 1e12} | given)


@pytest.mark.parametrize("system", ["inf2.xlarge", "trn2.3xlarge", "tpu-v5p-pod", "mi300x-8", "gb200-nvl72"])
def test_any_system_has_an_answer(system):
    """A single chip, a mesh, a torus of thousands of chips, a switch that is drawn as one."""
    job = tm.goodput(system, model="llama-3.1-8b")
    assert 0 < job.goodput <= 1
    assert failure_domain_chips(system) >= 1


def test_a_chip_that_always_fails_leaves_nothing():
    fleet = replace(FLEET, interruptions_per_chip_s=1.0, ranges={})
    job = tm.goodput(NL72, 16_384, checkpoint_bytes=1e12, fleet=fleet)
    assert job.goodput == 0
    assert reliability.best_interval_s(1.0, 16_384.0) == pytest.approx(1 / 16_384)


def test_a_rack_that_is_drawn_as_one_switch_fails_like_any_other():
    """NVL72: 18 links of 2 lanes per GPU, one to each of 18 switches; 17 of 18 links are left."""
    rack = guards("gb200-nvl72")[0]
    assert (rack.groups, rack.parts, rack.spares, rack.lanes, rack.switches) == (1, 18, 0, 144, 1)
    assert rack.left == pytest.approx(17 / 18)
    fleet = replace(FLEET, ranges={}, **RATED)
    job = tm.goodput("gb200-nvl72", 100 * 72, checkpoint_bytes=0.0, fleet=fleet)
    assert 1 / job.mtbf_s == pytest.approx(100 * 18 * (144e-9 + 1e-8), rel=1e-12)
    table = idled("gb200-nvl72").set_index("failure")
    assert table.left["one backplane link"] == pytest.approx(17 / 18)
    assert table.idle_hot.tolist() == [4, 0, 0]
    assert table.idle_drain.tolist() == [72, 72, 72]


def test_gb200_is_interrupted_as_often_as_is_printed():
    """SemiAnalysis: an interruption every 1,000 to 3,000 GPU-days on GB200 NVL72, and 2,000 to 5,000 on H100.

    The rate of a lane is inferred from the difference, the rate of a chip is not.
    """
    rack, server = (tm.goodput(name, 7200, checkpoint_bytes=0.0) for name in ("gb200-nvl72", "hgx-h100"))
    days = [7200 * np.array([float(x) for x in (job.mtbf_s, *job.ends("mtbf_s"))]) / DAY for job in (rack, server)]
    assert days[0][1] < 1000 < days[0][0] < 3000
    assert days[1][1] < 2000 < days[1][2]


@pytest.mark.parametrize("swap", ["hot", "drain"])
def test_two_racks_with_equal_data_get_equal_answers(swap):
    """The name, the maker and the chip's name of a rack decide nothing."""
    one, other = tm.system("gb200-nvl72"), tm.system("gb300-nvl72")
    swapped = replace(one, id=other.id, name=other.name), replace(other, id=one.id, name=one.name)
    for mine, its in zip((one, other), swapped, strict=True):
        ask = {"chips": 16_384, "checkpoint_bytes": 4e12, "swap": swap}
        assert tm.goodput(mine, **ask).goodput == tm.goodput(its, **ask).goodput
    assert tm.goodput(one, 16_384, checkpoint_bytes=4e12, swap=swap).goodput == pytest.approx(
        float(tm.goodput(other, 16_384, checkpoint_bytes=4e12, swap=swap).goodput)
    )
    nl32 = tm.system(NL32)
    assert guards(replace(nl32, id="x", name="gb200-nvl72")) == guards(nl32)


def test_the_rate_of_a_lane_is_what_the_printed_days_say():
    """(1/3,000 - 1/5,000) to (1/1,000 - 1/2,000) a GPU-day over 36 lanes; 0.005 % a day and 0.057 % a month a cable."""
    low, high = FLEET.range("lane_failures_per_s")
    assert low * DAY * 36 == pytest.approx(1 / 3000 - 1 / 5000, rel=5e-3)
    assert high * DAY * 36 == pytest.approx(1 / 1000 - 1 / 2000, rel=5e-3)
    assert tm.fleet("tpu-v4-pods").cable_failures_per_s * DAY == pytest.approx(5e-5)
    assert tm.fleet("alibaba-hpn").cable_failures_per_s * DAY * 365.25 / 12 == pytest.approx(5.7e-4)
    assert tm.fleet("alibaba-hpn").switch_failures_per_s * DAY * 365.25 / 12 == pytest.approx(5.1e-4)
    assert tm.fleet("alibaba-hpn").lane_failures_per_s == FLEET.lane_failures_per_s


def test_redundant_lanes_on_the_same_switches_spare_lanes_and_no_switch():
    """NL32x2: 16 lanes are 2 for each of 8 links, so that a switch has 16 x (8 + 2) = 160 of its 160 lanes in use."""
    cases = rack_alternatives(NL32)
    assert len(cases) == 3
    drawn, same, five = cases.values()
    switch, lane = guards(same)[:2]
    assert (switch.parts, switch.spares, switch.lanes, switch.switches) == (8, 0, 0, 1)
    assert (lane.groups, lane.parts, lane.spares, lane.lanes) == (2 * 32 * 8, 10, 2, 1)
    assert five.switch_trays_per_rack == 5
    ask = {"chips": 16_384, "checkpoint_bytes": 4e12}
    shares = [float(tm.goodput(one, **ask).goodput) for one in (drawn, same, five)]
    assert shares[0] < shares[1] < shares[2]
    never = replace(FLEET, ranges={}, switch_failures_per_s=0.0)
    one, other = (float(tm.goodput(spec, fleet=never, **ask).goodput) for spec in (same, five))
    assert one == pytest.approx(other, rel=5e-3)  # without failures of switches lanes are all that is left


@pytest.mark.parametrize(
    ("name", "changes"),
    [(NL72, {}), (TORUS, {}), ("gb200-nvl72", {}), (NL32, {"scaleup_lanes_redundant": 4.0}),
     (NL32, {"scaleup_lanes_redundant": 32.0})],
)  # fmt: skip
def test_redundant_lanes_that_no_switch_has_lanes_for_are_refused(name, changes):
    with pytest.raises(ValueError, match="redundant_lane_ends"):
        replace(tm.system(name), redundant_lane_ends="active switches", **changes)


def test_a_domain_too_large_for_a_flow_counts_its_links_with_its_chips(monkeypatch):
    monkeypatch.setattr("trnmodel.reliability.redundancy.LARGEST_LP", 63)
    assert guards(replace(tm.system(TORUS), name="of 64 chips")) == ()
    assert guards("tpu-v5p-pod") == ()
    assert guards("hgx-h100") == guards("trn1.32xlarge") == ()
