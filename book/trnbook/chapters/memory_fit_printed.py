"""Compare memory with other people's figures: measured footprints, runs that fitted, published capacities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from trnmodel.arguments import chosen, refuse
from trnmodel.catalog import load
from trnmodel.evidence.fit import readable
from trnmodel.evidence.questions import stored_bytes
from trnmodel.evidence.readings import TRAINING, Reading
from trnmodel.evidence.rows import LATER, MEASURED, THIRD, read_rows
from trnmodel.evidence.score import shipped
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.assemble import FIRST_BUCKET
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import memory_fit
from trnmodel.steps.mapping import Mapping as Degrees

if TYPE_CHECKING:
    import pandas as pd

PRINTED = load.DATA / "evidence" / "printed_memory.csv"
FOOTPRINT = "memory-footprint"
ANCHOR_STACK = "optimum-neuron-2025"  # the software of the measured footprint, whose owners solved the capacities
SHAPES, CONSTANT, SUM = "shapes", "this row", "sum of parts"
BASES: Mapping[str, str] = {
    "memory:weights": SHAPES,
    "memory:cache": SHAPES,
    "memory:scratchpad": CONSTANT,
    "memory:collective": CONSTANT,
    "memory:ring": CONSTANT,
    "memory:code": CONSTANT,
    "memory:total": SUM,
    "memory:first": SUM,
}
COUNTS = "counts"
FITS, TIGHT, TOO_LARGE = "fits", "first rank too large", "too large"
PREFILL: Mapping[str, str] = {"context_chunked": "in chunks", "context_whole": "whole prompt"}


class Printed(msgspec.Struct, frozen=True):
    """A line of `data/evidence/printed_memory.csv`: a capacity or a rule of the software, as a source prints it."""

    id: str
    quantity: str
    system: str
    model: str
    tp: str
    batch: str
    printed: str
    unit: str
    source: str
    locator: str
    note: str


def _rules() -> dict[str, Printed]:
    return {row.quantity: row for row in load.read_csv(PRINTED, Printed) if row.quantity not in PREFILL}


def rule(quantity: str) -> float:
    """Return a printed rule of the software, in base units.

    Examples
    --------
    >>> rule("kv_cap_share"), rule("scratchpad_page_bytes") / 2**20
    (0.3, 512.0)
    """
    row = chosen("quantity", quantity, _rules())
    return load.parse_number(row.printed)[0] * load.units()[row.unit].factor


def footprint() -> pd.DataFrame:
    """Compare measured footprints with `validate`, ordinary ranks and the first one apart, with their basis.

    Returns
    -------
    table : pandas.DataFrame
        rank, part, measured_bytes, predicted_bytes, error (signed), basis ("shapes", "this row" where a constant was
        taken from it, "sum of parts"), use ("counts", or why a row does not).
    """
    import pandas as pd

    rows = shipped(FOOTPRINT)
    name = rows.metric.str.extract(r"^HBM (?P<part>.+) (?P<rank>ranks? [\d-]+)$")
    scale = load.units()["MiB"].factor  # the source writes MB, and 32 x 4,096 / 64 of them are 2^31 bytes
    table = pd.DataFrame(
        {
            "rank": name["rank"],
            "part": name.part,
            "measured_bytes": rows.value.astype(float) * scale,
            "predicted_bytes": rows.predicted * scale,
            "error": rows.error,
            "basis": rows.meaning.map(BASES).fillna(""),
            "use": (rows.skipped + rows.set_aside).where(rows.weight == 0, COUNTS),
        }
    )
    return table.sort_values(
        "rank", key=lambda column: column.str.len(), ascending=False, kind="stable", ignore_index=True
    )


def in_mib(table: pd.DataFrame, rank: str) -> pd.DataFrame:
    """Return the rows of a rank with measured and predicted bytes in MiB."""
    rows = table[table["rank"] == rank]
    mib = {f"{name} [MiB]": rows[f"{name}_bytes"] / load.units()["MiB"].factor for name in ("measured", "predicted")}
    return rows.assign(**mib)[["part", *mib, "error", "basis", "use"]]


def _size(r: Reading) -> tuple[float, float]:
    """Return the largest batch and the longest context that a run needed room for."""
    return max(r.batch, r.compiled_batch), float(np.fmax(np.fmax(r.context, r.max_context), r.prompt))


def _runs() -> list[Reading]:
    """Return served configurations on Trainium and Inferentia with known model and length, each once."""
    runs: dict[tuple, Reading] = {}
    rows = (row for path in (MEASURED, LATER, THIRD) for row in read_rows(path))
    for case in readable(row for row in rows if row["kind"] != FOOTPRINT):
        r = case.reading
        if r.meaning.startswith((TRAINING, "memory:")):
            continue
        if r.model and r.where.startswith(("trn", "inf")) and r.stack != "ideal" and _size(r)[1] > 0:
            runs.setdefault((r.model, r.where, r.mapping, _size(r), str(r.precision)), r)
    return list(runs.values())


def what_ran() -> pd.DataFrame:
    """Return every published configuration that ran, and whether the model says that it fits.

    Returns
    -------
    table : pandas.DataFrame
        model, system, tp, lnc, batch, context, total_bytes, first_rank_total_bytes, capacity_bytes,
        first_rank_capacity_bytes, verdict.
    """
    import pandas as pd

    rows = []
    names = ("total_bytes", "first_rank_total_bytes", "capacity_bytes", "first_rank_capacity_bytes")
    for r in _runs():
        batch, context = _size(r)
        try:
            fit = stored_bytes(r, batch, context)
        except ValueError:
            continue
        total, first, capacity, left = sizes = [float(getattr(fit, name)) for name in names]
        tp, _, _, lnc = r.mapping
        line = {"model": r.model_id, "system": r.where, "tp": tp, "lnc": lnc or np.nan, "batch": batch}
        line |= {"context": context, **dict(zip(names, sizes, strict=True))}
        rows.append(line | {"verdict": FITS if first <= left else TIGHT if total <= capacity else TOO_LARGE})
    return pd.DataFrame(rows)


def _longest(d: Deployment, batch: float, chunk: float | None, scores: bool) -> float:
    """Return the longest context, in steps of a bucket, at which the first rank fits.

    With `scores`, the matrix of attention scores is written out and counted.
    """
    m = read_model(d.model)
    contexts = np.arange(FIRST_BUCKET, m.max_context + 1, FIRST_BUCKET)
    prompt = contexts if chunk is None else np.minimum(chunk, contexts)
    fit = memory_fit(**d.ask, batch=batch, context=contexts, input_tokens=prompt)
    heads = max(a.heads for layer in m.layers for a in layer.attentions) / float(d.mapping.tp)
    width = load.precision(d.precision).storage_bytes("activations")
    matrix = heads * prompt * contexts * width if scores else 0.0
    return float(np.max(contexts[fit.first_rank_total_bytes + matrix <= fit.capacity_bytes], initial=0))


def capacities() -> pd.DataFrame:
    """Compare the longest context per batch of one source, solved from its own measurement, with ours.

    Returns
    -------
    table : pandas.DataFrame
        prefill, batch, printed, computed (as `memory_fit`), error, with_scores (heads x prompt x context x 2 B more, as
        the source counts), error_with_scores, note, source. [-]
    """
    import pandas as pd

    rows = []
    for row in load.read_csv(PRINTED, Printed):
        if row.quantity not in PREFILL:
            continue
        chunk = rule("chunk_tokens") if row.quantity == "context_chunked" else None
        d = Deployment(model=row.model, system=row.system, mapping=Degrees(tp=int(row.tp)), stack=ANCHOR_STACK)
        printed, batch = load.parse_number(row.printed)[0], int(row.batch)
        plain, scored = (_longest(d, batch, chunk, scores) for scores in (False, True))
        errors = {"error": plain / printed - 1, "with_scores": scored, "error_with_scores": scored / printed - 1}
        one = {"prefill": PREFILL[row.quantity], "batch": batch, "printed": printed, "computed": plain}
        rows.append({**one, **errors, "note": row.note, "source": row.source})
    return pd.DataFrame(rows)


def cache_budgets(d: Deployment, context: float) -> pd.DataFrame:
    """Return cache and sequences per rank: all that is left, and what vLLM Neuron allows by default.

    vLLM Neuron limits the cache to a share of the budget, because the length of the cache is compiled into each
    graph before the graph's other needs are known. The budget is taken as all of the rank's memory.

    Returns
    -------
    table : pandas.DataFrame
        policy, cache_bytes, sequences, of (share of the rank's memory).
    """
    import pandas as pd

    if not read_model(d.model).generates:
        refuse("model", read_model(d.model).id, "an encoder keeps no cache")
    fit, more = (memory_fit(**d.ask, batch=own * d.mapping.ep, context=context) for own in (1, 2))
    capacity, one = float(fit.capacity_bytes), float(more.cache_bytes - fit.cache_bytes)
    taken = float(fit.room_bytes - more.room_bytes)  # by one more: of the rank, or of two that share a bank
    free = float(fit.cache_bytes) + float(fit.room_bytes) * one / taken
    capped = rule("kv_cap_share") * capacity
    rows = [
        {"policy": policy, "cache_bytes": max(held, 0.0), "sequences": max(np.floor(held / one), 0.0)}
        for policy, held in {"all that is left": free, "vLLM Neuron's default": min(free, capped)}.items()
    ]
    return pd.DataFrame(rows).assign(of=lambda table: table.cache_bytes / capacity)
