"""An owner's hour, its bill, prices of one's own and ties of rents at numbers that are worked out by hand."""

import inspect
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import facilities
from trnmodel.catalog import prices as priced
from trnmodel.catalog.systems import Switch
from trnmodel.cost import bill
from trnmodel.draws import DRAWS, range_of
from trnmodel.search import token_cost
from trnmodel.search.chip_seconds import TokenCostQuestion

SOLD, RACK, TORUS = "hgx-h100", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus"


def test_lanes_of_a_switch_chip():
    """160 lanes as printed; 72 ports of two lanes where no lanes are; none of no switch."""
    assert bill._lanes(Switch(id="a", switch_lanes=160.0, switch_ports=9.0), 2.0) == 160
    assert bill._lanes(Switch(id="a", switch_ports=72.0), 2.0) == 144
    assert bill._lanes(None, 2.0) == 0


def test_a_rack_without_active_cables_has_none():
    assert bill.counts(tm.system("trn3-nl16-torus"))["active cables"] == 0
    assert bill.counts(tm.system(TORUS))["active cables"] > 0


def test_parts_of_a_rack_at_their_prices(monkeypatch):
    """Parts of 4,610 USD, of which assembly makes a fifth of the whole."""
    counts = {"rack switches": 3.0, "board switches": 5.0, "retimers": np.nan, "copper cables": 11.0}
    counts |= {"active cables": 13.0, "NICs": 0.5, "NICs of CPUs": np.nan, "host CPUs": 0.25}
    monkeypatch.setattr(bill, "counts", lambda spec: counts)
    p = replace(
        priced.prices(), switch_rebate=0.25, aec_rebate=0.5, switch_usd_per_lane=4.0, retimer_usd=40.0,
        retimers_per_chip=7.0, copper_cable_usd=17.0, aec_usd=6.0, nic_usd_per_bytes_per_s=100.0, nics_per_cpu=2.0,
        cpu_usd=8000.0, board_usd_per_w=0.5, rack_usd_per_w=0.25, integration_share=0.2, hbm_usd_per_byte=0.3,
        hbm_share=0.5, chip_markup=2.0, chip_usd={},
    )  # fmt: skip
    spec = SimpleNamespace(chip=SimpleNamespace(id="c", hbm_bytes=1000.0), nic_bytes_per_s_per_dir=2.0)
    found = {name: float(usd) for name, usd in bill._rack(spec, p, 1000.0).items()}
    assert found == pytest.approx(
        {
            "HBM": 300.0,
            "logic, package and margin": 900.0,
            "rack switches": 9.0,
            "board switches": 15.0,
            "retimers": 210.0,
            "backplane cables": 187.0,
            "active cables": 39.0,
            "NICs": 200.0,
            "host CPUs": 2000.0,
            "boards and power supplies": 500.0,
            "cooling, rack and drives": 250.0,
            "assembly and test": 1152.5,
        }
    )
    known = bill._package(spec, replace(p, chip_usd={"c": 3000.0}))
    assert {name: float(usd) for name, usd in known.items()} == {"HBM": 750.0, "logic, package and margin": 2250.0}


def test_a_street_price_is_so_many_times_the_printed_one():
    p = priced.prices()
    one, dear = (
        tm.tco(SOLD, prices=replace(p, market_ratio=ratio)).parts_usd["server as sold"] for ratio in (1.0, 1.3)
    )
    assert dear == pytest.approx(1.3 * float(one))


def test_a_network_at_several_rates_is_that_of_each():
    spec = tm.system(SOLD)
    rates = np.array([[50e9, 25e9], [25e9, 100e9]])
    many = replace(spec, network_bytes_per_s_per_dir=8 * rates)
    found = bill.network(many, priced.prices(), 4096)
    for place, rate in np.ndenumerate(rates):
        one = bill.network(replace(spec, network_bytes_per_s_per_dir=8 * rate), priced.prices(), 4096)
        assert {name: float(each[place]) for name, each in found.items()} == {k: float(v) for k, v in one.items()}


# An hour


def test_rates_of_tokens_that_an_hour_is_spread_over():
    cost = tm.tco(SOLD)
    hour = float(cost.useful_usd_per_h)
    np.testing.assert_allclose(cost.usd_per_mtoken([0.25, 0.0, np.nan]), [hour / 3600 * 1e6 / 0.25, np.inf, np.nan])
    below, above = cost.widths("useful_usd_per_h")
    low, high = cost.mtoken_ends(0.25)
    assert low == pytest.approx(4e6 * hour / 3600 * np.exp(-below), rel=1e-12)
    assert high == pytest.approx(4e6 * hour / 3600 * np.exp(above), rel=1e-12)


@pytest.mark.parametrize(
    ("marked", "parts"),
    [
        ("server_usd_per_chip[hgx-h100]", {"server as sold"}),
        ("server_year[hgx-h100]", {"server as sold"}),
        ("server_usd_per_chip[hgx-h200]", set()),
        ("server_usd_per_chip", set()),
        ("aec_usd", {"scale-out cables"}),
    ],
)
def test_a_part_is_an_estimate_where_a_price_of_it_is(marked, parts):
    table = tm.tco(SOLD, prices=replace(priced.prices(), estimates=frozenset({marked}))).bill()
    assert set(table.part[table.estimate]) == parts


def test_what_is_drawn_of_an_hour():
    assert set(tm.tco(RACK).uncertain()) == {"prices", "owner", "power", "TDP of trainium3"}
    spec = tm.system(RACK)
    decided = replace(spec, chip=replace(spec.chip, ranges={}))
    assert set(tm.tco(decided).uncertain()) == {"prices", "owner", "power"}
    assert set(tm.tco(SOLD).uncertain()) == {"prices", "owner"}
    assert tm.tco(RACK).uncertain()["TDP of trainium3"] == (700.0, spec.chip.tdp_w, 1000.0)


def test_a_range_of_watts_alone_widens_what_watts_make():
    """Electricity is in proportion to a TDP of 700 to 1,000 W; what the rack does not have costs 0 within nothing."""
    chip = tm.chip("trainium3")
    decided = {
        "prices": replace(priced.prices(), ranges={}),
        "owner": replace(priced.owner(), ranges={}),
        "power": replace(facilities.power(chip), ranges={}),
    }
    found = tm.tco(TORUS, **decided)
    below, above = (float(side) for side in found.widths("energy_usd_per_h"))
    assert (below, above) == pytest.approx((np.log(chip.tdp_w / 700), np.log(1000 / chip.tdp_w)))
    assert found.widths("rack switches") == found.widths("HBM") == (0.0, 0.0)
    assert found.parts_usd["rack switches"] == 0.0
    assert tm.tco(TORUS, **decided, tdp_w=800.0).widths("energy_usd_per_h") == (0.0, 0.0)
    lopsided = replace(tm.system(TORUS), chip=replace(chip, tdp_w=1000.0))
    assert tm.tco(lopsided, **decided).widths("energy_usd_per_h") == (pytest.approx(np.log(1000 / 700)), 0.0)
    open_ = tm.tco(TORUS)
    assert open_.widths("rack switches") == (0.0, 0.0)
    assert min(open_.widths("HBM")) > 0


@pytest.mark.parametrize("name", ["utilisation", "goodput"])
def test_shares_of_time_from_next_to_nothing(name):
    assert tm.tco(SOLD, **{name: 1e-9}).valid
    with pytest.raises(ValueError, match=f"{name}="):
        tm.tco(SOLD, **{name: 0.9e-9})


# Rents


def spread(low, high):
    """Draws of a figure whose 5th and 95th percentiles are these."""
    return np.linspace(low - (high - low) / 18, high + (high - low) / 18, DRAWS)


def line(system, software="ideal", why="", drawn=4.0, prices=3.0, **more):
    """A cost of a token as far as ties look: 4 chip-seconds and its draws, at 3 USD an hour and its draws."""
    one = {"system": SimpleNamespace(id=system), "stack_kind": software, "lacking": "", "basis": "ideal"}
    one |= {"chip_s": lambda: 4.0, "usd_per_chip_h": 3.0, "fast_enough": True, "FIGURE": "cost"}
    one |= {"common_chip_s": lambda: np.full(DRAWS, 1.0) * drawn}
    one |= {"common_usd_per_h": lambda: np.full(DRAWS, 1.0) * prices}
    one |= {
        "input_tokens": 300.0,
        "output_tokens": 100.0,
        "blended_usd_per_mtoken": 4.0,
        "ends": lambda name: {"blended_usd_per_mtoken": (2.0, 9.0)}[name],
    }
    one |= {"rent": SimpleNamespace(why=why), "waits": False, "describe": lambda name="": f"{name} told"}
    one |= {
        "price_text": lambda: "3 USD",
        "load_text": lambda: "a load",
        "to_frame": lambda bands: pd.DataFrame({"x": [1]}),
    }
    return SimpleNamespace(**one | more)


REQUEST = tm.Request(300, 100, tokens_per_s_per_user=20)


def question(**more):
    ask = {"model": tm.model("llama-3.3-70b"), "request": REQUEST, "precision": None, "duty": 1.0}
    return TokenCostQuestion(**ask | {"spare_instances": 0.0} | more)


def costs(*lines):
    return token_cost.TokenCosts(question(), lines)


@pytest.mark.parametrize(
    ("phase", "chip_s"),
    [
        ("generated", 8 / 100),  # 8 chip-seconds for 100 tokens
        ("prefill", 3 / 300),  # 3 of them are of 300 tokens of the prompt
        ("decode", 5 / 100),  # the rest
        ("blended", 8 / 400),
        ("at_load", (8 + 2 * 8 / 4) / (0.5 * 100)),  # two spares beside a replica on four servers, half of the time
    ],
)
def test_chip_seconds_of_a_token_of_each_phase(phase, chip_s):
    q = question(duty=0.5, spare_instances=2.0)
    assert q.per_token(phase, tm.system(SOLD), 4.0, 8.0, 3.0) == pytest.approx(chip_s, rel=1e-12)


def test_chip_seconds_at_a_rate():
    """At 5 requests a second two spare servers of 8 chips are 3.2 chip-seconds of each request, beside its 8."""
    q = question(request=tm.Request(300, 100, requests_per_s=5.0), duty=0.5, spare_instances=2.0)
    assert q.per_token("at_load", tm.system(SOLD), 4.0, 8.0, 3.0) == pytest.approx((8 + 3.2) / 50, rel=1e-12)


def test_the_price_at_which_one_ties_with_another():
    """4 against 6 chip-seconds at 3 USD: level at 4.5. Draws of 1.5 to 12 USD are drawn with those of the work."""
    prices = spread(1.5, 12.0)
    found = costs(
        line("a"),
        line("b", chip_s=lambda: 6.0, drawn=6.0, prices=prices),
        line("b", "public"),
    )
    (row,) = found.ties("a", "b")
    assert (row["system"], row["against"], row["software"], row["reason"]) == ("a", "b", "ideal", "")
    ends = (
        row["break_even_usd_per_chip_h"],
        row["break_even_usd_per_chip_h_low"],
        row["break_even_usd_per_chip_h_high"],
    )
    assert ends == pytest.approx((4.5, 1.5 * 1.5, 1.5 * 12.0), rel=0.01)
    assert found.ties("a", "a") == []


def test_a_cause_that_two_systems_share_cancels_in_their_tie():
    work = spread(2.0, 8.0)
    (row,) = costs(line("a", drawn=work), line("b", drawn=1.5 * work, chip_s=lambda: 6.0)).ties("a", "b")
    assert row["break_even_usd_per_chip_h_low"] == pytest.approx(4.5, rel=1e-12)
    assert row["break_even_usd_per_chip_h_high"] == pytest.approx(4.5, rel=1e-12)


def test_draws_in_which_a_promise_breaks_are_in_no_tie():
    work = np.where(np.arange(DRAWS) < DRAWS / 2, np.nan, spread(2.0, 8.0))
    (row,) = costs(line("a", drawn=work), line("b")).ties("a", "b")
    low, high = range_of(3.0 * 4.0 / work)
    assert row["break_even_usd_per_chip_h_low"] == pytest.approx(low, rel=1e-12)
    assert row["break_even_usd_per_chip_h_high"] == pytest.approx(max(high, 3.0), rel=1e-12)


def test_why_one_does_not_tie():
    slow, none = line("a", lacking="too slow", fast_enough=False), line("b", why="no price of b")
    (row,) = costs(slow, none).ties("a", "b")
    assert row["reason"] == "a: too slow; b: no price of b"
    assert (
        costs(slow, none)._tied("a", "b")
        == "a ties with b at these $ per chip-hour: ideal a: too slow; b: no price of b"
    )
    assert costs(slow, line("b"))._tied("a", "b") == "a ties with b at these $ per chip-hour: ideal out of reach"
    wide = line("a", drawn=4.0 / spread(0.5, 2.0))
    assert costs(wide, line("b"))._tied("a", "b") == "a ties with b at these $ per chip-hour: ideal 3 (1.5 to 6)"


def test_how_full_a_system_has_to_be_beside_a_seller(monkeypatch):
    """(300 x 1 + 100 x 5) / 400 = 2 USD a million: a system of 4, 2 to 9, is twice that, 1 to 4.5 times."""
    seller = tm.catalog.rents.Hosted("seller", "2026", 1e-6, 5e-6, "source")
    monkeypatch.setattr(token_cost, "hosted", lambda model: [seller] if model == "llama-3.3-70b" else [])
    table = costs(line("a")).hosted()
    assert table.iloc[0].to_dict() == {
        "seller": "seller",
        "date": "2026",
        "source": "source",
        "api_usd_per_mtoken": pytest.approx(2.0),
        "api_generated_usd_per_mtoken": pytest.approx(8.0),
        "system": "a",
        "software": "ideal",
        "break_even_utilisation": pytest.approx(2.0),
        "break_even_utilisation_low": pytest.approx(1.0),
        "break_even_utilisation_high": pytest.approx(4.5),
    }


def test_a_card_of_costs(monkeypatch):
    monkeypatch.setattr(token_cost, "hosted", lambda model: [])
    trn2, gpu, other = "trn2.48xlarge", "hgx-h200", "hgx-b200"
    head = "$ per million generated tokens of llama-3.3-70b, prompts paid: "
    head += "300 tokens in, 100 out, 20 tokens/s per user"
    found = costs(line(gpu, why="no price"), line(trn2, waits=True), line(trn2, "public"), line(other))
    told = [
        "no price",
        f"{trn2}: ideal  told, public  told; 3 USD",
        f"{trn2} at a load: ideal at_load_usd_per_mtoken told",
    ]
    told += [f"{other}: ideal  told; 3 USD"]
    tie = "at these $ per chip-hour: ideal 3"
    assert found.card() == [head, *told, f"{gpu} ties with {trn2} {tie}"]
    unknown = "at these $ per chip-hour: ideal 3"
    assert found.card(gpu) == [head, *told, f"{trn2} ties with {gpu} {unknown}", f"{other} ties with {gpu} {unknown}"]
    alias = "trn2u.48xlarge"
    assert found.card(alias) == [head, *told, f"{gpu} ties with {trn2} {tie}", f"{other} ties with {trn2} {tie}"]
    assert costs(line(gpu, why="no price")).card() == [head, "no price"]
    assert found.to_frame().index.tolist() == [0, 1, 2, 3]
    asked = inspect.signature(token_cost.TokenCosts.draws).parameters
    drawn = inspect.signature(tm.sensitivity).parameters
    assert [asked[name].default for name in ("draws", "seed")] == [drawn[name].default for name in ("draws", "seed")]


def test_the_least_that_is_asked_of_costs(monkeypatch):
    monkeypatch.setattr(token_cost, "cost_line", lambda q, *rest: q)
    least = tm.Request(1, 1)
    found = tm.token_cost("llama-3.1-8b", least, "hgx-h200").lines[0]
    assert (found.request, found.duty, found.spare_instances, found.precision) == (least, 1.0, 0, None)
    for wrong in ({"duty": 1.01}, {"duty": 0}, {"spare_instances": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            tm.token_cost("llama-3.1-8b", least, "hgx-h200", **wrong)


def test_an_owner_s_hour_as_a_price():
    cost = tm.tco(SOLD)
    found = token_cost.owned_rent(cost)
    assert (found.why, found.sold_chips, found.pricing) == ("", 8, "owned by a hyperscaler")
    assert found.ranges["usd_per_chip_h"] == tuple(map(float, cost.ends("useful_usd_per_h")))
    many = token_cost.owned_rent(tm.tco(SOLD, utilisation=np.array([0.5, 1.0])))
    assert (many.usd_per_chip_h.shape, dict(many.ranges)) == ((2,), {})
    none = token_cost.owned_rent(tm.tco("trn1.32xlarge"))
    assert none.why.startswith("trn1.32xlarge, owned: no source prices the server")
    assert dict(none.ranges) == {}
