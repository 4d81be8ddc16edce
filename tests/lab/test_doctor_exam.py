"""The exam of the doctor: the committed answers are current, and nothing that names the change is shown."""

import msgspec
import pandas as pd
import pytest

from trnlab import doctor as exam
from trnmodel.evidence.before_after import before_after


@pytest.fixture(scope="module")
def taken():
    return exam.exam()


def test_the_committed_exam_is_current(taken):
    committed = pd.read_csv(exam.EXAM, keep_default_na=False)
    pd.testing.assert_frame_equal(taken, committed, check_dtype=False)


def test_the_score_covers_enough_pairs_and_causes(taken):
    score = exam.score(taken).set_index("of")
    assert score.loc["all", "pairs"] == len(before_after())
    assert score.loc["asked", "pairs"] >= 30
    assert score.loc["asked", "causes"] >= 5
    assert 0 < score.loc["asked", "first"] <= score.loc["asked", "first_two"] <= score.loc["asked", "first_three"] <= 1


def test_the_doctor_sees_nothing_that_names_the_change():
    """What a pair says of its change, and its figure after it, are in no cell of a row that is made of the pair."""
    for pair in before_after().values():
        hidden = replace_words(pair)
        assert exam.before(pair) == exam.before(hidden)


def replace_words(pair):
    """The pair with other words, cause and figure after the change."""
    return msgspec.structs.replace(
        pair, what="something", cause="release", after=1.0, after_id="", note="", locator="x"
    )
