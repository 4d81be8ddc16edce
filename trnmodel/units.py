"""Constants of bytes, time, energy and money, and quantities as printed text.

Everything inside trnmodel is a plain float in base units: B, FLOP, s, J, W, USD, Hz. A source prints
"2.9 TB/s" or "~100 engine cycles"; it is converted here, once, when `data/` is loaded.
"""

from __future__ import annotations

import math
import re

from trnmodel.arguments import SHOWN, instance, integer, number, text

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
KBIT, MBIT, GBIT, TBIT = KB / 8, MB / 8, GB / 8, TB / 8  # in bytes
GFLOP, TFLOP, PFLOP, EFLOP = 1e9, 1e12, 1e15, 1e18
US, MS, MINUTE, HOUR, DAY, YEAR = 1e-6, 1e-3, 60.0, 3600.0, 86400.0, 8760.0 * 3600.0
KW, MW, KWH = 1e3, 1e6, 3.6e6
NS = 1e-9
MILLION, BILLION, TRILLION = 1e6, 1e9, 1e12

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
    for scale, name in _SCALES.get(unit, []):
        if abs(value) >= scale:
            return f"{value / scale:.{digits}g} {name}"
    return f"{value:.{digits}g} {unit}".strip()
