"""Groups of ranks on a fabric: its tiers, and how every `stride`-th rank lies over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same
from trnmodel.catalog.specs import Chip, published
from trnmodel.catalog.systems import System, chip_of
from trnmodel.fabric import build, graph
from trnmodel.fabric.wiring import longest_s, wiring
from trnmodel.formulas import tiers
from trnmodel.units import Numeric

MEDIA = ("pcb", "backplane", "cross-rack")  # of a switched rack's tiers: tray, rack, pair
SPECS = 256  # of which the tiers are stored


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of a hierarchy: how many of the level below it joins, and what a chip sends into it."""

    name: str
    size: float
    bytes_per_s_per_dir: NDArray | float
    open_bytes_per_s_per_dir: NDArray | float
    alpha_s: NDArray | float


@lru_cache(maxsize=SPECS)
def fabric(key: Same[System]) -> graph.Topology:
    """Return the graph of a system's scale-up fabric."""
    return graph.topology(key.it)


@lru_cache(maxsize=SPECS)
def hierarchy(key: Same[System | Chip], lnc: int) -> tuple[Tier, ...]:
    """Return the tiers of a system, innermost first: ranks of a chip, the scale-up fabric, scale-out.

    A torus axis is a ring that sends both ways while it is closed, one way while ranks fill only a part of it. The
    latency of a step is that of a NeuronLink hop as AWS documents it and of the switches on the way; of EFA beyond the
    domain. For other vendors it is that of a step of a library within the domain where one was measured, else NaN. Of a
    bare chip there are as many as wanted, in scale-up domains of its vendor's size.
    """
    where = key.it
    chip = chip_of(where)
    levels = []
    if chip.core is not None:
        core_rate = chip.core.dma_engines * chip.core.dma_engine_bytes_per_s * chip.cores
        levels.append(Tier("chip", chip.cores / lnc, core_rate, core_rate, chip.hop_s))
    levels += _scaleup(where)
    far = where.scaleout_bytes_per_s_per_dir
    if isinstance(where, Chip) or where.count > 1:
        far_s = where.scaleout_hop_s if isinstance(where, System) else chip.hop_s if chip.core else math.nan
        reach = published(far, chip.scaleup_bytes_per_s_per_dir)
        levels.append(Tier("scale-out", where.count if isinstance(where, System) else math.inf, reach, reach, far_s))
    return tuple(levels)


def _scaleup(where: System | Chip) -> list[Tier]:
    """Return the scale-up tiers: axes of a torus, tray, rack and pair of switched racks, or one domain."""
    if isinstance(where, Chip):
        rate = published(where.scaleup_bytes_per_s_per_dir, where.scaleout_bytes_per_s_per_dir)
        size = 1.0 if math.isnan(where.scaleup_domain_chips) else where.scaleup_domain_chips
        return [Tier("domain", size, rate, rate, where.hop_s)]
    if where.fabric == "single":
        return []
    hop, key = where.chip.hop_s, Same(where)
    if where.fabric == "torus":
        rates = zip(build.AXES, where.torus_shape, build.link_rates(where), strict=False)
        return [Tier(axis, size, rate * min(size - 1, 2), rate, hop) for axis, size, rate in rates]
    if where.fabric == "planes":
        media = fabric(key).injection_by_medium()
        sizes = (where.chips_per_tray, where.compute_trays_per_rack, where.racks)
        latencies = [longest_s(routes, hop, published(where.switch_s, 0.0)) for routes in wiring(where).place_routes]
        tiered = zip(("tray", "rack", "pair"), sizes, MEDIA, latencies, strict=True)
        return [
            Tier(name, size, media[over], media[over], alpha) for name, size, over, alpha in tiered if over in media
        ]
    rate = fabric(key).injection_bytes_per_s_per_dir
    return [Tier("domain", where.domain_chips, rate, rate, hop)]


@lru_cache(maxsize=SPECS)
def farthest_s(key: Same[System], scope: str) -> NDArray:
    """Return the latency between the two farthest chips of a rack or of the domain; NaN for other vendors."""
    where = key.it
    return longest_s(wiring(where).farthest_routes(scope), where.chip.hop_s, published(where.switch_s, 0.0))


def chip_links(where: System | Chip) -> float:
    """Return the scale-up bandwidth of a chip one way: lanes or links of its system, or as published for the chip."""
    if isinstance(where, System) and where.fabric == "planes":
        return fabric(Same(where)).injection_bytes_per_s_per_dir
    if isinstance(where, System) and where.scaleup_bytes_per_s_per_dir:
        return sum(where.scaleup_bytes_per_s_per_dir.values())
    return chip_of(where).scaleup_bytes_per_s_per_dir


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Ranks laid over the tiers, innermost first, with each tier's rate for one rank and whether they go all round."""

    where: System | Chip
    levels: tuple[Tier, ...]
    counts: tuple[NDArray, ...]
    full: tuple[NDArray, ...]
    rates: tuple[NDArray, ...]
    alphas: tuple[NDArray, ...]
    ranks: NDArray
    stride: NDArray
    alpha_s: Numeric | None

    @property
    def chip(self) -> Chip:
        """The chip of which there are many."""
        return chip_of(self.where)

    @property
    def total(self) -> float:
        """Ranks that there are."""
        return math.prod(level.size for level in self.levels)

    @property
    def alpha_is_unknown(self) -> bool:
        """Whether the latency of a tier that the ranks span is not known."""
        return any(np.any(np.isnan(alpha)) for alpha in self.alphas)

    @property
    def on_chip(self) -> bool:
        """Whether the innermost tier is that of the ranks of a chip."""
        return self.levels[0].name == "chip"

    @property
    def local(self) -> NDArray:
        """Ranks on one chip."""
        return self.counts[0] if self.on_chip else np.ones_like(self.ranks)

    @property
    def chips(self) -> NDArray:
        """Chips that the ranks span."""
        return np.ceil(self.ranks / self.local)

    @property
    def links(self) -> NDArray:
        """What a chip sends for this group, into the tiers that it spans [B/s].

        Beyond the scale-up domain it is the scale-out rate. On a bare chip groups that lie in between share the rate.
        """
        where, per_chip = self.where, self.levels[0].size if self.on_chip else 1.0
        near, beyond = chip_links(where), where.scaleout_bytes_per_s_per_dir
        near, beyond = published(near, beyond), published(beyond, near)
        chips = where.domain_chips if isinstance(where, System) else np.nan_to_num(where.scaleup_domain_chips, nan=1.0)
        far = np.ceil(self.stride * self.ranks / per_chip) > chips
        link = np.where(far, beyond, near)
        if isinstance(where, Chip) or where.fabric == "single":
            return link / np.clip(self.stride, 1, per_chip)
        return np.where(~far & (self.ranks > 1), self.tier_bytes_per_s, link)

    @property
    def groups(self) -> NDArray:
        """Groups of ranks that share a chip."""
        return np.minimum(self.stride, self.levels[0].size if self.on_chip else 1)

    @property
    def direct_rates(self) -> tuple[NDArray, ...]:
        """Rates when every rank of a tier sends to every other at once; on a torus axis chips forward."""
        tiered = zip(self.levels, self.counts, self.full, self.rates, strict=True)
        return tuple(_forwarded(*tier) if tier[0].name in build.AXES else tier[-1] for tier in tiered)

    @property
    def exchange_rates(self) -> tuple[NDArray, ...]:
        """Rates when ranks swap halves in pairs: one link of a torus axis at a time."""
        tiered = zip(self.levels, self.full, self.rates, strict=True)
        return tuple(rate * np.where(full, _one_link(level), 1.0) for level, full, rate in tiered)

    @property
    def tier_bytes_per_s(self) -> NDArray:
        """What a chip sends into the tiers that the group spans, pieces of the buffer in all of them; inf on one."""
        tiered = zip(self.levels, self.counts, self.rates, strict=True)
        used = [np.where(count > 1, rate * self.local, 0.0) for level, count, rate in tiered if level.name != "chip"]
        return np.where(self.chips > 1, sum(used), np.inf)


def _one_link(level: Tier) -> NDArray:
    """Return the share of a tier's rate that one link of a ring carries, at most all of it."""
    return np.minimum(1.0, level.open_bytes_per_s_per_dir / level.bytes_per_s_per_dir)


def _forwarded(level: Tier, count: NDArray, full: NDArray, rate: NDArray) -> NDArray:
    """Return a rank's rate on a torus axis of which each link carries what its neighbours forward.

    The middle link of a line bears twice what each link of a closed ring does, whose ties go half each way round.
    """
    closed = full & (count > 2)
    rate_per_dir = rate * np.where(closed, level.open_bytes_per_s_per_dir / level.bytes_per_s_per_dir, 1.0)
    link_load = tiers.ring_link_load(np.maximum(count, 2)) * np.where(closed, 1, 2)
    return rate_per_dir * np.maximum(count - 1, 1) / (np.maximum(count, 2) * link_load)


def place(
    where: System | Chip,
    ranks: NDArray,
    stride: NDArray,
    lnc: int | None = None,
    alpha_s: Numeric | None = None,
) -> Group:
    """Lay every `stride`-th rank on its tiers; the groups between run at the same time and share chips and links.

    Ranks that do not fill their tiers evenly are laid as the next larger number that does, the rest on the outermost. A
    latency of NaN is that of each tier.
    """
    levels = hierarchy(Same(where), chip_of(where).logical(lnc)) or (Tier("chip", 1.0, np.inf, np.inf, 0.0),)
    on_chip = np.minimum(ranks * stride, levels[0].size) if levels[0].name == "chip" else np.ones_like(ranks)
    left, skip, placed = ranks, stride, []
    for level in levels:
        inside = np.minimum(skip, level.size)
        count = left if level is levels[-1] else np.minimum(left, np.floor(level.size / inside))
        full = count * inside == level.size
        rate = np.where(full, level.bytes_per_s_per_dir, level.open_bytes_per_s_per_dir)
        sharing = level.size if level.name == "chip" else on_chip * (inside if level.name in build.AXES else 1)
        alpha = level.alpha_s if alpha_s is None else published(alpha_s, level.alpha_s)
        alpha = np.where(np.isnan(alpha) & (count <= 1), 0.0, alpha)  # no step is taken on a tier of one
        placed.append((count, full, rate / sharing, np.asarray(alpha, float)))
        left, skip = np.ceil(left / count), np.ceil(skip / inside)
    counts, whole, rates, alphas = zip(*placed, strict=True)
    return Group(where, levels, counts, whole, rates, alphas, ranks, stride, alpha_s)
