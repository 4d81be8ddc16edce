"""The power chapter: joules are watts over rate, rows, sites, racks and open inputs by hand, claims, assumptions."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import power as tables
from trnbook.chapters.power_claims import claim_sets, largest
from trnbook.shared import case
from trnbook.shared.rack_power import rack_power
from trnmodel.arguments import ImpossibleError
from trnmodel.catalog import facilities
from trnmodel.power.energy import one_at_a_time

MODEL, AIR, LIQUID = "llama-3.1-8b", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"
ASKED = tm.Request(1792, 512, tokens_per_s_per_user=40.0)


def plan(system, model=MODEL, request=ASKED):
    return tm.plan(model, request, system).best


@pytest.fixture(scope="module")
def air():
    return plan(AIR)


@pytest.fixture(scope="module")
def rows():
    found = {name: plan(name) for name in (AIR, "hgx-h100", "trn1.32xlarge")}
    return pd.DataFrame(tables.row(MODEL, name, best, best.energy()) for name, best in found.items())


def test_joules_are_watts_over_rate(rows):
    known = rows.dropna(subset="server_j_per_token")
    assert known.system.tolist() == [AIR, "hgx-h100"]  # no source has watts of Trainium1
    assert np.allclose(known.server_j_per_token * known.tokens_per_s_per_chip, known.server_w)
    assert (known.server_j_per_token_low < known.server_j_per_token).all()
    assert (known.server_j_per_token < known.server_j_per_token_high).all()
    most = known.system.map({"hgx-h100": 1.029 * 700 + 226.5, AIR: 1.029 * 850 + (113.2 + 226.5) / 2})
    assert (known.server_w <= most * (1 + 1e-9)).all()
    assert set(tables.planned(rows).system) == {AIR, "hgx-h100"}
    assert tables.claim(rows).startswith("8 x H100 SXM" if known.server_j_per_token.idxmin() else "Trainium3")


def test_the_card_has_the_draws_the_rack_and_the_megawatt(air):
    """The range is that of the draws; with all inputs at their ends it is wider."""
    e = air.energy()

    def joules(power, tdp, fit, prompt, decode):
        return air.energy(power=power).server_j_per_token * tdp * fit * (prompt + decode) / 2

    drawn = tm.sensitivity(joules, tables.inputs(e), draws=400, distributions=tables.EVENLY)
    line = tables.row(MODEL, AIR, air, e, drawn)
    cuts = drawn.percentiles().iloc[0]
    assert (line["server_j_per_token_low"], line["server_j_per_token_high"]) == (cuts.p5, cuts.p95)
    said = tables.answer(pd.DataFrame([line]), air, e).data
    assert "A rack of 32 chips is provisioned at 48 kW (" in said
    assert "A megawatt of the site holds 560 (" in said
    low, high = (tm.units.format_digits(float(end), 2) for end in e.ends("server_j_per_token"))
    assert f"at their ends at once it is {low} to {high} J/token" in said
    more = tables.answer(pd.DataFrame([line]), air, e, rack=rack_power(AIR), undrafted={"plain": e}).data
    assert "the counted parts of the rack take 33 kW (26 to 46)" in more
    assert f"Without *drafts* a token takes {float(e.server_j_per_token):.2g} J, on `plain`." in more


def test_the_middle_prediction_of_gpus_that_draw_little():
    points = pd.DataFrame({"of": ["A", "A", "B", "server"], "measured_w": [300.0, 500, 500, 300]})
    said = tables.at_low_watts(points.assign(predicted_w=[390.0, 550, 450, 900])).data
    assert said == (
        "Of A below 550 W, the middle prediction is 20% too high. "
        "Of B below 550 W, the middle prediction is 10% too low. "
        "Below 400 W it is 30% too high, over all GPUs."
    )


def test_measured_and_predicted_watts_have_one_scale():
    points = tables.measured()
    chart = charts.scatter(points, x="measured_w", y="predicted_w", color="of", label="label", caption="A")
    scales = [
        layer["encoding"][axis]["scale"]["domain"]
        for layer in tables.one_scale(chart, points).to_dict()["layer"]
        for axis in ("x", "y")
    ]
    assert all(one == scales[0] for one in scales)
    assert scales[0][0] < points[["measured_w", "predicted_w"]].min(axis=None)


def test_a_system_that_has_no_answer_is_refused_in_one_line():
    request = tm.Request(1792, 512, tokens_per_s_per_user=1e5)
    with pytest.raises(ImpossibleError, match=r"system = 'trn3-nl32x2-pcie160', llama-3\.1-8b: too slow for a user"):
        tables.reached(plan(AIR, request=request), tm.system(AIR))
    with pytest.raises(ImpossibleError, match=r"assume = \['trainium1.tdp_w=...'\] gives them"):
        tables.reached(plan("trn1.32xlarge"), tm.system("trn1.32xlarge"))
    with pytest.raises(ImpossibleError, match="cannot hold the model"):
        tables.reached(None, tm.system(AIR))


def test_a_megawatt_of_two_racks_of_one_chip(air):
    """1 MW / 1.2 = 833.3 kW and / 1.5 = 666.7 kW of 850 W x 1.75 a chip: 560 and 448 chips; racks of 32 and 72."""
    plans = {name: plan(name) for name in (AIR, LIQUID)}
    held = tables.sites(plans, {name: best.energy() for name, best in plans.items()}).set_index("system")
    first = held.map(lambda text: str(text).partition(" (")[0]).loc[[AIR, LIQUID]]
    assert first["chips per MW of the site"].tolist() == ["560", "450"]
    assert first["provisioned for a rack [kW]"].tolist() == ["48", "110"]  # 32 and 72 chips of 850 W x 1.75
    assert held["chips per rack"][[AIR, LIQUID]].tolist() == [32, 72]
    assert held["provisioned for a rack [kW]"].str.contains(" to ").all()
    assert held["PUE, hottest day"][[AIR, LIQUID]].tolist() == [1.2, 1.5]


def test_aws_claims_more_tokens_per_megawatt_than_the_case_shows():
    """Over five times those of Trainium2, in the claim; on public software less for both models and racks."""
    for model in case.PROMISES:
        made = {}
        for system in case.SYSTEMS:
            best = case.choice(model, system)
            made[system] = float(best.tokens_per_s_per_chip * best.energy().decode.chips_per_site_mw)
        assert max(made.values()) < 5 * made["trn2.48xlarge"]


def test_two_estimates_of_a_chip_sum(air):
    both = tables.two_estimates(air.energy().decode).set_index("part")
    assert both.shares_w.iloc[:3].sum() == pytest.approx(both.shares_w.iloc[-1])
    assert both.energies_w.iloc[:4].sum() == pytest.approx(both.energies_w.iloc[-1])
    assert both.shares_w_high.iloc[-1] <= 1000.0  # the high end of the TDP


def test_open_inputs_move_the_joules_by_hand(air):
    """TDP 700 to 1,000 W around 850 W moves watts of the chip in proportion, the host not; times move all."""
    e = air.energy()
    inputs = tables.inputs(e)
    assert inputs["tdp"] == pytest.approx((700 / 850, 1, 1000 / 850))
    assert inputs["prompt"][2] == pytest.approx(np.exp(float(e.prefill.step.widths("time_s")[1])))
    assert inputs["fit"][2] * float(e.decode.chip_w) <= 850 * (1 + 1e-9)

    def joules(power, tdp, fit, prompt, decode):
        spent = air.energy(power=power)
        moved = spent.server_j_per_token + power.server_ratio * spent.chip_j_per_token * (tdp * fit - 1)
        return moved * (spent.prefill_j_share * prompt + (1 - spent.prefill_j_share) * decode)

    found = tm.sensitivity(joules, inputs, 500, distributions=tables.EVENLY)
    assert found.percentiles().value[0] == pytest.approx(float(e.server_j_per_token), rel=1e-9)
    bar = found.tornado().set_index("input").loc["tdp"]
    more = 1.029 * float(e.chip_j_per_token) * (bar.high - 1)
    assert bar.answer_high - float(e.server_j_per_token) == pytest.approx(more, rel=1e-6)
    bars = tables.tornado(found)
    assert set(bars.which) <= {*tables.INPUTS.values(), "energy of a narrow operation"}
    assert (bars.server_j_per_token_low <= bars.server_j_per_token).all()
    assert (bars.server_j_per_token <= bars.server_j_per_token_high).all()


def test_one_input_at_a_time_lies_within_all_of_them(air):
    e = air.energy().decode
    moved, (low, high) = one_at_a_time(e), map(float, e.ends("server_j_per_token"))
    assert (moved.server_j_per_token_low >= low).all()
    assert (moved.server_j_per_token_high <= high).all()


def test_claims_by_hand():
    """4.4 x 64 / 144 = 1.956 of speed; 4 times, 5 times and 1 / 0.6 = 1.667 of efficiency never meet within 10 %."""
    sets = claim_sets(reading="energy")
    assert set(largest(sets).claims) == {
        f"peak compute + speed + {one}" for one in ("efficiency", "tokens per MW", "power for equal work")
    }
    assert len(largest(claim_sets(tolerance=0.5, reading="energy"))) < 3
    assert {"speed + tokens per MW + power for equal work", "peak compute + speed + tokens per MW"} < set(
        largest(claim_sets()).claims
    )


def test_measured_watts_and_predicted_ones():
    """A point of a GPU lies below its TDP, and a printed rack of 72 chips is that of the fact over 72."""
    points = tables.measured().set_index("of")
    assert points.loc["H100 SXM"].predicted_w.max() <= 700 * (1 + 1e-9)
    assert points.loc["B200 SXM"].predicted_w.max() <= 1000 * (1 + 1e-9)
    assert points.loc["rack"].measured_w.tolist() == pytest.approx([120e3 / 72, 121.4e3 / 72])
    assert points.loc["rack"].predicted_w.tolist() == pytest.approx([1.029 * w + 226.5 for w in (1200, 1400)])
    assert (points.predicted_w / points.measured_w - 1).abs().median() < 0.15
    assert len(tables.servers()) == 10


def test_what_chips_are_made_of_by_hand():
    """4.9 TB/s x 8 x 3.9 pJ/bit = 153 W."""
    found = tables.builds(list(map(tm.system, (AIR, "hgx-h200", "trn1.2xlarge"))))
    first = found.iloc[0]
    assert first.hbm_full_rate_w == pytest.approx(152.88)
    assert (first.cooling, first.process) == ("air", "TSMC N3P")
    assert found.cooling[1] == found.package[1] == "not printed"
    assert np.isnan(found.tdp_w[2])


def test_a_table_of_racks_has_every_part_and_says_what_nobody_counts():
    table = tables.racks({name: rack_power(name) for name in (AIR, LIQUID)}).set_index("part")
    assert table[f"kW of {AIR}"]["host memory"] == "in no source"
    assert table[f"in {LIQUID}"]["retimers"] == 108
    assert table[f"kW of {LIQUID}"]["all, as provisioned"] == "110 (62 to 180)"


def test_what_is_given_replaces_data_and_is_decided(air):
    """Twice the middle TDP of 850 W is twice the watts of the chip; its range is gone; a site and a host likewise."""
    (spec,), assumed = tables.machines([AIR], ["trainium3.tdp_w=1700", "neuron-power.host_w_per_chip=100"])
    hot = tm.plan(MODEL, ASKED, spec).best.energy(**tables.settings(spec, assumed)).decode
    e = air.energy().decode
    assert hot.chip_w == pytest.approx(2 * e.chip_w)
    assert hot.server_w == pytest.approx(1.029 * 2 * e.chip_w + 100)
    assert hot.ends("tdp_w") == pytest.approx((1700, 1700))
    (spec,), assumed = tables.machines([AIR], ["aws-air.peak_pue=2"])
    assert tables.settings(spec, assumed)["facility"].peak_pue == 2
    assert tables.settings(spec, {}) == {}
    (lit,), _ = tables.machines(["trn1.32xlarge"], ["trainium1.tdp_w=210"])
    assert plan(lit).energy().valid
    for bad in ("tdp_w=3", "trainium3.tdp_w", "trainium3.tdp_w=x", "trainium3.tdp_w=1.2.3", ""):
        with pytest.raises(ValueError, match="assume"):
            facilities.assumed([bad])
    with pytest.raises(ValueError, match="allowed are names of numbers of trainium3"):
        tables.machines([AIR], ["trainium3.tdp=3"])
    with pytest.raises(ValueError, match="assume: b200"):
        tables.machines([AIR], ["b200.tdp_w=1200"])


@pytest.mark.parametrize("speeds", [[50.0, 20.0], [40.0]])
def test_each_model_has_its_promise(speeds):
    assert tables.promises("llama-3.3-70b", "deepseek-v3", speeds, 4608) == {
        "llama-3.3-70b": speeds[0],
        "deepseek-v3": speeds[-1],
    }
    assert tables.promises(MODEL, MODEL, speeds, 4608) == {MODEL: speeds[0]}
