"""Adds what the package states today of the frozen questions to `data/evidence/frozen.csv`, with commit and date.

`python -m trnlab.freeze COMMIT DATE` adds a line for each question and each headline. Lines that are there stay as they
are: a statement that could be changed after its measurement would be none.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from datetime import date

from trnmodel.evidence.frozen import STATEMENTS, Statement, today

DIGITS = 6


def lines(commit: str, day: str) -> Iterator[list[str]]:
    """Yield what the package says today of each question, as lines of the table.

    Parameters
    ----------
    commit : str
        Commit at which the package stands. [-]
    day : str
        Date of the statement, as 2026-11-28. [-]
    """
    date.fromisoformat(day)
    for name, known in today().items():
        values = (known.now, known.now_low, known.now_high)
        yield [name, *(f"{x:.{DIGITS}g}" for x in values), known.basis, commit, day]


def main(commit: str, day: str) -> None:
    """Add the lines of a commit and a date."""
    added = list(lines(commit, day))
    new = not STATEMENTS.exists()
    with STATEMENTS.open("a", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([list(Statement.__struct_fields__)] * new + added)


if __name__ == "__main__":
    main(*sys.argv[1:])
