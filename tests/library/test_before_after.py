"""Pairs before and after one change of software, against the measured rows that they name."""

import re
from statistics import median
from typing import get_args

import pytest

from trnmodel.catalog.tables import DataError
from trnmodel.evidence.before_after import Cause, before_after, closed, pairs
from trnmodel.evidence.tables import published

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
MAPPING = ("n_cores_used", "pp", "dp", "batch")
LENGTHS = ("input_len", "output_len", "seq_len")
ROWS = published().set_index("id")
OWN = [row for row in before_after().values() if row.before_id]


def plain(text):
    return re.sub(r"[^a-z0-9]", "", text.lower())


def number(text):
    """The number that a cell begins with, or nothing."""
    found = re.match(r"~?([\d.]+)", text)
    return float(found[1]) if found else None


def in_unit(row, unit):
    """The value of a measured row in a unit of time, or as it stands in its own unit."""
    scale = 1.0 if row.unit == unit else SECONDS[row.unit] / SECONDS[unit]
    return float(row.value) * scale


def sides(pair):
    return [ROWS.loc[name] for name in (pair.before_id, pair.after_id) if name]


def test_there_are_enough_pairs_and_causes():
    table = pairs()
    assert len(table) >= 30
    assert table.id.is_unique
    assert set(table.cause) == set(get_args(Cause))
    assert table.source.str.strip().all()
    assert table.locator.str.strip().all()
    named = table[table.before_id != ""]
    assert not named.duplicated(["before_id", "after_id"]).any()


def test_a_figure_is_that_of_its_row():
    assert len(OWN) > 100
    for pair in OWN:
        figures = (pair.before, pair.after)
        for row, figure in zip(sides(pair), figures, strict=False):
            assert figure == pytest.approx(in_unit(row, pair.unit), rel=1e-5), pair.id


def test_rows_of_a_pair_agree_in_model_chip_and_mapping():
    for pair in OWN:
        rows = sides(pair)
        assert all(plain(pair.model) in plain(row.workload) for row in rows), pair.id
        if len(rows) < 2:
            continue
        before, after = rows
        assert before.instance.split("/")[0] == after.instance.split("/")[0], pair.id
        for column in MAPPING:
            assert not before[column] or not after[column] or before[column] == after[column], (pair.id, column)
        for column in LENGTHS:
            lengths = number(before[column]), number(after[column])
            assert None in lengths or lengths[0] == pytest.approx(lengths[1], rel=0.05), (pair.id, column)
        cores = [(number(row.tp), number(row.lnc) or 1) for row in rows]
        assert None in (cores[0][0], cores[1][0]) or cores[0][0] * cores[0][1] == cores[1][0] * cores[1][1], pair.id
        assert before.phase == after.phase, pair.id


def test_the_locator_names_the_rows_or_the_source_does():
    for pair in OWN:
        assert ROWS.loc[pair.after_id or pair.before_id].source == pair.source or not pair.after_id, pair.id


def test_the_direction_follows_the_unit():
    """Rates are per second, all others are times."""
    for pair in before_after().values():
        assert pair.lower_is_better is (pair.unit in SECONDS), pair.id
        assert pair.lower_is_better or pair.unit.endswith("/s"), pair.id


# read again from the pages: before, after and how much faster, by hand
READ = [
    # Kimi-K2's README: "Context encoding (TTFT) is ~7x slower (10,185 ms vs 1,420 ms)"
    ("SDK 2.29, which lacks", 1420, 10185, 0.1394),
    # Qwen3.6-35B-A3B: "+96.3% over the same O1 stack", 397.45 to 202.54 ms
    ("state of each recurrent layer", 397.45, 202.54, 1.9623),
    # MiMo-V2-Flash, device step BF16 34.7 and FP8 58.7 ms: slower
    ("FP8 in place of BF16", 34.7, 58.7, 0.5911),
    # vLLM 25444: 4.07 to 5.83 req/s
    ("full CUDA graphs in place", 4.07, 5.83, 1.4324),
]


@pytest.mark.parametrize(("start", "before", "after", "speedup"), READ)
def test_pairs_are_what_is_printed(start, before, after, speedup):
    row = next(row for row in before_after().values() if row.what.startswith(start))
    assert (row.before, row.after) == (before, after)
    assert row.speedup == pytest.approx(speedup, abs=1e-4)


def test_a_cause_sums_up_its_pairs():
    table, causes = pairs(), closed().set_index("cause")
    assert set(causes.index) == set(table.cause)
    for cause, rows in table.groupby("cause"):
        line, gains = causes.loc[cause], list(rows.speedup)
        assert (line.pairs, line.least, line.greatest) == (len(rows), min(gains), max(gains))
        assert line["median"] == pytest.approx(median(gains))
        assert line.share_closed == pytest.approx(sum(gain > 1.05 for gain in gains) / len(gains))
        assert 1 <= line.sources <= len(rows)


def test_changes_that_made_it_slower_are_kept():
    assert (pairs().speedup < 0.99).sum() >= 10


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("chip", "trainium9", "chip"), ("locator", "", "locator"), ("cause", "luck", "cause"), ("after", "0", "after")],
)
def test_a_wrong_row_is_refused(changed_row, column, value, said):
    changed_row("evidence/before_after.csv", column, value)
    with pytest.raises(DataError, match=said):
        before_after()
