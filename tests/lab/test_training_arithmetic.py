"""How published training runs are read and scored, by hand."""

import numpy as np
import pytest

import trnmodel as tm
from trnlab import training as runs
from trnmodel.catalog.trainers import trainer


def test_micro_batches_that_nobody_prints_are_the_fastest_that_fit():
    """Of all powers of two up to 64."""
    of = [case for case in runs.cases() if not case.row.micro_batch]
    for case in of:
        r, e = case.row, trainer(case.where.chip, runs.stack_of(case.row.group))
        every = tm.train_step(
            case.model,
            case.where,
            case.degrees,
            global_batch=int(r.global_batch),
            seq=int(r.seq),
            interleave=r.interleave,
            precision=r.precision,
            recompute=r.recompute,
            zero=r.zero,
            sequence_parallel=bool(r.sequence_parallel),
            micro_batch=2 ** np.arange(7),
            efficiencies=e,
        )
        assert float(case.step(e).time_s) == pytest.approx(np.nanmin(every.time_s), rel=1e-12), r.id
    assert len(of) >= 10


def test_the_rival_is_exact_in_the_median():
    """One MFU for all runs is the median of theirs: half of them are faster, half slower."""
    found, _ = runs.constant_mfu(runs.cases("a100-cluster"))
    assert np.median(np.log1p(found)) == pytest.approx(0, abs=1e-12)
    assert (found > 1e-9).sum() == (found < -1e-9).sum() == 22  # of 45


def test_a_rival_s_peak_is_the_printed_one():
    """190 TFLOP/s of a Trainium1 chip of two cores, 312 of an A100 (data sheets), of all chips of a run."""
    for group, peak in (("trn1", 190e12), ("korthikanti", 312e12)):
        for case in runs.cases(group):
            flop = float(case.step("ideal").model_flop)
            by_hand = flop / (case.measured_s * peak * case.where.chips)
            assert runs._shares([case]) == pytest.approx(by_hand, rel=0.01), case.row.id


def test_only_a_group_that_a_stack_was_fitted_to_has_errors_without_its_models():
    left = runs.accuracy("b200")
    assert (left.left_out_error.abs().mean(), len(left)) > (left.error.abs().mean(), 0)
    assert runs.accuracy("korthikanti").left_out_error.isna().all()
    np.testing.assert_allclose(left.predicted_s / left.measured_s - 1, left.error, rtol=1e-12)


def test_the_fixed_time_of_a_step_is_that_of_short_steps():
    """Steps of 4 s and more tell nothing of a tenth of a second: without one of at most 2 s it is none."""
    of = sorted(runs.cases("trn1"), key=lambda case: case.measured_s)
    e, names = trainer(of[0].where.chip, "neuronx-training"), ("matmul_share", "step_s")
    short, long = of[0], of[-1]
    assert short.measured_s < 2 < long.measured_s
    assert runs.fit([short], e, names).step_s > 0.01
    found = runs.fit([long], e, names)
    assert found.step_s == 0
    assert float(long.step(found).time_s) == pytest.approx(long.measured_s, rel=1e-3)
