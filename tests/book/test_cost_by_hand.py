"""Tables of the chapters on cost at numbers that are worked out by hand."""

from dataclasses import replace

import pytest

import trnmodel as tm
from trnbook.chapters import cost as tables
from trnbook.chapters import cost_inputs as given
from trnmodel.catalog import prices as priced

SOLD = "hgx-h100"


# Printed hours


def test_printed_hours_are_of_the_middle_of_their_month():
    """An H100 of August 2025: seven months and a half of the year."""
    then = replace(priced.prices(), money_year=2025 + 7.5 / 12)
    printed = tables.printed_hours()
    assert printed.printed_usd_per_h[0] == 1.30
    for row, one in zip(printed.head(2).itertuples(), tables.printed_questions(printed), strict=False):
        assert (one["system"], one["owner"]) == (SOLD, row.owner)
        assert float(tm.tco(**one).usd_per_h) == float(tm.tco(SOLD, owner=row.owner, prices=then).usd_per_h)


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
