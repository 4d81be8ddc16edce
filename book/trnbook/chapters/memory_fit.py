"""Whether a model fits: bytes per rank by kind and by LNC, copies, buckets and scratchpads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnmodel.arguments import integers, number, numbers
from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.search.sizing import needed_bytes
from trnmodel.steps.answers import MemoryFit
from trnmodel.steps.assemble import FIRST_BUCKET
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.rank import site
from trnmodel.units import GIB, format_digits, format_quantity

KINDS: Mapping[str, str] = {
    "weight_bytes": "weights",
    "cache_bytes": "cache",
    "scratchpad_bytes": "scratchpad",
    "collective_buffer_bytes": "collective buffers",
    "ring_bytes": "DMA rings",
    "code_bytes": "code",
    "runtime_bytes": "runtime",
}
EXTRA = "first rank's extra"
ORDINARY, FIRST = "ordinary rank", "first rank"


def symbols(d: Deployment, batch: float, context: float) -> list[tuple[str, ...]]:
    """Return the chapter's notation with the values of a deployment: rows of `common.notation`."""
    batch, context = number("batch", batch, 1), number("context", context, 1)
    m, where, fit = read_model(d.model), site(d.system, d.mapping.lnc), d.fit(batch, context)
    token = m.kv_bytes_per_token(load.precision(d.precision).kv)
    stored = [
        ("", "weight_bytes", "all weights in storage", m.weight_bytes(d.precision)),
        ("", "kv_bytes_per_token", "", token),
        ("", "capacity_bytes", f"memory of a rank of {where.lnc} cores", float(fit.capacity_bytes)),
        ("P", "scratchpad_page_bytes", "page of the scratchpad", d.e.scratchpad_page_bytes),
        ("r", "ring_bytes_per_layer", "DMA rings of a layer", d.e.ring_bytes_per_layer),
        ("x", "code_bytes_per_layer", "code of a layer", d.e.code_bytes_per_layer),
        ("y", "microcode_bytes_per_core", "microcode of a physical core", d.e.microcode_bytes_per_core),
        ("a", "collective_buffer_bytes", "buffers of collectives", d.e.collective_buffer_bytes),
        ("b", "runtime_bytes", "what the process of a rank and its library keep", d.e.runtime_bytes),
        ("F", "", "what the first rank holds more", float(fit.first_rank_total_bytes - fit.total_bytes)),
    ]
    return [(*labels, format_quantity(held, "B", 4)) for *labels, held in stored] + [
        ("", "batch, context", "sequences; tokens that each may have", f"{batch:g}, {context:g}"),
        ("n", "tp", "ranks that share out a layer (TP)", f"{float(d.mapping.tp):g}"),
        ("u", "memory_share", "share of the memory that the software may use", f"{float(d.e.memory_share):.3g}"),
        ("rank", "lnc", "a logical NeuronCore, of LNC physical ones", f"{where.lnc}"),
    ]


def by_kind(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """Return what an ordinary rank and the first rank store.

    Returns
    -------
    table : pandas.DataFrame
        rank, kind, stored_bytes, capacity_bytes (of the first rank what its neighbour in a bank leaves), share of it,
        basis.

    Examples
    --------
    >>> from trnmodel.steps.mapping import Mapping
    >>> table = by_kind(Deployment(model="llama-3.1-8b", system="inf2.48xlarge", mapping=Mapping(tp=8)), 32, 4096)
    >>> float(table[table.kind == "cache"].stored_bytes.iloc[0] / 2**30)
    2.0
    """
    fit = d.fit(batch, context)
    stored = {word: float(getattr(fit, name)) for name, word in KINDS.items()}
    extra = {EXTRA: float(fit.first_rank_total_bytes - fit.total_bytes)}
    ranks = {ORDINARY: stored, FIRST: stored | extra}
    rows = [(rank, kind, held) for rank, kinds in ranks.items() for kind, held in kinds.items()]
    table = pd.DataFrame(rows, columns=["rank", "kind", "stored_bytes"])
    room = {ORDINARY: float(fit.capacity_bytes), FIRST: float(fit.first_rank_capacity_bytes)}
    capacity = table["rank"].map(room)
    return table.assign(capacity_bytes=capacity, share=table.stored_bytes / capacity, basis=fit.basis)


def verdict(fit: MemoryFit) -> str:
    """Return whether a deployment fits, with the bytes of the first rank and its capacity.

    Examples
    --------
    >>> from trnmodel.steps.mapping import Mapping
    >>> verdict(Deployment(model="llama-3.1-405b", system="inf2.48xlarge", mapping=Mapping(tp=8)).fit(1, 2048))
    'does not fit: 97.3 of 16 GiB'
    """
    stored, held = float(fit.first_rank_total_bytes), float(fit.first_rank_capacity_bytes)
    sizes = f"{format_digits(stored / GIB, 3)} of {format_digits(held / GIB, 3)} GiB"
    return f"{'fits' if fit.valid else 'does not fit'}: {sizes}"


def by_lnc(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """Return what ranks of each LNC, allowed or announced, store on the same chips, and whether they fit.

    Returns
    -------
    table : pandas.DataFrame
        ranks (LNC and TP), lnc, announced, tp, rank, kind, stored_bytes, capacity_bytes, fits, basis.
    """
    system, frames = read_system(d.system), []
    cores = float(d.mapping.tp) * (d.mapping.lnc or site(system, None).lnc)
    for lnc in (*system.chip.lnc_choices, *system.chip.lnc_announced):
        tp = max(1, round(cores / lnc))
        held = by_kind(replace(d, mapping=replace(d.mapping, tp=tp, lnc=lnc)), batch, context)
        total = held.groupby("rank", sort=False).stored_bytes.transform("sum")
        announced = site(system, lnc).announced
        label = f"LNC {lnc}{' (announced)' if announced else ''}, TP {tp}"
        held = held.assign(ranks=label, lnc=lnc, announced=announced, tp=tp, fits=total <= held.capacity_bytes)
        frames.append(held)
    columns = "ranks lnc announced tp rank kind stored_bytes capacity_bytes fits basis".split()
    return pd.concat(frames, ignore_index=True)[columns]


def copies(d: Deployment, tps: Iterable[int], batch: float, context: float) -> pd.DataFrame:
    """Compare what all ranks of a tensor-parallel group store with what the model needs once.

    An encoder keeps no cache.

    Returns
    -------
    table : pandas.DataFrame
        tp, part ("weights" or "cache"), stored_bytes (all ranks), needed_bytes, ratio. [-]
    """
    batch, context, rows = number("batch", batch, 1), number("context", context, 1), []
    needed = {part: once for part, once in needed_bytes(d, batch, context).items() if once}
    for tp in integers("tps", tps):
        fit = d.fit(batch, context, tp=tp, ep=1, pp=1, cp=1)
        stored = {"weights": float(fit.weight_bytes) * tp, "cache": float(fit.cache_bytes) * tp}
        rows += [(tp, part, stored[part], once, stored[part] / once) for part, once in needed.items()]
    return pd.DataFrame(rows, columns=["tp", "part", "stored_bytes", "needed_bytes", "ratio"])


def buckets(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """Return the graphs of buckets in powers of two up to the context: padding and memory of each.

    A decode graph reads the cache of its bucket for each sequence; the scratchpad of the largest prompt is shared by
    all graphs. Code and rings were measured for one pair of graphs; how many graphs share them is not published, so
    the columns give what they are if each pair needs its own.

    Returns
    -------
    table : pandas.DataFrame
        bucket, shortest (first length that pads to it), worst_padding, scratchpad_bytes, cache_read_bytes, graphs (so
        far), code_and_ring_bytes (of those graphs), estimate.
    """
    context = number("context", context, 1)
    top = np.ceil(np.log2(context / FIRST_BUCKET))
    sizes = np.minimum(FIRST_BUCKET * np.exp2(np.arange(max(top, 0) + 1)), context)
    shortest = np.append(1, sizes[:-1] + 1)
    fit = d.fit(batch, context, sizes)
    graphs = np.arange(1, len(sizes) + 1)
    return pd.DataFrame(
        {
            "bucket": sizes,
            "shortest": shortest,
            "worst_padding": 1 - shortest / sizes,
            "scratchpad_bytes": fit.scratchpad_bytes,
            "cache_read_bytes": d.fit(batch, sizes).cache_bytes,
            "graphs": 2 * graphs,
            "code_and_ring_bytes": graphs * (fit.code_bytes + fit.ring_bytes),
            "estimate": True,
        }
    )


def scratchpads(d: Deployment, prompts: ArrayLike, tps: Iterable[int]) -> pd.DataFrame:
    """Return the scratchpad of one prefill by length: its activations, and the whole pages that hold them."""
    at = np.atleast_1d(numbers("prompts", prompts, 1))
    stacks = {"activations": replace(d, stack="ideal"), "whole pages": d}
    return tidy(
        {
            "input_tokens": at,
            "tp": f"TP {tp}",
            "held": held,
            "scratchpad_bytes": one.fit(1, at, at, tp=tp).scratchpad_bytes,
        }
        for tp in integers("tps", tps)
        for held, one in stacks.items()
    )
