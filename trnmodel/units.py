"""Constants of bytes, time, energy and money, and quantities as printed text.

Everything inside trnmodel is a plain float in base units: B, FLOP, s, J, W, USD, Hz. A source prints
"2.9 TB/s" or "~100 engine cycles"; it is converted here, once, when `data/` is loaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

from trnmodel.arguments import SHOWN, flag, instance, number, refuse
from trnmodel.declared import Integer, Number, Text, declare

__all__ = ["format_digits", "format_quantity", "format_within", "parse_number", "read_number"]  # and constants

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
GBIT, TBIT = GB / 8, TB / 8  # in bytes
GFLOP, TFLOP, PFLOP, EFLOP = 1e9, 1e12, 1e15, 1e18
US, MS, MINUTE, HOUR, DAY, YEAR = 1e-6, 1e-3, 60.0, 3600.0, 86400.0, 8760.0 * 3600.0
KW, MW, KWH, MWH = 1e3, 1e6, 3.6e6, 3.6e9
NS = 1e-9
MILLION, BILLION, TRILLION = 1e6, 1e9, 1e12

Numeric = Any  # a float or an array, which broadcast; a list too where `arguments.numbers` reads it

_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
_HEDGE = r"(?:~|≈|about|over|up to|up-to|at least|nearly|more than|less than|>=|<=|>|<)?\s*"
_PRINTED = re.compile(rf"^{_HEDGE}({_NUMBER})(?:\s*(?:-|–|to)\s*~?({_NUMBER}))?\s*$")

_SCALES: dict[str, list[tuple[float, str]]] = {
    "FLOP/s": [(EFLOP, "EFLOP/s"), (PFLOP, "PFLOP/s"), (TFLOP, "TFLOP/s"), (GFLOP, "GFLOP/s")],
    "FLOP": [(EFLOP, "EFLOP"), (PFLOP, "PFLOP"), (TFLOP, "TFLOP"), (GFLOP, "GFLOP")],
    "B/s": [(TB, "TB/s"), (GB, "GB/s"), (MB, "MB/s")],
    "B": [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")],
    "Hz": [(1e9, "GHz"), (1e6, "MHz")],
    "s": [(1.0, "s"), (MS, "ms"), (US, "µs"), (NS, "ns")],
    "W": [(MW, "MW"), (KW, "kW")],
    "J": [(1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ")],
}


def parse_number(text: str) -> tuple[float, float, float]:
    """Read a printed number or range as (value, low, high); text that is no number gives NaN.

    A range "1-2" has its midpoint as value. Hedges ("~", "over", "up to") stay in the printed text.

    Parameters
    ----------
    text : str
        A cell as a source prints it. [-]

    Returns
    -------
    value, low, high : float
        The number with its ends, which are the same where no range is printed. [-]

    Examples
    --------
    >>> parse_number("1,299"), parse_number("~500")
    ((1299.0, 1299.0, 1299.0), (500.0, 500.0, 500.0))
    >>> parse_number("1-2")
    (1.5, 1.0, 2.0)
    >>> parse_number("2D torus")
    (nan, nan, nan)
    """
    match = _PRINTED.match(instance("text", text, str, "printed text").strip()[: SHOWN + 1])
    if not match or len(match[0]) > SHOWN:
        return math.nan, math.nan, math.nan
    low = float(match[1].replace(",", ""))
    high = float(match[2].replace(",", "")) if match[2] else low
    return ((low + high) / 2, low, high) if math.isfinite(low + high) else (math.nan, math.nan, math.nan)


_TYPED = re.compile(r"([-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?) ?([A-Za-z]{0,3})", re.ASCII)
_PREFIXES = {"": 1.0, "k": KB, "m": MB, "g": GB, "t": TB, "ki": KIB, "mi": MIB, "gi": GIB, "ti": TIB}


def read_number(name: str, typed: str, *, of_bytes: bool = False) -> float:
    """Read a number as people type it, for the argument or flag of that name.

    k is 1,000, M a million, G or B a thousand million and T a million million, in either case; Ki, Mi, Gi and Ti are
    powers of 1,024. Of bytes, B is the byte, and a prefix may stand with or without it.

    Raises ValueError, naming the flag, for any other text: one blank may stand before the suffix, and nothing else
    around the number.

    Parameters
    ----------
    name : str
        Argument or flag that a message names. [-]
    typed : str
        The number as typed. [-]
    of_bytes : bool
        Whether it counts bytes, so that a unit may follow. [-]

    Returns
    -------
    number : float
        The number without its prefix. [-]

    Examples
    --------
    >>> read_number("--in", "2k"), read_number("--context", "128Ki"), read_number("--tokens", "15T")
    (2000.0, 131072.0, 15000000000000.0)
    >>> read_number("BYTES", "64MB", of_bytes=True), read_number("BYTES", "1.5 GiB", of_bytes=True)
    (64000000.0, 1610612736.0)
    >>> read_number("--in", "2kk")
    Traceback (most recent call last):
    ValueError: --in='2kk': allowed are numbers with or without k, M, B, T, Ki, Mi or Gi, such as 4096 or 2k
    """
    match = _TYPED.fullmatch(instance("typed", typed, str, "a number as text"))
    suffix = match[2] if match else ""
    if flag("of_bytes", of_bytes):
        prefix, known = suffix.removesuffix("B").lower(), "a unit such as KB, MB, GB, KiB, MiB or GiB, such as 64MB"
    else:
        prefix, known = suffix.lower(), "k, M, B, T, Ki, Mi or Gi, such as 4096 or 2k"
        prefix = "g" if prefix == "b" else prefix
    value = float(Decimal(match[1]) * Decimal(_PREFIXES[prefix])) if match and prefix in _PREFIXES else math.nan
    if not math.isfinite(value):
        refuse(name, typed, f"allowed are numbers with or without {known}")
    return value


_NOUN = re.compile(r"(.*?)( (?:of|per|a) .*)?", re.DOTALL)


def counted(number: float, thing: str) -> str:
    """Print how many there are of a thing, whose noun may have words before it, and "of", "per" or "a" after it.

    Examples
    --------
    >>> counted(1, "rank"), counted(16, "rank"), counted(0.5, "token per chip"), counted(2048.0, "token per chip")
    ('1 rank', '16 ranks', '0.5 tokens per chip', '2,048 tokens per chip')
    >>> counted(4, "HBM stack"), counted(2, "board switch"), counted(3, "stack of software")
    ('4 HBM stacks', '2 board switches', '3 stacks of software')
    """
    noun, rest = _NOUN.fullmatch(thing).groups("")  # type: ignore[union-attr]  # any text matches
    shown = f"{number:,.0f}" if number == round(number) else f"{number:g}"
    plural = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{shown} {noun}{plural}{rest}"


_PER = {"Mtoken": "million tokens", "h": "hour", "B": "byte"}


def _in_full(unit: str, title: str = "") -> tuple[str, str]:
    """Return what is measured ("J", "B/s"), and per what ("per token", "per chip") as a sentence says it."""
    base, _, scope = unit.partition(" per ")
    head, slash, below = base.partition("/")
    if slash and below != "s":
        base, below = head, _PER.get(below, below)
        scope = f"{scope}-hour" if below == "hour" and scope else " per ".join(filter(None, (below, scope)))
    thing = scope.rpartition(" ")[2].rpartition("-")[2]
    if not scope or (thing in title and re.search(" per | for a ", title)):
        return base, ""
    return base, "one way" if scope == "direction" else f"per {scope}"


def _joined(figure: str, name: str, scope: str) -> str:
    """Return a figure with its unit; money has its sign in front.

    >>> _joined("4.4", "USD", "per chip-hour"), _joined("3 to 5", "GB/s", "one way")
    ('$4.4 per chip-hour', '3 to 5 GB/s one way')
    """
    figure = f"${figure.replace(' to ', ' to $')}" if name == "USD" else f"{figure} {name}"
    return f"{figure.strip()} {scope}".strip()


def _prefix(value: float, unit: str) -> tuple[float, str]:
    """Return the scale and the name of the prefix of a value; a value of three digits that rounds up takes the next."""
    pairs = _SCALES.get(unit, [(1.0, unit)]) if value else [(1.0, unit)]
    scale, name = next((pair for pair in pairs if abs(value) >= pair[0] * (1 - 5e-3)), pairs[-1])
    return (1.0, unit) if unit in ("B", "W") and abs(value) < scale * (1 - 5e-3) else (scale, name)


def spread_of(values: Iterable[float], unit: str, digits: int = 3, title: str = "") -> str:
    """Print one figure, or the least and the most of several, with the prefix that a reader expects.

    What the figure is counted per is left out where its `title` has said it ("Throughput per chip").

    Examples
    --------
    >>> spread_of([0.00118, 0.0403], "s"), spread_of([2.0**35], "B per rank"), spread_of([math.nan], "s")
    ('1.18 to 40.3 ms', '32 GiB per rank', 'none')
    >>> spread_of([1.25e-10], "J/FLOP"), spread_of([0.02, 3.0], "J/token"), spread_of([2.5, 4.0], "USD/Mtoken")
    ('125 pJ per FLOP', '20 mJ to 3 J per token', '$2.5 to $4 per million tokens')
    """
    known = [x for x in values if not math.isnan(x)]
    if not known:
        return "none"
    if unit == "USD/J":  # which nobody prints
        known, unit = [x * KWH for x in known], "USD/kWh"
    base, scope = _in_full(unit, title)
    least, most = min(known), max(known)
    scales = [_prefix(least or most, base), _prefix(most or least, base)]
    (low, first), (high, last) = (
        (format_digits(x / scale, digits), name) for x, (scale, name) in zip((least, most), scales, strict=True)
    )
    if first != last:
        return _joined(f"{low} {first} to {high}", last, scope)
    return _joined(low if low == high else f"{low} to {high}", last, scope)


def format_figure(value: float, low: float, high: float, unit: str, basis: str = "", title: str = "") -> str:
    """Print a quantity of the table with its band and basis: money with its sign, and what it is counted per in full.

    The latter is left out where the `title` has said it.

    Examples
    --------
    >>> format_figure(4.4, 2.6, 7.0, "USD/Mtoken", "extrapolated"), format_figure(0.02, 0.02, 0.02, "J/token")
    ('$4.4 per million tokens (2.6 to 7; extrapolated)', '20 mJ per token')
    """
    base, scope = _in_full(unit, title)
    figure, band, rest = format_within(value, low, high, "" if base == "USD" else base, basis).partition(" (")
    return (f"${figure}" if base == "USD" else figure) + f" {scope}".rstrip() + band + rest


_UNITS = {"bytes": "B", "byte": "B", "flop": "FLOP", "s": "s", "min": "min", "h": "h", "w": "W", "j": "J"}
_UNITS |= {"usd": "USD", "hz": "Hz", "mtoken": "Mtoken"}
_SCOPES = {"core": "core", "logical_core": "logical core", "chip": "chip", "user": "user", "rank": "rank"}
_SCOPES |= {"dir": "direction", "instance": "instance", "system": "system", "ultraserver": "UltraServer"}
_SCOPES |= {"site_mw": "MW of site", "decode_replica": "decode replica", "replica": "replica", "pair": "pair"}
_SCOPE = "|".join(_SCOPES)
_END = re.compile(r"^(.*?)(_across_racks|_predicted|_low|_high|)$", re.DOTALL)
_SCOPED = re.compile(rf"^(.*?)((?:_per_(?:{_SCOPE}))*)$", re.DOTALL)
_SCOPED_HOUR = re.compile(rf"^(.+)(_per_(?:{_SCOPE}))_h$", re.DOTALL)
_RATE = re.compile(r"^(?:(.*?)_)??([a-z]+)_per_(s|h)$", re.DOTALL)
_QUOTIENT = re.compile(rf"^(?:(.*?)_)??({'|'.join(_UNITS)})_per_([a-z]+)$", re.DOTALL)
_PLAIN = re.compile(rf"^(?:(.*?)_)??({'|'.join(_UNITS)})$", re.DOTALL)


class NameParts(NamedTuple):
    """The name of a field or column, taken apart: what it names, its base unit, per what it counts, and its ending."""

    stem: str
    unit: str
    scope: str = ""
    end: str = ""

    @property
    def scoped_unit(self) -> str:
        """The base unit with what it is counted per ("B/s per direction"); empty where there is no unit."""
        scopes = [_SCOPES[scope] for scope in self.scope.split("_per_")[1:]]
        return " per ".join([self.unit, *scopes]) if self.unit else ""


def split_name(name: str) -> NameParts:
    """Take the name of a field or a column apart; every reader of a unit from a name asks here.

    A unit is a base unit ("bytes", "s", "usd"), one per thing ("j_per_token"), or a rate of anything ("tokens_per_s").

    Examples
    --------
    >>> split_name("link_bytes_per_s_per_dir")
    NameParts(stem='link', unit='B/s', scope='_per_dir', end='')
    >>> split_name("ridge_flop_per_byte_low")
    NameParts(stem='ridge', unit='FLOP/B', scope='', end='_low')
    >>> split_name("usd_per_chip_h").scoped_unit, split_name("ranks_per_chip")[:3]
    ('USD/h per chip', ('ranks', '', '_per_chip'))
    """
    whole, end = _groups(_END, name)
    if hour := _SCOPED_HOUR.match(whole):
        head, scope = f"{hour[1]}_per_h", hour[2]
    else:
        head, scope = _groups(_SCOPED, whole)
    for pattern in (_RATE, _QUOTIENT, _PLAIN):
        if match := pattern.match(head):
            first, *rest = (_UNITS.get(part, part) for part in match.groups()[1:])
            return NameParts(match[1] or "", "/".join([first, *rest]), scope, end)
    return NameParts(head, "", scope, end)


def _groups(pattern: re.Pattern[str], name: str) -> tuple[str, ...]:
    """Return the groups of a pattern that matches every text."""
    match = pattern.match(name)
    assert match is not None
    return match.groups()


def unit_of(name: str) -> str:
    """Return the unit that the name of a figure ends in, with what it is counted per; empty where there is none.

    Examples
    --------
    >>> unit_of("time_s"), unit_of("busbw_bytes_per_s"), unit_of("memory_bytes_per_rank"), unit_of("batch")
    ('s', 'B/s', 'B per rank', '')
    >>> unit_of("tokens_per_s_per_user"), unit_of("usd_per_h"), unit_of("decode_usd_per_mtoken")
    ('tokens/s per user', 'USD/h', 'USD/Mtoken')
    """
    return split_name(name).scoped_unit


_UPPER = set(
    "cp dma dp e2e ep flop gpu hbm hfu itl kv lnc mbu mfu mla mtbf nic pp sbuf sdk tdp tp tpot ttft usd".split()
)


def title_of(name: str) -> str:
    """Title of a figure from its name alone, without the unit; abbreviations stand in capitals.

    Examples
    --------
    >>> title_of("lower_bound_s"), title_of("kv_bytes_per_rank"), title_of("max_batch"), title_of("tpot_s_low")
    ('Lower bound', 'KV per rank', 'Max batch', 'TPOT low')
    """
    parts = split_name(name)
    stem = parts.stem or name.partition("_per_")[0]
    text = " ".join(word.upper() if word in _UPPER else word for word in f"{stem}{parts.scope}{parts.end}".split("_"))
    return text[:1].upper() + text[1:]


@declare(value=Number(-math.inf, math.inf, unknown=True), unit=Text(), digits=Integer(1, 17))
def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """Print a base-unit value with the prefix a reader expects: capacities binary, rates decimal.

    Parameters
    ----------
    value : float
        Value in the base unit; NaN is not published. [-]
    unit : str
        Base unit, such as "s", "B/s" or "USD/h". [-]
    digits : int
        Significant digits, from 1 to 17. [-]

    Returns
    -------
    text : str
        The number with its prefix and unit. [-]

    Examples
    --------
    >>> format_quantity(2.9e12, "B/s"), format_quantity(2**35, "B"), format_quantity(667e12, "FLOP/s")
    ('2.9 TB/s', '32 GiB', '667 TFLOP/s')
    """
    if not math.isfinite(value):
        return "not published" if math.isnan(value) else f"{value} {unit}".strip()
    scale, name = _scale_of(value, unit)
    return f"{_plain(value / scale, digits)} {name}".strip()


def _scale_of(value: float, unit: str) -> tuple[float, str]:
    """Return the largest prefix that is no larger than a value; a time below all of them is a part of a nanosecond."""
    pairs = _SCALES.get(unit, [])
    least = pairs[-1] if unit == "s" and value else (1.0, unit)
    return next((pair for pair in pairs if abs(value) >= pair[0]), least)


def _plain(value: float, digits: int) -> str:
    """Print a number as "%g" does, without a power of ten."""
    short = f"{value:.{digits}g}"
    return format_digits(value, digits) if "e" in short else short


ROUGH = 0.05  # half-width of a band, as a share of the value, from which on two digits are shown


@declare(
    value=Number(-math.inf, math.inf, unknown=True),
    low=Number(-math.inf, math.inf, unknown=True),
    high=Number(-math.inf, math.inf, unknown=True),
    unit=Text(),
    basis=Text(),
)
def format_within(value: float, low: float, high: float, unit: str = "", basis: str = "") -> str:
    """Print a quantity with its band and what it rests on, in as many digits as the band leaves it.

    Two digits where the band is wider than 5 % either way, three below; without a band ("low" is "high") what is exact
    stays exact. `unit` is a base unit ("s", "B/s") that takes a prefix, or words ("tokens/s per chip").

    Parameters
    ----------
    value, low, high : float
        Value and ends of its band, in the base unit. [-]
    unit, basis : str
        Unit, and what the value rests on. [-]

    Returns
    -------
    text : str
        The quantity with its band in brackets. [-]

    Examples
    --------
    >>> format_within(1285.4, 707.2, 1952.0, "tokens/s per chip", "extrapolated")
    '1,300 tokens/s per chip (710 to 2,000; extrapolated)'
    >>> format_within(0.01234, 0.01222, 0.01252, "s", "measured"), format_within(144, 144, 144, "chips")
    ('12.3 ms (12.2 to 12.5; measured)', '144 chips')
    """
    if not math.isfinite(value):
        return format_quantity(value, unit)
    scale, name = _scale_of(value, unit)
    known = math.isfinite(low + high) and high > low
    digits = 4 if not known else 2 if max(high - value, value - low) > ROUGH * abs(value) else 3
    exact = not known and scale == 1.0 and value == round(value)
    shown, *band = (format_digits(end / scale, 17 if exact else digits) for end in (value, low, high))
    notes = [f"{band[0]} to {band[1]}"] * known + [basis] * bool(basis)
    return f"{shown} {name}".rstrip() + (f" ({'; '.join(notes)})" if notes else "")


@declare(value=Number(-math.inf, math.inf, unknown=True), digits=Integer(1, 17))
def format_digits(value: float, digits: int) -> str:
    """Print a number in so many significant digits, thousands grouped and without a power of ten.

    Parameters
    ----------
    value : float
        Number to print. [-]
    digits : int
        Significant digits, from 1 to 17. [-]

    Returns
    -------
    text : str
        The number with its thousands grouped. [-]

    Examples
    --------
    >>> format_digits(1952.0, 2), format_digits(0.01234, 2), format_digits(1e7, 17), format_digits(0.0, 2)
    ('2,000', '0.012', '10,000,000', '0')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    printed = f"{round(value, places):,.{max(places, 0)}f}"
    return printed.rstrip("0").rstrip(".") if "." in printed else printed


def format_duration(seconds: float, digits: int = 2) -> str:
    """Print a time in the largest of years, days, hours, minutes and seconds of which it has one or more.

    Examples
    --------
    >>> format_duration(7726.0), format_duration(31.0), format_duration(10 * YEAR), format_duration(math.inf)
    ('2.1 h', '31 s', '10 years', 'forever')
    """
    seconds = number("seconds", seconds, 0, math.inf, unknown=True)
    if math.isinf(seconds):
        return "forever"
    scales = {"years": YEAR, "days": DAY, "h": HOUR, "min": MINUTE}
    name, scale = next(((name, scale) for name, scale in scales.items() if seconds >= scale), ("s", 1.0))
    shown = format_digits(seconds / scale, digits)
    return f"{shown} {name.removesuffix('s') if shown == '1' and name != 's' else name}"
