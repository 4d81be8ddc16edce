"""Dispatch and combine of experts on Trainium2: constants fitted to the measured rows, and errors left out.

`python -m trnlab.exchanges` writes the fitted constants into `data/facts/collectives.csv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.exchanges import ExpertExchange, exchange
from trnmodel.catalog.load import DATA
from trnmodel.evidence.collections import EXCHANGE
from trnmodel.evidence.rows import put
from trnmodel.evidence.search import constants, left_out
from trnmodel.fabric.expert_exchange import combine_s, dispatch_s, transport_s
from trnmodel.units import US

if TYPE_CHECKING:
    import pandas as pd

FACTS = DATA / "facts" / "collectives.csv"
FITTED = ("start_s", "rank_s", "wait_s", "wire_bytes_per_s", "copy_bytes_per_s")
TIMES = {"kernel_us": "overlapped", "kernel_latency_us": "synchronised"}  # column: how calls are launched
BYTES = 2.0  # an element in BF16
FOLDS: Mapping[str, tuple[str, ...]] = {  # what is left out together
    "file_left_out_error": ("page", "ep_ranks"),
    "page_left_out_error": ("page",),
    "ranks_left_out_error": ("ep_ranks",),
}


def rows() -> pd.DataFrame:
    """Return each measured time of a dispatch, a combine and a transport of fixed slots, with what was asked.

    Returns
    -------
    table : pandas.DataFrame
        page ("ops" or "transport": two scripts with files of their own for each EP), locator, op, buffer_mode, routing,
        ep_ranks, tokens_per_rank, hidden, experts, topk, load_imbalance, payload_bytes, slot_bytes (of the transport),
        launch and measured_s.
    """
    import pandas as pd

    every = pd.read_csv(EXCHANGE)
    every = every[every.kind != "collective baseline"]
    slots = every.note.str.extract(r"slot (\d+) rows", expand=False).astype(float)
    page = every.source.str.extract(r"results/[^/]+/([a-z]+)", expand=False)
    every = every.assign(
        page=page,
        payload_bytes=every.payload_bytes_per_rank,
        slot_bytes=slots * every.row_width_elements * BYTES,
    )
    named = "page locator op buffer_mode routing ep_ranks tokens_per_rank hidden experts topk load_imbalance".split()
    kept = every[[*named, "payload_bytes", "slot_bytes"]]
    timed = [kept.assign(launch=launch, measured_s=every[column] * US) for column, launch in TIMES.items()]
    return pd.concat(timed, ignore_index=True)


def predicted_s(table: pd.DataFrame, x: ExpertExchange | None = None) -> NDArray:
    """Return what the law gives for measured rows, in their order."""
    x = exchange() if x is None else x
    found = np.full(len(table), np.nan)
    names = ["tokens_per_rank", "hidden", "experts", "topk", "ep_ranks"]
    for (op, mode, launch), part in table.groupby(["op", "buffer_mode", "launch"], dropna=False):
        asked = {"launch": launch, "exchange": x}
        sizes = [part[name].to_numpy() for name in names]
        if op == "dispatch":
            times = dispatch_s(*sizes, **asked)
        elif op == "combine":
            imbalance = part.load_imbalance.to_numpy()
            times = combine_s(*sizes, per_choice=mode == "low_latency", imbalance=imbalance, **asked)
        else:
            times = transport_s(part.payload_bytes, part.slot_bytes, part.ep_ranks, **asked)
        found[table.index.get_indexer(part.index)] = times
    return found


def fit(table: pd.DataFrame) -> ExpertExchange:
    """Return the constants that fit rows best: soft-L1 least squares of the logarithm of the error."""
    x, measured = exchange(), table.measured_s.to_numpy()

    def errors(values: NDArray) -> NDArray:
        return np.log(predicted_s(table, _with(x, values)) / measured)

    return _with(x, constants(errors, [getattr(x, name) for name in FITTED]))


def _with(x: ExpertExchange, values: NDArray) -> ExpertExchange:
    fitted: dict[str, Any] = dict(zip(FITTED, map(float, values), strict=True))
    return replace(x, **fitted, ranges={})


def accuracy() -> pd.DataFrame:
    """Return each measured time with its errors: as shipped, and under constants of the rows that are not left out.

    Returns
    -------
    table : pandas.DataFrame
        As `rows`, with predicted_s, error, file_left_out_error (the other script or the other EP), page_left_out_error
        (the other script alone) and ranks_left_out_error (the other EP alone); predicted over measured - 1.
    """
    table = rows()
    found = predicted_s(table)
    table = table.assign(predicted_s=found, error=found / table.measured_s - 1)

    def errors(train: list[int], test: list[int]) -> NDArray:
        judged = table.loc[test]
        return predicted_s(judged, fit(table.loc[train])) / judged.measured_s.to_numpy() - 1

    for column, by in FOLDS.items():
        names = table[list(by)].astype(str).agg(" ".join, axis=1)
        table[column] = left_out([*table.index], names.__getitem__, errors)
    return table


def by_operation() -> pd.DataFrame:
    """Return median and largest absolute errors by operation and launch.

    Returns
    -------
    table : pandas.DataFrame
        op, launch, cases, and of each kind of error its median and its largest.
    """
    table = accuracy()
    columns = ["error", *FOLDS]
    together = table.assign(**{name: table[name].abs() for name in columns}).groupby(["op", "launch"])
    found = {name: together[name].agg(["median", "max"]) for name in columns}
    flat = {f"{name}_{end}": part[end] for name, part in found.items() for end in part}
    return together.size().to_frame("cases").assign(**flat).reset_index()


def write() -> None:
    """Put the fitted constants into their facts, each with the relative range that its row has."""
    x, now = fit(rows()), exchange()
    ratios = {name: getattr(x, name) / getattr(now, name) for name in FITTED}

    def again(fact: Mapping[str, str]) -> str | None:
        if fact["entity"] != x.id or fact["quantity"] not in ratios:
            return None
        return "-".join(f"{float(end) * ratios[fact['quantity']]:.4g}" for end in fact["value_printed"].split("-"))

    put(FACTS, again)


if __name__ == "__main__":
    write()
