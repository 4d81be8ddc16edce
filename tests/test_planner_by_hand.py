"""Small functions of the planner at values that are worked out by hand, each on both sides of where it turns."""

import inspect
import json
import shlex
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import trnmodel as tm
from trnmodel.catalog import facilities
from trnmodel.planner import (
    claimed,
    contests,
    cost,
    cost_words,
    cover,
    deployments,
    domain_sizes,
    effort,
    joules,
    launch,
    markets,
    placements,
    plan,
    power,
    rack_power,
    redundancy,
    sizing,
    software,
    train_run,
    train_words,
    trainings,
)
from trnmodel.planner.rent import _tie
from trnmodel.planner.sensitivity import Sensitivity, Uncertain
from trnmodel.steps.deployment import Deployment

AIR, WIDE, TRN2 = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn2.48xlarge"


def steps(user, chip, valid=None):
    """What a search has found, as far as its readers look."""
    user, chip = np.array(user, dtype=float), np.array(chip, dtype=float)
    return SimpleNamespace(
        tokens_per_s_per_user=user, tokens_per_s_per_chip=chip, valid=np.isfinite(user) if valid is None else valid
    )


def place(model, system, mapping, precision, stack):
    return Deployment(model=model, system=system, mapping=mapping, precision=precision, stack=stack)


def test_unbeaten_points_are_the_fastest_last_and_each_once():
    """30 a user makes 7, 20 makes 11 twice (one stays), 10 as much; 15 with 5 is beaten in both; 5 makes 13."""
    found = deployments.unbeaten(steps([10, 20, 30, 20, 5, 15, np.nan], [11, 11, 7, 11, 13, 5, np.nan]))
    assert found.tolist() == [4, 0, 1, 2]
    assert deployments.unbeaten(steps([20, 20], [11, 12])).tolist() == [1, 0]  # as fast, with more of a chip
    assert deployments.unbeaten(steps([21, 20], [11, 11])).tolist() == [1, 0]


def test_a_draft_by_hand():
    d = place("llama-3.3-70b", AIR, tm.Mapping(tp=8, ep=1), "bf16", "hand-tuned")
    table = deployments.drafts(d, "llama-3.1-8b", 3, 4096, [4], [0.5]).iloc[0]
    verify = float(d.decode(batch=3, context=4096, new_tokens=5).time_s)
    draft = float(replace(d, model="llama-3.1-8b").decode(batch=3, context=4096).time_s)
    assert table.step_s == pytest.approx(verify + 4 * draft, rel=1e-12)
    assert table.tokens_per_step == pytest.approx(1 + 0.5 + 0.25 + 0.125 + 0.0625)
    plain = float(d.decode(batch=3, context=4096).time_s)
    assert table.speedup == pytest.approx(1.9375 * plain / table.step_s, rel=1e-12)


def test_a_draft_model_has_the_sequences_of_one_group_and_at_least_one():
    """Five sequences over four groups of experts: each group drafts for 1.25; one sequence over four for one."""
    d = place("deepseek-v3", WIDE, tm.Mapping(tp=8, ep=64), "mxfp8", "ideal")
    small = place("llama-3.1-8b", WIDE, tm.Mapping(tp=8), "mxfp8", "ideal")
    for batch, own in ((640, 10), (64, 1)):
        table = deployments.drafts(d, "llama-3.1-8b", batch, 4096, [3], [1.0]).iloc[0]
        verify = float(d.decode(batch=batch, context=4096, new_tokens=4).time_s)
        draft = float(small.decode(batch=own, context=4096).time_s)
        assert table.step_s == pytest.approx(verify + 3 * draft, rel=1e-12)


def test_prefill_apart_is_one_line_a_system():
    d = place("llama-3.1-8b", AIR, tm.Mapping(tp=8), "bf16", "ideal")
    table = deployments.split_phases(d, [TRN2, "hgx-h200"], 16, 2048, 256)
    assert table.prefill_system.tolist() == [TRN2, "hgx-h200"]


def test_shares_of_a_rival_by_hand(monkeypatch):
    """An ideal yield of 200: 50 are a quarter; where the rival makes nothing there is none, where only it does, inf."""
    made = {("a", "ideal"): [[200.0, 200.0, 0.0, 2.0]], ("a", "public"): [[50.0, 0.5, 7.0, 1.0]]}
    made |= {("a", "hand-tuned"): [[50.0, 0.0, 7.0, 0.5], [40.0, 0.0, 7.0, 0.4], [80.0, 0.0, 7.0, 0.8]]}
    monkeypatch.setattr(contests, "yields", lambda m, name, kind, *more: np.array(made["a", kind]))
    monkeypatch.setattr(contests, "stacks_of", lambda chip: ["ideal", "hand-tuned", "public"])
    table = contests.ties("llama-3.1-8b", AIR, ["hgx-h200"], [10.0, 20.0, 30.0, 40.0])
    table = table[table.system == AIR].set_index("software")
    assert table.share_of_ideal["public"].tolist() == [0.25, 0.0025, np.inf, 0.5]
    np.testing.assert_equal(table.share_of_ideal["hand-tuned"].to_numpy(), [0.25, np.nan, np.inf, 0.25])
    for place in (0, 3):
        low, high = (table[f"share_of_ideal_{end}"]["hand-tuned"].iloc[place] for end in ("low", "high"))
        assert (low, high) == (pytest.approx(40 / 200), pytest.approx(80 / 200))
    assert table.share_of_ideal_low["public"].isna().all()


def test_a_larger_domain_is_surely_better_where_its_band_leaves_1_out(monkeypatch):
    """Yields of 100 against 150, 100 and 90; moved together they stay apart, to one side or on both."""
    pair = [[[100.0, 100.0, 0.0, 0.0, 100.0], [80.0, 80.0, 0.0, 0.0, 100.0], [100.0, 100.0, 0.0, 0.0, 100.0]]]
    pair += [[[150.0, 100.0, 0.0, 0.5, 100.0], [160.0, 80.0, 0.0, 0.5, 90.0], [150.0, 110.0, 0.0, 0.5, 200.0]]]
    found = iter(map(np.array, pair))
    monkeypatch.setattr(contests, "yields", lambda *asked: next(found))
    speeds = [10.0, 20.0, 30.0, 40.0, 50.0]
    table = contests.domains([671026404352], speeds, (AIR, WIDE), kinds=["ideal"], context=1)
    np.testing.assert_equal(table.ratio.to_numpy(), [1.5, 1.0, np.nan, np.inf, 1.0])
    np.testing.assert_allclose(table.ratio_low, [1.5, 1.0, 1.0, 500.0, 0.9])  # 0.5 tokens/s over a thousandth
    np.testing.assert_allclose(table.ratio_high, [2.0, 1.1, 1.0, 500.0, 2.0])
    assert table.sure.tolist() == [True, True, False, True, False]
    with pytest.raises(ValueError, match="context="):
        contests.domains([671026404352], speeds, (AIR, WIDE), kinds=["ideal"], context=0.9)


def test_hand_tuned_software_is_asked_in_all_its_variants(monkeypatch):
    found = lambda model, spec, e, *more: SimpleNamespace(yields=lambda wanted: (e, wanted.tolist()))  # noqa: E731
    monkeypatch.setattr(contests, "tried", found)
    monkeypatch.setattr(contests, "spread", lambda e: f"all of {e.id}")
    told = {kind: contests.yields("m", AIR, kind, 20.0, 4096, "bf16")[0] for kind in ("hand-tuned", "ideal", "public")}
    assert told["hand-tuned"] == "all of hand-tuned-neuron"
    assert [told[kind].kind for kind in ("ideal", "public")] == ["ideal", "public"]


def test_whom_a_share_is_ahead_of():
    """At 20 tokens/s 0.5 is ahead of 0.4 and of one that is not as fast, not of as much and not of 0.6."""
    rows = [("a", "hand-tuned", 0.5), ("a", "public", 0.45), ("b", "ideal", 0.6), ("b", "hand-tuned", 0.4)]
    rows += [("b", "public", np.nan), ("c", "hand-tuned", 0.5)]
    table = pd.DataFrame(rows, columns=["system", "software", "share_of_ideal"])
    both = [table.assign(wanted_tokens_per_s_per_user=speed) for speed in (20.0, 50.0)]
    assert contests.ahead(pd.concat(both), "a", 20.0) == (2, 4)
    assert contests._share(0.5, 0.5, 0.5) == "0.50"
    assert contests._share(0.5, 0.25, 0.75) == "0.50 (0.25 to 0.75)"
    assert contests._share(np.nan, 0.0, 0.0) == "not as fast"


def test_a_band_is_the_root_of_squares_of_what_moves_each_way():
    """10 moved by 3 down and 4 up, by 4 down and nothing up: 10 - 5 and 10 + 4; both ends up are no way down."""
    assert [float(end[0]) for end in software.band(np.array([[10.0], [7.0], [14.0], [6.0], [10.0]]))] == [5.0, 14.0]
    assert [float(end[0]) for end in software.band(np.array([[10.0], [13.0], [12.0]]))] == [10.0, 13.0]
    assert [float(end[0]) for end in software.band(np.array([[10.0], [7.0], [8.0]]))] == [7.0, 10.0]


def test_software_and_racks_are_compared_where_anything_is_made():
    rows = [("a", "ideal", 60.0), ("a", "hand-tuned", 30.0), ("a", "public", 0.0), ("b", "ideal", 50.0)]
    rows += [("b", "hand-tuned", 20.0), ("b", "public", 10.0)]
    table = pd.DataFrame(rows, columns=["system", "software", "tokens_per_s_per_chip"])
    assert software.decides(table) == "Software moves the yield 5 times, racks 1.5 times"


def test_what_cannot_be_yields_nothing():
    found = software.tried("llama-3.3-70b", "hgx-h200", tm.efficiencies("h200", "ideal"), 65_536, "bf16")
    step = deployments.tried("llama-3.3-70b", "hgx-h200", context=65_536, precision="bf16", efficiencies="ideal")
    assert not np.all(step.valid)
    gone = ~step.valid.reshape(found.each.shape)
    assert set(found.each[gone]) == set(found.user[gone]) == {0.0}


@pytest.mark.parametrize(
    ("given", "system", "said"),
    [
        (5e5, "hgx-h200", "its price is given with the call"),
        (None, "hgx-h200", "of servers as sold, taken to another year"),
        (None, AIR, "nobody publishes one of trainium3; its parts are counted and estimated"),
    ],
)
def test_what_a_cost_rests_on(given, system, said):
    found = tm.tco(system, server_usd=given) if given else tm.tco(system)
    assert said in str(found.judge())
    assert cost._basis(found.system, found.prices, given).word == "extrapolated"


def test_where_a_break_even_is_looked_for():
    """Between cheap and dear of its kind: a chip, its watts, a switch lane, a server."""
    assert cost.BREAK_EVENS == {
        "chip_usd": (1e3, 1e4),
        "tdp_w": (100, 1000),
        "switch_usd_per_lane": (1, 100),
        "server_usd": (1e3, 1e5),
    }


class Hosts:
    """Costs that know sellers by the token."""

    def __init__(self, *rows):
        columns = "seller date system software api_usd_per_mtoken break_even_utilisation".split()
        self.table = pd.DataFrame(rows, columns=columns)

    def hosted(self):
        return self.table


def test_hosted_models_are_told_once_for_the_system_that_is_asked():
    rows = [("api", "2026-01-02", "x", "ideal", 0.5, 0.314), ("api", "2026-01-02", "x", "public", 0.5, 1.01)]
    rows += [("api", "2026-01-02", "y", "ideal", 0.5, 0.9)]
    found = {("m", 20.0): Hosts(*rows), ("m", 50.0): Hosts(*rows), ("n", 20.0): Hosts()}
    said = cost_words.hosted(found, {"x": "X"}, "x")
    assert said == (
        "* **m by api** (2026-01-02): 0.5 USD a million tokens of these requests. X at 20 tokens/s a user costs less "
        "where it is full in this share of its hours: ideal 31%, public never."
    )
    assert cost_words.hosted({("n", 20.0): Hosts()}, {}, "x") == "No price of these models by the token is known."


def test_an_hour_by_hand_counts_what_is_left_at_the_end():
    """At no interest over 50 months, 40 % lost: 0.4 C / 50 a month, and C x rate has no part in it."""
    who = tm.owner("hyperscaler").moved({"rate_per_year": 0.12, "life_years": 50 / 12, "lost_share": 0.4})
    hour = tm.tco(AIR, owner=who)
    said, capital = cost_words.hour_by_hand(hour, "three"), float(hour.capital_usd)
    growth = 1.01**50
    month = (capital - 0.6 * capital / growth) * 0.01 * growth / (growth - 1)
    assert f"{capital:,.0f} USD over 50 months at 1.00% a month, of which 60% is left at the end: {month:,.0f}" in said
    whole = cost_words.hour_by_hand(tm.tco(AIR, owner=who.moved({"lost_share": 1.0})), "three")
    assert "is left" not in whole


def test_a_bar_of_a_cost_is_one_that_moves_a_thousandth_of_it():
    table = pd.DataFrame(
        {
            "input": [f"{name}.pue" for name in ("prices", "power", "a-stack", "b")],
            "swing": [9.0, np.inf, 0.009, 0.02],
            "answer_low": [14.0, 1.0, 10.0, 10.0],
            "answer_high": [5.0, 1.0, 10.0, 10.02],
        }
    )
    draws = SimpleNamespace(tornado=lambda answer: table, bars={"x": np.array([10.0, 1.0])})
    found = cost_words.tornado(draws, "x")
    assert found.which.tolist() == ["pue", "how good b.pue is"]
    assert found.iloc[0, 1:].tolist() == [10.0, 5.0, 14.0, "extrapolated"]
    many = pd.concat([table.iloc[:1]] * 11)
    assert len(cost_words.tornado(SimpleNamespace(tornado=lambda answer: many, bars=draws.bars), "x")) == 10


def test_a_triangle_of_the_widest_has_its_90_percent_between_the_ends():
    w = effort.WIDEST
    law = stats.triang(0.5, -w, 2 * w)
    assert law.ppf(0.05) == pytest.approx(-1, rel=1e-12)
    assert law.ppf(0.95) == pytest.approx(1, rel=1e-12)


def test_chip_seconds_by_hand():
    """100 tokens/s a chip, 40 with prompts: a request of 20 answers takes 0.5 s, 0.2 of steps, 0.3 for 60 tokens."""
    ask = SimpleNamespace(output=20.0, given=60.0)
    found = SimpleNamespace(valid=True, tokens_per_s_per_chip=100.0, with_prompts_tokens_per_s_per_chip=40.0, chips=7.0)
    assert effort.Ask.chip_s(ask, found, 1.0, 1.0) == pytest.approx((0.005, 0.01, 7))
    assert effort.Ask.chip_s(ask, found, 3.0, 2.0) == pytest.approx((0.01, 0.03, 7))
    assert effort.Ask.chip_s(ask, None, 1.0, 1.0) == (np.inf,) * 3


def test_what_is_drawn_of_a_token_s_cost():
    """The ground of the software lies in the middle of its band at a half, and is no input where there is no band."""
    ask = {"tokens_per_s_per_user": 40, "input_tokens": 2048, "output_tokens": 512}
    found = tm.token_cost("llama-3.1-8b", [TRN2], **ask)
    tuned, ideal = found[TRN2, "hand-tuned"], found[TRN2, "ideal"]
    low, middle, high = tuned.chip_s_ends()
    (ground,) = [name for name in tuned.uncertain("blended") if "USD" not in name]
    inside = 0.5 + 0.5 / effort.WIDEST
    drawn = tuned.drawn_chip_s({ground: np.array([1 - inside, 0.5, inside])})
    np.testing.assert_allclose(drawn, [low, middle, high], rtol=1e-12)
    assert list(ideal.uncertain("blended")) == [f"{TRN2}: USD a chip-hour"]
    same, other = found.draws("ideal", draws=100), found.draws("ideal", draws=100, seed=0)
    np.testing.assert_array_equal(same.values[TRN2], other.values[TRN2])


def test_who_is_too_slow_ties_with_nobody():
    def line(fast):
        return SimpleNamespace(
            fast_enough=fast, chip_s_ends=lambda: (1.0, 2.0, 4.0), usd_per_chip_h=3.0, rent=tm.rent("hgx-h100")
        )

    for one, other in ((True, False), (False, True), (False, False)):
        assert np.isnan(_tie(line(one), line(other))).all()
    assert _tie(line(True), line(True))[0] == 3.0


def test_only_8_bit_caches_are_asked_of_a_server():
    m, mapping = tm.model("llama-3.1-8b"), tm.Mapping(tp=1)
    for kv, asked in (("fp8", True), ("bf16", False)):
        dtypes = tm.Precision(kv=kv)
        step = tm.decode_step(m, "hgx-h200", mapping, batch=4, context=2048, precision=dtypes)
        first = tm.prefill(m, "hgx-h200", mapping, input_tokens=1900, precision=dtypes)
        told = launch.command(m, step.stack, step, first, dtypes, 1, 2304)
        assert ("--kv-cache-dtype fp8" in told) is asked
    assert launch.BUCKET == 128


def test_a_curve_has_a_row_for_each_tie_that_there_is(monkeypatch):
    columns = {"break_even_usd_per_chip_h": [np.nan, 2.0], "break_even_usd_per_chip_h_low": [np.nan, 1.0]}
    monkeypatch.setattr(markets, "level_rents", lambda found, system: pd.DataFrame(columns))
    table = markets.curve({}, "m", "x")
    assert table.to_dict("list") == {"tie_usd_per_h": [2.0], "tie_usd_per_h_low": [1.0]}
    monkeypatch.setattr(markets, "level_rents", lambda found, system: pd.DataFrame())
    assert markets.curve({}, "m", "x").empty


def test_twins_are_a_chip_and_its_like_in_the_other_rack():
    """Two ranks, one chip of each rack of 32, eight cores of a chip in four ranks: every 128th rank."""
    table = placements.exchanges("deepseek-v3", [AIR], [16])
    twins = table[table.experts_over == "twins"].iloc[0]
    site = tm.system(AIR)
    lnc = max(site.chip.lnc_choices + site.chip.lnc_announced)
    per_chip = 8 / lnc
    # of 8 experts of 256 on two chips each holds one with 1 - (128 over 8) / (256 over 8): 2 x 0.99626 copies
    copies = 2 * (1 - np.prod([(128 - k) / (256 - k) for k in range(8)]))
    seconds = [
        tm.collective("all_to_all", width * 16 * copies * 7168 / per_chip, AIR, ranks=2, stride=32 * per_chip, lnc=lnc)
        for width in (1, 2)
    ]
    assert twins.layer_s == pytest.approx(sum(float(one.time_s) for one in seconds), rel=1e-9)


def test_replicas_and_instances_are_whole():
    """A replica of 32 chips takes two machines of 16, one of 4 has four in a machine."""
    found = tm.plan(
        "llama-3.3-70b", TRN2, precision="bf16", tokens_per_s_per_user=20, input_tokens=512, output_tokens=128
    )
    best = found.best
    assert best.instances == np.ceil(best.chips / 16)
    assert best.replicas_per_instance == 16 // best.chips
    many = tm.plan(
        "deepseek-v3", "hgx-h200", precision="bf16", tokens_per_s_per_user=5, input_tokens=512, output_tokens=128
    )
    for one in many.choices:
        assert one.instances == np.ceil(one.chips / 8)
        assert one.replicas_per_instance == 8 // one.chips


def test_watts_rest_on_rows_of_the_chip_alone_where_it_has_an_idle_share():
    """H100 has a fitted idle share with a range; Trainium has no row, a chip of others none of its own."""

    def basis(system, **ask):
        step = tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=1), batch=8, context=1024)
        return power._basis(step, step.system.chip, ask.get("power"))

    assert "watts" not in str(basis("hgx-h100"))
    assert "for none is published" in str(basis("trn2.48xlarge"))
    own = facilities.power(tm.chip("h100"))
    assert "are given with the call" in str(basis("hgx-h100", power=own))


def test_bars_of_a_joule_by_hand():
    """The error of the fit moves the chip's watts by its width both ways, up to its TDP, times the server's ratio."""
    step = tm.decode_step("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=1), batch=64, context=2048)
    e, own = tm.energy(step), facilities.power(tm.chip("h100"))
    table = power.one_at_a_time(e).set_index("which")
    watts, width, value = float(e.chip_w), float(own.chip_width), float(e.server_j_per_token)
    low = value * (1 - own.server_ratio * watts * (1 - np.exp(-width)) / float(e.server_w))
    up = min(watts * np.exp(width), 700.0) - watts
    high = value * (1 + own.server_ratio * up / float(e.server_w))
    fit = table.loc["error of the fit"]
    assert (fit.server_j_per_token_low, fit.server_j_per_token_high) == (pytest.approx(low), pytest.approx(high))


def test_percentiles_from_the_least_to_the_largest():
    law = Uncertain(0.0, 5.0, 10.0, "uniform")
    values = {"answer": np.array([4.0, 1.0, np.nan, 3.0])}
    found = Sensitivity(
        seed=0,
        draws=4,
        inputs={"x": law},
        values=values,
        bars={"answer": np.array([2.0, 1.0, 3.0])},
        reason_mask=np.zeros(()),
    )
    row = found.percentiles([0, 50, 100]).iloc[0]
    assert row.tolist() == ["answer", 2.0, pytest.approx(8 / 3), 1.0, 3.0, 4.0, 0.25]
    with pytest.raises(ValueError, match=r"at=\[101\]: allowed are numbers from 0 to 100"):
        found.percentiles([101])


def test_the_longest_context_is_the_last_step_that_fits():
    """Of 131,072 tokens in steps of 128 x 4 or so: the largest of the contexts that `memory_fit` lets in."""
    d = place("llama-3.1-8b", TRN2, tm.Mapping(tp=4), "bf16", "ideal")
    table = sizing.longest_context(d, [1, 64, 100_000], [4]).set_index("batch")
    step = sizing.FIRST_BUCKET * np.ceil(131_072 / sizing.FIRST_BUCKET / sizing.MOST_CONTEXTS)
    assert step == 128 * np.ceil(1024 / sizing.MOST_CONTEXTS)
    for batch in (1, 64):
        context = float(table.context[batch])
        assert bool(d.fit(batch, context).valid)
        assert context == 131_072 or (context % step == 0 and not bool(d.fit(batch, context + step).valid))
    assert 0 < table.context[64] < 131_072
    assert table.context[100_000] == 0


def test_a_step_of_training_is_that_of_llama_3():
    """arXiv 2407.21783, table 4: 16 million tokens of sequences of 8,192 through most of the run, 2,048 sequences."""
    assert (train_run.BATCH_TOKENS, train_run.SEQ) == (16 * 2**20, 8192)


def test_a_run_at_another_share_of_the_peak():
    """Ten days at 40 % are 4 at all of it, and no machine has more."""
    run = SimpleNamespace(days=10.0, mfu=0.4)
    assert float(train_run.TrainRun.days_at(run, 1.0)) == 4
    for wrong in (1.001, 0.0):
        with pytest.raises(ValueError, match="mfu="):
            train_run.TrainRun.days_at(run, wrong)


def test_placements_of_a_domain_in_words():
    """The first order nests TP inside the experts, the other the experts inside."""
    table = domain_sizes.placed(tm.system(AIR))
    orders = [order[0] for order in domain_sizes.ORDERS]
    assert table.inner.drop_duplicates().tolist() == orders
    assert (table.ep * table.tp * table.cp * table.dp == 64).all()


@pytest.mark.parametrize(("name", "value"), [("contexts", [0.5]), ("sizes", [-1.0]), ("rates", [-1.0])])
def test_sizes_and_contexts_out_of_range_are_refused(name, value):
    ask = {"sizes": [1e12], "rates": [20.0], "contexts": [1.0], "precisions": ["bf16"]} | {name: value}
    with pytest.raises(ValueError, match=f"{name}="):
        domain_sizes.ratios(["experts"], **ask)


def test_a_context_of_one_token_has_an_answer():
    table = domain_sizes.ratios(["experts"], [1e12], rates=[20.0], contexts=[1.0], precisions=["bf16"])
    assert table.ratio.notna().all()


def test_a_band_that_ends_at_1_is_on_one_side(monkeypatch):
    """100 against 90, together 80 against 80: the ratio is 0.9 to 1.0, surely no better."""
    found = iter(map(np.array, ([[100.0], [80.0], [100.0]], [[90.0], [80.0], [90.0]])))
    monkeypatch.setattr(contests, "yields", lambda *asked: next(found))
    table = contests.domains([671026404352], [10.0], (AIR, WIDE), kinds=["ideal"]).iloc[0]
    assert (table.ratio, table.ratio_high, table.sure) == (0.9, 1.0, True)


def test_ends_are_columns_where_they_are_asked_for():
    ask = {"tokens_per_s_per_user": 20, "input_tokens": 1024, "output_tokens": 256}
    for found in (tm.plan("llama-3.1-8b", TRN2, **ask), tm.token_cost("llama-3.1-8b", [TRN2], **ask)):
        assert set(found.to_frame(bands=True).columns) - set(found.to_frame().columns) == {"low", "high"}


def test_dollars_of_an_owner_are_high_where_the_hour_and_the_days_are():
    run = tm.train_run("llama-3.1-8b", AIR, tokens=1e12, chips=64)
    useful = run.goodput()
    hour = tm.tco(AIR, owner="hyperscaler", goodput=useful)
    (fast, slow), (cheap, dear) = run.widths("days"), hour.widths("useful_usd_per_h")
    paid = run.owner_usd(useful=useful)
    assert cheap != dear
    assert paid.high / paid.value == pytest.approx(float(np.exp(np.hypot(slow, dear))), rel=1e-9)
    assert paid.low / paid.value == pytest.approx(float(np.exp(-np.hypot(fast, cheap))), rel=1e-9)


def test_watts_that_two_claims_imply_meet_a_tdp_or_not():
    """Were Trainium2 of 500 W: times 1.4 it is 700 W, times 2 1,000, the ends of Trainium3; both hold."""
    before = tm.system("trn2-ultraserver")
    before = replace(before, chip=replace(before.chip, tdp_w=500.0, ranges={}))
    points = claimed.region(claimed.claim_sets(), WIDE, before)
    assert facilities.ends(tm.system(WIDE).chip, "tdp_w") == (700, 1000)
    ratio = points.speed_ratio / points.efficiency_ratio
    np.testing.assert_array_equal(points.meets_tdp, (ratio >= 1.4) & (ratio <= 2.0))
    halves = np.arange(0.5, 7, 0.5)
    assert set(halves[:7]) <= set(points.speed_ratio)
    assert set(halves[:12]) <= set(points.efficiency_ratio)
    assert (points.speed_ratio.max(), points.efficiency_ratio.max()) == (3.5, 6.0)
    pd.testing.assert_frame_equal(claimed.claim_sets(), claimed.claim_sets(tolerance=0.1))  # a tenth either way


def test_no_software_ties_beyond_all_of_the_ideal_yield():
    rows = [(10.0, 1.0), (20.0, 1.25), (30.0, 1.5)]
    table = pd.DataFrame(rows, columns=["wanted_tokens_per_s_per_user", "share_of_ideal"])
    table = table.assign(system="hgx-h200", software="public", share_of_ideal_low=np.nan, share_of_ideal_high=np.nan)
    found = contests.tie_table({"m": table}, AIR, [10.0, 20.0]).iloc[0]
    assert found["no software ties"] == "20 to 30 tokens/s"
    assert (found["at 10 tokens/s"], found["at 20 tokens/s"]) == ("1.00", "1.25")


def test_a_tdp_that_is_given_makes_the_watts_of_the_rack():
    found, own = tm.tco("hgx-h100", tdp_w=300.0), facilities.power(tm.chip("h100"))
    assert float(found.all_in_w) == pytest.approx(300 * own.all_in_ratio)
    assert float(found.mean_w) == pytest.approx(float(found.all_in_w) * found.owner.mean_load_share)


def waits(*highs):
    rows = [
        {"model": "m", "wanted_tokens_per_s_per_user": 20.0, "public": 0.04, "public_low": 0.0, "public_high": high}
        for high in highs
    ]
    return pd.DataFrame(rows).assign(**{"hand-tuned": np.nan, "ideal": np.nan})


def test_what_is_worth_no_wait_is_told_with_the_most_that_it_may_be():
    said = cost_words.wait_words(waits(0.04, 0.01), "A", "B")
    assert "in 2 of 2 cases no time, since a token of B is no cheaper." in said
    assert "no cheaper (at the 95th percentile of the draws up to 0.05 months)" in cost_words.wait_words(
        waits(0.04, 0.05), "A", "B"
    )


def test_energy_of_an_answer_is_that_of_its_step_and_power_that_of_its_chips():
    best = tm.plan(
        "llama-3.3-70b", "hgx-h200", precision="bf16", tokens_per_s_per_user=20, input_tokens=512, output_tokens=128
    ).best
    told, e = cover._spent(best), tm.energy(best.step)
    assert best.chips > 1
    assert told["server_j_per_token"] == float(e.server_j_per_token)
    assert told["server_w"] == float(e.server_w) * best.chips
    low, high = e.ends("server_w")
    assert (told["server_w_low"], told["server_w_high"]) == (float(low) * best.chips, float(high) * best.chips)


def test_the_first_page_asks_for_prompts_of_4096_and_answers_of_512():
    asked = inspect.signature(cover.answers).parameters
    assert (asked["input_tokens"].default, asked["output_tokens"].default) == (4096, 512)
    assert asked["tokens_per_s_per_user"].default == (20.0, 50.0)
    of_software = inspect.signature(software.answers).parameters
    assert [of_software[name].default for name in ("tokens_per_s_per_user", "context")] == [(20.0, 50.0), 4096.0]


def test_throughput_between_batches_is_linear_in_the_speed():
    """30, 20, 10 tokens/s a user make 1, 4, 9 a chip; a fourth batch does not fit. 25 lies at 2.5, below 10 is 9."""
    user, chip = np.array([[30.0, 20.0, 10.0, np.nan]]), np.array([[1.0, 4.0, 9.0, np.nan]])
    found = domain_sizes._at(np.array([40.0, 30.0, 25.0, 20.0, 12.0, 10.0, 5.0]), user, chip)
    assert found[0].tolist() == [0, 1, 2.5, 4, 8, 9, 9]
    none = np.full((1, 4), np.nan)
    assert domain_sizes._at(np.array([1.0]), none, none).tolist() == [[0]]


def test_verdicts_stand_in_the_order_of_their_cases():
    sizes = [3e12, 4e12]
    rows = [
        (name, size, ratio)
        for name, ratios in (("z", (1.0, 2.0)), ("a", (2.0, 2.0)))
        for size, ratio in zip(sizes, ratios, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["software", "total_params", "ratio"])
    table = table.assign(precision="x", context=1, tokens_per_s_per_user=1, rule="x")
    found = domain_sizes.verdicts(table, 1.1, 3e12, 4e12)
    assert found[["software", "verdict"]].values.tolist() == [["z", "agrees"], ["a", "earlier"]]
    assert found.pays_from_params.tolist() == [4e12, 3e12]
    pd.testing.assert_frame_equal(found, domain_sizes.verdicts(table, 2.0, 3e12, 4e12))  # twice is at least twice
    assert domain_sizes.verdicts(table, 2.01, 3e12, 4e12).verdict.tolist() == ["later", "later"]
    at = domain_sizes.verdicts(table, 1.1, 2.9e12, 3e12)
    assert at.verdict.tolist() == ["later", "agrees"]  # from 3e12 on, which counts


def test_walls_of_a_domain_by_hand():
    """Two bytes a parameter: HBM over 2, and what is streamed in a 40th of a second over 2."""
    spec = tm.system(AIR)
    streamed, held = 64 * spec.chip.hbm_bytes_per_s, 64 * spec.chip.hbm_bytes
    (row,) = domain_sizes.walls([AIR], ["bf16"], [40]).itertuples(index=False)
    assert row[:3] == (AIR, "bf16", 40)
    assert row[3:] == pytest.approx((streamed / 40 / 2, held / 2))
    (row,) = domain_sizes.capacity(["llama-3.1-8b"], [AIR], ["bf16"]).itertuples(index=False)
    weights = tm.model("llama-3.1-8b").total_params * 2
    assert row[1:] == pytest.approx((weights / 2, "bf16", AIR, weights, held, weights / held * 2, weights / held))


def test_parts_of_a_guard():
    """A plane of 18 chips is 18 links to each switch; 3 links and 2 switches fail 3 x 5 + 2 x 7 times."""
    switch, cable = redundancy.guards(WIDE)
    assert (switch.groups, switch.parts, switch.links, switch.switches) == (8, 10, 18, 1)
    assert (cable.groups, cable.parts, cable.spares, cable.links, cable.switches) == (1, 72, 0, 1, 0)
    fleet = SimpleNamespace(link_failures_per_s=5.0, switch_failures_per_s=7.0)
    assert switch._replace(links=3, switches=2).failures_per_s(fleet) == 29.0


@pytest.mark.parametrize(
    ("weights", "context", "longest", "more"),
    [
        ("bf16", 256, 300, {"decode_context_length_buckets": [256]}),
        ("bf16", 256, 256, {}),
        ("bf16", 200, 300, {}),
        ("mxfp8", 200, 300, {"quantization": "mxfp8"}),
    ],
)
def test_options_of_vllm_neuron(weights, context, longest, more):
    found = launch._neuron(tm.Precision(weights=weights), 4, 1024, context, longest)
    assert found == {"num_batched_tokens_buckets": [1024], "num_seqs_buckets": [4]} | more


def test_the_older_server_has_its_buckets_switched_on():
    m, mapping, ask = tm.model("llama-3.1-8b"), tm.Mapping(tp=8), {"max_context": 2304}
    step = tm.decode_step(m, "trn1.32xlarge", mapping, batch=4, context=2048, **ask)
    first = tm.prefill(m, "trn1.32xlarge", mapping, input_tokens=1900, **ask)
    told = launch.command(m, step.stack, step, first, tm.Precision(), 1, 2304)
    config = json.loads(shlex.split(told)[-1])["override_neuron_config"]
    assert config.pop("context_encoding_buckets") == [int(first.compiled_tokens)]
    assert config.pop("token_generation_buckets") == [int(step.compiled_tokens)]
    assert config == {"logical_nc_config": 1, "enable_bucketing": True}


def test_a_stack_runs_where_the_chip_s_own_software_does():
    bare = replace(tm.chip("trainium3"), default_stack="", hand_tuned_stack="")
    assert launch.runs(tm.efficiencies("h200"), bare)
    assert launch.runs(tm.efficiencies("h200", "ideal"), tm.chip("trainium3"))
    assert not launch.runs(tm.efficiencies("h200"), tm.chip("trainium3"))


def test_a_choice_in_words_has_the_degrees_that_cut():
    ask = {"tokens_per_s_per_user": 20, "input_tokens": 512, "output_tokens": 128}
    best = tm.plan("llama-3.1-8b", TRN2, precision="bf16", **ask).best
    assert best.mapping == f"bf16, TP {best.tp:g}, LNC 2, batch {best.batch:g}"
    experts = replace(best, ep=2.0)
    assert experts.mapping == f"bf16, TP {best.tp:g} x EP 2, LNC 2, batch {best.batch:g}"


def test_systems_that_do_what_the_best_does():
    choices = [
        SimpleNamespace(valid=True, merit=merit, system=SimpleNamespace(id=name))
        for name, merit in (("a", 100.0), ("b", 99.1), ("c", 98.9), ("d", 98.4))
    ]
    assert plan.Plan.same.fget(SimpleNamespace(choices=choices)) == ["b"]
    slow = SimpleNamespace(valid=False, merit=100.0, system=SimpleNamespace(id="e"))
    assert plan.Plan.same.fget(SimpleNamespace(choices=[choices[0], slow])) == []


def test_joules_of_others_beside_the_least():
    """2 J against 1 J: 0.69 of a logarithm; watts of 0.3 and 0.4 make it up by themselves, times of 0.2 do not."""
    beside = {"watts_below": 0.3, "watts_above": 0.4, "time_below": 0.1, "time_above": 0.1}
    rows = [("gb200-nvl72", 1.0), ("hgx-h200", 2.0), ("hgx-b200", 2.1), ("mi355x-8", 1.0)]
    table = pd.DataFrame(rows, columns=["system", joules.SPENT[0]]).assign(
        wanted_tokens_per_s_per_user=20.0, software="public", **beside
    )
    best, told = joules.verdicts(table, 20.0, "public")
    assert best.system == "gb200-nvl72"
    assert told == {"hgx-h200": "watts", "hgx-b200": "both together", "mi355x-8": "level"}
    assert joules.verdicts(table, 50.0, "public") == (None, {})
    assert joules.moved_by(joules.LEVEL, beside | {"system": TRN2}, beside | {"system": TRN2}) == "nothing"


def test_a_tie_that_may_be_nothing_or_less():
    """A median of 2 with ends 0 and 5; one of 0 with an end of 3; one below 0 at both ends."""

    def draws(*values):
        return SimpleNamespace(
            values={"x": 0},
            percentiles=lambda: pd.DataFrame([("x", *values)], columns=["answer", "p5", "p50", "p95"]),
        )

    cells = [markets.tie_cell(draws(*ends), "x") for ends in ((0.0, 2.0, 5.0), (-1.0, 0.0, 3.0), (-3.0, -2.0, 0.0))]
    assert cells == ["2 (0 to 5)", "none (to 3)", "none"]
    assert markets.tie_cell(draws(1.0, 2.0, 5.0), "x") == "2 (1 to 5)"
    assert markets.tie_cell(None, "x", "too slow") == "too slow"


def test_how_much_may_be_drawn():
    draw = {"ask": lambda x: x, "inputs": {"x": (1, 9)}}
    assert tm.sensitivity(**draw, draws=2, seed=2**32 - 1).seed == 2**32 - 1
    for wrong, most in (({"draws": 10**7 + 1}, 10**7), ({"draws": 2, "seed": 2**32}, 2**32 - 1)):
        with pytest.raises(ValueError, match=f"{most}|{most:g}"):
            tm.sensitivity(**draw, **wrong)


def test_a_short_run_is_told_in_hours():
    run = tm.train_run("llama-3.1-8b", TRN2, tokens=1e6, chips=16, global_batch=4)
    assert run.days < 1 / 24
    assert run.told().startswith(f"{float(run.days) * 24:.2g} h (")
    with pytest.raises(ValueError, match="chips=1048577"):
        tm.train_run("llama-3.1-8b", TRN2, tokens=1e6, chips=2**20 + 1)


def test_what_a_run_says_of_lost_time_and_of_stated_shares():
    run = tm.train_run("llama-3.1-8b", AIR, tokens=1e12, chips=64)
    useful, rows = run.goodput(), trainings.at_stated_mfu(run)
    told = train_words._spent(run, "hyperscaler", "capacity-block")[0]
    assert told.endswith(f", {100 * float(useful.goodput):.3g} % of the time of chips and spares is useful")
    said = "".join(train_words._stated(run))
    assert said.count("%") == len(rows) - 1 > 0
    assert f"at {100 * rows.mfu[1]:.3g} % ({rows.software[1]})" in said
    assert train_run.domains(AIR, 64).count == 1
    assert (train_run.domains(AIR, 127).chips, train_run.domains(AIR, 122).chips) == (128, 128)  # 64 x 2, 4.9 % more
    with pytest.raises(ValueError, match="near are 64 and 128"):
        train_run.domains(AIR, 121)


def test_what_a_chip_of_a_step_does():
    """Four ranks a chip and 64 chips are 256 ranks. An all-reduce over n sends 2 (n - 1) / n of 7 B, 11 times."""
    message = SimpleNamespace(kind="all_reduce", group="tp", message_bytes=7.0, count=11.0)
    plain = {
        "pp": 1.0,
        "ep": 1.0,
        "cp": 1.0,
        "dp": 1.0,
        "ranks_per_chip": 4.0,
        "time_s": 2.0,
        "messages": (message,),
        "work_flop_per_rank": 3.0,
        "moved_bytes_per_rank": 5.0,
        "system": tm.system(AIR),
    }

    def of(tp, **more):
        return power._amounts(SimpleNamespace(**plain | {"tp": float(tp)} | more))

    for tp, within, beyond in (
        (4, False, False),
        (5, True, False),
        (8, True, False),
        (256, True, False),
        (257, False, True),
    ):
        assert (bool(of(tp).within), bool(of(tp).beyond)) == (within, beyond)
    assert of(4)[:4] == pytest.approx((2, 12, 20, 4 * 1.5 * 77))
    assert of(2)[:4] == pytest.approx((2, 6, 10, 2 * 77))  # half a chip, and with copies all of it
    assert of(2, dp=3.0)[:4] == pytest.approx((2, 12, 20, 4 * 77))
    many = {"pp": 3.0, "ep": 5.0, "cp": 7.0}
    assert [bool(x) for x in of(2, **many)[4:]] == [True, False]  # 210 ranks are 53 chips
    assert [bool(x) for x in of(3, **many)[4:]] == [False, True]  # 315 are 79
    bare = replace(tm.chip("trainium3"), scaleup_domain_chips=np.nan)
    assert [bool(x) for x in of(8, system=bare)[4:]] == [False, True]
    assert of(2, messages=()).sent_bytes == 0


def test_watts_of_a_chip_from_its_parts():
    """In 2 s at 0.5 pJ 200 TFLOP are 50 W, at 32 pJ 2 TB 32 W, 0.2 TB at 50 and 200 pJ 5 and 20 W; 175 W are static."""
    chip, shares = tm.chip("h100"), facilities.power(tm.chip("h100"))
    joules_ = {"hbm": 30e-12, "sbuf": 2e-12, "backplane": 50e-12, "network": 200e-12}
    shares = replace(shares, static_share=0.25, flop_j={"bf16": 0.5e-12}, byte_j=joules_)

    def watts(flop=200e12, within=False, beyond=False):
        amounts = power.Amounts(2.0, flop, 2e12, 0.2e12, np.array(within), np.array(beyond))
        return power.chip_watts(amounts, chip, "bf16", shares, power.MIDDLE)

    for medium, links in ({}, 0.0), ({"within": True}, 5.0), ({"beyond": True}, 20.0):
        found = watts(**medium)
        parts = [float(found[name]) for name in ("static_w", "operations_w", "memory_w", "links_w", "bottom_up_w")]
        assert parts == pytest.approx([175, 50, 32, links, 257 + links])
    assert watts(flop=2000e12)["bottom_up_w"] == 700  # 175 and 500 are less, with memory's 32 more than the TDP
    assert watts()["compute_utilisation"] == pytest.approx(200 / 2 / 989)
    assert watts()["hbm_utilisation"] == pytest.approx(1 / 3.35)


def test_a_useful_share_is_as_wide_as_its_ends():
    below, above = train_run._shares(SimpleNamespace(goodput=0.9, ends=lambda name: (0.8, 0.95)))
    assert np.exp([below, above]) == pytest.approx([9 / 8, 19 / 18])


def test_a_rack_may_draw_all_that_is_provisioned(monkeypatch):
    whole = rack_power._watts
    for left, fits in ((0.0, True), (-1e-9, False)):
        monkeypatch.setattr(rack_power, "_watts", lambda *asked, left=left: whole(*asked) | {"unnamed_w": left})
        assert bool(rack_power.rack_power(AIR).valid) is fits
