"""What a search maximises: decoded tokens per chip, or whole requests per chip, at full chips or at a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, number, numbers, together
from trnmodel.search.request import Grid


class Load(NamedTuple):
    """The requested load: requests per second while it is there, its share of the rented time, and spares.

    Without a rate it is what the fewest instances that hold a replica serve.
    """

    requests_per_s: float
    duty: float
    spare_instances: float

    def instances(self, request_chip_s: NDArray, chips: NDArray, sold_chips: float) -> tuple[NDArray, NDArray]:
        """Whole instances that serve it, and chip-seconds that are rented for each request.

        Parameters
        ----------
        request_chip_s, chips : numeric
            Chip-seconds that a request takes on a replica of so many chips; NaN where out of reach. [s]
        sold_chips : float
            Chips that are rented together. [-]
        """
        request_chip_s = numbers("request_chip_s", request_chip_s, TINY, unknown=True)
        chips, sold_chips = numbers("chips", chips, 1, unknown=True), number("sold_chips", sold_chips, 1)
        together(request_chip_s=request_chip_s, chips=chips)
        fitting = np.maximum(np.floor(sold_chips / chips), 1.0)  # replicas of an instance, or one on several
        asked = fitting * chips / request_chip_s if np.isnan(self.requests_per_s) else self.requests_per_s
        replicas = np.ceil(asked * request_chip_s / chips * (1 - 1e-12))
        whole = np.ceil(replicas / fitting) * np.ceil(chips / sold_chips) + self.spare_instances
        return whole, whole * sold_chips / (asked * self.duty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The quantity that a search maximises among points that are fast enough for a user.

    `counts` says whether decoded tokens count, or whole requests with their prompts; both are per chip. With a `load`,
    chips are rented in whole instances of `sold_chips`, and those that wait count too.
    """

    counts: Literal["tokens", "requests"] = "tokens"
    load: Load | None = None
    sold_chips: float = np.nan

    def values(self, grid: Grid) -> NDArray:
        """Return the objective at each point of a grid; 0 for requests at a point that serves none."""
        if self.counts == "tokens":
            return grid.tokens_per_s_per_chip
        chip_s = grid.request_chip_s
        if self.load is not None:
            chip_s = self.load.instances(chip_s, grid.chips, self.sold_chips)[1]
        return np.nan_to_num(1 / chip_s)


TOKENS = Objective()
REQUESTS = Objective(counts="requests")
