"""Intervals from errors that were left out, and how often they hold: the files that `catalog.bands` reads.

A question's band is the scale of the errors around it, grown with the distance to the nearest row, times the quantile
that 90 % of errors stay within. That quantile is split conformal by page: each row's error is divided by the scale that
the rows of all *other* pages give it, so that what is calibrated is a new page, with a level of its own. Rows whose
constants were fitted without a page are left out by page, others by model or shape (`left`).

No constant of this form was chosen by the error that is reported. A row counts half for each octave, because a factor
of two is what makes a neighbour; rows at the point have as much say as their group (one row), and the rows of a page
share half of their variance. What a column that nobody stated adds comes from rows that were read with it and without.
One rule of form was set after errors by basis had been seen: a point with such a column is called extrapolated.

Errors are those of times: of a rate the sign turns. `python -m trnlab.accuracy` writes all files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnlab.footprints import FOOTPRINT, WHOLE, whole
from trnmodel.bands import judged, lacks
from trnmodel.catalog.bands import AXES, BANDS, HULLS, LABELS, Width
from trnmodel.catalog.load import DATA
from trnmodel.evidence.rows import save
from trnmodel.evidence.search import left_out
from trnmodel.formulas.bands import (
    NOMINAL,
    PRIOR_CASES,
    conformal_width,
    effective_rows,
    interval_score,
    local_scale,
    shrunk_width,
    tail_widths,
)
from trnmodel.neighbours import ABSENT_OCTAVES, STEP, UNSTATED_GROWTH, Rows, growth, places_of, sizes_of
from trnmodel.result import BASES

if TYPE_CHECKING:
    import pandas as pd

COVERAGE = DATA / "evidence" / "coverage.csv"
POOLS = {"kernel": "kernels", "collective": "collectives"}  # by part; other chips are a pool
OTHERS, MODELS = "other chips", "models"
PLACE = {"ranks": "ranks", "batch": "sequences", "length": "length", "size": "size"}
TELLING = ["group", "part", "kind", "chip", "on", *PLACE.values(), "source", "log_error", "unknown"]
FEW, RANKED = 30, 60  # cases of a group from which on its share inside, and its rank correlation, are judged
# Of the variance of which errors lie beyond the quantile of their group, what those of one name have in common: 0.13
# pairwise over all groups of twenty, at the quantile that a band takes.
BEYOND_SHARE = 0.13
NOWHERE = 1e-9  # weight of rows that were taken away again
NARROWEST = 0.1  # of the scale, of a side on which hardly an error lies
ROUNDING = 1e-9  # by which an error on the edge of its band may lie outside


def pool_of(group: str, part: str) -> str:
    """Return groups whose widths are drawn together: of models, of other chips, of kernels, of collectives."""
    return OTHERS if group == "comparator" else POOLS.get(part, MODELS)


class Others:
    """Rows of a pool, each with what the rows of all other names say of it.

    Rows that `informs` say something of others: as they are read with what their pages state. Rows that `tests` are
    what a band is calibrated to: as a stranger reads them. A row without a page of its own is both.
    """

    def __init__(self, rows: pd.DataFrame, by: str) -> None:
        self.rows, self.names = rows, rows[by].to_numpy(dtype=object)
        self.logs = sizes_of(rows.log_error.to_numpy(), rows.unknown.to_numpy())
        self.pages, codes = np.unique(rows.source.to_numpy(dtype=object).astype(str), return_inverse=True)
        self.on_page = np.eye(len(self.pages))[codes]
        self.of_name = np.eye(len({*self.names}))[np.unique(self.names.astype(str), return_inverse=True)[1]]
        self.informs, self.tests = rows.informs.to_numpy(), rows.tests.to_numpy()
        other = (self.names[:, None] != self.names[None]) & self.informs
        places = places_of(rows[[*PLACE.values()]].to_numpy(dtype=float))
        octaves = np.nan_to_num(np.abs(places[:, None] - places[None])).sum(axis=-1)
        for label in ("kind", "chip", "on"):
            octaves += ABSENT_OCTAVES * ~_same(rows, label)
        self.octaves = np.where(_same(rows, "part") & other, octaves, np.inf)
        of_all = [np.exp2(-self.octaves), other * _same(rows, "group"), other * 1.0]
        self.levels = [np.asarray(weights, dtype=float) for weights in of_all]
        self.sums = [(weights @ self.on_page, (weights * self.logs) @ self.on_page) for weights in self.levels]

    def normalised(self, without: NDArray) -> NDArray:
        """Return the error of each row over its band's scale, from the rows of other names but some."""
        gone, kept = self.on_page[without], ~without
        found = []
        for weights, sums in zip(self.levels, self.sums, strict=True):
            less = weights[:, without] @ gone, (weights[:, without] * self.logs[without]) @ gone
            rows, logs = (one - other for one, other in zip(sums, less, strict=True))
            found.append((np.where(rows > NOWHERE, rows, 0.0), logs))
        near, of_group, of_pool = found
        pooled = local_scale(*of_pool, 1.0, NOWHERE)
        scale = local_scale(*near, local_scale(*of_group, pooled, PRIOR_CASES))
        nearest = np.min(self.octaves[:, kept], axis=1, initial=3 * ABSENT_OCTAVES + 99)
        nearest = np.where(nearest < 99, nearest, 3 * ABSENT_OCTAVES)
        wide = scale * growth(nearest) * UNSTATED_GROWTH ** self.rows.unknown.to_numpy()
        return self.rows.log_error.to_numpy() / wide

    def typical(self, which: NDArray) -> tuple[NDArray, NDArray]:
        """Return the rows that say something, and the sums of the logarithms of their errors, of some rows by page."""
        which = which & self.informs
        return self.on_page[which].sum(axis=0), self.logs[which] @ self.on_page[which]

    def worth(self, which: NDArray) -> NDArray:
        """Return the independent rows that each of some rows is worth: those of one name have its level in common."""
        on_name = self.of_name[which].sum(axis=0)
        each = effective_rows(on_name, BEYOND_SHARE) / np.maximum(on_name, 1.0)
        return np.asarray(self.of_name @ each)

    def widths(self, without: NDArray | None = None) -> dict[str, Width]:
        """Return the width of each group from all rows but some."""
        without = np.zeros(len(self.rows), dtype=bool) if without is None else without
        kept, errors = ~without, self.normalised(without)
        if not kept.any():
            return {}
        pooled = float(local_scale(*self.typical(kept), 1.0, NOWHERE))
        tried = kept & self.tests
        worth = self.worth(tried)[tried]
        whole, tails = float(conformal_width(errors[tried], weights=worth)), tail_widths(errors[tried], weights=worth)
        sides = [max(float(tail), NARROWEST) if np.isfinite(tail) else whole for tail in tails]
        groups, found = self.rows.group.to_numpy(dtype=object), dict[str, Width]()
        for group in dict.fromkeys(groups[kept]):
            own = kept & (groups == group)
            tried = own & self.tests
            e, w = errors[tried], self.worth(tried)[tried]
            n = float(w.sum())
            scale = float(local_scale(*self.typical(own), pooled, PRIOR_CASES))
            both = float(shrunk_width(conformal_width(e, weights=w), n, whole))
            own_tails = (np.maximum(tail, NARROWEST) for tail in tail_widths(e, weights=w))  # NaN of few cases stays
            ends = (float(shrunk_width(tail, n, side)) for tail, side in zip(own_tails, sides, strict=True))
            pages = int((self.typical(own)[0] > 0).sum())
            found[group] = Width(group, self.rows.pool.iloc[0], int(tried.sum()), pages, scale, pooled, both, *ends)
        return found


def _same(rows: pd.DataFrame, label: str) -> NDArray:
    values = rows[label].fillna("").to_numpy(dtype=object)
    return np.asarray(values[:, None] == values[None], dtype=bool)


def widths(rows: pd.DataFrame, by: str = "left") -> dict[str, Width]:
    """Return the width of each group of left-out errors, calibrated with the names of a column left out in turn."""
    found = dict[str, Width]()
    for _, some in rows.groupby("pool", sort=False):
        found |= Others(some, by).widths()
    return found


def hulls(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured with its error, each configuration of a page once."""
    table = rows.loc[rows.informs, TELLING].drop_duplicates().sort_values(TELLING, kind="stable", ignore_index=True)
    return table.rename(columns={"on": "stack"} | {column: axis for axis, column in PLACE.items()})


def known(rows: pd.DataFrame, of: Mapping[str, Width]) -> Rows:
    """Rows and widths as `catalog.bands` has them."""
    rows = rows[rows.informs]
    labels = {
        name: rows[column].fillna("").to_numpy(dtype=object) for name, column in zip(LABELS, TELLING, strict=False)
    }
    errors = {name: rows[name].to_numpy() for name in ("source", "log_error", "unknown")}
    return Rows(labels, rows[[*PLACE.values()]].to_numpy(dtype=float).T, errors, of)


def write(rows: pd.DataFrame, bands: Path = BANDS, measured: Path = HULLS) -> None:
    """Write widths and measured configurations, four and six significant digits."""
    import pandas as pd

    columns = [*Width.__struct_fields__]
    every = [*widths(rows).values(), *width_of_whole(rows)]
    table = pd.DataFrame([[getattr(one, name) for name in columns] for one in every], columns=columns)
    save(table, bands, "%.4g")
    save(pd.concat([hulls(rows), hulls(whole(rows))], ignore_index=True), measured)


def width_of_whole(rows: pd.DataFrame) -> list[Width]:
    """Return the width of a rank's whole memory, in the pool of models, of whose other widths it changes none."""
    import pandas as pd

    others = rows[(rows.pool == MODELS) & (rows.part != FOOTPRINT)]
    joint = pd.concat([others, whole(rows)], ignore_index=True)
    return [one for one in Others(joint, "left").widths().values() if one.group == WHOLE]


def held(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Left-out errors with the band and the basis that the rows of all other names give them, and a constant band.

    Parameters
    ----------
    rows : DataFrame
        Left-out errors (`log_error`, of a time) with what was asked of each. [-]
    by : str
        The column whose names are left out: "left" (the page where constants were fitted without it, else the model),
        "source", "model" or "chip". [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows with basis, below, above, width (half of both), inside, score (Winkler's) and constant_width,
        constant_inside, constant_score. [-]
    """
    rows = rows[rows.part != FOOTPRINT].reset_index(drop=True)  # whose constants are of the same rows
    pools = {pool: Others(some, by) for pool, some in rows.groupby("pool", sort=False)}
    names, pool = rows[by].to_numpy(dtype=object), rows.pool.to_numpy(dtype=object)
    whole = {pool: one.widths() for pool, one in pools.items()}

    def learned(train: list[int], test: list[int]) -> list[tuple]:
        name, others = names[test[0]], rows.iloc[train]
        of = dict[str, Width]()
        for own, one in pools.items():
            out = one.names == name
            of |= one.widths(out) if out.any() else whole[own]
        told = others.log_error[others.tests]
        constant = {own: float(conformal_width(told[others.pool[others.tests] == own])) for own in {*pool[test]}}
        found = _judged(known(others, of), rows.iloc[test])
        return [(*one, constant[own]) for one, own in zip(found, pool[test], strict=True)]

    left = left_out(range(len(rows)), names.__getitem__, learned)
    columns = dict(zip(("below", "above", "word", "constant_width"), left.T, strict=True))
    found = rows.assign(**columns)
    found["basis"] = np.asarray(BASES, dtype=object)[found.pop("word").to_numpy(dtype=int)]
    found["width"] = (found.below + found.above) / 2
    for prefix, below, above in (("", found.below, found.above), ("constant_", *[found.constant_width] * 2)):
        found[f"{prefix}inside"] = (found.log_error <= below + ROUNDING) & (-found.log_error <= above + ROUNDING)
        found[f"{prefix}score"] = interval_score(found.log_error, below, above)
    return found[found.tests].reset_index(drop=True)


def _judged(base: Rows, some: pd.DataFrame) -> list[tuple[float, float, int]]:
    """Return the half-widths below and above that rows would have been given, and the place of their basis."""
    found = dict[int, tuple[float, float, int]]()
    some = some.assign(place=range(len(some)), on=some["on"].fillna(""))
    axes = {axis: some[column].notna() for axis, column in PLACE.items()}
    asked = [some[name] for name in ("part", "kind", "chip", "on")]
    for _, rows in some.groupby([*asked, *axes.values()], sort=False):
        one = rows.iloc[0]
        about = (one["part"], one["kind"], one["chip"], one["on"])
        points = {axis: rows[column].to_numpy() for axis, column in PLACE.items() if np.isfinite(one[column])}
        here = base.near(*about)
        basis = judged(here, points, (), lacks(here, *about), rows.unknown.to_numpy())
        below, above = (np.broadcast_to(side, len(rows)) for side in basis.sides)
        words = np.array([BASES.index(word) for word in np.broadcast_to(basis.word, len(rows))])
        words = np.where(_contradicted(base, about, points, below, above), BASES.index("extrapolated"), words)
        found |= dict(zip(rows.place, zip(below, above, words, strict=True), strict=True))
    return [found[i] for i in range(len(some))]


def _contradicted(
    base: Rows, about: tuple[str, ...], points: Mapping[str, NDArray], below: NDArray, above: NDArray
) -> NDArray:
    """Return whether a row lies at each point whose own value is outside of the band there."""
    same = np.logical_and.reduce([base.labels[name] == x for name, x in zip(LABELS[1:], about, strict=True)])
    at: Any = np.ones((len(below), int(same.sum())), dtype=bool)
    for axis, x in points.items():
        values = base.values[AXES.index(axis), same]
        at &= np.isnan(values) | ((values / STEP <= x[:, None]) & (x[:, None] <= values * STEP))
    errors = base.log_errors[same]
    outside = (errors > below[:, None] + ROUNDING) | (-errors > above[:, None] + ROUNDING)
    return (at & outside).any(axis=1)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """How often intervals hold and how wide they are: of all rows, by basis, by pool and by group.

    Returns
    -------
    table : pandas.DataFrame
        of ("all", "basis", "pool", "group"), name, cases, pages, share (of all cases), inside,
        page_inside (mean over pages), fast and slow (shares whose measured time is less, or more, than the band
        allows), median_error and width (of the logarithm), score and constant_score (Winkler's, mean), correlation
        (Spearman's, of width and size of error), p (binomial test of 90 %) and holm (p by group, corrected). [-]
    """
    import pandas as pd

    parts: list[tuple[str, Any]] = [("all", np.full(len(found), "all")), ("basis", found.basis)]
    parts += [("pool", found.pool), ("group", found.group)]
    lines = []
    for of, by in parts:
        names = [name for name in BASES if name in {*by}] if of == "basis" else [*dict.fromkeys(by)]
        lines += [{"of": of, "name": name} | _line(found[by == name], len(found)) for name in names]
    table = pd.DataFrame(lines)
    tested = (table.of == "group") & (table.cases >= FEW)
    table.loc[tested, "holm"] = holm(table.p[tested].to_numpy())
    return table


def _line(rows: pd.DataFrame, cases: int) -> dict[str, Any]:
    from scipy.stats import binomtest

    size = rows.log_error.abs()
    return {
        "cases": len(rows),
        "pages": rows.source.nunique(),
        "share": len(rows) / cases,
        "inside": rows.inside.mean(),
        "page_inside": rows.inside.groupby(rows.source).mean().mean(),
        "fast": (rows.log_error > rows.below + ROUNDING).mean(),
        "slow": (-rows.log_error > rows.above + ROUNDING).mean(),
        "median_error": size.median(),
        "width": rows.width.median(),
        "score": rows.score.mean(),
        "constant_score": rows.constant_score.mean(),
        "correlation": rows.width.rank().corr(size.rank()) if len(rows) > 2 else np.nan,
        "p": binomtest(int(rows.inside.sum()), len(rows), NOMINAL).pvalue,
    }


def holm(p: NDArray) -> NDArray:
    """Return p values of several tests as Holm corrects them.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    found = np.empty(len(p))
    found[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return found
