"""Answers of the command line on a line each: a step, its watts, the useful share of a job's time."""

from __future__ import annotations

from typing import Any

MOSTLY, LEAST = 99.0, 0.01  # per cent of the time: above it the loss is told, below it no digit


def impossible(found: Any, model: Any, degrees: Any) -> str:
    """Why a model cannot run as it was asked: where, cut how, with what software, and what there is to cut of it."""
    from trnmodel.planner.train_run import DEGREES
    from trnmodel.planner.train_run import degrees as in_words
    from trnmodel.steps.legal import RULES, heads_of
    from trnmodel.units import counted

    cut = in_words({name: float(getattr(degrees, name)) for name in DEGREES})
    asked = f"{model.id} cannot run on {found.system.id} {'on' if cut == 'one rank' else 'at'} {cut}"
    why = f"{asked} with {found.stack.id}: {found.reason}."
    if not found.reason_mask & (2 ** len(RULES) - 1):
        return why
    phase = "decode" if model.generates else "prefill"
    outline, heads = model.outline(phase), heads_of(model, phase)
    has = [counted(outline.layers, "layer")]
    for kind, numbers in (("attention", heads.queries), ("KV", heads.grouped)):
        many = " and ".join(f"{n:,}" for n in numbers)
        has += [f"{many} {kind} head{'' if many == '1' else 's'}"] * bool(many)
    has += [counted(outline.experts, "expert")] * bool(outline.experts)
    has += [f"contexts of up to {counted(model.max_context, 'token')}"] * bool(model.max_context)
    return f"{why} The model has {', '.join(has[:-1])} and {has[-1]}."


def rated(step: Any) -> str:
    """A step's time and its tokens a second with their band, or why it cannot exist."""
    if not step.valid:
        return impossible(step, step.model, step)
    head = step.card()[0].removeprefix("Step: ")
    return f"{head}, {step.in_words('tokens_per_s_per_chip', 'tokens/s a chip')}, {step.bound} takes most"


def spent(found: Any) -> str:
    """Joules a token at the server and watts of a chip, with their bands, beside its TDP; or why there is none."""
    from trnmodel.units import format_quantity

    if not found.valid:
        return found.card()[0].removeprefix("Energy: ")
    joules = found.in_words("server_j_per_token", "J a token at the server", str(found.basis))
    return f"{joules}, {found.in_words('chip_w', 'W')} a chip of TDP {format_quantity(float(found.tdp_w), 'W')}"


def fitting(found: Any, model: Any, mapping: Any) -> str:
    """Bytes that a rank stores of those that it has, and why a model cannot run so where it cannot."""
    from trnmodel.units import format_quantity

    bytes_ = found.in_words("total_bytes", "B", str(found.basis))
    of = f"{bytes_} of {format_quantity(float(found.capacity_bytes), 'B', 3)} a rank"
    return f"fits: {of}" if found.valid else f"{impossible(found, model, mapping)} It would take {of}."


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
