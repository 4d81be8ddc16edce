"""Watts of a rack by part: sums by hand, ends, what nobody counts, values that a caller replaces."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.shared.rack_power import PARTS, compare, rack_power
from trnmodel.catalog import facilities
from trnmodel.formulas import energy as page

SMALL, LARGE = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"
COUNTED = [name for name in PARTS if name != "unnamed_w"]


def test_the_large_rack_by_hand():
    """18 trays of 4 chips, 1 CPU, 12 DIMMs, 6 retimers; 40 switches of 160 lanes and 144 of 32; 36 + 18 NICs.

    Low: 72 x 700 = 50,400; HBM 72 x 4.9e12 x 18.72 pJ = 6,604; lanes 11,008 x 0.3125 = 3,440; retimers 1,188;
    CPUs 18 x 100 = 1,800; DIMMs 216 x 3.8 = 820.8; NICs 54 x 15 = 810: 58,458.8; fans and pumps 1.0 % = 584.6;
    shelves 1.35 % of both = 797.1; together 59,840.5. Provisioned 72 x 700 x 1.24 = 62,496.
    """
    found = rack_power(LARGE)
    low = {name: found.ends(name)[0] for name in [*COUNTED, "counted_w", "all_in_w", "unnamed_w"]}
    hand = {
        "hbm_w": 72 * 4.9e12 * 18.72e-12,
        "switches_w": 11008 * 0.3125,
        "retimers_w": 1188,
        "hosts_w": 1800,
        "memory_w": 820.8,
        "nics_w": 810,
        "cooling_w": 584.588,
        "conversion_w": 797.086,
        "counted_w": 59840.474,
        "all_in_w": 62496,
        "unnamed_w": 62496 - 59840.474,
    }
    assert {name: float(low[name]) for name in hand} == pytest.approx(hand, rel=1e-6)
    assert low["logic_w"] + low["hbm_w"] == pytest.approx(50400)


def test_the_small_rack_by_hand_at_its_high_ends():
    """16 trays of 2 chips and 4 retimers; 4 CPUs; 16 switches of 160 lanes; 16 NICs of the chips and 2 of the CPUs.

    32 x 1,000 + 2,560 x 0.625 + 64 x 13 + 4 x 300 + 18 x 150 = 38,332; fans 15 % = 5,749.8; shelves 4.39 % of both.
    """
    found = rack_power(SMALL)
    assert found.ends("counted_w")[1] == pytest.approx(38332 * 1.15 * 1.0439, rel=1e-9)
    assert found.ends("all_in_w")[1] == pytest.approx(32 * 1000 * 2.47)
    assert np.isnan(found.memory_w)
    assert "in no source: host memory" in found.basis_reason


@pytest.mark.parametrize("name", [SMALL, LARGE, "trn2-ultraserver", "trn3-nl32x2-torus", "trn3-nl72x2-ualink"])
def test_parts_sum_to_what_is_provisioned_at_both_ends_and_in_the_middle(name):
    found, table = rack_power(name), rack_power(name).parts()
    for column in ("w_low", "w", "w_high"):
        assert np.nansum(table[column][:-1]) == pytest.approx(table[column].iloc[-1], rel=1e-12)
    assert (table.w_low <= table.w).sum() == (table.w <= table.w_high).sum() == table.w.notna().sum()
    for column in ("w_low", "w", "w_high"):
        counted = table.set_index("part")[column]
        assert counted["all, as provisioned"] > counted["what no source names"] > 0
    assert table.share[:-1].sum() == pytest.approx(1)
    assert (found.basis, found.valid) == ("extrapolated", True)


def test_what_nobody_counts_is_unknown_and_not_zero():
    torus, ualink = rack_power("trn3-nl32x2-torus"), rack_power("trn3-nl72x2-ualink")
    assert torus.switches_w == 0  # it has none
    assert np.isnan([torus.cooling_w, torus.retimers_w, ualink.switches_w]).all()
    assert "fans and pumps" in torus.basis_reason
    assert "scale-up switches" in ualink.basis_reason
    assert ualink.unnamed_w > rack_power(LARGE).unnamed_w


def test_power_a_chip_is_very_similar_in_both_racks():
    """The deep dive (L401): NL32x2 and NL72x2 are "very similar in power per chip", for the TDP is the largest part."""
    small, large = (rack_power(name) for name in (SMALL, LARGE))
    ratio = (small.counted_w / small.chips) / (large.counted_w / large.chips)
    assert 0.93 < ratio < 1.07
    for one in (small, large):
        assert (one.logic_w + one.hbm_w) / one.counted_w > 0.75


def test_a_shelf_and_fans_by_hand():
    """The worked NVL72 of InferenceX: 71,754.9 W of DC are 74,904.6 W of AC, 4.39 % more."""
    assert page.wall_w(71754.9, 0.0, 0.0439) == pytest.approx(74904.6, rel=1e-4)
    assert page.wall_w(9500.0, 1100 * 0.8**3 / 9500, 0.0) == pytest.approx(9500 + 563.2)
    assert rack_power(SMALL).parts().set_index("part").w["fans and pumps"] == pytest.approx(1777.1, rel=1e-4)


def test_values_are_fields_that_a_caller_replaces():
    base, spec, parts = rack_power(LARGE), tm.system(LARGE), facilities.parts("liquid")
    hot = rack_power(replace(spec, chip=replace(spec.chip, tdp_w=1000.0)))
    assert hot.logic_w + hot.hbm_w == pytest.approx(72000)
    slow = rack_power(replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=spec.chip.hbm_bytes_per_s / 2)))
    assert slow.hbm_w == pytest.approx(base.hbm_w / 2)
    assert slow.counted_w == pytest.approx(base.counted_w)
    aired = rack_power(LARGE, parts=facilities.parts("air"))
    assert aired.cooling_w / base.cooling_w == pytest.approx(5.93 / 2.35)
    free = rack_power(LARGE, parts=replace(parts, part_w={**parts.part_w, "switch lane": 1e-9}))
    assert free.switches_w == pytest.approx(11008e-9)
    assert base.counted_w - free.counted_w == pytest.approx(11008 * 0.46875 * 1.0235 * 1.0304)
    power = facilities.power(spec.chip)
    assert rack_power(LARGE, power=replace(power, all_in_ratio=2.0)).all_in_w == pytest.approx(72 * 850 * 2)


def test_arrays_are_their_scalars():
    spec = tm.system(LARGE)
    tdp = np.array([700.0, 850.0, 1000.0])
    many = rack_power(replace(spec, chip=replace(spec.chip, tdp_w=tdp)))
    for i, each in enumerate(tdp):
        one = rack_power(replace(spec, chip=replace(spec.chip, tdp_w=float(each))))
        for name in ("logic_w", "counted_w", "unnamed_w", "cooling_w"):
            assert getattr(many, name)[i] == pytest.approx(float(getattr(one, name)), rel=1e-12)


def test_more_parts_than_are_provisioned_for_and_unknown_watts_have_no_answer():
    spec = tm.system(LARGE)
    over = rack_power(LARGE, power=replace(facilities.power(spec.chip), all_in_ratio=1.0))
    assert over.reason == "the parts that are counted draw more than what is provisioned"
    assert np.isnan(over.counted_w)
    counted = float(rack_power(LARGE).counted_w)
    for spare, fits in ((0.5, True), (-0.5, False)):  # watts of a rack of 72 chips of 850 W
        enough = replace(facilities.power(spec.chip), all_in_ratio=(counted + spare) / (72 * 850))
        assert bool(rack_power(LARGE, power=enough).valid) is fits
    cold = rack_power(replace(spec, chip=replace(spec.chip, tdp_w=np.nan)))
    assert "no source has watts" in cold.reason


@pytest.mark.parametrize("name", ["hgx-h100", "trn1.32xlarge", "nonsense"])
def test_a_system_whose_racks_nobody_counts_is_refused(name):
    with pytest.raises(ValueError, match="system="):
        rack_power(name)


def test_comparing_racks():
    table = compare({name: rack_power(name) for name in (SMALL, LARGE)})
    assert table.groupby("of").size().tolist() == [11, 11]
    assert table.rack_kw.iloc[-1] == pytest.approx(107.1)  # 72 x 850 W x 1.75
    assert table.chip_w.iloc[-1] == pytest.approx(850 * 1.75)
