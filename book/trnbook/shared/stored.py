"""What a rank stores by kind, as charts pile it up."""

from __future__ import annotations

import numpy as np
import pandas as pd

from trnmodel.steps.answers import MemoryFit

KINDS = {
    "weights": ("weight_bytes",),
    "KV cache": ("cache_bytes",),
    "scratchpad": ("scratchpad_bytes",),
    "buffers and code": ("collective_buffer_bytes", "ring_bytes", "code_bytes", "runtime_bytes"),
}
EXTRA = "more on the first rank"


def kinds(fit: MemoryFit, place: int | tuple[()], name: str) -> pd.DataFrame:
    """Return the bytes of the first rank by kind.

    Examples
    --------
    >>> import trnmodel as tm
    >>> fit = tm.memory_fit("llama-3.1-8b", "inf2.48xlarge", tm.Mapping(tp=8), batch=32, context=4096)
    >>> table = kinds(fit, (), "TP 8").set_index("kind")
    >>> float(table.stored_bytes["KV cache"] / 2**30)
    2.0
    """
    stored = {kind: sum(value_at(fit, field, place) for field in fields) for kind, fields in KINDS.items()}
    stored[EXTRA] = value_at(fit, "first_rank_total_bytes", place) - value_at(fit, "total_bytes", place)
    rows = {"mapping": name, "kind": list(stored), "stored_bytes": list(stored.values())}
    return pd.DataFrame(rows | {"capacity_bytes": value_at(fit, "first_rank_capacity_bytes", place)})


def value_at(fit: MemoryFit, field: str, place: int | tuple[()]) -> float:
    """Return a field of one point of a footprint."""
    value = np.asarray(getattr(fit, field), dtype=float)
    return float(value[place] if value.ndim else value)
