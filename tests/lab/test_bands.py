"""Files of intervals are those of the errors, and hold as often as they say."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import trnmodel as tm
from trnlab import accuracy, coverage, ratchet
from trnlab.outliers import outliers
from trnmodel.catalog.bands import BANDS, HULLS, OUTLIERS
from trnmodel.evidence import tables
from trnmodel.formulas.bands import (
    grown_width,
    shrunk_width,
)

TRN2, TRN3, LLAMA, TP8 = "trn2.48xlarge", "trn3-nl72x2-pcie160", "llama-3.1-8b", tm.Mapping(tp=8)
ASK = {"model": LLAMA, "mapping": TP8, "batch": 4, "context": 2048}


def decode(system=TRN2, **more):
    return tm.decode_step(**ASK | {"system": system} | more)


@pytest.fixture(scope="module")
def rows():
    return accuracy.left_out_rows()


@pytest.fixture(scope="module")
def held(rows):
    return coverage.held(rows, "model")


@pytest.mark.slow
def test_the_files_are_those_of_the_errors(rows, tmp_path):
    """Else run `python -m trnlab.accuracy`, or its `write_bands()` where no constant has moved."""
    fresh, shipped = accuracy.outside(), accuracy.shipped(accuracy.OTHER_RESIDUALS)
    assert list(fresh.columns) == list(shipped.columns)
    np.testing.assert_allclose(fresh.error, shipped.error, rtol=1e-3, atol=1e-4)
    coverage.write(rows, tmp_path / "bands.csv", tmp_path / "hulls.csv")
    assert (tmp_path / "bands.csv").read_text() == BANDS.read_text()
    assert (tmp_path / "hulls.csv").read_text() == HULLS.read_text()


@pytest.mark.slow
def test_coverage_with_the_model_left_out(held):
    """Nominal 90 %: 87 to 93 % over all groups, and no group's count is a surprise at 5 %."""
    models = held[held.pool == coverage.MODELS]
    print(models.groupby("group")[["inside", "width", "score", "constant_score"]].mean().round(3))  # noqa: T201
    assert 0.87 <= models.inside.mean() <= 0.93
    for group, some in held.groupby("group"):
        assert binomtest(int(some.inside.sum()), len(some), 0.9).pvalue > 0.05, group


def test_intervals_beat_a_constant_width(held):
    """Winkler's score over the groups that have constants of their own: width by group is worth more than width."""
    fitted, models = held[held.group.isin(tables.GROUPS)], held[held.pool == coverage.MODELS]
    assert fitted.score.mean() < 0.95 * fitted.constant_score.mean()
    assert models.score.mean() < models.constant_score.mean()
    by_group = fitted.groupby("group")[["score", "constant_score"]].mean()
    assert (by_group.score < 1.005 * by_group.constant_score).all()  # under load the two are one
    assert fitted.inside.mean() > 0.87


@pytest.mark.slow
@pytest.mark.parametrize("by", ["chip", "source"])
def test_coverage_with_a_chip_or_a_source_left_out(rows, by):
    split = {"chip": accuracy.CHIP, "source": accuracy.SOURCE}[by]
    known = split in set(accuracy.shipped().split)  # else the errors of models left out, with widths of other names
    found = coverage.held(accuracy.left_out_rows(split) if known else rows, by)
    assert found[found.pool == coverage.MODELS].inside.mean() >= 0.8


def test_validate_gives_the_ends_of_the_step():
    row = dict.fromkeys(pd.read_csv(accuracy.MEASURED, nrows=0).columns, "")
    row |= {"kind": "inference-LLM", "instance": "trn2.3xlarge", "workload": "Qwen3-8B", "tp": "4", "batch": "1"}
    row |= {"seq_len": "2048", "phase": "decode", "metric": "TPOT p50", "value": "10", "unit": "ms", "lnc": "2"}
    found = tm.validate(pd.DataFrame([row, row | {"workload": "nothing"}]))
    step = tm.decode_step(
        "qwen3-8b", "trn2.3xlarge", tm.Mapping(tp=4, lnc=2), batch=1, context=2048, efficiencies=found["stack"][0]
    )
    assert found.predicted[0] == pytest.approx(float(step.time_s) * 1e3)
    assert (found.low[0], found.high[0]) == pytest.approx((float(step.low) * 1e3, float(step.high) * 1e3))
    assert (found.basis[0], found.basis_reason[0]) == (step.basis, step.basis_reason)
    assert found.basis[1] == ""
    assert np.isnan(found.low[1])


def test_no_group_is_worse_and_no_row_is_lost(validated, accuracies, root):
    """Else: a line with the group, or the row's id, under "Numbers that changed", and the new floor by hand.

    A floor is a median of `data/evidence/accuracy.csv`, so that a threshold follows what was printed.
    """
    now, ids = ratchet.today(validated, accuracies)
    changed = ratchet.allowed((root / "CHANGELOG.md").read_text())
    floor = pd.read_csv(ratchet.FLOOR)
    assert [name for name in ratchet.worse(now, floor).group if name not in changed] == []
    lost = set(pd.read_csv(ratchet.PREDICTED, dtype=str).id) - ids
    assert [one for one in sorted(lost) if one not in changed] == []


def test_a_ratchet_holds(validated, accuracies):
    now, _ = ratchet.today(validated, accuracies)
    planted = now.assign(median_error=now.median_error / 1.1 - 0.021)
    assert len(ratchet.worse(now, planted)) == len(now)
    assert not len(ratchet.worse(now, now))


def test_whether_an_interval_holds_and_what_it_scores(held):
    """Winkler's score at 90 %: the width of both sides, and 20 times what lies outside of them."""
    np.testing.assert_allclose(held.width, 0.5 * held.below + 0.5 * held.above)
    e = held.log_error  # predicted over measured: too long a time lies above, and is bound by the side below
    for name, below, above in (("", held.below, held.above), ("constant_", held.constant_width, held.constant_width)):
        beyond = np.maximum(e - below, 0) + np.maximum(-e - above, 0)
        np.testing.assert_allclose(held[f"{name}score"], below + above + 20 * beyond, rtol=1e-9)
        assert (held[f"{name}inside"] == (beyond == 0)).all()
    assert not held.part.eq("memory").any()


def test_what_others_say_of_a_model_by_hand(monkeypatch):
    """Of two errors the larger is the constant width, of the other model in the same pool; memory has none."""
    rows = pd.DataFrame(
        {
            "part": ["decode"] * 5 + ["memory"],
            "model": [*"aaabb", "b"],
            "pool": [*"PPQPQ", "P"],
            "log_error": [0.3, -0.2, 0.9, 0.25, -0.7, 5.0],
        }
    )
    monkeypatch.setattr(coverage, "widths", lambda others: {"x": len(others)})
    monkeypatch.setattr(coverage, "known", lambda others, found: found)
    monkeypatch.setattr(coverage, "_widths", lambda base, row: (0.3, 0.2 + base["x"] * (row["pool"] == "none")))
    found = coverage.held(rows, "model")
    assert found.constant_width.tolist() == [0.25, 0.25, 0.7, 0.3, 0.9]
    assert found.width.tolist() == [0.25] * 5
    assert found.inside.tolist() == [True, True, False, True, False]
    assert found.constant_inside.tolist() == [False, True, False, True, True]
    assert found.score.tolist() == pytest.approx([0.5, 0.5, 0.5 + 20 * 0.6, 0.5, 0.5 + 20 * 0.5])
    assert found.constant_score.tolist() == pytest.approx([0.5 + 20 * 0.05, 0.5, 1.4 + 20 * 0.2, 0.6, 1.8])


def test_pools_by_hand():
    said = [
        coverage.pool_of(*of)
        for of in (("comparator", "decode"), ("k", "kernel"), ("c", "collective"), ("decode", "decode"))
    ]
    assert said == ["other chips", "kernels", "collectives", "models"]


def test_widths_of_groups_by_hand():
    """Of nine errors or fewer the largest, at the rows: 0.4 far from them counts as 0.4 over its growth."""
    growth = float(grown_width(1.0, 5.0))
    assert growth > 1
    rows = pd.DataFrame(
        {"group": [*"bbba"], "pool": "models", "log_error": [0.1, -0.3, 0.2, 0.4], "octaves": [0.0, 0.0, 0.0, 5.0]}
    )
    found = coverage.widths(rows)
    assert list(found) == ["b", "a"]  # as they stand
    b, a = found["b"], found["a"]
    together = max(0.3, 0.4 / growth)
    pools = [getattr(one, name) for one in (b, a) for name in type(b).__struct_fields__[1:5]]
    assert pools == [
        "models",
        3,
        0.3,
        pytest.approx(together),
        "models",
        1,
        pytest.approx(0.4 / growth),
        pytest.approx(together),
    ]
    assert b.width == pytest.approx(float(shrunk_width(0.3, 3, together)))


def test_what_was_measured_is_written_once():
    same = {"part": "decode", "kind": "dense", "chip": "c", "on": "s", "sequences": 1.0, "length": 2.0, "size": 3.0}
    rows = pd.DataFrame({"group": [*"baba"], "ranks": [4, 2, 4, 1]} | same)
    found = coverage.hulls(rows)
    assert found[["group", "ranks"]].values.tolist() == [["a", 1], ["a", 2], ["b", 4]]
    assert found.index.tolist() == [0, 1, 2]
    assert list(found)[4:] == ["stack", "ranks", "batch", "length", "size"]


def test_no_row_outside_its_band_is_called_measured(validated):
    """An answer at the point of a measured row that the band does not reach is extrapolated, and names the row."""
    rows = validated[(validated.skipped == "") & (validated.weight > 0)]
    measured = rows.predicted / (1 + rows.error)
    outside = (measured < rows.low * (1 - 1e-6)) | (measured > rows.high * (1 + 1e-6))
    assert outside.sum() > 50
    assert set(rows[outside & rows.basis.isin(["measured", "interpolated"])].id) == set()
    told = rows[rows.basis_reason.str.contains("contradicted by row")]
    assert (told.basis == "extrapolated").all()
    assert set(told.id) >= set(pd.read_csv(OUTLIERS, dtype=str).id)


def test_the_file_of_outliers_is_that_of_the_rows(validated):
    """Else run `python -m trnlab.outliers`; what the words of the table are does not matter."""
    found = outliers(validated.assign(basis="", basis_reason=""))
    pd.testing.assert_frame_equal(
        found,
        pd.read_csv(OUTLIERS, dtype={"id": str, "stack": str}).fillna({"stack": ""}),
        rtol=1e-5,
        check_dtype=False,
    )
