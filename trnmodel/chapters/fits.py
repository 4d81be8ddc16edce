"""Whether a model fits: bytes of a rank by kind, the largest batch and context, the smallest number of chips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.arguments import integers, listed, number, numbers, refuse
from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.assemble import FIRST_BUCKET
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import MemoryFit, memory_fit
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import format_quantity

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

KINDS: Mapping[str, str] = {
    "weight_bytes": "weights",
    "cache_bytes": "cache",
    "scratchpad_bytes": "scratchpad",
    "collective_buffer_bytes": "collective buffers",
    "ring_bytes": "DMA rings",
    "code_bytes": "code",
}
EXTRA = "first rank's extra"
ORDINARY, FIRST = "ordinary rank", "first rank"
MOST_CONTEXTS = 1000  # points of the search for the longest context


def fit(d: Deployment, batch: ArrayLike, context: ArrayLike, prompt: ArrayLike | None = None, **degrees) -> MemoryFit:
    """`tm.memory_fit` of a deployment, with other degrees where given."""
    mapping = replace(d.mapping, **degrees) if degrees else d.mapping
    return memory_fit(**d.ask | {"mapping": mapping}, batch=batch, context=context, prompt_tokens=prompt)


def notation(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """What the chapter calls things, with the values of a deployment."""
    import pandas as pd

    batch, context = number("batch", batch, 1), number("context", context, 1)
    m, where = read_model(d.model), site(d.system, d.mapping.lnc)
    token = m.kv_bytes_per_token(load.precision(d.precision).kv)
    rows = [
        ("W", "weight_bytes", "all weights in storage", m.weight_bytes(d.precision)),
        ("c", "kv_bytes_per_token", "cache of a token", token),
        ("M", "capacity_bytes", f"memory of a rank of {where.lnc} cores", where.hbm_bytes),
        ("P", "scratchpad_page_bytes", "page of the scratchpad", d.e.scratchpad_page_bytes),
        ("r", "ring_bytes_per_layer", "DMA rings of a layer", d.e.ring_bytes_per_layer),
        ("x", "code_bytes_per_layer", "code of a layer", d.e.code_bytes_per_layer),
        ("a", "collective_buffer_bytes", "buffers of collectives", d.e.collective_buffer_bytes),
        ("F", "first_rank_bytes", "what the first rank holds more", d.e.first_rank_bytes),
    ]
    words = [(*row[:3], format_quantity(row[3], "B", 4)) for row in rows]
    words += [("B, C", "batch, context", "sequences; tokens that each may have", f"{batch:g}, {context:g}")]
    words += [("n", "tp", "ranks that share out a layer (TP)", f"{float(d.mapping.tp):g}")]
    words += [("rank", "lnc", "a logical NeuronCore, of LNC physical ones", f"{where.lnc}")]
    return pd.DataFrame(words, columns=["symbol", "code name", "meaning", "value"])


def by_kind(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """What an ordinary rank and the first one store.

    Returns
    -------
    table : pandas.DataFrame
        rank, kind, stored_bytes, capacity_bytes, share (of the capacity).

    Examples
    --------
    >>> d = Deployment(model="llama-3.1-8b", system="inf2.48xlarge", mapping=Degrees(tp=8))
    >>> table = by_kind(d, 32, 4096)
    >>> float(table[table.kind == "cache"].stored_bytes.iloc[0] / 2**30)
    2.0
    """
    import pandas as pd

    found = fit(d, batch, context)
    stored = {word: float(getattr(found, name)) for name, word in KINDS.items()}
    extra = {EXTRA: float(found.first_rank_total_bytes - found.total_bytes)}
    rows = [
        {"rank": rank, "kind": kind, "stored_bytes": held}
        for rank, kinds in ((ORDINARY, stored), (FIRST, stored | extra))
        for kind, held in kinds.items()
    ]
    capacity = float(found.capacity_bytes)
    table = pd.DataFrame(rows).assign(capacity_bytes=capacity)
    return table.assign(share=table.stored_bytes / capacity)


def by_lnc(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """The same chips cut into ranks of 1, 2 or 8 cores: what the ranks store and whether they fit.

    Returns
    -------
    table : pandas.DataFrame
        ranks (LNC and TP), lnc, tp, rank, kind, stored_bytes, capacity_bytes, fits.
    """
    import pandas as pd

    system = read_system(d.system)
    chip, cores = system.chip, float(d.mapping.tp) * (d.mapping.lnc or site(system, None).lnc)
    frames = []
    for lnc in chip.lnc_choices:
        tp = max(1, round(cores / lnc))
        one = replace(d, mapping=replace(d.mapping, tp=tp, lnc=lnc))
        held = by_kind(one, batch, context)
        total = held.groupby("rank", sort=False).stored_bytes.transform("sum")
        frames.append(held.assign(ranks=f"LNC {lnc}, TP {tp}", lnc=lnc, tp=tp, fits=total <= held.capacity_bytes))
    return pd.concat(frames, ignore_index=True)[
        ["ranks", "lnc", "tp", "rank", "kind", "stored_bytes", "capacity_bytes", "fits"]
    ]


def _batches(found: MemoryFit, more: MemoryFit) -> NDArray:
    """Sequences that fit: memory grows by the same bytes with each of them; none where the first does not fit."""
    grown = more.total_bytes - found.total_bytes
    free = found.capacity_bytes - found.first_rank_total_bytes
    return np.where(found.valid, 1 + np.floor(free / np.where(grown > 0, grown, np.inf)), 0)


def largest_batch(d: Deployment, contexts: ArrayLike, tps: Iterable[int]) -> pd.DataFrame:
    """Sequences of each context that a replica holds, by TP; 0 where not even one fits.

    Returns
    -------
    table : pandas.DataFrame
        tp, context, batch, batch_per_chip. [-]
    """
    import pandas as pd

    at = np.atleast_1d(numbers("contexts", contexts, 1))
    at = at[at <= read_model(d.model).max_context]
    if not at.size:
        refuse("contexts", contexts, f"all are beyond the longest context of {read_model(d.model).id}")
    per_chip = site(d.system, d.mapping.lnc).ranks_per_chip
    frames = []
    for tp in integers("tps", tps):
        batch = _batches(fit(d, 1, at, tp=tp), fit(d, 2, at, tp=tp))
        ranks = tp * float(d.mapping.replica_ranks / d.mapping.tp)
        held = batch / np.ceil(ranks / per_chip)
        frames.append(pd.DataFrame({"tp": tp, "context": at, "batch": batch, "batch_per_chip": held}))
    return pd.concat(frames, ignore_index=True)


def longest_context(
    d: Deployment, batches: ArrayLike, tps: Iterable[int], prompt_tokens: float | None = None
) -> pd.DataFrame:
    """The longest context of all sequences of a batch, by TP, in steps of the smallest bucket; 0 where none fits.

    Returns
    -------
    table : pandas.DataFrame
        tp, batch, context, most (the model's longest context). [-]
    """
    import pandas as pd

    m = read_model(d.model)
    most = m.max_context
    if not most:
        refuse("model", m.id, "its configuration names no longest context")
    step = FIRST_BUCKET * np.ceil(most / FIRST_BUCKET / MOST_CONTEXTS)
    contexts = np.append(np.arange(step, most, step), most)
    prompt = None if prompt_tokens is None else np.minimum(number("prompt_tokens", prompt_tokens, 1), contexts)
    batch = np.atleast_1d(numbers("batches", batches, 1))
    frames = []
    for tp in integers("tps", tps):
        fits = fit(d, batch[:, None], contexts, prompt, tp=tp).valid
        found = np.where(fits, contexts, 0).max(axis=1)
        frames.append(pd.DataFrame({"tp": tp, "batch": batch, "context": found, "most": most}))
    return pd.concat(frames, ignore_index=True)


def across(d: Deployment, systems: Iterable[str], precisions: Iterable[str], contexts: ArrayLike) -> pd.DataFrame:
    """The largest batch by system and precision, at the same chips as the deployment, each at its chip's own LNC.

    Returns
    -------
    table : pandas.DataFrame
        system, precision, tp, context, batch. [-]
    """
    import pandas as pd

    chips = np.ceil(float(d.mapping.tp) / site(d.system, d.mapping.lnc).ranks_per_chip)
    frames = []
    wanted = listed("precisions", precisions)
    for name in listed("systems", systems):
        tp = int(chips * site(name, None).ranks_per_chip)
        for precision in wanted:
            one = replace(d, system=name, precision=precision, mapping=Degrees(tp=tp), stack=None)
            frames.append(largest_batch(one, contexts, [tp]).assign(system=name, precision=precision))
    table = pd.concat(frames, ignore_index=True)
    return table[["system", "precision", "tp", "context", "batch"]]


def smallest(
    models: Iterable[str], systems: Iterable[str], precisions: Iterable[str], batch: float, context: float
) -> pd.DataFrame:
    """The fewest chips that hold a model and a batch: over TP and, for experts, EP in powers of two.

    Returns
    -------
    table : pandas.DataFrame
        model, system, precision, chips (NaN where the system is too small), tp, ep, floor_chips (bytes of weights and
        cache over the HBM of a chip), system_chips, fill (of the fullest rank).

    Examples
    --------
    >>> table = smallest(["llama-3.1-8b"], ["trn2.48xlarge"], ["bf16"], 1, 2048)
    >>> table[["chips", "tp"]].iloc[0].tolist()
    [1.0, 1.0]
    """
    import pandas as pd

    batch, context = number("batch", batch, 1), number("context", context, 1)
    lists = {"models": models, "systems": systems, "precisions": precisions}
    rows = [
        _smallest(Deployment(model=name, system=where, mapping=Degrees(), precision=precision), batch, context)
        for name, where, precision in product(*(listed(name, values) for name, values in lists.items()))
    ]
    return pd.DataFrame(rows)


def _smallest(d: Deployment, batch: float, context: float) -> dict:
    where, m = site(d.system, None), read_model(d.model)
    domain_chips = read_system(d.system).domain_chips
    ranks = domain_chips * where.ranks_per_chip
    powers = np.exp2(np.arange(np.floor(np.log2(ranks)) + 1))
    routed = any(part.group == "experts" for layer in m.layers for part in layer.parts)
    ep = powers[powers <= batch] if routed else np.ones(1)
    found = fit(d, batch, context, tp=powers[:, None], ep=ep)
    used = np.where(found.valid & (powers[:, None] * ep <= ranks), powers[:, None] * ep, np.inf)
    best = np.unravel_index(used.argmin(), used.shape)
    fits = np.isfinite(used[best])
    stored = m.weight_bytes(d.precision) + batch * (_cache_bytes(d, context) + m.state_bytes())
    return {
        "model": m.id,
        "system": d.system,
        "precision": d.precision,
        "chips": float(np.ceil(used[best] / where.ranks_per_chip)) if fits else np.nan,
        "tp": powers[best[0]] if fits else np.nan,
        "ep": ep[best[1]] if fits else np.nan,
        "floor_chips": float(np.ceil(stored / where.chip.hbm_bytes)),
        "system_chips": domain_chips,
        "fill": float((found.first_rank_total_bytes / found.capacity_bytes)[best]) if fits else np.nan,
    }


def _cache_bytes(d: Deployment, context: ArrayLike) -> NDArray:
    return read_model(d.model).kv_bytes(context, load.precision(d.precision).kv)


def copies(d: Deployment, tps: Iterable[int], batch: float, context: float) -> pd.DataFrame:
    """What all ranks of a tensor-parallel group store over what the model needs once.

    Returns
    -------
    table : pandas.DataFrame
        tp, part ("weights" or "cache"), stored_bytes (all ranks), needed_bytes, ratio. [-]
    """
    import pandas as pd

    batch, context, m = number("batch", batch, 1), number("context", context, 1), read_model(d.model)
    needed = {"weights": m.weight_bytes(d.precision), "cache": batch * (_cache_bytes(d, context) + m.state_bytes())}
    rows = []
    for tp in integers("tps", tps):
        found = fit(d, batch, context, tp=tp, ep=1, pp=1, cp=1)
        for part, held in (("weights", found.weight_bytes), ("cache", found.cache_bytes)):
            stored, once = float(held) * tp, float(needed[part])
            line = {"tp": tp, "part": part, "stored_bytes": stored, "needed_bytes": once}
            rows += [line | {"ratio": stored / once}] if once else []  # an encoder keeps no cache
    return pd.DataFrame(rows)


def buckets(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """The graphs that powers of two up to the context make: what each pads, and what each asks of memory.

    A decode graph reads the cache of its bucket for each sequence; the scratchpad of the largest prompt is shared by
    all graphs. Code and rings were measured for one pair of graphs; how many graphs share them is not published, so
    the columns give what they are if each pair needs its own.

    Returns
    -------
    table : pandas.DataFrame
        bucket, shortest (first length that pads to it), worst_padding, scratchpad_bytes, cache_read_bytes, graphs (so
        far), code_and_ring_bytes (of so many), estimate.
    """
    import pandas as pd

    context = number("context", context, 1)
    top = np.ceil(np.log2(context / FIRST_BUCKET))
    sizes = np.minimum(FIRST_BUCKET * np.exp2(np.arange(max(top, 0) + 1)), context)
    shortest = np.append(1, sizes[:-1] + 1)
    found = fit(d, batch, context, sizes)
    graphs = np.arange(1, len(sizes) + 1)
    return pd.DataFrame(
        {
            "bucket": sizes,
            "shortest": shortest,
            "worst_padding": 1 - shortest / sizes,
            "scratchpad_bytes": found.scratchpad_bytes,
            "cache_read_bytes": fit(d, batch, sizes).cache_bytes,
            "graphs": 2 * graphs,
            "code_and_ring_bytes": graphs * (found.code_bytes + found.ring_bytes),
            "estimate": True,
        }
    )


def scratchpads(d: Deployment, prompts: ArrayLike, tps: Iterable[int]) -> pd.DataFrame:
    """Scratchpad of one prefill by length: what activations take, and the whole pages that hold them."""
    import pandas as pd

    at = np.atleast_1d(numbers("prompts", prompts, 1))
    ideal = replace(d, stack="ideal")
    frames = [
        pd.DataFrame({"prompt_tokens": at, "tp": f"TP {tp}", "held": word, "scratchpad_bytes": held.scratchpad_bytes})
        for tp in integers("tps", tps)
        for word, held in (
            ("activations", fit(ideal, 1, at, at, tp=tp)),
            ("whole pages", fit(d, 1, at, at, tp=tp)),
        )
    ]
    return pd.concat(frames, ignore_index=True)
