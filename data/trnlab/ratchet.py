"""No group gets worse and no row is lost unseen: the floors that a change of the model is held to.

`python -m trnlab.ratchet` lowers the floors of groups that got better and adds rows that are predicted now;
a floor is raised, or a row dropped, by hand alone, with a line under "Numbers that changed" in CHANGELOG.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnlab import table
from trnlab.accuracy import FITTED
from trnmodel.catalog.load import DATA
from trnmodel.evidence.rows import save
from trnmodel.evidence.score import validation

if TYPE_CHECKING:
    import pandas as pd

FLOOR, PREDICTED = (DATA / "evidence" / f"{name}.csv" for name in ("accuracy_floor", "predicted"))
KEYS = ["group", "split"]
ROOM, POINTS = 1.1, 0.02  # a tenth and two points above the floor


def today(rows: pd.DataFrame, found: pd.DataFrame) -> tuple[pd.DataFrame, set[str]]:
    """Median errors by group and split of their accuracy table, and the ids of the rows that have a prediction."""
    kept = found[~found.split.eq(FITTED) & (found.cases > 2)]
    return kept[[*KEYS, "median_error"]].reset_index(drop=True), set(rows.id[rows.skipped == ""])


def worse(now: pd.DataFrame, floor: pd.DataFrame) -> pd.DataFrame:
    """Return groups whose median error is more than a tenth and two points above their floor, or that are gone.

    Examples
    --------
    >>> import pandas as pd
    >>> floor = pd.DataFrame({"group": ["a", "b", "c"], "split": "s", "median_error": [0.1, 0.1, 0.1]})
    >>> now = pd.DataFrame({"group": ["a", "b"], "split": "s", "median_error": [0.129, 0.131]})
    >>> worse(now, floor).group.tolist()
    ['b', 'c']
    """
    both = floor.merge(now, how="left", on=KEYS, suffixes=("_floor", ""))
    return both[~(both.median_error <= both.median_error_floor * ROOM + POINTS)]


def allowed(changelog: str) -> str:
    """Return what stands under "Numbers that changed" of the first release of a changelog."""
    first = changelog.split("\n## ")[1]
    return "".join(part.split("\n### ")[0] for part in first.split("### Numbers that changed")[1:])


def write() -> None:
    """Lower floors and add rows; nothing is raised or dropped. The table and the judged rows are written anew."""
    import pandas as pd

    rows = validation()
    found = table.accuracy_table(rows)
    table.write(rows, found)
    now, ids = today(rows, found)
    now = pd.concat([pd.read_csv(FLOOR), now]).groupby(KEYS, sort=False).median_error.min().reset_index()
    save(now[[*KEYS, "median_error"]], FLOOR, "%.4f")
    save(pd.DataFrame({"id": sorted(ids | set(pd.read_csv(PREDICTED, dtype=str).id))}), PREDICTED)


if __name__ == "__main__":
    write()
