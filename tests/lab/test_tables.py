"""Tables that chapters show: the committed files are what the code makes now, and read back to the same bits."""

import numpy as np
import pandas as pd
import pytest

from trnlab.tables import TABLES
from trnmodel.evidence.tables import FOLDER, sources, table


def test_there_is_a_file_for_each_table_and_no_other():
    assert {path.stem for path in FOLDER.iterdir()} == set(TABLES)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_file_is_what_the_code_makes(name):
    """CPUs differ in the last bits of a logarithm; a fit may turn them into the tenth digit."""
    made = TABLES[name]()
    made = made.where(made.notna(), np.nan)  # None is written as NaN
    pd.testing.assert_frame_equal(table(name), made, check_exact=False, rtol=1e-9, atol=1e-12)


def test_a_table_reads_back_to_the_same_bits():
    for name in ("other_chips_bounds", "training_errors"):
        text = table(name).to_csv(index=False, na_rep="nan", lineterminator="\n")
        assert text == (FOLDER / f"{name}.csv").read_text()


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match=r"name='kernel': allowed are .* kernels,"):
        table("kernel")


def test_sources_of_rows_that_count():
    assert sources("training", without="aside") < sources("training")
