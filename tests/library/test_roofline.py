"""Roofline: printed peaks, limits, properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnmodel.formulas import roofline

positive = st.floats(min_value=1e-3, max_value=1e18, allow_nan=False)
share = st.just(0.0) | st.floats(1e-30, 1)


@pytest.mark.parametrize(
    ("peak", "bandwidth", "expected"),
    [
        # arithmetic on printed figures: 667 / 2.9 = 230; 2517 / 4.9 = 513.67; 210 / 0.82 = 256.0976
        (667e12, 2.9e12, 230.0),
        (2517e12, 4.9e12, 513.6735),
        (210e12, 0.82e12, 256.0976),
    ],
)
def test_ridge_points_of_printed_peaks(peak, bandwidth, expected):
    assert roofline.ridge_point_flop_per_byte(peak, bandwidth) == pytest.approx(expected, rel=1e-6)


def test_limits():
    assert roofline.attainable_flop_per_s(0.0, 667e12, 2.9e12) == 0
    assert roofline.attainable_flop_per_s(1e30, 667e12, 2.9e12) == 667e12
    assert roofline.attainable_flop_per_s(230.0, 667e12, 2.9e12) == pytest.approx(667e12)
    assert roofline.time_s(0.0, 2.9e12, 667e12, 2.9e12, 1.0) == 1.0
    assert roofline.time_s(667e12, 0.0, 667e12, 2.9e12, 0.0) == 1.0


@given(positive, positive, positive, positive, share)
def test_bounds_bracket_every_overlap(work, moved, peak, bandwidth, overlap):
    low, mid, high = (roofline.time_s(work, moved, peak, bandwidth, o) for o in (1.0, overlap, 0.0))
    assert low * (1 - 1e-12) <= mid <= high * (1 + 1e-12)
    assert high <= 2 * low * (1 + 1e-12)


@given(positive, positive, positive, positive, share)
def test_faster_hardware_is_never_slower(work, moved, peak, bandwidth, overlap):
    base = roofline.time_s(work, moved, peak, bandwidth, overlap)
    assert roofline.time_s(work, moved, 2 * peak, bandwidth, overlap) <= base * (1 + 1e-12)
    assert roofline.time_s(work, moved, peak, 2 * bandwidth, overlap) <= base * (1 + 1e-12)


@given(positive, positive, positive)
def test_time_and_rate_tell_the_same_story(work, peak, bandwidth):
    intensity = 7.0
    rate = roofline.attainable_flop_per_s(intensity, peak, bandwidth)
    assert work / rate == pytest.approx(float(roofline.time_s(work, work / intensity, peak, bandwidth, 1.0)))


def test_scalar_equals_array():
    intensity = np.geomspace(1, 1e4, 50)
    together = roofline.attainable_flop_per_s(intensity, 667e12, 2.9e12)
    assert together.tolist() == [float(roofline.attainable_flop_per_s(i, 667e12, 2.9e12)) for i in intensity]


def test_one_ceiling_is_the_plain_roofline_and_more_never_raise_it():
    intensity = np.geomspace(1, 1e4, 50)
    one = roofline.ceilings_flop_per_s(intensity[:, None], 667e12, [2.9e12])
    two = roofline.ceilings_flop_per_s(np.stack([intensity, intensity / 2], -1), 667e12, [2.9e12, 3.5e12])
    np.testing.assert_array_equal(one, roofline.attainable_flop_per_s(intensity, 667e12, 2.9e12))
    assert (two <= one).all()
