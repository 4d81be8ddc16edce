"""Replays of decisions: the file is that of the code, and three suggestions remove most of what can be removed."""

import pandas as pd
import pytest

from trnlab import next_measurement as lab

TARGET = 0.7  # of the expected regret that all candidates together remove


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(lab.REPLAYS)


def _alike(found, table):
    numbers = [name for name in table if table[name].dtype.kind in "fi"]
    texts = ["model", "request", "systems", "pricing", "best"]
    pd.testing.assert_frame_equal(found[texts], table[texts])
    for name in numbers:
        assert found[name].tolist() == pytest.approx(
            table[name].tolist(), rel=0.02, abs=1e-6 * table.planned_usd.max()
        ), name


def test_the_first_rows_are_those_of_the_code(table):
    """Else run `python -m trnlab.next_measurement`."""
    _alike(lab.replays(2), table.head(2))


@pytest.mark.slow
def test_the_file_is_that_of_the_code(table):
    """Else run `python -m trnlab.next_measurement`."""
    _alike(lab.replays(), table)


def test_three_suggestions_remove_most_of_the_expected_regret(table):
    assert len(table) == lab.DECISIONS == 50
    assert (table.candidates >= lab.FEWEST).all()
    shares = lab.shares(table)
    assert shares["three"] >= TARGET
    assert shares["random"] < TARGET / 2 < shares["three"]
    at_stake = table[table.all_remove_usd > 0.01 * table.planned_usd]
    reached = at_stake.three_remove_usd >= TARGET * at_stake.all_remove_usd
    assert len(at_stake) >= 40
    assert reached.mean() >= 0.9


def test_decisions_differ_and_are_the_same_each_time():
    first, second = lab.decision(3), lab.decision(3)
    assert (first.model, first.systems, first.users) == (second.model, second.systems, second.users)
    assert first.request.describe() == second.request.describe()
    several = [lab.decision(number) for number in range(40)]
    assert len({one.model for one in several}) > 8
    assert {one.bill for one in several} == {"rented", "owned"}
