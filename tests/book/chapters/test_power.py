"""The power chapter: joules are watts over rate, parts sum, sites by hand, verdicts, claims as points, odd cases."""

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import power as tables
from trnbook.chapters import power_joules as joules
from trnbook.chapters.power_claims import claim_sets, largest, region
from trnbook.chapters.power_rack import rack_power
from trnmodel.catalog import facilities, load
from trnmodel.power.energy import one_at_a_time

REQUEST = tm.Request(1792, 512)
MODEL, AIR, LIQUID = "llama-3.1-8b", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"


@pytest.fixture(scope="module")
def spent():
    return joules.joules(MODEL, [AIR, "hgx-h100", "trn1.32xlarge"], [40.0, 1e5], REQUEST)


@pytest.fixture(scope="module")
def energies(spent):
    line = joules.line_of(spent, 40.0, AIR)
    return {site: joules.point(MODEL, line, facility=site) for site in ("aws-air", "aws-chilled")}


def test_joules_are_watts_over_rate(spent):
    known = spent.dropna(subset="server_j_per_token")
    assert len(known) == 6
    assert np.allclose(known.server_j_per_token * known.tokens_per_s_per_chip, known.server_w)
    assert (known.server_j_per_token_low < known.server_j_per_token).all()
    assert (known.server_j_per_token < known.server_j_per_token_high).all()
    most = known.system.map({"hgx-h100": 1.029 * 700 + 226.5, AIR: 1.029 * 850 + (113.2 + 226.5) / 2})
    assert (known.server_w <= most * (1 + 1e-9)).all()


def test_what_is_too_slow_or_has_no_watts_is_said(spent):
    cells = tables.compare({MODEL: spent}).set_index(["wanted_tokens_per_s_per_user", "system"])
    assert cells.public[40.0, "trn1.32xlarge"] == "no watts known"
    assert set(cells.public[1e5]) == {"too slow"}
    assert joules.line_of(spent, 1e5, AIR) is None
    assert (
        tables.describe_order({MODEL: spent}, [1e5], {}) == f"* **{MODEL} at 100000 tokens/s a user**: none is as fast."
    )


def test_parts_are_the_chip(energies):
    e = energies["aws-air"]
    piled = tables.parts({"a": e})
    assert piled.chip_w.sum() == pytest.approx(float(e.chip_w))
    both = tables.two_estimates(e).set_index("part")
    assert both.shares_w.iloc[:3].sum() == pytest.approx(both.shares_w.iloc[-1])
    assert both.energies_w.iloc[:4].sum() == pytest.approx(both.energies_w.iloc[-1])
    assert both.shares_w_high.iloc[-1] <= 1000.0  # the high end of the TDP


def test_a_megawatt_at_two_peaks(energies):
    """1 MW / 1.2 = 833.3 kW and / 1.5 = 666.7 kW: four fifths of the chips and of the tokens."""
    held = tables.sites(energies).set_index("site")
    assert held["IT of a site MW [kW]"].tolist() == pytest.approx([833.333, 666.667], rel=1e-5)
    air, chilled = energies.values()
    assert float(chilled.chips_per_site_mw / air.chips_per_site_mw) == pytest.approx(0.8)
    assert float(chilled.tokens_per_s_per_site_mw / air.tokens_per_s_per_site_mw) == pytest.approx(0.8)
    assert float(chilled.facility_j_per_token / air.facility_j_per_token) == pytest.approx(1.25 / 1.14)


def test_one_chip_in_two_racks_cannot_flip_itself():
    line = {"system": AIR, "watts_below": 9.0, "time_below": 9.0}
    best = {"system": LIQUID, "watts_above": 9.0, "time_above": 9.0}
    assert joules.moved_by(0.5, line, best) == "nothing"
    assert joules.moved_by(0.5, line | {"system": "hgx-h100"}, best) == "watts or speed"
    assert joules.moved_by(0.005, line, best) == "level"


def test_a_gap_is_between_middles_whatever_the_bands():
    """1.2 against 1 joule: log 1.2 = 0.182 is more than the watts' 0.15 and less than the speed's 0.2."""
    import pandas as pd

    names = {
        "wanted_tokens_per_s_per_user": 40.0,
        "software": "public",
        "server_j_per_token_low": 0.01,
        "server_j_per_token_high": 9.0,
        "watts_below": 0.1,
        "watts_above": 0.05,
        "time_below": 0.1,
        "time_above": 0.1,
    }
    table = pd.DataFrame(
        [names | {"system": AIR, "server_j_per_token": 1.2}, names | {"system": "hgx-h100", "server_j_per_token": 1.0}]
    )
    best, others = joules.verdicts(table, 40.0, "public")
    assert (best.system, others) == ("hgx-h100", {AIR: "speed"})
    assert joules.verdicts(table, 50.0, "public") == (None, {})


def test_quantiles_stand_at_the_shares_of_their_draws(spent):
    """19 from 5 to 95 %, in order; the middle one is the median of the draws, and who has no answer says why."""
    public = spent[spent.software == "public"]
    found = joules.quantiles(MODEL, public, draws=500)
    one = found[found.system == AIR].dropna(subset="share_of_draws")
    np.testing.assert_allclose(one.share_of_draws, np.linspace(0.05, 0.95, 19), rtol=1e-12)
    assert (np.diff(one.server_j_per_token) > 0).all()
    assert joules.drawn(MODEL, joules.line_of(public, 40.0, AIR)).values["answer"].size == 4000
    draws = joules.drawn(MODEL, joules.line_of(public, 40.0, AIR), 500).values["answer"]
    for share, spent_j in zip(one.share_of_draws, one.server_j_per_token, strict=True):
        assert (draws < spent_j).mean() == pytest.approx(share, abs=2 / 500)
    why = found[found.share_of_draws.isna()].set_index(["system", "wanted_tokens_per_s_per_user"]).why
    assert why["trn1.32xlarge", 40.0] == "no source has watts of this chip"
    assert why[AIR, 1e5] == "too slow for a user"


def test_one_input_at_a_time_lies_within_all_of_them(energies):
    e = energies["aws-air"]
    moved, (low, high) = one_at_a_time(e), map(float, e.ends("server_j_per_token"))
    energies = {f"energy of {one}" for one in ("compute", "HBM", f"an operation in {e.step.precision.compute.upper()}")}
    assert set(moved.which) - energies == {
        *("TDP of the chip", "idle share", "host", "error of the fit", "time of the step"),
    }
    assert (moved.server_j_per_token_low >= low).all()
    assert (moved.server_j_per_token_high <= high).all()
    # TDP 700 to 1,000 W around 850 W moves watts of the chip in proportion, the host not
    tdp = moved.set_index("which").loc["TDP of the chip"]
    rate, chip_w = float(e.tokens_per_s_per_chip), float(e.chip_w)
    assert tdp.server_j_per_token_high - tdp.server_j_per_token == pytest.approx(
        1.029 * chip_w * 150 / 850 / rate, rel=1e-6
    )


def test_claims_as_points_by_hand():
    """4.4 x 64 / 144 = 1.956 of speed; 4 times, 5 times and 1 / 0.6 = 1.667 of efficiency never meet within 10 %."""
    sets = claim_sets(reading="energy")
    points = region(sets, LIQUID, "trn2-ultraserver")
    there = points[points.held == 3]
    assert set(there.speed_ratio) == {1.96, 2.0}
    assert {1.67, 4.0, 5.0} <= set(there.efficiency_ratio)
    assert points.held.max() == 3
    assert set(there[there.meets_tdp].efficiency_ratio) == {1.5, 1.67}  # 1.956 / 1.667 x 617 W = 724 W, of 700 to 1,000
    assert set(largest(sets).claims) == {
        f"peak compute + speed + {one}" for one in ("efficiency", "tokens per MW", "power for equal work")
    }
    assert len(largest(claim_sets(tolerance=0.5, reading="energy"))) < 3


def test_less_power_read_as_watts_by_hand():
    """3 / 5 = 0.6: speed, tokens per MW and the press meet in one point, and 2.15 / 3.6 = 0.597 holds four others."""
    sets = claim_sets()
    points = region(sets, LIQUID, "trn2-ultraserver").set_index(["speed_ratio", "efficiency_ratio"])
    assert points.held[3.0, 5.0] == 3
    assert points.held[2.15, 3.6] == points.held.max() == 4
    assert {"speed + tokens per MW + power for equal work", "peak compute + speed + tokens per MW"} < set(
        largest(sets).claims
    )


def test_sources_are_in_the_bibliography():
    found = load.fact_sources(tm.chip("trainium3"))
    assert "trainium3-encyclopedia" in found or len(found) > 3


def test_a_request_is_its_prompt_and_its_tokens(spent):
    """1,792 tokens of prompt for 512 made: 3.5 prompt tokens stand on each; decode steps fill the rest of the time."""
    lines = spent[spent.software == "public"].dropna(subset="server_j_per_token")
    energies = {one["system"]: joules.request(MODEL, one) for one in lines.to_dict("records")}
    shown = tables.requests(energies)
    assert shown.system.tolist() == [AIR, "hgx-h100"]
    for row, line in zip(shown.to_dict("records"), lines.to_dict("records"), strict=True):
        e, choice = energies[row["system"]], line["choice"]
        prompt = 3.5 * float(e.prefill.server_j_per_token)
        longer = float(choice.times.step_s / choice.step.time_s)  # by its drafts, which draw what the step draws
        steps = float(e.decode.server_j_per_token) * longer * choice.batch / choice.sequences_in_flight
        parts = [float(row[name].replace(",", "")) for name in ("its prompt [J]", "its decode steps [J]")]
        assert parts == pytest.approx([prompt, steps / choice.times.tokens_per_step], rel=0.006)
        assert float(row["together [J]"].split()[0]) == pytest.approx(sum(parts), rel=0.06)
        assert line["server_j_per_token"] == pytest.approx(float(choice.energy().server_j_per_token), rel=1e-9)


def test_what_chips_are_made_of_by_hand():
    """4.9 TB/s x 8 x 3.9 pJ/bit = 153 W; 2,517 TFLOPS x 0.28 pJ (0.56 pJ a multiply-add at 3 nm) = 705 W."""
    found = tables.builds(
        list(map(tm.system, (AIR, "hgx-h200", "trn1.2xlarge"))), {AIR: "a", "hgx-h200": "b", "trn1.2xlarge": "c"}
    )
    first = found.iloc[0]
    assert first.hbm_full_rate_w == pytest.approx(152.88)
    assert first.operations_at_peak_w == pytest.approx(2517e12 * (0.46 + 0.66) / 4 * 1e-12)
    assert (first.cooling, first.process) == ("air", "TSMC N3P")
    assert found.cooling[1] == found.package[1] == "not printed"
    assert np.isnan(found.tdp_w[2])


def test_a_table_of_racks_has_every_part_and_says_what_nobody_counts():
    table = tables.racks({name: rack_power(name) for name in (AIR, LIQUID)}).set_index("part")
    assert table[f"kW of {AIR}"]["host memory"] == "in no source"
    assert table[f"in {LIQUID}"]["retimers"] == 108
    assert table[f"kW of {LIQUID}"]["all, as provisioned"] == "110 (62 to 180)"


def test_draws_lie_within_the_band_and_around_the_value(spent):
    """The band holds all ends at once; draws of ten inputs stay inside and lie around the value."""
    lines = spent[(spent.software == "public")].dropna(subset="server_j_per_token")
    for line in lines.to_dict("records"):
        found = joules.drawn(MODEL, line, 2000)
        p5, p50, p95 = found.percentiles().iloc[0][["p5", "p50", "p95"]]
        assert line["server_j_per_token_low"] < p5 < p50 < p95 < line["server_j_per_token_high"]
        assert p50 == pytest.approx(line["server_j_per_token"], rel=0.2)
        assert found.percentiles().value[0] == pytest.approx(line["server_j_per_token"], rel=1e-9)
    table = joules.quantiles(MODEL, spent, 500)
    assert set(table.why) == {"", "too slow for a user", "no source has watts of this chip"}
    assert len(table) == 19 * spent.server_j_per_token.notna().sum() + spent.server_j_per_token.isna().sum()
    known = table[table.why == ""]
    assert (
        known.groupby(["system", "software"], sort=False)
        .server_j_per_token.apply(lambda cuts: cuts.is_monotonic_increasing)
        .all()
    )


def test_the_error_of_a_time_is_what_moves_joules_most_by_hand(spent):
    """Joules follow the time of a step: at its ends they are off by a little less, for a slower chip draws less."""
    line = spent[(spent.software == "public") & (spent.system == "hgx-h100") & spent.server_j_per_token.notna()].iloc[0]
    bars = joules.drawn(MODEL, line, 500).tornado().set_index("input")
    bar, value = bars.loc["time of h100"], line["server_j_per_token"]
    assert value < bar.answer_high < value * bar.high
    assert value > bar.answer_low > value * bar.low
    host = 226.5  # watts of it pass to a token as the time does; the chip draws its idle power at least
    assert bar.answer_high > value * bar.high * (host + 1.029 * 0.1918 * 700) / line["server_w"]


def test_what_is_given_replaces_data_and_is_decided(spent):
    """Twice the middle TDP of 850 W is twice the watts of the chip; its range is gone; a site and a host likewise."""
    given = facilities.assumed(["trainium3.tdp_w=1700", "neuron-power.host_w_per_chip=100"])
    line = joules.line_of(spent, 40.0, AIR)
    e, hot = joules.point(MODEL, line), joules.point(MODEL, line, given)
    assert hot.chip_w == pytest.approx(2 * e.chip_w)
    assert hot.server_w == pytest.approx(1.029 * 2 * e.chip_w + 100)
    assert hot.ends("tdp_w") == pytest.approx((1700, 1700))
    whole = joules.request(MODEL, line, given)
    assert joules.drawn(MODEL, line, 500, given).percentiles().value[0] == pytest.approx(whole.server_j_per_token)
    site = facilities.with_assumptions(facilities.facility("aws-air"), facilities.assumed(["aws-air.peak_pue=2"]))
    assert site.peak_pue == 2
    lit = joules.joules(MODEL, ["trn1.32xlarge"], [40.0], REQUEST, facilities.assumed(["trainium1.tdp_w=210"]))
    assert lit.server_j_per_token.notna().any()
    for bad in ("tdp_w=3", "trainium3.tdp_w", "trainium3.tdp_w=x", "trainium3.tdp_w=1.2.3", ""):
        with pytest.raises(ValueError, match="assume"):
            facilities.assumed([bad])
    with pytest.raises(ValueError, match="allowed are names of numbers of trainium3"):
        joules.machine(AIR, facilities.assumed(["trainium3.tdp=3"]))
