"""Torus or switch: all-to-all and collectives over message size, crossovers, and buffers in SBUF or HBM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters.common import LANE_MAP
from trnbook.shared.fabrics import capacities, latencies, nets
from trnmodel.arguments import choice, listed, numbers
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.fabric import what_if
from trnmodel.fabric.collectives import BUFFERS, collective
from trnmodel.fabric.graph import SCOPES
from trnmodel.result import tidy

ON_LINKS: dict[str, Any] = {"in_graph": True, "rate_share": 1.0}  # the fabric alone: no launch, no measured rate
AS_MANY_LANES = "trn3-torus-144"  # a reading of the torus: no more lanes than a switched chip
SIZES = 2.0 ** np.arange(12, 31, 0.25)  # of an all-reduce, where the fastest algorithm changes. [B]


def readings(system: str | System, torus: str | System) -> dict[str, tuple[System, System]]:
    """Return a switched system and a torus under each count of their lanes, "as used" first.

    Examples
    --------
    >>> list(readings("trn3-nl32x2-pcie160", "trn3-nl32x2-torus"))
    ['as used', "by AWS's own lane map", 'with as many lanes on the torus']
    """
    mapped = systems.system(LANE_MAP)

    def pair(reading: Callable[[System], System]) -> tuple[System, System]:
        return reading(systems.system(system)), reading(systems.system(torus))

    def with_printed_lanes(spec: System) -> System:
        return mapped if spec.fabric == mapped.fabric and spec.chip.id == mapped.chip.id else spec

    def with_thin_torus(spec: System) -> System:
        return what_if.alternatives(spec).get(AS_MANY_LANES, spec)

    used = pair(systems.system)
    switched = any(spec.fabric == mapped.fabric for spec in used)
    other = {
        "by AWS's own lane map": pair(with_printed_lanes),
        "with as many lanes on the torus": pair(with_thin_torus) if switched else used,
    }
    return {"as used": used} | {name: pair for name, pair in other.items() if pair != used}


def gains(system: str | System, torus: str | System) -> pd.DataFrame:
    """Return all-to-all of a switched system over that of a torus, by reading, in the rack and in the world.

    Examples
    --------
    >>> gains("trn3-nl32x2-pcie160", "trn3-nl32x2-torus").rack.round(2).tolist()
    [2.13, 1.35, 4.27]
    """
    pairs = readings(system, torus)
    every = {spec.id: spec for pair in pairs.values() for spec in pair}
    rates = capacities(every.values()).set_index(["scope", "system"]).all_to_all_bytes_per_s
    return tidy(
        {"reading": name, "switched": one.id, "torus": ring.id}
        | {scope: rates[scope, one.id] / rates[scope, ring.id] for scope in ("rack", "world")}
        for name, (one, ring) in pairs.items()
    )


def describe_gains(gains: pd.DataFrame, scope: str, of: str = "") -> str:
    """Describe the ratio of `gains` in a scope, with the other readings in brackets.

    Examples
    --------
    >>> describe_gains(gains("trn3-nl32x2-pcie160", "trn3-nl32x2-torus"), "rack", " that")
    "2.13 times that (1.35 by AWS's own lane map; 4.27 with as many lanes on the torus)"
    """
    used, *others = zip(gains[scope], gains.reading, strict=True)
    said = "; ".join(f"{ratio:.2f} {reading}" for ratio, reading in others)
    return f"{used[0]:.2f} times{of}" + (f" ({said})" if said else "")


def estimated(specs: Iterable[System]) -> list[str]:
    """Return the systems whose link rate is our estimate.

    Examples
    --------
    >>> estimated(map(systems.system, ["trn3-nl32x2-torus", "hgx-h100"]))
    ['trn3-nl32x2-torus']
    """
    return [spec.id for spec in specs if any(name.startswith("scaleup_bytes_per_s_per_dir") for name in spec.estimates)]


def _slopes(names: Iterable[str | System]) -> pd.DataFrame:
    """Return latency and time per byte of a chip's send buffer, own block included, by system and scope."""
    table = capacities(names).merge(latencies(names), on=["system", "scope"])
    return table.assign(s_per_byte=(table.chips - 1) / table.chips / table.all_to_all_bytes_per_s)


def all_to_all(names: Iterable[str | System], message_bytes: Iterable[float], scope: str = "world") -> pd.DataFrame:
    """Return the time of an all-to-all over the send buffer: the worst latency plus the flow.

    Examples
    --------
    >>> all_to_all(["trn3-nl32x2-torus"], [1024, 2**30]).bound.tolist()
    ['latency', 'bandwidth']
    """
    size, rows = np.atleast_1d(numbers("message_bytes", message_bytes)), []
    slopes = _slopes(names)
    for row in slopes[slopes.scope == choice("scope", scope, SCOPES)].itertuples():
        sending = size * row.s_per_byte
        times = {"time_s": row.worst_s + sending, "latency_s": row.worst_s}
        bound = np.where(sending > row.worst_s, "bandwidth", "latency")
        rows.append({"system": row.system, "message_bytes": size, **times, "bound": bound})
    return tidy(rows)


def crossovers(names: Iterable[str | System]) -> pd.DataFrame:
    """Return the send buffer at which an all-to-all spends as long on bandwidth as on latency.

    Returns
    -------
    table : pandas.DataFrame
        system, scope, crossover_bytes with `_low` and `_high` of the latency, per_pair_bytes (to each other chip).
    """
    table = _slopes(names).sort_values("scope", kind="stable", ignore_index=True)
    ends = {f"crossover_bytes{end}": table[f"worst_s{end}"] / table.s_per_byte for end in ("", "_low", "_high")}
    return table[["system", "scope"]].assign(**ends, per_pair_bytes=ends["crossover_bytes"] / table.chips)


def collective_times(names: Iterable[str | System], kind: str, message_bytes: ArrayLike) -> pd.DataFrame:
    """Return `tm.collective` over all ranks of each system on its links alone, with band, basis and algorithm."""
    size = np.atleast_1d(numbers("message_bytes", message_bytes))
    rows = []
    for net in nets(names):
        answer = collective(kind, size, net.system, **ON_LINKS)
        known = {"system": net.system.id, "message_bytes": size, "time_s": answer.time_s}
        rows.append(known | answer.banded("busbw_bytes_per_s") | {"algorithm": answer.algorithm, "basis": answer.basis})
    return tidy(rows)


def buffer_places(names: Iterable[str], message_bytes: float) -> pd.DataFrame:
    """Compare an all-reduce of one large message with buffers in SBUF and in HBM.

    Returns
    -------
    table : pandas.DataFrame
        system, ranks, sbuf_s, hbm_s, bound ("links" or "HBM").

    Examples
    --------
    >>> buffer_places(["trn2.48xlarge"], 1e9).bound.tolist()
    ['HBM', 'links']
    """
    rows = []
    for spec in map(systems.system, listed("names", names)):
        chip = spec.chip.cores / spec.chip.lnc_default
        for ranks in (chip, spec.domain_chips * chip):
            times = [
                collective("all_reduce", message_bytes, spec, ranks, buffers=place, **ON_LINKS).time_s
                for place in BUFFERS
            ]
            bound = "HBM" if times[1] > times[0] else "links"
            rows.append({"system": spec.id, "ranks": ranks, "sbuf_s": times[0], "hbm_s": times[1], "bound": bound})
    return tidy(rows)


def library_switch(names: Iterable[str | System]) -> pd.DataFrame:
    """Compare the largest all-reduce for which one shot is fastest with the limit of AWS's mesh.

    Returns
    -------
    table : pandas.DataFrame
        system, one_shot_up_to_bytes (on a grid of quarter powers of two), library_up_to_bytes, ratio.
    """
    times = collective_times(names, "all_reduce", SIZES)
    shot = times.message_bytes.where(times.algorithm == "one_shot", 0.0)
    table = shot.groupby(times.system, sort=False).max().rename("one_shot_up_to_bytes").reset_index()
    library = load.value("neuronlink-v3", "algorithm_max_bytes", "mesh")
    return table.assign(library_up_to_bytes=library, ratio=table.one_shot_up_to_bytes / library)
