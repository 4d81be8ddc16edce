"""Where watts and joules go: a chip by what it does, a server, a site, and what a token, a FLOP and a gram come to.

Boundaries are kept apart: chip, server, all that is provisioned for it in IT, facility. Power is of one chip with its
share of what stands around it, unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trnmodel.units import MW, Numeric


def utilisation(amount: Numeric, time_s: Numeric, rate: Numeric) -> Numeric:
    r"""Share of a printed rate that some work takes in a time.

    .. math:: u = W / (t\,R)

    Parameters
    ----------
    amount : numeric
        Work, W; or bytes, with the bandwidth that moves them. [FLOP]
    time_s : numeric
        Time, t. [s]
    rate : numeric
        Peak, R; or a bandwidth. [FLOP/s]

    Returns
    -------
    utilisation : numeric
        Share, u. [-]

    Examples
    --------
    >>> utilisation(5e12, 0.01, 1e15)
    0.5
    """
    return amount / (time_s * rate)


def chip_w(tdp_w: Numeric, idle_share: Numeric, activity: Numeric) -> NDArray:
    r"""Power of a chip by its activity: idle, and of the rest of its TDP a share that ends at one.

    .. math:: P = P_{TDP} \bigl(i + (1 - i) \tanh a\bigr), \qquad
        a = \frac{e_f F + e_m B}{(1 - i) P_{TDP}} = a_f\, r \frac{F}{R} + a_m \frac{B}{R_m}

    Parameters
    ----------
    tdp_w : numeric
        Thermal design power, or the limit that is set. [W]
    idle_share : numeric
        Share drawn when nothing runs, i. [-]
    activity : numeric
        Energy of all operations and bytes in a second over what the TDP leaves above idle, a: operations F at their
        energy e_f, which is that of a 16-bit operation times the ratio r of the format, and bytes B at e_m. [-]

    Returns
    -------
    power_w : numeric
        Power, P; a chip that is not used at all draws its idle power, and none draws more than its TDP. [W]

    Notes
    -----
    Limits: a = 0 gives i TDP; a -> inf gives TDP. For small a power is linear: idle power, and joules for each
    operation and byte (`operation_j`). Near the TDP clocks give way. Assumes that all chips share a_f and a_m and
    differ in idle share alone. The peak of the format is not in the law, so that a format with a higher peak saves no
    energy by its peak.

    References
    ----------
    .. [1] Watts of GPUs by model and batch: data/evidence/energy.csv, fitted by `trnlab.energy`.

    Examples
    --------
    >>> round(float(chip_w(700.0, 0.2, 0.5)), 1), float(chip_w(700.0, 0.2, 0.0)), float(chip_w(700.0, 0.2, 99.0))
    (398.8, 140.0, 700.0)
    """
    return tdp_w * (idle_share + (1 - idle_share) * np.tanh(activity))


def operation_j(tdp_w: Numeric, idle_share: Numeric, activity: Numeric, rate: Numeric) -> Numeric:
    r"""Energy above idle that one operation, or one byte, takes in a chip while it is far from its TDP.

    .. math:: e = (1 - i)\, a\, P_{TDP} / R

    Parameters
    ----------
    tdp_w : numeric
        Thermal design power, or the limit that is set. [W]
    idle_share : numeric
        Share drawn when nothing runs, i. [-]
    activity : numeric
        Activity at the rate R, with the energy of the format over that of a 16-bit operation in it, a. [-]
    rate : numeric
        Rate of 16-bit operations at which the activity counts, R; or a bandwidth. [FLOP/s]

    Returns
    -------
    energy_j : numeric
        Energy of one, e. [J/FLOP]

    Notes
    -----
    This is the slope of `chip_w` at no load. It holds all that comes with an operation of a served model: operands,
    registers, scheduling and the operations that a step's count leaves out. It is therefore several times the energy
    of the multiply-add alone.

    Examples
    --------
    >>> operation_j(1000.0, 0.5, 2.0, 1e15) * 1e12  # 500 W x 2 at 1e15 FLOP/s, in pJ
    1.0
    """
    return (1 - idle_share) * activity * tdp_w / rate


def activity(dynamic_w: Numeric, tdp_w: Numeric, idle_share: Numeric) -> NDArray:
    r"""Power that operations and bytes would draw, over what the TDP leaves above idle.

    .. math:: a = P_{dyn} / \bigl((1 - i) P_{TDP}\bigr)

    Parameters
    ----------
    dynamic_w : numeric
        Power of operations and bytes at the energy of each, P_dyn. [W]
    tdp_w : numeric
        Thermal design power, or the limit that is set. [W]
    idle_share : numeric
        Share drawn when nothing runs, i; at 1 there is no room and the activity counts as 0. [-]

    Returns
    -------
    activity : numeric
        Activity, a, as `chip_w` takes it. [-]

    Examples
    --------
    >>> float(activity(280.0, 700.0, 0.2)), float(activity(280.0, 700.0, 1.0))
    (0.5, 0.0)
    """
    room = (1 - np.asarray(idle_share)) * tdp_w
    return np.where(np.equal(room, 0), 0.0, dynamic_w / np.where(np.equal(room, 0), 1.0, room))


def matmul_flop_per_s(peak_flop_per_s: Mapping[int, Numeric]) -> NDArray:
    r"""Rate of 16-bit operations for which the matrix engines of a chip are built, whatever format it prints.

    .. math:: R = \max_b\, R_b\, b / 16

    Parameters
    ----------
    peak_flop_per_s : mapping
        Dense peaks R_b by the bits b of an operand. [FLOP/s]

    Returns
    -------
    rate_flop_per_s : numeric
        Rate, R. [FLOP/s]

    Notes
    -----
    An engine that takes twice as many operands of half the width in a second has the same R. Where the narrow format
    runs more than twice as fast, the power supply and the cooling are built for the narrow format.

    Examples
    --------
    >>> float(matmul_flop_per_s({16: 989.5e12, 8: 1979e12}) / 1e12)
    989.5
    >>> float(matmul_flop_per_s({16: 1e15, 8: 3e15}) / 1e15)
    1.5
    """
    rates = [np.asarray(peak) * bits / 16 for bits, peak in peak_flop_per_s.items()]
    return np.max(np.broadcast_arrays(*rates), axis=0)


def part_w(dynamic_w: Numeric, activity: Numeric, total: Numeric) -> NDArray:
    r"""Part of the power above idle that one class of activity takes.

    .. math:: P_k = P_{dyn}\, a_k / \sum_j a_j

    Parameters
    ----------
    dynamic_w : numeric
        Power above idle. [W]
    activity : numeric
        Activity of the class. [-]
    total : numeric
        Activity of all classes; zero has no parts. [-]

    Returns
    -------
    part_w : numeric
        Power of the class; the parts add up to the whole. [W]

    Examples
    --------
    >>> float(part_w(300.0, 1.0, 4.0)), float(part_w(0.0, 0.0, 0.0))
    (75.0, 0.0)
    """
    return dynamic_w * np.divide(activity, np.where(np.equal(total, 0), 1.0, total))


def moved_w(amount: Numeric, time_s: Numeric, energy_j: Numeric) -> Numeric:
    r"""Mean power of operations or of bytes that each cost some energy.

    .. math:: P = n\,e / t

    Parameters
    ----------
    amount : numeric
        Operations of one chip, n; or bytes, with the energy of one. [FLOP]
    time_s : numeric
        Time, t. [s]
    energy_j : numeric
        Energy of one, e. [J/FLOP]

    Returns
    -------
    power_w : numeric
        Power, P. [W]

    References
    ----------
    .. [1] M. Horowitz, Computing's energy problem (and what we can do about it), ISSCC 2014.

    Examples
    --------
    >>> round(moved_w(4.9e12, 1.0, 31.2e-12), 1)
    152.9
    """
    return amount * energy_j / time_s


def capped_w(parts_w: Numeric, static_w: Numeric, tdp_w: Numeric) -> NDArray:
    r"""Bottom-up power of a chip: static power and that of every operation and byte, at most its TDP.

    .. math:: P = \min\bigl(P_0 + \textstyle\sum_k P_k,\; P_{TDP}\bigr)

    Parameters
    ----------
    parts_w : numeric
        Sum of the powers of operations and bytes. [W]
    static_w : numeric
        Power drawn whatever the chip does, P0. [W]
    tdp_w : numeric
        Thermal design power. [W]

    Returns
    -------
    power_w : numeric
        Power, P. [W]

    Examples
    --------
    >>> float(capped_w(300.0, 210.0, 700.0)), float(capped_w(600.0, 210.0, 700.0))
    (510.0, 700.0)
    """
    return np.minimum(static_w + parts_w, tdp_w)


def server_w(chip_power_w: Numeric, server_ratio: Numeric, host_w: Numeric) -> Numeric:
    r"""Power of a server for each of its chips: supplies, regulators and fans follow the chips, the host does not.

    .. math:: P = s\,P_{chip} + P_{host}

    Parameters
    ----------
    chip_power_w : numeric
        Power of a chip. [W]
    server_ratio : numeric
        Power at the wall for each watt of a chip, s. [-]
    host_w : numeric
        CPUs, memory, NICs, switches over the number of chips. [W]

    Returns
    -------
    power_w : numeric
        Power of a server over the number of its chips, P. [W]

    References
    ----------
    .. [1] Wall power of servers: data/evidence/energy_servers.csv.

    Examples
    --------
    >>> server_w(1000.0, 1.03, 230.0) * 8 / 1e3
    10.08
    """
    return server_ratio * chip_power_w + host_w


def wall_w(load_w: Numeric, cooling_share: Numeric, conversion_share: Numeric) -> Numeric:
    r"""Power of a rack at its AC inlet: what its parts draw, fans and pumps, and the loss of its power shelves.

    .. math:: P = P_l (1 + c)(1 + v)

    Parameters
    ----------
    load_w : numeric
        Power of chips, switches, hosts and network cards, P_l. [W]
    cooling_share : numeric
        Fans and pumps over what they cool, c. [-]
    conversion_share : numeric
        Loss of the shelves over what they give, v. [-]

    Returns
    -------
    power_w : numeric
        Power, P. [W]

    Notes
    -----
    Limits: c = v = 0 gives P_l. Regulators beside the packages are in neither share.

    Examples
    --------
    >>> round(wall_w(100.0, 0.06, 0.03), 2)
    109.18
    """
    return load_w * (1 + cooling_share) * (1 + conversion_share)


def facility_w(it_w: Numeric, pue: Numeric) -> Numeric:
    r"""Power of a site for some power of IT: annual PUE for energy, peak PUE for capacity, never one for the other.

    .. math:: P = P_{IT}\, \mathrm{PUE}

    Parameters
    ----------
    it_w : numeric
        Power of IT equipment. [W]
    pue : numeric
        Power usage effectiveness. [-]

    Returns
    -------
    power_w : numeric
        Power of the site, P. [W]

    References
    ----------
    .. [1] ISO/IEC 30134-2:2016, power usage effectiveness.

    Examples
    --------
    >>> facility_w(1000.0, 1.14)
    1140.0
    """
    return it_w * pue


def it_w(site_w: Numeric, peak_pue: Numeric) -> Numeric:
    r"""Power that a site has for IT on its hottest day.

    .. math:: P_{IT} = P_{site} / \mathrm{PUE}_{peak}

    Parameters
    ----------
    site_w : numeric
        Power of the site. [W]
    peak_pue : numeric
        PUE on that day. [-]

    Returns
    -------
    it_w : numeric
        Power of IT equipment. [W]

    Examples
    --------
    >>> it_w(1.2e6, 1.2), it_w(1.2e6, 1.5)
    (1000000.0, 800000.0)
    """
    return site_w / peak_pue


def energy_j(power_w: Numeric, units_per_s: Numeric) -> Numeric:
    r"""Energy of a unit of work (a token, a step, a FLOP) at a rate.

    .. math:: E = P / r

    Parameters
    ----------
    power_w : numeric
        Power inside a boundary, P. [W]
    units_per_s : numeric
        Units a second, r, of the same chips. [1/s]

    Returns
    -------
    energy_j : numeric
        Energy of a unit, E. [J]

    Examples
    --------
    >>> energy_j(700.0, 350.0)
    2.0
    """
    return power_w / units_per_s


def tokens_per_s_per_mw(tokens_per_s: Numeric, power_w: Numeric) -> Numeric:
    r"""Tokens a second that a megawatt inside a boundary gives.

    .. math:: r_{MW} = r\, 10^6 / P

    Parameters
    ----------
    tokens_per_s : numeric
        Tokens a second of some chips, r. [token/s]
    power_w : numeric
        Their power, P. [W]

    Returns
    -------
    tokens_per_s_per_mw : numeric
        Tokens a second of a megawatt. [token/s/MW]

    Examples
    --------
    >>> tokens_per_s_per_mw(1000.0, 2000.0)
    500000.0
    """
    return tokens_per_s * MW / power_w


def carbon_kg(facility_j: Numeric, carbon_kg_per_j: Numeric, embodied_kg: Numeric = 0.0) -> Numeric:
    r"""Carbon of a unit of work: that of its energy, and its part of what making the machines emitted.

    .. math:: SCI = E\,I + M

    Parameters
    ----------
    facility_j : numeric
        Energy of the unit at the facility's boundary, E. [J]
    carbon_kg_per_j : numeric
        Carbon intensity of the electricity, I. [kg/J]
    embodied_kg : numeric
        The unit's part of the embodied carbon, M; no source prints one for Trainium. [kg]

    Returns
    -------
    carbon_kg : numeric
        CO2 equivalent of the unit. [kg]

    References
    ----------
    .. [1] ISO/IEC 21031:2024, Software Carbon Intensity.

    Examples
    --------
    >>> round(carbon_kg(3.6e6, 0.3678 / 3.6e6), 4)
    0.3678
    """
    return facility_j * carbon_kg_per_j + embodied_kg


def water_l(server_j: Numeric, water_l_per_j: Numeric) -> Numeric:
    r"""Water that a site uses for the energy of its servers (WUE counts energy of IT).

    .. math:: V = E_{IT}\, \mathrm{WUE}

    Parameters
    ----------
    server_j : numeric
        Energy at the boundary of the server. [J]
    water_l_per_j : numeric
        Water usage effectiveness. [L/J]

    Returns
    -------
    water_l : numeric
        Water. [L]

    References
    ----------
    .. [1] ISO/IEC 30134-9:2022, water usage effectiveness.

    Examples
    --------
    >>> round(water_l(3.6e6, 0.12 / 3.6e6), 4)
    0.12
    """
    return server_j * water_l_per_j


def power_ratio(speed_ratio: Numeric, efficiency_ratio: Numeric) -> Numeric:
    r"""Power of one machine over another's that a claim of speed and a claim of work for each joule imply together.

    .. math:: p = s / e

    Parameters
    ----------
    speed_ratio : numeric
        Work a second over the other's, s. [-]
    efficiency_ratio : numeric
        Work for each joule over the other's, e. [-]

    Returns
    -------
    power_ratio : numeric
        Power over the other's, p. [-]

    Examples
    --------
    >>> round(power_ratio(4.4, 4.0), 4)
    1.1
    """
    return speed_ratio / efficiency_ratio
