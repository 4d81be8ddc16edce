"""The chapter on facts: totals and shares by hand, what a step stands on, and what is refused."""

from dataclasses import replace

import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import data
from trnmodel.arguments import UnanswerableError


def test_a_printed_total_is_chips_times_one():
    """AWS prints 46.4 TB/s for the 16 chips of a trn2.48xlarge, 2.9 TB/s each."""
    (row,) = [
        row
        for row in data.totals(tm.facts(), "trn2.48xlarge", 16, {"hbm_bytes_per_s": 2.9e12})
        if row["printed"] == 46.4e12
    ]
    assert row["computed"] == pytest.approx(46.4e12)
    assert abs(row["difference"]) < 1e-12


STEP = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=32), batch=4, context=4096)
EXPLAINED = {"llama-3.3-70b": tm.explain(STEP)}


def test_the_share_of_the_bandwidth_is_what_a_faster_chip_saves():
    """With 1 % more bandwidth a step is shorter by about as many per cent as its share says."""
    spec = tm.system("trn2.48xlarge")
    faster = replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=1.01 * spec.chip.hbm_bytes_per_s))
    there = tm.decode_step("llama-3.3-70b", faster, tm.Mapping(tp=32), batch=4, context=4096)
    rows = data.shares(EXPLAINED).set_index("fact")
    assert rows.share["HBM bandwidth"] == pytest.approx(100 * (float(there.time_s / STEP.time_s) - 1), rel=0.02)
    assert rows.share["software: time per layer"] > 0


def test_the_facts_behind_a_step_have_sources_and_rivals():
    rows = data.behind(EXPLAINED)
    assert (rows.title != "").all()
    assert (rows.locator != "").all()
    bandwidth = rows[rows.printed == "2.9 TB/sec"].iloc[0]
    assert bandwidth.rival_printed == "3 TB/s"
    assert bandwidth.rival_time_s < float(STEP.time_s)


def test_every_fact_in_use_is_counted_once():
    facts = tm.facts()
    assert data.by_ground(facts).facts.sum() == (facts.status != "rejected").sum()


@pytest.mark.parametrize(("entity", "quantity"), [("trainium9", "hbm_bytes"), ("trainium3", "<b>")])
def test_what_no_fact_is_about_is_refused(entity, quantity):
    with pytest.raises(UnanswerableError, match=r"entity|quantity"):
        data.known(tm.facts(), entity, quantity)


def test_bars_that_cannot_be_seen_are_left_out_and_the_largest_comes_first():
    rows = [("a", 0.001), ("b", -0.2), ("c", 0.5)]
    assert data.largest(pd.DataFrame(rows, columns=["fact", "share"])).fact.tolist() == ["c", "b"]


def test_the_facts_open_with_the_bandwidth_of_trainium3():
    found = data.in_use(tm.facts())
    assert (found.entity.iloc[0], found.quantity.iloc[0]) == ("trainium3", "hbm_bytes_per_s")


def test_the_card_says_how_many_figures_have_one_source():
    said = data.answer(tm.facts())
    assert "have one source only" in said
    assert "(ideal)" not in said
