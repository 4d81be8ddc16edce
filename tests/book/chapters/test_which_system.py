"""The chapter on the choice of a system: order, ties, bills and flips against arithmetic and the calls alone."""

import math

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import which_system as tables
from trnbook.shared import case, choices
from trnmodel.evidence.tables import OUTSIDE, accuracy
from trnmodel.search.single import same
from trnmodel.units import MILLION

LLAMA = "llama-3.3-70b"
MONTH_H = 730.5


@pytest.fixture(scope="module")
def plan():
    return tm.plan(LLAMA, case.request(LLAMA))


@pytest.fixture(scope="module")
def costs(plan):
    some = [c for c in (*plan.choices, *plan.gpus) if c.valid]
    rented = tm.token_cost(LLAMA, plan.request, [c.system for c in some])
    owned = {c.place: tm.token_cost(LLAMA, plan.request, c.system, pricing=tm.tco(c.system)) for c in some}
    return some, rented, owned


def test_the_best_system_of_each_chip_is_one_that_can_be_had(plan):
    chosen = tables.one_per_chip(plan)
    chips = [c.system.chip.id for c in chosen]
    assert len(set(chips)) == len(chips)
    assert plan.best in chosen
    assert plan.for_rent in chosen  # of Trainium2 systems that tie, the one with the fewest instances for its rent
    every = [c for c in (*plan.choices, *plan.gpus) if c.valid]
    assert set(chips) == {c.system.chip.id for c in every}
    for c in chosen:
        most = max(other.tokens_per_s_per_chip for other in every if other.system.chip.id == c.system.chip.id)
        assert c.tokens_per_s_per_chip >= most / 1.01


def test_the_order_counts_those_that_make_more_and_calls_a_tie_a_tie(costs):
    table = tables.ranking(*costs)
    made = table.tokens_per_s_per_chip.to_numpy()
    assert (np.diff(made) <= 0).all()
    for row in table.itertuples():
        better = int((made > 1.01 * row.tokens_per_s_per_chip).sum())
        near = int((abs(made / row.tokens_per_s_per_chip - 1) < 0.0099).sum())
        assert row.order == f"{better + 1}{' =' if near > 1 else ''}"
    racks = table[table.system.isin(["trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"])]
    assert racks.order.str.endswith(" =").all()


def test_a_million_tokens_cost_the_price_of_an_hour_over_what_a_chip_makes_in_it(costs):
    some, rented, _ = costs
    table = tables.ranking(*costs).set_index("system")
    for c in some:
        row = table.loc[c.place]
        in_an_hour = 3600 * c.tokens_per_s_per_chip
        price = float(rented[c.place, "public"].usd_per_chip_h)
        assert row.rent_usd_per_mtoken == pytest.approx(price / in_an_hour * MILLION, nan_ok=True)
        hour = tm.tco(c.system)
        if hour.valid:
            assert row.owner_usd_per_mtoken == pytest.approx(float(hour.useful_usd_per_h) / in_an_hour * MILLION)
        else:
            assert math.isnan(row.owner_usd_per_mtoken)


def test_the_case_has_the_numbers_of_the_strip(costs):
    table = tables.ranking(*costs).set_index("system")
    names = {"First token": "ttft_s", "Throughput per chip": "tokens_per_s_per_chip"}
    names |= {"Energy per token at the server": "energy_j_per_token"}
    names |= {"Owner's cost per million tokens": "owner_usd_per_mtoken", "Chips that serve a replica": "chips"}
    for line in (line for line in case.LINES if line.name in names):
        for system in case.SYSTEMS:
            assert table.loc[system, names[line.name]] == pytest.approx(case.value(line, LLAMA, system), rel=1e-9)


def test_bills_are_whole_instances_times_the_hours_of_a_month(plan):
    sized = tm.plan(LLAMA, case.request(LLAMA), users=1000)
    table = tables.bills(sized).set_index("system")
    for name, row in table.iterrows():
        c = next(one for one in (*sized.choices, *sized.gpus) if one.place == name)
        replicas = math.ceil(1000 * 50 / 512 / c.requests_per_s_per_replica * (1 - 1e-12))
        each = max(c.system.chips // c.chips, 1)
        assert row.instances == math.ceil(replicas / each) * math.ceil(c.chips / c.system.chips)
        rent = tm.rent(c.system)
        if not rent.why:
            bill = row.instances * c.system.chips * float(rent.usd_per_chip_h) * MONTH_H
            assert row.usd_per_month == pytest.approx(bill, rel=1e-3)
        if not math.isnan(c.system.racks):
            assert row.racks == math.ceil(row.instances * c.system.racks)
    priced = table.usd_per_month.dropna()
    assert priced.is_monotonic_increasing
    assert table.usd_per_month.iloc[len(priced) :].isna().all()  # what nobody prices comes last


def test_the_card_names_the_best_the_rival_and_the_cheapest_to_rent(plan, costs):
    _, rented, _ = costs
    card = tables.headline(plan, rented, {})
    shown = tm.units.format_within(plan.best.tokens_per_s_per_chip, *plan.best.ends(plan.best.FIGURE))
    made, _, ends = shown.partition(" (")
    assert f"**{made} tokens/s per chip** ({ends[:-1]}; extrapolated): {plan.best.system.name}" in card
    gpu = plan.gpus[0]
    assert f"{gpu.system.name}, the best GPU, with {gpu.tokens_per_s_per_chip:.0f} tokens/s per chip" in card
    usd = {one.system.name: float(one.generated_usd_per_mtoken) for one in rented.of("public") if not one.rent.why}
    first, then = card.partition("in an AWS Capacity Block, ")[2].split(" The cheapest GPU per token is ")
    assert usd[first.partition(" costs ")[0]] == pytest.approx(min(usd.values()), rel=1e-3)
    gpus = [value for name, value in usd.items() if name in {c.system.name for c in plan.gpus}]
    assert usd[then.partition(", at ")[0]] == min(gpus)
    assert "The ranges overlap" in then
    assert "No limit on the first token is promised" in card
    assert "Nobody has published a measurement of a server of Trainium3" in card


def test_a_promise_that_nothing_keeps_says_how_near_it_comes():
    never = tm.plan("llama-3.1-8b", tm.Request(512, 128, tokens_per_s_per_user=1e5))
    fastest = max(never.choices, key=lambda c: c.tokens_per_s_per_user)
    assert f"on {fastest.place}, on an empty server" in tables.unreached(never)


def test_a_frontier_has_points_where_the_promise_is_kept():
    promises = tm.compare("llama-3.1-8b", tm.Request(512, 128), ["trn2.48xlarge", "hgx-h100"], speeds=[20, 1e6])
    table = tables.frontier(promises)
    assert table.promised_tokens_per_s_per_user.tolist() == [20, 20]
    assert set(table.system) == {"trn2.48xlarge", "hgx-h100"}


def test_mappings_hold_the_users_of_one_instance():
    """Eight users on 64 ranks: four replicas of 16 ranks hold two each; attention groups hold one each at least."""
    assert tables.sequences(tm.Mapping(tp=16), "trn2.48xlarge", 8) == 2
    assert tables.sequences(tm.Mapping(tp=4, ep=16), "trn2.48xlarge", 8) == 16
    assert tables.sequences(tm.Mapping(tp=64), "trn2.48xlarge", 8) == 8
    assert tables.sequences(tm.Mapping(tp=4), "hgx-h100", 3) == 2


def test_bytes_of_a_mapping_are_those_of_the_fit():
    model = tables.stretched(tm.model("qwen3-235b-a22b"), 65_536)
    answer = tm.plan(model, tm.Request(65_024, 512), "trn2.48xlarge")
    mappings = tables.candidates(answer, "trn2.48xlarge")
    assert next(iter(mappings)).endswith(", the plan's")
    ask = {"batch": 8, "context": 65_536, "precision": tables.stored(answer)}
    fits = {name: tm.memory_fit(model, "trn2.48xlarge", degrees, **ask) for name, degrees in mappings.items()}
    table = tables.footprint(fits)
    sums = table.groupby("mapping", sort=False).stored_bytes.sum()
    assert sums.tolist() == pytest.approx([float(fit.first_rank_total_bytes) for fit in fits.values()])
    assert table.limit.unique().tolist() == [24 * 2**30]  # of a logical core of two, a quarter of 96 GiB
    says = ["fits" if fit.valid else "does not fit" for fit in fits.values()]
    assert [name.rpartition(": ")[2] for name in sums.index] == says
    weights = table[table.part == "weights"].stored_bytes
    assert weights.min() == pytest.approx(235e9 / 64, rel=0.07)  # TP 64; head, router and norms are not in 8 bits


def test_a_model_that_fits_nowhere_has_mappings_too():
    answer = tm.plan("deepseek-v3", tm.Request(1024, 128), "inf2.xlarge")
    assert answer.best is None
    assert list(tables.candidates(answer, "inf2.xlarge")) == ["TP 1", "TP 2"]
    assert tables.stored(answer) == "fp8"


def test_prices_tie_where_a_token_costs_the_same(plan):
    """A rival's price times what it takes of a chip's time, over what the best takes."""
    gpus = [c for c in plan.gpus if c.valid]
    sides = tm.compare(LLAMA, plan.request, [plan.best.system, *(c.system for c in gpus)], baseline=plan.best.system)
    table = tables.ties(sides).set_index("system")
    for c in gpus:
        price = tm.rent(c.system)
        if price.why:
            assert c.place not in table.index
            continue
        tie = float(price.usd_per_chip_h) * plan.best.tokens_per_s_per_chip / c.tokens_per_s_per_chip
        assert table.usd_per_chip_h[c.place] == pytest.approx(tie)
        assert table.usd_per_chip_h_low[c.place] < tie < table.usd_per_chip_h_high[c.place]


def test_flips_say_what_would_change_the_order(plan):
    table = tables.flips(plan.flips()).set_index("what would flip it")
    ideal = table.loc[f"ideal software on {plan.best.system.name}", "flips at"]
    best = tm.plan(LLAMA, plan.request, plan.best.system, efficiencies="ideal").best
    assert ideal.startswith(tm.units.format_digits(best.tokens_per_s_per_chip, 3))
    assert ideal.endswith("leads" if best.tokens_per_s_per_chip > plan.gpus[0].tokens_per_s_per_chip else "behind")
    assert len(tables.flips(None)) == 1
    first, second = plan.flips().speeds
    own, other = (tm.system(name).name for name in (first.above, second.above))
    ends = [tm.units.format_digits(one.tokens_per_s_per_user, 2) for one in (first, second)]
    text = table.loc[f"the promise, against {plan.gpus[0].system.name}", "flips at"]
    below, between, above = text.split("; ")
    assert below == f"{other} leads below {ends[0]} tokens/s"
    assert (between, above) == (f"{own} leads from {ends[0]} to {ends[1]}", f"{other} leads above {ends[1]}")


def test_the_command_line_is_that_of_the_question(plan):
    lines = tables.command(plan, 1000, "capacity-block").splitlines()
    assert lines[3] == "trnmodel plan llama-3.3-70b --in 4096 --out 512 --speed 50 --users 1000"
    assert lines[-1].startswith(f"The best plan runs `{plan.best.mapping}` on {plan.best.place}.")


def test_errors_are_those_of_the_table_of_errors():
    table = accuracy().set_index(["group", "split"])
    rows = pd.DataFrame({"use": list(tables.CHECKED), "error": [0.1, -0.2, 0.3]})
    rows = rows.assign(configuration=["a", "b", "c"], weight=1.0, skipped="", source="page")
    found = tables.errors(rows)
    assert found.median_error.tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert found.configurations.tolist() == [1, 1, 1]
    assert {(use, OUTSIDE) for use in tables.CHECKED} <= set(table.index)
    assert "within 10%" in tables.half_of(found)
    assert "leave out" in tables.half_of(found)


def test_what_sellers_charge_has_its_ends():
    rows = pd.DataFrame({"kind": ["rent", "hosted", "hosted"], "usd_per_month": [5e5, 147_268.0, 852_055.0]})
    assert tables.hosted(rows).endswith(r"from \$147,000 to \$852,000.")
    assert tables.hosted(rows[:1]).startswith("No seller's price")


def test_sellers_judge_the_bills_of_owners_and_renters():
    month = pd.DataFrame({"kind": ["owned", "hosted", "hosted"], "usd_per_month": [1e3, 2e5, 1e5]})
    table = pd.DataFrame({"system": ["trn2.48xlarge", "hgx-h200", "hgx-h100"]})
    table = table.assign(usd_per_month=[4e5, math.nan, 3e5], owned_usd_per_month=[9e4, 2e5, 3e5])
    text = tables.verdict(table, month)
    assert "The owner's cost lies below that price on 1 of 3 systems" in text
    assert "On the others either no seller uses them" in text
    assert "costs more than that price on all systems. So buy tokens" in text
    assert "more than that price on 1 of 2 systems" in tables.verdict(
        table.assign(usd_per_month=[9e4, math.nan, 3e5]), month
    )
    assert tables.verdict(table, month[:1]) == ""


def test_a_limit_on_the_first_token_costs_throughput(plan):
    soon = tm.plan(LLAMA, tm.Request(4096, 512, tokens_per_s_per_user=50, ttft_s=1.0))
    assert soon.best.ttft_s <= 1.0 < plan.best.ttft_s
    table = tables.hurried({None: plan, 1.0: soon})
    made = table["Trainium [tokens/s per chip]"].astype(float)
    assert made[1] < made[0] / 3
    assert table["best Trainium to rent"][0] == plan.for_rent.system.name
    assert table["best GPU"].tolist() == ["GB200 NVL72", "GB200 NVL72"]


def test_a_figure_that_rests_on_drafts_says_what_is_made_without(plan, costs):
    stacks = choices.undrafted(plan.best)
    plain = [tm.plan(LLAMA, plan.request, plan.best.system, efficiencies=kind).best for kind in stacks]
    most = max(c.tokens_per_s_per_chip for c in plain)
    assert not any(c.option.speculates for c in plain)
    assert f"Without drafts the same system makes {most:.0f} or " in tables.headline(
        plan, costs[1], {plan.best.place: plain}
    )
    assert choices.undrafted(plan.gpus[0]) == []


def test_a_chart_of_few_systems_has_no_gpus_that_tie(plan):
    chosen = tables.one_per_chip(plan)
    shown = [c for c in chosen if c.system.id in tables.few(chosen)]
    gpus = [c for c in shown if c.system.chip.core is None]
    assert len(gpus) == 3
    assert not any(same(one, other) for one in gpus for other in gpus if one is not other)


def test_at_market_rents_a_gpu_may_be_cheaper(plan, costs):
    some, rented, _ = costs
    sold = tm.token_cost(LLAMA, plan.request, [c.system for c in some], pricing="market")
    table = tables.ranking(*costs, sold).set_index("system")
    assert table.loc["trn2.48xlarge", tables.MARKET] == "–"  # only AWS rents it
    gpu = plan.gpus[0]
    usd = float(tm.rent(gpu.system, "market").usd_per_chip_h) / 3600 / gpu.tokens_per_s_per_chip * MILLION
    card = tables.headline(plan, rented, {}, sold)
    assert f"{gpu.system.name} costs \\${usd:.1f} (" in card.partition("and then the order turns")[2]
    assert usd < table.rent_usd_per_mtoken["trn2.48xlarge"]


def test_the_first_chart_has_points_where_two_systems_change_places(plan):
    speeds = tables.sampled(50.0, plan.flips())
    assert {one.tokens_per_s_per_user for one in plan.flips().speeds} <= set(speeds)
    assert speeds[0] == 6.25
    assert speeds[-1] == 200
