"""Annuities at their limits, against exact arithmetic, and costs that move the way they must."""

from fractions import Fraction

import numpy as np
import pytest

from trnmodel.formulas import tco


def exact(price, rate, periods, residual):
    """The printed equation in fractions, at a rate that is not 0."""
    grown = (1 + rate) ** periods
    return float(price * rate / (1 - 1 / grown) - residual * rate / (grown - 1))


@pytest.mark.parametrize("rate", ["1e-15", "1e-12", "1e-9", "1e-6", "1e-4", "0.01", "0.5", "3"])
@pytest.mark.parametrize("periods", [1, 2, 18, 60, 144])
def test_recovery_is_exact_near_a_rate_of_nothing_too(rate, periods):
    r = Fraction(rate)
    wanted = exact(Fraction(8000), r, periods, Fraction(700))
    assert tco.capital_recovery_usd(8000.0, float(r), periods, 700.0) == pytest.approx(wanted, rel=4e-14)


def test_limits_of_recovery():
    assert tco.capital_recovery_usd(120.0, 0.0, 12, 24.0) == 8.0  # a straight line
    assert tco.capital_recovery_usd(100.0, 0.01, 1e6, 50.0) == pytest.approx(1.0, rel=1e-15)  # interest alone, for ever
    assert tco.capital_recovery_usd(100.0, 0.07, 1, 0.0) == pytest.approx(
        107.0, rel=1e-15
    )  # one period: all with interest
    assert tco.capital_recovery_usd(100.0, 0.07, 30, 100.0) == pytest.approx(7.0)  # what keeps its worth costs interest


def test_payments_pay_the_price_back():
    """A ledger: each payment pays the interest of what is owed, and the rest is paid off, down to the residual."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        price, rate, periods, left = (
            rng.uniform(1e3, 1e5),
            rng.uniform(0, 0.05),
            int(rng.integers(1, 80)),
            rng.uniform(0, 0.5),
        )
        payment = float(tco.capital_recovery_usd(price, rate, periods, left * price))
        owed = price
        for _ in range(periods):
            owed = owed * (1 + rate) - payment
        assert owed == pytest.approx(left * price, rel=1e-9, abs=1e-6)
        assert tco.present_usd(payment, rate, periods, left) == pytest.approx(price, rel=1e-12)


def test_costs_move_the_way_they_must():
    rng = np.random.default_rng(2)
    price, rate, periods = rng.uniform(1, 1e5, 500), rng.uniform(0, 0.1, 500), rng.uniform(2, 200, 500)
    base = tco.capital_recovery_usd(price, rate, periods)
    assert np.all(base > price / periods * (1 - 1e-12))
    assert np.all(base > price * rate * (1 - 1e-12))
    assert np.all(tco.capital_recovery_usd(price, rate + 0.01, periods) > base)
    assert np.all(tco.capital_recovery_usd(price, rate, periods + 1) < base)
    assert np.all(tco.capital_recovery_usd(price, rate, periods, price / 3) < base)
    np.testing.assert_allclose(tco.capital_recovery_usd(7 * price, rate, periods), 7 * base, rtol=1e-14)
    shares = rng.uniform(0.1, 1, (2, 500))
    assert np.all(tco.useful_usd_per_h(base, tuple(shares)) >= base)
    speed = rng.uniform(1, 100, 500)
    assert np.all(tco.usd_per_mtoken(base, 2 * speed) == tco.usd_per_mtoken(base, speed) / 2)


def test_scalars_and_arrays_are_one():
    rates = np.array([0.0, 1e-9, 0.01, 0.2])
    each = [float(tco.capital_recovery_usd(5e3, rate, 48, 500.0)) for rate in rates]
    assert tco.capital_recovery_usd(5e3, rates, 48, 500.0).tolist() == each


def test_late_is_lost_and_early_is_gained():
    assert tco.late_share(0.14, 0.0, 1.0) == pytest.approx(1 - 10**-0.14)
    assert tco.late_share(0.0, np.log(1.08), 2.0) == pytest.approx(1 - 1.08**-2)
    assert tco.late_share(0.14, 0.08, -0.5) < 0 == tco.late_share(0.14, 0.08, 0.0)
    assert tco.late_share(0.0, 0.0, 5.0) == 0


def test_a_rebate_is_never_below_nothing():
    price = np.linspace(0, 300, 50)
    found = tco.rebate_share(1e6, price, 142.82, 6.5e9)
    assert np.all(found >= 0)
    assert np.all(np.diff(found) >= 0)
    assert np.all(found[price <= 142.82] == 0)
