"""How the constants of stacks vary from page to page: the distribution that `tm.calibrate` begins with.

Each page of measurements is somebody's cluster. What its rows say of a prediction whose constants have not seen the
page is the sum of four things: the constants differ there, each by some deviations of its shipped range; whole decode
steps and prefills take longer or shorter, both or one of them; releases and machines have such levels in common; and
each row has a scatter of its own, by the part of the model that it measures. All of these have
one unknown scale for each cluster, since some clusters are as the model has them and others far from it: a hierarchy of
Student's t. The variances are those under which the pages are most likely. The form was chosen for its meaning; between
forms the likelihood decided, not the error that is reported: it gives no variance to a level of loaded servers, which
therefore is none of the model, and next to none to those of releases and machines.

A band needs more than the scatter of the middle: `left` is the deviation with which nine of ten rows of pages lie
inside, after 1, 3 and 10 other rows of their page.

`python -m trnlab.constants_prior` writes `data/evidence/constants_prior.csv`: five minutes for the constants without
each page, and one for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnlab.coverage import BEYOND_SHARE
from trnlab.pages import by_page, configurations
from trnmodel.arguments import Same, instance
from trnmodel.catalog.posterior import TAIL
from trnmodel.catalog.stacks import LEVELS, Efficiencies
from trnmodel.evidence.fit import Case, Parameter, tuned
from trnmodel.evidence.grounds import part, where
from trnmodel.evidence.prior import (
    FIT,
    FREEDOM,
    LEFT,
    LIKE,
    MACHINE,
    NOISE,
    PAGE,
    PARTS,
    PRIOR,
    RANGES,
    RELEASE,
    Prior,
    Term,
    deviation,
    owner,
)
from trnmodel.evidence.readings import stack_of
from trnmodel.evidence.rows import save
from trnmodel.evidence.update import slopes
from trnmodel.formulas.bands import NOMINAL, conformal_width, effective_rows, shrunk_width
from trnmodel.formulas.update import gaussian_update, tail

if TYPE_CHECKING:
    import pandas as pd

FIRST_FREEDOM = 4.0
FIRST_LEVEL = 0.15  # deviation of levels at which slopes are taken, and where the search begins
OTHER_ROWS = (1, 3, 10)  # of a page, after which bands are to hold
DRAWS = 3  # of other rows, for each number of them
UNIFORM = 3.0  # variance of a half step of rounding is its square over this
SMALL = 1e-3  # deviation at which a search ends
LEAST_COVARIANCE = 1e-6


class Rows(NamedTuple):
    """Rows of pages under constants that have not seen their page: logarithms of measured over predicted, and slopes.

    `slopes` are by constant and `deviations` those of the constants' ranges, 0 for one that the stack does not have.
    `clusters` number the pages' stacks; a cluster is what a stranger would calibrate.
    """

    errors: NDArray
    slopes: NDArray
    deviations: NDArray
    rounding: NDArray
    names: tuple[str, ...]
    owners: NDArray
    parts: NDArray
    pages: NDArray
    stacks: NDArray
    chips: NDArray
    clusters: NDArray

    def some(self, which: NDArray) -> Rows:
        """Return some of the rows."""
        return self._replace(**{name: x[which] for name, x in self._asdict().items() if name != "names"})


@dataclass(frozen=True)
class Cluster:
    """Rows of a page on one stack, each with the stack as the other pages' rows fit it."""

    page: str
    stack: Efficiencies
    cases: list[Case]


def clusters(without: Mapping[str, Mapping[Parameter, float]]) -> list[Cluster]:
    """Return the rows of each page that constants explain, by stack, with the constants of the other pages.

    Parameters
    ----------
    without : mapping
        Constants by page, fitted without the page. [-]

    Returns
    -------
    clusters : list of Cluster
        Each page, in the order of the tables; the ranges of its constants are those that are shipped. [-]
    """
    by_stack: dict[tuple[str, Same[Efficiencies]], list[Case]] = {}
    for case in configurations(True):
        if case.fits and LIKE.get(part(case.reading.meaning), part(case.reading.meaning)) in PARTS:
            by_stack.setdefault((case.source, Same(stack_of(case.reading))), []).append(case)
    return [
        Cluster(page, _elsewhere_fitted(stack.it, without.get(page, {})), cases)
        for (page, stack), cases in by_stack.items()
    ]


def _elsewhere_fitted(e: Efficiencies, values: Mapping[Parameter, float]) -> Efficiencies:
    """Return a stack with constants fitted to other pages, each with its range; that of a share ends at 1."""
    there: Efficiencies = instance("stack", tuned(values)(e), Efficiencies, "a stack")
    ranges = {}
    for name, (low, high) in e.ranges.items():
        ratio = getattr(there, name) / getattr(e, name) if name in e.movable else 1.0
        top = 1.0 if name.endswith(("share", "overlap")) else np.inf
        ranges[name] = low * ratio, min(high * ratio, top)
    return replace(there, ranges=ranges)


def observed(of: Sequence[Cluster]) -> Rows:
    """Return the errors and slopes of the rows of clusters."""
    names = tuple(dict.fromkeys(name for one in of for name in one.stack.movable if name not in LEVELS))
    tables = [_of_cluster(i, one, names) for i, one in enumerate(of)]
    columns: dict[str, Any] = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    rows = Rows(names=(*names, *LEVELS), **columns)
    return rows.some(np.isfinite(rows.errors) & np.isfinite(rows.slopes).all(axis=1))


def _of_cluster(number: int, one: Cluster, names: tuple[str, ...]) -> dict[str, NDArray]:
    """Return the columns of a cluster's rows, by name."""
    e, readings, many = one.stack, [case.reading for case in one.cases], len(one.cases)
    own = e.movable[: -len(LEVELS)]
    spread = {name: deviation(getattr(e, name), *e.ranges[name]) for name in own}
    at = slopes(readings, e, e.movable, [*spread.values(), *[FIRST_LEVEL] * len(LEVELS)])
    measured = np.array([case.measured for case in one.cases])
    places = [(*names, *LEVELS).index(name) for name in e.movable]
    wide = np.zeros((many, len(names) + len(LEVELS)))
    wide[:, places] = at.slopes
    deviations, owners = np.zeros(wide.shape), np.full(wide.shape, "", dtype=object)
    for place, name in zip(places, own, strict=False):
        deviations[:, place], owners[:, place] = spread[name], owner(e, name)
    parts = [part(r.meaning) for r in readings]
    return {
        "errors": np.log(measured) - at.answers,
        "slopes": wide,
        "deviations": deviations,
        "rounding": np.array([r.rounding * r.scale for r in readings]) / measured,
        "owners": owners,
        "parts": np.array([PARTS.index(LIKE.get(name, name)) for name in parts]),
        "pages": np.full(many, one.page, dtype=object),
        "stacks": np.full(many, e.id, dtype=object),
        "chips": np.array([where(r)["chip"] for r in readings], dtype=object),
        "clusters": np.full(many, number),
    }


class Spreads(NamedTuple):
    """Deviations: of a constant in those of its range, of levels common and by kind, and of a row by part.

    All of them have one scale for each cluster, whose degrees of freedom are `freedom`.
    """

    freedom: float
    ranges: float
    common: float
    kinds: NDArray
    rows: NDArray

    @property
    def levels(self) -> NDArray:
        """The covariance of the levels of whole steps between pages."""
        return self.common**2 + np.diag(self.kinds**2)

    @classmethod
    def of(cls, logs: NDArray) -> Spreads:
        """Return the deviations of an array of their logarithms."""
        x = np.exp(logs)
        freedom, ranges, common = map(float, x[:3])
        return cls(freedom, ranges, common, x[3 : 3 + len(LEVELS)], x[3 + len(LEVELS) :])

    def noise(self, rows: Rows) -> NDArray:
        """Return the variance of each row beside what its page has in common."""
        return np.asarray(self.rows[rows.parts] ** 2 + rows.rounding**2 / UNIFORM)

    def covariance(self, rows: Rows) -> NDArray:
        """Return the covariance of rows of one cluster, at a scale of one."""
        many = len(LEVELS)
        scaled, levels = rows.slopes[:, :-many] * rows.deviations[:, :-many] * self.ranges, rows.slopes[:, -many:]
        return np.asarray(scaled @ scaled.T + levels @ self.levels @ levels.T + np.diag(self.noise(rows)))


class Alike(NamedTuple):
    """Clusters of as many rows each: their errors, parts and rounding, and the terms of their covariances."""

    errors: NDArray
    parts: NDArray
    rounding: NDArray
    terms: NDArray  # of constants, of the common level, and of each kind of level

    @classmethod
    def of(cls, some: Sequence[Rows]) -> Alike:
        """Return clusters of as many rows side by side."""
        many = len(LEVELS)
        terms = []
        for rows in some:
            scaled, levels = rows.slopes[:, :-many] * rows.deviations[:, :-many], rows.slopes[:, -many:]
            common = levels.sum(axis=1)
            kinds = [np.outer(x, x) for x in levels.T]
            terms.append([scaled @ scaled.T, np.outer(common, common), *kinds])
        errors, parts, rounding = (
            np.array([getattr(rows, name) for rows in some]) for name in ("errors", "parts", "rounding")
        )
        return cls(errors, parts, rounding, np.array(terms))

    def unlikely(self, s: Spreads) -> tuple[float, NDArray]:
        """Return the negative logarithm of the likelihood, a multivariate t for each cluster, and its slopes.

        The slopes are those with the logarithms of the deviations, in the order of `Spreads.of`.
        """
        from scipy.special import digamma, gammaln

        shares = np.array([s.ranges, s.common, *s.kinds]) ** 2
        matrix = np.einsum("t,ctij->cij", shares, self.terms)
        places = np.arange(matrix.shape[-1])
        of_rows = s.rows[self.parts] ** 2
        matrix[:, places, places] += of_rows + self.rounding**2 / UNIFORM
        inverse = np.linalg.inv(matrix)
        solved = np.einsum("cij,cj->ci", inverse, self.errors)
        misfit = np.einsum("ci,ci->c", self.errors, solved)
        many, nu, clusters = len(places), s.freedom, len(misfit)
        gammas = gammaln((nu + many) / 2) - gammaln(nu / 2) - many / 2 * np.log(nu)
        each = np.linalg.slogdet(matrix)[1] / 2 + (nu + many) / 2 * np.log1p(misfit / nu)
        pull = (nu + many) / (nu + misfit)
        of_terms = np.einsum("cij,ctij->ct", inverse, self.terms)
        of_terms -= pull[:, None] * np.einsum("ci,ctij,cj->ct", solved, self.terms, solved)
        of_parts = (np.einsum("cii->ci", inverse) - pull[:, None] * solved**2) * of_rows
        slopes_of_parts = np.bincount(self.parts.ravel(), of_parts.ravel(), len(PARTS))
        free = np.log1p(misfit / nu) / 2 - (nu + many) / 2 * misfit / nu / (nu + misfit)
        free_slope = free.sum() - clusters * (digamma((nu + many) / 2) / 2 - digamma(nu / 2) / 2 - many / 2 / nu)
        slopes_of_terms = of_terms.sum(axis=0) * shares
        return float(each.sum() - clusters * gammas), np.array([free_slope * nu, *slopes_of_terms, *slopes_of_parts])


def spreads(rows: Rows) -> Spreads:
    """Return the deviations under which the errors of all clusters are most likely."""
    from scipy.optimize import minimize

    by_size: dict[int, list[Rows]] = {}
    for one in apart(rows):
        by_size.setdefault(len(one.errors), []).append(one)
    groups = [Alike.of(some) for some in by_size.values()]

    def unlikely(logs: NDArray) -> tuple[float, NDArray]:
        values, slopes_ = zip(*(group.unlikely(Spreads.of(logs)) for group in groups), strict=True)
        return sum(values), np.sum(slopes_, axis=0)

    first = np.log([FIRST_FREEDOM, 1.0, *[FIRST_LEVEL] * (1 + len(LEVELS) + len(PARTS))])
    bounds = [(0.0, np.log(100.0)), *[(np.log(SMALL), np.log(10.0))] * (first.size - 1)]
    return Spreads.of(minimize(unlikely, first, method="L-BFGS-B", jac=True, bounds=bounds).x)


def apart(rows: Rows) -> list[Rows]:
    """Return the rows of each cluster."""
    return [rows.some(np.flatnonzero(rows.clusters == i)) for i in np.unique(rows.clusters)]


def scales(rows: Rows, s: Spreads) -> NDArray:
    """Return the scale of variances that the rows of each row's cluster have."""
    each = np.zeros(len(rows.errors))
    for i in np.unique(rows.clusters):
        one = rows.some(np.flatnonzero(rows.clusters == i))
        misfit = float(one.errors @ np.linalg.solve(s.covariance(one), one.errors))
        each[rows.clusters == i] = (s.freedom + misfit) / (s.freedom + len(one.errors))
    return each


def shared_levels(rows: Rows, s: Spreads) -> tuple[float, float]:
    """Return the variance of levels between releases and between machines, in that between pages."""
    from scipy.optimize import minimize

    many, size = len(LEVELS), np.sqrt(scales(rows, s))
    levels = rows.slopes[:, -many:] @ s.levels @ rows.slopes[:, -many:].T
    scaled = rows.slopes[:, :-many] * rows.deviations[:, :-many] * s.ranges

    def alike(names: NDArray) -> NDArray:
        return np.asarray(names[:, None] == names[None])

    own = ((scaled @ scaled.T + levels) * alike(rows.clusters) + np.diag(s.noise(rows))) * np.outer(size, size)
    parts = [levels * alike(names) for names in (rows.stacks, rows.chips)]

    def unlikely(logs: NDArray) -> float:
        root = np.linalg.cholesky(own + sum(np.exp(x) * one for x, one in zip(logs, parts, strict=True)))
        z = np.linalg.solve(root, rows.errors)
        return float(np.log(np.diag(root)).sum() + z @ z / 2)

    best = minimize(unlikely, np.log([0.1, 0.1]), method="L-BFGS-B", bounds=[(-7.0, 2.0)] * 2, options={"maxiter": 15})
    release, machine = np.exp(best.x)
    return float(release), float(machine)


def fit_terms(rows: Rows, s: Spreads) -> Iterator[Term]:
    """Yield the covariances of the shipped values: their ranges, narrowed by the rows that they are fitted to."""
    many = len(LEVELS)
    names = sorted({(o, n) for line in rows.owners[:, :-many] for o, n in zip(line, rows.names, strict=False) if o})
    places = {name: i for i, name in enumerate(names)}
    prior, weight = np.zeros(len(names)), np.zeros((len(names), len(names)))
    size = scales(rows, s)
    for cluster in np.unique(rows.clusters):
        which = np.flatnonzero(rows.clusters == cluster)
        one = rows.some(which)
        here = [(places[o, n], j) for j, (o, n) in enumerate(zip(one.owners[0, :-many], rows.names, strict=False)) if o]
        at, columns = [i for i, _ in here], [j for _, j in here]
        prior[at] = np.maximum(prior[at], one.deviations[0, columns])
        h = one.slopes[:, columns]
        weight[np.ix_(at, at)] += h.T @ np.linalg.solve(s.covariance(one) * size[which[0]], h)
    covariance = np.linalg.inv(np.diag(1 / np.maximum(prior, SMALL) ** 2) + weight)
    for (a, b), i in places.items():
        for (c, d), j in places.items():
            if j == i or (j > i and abs(covariance[i, j]) > LEAST_COVARIANCE):
                yield Term(FIT, a, b, c, d, float(f"{covariance[i, j]:.5g}"))


def left_spreads(rows: Rows, prior: Prior, s: Spreads) -> dict[str, float]:
    """Return the deviation by part with which nine of ten rows of a page lie inside, after others of their page."""
    off, known, size, parts, pages = (np.concatenate(x) for x in zip(*_replayed(rows, prior, s), strict=True))
    noise, each = s.rows[parts], np.zeros(len(off))
    over: dict[int, tuple[float, float]] = {}
    for i in range(len(PARTS)):
        of = parts == i
        counts = {page: int(np.sum(of & (pages == page))) for page in {*pages[of]}}
        each[of] = [float(effective_rows(counts[page], BEYOND_SHARE)) / counts[page] for page in pages[of]]
        over[i] = _scale(off[of], known[of], noise[of], size[of], each[of]), float(each[of].sum())
    pooled = _scale(off, known, noise, size, each)
    shrunk = {i: float(shrunk_width(own, cases, pooled)) for i, (own, cases) in over.items()}
    return {name: float(s.rows[i] * shrunk[i]) for i, name in enumerate(PARTS)}


def _scale(off: NDArray, known: NDArray, noise: NDArray, size: NDArray, each: NDArray) -> float:
    """Return how many times the noise has to be for nine of ten errors to lie inside, with what is known beside it."""
    needed = np.sqrt(np.maximum((off / TAIL / size) ** 2 - known, 0.0)) / noise
    return max(float(conformal_width(needed, NOMINAL, each)), SMALL)


def _replayed(rows: Rows, prior: Prior, s: Spreads) -> Iterator[tuple[NDArray, ...]]:
    """Yield errors of rows after some other rows of their page: with variances known, and the size of a deviation."""
    order = np.random.default_rng(0)
    for one in apart(rows):
        covariance, many = page_covariance(one, prior), len(one.errors)
        for seen in (n for n in OTHER_ROWS if n < many):
            for _ in range(DRAWS):
                places = order.permutation(many)
                own, rest = one.some(places[:seen]), one.some(places[seen:])
                after = gaussian_update(covariance, own.slopes, own.errors, s.noise(own), 1.0, s.freedom)
                known = np.einsum("ij,jk,ik->i", rest.slopes, after.covariance, rest.slopes)
                size = np.full(many - seen, np.sqrt(after.scale) * tail(after.freedom))
                yield rest.errors - rest.slopes @ after.mean, known, size, rest.parts, rest.pages


def page_covariance(row: Rows, prior: Prior) -> NDArray:
    """Return the covariance of all constants and levels for the stack of one row, 0 for constants that it has not."""
    many = len(LEVELS)
    fitted = {(t.owner, t.quantity, t.other_owner, t.other): t.covariance for t in prior.terms if t.level == FIT}
    owners, names = row.owners[0], row.names
    matrix = np.diag(prior.variance(PAGE, RANGES) * row.deviations[0] ** 2)
    matrix[-many:, -many:] = prior.of_levels()
    here = [i for i, o in enumerate(owners[:-many]) if o]
    for i in here:
        for j in here:
            key = (owners[i], names[i], owners[j], names[j])
            matrix[i, j] += fitted.get(key, fitted.get((*key[2:], *key[:2]), 0.0))
    return matrix


def prior_of(rows: Rows, shared: bool = True) -> Prior:
    """Return the distribution that rows of pages have; `shared` says whether releases and machines have levels."""
    s = spreads(rows)
    release, machine = shared_levels(rows, s) if shared else (0.0, 0.0)

    def term(level: str, quantity: str, other: str, covariance: float) -> Term:
        return Term(level, "", quantity, "", other, float(f"{covariance:.5g}"))

    terms = [*fit_terms(rows, s), term(PAGE, RANGES, RANGES, s.ranges**2), term(PAGE, FREEDOM, FREEDOM, s.freedom)]
    for level, ratio in ((PAGE, 1.0), (RELEASE, release), (MACHINE, machine)):
        for i, a in enumerate(LEVELS):
            terms += [term(level, a, b, ratio * s.levels[i, j]) for j, b in enumerate(LEVELS) if j >= i]
    terms += [term(NOISE, name, name, s.rows[i] ** 2) for i, name in enumerate(PARTS)]
    left = left_spreads(rows, Prior(tuple(terms)), s)
    return Prior((*terms, *(term(LEFT, name, name, left[name] ** 2) for name in PARTS)))


def table(prior: Prior) -> pd.DataFrame:
    """Return a distribution as the rows of its file."""
    import pandas as pd

    return pd.DataFrame([{name: getattr(t, name) for name in Term.__struct_fields__} for t in prior.terms])


def write() -> None:
    """Fit the distribution anew and write it."""
    save(table(prior_of(observed(clusters(by_page())))), PRIOR)


if __name__ == "__main__":
    write()
