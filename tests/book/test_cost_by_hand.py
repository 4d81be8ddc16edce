"""Tables of the chapters on cost at numbers that are worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import cost_inputs as given
from trnbook.chapters import cost_value as worth
from trnbook.chapters import index_cover as cover
from trnmodel.catalog import prices as priced

SOLD, RACK, TORUS = "hgx-h100", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus"


# What time and switches are worth


def test_a_ratio_may_be_next_to_nothing():
    cost = tm.tco(RACK)
    assert worth.months_of_waiting(cost, 1e-9) < 0
    with pytest.raises(ValueError, match="ratio="):
        worth.months_of_waiting(cost, 0.9e-9)


def test_printed_hours_are_of_the_middle_of_their_month():
    """An H100 of August 2025: seven months and a half of the year."""
    then = replace(priced.prices(), money_year=2025 + 7.5 / 12)
    table = worth.against_printed(SOLD).set_index("owner")
    assert table.printed_usd_per_h["hyperscaler"] == 1.30
    for kind in ("hyperscaler", "neocloud"):
        assert table.usd_per_h[kind] == float(tm.tco(SOLD, owner=kind, prices=then).usd_per_h)


# Prices of one's own


def test_a_price_of_one_s_own_with_and_without_ends():
    p, who = priced.prices(), priced.owner()
    found = given.parse_inputs(["retimer_usd=60", "hbm_usd_per_byte=3e-8:1e-8:2e-8", "life_years=4:5:7"], p, who)
    assert (found.prices.retimer_usd, "retimer_usd" in found.prices.ranges) == (60.0, False)
    assert (found.prices.hbm_usd_per_byte, found.prices.ranges["hbm_usd_per_byte"]) == (2e-8, (1e-8, 3e-8))
    assert (found.owner.life_years, found.owner.ranges["life_years"]) == (5.0, (4.0, 7.0))
    assert found.named == ("retimer_usd", "hbm_usd_per_byte", "life_years")
    for wrong in ("retimer_usd=1:2", "retimer_usd=1:2:3:4", "retimer_usd="):
        with pytest.raises(ValueError, match='allowed is "name=value" or "name=low:value:high"'):
            given.parse_inputs([wrong], p, who)


def test_a_server_of_one_s_own_is_of_the_year_of_the_money():
    p, who = priced.prices(), priced.owner()
    found = given.parse_inputs(["server_usd_per_chip[trn2.48xlarge]=5000", "chip_usd[trainium2]=4000"], p, who).prices
    assert found.server_usd_per_chip["trn2.48xlarge"] == 5000
    assert found.server_year == {**p.server_year, "trn2.48xlarge": p.money_year}
    assert found.chip_usd == {**p.chip_usd, "trainium2": 4000}


def test_what_is_given_has_no_source_and_is_no_estimate():
    p, who = priced.prices(), priced.owner()
    before = given.price_list(p, who).set_index("name")
    after = given.price_list(p, who, ["retimer_usd"]).set_index("name")
    assert before.loc["retimer_usd", ["given", "estimate"]].tolist() == [False, True]
    assert before.sources["retimer_usd"] != ""
    assert after.loc["retimer_usd", ["given", "estimate", "sources"]].tolist() == [True, False, ""]
    known = "server_usd_per_chip[hgx-h100]"
    assert after.loc[known, ["given", "estimate"]].tolist() == [False, False]
    assert after.sources[known] == "epoch-hardware-purchases"


# The first page


@pytest.mark.parametrize(("system", "chips"), [("hgx-h100", 1152), ("gb200-nvl72", 1152), ("trn2-ultraserver", 1152)])
def test_days_of_training_on_whole_domains(monkeypatch, system, chips):
    """1,152 chips are whole domains of 8, 16, 64 and 72; of 80 they are 15 domains, 1,200 chips."""
    asked = []

    def train(model, spec, **ask):
        asked.append(ask)
        return SimpleNamespace(days=3.0, ends=lambda name: (2.0, 5.0), basis=ask["efficiencies"])

    monkeypatch.setattr(cover, "train_run", train)
    row = cover._trained(None, tm.system(system))
    assert row["train_chips"] == chips
    assert asked[0] == {"tokens": 1e12, "chips": chips, "efficiencies": "public", "best": 1}
    kinds = [one["efficiencies"] for one in asked]
    assert row["train_basis"] == kinds[0]
    for kind, prefix in (("public", ""), ("hand-tuned", "hand_tuned_"), ("ideal", "ideal_")):
        days = [row[f"{prefix}train_days{end}"] for end in ("", "_low", "_high")]
        assert (days == [3.0, 2.0, 5.0]) if kind in kinds else np.isnan(days).all()
    spec = tm.system(system)
    odd = replace(spec, domain_chips=80, torus_shape=(), fabric="single", racks=np.nan)
    assert cover._trained(None, odd)["train_chips"] == 1200


def test_a_chip_without_a_hand_tuned_training_stack_has_no_such_days(monkeypatch):
    run = SimpleNamespace(days=3.0, ends=lambda name: (2.0, 5.0), basis="x")
    monkeypatch.setattr(cover, "train_run", lambda *asked, **more: run)
    spec = tm.system("hgx-h100")
    for stacks, known in ((("megatron-2021", ""), [3.0, np.nan, 3.0]), (("", "x"), [np.nan] * 3)):
        chip = replace(spec.chip, training_stack=stacks[0], hand_tuned_training_stack=stacks[1])
        row = cover._trained(None, replace(spec, chip=chip))
        np.testing.assert_equal([row[f"{prefix}train_days"] for prefix in ("", "hand_tuned_", "ideal_")], known)
