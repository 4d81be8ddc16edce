"""Where sources disagree: what is in use, the systems with the other figure, how far the case moves, the whole list."""

import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import contradictions as study
from trnbook.shared import case
from trnmodel.catalog import load

FACTS = tm.facts()
HBM = next(one for one in study.DISPUTES if one.title == "HBM bandwidth of Trainium3")


def test_who_prints_the_bandwidth_of_trainium3_and_who_another():
    """AWS's architecture page prints 4.9 TB/s and its guide for kernels 4.7; a profile implies 4.715."""
    found = study.followed(FACTS, "trainium3", "hbm_bytes_per_s")
    prints = dict(zip(zip(found.publisher, found.title, strict=True), found.prints, strict=True))
    assert prints["AWS", "Trainium3 Architecture"] == "4.9 TB/s"
    assert prints["AWS", "Trainium3 Architecture Guide for NKI"] == "4.7 TB/s"
    in_use = found[found.decision == "in use"]
    assert set(in_use.prints) == {"4.9 TB/s"}
    assert in_use.index.tolist() == list(range(len(in_use)))
    assert set(found[found.decision != "in use"].prints) == {
        "4.7 TB/s",
        "4.715 TB/s (implied)",
        "4.710 TB/s (our arithmetic)",
    }


def test_the_card_has_the_open_range():
    assert study.answer(FACTS, "trainium3", "hbm_bytes_per_s").startswith("> **4.9 TB/s** (4.7 to 4.9)")
    assert "**500 W** (380 to 620)" in study.answer(FACTS, "trainium2", "tdp_w")
    assert "**2.9 TB/s**: " in study.answer(FACTS, "trainium2", "hbm_bytes_per_s")  # decided: no range


def test_every_dispute_replaces_one_figure_by_a_printed_one():
    for dispute in study.DISPUTES:
        ours, other = study.both(dispute)
        assert ours.id == dispute.where
        assert ours != other
        row = load.facts_rows()[dispute.fact]
        if other.id == ours.id:
            own = other if dispute.field.startswith("scaleup") else other.chip
            assert own.at(dispute.field) == study.rival(dispute)
        else:
            assert sum(other.scaleup_lanes.values()) == float(row.value_printed) == 88


def test_a_dispute_of_a_fact_stands_in_the_decisions():
    """All but the lanes and the direction of a link, which are two readings and no two facts."""
    rows = FACTS.set_index("id")
    for dispute in study.DISPUTES:
        if dispute.field.startswith(("trn3", "scaleup")):
            continue
        assert rows.reason[dispute.fact] != study.UNDISPUTED, dispute.title


@pytest.mark.parametrize("model", case.PROMISES)
def test_less_bandwidth_makes_less(model):
    ours, other = (tm.plan(model, case.request(model), systems=one).best for one in study.both(HBM))
    (row,) = study.move(HBM, ours, other)
    assert 0.9 < row["ratio"] < 1
    assert study.line(4.9e12, ours)["tokens_per_s_per_chip"] == case.choice(model, HBM.where).tokens_per_s_per_chip
    assert study.move(HBM, ours, None) == []
    (band,) = study.software(ours)
    assert band["ratio_low"] < row["ratio"] < band["ratio_high"]


def test_the_ten_have_both_figures_and_a_reason():
    moves = pd.DataFrame([{"group": one.title, "model": "m", "ratio": 0.93} for one in study.DISPUTES])
    found = study.ten(moves).set_index("figure")
    assert len(found) == len(study.DISPUTES) == 10
    assert found.loc[HBM.title, ["we use", "the other", "m"]].tolist() == ["4.9 TB/s", "4.7 TB/s (AWS)", "-7.0%"]
    assert found["why we use ours"].str.len().gt(20).all()


def test_every_ruling_has_a_line_and_trainium3_comes_first():
    found = study.disputed(FACTS)
    rulings = [one for one in load.decisions() if one.use]
    assert len(found) == len(rulings)
    assert found["of"][0] == "trainium3"
    assert found.why.str.len().gt(0).all()
    hbm = found[(found["of"] == "trainium3") & (found.figure == "HBM bandwidth")].iloc[0]
    assert "4.7 TB/s (AWS)" in hbm.open
    assert hbm["in use"] == "4.9 TB/s (AWS)"


def test_all_disputed_facts_are_in_the_file():
    rows = study.every_fact(FACTS)
    assert {"chosen", "open", "rejected"} == set(rows.status)
    named = {name for one in load.decisions() if one.use for name in (one.use, *one.open, *one.reject)}
    assert len(rows) >= len(named)


def test_a_figure_that_nobody_disputes_is_refused():
    assert study.undisputed(FACTS, "trainium3", "tdp_w") == ""
    assert "is not disputed; these are" in study.undisputed(FACTS, "trainium3", "hop_s")
    assert study.undisputed(FACTS, "nobody", "tdp_w").endswith("has no disputed figure")


def test_counts_are_those_of_the_decisions():
    found = study.counts(FACTS)
    assert found["figures"] == sum(bool(one.use) for one in load.decisions())
    assert found["set aside"] == (FACTS.status == "rejected").sum()
