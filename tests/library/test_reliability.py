"""Intervals, ETTR and times between failures against the worked figures of others, and against simulated failures."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import optimize, special, stats

import trnmodel as tm
from trnmodel.formulas import reliability, spares

HOUR, DAY = 3600.0, 86_400.0
# write s, MTBF h, Young, Daly's first order, his higher order, exact: printed to two digits
PRINTED = [
    (20, 3.0931, 667.39, 647.39, 654.12, 654.12),
    (60, 2.34, 1005.43, 945.43, 965.82, 965.83),
    (28, 4.1379, 913.35, 885.35, 894.78, 894.78),
    (300, 3.0931, 2584.78, 2284.78, 2388.65, 2388.77),
]


@pytest.mark.parametrize(("write", "hours", "young", "first", "higher", "exact"), PRINTED)
def test_intervals_are_those_printed(write, hours, young, first, higher, exact):
    rate = 1 / (hours * HOUR)
    assert reliability.young_interval_s(write, rate) == pytest.approx(young, abs=0.006)
    assert reliability.daly_interval_s(write, rate, "first") == pytest.approx(first, abs=0.006)
    assert reliability.daly_interval_s(write, rate) == pytest.approx(higher, abs=0.006)
    assert reliability.best_interval_s(write, rate) == pytest.approx(exact, abs=0.006)


def test_a_write_is_taken_off_and_not_added():
    """The docstring of mlsysim has sqrt(2 d M) + d; sqrt(2 x 300 x 11,135.16) = 2,584.78, less 300 is 2,284.78."""
    assert reliability.daly_interval_s(300, 1 / 11_135.16, "first") == pytest.approx(2_584.78 - 300, abs=0.01)


def test_the_exact_interval_is_the_least_by_search():
    for write, mtbf in [(1e-3, 1e7), (20, 11_000), (4_000, 9_000), (1e4, 1e3)]:

        def lost(log_interval, write=write, mtbf=mtbf):
            return -reliability.time_shares(np.exp(log_interval), write, 0.0, 1 / mtbf)[0]

        found = optimize.minimize_scalar(
            lost, bounds=(np.log(1e-3), np.log(1e8)), method="bounded", options={"xatol": 1e-10}
        )
        assert reliability.best_interval_s(write, 1 / mtbf) == pytest.approx(np.exp(found.x), rel=1e-5)


def test_the_exact_interval_keeps_its_digits_where_lambert_s_w_loses_them():
    """1 + W(-exp(-1 - x)) solves (1 - y) exp(y) = exp(-x); for small x, y = sqrt(2x) - 2x/3 + x sqrt(2x)/18 - ..."""
    x = np.geomspace(1e-16, 1e-4, 60)
    tau = reliability.best_interval_s(x, 1.0)
    p = np.sqrt(2 * x)
    np.testing.assert_allclose(tau, p - 2 * x / 3 + x * p / 18, rtol=1e-7)
    y = reliability.best_interval_s(np.geomspace(1e-7, 10, 200), 1.0)
    np.testing.assert_allclose(y + np.log1p(-y), -np.geomspace(1e-7, 10, 200), rtol=1e-6)
    either = reliability.best_interval_s(np.array([0.999, 1.001]) * 5.0e-5, 1.0)  # both sides of the series' end
    assert either[1] / either[0] == pytest.approx(np.sqrt(1.001 / 0.999), rel=1e-5)
    assert reliability.best_interval_s(2.0, 1.0) == pytest.approx(1 + special.lambertw(-np.exp(-3.0)).real, rel=1e-14)


def test_the_time_of_a_segment_is_daly_s():
    """Wall over useful is M exp(R/M) (exp((tau + d)/M) - 1) / tau."""
    tau, d, restart, mtbf = 900.0, 100.0, 250.0, 8_000.0
    wall = mtbf * np.exp(restart / mtbf) * (np.exp((tau + d) / mtbf) - 1) / tau
    shares = reliability.time_shares(tau, d, restart, 1 / mtbf)
    assert 1 / shares[0] == pytest.approx(wall, rel=1e-12)
    assert sum(shares) == pytest.approx(1, abs=1e-15)
    assert shares[1] / shares[0] == pytest.approx(d / tau)


def test_shares_of_time_are_those_of_simulated_failures():
    """A job that is thrown failures by a clock: its time goes where the formula says, within 2 %."""
    tau, d, restart, mtbf = 700.0, 80.0, 300.0, 2_000.0
    rng = np.random.default_rng(7)
    at = {"useful": 0.0, "writing": 0.0, "restarting": 0.0, "redone": 0.0}
    for left in rng.exponential(mtbf, 40_000):
        restarted = min(restart, left) if at["useful"] else 0.0
        at["restarting"] += restarted
        whole, rest = divmod(left - restarted, tau + d)
        at["useful"] += whole * tau
        at["writing"] += whole * d
        at["redone"] += rest
    total = sum(at.values())
    for share, expected in zip(reliability.time_shares(tau, d, restart, 1 / mtbf), at.values(), strict=True):
        assert share == pytest.approx(expected / total, rel=0.02)


# nodes, minutes to start, minutes between checkpoints, seconds of a write; at 6.5 failures in 1,000 node-days
@pytest.mark.parametrize(
    ("nodes", "start", "interval", "write", "printed"),
    [(2048, 5, 15, 20, 0.8652), (2048, 5, 60, 20, 0.6727), (256, 5, 60, 60, 0.9438)],
)
def test_ettr_is_the_printed_one(nodes, start, interval, write, printed):
    found = reliability.ettr(interval * 60.0, write, start * 60.0, nodes * 6.5e-3 / DAY)
    assert found == pytest.approx(printed, abs=6e-5)


def test_ettr_ends_at_zero_where_the_closed_form_goes_negative():
    assert reliability.ettr(1e6, 20.0, 300.0, 1e-3) == 0


def test_llama_3_was_interrupted_every_three_hours():
    """54 x 24 / 419 = 3.093 h; 16,384 x 1,296 / 419 = 50,677 GPU hours; x 8 / 1,000 days: 3.789 per 1,000 node-days."""
    fleet = tm.fleet("llama-3-h100")
    assert reliability.mtbf_s((16_384,), (fleet.interruptions_per_chip_s,)) / HOUR == pytest.approx(54 * 24 / 419)
    assert 1 / fleet.interruptions_per_chip_s / HOUR == pytest.approx(50_677, abs=0.5)
    assert fleet.interruptions_per_chip_s * 8_000 * DAY == pytest.approx(3.789, abs=5e-4)
    assert sum(fleet.interruptions.values()) == 419


def test_shares_of_causes_are_counted_and_not_the_printed_percentages():
    """148 / 419 = 35.3 %, where the table prints 30.1; chips 268 / 419 = 64.0 %, where 58.7 is quoted."""
    fleet = tm.fleet("llama-3-h100")
    assert fleet.interruptions["chip: faulty GPU"] / 419 == pytest.approx(0.353, abs=5e-4)
    assert fleet.causes["chip"] == pytest.approx(268 / 419)
    assert sum(fleet.causes.values()) == pytest.approx(1)


def test_rsc_1_projects_1_8_hours_at_16_384_and_not_the_small_jobs():
    """24 / (6.5e-3 x 16,384 / 8) = 1.803 h, at 131,072 0.2254 h; at 1,024 28.8 h, where 7.9 h were measured."""
    rate = tm.fleet("rsc-1-a100").interruptions_per_chip_s
    hours = reliability.mtbf_s((np.array([16_384, 131_072, 1024]),), (rate,)) / HOUR
    np.testing.assert_allclose(hours, [1.803, 0.2254, 28.85], rtol=5e-4)


def test_a_node_of_mlsysim_and_its_checkpoint():
    """8 / 50,000 + 2 / 150,000 + 2 / 100,000 h: 5,172.41 h; 1,250 of them 4.138 h; 175e9 x 16 B at 100 GB/s is 28 s."""
    hours = np.array([50_000.0, 150_000.0, 100_000.0])
    node = reliability.mtbf_s((8, 2, 2), tuple(1 / (hours * HOUR)))
    assert node / HOUR == pytest.approx(5172.41, abs=0.005)
    job = reliability.mtbf_s((1250,), (1 / node,))
    assert job / HOUR == pytest.approx(4.138, abs=5e-4)
    assert reliability.young_interval_s(175e9 * 16 / 100e9, 1 / job) == pytest.approx(913.3, abs=0.06)


def test_spares_are_scipy_s_quantile():
    mu, ready = np.array([0.0, 0.01, 1.0, 15.0, 400.0, 1e5])[:, None], np.array([0.5, 0.9, 0.99, 0.9999])
    np.testing.assert_array_equal(spares.spares_needed(mu, ready), np.where(mu > 0, stats.poisson.ppf(ready, mu), 0))
    np.testing.assert_allclose(spares.ready_share(mu, 20), stats.poisson.cdf(20, mu), rtol=1e-10, atol=1e-30)


def test_spares_of_very_many_are_those_of_the_normal_law():
    """3.09 standard deviations of 1,000 and of 1e15 are 3,090.2 and 3.0902e15, whatever a double can tell apart."""
    mu = np.array([1e6, 1e30])
    np.testing.assert_allclose(spares.spares_needed(mu, 0.999) - mu, [3091, 3.0902323e15], rtol=1e-2)
    near = np.array([0.999999, 1.000001]) * spares.MANY
    np.testing.assert_allclose(spares.spares_needed(near, 0.9999), stats.poisson.ppf(0.9999, near), atol=10)


def test_k_of_n_is_scipy_s_binomial():
    n, s, q = np.array([1, 3, 10, 144])[:, None], np.array([0, 1, 2, 8]), 0.03
    np.testing.assert_allclose(spares.more_out(n, s, q), stats.binom.sf(s, n, q), rtol=1e-9, atol=1e-300)


def test_failures_find_no_spare_as_often_as_simulated():
    """Ten parts, two to spare: failures that find two out or more, by a clock of exponential failures and repairs.

    There a part that is out cannot fail, which is at most the share of a repair in the time between failures less.
    """
    n, s, rate, repair = 10, 2, 1 / 1_000.0, 60.0
    rng, out, now, worn = np.random.default_rng(3), 0, 0.0, 0
    for _ in range(200_000):
        fails, mends = (n - out) * rate, out / repair
        now += rng.exponential(1 / (fails + mends))
        if rng.random() < fails / (fails + mends):
            worn, out = worn + (out >= s), out + 1
        else:
            out -= 1
    assert 0.95 < spares.unspared_per_s(n, s, rate, repair) / (worn / now) < 1.05 * (1 + s * rate * repair)


@pytest.mark.parametrize(("n", "largest"), [(1, 0.0), (2, 0.5642), (10, 1.5388), (100, 2.5076), (1000, 3.2414)])
def test_the_slowest_of_many_is_the_tabled_largest_of_a_normal_sample(n, largest):
    """Tabled means of the largest of n standard normals (Harter 1961)."""
    assert spares.slowest_of(n, 1.0) - 1 == pytest.approx(largest, rel=0.05, abs=1e-12)


SPOILED = {
    "write_s": lambda: reliability.young_interval_s(-1.0, 1e-4),
    "order": lambda: reliability.daly_interval_s(1.0, 1e-4, "second"),
    "counts": lambda: reliability.mtbf_s((1, 2), (1e-4,)),
    "out": lambda: spares.more_out(3, 1, 1.5),
    "ready": lambda: spares.spares_needed(1.0, 1.0),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_cannot_be_is_refused(name):
    with pytest.raises(ValueError, match=name):
        SPOILED[name]()


def test_the_series_of_lambert_s_w_is_exact():
    """Newton's method on w exp(w) = -exp(-1 - x), to forty digits, where the series is cut off."""
    with localcontext() as context:
        context.prec = 40
        for write in (1.2e-5, 4.9e-5):  # p = (2 x)^0.5 = 0.0049, 0.0099
            x = Decimal(write)
            w, aim = -1 + (2 * x).sqrt(), -(-1 - x).exp()
            for _ in range(20):
                w -= (w * w.exp() - aim) / (w.exp() * (1 + w))
            assert reliability.best_interval_s(write, 1.0) == pytest.approx(float(1 + w), rel=1e-13)


@pytest.mark.parametrize(
    ("write", "rate", "interval"), [(30.0, 0.1, 10), (20.0, 0.1, 10), (5.0, 0.1, 10 + 5 / 3 + 2.5 / 9 - 5)]
)
def test_daly_s_interval_of_long_writes(write, rate, interval):
    """From twice the time between failures on it is that time. Below: 10 x (1 + (1/4)^0.5 / 3 + (1/4) / 9) less 5."""
    assert reliability.daly_interval_s(write, rate) == pytest.approx(interval)


def test_ettr_where_writes_take_nothing():
    assert reliability.ettr(100.0, 0.0, 0.0, 0.0) == reliability.ettr(0.0, 0.0, 0.0, 0.0) == 1
    assert reliability.ettr(2.0, 0.5, 0.0, 0.0) == 1 / 1.25


@pytest.mark.parametrize(
    ("parts", "kept", "times"),
    # out 0.25 / 1.25 = 0.2 of the time; 4 fail 4e-3 times a second, with two or more of three others out, one, or none
    [
        (4, 2, 4e-3 * (3 * 0.2**2 * 0.8 + 0.2**3)),
        (4, 1, 4e-3 * (1 - 0.8**3)),
        (4, 0, 4e-3),
        (4, 3, 4e-3 * 0.2**3),
        (4, 4, 0),
        (1, 0, 1e-3),
        (0, 0, 0),
    ],
)
def test_how_often_a_failure_finds_no_spare_by_hand(parts, kept, times):
    assert spares.unspared_per_s(parts, kept, 1e-3, 250.0) == pytest.approx(times, rel=1e-12)


def test_links_that_nobody_waits_for_may_stop():
    assert spares.slowed_speed(0.0, 0.0) == 1
    assert spares.slowed_speed(0.0, 0.5) == 0


def test_the_interval_where_the_series_just_holds():
    """1 + W = u with u + ln(1 - u) = -x, by Newton in 50 digits; x = 4.8e-5 is p = 0.0098, with x = 5.1e-5 beyond."""
    for x, digits in ((4.8e-5, 1e-13), (5.1e-5, 1e-11)):
        with localcontext(prec=50):
            u = (2 * Decimal(x)).sqrt()
            for _ in range(8):
                u += (u + (1 - u).ln() + Decimal(x)) * (1 - u) / u
        assert reliability.best_interval_s(x / 1e-6, 1e-6) == pytest.approx(float(u) / 1e-6, rel=digits, abs=0)
