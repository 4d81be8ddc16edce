"""What a system makes without drafts, on which software, and where that lies beside the band of a plan with them."""

from __future__ import annotations

from collections.abc import Iterable

from trnmodel.search.choice import Choice
from trnmodel.units import format_digits


def place(value: float, best: Choice) -> str:
    """Return where a throughput lies beside the band of a plan."""
    return "below the band" if value < best.low else "above the band" if value > best.high else "inside the band"


def keeping(plain: Iterable[Choice | None]) -> list[Choice]:
    """Return the choices that keep their promise, the one with the largest throughput per chip first."""
    return sorted((c for c in plain if c is not None and c.valid), key=lambda c: -c.tokens_per_s_per_chip)


def own(best: Choice, plain: Iterable[Choice | None]) -> Choice | None:
    """Return the choice without drafts on the software of a plan with drafts; None where it keeps no promise."""
    return next((c for c in keeping(plain) if c.stack.id == best.stack.id), None)


def without(best: Choice, plain: Iterable[Choice | None]) -> str:
    """Return what a system makes without drafts on the fastest software and on the plan's own, beside the band.

    Examples
    --------
    >>> from trnbook.shared import case
    >>> plan = case.choice("llama-3.3-70b", "trn2.48xlarge")
    >>> without(plan, [])
    'Without drafts no mapping keeps the promise.'
    """
    plain = keeping(plain)
    if not plain:
        return "Without drafts no mapping keeps the promise."
    first, same = plain[0], own(best, plain)
    made = f"{format_digits(first.tokens_per_s_per_chip, 2)} tokens/s per chip"
    lies = place(first.tokens_per_s_per_chip, best)
    if same is first:
        return f"Without drafts the same system makes {made} on the same software, which is {lies}."
    said = f"Without drafts the same system makes {made} on other software, `{first.stack.id}`, which is {lies}."
    if same is None:
        return f"{said} On the plan's own software, `{best.stack.id}`, it then keeps no promise."
    made, lies = format_digits(same.tokens_per_s_per_chip, 2), place(same.tokens_per_s_per_chip, best)
    return f"{said} On the plan's own software, `{best.stack.id}`, it makes {made}, which is {lies}."
