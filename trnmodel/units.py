"""Constants of bytes, time, energy and money, and quantities as printed text.

Everything inside trnmodel is a plain float in base units: B, FLOP, s, J, W, USD, Hz. A source prints
"2.9 TB/s" or "~100 engine cycles"; it is converted here, once, when `data/` is loaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from trnmodel.arguments import SHOWN, flag, instance, integer, number, refuse, text

__all__ = ["format_digits", "format_quantity", "format_within", "parse_number", "read_number"]  # and constants

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
GBIT, TBIT = GB / 8, TB / 8  # in bytes
GFLOP, TFLOP, PFLOP, EFLOP = 1e9, 1e12, 1e15, 1e18
US, MS, MINUTE, HOUR, DAY, YEAR = 1e-6, 1e-3, 60.0, 3600.0, 86400.0, 8760.0 * 3600.0
KW, MW, KWH = 1e3, 1e6, 3.6e6
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
    "s": [(1.0, "s"), (MS, "ms"), (US, "us"), (NS, "ns")],
    "W": [(MW, "MW"), (KW, "kW")],
    "J": [(1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"), (1e-9, "nJ"), (1e-12, "pJ")],
}


def parse_number(text: str) -> tuple[float, float, float]:
    """Read a printed number or range as (value, low, high); text that is no number gives NaN.

    A range "1-2" has its midpoint as value. Hedges ("~", "over", "up to") stay in the printed text.

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
    """Return a number as people type it, for the argument or flag of that name.

    k is 1,000, M a million, G or B a thousand million and T a million million, in either case; Ki, Mi, Gi and Ti are
    powers of 1,024. Of bytes, B is the byte, and a prefix may stand with or without it.

    Raises ValueError, naming the flag, for any other text: one blank may stand before the suffix, and nothing else
    around the number.

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


def counted(number: float, thing: str) -> str:
    """Print how many there are of a thing.

    Examples
    --------
    >>> counted(1, "rank"), counted(16, "rank"), counted(0.5, "token a chip"), counted(2048.0, "token a chip")
    ('1 rank', '16 ranks', '0.5 tokens a chip', '2,048 tokens a chip')
    """
    first, _, rest = thing.partition(" ")
    shown = f"{number:,.0f}" if number == round(number) else f"{number:g}"
    return f"{shown} {first}{'' if number == 1 else 's'} {rest}".strip()


def _prefix(value: float, unit: str) -> tuple[float, str]:
    """The scale and the name of the prefix of a value; the scope that stands behind its unit stays."""
    base, a, scope = unit.partition(" a ")
    pairs = _SCALES.get(base, [(1.0, base)])
    scale, name = next((pair for pair in pairs if abs(value) >= pair[0] * (1 - 5e-3)), pairs[-1])
    return (1.0, unit) if base in ("B", "W") and abs(value) < scale * (1 - 5e-3) else (scale, name + a + scope)


def spread_of(values: Iterable[float], unit: str, digits: int = 3) -> str:
    """One figure, or the least and the most of several, with the prefix that a reader expects.

    Examples
    --------
    >>> spread_of([0.00118, 0.0403], "s"), spread_of([2.0**35], "B a rank"), spread_of([math.nan], "s")
    ('1.18 ms to 40.3 ms', '32 GiB a rank', 'none')
    >>> spread_of([1.25e-10], "J a flop"), spread_of([0.02, 3.0], "J a token")
    ('125 pJ a flop', '20 mJ a token to 3 J a token')
    """
    known = [x for x in values if not math.isnan(x)]
    texts = []
    for x in (min(known), max(known)) if known else ():
        scale, name = _prefix(x, unit)
        texts.append(f"{format_digits(x / scale, digits)} {name}".strip())
    return " to ".join(dict.fromkeys(texts)) or "none"


_UNITS = {"bytes": "B", "flop": "FLOP", "s": "s", "w": "W", "j": "J", "usd": "USD", "hz": "Hz"}


def unit_of(name: str) -> str:
    """The unit that the name of a figure ends in, in words where it is a rate of something; empty where there is none.

    Examples
    --------
    >>> unit_of("time_s"), unit_of("busbw_bytes_per_s"), unit_of("memory_bytes_per_rank"), unit_of("batch")
    ('s', 'B/s', 'B a rank', '')
    >>> unit_of("tokens_per_s_per_user"), unit_of("usd_per_h")
    ('tokens/s a user', 'USD/h')
    """
    head, _, scope = name.partition("_per_s_per_") if "_per_s_per_" in name else (name, "", "")
    rate = bool(scope) or head.endswith("_per_s")
    head = head.removesuffix("_per_s")
    if not rate and "_per_" in head:
        head, _, scope = head.rpartition("_per_")
    last = head.rpartition("_")[2]
    found = _UNITS.get(last, last if rate else "")
    if scope == "h":
        return f"{found}/h"
    return found + ("/s" if rate else "") + (f" a {scope.replace('_', ' ')}" if scope and found else "")


def spoken(name: str) -> str:
    """The name of a figure without its unit, in words.

    Examples
    --------
    >>> spoken("lower_bound_s"), spoken("busbw_bytes_per_s"), spoken("tokens_per_s_per_user"), spoken("max_batch")
    ('lower bound', 'busbw', '', 'max batch')
    """
    return (name.partition("_per_")[0].rpartition("_")[0] if unit_of(name) else name).replace("_", " ")


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """Print a base-unit value with the prefix a reader expects: capacities binary, rates decimal.

    Examples
    --------
    >>> format_quantity(2.9e12, "B/s"), format_quantity(2**35, "B"), format_quantity(667e12, "FLOP/s")
    ('2.9 TB/s', '32 GiB', '667 TFLOP/s')
    """
    value = number("value", value, -math.inf, math.inf, unknown=True)
    digits, unit = integer("digits", digits, 1, 17), text("unit", unit)
    if not math.isfinite(value):
        return "not published" if math.isnan(value) else f"{value} {unit}".strip()
    scale, name = _scale_of(value, unit)
    return f"{_plain(value / scale, digits)} {name}".strip()


def _scale_of(value: float, unit: str) -> tuple[float, str]:
    """The largest prefix that is no larger than a value; a time below all of them is a part of a nanosecond."""
    pairs = _SCALES.get(unit, [])
    least = pairs[-1] if unit == "s" and value else (1.0, unit)
    return next((pair for pair in pairs if abs(value) >= pair[0]), least)


def _plain(value: float, digits: int) -> str:
    """As "%g" prints it, without a power of ten."""
    short = f"{value:.{digits}g}"
    return format_digits(value, digits) if "e" in short else short


ROUGH = 0.05  # half-width of a band, as a share of the value, from which on two digits are shown


def format_within(value: float, low: float, high: float, unit: str = "", basis: str = "") -> str:
    """Print a quantity with its band and what it rests on, in as many digits as the band leaves it.

    Two digits where the band is wider than 5 % either way, three below; without a band ("low" is "high") what is exact
    stays exact. `unit` is a base unit ("s", "B/s") that takes a prefix, or words ("tokens/s a chip").

    Examples
    --------
    >>> format_within(1285.4, 707.2, 1952.0, "tokens/s a chip", "extrapolated")
    '1,300 tokens/s a chip (710 to 2,000; extrapolated)'
    >>> format_within(0.01234, 0.01222, 0.01252, "s", "measured"), format_within(144, 144, 144, "chips")
    ('12.3 ms (12.2 to 12.5; measured)', '144 chips')
    """
    ends = {"value": value, "low": low, "high": high}
    value, low, high = (number(name, end, -math.inf, math.inf, unknown=True) for name, end in ends.items())
    unit, basis = text("unit", unit), text("basis", basis)
    if not math.isfinite(value):
        return format_quantity(value, unit)
    scale, name = _scale_of(value, unit)
    known = math.isfinite(low + high) and high > low
    digits = 4 if not known else 2 if max(high - value, value - low) > ROUGH * abs(value) else 3
    exact = not known and scale == 1.0 and value == round(value)
    shown, *band = (format_digits(end / scale, 17 if exact else digits) for end in (value, low, high))
    told = [f"{band[0]} to {band[1]}"] * known + [basis] * bool(basis)
    return f"{shown} {name}".rstrip() + (f" ({'; '.join(told)})" if told else "")


def format_digits(value: float, digits: int) -> str:
    """Print a number in so many significant digits, thousands grouped and without a power of ten.

    Examples
    --------
    >>> format_digits(1952.0, 2), format_digits(0.01234, 2), format_digits(1e7, 17), format_digits(0.0, 2)
    ('2,000', '0.012', '10,000,000', '0')
    """
    value, digits = number("value", value, -math.inf, math.inf, unknown=True), integer("digits", digits, 1, 17)
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
