"""Costs beside each other and in words: tables and sentences of small costs that are worked out by hand."""

import types
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import cost_comparison as markets
from trnbook.chapters import cost_owners as owned
from trnbook.chapters import cost_sentences
from trnbook.chapters.cost_comparison import ENDS, SPEED
from trnmodel.search.sensitivity import Sensitivity, Uncertain

CALLED = {"a": "A", "b": "B", "c": "C"}


def named(name: str, **more):
    return SimpleNamespace(id=name, **more)


def line(
    system, software="ideal", cost=1.0, ends=types.MappingProxyType({"generated_usd_per_mtoken": (0.5, 2.0)}), **more
):
    """A cost of a token, as far as tables of costs look."""
    one = {
        "FIGURE": "generated_usd_per_mtoken",
        "model": named("m"),
        "promised_tokens_per_s_per_user": 20.0,
        "reason": "",
    }
    one |= {"system": named(system), "stack_kind": software, "generated_usd_per_mtoken": cost, "basis": "ideal"}
    one |= {"chip_s": lambda: 3.0, "chance": 0.9, "usd_per_chip_h": 5.0, "valid": not np.isnan(cost)}
    return SimpleNamespace(**one | {"ends": ends.__getitem__, "fast_enough": True, "ranks": True} | more)


def costs(*lines, **more):
    kinds = dict.fromkeys(one.stack_kind for one in lines)
    return SimpleNamespace(
        lines=lines,
        systems=list(dict.fromkeys(one.system.id for one in lines)),
        of=lambda kind: [one for one in lines if one.stack_kind == kind] if kind in kinds else [],
        **more,
    )


def drawn(**values):
    return SimpleNamespace(values={name: np.array(each) for name, each in values.items()})


def test_every_model_is_asked_the_same_request_at_each_speed(monkeypatch):
    asked = []
    monkeypatch.setattr(markets, "token_cost", lambda model, request, some, **more: asked.append((request, some, more)))
    mine = SimpleNamespace(rent=lambda spec, *how: (spec.id, *how))
    systems, request = [named("a"), named("b")], tm.Request(7, 3)
    found = markets.cost_grid((named(one) for one in "mn"), iter(systems), [20.0, 50.0], mine, ("spot", "x"), request)
    assert list(found) == [(name, speed) for name in "mn" for speed in (20.0, 50.0)]
    prices = {"a": ("a", "spot", "x"), "b": ("b", "spot", "x")}
    for (_, speed), (one, some, more) in zip(found, asked, strict=True):
        assert one == tm.Request(7, 3, tokens_per_s_per_user=speed)
        assert (some, more) == (systems, {"pricing": prices})


def test_a_row_of_costs():
    table = markets.table_of({1: costs(line("a", cost=1.5)), 2: costs(line("b", cost=np.nan, reason="no price"))})
    assert table.iloc[0].to_dict() == {
        "model": "m",
        SPEED: 20.0,
        "system": "a",
        "software": "ideal",
        ENDS[0]: 1.5,
        ENDS[1]: 0.5,
        ENDS[2]: 2.0,
        "chip_s": 3.0,
        "chance": 0.9,
        "usd_per_chip_h": 5.0,
        "basis": "ideal",
        "reason": "",
    }
    assert table.loc[1, ENDS].isna().all()
    assert table.reason[1] == "no price"


@pytest.mark.parametrize(
    ("least", "price", "chip_s", "told"),
    [
        (2.0, 2.0, 0.0036, "least"),  # 3.6 ms at 2 USD an hour are 2 USD a million
        (2.4681, 3.0, 0.0036, "2.5"),
        (2.0, 2.0001, 0.0036, "2"),
        (np.nan, 2.0, 0.0036, "never"),
        (2.0, 2.0, np.inf, "never"),
        (2.0, 2.0, np.nan, "never"),
    ],
)
def test_a_price_that_makes_a_cost_the_least(least, price, chip_s, told):
    assert markets.level_at(least, price, chip_s) == told


def test_systems_beside_each_other():
    """3.6 ms at 2 USD an hour: 2 USD a million. 4.8 ms at 3: 4 USD, level at 1.5. 1.8 ms without a price: at 4."""
    rows = [("b", "ideal", 4.0, 3.0, 5.0, 3.0, 0.0048, ""), ("a", "ideal", 2.0, 1.0, 3.0, 2.0, 0.0036, "")]
    rows += [("c", "ideal", np.nan, np.nan, np.nan, np.nan, 0.0018, "no price is published")]
    rows += [("c", "public", np.nan, np.nan, np.nan, np.nan, np.inf, "too slow for a user at any load")]
    rows += [("d", "ideal", np.nan, np.nan, np.nan, 1.2345, np.inf, "the model does not fit")]
    table = pd.DataFrame(rows, columns=["system", "software", *ENDS, "usd_per_chip_h", "chip_s", "reason"])
    table = table.assign(model="m", chance=[1.0, 0.543, 0.0, 0.0, 0.0], **{SPEED: 20.0})
    found = markets.compare(table).set_index("system")
    assert found.ideal.tolist() == [
        "4 (3 to 5)",
        "2 (1 to 3), in 54% of the draws",
        "no price",
        "the model does not fit",
    ]
    assert found.public.tolist() == ["no such software"] * 2 + ["too slow", "no such software"]
    assert found["USD a chip-hour"].tolist() == ["3", "2", "no price", "1.23"]
    level = ["ideal 1.5", "ideal least", "public never, ideal 4", "ideal never"]
    assert found["level at, USD a chip-hour"].tolist() == level


def test_draws_that_are_refused_are_none():
    class Found:
        def draws(self, software, draws):
            if software == "public":
                raise ValueError
            return software, draws

    found = Found()
    assert markets.drawn(found, "ideal") == ("ideal", owned.DRAWS) == ("ideal", 4000)
    assert markets.drawn(found, "public") is None


def test_who_is_first_in_draws_or_by_middles(monkeypatch):
    asked = []

    def wins(least):
        asked.append(least)
        return pd.DataFrame({"answer": ["a", "b", "c"], "wins": [0.2, 0.5, 0.3]})

    monkeypatch.setattr(markets, "drawn", lambda found, software: SimpleNamespace(wins=wins))
    assert list(markets.firsts(None, "ideal").items()) == [("b", 0.5), ("c", 0.3), ("a", 0.2)]
    assert asked == [True]
    monkeypatch.setattr(markets, "drawn", lambda found, software: None)
    found = costs(line("a", cost=2.0), line("b", cost=1.0), line("c", cost=np.nan), line("d", "public", cost=0.1))
    assert list(markets.firsts(found, "ideal").items()) == [("b", 1.0), ("a", 0.0)]
    found = costs(line("a", cost=2.0), line("b", cost=1.0), line("e", cost=0.5, ranks=False))
    assert list(markets.firsts(found, "ideal").items()) == [("b", 1.0), ("a", 0.0)]


def test_three_systems_at_most_are_named():
    shares = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
    assert markets.leads(shares, CALLED | {"d": "D"}) == "open, A in 40%, B in 30%, C in 20%"
    assert markets.leads({"a": 0.95, "b": 0.05}, CALLED) == "A in 95%, B in 5%"
    assert markets.leads({"a": 0.94, "b": 0.06}, CALLED) == "open, A in 94%, B in 6%"


A, B, OPEN = {"a": 0.95, "b": 0.05}, {"b": 0.96, "a": 0.04}, {"a": 0.94, "b": 0.06}


@pytest.mark.parametrize(
    ("public", "tuned", "ideal", "said"),
    [
        ({"a": 1.0}, {"a": 1.0}, {}, "Only A has the speed and a price"),
        (OPEN, OPEN, OPEN, "Nobody is the cheapest by more than the band"),
        ({"a": 1.0}, OPEN, {"b": 1.0}, "Nobody is the cheapest by more than the band"),  # one of one is no lead
        (A, A, A, "A is the cheapest on all software"),
        (A, A, OPEN, "Cheapest: A public and hand-tuned; else open"),
        (B, A, A, "Cheapest: A hand-tuned and ideal, B public"),
        ({}, A, B, "Cheapest: A hand-tuned, B ideal; else open"),
    ],
)
def test_who_leads_on_which_software(monkeypatch, public, tuned, ideal, said):
    shares = {"public": public, "hand-tuned": tuned, "ideal": ideal}
    monkeypatch.setattr(markets, "firsts", lambda found, kind: shares[kind])
    assert markets.claim(None, CALLED) == said


def test_the_order_of_each_question_in_words(monkeypatch):
    shares = {"public": {}, "hand-tuned": {"a": 1.0}, "ideal": {"a": 0.6, "b": 0.4}}
    monkeypatch.setattr(markets, "firsts", lambda found, kind: shares[kind])
    nobody = "*public* nobody is as fast at a known price on measured software"
    words = f"{nobody}; *hand-tuned* A alone; *ideal* open, A in 60%, B in 40%"
    assert markets.describe_order({("m", 20.0): None, ("n", 1234.5): None}, CALLED) == (
        f"* **m at 20 tokens/s**: {words}.\n* **n at 1,234.5 tokens/s**: {words}."
    )


def test_why_two_are_not_compared():
    found = costs(line("a"), line("b"), line("c", fast_enough=False))
    assert markets._lacks(found, "ideal", "a", "b") == "no cost"
    assert markets._lacks(found, "ideal", "a", "c") == markets._lacks(found, "ideal", "c", "a") == "too slow"
    assert markets._lacks(found, "ideal", "a", "d") == "no such software"


def law(**values):
    """Draws as `sensitivity` gives them."""
    bars = {name: np.array([float(np.median(each))]) for name, each in values.items()}
    each = {name: np.array(some, dtype=float) for name, some in values.items()}
    inputs = {"x": Uncertain(0.0, 0.5, 1.0, "uniform")}
    return Sensitivity(seed=0, draws=3, inputs=inputs, values=each, bars=bars, reason_mask=np.zeros(()))


def test_ties_with_those_that_are_named_or_all_others(monkeypatch):
    asked = []

    def ties(found, system, which, kind, against):
        asked.append((system, which, kind, against))
        if kind == "public":
            raise ValueError
        return law(b=[2.0, 2.0, 2.0])

    monkeypatch.setattr(owned, "drawn_ties", ties)
    found = {("m", 20.0): costs(*(line(name, kind) for name in "abc" for kind in ("hand-tuned", "ideal")))}
    table = markets.ties(found, "a", "tdp_w")
    assert asked == [("a", "tdp_w", kind, ()) for kind in ("public", "hand-tuned", "ideal")]
    assert table.values.tolist() == [
        ["m", 20.0, "b", "no such software", "2 (2 to 2)", "2 (2 to 2)"],
        ["m", 20.0, "c", "no such software", "no cost", "no cost"],
    ]
    assert markets.ties(found, "a", "tdp_w", ["c", "a"]).against.tolist() == ["c"]


def test_the_share_of_draws_in_which_one_is_cheaper(monkeypatch):
    """1, 2, 3 against 2, 2, inf: less in two of three; against 1, 1, 1 in none; c is not drawn with public software."""
    draws = {"public": drawn(a=[1, 2, 3], b=[0.5, 1, 1]), "hand-tuned": None}
    draws["ideal"] = drawn(a=[1, 2, 3], b=[2, 2, np.inf], c=[9, 9, 9])
    monkeypatch.setattr(markets, "drawn", lambda found, kind: draws[kind])
    found = {("m", 20.0): costs(*(line(name, kind) for name in "abc" for kind in ("public", "ideal")))}
    assert markets.cheaper(found, "a").values.tolist() == [
        ["m", 20.0, "b", "in none", "no such software", "in 67%"],
        ["m", 20.0, "c", "no cost", "no such software", "in all"],
    ]


def test_an_answer_is_less_than_one_that_is_not_there():
    draws = drawn(a=[1, 2, np.inf, np.nan, 5], b=[np.inf, 2, np.inf, 1, 6])
    assert owned.cheaper(draws, "a", "b") == 2 / 5  # the first and the last
    assert owned.cheaper(draws, "b", "a") == 1 / 5  # where a is not there


def test_rents_that_tie_are_those_with_each_that_has_a_price(monkeypatch):
    end = "break_even_usd_per_chip_h"
    ties = lambda system, rival: [{"against": rival, end: 2.0, f"{end}_low": 1.0, f"{end}_high": 3.0}]  # noqa: E731
    one = SimpleNamespace(with_price=["b", "c"], ties=ties)
    found = {("m", 20.0): one, ("n", 50.0): one}
    table = markets.level_rents(found, "a")
    assert table[["model", SPEED, "against"]].values.tolist() == [
        ["m", 20.0, "b"],
        ["m", 20.0, "c"],
        ["n", 50.0, "b"],
        ["n", 50.0, "c"],
    ]
    curve = markets.curve(found, "n", "a")
    assert (
        curve[["model", "tie_usd_per_h", "tie_usd_per_h_low", "tie_usd_per_h_high"]].values.tolist()
        == [["n", 2.0, 1.0, 3.0]] * 2
    )


def now_of(system):
    """An owner of whose hardware the worth falls by a power of ten a year, with no interest."""
    return SimpleNamespace(
        system=named(system),
        prices=SimpleNamespace(decades_per_year=1.0),
        owner=SimpleNamespace(rate_per_year=0.0),
    )


def test_months_that_a_cheaper_token_pays_for(monkeypatch):
    """100 times as cheap: 24 months; 10 times as dear: -12. Draws of 10 and 100: 12.6 to 23.4, where both have one."""
    draws = {"public": drawn(a=[20, 200, np.inf, 7], b=[2, 2, 1, np.inf])}
    monkeypatch.setattr(markets, "drawn", lambda found, kind: draws.get(kind))
    some = (("public", 100.0, 1.0), ("hand-tuned", 1.0, 10.0), ("ideal", np.nan, 1.0))
    one = costs(*(line(name, kind, cost) for kind, *pair in some for name, cost in zip("ab", pair, strict=True)))
    row = markets.waiting({("m", 20.0): one}, now_of("a"), "b").iloc[0]
    assert (row.model, row[SPEED]) == ("m", 20.0)
    assert row[["public", "hand-tuned"]].tolist() == pytest.approx([24.0, -12.0])
    assert row[["public_low", "public_high"]].tolist() == pytest.approx([12.6, 23.4])
    assert row[["ideal", "hand-tuned_low", "hand-tuned_high", "ideal_low", "ideal_high"]].isna().all()
    same = markets.waiting({("m", 20.0): one}, now_of("a"), "a").iloc[0]
    assert (same.public, np.isnan(same.public_low)) == (0.0, True)
    assert np.isnan(markets.waiting({("m", 20.0): one}, now_of("a"), "c").iloc[0].public_low)


def test_an_early_chip_by_hand():
    """A power of ten a year: 12 months are worth 0.9 of what is paid, of 1,000 USD with ends of 500 and 2,000."""
    cost = now_of("a")
    cost.capital_usd, cost.ends = 1000.0, lambda name: {"capital_usd": (500.0, 2000.0)}[name]
    table = markets.early(cost)
    assert table.months.tolist() == [1.0, 3.0, 6.0, 12.0]
    assert table.iloc[-1].tolist() == pytest.approx([12.0, 450.0, 900.0, 1800.0, 0.9])
    assert markets.early(cost, [24.0]).share[0] == pytest.approx(0.99)


# In words


def test_a_token_by_hand():
    """300 tokens of 2 ms and 100 of 30 ms are 36 ms for each of 100; at 3 USD an hour 30 USD a million."""
    chip_s = {"prefill": 2.0 / 1e3, "decode": 30.0 / 1e3}
    ask = {"input_tokens": 300.0, "output_tokens": 100.0, "usd_per_chip_h": 3.0, "chip_s": chip_s.__getitem__}
    assert cost_sentences.by_hand(line("a", cost=30.0, **ask), CALLED) == (
        "**By hand, A on ideal software.** A token of a prompt takes 2 ms of a chip, one of an answer 30 ms with the "
        "time in which chips wait: (300 x 2 + 100 x 30) / 100 = 36 ms for each generated token. At 3 USD an hour a "
        "million take 3 x 36 x 1,000 / 3,600 = 30 USD; the package says 30 USD."
    )
    with pytest.raises(AssertionError, match=r"a: 30\.0 by hand, 30\.1 by the package"):
        cost_sentences.by_hand(line("a", cost=30.1, **ask), CALLED)


def test_costs_at_capacity_and_at_a_load():
    at = {"instances": 3.0, "rent": SimpleNamespace(why=""), "lacking": "", "in_words": "{} told".format}
    none = {"lacking": "too slow for a user at any load", "rent": SimpleNamespace(why="")}
    late = at | {"lacking": "the first token comes too late at any load", "valid": False}
    unknown = none | {"rent": SimpleNamespace(why="no price is published")}
    rows = line("a", "ideal", 4.0, **at), line("a", "public", np.nan, **none), line("a", "hand-tuned", 1.0, **at)
    full, load = costs(*rows, line("b", **unknown)), costs(*rows[:2], line("a", "hand-tuned", **late), line("b"))
    table = cost_sentences.loaded(full, load)
    assert table.columns.tolist() == ["system", "public", "hand-tuned", "ideal"]
    said = "generated_usd_per_mtoken told at capacity, at_load_usd_per_mtoken told on 3 instances"
    assert table.values.tolist() == [["a", none["lacking"], late["lacking"], said]]


def test_sellers_in_their_order():
    rows = [("z", "x", 0.54321), ("z", "y", 9.0), ("y", "x", 2.0)]
    table = pd.DataFrame(rows, columns=["seller", "software", "api_usd_per_mtoken"])
    table = table.assign(date="2026", system="a", break_even_utilisation=0.5)
    said = cost_sentences.hosted({("m", 20.0): SimpleNamespace(hosted=lambda: table)}, CALLED, "a").splitlines()
    assert [each.partition(" of these")[0] for each in said] == [
        "* **m by z** (2026): 0.543 USD a million tokens",
        "* **m by y** (2026): 2 USD a million tokens",
    ]


@pytest.mark.parametrize(("share", "told"), [(1.0, "100%"), (1.001, "never"), (np.nan, "never"), (0.25, "25%")])
def test_how_full_a_system_has_to_be(share, told):
    assert cost_sentences._full(share) == told


def test_an_hour_in_words():
    """175,320 USD lose half of their worth in 60 months at no interest: 1,461 a month, 2 USD of each of 730.5 hours."""
    owner = SimpleNamespace(rate_per_year=0.0, life_years=5.0, lost_share=0.5, electricity_usd_per_j=0.08 / 3.6e6)
    parts = {"server_usd_per_h": 1.5, "network_usd_per_h": 0.5, "energy_usd_per_h": 0.12, "site_usd_per_h": 0.3}
    parts |= {"operations_usd_per_h": 0.2, "usd_per_h": 2.62, "capital_usd": 175_320.0, "mean_w": 1000.0}
    cost = SimpleNamespace(valid=True, owner=owner, facility=SimpleNamespace(annual_pue=1.5), **parts)
    assert cost_sentences.hour_by_hand(cost, "X") == (
        "**By hand, X.** 175,320 USD over 60 months at 0.00% a month, of which 50% is left at the end: 1,461 USD a "
        "month, 2.000 USD an hour of 730.5 a month. Electricity: 1,000 W x 1.5 x 0.08 USD/kWh = 0.120 USD; the package "
        "says 0.120 USD. With building (0.300) and operations (0.200) the hour costs 2.62 USD."
    )
    cost.server_usd_per_h = 1.6
    with pytest.raises(AssertionError, match=r"X: 2\.0 by hand, 2\.1 by the package"):
        cost_sentences.hour_by_hand(cost, "X")


def test_months_in_words():
    """A power of ten and a quarter a year over 24 months: 1 - 0.01 x 0.64."""
    cost = SimpleNamespace(prices=SimpleNamespace(decades_per_year=1.0), owner=SimpleNamespace(rate_per_year=0.25))
    rows = [(24.0, 9.0, 10.0, 11.0, 0.9936), (1.0, 0.9, 1.0, 1.1, 0.19)]
    table = pd.DataFrame(rows, columns=["months", "usd_low", "usd", "usd_high", "share"])
    assert cost_sentences.early_delivery(cost, table, "X") == (
        "**By hand.** Prices fall by 1 powers of ten and capital costs 25.0% a year: 1 - 10^(-1 x 24 / 12) x "
        "1.25^(-24 / 12) = 99.4%. A chip of X that works earlier gains, of what is paid for it: 24 months 99.4%, "
        "10 (9 to 11) USD; 1 month 19.0%, 1 (0.9 to 1.1) USD."
    )
    with pytest.raises(AssertionError, match=r"X: 0\.9936 by hand, 0\.9 by the package"):
        cost_sentences.early_delivery(cost, table.assign(share=0.9), "X")


def test_waiting_in_words():
    """0.05 months are worth a word and 0.04 are not; without draws there is no band."""
    rows = [
        {"model": "m", SPEED: 1234.5, "public": 0.05, "hand-tuned": 1.234, "ideal": -1.0},
        {"model": "n", SPEED: 20.0, "public": np.nan, "hand-tuned": 10.0, "ideal": 0.04},
    ]
    ends = {
        "public_low": np.nan,
        "public_high": np.nan,
        "hand-tuned_low": [np.nan, 5.0],
        "hand-tuned_high": [np.nan, 20.0],
    }
    table = pd.DataFrame(rows).assign(**ends, ideal_low=-2.0, ideal_high=[0.02, 0.123])
    assert cost_sentences.waiting_time(table, "X", "Y") == (
        "**How long may one wait for Y** where X could work now? By what tokens save, in 2 of 5 cases no time, since a "
        "token of Y is no cheaper (at the 95th percentile of the draws up to 0.12 months); 0.05 months for m at "
        "1,234.5 tokens/s on public software; 1.2 months for m at 1,234.5 tokens/s on hand-tuned software; 10 (5 to "
        "20) months for n at 20 tokens/s on hand-tuned software."
    )
    first = cost_sentences.waiting_time(
        table[["model", SPEED, *(f"public{end}" for end in ("", "_low", "_high"))]]
        .iloc[:1]
        .assign(**{"hand-tuned": np.nan, "ideal": np.nan}),
        "X",
        "Y",
    )
    assert first.endswith("By what tokens save, 0.05 months for m at 1,234.5 tokens/s on public software.")
    none = table.assign(**dict.fromkeys(("public", "hand-tuned", "ideal"), np.nan))
    assert cost_sentences.waiting_time(none, "X", "Y") == (
        "Not both X and Y are as fast and have a cost, so that waiting is worth nothing known."
    )


def test_ties_told_by_software(monkeypatch):
    rows = [("m", 20.0, "b", "ideal", 2.0, 1.0, 4.0), ("m", 20.0, "b", "public", np.nan, 1.0, 1.0)]
    rows += [("m", 20.0, "c", "ideal", 2.0, 2.0, 2.0), ("n", 20.0, "b", "hand-tuned", 3.0, 3.0, 3.0)]
    ends = [f"break_even_usd_per_chip_h{end}" for end in ("", "_low", "_high")]
    table = pd.DataFrame(rows, columns=["model", SPEED, "against", "software", *ends])
    monkeypatch.setattr(cost_sentences, "level_rents", lambda found, system: table)
    found = cost_sentences.tie_table({}, "a").fillna("")
    assert found.columns.tolist() == ["model", SPEED, "against", "public", "ideal", "hand-tuned"]
    assert found.values.tolist() == [
        ["m", 20.0, "b", "too slow", "2 (1 to 4)", ""],
        ["m", 20.0, "c", "", "2", ""],
        ["n", 20.0, "b", "", "", "3"],
    ]


def test_a_bar_at_a_thousandth_is_none():
    table = pd.DataFrame({"input": ["a", "b"], "swing": [1.0, 1.001], "answer_low": 999.0, "answer_high": 1000.0})
    draws = SimpleNamespace(tornado=lambda answer: table, bars={"x": np.array([1000.0, 1.0])})
    assert cost_sentences.tornado(draws, "x").which.tolist() == ["how good b is"]


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("prices.chip_markup", "margin on the package"),
        ("owner.cluster_chips", "cluster chips"),
        ("power.all_in_ratio", "watts provisioned a watt of TDP"),
        ("TDP of trainium3", "TDP of trainium3"),
        ("hand-tuned-neuron", "how good hand-tuned-neuron is"),
        ("prices", "how good prices is"),
        ("a-stack.1 on h100", "how good a-stack.1 on h100 is"),
    ],
)
def test_inputs_have_names(label, told):
    assert cost_sentences._named(label) == told


def test_an_owner_s_hour_is_a_line():
    """Half a dollar, a dollar of 5,000 and a watt of 400; one that is bought as a server depends on neither."""
    recompute = lambda chip_usd=7000.0, tdp_w=700.0: {"useful_usd_per_h": 0.5 + chip_usd / 5000 + tdp_w / 400}  # noqa: E731
    chips = [SimpleNamespace(chip=SimpleNamespace(all_in_w=all_in_w)) for all_in_w in (np.nan, 9.0)]
    parts, sold = (SimpleNamespace(recompute=recompute, system=system, **recompute()) for system in chips)
    assert owned.as_line(parts) == pytest.approx((0.5, 1 / 5000, 1 / 400))
    assert owned.as_line(sold) == (0.5 + 7000 / 5000 + 700 / 400, 0.0, 0.0)


def test_the_watts_at_which_tokens_cost_the_same():
    """A token of 2 s at 1 USD an hour and one more by 100 W: of 3 s at 4 USD: level at 6 USD, 500 W; of 1 s at 2: 0."""

    def known(system, chip_s, hour, **more):
        many = lambda drawn, value: np.full(len(drawn[f"blended {system}"]), value)  # noqa: E731
        ask = lambda drawn: many(drawn, hour)  # noqa: E731
        level = lambda which, drawn, target: 100 * (target - hour)  # noqa: E731
        told = {"uncertain": lambda: {f"blended {system}": (0.0, 1.0, 2.0)}, "causes": tuple, "valid": True}
        told |= {
            "drawn_chip_s": lambda drawn: many(drawn, chip_s),
            "owned": SimpleNamespace(drawn_usd_per_h=ask, drawn_break_even=level),
        }
        return line(system, **told | more)

    def asked(software):
        assert software == "ideal"
        others = [known("d", 1.0, 1.0, owned=None), known("e", 1.0, 1.0, valid=np.array([True, False]))]
        return [known("a", 2.0, 1.0), known("b", 3.0, 4.0), known("c", 1.0, 2.0), *others]

    found = SimpleNamespace(of=asked)
    draws = owned.drawn_ties(found, "a", "tdp_w", "ideal")
    assert (draws.draws, draws.seed) == (4000, 0)
    assert sorted(draws.inputs) == ["blended a", "blended b", "blended c"]
    assert {name: float(each[0]) for name, each in draws.values.items()} == pytest.approx({"b": 500.0, "c": 0.0})
    assert list(owned.drawn_ties(found, "a", "tdp_w", "ideal", ["c", "a", "d"], seed=3).values) == ["c"]
    for none in (["a"], ["d", "e"]):
        with pytest.raises(ValueError, match="none of them is as fast with ideal software and has a cost"):
            owned.drawn_ties(found, "a", "tdp_w", "ideal", none)
