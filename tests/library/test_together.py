"""Rows that differ in their sizes alone are asked together, and get what each gets by itself."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.bands import spread
from trnmodel.evidence import grounds, questions
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.grounds import banded
from trnmodel.evidence.questions import alike, grouped, predict, predicted, together
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COMPARATORS, LATER, MEASURED, read_rows

ROW = {"instance": "trn2.48xlarge", "workload": "llama-3.1-70b", "metric": "tpot", "unit": "ms", "value": 10}
ROW |= {"kind": "inference-LLM", "tp": 64, "lnc": 2, "batch": 4, "input_len": 1024, "output_len": 256}


@pytest.fixture(scope="module")
def rows():
    return [row for path in (MEASURED, LATER, COMPARATORS) for row in read_rows(path)]


@pytest.fixture(scope="module")
def readings(rows):
    found = []
    for row in rows:
        try:
            found.append(reading(row))
        except UnreadableRowError:
            continue
    return list(dict.fromkeys(found))


def by_itself(r):
    try:
        return predict(r)
    except UnreadableRowError as reason:
        return str(reason)


def test_a_prediction_is_that_of_the_reading_by_itself(readings):
    some = readings[::3]
    found = predicted(some)
    assert found.keys() == set(some)
    for r in some:
        alone, one = by_itself(r), found[r] if isinstance(found[r], float) else str(found[r])
        assert one == (alone if isinstance(alone, str) else pytest.approx(alone, rel=1e-12)), r
    assert len(grouped(some)) < 0.6 * len(some)  # or nothing was asked together


def test_an_interval_is_that_of_each_end_asked_by_itself(readings):
    judged = zip(readings, banded(readings), strict=True)
    outside = [(r, one) for r, one in judged if isinstance(one, grounds.Banded) and one.word == "extrapolated"]
    steps = [(r, one) for r, one in outside if grounds.where(r)["part"] not in (*grounds.PLAIN, "train")][::9]
    assert len(steps) > 20
    for r, one in steps:
        basis = grounds.rows_basis_of(r)
        if grounds.is_rate(r.meaning) and basis.tails is not None:
            basis = basis._replace(tails=basis.tails[::-1])
        forced = basis._replace(word="extrapolated")
        below, above = spread(forced, grounds._open_stack(r), lambda e, r=r: np.asarray(predict(r, lambda _: e)))
        assert (one.low, one.high) == pytest.approx((one.value * np.exp(-below), one.value * np.exp(above)), rel=1e-9)


def test_a_row_that_cannot_be_predicted_spoils_no_other_and_keeps_its_reason():
    batches = [1, 2, 10**9, 8]
    table = tm.validate(pd.DataFrame([ROW | {"batch": batch} for batch in batches]))
    alone = [tm.validate(pd.DataFrame([ROW | {"batch": batch}])).iloc[0] for batch in batches]
    assert table.skipped.ne("").tolist() == [False, False, True, False]
    for line, one in zip(table.itertuples(), alone, strict=True):
        assert line.skipped == one.skipped
        assert [line.predicted, line.low, line.high] == pytest.approx([one.predicted, one.low, one.high], nan_ok=True)


@pytest.mark.parametrize(
    "more",
    [
        {"batch": 1.5},
        {"input_len": "", "output_len": ""},
        {"metric": "throughput", "unit": "tokens/s"},
        {"metric": "no such metric"},
        {"value": 0},
        {"tp": 7},
        {"instance": "trn9.big"},
    ],
)
def test_odd_rows_beside_a_plain_one_change_nothing(more):
    pair = tm.validate(pd.DataFrame([ROW, ROW | more, ROW]))
    plain, odd = (tm.validate(pd.DataFrame([row])).iloc[0] for row in (ROW, ROW | more))
    for line, one in zip(pair.itertuples(), (plain, odd, plain), strict=True):
        assert (line.skipped, line.basis, line.meaning) == (one.skipped, one.basis, one.meaning)
        assert [line.predicted, line.low, line.high] == pytest.approx([one.predicted, one.low, one.high], nan_ok=True)


def test_no_rows_are_an_empty_table():
    assert banded([]) == []
    assert tm.validate(pd.DataFrame(columns=[*ROW])).empty


def test_a_row_is_asked_once_whatever_it_leaves_blank(monkeypatch):
    table = pd.DataFrame([ROW | {"batch": batch} for batch in (3, 5, 7)])
    first = tm.validate(table)
    asked = []
    monkeypatch.setattr(questions, "_answer", lambda *question: asked.append(question))
    pd.testing.assert_frame_equal(tm.validate(table), first)
    assert not asked


def test_of_a_group_without_a_figure_all_are_nan():
    r = reading(read_rows(pd.DataFrame([ROW]))[0])
    wide = replace(r, mapping=(10**6, 1, 1, 2))
    assert np.isnan(together([wide, wide])).all()
    assert alike(r) != alike(wide)
