"""Prices at which systems tie in a comparison: of a chip-hour by hand and by `token_cost`, of a chip by `tco`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.cli.app import app
from trnmodel.search.compare import Flip, flips_in_words
from trnmodel.search.price_ties import PriceTie, ties_in_words
from trnmodel.search.sensitivity import common_draws

LARGE, H200, RACK, TRN3, TRN2 = "llama-3.3-70b", "hgx-h200", "gb200-nvl72", "trn3-nl72x2-pcie160", "trn2.48xlarge"
CHAT = tm.Request(2048, 512)


@pytest.fixture(scope="module")
def three():
    return tm.compare(LARGE, CHAT, [TRN3, H200, RACK], speeds=[50])


@pytest.fixture(scope="module")
def ties(three):
    return three.break_even().set_index("system")


def test_the_rent_at_a_tie_by_hand(three, ties):
    """A chip that makes 42 % of what another makes is worth 42 % of its rent: $10.582 of a GB200."""
    made = {c.system.id: c.tokens_per_s_per_chip for c in three.lines}
    assert three.leader == {50.0: RACK}
    for system in (H200, TRN3):
        row = ties.loc[system]
        assert row.against == RACK
        assert row.against_usd_per_chip_h == 10.582
        assert row.break_even_usd_per_chip_h == pytest.approx(10.582 * made[system] / made[RACK], rel=1e-9)
        assert row.break_even_usd_per_chip_h_low < row.break_even_usd_per_chip_h < row.break_even_usd_per_chip_h_high
    assert ties.usd_per_chip_h[H200] == tm.rent(H200).usd_per_chip_h
    assert ties.against_break_even_usd_per_chip_h[H200] == pytest.approx(
        tm.rent(H200).usd_per_chip_h * made[RACK] / made[H200], rel=1e-9
    )
    assert np.isnan(ties.usd_per_chip_h[TRN3])
    assert ties.rent_reason[TRN3].startswith("no price is published of trn3")


def test_rents_are_those_of_the_cost_of_a_token(ties):
    request = tm.Request(2048, 512, tokens_per_s_per_user=50)
    table = tm.token_cost(LARGE, request, [TRN3, H200, RACK]).break_even(RACK)
    public = table[table.software == "public"].set_index("system")
    for system in (H200, TRN3):
        for end in ("", "_low", "_high"):
            name = f"break_even_usd_per_chip_h{end}"
            assert ties.loc[system, name] == pytest.approx(float(public.loc[system, name]), rel=1e-9)


@pytest.mark.parametrize(("system", "part"), [(TRN3, "chip_usd"), (H200, "server_usd")])
def test_at_the_price_of_a_tie_both_cost_their_owner_the_same(three, ties, system, part):
    """The hour of `tm.tco` at that price, over tokens per second, is the rival's."""
    made = {c.system.id: c.tokens_per_s_per_chip for c in three.lines}
    row = ties.loc[system]
    assert row.part == part
    hour = float(tm.tco(system, **{part: row.break_even_usd}).useful_usd_per_h)
    rival = float(tm.tco(RACK).useful_usd_per_h)
    assert hour / made[system] == pytest.approx(rival / made[RACK], rel=1e-9)
    assert hour == pytest.approx(row.owned_break_even_usd_per_h, rel=1e-9)
    assert row.owned_usd_per_h == pytest.approx(float(tm.tco(system).useful_usd_per_h))
    assert row.break_even_usd_low < row.break_even_usd < row.break_even_usd_high


def test_the_price_that_is_assumed(ties):
    """A package costs its HBM over a share times a markup; a server as it is sold, over its chips."""
    parts = tm.tco(TRN3).parts_usd
    assert ties.part_usd[TRN3] == pytest.approx(float(parts["HBM"] + parts["logic, package and margin"]))
    assert ties.part_usd[H200] == pytest.approx(float(tm.tco(H200).parts_usd["server as sold"]))


def test_a_drawn_price_gives_its_target_in_each_draw():
    cost = tm.tco(TRN3)
    drawn = common_draws(cost.uncertain())
    targets = np.linspace(0.5, 4.0, 1000)
    prices = cost.drawn_break_even("chip_usd", drawn, targets)
    back = cost.drawn_usd_per_h(drawn, chip_usd=np.maximum(prices, 1.0))
    assert back[prices > 1] == pytest.approx(targets[prices > 1], rel=1e-9)
    with pytest.raises(ValueError, match="which='chip_usd': the cost of hgx-h200 does not depend on it"):
        tm.tco(H200).drawn_break_even("chip_usd", {}, 1.0)


def test_a_baseline_owner_pricing_and_speed_are_heard(three):
    based = tm.compare(LARGE, CHAT, [TRN3, H200, RACK], speeds=[20, 50], baseline=H200, pricing="market")
    table = based.break_even()
    assert set(table.against) == {H200}
    assert len(table) == 4
    assert set(table.pricing) == {"market"}
    assert based.break_even(20.0).tokens_per_s_per_user.tolist() == [20.0, 20.0]
    neo = three.break_even(owner="neocloud", pricing="on-demand").set_index("system")
    assert neo.owned_usd_per_h[TRN3] == pytest.approx(float(tm.tco(TRN3, owner="neocloud").useful_usd_per_h))
    assert neo.usd_per_chip_h[H200] == tm.rent(H200, "on-demand").usd_per_chip_h


def test_systems_without_a_price_say_so_and_broken_promises_tie_at_none():
    nobody = tm.compare("llama-3.1-8b", CHAT, [TRN3, "inf2.48xlarge"], speeds=[20], pricing="spot")
    row = nobody.break_even().iloc[0]
    if row.system == TRN3:
        assert np.isnan(row.usd_per_chip_h)
    assert "no " in (row.rent_reason + row.owned_reason)
    late = tm.compare(LARGE, CHAT, [TRN3, H200], speeds=[1e6])
    assert not [line for line in late.card() if "if rented" in line or "if owned" in line]
    assert np.isnan(late.break_even().break_even_usd_per_chip_h).all()
    assert np.isnan(late.break_even().break_even_usd).all()
    assert "too slow" in late.break_even().owned_reason[0]


def test_one_system_alone_ties_with_nothing():
    assert tm.compare("llama-3.1-8b", CHAT, TRN2, speeds=[20]).break_even().empty


FIGURES = dict.fromkeys(PriceTie._fields, np.nan)
TIE = PriceTie(
    **FIGURES
    | {
        "system": "a",
        "against": "b",
        "pricing": "spot",
        "against_pricing": "spot",
        "rent_reason": "",
        "owned_reason": "",
    }
    | {"usd_per_chip_h": 2.0, "against_usd_per_chip_h": 5.0, "part": "chip_usd", "part_usd": 6000.0}
    | {"break_even_usd_per_chip_h": 3.0, "break_even_usd_per_chip_h_low": 1.0, "break_even_usd_per_chip_h_high": 9.0}
    | {"break_even_usd": 700.0, "break_even_usd_low": -50.0, "break_even_usd_high": 8000.0}
)


def test_ties_in_words():
    assert ties_in_words(TIE) == [
        "if rented, it ties with b ($5 per chip-hour, spot) at $3 per chip-hour (1 to 9); its spot price is $2",
        "if owned, it ties with b at a price of its chip of $700 (0 to 8,000); $6,000 is assumed",
    ]
    unpriced = TIE._replace(usd_per_chip_h=np.nan, break_even_usd=-3.0, part="server_usd", break_even_usd_high=-1.0)
    assert ties_in_words(unpriced) == [
        "if rented, it ties with b ($5 per chip-hour, spot) at $3 per chip-hour (1 to 9); no rent of it is published",
        "if owned, it costs more than b even with its server for nothing; $6,000 is assumed",
    ]
    turned = TIE._replace(
        break_even_usd_per_chip_h=np.nan,
        against_break_even_usd_per_chip_h=4.0,
        against_break_even_usd_per_chip_h_low=3.0,
        against_break_even_usd_per_chip_h_high=6.0,
        break_even_usd=np.nan,
        owned_reason="a: no watts",
    )
    rented, owned = ties_in_words(turned)
    assert rented.startswith("if rented ($2 per chip-hour, spot), it ties where b rents for $4 per chip-hour (3 to 6)")
    assert rented.endswith("; no rent of that is published")
    assert owned == "if owned: a: no watts"


def test_flips_are_in_order_of_speed():
    """Two pairs: each has its own first line, and a pair that turns again says so."""
    flips = [Flip(90.0, "b", "a", False), Flip(30.0, "a", "b", False), Flip(50.0, "a", "c", True)]
    assert flips_in_words(flips) == [
        "below 30 tokens/s per user a makes more per chip than b, and above it b makes more than a",
        "below 50 tokens/s per user a makes more per chip than c, and above it only c keeps the promise",
        "above 90 tokens/s per user a makes more per chip than b again",
    ]


@pytest.mark.parametrize(
    ("more", "named"),
    [({"pricing": "barter"}, "pricing"), ({"region": "mars"}, "region"), ({"owner": "nobody"}, "owner")],
)
def test_prices_that_nobody_knows_are_refused_by_name(three, more, named):
    for call in (lambda: tm.compare(LARGE, CHAT, [TRN3], speeds=[50], **more), lambda: three.break_even(**more)):
        with pytest.raises(ValueError, match=f"^{named}="):
            call()


def test_the_command_has_the_ties_in_json_and_in_words(three):
    args = f"compare {LARGE} {TRN3} {H200} {RACK} --speed 50 --in 2048 --out 512".split()
    assert CliRunner().invoke(app, args).stdout.splitlines() == three.card()
    found = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)
    assert [row["system"] for row in found["price_ties"]] == three.break_even().system.tolist()
    refused = CliRunner().invoke(app, [*args, "--region", "mars"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("--region='mars'")
