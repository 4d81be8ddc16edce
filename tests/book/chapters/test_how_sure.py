"""How sure can you be: bands of plans, what a basis means, runs near a plan, ratios of systems, chips for a demand."""

import csv

import numpy as np
import pytest

from trnbook.chapters import how_sure as study
from trnbook.shared import case
from trnbook.shared.choices import undrafted
from trnmodel.catalog import rents
from trnmodel.catalog.load import DATA
from trnmodel.evidence import tables
from trnmodel.models.transformer import model
from trnmodel.search.plan import plan

LLAMA = "llama-3.3-70b"
PLANS = {(LLAMA, where): case.choice(LLAMA, where) for where in case.SYSTEMS}


def test_a_band_is_that_of_the_plan():
    found = study.bands(PLANS, {(LLAMA, case.SYSTEMS[0]): None})
    assert set(found.software) == {"public software"}
    for row, best in zip(found.itertuples(), PLANS.values(), strict=True):
        assert row.tokens_per_s_per_chip == best.tokens_per_s_per_chip
        assert (row.tokens_per_s_per_chip_low, row.tokens_per_s_per_chip_high) == (best.low, best.high)


def test_the_card_holds_the_band_and_the_bound():
    best = PLANS[LLAMA, "trn2.48xlarge"]
    card = study.answer(best, best)
    assert card.startswith("> **170 tokens/s** (13 to 230; extrapolated)")
    assert f"{best.tokens_per_s_per_chip:,.0f} tokens/s per chip on software that loses nothing" in card
    assert 15 < best.high / best.low < 25
    assert "differ by a factor of about 20." in card


def test_bases_are_those_that_the_lab_wrote():
    with (DATA / "evidence" / "coverage.csv").open() as file:
        rows = {(row["split"], row["of"], row["name"]): row for row in csv.DictReader(file)}
    found = study.bases().set_index("rests on")
    for name in ("measured", "interpolated", "extrapolated"):
        page, unseen = rows["page left out", "basis", name], rows["model left out", "basis", name]
        assert found.page_unseen_share_inside[name] == float(page["inside"])
        assert found.page_unseen_runs[name] == int(page["cases"])
        assert found.model_unseen_median_error[name] == float(unseen["median_error"])


def test_runs_near_a_plan_by_hand():
    """Configurations of dense models on Trainium2, those without an engine on the chip's own software."""
    rows = tables.judged()
    row = study.nearest(rows, PLANS.values()).iloc[0]
    some = rows[(rows.use == "model") & (rows.skipped == "") & (rows.weight > 0) & (rows.chip == "trainium2")]
    assert row["runs on the chip"] == some.configuration.nunique()
    dense = some[[bool(name) and model(name).kind == "dense" for name in some.model]]
    assert row["of this kind of model"] == dense.configuration.nunique()
    stacks = dense["stack"].replace("", "vllm-neuron-2026")
    assert row["of this software too"] == dense[stacks == "vllm-neuron-2026"].configuration.nunique() > 0


def test_systems_of_one_chip_have_one_line():
    assert study.nearest(tables.judged(), PLANS.values()).case.tolist() == [f"{LLAMA}, Trainium{n}" for n in (2, 3)]


def test_what_two_racks_share_cancels():
    """One chip serves a replica of this model, so that both racks make the same in every draw."""
    found = study.ratios(PLANS)
    assert found.iloc[1][["ratio", "ratio_low", "ratio_high"]].tolist() == [1.0, 1.0, 1.0]
    one, other = (PLANS[LLAMA, where].drawn["tokens_per_s_per_chip"] for where in case.SYSTEMS[:2])
    assert found.iloc[0].ratio == pytest.approx(np.nanmedian(other / one))


def test_errors_of_served_models_have_a_tail():
    found = study.served()
    assert (found.error_in_percent_low == found.error_in_percent).all()
    assert (found.error_in_percent < found.error_in_percent_high).all()
    assert len(found) == 4


def test_chips_for_a_demand_are_whole_instances():
    """10,000 tokens/s at 166.49 per chip are 61 chips, so four instances; at 12.6 they are 794, so fifty."""
    rent = rents.rent("trn2.48xlarge").usd_per_chip_h
    row = study.chips_for(10_000.0, [PLANS[LLAMA, "trn2.48xlarge"]], {"trn2.48xlarge": rent}).iloc[0]
    assert (row["chips at the prediction"], row["chips at the low end"]) == ("64", "800")
    assert row["chips at the high end"] == "48"
    usd = float(row["rent at the prediction [$ per month]"].replace(",", ""))
    assert usd == pytest.approx(64 * rent * 730.5, abs=500)
    assert study.chips_for(1.0, [None], {}).empty


def test_a_system_without_a_rent_has_none():
    place = case.SYSTEMS[1]
    row = study.chips_for(1.0, [PLANS[LLAMA, place]], {place: float("nan")}).iloc[0]
    assert row["chips at the low end"] == "64"
    assert row["rent at the prediction [$ per month]"] == "–"


def test_a_plan_that_drafts_is_asked_without_drafts():
    """The throughput without drafts lies below the range on Trainium3, and inside it on Trainium2."""
    plain = {
        (name, where): [plan(name, case.request(name), where, efficiencies=kind).best for kind in undrafted(best)]
        for (name, where), best in PLANS.items()
    }
    found = study.without_drafts(PLANS, plain).set_index("case")
    assert found["it lies"].tolist() == ["inside the range", "below the range", "below the range"]
    assert found["without drafts [tokens/s per chip]"].iloc[1] == "75"
    assert found["without drafts, on the plan's software [tokens/s per chip]"].iloc[0] == "12"
    assert study.without_drafts(PLANS, dict.fromkeys(PLANS, ())).empty


def test_few_prompts_were_measured_on_trainium3():
    said = study.unmeasured(tables.judged(), PLANS.values())
    assert "two prompts were measured, of mixtures of experts alone, and none of these models" in said
    assert "Trainium2" not in said


def test_the_prompt_is_less_certain_than_the_step():
    found = study.parts(PLANS[LLAMA, "trn2.48xlarge"]).set_index("figure")["high over low"].astype(float)
    assert found["time of a prompt"] > 5 * found["time of a decode step"]


def test_the_band_of_the_step_is_that_of_the_step_and_reaches_further_up_than_down():
    best = PLANS[LLAMA, "trn2.48xlarge"]
    shown = study.parts(best).set_index("figure").loc["time of a decode step"]
    middle, low, high = (float(shown[name].removesuffix(" ms")) for name in ("predicted", "low end", "high end"))
    assert [low, high] == pytest.approx([1e3 * float(end) for end in best.step.ends("time_s")], rel=0.02)
    assert high / middle > middle / low  # more steps were slower than predicted than faster
