"""The one fit: constants of stacks from measured rows, and how well they predict what they have not seen.

`python -m trnmodel.evidence.fit` fits them to the shipped rows and writes them into the rows of
`data/facts/efficiencies.csv`; a test checks that they are those of the fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, listed
from trnmodel.catalog.load import DATA, read_csv, value
from trnmodel.catalog.specs import Spec
from trnmodel.evidence import search
from trnmodel.evidence.cells import UnreadableRowError, measure
from trnmodel.evidence.grounds import grounds
from trnmodel.evidence.meanings import decisions
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import Reading, Tune, reading
from trnmodel.evidence.records import document
from trnmodel.evidence.rows import COLLECTIVES, COMPARATORS, published, put, read_rows
from trnmodel.evidence.score import configuration
from trnmodel.models.transformer import model

if TYPE_CHECKING:
    import pandas as pd

MOST_ROUNDS = 12  # of fits of all groups, which settle after four
EFFICIENCIES = DATA / "facts" / "efficiencies.csv"
# groups of a model's rows by what they mean; any other group is a use of rows
MEANINGS: Mapping[str, tuple[str, ...]] = {
    "decode": ("decode-step", "decode-throughput", "run-per-token"),
    "prefill": ("prefill", "batch-prefill", "one-prefill", "reprefill-throughput"),
    "expert-decode": ("decode-step", "decode-throughput"),
    "expert-prefill": ("prefill", "batch-prefill", "one-prefill", "reprefill-throughput"),
    "encoder": ("forward",),
    "server": ("loaded-step",),
}
# kinds of models that a group has, by how its name begins; any other group of a model's rows has dense ones alone
KINDS = {"expert": ("expert", "hybrid"), "encoder": ("encoder", "dense"), "server": ("encoder", "dense")}
USES = ("framework-compile", "framework-trace", "gpu-all-reduce", "comparator")
# groups in which software takes the fastest of several kernels for one call; elsewhere the middle run counts
FASTEST = {"gpu-all-reduce"}
GROUPS = (*MEANINGS, *USES)


class Parameter(msgspec.Struct, frozen=True):
    """Quantities that a group of rows fits with one value, and the stacks whose own rows they are.

    A quantity that a stack has for one chip is written with the chip's id: "one_shot_s:h100".
    """

    group: str
    owner: str
    quantity: str

    @property
    def quantities(self) -> list[str]:
        """Every quantity, with the chip that it is of."""
        return self.quantity.split("|")

    @property
    def fields(self) -> list[str]:
        """The field of a stack that each quantity is the value of."""
        return [quantity.partition(":")[0] for quantity in self.quantities]


@dataclass(frozen=True, slots=True)
class Case:
    """One unique configuration: what was asked, the median of what was measured, and its weight."""

    reading: Reading
    measured: float
    weight: float
    source: str = ""
    id: str = ""

    @property
    def model(self) -> str:
        """The model's id; of a question without a model, the shape that it asks for."""
        return self.reading.model_id or " ".join(f"{name}={value}" for name, value in self.reading.arguments)

    @property
    def fits(self) -> bool:
        """Whether constants are fitted to it: not where it states software that has none here."""
        return bool(self.reading.stack or not self.reading.engine)

    @property
    def family(self) -> str:
        """The system family: trn1, inf2, trn2, ..."""
        return self.reading.where.split(".")[0].removesuffix("n")


@cache
def parameters(group: str) -> tuple[Parameter, ...]:
    """Return what a group of rows fits."""
    rows = [row for row in read_csv(DATA / "evidence" / "calibration.csv", Parameter) if row.group == group]
    if not rows:
        raise ValueError(f"group={group!r}: allowed are {sorted(GROUPS)}")
    return tuple(rows)


def _belongs(r: Reading, group: str) -> bool:
    """Return whether a row is one of a group: by its use, or by what it means and its kind of model."""
    if group in USES or r.use in USES:
        return r.use == group
    if r.use != "model":
        return False
    kinds = KINDS.get(group.partition("-")[0], ("dense",))
    return r.meaning in MEANINGS[group] and not r.percentile and r.stack != "ideal" and model(r.model).kind in kinds


def readable(rows: Iterable[Mapping[str, str]], statements: bool = True) -> Iterator[Case]:
    """Each row that has a reading and a value as a case by itself; without `statements` from its cells alone."""
    rows = list(rows)
    for row, decided in zip(rows, decisions(rows, statements), strict=True):
        with suppress(UnreadableRowError):
            r = reading(row, None, decided)
            yield Case(r, measure(row) * r.scale, r.weight, document(row["source"]), row["id"])


def cases(rows: pd.DataFrame | str | Path, group: str) -> list[Case]:
    """Return unique configurations of a group: rows of one configuration become one case with their median."""
    choice("group", group, GROUPS)
    return unique((case for case in readable(read_rows(rows)) if _belongs(case.reading, group)), group in FASTEST)


def unique(of: Iterable[Case], fastest: bool = False) -> list[Case]:
    """Return one case of those that share a configuration, with the median of what was measured, or the fastest.

    Cases without a vote or a prediction are left out.
    """
    alike: dict[str, list[Case]] = defaultdict(list)
    for case in of:
        if case.weight:
            with suppress(UnreadableRowError):
                alike[configuration(case.reading, predict(case.reading))].append(case)
    of_all = min if fastest else np.median
    return [
        replace(some[0], measured=float(of_all([case.measured for case in some])), weight=max(c.weight for c in some))
        for some in alike.values()
    ]


def tuned(values: Mapping[Parameter, float]) -> Tune:
    """Return a change of the stacks whose own rows the parameters are; stacks that override them keep theirs."""
    seen: dict[int, tuple[Spec, Spec]] = {}

    def tune(e: Spec) -> Spec:
        if id(e) not in seen:
            mine: dict[str, Any] = {name: v for p, v in values.items() for name in _owned(p, e)}
            seen[id(e)] = e, replace(e, **mine, ranges={})
        return seen[id(e)][1]

    return tune


def _owned(p: Parameter, e: Spec) -> list[str]:
    """Return the fields of a set whose value is an own row of one of the stacks that the parameter stands for."""
    own = {(owner, quantity) for owner in p.owner.split("|") for quantity in p.quantities}
    return [name for name in p.fields if (*e.sources.get(name, ("/",))[0].split("/")[:2],) in own]


def log_errors(of: Sequence[Case], tune: Tune | None = None) -> NDArray:
    """Logarithm of predicted over measured, by case."""
    return np.array([np.log(predict(case.reading, tune) / case.measured) for case in of])


def fit(of: Sequence[Case], group: str, earlier: Mapping[Parameter, float] | None = None) -> dict[Parameter, float]:
    """Values of a group's parameters that fit cases best: soft-L1 least squares of the logarithm of the error.

    Parameters of all groups that were `earlier` fits hold or, if they are the group's own, are where the search starts;
    what no case moves stays there.
    """
    of = [case for case in of if case.fits]
    known = dict(earlier or {})
    every = {name: known.get(name, _in_force(name)) for name in parameters(group)}
    some = {i for case in of for i in _moved_by(case, list(every))}
    names = [name for i, name in enumerate(every) if i in some]
    if not names:
        return every
    first = np.array([every[name] for name in names])
    weights = np.sqrt([case.weight for case in of])
    moved = [_moved_by(case, names) for case in of]
    seen: dict[tuple[int, tuple[float, ...]], float] = {}

    def errors(values: NDArray) -> NDArray:
        tune = tuned(known | dict(zip(names, map(float, values), strict=True)))
        keys = [(i, tuple(values[mine])) for i, mine in enumerate(moved)]
        for key in keys:
            if key not in seen:
                seen[key] = log_errors([of[key[0]]], tune)[0]
        return weights * [seen[key] for key in keys]

    best = search.constants(errors, first, high=search.room([name.fields[0] for name in names], first))
    return every | dict(zip(names, best.tolist(), strict=True))


def _moved_by(case: Case, names: Sequence[Parameter]) -> list[int]:
    """Which parameters a case's stacks have; the others do not move its prediction."""
    met: list[Spec] = []

    def note(e: Spec) -> Spec:
        met.append(e)
        return e

    predict(case.reading, note)
    return [i for i, p in enumerate(names) if any(_owned(p, e) for e in met)]


def _fit_all(of: Mapping[str, Sequence[Case]]) -> dict[Parameter, float]:
    """Fit groups in turn, each with the values of the others, until no value moves in the digits that are written."""
    values: dict[Parameter, float] = {}
    for _ in range(MOST_ROUNDS):
        last = dict(values)
        for group, some in of.items():
            values |= fit(some, group, values)
        if values == last or len(of) == 1:
            break
    return values


def _in_force(parameter: Parameter) -> float:
    quantity, _, chip = parameter.quantities[0].partition(":")
    return value(parameter.owner.split("|")[0], quantity, chip)


def fitted_errors(group: str) -> Callable[[list[Case], list[Case]], NDArray]:
    """Errors of cases under a fit to others, for `search.left_out`; without others, as shipped."""

    def errors(train: list[Case], test: list[Case]) -> NDArray:
        return np.expm1(log_errors(test, tuned(fit(train, group)) if train else None))

    return errors


def group_of(r: Reading) -> str:
    """Return the group of fitted constants that a row belongs to; nothing where its use has none."""
    return next((group for group in (*MEANINGS, *USES) if _belongs(r, group)), "")


def labels(of: Sequence[Case]) -> dict[str, list]:
    """Return what was asked of each case, for a table."""
    return {
        "meaning": [case.reading.meaning for case in of],
        "model": [case.model for case in of],
        "where": [case.reading.where for case in of],
        "stack": [case.reading.stack for case in of],
        "tp": [case.reading.mapping[0] for case in of],
        "batch": [case.reading.compiled_batch for case in of],
        "context": [case.reading.context for case in of],
        "prompt": [case.reading.prompt for case in of],
        "measured": [case.measured for case in of],
        "source": [case.source for case in of],
        "unknown": [case.reading.unknown for case in of],
        **grounds([case.reading for case in of]),
    }


def refit(rows: pd.DataFrame | str | Path, groups: str | Iterable[str] = GROUPS) -> pd.DataFrame:
    """Return constants fitted to the given rows, beside those in force; several groups until none moves the others.

    It fits what `data/` ships, from nothing; `trnmodel.evidence.calibration` corrects that by rows of a user.

    Parameters
    ----------
    rows : DataFrame or path
        Measurements as `tm.validate` takes them. [-]
    groups : str or iterable of str
        One or more of "decode", "prefill", "expert-decode", "expert-prefill", "encoder", "server",
        "framework-compile", "framework-trace" and "comparator". [-]

    Returns
    -------
    table : pandas.DataFrame
        Columns group, owner (stack), quantity (with the chip that it is of), in_force, fitted, cases; no line for a
        group without rows. [-]

    Raises
    ------
    ValueError
        An unknown group, or rows that are no such table.

    Examples
    --------
    >>> import pandas as pd
    >>> refit(pd.DataFrame(columns=["instance", "workload", "metric", "value", "unit"])).empty
    True
    """
    import pandas as pd

    names = listed("groups", [groups] if isinstance(groups, str) else groups, str)
    every = [choice("groups", name, GROUPS) for name in dict.fromkeys(names)]
    of = {group: some for group in every if (some := cases(rows, group))}
    values = _fit_all(of)
    lines = [(p.group, p.owner, p.quantity, _in_force(p), v, len(of[p.group])) for p, v in values.items()]
    return pd.DataFrame(lines, columns=["group", "owner", "quantity", "in_force", "fitted", "cases"])


def _scaled(quantity: str, ends: Sequence[float]) -> list[str]:
    """Return the printed ends of a range; that of a share is narrowed about its middle where it would pass 1.

    Examples
    --------
    >>> _scaled("decode_matmul_share", [0.72, 1.04]), _scaled("layer_s:h100", [0.5, 1.5])
    (['0.76', '1'], ['0.5', '1.5'])
    """
    beyond = max(ends[-1] - 1, 0.0) if "share" in quantity and len(ends) > 1 else 0.0
    return [f"{end:.5g}" for end in (*[ends[0] + beyond] * (len(ends) - 1), ends[-1] - beyond)]


def write(table: pd.DataFrame, path: Path = EFFICIENCIES) -> None:
    """Put the values of `refit` into the rows of their owners, each with the relative spread that its row has."""
    moved = {
        (owner, quantity): row.fitted / row.in_force
        for row in table.itertuples()
        for owner in str(row.owner).split("|")
        for quantity in str(row.quantity).split("|")
        if f"{row.fitted:.4g}" != f"{row.in_force:.4g}"
    }

    def again(fact: Mapping[str, str]) -> str:
        quantity = f"{fact['quantity']}:{fact['qualifier']}".removesuffix(":")
        ratio, ends = moved.get((fact["entity"], quantity)), fact["value_printed"].split("-")
        return "-".join(ends if ratio is None else _scaled(quantity, [float(end) * ratio for end in ends]))

    put(path, again)


if __name__ == "__main__":
    for measurements in (published(), COMPARATORS, COLLECTIVES):
        write(refit(measurements))
