"""One rank of a system: what it computes, moves and says in a second."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, instance, integer, refuse
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import System, find
from trnmodel.fabric.collectives import exchange_s, group_bytes_per_s
from trnmodel.workloads.efficiencies import Efficiencies
from trnmodel.workloads.parallelism import Mapping

FULL_PARTITIONS = 128
LINKS = ("all", "tiers")


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A rank of a system: one logical NeuronCore of `lnc` physical ones, or one GPU."""

    where: System | Chip
    chip: Chip
    chips: float
    lnc: int
    domain_chips: float
    link_bytes_per_s: float
    far_link_bytes_per_s: float

    @property
    def ranks_per_chip(self) -> float:
        """Ranks that share a chip and its links."""
        return self.chip.cores / self.lnc

    @property
    def hbm_bytes(self) -> float:
        """Memory of a rank."""
        return self.chip.hbm_bytes / self.ranks_per_chip

    @property
    def hbm_bytes_per_s(self) -> float:
        """Memory bandwidth of a rank."""
        return self.chip.hbm_bytes_per_s / self.ranks_per_chip

    def peak(self, dtype: str) -> float:
        """Dense peak of a rank."""
        return self.chip.peak(dtype) / self.ranks_per_chip

    @property
    def rows_side_by_side(self) -> float:
        """Rows of scores that a rank's vector engines work on side by side."""
        core = self.chip.core
        return (core.sbuf_partitions if core else FULL_PARTITIONS) * self.lnc

    @property
    def vector_clock_hz(self) -> float:
        """Clock of the vector engines; a chip without one has no softmax bound."""
        return self.chip.core.vector.clock_hz if self.chip.core else np.inf

    def group(self, mapping: Mapping, name: str, links: str = "tiers") -> tuple[NDArray, NDArray, NDArray]:
        """Ranks of a group on one chip, chips that hold them, and the rate that a chip has for this group.

        With `links="all"` ranks next to each other have every link of their chip. Else, and where other groups lie in
        between, they have those of the tiers that the group spans.
        """
        choice("links", links, LINKS)
        stride, span = mapping.extent(name)
        n = getattr(mapping, name)
        together = np.clip(np.floor(self.ranks_per_chip / stride), 1, n)
        far = np.ceil(span / self.ranks_per_chip) > self.domain_chips
        link = np.where(far, self.far_link_bytes_per_s, self.link_bytes_per_s)
        if not isinstance(self.where, System) or self.where.fabric == "single":
            return together, np.ceil(n / together), link / np.clip(stride, 1, self.ranks_per_chip)
        tiered = (stride > 1) | (links == "tiers")
        if np.any(tiered & (n > 1)):
            link = np.where(tiered & ~far, group_bytes_per_s(self.where, n, stride, self.lnc), link)
        return together, np.ceil(n / together), link


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A spec as a key of a cache: equal to itself alone."""

    it: System | Chip

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.it is self.it


def site(where: str | System | Chip, lnc: int | None = None, argument: str = "system") -> Site:
    """The rank of a system, or of a bare chip of which there are as many as wanted.

    Raises ValueError for an unknown system, naming the `argument`, or where the chip does not allow the logical core.
    """
    lnc = None if lnc is None else integer("lnc", lnc)
    if isinstance(where, str):
        return _named_site(where, lnc, argument)
    return _site(_Same(instance(argument, where, System | Chip, "an id, a System or a Chip")), lnc)


@lru_cache(maxsize=256)
def _named_site(name: str, lnc: int | None, argument: str) -> Site:
    return _site(_Same(find(name, argument)), lnc)


@lru_cache(maxsize=256)
def _site(key: _Same, lnc: int | None) -> Site:
    where = key.it
    return _chip_site(where if isinstance(where, Chip) else where.chip, where, lnc)


def _link(chip: Chip, where: System | Chip) -> float:
    """Scale-up bandwidth of a chip in one direction: the system's links, its lanes, or as published for the chip."""
    if isinstance(where, System) and where.scaleup_bytes_per_s_per_dir:
        return sum(where.scaleup_bytes_per_s_per_dir.values())
    if isinstance(where, System) and where.scaleup_lanes:
        return sum(where.scaleup_lanes.values()) * where.lane_bytes_per_s_per_dir
    return chip.scaleup_bytes_per_s_per_dir


def _chip_site(chip: Chip, where: System | Chip, lnc: int | None) -> Site:
    lnc = chip.lnc_default if lnc is None else lnc
    if lnc not in chip.lnc_choices:
        refuse("lnc", lnc, f"{chip.id} allows {chip.lnc_choices}")
    near, far = _link(chip, where), where.scaleout_bytes_per_s_per_dir
    return Site(
        where=where,
        chip=chip,
        chips=getattr(where, "chips", np.inf),
        lnc=lnc,
        domain_chips=getattr(where, "domain_chips", np.nan_to_num(chip.scaleup_domain_chips, nan=1.0)),
        link_bytes_per_s=near if near > 0 else far,
        far_link_bytes_per_s=far if far > 0 else near,
    )


def all_reduce_s(at: Site, mapping: Mapping, message_bytes: NDArray, e: Efficiencies) -> NDArray:
    r"""Time of one all-reduce over the TP group inside a compiled graph.

    .. math:: t_{mesh} = k_m \frac{r (n - r)\,m}{b} + 2\alpha,\quad
        t_{rdh} = k_r \frac{2 r m}{b} + 2\alpha\log_2 n,\quad
        t_{ring} = k_o \frac{2 (c-1)\,m}{c\,b} + c\,\alpha

    A single-step mesh sends the whole buffer of each of the r ranks on a chip to the n - r ranks elsewhere; recursive
    doubling and halving sends it twice; a ring over c chips sends it once each way after an exchange on the chip. Up to
    the largest message that the stack doubles and halves the faster of the first two is used, beyond it the faster of
    the last two. The ratios k say how many bytes cross the links for each byte of these counts.
    """
    r, chips, link = at.group(mapping, "tp", e.group_links)
    n = mapping.tp
    mesh = e.mesh_traffic_ratio * r * (n - r) * message_bytes / link + 2 * e.hop_s
    ring = e.ring_traffic_ratio * 2 * (1 - 1 / chips) * message_bytes / link + chips * e.hop_s
    if not e.rdh_max_bytes:
        return np.where(n > 1, ring, 0.0)
    rdh = e.rdh_traffic_ratio * 2 * r * (chips > 1) * message_bytes / link + 2 * np.log2(n) * e.hop_s
    fastest = np.where(message_bytes <= e.rdh_max_bytes, np.minimum(mesh, rdh), np.minimum(rdh, ring))
    return np.where(n > 1, fastest, 0.0)


def group_s(at: Site, mapping: Mapping, name: str, kind: str, message_bytes: NDArray, e: Efficiencies) -> NDArray:
    """Time of a collective among the ranks of a group, each tier of the fabric that they cross at its rate.

    A stack without a latency of its own has none here either; a bare chip has one link to everywhere.
    """
    stride, _ = mapping.extent(name)
    n = getattr(mapping, name)
    if isinstance(at.where, System) and at.where.fabric != "single":
        return exchange_s(kind, message_bytes, at.where, n, stride, at.lnc, None if e.hop_s else 0.0)
    r, chips, link = at.group(mapping, name)
    passes = {"all_reduce": 2, "p2p": 1 / (1 - 1 / np.maximum(chips, 2))}.get(kind, 1)
    return np.where(n > 1, passes * r * (1 - 1 / chips) * message_bytes / link + e.hop_s, 0.0)
