"""How far rows of one page lie apart: the file is that of the code, and medians by hand."""

import pandas as pd
import pytest

from trnlab import row_differences as lab
from trnmodel.catalog.row_differences import PARTS, ROW_DIFFERENCES, SAME, row_noise


def test_the_file_is_that_of_the_code():
    """Else run `python -m trnlab.row_differences`."""
    pd.testing.assert_frame_equal(lab.row_differences(), pd.read_csv(ROW_DIFFERENCES), rtol=1e-3)


def test_each_page_has_the_same_weight():
    pairs = pd.DataFrame({"source": ["a"] * 98 + ["b", "c"], "apart": [0.9] * 98 + [0.1, 0.2]})
    assert lab._median_by_page(pairs) == pytest.approx(0.2)


def test_a_repeat_tells_most():
    for part in PARTS:
        noises = [row_noise(part, same) for same in SAME]
        assert min(noises) == noises[0] > 0
    with pytest.raises(ValueError, match="part='power': allowed are decode, prefill, throughput"):
        row_noise("power", "point")
