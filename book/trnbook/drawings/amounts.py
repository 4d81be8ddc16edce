"""Amounts as drawings write them, the widths of texts, and the numbers of a result that a drawing shows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from trnmodel.units import DAY, GB, HOUR, KB, MB, MINUTE, MS, TB, US

GLYPH = 0.6  # mean width of a character over the size of the font
SECONDS = ((DAY, 2.0, "days"), (HOUR, 2.0, "h"), (MINUTE, 2.0, "min"), (1.0, 1.0, "s"), (MS, 1.0, "ms"))
BYTES = ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB"))


def digits(value: float) -> str:
    """Return a number with three digits at most.

    Examples
    --------
    >>> digits(12.91), digits(0.5), digits(1234.5), digits(2.0)
    ('12.9', '0.5', '1,234', '2')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    """Return a time in the unit that suits it.

    Examples
    --------
    >>> seconds(0.0204), seconds(9.1), seconds(546), seconds(43_282), seconds(2.5e-6)
    ('20.4 ms', '9.1 s', '9.1 min', '12 h', '2.5 µs')
    """
    for unit, least, name in SECONDS:
        if value >= unit * least:
            return f"{digits(value / unit)} {name}"
    return "0 s" if value == 0 else f"{digits(value / US)} µs"


def size(value: float) -> str:
    """Return bytes in the unit that suits them.

    Examples
    --------
    >>> size(141.1e9), size(1.34e12), size(512.0)
    ('141 GB', '1.34 TB', '512 B')
    """
    for unit, name in BYTES:
        if value >= unit:
            return f"{digits(value / unit)} {name}"
    return f"{digits(value)} B"


def percent(share: float) -> str:
    """Return a share in percent, with a digit more where it is small.

    Examples
    --------
    >>> percent(0.372), percent(0.0172), percent(0.0001)
    ('37 %', '1.7 %', '0.01 %')
    """
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %" if value >= 0.095 else f"{value:.1g} %"


def wide(said: str, size: float = 15) -> float:
    """Return about how wide a line of text is [px].

    Examples
    --------
    >>> wide("ten glyphs", 10)
    60.0
    """
    return len(said) * size * GLYPH


def number(result: Any, name: str) -> float:
    """Return a figure of a result of one point.

    Raises
    ------
    ValueError
        The result has several points, or its point cannot exist.

    Examples
    --------
    >>> import trnmodel as tm
    >>> number(tm.goodput("trn2-ultraserver", 4096, model="llama-3.3-70b"), "chips")
    4096.0
    """
    value = np.asarray(getattr(result, name), dtype=float)
    if value.size != 1:
        raise ValueError(f"{name}: a drawing shows one point, the result has {value.size}")
    if np.isnan(value):
        reason = str(getattr(result, "reason", "")) or "it has no value"
        raise ValueError(f"{name}: there is nothing to draw, because {reason}")
    return float(value.reshape(()))


def name_of(*parts: object) -> str:
    """Return a name for the controls of a drawing, which stands in a style sheet.

    Examples
    --------
    >>> name_of("flow", "trn2.48xlarge", 4)
    'flow-trn2-48xlarge-4'
    """
    return re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, parts)).lower()).strip("-")
