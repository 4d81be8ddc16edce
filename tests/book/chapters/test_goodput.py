"""The chapter of lost time: failures of a rack by hand, parts that sum, printed uptimes, racks as built, replicas."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import goodput as tables
from trnbook.chapters import goodput_uptimes as uptimes
from trnbook.shared import case
from trnmodel.formulas.tco import HOURS_PER_YEAR
from trnmodel.reliability import goodput as planner
from trnmodel.reliability.redundancy import guards, lane_pair
from trnmodel.units import YEAR

NL32, NL72, TORUS = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus"
FLEET = tm.fleet()
ASK = {"model": "llama-3.1-405b", "fleet": FLEET}


@pytest.fixture(scope="module")
def jobs():
    specs = [tm.system(name) for name in (NL72, TORUS)]
    return {name: tm.goodput(one, 16_384, swap=how, **ASK) for name, (one, how) in tables.variants(specs).items()}


def test_failures_of_a_small_rack_by_hand():
    """4 planes of 8 switches in two racks: 16 a rack, of 128 lanes each; 32 chips with the causes of Llama 3."""
    parts = tables.rack(tm.system(NL32), FLEET).set_index("part")
    assert parts.number["switch chips"] == 16
    assert parts.number["backplane lanes"] == 16 * 128
    assert parts.failures_per_year["backplane lanes"] == pytest.approx(2048 * FLEET.lane_failures_per_s * YEAR)
    chips = 32 * FLEET.interruptions_per_chip_s * YEAR * tm.fleet("llama-3-h100").causes["chip"]
    assert parts.failures_per_year["chips with memory"] == pytest.approx(chips)
    assert not parts.spared.any()
    assert (parts.failures_per_year_low < parts.failures_per_year).all()
    assert parts.failures_per_year.is_monotonic_decreasing


def test_spares_cover_lanes_and_switches_of_the_large_rack():
    parts = tables.rack(tm.system(NL72), FLEET).set_index("part")
    assert parts.spared[["backplane lanes", "switch chips"]].all()
    assert not parts.spared["cables between racks"]
    assert tables.rack(tm.system("hgx-h100"), FLEET).number.tolist() == [8] * 4
    torus = tables.rack(tm.system(TORUS), FLEET).set_index("part")
    assert "switch chips" not in torus.index
    assert not torus.spared.any()
    assert not tables.rack(tm.system(NL72), FLEET, "drain").spared.any()  # its rack is emptied all the same


@pytest.mark.parametrize("system", [NL32, NL72, TORUS, "hgx-h100"])
def test_a_part_that_never_fails_costs_nothing(system):
    """What each part costs is between nothing and all that is lost, and no failures at all lose checkpoints alone."""
    spec = tm.system(system)
    parts, job = tables.rack(spec, FLEET), tm.goodput(spec, 4096, **ASK)
    without = {one: tm.goodput(spec, 4096, model=ASK["model"], fleet=tables.never(FLEET, one)) for one in parts.part}
    lost = tables.priced(parts, job, without)
    assert (lost.lost_share >= 0).all()
    assert lost.lost_share.sum() < 1 - float(job.goodput)
    fleet = FLEET
    for one in parts.part:
        fleet = tables.never(fleet, one)
    assert fleet.lane_failures_per_s * (system != "hgx-h100") == 0
    often, dear = tables.dearest(lost)
    assert often == lost.of[0]
    assert dear in set(lost.of)
    assert len(tables.claim(lost).split()) <= 10
    assert all(f"{x:.1%}" in label for x, label in zip(lost.lost_share, lost.of, strict=True) if x > 0.001)


def test_failures_of_a_rack_are_a_rate_times_a_number():
    """2,048 lanes at their rate in a million hours, and the product in a year."""
    said = tables.multiplied(tables.rack(tm.system(NL32), FLEET)).data
    each, together = FLEET.lane_failures_per_s * 3.6e9, 2048 * FLEET.lane_failures_per_s * YEAR
    assert said.startswith(
        f"One rack has 2,048 backplane lanes, of which each fails {each:.2g} times in a million hours"
    )
    assert f"they fail {together:.2g} times" in said


@pytest.mark.parametrize("swap", ["hot", "drain"])
def test_the_card_has_the_draws_and_the_days_of_a_run(swap):
    spec = tm.system(NL32)

    def useful(fleet):
        return tm.goodput(spec, 16_384, model=ASK["model"], swap=swap, fleet=fleet)

    job, draws = useful(FLEET), tm.sensitivity(useful, {"fleet": FLEET}, 500)
    said = tables.answer(job, {}, FLEET, draws).data
    cuts = draws.percentiles().iloc[0]
    assert f"({100 * cuts.p5:.0f} to {100 * cuts.p95:.0f}; extrapolated)" in said
    assert f"takes {30 * float(1 - job.spare_lost) / float(job.goodput):.0f} days in the calendar" in said
    assert ("racks are drained for a repair" in said) == (swap == "drain")


def test_a_title_names_what_fails_most_and_what_costs_most():
    parts = pd.DataFrame({"part": ["lanes", "chips"], "failures_per_year": [2.0, 1.0], "lost_share": [0.1, 0.2]})
    assert tables.claim(parts) == "Lanes fail most often, chips cost most"
    assert tables.claim(parts.assign(lost_share=[0.3, 0.2])) == "Lanes fail most often and cost most"


def test_a_bar_is_what_is_not_useful(jobs):
    sums = tables.losses(jobs).groupby("of", sort=False).lost_share.sum()
    assert len(sums) == 5  # NL72x2 without spare switches stands between its other two
    assert sums.to_numpy() == pytest.approx([1 - float(job.goodput) for job in jobs.values()], abs=1e-12)
    assert sum(map(len, tables.LOSSES.values())) == len(planner.LOSSES)
    assert tables.compare(jobs).job.tolist() == list(jobs)


def test_racks_stand_beside_each_other_as_they_may_be_built():
    """NL32x2 in three ways, NL72x2 in two, a torus and NVL72 in none but their own."""
    built = tables.built(map(tm.system, (NL32, NL72, TORUS, "gb200-nvl72")))
    assert [how.split(", ", 1)[1] for how in built] == [
        *("as drawn", "redundant lanes on its 4 switch trays", "5 switch trays"),
        *("as drawn", "8 switch trays"),
    ]
    result = {name: tm.goodput(one, 16_384, **ASK) for name, (one, _) in built.items()}
    table = tables.alternatives(built, result)
    assert table["to spare"].tolist()[:3] == ["nothing", "2 of 10 lanes of a link", "2 of 10 switches of a plane"]
    five = tm.goodput(tm.system(NL32).with_switch_trays(5), 16_384, **ASK)
    assert table["useful share"][2] == tables.percent(five)


def test_spare_lanes_are_two_switches_of_ten_on_either_rack():
    """16 redundant lanes of 64 in ports of x8: 8 switches a plane, 10 with spares; 4 trays of two or 10 of one."""
    for system in (NL32, NL72):
        pair = lane_pair(tm.system(system))
        assert [(guards(one)[0].parts, guards(one)[0].spares) for one in pair] == [(8, 0), (10, 2)]
    assert lane_pair(tm.system(TORUS)) is None
    assert lane_pair(tm.system("trn3-nl72x2-aws-lanes")) is None


def test_intervals_of_the_printed_table():
    """delta 300 s, 3.0931 h: Young 2584.78 and the exact 2388.77 s, which loses least."""
    fleet = replace(FLEET, interruptions_per_chip_s=419 / (54 * 86400) / 16_384, checkpoint_bytes_per_s=1.0, ranges={})
    ask = {"checkpoint_bytes": 300.0, "fleet": fleet}
    job = tm.goodput("hgx-h100", 16_384, **ask)
    assert float(job.young_s) == pytest.approx(2584.78, abs=0.02)
    steps = {"Young": job.young_s, "Daly": job.daly_s, "twice": 2 * job.interval_s}
    lost = {name: tm.goodput("hgx-h100", 16_384, interval_s=tau, **ask) for name, tau in steps.items()}
    table = tables.rules(job, lost)
    assert table.interval_s[0] == pytest.approx(2388.77, abs=0.02)
    assert table.lost_share.idxmin() == 0
    assert table.rule.tolist() == ["best", *steps]


def test_a_larger_job_is_interrupted_more_often():
    many = {n: tm.goodput(NL32, n, **ASK) for n in tables.SIZES}
    table = tables.sizes(many)
    assert table.chips.tolist() == list(tables.SIZES)
    assert float(many[1024].mtbf_s / many[4096].mtbf_s) == pytest.approx(4)


def compared(fleet):
    printed = uptimes.rows()
    return uptimes.uptimes(
        printed, [tm.goodput(one.system, one.chips, model=one.model, fleet=fleet) for one in printed]
    )


def test_printed_uptimes():
    table = compared(FLEET).set_index("what")
    assert table.fair.sum() == 4
    assert table.inside[table.fair].all()
    assert not table.inside["HLAT, restarts by hand"]
    assert not table.fair["Llama 3.1 405B"]  # the high end of the time to restart was inferred from it
    never = replace(FLEET, **dict.fromkeys(("interruptions_per_chip_s", "restart_s"), 0.0), ranges={})
    assert compared(never).predicted.min() == 1
    assert compared(never).inside.sum() == 1  # "over 90%" is no more than a bound
    assert uptimes.described(compared(FLEET)).startswith("4 of 4 tests lie in the range; 3 of 4 set aside")


def test_all_printed_uptimes_are_told_apart():
    """Eight rows; four are no predictions, each with its reason, and one of these lies in the band."""
    table = compared(FLEET)
    assert len(table) == 8
    assert (table.no_prediction == "").tolist() == table.fair.tolist()
    assert sorted(table.no_prediction[~table.fair]) == [
        *["fewer than 4,096 chips"] * 2,
        "people restarted it by hand",
        "the high end of the time to restart was inferred from it",
    ]
    assert table.inside.sum() == 5
    shown = uptimes.shown(table)
    assert shown["no test, because"].tolist()[:4] == [""] * 4
    assert len(shown) == 8


def test_hours_of_a_replica_are_those_of_the_case():
    """Each cause is a share of a year, and together they are the line of the case."""
    (line,) = [one for one in case.LINES if one.chapter == "goodput"]
    capacity = tm.plan("deepseek-v3", case.request("deepseek-v3"), systems=NL32, availability=0.9999).capacity
    table = tables.hours("deepseek-v3", NL32, capacity)
    assert table.cause.tolist() == ["chip", "host, network, software", "links and switches"]
    assert table.lost_h.sum() == pytest.approx(case.value(line, "deepseek-v3", NL32))
    out = 1 - float(planner.replica_availability(NL32, capacity.choice.chips))
    assert table.lost_h.sum() == pytest.approx(out * HOURS_PER_YEAR)


def test_draws_hold_the_answer():
    spec = tm.system(NL32)
    draws = tm.sensitivity(
        lambda fleet: tm.goodput(spec, 16_384, model=ASK["model"], fleet=fleet), {"fleet": FLEET}, 500
    )
    bars = tables.tornado(draws)
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


def test_limping_racks_are_those_of_the_answer(jobs):
    """Any of 256 x 64 AEC links out: 1 - (1 - q)^n with q = rate x T / (1 + rate x T)."""
    limps = planner.limping(TORUS, FLEET, 16_384).set_index("part")
    assert limps.speed.prod() == pytest.approx(float(jobs["NL32x2 3D Torus, trays swapped"].speed))
    away = FLEET.cable_failures_per_s * FLEET.swap_s
    assert limps["any"]["aec link"] == pytest.approx(1 - (1 - away / (1 + away)) ** (256 * 64))
    assert len(planner.limping("hgx-h100", FLEET, 8)) == 0


def test_a_system_whose_links_nobody_rates_is_refused():
    with pytest.raises(ValueError, match="swap = 'cold' must be one of hot, drain"):
        tables.check(NL32, [], "cold", "borrowed")
    specs, fleet = tables.check(NL32, [NL72, NL32], "hot", "llama-3-h100")
    assert ([one.id for one in specs], fleet.id) == ([NL32, NL72], "llama-3-h100")
    assert np.isfinite(fleet.restart_s)
