"""How far own rows take the error of others: each page of measurements plays a stranger's cluster in turn.

The constants that a page is asked with are fitted to the other pages. So is the distribution that its rows update:
pages are dealt into folds, and that of a fold is found on the others. Then the update of `tm.calibrate` takes one row,
and the others of its part at the same model and mapping are predicted; and it takes 1, 3 and 10 rows of the page, drawn
by chance, and all others are predicted. Beside the errors stand those without own rows, and the floor: a stack that is
calibrated on all rows of the page, those that are predicted among them. No band has seen the page.

`python -m trnlab.calibrated` writes `data/evidence/calibrated.csv`, a line for each part and number of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trnlab.constants_prior import Cluster, clusters, observed, prior_of
from trnlab.pages import by_page
from trnmodel.arguments import NoteWarning
from trnmodel.catalog.load import DATA
from trnmodel.evidence.calibration import Row, calibrated_stack
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.fit import Case
from trnmodel.evidence.grounds import banded, part
from trnmodel.evidence.prior import LIKE, PARTS, Prior
from trnmodel.evidence.rows import save

if TYPE_CHECKING:
    import pandas as pd

CALIBRATED = DATA / "evidence" / "calibrated.csv"
FOLDS, DRAWS = 5, 4
OTHERS = (1, 3, 10)  # rows of a page that are taken to predict its others
SAME, PAGE = "same model, mapping and part", "other rows of the page"
LARGE = "other rows of a page with more than ten"  # the same rows, whatever their number is
ALL = "all"


class Prediction(NamedTuple):
    """A row that was predicted after others of its page: logarithms of measured over predicted, and its band."""

    page: str
    cluster: int
    place: int
    part: str
    rows: str
    number: int
    without: float
    after: float
    floor: float
    width: float
    inside: bool


def folds(pages: Sequence[str], many: int = FOLDS) -> dict[str, int]:
    """Return the fold of each page: they are dealt out in the order of their names.

    Examples
    --------
    >>> folds(["b", "a", "c"], 2)
    {'a': 0, 'b': 1, 'c': 0}
    """
    return {page: i % many for i, page in enumerate(sorted({*pages}))}


def priors(of: Sequence[Cluster]) -> dict[str, Prior]:
    """Return by page the distribution that the pages of the other folds have."""
    rows, fold = observed(of), folds([one.page for one in of])
    numbers = np.array([fold[page] for page in rows.pages])
    by_fold = {i: prior_of(rows.some(np.flatnonzero(numbers != i)), shared=False) for i in range(FOLDS)}
    return {page: by_fold[i] for page, i in fold.items()}


def where_of(case: Case) -> tuple[Any, ...]:
    """Return what rows share that are of one model, mapping and part."""
    r = case.reading
    return r.model_id, r.where, r.mapping, r.ep, r.moe_ep, _part(case)


def _part(case: Case) -> str:
    about = part(case.reading.meaning)
    return LIKE.get(about, about)


class Page:
    """A cluster whose rows are predicted after some of them."""

    def __init__(self, number: int, cluster: Cluster, prior: Prior) -> None:
        self.number, self.cluster, self.prior = number, cluster, prior
        first = self.judged(cluster.stack, range(len(cluster.cases)))
        self.places = [i for i, one in first.items() if one is not None]
        self.before = {i: one[0] for i, one in first.items() if one is not None}
        self.floor = self.after(self.places)

    def judged(self, stack: Any, places: Sequence[int]) -> dict[int, tuple[float, float, bool] | None]:
        """Return error, half-width and whether the band holds it of rows that are asked with a stack; None for none."""
        cases = [self.cluster.cases[i] for i in places]
        answers = banded(replace(case.reading, stack=stack) for case in cases)
        return {
            i: None
            if isinstance(one, UnreadableRowError)
            else (
                float(np.log(case.measured / one.value)),
                float(np.log(one.high / one.low) / 2),
                bool(one.low <= case.measured <= one.high),
            )
            for i, case, one in zip(places, cases, answers, strict=True)
        }

    def after(
        self, seen: Sequence[int], of: Sequence[int] | None = None
    ) -> dict[int, tuple[float, float, bool] | None]:
        """Return what is known of rows after some were seen: by default of all."""
        e = self.cluster.stack
        rows = {i: Row(replace(c.reading, stack=e), c.measured, e) for i in seen for c in [self.cluster.cases[i]]}
        stack, _ = calibrated_stack(rows, [[i] for i in seen], self.prior)
        return self.judged(stack, self.places if of is None else of)

    def predictions(self, seen: Sequence[int], of: Sequence[int], rows: str) -> Iterator[Prediction]:
        """Yield the rows that are predicted after some were seen."""
        for i, one in self.after(seen, of).items():
            floor = self.floor[i]
            if one is not None and floor is not None:
                name, page = _part(self.cluster.cases[i]), self.cluster.page
                yield Prediction(
                    page, self.number, i, name, rows, len(seen), self.before[i], one[0], floor[0], one[1], one[2]
                )

    def replay(self, order: np.random.Generator) -> Iterator[Prediction]:
        """Yield all predictions of the page: after one row at the same place, and after some rows by chance."""
        at = {i: where_of(self.cluster.cases[i]) for i in self.places}
        for i in self.places:
            others = [j for j in self.places if j != i and at[j] == at[i]]
            if others:
                yield from self.predictions([i], others, SAME)
        for many in (n for n in OTHERS if n < len(self.places)):
            for _ in range(DRAWS):
                drawn = order.permutation(self.places).tolist()
                yield from self.predictions(drawn[:many], drawn[many:], PAGE)


def replays(of: Sequence[Cluster], prior: Mapping[str, Prior]) -> pd.DataFrame:
    """Return every row that was predicted after others of its page."""
    import pandas as pd

    order = np.random.default_rng(0)
    pages = (Page(i, one, prior[one.page]) for i, one in enumerate(of))
    with warnings.catch_warnings(action="ignore", category=NoteWarning):  # of rows on another machine of the page
        return pd.DataFrame([line for page in pages for line in page.replay(order)])


def summary(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the errors by part: each row that was predicted counts once, with its median over what was seen.

    Returns
    -------
    table : pandas.DataFrame
        rows (which were seen), number (how many), part, cases, pages, median_error without own rows, after them and at
        the floor, median_width (half-width of the band's logarithm), inside (share of predictions in their band). [-]
    """
    import pandas as pd

    many = lines[lines.number == max(OTHERS)]
    large = lines[(lines.rows == PAGE) & lines.cluster.isin({*many.cluster})]
    lines = pd.concat([lines, large.assign(rows=LARGE)])
    every = pd.concat([lines, lines.assign(part=ALL)])
    sizes = {name: np.abs(np.expm1(-every[name])) for name in ("without", "after", "floor")}
    each = every.assign(**sizes).groupby(["rows", "number", "part", "page", "cluster", "place"], sort=False)
    ones = each.agg(
        without=("without", "median"),
        after=("after", "median"),
        floor=("floor", "median"),
        width=("width", "median"),
        inside=("inside", "mean"),
    ).reset_index()
    table = ones.groupby(["rows", "number", "part"], sort=False).agg(
        cases=("after", "size"),
        pages=("page", "nunique"),
        error_without=("without", "median"),
        error_after=("after", "median"),
        error_floor=("floor", "median"),
        median_width=("width", "median"),
        inside=("inside", "mean"),
    )
    table = table.reset_index()
    places = [{name: i for i, name in enumerate(names)} for names in ((SAME, PAGE, LARGE), (*PARTS, ALL))]
    table = table.assign(first=table.rows.map(places[0]), last=table.part.map(places[1]))
    return table.sort_values(["first", "number", "last"], kind="stable", ignore_index=True).drop(
        columns=["first", "last"]
    )


def write() -> None:
    """Replay all pages anew and write the errors."""
    of = clusters(by_page())
    save(summary(replays(of, priors(of))), CALIBRATED)


if __name__ == "__main__":
    write()
