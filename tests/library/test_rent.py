"""What a renter pays: printed prices by hand, equal speed, whole instances, ties, draws, and what is unknown."""

import math
import re
import time
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from trnmodel.search.objective import Load

import trnmodel as tm
from trnmodel.catalog import load, rents
from trnmodel.catalog.tables import DataError, Fact
from trnmodel.search.chip_seconds import PLACES, between
from trnmodel.units import PFLOP

MODEL = "llama-3.1-8b"
ASK = {"tokens_per_s_per_user": 40, "input_tokens": 2048, "output_tokens": 512}
PAIR = ("trn2.48xlarge", "hgx-h200", "trn3-nl72x2-pcie160")
UNPUBLISHED = [name for name in tm.systems() if name.startswith("trn3") or name == "trn2-ultraserver"]


@pytest.fixture(scope="module")
def costs():
    return tm.token_cost(MODEL, PAIR, **ASK)


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
    figures = [f"{name}_usd_per_mtoken" for name in ("prefill", "decode", "blended", "at_load")]
    assert np.isnan([getattr(line, name) for name in figures]).all()
    ties = costs.break_even("hgx-h200").set_index(["system", "software"])
    for kind in ("public", "hand-tuned", "ideal"):
        tie = ties.loc["trn3-nl72x2-pcie160", kind]
        assert tie.break_even_usd_per_chip_h_low <= tie.break_even_usd_per_chip_h < tie.break_even_usd_per_chip_h_high
        paid = tm.token_cost(MODEL, "trn3-nl72x2-pcie160", pricing=float(tie.break_even_usd_per_chip_h), **ASK)
        same = costs["hgx-h200", kind].blended_usd_per_mtoken
        assert paid["trn3-nl72x2-pcie160", kind].blended_usd_per_mtoken == pytest.approx(same, rel=1e-12)


def test_a_tie_is_as_uncertain_as_the_other_s_price_and_as_both_steps(costs):
    """Ends by hand: what the other costs and takes, and what the own software takes, the other way round."""
    one, other = costs["hgx-h200", "hand-tuned"], costs["trn2.48xlarge", "hand-tuned"]
    tie = costs.break_even("trn2.48xlarge").set_index(["system", "software"]).loc["hgx-h200", "hand-tuned"]
    (fast, middle, slow), (least, mid, most) = one.chip_s_ends(), other.chip_s_ends()
    by_hand = 35.7608 / 16 * mid / middle
    down = np.sqrt(np.log(35.7608 / 35.76) ** 2 + np.log(mid / least) ** 2 + np.log(slow / middle) ** 2)
    up = np.sqrt(np.log(36.29 / 35.7608) ** 2 + np.log(most / mid) ** 2 + np.log(middle / fast) ** 2)
    assert tie.break_even_usd_per_chip_h == pytest.approx(by_hand, rel=1e-9)
    assert tie.break_even_usd_per_chip_h_low == pytest.approx(by_hand * np.exp(-down), rel=1e-9)
    assert tie.break_even_usd_per_chip_h_high == pytest.approx(by_hand * np.exp(up), rel=1e-9)


def test_a_prompt_of_one_token_has_a_cost():
    assert tm.token_cost(MODEL, "hgx-h200", **ASK | {"input_tokens": 1})["hgx-h200", "ideal"].valid


def test_a_cost_is_told_in_words_or_why_there_is_none(costs):
    assert costs["trn3-nl72x2-pcie160", "ideal"].told() == "no price is published"
    one = costs["trn2.48xlarge", "hand-tuned"]
    assert float(one.told().split(" ")[0]) == pytest.approx(float(one.blended_usd_per_mtoken), rel=0.06)
    assert one.told().endswith(f"; {one.basis})")


def test_a_tie_with_an_unpriced_system_is_no_number(costs):
    ties = costs.break_even("trn3-nl72x2-pcie160")
    assert ties.break_even_usd_per_chip_h.isna().all()
    assert ties.reason.str.contains("no price is published").all()


@pytest.mark.parametrize("system", ["trn2.48xlarge", "hgx-h200"])
def test_a_request_takes_its_prompt_and_its_steps(costs, system):
    """By hand: the chips of a replica for o steps over a batch, and for a prompt, at the price of an hour."""
    one = costs[system, "hand-tuned"]
    c = one.choice
    mapping = tm.Mapping(tp=c.tp, ep=c.ep)
    same = {"precision": c.precision, "efficiencies": "hand-tuned", "max_context": 2560}
    step = tm.decode_step(MODEL, system, mapping, batch=c.batch, context=2048 + 256, **same)
    prompt = tm.prefill(MODEL, system, mapping, batch=c.ep, input_tokens=2048, **same)
    paid = tm.rent(system).usd_per_chip_h / 3600 * c.chips
    decode, prefill = paid * float(step.time_s) / c.batch, paid * float(prompt.time_s) / c.ep / 2048
    assert float(step.tokens_per_s_per_user) >= 40
    assert one.decode_usd_per_mtoken == pytest.approx(1e6 * decode, rel=1e-9)
    assert one.prefill_usd_per_mtoken == pytest.approx(1e6 * prefill, rel=1e-9)
    assert one.blended_usd_per_mtoken == pytest.approx(1e6 * (2048 * prefill + 512 * decode) / 2560, rel=1e-9)


@pytest.mark.parametrize("system", ["trn2.48xlarge", "hgx-h200"])
def test_no_batch_and_no_degree_costs_less(costs, system):
    """Of all batches up to 1,024 at TP 1 to 16, those that serve a user at 40 tokens/s and fit."""
    one = costs[system, "hand-tuned"]
    same = {"precision": one.choice.precision, "efficiencies": "hand-tuned", "max_context": 2560}
    least, batch = np.inf, np.arange(1, 1025)
    for tp in (1, 2, 4, 8, 16):
        step = tm.decode_step(MODEL, system, tm.Mapping(tp=tp), batch=batch, context=2048 + 256, **same)
        prompt = tm.prefill(MODEL, system, tm.Mapping(tp=tp), batch=1, input_tokens=2048, **same)
        request = tp / step.ranks_per_chip * (512 * step.time_s / batch + prompt.time_s)
        least = min(least, np.nanmin(np.where(step.tokens_per_s_per_user >= 40, request, np.nan), initial=np.inf))
    assert 1 - 1e-9 <= one.chip_s()[2] / (least / 2560) < 1.01  # not every batch is tried


def test_no_system_stands_on_public_software_alone(costs):
    for system in PAIR:
        assert [one.stack_kind for one in costs.lines if one.system.id == system] == ["public", "hand-tuned", "ideal"]
    assert all(costs[s, "ideal"].chip_s()[2] <= costs[s, k].chip_s()[2] for s in PAIR for k in ("public", "hand-tuned"))
    for one in costs.lines:
        if one.valid:
            assert one.low <= one.blended_usd_per_mtoken <= one.high
            assert one.basis in ("measured", "interpolated", "extrapolated", "ideal")


@pytest.mark.parametrize("system", tm.systems())
def test_every_system_has_a_cost_or_a_reason(system):
    pricings = [pricing for pricing in rents.PRICINGS if not tm.rent(system, pricing).why]
    found = tm.token_cost("llama-3.2-1b", system, pricing=pricings[0] if pricings else "market", **ASK)
    for one in found.lines:
        cost = one.blended_usd_per_mtoken
        assert bool(one.valid) == bool(cost > 0), one.reason
        assert one.reason or 0 < one.low <= cost <= one.high
        assert bool(pricings) or "no price is published" in one.reason
    assert found.card()


def test_an_array_of_prices_is_many_prices(costs):
    prices = np.array([0.5, 1.0, 7.0])
    many = tm.token_cost(MODEL, "trn2.48xlarge", pricing=prices, **ASK)["trn2.48xlarge", "public"]
    for price, cost, low in zip(prices, many.blended_usd_per_mtoken, many.low, strict=True):
        one = tm.token_cost(MODEL, "trn2.48xlarge", pricing=float(price), **ASK)["trn2.48xlarge", "public"]
        assert (cost, low) == pytest.approx((one.blended_usd_per_mtoken, one.low), rel=1e-12)
    assert len(many.to_frame(bands=True)) == 3


def test_faster_users_cost_more():
    found = [tm.token_cost(MODEL, "hgx-h200", **ASK | {"tokens_per_s_per_user": v}) for v in (20, 60, 120)]
    for kind in ("public", "hand-tuned", "ideal"):
        assert np.all(np.diff([one["hgx-h200", kind].blended_usd_per_mtoken for one in found]) >= 0)


@pytest.mark.parametrize("kind", ["public", "hand-tuned", "ideal"])
def test_who_asks_for_the_speed_that_he_gets_gets_the_same(costs, kind):
    """The point of least cost at 40 tokens/s a user is faster than that, and is that of its own speed too."""
    one = costs["trn2.48xlarge", kind]
    speed = float(one.choice.tokens_per_s_per_user)
    again = tm.token_cost(MODEL, "trn2.48xlarge", **ASK | {"tokens_per_s_per_user": speed})["trn2.48xlarge", kind]
    assert speed >= 40
    assert again.blended_usd_per_mtoken == one.blended_usd_per_mtoken
    assert (again.choice.batch, again.choice.tp) == (one.choice.batch, one.choice.tp)


def test_a_cost_is_as_uncertain_as_its_price_and_its_software_on_each_side(costs):
    """35.76 to 36.29 around 35.7608 dollars: nothing below, 1.5 % above, beside the chip-seconds at the band's ends."""
    one = costs["trn2.48xlarge", "hand-tuned"]
    fast, middle, slow = one.chip_s_ends()
    low = np.hypot(np.log(35.7608 / 35.76), np.log(middle / fast))
    high = np.hypot(np.log(36.29 / 35.7608), np.log(slow / middle))
    assert fast < middle < slow
    assert one.low == pytest.approx(one.blended_usd_per_mtoken * np.exp(-low), rel=1e-12)
    assert one.high == pytest.approx(one.blended_usd_per_mtoken * np.exp(high), rel=1e-12)
    assert one.blended_usd_per_mtoken == pytest.approx(35.7608 / 16 / 3600 * 1e6 * middle, rel=1e-12)


def test_an_owner_pays_his_own_hour_for_the_same_chip_seconds(costs):
    owned = costs.priced({name: tm.tco(name) for name in PAIR})
    for one, same in zip(owned.lines, costs.lines, strict=True):
        hour = tm.tco(one.system.id)
        assert one.chip_s().tolist() == same.chip_s().tolist()
        assert one.blended_usd_per_mtoken == pytest.approx(float(hour.usd_per_mtoken(1 / one.chip_s()[2])), rel=1e-12)
        assert one.low < one.blended_usd_per_mtoken < one.high
    again = tm.token_cost(MODEL, PAIR[:1], pricing=tm.tco(PAIR[0]), **ASK).lines[0]
    assert again.blended_usd_per_mtoken == owned.lines[0].blended_usd_per_mtoken


def test_whole_instances_duty_and_spares():
    """A request takes 8 chip-seconds on replicas of 4 chips: 4 in an instance of 16, each half a request a second."""
    whole, paid = Load(3.0, 0.5, 1.0).instances(np.array(8.0), np.array(4.0), 16)
    assert whole == math.ceil(3 / (4 * 0.5)) + 1
    assert paid == 3 * 16 / (3 * 0.5)
    # a replica over two instances, at exactly what one of them serves: no third because of rounding
    whole, _ = Load(0.1, 1.0, 0.0).instances(np.array(320.0), np.array(32.0), 16)
    assert whole == 2
    whole, paid = Load(math.nan, 1.0, 0.0).instances(np.array(8.0), np.array(6.0), 16)  # 4 of 16 chips idle
    assert (whole, float(paid)) == (1, pytest.approx(8 * 16 / 12))


def test_a_load_costs_no_less_than_full_chips():
    ask = {"requests_per_s": 0.5, "duty": 0.25, "spare_instances": 2}
    half, quarter = (tm.token_cost(MODEL, "trn2.48xlarge", **ASK, **ask | {"duty": d}).lines for d in (0.5, 0.25))
    for one, other in zip(half, quarter, strict=True):
        assert one.at_load_usd_per_mtoken > one.blended_usd_per_mtoken
        assert other.at_load_usd_per_mtoken == pytest.approx(2 * one.at_load_usd_per_mtoken)
        assert one.instances == 3  # half a request a second needs one of 16 chips, and two stand by
        by_hand = 3 * 16 * one.usd_per_chip_h / 3600 / (0.5 * 0.5 * 2560) * 1e6
        assert one.at_load_usd_per_mtoken == pytest.approx(by_hand, rel=1e-12)


def test_a_small_load_stands_on_fewer_chips_than_a_full_one():
    """Full, four GPUs make most of a chip-second; one serves a request in 100 s, and 2,560 tokens pay for it."""
    ask = ASK | {"pricing": "market", "tokens_per_s_per_user": 100, "requests_per_s": 0.01}
    one = tm.token_cost(MODEL, "hgx-h200", **ask)["hgx-h200", "ideal"]
    assert one.choice.chips > one.instances == one.rent.sold_chips == 1
    assert one.at_load_usd_per_mtoken == pytest.approx(one.usd_per_chip_h / 36 / 2560 * 1e6, rel=1e-12)


def test_a_hosted_model_says_how_full_a_rented_one_must_be():
    """DeepInfra's 0.10 and 0.32 dollars: (2,048 x 0.10 + 512 x 0.32) / 2,560 = 0.144 a million tokens."""
    found = tm.token_cost("llama-3.3-70b", "trn2.48xlarge", **ASK)
    table = found.hosted()
    deep = table[table.seller == "deepinfra"].set_index("software")
    assert deep.api_usd_per_mtoken.unique() == pytest.approx([0.144])
    cost = found["trn2.48xlarge", "hand-tuned"].blended_usd_per_mtoken
    assert deep.break_even_utilisation["hand-tuned"] == pytest.approx(cost / 0.144)
    assert tm.token_cost(MODEL.replace("3.1", "3"), "trn2.48xlarge", **ASK).hosted().empty


def test_draws_are_common(costs):
    found = costs.draws("hand-tuned", draws=100_000)
    assert found.wins(least=True).wins.sum() == pytest.approx(1)
    assert set(found.values) == {"trn2.48xlarge", "hgx-h200"}  # no price, no draw
    again = costs.draws("hand-tuned", draws=100_000)
    assert all(np.array_equal(found.values[name], again.values[name]) for name in found.values)


def test_the_ends_of_a_band_are_percentiles_of_its_draws():
    """Of a triangle of half-width a, 5 % lie beyond a (1 - sqrt(0.1)); the price is one number here."""
    found = tm.token_cost(MODEL, "hgx-h200", pricing="on-demand", **ASK)
    one = found["hgx-h200", "hand-tuned"]
    row = found.draws("hand-tuned", draws=100_000).percentiles().iloc[0]
    assert (row.p5, row.p50, row.p95) == pytest.approx((one.low, one.blended_usd_per_mtoken, one.high), rel=0.01)


def test_systems_of_one_hand_tuned_stack_share_its_draws():
    prices = {"trn3-nl32x2-pcie160": 2.0, "trn3-nl72x2-pcie160": 2.0}
    found = tm.token_cost(MODEL, list(prices), pricing=prices, **ASK).draws("hand-tuned", draws=2000)
    assert list(found.inputs) == ["hand-tuned-neuron"]
    assert np.corrcoef([*found.values.values()])[0, 1] > 0.999


def test_a_price_may_be_drawn_by_the_package_itself():
    def ask(price):
        return tm.token_cost(MODEL, "trn2.48xlarge", pricing=price, **ASK)["trn2.48xlarge", "ideal"]

    found = tm.sensitivity(ask, {"price": tm.rent("trn2.48xlarge")}, draws=64)
    assert np.ptp(found.values["answer"]) > 0


def test_chip_seconds_between_the_places_of_a_band():
    each = np.array([1.0, 2.0, 4.0, 8.0, np.inf])
    assert between(each, PLACES).tolist() == pytest.approx(each.tolist())
    assert between(each, [-1.5, -0.75, 0.25, 0.75, 2.0]).tolist() == pytest.approx(
        [0.5, 2**0.5, 32**0.5, np.inf, np.inf]
    )


ODD = {
    "zero duty": ({"duty": 0.0}, "duty=0"),
    "duty above 1": ({"duty": 1.5}, "duty=1.5"),
    "no load": ({"requests_per_s": 0.0}, "requests_per_s=0"),
    "half a spare": ({"spare_instances": 0.5}, "spare_instances=0.5"),
    "zero price": ({"pricing": 0.0}, "pricing=0"),
    "negative price": ({"pricing": -1.0}, "pricing=-1"),
    "an unknown pricing": ({"pricing": "lease"}, "pricing='lease'"),
    "an unknown region": ({"region": "mars-1"}, "region='mars-1'"),
    "a precision that no chip has": ({"precision": "mxfp8"}, "precision='mxfp8': no chip asked computes in it"),
    "another chip's price": ({"pricing": tm.rent("hgx-h100")}, "it is the price of h100"),
    "a mapping without it": ({"pricing": {"hgx-h200": 2.0}}, "that names trn2.48xlarge"),
    "half a token": ({"output_tokens": 0.5}, "output_tokens=0.5"),
    "no speed": ({"tokens_per_s_per_user": 0}, "tokens_per_s_per_user=0"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_refused(name):
    changed, said = ODD[name]
    with pytest.raises(ValueError, match=re.escape(said)):
        tm.token_cost(MODEL, "trn2.48xlarge", **ASK | changed)


def test_a_speed_that_nothing_reaches_and_one_token_of_output(tmp_path):
    fast = tm.token_cost(MODEL, "hgx-h200", **ASK | {"tokens_per_s_per_user": 1e5})
    assert {one.reason for one in fast.lines} == {"too slow for a user at any batch"}
    assert np.isnan([one.blended_usd_per_mtoken for one in fast.lines]).all()
    assert fast.break_even("hgx-h200").empty
    with pytest.raises(ValueError, match="no system has a price and is fast enough"):
        fast.draws()
    short = tm.token_cost(MODEL, "hgx-h200", **ASK | {"output_tokens": 1})["hgx-h200", "hand-tuned"]
    assert short.blended_usd_per_mtoken == pytest.approx(
        (2048 * short.prefill_usd_per_mtoken + short.decode_usd_per_mtoken) / 2049
    )
    path = tmp_path / "config.json"
    path.write_text((load.DATA / "models" / f"{MODEL}.json").read_text())
    own = tm.token_cost(str(path), "hgx-h200", **ASK)["hgx-h200", "ideal"]
    same = tm.token_cost(MODEL, "hgx-h200", **ASK)["hgx-h200", "ideal"]
    assert own.blended_usd_per_mtoken == pytest.approx(same.blended_usd_per_mtoken)


def test_too_large_and_a_precision_that_one_chip_lacks():
    large = tm.token_cost("deepseek-v3", "trn1.2xlarge", pricing="on-demand", **ASK)
    assert {one.reason for one in large.lines} == {"the model does not fit"}
    found = tm.token_cost(MODEL, ["hgx-a100", "hgx-h200"], precision="fp8", **ASK)
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
    one = tm.token_cost(MODEL, system, pricing=pricing, **ASK).lines[-1]
    assert one.reason == "no price is published"
    assert math.isnan(one.blended_usd_per_mtoken)
    assert math.isnan(one.at_load_usd_per_mtoken)


def test_an_unknown_price_of_your_own_is_unknown():
    price = replace(tm.rent("hgx-h200"), usd_per_chip_h=math.nan, ranges={})
    one = tm.token_cost(MODEL, "hgx-h200", pricing=price, **ASK)["hgx-h200", "ideal"]
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
