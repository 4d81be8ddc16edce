"""The chapter of lost time: parts that sum, printed uptimes, spare lanes, intervals, replicas and draws."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import goodput as tables
from trnbook.chapters import goodput_uptimes as uptimes
from trnmodel.reliability import goodput as planner
from trnmodel.reliability.redundancy import guards, lane_pair

NL32, NL72, TORUS = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus"
CALLED = {NL32: "small", NL72: "large", TORUS: "torus"}
FLEET = tm.fleet()
ASK = {"chips": 16_384, "model": "llama-3.1-405b", "fleet": FLEET}


@pytest.fixture(scope="module")
def found():
    return tables.jobs([NL72, TORUS], CALLED, **ASK)


def test_a_bar_is_all_the_time(found):
    sums = tables.losses(found).groupby("of").time_share.sum()
    assert len(sums) == 4
    assert sums.to_numpy() == pytest.approx(1, abs=1e-12)
    assert len(tables.PARTS) == 1 + len(planner.LOSSES)


def test_a_job_up_is_one_that_does_not_restart(found):
    job = found["large", "hot"]
    assert job.running_share == pytest.approx(np.exp(-job.fleet.restart_s / job.mtbf_s))
    assert float(job.useful_share) < float(job.running_share) < 1


def test_rules_are_those_of_the_printed_table():
    """delta 300 s, 3.0931 h: Young 2584.78, Daly 2284.78 and 2388.65, exact 2388.77 s."""
    fleet = replace(FLEET, interruptions_per_chip_s=419 / (54 * 86400) / 16_384, checkpoint_bytes_per_s=1.0, ranges={})
    job = tm.goodput("hgx-h100", 16_384, checkpoint_bytes=300.0, fleet=fleet)
    table = tables.rules(job)
    assert table.interval_s.tolist() == pytest.approx([2584.78, 2284.78, 2388.65, 2388.77], abs=0.02)
    assert table.lost_share.idxmin() == 3


def test_the_curve_is_least_at_the_best_interval(found):
    job = found["torus", "hot"]
    curve = tables.over_intervals(job, ASK["model"])
    own = curve[curve.of == "16,384 chips"]
    assert own.interval_min[own.lost_share.idxmin()] * 60 == pytest.approx(float(job.interval_s), rel=0.2)
    assert own.lost_share.min() == pytest.approx(1 - float(job.useful_share), abs=2e-3)
    assert list(curve.of.unique()) == ["4,096 chips", "16,384 chips", "65,536 chips"]


def test_one_failed_part_in_words():
    cells = tables.idle([NL72, TORUS, "inf2.48xlarge"], CALLED | {"inf2.48xlarge": "ring"}).set_index("part that fails")
    assert cells.large["switch tray"] == "nothing"
    assert cells.torus["switch tray"] == "has none"
    assert cells.torus["chip"].startswith("16 chips stand still")
    assert "link" in cells.index
    assert not [part for part in cells.index if part.endswith("lane")]


def test_spare_lanes_are_two_switches_of_ten_on_either_rack():
    """16 redundant lanes of 64 in ports of x8: 8 switches a plane, 10 with spares; 4 trays of two or 10 of one."""
    for system in (NL32, NL72):
        pair = lane_pair(tm.system(system))
        assert [(guards(one)[0].parts, guards(one)[0].spares) for one in pair] == [(8, 0), (10, 2)]
    assert lane_pair(tm.system(TORUS)) is None
    assert lane_pair(tm.system("trn3-nl72x2-aws-lanes")) is None


def test_spare_lanes_are_worth_nothing_where_no_link_fails():
    pair = lane_pair(tm.system(NL72))
    fleet = replace(FLEET, switch_failures_per_s=0.0, ranges={})
    ways = {"with": (pair[1], "hot"), "without": (pair[0], "hot")}
    wide = tables.swept(
        ways, "lane_failures_per_s", np.array([1e-15, 1e-9]), chips=4096, model="llama-3.1-8b", fleet=fleet
    )
    wide = wide.pivot(index="lane_failures_per_s", columns="of", values="goodput")
    gain = (wide["with"] - wide["without"]).tolist()
    assert gain[0] == pytest.approx(0, abs=1e-6)
    assert gain[1] > 0.005


def test_limping_racks_are_those_of_the_answer(found):
    """Any of 256 x 64 AEC links out: 1 - (1 - q)^n with q = rate x T / (1 + rate x T)."""
    limps = planner.limping(TORUS, FLEET, 16_384).set_index("part")
    assert limps.speed.prod() == pytest.approx(float(found["torus", "hot"].speed))
    away = FLEET.cable_failures_per_s * FLEET.swap_s
    assert limps["any"]["aec link"] == pytest.approx(1 - (1 - away / (1 + away)) ** (256 * 64))
    assert len(planner.limping("hgx-h100", FLEET, 8)) == 0


def test_printed_uptimes():
    table = uptimes.uptimes().set_index("what")
    assert table.fair.sum() == 4
    assert table.inside[table.fair].all()
    assert not table.inside["HLAT, restarts by hand"]
    assert not table.fair["Llama 3.1 405B"]  # the high end of the time to restart was inferred from it
    never = replace(FLEET, **dict.fromkeys(("interruptions_per_chip_s", "restart_s"), 0.0), ranges={})
    assert uptimes.uptimes(never).predicted.min() == 1
    assert uptimes.uptimes(never).inside.sum() == 1  # "over 90%" is no more than a bound


def test_a_restart_by_hand_is_as_long_as_the_printed_share_says():
    row = uptimes.rows()[1]
    fleet = replace(FLEET, restart_s=uptimes.restart_implied_s(row), ranges={})
    job = tm.goodput(row.system, row.chips, model=row.model, fleet=fleet)
    assert job.running_share == pytest.approx(0.7783)


def test_replicas_that_are_away_by_hand():
    """Without ranges every draw is the value: hours of a year times the share."""
    fleet = replace(FLEET, ranges={"swap_s": (FLEET.swap_s * 0.999, FLEET.swap_s * 1.001)})
    table = tables.served({TORUS: "torus"}, 16, 3, 1, fleet)
    away = 8760 * (1 - float(planner.replica_availability(TORUS, 16, fleet=fleet)))
    assert float(table["one replica is away [h a year]"][0].split(" (")[0]) == pytest.approx(away, rel=0.06)
    assert "fewer than 1 of 3 work [h a year]" in table
    assert len(tables.served({TORUS: "torus"}, 16, 1, 1, fleet).columns) == 3


def test_draws_are_common_and_bars_hold_the_answer():
    pair = lane_pair(tm.system(NL72))
    draws = tables.drawn({NL72: "large", TORUS: "torus"}, FLEET, pair, chips=16_384, model="llama-3.1-405b", swap="hot")
    assert (draws.values["spare lanes"] > 0).all()
    bars = tables.tornado(draws, "large")
    assert (bars.lost_share_low <= bars.lost_share).all()
    assert (bars.lost_share <= bars.lost_share_high).all()
    assert set(bars.which) <= set(tables.INPUTS.values())
    assert "time to repair a rack" not in set(bars.which)  # nothing is drained


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.5, "50% (40 to 60)"), (0.99998, "all but 0.002%"), (1e-9, "under 0.01%"), (0.0, "under 0.01%")],
)
def test_a_share_is_printed_with_the_digits_that_it_has(share, said):
    class Job:
        goodput, low, high = share, max(share - 0.1, 0), min(share + 0.1, 1.0)

    assert tables.percent(Job()).startswith(said)


def test_racks_stand_beside_each_other_as_they_may_be_built():
    """NL32x2 in three ways, NL72x2 in two, a torus and NVL72 in none but their own."""
    called = CALLED | {"gb200-nvl72": "nvl72"}
    table = tables.alternatives([NL32, NL72, TORUS, "gb200-nvl72"], called, **ASK)
    assert table.system.tolist() == ["small"] * 3 + ["large"] * 2
    assert table.built.tolist() == [
        *("as drawn", "redundant lanes on its 4 switch trays", "5 switch trays"),
        *("as drawn", "8 switch trays"),
    ]
    assert table["to spare"].tolist()[:3] == ["nothing", "2 of 10 lanes of a link", "2 of 10 switches of a plane"]
    five = tm.goodput(tm.system(NL32).with_switch_trays(5), **ASK)
    assert table["trays swapped"][2] == tables.percent(five)


def test_all_printed_uptimes_are_told_apart():
    """Eight rows; four are no predictions, each with its reason, and one of these lies in the band."""
    table = uptimes.uptimes()
    assert len(table) == 8
    assert (table.no_prediction == "").tolist() == table.fair.tolist()
    assert sorted(table.no_prediction[~table.fair]) == [
        *["fewer than 4,096 chips"] * 2,
        "people restarted it by hand",
        "the high end of the time to restart was inferred from it",
    ]
    assert table.inside.sum() == 5
