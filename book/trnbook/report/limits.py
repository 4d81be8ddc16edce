"""Limits on the figures of a report, `NAME OP NUMBER`: read as text, never run as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from trnbook.report.answers import ENDS, GPU, RENTED, TRAINIUM, Answer, figures
from trnmodel.arguments import shown
from trnmodel.cli.errors import InputError, printable
from trnmodel.units import read_number

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
SIDES = {"best_": (TRAINIUM,), "gpu_": (GPU,), "": (RENTED, TRAINIUM)}  # by the prefix of a name
_LIMIT = re.compile(rf"\s*(\w+)\s*({'|'.join(OPERATORS)})\s*(\S+)\s*", re.ASCII)
_TEXTS = ("basis", "status", "mapping")  # figures that are words
LONGEST = 200


class Limit(NamedTuple):
    """A condition under which a report fails: a figure of a side compared with a number."""

    text: str
    name: str
    sides: tuple[str, ...]
    operator: str
    bound: float


class Checked(NamedTuple):
    """A limit beside the figure of a scenario; `exceeded` is None where there is no figure to compare."""

    limit: Limit
    scenario: str
    system: str
    value: float | None
    exceeded: bool | None
    why: str = ""

    def line(self) -> str:
        """Return the scenario, the figure, its value and the limit in a line.

        Examples
        --------
        >>> Checked(parse("ttft_s > 1", "serving"), "buyer.yaml", "trn2.48xlarge", 2.0, True).line()
        "buyer.yaml: ttft_s of trn2.48xlarge is 2, which --fail-if 'ttft_s > 1' does not allow"
        """
        where = f"{self.limit.text.split(self.limit.operator)[0].strip()}{f' of {self.system}' if self.system else ''}"
        if self.value is None:
            return (
                f"{self.scenario}: {where} is not known, so --fail-if '{self.limit.text}' cannot be checked: {self.why}"
            )
        value = f"{self.value:.6g}"
        value = value if float(value) != self.limit.bound or self.value == self.limit.bound else f"{self.value!r}"
        return f"{self.scenario}: {where} is {value}, which --fail-if '{self.limit.text}' does not allow"


def names(kind: str) -> list[str]:
    """Return the figures of a kind of report that a limit may name.

    Examples
    --------
    >>> names("training")[:3]
    ['calendar_days', 'site_mwh', 'mfu']
    """
    return [one.name for one in figures(kind) if one.name not in _TEXTS]


def parse(text: str, kind: str) -> Limit:
    """Return a limit that is typed as `NAME OP NUMBER`.

    Raises InputError with the names that there are.

    Examples
    --------
    >>> parse("gpu_usd_per_mtoken_high >= 1.2", "serving")[1:]
    ('usd_per_mtoken_high', ('best GPU',), '>=', 1.2)
    >>> parse("__import__('os') > 1", "serving")
    Traceback (most recent call last):
    ...
    trnmodel.cli.errors.InputError: --fail-if "__import__('os') > 1": expected NAME OP NUMBER, ...
    """
    match = _LIMIT.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        raise InputError(
            f"--fail-if {shown(text)}: expected NAME OP NUMBER, such as '{names(kind)[0]} > 2', with OP one of "
            f"{' '.join(OPERATORS)}"
        )
    full, sign, number = match.groups()
    prefix = next(one for one in SIDES if full.startswith(one))
    name = full.removeprefix(prefix)
    end = next((one for one in ENDS if name.endswith(one)), "")
    if name.removesuffix(end) not in names(kind):
        raise InputError(
            f"--fail-if {shown(text)}: there is no figure {shown(full)}; "
            f"allowed are {', '.join(names(kind))}, each also "
            "with _low or _high after it, and with best_ or gpu_ before it"
        )
    try:
        bound = read_number(name, number)
    except ValueError as error:
        raise InputError(f"--fail-if {shown(text)}: {' '.join(str(error).split())}") from None
    return Limit(printable(text.strip()), name, SIDES[prefix], sign, bound)


def check(limits: Iterable[Limit], scenario: str, answer: Answer) -> list[Checked]:
    """Return each limit beside the figure of a scenario.

    Examples
    --------
    >>> rows = [{"side": TRAINIUM, "system": "trn2.48xlarge", "ttft_s": 2.0}]
    >>> answer = Answer("serving", "", [], rows, [])
    >>> [one.exceeded for one in check([parse("ttft_s > 1", "serving")], "a", answer)]
    [True]
    >>> check([parse("gpu_ttft_s > 1", "serving")], "a", answer)[0].why
    'the answer has no best GPU'
    """
    return [_checked(limit, scenario, answer) for limit in limits]


def _checked(limit: Limit, scenario: str, answer: Answer) -> Checked:
    row = answer.side(*limit.sides)
    value = row.get(limit.name)
    if value is None:
        stem = next((limit.name.removesuffix(end) for end in ENDS if limit.name.endswith(end)), limit.name)
        why = str(row.get(f"{stem}_why") or row.get("reason") or "the scenario does not ask for it")
        why = why if row else f"the answer has no {limit.sides[-1]}"
        return Checked(limit, scenario, str(row.get("system", "")), None, None, why)
    exceeded = OPERATORS[limit.operator](float(value), limit.bound)
    return Checked(limit, scenario, str(row["system"]), float(value), exceeded)
