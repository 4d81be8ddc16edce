"""The fitted kernels of engines for all-reduce are as good as the page says."""

import numpy as np
import pytest

from trnlab import comparators
from trnmodel.evidence.fit import cases, log_errors
from trnmodel.evidence.rows import COLLECTIVES


def test_kernels_are_as_good_as_the_page_says():
    """Median error with the device left out; H100, whose starts and in-switch sums the form lacks, by itself."""
    found = comparators.shipped("gpu-all-reduce")
    left = found.chip_left_out_error.abs()
    assert found.error.abs().median() < 0.08
    assert left.median() < 0.115
    by_chip = left.groupby(found["where"]).median()
    assert by_chip["hgx-h100"] == pytest.approx(0.37, abs=0.02)
    assert by_chip.drop("hgx-h100").max() < 0.10
    now = np.expm1(log_errors(cases(COLLECTIVES, "gpu-all-reduce")))
    assert found.error.to_numpy() == pytest.approx(now, abs=1e-4)
