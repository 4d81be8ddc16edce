"""The accuracy table: its file, one vote a configuration, what is set aside, targets, noise, and lines by hand."""

import numpy as np
import pandas as pd
import pytest

from trnlab import accuracy, ratchet, table
from trnlab.kernels import product_accuracy
from trnmodel.evidence import tables
from trnmodel.evidence.fit import GROUPS, cases, log_errors, parameters
from trnmodel.evidence.rows import published
from trnmodel.evidence.score import counted, excluded, reasons, validate


@pytest.fixture
def judged(validated):
    return validated


@pytest.fixture(scope="module")
def labelled(validated):
    return table.labelled(validated)


@pytest.fixture
def fresh(accuracies):
    return accuracies


@pytest.mark.slow
def test_the_files_are_those_of_the_code(judged, fresh):
    """Else run `python -m` of `trnlab.accuracy`, then `.outliers`, then `.ratchet`."""
    pd.testing.assert_frame_equal(fresh, tables.accuracy(), rtol=1e-3, atol=1e-4, check_dtype=False)
    kept = tables.judged().set_index("id").loc[judged.id]
    for name in ("predicted", "error", "low", "high", "weight"):
        np.testing.assert_allclose(kept[name].to_numpy(float), judged[name].to_numpy(float), rtol=1e-3, err_msg=name)
    for name in ("skipped", "set_aside", "use", "configuration", "group"):
        assert kept[name].tolist() == judged[name].tolist(), name


def test_shipped_residuals_are_those_of_the_shipped_efficiencies():
    """Else run `python -m trnlab.accuracy`."""
    shipped = accuracy.shipped()
    for group in tables.GROUPS:
        rows = shipped[(shipped.group == group) & (shipped.split == accuracy.FITTED)]
        np.testing.assert_allclose(rows.error, np.expm1(log_errors(cases(published(), group))), rtol=1e-3, atol=1e-4)


def test_every_row_counts_or_is_excluded_with_a_reason(judged):
    out, used = excluded(judged), judged[(judged.skipped == "") & (judged.weight > 0)]
    lines = judged[judged.use.isin(["fit", "rate", "null", "network"])]  # of collectives, that no machine is stated for
    assert len(out) + len(used) + len(lines) == len(judged)
    assert out.reason.ne("").all()
    assert reasons(out).rows.sum() == len(out)


def test_configurations_vote_once(judged):
    found = counted(judged)
    assert found.configuration.is_unique
    assert set(found.configuration) == set(judged[(judged.skipped == "") & (judged.weight > 0)].configuration)
    assert "null" not in set(found.use)


def test_few_predicted_rows_are_set_aside(judged):
    assert tables.aside_share(judged) <= 0.03


def test_a_share_set_aside_by_hand():
    """Of five rows of Neuron chips one is a copy and one lacks a length: a fifth; the GPU is none of them."""
    aside = ["", "", "", "the same run as its ttft", "lengths missing", "GPU reference"]
    rows = pd.DataFrame({"set_aside": aside, "skipped": "", "weight": [1, 1, 1, 0, 0, 0]})
    assert tables.aside_share(rows) == pytest.approx(0.2)


def test_every_counted_row_has_a_line(labelled):
    rows = counted(labelled)
    unnamed = rows[(rows.line == "") & ~rows.use.isin(["model", "training"])]  # training has a table of its own
    assert unnamed.empty, unnamed[["kind", "meaning", "use"]].drop_duplicates()


def test_a_line_follows_from_inputs(labelled):
    """With all values replaced the rows stand in the same lines."""
    some = labelled.iloc[::40]
    again = table.labelled(validate(some[list(published().columns)].assign(value="1")))
    same = (again.skipped == "").to_numpy() & (some.skipped == "").to_numpy()
    assert same.sum() > 30
    assert again.line[same].tolist() == some.line[same].tolist()


def test_noise_by_hand(labelled):
    """Two repeats at +10 and -1 % lie 1.10 / 0.99 - 1 = 11.1 % apart; a value that is printed twice says nothing."""
    row = labelled[labelled.line == "TTFT"].iloc[0].to_dict() | {"skipped": "", "weight": 1.0, "set_aside": ""}
    rows = [
        row | {"configuration": key, "error": error} for key, error in (("a", 0.1), ("a", -0.01), ("b", 0), ("b", 0))
    ]
    assert table._also(pd.DataFrame(rows)).noise["TTFT"] == pytest.approx(1.1 / 0.99 - 1)


@pytest.mark.parametrize(
    ("split", "errors", "reached"),
    [
        (accuracy.LEFT_OUT, (0.06, 0.12, 1.0), "yes"),
        (accuracy.LEFT_OUT, (0.059, 0.121, 1.0), "no"),
        (accuracy.SOURCE, (0.06, 0.12, 1.0), "yes"),  # a page that nobody has read is held to the same
        (accuracy.SOURCE, (0.061, 0.01, 0.01), "no"),
        (accuracy.FAMILY, (0.08, 1.0, 1.0), "yes"),  # its own target, of the median alone
        (accuracy.FITTED, (0.01, 0.01, 0.01), ""),
    ],
)
def test_targets_by_hand(split, errors, reached):
    names = dict(zip(("median_error", "mean_error", "p90_error"), errors, strict=True))
    assert table._judged_line({"group": "dense decode", "split": split} | names)["reached"] == reached


def test_targets_name_lines_of_the_table(fresh):
    assert {group for group, _ in table.targets()} <= set(fresh.group)


def test_each_group_has_its_splits_and_columns(fresh):
    assert list(fresh) == table.COLUMNS
    assert not fresh.duplicated(["group", "split"]).any()
    for group in tables.GROUPS.values():
        found = set(fresh[fresh.group == group].split)
        assert found >= {accuracy.FITTED, accuracy.LEFT_OUT, accuracy.CHIP, accuracy.SOURCE}
    left = fresh[fresh.split == accuracy.LEFT_OUT]
    assert left[["coverage", "width", "score", "constant_score"]].notna().all().all()
    assert (left.median_error <= left.p90_error).all()
    assert {table.COLLECTIVES, table.NOWHERE} <= set(fresh.group)


def test_physics_beats_the_regression_where_the_model_is_left_out(fresh):
    left = fresh[(fresh.split == accuracy.LEFT_OUT) & fresh.naive_median.notna() & ~fresh.group.str.contains("encoder")]
    assert len(left) >= 5
    assert (left.median_error < left.naive_median).all()


def test_constants_are_those_of_the_calibration(fresh):
    """Every constant of a group that is judged here; the two paths of frameworks have more than one in ten rows."""
    found = fresh.drop_duplicates("group").set_index("group").constants
    others = len(parameters("comparator")) + len(parameters("gpu-all-reduce"))
    assert found.sum() - 3 == sum(len(parameters(group)) for group in GROUPS) - others  # 3 of tuned products
    fitted = fresh[(fresh.constants > 0) & (fresh.split == accuracy.LEFT_OUT)]
    many = fitted[fitted.constants * 10 > fitted.cases].group
    assert set(many) <= set(table.PATHS.values())


def test_products_of_trainium3_count_with_their_file_left_out(fresh):
    line = fresh.set_index(["group", "split"]).loc["tuned kernels, Trainium3", table.FILE]
    left = product_accuracy().left_out_error.abs()
    assert line.cases == len(left) + 1  # and one kernel in MXFP8
    assert line.median_error == pytest.approx(left.median(), abs=0.003)


def test_a_worse_group_and_a_lost_row_are_seen(fresh):
    now = fresh[["group", "split", "median_error"]]
    worse = now.assign(median_error=np.where(now.index == 3, now.median_error * 1.1 + 0.021, now.median_error))
    assert ratchet.worse(worse, now).index.tolist() == [3]
    assert ratchet.worse(now.drop(index=5), now).group.tolist() == [now.group[5]]


def test_points_lie_in_their_ranges(judged):
    points = table.points(judged)
    assert set(points.group) == set(tables.GROUPS.values())
    for name in ("measured_s", "predicted_s"):
        assert (points[f"{name}_low"] <= points[name] * (1 + 1e-9)).all()
        assert (points[f"{name}_high"] >= points[name] * (1 - 1e-9)).all()
    assert points.select_dtypes("number").gt(0).all().all()


def test_regimes_hold_every_configuration():
    found, rows = table.by_regime("dense decode"), accuracy.shipped()
    of = len(rows.query("group == 'decode' and split == @accuracy.LEFT_OUT"))
    names = found.regime.str.split(" ").str[0]
    assert found.groupby(names).configurations.sum().eq(of).all()


def test_the_error_of_a_group_by_its_sources():
    """All configurations once, shares that are theirs, and a first source with more than its part of the rows."""
    found, rows = table.by_source("dense decode", most=5), accuracy.shipped()
    rows = rows.query("group == 'decode' and split == @accuracy.LEFT_OUT")
    assert len(found) == 6
    assert (found.configurations.sum(), found.share.sum()) == (len(rows), pytest.approx(1))
    first = rows[rows.source == found.source[0]].error.abs()
    assert found.share[0] == pytest.approx(first.sum() / rows.error.abs().sum())
    assert found.share[:5].is_monotonic_decreasing
    assert found.source[5] == "all others"
