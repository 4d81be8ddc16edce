"""Own measurements correct the constants of a stack: `tm.calibrate`, and the stack that other calls then take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trnmodel.arguments import Same, refuse
from trnmodel.catalog import posterior as files
from trnmodel.catalog import untrusted
from trnmodel.catalog.posterior import Constant, Posterior
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.declared import STACK, Checked, declare
from trnmodel.evidence.cells import UnreadableRowError, measure, texts
from trnmodel.evidence.grounds import part
from trnmodel.evidence.meanings import decisions
from trnmodel.evidence.primitives import bare_chip
from trnmodel.evidence.prior import LEFT, LIKE, NOISE, PARTS, Prior, noise_of, shipped
from trnmodel.evidence.questions import predicted
from trnmodel.evidence.readings import Reading, machine, reading, stack_of
from trnmodel.evidence.rows import read_table
from trnmodel.evidence.score import configuration, read_models
from trnmodel.evidence.update import Estimate, ranges, update
from trnmodel.result import Card
from trnmodel.units import counted

if TYPE_CHECKING:
    import pandas as pd

RESOLVED = 0.5  # share of a constant's variance that rows take away, from which on they determine it
MOST_LISTED = 5  # constants that a card names
UNIFORM = 3.0  # variance of half a step of rounding is its square over this
NOTHING = "no constant of a serving stack moves the answer to this row: it measures {}"


class Row(NamedTuple):
    """A row that was read: what it asks, what was measured in base units, and the stack that it is of."""

    reading: Reading
    measured: float
    stack: Efficiencies


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Calibration(Card):
    """A stack whose constants rows of a user have corrected, with what the rows say of each constant.

    `stack` is what every call takes as `efficiencies`; its `.ranges` are the 90 % ranges after. `constants` has a row
    for each constant: value and range before and after, `resolved`, the share of its variance that the rows took away,
    and its origin. `rows` has a row for each given one: its part, the errors before, after and as the other rows
    predict it, its weight, or why it was not used.
    """

    stack: Efficiencies
    constants: pd.DataFrame
    rows: pd.DataFrame
    covariance: pd.DataFrame

    @property
    def release(self) -> str:
        """Id of the stack that the rows ran on."""
        return self.stack.id

    @property
    def undetermined(self) -> list[str]:
        """Constants that no row depends on, which keep their prior."""
        return self.constants.constant[self.constants.origin == PRIOR].tolist()

    def card(self) -> list[str]:
        """Return the calibration on a few lines."""
        table, rows = self.constants, self.rows[self.rows.skipped == ""]
        known = table[table.resolved >= RESOLVED]
        lines = [f"Calibration: {self.release}, {_posterior(self.stack).word}"]
        lines.append(f"median error {_percent(rows.error_before)} before, {_percent(rows.error_after)} after")
        if len(rows) > 1:
            lines[-1] += f", {_percent(rows.error_left_out)} as the other rows predict each"
        named = [
            f"{name} {value:.3g} ({low:.3g} to {high:.3g})"
            for name, value, low, high in zip(known.constant, known.value, known.low, known.high, strict=True)
        ]
        lines.append(f"determined: {', '.join(named[:MOST_LISTED]) or 'no constant by itself'}")
        unmoved = self.undetermined
        rest = " ..." * (len(unmoved) > MOST_LISTED)
        lines.append(f"prior: {', '.join(unmoved[:MOST_LISTED]) or 'none'}{rest}")
        skipped = len(self.rows) - len(rows)
        return lines + [f"{counted(skipped, 'row')} not used"] * bool(skipped)

    def to_yaml(self) -> str:
        """Return the text of a stack file, which `efficiencies=` and `--stack` take by its path."""
        lines = {
            row.constant: Constant(row.value, row.low, row.high, row.deviation, row.prior, row.origin)
            for row in self.constants.itertuples()
        }
        return files.written(self.release, lines, _posterior(self.stack))

    def save(self, path: str | Path) -> None:
        """Write the stack file.

        Raises ValueError where the path does not end in .yaml or .yml, by which calls know a stack file, and where it
        cannot be written.
        """
        where = stack_path(path)
        try:
            where.write_text(self.to_yaml(), encoding="utf-8")
        except (OSError, ValueError) as error:
            refuse("path", str(path), f"cannot be written: {getattr(error, 'strerror', None) or error}")


PRIOR = "prior: no row depends on it"


def stack_path(path: str | Path) -> Path:
    """Return the path of a stack file; refuse one that does not end as calls know a stack file.

    Examples
    --------
    >>> stack_path("cluster.yaml").name
    'cluster.yaml'
    """
    where = untrusted.as_path("path", path)
    if not files.is_file(where.name):
        refuse("path", str(path), f"allowed is a file that ends in {' or '.join(files.ENDINGS)}")
    return where


def _posterior(e: Efficiencies) -> Posterior:
    assert e.posterior is not None
    return e.posterior


def _percent(errors: pd.Series) -> str:
    return f"{100 * float(errors.abs().median()):.3g} %"


def _read(cells: Mapping[str, str], decided: Any, models: Mapping[str, Any]) -> Row:
    """Return a row that a constant of a stack may explain; UnreadableRowError with the reason for any other."""
    r = reading(cells, models, decided)
    about = part(r.meaning)
    if LIKE.get(about, about) not in PARTS or not r.model:
        raise UnreadableRowError(NOTHING.format(about))
    if not r.weight:
        raise UnreadableRowError(r.reason or "it does not vote")
    if r.engine and not r.stack:
        raise UnreadableRowError(
            f"engine {r.engine}: no constants are fitted for it; tm.calibrate needs software of data/"
        )
    return Row(r, measure(cells) * r.scale, stack_of(r))


def _of_stack(row: Row, stack: str | Efficiencies) -> Row:
    """Return a row with the stack that is calibrated; UnreadableRowError where it names other software."""
    e = find(bare_chip(row.reading), stack, "stack")
    stated = row.stack.id if row.reading.stack else ""
    if stated and stated != e.id:
        raise UnreadableRowError(f"software {stated}: the calibration is of {e.id}")
    return Row(replace(row.reading, stack=e), row.measured, e)


def _usable(e: Efficiencies) -> Efficiencies:
    """Return a stack that has constants to calibrate; refuse any other."""
    if e.kind not in ("public", "given") or not e.sources:
        refuse(
            "stack",
            e.id,
            "allowed is public software of data/, whose constants were fitted, or one that was calibrated",
        )
    return e


def _same_stack(rows: Mapping[int, Row | UnreadableRowError]) -> dict[int, Row | UnreadableRowError]:
    """Return rows of which all that are used have one stack: the one of most, the first where two have as many."""
    many = Counter(Same(row.stack) for row in rows.values() if isinstance(row, Row))
    if not many:
        return dict(rows)
    chosen = many.most_common(1)[0][0].it

    def one(row: Row | UnreadableRowError) -> Row | UnreadableRowError:
        if not isinstance(row, Row) or row.stack is chosen:
            return row
        why = f"software {row.stack.id}" if row.stack.id != chosen.id else f"chip {bare_chip(row.reading).id}"
        return UnreadableRowError(
            f"{why}: the calibration is of {chosen.id} on another; name it by stack= for one of its own"
        )

    return {i: one(row) for i, row in rows.items()}


def _answered(rows: Mapping[int, Row | UnreadableRowError]) -> dict[int, Row | UnreadableRowError]:
    """Return rows of which all that are used have an answer."""
    answers = predicted(row.reading for row in rows.values() if isinstance(row, Row))

    def one(row: Row | UnreadableRowError) -> Row | UnreadableRowError:
        answer = answers[row.reading] if isinstance(row, Row) else None
        return answer if isinstance(answer, UnreadableRowError) else row

    return {i: one(row) for i, row in rows.items()}


def _configurations(rows: Mapping[int, Row]) -> list[list[int]]:
    """Return the places of rows by configuration: those of one are one observation, the median of them."""
    answers = predicted(row.reading for row in rows.values())
    alike: dict[str, list[int]] = defaultdict(list)
    for i, row in rows.items():
        alike[configuration(row.reading, float(answers[row.reading]))].append(i)  # type: ignore[arg-type]
    return list(alike.values())


def _estimate(rows: Mapping[int, Row], alike: Sequence[Sequence[int]], prior: Prior) -> Estimate:
    """Return the constants of the rows' stack after them."""
    firsts = [rows[some[0]] for some in alike]
    measured = np.array([float(np.median([rows[i].measured for i in some])) for some in alike])
    e = firsts[0].stack
    names, covariance = prior.covariance(e)
    rounding = np.array([row.reading.rounding * row.reading.scale for row in firsts]) / measured
    noise = noise_of([part(row.reading.meaning) for row in firsts], prior.spreads(NOISE))
    known = (e.posterior.scale, e.posterior.freedom) if e.posterior else (1.0, prior.freedom)
    variances = noise**2 + rounding**2 / UNIFORM
    return update([row.reading for row in firsts], measured, e, names, covariance, variances, *known)


def _constants(estimate: Estimate, prior: Prior, before: Efficiencies, own: Posterior) -> pd.DataFrame:
    """Return the table of constants."""
    import pandas as pd

    names, first = prior.covariance(before)
    old, new = ranges(before, names, first), ranges(estimate.stack, names, estimate.covariance)
    after, resolved = np.sqrt(np.diag(estimate.covariance)), estimate.resolved
    lines = []
    for i, name in enumerate(names):
        origin = own.word if resolved[i] >= RESOLVED else "prior, moved by the rows" if estimate.depends[i] else PRIOR
        lines.append(
            {
                "constant": name,
                "prior": float(getattr(before, name)),
                "prior_low": old[name][0],
                "prior_high": old[name][1],
                "value": float(getattr(estimate.stack, name)),
                "low": new[name][0],
                "high": new[name][1],
                "deviation": float(after[i]),
                "resolved": max(float(resolved[i]), 0.0),
                "origin": origin,
            }
        )
    return pd.DataFrame(lines)


def _rows_table(
    every: Mapping[int, Row | UnreadableRowError],
    alike: Sequence[Sequence[int]],
    estimate: Estimate,
    ids: Sequence[str],
) -> pd.DataFrame:
    """Return what became of each row."""
    import pandas as pd

    place = {i: at for at, some in enumerate(alike) for i in some}
    lines = []
    for i, row in every.items():
        line: dict[str, Any] = {"id": ids[i], "part": "", "error_before": np.nan, "error_after": np.nan}
        line |= {
            "error_left_out": np.nan,
            "weight": 0.0,
            "skipped": str(row) if isinstance(row, UnreadableRowError) else "",
        }
        if i in place and isinstance(row, Row):
            at = place[i]
            line |= {"part": part(row.reading.meaning), "weight": float(estimate.update.weights[at])}
            line |= {
                "error_before": float(np.expm1(-estimate.before[at])),
                "error_after": float(np.expm1(-estimate.after[at])),
                "error_left_out": float(np.expm1(-estimate.update.left_out[at])),
            }
        lines.append(line)
    return pd.DataFrame(lines)


def posterior_of(
    e: Efficiencies, readings: Sequence[Reading], many: int, estimate: Estimate, prior: Prior
) -> Posterior:
    """Return what a stack carries of its calibration on some readings, with those that it was calibrated on before."""
    earlier = e.posterior
    chips = {bare_chip(r).id for r in readings}
    systems = {machine(r).id for r in readings} - chips
    return Posterior(
        rows=many + (earlier.rows if earlier else 0),
        chips=tuple(sorted(chips | set(earlier.chips if earlier else ()))),
        systems=tuple(sorted(systems | set(earlier.systems if earlier else ()))),
        names=estimate.names,
        covariance=tuple(map(tuple, estimate.covariance.tolist())),
        noise=tuple((name, one * estimate.size) for name, one in prior.spreads(LEFT).items()),
        elsewhere=prior.elsewhere * estimate.size,
        scale=estimate.scale,
        freedom=estimate.freedom,
    )


def calibrated_stack(
    rows: Mapping[int, Row], alike: Sequence[Sequence[int]], prior: Prior
) -> tuple[Efficiencies, Estimate]:
    """Return the stack of some rows with the constants that they give it, and the update behind it."""
    e, estimate = rows[alike[0][0]].stack, _estimate(rows, alike, prior)
    own = posterior_of(e, [rows[some[0]].reading for some in alike], len(alike), estimate, prior)
    known = ranges(estimate.stack, estimate.names, own.matrix)
    name = f"{e.name.partition(', calibrated')[0]}, {own.word}"
    return replace(estimate.stack, name=name, ranges={**e.ranges, **known}, posterior=own), estimate


@declare(
    passes_on=True,
    rows=Checked("a table of measurements, or the path of its CSV file", {"type": "string"}),
    stack=STACK,
    models=Checked("a mapping of names to models of your own", {"type": "object"}),
)
def calibrate(
    rows: pd.DataFrame | str | Path,
    stack: str | Efficiencies | None = None,
    models: Mapping[str, Any] | None = None,
) -> Calibration:
    """Correct the constants of a software stack by own measurements: a stack with narrower ranges, for every call.

    The constants have a joint distribution before, which the lab has found on pages of measurements that their values
    had not seen: what each varies by, and levels of whole decode steps and prefills. Rows update it by
    Bayes' rule, in logarithms. One row moves the levels; ten rows of different sizes separate constants.

    Parameters
    ----------
    rows : DataFrame or path
        Measurements as `tm.validate` takes them. Rows of one configuration count as one. [-]
    stack : str or Efficiencies, optional
        The software that they ran on, by id, the path of a stack file, or an object; one that was calibrated before is
        calibrated further. By default what the rows state; where they state several, what most of them do. [-]
    models : mapping, optional
        Workload name to model, as `tm.validate` takes it. [-]

    Returns
    -------
    calibration : Calibration
        `.stack` is what `efficiencies=` takes; `.constants`, `.rows` and `.covariance` are tables; `.save(path)` writes
        the stack file.

    Raises
    ------
    ValueError
        The rows are no such table, none of them can be used (with the reasons), or the stack has no fitted constants.

    Examples
    --------
    >>> import pandas as pd
    >>> cells = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "seq_len": 4096, "unit": "ms"}
    >>> rows = [cells | {"batch": batch, "metric": "TPOT", "value": ms} for batch, ms in ((1, 9.5), (16, 14.2))]
    >>> ours = calibrate(pd.DataFrame(rows))
    >>> ours.release, ours.stack.posterior.word
    ('vllm-neuron-2026', 'calibrated on 2 rows of yours')
    """
    import pandas as pd

    table, known = read_table(rows), read_models(models)
    cells = texts(table)
    every: dict[int, Row | UnreadableRowError] = {}
    for i, (row, decided) in enumerate(zip(cells, decisions(cells), strict=True)):
        try:
            one = _read(row, decided, known)
            every[i] = one if stack is None else _of_stack(one, stack)
        except UnreadableRowError as reason:
            every[i] = UnreadableRowError(str(reason))
    every = _answered(_same_stack(every))
    usable = {i: row for i, row in every.items() if isinstance(row, Row)}
    if not usable:
        raise ValueError(f"rows: none of {len(every)} can be used: {_reasons(every)}")
    _usable(next(iter(usable.values())).stack)
    alike, prior = _configurations(usable), shipped()
    own, estimate = calibrated_stack(usable, alike, prior)
    before = usable[alike[0][0]].stack
    constants = _constants(estimate, prior, before, _posterior(own))
    covariance = pd.DataFrame(_posterior(own).matrix, index=[*estimate.names], columns=[*estimate.names])
    ids = [row["id"] for row in cells]
    return Calibration(
        stack=own, constants=constants, rows=_rows_table(every, alike, estimate, ids), covariance=covariance
    )


def _reasons(every: Mapping[int, Row | UnreadableRowError]) -> str:
    """Return why no row can be used: each reason once, with the first row that has it."""
    reasons: dict[str, list[int]] = defaultdict(list)
    for i, row in every.items():
        if isinstance(row, UnreadableRowError):
            reasons[str(row)].append(i)
    texts_ = [
        f"row {at[0] + 1}{f' and {len(at) - 1} more' if len(at) > 1 else ''}: {why}" for why, at in reasons.items()
    ]
    return "; ".join(texts_[:MOST_LISTED]) or "the table is empty"
