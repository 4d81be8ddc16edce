"""The chapter on facts: totals and shares by hand, systems with one fact changed, and what is refused."""

import numpy as np
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


def test_each_change_changes_one_fact():
    spec = tm.system("trn3-nl72x2-pcie160")
    found = dict(data.changed(spec, 0.25))
    assert found[data.UNCHANGED] is spec
    assert found["HBM bandwidth"].chip.hbm_bytes_per_s == 1.25 * spec.chip.hbm_bytes_per_s
    assert found["HBM bandwidth"].chip.peak_flop_per_s == spec.chip.peak_flop_per_s
    assert found["lane of a link"].lane_bytes_per_s_per_dir == 1.25 * spec.lane_bytes_per_s_per_dir
    assert found["latency of a hop"].chip.hop_s == 1.25 * spec.chip.hop_s


def test_a_chip_that_reads_faster_makes_a_shorter_step_and_no_fact_of_time_does():
    spec, times = tm.system("trn2.48xlarge"), {}
    for name, system in data.changed(spec, 0.1):
        if not np.isnan(system.lane_bytes_per_s_per_dir) or name != "lane of a link":
            step = tm.decode_step("llama-3.3-70b", system, tm.Mapping(tp=32), batch=4, context=4096)
            times[name] = float(step.time_s)
    assert times["HBM bandwidth"] < times[data.UNCHANGED] <= times["latency of a hop"]


def test_every_fact_in_use_is_counted_once():
    facts = tm.facts()
    assert data.by_ground(facts).facts.sum() == (facts.status != "rejected").sum()


@pytest.mark.parametrize(("entity", "quantity"), [("trainium9", "hbm_bytes"), ("trainium3", "<b>")])
def test_what_no_fact_is_about_is_refused(entity, quantity):
    with pytest.raises(UnanswerableError, match=r"entity|quantity"):
        data.known(tm.facts(), entity, quantity)


def test_each_constant_of_software_changes_alone():
    stack = tm.efficiencies("trainium2")
    found = dict(data.changed_software(stack, -0.5))
    one = found["software: time per layer"]
    assert one.dense_layer_s == stack.dense_layer_s / 2
    assert one.weight_stream_share == stack.weight_stream_share
    assert set(found) <= {f"software: {name}" for name in data.SOFTWARE.values()}


def test_bars_that_cannot_be_seen_are_left_out_and_the_largest_comes_first():
    rows = [("nothing", 0.0), ("a", 0.001), ("b", -0.2), ("c", 0.5)]
    found = data.most_elastic(pd.DataFrame(rows, columns=["fact", "elasticity"]))
    assert found.fact.tolist() == ["c", "b"]


def test_the_facts_open_with_the_bandwidth_of_trainium3():
    found = data.in_use(tm.facts())
    assert (found.entity.iloc[0], found.quantity.iloc[0]) == ("trainium3", "hbm_bytes_per_s")


def test_the_card_says_how_many_figures_have_one_source():
    said = data.answer(tm.facts())
    assert "have one source only" in said
    assert "(ideal)" not in said
