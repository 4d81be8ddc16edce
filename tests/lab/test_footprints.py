"""Rows of a footprint as rows of a rank's whole memory."""

import numpy as np
import pytest

from trnlab import accuracy, footprints
from trnmodel.bands import near


@pytest.fixture(scope="module")
def rows():
    return accuracy.left_out_rows(accuracy.SOURCE)


def test_no_row_is_left_out(rows):
    printed, shares = rows[rows.part == footprints.FOOTPRINT], footprints.whole(rows)
    assert len(shares) == len(printed) == 22  # eleven, each as its page states it and as a stranger reads it
    assert set(shares.group) == set(shares.part) == {footprints.WHOLE}
    sums = printed.meaning.isin(footprints.SUMS)
    np.testing.assert_array_equal(shares.log_error[sums], printed.log_error[sums])
    assert (shares.log_error.abs() <= printed.log_error.abs() + 1e-12).all()


def test_buffers_off_by_half_are_a_small_share_of_a_rank(rows):
    """126 MiB for 299 (the middle of two ranks): 173 of 5,561 + 173 MiB are 3 %."""
    table = footprints.whole(rows)
    one = table[(table.meaning == "memory:collective") & table.informs].iloc[0]
    assert one.log_error == pytest.approx(-np.log(1 + 173 / 5561), rel=1e-2)


def test_the_width_of_the_whole_is_less_than_that_of_kinds():
    for kind, chip, stack in (
        ("dense", "inferentia2", "optimum-neuron-2025"),
        ("expert", "trainium2", "vllm-neuron-2026"),
    ):
        kinds, whole = (near(part, kind, chip, stack) for part in ("memory", footprints.WHOLE))
        assert whole.width.scale * whole.width.width < kinds.width.scale * kinds.width.width
        assert whole.width.cases == kinds.width.cases == 11
