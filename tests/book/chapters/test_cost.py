"""The chapter of cost: printed arithmetic, equal draws, ties that tie, prices of one's own, odd cases."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import trnmodel as tm
from trnbook.chapters import cost as tables
from trnbook.chapters import cost_comparison as markets
from trnbook.chapters import cost_inputs as given
from trnbook.chapters import cost_owners as owned
from trnbook.chapters import cost_sentences
from trnbook.chapters.cost_stated import stated
from trnbook.chapters.cost_whatif import grid, what_if
from trnmodel.arguments import UnanswerableError
from trnmodel.catalog import prices as priced
from trnmodel.catalog import rents

HEAD = """# Every price and rate that an owner's cost takes: name=value or name=low:value:high, in base units.
# trnmodel run cost -f notebooks/parameters/cost.yaml
prices:
"""
TRN2, AIR, TORUS, GPU = "trn2.48xlarge", "trn3-nl32x2-pcie160", "trn3-nl32x2-torus", "hgx-h200"
MODEL, SPEED = "llama-3.1-8b", 40.0
KEY = (MODEL, SPEED)
CALLED = {TRN2: "two", AIR: "three", TORUS: "torus", GPU: "gpu"}
OWN = tables.own_prices([], "hyperscaler")
REQUEST = tm.Request(1024, 256)
TEXTS = Path(os.environ.get("TRNMODEL_SOURCES", Path(__file__).parents[4] / "shared" / "sources"))


@pytest.fixture(scope="module")
def found():
    systems = [tm.system(name) for name in CALLED]
    return markets.cost_grid([tm.model(MODEL)], systems, [SPEED, 1e6], OWN, ("capacity-block", None), REQUEST)


@pytest.fixture(scope="module")
def hours():
    return owned.hours(CALLED, owner=OWN.owner, prices=OWN.prices)


@pytest.fixture(scope="module")
def own(found, hours):
    return {key: one.priced(hours) for key, one in found.items()}


@pytest.fixture(scope="module")
def rent(found):
    return markets.table_of(found)


def row(table, system, software="ideal", speed=SPEED):
    there = (table.system == system) & (table.software == software) & (table.promised_tokens_per_s_per_user == speed)
    return table[there].iloc[0]


def test_a_token_is_its_chip_seconds_times_the_price(rent):
    """USD 2.00 an hour and 85 tokens/s are USD 6.54 a million (gmicloud's worked example)."""
    one = row(rent, TRN2)
    assert one.usd_per_mtoken == pytest.approx(6.5359 * one.usd_per_chip_h / 2.0 * one.chip_s * 85, rel=1e-4)
    assert one.usd_per_mtoken_low <= one.usd_per_mtoken <= one.usd_per_mtoken_high


def test_every_system_stands_on_every_kind_of_software(rent):
    at = rent[rent.promised_tokens_per_s_per_user == SPEED]
    assert (at.groupby("system").software.nunique() == 3).all()
    assert at[at.system == AIR].usd_per_mtoken.isna().all()
    assert set(at[at.system == AIR].reason) == {"no price is published"}


def test_the_price_at_which_each_were_first_makes_it_level(rent):
    at = rent[(rent.promised_tokens_per_s_per_user == SPEED) & (rent.software == "hand-tuned")]
    least = at.usd_per_mtoken.min()
    for one in at.itertuples():
        told = markets.level_at(least, one.usd_per_chip_h, one.chip_s)
        if told == "least":
            assert one.usd_per_mtoken == least
        else:
            assert float(told) * one.chip_s / 3.6e-3 == pytest.approx(least, rel=0.05)


def test_a_speed_that_nobody_reaches_is_said(found, own, rent):
    cells = markets.compare(rent).set_index(["promised_tokens_per_s_per_user", "system"])
    assert cells.public[1e6, TRN2] == "too slow"
    assert cells.public[SPEED, AIR] == "no price"
    assert "never" in cells["level at, USD a chip-hour"][1e6, TRN2]
    words = markets.describe_order(found, CALLED)
    assert f"{MODEL} at 1,000,000 tokens/s**: *public* nobody is as fast" in words
    assert set(markets.ties(own, AIR, "chip_usd").query("promised_tokens_per_s_per_user == 1e6").public) == {"too slow"}
    assert markets.claim(found[MODEL, 1e6], CALLED) == "Nobody is the cheapest by more than the band"


def test_a_lead_is_one_in_the_draws(own):
    for kind in ("public", "hand-tuned", "ideal"):
        draws = own[KEY].draws(kind, draws=owned.DRAWS)
        shares = markets.firsts(own[KEY], kind)
        assert sum(shares.values()) == pytest.approx(1)
        told = markets.leads(shares, CALLED)
        assert told.startswith("open") == (max(shares.values()) < markets.LEAD)
        one, other = list(draws.values)[:2]
        assert owned.cheaper(draws, one, other) + owned.cheaper(draws, other, one) == pytest.approx(1)


def test_a_share_of_draws_is_told_to_its_last_half_percent():
    """Of 1,000 draws 996 and 995 are nearly all and not 100 %, 994 are 99 %; 4 of them are not told, 5 are."""
    assert markets.leads({TRN2: 0.996, GPU: 0.004}, CALLED) == f"{CALLED[TRN2]} in nearly all"
    assert markets.leads({TRN2: 0.994, GPU: 0.006}, CALLED) == f"{CALLED[TRN2]} in 99%, {CALLED[GPU]} in 0.6%"
    assert markets.leads({TRN2: 0.995, GPU: 0.005}, CALLED) == f"{CALLED[TRN2]} in nearly all, {CALLED[GPU]} in 0.5%"
    assert markets.leads({TRN2: 1.0, GPU: 0.0}, CALLED) == f"{CALLED[TRN2]} in all"


def test_a_claim_has_ten_words_at_most(monkeypatch, found):
    """ "Cheapest: A hand-tuned, B public; else open" with names of several words is told up to ten of them."""
    lead = {"public": {"b": 0.95, "a": 0.05}, "hand-tuned": {"a": 0.97, "b": 0.03}, "ideal": {"a": 0.5, "b": 0.5}}
    monkeypatch.setattr(markets, "firsts", lambda found, kind: lead[kind])
    ten, eleven = {"a": "A of two", "b": "B of"}, {"a": "A of two", "b": "B of two"}
    assert markets.claim(found[KEY], ten) == "Cheapest: A of two hand-tuned, B of public; else open"
    assert markets.claim(found[KEY], eleven) == "Who is the cheapest depends on the software"


def test_a_tie_is_told_by_its_quantiles():
    """Of a law that is even from 0.2 to 0.8: the middle, and 5 % of the width from both ends."""
    even, below = (
        tm.sensitivity(lambda x, by=by: {"a": x - by}, {"x": (0.2, 0.8)}, 100_000, distributions={"x": "uniform"})
        for by in (0.0, 0.4)
    )
    assert markets.tie_cell(even, "a") == "0.5 (0.23 to 0.77)"
    assert markets.tie_cell(below, "a") == "0.1 (0 to 0.37)"
    assert markets.tie_cell(even, "b", "too slow") == markets.tie_cell(None, "a", "too slow") == "too slow"


def test_where_nothing_is_open_the_middle_says_who_is_first(found):
    """One system with one price, on ideal software: no draw, and yet it is there."""
    priced_alone = found[KEY].priced({name: rents.own(name, 1.0 + place) for place, name in enumerate(CALLED)})
    shares = markets.firsts(priced_alone, "ideal")
    costs = {one.system.id: float(one.generated_usd_per_mtoken) for one in priced_alone.of("ideal")}
    assert max(shares, key=shares.get) == min(costs, key=costs.get)
    assert sorted(shares.values()) == [0.0, 0.0, 0.0, 1.0]


def test_draws_of_one_chip_in_two_racks_are_common(own):
    """Both racks have the same package and watts: what is left between them is switches against cables."""
    draws = own[KEY].draws("ideal", draws=owned.DRAWS).values
    both = np.corrcoef(np.log(draws[AIR]), np.log(draws[TORUS]))[0, 1]
    apart = np.corrcoef(np.log(draws[AIR]), np.log(draws[GPU]))[0, 1]
    assert both > 0.9 > apart


@pytest.mark.parametrize(("which", "argument"), [("chip_usd", "chip_usd"), ("tdp_w", "tdp_w")])
def test_a_tie_ties(found, own, hours, which, argument):
    """With the price or the watts at the tie of the middle, both tokens cost the same."""
    draws = owned.drawn_ties(own[KEY], AIR, which, "ideal", [GPU])
    tie = float(draws.bars[GPU][0])
    mine, other = (float(found[KEY][name, "ideal"].chip_s()) for name in (AIR, GPU))
    at = float(tm.tco(AIR, **{argument: tie}).useful_usd_per_h) if tie > 0 else None
    if at is not None:
        assert at * mine == pytest.approx(float(hours[GPU].useful_usd_per_h) * other, rel=1e-6)
    else:
        base = float(tm.tco(AIR, **{argument: 1.0}).useful_usd_per_h)
        assert base * mine > float(hours[GPU].useful_usd_per_h) * other


def test_a_lane_that_costs_the_tie_makes_the_racks_level(found, own, hours):
    draws = owned.drawn_ties(own[KEY], AIR, "switch_usd_per_lane", "ideal", [TORUS])
    tie = float(draws.bars[TORUS][0])
    assert tie > 0
    mine, other = (float(found[KEY][name, "ideal"].chip_s()) for name in (AIR, TORUS))
    at = tm.tco(AIR, switch_usd_per_lane=tie).useful_usd_per_h
    assert float(at) * mine == pytest.approx(float(hours[TORUS].useful_usd_per_h) * other, rel=1e-6)


def test_what_waits_for_nothing(own, hours):
    same = markets.waiting(own, hours[AIR], AIR)
    assert same.ideal[0] == pytest.approx(0)
    assert "there is nothing to wait for" in cost_sentences.waiting_time(same, "a", "a")
    assert "no time" in cost_sentences.waiting_time(same, "a", "b")
    assert "nothing known" in cost_sentences.waiting_time(
        same.assign(**{"public": np.nan, "hand-tuned": np.nan, "ideal": np.nan}), "a", "b"
    )


def test_months_of_waiting_by_the_printed_trend(found, own, hours):
    """A token that costs 1 / r is worth ln r / (0.14 ln 10 + ln 1.08) years; ends are quantiles of common draws."""
    table = markets.waiting({KEY: own[KEY]}, hours[GPU], AIR)
    a_year = 0.14 * np.log(10) + np.log(1.08)
    draws = own[KEY].draws("ideal", draws=owned.DRAWS).values
    gpu, air = (float(found[KEY][name, "ideal"].chip_s() * hours[name].useful_usd_per_h) for name in (GPU, AIR))
    assert table["ideal"][0] == pytest.approx(12 * np.log(gpu / air) / a_year, rel=1e-9)
    both = np.isfinite(draws[GPU]) & np.isfinite(draws[AIR])
    ends = np.quantile(12 * np.log(draws[GPU][both] / draws[AIR][both]) / a_year, [0.05, 0.95])
    assert (table["ideal_low"][0], table["ideal_high"][0]) == pytest.approx(tuple(ends), rel=1e-9)
    assert np.isnan(table["hand-tuned"][0])  # of a scenario on Trainium3, no order follows
    assert np.isnan(markets.waiting({KEY: own[KEY]}, hours[AIR], AIR)["ideal_low"][0])


def test_who_is_cheaper_is_counted_in_the_draws(own):
    """By a share of them, "all" or "none"; who is too slow is not compared."""
    table = markets.cheaper(own, AIR).set_index(["promised_tokens_per_s_per_user", "than"])
    draws = own[KEY].draws("ideal", draws=owned.DRAWS).values
    for other in (TRN2, TORUS, GPU):
        share = (draws[AIR] < draws[other]).mean()
        told = table["ideal"][SPEED, other]
        words = {0: "in none", 1: "in all"}.get(share, "in nearly all" if share >= 0.995 else "")
        assert told == words if words else float(told[3:-1]) == pytest.approx(100 * share, rel=0.06)
        assert table["ideal"][1e6, other] == "too slow"
        assert table["hand-tuned"][SPEED, other] == "a scenario"


def test_a_month_early_by_the_printed_trend(hours):
    """0.14 powers of ten a year and 8 %: 1 - 10^(-0.14/12) 1.08^(-1/12) = 3.27 % of the capital a month."""
    early = markets.early(hours[AIR]).set_index("months")
    assert early.share[1.0] == pytest.approx(0.0327, abs=5e-5)
    assert early.usd[1.0] == pytest.approx(0.0327 * float(hours[AIR].capital_usd), rel=2e-3)
    assert early.share.is_monotonic_increasing
    told = cost_sentences.early_delivery(hours[AIR], markets.early(hours[AIR]), CALLED[AIR])
    assert "1 month 3.3%" in told  # what months are worth by hand, or it would have raised


def test_by_hand_agrees_and_says_so(found, hours):
    assert "the package says" in cost_sentences.by_hand(found[KEY][TRN2, "ideal"], CALLED)
    assert "the package says" in cost_sentences.hour_by_hand(hours[AIR], "three")
    unknown = tm.tco(TRN2, prices=replace(OWN.prices, hbm_usd_per_byte=np.nan))
    assert "has no cost" in cost_sentences.hour_by_hand(unknown, "two")


def test_the_load_costs_more_than_full_chips(found):
    load = replace(REQUEST, tokens_per_s_per_user=SPEED, requests_per_s=2.0)
    under = tm.token_cost(MODEL, load, list(CALLED), duty=0.5, spare_instances=1)
    assert list(cost_sentences.loaded(found[KEY], under).system) == [TRN2, GPU]  # those with a price
    for full, one in zip(found[KEY].lines, under.lines, strict=True):
        if not one.rent.why and one.fast_enough:
            assert float(one.at_load_usd_per_mtoken) > float(full.generated_usd_per_mtoken)


def test_rents_have_date_place_and_age():
    table = tables.rents_table([tm.system(TRN2), tm.system(AIR), tm.system("mi355x-8")], "capacity-block", None, OWN)
    table = table.set_index("system")
    assert "2026-07-22" in table.rented[TRN2]
    assert table.rented[AIR] == "no price is published"
    assert table.rented["mi355x-8"].startswith("only by ")
    price = rents.rent(TRN2, "capacity-block")
    assert float(table["USD a TB/s-hour"][TRN2].split(" ")[0]) == pytest.approx(price.usd_per_chip_h / 2.9, rel=0.01)


def test_a_price_of_ones_own_is_taken_with_its_ends():
    mine = tables.own_prices([f"rent[{AIR}]=2:3:4", "chip_usd[trainium3]=8000", "hbm_usd_per_byte=2e-8"], "hyperscaler")
    table = tables.rents_table([tm.system(AIR)], "capacity-block", None, mine)
    assert table["USD a chip-hour"][0] == "3 (2 to 4)"
    bill = tm.tco(AIR, prices=mine.prices).bill().set_index("part").usd
    assert bill["HBM"] + bill["logic, package and margin"] == pytest.approx(8000)
    assert mine.prices.range("hbm_usd_per_byte") == (2e-8, 2e-8)
    listed = given.price_list(mine.prices, mine.owner, mine.named).set_index("name")
    assert listed.given["hbm_usd_per_byte"]
    assert not listed.given["retimer_usd"]


@pytest.mark.parametrize(
    "text",
    ["hbm=1", "retimer_usd", "retimer_usd=a", "retimer_usd=1:2", "rent[x]=1", "retimer_usd=-1", "rent[hgx-h100]=0"],
)
def test_a_price_that_is_wrong_is_refused_in_a_line(text):
    with pytest.raises(UnanswerableError) as refused:
        tables.own_prices([text], "hyperscaler")
    assert "\n" not in str(refused.value)


def test_building_and_rent_of_it_are_refused_together():
    with pytest.raises(UnanswerableError, match="not both"):
        tables.own_prices(["build_usd_per_w=10"], "neocloud")


def test_a_region_that_no_price_names_is_refused():
    tables.place("")
    tables.place("us-east-1")
    with pytest.raises(UnanswerableError, match="no published price names it"):
        tables.place("atlantis-1")


def parameter_file():
    """Return every price and rate of a hyperscaler as the YAML that a reader edits: the committed file."""
    lines = []
    for row in given.price_list(priced.prices(), priced.owner()).itertuples():
        ends = [row.value_low, row.value, row.value_high] if row.value_low < row.value_high else [row.value]
        lines.append(f'- "{row.name}={":".join(f"{end:.12g}" for end in ends)}"\n')
    return HEAD + "".join(lines)


def test_the_parameter_file_has_every_price_and_rate_in_force(root):
    """The committed file, given back, is what data says: whoever edits a row edits an answer."""
    text = (root / "notebooks" / "parameters" / "cost.yaml").read_text()
    assert text == parameter_file()
    file = yaml.safe_load(text)
    listed = given.price_list(priced.prices(), priced.owner())
    back = given.parse_inputs(file["prices"], priced.prices(), priced.owner())
    again = given.price_list(back.prices, back.owner)
    assert again.name.tolist() == listed.name.tolist()
    for column in ("value", "value_low", "value_high"):
        assert again[column].to_numpy() == pytest.approx(listed[column].to_numpy(), rel=1e-9)
    assert float(tm.tco(AIR, prices=back.prices, owner=back.owner).usd_per_h) == pytest.approx(
        float(tm.tco(AIR).usd_per_h)
    )


def test_a_line_of_the_live_chart_is_the_owners_hour(own, hours):
    own = markets.table_of(own)
    own = own[own.promised_tokens_per_s_per_user == SPEED]
    rows = grid({"q": own}, {name: owned.as_line(cost) for name, cost in hours.items()})
    assert set(rows.system) == set(CALLED)
    one = rows.set_index("system").loc[AIR]
    again = one.base_usd_per_h + 9000 * one.usd_per_h_per_usd + 900 * one.usd_per_h_per_w
    assert again == pytest.approx(float(tm.tco(AIR, chip_usd=9000.0, tdp_w=900.0).usd_per_h))
    tuned = row(own, AIR, "hand-tuned")
    assert one.usd_per_h * one.ideal_chip_s / 3.6e-3 / one.hand_tuned_share == pytest.approx(tuned.usd_per_mtoken)
    spec = what_if(rows, [AIR, TRN2], chip_usd=9000.0, tdp_w=850.0, caption="c").to_dict()
    assert {param["name"] for param in spec["params"]} >= {"question", "own", "price", "watts", "share"}


def test_bars_hold_the_answer(own):
    bars = cost_sentences.tornado(markets.drawn(own[KEY], "ideal"), AIR)
    assert (bars.usd_per_mtoken_low <= bars.usd_per_mtoken).all()
    assert (bars.usd_per_mtoken <= bars.usd_per_mtoken_high).all()
    assert bars.which.is_unique


def test_a_bar_is_of_a_cost_that_there_is():
    frame = pd.DataFrame(
        {"usd_per_mtoken": [1.0, np.nan], "usd_per_mtoken_low": [0.5, np.nan], "usd_per_mtoken_high": [2.0, np.nan]}
    )
    assert tables.drawable(frame).usd_per_mtoken_high.tolist() == [2.0]


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the saved texts are not on this machine")
def test_names_and_figures_of_what_is_stated_stand_in_its_line():
    for one in stated().itertuples():
        lines = (TEXTS / f"{one.source}.txt").read_text(encoding="utf-8").splitlines()
        line = lines[int(one.locator[1:]) - 1]
        told = re.findall(r"[\w.$~-]*[A-Z0-9][\w.-]*", one.says)  # names and figures
        assert told
        assert [each for each in told if each.rstrip(".") not in line] == [], one.about


def test_an_owners_hour_stands_beside_the_rent(found, hours):
    table = tables.hours_table(hours, found[KEY]).set_index("system")
    assert table.rent[AIR] == "no price"
    assert float(table.rent[TRN2].split(" ")[0]) == pytest.approx(rents.rent(TRN2).usd_per_chip_h, rel=0.01)
    parts = table[["server", "network", "site", "energy", "operations"]].astype(float).sum(axis=1)
    for name in CALLED:
        assert parts[name] == pytest.approx(float(hours[name].usd_per_h), rel=0.05)
