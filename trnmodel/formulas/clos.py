"""Folded Clos networks: how many chips they reach, of what parts they are made, how far and how fast they carry.

`clos` sizes a network and returns a `Clos`; `radix` and `tor_ports` are the two formulas that it is made of.

The first layer of switches is called top of rack, the last one spine. Two layers have only these; three layers have
leaves between them. The racks below the same leaves are a pod, so a network of two layers is one pod. (In a
rail-optimised network the first switch is called leaf, and a "rack" is the group of servers that share it.) An endpoint
is one logical port of a NIC. A NIC may be split over several planes, separate networks in each of which it has the same
number of ports; dual top of rack is two planes. Within a plane, uplink i of every top of rack goes to leaf i of its pod
and on to the spines of that leaf: a rail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, numbers, together
from trnmodel.declared import Numbers, Word, declare
from trnmodel.result import Result, blank, reason_mask
from trnmodel.units import GB, GBIT, Numeric, spread_of

BYTES_PER_BIT = GBIT / GB
MOST_PLANES = 1e6  # that a question may ask for


def _cleaned(x: Numeric) -> NDArray:
    """Round to nine decimals, so that a quotient that ought to be whole is so before it is rounded up or down."""
    return np.round(np.asarray(x), 9)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Clos(Result):
    """A network as `clos` sizes it: the question, the size of a full network, and what of it is in use.

    Counts of switches, links, cables and optical modules are of all planes together.

    Attributes
    ----------
    switch_bits_per_s, tor_bits_per_s, port_bits_per_s, nic_bits_per_s, module_bits_per_s : numeric
        Rates of the question. [bit/s]
    layers, planes, chips_per_nic : numeric
        Counts of the question. [-]
    endpoint_medium : str
        Cable of the question.
    radix, tor_radix : numeric
        Ports of a leaf or spine switch, and of a top of rack. [-]
    down_ports, rails : numeric
        Ports of a top of rack to NICs, and to leaves (or spines), each of them a rail. [-]
    ports_per_nic : numeric
        Ports of a NIC in each plane. [-]
    nics_per_rack, racks_per_pod, max_pods : numeric
        Size of a full rack, a full pod and the full network; two layers make one pod. [-]
    chips, nics, racks, pods : numeric
        Chips and NICs that are connected, and racks and pods that have any of them. [-]
    """

    REASONS: ClassVar[tuple[str, ...]] = (
        "a switch has fewer than two ports at this port rate",
        "no port of a top of rack is left for a NIC or for an uplink",
        "the NIC's rate is no whole number of ports in each plane, or a rack's ports do not hold one NIC",
        "more chips than the layers reach",
    )
    switch_bits_per_s: NDArray
    tor_bits_per_s: NDArray
    port_bits_per_s: NDArray
    nic_bits_per_s: NDArray
    module_bits_per_s: NDArray
    layers: NDArray
    planes: NDArray
    chips_per_nic: NDArray
    endpoint_medium: str
    radix: NDArray
    tor_radix: NDArray
    down_ports: NDArray
    rails: NDArray
    ports_per_nic: NDArray
    nics_per_rack: NDArray
    racks_per_pod: NDArray
    max_pods: NDArray
    chips: NDArray
    nics: NDArray
    racks: NDArray
    pods: NDArray

    def _answer(self) -> list[str]:
        """Print the chips and the switches of the networks that can exist."""
        if not np.any(self.valid):
            return []
        chips, switches = (spread_of(np.ravel(count).tolist(), "", 9) for count in (self.chips, self.switches))
        return [f"{chips} chips on {switches} switches"]

    @property
    def endpoints(self) -> NDArray:
        """Endpoints of one full plane: the most NICs where each has one port per plane [-]."""
        return self.down_ports * self.racks_per_pod * self.max_pods

    @property
    def max_chips(self) -> NDArray:
        """Chips of the full network [-]."""
        return self.chips_per_pod * self.max_pods

    @property
    def chips_per_rack(self) -> NDArray:
        """Chips of a full rack [-]."""
        return self.nics_per_rack * self.chips_per_nic

    @property
    def chips_per_pod(self) -> NDArray:
        """Chips of a full pod [-]."""
        return self.chips_per_rack * self.racks_per_pod

    @property
    def oversubscription(self) -> NDArray:
        """Down ports over up ports of a top of rack, in whole ports [-]."""
        return self.down_ports / self.rails

    @property
    def tor_switches(self) -> NDArray:
        """First-layer switches [-]."""
        return self.planes * self.racks

    @property
    def leaf_switches(self) -> NDArray:
        """Switches between top of rack and spine; a pod with any rack has all its leaves [-]."""
        return self.planes * self.pods * self.rails * (self.layers == 3)

    @property
    def spine_switches(self) -> NDArray:
        """Top-layer switches, by the ports in use [-]."""
        return self.planes * np.ceil(self.spine_links / self.planes / self.radix)

    @property
    def switches(self) -> NDArray:
        """All switches [-]."""
        return self.tor_switches + self.leaf_switches + self.spine_switches

    @property
    def endpoint_links(self) -> NDArray:
        """Logical links between NICs and switches [-]."""
        return self.nics * self.ports_per_nic * self.planes

    @property
    def spine_links(self) -> NDArray:
        """Logical links into the spine [-]."""
        return np.where(self.layers == 3, self.leaf_switches * np.floor(self.radix / 2), self.tor_switches * self.rails)

    @property
    def fabric_links(self) -> NDArray:
        """Logical links among switches [-]."""
        return self.spine_links + self.tor_switches * self.rails * (self.layers == 3)

    @property
    def links(self) -> NDArray:
        """All logical links [-]."""
        return self.endpoint_links + self.fabric_links

    @property
    def endpoint_cables(self) -> NDArray:
        """Cables between NICs and switches, each as wide as a module [-]."""
        return np.ceil(_cleaned(self.endpoint_links * self.port_bits_per_s / self.module_bits_per_s))

    @property
    def fabric_cables(self) -> NDArray:
        """Cables among switches, each as wide as a module [-]."""
        return np.ceil(_cleaned(self.fabric_links * self.port_bits_per_s / self.module_bits_per_s))

    @property
    def cables(self) -> NDArray:
        """All cables [-]."""
        return self.endpoint_cables + self.fabric_cables

    @property
    def optics(self) -> NDArray:
        """Optical modules, one at each end of an optical cable; cables among switches are optical [-]."""
        return 2 * (self.fabric_cables + self.endpoint_cables * (self.endpoint_medium == "optical"))

    @property
    def switch_hops(self) -> NDArray:
        """Switches on the longest path [-]."""
        return np.where(self.valid, 2 * self.layers - 1, np.nan)[()]

    @property
    def chip_bytes_per_s_per_dir(self) -> NDArray:
        """Rate of one chip within its rack when all chips send [B/s]."""
        return np.where(self.valid, self.nic_bits_per_s / self.chips_per_nic * BYTES_PER_BIT, np.nan)[()]

    @property
    def chip_bytes_per_s_per_dir_across_racks(self) -> NDArray:
        """Rate of one chip to other racks when all chips send [B/s]."""
        return self.chip_bytes_per_s_per_dir / np.maximum(1, self.oversubscription)


def radix(switch_bits_per_s: Numeric, port_bits_per_s: Numeric) -> NDArray:
    r"""Logical ports of a switch.

    .. math:: r = \lfloor S / p \rfloor

    Parameters
    ----------
    switch_bits_per_s : numeric
        Switching capacity, one way, S. [bit/s]
    port_bits_per_s : numeric
        Rate of a logical port, p. [bit/s]

    Returns
    -------
    radix : numeric
        Ports, r. [-]

    References
    ----------
    .. [1] SemiAnalysis, AWS Trainium3 deep dive, 2025, line 461: 25.6T has 64 ports of 400G.

    Examples
    --------
    >>> float(radix(25.6e12, 400e9))
    64.0
    """
    switch = numbers("switch_bits_per_s", switch_bits_per_s, TINY)
    return np.floor(_cleaned(switch / numbers("port_bits_per_s", port_bits_per_s, TINY)))


def tor_ports(tor_radix: Numeric, oversubscription: Numeric) -> tuple[NDArray, NDArray]:
    r"""Ports of a first-layer switch towards the NICs and towards the fabric.

    .. math:: u = \lfloor r / (1 + o) \rfloor,\quad d = \lfloor o\,u \rfloor

    Parameters
    ----------
    tor_radix : numeric
        Ports of the switch, r. [-]
    oversubscription : numeric
        Down ports per up port, o; below 1 leaves spare uplinks. [-]

    Returns
    -------
    down : numeric
        Ports to NICs, d. [-]
    up : numeric
        Ports to the next layer, u. [-]

    References
    ----------
    .. [1] C. Leiserson, Fat-trees, IEEE Trans. Computers C-34(10), 1985; ports rounded down to whole ones.

    Examples
    --------
    >>> [float(ports) for ports in tor_ports(128, 3)]
    [96.0, 32.0]
    """
    ratio = numbers("oversubscription", oversubscription, TINY)
    up = np.floor(_cleaned(numbers("tor_radix", tor_radix) / (1.0 + ratio)))
    return np.floor(_cleaned(ratio * up)), up


@declare(
    switch_bits_per_s=Numbers(TINY),
    port_bits_per_s=Numbers(TINY),
    layers=Numbers(2, 3, whole=True),
    tor_bits_per_s=Numbers(TINY),
    oversubscription=Numbers(TINY),
    nic_bits_per_s=Numbers(TINY),
    planes=Numbers(1, MOST_PLANES, whole=True),
    chips_per_nic=Numbers(TINY),
    module_bits_per_s=Numbers(TINY),
    endpoint_medium=Word(("copper", "optical")),
    chips=Numbers(1, whole=True),
)
def clos(
    *,
    switch_bits_per_s: Numeric,
    port_bits_per_s: Numeric,
    layers: Numeric,
    tor_bits_per_s: Numeric | None = None,
    oversubscription: Numeric = 1.0,
    nic_bits_per_s: Numeric | None = None,
    planes: Numeric = 1,
    chips_per_nic: Numeric = 1,
    module_bits_per_s: Numeric | None = None,
    endpoint_medium: str = "copper",
    chips: Numeric | None = None,
) -> Clos:
    r"""Size a folded Clos network of two or three switch layers, full or for a number of chips.

    .. math:: e = d\,r \text{ (two layers)},\quad e = d\,\lfloor r/2 \rfloor\,r \text{ (three)}

    Parameters
    ----------
    switch_bits_per_s : numeric
        Capacity of a leaf or spine switch, one way; r is its `radix`. [bit/s]
    port_bits_per_s : numeric
        Rate of a logical port. [bit/s]
    layers : numeric
        Switch layers, 2 or 3. [-]
    tor_bits_per_s : numeric, optional
        Capacity of a first-layer switch, d being its down ports; by default that of the others. [bit/s]
    oversubscription : numeric
        Down ports per up port of the first layer. [-]
    nic_bits_per_s : numeric, optional
        Rate of a NIC; by default one port in each plane. [bit/s]
    planes : numeric
        Separate networks over which each NIC is split. [-]
    chips_per_nic : numeric
        Chips that share a NIC. [-]
    module_bits_per_s : numeric, optional
        Rate of an optical module or cable, which may bundle several ports; by default that of a port. [bit/s]
    endpoint_medium : {"copper", "optical"}
        Cables between NICs and the first layer; a switch at the top of the rack allows copper [2]_, line 457.
    chips : numeric, optional
        Chips to connect; by default all that the network reaches. [-]

    Returns
    -------
    clos : Clos
        Reach, parts and rates.

    Notes
    -----
    Assumes: one link between a switch and each of its neighbours; a pod with any rack has all its leaves; spines are
    counted by the ports in use. Leaves are not oversubscribed.
    Limits: one switch type, o = 1 gives r^2/2 and r^3/4 endpoints.

    References
    ----------
    .. [1] C. Leiserson, Fat-trees, IEEE Trans. Computers C-34(10), 1985.
    .. [2] SemiAnalysis, AWS Trainium3 deep dive, 2025, lines 461-493.

    Examples
    --------
    >>> float(clos(switch_bits_per_s=12.8e12, port_bits_per_s=100e9, layers=3).endpoints)
    524288.0
    """
    port = port_bits_per_s
    together(port_bits_per_s=port, planes=planes)
    inputs: dict[str, Any] = {
        "switch_bits_per_s": switch_bits_per_s,
        "tor_bits_per_s": switch_bits_per_s if tor_bits_per_s is None else tor_bits_per_s,
        "port_bits_per_s": port,
        "nic_bits_per_s": np.multiply(port, planes) if nic_bits_per_s is None else nic_bits_per_s,
        "module_bits_per_s": port if module_bits_per_s is None else module_bits_per_s,
        "layers": layers,
        "planes": planes,
        "chips_per_nic": chips_per_nic,
    }
    inputs = {name: value[()] for name, value in inputs.items()}
    together(**inputs, oversubscription=oversubscription, **({} if chips is None else {"chips": chips}))
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes, impossible = _sizes(np.asarray(oversubscription), chips, **inputs)
    sizes = blank(impossible, **sizes)
    return Clos(**inputs, endpoint_medium=endpoint_medium, **sizes, reason_mask=impossible)


def _sizes(
    oversubscription: NDArray,
    chips: NDArray | None,
    *,
    switch_bits_per_s: NDArray,
    tor_bits_per_s: NDArray,
    port_bits_per_s: NDArray,
    nic_bits_per_s: NDArray,
    module_bits_per_s: NDArray,
    layers: NDArray,
    planes: NDArray,
    chips_per_nic: NDArray,
) -> tuple[dict[str, NDArray], NDArray]:
    """Return sizes of a full rack, pod and network, counts in use, and the bits of `Clos.REASONS` that hold."""
    r, tor_radix = radix(switch_bits_per_s, port_bits_per_s), radix(tor_bits_per_s, port_bits_per_s)
    down, up = tor_ports(tor_radix, oversubscription)
    ports_per_nic = _cleaned(nic_bits_per_s / (port_bits_per_s * planes))
    nics_per_rack = np.floor(down / ports_per_nic)
    racks_per_pod, max_pods = np.where(layers == 3, np.floor(r / 2), r), np.where(layers == 3, r, 1)
    max_nics = nics_per_rack * racks_per_pod * max_pods
    chips = max_nics * chips_per_nic if chips is None else chips
    nics = np.ceil(_cleaned(np.divide(chips, chips_per_nic)))
    racks = np.ceil(nics / nics_per_rack)
    impossible = reason_mask(
        np.minimum(r, tor_radix) < 2,
        np.minimum(down, up) < 1,
        (ports_per_nic != np.floor(ports_per_nic)) | (ports_per_nic < 1) | (nics_per_rack < 1),
        nics > max_nics,
    )
    sizes = {
        "radix": r,
        "tor_radix": tor_radix,
        "down_ports": down,
        "rails": up,
        "ports_per_nic": ports_per_nic,
        "nics_per_rack": nics_per_rack,
        "racks_per_pod": racks_per_pod,
        "max_pods": max_pods,
        "chips": chips,
        "nics": nics,
        "racks": racks,
        "pods": np.ceil(racks / racks_per_pod),
    }
    return sizes, impossible
