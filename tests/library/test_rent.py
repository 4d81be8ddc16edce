"""What a renter pays: printed prices by hand, equal speed, whole instances, ties, draws, and what is unknown."""

import math
import re
import time
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load, rents
from trnmodel.catalog.tables import DataError, Fact
from trnmodel.draws import cause, deviations, range_of, shares
from trnmodel.search.sensitivity import Uncertain
from trnmodel.units import PFLOP

MODEL = "llama-3.1-8b"
ASK = tm.Request(2048, 512, tokens_per_s_per_user=40)
PAIR = ("trn2.48xlarge", "hgx-h200", "trn3-nl72x2-pcie160")
UNPUBLISHED = [name for name in tm.systems() if name.startswith("trn3") or name == "trn2-ultraserver"]


@pytest.fixture(scope="module")
def costs():
    return tm.token_cost(MODEL, ASK, PAIR)


@pytest.mark.parametrize(
    ("system", "pricing", "value", "ends"),
    [
        ("hgx-h100", "on-demand", 55.04 / 8, None),  # p5.48xlarge, us-east-1
        ("hgx-h100", "capacity-block", (37.76 / 8 + 41.528 / 8) / 2, (37.76 / 8, 41.528 / 8)),
        ("trn2.48xlarge", "capacity-block", 35.7608 / 16, (35.76 / 16, 36.29 / 16)),
        ("trn1.32xlarge", "on-demand", 21.5 / 16, None),
        ("inf2.48xlarge", "reserved", 5.608 / 12, None),
        ("gb200-nvl72", "capacity-block", 761.904 / 72, None),
        ("gb200-nvl72", "market", 9.08 / 2, None),  # a superchip has two GPUs
        ("hgx-b200", "on-demand", 113.9328 / 8, None),
        ("tpu-v6e-pod", "on-demand", (2.7 + 2.97) / 2, (2.7, 2.97)),
        ("mi300x-8", "market-3y", 1.55, None),
    ],
)
def test_a_chip_costs_its_share_of_the_printed_price(system, pricing, value, ends):
    found = tm.rent(system, pricing)
    assert found.usd_per_chip_h == pytest.approx(value, rel=1e-12)
    assert found.range("usd_per_chip_h") == pytest.approx(ends or (value, value), rel=1e-12)
    assert all(fact in load.facts_rows() for fact in found.sources["usd_per_chip_h"])


def test_shares_are_those_that_the_readings_of_capacity_blocks_print():
    """Each reading prints the price of an accelerator-hour beside that of the instance, to a thousandth."""
    table = rents.price_table()
    printed = table.locator.str.extract(r"; ([\d.]+) USD per accelerator")[0].astype(float)
    there = printed.notna() & table.source.eq("koyakimu-capacity-blocks")
    assert there.sum() > 80
    assert (table.usd_per_chip_h - printed)[there].abs().max() < 0.0011


@pytest.mark.parametrize(("system", "printed"), [("tpu-v5p-pod", 1.09e14), ("tpu-v5e-pod", 1.64e14)])
def test_flop_for_a_dollar_are_those_of_the_scaling_book(system, printed):
    """Its table "FLOPs / $" is FLOP/s for each dollar an hour, of 4.2 and 1.2 dollars."""
    hour = tm.rent(system, "on-demand").rates().set_index("of").usd_per_h["PFLOP/s bf16"]
    assert PFLOP / hour == pytest.approx(printed, rel=0.008)


def test_rates_of_a_chip():
    """Trn2: 667 TFLOP/s of BF16 and 2.9 TB/s for 2.235 dollars an hour."""
    found = tm.rent("trn2.48xlarge", region="us-east-2")
    table = found.rates("2026-11-22").set_index("of")
    assert table.usd_per_h["PFLOP/s bf16"] == pytest.approx(35.7608 / 16 / 0.667)
    assert table.usd_per_h["TB/s"] == pytest.approx(35.7608 / 16 / 2.9)
    assert set(table.age_days) == {123}  # 9 days of July, 31, 30, 31, and 22 of November
    wide = replace(found, ranges={"usd_per_chip_h": (1.45, 5.8)}).rates().set_index("of")
    assert wide.loc["TB/s", ["usd_per_h_low", "usd_per_h_high"]].tolist() == pytest.approx([0.5, 2.0])


def test_chips_are_rented_by_one_where_nobody_says():
    assert rents.Rent(id="mine", chip=tm.chip("h100"), usd_per_chip_h=2.0).sold_chips == 1


def test_ages_are_counted_from_the_newest_row_and_not_from_today(monkeypatch):
    class Clock:
        def __getattr__(self, name):
            raise AssertionError("the clock was asked")

    monkeypatch.setattr(time, "time", Clock())
    assert rents.newest().isoformat() == max(
        re.findall(
            r"\d{4}-\d\d-\d\d", " ".join(f.qualifier for f in load.facts_rows().values() if "usd_per" in f.quantity)
        )
    )
    assert tm.rent("hgx-h100", "on-demand").age_days() == 112  # 2026-07-20 to 2026-11-09
    assert math.isnan(tm.rent("trn1n.32xlarge", "spot").age_days())  # whose date nobody printed


def test_newer_prices_of_a_place_replace_older_ones_which_stay_in_the_table():
    table = rents.price_table()
    h100 = table[(table.entity == "p5.48xlarge") & (table.pricing == "capacity-block")]
    assert set(h100[h100.in_force].date) == {"2026-07-22"}
    assert {"2024-10", "2026-01-31", "2026-03-01"} < set(h100.date)
    melbourne = table[(table.entity == "trn1.32xlarge") & (table.place == "ap-southeast-4")]
    assert melbourne.set_index("date").in_force.to_dict() == {"2024-10": False, "2026-07-22": True}
    assert tm.rent("hgx-h100", region="us-east-1").usd_per_chip_h == pytest.approx(41.528 / 8)
    assert tm.rent("hgx-h100", region="eu-north-1").usd_per_chip_h == pytest.approx(37.76 / 8)


def test_every_price_has_currency_place_and_date():
    table = rents.price_table()
    assert set(table.currency) == {"USD"}
    assert not table[["place", "date", "source", "locator"]].eq("").any().any()
    dated = table[table.date != "undated"].date
    assert all(rents.day_of(text).year >= 2022 for text in dated)
    assert (table.usd_per_chip_h_low > 0).all()


@pytest.mark.parametrize("system", UNPUBLISHED)
def test_what_nobody_prices_has_no_price_and_says_so(system):
    found = tm.rent(system)
    assert math.isnan(found.usd_per_chip_h)
    assert found.why == f"no price is published of {system} under any pricing"


def test_an_unpriced_system_ties_all_the_same(costs):
    line = costs["trn3-nl72x2-pcie160", "hand-tuned"]
    assert line.reason == "no price is published"
    figures = [f"{name}_usd_per_mtoken" for name in ("generated", "prefill", "decode", "blended", "at_load")]
    assert np.isnan([getattr(line, name) for name in figures]).all()
    ties = costs.break_even("hgx-h200").set_index(["system", "software"])
    for kind in ("public", "hand-tuned", "ideal"):
        tie = ties.loc["trn3-nl72x2-pcie160", kind]
        assert tie.break_even_usd_per_chip_h_low <= tie.break_even_usd_per_chip_h < tie.break_even_usd_per_chip_h_high
        paid = tm.token_cost(MODEL, ASK, "trn3-nl72x2-pcie160", pricing=float(tie.break_even_usd_per_chip_h))
        same = costs["hgx-h200", kind].generated_usd_per_mtoken
        assert paid["trn3-nl72x2-pcie160", kind].generated_usd_per_mtoken == pytest.approx(same, rel=1e-12)


def common_prices(system):
    """A price between its ends, in each of the common draws: a triangle with its top at the price."""
    price = tm.rent(system)
    low, high = price.range("usd_per_chip_h")
    return Uncertain(low, price.usd_per_chip_h, high, "triangular").at(shares(f"{system}: USD a chip-hour"))


def test_a_tie_is_of_common_draws_of_the_other_s_price_and_of_both_kinds_of_software(costs):
    """What the other pays for a request over what the own request takes, in each draw in which both promises hold."""
    one, other = costs["hgx-h200", "hand-tuned"], costs["trn2.48xlarge", "hand-tuned"]
    tie = costs.break_even("trn2.48xlarge").set_index(["system", "software"]).loc["hgx-h200", "hand-tuned"]
    assert tie.break_even_usd_per_chip_h == pytest.approx(
        35.7608 / 16 * other.choice.request_chip_s / one.choice.request_chip_s, rel=1e-12
    )
    paid = common_prices("trn2.48xlarge") * other.choice.drawn["request_chip_s"]
    low, high = range_of(paid / one.choice.drawn["request_chip_s"])
    assert (tie.break_even_usd_per_chip_h_low, tie.break_even_usd_per_chip_h_high) == pytest.approx((low, high))


def test_a_tie_of_two_racks_with_one_chip_has_no_band():
    """What nobody knows of their software is the same, and at a fixed price cancels."""
    racks = ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160")
    found = tm.token_cost(MODEL, ASK, racks, pricing=2.0)
    tie = found.break_even(racks[0]).set_index("software").loc["hand-tuned"]
    ends = tie.break_even_usd_per_chip_h_low, tie.break_even_usd_per_chip_h_high
    assert ends == pytest.approx((tie.break_even_usd_per_chip_h,) * 2, rel=1e-3)


def test_a_prompt_of_one_token_has_a_cost():
    assert tm.token_cost(MODEL, replace(ASK, input_tokens=1), "hgx-h200")["hgx-h200", "ideal"].valid


def test_a_cost_is_told_in_words_or_why_there_is_none(costs):
    assert costs["trn3-nl72x2-pcie160", "ideal"].describe() == "no price is published"
    one = costs["trn2.48xlarge", "hand-tuned"]
    assert float(one.describe().split(" ")[0]) == pytest.approx(float(one.generated_usd_per_mtoken), rel=0.06)
    assert one.describe().endswith(f"; {one.basis})")
    assert one.chance == 1
    fast = tm.token_cost("llama-3.3-70b", replace(ASK, tokens_per_s_per_user=50), "hgx-h200")["hgx-h200", "public"]
    assert 0 < fast.chance < 1
    assert re.search(r"; the promise holds in \d+ % of the draws\)$", fast.describe())


def test_a_tie_with_an_unpriced_system_is_no_number(costs):
    ties = costs.break_even("trn3-nl72x2-pcie160")
    assert ties.break_even_usd_per_chip_h.isna().all()
    assert ties.reason.str.contains("no price is published").all()


@pytest.mark.parametrize("system", ["trn2.48xlarge", "hgx-h200"])
@pytest.mark.parametrize("kind", ["public", "hand-tuned", "ideal"])
def test_a_request_takes_its_prompt_and_its_steps(costs, system, kind):
    """By hand: the paid chips of a replica over its requests a second are paid, for 512 tokens.

    Of these the prompt takes its own time of the paid chips, and the rest is what generated tokens bear.
    """
    one = costs[system, kind]
    c = one.choice
    a_second = tm.rent(system).usd_per_chip_h / 3600 * c.paid_chips
    request, prompt = a_second / c.requests_per_s_per_replica, a_second * float(c.times.prompt_s)
    assert one.generated_usd_per_mtoken == pytest.approx(1e6 * request / 512, rel=1e-12)
    assert one.prefill_usd_per_mtoken == pytest.approx(1e6 * prompt / 2048, rel=1e-12)
    assert one.decode_usd_per_mtoken == pytest.approx(1e6 * (request - prompt) / 512, rel=1e-9)
    assert one.blended_usd_per_mtoken == pytest.approx(1e6 * request / 2560, rel=1e-12)
    assert one.at_load_usd_per_mtoken == one.generated_usd_per_mtoken
    assert c.tokens_per_s_per_user >= 40 * (1 - 1e-9)


@pytest.mark.parametrize("system", ["trn2.48xlarge", "hgx-h200"])
def test_no_other_mapping_costs_less(costs, system):
    """Every degree of TP with one prompt at a time, at every load and batch that keeps 40 tokens/s a user."""
    one = costs[system, "hand-tuned"]
    same = {"precision": one.choice.precision, "efficiencies": "hand-tuned", "max_context": 2560}
    least, batch, chips = np.inf, np.arange(1, 257), tm.system(system).chips
    for tp in (1, 2, 4, 8):
        step = tm.decode_step(MODEL, system, tm.Mapping(tp=tp), batch=batch, context=2048 + 256, **same)
        prompt = float(tm.prefill(MODEL, system, tm.Mapping(tp=tp), batch=1, input_tokens=2048, **same).time_s)
        for part in np.linspace(0.05, 1, 20):  # of what keeps the whole batch busy
            rate = part * batch / (512 * step.time_s + batch * prompt)
            tpot = step.time_s / (1 - rate * prompt)
            held = chips / np.floor(chips / np.ceil(tp / step.ranks_per_chip))
            made = np.where(step.valid & (tpot <= 1 / 40), held / rate, np.inf)
            least = min(least, made.min())
    assert one.choice.request_chip_s < 1.05 * least  # not every batch is tried


def test_no_system_stands_on_public_software_alone(costs):
    for system in PAIR:
        assert [one.stack_kind for one in costs.lines if one.system.id == system] == ["public", "hand-tuned", "ideal"]
    assert all(costs[s, "ideal"].chip_s() <= costs[s, k].chip_s() for s in PAIR for k in ("public", "hand-tuned"))
    for one in costs.lines:
        if one.valid:
            assert one.low <= one.generated_usd_per_mtoken <= one.high
            assert one.basis in ("measured", "interpolated", "extrapolated", "ideal")


@pytest.mark.parametrize("system", tm.systems())
def test_every_system_has_a_cost_or_a_reason(system):
    pricings = [pricing for pricing in rents.PRICINGS if not tm.rent(system, pricing).why]
    found = tm.token_cost("llama-3.2-1b", ASK, system, pricing=pricings[0] if pricings else "market")
    for one in found.lines:
        cost = one.generated_usd_per_mtoken
        assert bool(one.valid) == bool(cost > 0), one.reason
        assert one.reason or 0 < one.low <= cost <= one.high
        assert bool(pricings) or "no price is published" in one.reason
    assert found.card()


def test_an_array_of_prices_is_many_prices(costs):
    prices = np.array([0.5, 1.0, 7.0])
    many = tm.token_cost(MODEL, ASK, "trn2.48xlarge", pricing=prices)["trn2.48xlarge", "public"]
    for price, cost, low in zip(prices, many.generated_usd_per_mtoken, many.low, strict=True):
        one = tm.token_cost(MODEL, ASK, "trn2.48xlarge", pricing=float(price))["trn2.48xlarge", "public"]
        assert (cost, low) == pytest.approx((one.generated_usd_per_mtoken, one.low), rel=1e-12)
    assert len(many.to_frame(bands=True)) == 3


def test_faster_users_cost_more():
    found = [tm.token_cost(MODEL, replace(ASK, tokens_per_s_per_user=v), "hgx-h200") for v in (20, 60, 120)]
    for kind in ("public", "hand-tuned", "ideal"):
        assert np.all(np.diff([one["hgx-h200", kind].generated_usd_per_mtoken for one in found]) >= 0)


@pytest.mark.parametrize("kind", ["public", "hand-tuned", "ideal"])
def test_who_asks_for_the_speed_that_he_gets_gets_the_same(costs, kind):
    """The point of least cost at 40 tokens/s a user is faster than that, and is that of its own speed too."""
    one = costs["trn2.48xlarge", kind]
    speed = float(one.choice.tokens_per_s_per_user) * (1 - 1e-12)
    again = tm.token_cost(MODEL, replace(ASK, tokens_per_s_per_user=speed), "trn2.48xlarge")["trn2.48xlarge", kind]
    assert again.generated_usd_per_mtoken == pytest.approx(one.generated_usd_per_mtoken, rel=1e-9)
    assert (again.choice.batch, again.choice.tp) == (one.choice.batch, one.choice.tp)


@pytest.mark.parametrize("kind", ["public", "hand-tuned"])
def test_at_a_fixed_price_a_band_is_the_price_times_the_range_of_a_request(kind):
    """7 USD an hour of a chip over the chip-seconds of a request, of which 512 tokens are made."""
    one = tm.token_cost(MODEL, ASK, "hgx-h200", pricing=7.0)["hgx-h200", kind]
    low, high = (7 / 3600 * 1e6 / 512 * end for end in range_of(one.choice.drawn["request_chip_s"]))
    assert (one.low, one.high) == pytest.approx((low, high), rel=1e-12)
    assert (one.low, one.high) == pytest.approx(
        tuple(7 / 3600 * 1e6 / 512 * end for end in one.choice.ends("request_chip_s")), rel=1e-12
    )
    assert low < one.generated_usd_per_mtoken < high
    assert one.chance == one.choice.chance


def test_a_cost_is_as_uncertain_as_its_price_and_its_software(costs):
    """35.76 to 36.29 around 35.7608 dollars for 16 chips, and the chip-seconds of a request, drawn together."""
    one = costs["trn2.48xlarge", "hand-tuned"]
    drawn = common_prices("trn2.48xlarge") * one.choice.drawn["request_chip_s"] / 3600 * 1e6 / 512
    assert (one.low, one.high) == pytest.approx(range_of(drawn), rel=1e-12)
    by_hand = 35.7608 / 16 / 3600 * 1e6 * one.choice.request_chip_s / 512
    assert one.generated_usd_per_mtoken == pytest.approx(by_hand, rel=1e-12)


def test_an_owner_pays_his_own_hour_for_the_same_chip_seconds(costs):
    owned = costs.priced({name: tm.tco(name) for name in PAIR})
    for one, same in zip(owned.lines, costs.lines, strict=True):
        hour = tm.tco(one.system.id)
        assert one.choice is same.choice
        assert one.generated_usd_per_mtoken == pytest.approx(float(hour.usd_per_mtoken(1 / one.chip_s())), rel=1e-12)
        assert one.low < one.generated_usd_per_mtoken < one.high
    again = tm.token_cost(MODEL, ASK, PAIR[:1], pricing=tm.tco(PAIR[0])).lines[0]
    assert again.generated_usd_per_mtoken == owned.lines[0].generated_usd_per_mtoken


def test_a_load_costs_whole_instances_spares_and_the_hours_in_which_they_wait():
    """Half a request a second needs one server of 16 chips; two more stand by, and all wait three quarters of the time.

    3 x 16 chips at 2.235 dollars an hour, over 0.5 x 0.25 x 512 tokens a second.
    """
    load = replace(ASK, requests_per_s=0.5)
    for one in tm.token_cost(MODEL, load, "trn2.48xlarge", duty=0.25, spare_instances=2).lines:
        assert one.instances == 3
        by_hand = 3 * 16 * one.usd_per_chip_h / 3600 / (0.5 * 0.25 * 512) * 1e6
        assert one.at_load_usd_per_mtoken == pytest.approx(by_hand, rel=1e-12)
        one_server = 16 * one.usd_per_chip_h / 3600 / (0.5 * 512) * 1e6
        assert one.generated_usd_per_mtoken == pytest.approx(one_server, rel=1e-12)
        assert one.waits


def test_spares_beside_full_instances_and_no_rate():
    """A replica on one server that is full: a spare beside it doubles what a token costs, and half the time again."""
    found = tm.token_cost(MODEL, ASK, "trn2.48xlarge", duty=0.5, spare_instances=1)
    for one in found.lines:
        assert one.instances == 2
        assert one.at_load_usd_per_mtoken == pytest.approx(4 * one.generated_usd_per_mtoken, rel=1e-12)
        below, above = one.ends("at_load_usd_per_mtoken")
        assert (below, above) == pytest.approx((4 * one.low, 4 * one.high), rel=1e-12)
    assert "whole full instances, 50 % of the time, 1 spare" in found.describe("trn2.48xlarge")[1]


def test_a_rate_of_many_replicas_pays_for_whole_systems():
    """At 400 requests/s: the fewest whole servers, and what they serve is at least that."""
    one = tm.token_cost(MODEL, replace(ASK, requests_per_s=400), "hgx-h200")["hgx-h200", "ideal"]
    each = one.choice.requests_per_s_per_replica * one.choice.replicas_per_instance
    assert one.instances == math.ceil(400 / each * (1 - 1e-12))
    assert one.choice.request_chip_s == pytest.approx(one.instances * 8 / 400, rel=1e-12)


def test_a_hosted_model_says_how_full_a_rented_one_must_be():
    """DeepInfra's 0.10 and 0.32 dollars: (2,048 x 0.10 + 512 x 0.32) / 2,560 = 0.144 a million tokens."""
    found = tm.token_cost("llama-3.3-70b", ASK, "trn2.48xlarge")
    table = found.hosted()
    deep = table[table.seller == "deepinfra"].set_index("software")
    assert deep.api_usd_per_mtoken.unique() == pytest.approx([0.144])
    cost = found["trn2.48xlarge", "hand-tuned"].blended_usd_per_mtoken
    assert deep.break_even_utilisation["hand-tuned"] == pytest.approx(cost / 0.144)
    assert deep.api_generated_usd_per_mtoken.unique() == pytest.approx([(2048 * 0.10 + 512 * 0.32) / 512])
    assert tm.token_cost(MODEL.replace("3.1", "3"), ASK, "trn2.48xlarge").hosted().empty


def test_draws_are_common(costs):
    found = costs.draws("hand-tuned", draws=100_000)
    assert found.wins(least=True).wins.sum() == pytest.approx(1)
    assert set(found.values) == {"trn2.48xlarge", "hgx-h200"}  # no price, no draw
    again = costs.draws("hand-tuned", draws=100_000)
    assert all(np.array_equal(found.values[name], again.values[name]) for name in found.values)


@pytest.mark.parametrize("kind", ["public", "hand-tuned"])
@pytest.mark.parametrize("phase", ["generated", "prefill", "decode", "blended"])
def test_the_ends_of_a_band_are_percentiles_of_its_draws(kind, phase):
    """More draws of the same causes lie as those do of which the band is made."""
    found = tm.token_cost("llama-3.3-70b", replace(ASK, tokens_per_s_per_user=20), "hgx-h200")
    one = found["hgx-h200", kind]
    row = found.draws(kind, phase, draws=50_000).percentiles().iloc[0]
    value, ends = one.figure(f"{phase}_usd_per_mtoken"), one.ends(f"{phase}_usd_per_mtoken")
    assert row.value == pytest.approx(value, rel=1e-12)
    assert (row.p5, row.p95) == pytest.approx(ends, rel=0.08)  # a tail of 1,000 draws
    assert 1 - row.undefined == pytest.approx(one.chance, abs=0.01)


def test_a_draw_replays_the_column_of_the_choice(costs):
    """A quantile of a cause is a standard deviation; the same ones give the draws of the choice itself."""
    one = costs["hgx-h200", "public"]
    spec = tm.system("hgx-h200")
    names = [cause(one.stack, spec, phase) for phase in ("decode", "prefill")]
    assert set(names) == set(one.uncertain()) - {"hgx-h200: USD a chip-hour"}
    drawn = one.drawn_chip_s({name: shares(name) for name in names})
    np.testing.assert_allclose(drawn, one.choice.drawn["request_chip_s"] / 512, rtol=1e-9)
    z = [deviations(name) for name in names]
    np.testing.assert_allclose(drawn, one.choice.column.replay(*z)["request_chip_s"] / 512, rtol=1e-9)
    assert one.drawn_chip_s({}) == pytest.approx(one.chip_s(), rel=1e-12)


def test_systems_of_one_hand_tuned_stack_share_its_draws():
    prices = {"trn2.48xlarge": 2.0, "trn2-ultraserver": 2.0}
    found = tm.token_cost(MODEL, ASK, list(prices), pricing=prices).draws("hand-tuned", draws=2000)
    assert list(found.inputs) == ["decode of hand-tuned-neuron", "prefill of hand-tuned-neuron"]
    assert np.corrcoef([*found.values.values()])[0, 1] > 0.999


def test_a_price_may_be_drawn_by_the_package_itself():
    def ask(price):
        return tm.token_cost(MODEL, ASK, "trn2.48xlarge", pricing=price)["trn2.48xlarge", "ideal"]

    found = tm.sensitivity(ask, {"price": tm.rent("trn2.48xlarge")}, draws=64)
    assert np.ptp(found.values["answer"]) > 0


def test_the_cost_of_a_promise_that_fails():
    """Nothing decodes a million tokens a second, and no prompt is there after a microsecond; neither has dollars."""
    for request, why in (
        (replace(ASK, tokens_per_s_per_user=1e6), "too slow for a user at any load"),
        (replace(ASK, ttft_s=1e-6), "the first token comes too late at any load"),
    ):
        for one in tm.token_cost(MODEL, request, "hgx-h200", spare_instances=1).lines:
            assert one.reason == one.lacking == why
            assert not one.fast_enough
            assert np.isnan([one.generated_usd_per_mtoken, one.at_load_usd_per_mtoken, one.instances, one.low]).all()
            assert np.isnan(one.drawn_usd_per_mtoken({})).all()


def test_a_system_with_a_strange_name_is_one_of_its_own():
    strange = replace(tm.system("hgx-h200"), id="rack: 1/2 [x]*; $(y)")
    found = tm.token_cost(MODEL, ASK, [strange, "hgx-h200"], pricing=5.0)
    for kind in ("public", "hand-tuned", "ideal"):
        one, same = found[strange.id, kind], found["hgx-h200", kind]
        assert one.generated_usd_per_mtoken == same.generated_usd_per_mtoken
        assert (one.low, one.high) == (same.low, same.high)
    assert found.break_even("hgx-h200").break_even_usd_per_chip_h.tolist() == pytest.approx([5.0] * 3)


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v2-lite"])
def test_experts_on_trainium1(model):
    for one in tm.token_cost(model, replace(ASK, tokens_per_s_per_user=5), "trn1.32xlarge").lines:
        assert bool(one.valid) == bool(one.generated_usd_per_mtoken > 0), one.reason


ODD = {
    "zero duty": ({"duty": 0.0}, "duty=0"),
    "duty above 1": ({"duty": 1.5}, "duty=1.5"),
    "half a spare": ({"spare_instances": 0.5}, "spare_instances=0.5"),
    "zero price": ({"pricing": 0.0}, "pricing=0"),
    "negative price": ({"pricing": -1.0}, "pricing=-1"),
    "an unknown pricing": ({"pricing": "lease"}, "pricing='lease'"),
    "an unknown region": ({"region": "mars-1"}, "region='mars-1'"),
    "a precision that no chip has": ({"precision": "mxfp8"}, "precision='mxfp8': no chip asked computes in it"),
    "another chip's price": ({"pricing": tm.rent("hgx-h100")}, "it is the price of h100"),
    "a mapping without it": ({"pricing": {"hgx-h200": 2.0}}, "that names trn2.48xlarge"),
    "a request of the old form": ({"request": {"output_tokens": 5}}, "allowed is a Request"),
    "several requests": ({"request": tm.Request([1, 2], 5)}, "allowed is one request, not an array"),
    "no systems": ({"systems": None}, "systems=None"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_refused(name):
    changed, said = ODD[name]
    with pytest.raises(ValueError, match=re.escape(said)):
        tm.token_cost(**{"model": MODEL, "request": ASK, "systems": "trn2.48xlarge"} | changed)


def test_no_order_follows_from_a_scenario():
    """Of a hand-tuned step on Trainium3 less than half stands on parts that were measured there, on H200 more."""
    found = tm.token_cost(MODEL, ASK, ["hgx-h200", "trn3-nl72x2-pcie160"], pricing=5.0)
    assert [found[name, "hand-tuned"].ranks for name in found.systems] == [True, False]
    assert set(found.draws("hand-tuned", draws=64).values) == {"hgx-h200"}
    assert all(found[name, kind].ranks for name in found.systems for kind in ("public", "ideal"))
    alone = tm.token_cost(MODEL, ASK, "trn3-nl72x2-pcie160", pricing=5.0)
    with pytest.raises(ValueError, match="less than half of each system's step stands on measured parts"):
        alone.draws("hand-tuned")


def test_a_speed_that_nothing_reaches_and_one_token_of_output(tmp_path):
    fast = tm.token_cost(MODEL, replace(ASK, tokens_per_s_per_user=1e5), "hgx-h200")
    assert {one.reason for one in fast.lines} == {"too slow for a user at any load"}
    assert np.isnan([one.generated_usd_per_mtoken for one in fast.lines]).all()
    assert fast.break_even("hgx-h200").empty
    with pytest.raises(ValueError, match="no system has a price and is fast enough"):
        fast.draws()
    short = tm.token_cost(MODEL, replace(ASK, output_tokens=1), "hgx-h200")["hgx-h200", "hand-tuned"]
    assert short.generated_usd_per_mtoken == pytest.approx(
        2048 * short.prefill_usd_per_mtoken + short.decode_usd_per_mtoken
    )
    path = tmp_path / "config.json"
    path.write_text((load.DATA / "models" / "llama-3.2-1b.json").read_text())  # no draft is documented for it
    own = tm.token_cost(str(path), ASK, "hgx-h200")["hgx-h200", "ideal"]
    same = tm.token_cost("llama-3.2-1b", ASK, "hgx-h200")["hgx-h200", "ideal"]
    assert own.generated_usd_per_mtoken == pytest.approx(same.generated_usd_per_mtoken)


def test_too_large_and_a_precision_that_one_chip_lacks():
    large = tm.token_cost("deepseek-v3", ASK, "trn1.2xlarge", pricing="on-demand")
    assert {one.reason for one in large.lines} == {"the model does not fit"}
    found = tm.token_cost(MODEL, ASK, ["hgx-a100", "hgx-h200"], precision="fp8")
    assert found["hgx-a100", "ideal"].reason == "its chip does not compute in the precision"
    assert found["hgx-h200", "ideal"].valid


@pytest.mark.parametrize(
    ("system", "pricing"), [("hgx-h100", "capacity-block"), ("hgx-h200", "market"), ("trn2.48xlarge", "spot")]
)
def test_unknown_is_never_zero(monkeypatch, system, pricing):
    """Each price that an answer uses is taken away: another one stands in, or none; never a cost of nothing."""
    used = tm.rent(system, pricing).sources["usd_per_chip_h"]
    every = rents.prices()
    for gone in [{fact} for fact in used] + [{price.fact.id for price in every if price.pricing == pricing}]:
        monkeypatch.setattr(rents, "prices", lambda gone=gone: tuple(p for p in every if p.fact.id not in gone))
        left = tm.rent(system, pricing)
        assert left.usd_per_chip_h > 0 or (math.isnan(left.usd_per_chip_h) and "no price is published" in left.why)
    one = tm.token_cost(MODEL, ASK, system, pricing=pricing).lines[-1]
    assert one.reason == "no price is published"
    assert math.isnan(one.generated_usd_per_mtoken)
    assert math.isnan(one.at_load_usd_per_mtoken)


def test_an_unknown_price_of_your_own_is_unknown():
    price = replace(tm.rent("hgx-h200"), usd_per_chip_h=math.nan, ranges={})
    one = tm.token_cost(MODEL, ASK, "hgx-h200", pricing=price)["hgx-h200", "ideal"]
    assert one.reason == "no price is published"
    with pytest.raises(ValueError, match=r"usd_per_chip_h=0\.0: allowed are numbers from 1e-30"):
        replace(price, usd_per_chip_h=0.0)


def fact(entity, quantity, qualifier, printed):
    unit = {"rent_usd_per_h": "USD/h", "rent_usd_per_chip_h": "USD/h"}[quantity]
    return Fact(entity, entity, quantity, qualifier, printed, unit, "mine", "p. 1", "B", "")


def test_a_price_is_shared_by_the_chips_that_are_rented_together(monkeypatch):
    """16 chips of trn1.32xlarge; one where a chip is priced; a row that names two places is two prices."""
    rows = [
        fact("trn1.32xlarge", "rent_usd_per_h", "spot here,there 2025-03", "48"),
        fact("h100", "rent_usd_per_chip_h", "market her 2025", "3"),
    ]
    monkeypatch.setattr(load, "facts_rows", lambda: dict(enumerate(rows)))
    found = [(one.place, one.value, one.low, one.high, one.chips, one.day) for one in rents.prices.__wrapped__()]
    march = date(2025, 3, 1)
    assert found == [("here", 3, 3, 3, 16, march), ("there", 3, 3, 3, 16, march), ("her", 3, 3, 3, 1, date(2025, 1, 1))]


@pytest.mark.parametrize("qualifier", ["lent here 2025", "spot", "spot "])
def test_a_price_without_a_way_or_a_place_is_refused(qualifier, monkeypatch):
    row = fact("trn1.32xlarge", "rent_usd_per_h", qualifier, "48")
    monkeypatch.setattr(load, "facts_rows", lambda: {"one": row})
    with pytest.raises(DataError, match=r"column qualifier: allowed is a pricing \(on-demand, .*\), places and a date"):
        rents.prices.__wrapped__()


def price(entity, place, day):
    return rents.Price(entity, "spot", place, day, 1.0, 1.0, 1.0, 1, None)


@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        (("a", "here", "2025-01-01"), ("a", "there", "2026-01-01"), True),  # 365 days
        (("a", "here", "2024-12-31"), ("a", "there", "2026-01-01"), False),  # 366
        (("a", "here", "2025-01-01"), ("a", "here", "2025-01-02"), False),
        (("a", "here", "2025-01-02"), ("a", "here", "2025-01-02"), True),
        (("a", "here", "2025-01-01"), ("b", "here", "2025-01-02"), True),
        (("a", "unnamed", "2025-01-01"), ("a", "here", "2025-01-02"), False),
        (("a", "unnamed", "2025-01-01"), ("b", "here", "2025-01-02"), True),
    ],
)
def test_a_price_is_in_force_for_a_year_and_until_its_place_has_a_newer_one(old, new, stays):
    old, new = price(*old), price(*new)
    assert rents.in_force([old, new]) == ([old, new] if stays else [new])


def test_a_price_of_your_own_and_ages_to_a_day():
    found = rents.own("trn2.48xlarge", 3.0)
    assert (found.usd_per_chip_h, found.sold_chips, found.pricing, found.range("usd_per_chip_h")) == (
        3,
        16,
        "own price",
        (3, 3),
    )
    assert replace(found, date="2025-02").age_days("2025-03-03") == 30  # 28 of February and 2
    assert math.isnan(replace(found, date="undated").age_days("2025-03-03"))
    with pytest.raises(ValueError, match="at='soon': allowed are dates such as \"2026-11-22\""):
        found.age_days("soon")


def test_a_request_of_tokens_that_are_priced_apart():
    """5 tokens of 2 dollars and 3 of 7: 31 dollars of 8 tokens."""
    assert rents.Hosted("s", "2025", 2.0, 7.0, "mine").usd_per_token(5, 3) == 31 / 8
