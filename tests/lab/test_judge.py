"""What measured kernels and collectives are used for."""

import pandas as pd
import pytest

from trnlab import collective_fits, kernels
from trnmodel.evidence.score import excluded, shipped


@pytest.fixture(scope="module")
def machines():
    """Kernels and collectives as shipped, judged."""
    return pd.concat([shipped("kernel"), shipped("collective")])


def test_what_kernels_and_collectives_are_used_for(machines):
    rows = machines[machines.kind == "kernel"]
    compared = kernels.comparison()
    assert set(rows.id[rows.skipped == ""]) <= set(compared.id)
    assert (rows.skipped == "").sum() == 67
    assert len(excluded(rows)) == 77
    runs = collective_fits.contract()
    assert (runs.use == "").sum() == len(excluded(machines[machines.kind == "collective"])) == 38
