"""The way from the bytes of a step to the price of a million tokens, a sum in each row.

The first page shows it for the request of the chapter; `desk.js` writes the same rows for what its controls ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from trnmodel.units import GB, TB, TFLOP, format_digits, format_quantity

if TYPE_CHECKING:
    from trnmodel.search.chip_seconds import TokenCost
    from trnmodel.search.choice import Choice

HAND = (  # the way from bytes to dollars: the name of each sum, and why it stands there
    (
        "Least time of a step",
        "Every step reads the weights and the caches of its sequences. No chip reads faster than its memory allows.",
    ),
    (
        "Time of reading",
        "Real steps do not reach the full bandwidth. The share is fitted to measured steps, or assumed.",
    ),
    (
        "Step",
        "Reading, computing, exchanges and a residual overhead of unknown cause, less what runs side by side.",
    ),
    (
        "Chip time of decoding, per token",
        "All chips of the replica work for all sequences of the batch.",
    ),
    (
        "Least time of a prompt",
        "A prompt is limited by computing. No chip computes faster than its peak.",
    ),
    (
        "Chip time of the prompt, per token",
        "A prompt reaches a part of the peak, and has exchanges and overheads. All tokens of the answer share it.",
    ),
    (
        "Chip time per token",
        "Where prompts of more users would break the promised speed, a replica is not filled and waits.",
    ),
    (
        "Tokens/s of a user",
        "No token comes while prompts of others run. More of them on the same chip, and the promise breaks.",
    ),
    ("Tokens/s per chip", "The inverse of the chip time."),
    ("$ per million tokens", "The price of the chip time."),
)


def moved_bytes(c: Choice) -> float:
    """Return the bytes that all ranks of a replica read and write in a decode step [B]."""
    return float(c.step.moved_bytes_per_rank) * float(c.degrees.ranks)


def prompt_flop(c: Choice) -> float:
    """Return the operations of all ranks of a replica on one prompt [FLOP]."""
    return float(c.together.work_flop_per_rank) * float(c.degrees.ranks) / float(c.times.groups)


def drafting_s(c: Choice) -> float:
    """Return the time of a step in which a small model drafts, where it is not inside the measured gain [s]."""
    return float(c.times.step_s) - float(c.step.time_s)


def sums(c: Choice, cost: TokenCost) -> pd.DataFrame:
    """Return the way from the bytes of a step to the price of a million tokens, a sum in each row.

    Parameters
    ----------
    c : Choice
        What a system does for the request. [-]
    cost : TokenCost
        What its tokens cost, at a rent. [-]
    """
    step, answer, k = c.step, float(c.question.request.output_tokens), float(c.times.tokens_per_step)
    step_s, drafted_s = float(c.times.step_s), drafting_s(c)
    decode_s, whole_s = step_s * c.paid_chips / (c.batch * k), c.request_chip_s / answer
    prompt_s, overlap_s = c.prompt_chip_s / answer, _overlap_s(c)
    least_s = moved_bytes(c) / float(c.chips * c.system.chip.hbm_bytes_per_s)
    peak = float(c.system.chip.peak(c.dtypes.compute))
    parts = " + ".join(_s(getattr(step, f"{part}_s")) for part in ("memory", "compute", "network", "overhead"))
    parts += f" + {_s(drafted_s)} drafting" if drafted_s > 0 else ""
    usd_per_h = f"${format_digits(float(cost.usd_per_chip_h), 4)}"
    rows = [
        (f"{moved_bytes(c) / GB:.3g} GB / ({_rate(c)})", _s(least_s)),
        (f"{_s(least_s)} / {_percent(least_s, step.memory_s)}", _s(step.memory_s)),
        (f"{parts} - {_s(overlap_s)} side by side", _s(step_s)),
        (f"{_s(step_s)} x {c.paid_chips:.4g} / ({c.batch:g} x {k:.3g})", _s(decode_s)),
        (f"{prompt_flop(c) / TFLOP:.3g} TFLOP / {peak / TFLOP:,.4g} TFLOP/s", _s(prompt_flop(c) / peak)),
        (f"{_s(c.prompt_chip_s)} / {answer:g} tokens of the answer", _s(prompt_s)),
        (f"{_s(decode_s)} + {_s(prompt_s)} + {_s(max(whole_s - decode_s - prompt_s, 0.0))} idle", _s(whole_s)),
        (
            f"{k:.3g} / {_s(step_s)} x (1 - {_percent(prompt_s, whole_s, 3)})",
            format_digits(k / step_s * (1 - prompt_s / whole_s), 3),
        ),
        (f"1 / {_s(whole_s)}", format_digits(1 / whole_s, 3)),
        (
            f"{usd_per_h} / 3,600 s x {_s(whole_s)} x 10^6",
            f"${format_digits(float(cost.generated_usd_per_mtoken), 3)}",
        ),
    ]
    return pd.DataFrame(
        [(title, why, *row) for (title, why), row in zip(HAND, rows, strict=True)],
        columns=["what", "why", "of", "answer"],
    )


def _overlap_s(c: Choice) -> float:
    """Return the time of a step in which its parts run side by side [s]."""
    return max(float(c.step.upper_s - c.step.time_s), 0.0)


def _rate(c: Choice) -> str:
    """Return the chips of a replica and the bandwidth of each, in words."""
    return f"{c.chips:g} x {c.system.chip.hbm_bytes_per_s / TB:.4g} TB/s"


def _percent(part: float, whole: object, digits: int = 2) -> str:
    """Return a share in percent."""
    return f"{100 * part / float(whole):.{digits}g} %"  # type: ignore[arg-type]


def _s(value: object) -> str:
    """Return a time with three digits."""
    return format_quantity(float(value), "s", 3)  # type: ignore[arg-type]
