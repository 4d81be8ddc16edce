"""How the error of a page's rows falls with rows of the page that were seen before, as the lab replayed it.

Each page of measurements plays the cluster of a stranger in turn. `trnlab.calibrated` writes the errors.
"""

from __future__ import annotations

import pandas as pd

from trnmodel.catalog.load import DATA

CALIBRATED = DATA / "evidence" / "calibrated.csv"
SAME, LARGE = "same model, mapping and part", "other rows of a page with more than ten"
PARTS = {
    "all": "all",
    "decode": "decode steps",
    "prefill": "first tokens alone",
    "queue": "first tokens in a queue",
    "load": "tokens under load",
    "throughput": "throughput",
    "request": "whole requests under load",
    "run": "whole requests alone",
}  # names of parts of a serving stack; the first are all of them together
SEEN, FLOOR = "after own rows", "noise floor"


def _replays() -> pd.DataFrame:
    """Return the lab's table with the parts by the names that a reader knows."""
    table = pd.read_csv(CALIBRATED)
    return table[table.part.isin(PARTS)].assign(part=table.part.map(PARTS))


def falling() -> pd.DataFrame:
    """Return the median error of rows of large pages after none, 1, 3 and 10 other rows of their page.

    Returns
    -------
    table : pandas.DataFrame
        part, own_rows, median_error, line ("after own rows", or "noise floor": the error with all rows of the page
        seen, those that are predicted among them), cases. [-]

    Examples
    --------
    >>> table = falling()
    >>> table.part.iloc[0], sorted(set(table.own_rows)), sorted(set(table.line))
    ('all', [0, 1, 3, 10], ['after own rows', 'noise floor'])
    """
    table = _replays()
    table = table[table.rows == LARGE].sort_values("number", kind="stable")
    first = table[table.number == 1]
    named = {"error_after": "median_error"}
    seen = [first.assign(number=0, error_after=first.error_without), table]
    floor = [one.assign(error_after=one.error_floor) for one in (first.assign(number=0), table)]
    lines = pd.concat([pd.concat(some).assign(line=name) for name, some in ((SEEN, seen), (FLOOR, floor))])
    lines = lines.rename(columns=named | {"number": "own_rows"})
    places = {name: place for place, name in enumerate(PARTS.values())}
    order = lines.assign(place=lines.part.map(places)).sort_values(["place", "line", "own_rows"], kind="stable")
    return order[["part", "own_rows", "median_error", "line", "cases"]].reset_index(drop=True)


def after_one() -> pd.DataFrame:
    """Return the errors before and after one row of the same model, mapping and part, beside the noise floor.

    Returns
    -------
    table : pandas.DataFrame
        part, median_error_before, median_error_after, median_error_floor, share_inside (of the 90 % band), cases,
        pages. [-]

    Examples
    --------
    >>> bool((after_one().median_error_floor < after_one().median_error_before).all())
    True
    """
    table = _replays()
    table = table[table.rows == SAME]
    names = {"error_without": "before", "error_after": "after", "error_floor": "floor"}
    table = table.rename(columns={name: f"median_error_{end}" for name, end in names.items()})
    table = table.rename(columns={"inside": "share_inside"})
    columns = [*(f"median_error_{end}" for end in names.values()), "share_inside", "cases", "pages"]
    order = [name for name in PARTS.values() if name in set(table.part)]
    return table.set_index("part").loc[order, columns].reset_index()
