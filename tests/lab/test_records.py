"""The typed records of all rows, and the list of rows that have no prediction with what each of them lacks."""

import pandas as pd
import pytest

from trnlab import ratchet, records
from trnmodel.evidence.rows import published, save
from trnmodel.evidence.tables import COPIES

LACKS = {"model", "meaning", "machine", "value", "input_len", "output_len", "seq_len"}


@pytest.fixture(scope="module")
def unasked():
    return pd.read_csv(records.UNASKED, dtype=str, keep_default_na=False)


def test_the_tables_are_those_of_the_rows(validated, tmp_path):
    """Else run `python -m trnlab.records`."""
    save(records.unasked(validated), tmp_path / "unasked.csv")
    assert (tmp_path / "unasked.csv").read_text() == records.UNASKED.read_text()
    save(records.records(), tmp_path / "records.csv", "%.10g")
    assert (tmp_path / "records.csv").read_text() == records.RECORDS.read_text()


def test_every_row_is_predicted_or_says_what_it_lacks(validated, unasked):
    every = set(published().id)
    predicted = set(validated.id[validated.skipped == ""])
    assert predicted | set(unasked.id) == every
    assert not predicted & set(unasked.id)
    assert set(unasked.missing) <= LACKS
    assert (unasked.skipped != "").all()


def test_rows_that_were_predicted_before_records_were_typed(validated, unasked):
    """Of 2,370 rows 88 were asked with lengths that nobody stated, or with work that the model does not time."""
    predicted = set(validated.id[validated.skipped == ""])
    before = set(pd.read_csv(ratchet.PREDICTED, dtype=str).id)
    lost = unasked[unasked.id.isin(before - predicted)]
    assert lost.missing.value_counts().to_dict() == {"input_len": 49, "meaning": 19, "output_len": 11, "seq_len": 9}


def test_few_votes_are_set_aside_for_other_causes_than_a_repeat(validated):
    predicted = validated[validated.skipped == ""]
    aside = predicted[(predicted.weight == 0) & ~predicted.set_aside.str.contains(COPIES)]
    assert len(aside) <= 0.03 * len(predicted)
    assert aside.set_aside.str.startswith("rounded").all()
