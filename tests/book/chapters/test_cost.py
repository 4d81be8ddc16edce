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
from trnbook.chapters import cost_inputs as given
from trnbook.chapters.cost_value import stated
from trnbook.chapters.cost_whatif import POINTS, grid, plane, what_if
from trnmodel.arguments import ImpossibleError, UnanswerableError
from trnmodel.catalog import prices as priced
from trnmodel.catalog import rents

HEAD = """# Every price and rate that an owner's cost takes: name=value or name=low:value:high, in base units.
# trnmodel run cost -f notebooks/parameters/cost.yaml
prices:
"""
TRN2, AIR, TORUS, GPU = "trn2.48xlarge", "trn3-nl32x2-pcie160", "trn3-nl32x2-torus", "hgx-h200"
MODEL, SPEED = "llama-3.1-8b", 40.0
SYSTEMS = [TRN2, AIR, TORUS, GPU]
OWN = tables.own_prices([], "hyperscaler", "capacity-block", "")
REQUEST = tm.Request(1024, 256, tokens_per_s_per_user=SPEED)
TEXTS = Path(os.environ.get("TRNMODEL_SOURCES", Path(__file__).parents[4] / "shared" / "sources"))


@pytest.fixture(scope="module")
def rented():
    return tm.token_cost(MODEL, REQUEST, SYSTEMS)


@pytest.fixture(scope="module")
def hours():
    return {name: tm.tco(name) for name in SYSTEMS}


@pytest.fixture(scope="module")
def owned(rented, hours):
    return rented.priced(hours)


@pytest.fixture(scope="module")
def slow():
    """A promise that nobody keeps."""
    return tm.token_cost(MODEL, replace(REQUEST, tokens_per_s_per_user=1e6), SYSTEMS)


def row(table, system, software="ideal"):
    return table[(table.system == system) & (table.software == software)].iloc[0]


def test_a_token_is_its_chip_seconds_times_the_price(rented):
    """USD 2.00 an hour and 85 tokens/s are USD 6.54 a million (gmicloud's worked example)."""
    one = row(tables.rows(rented), TRN2)
    assert one.usd_per_mtoken == pytest.approx(6.5359 * one.usd_per_chip_h / 2.0 * one.chip_s * 85, rel=1e-4)
    assert one.usd_per_mtoken_low <= one.usd_per_mtoken <= one.usd_per_mtoken_high


def test_every_system_stands_on_every_kind_of_software(rented):
    table = tables.rows(rented, paid="rented")
    assert (table.groupby("system").software.nunique() == 3).all()
    assert table[table.system == AIR].usd_per_mtoken.isna().all()
    assert set(table[table.system == AIR].reason) == {"no price is published"}
    assert set(table.paid) == {"rented"}


def test_bars_stand_in_the_order_of_their_owners_cost(owned, rented):
    table = tables.bars(owned, rented)
    own = table[table.paid == "owned"]
    assert own.usd_per_mtoken.is_monotonic_increasing
    assert set(own.system) == set(SYSTEMS)
    assert set(SYSTEMS) & set(table[table.paid == tables.CUSTOMER].system) == {TRN2, GPU}
    pairs = table[table.system.isin(SYSTEMS)].drop_duplicates("system", keep="first")
    assert (pairs.paid == "owned").all()


def test_a_customer_rents_the_system_or_the_cheapest_trainium(rented, slow):
    assert tables.customer(rented, GPU).system.id == GPU
    assert tables.customer(rented, AIR).system.id == TRN2
    assert tables.customer(slow, AIR) is None


def test_the_card_opens_with_what_a_customer_pays_and_names_the_cheapest_seller():
    request = tm.Request(4096, 512, tokens_per_s_per_user=50.0)
    costs = tm.token_cost("llama-3.3-70b", request, [TRN2, AIR])
    own = costs.priced({name: tm.tco(name) for name in (TRN2, AIR)})[AIR, "public"]
    rent, sold = tables.customer(costs, AIR), tables.sellers({"": costs})
    said = tables.answer(own, rent, sold)
    lowest = sold.api_generated_usd_per_mtoken.min()
    assert f"Renting costs {float(rent.generated_usd_per_mtoken) / lowest:.2g} times as much as buying" in said
    assert "a customer who rents trn2.48xlarge" in said
    assert "the owner of Trainium3 NL32x2 Switched" in tables.answer(own, None, sold)


def test_a_speed_that_nobody_reaches_is_refused_and_ties_with_nobody(slow, owned, hours):
    with pytest.raises(ImpossibleError, match=f"{MODEL} on system = '{GPU}', public software: "):
        tables.must_cost(slow.priced(hours), GPU)
    tables.must_cost(owned, GPU)
    assert list(tables.rankings({"q": slow}, {"q": slow})) == []
    tied = tables.tie_rows("q", TRN2, *[slow.break_even(GPU)] * 3)
    shown = tables.ties([tied], hours, rents.rent(GPU, "capacity-block"), tm.system(TRN2), tm.system(GPU)).frame
    assert (shown.iloc[:, 2:] == "-").all(axis=None)


def test_contests_are_of_systems_that_have_a_cost(owned, rented):
    asked = list(tables.rankings({"q": owned}, {"q": rented}))
    assert [one.which for one in asked] == [
        f"{MODEL}, {how}" for how in ("owned, public", "rented, public", "owned, ideal")
    ]
    for one in asked:
        costs = tm.token_cost(*one.ask, SYSTEMS, pricing=one.pricing)
        same = (rented if "rented" in one.which else owned)[TRN2, one.software]
        assert costs[TRN2, one.software].generated_usd_per_mtoken == same.generated_usd_per_mtoken


def test_shares_of_the_draws_add_up(owned):
    for software in ("public", "hand-tuned", "ideal"):
        wins = owned.draws(software, draws=4000).wins(least=True)
        assert wins.wins.sum() == pytest.approx(1)
        shown = tables.winners(wins, "q")
        assert shown.share.sum() == pytest.approx(1)
        assert (shown.share >= 0).all()


def test_draws_of_one_chip_in_two_racks_are_common(owned):
    """Both racks have the same package and watts: what is left between them is switches against cables."""
    draws = owned.draws("ideal", draws=4000).values
    both = np.corrcoef(np.log(draws[AIR]), np.log(draws[TORUS]))[0, 1]
    apart = np.corrcoef(np.log(draws[AIR]), np.log(draws[GPU]))[0, 1]
    assert both > 0.9 > apart


def ties_of(rented, hours, system=AIR, rival=GPU):
    prices = dict.fromkeys(SYSTEMS, 1.0), "capacity-block", hours
    return tables.tie_rows("q", system, *(rented.priced(one).break_even(rival) for one in prices)).set_index("software")


def test_a_tie_ties(rented, hours):
    """At the tie both tokens cost the same, at a rent and at an owner's cost, which a price of the chip gives."""
    tied = ties_of(rented, hours)
    rent = rents.rent(GPU, "capacity-block").usd_per_chip_h
    for software in ("public", "ideal"):
        one = tied.loc[software]
        assert one.rival_hours == pytest.approx(rented[GPU, software].chip_s() / rented[AIR, software].chip_s())
        assert one.rent_usd_per_h == pytest.approx(one.rival_hours * rent)
        assert one.owner_usd_per_h == pytest.approx(one.rival_hours * float(hours[GPU].useful_usd_per_h))
        at = {AIR: one.rent_usd_per_h, GPU: rent}
        both = tm.token_cost(MODEL, REQUEST, [AIR, GPU], pricing=at)
        costs = [float(both[name, software].generated_usd_per_mtoken) for name in at]
        assert costs[0] == pytest.approx(costs[1], rel=1e-9)


def test_the_price_of_a_chip_at_the_tie_gives_the_hour_of_the_tie(rented, hours):
    tied = ties_of(rented, hours).reset_index()
    shown = tables.ties([tied], hours, rents.rent(GPU, "capacity-block"), tm.system(AIR), tm.system(GPU))
    for told, usd in zip(shown.frame["its chip [$]"], tied.owner_usd_per_h, strict=True):
        cheapest = float(tm.tco(AIR, chip_usd=1e-6).useful_usd_per_h)
        if told == "none":
            assert usd < cheapest
        else:
            at = float(told.replace(",", ""))
            assert float(tm.tco(AIR, chip_usd=at).useful_usd_per_h) == pytest.approx(usd, rel=0.02)
    assert "8 x H200 SXM ($6.24 rented, $1.41 owned)" in shown.caption
    sold = tables.ties([tied], hours, rents.rent(AIR, "capacity-block"), tm.system(GPU), tm.system(AIR))
    assert "its server [$]" in sold.frame
    assert "no published rent" in sold.caption


@pytest.mark.parametrize("which", ["tdp_w", "switch_usd_per_lane"])
def test_watts_and_lanes_tie_too(rented, hours, which):
    """With the input at the tie, a token of the switched rack costs what one of the torus does."""
    mine, other = (rented[name, "ideal"].chip_s() for name in (AIR, TORUS))
    wanted = float(hours[TORUS].useful_usd_per_h) * other / mine
    tie = float(hours[AIR].break_even(which, useful_usd_per_h=wanted))
    assert tie > 0
    assert float(tm.tco(AIR, **{which: tie}).useful_usd_per_h) == pytest.approx(wanted, rel=1e-9)


def test_half_a_load_costs_twice_and_sellers_have_a_price_by_the_token():
    request = tm.Request(4096, 512, tokens_per_s_per_user=20.0)
    costs = tm.token_cost("llama-3.3-70b", request, TRN2, duty=0.5)
    table = tables.choices({"rented": costs}, tm.system(TRN2)).frame
    first = table.iloc[0]
    full, half = (
        float(first[name].split()[0])
        for name in ("at full load [$ per million tokens]", "at my load [$ per million tokens]")
    )
    assert half == pytest.approx(2 * full, rel=0.03)
    sellers = tables.sellers({"q": costs})
    assert len(sellers) == len(table) - 1 > 0
    ratio = sellers.api_generated_usd_per_mtoken / sellers.api_usd_per_mtoken
    assert ratio.to_numpy() == pytest.approx((4096 + 512) / 512)
    assert tables.sellers({"q": tm.token_cost("qwen2.5-7b", REQUEST, TRN2)}).empty
    assert tables.seller_sources({"q": costs}) == set(sellers.source)


def test_rents_have_date_place_and_age():
    systems = [tm.system(name) for name in (TRN2, AIR, "mi355x-8")]
    table = tables.rents_table(systems, OWN).set_index("system")
    assert table.date[TRN2] == "2026-07-22"
    assert table.why[AIR].startswith("no price is published")
    assert table.why["mi355x-8"] != ""
    price = rents.rent(TRN2, "capacity-block")
    assert table["TB/s"][TRN2] == pytest.approx(price.usd_per_chip_h / 2.9, rel=0.01)


def test_a_price_of_ones_own_is_taken_with_its_ends():
    texts = [f"rent[{AIR}]=2:3:4", "chip_usd[trainium3]=8000", "hbm_usd_per_byte=2e-8"]
    mine = tables.own_prices(texts, "hyperscaler", "capacity-block", "")
    rent = mine.rent(tm.system(AIR))
    assert (rent.usd_per_chip_h, *rent.range("usd_per_chip_h")) == (3.0, 2.0, 4.0)
    bill = tm.tco(AIR, prices=mine.prices).bill().set_index("part").usd
    assert bill["HBM"] + bill["logic, package and margin"] == pytest.approx(8000)
    assert mine.prices.range("hbm_usd_per_byte") == (2e-8, 2e-8)
    listed = given.price_list(mine.prices, mine.owner, mine.named).set_index("name")
    assert listed.given["hbm_usd_per_byte"]
    assert not listed.given["retimer_usd"]


def test_a_rent_goes_by_the_name_that_scenario_files_have_for_it():
    mine = tables.own_prices([f"usd_per_chip_h[{AIR}]=1.5"], "hyperscaler", "capacity-block", "")
    assert mine.rent(tm.system(AIR)).usd_per_chip_h == 1.5


@pytest.mark.parametrize(
    "text",
    ["hbm=1", "retimer_usd", "retimer_usd=a", "retimer_usd=1:2", "rent[x]=1", "retimer_usd=-1", "rent[hgx-h100]=0"],
)
def test_a_price_that_is_wrong_is_refused_in_a_line(text):
    with pytest.raises(UnanswerableError) as refused:
        tables.own_prices([text], "hyperscaler", "capacity-block", "")
    assert "\n" not in str(refused.value)


def test_building_and_rent_of_it_are_refused_together():
    with pytest.raises(UnanswerableError, match="not both"):
        tables.own_prices(["build_usd_per_w=10"], "neocloud", "capacity-block", "")


def test_a_region_a_pricing_or_an_owner_that_nobody_knows_is_refused():
    assert tables.own_prices([], "neocloud", "spot", "us-east-1").region == "us-east-1"
    for ask in (("hyperscaler", "spot", "atlantis-1"), ("hyperscaler", "barter", ""), ("owner", "spot", "")):
        with pytest.raises(UnanswerableError):
            tables.own_prices([], *ask)


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


def test_a_plane_of_the_live_chart_is_the_owners_hour(owned, hours):
    own = tables.rows(owned)
    movable = tables.movable(hours)
    assert movable == [TRN2, AIR, TORUS]
    rows = grid({"q": own}, {name: plane(hours[name], tm.tco(name, **POINTS)) for name in movable})
    assert set(rows.system) == set(SYSTEMS)
    one, sold = (rows.set_index("system").loc[name] for name in (AIR, GPU))
    again = one.base_usd_per_h + 9000 * one.usd_per_h_per_usd + 900 * one.usd_per_h_per_w
    assert again == pytest.approx(float(tm.tco(AIR, chip_usd=9000.0, tdp_w=900.0).usd_per_h))
    assert (sold.usd_per_h_per_usd, sold.usd_per_h_per_w) == (0.0, 0.0)
    tuned = row(own, AIR, "hand-tuned")
    assert one.usd_per_h * one.ideal_chip_s / 3.6e-3 / one.hand_tuned_share == pytest.approx(tuned.usd_per_mtoken)
    spec = what_if(rows, [AIR, TRN2], share=30.0, caption="c").to_dict()
    assert {param["name"] for param in spec["params"]} >= {"question", "own", "price", "watts", "share"}


def test_the_live_chart_begins_at_the_prices_in_force_and_at_public_software(owned, hours):
    moved = {name: tm.tco(name, **POINTS) for name in (AIR, TRN2)}
    chart = tables.live({"q": owned}, hours, moved, "x").to_dict()
    params = {one["name"]: one["value"] for one in chart["params"]}
    assert (params["price"], params["watts"]) == (100, 100)
    public, ideal = (owned[AIR, kind].chip_s() for kind in ("public", "ideal"))
    assert params["share"] == pytest.approx(100 * ideal / public, abs=0.25)
    for name, cost in moved.items():
        one = plane(hours[name], cost)
        assert one.base_usd_per_h + one.chip_usd * one.usd_per_h_per_usd + one.tdp_w * one.usd_per_h_per_w == (
            pytest.approx(float(hours[name].usd_per_h))
        )
    assert "no price of a chip moves it" in tables.live({"q": owned}, hours, {}, "x").data


def test_bars_hold_the_answer_and_are_of_what_moves_it(owned):
    one = owned[AIR, "public"]
    value = float(one.generated_usd_per_mtoken)
    bars = tables.bars_of(owned.draws("public", draws=4000).tornado(AIR), value)
    assert (bars.usd_per_mtoken_low <= bars.usd_per_mtoken).all()
    assert (bars.usd_per_mtoken <= bars.usd_per_mtoken_high).all()
    assert bars.which.is_unique
    assert len(bars) == tables.BARS


def test_a_bar_of_a_cost_is_one_that_moves_a_thousandth_of_it():
    table = pd.DataFrame(
        {
            "input": [f"{name}.pue" for name in ("prices", "power", "a-stack", "b")],
            "swing": [9.0, np.inf, 0.009, 0.02],
            "answer_low": [14.0, 1.0, 10.0, 10.0],
            "answer_high": [5.0, 1.0, 10.0, 10.02],
        }
    )
    found = tables.bars_of(table, 10.0)
    assert found.which.tolist() == ["pue", "b.pue"]
    assert found.iloc[0, 1:].tolist() == [10.0, 5.0, 14.0, "extrapolated"]


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("prices.chip_markup", "margin on the chip"),
        ("owner.cluster_chips", "cluster chips"),
        ("TDP of trainium3", "TDP of trainium3"),
        ("decode of a-stack.1 on h100", "speed of decode steps on this software"),
    ],
)
def test_inputs_have_names(label, told):
    assert tables.named(label) == told


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the saved texts are not on this machine")
def test_names_and_figures_of_what_is_stated_stand_in_its_line():
    for one in stated().itertuples():
        lines = (TEXTS / f"{one.source}.txt").read_text(encoding="utf-8").splitlines()
        line = " ".join(lines[int(number) - 1] for number in re.findall(r"L(\d+)", one.locator))
        told = re.findall(r"(?<=\s)[\w.$~-]*[A-Z0-9][\w.-]*", one.claim)  # names and figures; its first word is none
        assert [each for each in told if each.rstrip(".s") not in line] == [], one.id


def test_parts_of_an_owners_hour_add_up(hours):
    table = tables.hours_table(hours).set_index("system")
    parts = table[[f"{part}_usd_per_h" for part in ("server", "network", "site", "energy", "operations")]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(table.usd_per_h.to_numpy(dtype=float))
    bills = tables.bills(hours)
    assert set(bills.system) == set(SYSTEMS)
    assert bills.groupby("system").share.sum().to_numpy() == pytest.approx(1)


def test_what_time_and_savings_are_worth(hours):
    """0.14 powers of ten a year and 8 %: 1 - 10^(-0.14/12) 1.08^(-1/12) = 3.27 % of the capital a month."""
    table = tables.delays(hours).set_index("system")
    share = table["USD, early by months: 1"] / table.capital_usd
    assert share.to_numpy(dtype=float) == pytest.approx(0.0327, abs=5e-5)
    assert (table["USD, early by months: 12"] > table["USD, early by months: 1"]).all()
