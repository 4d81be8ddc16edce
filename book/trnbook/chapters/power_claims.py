"""A vendor's claims of speed and of efficiency: which can be true together, and what watts they imply."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import choice, number
from trnmodel.catalog import facilities
from trnmodel.catalog.facilities import ends
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.formulas.energy import power_ratio
from trnmodel.result import tidy

if TYPE_CHECKING:
    import pandas as pd

# a claim is a ratio of speed per chip or of work per joule, as printed, at least or at most that
CLAIMS = {
    "peak compute": ("speed", "as printed"),
    "speed": ("speed", "at most"),
    "efficiency": ("efficiency", "as printed"),
    "tokens per MW": ("efficiency", "at least"),
    "power for equal work": ("power", "as printed"),
}
READINGS = ("power", "energy")  # of a cut: of the watts that are drawn, or of the joules of the same work
RATIOS = ("speed", "efficiency", "power")


def _span(name: str, ratio: float, tolerance: float, reading: str) -> dict[str, tuple[float, float]]:
    """Return the ranges of speed, work per joule and power that a claim allows; those it is silent on are open."""
    what, how = CLAIMS[name]
    if what == "power" and reading == "energy":
        what, ratio = "efficiency", 1 / ratio
    low, high = ratio * (1 - tolerance), ratio * (1 + tolerance)
    own = {"as printed": (low, high), "at least": (ratio, np.inf), "at most": (0.0, ratio)}[how]
    return dict.fromkeys(RATIOS, (0.0, np.inf)) | {what: own}


def claim_sets(
    system: str | System = "trn3-nl72x2-pcie160",
    before: str | System = "trn2-ultraserver",
    *,
    tolerance: float = 0.1,
    claims: facilities.Claims | None = None,
    reading: str = "power",
) -> pd.DataFrame:
    """Return which sets of claims of speed and efficiency can be true together, and the watts each implies.

    Parameters
    ----------
    system, before : str or System
        The system of the claims, and the one that it is compared with. [-]
    tolerance : float
        Relative tolerance of a printed ratio. [-]
    claims : Claims, optional
        Ratios; default what AWS and the press print. [-]
    reading : str
        What a cut of power for equal work cuts: "power" (the watts that are drawn), or "energy" (the joules of the same
        work). [-]

    Returns
    -------
    sets : pandas.DataFrame
        One row per set: the claims, low and high of the implied speed per chip, work per joule, power and watts per
        chip, whether the claims agree, and whether the watts meet the TDP of the chip. [-]

    Notes
    -----
    Compute is claimed of whole systems, and divided by their numbers of chips. Speed over work per joule is the ratio
    of power: 3 times the speed over 5 times the tokens per megawatt is 0.6, which is 40 % less power, so that these
    three are one set of claims. Read as energy, a cut of 40 % is 1 / 0.6 = 1.67 times the work per joule, which no
    claim of efficiency allows. Watts are held against the range of TDP of both chips, and are open where a side is.

    Examples
    --------
    >>> one = "speed + tokens per MW + power for equal work"
    >>> [bool(claim_sets(reading=reading).set_index("claims").agree[one]) for reading in READINGS]
    [True, False]
    """
    new, old = (find_system(where, "system") for where in (system, before))
    tolerance = number("tolerance", tolerance, 0.0, 1.0)
    choice("reading", reading, READINGS)
    said = facilities.claims() if claims is None else claims
    per_chip = new.domain_chips * new.count / (old.domain_chips * old.count)
    ratios = {name: ratio / (per_chip if name == "peak compute" else 1.0) for name, ratio in said.claimed_ratio.items()}
    ratios |= {name: 1 - cut for name, cut in said.claimed_cut.items()}
    names = [name for name in CLAIMS if name in ratios]
    rows = []
    for size in range(1, len(names) + 1):
        for some in itertools.combinations(names, size):
            spans = [_span(name, ratios[name], tolerance, reading) for name in some]
            rows.append(
                {"claims": " + ".join(some)} | _implied(spans, ends(new.chip, "tdp_w"), ends(old.chip, "tdp_w"))
            )
    return tidy(rows)


def _implied(spans: Sequence[dict], new_w: tuple[float, float], old_w: tuple[float, float]) -> dict[str, Any]:
    """Return where the ranges of claims meet, and the watts per chip that follow from the older chip's watts.

    Power is speed over work per joule, so that each of the three bounds the others.
    """
    speed, work, power = ((max(s[what][0] for s in spans), min(s[what][1] for s in spans)) for what in RATIOS)
    low = max(power[0], float(power_ratio(speed[0], work[1])))
    high = min(power[1], float(power_ratio(speed[1], work[0])) if work[0] else np.inf)
    agree = speed[0] <= speed[1] and work[0] <= work[1] and low <= high
    watts = (low * old_w[0], high * old_w[1]) if agree else (np.nan, np.nan)
    return {
        "speed_low": speed[0],
        "speed_high": speed[1],
        "efficiency_low": work[0],
        "efficiency_high": work[1],
        "power_low": low if agree else np.nan,
        "power_high": high if agree else np.nan,
        "chip_w_low": watts[0],
        "chip_w_high": watts[1],
        "agree": agree,
        "meets_tdp": agree and watts[0] <= new_w[1] and watts[1] >= new_w[0],
    }


def largest(sets: pd.DataFrame) -> pd.DataFrame:
    """Return the consistent sets of claims that no larger consistent set contains.

    Examples
    --------
    >>> largest(claim_sets()).claims.tolist()[-1]
    'peak compute + speed + efficiency + power for equal work'
    """
    agree = [set(claims.split(" + ")) for claims in sets.claims[sets.agree]]
    inside = sets.claims.map(lambda one: any(set(one.split(" + ")) < other for other in agree))
    return sets[sets.agree & ~inside]
