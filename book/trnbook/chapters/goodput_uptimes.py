"""Published uptimes of training jobs, to be held against a prediction of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from trnmodel.catalog import load
from trnmodel.reliability.goodput import Goodput
from trnmodel.result import tidy
from trnmodel.units import format_within

if TYPE_CHECKING:
    import pandas as pd

ROWS = load.DATA / "evidence" / "uptimes.csv"
LARGE = 4096  # chips; from here interruptions are in proportion to chips, by the facts of RSC-1


class Uptime(msgspec.Struct, frozen=True):
    """A line of `data/evidence/uptimes.csv`: a job, what was printed of it, and the model that stands for its own.

    `measure` is "running" (the job is up), "useful" (its work is kept too) or "by hand" (up, with people who restart);
    `used_for` names the number of the borrowed fleet that was inferred from the same job.
    """

    what: str
    system: str
    chips: float
    model: str
    measure: Literal["running", "useful", "by hand"]
    share: float
    printed: str
    used_for: str
    source: str
    locator: str
    confidence: str
    note: str


def rows() -> list[Uptime]:
    """Return the published jobs."""
    return load.read_csv(ROWS, Uptime)


def uptimes(printed: Sequence[Uptime], jobs: Sequence[Goodput]) -> pd.DataFrame:
    """Compare the printed share of useful time of each published job with a prediction of it.

    Parameters
    ----------
    printed : sequence of Uptime
        The published jobs. [-]
    jobs : sequence of Goodput
        The prediction for each. [-]

    Returns
    -------
    table : pandas.DataFrame
        what, chips, measure, printed, share, predicted with `_low` and `_high`, inside (the printed share lies within,
        or a printed "over" below the high end), lost_ratio (predicted over printed loss, NaN for an "over"), fair (a
        prediction: as many chips as rates are known for, restarts without people, nothing of the fleet from it), and
        `no_prediction` (why it is none; empty where it is one).

    Examples
    --------
    >>> import trnmodel as tm
    >>> one = rows()[0]
    >>> job = tm.goodput(one.system, one.chips, model=one.model)
    >>> bool(uptimes([one], [job]).inside[0])
    True
    """
    lines = []
    for row, job in zip(printed, jobs, strict=True):
        name = "useful_share" if row.measure == "useful" else "running_share"
        value, (low, high) = float(getattr(job, name)), map(float, job.ends(name))
        line = {"what": row.what, "chips": row.chips, "measure": row.measure, "printed": row.printed}
        line |= {"share": row.share, "predicted": value, "predicted_low": low, "predicted_high": high}
        bound = row.printed.startswith("over ")
        line |= {"inside": (bound or low <= row.share) and row.share <= high}
        line |= {"lost_ratio": np.nan if bound else (1 - value) / (1 - row.share)}
        why = _no_prediction(row)
        lines.append(line | {"fair": not why, "no_prediction": why})
    return tidy(lines)


def _no_prediction(row: Uptime) -> str:
    """Return why a printed uptime is no test of the model; empty where it is one."""
    reasons = {
        f"the {row.used_for} was inferred from it": bool(row.used_for),
        "people restarted it by hand": row.measure == "by hand",
        f"fewer than {LARGE:,} chips": row.chips < LARGE,
    }
    return "; ".join(why for why, holds in reasons.items() if holds)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return printed and predicted uptimes for a page, those that test the model first."""
    ends = table[["predicted", "predicted_low", "predicted_high"]].to_numpy()
    texts = [format_within(value, low, high, "%").replace(" %", "%") for value, low, high in 100 * ends]
    named = table.assign(job=table.what, predicted=texts, **{"no test, because": table.no_prediction})
    first = named.sort_values("fair", ascending=False, kind="stable")
    return first[["job", "chips", "printed", "predicted", "no test, because"]]


def described(table: pd.DataFrame) -> str:
    """Return as a title how many of the tests of the model lie in its range."""
    fair = table[table.fair]
    out = table[~table.fair]
    off = int((~out.inside).sum())
    return f"{int(fair.inside.sum())} of {len(fair)} tests lie in the range; {off} of {len(out)} set aside do not"
