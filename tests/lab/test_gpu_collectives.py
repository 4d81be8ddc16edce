"""The fitted kernels of engines for all-reduce are as good as the page says."""

import numpy as np
import pytest

from trnlab import comparators
from trnmodel.evidence.fit import cases, fit, log_errors
from trnmodel.evidence.rows import COLLECTIVES


def test_kernels_are_as_good_as_the_page_says():
    """Median error with a size left out, by chip; and with the device left out, where H100 starts sooner than all."""
    found = comparators.shipped("gpu-all-reduce")
    assert found.error.abs().median() < 0.06
    by_chip = found.size_left_out_error.abs().groupby(found["where"]).median()
    assert by_chip["hgx-a100"] == pytest.approx(0.12, abs=0.01)
    assert by_chip.drop("hgx-a100").max() < 0.07
    elsewhere = found.chip_left_out_error.abs().groupby(found["where"]).median()
    assert elsewhere["hgx-h100"] == pytest.approx(0.38, abs=0.02)
    assert elsewhere.drop("hgx-h100").max() < 0.12
    now = np.expm1(log_errors(cases(COLLECTIVES, "gpu-all-reduce")))
    assert found.error.to_numpy() == pytest.approx(now, abs=1e-4)


def test_a_size_left_out_is_judged_by_the_other_sizes_of_its_chip():
    """All of 1 KiB on H100: constants of the chip alone move, and a fit that has seen them is no worse."""
    of = [case for case in cases(COLLECTIVES, "gpu-all-reduce") if case.reading.where in ("hgx-h100", "hgx-a100")]
    name = comparators.LEFT_OUT["size_left_out_error"]
    left = [case for case in of if name(case) == "hgx-h100, 1024 B"]
    assert len(left) == 3
    errors = comparators.own_errors([case for case in of if case not in left], left)
    assert np.abs(errors).max() < 0.2


def test_a_chip_without_rows_is_given_the_middle_of_the_others():
    """With A100 and H100 alone, the start on a third chip lies midway between theirs."""
    every = cases(COLLECTIVES, "gpu-all-reduce")
    train = [case for case in every if case.reading.where in ("hgx-a100", "hgx-h100")][::2]
    test = [case for case in every if case.reading.where == "hgx-b200"][:1]
    values = fit(train, "gpu-all-reduce")
    middle = {p.quantity: (values[p] + q) / 2 for p, q in _beside(values, "a100", "h100").items()}
    r = dict(test[0].reading.arguments)
    others = float(r["ranks"]) - 1
    start = middle["one_shot_s:a100"] + middle["shot_rank_s:a100"] * others
    sent = (others + middle["shot_copies:a100"]) * float(r["message_bytes"])
    time_s = start + sent / (middle["one_shot_rate_share:a100"] * 900e9)
    found = comparators.elsewhere_errors(train, test)
    assert found == pytest.approx(time_s / test[0].measured - 1, rel=1e-6)


def _beside(values, chip, other):
    """Return the parameters of one chip with the values of another."""
    by_name = {p.quantity: value for p, value in values.items()}
    return {p: by_name[p.quantity.replace(chip, other)] for p in values if p.quantity.endswith(f":{chip}")}
