"""Compare memory with other people's figures: measured footprints, runs that fitted, published capacities."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import chosen
from trnmodel.catalog import load
from trnmodel.evidence.fit import readable
from trnmodel.evidence.questions import stored_bytes
from trnmodel.evidence.readings import TRAINING, Reading
from trnmodel.evidence.rows import LATER, MEASURED, THIRD, read_rows
from trnmodel.evidence.score import shipped
from trnmodel.steps.answers import MemoryFit

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
SCORED_HEADS, SCORE_BYTES = 32, 2  # heads of queries of the model that the source solved, bytes of a score
FILLS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)  # shares of a rank's memory at which runs are counted apart
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


def mixtures() -> pd.DataFrame:
    """Return what a rank of a large mixture of experts stored in all, by the length of its sequences, as printed.

    Returns
    -------
    table : pandas.DataFrame
        context, measured_bytes. [-]
    """
    import pandas as pd

    of = readable(row for row in read_rows(LATER) if row["kind"] == FOOTPRINT)
    rows = [{"context": case.reading.max_context, "measured_bytes": case.measured} for case in of]
    return pd.DataFrame(rows)


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


def by_fill(runs: pd.DataFrame) -> pd.DataFrame:
    """Count the rows of `what_ran` by the share of its memory that the first rank would fill.

    Examples
    --------
    >>> import pandas as pd
    >>> sizes = {"first_rank_total_bytes": [1.0, 9.6, 11.0], "first_rank_capacity_bytes": [10.0, 10.0, 10.0]}
    >>> table = by_fill(pd.DataFrame(sizes)).set_index("filled").runs
    >>> int(table["0 to 50 %"]), int(table["95 to 100 %"]), int(table["too large"])
    (1, 1, 1)
    """
    import pandas as pd

    names = [f"{low:.0%} to {high:.0%}".replace("% to", " to").replace("%", " %") for low, high in pairwise(FILLS)]
    share = runs.first_rank_total_bytes / runs.first_rank_capacity_bytes
    counts = pd.cut(share, [*FILLS, np.inf], labels=[*names, "too large"]).value_counts(sort=False)
    return counts.rename_axis("filled").rename("runs").reset_index().astype({"filled": str})


def capacities() -> pd.DataFrame:
    """Return the longest context per batch that one source solved from its own measurement, as printed.

    Returns
    -------
    table : pandas.DataFrame
        prefill, batch, chunk (tokens of a prompt that are read at once), printed, sound (whether the row holds), note,
        source. [-]

    Examples
    --------
    >>> capacities().prefill.unique().tolist()
    ['in chunks', 'whole prompt']
    """
    import pandas as pd

    rows = []
    for row in load.read_csv(PRINTED, Printed):
        if row.quantity not in PREFILL:
            continue
        chunked = row.quantity == "context_chunked"
        one = {"prefill": PREFILL[row.quantity], "batch": int(row.batch)}
        one |= {"chunk": rule("chunk_tokens") if chunked else np.inf, "printed": load.parse_number(row.printed)[0]}
        rows.append({**one, "sound": chunked or not row.note, "note": row.note, "source": row.source})
    return pd.DataFrame(rows)


def with_longest(printed: pd.DataFrame, contexts: NDArray, fit: MemoryFit) -> pd.DataFrame:
    """Return printed capacities with the longest context that fits, and with the matrix of scores of the source.

    Parameters
    ----------
    printed : pandas.DataFrame
        Rows of `capacities`. [-]
    contexts : numpy.ndarray
        Contexts that were asked, in ascending order. [token]
    fit : MemoryFit
        The answers, a row for each printed one and a column for each context. [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows with computed, error, with_scores (heads x prompt x context x 2 B more) and error_with_scores. [-]
    """
    heads = SCORED_HEADS / float(np.ravel(fit.tp)[0])
    matrix = heads * np.minimum(printed[["chunk"]].to_numpy(), contexts) * contexts * SCORE_BYTES
    table = printed
    for name, error, more in (("computed", "error", 0.0), ("with_scores", "error_with_scores", matrix)):
        fits = fit.first_rank_total_bytes + more <= fit.capacity_bytes
        longest = np.where(fits, contexts, 0.0).max(axis=1)
        table = table.assign(**{name: longest, error: longest / table.printed - 1})
    return table
