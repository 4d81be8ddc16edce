"""What several chapters ask of the best choice on a system: its rack, ties, software without drafts, runs nearby."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.evidence.tables import judged
from trnmodel.search.grid import options_of
from trnmodel.search.single import same

if TYPE_CHECKING:
    from trnmodel.catalog.specs import Chip
    from trnmodel.catalog.systems import System
    from trnmodel.models.transformer import Transformer
    from trnmodel.search.choice import Choice
    from trnmodel.steps.request import Request


def rate(speed: float) -> str:
    """Return a speed in words.

    Examples
    --------
    >>> rate(1.0), rate(2500.0)
    ('1 token/s', '2,500 tokens/s')
    """
    return f"{speed:,g} token{'' if speed == 1 else 's'}/s"


def tied(c: Choice, others: Iterable[Choice]) -> str:
    """Return which other systems make the same per chip, in a sentence; empty where none does."""
    names = [one.system.name for one in others if one is not c and one.valid and same(one, c)]
    return f"{' and '.join(names)} make{'s' if len(names) == 1 else ''} the same per chip." if names else ""


def plain_stacks(spec: System, model: Transformer, request: Request) -> list[str]:
    """Return the public software of a system that drafts no tokens.

    Examples
    --------
    >>> import trnmodel as tm
    >>> plain_stacks(tm.system("trn2.48xlarge"), tm.model("llama-3.3-70b"), tm.Request(4096, 512))
    ['vllm-neuron-2026', 'vllm-neuron-2026-async']
    """
    return [one.efficiencies.id for one in options_of(spec, model, request, None) if not one.speculates]


def undrafted(best: Choice | None) -> list[str]:
    """Return the public software of a choice that drafts no tokens; empty if the choice drafts none itself."""
    if best is None or not best.option.speculates:
        return []
    return plain_stacks(best.system, best.question.model, best.question.request)


def unmeasured(chip: Chip) -> str:
    """Return that nobody has published a run of a server with a chip of Trainium; empty if somebody has."""
    rows = judged()
    if not chip.core or ((rows.chip == chip.id) & rows.use.str.startswith("serving")).any():
        return ""
    return f"Nobody has published a measurement of a server of {chip.name}, so the true range is wider."


def per_rack(spec: System) -> float:
    """Return the chips of a rack, or of a server or domain whose racks no source counts.

    Examples
    --------
    >>> from trnmodel.catalog.systems import system
    >>> per_rack(system("trn3-nl32x2-pcie160")), per_rack(system("hgx-h200"))
    (32.0, 8.0)
    """
    return float(spec.domain_chips / (1.0 if np.isnan(spec.racks) else spec.racks))
