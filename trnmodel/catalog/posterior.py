"""What a calibration found of a stack's constants: their joint distribution, and the file that holds it.

A stack file is YAML of anybody: `read` checks it like any data, and `written` makes one. What the constants are is
known to `trnmodel.catalog.stacks`, which makes a stack of what is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import nearest, refuse, shown
from trnmodel.catalog import plain_yaml, untrusted
from trnmodel.result import CALIBRATED, Basis
from trnmodel.units import KIB

TINY = 1e-6  # least scale of a variance
MAX_FILE_BYTES, MOST_CONSTANTS, MOST_ROWS, MOST_NAMES, LONGEST = 256 * KIB, 100, 100_000, 1000, 200
LARGEST = 3.0  # standard deviation of a logarithm: a factor of 20
ENDINGS = (".yaml", ".yml")
TAIL = 1.6448536269514722  # standard deviations at the end of a 90 % interval
KEYS = ("stack", "rows", "chips", "systems", "scale", "freedom", "elsewhere", "noise", "constants", "correlation")
CONSTANT = ("value", "low", "high", "deviation", "prior", "origin")
HEAD = "# Software that was calibrated on measurements: for efficiencies=, and --stack of trnmodel.\n"


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """What a calibration knows of the constants of a stack, and where it holds.

    `covariance` is that of natural logarithms of the constants `names`. `noise` is, by part of a model, the standard
    deviation of the logarithm of what a measurement holds beside them, and `elsewhere` what another machine adds. All
    of these hold the `scale` that the rows gave variances, and what its degrees of `freedom` add to a 90 % interval.
    """

    rows: int
    chips: tuple[str, ...]
    systems: tuple[str, ...]
    names: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: tuple[tuple[str, float], ...]
    elsewhere: float
    scale: float = 1.0
    freedom: float = 1e6

    @cached_property
    def matrix(self) -> NDArray:
        """The covariance as an array."""
        return np.array(self.covariance)

    @property
    def word(self) -> str:
        """What an answer rests on.

        Examples
        --------
        >>> Posterior(rows=1, chips=(), systems=(), names=(), covariance=(), noise=(), elsewhere=0.0).word
        'calibrated on 1 row of yours'
        """
        return f"{CALIBRATED} on {self.rows:,} {'row' if self.rows == 1 else 'rows'} of yours"

    def strange(self, chip: str, system: str = "") -> str:
        """Return in what a machine differs from those of the calibration; nothing where it is one of them."""
        if chip not in self.chips:
            return f"chip: {self.word} on {', '.join(self.chips)}"
        if system and self.systems and system not in self.systems:
            return f"system: {self.word} on {', '.join(self.systems)}"
        return ""

    def basis(self, chip: str, reasons: Iterable[str] = ()) -> Basis:
        """Return what answers on a chip rest on, where some reasons speak against them."""
        every = [*reasons, *filter(None, [self.strange(chip)])]
        return Basis("extrapolated", "; ".join(every)) if every else Basis(self.word)

    def wide(self, basis: Basis, part: str) -> Basis:
        """Return a basis with the half-width of what measurements of a part of a model hold beside the constants."""
        spread = dict(self.noise)
        left = spread.get(part, max(spread.values(), default=0.0))
        return basis._replace(width=TAIL * math.hypot(left, self.elsewhere * (basis.word != self.word)))


class Constant(NamedTuple):
    """A constant of a stack file: its value, its 90 % range, the deviation of its logarithm, its prior and origin."""

    value: float
    low: float
    high: float
    deviation: float
    prior: float
    origin: str


class StackFile(NamedTuple):
    """What a stack file states: the release, its constants, and the distribution of these; `origin` is its path."""

    origin: str
    stack: str
    constants: Mapping[str, Constant]
    posterior: Posterior


def is_file(name: str) -> bool:
    """Return whether a name is the path of a stack file: one that ends in .yaml or .yml.

    Examples
    --------
    >>> is_file("cluster.yaml"), is_file("vllm-neuron-2026")
    (True, False)
    """
    return name.lower().endswith(ENDINGS)


class _Place:
    """Where a key of a file stands, for messages."""

    def __init__(self, origin: str, lines: Mapping[tuple[str, ...], int]) -> None:
        self.origin, self.lines = origin, lines

    def __call__(self, *path: str) -> str:
        """Return the file with the line, and the key with the sections around it."""
        line = self.lines.get(path)
        named = ".".join(str(part)[:LONGEST] for part in path) or "stack file"
        return f"{self.origin}{f' line {line}' if line else ''}: {named}"


def read(path: str | Path, argument: str = "efficiencies") -> StackFile:
    """Return what a stack file states, checked; the `argument` names the file in errors.

    Raises ValueError, naming the file, the line and the key, for whatever is no such file.
    """
    where = untrusted.as_path(argument, path)
    text = untrusted.decoded(argument, where, MAX_FILE_BYTES)
    origin = untrusted.printed(where)
    try:
        place = _Place(origin, plain_yaml.lines_of(text))
        values = plain_yaml.read(text)
    except plain_yaml.YamlError as error:
        raise ValueError(f"{argument}={origin}: {error}") from None
    return _checked(place, values)


def _checked(place: _Place, values: Any) -> StackFile:
    """Return what the values of a file state, each checked where it stands."""
    held = _section(place, (), values, KEYS)
    stack = _text(place, ("stack",), held["stack"])
    stated = held["constants"]
    if not isinstance(stated, Mapping) or not 0 < len(stated) <= MOST_CONSTANTS:
        refuse(place("constants"), stated, f"allowed is a mapping of 1 to {MOST_CONSTANTS} constants")
    constants = {str(name): _constant(place, str(name), one) for name, one in stated.items()}
    noise = held["noise"]
    if not isinstance(noise, Mapping) or not 0 < len(noise) <= MOST_CONSTANTS:
        refuse(place("noise"), noise, "allowed is a mapping of parts of a model to standard deviations")
    spreads = {str(part): _number(place, ("noise", str(part)), one, 0.0, LARGEST) for part, one in noise.items()}
    rows = _number(place, ("rows",), held["rows"], 1, MOST_ROWS)
    if rows % 1:
        refuse(place("rows"), held["rows"], "allowed is a whole number")
    deviations = np.array([one.deviation for one in constants.values()])
    matrix = _correlation(place, held["correlation"], len(constants)) * np.outer(deviations, deviations)
    posterior = Posterior(
        rows=int(rows),
        chips=_names(place, "chips", held["chips"]),
        systems=_names(place, "systems", held["systems"]),
        names=tuple(constants),
        covariance=tuple(map(tuple, matrix.tolist())),
        noise=tuple(spreads.items()),
        elsewhere=_number(place, ("elsewhere",), held["elsewhere"], 0.0, LARGEST),
        scale=_number(place, ("scale",), held["scale"], TINY, 1 / TINY),
        freedom=_number(place, ("freedom",), held["freedom"], 1.0, 1e8),
    )
    return StackFile(place.origin, stack, constants, posterior)


def _section(place: _Place, path: tuple[str, ...], value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return a mapping that has each of some keys, and no other."""
    if not isinstance(value, Mapping):
        refuse(place(*path), value, "allowed is a mapping of keys to values")
    for key in value:
        if key not in names:
            near = ", ".join(nearest(str(key), names))
            raise ValueError(f"{place(*path, str(key))}: there is no such key; nearest: {near}")
    if missing := [name for name in names if name not in value]:
        raise ValueError(f"{place(*path)}: {', '.join(missing)} is missing")
    return dict(value)


def _number(place: _Place, path: tuple[str, ...], value: Any, low: float, high: float = math.inf) -> float:
    """Return a finite number from `low` to `high`."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not low <= value <= min(high, 1e30):
        upper = f" to {high:g}" if high < math.inf else ""
        refuse(place(*path), value, f"allowed are numbers from {low:g}{upper}")
    return float(value)


def _text(place: _Place, path: tuple[str, ...], value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
        refuse(place(*path), value, f"allowed is a printable text of up to {LONGEST} characters")
    return value


def _names(place: _Place, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_NAMES:
        refuse(place(key), value, f"allowed is a list of 1 to {MOST_NAMES} names")
    return tuple(_text(place, (key,), one) for one in value)


def _constant(place: _Place, name: str, value: Any) -> Constant:
    """Return a constant whose range holds its value."""
    path = ("constants", name)
    held = _section(place, path, value, CONSTANT)
    figures = {key: _number(place, (*path, key), held[key], 0.0) for key in ("value", "low", "high", "prior")}
    one = Constant(
        **figures,
        deviation=_number(place, (*path, "deviation"), held["deviation"], 0.0, LARGEST),
        origin=_text(place, (*path, "origin"), held["origin"]),
    )
    if one.value <= 0:
        refuse(place(*path, "value"), one.value, "allowed are numbers above 0")
    if not one.low <= one.value <= one.high:
        refuse(
            place(*path), f"low {one.low:g}, value {one.value:g}, high {one.high:g}", "allowed is this order of size"
        )
    return one


def _correlation(place: _Place, value: Any, many: int) -> NDArray:
    """Return the correlations between the constants: a row for each, with ones on the diagonal."""
    allowed = f"allowed are {many} rows of {many} numbers from -1 to 1, alike on both sides of a diagonal of ones"
    rows = value if isinstance(value, list) else []
    if len(rows) != many or not all(isinstance(row, list) and len(row) == many for row in rows):
        refuse(place("correlation"), shown(value), allowed)
    numbers = [[_number(place, ("correlation",), one, -1.0, 1.0) for one in row] for row in rows]
    matrix = np.array(numbers, dtype=float)
    regular = np.allclose(matrix, matrix.T, atol=1e-6) and np.allclose(np.diag(matrix), 1.0, atol=1e-6)
    if not regular or np.linalg.eigvalsh(matrix)[0] < -1e-4:
        refuse(place("correlation"), "other correlations", f"{allowed}, which some numbers can have")
    return matrix


def written(stack: str, constants: Mapping[str, Constant], posterior: Posterior) -> str:
    """Return the text of a stack file."""
    deviations = np.sqrt(np.diag(posterior.matrix)) if posterior.names else np.ones(0)
    scale = np.where(deviations > 0, deviations, 1.0)
    correlation = posterior.matrix / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)
    lines = [HEAD, f"stack: {stack}\n", f"rows: {posterior.rows}\n"]
    lines += [f"{key}: [{', '.join(getattr(posterior, key))}]\n" for key in ("chips", "systems")]
    lines += [f"{key}: {_short(getattr(posterior, key))}\n" for key in ("scale", "freedom")]
    lines += [f"elsewhere: {_short(posterior.elsewhere)}  # deviation that another machine adds\n"]
    noise = ", ".join(f"{part}: {_short(one)}" for part, one in posterior.noise)
    lines += [f"noise: {{{noise}}}\n", "constants:\n"]
    for name, one in constants.items():
        numbers = ", ".join(f"{key}: {_short(getattr(one, key))}" for key in CONSTANT if key != "origin")
        lines.append(f'  {name}: {{{numbers}, origin: "{one.origin}"}}\n')
    lines.append("correlation:  # of the logarithms of the constants, in their order\n")
    lines += [f"  - [{', '.join(f'{x:.4f}' for x in row)}]\n" for row in correlation]
    return "".join(lines)


def _short(x: float) -> str:
    """Return a number as YAML reads it back: YAML 1.1 takes an exponent without a point for text.

    Examples
    --------
    >>> _short(2e-05), _short(0.25), _short(3.0)
    ('2.0e-05', '0.25', '3.0')
    """
    text = f"{x:.6g}"
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}{e}{exponent}"
