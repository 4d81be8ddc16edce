"""Limits and directions of lost time: what never fails loses nothing, and more of anything bad never helps."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.formulas import reliability, spares
from trnmodel.reliability.goodput import LOSSES
from trnmodel.reliability.redundancy import guards, rack_alternatives

SYSTEMS = ["trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn2-ultraserver", "gb200-nvl72"]
RATES = ["interruptions_per_chip_s", "lane_failures_per_s", "cable_failures_per_s", "switch_failures_per_s"]
ASKED = {"checkpoint_bytes": 4e12}
FLEET = tm.fleet()
NOTHING = replace(FLEET, id="nothing", ranges={}, **dict.fromkeys(RATES, 0.0))
SWAPS = pytest.mark.parametrize("swap", ["hot", "drain"])
EVERY = pytest.mark.parametrize("system", SYSTEMS)


def total(job):
    return sum(getattr(job, f"{part}_lost") for part in LOSSES) + job.goodput


@EVERY
@SWAPS
def test_parts_sum_to_the_whole(system, swap):
    chips = np.array([1, 16, 1000, 16_384, 200_000])[:, None]
    job = tm.goodput(system, chips, swap=swap, checkpoint_bytes=np.array([0, 1e9, 4e12, 1e16]), step_spread=0.02)
    np.testing.assert_allclose(total(job), 1, rtol=1e-12)
    for part in LOSSES:
        assert np.all(getattr(job, f"{part}_lost") >= 0)


@EVERY
@SWAPS
def test_where_nothing_fails_nothing_is_lost(system, swap):
    job = tm.goodput(system, 16_384, fleet=NOTHING, swap=swap, **ASKED)
    assert job.goodput == 1
    assert job.spare_chips == 0
    assert np.isinf(job.mtbf_s)
    assert np.isinf(job.interval_s)


@EVERY
def test_a_checkpoint_that_takes_no_time_leaves_restarts_and_what_is_slowed(system):
    job = tm.goodput(system, 16_384, fleet=replace(FLEET, id="fast", checkpoint_bytes_per_s=np.inf), **ASKED)
    assert (job.write_s, job.interval_s, job.writing_lost, job.redone_lost) == (0, 0, 0, 0)
    assert job.useful_share == pytest.approx(np.exp(-FLEET.restart_s / float(job.mtbf_s)))


@EVERY
@SWAPS
def test_one_chip_loses_little_and_more_chips_more(system, swap):
    job = tm.goodput(system, np.array([1, 64, 1024, 4096, 16_384, 65_536]), swap=swap, **ASKED)
    assert np.all(np.diff(job.useful_share) <= 0)
    assert np.all(np.diff(job.mtbf_s) <= 0)
    assert job.useful_share[0] > 0.98


@EVERY
@SWAPS
@pytest.mark.parametrize("name", [*RATES, "restart_s", "swap_s", "repair_s", "exposed_share", "repaired_share"])
def test_more_failures_and_longer_times_never_help(system, swap, name):
    """Spares are whole units, so what stands by may be one unit more or less than needed: they are given here."""
    values = getattr(FLEET, name) * np.linspace(0, 1, 9) if name.endswith("share") else None
    values = getattr(FLEET, name) * np.geomspace(1e-3, 30, 12) if values is None else values
    job = tm.goodput(system, 8192, swap=swap, spare_chips=2048, fleet=replace(FLEET, **{name: values}), **ASKED)
    assert np.all(np.diff(np.broadcast_to(job.goodput, values.shape)) <= 1e-12)


def test_no_random_job_gains_from_more_failures():
    """Random racks, sizes, fleets and checkpoints: each rate and each time grows by a random factor."""
    rng = np.random.default_rng(7)
    grow = [*RATES, "restart_s", "swap_s", "repair_s"]
    racks = [one for name in SYSTEMS for one in rack_alternatives(name).values()]
    for _ in range(150):
        rack, swap = racks[rng.integers(len(racks))], ("hot", "drain")[rng.integers(2)]
        worse = {name: getattr(FLEET, name) * 10 ** rng.uniform(-2, 1.5) for name in grow}
        at = replace(FLEET, ranges={}, exposed_share=rng.uniform(), repaired_share=rng.uniform(), **worse)
        ask = {"checkpoint_bytes": 10 ** rng.uniform(9, 14), "spare_chips": 10_000, "swap": swap}
        chips = float(rng.integers(1, 100_000))
        before = tm.goodput(rack, chips, fleet=at, **ask)
        for name in grow:
            more = replace(at, **{name: getattr(at, name) * 10 ** rng.uniform(0, 1)})
            after = tm.goodput(rack, chips, fleet=more, **ask)
            assert after.goodput <= before.goodput * (1 + 1e-12), (rack.id, swap, name)


@SWAPS
def test_larger_checkpoints_and_slower_storage_never_help(swap):
    sizes = np.geomspace(1e9, 1e16, 20)
    job = tm.goodput("trn3-nl72x2-pcie160", 16_384, checkpoint_bytes=sizes, swap=swap)
    assert np.all(np.diff(job.goodput) < 0)
    fast = replace(FLEET, checkpoint_bytes_per_s=np.geomspace(1e9, 1e15, 20))
    assert np.all(np.diff(tm.goodput("trn3-nl72x2-pcie160", 16_384, fleet=fast, swap=swap, **ASKED).goodput) > 0)


def test_no_interval_beats_the_one_that_is_chosen():
    best = tm.goodput("trn3-nl72x2-pcie160", 16_384, **ASKED)
    others = tm.goodput(
        "trn3-nl72x2-pcie160", 16_384, interval_s=float(best.interval_s) * np.geomspace(0.1, 10, 41), **ASKED
    )
    assert np.all(others.useful_share <= best.useful_share * (1 + 1e-12))


def test_more_spare_switches_never_lose_more():
    four = tm.system("trn3-nl32x2-pcie160")
    found = [tm.goodput(four.with_switch_trays(n), 16_384, checkpoint_bytes=0.0) for n in (4, 5)]
    assert [guards(job.system)[0].spares for job in found] == [0, 2]
    assert np.all(np.diff([float(job.slowed_lost) for job in found]) < 0)
    assert np.all(np.diff([float(job.mtbf_s) for job in found]) > 0)


@pytest.mark.parametrize("scale", [2.0**-8, 2.0**11])
def test_another_unit_of_time_gives_the_same_shares(scale):
    """Seconds or minutes: rates divided, times and sizes over rates multiplied."""
    slower = {name: getattr(FLEET, name) / scale for name in [*RATES, "checkpoint_bytes_per_s"]}
    slower |= {name: getattr(FLEET, name) * scale for name in ("restart_s", "swap_s", "repair_s")}
    one, other = (
        tm.goodput("trn3-nl72x2-pcie160", 16_384, fleet=fleet, **ASKED)
        for fleet in (FLEET, replace(FLEET, ranges={}, **slower))
    )
    for part in LOSSES:
        assert getattr(other, f"{part}_lost") == pytest.approx(getattr(one, f"{part}_lost"), rel=1e-9, abs=1e-15)
    assert other.interval_s == pytest.approx(one.interval_s * scale, rel=1e-9)


@SWAPS
def test_an_array_is_its_points(swap):
    chips, rates = np.array([100.0, 5000.0, 30_000.0])[:, None], FLEET.interruptions_per_chip_s * np.array([0.1, 1, 9])
    many = tm.goodput(
        "trn3-nl72x2-pcie160", chips, fleet=replace(FLEET, interruptions_per_chip_s=rates), swap=swap, **ASKED
    )
    for i, n in enumerate(chips.ravel()):
        for j, rate in enumerate(rates):
            one = tm.goodput(
                "trn3-nl72x2-pcie160", n, fleet=replace(FLEET, interruptions_per_chip_s=rate), swap=swap, **ASKED
            )
            assert many.goodput[i, j] == pytest.approx(float(one.goodput), rel=1e-13)
            assert np.broadcast_to(many.spare_chips, many.goodput.shape)[i, j] == one.spare_chips


def test_limits_of_the_formulas():
    for interval in (reliability.young_interval_s, reliability.daly_interval_s, reliability.best_interval_s):
        assert np.isinf(interval(20.0, 0.0))
        assert interval(0.0, 1e-4) == 0
    assert reliability.best_interval_s(1e9, 1e-3) == pytest.approx(1e3)  # 1 / rate
    assert reliability.best_interval_s(0.0, 0.0) == 0
    assert reliability.time_shares(np.inf, 20.0, 100.0, 0.0) == (1, 0, 0, 0)
    assert reliability.time_shares(1e9, 20.0, 100.0, 1.0)[0] == 0
    assert spares.slowed_speed(0.0, 1.0) == 0
    assert spares.more_out(4, 4, 1.0) == 0
    assert spares.unspared_per_s(5, 0, 1e-9, 1.0) == pytest.approx(5e-9)
