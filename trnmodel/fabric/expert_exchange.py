"""Dispatch and combine of experts by a library whose buffers have fixed slots, as they were measured on Trainium2.

The collective engine's all-to-all has bytes and start-ups alone. A library that cannot say where rows land reserves a
slot for each rank, and copies whole buffers into and out of the collective: that is what these calls add.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, numbers, refuse
from trnmodel.catalog.exchanges import ExpertExchange
from trnmodel.catalog.exchanges import exchange as find_exchange
from trnmodel.formulas import moe
from trnmodel.units import Numeric

Launch = Literal["graph", "overlapped", "synchronised"]
LAUNCHES = ("graph", "overlapped", "synchronised")


def dispatch_s(
    tokens: Numeric,
    hidden: Numeric,
    experts: Numeric,
    experts_per_token: Numeric,
    ranks: Numeric,
    *,
    element_bytes: Numeric = 2.0,
    launch: Launch = "graph",
    exchange: str | ExpertExchange = "deepep-trn",
) -> NDArray:
    r"""Return the time in which the ranks of experts send each other their tokens.

    A token goes once to each rank that has one of its experts. The slot of a rank holds `tokens` rows for each rank
    that a token can go to, whether they are filled or not.

    Parameters
    ----------
    tokens : numeric
        Tokens of a rank. [-]
    hidden : numeric
        Width of the model. [-]
    experts, experts_per_token : numeric
        Routed experts, and those of a token. [-]
    ranks : numeric
        Ranks of the experts, EP. [-]
    element_bytes : numeric
        Bytes of an activation. [B]
    launch : {"graph", "overlapped", "synchronised"}
        Inside a compiled graph; one call after another; or one call at a time, for which the host waits. [-]
    exchange : str or ExpertExchange
        Constants of the library. [-]

    Returns
    -------
    time_s : numeric
        Time of the exchange; 0 for one rank. [s]

    Raises
    ------
    ValueError
        A number below its least, more experts per token or ranks than experts, or an unknown launch or library.

    Notes
    -----
    Assumes: uniform routing. Measured on one chip with EP 2 and 4 and up to 128 tokens per rank; more ranks are
    extrapolated, and a collective that is told where rows land needs no such slots.

    Examples
    --------
    >>> round(float(dispatch_s(64, 2048, 128, 8, 4, launch="overlapped")) * 1e6)  # measured: 213
    237
    """
    t, k, n = _counts(tokens, experts, experts_per_token, ranks)
    x = find_exchange(exchange)
    row = numbers("hidden", hidden, 1) * numbers("element_bytes", element_bytes, 0) + x.header_bytes
    sent = t * moe.distinct_destinations(experts, k, n)
    return _time_s(sent * row, moe.dispatch_slot_rows(t, k, n) * row, n, launch, x)


def combine_s(
    tokens: Numeric,
    hidden: Numeric,
    experts: Numeric,
    experts_per_token: Numeric,
    ranks: Numeric,
    *,
    per_choice: bool = False,
    imbalance: Numeric = 1.0,
    element_bytes: Numeric = 2.0,
    launch: Launch = "graph",
    exchange: str | ExpertExchange = "deepep-trn",
) -> NDArray:
    r"""Return the time in which the ranks of experts send each other their experts' outputs.

    The slot of a rank holds all rows that any rank may have sent it. Where each chosen expert's output comes back by
    itself (`per_choice`, what DeepEP calls low latency), that is as many rows per token as it has experts.

    Parameters
    ----------
    tokens : numeric
        Tokens of a rank. [-]
    hidden : numeric
        Width of the model. [-]
    experts, experts_per_token : numeric
        Routed experts, and those of a token. [-]
    ranks : numeric
        Ranks of the experts, EP. [-]
    per_choice : bool
        Whether every chosen expert's row comes back, not the sum of a rank's. [-]
    imbalance : numeric
        Rows that the busiest rank sends over the mean; they end at its slots. [-]
    element_bytes : numeric
        Bytes of an activation. [B]
    launch : {"graph", "overlapped", "synchronised"}
        Inside a compiled graph; one call after another; or one call at a time, for which the host waits. [-]
    exchange : str or ExpertExchange
        Constants of the library. [-]

    Returns
    -------
    time_s : numeric
        Time of the exchange; 0 for one rank. [s]

    Raises
    ------
    ValueError
        A number below its least, more experts per token or ranks than experts, or an unknown launch or library.

    Notes
    -----
    As `dispatch_s`.

    Examples
    --------
    >>> ask = {"per_choice": True, "launch": "overlapped"}
    >>> round(float(combine_s(64, 2048, 128, 8, 4, **ask)) * 1e6)  # measured: 440
    473
    """
    t, k, n = _counts(tokens, experts, experts_per_token, ranks)
    x = find_exchange(exchange)
    row = numbers("hidden", hidden, 1) * numbers("element_bytes", element_bytes, 0)
    back = k if per_choice else moe.distinct_destinations(experts, k, n)
    slot = moe.combine_slot_rows(t, n, k if per_choice else 1.0)
    sent = np.minimum(t * back * numbers("imbalance", imbalance, 1), slot)
    return _time_s(sent * row, slot * row, n, launch, x)


def transport_s(
    payload_bytes: Numeric,
    slot_bytes: Numeric,
    ranks: Numeric,
    *,
    launch: Launch = "graph",
    exchange: str | ExpertExchange = "deepep-trn",
) -> NDArray:
    """Return the time of an exchange of given bytes, as `dispatch_s` and `combine_s` make them up from tokens.

    Parameters
    ----------
    payload_bytes : numeric
        Rows that a rank sends, its own block included. [B]
    slot_bytes : numeric
        Send buffer, which is the size of each receive slot. [B]
    ranks : numeric
        Ranks. [-]
    launch : {"graph", "overlapped", "synchronised"}
        Inside a compiled graph; one call after another; or one call at a time, for which the host waits. [-]
    exchange : str or ExpertExchange
        Constants of the library. [-]

    Returns
    -------
    time_s : numeric
        Time of the exchange; 0 for one rank. [s]

    Examples
    --------
    >>> round(float(transport_s(7405568, 29622272, 4, launch="overlapped")) * 1e6)  # measured: 1268
    1219
    """
    n = numbers("ranks", ranks, 1, whole=True)
    sent, slot = numbers("payload_bytes", payload_bytes), numbers("slot_bytes", slot_bytes)
    if np.any(np.greater(sent, slot)):
        refuse("payload_bytes", payload_bytes, "allowed are at most the slot_bytes of the send buffer")
    return _time_s(sent, slot, n, launch, find_exchange(exchange))


def _counts(
    tokens: Numeric, experts: Numeric, experts_per_token: Numeric, ranks: Numeric
) -> tuple[NDArray, NDArray, NDArray]:
    """Return tokens, experts per token and ranks, checked."""
    t, e = numbers("tokens", tokens, 0), numbers("experts", experts, 1, whole=True)
    k, n = numbers("experts_per_token", experts_per_token, 1, whole=True), numbers("ranks", ranks, 1, whole=True)
    for name, value in (("experts_per_token", k), ("ranks", n)):
        if np.any(np.greater(value, e)):
            refuse(name, value, "allowed are whole numbers from 1 to the experts of the model")
    return t, k, n


def _time_s(sent_bytes: NDArray, slot_bytes: NDArray, n: NDArray, launch: str, x: ExpertExchange) -> NDArray:
    choice("launch", launch, LAUNCHES)
    start = x.graph_start_s if launch == "graph" else x.start_s + (x.wait_s if launch == "synchronised" else 0.0)
    return moe.slotted_exchange_s(sent_bytes, slot_bytes, n, start, x.rank_s, x.wire_bytes_per_s, x.copy_bytes_per_s)
