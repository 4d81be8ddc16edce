"""What holds a message whatever its algorithm: the cuts of the tiers, the flow between chips, and HBM."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import refuse
from trnmodel.fabric.algorithms import RINGS, between_chips_s
from trnmodel.fabric.groups import Group
from trnmodel.formulas.bounds import busbw_factor, cut_bound_s
from trnmodel.formulas.collectives import buffer_passes_s


def hbm_s(kind: str, algorithm: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the time in which a rank's share of HBM takes the reads and writes of a collective."""
    if not p.on_chip:
        refuse("buffers", "hbm", f"accesses are documented for Neuron chips only, not for {p.chip.id}")
    passes = {"all_reduce": ("reduce_scatter", "all_gather"), "reduce_scatter": ("reduce_scatter",)}
    touches = {
        name: sum(p.chip.hbm_accesses_per_pair[f"{name}:{one}"] for one in pair) / 2
        for pair in [passes.get(kind, ("all_gather",))]
        for name in ("ring", "kangaring")
    }
    paired = (p.counts[0] == p.levels[0].size) & (p.counts[0] > 1) & (algorithm in RINGS)
    share = p.chip.hbm_bytes_per_s / p.levels[0].size
    moved = message_bytes * (p.ranks - 1) / p.ranks
    return np.where(paired, touches["kangaring"], touches["ring"]) * moved / share


def passes_s(kind: str, message_bytes: NDArray, p: Group, pass_bytes_per_s: NDArray) -> NDArray:
    """Return the time in which ranks pass their buffers, and the cards of machines what must cross between them.

    Within the scale-up domain links carry pieces while the DMA queues pass others. Between machines the library works
    in sequence: within each machine before and after the messages of the network.
    """
    crossing = np.zeros(())
    outer = p.levels[-1]
    if outer.name == "scale-out":
        machines, rate = p.counts[-1], p.rates[-1]
        inside = np.ceil(p.ranks / machines)
        own = message_bytes if kind in ("all_to_all", "p2p") else message_bytes / inside
        sent = busbw_factor(kind, machines) * own / np.where(kind == "p2p", p.local, 1.0)
        crossing = np.where(machines > 1, sent / rate, 0.0)
    return buffer_passes_s(kind, message_bytes, pass_bytes_per_s) + crossing


def lower_bound_s(kind: str, message_bytes: NDArray, p: Group) -> NDArray:
    """Return the largest bound of the cuts at rank, chip, tray, rack, pair: bytes that must cross over the cut's rate.

    Groups that run side by side share a unit's links, but a rank's own. An all-to-all of whole racks or domains is also
    held by what a flow carries between their chips.
    """
    held, chips = np.ones_like(p.ranks), 1.0
    rates = [level.bytes_per_s_per_dir for level in p.levels]
    bounds = [np.zeros(())]
    if p.on_chip:
        bounds.append(cut_bound_s(kind, message_bytes, p.ranks, held, rates[0] / p.levels[0].size + sum(rates[1:])))
        held = p.local
    for outer in range(int(p.on_chip), len(p.levels)):
        across = chips * sum(rates[outer:])
        shared = np.minimum(p.stride, chips * (p.levels[0].size if p.on_chip else 1.0))
        bounds.append(cut_bound_s(kind, message_bytes * shared, p.ranks, np.minimum(held, p.ranks), across))
        held, chips = held * p.counts[outer], chips * p.levels[outer].size
    if kind == "all_to_all":
        bounds.append(np.nan_to_num(between_chips_s(message_bytes, p)))
    return np.max(np.broadcast_arrays(*bounds), axis=0)
