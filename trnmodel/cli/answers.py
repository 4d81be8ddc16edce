"""Answers of the command line on a line each: a step, its watts, the useful share of a job's time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOSTLY, LEAST = 99.0, 0.01  # per cent of the time: above it the loss is printed, below it no digit


def impossible(result: Any, model: Any, degrees: Any) -> str:
    """Why a model cannot run as it was asked: where, cut how, with what software, and what there is to cut of it."""
    from trnmodel.search.train_run import DEGREES
    from trnmodel.search.train_run import degrees as degrees_text
    from trnmodel.steps.legal import RULES, heads_of
    from trnmodel.units import counted

    cut = degrees_text({name: float(getattr(degrees, name)) for name in DEGREES})
    question = f"{model.id} cannot run on {result.system.id} {'on' if cut == 'one rank' else 'at'} {cut}"
    why = f"{question} with {result.stack.id}: {result.reason}."
    if not result.reason_mask & (2 ** len(RULES) - 1):
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
    """Return the time and throughput of a step with their bands, or the reason why it cannot run."""
    if not step.valid:
        return impossible(step, step.model, step)
    from trnmodel.quantities import quantity

    head = step.card()[0].removeprefix("Step: ")
    rate = step.in_words("tokens_per_s_per_chip", quantity("tokens_per_s_per_chip").unit)
    return f"{head}, {rate}, {step.bound} takes most of the time"


def spent(result: Any) -> str:
    """Return J/token at the server and W per chip with their bands, and the TDP; or why there is no answer."""
    from trnmodel.quantities import quantity
    from trnmodel.units import format_quantity

    if not result.valid:
        return result.card()[0].removeprefix("Energy: ")
    joules = result.in_words(
        "server_j_per_token", f"{quantity('server_j_per_token').unit} at the server", str(result.basis)
    )
    watts = result.in_words("chip_w", quantity("chip_w").unit)
    return f"{joules}, power per chip {watts} of a TDP of {format_quantity(float(result.tdp_w), 'W')}"


def fitting(result: Any, model: Any, mapping: Any) -> str:
    """Bytes that a rank stores of those that it has, and why a model cannot run so where it cannot."""
    from trnmodel.units import format_quantity

    bytes_ = result.in_words("total_bytes", "B", str(result.basis))
    of = f"{bytes_} of {format_quantity(float(result.capacity_bytes), 'B', 3)} per rank"
    return f"fits: {of}" if result.valid else f"{impossible(result, model, mapping)} It would take {of}."


def useful(result: Any) -> str:
    """Goodput with band and basis, the time between interruptions, and what most of the loss goes to."""
    from trnmodel.reliability.goodput import LOSSES
    from trnmodel.units import format_digits, format_duration, format_within

    value, low, high = (100 * float(end) for end in (result.goodput, result.low, result.high))
    share, part = max((float(getattr(result, f"{name}_lost")), name) for name in LOSSES)
    word = "useful"
    if value > MOSTLY:
        word, value, low, high = "lost", 100 - value, 100 - high, 100 - low
    text = f"under {LEAST}% ({result.basis})"
    if value > LEAST:
        text = format_within(value, low, high, "%", str(result.basis)).replace(" %", "%")
    stops = format_duration(float(result.mtbf_s))
    rhythm = "never interrupted" if stops == "forever" else f"{stops} between interruptions"
    return f"{text} of the time is {word}, {rhythm}, {part} takes most ({format_digits(100 * share, 2)}%)"


def compared(result: Any) -> dict[str, Any]:
    """Return a comparison for JSON: a row for each speed and system, shares of the draws, flips, and price ties."""
    import json

    rows = json.loads(result.to_frame(bands=True).to_json(orient="records", double_precision=12))
    draws = [
        {"promised_tokens_per_s_per_user": speed, "leader": result.leader[speed], "ties": result.ties[speed]}
        | result.leads[speed]._asdict()
        for speed in result.speeds
    ]
    ties = json.loads(result.break_even().to_json(orient="records", double_precision=12))
    return {
        "lines": rows,
        "draws": draws,
        "flips": [flip._asdict() for flip in result.flips],
        "price_ties": ties,
    }


def checked(result: Any) -> dict[str, Any]:
    """Return a check of a saved plan for JSON: what moved of the answer, and which facts or laws moved it."""
    import json

    rows = json.loads(result.to_frame().to_json(orient="records", double_precision=12))
    new = [{"fact": one.fact, "now": one.printed, "source": one.source, "locator": one.locator} for one in result.new]
    flags = {"differs": result.differs, "possible": result.possible, "model_changed": result.model_changed}
    return {"path": result.path, "trnmodel": result.version, **flags, "changes": rows, "new": new, "data": result.data}


def explained(some: Iterable[Any]) -> list[Any]:
    """Return where the numbers of some answers come from, without those that cannot exist."""
    from trnmodel.explained.explain import explain

    return [explain(one) for one in some if one is not None and one.valid.all()]


def public(result: Any) -> list[Any]:
    """Return the costs of a renter with public software, by system; with another kind where there is no such line."""
    lines = {one.system.id: one for one in reversed(result.lines) if one.valid.all()}
    return [lines[name] for name in result.systems if name in lines]
