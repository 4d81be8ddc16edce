"""Failures of a fleet of chips, how often they come and how long they last; and how uncertain numbers are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from math import inf
from typing import Literal, get_args

import msgspec

from trnmodel.arguments import choice
from trnmodel.catalog import load, reader
from trnmodel.catalog.specs import Spec, mapping_field
from trnmodel.declared import Named, declare

Distribution = Literal["uniform", "triangular", "loguniform"]
DISTRIBUTIONS = get_args(Distribution)


class Drawn(msgspec.Struct, frozen=True):
    """A line of `data/lists/distributions.csv`: how numbers whose names match are drawn."""

    pattern: str
    distribution: Distribution
    reason: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Fleet(Spec):
    """How often parts of a fleet fail, and what a failure takes. The class defaults are a fleet in which nothing fails.

    `interruptions` counts what stopped a job by cause ("chip: HBM3 memory"), the word before the colon for the part. A
    rate of chips is that of interruptions of large jobs for each chip: it holds hosts, network, software and the
    scale-up links of a board too, because the servers that were counted have theirs on a board. The lanes and switches
    of a scale-up backplane, and the cables between racks, are not in it and have rates of their own.
    """

    interruptions_per_chip_s: float = 0.0
    interruptions: Mapping[str, float] = mapping_field()
    repaired_share: float = 0.0
    lane_failures_per_s: float = 0.0
    cable_failures_per_s: float = 0.0
    switch_failures_per_s: float = 0.0
    restart_s: float = 0.0
    swap_s: float = 0.0
    repair_s: float = 0.0
    checkpoint_bytes_per_param: float = 16.0
    checkpoint_bytes_per_s: float = inf
    exposed_share: float = 0.0
    ready_share: float = 0.999

    @property
    def causes(self) -> dict[str, float]:
        """Share of the interruptions by part, by count.

        Examples
        --------
        >>> {part: round(share, 3) for part, share in fleet("llama-3-h100").causes.items()}
        {'chip': 0.64, 'host': 0.126, 'network': 0.084, 'software': 0.15}
        """
        counts: dict[str, float] = {}
        for cause, count in self.interruptions.items():
            part = cause.partition(":")[0]
            counts[part] = counts.get(part, 0.0) + count
        return {part: count / sum(counts.values()) for part, count in counts.items()}


@declare(name=Named("a fleet, whose failures count"))
def fleet(name: str | Fleet = "borrowed") -> Fleet:
    """Return a fleet by id or name; a `Fleet` is returned as it is.

    Parameters
    ----------
    name : str or Fleet
        "borrowed" (the ends of what is published of others; nothing is of Trainium), "llama-3-h100", "rsc-1-a100",
        "rsc-2-a100", "tpu-v4-pods" or "alibaba-hpn", which take from "borrowed" what was not counted there. [-]

    Returns
    -------
    fleet : Fleet
        `.sources` names the fact behind each value, `.ranges` its low and high.

    Raises
    ------
    ValueError
        Unknown name; the message lists the nearest.

    Examples
    --------
    >>> import trnmodel as tm
    >>> round(tm.fleet("llama-3-h100").interruptions_per_chip_s * 16_384 * 54 * tm.units.DAY, 6)
    419.0
    """
    return reader.find(Fleet, "fleet", name)


@cache
def _drawn() -> list[Drawn]:
    return load.read_csv(load.DATA / "lists" / "distributions.csv", Drawn)


def distribution(name: str, chosen: Mapping[str, str] | None = None) -> str:
    """Return how an uncertain number is drawn: as `chosen`, else by the first pattern of data that its name matches.

    Examples
    --------
    >>> distribution("restart_s"), distribution("fleet.exposed_share"), distribution("x", {"x": "uniform"})
    ('loguniform', 'uniform', 'uniform')
    """
    if chosen and name in chosen:
        return choice(f"distributions[{name!r}]", chosen[name], DISTRIBUTIONS)
    return next(row.distribution for row in _drawn() if fnmatch(name, row.pattern))
