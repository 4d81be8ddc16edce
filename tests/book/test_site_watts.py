"""Power and cost of one rack: the same site, provisioned watts and mean watts by either route."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.shared.rack_power import rack_power
from trnmodel.catalog import facilities, load
from trnmodel.power.account import SiteWatts

SYSTEMS = ["trn2.48xlarge", "trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160", "gb200-nvl72", "hgx-h100", "hgx-b200"]


def energy(system, **more):
    step = tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=4), batch=np.array([1, 64]), context=2048)
    return tm.energy(step, **more)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("site", [None, "aws-air", "aws-chilled"])
def test_power_and_cost_of_one_rack_agree(system, site):
    drawn = energy(system, facility=site)
    hour = tm.tco(system, energy=drawn, facility=site)
    watts = hour.site_watts
    assert hour.facility.id == drawn.facility.id
    np.testing.assert_allclose(watts.provisioned_w, drawn.all_in_w, rtol=1e-12)
    np.testing.assert_allclose(watts.mean_w, drawn.server_w, rtol=1e-12)
    np.testing.assert_allclose(watts.mean_site_w, drawn.facility_w, rtol=1e-12)
    np.testing.assert_allclose(watts.peak_site_w, drawn.site_w, rtol=1e-12)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_year_of_electricity_is_the_energy_at_the_site(system):
    """Dollars of an hour over the price of a joule are the joules per token times the tokens of an hour."""
    drawn = energy(system)
    hour = tm.tco(system, energy=drawn)
    joules = hour.energy_usd_per_h / hour.owner.electricity_usd_per_j
    np.testing.assert_allclose(joules, drawn.facility_j_per_token * drawn.tokens_per_s_per_chip * 3600, rtol=1e-9)


@pytest.mark.parametrize("system", ["trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160", "trn2-ultraserver"])
def test_the_budget_of_a_rack_ends_at_what_the_cost_provisions(system):
    rack = rack_power(system)
    assert float(rack.all_in_w / rack.chips) == pytest.approx(float(tm.tco(system).all_in_w), rel=1e-12)
    assert rack.counted_w < rack.all_in_w


def test_where_a_rack_stands():
    """Liquid-cooled racks at the site with chillers, others at the site of outside air; a renter at its own."""
    assert [tm.tco(name).facility.id for name in SYSTEMS[:5]] == [
        *("aws-air", "aws-chilled", "aws-air", "aws-chilled", "aws-air")
    ]
    assert tm.tco("gb300-nvl72").facility.id == "aws-chilled"
    assert tm.tco("trn3-nl72x2-pcie160", owner="neocloud").facility.id == "colocation"
    assert energy("trn3-nl72x2-pcie160", facility="aws-air").facility.id == "aws-air"
    assert facilities.site(tm.chip("trainium3")).id == "aws-air"


def test_provisioned_power_of_trainium3_by_hand():
    """850 W x 1.75 of GB200 NVL72 (2.1 kW over 1.2 kW) = 1,487.5 W, between 1.24 and 2.47 times the TDP."""
    hour = tm.tco("trn3-nl72x2-pcie160")
    assert float(hour.all_in_w) == pytest.approx(850 * 2.1 / 1.2)
    assert facilities.ends(facilities.power(hour.system.chip), "all_in_ratio") == (1.24, 2.47)
    rack = rack_power("trn3-nl72x2-pcie160")
    assert float(rack.counted_w / rack.chips / 850) == pytest.approx(1.24, abs=0.005)
    assert load.value("h100", "all_in_w") / load.value("h100", "tdp_w") == pytest.approx(2.47, abs=0.005)


def test_a_plan_reads_the_same_account():
    request = tm.Request(1024, 256, tokens_per_s_per_user=20)
    for system in ("trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160"):
        planned = tm.plan("llama-3.1-8b", request, system, users=100.0)
        sized, hour = planned.capacity, tm.tco(system)
        instances = sized.instances + sized.spare_instances
        by_hand = instances * hour.system.chips * 850 * 1.75 * {"aws-chilled": 1.5, "aws-air": 1.2}[hour.facility.id]
        assert sized.provisioned_site_w == pytest.approx(by_hand, rel=1e-9)
        assert sized.mean_site_w / sized.mean_server_w == pytest.approx(float(hour.facility.annual_pue), rel=1e-9)
        assert sized.owned.facility.id == hour.facility.id


def test_an_owner_with_a_site_of_its_own_has_one_pue():
    request = tm.Request(1024, 256, tokens_per_s_per_user=20)
    sized = tm.plan("llama-3.1-8b", request, "trn3-nl72x2-pcie160", users=100.0, owner="neocloud").capacity
    assert sized.mean_site_w / sized.mean_server_w == pytest.approx(1.25)
    assert sized.owned.facility.id == "colocation"


def test_more_watts_or_a_higher_pue_never_cost_less():
    watts = SiteWatts(1500.0, 900.0, 1.5, 1.25)
    assert (watts.peak_site_w, watts.mean_site_w) == (2250.0, 1125.0)
    for name in ("provisioned_w", "mean_w", "peak_pue", "annual_pue"):
        more = replace(watts, **{name: 1.1 * getattr(watts, name)})
        assert more.peak_site_w >= watts.peak_site_w
        assert more.mean_site_w >= watts.mean_site_w
    place = facilities.facility("aws-chilled")
    hours = [tm.tco("trn3-nl72x2-pcie160", facility=replace(place, annual_pue=pue)) for pue in (1.1, 1.25, 1.4)]
    assert [float(one.usd_per_h) for one in hours] == sorted(float(one.usd_per_h) for one in hours)
