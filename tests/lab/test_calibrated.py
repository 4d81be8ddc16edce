"""The distribution that a calibration begins with, and how far own rows take the error of others."""

import numpy as np
import pandas as pd
import pytest

from trnlab import calibrated, constants_prior
from trnlab.pages import RESIDUALS
from trnmodel.evidence.prior import FIT, LEFT, LIKE, NOISE, PAGE, PARTS, PRIOR, RANGES, shipped

ERRORS = ["error_without", "error_after", "error_floor"]


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(calibrated.CALIBRATED)


def of(table, rows, number, part=calibrated.ALL):
    return table[(table.rows == rows) & (table.number == number) & (table.part == part)].iloc[0]


def test_errors_without_own_rows_are_those_of_the_pages(table):
    """Both commands ask the same pages: a change of the data that moves one table has to move the other."""
    pages = pd.read_csv(RESIDUALS)
    pages = pages[(pages.reading == "stated") & pages.part.replace(LIKE).isin(PARTS)]
    for part in ("prefill", "throughput"):
        median = pages[pages.part == part].error.abs().median()
        one = of(table, calibrated.PAGE, 1, part)
        assert one.error_without == pytest.approx(median, abs=0.03), part


def test_errors_fall_with_own_rows_towards_the_floor(table):
    every = [of(table, calibrated.PAGE, number) for number in calibrated.OTHERS]
    assert all(one.error_after < one.error_without for one in every)
    large = [of(table, calibrated.LARGE, number) for number in calibrated.OTHERS]
    assert [one.error_after for one in large] == sorted((one.error_after for one in large), reverse=True)
    assert (table[table.cases >= 30].error_floor < table[table.cases >= 30].error_after).all()


def test_targets_of_the_issue(table):
    """First tokens, served throughput and load are within their targets; decode, at 9.4 %, is not within 5."""
    reached = {part: of(table, calibrated.SAME, 1, part).error_after for part in ("prefill", "throughput", "load")}
    assert reached["prefill"] < 0.14
    assert reached["throughput"] < 0.22
    assert reached["load"] < 0.18
    assert of(table, calibrated.SAME, 1, "decode").error_after < of(table, calibrated.SAME, 1, "decode").error_without


def test_bands_hold_on_pages_that_nothing_has_seen(table):
    for number in calibrated.OTHERS:
        assert 0.87 <= of(table, calibrated.PAGE, number).inside <= 0.93


def test_pages_are_dealt_evenly():
    pages = sorted({*pd.read_csv(RESIDUALS).source})
    fold = calibrated.folds(pages)
    sizes = np.bincount(list(fold.values()))
    assert sizes.max() - sizes.min() <= 1
    assert fold == calibrated.folds(reversed(pages))


def test_the_prior_is_complete():
    rows = pd.read_csv(PRIOR, keep_default_na=False)
    fitted = rows[rows.level == FIT]
    assert {"neuron-stack", "vllm-neuron-2026"} <= set(fitted.owner)
    assert set(rows[rows.level == NOISE].quantity) == set(rows[rows.level == LEFT].quantity) == set(PARTS)
    assert shipped().variance(PAGE, RANGES) > 1  # constants differ between pages by more than their ranges say


def test_a_likelihood_has_the_slopes_that_it_says():
    order = np.random.default_rng(0)
    many = len(constants_prior.LEVELS)
    terms = np.array([[np.outer(x, x) for x in order.standard_normal((2 + many, 4))] for _ in range(3)])
    parts = order.integers(0, len(PARTS), (3, 4))
    clusters = constants_prior.Alike(order.standard_normal((3, 4)), parts, np.zeros((3, 4)), terms)
    at = np.log(order.uniform(0.2, 2.0, 3 + many + len(PARTS)))

    def value(logs):
        return clusters.unlikely(constants_prior.Spreads.of(logs))[0]

    steps = 1e-6 * np.eye(at.size)
    slopes = [(value(at + step) - value(at - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(clusters.unlikely(constants_prior.Spreads.of(at))[1], slopes, rtol=1e-4, atol=1e-6)
