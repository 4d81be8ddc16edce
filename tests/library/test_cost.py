"""An owner's cost: parts sum, nothing unknown is free, break-evens tie, and GPUs cost what another model prints."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import facilities, load
from trnmodel.catalog import prices as priced
from trnmodel.cost import bill
from trnmodel.cost.tco import HOURLY
from trnmodel.fabric import scaleout
from trnmodel.formulas import tco as page

SOLD, RACK, TORUS, AIR = "hgx-h100", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus", "trn3-nl32x2-pcie160"
TRAINIUM = ["trn2.48xlarge", "trn2-ultraserver", "trn3-nl16-torus", TORUS, AIR, RACK, "trn3-nl72x2-ualink"]
FREE = ("switch_rebate", "aec_rebate")  # scenarios: a rebate that is not asked for is none


def test_an_hour_by_hand():
    """HGX H100 of a hyperscaler, by month: 29,300 USD over 66 months at 8 %, 1.73 kW at 11.5 USD/W over 144 months."""
    found, p, who = tm.tco(SOLD), priced.prices(), priced.owner()
    server = 31_904.63 * 10 ** (-0.14 * (2026 - 2025.08))
    assert found.parts_usd["server as sold"] == pytest.approx(server, rel=1e-12)
    r = 0.08 / 12
    recovery = r / (1 - (1 + r) ** -66) / 730.5
    assert found.server_usd_per_h == pytest.approx(server * recovery, rel=1e-12)
    network = 1200 * (1.41 + 4.88) / 2 + 800 * (1.375 + 2) / 2 + (108 + 810) / 2  # Gbps of switches and of optics
    assert found.network_usd_per_h == pytest.approx(network * recovery, rel=1e-9)
    assert found.site_usd_per_h == pytest.approx(1730 * 11.5 * r / (1 - (1 + r) ** -144) / 730.5, rel=1e-12)
    assert found.energy_usd_per_h == pytest.approx(1.73 * (0.515 + 0.76) / 2 * 1.14 * 0.0826, rel=1e-12)
    assert found.operations_usd_per_h == pytest.approx((server + network) * 0.02955 / 8766, rel=1e-9)
    assert p.market_ratio == who.lost_share == 1


@pytest.mark.parametrize("system", [SOLD, *TRAINIUM])
def test_parts_sum_to_the_total(system):
    found = tm.tco(system)
    assert sum(found.parts_usd.values()) == pytest.approx(float(found.capital_usd), rel=1e-12)
    assert sum(getattr(found, f"{part}_usd_per_h") for part in HOURLY) == pytest.approx(float(found.usd_per_h))
    hour = found.by_part()
    assert hour.share.to_numpy() == pytest.approx(hour.usd_per_h.to_numpy() / float(found.usd_per_h), rel=1e-12)
    assert hour.share.sum() == pytest.approx(1)
    table = found.bill()
    assert table.usd.sum() == pytest.approx(float(found.capital_usd))
    assert table.share.sum() == pytest.approx(1)
    assert (table.usd_low <= table.usd * (1 + 1e-12)).all()
    assert (table.usd <= table.usd_high * (1 + 1e-12)).all()
    assert found.low < found.usd_per_h < found.high
    assert found.basis == "extrapolated"


def test_what_is_given_is_paid_as_it_is():
    """A server of the day for 30,000 USD ages by nothing and has no street price; so a chip, and a lane of a switch."""
    dear = replace(priced.prices(), market_ratio=1.2)
    assert tm.tco(SOLD, server_usd=30_000.0, prices=dear).parts_usd["server as sold"] == 30_000
    found = tm.tco(RACK, chip_usd=6000.0, switch_usd_per_lane=3.0, prices=dear).parts_usd
    assert found["HBM"] + found["logic, package and margin"] == pytest.approx(6000, rel=1e-12)
    assert found["rack switches"] == pytest.approx(80 * 160 / 144 * 3, rel=1e-12)
    assert found["board switches"] == pytest.approx(288 * 32 / 144 * 3, rel=1e-12)


def test_the_rack_is_counted():
    """Lanes of all switch chips: 80 x 160 and 288 x 32 over 144 chips; 11,520 cables, 36 CPUs, 216 retimers."""
    found = bill.counts(tm.system(RACK))
    assert found["rack switches"] == 80 * 160 / 144
    assert found["board switches"] == 288 * 32 / 144
    assert (found["copper cables"], found["host CPUs"], found["retimers"]) == (11_520 / 144, 36 / 144, 216 / 144)
    assert bill.counts(tm.system(TORUS))["rack switches"] == 0


def test_every_part_of_a_trainium_carries_a_range():
    for system in TRAINIUM:
        table = tm.tco(system).bill().query("usd > 0")
        assert (table.usd_low < table.usd_high).all(), system
        assert table.set_index("part").estimate["logic, package and margin"]


def _used(spec):
    """Fields of a spec that hold a number."""
    return [f.name for f in fields(spec) if isinstance(getattr(spec, f.name), float) and f.name not in FREE]


def _refused(found):
    return not found.valid and np.isnan(found.usd_per_h) and bool(found.reason)


@pytest.mark.parametrize("system", [SOLD, TORUS, RACK])
@pytest.mark.parametrize("owner", ["hyperscaler", "neocloud"])
def test_unknown_is_never_zero(system, owner):
    """Without any price, watt, rate or share that the answer used it is refused; without an unused one it stands."""
    p, who = priced.prices(), priced.owner(owner)
    whole = float(tm.tco(system, owner=who).usd_per_h)
    refused = set()
    for name in _used(p):
        found = tm.tco(system, owner=who, prices=replace(p, **{name: np.nan}))
        refused |= {name} if _refused(found) else set()
        assert _refused(found) or found.usd_per_h == whole, name
    for name in _used(who):
        if np.isnan(getattr(who, name)):
            continue
        assert _refused(tm.tco(system, owner=replace(who, **{name: np.nan}))), name
    wanted = {"network_usd_per_bytes_per_s", "optics_usd_per_bytes_per_s", "aec_usd"}
    assert refused >= wanted | (
        {"market_ratio", "money_year", "decades_per_year"}
        if system == SOLD
        else {"hbm_usd_per_byte", "chip_markup", "switch_usd_per_lane", "cpu_usd"}
    )
    spec = tm.system(system)
    dark = replace(spec, chip=replace(spec.chip, tdp_w=np.nan, all_in_w=np.nan))
    assert _refused(tm.tco(dark, owner=who))
    shares = replace(facilities.power(spec.chip), all_in_ratio=np.nan)
    if np.isnan(spec.chip.all_in_w):
        assert _refused(tm.tco(spec, owner=who, power=shares))
    still = replace(facilities.site(spec, own=who.facility), annual_pue=np.nan)
    assert _refused(tm.tco(system, owner=who, facility=still))


@pytest.mark.parametrize("part", ["server_usd_per_chip", "server_year"])
def test_a_server_without_a_price_is_not_free(part):
    p = priced.prices()
    without = {name: value for name, value in getattr(p, part).items() if name != SOLD}
    assert _refused(tm.tco(SOLD, prices=replace(p, **{part: without})))
    for system in ("tpu-v5p-pod", "inf2.xlarge", "trn1.32xlarge", "trn3pd98.3xlarge"):
        assert "no source prices the server" in str(tm.tco(system).reason)


def test_a_price_of_one_s_own_answers_where_none_is_published():
    assert tm.tco("trn1.32xlarge", server_usd=5000.0, tdp_w=300.0).valid
    assert not tm.tco("trn1.32xlarge", server_usd=5000.0).valid  # no watts


def test_building_or_rent_never_both():
    with pytest.raises(ValueError, match="building's price or its rent, not both"):
        replace(priced.owner("neocloud"), build_usd_per_w=10.0)
    rented, built = tm.tco(SOLD, owner="neocloud"), tm.tco(SOLD)
    assert rented.site_usd_per_h == pytest.approx(1.73 * 184.06 / 730.5, rel=1e-9)
    assert built.site_usd_per_h < rented.site_usd_per_h


@pytest.mark.parametrize("which", ["chip_usd", "tdp_w", "switch_usd_per_lane"])
def test_at_a_break_even_both_cost_the_same(which):
    ours, rival = tm.tco(RACK), tm.tco(SOLD)
    for ratio in (0.9, 1.3):
        at = ours.break_even(which, useful_usd_per_h=rival.useful_usd_per_h * ratio)
        if at > 0:
            again = tm.tco(RACK, **{which: at})
            assert float(again.usd_per_mtoken(100.0 * ratio)) == pytest.approx(float(rival.usd_per_mtoken(100.0)))


def test_a_break_even_needs_no_secret_number():
    """The price of a chip at which it ties does not move with the price that was assumed."""
    p = priced.prices()
    for markup in (1.0, 3.0):
        found = tm.tco(RACK, prices=replace(p, chip_markup=markup)).break_even("chip_usd", useful_usd_per_h=1.2)
        assert found == pytest.approx(float(tm.tco(RACK).break_even("chip_usd", useful_usd_per_h=1.2)), rel=1e-9)
    with pytest.raises(ValueError, match="does not depend on it"):
        tm.tco(SOLD).break_even("switch_usd_per_lane", useful_usd_per_h=1.0)


@pytest.mark.parametrize("system", [SOLD, RACK])
def test_every_number_may_be_an_array(system):
    factors, p, who = np.array([1.0, 0.9, 0.75]), priced.prices(), priced.owner()

    def same(ask, spec, name):
        value = getattr(spec, name)
        many = ask(replace(spec, **{name: factors * value})).usd_per_h
        ones = [ask(replace(spec, **{name: float(factor * value)})).usd_per_h for factor in factors]
        np.testing.assert_allclose(np.broadcast_to(many, 3), ones, rtol=1e-12, err_msg=name)

    for name in _used(p):
        same(lambda prices: tm.tco(system, prices=prices), p, name)
    for name in _used(who):
        if getattr(who, name) == getattr(who, name) and name not in who.COUNTS:
            same(lambda owner: tm.tco(system, owner=owner), who, name)
    spec = tm.system(system)
    chips = [replace(spec.chip, tdp_w=factor * 700.0, hbm_bytes=factor * 1e11) for factor in (factors, *factors)]
    many, *ones = (tm.tco(replace(spec, chip=chip)).usd_per_h for chip in chips)
    np.testing.assert_allclose(np.broadcast_to(many, 3), ones, rtol=1e-12)


def test_use_and_lost_time_divide():
    base = tm.tco(SOLD)
    job = tm.goodput(SOLD, 4096, model="llama-3.1-70b")
    found = tm.tco(SOLD, utilisation=0.5, goodput=job)
    assert found.usd_per_h == base.usd_per_h
    assert found.useful_usd_per_h == pytest.approx(float(base.usd_per_h / (0.5 * job.goodput)))
    assert found.break_even("utilisation", useful_usd_per_h=found.useful_usd_per_h) == pytest.approx(0.5)
    assert found.widths("useful_usd_per_h")[1] > found.widths("usd_per_h")[1]


def test_watts_of_a_step_make_its_electricity():
    step = tm.decode_step("llama-3.1-8b", SOLD, tm.Mapping(tp=1), batch=[1, 64], context=2048)
    energy = tm.energy(step)
    found = tm.tco(SOLD, energy=energy)
    np.testing.assert_allclose(found.energy_usd_per_h, energy.server_w / 1e3 * 1.14 * 0.0826)
    np.testing.assert_allclose(found.usd_per_mtoken(energy), found.usd_per_mtoken(step))
    by_hand = found.usd_per_h / 3600 * 1e6 / step.tokens_per_s_per_chip
    np.testing.assert_allclose(found.usd_per_mtoken(step), by_hand)
    drawn = energy.ends("server_w")[1] / energy.server_w  # its band widens the electricity's
    assert np.all(np.exp(found.widths("energy_usd_per_h")[1]) >= drawn)
    low, high = found.mtoken_ends(step)
    assert np.all((low < by_hand) & (by_hand < high))


def test_draws_are_common():
    step = tm.decode_step("llama-3.1-70b", RACK, tm.Mapping(tp=8), batch=64, context=4096)
    inputs = {"prices": priced.prices(), "owner": priced.owner(), "tdp_w": (700.0, 850.0, 1000.0)}

    def ask(prices, owner, tdp_w):
        ours = tm.tco(RACK, prices=prices, owner=owner, tdp_w=tdp_w)
        return {"ours": ours.usd_per_mtoken(step), "twice": tm.tco(RACK, prices=prices, owner=owner, tdp_w=tdp_w)}

    found = tm.sensitivity(ask, inputs, draws=10_000)
    ratio = found.values["ours"] / found.values["twice"]
    assert np.ptp(ratio) < 1e-12 * ratio[0]
    assert len(found.inputs) > 20
    middle = float(tm.tco(RACK).usd_per_mtoken(step))
    low, high = (float(end) for end in tm.tco(RACK).mtoken_ends(100.0))
    assert low < float(tm.tco(RACK).usd_per_mtoken(100.0)) < high
    assert found.bars["ours"][0] == pytest.approx(middle)


def test_prices_carry_currency_region_and_date():
    kinds = {name for name, row in load.entities().items() if row.kind in ("prices", "owner", "warrant")}
    facts = [fact for fact in load.facts_rows().values() if fact.entity in kinds or fact.quantity == "owner_usd_per_h"]
    assert len(facts) > 70
    for fact in facts:
        said = priced.dated(fact)
        assert said.currency == "USD"
        assert re.match(r"\d{4}", said.date)
        assert said.region in ("US", "world")
        if fact.source == "project":
            assert fact.confidence == "D"
            assert len(said.note) + len(fact.locator) > 10  # an estimate says how it was made


def test_peaks_for_a_dollar_and_the_fall_of_worth():
    found = tm.tco(SOLD)
    assert found.flop_per_s_per_usd_per_h("bf16") == pytest.approx(
        tm.chip("h100").peak("bf16") / float(found.usd_per_h)
    )
    assert found.replacement_usd_per_h == pytest.approx(float(found.capital_usd) * 0.14 * np.log(10) / 8766)


def test_network_parts_are_those_of_the_clos():
    """Two layers: three ports of 400 Gb/s, two modules; three layers: five and four."""
    near, far = (scaleout.parts_per_chip(SOLD, chips) for chips in (4096, 131_072))
    assert near["switch_bytes_per_s"] == pytest.approx(3 * 400e9 / 8)
    assert far["switch_bytes_per_s"] == pytest.approx(5 * 400e9 / 8)
    assert (near["optics_bytes_per_s"], far["optics_bytes_per_s"]) == (2 * 400e9 / 8, 4 * 400e9 / 8)
    assert np.isnan(scaleout.parts_per_chip(SOLD, 1e9)["layers"])


def test_a_network_whose_rate_nobody_prints_is_a_range():
    found, p = tm.tco("gb300-nvl72"), priced.prices()
    low, high = p.range("scaleout_bytes_per_s_per_dir[gb300-nvl72]")
    assert (low, high) == (50e9, 100e9)
    one, two = (
        tm.tco("gb300-nvl72", prices=replace(p, scaleout_bytes_per_s_per_dir={"gb300-nvl72": rate}))
        for rate in (low, high)
    )
    assert two.network_usd_per_h == pytest.approx(2 * float(one.network_usd_per_h))
    assert one.network_usd_per_h == tm.tco("gb200-nvl72").network_usd_per_h < found.network_usd_per_h
    many = replace(p, scaleout_bytes_per_s_per_dir={"gb300-nvl72": np.array([low, high])})
    np.testing.assert_allclose(tm.tco("gb300-nvl72", prices=many).usd_per_h, [one.usd_per_h, two.usd_per_h])
    assert _refused(tm.tco("gb300-nvl72", prices=replace(p, scaleout_bytes_per_s_per_dir={})))


def test_prices_of_servers_age():
    p = priced.prices()
    old, new = (tm.tco(SOLD, prices=replace(p, money_year=year)).capital_usd for year in (2025.08, 2026.08))
    network = sum(float(bill.network_lines(tm.system(SOLD), p, 4096)[name]) for name in bill.NETWORK)
    assert (new - network) / (old - network) == pytest.approx(10**-0.14)
    assert page.aged_usd(1.0, p.decades_per_year, 1.0) == pytest.approx(10**-0.14)


def test_owner_figures_of_the_source():
    """The source prints B300 and GB300 as 1.2 times the one before."""
    for kind in ("hyperscaler", "neocloud"):
        for new, old in (("b300", "b200"), ("gb300", "gb200")):
            ratio = load.value(new, "owner_usd_per_h", kind) / load.value(old, "owner_usd_per_h", kind)
            assert ratio == pytest.approx(1.2)


def test_the_hour_of_a_break_even_is_named_by_the_caller():
    """An hour that is paid for is no useful hour where hours are lost: neither may be passed for the other."""
    job = tm.goodput(SOLD, 4096, model="llama-3.1-70b")
    ours, rival = tm.tco(RACK), tm.tco(SOLD, utilisation=0.5, goodput=job)
    assert rival.useful_usd_per_h > 2 * rival.usd_per_h
    with pytest.raises(TypeError):
        ours.break_even("chip_usd", rival.usd_per_h)
    with pytest.raises(TypeError):
        ours.break_even("chip_usd", usd_per_h=rival.usd_per_h)
    at = ours.break_even("chip_usd", useful_usd_per_h=rival.useful_usd_per_h)
    assert tm.tco(RACK, chip_usd=at).useful_usd_per_h == pytest.approx(float(rival.useful_usd_per_h))


def test_what_all_owners_have_in_common_is_no_owner():
    with pytest.raises(ValueError, match=r"owner='owner': allowed is one of hyperscaler, neocloud"):
        tm.tco("hgx-h100", owner="owner")
