"""What several chapters ask of the best choice on a system: its rack, ties, software without drafts, runs nearby."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnmodel.evidence.tables import judged
from trnmodel.search.grid import options_of

if TYPE_CHECKING:
    from trnmodel.catalog.systems import System
    from trnmodel.search.choice import Choice

TIED = 1.01  # ratio up to which two systems do the same


def rate(speed: float) -> str:
    """Return a speed in words.

    Examples
    --------
    >>> rate(1.0), rate(2500.0)
    ('1 token/s', '2,500 tokens/s')
    """
    return f"{speed:,g} token{'' if speed == 1 else 's'}/s"


def same(one: Choice, other: Choice) -> bool:
    """Whether two choices make the same per chip, within a percent."""
    ratio = one.tokens_per_s_per_chip / other.tokens_per_s_per_chip
    return 1 / TIED <= ratio <= TIED


def undrafted(best: Choice | None) -> list[str]:
    """Return the public software of a choice that drafts no tokens; empty if the choice drafts none itself."""
    if best is None or not best.option.speculates:
        return []
    options = options_of(best.system, best.question.model, best.question.request, None)
    return [one.efficiencies.id for one in options if not one.speculates]


def unmeasured(best: Choice) -> str:
    """Return that nobody has published a run of a server with a chip; empty if somebody has."""
    rows = judged()
    if ((rows.chip == best.system.chip.id) & rows.use.str.startswith("serving")).any():
        return ""
    return f"But nobody has measured a server of {best.system.chip.name}, so its range is too narrow. "


def per_rack(spec: System) -> float:
    """Return the chips of a rack, or of a server or domain whose racks no source counts.

    Examples
    --------
    >>> from trnmodel.catalog.systems import system
    >>> per_rack(system("trn3-nl32x2-pcie160")), per_rack(system("hgx-h200"))
    (32.0, 8.0)
    """
    return float(spec.domain_chips / (1.0 if np.isnan(spec.racks) else spec.racks))
