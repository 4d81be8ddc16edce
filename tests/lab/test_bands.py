"""Files of intervals are those of the errors, and hold as often as they say, of pages that they have not seen.

A page is read from its cells alone, as a stranger reads it. What is not reached is marked with the figure.
"""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnlab import accuracy, coverage, pages, ratchet
from trnlab.outliers import outliers
from trnmodel.catalog.bands import BANDS, HULLS, OUTLIERS
from trnmodel.evidence import tables
from trnmodel.evidence.rows import MEASURED, save
from trnmodel.formulas.bands import SMALLEST, conformal_width, local_scale, shrunk_width
from trnmodel.neighbours import UNSTATED_GROWTH

TRN2, TRN3, LLAMA, TP8 = "trn2.48xlarge", "trn3-nl72x2-pcie160", "llama-3.1-8b", tm.Mapping(tp=8)
BASES = ("measured", "interpolated", "extrapolated")
ASK = {"model": LLAMA, "mapping": TP8, "batch": 4, "context": 2048}


def decode(system=TRN2, **more):
    return tm.decode_step(**ASK | {"system": system} | more)


@pytest.fixture(scope="module")
def rows():
    return accuracy.left_out_rows(accuracy.SOURCE)


@pytest.fixture(scope="module")
def held(rows):
    return coverage.held(rows, "left")


@pytest.fixture(scope="module")
def lines(held):
    """How often the bands hold as it is computed, by the page where constants were fitted without it."""
    return coverage.summary(held).set_index(["of", "name"])


@pytest.fixture(scope="module")
def everywhere():
    """How often they hold where no row of a page says anything of the page, as it was written."""
    table = pd.read_csv(coverage.COVERAGE)
    return table[table.split == accuracy.EVERYWHERE].set_index(["of", "name"])


@pytest.mark.slow
def test_the_file_of_errors_outside_the_fits_is_that_of_the_rows():
    """Else run `python -m trnlab.accuracy bands`."""
    fresh, shipped = accuracy.outside(), accuracy.shipped(accuracy.OTHER_RESIDUALS)
    assert list(fresh.columns) == list(shipped.columns)
    np.testing.assert_allclose(fresh.error, shipped.error, rtol=1e-3, atol=1e-4)


def test_the_files_are_those_of_the_errors(rows, lines, tmp_path):
    """Else run `python -m trnlab.accuracy bands`."""
    coverage.write(rows, *(tmp_path / file.name for file in (BANDS, HULLS)))
    for file in (BANDS, HULLS):
        assert (tmp_path / file.name).read_text() == file.read_text()
    written = pd.read_csv(coverage.COVERAGE)
    written = written[written.split == accuracy.SOURCE].drop(columns="split")
    pd.testing.assert_frame_equal(lines.reset_index(), written.reset_index(drop=True), rtol=1e-3, check_dtype=False)


@pytest.mark.slow
def test_the_table_of_coverage_is_that_of_the_errors(tmp_path):
    """Else run `python -m trnlab.accuracy bands`."""
    save(accuracy.how_often(), tmp_path / "coverage.csv", "%.4g")
    fresh, shipped = (pd.read_csv(path) for path in (tmp_path / "coverage.csv", coverage.COVERAGE))
    pd.testing.assert_frame_equal(fresh, shipped, rtol=2e-3, atol=1e-3)  # a tie of ranks may fall on either side


def test_nine_of_ten_errors_of_a_new_page_are_inside(lines):
    """Of all rows, of each basis, and averaged over the pages; 14 of the 18 that are called measured."""
    assert lines.inside["all", "all"] == pytest.approx(0.9, abs=0.03)
    assert lines.page_inside["all", "all"] == pytest.approx(0.9, abs=0.03)
    for basis in BASES[1:]:
        assert lines.inside["basis", basis] == pytest.approx(0.9, abs=0.03), basis
    assert lines.p["basis", "measured"] > 0.05
    assert lines.inside["pool", coverage.MODELS] == pytest.approx(0.9, abs=0.03)


def test_nine_of_ten_are_inside_where_a_page_says_nothing_of_itself(everywhere):
    """Of kernels, collectives and other chips too, whose constants have seen the page."""
    for of in (("all", "all"), ("pool", coverage.MODELS), ("basis", "interpolated")):
        assert everywhere.inside[of] == pytest.approx(0.9, abs=0.04), of
    assert everywhere.p["basis", "measured"] > 0.01  # 15 of 20
    fast, slow = everywhere.loc[("all", "all"), ["fast", "slow"]]
    assert max(fast, slow) <= 2 * min(fast, slow)


def test_no_group_rejects_nine_of_ten(lines, everywhere):
    """Binomial tests of groups of thirty, at 5 % after Holm's correction.

    Where a page says nothing of itself, the bands of all-reduces of GPUs and of exchanges with slots (one page each)
    and of other chips (one page has nearly all rows) are those of other groups: they are too wide, and hold nearly all.
    """
    tested = lines.loc["group"].drop(["collective, slots"])
    tested = tested[tested.cases >= coverage.FEW]
    assert len(tested) > 10
    assert (tested.holm > 0.05).all(), tested[tested.holm <= 0.05]
    tested = everywhere.loc["group"].drop(["gpu-all-reduce", "comparator", "collective, slots"])
    tested = tested[tested.cases >= coverage.FEW]
    assert (tested.holm > 0.05).all(), tested[tested.holm <= 0.05]


def test_errors_are_missed_on_both_sides(lines):
    fast, slow = lines.loc[("all", "all"), ["fast", "slow"]]
    assert max(slow, fast) <= 2 * min(slow, fast)


WEAK = {  # Spearman's correlation of width and size of error, where it is below 0.2
    "expert-prefill": "-0.11",
    "prefill": "0.06: what a server adds and how a prompt is padded is in no column",
    "serving, TTFT in a queue": "0.19",
    "collective, host": "-0.12: one page has most rows, and its launches follow no axis",
    "collective, slots": "-0.18: one page has all rows",
    "server": "-0.07: two pages have three quarters of the rows, and each is judged by the other",
    "kernel, stack-nki": "-0.31: one page has most rows and small errors, which the others cannot know",
    "comparator": "0.17: one page has nearly all rows",
}


def groups(least):
    rows = accuracy.left_out_rows(accuracy.SOURCE)
    return sorted(name for name, cases in rows[rows.tests].group.value_counts().items() if cases >= least)


@pytest.mark.parametrize("group", groups(coverage.RANKED))
def test_wide_bands_are_where_the_errors_are(lines, group, request):
    if group in WEAK:
        request.applymarker(pytest.mark.xfail(reason=f"{group}: {WEAK[group]}", strict=False))
    assert lines.correlation["group", group] >= 0.2


def test_errors_and_widths_rise_from_interpolated_to_extrapolated(lines):
    bases = lines.loc["basis"].loc[[*BASES]]
    assert bases.share.sum() == pytest.approx(1)
    for name in ("median_error", "width"):
        assert bases[name]["interpolated"] < bases[name]["extrapolated"]


def test_errors_rise_from_measured_to_extrapolated_where_the_model_is_left_out():
    """Where rows are read with what their pages state."""
    table = pd.read_csv(coverage.COVERAGE)
    table = table[(table.split == accuracy.LEFT_OUT) & (table.of == "basis")].set_index("name")
    assert table.median_error[[*BASES]].is_monotonic_increasing


@pytest.mark.xfail(reason="17 rows are called measured by other pages: 0.153 off, and 1.32 wide", strict=False)
def test_errors_and_widths_rise_from_measured_to_interpolated(lines):
    bases = lines.loc["basis"]
    for name in ("median_error", "width"):
        assert bases[name]["measured"] < bases[name]["interpolated"]


def test_intervals_beat_a_constant_width(held, lines):
    """Winkler's score of all rows, by page, and of the groups that have constants of their own."""
    fitted = held[held.group.isin(tables.GROUPS)]
    assert fitted.score.mean() < 0.9 * fitted.constant_score.mean()
    for of in (("all", "all"), ("pool", coverage.MODELS)):
        assert lines.score[of] < 0.9 * lines.constant_score[of]


@pytest.mark.slow
@pytest.mark.parametrize(("split", "least"), [(accuracy.LEFT_OUT, 0.87), (accuracy.CHIP, 0.8)])
def test_coverage_with_a_model_or_a_chip_left_out(split, least):
    """The rows of another chip alone say less: seven in eight are held."""
    found = accuracy.held(split)
    assert found[found.pool == coverage.MODELS].inside.mean() >= least


def test_validate_gives_the_ends_of_the_step():
    row = dict.fromkeys(pd.read_csv(MEASURED, nrows=0).columns, "")
    row |= {"kind": "inference-LLM", "instance": "trn2.3xlarge", "workload": "Qwen3-8B", "tp": "4", "batch": "1"}
    row |= {"date_or_sdk": "vLLM with its plugin, SDK 2.29"}
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


def test_no_group_is_worse(validated, accuracies, root):
    """Else: a line with the group under "Numbers that changed", and the new floor by hand.

    A floor is a median of `data/evidence/accuracy.csv`, so that a threshold follows what was printed.
    """
    now, _ = ratchet.today(validated, accuracies)
    changed = ratchet.allowed((root / "CHANGELOG.md").read_text())
    floor = pd.read_csv(ratchet.FLOOR)
    assert [name for name in ratchet.worse(now, floor).group if name not in changed] == []


def test_a_ratchet_holds(validated, accuracies):
    now, _ = ratchet.today(validated, accuracies)
    planted = now.assign(median_error=now.median_error / 1.1 - 0.021)
    assert len(ratchet.worse(now, planted)) == len(now)
    assert not len(ratchet.worse(now, now))


def test_what_a_column_that_nobody_stated_adds():
    """Rows that are read with what their pages state of one column, and without: the mean of the logarithms' ratio."""
    rows = accuracy.shipped(pages.RESIDUALS)
    rows = rows.assign(size=np.log(np.maximum(np.abs(np.log1p(rows.error)), SMALLEST)))
    of = ["source", "measured", "meaning", "model"]
    rows = rows.drop_duplicates([*of, "reading"])
    without, stated = (rows[(rows.reading == pages.CELLS) == one] for one in (True, False))
    both = without.merge(stated, on=of, suffixes=("", "_stated"))
    both = both[(both.unknown == 1) & (both.unknown_stated == 0)]
    assert len(both) == 335
    assert np.exp((both["size"] - both.size_stated).mean()) == pytest.approx(UNSTATED_GROWTH, rel=0.02)


def test_whether_an_interval_holds_and_what_it_scores(held):
    """Winkler's score at 90 %: the width of both sides, and 20 times what lies outside of them."""
    np.testing.assert_allclose(held.width, 0.5 * held.below + 0.5 * held.above)
    e = held.log_error  # predicted over measured: too long a time lies above, and is bound by the side below
    for name, below, above in (("", held.below, held.above), ("constant_", held.constant_width, held.constant_width)):
        beyond = np.maximum(e - below, 0) + np.maximum(-e - above, 0)
        np.testing.assert_allclose(held[f"{name}score"], below + above + 20 * beyond, rtol=1e-9)
        assert (held[f"{name}inside"] == (beyond == 0)).all()
    assert not held.part.eq("memory").any()


def errors_of(groups, errors, sources, **more):
    """Return rows of one place, of one pool, as `left_out_rows` gives them."""
    n = len(sources)
    of = {"kind": "dense", "chip": "c", "on": "s", "ranks": 4.0, "sequences": 1.0, "length": 2.0, "size": 3.0}
    of |= {"part": "decode", "pool": "P", "unknown": 0, "tests": True, "informs": True}
    rows = pd.DataFrame({"group": list(groups)} | of, index=range(n))
    return rows.assign(log_error=errors, source=list(sources), left=list(sources), **more)


def test_what_other_pages_say_by_hand():
    """Sixty pages of one point, one of which is far off: it contradicts the point for the others, which measured it."""
    pages = [f"page {i:02}" for i in range(60)]
    rows = errors_of("g" * 60, [0.1, -0.1] * 29 + [0.1, 0.9], pages)
    found = coverage.held(rows, "left")
    assert found.basis.tolist() == ["extrapolated"] * 59 + ["measured"]
    assert not found.inside[59]
    assert found.constant_width.tolist() == pytest.approx([0.1] * 60)
    assert found.width.tolist() == pytest.approx([0.1] * 60, rel=0.01)  # the one far off is one of sixty
    apart = coverage.held(rows.assign(length=2.0 ** np.arange(60), log_error=0.1), "left")
    assert set(apart.basis) == {"interpolated"}
    apart = coverage.held(rows.assign(length=2.1 ** np.arange(60), log_error=0.1), "left")
    assert set(apart.basis) == {"extrapolated"}
    unsure = coverage.held(rows[:59].assign(unknown=[0] * 58 + [1]), "left")
    assert unsure.width[58] == pytest.approx(unsure.width[56] * 1.38, rel=0.01)


def test_memory_has_no_band_of_others():
    rows = errors_of("gggm", [0.1, 0.2, 0.3, 0.1], "abcd").assign(part=["decode"] * 3 + ["memory"])
    assert len(coverage.held(rows, "left")) == 3


def test_a_table_of_how_often_by_hand():
    """Of four rows on two pages one is outside, slow: 3/4 of the rows and (1 + 1/2)/2 of the pages are inside."""
    found = pd.DataFrame(
        {
            "basis": ["measured"] * 3 + ["extrapolated"],
            "pool": "P",
            "group": "g",
            "source": list("aabb"),
            "log_error": [0.1, -0.2, 0.3, -0.9],
            "below": 0.4,
            "above": 0.5,
            "width": [0.1, 0.2, 0.3, 0.4],
            "inside": [True, True, True, False],
            "score": 1.0,
            "constant_score": 2.0,
        }
    )
    table = coverage.summary(found).set_index(["of", "name"])
    line = table.loc[("all", "all")]
    assert line[["cases", "pages", "share", "inside", "page_inside"]].tolist() == [4, 2, 1, 0.75, 0.75]
    assert line[["fast", "slow", "median_error", "width", "correlation"]].tolist() == pytest.approx(
        [0, 0.25, 0.25, 0.25, 1]
    )
    assert line.p == pytest.approx(1 - 0.9**4)  # as likely as 4 of 4 it is not: 0.2916 of 3 of 4 and below
    assert table.share["basis"].tolist() == [0.75, 0.25]
    assert table.index.tolist() == [
        ("all", "all"),
        ("basis", "measured"),
        ("basis", "extrapolated"),
        ("pool", "P"),
        ("group", "g"),
    ]
    assert table.holm.isna().all()  # too few cases


def test_holm_by_hand():
    assert coverage.holm(np.array([0.5, 0.01, 0.02])).tolist() == pytest.approx([0.5, 0.03, 0.04])
    assert coverage.holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_pools_by_hand():
    said = [
        coverage.pool_of(*of)
        for of in (("comparator", "decode"), ("k", "kernel"), ("c", "collective"), ("decode", "decode"))
    ]
    assert said == ["other chips", "kernels", "collectives", "models"]


def test_widths_of_groups_by_hand():
    """Errors over the scale that the other pages give: a geometric mean of these and, with one row's say, the prior."""
    rows = errors_of("bbba", [0.1, -0.4, 0.2, 0.4], "xyzw")
    found = coverage.widths(rows)
    assert list(found) == ["b", "a"]
    logs = np.log([0.1, 0.4, 0.2, 0.4])
    pooled = np.exp(logs.mean())
    scale = np.exp((logs[:3].sum() + 8 * np.log(pooled)) / 11)
    assert (found["b"].cases, found["b"].pages, found["b"].pool) == (3, 3, "P")
    assert (found["b"].pooled, found["b"].scale) == pytest.approx((pooled, scale))
    z = []
    for i in range(4):
        others = [j for j in range(4) if j != i]
        pool = np.exp(logs[others].mean())
        own = [j for j in others if (j < 3) == (i < 3)]
        group = np.exp((logs[own].sum() + 8 * np.log(pool)) / (len(own) + 8))
        z.append(rows.log_error[i] / np.exp((logs[others].sum() + np.log(group)) / 4))
    whole = float(conformal_width(z))
    assert found["b"].width == pytest.approx(float(shrunk_width(conformal_width(z[:3]), 3, whole)))
    assert (found["b"].below, found["b"].above) == pytest.approx((whole, whole))  # too few for tails
    assert found["a"].width == pytest.approx(whole)


def test_rows_of_a_page_say_nothing_of_it():
    """Two rows of one page: the scale of either is that of the other page, worth one row, and the prior."""
    rows = errors_of("ggg", [0.1, 0.2, 0.4], "xxy")
    of = coverage.Others(rows, "left")
    z = of.normalised(np.zeros(3, dtype=bool))
    assert z == pytest.approx([0.25, 0.5, 0.4 / local_scale([2.0], [np.log(0.02)], np.exp(np.log(0.02) / 2))])
    without = of.normalised(np.array([True, False, False]))
    assert without[2] == pytest.approx(0.4 / 0.2)


def test_what_was_measured_is_written_once():
    rows = errors_of("baba", 0.5, "x" * 4, ranks=[4, 2, 4, 1])
    found = coverage.hulls(rows)
    assert found[["group", "ranks"]].values.tolist() == [["a", 1], ["a", 2], ["b", 4]]
    assert found.index.tolist() == [0, 1, 2]
    assert list(found)[4:9] == ["stack", "ranks", "batch", "length", "size"]
    assert list(found)[9:] == ["source", "log_error", "unknown"]


def test_no_row_outside_its_band_is_called_measured(validated):
    """An answer at the point of a measured row that the band does not reach is extrapolated, and names the row.

    Steps of training have a band by chip and stack, and are never called measured.
    """
    rows = validated[(validated.skipped == "") & (validated.weight > 0) & ~validated.meaning.str.startswith("train")]
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
