"""What to measure before a decision: regrets by hand, savings beside nested draws, and the public call."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.rents import own
from trnmodel.draws import DRAWS, deviations
from trnmodel.search.decision import decision_of, drawn_of, half_widths, open_facts, standard_deviation
from trnmodel.search.next_measurement import FACT, MEASUREMENT, QUOTE, draws_of
from trnmodel.search.regret import Draws, in_turn, normal_scores, now_usd, regret_usd, saving

SYSTEMS = ["trn2.48xlarge", "hgx-h200", "hgx-b200"]
REQUEST = tm.Request(4096, 512, tokens_per_s_per_user=40)


@pytest.fixture(scope="module")
def compared():
    return tm.compare("llama-3.3-70b", REQUEST, SYSTEMS)


@pytest.fixture(scope="module")
def answer(compared):
    return tm.next_measurement(compared, users=1000)


def test_a_buyer_who_was_wrong_pays_what_was_planned_and_the_cheapest_option():
    dollars = np.array([[10.0, 50.0, np.inf, np.inf], [20.0, 20.0, 30.0, np.inf]])
    regret = regret_usd(dollars, np.array([12.0, 22.0]))
    assert regret.tolist() == [[0.0, 12.0, 12.0, 0.0], [10.0, 0.0, 0.0, 0.0]]


def _draws(*dollars, read):
    dollars = np.stack(dollars)
    regret = regret_usd(dollars, np.median(dollars, axis=1))
    return Draws(normal_scores(np.stack(read)), normal_scores(dollars), regret)


def test_what_a_reading_saves_is_what_nested_draws_say():
    """Two options, one of which is uncertain; the reading misses it by as much as nobody knows of it."""
    n, wide = 8000, 0.5
    z, noise = deviations("option", n), deviations("noise", n)
    uncertain, certain = np.exp(wide * z), np.full(n, 1.05)
    draws = _draws(uncertain, certain, read=[z + noise])
    found = saving(draws)
    # a reading s leaves z normal with mean s / 2 and variance 1 / 2
    inner = deviations("inner", 999)
    planned = np.median(np.stack([uncertain, certain]), axis=1)
    after = []
    for s in (z + noise)[:1500]:
        left = np.exp(wide * (s / 2 + np.sqrt(0.5) * inner))
        after.append(regret_usd(np.stack([left, np.full(999, 1.05)]), planned).mean(axis=1).min())
    by_hand = draws.regret.mean(axis=1).min() - np.mean(after)
    assert found.saved_usd == pytest.approx(by_hand, rel=0.1)
    assert 0 < found.saved_usd < draws.regret.mean(axis=1).min()


def test_readings_that_tell_nothing_save_nothing():
    z = deviations("option", 3000)
    draws = _draws(np.exp(0.5 * z), np.full(3000, 1.05), read=[deviations("elsewhere", 3000)])
    assert saving(draws).saved_usd == pytest.approx(0.0, abs=1e-12)


def test_a_dear_option_does_not_drown_the_others():
    """Of three options one costs a thousand times as much; the other two are told apart as without it."""
    n = 3000
    one, other, dear = (deviations(name, n) for name in ("one", "other", "dear"))
    two = (np.exp(0.4 * one), 1.02 * np.exp(0.4 * other))
    without = saving(_draws(*two, read=[one, other]))
    beside = saving(_draws(*two, 1000 * np.exp(2.0 * dear), read=[one, other]))
    assert beside.saved_usd == pytest.approx(without.saved_usd, rel=0.1)


def test_two_that_save_little_alone_are_suggested_together():
    """The option that leads by far is overtaken only where it is dear and the other one cheap."""
    n = 6000
    one, other = deviations("one", n), deviations("other", n)
    draws = _draws(np.exp(0.25 * one), 1.7 * np.exp(0.25 * other), read=[one, other])
    alone = [saving(draws.of([place])).saved_usd for place in (0, 1)]
    chain = in_turn(draws, np.zeros(2), lambda places: [p for p in (0, 1) if p not in places], 2)
    assert chain.savings[-1].saved_usd > 1.5 * sum(alone)
    assert chain.paying == 2


def test_what_costs_more_than_it_saves_is_not_suggested():
    z = deviations("option", 3000)
    draws = _draws(np.exp(0.5 * z), np.full(3000, 1.05), read=[z])
    dear = now_usd(draws.regret).mean() + 1
    chain = in_turn(draws, np.array([dear]), lambda places: [] if places else [0], 3)
    assert chain.paying == 0
    assert len(chain.places) == 1


def test_bills_are_those_of_token_costs_over_the_term(compared, answer):
    """Tokens of 1,000 users at 40 tokens/s for a year, times the cost of a token."""
    costs = tm.token_cost("llama-3.3-70b", REQUEST, SYSTEMS)
    million = 1000 * 40 * 365.25 * 86_400 / 1e6
    for name, usd in zip(answer.decision.systems, answer.decision.planned_usd, strict=True):
        assert usd == pytest.approx(float(costs[name, "public"].generated_usd_per_mtoken) * million, rel=1e-9)
    assert answer.best in SYSTEMS
    alike = tm.next_measurement(costs, users=1000)
    assert alike.regret_usd == pytest.approx(answer.regret_usd, rel=1e-9)


def test_draws_are_the_common_ones_of_the_choices(compared):
    one = decision_of(compared, 1000, 12.0, None, "rented")
    drawn = drawn_of(one, DRAWS)
    for line, usd in zip(one.lines, drawn.dollars, strict=True):
        expected = line.common_usd_per_h() * line.common_chip_s("at_load") / 3600 * 1e6 * one.mtokens
        np.testing.assert_allclose(usd[np.isfinite(usd)], expected[np.isfinite(expected)], rtol=1e-9)
        assert (np.isfinite(usd) == np.isfinite(expected)).all()


def test_the_answer_ranks_at_least_twenty_candidates_and_adds_up(answer):
    table = answer.to_frame()
    assert len(table) >= 20
    assert set(table.candidate_kind) == {MEASUREMENT, QUOTE, FACT}
    assert (table.saved_usd >= 0).all()
    assert np.allclose(table.regret_now_usd - table.saved_usd, table.regret_after_usd)
    together = table.saved_together_usd.dropna()
    assert together.max() <= answer.all_saved_usd <= answer.regret_usd
    assert table.suggested.tolist()[: len(answer.suggestions)] == [True] * len(answer.suggestions)
    assert answer.suggestions[0].name in answer.advice
    assert "trn2.48xlarge" in repr(answer)


def test_a_decision_that_no_measurement_turns_is_taken_now(compared):
    answer = tm.next_measurement(compared, users=1, months=0.01)
    assert answer.suggestions == ()
    assert answer.advice.startswith(f"Decide now for {answer.best}")


def test_of_two_readings_of_one_thing_the_noisier_adds_nothing(compared):
    one = decision_of(compared, 1000, 12.0, None, "rented")
    drawn = drawn_of(one, 2000)
    exact, noisy = (
        tm.Candidate(name=f"at {noise}", reads="decode step on hgx-b200", noise=noise) for noise in (0.05, 0.5)
    )
    first, second, both = (saving(draws_of(one, drawn, some)) for some in ([exact], [noisy], [noisy, exact]))
    assert second.saved_usd < first.saved_usd
    assert both.saved_usd == pytest.approx(first.saved_usd, rel=0.05)
    named = tm.next_measurement(compared, [noisy, exact], users=1000)
    assert named.candidates[0].name == exact.name


def test_a_quote_of_an_open_price_saves_what_the_price_moves():
    prices = {name: own(name, usd, (usd / 3, usd * 3)) for name, usd in zip(SYSTEMS, (2.2, 6.2, 9.0), strict=True)}
    answer = tm.next_measurement(tm.compare("llama-3.3-70b", REQUEST, SYSTEMS, pricing=prices), users=1000)
    quotes = [one for one in answer.values if one.candidate.kind == QUOTE]
    assert len(quotes) == 3
    assert max(one.saved_usd for one in quotes) > 0.05 * answer.regret_usd
    assert all(one.candidate.cost_usd == 0 for one in quotes)


def test_an_owner_s_open_inputs_are_candidates_where_the_bill_is_owned(compared):
    answer = tm.next_measurement(compared, users=1000, bill="owned")
    facts = [one.reads for one in answer.candidates if one.kind == FACT]
    assert any(name.startswith("prices.") for name in facts)
    assert not [name for name in facts if "gb300" in name]  # on which no option depends


def test_a_plan_is_a_decision_between_its_systems():
    plan = tm.plan("llama-3.3-70b", REQUEST, SYSTEMS, users=1000, availability=0.999)
    answer = tm.next_measurement(plan)
    for name, usd in zip(answer.decision.systems, answer.decision.planned_usd, strict=True):
        (choice,) = [c for c in plan.choices if c.system.id == name]
        assert usd == pytest.approx(plan.capacity_of(choice).usd_per_month * 12, rel=1e-9)


def test_an_open_fact_tells_the_part_of_a_step_that_it_moves():
    compared = tm.compare("llama-3.3-70b", REQUEST, ["trn3-nl72x2-pcie160", "hgx-b200"])
    one = decision_of(compared, 1000, 12.0, None, "owned")
    line = next(line for line in one.lines if line.system.id.startswith("trn3"))
    (name, ends, part, moved), *_ = [fact for fact in open_facts(line) if fact[0] == "hbm_bytes_per_s"]
    c = line.choice
    times = []
    for end in ends:
        spec = replace(c.system, chip=c.system.chip.moved({name: end}))
        step = tm.decode_step(
            "llama-3.3-70b",
            spec,
            c.degrees,
            batch=c.batch,
            context=4096 + 256,
            max_context=4096 + 512,
            precision=c.dtypes,
            efficiencies=c.stack,
            new_tokens=c.option.draft_tokens + 1,
        )
        times.append(float(step.time_s))
    assert part == "decode"
    assert moved == pytest.approx(np.log(times[0] / times[1]) / 2 / 1.6448536, rel=1e-6)
    assert 0 < moved < standard_deviation(line, part)
    assert sum(half_widths(line, part)) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "users=None: the decision states no load"),
        ({"users": 10, "bill": "leased"}, "bill='leased': allowed are owned, rented"),
        ({"users": 10, "candidates": "all"}, "candidates='all': allowed is a list"),
        ({"users": 10, "candidates": [1]}, "candidates=1: allowed is a list of Candidates"),
        ({"users": 10, "months": 0}, "months=0"),
        (
            {"users": 10, "candidates": [tm.Candidate(name="a", reads="prefill on trn3")]},
            "reads='prefill on trn3': allowed is something that the decision depends on; nearest",
        ),
        (
            {"users": 10, "candidates": [tm.Candidate(name="a", reads="prefill on hgx-h200")] * 2},
            "candidates='a': each has a name of its own",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(compared, changes, message):
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        tm.next_measurement(compared, **changes)


def test_a_decision_needs_two_options_and_one_load():
    single = tm.compare("llama-3.3-70b", REQUEST, ["trn2.48xlarge", "trn3-nl72x2-pcie160"])
    with pytest.raises(ValueError, match=r"at least two systems .* trn3-nl72x2-pcie160: no price is published"):
        tm.next_measurement(single, users=10)
    both = tm.compare("llama-3.3-70b", replace(REQUEST, requests_per_s=5.0), ["trn2.48xlarge", "hgx-h200"])
    with pytest.raises(ValueError, match=r"users=10\.0: the decision has a load already: 5 requests/s"):
        tm.next_measurement(both, users=10)
    within = tm.plan("llama-3.3-70b", REQUEST, ["trn2.48xlarge", "hgx-h200"], chips=64)
    with pytest.raises(ValueError, match="decision='Plan': allowed is a plan for a number of users"):
        tm.next_measurement(within, users=10)


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "x" * 300, "\x1b[2J", None])
def test_hostile_names_of_candidates(name):
    with pytest.raises(ValueError, match=r"^name="):
        tm.Candidate(name=name, reads="prefill on hgx-h200")


def test_a_candidate_s_numbers_are_checked():
    for field in ("noise", "cost_usd"):
        with pytest.raises(ValueError, match=f"^{field}="):
            tm.Candidate(**{"name": "a", "reads": "b", field: -1.0})
