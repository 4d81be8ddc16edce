"""Ordinary calls with the numbers that they gave before arguments were checked at the door: they must keep them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trnmodel.result import Result

from .calls import HELPERS, Call, calls
from .values import made

FILE = Path(__file__).with_name("ordinary.json")
CALLS, CHANGED = 493, 0.6
RELATIVE = 1e-12

KEYS = {
    "Step": "time_s compute_s memory_s network_s lower_s upper_s work_flop_per_rank memory_bytes_per_rank",
    "MemoryFit": "weight_bytes cache_bytes total_bytes first_rank_total_bytes",
    "Collective": "time_s lower_bound_s",
    "Clos": "endpoints chips racks switches links optics",
    "Serving": "batch step_s prefill_s ttft_p99_s tpot_p99_s tokens_per_s_per_chip",
    "Disaggregated": "prefill_s transfer_s step_s prefill_chips_per_decode_chip tokens_per_s_per_chip",
    "Mapping": "ranks replica_ranks",
    "Flow": "bytes_per_s_per_pair",
    "Operator": "flop weight_bytes cache_read_bytes activation_bytes",
}
KERNEL = "time_s lower_s upper_s roofline_s tile_s hbm_read_bytes"


def key_numbers(result: Any) -> list[float]:
    """The numbers of a result that count."""
    if isinstance(result, pd.DataFrame):
        return [float(len(result)), float(result.tokens_per_s_per_chip.sum()), float(result.time_s.sum())]
    if isinstance(result, dict):
        return [float(number) for pair in sorted(result.items()) for number in pair]
    names = KEYS.get(type(result).__name__, KERNEL if isinstance(result, Result) else "").split()
    if names:
        return [float(number) for name in names for number in np.ravel(getattr(result, name))]
    if isinstance(result, tuple):
        return [float(number) for item in result for number in key_numbers(item)]
    return [float(number) for number in np.ravel(result)]


def _valid(result: Any) -> bool:
    return bool(np.all(getattr(result, "valid", True))) and bool(np.all(np.isfinite(key_numbers(result))))


def draw(call: Call, rng: np.random.Generator) -> dict[str, str]:
    """Codes of ordinary arguments beside those of the base."""
    return {name: str(rng.choice(codes)) for name, codes in call.ordinary.items() if rng.random() < CHANGED}


def _drawn(seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    known = [call for call in calls() if call.ordinary and call.code not in ("tm.Precision", "tm.Request")]
    known += 3 * [call for call in known if call.code in ("tm.decode_step", "tm.prefill", "tm.serve", "tm.collective")]
    seen: set[str] = set()
    while True:
        for call in known:
            codes = draw(call, rng)
            try:
                result = call.function(**call.arguments(codes))
            except ValueError:
                continue
            line = call.line(codes)
            if line not in seen and _valid(result):
                seen.add(line)
                yield {"call": call.code, "arguments": call.base | codes, "numbers": key_numbers(result)}


def write(seed: int) -> None:
    """Draw the calls anew and keep what they give now."""
    rows = [row for row, _ in zip(_drawn(seed), range(CALLS), strict=False)]
    FILE.write_text("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


@cache
def _function(code: str) -> Callable:
    return made(code, HELPERS)


def rows() -> list[dict[str, Any]]:
    """The calls with their numbers."""
    return json.loads(FILE.read_text())


def fault(row: dict[str, Any]) -> str:
    """What differs from the numbers that a call gave, or nothing."""
    arguments = {name: made(code, HELPERS) for name, code in row["arguments"].items()}
    try:
        now = key_numbers(_function(row["call"])(**arguments))
    except ValueError as error:
        return f"refused: {error}"[:200]
    if len(now) == len(row["numbers"]) and np.allclose(now, row["numbers"], rtol=RELATIVE, atol=0.0):
        return ""
    return f"{now} were {row['numbers']}"[:200]
