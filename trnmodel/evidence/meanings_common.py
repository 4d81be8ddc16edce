"""What the meanings of all kinds of rows share: a question with its arguments, and how the number of a row is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from trnmodel.arguments import shown
from trnmodel.evidence.cells import UnreadableRowError, number
from trnmodel.evidence.records import Record, is_known

ASIDE = "set-aside"  # the question of a row that is known to be no prediction of ours
MEANING, MODEL, MACHINE = "meaning", "model", "machine"  # what a row without a question lacks
QUANTILES = ("p99", "p90", "p25")  # that a reading names
SIDES = ("m", "k", "n")  # of a matrix product of m x k by k x n


class Question(NamedTuple):
    """A question with the arguments that say how its row is read, what the row is used for, and what nobody states."""

    name: str
    arguments: dict[str, str]
    use: str
    unknown: tuple[str, ...] = ()


def whole(value: float) -> str:
    """Return a number as a cell prints it; an empty text for NaN.

    Examples
    --------
    >>> whole(64.0), whole(float("nan"))
    ('64', '')
    """
    return f"{value:.15g}" if is_known(value) else ""


def cell(row: Mapping[str, str], name: str, otherwise: float = math.nan) -> float:
    """Return the number in a cell of a row, or another where the cell is blank or holds a word.

    Examples
    --------
    >>> cell({"batch": "16"}, "batch", 1.0), cell({"batch": ""}, "batch", 1.0)
    (16.0, 1.0)
    """
    value = number(row.get(name, ""))
    return otherwise if math.isnan(value) else value


def without_blanks(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments that are known.

    Examples
    --------
    >>> without_blanks({"kernel": "matmul", "groups": ""})
    {'kernel': 'matmul'}
    """
    return {name: text for name, text in arguments.items() if text}


def read_as(record: Record) -> dict[str, str]:
    """Return the arguments that say how the number itself is read: its rounding, unit, percentile, format and chip.

    Examples
    --------
    >>> read_as(Record(statistic="p99", megabyte="binary"))
    {'unit': 'MB=MiB GB=GiB', 'percentile': '99'}
    """
    return without_blanks(
        {
            "where": record.system or record.core_of,
            "precision": record.format,
            "rounding": record.rounding,
            "kv": record.cache_format,
            "run_batch": whole(record.run_batch),
            "unit": record.read_unit or ("MB=MiB GB=GiB" if record.megabyte == "binary" else ""),
            "percentile": record.statistic[1:] if record.statistic in QUANTILES else "",
            "hbm_bytes_per_s": whole(record.hbm_bytes_per_s),
        }
    )


def no_meaning(row: Mapping[str, str], metrics: str) -> UnreadableRowError:
    """Return the error of a row whose metric no pattern reads, with metrics of its kind that are read.

    Examples
    --------
    >>> str(no_meaning({"metric": "happiness"}, "power, energy"))
    "meaning: no pattern gives a meaning to metric 'happiness'; metrics that are read here are power, energy"
    """
    metric = shown(row.get("metric", ""))
    why = f"no pattern gives a meaning to metric {metric}; metrics that are read here are {metrics}"
    return UnreadableRowError(f"{MEANING}: {why}")
