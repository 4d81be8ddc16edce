"""What a system makes without drafts, on which software, and where that lies beside the range of a plan with them."""

from __future__ import annotations

from collections.abc import Iterable

from trnmodel.search.choice import Choice
from trnmodel.units import HOUR, MILLION, format_digits

LINKED = "*drafts* by a small model (see [How fast does it serve?](serving.ipynb))"


def place(value: float, best: Choice) -> str:
    """Return where a throughput lies beside the range of a plan."""
    return "below the range" if value < best.low else "above the range" if value > best.high else "inside the range"


def keeping(plain: Iterable[Choice | None]) -> list[Choice]:
    """Return the choices that keep their promise, the one with the largest throughput per chip first."""
    return sorted((c for c in plain if c is not None and c.valid), key=lambda c: -c.tokens_per_s_per_chip)


def own(best: Choice, plain: Iterable[Choice | None]) -> Choice | None:
    """Return the choice without drafts on the software of a plan with drafts; None where it keeps no promise."""
    return next((c for c in keeping(plain) if c.stack.id == best.stack.id), None)


def without(best: Choice, plain: Iterable[Choice | None]) -> str:
    """Return what a system makes without drafts on the fastest software and on the plan's own, beside the range.

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
    made = format_digits(first.tokens_per_s_per_chip, 2)
    lies = place(first.tokens_per_s_per_chip, best)
    if same is first:
        return f"Without drafts the same system makes {made} tokens/s per chip, which is {lies}."
    if same is None:
        text = f"Without drafts the same system makes {made} tokens/s per chip on another software release"
        return f"{text}, which is {lies}. On the plan's own release it keeps no promise."
    less, there = format_digits(same.tokens_per_s_per_chip, 2), place(same.tokens_per_s_per_chip, best)
    text = f"Without drafts the same system makes {made} or {less} tokens/s per chip, by software release"
    both = f"both lie {lies}" if lies == there else f"the first lies {lies}, the second {there}"
    return f"{text}: {both}."


def priced(usd_per_chip_h: float, plain: Iterable[Choice | None]) -> str:
    """Return what a million tokens cost without drafts at a price of a chip-hour; empty if nothing is drafted.

    Examples
    --------
    >>> priced(2.0, [])
    ''
    """
    costs = [usd_per_chip_h / HOUR / c.tokens_per_s_per_chip * MILLION for c in keeping(plain)]
    said = " or ".join(f"\\${format_digits(usd, 2)}" for usd in costs)
    by = ", by software release" if len(costs) > 1 else ""
    return f" Without drafts a million costs {said}{by}." if costs else ""
