"""A plan with a size: users, requests, chips, megawatts or dollars in; instances, spares, bill, watts and hours out."""

import json
from dataclasses import replace
from math import comb

import jsonschema
import numpy as np
import openpyxl
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.catalog.rents import hosted
from trnmodel.cli.app import app
from trnmodel.formulas import latency
from trnmodel.reliability.goodput import replica_availability, replica_downtime

MONTH_H = 365.25 * 24 / 12
MODEL, REQUEST = "llama-3.3-70b", tm.Request(2048, 500, tokens_per_s_per_user=50)
TYPED = [MODEL, "--speed", "50", "--in", "2048", "--out", "500"]


def sized(**size):
    return tm.plan(MODEL, size.pop("request", REQUEST), size.pop("systems", "trn2.48xlarge"), **size)


def test_users_are_a_rate_of_requests():
    """2,000 users at 50 tokens/s, with answers of 500 tokens, send 2,000 x 50 / 500 = 200 requests/s."""
    by_users = sized(users=2000)
    assert by_users.request.requests_per_s == 200.0
    by_rate = sized(request=replace(REQUEST, requests_per_s=200.0))
    assert by_users.capacity.instances == by_rate.capacity.instances
    assert by_users.best.request_chip_s == by_rate.best.request_chip_s


def test_instances_are_the_fewest_that_serve_the_rate():
    found = sized(users=2000)
    c, made = found.best, found.capacity
    per_instance = c.requests_per_s_per_replica * c.replicas_per_instance
    assert made.instances == np.ceil(200.0 / per_instance)
    assert made.chips == made.instances * 16
    assert made.requests_per_s == 200.0
    assert made.tokens_per_s == 200.0 * 500


def test_users_that_decode_and_wait_follow_from_littles_law():
    """Users in a stage are the rate times the time in it."""
    made = sized(users=2000)
    c, held = made.best, made.capacity
    assert held.decoding_users == pytest.approx(200.0 * 500 / c.tokens_per_s_per_user, rel=1e-9)
    busy = c.prefill_utilisation * (200.0 / c.requests_per_s_per_replica) / held.replicas
    prompt_s = latency.prompt_latency_s(c.times.alone_s, c.times.together_s, busy)
    first_s = latency.first_token_s(prompt_s, c.times.chunks, c.times.step_s)
    queue_s = busy * c.times.together_s / (2 * (1 - busy))
    assert held.waiting_users == pytest.approx(float(200.0 * (first_s + queue_s)), rel=1e-9)


@pytest.mark.parametrize(("chips", "instances"), [(16, 1), (31, 1), (32, 2), (1000, 62)])
def test_chips_are_whole_instances(chips, instances):
    made = sized(chips=chips).capacity
    assert made.instances == instances
    rate = sized().best.tokens_per_s_per_chip
    assert made.tokens_per_s == pytest.approx(instances * 16 * rate, rel=1e-9)


def test_megawatts_are_what_the_site_provisions():
    """A chip's provisioned IT power times the PUE of the hottest day."""
    made = sized(site_w=2e6)
    hour, site = tm.tco("trn2.48xlarge"), made.capacity.question.site("trn2.48xlarge")
    each_w = float(hour.all_in_w) * 16 * site.peak_pue
    assert made.capacity.instances == np.floor(2e6 / each_w)
    assert made.capacity.provisioned_site_w == pytest.approx(made.capacity.instances * each_w, rel=1e-12)
    other = sized(site_w=2e6, facility="aws-chilled").capacity
    assert (other.instances <= made.capacity.instances) == (
        other.question.site("trn2.48xlarge").peak_pue >= site.peak_pue
    )


def test_dollars_are_a_rent_of_730_hours():
    price = tm.rent("trn2.48xlarge", "capacity-block").usd_per_chip_h
    made = sized(usd_per_month=1e6).capacity
    assert made.instances == np.floor(1e6 / (price * 16 * MONTH_H))
    assert made.usd_per_month == pytest.approx(made.instances * 16 * price * MONTH_H, rel=1e-12)
    assert sized(usd_per_month=1e6, pricing=2 * price).capacity.instances == pytest.approx(made.instances / 2, abs=1)


def test_the_bill_has_a_line_for_each_published_pricing():
    made = sized(users=2000).capacity
    table = made.bill().set_index("pricing")
    for pricing in ("capacity-block", "spot"):
        rent = tm.rent("trn2.48xlarge", pricing)
        row = table.loc[pricing]
        assert row.usd_per_month == pytest.approx(made.chips * rent.usd_per_chip_h * MONTH_H, rel=1e-12)
        assert row.usd_per_month_low <= row.usd_per_month <= row.usd_per_month_high
        assert row.date == rent.date
        assert set(row.places.split(", ")) == rent.places
    owned = table[table.kind == "owned"].iloc[0]
    assert owned.usd_per_month == pytest.approx(
        made.chips * float(tm.tco("trn2.48xlarge").useful_usd_per_h) * MONTH_H, rel=1e-9
    )
    tokens = 200.0 * MONTH_H * 3600
    for api in hosted(MODEL):
        by_hand = tokens * (2048 * api.input_usd_per_token + 500 * api.output_usd_per_token)
        assert table.loc[api.seller].usd_per_month == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("availability", [None, 0.9999])
def test_a_token_of_the_bill_is_the_one_of_token_cost(availability):
    """One question by two public calls: the rent of a generated token on whole instances with spares."""
    made = sized(users=2000, availability=availability)
    held = made.capacity
    costs = tm.token_cost(MODEL, made.request, "trn2.48xlarge", spare_instances=int(held.spare_instances))
    line = costs["trn2.48xlarge", "public"]
    assert held.usd_per_mtoken == pytest.approx(float(line.at_load_usd_per_mtoken), rel=1e-9)
    assert held.ends("usd_per_mtoken") == pytest.approx(
        tuple(map(float, line.ends("at_load_usd_per_mtoken"))), rel=1e-9
    )


def test_joules_of_a_plan_are_those_of_the_server():
    made = sized(users=2000)
    joules = tm.energy(
        tm.serve(
            made.model,
            replace(made.request, requests_per_s=None),
            made.best.system,
            made.best.degrees,
            precision=made.best.precision,
            efficiencies=made.best.option,
            max_batch=made.best.batch,
        )
    )
    assert made.capacity.server_j_per_token == pytest.approx(float(joules.server_j_per_token), rel=1e-9)
    assert made.capacity.mean_server_w == pytest.approx(1e5 * float(joules.server_j_per_token), rel=1e-9)


def test_spares_are_the_fewest_that_give_the_availability():
    """The share of time with at least the needed replicas is a sum of binomials, which is made here by itself."""
    made = sized(users=500, availability=0.9995).capacity
    each = made.replicas_per_instance
    out = 1 - float(replica_availability("trn2.48xlarge", made.choice.chips))

    def runs(spare):
        n = int((made.instances + spare) * each)
        return sum(comb(n, k) * out**k * (1 - out) ** (n - k) for k in range(int(spare * each) + 1))

    assert made.spare_instances > 0
    assert runs(made.spare_instances) >= 0.9995 > runs(made.spare_instances - 1)
    assert made.availability == pytest.approx(runs(made.spare_instances), rel=1e-9)
    assert made.availability_without_spares == pytest.approx(runs(0), rel=1e-9)
    assert made.lost_h_per_year == pytest.approx((1 - made.availability) * 8766, abs=1e-6)


def test_spares_are_inside_a_limit():
    free, safe = sized(chips=160).capacity, sized(chips=160, availability=0.9999).capacity
    assert free.instances == 10
    assert safe.instances + safe.spare_instances == 10
    assert safe.spare_instances > 0
    assert safe.tokens_per_s < free.tokens_per_s


def test_one_instance_alone_cannot_be_available_for_ever():
    made = sized(chips=16, availability=0.999999)
    assert made.best is None
    assert made.why == {"trn2.48xlarge": "no number of spare instances gives the availability"}
    assert "no system is within the demand" in made.card()[0]


def test_lost_hours_by_cause_are_those_of_a_replica():
    made = sized(users=2000).capacity
    table, down = made.losses(), replica_downtime("trn2.48xlarge", made.choice.chips)
    assert table.share.sum() == pytest.approx(1.0)
    away = 1 - float(replica_availability("trn2.48xlarge", made.choice.chips))
    assert table.h_per_year.sum() == pytest.approx(8766 * away, rel=1e-9)
    assert set(table.cause) == set(down)


@pytest.mark.parametrize("limit", [{"chips": 500}, {"site_w": 5e5}, {"usd_per_month": 5e5}])
def test_with_a_limit_the_best_generates_most_within_it(limit):
    made = tm.plan(MODEL, REQUEST, ["trn2.48xlarge", "trn2.3xlarge", "hgx-h200", "gb200-nvl72"], **limit)
    totals = [made.capacity_of(c).tokens_per_s for c in made.choices if c.valid]
    assert totals == sorted(totals, reverse=True) or totals[0] >= 0.99 * max(totals)
    for c in made.choices:
        held = made.capacity_of(c)
        spent = {
            "chips": held.chips,
            "site_w": held.provisioned_site_w,
            "usd_per_month": held.usd_per_month,
        }
        (name,) = limit
        assert spent[name] <= limit[name] * (1 + 1e-9)


def test_more_of_a_limit_never_generates_less():
    for name, amounts in (
        ("chips", (16, 40, 100, 250, 1000)),
        ("site_w", (5e4, 1e5, 1e6)),
        ("usd_per_month", (3e4, 1e6)),
    ):
        made = [sized(systems=["trn2.48xlarge", "hgx-h200"], **{name: amount}) for amount in amounts]
        totals = [one.capacity.tokens_per_s for one in made]
        assert totals == sorted(totals)


def test_a_system_without_a_price_is_not_ranked_by_dollars_but_has_its_tie():
    made = sized(systems=["trn2.48xlarge", "trn3-nl72x2-pcie160"], usd_per_month=1e6)
    assert [c.system.id for c in made.choices] == ["trn2.48xlarge"]
    told = made.why["trn3-nl72x2-pcie160"]
    assert told.startswith("no price is published of trn3-nl72x2-pcie160")
    tie = float(told.partition("$")[2].split()[0])
    other = tm.plan(MODEL, REQUEST, "trn3-nl72x2-pcie160").best
    chips = made.capacity.tokens_per_s / other.tokens_per_s_per_chip
    assert tie == pytest.approx(1e6 / (chips * MONTH_H), rel=0.01)


def test_of_systems_for_rent_that_tie_the_cheapest_on_the_fewest_instances_comes_first():
    slow = replace(REQUEST, tokens_per_s_per_user=30)
    made = tm.plan(MODEL, slow, ["trn2.48xlarge", "trn2-ultraserver"], users=2000)
    rented = [c for c in made.choices if c.valid and c.system.status == "for rent"]
    tied = [c for c in rented if made.merit(c) >= 0.99 * made.merit(rented[0])]
    assert len(tied) > 1
    bills = {c.place: made.capacity_of(c) for c in tied}
    least = min(one.usd_per_month for one in bills.values())
    cheap = [one for one in bills.values() if one.usd_per_month <= 1.05 * least]
    assert made.for_rent.place == min(cheap, key=lambda one: one.instances).system.id


def test_what_is_behind_within_a_limit_is_behind_in_total():
    made = tm.plan(MODEL, REQUEST, ["trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h200"], site_w=2e6)
    card = "\n".join(made.card())
    others = [c for c in made.choices[1:] if c.place not in made.same]
    for c in others:
        share = 1 - made.capacity_of(c).tokens_per_s / made.capacity.tokens_per_s
        assert 0 < share < 1
        assert f"{share:.0%} less".replace("%", " %") in card


def test_bands_of_counts_are_ranges_of_the_draws():
    made = sized(users=2000)
    c, held = made.best, made.capacity
    whole = np.ceil(200.0 / (c.drawn["requests_per_s_per_replica"] * c.replicas_per_instance) - 1e-9)
    low, high = np.percentile(whole[np.isfinite(whole)], [5, 95], method="closest_observation")
    ends = held.ends("instances")
    assert ends[0] <= held.instances <= ends[1]
    assert ends == pytest.approx((min(low, held.instances), max(high, held.instances)), abs=1.01, rel=0.02)
    limited = sized(chips=160).capacity
    assert limited.ends("instances") == (10.0, 10.0)
    assert limited.ends("tokens_per_s")[0] < limited.tokens_per_s < limited.ends("tokens_per_s")[1]


def test_the_price_at_a_tie_gives_both_the_same_dollars_per_token():
    flips = tm.plan(MODEL, REQUEST, ["trn3-nl72x2-pcie160", "hgx-h200"], users=1000).flips()
    assert flips.best.system.id == "hgx-h200"
    price = flips.price
    assert price.usd_per_chip_h == tm.rent("hgx-h200", "capacity-block").usd_per_chip_h
    ours, theirs = flips.best.request_chip_s * price.usd_per_chip_h, flips.rival.request_chip_s
    assert ours == pytest.approx(theirs * price.against_break_even_usd_per_chip_h, rel=1e-9)
    assert np.isnan(price.break_even_usd_per_chip_h)  # nobody publishes a price of Trainium3


def test_a_plan_as_data_keeps_its_schema_and_a_band_for_every_figure():
    made = tm.plan(MODEL, REQUEST, users=2000, availability=0.999)
    data, schema = made.to_data(), tm.schema("plan", answer=True)
    jsonschema.validate(data, schema)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    for part, kind in (("best", tm.Choice), ("capacity", tm.Capacity)):
        assert set(data[part]) <= set(schema["$defs"]["choice" if kind is tm.Choice else "capacity"]["properties"])
        figures = [name for name in data[part] if f"{name}_low" in data[part]]
        assert len(figures) >= 10
        for name in figures:
            low, value, high = (data[part][one] for one in (f"{name}_low", name, f"{name}_high"))
            assert (low is None) == (value is None)
            assert value is None or low <= value <= high
    assert data["best"]["system"] == made.best.system.id
    assert {row["kind"] for row in data["bill"]} == {"rent", "owned", "hosted"}


def test_the_card_names_instances_bill_power_hours_and_what_stands_beside():
    card = "\n".join(tm.plan(MODEL, REQUEST, users=2000, availability=0.999).card())
    for text in (
        "2,000 users decoding at that speed; available 99.9 % of the time",
        "Bill per month of ",
        "For rent today, bill per month of ",
        "hosted by deepinfra",
        "per token at the server",
        "Lost hours: a replica is out for",
        "Side by side, rented by capacity-block",
        "What would flip the order against",
    ):
        assert text in card
    assert "nan" not in card
    assert "1 instances" not in card


def run(*words):
    return CliRunner().invoke(app, ["plan", *TYPED, *words])


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--users", "10", "--chips", "5"], 2, "--chips=5.0: allowed is one size, and --users=10.0 is given too"),
        (["--users", "10", "--requests", "5"], 2, "--users=10.0: allowed is one size, and --requests=5.0 is given too"),
        (["--usd-per-month", "100"], 3, "no system is within the demand"),
        (["--usd-per-month", "100"], 3, "Nearest that works: one trn2.3xlarge takes $1,633 per month"),
        (["--mw", "0.001"], 3, "one trn2.48xlarge takes 16,800 W at the site"),
        (["--availability", "1"], 2, "--availability=1.0: allowed are numbers from 0 to 0.999999999"),
        (["--site", "mars"], 2, "--site='mars' is unknown; nearest: aws-air, aws-chilled"),
        (["--users", "0"], 2, "--users=0.0: allowed are numbers from 1e-30"),
        (["--mw", "nan"], 2, "--mw"),
        (["--pricing", "gratis"], 2, "--pricing='gratis'"),
        (["--xlsx", "bill.csv", "--systems", "trn2.48xlarge"], 2, "--xlsx='bill.csv': allowed is a file that ends in"),
        (["--users", "10", "--prefill-systems", "hgx-b200"], 2, "--prefill-systems"),
    ],
)
def test_bad_sizes_are_one_line_with_a_status_by_cause(words, status, message):
    found = run(*words)
    assert found.exit_code == status, found.output
    assert message in found.output
    assert "Traceback" not in found.output


def test_users_need_a_speed():
    with pytest.raises(ValueError, match=r"users=10.0: users need a promised speed"):
        tm.plan(MODEL, tm.Request(2048, 500), "trn2.48xlarge", users=10)


def test_the_workbook_of_a_plan_holds_its_throughput(tmp_path):
    path = tmp_path / "plan.xlsx"
    found = run("--users", "100", "--systems", "trn2.48xlarge", "--xlsx", str(path))
    assert found.exit_code == 0, found.output
    sheet = openpyxl.load_workbook(path)["Inputs"]
    values = {row[0].value: row[1].value for row in sheet.iter_rows(min_row=2)}
    best = sized(users=100).best
    assert values["tokens_per_s_per_chip"] == pytest.approx(best.tokens_per_s_per_chip, rel=1e-9)
