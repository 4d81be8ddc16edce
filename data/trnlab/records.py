"""The typed records of all published rows, and what each row lacks that cannot be asked.

`python -m trnlab.records` writes `data/evidence/records.csv`, a line for each row with the columns that its words and
its page state, and `data/evidence/unasked.csv`; a test checks that both are current.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnmodel.catalog.load import DATA
from trnmodel.evidence.records import TYPES, read
from trnmodel.evidence.rows import published, save
from trnmodel.evidence.score import validation

if TYPE_CHECKING:
    import pandas as pd

RECORDS, UNASKED = (DATA / "evidence" / f"{name}.csv" for name in ("records", "unasked"))
SHOWN = "id kind workload metric missing skipped".split()


def records() -> pd.DataFrame:
    """Return the record of each published row: its id and the typed columns that are known of any row."""
    import pandas as pd

    lines = [{"id": row["id"], **read(row)[0].known()} for row in published().to_dict("records")]
    table = pd.DataFrame(lines)
    return table[["id", *(name for name in TYPES if name in table.columns)]]


def unasked(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have no prediction, each with what it lacks and the reason."""
    return judged.loc[judged.skipped != "", SHOWN]


def write() -> None:
    """Write both tables."""
    save(records(), RECORDS, "%.10g")
    save(unasked(validation()), UNASKED)


if __name__ == "__main__":
    write()
