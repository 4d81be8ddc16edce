"""One rank of a system: its peaks, memory and bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import Same, instance, integer
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import System, chip_of, find


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A rank of a system: one logical NeuronCore of `lnc` physical ones, or one GPU.

    `ranks_per_chip` share a chip and its links. `ranks_per_bank` reach one bank of memory together: what one of them
    stores, the others cannot.
    """

    where: System | Chip
    chip: Chip
    chips: float
    lnc: int
    ranks_per_chip: float
    ranks_per_bank: float

    @property
    def announced(self) -> bool:
        """Whether the logical core is announced only: no software of today makes a rank of it."""
        return self.lnc not in self.chip.lnc_choices

    @property
    def description(self) -> str:
        """Text that names the logical core in a caption.

        Examples
        --------
        >>> site("trn2.48xlarge").description, site("trn3-nl32x2-pcie160", 8).description
        ('LNC 2', 'LNC 8, which is announced and which the SDK of today does not allow')
        """
        to_come = ", which is announced and which the SDK of today does not allow"
        return f"LNC {self.lnc}{to_come if self.announced else ''}"

    def sharing(self, ranks: NDArray) -> NDArray | float:
        """Return how many of the ranks, which lie in a row, store in one bank."""
        return np.minimum(self.ranks_per_bank, ranks)[()]

    @property
    def hbm_bytes(self) -> float:
        """Memory that a rank reaches: a bank, or all banks of its cores."""
        return self.chip.hbm_bytes / self.ranks_per_chip * self.ranks_per_bank

    @property
    def hbm_bytes_per_s(self) -> float:
        """Memory bandwidth of a rank."""
        return self.chip.hbm_bytes_per_s / self.ranks_per_chip

    def peak(self, dtype: str, sparse: bool = False) -> float:
        """Peak of a rank, dense or with structured sparsity."""
        return self.chip.peak(dtype, sparse) / self.ranks_per_chip

    @property
    def elements_per_s(self) -> float:
        """Elements that a rank's vector engines pass over; a chip without them has no bound by them."""
        core = self.chip.core
        return core.sbuf_partitions * self.lnc * core.vector.clock_hz if core else np.inf


def site(where: str | System | Chip, lnc: int | None = None, argument: str = "system") -> Site:
    """Return the rank of a system, or of a bare chip of which there are as many as wanted.

    Raises ValueError for an unknown system, naming the `argument`, or where the chip does not allow the logical core.
    """
    lnc = None if lnc is None else integer("lnc", lnc)
    if isinstance(where, str):
        return _named_site(where, lnc, argument)
    return _site(Same(instance(argument, where, System | Chip, "an id, a System or a Chip")), lnc)


@lru_cache(maxsize=256)
def _named_site(name: str, lnc: int | None, argument: str) -> Site:
    return _site(Same(find(name, argument)), lnc)


@lru_cache(maxsize=256)
def _site(key: Same, lnc: int | None) -> Site:
    where, chip = key.it, chip_of(key.it)
    logical = chip.logical(lnc)
    return Site(
        where=where,
        chip=chip,
        chips=getattr(where, "chips", np.inf),
        lnc=logical,
        ranks_per_chip=chip.cores / logical,
        ranks_per_bank=max(chip.hbm_bank_cores / logical, 1.0),
    )
