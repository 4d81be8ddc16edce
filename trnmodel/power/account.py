"""One account of what a site counts for a chip: provisioned and mean watts, with the PUE of either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trnmodel.catalog.specs import published
from trnmodel.formulas import energy as page


@dataclass(frozen=True, slots=True, eq=False)
class SiteWatts:
    """Watts of a chip with its share of everything, as a site counts them; every account of power and cost reads them.

    `provisioned_w` is the IT power that is set aside, from which capacity, building and switchgear follow at the peak
    PUE (`peak_site_w`). `mean_w` is the IT power that is drawn on average, from which energy follows at the annual PUE
    (`mean_site_w`).
    """

    provisioned_w: Any
    mean_w: Any
    peak_pue: Any
    annual_pue: Any

    @property
    def peak_site_w(self) -> Any:
        """Power that the site sets aside for the chip on its hottest day [W]."""
        return page.facility_w(self.provisioned_w, self.peak_pue)

    @property
    def mean_site_w(self) -> Any:
        """Power that the site draws for the chip, mean over a year [W]."""
        return page.facility_w(self.mean_w, self.annual_pue)


def provisioned_w(all_in_w: Any, tdp_w: Any, all_in_ratio: Any) -> Any:
    """Return the IT power that is provisioned for a chip: the published one, else its TDP times a ratio [W].

    Parameters
    ----------
    all_in_w : numeric
        Published IT power of the chip with its share of rack and network; NaN where there is none. [W]
    tdp_w : numeric
        Thermal design power of the chip. [W]
    all_in_ratio : numeric
        Provisioned power over the TDP. [-]

    Examples
    --------
    >>> float(provisioned_w(1730.0, 700.0, 2.0)), float(provisioned_w(float("nan"), 700.0, 2.0))
    (1730.0, 1400.0)
    """
    return published(all_in_w, tdp_w * all_in_ratio)
