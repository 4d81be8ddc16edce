"""Answers of the command line on a line each: a step, its watts, the useful share of a job's time."""

from __future__ import annotations

from typing import Any

MOSTLY, LEAST = 99.0, 0.01  # per cent of the time: above it the loss is told, below it no digit


def rated(step: Any) -> str:
    """A step's time and, where it can exist, its tokens a second with their band."""
    head = step.card()[0].removeprefix("Step: ")
    if not step.valid:
        return head
    return f"{head}, {step.in_words('tokens_per_s_per_chip', 'tokens/s a chip')}, {step.bound} takes most"


def spent(found: Any) -> str:
    """Joules a token at the server and watts of a chip, with their bands, beside its TDP; or why there is none."""
    from trnmodel.units import format_quantity

    if not found.valid:
        return found.card()[0].removeprefix("Energy: ")
    joules = found.in_words("server_j_per_token", "J a token at the server", str(found.basis))
    return f"{joules}, {found.in_words('chip_w', 'W')} a chip of TDP {format_quantity(float(found.tdp_w), 'W')}"


def useful(found: Any) -> str:
    """Goodput with band and basis, the time between interruptions, and what most of the loss goes to."""
    from trnmodel.planner.goodput import LOSSES
    from trnmodel.units import format_digits, format_duration, format_within

    value, low, high = (100 * float(end) for end in (found.goodput, found.low, found.high))
    share, part = max((float(getattr(found, f"{name}_lost")), name) for name in LOSSES)
    word = "useful"
    if value > MOSTLY:
        word, value, low, high = "lost", 100 - value, 100 - high, 100 - low
    told = f"under {LEAST}% ({found.basis})"
    if value > LEAST:
        told = format_within(value, low, high, "%", str(found.basis)).replace(" %", "%")
    stops = format_duration(float(found.mtbf_s))
    rhythm = "never interrupted" if stops == "forever" else f"{stops} between interruptions"
    return f"{told} of the time is {word}, {rhythm}, {part} takes most ({format_digits(100 * share, 2)}%)"
