"""The doctor's exam: published pairs of before and after, of which the doctor sees the figure before the change.

For each pair of `data/evidence/before_after.csv` the doctor gets the measured row that is the figure before, or, where
that figure is no measured row, a row of the pair's chip, system, model, quantity, figure and stack. What changed, the
figure after, the cause and the notes of the pair are hidden. Of a measured row the rules see the typed columns alone,
which general patterns fill from its cells. The doctor's causes, in order, are compared with the cause of the pair.

The rules of `trnmodel.evidence.slow_causes` were written and committed before anything was scored, and are not tuned to
these pairs. `python -m trnlab.doctor` writes `data/evidence/doctor.csv`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from trnmodel.catalog.load import DATA
from trnmodel.evidence.before_after import Pair, before_after
from trnmodel.evidence.cells import texts
from trnmodel.evidence.doctor import Diagnosis, doctor
from trnmodel.evidence.rows import published, save
from trnmodel.evidence.slow_causes import DRAFTS
from trnmodel.evidence.software import software

if TYPE_CHECKING:
    import pandas as pd

EXAM = DATA / "evidence" / "doctor.csv"
NAMED = ("first", "second", "third")  # columns of the causes that the doctor names, in order


@cache
def _measured() -> dict[str, dict[str, str]]:
    """Return the published measured rows by id."""
    return {row["id"]: row for row in texts(published())}


def _software(stack: str) -> dict[str, str]:
    """Return the typed columns that state a stack: those of the last line of `software.csv` that stands for it."""
    lines = [one for one in software() if one.stack == stack]
    names = ("engine", "kernels", "steps", "served", "server")
    return {name: getattr(lines[-1], name).partition("|")[0] for name in names} if lines else {}


def before(pair: Pair) -> dict[str, str]:
    """Return what the doctor sees of a pair: the figure before the change and the configuration that it states.

    Parameters
    ----------
    pair : Pair
        A published pair. [-]

    Returns
    -------
    row : dict of str to str
        Cells of a measured row, without anything that names the change. [-]
    """
    if pair.before_id in _measured():
        return _measured()[pair.before_id]
    return {
        "id": pair.id,
        "instance": pair.system or pair.chip,
        "workload": pair.model,
        "metric": pair.quantity,
        "value": f"{pair.before:.15g}",
        "unit": pair.unit,
    } | _software(pair.stack)


def _named(one: Diagnosis) -> list[str]:
    """Return the causes of a diagnosis, the likeliest first, each once; no pair is about drafts."""
    return [cause for cause in dict.fromkeys(each.cause for each in one.causes) if cause != DRAFTS]


def _line(pair: Pair, one: Diagnosis) -> dict[str, Any]:
    """Return a pair with what the doctor said of it."""
    named = _named(one)
    line: dict[str, Any] = {"id": pair.id, "cause": pair.cause, "measured_row": int(pair.before_id in _measured())}
    line |= {"asked": int(one.verdict != "cannot be asked"), "meaning": one.meaning, "verdict": one.verdict}
    line |= {"place": named.index(pair.cause) + 1 if pair.cause in named else 0}
    return line | {column: named[i] if i < len(named) else "" for i, column in enumerate(NAMED)}


def exam() -> pd.DataFrame:
    """Return every pair with the causes that the doctor names.

    Returns
    -------
    pairs : DataFrame
        `id` and `cause` of the pair; `measured_row`, 1 where the figure before is a measured row; `asked`, 1 where the
        model has a prediction for it; `meaning`, `verdict`; `place`, that of the true cause among those named, 0 where
        it is none of them; and the causes that the doctor names `first`, `second` and `third`.
    """
    import pandas as pd

    return pd.DataFrame([_line(pair, doctor(before(pair)).rows[0]) for pair in before_after().values()])


def score(table: pd.DataFrame) -> pd.DataFrame:
    """Return how often the true cause is named first, of the pairs that can be asked and of all.

    Parameters
    ----------
    table : DataFrame
        What `exam` returns. [-]

    Returns
    -------
    score : DataFrame
        Rows "asked" and "all": the number of `pairs` and of different `causes`, and the shares of pairs whose true
        cause is named `first`, and among the first two and three [-].
    """
    import pandas as pd

    rows = []
    for name, some in {"asked": table[table.asked == 1], "all": table}.items():
        row: dict[str, Any] = {"of": name, "pairs": len(some), "causes": some.cause.nunique()}
        shares = {name: some.place.between(1, most).mean() for most, name in enumerate(NAMED, start=1)}
        rows.append(row | {"first": shares["first"], "first_two": shares["second"], "first_three": shares["third"]})
    return pd.DataFrame(rows)


def write() -> None:
    """Write the exam of every pair."""
    save(exam(), EXAM)


if __name__ == "__main__":
    write()
