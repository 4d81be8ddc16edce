"""Exchanges between the ranks of experts with fixed slots: what a library's dispatch and combine cost."""

from __future__ import annotations

from dataclasses import dataclass

from trnmodel.catalog import reader
from trnmodel.catalog.specs import Spec


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertExchange(Spec):
    """Constants of a dispatch and a combine whose receive buffer has a slot of the send buffer's size for each rank.

    A call takes `start_s`, and `rank_s` for each other rank, while launches overlap; a host that waits for every call
    adds `wait_s`. Inside a graph the start is `graph_start_s`, which nobody has measured. Rows cross at
    `wire_bytes_per_s`; copies of the buffers read and write HBM at `copy_bytes_per_s`. Each dispatched row carries
    `header_bytes` beside its token.
    """

    start_s: float
    rank_s: float
    wait_s: float
    graph_start_s: float
    wire_bytes_per_s: float
    copy_bytes_per_s: float
    header_bytes: float = 0.0


def exchange(name: str | ExpertExchange = "deepep-trn") -> ExpertExchange:
    """Return the constants of a library's exchange between experts by id or name; an object is returned as it is.

    Parameters
    ----------
    name : str or ExpertExchange
        "deepep-trn", measured on Trainium2. [-]

    Returns
    -------
    exchange : ExpertExchange
        `.sources` names the fact behind each value, `.ranges` its low and high.

    Raises
    ------
    ValueError
        Unknown name; the message lists the nearest.

    Examples
    --------
    >>> exchange().header_bytes
    128.0
    """
    return reader.find(ExpertExchange, "exchange", name)
