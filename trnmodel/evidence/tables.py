"""Tables of errors and fits that the lab has written, and the names of their groups and splits.

`python -m trnlab.tables` writes `data/evidence/tables/*.csv` with all digits, so that a number reads back to the same
bits; the chapters show these tables and compute none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import refuse
from trnmodel.catalog.load import DATA
from trnmodel.evidence.rows import published
from trnmodel.evidence.score import grouped

if TYPE_CHECKING:
    import pandas as pd

FOLDER = DATA / "evidence" / "tables"
TARGETS, TABLE, ROWS = (DATA / "evidence" / f"{name}.csv" for name in ("targets", "accuracy", "judged"))
FITTED, LEFT_OUT, FAMILY = "as fitted", "model left out", "Trn2 from Trn1 and Inf2"
CHIP, SOURCE = "chip left out", "page left out"
OUTSIDE = "outside the fits"
BY: Mapping[str, str] = {LEFT_OUT: "model", CHIP: "chip", SOURCE: "source"}  # what a split leaves out
GROUPS: Mapping[str, str] = {
    "decode": "dense decode",
    "expert-decode": "MoE and hybrid decode",
    "prefill": "TTFT",
    "expert-prefill": "TTFT of MoE and hybrids",
    "encoder": "encoders, latency",
    "server": "TPOT under load",
}
KERNELS = ("framework-compile", "framework-trace")  # groups of kernels that have fitted constants
TUNED = "tuned-nki"
COPIES = r"same run|whose middle counts"  # copies and percentiles
EXCUSED = rf"{COPIES}|^GPU"  # and chips of others
TDP_SHARE = 0.75  # that others take for the mean draw of a GPU


def table(name: str, **where: Any) -> pd.DataFrame:
    """Return a table that the lab has written, or the rows of it that have some values, without these columns.

    Examples
    --------
    >>> table("errors_by_regime", group="dense decode").columns.tolist()
    ['regime', 'configurations', 'error', 'error_low', 'error_high']
    """
    import pandas as pd

    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        refuse("name", name, f"allowed are {', '.join(sorted(one.stem for one in FOLDER.glob('*.csv')))}")
    rows = pd.read_csv(path, keep_default_na=False, na_values=["nan"])
    for column, value in where.items():
        rows = rows[rows[column] == value].drop(columns=column).reset_index(drop=True)
    return rows


def accuracy() -> pd.DataFrame:
    """Return the accuracy table as it stands in `data/evidence/accuracy.csv`."""
    import pandas as pd

    return pd.read_csv(TABLE).fillna({"reached": ""})


def judged() -> pd.DataFrame:
    """Return every published row as `tm.validation()` judged it when `data/evidence/judged.csv` was written."""
    import pandas as pd

    rows = published()
    known = pd.read_csv(ROWS, keep_default_na=False, na_values={"predicted": "", "error": "", "low": "", "high": ""})
    return grouped(rows.merge(known, on="id", how="inner", validate="1:1"))


def aside_share(rows: pd.DataFrame) -> float:
    """Share of the predicted rows of Neuron chips that count nowhere, copies, percentiles and roundings apart."""
    predicted = rows[(rows.skipped == "") & ~rows.set_aside.str.contains("^GPU")]
    return float((predicted.weight.eq(0) & ~predicted.set_aside.str.contains(COPIES)).mean())


def sources(name: str, without: str = "") -> set[str]:
    """Return the sources of the rows of `data/evidence/NAME.csv`, those of one `use` left out where it is named.

    Examples
    --------
    >>> "" in sources("training", without="aside")
    False
    """
    import pandas as pd

    rows = pd.read_csv(DATA / "evidence" / f"{name}.csv", dtype=str, keep_default_na=False)
    return {*(rows[rows.use != without] if without else rows).source}
